//! Chooses the cause that holds a direction back.

use super::causes::{RULES, Rule, Signs};
use super::doubt::{Votes, confidence};
use super::prediction::{self, Next};
use super::signals::ThreadTime;
use super::text::{bps, percent};
use super::view::View;
use super::{Cause, Ceiling, Explained, Verdict};
use crate::plan::Protocol;
use crate::record::RunnerUp;
use crate::remedy::{LookObject, Remedy, Run, RunOption};

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
    let sure = confidence(votes.share(cause));
    let next = votes.next(cause);
    let of_cause = |cause| candidates.iter().find(|other| other.rule.cause == cause);
    let mut verdict = match found.zip(found.and_then(|found| found.ceiling.as_ref())) {
        Some((found, ceiling)) if sure >= UNEXPLAINED_BELOW => {
            Verdict { confidence: Some(sure), ..verdict(view, found, ceiling, &ceilings) }
        }
        _ => unexplained(view, &candidates),
    };
    // A cause that was found and is not sure enough comes nearest.
    let is_sure = verdict.cause == cause;
    let nearest = found.filter(|_| !is_sure);
    let runner_up =
        nearest.or_else(|| next.and_then(of_cause)).or_else(|| runner_up(view, &candidates, cause));
    verdict.runner_up = Some(RunnerUp {
        cause: runner_up.map_or(Cause::Unexplained, |candidate| candidate.rule.cause),
        tell_apart: tell_apart(view, runner_up, verdict.cause),
    });
    Explained { direction: view.direction, verdict, ceilings }
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
        let remedy = (candidate.rule.remedy)(view, prediction::UNKNOWN_NEXT * view.throughput_bps)?;
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
    let next = prediction::next(view, ceiling, ceilings);
    let target = prediction::known_rate(view, ceiling, ceilings).unwrap_or_else(|| {
        let next = next.as_ref().map(|next| next.target_bps(view, ceiling.cause));
        next.unwrap_or(measured * prediction::unknown_times(view, ceiling.cause))
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
    if evidence.is_empty() {
        evidence.push("the kernels' figures point to no cause".to_owned());
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
    "what the sender's kernel says of TCP is not known: it takes linerate at both ends";

const LOSS_UNKNOWN: &str = "of the datagrams were lost, on the path or by the receiver's sockets: \
                            which, it takes linerate at both ends to tell";

/// A verdict that is wrong as often as right is `unexplained`.
const UNEXPLAINED_BELOW: f64 = 0.5;
