//! The figures of both ends' kernels about a run: of CPUs, sockets, a host's policy, UDP and TCP.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};
use serde_with_macros::skip_serializing_none;

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
    /// Runs of consecutive datagrams among the lost; absent if the receiver does not report it.
    pub loss_runs: Option<u64>,
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
    /// Mean one-way delay over the smallest of the flow, that of the warm-up included, µs: what a
    /// queue adds. The clocks of both ends need not agree.
    pub added_delay_us: Option<f64>,
    /// Growth of the one-way delay while it was sent, percent of the sending time: a queue grows by
    /// what is sent beyond the rate of the link behind it.
    pub delay_growth_percent: Option<f64>,
    /// Standard error of that growth, percent of the sending time: what jitter makes of it.
    pub delay_growth_error_percent: Option<f64>,
    /// Standard deviation over mean of the distances between losses, in datagrams: √(p³ + (1 − p)³)
    /// of losses by chance at a share p, less where a full queue or a token bucket takes each so
    /// many-th. Absent below 20 distances.
    pub loss_spacing_variation: Option<f64>,
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
    /// Packet train: payload bits per second in the second half of its datagrams, up to one that is
    /// missing.
    pub train_bps: Option<f64>,
    /// Packet train: datagrams from the first to that last one.
    pub train_datagrams: Option<u64>,
}

// Counts of a host's policy for the path's device.

/// The DiffServ policy of the path's device with the counts of its classes and meters in the
/// measured time. Classes of an HTB that is not linerate's are reported as well, without a policy's
/// name.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct QosEvidence {
    /// The device.
    pub device: String,
    /// The uppermost class above the busiest one, `major:minor`; absent if that has none above it.
    pub link_class: Option<String>,
    /// Rate of that class, frames in bits per second.
    pub link_bps: Option<f64>,
    /// Frames sent by it, bytes.
    pub link_bytes: Option<u64>,
    /// A shaper without classes instead of the root class (`tbf`, `cake`).
    pub shaper: Option<QosClass>,
    /// The leaf classes that sent or dropped something, the busiest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub classes: Vec<QosClass>,
    /// The policies that took packets, the busiest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub policies: Vec<QosPolicy>,
}

/// A class of HTB. Bytes are those of frames without preamble, check sequence and gap, as queueing
/// disciplines count.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct QosClass {
    /// `major:minor`, hexadecimal; for a shaper its kind.
    pub class: String,
    /// Its policy; absent for the class of all other packets, and for classes that are not
    /// linerate's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// Guaranteed rate, bits per second.
    pub rate_bps: f64,
    /// Maximum rate, bits per second: its own, or that of a class above it.
    pub ceil_bps: f64,
    /// Bytes sent.
    pub bytes: u64,
    /// Packets sent, with each segment of an offloaded one.
    pub packets: u64,
    /// Packets dropped because its queue was full.
    pub dropped: u64,
    /// Times that it had to wait, because it had used up its rate and could borrow nothing.
    pub overlimits: u64,
    /// Packets sent from its own rate.
    pub lended: u64,
    /// Packets sent at the rate that others left.
    pub borrowed: u64,
    /// Bytes that waited at the end.
    pub backlog_bytes: u64,
}

/// The counts of a policy.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct QosPolicy {
    /// Its name.
    pub policy: String,
    /// Packets that it took, including those that it dropped.
    pub packets: u64,
    /// Their bytes on the wire.
    pub bytes: u64,
    /// Packets dropped by it or its meter.
    pub dropped_packets: u64,
    /// Their bytes.
    pub dropped_bytes: u64,
    /// Long-run rate above which its meter drops, frames in bits per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drops_above_bps: Option<f64>,
}

// TCP's figures from the kernels of both ends.

/// TCP's figures of a flow over the measured time. In JSON the keys of both ends stand side by
/// side: those of the receiver begin with `receive`, all others are of the sender.
#[derive(Debug, Clone, Default, PartialEq, Serialize, JsonSchema)]
pub struct TcpEvidence {
    /// The figures of the sending end.
    #[serde(flatten)]
    #[schemars(with = "Option<TcpSender>")]
    pub sender: Option<SenderEvidence>,
    /// The figures of the receiver's kernel.
    #[serde(flatten)]
    pub receiver: Option<TcpReceiver>,
}

/// The figures of the sending end.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum SenderEvidence {
    /// From its kernel.
    Read(Box<TcpSender>),
    /// From another tool, which reports no more.
    Told {
        /// Segments retransmitted.
        retransmitted_segments: u64,
    },
}

impl TcpEvidence {
    /// The figures of another tool that sends.
    pub fn told(retransmitted_segments: u64) -> Self {
        let sender = SenderEvidence::Told { retransmitted_segments };
        Self { sender: Some(sender), receiver: None }
    }

    /// The figures of the sender's kernel; `None` if it was not read.
    pub fn sender(&self) -> Option<&TcpSender> {
        match self.sender.as_ref()? {
            SenderEvidence::Read(sender) => Some(sender),
            SenderEvidence::Told { .. } => None,
        }
    }

    /// Segments retransmitted, from the sender's kernel or its tool.
    pub fn retransmitted_segments(&self) -> Option<u64> {
        Some(match self.sender.as_ref()? {
            SenderEvidence::Read(sender) => sender.retransmitted_segments,
            SenderEvidence::Told { retransmitted_segments } => *retransmitted_segments,
        })
    }
}

impl From<TcpSender> for TcpEvidence {
    fn from(sender: TcpSender) -> Self {
        Self { sender: Some(SenderEvidence::Read(Box::new(sender))), receiver: None }
    }
}

impl From<TcpReceiver> for TcpEvidence {
    fn from(receiver: TcpReceiver) -> Self {
        Self { sender: None, receiver: Some(receiver) }
    }
}

impl<'de> Deserialize<'de> for TcpEvidence {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let keys = Map::deserialize(deserializer)?.into_iter();
        let (receiver, sender): (Keys, Keys) =
            keys.partition(|(key, _)| key.starts_with("receive"));
        let told = sender.get("retransmitted_segments").and_then(Value::as_u64);
        Ok(Self {
            sender: match told.filter(|_| sender.len() == 1) {
                Some(retransmitted_segments) => {
                    Some(SenderEvidence::Told { retransmitted_segments })
                }
                None => read(sender)?.map(SenderEvidence::Read),
            },
            receiver: read(receiver)?,
        })
    }
}

type Keys = Map<String, Value>;

/// One end's keys; `None` if there are none.
fn read<T: DeserializeOwned, E: Error>(keys: Keys) -> Result<Option<T>, E> {
    if keys.is_empty() {
        return Ok(None);
    }
    let end = serde_json::from_value(Value::Object(keys));
    end.map(Some).map_err(E::custom)
}

/// The figures of the sender's kernel (`TCP_INFO`).
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct TcpSender {
    /// Congestion control in force.
    pub congestion: Option<String>,
    /// Negotiated largest payload of a segment, without TCP options, bytes.
    pub mss_bytes: u32,
    /// MSS that this end advertised, without TCP options, bytes.
    pub advmss_bytes: u32,
    /// Payload over data segments sent, bytes.
    pub effective_segment_bytes: Option<f64>,
    /// Path MTU that the kernel assumes, bytes.
    pub pmtu_bytes: u32,
    /// Smallest round-trip time of the connection, µs.
    pub rtt_min_us: Option<u32>,
    /// Mean of the smoothed round-trip times sampled in the run, µs.
    pub rtt_mean_us: u32,
    /// 95th percentile of the smoothed round-trip times sampled in the run, µs.
    pub rtt_p95_us: Option<u32>,
    /// Mean deviation of the round-trip time at the end, µs.
    pub rtt_var_us: u32,
    /// Segments retransmitted.
    pub retransmitted_segments: u64,
    /// Segments retransmitted in the warm-up, which the other figures leave out.
    pub warm_up_retransmitted_segments: Option<u64>,
    /// Retransmissions that the peer reported as spurious (DSACK).
    pub dsack_duplicates: Option<u64>,
    /// Payload retransmitted, bytes.
    pub retransmitted_bytes: Option<u64>,
    /// Sample intervals with new retransmissions: times that the congestion window was cut.
    pub loss_events: u64,
    /// Variation of the windows at which losses came: standard deviation over mean of the
    /// slow-start thresholds that they set. Absent for fewer than four.
    pub loss_window_variation: Option<f64>,
    /// Readings of the sender in the measured time, over which `loss_events` is counted.
    pub samples: Option<u64>,
    /// Retransmission timeouts.
    pub timeouts: Option<u64>,
    /// Reordering events seen by the sender.
    pub reordering_seen: Option<u64>,
    /// Segments delivered with an ECN congestion mark.
    pub delivered_ce: Option<u64>,
    /// Segments with payload sent, retransmissions included.
    pub data_segments_out: Option<u64>,
    /// Segments received by the sender: mostly acknowledgements.
    pub segments_in: Option<u64>,
    /// Largest window that the receiver offered, as the sender saw it, bytes.
    pub send_window_bytes: Option<u64>,
    /// Largest window that the receiver offered since the connection began, the warm-up included,
    /// bytes: one that closes behind a late reader was open at first.
    pub send_window_max_bytes: Option<u64>,
    /// Median of the windows that the receiver offered, bytes.
    pub send_window_median_bytes: Option<u64>,
    /// Share of the readings in which the bytes in flight filled the window that the receiver
    /// offered, 0–1.
    pub send_window_full_share: Option<f64>,
    /// Median congestion window of the samples, bytes.
    pub cwnd_bytes: u64,
    /// Mean of the congestion window of the samples, bytes.
    pub cwnd_mean_bytes: Option<u64>,
    /// Slow-start threshold at the end, bytes; absent while none was set.
    pub ssthresh_bytes: Option<u64>,
    /// Median of the bytes in flight.
    pub unacked_bytes: u64,
    /// Median of the bytes that were written and not yet sent.
    pub notsent_bytes: Option<u64>,
    /// Time with data to send or in flight, µs; the two limited times are parts of it.
    pub busy_us: Option<u64>,
    /// Time limited by the receiver's window, µs.
    pub rwnd_limited_us: Option<u64>,
    /// Time limited by the send buffer, µs (always 0 with cubic on Linux).
    pub sndbuf_limited_us: Option<u64>,
    /// Median of the kernel's delivery rate, bits per second.
    pub delivery_rate_bps: Option<u64>,
    /// Largest delivery rate of the samples that were not application-limited, bits per second.
    pub delivery_rate_max_bps: Option<u64>,
    /// Share of the samples whose delivery rate was limited by the application, 0–1.
    pub app_limited_share: Option<f64>,
    /// Median pacing rate of the samples, bits per second.
    pub pacing_rate_bps: Option<u64>,
    /// Pacing rate that the socket was limited to, bits per second; absent without a limit.
    pub max_pacing_rate_bps: Option<u64>,
    /// Send buffer in force at the end, bytes as `SO_SNDBUF` reads, which includes the overhead of
    /// packets.
    pub send_buffer_bytes: u64,
    /// Memory that the send queue held, median, bytes as the kernel accounts it.
    pub send_queue_memory_bytes: Option<u64>,
    /// TCP options in force: `timestamps`, `sack`, `wscale`, `ecn`.
    pub options: Vec<String>,
    /// The send window was fixed by the application: `SO_SNDBUF` or `SO_RCVBUF` was set.
    pub send_buffer_locked: bool,
    /// Time with nothing in flight and room in the window, µs; from packets alone, as the next five.
    pub idle_us: Option<u64>,
    /// The part of `idle_us` that ended with data of the receiver, such as a request, µs.
    pub idle_until_asked_us: Option<u64>,
    /// Time in which the receiver offered no window, µs.
    pub zero_window_us: Option<u64>,
    /// Times that the receiver's window closed.
    pub zero_windows: Option<u64>,
    /// Time without progress before retransmission timeouts, µs.
    pub timeout_wait_us: Option<u64>,
    /// Share of the segments that were sent while no other was in flight, 0–1.
    pub alone_share: Option<f64>,
    /// MPTCP subflows at the end; absent for TCP.
    pub subflows: Option<u32>,
    /// The connection asked for MPTCP and fell back to TCP.
    pub mptcp_fallback: Option<bool>,
    /// MPTCP's figures for each subflow; the keys above are of the first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub subflow_rtts_us: Vec<u32>,
}

/// The figures of the receiver's kernel.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct TcpReceiver {
    /// MSS that the receiver advertised, without TCP options, bytes; if the sender uses less than
    /// either end advertised, something on the way lowered it.
    #[serde(rename = "receiver_advmss_bytes")]
    pub advmss_bytes: u32,
    /// Largest payload of the segments that the receiver would send, without TCP options, bytes.
    #[serde(rename = "receiver_mss_bytes")]
    pub mss_bytes: u32,
    /// Path MTU that the receiver's kernel assumes, bytes.
    #[serde(rename = "receiver_pmtu_bytes")]
    pub pmtu_bytes: u32,
    /// Smallest round-trip time that the receiver saw, mostly that of the handshake, µs.
    #[serde(rename = "receiver_rtt_min_us")]
    pub rtt_min_us: Option<u32>,
    /// Mean of the round-trip times that the receiver estimated from the data, with the queues on
    /// its way, µs; a sender that paused makes them longer.
    #[serde(rename = "receiver_rtt_mean_us")]
    pub rtt_mean_us: Option<u32>,
    /// Congestion control of the receiver's own sending direction.
    #[serde(rename = "receiver_congestion")]
    pub congestion: Option<String>,
    /// Largest window that the receiver reports, bytes (it may be more than was offered).
    #[serde(rename = "receive_window_bytes")]
    pub window_bytes: Option<u64>,
    /// The receiver's buffer in force at the end, bytes as `SO_RCVBUF` reads.
    #[serde(rename = "receiver_buffer_bytes")]
    pub buffer_bytes: Option<u64>,
    /// Bytes that waited unread at the receiver, median.
    #[serde(rename = "receiver_unread_bytes")]
    pub unread_bytes: Option<u64>,
    /// The receive buffer was fixed by the application.
    #[serde(rename = "receive_buffer_locked")]
    pub buffer_locked: bool,
}

/// One reading of a flow's sender.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct TcpSample {
    /// Time since the run began, µs.
    pub at_us: u64,
    /// Payload acknowledged so far, bytes.
    pub acked_bytes: u64,
    /// Smoothed round-trip time, µs.
    pub rtt_us: u32,
    /// Congestion window, bytes.
    pub cwnd_bytes: u64,
    /// Window offered by the receiver, bytes.
    pub send_window_bytes: u64,
    /// Bytes in flight.
    pub unacked_bytes: u64,
    /// Bytes written and not sent.
    pub notsent_bytes: u64,
    /// Segments retransmitted so far.
    pub retransmitted_segments: u64,
    /// Delivery rate, bits per second.
    pub delivery_rate_bps: u64,
}
