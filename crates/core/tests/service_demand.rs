//! The service demand formula against a published table: HP-UX IPQoS on 4 CPUs, 42 rows of netperf
//! output.
//!
//! Each row's service demand is recomputed from its throughput, elapsed time and utilisation. Rows
//! that agree test the formula. Rows that do not are listed here one by one, and the list must be
//! exactly the computed one.

use std::fmt::Write;
use std::time::Duration;

use linerate_core::assemble::service_demand;

const TABLE: &str = include_str!("data/hpux_ipqos.csv");
const CPUS: f64 = 4.0;
const TOLERANCE_PERCENT: f64 = 2.0;

/// Treatment, interface and message size of the rows whose own columns contradict each other by
/// more than 2 %.
///
/// Rounding cannot explain them: throughput, time and utilisation are printed to four digits or
/// nearly so. The two `simple_filter` rows of 64 bytes carry the same service demand, 220.909, at
/// different utilisations.
const DISAGREEING: [(&str, &str, u32); 12] = [
    ("without", "100BaseT", 64),
    ("pass_through", "100BaseT", 32),
    ("simple_filter", "100BaseT", 32),
    ("simple_filter", "100BaseT", 64),
    ("without", "1000BaseT", 32),
    ("without", "1000BaseT", 64),
    ("pass_through", "1000BaseT", 128),
    ("simple_filter", "1000BaseT", 32),
    ("simple_filter", "1000BaseT", 64),
    ("simple_filter", "1000BaseT", 128),
    ("simple_filter", "1000BaseT", 256),
    ("simple_filter", "1000BaseT", 512),
];

struct Row {
    treatment: String,
    interface: String,
    message_bytes: u32,
    printed: f64,
    computed: f64,
}

impl Row {
    fn error_percent(&self) -> f64 {
        (self.computed / self.printed - 1.0) * 100.0
    }

    fn disagrees(&self) -> bool {
        self.error_percent().abs() > TOLERANCE_PERCENT
    }
}

fn rows() -> Vec<Row> {
    let mut reader = csv::Reader::from_reader(TABLE.as_bytes());
    let headers = reader.headers().expect("the table has a header").clone();
    let column =
        |name| headers.iter().position(|header| header == name).expect("the table has the column");
    let row = |record: csv::StringRecord| {
        let number = |name| record[column(name)].parse::<f64>().expect("the column holds numbers");
        let seconds = number("elapsed_s");
        let bytes = (number("mbit_per_s") * 1e6 / 8.0 * seconds) as u64;
        let cpu_seconds = number("cpu_utilisation_percent") / 100.0 * CPUS * seconds;
        Row {
            treatment: record[column("treatment")].to_owned(),
            interface: record[column("interface")].to_owned(),
            message_bytes: record[column("message_bytes")].parse().expect("sizes are integers"),
            printed: number("service_demand_us_per_kib"),
            computed: service_demand(Duration::from_secs_f64(cpu_seconds), bytes)
                .expect("each row carries data"),
        }
    };
    reader.records().map(|record| row(record.expect("the rows have the same columns"))).collect()
}

#[test]
fn published_service_demand_follows_from_its_other_columns_but_for_twelve_rows() {
    let rows = rows();
    assert_eq!(rows.len(), 42);
    let disagreeing: Vec<_> = rows
        .iter()
        .filter(|row| row.disagrees())
        .map(|row| (row.treatment.as_str(), row.interface.as_str(), row.message_bytes))
        .collect();
    assert_eq!(disagreeing, DISAGREEING);
}

#[test]
fn recomputed_table() {
    let mut table =
        String::from("treatment      interface  message_bytes   printed  computed   error\n");
    for row in rows() {
        let mark = if row.disagrees() { "  disagrees" } else { "" };
        writeln!(
            table,
            "{:<14} {:<9} {:>14} {:>9.3} {:>9.3} {:>+6.2}%{mark}",
            row.treatment,
            row.interface,
            row.message_bytes,
            row.printed,
            row.computed,
            row.error_percent()
        )
        .unwrap();
    }
    insta::assert_snapshot!(table);
}
