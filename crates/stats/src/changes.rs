//! Where a series of runs has changed.
//!
//! E-divisive: D. S. Matteson and N. A. James, "A nonparametric approach for multiple change point
//! analysis of multivariate data", JASA 109(505), 2014. The series is cut so that the energy distance
//! between both parts is largest; there is a change if few reorderings of the series have one as
//! large, and it is where the medians of both parts fit best; then each part is looked at in turn. Of the values only their ranks count, so that a single run far off
//! moves nothing.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use super::{StatsError, median, sorted};

/// A change of a series.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub struct ChangePoint {
    /// The first value after it, from 0.
    pub at: usize,
    /// Median from the change before it, or the beginning.
    pub before: f64,
    /// Median to the next change, or the end.
    pub after: f64,
    /// Share of the reorderings with a cut that is at least as clear.
    pub p_value: f64,
}

/// Chance, at most, that a series of independent runs that did not change is said to have changed. Runs
/// that depend on those before them (a daily pattern) are said so more often.
pub const FALSE_ALARMS: f64 = 0.05;
/// Fewer values on a side are no state, but some runs.
const FEWEST: usize = 5;
/// Reorderings: a p-value is known to 1/400.
const REORDERINGS: usize = 399;

/// The changes of a series, in its order. The same seed gives the same answer.
///
/// # Errors
/// There is no value, or one that is not finite.
pub fn changes(values: &[f64], seed: u64) -> Result<Vec<ChangePoint>, StatsError> {
    sorted("changes", values)?;
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut found: Vec<(usize, f64)> = Vec::new();
    let mut parts = vec![(0, values.len())];
    while let Some((from, to)) = parts.pop() {
        let Some((cut, p_value)) = cut(&values[from..to], &mut rng) else {
            continue;
        };
        found.push((from + cut, p_value));
        parts.extend([(from, from + cut), (from + cut, to)]);
    }
    found.sort_by_key(|(at, _)| *at);
    let ends: Vec<usize> = [0]
        .into_iter()
        .chain(found.iter().map(|(at, _)| *at))
        .chain([values.len()])
        .collect();
    let point = |(number, (at, p_value)): (usize, (usize, f64))| ChangePoint {
        at,
        before: median(&values[ends[number]..at]),
        after: median(&values[at..ends[number + 2]]),
        p_value,
    };
    Ok(found.into_iter().enumerate().map(point).collect())
}

/// Where the values are cut best, if the cut is one.
fn cut(values: &[f64], rng: &mut ChaCha8Rng) -> Option<(usize, f64)> {
    let mut ranks = ranks(values);
    let clear = clearest(&ranks)?;
    let mut as_clear = 0;
    for _ in 0..REORDERINGS {
        for last in (1..ranks.len()).rev() {
            ranks.swap(last, (rng.next_u64() % (last as u64 + 1)) as usize);
        }
        as_clear += usize::from(clearest(&ranks).is_some_and(|other| other >= clear));
        // It cannot stand any more.
        if as_clear as f64 > FALSE_ALARMS * (REORDERINGS + 1) as f64 {
            return None;
        }
    }
    let p_value = (as_clear + 1) as f64 / (REORDERINGS + 1) as f64;
    (p_value <= FALSE_ALARMS).then(|| (best_fit(values), p_value))
}

/// The cut with the least distances from the medians of both parts: near an end of the series it is
/// nearer to the change than the clearest one.
fn best_fit(values: &[f64]) -> usize {
    let off = |part: &[f64]| -> f64 {
        let middle = median(part);
        part.iter().map(|value| (value - middle).abs()).sum()
    };
    let cost = |cut: &usize| off(&values[..*cut]) + off(&values[*cut..]);
    let cuts = FEWEST..=values.len() - FEWEST;
    cuts.min_by(|a, b| cost(a).total_cmp(&cost(b)))
        .unwrap_or(FEWEST)
}

/// Mean ranks, from 0.
fn ranks(values: &[f64]) -> Vec<f64> {
    let rank = |value: &f64| {
        let below = values.iter().filter(|other| *other < value).count();
        let equal = values.iter().filter(|other| *other == value).count();
        below as f64 + (equal as f64 - 1.0) / 2.0
    };
    values.iter().map(rank).collect()
}

/// The largest energy distance between both parts of a cut:
/// n·m/(n+m)·(2·E|X−Y| − E|X−X′| − E|Y−Y′|).
fn clearest(values: &[f64]) -> Option<f64> {
    let count = values.len();
    if count < 2 * FEWEST {
        return None;
    }
    let apart =
        |one: f64, others: &[f64]| -> f64 { others.iter().map(|it| (one - it).abs()).sum() };
    // Sums over all pairs left and right of the cut, and across it.
    let mut left = 0.0;
    let mut across = 0.0;
    let mut right: f64 = (0..count)
        .map(|at| apart(values[at], &values[at + 1..]))
        .sum();
    let mut best: Option<f64> = None;
    for cut in 1..=count - FEWEST {
        let moved = values[cut - 1];
        let (to_left, to_right) = (
            apart(moved, &values[..cut - 1]),
            apart(moved, &values[cut..]),
        );
        left += to_left;
        right -= to_right;
        across += to_right - to_left;
        if cut < FEWEST {
            continue;
        }
        let (n, m) = (cut as f64, (count - cut) as f64);
        let within = 2.0 * left / (n * (n - 1.0)) + 2.0 * right / (m * (m - 1.0));
        let energy = n * m / (n + m) * (2.0 * across / (n * m) - within);
        best = Some(best.map_or(energy, |best| best.max(energy)));
    }
    best
}

#[cfg(test)]
mod tests {
    use super::super::simulation::{Source, rate};
    use super::*;

    /// A way to draw one value.
    type Noise = fn(&mut Source) -> f64;

    const NOISES: [Noise; 5] = [
        |source| source.normal(),
        |source| source.uniform(),
        |source| source.exponential(),
        |source| (source.normal()).exp(),
        |source| source.cauchy(),
    ];

    #[test]
    fn a_series_that_does_not_change_is_seldom_said_to() {
        for (number, noise) in NOISES.into_iter().enumerate() {
            let mut source = Source::new(number as u64);
            let mut seed = 0;
            let alarms = rate(300, || {
                seed += 1;
                let values = source.samples(60, noise);
                !changes(&values, seed).unwrap().is_empty()
            });
            // 5 %, and three standard deviations of 300 trials.
            assert!(alarms <= 0.05 + 0.038, "noise {number}: {alarms}");
        }
    }

    #[test]
    fn a_shift_of_a_tenth_is_found_within_five_runs() {
        let mut source = Source::new(7);
        let mut seed = 0;
        let found = rate(200, || {
            seed += 1;
            let level = |at: usize| if at < 30 { 100.0 } else { 90.0 };
            let values: Vec<f64> = (0..35)
                .map(|at| level(at) * (1.0 + 0.02 * source.normal()))
                .collect();
            let found = changes(&values, seed).unwrap();
            found.iter().any(|change| {
                change.at.abs_diff(30) <= 1 && (change.after / change.before - 0.9).abs() < 0.03
            })
        });
        assert!(found >= 0.95, "{found}");
    }

    #[test]
    fn several_changes_are_found_in_their_order_and_single_runs_are_none() {
        let mut source = Source::new(3);
        let levels = [(20, 10.0), (15, 20.0), (25, 5.0)];
        let mut values: Vec<f64> = Vec::new();
        for (count, level) in levels {
            values.extend(source.samples(count, |source| level + 0.2 * source.normal()));
        }
        let found = changes(&values, 1).unwrap();
        let at: Vec<usize> = found.iter().map(|change| change.at).collect();
        assert_eq!(at, [20, 35]);
        assert!((found[1].before - 20.0).abs() < 0.3 && (found[1].after - 5.0).abs() < 0.3);
        let mut one_off = source.samples(40, |source| 10.0 + 0.2 * source.normal());
        one_off[20] = 1e9;
        assert_eq!(changes(&one_off, 1).unwrap(), []);
        assert_eq!(changes(&[1.0; 9], 1).unwrap(), []);
        assert_eq!(changes(&[1.0; 50], 1).unwrap(), []);
        assert!(changes(&[1.0, f64::NAN], 1).is_err());
    }
}
