//! How far each limit is from what was held.

use super::remedy::{self, Wanted};
use super::{Buffers, LimitEnd, LimitKind, LimitRow, View};
use crate::capacity::{CapacityHalf, DESCRIPTOR_RESERVE, MAX_AT_PORT, MAX_PORTS};

/// Every limit that is known, the one that comes first at the top; those that depend on no number
/// at the end.
pub(super) fn rows(view: &View<'_>) -> Vec<LimitRow> {
    let mut rows: Vec<LimitRow> = Vec::new();
    for (end, half) in view.halves() {
        rows.extend(process_descriptors(view, end, half));
        rows.extend(group_memory(view, end, half));
        if view.is_tcp {
            rows.extend(conntrack(view, end, half));
            rows.extend(beside(view, end, half));
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
    rows.sort_by_key(|row| {
        (
            row.would_stop_at.is_none(),
            row.would_stop_at,
            row.limit,
            row.end,
        )
    });
    rows
}

/// A row before it is known how far away its limit is.
struct Draft {
    limit: LimitKind,
    end: LimitEnd,
    value: u64,
    used: Option<u64>,
}

impl Draft {
    fn new(limit: LimitKind, end: LimitEnd, value: u64, used: Option<u64>) -> Self {
        Self {
            limit,
            end,
            value,
            used,
        }
    }

    /// A limit of which each further connection takes `each`.
    fn bounding(self, view: &View<'_>, each: f64, formula: impl Into<String>) -> LimitRow {
        let used = self.used.unwrap_or(0);
        let room = self.value.saturating_sub(used) as f64 / each;
        // The cast saturates.
        let stops = view.held.saturating_add(room as u64);
        self.row(view, Some(stops), formula.into())
    }

    /// A limit that does not depend on how many are held.
    fn beside(self, view: &View<'_>, why: &str) -> LimitRow {
        self.row(view, None, why.to_owned())
    }

    fn row(self, view: &View<'_>, would_stop_at: Option<u64>, formula: String) -> LimitRow {
        let wanted = Wanted::more_than(view, self.value, would_stop_at);
        LimitRow {
            remedy: remedy::of(self.limit, self.end, &wanted, view),
            limit: self.limit,
            end: self.end,
            value: self.value,
            used: self.used,
            unit: unit(self.limit).to_owned(),
            would_stop_at,
            formula,
        }
    }
}

/// What a limit counts.
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

fn process_descriptors(view: &View<'_>, end: LimitEnd, half: &CapacityHalf) -> Option<LimitRow> {
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
    let draft = Draft::new(
        LimitKind::ProcessDescriptors,
        end,
        each.saturating_mul(workers),
        Some(used),
    );
    let for_all = each
        .saturating_sub(DESCRIPTOR_RESERVE)
        .saturating_mul(workers);
    let stops = view.held.saturating_add(for_all.saturating_sub(used));
    let formula = match workers {
        1 => format!("{each} in one process, {DESCRIPTOR_RESERVE} of them for itself"),
        _ => format!("{each} in each of {workers} processes, {DESCRIPTOR_RESERVE} for itself"),
    };
    Some(draft.row(view, Some(stops), formula))
}

fn host_files(view: &View<'_>, end: LimitEnd, half: &CapacityHalf) -> Option<LimitRow> {
    if end == LimitEnd::Server && !view.is_tcp {
        return None;
    }
    let each = if view.is_tcp { view.ends_each() } else { 1 };
    let draft = Draft::new(
        LimitKind::HostFiles,
        end,
        half.limits.files?,
        half.memory.height.files,
    );
    // fs/file_table.c, alloc_empty_file
    let formula = format!("fs.file-max; {each} for each; root may exceed it");
    Some(draft.bounding(view, each as f64, formula))
}

fn watches(view: &View<'_>, end: LimitEnd, half: &CapacityHalf) -> Option<LimitRow> {
    let each = view.ends_each();
    let draft = Draft::new(
        LimitKind::Watches,
        end,
        half.limits.epoll_watches?,
        Some(view.all_held().saturating_mul(each)),
    );
    let formula = format!("fs.epoll.max_user_watches; {each} for each");
    Some(draft.bounding(view, each as f64, formula))
}

/// `MemAvailable` takes only a part of the sockets off, so it is read before there were any.
fn host_memory(view: &View<'_>, end: LimitEnd, half: &CapacityHalf) -> Option<LimitRow> {
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
    let draft = Draft::new(LimitKind::HostMemory, end, available, Some(used));
    let formula = format!("MemAvailable before ÷ {each:.0} B for each");
    Some(draft.bounding(view, each, formula))
}

fn group_memory(view: &View<'_>, end: LimitEnd, half: &CapacityHalf) -> Option<LimitRow> {
    let value = half.limits.cgroup_bytes?;
    let used = half.memory.height.cgroup_bytes?;
    let draft = Draft::new(LimitKind::GroupMemory, end, value, Some(used));
    let grown = growth(half.memory.before.cgroup_bytes, Some(used));
    match grown.and_then(|grown| each_of(view, grown)) {
        Some(each) => {
            let formula = format!("memory.max of the control group; {each:.0} B for each");
            Some(draft.bounding(view, each, formula))
        }
        None => Some(draft.beside(view, "memory.max of the control group; it has not grown")),
    }
}

fn buffers(view: &View<'_>, end: LimitEnd, half: &CapacityHalf) -> Option<LimitRow> {
    let Buffers {
        limit,
        key,
        most,
        before,
        height,
    } = view.buffers(half)?;
    let draft = Draft::new(limit, end, most, height);
    match growth(before, height).and_then(|grown| each_of(view, grown)) {
        Some(each) => {
            let formula = format!("net.ipv4.{key}; {each:.2} pages for each");
            Some(draft.bounding(view, each, formula))
        }
        // Nothing waits in the buffers of idle sockets.
        None => Some(draft.beside(view, &format!("net.ipv4.{key}; idle sockets hold no pages"))),
    }
}

fn conntrack(view: &View<'_>, end: LimitEnd, half: &CapacityHalf) -> Option<LimitRow> {
    let used = half.memory.height.conntrack?;
    let draft = Draft::new(
        LimitKind::Conntrack,
        end,
        half.limits.conntrack?,
        Some(used),
    );
    let grown = growth(half.memory.before.conntrack, Some(used)).unwrap_or(0);
    // Where no rule asks for it, nothing is tracked; entries of others come and go.
    Some(if grown >= view.held / 2 && view.held > 0 && grown > 0 {
        draft.bounding(view, 1.0, "net.netfilter.nf_conntrack_max; 1 for each")
    } else {
        draft.beside(
            view,
            "net.netfilter.nf_conntrack_max; these are not tracked",
        )
    })
}

/// Limits that idle connections do not come near.
fn beside(view: &View<'_>, end: LimitEnd, half: &CapacityHalf) -> Vec<LimitRow> {
    let (limits, height) = (&half.limits, &half.memory.height);
    let queue = |value: Option<u64>| value.filter(|_| end == LimitEnd::Server);
    let burst = "bounds bursts, not the number held";
    let closed = "closed connections alone; these are closed by reset";
    [
        (LimitKind::AcceptQueue, queue(limits.somaxconn), None, burst),
        (LimitKind::SynQueue, queue(limits.syn_backlog), None, burst),
        (
            LimitKind::Orphans,
            limits.orphans,
            height.tcp_orphans,
            closed,
        ),
        (
            LimitKind::TimeWait,
            limits.time_wait,
            height.tcp_time_wait,
            closed,
        ),
    ]
    .into_iter()
    .filter_map(|(limit, value, used, why)| {
        let draft = Draft::new(limit, end, value?, used);
        Some(draft.beside(view, why))
    })
    .collect()
}

fn ports(view: &View<'_>) -> Option<LimitRow> {
    let client = &view.document.client;
    let (first, last) = client.limits.port_range?;
    let ports = u64::from(last.saturating_sub(first)) + 1;
    let sources = view.document.test.sources.len().max(1) as u64;
    let near = ports.saturating_mul(sources);
    // An endpoint opens a port for each [`MAX_AT_PORT`]; where there are fewer local ports, one is
    // all that it opens. A UDP socket has a port of its own, whatever it is connected to.
    let far = if view.is_tcp && near >= MAX_AT_PORT {
        MAX_PORTS as u64
    } else {
        1
    };
    let draft = Draft::new(
        LimitKind::Ports,
        LimitEnd::Client,
        near.saturating_mul(far),
        Some(view.held),
    );
    let addresses = match sources {
        1 => "1 address".to_owned(),
        several => format!("{several} addresses"),
    };
    let formula = format!("{ports} ports × {addresses} here × {far} ports there");
    Some(draft.bounding(view, 1.0, formula))
}

fn owner(view: &View<'_>) -> Option<LimitRow> {
    let server = view.document.server.as_ref()?;
    let draft = Draft::new(
        LimitKind::Owner,
        LimitEnd::Server,
        server.limits.owner_connections?,
        Some(view.held),
    );
    Some(draft.bounding(view, 1.0, "what the endpoint allows a client"))
}

/// What the processes of an end have come to need; without that which they need to hold nothing.
fn user_growth(half: &CapacityHalf) -> u64 {
    let before = half.user_bytes_before.unwrap_or(0);
    half.user_bytes.unwrap_or(0).saturating_sub(before)
}

/// What came to it since before, if both are known and it is more.
fn growth(before: Option<u64>, height: Option<u64>) -> Option<u64> {
    height?.checked_sub(before?).filter(|grown| *grown > 0)
}

/// The share of each that was held; `None` where so few say nothing of it.
fn each_of(view: &View<'_>, grown: u64) -> Option<f64> {
    let held = view.all_held();
    (held >= MIN_HELD && grown > 0).then(|| grown as f64 / held as f64)
}

/// With fewer than these, what else happens on a host is more than what they take.
const MIN_HELD: u64 = 1000;
