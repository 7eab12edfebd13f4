//! The document of a capacity run: the JSON contract.
//!
//! As in [`crate::record`]: adding a key is free, renaming one is a new version; a key is absent
//! where its figure is not known.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;

use super::limit::{LimitRow, StoppedBy};
use super::search::SearchFound;
use super::test::{CapacityTest, MAX_CAUSES};
use crate::record::{Caveat, CpuSeconds, Environment, HostFacts, Status};
use crate::stats::{LatencyBuckets, LatencySummary};
use crate::units::{Family, words};

/// Schema of [`CapacityDocument`].
pub const CAPACITY_SCHEMA: &str = "linerate.capacity/1";

/// The number of connections that two ends held, and the cost.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CapacityDocument {
    /// [`CAPACITY_SCHEMA`].
    pub schema: String,
    /// When it began, RFC 3339.
    #[serde(deserialize_with = "crate::units::deserialize_rfc3339")]
    pub started_at: String,
    /// The endpoint as the user named it.
    pub host: String,
    /// The endpoint's address and port.
    pub peer: String,
    /// Address family of all connections.
    pub family: Family,
    /// Whether the run was completed.
    pub status: Status,
    /// The test that was asked for.
    pub test: CapacityTest,
    /// TCP connections; absent if none were asked for.
    pub tcp: Option<PoolResult>,
    /// UDP sockets; absent if none were asked for.
    pub udp: Option<PoolResult>,
    /// An active connection's latency by the number of idle ones beside it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub latency: Vec<LatencyAt>,
    /// Connections closed and opened anew.
    pub churn: Option<ChurnResult>,
    /// Requests and responses over a part of the connections.
    pub load: Option<LoadResult>,
    /// This end's half.
    pub client: CapacityHalf,
    /// The endpoint's half, as it reported it.
    pub server: Option<CapacityHalf>,
    /// The limit that ended it before all were open; absent where all that was asked for was
    /// opened.
    pub stopped_by: Option<StoppedBy>,
    /// The limit in `limits` that would be reached first.
    pub next_limit: Option<LimitRow>,
    /// Every limit of both ends that is known, the one that would come first at the top.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub limits: Vec<LimitRow>,
    /// The rounds in which the limit was looked for; all else is of the smallest round that was not
    /// held, or of the largest.
    pub search: Option<SearchFound>,
    /// Duration of the whole run, s.
    pub seconds: f64,
    /// Duration of closing, s.
    pub close_seconds: Option<f64>,
    /// The hosts of both ends.
    pub environment: Environment,
    /// What limits the worth of these figures.
    pub caveats: Vec<Caveat>,
    /// Seed of every random choice.
    pub seed: u64,
}

/// The fate of the connections, or of the UDP sockets.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct PoolResult {
    /// The number asked for.
    pub asked: u64,
    /// As many were opened: of TCP, connected; of UDP, answered by the endpoint. Without churn.
    pub opened: u64,
    /// The number that answered the last heartbeat.
    pub alive: u64,
    /// Were open, and did not stay or no longer answered. Those closed by churn are not lost.
    pub lost: u64,
    /// The causes of losses.
    pub losses: Vec<Failure>,
    /// The causes of failures to open.
    pub failures: Vec<Failure>,
    /// Mean rate of opening, per second.
    pub connect_per_s: Option<f64>,
    /// Duration of opening, s, without pauses for measurements.
    pub connect_seconds: Option<f64>,
    /// The number open over time.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ramp: Vec<RampStep>,
    /// From the first packet to the connection (of UDP: to the answer to the challenge).
    pub connect_latency_us: Option<ConnectLatency>,
    /// SYN retransmissions; of UDP, repeated challenges.
    pub syn_retransmissions: u64,
    /// Heartbeats sent.
    pub heartbeats_sent: u64,
    /// Heartbeats answered.
    pub heartbeats_answered: u64,
    /// From a heartbeat to its answer; most of it is waiting for the others.
    pub heartbeat_latency_us: Option<LatencySummary>,
    /// Kernel memory of both ends (on one kernel) or of this end for each, bytes, from the growth
    /// of the slab.
    pub kernel_bytes_each: Option<f64>,
    /// Memory of this end's processes for each, bytes.
    pub user_bytes_each: Option<f64>,
    /// Memory of the endpoint's processes for each, bytes.
    pub server_user_bytes_each: Option<f64>,
}

/// Connect latency; connections whose first SYN was lost stand apart.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ConnectLatency {
    /// Connections whose first SYN was answered.
    pub first_try: Option<LatencySummary>,
    /// Connections that needed a retransmitted SYN.
    pub retransmitted: Option<LatencySummary>,
    /// All connections.
    pub histogram: LatencyBuckets,
}

/// The number open at a moment of the ramp.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct RampStep {
    /// Since the ramp began, pauses not counted, s.
    pub at_s: f64,
    /// Open.
    pub opened: u64,
}

/// An active connection's round trips beside a number of idle ones.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LatencyAt {
    /// Idle TCP connections beside it.
    pub population: u64,
    /// Latency with one request at a time.
    pub latency_us: LatencySummary,
}

/// The result of churn.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ChurnResult {
    /// Asked rate, connections per second.
    pub asked_per_s: u64,
    /// Closed by this end.
    pub closed: u64,
    /// Opened in their place.
    pub opened: u64,
    /// Rate of opening in their place, per second.
    pub per_s: f64,
}

/// The result of the load.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct LoadResult {
    /// Connections that took part.
    pub connections: u64,
    /// Requests that were answered.
    pub transactions: u64,
    /// Requests answered per second.
    pub transactions_per_s: f64,
    /// Requests of an open loop that had to wait for their connection.
    pub late: u64,
    /// From when a request went out, or was due, to the last byte of its response.
    pub latency_us: Option<LatencySummary>,
    /// The latency as a histogram.
    pub histogram: Option<LatencyBuckets>,
}

// The half of one end: the connections that it held, and what its kernel spent on them.

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
        "no route to the host (EHOSTUNREACH)" Unreachable,
        "did not name the session" Stranger,
        "more than the endpoint has room for" Crowded,
        "unexpected answer" Garbled,
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
