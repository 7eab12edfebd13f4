//! The figures of both ends' kernels about a run.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;

use super::qos::QosEvidence;

/// CPU time, seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CpuSeconds {
    /// In user mode.
    pub user: f64,
    /// In the kernel on behalf of the process.
    pub system: f64,
}

impl CpuSeconds {
    /// Sum of user and system time.
    pub fn total(self) -> f64 {
        self.user + self.system
    }
}

/// The quota of CPU time of the data threads' control group, and how often it was used up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct CpuQuota {
    /// CPUs' worth of time in each period (0.1: a tenth of one).
    pub cpus: f64,
    /// Periods in which the group had something to run.
    pub periods: u64,
    /// Periods in which it had used up its quota and was stopped for their rest.
    pub throttled_periods: u64,
    /// Time for which it was stopped, summed over CPUs, µs.
    pub throttled_us: u64,
}

/// The cost of a run at one end, over the measured time.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct EndReport {
    /// CPU time of the test's own threads.
    pub cpu_seconds: CpuSeconds,
    /// Soft interrupts of the whole host, seconds of CPU.
    pub softirq_seconds: Option<f64>,
    /// Busy share of all the host's CPUs, for any program, percent (0–100).
    pub host_cpu_percent: Option<f64>,
    /// Busiest CPU of the host, percent.
    pub busiest_core_percent: Option<f64>,
    /// Share of time in soft interrupts of the CPU with the most of them, percent.
    pub softirq_core_percent: Option<f64>,
    /// Share of all CPUs taken by the hypervisor, percent.
    pub steal_percent: Option<f64>,
    /// CPUs of the host.
    pub cpus: u32,
    /// netperf's service demand: CPU time of the whole host for each KiB of payload, µs/KiB.
    pub service_demand_us_per_kib: Option<f64>,
    /// CPU time of the test's threads plus the host's softirq time for each KiB, µs/KiB.
    pub service_demand_threads_us_per_kib: Option<f64>,
    /// False if the host-wide figure also counts the other end or linerate's idle spinners.
    pub service_demand_meaningful: Option<bool>,
    /// Time that the data threads slept in a system call to send or receive, µs, the mean over
    /// flows.
    pub blocked_us: Option<u64>,
    /// Time that the data threads waited for a CPU, µs, the mean over flows.
    pub run_delay_us: Option<u64>,
    /// Time that the application's own rate limit kept the data threads idle, µs, the mean over
    /// flows.
    pub paced_us: Option<u64>,
    /// Share of the time that the busiest data thread was on a CPU, percent.
    pub busiest_thread_percent: Option<f64>,
    /// Quota of the data threads' control group; absent if they have none.
    pub cpu_quota: Option<CpuQuota>,
    /// Packets that the host's receive queues dropped (softnet).
    pub softnet_dropped: Option<u64>,
    /// Times that a receive queue was left with work undone (softnet's time squeeze).
    pub softnet_squeezed: Option<u64>,
    /// Times that the host's CPUs were slowed down for heat: the sum over the cores, and the
    /// package with the most. Absent if neither processor nor hypervisor counts them.
    pub thermal_throttles: Option<u64>,
    /// Runs of the network's receive soft interrupt (`NET_RX`), over the whole host.
    pub receive_softirqs: Option<u64>,
    /// System calls that sent or received bytes, over all flows; for UDP the datagrams.
    pub calls: Option<u64>,
    /// The kernel's counters (`Tcp`, `TcpExt`, `Udp`, `Ip`, `Ip6`) that changed in the run, by
    /// name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub counters: BTreeMap<String, u64>,
    /// Method of sending or receiving: `write`, `vmsplice`, `sendfile`, `read`, `discard`,
    /// `sendmmsg`, `udp_segment`, …
    pub method: Option<String>,
    /// Queue in the root queueing discipline of a sender's device, the mean of the readings, bytes;
    /// absent if it has no queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub qdisc_backlog_bytes: Option<u64>,
    /// Counts of this host's policy for the path's device; absent without classes and without a
    /// policy.
    pub qos: Option<QosEvidence>,
}

/// Memory of a socket, bytes as the kernel accounts it (`SO_MEMINFO`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SocketMemory {
    /// Receive queue.
    pub receive_bytes: u64,
    /// Send queue.
    pub send_bytes: u64,
}

/// Gaps between the departures of datagrams, µs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GapSummary {
    /// Median.
    pub p50: f64,
    /// 90th percentile.
    pub p90: f64,
    /// 99th percentile.
    pub p99: f64,
    /// Largest.
    pub max: f64,
}

/// What the receiver counted of a UDP flow.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct UdpEvidence {
    /// Datagrams that the sender handed to the kernel.
    pub sent: u64,
    /// Different datagrams that arrived.
    pub received: u64,
    /// Datagrams lost: drops by path and socket together.
    pub lost: u64,
    /// Datagrams that arrived more than once.
    pub duplicated: u64,
    /// Datagrams that arrived after a later one (RFC 4737).
    pub reordered: u64,
    /// Datagrams dropped at the receiver's socket buffer (`SO_RXQ_OVFL`), which is not loss of the
    /// path. Absent if the receiver is another tool, which does not report it.
    pub socket_drops: Option<u64>,
    /// Loss of the path alone, percent of `sent`, if the drops of the socket are known.
    pub path_loss_percent: Option<f64>,
    /// Interarrival jitter, µs (RFC 3550, 6.4.1).
    pub jitter_us: f64,
    /// Datagrams that were not linerate's or had been altered.
    pub malformed: u64,
    /// Payload bytes that differ from the pattern sent, if it was verified.
    pub corrupted_bytes: Option<u64>,
    /// Sends that the sender's kernel refused for lack of buffers.
    pub send_refused: u64,
    /// Gaps between departures, if the sender paced.
    pub gaps_us: Option<GapSummary>,
    /// The rate that the sender was asked for, payload bits per second.
    pub asked_bps: Option<u64>,
    /// Payload bytes of each datagram.
    pub datagram_bytes: u64,
    /// Packet train: payload bits per second from the arrival of its first datagram to that of its
    /// last.
    pub train_bps: Option<f64>,
}
