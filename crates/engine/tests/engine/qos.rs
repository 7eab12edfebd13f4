//! A policy of the sender's host: the record has the effects of its classes and meters, and the
//! verdict names them.

use std::time::Duration;

use linerate_core::ceilings::Cause;
use linerate_core::plan::*;
use linerate_core::record::Record;
use linerate_core::units::Span;
use linerate_engine::qos::{self, QosError, QosOptions};
use linerate_sys::netlink::Netlink;
use linerate_sys::netns::Pair;
use linerate_testkit::{Need, made_or_skip, skip, token_bucket};

use super::support::{LIMITS, Served, datagrams, stream};

/// What the class may send, frames in bits per second: so little that any machine keeps up with it.
const LIMIT: f64 = 5e6;

/// The records of tests under a policy; `None`, with the reason printed, if there can be none.
fn under_policy(handling: &str, tests: &[Test]) -> Option<Vec<Record>> {
    let pair = match Pair::create() {
        Ok(pair) => pair,
        Err(error) => {
            skip(
                Need::Lab,
                format_args!("no network namespaces here: {error}"),
            );
            return None;
        }
    };
    let text = format!(
        "[filter.tcp]\nprotocol = \"tcp\"\ndestination_port = \"1024-65535\"\npolicy = \
         \"bulk\"\n\n[filter.udp]\n\
         protocol = \"udp\"\npolicy = \
         \"bulk\"\n\n[policy.bulk]\n{handling}\n\n[adapter.\"*\"]\nrate = \"100mbit\"\n\
         policies = [\"bulk\"]\n"
    );
    let options = QosOptions {
        adapter: Some(Pair::LINK.to_owned()),
        ..QosOptions::default()
    };
    let b = pair.b.namespace.clone();
    let served = b
        .run(|| Served::with(pair.b.ipv4.into(), LIMITS, None))
        .unwrap();
    let records = pair.a.namespace.run(|| {
        match qos::apply(&text, &options) {
            Ok(_) => {}
            Err(error @ (QosError::NotPermitted { .. } | QosError::Unsupported { .. })) => {
                skip(Need::Bpf, format_args!("no policies here: {error}"));
                return None;
            }
            Err(error) => panic!("{error}"),
        }
        let records = tests.iter().map(|test| served.run(test)).collect();
        qos::remove(Some(Pair::LINK)).unwrap();
        Some(records)
    });
    records.unwrap()
}

fn seconds(seconds: u64, test: Test) -> Test {
    Test {
        extent: Extent::Time(Span(Duration::from_secs(seconds))),
        ..test
    }
}

#[test]
fn a_class_that_limits_a_transfer_is_in_its_record_and_is_the_verdict() {
    let test = Test {
        // What waits in the class when the measured time begins is of the warm-up.
        warm_up: Span(Duration::from_millis(500)),
        ..seconds(3, stream())
    };
    let Some(records) = under_policy("limit = \"5mbit\"", &[test]) else {
        return;
    };
    let record = &records[0];
    let sender = record.legs[0].sender.as_ref().expect("the client sends");
    let qos = sender.qos.as_ref().expect("the policy is told");
    assert_eq!(qos.device, Pair::LINK);
    let class = qos.classes.first().expect("a class carried it");
    assert_eq!(class.policy.as_deref(), Some("bulk"), "{qos:?}");
    assert_eq!((class.ceil_bps, qos.link_bps), (LIMIT, Some(100e6)));
    assert!(class.packets > 0, "{class:?}");
    let policy = qos.policies.first().expect("a policy took it");
    assert!(policy.policy == "bulk" && policy.packets > 0, "{policy:?}");
    // The other end has no policy.
    assert_eq!(
        record.legs[0]
            .receiver
            .as_ref()
            .and_then(|end| end.qos.as_ref()),
        None
    );
    let sent = class.bytes as f64 * 8.0 / record.seconds;
    // Both ends of the time are read late on a busy machine.
    assert!(sent < 2.0 * LIMIT, "{sent} bits/s");
    let payload = record.throughput_bps().expect("a stream has a rate") * 1514.0 / 1448.0;
    let kept_up = |bps: f64| (0.95 * LIMIT..1.05 * LIMIT).contains(&bps);
    if !kept_up(sent) || !kept_up(payload) {
        skip(
            Need::Speed,
            format_args!("the verdict: this machine did not keep up with 5 Mbit/s: {sent}"),
        );
        return;
    }
    assert!(class.overlimits > 0, "{class:?}");
    let verdict = record.verdict().expect("a stream has one");
    assert_eq!(verdict.cause, Cause::QosClass, "{verdict:?}");
    let remedy = verdict.remedy.as_ref().map_or("", |remedy| &remedy.command);
    assert!(
        remedy.contains("[policy.bulk]") && remedy.contains("now 5mbit"),
        "{remedy}"
    );
}

#[test]
fn a_meter_that_drops_datagrams_is_in_the_record() {
    let handling = "meter = \
        { kind = \"srtcm\", committed = \"2mbit\", committed_burst = \"20KB\", excess_burst = \
                    \"0KB\", drop_red = true }";
    // Four times as much as it lets through.
    let test = seconds(2, datagrams(false, Some(700)));
    let Some(records) = under_policy(handling, &[test]) else {
        return;
    };
    let sender = records[0].legs[0]
        .sender
        .as_ref()
        .expect("the client sends");
    let qos = sender.qos.as_ref().expect("the policy is told");
    let policy = qos.policies.first().expect("a policy took it");
    assert_eq!(policy.drops_above_bps, Some(2e6));
    assert!(
        policy.dropped_packets > 0 && policy.dropped_bytes < policy.bytes,
        "{policy:?}"
    );
    assert_eq!(qos.classes, [], "a meter needs no class");
}

#[test]
fn a_token_bucket_at_the_senders_device_is_in_the_record_and_is_the_path_rate() {
    let Some(pair) = made_or_skip(Need::Lab, Pair::create()) else {
        return;
    };
    let b = pair.b.namespace.clone();
    let served = b.run(|| Served::with(pair.b.ipv4.into(), LIMITS, None));
    let served = served.unwrap();
    let test = Test {
        warm_up: Span(Duration::from_millis(500)),
        ..seconds(3, stream())
    };
    let record = pair.a.namespace.run(|| {
        let mut netlink = Netlink::open().unwrap();
        let index = netlink.link(Pair::LINK).unwrap().index;
        let bytes_per_s = (LIMIT / 8.0) as u32;
        let made = netlink.put_qdisc(index, None, ("tbf", 1, &token_bucket(bytes_per_s, 65_536)));
        made_or_skip(Need::Bpf, made).map(|()| served.run(&test))
    });
    let Some(record) = record.unwrap() else {
        return;
    };
    let sender = record.legs[0].sender.as_ref().expect("the client sends");
    let qos = sender.qos.as_ref().expect("the device's shaper is told");
    let shaper = qos.shaper.as_ref().expect("there is one");
    assert_eq!((shaper.class.as_str(), shaper.ceil_bps), ("tbf", LIMIT));
    assert!(shaper.bytes > 0 && shaper.overlimits > 0, "{shaper:?}");
    let sent = shaper.bytes as f64 * 8.0 / record.seconds;
    if !(0.95 * LIMIT..1.1 * LIMIT).contains(&sent) {
        let reason = format!("the verdict: this machine did not keep up with 5 Mbit/s: {sent}");
        skip(Need::Speed, reason);
        return;
    }
    let verdict = record.verdict().expect("a stream has one");
    assert_eq!(verdict.cause, Cause::PathRate, "{verdict:?}");
}
