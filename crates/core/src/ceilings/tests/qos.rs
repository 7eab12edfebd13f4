//! Classes and meters of the sender's own policy.

use super::scene::{MSS, SECONDS, Scene, end, limit, tcp, udp};
use crate::ceilings::Cause;
use crate::record::{EndReport, QosClass, QosEvidence, QosPolicy};

/// Payload over a frame as queueing disciplines count it: 1448 of 1514.
const SHARE: f64 = 1448.0 / 1514.0;

/// Frames for so much payload, bytes in the scenes' time.
fn frames(payload_bps: f64) -> u64 {
    (payload_bps / SHARE * SECONDS / 8.0) as u64
}

fn class(rate_bps: f64, ceil_bps: f64, sent_bps: f64) -> QosClass {
    QosClass {
        class: "1:12".into(),
        policy: Some("bulk".into()),
        rate_bps,
        ceil_bps,
        bytes: frames(sent_bps),
        packets: frames(sent_bps) / (MSS + 66),
        overlimits: 900,
        ..QosClass::default()
    }
}

/// A policy on a link of 100 Mbit/s that others fill with `others_bps` of payload.
fn policy(class: QosClass, others_bps: f64) -> QosEvidence {
    QosEvidence {
        device: "wa".into(),
        link_bps: Some(100e6),
        link_bytes: Some(class.bytes + frames(others_bps)),
        policies: vec![QosPolicy {
            policy: "bulk".into(),
            bytes: class.bytes,
            ..QosPolicy::default()
        }],
        classes: vec![class],
        ..QosEvidence::default()
    }
}

/// Behind a token bucket of 20 Mbit/s at the sender's own device.
fn shaped(throughput_bps: f64) -> Scene {
    let shaper =
        QosClass { class: "tbf".into(), policy: None, ..class(20e6, 20e6, throughput_bps) };
    let qos = QosEvidence { device: "wa".into(), shaper: Some(shaper), ..QosEvidence::default() };
    with(throughput_bps, qos)
}

#[test]
fn a_full_shaper_of_the_senders_device_is_the_path_rate_however_busy_the_host() {
    let mut scene = shaped(19.1e6);
    scene.sender.host_cpu_percent = Some(100.0);
    scene.receiver = EndReport {
        host_cpu_percent: Some(100.0),
        run_delay_us: Some((0.5 * SECONDS * 1e6) as u64),
        ..end(0.49, 0.01)
    };
    let explained = scene.is(Cause::PathRate);
    let expected = 20e6 * SHARE;
    assert!((limit(&explained, Cause::PathRate) / expected - 1.0).abs() < 0.001);
    assert!(explained.verdict.evidence[0].contains("tbf on the sender's wa"));
}

#[test]
fn a_shaper_that_is_not_full_is_a_limit_and_not_the_verdict() {
    let mut scene = shaped(10e6);
    scene.flow().rtt_mean_us = 20_300;
    let explained = scene.explain();
    assert_ne!(explained.verdict.cause, Cause::PathRate);
    assert!(limit(&explained, Cause::PathRate) > 19e6);
}

fn with(throughput_bps: f64, qos: QosEvidence) -> Scene {
    let mut scene = tcp(throughput_bps);
    // The class's queue looks like one on the path.
    scene.flow().rtt_mean_us = 45_000;
    scene.sender.qos = Some(qos);
    scene
}

/// 20 Mbit/s of frames at most.
fn limited() -> Scene {
    with(19.1e6, policy(class(5e6, 20e6, 19.1e6), 0.0))
}

#[test]
fn a_class_at_its_limit_is_the_cause_and_not_a_link() {
    let explained = limited().is(Cause::QosClass);
    let expected = 20e6 * SHARE;
    assert!((limit(&explained, Cause::QosClass) / expected - 1.0).abs() < 0.001);
    let verdict = explained.verdict;
    assert!(
        verdict.evidence[0]
            .starts_with("class 1:12 of policy bulk on the sender's wa sent 20.0 Mbit/s")
            || verdict.evidence[0]
                .starts_with("class 1:12 of policy bulk on the sender's wa sent 20 Mbit/s"),
        "{:?}",
        verdict.evidence
    );
    assert!(
        verdict.command().starts_with("linerate qos apply FILE  # with limit = \"")
            && verdict.command().ends_with("100mbit\" in [policy.bulk], now 20mbit"),
        "{}",
        verdict.command()
    );
}

#[test]
fn a_class_that_is_far_from_its_limit_is_not_the_cause() {
    let mut scene = limited();
    let class = &mut scene.sender.qos.as_mut().expect("has a policy").classes[0];
    class.ceil_bps = 30e6;
    assert_ne!(scene.explain().verdict.cause, Cause::QosClass);
}

#[test]
fn a_class_that_never_had_to_wait_is_not_the_cause() {
    let mut scene = limited();
    let class = &mut scene.sender.qos.as_mut().expect("has a policy").classes[0];
    class.overlimits = 0;
    assert_ne!(scene.explain().verdict.cause, Cause::QosClass);
}

#[test]
fn a_class_that_carried_others_is_not_the_cause() {
    let mut scene = limited();
    let class = &mut scene.sender.qos.as_mut().expect("has a policy").classes[0];
    class.bytes /= 2;
    class.ceil_bps /= 2.0;
    assert_ne!(scene.explain().verdict.cause, Cause::QosClass);
}

#[test]
fn on_a_full_link_the_class_has_its_reservation() {
    let scene = with(28.7e6, policy(class(30e6, 100e6, 28.7e6), 66.9e6));
    let explained = scene.is(Cause::QosClass);
    assert!((limit(&explained, Cause::QosClass) / (30e6 * SHARE) - 1.0).abs() < 0.001);
    assert!(explained.verdict.command().contains("reserve = \""));
    // On one that is not full it would have had more.
    let scene = with(28.7e6, policy(class(30e6, 100e6, 28.7e6), 20e6));
    assert_ne!(scene.explain().verdict.cause, Cause::QosClass);
}

#[test]
fn what_other_classes_leave_confirms_nothing() {
    let scene = with(60e6, policy(class(10e6, 100e6, 60e6), 35e6));
    let explained = scene.is(Cause::QosClass);
    let own = explained.ceilings.iter().find(|c| c.cause == Cause::QosClass);
    assert!(!own.expect("is shown").independent);
}

#[test]
fn a_policy_that_has_the_devices_own_rate_leaves_the_link_the_cause() {
    let mut scene = with(94.1e6, policy(class(10e6, 100e6, 94.1e6), 0.0));
    let explained = scene.is(Cause::QosClass);
    assert!(explained.verdict.command().contains("in [adapter.wa], now 100mbit"));
    let device = scene.sender_host.device.as_mut().expect("has a device");
    (device.driver, device.speed_bps) = (Some("igc".into()), Some(100_000_000));
    scene.is(Cause::PathRate);
}

#[test]
fn classes_of_others_are_changed_by_tc() {
    let mut scene = limited();
    let qos = scene.sender.qos.as_mut().expect("has a policy");
    qos.policies.clear();
    qos.classes[0].policy = None;
    let remedy = scene.is(Cause::QosClass).verdict.command();
    assert!(
        remedy.starts_with("tc class change dev wa classid 1:12 htb rate 5mbit ceil "),
        "{remedy}"
    );
    // Of a class that fills the link which the class above it is, that one is changed.
    let qos = scene.sender.qos.as_mut().expect("has a policy");
    (qos.link_class, qos.link_bps) = (Some("1:1".into()), Some(20e6));
    let raises_both = |scene: &Scene, class: &str| {
        let remedy = scene.is(Cause::QosClass).verdict.command();
        let command = format!("tc class change dev wa classid {class} htb rate ");
        let rates = remedy.strip_prefix(&command).and_then(|rates| rates.split_once(" ceil "));
        assert!(rates.is_some_and(|(rate, ceil)| ceil == rate), "{remedy}");
    };
    raises_both(&scene, "1:1");
    // Without one above it a class sends its rate, which is changed.
    let qos = scene.sender.qos.as_mut().expect("has a policy");
    (qos.link_class, qos.link_bps) = (None, None);
    raises_both(&scene, "1:12");
    let qos = scene.sender.qos.as_mut().expect("has a policy");
    qos.device = "wa; reboot".into();
    assert_eq!(scene.is(Cause::QosClass).verdict.command(), "");
}

#[test]
fn a_meter_that_drops_is_the_cause_of_datagrams_and_of_tcp() {
    let metered = |sent_bps: f64, passed_bps: f64| QosEvidence {
        device: "wa".into(),
        policies: vec![QosPolicy {
            policy: "games".into(),
            packets: 1000,
            bytes: frames(sent_bps),
            dropped_packets: 100,
            dropped_bytes: frames(sent_bps) - frames(passed_bps),
            drops_above_bps: Some(50e6),
        }],
        ..QosEvidence::default()
    };
    let mut scene = udp(80e6, 0.6);
    scene.sender.qos = Some(metered(80e6, 48e6));
    let explained = scene.is(Cause::QosClass);
    let own = explained.ceilings.iter().find(|c| c.cause == Cause::QosClass);
    assert!(own.expect("is shown").independent);
    // TCP falls far below a bucket that is smaller than its bursts.
    let mut scene = tcp(5e6);
    scene.sender.qos = Some(metered(5.2e6, 5e6));
    let explained = scene.is(Cause::QosClass);
    let own = explained.ceilings.iter().find(|c| c.cause == Cause::QosClass);
    assert!(!own.expect("is shown").independent);
    assert!(explained.verdict.command().contains("or without `drop_red`"));
}
