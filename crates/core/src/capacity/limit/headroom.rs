//! How far each limit of the two hosts is from the number of connections that were held.

use super::remedy::{self, Wanted};
use super::{Buffers, LimitEnd, LimitKind, LimitRow, LimitView};
use crate::capacity::{CapacityHalf, DESCRIPTOR_RESERVE, MAX_AT_PORT, MAX_PORTS};
use crate::units::digits;

/// Every known limit: the one that is reached first at the top, and at the end those that do not
/// depend on the number of connections.
pub(super) fn rows(view: &LimitView<'_>) -> Vec<LimitRow> {
    let mut rows: Vec<LimitRow> = Vec::new();
    for (end, half) in view.halves() {
        rows.extend(process_descriptors(view, end, half));
        rows.extend(group_memory(view, end, half));
        if view.is_tcp {
            rows.extend(conntrack(view, end, half));
            rows.extend(untouched(view, end, half));
        }
    }
    for (end, half) in view.hosts() {
        rows.extend(host_files(view, end, half));
        rows.extend(watches(view, end, half));
        rows.extend(host_memory(view, end, half));
        rows.extend(buffers(view, end, half));
    }
    rows.extend(ports(view));
    rows.extend(owner(view));
    rows.sort_by_key(|row| (row.would_stop_at.is_none(), row.would_stop_at, row.limit, row.end));
    rows
}

/// A limit of a host, its value, and how much of it is in use.
struct LimitDraft(LimitKind, LimitEnd, u64, Option<u64>);

impl LimitDraft {
    /// A limit of which each further connection takes `each`.
    fn bounding(self, view: &LimitView<'_>, each: f64, formula: impl Into<String>) -> LimitRow {
        let Self(_, _, value, used) = self;
        let room = value.saturating_sub(used.unwrap_or(0)) as f64 / each;
        // The cast saturates.
        let stops = view.held.saturating_add(room as u64);
        self.row(view, Some(stops), formula)
    }

    /// A limit whose use grew from `before` with the connections, so that each takes its share;
    /// `formula` has the share. Where the use did not grow, the limit does not depend on them.
    fn shared(
        self,
        view: &LimitView<'_>,
        before: Option<u64>,
        formula: impl Fn(f64) -> String,
        not_grown: String,
    ) -> LimitRow {
        match growth(before, self.3).and_then(|grown| each_of(view, grown)) {
            Some(each) => self.bounding(view, each, formula(each)),
            None => self.row(view, None, not_grown),
        }
    }

    /// The row; without `would_stop_at` the limit does not depend on how many are held.
    fn row(
        self,
        view: &LimitView<'_>,
        would_stop_at: Option<u64>,
        formula: impl Into<String>,
    ) -> LimitRow {
        let Self(limit, end, value, used) = self;
        let wanted = Wanted::more_than(view, value, would_stop_at);
        LimitRow {
            remedy: remedy::of(limit, end, &wanted, view),
            limit,
            end,
            value,
            used,
            unit: unit(limit).to_owned(),
            would_stop_at,
            formula: formula.into(),
        }
    }
}

/// The unit of a limit.
fn unit(limit: LimitKind) -> &'static str {
    match limit {
        LimitKind::ProcessDescriptors | LimitKind::Watches => "descriptors",
        LimitKind::HostFiles => "files",
        LimitKind::HostMemory | LimitKind::GroupMemory => "bytes",
        LimitKind::TcpMemory | LimitKind::UdpMemory => "pages",
        LimitKind::Ports => "ports",
        _ => "connections",
    }
}

fn process_descriptors(
    view: &LimitView<'_>,
    end: LimitEnd,
    half: &CapacityHalf,
) -> Option<LimitRow> {
    // An endpoint needs no descriptor for each UDP socket of its client.
    if end == LimitEnd::Server && !view.is_tcp {
        return None;
    }
    let each = half.limits.descriptors_each?;
    let workers = half.limits.workers_most?;
    let used = match end {
        LimitEnd::Server => view.held,
        _ => view.all_held(),
    };
    let value = each.saturating_mul(workers);
    let draft = LimitDraft(LimitKind::ProcessDescriptors, end, value, Some(used));
    let usable = each.saturating_sub(DESCRIPTOR_RESERVE);
    let room = usable.saturating_mul(workers).saturating_sub(used);
    let stops = view.held.saturating_add(room);
    let formula = match workers {
        1 => format!("{each} in one process, {DESCRIPTOR_RESERVE} of them for itself"),
        _ => format!("{each} in each of {workers} processes, {DESCRIPTOR_RESERVE} for itself"),
    };
    Some(draft.row(view, Some(stops), formula))
}

fn host_files(view: &LimitView<'_>, end: LimitEnd, half: &CapacityHalf) -> Option<LimitRow> {
    if end == LimitEnd::Server && !view.is_tcp {
        return None;
    }
    let each = if view.is_tcp { view.ends_each() } else { 1 };
    let used = half.memory.height.files;
    let draft = LimitDraft(LimitKind::HostFiles, end, half.limits.files?, used);
    // fs/file_table.c, alloc_empty_file
    let formula = format!("fs.file-max; {each} for each; root may exceed it");
    Some(draft.bounding(view, each as f64, formula))
}

fn watches(view: &LimitView<'_>, end: LimitEnd, half: &CapacityHalf) -> Option<LimitRow> {
    let each = view.ends_each();
    let used = Some(view.all_held().saturating_mul(each));
    let draft = LimitDraft(LimitKind::Watches, end, half.limits.epoll_watches?, used);
    let formula = format!("fs.epoll.max_user_watches; {each} for each");
    Some(draft.bounding(view, each as f64, formula))
}

/// `MemAvailable` falls by only a part of the sockets' memory, so the reading before the first
/// socket counts.
fn host_memory(view: &LimitView<'_>, end: LimitEnd, half: &CapacityHalf) -> Option<LimitRow> {
    let available = half.memory.before.available_bytes?;
    let kernel = growth(half.memory.before.slab_bytes, half.memory.height.slab_bytes)?;
    let user = if view.is_shared {
        let both = view.halves().map(|(_, half)| user_growth(half));
        both.fold(0, u64::saturating_add)
    } else {
        user_growth(half)
    };
    let used = kernel.saturating_add(user);
    let each = each_of(view, used)?;
    let draft = LimitDraft(LimitKind::HostMemory, end, available, Some(used));
    let formula = format!("MemAvailable before ÷ {} B for each", digits(each));
    Some(draft.bounding(view, each, formula))
}

fn group_memory(view: &LimitView<'_>, end: LimitEnd, half: &CapacityHalf) -> Option<LimitRow> {
    let value = half.limits.cgroup_bytes?;
    let used = half.memory.height.cgroup_bytes?;
    let draft = LimitDraft(LimitKind::GroupMemory, end, value, Some(used));
    let key = "memory.max of the control group";
    Some(draft.shared(
        view,
        half.memory.before.cgroup_bytes,
        |each| format!("{key}; {} B for each", digits(each)),
        format!("{key}; it has not grown"),
    ))
}

fn buffers(view: &LimitView<'_>, end: LimitEnd, half: &CapacityHalf) -> Option<LimitRow> {
    let Buffers { limit, key, most, before, height } = view.buffers(half)?;
    Some(LimitDraft(limit, end, most, height).shared(
        view,
        before,
        |each| format!("net.ipv4.{key}; {} pages for each", digits(each)),
        // Nothing waits in the buffers of idle sockets.
        format!("net.ipv4.{key}; idle sockets hold no pages"),
    ))
}

fn conntrack(view: &LimitView<'_>, end: LimitEnd, half: &CapacityHalf) -> Option<LimitRow> {
    let used = half.memory.height.conntrack?;
    let draft = LimitDraft(LimitKind::Conntrack, end, half.limits.conntrack?, Some(used));
    let grown = growth(half.memory.before.conntrack, Some(used));
    let key = "net.netfilter.nf_conntrack_max";
    // Where no rule asks for it, nothing is tracked; entries of others come and go.
    Some(match grown {
        Some(grown) if view.held > 0 && grown >= view.held / 2 => {
            draft.bounding(view, 1.0, format!("{key}; 1 for each"))
        }
        _ => draft.row(view, None, format!("{key}; these are not tracked")),
    })
}

/// Limits that idle connections do not approach.
fn untouched(view: &LimitView<'_>, end: LimitEnd, half: &CapacityHalf) -> Vec<LimitRow> {
    let (limits, height) = (&half.limits, &half.memory.height);
    let queue = |value: Option<u64>| value.filter(|_| end == LimitEnd::Server);
    let burst = "bounds bursts, not the number held";
    let closed = "closed connections alone; these are closed by reset";
    let (orphans, time_wait) = (height.tcp_orphans, height.tcp_time_wait);
    let rows = [
        (LimitKind::AcceptQueue, queue(limits.somaxconn), None, burst),
        (LimitKind::SynQueue, queue(limits.syn_backlog), None, burst),
        (LimitKind::Orphans, limits.orphans, orphans, closed),
        (LimitKind::TimeWait, limits.time_wait, time_wait, closed),
    ];
    let row = |(limit, value, used, why): (_, Option<u64>, _, &str)| {
        Some(LimitDraft(limit, end, value?, used).row(view, None, why))
    };
    rows.into_iter().filter_map(row).collect()
}

fn ports(view: &LimitView<'_>) -> Option<LimitRow> {
    let client = &view.document.client;
    let (first, last) = client.limits.port_range?;
    let ports = u64::from(last.saturating_sub(first)) + 1;
    let sources = view.document.test.sources.len().max(1) as u64;
    let near = ports.saturating_mul(sources);
    // An endpoint opens a port for each [`MAX_AT_PORT`]; where there are fewer local ports, one is
    // all that it opens. A UDP socket has a port of its own, whatever it is connected to.
    let far = if view.is_tcp && near >= MAX_AT_PORT { MAX_PORTS as u64 } else { 1 };
    let (end, value) = (LimitEnd::Client, near.saturating_mul(far));
    let draft = LimitDraft(LimitKind::Ports, end, value, Some(view.held));
    let addresses = match sources {
        1 => "1 address".to_owned(),
        several => format!("{several} addresses"),
    };
    let there = if far == 1 { "port" } else { "ports" };
    let formula = format!("{ports} ports × {addresses} here × {far} {there} there");
    Some(draft.bounding(view, 1.0, formula))
}

fn owner(view: &LimitView<'_>) -> Option<LimitRow> {
    let server = view.document.server.as_ref()?;
    let value = server.limits.owner_connections?;
    let draft = LimitDraft(LimitKind::Owner, LimitEnd::Server, value, Some(view.held));
    Some(draft.bounding(view, 1.0, "what the endpoint allows a client"))
}

/// The memory that the processes of an end took for the connections: without what they need to
/// hold none.
fn user_growth(half: &CapacityHalf) -> u64 {
    let before = half.user_bytes_before.unwrap_or(0);
    half.user_bytes.unwrap_or(0).saturating_sub(before)
}

/// The growth between two readings, if both are known and there is any.
fn growth(before: Option<u64>, height: Option<u64>) -> Option<u64> {
    height?.checked_sub(before?).filter(|grown| *grown > 0)
}

/// The share of one connection in a growth; `None` where too few were held to tell.
fn each_of(view: &LimitView<'_>, grown: u64) -> Option<f64> {
    let held = view.all_held();
    (held >= MIN_HELD && grown > 0).then(|| grown as f64 / held as f64)
}

/// With fewer connections than this, other activity of the host outweighs them.
const MIN_HELD: u64 = 1000;
