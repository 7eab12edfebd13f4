//! Records for the tests of comparisons.

use std::time::Duration;

use crate::plan::{Direction, Test};
use crate::record::{Leg, Record};
use crate::units::Span;

/// The record of a one-second stream with this throughput.
pub(crate) fn record(throughput_bps: f64) -> Record {
    Record {
        started_at: "2026-01-01T00:00:00Z".to_owned(),
        host: "pit".to_owned(),
        peer: "198.18.0.1:5201".to_owned(),
        seconds: 1.0,
        legs: vec![Leg {
            throughput_bps: Some(throughput_bps),
            bytes: (throughput_bps / 8.0) as u64,
            ..Leg::new(Direction::Up)
        }],
        ..Record::new(test())
    }
}

fn test() -> Test {
    let second = Span(Duration::from_secs(1));
    let draft = Test::stream().time(second).warm_up(Span(Duration::ZERO));
    draft.resolve(1).expect("it is within all ranges")
}
