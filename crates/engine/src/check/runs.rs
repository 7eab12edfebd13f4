//! The runs of one direction, and what they come to.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use linerate_core::ceilings::Cause;
use linerate_core::record::{Caveat, CaveatKind, Record, median_run};
use linerate_core::stats::{Figure, LatencyHistogram, figure};

/// The runs of one direction.
#[derive(Default)]
pub(super) struct Runs {
    pub(super) records: Vec<Record>,
    /// Round trips of small requests beside them.
    pub(super) loaded: LatencyHistogram,
}

impl Runs {
    fn throughputs(&self) -> Vec<f64> {
        self.records.iter().filter_map(Record::throughput_bps).collect()
    }

    pub(super) fn figure(&self) -> Option<Figure> {
        let throughputs = self.throughputs();
        Some(figure(&throughputs).ok()?.of_a_run(&throughputs))
    }

    /// Whether there are runs, and none of them has lost anything.
    pub(super) fn are_clean(&self) -> bool {
        let lost = |record: &Record| {
            let tcp = record.tcp_sender()?;
            Some(tcp.warm_up_retransmitted_segments? + tcp.retransmitted_segments)
        };
        let mut runs = self.records.iter();
        !self.records.is_empty() && runs.all(|record| lost(record) == Some(0))
    }

    /// How many runs have each cause, the most first.
    fn causes(&self) -> Vec<(Cause, usize)> {
        let mut causes = BTreeMap::new();
        for verdict in self.records.iter().filter_map(Record::verdict) {
            *causes.entry(verdict.cause).or_insert(0) += 1;
        }
        let mut causes: Vec<_> = causes.into_iter().collect();
        causes.sort_by_key(|(cause, runs)| (*cause == Cause::Unexplained, Reverse(*runs)));
        causes
    }

    /// A doubt where not all runs have the same cause.
    pub(super) fn disagreement(&self, direction: &str) -> Option<Caveat> {
        let causes = self.causes();
        let counted: Vec<String> =
            causes.iter().map(|(cause, runs)| format!("{} in {runs}", cause.words())).collect();
        (causes.len() > 1).then(|| {
            let all = self.records.len();
            let message =
                format!("of {all} runs {direction} the bottleneck was {}", counted.join(", "));
            Caveat::new(
                CaveatKind::NotOneFigure,
                message,
                "run it again while both hosts do nothing else",
            )
        })
    }

    /// Of the runs with the usual cause the one in the middle (the lower of two): a run that was,
    /// not a mean of several.
    pub(super) fn median(&self) -> Option<Record> {
        let usual = self.causes().first().map(|(cause, _)| *cause);
        let cause = |record: &Record| record.verdict().map(|verdict| verdict.cause);
        let records = self.records.iter();
        median_run(records.filter(|record| cause(record) == usual || usual.is_none())).cloned()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use linerate_core::plan::Direction;
    use linerate_core::record::{Leg, Verdict};

    use super::super::transfer::bulk;
    use super::*;

    fn run(cause: Cause, rate_bps: f64) -> Record {
        let verdict = Verdict { cause, ..Verdict::default() };
        let test = bulk(Direction::Up, Duration::from_secs(1), Duration::ZERO, 1);
        Record {
            legs: vec![Leg {
                throughput_bps: Some(rate_bps),
                verdict: Some(verdict),
                ..Leg::new(Direction::Up)
            }],
            ..Record::new(test)
        }
    }

    #[test]
    fn the_verdict_of_a_check_is_that_of_most_of_its_runs_and_others_are_told() {
        let (path, cpu) = (Cause::PathRate, Cause::CpuSend);
        let records = [(path, 95e6), (cpu, 90e6), (cpu, 60e6), (path, 93e6), (path, 94e6)];
        let runs = Runs {
            records: records.map(|(cause, bps)| run(cause, bps)).to_vec(),
            ..Runs::default()
        };
        let doubt = runs.disagreement("up").expect("two are of another mind");
        assert_eq!(
            doubt.message,
            "of 5 runs up the bottleneck was path rate in 3, sender's CPU in 2"
        );
        let usual = runs.median().unwrap();
        assert_eq!(usual.throughput_bps(), Some(94e6));
        let same = Runs { records: vec![run(path, 95e6), run(path, 90e6)], ..Runs::default() };
        assert_eq!(same.disagreement("up"), None);
        // The page's figure is that of the run that the verdict is of.
        let Some(Figure::One(one)) = same.figure() else {
            panic!("two runs are one figure");
        };
        assert_eq!(Some(one.median), same.median().unwrap().throughput_bps());
    }
}
