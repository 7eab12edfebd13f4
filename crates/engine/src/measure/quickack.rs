//! Keeps `TCP_QUICKACK` as a test asks for it. The kernel leaves and enters quick acknowledgements
//! with the traffic (`inet_csk_in_pingpong_mode`, net/ipv4/tcp_input.c), so the option is set again
//! before each receiving call.

use std::net::TcpStream;

use linerate_core::plan::Test;
use linerate_sys::socket;

/// What a test asks for; without it nothing is set.
#[derive(Debug, Clone, Copy)]
pub(crate) struct QuickAck(Option<bool>);

impl QuickAck {
    pub(crate) fn new(test: &Test) -> Self {
        Self(test.options.quickack)
    }

    /// Leaves it to the kernel.
    pub(crate) const NONE: Self = Self(None);

    #[inline]
    pub(crate) fn renew(self, socket: &TcpStream) {
        if let Some(on) = self.0 {
            // It took when the socket was made. On one that has ended since, the call that follows
            // says so.
            let _ = socket::set_quickack(socket, on);
        }
    }
}
