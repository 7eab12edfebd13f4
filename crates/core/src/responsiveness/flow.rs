//! The time that a request on a loaded connection would wait, from the connection's state.

/// A connection with load at a moment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Look {
    /// Time since the look before, seconds.
    pub seconds: f64,
    /// What arrived meanwhile, bytes.
    pub bytes: u64,
    /// Bytes that the sender's socket holds unsent.
    pub unsent_bytes: u64,
    /// Its round trip as the sender's kernel has it, µs; `None` before it has one.
    pub rtt_us: Option<f64>,
}

/// A request that would have been made at a look.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Wait {
    /// When, seconds after the first look began.
    pub at_s: f64,
    /// Until its response would have been there, µs.
    pub us: f64,
}

/// One request for each look: a round trip, and the time in which arrived what was before it in the
/// sender's socket. Where the last look was before that, it would have gone on at the rate of the
/// looks before: to leave such a request out would leave out the longest waits.
pub fn waits(looks: &[Look]) -> Vec<Wait> {
    let recent = &looks[looks.len().saturating_sub(RECENT)..];
    let recent_s: f64 = recent.iter().map(|look| look.seconds).sum();
    let recent_bytes: u64 = recent.iter().map(|look| look.bytes).sum();
    let mut now_s = 0.0;
    let mut waits = Vec::new();
    for (number, look) in looks.iter().enumerate() {
        now_s += look.seconds;
        let sent_s =
            until_sent(look.unsent_bytes, &looks[number + 1..], recent_s / recent_bytes as f64);
        if let (Some(rtt_us), Some(sent_s)) = (look.rtt_us, sent_s) {
            let us = rtt_us + sent_s * 1e6;
            waits.push(Wait { at_s: now_s, us });
        }
    }
    waits
}

/// The last looks, by which the rest is judged: a second of them.
const RECENT: usize = 10;

/// Seconds in which so much arrives, after the last look so many for each byte; `None` if it never
/// does.
fn until_sent(mut unsent: u64, later: &[Look], seconds_each: f64) -> Option<f64> {
    let mut waited_s = 0.0;
    for look in later {
        if unsent <= look.bytes {
            let part = unsent as f64 / look.bytes.max(1) as f64;
            return Some(waited_s + part * look.seconds);
        }
        unsent -= look.bytes;
        waited_s += look.seconds;
    }
    if unsent > 0 {
        waited_s += unsent as f64 * seconds_each;
    }
    waited_s.is_finite().then_some(waited_s)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn look(bytes: u64, unsent_bytes: u64) -> Look {
        Look { seconds: 0.1, bytes, unsent_bytes, rtt_us: Some(20e3) }
    }

    #[test]
    fn a_request_waits_for_what_is_unsent_at_the_rate_that_there_is_then() {
        // The flow is ten times as fast from the third look on.
        let looks = [look(1_000, 1_500), look(1_000, 0), look(10_000, 20_000)];
        let waits = waits(&looks);
        // 1,000 bytes in a tenth of a second, and 500 of 10,000 in the next.
        assert!((waits[0].us - 125e3).abs() < 1.0 && (waits[0].at_s - 0.1).abs() < 1e-6);
        assert!((waits[1].us - 20e3).abs() < 1.0);
        // Nothing was looked at any more: 12,000 bytes in 0.3 s are the rate that is known.
        assert!((waits[2].us - 520e3).abs() < 1.0);
    }

    #[test]
    fn a_flow_without_a_round_trip_or_without_a_byte_answers_nothing() {
        let unknown = Look { rtt_us: None, ..look(0, 0) };
        assert_eq!(waits(&[unknown, look(0, 7), look(0, 7)]), []);
    }

    proptest! {
        #[test]
        fn no_wait_is_shorter_than_a_round_trip_or_begins_after_the_last_look(
            looks in prop::collection::vec((0..100_000u64, 0..500_000u64), 0..50)
        ) {
            let looks: Vec<Look> = looks.into_iter()
                .map(|(bytes, unsent)| look(bytes, unsent)).collect();
            for wait in waits(&looks) {
                prop_assert!(wait.us >= 20e3 && wait.us.is_finite());
                prop_assert!(wait.at_s <= looks.len() as f64 * 0.1 + 1e-9);
            }
        }
    }
}
