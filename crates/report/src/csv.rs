//! Records as comma-separated values (RFC 4180): one row for each direction that ran, the unit in
//! each column's name.
//!
//! The columns are the same for every document: a figure that a record does not have is an empty
//! field. Figures are as exact as the record's. Adding a column at the end is free, renaming one is
//! a new version. [`intervals`] has a row for each interval instead: what happened when.

use linerate_core::record::{Leg, Record, SizeFigure};
use linerate_core::stats::{Figure, MedianInterval};
use serde_json::{Value, json};

use crate::key_of;

/// A heading and a row for each direction of each run, in the order in which they ran. `figures`
/// are of the sizes that were repeated, `names` of the runs that have one.
pub fn rows(records: &[&Record], figures: &[SizeFigure], names: &[&str]) -> String {
    let heads = COLUMNS.iter().map(|(name, _)| *name);
    let medians = MEDIANS.iter().map(|(name, ..)| *name);
    let row = |run: CsvRun<'_>| -> Vec<String> {
        let document = run.document();
        let fields = COLUMNS.iter().map(|(_, path)| field(&document, path));
        let size = run.record.plan.traffic.message_bytes();
        let figure = figures.iter().find(|of| of.message_bytes == size);
        let medians = MEDIANS.iter().map(|(_, metric, end)| {
            let found = figure.filter(|of| of.metric == *metric);
            match found.map(|of| &of.figure) {
                Some(Figure::One(one)) => end(one).to_string(),
                _ => String::new(),
            }
        });
        fields.chain(medians).chain([run.name.to_owned()]).collect()
    };
    let heads = heads.chain(medians).chain([MEMBER]);
    table(heads, runs(records, names).map(row))
}

/// A heading and a row for each interval of each direction of each run.
pub fn intervals(records: &[&Record], names: &[&str]) -> String {
    let rows = runs(records, names).flat_map(|run| {
        let mut document = run.document();
        let intervals = run.record.intervals_of(run.leg).collect::<Vec<_>>();
        intervals.into_iter().map(move |interval| {
            document["interval"] = json!(interval);
            let fields = INTERVAL_COLUMNS.iter().map(|(_, path)| field(&document, path));
            fields.chain([run.name.to_owned()]).collect()
        })
    });
    let heads = INTERVAL_COLUMNS.iter().map(|(name, _)| *name);
    table(heads.chain([MEMBER]), rows)
}

/// The last column: what a mix calls the run.
const MEMBER: &str = "member";

/// One direction of a run, and the run's number, counted from 1.
struct CsvRun<'a> {
    number: usize,
    name: &'a str,
    record: &'a Record,
    leg: &'a Leg,
}

fn runs<'a>(records: &'a [&Record], names: &'a [&str]) -> impl Iterator<Item = CsvRun<'a>> {
    (1..).zip(records).flat_map(|(number, record)| {
        let name = names.get(number - 1).copied().unwrap_or_default();
        let legs = record.legs.iter();
        legs.map(move |leg| CsvRun { number, name, record, leg })
    })
}

impl CsvRun<'_> {
    /// The JSON value in which the columns' paths are looked up.
    fn document(&self) -> Value {
        let record = self.record;
        let kinds: Vec<String> =
            (record.caveats.iter()).map(|caveat| key_of(&caveat.kind)).collect();
        let of_two = record
            .legs
            .iter()
            .filter(|_| record.legs.len() > 1)
            .map(|leg| (leg.direction.word().to_owned(), json!(leg)));
        json!({
            "run": self.number,
            "record": record,
            "leg": self.leg,
            "of_two": of_two.collect::<serde_json::Map<_, _>>(),
            "size": record.plan.traffic.message_bytes(),
            "caveats": kinds.join(" "),
        })
    }
}

/// The value at a path of a document, as text; empty where the path does not exist.
fn field(document: &Value, path: &str) -> String {
    let found = path.split('.').try_fold(document, |at, key| at.get(key));
    match found {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Bool(flag)) => flag.to_string(),
        Some(Value::Number(number)) => match (number.as_u64(), number.as_f64()) {
            (Some(whole), _) => whole.to_string(),
            (None, figure) => figure.unwrap_or_default().to_string(),
        },
        _ => String::new(),
    }
}

/// CSV text of a heading and rows, all with the same number of fields.
pub fn table<'a>(
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

/// Every column: its name, and its path in [`CsvRun::document`].
const COLUMNS: &[(&str, &str)] = &[
    ("started_at", "record.started_at"),
    ("host", "record.host"),
    ("peer", "record.peer"),
    ("status", "record.status"),
    ("workload", "record.workload"),
    ("protocol", "record.protocol"),
    ("family", "record.family"),
    ("direction", "leg.direction"),
    ("streams", "record.plan.streams"),
    ("message_bytes", "record.plan.message_bytes"),
    ("request_bytes", "record.plan.request_bytes"),
    ("response_bytes", "record.plan.response_bytes"),
    ("seconds", "record.seconds"),
    ("bytes", "leg.bytes"),
    ("messages", "record.messages"),
    ("transactions", "record.transactions"),
    ("throughput_bps", "leg.throughput_bps"),
    ("up_throughput_bps", "of_two.up.throughput_bps"),
    ("down_throughput_bps", "of_two.down.throughput_bps"),
    ("transactions_per_s", "record.transactions_per_s"),
    ("connections_per_s", "record.connections_per_s"),
    ("failed", "record.failed"),
    ("requests_not_sent", "record.requests_not_sent"),
    ("corrupted_bytes", "record.corrupted_bytes"),
    ("latency_min_us", "record.latency_us.min"),
    ("latency_mean_us", "record.latency_us.mean"),
    ("latency_p50_us", "record.latency_us.p50"),
    ("latency_p90_us", "record.latency_us.p90"),
    ("latency_p99_us", "record.latency_us.p99"),
    ("latency_p999_us", "record.latency_us.p999"),
    ("latency_max_us", "record.latency_us.max"),
    ("latency_count", "record.latency_us.count"),
    ("sender_host_cpu_percent", "leg.sender.host_cpu_percent"),
    ("receiver_host_cpu_percent", "leg.receiver.host_cpu_percent"),
    ("sender_busiest_core_percent", "leg.sender.busiest_core_percent"),
    ("receiver_busiest_core_percent", "leg.receiver.busiest_core_percent"),
    ("sender_service_demand_us_per_kib", "leg.sender.service_demand_us_per_kib"),
    ("receiver_service_demand_us_per_kib", "leg.receiver.service_demand_us_per_kib"),
    ("sender_service_demand_threads_us_per_kib", "leg.sender.service_demand_threads_us_per_kib"),
    (
        "receiver_service_demand_threads_us_per_kib",
        "leg.receiver.service_demand_threads_us_per_kib",
    ),
    ("shared_kernel", "record.environment.shared_kernel"),
    ("tcp_congestion", "leg.tcp.congestion"),
    ("tcp_mss_bytes", "leg.tcp.mss_bytes"),
    ("tcp_pmtu_bytes", "leg.tcp.pmtu_bytes"),
    ("tcp_effective_segment_bytes", "leg.tcp.effective_segment_bytes"),
    ("tcp_rtt_min_us", "leg.tcp.rtt_min_us"),
    ("tcp_rtt_mean_us", "leg.tcp.rtt_mean_us"),
    ("tcp_retransmitted_segments", "leg.tcp.retransmitted_segments"),
    ("tcp_loss_events", "leg.tcp.loss_events"),
    ("tcp_data_segments_out", "leg.tcp.data_segments_out"),
    ("tcp_send_window_bytes", "leg.tcp.send_window_bytes"),
    ("tcp_cwnd_bytes", "leg.tcp.cwnd_bytes"),
    ("tcp_busy_us", "leg.tcp.busy_us"),
    ("tcp_rwnd_limited_us", "leg.tcp.rwnd_limited_us"),
    ("tcp_sndbuf_limited_us", "leg.tcp.sndbuf_limited_us"),
    ("tcp_delivery_rate_bps", "leg.tcp.delivery_rate_bps"),
    ("udp_sent", "leg.udp.sent"),
    ("udp_received", "leg.udp.received"),
    ("udp_lost", "leg.udp.lost"),
    ("udp_duplicated", "leg.udp.duplicated"),
    ("udp_reordered", "leg.udp.reordered"),
    ("udp_socket_drops", "leg.udp.socket_drops"),
    ("udp_jitter_us", "leg.udp.jitter_us"),
    ("verdict", "leg.verdict.cause"),
    ("verdict_share_of_ceiling", "leg.verdict.share_of_ceiling"),
    ("verdict_predicted_bps", "leg.verdict.predicted_bps"),
    ("caveats", "caveats"),
    ("seed", "record.seed"),
];

/// A column for the median over the repeats of a size: its name, the metric, and which part of the
/// interval it shows.
type Median = (&'static str, &'static str, fn(&MedianInterval) -> f64);

const MEDIANS: &[Median] = &[
    ("median_throughput_bps", THROUGHPUT, |one| one.median),
    ("median_low_throughput_bps", THROUGHPUT, |one| one.low),
    ("median_high_throughput_bps", THROUGHPUT, |one| one.high),
    ("median_transactions_per_s", TRANSACTIONS, |one| one.median),
    ("median_low_transactions_per_s", TRANSACTIONS, |one| one.low),
    ("median_high_transactions_per_s", TRANSACTIONS, |one| one.high),
];

const THROUGHPUT: &str = "throughput_bps";
const TRANSACTIONS: &str = "transactions_per_s";

/// The columns of intervals: name and path.
const INTERVAL_COLUMNS: &[(&str, &str)] = &[
    ("run", "run"),
    ("started_at", "record.started_at"),
    ("host", "record.host"),
    ("direction", "leg.direction"),
    ("message_bytes", "size"),
    ("start_s", "interval.start_s"),
    ("seconds", "interval.seconds"),
    ("bytes", "interval.bytes"),
    ("throughput_bps", "interval.throughput_bps"),
    ("rtt_us", "interval.rtt_us"),
    ("cwnd_bytes", "interval.cwnd_bytes"),
    ("retransmitted_segments", "interval.retransmitted_segments"),
    ("transactions", "interval.transactions"),
    ("lost", "interval.lost"),
];
