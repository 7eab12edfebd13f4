//! A test's socket options, set on a data socket and read back.

use std::net::TcpStream;
use std::os::fd::AsFd;

use linerate_core::plan::{SocketOptions, Test};
use linerate_core::units::{ByteCount, End};
use linerate_sys::socket::{self, OptionError};

use super::window::first_buffer;

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
}
