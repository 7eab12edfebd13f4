//! Mixes on loopback: members that run at once, and mixes that an endpoint does not allow.

use std::slice;

use linerate_core::load::{ClassLatency, LoadDocument, Mix, MixChoice};
use linerate_core::plan::Workload;
use linerate_core::record::{FlowRecord, Leg, Status};
use linerate_core::session::message::Limits;
use linerate_engine::{MeasureError, Stop, Target, load};
use linerate_sys::netns::Pair;
use linerate_testkit::{Need, skip};

use super::support::{LIMITS, Served};

const MIX: &str = r#"
title = "two beside each other"
time = "400ms"
idle = "200ms"

[[member]]
name = "bulk"
workload = { command = "stream", direction = "both", streams = 2 }

[[member]]
name = "late"
start = "100ms"
workload = { command = "crr" }

[[member]]
name = "probe"
probe = true
workload = { command = "rr", protocol = "udp", rate = 100 }
"#;

fn mix(text: &str) -> Mix {
    Mix::from_toml("own", text, &MixChoice::default()).unwrap()
}

/// The first byte of each stream, at both ends and not before the time; and of how far apart they
/// are.
fn has_its_start(document: &LoadDocument) {
    let streams = document.members.iter().map(|member| &member.record);
    let flows = streams.filter(|record| record.workload == Workload::Stream);
    let flows: Vec<_> = flows.flat_map(|record| &record.flows).collect();
    let spread = |moment: fn(&FlowRecord) -> Option<f64>| {
        let moments = flows.iter().map(|flow| moment(flow).expect("both ends tell"));
        let mut moments: Vec<f64> = moments.collect();
        moments.sort_by(f64::total_cmp);
        moments.last().unwrap() - moments[0]
    };
    assert_eq!(document.start_skew_us, Some(spread(|flow| flow.first_sent_us)));
    let arrival = spread(|flow| flow.first_received_us);
    assert_eq!(document.arrival_skew_us, Some(arrival));
}

#[test]
fn the_members_of_a_mix_run_at_once_and_each_has_a_record() {
    let served = Served::with([127, 0, 0, 1].into(), Limits { clients: 4, ..LIMITS }, None);
    let target = Target::at("here", served.address);
    let (document, error) = load(&[target], &mix(MIX), 7, &Stop::new(), &mut ()).unwrap();
    assert!(error.is_none(), "{error:?}");
    assert_eq!(document.status, Status::Complete);
    let names: Vec<&str> = document.members.iter().map(|member| member.name.as_str()).collect();
    assert_eq!(names, ["bulk", "late", "probe"]);
    let started: Vec<f64> = document.members.iter().filter_map(|member| member.started_s).collect();
    assert_eq!(started.len(), 3);
    assert!(started[1] >= 0.1, "{started:?}");
    has_its_start(&document);
    for total in [document.up, document.down] {
        let total = total.unwrap();
        assert_eq!(total.flows, 2, "{total:?}");
    }
    // Nothing is measured of a moment in which the machine did nothing.
    for latency in [document.idle_latency_us, document.loaded_latency_us] {
        assert!(latency.is_none_or(|us| us > 0.0), "{latency:?}");
    }
    assert!(document.members[1].record.transactions.is_some());
}

#[test]
fn a_member_that_cannot_run_ends_the_mix_before_it_begins() {
    // An endpoint each: the places of a mix that has just ended may be taken for a while.
    let refused = |text: &str| {
        let served = Served::start();
        let target = Target::at("here", served.address);
        load(slice::from_ref(&target), &mix(text), 7, &Stop::new(), &mut ())
    };
    // One address may have three of four places.
    let fourth = "[[member]]\nname = \"one more\"\nworkload = { command = \"rr\" }\n";
    let error = refused(&format!("{MIX}{fourth}")).unwrap_err();
    assert!(error.to_string().contains("4 members"), "{error}");
    // Found out only when its connection is made: the others wait, and are told.
    let lacking =
        MIX.replace("command = \"crr\"", "command = \"stream\", congestion = \"nothing\"");
    let error = refused(&lacking).unwrap_err();
    assert!(!matches!(error, MeasureError::Interrupted), "{error}");
    assert!(error.to_string().contains("nothing"), "{error}");
}

#[test]
fn several_endpoints_send_to_one_host_together() {
    let ends = [Served::start(), Served::start()];
    let names = ["pit", "pat"].map(str::to_owned);
    let targets: Vec<Target> =
        (ends.iter().zip(&names)).map(|(end, name)| Target::at(name, end.address)).collect();
    let text = r#"
title = "many to one"
time = "300ms"
idle = "200ms"

[[member]]
name = "senders"
scales = true
gathers = true
workload = { command = "stream", streams = 5 }

[[member]]
name = "probe"
probe = true
workload = { command = "rr", protocol = "udp", stamp = true, rate = 100 }
"#;
    let mix = mix(text).over(&names).unwrap();
    let (document, error) = load(&targets, &mix, 7, &Stop::new(), &mut ()).unwrap();
    assert!(error.is_none(), "{error:?}");
    assert_eq!((document.host.as_str(), document.members.len()), ("pit,pat", 4));
    let down = document.down.unwrap();
    assert!(document.up.is_none() && down.flows == 5);
    has_its_start(&document);
    // Each endpoint has a clock of its own.
    assert_eq!(document.one_way, None);
    let has_ways = |class: &ClassLatency| class.loaded_us.is_some() == class.loaded_up_us.is_some();
    assert!(document.latency.iter().all(has_ways) && document.latency.len() == 2);
}

#[test]
fn a_member_negotiates_ecn_and_the_hosts_setting_comes_back() {
    let pair = match Pair::create() {
        Ok(pair) => pair,
        Err(error) => return skip(Need::Lab, format_args!("no network namespaces: {error}")),
    };
    let here = pair.a.namespace.clone();
    let served = pair.b.namespace.run(|| Served::with(pair.b.ipv4.into(), LIMITS, None)).unwrap();
    let target = Target::at("there", served.address);
    let setting = || std::fs::read_to_string("/proc/sys/net/ipv4/tcp_ecn");
    let text = MIX.replace("name = \"bulk\"", "name = \"bulk\"\necn = true");
    here.run(|| {
        let was = setting().unwrap();
        let loaded = load(&[target], &mix(&text), 7, &Stop::new(), &mut ());
        let (document, error) = loaded.unwrap();
        assert!(error.is_none(), "{error:?}");
        let bulk = &document.members[0].record;
        let has = |leg: &Leg| {
            let sender = leg.tcp.as_ref().and_then(|tcp| tcp.sender()).unwrap();
            sender.options.iter().any(|option| option == "ecn")
        };
        assert!(bulk.legs.iter().all(has), "{:?}", bulk.caveats);
        assert_eq!(setting().unwrap(), was);
    })
    .unwrap();
}
