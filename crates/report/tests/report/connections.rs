//! Connections of other programs.

use linerate_core::connection::{Connection, ConnectionsDocument, Process, Source, Vantage};
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
