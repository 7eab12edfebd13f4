//! The sign-flip test at several looks, on the signed-rank statistic.
//!
//! Under the hypothesis every vector of signs is as likely as the observed one, given the absolute
//! values. So all vectors (or a sample of them and the observed one) go through the same looks as
//! the observed one does. At each look those that are farthest out cross, as many as the error that
//! may have been spent by then allows, and a vector that crossed is out of it from then on, with
//! everything that begins like it. The share that ever crosses is the error, and is bounded by
//! construction; nothing is approximated.

use std::sync::LazyLock;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use super::design::{MAX_PAIRS, SIGNS_STREAM};

/// Up to this many values, all vectors of signs are enumerated.
pub(super) const ENUMERATED: usize = 13;
/// The number of random vectors beyond that.
pub(super) const DRAWN: usize = 4096;

/// Vectors of [`MAX_PAIRS`] signs, a bit each, the first sign the lowest. The first bits of a drawn
/// vector are a drawn vector, so one draw serves all looks.
pub(super) fn draw(seed: u64) -> Vec<u32> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    rng.set_stream(SIGNS_STREAM);
    let vector = |bits: u64| (bits >> (64 - MAX_PAIRS)) as u32;
    (0..DRAWN / 2)
        .flat_map(|_| {
            let bits = rng.next_u64();
            [vector(bits), vector(bits << 32)]
        })
        .collect()
}

/// Which sums count as extreme.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Sides {
    /// A large sum of positive ranks: is the effect above 0?
    One,
    /// A large or a small sum: is there an effect?
    Two,
}

/// The test of one sequence of values. At level 1 it has the whole error, at level k one k-th of
/// it.
#[derive(Debug)]
pub(super) struct SignFlip {
    sides: Sides,
    levels: Vec<Boundary>,
}

/// The result of a look at one level.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Finding {
    /// Whether the observed signs are among the most extreme.
    pub(super) crossed: bool,
    /// How many Walsh averages the interval of this look leaves out at an end; absent if nothing
    /// could cross.
    pub(super) skip: Option<usize>,
}

impl SignFlip {
    /// A test with this number of levels.
    pub(super) fn new(sides: Sides, levels: usize) -> Self {
        Self { sides, levels: vec![Boundary::default(); levels] }
    }

    /// Looks at all values so far, of which those of earlier looks are the beginning. `alpha` is
    /// the error that may have been spent by then at level 1; `drawn`, from [`draw`], is needed
    /// beyond [`ENUMERATED`] values.
    pub(super) fn look(&mut self, values: &[f64], alpha: f64, drawn: &[u32]) -> Vec<Finding> {
        let vectors = Vectors::new(values, self.sides, drawn);
        let null = NullSum::for_size(values.len());
        let sides = if self.sides == Sides::One { 1.0 } else { 2.0 };
        let levels = self.levels.iter_mut().zip(1_u32..);
        levels
            .map(|(boundary, level)| {
                let alpha = alpha / f64::from(level);
                let critical = boundary.look(&vectors, alpha);
                let skip = critical.zip(null.quantile(alpha / sides)).map(|(key, most)| {
                    // Ties and zeros can make the critical sum low; the interval must not be
                    // shorter for it.
                    (greatest_sum(values.len()) - usize::from(key).div_ceil(2)).min(most)
                });
                Finding { crossed: critical.is_some_and(|key| vectors.observed_key() >= key), skip }
            })
            .collect()
    }
}

/// The vectors of signs at one look.
struct Vectors<'a> {
    /// How far out each is: twice the sum of its positive ranks or, two-sided, twice the greater of
    /// the two sums.
    keys: Vec<u16>,
    observed: usize,
    signs: u32,
    pairs: usize,
    drawn: &'a [u32],
}

impl<'a> Vectors<'a> {
    fn new(values: &[f64], sides: Sides, drawn: &'a [u32]) -> Self {
        let ranks = doubled_ranks(values);
        let signs = values
            .iter()
            .zip(0..)
            .fold(0, |signs, (&value, bit)| signs | u32::from(value > 0.0) << bit);
        let (mut keys, observed) = if values.len() <= ENUMERATED {
            (subset_sums(&ranks), signs as usize)
        } else {
            (sums_of(&ranks, drawn, signs), drawn.len())
        };
        if sides == Sides::Two {
            let total: u16 = ranks.iter().sum();
            for key in &mut keys {
                *key = (*key).max(total.wrapping_sub(*key));
            }
        }
        Self { keys, observed, signs, pairs: values.len(), drawn }
    }

    fn observed_key(&self) -> u16 {
        self.keys[self.observed]
    }
}

/// The sum of each subset; bit i of a subset's place says whether the i-th is in it. Sums are at
/// most 930: they do not wrap, and without a check for it the loop is of vector instructions.
fn subset_sums(ranks: &[u16]) -> Vec<u16> {
    let mut sums = vec![0_u16; 1 << ranks.len()];
    for (bit, &rank) in ranks.iter().enumerate() {
        let (without, with) = sums.split_at_mut(1 << bit);
        for (with, without) in with.iter_mut().zip(without) {
            *with = without.wrapping_add(rank);
        }
    }
    sums
}

/// The sums of the drawn vectors and, last, of the observed one, which is one vector of the sample
/// (Phipson and Smyth 2010: without it the test would not be exact).
fn sums_of(ranks: &[u16], drawn: &[u32], observed: u32) -> Vec<u16> {
    // The sums of each byte of signs; ranks of 0 for the signs beyond the values.
    let mut bytes = [[0; 256]; 4];
    for (sums, ranks) in bytes.iter_mut().zip(ranks.chunks(8)) {
        let mut eight = [0; 8];
        eight[..ranks.len()].copy_from_slice(ranks);
        sums.copy_from_slice(&subset_sums(&eight));
    }
    let sum = |signs: &u32| {
        let parts = bytes.iter().zip(signs.to_le_bytes());
        parts.fold(0_u16, |sum, (sums, byte)| sum.wrapping_add(sums[usize::from(byte)]))
    };
    drawn.iter().chain([&observed]).map(sum).collect()
}

/// The vectors that crossed at one level.
#[derive(Debug, Clone)]
struct Boundary {
    /// By vector, as of the last look: [`GONE`] or 0.
    gone: Vec<u16>,
    pairs: usize,
}

impl Default for Boundary {
    fn default() -> Self {
        // The one vector of no signs.
        Self { gone: vec![0], pairs: 0 }
    }
}

impl Boundary {
    /// Lets the most extreme vectors cross; returns the smallest key of these.
    fn look(&mut self, vectors: &Vectors, alpha: f64) -> Option<u16> {
        self.extend(vectors);
        let critical = self.critical(&vectors.keys, alpha)?;
        for (gone, &key) in self.gone.iter_mut().zip(&vectors.keys) {
            *gone |= if key >= critical { GONE } else { 0 };
        }
        Some(critical)
    }

    /// A longer vector is gone if its beginning is.
    fn extend(&mut self, vectors: &Vectors) {
        if vectors.pairs <= ENUMERATED {
            self.gone = self.gone.repeat(1 << (vectors.pairs - self.pairs));
        } else if self.pairs <= ENUMERATED {
            let beginning = self.gone.len() - 1;
            let all = vectors.drawn.iter().chain([&vectors.signs]);
            self.gone = all.map(|&signs| self.gone[signs as usize & beginning]).collect();
        }
        self.pairs = vectors.pairs;
    }

    /// The smallest key with which those beyond it, and those gone before, are no more than `alpha`
    /// of all. Vectors of one key cross together or not at all.
    fn critical(&self, keys: &[u16], alpha: f64) -> Option<u16> {
        let rounding = 1e-9;
        let most = (alpha * keys.len() as f64 + rounding) as usize;
        // Those gone have the greatest key of all, so they are counted with whatever crosses.
        let standing: Vec<u16> =
            keys.iter().zip(&self.gone).map(|(key, gone)| key | gone).collect();
        let (mut low, mut high) = (0, BEYOND);
        while low < high {
            let middle = u16::midpoint(low, high);
            if count_from(&standing, middle) <= most {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        let from_low = |key: &u16| if *key >= low { *key } else { GONE };
        let critical = standing.iter().map(from_low).fold(GONE, u16::min);
        (critical != GONE).then_some(critical)
    }
}

/// How many keys are at least `least`. In short sums, for the sake of vector instructions.
fn count_from(keys: &[u16], least: u16) -> usize {
    let count = |keys: &[u16]| {
        let hits = keys.iter().map(|&key| u16::from(key >= least));
        hits.fold(0, u16::wrapping_add)
    };
    keys.chunks(1 << 10).map(|keys| usize::from(count(keys))).sum()
}

/// Keys go from 0 to twice the greatest sum of ranks, which is less than this.
const BEYOND: u16 = (MAX_PAIRS * (MAX_PAIRS + 1)) as u16 + 1;
/// Stands in place of a key.
const GONE: u16 = u16::MAX;

// The signed-rank statistic (Wilcoxon 1945).

/// Twice the rank of each |value|, in the order of the values.
///
/// Ties have the mean of their ranks, which doubling makes whole. A value of 0 is ranked with the
/// others and then counts nothing, because turning its sign over changes nothing (Pratt 1959).
pub(super) fn doubled_ranks(values: &[f64]) -> Vec<u16> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&i, &j| values[i].abs().total_cmp(&values[j].abs()));
    let mut ranks = vec![0; values.len()];
    let mut first = 1;
    for ties in order.chunk_by(|&i, &j| values[i].abs() == values[j].abs()) {
        let last = first + ties.len() - 1;
        for &tied in ties.iter().filter(|&&tied| values[tied] != 0.0) {
            ranks[tied] = (first + last) as u16;
        }
        first = last + 1;
    }
    ranks
}

/// How many means of two of `n` values there are, each value with itself too: the greatest sum of
/// ranks.
pub(super) fn greatest_sum(n: usize) -> usize {
    n * (n + 1) / 2
}

/// The distribution of the sum of the ranks whose sign is positive, if every sign is a fair coin
/// and no ranks are tied.
#[derive(Debug)]
pub(super) struct NullSum {
    cumulative: Vec<f64>,
}

impl NullSum {
    /// The distribution for `n` values, at most [`MAX_PAIRS`].
    pub(super) fn for_size(n: usize) -> &'static Self {
        static ALL: LazyLock<Vec<NullSum>> =
            LazyLock::new(|| (0..=MAX_PAIRS as usize).map(NullSum::new).collect());
        &ALL[n]
    }

    fn new(n: usize) -> Self {
        let mut density = vec![0.0; greatest_sum(n) + 1];
        density[0] = 1.0;
        for rank in 1..=n {
            // Downwards, so that what is read was not changed yet.
            for sum in (0..=greatest_sum(rank)).rev() {
                let with = if sum < rank { 0.0 } else { density[sum - rank] };
                density[sum] = f64::midpoint(density[sum], with);
            }
        }
        let mut total = 0.0;
        for share in &mut density {
            total += *share;
            *share = total;
        }
        Self { cumulative: density }
    }

    /// The probability of a sum of at most `sum`.
    pub(super) fn upto(&self, sum: usize) -> f64 {
        self.cumulative[sum.min(self.cumulative.len() - 1)]
    }

    /// The greatest sum that with at most this probability is not exceeded; `None` if even 0 is
    /// likelier.
    pub(super) fn quantile(&self, level: f64) -> Option<usize> {
        let rounding = 1e-12;
        let below = self.cumulative.partition_point(|&share| share <= level + rounding);
        below.checked_sub(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Absolute values without ties, in no order.
    const SIZES: [f64; 13] =
        [0.31, 0.07, 0.55, 0.12, 0.91, 0.43, 0.02, 0.77, 0.64, 0.25, 0.99, 0.38, 0.18];
    const LOOKS: [(usize, f64); 3] = [(8, 0.012), (10, 0.020), (13, 0.028)];

    fn with_signs(sizes: &[f64], signs: usize) -> Vec<f64> {
        let sizes = sizes.iter().enumerate();
        sizes.map(|(bit, &size)| if signs >> bit & 1 == 1 { size } else { -size }).collect()
    }

    /// The look at which these signs cross first, at each of two levels.
    fn crossed_at(values: &[f64], sides: Sides) -> [Option<usize>; 2] {
        let mut test = SignFlip::new(sides, 2);
        let mut first = [None; 2];
        for (pairs, alpha) in LOOKS {
            let findings = test.look(&values[..pairs], alpha, &[]);
            for (first, finding) in first.iter_mut().zip(findings) {
                if finding.crossed && first.is_none() {
                    *first = Some(pairs);
                }
            }
        }
        first
    }

    fn is_gone(boundary: &Boundary, vector: usize) -> bool {
        boundary.gone[vector] == GONE
    }

    #[test]
    fn over_all_sign_vectors_no_look_spends_more_than_the_table_allows() {
        for sides in [Sides::One, Sides::Two] {
            let crossings: Vec<[Option<usize>; 2]> =
                (0..1 << 13).map(|signs| crossed_at(&with_signs(&SIZES, signs), sides)).collect();
            for (level, share_of_error) in [(0, 1.0), (1, 0.5)] {
                for (pairs, alpha) in LOOKS {
                    let by_then = crossings
                        .iter()
                        .filter(|crossed| crossed[level].is_some_and(|at| at <= pairs));
                    let share = by_then.count() as f64 / f64::from(1 << 13);
                    let allowed = alpha * share_of_error;
                    assert!(share <= allowed, "{share} by {pairs}");
                    // A boundary that never crosses would pass the line above.
                    assert!(share > allowed * 0.6 || pairs == 8, "{share} by {pairs}");
                }
            }
        }
    }

    #[test]
    fn tied_values_spend_no_more_either() {
        let tied = SIZES.map(|size| (size * 4.0).floor() / 4.0);
        assert!(tied.contains(&0.0));
        let crossed = (0..1 << 13)
            .filter(|&signs| crossed_at(&with_signs(&tied, signs), Sides::Two)[0].is_some());
        let share = crossed.count() as f64 / f64::from(1 << 13);
        assert!(share > 0.005 && share <= 0.028, "{share}");
    }

    #[test]
    fn what_crossed_and_all_that_begins_like_it_is_gone() {
        let mut boundary = Boundary::default();
        let critical = boundary.look(&Vectors::new(&SIZES[..8], Sides::Two, &[]), 0.012);
        assert_eq!(critical, Some(72));
        let gone: Vec<usize> = (0..256).filter(|&signs| is_gone(&boundary, signs)).collect();
        assert_eq!(gone, [0, 255]);
        boundary.extend(&Vectors::new(&SIZES[..10], Sides::Two, &[]));
        assert_eq!(boundary.gone.len(), 1024);
        assert!((0..1024).all(|signs| is_gone(&boundary, signs) == gone.contains(&(signs & 255))));
        let drawn = draw(3);
        let seventeen: Vec<f64> = SIZES.iter().chain(&SIZES[..4]).copied().collect();
        boundary.extend(&Vectors::new(&seventeen, Sides::Two, &drawn));
        assert_eq!(boundary.gone.len(), DRAWN + 1);
        for (vector, signs) in drawn.iter().enumerate() {
            let begins = gone.contains(&(*signs as usize & 255));
            assert_eq!(is_gone(&boundary, vector), begins);
        }
        // All values are positive here, so the observed signs began with eight ones.
        assert!(is_gone(&boundary, DRAWN));
    }

    #[test]
    fn sums_of_drawn_vectors_are_those_of_their_signs() {
        let ranks: Vec<u16> = (1..=30).map(|rank| 2 * rank).collect();
        for n in [14, 16, 17, 23, 24, 30] {
            let drawn = draw(9);
            let sums = sums_of(&ranks[..n], &drawn, u32::MAX >> 2);
            for (signs, sum) in drawn.iter().zip(&sums) {
                let expected: u16 =
                    (0..n).filter(|bit| signs >> bit & 1 == 1).map(|bit| ranks[bit]).sum();
                assert_eq!(*sum, expected);
            }
            assert_eq!(usize::from(sums[DRAWN]), 2 * greatest_sum(n));
        }
    }

    #[test]
    fn drawn_vectors_depend_on_the_seed_and_every_sign_is_fair() {
        assert_ne!(draw(1), draw(2));
        let drawn = draw(1);
        for bit in 0..MAX_PAIRS {
            let ones = drawn.iter().filter(|&signs| signs >> bit & 1 == 1).count();
            // Five standard errors.
            assert!(ones.abs_diff(DRAWN / 2) < 160, "bit {bit}: {ones}");
        }
    }

    #[test]
    fn ties_share_their_ranks_and_zeros_have_none() {
        assert_eq!(doubled_ranks(&[0.3, -0.1, 0.2, -0.2, 0.5]), [8, 2, 5, 5, 10]);
        assert_eq!(doubled_ranks(&[0.0, 2.0, -0.0, -1.0, 2.0]), [0, 9, 0, 6, 9]);
        assert!(doubled_ranks(&[]).is_empty());
    }

    #[test]
    fn the_null_distribution_is_the_published_one() {
        // Wilcoxon and Wilcox (1964), two-sided 5 %: 0, 3, 8, 17, 137 for n = 6, 8, 10, 13, 30.
        for (n, critical) in [(6, 0), (8, 3), (10, 8), (13, 17), (30, 137)] {
            assert_eq!(NullSum::for_size(n).quantile(0.025), Some(critical), "n = {n}");
        }
        assert_eq!(NullSum::for_size(5).quantile(0.025), None);
        assert_eq!(NullSum::for_size(3).upto(2), 3.0 / 8.0);
        assert!((NullSum::for_size(30).upto(465) - 1.0).abs() < 1e-12);
        assert!((NullSum::for_size(10).upto(27) - 0.5).abs() < 1e-12);
    }
}
