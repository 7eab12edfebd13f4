//! Keeps `TCP_QUICKACK` as a test asks for it. The kernel leaves and enters quick acknowledgements
//! with the traffic (`inet_csk_in_pingpong_mode`, net/ipv4/tcp_input.c), so the option is set again
//! before each receiving call.

use std::net::TcpStream;

use linerate_core::plan::Test;
use linerate_sys::socket;

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
