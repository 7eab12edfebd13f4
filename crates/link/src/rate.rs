//! Link rates: a rate that may vary, recorded rates from files, and the token bucket that uses
//! either.
//!
//! Work is counted in bit·ns/s: one nanosecond at `rate` bits/s supplies exactly `rate` units, and
//! a bit costs 10⁹. Only times are rounded, so the rate is exact over any number of packets.

use linerate_units::{FileError, Nanos};

use super::quantity::parse_rate;

/// A recorded rate: piecewise constant, starting at the caller's epoch and repeating forever.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RateTrace {
    steps: Vec<RateStep>,
    period_ns: u64,
    units_per_period: u128,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct RateStep {
    start_ns: u64,
    rate_bps: u64,
    /// Units supplied in the period before this step.
    units_before: u128,
}

impl RateTrace {
    /// `steps` are (begin, bits/s), the first at zero; the trace repeats after `period`. A rate of
    /// 0 is an outage. `None` if there is no first step at zero, the steps do not ascend, the
    /// period is too short, or a rate is above 1 Tbit/s or all are 0.
    pub fn new(steps: &[(Nanos, u64)], period: Nanos) -> Option<Self> {
        let begins = steps.iter().map(|(begin, _)| *begin).chain([period]);
        let is_valid = steps.first().is_some_and(|(begin, _)| *begin == Nanos::ZERO)
            && begins.is_sorted_by(|begin, next| begin < next)
            && steps.iter().all(|(_, rate)| *rate <= MAX_RATE_BPS)
            && steps.iter().any(|(_, rate)| *rate > 0);
        is_valid.then(|| Self::from_valid(steps, period))
    }

    /// A constant rate; zero counts as 1 bit/s.
    pub(super) fn constant(rate_bps: u64) -> Self {
        let rate_bps = rate_bps.clamp(1, MAX_RATE_BPS);
        Self::from_valid(&[(Nanos::ZERO, rate_bps)], Nanos(NS_PER_S))
    }

    fn from_valid(steps: &[(Nanos, u64)], period: Nanos) -> Self {
        let ends = steps[1..].iter().map(|(begin, _)| *begin).chain([period]);
        let mut units = 0;
        let step = |(&(begin, rate_bps), end): (&(Nanos, u64), Nanos)| {
            let units_before = units;
            units += u128::from(rate_bps) * u128::from((end - begin).0);
            RateStep { start_ns: begin.0, rate_bps, units_before }
        };
        Self {
            steps: steps.iter().zip(ends).map(step).collect(),
            period_ns: period.0,
            units_per_period: units,
        }
    }

    /// Units supplied from the epoch to `at`.
    fn supplied(&self, at: Nanos) -> u128 {
        let (periods, offset) = (at.0 / self.period_ns, at.0 % self.period_ns);
        let next = self.steps.partition_point(|step| step.start_ns <= offset);
        let step = &self.steps[next - 1];
        u128::from(periods) * self.units_per_period
            + step.units_before
            + u128::from(step.rate_bps) * u128::from(offset - step.start_ns)
    }

    /// The first time at which `units` have been supplied.
    fn time_of(&self, units: u128) -> Nanos {
        let Some(before) = units.checked_sub(1) else {
            return Nanos::ZERO;
        };
        // Counted from one unit before, so that the end of a period is found before an outage at
        // its end.
        let periods = before / self.units_per_period;
        let wanted = before % self.units_per_period + 1;
        let is_before = |step: &RateStep| step.units_before < wanted;
        let next = self.steps.partition_point(is_before);
        // The last step that begins below `wanted` supplies some of it, so its rate is not zero.
        let step = &self.steps[next - 1];
        let into_step = (wanted - step.units_before).div_ceil(u128::from(step.rate_bps));
        let time = periods * u128::from(self.period_ns) + u128::from(step.start_ns) + into_step;
        Nanos(u64::try_from(time).unwrap_or(u64::MAX))
    }

    /// Reads a recorded rate in either of two formats. Blank lines and text after `#` are ignored.
    ///
    /// | a line | what it says |
    /// |---|---|
    /// | `17` | mahimahi: a packet of 1500 bytes may pass in the millisecond that ends at 17 ms |
    /// | `1.5 2mbit` | from 1.5 s on the rate is 2 Mbit/s; 0 is an outage |
    ///
    /// A mahimahi trace repeats after its last millisecond. Its packets are spread evenly over
    /// their millisecond; those of 0 ms pass in the first one. The other format begins at 0 and
    /// ends with a line such as `10 end`: after 10 s it repeats.
    ///
    /// # Errors
    /// If a line cannot be read, the times do not ascend (mahimahi's may repeat), a rate is above 1
    /// Tbit/s, nothing ever passes, there are more than 1,000,000 lines, or they take more than an
    /// hour.
    pub fn parse(text: &str) -> Result<Self, FileError> {
        let mut lines = Vec::new();
        let mut last = 1;
        for (index, line) in text.lines().enumerate() {
            last = index + 1;
            if last > MAX_LINES {
                return Err(FileError::of_line(last, "a trace has 1,000,000 lines at most"));
            }
            let text = line.split('#').next().unwrap_or("").trim();
            if !text.is_empty() {
                lines.push(Line { number: last, text });
            }
        }
        let first = lines.first().ok_or_else(|| FileError::of_line(last, EMPTY))?;
        let (steps, period) = if first.text.contains(char::is_whitespace) {
            steps_of_rates(&lines)?
        } else {
            steps_of_packets(&lines)?
        };
        if steps.iter().all(|(_, rate)| *rate == 0) {
            return Err(FileError::of_line(last, NOTHING));
        }
        Self::new(&steps, period).ok_or_else(|| FileError::of_line(last, EMPTY))
    }
}

/// A token bucket. `mark` is the supply at which everything sent is paid for, so the bucket holds
/// `depth − (mark − supplied)`: the virtual scheduling form of the algorithm (ITU-T I.371, GCRA).
#[derive(Debug, Clone)]
pub(super) struct TokenBucket {
    trace: RateTrace,
    depth: u128,
    mark: u128,
    /// When all shaped data has been sent, rounded up.
    free: Nanos,
}

impl TokenBucket {
    /// A full bucket of `burst_bytes`.
    pub(super) fn new(trace: RateTrace, burst_bytes: u64) -> Self {
        Self { trace, depth: units(burst_bytes), mark: 0, free: Nanos::ZERO }
    }

    /// Polices: removes `bytes` and returns true if the bucket holds them at `now`; otherwise
    /// removes nothing.
    pub(super) fn take(&mut self, now: Nanos, bytes: u32) -> bool {
        let supplied = self.trace.supplied(now);
        let mark = self.mark.max(supplied) + units(bytes.into());
        let conforms = mark - supplied <= self.depth;
        if conforms {
            self.mark = mark;
        }
        conforms
    }

    /// Shapes: sends `bytes` from `start` on, which is not before [`Self::free`], and returns when
    /// they have been sent.
    ///
    /// Without depth this is a line that serialises at the rate; with depth, what the bucket holds
    /// is sent at once.
    pub(super) fn send(&mut self, start: Nanos, bytes: u32) -> Nanos {
        // For back-to-back packets the mark stays, as otherwise rounding each packet's end would
        // slow the line.
        if start > self.free {
            self.mark = self.mark.max(self.trace.supplied(start));
        }
        self.mark += units(bytes.into());
        let finish = self.trace.time_of(self.mark.saturating_sub(self.depth));
        self.free = finish.max(start);
        self.free
    }

    /// When the next packet may start.
    pub(super) fn free(&self) -> Nanos {
        self.free
    }
}

fn units(bytes: u64) -> u128 {
    u128::from(bytes) * 8 * u128::from(NS_PER_S)
}

/// 1 Tbit/s, at which 584 years of supply fit in 128 bits.
pub(super) const MAX_RATE_BPS: u64 = 1_000_000_000_000;
const NS_PER_S: u64 = 1_000_000_000;

// Files of recorded rates: mahimahi's traces, and lines of seconds and rates.

/// A line with content.
#[derive(Clone, Copy)]
struct Line<'a> {
    number: usize,
    text: &'a str,
}

impl Line<'_> {
    fn error(&self, problem: impl Into<String>) -> FileError {
        FileError::of_line(self.number, problem)
    }

    /// An error with the line's text, shortened to fit a message.
    fn quoted(&self, problem: &str) -> FileError {
        self.error(format!("`{}` {problem}", short(self.text)))
    }

    fn unordered(&self) -> FileError {
        self.quoted("is before the line above it, or no later")
    }

    fn late(&self) -> FileError {
        self.quoted("is more than an hour")
    }
}

fn short(text: &str) -> String {
    text.chars().take(40).collect()
}

type Steps = (Vec<(Nanos, u64)>, Nanos);

/// Lines of `seconds rate` and at the end `seconds end`.
fn steps_of_rates(lines: &[Line]) -> Result<Steps, FileError> {
    let mut steps: Vec<(Nanos, u64)> = Vec::with_capacity(lines.len());
    let mut end = None;
    for line in lines {
        if end.is_some() {
            return Err(line.error("the trace has ended before"));
        }
        let Some((time, rate)) = line.text.split_once(char::is_whitespace) else {
            return Err(line.quoted("is not like the first line, which has seconds and a rate"));
        };
        let at = seconds(line, time)?;
        match steps.last() {
            None if at > Nanos::ZERO => {
                let problem =
                    format!("the first line is for 0 seconds, not `{}`", short(line.text));
                return Err(line.error(problem));
            }
            Some((before, _)) if at <= *before => {
                return Err(line.unordered());
            }
            _ => {}
        }
        match rate.trim_start() {
            "end" => end = Some((at, line)),
            rate => steps.push((at, bits_per_second(line, rate)?)),
        }
    }
    let last = lines.last().map_or(1, |line| line.number);
    match end {
        Some((_, line)) if steps.is_empty() => Err(line.error(NOTHING)),
        Some((at, _)) => Ok((steps, at)),
        None => Err(FileError::of_line(
            last,
            "the last line says when the trace begins anew, such as `10 end`",
        )),
    }
}

fn seconds(line: &Line, time: &str) -> Result<Nanos, FileError> {
    let is_number = time.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    let Some(seconds) = time.parse::<f64>().ok().filter(|_| is_number) else {
        let time = short(time);
        return Err(line.error(format!("`{time}` is not a time; write seconds, such as 1.5")));
    };
    if seconds > LONGEST_MS as f64 / 1e3 {
        return Err(line.late());
    }
    Ok(Nanos((seconds * 1e9).round() as u64))
}

fn bits_per_second(line: &Line, rate: &str) -> Result<u64, FileError> {
    let rate = parse_rate(rate).filter(|bps| *bps <= MAX_RATE_BPS);
    rate.ok_or_else(|| line.quoted("is not a rate; write 0 to 1tbit, such as 10mbit"))
}

/// Each line is a millisecond in which a packet may pass.
fn steps_of_packets(lines: &[Line]) -> Result<Steps, FileError> {
    let mut steps: Vec<(Nanos, u64)> = Vec::new();
    // End of the current millisecond, and its packets.
    let (mut end, mut packets) = (1, 0);
    for line in lines {
        // Packets of 0 ms would otherwise belong to the last millisecond of the previous period.
        let at = milliseconds(line)?.max(1);
        if at < end {
            return Err(line.unordered());
        }
        if at > end {
            push(&mut steps, end, packets);
            if at > end + 1 {
                push(&mut steps, end + 1, 0);
            }
            (end, packets) = (at, 0);
        }
        packets += 1;
        if packets * PACKET_BITS_PER_MS > MAX_RATE_BPS {
            return Err(line.error("more packets in this millisecond than at 1 Tbit/s"));
        }
    }
    push(&mut steps, end, packets);
    Ok((steps, Nanos::from_millis(end)))
}

/// Sets the rate from one millisecond before `end` on to `packets` per millisecond.
fn push(steps: &mut Vec<(Nanos, u64)>, end: u64, packets: u64) {
    let rate = packets * PACKET_BITS_PER_MS;
    if steps.last().is_none_or(|(_, before)| *before != rate) {
        steps.push((Nanos::from_millis(end - 1), rate));
    }
}

fn milliseconds(line: &Line) -> Result<u64, FileError> {
    if line.text.contains(char::is_whitespace) {
        return Err(line.quoted("is not like the first line, which has milliseconds alone"));
    }
    let is_number = line.text.bytes().all(|b| b.is_ascii_digit());
    match line.text.parse::<u64>() {
        Ok(ms) if is_number && ms <= LONGEST_MS => Ok(ms),
        Ok(_) if is_number => Err(line.late()),
        _ => Err(line.quoted("is not a time; write whole milliseconds, such as 17")),
    }
}

const EMPTY: &str = "there is no trace; write lines such as `0 10mbit`, or one millisecond for each \
    packet of 1500 bytes";
const NOTHING: &str = "nothing passes in all of the trace";

const MAX_LINES: usize = 1_000_000;
/// An hour.
const LONGEST_MS: u64 = 3_600_000;
/// The rate of one packet of 1500 bytes per millisecond, bits/s.
const PACKET_BITS_PER_MS: u64 = 12_000_000;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn trace() -> impl Strategy<Value = RateTrace> {
        let step = (1u64..1_000_000, 0u64..10_000_000_000);
        (prop::collection::vec(step, 1..8), 1u64..1_000_000_000).prop_map(|(steps, last_rate)| {
            let mut at = Nanos::ZERO;
            let mut list = Vec::new();
            for (length, rate) in steps {
                list.push((at, rate));
                at = at + Nanos(length);
            }
            list.push((at, last_rate));
            RateTrace::new(&list, at + Nanos(1000)).expect("it is valid by construction")
        })
    }

    proptest! {
        #[test]
        fn time_of_is_the_first_time_with_the_supply(
            trace in trace(), units in 1u128..1_000_000_000_000_000_000,
        ) {
            let at = trace.time_of(units);
            prop_assert!(trace.supplied(at) >= units);
            prop_assert!(trace.supplied(at - Nanos(1)) < units);
        }

        #[test]
        fn supply_is_additive_over_periods(
            trace in trace(), at in 0u64..1_000_000_000, periods in 0u64..1000,
        ) {
            let later = Nanos(at + periods * trace.period_ns);
            prop_assert_eq!(
                trace.supplied(later),
                trace.supplied(Nanos(at)) + u128::from(periods) * trace.units_per_period
            );
        }
    }

    #[test]
    fn a_line_serialises_without_rounding_errors() {
        // 51.2 ns each at 10 Gbit/s: whole nanoseconds would be 1.6 % slow.
        let mut line = TokenBucket::new(RateTrace::constant(10_000_000_000), 0);
        let mut free = Nanos::ZERO;
        for _ in 0..10_000 {
            free = line.send(free, 64);
        }
        assert_eq!(free, Nanos(512_000));
    }

    #[test]
    fn an_outage_of_a_trace_delays_what_is_sent_into_it() {
        let steps = [(Nanos::ZERO, 8_000_000), (Nanos::from_millis(1), 0)];
        let trace = RateTrace::new(&steps, Nanos::from_millis(10)).unwrap();
        let mut line = TokenBucket::new(trace, 0);
        assert_eq!(line.send(Nanos::ZERO, 1000), Nanos::from_millis(1));
        assert_eq!(line.send(Nanos::from_millis(1), 500), Nanos::from_micros(10_500));
    }

    #[test]
    fn steps_that_are_no_trace_are_refused() {
        let second = Nanos::from_millis(1000);
        let starts_late = [(Nanos(1), 5)];
        let stands = [(Nanos(0), 5), (Nanos(0), 6)];
        let outlasts_its_period = [(Nanos(0), 5), (second, 6)];
        let passes_nothing = [(Nanos(0), 0)];
        let too_fast = [(Nanos(0), MAX_RATE_BPS + 1)];
        for steps in
            [&[][..], &starts_late, &stands, &outlasts_its_period, &passes_nothing, &too_fast]
        {
            assert_eq!(RateTrace::new(steps, second), None, "{steps:?}");
        }
    }
}
