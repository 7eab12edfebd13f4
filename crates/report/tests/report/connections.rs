//! Connections of other programs.

use linerate_core::capture::{
    CapturedAt, Connects, Names, Phases, Requests, SlowLookup, SlowRequest, Spent,
};
use linerate_core::connection::{
    Connection, ConnectionsDocument, PacketKind, Process, Source, Vantage,
};
use linerate_core::record::{Cause, EndReport, TcpEvidence, TcpReceiver};
use linerate_report::Document;

use crate::samples;

/// A server's connection that the receiver's window holds, and one that only the receiver sees.
pub(crate) fn document() -> ConnectionsDocument {
    let record = samples::stream();
    let leg = record.leg().expect("one direction");
    let mut document = ConnectionsDocument {
        asked: Some("with port 443".to_owned()),
        explained: true,
        seconds: 10.0,
        started_at: record.started_at.clone(),
        environment: record.environment.clone(),
        ..ConnectionsDocument::new(Source::Host { namespace: None })
    };
    let process = |name: &str| Some(Process { pid: 4711, name: name.to_owned() });
    let end = EndReport {
        blocked_us: Some(9_800_000),
        run_delay_us: Some(1000),
        busiest_thread_percent: Some(3.0),
        cpus: 4,
        ..EndReport::default()
    };
    let mut tcp = leg.tcp.clone().expect("it is TCP");
    tcp.receiver = None;
    document.connections.push(Connection {
        process: process("nginx"),
        bytes_sent: leg.bytes,
        throughput_bps: leg.throughput_bps.expect("a stream has one"),
        seconds: record.seconds,
        tcp: Some(tcp),
        end: Some(end.clone()),
        ..Connection::new("198.18.0.1:443", "198.18.0.2:50000", Vantage::Sender)
    });
    document.connections.push(Connection {
        process: process("curl"),
        bytes_received: 1_000_000,
        throughput_bps: 8e5,
        seconds: 10.0,
        ended: true,
        tcp: Some(TcpEvidence::from(TcpReceiver {
            rtt_mean_us: Some(20_500),
            rtt_min_us: Some(20_000),
            window_bytes: Some(3_000_000),
            buffer_bytes: Some(6_000_000),
            unread_bytes: Some(0),
            ..TcpReceiver::default()
        })),
        end: Some(end),
        ..Connection::new("198.18.0.1:50001", "198.18.0.3:443", Vantage::Receiver)
    });
    document.explain();
    document
}

#[test]
fn the_largest_connection_is_explained_after_a_list_of_all() {
    insta::assert_snapshot!(document().text(Default::default()));
}

#[test]
fn a_connection_whose_cause_its_end_cannot_know_has_the_command_for_the_other() {
    let mut document = document();
    document.connections.remove(0);
    let page = document.text(Default::default());
    assert!(page.lines().count() <= 24, "{page}");
    insta::assert_snapshot!(page);
}

#[test]
fn of_a_connection_with_both_ends_here_the_end_that_knows_is_explained_and_the_rate_is_of_one() {
    let mut document = document();
    let [sender, receiver] = &mut document.connections[..] else {
        panic!("there are two");
    };
    receiver.local.clone_from(&sender.remote);
    receiver.remote.clone_from(&sender.local);
    document.connections.reverse();
    let page = document.text(Default::default());
    let once = ": 1 connection with port 443, 10.0 s, both ends on this host";
    assert!(page.contains(once), "{page}");
    assert!(page.contains("nginx (pid 4711) sends"), "{page}");
    assert!(!page.contains("other end knows"), "{page}");
    // Both rows have the verdict of the end that knows, and say which end they are.
    assert!(!page.contains("needs the other end"), "{page}");
    let rows = page.lines().filter(|line| line.contains("/4711 "));
    let rows = rows.filter(|line| line.contains(" sender ") || line.contains(" receiver "));
    assert_eq!(rows.count(), 2, "{page}");
}

#[test]
fn what_the_path_itself_gave_says_whether_the_limit_of_the_connection_is_its_own() {
    let mut document = document();
    let own_bps = document.connections[0].throughput_bps;
    let mut page = |cause: Cause, ratio: f64| {
        let mut record = samples::stream();
        record.legs[0].throughput_bps = Some(ratio * own_bps);
        samples::proved_window(&mut record.legs[0]);
        document.path = Some(Box::new(record));
        document.connections[0].verdict.as_mut().unwrap().cause = cause;
        // The sentence is broken into lines.
        let page = document.text(Default::default()).replace('\u{a0}', " ");
        page.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let window = Cause::ReceiveWindow;
    for (cause, ratio, meaning) in [
        (window, 3.9, "it is limited by its own ends (receive window)."),
        (Cause::Unexplained, 3.9, "it is limited by its own ends, not by the path."),
        (Cause::PathRate, 3.9, "other traffic was on the path, too."),
        (window, 1.1, "it gets what the path gives a flow."),
        (Cause::PathRate, 0.5, "a flow beside it gets less: they share the path."),
    ] {
        let page = page(cause, ratio);
        assert!(page.contains("a test flow carried") && page.contains(meaning), "{page}");
        assert!(page.contains("(receive window, proved); this connection carried"), "{page}");
    }
}

/// Twelve requests, most of whose time was the server's.
fn requests() -> ConnectionsDocument {
    let spent = |total_s: f64, server_s: f64| Spent {
        total_s,
        server_s,
        network_s: total_s - server_s,
        between_s: 0.4,
        ..Spent::default()
    };
    let slow = |packet: u64, line: Option<&str>, server_us: f64| SlowRequest {
        packet,
        at_s: 0.25,
        client: "198.18.0.1:50000".to_owned(),
        server: "198.18.0.2:80".to_owned(),
        line: line.map(str::to_owned),
        status: line.map(|_| 503),
        request_bytes: 200,
        response_bytes: 3000,
        phases: Phases { total_us: Some(server_us + 3e4), ..Phases::default() },
        spent: spent(server_us / 1e6 + 0.03, server_us / 1e6),
        retransmitted_segments: 0,
        answered: line.is_some(),
    };
    let whole = spent(12.4, 12.09);
    let found = Requests {
        count: 12,
        unanswered: 1,
        overlapped: 2,
        phases: Phases {
            total_us: Some(samples::latency(900_000.0, 12)),
            connect_us: Some(samples::latency(30_000.0, 1)),
            server_us: Some(samples::latency(870_000.0, 12)),
            round_trip_us: Some(samples::latency(30_000.0, 12)),
            ..Phases::default()
        },
        verdict: whole.verdict(),
        spent: whole,
        slowest: vec![
            slow(17, Some("GET /api/items"), 3.1e6),
            slow(54, None, 2e6),
            slow(4, Some("POST /a/long/path/with/forty/characters/in/it…"), 1.5e6),
            slow(99, Some("GET /"), 1e5),
        ],
        captured: CapturedAt { client_requests: 12, ..CapturedAt::default() },
        connects: Connects { count: 3, refused: 1, retransmitted_syns: 2, ..Connects::default() },
        names: Some(Names {
            count: 2,
            nxdomain: 1,
            time_us: Some(samples::latency(4_000.0, 2)),
            slowest: vec![SlowLookup {
                packet: 1,
                at_s: 0.0,
                name: "www.example.net".to_owned(),
                time_us: 5_040_000.0,
                asked: 2,
                answered: true,
            }],
            ..Names::default()
        }),
        ..Requests::default()
    };
    let source = Source::Capture {
        file: "x.pcap".to_owned(),
        packets: 120,
        link: "Ethernet".to_owned(),
        snap_bytes: 200,
        missing: 0,
        kinds: Vec::new(),
    };
    let own = linerate_core::capture::ConnectionRequests {
        count: 12,
        spent: whole,
        ..Default::default()
    };
    ConnectionsDocument {
        explained: true,
        seconds: 14.0,
        started_at: samples::stream().started_at,
        connections: vec![Connection {
            bytes_sent: 2400,
            bytes_received: 36_000,
            throughput_bps: 2e4,
            seconds: 14.0,
            requests: Some(own),
            ..Connection::new("198.18.0.1:50000", "198.18.0.2:80", Vantage::Between)
        }],
        requests: Some(Box::new(found)),
        ..ConnectionsDocument::new(source)
    }
}

#[test]
fn a_capture_of_requests_says_first_whose_time_it_was() {
    let document = requests();
    let page = document.text(Default::default());
    assert!(page.lines().count() <= 24, "{page}");
    insta::assert_snapshot!(page);
    let list = ConnectionsDocument { explained: false, ..document }.text(Default::default());
    assert!(list.contains("server's time") && !list.contains("idle"), "{list}");
}

#[test]
fn requests_in_a_tunnel_are_named_so() {
    let mut document = requests();
    let Source::Capture { kinds, .. } = &mut document.source else {
        panic!("a capture");
    };
    let (what, inside) = ("TCP".to_owned(), vec!["VXLAN".to_owned()]);
    kinds.push(PacketKind { what, inside, packets: 120 });
    let page = document.text(Default::default());
    assert!(page.contains("120 TCP inside VXLAN"), "{page}");
}

#[test]
fn of_a_large_transfer_the_rate_comes_before_its_requests() {
    let mut document = requests();
    document.connections[0].bytes_received = 40_000_000;
    document.connections[0].requests = None;
    document.connections[0].direction = linerate_core::plan::Direction::Down;
    let page = document.text(Default::default());
    let [rate, whose] = ["receives", "were the server's"].map(|words| page.find(words));
    assert!(rate.is_some() && rate < whose, "{page}");
}

#[test]
fn lookups_alone_are_a_page() {
    let mut document = requests();
    document.connections.clear();
    let names = document.requests.take().and_then(|found| found.names);
    document.requests = Some(Box::new(Requests { names, ..Requests::default() }));
    let page = document.text(Default::default());
    assert!(page.starts_with("No connection was seen."), "{page}");
    assert!(page.contains("2 lookups, 1 NXDOMAIN"), "{page}");
}
