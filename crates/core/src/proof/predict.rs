//! What each cause makes of each intervention: the ratio of the changed to the plain figure.
//!
//! A resource that is the limit has an elasticity of 1: the rate follows it. All others have 0,
//! down to where the changed resource becomes the limit itself.

use super::plain_runs::{PlainRuns, tenths};
use crate::ceilings::formulas::{
    ETHERNET_BYTES, TCP_HEADER_BYTES, TIMESTAMP_BYTES, ip_header_bytes,
};
use crate::plan::{Protocol, Test, Traffic};
use crate::record::Cause;
use crate::units::Family;

/// A figure of a run that tells causes apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Watched {
    /// Goodput.
    Rate,
    /// The RTT under load above the smallest.
    Queue,
    /// The share of segments that was retransmitted.
    Retransmissions,
}

/// All figures that are watched.
pub(super) const WATCHED: [Watched; 3] = [Watched::Rate, Watched::Queue, Watched::Retransmissions];

impl Watched {
    /// What is added to a figure before two of them are divided, so that two that are nearly
    /// nothing are equal: a millisecond, as the wake-up of a host's own CPUs takes
    /// (`ceilings/thresholds.rs`, `QUEUE_DELAY_US`); and one segment in 2000, which no rule takes
    /// for a policer's (`POLICER_LOSS`).
    pub fn floor(self) -> f64 {
        match self {
            Self::Rate => 0.0,
            Self::Queue => 1e-3,
            Self::Retransmissions => 5e-4,
        }
    }
}

/// The ratios of a changed figure to the plain one that agree with a cause.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Predicted {
    /// The least ratio.
    pub low: f64,
    /// The ratio without any tolerance.
    pub expected: f64,
    /// The largest ratio.
    pub high: f64,
    /// Whether the ratio is anything between, but not about 1: of what certainly changes the rate,
    /// but may raise or lower it.
    pub is_not_one: bool,
}

impl Predicted {
    const fn new(low: f64, expected: f64, high: f64) -> Self {
        Self { low, expected, high, is_not_one: false }
    }

    pub(super) fn is_valid(&self) -> bool {
        let in_order = self.low <= self.expected && self.expected <= self.high;
        self.low > 0.0 && in_order && self.high.is_finite()
    }

    /// Whether a ratio of 1 disagrees, so that this is something to be followed.
    pub fn is_a_change(&self) -> bool {
        self.is_not_one || self.low > 1.0 || self.high < 1.0
    }

    /// Whether a ratio between these two logarithms agrees.
    pub fn meets(&self, [low, high]: [f64; 2]) -> bool {
        let in_hole = self.is_not_one && low > -APART.ln() && high < APART.ln();
        high >= self.low.ln() && low <= self.high.ln() && !in_hole
    }

    /// How far the logarithm of a ratio is from what agrees.
    pub(super) fn distance(&self, log: f64) -> f64 {
        let outside = (self.low.ln() - log).max(log - self.high.ln()).max(0.0);
        if self.is_not_one { outside.max(APART.ln() - log.abs()) } else { outside }
    }
}

/// Two limits nearer to each other than this are both named: a resource that is doubled raises the
/// rate by as much at least, or it is not alone.
pub(super) const APART: f64 = 1.15;

/// The causes that a change can prove.
pub(super) const CAUSES: [Cause; 15] = [
    Cause::ReceiveWindow,
    Cause::SendBuffer,
    Cause::Congestion,
    Cause::Pacing,
    Cause::SegmentSize,
    Cause::PathRate,
    Cause::Policer,
    Cause::ApplicationSend,
    Cause::ApplicationReceive,
    Cause::CpuSend,
    Cause::CpuReceive,
    Cause::CpuHost,
    Cause::QosClass,
    Cause::Startup,
    Cause::AsAsked,
];

/// What a change leaves as it is. 7 %: more or longer segments, another fall of the flows' starts
/// into the measured time. Medians of equal tests in the lab were within 3 %.
pub(super) const SAME: Predicted = Predicted::new(0.93, 1.0, 1.07);
/// The same of what answers by losses, whose number depends on how bursts fall into the bucket or
/// the queue.
const SAME_WITH_LOSSES: Predicted = Predicted::new(0.85, 1.0, 1.12);
/// The same where random losses set the rate: few of them fall into a run of a second, and 1.3 was
/// measured of equal ones.
const SAME_AT_RANDOM: Predicted = Predicted::new(0.6, 1.0, 1.6);
/// With so many losses in a run their number scatters by a fifth, and the rate, which goes with its
/// root, by a tenth.
const MANY_LOSSES: f64 = 30.0;
/// What rises with a doubled resource, up to the next limit. Measured: 1.90 to 2.2; more where it
/// is used in whole segments (2.5 of a window of eight) or a plain run's start took a part of it.
const TWICE: Predicted = Predicted::new(APART, 1.9, 2.6);
/// A window that changed by less than a quarter tells nothing.
const WINDOW_CHANGED: f64 = 1.25;
/// The same of a send buffer, of which the memory of its first packets is a fixed part: 2.8 of one
/// of 128 KiB.
const TWICE_THE_BUFFER: Predicted = Predicted::new(APART, 1.9, 3.3);

/// What is asked of an intervention: its effect on a figure, if a cause is the limit.
#[derive(Debug, Clone, Copy)]
pub struct Case<'a> {
    /// The plain test.
    pub test: &'a Test,
    /// Figures of its runs.
    pub seen: &'a PlainRuns,
    /// The figure.
    pub watched: Watched,
    /// The cause that is the limit.
    pub cause: Cause,
    /// The window of the changed runs over that of the plain ones, once it was seen.
    pub window_ratio: Option<f64>,
}

impl Case<'_> {
    /// What a change leaves as it is, with the wider tolerance of causes that lose segments.
    fn same(&self) -> Predicted {
        match self.cause {
            Cause::Congestion if self.loses_at_random() => SAME_AT_RANDOM,
            Cause::Policer | Cause::Congestion => SAME_WITH_LOSSES,
            _ => SAME,
        }
    }

    /// Whether a small window may wait for delayed acknowledgements, as it does after each loss:
    /// that is no queue, and another pace changes it. A receiver of Linux delays each by 40 ms at
    /// most (`TCP_DELACK_MIN`); of the segments of a window only the last one waits.
    fn waits_for_acknowledgements(&self) -> bool {
        const FEW: f64 = 30.0;
        const DELAYED_S: f64 = 0.04;
        let of_flow = self.seen.rate_bps / 8.0 / f64::from(self.test.streams.max(1));
        let window = self.seen.rtt_s.zip(self.seen.mss_bytes).map(|(rtt, mss)| of_flow * rtt / mss);
        let is_short = self.seen.queue_s().is_none_or(|queue| queue < DELAYED_S);
        is_short && window.is_none_or(|segments| segments < FEW)
    }

    /// The prediction with a wider tolerance where few random losses set the rate.
    fn at_random(&self, certain: Predicted) -> Predicted {
        let Predicted { low, expected, high, .. } = certain;
        let Predicted { low: less, high: more, .. } = SAME_AT_RANDOM;
        if self.loses_at_random() {
            Predicted::new(less * low, expected, more * high)
        } else {
            certain
        }
    }

    fn loses_at_random(&self) -> bool {
        let few = self.seen.loss_events.is_none_or(|events| events < MANY_LOSSES);
        few && self.seen.never_lost != Some(true)
    }

    /// What lifts one resource raises the rate if that is the limit, and nothing else.
    fn lifted(&self, own: Cause) -> Option<Predicted> {
        Some(if self.cause == own { TWICE } else { self.same() })
    }

    /// A window or buffer of `factor` times these bytes. The one that limits is followed; any other
    /// holds the rate back from where it is the smaller one. `usable` is the least share of it that
    /// holds payload.
    fn held(&self, own: Cause, factor: f64, bytes: Option<f64>, usable: f64) -> Option<Predicted> {
        let is_buffer = own == Cause::SendBuffer;
        if factor > 1.0 {
            let Predicted { low, expected, high, .. } =
                if is_buffer { TWICE_THE_BUFFER } else { TWICE };
            let raised = Predicted::new(low, expected * factor / 2.0, high * factor / 2.0);
            return Some(if self.cause == own { raised } else { self.same() });
        }
        if self.cause == own {
            let least = if is_buffer { factor * factor } else { factor * (1.0 - HELD) };
            return Some(Predicted::new(least, factor, factor * (1.0 + HELD)));
        }
        // What it lets through at the smallest RTT, if a queue made the RTT under load, and at the
        // mean RTT, if the path's own jitter did.
        let flow_bytes_per_s = self.seen.rate_bps / 8.0 / f64::from(self.test.streams.max(1));
        let share = |rtt: Option<f64>| Some((factor * bytes? / (flow_bytes_per_s * rtt?)).min(1.0));
        let expected = share(self.seen.rtt_min_s).unwrap_or(1.0);
        let low = usable * share(self.seen.rtt_s).unwrap_or(factor);
        Some(Predicted::new(low.min(SAME.low * expected), expected, self.same().high))
    }

    fn runs_bbr(&self) -> bool {
        self.seen.congestion.as_deref().is_some_and(is_bbr)
    }
}

/// Twice the pace that the test has set.
pub(super) fn pacing(case: &Case<'_>) -> Option<Predicted> {
    case.lifted(Cause::Pacing)
}

pub(super) fn writes(case: &Case<'_>) -> Option<Predicted> {
    case.lifted(Cause::ApplicationSend)
}

pub(super) fn reads(case: &Case<'_>) -> Option<Predicted> {
    case.lifted(Cause::ApplicationReceive)
}

/// Twice the flows. What each flow has of its own is there twice; what they share is not.
pub(super) fn streams(case: &Case<'_>) -> Option<Predicted> {
    Some(match case.cause {
        // A share beside one flow of a neighbour: 2n/(2n+1) over n/(n+1), which is 4/3 of one flow
        // (Chiu and Jain 1989: equal windows). Random loss has twice the rate.
        Cause::Congestion => {
            let n = f64::from(case.test.streams.max(1));
            let beside_one = 2.0 * (n + 1.0) / (2.0 * n + 1.0);
            case.at_random(Predicted::new(APART.min(0.95 * beside_one), 1.6, TWICE.high))
        }
        Cause::PathRate | Cause::QosClass => SAME,
        Cause::Policer => SAME_WITH_LOSSES,
        // More threads want the same CPUs: never much faster, and slower by their switches.
        Cause::CpuHost => Predicted::new(0.7, 1.0, 1.1),
        // Another core may have room, or not.
        Cause::CpuSend | Cause::CpuReceive | Cause::SegmentSize => return None,
        // A server may read each connection as slowly, or all of them together.
        Cause::ApplicationReceive if !case.seen.can_hold_window => return None,
        _ => TWICE,
    })
}

/// Tolerance of a rate that follows a window: windows are rounded to segments and to the scale
/// that was agreed, and the RTT falls a little with what is in flight. The exact causes' 10 %
/// (`ceilings::EXACT_TOLERANCE`), and 2 % for the RTT.
const HELD: f64 = 0.12;

pub(super) fn window<const TENTHS: u32>(case: &Case<'_>) -> Option<Predicted> {
    let bytes = case.seen.receive_window_bytes;
    let factor = case.window_ratio.unwrap_or(tenths(TENTHS));
    let has_changed = factor.max(1.0 / factor) >= WINDOW_CHANGED;
    has_changed.then(|| case.held(Cause::ReceiveWindow, factor, bytes, 1.0 - HELD))?
}

/// The kernel charges a buffer with the memory of its packets, of which payload is 70 % at least
/// where segments are full.
pub(super) fn buffer<const TENTHS: u32>(case: &Case<'_>) -> Option<Predicted> {
    case.held(Cause::SendBuffer, tenths(TENTHS), case.seen.send_buffer_bytes, 0.7)
}

/// Smaller segments over the MSS.
pub(super) const MSS_FACTOR: f64 = 0.6;

pub(super) fn mss(case: &Case<'_>) -> Option<Predicted> {
    let ip = case.seen.family.map_or(ip_header_bytes(Family::Ipv4), ip_header_bytes);
    let headers = ip + TCP_HEADER_BYTES + TIMESTAMP_BYTES + ETHERNET_BYTES;
    let share = |mss: f64| mss / (mss + headers);
    let full = case.seen.mss_bytes?;
    let payload = share(MSS_FACTOR * full) / share(full);
    Some(match case.cause {
        // BBR follows the rate of delivery and not the MSS.
        Cause::Congestion if case.runs_bbr() => return None,
        // The rate is a number of segments for each RTT: Mathis 1997, and CUBIC's is such a number
        // too (RFC 9438). Beside one neighbour of equal window: 0.6/1.6 over 1/2.
        Cause::Congestion => case.at_random(Predicted::new(0.52, MSS_FACTOR, 0.75)),
        // A cost for each packet; 10 % for what a byte costs beside it.
        Cause::SegmentSize => Predicted::new(0.54, MSS_FACTOR, 0.67),
        // A part for each packet and a part for each byte. Of small segments, whose packets cost
        // most, it is the segment size.
        Cause::CpuSend | Cause::CpuReceive | Cause::CpuHost => {
            let least = if is_full_segment(case.seen) { 0.54 } else { 0.75 };
            Predicted::new(least, 0.5 * (least + 1.03), 1.03)
        }
        // The first window is of ten segments (RFC 6928), each round doubles it.
        Cause::Startup => Predicted::new(0.54, 0.67, 1.03),
        // Windows and buffers count bytes, but the kernel charges a buffer with the memory of its
        // packets, and offers the share of it that their payload has: 0.60 was measured of a window
        // by `tcp_rmem`.
        Cause::ReceiveWindow => Predicted::new(0.54, 1.0, 1.07),
        Cause::SendBuffer => Predicted::new(0.54, 1.0, 1.1),
        Cause::Policer => Predicted::new(0.9 * payload, payload, 1.08),
        Cause::PathRate | Cause::QosClass | Cause::Pacing => {
            Predicted::new(0.95 * payload, payload, 1.04)
        }
        _ => SAME,
    })
}

/// The pace of the slower runs over the measured rate: below what any limit of the path allows,
/// far enough for a queue to drain, and near enough to lose little.
pub(super) const SLOWER: f64 = 0.9;

/// The least ratio of a sender that is limited by its buffer and paced. Linux asks for room in the
/// buffer only when it begins a packet, and a packet that waits for the congestion window grows for
/// as long as it waits: the buffer is exceeded until nothing but itself holds the sender. A pace
/// makes packets short, each with memory of its own, and none of them waits. Measured: 0.26 to 0.61
/// at 0.9 of the rate, 0.43 to 0.55 with BBR.
const PACED_BUFFER: f64 = 0.25;

/// The rate falls to the pace whatever the limit is. What does not keep even that had a rate that
/// does not last: a buffer that was exceeded, a start that overshot.
pub(super) fn slower(case: &Case<'_>) -> Option<Predicted> {
    let same = case.same();
    let least = match case.cause {
        // The end of slow start has most of its bytes, and the pace holds that back.
        Cause::Startup => 0.4,
        Cause::SendBuffer => PACED_BUFFER,
        _ => 0.8 * same.low,
    };
    Some(Predicted::new(least.min(SLOWER), SLOWER, same.high))
}

/// What becomes of queue and losses at a slower pace.
pub(super) fn drained(case: &Case<'_>) -> Option<Predicted> {
    use Cause::{
        ApplicationReceive, ApplicationSend, Congestion, Pacing, PathRate, Policer, QosClass,
        ReceiveWindow, SendBuffer,
    };
    let is_outside = matches!(case.cause, PathRate | QosClass);
    let (plain, ends, stays) = match case.watched {
        Watched::Rate => return None,
        // What acknowledges when it reads makes the RTT long, until it keeps up.
        Watched::Queue if case.cause == ApplicationReceive && !case.seen.can_hold_window => {
            return None;
        }
        // A queue of our own drains; that of jitter, of a neighbour or of a window's own bursts
        // stays. Where a CPU is the limit packets may wait for it: that says nothing.
        Watched::Queue => {
            let by_itself = matches!(case.cause, Congestion | ReceiveWindow | SendBuffer)
                || matches!(case.cause, Pacing | ApplicationSend | ApplicationReceive)
                || (case.cause == Policer && !case.waits_for_acknowledgements());
            (case.seen.queue_s()?, is_outside, by_itself)
        }
        // Losses of a bucket or a full queue end; random ones do not care for the rate, and those
        // of bursts into a short queue may end, too.
        Watched::Retransmissions => {
            let ends = is_outside || case.cause == Policer;
            (case.seen.retransmitted_share?, ends, case.cause == Congestion)
        }
    };
    // Of less than three floors the fall would not be seen.
    let floor = case.watched.floor();
    if plain < 3.0 * floor {
        return None;
    }
    // A third may be left: what the path has by itself.
    let least = floor / (plain + floor);
    let gone = Predicted::new(0.9 * least, 1.2 * least, (1.0 / 3.0_f64).max(1.3 * least));
    if ends {
        return Some(gone);
    }
    let low = if case.watched == Watched::Retransmissions { gone.low } else { 0.6 };
    stays.then_some(Predicted::new(low, 1.0, 1.8))
}

/// Whether an algorithm follows the rate of delivery and not losses.
pub(super) fn is_bbr(name: &str) -> bool {
    name.starts_with("bbr")
}

/// An algorithm that answers to other signs. It changes the rate where the algorithm's answer was
/// the limit: up with BBR at random loss (7 to 132 times were measured) and beside others; without
/// it up or down.
pub(super) fn algorithm(case: &Case<'_>) -> Option<Predicted> {
    Some(match case.cause {
        Cause::Congestion if case.runs_bbr() => {
            Predicted { is_not_one: true, ..Predicted::new(1e-3, 0.5, 1e3) }
        }
        // Where it lowers the rate something holds it that its own pace does not suit.
        Cause::Congestion => Predicted::new(APART, 2.0, 1e3),
        // BBR's timers cost CPU time, and make nothing cheaper.
        Cause::CpuSend | Cause::CpuReceive | Cause::CpuHost | Cause::SegmentSize => {
            Predicted::new(0.6, 0.97, 1.12)
        }
        // Its start is another.
        Cause::Startup => return None,
        // BBR paces.
        Cause::SendBuffer => Predicted::new(PACED_BUFFER, 1.0, 1.14),
        // It fills 86 % of a window (`ceilings/thresholds.rs`, `HELD_TOLERANCE`), and gets a little
        // more out of a bucket or a short queue.
        _ => Predicted::new(0.8, 1.0, 1.14),
    })
}

/// CPU time for a byte where an application works on it, over the time without.
pub(super) const DEARER: f64 = 1.4;

/// More CPU time for each byte at the ends that are named. What needs all CPU time that it gets
/// falls as the time rises; what has some left falls by as much as that does not suffice.
fn with_work(case: &Case<'_>, ends: [bool; 2]) -> Option<Predicted> {
    let seen = case.seen;
    let own = match case.cause {
        Cause::CpuSend => Some(0),
        Cause::CpuReceive => Some(1),
        Cause::CpuHost => return dearer_host(seen, ends),
        // What a packet costs stays, and is a part of the time only.
        Cause::SegmentSize => return Some(Predicted::new(0.9 / DEARER, 0.8, 1.07)),
        _ => None,
    };
    // What is left of a thread's time does for a part of the work.
    let with_rest = |share: f64| (1.0 / (DEARER * share)).min(1.0);
    if let Some(end) = own.filter(|end| ends[*end]) {
        // Where soft interrupts have the core, the thread may have time for all of it.
        let share = seen.thread_shares[end].filter(|share| *share >= IDLE);
        let most = share.map_or(SAME.high, |share| with_rest(share).max(1.1 / DEARER));
        return Some(Predicted::new(0.88 / DEARER, 1.0 / DEARER, most));
    }
    // A thread that has no time left is the limit, whatever is as near: it is no reason for others
    // to follow.
    let follows = |end: usize| {
        let share = seen.thread_shares[end].filter(|share| ends[end] && *share < NO_TIME_LEFT);
        share.map_or(1.0, with_rest)
    };
    let expected = follows(0).min(follows(1));
    let same = case.same();
    Some(Predicted::new(same.low * expected, expected, same.high))
}

/// Both ends' threads have the same CPUs, and each a share of their time.
fn dearer_host(seen: &PlainRuns, ends: [bool; 2]) -> Option<Predicted> {
    let [send, receive] = [seen.cpu_ns_per_kib[0]?, seen.cpu_ns_per_kib[1]?];
    let changed = [(send, ends[0]), (receive, ends[1])];
    let more: f64 = changed.iter().filter(|(_, is_changed)| *is_changed).map(|(ns, _)| ns).sum();
    let ratio = |share: f64| 1.0 / (1.0 + (DEARER - 1.0) * share * more / (send + receive));
    // The kernel's own work for both, which stays, has up to half of the CPUs, too.
    Some(Predicted::new(0.9 * ratio(1.0), ratio(1.0), ratio(0.5)))
}

/// A thread that has less than this left has none: the measured time begins and ends within its
/// time slices.
const NO_TIME_LEFT: f64 = 0.93;

pub(super) fn dearer_to_send(case: &Case<'_>) -> Option<Predicted> {
    with_work(case, [true, false])
}

pub(super) fn dearer_to_receive(case: &Case<'_>) -> Option<Predicted> {
    with_work(case, [false, true])
}

pub(super) fn dearer(case: &Case<'_>) -> Option<Predicted> {
    with_work(case, [true, true])
}

/// UDP at another rate than was asked for. More than a path carries does not arrive.
pub(super) fn datagrams<const TENTHS: u32>(case: &Case<'_>) -> Option<Predicted> {
    let Traffic::Stream(stream) = &case.test.traffic else {
        return None;
    };
    let factor = tenths(TENTHS);
    let asked = stream.rate_bps?.as_f64() * f64::from(case.test.streams);
    let offered = (factor * asked / case.seen.rate_bps).min(1.0);
    Some(match case.cause {
        // A clock keeps the rate: 4 %, so that 1.2 and 0.8 are far from 1.
        Cause::AsAsked => Predicted::new(0.96 * factor, factor, 1.04 * factor),
        // Datagrams that are lost later cost CPU time too.
        Cause::CpuSend | Cause::CpuReceive | Cause::CpuHost => {
            Predicted::new(0.7 * offered, offered, SAME.high)
        }
        _ => Predicted::new(0.93 * offered, offered, SAME.high * offered),
    })
}

/// Factor of the length of longer runs.
pub(super) const LONGER: u32 = 3;

/// Runs three times as long: slow start has tripled the bytes and more.
pub(super) fn longer(case: &Case<'_>) -> Option<Predicted> {
    Some(match case.cause {
        Cause::Startup => {
            // A window that doubles in each round has sent 2^rounds - 1 first windows; after 60
            // rounds any other limit has come. A hundredfold is beyond what is worth telling apart.
            let rounds = case.test.seconds().zip(case.seen.rtt_s).map(|(time, rtt)| time / rtt);
            let sent = |rounds: f64| rounds.min(60.0).exp2() - 1.0;
            let times = f64::from(LONGER);
            let grown = rounds.map_or(9.0, |rounds| sent(times * rounds) / sent(rounds) / times);
            Predicted::new(APART, 3.0, grown.clamp(3.0, 100.0))
        }
        _ => case.same(),
    })
}

/// Why exact evidence leaves a cause out before anything is changed; `None` if it is possible.
///
/// Only what a kernel counts, a packet train or the test itself says counts here.
pub fn ruled_out(cause: Cause, test: &Test, seen: &PlainRuns) -> Option<&'static str> {
    let is_udp = test.protocol == Protocol::Udp;
    let Traffic::Stream(stream) = &test.traffic else {
        return Some("the test transfers no bulk");
    };
    if !is_of_receiver(cause) && seen.has_closing_window() {
        return Some("the receiver's window had closed");
    }
    if !is_of_cpus(cause) && !is_outside(cause) && train_agrees(seen) {
        return Some("a train of datagrams was spread to the same rate");
    }
    match cause {
        Cause::Unexplained => Some("it is no cause"),
        Cause::ReceiveWindow | Cause::SendBuffer | Cause::Congestion | Cause::SegmentSize
            if is_udp =>
        {
            Some("UDP has none")
        }
        // A window that limits is full most of the time, at whatever place a pace holds the sender.
        Cause::ReceiveWindow => (seen.window_held_share.is_some_and(|share| share < 0.05))
            .then_some("the window was never full"),
        // What limits is the network, if as much waits for it in the buffer as is under way.
        Cause::SendBuffer => (seen.unsent_share.is_some_and(|share| share >= 1.0))
            .then_some("the buffer had more than the network took"),
        // What answers to losses has had none, and still there is a queue.
        Cause::Congestion => {
            let by_loss = seen.congestion.as_deref().is_some_and(|name| BY_LOSS.contains(&name));
            let queue = seen.queue_s().is_some_and(|queue| queue >= 3.0 * Watched::Queue.floor());
            (by_loss && queue && seen.never_lost == Some(true)).then_some("nothing was lost")
        }
        // What a packet of full size costs is the CPU's, or the rate of the router that counts it.
        Cause::SegmentSize => is_full_segment(seen).then_some("segments are full"),
        // Ten segments, doubled 25 times, are more than any path holds.
        Cause::Startup => {
            let rounds = test.seconds().zip(seen.rtt_s).map_or(0.0, |(time, rtt)| time / rtt);
            (is_udp || rounds >= 25.0).then_some("slow start was over")
        }
        Cause::Pacing => {
            let most = seen.max_pacing_bps.map(|most| most * f64::from(test.streams));
            let far = most.is_some_and(|most| most > seen.rate_bps * TWICE.high);
            (is_udp || far).then_some("no pace near the rate is set")
        }
        Cause::ApplicationSend => {
            stream.write_rate_bps.is_none().then_some("the test writes as fast as it can")
        }
        Cause::ApplicationReceive if !seen.can_hold_window && !is_udp => reader_ruled_out(seen),
        Cause::ApplicationReceive => {
            stream.read_rate_bps.is_none().then_some("the test reads as fast as it can")
        }
        Cause::CpuSend | Cause::CpuReceive | Cause::CpuHost => cpu_ruled_out(cause, seen),
        Cause::QosClass => {
            (seen.is_class_full == Some(false)).then_some("no class of the sender's host was full")
        }
        Cause::AsAsked => {
            (!is_udp || stream.rate_bps.is_none()).then_some("the test asks for no rate")
        }
        Cause::PathRate | Cause::Policer if seen.is_class_full == Some(true) => {
            Some("a class of the sender's host was full")
        }
        Cause::PathRate | Cause::Policer => path_ruled_out(cause, seen),
    }
}

/// The causes that close the receiver's window, or make it small.
fn is_of_receiver(cause: Cause) -> bool {
    use Cause::{ApplicationReceive, CpuHost, CpuReceive, ReceiveWindow};
    matches!(cause, ReceiveWindow | ApplicationReceive | CpuReceive | CpuHost)
}

/// A reader that is late has a full buffer, and its window closes until it holds the sender.
fn reader_ruled_out(seen: &PlainRuns) -> Option<&'static str> {
    let is_least = seen.window_over_cwnd.is_none_or(|ratio| ratio < 1.0);
    let open = seen.window_open_share.is_some_and(|share| share > 0.8);
    let why = open.then_some("the receiver's window stayed open");
    why.or((!is_least).then_some("the congestion window was smaller than the receiver's"))
}

fn is_of_cpus(cause: Cause) -> bool {
    matches!(cause, Cause::CpuSend | Cause::CpuReceive | Cause::CpuHost)
}

/// The causes on the way that all flows share.
pub(super) fn is_outside(cause: Cause) -> bool {
    matches!(cause, Cause::PathRate | Cause::Policer | Cause::QosClass)
}

/// Whether the rate is that of the slowest link, as a train of datagrams shows it: another limit
/// would have to be there by chance.
fn train_agrees(seen: &PlainRuns) -> bool {
    let ratio = seen.train_bps.map(|train| train / seen.rate_bps);
    ratio.is_some_and(|ratio| ratio > SAME.low && ratio < SAME.high)
}

/// Congestion controls that slow down for losses and marks alone.
const BY_LOSS: [&str; 2] = ["cubic", "reno"];

/// Payload of a segment that fills Ethernet's 1500 bytes, less what tunnels take, bytes.
const FULL_SEGMENT: f64 = 1200.0;

fn is_full_segment(seen: &PlainRuns) -> bool {
    seen.mss_bytes.is_some_and(|mss| mss >= FULL_SEGMENT)
}

/// Share of its time that a thread or core is busy at most if it has time left.
const IDLE: f64 = 0.7;

/// A thread that sleeps for three tenths of its time lacks no CPU, nor does a core that has three
/// tenths left of soft interrupts, also where a hypervisor takes a part unseen.
fn has_time(seen: &PlainRuns, end: usize) -> bool {
    let shares = seen.thread_shares[end].zip(seen.core_shares[end]);
    let is_idle = shares.is_some_and(|(thread, core)| thread < IDLE && core < IDLE);
    // How long a server's threads waited for a CPU is not known: one that takes so little would
    // have to wait twenty times as long as it runs.
    is_idle || seen.process_shares[end].is_some_and(|share| share < 0.05)
}

/// Where all CPUs of a host are full, they are the cause and not one of them.
fn cpu_ruled_out(cause: Cause, seen: &PlainRuns) -> Option<&'static str> {
    const FULL: f64 = 0.95;
    let is_full = |end: usize| seen.host_shares[end].is_some_and(|share| share >= FULL);
    let one = |end: usize| {
        let idle = has_time(seen, end).then_some("its CPUs had time left");
        idle.or(is_full(end).then_some("all CPUs of its host were full"))
    };
    match cause {
        Cause::CpuSend => one(0),
        Cause::CpuReceive => one(1),
        _ => {
            let left = |share: &Option<f64>| share.is_some_and(|share| share < 0.8);
            let have_left =
                seen.host_shares.iter().all(left) || (has_time(seen, 0) && has_time(seen, 1));
            have_left.then_some("the hosts had CPUs left")
        }
    }
}

/// A link drops what its queue has no room for, so that there is one: by Little's law the excess of
/// the round trip times the rate. One segment is what a link takes to send it, which the smallest
/// RTT, of the handshake, has not got; a policer drops at that. One loss in a hundred segments is
/// more than random ones mostly are.
fn loses_without_a_queue(seen: &PlainRuns) -> bool {
    const LOST: f64 = 0.01;
    const SEGMENTS: f64 = 2.0;
    let bytes = seen.queue_s().map(|queue| queue * seen.rate_bps / 8.0);
    let segments = bytes.zip(seen.mss_bytes).map(|(bytes, mss)| bytes / mss);
    let lost = seen.retransmitted_share.is_some_and(|share| share >= LOST);
    lost && segments.is_some_and(|waiting| waiting < SEGMENTS)
}

/// A train of datagrams, sent back to back, arrives at the rate of the slowest link; a bucket lets
/// it through as it is.
fn path_ruled_out(cause: Cause, seen: &PlainRuns) -> Option<&'static str> {
    let train = seen.train_bps.map(|train| train / seen.rate_bps);
    let has_queue = seen.queue_s().is_none_or(|queue| queue >= 3.0 * Watched::Queue.floor());
    match cause {
        // A shaper has a bucket and a queue.
        Cause::PathRate if train.is_some_and(|train| train > 1.5) && !has_queue => {
            Some("a train of datagrams went through faster, and there was no queue")
        }
        Cause::PathRate => loses_without_a_queue(seen)
            .then_some("segments were lost, and no more than one waited on the path"),
        // One that left more slowly says nothing.
        _ if train.is_some_and(|train| train > SAME.low && train < APART) => {
            Some("a train of datagrams was spread to the same rate")
        }
        // BBR loses nothing once it has found the rate. Where the start is not known: a fifth of
        // the least that is a policer's (`ceilings/thresholds.rs`, `POLICER_LOSS`).
        _ => {
            let few = seen.retransmitted_share.map(|share| share < 1e-4);
            (seen.never_lost.or(few) == Some(true)).then_some("nothing was lost")
        }
    }
}
