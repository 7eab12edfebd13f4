//! TCP's figures from the kernels of both ends.

use schemars::JsonSchema;
use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};
use serde_with_macros::skip_serializing_none;

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
