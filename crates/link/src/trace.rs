//! Reads recorded rates from files: mahimahi's traces, and lines of seconds and rates.

use thiserror::Error;

use super::quantity::parse_rate;
use super::rate::{MAX_RATE_BPS, RateTrace};
use linerate_units::Nanos;

/// An error in a recorded rate, and where it is.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("line {line}: {problem}")]
pub struct TraceError {
    /// The faulty line, counted from 1; the last one if the whole text is at fault.
    pub line: usize,
    /// Problem of the line.
    pub problem: TraceProblem,
}

/// Problem in the text of a recorded rate.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum TraceProblem {
    /// There are only blank lines and comments.
    #[error(
        "there is no trace; write lines such as `0 10mbit`, or one millisecond for each packet of \
         1500 bytes"
    )]
    Empty,
    /// More than 1,000,000 lines.
    #[error("a trace has 1,000,000 lines at most")]
    TooLong,
    /// A line does not have as many columns as the first one.
    #[error("`{text}` is not like the first line, which has {columns}")]
    Columns {
        /// The line.
        text: String,
        /// Columns of the first line.
        columns: &'static str,
    },
    /// Not a time.
    #[error("`{text}` is no time; write {hint}")]
    Time {
        /// The text found.
        text: String,
        /// How to write times.
        hint: &'static str,
    },
    /// More than an hour.
    #[error("`{0}` is more than an hour")]
    Late(String),
    /// The times do not ascend.
    #[error("`{0}` is before the line above it, or no later")]
    Unordered(String),
    /// The first time is not zero.
    #[error("the first line is for 0 seconds, not `{0}`")]
    NoStart(String),
    /// Not a rate, or one above 1 Tbit/s.
    #[error("`{0}` is no rate; write 0 to 1tbit, such as 10mbit")]
    Rate(String),
    /// More packets in a millisecond than fit in 1 Tbit/s.
    #[error("more packets in this millisecond than at 1 Tbit/s")]
    Crowded,
    /// The text does not say how long the last rate lasts.
    #[error("the last line says when the trace begins anew, such as `10 end`")]
    NoEnd,
    /// A line follows the end.
    #[error("the trace has ended before")]
    BehindEnd,
    /// Nothing ever passes.
    #[error("nothing passes in all of the trace")]
    Nothing,
}

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
    pub fn parse(text: &str) -> Result<Self, TraceError> {
        let mut lines = Vec::new();
        let mut last = 1;
        for (index, line) in text.lines().enumerate() {
            last = index + 1;
            if last > MAX_LINES {
                return Err(error(last, TraceProblem::TooLong));
            }
            let text = line.split('#').next().unwrap_or("").trim();
            if !text.is_empty() {
                lines.push(Line { number: last, text });
            }
        }
        let first = lines.first().ok_or(error(last, TraceProblem::Empty))?;
        let (steps, period) = if first.text.contains(char::is_whitespace) {
            steps_of_rates(&lines)?
        } else {
            steps_of_packets(&lines)?
        };
        if steps.iter().all(|(_, rate)| *rate == 0) {
            return Err(error(last, TraceProblem::Nothing));
        }
        Self::new(&steps, period).map_err(|_| error(last, TraceProblem::Empty))
    }
}

/// A line with content.
#[derive(Clone, Copy)]
struct Line<'a> {
    number: usize,
    text: &'a str,
}

impl Line<'_> {
    /// Passes the text to `kind`, shortened to fit a message.
    fn error(&self, kind: impl FnOnce(String) -> TraceProblem) -> TraceError {
        error(self.number, kind(self.text.chars().take(40).collect()))
    }
}

type Steps = (Vec<(Nanos, u64)>, Nanos);

/// Lines of `seconds rate` and at the end `seconds end`.
fn steps_of_rates(lines: &[Line]) -> Result<Steps, TraceError> {
    let mut steps: Vec<(Nanos, u64)> = Vec::with_capacity(lines.len());
    let mut end = None;
    for line in lines {
        if end.is_some() {
            return Err(line.error(|_| TraceProblem::BehindEnd));
        }
        let Some((time, rate)) = line.text.split_once(char::is_whitespace) else {
            return Err(
                line.error(|text| TraceProblem::Columns { text, columns: "seconds and a rate" })
            );
        };
        let at = seconds(line, time)?;
        match steps.last() {
            None if at > Nanos::ZERO => {
                return Err(line.error(TraceProblem::NoStart));
            }
            Some((before, _)) if at <= *before => {
                return Err(line.error(TraceProblem::Unordered));
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
        Some((_, line)) if steps.is_empty() => Err(line.error(|_| TraceProblem::Nothing)),
        Some((at, _)) => Ok((steps, at)),
        None => Err(error(last, TraceProblem::NoEnd)),
    }
}

fn seconds(line: &Line, time: &str) -> Result<Nanos, TraceError> {
    let is_number = time.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    let Some(seconds) = time.parse::<f64>().ok().filter(|_| is_number) else {
        return Err(line.error(|_| TraceProblem::Time {
            text: time.chars().take(40).collect(),
            hint: "seconds, such as 1.5",
        }));
    };
    if seconds > LONGEST_MS as f64 / 1e3 {
        return Err(line.error(TraceProblem::Late));
    }
    Ok(Nanos((seconds * 1e9).round() as u64))
}

fn bits_per_second(line: &Line, rate: &str) -> Result<u64, TraceError> {
    let rate = parse_rate(rate).filter(|bps| *bps <= MAX_RATE_BPS);
    rate.ok_or_else(|| line.error(TraceProblem::Rate))
}

/// Each line is a millisecond in which a packet may pass.
fn steps_of_packets(lines: &[Line]) -> Result<Steps, TraceError> {
    let mut steps: Vec<(Nanos, u64)> = Vec::new();
    // End of the current millisecond, and its packets.
    let (mut end, mut packets) = (1, 0);
    for line in lines {
        // Packets of 0 ms would otherwise belong to the last millisecond of the previous period.
        let at = milliseconds(line)?.max(1);
        if at < end {
            return Err(line.error(TraceProblem::Unordered));
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
            return Err(line.error(|_| TraceProblem::Crowded));
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

fn milliseconds(line: &Line) -> Result<u64, TraceError> {
    if line.text.contains(char::is_whitespace) {
        return Err(
            line.error(|text| TraceProblem::Columns { text, columns: "milliseconds alone" })
        );
    }
    let is_number = line.text.bytes().all(|b| b.is_ascii_digit());
    match line.text.parse::<u64>() {
        Ok(ms) if is_number && ms <= LONGEST_MS => Ok(ms),
        Ok(_) if is_number => Err(line.error(TraceProblem::Late)),
        _ => {
            Err(line
                .error(|text| TraceProblem::Time { text, hint: "whole milliseconds, such as 17" }))
        }
    }
}

fn error(line: usize, problem: TraceProblem) -> TraceError {
    TraceError { line, problem }
}

const MAX_LINES: usize = 1_000_000;
/// An hour.
const LONGEST_MS: u64 = 3_600_000;
/// The rate of one packet of 1500 bytes per millisecond, bits/s.
const PACKET_BITS_PER_MS: u64 = 12_000_000;
