//! The limit at which a run ended.

use super::super::half::{CapacityHalf, Failure, FailureCause, HeldCounts};
use super::remedy::{self, Wanted};
use super::{LimitEnd, LimitKind, LimitRow, StoppedBy, View};
use crate::capacity::PoolResult;
use crate::record::Status;

/// What ended the run; `None` where all that was asked for was opened and stayed, or where somebody
/// ended it.
pub(super) fn by(view: &View<'_>, limits: &[LimitRow]) -> Option<StoppedBy> {
    let kept = view.pool().is_some_and(|pool| pool.alive >= pool.asked);
    let failed = view
        .halves()
        .any(|(_, half)| failures(view, half).next().is_some());
    let was_ended = view.document.status == Status::Partial && !failed;
    if kept || was_ended {
        return None;
    }
    let calls = |calls: &[(FailureCause, LimitKind)]| {
        calls
            .iter()
            .find_map(|(cause, limit)| call(view, *cause, *limit))
    };
    let found = calls(&CALLS)
        .or_else(|| RULES.iter().find_map(|rule| rule(view)))
        .or_else(|| calls(&[(FailureCause::NotPermitted, LimitKind::Forbidden)]));
    let found = found.unwrap_or_else(|| Found {
        limit: LimitKind::Unknown,
        end: None,
        evidence: unknown(view),
    });
    let wanted = Wanted::asked(view);
    let row = |end: LimitEnd| {
        let rows = limits.iter();
        let mut of_it = rows.filter(|row| row.limit == found.limit);
        of_it.find(|row| row.end == end || row.end == LimitEnd::Both)
    };
    let mut evidence = found.evidence;
    evidence.extend(found.end.and_then(row).map(of_row));
    let remedy = found
        .end
        .and_then(|end| remedy::of(found.limit, end, &wanted, view));
    Some(StoppedBy {
        limit: found.limit,
        end: found.end,
        at: view.held,
        evidence,
        remedy,
    })
}

/// The finding of a rule.
struct Found {
    limit: LimitKind,
    end: Option<LimitEnd>,
    evidence: Vec<String>,
}

/// Causes that name a limit by themselves: they are examined first.
const CALLS: [(FailureCause, LimitKind); 4] = [
    (FailureCause::Descriptors, LimitKind::ProcessDescriptors),
    (FailureCause::Files, LimitKind::HostFiles),
    (FailureCause::Ports, LimitKind::Ports),
    (FailureCause::Watches, LimitKind::Watches),
];

/// Rules that are tried next: full tables, then counters.
const RULES: [fn(&View<'_>) -> Option<Found>; 4] = [memory, owner, conntrack, queues];

/// Where several are told, the endpoint's comes first: its failures are the cause of the client's.
fn call(view: &View<'_>, cause: FailureCause, limit: LimitKind) -> Option<Found> {
    let (end, count) = failed_at(view, cause)?;
    Some(Found {
        limit,
        end: Some(end),
        evidence: vec![told(end, cause, count)],
    })
}

/// The memory limit at which a run stopped.
fn memory(view: &View<'_>) -> Option<Found> {
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
        let (end, count) = view
            .halves()
            .find_map(|(end, half)| Some((end, count_of(half)?)))?;
        Some((
            end,
            format!("TCPAbortOnMemory rose by {count} at {}", name(end)),
        ))
    };
    let (end, first) = told_memory.or_else(lost).or_else(aborted)?;
    let half = view.half(end)?;
    let (limit, second) = match (full_group(half), full_buffers(view, half)) {
        (Some(words), _) => (LimitKind::GroupMemory, Some(words)),
        (None, Some((limit, words))) => (limit, Some(words)),
        (None, None) => (LimitKind::HostMemory, None),
    };
    let evidence = [first].into_iter().chain(second).collect();
    Some(Found {
        limit,
        end: Some(end),
        evidence,
    })
}

fn full_group(half: &CapacityHalf) -> Option<String> {
    let most = half.limits.cgroup_bytes?;
    let used = half.memory.height.cgroup_bytes?;
    is_full(used, most).then(|| format!("the control group has {used} of {most} B"))
}

fn full_buffers(view: &View<'_>, half: &CapacityHalf) -> Option<(LimitKind, String)> {
    let buffers = view.buffers(half)?;
    let (used, most) = (buffers.height?, buffers.most);
    let words = format!("buffers take {used} of the {most} pages of {}", buffers.key);
    is_full(used, most).then_some((buffers.limit, words))
}

fn owner(view: &View<'_>) -> Option<Found> {
    let server = view.document.server.as_ref()?;
    let most = server.limits.owner_connections?;
    (view.asked > most && view.held >= most.min(view.asked)).then(|| Found {
        limit: LimitKind::Owner,
        end: Some(LimitEnd::Server),
        evidence: vec![format!("the endpoint allows a client {most}")],
    })
}

fn conntrack(view: &View<'_>) -> Option<Found> {
    let full = |(end, half): (LimitEnd, &CapacityHalf)| {
        let most = half.limits.conntrack?;
        let used = half.memory.height.conntrack?;
        is_full(used, most).then(|| Found {
            limit: LimitKind::Conntrack,
            end: Some(end),
            evidence: vec![format!(
                "netfilter tracks {used} of {most} at {}",
                name(end)
            )],
        })
    };
    view.halves().find_map(full)
}

/// A SYN or an acknowledgement that is dropped is retransmitted, and the client gives up at last.
fn queues(view: &View<'_>) -> Option<Found> {
    let server = view.document.server.as_ref()?;
    let unanswered = [
        FailureCause::TimedOut,
        FailureCause::Reset,
        FailureCause::Refused,
    ];
    let (cause, count) = unanswered
        .into_iter()
        .find_map(|cause| Some((cause, failed_at(view, cause)?.1)))?;
    let table = [
        ("TCPReqQFullDrop", LimitKind::SynQueue),
        ("ListenOverflows", LimitKind::AcceptQueue),
        ("ListenDrops", LimitKind::AcceptQueue),
        ("TCPTimeWaitOverflow", LimitKind::TimeWait),
    ];
    table.into_iter().find_map(|(key, limit)| {
        let rose = counter(server, key)?;
        Some(Found {
            limit,
            end: Some(LimitEnd::Server),
            evidence: vec![
                told(LimitEnd::Client, cause, count),
                format!("{key} rose by {rose} at the endpoint"),
            ],
        })
    })
}

/// The failures, where no rule knows the limit.
fn unknown(view: &View<'_>) -> Vec<String> {
    let mut all = Vec::new();
    for (end, half) in view.halves() {
        all.extend(failures(view, half).map(|failure| told(end, failure.cause, failure.count)));
    }
    all
}

/// The end at which calls failed for a cause, and the number of failures.
fn failed_at(view: &View<'_>, cause: FailureCause) -> Option<(LimitEnd, u64)> {
    let mut ends: Vec<_> = view.halves().collect();
    ends.reverse();
    ends.into_iter().find_map(|(end, half)| {
        let counts = failures(view, half).filter(|failure| failure.cause == cause);
        let count = counts
            .map(|failure| failure.count)
            .fold(0, u64::saturating_add);
        (count > 0).then_some((end, count))
    })
}

/// The failures to open, and the losses, of an end.
fn failures<'a>(view: &View<'_>, half: &'a CapacityHalf) -> impl Iterator<Item = &'a Failure> {
    let counts: &HeldCounts = if view.is_tcp { &half.tcp } else { &half.udp };
    counts.failures.iter().chain(&counts.lost)
}

impl View<'_> {
    fn pool(&self) -> Option<&PoolResult> {
        if self.is_tcp {
            self.document.tcp.as_ref()
        } else {
            self.document.udp.as_ref()
        }
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
        Some(used) => format!(
            "{used} of {} {} in use: {}",
            row.value, row.unit, row.formula
        ),
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
