//! The results of each end, which both send after the test; made from the report of linerate's end,
//! and read as a report of iperf3's.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::super::{are_possible, other_half};
use super::{count, count_if_known, stream_id};
use crate::plan::{Direction, Protocol, Test};
use crate::record::{CpuSeconds, EndReport, TcpEvidence};
use crate::session::message::{FlowHalf, HalfReport, UdpReceived, UdpSent};

/// Longest that a test can have been, seconds; more is no figure.
const MAX_SECONDS: f64 = 1e6;
/// A process cannot use more, percent of one CPU.
const MAX_CPU: f64 = 1e6;

/// The results of one stream at one end.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct StreamResult {
    /// 1, 3, 4, 5, …
    pub id: u32,
    /// Payload sent or received, warm-up left out.
    pub bytes: u64,
    /// Segments retransmitted, where a TCP sender knows.
    pub retransmits: Option<u64>,
    /// Jitter of arriving datagrams (RFC 3550), seconds.
    pub jitter_s: f64,
    /// Datagrams lost; without those of the warm-up if `omitted` is told.
    pub errors: u64,
    /// Datagrams sent, those of the warm-up included: at a receiver the highest number.
    pub packets: u64,
    /// Datagrams of the warm-up, which iperf3 3.12 does not tell.
    pub omitted: Option<u64>,
    /// Length, seconds, where it is told.
    pub seconds: Option<f64>,
}

/// The results of a test at one end.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Results {
    /// CPU time of the process, percent of one CPU: user, system.
    pub cpu_percent: (f64, f64),
    /// Whether this end is a TCP sender that counts what it sends again; `None` for an end that
    /// only receives.
    pub has_retransmits: Option<bool>,
    /// Congestion control of this end's sockets.
    pub congestion: Option<String>,
    /// Each stream.
    pub streams: Vec<StreamResult>,
    /// The server's output, if the client wants it.
    pub output: Option<String>,
}

impl Results {
    /// Longest JSON that a server takes: 256 streams, each written by a client of any version.
    pub(super) const MAX_FROM_CLIENT: usize = 256 << 10;
    /// Longest that a client takes, which may carry what the server has printed.
    pub(super) const MAX_FROM_SERVER: usize = 8 << 20;

    /// Reads the results of a test of `flows` flows.
    ///
    /// # Errors
    /// Why these are not the results of this test.
    pub fn parse(json: &[u8], flows: u32) -> Result<Self, String> {
        let raw: Value =
            serde_json::from_slice(json).map_err(|error| format!("the results: {error}"))?;
        let told = raw["streams"].as_array().ok_or("the results have no streams")?;
        let count = told.len();
        if count > flows as usize {
            return Err(format!("results of {count} streams in a test of {flows}"));
        }
        let read: Option<Vec<StreamResult>> = told.iter().map(StreamResult::read).collect();
        let streams = read.ok_or("a stream's results that are no figures")?;
        let mut seen = HashSet::new();
        if !streams.iter().all(|stream| seen.insert(stream.id)) {
            return Err("two results of one stream".to_owned());
        }
        let congestion = raw["congestion_used"].as_str().map(|name| {
            let plain = name.chars().filter(|c| c.is_ascii_graphic());
            plain.take(15).collect()
        });
        Ok(Self {
            cpu_percent: (
                measure(&raw["cpu_util_user"], MAX_CPU).unwrap_or(0.0),
                measure(&raw["cpu_util_system"], MAX_CPU).unwrap_or(0.0),
            ),
            has_retransmits: count_if_known(&raw["sender_has_retransmits"]).map(|has| has == 1),
            congestion,
            streams,
            output: match (&raw["server_output_text"], &raw["server_output_json"]) {
                (Value::String(text), _) => Some(text.clone()),
                (_, Value::Null) => None,
                (_, json) => Some(json.to_string()),
            },
        })
    }

    /// The results as they are sent.
    pub fn to_json(&self) -> Vec<u8> {
        let (user, system) = self.cpu_percent;
        let has_retransmits = match self.has_retransmits {
            None => -1,
            Some(has) => i32::from(has),
        };
        let streams: Vec<Value> = self.streams.iter().map(StreamResult::as_json).collect();
        let mut results = json!({
            "cpu_util_total": user + system,
            "cpu_util_user": user,
            "cpu_util_system": system,
            "sender_has_retransmits": has_retransmits,
            "streams": streams,
        });
        if let Some(congestion) = &self.congestion {
            results["congestion_used"] = json!(congestion);
        }
        if let Some(output) = &self.output {
            results["server_output_text"] = json!(output);
        }
        results.to_string().into_bytes()
    }

    /// The results of this end.
    pub fn of_half(half: &HalfReport, test: &Test) -> Self {
        let seconds = longest(half);
        let percent = |cpu_seconds: f64| {
            if seconds > 0.0 { 100.0 * cpu_seconds / seconds } else { 0.0 }
        };
        let tcp = test.protocol != Protocol::Udp;
        let cpu = half.end.cpu_seconds;
        let evidence = || half.flows.iter().filter_map(|flow| flow.tcp.as_ref());
        let sender = evidence().find_map(|tcp| tcp.sender()?.congestion.clone());
        // A receiver's socket has an algorithm, too, and never uses it.
        let receiver = || evidence().find_map(|tcp| tcp.receiver.as_ref()?.congestion.clone());
        Self {
            cpu_percent: (percent(cpu.user), percent(cpu.system)),
            has_retransmits: half.flows.iter().any(|flow| flow.sends).then_some(tcp),
            congestion: sender.or_else(receiver),
            streams: half.flows.iter().map(StreamResult::of_flow).collect(),
            output: None,
        }
    }

    /// Whether the counts can be those of the test that `here` has seen.
    pub fn is_possible(&self, here: &HalfReport) -> bool {
        here.flows.iter().all(|flow| {
            let id = stream_id(flow.id);
            let told = self.streams.iter().find(|stream| stream.id == id);
            told.is_none_or(|told| are_possible(told.bytes, flow))
        })
    }

    /// The other end's half of a test of which `here` is this end's. With `own_time` its streams
    /// are as long as this end's, whatever it tells: a server goes on counting until it hears that
    /// a test which ends by a count is over.
    pub fn to_half(&self, here: &HalfReport, own_time: bool) -> HalfReport {
        let flows = here.flows.iter().filter_map(|flow| {
            let id = stream_id(flow.id);
            let told = self.streams.iter().find(|stream| stream.id == id)?;
            let told = StreamResult { seconds: told.seconds.filter(|_| !own_time), ..*told };
            Some(told.to_flow(flow))
        });
        let seconds = longest(here);
        let (user, system) = self.cpu_percent;
        HalfReport {
            flows: flows.collect(),
            end: EndReport {
                cpu_seconds: CpuSeconds {
                    user: user / 100.0 * seconds,
                    system: system / 100.0 * seconds,
                },
                ..EndReport::default()
            },
            ..HalfReport::default()
        }
    }
}

impl StreamResult {
    /// Reads the results of a stream; `None` if its number or its bytes are no figures.
    fn read(raw: &Value) -> Option<Self> {
        // Sums of them must not overflow.
        let is_sane = |count: &u64| *count < 1 << 55;
        let known = |value: &Value| count_if_known(value).filter(is_sane).unwrap_or(0);
        Some(Self {
            id: u32::try_from(count(&raw["id"])?).ok()?,
            bytes: count(&raw["bytes"]).filter(is_sane)?,
            retransmits: count_if_known(&raw["retransmits"]).filter(is_sane),
            jitter_s: measure(&raw["jitter"], MAX_SECONDS).unwrap_or(0.0),
            errors: known(&raw["errors"]).saturating_sub(known(&raw["omitted_errors"])),
            packets: known(&raw["packets"]),
            omitted: count_if_known(&raw["omitted_packets"]).filter(is_sane),
            seconds: measure(&raw["end_time"], MAX_SECONDS).filter(|seconds| *seconds >= 1e-6),
        })
    }

    fn as_json(&self) -> Value {
        let retransmits = self.retransmits.map_or(json!(-1), |count| json!(count));
        let mut json = json!({
            "id": self.id,
            "bytes": self.bytes,
            "retransmits": retransmits,
            "jitter": self.jitter_s,
            "errors": self.errors,
            "packets": self.packets,
            "start_time": 0,
            "end_time": self.seconds.unwrap_or(0.0),
        });
        // Both or neither.
        if let Some(omitted) = self.omitted {
            json["omitted_packets"] = json!(omitted);
            json["omitted_errors"] = json!(0);
        }
        json
    }

    fn of_flow(flow: &FlowHalf) -> Self {
        let mut result = Self {
            id: stream_id(flow.id),
            bytes: flow.bytes,
            seconds: Some(flow.seconds),
            ..Self::default()
        };
        let tcp = flow.tcp.as_ref();
        result.retransmits = tcp.and_then(TcpEvidence::retransmitted_segments);
        // iperf3 3.12 takes its own warm-up from the packets, and nothing from the errors.
        if let Some(sent) = &flow.udp_sent {
            result.packets = sent.omitted + sent.sent;
            result.omitted = Some(sent.omitted);
        }
        if let Some(received) = &flow.udp_received {
            let expected = received.expected.unwrap_or(received.received);
            result.packets = received.omitted + expected;
            result.omitted = Some(received.omitted);
            result.errors = expected.saturating_sub(received.received);
            result.jitter_s = received.jitter_ns / 1e9;
        }
        result
    }

    /// The other end's half of `flow`.
    fn to_flow(self, flow: &FlowHalf) -> FlowHalf {
        let udp_sent = flow.udp_received.as_ref().map(|received| UdpSent {
            sent: self.sent_to(received, flow.direction),
            ..UdpSent::default()
        });
        let udp_received = flow.udp_sent.as_ref().map(|sent| self.received_of(sent));
        let sent = udp_sent.as_ref().map(|sent| sent.sent);
        let received = || udp_received.as_ref().map(|received| received.received);
        let messages = sent.or_else(received);
        FlowHalf {
            udp_sent,
            udp_received,
            ..other_half(flow, self.bytes, messages, self.seconds, self.retransmits)
        }
    }

    /// What the other end has sent in the measured time of this one. The two do not begin and end
    /// at the same moment, but they number the datagrams alike.
    fn sent_to(&self, received: &UdpReceived, direction: Direction) -> u64 {
        let expected = received.expected.unwrap_or(received.received);
        let omitted = received.omitted.max(self.omitted.unwrap_or(0));
        match direction {
            // A server sends on until it hears of the end.
            Direction::Down if expected > 0 => expected,
            _ => expected.max(self.packets.saturating_sub(omitted)),
        }
    }

    /// What the other end has received of what this one has sent in its measured time.
    fn received_of(&self, sent: &UdpSent) -> UdpReceived {
        let all = sent.omitted + sent.sent;
        let lost = match self.omitted {
            // Of both phases alike.
            None if sent.omitted > 0 => {
                (self.errors as f64 * sent.sent as f64 / all as f64).round() as u64
            }
            _ => self.errors,
        };
        // Behind the last that came.
        let unseen = all.saturating_sub(self.packets);
        UdpReceived {
            received: sent.sent.saturating_sub(lost.saturating_add(unseen)),
            jitter_ns: self.jitter_s * 1e9,
            ..UdpReceived::default()
        }
    }
}

/// A figure from 0 to `most`.
fn measure(value: &Value, most: f64) -> Option<f64> {
    let figure = value.as_f64()?;
    (0.0..=most).contains(&figure).then_some(figure)
}

fn longest(half: &HalfReport) -> f64 {
    half.flows.iter().map(|f| f.seconds).fold(0.0, f64::max)
}
