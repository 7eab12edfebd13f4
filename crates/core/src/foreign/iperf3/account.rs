//! Converts the report of one end to iperf3's results, and back.

use crate::foreign::told::{are_possible, other_half};
use crate::plan::{Direction, Protocol, Test};
use crate::record::{CpuSeconds, EndReport, TcpEvidence};
use crate::session::message::{FlowHalf, HalfReport, UdpReceived, UdpSent};

use super::{Results, StreamResult, stream_id};

impl Results {
    /// The results of this end.
    pub fn of_half(half: &HalfReport, test: &Test) -> Self {
        let seconds = longest(half);
        let percent = |cpu_seconds: f64| {
            if seconds > 0.0 { 100.0 * cpu_seconds / seconds } else { 0.0 }
        };
        let tcp = test.protocol != Protocol::Udp;
        let cpu = half.end.cpu_seconds;
        let evidence = || half.flows.iter().filter_map(|flow| flow.tcp.as_ref());
        let sender = evidence().find_map(|tcp| tcp.sender()?.congestion.clone());
        // A receiver's socket has an algorithm, too, and never uses it.
        let receiver = || evidence().find_map(|tcp| tcp.receiver.as_ref()?.congestion.clone());
        Self {
            cpu_percent: (percent(cpu.user), percent(cpu.system)),
            has_retransmits: half.flows.iter().any(|flow| flow.sends).then_some(tcp),
            congestion: sender.or_else(receiver),
            streams: half.flows.iter().map(StreamResult::of_flow).collect(),
            output: None,
        }
    }

    /// Whether the counts can be those of the test that `here` has seen.
    pub fn is_possible(&self, here: &HalfReport) -> bool {
        here.flows.iter().all(|flow| {
            let id = stream_id(flow.id);
            let told = self.streams.iter().find(|stream| stream.id == id);
            told.is_none_or(|told| are_possible(told.bytes, flow))
        })
    }

    /// The other end's half of a test of which `here` is this end's. With `own_time` its streams
    /// are as long as this end's, whatever it tells: a server goes on counting until it hears that
    /// a test which ends by a count is over.
    pub fn to_half(&self, here: &HalfReport, own_time: bool) -> HalfReport {
        let flows = here.flows.iter().filter_map(|flow| {
            let id = stream_id(flow.id);
            let told = self.streams.iter().find(|stream| stream.id == id)?;
            let told = StreamResult { seconds: told.seconds.filter(|_| !own_time), ..*told };
            Some(told.to_flow(flow))
        });
        let seconds = longest(here);
        let (user, system) = self.cpu_percent;
        HalfReport {
            flows: flows.collect(),
            end: EndReport {
                cpu_seconds: CpuSeconds {
                    user: user / 100.0 * seconds,
                    system: system / 100.0 * seconds,
                },
                ..EndReport::default()
            },
            ..HalfReport::default()
        }
    }
}

impl StreamResult {
    fn of_flow(flow: &FlowHalf) -> Self {
        let mut result = Self {
            id: stream_id(flow.id),
            bytes: flow.bytes,
            seconds: Some(flow.seconds),
            ..Self::default()
        };
        let tcp = flow.tcp.as_ref();
        result.retransmits = tcp.and_then(TcpEvidence::retransmitted_segments);
        // iperf3 3.12 takes its own warm-up from the packets, and nothing from the errors.
        if let Some(sent) = &flow.udp_sent {
            result.packets = sent.omitted + sent.sent;
            result.omitted = Some(sent.omitted);
        }
        if let Some(received) = &flow.udp_received {
            let expected = received.expected.unwrap_or(received.received);
            result.packets = received.omitted + expected;
            result.omitted = Some(received.omitted);
            result.errors = expected.saturating_sub(received.received);
            result.jitter_s = received.jitter_ns / 1e9;
        }
        result
    }

    /// The other end's half of `flow`.
    fn to_flow(self, flow: &FlowHalf) -> FlowHalf {
        let udp_sent = flow.udp_received.as_ref().map(|received| UdpSent {
            sent: self.sent_to(received, flow.direction),
            ..UdpSent::default()
        });
        let udp_received = flow.udp_sent.as_ref().map(|sent| self.received_of(sent));
        let sent = udp_sent.as_ref().map(|sent| sent.sent);
        let received = || udp_received.as_ref().map(|received| received.received);
        let messages = sent.or_else(received);
        FlowHalf {
            udp_sent,
            udp_received,
            ..other_half(flow, self.bytes, messages, self.seconds, self.retransmits)
        }
    }

    /// What the other end has sent in the measured time of this one. The two do not begin and end
    /// at the same moment, but they number the datagrams alike.
    fn sent_to(&self, received: &UdpReceived, direction: Direction) -> u64 {
        let expected = received.expected.unwrap_or(received.received);
        let omitted = received.omitted.max(self.omitted.unwrap_or(0));
        match direction {
            // A server sends on until it hears of the end.
            Direction::Down if expected > 0 => expected,
            _ => expected.max(self.packets.saturating_sub(omitted)),
        }
    }

    /// What the other end has received of what this one has sent in its measured time.
    fn received_of(&self, sent: &UdpSent) -> UdpReceived {
        let all = sent.omitted + sent.sent;
        let lost = match self.omitted {
            // Of both phases alike.
            None if sent.omitted > 0 => {
                (self.errors as f64 * sent.sent as f64 / all as f64).round() as u64
            }
            _ => self.errors,
        };
        // Behind the last that came.
        let unseen = all.saturating_sub(self.packets);
        UdpReceived {
            received: sent.sent.saturating_sub(lost.saturating_add(unseen)),
            jitter_ns: self.jitter_s * 1e9,
            ..UdpReceived::default()
        }
    }
}

fn longest(half: &HalfReport) -> f64 {
    half.flows.iter().map(|f| f.seconds).fold(0.0, f64::max)
}
