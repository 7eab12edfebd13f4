//! Changes in a series of runs: points of change, and a trend.
//!
//! Points are found by E-divisive: D. S. Matteson and N. A. James, "A nonparametric approach for
//! multiple change point analysis of multivariate data", JASA 109(505), 2014. The series is cut so
//! that the energy distance between both parts is largest; there is a change if few reorderings of
//! the series have one as large, and it is where the medians of both parts fit best; then each part
//! is looked at in turn. Of the values only their ranks count, so that a single run far off moves
//! nothing.
//!
//! Runs of a real path depend on those before them, and on the hour. What the hour explains is
//! taken off first ([`Residuals`]), and what is left of the dependence from one value to the next
//! makes a difference less telling ([`dependence`]).

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use super::paired::inversion_shares;
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

/// A value of a series, with the time when it was taken, seconds since 1970.
pub type TimedValue = (u64, f64);

/// Chance, at most, that a series of independent runs that did not change is said to have changed.
/// Runs that depend on those before them are said so more often: the simulation
/// `error_rates_of_dependent_series` has the rates.
pub const FALSE_ALARMS: f64 = 0.04;
/// Fewer values on a side are no state, but some runs.
const FEWEST: usize = 5;
/// Reorderings: a p-value is known to 1/400.
const REORDERINGS: usize = 399;

/// Of a series that is looked at after each value: how many of the last values are held against all
/// before them. More see smaller changes.
const TAILS: [usize; 10] = [5, 6, 7, 8, 10, 12, 15, 20, 30, 50];
/// Values that the last ones are held against, the newest: older ones tell of the hours alone.
const MOST_HELD: usize = 200;
/// Chance, at most, that the last values of one such number are as far from those before without a
/// change. 200 looks then find a change that is not there in 1.9 % of series: the share of 5,000
/// simulated ones (`error_rates_of_the_monitor`). By Boole's inequality it could be 10 %, but one
/// look mostly sees what another did.
const LEVEL_OF_A_TAIL: f64 = 1.0 / 20_000.0;

/// The changes of a series, in its order of time. The same seed gives the same answer.
///
/// # Errors
/// There is no value, or one that is not finite.
pub fn changes(series: &[TimedValue], seed: u64) -> Result<Vec<ChangePoint>, StatsError> {
    let values: Vec<f64> = series.iter().map(|(_, value)| *value).collect();
    sorted("changes", &values)?;
    let Residuals { first, values: left } = Residuals::new(series, series.len());
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut found: Vec<(usize, f64)> = Vec::new();
    let mut parts = vec![(0, left.len())];
    while let Some((from, to)) = parts.pop() {
        let Some((cut, p_value)) = cut(&left[from..to], &mut rng) else {
            continue;
        };
        found.push((first + from + cut, p_value));
        parts.extend([(from, from + cut), (from + cut, to)]);
    }
    found.sort_by_key(|(at, _)| *at);
    let inner = found.iter().map(|(at, _)| *at);
    let ends: Vec<usize> = [0].into_iter().chain(inner).chain([values.len()]).collect();
    let point = |(number, (at, p_value)): (usize, (usize, f64))| ChangePoint {
        at,
        before: median(&values[ends[number]..at]),
        after: median(&values[at..ends[number + 2]]),
        p_value,
    };
    Ok(found.into_iter().enumerate().map(point).collect())
}

/// Whether the last values of a series, which is looked at after each of them, make a change plain:
/// by their ranks against those before (F. Wilcoxon, Biometrics Bulletin 1(6), 1945; H. B. Mann and
/// D. R. Whitney, 1947), exactly, so that the rate of false alarms holds for any noise of
/// independent values. After a change the series begins anew with [`ChangePoint::at`].
///
/// # Errors
/// As [`changes`].
pub fn new_change(series: &[TimedValue]) -> Result<Option<ChangePoint>, StatsError> {
    let values: Vec<f64> = series.iter().map(|(_, value)| *value).collect();
    sorted("changes", &values)?;
    let Residuals { first, values: left } = Residuals::new(series, MOST_HELD);
    let p_value = |tail: usize| {
        let at = left.len() - tail;
        let (before, after) = left.split_at(at);
        let independent = rank_p_value((before, after));
        // Of independent values nothing is to be corrected.
        if independent > LEVEL_OF_A_TAIL {
            return independent;
        }
        let least = least_errors(shift(before, after), before);
        let correlations = dependence(&ranks(&left)[..at], least);
        // The probability of a normal figure that is z standard deviations off is about exp(-z²/2).
        independent.powf(1.0 / inflation(&correlations, [at, tail]))
    };
    let tails = TAILS.into_iter().filter(|tail| 2 * tail <= left.len());
    let p_value = tails.map(p_value).fold(1.0, f64::min);
    Ok((p_value <= LEVEL_OF_A_TAIL).then(|| {
        let at = first + best_fit(&left);
        ChangePoint {
            at,
            before: median(&values[first..at]),
            after: median(&values[at..]),
            // Of all tails, by Boole's inequality.
            p_value: p_value * TAILS.len() as f64,
        }
    }))
}

/// What is left of the newest values of a series without what the hour of the day explains.
///
/// Each value is held against the median of those at the same time of other days, an hour before or
/// after it. Where that takes away a fifth of the scatter, the differences are the series; it does
/// not where the hour explains nothing, and there are no three days yet at first.
struct Residuals {
    /// The place of the first of them in the series.
    first: usize,
    values: Vec<f64>,
}

impl Residuals {
    fn new(series: &[TimedValue], newest: usize) -> Self {
        let first = series.len().saturating_sub(newest);
        let values: Vec<f64> = series[first..].iter().map(|(_, value)| *value).collect();
        let is_better = |left: &Self| {
            let own = &values[left.first - first..];
            scatter(&left.values) < EXPLAINED * scatter(own)
        };
        let left = Self::by_the_hour(series, first).filter(is_better);
        left.unwrap_or(Self { first, values })
    }

    /// `None` without other days for most of the values from `first` on.
    fn by_the_hour(series: &[TimedValue], first: usize) -> Option<Self> {
        let [(begin, _), .., (end, _)] = series else {
            return None;
        };
        if end.saturating_sub(*begin) < 2 * DAY_S {
            return None;
        }
        let newest = &series[first..];
        let differs = |it: &TimedValue| Some(it.1 - of_the_hour(series, it.0)?);
        let left: Vec<Option<f64>> = newest.iter().map(differs).collect();
        let without = left.iter().rposition(Option::is_none).map_or(0, |at| at + 1);
        let values: Vec<f64> = left.into_iter().skip(without).flatten().collect();
        let is_most = values.len() as f64 >= MOST_OF_A_SERIES * newest.len() as f64;
        is_most.then_some(Self { first: first + without, values })
    }
}

/// The median of the values at this time of other days; `None` without two such days.
fn of_the_hour(series: &[TimedValue], at_s: u64) -> Option<f64> {
    let day = DAY_S.cast_signed();
    let like = series.iter().filter_map(|(other, value)| {
        let later = other.cast_signed().saturating_sub(at_s.cast_signed());
        let days = later.saturating_add(day / 2).div_euclid(day);
        let beside = later.saturating_sub(days.saturating_mul(day)).unsigned_abs();
        (days != 0 && beside <= HOUR_S).then_some((days, *value))
    });
    let (days, values): (Vec<i64>, Vec<f64>) = like.unzip();
    let is_of_two = days.iter().any(|day| *day != days[0]);
    is_of_two.then(|| median(&values))
}

/// How far apart the medians of two parts are.
fn shift(before: &[f64], after: &[f64]) -> f64 {
    (median(after) - median(before)).abs()
}

/// The median distance from the median.
fn scatter(values: &[f64]) -> f64 {
    let middle = median(values);
    median(&values.iter().map(|value| (value - middle).abs()).collect::<Vec<f64>>())
}

/// The correlations of values with those one, two, … before them, by their ranks.
///
/// The first is what was found, corrected for few values, of which it comes out too small by
/// (1 + 4ρ)/n (F. H. C. Marriott and J. A. Pope, Biometrika 41, 1954), and half a standard error
/// for doubt. Those behind it are its powers, or what was found for as long as that is not chance:
/// a wave of a day lasts longer than powers tell. None counts where the first is not so many
/// standard errors from 0.
pub(super) fn dependence(ranks: &[f64], least_errors: f64) -> Vec<f64> {
    let n = ranks.len() as f64;
    let error = 1.0 / n.sqrt();
    let middle = ranks.iter().sum::<f64>() / n;
    let all: f64 = ranks.iter().map(|rank| (rank - middle).powi(2)).sum();
    let correlation = |lag: usize| {
        let pairs = ranks.iter().zip(&ranks[lag..]);
        let found = pairs.map(|(one, other)| (one - middle) * (other - middle)).sum::<f64>() / all;
        found + (1.0 + 4.0 * found) / n
    };
    let of_neighbours = correlation(1);
    if of_neighbours < least_errors * error {
        return Vec::new();
    }
    let first = (of_neighbours + DOUBT * error).clamp(0.0, 1.0);
    let powers = std::iter::successors(Some(first), |power| Some(power * first));
    let clear = (1..=ranks.len() / 2).map(correlation).take_while(|rho| *rho >= CLEARLY * error);
    let found = clear.map(|rho| rho.min(1.0)).chain(std::iter::repeat(0.0));
    let larger = powers.zip(found).map(|(power, found)| f64::max(power, found));
    larger.take(ranks.len() / 2).take_while(|rho| *rho >= LEAST).collect()
}

/// Standard errors that a correlation has at least which can make such a difference: one that is
/// far beyond the scatter does not come from a dependence that is hardly seen, and one that is
/// farther from none.
fn least_errors(shift: f64, before: &[f64]) -> f64 {
    let usual = scatter(before);
    if shift >= VERY_FAR * usual {
        f64::INFINITY
    } else if before.len() >= KNOWN && shift >= FAR * usual {
        VERY_CLEARLY
    } else {
        f64::NEG_INFINITY
    }
}

/// The variance of the difference of the means of two parts of these lengths, over that of
/// independent values, where the values have these correlations with those before them.
fn inflation(correlations: &[f64], lengths: [usize; 2]) -> f64 {
    let of_mean = |length: usize| inflation_of_mean(correlations, length) / length as f64;
    let independent: f64 = lengths.iter().map(|length| 1.0 / *length as f64).sum();
    lengths.map(of_mean).iter().sum::<f64>() / independent
}

/// The variance of the mean of `m` values, over that of independent ones: 1 + 2 Σ (1 − k/m) ρₖ.
pub(super) fn inflation_of_mean(correlations: &[f64], m: usize) -> f64 {
    let lags = correlations.iter().zip(1..m);
    let sum: f64 = lags.map(|(rho, lag)| (1.0 - lag as f64 / m as f64) * rho).sum();
    1.0 + 2.0 * sum
}

const HOUR_S: u64 = 3600;
const DAY_S: u64 = 86_400;
/// Share of a series that has values at the same time of other days, at least.
const MOST_OF_A_SERIES: f64 = 0.8;
/// Scatter that is left where the hour explains a part.
const EXPLAINED: f64 = 0.8;
/// Values whose scatter is known.
const KNOWN: usize = 30;
/// A difference far beyond the scatter, in median distances from the median: three and a half
/// standard deviations of normal noise.
const FAR: f64 = 5.0;
/// Standard errors of a correlation that makes even such a difference.
const VERY_CLEARLY: f64 = 2.5;
/// A difference that no dependence makes: a wave three standard deviations high is nine off.
const VERY_FAR: f64 = 20.0;
/// Standard errors by which a correlation may be larger than it was found.
const DOUBT: f64 = 0.5;
/// A smaller correlation does nothing.
const LEAST: f64 = 0.01;
/// Standard errors of a correlation that is none by chance.
pub(super) const CLEARLY: f64 = 1.0;

/// Chance, at most, that independent values of one kind are as far apart, either way. Values that
/// are equal count against it.
fn rank_p_value((before, after): (&[f64], &[f64])) -> f64 {
    let count = |is_inverted: fn(f64, f64) -> bool| {
        let inverted = |new: &f64| before.iter().filter(|old| is_inverted(**old, *new)).count();
        after.iter().map(inverted).sum::<usize>()
    };
    let inversions = count(|old, new| old <= new).min(count(|old, new| old >= new));
    let (n, m) = (before.len(), after.len());
    let spread = (n * m * (n + m + 1)) as f64 / 12.0;
    // Too many by far: nothing is to be counted.
    if ((n * m) as f64 / 2.0 - inversions as f64) < 3.0 * spread.sqrt() {
        return 1.0;
    }
    2.0 * inversion_shares(n, m, inversions).iter().sum::<f64>()
}

/// Where the values are cut best, if the cut is one.
fn cut(values: &[f64], rng: &mut ChaCha8Rng) -> Option<(usize, f64)> {
    let ranks = ranks(values);
    let clear = clearest(&ranks)?;
    let block = block_length(values);
    let mut as_clear = 0;
    for _ in 0..REORDERINGS {
        let other = reordered(&ranks, block, rng);
        as_clear += usize::from(clearest(&other).is_some_and(|other| other >= clear));
        // It cannot stand any more.
        if as_clear as f64 > FALSE_ALARMS * (REORDERINGS + 1) as f64 {
            return None;
        }
    }
    let p_value = (as_clear + 1) as f64 / (REORDERINGS + 1) as f64;
    (p_value <= FALSE_ALARMS).then(|| (best_fit(values), p_value))
}

/// The length of the blocks of a series that stay together when it is reordered, so that values
/// which depend on each other do so in the reorderings as well: that of least error for a
/// correlation from one value to the next (E. Carlstein, Annals of Statistics 14(3), 1986). The
/// correlation is that beside the cut, which would look like one.
fn block_length(values: &[f64]) -> usize {
    let (before, after) = values.split_at(best_fit(values));
    let beside = [before, after].map(|part| {
        let middle = median(part);
        part.iter().map(move |value| value - middle)
    });
    let beside: Vec<f64> = beside.into_iter().flatten().collect();
    let is_very_far = shift(before, after) >= VERY_FAR * scatter(&beside);
    let least = if is_very_far { f64::INFINITY } else { f64::NEG_INFINITY };
    let sum: f64 = dependence(&ranks(&beside), least).iter().sum();
    // The correlation whose powers have this sum.
    let rho = sum / (1.0 + sum);
    let n = values.len() as f64;
    let length = (2.0 * rho / (1.0 - rho * rho)).powf(2.0 / 3.0) * n.cbrt();
    (length.ceil() as usize).clamp(1, values.len() / FEWEST)
}

/// The values in blocks of another order; where the first block begins is drawn, too.
fn reordered(values: &[f64], block: usize, rng: &mut ChaCha8Rng) -> Vec<f64> {
    let mut draw = |below: usize| (rng.next_u64() % below as u64) as usize;
    let mut turned = values.to_vec();
    turned.rotate_left(draw(block));
    let mut blocks: Vec<&[f64]> = turned.chunks(block).collect();
    for last in (1..blocks.len()).rev() {
        blocks.swap(last, draw(last + 1));
    }
    blocks.concat()
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
    cuts.min_by(|a, b| cost(a).total_cmp(&cost(b))).unwrap_or(FEWEST)
}

/// Mean ranks, from 0.
pub(super) fn ranks(values: &[f64]) -> Vec<f64> {
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
    let to_later = (0..count).map(|at| apart(values[at], &values[at + 1..]));
    let mut right: f64 = to_later.sum();
    let mut best: Option<f64> = None;
    for cut in 1..=count - FEWEST {
        let moved = values[cut - 1];
        let to_left = apart(moved, &values[..cut - 1]);
        let to_right = apart(moved, &values[cut..]);
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

// The Mann–Kendall test: whether the samples rise or fall in the order in which they were taken.

/// Two-sided p-value of the Mann–Kendall test (Kendall, *Rank Correlation Methods*, chapters 4 and
/// 5).
///
/// Up to [`EXACT_UPTO`] samples without ties the null distribution is enumerated; else it is the
/// normal one with a continuity correction and the variance reduced for ties. O(n²).
pub(super) fn mann_kendall(samples: &[f64]) -> f64 {
    let score = score(samples);
    let tie_sizes = tie_sizes(samples);
    if samples.len() <= EXACT_UPTO && tie_sizes.iter().all(|&size| size == 1) {
        return exact_p_value(samples.len(), score);
    }
    let term = |n: usize| (n * (n - 1) * (2 * n + 5)) as f64;
    let ties: f64 = tie_sizes.into_iter().map(term).sum();
    let variance = (term(samples.len()) - ties) / 18.0;
    if variance == 0.0 {
        return 1.0;
    }
    let z = (score.abs() as f64 - 1.0).max(0.0) / variance.sqrt();
    two_sided_normal(z)
}

/// The Theil–Sen slope, the median of the slopes between all pairs: the change from one sample to
/// the next.
pub(super) fn theil_sen_slope(samples: &[f64]) -> f64 {
    let mut slopes: Vec<f64> =
        pairs(samples.len()).map(|(i, j)| (samples[j] - samples[i]) / (j - i) as f64).collect();
    slopes.sort_by(f64::total_cmp);
    crate::median_of_sorted(&slopes)
}

/// Kendall's S: pairs that rise minus pairs that fall.
fn score(samples: &[f64]) -> i64 {
    pairs(samples.len())
        .map(|(i, j)| i64::from(samples[j] > samples[i]) - i64::from(samples[j] < samples[i]))
        .sum()
}

fn pairs(n: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..n).flat_map(move |i| (i + 1..n).map(move |j| (i, j)))
}

fn tie_sizes(samples: &[f64]) -> Vec<usize> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.chunk_by(|a, b| a == b).map(<[f64]>::len).collect()
}

/// P(|S| ≥ |score|) over all orders of `n` distinct samples.
fn exact_p_value(n: usize, score: i64) -> f64 {
    // The k-th sample has 0 to k − 1 larger ones before it, each with the same probability: the
    // number of falling pairs is a sum of independent uniform numbers.
    let mut falling = vec![1.0];
    for k in 2..=n {
        let mut longer = vec![0.0; falling.len() + k - 1];
        for (so_far, probability) in falling.iter().enumerate() {
            for more in 0..k {
                longer[so_far + more] += probability / k as f64;
            }
        }
        falling = longer;
    }
    let all_pairs = falling.len() as i64 - 1;
    falling
        .into_iter()
        .zip(0_i64..)
        .filter(|&(_, falling)| (all_pairs - 2 * falling).abs() >= score.abs())
        .map(|(probability, _)| probability)
        .sum::<f64>()
        .min(1.0)
}

/// P(|Z| ≥ z) of the normal distribution, for z ≥ 0, to 1.5·10⁻⁷: Abramowitz and Stegun, formula
/// 7.1.26.
pub fn two_sided_normal(z: f64) -> f64 {
    let x = z / std::f64::consts::SQRT_2;
    let t = 1.0 / (1.0 + 0.327_591_1 * x);
    let polynomial = [1.061_405_429, -1.453_152_027, 1.421_413_741, -0.284_496_736, 0.254_829_592]
        .into_iter()
        .fold(0.0, |sum, coefficient| (sum + coefficient) * t);
    (polynomial * (-x * x).exp()).clamp(0.0, 1.0)
}

/// Beyond this the normal p-value is within 0.003 of the exact one, and within 0.001 of it near
/// 0.01.
const EXACT_UPTO: usize = 30;

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

    /// A value each minute.
    fn minutely(values: &[f64]) -> Vec<TimedValue> {
        values.iter().zip(0..).map(|(value, minute)| (60 * minute, *value)).collect()
    }

    /// The correlation of each value with the one before it, the time between them in seconds, and
    /// the height of a wave of a day in standard deviations.
    type Law = (f64, u64, f64);

    fn dependent(source: &mut Source, count: u64, (rho, every_s, wave): Law) -> Vec<TimedValue> {
        let mut last = source.normal();
        let next = |at: u64| {
            last = rho * last + (1.0 - rho * rho).sqrt() * source.normal();
            let hour = std::f64::consts::TAU * (at * every_s) as f64 / DAY_S as f64;
            (at * every_s, 100.0 + last + wave * hour.sin())
        };
        (0..count).map(next).collect()
    }

    /// Alarms of a series that does not change, by a look after each value at what came since the
    /// last alarm.
    fn alarms_of(series: &[TimedValue]) -> u32 {
        let (mut begin, mut alarms) = (0, 0);
        for end in 2 * FEWEST..=series.len() {
            if let Some(change) = new_change(&series[begin..end]).unwrap() {
                begin += change.at;
                alarms += 1;
            }
        }
        alarms
    }

    /// Share of the series with an alarm, and of those in which [`changes`] finds a change.
    fn found_in_dependent(law: Law, series: u32, count: u64) -> [f64; 2] {
        let mut source = Source::new(9);
        let mut once = 0;
        let share = rate(series, || {
            let values = dependent(&mut source, count, law);
            once += u32::from(!changes(&values, 1).unwrap().is_empty());
            alarms_of(&values) > 0
        });
        [share, f64::from(once) / f64::from(series)]
    }

    /// With a correlation of 0.4, 58 % of series of 200 runs had an alarm where they were taken for
    /// independent; with a daily wave nearly all.
    #[test]
    fn runs_that_depend_on_each_other_or_on_the_hour_seldom_raise_an_alarm() {
        for law in [(0.4, 60, 0.0), (0.8, 60, 0.0)] {
            let mut source = Source::new(11);
            let alarms = rate(100, || alarms_of(&dependent(&mut source, 100, law)) > 0);
            assert!(alarms <= 0.1, "{law:?}: {alarms}");
        }
        // Eight days, hourly.
        let mut source = Source::new(12);
        let alarms = rate(20, || alarms_of(&dependent(&mut source, 200, (0.0, 3600, 3.0))) > 0);
        assert!(alarms <= 0.25, "{alarms}");
    }

    #[test]
    fn a_large_shift_of_a_series_that_creeps_is_found() {
        let creeps = |at: u32| if at < 40 { 90e6 } else { 50e6 } + f64::from(at);
        let values = minutely(&(0..45).map(creeps).collect::<Vec<f64>>());
        assert_eq!(new_change(&values).unwrap().map(|change| change.at), Some(40));
        let found = changes(&values, 1).unwrap();
        assert!(found.iter().any(|change| change.at == 40), "{found:?}");
    }

    #[test]
    fn a_shift_is_found_although_the_hour_does_more() {
        let mut source = Source::new(13);
        let found = rate(50, || {
            let mut values = dependent(&mut source, 205, (0.0, 3600, 10.0));
            values[200..].iter_mut().for_each(|(_, value)| *value -= 10.0);
            let found = new_change(&values).unwrap();
            found.is_some_and(|change| change.at.abs_diff(200) <= 1)
        });
        assert!(found >= 0.9, "{found}");
    }

    /// As the documentation says it.
    #[test]
    #[ignore = "minutes: cargo test --release -p linerate-stats -- --ignored --nocapture dependent"]
    fn error_rates_of_dependent_series() {
        for rho in [0.0, 0.2, 0.4, 0.6, 0.8] {
            let [alarms, once] = found_in_dependent((rho, 60, 0.0), 400, 200);
            println!("correlation {rho}, 200 runs: alarms {alarms:.3}, history changes {once:.3}");
        }
        for (every_s, wave) in [(3600, 1.0), (3600, 3.0), (900, 3.0)] {
            let count = 14 * DAY_S / every_s;
            let [alarms, once] = found_in_dependent((0.0, every_s, wave), 100, count);
            println!(
                "a wave of {wave}, a run each {every_s} s, 14 days: alarms {alarms:.2}, history \
                 changes {once:.2}"
            );
        }
    }

    #[test]
    fn a_series_that_does_not_change_is_seldom_said_to() {
        for (number, noise) in NOISES.into_iter().enumerate() {
            let mut source = Source::new(number as u64);
            let mut seed = 0;
            let alarms = rate(300, || {
                seed += 1;
                let values = source.samples(60, noise);
                !changes(&minutely(&values), seed).unwrap().is_empty()
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
            let values: Vec<f64> =
                (0..35).map(|at| level(at) * (1.0 + 0.02 * source.normal())).collect();
            let found = changes(&minutely(&values), seed).unwrap();
            found.iter().any(|change| {
                change.at.abs_diff(30) <= 1 && (change.after / change.before - 0.9).abs() < 0.03
            })
        });
        assert!(found >= 0.95, "{found}");
    }

    /// Share of series of that many values, which do not change, in which a look after each value
    /// finds one.
    fn false_alarms(noise: Noise, series: u64, values: usize) -> f64 {
        let mut source = Source::new(series);
        rate(series as u32, || {
            let values = minutely(&source.samples(values, noise));
            let mut looks = 2 * FEWEST..=values.len();
            looks.any(|end| new_change(&values[..end]).unwrap().is_some())
        })
    }

    /// Share of series in which a shift of a tenth after 40 values is found by the fifth value
    /// after it; two thirds of the values are within that share of the level.
    fn shifts_found(noise: Noise, scatter: f64, series: u64) -> f64 {
        let mut source = Source::new(series);
        let mut sample = source.samples(4000, noise);
        sample.sort_by(f64::total_cmp);
        let (middle, half) = (sample[2000], (sample[3333] - sample[667]) / 2.0);
        rate(series as u32, || {
            let mut values = source.samples(45, noise);
            for (at, value) in values.iter_mut().enumerate() {
                let level = if at < 40 { 100.0 } else { 90.0 };
                *value = level * (1.0 + scatter * (*value - middle) / half);
            }
            let mut looks = 41..=45;
            looks.any(|end| {
                let found = new_change(&minutely(&values[..end])).unwrap();
                found.is_some_and(|change| change.at.abs_diff(40) <= 2)
            })
        })
    }

    #[test]
    fn a_look_after_each_value_seldom_finds_what_is_not_there_and_soon_what_is() {
        for (number, noise) in NOISES.into_iter().enumerate() {
            let alarms = false_alarms(noise, 200, 100);
            // As in the documentation, for half as many values, and three standard deviations of
            // 200 series.
            assert!(alarms <= 0.018 + 0.028, "noise {number}: {alarms}");
        }
        let found = shifts_found(NOISES[0], 0.02, 200);
        assert!(found >= 0.95, "{found}");
    }

    #[test]
    fn ranks_are_held_against_all_orders_of_them() {
        // Of 10 orders of 2 and 3 values 1 has no inversion, 1 has one, 2 have two.
        let values = |after: [f64; 5]| -> Vec<f64> { after.to_vec() };
        let exact = |before: usize, after: usize| {
            let all: f64 = (1..=after).map(|i| (before + i) as f64 / i as f64).product();
            2.0 / all
        };
        let apart: Vec<f64> = (0..25).map(f64::from).chain(values([99.0; 5])).collect();
        let p_value = rank_p_value(apart.split_at(25));
        assert!((p_value / exact(25, 5) - 1.0).abs() < 1e-9, "{p_value}");
        // One more inversion is one more order; two more are two.
        for (more, orders) in [(1, 2.0), (2, 4.0), (3, 7.0), (4, 12.0)] {
            let mut near = apart.clone();
            near[25] = 24.5 - f64::from(more);
            let p_value = rank_p_value(near.split_at(25));
            assert!((p_value / exact(25, 5) / orders - 1.0).abs() < 1e-9, "{more}: {p_value}");
        }
        assert_eq!(rank_p_value(values([1.0; 5]).split_at(2)), 1.0);
    }

    /// As the documentation says it.
    #[test]
    #[ignore = "two minutes: cargo test -p linerate-stats -- --ignored --nocapture error_rates"]
    fn error_rates_of_the_monitor() {
        let mut all = 0.0;
        for (number, noise) in NOISES.into_iter().enumerate() {
            let alarms = false_alarms(noise, 1000, 200);
            let found = [0.0025, 0.005, 0.01, 0.015, 0.02, 0.03]
                .map(|scatter| shifts_found(noise, scatter, 1000));
            println!(
                "noise {number}: alarms {alarms:.3}, shifts found at 0.25, 0.5, 1, 1.5, 2, 3 %: \
                 {found:.3?}"
            );
            all += alarms / NOISES.len() as f64;
        }
        println!("alarms, all noises: {all:.4}");
        // Three standard deviations of 5,000 series over it are 5 %.
        assert!(all <= 0.042, "{all}");
    }

    #[test]
    fn several_changes_are_found_in_their_order_and_single_runs_are_none() {
        let mut source = Source::new(3);
        let levels = [(20, 10.0), (15, 20.0), (25, 5.0)];
        let mut values: Vec<f64> = Vec::new();
        for (count, level) in levels {
            values.extend(source.samples(count, |source| level + 0.2 * source.normal()));
        }
        let found = changes(&minutely(&values), 1).unwrap();
        let at: Vec<usize> = found.iter().map(|change| change.at).collect();
        assert_eq!(at, [20, 35]);
        assert!((found[1].before - 20.0).abs() < 0.3 && (found[1].after - 5.0).abs() < 0.3);
        let mut one_off = source.samples(40, |source| 10.0 + 0.2 * source.normal());
        one_off[20] = 1e9;
        assert_eq!(changes(&minutely(&one_off), 1).unwrap(), []);
        assert_eq!(changes(&minutely(&[1.0; 9]), 1).unwrap(), []);
        assert_eq!(changes(&minutely(&[1.0; 50]), 1).unwrap(), []);
        assert!(changes(&minutely(&[1.0, f64::NAN]), 1).is_err());
    }

    #[test]
    fn exact_p_values_match_enumeration_and_kendalls_table() {
        // Counted over all orders of n: S reaches ±score in so many of them.
        for (n, score, orders, of) in [(4, 6, 2, 24), (5, 10, 2, 120), (7, 11, 686, 5_040)] {
            let exact = f64::from(orders) / f64::from(of);
            assert!((exact_p_value(n, score) - exact).abs() < 1e-12, "n = {n}");
        }
        // Kendall's appendix table 1 prints 0.031 and 0.036 for one side.
        assert!((exact_p_value(8, 16) / 2.0 - 0.031).abs() < 5e-4);
        assert!((exact_p_value(10, 21) / 2.0 - 0.036).abs() < 5e-4);
        assert!((exact_p_value(5, 0) - 1.0).abs() < 1e-12);
    }

    #[test]
    fn normal_and_exact_p_values_meet_where_one_takes_over() {
        let variance = (30 * 29 * 65) as f64 / 18.0;
        for score in [61, 101, 145, 181] {
            let normal = two_sided_normal((score - 1) as f64 / variance.sqrt());
            assert!((normal - exact_p_value(30, score)).abs() < 3e-3, "S = {score}");
        }
        assert!((two_sided_normal(1.959_964) - 0.05).abs() < 1e-6);
        assert!((two_sided_normal(0.0) - 1.0).abs() < 1e-6);
    }

    #[test]
    fn constant_samples_have_no_trend() {
        assert_eq!(mann_kendall(&[4.0; 12]), 1.0);
        assert_eq!(mann_kendall(&[4.0]), 1.0);
    }

    #[test]
    fn slope_ignores_an_outlier() {
        let mut samples: Vec<f64> = (0..11).map(|i| 2.0 * f64::from(i)).collect();
        samples[3] = 1e6;
        assert_eq!(theil_sen_slope(&samples), 2.0);
    }

    #[test]
    fn tied_samples_without_trend_are_rejected_no_more_often_than_the_level() {
        let mut source = Source::new(4);
        for n in [6, 10, 40] {
            let rejected = rate(10_000, || {
                mann_kendall(&source.samples(n, |s| (3.0 * s.uniform()).floor())) <= 0.01
            });
            assert!(rejected < 0.013, "n = {n}: {rejected}");
        }
    }
}
