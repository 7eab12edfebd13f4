//! A change with its predictions, and the figures of a run.

use std::collections::BTreeMap;

use super::change::{Intervention, LARGEST, Refusal};
use super::plain_runs::PlainRuns;
use super::predict::{CAUSES, Case, Predicted, WATCHED, Watched};
use crate::plan::{Extent, Test};
use crate::record::{Cause, Record};
use crate::units::End;

/// A change that can be made here, with what each cause predicts.
#[derive(Debug, Clone)]
pub struct Offer {
    /// Name of the intervention.
    pub change: &'static str,
    /// The end that it concerns; `None` for both.
    pub end: Option<End>,
    /// The changed test.
    pub test: Test,
    /// The cause that it lifts, if it is a remedy.
    pub lifts: Option<Cause>,
    /// Time of one run over the time of a plain run.
    pub length: f64,
    /// The predictions; a cause that says nothing of a figure is missing.
    pub predicted: BTreeMap<(Watched, Cause), Predicted>,
}

impl Offer {
    /// The change of a test, with what each cause predicts.
    ///
    /// # Errors
    /// Why the change cannot be made here.
    pub fn new(
        intervention: &Intervention,
        plain: &Test,
        seen: &PlainRuns,
    ) -> Result<Self, Refusal> {
        let test = intervention.changed(plain, seen)?;
        let pairs =
            WATCHED.iter().flat_map(|watched| CAUSES.iter().map(|cause| (*watched, *cause)));
        let predicted = pairs.filter_map(|(watched, cause)| {
            let case = Case { test: plain, seen, watched, cause };
            Some(((watched, cause), intervention.predicted(&case)?))
        });
        Ok(Self {
            change: intervention.name,
            end: intervention.end.of(plain),
            lifts: intervention.lifts,
            length: length(&test) / length(plain),
            predicted: predicted.collect(),
            test,
        })
    }

    /// The largest rate that any cause predicts, over the plain one; of a remedy that says nothing,
    /// as much more as it allows.
    pub(super) fn most(&self) -> f64 {
        if self.predicted.is_empty() {
            return LARGEST;
        }
        let rates = self.predicted.iter().filter(|((watched, _), _)| *watched == Watched::Rate);
        rates.map(|(_, predicted)| predicted.expected).fold(1.0, f64::max)
    }
}

/// Length of a test, as far as it is asked for.
fn length(test: &Test) -> f64 {
    match test.extent {
        Extent::Time(_) => test.seconds().unwrap_or(1.0),
        Extent::Bytes(bytes) => bytes.0 as f64,
        Extent::Count(count) => count as f64,
    }
}

/// The figures of one run.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct RunFigures {
    /// Goodput over all flows, in the unit of the plain runs.
    pub rate: f64,
    /// Time that it took, seconds.
    pub seconds: f64,
    /// The RTT under load above the smallest, seconds.
    pub queue_s: Option<f64>,
    /// Segments retransmitted over segments sent; of UDP, datagrams lost over datagrams sent.
    pub retransmitted_share: Option<f64>,
    /// The cause that the run's own evidence names.
    pub cause: Option<Cause>,
}

impl RunFigures {
    /// The figures of a run of one direction that took this time in all; `None` without a rate.
    pub fn of(record: &Record, seconds: f64) -> Option<Self> {
        let seen = PlainRuns::of(record)?;
        let cause = record.verdict().map(|verdict| verdict.cause);
        Some(Self {
            rate: seen.rate_bps,
            seconds,
            queue_s: seen.queue_s(),
            retransmitted_share: seen.retransmitted_share,
            cause: cause.filter(|cause| *cause != Cause::Unexplained),
        })
    }

    pub(super) fn bytes(&self) -> f64 {
        self.rate / 8.0 * self.seconds
    }

    /// The logarithm of a figure, with its floor.
    pub(super) fn log(&self, watched: Watched) -> Option<f64> {
        let figure = match watched {
            Watched::Rate => Some(self.rate),
            Watched::Queue => self.queue_s,
            Watched::Retransmissions => self.retransmitted_share,
        };
        Some((figure? + watched.floor()).ln()).filter(|log| log.is_finite())
    }
}
