//! Classifies missing answers: silence, a limit of answers, or loss.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Significance level: below it, missing answers are not attributed to loss.
const SIGNIFICANT: f64 = 0.05;

/// The reason for a hop's missing answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum HopFate {
    /// None is missing.
    Answers,
    /// The hop answers the first probes of a burst and again later, while hops beyond it miss no
    /// answer: it limits its answers.
    RateLimited,
    /// Answers are missing here and at a similar share beyond: packets are lost, on the way or on
    /// the way back.
    Lossy,
    /// Some are missing for an unknown reason.
    SomeMissing,
    /// The hop answered nothing.
    Silent,
}

/// The answers of one hop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Tally {
    /// Number of probes of the first round.
    pub(super) sent: u32,
    /// Number of probes without an answer.
    pub(super) missing: u32,
    /// Whether the answered probes are those that were sent first.
    pub(super) is_tail_missing: bool,
    /// Whether it answered later probes.
    pub(super) answered_later: bool,
}

impl Tally {
    fn is_silent(self) -> bool {
        self.missing == self.sent && !self.answered_later
    }

    /// Whether it looks like a limit; the hops beyond confirm that.
    fn is_suspect(self) -> bool {
        self.missing > 0 && self.is_tail_missing && self.answered_later
    }
}

/// Classifies the missing answers of each hop, from the lowest TTL.
///
/// A loss on the way to a hop is also a loss on the way to all hops beyond it. So the missing
/// answers of a hop are compared with those beyond: the probability that as many fall on its own
/// probes if all are lost alike (hypergeometric, Fisher's exact test), and for a limit also the
/// probability that they are exactly the last ones of the burst. Hops that look limited themselves
/// say nothing about loss and are left out.
pub(super) fn fates(hops: &[Tally]) -> Vec<HopFate> {
    let fate = |(place, hop): (usize, &Tally)| {
        if hop.is_silent() {
            return HopFate::Silent;
        }
        if hop.missing == 0 {
            return HopFate::Answers;
        }
        let beyond = &hops[place + 1..];
        let witnesses = || beyond.iter().filter(|t| !t.is_silent() && !t.is_suspect());
        let sent: u32 = witnesses().map(|t| t.sent).sum();
        let missing: u32 = witnesses().map(|t| t.missing).sum();
        let by_place = match hop.is_suspect() {
            true => 1.0 / choose(hop.sent, hop.missing),
            false => 1.0,
        };
        let by_loss = tail(hop.sent, hop.missing, sent, missing);
        if hop.is_suspect() && by_loss * by_place < SIGNIFICANT {
            HopFate::RateLimited
        } else if missing > 0 && by_loss >= SIGNIFICANT {
            HopFate::Lossy
        } else {
            HopFate::SomeMissing
        }
    };
    hops.iter().enumerate().map(fate).collect()
}

/// The probability that at least `missing` of all missing answers fall on `sent` probes, if
/// `other_missing` of `other_sent` others are missing.
fn tail(sent: u32, missing: u32, other_sent: u32, other_missing: u32) -> f64 {
    let all_missing = missing + other_missing;
    let whole = choose(sent + other_sent, all_missing);
    (missing..=sent.min(all_missing))
        .map(|here| choose(sent, here) * choose(other_sent, all_missing - here) / whole)
        .sum::<f64>()
        .min(1.0)
}

/// Binomial coefficient, as a float because only ratios matter; 0 if k > n.
fn choose(n: u32, k: u32) -> f64 {
    if k > n {
        return 0.0;
    }
    (0..k.min(n - k)).fold(1.0, |product, i| product * f64::from(n - i) / f64::from(i + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Tally = Tally { sent: 3, missing: 0, is_tail_missing: true, answered_later: false };

    fn tail_missing(missing: u32, answered_later: bool) -> Tally {
        Tally { missing, answered_later, ..ALL }
    }

    #[test]
    fn chances_are_the_hypergeometric_ones() {
        // One missing answer of 6 falls on the first 3 with 1/2; both of two with C(3,2)/C(6,2).
        assert!((tail(3, 1, 3, 0) - 0.5).abs() < 1e-12);
        assert!((tail(3, 2, 3, 0) - 0.2).abs() < 1e-12);
        // At least one of two: 1 − C(3,2)/C(6,2).
        assert!((tail(3, 1, 3, 1) - 0.8).abs() < 1e-12);
        assert_eq!(tail(3, 1, 0, 0), 1.0);
        let many = tail(100, 50, 20_000, 10_000);
        assert!(many.is_nan() || (0.0..=1.0).contains(&many));
    }

    #[test]
    fn a_limit_is_said_only_if_hops_beyond_rule_out_a_loss() {
        let limited = tail_missing(2, true);
        let mut hops = vec![limited];
        hops.extend([ALL; 3]);
        assert_eq!(fates(&hops)[0], HopFate::RateLimited);
        assert_eq!(fates(&hops[..1])[0], HopFate::SomeMissing, "nobody beyond");
        let never_again = tail_missing(2, false);
        hops[0] = never_again;
        assert_eq!(fates(&hops)[0], HopFate::SomeMissing);
    }

    #[test]
    fn a_loss_goes_on_beyond() {
        let lossy = Tally { is_tail_missing: false, ..tail_missing(1, true) };
        let hops = [ALL, lossy, lossy, ALL, lossy, lossy];
        assert_eq!(fates(&hops)[1], HopFate::Lossy);
        assert_eq!(fates(&hops)[5], HopFate::SomeMissing, "nobody beyond");
    }

    #[test]
    fn silence_is_no_answer_at_all() {
        let hops = [tail_missing(3, false), tail_missing(3, true), ALL, ALL];
        let fates = fates(&hops);
        assert_eq!(fates[0], HopFate::Silent);
        assert_eq!(fates[1], HopFate::RateLimited, "its answers had been used up");
    }
}
