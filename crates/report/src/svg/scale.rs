//! Positions of values on an axis, and its round tick values.

use linerate_core::units::civil_date;

use crate::number::ends;

/// An axis: its range of values, and its range of pixels.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scale {
    pub(super) low: f64,
    pub(super) high: f64,
    pub(super) pixels: [f64; 2],
    pub(super) log: bool,
}

impl Scale {
    /// An axis over all finite `values`; a linear one includes 0.
    pub(super) fn new(values: impl Iterator<Item = f64>, log: bool, pixels: [f64; 2]) -> Self {
        let fits = |value: &f64| value.is_finite() && (!log || *value > 0.0);
        let [mut low, mut high] = ends(values.filter(fits));
        if low > high {
            (low, high) = (1.0, 10.0);
        }
        if log {
            if high < 2.0 * low {
                (low, high) = (low / 2.0, high * 2.0);
            }
        } else {
            (low, high) = (low.min(0.0), high.max(0.0));
            if high - low < f64::MIN_POSITIVE {
                high = low + 1.0;
            }
        }
        Self { low, high, pixels, log }
    }

    /// The axis limited to `values`, without a 0 that is not among them.
    pub(super) fn close(self, values: impl Iterator<Item = f64>) -> Self {
        let [low, high] = ends(values.filter(|value| value.is_finite()));
        if low < high {
            return Self { low, high, ..self };
        }
        self
    }

    /// The axis extended to round values, so that nothing touches its edge.
    pub(super) fn rounded(self, ticks: usize, unit: f64) -> Self {
        if self.log {
            return self;
        }
        let step = step((self.high - self.low) / unit, ticks) * unit;
        let low = (self.low / step + 1e-9).floor() * step;
        let high = (self.high / step - 1e-9).ceil() * step;
        Self { low, high, ..self }
    }

    /// The pixel of a value; a value beyond the end is drawn at the end.
    pub(super) fn at(&self, value: f64) -> f64 {
        let place = |value: f64| if self.log { value.log10() } else { value };
        let (low, high) = (place(self.low), place(self.high));
        let share = (place(value.clamp(self.low, self.high)) - low) / (high - low);
        self.pixels[0] + share * (self.pixels[1] - self.pixels[0])
    }

    /// About `most` round values, each with its text in `unit`.
    pub(super) fn ticks(&self, most: usize, unit: f64) -> Vec<(f64, String)> {
        if self.log {
            return self.log_ticks(unit);
        }
        let step = step((self.high - self.low) / unit, most);
        let decimals = (-(step * 1.0001).log10().floor()).max(0.0) as usize;
        let first = (self.low / unit / step - 1e-6).ceil() as i64;
        let last = (self.high / unit / step + 1e-6).floor() as i64;
        let values =
            (first..=last.min(first.saturating_add(MAX_TICKS))).map(|number| number as f64 * step);
        let ticks = values.map(|value| (value * unit, format!("{value:.decimals$}")));
        ticks.collect()
    }

    /// About `most` round moments, for an axis in seconds since 1970, UTC.
    pub(super) fn dates(&self, most: usize) -> Vec<(f64, String)> {
        let span = self.high - self.low;
        let fits = |step: &&f64| **step >= span / most.max(1) as f64;
        let step = *STEPS.iter().find(fits).unwrap_or(&STEPS[STEPS.len() - 1]);
        let first = (self.low / step).ceil() as i64;
        let last = (self.high / step).floor() as i64;
        (first..=last.min(first.saturating_add(MAX_TICKS)))
            .map(|number| number as f64 * step)
            .map(|moment| (moment, date(moment as u64, step, span)))
            .collect()
    }

    /// The powers of ten and, where they are few, 2 and 5 times them.
    fn log_ticks(&self, unit: f64) -> Vec<(f64, String)> {
        let (low, high) = (self.low / unit, self.high / unit);
        let powers = low.log10().floor() as i32..=high.log10().ceil() as i32;
        let between: &[f64] = if high / low < 1e3 { &[1.0, 2.0, 5.0] } else { &[1.0] };
        let ticks = powers.flat_map(|power| {
            between.iter().map(move |part| {
                let decimals = (-power).max(0) as usize;
                let value = part * 10_f64.powi(power);
                (value, format!("{value:.decimals$}"))
            })
        });
        ticks
            .filter(|(value, _)| (low * 0.999..=high * 1.001).contains(value))
            .map(|(value, text)| (value * unit, text))
            .collect()
    }
}

/// Distances between ticks of a time axis, seconds: minutes, hours, days, and about months and
/// years.
const STEPS: [f64; 15] = [
    60.0,
    300.0,
    900.0,
    3600.0,
    3.0 * 3600.0,
    6.0 * 3600.0,
    12.0 * 3600.0,
    DAY,
    2.0 * DAY,
    7.0 * DAY,
    14.0 * DAY,
    28.0 * DAY,
    91.0 * DAY,
    182.0 * DAY,
    364.0 * DAY,
];
const DAY: f64 = 86_400.0;

/// A moment with as much detail as the ticks need: `14:00`, `11-23 14:00`, `11-23` or `2026-11-23`.
fn date(moment: u64, step: f64, span: f64) -> String {
    let (year, month, day) = civil_date(moment / 86_400);
    let time = format!("{:02}:{:02}", moment / 3600 % 24, moment / 60 % 60);
    if span <= DAY {
        time
    } else if step < DAY {
        format!("{month:02}-{day:02} {time}")
    } else if span < 300.0 * DAY {
        format!("{month:02}-{day:02}")
    } else {
        format!("{year}-{month:02}-{day:02}")
    }
}

/// Maximum number of ticks on an axis.
const MAX_TICKS: i64 = 50;

/// 1, 2 or 5 times a power of ten, so that `span` has about `most` of it.
fn step(span: f64, most: usize) -> f64 {
    let least = span / most.max(1) as f64;
    let power = 10_f64.powf(least.log10().floor());
    let round = [1.0, 2.0, 5.0].map(|part| part * power);
    let fits = round.into_iter().find(|step| *step >= least * 0.999);
    fits.unwrap_or(10.0 * power)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(scale: Scale, most: usize, unit: f64) -> Vec<String> {
        let ticks = scale.rounded(most, unit).ticks(most, unit).into_iter();
        ticks.map(|(_, text)| text).collect()
    }

    #[test]
    fn ticks_are_round_and_reach_beyond_the_largest_value() {
        let scale = |values: &[f64]| Scale::new(values.iter().copied(), false, [0.0, 100.0]);
        assert_eq!(written(scale(&[13.9e6, 14.2e6]), 4, 1e6), ["0", "5", "10", "15"]);
        assert_eq!(written(scale(&[0.31]), 4, 1.0), ["0.0", "0.1", "0.2", "0.3", "0.4"]);
        assert_eq!(written(scale(&[-3.0, 8.0]), 4, 1.0), ["-5", "0", "5", "10"]);
        assert_eq!(written(scale(&[f64::NAN]), 4, 1.0).first().unwrap(), "0");
    }

    #[test]
    fn moments_are_round_and_written_as_far_as_they_differ() {
        let dates = |low: f64, span: f64| {
            let scale = Scale { low, high: low + span, pixels: [0.0, 1.0], log: false };
            scale.dates(4).into_iter().map(|(_, text)| text).collect::<Vec<_>>()
        };
        // 2026-11-23 09:00 UTC.
        let at = 1_795_424_400.0;
        assert_eq!(dates(at, 3600.0), ["09:00", "09:15", "09:30", "09:45", "10:00"]);
        assert_eq!(dates(at, 1.5 * DAY), ["11-23 12:00", "11-24 00:00", "11-24 12:00"]);
        assert_eq!(dates(at, 5.0 * DAY), ["11-25", "11-27"]);
        assert_eq!(dates(at, 700.0 * DAY).len(), 4);
    }

    #[test]
    fn powers_of_ten_are_as_far_from_each_other() {
        let scale = Scale::new([10.0, 100_000.0].into_iter(), true, [0.0, 400.0]);
        assert_eq!((scale.at(10.0), scale.at(1000.0)), (0.0, 200.0));
        assert_eq!(written(scale, 4, 1e3), ["0.01", "0.1", "1", "10", "100"]);
        let narrow = Scale::new([30.0, 40.0].into_iter(), true, [0.0, 1.0]);
        assert_eq!(written(narrow, 4, 1.0), ["20", "50"]);
    }
}
