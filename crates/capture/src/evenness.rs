//! How even a sender sends: a clock that paces it keeps the rate over a few frames, too.

use linerate_units::Nanos;

/// Times at which each so many frames of new data went by, of the first part of a connection.
#[derive(Debug, Default)]
pub(crate) struct Course {
    frames: u32,
    bytes: u64,
    marks: Vec<(Nanos, u64)>,
}

/// Rates over a few frames, over their mean.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Evenness {
    /// That which 5 % do not exceed.
    pub low: f64,
    /// That which 95 % do not exceed.
    pub high: f64,
}

impl Course {
    pub(crate) fn add(&mut self, at: Nanos, bytes: u64) {
        if self.frames.is_multiple_of(FRAMES) && self.marks.len() < MOST_MARKS {
            self.marks.push((at, self.bytes));
        }
        self.frames = self.frames.wrapping_add(1);
        self.bytes += bytes;
    }

    /// Once slow start is over, most likely; `None` for too few frames.
    pub(crate) fn evenness(&self) -> Option<Evenness> {
        let marks = self.marks.get(self.marks.len() / 3..)?;
        let (first, last) = (marks.first()?, marks.last()?);
        let rate = |from: &(Nanos, u64), to: &(Nanos, u64)| {
            let time = (to.0.0 as f64 - from.0.0 as f64).max(1.0);
            (to.1 - from.1) as f64 / time
        };
        let mean = rate(first, last);
        let pairs = marks.iter().zip(&marks[1..]);
        let mut rates: Vec<f64> = pairs.map(|(from, to)| rate(from, to) / mean).collect();
        rates.sort_by(f64::total_cmp);
        let at = |share: f64| rates.get((rates.len() as f64 * share) as usize).copied();
        let enough = rates.len() >= FEWEST;
        Some(Evenness {
            low: at(0.05)?,
            high: at(0.95)?,
        })
        .filter(|even| enough && even.low.is_finite() && even.high.is_finite())
    }
}

/// Less than a round trip of most connections, and more than what leaves at once.
const FRAMES: u32 = 16;
const MOST_MARKS: usize = 1024;
const FEWEST: usize = 6;

#[cfg(test)]
mod tests {
    use super::*;

    fn evenness(gaps_us: impl Iterator<Item = u64>) -> Option<Evenness> {
        let (mut course, mut at) = (Course::default(), 0);
        for gap in gaps_us {
            at += gap * 1000;
            course.add(Nanos(at), 1448);
        }
        course.evenness()
    }

    #[test]
    fn a_clock_is_even_and_bursts_are_not() {
        let paced = evenness((0..400).map(|_| 1000)).unwrap();
        assert!(paced.low > 0.99 && paced.high < 1.01, "{paced:?}");
        // 40 frames in a burst, and then nothing.
        let bursts = evenness((0..400).map(|n| if n % 40 == 0 { 40_000 } else { 10 })).unwrap();
        assert!(bursts.low < 0.5 || bursts.high > 2.0, "{bursts:?}");
        assert_eq!(evenness((0..60).map(|_| 1000)), None);
    }
}
