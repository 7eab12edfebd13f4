//! How evenly a sender's frames follow each other, which shows whether a clock, a link or a writer
//! sets their pace.

use linerate_units::Nanos;

/// Spacing of frames of new data, most likely after slow start.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Evenness {
    /// Rate over 16 frames relative to the mean: it was lower for 5 % of the time.
    pub low: f64,
    /// It was higher for 5 % of the time.
    pub high: f64,
    /// Share of the time in which single frames came at about the mean rate.
    pub even: f64,
    /// Share of the time before frames that no acknowledgement triggered.
    pub own: f64,
    /// Share of the frames that were whole segments.
    pub whole: f64,
    /// Share of the bytes sent faster than the mean.
    pub fast: f64,
}

/// Collects frames of new data as they pass.
#[derive(Debug, Default)]
pub(crate) struct Course {
    began: Option<Nanos>,
    last: Option<(Nanos, u64)>,
    /// Start of the current block and its bytes so far.
    block: Option<(Nanos, u64)>,
    /// The current part, from about a third of the time on, and the part before it.
    now: TimePart,
    before: TimePart,
}

/// Counters of one part of the time.
#[derive(Debug, Clone, Default)]
struct TimePart {
    frames: Rates,
    blocks: Rates,
    count: u64,
    whole: u64,
    own: u64,
    /// Since the first frame, ns.
    began: u64,
}

/// Time (ns) and bytes by the logarithm of the rate.
#[derive(Debug, Clone, Default)]
struct Rates {
    /// Rate of the first sum.
    from: i32,
    sums: Vec<(u64, u64)>,
}

impl Course {
    /// Adds a frame of new data, `since_ack` after the last acknowledgement.
    pub(crate) fn add(&mut self, at: Nanos, bytes: u64, since_ack: Option<Nanos>, is_whole: bool) {
        let began = *self.began.get_or_insert(at);
        self.now.count += 1;
        self.now.whole += u64::from(is_whole);
        if let Some((before, its_bytes)) = self.last.replace((at, bytes)) {
            let gap = (at - before).0;
            self.now.frames.note(gap, its_bytes);
            if since_ack.is_none_or(|since| since >= ACK_LETS_GO) {
                self.now.own = self.now.own.saturating_add(gap);
            }
        }
        match &mut self.block {
            Some((first, block)) if self.now.count.is_multiple_of(FRAMES) => {
                self.now.blocks.note((at - *first).0, *block);
                self.block = Some((at, bytes));
            }
            Some((_, block)) => *block = block.saturating_add(bytes),
            None => self.block = Some((at, bytes)),
        }
        if at - began >= Nanos(self.now.ends_at()) {
            self.before = std::mem::take(&mut self.now);
            self.now.began = (at - began).0;
        }
    }

    /// `None` for too few frames.
    pub(crate) fn evenness(&self) -> Option<Evenness> {
        let all = self.before.and(&self.now);
        let (time, bytes) = all.frames.total();
        let is_enough = all.count >= FEWEST && time > 0;
        let mean = is_enough.then(|| rate(time, bytes))?;
        let near = |bin: i32| (bin - mean).abs() <= EVEN;
        let part = |counts: &dyn Fn(i32) -> bool, pick: fn(&(u64, u64)) -> u64| -> u64 {
            let counted = all.frames.iter().filter(|(bin, _)| counts(*bin));
            counted.map(|(_, sums)| pick(&sums)).sum()
        };
        let even = part(&near, |sums| sums.0);
        let fast = part(&|bin| bin > mean + FASTER, |sums| sums.1);
        Some(Evenness {
            low: all.blocks.quantile(0.05).map_or(1.0, |bin| over(bin, mean)),
            high: all.blocks.quantile(0.95).map_or(1.0, |bin| over(bin, mean)),
            even: even as f64 / time as f64,
            own: all.own as f64 / time as f64,
            whole: all.whole as f64 / all.count as f64,
            fast: fast as f64 / bytes.max(1) as f64,
        })
    }
}

impl TimePart {
    /// A part ends at three times the time of its start.
    fn ends_at(&self) -> u64 {
        self.began.saturating_mul(3).max(FIRST_PART_NS)
    }

    fn and(&self, other: &Self) -> Self {
        let mut all = self.clone();
        all.frames.add_all(&other.frames);
        all.blocks.add_all(&other.blocks);
        all.count += other.count;
        all.whole += other.whole;
        all.own = all.own.saturating_add(other.own);
        all
    }
}

impl Rates {
    fn note(&mut self, time: u64, bytes: u64) {
        self.add(rate(time, bytes), (time, bytes));
    }

    fn add_all(&mut self, other: &Self) {
        for (bin, counted) in other.iter() {
            self.add(bin, counted);
        }
    }

    fn add(&mut self, bin: i32, counted: (u64, u64)) {
        if self.sums.is_empty() {
            self.from = bin;
        }
        if bin < self.from {
            let more = (self.from - bin) as usize;
            self.sums.splice(..0, std::iter::repeat_n((0, 0), more));
            self.from = bin;
        }
        let place = (bin - self.from) as usize;
        if place >= self.sums.len() {
            self.sums.resize(place + 1, (0, 0));
        }
        self.sums[place] = plus(self.sums[place], counted);
    }

    fn iter(&self) -> impl Iterator<Item = (i32, (u64, u64))> {
        (self.from..).zip(self.sums.iter().copied())
    }

    fn total(&self) -> (u64, u64) {
        self.sums.iter().copied().fold((0, 0), plus)
    }

    /// The rate below which it was for this share of the time.
    fn quantile(&self, share: f64) -> Option<i32> {
        let most = (self.total().0 as f64 * share) as u64;
        let mut time = 0_u64;
        let found = self.iter().find(|(_, sums)| {
            time = time.saturating_add(sums.0);
            time > most
        });
        found.map(|(bin, _)| bin)
    }
}

/// Bytes over time, in sixteenths of an octave.
fn rate(time: u64, bytes: u64) -> i32 {
    (16.0 * (bytes.max(1) as f64 / time.max(1) as f64).log2()).round() as i32
}

/// Saturates, since times in a damaged file may be anything.
fn plus(one: (u64, u64), other: (u64, u64)) -> (u64, u64) {
    (one.0.saturating_add(other.0), one.1.saturating_add(other.1))
}

fn over(bin: i32, mean: i32) -> f64 {
    (f64::from(bin - mean) / 16.0).exp2()
}

/// Frames per block: less than most connections send in a round trip, more than leaves at once.
const FRAMES: u64 = 16;
const FEWEST: u64 = 20;
/// A fifth to either side of the mean rate; `FASTER` is half as much again.
const EVEN: i32 = 5;
const FASTER: i32 = 9;
/// A frame this soon after an acknowledgement was triggered by it.
const ACK_LETS_GO: Nanos = Nanos(200_000);
/// End of the first part; each later one ends at three times that.
const FIRST_PART_NS: u64 = 30_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn evenness(gaps_us: impl Iterator<Item = u64>) -> Option<Evenness> {
        let (mut course, mut at) = (Course::default(), 0);
        for gap in gaps_us {
            at += gap * 1000;
            course.add(Nanos(at), 1448, None, true);
        }
        course.evenness()
    }

    #[test]
    fn a_clock_is_even_and_bursts_are_not() {
        let paced = evenness((0..400).map(|_| 1000)).unwrap();
        assert!(paced.low > 0.95 && paced.high < 1.05, "{paced:?}");
        assert!(paced.even > 0.99 && paced.fast < 0.01, "{paced:?}");
        // 40 frames in a burst, and then nothing.
        let bursts = evenness((0..400).map(|n| if n % 40 == 0 { 40_000 } else { 10 })).unwrap();
        assert!(bursts.low < 0.8 || bursts.high > 1.2, "{bursts:?}");
        assert!(bursts.even < 0.1 && bursts.fast > 0.9, "{bursts:?}");
        assert_eq!(evenness((0..15).map(|_| 1000)), None);
    }

    #[test]
    fn pairs_of_a_paced_sender_come_at_the_links_rate() {
        let pairs = evenness((0..400).map(|n| if n % 2 == 0 { 3800 } else { 200 })).unwrap();
        assert!(pairs.low > 0.95 && pairs.high < 1.05, "{pairs:?}");
        assert!(pairs.even < 0.1 && pairs.fast > 0.4, "{pairs:?}");
    }

    #[test]
    fn what_slow_start_did_is_left_out() {
        let doubling = (0..6).flat_map(|round| vec![100_000 >> round; 10 << round]);
        let later = evenness(doubling.chain((0..30_000).map(|_| 2000))).unwrap();
        assert!(later.even > 0.9, "{later:?}");
    }
}
