//! What the user asks for: frame sizes, directions, and what a rate has to keep.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;
use thiserror::Error;

use super::search::{Goal, NextTrial};
use crate::ceilings::formulas::{UDP_HEADER_BYTES, ip_header_bytes};
use crate::plan::{Direction, Draft, PlanError, Protocol, Test};
use crate::units::{BitRate, ByteCount, Family, Span};

/// Ethernet's shortest frame with its check sequence, bytes.
pub const MIN_FRAME: u64 = 64;
/// The frame of the longest UDP datagram, bytes, as loopback carries it.
pub const MAX_FRAME: u64 = 65_553;
/// Most sizes of a test.
pub const MAX_SIZES: usize = 32;
/// RFC 2544, 9.1: the frame sizes of Ethernet, bytes.
pub const DEFAULT_FRAMES: [u64; 7] = [64, 128, 256, 512, 1024, 1280, 1518];

/// Ethernet's header and check sequence, which a frame has beside its IP packet, bytes.
pub const ETHERNET_FRAMING: u64 = 14 + 4;

/// A frame size that is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameSize {
    /// Bytes from the destination address to the check sequence.
    Bytes(u64),
    /// The largest that the interface's MTU allows.
    Mtu,
}

impl FromStr for FrameSize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "mtu" {
            return Ok(Self::Mtu);
        }
        let bytes = text.parse().ok().filter(|bytes| (MIN_FRAME..=MAX_FRAME).contains(bytes));
        bytes
            .map(Self::Bytes)
            .ok_or_else(|| format!("it must be {MIN_FRAME} to {MAX_FRAME} bytes, or mtu"))
    }
}

impl fmt::Display for FrameSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(bytes) => bytes.fmt(f),
            Self::Mtu => f.write_str("mtu"),
        }
    }
}

/// What a frame has beside its datagram's payload, bytes.
pub fn framing_bytes(family: Family) -> u64 {
    ETHERNET_FRAMING + (ip_header_bytes(family) + UDP_HEADER_BYTES) as u64
}

/// The subject of one row of a search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sought {
    /// The direction of the payload.
    pub direction: Direction,
    /// Length of each frame, bytes.
    pub frame_bytes: u64,
    /// Address family.
    pub family: Family,
}

impl Sought {
    /// Payload of each datagram, bytes.
    pub fn datagram_bytes(self) -> u64 {
        self.frame_bytes.saturating_sub(framing_bytes(self.family))
    }
}

/// A whole run of `throughput`.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ThroughputTest {
    /// Frame sizes, from the destination address to the check sequence, bytes.
    pub frame_bytes: Vec<u64>,
    /// Directions; `both` is one after the other.
    pub direction: Direction,
    /// What a rate has to keep.
    pub goal: Goal,
    /// The highest rate that is tried, frames in bits per second; absent: as fast as the sender
    /// can.
    pub most_bps: Option<BitRate>,
    /// Most bytes of frames that all trials send together; absent: no limit.
    pub most_bytes: Option<ByteCount>,
    /// Whether the longest burst is searched, too.
    #[serde(default)]
    pub bursts: bool,
    /// Seed of every random choice.
    pub seed: u64,
}

/// A test that cannot be done; the message names the option, its value and its range.
#[derive(Debug, Clone, PartialEq, Error)]
#[error("{option} {value}: {why}")]
pub struct ThroughputError {
    option: &'static str,
    value: String,
    why: String,
}

impl ThroughputTest {
    /// Whether it can be done over this family, by an interface whose largest frame is `largest`.
    ///
    /// # Errors
    /// The first figure that is out of its range.
    pub fn check(&self, family: Family, largest: Option<u64>) -> Result<(), ThroughputError> {
        let refuse =
            |option, value: String, why: String| Err(ThroughputError { option, value, why });
        let sizes = &self.frame_bytes;
        if !(1..=MAX_SIZES).contains(&sizes.len()) {
            let why = format!("it must be 1 to {MAX_SIZES} sizes");
            return refuse("--frames", sizes.len().to_string(), why);
        }
        let least = least_frame(family);
        for (at, size) in sizes.iter().enumerate() {
            let why = if sizes[..at].contains(size) {
                "it is given twice".to_owned()
            } else if *size < least {
                format!("over {family} a frame with linerate's header has {least} bytes at least")
            } else if *size > largest.unwrap_or(MAX_FRAME) {
                let largest = largest.unwrap_or(MAX_FRAME);
                format!("the interface's MTU allows frames of {largest} bytes at most")
            } else {
                continue;
            };
            return refuse("--frames", size.to_string(), why);
        }
        let Goal { loss_percent, width_percent, trial, trials } = self.goal;
        if !(0.0..=MAX_LOSS).contains(&loss_percent) {
            return refuse("--loss", format!("{loss_percent}%"), "it must be 0 to 50 %".into());
        }
        if !WIDTHS.contains(&width_percent) {
            return refuse("--width", format!("{width_percent}%"), "it must be 0.1 to 20 %".into());
        }
        if !(SHORTEST_TRIAL..=LONGEST_TRIAL).contains(&trial.0) {
            return refuse("--trial", trial.to_string(), "it must be 200ms to 10min".into());
        }
        if !(1..=MAX_REPEATS).contains(&trials) || trials.is_multiple_of(2) {
            return refuse("--trials", trials.to_string(), "it must be odd, 1 to 15".into());
        }
        Ok(())
    }

    /// Of RFC 2544's sizes those that can be sent: the rest is not asked for by anybody.
    pub fn usual_frames(family: Family, largest: Option<u64>) -> Vec<u64> {
        let range = least_frame(family)..=largest.unwrap_or(MAX_FRAME);
        DEFAULT_FRAMES.into_iter().filter(|size| range.contains(size)).collect()
    }

    /// The rates among which a size is searched, frames per second: at least so many that a trial
    /// sends some, at most what was asked for.
    pub fn range(&self, frame_bytes: u64) -> [f64; 2] {
        let least = FEWEST_FRAMES / self.goal.trial.as_secs_f64();
        let bits = frame_bytes as f64 * 8.0;
        [least, self.most_bps.map_or(FASTEST, |most| most.as_f64() / bits)]
    }

    /// A trial.
    ///
    /// # Errors
    /// The size cannot be sent; [`ThroughputTest::check`] refuses it before.
    pub fn trial(&self, sought: Sought, next: NextTrial) -> Result<Test, PlanError> {
        let bits = 8.0 * sought.datagram_bytes() as f64;
        datagrams(sought)
            .rate(BitRate((next.per_s * bits).round().max(1.0) as u64))
            .warm_up(Span(Duration::ZERO))
            .time(Span(Duration::from_secs_f64(next.seconds)))
            .resolve(self.seed)
    }

    /// A burst of so many frames.
    ///
    /// # Errors
    /// As [`ThroughputTest::trial`].
    pub fn burst(&self, sought: Sought, frames: u64) -> Result<Test, PlanError> {
        datagrams(sought).count(frames).resolve(self.seed)
    }
}

fn datagrams(sought: Sought) -> Draft {
    let draft = Test::stream().protocol(Protocol::Udp).direction(sought.direction);
    draft.size(sought.datagram_bytes())
}

fn least_frame(family: Family) -> u64 {
    (framing_bytes(family) + crate::wire::DATAGRAM_HEADER as u64).max(MIN_FRAME)
}

/// Frames of the slowest trial.
const FEWEST_FRAMES: f64 = 100.0;
/// A rate that no generator reaches, frames per second.
const FASTEST: f64 = 1e8;
const MAX_LOSS: f64 = 50.0;
const WIDTHS: std::ops::RangeInclusive<f64> = 0.1..=20.0;
const SHORTEST_TRIAL: Duration = Duration::from_millis(200);
const LONGEST_TRIAL: Duration = Duration::from_secs(600);
const MAX_REPEATS: u32 = 15;

#[cfg(test)]
mod tests {
    use super::super::search::GOAL;
    use super::*;
    use crate::plan::Traffic;

    fn test(frame_bytes: &[u64]) -> ThroughputTest {
        ThroughputTest {
            frame_bytes: frame_bytes.to_vec(),
            direction: Direction::Up,
            goal: GOAL,
            most_bps: None,
            most_bytes: None,
            bursts: false,
            seed: 1,
        }
    }

    #[test]
    fn what_no_frame_can_be_is_refused_with_its_range() {
        let refused = |test: &ThroughputTest, family, largest| {
            test.check(family, largest).expect_err("refused").to_string()
        };
        let ipv4 = Family::Ipv4;
        assert_eq!(test(&[64, 1518]).check(ipv4, Some(1518)), Ok(()));
        for (sizes, family, words) in [
            (
                &[64][..],
                Family::Ipv6,
                "--frames 64: over IPv6 a frame with linerate's header has 82",
            ),
            (&[9018], ipv4, "--frames 9018: the interface's MTU allows frames of 1518 bytes"),
            (&[64, 64], ipv4, "--frames 64: it is given twice"),
            (&[], ipv4, "--frames 0: it must be 1 to 32 sizes"),
        ] {
            let message = refused(&test(sizes), family, Some(1518));
            assert!(message.contains(words), "{message}");
        }
        let mut other = test(&[64]);
        other.goal.trials = 2;
        assert_eq!(refused(&other, ipv4, None), "--trials 2: it must be odd, 1 to 15");
        other.goal.loss_percent = 51.0;
        assert_eq!(refused(&other, ipv4, None), "--loss 51%: it must be 0 to 50 %");
    }

    #[test]
    fn of_the_usual_sizes_those_are_taken_that_fit() {
        let usual = ThroughputTest::usual_frames;
        assert_eq!(usual(Family::Ipv4, None), DEFAULT_FRAMES);
        assert_eq!(usual(Family::Ipv6, Some(1300)), [128, 256, 512, 1024, 1280]);
    }

    /// 1518 bytes are 1472 of payload over IPv4: 81,274 of them fill 987 Mbit/s of Ethernet frames.
    #[test]
    fn a_trial_sends_datagrams_whose_frames_have_the_size() {
        let sought = Sought { direction: Direction::Down, frame_bytes: 1518, family: Family::Ipv4 };
        let next = NextTrial { per_s: 81_274.0, seconds: 1.0 };
        let asked = test(&[1518]).trial(sought, next).expect("it can be sent");
        assert_eq!(asked.direction, Direction::Down);
        let Traffic::Stream(stream) = asked.traffic else { panic!("a stream") };
        assert_eq!(stream.message_bytes, 1472);
        assert_eq!(stream.rate_bps, Some(BitRate(81_274 * 1472 * 8)));
    }

    #[test]
    fn sizes_are_bytes_or_the_mtu() {
        assert_eq!("mtu".parse(), Ok(FrameSize::Mtu));
        assert_eq!("1518".parse(), Ok(FrameSize::Bytes(1518)));
        for wrong in ["63", "65554", "", "1k", "-1"] {
            assert!(wrong.parse::<FrameSize>().is_err(), "{wrong}");
        }
    }
}
