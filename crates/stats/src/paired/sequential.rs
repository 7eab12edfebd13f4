//! The sequential test: takes pairs, gives the conclusion. Each metric has tests of its own; the
//! error is divided among them.

use super::design::{
    ALPHA, ComparisonVerdict, Conclusion, Design, Look, MetricConclusion, OPERATION, WalshAverages,
    percent, refused,
};
use super::sign_flip::{ENUMERATED, Finding, NullSum, Sides, SignFlip, draw, greatest_sum};
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

// Holm's method (1979): one error probability divided among several metrics.

/// Where a test crossed, and the interval that belongs to it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Crossing {
    /// Number of pairs at that look.
    pub(super) pairs: usize,
    /// Walsh averages that the interval leaves out at its lower and its upper end.
    pub(super) skip: [usize; 2],
}

/// A hypothesis that fell.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Rejection {
    pub(super) at: Crossing,
    /// It fell at the error divided by this.
    pub(super) level: usize,
}

/// One hypothesis for each metric.
#[derive(Debug)]
pub(super) struct Holm {
    rejected: Vec<Option<Rejection>>,
}

impl Holm {
    /// No hypothesis is rejected yet.
    pub(super) fn new(metrics: usize) -> Self {
        Self { rejected: vec![None; metrics] }
    }

    /// Lets fall what may, given where each metric crossed first at each level, from 1 on.
    ///
    /// While k hypotheses stand, one falls if it crossed at 1/k of the error. It must have crossed
    /// with a greater error too: in a test of one look it always has, in one of several looks an
    /// early crossing of other vectors can come between. With that this is a closed test, each
    /// intersection of j hypotheses tested at 1/j of the error, and so the error of the family
    /// holds at every look (Ye, Li, Liu and Yao, *Statistics in Medicine* 32, 2013).
    pub(super) fn update(&mut self, crossing: impl Fn(usize, usize) -> Option<Crossing>) {
        while self.open() > 0 {
            let level = self.open();
            let fallen = |metric: usize| {
                let easier = (1..level).all(|easier| crossing(metric, easier).is_some());
                let at = crossing(metric, level)?;
                easier.then_some((metric, Rejection { at, level }))
            };
            let mut standing = (0..self.rejected.len()).filter(|&m| self.rejected[m].is_none());
            let Some((metric, rejection)) = standing.find_map(fallen) else {
                return;
            };
            self.rejected[metric] = Some(rejection);
        }
    }

    /// The number of hypotheses that are not rejected.
    pub(super) fn open(&self) -> usize {
        self.rejected.iter().filter(|fell| fell.is_none()).count()
    }

    /// How this metric's hypothesis was rejected.
    pub(super) fn rejection(&self, metric: usize) -> Option<Rejection> {
        self.rejected[metric]
    }
}

// One metric of a comparison: its log ratios, its tests, and the looks at which they crossed.

/// One metric of a comparison.
#[derive(Debug)]
pub(super) struct Track {
    log_ratios: Vec<f64>,
    difference: SignFlip,
    equivalence: Option<Equivalence>,
    /// First crossings by level, from 1 on.
    differs: Vec<Option<Crossing>>,
    alike: Vec<Option<Crossing>>,
    /// The interval of the last look for a difference, by level.
    last: Vec<Option<Crossing>>,
}

/// Two one-sided tests against the margin (Schuirmann 1987).
#[derive(Debug)]
struct Equivalence {
    margin: f64,
    above_lower: SignFlip,
    below_upper: SignFlip,
}

/// Effect and interval as log ratios.
pub(super) struct Figures {
    pub(super) effect: f64,
    pub(super) interval: [f64; 2],
    /// Confidence of the interval at this number of pairs, 0 to 1.
    pub(super) confidence: f64,
}

impl Track {
    /// A track without pairs.
    pub(super) fn new(design: &Design) -> Self {
        let levels = design.metrics;
        let one_sided = || SignFlip::new(Sides::One, levels);
        Self {
            log_ratios: Vec::new(),
            difference: SignFlip::new(Sides::Two, levels),
            equivalence: design.margin().map(|margin| Equivalence {
                margin,
                above_lower: one_sided(),
                below_upper: one_sided(),
            }),
            differs: vec![None; levels],
            alike: vec![None; levels],
            last: vec![None; levels],
        }
    }

    /// Enters a pair.
    pub(super) fn push(&mut self, log_ratio: f64) {
        self.log_ratios.push(log_ratio);
    }

    /// Makes the tests that are due at this look.
    pub(super) fn look(&mut self, look: &Look, drawn: &[u32]) {
        let pairs = self.log_ratios.len();
        if let Some(alpha) = look.difference {
            let findings = self.difference.look(&self.log_ratios, alpha, drawn);
            for (level, found) in findings.iter().enumerate() {
                let Some(skip) = found.skip else { continue };
                let here = Crossing { pairs, skip: [skip; 2] };
                self.last[level] = Some(here);
                if found.crossed {
                    self.differs[level].get_or_insert(here);
                }
            }
        }
        let Some((alpha, equivalence)) = look.equivalence.zip(self.equivalence.as_mut()) else {
            return;
        };
        let findings = equivalence.look(&self.log_ratios, alpha, drawn);
        for (alike, (lower, upper)) in self.alike.iter_mut().zip(findings) {
            // Both at one look: only then is its interval within the margin.
            if lower.crossed && upper.crossed {
                let skip = [lower, upper].map(|found| found.skip.unwrap_or(0));
                alike.get_or_insert(Crossing { pairs, skip });
            }
        }
    }

    /// The first crossing of the test for a difference at a level, from 1 on.
    pub(super) fn differs(&self, level: usize) -> Option<Crossing> {
        self.differs[level - 1]
    }

    /// The first look at which both tests against the margin crossed.
    pub(super) fn alike(&self, level: usize) -> Option<Crossing> {
        self.alike[level - 1]
    }

    /// The interval with all pairs there are, where nothing crossed: that of the last look if it
    /// was made now, else one that by itself is no surer; `first_alpha` is the error of the first
    /// look.
    pub(super) fn undecided(&self, level: usize, first_alpha: f64) -> Crossing {
        let pairs = self.log_ratios.len();
        let alpha = match self.last[level - 1] {
            Some(last) if last.pairs == pairs => return last,
            Some(last) => 2.0 * NullSum::for_size(last.pairs).upto(last.skip[0]),
            None => first_alpha / level as f64,
        };
        // Too few pairs for that leave the whole range, and its own confidence.
        let skip = NullSum::for_size(pairs).quantile(alpha / 2.0).unwrap_or(0);
        Crossing { pairs, skip: [skip; 2] }
    }

    /// Effect and interval of the pairs up to a crossing.
    pub(super) fn figures(&self, at: Crossing) -> Figures {
        let means = WalshAverages::new(&self.log_ratios[..at.pairs]);
        let null = NullSum::for_size(at.pairs);
        let missed: f64 = at.skip.iter().map(|&skip| null.upto(skip)).sum();
        Figures {
            effect: means.median(),
            interval: means.interval(at.skip),
            confidence: (1.0 - missed).max(0.0),
        }
    }

    /// The look to come at which this would be decided if all pairs to come were like those so far,
    /// and the last one if they were like those without any one of them; the latter is absent if
    /// that is none of the looks.
    pub(super) fn expected<'a>(
        &self,
        to_come: impl Iterator<Item = &'a Look> + Clone,
        levels: [usize; 2],
    ) -> Option<(u32, Option<u32>)> {
        let of = |values: &[f64]| self.expected_of(values, to_come.clone(), levels);
        let without = |left_out: usize| {
            let mut rest = self.log_ratios.clone();
            rest.remove(left_out);
            of(&rest)
        };
        let expected = of(&self.log_ratios)?;
        let latest = (0..self.log_ratios.len())
            .try_fold(expected, |latest, left_out| Some(without(left_out)?.max(latest)));
        Some((expected, latest))
    }

    fn expected_of<'a>(
        &self,
        values: &[f64],
        mut to_come: impl Iterator<Item = &'a Look>,
        [differs, alike]: [usize; 2],
    ) -> Option<u32> {
        let means = WalshAverages::new(values);
        let above = means.share_above(0.0);
        let margins = self.equivalence.as_ref().map(|equivalence| {
            let above_lower = means.share_above(-equivalence.margin);
            let below_upper = 1.0 - means.share_above(equivalence.margin);
            f64::min(above_lower, below_upper)
        });
        let look = to_come.find(|look| {
            let null = NullSum::for_size(look.pairs as usize);
            let crosses = |share: f64, alpha: f64| {
                let wrong_sign = (1.0 - share) * greatest_sum(look.pairs as usize) as f64;
                let most = null.quantile(alpha);
                most.is_some_and(|most| wrong_sign <= most as f64)
            };
            let difference = look.difference.is_some_and(|alpha| {
                crosses(above.max(1.0 - above), alpha / (2 * differs.max(1)) as f64)
            });
            let equivalence = look.equivalence.zip(margins);
            difference
                || equivalence
                    .is_some_and(|(alpha, share)| crosses(share, alpha / alike.max(1) as f64))
        });
        look.map(|look| look.pairs)
    }
}

impl Equivalence {
    fn look(
        &mut self,
        log_ratios: &[f64],
        alpha: f64,
        drawn: &[u32],
    ) -> impl Iterator<Item = (Finding, Finding)> + use<> {
        let margin = self.margin;
        let from_lower: Vec<f64> = log_ratios.iter().map(|ratio| ratio + margin).collect();
        let to_upper: Vec<f64> = log_ratios.iter().map(|ratio| margin - ratio).collect();
        let above = self.above_lower.look(&from_lower, alpha, drawn);
        above.into_iter().zip(self.below_upper.look(&to_upper, alpha, drawn))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Which fall, if each metric crossed at levels up to the given one; 0 is none.
    fn fallen(upto: &[usize]) -> Vec<Option<usize>> {
        let mut holm = Holm::new(upto.len());
        let at = Crossing { pairs: 8, skip: [0, 0] };
        holm.update(|metric, level| (level <= upto[metric]).then_some(at));
        let levels = holm.rejected.iter();
        levels.map(|fell| fell.map(|fell| fell.level)).collect()
    }

    #[test]
    fn each_that_falls_makes_it_easier_for_the_next() {
        assert_eq!(fallen(&[1, 3, 2]), [Some(1), Some(3), Some(2)]);
        assert_eq!(fallen(&[3, 0, 2]), [Some(3), None, Some(2)]);
    }

    #[test]
    fn none_falls_at_a_level_that_is_not_its_turn() {
        assert_eq!(fallen(&[2, 2, 2]), [None; 3]);
        assert_eq!(fallen(&[3, 1, 1]), [Some(3), None, None]);
    }

    #[test]
    fn a_crossing_with_a_gap_below_it_does_not_count() {
        let at = Crossing { pairs: 8, skip: [0, 0] };
        let mut holm = Holm::new(2);
        holm.update(|_, level| (level == 2).then_some(at));
        assert_eq!(holm.open(), 2);
    }
}
