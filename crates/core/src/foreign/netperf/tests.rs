//! Laws of the codec, and dialogues of both halves.

use std::net::IpAddr;
use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::plan::Direction;
use crate::session::message::{FlowHalf, Limits};
use crate::units::Family;

const LIMITS: Limits =
    Limits { connections: 0, clients: 4, streams: 8, seconds: 60.0, rate_bps: None };
const START: Duration = Duration::from_secs(1000);

fn settings() -> Settings {
    Settings { passphrase: None, limits: LIMITS, cpus: 4, cpu_rate: 100.0 }
}

fn server() -> Server {
    Server::new(START, settings())
}

fn stream(seconds: u32) -> DataTest {
    Client::test(Role::Receive, Transport::Tcp, Length::Seconds(seconds))
}

fn events(server: &mut Server) -> Vec<ServerEvent> {
    std::iter::from_fn(|| server.poll_event()).collect()
}

fn answer(server: &mut Server) -> Option<Block> {
    let bytes = server.poll_transmit()?;
    let width = match bytes.len() {
        NARROW_BYTES => Width::Narrow,
        _ => Width::Wide,
    };
    Block::decode(width, &bytes)
}

fn length() -> impl Strategy<Value = Length> {
    prop_oneof![
        (1u32..=60).prop_map(Length::Seconds),
        (1u32..=i32::MAX as u32).prop_map(Length::Units),
        Just(Length::Open),
    ]
}

prop_compose! {
    fn any_test()(
        role in prop_oneof![
            Just(Role::Receive), Just(Role::Send), Just(Role::Exchange),
            Just(Role::ConnectExchange), Just(Role::Connect),
        ],
        udp in any::<bool>(),
        length in length(),
        family in prop_oneof![Just(None), Just(Some(Family::Ipv4)), Just(Some(Family::Ipv6))],
        sizes in proptest::option::of((1u32..65_000, 1u32..65_000)),
        exchanged in (1u32..65_000, 1u32..65_000),
        buffers in proptest::option::of((1u32..1 << 30, 1u32..1 << 30)),
        flags in vec(any::<bool>(), 3),
        port in prop_oneof![Just(0u16), 1024u16..],
        class in proptest::option::of(any::<u8>()),
        burst in proptest::option::of((1u32..1000, 1u32..1_000_000)),
        congestion in proptest::option::of("[a-z][a-z0-9_]{0,14}"),
    ) -> DataTest {
        let connects = matches!(role, Role::Connect | Role::ConnectExchange);
        let transport = if udp && !connects { Transport::Udp } else { Transport::Tcp };
        let exchange = matches!(role, Role::Exchange | Role::ConnectExchange);
        let (request, response) = if exchange { exchanged } else { (0, 0) };
        let sizes = sizes.filter(|_| !exchange);
        DataTest {
            family,
            request_bytes: request,
            response_bytes: response,
            send_bytes: sizes.map(|sizes| sizes.0),
            receive_bytes: sizes.map(|sizes| sizes.1),
            send_buffer: buffers.map(|buffers| buffers.0),
            receive_buffer: buffers.map(|buffers| buffers.1),
            nodelay: flags[0],
            sendfile: flags[1],
            measure_cpu: flags[2],
            client_port: port,
            port,
            traffic_class: class,
            burst,
            congestion,
            ..Client::test(role, transport, length)
        }
    }
}

proptest! {
    #[test]
    fn a_request_that_is_written_is_read_as_it_was(test in any_test()) {
        let read = DataTest::parse(&test.to_omni(), &LIMITS);
        prop_assert_eq!(read, Ok(test));
    }

    #[test]
    fn an_answer_that_is_written_is_read_as_it_was(
        port in 1u16..,
        numbers in vec(any::<u32>(), 5),
        flags in (any::<bool>(), any::<bool>()),
        rate in 0.0f32..1e6,
        burst in proptest::option::of((1u32.., 1u32..)),
        class in proptest::option::of(any::<u8>()),
        cpu_model in "[A-Za-z0-9 ()]{0,60}",
    ) {
        let ready = Ready {
            port,
            receive_buffer: numbers[0],
            receive_bytes: numbers[1],
            send_buffer: numbers[2],
            send_bytes: numbers[3],
            nodelay: flags.0,
            measure_cpu: flags.1,
            cpu_rate: rate,
            length: numbers[4],
            burst,
            traffic_class: class,
            cpu_model,
        };
        let block = answer::ready(Message::Omni, Width::Wide, &ready);
        prop_assert_eq!(Ready::parse(&block), Ok(ready));
    }

    #[test]
    fn results_that_are_written_are_read_as_they_were(
        bytes in (0..=1u64 << 55, 0..=1u64 << 55),
        numbers in vec(0u32..=i32::MAX as u32, 8),
        seconds in 0.0f32..1e6,
        shares in proptest::option::of(vec(0.0f32..100.0, 7)),
        texts in ("[a-z0-9]{0,15}", "[a-z0-9_]{0,31}", "[a-z0-9_]{0,15}"),
    ) {
        let results = Results {
            received_bytes: bytes.0,
            sent_bytes: bytes.1,
            receive_calls: numbers[0],
            send_calls: numbers[1],
            failed_sends: numbers[2],
            transactions: numbers[3],
            seconds,
            cpu: shares.map(|shares| CpuShares {
                busy: shares[0],
                user: shares[1],
                system: shares[2],
                iowait: shares[3],
                irq: shares[4],
                softirq: shares[5],
                peak: Some((3, shares[6])),
            }),
            cpus: numbers[4],
            receive_buffer: numbers[5],
            send_buffer: numbers[6],
            retransmitted: Some(numbers[7]),
            interface: texts.0,
            driver: texts.1,
            congestion: texts.2,
        };
        let block = answer::results(Message::Omni, Width::Wide, &results);
        prop_assert_eq!(Results::parse(&block), Ok(results));
    }

    /// However the words are, a test that is taken is within the limits and has what its role
    /// needs.
    #[test]
    fn no_words_make_a_test_beyond_the_limits(
        kind in prop_oneof![
            Just(97), Just(10), Just(13), Just(16), Just(19), Just(34), Just(94), Just(300),
                any::<i32>(),
        ],
        words in vec(prop_oneof![0u32..10, any::<u32>()], 0..50),
        narrow in any::<bool>(),
    ) {
        let width = if narrow { Width::Narrow } else { Width::Wide };
        let block = Block::of_words(width, kind, &words);
        if let Ok(test) = DataTest::parse(&block, &LIMITS) {
            holds(&test)?;
        }
    }

    /// The order and the cuts of what a client sends matter to nobody: no panic, no growth, one
    /// end.
    #[test]
    fn any_sequence_of_operations_ends_once_and_holds_little(
        operations in vec(operation(), 1..60),
        passphrase in any::<bool>(),
    ) {
        let passphrase = passphrase.then(|| "open sesame".to_owned());
        let mut server = Server::new(START, Settings { passphrase, ..settings() });
        let (mut now, mut ends) = (START, 0);
        for operation in operations {
            now += Duration::from_millis(70);
            match operation {
                Operation::Input(bytes) => server.handle_input(now, &bytes),
                Operation::Close => server.handle_close(),
                Operation::Later(seconds) => {
                    now += Duration::from_secs(seconds);
                    server.handle_timeout(now);
                }
                Operation::Ready => server.ready(&Ready::default()),
                Operation::Report => server.report(now, &Results::default()),
                Operation::Refuse => server.refuse(now, Refusal::new(errno::EBUSY, "busy")),
            }
            for event in events(&mut server) {
                match event {
                    ServerEvent::Test(test) => holds(&test)?,
                    ServerEvent::Refused(refusal) => prop_assert!(refusal.errno > 0),
                    ServerEvent::Closed(_) => ends += 1,
                }
            }
            while let Some(bytes) = server.poll_transmit() {
                prop_assert!(bytes.len() == NARROW_BYTES || bytes.len() == WIDE_BYTES);
            }
            prop_assert_eq!(server.poll_timeout().is_none(), server.is_closed());
        }
        // Whatever happened, time alone ends it.
        server.handle_timeout(now + Duration::from_secs(1000));
        ends += events(&mut server).len();
        prop_assert_eq!(ends, 1);
    }

    /// A netserver that says anything is a netserver that fails, at worst.
    #[test]
    fn a_client_stands_any_netserver(pieces in vec(vec(any::<u8>(), 0..1500), 0..6)) {
        let mut client = Client::new(START);
        for piece in pieces {
            client.handle_input(&piece);
            while let Some(event) = client.poll_event() {
                if event == ClientEvent::Greeted {
                    client.open(START, &stream(1));
                }
            }
        }
        client.handle_close();
        client.handle_timeout(START + Duration::from_secs(100));
        prop_assert!(client.poll_timeout().is_none());
    }
}

fn holds(test: &DataTest) -> Result<(), TestCaseError> {
    if let Length::Seconds(seconds) = test.length {
        prop_assert!((1..=60).contains(&seconds));
    }
    let sizes = [test.send_bytes, test.receive_bytes];
    prop_assert!(sizes.iter().flatten().all(|size| (1..=64 << 20).contains(size)));
    prop_assert!(test.port == 0 || test.port >= 1024);
    if matches!(test.role, Role::Exchange | Role::ConnectExchange) {
        prop_assert!(test.request_bytes > 0 && test.response_bytes > 0);
    }
    if let (Transport::Udp, Role::Exchange) = (test.transport, test.role) {
        prop_assert!(test.response_bytes <= 65_507);
    }
    Ok(())
}

#[derive(Debug, Clone)]
enum Operation {
    Input(Vec<u8>),
    Close,
    Later(u64),
    Ready,
    Report,
    Refuse,
}

fn operation() -> impl Strategy<Value = Operation> {
    let whole = |width: Width, kind: i32| Operation::Input(Block::new(width, kind).into_bytes());
    prop_oneof![
        4 => any_test().prop_map(|test| Operation::Input(test.to_omni().into_bytes())),
        2 => (0i32..110).prop_map(move |kind| whole(Width::Wide, kind)),
        1 => (0i32..110).prop_map(move |kind| whole(Width::Narrow, kind)),
        2 => vec(any::<u8>(), 0..700).prop_map(Operation::Input),
        1 => Just(Operation::Close),
        1 => (0u64..3).prop_map(Operation::Later),
        3 => Just(Operation::Ready),
        3 => Just(Operation::Report),
        1 => Just(Operation::Refuse),
    ]
}

#[test]
fn client_and_server_go_through_a_test_together() {
    let (mut client, mut server) = (Client::new(START), server());
    let pass = |client: &mut Client, server: &mut Server| {
        while let Some(bytes) = client.poll_transmit() {
            server.handle_input(START, &bytes);
        }
        while let Some(bytes) = server.poll_transmit() {
            client.handle_input(&bytes);
        }
    };
    pass(&mut client, &mut server);
    assert_eq!(client.poll_event(), Some(ClientEvent::Greeted));
    client.open(START, &stream(2));
    pass(&mut client, &mut server);
    assert_eq!(events(&mut server), [ServerEvent::Test(Box::new(stream(2)))]);
    let ready = Ready { port: 4000, ..Ready::default() };
    server.ready(&ready);
    pass(&mut client, &mut server);
    assert_eq!(client.poll_event(), Some(ClientEvent::Ready(Box::new(ready))));
    client.begun(START, Duration::from_secs(2));
    let results = Results {
        received_bytes: 1 << 40,
        seconds: 2.0,
        interface: "eth0".into(),
        retransmitted: Some(0),
        ..Results::default()
    };
    server.report(START, &results);
    pass(&mut client, &mut server);
    assert_eq!(client.poll_event(), Some(ClientEvent::Results(Box::new(results))));
    server.handle_close();
    assert_eq!(events(&mut server), [ServerEvent::Closed(End::Done)]);
}

#[test]
fn an_old_clients_block_is_known_by_the_silence_after_it() {
    let mut server = server();
    let request = Block::of_words(Width::Narrow, 13, &[0, 0, 8, 0, 8, 0, 1, 1, 0, 0, 0, 5]);
    server.handle_input(START, &request.into_bytes());
    assert!(events(&mut server).is_empty());
    let due = server.poll_timeout().expect("it waits for more");
    assert!(due <= START + Duration::from_secs(1));
    server.handle_timeout(due);
    let [ServerEvent::Test(test)] = &events(&mut server)[..] else {
        panic!("the test was not seen");
    };
    assert_eq!((test.role, test.length), (Role::Exchange, Length::Seconds(5)));
    server.ready(&Ready { port: 4242, ..Ready::default() });
    let ready = answer(&mut server).expect("an answer");
    assert_eq!((ready.width(), ready.kind(), ready.int(5)), (Width::Narrow, 14, 4242));
    server.report(START, &Results { transactions: 7, ..Results::default() });
    let results = answer(&mut server).expect("results");
    assert_eq!((results.kind(), results.int(2)), (15, 7));
}

/// Found by chance: the block was read before the time was looked at, and gave the session more.
#[test]
fn an_old_clients_block_that_is_read_too_late_does_not_hold_the_session() {
    let mut server = server();
    let calibrate = Block::new(Width::Narrow, 5).into_bytes();
    assert_eq!(calibrate.len(), 256);
    server.handle_input(START, &calibrate);
    server.handle_timeout(START + Duration::from_secs(1000));
    assert!(matches!(&events(&mut server)[..], [ServerEvent::Closed(End::Timeout(_))]));
    assert_eq!(server.poll_timeout(), None);
}

#[test]
fn a_passphrase_comes_first_or_nothing_is_answered() {
    let guarded = || {
        let passphrase = Some("open sesame".to_owned());
        Server::new(START, Settings { passphrase, ..settings() })
    };
    let mut said = Block::new(Width::Wide, 6);
    said.set_text(0, 0, 100, "open sesame");
    let mut wrong = Block::new(Width::Wide, 6);
    wrong.set_text(0, 0, 100, "open sesam");
    let request = stream(1).to_omni();
    let mut server = guarded();
    server.handle_input(START, &said.into_bytes());
    server.handle_input(START, &request.clone().into_bytes());
    assert!(matches!(&events(&mut server)[..], [ServerEvent::Test(_)]));
    for first in [wrong, request] {
        let mut server = guarded();
        server.handle_input(START, &first.into_bytes());
        assert_eq!(events(&mut server), [ServerEvent::Closed(End::Passphrase)]);
        assert_eq!(server.poll_transmit(), None);
    }
}

#[test]
fn unknown_requests_are_refused_with_an_errno_and_the_session_goes_on() {
    let mut server = server();
    let too_long = stream(61).to_omni();
    let unknown = Block::new(Width::Wide, 500);
    let mut low_port = stream(1).to_omni();
    low_port.set_word(20, 80);
    let mut protocol = stream(1).to_omni();
    protocol.set_word(23, 132);
    let mut size = Client::test(Role::Send, Transport::Tcp, Length::Open).to_omni();
    size.set_word(1, 1 << 30);
    let refused = [
        (too_long, errno::EPERM),
        (unknown, errno::UNKNOWN_TEST),
        (low_port, errno::EACCES),
        (protocol, errno::EPROTONOSUPPORT),
        (size, errno::EMSGSIZE),
    ];
    for (block, number) in refused {
        server.handle_input(START, &block.into_bytes());
        assert!(matches!(&events(&mut server)[..], [ServerEvent::Refused(_)]));
        let answer = answer(&mut server).expect("a refusal");
        assert_eq!(answer.second(), number);
    }
    server.handle_input(START, &stream(1).to_omni().into_bytes());
    assert!(matches!(&events(&mut server)[..], [ServerEvent::Test(_)]));
}

#[test]
fn debugging_and_calibration_are_answered() {
    let mut server = server();
    server.handle_input(START, &Block::new(Width::Wide, 1).into_bytes());
    assert_eq!(answer(&mut server).map(|block| block.kind()), Some(3));
    server.handle_input(START, &Block::new(Width::Wide, 5).into_bytes());
    let rate = answer(&mut server).expect("a rate");
    assert_eq!((rate.kind(), rate.float(0), rate.int(1)), (5, 100.0, 4));
    server.handle_input(START, &Block::new(Width::Wide, 600).into_bytes());
    let words = answer(&mut server).expect("four words");
    assert_eq!((words.kind(), words.text(0, 40)), (601, ",Linux,-,-,-".into()));
}

#[test]
fn datagrams_go_to_the_clients_own_address_alone() {
    let v4: IpAddr = "198.18.0.1".parse().expect("an address");
    let v6: IpAddr = "2001:2::1".parse().expect("an address");
    let mut test = Client::test(Role::Send, Transport::Udp, Length::Seconds(1));
    assert!(test.is_for(v4) && test.is_for(v6));
    test.client_address = [u32::from_be_bytes([198, 18, 0, 1]), 0, 0, 0];
    assert!(test.is_for(v4) && !test.is_for(v6));
    assert!(!test.is_for("198.18.0.2".parse().expect("an address")));
    test.client_address = [0x2001_0002, 0, 0, 1];
    assert!(test.is_for(v6));
    test.client_address = test.client_address.map(u32::swap_bytes);
    assert!(test.is_for(v6) && !test.is_for(v4));
}

#[test]
fn classic_results_have_their_bytes_as_a_double() {
    let results = Results { received_bytes: 12_345_678_901, ..Results::default() };
    let message = Message::Classic(classic::Classic::TcpStream);
    let block = answer::results(message, Width::Narrow, &results);
    let bits = u64::from(block.word(0)) << 32 | u64::from(block.word(1));
    let bytes = f64::from_bits(bits);
    assert_eq!((block.kind(), bytes), (12, 12_345_678_901.0));
}

#[test]
fn counts_and_times_that_no_test_has_are_no_half() {
    let mut flow = FlowHalf {
        bytes: 1_000_000_000,
        messages: 1,
        seconds: 1.0,
        ..FlowHalf::new(0, Direction::Up, true)
    };
    let told = |bytes, seconds| Results {
        received_bytes: bytes,
        sent_bytes: bytes,
        seconds,
        ..Results::default()
    };
    let half = told(900_000_000, 1.5).to_half(&flow).expect("possible");
    assert_eq!((half.bytes, half.seconds, half.sends), (900_000_000, 1.5, false));
    for impossible in [told(1 << 54, 1.0), told(1, -1.0), told(1, f32::NAN)] {
        assert_eq!(impossible.to_half(&flow), None, "{impossible:?}");
    }
    flow.sends = false;
    assert!(told(100_000_000_000, 1.0).to_half(&flow).is_some());
    assert_eq!(told(1 << 54, 1.0).to_half(&flow), None);
}
