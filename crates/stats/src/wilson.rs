//! The interval of a proportion.

use super::StatsError;

/// A proportion with its 95 % interval, all from 0 to 1.
#[derive(
    Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema,
)]
pub struct Proportion {
    /// Events ÷ trials.
    pub share: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
}

/// The score interval of a proportion (Wilson 1927; Brown, Cai and DasGupta 2001, section 3.1.1).
///
/// Unlike share ± 1.96 standard errors it does not shrink to nothing at 0 or all events: no loss in
/// 1,000 packets still leaves up to 0.38 % possible. The trials must be independent; losses in
/// bursts make the true interval wider.
///
/// # Errors
/// [`StatsError::Empty`] without trials, [`StatsError::OutOfRange`] if there are more events than
/// trials.
pub fn wilson(events: u64, trials: u64) -> Result<Proportion, StatsError> {
    if trials == 0 {
        return Err(StatsError::Empty { operation: "proportion" });
    }
    if events > trials {
        let allowed = "at most the number of trials";
        return Err(StatsError::out_of_range("proportion", events as f64, allowed));
    }
    let n = trials as f64;
    let share = events as f64 / n;
    let center = share + Z * Z / (2.0 * n);
    let half_width = Z * (share * (1.0 - share) / n + Z * Z / (4.0 * n * n)).sqrt();
    let scale = 1.0 + Z * Z / n;
    Ok(Proportion {
        share,
        // The formula gives exactly these at the ends; rounding must not leave a residue.
        low: if events == 0 { 0.0 } else { (center - half_width) / scale },
        high: if events == trials { 1.0 } else { (center + half_width) / scale },
    })
}

/// The normal distribution's 97.5 % quantile, for a two-sided 95 % interval.
pub const NORMAL_QUANTILE: f64 = 1.959_963_984_540_054;
const Z: f64 = NORMAL_QUANTILE;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn published_intervals_are_reproduced() {
        // Newcombe (1998), table I, method 3.
        let table = [
            (81, 263, 0.2553, 0.3662),
            (15, 148, 0.0624, 0.1605),
            (0, 20, 0.0, 0.1611),
            (1, 29, 0.0061, 0.1718),
        ];
        for (events, trials, low, high) in table {
            let got = wilson(events, trials).unwrap();
            assert!((got.low - low).abs() < 5e-5 && (got.high - high).abs() < 5e-5, "{got:?}");
        }
    }

    #[test]
    fn impossible_counts_are_errors() {
        assert!(matches!(wilson(0, 0), Err(StatsError::Empty { .. })));
        assert!(matches!(wilson(2, 1), Err(StatsError::OutOfRange { .. })));
    }

    proptest! {
        #[test]
        fn interval_holds_the_share_and_mirrors(trials in 1_u64..1 << 40, part in 0.0..=1.0) {
            let events = (trials as f64 * part) as u64;
            let interval = wilson(events, trials).unwrap();
            prop_assert!(0.0 <= interval.low && interval.low <= interval.share);
            prop_assert!(interval.share <= interval.high && interval.high <= 1.0);
            let mirrored = wilson(trials - events, trials).unwrap();
            prop_assert!((interval.low - (1.0 - mirrored.high)).abs() < 1e-12);
        }
    }
}
