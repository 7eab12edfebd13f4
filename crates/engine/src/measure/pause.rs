//! When a receiver to whom much comes pauses between two calls.
//!
//! Whoever sends to a receiver that sleeps in its call has to wake it, which may cost more than
//! what was sent. A receiver that pauses instead finds what came meanwhile, and nobody was held up
//! by it.

use std::os::fd::AsFd;
use std::time::Duration;

use linerate_sys::socket;

/// What came of late, and whether pauses are worth their while.
#[derive(Debug)]
pub(super) struct Pause {
    least: u64,
    began_ns: u64,
    count: u64,
    bytes: u64,
    is_worth_it: bool,
}

impl Pause {
    /// Of a receiver to whom at least so much comes in a pause, counted as [`Pause::add`] is told:
    /// less does not make up for a sleep of its own.
    pub(super) fn new(least: u64, now_ns: u64) -> Self {
        Self {
            least,
            began_ns: now_ns,
            count: 0,
            bytes: 0,
            is_worth_it: false,
        }
    }

    /// A call has brought so many, and so many bytes.
    pub(super) fn add(&mut self, count: u64, bytes: u64) {
        self.count += count;
        self.bytes += bytes;
    }

    /// All is taken that had come: how long to pause before the next call. `buffer` is asked for
    /// the length of the socket's buffer, bytes, now and then.
    pub(super) fn due(&mut self, now_ns: u64, buffer: impl FnOnce() -> u64) -> Option<Duration> {
        let elapsed = now_ns.saturating_sub(self.began_ns);
        if elapsed >= SPELL_NS {
            let in_pause = |count: u64| count as f64 * PAUSE.as_nanos() as f64 / elapsed as f64;
            self.is_worth_it = in_pause(self.count) >= self.least as f64
                && in_pause(self.bytes) * ROOM < buffer() as f64;
            (self.began_ns, self.count, self.bytes) = (now_ns, 0, 0);
        }
        self.is_worth_it.then_some(PAUSE)
    }
}

/// Bytes of the socket's receive buffer; 0 if it cannot be known.
pub(super) fn receive_buffer(socket: &impl AsFd) -> u64 {
    socket::memory(socket).map_or(0, |memory| memory.receive_buffer.into())
}

/// Short against the jitter and the round trips of a network, long against the time between two
/// packets of a fast one.
const PAUSE: Duration = Duration::from_micros(50);
/// The kernel counts up to twice a packet's length, may end a pause late, and is not to offer a
/// window that is too small.
const ROOM: f64 = 8.0;
/// How long is looked before it is decided again, ns.
const SPELL_NS: u64 = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    /// Pauses in a second of so many datagrams of 1 kB, of which four make a pause worth its while.
    fn pauses(per_s: u64, buffer: u64) -> usize {
        let mut pause = Pause::new(4, 0);
        (1..=per_s)
            .filter(|n| {
                pause.add(1, 1000);
                pause.due(n * 1_000_000_000 / per_s, || buffer).is_some()
            })
            .count()
    }

    #[test]
    fn only_a_fast_stream_that_fits_the_buffer_gives_pauses() {
        assert_eq!(pauses(79_000, 4 << 20), 0);
        assert!(pauses(81_000, 4 << 20) > 79_000);
        // 400 datagrams of 1 kB come in a pause: 8 times that is 3.2 MB.
        assert!(pauses(8_000_000, 4 << 20) > 7_000_000);
        assert_eq!(pauses(8_000_000, 2 << 20), 0);
    }

    #[test]
    fn a_stream_that_slows_down_ends_the_pauses() {
        let mut pause = Pause::new(4, 0);
        pause.add(1000, 1_000_000);
        assert_eq!(pause.due(1_000_000, || 4 << 20), Some(PAUSE));
        pause.add(1, 1000);
        let unasked = || unreachable!("decided each ms");
        assert_eq!(pause.due(1_500_000, unasked), Some(PAUSE));
        assert_eq!(pause.due(2_100_000, || 4 << 20), None);
    }
}
