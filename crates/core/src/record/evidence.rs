//! What the kernels of both ends say about a run.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

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
    /// User and system.
    pub fn total(self) -> f64 {
        self.user + self.system
    }
}

/// The quota of CPU time of the control group that the data threads are in, and how often it was
/// used up.
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

/// What one end spent on a run, over the measured time.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct EndReport {
    /// CPU time of the test's own threads.
    pub cpu_seconds: CpuSeconds,
    /// Soft interrupts of the whole host, seconds of CPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub softirq_seconds: Option<f64>,
    /// Share of all the host's CPUs that was busy, percent (0–100), whoever used it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_cpu_percent: Option<f64>,
    /// Busiest CPU of the host, percent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub busiest_core_percent: Option<f64>,
    /// Share of all CPUs taken by the hypervisor, percent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steal_percent: Option<f64>,
    /// CPUs of the host.
    pub cpus: u32,
    /// netperf's service demand: CPU time of the whole host for each KiB of payload, µs/KiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_demand_us_per_kib: Option<f64>,
    /// CPU time of the test's threads plus the host's softirq time for each KiB, µs/KiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_demand_threads_us_per_kib: Option<f64>,
    /// False where the host-wide figure counts the other end too, or linerate's idle spinners.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_demand_meaningful: Option<bool>,
    /// Time that the data threads slept in a system call to send or receive, µs, the mean over
    /// flows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blocked_us: Option<u64>,
    /// Time that the data threads waited for a CPU, µs, the mean over flows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_delay_us: Option<u64>,
    /// Time that the application's own rate limit kept the data threads idle, µs, the mean over
    /// flows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paced_us: Option<u64>,
    /// Share of the time that the busiest data thread was on a CPU, percent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub busiest_thread_percent: Option<f64>,
    /// Quota of the data threads' control group; absent where they have none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_quota: Option<CpuQuota>,
    /// Packets that the host's receive queues dropped (softnet).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub softnet_dropped: Option<u64>,
    /// Times that a receive queue was left with work undone (softnet's time squeeze).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub softnet_squeezed: Option<u64>,
    /// Times that the host's CPUs were slowed down for heat: of each core, and of the package that
    /// was most often. Absent where neither processor nor hypervisor counts them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thermal_throttles: Option<u64>,
    /// Runs of the network's receive soft interrupt (`NET_RX`), over the whole host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receive_softirqs: Option<u64>,
    /// System calls in which bytes were handed over or taken, of all flows; of UDP the datagrams.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub calls: Option<u64>,
    /// The kernel's counters (`Tcp`, `TcpExt`, `Udp`, `Ip`, `Ip6`) that changed in the run, by
    /// name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub counters: BTreeMap<String, u64>,
    /// How the bytes were handed over or taken: `write`, `vmsplice`, `sendfile`, `read`, `discard`,
    /// `sendmmsg`, `udp_segment`, …
    #[serde(skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// What the policy of this host did to what it sent by the path's device; absent without
    /// classes and without a policy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub qos: Option<QosEvidence>,
}

/// What TCP says of a flow over the measured time: the sender's `TCP_INFO`, except
/// `receive_window_bytes` and the `receiver_` keys.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct TcpEvidence {
    /// Congestion control in force.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub congestion: Option<String>,
    /// Largest payload of a segment that was negotiated, options taken off, bytes.
    pub mss_bytes: u32,
    /// MSS that this end advertised, options taken off, bytes.
    pub advmss_bytes: u32,
    /// MSS that the receiver's end advertised, options taken off, bytes; where the sender uses less
    /// than either end advertised, something on the way lowered it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receiver_advmss_bytes: Option<u32>,
    /// Largest payload of the segments that the receiver's end would send, options taken off,
    /// bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receiver_mss_bytes: Option<u32>,
    /// Path MTU that the receiver's kernel believes in, bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receiver_pmtu_bytes: Option<u32>,
    /// Payload over data segments sent, bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effective_segment_bytes: Option<f64>,
    /// Path MTU that the kernel believes in, bytes.
    pub pmtu_bytes: u32,
    /// Smallest round-trip time of the connection, µs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rtt_min_us: Option<u32>,
    /// Mean of the smoothed round-trip times sampled in the run, µs.
    pub rtt_mean_us: u32,
    /// 95th percentile of the smoothed round-trip times sampled in the run, µs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rtt_p95_us: Option<u32>,
    /// Mean deviation of the round-trip time at the end, µs.
    pub rtt_var_us: u32,
    /// Segments retransmitted.
    pub retransmitted_segments: u64,
    /// Retransmissions that the peer reported as spurious (DSACK).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dsack_duplicates: Option<u64>,
    /// Payload retransmitted, bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retransmitted_bytes: Option<u64>,
    /// Times that the congestion window was cut while sampled: sample intervals with new
    /// retransmissions.
    pub loss_events: u64,
    /// How much the windows at which losses came differ: standard deviation over mean of the
    /// slow-start thresholds that they set. Absent where fewer than four were seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss_window_variation: Option<f64>,
    /// Readings of the sender in the measured time: what `loss_events` is counted over.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub samples: Option<u64>,
    /// Retransmission timeouts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeouts: Option<u64>,
    /// Reordering events seen by the sender.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reordering_seen: Option<u64>,
    /// Segments delivered with an ECN congestion mark.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delivered_ce: Option<u64>,
    /// Segments with payload sent, retransmissions included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data_segments_out: Option<u64>,
    /// Segments received by the sender: mostly acknowledgements.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub segments_in: Option<u64>,
    /// Largest window that the receiver offered, as the sender saw it, bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub send_window_bytes: Option<u64>,
    /// Share of the readings in which what was in flight filled the window that the receiver
    /// offered, 0–1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub send_window_full_share: Option<f64>,
    /// Largest window that the receiver's own kernel reports, bytes (it may be more than was
    /// offered).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receive_window_bytes: Option<u64>,
    /// Median congestion window of the samples, bytes.
    pub cwnd_bytes: u64,
    /// Mean of the congestion window of the samples, bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwnd_mean_bytes: Option<u64>,
    /// Slow-start threshold at the end, bytes; absent while none was set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ssthresh_bytes: Option<u64>,
    /// Median of the bytes in flight.
    pub unacked_bytes: u64,
    /// Median of the bytes written and not yet sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub notsent_bytes: Option<u64>,
    /// Time with data to send or in flight, µs; the two limited times are parts of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub busy_us: Option<u64>,
    /// Time limited by the receiver's window, µs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rwnd_limited_us: Option<u64>,
    /// Time limited by the send buffer, µs (0 with cubic on Linux whatever holds).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sndbuf_limited_us: Option<u64>,
    /// Median of the kernel's delivery rate, bits per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delivery_rate_bps: Option<u64>,
    /// Largest delivery rate of the samples that were not application-limited, bits per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delivery_rate_max_bps: Option<u64>,
    /// Share of the samples whose delivery rate was limited by the application, 0–1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub app_limited_share: Option<f64>,
    /// Median pacing rate of the samples, bits per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pacing_rate_bps: Option<u64>,
    /// Pacing rate that the socket was limited to, bits per second; absent without a limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_pacing_rate_bps: Option<u64>,
    /// Send buffer in force at the end, bytes as `SO_SNDBUF` reads (twice what may be used for
    /// payload and its overhead).
    pub send_buffer_bytes: u64,
    /// Receive buffer in force at the receiver at the end, bytes as `SO_RCVBUF` reads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receiver_buffer_bytes: Option<u64>,
    /// Memory that the send queue held, median, bytes as the kernel accounts it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub send_queue_memory_bytes: Option<u64>,
    /// Bytes that waited unread at the receiver, median.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receiver_unread_bytes: Option<u64>,
    /// TCP options in force: `timestamps`, `sack`, `wscale`, `ecn`.
    pub options: Vec<String>,
    /// The send window was fixed by the application: `SO_SNDBUF` or `SO_RCVBUF` was set.
    pub send_buffer_locked: bool,
    /// The receive buffer was fixed by the application.
    pub receive_buffer_locked: bool,
    /// MPTCP subflows at the end; absent for TCP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subflows: Option<u32>,
    /// The connection asked for MPTCP and fell back to TCP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mptcp_fallback: Option<bool>,
    /// MPTCP's figures for each subflow; the keys above are of the first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub subflow_rtts_us: Vec<u32>,
}

/// One reading of a flow's sender.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct TcpSample {
    /// Since the run began, µs.
    pub at_us: u64,
    /// Payload acknowledged so far, bytes.
    pub acked_bytes: u64,
    /// Smoothed round-trip time, µs.
    pub rtt_us: u32,
    /// Congestion window, bytes.
    pub cwnd_bytes: u64,
    /// Window offered by the receiver, bytes.
    pub send_window_bytes: u64,
    /// In flight, bytes.
    pub unacked_bytes: u64,
    /// Written and not sent, bytes.
    pub notsent_bytes: u64,
    /// Segments retransmitted so far.
    pub retransmitted_segments: u64,
    /// Delivery rate, bits per second.
    pub delivery_rate_bps: u64,
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
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct UdpEvidence {
    /// Datagrams that the sender handed to the kernel.
    pub sent: u64,
    /// Different datagrams that arrived.
    pub received: u64,
    /// Sent and never seen: path and socket drops together.
    pub lost: u64,
    /// Arrived more than once.
    pub duplicated: u64,
    /// Arrived after a later one (RFC 4737).
    pub reordered: u64,
    /// Dropped by the receiver's socket buffer (`SO_RXQ_OVFL`): not the path's loss. Absent where
    /// the receiver is another tool, which does not tell it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub socket_drops: Option<u64>,
    /// Loss of the path alone, percent of `sent`, where the socket's is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path_loss_percent: Option<f64>,
    /// Interarrival jitter, µs (RFC 3550, 6.4.1).
    pub jitter_us: f64,
    /// Datagrams that were not linerate's or had been altered.
    pub malformed: u64,
    /// Payload bytes that differ from the pattern sent, where it was verified.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub corrupted_bytes: Option<u64>,
    /// Sends that the sender's kernel refused for want of buffers.
    pub send_refused: u64,
    /// Gaps between departures, where the sender paced.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gaps_us: Option<GapSummary>,
    /// The rate asked of the sender, bits per second of payload.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub asked_bps: Option<u64>,
    /// Payload bytes of each datagram.
    pub datagram_bytes: u64,
    /// Of a packet train: payload bits per second at which it arrived, from its first datagram to
    /// its last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub train_bps: Option<f64>,
}
