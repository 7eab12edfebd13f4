//! Checks what a client of another tool asks for against the owner's limits.

use crate::session::message::Limits;
use crate::units::BitRate;

/// What a test would need.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Demand {
    /// Flows over both directions.
    pub streams: u32,
    /// Length with its warm-up, seconds; `None` if it ends by an amount, and is cut off at the
    /// owner's limit.
    pub seconds: Option<f64>,
    /// Rate over all flows, bits per second, if this end cannot slow them: that of datagrams.
    pub rate_bps: Option<u64>,
}

/// The limit that a test exceeds, in words with the numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Excess {
    /// Too many flows.
    Streams(String),
    /// Too long.
    Seconds(String),
    /// Too fast.
    Rate(String),
}

impl Excess {
    /// The message for the log.
    pub fn message(&self) -> &str {
        match self {
            Self::Streams(text) | Self::Seconds(text) | Self::Rate(text) => text,
        }
    }
}

impl Demand {
    /// The first limit that the test exceeds. A rate that is not limited at all exceeds any limit.
    pub fn excess(&self, limits: &Limits) -> Option<Excess> {
        let (streams, allowed) = (self.streams, limits.streams);
        if streams > allowed {
            let text = format!("{streams} flows, where the owner allows {allowed}");
            return Some(Excess::Streams(text));
        }
        let allowed = limits.seconds;
        if let Some(seconds) = self.seconds.filter(|seconds| *seconds > allowed) {
            let text = format!("{seconds} s, where the owner allows {allowed} s");
            return Some(Excess::Seconds(text));
        }
        let (rate, allowed) = (BitRate(self.rate_bps?), BitRate(limits.rate_bps?));
        let text = || format!("{rate}, where the owner allows {allowed}");
        (rate > allowed).then(|| Excess::Rate(text()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits =
        Limits { connections: 0, clients: 4, streams: 8, seconds: 10.0, rate_bps: Some(1_000_000) };
    const MODEST: Demand = Demand { streams: 8, seconds: Some(10.0), rate_bps: Some(1_000_000) };

    #[test]
    fn the_owners_limit_is_allowed_and_one_more_is_an_excess() {
        assert_eq!(MODEST.excess(&LIMITS), None);
        let streams = Demand { streams: 9, ..MODEST };
        let seconds = Demand { seconds: Some(10.1), ..MODEST };
        let rate = Demand { rate_bps: Some(1_000_001), ..MODEST };
        assert!(matches!(streams.excess(&LIMITS), Some(Excess::Streams(_))));
        assert!(matches!(seconds.excess(&LIMITS), Some(Excess::Seconds(_))));
        assert!(matches!(rate.excess(&LIMITS), Some(Excess::Rate(_))));
        let unlimited = Limits { rate_bps: None, ..LIMITS };
        assert_eq!(rate.excess(&unlimited), None);
    }
}
