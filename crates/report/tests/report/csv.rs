//! Rows and columns of the CSV.

use linerate_core::record::{Record, Sweep};
use linerate_report::{Document, csv as report_csv};

use crate::samples;

/// The rows as maps from column to field.
fn parsed(text: &str) -> Vec<std::collections::HashMap<String, String>> {
    let mut reader = ::csv::Reader::from_reader(text.as_bytes());
    reader.deserialize().map(Result::unwrap).collect()
}

fn of_record(record: &Record) -> String {
    report_csv::rows(&[record], &[], &[])
}

fn of_sweep(sweep: &Sweep) -> String {
    report_csv::rows(&sweep.records().expect("a sweep has rows"), &sweep.figures, &[])
}

#[test]
fn columns_are_stable() {
    let heading = of_record(&samples::stream());
    let heading = heading.lines().next().unwrap().replace(',', "\n");
    insta::assert_snapshot!(heading);
}

#[test]
fn a_sweep_has_a_row_for_each_run() {
    let sweep = samples::stream_sweep(3);
    let rows = parsed(&of_sweep(&sweep));
    assert_eq!(rows.len(), sweep.rows.len());
    for (row, record) in rows.iter().zip(&sweep.rows) {
        let throughput: f64 = row["throughput_bps"].parse().unwrap();
        assert_eq!(Some(throughput), record.throughput_bps());
        assert_eq!(row["verdict"], "receive_window");
        assert_eq!(row["request_bytes"], "");
    }
}

#[test]
fn a_repeated_size_has_its_median_with_the_interval_in_each_row() {
    let repeated = parsed(&of_sweep(&samples::stream_sweep(3)));
    for row in &repeated {
        let ends = ["low_", "", "high_"].map(|end| {
            let figure = &row[&format!("median_{end}throughput_bps")];
            figure.parse::<f64>().unwrap()
        });
        assert!(ends.is_sorted() && ends[0] < ends[2], "{ends:?}");
        assert_eq!(row["median_transactions_per_s"], "");
    }
    let single = parsed(&of_sweep(&samples::stream_sweep(1)));
    assert_eq!(single[0]["median_throughput_bps"], "");
}

#[test]
fn each_interval_of_each_direction_has_a_row() {
    let record = samples::stream();
    let runs = [&record, &record];
    let rows = parsed(&report_csv::intervals(&runs, &["web", "voice"]));
    assert_eq!(rows.len(), 2 * record.intervals.len());
    assert!(rows.len() > 2);
    let last = rows.last().unwrap();
    assert_eq!((last["run"].as_str(), last["direction"].as_str()), ("2", "up"));
    assert_eq!(last["member"], "voice");
    let rates = record.intervals.iter().map(|one| one.throughput_bps);
    let written = rows.iter().map(|row| row["throughput_bps"].parse::<f64>().unwrap());
    assert!(written.take(record.intervals.len()).eq(rates));
}

#[test]
fn an_empty_sweep_is_a_heading() {
    let sweep = Sweep { rows: Vec::new(), ..samples::rr_sweep() };
    assert_eq!(of_sweep(&sweep).lines().count(), 1);
}

#[test]
fn every_workload_fills_its_own_columns() {
    let rr = &parsed(&of_record(&samples::rr()))[0];
    assert_eq!(
        (rr["request_bytes"].as_str(), rr["latency_p50_us"].as_str(), rr["caveats"].as_str()),
        ("64", "87.4", "rate_not_reached")
    );
    let udp = &parsed(&of_record(&samples::udp_partial()))[0];
    assert_eq!(
        (udp["udp_lost"].as_str(), udp["status"].as_str(), udp["tcp_mss_bytes"].as_str()),
        ("32", "partial", "")
    );
    let both = &parsed(&of_record(&samples::both()))[0];
    assert_eq!(both["down_throughput_bps"], "13630000");
}

#[test]
fn text_with_commas_and_newlines_stays_in_its_field() {
    let mut record = samples::stream();
    record.host = "a,\"b\"\nc".to_owned();
    assert_eq!(parsed(&of_record(&record))[0]["host"], "a,\"b\"\nc");
}
