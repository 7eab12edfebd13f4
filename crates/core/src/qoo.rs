//! Quality of Outcome: where a measured path lies between what an application needs to be at its
//! best (100) and where it is unacceptable (0). draft-ietf-ippm-qoo, "Calculating QoO".
//!
//! The draft defines the score and leaves the needs to others. Those of [`NEEDS`] are two-way.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;

use crate::stats::LatencySummary;

/// What an application needs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Need {
    /// The application.
    pub application: &'static str,
    /// Percentiles of the round trip, per mille, with the times at which it is optimal and
    /// unacceptable, ms.
    pub rtt_ms: &'static [(u32, [f64; 2])],
    /// Loss at which it is optimal and unacceptable, percent.
    pub loss_percent: [f64; 2],
    /// Throughput without which it is unacceptable, bits per second.
    pub throughput_bps: f64,
}

/// Needs by application. Round trips of calls are twice the one-way 150 and 400 ms of ITU-T G.1010
/// (Table I.1; G.114), that of a game 100 ms where players notice it (Claypool and Claypool,
/// "Latency and player actions in online games", 2006) and twice G.1010's 200 ms. Optimal loss is
/// that of ITU-T Y.1541's classes 0 and 1, unacceptable loss G.1010's; a game's is taken as a voice
/// call's. Throughputs are the upper ends of G.1010's typical data rates.
pub const NEEDS: [Need; 3] = [
    Need {
        application: "voice call",
        rtt_ms: &[(990, [300.0, 800.0])],
        loss_percent: [0.1, 3.0],
        throughput_bps: 64e3,
    },
    Need {
        application: "video call",
        rtt_ms: &[(990, [300.0, 800.0])],
        loss_percent: [0.1, 1.0],
        throughput_bps: 384e3,
    },
    Need {
        application: "game",
        rtt_ms: &[(990, [100.0, 400.0])],
        loss_percent: [0.1, 3.0],
        throughput_bps: 64e3,
    },
];

/// The score of an application on a path, and what it consists of, each 0 (unacceptable) to 100 %
/// (optimal).
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Outcome {
    /// The application.
    pub application: String,
    /// The score: the least of the others, percent.
    pub score_percent: f64,
    /// Score of the round trips, percent.
    pub latency_score_percent: f64,
    /// Score of the loss, percent; absent where it was not measured.
    pub loss_score_percent: Option<f64>,
    /// 0 or 100 %: whether the throughput suffices; absent where it was not measured.
    pub throughput_score_percent: Option<f64>,
}

/// The score of each application of [`NEEDS`]; none where the round trips are too few for its
/// percentiles.
pub fn outcomes(
    latency: &LatencySummary,
    loss_percent: Option<f64>,
    throughput_bps: Option<f64>,
) -> Vec<Outcome> {
    let scored = NEEDS.iter().map(|need| need.outcome(latency, loss_percent, throughput_bps));
    scored.flatten().collect()
}

impl Need {
    fn outcome(
        &self,
        latency: &LatencySummary,
        loss_percent: Option<f64>,
        throughput_bps: Option<f64>,
    ) -> Option<Outcome> {
        let times = self.rtt_ms.iter();
        let scores = times.map(|(at, ends)| Some(score(percentile_us(latency, *at)? / 1e3, *ends)));
        let latency_score_percent =
            scores.collect::<Option<Vec<_>>>()?.into_iter().fold(100.0, f64::min);
        let loss_score_percent = loss_percent.map(|loss| score(loss, self.loss_percent));
        let throughput_score_percent =
            throughput_bps.map(|bps| if bps >= self.throughput_bps { 100.0 } else { 0.0 });
        let parts = [Some(latency_score_percent), loss_score_percent, throughput_score_percent];
        Some(Outcome {
            application: self.application.to_owned(),
            score_percent: parts.into_iter().flatten().fold(100.0, f64::min),
            latency_score_percent,
            loss_score_percent,
            throughput_score_percent,
        })
    }
}

/// Linear from 100 at `optimal` to 0 at `unacceptable`.
fn score(measured: f64, [optimal, unacceptable]: [f64; 2]) -> f64 {
    100.0 * (1.0 - (measured - optimal) / (unacceptable - optimal)).clamp(0.0, 1.0)
}

/// The round trip at a percentile (per mille), µs; `None` for too few samples.
fn percentile_us(latency: &LatencySummary, percentile: u32) -> Option<f64> {
    let known = [
        (500, latency.p50, 2),
        (900, latency.p90, 10),
        (990, latency.p99, 100),
        (999, latency.p999, 1000),
    ];
    let (_, us, _) =
        known.into_iter().find(|(at, _, least)| *at == percentile && latency.count >= *least)?;
    Some(us)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn latency(p99_ms: f64, p999_ms: f64, count: u64) -> LatencySummary {
        let [p99, p999] = [p99_ms, p999_ms].map(|ms| 1e3 * ms);
        LatencySummary { min: 1.0, mean: 1.0, p50: 1.0, p90: 1.0, p99, p999, max: p999, count }
    }

    #[test]
    fn the_drafts_example_has_its_score() {
        let need = Need {
            application: "example",
            rtt_ms: &[(990, [200.0, 500.0]), (999, [300.0, 600.0])],
            loss_percent: [1.0, 5.0],
            throughput_bps: 4e6,
        };
        let found = need.outcome(&latency(350.0, 375.0, 1000), Some(2.0), Some(28e6)).unwrap();
        assert_eq!((found.latency_score_percent, found.score_percent), (50.0, 50.0));
        assert_eq!(
            (found.loss_score_percent, found.throughput_score_percent),
            (Some(75.0), Some(100.0))
        );
        let slow = need.outcome(&latency(350.0, 375.0, 1000), Some(2.0), Some(3.9e6)).unwrap();
        assert_eq!(slow.score_percent, 0.0);
        // 99.9 % takes a thousand.
        assert_eq!(need.outcome(&latency(350.0, 375.0, 999), None, None), None);
    }

    #[test]
    fn an_application_is_at_its_best_below_and_of_no_use_above_its_needs() {
        for need in NEEDS {
            let [(percentile, [optimal, unacceptable])] = need.rtt_ms else {
                panic!("{}: one percentile", need.application);
            };
            assert!(*percentile == 990 && optimal < unacceptable, "{}", need.application);
            for (ms, score) in [
                (0.9 * optimal, 100.0),
                (f64::midpoint(*optimal, *unacceptable), 50.0),
                (1.1 * unacceptable, 0.0),
            ] {
                let found = need.outcome(&latency(ms, ms, 100), None, None).unwrap();
                assert_eq!(found.score_percent, score, "{} at {ms}", need.application);
            }
            let lossy = need.outcome(&latency(1.0, 1.0, 100), Some(3.0), None).unwrap();
            assert_eq!(lossy.score_percent, 0.0, "{}", need.application);
        }
    }
}
