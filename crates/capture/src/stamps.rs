//! How long data waited between being stamped by its sender and passing the capture: in the queue
//! of the sender's own host or of a link on the way.

use linerate_units::Nanos;

use crate::segment::Segment;

/// What a sender's timestamps tell (RFC 7323). Their clock ticks as its system likes, which the
/// whole connection tells; until then each of the usual ticks is tried.
#[derive(Debug, Default)]
pub(crate) struct Stamps {
    first: Option<(u32, Nanos)>,
    before: u32,
    passed_ns: i64,
    ticks: i64,
    /// Smallest lead of the capture's clock over the stamps, by tick, ns.
    least: [i64; TICKS_NS.len()],
    /// Bits of the ticks that were found wrong.
    wrong: u16,
    /// Ticks between two stamps at least: a clock may tick several at once.
    granule: Option<u32>,
    step: Lead,
}

/// Times that passed at the capture, and ticks of the sender meanwhile, since its first stamp.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Lead {
    passed_ns: f64,
    ticks: f64,
    count: u64,
}

impl Lead {
    pub(crate) fn add(&mut self, other: Self) {
        self.passed_ns += other.passed_ns;
        self.ticks += other.ticks;
        self.count += other.count;
    }
}

impl Stamps {
    pub(crate) fn handle_data(&mut self, segment: &Segment<'_>) {
        let Some((value, _)) = segment.options.timestamps else {
            return;
        };
        let (first, began) = *self.first.get_or_insert_with(|| {
            self.before = value;
            (value, segment.at)
        });
        let step = value.wrapping_sub(std::mem::replace(&mut self.before, value)) as i32;
        if step > 0 {
            let step = step.unsigned_abs();
            self.granule = Some(self.granule.map_or(step, |least| least.min(step)));
        }
        self.passed_ns = (segment.at - began).0.min(MAX_PASSED_NS) as i64;
        self.ticks = i64::from(value.wrapping_sub(first) as i32);
        self.step.add(Lead {
            passed_ns: self.passed_ns as f64,
            ticks: self.ticks as f64,
            count: 1,
        });
        for (number, tick) in TICKS_NS.iter().enumerate() {
            if self.wrong & 1 << number != 0 {
                continue;
            }
            let ahead = self.passed_ns - self.ticks.saturating_mul(*tick);
            self.least[number] = self.least[number].min(ahead);
            if ahead.saturating_abs() > self.passed_ns / 4 + FURTHEST_NS {
                self.wrong |= 1 << number;
            }
        }
    }

    pub(crate) fn take_step(&mut self) -> Lead {
        std::mem::take(&mut self.step)
    }

    /// The place of the tick that fits the whole connection best, and far better than any other.
    fn tick(&self) -> Option<usize> {
        let off = |tick: i64| (self.passed_ns - self.ticks.saturating_mul(tick)).saturating_abs();
        let mut ordered: Vec<(i64, usize)> =
            TICKS_NS.iter().enumerate().map(|(number, tick)| (off(*tick), number)).collect();
        ordered.sort_unstable();
        let [(best, number), (next, _)] = [*ordered.first()?, *ordered.get(1)?];
        let allowed = self.granule_ns(number) + self.passed_ns / 50 + LONGEST_QUEUE_NS;
        let is_known = self.ticks >= FEWEST_TICKS && best <= allowed && best <= next / 4;
        (is_known && self.wrong & 1 << number == 0).then_some(number)
    }

    fn granule_ns(&self, number: usize) -> i64 {
        i64::from(self.granule.unwrap_or(1)).saturating_mul(TICKS_NS[number])
    }

    /// Mean wait of a step's data; `None` while the tick is not known. What is shorter than the
    /// sender's clock ticks is rounding.
    pub(crate) fn wait(&self, step: &Lead) -> Option<Nanos> {
        let number = self.tick().filter(|_| step.count > 0)?;
        let count = step.count as f64;
        let passed = step.passed_ns / count;
        let lead = passed - step.ticks / count * TICKS_NS[number] as f64;
        let granule = self.granule_ns(number) as f64;
        let above = lead - self.least[number] as f64 - passed / CLOCKS_APART;
        Some(Nanos(if above > granule { above - granule / 2.0 } else { 0.0 } as u64))
    }
}

/// Ticks of the clocks of TCP's timestamps: FreeBSD, Linux and Windows 1 ms; older Linux 4 or 10 ms;
/// Solaris 10 ms; OpenBSD and NetBSD 500 ms; Linux with `tcp_usec_ts` 1 µs (RFC 7323, 5.4: 1 ms to
/// 1 s is recommended).
const TICKS_NS: [i64; 8] =
    [1_000, 100_000, 1_000_000, 4_000_000, 10_000_000, 100_000_000, 500_000_000, 1_000_000_000];
/// Ticks from which on a rate is known to a tenth.
const FEWEST_TICKS: i64 = 10;
/// Longest queue that is believed.
const FURTHEST_NS: i64 = 2_000_000_000;
/// Longest change of the queue from the first stamp to the last with which the tick is known.
const LONGEST_QUEUE_NS: i64 = 500_000_000;
/// Clocks drift apart by less than 200 ppm.
const CLOCKS_APART: f64 = 5000.0;
/// Stamps wrap after 24 days.
const MAX_PASSED_NS: u64 = 1_000_000_000_000_000;
