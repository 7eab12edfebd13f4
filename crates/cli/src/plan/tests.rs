//! Each default and each contradiction, from the words on the command line to the plan.

use std::time::Duration;

use linerate_core::plan::{
    Closer, Direction, ExchangeTest, Extent, Protocol, ReceiveMethod, SendMethod, SocketOptions,
    StreamTest, Traffic,
};
use linerate_core::units::{BitRate, ByteCount, Dscp, Percent, Span};

use super::*;
use crate::args::{Command, command};

/// The plan of a command line, or why it is refused.
pub(crate) fn planned(line: &str) -> Result<Plan, String> {
    let plan = match &command(line)? {
        Command::Stream(args) => plan(Workload::Stream, &args.test, &args.run.repeats),
        Command::Rr(args) => plan(Workload::Rr, &args.test, &args.run.repeats),
        Command::Crr(args) => plan(Workload::Crr, &args.test, &args.run.repeats),
        other => panic!("{other:?} has no plan"),
    };
    plan.map_err(|error| format!("{error:#}"))
}

fn test_of(line: &str) -> Test {
    planned(line).unwrap().tests.remove(0)
}

fn stream_of(line: &str) -> StreamTest {
    match test_of(line).traffic {
        Traffic::Stream(stream) => stream,
        other => panic!("{other:?} is no stream"),
    }
}

fn exchange_of(line: &str) -> ExchangeTest {
    match test_of(line).traffic {
        Traffic::Rr(exchange) | Traffic::Crr(exchange) => exchange,
        Traffic::Stream(stream) => panic!("{stream:?} is no exchange"),
    }
}

fn millis(millis: u64) -> Span {
    Span(Duration::from_millis(millis))
}

#[test]
fn a_stream_without_options_is_ten_seconds_up_over_tcp() {
    let expected = Test {
        traffic: Traffic::Stream(StreamTest::new(131_072)),
        protocol: Protocol::Tcp,
        direction: Direction::Up,
        streams: 1,
        extent: Extent::Time(millis(10_000)),
        warm_up: millis(1000),
        interval: millis(1000),
        options: SocketOptions::default(),
        seed: 7,
    };
    let plan = planned("stream pit --seed 7").unwrap();
    assert_eq!(plan.tests, [expected]);
    assert_eq!(plan.repeats, Repeats::Times(1));
}

#[test]
fn a_datagram_fits_an_mtu_of_1500_over_both_families() {
    let size = stream_of("stream pit -u").message_bytes;
    assert_eq!(size, 1448);
    assert!(size + 8 + 40 <= 1500);
}

#[test]
fn offload_is_the_default_where_the_rate_is_high_or_free() {
    for (line, offload) in [
        ("stream pit -u", true),
        ("stream pit -u -b 100mbit", false),
        ("stream pit -u -b 101mbit", true),
        ("stream pit -u -b 1mbit --offload", true),
        ("stream pit -u --no-offload", false),
        ("stream pit", false),
    ] {
        assert_eq!(stream_of(line).offload, offload, "{line}");
    }
}

#[test]
fn the_warm_up_is_a_tenth_of_the_time_and_at_most_a_second() {
    for (line, warm_up) in [
        ("stream pit -t 5", 500),
        ("stream pit -t 60", 1000),
        ("stream pit -t 60 -O 3", 3000),
        ("stream pit --omit 0", 0),
        ("stream pit --whole -t 5", 0),
        ("stream pit -n 4MiB", 0),
        ("stream pit --count 1000", 0),
        ("rr pit", 1000),
        ("crr pit --count 10", 0),
    ] {
        assert_eq!(test_of(line).warm_up, millis(warm_up), "{line}");
    }
}

#[test]
fn the_interval_is_a_second_or_the_whole_of_a_shorter_run() {
    assert_eq!(test_of("stream pit -t 300ms").interval, millis(300));
    assert_eq!(test_of("stream pit -n 1GB").interval, millis(1000));
    assert_eq!(test_of("stream pit -i 100ms").interval, millis(100));
}

#[test]
fn the_end_is_a_time_or_bytes_or_a_count() {
    for (line, extent) in [
        ("stream pit -t 2", Extent::Time(millis(2000))),
        ("stream pit -n 4MiB", Extent::Bytes(ByteCount(4 << 20))),
        ("stream pit --count 5", Extent::Count(5)),
        ("rr pit --count 5", Extent::Count(5)),
    ] {
        assert_eq!(test_of(line).extent, extent, "{line}");
    }
}

#[test]
fn each_way_to_write_a_direction_or_protocol_means_the_same() {
    assert_eq!(test_of("stream pit -R").direction, Direction::Down);
    assert_eq!(test_of("stream pit --bidir").direction, Direction::Both);
    assert_eq!(test_of("stream pit --direction down").direction, Direction::Down);
    assert_eq!(test_of("stream pit -u").protocol, Protocol::Udp);
    assert_eq!(test_of("stream pit --protocol mptcp").protocol, Protocol::Mptcp);
}

#[test]
fn a_sweep_has_one_test_for_each_size_in_order() {
    let plan = planned("stream pit -l 100..9100/500 --repeat 3").unwrap();
    assert_eq!(plan.tests.len(), 19);
    assert_eq!(plan.repeats, Repeats::Times(3));
    let requests = planned("rr pit --request 64,1 --precision 5%").unwrap();
    let sizes: Vec<Traffic> = requests.tests.into_iter().map(|test| test.traffic).collect();
    assert!(matches!(&sizes[..], [Traffic::Rr(a), Traffic::Rr(b)]
        if a.request_bytes == 64 && b.request_bytes == 1 && b.response_bytes == 1));
    assert_eq!(requests.repeats, Repeats::Precision(Percent(5.0)));
}

#[test]
fn requests_are_one_byte_each_way_one_at_a_time() {
    let exchange = exchange_of("rr pit");
    assert_eq!((exchange.request_bytes, exchange.response_bytes), (1, 1));
    assert_eq!((exchange.depth, exchange.rate_per_s), (1, None));
    assert_eq!(exchange_of("rr pit --depth 16").depth, 16);
    assert_eq!(exchange_of("rr pit -b 10k").rate_per_s, Some(10_000.0));
}

#[test]
fn crr_closes_at_the_server_unless_told_otherwise() {
    assert_eq!(exchange_of("crr pit").closer, Closer::Server);
    let other = exchange_of("crr pit --close client --reset");
    assert_eq!((other.closer, other.reset), (Closer::Client, true));
}

#[test]
fn socket_options_are_taken_as_given_and_else_left_to_the_kernel() {
    let line = "stream pit --receive-window 51200 --send-buffer 64KiB -M 536 --pacing 10mbit -C \
        reno -N --dscp EF";
    let expected = SocketOptions {
        receive_window_bytes: Some(ByteCount(51_200)),
        send_buffer_bytes: Some(ByteCount(65_536)),
        mss_bytes: Some(536),
        pacing_bps: Some(BitRate(10_000_000)),
        congestion: Some("reno".to_owned()),
        nodelay: true,
        dscp: Dscp::new(46),
        ..SocketOptions::default()
    };
    assert_eq!(test_of(line).options, expected);
    assert_eq!(test_of("stream pit").options, SocketOptions::default());
    assert_eq!(test_of("rr pit -u").options, SocketOptions::default());
    // Requests are never held back by Nagle's algorithm.
    assert!(test_of("rr pit").options.nodelay && test_of("crr pit").options.nodelay);
}

#[test]
fn a_short_option_means_what_it_means_to_iperf3() {
    let total = test_of("stream pit -n 4MiB -P 4").extent;
    assert_eq!(total, Extent::Bytes(ByteCount(1 << 20)));
    let options = test_of("stream pit -w 64KiB").options;
    let both = [options.receive_window_bytes, options.send_buffer_bytes];
    assert_eq!(both, [Some(ByteCount(65_536)); 2]);
    for (line, options) in [
        ("stream pit -n 1MB -t 1", "--total, --time"),
        ("stream pit -n 0", "--total, 1 to 1024TiB"),
        ("stream pit -n 1MB --bytes 1MB", "--total, --bytes"),
        ("stream pit -w 1MB --send-buffer 1MB", "--window, --send-buffer"),
    ] {
        let message = planned(line).expect_err(line);
        assert!(options.split(", ").all(|option| message.contains(option)), "{message}");
    }
}

#[test]
fn a_udp_rate_of_max_is_the_default_and_is_typed_max() {
    let rate = |line| stream_of(line).rate_bps;
    assert_eq!(rate("stream pit -u"), None);
    assert_eq!(rate("stream pit -u --rate max"), None);
    assert_eq!(rate("stream pit -u -b 1mbit"), Some(BitRate(1_000_000)));
    let typed = |line| test_of(line).typed(&["seed"]).join(" ");
    assert_eq!(typed("stream pit -u"), "-u --rate max");
    assert_eq!(typed("stream pit -u -b 1mbit"), "-u --rate 1mbit");
    let message = planned("stream pit -b max").expect_err("TCP");
    assert!(message.contains("--rate cannot be used"), "{message}");
}

#[test]
fn a_time_of_0_lasts_until_it_is_ended() {
    let day = Extent::Time(Span(Duration::from_secs(86_400)));
    assert_eq!(test_of("stream pit -t 0").extent, day);
    assert_eq!(test_of("rr pit --time=0").extent, day);
    let message = planned("stream pit -t 0ms").expect_err("a slip");
    assert!(message.contains("10ms to 24h"), "{message}");
}

#[test]
fn each_flow_has_a_port_of_its_own_from_the_first_one_on() {
    let options = test_of("stream pit --cport 5000 -P 2 --bidir").options;
    let ports: Vec<u16> = (0..4).map(|flow| options.source_port_of(flow)).collect();
    assert_eq!(ports, [5000, 5001, 5002, 5003]);
    assert_eq!(test_of("stream pit").options.source_port_of(3), 0);
    assert!(planned("stream pit --cport 65534 -P 2").is_ok());
    let message = planned("stream pit --cport 65534 -P 3").expect_err("beyond the last port");
    assert!(message.contains("1 to 65533"), "{message}");
}

#[test]
fn application_options_reach_the_test() {
    let line = "stream pit -Z --verify --whole --write-rate 5mbit --read-rate 4mbit";
    let stream = stream_of(line);
    assert_eq!(stream.send, SendMethod::ZeroCopy);
    assert!(stream.verify && stream.whole);
    assert_eq!(stream.write_rate_bps, Some(BitRate(5_000_000)));
    assert_eq!(stream.read_rate_bps, Some(BitRate(4_000_000)));
    assert_eq!(stream_of("stream pit --discard").receive, ReceiveMethod::Discard);
}

#[test]
fn a_seed_is_the_users_or_a_fresh_one_of_32_bits() {
    assert_eq!(test_of("stream pit --seed 18446744073709551615").seed, u64::MAX);
    assert!(test_of("rr pit").seed <= u64::from(u32::MAX));
}

#[test]
fn a_contradiction_names_both_options() {
    for (line, options) in [
        ("stream pit -t 1 --bytes 1MB", "--time, --bytes"),
        ("stream pit -t 1 --count 1", "--time, --count"),
        ("stream pit --bytes 1MB --count 1", "--bytes, --count"),
        ("stream pit -O 1 --bytes 1MB", "--warm-up, --bytes"),
        ("stream pit -O 1 --count 1", "--warm-up, --count"),
        ("stream pit -O 1 --whole", "--warm-up, --whole"),
        ("stream pit -R --direction up", "-R, --direction"),
        ("stream pit -R --bidir", "-R, --bidir"),
        ("stream pit --bidir --direction up", "--bidir, --direction"),
        ("stream pit -u --protocol tcp", "-u, --protocol"),
        ("stream pit --repeat 2 --precision 5", "--repeat, --precision"),
        ("stream pit --discard --verify", "--discard, --verify"),
        ("stream pit -u --offload --no-offload", "--offload, --no-offload"),
        ("stream pit --json --csv", "--json, --csv"),
        ("stream pit --json-stream --csv", "--json-stream, --csv"),
        ("stream pit --json-stream --json", "--json-stream, --json"),
        ("stream pit -4 -6", "-4, -6"),
        ("stream pit -b 1mbit", "--rate cannot be used with TCP"),
        ("stream pit --offload", "--offload cannot be used with TCP"),
        ("stream pit --protocol mptcp -b 1M", "--rate, --protocol mptcp"),
        ("stream pit --no-offload", "--no-offload cannot be used with TCP"),
        ("stream pit -u --write-rate 1M", "--write-rate, -u"),
        ("stream pit -u -Z", "--zerocopy, -u"),
        ("stream pit -u --discard", "--discard, -u"),
        ("stream pit -u --whole", "--whole, -u"),
        ("stream pit -u -M 536", "--mss, -u"),
        ("stream pit -u -C bbr", "--congestion, -u"),
        ("rr pit -u -N", "--nodelay, -u"),
        ("rr pit -u --pacing 1M", "--pacing, -u"),
        ("rr pit --depth 2 --rate 5", "--depth, --rate"),
        ("crr pit -u", "crr, -u"),
    ] {
        let message = planned(line).expect_err(line);
        for option in options.split(", ") {
            assert!(message.contains(option), "{line}: {message}");
        }
    }
}

#[test]
fn figures_out_of_range_are_refused_before_anything_is_sent() {
    for line in [
        "stream pit -t 2d",
        "stream pit -t 100h",
        "stream pit -n 0",
        "stream pit --count 0",
        "stream pit -l 0",
        "stream pit -l 1GB",
        "stream pit -u -l 8",
        "stream pit -u -l 70000",
        "stream pit -P 0",
        "stream pit -P 1000",
        "stream pit -i 0",
        "stream pit --repeat 0",
        "stream pit --repeat 101",
        "stream pit --precision 0",
        "stream pit --precision 101%",
        "stream pit -M 40",
        "stream pit -w 0",
        "stream pit -C a/b",
        "stream pit --dscp 64",
        "rr pit --depth 0",
        "rr pit --request 65MiB",
        "rr pit --rate 0",
        "stream pit -p 0",
        "rr pit --bytes 5",
    ] {
        assert!(planned(line).is_err(), "{line}");
    }
}
