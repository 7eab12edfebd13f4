//! Whether a sample is one figure, or has modes or a drift.

use super::changes::{mann_kendall, theil_sen_slope};
use super::summary::{MedianInterval, interval_of_runs};
use super::{StatsError, median, median_of_sorted, sorted};

/// The shape of a sample of repeated runs, in the order in which they were made.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Figure {
    /// One figure: this number of runs gives no evidence against it.
    One(MedianInterval),
    /// Several figures: the runs fall into groups, and a median between them would be one that
    /// hardly occurs.
    Modes {
        /// The groups, ascending; at least 2.
        modes: Vec<Mode>,
    },
    /// A drift: the runs rise or fall from the first to the last.
    Drift {
        /// Median of the first third of the runs.
        from: f64,
        /// Median of the last third of the runs.
        to: f64,
        /// Change from one run to the next: the Theil–Sen slope.
        change_per_run: f64,
        /// Two-sided p-value of the Mann–Kendall test, at most 0.01.
        p_value: f64,
    },
}

impl Figure {
    /// One figure with the median of a run ([`MedianInterval::of_a_run`]); others as they are.
    pub fn of_a_run(self, samples: &[f64]) -> Self {
        match self {
            Self::One(one) => Self::One(one.of_a_run(samples)),
            other => other,
        }
    }
}

/// One group of runs.
#[derive(
    Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema,
)]
pub struct Mode {
    /// Median of the group.
    pub median: f64,
    /// The group's smallest run.
    pub min: f64,
    /// The group's largest run.
    pub max: f64,
    /// Number of runs in the group.
    pub n: usize,
}

/// Decides whether runs, in the order in which they were made, are one figure.
///
/// Two tests: Mann–Kendall at 1 % for a drift, then Hartigan's dip at 5 % of its worst case for
/// modes. A drift goes first because it spreads or splits the values as well: a step from one level
/// to another is a drift here.
///
/// Share of samples, in percent, that are called so, simulated for independent runs with 2,000 to
/// 5,000 samples each (the tests below bound it up to n = 30):
///
/// | runs | n = 5 | 10 | 20 | 30 | 100 |
/// |---|---|---|---|---|---|
/// | one figure, uniform noise (the worst case): modes | 4.7 | 5.5 | 4.8 | 5.0 | 5.1 |
/// | one figure, normal noise: modes | 2.9 | 1.5 | 0.7 | 0.6 | 0.2 |
/// | one figure, exponential noise: modes | 3.5 | 2.0 | 0.9 | 0.7 | 0.1 |
/// | one figure, Cauchy noise: modes | 1.5 | 0.2 | 0.1 | 0.0 | 0.0 |
/// | one figure, any of these: drift | 0 | ≤ 1.0 | ≤ 1.0 | ≤ 1.0 | ≤ 1.2 |
/// | two equal modes 10 σ apart: modes | 24 | 61 | 93 | 98 | 99 |
/// | modes of 70 % and 30 %, 10 σ apart: modes | 16 | 35 | 58 | 71 | 99 |
/// | modes of 80 % and 20 %, 10 σ apart: modes | 10 | 13 | 18 | 27 | 84 |
/// | three equal modes 100 σ apart, n = 90: all three and no more | | | | | 98 |
/// | a drift of 3 σ from first to last: drift | 0 | 36 | 82 | 97 | 100 |
///
/// Noise that carries over from one run to the next is called a drift more often: with a
/// correlation of 0.5, in 6 % of the samples of 10 and 12 % of those of 100.
///
/// Runs that differ by less than 1 % of their median have no modes: nobody would act on them.
/// Samples must not be rounded coarsely: a few distinct values that each occur often are modes.
/// Fewer than 4 runs are always one figure, fewer than 6 have no drift. O(n²) in the number of
/// runs.
///
/// # Errors
/// [`StatsError::Empty`] without samples, [`StatsError::NotFinite`] if one is NaN or infinite.
pub fn figure(samples: &[f64]) -> Result<Figure, StatsError> {
    let ascending = sorted("figure", samples)?;
    let p_value = mann_kendall(samples);
    if p_value <= DRIFT_LEVEL {
        let third = samples.len().div_ceil(3);
        return Ok(Figure::Drift {
            from: median(&samples[..third]),
            to: median(&samples[samples.len() - third..]),
            change_per_run: theil_sen_slope(samples),
            p_value,
        });
    }
    let modes = modes(&ascending);
    if modes.len() > 1 {
        return Ok(Figure::Modes { modes });
    }
    interval_of_runs(samples).map(Figure::One)
}

/// Splits samples in ascending order for as long as the dip test finds more than one mode in a
/// part.
fn modes(ascending: &[f64]) -> Vec<Mode> {
    let dip = dip(ascending);
    if !is_narrow(ascending) && critical_dip(ascending.len()).is_some_and(|critical| dip > critical)
    {
        let (lower, upper) = ascending.split_at(valley(ascending, dip));
        return [modes(lower), modes(upper)].concat();
    }
    vec![Mode {
        median: median_of_sorted(ascending),
        min: ascending[0],
        max: ascending[ascending.len() - 1],
        n: ascending.len(),
    }]
}

/// Whether all samples are within 1 % of their median: whatever shape they have, nobody acts on it.
fn is_narrow(ascending: &[f64]) -> bool {
    let range = ascending[ascending.len() - 1] - ascending[0];
    range <= NARROW * median_of_sorted(ascending).abs()
}

/// Where to split: at the widest gap that leaves enough on both sides.
///
/// A group with a share s of the sample makes a dip of about s/2, so parts much smaller than twice
/// the dip are not what the test found but outliers; half of that is left for the noise.
fn valley(ascending: &[f64], dip: f64) -> usize {
    let n = ascending.len();
    let smallest = (dip * n as f64).ceil() as usize;
    let gap = |split: usize| ascending[split] - ascending[split - 1];
    (smallest..=n - smallest)
        .max_by(|&a, &b| gap(a).total_cmp(&gap(b)))
        .expect("a dip is at most 1/4, so both parts fit")
}

/// Range of samples that have no modes worth telling, as a share of their median.
const NARROW: f64 = 0.01;

/// Level of the drift test; that of the dip test is in its table.
const DRIFT_LEVEL: f64 = 0.01;

// The dip test of unimodality (Hartigan and Hartigan, *Annals of Statistics* 13, 1985).

/// The dip of at least one sample in ascending order: from 1/(2n) to, for two samples or more, 1/4.
///
/// The dip is the least distance between a sample's distribution function and any unimodal one. Its
/// null distribution is that of uniform samples, which of all unimodal ones come closest to looking
/// bimodal; so skewed and heavy-tailed samples with one mode are rejected less often than the level
/// says, and outliers, however far, hardly count.
///
/// Hartigan and Hartigan's construction: below the modal interval a unimodal distribution function
/// is convex, above it concave. Start with the whole range as the modal interval; while the
/// greatest convex minorant and the least concave majorant over it are farther apart than the dip
/// found so far, shrink it to where they are farthest apart, and note how far the sample departs
/// from its hulls in what was cut off.
pub(super) fn dip(sorted: &[f64]) -> f64 {
    let steps = steps(sorted);
    let (mut low, mut high) = (0, steps.len() - 1);
    // In units of 1/(2n): one step of the distribution function cannot be less than half a step
    // away.
    let mut dip = 1.0_f64;
    while low < high {
        let range = &steps[low..=high];
        let minorant = Hull::new(range, |step| step.below, |slope, steeper| slope < steeper);
        let majorant = Hull::new(range, |step| step.upto, |slope, flatter| slope > flatter);
        let widest = widest_gap(range, &minorant, &majorant);
        if widest.gap <= dip {
            break;
        }
        let left = (0..widest.low).map(|i| range[i].upto - minorant.at(range[i].x));
        let right =
            (widest.high + 1..range.len()).map(|i| majorant.at(range[i].x) - range[i].below);
        dip = left.chain(right).fold(dip, f64::max);
        (low, high) = (low + widest.low, low + widest.high);
    }
    dip / (2.0 * sorted.len() as f64)
}

/// The dip that a unimodal sample of `n` exceeds with a probability of at most 5 %, or `None` for
/// `n` < 4, where every dip is common.
pub(super) fn critical_dip(n: usize) -> Option<f64> {
    let after = CRITICAL.partition_point(|&(size, _)| size <= n);
    let (n_below, scaled_below) = *CRITICAL.get(after.checked_sub(1)?)?;
    // √n·dip has a limit distribution, so it is what varies little between the sizes of the table.
    let scaled = CRITICAL.get(after).map_or(scaled_below, |&(n_above, scaled_above)| {
        let share = (n - n_below) as f64 / (n_above - n_below) as f64;
        scaled_below + share * (scaled_above - scaled_below)
    });
    Some(scaled / (n as f64).sqrt())
}

/// One step of the empirical distribution function: a distinct value and the number of samples
/// below and up to it.
struct EcdfStep {
    x: f64,
    below: f64,
    upto: f64,
}

fn steps(sorted: &[f64]) -> Vec<EcdfStep> {
    let mut below = 0.0;
    sorted
        .chunk_by(|a, b| a == b)
        .map(|ties| {
            let step = EcdfStep { x: ties[0], below, upto: below + ties.len() as f64 };
            below = step.upto;
            step
        })
        .collect()
}

/// A convex or concave polygon through corners of the distribution function.
struct Hull {
    /// Positions within the range of steps, ascending.
    vertices: Vec<usize>,
    points: Vec<(f64, f64)>,
}

impl Hull {
    /// Andrew's monotone chain. `turns(a, b)` says whether slope `b` may follow slope `a`.
    fn new(range: &[EcdfStep], height: fn(&EcdfStep) -> f64, turns: fn(f64, f64) -> bool) -> Self {
        let mut hull = Self { vertices: Vec::new(), points: Vec::new() };
        for (position, step) in range.iter().enumerate() {
            let point = (step.x, height(step));
            while let [.., a, b] = hull.points[..] {
                if turns(slope(a, b), slope(b, point)) {
                    break;
                }
                hull.points.pop();
                hull.vertices.pop();
            }
            hull.points.push(point);
            hull.vertices.push(position);
        }
        hull
    }

    /// Height of the polygon at `x`, which lies within its range.
    fn at(&self, x: f64) -> f64 {
        let right = self.points.partition_point(|point| point.0 < x);
        let to = self.points[right];
        if right == 0 || to.0 == x {
            return to.1;
        }
        let from = self.points[right - 1];
        from.1 + (x - from.0) * slope(from, to)
    }

    fn first_vertex_from(&self, position: usize) -> usize {
        self.vertices[self.vertices.partition_point(|&vertex| vertex < position)]
    }

    fn last_vertex_upto(&self, position: usize) -> usize {
        self.vertices[self.vertices.partition_point(|&vertex| vertex <= position) - 1]
    }
}

fn slope(from: (f64, f64), to: (f64, f64)) -> f64 {
    (to.1 - from.1) / (to.0 - from.0)
}

/// Where the two hulls are farthest apart, and the modal interval that this implies, as positions
/// within the range.
struct WidestGap {
    gap: f64,
    low: usize,
    high: usize,
}

/// The hulls' distance is piecewise linear, so it is greatest at a vertex of one of them.
fn widest_gap(range: &[EcdfStep], minorant: &Hull, majorant: &Hull) -> WidestGap {
    let at_minorant = minorant.vertices.iter().map(|&vertex| WidestGap {
        gap: majorant.at(range[vertex].x) - range[vertex].below,
        low: vertex,
        high: majorant.first_vertex_from(vertex),
    });
    let at_majorant = majorant.vertices.iter().map(|&vertex| WidestGap {
        gap: range[vertex].upto - minorant.at(range[vertex].x),
        low: minorant.last_vertex_upto(vertex),
        high: vertex,
    });
    let all = at_minorant.chain(at_majorant);
    all.max_by(|a, b| a.gap.total_cmp(&b.gap)).expect("a hull has at least one vertex")
}

/// Sample size and the 95 % quantile of √n·dip of uniform samples, from 100,000 of them each, which
/// leaves an error of about 0.5 %. The last size stands for all larger ones too: the quantile is
/// near its limit.
const CRITICAL: [(usize, f64); 17] = [
    (4, 0.4139),
    (5, 0.4168),
    (6, 0.4034),
    (7, 0.4241),
    (8, 0.4358),
    (9, 0.4395),
    (10, 0.4406),
    (12, 0.4511),
    (15, 0.4603),
    (20, 0.4690),
    (30, 0.4826),
    (50, 0.4969),
    (100, 0.5101),
    (200, 0.5197),
    (500, 0.5297),
    (1_000, 0.5350),
    (3_000, 0.5397),
];

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::simulation::{Source, rate};
    use super::*;

    /// Shares of `trials` samples that are called modes and a drift.
    fn called(trials: u32, mut sample: impl FnMut() -> Vec<f64>) -> (f64, f64) {
        let figures: Vec<Figure> = (0..trials).map(|_| figure(&sample()).unwrap()).collect();
        let share = |is: fn(&Figure) -> bool| {
            let mut figures = figures.iter();
            rate(trials, || is(figures.next().unwrap()))
        };
        (
            share(|figure| matches!(figure, Figure::Modes { .. })),
            share(|figure| matches!(figure, Figure::Drift { .. })),
        )
    }

    fn two_modes(source: &mut Source, n: usize, minor: f64) -> Vec<f64> {
        source.samples(n, |s| s.normal() + if s.uniform() < minor { 10.0 } else { 0.0 })
    }

    #[test]
    fn one_figure_is_seldom_called_anything_else() {
        type Law = fn(&mut Source) -> f64;
        // The rate of false modes at n = 5, 10, 20, 30, with four standard errors.
        let laws: [(Law, [f64; 4]); 4] = [
            (Source::uniform, [0.067, 0.070, 0.067, 0.070]),
            (Source::normal, [0.044, 0.026, 0.015, 0.013]),
            (Source::exponential, [0.052, 0.033, 0.017, 0.014]),
            (Source::cauchy, [0.026, 0.007, 0.004, 0.003]),
        ];
        let mut source = Source::new(6);
        for (law, limits) in laws {
            for (n, limit) in [5, 10, 20, 30].into_iter().zip(limits) {
                let (modes, drift) = called(2_000, || source.samples(n, law));
                assert!(modes <= limit, "n = {n}: modes {modes}");
                assert!(drift <= 0.019, "n = {n}: drift {drift}");
            }
        }
    }

    #[test]
    fn modes_and_drifts_are_found_as_often_as_stated() {
        let mut source = Source::new(7);
        for (n, equal, unequal, drifting) in
            [(10, 0.55, 0.29, 0.30), (20, 0.90, 0.52, 0.77), (30, 0.96, 0.65, 0.94)]
        {
            let (modes, _) = called(1_000, || two_modes(&mut source, n, 0.5));
            assert!(modes >= equal, "n = {n}: {modes}");
            let (modes, _) = called(1_000, || two_modes(&mut source, n, 0.3));
            assert!(modes >= unequal, "n = {n}: {modes}");
            let (_, drift) = called(1_000, || {
                (0..n).map(|i| source.normal() + 3.0 * i as f64 / (n - 1) as f64).collect()
            });
            assert!(drift >= drifting, "n = {n}: {drift}");
        }
    }

    #[test]
    fn modes_are_told_with_their_sizes_and_an_outlier_is_none_of_its_own() {
        let samples = [941.0, 612.0, 940.0, 611.0, 610.0, 942.0, 939.0, 613.0, 938.0, 5.0];
        let Figure::Modes { modes } = figure(&samples).unwrap() else {
            panic!("two modes look like {:?}", figure(&samples));
        };
        let lower = Mode { median: 611.0, min: 5.0, max: 613.0, n: 5 };
        let upper = Mode { median: 940.0, min: 938.0, max: 942.0, n: 5 };
        assert_eq!(modes, [lower, upper]);
    }

    #[test]
    fn three_modes_are_told_as_three() {
        let mut source = Source::new(8);
        let three = rate(1_000, || {
            let samples = source.samples(90, |s| (3.0 * s.uniform()).floor() * 100.0 + s.normal());
            matches!(figure(&samples), Ok(Figure::Modes { modes }) if modes.len() == 3)
        });
        assert!(three >= 0.95, "{three}");
    }

    #[test]
    fn a_drift_is_told_with_its_ends_and_its_slope() {
        let samples: Vec<f64> = (0..9).map(|run| 100.0 - 2.0 * f64::from(run)).collect();
        let Figure::Drift { from, to, change_per_run, p_value } = figure(&samples).unwrap() else {
            panic!("a falling line is a drift");
        };
        assert_eq!((from, to, change_per_run), (98.0, 86.0, -2.0));
        // Two of the 9! orders are monotone.
        assert!((p_value - 2.0 / 362_880.0).abs() < 1e-12);
    }

    #[test]
    fn few_or_equal_runs_are_one_figure() {
        for samples in [&[1.0, 9.0][..], &[1.0, 1.0, 9.0], &[5.0; 20]] {
            assert_eq!(figure(samples).unwrap(), Figure::One(interval_of_runs(samples).unwrap()));
        }
    }

    #[test]
    fn runs_within_a_hundredth_of_each_other_have_no_modes() {
        let pairs = [95.61, 95.42, 95.52, 95.41, 95.62, 95.53];
        assert!(matches!(figure(&pairs), Ok(Figure::One(_))), "{:?}", figure(&pairs));
    }

    #[test]
    fn a_figure_survives_json() {
        let figure = figure(&[3.0, 1.0, 2.0]).unwrap();
        let text = serde_json::to_string(&figure).unwrap();
        assert!(text.starts_with(r#"{"kind":"one","median":2.0,"#), "{text}");
        assert_eq!(serde_json::from_str::<Figure>(&text).unwrap(), figure);
    }

    proptest! {
        #[test]
        fn any_finite_samples_have_a_figure_and_modes_part_them(
            samples in prop::collection::vec(
                prop_oneof![prop::num::f64::NORMAL | prop::num::f64::ZERO, -3.0..3.0, Just(1.0),
                    Just(f64::MAX)], 1..40,
            ),
        ) {
            if let Figure::Modes { modes } = figure(&samples).unwrap() {
                prop_assert_eq!(modes.iter().map(|mode| mode.n).sum::<usize>(), samples.len());
                prop_assert!(modes.windows(2).all(|pair| pair[0].max < pair[1].min));
            }
        }
    }

    fn dip_of(mut samples: Vec<f64>) -> f64 {
        samples.sort_by(f64::total_cmp);
        dip(&samples)
    }

    #[test]
    fn known_dips() {
        assert_eq!(dip(&[7.0]), 1.0 / 2.0);
        assert_eq!(dip(&[7.0; 10]), 1.0 / 20.0);
        assert_eq!(dip(&[1.0, 2.0, 3.0, 4.0]), 1.0 / 8.0);
        // A unimodal function may jump at its mode only, so half the smaller atom is left.
        assert_eq!(dip(&[1.0, 1.0, 1.0, 2.0, 2.0, 2.0]), 1.0 / 4.0);
        assert_eq!(dip(&[1.0, 1.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0]), 1.0 / 8.0);
        // Pairs far apart are all but atoms.
        assert!((dip(&[0.0, 1e-9, 1.0, 1.0 + 1e-9]) - 1.0 / 4.0).abs() < 1e-6);
    }

    #[test]
    fn too_few_samples_have_no_critical_dip() {
        assert_eq!(critical_dip(3), None);
        assert_eq!(critical_dip(4), Some(0.4139 / 2.0));
        assert_eq!(critical_dip(10_000), Some(0.5397 / 100.0));
    }

    #[test]
    fn uniform_samples_are_rejected_at_the_level_also_between_the_sizes_of_the_table() {
        let mut source = Source::new(5);
        for n in [4, 5, 9, 11, 25, 75] {
            let rejected =
                rate(10_000, || Some(dip_of(source.samples(n, Source::uniform))) > critical_dip(n));
            // Four standard errors, and the error of the table.
            assert!((rejected - 0.05).abs() < 0.011, "n = {n}: {rejected}");
        }
    }

    proptest! {
        #[test]
        fn dip_ignores_place_scale_and_direction(
            samples in prop::collection::vec(-1000_i32..1000, 1..60), scale in 1_i32..9,
            shift in -99_i32..99,
        ) {
            let expected = dip_of(samples.iter().map(|&x| f64::from(x)).collect());
            for scale in [scale, -scale] {
                let moved = dip_of(samples.iter().map(|&x| f64::from(x * scale + shift)).collect());
                prop_assert!((moved - expected).abs() < 1e-9, "{moved} {expected}");
            }
        }

        #[test]
        fn dip_is_no_farther_than_the_uniform_distribution(
            samples in prop::collection::vec(0.0..1.0, 2..60),
        ) {
            let mut sorted = samples;
            sorted.sort_by(f64::total_cmp);
            let n = sorted.len() as f64;
            let distance = sorted.iter().zip(0_u32..).fold(0.0, |distance, (&x, i)| {
                let below = f64::from(i) / n;
                f64::max(distance, (x - below).abs().max((x - below - 1.0 / n).abs()))
            });
            let dip = dip(&sorted);
            prop_assert!(1.0 / (2.0 * n) <= dip && dip <= 0.25 && dip <= distance + 1e-12, "{dip} \
                {distance}");
        }
    }
}
