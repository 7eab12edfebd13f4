//! When the receiver of a fast stream, or of many connections, pauses between two calls.
//!
//! A sender must wake a receiver that sleeps in its call, which may cost more CPU time than the
//! data. A receiver that pauses instead takes what has arrived during the pause, and the sender
//! wakes nobody.

use std::os::fd::AsFd;
use std::time::Duration;

use linerate_sys::socket;

/// Measures what arrives, and decides whether pauses are worth it.
#[derive(Debug)]
pub(crate) struct Pause {
    length: Duration,
    min: u64,
    began_ns: u64,
    calls: u64,
    count: u64,
    bytes: u64,
    /// What a call received, in the mean, when there were no pauses.
    count_per_call: f64,
    is_worth_it: bool,
}

impl Pause {
    /// Pauses are worth it if at least `min` arrive during one, counted as in [`Pause::add`], or if
    /// a pause saves several calls: otherwise they do not make up for the receiver's own sleep.
    pub(crate) fn new(min: u64, now_ns: u64) -> Self {
        Self {
            length: PAUSE,
            min,
            began_ns: now_ns,
            calls: 0,
            count: 0,
            bytes: 0,
            count_per_call: 0.0,
            is_worth_it: false,
        }
    }

    /// Pauses of another length than the 50 µs of a stream's receiver.
    pub(crate) fn lasting(self, length: Duration) -> Self {
        Self { length, ..self }
    }

    /// Counts what a call has received: `count` datagrams or bytes, of `bytes` bytes in all.
    pub(crate) fn add(&mut self, count: u64, bytes: u64) {
        self.calls += 1;
        self.count += count;
        self.bytes += bytes;
    }

    /// How long to pause before the next call, once everything that has arrived is taken. `buffer`
    /// gives the size of the socket's receive buffer, bytes; it is called about once a millisecond.
    pub(crate) fn due(&mut self, now_ns: u64, buffer: impl FnOnce() -> u64) -> Option<Duration> {
        let elapsed = now_ns.saturating_sub(self.began_ns);
        if elapsed >= SPELL_NS {
            let in_pause =
                |count: u64| count as f64 * self.length.as_nanos() as f64 / elapsed as f64;
            if !self.is_worth_it {
                self.count_per_call = self.count as f64 / self.calls.max(1) as f64;
            }
            let enough = (self.min as f64).min(CALLS_SAVED * self.count_per_call);
            self.is_worth_it =
                in_pause(self.count) >= enough && in_pause(self.bytes) * ROOM < buffer() as f64;
            (self.began_ns, self.calls, self.count, self.bytes) = (now_ns, 0, 0, 0);
        }
        self.is_worth_it.then_some(self.length)
    }
}

/// Size of the socket's receive buffer, bytes; 0 if it cannot be read.
pub(super) fn receive_buffer(socket: &impl AsFd) -> u64 {
    socket::memory(socket).map_or(0, |memory| memory.receive_buffer.into())
}

/// Short compared with the jitter and the round trips of a network, long compared with the time
/// between two packets of a fast one.
const PAUSE: Duration = Duration::from_micros(50);
/// The receive buffer must hold this many times what arrives during a pause: the kernel counts up
/// to twice a packet's length, may end a pause late, and must not advertise too small a window.
const ROOM: f64 = 8.0;
/// A pause must take what so many calls take without pauses: of small messages each wakes the
/// receiver.
const CALLS_SAVED: f64 = 4.0;
/// Time between two decisions, ns.
const SPELL_NS: u64 = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    /// Number of pauses in a second with this many datagrams of 1 kB; four make a pause worth it.
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
    fn only_a_fast_stream_that_fits_the_buffer_leads_to_pauses() {
        assert_eq!(pauses(79_000, 4 << 20), 0);
        assert!(pauses(81_000, 4 << 20) > 79_000);
        // 400 datagrams of 1 kB arrive during a pause: 8 times that is 3.2 MB.
        assert!(pauses(8_000_000, 4 << 20) > 7_000_000);
        assert_eq!(pauses(8_000_000, 2 << 20), 0);
    }

    #[test]
    fn small_messages_that_each_wake_the_receiver_lead_to_pauses() {
        // 32 KiB in a pause are far away: 32 bytes each 10 us, five in a pause.
        let mut pause = Pause::new(32 << 10, 0);
        let mut now_ns = 0;
        let mut due = |each_ns: u64, spells: u64| {
            let mut last = None;
            for _ in 0..spells * SPELL_NS / each_ns {
                now_ns += each_ns;
                pause.add(32, 32);
                last = pause.due(now_ns, || 4 << 20);
            }
            last
        };
        assert_eq!(due(20_000, 3), None);
        assert_eq!(due(10_000, 3), Some(PAUSE));
        // The pauses last while as much arrives, in however few calls, and end with it.
        assert_eq!(due(20_000, 3), None);
    }

    #[test]
    fn connections_gather_while_four_arrive_in_a_longer_pause_and_the_backlog_is_long() {
        let mut gathering = Pause::new(4, 0).lasting(Duration::from_micros(500));
        let mut now_ns = 0;
        let mut pauses = |per_s: u64, backlog: u64| {
            let pauses = |_: &u64| {
                now_ns += 1_000_000_000 / per_s;
                gathering.add(1, 1);
                gathering.due(now_ns, || backlog).is_some()
            };
            (0..per_s).filter(pauses).count()
        };
        assert_eq!(pauses(7_900, 4096), 0);
        assert!(pauses(8_100, 4096) > 8_000);
        assert!(pauses(100_000, 4096) > 99_000);
        assert!(pauses(7_900, 4096) < 100, "few arrive again");
        assert_eq!(pauses(100_000, 256), 0);
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
