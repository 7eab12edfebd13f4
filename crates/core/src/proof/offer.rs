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
    /// What they are made from; `None` where they are from no table.
    pub(super) basis: Option<Box<OfferBasis>>,
}

/// What the predictions of an offer are made from.
#[derive(Debug, Clone)]
pub(super) struct OfferBasis {
    intervention: &'static Intervention,
    plain: Test,
    seen: PlainRuns,
}

impl OfferBasis {
    /// `window_ratio`: the window that the changed runs had over that of the plain ones.
    fn predictions(&self, window_ratio: Option<f64>) -> BTreeMap<(Watched, Cause), Predicted> {
        let pairs =
            WATCHED.iter().flat_map(|watched| CAUSES.iter().map(|cause| (*watched, *cause)));
        let predicted = pairs.filter_map(|(watched, cause)| {
            let case = Case { test: &self.plain, seen: &self.seen, watched, cause, window_ratio };
            Some(((watched, cause), self.intervention.predicted(&case)?))
        });
        predicted.collect()
    }
}

impl Offer {
    /// The change of a test, with what each cause predicts.
    ///
    /// # Errors
    /// Why the change cannot be made here.
    pub fn new(
        intervention: &'static Intervention,
        plain: &Test,
        seen: &PlainRuns,
    ) -> Result<Self, Refusal> {
        let test = intervention.changed(plain, seen)?;
        let basis = OfferBasis { intervention, plain: plain.clone(), seen: seen.clone() };
        Ok(Self {
            change: intervention.name,
            end: intervention.end.of(plain),
            lifts: intervention.lifts,
            length: length(&test) / length(plain),
            predicted: basis.predictions(None),
            test,
            basis: Some(Box::new(basis)),
        })
    }

    /// Whether the change is of the receive window, so that the sender sees what became of it.
    pub fn changes_window(&self) -> bool {
        let window = |test: &Test| test.options.receive_window_bytes;
        self.basis.as_ref().is_some_and(|basis| window(&basis.plain) != window(&self.test))
    }

    /// Predicts anew from the window of the plain runs, bytes, and that of the changed ones over
    /// it: what an end makes of the size that it was asked for is not guessed.
    pub fn follow_window(&mut self, plain: f64, ratio: f64) {
        if let Some(basis) = &mut self.basis {
            basis.seen.receive_window_bytes = Some(plain);
            self.predicted = basis.predictions(Some(ratio));
        }
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
    /// The window that the sender saw, bytes.
    pub window_bytes: Option<f64>,
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
            // A receiver tells more than it has offered.
            window_bytes: seen
                .receive_window_bytes
                .filter(|_| record.leg().is_some_and(|leg| leg.tcp_sender().is_some())),
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
