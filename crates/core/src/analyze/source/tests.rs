//! Files of every format, well formed and broken.

use super::*;
use crate::analyze::table::Format;

fn read_text(text: &str) -> Result<Table, AnalyzeError> {
    read(&[Input { file: "f", label: "f", bytes: text.as_bytes() }])
}

fn refusal(text: &str) -> String {
    read_text(text).map(|_| ()).unwrap_err().to_string()
}

fn cell(table: &Table, row: usize, column: &str) -> String {
    let column = table.column(column).expect("the column is there");
    table.text(row, column).unwrap_or("absent").to_owned()
}

#[test]
fn tables_with_commas_semicolons_and_tabs_are_the_same_table() {
    for text in [
        "a,b c\n1,x\n2,\"y, z\"\n",
        "\u{feff}a;b c\r\n1;x\r\n2;y, z\r\n",
        "a\tb c\n\n1\tx\n2\ty, z",
    ] {
        let table = read_text(text).unwrap();
        assert_eq!(table.columns(), ["a", "b c"], "{text:?}");
        assert_eq!(table.len(), 2);
        assert_eq!(cell(&table, 1, "b c"), "y, z");
        assert_eq!(table.sources()[0].format, Format::Csv);
    }
}

#[test]
fn a_broken_table_is_refused_with_its_line() {
    assert_eq!(
        refusal("a,b\n1,2\n3,4,5\n"),
        "f: line 3: 3 cells, where the header names 2: is a text with commas in it not quoted?"
    );
    assert!(refusal("a,a\n1,2\n").contains("line 1: there are two columns `a`"));
    assert!(refusal("a,\n1,2\n").contains("line 1: column 2 of the header has no name"));
    assert!(refusal("64,9.5\n128,9.7\n").contains("line 1: `64` is a figure"));
    for empty in ["", "  \n ", "a,b\n", "[]"] {
        assert_eq!(refusal(empty), "f: there are no figures in it");
    }
    let binary = read(&[Input { file: "f", label: "f", bytes: b"a,b\n\xff,1\n" }]);
    assert_eq!(binary.unwrap_err().to_string(), "f: line 2: it is not UTF-8 text");
}

#[test]
fn lines_are_counted_whatever_ends_them() {
    for (text, lines) in [
        ("a,b\n1,2\n3,4\n", [2, 3]),
        ("a,b\r\n1,2\r\n3,4\r\n", [2, 3]),
        ("\n\na,b\n1,2\n\n3,4", [4, 6]),
        ("a,b\r\n\"x\r\ny\",2\r\n3,4\r\n", [2, 4]),
    ] {
        let table = read_text(text).unwrap();
        assert_eq!([table.line(0), table.line(1)], lines, "{text:?}");
    }
    assert!(refusal("a,b\r\n1,2\r\n3,4,5\r\n").contains("line 3: 3 cells"));
}

#[test]
fn files_of_different_kinds_make_one_table() {
    let csv = b"rate,size\n1,64\n";
    let json = br#"{"rate": 2.0, "host": {"cpus": 4}}"#;
    let table = read(&[
        Input { file: "x/a.csv", label: "before", bytes: csv },
        Input { file: "x/b.json", label: "after", bytes: json },
    ])
    .unwrap();
    assert_eq!(table.columns(), ["rate", "size", "host.cpus"]);
    assert_eq!(cell(&table, 1, "rate"), "2.0");
    assert_eq!(cell(&table, 1, "size"), "absent");
    assert_eq!(cell(&table, 0, "file"), "before");
    assert_eq!(cell(&table, 1, "file"), "after");
}

#[test]
fn each_figure_of_a_document_is_a_column_by_its_path() {
    let text = r#"{"start": {"tcp_mss": 1448, "test_start": {"reverse": 0}},
        "intervals": [{"sum": {"bits_per_second": 1}}],
        "end": {"streams": [{"sender": {"mean_rtt": 29000}}], "sum_received": {"bits_per_second": 9.4e8}}}"#;
    let table = read_text(&format!("{text}\n{text}")).unwrap();
    assert_eq!(table.sources()[0].format, Format::Iperf3);
    assert_eq!(table.len(), 2);
    assert_eq!(cell(&table, 1, "end.sum_received.bits_per_second"), "940000000.0");
    assert_eq!(cell(&table, 0, "end.streams.0.sender.mean_rtt"), "29000");
    assert!(table.find("intervals.0.sum.bits_per_second").is_none());
    assert_eq!(table.line(1), 4);
}

#[test]
fn a_paired_comparison_is_the_runs_of_the_pairs_that_count() {
    let text = r#"{"schema": "linerate.comparison/1", "a": "none", "b": "mss=536", "runs": [
        {"pair": 1, "first": "b", "a": {"throughput_bps": 10.0}, "b": {"throughput_bps": 5.0}},
        {"pair": 2, "first": "a", "a": {"throughput_bps": 9.0}, "b": {"throughput_bps": 4.0}, "excluded": [{"x": 1}]}]}"#;
    let table = read_text(text).unwrap();
    assert_eq!(table.len(), 2);
    let row =
        |row| ["pair", "side", "treatment", "throughput_bps"].map(|name| cell(&table, row, name));
    assert_eq!(row(0), ["1", "b", "mss=536", "5.0"]);
    assert_eq!(row(1), ["1", "a", "none", "10.0"]);
}

#[test]
fn documents_with_runs_of_another_shape_have_a_row_for_each() {
    let cost = r#"{"schema": "linerate.qos_cost/1", "rows": [{"test": "filters", "link_bps": 1e9,
        "family": "ipv4", "protocol": "tcp", "workload": "stream", "message_bytes": 1024,
        "figures": [{"metric": "x"}], "runs": [
        {"block": 1, "treatment": "without", "figures": {"sender.service_demand_us_per_kib": 1.5}},
        {"block": 1, "treatment": "policy", "figures": {"sender.service_demand_us_per_kib": 1.6}}]}]}"#;
    let table = read_text(cost).unwrap();
    assert_eq!(table.len(), 2);
    let row = |row| {
        ["test", "treatment", "sender.service_demand_us_per_kib"]
            .map(|name| cell(&table, row, name))
    };
    assert_eq!(row(1), ["filters", "policy", "1.6"]);
    for (text, name, value) in [
        (r#"{"schema": "linerate.trace/1", "hops": [{"ttl": 1}, {"ttl": 2}]}"#, "ttl", "1"),
        (r#"{"schema": "linerate.truth/1", "trials": [{"number": 7}]}"#, "number", "7"),
        (
            r#"{"schema": "linerate.profile/1", "record": {"throughput_bps": 8}}"#,
            "throughput_bps",
            "8",
        ),
        (r#"{"schema": "linerate.capacity/1", "tcp": {"opened": 5}}"#, "tcp.opened", "5"),
    ] {
        assert_eq!(cell(&read_text(text).unwrap(), 0, name), value);
    }
}

#[test]
fn an_experiment_is_its_runs_that_count_with_their_levels() {
    let text = r#"{"schema": "linerate.experiment/1", "runs": [
        {"levels": {"window": "small"}, "treatments": "none", "record": {"throughput_bps": 10.0, "flows": [1]}},
        {"levels": {"window": "small"}, "treatments": "none", "faults": ["retransmissions"], "record": {"throughput_bps": 1.0}},
        {"levels": {"window": "fixed"}, "treatments": "none", "error": "lost", "figures": {}},
        {"levels": {"window": "fixed"}, "treatments": "none", "figures": {"throughput_bps": 20.0}}]}"#;
    let table = read_text(text).unwrap();
    assert_eq!(table.columns(), ["window", "treatments", "throughput_bps"]);
    let row = |row| ["window", "throughput_bps"].map(|name| cell(&table, row, name));
    assert_eq!(
        (row(0), row(1)),
        (["small".to_owned(), "10.0".to_owned()], ["fixed".to_owned(), "20.0".to_owned()])
    );
}

#[test]
fn a_list_of_objects_is_rows_and_a_long_list_of_samples_is_none() {
    let samples: Vec<String> = (0..40).map(|n| n.to_string()).collect();
    let text = format!(r#"[{{"a": 1, "s": [{}]}}, {{"a": 2}}]"#, samples.join(","));
    let table = read_text(&text).unwrap();
    assert_eq!(table.len(), 2);
    assert!(table.find("s.15").is_some() && table.find("s.16").is_none());
}

#[test]
fn broken_json_is_refused_with_line_and_column() {
    let error = refusal("{\"a\": 1}\n{\"a\": }");
    assert!(error.starts_with("f: line 2, column "), "{error}");
    assert!(refusal("{\"a\": 1").starts_with("f: line 1, column "));
    assert!(refusal(r#"{"schema": "linerate.record/9"}"#).contains("`linerate.record/9`"));
    assert!(
        refusal(r#"{"start": {}, "end": {}, "error": "unable to connect"}"#)
            .contains("unable to connect")
    );
    let deep = "[".repeat(100_000);
    assert!(refusal(&deep).contains("recursion limit"));
}

#[test]
fn netperfs_keys_and_columns_are_rows_with_the_rate_in_bits() {
    let keyed = "MIGRATED TCP STREAM TEST from 0.0.0.0 (0.0.0.0) port 0 AF_INET to pit () port 0 \
        AF_INET : demo\n\
        THROUGHPUT=941.38\nTHROUGHPUT_UNITS=10^6bits/s\nELAPSED_TIME=10.00\n\
        THROUGHPUT=940.00\nTHROUGHPUT_UNITS=10^6bits/s\nELAPSED_TIME=10.01\n";
    let separated = "TCP STREAM TEST from 0.0.0.0 port 0 AF_INET to pit () port 0 AF_INET\n\
        Throughput,Throughput Units,Elapsed Time (sec),Command Line\n\
        941.38,10^6bits/s,10.00,\"netperf -H pit -- -o a,b\"\n";
    let table = read_text(keyed).unwrap();
    assert_eq!(table.len(), 2);
    assert_eq!(cell(&table, 0, "throughput_bps"), "941380000");
    assert_eq!(cell(&table, 1, "ELAPSED_TIME"), "10.01");
    assert_eq!(cell(&table, 1, "test"), "TCP STREAM");
    let without_banner = keyed.split_once('\n').unwrap().1;
    assert_eq!(read_text(without_banner).unwrap().len(), 2);
    let table = read_text(&separated.repeat(2)).unwrap();
    assert_eq!(table.len(), 2);
    assert_eq!(cell(&table, 0, "throughput_bps"), "941380000");
    assert_eq!(cell(&table, 0, "Command Line"), "netperf -H pit -- -o a,b");
}

#[test]
fn netperfs_table_of_a_bulk_transfer_is_a_row() {
    let text = "MIGRATED TCP STREAM TEST from 0.0.0.0 (0.0.0.0) port 0 AF_INET to pit () port 0 \
        AF_INET\n\
        Recv   Send    Send                          Utilization       Service Demand\n\
        Socket Socket  Message  Elapsed              Send     Recv     Send    Recv\n\
        Size   Size    Size     Time     Throughput  local    remote   local   remote\n\
        bytes  bytes   bytes    secs.    10^6bits/s  % S      % S      us/KB   us/KB\n\n\
         87380  16384  16384    10.00      9386.21   12.50    -1.00    0.437   -1.000\n";
    let table = read_text(text).unwrap();
    assert_eq!(cell(&table, 0, "throughput_bps"), "9386210000");
    assert_eq!(cell(&table, 0, "LOCAL_SD"), "0.437");
    assert!(table.find("REMOTE_SD").is_none());
    let exchanges = "MIGRATED TCP REQUEST/RESPONSE TEST from 0.0.0.0 port 0 AF_INET to pit () port \
        0 AF_INET\n\
        Local /Remote\nSocket Size   Request  Resp.   Elapsed  Trans.\n16384 87380 1 1 10.00 \
        30000.11\n";
    assert!(refusal(exchanges).contains("run it with `-- -k`"));
    assert!(refusal("THROUGHPUT=1\nfast\n").contains("line 2: `fast` is no KEY=VALUE"));
}

#[test]
fn no_text_makes_a_reader_panic() {
    use proptest::prelude::*;
    let pieces = prop::collection::vec(
        prop::sample::select(vec![
            "{",
            "}",
            "[",
            "]",
            "\"a\"",
            ":",
            ",",
            "1",
            "-",
            "\n",
            ";",
            "A=1",
            "TCP TEST from x",
            "Recv Send",
            "10^6bits/s",
            "\"",
            "é",
            "\u{feff}",
            "null",
            "Throughput,Throughput Units",
        ]),
        0..40,
    );
    proptest!(|(pieces in pieces)| {
        let _ = read_text(&pieces.concat());
    });
}

#[test]
fn rows_of_one_document_are_told_apart_and_keep_their_verdicts() {
    let row = |cause: &str, seed: u32| {
        format!(
            r#"{{"throughput_bps": 1e6, "seed": {seed}, "verdict": {{"cause": "{cause}", "evidence": ["x"]}},
                "legs": [{{"direction": "up", "throughput_bps": 1e6}}]}}"#
        )
    };
    let text = format!(
        r#"{{"schema": "linerate.sweep/1", "rows": [{}, {}]}}"#,
        row("path_rate", 1),
        row("send_buffer", 2)
    );
    let table = read_text(&text).unwrap();
    assert_eq!([table.place(0), table.place(1)], ["row 1", "row 2"]);
    assert_eq!(cell(&table, 1, "verdict"), "send_buffer");
    assert!(
        !table.columns().iter().any(|name| name.starts_with("legs") || name.contains("evidence"))
    );
}

#[test]
fn figures_of_two_directions_have_columns_named_after_them() {
    let text = r#"{"schema": "linerate.record/1", "seconds": 1, "legs": [
        {"direction": "up", "throughput_bps": 3.0}, {"direction": "down", "throughput_bps": 4.0}]}"#;
    let table = read_text(text).unwrap();
    assert_eq!(cell(&table, 0, "legs.down.throughput_bps"), "4.0");
    assert_eq!(table.place(0), "line 1");
}
