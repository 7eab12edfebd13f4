//! What must hold for any bytes. Each function is a fuzz target (see `fuzz/`), and is run over its
//! seeds and their mutations by `tests/corpus.rs`.

use std::fmt::Display;
use std::net::IpAddr;
use std::str::FromStr;
use std::time::Duration;

use linerate_core::analyze::{self, Claims, Input, Options};
use linerate_core::assemble::Run;
use linerate_core::capacity::{
    self, CapacityDocument, CapacityHalf, CapacityRequest, HoldPort, HoldPorts, HoldProgress,
};
use linerate_core::foreign::iperf3::{self, Cookie, Layout, Params, Results};
use linerate_core::foreign::netperf;
use linerate_core::link::frame::{self, Cutter, Gso, Offload, RouterAddresses};
use linerate_core::link::{Corruption, CorruptionPlace};
use linerate_core::one_way::{OneWay, Probe};
use linerate_core::plan::{Direction, Test};
use linerate_core::record::{HostFacts, Status};
use linerate_core::session::message::{
    ClientMessage, HalfReport, Limits, Progress, RefusalReason, ServerMessage, Welcome,
};
use linerate_core::session::operation::{
    CAPACITY, End, Open, Release, Reply, Request, TRACE, TREATMENTS, Treat, Untreat,
};
use linerate_core::session::{Client, Server};
use linerate_core::trace::{
    AsTable, MAX_FLOWS, ProbeCodec, ProbeKind, TraceConfig, TraceRequest, admit,
};
use linerate_core::treatment::HostChange;
use linerate_core::units::{BitRate, ByteCount, Dscp, EndpointName, Family, Percent, Sizes, Span};
use linerate_core::wire::{
    DatagramHeader, Frame, FrameReader, HELLO_BYTES, Handshake, Hello, Key, Seal, StampAnswer,
    StampArrival, StampRequest, reflect,
};

/// A target.
pub(crate) type Target = fn(&[u8]);

/// Every target, by the name of its seeds' directory and of its fuzz target.
pub(crate) const TARGETS: [(&str, Target); 19] = [
    ("hello", hello),
    ("frames", frames),
    ("client_message", client_message),
    ("server_message", server_message),
    ("report", report),
    ("sealed", sealed),
    ("datagram", datagram),
    ("units", units),
    ("session", session),
    ("frame", frame),
    ("figures", figures),
    ("claims", claims),
    ("traced", traced),
    ("held", held),
    ("icmp", icmp),
    ("as_table", as_table),
    ("iperf3", iperf3),
    ("iperf3_session", iperf3_session),
    ("netperf", netperf),
];

/// A hello that can be read says the same when it is written and read again.
pub(crate) fn hello(bytes: &[u8]) {
    let Some(bytes) = bytes.first_chunk::<HELLO_BYTES>() else {
        return;
    };
    if let Ok(hello) = Hello::decode(bytes) {
        assert_eq!(Hello::decode(&hello.encode()), Ok(hello));
    }
}

/// The frames are the same however the stream was cut, and none is longer than allowed.
pub(crate) fn frames(bytes: &[u8]) {
    let Some((&cut, stream)) = bytes.split_first() else {
        return;
    };
    let whole = read_frames(stream, stream.len().max(1));
    assert_eq!(whole, read_frames(stream, usize::from(cut).max(1)));
    assert!(whole.iter().all(|frame| frame.body.len() <= LONGEST));
}

fn read_frames(stream: &[u8], piece: usize) -> Vec<Frame> {
    let mut reader = FrameReader::new(LONGEST);
    let mut frames = Vec::new();
    for piece in stream.chunks(piece) {
        reader.push(piece);
        loop {
            match reader.next_frame() {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => break,
                Err(_) => return frames,
            }
        }
    }
    frames
}

/// A test that passes its check has flows and a length.
pub(crate) fn client_message(bytes: &[u8]) {
    let Ok(message) = ClientMessage::parse(bytes) else {
        return;
    };
    if let ClientMessage::Ask(Request::Open(Open { test, .. })) = &message
        && test.check().is_ok()
    {
        assert!((1..=256).contains(&test.flows()));
        assert!(test.seconds().is_none_or(|s| s.is_finite() && s > 0.0));
    }
    if let ClientMessage::Ask(Request::Treat(Treat { changes })) = &message {
        changes.iter().for_each(stays_in_the_table);
    }
    let again = serde_json::to_vec(&message).expect("what was read can be written");
    assert!(ClientMessage::parse(&again).is_ok());
}

/// No sysctl but of the network passes the check, and no name that leads elsewhere.
fn stays_in_the_table(change: &HostChange) {
    if let HostChange::Sysctl { key, .. } = change
        && change.check().is_ok()
    {
        assert!(key.starts_with("net.") && !key.contains('\0') && !key.contains(".."));
    }
}

/// What an endpoint says can be written again.
pub(crate) fn server_message(bytes: &[u8]) {
    if let Ok(message) = ServerMessage::parse(bytes) {
        let again = serde_json::to_vec(&message).expect("what was read can be written");
        assert!(ServerMessage::parse(&again).is_ok());
    }
}

/// Any report that is taken makes a record that can be written and whose rates are finite.
pub(crate) fn report(bytes: &[u8]) {
    let Ok(ServerMessage::Answer(Reply::End(report))) = ServerMessage::parse(bytes) else {
        return;
    };
    for direction in [Direction::Up, Direction::Down, Direction::Both] {
        let test = test_of(direction);
        if report.check(test.flows()).is_err() {
            continue;
        }
        let run = Run {
            test,
            host: "h".into(),
            peer: "p".into(),
            family: Family::Ipv4,
            started_at: String::new(),
            status: Status::Complete,
            client: HalfReport::default(),
            server: Some((*report).clone()),
            exchange: None,
        };
        let record = run.into_record();
        assert!(record.throughput_bps().is_none_or(f64::is_finite));
        serde_json::to_string(&record).expect("a record can be written");
    }
}

/// Nothing that was not sealed with the key and in turn is opened.
pub(crate) fn sealed(bytes: &[u8]) {
    let key = Key::from_text(&"5c".repeat(32)).expect("64 digits");
    let mut server = Seal::server(&key).expect("the host has randomness");
    assert!(server.read_handshake(bytes).is_err());
    assert!(server.open(bytes).is_err());

    let (mut client, mut server) = (Seal::client(&key), Seal::server(&key));
    let (Ok(client), Ok(server)) = (&mut client, &mut server) else {
        panic!("the host has randomness");
    };
    let first = client.write_handshake().expect("its turn");
    server.read_handshake(&first).expect("the same key");
    let second = server.write_handshake().expect("its turn");
    client.read_handshake(&second).expect("the same key");
    // Nothing at all is the empty message of no pieces.
    assert!(server.open(bytes).is_err() || bytes.is_empty());
    assert!(client.open(bytes).is_err() || bytes.is_empty());
}

/// Handshakes and headers that can be read say the same when they are written and read again.
pub(crate) fn datagram(bytes: &[u8]) {
    if let Some(handshake) = Handshake::decode(bytes) {
        assert_eq!(Handshake::decode(&handshake.encode()), Some(handshake));
    }
    if let Some(header) = DatagramHeader::read(bytes) {
        let mut written = bytes.to_vec();
        header.write(&mut written);
        assert_eq!(written, bytes);
    }
    if let Some(held) = capacity::wire::Datagram::decode(bytes) {
        assert_eq!(held.encode(), bytes);
    }
    stamp(bytes);
}

/// An answer has the length of the request, and repeats its number.
fn stamp(bytes: &[u8]) {
    let mut answer = bytes.to_vec();
    let arrival = StampArrival { received_ns: 7, ttl: 64 };
    if reflect(&mut answer, arrival, None, 9) {
        let request = StampRequest::read(bytes).expect("an answer is longer than a request");
        let told = StampAnswer::read(&answer).expect("it was just written");
        assert_eq!(answer.len(), bytes.len());
        assert_eq!(told.request_sequence, request.sequence);
        assert_eq!(told.request_sent_ns, request.sent_ns);
        assert_eq!((told.received_ns, told.sent_ns), (7, 9));
    } else {
        assert_eq!(answer, bytes);
    }
    // Absurd times of a peer are figures, and nothing worse.
    if let Some(told) = StampAnswer::read(bytes) {
        let probe = Probe::new(told.request_sent_ns, told.received_ns, told.sent_ns, 1);
        assert!(OneWay::new(&[probe], None).is_some());
    }
}

/// Whatever is a quantity can be printed, and what is printed for a name is that name.
pub(crate) fn units(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    prints::<BitRate>(text);
    prints::<ByteCount>(text);
    prints::<Span>(text);
    prints::<Percent>(text);
    prints::<Dscp>(text);
    if let Ok(sizes) = text.parse::<Sizes>() {
        assert!((1..=1000).contains(&sizes.as_slice().len()));
    }
    if let Ok(name) = text.parse::<EndpointName>() {
        assert!(!name.host.is_empty());
    }
    // The key's own text is never in its error.
    if let Err(error) = Key::from_text(text) {
        assert!(error.to_string().starts_with("a key is 64"));
    }
}

fn prints<T: FromStr + Display>(text: &str) {
    if let Ok(quantity) = text.parse::<T>() {
        assert!(!quantity.to_string().is_empty());
    }
}

/// Whatever is done in whatever order: a closed end stays closed, an open server has a deadline,
/// and neither end panics. The first byte's lowest bit says whether the channel is sealed; each
/// further byte is an operation, and some take the byte after them.
pub(crate) fn session(bytes: &[u8]) {
    let Some((&first, operations)) = bytes.split_first() else {
        return;
    };
    let key = Key::from_text(&"5c".repeat(32)).expect("64 digits");
    let key = (first & 1 == 1).then_some(&key);
    let mut now = Duration::ZERO;
    let mut client = Client::new(now, "fuzz", key);
    // The endpoint has taken the hello.
    let _hello = client.poll_transmit();
    let mut server = Server::new(now, key, key.is_some());
    let open = Open { test: Box::new(test_of(Direction::Both)), profile: None };
    let treat = Treat {
        changes: vec![HostChange::Sysctl { key: "net.ipv4.tcp_sack".into(), value: "0".into() }],
    };
    let mut operations = operations.iter().copied().take(MAX_OPERATIONS);
    while let Some(operation) = operations.next() {
        let closed = (client.is_closed(), server.is_closed());
        match operation % 27 {
            0 => client.ask(now, open.clone()),
            1 => client.begin(now, None),
            2 => client.ask(now, End),
            3 => client.close(),
            4 => server.reply(now, Reply::Open(())),
            5 => server.ready(now),
            6 => server.reply(now, Reply::End(Box::default())),
            7 => server.refuse(RefusalReason::Test, "no".into()),
            8 => server.progress(Progress::default()),
            9 => server.finished(),
            10 => server.hang_up(RefusalReason::Stopping, "stop"),
            11 => server.handle_input(now, &[operations.next().unwrap_or(0)]),
            12 => client.handle_input(now, &[operations.next().unwrap_or(0)]),
            13 => {
                now += Duration::from_millis(50 * u64::from(operations.next().unwrap_or(0)));
                client.handle_timeout(now);
                server.handle_timeout(now);
            }
            15 => client.ask(now, treat.clone()),
            16 => client.ask(now, Untreat),
            17 => server.reply(now, Reply::Treat(vec!["so".into()])),
            18 => server.reply(now, Reply::Untreat(())),
            19 => client.ask(now, way_back()),
            20 => server.refuse(RefusalReason::Busy, "no".into()),
            21 => client.ask(now, hold_request()),
            22 => server.reply(now, Reply::Hold(hold_ports())),
            23 => server.held(HoldProgress::default()),
            24 => client.ask(now, Release),
            25 => server.reply(now, Reply::Release(Box::default())),
            _ => exchange(now, &mut client, &mut server),
        }
        assert!(!closed.0 || client.is_closed());
        assert!(!closed.1 || server.is_closed());
        assert_eq!(server.poll_timeout().is_none(), server.is_closed());
        while client.poll_event().is_some() {}
        while server.poll_event().is_some() {}
    }
}

/// Whatever a packet socket gives: segments are as many as counted and never longer than the frame,
/// an answer is never answered, fragments fit. The first bytes are the offload and numbers, as
/// [`OFFLOAD_BYTES`] says.
pub(crate) fn frame(bytes: &[u8]) {
    let Some((head, bytes)) = bytes.split_first_chunk::<OFFLOAD_BYTES>() else {
        return;
    };
    let number = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
    let offload = Offload {
        needs_checksum: head[0] & 1 != 0,
        ecn: head[0] & 2 != 0,
        gso: [Gso::None, Gso::Tcp4, Gso::Tcp6, Gso::Udp][usize::from(head[1] % 4)],
        header_bytes: 0,
        gso_bytes: number(2),
        checksum_start: number(4),
        checksum_offset: number(6),
    };
    let mtu = u32::from(number(8)).max(68);
    if let Some(layout) = frame::layout(bytes) {
        assert!(layout.ip + layout.ip_bytes as usize <= bytes.len());
    }
    let router = RouterAddresses { v4: Some([10, 0, 0, 1].into()), v6: Some([0xfd; 16].into()) };
    if let Some(answer) = frame::too_big(bytes, &router, mtu) {
        assert!(frame::layout(&answer).is_some_and(|layout| layout.ip_bytes <= 1280));
        assert_eq!(frame::too_big(&answer, &router, mtu), None);
    }
    frame::fragments(bytes, mtu, |fragment| {
        assert!(frame::layout(fragment).is_some_and(|layout| layout.ip_bytes <= mtu));
    });
    segments(bytes, offload, u32::from(number(10)));
}

fn segments(bytes: &[u8], offload: Offload, bit: u32) {
    let (mut cutter, mut segment) = (Cutter::new(bytes, offload), Vec::new());
    let (mut count, mut total) = (0, 0);
    while let Some(mut offload) = cutter.next_into(&mut segment) {
        count += 1;
        total += segment.len();
        assert!(segment.len() <= bytes.len());
        frame::mark_ce(&mut segment);
        let places = [CorruptionPlace::Host, CorruptionPlace::Wire, CorruptionPlace::Payload];
        let place = places[count as usize % places.len()];
        frame::corrupt(&mut segment, &mut offload, Corruption { bit, place });
        frame::mark_verified(&mut segment, &mut offload);
        frame::complete_checksum(&mut segment, &mut offload);
    }
    assert_eq!(count, frame::segment_count(bytes, offload));
    assert!(total <= bytes.len() * count as usize);
}

fn exchange(now: Duration, client: &mut Client, server: &mut Server) {
    while let Some(bytes) = client.poll_transmit() {
        server.handle_input(now, &bytes);
    }
    if server.is_introduced() {
        server.welcome(now, welcome());
    }
    while let Some(bytes) = server.poll_transmit() {
        client.handle_input(now, &bytes);
    }
}

fn test_of(direction: Direction) -> Test {
    Test::stream()
        .direction(direction)
        .size(1448_u64)
        .streams(2_u32)
        .time(Span(Duration::from_secs(1)))
        .warm_up(Span(Duration::ZERO))
        .interval(Span(Duration::from_millis(100)))
        .resolve(1)
        .expect("it is within all ranges")
}

fn hold_request() -> CapacityRequest {
    CapacityRequest {
        connections: 2,
        udp_sockets: 0,
        seconds: 1.0,
        request_bytes: 64,
        response_bytes: 64,
    }
}

fn hold_ports() -> HoldPorts {
    HoldPorts { tcp: vec![HoldPort { port: 9, count: 2 }], ..HoldPorts::default() }
}

fn welcome() -> Welcome {
    Welcome {
        software: "fuzz".into(),
        token: "00".repeat(16),
        operations: ["stream", TREATMENTS, TRACE, CAPACITY].map(Into::into).into(),
        limits: Limits {
            clients: 1,
            streams: 8,
            seconds: 60.0,
            rate_bps: None,
            connections: 100_000,
        },
        facts: Box::new(HostFacts::default()),
    }
}

/// Before the frame: flags, kind of segmentation, segment, start and place of the checksum, MTU,
/// bit to flip.
const OFFLOAD_BYTES: usize = 12;
/// Longest frame body of the frame target, bytes.
const LONGEST: usize = 300;
/// Of one session; more find nothing new and cost time.
const MAX_OPERATIONS: usize = 200;

/// Figures that can be read are analysed or refused, whatever their columns are called; a group's
/// runs are all there.
pub(crate) fn figures(bytes: &[u8]) {
    let input = Input { file: "figures", label: "figures", bytes };
    let Ok(table) = analyze::read(&[input]) else {
        return;
    };
    for factor in table.columns().iter().take(3).cloned() {
        let options = Options { factor: Some(factor), ..Options::default() };
        let Ok(analysis) = analyze::analyze(&table, &options) else {
            continue;
        };
        let levels = analysis.groups.iter().flat_map(|group| &group.levels);
        let runs: usize = levels.map(|level| level.runs).sum();
        assert!(runs <= table.len());
    }
}

/// A file of claims is read or refused with a place that is in it.
pub(crate) fn claims(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    if let Err(error) = Claims::from_toml("claims", text) {
        let message = error.to_string();
        let after = message.split_once("line ").map_or("", |(_, after)| after);
        let digits = after.split(|c: char| !c.is_ascii_digit()).next();
        let line: usize = (digits.and_then(|digits| digits.parse().ok()))
            .unwrap_or_else(|| panic!("an error without a line: {message}"));
        assert!(line <= text.lines().count() + 1, "{message}");
    }
}

fn way_back() -> TraceRequest {
    TraceRequest::back_of(&TraceConfig::new(IpAddr::from([198, 18, 0, 1])))
}

/// Whatever an endpoint says of the way back, what is taken of it has figures that can be shown,
/// written and read again, and words of our own.
pub(crate) fn traced(bytes: &[u8]) {
    let Ok(ServerMessage::Answer(Reply::Trace(document))) = ServerMessage::parse(bytes) else {
        return;
    };
    let request = way_back();
    let Ok(document) = admit(*document, &request) else {
        return;
    };
    assert!(document.hops.len() <= usize::from(request.hops));
    assert!(document.paths.is_none() && document.watch.is_none() && document.reverse.is_none());
    let times = document.hops.iter().flat_map(|hop| &hop.rtt_us);
    assert!(times.chain([&document.seconds]).all(|time| time.is_finite() && *time >= 0.0));
    assert!(document.delay.steps.iter().all(|step| step.added_us >= 0.0));
    let again = serde_json::to_vec(&document).expect("a document can be written");
    let again = serde_json::from_slice(&again).expect("and read again");
    admit(again, &request).expect("what was taken once is taken again");
}

/// Whatever an endpoint says of what it held, the limits that are read from it have their order and
/// can be written.
pub(crate) fn held(bytes: &[u8]) {
    let Ok(ServerMessage::Answer(Reply::Release(half))) = ServerMessage::parse(bytes) else {
        return;
    };
    if half.check().is_err() {
        return;
    }
    let mut document: CapacityDocument =
        serde_json::from_str(HELD).expect("it is a whole document");
    document.client = CapacityHalf { limits: half.limits.clone(), ..document.client };
    document.server = Some(*half);
    capacity::annotate(&mut document);
    let stops = document.limits.iter().map(|row| row.would_stop_at);
    assert!(stops.flatten().is_sorted());
    assert!(document.stopped_by.is_some(), "8 of 9 are less than asked");
    let written = serde_json::to_vec(&document).expect("a document can be written");
    let read: CapacityDocument = serde_json::from_slice(&written).expect("and read again");
    assert_eq!(read.limits.len(), document.limits.len());
}

/// A client's side of a run that stopped.
const HELD: &str = r#"{"schema":"linerate.capacity/1","started_at":"","host":"","peer":"","family":"ipv4",
    "status":"complete","test":{"connections":9000,"udp_sockets":0,"hold":1.0,"heartbeat":1.0,"latency":false,
    "find_limit":false,"seed":1},"tcp":{"asked":9000,"opened":8000,"alive":8000},"client":{"tcp":{"most":8000,
    "failures":[{"cause":"timed_out","count":1000}]}},"seconds":1.0,"environment":{"client":{}},"caveats":[],"seed":1}"#;

/// Of probes that a seed may answer: the lowest bits are the family and the kind.
pub(crate) fn codec_of(first: u8) -> ProbeCodec {
    let (source, target): (IpAddr, IpAddr) = match first & 1 {
        0 => ([198, 18, 0, 1].into(), [198, 18, 0, 2].into()),
        _ => ([0x2001, 2, 0, 0, 0, 0, 0, 1].into(), [0x2001, 2, 0, 0, 0, 0, 0, 2].into()),
    };
    ProbeCodec {
        kind: [ProbeKind::Udp, ProbeKind::Icmp, ProbeKind::Tcp][usize::from(first >> 1) % 3],
        source,
        target,
        source_port: 40_000,
        target_port: 33_434,
        session: 0x1234,
    }
}

/// Whatever comes to a raw socket is an answer to one of this trace's probes or none. The first
/// byte is of
/// [`codec_of`].
pub(crate) fn icmp(bytes: &[u8]) {
    let Some((&first, message)) = bytes.split_first() else {
        return;
    };
    let codec = codec_of(first);
    let target = codec.target;
    let answers =
        [codec.read_icmp(target, Some(60), message), codec.read_tcp(target, Some(60), message)];
    for answer in answers.into_iter().flatten() {
        let identity = answer.identity;
        assert!(identity.session.is_none_or(|session| session == codec.session));
        assert!(identity.flow.is_none_or(|flow| flow < MAX_FLOWS));
        assert!(answer.mpls.len() <= 16);
        assert!(answer.mpls.iter().all(|label| label.label < 1 << 20 && label.traffic_class < 8));
    }
    if let Some(identity) = codec.identify_datagram(message) {
        assert!(identity.session.is_none_or(|session| session == codec.session));
    }
}

/// A table is read or refused with a place that is in it; what it says of an address is one of its
/// origins.
pub(crate) fn as_table(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    match AsTable::parse(text) {
        Ok(table) => {
            assert!(table.len() <= text.lines().count());
            let addresses: [IpAddr; 2] =
                [[198, 18, 0, 1].into(), [0x2001, 2, 0, 0, 0, 0, 0, 1].into()];
            let found = addresses.into_iter().filter_map(|address| table.origin(address));
            assert!(found.into_iter().all(|origin| origin.name.chars().count() <= 60));
        }
        Err(error) => {
            let line = text.lines().nth(error.line - 1).expect("a line of the table");
            assert!(error.column <= Some(line.chars().count() + 1), "{error}");
        }
    }
}

/// What an iperf3 client or server may send, by itself: what can be read is within limits and reads
/// the same again. The first byte says which.
pub(crate) fn iperf3(bytes: &[u8]) {
    let Some((&kind, body)) = bytes.split_first() else {
        return;
    };
    match kind % 5 {
        0 => {
            if let Ok(params) = Params::parse(body) {
                assert!((1..=256).contains(&params.flows()));
                assert!(params.seconds().is_none_or(|seconds| seconds <= 87_000.0));
                assert!((1..=1 << 20).contains(&params.block_bytes));
                assert_eq!(params.to_test(1).flows(), params.flows());
                let again = Params::parse(&params.to_json()).expect("what was read can be written");
                assert_eq!(again.demand(), params.demand());
            }
        }
        1 => {
            if let Ok(results) = Results::parse(body, 256) {
                let total: u64 = results.streams.iter().map(|stream| stream.bytes).sum();
                assert!(total < 1 << 63);
                Results::parse(&results.to_json(), 256).expect("what was read can be written");
            }
        }
        2 => {
            if let Ok(text) = std::str::from_utf8(body)
                && let Err(error) = iperf3::Users::parse(text)
            {
                assert!(error.line <= text.lines().count() + 1, "{error}");
            }
            iperf3::Credentials::parse(body);
        }
        3 => {
            for layout in [Layout::Narrow, Layout::Wide] {
                let header = layout.read(body, u64::MAX);
                assert_eq!(header.is_some(), body.len() >= layout.bytes());
            }
            iperf3::Greeting::decode(body);
        }
        _ => {
            Cookie::can_begin(body);
        }
    }
}

/// A client and a server of iperf3's in any order of operations, among them a stranger's bytes to
/// either: an end that has closed says nothing more, and nobody waits without a deadline.
pub(crate) fn iperf3_session(bytes: &[u8]) {
    let longest = Duration::from_secs(60);
    let params = Params::parse(br#"{"tcp":true,"time":1,"len":1000,"parallel":2}"#)
        .expect("parameters of a test");
    let mut now = Duration::ZERO;
    let mut client = iperf3::Client::new(now, Cookie::from_random([1; 36]), params);
    let mut server = iperf3::Server::new(now, longest);
    client.poll_transmit();
    let mut rest = bytes;
    for _ in 0..MAX_OPERATIONS {
        let Some((&operation, more)) = rest.split_first() else {
            return;
        };
        rest = more;
        let closed = (client.is_closed(), server.is_closed());
        match operation % 12 {
            0 => server.accept(now),
            1 => server.stream_came(now),
            2 => server.begin(now),
            3 => server.report(now, &Results::default()),
            4 => client.end(now),
            5 => client.report(now, &Results::default()),
            6 => client.terminate(),
            7 => server.terminate(),
            8 => {
                now += Duration::from_secs(u64::from(operation));
                client.handle_timeout(now);
                server.handle_timeout(now);
            }
            9 | 10 => {
                let (piece, more) = rest.split_at(rest.len().min(usize::from(operation)));
                rest = more;
                match operation % 12 {
                    9 => server.handle_input(now, piece),
                    _ => client.handle_input(now, piece),
                }
            }
            _ => {
                while let Some(bytes) = client.poll_transmit() {
                    server.handle_input(now, &bytes);
                }
                while let Some(bytes) = server.poll_transmit() {
                    client.handle_input(now, &bytes);
                }
            }
        }
        assert!(!closed.0 || client.is_closed());
        assert!(!closed.1 || server.is_closed());
        while client.poll_event().is_some() {}
        while server.poll_event().is_some() {}
    }
}

/// Both halves of netperf's protocol in any order of operations, among them a stranger's bytes to
/// either: a test that is taken is within the limits, an end that has closed says nothing more, and
/// nobody waits without a deadline.
pub(crate) fn netperf(bytes: &[u8]) {
    let settings =
        netperf::Settings { passphrase: None, limits: NETPERF_LIMITS, cpus: 2, cpu_rate: 100.0 };
    let mut now = Duration::ZERO;
    let mut server = netperf::Server::new(now, settings);
    let mut client = netperf::Client::new(now);
    let mut rest = bytes;
    for _ in 0..MAX_OPERATIONS {
        let Some((&operation, more)) = rest.split_first() else {
            return;
        };
        rest = more;
        let closed = server.is_closed();
        match operation % 9 {
            0 => server.ready(&netperf::Ready::default()),
            1 => server.report(now, &netperf::Results::default()),
            2 => server.refuse(now, netperf::Refusal::new(netperf::errno::EBUSY, "busy")),
            3 => client.open(now, &netperf_test()),
            4 => client.begun(now, Duration::from_secs(1)),
            5 => {
                now += Duration::from_secs(u64::from(operation));
                client.handle_timeout(now);
                server.handle_timeout(now);
            }
            // A whole message, or what there is.
            6 | 7 => {
                let (piece, more) = rest.split_at(rest.len().min(netperf::WIDE_BYTES));
                rest = more;
                match operation % 9 {
                    6 => server.handle_input(now, piece),
                    _ => client.handle_input(piece),
                }
            }
            _ => {
                while let Some(bytes) = client.poll_transmit() {
                    server.handle_input(now, &bytes);
                }
                while let Some(bytes) = server.poll_transmit() {
                    client.handle_input(&bytes);
                }
            }
        }
        assert!(!closed || server.is_closed());
        assert_eq!(server.poll_timeout().is_none(), server.is_closed());
        while let Some(event) = server.poll_event() {
            if let netperf::ServerEvent::Test(test) = event {
                assert!(test.seconds(&NETPERF_LIMITS) <= NETPERF_LIMITS.seconds);
                assert!(test.port == 0 || test.port >= 1024);
            }
        }
        while client.poll_event().is_some() {}
    }
}

const NETPERF_LIMITS: Limits =
    Limits { connections: 0, clients: 1, streams: 1, seconds: 60.0, rate_bps: None };

fn netperf_test() -> netperf::DataTest {
    use netperf::{Length, Role, Transport};
    netperf::Client::test(Role::Receive, Transport::Tcp, Length::Seconds(1))
}
