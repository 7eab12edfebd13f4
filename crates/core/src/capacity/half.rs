//! One end's half of the document: the connections it held, and what its kernel spent on them.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;

use super::request::MAX_CAUSES;
use crate::record::{Caveat, CpuSeconds, HostFacts};
use crate::units::words;

/// Why a connection or a socket was not opened, or did not stay.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum FailureCause {
    /// The process has as many descriptors as it may (`EMFILE`).
    Descriptors,
    /// The host has as many files open as it may (`ENFILE`).
    Files,
    /// No local port is left for this destination (`EADDRNOTAVAIL`).
    Ports,
    /// The kernel has no buffers (`ENOBUFS`).
    Buffers,
    /// The kernel has no memory (`ENOMEM`).
    Memory,
    /// Nobody listens there (`ECONNREFUSED`).
    Refused,
    /// Not answered in time: connecting, or a heartbeat.
    TimedOut,
    /// The peer reset the connection.
    Reset,
    /// The peer closed it.
    Closed,
    /// No way there (`ENETUNREACH`, `EHOSTUNREACH`).
    Unreachable,
    /// The peer did not name the session in time.
    Stranger,
    /// The endpoint had no room.
    Crowded,
    /// A malformed answer.
    Garbled,
    /// The process that held it ended.
    WorkerLost,
    /// `epoll` watches as many as this user may (`ENOSPC`).
    Watches,
    /// Not permitted (`EPERM`, `EACCES`): a firewall.
    NotPermitted,
    /// A cause that this version does not know.
    #[serde(other)]
    Other,
}

// With the kernel's error number.
words! {
    FailureCause words {
        "no descriptor left in the process (EMFILE)" Descriptors,
        "no file left on the host (ENFILE)" Files,
        "no local port left (EADDRNOTAVAIL)" Ports,
        "no buffers (ENOBUFS)" Buffers,
        "no memory (ENOMEM)" Memory,
        "refused (ECONNREFUSED)" Refused,
        "not answered in time" TimedOut,
        "reset by the peer" Reset,
        "closed by the peer" Closed,
        "no way there (EHOSTUNREACH)" Unreachable,
        "did not name the session" Stranger,
        "more than the endpoint has room for" Crowded,
        "answered with something else" Garbled,
        "the process that held it ended" WorkerLost,
        "no epoll watch left (ENOSPC)" Watches,
        "not permitted (EPERM)" NotPermitted,
        "another cause" Other,
    }
}

/// A cause of failures, and its count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Failure {
    /// The cause.
    pub cause: FailureCause,
    /// The number of failures.
    pub count: u64,
}

/// One end's counts of its connections, or of its UDP sockets.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct HeldCounts {
    /// Opened (at an endpoint: taken), churn included.
    pub opened: u64,
    /// The most that were open at once.
    pub most: u64,
    /// Open at the end, before they were closed.
    pub alive: u64,
    /// Failures to open or accept, by cause.
    pub failures: Vec<Failure>,
    /// Connections lost though this end did not close them, by cause.
    pub lost: Vec<Failure>,
}

/// Memory and sockets of a host at one moment. A figure that the host does not give is absent.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct MemoryReading {
    /// TCP sockets of this network namespace in use, both families (`sockstat`).
    pub tcp_in_use: Option<u64>,
    /// TCP sockets of the whole host in any state.
    pub tcp_allocated: Option<u64>,
    /// TCP sockets of the whole host that no process holds any more.
    pub tcp_orphans: Option<u64>,
    /// Connections of this network namespace in TIME-WAIT.
    pub tcp_time_wait: Option<u64>,
    /// Memory of TCP's buffers on the whole host, pages (to be held against `net.ipv4.tcp_mem`).
    pub tcp_memory_pages: Option<u64>,
    /// UDP sockets of this network namespace in use.
    pub udp_in_use: Option<u64>,
    /// Memory of UDP's buffers, pages (to be held against `net.ipv4.udp_mem`).
    pub udp_memory_pages: Option<u64>,
    /// The kernel's own objects, bytes (`Slab` of meminfo).
    pub slab_bytes: Option<u64>,
    /// What a new program could have, bytes (`MemAvailable`); sockets are only partly taken off it.
    pub available_bytes: Option<u64>,
    /// The caches that sockets live in (slabinfo; root reads it).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub caches: Vec<SlabUse>,
    /// Files open on the whole host (`fs.file-nr`).
    pub files: Option<u64>,
    /// Connections that netfilter tracks in this network namespace.
    pub conntrack: Option<u64>,
    /// Memory of the process's control group, bytes.
    pub cgroup_bytes: Option<u64>,
}

/// What one cache of kernel objects holds.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct SlabUse {
    /// Its name: `TCP`, `sock_inode_cache`, …
    pub name: String,
    /// Objects in use.
    pub objects: u64,
    /// Size of its pages, bytes.
    pub bytes: u64,
}

/// Before anything was opened, with the most open, and after all was closed.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct MemoryCourse {
    /// Before the first connection.
    pub before: MemoryReading,
    /// With the most connections open.
    pub height: MemoryReading,
    /// After all were closed.
    pub after: MemoryReading,
}

/// The limits of a host that decide how many it can hold. One that the host does not have, or does
/// not say, is absent.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct LimitReadings {
    /// Descriptors that a process may have open (RLIMIT_NOFILE, soft; raised to the hard one
    /// first).
    pub descriptors_each: Option<u64>,
    /// Largest number of worker processes that this end starts.
    pub workers_most: Option<u64>,
    /// `fs.file-max`.
    pub files: Option<u64>,
    /// `fs.nr_open`.
    pub nr_open: Option<u64>,
    /// `net.ipv4.ip_local_port_range`, first and last.
    pub port_range: Option<(u16, u16)>,
    /// `net.core.somaxconn`.
    pub somaxconn: Option<u64>,
    /// `net.ipv4.tcp_max_syn_backlog`.
    pub syn_backlog: Option<u64>,
    /// `net.ipv4.tcp_syncookies`.
    pub syncookies: Option<u64>,
    /// `net.ipv4.tcp_mem`: low, pressure, high, pages.
    pub tcp_memory_pages: Option<(u64, u64, u64)>,
    /// `net.ipv4.udp_mem`: low, pressure, high, pages.
    pub udp_memory_pages: Option<(u64, u64, u64)>,
    /// `net.ipv4.tcp_max_orphans`.
    pub orphans: Option<u64>,
    /// `net.ipv4.tcp_max_tw_buckets`.
    pub time_wait: Option<u64>,
    /// `net.netfilter.nf_conntrack_max`.
    pub conntrack: Option<u64>,
    /// `fs.epoll.max_user_watches`.
    pub epoll_watches: Option<u64>,
    /// The tightest `memory.max` of the process's control groups, bytes.
    pub cgroup_bytes: Option<u64>,
    /// Connections that the endpoint's owner allows a client; of an endpoint alone.
    pub owner_connections: Option<u64>,
    /// Memory of the host, bytes.
    pub memory_bytes: Option<u64>,
    /// Size of a page, bytes.
    pub page_bytes: Option<u64>,
}

/// One end's half of a run.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct CapacityHalf {
    /// TCP connections.
    pub tcp: HeldCounts,
    /// UDP sockets.
    pub udp: HeldCounts,
    /// Worker processes that held the connections.
    pub workers: u32,
    /// CPU time of these processes; soft interrupts that ran while they did are in it, others are
    /// not.
    pub cpu_seconds: CpuSeconds,
    /// Memory of these processes at the height: heap and stacks, without the program that they
    /// share, bytes.
    pub user_bytes: Option<u64>,
    /// Memory of the workers before the first connection, bytes.
    pub user_bytes_before: Option<u64>,
    /// Memory and sockets of the host.
    pub memory: MemoryCourse,
    /// The host's limits.
    pub limits: LimitReadings,
    /// Protocol counters of its network namespace that changed, by the names of nstat(8).
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub counters: BTreeMap<String, i64>,
    /// The host's facts; in the document they are in the environment.
    pub facts: Option<Box<HostFacts>>,
    /// The end's own caveats.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub caveats: Vec<Caveat>,
}

impl LimitReadings {
    /// Of a limit that is none, some kernels say the largest number that they know. On the wire
    /// that would be an absurd figure.
    fn bound(&mut self) {
        let readings = [
            &mut self.descriptors_each,
            &mut self.workers_most,
            &mut self.files,
            &mut self.nr_open,
            &mut self.orphans,
            &mut self.time_wait,
            &mut self.conntrack,
            &mut self.epoll_watches,
            &mut self.cgroup_bytes,
            &mut self.memory_bytes,
        ];
        for reading in readings.into_iter().flatten() {
            *reading = (*reading).min(NO_LIMIT);
        }
        for pages in [&mut self.tcp_memory_pages, &mut self.udp_memory_pages] {
            *pages = pages.map(|(low, pressure, high)| {
                let [low, pressure, high] = [low, pressure, high].map(|pages| pages.min(NO_LIMIT));
                (low, pressure, high)
            });
        }
    }
}

/// More than any host has of anything, and a whole number to readers of JSON that know only
/// doubles.
const NO_LIMIT: u64 = 1 << 53;

impl CapacityHalf {
    /// The half as it is sent: without figures that the peer would refuse.
    pub(crate) fn bounded(mut self) -> Self {
        self.limits.bound();
        self
    }

    /// Whether this can be an endpoint's account.
    ///
    /// # Errors
    /// Checks the half of a peer; an error says what in it cannot be.
    pub fn check(&self) -> Result<(), String> {
        let lists = [&self.tcp.failures, &self.tcp.lost, &self.udp.failures, &self.udp.lost];
        let readings = [&self.memory.before, &self.memory.height, &self.memory.after];
        let causes = lists.iter().map(|list| list.len()).max();
        let caches = readings.iter().map(|reading| reading.caches.len()).max();
        if causes > Some(MAX_CAUSES)
            || caches > Some(MAX_CACHES)
            || self.counters.len() > MAX_COUNTERS
            || self.caveats.len() > MAX_CAUSES
        {
            return Err("a report that is too long".into());
        }
        let cpu = self.cpu_seconds;
        if !(cpu.user >= 0.0 && cpu.system >= 0.0) {
            return Err("a report of negative CPU time".into());
        }
        Ok(())
    }
}

/// Caches of a [`MemoryReading`].
pub const MAX_CACHES: usize = 16;
/// Counters of a report: all that a kernel has.
const MAX_COUNTERS: usize = 1024;
