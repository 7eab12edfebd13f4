//! Which limit stopped a capacity run and which one comes next, from the document alone.
//!
//! [`annotate`] fills in the document's `limits`, `next_limit` and `stopped_by`. A failed call
//! names its limit by itself (`EMFILE`, `EADDRNOTAVAIL`); where it only says that nobody answered,
//! the counters of both kernels do (a queue that overflowed, a table that was full). What neither
//! says stays [`LimitKind::Unknown`].

mod headroom;
mod remedy;
mod stopped;
#[cfg(test)]
mod tests;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;

use super::document::CapacityDocument;
use super::half::CapacityHalf;
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
    let stopped = stopped::by(&view, &limits);
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
