//! The dip test of unimodality (Hartigan and Hartigan, *Annals of Statistics* 13, 1985).
//!
//! The dip is the least distance between a sample's distribution function and any unimodal one. Its
//! null distribution is that of uniform samples, which of all unimodal ones come closest to looking
//! bimodal; so skewed and heavy-tailed samples with one mode are rejected less often than the level
//! says, and outliers, however far, hardly count.

/// The dip of at least one sample in ascending order: from 1/(2n) to, for two samples or more, 1/4.
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
