//! One metric of a comparison: its log ratios, its tests, and the looks at which they crossed.

use super::design::{Design, Look};
use super::effect::WalshAverages;
use super::holm::Crossing;
use super::ranks::{NullSum, greatest_sum};
use super::sign_flip::{Finding, Sides, SignFlip};

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
