//! Noise models, and comparisons simulated on them: ours and the usual ones.
#![allow(dead_code, reason = "each test and the example use their part")]

use linerate_stats::paired::{Conclusion, Design, Order, Schedule, Sequential};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// Random numbers of a seed.
pub(crate) struct Source(ChaCha8Rng);

impl Source {
    pub(crate) fn new(seed: u64, stream: u64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(stream);
        Self(rng)
    }

    pub(crate) fn seed(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Uniform in (0, 1).
    pub(crate) fn uniform(&mut self) -> f64 {
        ((self.0.next_u64() >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
    }

    pub(crate) fn chance(&mut self, probability: f64) -> bool {
        self.uniform() < probability
    }

    /// Standard normal, by Box and Muller.
    pub(crate) fn normal(&mut self) -> f64 {
        let radius = (-2.0 * self.uniform().ln()).sqrt();
        radius * (std::f64::consts::TAU * self.uniform()).cos()
    }

    pub(crate) fn exponential(&mut self) -> f64 {
        -self.uniform().ln()
    }

    pub(crate) fn cauchy(&mut self) -> f64 {
        (std::f64::consts::PI * (self.uniform() - 0.5)).tan()
    }
}

/// What a path does to one run after the other.
pub(crate) struct Model {
    pub(crate) name: &'static str,
    pub(crate) what: &'static str,
    /// The logs of so many runs without any treatment, in the order in which they are made.
    pub(crate) series: fn(&mut Source, usize) -> Vec<f64>,
}

pub(crate) const MODELS: [Model; 6] = [
    Model {
        name: "independent",
        what: "each run scatters by 5 %, normal",
        series: |source, runs| (0..runs).map(|_| 0.05 * source.normal()).collect(),
    },
    Model {
        name: "drift",
        what: "the same, and the path loses 0.5 % from each run to the next",
        series: |source, runs| {
            let noise = (0..runs).map(|run| 0.05 * source.normal() - 0.005 * run as f64);
            noise.collect()
        },
    },
    Model {
        name: "AR(1) with bursts",
        what: "correlation of 0.95 from run to run, steps of 2 %; now and then a burst of slow \
            runs, 30 % on average",
        series: correlated,
    },
    Model {
        name: "bimodal",
        what: "30 % of the runs are 20 % slower, and all scatter by 2 %",
        series: |source, runs| {
            let mode = |source: &mut Source| if source.chance(0.3) { -0.22 } else { 0.0 };
            (0..runs).map(|_| mode(source) + 0.02 * source.normal()).collect()
        },
    },
    Model {
        name: "outliers",
        what: "half of the runs are within 2 %, one in 30 is off by 40 % or more (Cauchy, cut off \
            at a factor of 20)",
        series: |source, runs| {
            let noise = (0..runs).map(|_| (0.02 * source.cauchy()).clamp(-3.0, 3.0));
            noise.collect()
        },
    },
    Model {
        name: "second is slower",
        what: "each run scatters by 3 %, and the second of a pair is 5 % slower",
        series: |source, runs| {
            let noise = (0..runs).map(|run| 0.03 * source.normal() - 0.05 * (run % 2) as f64);
            noise.collect()
        },
    },
];

fn correlated(source: &mut Source, runs: usize) -> Vec<f64> {
    const CORRELATION: f64 = 0.95;
    const STEP: f64 = 0.02;
    let stationary = STEP / (1.0 - CORRELATION * CORRELATION).sqrt();
    let mut level = stationary * source.normal();
    let mut burst = None;
    let run = |_| {
        level = CORRELATION * level + STEP * source.normal();
        burst = match burst {
            Some(slower) if source.chance(2.0 / 3.0) => Some(slower),
            _ => source.chance(0.05).then(|| 0.3 * source.exponential()),
        };
        level - burst.unwrap_or(0.0)
    };
    (0..runs).map(run).collect()
}

pub(crate) fn design(margin_percent: Option<f64>, metrics: usize) -> Design {
    Design { margin_percent, metrics, max_pairs: 30, seed: 0 }
}

/// A whole comparison: the runs one after the other, the order in each pair by the schedule, and B
/// different by `percent`. Several metrics are independent series.
pub(crate) fn compare(
    model: &Model,
    source: &mut Source,
    design: &Design,
    percent: f64,
) -> Conclusion {
    let effect = (percent / 100.0).ln_1p();
    let pairs = design.max_pairs as usize;
    let series: Vec<Vec<f64>> =
        (0..design.metrics).map(|_| (model.series)(source, 2 * pairs)).collect();
    let seed = source.seed();
    let mut test = Sequential::new(&Design { seed, ..design.clone() }).expect("a valid design");
    for (pair, order) in Schedule::new(seed).take(pairs).enumerate() {
        let log_ratios: Vec<f64> = series
            .iter()
            .map(|runs| match order {
                Order::AFirst => runs[2 * pair + 1] + effect - runs[2 * pair],
                Order::BFirst => runs[2 * pair] + effect - runs[2 * pair + 1],
            })
            .collect();
        if let Some(conclusion) = test.push(&log_ratios).expect("finite log ratios") {
            return conclusion;
        }
    }
    unreachable!("the most pairs end it")
}

/// The usual way: ten runs of A, then ten of B, and Mann–Whitney at 5 %. Does it say that A differs
/// from A?
pub(crate) fn blocks_with_mann_whitney(model: &Model, source: &mut Source) -> bool {
    const RUNS: usize = 10;
    /// Two-sided 5 % for ten against ten (Mann and Whitney 1947).
    const CRITICAL: usize = 23;
    let runs = (model.series)(source, 2 * RUNS);
    let (a, b) = runs.split_at(RUNS);
    let above: usize = a.iter().map(|a| b.iter().filter(|&b| b > a).count()).sum();
    above.min(RUNS * RUNS - above) <= CRITICAL
}

/// The other usual way: A, B, A, B, …, and a paired t-test at 5 % after each pair from the third
/// on, until it says so, 30 pairs at most. Does it?
pub(crate) fn t_test_with_peeking(model: &Model, source: &mut Source) -> bool {
    let runs = (model.series)(source, 60);
    let (mut sum, mut squares) = (0.0, 0.0);
    runs.chunks(2).zip(1_u8..).any(|(pair, n)| {
        let (difference, n) = (pair[1] - pair[0], f64::from(n));
        sum += difference;
        squares += difference * difference;
        let variance = (squares - sum * sum / n) / (n - 1.0);
        let t = (sum / n) / (variance / n).sqrt();
        n >= 3.0 && t.abs() > T_CRITICAL[n as usize - 3]
    })
}

/// Student's t, two-sided 5 %, for 2 to 29 degrees of freedom.
const T_CRITICAL: [f64; 28] = [
    4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145,
    2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052,
    2.048, 2.045,
];
