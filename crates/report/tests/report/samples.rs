//! Hand-built documents with the figures of real paths, shared by the tests.

use std::collections::BTreeMap;

use linerate_core::ceilings::{Cause, Ceiling, Verdict};
use linerate_core::compare::{
    COMPARISON_SCHEMA, ComparedMetric, ComparedPair, Comparison, ComparisonVerdict, Fault,
    IdleLoad, MetricConclusion, OneSidedFault, ReadBack, SeenFault, Side, WouldDecide,
};
use linerate_core::plan::{
    Closer, Direction, ExchangeTest, Extent, Protocol, SocketOptions, StreamTest, Test, Traffic,
};
use linerate_core::qoo::outcomes;
use linerate_core::record::{
    Baseline, BottleneckChange, Caveat, CaveatKind, Change, ChangeResult, Check, CpuFacts,
    CpuSeconds, DeviceFacts, EndReport, Environment, FlowRecord, GapSummary, HiddenFault,
    HostFacts, Interval, LabDirection, LabFacts, LabLink, Leg, NotMade, PathFacts, Proof,
    ProofLevel, Record, RuledOut, SizeFigure, Status, Sweep, TcpEvidence, TcpReceiver, TcpSender,
    UdpEvidence,
};
use linerate_core::remedy::Remedy;
use linerate_core::responsiveness::{Place, Probe, Queue, Responsiveness, Samples};
use linerate_core::stats::{Figure, LatencySummary};
use linerate_core::units::{BitRate, Span};
use linerate_report::text::Style;

pub(crate) fn figure(median: f64) -> Figure {
    Figure::One(linerate_core::stats::MedianInterval {
        median,
        low: 0.97 * median,
        high: 1.02 * median,
        coverage: 0.96875,
        n: 6,
    })
}

pub(crate) fn latency(p50: f64, count: u64) -> LatencySummary {
    LatencySummary {
        min: p50 * 0.8,
        mean: p50 * 1.1,
        p50,
        p90: p50 * 1.4,
        p99: p50 * 2.5,
        p999: p50 * 9.0,
        max: p50 * 30.0,
        count,
    }
}

fn seconds(seconds: f64) -> Span {
    Span::from_secs_f64(seconds).expect("the samples have short times")
}

fn stream_test(message_bytes: u64) -> Test {
    Test {
        traffic: Traffic::Stream(StreamTest::new(message_bytes)),
        protocol: Protocol::Tcp,
        direction: Direction::Up,
        streams: 1,
        extent: Extent::Time(seconds(10.0)),
        warm_up: seconds(1.0),
        interval: seconds(1.0),
        options: SocketOptions::default(),
        seed: 7,
    }
}

fn exchange_test(request_bytes: u64) -> Test {
    Test {
        traffic: Traffic::Rr(ExchangeTest {
            depth: 4,
            rate_per_s: Some(20_000.0),
            closer: Closer::Client,
            ..ExchangeTest::new(request_bytes, 1024)
        }),
        ..stream_test(1)
    }
}

/// What every record has, and nothing else.
fn bare(plan: Test) -> Record {
    Record {
        started_at: "2026-11-21T09:00:00Z".to_owned(),
        host: "pit.example".to_owned(),
        peer: "198.18.0.2:5201".to_owned(),
        seconds: 10.0,
        environment: environment(),
        ..Record::new(plan)
    }
}

fn host(name: &str, cpus: u32, device: &str) -> HostFacts {
    HostFacts {
        linerate: "0.1.0".to_owned(),
        kernel: "6.18.44".to_owned(),
        boot_id: format!("boot-of-{name}"),
        hostname: name.to_owned(),
        cpu: CpuFacts { count: cpus, usable: cpus.into(), ..CpuFacts::default() },
        device: Some(DeviceFacts {
            name: device.to_owned(),
            mtu_bytes: 1500,
            speed_bps: Some(1_000_000_000),
            ..DeviceFacts::default()
        }),
        congestion: Some("cubic".to_owned()),
        ..HostFacts::default()
    }
}

fn environment() -> Environment {
    Environment {
        client: host("dry.example", 2, "eth0"),
        server: Some(host("pit.example", 8, "ens3")),
        shared_kernel: false,
        lab: None,
    }
}

fn end(host_percent: f64, cpus: u32, method: &str) -> EndReport {
    EndReport {
        cpu_seconds: CpuSeconds { user: 0.021, system: 0.314 },
        softirq_seconds: Some(0.052),
        host_cpu_percent: Some(host_percent),
        busiest_core_percent: Some(host_percent * 3.9),
        steal_percent: Some(0.3),
        cpus,
        service_demand_us_per_kib: Some(host_percent * 12.0),
        service_demand_threads_us_per_kib: Some(host_percent * 9.0),
        service_demand_meaningful: Some(true),
        busiest_thread_percent: Some(3.35),
        method: Some(method.to_owned()),
        ..EndReport::default()
    }
}

fn window_limited_tcp() -> TcpSender {
    TcpSender {
        congestion: Some("cubic".to_owned()),
        mss_bytes: 1448,
        advmss_bytes: 1448,
        effective_segment_bytes: Some(1439.7),
        pmtu_bytes: 1500,
        rtt_min_us: Some(29_012),
        rtt_mean_us: 29_412,
        rtt_var_us: 210,
        retransmitted_segments: 12,
        dsack_duplicates: Some(2),
        loss_events: 3,
        timeouts: Some(0),
        data_segments_out: Some(12_056),
        send_window_bytes: Some(51_200),
        cwnd_bytes: 89_776,
        unacked_bytes: 50_680,
        notsent_bytes: Some(323_584),
        busy_us: Some(9_984_000),
        rwnd_limited_us: Some(9_784_000),
        sndbuf_limited_us: Some(0),
        delivery_rate_bps: Some(13_910_000),
        app_limited_share: Some(0.0),
        send_buffer_bytes: 2_626_560,
        options: vec!["timestamps".to_owned(), "sack".to_owned()],
        ..TcpSender::default()
    }
}

fn with_receiver(sender: TcpSender) -> Option<TcpEvidence> {
    Some(TcpEvidence {
        receiver: Some(TcpReceiver {
            advmss_bytes: 1448,
            mss_bytes: 1448,
            pmtu_bytes: 1500,
            buffer_bytes: Some(102_400),
            unread_bytes: Some(0),
            buffer_locked: true,
            ..TcpReceiver::default()
        }),
        ..sender.into()
    })
}

fn ceiling(cause: Cause, limit_bps: f64, formula: &str, independent: bool) -> Ceiling {
    Ceiling {
        cause,
        limit_bps,
        formula: formula.to_owned(),
        inputs: BTreeMap::new(),
        evidence: Vec::new(),
        independent,
    }
}

fn window_ceilings() -> Vec<Ceiling> {
    vec![
        ceiling(Cause::SegmentSize, 13_910_000.0, "packets/s reached × MSS", false),
        ceiling(
            Cause::ReceiveWindow,
            14_124_000.0,
            "receive window ÷ RTT = 51,200 B ÷ 29.0 ms",
            true,
        ),
        ceiling(
            Cause::Congestion,
            61_200_000.0,
            "larger of CUBIC 1.054·(RTT/p)^¾ and Reno √1.5·MSS ÷ (RTT·√p), p = 3 loss events of \
             12,056 segments",
            true,
        ),
        ceiling(Cause::PathRate, 94_150_000.0, "link rate × MSS ÷ (MSS + headers + framing)", true),
    ]
}

fn window_verdict() -> Verdict {
    Verdict {
        cause: Cause::ReceiveWindow,
        share_of_ceiling: Some(0.985),
        evidence: vec![
            "The kernel counted 98.0 % of the busy time as limited by the receiver's window."
                .to_owned(),
            "50,680 B were in flight in a window of 51,200 B, with 323,584 B waiting unsent."
                .to_owned(),
        ],
        remedy: Some(
            Remedy::host_setting(None, "net.ipv4.tcp_rmem", &[4096, 131_072, 689_152]).typed(None),
        ),
        predicted_bps: Some(61_200_000.0),
        next_cause: Some(Cause::Congestion),
        ..Verdict::default()
    }
}

fn intervals() -> Vec<Interval> {
    (0..10)
        .map(|second| Interval {
            start_s: f64::from(second),
            seconds: 1.0,
            bytes: 1_738_750,
            throughput_bps: 13_910_000.0 + 20_000.0 * f64::from((second * 7) % 10) - 90_000.0,
            rtt_us: Some(29_412.0),
            ..Interval::default()
        })
        .collect()
}

fn window_limited(direction: Direction, throughput_bps: f64) -> Leg {
    Leg {
        throughput_bps: Some(throughput_bps),
        bytes: (throughput_bps * 1.25) as u64,
        sender: Some(end(3.1, 2, "write")),
        receiver: Some(end(1.2, 8, "read")),
        tcp: with_receiver(window_limited_tcp()),
        ceilings: window_ceilings(),
        verdict: Some(window_verdict()),
        ..Leg::new(direction)
    }
}

/// One TCP flow behind a window of 51,200 bytes on a path of 29 ms.
pub(crate) fn stream() -> Record {
    Record {
        messages: Some(133),
        legs: vec![Leg { bytes: 17_387_500, ..window_limited(Direction::Up, 13_910_000.0) }],
        intervals: intervals(),
        ..bare(stream_test(131_072))
    }
}

fn flow(id: u32, direction: Direction, throughput_bps: f64) -> FlowRecord {
    FlowRecord {
        id,
        direction,
        throughput_bps,
        bytes: (throughput_bps * 1.25) as u64,
        local: format!("198.18.0.1:{}", 40_000 + id),
        remote: "198.18.0.2:5201".to_owned(),
        sender_thread_percent: None,
        receiver_thread_percent: None,
        tcp: with_receiver(window_limited_tcp()),
        udp: None,
        first_sent_us: None,
        first_received_us: None,
    }
}

/// Several flows on one kernel; the peer's words try to steer the terminal.
pub(crate) fn loopback() -> Record {
    let mut plan = stream_test(131_072);
    plan.streams = 20;
    let mut record = Record {
        host: "evil\u{1b}]0;owned\u{7}\u{202e}host".to_owned(),
        flows: (0..20)
            .map(|id| flow(id, Direction::Up, 2.06e9 + 1e7 * f64::from((id * 7) % 20)))
            .collect(),
        caveats: vec![
            Caveat::new(
                CaveatKind::SharedKernel,
                "Both ends run on one kernel: host-wide CPU figures count both.\u{1b}[2J",
                "",
            ),
            Caveat::new(
                CaveatKind::BusyHost,
                "Other processes used 31 % of this host's CPUs in the run, so that its CPU figures \
                 are too high.",
                "systemctl isolate rescue.target",
            ),
        ],
        legs: vec![Leg {
            throughput_bps: Some(41.2e9),
            bytes: 51_500_000_000,
            ceilings: Vec::new(),
            verdict: Some(Verdict::default()),
            ..window_limited(Direction::Up, 41.2e9)
        }],
        plan,
        ..stream()
    };
    record.environment.shared_kernel = true;
    record
}

/// Datagrams at a paced rate, some lost on the path and some in the socket, ended by a signal.
pub(crate) fn udp_partial() -> Record {
    let mut plan = stream_test(1448);
    plan.protocol = Protocol::Udp;
    if let Traffic::Stream(stream) = &mut plan.traffic {
        stream.rate_bps = Some(BitRate(100_000_000));
    }
    Record {
        status: Status::Partial,
        seconds: 6.2,
        messages: Some(53_490),
        legs: vec![Leg {
            throughput_bps: Some(99_940_000.0),
            bytes: 77_453_500,
            sender: Some(end(9.4, 2, "udp_segment")),
            receiver: Some(end(4.4, 8, "recvmmsg")),
            udp: Some(UdpEvidence {
                sent: 53_522,
                received: 53_490,
                lost: 32,
                loss_runs: Some(9),
                duplicated: 3,
                reordered: 5,
                socket_drops: Some(20),
                path_loss_percent: Some(0.0224),
                jitter_us: 12.04,
                added_delay_us: Some(12_400.0),
                delay_growth_percent: Some(0.021),
                delay_growth_error_percent: Some(0.014),
                loss_spacing_variation: Some(0.31),
                malformed: 0,
                corrupted_bytes: Some(0),
                send_refused: 0,
                gaps_us: Some(GapSummary { p50: 115.9, p90: 118.2, p99: 140.0, max: 2_310.0 }),
                asked_bps: Some(100_000_000),
                datagram_bytes: 1448,
                train_bps: None,
                train_datagrams: None,
            }),
            ..Leg::new(Direction::Up)
        }],
        caveats: vec![Caveat::new(
            CaveatKind::Partial,
            "The run was stopped by a signal after 6.2 of 10 s.",
            "",
        )],
        ..bare(plan)
    }
}

/// Requests in an open loop.
pub(crate) fn rr() -> Record {
    Record {
        transactions: Some(197_750),
        transactions_per_s: Some(19_775.0),
        latency_us: Some(latency(87.4, 197_750)),
        send_lag_us: Some(latency(2.1, 197_750)),
        requests_not_sent: Some(2_250),
        failed: Some(0),
        legs: vec![Leg {
            throughput_bps: Some(162_000_000.0),
            bytes: 202_500_000,
            sender: Some(end(21.0, 2, "write")),
            receiver: Some(end(8.0, 8, "write")),
            ..Leg::new(Direction::Up)
        }],
        caveats: vec![Caveat::new(
            CaveatKind::RateNotReached,
            "2,250 of 200,000 requests that were due were never sent.",
            "linerate rr pit.example --rate 15000",
        )],
        ..bare(exchange_test(64))
    }
}

/// Connections opened and closed for each request.
pub(crate) fn crr() -> Record {
    let mut plan = exchange_test(64);
    if let Traffic::Rr(exchange) = plan.traffic {
        plan.traffic = Traffic::Crr(ExchangeTest { depth: 1, rate_per_s: None, ..exchange });
    }
    Record {
        transactions: Some(412),
        transactions_per_s: Some(41.2),
        connections_per_s: Some(41.2),
        latency_us: Some(latency(58_900.0, 412)),
        failed: Some(1),
        ..bare(plan)
    }
}

/// Both ways at once.
pub(crate) fn both() -> Record {
    let mut plan = stream_test(131_072);
    plan.direction = Direction::Both;
    plan.streams = 2;
    Record {
        flows: vec![
            flow(0, Direction::Up, 7_000_000.0),
            flow(1, Direction::Up, 6_910_000.0),
            flow(2, Direction::Down, 6_820_000.0),
            flow(3, Direction::Down, 6_810_000.0),
        ],
        legs: vec![
            window_limited(Direction::Up, 13_910_000.0),
            window_limited(Direction::Down, 13_630_000.0),
        ],
        ..bare(plan)
    }
}

/// The XPPERF sizes, `repeats` times each.
pub(crate) fn stream_sweep(repeats: u32) -> Sweep {
    let sizes: Vec<u64> = (0..5).map(|step| 100 + 500 * step).collect();
    let row = |size: u64, repeat: u32| {
        let throughput = (size as f64).sqrt() * 1e6 * (1.0 + 0.01 * f64::from(repeat));
        Record {
            legs: vec![window_limited(Direction::Up, throughput)],
            messages: Some((throughput * 1.25) as u64 / size),
            ..Record { plan: stream_test(size), ..stream() }
        }
    };
    // That of the run in the middle.
    let middle = 1.0 + 0.01 * f64::from(repeats.saturating_sub(1) / 2);
    let figures = sizes.iter().map(|&size| SizeFigure {
        message_bytes: size,
        metric: "throughput_bps".to_owned(),
        figure: figure((size as f64).sqrt() * 1e6 * middle),
    });
    // Interleaved, as repeats are run.
    let rows = (0..repeats).flat_map(|repeat| sizes.iter().map(move |&size| row(size, repeat)));
    let figures = figures.filter(|_| repeats > 1).collect();
    Sweep::new(rows.collect(), figures, Vec::new())
}

/// Requests of several sizes.
pub(crate) fn rr_sweep() -> Sweep {
    let rows = [1, 64, 1024, 16_384].map(|size| Record {
        plan: exchange_test(size),
        transactions_per_s: Some(19_775.0 / (1.0 + size as f64 / 4096.0)),
        ..rr()
    });
    Sweep::new(rows.into(), Vec::new(), Vec::new())
}

/// A path whose MSS and window are wrong.
/// Of a path of 29.1 ms.
fn responsiveness(loaded_us: f64) -> Responsiveness {
    let probe = |us| Probe { connect_us: us, request_us: us };
    let samples = Samples {
        idle: vec![probe(29_100.0); 40],
        loaded: vec![probe(loaded_us); 120],
        loaded_flows_us: vec![1.5 * loaded_us; 80],
    };
    Responsiveness {
        flows: 4,
        throughput_bps: 94.1e6,
        interval_s: 0.5,
        intervals: 5,
        stable: true,
        goodput_stable: true,
        queues: vec![Queue {
            place: Place::Path,
            delay_us: loaded_us - 29_100.0,
            bytes: None,
            remedy: None,
        }],
        ..samples.score().expect("there are probes")
    }
}

/// What changes have shown of a window that limits.
pub(crate) fn proved_window(leg: &mut Leg) {
    let change = |change: &str, ratio: f64, predicted: [f64; 2]| ChangeResult {
        change: change.to_owned(),
        end: None,
        ratio,
        interval: [0.95 * ratio, 1.05 * ratio],
        runs: 1,
        window_ratio: None,
        predicted: [Cause::ReceiveWindow, Cause::PathRate].into_iter().zip(predicted).collect(),
        lifts: None,
        cause_then: Some(Cause::ReceiveWindow),
    };
    let remedy = ChangeResult {
        predicted: [].into(),
        lifts: Some(Cause::ReceiveWindow),
        cause_then: Some(Cause::PathRate),
        ..change("receive_window=most", 3.91, [1.0; 2])
    };
    leg.experiments = vec![
        change("receive_window=2", 1.98, [1.9, 1.0]),
        change("receive_window=0.6", 0.596, [0.6, 1.0]),
        change("streams=2", 1.97, [1.9, 1.0]),
        remedy,
    ];
    leg.experiments_not_made = vec![NotMade {
        change: "congestion=bbr".to_owned(),
        why: "the sender may not use bbr".to_owned(),
    }];
    let proof = Proof {
        level: ProofLevel::Proved,
        causes: vec![Cause::ReceiveWindow],
        ruled_out: vec![RuledOut { cause: Cause::PathRate, by: "receive_window=2".to_owned() }],
        doubt: None,
    };
    leg.verdict = leg.verdict.take().map(|found| Verdict {
        proof: Some(proof),
        remedied_bps: leg.throughput_bps.map(|rate| 3.91 * rate),
        ..found
    });
}

pub(crate) fn check() -> Check {
    let mut up = stream();
    proved_window(&mut up.legs[0]);
    let down = Leg {
        throughput_bps: Some(93_900_000.0),
        tcp: with_receiver(TcpSender {
            rwnd_limited_us: Some(0),
            rtt_mean_us: 268_700,
            retransmitted_segments: 0,
            ..window_limited_tcp()
        }),
        ceilings: window_ceilings().split_off(2),
        verdict: Some(Verdict {
            cause: Cause::PathRate,
            share_of_ceiling: Some(0.997),
            evidence: vec!["The RTT grew from 29.0 to 269 ms while the window grew.".to_owned()],
            ..Verdict::default()
        }),
        ..stream().legs.remove(0)
    };
    let down = Record {
        direction: Direction::Down,
        legs: vec![Leg { direction: Direction::Down, ..down }],
        ..stream()
    };
    Check {
        schema: linerate_core::record::CHECK_SCHEMA.to_owned(),
        status: Status::Complete,
        started_at: "2026-11-21T09:00:00Z".to_owned(),
        host: "[2001:2::2]:5201".to_owned(),
        path: PathFacts {
            addresses: vec!["2001:2::2".to_owned()],
            device: Some("eth0".to_owned()),
            source: Some("2001:2::1".to_owned()),
            gateway: Some("fe80::1".to_owned()),
            device_mtu_bytes: Some(1500),
            pmtu_bytes: Some(1500),
            mss_bytes: Some(524),
            mss_expected_bytes: Some(1428),
            route_metrics: BTreeMap::from([("advmss".to_owned(), 536)]),
            connect_us: Some(29_140.0),
        },
        one_sided: false,
        up: Some(up),
        down: Some(down),
        up_throughput_bps: Some(figure(13_910_000.0)),
        down_throughput_bps: Some(figure(93_900_000.0)),
        idle_latency_us: Some(latency(29_100.0, 300)),
        loaded_latency_us: Some(latency(268_000.0, 290)),
        loaded_latency_by_direction_us: BTreeMap::from([
            ("up".to_owned(), latency(29_300.0, 310)),
            ("down".to_owned(), latency(268_000.0, 290)),
        ]),
        responsiveness: BTreeMap::from([
            ("up".to_owned(), responsiveness(29_300.0)),
            ("down".to_owned(), responsiveness(268_000.0)),
        ]),
        outcomes: BTreeMap::from([(
            "down".to_owned(),
            outcomes(&latency(268_000.0, 290), None, Some(93_900_000.0)),
        )]),
        hidden_fault: None,
        baseline: None,
        route: None,
        caveats: vec![Caveat::new(
            CaveatKind::SmallSegments,
            "Segments carry 524 B where the interface's MTU carries 1428: the route says advmss \
             536.",
            "ip -6 route change 2001:2::/48 via fe80::1 dev eth0 advmss 1428",
        )],
        environment: environment(),
    }
}

/// No endpoint answers: what one end sees.
pub(crate) fn one_sided_check() -> Check {
    let whole = check();
    Check {
        host: "www.example".to_owned(),
        one_sided: true,
        up: None,
        down: None,
        up_throughput_bps: None,
        down_throughput_bps: None,
        loaded_latency_us: None,
        loaded_latency_by_direction_us: BTreeMap::new(),
        idle_latency_us: Some(latency(29_100.0, 5)),
        path: PathFacts {
            addresses: vec!["198.18.0.2".to_owned(), "2001:2::2".to_owned()],
            mss_bytes: Some(1428),
            route_metrics: BTreeMap::new(),
            ..whole.path
        },
        environment: Environment { server: None, ..whole.environment },
        caveats: vec![Caveat::new(
            CaveatKind::Partial,
            "no endpoint answered (nothing listens at TCP 5301): only what this end can see was \
             examined",
            "on that host: linerate serve -p 5301",
        )],
        ..whole
    }
}

fn lab() -> LabFacts {
    let direction = |delivered, dropped_queue| LabDirection {
        delivered,
        dropped_queue,
        lateness_p50_us: Some(4.1),
        lateness_p99_us: Some(38.0),
        ..LabDirection::default()
    };
    LabFacts {
        spec: "rate=100mbit,queue=362500,rtt=29ms".to_owned(),
        baseline_rtt_us: Some(61.0),
        links: vec![LabLink {
            name: "client-server".to_owned(),
            up: direction(12_056, 0),
            down: direction(24_870, 311),
        }],
    }
}

/// One flow on an emulated path.
pub(crate) fn emulated() -> Record {
    let mut record = stream();
    record.environment.lab = Some(lab());
    record
}

/// A path that a lab emulates, as the user asked.
pub(crate) fn emulated_check() -> Check {
    let mut check = check();
    check.host = "server".to_owned();
    for record in check.up.iter_mut().chain(&mut check.down) {
        record.environment.lab = Some(lab());
    }
    check.environment.lab = Some(lab());
    check
}

/// The demonstration, with a fault that was found.
pub(crate) fn demonstration() -> Check {
    Check {
        hidden_fault: Some(HiddenFault {
            direction: Direction::Up,
            cause: Cause::ReceiveWindow,
            description: "net.ipv4.tcp_rmem of the server ends at 100 KiB".to_owned(),
            found: true,
        }),
        ..emulated_check()
    }
}

fn concluded(
    verdict: ComparisonVerdict,
    effect: f64,
    interval: [f64; 2],
    pairs: u32,
) -> MetricConclusion {
    MetricConclusion {
        verdict,
        different: verdict == ComparisonVerdict::Different,
        equivalent: verdict == ComparisonVerdict::Equivalent,
        effect_percent: effect,
        interval_percent: interval,
        confidence_percent: 95.0,
        look_confidence_percent: 98.4,
        pairs,
    }
}

fn compared(metric: &str, a: f64, b: f64, conclusion: MetricConclusion) -> ComparedMetric {
    ComparedMetric {
        metric: metric.parse().expect("the samples compare figures that there are"),
        a: figure(a),
        b: figure(b),
        conclusion,
    }
}

fn compared_pair(pair: u32, first: Side, a: f64, b: f64) -> ComparedPair {
    let figures = |value: f64| BTreeMap::from([("throughput_bps".to_owned(), value)]);
    ComparedPair { pair, first, a: figures(a), b: figures(b), excluded: Vec::new() }
}

/// A paced flow against one that is paced a tenth faster.
pub(crate) fn different() -> Comparison {
    let metric = compared(
        "throughput_bps",
        19.1e6,
        21.0e6,
        concluded(ComparisonVerdict::Different, 9.95, [9.61, 10.3], 8),
    );
    let mut environment = environment();
    environment.lab =
        Some(LabFacts { spec: "rate=50mbit,rtt=4ms".to_owned(), ..LabFacts::default() });
    Comparison {
        schema: COMPARISON_SCHEMA.to_owned(),
        status: Status::Complete,
        started_at: "2026-11-21T09:00:00Z".to_owned(),
        host: "server".to_owned(),
        peer: "198.18.0.2:5201".to_owned(),
        verdict: ComparisonVerdict::Different,
        effect_percent: Some(9.95),
        interval_percent: Some([9.61, 10.3]),
        pairs: 8,
        would_decide: None,
        metrics: vec![metric],
        one_sided_faults: Vec::new(),
        a: "pacing=20mbit".parse().expect("a treatment"),
        b: "pacing=22mbit".parse().expect("a treatment"),
        lab_b: None,
        read_back: ReadBack::default(),
        plan: stream_test(131_072),
        with: None,
        margin_percent: None,
        max_pairs: 30,
        forbidden: Vec::new(),
        runs: (1..=8).map(|pair| compared_pair(pair, Side::A, 19.1e6, 21.0e6)).collect(),
        idle: IdleLoad { client_cpu_percent: Some(1.2), server_cpu_percent: Some(0.7) },
        notes: Vec::new(),
        caveats: vec![Caveat::new(
            CaveatKind::EarlyStop,
            "a difference was certain after 8 pairs, and its effect is told as of there",
            "",
        )],
        environment,
        seed: 7,
        baseline: None,
    }
}

/// Checksum offload on and off, by rate and by CPU time; one pair was spoiled.
pub(crate) fn undecided() -> Comparison {
    let mut spoiled = compared_pair(2, Side::B, 940e6, 870e6);
    spoiled.excluded = vec![SeenFault {
        fault: Fault::Retransmissions,
        side: Side::B,
        message: "12 segments retransmitted".to_owned(),
    }];
    let modes = Figure::Modes {
        modes: [(870e6, 19), (930e6, 10)]
            .map(|(median, n)| linerate_core::stats::Mode {
                median,
                min: 0.99 * median,
                max: 1.01 * median,
                n,
            })
            .to_vec(),
    };
    let mut rate = compared(
        "throughput_bps",
        938e6,
        936e6,
        concluded(ComparisonVerdict::Inconclusive, -0.21, [-1.4, 0.9], 29),
    );
    rate.b = modes;
    let cpu = compared(
        "receiver.cpu_seconds",
        0.335,
        0.412,
        concluded(ComparisonVerdict::Different, 22.9, [18.0, 27.4], 10),
    );
    Comparison {
        verdict: ComparisonVerdict::Inconclusive,
        effect_percent: Some(-0.21),
        interval_percent: Some([-1.4, 0.9]),
        pairs: 29,
        would_decide: Some(WouldDecide {
            scatter_percent: 1.7,
            pairs: Some(538),
            times_as_long: Some(18.0),
            margin_percent: 2.0,
        }),
        metrics: vec![rate, cpu],
        one_sided_faults: vec![OneSidedFault {
            fault: Fault::Retransmissions,
            side: Side::B,
            pairs: 3,
            message:
                "retransmissions came under B alone, in 3 of 30 pairs: take it as an effect of B"
                    .to_owned(),
        }],
        a: "checksum_offload=on,tso=off,gso=off".parse().expect("treatments"),
        b: "checksum_offload=off,tso=off,gso=off".parse().expect("treatments"),
        read_back: ReadBack {
            a: vec!["client: eth0: tx-checksum on".to_owned()],
            b: vec!["client: eth0: tx-checksum off".to_owned()],
        },
        margin_percent: Some(2.0),
        forbidden: vec![Fault::Retransmissions, Fault::BusyHost],
        runs: {
            let mut runs: Vec<ComparedPair> =
                (1..=30).map(|pair| compared_pair(pair, Side::A, 938e6, 936e6)).collect();
            runs[1] = spoiled;
            runs
        },
        notes: vec!["On the client's device tso, gso are off on both sides.".to_owned()],
        caveats: Vec::new(),
        environment: environment(),
        ..different()
    }
}

/// Two that do not differ, of which the user had enough.
pub(crate) fn equivalent() -> Comparison {
    let mut both = concluded(ComparisonVerdict::Different, 0.62, [0.4, 0.8], 10);
    both.equivalent = true;
    Comparison {
        status: Status::Partial,
        verdict: ComparisonVerdict::Equivalent,
        effect_percent: Some(0.04),
        interval_percent: Some([-0.3, 0.4]),
        metrics: vec![
            compared(
                "throughput_bps",
                938e6,
                938e6,
                concluded(ComparisonVerdict::Equivalent, 0.04, [-0.3, 0.4], 6),
            ),
            compared("latency_us.p99", 250.0, 252.0, both),
        ],
        margin_percent: Some(1.0),
        caveats: vec![Caveat::new(CaveatKind::Partial, "interrupted", "run it again")],
        environment: environment(),
        ..different()
    }
}

/// With the evidence, in 100 columns.
pub(crate) fn whole() -> Style {
    Style { width: 100, details: true, ..Style::default() }
}

/// Requests beside a load, with a policy for them and without.
pub(crate) fn beside_a_load() -> Comparison {
    let with = |mut pair: ComparedPair| {
        for (side, rate) in [(&mut pair.a, 94.1e6), (&mut pair.b, 93.6e6)] {
            side.insert("with.throughput_bps".to_owned(), rate);
        }
        pair
    };
    let mut load = stream_test(131_072);
    load.streams = 4;
    Comparison {
        with: Some(load),
        runs: different().runs.into_iter().map(with).collect(),
        ..different()
    }
}

/// A run and what has changed since an earlier one.
pub(crate) fn beside_an_earlier_one() -> Record {
    let change = |metric: &str, was: f64, is: f64| Change {
        metric: metric.to_owned(),
        was,
        is,
        change_percent: 100.0 * (is / was - 1.0),
        was_interval: None,
        is_interval: None,
        was_quartiles: None,
        is_quartiles: None,
        // Nine other documents have latencies.
        usual_percent: metric.starts_with("latency").then_some(41.2),
        others: metric.starts_with("latency").then_some(9),
        headline: true,
    };
    Record {
        baseline: Some(Baseline {
            started_at: "2026-11-20T09:00:00Z".to_owned(),
            changes: vec![
                change("throughput_bps", 98.1e6, 14.1e6),
                change("latency_us.p50@64", 90.0, 120.0),
                change("latency_us.p99@64", 400.0, 900.0),
            ],
            bottlenecks: vec![BottleneckChange {
                direction: Direction::Up,
                was: Cause::PathRate,
                is: Cause::ReceiveWindow,
            }],
        }),
        ..stream()
    }
}
