//! Each test of netperf's, as a stock client asks for it.

use std::io::Read;
use std::net::{Shutdown, UdpSocket};

use linerate_core::foreign::Tool;
use linerate_core::plan::{Direction, Protocol, Workload};
use linerate_core::record::{CaveatKind, Status};
use linerate_engine::{NetperfOptions, ServeOptions};
use linerate_testkit::{Need, PATIENCE, eventually, skip, uninterrupted};

use super::bench::{Bench, options};
use super::dialogue::{
    Control, PORT, exchange, lasting, read_stream, send_stream, set_word, tcp, udp,
};

const MEGABYTE: usize = 1 << 20;
/// Seconds, as the owner allows: the client ends each of these tests before.
const LONG: i32 = 20;

#[test]
fn tcp_stream_counts_every_byte_and_leaves_a_record_of_its_half() {
    let bench = Bench::start();
    let mut control = Control::connect(bench.netperf);
    let data = control.open(&lasting("tcp_stream", LONG), PORT);
    send_stream(data, 8 * MEGABYTE);
    let results = control.hear();
    assert_eq!((results.errno(), results.wide(0)), (0, 8 << 20));
    assert!(results.float(10) > 0.0);
    let record = bench.record();
    assert_eq!((record.via, record.served), (Some(Tool::Netperf), true));
    assert_eq!((record.workload, record.direction), (Workload::Stream, Direction::Up));
    assert_eq!((record.status, record.bytes()), (Status::Complete, 8 << 20));
    assert!(record.legs[0].sender.is_none() && record.legs[0].receiver.is_some());
    assert!(record.caveats.iter().any(|c| c.kind == CaveatKind::OtherTool));
    assert!(record.verdict().is_some());
}

#[test]
fn tcp_maerts_sends_as_much_as_it_reports() {
    let bench = Bench::start();
    let mut control = Control::connect(bench.netperf);
    let data = control.open(&lasting("tcp_maerts", -(MEGABYTE as i32)), PORT);
    assert_eq!(read_stream(data), 1 << 20);
    assert_eq!(control.hear().wide(4), 1 << 20);
    let record = bench.record();
    assert_eq!(record.direction, Direction::Down);
    assert!(record.legs[0].sender.is_some() && record.legs[0].receiver.is_none());
    assert!(record.tcp_sender().is_some());
}

#[test]
fn a_congestion_control_that_is_not_there_leaves_the_hosts_own() {
    let bench = Bench::start();
    let mut asked = lasting("tcp_maerts", -(MEGABYTE as i32));
    asked[160..167].copy_from_slice(b"nosuch\0");
    let mut control = Control::connect(bench.netperf);
    let data = control.open(&asked, PORT);
    assert_eq!(read_stream(data), 1 << 20);
    assert_eq!(control.hear().wide(4), 1 << 20);
}

#[test]
fn tcp_rr_answers_each_request_also_several_at_once() {
    let bench = Bench::start();
    let mut control = Control::connect(bench.netperf);
    let data = control.open(&lasting("tcp_rr", LONG), PORT);
    let mut stream = tcp(data);
    (0..100).for_each(|_| exchange(&mut stream));
    std::io::Write::write_all(&mut stream, &[1; 16]).unwrap();
    stream.read_exact(&mut [0; 16]).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(control.hear().word(9), 116);
    let record = bench.record();
    assert_eq!((record.workload, record.transactions), (Workload::Rr, Some(116)));
}

#[test]
fn tcp_crr_and_cc_take_one_connection_after_the_other() {
    let bench = Bench::start();
    // Classic messages have the port in another word, and so the count.
    for (name, port, count, requests) in [("tcp_crr", PORT, 9, true), ("tcp_cc", 5, 2, false)] {
        let mut control = Control::connect(bench.netperf);
        let data = control.open(&lasting(name, -20), port);
        for _ in 0..20 {
            let mut stream = tcp(data);
            if requests {
                exchange(&mut stream);
            }
            stream.shutdown(Shutdown::Write).unwrap();
            assert_eq!(uninterrupted(|| stream.read(&mut [0; 1])).unwrap(), 0);
        }
        assert_eq!(control.hear().word(count), 20, "{name}");
        let record = bench.record();
        assert_eq!((record.workload, record.transactions), (Workload::Crr, Some(20)));
    }
}

#[test]
fn udp_stream_ends_with_an_empty_datagram_and_counts_those_before() {
    let bench = Bench::start();
    let mut control = Control::connect(bench.netperf);
    let data = control.open(&lasting("udp_stream", LONG), PORT);
    let socket = udp(data);
    for _ in 0..50 {
        socket.send(&[7; 1000]).unwrap();
    }
    (0..3).for_each(|_| _ = socket.send(&[]).unwrap());
    let results = control.hear();
    assert_eq!((results.word(2), results.wide(0)), (50, 50_000));
    assert!(results.word(3) > 0, "the receive buffer at the end");
    let record = bench.record();
    assert_eq!((record.protocol, record.bytes()), (Protocol::Udp, 50_000));
}

#[test]
fn udp_rr_answers_the_client_and_nobody_else() {
    let bench = Bench::start();
    let mut control = Control::connect(bench.netperf);
    let data = control.open(&lasting("udp_rr", LONG), PORT);
    let socket = udp(data);
    for _ in 0..20 {
        socket.send(&[1]).unwrap();
        assert_eq!(uninterrupted(|| socket.recv(&mut [0; 8])).unwrap(), 1);
    }
    // From another port nothing is answered: the flow is bound to the first.
    let stranger = udp(data);
    let _ = stranger.send(&[1]);
    (0..3).for_each(|_| _ = socket.send(&[]).unwrap());
    assert_eq!(control.hear().word(9), 20);
    stranger.set_nonblocking(true).unwrap();
    assert!(stranger.recv(&mut [0; 8]).is_err());
}

#[test]
fn datagrams_are_sent_to_the_client_and_to_no_other_address() {
    let bench = Bench::start();
    let mut control = Control::connect(bench.netperf);
    // Not connected: the endpoint sends at once, from a port that the client learns meanwhile.
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let port = u32::from(socket.local_addr().unwrap().port());
    // No more than the socket's buffer holds.
    let mut asked = lasting("omni_udp_down", -20_000);
    set_word(&mut asked, 25, port);
    let mut elsewhere = asked.clone();
    set_word(&mut elsewhere, 28, u32::from_be_bytes([198, 18, 7, 7]));
    control.say(&elsewhere);
    assert_eq!(control.hear().errno(), 13);
    assert!(bench.refusal().contains("not its own"));
    let data = control.open(&asked, PORT);
    let mut received = 0;
    loop {
        let (length, from) = uninterrupted(|| socket.recv_from(&mut [0; 2000])).unwrap();
        assert_eq!(from, data);
        match length {
            0 => break,
            n => received += n as u64,
        }
    }
    let sent = control.hear().wide(4);
    assert_eq!((received, sent), (20_328, 20_328), "14 datagrams");
}

#[test]
fn cpu_figures_are_reported_only_on_request() {
    let bench = Bench::start();
    for (name, measured) in [("tcp_stream_cpu", true), ("tcp_stream", false)] {
        let mut control = Control::connect(bench.netperf);
        let data = control.open(&lasting(name, LONG), PORT);
        let mut stream = tcp(data);
        // Ticks of 10 ms: a few of them must pass.
        std::io::Write::write_all(&mut stream, &[1; 1000]).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(300));
        drop(stream);
        let results = control.hear();
        let busy = results.float(11);
        if measured {
            assert!((0.0..=101.0).contains(&busy), "{busy}")
        } else {
            assert_eq!(busy, -1.0)
        }
        assert_eq!(results.word(18), if measured { 8 } else { 0 });
        assert!(results.word(19) > 0);
    }
}

#[test]
fn one_control_connection_has_many_tests_and_survives_a_refused_one() {
    let bench = Bench::start();
    let mut control = Control::connect(bench.netperf);
    let too_long = lasting("tcp_stream", LONG + 1);
    for _ in 0..3 {
        control.say(&too_long);
        assert_eq!(control.hear().errno(), 1);
        let data = control.open(&lasting("tcp_stream", LONG), PORT);
        send_stream(data, MEGABYTE);
        assert_eq!(control.hear().wide(0), 1 << 20);
    }
    assert!(bench.refusal().contains("the owner allows 20 s"));
}

#[test]
fn many_clients_are_served_at_once_each_with_its_own_sums() {
    let mut many = options();
    // A control connection for each flow, and all of them are one client.
    (many.limits.clients, many.limits.streams) = (1, 20);
    let bench = Bench::with(&many);
    std::thread::scope(|scope| {
        for client in 1..=20 {
            let address = bench.netperf;
            scope.spawn(move || {
                let mut control = Control::connect(address);
                let data = control.open(&lasting("tcp_stream", LONG), PORT);
                let bytes = client * 100_000;
                send_stream(data, bytes);
                assert_eq!(control.hear().wide(0), bytes as u64);
            });
        }
    });
}

#[test]
fn the_flows_beyond_the_owners_limit_are_turned_away_and_the_next_is_served() {
    let mut few = options();
    few.limits.streams = 2;
    let bench = Bench::with(&few);
    let mut there: Vec<Control> = (0..2)
        .map(|_| {
            let mut control = Control::connect(bench.netperf);
            control.open(&lasting("tcp_rr", LONG), PORT);
            control
        })
        .collect();
    let mut third = Control::connect(bench.netperf);
    third.say(&lasting("tcp_rr", LONG));
    assert!(third.is_closed());
    assert!(bench.refusal().contains("at most 2 flows of one client"));
    there.pop();
    eventually("the session has seen the end, and its place is free", || {
        let mut next = std::net::TcpStream::connect(bench.netperf).unwrap();
        std::io::Write::write_all(&mut next, &lasting("tcp_rr", LONG)).unwrap();
        next.read_exact(&mut [0; 656]).is_ok()
    });
}

#[test]
fn a_passphrase_keeps_strangers_out() {
    let bench = Bench::with(&ServeOptions {
        netperf: Some(NetperfOptions { port: 0, passphrase: Some("open sesame".into()) }),
        ..options()
    });
    let mut stranger = Control::connect(bench.netperf);
    stranger.say(&lasting("tcp_stream", LONG));
    assert!(stranger.is_closed());
    assert!(bench.refusal().contains("passphrase"));
    let mut said = vec![0; super::dialogue::BLOCK];
    said[3] = 6;
    said[8..19].copy_from_slice(b"open sesame");
    let mut friend = Control::connect(bench.netperf);
    friend.say(&said);
    let data = friend.open(&lasting("tcp_stream", LONG), PORT);
    send_stream(data, MEGABYTE);
    assert_eq!(friend.hear().wide(0), 1 << 20);
    // After five wrong ones the right one is not looked at either.
    for _ in 0..4 {
        let mut stranger = Control::connect(bench.netperf);
        stranger.say(&lasting("tcp_stream", LONG));
        assert!(stranger.is_closed());
    }
    let mut friend = Control::connect(bench.netperf);
    friend.say(&[&said[..], &lasting("tcp_stream", LONG)].concat());
    assert!(friend.is_closed());
}

#[test]
fn an_old_client_with_short_messages_gets_short_answers() {
    let bench = Bench::start();
    let mut control = Control::connect(bench.netperf);
    // TCP_RR of netperf 2.4: sizes of one byte, for twenty seconds.
    let mut asked = vec![0; 256];
    asked[3] = 13;
    for (index, word) in [(6, 1), (7, 1), (11, 20)] {
        set_word(&mut asked, index, word);
    }
    control.say(&asked);
    let ready = control.hear_bytes(256);
    assert_eq!((ready.raw(0), ready.errno()), (14, 0));
    let mut data = bench.netperf;
    data.set_port(ready.word(5) as u16);
    let mut stream = tcp(data);
    (0..10).for_each(|_| exchange(&mut stream));
    drop(stream);
    let results = control.hear_bytes(256);
    assert_eq!((results.raw(0), results.word(2)), (15, 10));
}

#[test]
fn iperf3_is_served_over_ipv6() {
    let Some(bench) = Bench::over_ipv6() else {
        skip(Need::Ipv6, "this host has no IPv6 on loopback");
        return;
    };
    let mut control = Control::connect(bench.netperf);
    let mut asked = lasting("tcp_stream", LONG);
    set_word(&mut asked, 21, 6);
    let data = control.open(&asked, PORT);
    send_stream(data, MEGABYTE);
    assert_eq!(control.hear().wide(0), 1 << 20);
}
