//! Predicts the effect of a remedy: the lowest limit that stays when the cause is lifted.
//!
//! A prediction uses only limits that stay: links, rates and sizes that were set, the largest
//! buffers that the kernel's tuning may reach, random losses. It does not use what the course of
//! the run made: idle threads, a congestion window that was not filled, the delivery rate of a
//! queue, the buffers of slow start, the CPU time of small segments.

use super::causes::{full_buffers_bps, whole_buffers_bps, with_cubic};
use super::formulas::{ETHERNET_BYTES, ETHERNET_HEADER_BYTES};
use super::remedy::{better_congestion_control, fixes_both_buffers};
use super::signals::ThreadTime;
use super::small_segments::full_segment;
use super::text::bps;
use super::thresholds::{CPU_CONTENDED, MIN_NEXT, PACKET_IN_BYTES, PREDICTED_TIMES, THREAD_FULL};
use super::view::{TcpFlow, View};
use super::{Cause, Ceiling};
use crate::plan::Protocol;
use crate::units::BitRate;

/// The limit that holds the run back once the cause is lifted.
#[derive(Debug)]
pub(super) struct Next {
    pub(super) cause: Cause,
    /// Payload, bits/s.
    pub(super) limit_bps: f64,
    /// Whether the run will reach it; else it is an upper limit.
    pub(super) is_promised: bool,
}

impl Next {
    /// The rate that a remedy must allow, bits/s. A large maximum for the kernel's tuning costs
    /// nothing before it is used; a buffer that an application fixes is not made larger than can be
    /// predicted.
    pub(super) fn target_bps(&self, view: &View<'_>, lifted: Cause) -> f64 {
        let is_fixed = match lifted {
            Cause::ReceiveWindow => view.tcp.iter().any(TcpFlow::has_fixed_window),
            _ => view.tcp.iter().any(|flow| flow.tcp.send_buffer_locked),
        };
        match self.cause {
            Cause::ReceiveWindow | Cause::SendBuffer if is_fixed => {
                self.limit_bps.min(PREDICTED_TIMES * view.throughput_bps)
            }
            Cause::SendBuffer => whole_buffers_bps(view).unwrap_or(self.limit_bps),
            _ => self.limit_bps,
        }
    }

    /// A sentence on the upper limit, if it is no prediction.
    pub(super) fn at_most(&self) -> Option<String> {
        (!self.is_promised).then(|| {
            format!(
                "how much the remedy brings is not known; {} lets no more than {} through",
                self.cause.words(),
                bps(self.limit_bps)
            )
        })
    }
}

/// The rate that a remedy must allow, if it is known, bits/s: that of the path, or that asked of
/// the applications. Other limits can be lifted as well, one after the other.
pub(super) fn known_rate(view: &View<'_>, current: &Ceiling, all: &[Ceiling]) -> Option<f64> {
    all.iter()
        .filter(|ceiling| is_link(ceiling))
        .map(|ceiling| (ceiling.cause, limit_then(view, current.cause, ceiling)))
        .chain(asked_rates(view))
        .filter(|(cause, _)| *cause != current.cause)
        .map(|(_, limit)| limit)
        .filter(|limit| *limit >= MIN_NEXT * view.throughput_bps)
        .min_by(f64::total_cmp)
}

/// The lowest limit besides `current` that stays. A limit that seems clearly lower than the
/// measured rate is not known well enough.
pub(super) fn next(view: &View<'_>, current: &Ceiling, ceilings: &[Ceiling]) -> Option<Next> {
    let lifted = current.cause;
    let (cause, limit_bps) = ceilings
        .iter()
        .filter(|ceiling| lasts(view, lifted, ceiling))
        .map(|ceiling| (ceiling.cause, limit_then(view, lifted, ceiling)))
        .chain(asked_rates(view))
        .filter(|(cause, _)| !is_lifted(view, lifted, *cause))
        .chain(of_remedy(view, lifted))
        .filter(|(_, limit)| *limit >= MIN_NEXT * view.throughput_bps)
        .min_by(|a, b| a.1.total_cmp(&b.1))?;
    Some(Next { cause, limit_bps, is_promised: cpus_carry(view, lifted, ceilings, limit_bps) })
}

/// If no next limit is known, a remedy aims at so many times the measured rate. Buffers that the
/// run has fixed cost nothing before they are used.
pub(super) fn unknown_times(view: &View<'_>, lifted: Cause) -> f64 {
    if is_buffer(lifted) && fixes_both_buffers(view) { PREDICTED_TIMES } else { UNKNOWN_NEXT }
}

/// Whether the remedy lifts this cause, too: both buffers go together if the run has fixed both.
fn is_lifted(view: &View<'_>, lifted: Cause, cause: Cause) -> bool {
    cause == lifted || (is_buffer(cause) && is_buffer(lifted) && fixes_both_buffers(view))
}

fn is_buffer(cause: Cause) -> bool {
    [Cause::ReceiveWindow, Cause::SendBuffer].contains(&cause)
}

/// Whether a ceiling stays when the cause is lifted.
fn lasts(view: &View<'_>, lifted: Cause, ceiling: &Ceiling) -> bool {
    let in_slow_start = lifted == Cause::Startup;
    match ceiling.cause {
        // The rate of a queue is what other causes allow.
        Cause::PathRate | Cause::ApplicationSend => ceiling.independent,
        Cause::Pacing | Cause::AsAsked => true,
        Cause::ReceiveWindow => {
            !in_slow_start || view.tcp.iter().all(|flow| flow.has_fixed_window())
        }
        Cause::SendBuffer => {
            !in_slow_start || view.tcp.iter().all(|flow| flow.tcp.send_buffer_locked)
        }
        Cause::Congestion => ceiling.independent && view.losses_are_random(),
        _ => false,
    }
}

/// The ceiling after the remedy: larger segments have a larger share of a link, and nothing waits
/// in a send buffer for the pace that another cause had kept low.
fn limit_then(view: &View<'_>, lifted: Cause, ceiling: &Ceiling) -> f64 {
    if ceiling.cause == Cause::SendBuffer {
        return full_buffers_bps(view).unwrap_or(ceiling.limit_bps);
    }
    let grown = || {
        let share = ceiling.inputs.get("payload_share")?;
        let framing = if ceiling.inputs.contains_key("train_link_bps") {
            ETHERNET_HEADER_BYTES
        } else {
            ETHERNET_BYTES
        };
        Some(view.segment_share(full_segment(view)?, framing)? / share)
    };
    let grows = lifted == Cause::SegmentSize && ceiling.cause == Cause::PathRate;
    ceiling.limit_bps * grows.then(grown).flatten().unwrap_or(1.0)
}

/// The rates that linerate's own writer and reader were asked to keep to.
fn asked_rates(view: &View<'_>) -> impl Iterator<Item = (Cause, f64)> {
    let stream = view.stream().filter(|_| view.protocol != Protocol::Udp);
    let flows = view.flow_count() as f64;
    let rates = stream.map(|stream| {
        [
            (Cause::ApplicationSend, stream.write_rate_bps),
            (Cause::ApplicationReceive, stream.read_rate_bps),
        ]
    });
    let all = move |(cause, rate): (Cause, Option<BitRate>)| Some((cause, rate?.0 as f64 * flows));
    rates.into_iter().flatten().filter_map(all)
}

/// The limit that the remedy itself sets.
fn of_remedy(view: &View<'_>, lifted: Cause) -> Option<(Cause, f64)> {
    match lifted {
        Cause::SegmentSize => full_segments(view),
        Cause::Congestion => match better_congestion_control(view)? {
            "cubic" => Some((Cause::Congestion, with_cubic(view)?)),
            _ => None,
        },
        _ => None,
    }
}

/// The same CPUs with full segments. Each costs what a packet does, and its bytes: of the two the
/// packet is by far the most of a small one.
fn full_segments(view: &View<'_>) -> Option<(Cause, f64)> {
    let small = view.mss()?;
    let full = full_segment(view)?;
    let cost = (PACKET_IN_BYTES + full) / (PACKET_IN_BYTES + small);
    let wants = |time: Option<ThreadTime>| time.map_or(0.0, |time| time.running + time.delayed);
    let cause = if wants(view.writer()) >= wants(view.reader()) {
        Cause::CpuSend
    } else {
        Cause::CpuReceive
    };
    Some((cause, view.throughput_bps * full / small / cost))
}

/// Whether the CPUs of both ends are known to reach a rate, at the cost of a byte in this run. The
/// effect of a remedy for the CPU itself is not known. For a rate far above the measured one, the
/// time of both ends' threads must suffice, the run must have been held by a single figure, and the
/// link must be known.
fn cpus_carry(view: &View<'_>, lifted: Cause, ceilings: &[Ceiling], limit_bps: f64) -> bool {
    let of_cpu = |cause| [Cause::CpuSend, Cause::CpuReceive, Cause::CpuHost].contains(&cause);
    let reached = |ceiling: &Ceiling| !of_cpu(ceiling.cause) || ceiling.limit_bps >= limit_bps;
    let is_known = match lifted {
        Cause::SegmentSize => !is_cpu_taken(view),
        _ => ceilings.iter().all(reached),
    };
    let times = limit_bps / view.throughput_bps;
    let carries =
        |thread: Option<ThreadTime>| thread.is_some_and(|time| time.running * times <= THREAD_FULL);
    let is_figure = [Cause::ReceiveWindow, Cause::SendBuffer, Cause::Pacing].contains(&lifted);
    let knows_link = ceilings.iter().any(is_link);
    let far = || is_figure && knows_link && carries(view.writer()) && carries(view.reader());
    is_known && !of_cpu(lifted) && (times <= PREDICTED_TIMES || far())
}

/// Whether others have a part of the CPU of the busier end: what they will leave it in the next run
/// is not known. Where it waited for 0.24 to 0.50 of the time, full segments brought half of what
/// their cost promised; on quiet hosts it waits for 0.19 and less.
fn is_cpu_taken(view: &View<'_>) -> bool {
    let wanted = |time: &ThreadTime| time.running + time.delayed;
    let ends = [view.writer(), view.reader()].into_iter().flatten();
    let busier = ends.max_by(|a, b| wanted(a).total_cmp(&wanted(b)));
    busier.is_some_and(|time| time.delayed >= CPU_CONTENDED)
}

/// Whether a ceiling is the rate of a link, independent of the run.
fn is_link(ceiling: &Ceiling) -> bool {
    ceiling.cause == Cause::PathRate && ceiling.independent
}

/// Multiple of the measured rate that a remedy aims at if no next limit is known.
pub(super) const UNKNOWN_NEXT: f64 = 2.0;
