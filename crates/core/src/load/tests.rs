use super::*;
use crate::one_way::Probe;
use crate::plan::{Direction, Traffic};
use crate::record::{FlowRecord, Leg, Record, UdpEvidence};
use crate::session::Owner;
use crate::session::message::Limits;
use crate::stats::LatencySummary;

const FLOWS: MixChoice = MixChoice { time: None, flows: Some(7), seed: 1 };

fn mix(text: &str) -> Result<Mix, String> {
    let read = Mix::from_toml("own", text, &MixChoice::default());
    read.map_err(|error| error.to_string())
}

/// A mix of one bulk transfer and what is given.
fn with(members: &str) -> String {
    format!(
        "title = \"own\"\n[[member]]\nname = \"bulk\"\nworkload = \
         {{ command = \"stream\" }}\n{members}"
    )
}

#[test]
fn every_mix_of_linerate_is_read_and_tells_a_latency() {
    for name in names() {
        let mix = Mix::from_toml(name, built_in(name).unwrap(), &MixChoice::default());
        let mix = mix.unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(mix.members.iter().any(|member| member.probe), "{name}");
        // Together they end, and no two open loops have the same phase.
        for member in &mix.members {
            assert_eq!(member.test.seconds(), Some(mix.seconds()), "{name}");
        }
        let mut seeds: Vec<u64> = mix.members.iter().map(|member| member.test.seed).collect();
        seeds.dedup();
        assert_eq!(seeds.len(), mix.members.len(), "{name}");
        let scales = name.contains("tcp_n") || name == "incast";
        let scaled = Mix::from_toml(name, built_in(name).unwrap(), &FLOWS);
        assert_eq!(scaled.is_ok(), scales, "{name}");
        assert!(scaled.is_err() || scaled.unwrap().members[0].test.streams == 7);
    }
    assert_eq!(built_in("rul"), None);
}

#[test]
fn a_member_lasts_from_its_start_to_the_end_of_the_mix() {
    let late = "[[member]]\nname = \"late\"\nstart = \"4s\"\nworkload = { command = \"rr\" }\n";
    let mix = mix(&with(late)).unwrap();
    assert_eq!(mix.members[0].test.seconds(), Some(11.0));
    assert_eq!(mix.members[1].test.seconds(), Some(7.0));
    let short = MixChoice { time: Some("2s".parse().unwrap()), ..MixChoice::default() };
    let error = Mix::from_toml("own", &with(late), &short).unwrap_err();
    assert_eq!(
        error.to_string(),
        "line 5, column 1: `late` begins when the mix ends: give an earlier `start`"
    );
}

#[test]
fn what_is_wrong_with_a_mix_is_said_with_its_place() {
    let member = |keys: &str| with(&format!("[[member]]\nname = \"m\"\n{keys}\n"));
    for (text, words) in [
        (String::new(), "line 1, column 1: the mix needs `title`"),
        ("title = \"a\"".to_owned(), "needs `member`"),
        (member("strat = \"1s\""), "no key `strat`; did you mean `start`?"),
        (member(""), "[[member]] needs `workload`"),
        (member("workload = { command = \"ping\" }"), "write stream, rr or crr"),
        (
            member("workload = { command = \"rr\", dcsp = \"ef\" }"),
            "line 7, column 30: the workload has no key `dcsp`; did you mean `dscp`?",
        ),
        (member("workload = { command = \"stream\", time = \"1s\" }"), "the members end together"),
        (
            member("workload = { command = \"stream\", streams = 1000 }"),
            "`m`: `streams` 1000: it must be 1 to 256",
        ),
        (
            member("workload = { command = \"stream\", rate = \"1mbit\" }"),
            "`m`: `rate` cannot be used with TCP",
        ),
        (
            member("probe = true\nworkload = { command = \"stream\" }"),
            "`m` is a probe without requests",
        ),
        (
            member("codec = \"g711\"\nworkload = { command = \"stream\" }"),
            "`m` is a call over no datagrams",
        ),
        (
            member("codec = \"g711\"\nworkload = { command = \"stream\", protocol = \"udp\" }"),
            "`m` is a call without its delay: add a probe",
        ),
        (
            member("ecn = true\nworkload = { command = \"rr\", protocol = \"udp\" }"),
            "`ecn` of `m`, which is over UDP",
        ),
        (
            member("gathers = true\nworkload = { command = \"rr\" }"),
            "`gathers` of `m`, which is no stream",
        ),
        (
            member(
                "ecn = true\nworkload = { command = \"rr\" }\n[[member]]\nname = \"n\"\necn = \
                 false\nworkload = { command = \"rr\" }",
            ),
            "`ecn` on of `m` and off of `n`",
        ),
        (
            member("workload = { command = \"rr\", stamp = true }"),
            "`m`: `stamp` cannot be used with TCP: STAMP's packets are datagrams",
        ),
        (
            member(
                "workload = { command = \"rr\", protocol = \"udp\", stamp = true, request = 20 }",
            ),
            "`m`: `request` 20: it must be 44 to 65527",
        ),
        (member("codec = \"mp3\"\nworkload = { command = \"rr\" }"), "write \"g711\" or \"g729a\""),
        (member("start = \"2min\"\nworkload = { command = \"rr\" }"), "write \"0s\" to \"50s\""),
        (
            with("[[member]]\nname = \"bulk\"\nworkload = { command = \"rr\" }\n"),
            "two members with the name `bulk`",
        ),
    ] {
        let error = mix(&text).expect_err(words);
        assert!(error.contains(words), "{error}\n{words}");
    }
}

#[test]
fn a_limit_of_the_endpoint_is_reported_for_the_member_that_exceeds_it() {
    let mix = Mix::from_toml("incast", built_in("incast").unwrap(), &MixChoice::default());
    let mix = mix.unwrap();
    let limits = Limits { clients: 4, streams: 32, seconds: 60.0, rate_bps: None, connections: 0 };
    let refused = |limits: &Limits, operations: &[&str], sessions| {
        let operations: Vec<String> = operations.iter().map(|&name| name.to_owned()).collect();
        let owner = Owner { limits, operations: &operations };
        let refusal = mix.check(0, &owner, sessions).err();
        refusal.map(|refusal| refusal.message)
    };
    assert_eq!(refused(&limits, &["stream", "stamp"], 2), None);
    let few = refused(&limits, &["stream", "stamp"], 1).unwrap();
    assert!(few.contains("2 members") && few.contains("--max-clients"), "{few}");
    let streams = Limits { streams: 31, ..limits };
    let flows = refused(&streams, &["stream", "stamp"], 2).unwrap();
    assert!(flows.starts_with("`senders` cannot run: ") && flows.contains("31"), "{flows}");
    let lacks = refused(&limits, &["stream"], 2).unwrap();
    assert!(
        lacks.starts_with("`UDP` cannot run: ") && lacks.contains("operation stamp"),
        "{lacks}"
    );
}

fn latency(mean: f64) -> LatencySummary {
    LatencySummary {
        min: mean,
        mean,
        p50: mean,
        p90: mean,
        p99: mean,
        p999: mean,
        max: mean,
        count: 100,
    }
}

/// What each member left: streams of 1, 2, … Mbit/s for each flow, requests of 200 ms.
fn ran(mix: &Mix) -> Vec<LoadMember> {
    let ran = |member: &Member| {
        let mut record = Record::new(member.test.clone());
        record.seconds = member.test.seconds().unwrap() - mix.warm_up.as_secs_f64();
        if let Traffic::Stream(_) = &member.test.traffic {
            for &direction in member.test.direction.parts() {
                let mut leg = Leg::new(direction);
                let rates: Vec<f64> =
                    (1..=member.test.streams).map(|n| f64::from(n) * 1e6).collect();
                leg.throughput_bps = Some(rates.iter().sum());
                leg.udp = member.codec.map(|_| UdpEvidence {
                    sent: 500,
                    lost: if direction == Direction::Down { 10 } else { 0 },
                    jitter_us: 5_000.0,
                    ..UdpEvidence::default()
                });
                record.legs.push(leg);
                record.flows.extend(rates.into_iter().map(|throughput_bps| FlowRecord {
                    id: 0,
                    direction,
                    throughput_bps,
                    bytes: 0,
                    local: String::new(),
                    remote: String::new(),
                    sender_thread_percent: None,
                    receiver_thread_percent: None,
                    tcp: None,
                    udp: None,
                    first_sent_us: None,
                    first_received_us: None,
                }));
            }
        } else {
            record.latency_us = Some(latency(200_000.0));
        }
        LoadMember::new(member, member.probe.then(|| latency(20_000.0)), record)
    };
    mix.members.iter().map(ran).collect()
}

#[test]
fn the_document_sums_streams_and_rates_the_call_by_the_probe_of_its_class() {
    let mix = Mix::from_toml("voip", built_in("voip").unwrap(), &MixChoice::default()).unwrap();
    let document = LoadDocument::new(&mix, 1, ran(&mix));
    let down = document.down.unwrap();
    // Two TCP flows of 1 and 2 Mbit/s, and the call of 1.
    assert_eq!((down.throughput_bps, down.flows), (4e6, 3));
    assert!((down.fairness.unwrap() - 0.9).abs() < 1e-9);
    assert_eq!(document.idle_latency_us, Some(20_000.0));
    assert_eq!(document.loaded_latency_us, Some(200_000.0));
    let [up, down] = &document.calls[..] else {
        panic!("{:?}", document.calls);
    };
    // 20 ms for the packet, half of 200 ms: no probe was later than the others, and the jitter of
    // the datagrams, of which nobody says which were late, counts for nothing.
    assert_eq!((up.delay_us, up.loss_percent), (120_000.0, 0.0));
    assert_eq!((up.late_percent, up.burst_ratio), (Some(0.0), Some(1.0)));
    assert_eq!(down.loss_percent, 2.0);
    assert!(up.r - down.r > 6.0 && down.mos < up.mos);
    assert_eq!(document.busiest().unwrap().0.name, "bulk");
}

#[test]
fn loss_in_bursts_scores_worse_than_as_many_alone() {
    let mix = Mix::from_toml("voip", built_in("voip").unwrap(), &MixChoice::default()).unwrap();
    let rated = |loss_runs| {
        let mut members = ran(&mix);
        let legs = members.iter_mut().flat_map(|member| &mut member.record.legs);
        let down = legs.filter(|leg| leg.direction == Direction::Down);
        down.filter_map(|leg| leg.udp.as_mut()).for_each(|udp| {
            (udp.lost, udp.loss_runs) = (50, loss_runs);
        });
        let calls = LoadDocument::new(&mix, 1, members).calls;
        // The way up has lost nothing.
        assert_eq!((calls[0].r, calls[0].burst_ratio), (up_alone(&mix), Some(1.0)));
        (calls[1].r, calls[1].burst_ratio.unwrap())
    };
    let (alone, bursts) = (rated(Some(50)), rated(Some(10)));
    assert_eq!((alone.1, bursts.1), (1.0, 4.5));
    assert!(alone.0 - bursts.0 > 7.0, "{alone:?} {bursts:?}");
    // An endpoint that does not count the runs.
    assert_eq!(rated(None), alone);
}

/// The rating of the way up of a call that lost nothing there.
fn up_alone(mix: &Mix) -> f64 {
    LoadDocument::new(mix, 1, ran(mix)).calls[0].r
}

#[test]
fn a_thread_counts_for_the_part_of_the_time_in_which_it_ran() {
    let late = "[[member]]\nname = \"late\"\nstart = \"5s\"\nworkload = { command = \"stream\" }\n";
    let mix = mix(&with(late)).unwrap();
    let document = LoadDocument::new(&mix, 1, ran(&mix));
    assert_eq!(document.up.unwrap().throughput_bps, 1.5e6);
    assert_eq!(document.loaded_latency_us, None);
}

#[test]
fn several_endpoints_share_what_scales_and_each_has_the_rest() {
    let choice = MixChoice::default();
    let mix = Mix::from_toml("incast", built_in("incast").unwrap(), &choice).unwrap();
    let hosts = ["pit", "pat", "pot"].map(str::to_owned);
    let spread = mix.over(&hosts).unwrap();
    let senders: Vec<_> = spread.members.iter().filter(|member| member.scales).collect();
    let streams: Vec<u32> = senders.iter().map(|member| member.test.streams).collect();
    assert_eq!(streams, [11, 11, 10]);
    assert_eq!(senders[1].name, "senders pat");
    // Many to one: of one endpoint's flows the one is the endpoint, of several it is this host.
    assert_eq!(mix.members[0].test.direction, Direction::Up);
    assert!(senders.iter().all(|member| member.test.direction == Direction::Down));
    let ends: Vec<usize> = spread.members.iter().map(|member| member.endpoint).collect();
    assert_eq!(ends, [0, 1, 2, 0, 1, 2]);
    let mut seeds: Vec<u64> = spread.members.iter().map(|member| member.test.seed).collect();
    seeds.sort_unstable();
    seeds.dedup();
    assert_eq!(seeds.len(), 6);
    assert_eq!(mix.over(&hosts[..1]).unwrap(), mix);
    let many: Vec<String> = (0..25).map(|n| format!("h{n}")).collect();
    assert!(mix.over(&many).unwrap_err().contains("at most 48"));
    let few = MixChoice { flows: Some(2), ..choice };
    let few = Mix::from_toml("incast", built_in("incast").unwrap(), &few).unwrap();
    assert!(few.over(&hosts).unwrap_err().contains("2 flows for 3 endpoints"));
}

#[test]
fn a_document_says_what_was_run() {
    let late = "[[member]]\nname = \"late\"\nstart = \"4s\"\necn = true\n\
                workload = { command = \"stream\" }\n";
    let probe = "[[member]]\nname = \"probe\"\nprobe = true\nworkload = { command = \"rr\" }\n";
    let mix = mix(&with(&format!("{late}{probe}"))).unwrap();
    let document = LoadDocument::new(&mix, 1, ran(&mix));
    let written = serde_json::to_string(&document).unwrap();
    let read: LoadDocument = serde_json::from_str(&written).unwrap();
    assert_eq!(Mix::from_document(&read, 0), Some(mix));
}

#[test]
fn an_idle_latency_far_above_the_paths_minimum_is_called_out() {
    let mix = Mix::from_toml("rrul", built_in("rrul").unwrap(), &MixChoice::default()).unwrap();
    let mut document = LoadDocument::new(&mix, 1, ran(&mix));
    let [min, mean, p50, p90, p99, p999, max] = [20e3; 7];
    let summary = LatencySummary { min, mean, p50, p90, p99, p999, max, count: 100 };
    document.latency[0].idle_us = Some(summary);
    let mut doubt = |idle_us| {
        document.idle_latency_us = Some(idle_us);
        document.busy_before()
    };
    assert_eq!(doubt(39e3), None);
    let found = doubt(100e3).expect("100 ms are five times 20 ms");
    let says = "the idle latency of 100 ms is 5.00 times the path's minimum of 20.0 ms";
    assert!(found.message.starts_with(says), "{}", found.message);
}

#[test]
fn the_queue_is_on_the_way_whose_probes_wait() {
    let mix = Mix::from_toml("voip", built_in("voip").unwrap(), &MixChoice::default()).unwrap();
    for (up_ms, down_ms, queue) in [
        (0, 200, Some(Direction::Down)),
        (150, 10, Some(Direction::Up)),
        (90, 110, Some(Direction::Both)),
        (0, 0, None),
    ] {
        let probe = |n: u64, [up, down]: [u64; 2]| {
            let (sent, ahead) = (n * 100_000_000, 77_000_000_000);
            let there = sent + (10 + up) * 1_000_000 + ahead;
            Probe::new(sent, there, there, there - ahead + (10 + down) * 1_000_000)
        };
        let mut members = ran(&mix);
        for member in members.iter_mut().filter(|member| member.probe) {
            member.idle_probes = (0..30).map(|n| probe(n, [0, 0])).collect();
            member.probes = (30..130).map(|n| probe(n, [up_ms, down_ms])).collect();
        }
        let document = LoadDocument::new(&mix, 1, members);
        let ways = document.one_way.as_ref().unwrap();
        assert_eq!(ways.queue, queue, "{ways:?}");
        let added = ways.down.added_us.unwrap();
        assert!((added - down_ms as f64 * 1e3).abs() < 300.0, "{ways:?}");
        assert!((ways.clock.offset_us - 77e6).abs() < 50.0, "{ways:?}");
        // 20 ms for the packet, 10 of the path, and the queue.
        let delays = document.calls.iter().map(|call| call.delay_us / 1e3);
        let expected = [up_ms, down_ms].map(|queue| 30.0 + queue as f64);
        assert!(delays.zip(expected).all(|(a, b)| (a - b).abs() < 0.5), "{ways:?}");
    }
}

#[test]
fn the_playout_buffer_of_a_way_waits_for_all_but_its_last_hundredth() {
    let mix = Mix::from_toml("voip", built_in("voip").unwrap(), &MixChoice::default()).unwrap();
    let probe = |n: u64, up_ms: u64| {
        let sent = n * 100_000_000;
        let there = sent + (10 + up_ms) * 1_000_000;
        Probe::new(sent, there, there, there + 10_000_000)
    };
    let mut members = ran(&mix);
    for member in members.iter_mut().filter(|member| member.probe) {
        // Of 400 four wait for 300 ms, and forty for 50.
        let wait = |n: u64| match n % 100 {
            7 => 300,
            n if n % 10 == 3 => 50,
            _ => 0,
        };
        member.probes = (0..400).map(|n| probe(n, wait(n))).collect();
    }
    let document = LoadDocument::new(&mix, 1, members);
    let [up, down] = &document.calls[..] else { panic!("{:?}", document.calls) };
    assert!((up.delay_us - 80e3).abs() < 100.0, "{up:?}");
    assert!((down.delay_us - 30e3).abs() < 100.0, "{down:?}");
    assert_eq!((up.late_percent, down.late_percent), (Some(1.0), Some(0.0)));
    // 1 % late costs what 1 % lost would: 95 × 1 / (1 + 25.1), and no delay of 100 ms or less.
    assert!((93.2 - up.r - 95.0 / 26.1).abs() < 0.01, "{up:?}");
}
