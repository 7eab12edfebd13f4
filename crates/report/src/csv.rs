//! Records as comma-separated values (RFC 4180): one row for each, the unit in each column's name.
//!
//! The columns are the same for every document: a figure that a record does not have is an empty
//! field. Figures are as exact as the record's. Adding a column at the end is free, renaming one is
//! a new version.

use linerate_core::plan::Traffic;
use linerate_core::record::{EndReport, Record, TcpEvidence, UdpEvidence};
use linerate_core::stats::LatencySummary;

use crate::key_of;

/// A heading and a row for each run, in the order in which they ran.
pub fn rows(records: &[&Record]) -> String {
    let mut writer = csv::Writer::from_writer(Vec::new());
    let heading = COLUMNS.iter().map(|(name, _)| (*name).to_owned());
    let row = |record: &&Record| -> Vec<String> {
        let fields = COLUMNS.iter().map(|(_, field)| field(record));
        fields.map(Option::unwrap_or_default).collect()
    };
    for line in [heading.collect()]
        .into_iter()
        .chain(records.iter().map(row))
    {
        let written = writer.write_record(line);
        written.expect("memory takes rows of one length");
    }
    let bytes = writer.into_inner().expect("memory takes every row");
    String::from_utf8(bytes).expect("the fields are text")
}

/// How a field is read off a record.
type Field = fn(&Record) -> Option<String>;

/// Every column: its name and its field.
const COLUMNS: &[(&str, Field)] = &[
    ("started_at", |r| Some(r.started_at.clone())),
    ("host", |r| Some(r.host.clone())),
    ("peer", |r| Some(r.peer.clone())),
    ("status", |r| Some(key_of(&r.status))),
    ("workload", |r| Some(key_of(&r.workload))),
    ("protocol", |r| Some(key_of(&r.protocol))),
    ("family", |r| Some(key_of(&r.family))),
    ("direction", |r| Some(key_of(&r.direction))),
    ("streams", |r| Some(r.plan.streams.to_string())),
    ("message_bytes", |r| match &r.plan.traffic {
        Traffic::Stream(stream) => Some(stream.message_bytes.to_string()),
        Traffic::Rr(_) | Traffic::Crr(_) => None,
    }),
    ("request_bytes", |r| match &r.plan.traffic {
        Traffic::Stream(_) => None,
        Traffic::Rr(exchange) | Traffic::Crr(exchange) => Some(exchange.request_bytes.to_string()),
    }),
    ("response_bytes", |r| match &r.plan.traffic {
        Traffic::Stream(_) => None,
        Traffic::Rr(exchange) | Traffic::Crr(exchange) => Some(exchange.response_bytes.to_string()),
    }),
    ("seconds", |r| Some(r.seconds.to_string())),
    ("bytes", |r| Some(r.bytes.to_string())),
    ("messages", |r| text(r.messages)),
    ("transactions", |r| text(r.transactions)),
    ("throughput_bps", |r| text(r.throughput_bps)),
    ("up_throughput_bps", |r| part(r, "up")),
    ("down_throughput_bps", |r| part(r, "down")),
    ("transactions_per_s", |r| text(r.transactions_per_s)),
    ("connections_per_s", |r| text(r.connections_per_s)),
    ("failed", |r| text(r.failed)),
    ("requests_not_sent", |r| text(r.requests_not_sent)),
    ("corrupted_bytes", |r| text(r.corrupted_bytes)),
    ("latency_min_us", |r| latency(r, |l| l.min)),
    ("latency_mean_us", |r| latency(r, |l| l.mean)),
    ("latency_p50_us", |r| latency(r, |l| l.p50)),
    ("latency_p90_us", |r| latency(r, |l| l.p90)),
    ("latency_p99_us", |r| latency(r, |l| l.p99)),
    ("latency_p999_us", |r| latency(r, |l| l.p999)),
    ("latency_max_us", |r| latency(r, |l| l.max)),
    ("latency_count", |r| {
        text(r.latency_us.as_ref().map(|l| l.count))
    }),
    ("sender_host_cpu_percent", |r| {
        sender(r, |e| e.host_cpu_percent)
    }),
    ("receiver_host_cpu_percent", |r| {
        receiver(r, |e| e.host_cpu_percent)
    }),
    ("sender_busiest_core_percent", |r| {
        sender(r, |e| e.busiest_core_percent)
    }),
    ("receiver_busiest_core_percent", |r| {
        receiver(r, |e| e.busiest_core_percent)
    }),
    ("sender_service_demand_us_per_kib", |r| {
        sender(r, |e| e.service_demand_us_per_kib)
    }),
    ("receiver_service_demand_us_per_kib", |r| {
        receiver(r, |e| e.service_demand_us_per_kib)
    }),
    ("sender_service_demand_threads_us_per_kib", |r| {
        sender(r, |e| e.service_demand_threads_us_per_kib)
    }),
    ("receiver_service_demand_threads_us_per_kib", |r| {
        receiver(r, |e| e.service_demand_threads_us_per_kib)
    }),
    ("shared_kernel", |r| {
        Some(r.environment.shared_kernel.to_string())
    }),
    ("tcp_congestion", |r| r.tcp.as_ref()?.congestion.clone()),
    ("tcp_mss_bytes", |r| tcp(r, |t| Some(t.mss_bytes.into()))),
    ("tcp_pmtu_bytes", |r| tcp(r, |t| Some(t.pmtu_bytes.into()))),
    ("tcp_effective_segment_bytes", |r| {
        text(r.tcp.as_ref()?.effective_segment_bytes)
    }),
    ("tcp_rtt_min_us", |r| {
        tcp(r, |t| t.rtt_min_us.map(u64::from))
    }),
    ("tcp_rtt_mean_us", |r| {
        tcp(r, |t| Some(t.rtt_mean_us.into()))
    }),
    ("tcp_retransmitted_segments", |r| {
        tcp(r, |t| Some(t.retransmitted_segments))
    }),
    ("tcp_loss_events", |r| tcp(r, |t| Some(t.loss_events))),
    ("tcp_data_segments_out", |r| tcp(r, |t| t.data_segments_out)),
    ("tcp_send_window_bytes", |r| tcp(r, |t| t.send_window_bytes)),
    ("tcp_cwnd_bytes", |r| tcp(r, |t| Some(t.cwnd_bytes))),
    ("tcp_busy_us", |r| tcp(r, |t| t.busy_us)),
    ("tcp_rwnd_limited_us", |r| tcp(r, |t| t.rwnd_limited_us)),
    ("tcp_sndbuf_limited_us", |r| tcp(r, |t| t.sndbuf_limited_us)),
    ("tcp_delivery_rate_bps", |r| tcp(r, |t| t.delivery_rate_bps)),
    ("udp_sent", |r| udp(r, |u| u.sent)),
    ("udp_received", |r| udp(r, |u| u.received)),
    ("udp_lost", |r| udp(r, |u| u.lost)),
    ("udp_duplicated", |r| udp(r, |u| u.duplicated)),
    ("udp_reordered", |r| udp(r, |u| u.reordered)),
    ("udp_socket_drops", |r| udp(r, |u| u.socket_drops)),
    ("udp_jitter_us", |r| {
        text(r.udp.as_ref().map(|u| u.jitter_us))
    }),
    ("verdict", |r| Some(key_of(&r.verdict.as_ref()?.cause))),
    ("verdict_share_of_ceiling", |r| {
        text(r.verdict.as_ref()?.share_of_ceiling)
    }),
    ("verdict_predicted_bps", |r| {
        text(r.verdict.as_ref()?.predicted_bps)
    }),
    ("caveats", |r| {
        let kinds: Vec<String> = r
            .caveats
            .iter()
            .map(|caveat| key_of(&caveat.kind))
            .collect();
        Some(kinds.join(" "))
    }),
    ("seed", |r| Some(r.seed.to_string())),
];

fn text(figure: Option<impl ToString>) -> Option<String> {
    figure.map(|figure| figure.to_string())
}

fn part(record: &Record, direction: &str) -> Option<String> {
    let part = record.directions.get(direction)?;
    Some(part.throughput_bps.to_string())
}

fn latency(record: &Record, figure: fn(&LatencySummary) -> f64) -> Option<String> {
    text(record.latency_us.as_ref().map(figure))
}

fn sender(record: &Record, figure: fn(&EndReport) -> Option<f64>) -> Option<String> {
    text(figure(record.sender.as_ref()?))
}

fn receiver(record: &Record, figure: fn(&EndReport) -> Option<f64>) -> Option<String> {
    text(figure(record.receiver.as_ref()?))
}

fn tcp(record: &Record, figure: fn(&TcpEvidence) -> Option<u64>) -> Option<String> {
    text(figure(record.tcp.as_ref()?))
}

fn udp(record: &Record, figure: fn(&UdpEvidence) -> u64) -> Option<String> {
    text(record.udp.as_ref().map(figure))
}
