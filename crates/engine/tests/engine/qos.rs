//! A policy of the sender's host: the record has the effects of its classes and meters. What the
//! verdict makes of them is tested in core.

use std::time::Duration;

use linerate_core::plan::*;
use linerate_core::record::Record;
use linerate_core::units::Span;
use linerate_engine::qos::{self, QosError, QosOptions};
use linerate_sys::netlink::Netlink;
use linerate_sys::netns::Pair;
use linerate_testkit::{Need, made_or_skip, skip, token_bucket};

use super::support::{LIMITS, Served, bytes, datagrams};

/// What the class may send, frames in bits per second: so little that any machine keeps up with it.
const LIMIT: f64 = 5e6;

/// The records of tests under a policy; `None`, with the reason printed, if there can be none.
fn under_policy(handling: &str, tests: &[Test]) -> Option<Vec<Record>> {
    let pair = match Pair::create() {
        Ok(pair) => pair,
        Err(error) => {
            skip(Need::Lab, format_args!("no network namespaces here: {error}"));
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
    let options = QosOptions { adapter: Some(Pair::LINK.to_owned()), ..QosOptions::default() };
    let b = pair.b.namespace.clone();
    let served = b.run(|| Served::with(pair.b.ipv4.into(), LIMITS, None)).unwrap();
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

#[test]
fn a_class_that_limits_a_transfer_is_in_its_record() {
    // Five seconds at that rate: a busy machine takes longer.
    let Some(records) = under_policy("limit = \"5mbit\"", &[bytes(3_000_000)]) else {
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
    assert_eq!(record.legs[0].receiver.as_ref().and_then(|end| end.qos.as_ref()), None);
    assert!(record.seconds > 2.0, "{}", record.seconds);
    assert!(class.overlimits > 0, "{class:?}");
}

#[test]
fn a_meter_that_drops_datagrams_is_in_the_record() {
    let handling = "meter = \
        { kind = \"srtcm\", committed = \"2mbit\", committed_burst = \"20KB\", excess_burst = \
                    \"0KB\", drop_red = true }";
    // Four times as much as it lets through, for four seconds: it would need sixteen for all.
    let test = Test {
        extent: Extent::Count(2_800),
        warm_up: Span(Duration::ZERO),
        ..datagrams(false, Some(700))
    };
    let Some(records) = under_policy(handling, &[test]) else {
        return;
    };
    let sender = records[0].legs[0].sender.as_ref().expect("the client sends");
    let qos = sender.qos.as_ref().expect("the policy is told");
    let policy = qos.policies.first().expect("a policy took it");
    assert_eq!(policy.drops_above_bps, Some(2e6));
    assert!(policy.dropped_packets > 0 && policy.dropped_bytes < policy.bytes, "{policy:?}");
    assert_eq!(qos.classes, [], "a meter needs no class");
}

#[test]
fn a_token_bucket_at_the_senders_device_is_in_the_record() {
    let Some(pair) = made_or_skip(Need::Lab, Pair::create()) else {
        return;
    };
    let b = pair.b.namespace.clone();
    let served = b.run(|| Served::with(pair.b.ipv4.into(), LIMITS, None));
    let served = served.unwrap();
    let record = pair.a.namespace.run(|| {
        let mut netlink = Netlink::open().unwrap();
        let index = netlink.link(Pair::LINK).unwrap().index;
        let bytes_per_s = (LIMIT / 8.0) as u32;
        let made = netlink.put_qdisc(index, None, ("tbf", 1, &token_bucket(bytes_per_s, 65_536)));
        made_or_skip(Need::Bpf, made).map(|()| served.run(&bytes(3_000_000)))
    });
    let Some(record) = record.unwrap() else {
        return;
    };
    let sender = record.legs[0].sender.as_ref().expect("the client sends");
    let qos = sender.qos.as_ref().expect("the device's shaper is told");
    let shaper = qos.shaper.as_ref().expect("there is one");
    assert_eq!((shaper.class.as_str(), shaper.ceil_bps), ("tbf", LIMIT));
    assert!(shaper.bytes > 0 && shaper.overlimits > 0, "{shaper:?}");
    assert!(record.seconds > 2.0, "{}", record.seconds);
}
