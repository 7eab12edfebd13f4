//! What remedies brought, against what the verdicts had predicted.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::score::{Tally, count};
use crate::ceilings::{Cause, Verdict};

/// A scenario that was run again with its verdict's remedy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Proof {
    /// The scenario's number.
    pub number: u32,
    /// What the verdict blamed.
    pub cause: Cause,
    /// The remedy as it was typed.
    pub remedy: String,
    /// What it was to bring, payload bits/s.
    pub predicted_bps: f64,
    /// What would hold the run back then.
    pub next_cause: Option<Cause>,
    /// What it brought, payload bits/s.
    pub measured_bps: f64,
    /// Whether that is what was predicted: within 15 % where the cause is exact, within 30 % where it is modelled.
    pub held: bool,
}

impl Proof {
    /// A verdict's prediction, and what its remedy brought; `None` where nothing was predicted.
    pub fn of(number: u32, verdict: &Verdict, measured_bps: f64) -> Option<Self> {
        let predicted_bps = verdict.predicted_bps?;
        let tolerance = match verdict.cause {
            Cause::ReceiveWindow | Cause::SendBuffer | Cause::Pacing => EXACT,
            _ => MODELLED,
        };
        Some(Self {
            number,
            cause: verdict.cause,
            remedy: verdict.remedy.clone(),
            predicted_bps,
            next_cause: verdict.next_cause,
            measured_bps,
            held: (measured_bps / predicted_bps - 1.0).abs() <= tolerance,
        })
    }
}

/// Shares of the prediction by which it may be missed, to both sides.
const EXACT: f64 = 0.15;
const MODELLED: f64 = 0.30;

/// Remedies by cause, as a table with an interval, and each that did not bring what it was to.
pub(super) fn proofs_text(proofs: &[Proof]) -> String {
    let mut causes: BTreeMap<Cause, Vec<&Proof>> = BTreeMap::new();
    for proof in proofs {
        causes.entry(proof.cause).or_default().push(proof);
    }
    let mut text = format!(
        "{:<20} {:>9}  {:>7}  95 % interval\n",
        "remedy of", "as said", ""
    );
    let tally = |proofs: &[&Proof]| {
        let right = proofs.iter().filter(|proof| proof.held).count();
        Tally::of_counts(right as u64, proofs.len() as u64)
    };
    // Writing to a String cannot fail.
    for (cause, proofs) in &causes {
        let _ = writeln!(text, "{}", count(cause.name(), &tally(proofs)));
    }
    let all: Vec<&Proof> = proofs.iter().collect();
    let _ = writeln!(text, "{}", count("all", &tally(&all)));
    for proof in proofs.iter().filter(|proof| !proof.held) {
        let _ = writeln!(
            text,
            "{:>5} {:<19} {:.2} of the {:.3} Mbit/s predicted: {}",
            proof.number,
            proof.cause.name(),
            proof.measured_bps / proof.predicted_bps,
            proof.predicted_bps / 1e6,
            proof.remedy
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proof(cause: Cause, measured_bps: f64) -> Proof {
        let verdict = Verdict {
            cause,
            share_of_ceiling: Some(1.0),
            evidence: Vec::new(),
            remedy: "linerate stream pit".to_owned(),
            predicted_bps: Some(100e6),
            next_cause: Some(Cause::PathRate),
        };
        Proof::of(7, &verdict, measured_bps).expect("something was predicted")
    }

    #[test]
    fn an_exact_cause_has_the_narrower_tolerance() {
        assert!(proof(Cause::ReceiveWindow, 86e6).held);
        assert!(!proof(Cause::ReceiveWindow, 80e6).held);
        assert!(proof(Cause::Congestion, 80e6).held);
        assert!(!proof(Cause::Congestion, 140e6).held);
    }

    #[test]
    fn what_did_not_come_true_is_listed_and_counted() {
        let text = proofs_text(&[proof(Cause::Pacing, 99e6), proof(Cause::Pacing, 50e6)]);
        assert!(text.contains("1/2"), "{text}");
        assert!(
            text.contains("0.50 of the 100.000 Mbit/s predicted"),
            "{text}"
        );
    }
}
