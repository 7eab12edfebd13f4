//! The real iperf3 as a client.

use std::net::{Ipv4Addr, Ipv6Addr};

use linerate_core::foreign::Tool;
use linerate_core::plan::{Direction, Protocol};
use linerate_core::record::{CaveatKind, Status};
use linerate_testkit::{Need, skip};
use serde_json::Value;

use super::bench::{
    Bench, LIMITS, assert_within_1_percent, figure, finished, is_installed, spawn_client,
};

fn assert_no_error(json: &Value, what: &str) {
    assert_eq!(json.get("error"), None, "iperf3 {what}");
}

#[test]
fn every_option_of_tcp_is_served_and_both_ends_count_the_same() {
    if !is_installed() {
        return;
    }
    let bench = Bench::start();
    let cases = [
        "-n 20M",
        "-n 20M -P 4",
        "-k 100 -l 16K",
        "-n 5M -w 64K -M 1000 -C reno -S 0x20 -N",
        "-n 5M -Z -l 64K",
        "-n 5M --fq-rate 1G --pacing-timer 500",
        "-t 1 -b 20M",
    ];
    for (done, arguments) in (1..).zip(cases) {
        let json = bench.client(arguments);
        assert_no_error(&json, arguments);
        let sent = figure(&json, "/end/sum_sent/bytes");
        let received = figure(&json, "/end/sum_received/bytes");
        if arguments.starts_with("-t") {
            // A timed test ends when its client says so, also with bytes that nobody has read.
            assert!(received <= sent, "{sent} and {received}");
        } else {
            assert_within_1_percent(sent, received, arguments);
        }
        let record = bench.records(done).pop().unwrap();
        assert_eq!(record.bytes() as f64, received, "{arguments}");
        assert_eq!((record.via, record.served), (Some(Tool::Iperf3), true));
        assert_eq!(record.status, Status::Complete);
        assert!(record.verdict().is_some());
        assert!(record.caveats.iter().any(|c| c.kind == CaveatKind::OtherTool));
    }
}

#[test]
fn a_client_may_receive_or_do_both() {
    if !is_installed() {
        return;
    }
    let bench = Bench::start();
    let json = bench.client("-n 20M -R -P 2");
    assert_no_error(&json, "-R");
    assert!(figure(&json, "/end/sum_received/bytes") >= 20e6);
    let record = bench.records(1).pop().unwrap();
    assert_eq!(record.direction, Direction::Down);
    let received = figure(&json, "/end/sum_received/bytes");
    assert_within_1_percent(record.bytes() as f64, received, "-R");
    assert!(record.tcp_sender().is_some_and(|tcp| tcp.cwnd_bytes > 0));
    // As much as was asked for, in whole blocks: a client that has enough says so late.
    let sent = figure(&json, "/end/sum_sent/bytes");
    assert!((20e6..21.3e6).contains(&sent), "{sent}");

    let json = bench.client("-n 20M -P 2 --bidir");
    assert_no_error(&json, "--bidir");
    let record = bench.records(2).pop().unwrap();
    let up = figure(&json, "/end/sum_received/bytes");
    assert_eq!(record.leg_to(Direction::Up).unwrap().bytes as f64, up);
    assert!(record.leg_to(Direction::Down).unwrap().verdict.is_some());
    assert!(figure(&json, "/end/sum_sent_bidir_reverse/bytes") < 21.3e6);
    let json = bench.client("-k 50 -l 64K -R");
    // No more than was asked for, and all that arrived. Less than was asked for where the client
    // ends the test: before 3.16 iperf3 counts each read of its non-blocking socket as a block,
    // also of a part.
    let sent = figure(&json, "/end/sum_sent/bytes");
    let received = figure(&json, "/end/sum_received/bytes");
    assert!((65_536.0..=50.0 * 65_536.0).contains(&sent), "{sent}");
    assert!(received <= sent, "{received} > {sent}");
}

#[test]
fn a_warm_up_is_left_out_at_both_ends() {
    if !is_installed() {
        return;
    }
    let bench = Bench::start();
    let cases = ["-t 1 -O 1 -b 40M", "-u -t 1 -O 1 -b 20M", "-u -R -t 1 -O 1 -b 20M"];
    let clients = cases.map(|arguments| spawn_client(bench.address, arguments));
    for (client, arguments) in clients.into_iter().zip(cases) {
        let json = finished(client, arguments);
        assert_no_error(&json, arguments);
        if arguments.starts_with("-u") {
            // 3.12 takes its own warm-up off what the server tells.
            let packets = figure(&json, "/end/sum/packets");
            let lost = figure(&json, "/end/sum/lost_packets");
            assert!((0.0..=packets).contains(&lost), "{arguments}: {lost}");
        }
    }
    let records = bench.records(cases.len());
    let warm_ups = records.iter().map(|record| record.plan.warm_up.as_secs_f64());
    assert!(warm_ups.eq([1.0; 3]));
}

#[test]
fn a_client_that_asks_for_it_gets_the_output() {
    if !is_installed() {
        return;
    }
    let bench = Bench::start();
    let json = bench.client("-n 1M --get-server-output");
    let output = json["server_output_text"].as_str().unwrap();
    assert!(output.starts_with("linerate ") && output.contains("received 1 MiB"), "{output}");
}

#[test]
fn datagrams_are_served_with_counters_of_32_and_64_bits() {
    if !is_installed() {
        return;
    }
    let bench = Bench::start();
    let cases = [
        "-u -n 1M -b 50M -l 1400",
        "-u -n 1M -b 50M -l 1400 -R",
        "-u -k 200 -b 20M -l 1000 -P 3 --udp-counters-64bit",
        "-u -n 1M -b 50M -R --udp-counters-64bit -l 8192",
        "-u -k 200 -b 20M -l 1000 -P 2 --bidir --udp-counters-64bit",
    ];
    for (done, arguments) in (1..).zip(cases) {
        let json = bench.client(arguments);
        assert_no_error(&json, arguments);
        let record = bench.records(done).pop().unwrap();
        assert_eq!(record.protocol, Protocol::Udp);
        for leg in &record.legs {
            let udp = leg.udp.as_ref().unwrap();
            assert!(udp.sent > 0 && udp.malformed == 0, "{arguments}: {udp:?}");
            assert!(udp.received + udp.lost == udp.sent, "{arguments}: {udp:?}");
        }
    }
}

/// By its route the endpoint would answer from another address, which a client takes for nobody's.
#[test]
fn datagrams_are_answered_from_the_address_that_the_client_knows() {
    if !is_installed() {
        return;
    }
    let mut bench = Bench::with(Ipv4Addr::UNSPECIFIED.into(), LIMITS);
    bench.address.set_ip(Ipv4Addr::new(127, 0, 0, 9).into());
    for arguments in ["-u -n 100K -b 10M", "-u -n 100K -b 10M -R"] {
        assert_no_error(&bench.client(arguments), arguments);
    }
}

#[test]
fn ipv6_is_served() {
    if !is_installed() {
        return;
    }
    if std::net::TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_err() {
        skip(Need::Ipv6, "needs IPv6");
        return;
    }
    let bench = Bench::with(Ipv6Addr::LOCALHOST.into(), LIMITS);
    for arguments in ["-n 1M", "-u -n 100K -b 10M"] {
        assert_no_error(&bench.client(arguments), arguments);
    }
}

#[test]
fn fifty_clients_at_once_are_all_served() {
    if !is_installed() {
        return;
    }
    let bench = Bench::start();
    // Some of each kind; a reference server takes one.
    let kinds = ["-n 2M", "-n 2M -P 2", "-n 2M", "-u -k 100 -b 20M -l 1000", "-n 2M -l 8K"];
    let clients: Vec<_> = (0..50)
        .map(|n| {
            let arguments = kinds[n % kinds.len()];
            (spawn_client(bench.address, arguments), arguments)
        })
        .collect();
    let mut sent = 0.0;
    for (child, arguments) in clients {
        let json = finished(child, arguments);
        assert_no_error(&json, arguments);
        if !arguments.starts_with("-u") {
            sent += figure(&json, "/end/sum_sent/bytes");
        }
    }
    let records = bench.records(50);
    let tcp = records.iter().filter(|r| r.protocol == Protocol::Tcp);
    let received: u64 = tcp.map(|record| record.bytes()).sum();
    assert_within_1_percent(sent, received as f64, "the sum over all");
    for record in records.iter().filter(|r| r.protocol == Protocol::Udp) {
        // Each client's own datagrams, and nobody else's.
        let udp = record.udp().unwrap();
        assert!(udp.sent == 100 && udp.received + udp.lost == 100, "{udp:?}");
    }
}
