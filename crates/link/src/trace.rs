//! Reads recorded rates from files: mahimahi's traces, and lines of seconds and rates.

use super::quantity::parse_rate;
use super::rate::{MAX_RATE_BPS, RateTrace};
use linerate_units::{FileError, Nanos};

impl RateTrace {
    /// Reads a recorded rate in either of two formats. Blank lines and text after `#` are ignored.
    ///
    /// | a line | what it says |
    /// |---|---|
    /// | `17` | a packet of 1500 bytes may pass in the millisecond that ends 17 ms after the start (mahimahi) |
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
        return Err(line.error(format!("`{time}` is no time; write seconds, such as 1.5")));
    };
    if seconds > LONGEST_MS as f64 / 1e3 {
        return Err(line.late());
    }
    Ok(Nanos((seconds * 1e9).round() as u64))
}

fn bits_per_second(line: &Line, rate: &str) -> Result<u64, FileError> {
    let rate = parse_rate(rate).filter(|bps| *bps <= MAX_RATE_BPS);
    rate.ok_or_else(|| line.quoted("is no rate; write 0 to 1tbit, such as 10mbit"))
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
        _ => Err(line.quoted("is no time; write whole milliseconds, such as 17")),
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
