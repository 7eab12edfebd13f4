//! Which limit stopped a capacity run and which one comes next, from the document alone.
//!
//! [`annotate`] fills in the document's `limits`, `next_limit` and `stopped_by`. A failed call
//! names its limit by itself (`EMFILE`, `EADDRNOTAVAIL`); where it only says that nobody answered,
//! the counters of both kernels do (a queue that overflowed, a table that was full). What neither
//! says stays [`LimitKind::Unknown`].

mod headroom;
mod remedy;
#[cfg(test)]
mod tests;

use remedy::Wanted;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;

use super::document::{CapacityDocument, CapacityHalf, Failure, FailureCause, HeldCounts};
use crate::capacity::PoolResult;
use crate::record::Status;
use crate::remedy::Remedy;

/// What bounds how many connections two ends can hold, or how fast they open.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum LimitKind {
    /// Descriptors that the worker processes may have open together (`RLIMIT_NOFILE` of each).
    ProcessDescriptors,
    /// Files that the host may have open (`fs.file-max`).
    HostFiles,
    /// Local ports of the client for each of its addresses and each port of the endpoint.
    Ports,
    /// Connections that the endpoint's owner allows.
    Owner,
    /// Connections that wait to be accepted (`net.core.somaxconn`).
    AcceptQueue,
    /// Connections whose handshake is not complete (`net.ipv4.tcp_max_syn_backlog`).
    SynQueue,
    /// Memory of TCP's buffers (`net.ipv4.tcp_mem`).
    TcpMemory,
    /// Memory of UDP's buffers (`net.ipv4.udp_mem`).
    UdpMemory,
    /// Memory of the control group (`memory.max`).
    GroupMemory,
    /// Memory of the host.
    HostMemory,
    /// Connections that netfilter tracks (`net.netfilter.nf_conntrack_max`).
    Conntrack,
    /// Descriptors that a user may watch by epoll (`fs.epoll.max_user_watches`).
    Watches,
    /// Connections that no process holds any more (`net.ipv4.tcp_max_orphans`).
    Orphans,
    /// Connections in TIME-WAIT (`net.ipv4.tcp_max_tw_buckets`).
    TimeWait,
    /// A firewall or another rule that forbids it.
    Forbidden,
    /// None that the evidence names.
    #[serde(other)]
    Unknown,
}

/// The end whose limit it is.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum LimitEnd {
    /// This host's.
    Client,
    /// The endpoint's.
    Server,
    /// The one host's on which both ends run.
    Both,
}

/// A limit of a host, and how far it is from the connections that were held.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LimitRow {
    /// The limit.
    pub limit: LimitKind,
    /// The end whose limit it is.
    pub end: LimitEnd,
    /// The limit, in `unit`.
    pub value: u64,
    /// How much of it was in use, by any process, while the most connections were open, in `unit`.
    /// Absent where that is not known.
    pub used: Option<u64>,
    /// Unit of `value` and `used`: descriptors, files, ports, connections, pages or bytes.
    pub unit: String,
    /// The number of connections (where only UDP sockets were asked for: of these) at which the
    /// next one would fail by it. Absent where the limit does not depend on how many are held.
    pub would_stop_at: Option<u64>,
    /// How `would_stop_at` is computed.
    pub formula: String,
    /// What to do to get further; absent where nothing helps.
    pub remedy: Option<Remedy>,
}

/// The limit that a run ended at.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StoppedBy {
    /// The limit.
    pub limit: LimitKind,
    /// The end whose limit it is; absent where that is not known.
    pub end: Option<LimitEnd>,
    /// The largest number of connections (or UDP sockets) that were open at once.
    pub at: u64,
    /// The observations that name the limit.
    pub evidence: Vec<String>,
    /// What to do about it; absent where nothing helps.
    pub remedy: Option<Remedy>,
}

/// Replaces the document's `limits`, `next_limit` and `stopped_by` by what its evidence says.
pub fn annotate(document: &mut CapacityDocument) {
    let view = LimitView::of(document);
    let limits = headroom::rows(&view);
    let stopped = stopped_by(&view, &limits);
    let next = limits.iter().find(|row| row.would_stop_at.is_some()).cloned();
    document.limits = limits;
    document.next_limit = next;
    document.stopped_by = stopped;
}

/// The evidence that a rule may use.
struct LimitView<'a> {
    document: &'a CapacityDocument,
    /// Whether TCP connections are counted: unless only UDP sockets were asked for.
    is_tcp: bool,
    /// Connections that were asked for.
    asked: u64,
    /// The most that were open at once.
    held: u64,
    /// Whether both ends run on one kernel.
    is_shared: bool,
}

impl<'a> LimitView<'a> {
    fn of(document: &'a CapacityDocument) -> Self {
        let is_tcp = document.tcp.is_some() || document.udp.is_none();
        let (pool, counts) = if is_tcp {
            (document.tcp.as_ref(), &document.client.tcp)
        } else {
            (document.udp.as_ref(), &document.client.udp)
        };
        let (asked, opened) = pool.map_or((0, 0), |pool| (pool.asked, pool.opened));
        Self {
            document,
            is_tcp,
            asked,
            held: counts.most.max(opened),
            is_shared: document.environment.shared_kernel,
        }
    }

    /// TCP connections and UDP sockets that were open together.
    fn all_held(&self) -> u64 {
        let udp = self.document.udp.as_ref();
        let sockets = udp.map_or(0, |udp| self.document.client.udp.most.max(udp.opened));
        let others = if self.is_tcp { sockets } else { 0 };
        self.held.saturating_add(others)
    }

    /// The halves of both ends.
    fn halves(&self) -> impl Iterator<Item = (LimitEnd, &'a CapacityHalf)> + use<'a> {
        let client = Some((LimitEnd::Client, &self.document.client));
        let server = self.document.server.as_ref();
        client.into_iter().chain(server.map(|server| (LimitEnd::Server, server)))
    }

    /// One half for each host: of two ends on one kernel the client's, whose limits bind both.
    fn hosts(&self) -> impl Iterator<Item = (LimitEnd, &'a CapacityHalf)> + use<'a> {
        let is_shared = self.is_shared;
        let one_host = move |(end, half)| match (is_shared, end) {
            (true, LimitEnd::Client) => Some((LimitEnd::Both, half)),
            (true, _) => None,
            (false, end) => Some((end, half)),
        };
        self.halves().filter_map(one_host)
    }

    /// The buffers of these sockets on a host; `None` where their limit is not known.
    fn buffers(&self, half: &CapacityHalf) -> Option<Buffers> {
        let (before, height) = (&half.memory.before, &half.memory.height);
        Some(if self.is_tcp {
            Buffers {
                limit: LimitKind::TcpMemory,
                key: "tcp_mem",
                most: half.limits.tcp_memory_pages?.2,
                before: before.tcp_memory_pages,
                height: height.tcp_memory_pages,
            }
        } else {
            Buffers {
                limit: LimitKind::UdpMemory,
                key: "udp_mem",
                most: half.limits.udp_memory_pages?.2,
                before: before.udp_memory_pages,
                height: height.udp_memory_pages,
            }
        })
    }

    /// The number of ends that run on a host.
    fn ends_each(&self) -> u64 {
        1 + u64::from(self.is_shared)
    }
}

/// The pages of a host's socket buffers, and their limit.
struct Buffers {
    limit: LimitKind,
    key: &'static str,
    most: u64,
    before: Option<u64>,
    height: Option<u64>,
}

// The limit at which a run ended.

/// The limit that ended the run; `None` where all connections were opened and stayed, or where a
/// user ended the run.
fn stopped_by(view: &LimitView<'_>, limits: &[LimitRow]) -> Option<StoppedBy> {
    let kept = view.pool().is_some_and(|pool| pool.alive >= pool.asked);
    // When a run ends, the client resets its own probe: only to the endpoint that is a loss.
    let failed = failures(view, &view.document.client).next().is_some();
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

fn name(end: LimitEnd) -> &'static str {
    match end {
        LimitEnd::Client => "this host",
        LimitEnd::Server => "the endpoint",
        LimitEnd::Both => "the one host of both ends",
    }
}
