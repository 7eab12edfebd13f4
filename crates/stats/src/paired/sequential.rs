//! The sequential test: takes pairs, gives the conclusion.

use super::conclusion::{ComparisonVerdict, Conclusion, MetricConclusion};
use super::design::{ALPHA, Design, Look, OPERATION, refused};
use super::effect::percent;
use super::holm::Holm;
use super::sign_flip::{ENUMERATED, draw};
use super::track::Track;
use crate::StatsError;

/// The comparison while its pairs come in.
///
/// At each look of its [`Design`] it tests for a difference, by ranks of the log ratios under all
/// turns of their signs, and against the margin, by two such tests of one side. It stops when each
/// metric is DIFFERENT or EQUIVALENT, or at the most pairs. The log ratios of different pairs need
/// not be independent nor alike; see the [module](super).
#[derive(Debug)]
pub struct Sequential {
    looks: Vec<Look>,
    seed: u64,
    /// Empty until it is needed.
    drawn: Vec<u32>,
    tracks: Vec<Track>,
    difference: Holm,
    equivalence: Holm,
    pairs: u32,
    max_pairs: u32,
}

/// ln(b/a): the effect of one pair of figures, as [`Sequential::push`] takes it.
///
/// # Errors
/// [`StatsError::OutOfRange`] if one of them is not finite and above 0: a ratio says nothing then.
pub fn log_ratio(a: f64, b: f64) -> Result<f64, StatsError> {
    for value in [a, b] {
        if !(value > 0.0 && value.is_finite()) {
            return Err(refused(value, "a finite figure above 0"));
        }
    }
    // Of A against B exactly the opposite of B against A, which ln(b/a) is not.
    Ok(b.ln() - a.ln())
}

impl Sequential {
    /// A comparison without pairs yet.
    ///
    /// # Errors
    /// [`StatsError::OutOfRange`] for a margin that is not above 0 and below 100 %, metrics that
    /// are not 1 to 20, pairs that are not 6 to 30, or so few pairs for so many metrics that no
    /// look could have a verdict.
    pub fn new(design: &Design) -> Result<Self, StatsError> {
        Ok(Self {
            looks: design.looks()?,
            seed: design.seed,
            drawn: Vec::new(),
            tracks: (0..design.metrics).map(|_| Track::new(design)).collect(),
            difference: Holm::new(design.metrics),
            equivalence: Holm::new(design.metrics),
            pairs: 0,
            max_pairs: design.max_pairs,
        })
    }

    /// Enters one pair: for each metric ln(b/a), see [`log_ratio`]. Returns the conclusion if the
    /// comparison has stopped.
    ///
    /// # Errors
    /// [`StatsError::NotFinite`] if a log ratio is NaN or infinite, [`StatsError::OutOfRange`] if
    /// it is beyond ±700, if there is not one for each metric, or if the comparison has stopped
    /// before. Nothing is entered then.
    pub fn push(&mut self, log_ratios: &[f64]) -> Result<Option<Conclusion>, StatsError> {
        self.check(log_ratios)?;
        for (track, &log_ratio) in self.tracks.iter_mut().zip(log_ratios) {
            track.push(log_ratio);
        }
        self.pairs += 1;
        if let Some(at) = self.looks.iter().position(|look| look.pairs == self.pairs) {
            self.look(self.looks[at]);
        }
        let stopped = self.has_stopped();
        Ok(stopped.then(|| self.conclude()).flatten())
    }

    /// What there is to say by now; `None` before the first pair. A verdict comes from the looks
    /// alone, so between them nothing new is DIFFERENT or EQUIVALENT.
    pub fn conclude(&self) -> Option<Conclusion> {
        if self.pairs == 0 {
            return None;
        }
        let metrics: Vec<MetricConclusion> =
            (0..self.tracks.len()).map(|m| self.metric(m)).collect();
        let verdict = if metrics.iter().any(|metric| metric.different) {
            ComparisonVerdict::Different
        } else if metrics.iter().all(|metric| metric.equivalent) {
            ComparisonVerdict::Equivalent
        } else {
            ComparisonVerdict::Inconclusive
        };
        Some(Conclusion { verdict, metrics, pairs: self.pairs })
    }

    /// The fewest pairs after which a metric can have a verdict: 8 for DIFFERENT and 6 for
    /// EQUIVALENT, more for several metrics.
    pub fn first_look(&self) -> u32 {
        let mut looks = self.looks.iter();
        let first = looks.find(|look| look.can_fire(self.tracks.len()));
        first.map_or(self.max_pairs, |look| look.pairs)
    }

    /// After how many pairs all metrics would have a verdict if the pairs to come were like those
    /// so far, and if they were like those without any one of them; `None` if the former would not
    /// be within the most pairs, or before the third pair. It is a guess, and no part of the test.
    pub fn expected_pairs(&self) -> Option<[u32; 2]> {
        if self.has_stopped() {
            return Some([self.pairs; 2]);
        }
        if self.pairs < FEWEST_TO_EXPECT {
            return None;
        }
        let levels = [self.difference.open(), self.equivalence.open()];
        let tracks = self.tracks.iter().enumerate();
        let undecided = tracks.filter(|(m, _)| !self.is_decided(*m));
        undecided
            .map(|(_, track)| {
                let to_come = self.looks.iter().filter(|look| look.pairs > self.pairs);
                track.expected(to_come, levels)
            })
            .try_fold([0; 2], |[fewest, most], expected| {
                let (expected, latest) = expected?;
                let latest = latest.unwrap_or(self.max_pairs);
                Some([fewest.max(expected), most.max(latest)])
            })
    }

    fn look(&mut self, look: Look) {
        if look.pairs as usize > ENUMERATED && self.drawn.is_empty() {
            self.drawn = draw(self.seed);
        }
        for track in &mut self.tracks {
            track.look(&look, &self.drawn);
        }
        let tracks = &self.tracks;
        self.difference.update(|m, level| tracks[m].differs(level));
        self.equivalence.update(|m, level| tracks[m].alike(level));
    }

    fn is_decided(&self, metric: usize) -> bool {
        let mut families = [&self.difference, &self.equivalence].into_iter();
        families.any(|family| family.rejection(metric).is_some())
    }

    fn has_stopped(&self) -> bool {
        self.pairs == self.max_pairs || (0..self.tracks.len()).all(|metric| self.is_decided(metric))
    }

    fn metric(&self, metric: usize) -> MetricConclusion {
        let track = &self.tracks[metric];
        let different = self.difference.rejection(metric);
        let equivalent = self.equivalence.rejection(metric);
        let (verdict, at, error) = match (different, equivalent) {
            (Some(fell), _) => (ComparisonVerdict::Different, fell.at, ALPHA / fell.level as f64),
            // The interval of two tests misses on either side.
            (None, Some(fell)) => {
                let error = 2.0 * ALPHA / fell.level as f64;
                (ComparisonVerdict::Equivalent, fell.at, error)
            }
            (None, None) => {
                let level = self.difference.open();
                let at = track.undecided(level, self.first_alpha());
                (ComparisonVerdict::Inconclusive, at, ALPHA / level as f64)
            }
        };
        let figures = track.figures(at);
        MetricConclusion {
            verdict,
            different: different.is_some(),
            equivalent: equivalent.is_some(),
            effect_percent: percent(figures.effect),
            interval_percent: figures.interval.map(percent),
            confidence_percent: 100.0 * (1.0 - error).min(figures.confidence),
            look_confidence_percent: 100.0 * figures.confidence,
            pairs: at.pairs as u32,
        }
    }

    fn first_alpha(&self) -> f64 {
        let mut alphas = self.looks.iter().filter_map(|look| look.difference);
        alphas.next().unwrap_or(ALPHA)
    }

    fn check(&self, log_ratios: &[f64]) -> Result<(), StatsError> {
        if self.has_stopped() {
            let allowed = "a pair of a comparison that is still open: it has stopped";
            return Err(refused(f64::from(self.pairs + 1), allowed));
        }
        if log_ratios.len() != self.tracks.len() {
            let allowed = "the number of metrics: one log ratio for each";
            return Err(refused(log_ratios.len() as f64, allowed));
        }
        for (index, &value) in log_ratios.iter().enumerate() {
            if !value.is_finite() {
                return Err(StatsError::NotFinite { operation: OPERATION, index, value });
            }
            if value.abs() > GREATEST_LOG_RATIO {
                return Err(refused(value, "a log ratio within ±700"));
            }
        }
        Ok(())
    }
}

/// Beyond this, an effect in percent is not a finite float.
const GREATEST_LOG_RATIO: f64 = 700.0;
/// One or two pairs allow no prediction.
const FEWEST_TO_EXPECT: u32 = 3;
