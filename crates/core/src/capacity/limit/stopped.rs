//! The limit at which a run ended.

use super::super::half::{CapacityHalf, Failure, FailureCause, HeldCounts};
use super::remedy::{self, Wanted};
use super::{LimitEnd, LimitKind, LimitRow, LimitView, StoppedBy};
use crate::capacity::PoolResult;
use crate::record::Status;

/// The limit that ended the run; `None` where all connections were opened and stayed, or where a
/// user ended the run.
pub(super) fn by(view: &LimitView<'_>, limits: &[LimitRow]) -> Option<StoppedBy> {
    let kept = view.pool().is_some_and(|pool| pool.alive >= pool.asked);
    let mut halves = view.halves();
    let failed = halves.any(|(_, half)| failures(view, half).next().is_some());
    let was_ended = view.document.status == Status::Partial && !failed;
    if kept || was_ended {
        return None;
    }
    let calls = |calls: &[(FailureCause, LimitKind)]| {
        let mut calls = calls.iter();
        calls.find_map(|(cause, limit)| call(view, *cause, *limit))
    };
    let found = calls(&CALLS)
        .or_else(|| RULES.iter().find_map(|rule| rule(view)))
        .or_else(|| calls(&[(FailureCause::NotPermitted, LimitKind::Forbidden)]));
    let Some(LimitFinding(limit, end, mut evidence)) = found else {
        return Some(StoppedBy {
            limit: LimitKind::Unknown,
            end: None,
            at: view.held,
            evidence: failures_in_words(view),
            remedy: None,
        });
    };
    let mut rows = limits.iter().filter(|row| row.limit == limit);
    let row = rows.find(|row| row.end == end || row.end == LimitEnd::Both);
    evidence.extend(row.map(of_row));
    Some(StoppedBy {
        limit,
        end: Some(end),
        at: view.held,
        evidence,
        remedy: remedy::of(limit, end, &Wanted::asked(view), view),
    })
}

/// The finding of a rule: the limit, its end, and the evidence.
struct LimitFinding(LimitKind, LimitEnd, Vec<String>);

/// Causes that name a limit by themselves: they are examined first.
const CALLS: [(FailureCause, LimitKind); 4] = [
    (FailureCause::Descriptors, LimitKind::ProcessDescriptors),
    (FailureCause::Files, LimitKind::HostFiles),
    (FailureCause::Ports, LimitKind::Ports),
    (FailureCause::Watches, LimitKind::Watches),
];

/// Rules that are tried next: full tables, then counters.
const RULES: [fn(&LimitView<'_>) -> Option<LimitFinding>; 4] = [memory, owner, conntrack, queues];

/// A limit that a failure names. The endpoint's failures come first: they cause the client's.
fn call(view: &LimitView<'_>, cause: FailureCause, limit: LimitKind) -> Option<LimitFinding> {
    let (end, count) = failed_at(view, cause)?;
    Some(LimitFinding(limit, end, vec![told(end, cause, count)]))
}

/// The memory limit at which a run stopped.
fn memory(view: &LimitView<'_>) -> Option<LimitFinding> {
    let causes = [FailureCause::Memory, FailureCause::Buffers];
    let told_memory = causes.into_iter().find_map(|cause| {
        failed_at(view, cause).map(|(end, count)| (end, told(end, cause, count)))
    });
    // A process that the kernel has killed for want of memory says nothing any more.
    let lost = || {
        let (end, count) = failed_at(view, FailureCause::WorkerLost)?;
        full_group(view.half(end)?)?;
        Some((end, told(end, FailureCause::WorkerLost, count)))
    };
    let aborted = || {
        let count_of = |half: &CapacityHalf| counter(half, "TCPAbortOnMemory");
        let mut halves = view.halves();
        let (end, count) = halves.find_map(|(end, half)| Some((end, count_of(half)?)))?;
        let words = format!("TCPAbortOnMemory rose by {count} at {}", name(end));
        Some((end, words))
    };
    let (end, first) = told_memory.or_else(lost).or_else(aborted)?;
    let half = view.half(end)?;
    let (limit, second) = match (full_group(half), full_buffers(view, half)) {
        (Some(words), _) => (LimitKind::GroupMemory, Some(words)),
        (None, Some((limit, words))) => (limit, Some(words)),
        (None, None) => (LimitKind::HostMemory, None),
    };
    let evidence = [first].into_iter().chain(second).collect();
    Some(LimitFinding(limit, end, evidence))
}

fn full_group(half: &CapacityHalf) -> Option<String> {
    let most = half.limits.cgroup_bytes?;
    let used = half.memory.height.cgroup_bytes?;
    is_full(used, most).then(|| format!("the control group has {used} of {most} B"))
}

fn full_buffers(view: &LimitView<'_>, half: &CapacityHalf) -> Option<(LimitKind, String)> {
    let buffers = view.buffers(half)?;
    let (used, most) = (buffers.height?, buffers.most);
    let words = format!("buffers take {used} of the {most} pages of {}", buffers.key);
    is_full(used, most).then_some((buffers.limit, words))
}

fn owner(view: &LimitView<'_>) -> Option<LimitFinding> {
    let server = view.document.server.as_ref()?;
    let most = server.limits.owner_connections?;
    let is_reached = view.asked > most && view.held >= most.min(view.asked);
    let evidence = vec![format!("the endpoint allows a client {most}")];
    is_reached.then_some(LimitFinding(LimitKind::Owner, LimitEnd::Server, evidence))
}

fn conntrack(view: &LimitView<'_>) -> Option<LimitFinding> {
    let full = |(end, half): (LimitEnd, &CapacityHalf)| {
        let most = half.limits.conntrack?;
        let used = half.memory.height.conntrack?;
        let words = format!("netfilter tracks {used} of {most} at {}", name(end));
        is_full(used, most).then_some(LimitFinding(LimitKind::Conntrack, end, vec![words]))
    };
    view.halves().find_map(full)
}

/// A SYN or an acknowledgement that is dropped is retransmitted, and the client gives up at last.
fn queues(view: &LimitView<'_>) -> Option<LimitFinding> {
    let server = view.document.server.as_ref()?;
    let mut unanswered =
        [FailureCause::TimedOut, FailureCause::Reset, FailureCause::Refused].into_iter();
    let (cause, count) = unanswered.find_map(|cause| Some((cause, failed_at(view, cause)?.1)))?;
    let table = [
        ("TCPReqQFullDrop", LimitKind::SynQueue),
        ("ListenOverflows", LimitKind::AcceptQueue),
        ("ListenDrops", LimitKind::AcceptQueue),
        ("TCPTimeWaitOverflow", LimitKind::TimeWait),
    ];
    table.into_iter().find_map(|(key, limit)| {
        let rose = counter(server, key)?;
        let rose = format!("{key} rose by {rose} at the endpoint");
        let evidence = vec![told(LimitEnd::Client, cause, count), rose];
        Some(LimitFinding(limit, LimitEnd::Server, evidence))
    })
}

/// The failures, where no rule knows the limit.
fn failures_in_words(view: &LimitView<'_>) -> Vec<String> {
    let mut all = Vec::new();
    for (end, half) in view.halves() {
        all.extend(failures(view, half).map(|failure| told(end, failure.cause, failure.count)));
    }
    all
}

/// The end at which calls failed for a cause, and the number of failures.
fn failed_at(view: &LimitView<'_>, cause: FailureCause) -> Option<(LimitEnd, u64)> {
    let mut ends: Vec<_> = view.halves().collect();
    ends.reverse();
    ends.into_iter().find_map(|(end, half)| {
        let of_cause = failures(view, half).filter(|failure| failure.cause == cause);
        let count = of_cause.fold(0_u64, |sum, failure| sum.saturating_add(failure.count));
        (count > 0).then_some((end, count))
    })
}

/// The failures to open, and the losses, of an end.
fn failures<'a>(view: &LimitView<'_>, half: &'a CapacityHalf) -> impl Iterator<Item = &'a Failure> {
    let counts: &HeldCounts = if view.is_tcp { &half.tcp } else { &half.udp };
    counts.failures.iter().chain(&counts.lost)
}

impl LimitView<'_> {
    fn pool(&self) -> Option<&PoolResult> {
        if self.is_tcp { self.document.tcp.as_ref() } else { self.document.udp.as_ref() }
    }

    fn half(&self, end: LimitEnd) -> Option<&CapacityHalf> {
        match end {
            LimitEnd::Client | LimitEnd::Both => Some(&self.document.client),
            LimitEnd::Server => self.document.server.as_ref(),
        }
    }
}

fn counter(half: &CapacityHalf, key: &str) -> Option<i64> {
    half.counters.get(key).copied().filter(|rose| *rose > 0)
}

/// The height is read a moment after the limit was met, and closing may have begun.
fn is_full(used: u64, most: u64) -> bool {
    used as f64 >= most as f64 * FULL
}

const FULL: f64 = 0.95;

fn of_row(row: &LimitRow) -> String {
    match row.used {
        Some(used) => format!("{used} of {} {} in use: {}", row.value, row.unit, row.formula),
        None => format!("{} {}: {}", row.value, row.unit, row.formula),
    }
}

fn told(end: LimitEnd, cause: FailureCause, count: u64) -> String {
    let times = match count {
        1 => "once".to_owned(),
        several => format!("{several} times"),
    };
    format!("{times} at {}: {}", name(end), cause.words())
}

pub(super) fn name(end: LimitEnd) -> &'static str {
    match end {
        LimitEnd::Client => "this host",
        LimitEnd::Server => "the endpoint",
        LimitEnd::Both => "the one host of both ends",
    }
}
