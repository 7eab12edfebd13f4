//! The interventions: each changes one thing of our own test.
//!
//! What each cause makes of it is in the module beside, `predict`. A new intervention is one entry
//! of [`INTERVENTIONS`] with its two functions.

use serde::Serialize;
use thiserror::Error;

use super::plain_runs::{PlainRuns, tenths};
use super::predict::{self, Case, Predicted, Watched};
use crate::ceilings::formulas::TIMESTAMP_BYTES;
use crate::plan::{
    Direction, Extent, MAX_STREAMS, Protocol, ReceiveMethod, Role, SendMethod, StreamTest, Test,
    Traffic,
};
use crate::record::Cause;
use crate::units::{BitRate, ByteCount, End, Span};

/// The end whose socket or work is changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangedEnd {
    /// The sender of the payload.
    Sender,
    /// Its receiver.
    Receiver,
    /// Both ends.
    Both,
}

impl ChangedEnd {
    /// The end of this test; `None` for both.
    pub fn of(self, test: &Test) -> Option<End> {
        match self {
            Self::Sender => Some(Role::Sender.end(test.direction)),
            Self::Receiver => Some(Role::Receiver.end(test.direction)),
            Self::Both => None,
        }
    }
}

/// Why a change cannot be made here.
#[derive(Debug, Clone, PartialEq, Eq, Error, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Refusal {
    /// The test has nothing that it could change, such as the MSS of datagrams.
    #[error("the test has nothing to change")]
    NotOfThisTest,
    /// It is what the plain runs did already.
    #[error("the plain runs have it already")]
    AlreadySo,
    /// A figure that it needs was not read.
    #[error("{0} is not known")]
    NotKnown(&'static str),
    /// The limit of an option, a host or its owner.
    #[error("{0}")]
    NotAllowed(String),
}

/// A change of one thing of a test.
///
/// It never changes a host's setting, so that it needs no privilege and leaves nothing behind.
#[derive(Debug)]
pub struct Intervention {
    /// The name as it is stored.
    pub name: &'static str,
    /// What the changed runs have, in words: `twice the flows`.
    pub words: &'static str,
    /// The end that it concerns.
    pub end: ChangedEnd,
    /// Makes the changed test.
    change: Change,
    /// The ratio of the rates; of a remedy that proves nothing `None`.
    rate: Option<Predict>,
    /// The ratio of the other figures, if they tell more than the rate.
    others: Option<Predict>,
    /// The cause that it lifts as far as a test can: the remedy, whose worth is measured once the
    /// cause is proved.
    pub lifts: Option<Cause>,
}

type Change = fn(&Test, &PlainRuns) -> Result<Test, Refusal>;
type Predict = fn(&Case<'_>) -> Option<Predicted>;

impl Intervention {
    const fn new(
        [name, words]: [&'static str; 2],
        end: ChangedEnd,
        change: Change,
        rate: Predict,
    ) -> Self {
        Self { name, words, end, change, rate: Some(rate), others: None, lifts: None }
    }

    /// A remedy, which proves nothing.
    const fn remedy(
        [name, words]: [&'static str; 2],
        end: ChangedEnd,
        change: Change,
        cause: Cause,
    ) -> Self {
        Self { name, words, end, change, rate: None, others: None, lifts: Some(cause) }
    }

    /// Whether it is made for its worth, and tells nothing.
    pub(super) fn is_remedy_alone(&self) -> bool {
        self.rate.is_none()
    }

    /// The changed test, checked.
    ///
    /// # Errors
    /// Why it cannot be made here.
    pub fn changed(&self, plain: &Test, seen: &PlainRuns) -> Result<Test, Refusal> {
        let test = (self.change)(plain, seen)?;
        test.check().map_err(|error| Refusal::NotAllowed(error.to_string()))?;
        Ok(test)
    }

    /// What the changed runs have of a figure over what the plain runs have; `None` where the cause
    /// says nothing about it.
    pub fn predicted(&self, case: &Case<'_>) -> Option<Predicted> {
        let is_rate = case.watched == Watched::Rate;
        let predict = if is_rate { self.rate } else { self.others };
        let is_cause = case.cause != Cause::Unexplained;
        predict?(case).filter(|predicted| is_cause && predicted.is_valid())
    }
}

/// All interventions. Of two that tell as much for their cost the first is made.
pub static INTERVENTIONS: [Intervention; 26] = {
    use ChangedEnd::{Both, Receiver, Sender};
    [
        Intervention::new(
            ["pacing=2", "twice the pace"],
            Sender,
            |test, _| twice(test, pace),
            predict::pacing,
        ),
        Intervention::new(
            ["write_rate=2", "twice the rate of writing"],
            Sender,
            |test, _| twice(test, writes),
            predict::writes,
        ),
        Intervention::new(
            ["read_rate=2", "twice the rate of reading"],
            Receiver,
            |test, _| twice(test, reads),
            predict::reads,
        ),
        Intervention::new(
            ["streams=2", "twice the flows"],
            Both,
            twice_the_streams,
            predict::streams,
        ),
        Intervention::new(
            ["receive_window=2", "twice the window"],
            Receiver,
            window::<20>,
            predict::window::<20>,
        ),
        Intervention::new(
            ["receive_window=0.6", "0.6 of the window"],
            Receiver,
            window::<6>,
            predict::window::<6>,
        ),
        Intervention::new(
            ["send_buffer=2", "twice the send buffer"],
            Sender,
            buffer::<20>,
            predict::buffer::<20>,
        ),
        Intervention::new(
            ["send_buffer=0.6", "0.6 of the send buffer"],
            Sender,
            buffer::<6>,
            predict::buffer::<6>,
        ),
        Intervention::new(
            ["mss=0.6", "0.6 of the segment size"],
            Both,
            smaller_segments,
            predict::mss,
        ),
        Intervention {
            others: Some(predict::drained),
            ..Intervention::new(
                ["pace=0.9", "a pace of 0.9 of the rate"],
                Sender,
                slower,
                predict::slower,
            )
        },
        Intervention {
            lifts: Some(Cause::Congestion),
            ..Intervention::new(["congestion=bbr", "BBR"], Sender, to_bbr, predict::algorithm)
        },
        Intervention::new(["congestion=cubic", "CUBIC"], Sender, to_cubic, predict::algorithm),
        Intervention::new(
            ["cpu=1.4", "1.4 times the CPU time for a byte"],
            Both,
            dearer,
            predict::dearer,
        ),
        Intervention::new(
            ["cpu_send=1.4", "1.4 times the sender's CPU time for a byte"],
            Sender,
            dearer_to_send,
            predict::dearer_to_send,
        ),
        Intervention::new(
            ["cpu_receive=1.4", "1.4 times the receiver's CPU time for a byte"],
            Receiver,
            dearer_to_receive,
            predict::dearer_to_receive,
        ),
        Intervention::new(
            ["rate=1.2", "1.2 of the rate asked for"],
            Sender,
            datagrams::<12>,
            predict::datagrams::<12>,
        ),
        Intervention::new(
            ["rate=0.8", "0.8 of the rate asked for"],
            Sender,
            datagrams::<8>,
            predict::datagrams::<8>,
        ),
        Intervention {
            lifts: Some(Cause::Startup),
            ..Intervention::new(["time=3", "three times the time"], Both, longer, predict::longer)
        },
        Intervention::remedy(
            ["pacing=none", "no pace"],
            Sender,
            |test, _| without(test, pace),
            Cause::Pacing,
        ),
        Intervention::remedy(
            ["write_rate=none", "writing without a rate"],
            Sender,
            |test, _| without(test, writes),
            Cause::ApplicationSend,
        ),
        Intervention::remedy(
            ["read_rate=none", "reading without a rate"],
            Receiver,
            |test, _| without(test, reads),
            Cause::ApplicationReceive,
        ),
        Intervention::remedy(
            ["receive_window=most", "the largest window"],
            Receiver,
            largest_window,
            Cause::ReceiveWindow,
        ),
        Intervention::remedy(
            ["send_buffer=most", "the largest send buffer"],
            Sender,
            largest_buffer,
            Cause::SendBuffer,
        ),
        Intervention::remedy(
            ["size=128KiB", "writes of 128 KiB"],
            Sender,
            larger_writes,
            Cause::CpuSend,
        ),
        Intervention::remedy(
            ["cpu_send=less", "a copy less at the sender"],
            Sender,
            cheaper_to_send,
            Cause::CpuSend,
        ),
        Intervention::remedy(
            ["cpu_receive=less", "a copy less at the receiver"],
            Receiver,
            cheaper_to_receive,
            Cause::CpuReceive,
        ),
    ]
};

/// The intervention with this name.
pub fn intervention(name: &str) -> Option<&'static Intervention> {
    INTERVENTIONS.iter().find(|intervention| intervention.name == name)
}

/// Whether changes can prove the bottleneck of a test: its data goes one way for a set time.
pub fn is_provable(test: &Test) -> bool {
    matches!(test.traffic, Traffic::Stream(_))
        && test.direction != Direction::Both
        && matches!(test.extent, Extent::Time(_))
}

/// What the runs of a change have, in words; empty for a change that this version does not know.
pub fn words(change: &str) -> &'static str {
    intervention(change).map_or("", |known| known.words)
}

fn stream(test: &mut Test) -> Result<&mut StreamTest, Refusal> {
    match &mut test.traffic {
        Traffic::Stream(stream) => Ok(stream),
        Traffic::Rr(_) | Traffic::Crr(_) => Err(Refusal::NotOfThisTest),
    }
}

/// A copy of a stream of TCP.
fn tcp(test: &Test) -> Result<Test, Refusal> {
    let mut copy = test.clone();
    stream(&mut copy)?;
    if test.protocol == Protocol::Udp { Err(Refusal::NotOfThisTest) } else { Ok(copy) }
}

fn twice_the_streams(test: &Test, _: &PlainRuns) -> Result<Test, Refusal> {
    let mut test = test.clone();
    stream(&mut test)?;
    test.streams = test.streams.saturating_mul(2);
    if test.flows() > MAX_STREAMS {
        return Err(Refusal::NotAllowed(format!("a test has at most {MAX_STREAMS} flows")));
    }
    Ok(test)
}

/// A window or buffer as the largest one is this many times what there is: no more than most paths
/// could use, and memory that both ends have.
pub(super) const LARGEST: f64 = 16.0;

fn largest(now: Option<f64>, most: Option<f64>, what: &'static str) -> Result<ByteCount, Refusal> {
    let now = now.ok_or(Refusal::NotKnown(what))?;
    let most = most.ok_or(Refusal::NotKnown(what))?.min(LARGEST * now);
    if most <= now {
        return Err(Refusal::NotAllowed(format!("{now:.0} bytes are {what}")));
    }
    Ok(ByteCount(most as u64))
}

fn largest_window(test: &Test, seen: &PlainRuns) -> Result<Test, Refusal> {
    let mut test = tcp(test)?;
    let most = seen.max_receive_window_bytes.filter(|_| seen.can_hold_window);
    let bytes = largest(seen.receive_window_bytes, most, "the largest receive window")?;
    test.options.receive_window_bytes = Some(bytes);
    Ok(test)
}

fn largest_buffer(test: &Test, seen: &PlainRuns) -> Result<Test, Refusal> {
    let mut test = tcp(test)?;
    let most = seen.max_send_buffer_bytes;
    let bytes = largest(seen.send_buffer_bytes, most, "the largest send buffer")?;
    test.options.send_buffer_bytes = Some(bytes);
    Ok(test)
}

/// Sets the window. Another tool's server sets a buffer, whose limit is not known: the window that
/// the sender then sees says what it has made of it.
fn window<const TENTHS: u32>(test: &Test, seen: &PlainRuns) -> Result<Test, Refusal> {
    let mut test = tcp(test)?;
    let now = seen.receive_window_bytes.ok_or(Refusal::NotKnown("the receive window"))?;
    let most = seen.max_receive_window_bytes;
    let asked = &mut test.options.receive_window_bytes;
    *asked = Some(if seen.can_hold_window {
        within_limit(now, tenths(TENTHS), most, "the largest receive window")?
    } else {
        let buffer = asked.map_or(now / WINDOW_OF_BUFFER, |ByteCount(bytes)| bytes as f64);
        ByteCount((tenths(TENTHS) * buffer).round() as u64)
    });
    Ok(test)
}

/// The window over the `SO_RCVBUF` that was asked for, half of what the kernel sets: it offers half
/// of that before it has seen segments, and up to four fifths after full ones.
const WINDOW_OF_BUFFER: f64 = 1.3;

fn buffer<const TENTHS: u32>(test: &Test, seen: &PlainRuns) -> Result<Test, Refusal> {
    let mut test = tcp(test)?;
    let now = seen.send_buffer_bytes.ok_or(Refusal::NotKnown("the send buffer"))?;
    let most = seen.max_send_buffer_bytes;
    let bytes = within_limit(now, tenths(TENTHS), most, "the largest send buffer")?;
    test.options.send_buffer_bytes = Some(bytes);
    Ok(test)
}

fn within_limit(
    now: f64,
    factor: f64,
    most: Option<f64>,
    what: &'static str,
) -> Result<ByteCount, Refusal> {
    let bytes = now * factor;
    if factor > 1.0 && bytes > most.ok_or(Refusal::NotKnown(what))? {
        return Err(Refusal::NotAllowed(format!("{bytes:.0} bytes are more than {what}")));
    }
    Ok(ByteCount(bytes.round() as u64))
}

/// The option counts the bytes of TCP's options, the MSS that was read does not.
fn smaller_segments(test: &Test, seen: &PlainRuns) -> Result<Test, Refusal> {
    let mut test = tcp(test)?;
    let now = seen.mss_bytes.ok_or(Refusal::NotKnown("the MSS"))?;
    test.options.mss_bytes = Some((now * predict::MSS_FACTOR + TIMESTAMP_BYTES).round() as u32);
    Ok(test)
}

fn slower(test: &Test, seen: &PlainRuns) -> Result<Test, Refusal> {
    let rate = BitRate((seen.rate_bps * predict::SLOWER).round() as u64);
    Ok(tcp(test)?.slowed_to(rate))
}

/// A rate that a test may set.
type Rate = fn(&mut Test) -> Result<&mut Option<BitRate>, Refusal>;

fn pace(test: &mut Test) -> Result<&mut Option<BitRate>, Refusal> {
    tcp(test)?;
    Ok(&mut test.options.pacing_bps)
}

fn writes(test: &mut Test) -> Result<&mut Option<BitRate>, Refusal> {
    Ok(&mut stream(test)?.write_rate_bps)
}

fn reads(test: &mut Test) -> Result<&mut Option<BitRate>, Refusal> {
    Ok(&mut stream(test)?.read_rate_bps)
}

fn twice(test: &Test, rate: Rate) -> Result<Test, Refusal> {
    changed(test, rate, |BitRate(now)| Some(BitRate(now.saturating_mul(2))))
}

fn without(test: &Test, rate: Rate) -> Result<Test, Refusal> {
    changed(test, rate, |_| None)
}

fn changed(
    test: &Test,
    rate: Rate,
    change: fn(BitRate) -> Option<BitRate>,
) -> Result<Test, Refusal> {
    let mut test = test.clone();
    let set = rate(&mut test)?;
    *set = change(set.ok_or(Refusal::NotOfThisTest)?);
    Ok(test)
}

/// An algorithm that answers to other signs: BBR in place of one that answers to loss, CUBIC in
/// place of BBR.
fn algorithm(test: &Test, seen: &PlainRuns, name: &str) -> Result<Test, Refusal> {
    let mut test = tcp(test)?;
    let now = seen.congestion.as_deref().ok_or(Refusal::NotKnown("the congestion control"))?;
    if predict::is_bbr(now) == predict::is_bbr(name) {
        return Err(Refusal::AlreadySo);
    }
    if !seen.allowed_congestion.iter().any(|allowed| allowed == name) {
        return Err(Refusal::NotAllowed(format!("the sender may not use {name}")));
    }
    test.options.congestion = Some(name.to_owned());
    Ok(test)
}

fn to_bbr(test: &Test, seen: &PlainRuns) -> Result<Test, Refusal> {
    algorithm(test, seen, "bbr")
}

fn to_cubic(test: &Test, seen: &PlainRuns) -> Result<Test, Refusal> {
    algorithm(test, seen, "cubic")
}

fn longer(test: &Test, _: &PlainRuns) -> Result<Test, Refusal> {
    let mut test = test.clone();
    stream(&mut test)?;
    let Extent::Time(time) = test.extent else {
        return Err(Refusal::NotOfThisTest);
    };
    test.extent = Extent::Time(Span(time.0.saturating_mul(predict::LONGER)));
    Ok(test)
}

fn larger_writes(test: &Test, _: &PlainRuns) -> Result<Test, Refusal> {
    const LARGE: u64 = 128 << 10;
    let mut test = tcp(test)?;
    let size = &mut stream(&mut test)?.message_bytes;
    if 2 * *size > LARGE {
        return Err(Refusal::AlreadySo);
    }
    *size = LARGE;
    Ok(test)
}

fn cheaper_to_send(test: &Test, seen: &PlainRuns) -> Result<Test, Refusal> {
    let mut test = tcp(test)?;
    let stream = stream(&mut test)?;
    if stream.send == SendMethod::ZeroCopy {
        return Err(Refusal::AlreadySo);
    }
    if !seen.can_send_without_copy {
        return Err(Refusal::NotAllowed("the sender must copy".to_owned()));
    }
    stream.send = SendMethod::ZeroCopy;
    Ok(test)
}

fn cheaper_to_receive(test: &Test, seen: &PlainRuns) -> Result<Test, Refusal> {
    let mut test = tcp(test)?;
    let stream = stream(&mut test)?;
    if stream.receive == ReceiveMethod::Discard {
        return Err(Refusal::AlreadySo);
    }
    if !seen.can_discard {
        return Err(Refusal::NotAllowed("the receiver must copy".to_owned()));
    }
    stream.receive = ReceiveMethod::Discard;
    Ok(test)
}

/// Work on each byte, of a part of the CPU time that it takes now.
fn dearer_to(mut test: Test, seen: &PlainRuns, role: Role) -> Result<Test, Refusal> {
    let now = seen.cpu_ns_per_kib[role as usize];
    let more = now.ok_or(Refusal::NotKnown("the CPU time of a byte"))? * (predict::DEARER - 1.0);
    let stream = stream(&mut test)?;
    let all = Some(stream.work_ns_per_kib(role).saturating_add((more.round() as u32).max(1)));
    match role {
        Role::Sender => stream.send_work_ns_per_kib = all,
        Role::Receiver => stream.receive_work_ns_per_kib = all,
    }
    Ok(test)
}

fn dearer_to_send(test: &Test, seen: &PlainRuns) -> Result<Test, Refusal> {
    dearer_to(tcp(test)?, seen, Role::Sender)
}

fn dearer_to_receive(test: &Test, seen: &PlainRuns) -> Result<Test, Refusal> {
    dearer_to(tcp(test)?, seen, Role::Receiver)
}

fn dearer(test: &Test, seen: &PlainRuns) -> Result<Test, Refusal> {
    dearer_to(dearer_to_send(test, seen)?, seen, Role::Receiver)
}

fn datagrams<const TENTHS: u32>(test: &Test, _: &PlainRuns) -> Result<Test, Refusal> {
    let mut test = test.clone();
    if test.protocol != Protocol::Udp {
        return Err(Refusal::NotOfThisTest);
    }
    let rate = &mut stream(&mut test)?.rate_bps;
    let asked = rate.ok_or(Refusal::NotOfThisTest)?;
    *rate = Some(BitRate((asked.as_f64() * tenths(TENTHS)).round() as u64));
    Ok(test)
}
