//! When the endpoint lets connections gather before it accepts them.
//!
//! The kernel completes handshakes by itself. A worker that wakes up for each connection takes CPU
//! time that a client on the same host, or its packets, need: over loopback a client opened 0.8 as
//! many connections in the same time as with rests.

use std::time::Duration;

/// Measures how fast connections arrive.
#[derive(Debug, Default)]
pub(super) struct Crowd {
    arrived: u64,
    since: u64,
    comes: bool,
}

impl Crowd {
    /// Counts a connection.
    pub(super) fn add(&mut self) {
        self.arrived += 1;
    }

    /// Whether so many arrive that a rest is worth it.
    pub(super) fn comes(&mut self, now: u64) -> bool {
        let elapsed = now.saturating_sub(self.since);
        if elapsed >= SPELL {
            self.comes = self.arrived * REST.as_nanos() as u64 >= WORTH_A_REST * elapsed;
            (self.arrived, self.since) = (0, now);
        }
        self.comes
    }
}

/// Short compared with the time until a backlog of 4096 is full.
pub(super) const REST: Duration = Duration::from_micros(500);
/// Connections that arrive in a rest, at least: one wake-up instead of so many.
const WORTH_A_REST: u64 = 4;
/// Time between two decisions, at least, ns.
const SPELL: u64 = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rest_is_worth_it_while_many_connections_arrive() {
        const SECOND: u64 = 1_000_000_000;
        let mut crowd = Crowd::default();
        let mut now = 0;
        let mut rests = |per_s: u64| {
            let rests = |_: &u64| {
                now += SECOND / per_s;
                crowd.add();
                crowd.comes(now)
            };
            (0..per_s).filter(rests).count() as u64
        };
        assert_eq!(rests(7_900), 0);
        assert!(rests(8_100) > 8_000);
        assert!(rests(100_000) > 99_000);
        assert!(rests(7_900) < 100, "the crowd is over");
    }
}
