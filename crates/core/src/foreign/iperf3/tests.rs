//! A client and a server against each other in memory, with virtual time; strangers against the
//! server.

use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::plan::{Direction, Extent};
use crate::record::{TcpReceiver, TcpSender};
use crate::session::message::{FlowHalf, HalfReport, UdpReceived, UdpSent};

/// What iperf3 3.12 sends for `-u -P 2 -b 2M -R --get-server-output`, and for `-n 100M -w 64K -C
/// reno`.
const UDP: &str = r#"{"udp":true,"omit":0,"time":10,"num":0,"blockcount":0,"parallel":2,"reverse":true,"len":1448,
    "bandwidth":2097152,"pacing_timer":1000,"get_server_output":1,"udp_counters_64bit":1,"client_version":"3.12"}"#;
const TCP: &str = r#"{"tcp":true,"omit":0,"time":0,"num":104857600,"blockcount":0,"parallel":1,"window":65536,
    "len":131072,"pacing_timer":1000,"congestion":"reno","client_version":"3.12"}"#;

const LONGEST: Duration = Duration::from_secs(3600);

fn params(seconds: u32) -> Params {
    let json = format!(r#"{{"tcp":true,"time":{seconds},"parallel":2,"len":131072}}"#);
    Params::parse(json.as_bytes()).unwrap()
}

fn results(bytes: u64, sends: bool) -> Results {
    let stream = |id| StreamResult {
        id,
        bytes,
        retransmits: sends.then_some(3),
        seconds: Some(10.0),
        ..StreamResult::default()
    };
    Results {
        cpu_percent: (1.5, 20.25),
        has_retransmits: sends.then_some(true),
        congestion: Some("cubic".into()),
        streams: vec![stream(1), stream(3)],
        output: None,
    }
}

struct Pair {
    client: Client,
    server: Server,
    now: Duration,
}

impl Pair {
    fn new(params: Params) -> Self {
        let now = Duration::from_secs(1);
        let mut client = Client::new(now, Cookie::from_random([7; 36]), params);
        // Whoever accepts reads the cookie.
        assert_eq!(client.poll_transmit().map(|bytes| bytes.len()), Some(COOKIE_BYTES));
        Self { client, server: Server::new(now, LONGEST), now }
    }

    /// Carries bytes, cut in pieces, until nobody has any.
    fn exchange(&mut self) {
        loop {
            let up: Vec<_> = std::iter::from_fn(|| self.client.poll_transmit()).collect();
            let down: Vec<_> = std::iter::from_fn(|| self.server.poll_transmit()).collect();
            if up.is_empty() && down.is_empty() {
                return;
            }
            for piece in up.concat().chunks(3) {
                self.server.handle_input(self.now, piece);
            }
            for piece in down.concat().chunks(3) {
                self.client.handle_input(self.now, piece);
            }
        }
    }

    fn server_says(&mut self) -> Option<ServerEvent> {
        self.exchange();
        self.server.poll_event()
    }

    fn client_says(&mut self) -> Option<ClientEvent> {
        self.exchange();
        self.client.poll_event()
    }

    fn run(&mut self) {
        let Some(ServerEvent::Asked(asked)) = self.server_says() else {
            panic!("no parameters");
        };
        assert_eq!(asked.streams, 2);
        self.server.accept(self.now);
        assert_eq!(self.client_says(), Some(ClientEvent::Open));
        self.server.stream_came(self.now);
        self.server.begin(self.now);
        assert_eq!(self.server_says(), Some(ServerEvent::Begin));
        assert_eq!(self.client_says(), Some(ClientEvent::Begin));
    }
}

#[test]
fn a_test_runs_to_its_end_and_both_ends_have_the_others_account() {
    let mut pair = Pair::new(params(10));
    pair.run();
    pair.client.end(pair.now);
    assert_eq!(pair.server_says(), Some(ServerEvent::End));
    let (sent, received) = (results(1000, true), results(990, false));
    pair.server.report(pair.now, &received);
    assert_eq!(pair.client_says(), Some(ClientEvent::Report));
    pair.client.report(pair.now, &sent);
    assert_eq!(pair.server_says(), Some(ServerEvent::Results(Box::new(sent))));
    assert_eq!(pair.client_says(), Some(ClientEvent::Results(Box::new(received))));
    assert_eq!(pair.server_says(), Some(ServerEvent::Closed(None)));
    assert!(pair.client.is_closed() && pair.server.is_closed());
}

#[test]
fn a_refusal_reaches_the_client_with_its_number() {
    let mut pair = Pair::new(params(10));
    pair.server_says();
    pair.server.refuse(ErrorCode::TOTAL_RATE, "too fast");
    assert_eq!(
        pair.client_says(),
        Some(ClientEvent::Failed(ClientError::Server(ErrorCode::TOTAL_RATE)))
    );
}

#[test]
fn a_client_that_stops_in_any_state_is_dropped() {
    for steps in 0..5 {
        let mut pair = Pair::new(params(10));
        if steps > 0 {
            pair.server_says();
        }
        if steps > 1 {
            pair.server.accept(pair.now);
        }
        if steps > 2 {
            pair.server.begin(pair.now);
        }
        if steps > 3 {
            pair.exchange();
            pair.client.end(pair.now);
            pair.exchange();
        }
        // Between the parameters and the answer to them the endpoint is the one that is waited for.
        assert_eq!(pair.server.poll_timeout().is_none(), steps == 1);
        pair.now += LONGEST + GRACE;
        pair.server.handle_timeout(pair.now);
        assert_eq!(pair.server.is_closed(), steps != 1, "after {steps} steps");
    }
}

#[test]
fn parameters_of_real_clients_are_read() {
    let udp = Params::parse(UDP.as_bytes()).unwrap();
    assert_eq!(udp.transport, Transport::Udp(Layout::Wide));
    assert_eq!((udp.streams, udp.direction), (2, Direction::Down));
    assert_eq!(udp.demand().rate_bps, Some(2 * 2_097_152));
    assert!(udp.wants_output);
    let tcp = Params::parse(TCP.as_bytes()).unwrap();
    let test = tcp.to_test(1);
    assert_eq!(test.extent, Extent::Bytes(crate::units::ByteCount(104_857_600)));
    assert_eq!(test.options.congestion.as_deref(), Some("reno"));
    assert_eq!(tcp.seconds(), None);
}

#[test]
fn absurd_parameters_are_refused_with_the_number_of_the_reference() {
    let cases = [
        (r#"{"tcp":true}"#, ErrorCode::BLOCK),
        (r#"{"tcp":true,"len":0}"#, ErrorCode::BLOCK),
        (r#"{"tcp":true,"len":1048577}"#, ErrorCode::BLOCK),
        (r#"{"tcp":true,"len":-1}"#, ErrorCode::BLOCK),
        (r#"{"udp":true,"len":15}"#, ErrorCode::UDP_BLOCK),
        (r#"{"udp":true,"len":65508}"#, ErrorCode::UDP_BLOCK),
        (r#"{"tcp":true,"len":1,"parallel":129}"#, ErrorCode::STREAMS),
        (r#"{"tcp":true,"len":1,"time":86401}"#, ErrorCode::DURATION),
        (r#"{"tcp":true,"len":1,"omit":601}"#, ErrorCode::OMIT),
        (r#"{"tcp":true,"len":1,"window":1e300}"#, ErrorCode::BUFFER),
        (r#"{"tcp":true,"len":1,"MSS":32768}"#, ErrorCode::MSS),
        (r#"{"tcp":true,"len":1,"TOS":256}"#, ErrorCode::TOS),
        (r#"{"tcp":true,"len":1,"burst":1001}"#, ErrorCode::BURST),
        (r#"{"tcp":true,"len":1,"congestion":"a b"}"#, ErrorCode::CONGESTION),
        (r#"{"sctp":true,"len":1}"#, ErrorCode::PARAMS),
        (r#"{"tcp":true,"udp":true,"len":16}"#, ErrorCode::PARAMS),
        ("[]", ErrorCode::PARAMS),
        ("", ErrorCode::PARAMS),
    ];
    for (json, code) in cases {
        let error = Params::parse(json.as_bytes()).expect_err(json);
        assert!(matches!(error, ServerError::Refused(found, _) if found == code), "{json}");
    }
    let deep = [b'['; Params::MAX_BYTES];
    assert!(Params::parse(&deep).is_err());
}

#[test]
fn json_that_is_announced_too_long_is_not_waited_for() {
    let mut server = Server::new(Duration::ZERO, LONGEST);
    server.handle_input(Duration::ZERO, &u32::MAX.to_be_bytes());
    assert!(server.is_closed());
    let mut silent = Server::new(Duration::ZERO, LONGEST);
    silent.handle_timeout(PARAMS_TIMEOUT);
    assert!(silent.is_closed());
}

#[test]
fn unknown_values_are_told_from_zero_even_if_written_unsigned() {
    let json = |retransmits: &str| {
        format!(
            r#"{{"sender_has_retransmits":{retransmits},
                "streams":[{{"id":1,"bytes":5,"retransmits":{retransmits}}}]}}"#
        )
    };
    for unknown in ["-1", "18446744073709551615"] {
        let results = Results::parse(json(unknown).as_bytes(), 1).unwrap();
        assert_eq!(results.has_retransmits, None);
        assert_eq!(results.streams[0].retransmits, None);
    }
    let known = Results::parse(json("1").as_bytes(), 1).unwrap();
    assert_eq!(known.streams[0].retransmits, Some(1));
}

#[test]
fn results_that_are_not_of_the_test_are_refused() {
    let stream = r#"{"id":1,"bytes":5}"#;
    for streams in [
        format!("[{stream},{stream}]"),
        r#"[{"id":1,"bytes":-5}]"#.to_owned(),
        r#"[{"id":1,"bytes":1e300}]"#.to_owned(),
        r#"[{"bytes":5}]"#.to_owned(),
        "5".to_owned(),
    ] {
        let json = format!(r#"{{"streams":{streams}}}"#);
        assert!(Results::parse(json.as_bytes(), 2).is_err(), "{json}");
    }
    assert!(Results::parse(format!(r#"{{"streams":[{stream},{stream}]}}"#).as_bytes(), 1).is_err());
}

#[test]
fn omitted_datagrams_are_taken_off() {
    let json = br#"{"streams":[{"id":1,"bytes":5,"packets":10,"omitted_packets":4,"errors":3,"omitted_errors":1}]}"#;
    let results = Results::parse(json, 1).unwrap();
    assert_eq!((results.streams[0].packets, results.streams[0].errors), (10, 2));
    assert_eq!(results.streams[0].omitted, Some(4));
}

#[test]
fn an_old_client_is_told_a_number_that_it_has_words_for() {
    let told = |version| ErrorCode::MAX_DURATION.known_to(version);
    for old in [None, Some("3.12"), Some("3.1.3"), Some("nonsense")] {
        assert_eq!(told(old), ErrorCode::DURATION, "{old:?}");
    }
    assert_eq!(told(Some("3.21+")), ErrorCode::MAX_DURATION);
    let expired = ErrorCode::EXPIRED.known_to(Some("3.12"));
    assert_eq!(expired, ErrorCode::SERVER_TERMINATED);
    assert_eq!(ErrorCode::STREAMS.known_to(None), ErrorCode::STREAMS);
}

#[test]
fn more_than_was_sent_or_any_link_carries_is_not_possible() {
    let mut here = half(Direction::Up, Ok(UdpSent::default()));
    here.flows[0].bytes = 1_000_000_000;
    let told = |bytes| {
        let mut told = told(1, 0, None);
        told.streams[0].bytes = bytes;
        told
    };
    assert!(told(0).is_possible(&here) && told(1_900_000_000).is_possible(&here));
    assert!(!told(1 << 54).is_possible(&here));
    // A sender of datagrams may have sent much more than came.
    here.flows[0].sends = false;
    assert!(told(100_000_000_000).is_possible(&here));
    assert!(!told(1 << 54).is_possible(&here));
}

/// A receiver's socket has the system's algorithm; the client asked the sender for its own.
#[test]
fn the_congestion_control_is_the_senders() {
    let mut report = half(Direction::Up, Err(UdpReceived::default()));
    let mut sender = half(Direction::Down, Ok(UdpSent::default()));
    let receives = TcpReceiver { congestion: Some("cubic".into()), ..TcpReceiver::default() };
    let sends = TcpSender { congestion: Some("reno".into()), ..TcpSender::default() };
    report.flows[0].tcp = Some(receives.into());
    sender.flows[0].tcp = Some(sends.into());
    report.flows.append(&mut sender.flows);
    let test = Params::parse(TCP.as_bytes()).unwrap().to_test(0);
    let results = Results::of_half(&report, &test);
    assert_eq!(results.congestion.as_deref(), Some("reno"));
}

/// One end's account of one UDP flow of the second half of a test.
fn half(direction: Direction, counts: Result<UdpSent, UdpReceived>) -> HalfReport {
    let (udp_sent, udp_received) = match counts {
        Ok(sent) => (Some(sent), None),
        Err(received) => (None, Some(received)),
    };
    let sends = udp_sent.is_some();
    let flow =
        FlowHalf { seconds: 2.0, udp_sent, udp_received, ..FlowHalf::new(0, direction, sends) };
    HalfReport { flows: vec![flow], ..HalfReport::default() }
}

fn told(packets: u64, errors: u64, omitted: Option<u64>) -> Results {
    Results {
        streams: vec![StreamResult { id: 1, packets, errors, omitted, ..StreamResult::default() }],
        ..Results::default()
    }
}

/// `stream -u -R -b 20mbit -t 2s` with a second of warm-up, no loss: 3.12 tells of 5189 packets and
/// of no omitted ones, 3.21 of 1727 omitted ones.
#[test]
fn a_warm_up_that_the_sender_counts_is_not_lost() {
    let received = UdpReceived {
        received: 3462,
        expected: Some(3462),
        omitted: 1727,
        ..UdpReceived::default()
    };
    let here = half(Direction::Down, Err(received));
    for omitted in [None, Some(1727), Some(1700)] {
        let there = told(5189, 0, omitted).to_half(&here, false);
        assert_eq!(there.flows[0].udp_sent.as_ref().unwrap().sent, 3462);
    }
    // A server of which nothing has come has sent all the same.
    let nothing = UdpReceived { expected: Some(0), ..UdpReceived::default() };
    let there = told(5189, 0, None).to_half(&half(Direction::Down, Err(nothing)), false);
    assert_eq!(there.flows[0].udp_sent.as_ref().unwrap().sent, 5189);
}

#[test]
fn a_warm_up_that_the_receiver_counts_is_taken_off() {
    let sent = UdpSent { sent: 2000, omitted: 1000, ..UdpSent::default() };
    let here = half(Direction::Up, Ok(sent));
    let received = |results: Results| {
        let there = results.to_half(&here, false);
        there.flows[0].udp_received.as_ref().unwrap().received
    };
    assert_eq!(received(told(3000, 0, None)), 2000);
    // A tenth lost, in both phases or, where that is told, in the measured one.
    assert_eq!(received(told(3000, 300, None)), 1800);
    assert_eq!(received(told(3000, 100, Some(1000))), 1900);
    // The last ten never came.
    assert_eq!(received(told(2990, 0, None)), 1990);
    assert_eq!(received(told(0, 0, None)), 0);
}

/// 3.12 prints the server's errors over its own packets without its own omitted ones; 3.21 takes
/// off what the server says.
#[test]
fn clients_of_every_version_print_the_loss_of_the_measured_time() {
    let received = UdpReceived {
        received: 900,
        expected: Some(1000),
        omitted: 3456,
        ..UdpReceived::default()
    };
    let report = half(Direction::Up, Err(received));
    let test = Params::parse(UDP.as_bytes()).unwrap().to_test(0);
    let json = Results::of_half(&report, &test).to_json();
    let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
    let figure = |key: &str| json["streams"][0][key].as_u64().unwrap();
    assert_eq!((figure("packets"), figure("omitted_packets")), (4456, 3456));
    assert_eq!((figure("errors"), figure("omitted_errors")), (100, 0));
    let sent = UdpSent { sent: 1000, omitted: 3277, ..UdpSent::default() };
    let results = Results::of_half(&half(Direction::Down, Ok(sent)), &test);
    assert_eq!(results.streams[0].packets, 4277);
}

#[test]
fn streams_are_numbered_as_the_reference_does() {
    let ids: Vec<u32> = (0..4).map(stream_id).collect();
    assert_eq!(ids, [1, 3, 4, 5]);
}

#[test]
fn a_cookie_is_told_from_other_greetings() {
    let mut old = b"host.example.1700000000.123456.0123".to_vec();
    old.resize(COOKIE_BYTES, 0);
    let new = Cookie::from_random([3; 36]);
    assert!(Cookie::can_begin(&old) && Cookie::can_begin(&new.0));
    assert!((1..COOKIE_BYTES).all(|n| Cookie::can_begin(&new.0[..n])));
    for other in [&b"GET / HTTP/1.1\r\n"[..], b"\0", b"", &[b'a'; COOKIE_BYTES], b"\xd1lin"] {
        assert!(!Cookie::can_begin(other));
    }
}

/// What a stranger, an engine and time can do to a server.
#[derive(Debug, Clone)]
enum Step {
    Bytes(Vec<u8>),
    Params(bool),
    State(u8),
    Results,
    Accept,
    Begin,
    Report,
    Wait(u64),
    Close,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let state = prop::sample::select(vec![0u8, 1, 2, 4, 9, 10, 11, 12, 13, 14, 16, 0xfe, 0xff]);
    let step = prop_oneof![
        1 => prop::collection::vec(any::<u8>(), 0..64).prop_map(Step::Bytes),
        4 => any::<bool>().prop_map(Step::Params),
        4 => state.prop_map(Step::State),
        3 => Just(Step::Results),
        4 => Just(Step::Accept),
        4 => Just(Step::Begin),
        4 => Just(Step::Report),
        1 => (0u64..4000).prop_map(Step::Wait),
        1 => Just(Step::Close),
    ];
    prop::collection::vec(step, 0..40)
}

proptest! {
    #[test]
    fn a_server_in_any_sequence_ends_once_and_never_waits_without_a_deadline(steps in steps()) {
        let mut now = Duration::ZERO;
        let mut server = Server::new(now, LONGEST);
        let (mut asked, mut begun, mut ended, mut closed) = (0, 0, 0, 0);
        for step in steps {
            match step {
                Step::Bytes(bytes) => server.handle_input(now, &bytes),
                Step::Params(udp) => {
                    let json = if udp { UDP } else { TCP };
                    server.handle_input(now, &super::framed(json.as_bytes()));
                }
                Step::State(byte) => server.handle_input(now, &[byte]),
                Step::Results => {
                    server.handle_input(now, &super::framed(&results(1, true).to_json()));
                }
                Step::Accept => server.accept(now),
                Step::Begin => server.begin(now),
                Step::Report => server.report(now, &results(1, false)),
                Step::Wait(seconds) => {
                    now += Duration::from_secs(seconds);
                    server.handle_timeout(now);
                }
                Step::Close => server.handle_close(),
            }
            while let Some(event) = server.poll_event() {
                prop_assert_eq!(closed, 0, "nothing happens after the end");
                match event {
                    ServerEvent::Asked(_) => asked += 1,
                    ServerEvent::Begin => begun += 1,
                    ServerEvent::End => ended += 1,
                    ServerEvent::Results(_) => prop_assert_eq!(ended, 1),
                    ServerEvent::Closed(_) => closed += 1,
                }
            }
            prop_assert!(asked <= 1 && begun <= asked && ended <= begun);
            prop_assert_eq!(server.is_closed(), closed == 1);
            // Only the engine is waited for without end, and it knows that.
            let waits = server.poll_timeout().is_some() || server.is_closed();
            prop_assert!(waits || (asked == 1 && begun == 0));
        }
    }

    #[test]
    fn parameters_read_as_they_were_written(
        streams in 1u32..=128,
        time_s in 0u32..=86_400,
        bytes in 0u64..1 << 50,
        block_bytes in 16u64..=65_507,
        udp: bool,
        rate_bps in prop::option::of(80u64..1 << 40),
        tos: u8,
        reverse: bool,
    ) {
        let written = Params {
            transport: if udp { Transport::Udp(Layout::Wide) } else { Transport::Tcp },
            streams,
            time_s,
            bytes,
            block_bytes,
            rate_bps,
            tos,
            direction: if reverse { Direction::Down } else { Direction::Both },
            ..params(1)
        };
        prop_assert_eq!(Params::parse(&written.to_json()), Ok(written));
    }
}
