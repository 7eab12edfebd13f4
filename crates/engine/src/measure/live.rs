//! The flows of a half while it runs, for those who display them.

use std::net::SocketAddr;
use std::time::Duration;

use linerate_core::plan::Test;
use linerate_sys::socket;
use linerate_sys::tcp_info::TcpInfo;

use super::flow::FlowSocket;
use super::shared::FlowState;

/// The present state of a flow; counts are since it began, warm-up included.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct LiveFlow {
    /// Its number.
    pub id: u32,
    /// Whether this end sends.
    pub sends: bool,
    /// This end's address and port, while there is a socket.
    pub local: Option<SocketAddr>,
    /// The other end's address and port.
    pub remote: Option<SocketAddr>,
    /// Payload sent or received, bytes.
    pub bytes: u64,
    /// Messages written or datagrams moved.
    pub messages: u64,
    /// Datagrams lost in the measured time.
    pub lost: u64,
    /// Jitter of datagrams (RFC 3550, 6.4.1), ns.
    pub jitter_ns: u64,
    /// Buffers in force, bytes: send, receive.
    pub buffers: [u32; 2],
    /// The kernel's figures, if this end sends over TCP.
    pub tcp: Option<LiveTcp>,
}

/// The present state of a TCP sender.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct LiveTcp {
    /// Segments retransmitted since the connection began.
    pub retransmits: u64,
    /// Congestion window, bytes.
    pub cwnd: u64,
    /// Window that the receiver offers, bytes.
    pub window: u64,
    /// Smoothed round-trip time, µs.
    pub rtt_us: u32,
    /// Its mean deviation, µs.
    pub rtt_var_us: u32,
    /// Path MTU that the kernel believes in, bytes.
    pub pmtu: u32,
    /// The reordering that it reckons with, segments.
    pub reordering: u32,
}

impl From<&FlowState> for LiveFlow {
    fn from(flow: &FlowState) -> Self {
        let (lost, jitter_ns) = flow.counters.loss();
        let mut live = Self {
            id: flow.id,
            sends: flow.sends,
            bytes: flow.counters.bytes(),
            messages: flow.counters.messages(),
            lost,
            jitter_ns,
            ..Self::default()
        };
        if let Some(socket) = &flow.socket {
            (live.local, live.remote) = socket.addresses();
        }
        match &flow.socket {
            Some(FlowSocket::Tcp(stream)) => {
                let info = TcpInfo::read(stream).ok().filter(|_| flow.sends);
                live.tcp = info.as_ref().map(LiveTcp::from);
                live.buffers = buffers(stream);
            }
            Some(FlowSocket::Udp(socket)) => live.buffers = buffers(socket),
            None => {}
        }
        live
    }
}

impl From<&TcpInfo> for LiveTcp {
    fn from(info: &TcpInfo) -> Self {
        Self {
            retransmits: info.total_retrans.into(),
            cwnd: u64::from(info.snd_cwnd) * u64::from(info.snd_mss),
            window: info.snd_wnd.unwrap_or(0).into(),
            rtt_us: info.rtt,
            rtt_var_us: info.rttvar,
            pmtu: info.pmtu,
            reordering: info.reordering,
        }
    }
}

fn buffers(socket: &impl std::os::fd::AsFd) -> [u32; 2] {
    [socket::send_buffer(socket).unwrap_or(0), socket::receive_buffer(socket).unwrap_or(0)]
}

/// The time until the next interval of a test ends, and the number of intervals that have ended.
/// Warm-up and measured time each begin an interval of their own.
pub(crate) fn until_interval(test: &Test, at_s: f64) -> (Duration, u64) {
    let (width, warm_up) = (test.interval.as_secs_f64(), test.warm_up.as_secs_f64());
    let next = |at: f64| ((at / width).floor() + 1.0) * width;
    let (due, over) = if at_s < warm_up {
        (next(at_s).min(warm_up), at_s / width)
    } else {
        let measured = at_s - warm_up;
        let before = (warm_up / width).ceil();
        (warm_up + next(measured), before + measured / width)
    };
    (Duration::from_secs_f64((due - at_s).max(0.001)), over as u64)
}

#[cfg(test)]
mod tests {
    use linerate_core::units::Span;

    use super::*;

    #[test]
    fn an_interval_ends_when_its_time_is_over_or_the_warm_up_is() {
        let mut test = Test::stream().resolve(1).expect("a test");
        test.interval = Span(Duration::from_secs(2));
        test.warm_up = Span(Duration::from_secs(3));
        let due = |at_s| {
            let (wait, over) = until_interval(&test, at_s);
            ((at_s + wait.as_secs_f64()) as u64, over)
        };
        assert_eq!(due(0.5), (2, 0));
        assert_eq!(due(2.5), (3, 1));
        assert_eq!(due(3.5), (5, 2));
        assert_eq!(due(5.5), (7, 3));
    }
}
