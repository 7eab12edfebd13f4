//! Records as comma-separated values (RFC 4180): one row for each direction that ran, the unit in each
//! column's name.
//!
//! The columns are the same for every document: a figure that a record does not have is an empty
//! field. Figures are as exact as the record's. Adding a column at the end is free, renaming one is
//! a new version. [`intervals`] has a row for each interval instead: what happened when.

use linerate_core::plan::{Direction, Traffic};
use linerate_core::record::{EndReport, Interval, Leg, Record, SizeFigure, TcpSender, UdpEvidence};
use linerate_core::stats::{Figure, LatencySummary, MedianInterval};

use crate::key_of;

/// A heading and a row for each direction of each run, in the order in which they ran. `figures` are
/// of the sizes that were repeated.
pub fn rows(records: &[&Record], figures: &[SizeFigure]) -> String {
    let names = COLUMNS.iter().map(|(name, _)| *name);
    let medians = MEDIANS.iter().map(|(name, ..)| *name);
    let row = |(_, record, leg): (usize, &Record, &Leg)| -> Vec<String> {
        let fields = COLUMNS.iter().map(|(_, field)| field(record, leg));
        let size = record.plan.traffic.message_bytes();
        let figure = figures.iter().find(|of| of.message_bytes == size);
        let medians = MEDIANS.iter().map(|(_, metric, end)| {
            let found = figure.filter(|of| of.metric == *metric)?;
            let Figure::One(one) = &found.figure else {
                return None;
            };
            text(Some(end(one)))
        });
        let fields = fields.chain(medians);
        fields.map(Option::unwrap_or_default).collect()
    };
    table(names.chain(medians), legs(records).map(row))
}

/// A heading and a row for each interval of each direction of each run.
pub fn intervals(records: &[&Record]) -> String {
    let rows = legs(records).flat_map(|(run, record, leg)| {
        record.intervals_of(leg).map(move |interval| {
            let fields = INTERVAL_COLUMNS
                .iter()
                .map(|(_, field)| field(run, record, leg, interval));
            fields.map(Option::unwrap_or_default).collect()
        })
    });
    table(INTERVAL_COLUMNS.iter().map(|(name, _)| *name), rows)
}

/// Each direction of each run, with the number of the run from 1.
fn legs<'a>(records: &'a [&Record]) -> impl Iterator<Item = (usize, &'a Record, &'a Leg)> {
    let runs = (1..).zip(records);
    runs.flat_map(|(run, record)| record.legs.iter().map(move |leg| (run, *record, leg)))
}

fn table<'a>(
    heading: impl Iterator<Item = &'a str>,
    rows: impl Iterator<Item = Vec<String>>,
) -> String {
    let mut writer = csv::Writer::from_writer(Vec::new());
    for line in std::iter::once(heading.map(str::to_owned).collect()).chain(rows) {
        let written = writer.write_record::<Vec<String>, _>(line);
        written.expect("memory takes rows of one length");
    }
    let bytes = writer.into_inner().expect("memory takes every row");
    String::from_utf8(bytes).expect("the fields are text")
}

/// How a field is read off a direction of a record.
type Field = fn(&Record, &Leg) -> Option<String>;

/// Every column: its name and its field.
const COLUMNS: &[(&str, Field)] = &[
    ("started_at", |r, _| Some(r.started_at.clone())),
    ("host", |r, _| Some(r.host.clone())),
    ("peer", |r, _| Some(r.peer.clone())),
    ("status", |r, _| Some(key_of(&r.status))),
    ("workload", |r, _| Some(key_of(&r.workload))),
    ("protocol", |r, _| Some(key_of(&r.protocol))),
    ("family", |r, _| Some(key_of(&r.family))),
    ("direction", |_, l| Some(key_of(&l.direction))),
    ("streams", |r, _| Some(r.plan.streams.to_string())),
    ("message_bytes", |r, _| match &r.plan.traffic {
        Traffic::Stream(stream) => Some(stream.message_bytes.to_string()),
        Traffic::Rr(_) | Traffic::Crr(_) => None,
    }),
    ("request_bytes", |r, _| match &r.plan.traffic {
        Traffic::Stream(_) => None,
        Traffic::Rr(exchange) | Traffic::Crr(exchange) => Some(exchange.request_bytes.to_string()),
    }),
    ("response_bytes", |r, _| match &r.plan.traffic {
        Traffic::Stream(_) => None,
        Traffic::Rr(exchange) | Traffic::Crr(exchange) => Some(exchange.response_bytes.to_string()),
    }),
    ("seconds", |r, _| Some(r.seconds.to_string())),
    ("bytes", |_, l| Some(l.bytes.to_string())),
    ("messages", |r, _| text(r.messages)),
    ("transactions", |r, _| text(r.transactions)),
    ("throughput_bps", |_, l| text(l.throughput_bps)),
    ("up_throughput_bps", |r, _| one_of_two(r, Direction::Up)),
    ("down_throughput_bps", |r, _| one_of_two(r, Direction::Down)),
    ("transactions_per_s", |r, _| text(r.transactions_per_s)),
    ("connections_per_s", |r, _| text(r.connections_per_s)),
    ("failed", |r, _| text(r.failed)),
    ("requests_not_sent", |r, _| text(r.requests_not_sent)),
    ("corrupted_bytes", |r, _| text(r.corrupted_bytes)),
    ("latency_min_us", |r, _| latency(r, |l| l.min)),
    ("latency_mean_us", |r, _| latency(r, |l| l.mean)),
    ("latency_p50_us", |r, _| latency(r, |l| l.p50)),
    ("latency_p90_us", |r, _| latency(r, |l| l.p90)),
    ("latency_p99_us", |r, _| latency(r, |l| l.p99)),
    ("latency_p999_us", |r, _| latency(r, |l| l.p999)),
    ("latency_max_us", |r, _| latency(r, |l| l.max)),
    ("latency_count", |r, _| {
        text(r.latency_us.as_ref().map(|l| l.count))
    }),
    ("sender_host_cpu_percent", |_, l| {
        sender(l, |e| e.host_cpu_percent)
    }),
    ("receiver_host_cpu_percent", |_, l| {
        receiver(l, |e| e.host_cpu_percent)
    }),
    ("sender_busiest_core_percent", |_, l| {
        sender(l, |e| e.busiest_core_percent)
    }),
    ("receiver_busiest_core_percent", |_, l| {
        receiver(l, |e| e.busiest_core_percent)
    }),
    ("sender_service_demand_us_per_kib", |_, l| {
        sender(l, |e| e.service_demand_us_per_kib)
    }),
    ("receiver_service_demand_us_per_kib", |_, l| {
        receiver(l, |e| e.service_demand_us_per_kib)
    }),
    ("sender_service_demand_threads_us_per_kib", |_, l| {
        sender(l, |e| e.service_demand_threads_us_per_kib)
    }),
    ("receiver_service_demand_threads_us_per_kib", |_, l| {
        receiver(l, |e| e.service_demand_threads_us_per_kib)
    }),
    ("shared_kernel", |r, _| {
        Some(r.environment.shared_kernel.to_string())
    }),
    ("tcp_congestion", |_, l| l.tcp_sender()?.congestion.clone()),
    ("tcp_mss_bytes", |_, l| tcp(l, |t| Some(t.mss_bytes.into()))),
    ("tcp_pmtu_bytes", |_, l| {
        tcp(l, |t| Some(t.pmtu_bytes.into()))
    }),
    ("tcp_effective_segment_bytes", |_, l| {
        text(l.tcp_sender()?.effective_segment_bytes)
    }),
    ("tcp_rtt_min_us", |_, l| {
        tcp(l, |t| t.rtt_min_us.map(u64::from))
    }),
    ("tcp_rtt_mean_us", |_, l| {
        tcp(l, |t| Some(t.rtt_mean_us.into()))
    }),
    ("tcp_retransmitted_segments", |_, l| {
        text(l.tcp.as_ref()?.retransmitted_segments())
    }),
    ("tcp_loss_events", |_, l| tcp(l, |t| Some(t.loss_events))),
    ("tcp_data_segments_out", |_, l| {
        tcp(l, |t| t.data_segments_out)
    }),
    ("tcp_send_window_bytes", |_, l| {
        tcp(l, |t| t.send_window_bytes)
    }),
    ("tcp_cwnd_bytes", |_, l| tcp(l, |t| Some(t.cwnd_bytes))),
    ("tcp_busy_us", |_, l| tcp(l, |t| t.busy_us)),
    ("tcp_rwnd_limited_us", |_, l| tcp(l, |t| t.rwnd_limited_us)),
    ("tcp_sndbuf_limited_us", |_, l| {
        tcp(l, |t| t.sndbuf_limited_us)
    }),
    ("tcp_delivery_rate_bps", |_, l| {
        tcp(l, |t| t.delivery_rate_bps)
    }),
    ("udp_sent", |_, l| udp(l, |u| u.sent)),
    ("udp_received", |_, l| udp(l, |u| u.received)),
    ("udp_lost", |_, l| udp(l, |u| u.lost)),
    ("udp_duplicated", |_, l| udp(l, |u| u.duplicated)),
    ("udp_reordered", |_, l| udp(l, |u| u.reordered)),
    ("udp_socket_drops", |_, l| {
        text(l.udp.as_ref().and_then(|u| u.socket_drops))
    }),
    ("udp_jitter_us", |_, l| {
        text(l.udp.as_ref().map(|u| u.jitter_us))
    }),
    ("verdict", |_, l| Some(key_of(&l.verdict.as_ref()?.cause))),
    ("verdict_share_of_ceiling", |_, l| {
        text(l.verdict.as_ref()?.share_of_ceiling)
    }),
    ("verdict_predicted_bps", |_, l| {
        text(l.verdict.as_ref()?.predicted_bps)
    }),
    ("caveats", |r, _| {
        let kinds: Vec<String> = r
            .caveats
            .iter()
            .map(|caveat| key_of(&caveat.kind))
            .collect();
        Some(kinds.join(" "))
    }),
    ("seed", |r, _| Some(r.seed.to_string())),
];

/// The figure over the repeats of a run's size: a column, the metric that it is of, and which part.
type Median = (&'static str, &'static str, fn(&MedianInterval) -> f64);

const MEDIANS: &[Median] = &[
    ("median_throughput_bps", THROUGHPUT, |one| one.median),
    ("median_low_throughput_bps", THROUGHPUT, |one| one.low),
    ("median_high_throughput_bps", THROUGHPUT, |one| one.high),
    ("median_transactions_per_s", TRANSACTIONS, |one| one.median),
    ("median_low_transactions_per_s", TRANSACTIONS, |one| one.low),
    ("median_high_transactions_per_s", TRANSACTIONS, |one| {
        one.high
    }),
];

const THROUGHPUT: &str = "throughput_bps";
const TRANSACTIONS: &str = "transactions_per_s";

/// How a field is read off an interval of a direction of a run, with the run's number.
type IntervalField = fn(usize, &Record, &Leg, &Interval) -> Option<String>;

const INTERVAL_COLUMNS: &[(&str, IntervalField)] = &[
    ("run", |run, _, _, _| text(Some(run))),
    ("started_at", |_, r, _, _| Some(r.started_at.clone())),
    ("host", |_, r, _, _| Some(r.host.clone())),
    ("direction", |_, _, l, _| Some(key_of(&l.direction))),
    ("message_bytes", |_, r, _, _| {
        text(Some(r.plan.traffic.message_bytes()))
    }),
    ("start_s", |_, _, _, i| text(Some(i.start_s))),
    ("seconds", |_, _, _, i| text(Some(i.seconds))),
    ("bytes", |_, _, _, i| text(Some(i.bytes))),
    ("throughput_bps", |_, _, _, i| text(Some(i.throughput_bps))),
    ("rtt_us", |_, _, _, i| text(i.rtt_us)),
    ("cwnd_bytes", |_, _, _, i| text(i.cwnd_bytes)),
    ("retransmitted_segments", |_, _, _, i| {
        text(i.retransmitted_segments)
    }),
    ("transactions", |_, _, _, i| text(i.transactions)),
    ("lost", |_, _, _, i| text(i.lost)),
];

fn text(figure: Option<impl ToString>) -> Option<String> {
    figure.map(|figure| figure.to_string())
}

fn one_of_two(record: &Record, direction: Direction) -> Option<String> {
    let leg = record.leg_to(direction).filter(|_| record.legs.len() > 1);
    text(leg?.throughput_bps)
}

fn latency(record: &Record, figure: fn(&LatencySummary) -> f64) -> Option<String> {
    text(record.latency_us.as_ref().map(figure))
}

fn sender(leg: &Leg, figure: fn(&EndReport) -> Option<f64>) -> Option<String> {
    text(figure(leg.sender.as_ref()?))
}

fn receiver(leg: &Leg, figure: fn(&EndReport) -> Option<f64>) -> Option<String> {
    text(figure(leg.receiver.as_ref()?))
}

fn tcp(leg: &Leg, figure: fn(&TcpSender) -> Option<u64>) -> Option<String> {
    text(figure(leg.tcp_sender()?))
}

fn udp(leg: &Leg, figure: fn(&UdpEvidence) -> u64) -> Option<String> {
    text(leg.udp.as_ref().map(figure))
}
