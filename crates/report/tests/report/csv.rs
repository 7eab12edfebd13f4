//! Rows and columns of the CSV.

use std::io::{self, Write};

use linerate_core::record::{Record, Sweep};
use linerate_report::csv as report_csv;

use crate::samples;

/// The rows as maps from column to field.
fn parsed(bytes: &[u8]) -> Vec<std::collections::HashMap<String, String>> {
    let mut reader = ::csv::Reader::from_reader(bytes);
    reader.deserialize().map(Result::unwrap).collect()
}

fn of_record(record: &Record) -> Vec<u8> {
    let mut bytes = Vec::new();
    report_csv::record(record, &mut bytes).expect("memory takes every row");
    bytes
}

#[test]
fn columns_are_stable() {
    let heading = String::from_utf8(of_record(&samples::stream())).unwrap();
    let heading = heading.lines().next().unwrap().replace(',', "\n");
    insta::assert_snapshot!(heading);
}

#[test]
fn a_sweep_has_a_row_for_each_run() {
    let sweep = samples::stream_sweep(3);
    let mut bytes = Vec::new();
    report_csv::sweep(&sweep, &mut bytes).unwrap();
    let rows = parsed(&bytes);
    assert_eq!(rows.len(), sweep.rows.len());
    for (row, record) in rows.iter().zip(&sweep.rows) {
        let throughput: f64 = row["throughput_bps"].parse().unwrap();
        assert_eq!(Some(throughput), record.throughput_bps);
        assert_eq!(row["verdict"], "receive_window");
        assert_eq!(row["request_bytes"], "");
    }
}

#[test]
fn an_empty_sweep_is_a_heading() {
    let sweep = Sweep {
        rows: Vec::new(),
        ..samples::rr_sweep()
    };
    let mut bytes = Vec::new();
    report_csv::sweep(&sweep, &mut bytes).unwrap();
    assert_eq!(String::from_utf8(bytes).unwrap().lines().count(), 1);
}

#[test]
fn every_workload_fills_its_own_columns() {
    let rr = &parsed(&of_record(&samples::rr()))[0];
    assert_eq!(
        (
            rr["request_bytes"].as_str(),
            rr["latency_p50_us"].as_str(),
            rr["caveats"].as_str()
        ),
        ("64", "87.4", "rate_not_reached")
    );
    let udp = &parsed(&of_record(&samples::udp_partial()))[0];
    assert_eq!(
        (
            udp["udp_lost"].as_str(),
            udp["status"].as_str(),
            udp["tcp_mss_bytes"].as_str()
        ),
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

#[test]
fn a_full_disk_is_an_error_with_its_kind() {
    struct Full;
    impl Write for Full {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::StorageFull.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let error = report_csv::record(&samples::stream(), Full).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    assert_eq!(error.to_string(), "cannot write the record as CSV");
}
