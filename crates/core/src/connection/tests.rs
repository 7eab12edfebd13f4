use std::collections::BTreeMap;

use super::*;
use crate::ceilings::tests::scene;
use crate::record::{
    Cause, EndReport, Environment, HostFacts, TcpEvidence, TcpReceiver, TcpSender,
};

const SECONDS: f64 = 10.0;

fn environment() -> Environment {
    let sysctls =
        [("net.ipv4.tcp_rmem", "4096 131072 6291456"), ("net.ipv4.tcp_wmem", "4096 16384 4194304")];
    let sysctls: BTreeMap<String, String> =
        sysctls.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
    Environment { client: HostFacts { sysctls, ..HostFacts::default() }, ..Environment::default() }
}

fn end(blocked: f64) -> EndReport {
    EndReport {
        cpus: 4,
        blocked_us: Some((blocked * SECONDS * 1e6) as u64),
        run_delay_us: Some(0),
        busiest_thread_percent: Some(5.0),
        ..EndReport::default()
    }
}

/// A server's flow over 20 ms whose windows all have room.
fn sender(throughput_bps: f64, change: impl FnOnce(&mut TcpSender, &mut EndReport)) -> Connection {
    let mut tcp = TcpSender {
        send_queue_memory_bytes: Some(3_900_000),
        ..scene::sender(throughput_bps, SECONDS)
    };
    let mut end = end(0.97);
    change(&mut tcp, &mut end);
    let (local, remote) = ("198.18.0.1:443", "198.18.0.2:50000");
    Connection {
        bytes_sent: (throughput_bps * SECONDS / 8.0) as u64,
        throughput_bps,
        seconds: SECONDS,
        process: Some(Process { pid: 7, name: "nginx".to_owned() }),
        tcp: Some(tcp.into()),
        end: Some(end),
        ..Connection::new(local, remote, Vantage::Sender)
    }
}

/// A client's download over 20 ms.
fn receiver(
    throughput_bps: f64,
    change: impl FnOnce(&mut TcpReceiver, &mut EndReport),
) -> Connection {
    let mut tcp = TcpReceiver {
        rtt_min_us: Some(20_000),
        rtt_mean_us: Some(20_500),
        window_bytes: Some(3_000_000),
        buffer_bytes: Some(6_000_000),
        unread_bytes: Some(0),
        ..TcpReceiver::default()
    };
    let mut end = end(0.99);
    change(&mut tcp, &mut end);
    let (local, remote) = ("198.18.0.2:50000", "198.18.0.1:443");
    Connection {
        bytes_received: (throughput_bps * SECONDS / 8.0) as u64,
        throughput_bps,
        seconds: SECONDS,
        tcp: Some(TcpEvidence::from(tcp)),
        end: Some(end),
        ..Connection::new(local, remote, Vantage::Receiver)
    }
}

fn explained(mut connection: Connection) -> (Cause, Connection) {
    explain(&mut connection, &environment());
    let verdict = connection.verdict.as_ref().expect("it sent something");
    (verdict.cause, connection)
}

fn command(connection: &Connection) -> &str {
    let remedy = connection.verdict.as_ref().and_then(|verdict| verdict.remedy.as_ref());
    remedy.map_or("", |remedy| &remedy.command)
}

#[test]
fn a_server_that_gives_less_than_the_socket_takes_is_the_application() {
    let (cause, found) = explained(sender(8e6, |tcp, end| {
        tcp.notsent_bytes = Some(0);
        tcp.send_queue_memory_bytes = Some(20_000);
        tcp.app_limited_share = Some(1.0);
        *end = self::end(0.01);
    }));
    assert_eq!(cause, Cause::ApplicationSend);
    assert_eq!((command(&found), &found.needs_other_end), ("", &None));
}

#[test]
fn a_thread_that_runs_all_the_time_is_the_cpu_and_not_the_application() {
    let (cause, _) = explained(sender(8e6, |tcp, end| {
        tcp.notsent_bytes = Some(0);
        tcp.send_queue_memory_bytes = Some(20_000);
        tcp.app_limited_share = Some(1.0);
        *end = self::end(0.01);
        end.busiest_thread_percent = Some(99.0);
    }));
    assert_eq!(cause, Cause::CpuSend);
}

#[test]
fn a_small_send_buffer_of_nginx_is_lifted_by_its_own_directive() {
    // 65,536 bytes in memory, five sixths filled.
    let bps = 65_536.0 * 0.8 * 8.0 / 0.0203;
    let (cause, found) = explained(sender(bps, |tcp, _| {
        tcp.send_buffer_bytes = 65_536;
        tcp.send_buffer_locked = true;
        tcp.send_queue_memory_bytes = Some(63_000);
        tcp.unacked_bytes = 52_000;
        tcp.notsent_bytes = Some(0);
        tcp.app_limited_share = Some(1.0);
    }));
    assert_eq!(cause, Cause::SendBuffer);
    let command = command(&found);
    assert!(command.starts_with("nginx -s reload  # after `listen 443 sndbuf="), "{command}");
}

#[test]
fn a_window_that_holds_the_sender_is_named_and_asked_for_at_the_other_end() {
    let (cause, found) = explained(sender(26e6, |tcp, _| {
        tcp.send_window_bytes = Some(65_535);
        tcp.unacked_bytes = 65_160;
        tcp.rwnd_limited_us = Some((SECONDS * 0.98e6) as u64);
    }));
    assert_eq!(cause, Cause::ReceiveWindow);
    let command = command(&found);
    assert!(
        command.starts_with("linerate host show net.ipv4.tcp_rmem  # on 198.18.0.2: raise "),
        "{command}"
    );
    let there = found.needs_other_end.unwrap();
    assert!(there.command.starts_with("linerate explain --port 443  # "), "{}", there.command);
}

#[test]
fn a_window_that_closes_behind_a_late_reader_is_no_queue_of_the_path() {
    // Figures of a Python reader of 2 Mbit/s over 33 ms.
    let (cause, found) = explained(sender(2e6, |tcp, _| {
        (tcp.rtt_min_us, tcp.rtt_mean_us, tcp.rtt_var_us) = (Some(33_000), 58_000, 5_400);
        tcp.send_window_bytes = Some(25_600);
        tcp.send_window_full_share = Some(0.65);
        tcp.rwnd_limited_us = Some((SECONDS * 0.41e6) as u64);
        tcp.unacked_bytes = 14_480;
        tcp.delivery_rate_max_bps = Some(3_000_000);
    }));
    assert_eq!(cause, Cause::Unexplained);
    assert!(found.needs_other_end.is_some());
}

#[test]
fn a_reader_that_leaves_data_unread_is_the_receivers_application() {
    let (cause, found) = explained(receiver(4e6, |tcp, end| {
        tcp.unread_bytes = Some(3_000_000);
        *end = self::end(0.0);
    }));
    assert_eq!((cause, found.needs_other_end), (Cause::ApplicationReceive, None));
}

#[test]
fn at_the_receiver_a_window_is_the_cause_only_at_its_buffers_limit() {
    let held = |locked| {
        receiver(26e6, |tcp, _| {
            tcp.window_bytes = Some(65_535);
            tcp.buffer_bytes = Some(131_072);
            tcp.buffer_locked = locked;
        })
    };
    let (cause, found) = explained(held(true));
    assert_eq!((cause, found.needs_other_end), (Cause::ReceiveWindow, None));
    // What the kernel may still grow is no limit.
    assert_eq!(explained(held(false)).0, Cause::Unexplained);
    // Behind a queue the path is full.
    let (cause, _) = explained(Connection {
        throughput_bps: 5.2e6,
        ..receiver(26e6, |tcp, _| {
            tcp.window_bytes = Some(65_535);
            tcp.buffer_locked = true;
            tcp.rtt_mean_us = Some(100_000);
        })
    });
    assert_eq!(cause, Cause::Unexplained);
}

#[test]
fn causes_that_a_receiver_cannot_see_are_asked_for_at_the_sender() {
    let (cause, found) = explained(receiver(9.6e6, |_, _| {}));
    assert_eq!(cause, Cause::Unexplained);
    let there = found.needs_other_end.unwrap();
    assert!(there.command.starts_with("linerate explain --port 443  # "), "{}", there.command);
}

#[test]
fn a_connection_that_sent_nothing_has_no_verdict() {
    let mut idle = Connection::new("198.18.0.1:443", "198.18.0.2:50000", Vantage::Sender);
    explain(&mut idle, &environment());
    assert_eq!((idle.verdict, idle.needs_other_end), (None, None));
}

#[test]
fn a_document_reads_back_and_is_explained_anew() {
    let mut document = ConnectionsDocument::new(Source::Host { namespace: None });
    document.environment = environment();
    document.connections.push(sender(26e6, |tcp, _| {
        tcp.send_window_bytes = Some(65_535);
        tcp.rwnd_limited_us = Some((SECONDS * 0.98e6) as u64);
    }));
    document.explain();
    let text = serde_json::to_string(&document).unwrap();
    let mut read: ConnectionsDocument = serde_json::from_str(&text).unwrap();
    read.explain();
    assert_eq!(read, document);
}
