//! Chooses the cause that holds a direction back, and predicts what its remedy brings.

use super::causes::{RULES, Rule, Signs, full_buffers_bps, whole_buffers_bps, with_cubic};
use super::confidence::{LEAST_MARGIN, Votes, caution, confidence};
use super::formulas::{ETHERNET_BYTES, ETHERNET_HEADER_BYTES};
use super::remedy::{better_congestion_control, fixes_both_buffers};
use super::signals::ThreadTime;
use super::small_segments::full_segment;
use super::thresholds::{CPU_CONTENDED, MIN_NEXT, PACKET_IN_BYTES, PREDICTED_TIMES, THREAD_FULL};
use super::view::{TcpFlow, View, bps, percent};
use super::{Cause, Ceiling, Explained, Verdict};
use crate::plan::Protocol;
use crate::record::RunnerUp;
use crate::remedy::{LookObject, Remedy, Run, RunOption};
use crate::units::BitRate;

/// A cause with its ceiling and its evidence in this direction.
struct Candidate {
    rule: &'static Rule,
    ceiling: Option<Ceiling>,
    signs: Option<Signs>,
}

impl Candidate {
    fn all(view: &View<'_>) -> Vec<Self> {
        RULES.iter().map(|rule| Self::of(rule, view)).collect()
    }

    fn of(rule: &'static Rule, view: &View<'_>) -> Self {
        let signs = (rule.signs)(view);
        let ceiling = (rule.ceiling)(view).filter(is_finite);
        let evidence = signs.iter().flat_map(|signs| signs.say.clone()).collect();
        let ceiling = ceiling.map(|ceiling| Ceiling { cause: rule.cause, evidence, ..ceiling });
        Self { rule, ceiling, signs }
    }

    fn holds(&self) -> bool {
        self.signs.as_ref().is_some_and(|signs| signs.hold)
    }

    fn is_found(&self, view: &View<'_>) -> bool {
        self.holds() && self.confirmed(view)
    }

    fn confirmed(&self, view: &View<'_>) -> bool {
        let signs = self.signs.as_ref().map_or(0.0, |signs| signs.tolerance);
        let tolerance = self.rule.tolerance.max(signs);
        self.ceiling.as_ref().is_some_and(|c| agrees(view.throughput_bps, c.limit_bps, tolerance))
    }
}

/// Whether a measured rate is within `tolerance` of a ceiling, as a share of the ceiling.
pub fn agrees(measured_bps: f64, limit_bps: f64, tolerance: f64) -> bool {
    // A rate at the very edge must not depend on the last bit of a division.
    const ROUNDING: f64 = 1e-9;
    (measured_bps / limit_bps - 1.0).abs() <= tolerance + ROUNDING
}

/// Explains one direction; the remedies have no commands yet.
pub(crate) fn explain(view: &View<'_>) -> Explained {
    let candidates = Candidate::all(view);
    let ceilings = sorted(&candidates);
    let found = found(view, &candidates);
    let cause = found.map_or(Cause::Unexplained, |candidate| candidate.rule.cause);
    let votes = Votes::new(view, cause_alone);
    let margin = votes.share(cause);
    let most_sure = view.most_sure(cause);
    let next = votes.next(cause);
    let of_cause = |cause| candidates.iter().find(|other| other.rule.cause == cause);
    let mut verdict = match found.zip(found.and_then(|found| found.ceiling.as_ref())) {
        Some((found, ceiling)) if margin.min(most_sure) >= LEAST_MARGIN => Verdict {
            confidence: confidence(view, found.rule.basis, margin).map(|sure| sure.min(most_sure)),
            ..verdict(view, found, ceiling, &ceilings)
        },
        _ => unexplained(view, &candidates),
    };
    if verdict.confidence.is_some() {
        verdict.evidence.extend(caution(view));
    }
    // A cause that was found and is not sure enough comes nearest.
    let is_sure = verdict.cause == cause;
    let nearest = found.filter(|_| !is_sure);
    let runner_up =
        nearest.or_else(|| next.and_then(of_cause)).or_else(|| runner_up(view, &candidates, cause));
    let tell_apart = if verdict.cause == Cause::Unexplained && black_hole(view).is_some() {
        Remedy::look(LookObject::PathMtu, None)
    } else {
        tell_apart(view, runner_up, verdict.cause)
    };
    verdict.runner_up = Some(RunnerUp {
        cause: runner_up.map_or(Cause::Unexplained, |candidate| candidate.rule.cause),
        tell_apart,
    });
    Explained { direction: view.direction, verdict, ceilings }
}

/// The verdict that a cause has which was found in another way; what the rules know of it is in the
/// evidence.
pub(super) fn explain_as(view: &View<'_>, cause: Cause) -> Verdict {
    let candidates = Candidate::all(view);
    let found = candidates.iter().find(|candidate| candidate.rule.cause == cause);
    let Some(found) = found else {
        return unexplained(view, &candidates);
    };
    match &found.ceiling {
        Some(ceiling) if found.confirmed(view) => {
            verdict(view, found, ceiling, &sorted(&candidates))
        }
        _ => Verdict {
            cause,
            evidence: found.signs.iter().flat_map(|signs| signs.say.clone()).collect(),
            remedy: (found.rule.remedy)(view, UNKNOWN_NEXT * view.throughput_bps),
            ..Verdict::default()
        },
    }
}

impl Verdict {
    /// The verdict with the commands of its remedies, for this run.
    pub(crate) fn typed(mut self, run: &Run<'_>) -> Self {
        self.remedy = self.remedy.map(|remedy| remedy.typed(Some(run)));
        self.runner_up = self
            .runner_up
            .map(|next| RunnerUp { tell_apart: next.tell_apart.typed(Some(run)), ..next });
        self
    }
}

/// The first cause whose evidence holds and whose ceiling agrees.
fn found<'a>(view: &View<'_>, candidates: &'a [Candidate]) -> Option<&'a Candidate> {
    candidates.iter().find(|candidate| candidate.is_found(view))
}

/// The cause of [`found`], with no work on the rules behind it.
fn cause_alone(view: &View<'_>) -> Cause {
    let mut candidates = RULES.iter().map(|rule| Candidate::of(rule, view));
    let found = candidates.find(|candidate| candidate.is_found(view));
    found.map_or(Cause::Unexplained, |found| found.rule.cause)
}

/// The other cause that comes nearest: evidence counts more than a ceiling that agrees.
fn runner_up<'a>(
    view: &View<'_>,
    candidates: &'a [Candidate],
    found: Cause,
) -> Option<&'a Candidate> {
    let others = candidates.iter().filter(|other| other.rule.cause != found);
    let points = |other: &Candidate| u8::from(other.holds()) * 2 + u8::from(other.confirmed(view));
    let scored = others.map(|other| (points(other), other));
    let best = scored.min_by_key(|(points, _)| std::cmp::Reverse(*points));
    best.filter(|(points, _)| *points > 0).map(|(_, other)| other)
}

/// The next run: if the runner-up is the cause, its change makes the run faster. For causes that no
/// option lifts it is the run that shows them.
fn tell_apart(view: &View<'_>, runner_up: Option<&Candidate>, found: Cause) -> Remedy {
    let cause = runner_up.map(|candidate| candidate.rule.cause);
    let look = |object| Remedy::look(object, None);
    let of_cpu = [Cause::CpuSend, Cause::CpuReceive, Cause::CpuHost];
    let of_path = [Cause::PathRate, Cause::Policer];
    let own = runner_up.and_then(|candidate| {
        let remedy = (candidate.rule.remedy)(view, UNKNOWN_NEXT * view.throughput_bps)?;
        let faster = format!("if faster: {}", candidate.rule.cause.name());
        lifts(candidate.rule.cause, Some(&remedy)).then(|| remedy.because(faster))
    });
    match cause {
        Some(cause) if of_cpu.contains(&cause) => look(LookObject::CpuTime),
        None if found == Cause::Unexplained => look(LookObject::CpuTime),
        Some(cause) if of_path.contains(&cause) && !of_path.contains(&found) => {
            let flows = 4 * view.flow_count();
            let slower = format!("if no faster: {}", cause.name());
            Remedy::option(RunOption::Streams, flows).because(slower)
        }
        _ => own.unwrap_or_else(|| look(LookObject::Path)),
    }
}

fn is_finite(ceiling: &Ceiling) -> bool {
    let inputs = ceiling.inputs.values().all(|value| value.is_finite());
    inputs && ceiling.limit_bps.is_finite() && ceiling.limit_bps > 0.0
}

fn sorted(candidates: &[Candidate]) -> Vec<Ceiling> {
    let mut ceilings: Vec<Ceiling> = candidates.iter().filter_map(|c| c.ceiling.clone()).collect();
    ceilings.sort_by(|a, b| {
        let order = a.limit_bps.total_cmp(&b.limit_bps);
        order.then(a.cause.cmp(&b.cause))
    });
    ceilings
}

fn verdict(
    view: &View<'_>,
    candidate: &Candidate,
    ceiling: &Ceiling,
    ceilings: &[Ceiling],
) -> Verdict {
    let measured = view.throughput_bps;
    let next = next(view, ceiling, ceilings);
    let target = known_rate(view, ceiling, ceilings).unwrap_or_else(|| {
        let next = next.as_ref().map(|next| next.target_bps(view, ceiling.cause));
        next.unwrap_or(measured * unknown_times(view, ceiling.cause))
    });
    let mut evidence = ceiling.evidence.clone();
    evidence.push(confirmation(ceiling, measured));
    let remedy = (candidate.rule.remedy)(view, target);
    let next = next.filter(|_| lifts(ceiling.cause, remedy.as_ref()));
    evidence.extend(next.as_ref().and_then(Next::at_most));
    let promised = next.filter(|next| next.is_promised);
    Verdict {
        cause: ceiling.cause,
        share_of_ceiling: Some(measured / ceiling.limit_bps),
        evidence,
        remedy,
        predicted_bps: promised.as_ref().map(|next| next.limit_bps),
        next_cause: promised.map(|next| next.cause),
        ..Verdict::default()
    }
}

/// Whether a remedy lifts its cause. Remedies for a policer and a link avoid the losses and the
/// queue, but do not lift the limit; some remedies only show where the cause is.
fn lifts(cause: Cause, remedy: Option<&Remedy>) -> bool {
    remedy.is_some_and(Remedy::changes) && ![Cause::Policer, Cause::PathRate].contains(&cause)
}

fn confirmation(ceiling: &Ceiling, measured_bps: f64) -> String {
    let (rate, limit) = (bps(measured_bps), bps(ceiling.limit_bps));
    let share = percent(measured_bps / ceiling.limit_bps);
    if ceiling.independent {
        format!("{rate} is {share} of its ceiling of {limit}")
    } else {
        format!(
            "its ceiling of {limit} is derived from the measured rate and cannot confirm: the \
             evidence alone decides"
        )
    }
}

/// The verdict if no cause has both evidence that holds and a ceiling that agrees.
fn unexplained(view: &View<'_>, candidates: &[Candidate]) -> Verdict {
    let mut evidence: Vec<String> = candidates
        .iter()
        .filter(|candidate| candidate.holds())
        .map(|candidate| disagreement(view, candidate))
        .collect();
    evidence.extend(black_hole(view));
    if view.is_of_packets() && view.sends_one_by_one() {
        evidence.insert(0, ONE_BY_ONE.to_owned());
    }
    if evidence.is_empty() {
        let seen = if view.is_of_packets() { "the packets" } else { "what the kernels counted" };
        evidence.push(format!("no cause explains {seen}"));
    }
    if view.protocol != Protocol::Udp && !view.knows_sender() {
        evidence.push(SENDER_UNKNOWN.to_owned());
    }
    if view.datagrams_lost().is_none()
        && let Some(missing) = view.datagrams_missing().filter(|missing| *missing > 0.0)
    {
        evidence.push(format!("{} {LOSS_UNKNOWN}", percent(missing)));
    }
    evidence.extend(waits(view));
    Verdict { evidence, ..Verdict::default() }
}

/// That full-size segments get lost, every time, on connections whose small ones arrive: each flow
/// has named its session to the endpoint, and the control connection has lived to the end.
fn black_hole(view: &View<'_>) -> Option<String> {
    let is_stuck = |flow: &TcpFlow<'_>| {
        let again =
            flow.tcp.retransmitted_segments + flow.tcp.warm_up_retransmitted_segments.unwrap_or(0);
        let mss = u64::from(flow.tcp.mss_bytes);
        flow.bytes == 0 && again >= LOST_EACH_TIME && mss > 0 && flow.tcp.unacked_bytes >= mss
    };
    let is_all = view.asked.is_some() && view.total.0 == 0 && !view.tcp.is_empty();
    let mss = view.tcp.iter().map(|flow| flow.tcp.mss_bytes).min()?;
    (is_all && view.tcp.iter().all(is_stuck)).then(|| {
        format!(
            "of segments of {mss} bytes none arrived, however often they were sent, while small \
             packets passed: probably a link drops them and does not say so (an MTU black hole)"
        )
    })
}

/// Retransmissions without any answer: two of one segment are timeouts, since nothing behind it is
/// acknowledged that would bring another.
const LOST_EACH_TIME: u64 = 2;

/// Threads that waited for a CPU: then no limit of the path is reached, since a full window opens
/// only when somebody reads.
fn waits(view: &View<'_>) -> impl Iterator<Item = String> {
    let threads = [("sending", view.writer()), ("receiving", view.reader())];
    let waiting = threads.into_iter().filter_map(|(name, time)| {
        let time = time.filter(ThreadTime::waits_for_cpu)?;
        Some((name, percent(time.delayed)))
    });
    waiting
        .map(|(name, share)| format!("the {name} threads waited for a CPU for {share} of the time"))
}

fn disagreement(view: &View<'_>, candidate: &Candidate) -> String {
    let cause = candidate.rule.cause.words();
    let Some(ceiling) = &candidate.ceiling else {
        return format!("the evidence is for {cause}, but its ceiling cannot be computed");
    };
    format!(
        "the evidence is for {cause}, but {} is {} of its ceiling of {}",
        bps(view.throughput_bps),
        percent(view.throughput_bps / ceiling.limit_bps),
        bps(ceiling.limit_bps)
    )
}

const SENDER_UNKNOWN: &str =
    "what the sender's kernel says of TCP is not known: run linerate at both ends";

const ONE_BY_ONE: &str = "one segment is in flight at a time, and each waits for the reply to the \
                          one before: the program writes so, or its send buffer holds no more";

const LOSS_UNKNOWN: &str = "of the datagrams were lost, on the path or by the receiver's sockets: \
                            which, it takes linerate at both ends to tell";

// Prediction of a remedy's effect: the lowest limit that stays when the cause is lifted.

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
                "what the remedy would bring is not known; {} allows {} at most",
                self.cause.words(),
                bps(self.limit_bps)
            )
        })
    }
}

/// The rate that a remedy must allow, if it is known, bits/s: that of the path, or that asked of
/// the applications. Other limits can be lifted as well, one after the other.
fn known_rate(view: &View<'_>, current: &Ceiling, all: &[Ceiling]) -> Option<f64> {
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
///
/// A prediction uses only limits that stay: links, rates and sizes that were set, the largest
/// buffers that the kernel's tuning may reach, random losses. It does not use what the course of
/// the run made: idle threads, a congestion window that was not filled, the delivery rate of a
/// queue, the buffers of slow start, the CPU time of small segments.
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
    let is_carried =
        cpus_carry(view, lifted, ceilings, limit_bps) && path_carries(view, ceilings, limit_bps);
    Some(Next { cause, limit_bps, is_promised: is_carried })
}

/// If no next limit is known, a remedy aims at so many times the measured rate. Buffers that the
/// run has fixed cost nothing before they are used.
fn unknown_times(view: &View<'_>, lifted: Cause) -> f64 {
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

/// Whether the path is known to carry a rate: a packet train found its slowest link, which is then
/// among the limits, or data was delivered as fast. The device of a host tells nothing of the path
/// behind it.
fn path_carries(view: &View<'_>, ceilings: &[Ceiling], limit_bps: f64) -> bool {
    let delivered = view.sum(|flow| flow.tcp.delivery_rate_max_bps.map(|bps| bps as f64));
    ceilings.iter().any(|ceiling| ceiling.inputs.contains_key("train_link_bps"))
        || delivered.is_some_and(|delivered| delivered >= limit_bps)
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
const UNKNOWN_NEXT: f64 = 2.0;
