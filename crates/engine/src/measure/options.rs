//! A test's socket options, set on a data socket and read back, and a receive window held at its
//! size.

use std::net::TcpStream;
use std::os::fd::AsFd;

use linerate_core::plan::{SocketOptions, Test};
use linerate_core::units::{ByteCount, End};
use linerate_sys::socket::{self, OptionError};
use linerate_sys::tcp_info::TcpInfo;

/// Sets the options of this end of a TCP flow. Only the client sets the segment size: the one that
/// its SYN offers holds for both ends.
///
/// # Errors
/// The first option that the kernel refuses or does not set as asked.
pub(crate) fn apply_tcp(
    socket: &impl AsFd,
    options: &SocketOptions,
    side: End,
    sends: bool,
) -> Result<(), OptionError> {
    if side == End::Client
        && let Some(mss) = options.mss_bytes
    {
        socket::set_mss(socket, mss)?;
    }
    if options.nodelay {
        socket::set_nodelay(socket, true)?;
    }
    if let Some(quickack) = options.quickack {
        socket::set_quickack(socket, quickack)?;
    }
    apply_any(socket, options)?;
    if sends {
        if let Some(name) = &options.congestion {
            socket::set_congestion(socket, name)?;
        }
        if let Some(pacing) = options.pacing_bps {
            socket::set_max_pacing_rate(socket, pacing.bytes_per_second())?;
        }
        if let Some(ByteCount(bytes)) = options.send_buffer_bytes {
            socket::set_send_buffer(socket, clamp(bytes))?;
        }
    } else if let Some(ByteCount(bytes)) = options.receive_window_bytes {
        socket::set_receive_buffer(socket, clamp(first_buffer(bytes)))?;
    }
    Ok(())
}

/// Sets the options that sockets of all protocols have.
fn apply_any(socket: &impl AsFd, options: &SocketOptions) -> Result<(), OptionError> {
    if let Some(dscp) = options.dscp {
        socket::set_traffic_class(socket, dscp.octet())?;
    }
    if let Some(microseconds) = options.busy_poll_us {
        socket::set_busy_poll(socket, microseconds)?;
    }
    Ok(())
}

/// Sets the options of a UDP flow: its buffers, its code point, how long it spins.
///
/// # Errors
/// As [`apply_tcp`].
pub(crate) fn apply_udp(
    socket: &impl AsFd,
    options: &SocketOptions,
    sends: bool,
) -> Result<(), OptionError> {
    apply_any(socket, options)?;
    let buffer = if sends { options.send_buffer_bytes } else { options.receive_window_bytes };
    match (buffer, sends) {
        (Some(ByteCount(bytes)), true) => socket::set_send_buffer(socket, clamp(bytes)).map(drop),
        (Some(ByteCount(bytes)), false) => {
            socket::set_receive_buffer(socket, clamp(bytes)).map(drop)
        }
        (None, _) => Ok(()),
    }
}

fn clamp(bytes: u64) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

/// The setting that a test asks for; without one the kernel decides.
#[derive(Debug, Clone, Copy)]
pub(crate) struct QuickAck(Option<bool>);

impl QuickAck {
    pub(crate) fn new(test: &Test) -> Self {
        Self(test.options.quickack)
    }

    /// Leaves the decision to the kernel.
    pub(crate) const NONE: Self = Self(None);

    #[inline]
    pub(crate) fn renew(self, socket: &TcpStream) {
        if let Some(on) = self.0 {
            // The option was accepted when the socket was made. If the connection has ended since,
            // the next call reports that.
            let _ = socket::set_quickack(socket, on);
        }
    }
}

// A receive window of a given size.

/// A window within this share of the wanted one is not corrected.
const NEAR: f64 = 0.02;

/// Holds the window that one receiver advertises at a given size.
///
/// Linux has no option for that. `SO_RCVBUF` limits the memory of the receive queue. The kernel
/// advertises a share of it: the share that payload has had of its packets' memory so far
/// (`scaling_ratio`, net/ipv4/tcp_input.c), which is half at first, nearly all once large frames
/// have arrived, and less with small ones. `TCP_WINDOW_CLAMP` alone does not hold the window. So
/// the buffer is set again and again until the advertised window is the wanted one.
pub(crate) struct WindowKeeper {
    wanted: u64,
    /// `SO_RCVBUF` as it was last set; the kernel doubles it.
    buffer: u64,
    /// The window at the last reading.
    last: u64,
}

/// The first buffer, bytes: enough if the kernel advertises nearly all of it, so that the window is
/// never too large.
pub(crate) fn first_buffer(wanted: u64) -> u64 {
    wanted.div_ceil(2).max(1)
}

impl WindowKeeper {
    pub(crate) fn new(wanted: u64) -> Self {
        Self { wanted, buffer: first_buffer(wanted), last: 0 }
    }

    /// Reads the advertised window and corrects the buffer.
    pub(crate) fn look(&mut self, socket: &TcpStream) {
        let Ok(TcpInfo { rcv_wnd: Some(offered), .. }) = TcpInfo::read(socket) else {
            return;
        };
        let buffer = self.corrected(u64::from(offered));
        let growing = !near(u64::from(offered), self.last);
        self.last = u64::from(offered);
        if buffer > self.buffer && growing {
            // The window itself is still growing: its final size is not known yet.
            return;
        }
        if buffer != self.buffer
            && socket::set_receive_buffer(socket, u32::try_from(buffer).unwrap_or(u32::MAX)).is_ok()
        {
            self.buffer = buffer;
            // If this is refused, the window stays smaller, and the record shows its size.
            let _ =
                socket::set_window_clamp(socket, u32::try_from(self.wanted).unwrap_or(u32::MAX));
        }
    }

    /// The buffer for the wanted window. The kernel advertises between an eighth and all of the
    /// doubled buffer: a fifth was seen with segments that an emulated link delivers one by one.
    fn corrected(&self, offered: u64) -> u64 {
        if near(offered, self.wanted) {
            return self.buffer;
        }
        let ratio = self.wanted as f64 / offered.max(1) as f64;
        let corrected = (self.buffer as f64 * ratio).round() as u64;
        corrected.clamp(first_buffer(self.wanted), 4 * self.wanted)
    }
}

fn near(a: u64, b: u64) -> bool {
    a.abs_diff(b) as f64 <= NEAR * b as f64
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};

    use super::*;

    #[test]
    fn the_setting_comes_back_each_time_that_the_kernel_has_changed_it() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        for on in [true, false, true] {
            // As the kernel does with the traffic.
            socket::set_quickack(&stream, !on).unwrap();
            QuickAck::NONE.renew(&stream);
            assert_eq!(socket::quickack(&stream).unwrap(), !on);
            QuickAck(Some(on)).renew(&stream);
            assert_eq!(socket::quickack(&stream).unwrap(), on);
        }
    }

    /// Window divided by wanted window, with a kernel that advertises `share` of the doubled
    /// buffer.
    fn settled(wanted: u64, share: f64) -> f64 {
        let mut keeper = WindowKeeper::new(wanted);
        for _ in 0..10 {
            let offered = (2.0 * keeper.buffer as f64 * share) as u64;
            keeper.buffer = keeper.corrected(offered);
        }
        2.0 * keeper.buffer as f64 * share / wanted as f64
    }

    #[test]
    fn the_window_settles_at_the_wanted_size_whatever_share_the_kernel_advertises() {
        for wanted in [4096, 51_200, 4 << 20] {
            for share in [0.13, 0.22, 0.5, 0.66, 0.8, 0.99] {
                let ratio = settled(wanted, share);
                assert!((ratio - 1.0).abs() <= 0.03, "{wanted} {share}: {ratio}");
            }
        }
    }
}
