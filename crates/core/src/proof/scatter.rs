//! How far runs of the same test are from each other, and the interval of a change's ratio.
//!
//! All figures here are natural logarithms of ratios, so that the unit of the rate is nowhere in
//! them.

use super::predict::Watched;

/// The scatter of the log ratio of two equal runs beside each other.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Scatter {
    /// Standard deviation.
    sd: f64,
    /// Degrees of freedom, those of the assumed scatter included.
    freedom: f64,
    watched: Watched,
}

impl Scatter {
    /// From plain runs in their order, the log ratios of the blocks of each change, and the
    /// standard error of a run's own mean within it.
    pub(super) fn new<'a>(
        watched: Watched,
        plain: &[f64],
        changes: impl Iterator<Item = &'a [f64]>,
        within: f64,
    ) -> Self {
        let assumed = assumed_sd(watched);
        let mut squares = ASSUMED_FREEDOM * assumed * assumed;
        let mut freedom = ASSUMED_FREEDOM;
        for ratios in changes.filter(|ratios| ratios.len() > 1) {
            squares += squared_deviations(ratios);
            freedom += ratios.len() as f64 - 1.0;
        }
        // Neighbours share a run, and the blocks have these runs too: each step counts half.
        for step in plain.windows(2) {
            squares += (step[1] - step[0]).powi(2) / 2.0;
            freedom += 0.5;
        }
        let variance = (squares / freedom).max(2.0 * within * within);
        Self { sd: variance.sqrt(), freedom, watched }
    }

    /// Standard deviation of one run's logarithm.
    pub(super) fn of_a_run(&self) -> f64 {
        self.sd / std::f64::consts::SQRT_2
    }

    /// The interval of a change's log ratio; `None` of a single block, which may be a fluke however
    /// small the scatter was.
    pub(super) fn interval(&self, ratios: &[f64]) -> Option<[f64; 2]> {
        if ratios.len() < 2 {
            return None;
        }
        let n = ratios.len() as f64;
        let center = mean(ratios);
        // A change may scatter more than the plain runs do, such as BBR at random loss.
        let own = (squared_deviations(ratios) / (n - 1.0)).sqrt();
        let half = self.half_width(ratios.len(), own.max(self.sd));
        Some([center - half, center + half])
    }

    /// The half width that so many blocks should have.
    pub(super) fn expected_half_width(&self, blocks: usize) -> f64 {
        if blocks < 2 { f64::INFINITY } else { self.half_width(blocks, self.sd) }
    }

    fn half_width(&self, blocks: usize, sd: f64) -> f64 {
        let of_scatter = student(self.freedom) * sd / (blocks as f64).sqrt();
        of_scatter.max(least_half_width(self.watched, blocks))
    }
}

/// The mean of the logs; of none 0.
pub(super) fn mean(logs: &[f64]) -> f64 {
    logs.iter().sum::<f64>() / logs.len().max(1) as f64
}

fn squared_deviations(logs: &[f64]) -> f64 {
    let center = mean(logs);
    logs.iter().map(|log| (log - center).powi(2)).sum()
}

/// Scatter that is assumed before there are runs. Two runs cannot tell that a path never scatters;
/// runs of a second or two over quiet paths scattered by 0.5 to 3 %, so that their ratio does by
/// 4 % at most. A queue and a share of losses are counted with few events.
const fn assumed_sd(watched: Watched) -> f64 {
    match watched {
        Watched::Rate => 0.04,
        Watched::Queue | Watched::Retransmissions => 0.3,
    }
}

/// Weight of that assumption, as so many runs more.
const ASSUMED_FREEDOM: f64 = 4.0;

/// The least half width of so many blocks. A path that is a fifth slower in three of ten runs, and
/// otherwise even, may show two slow runs beside two fast ones and no scatter at all; three in a
/// row are rare, and four rarer still (docs/error-rates.md, bimodal).
fn least_half_width(watched: Watched, blocks: usize) -> f64 {
    let of_rate = match blocks {
        0..=2 => 0.23,
        3 => 0.12,
        _ => 0.06,
    };
    match watched {
        Watched::Rate => of_rate,
        Watched::Queue | Watched::Retransmissions => 2.0 * of_rate,
    }
}

/// Student's t: one value in a thousand is beyond it on one side. A wrong exclusion on the way of
/// about five changes, each looked at twice or thrice, is then below 1 %.
fn student(freedom: f64) -> f64 {
    const FIRST: usize = 4;
    const QUANTILES: [f64; 17] = [
        7.173, 5.893, 5.208, 4.785, 4.501, 4.297, 4.144, 4.025, 3.930, 3.852, 3.787, 3.733, 3.686,
        3.646, 3.610, 3.579, 3.552,
    ];
    let at = (freedom.floor() as usize).saturating_sub(FIRST);
    QUANTILES[at.min(QUANTILES.len() - 1)]
}
