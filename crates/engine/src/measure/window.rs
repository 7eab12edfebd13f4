//! Holds the window that a receiver may advertise at a figure.
//!
//! Linux has no option for that. `SO_RCVBUF` bounds the memory of the receive queue, of which the
//! kernel offers the share that payload has had of its packets' memory so far (`scaling_ratio`,
//! net/ipv4/tcp_input.c): half of it at first, nearly all of it once large frames have come, less
//! of small ones. `TCP_WINDOW_CLAMP` does not hold. So the buffer is set anew until the window
//! offered is the one wanted.

use std::net::TcpStream;

use linerate_sys::socket;
use linerate_sys::tcp_info::TcpInfo;

/// Windows this near to the wanted one are left alone.
const NEAR: f64 = 0.02;

/// Keeps one receiver's window.
pub(crate) struct WindowKeeper {
    wanted: u64,
    /// `SO_RCVBUF` as it was set last; the kernel doubles it.
    buffer: u64,
    /// The window at the last look.
    last: u64,
}

/// The buffer to begin with: enough if nearly all of it is offered, so that the window is never too
/// large.
pub(crate) fn first_buffer(wanted: u64) -> u64 {
    wanted.div_ceil(2).max(1)
}

impl WindowKeeper {
    pub(crate) fn new(wanted: u64) -> Self {
        Self {
            wanted,
            buffer: first_buffer(wanted),
            last: 0,
        }
    }

    /// Looks at the window offered now and corrects the buffer.
    pub(crate) fn look(&mut self, socket: &TcpStream) {
        let Ok(TcpInfo {
            rcv_wnd: Some(offered),
            ..
        }) = TcpInfo::read(socket)
        else {
            return;
        };
        let buffer = self.corrected(u64::from(offered));
        let growing = !near(u64::from(offered), self.last);
        self.last = u64::from(offered);
        if buffer > self.buffer && growing {
            // Slow start of the window itself: what it will be is not known yet.
            return;
        }
        if buffer != self.buffer
            && socket::set_receive_buffer(socket, u32::try_from(buffer).unwrap_or(u32::MAX)).is_ok()
        {
            self.buffer = buffer;
            // Where this is refused the window stays smaller, and the record says so.
            let _ =
                socket::set_window_clamp(socket, u32::try_from(self.wanted).unwrap_or(u32::MAX));
        }
    }

    /// The offered share is between an eighth and all of the doubled buffer: a fifth was seen of
    /// segments that an emulated link hands over one by one.
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
    use super::*;

    /// A kernel that offers `share` of the doubled buffer.
    fn settled(wanted: u64, share: f64) -> f64 {
        let mut keeper = WindowKeeper::new(wanted);
        for _ in 0..10 {
            let offered = (2.0 * keeper.buffer as f64 * share) as u64;
            keeper.buffer = keeper.corrected(offered);
        }
        2.0 * keeper.buffer as f64 * share / wanted as f64
    }

    #[test]
    fn the_window_settles_at_what_was_wanted_whatever_share_the_kernel_offers() {
        for wanted in [4096, 51_200, 4 << 20] {
            for share in [0.13, 0.22, 0.5, 0.66, 0.8, 0.99] {
                let ratio = settled(wanted, share);
                assert!((ratio - 1.0).abs() <= 0.03, "{wanted} {share}: {ratio}");
            }
        }
    }
}
