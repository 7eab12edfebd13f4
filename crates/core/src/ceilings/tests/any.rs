//! Laws that hold on any evidence, however absurd.

use proptest::prelude::*;

use super::scene::{Scene, tcp, udp};
use crate::ceilings::causes::RULES;
use crate::ceilings::{Cause, annotate, small_segments_caveat, views};
use crate::plan::{End, Role};
use crate::record::{EndReport, HostFacts, TcpReceiver, TcpSender};
use crate::remedy::{Change, Remedy};

/// Zeros, small figures, real ones and the largest. (Boxed: dozens of them by value overflow the
/// stack.)
fn count() -> BoxedStrategy<u64> {
    prop_oneof![Just(0), 0..100_u64, 0..10_000_000_u64, any::<u64>(), Just(u64::MAX)].boxed()
}

fn small() -> BoxedStrategy<u32> {
    prop_oneof![Just(0), 0..100_u32, 0..100_000_u32, any::<u32>()].boxed()
}

fn real() -> BoxedStrategy<f64> {
    prop_oneof![Just(0.0), 0.0..1.0, 0.0..1e12, any::<f64>()].boxed()
}

fn maybe<T: std::fmt::Debug + 'static>(
    strategy: impl Strategy<Value = T> + 'static,
) -> BoxedStrategy<Option<T>> {
    proptest::option::weighted(0.8, strategy).boxed()
}

prop_compose! {
    fn windows()(
        mss_bytes in small(), pmtu_bytes in small(), rtt_min_us in maybe(small()),
        rtt_mean_us in small(), rtt_var_us in small(), send_window_bytes in maybe(count()),
        cwnd_bytes in count(), unacked_bytes in count(), notsent_bytes in maybe(count()),
        send_buffer_bytes in count(), send_queue_memory_bytes in maybe(count()),
        send_buffer_locked in any::<bool>(),
    ) -> TcpSender {
        TcpSender {
            mss_bytes, pmtu_bytes, rtt_min_us, rtt_mean_us, rtt_var_us, send_window_bytes,
            cwnd_bytes, unacked_bytes, notsent_bytes, send_buffer_bytes, send_queue_memory_bytes,
            send_buffer_locked, ..TcpSender::default()
        }
    }
}

prop_compose! {
    fn flow()(
        windows in windows().boxed(), busy_us in maybe(count()), rwnd_limited_us in maybe(count()),
        sndbuf_limited_us in maybe(count()), retransmitted_segments in count(),
        dsack_duplicates in maybe(count()), loss_events in count(), samples in maybe(count()),
        (timeouts, data_segments_out) in (maybe(count()), maybe(count())),
        (delivery_rate_max_bps, max_pacing_rate_bps) in (maybe(count()), maybe(count())),
        pacing_rate_bps in maybe(count()),
        congestion in maybe(prop_oneof![Just("bbr".to_owned()), Just("cubic".into()), ".*"]),
    ) -> TcpSender {
        TcpSender {
            busy_us, rwnd_limited_us, sndbuf_limited_us, retransmitted_segments, dsack_duplicates,
            loss_events, samples, timeouts, data_segments_out, delivery_rate_max_bps,
            max_pacing_rate_bps, pacing_rate_bps, congestion, ..windows
        }
    }
}

prop_compose! {
    fn end()(
        blocked_us in maybe(count()), run_delay_us in maybe(count()), paced_us in maybe(count()),
        busiest_thread_percent in maybe(real()), service_demand_us_per_kib in maybe(real()),
        softnet_dropped in maybe(count()),
    ) -> EndReport {
        EndReport {
            blocked_us, run_delay_us, paced_us, busiest_thread_percent,
            service_demand_us_per_kib, softnet_dropped, ..EndReport::default()
        }
    }
}

prop_compose! {
    fn scene()(
        flows in prop::collection::vec(flow().boxed(), 0..4), datagrams in any::<bool>(),
        (sent, lost, asked) in (count(), count(), maybe(count())),
        (throughput_bps, seconds, variation) in (real(), real(), real()),
        (sender, receiver) in (end().boxed(), end().boxed()), usable in real(),
    ) -> Scene {
        let mut scene = if datagrams { udp(1e6, 1.0) } else { tcp(1e6).transfer(1) };
        match scene.udp.first_mut() {
            Some(udp) => (udp.sent, udp.lost, udp.asked_bps) = (sent, lost, asked),
            None => scene.tcp = flows,
        }
        scene.sender_host.cpu.usable = usable;
        Scene { throughput_bps, seconds, variation, sender, receiver, ..scene }
    }
}

/// Settings of socket memory, each of which may be missing.
fn sysctls() -> impl Strategy<Value = Vec<(String, String)>> {
    let figure = || prop_oneof![0..100_000_u64, 0..=1_u64 << 31];
    let one = ["net.core.rmem_max", "net.core.wmem_max"].map(|key| {
        let value = figure().prop_map(move |value| (key.to_owned(), value.to_string()));
        proptest::option::of(value)
    });
    let three = ["net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"].map(|key| {
        let value = (figure(), figure(), figure());
        let value = value.prop_map(move |(a, b, c)| (key.to_owned(), format!("{a}\t{b}\t{c}")));
        proptest::option::of(value)
    });
    (one, three).prop_map(|(one, three)| one.into_iter().chain(three).flatten().collect())
}

fn figures(text: &str) -> Vec<u64> {
    text.split_whitespace().map(|word| word.parse().unwrap()).collect()
}

/// What a remedy gives a host less of than it has, or may have.
fn lowered(remedy: &Remedy, host: &dyn Fn(End) -> HostFacts) -> Option<String> {
    let before = remedy.first.as_deref().and_then(|first| lowered(first, host));
    let own = match &remedy.change {
        // A switch is turned on.
        Change::HostSetting { value, .. } if value == "1" => None,
        Change::HostSetting { object, value } => {
            let has = host(remedy.end?);
            let has = has.setting(object).map(figures);
            let is_kept = has.as_ref().is_some_and(|has| {
                let wanted = figures(value);
                has.len() == wanted.len() && has.iter().zip(&wanted).all(|(has, it)| has <= it)
            });
            (!is_kept).then(|| format!("{object}: {has:?} becomes {value}"))
        }
        Change::DeviceMtu { object, value } => {
            let has = host(remedy.end?).device.map_or(0, |device| device.mtu_bytes);
            (has > *value).then(|| format!("the MTU of {object}: {has} becomes {value}"))
        }
        _ => None,
    };
    before.or(own)
}

proptest! {
    #[test]
    fn no_remedy_of_any_cause_lowers_what_a_host_has(
        mut scene in scene(), target_bps in real(), (here, there) in (sysctls(), sysctls()),
        mtus in (small(), small()), receiver_alone in any::<bool>(),
        (rtt_mean_us, window_bytes, buffer_bytes) in (maybe(small()), maybe(count()), maybe(count())),
        buffer_locked in any::<bool>(),
    ) {
        for (host, settings, mtu) in [
            (&mut scene.sender_host, here, mtus.0),
            (&mut scene.receiver_host, there, mtus.1),
        ] {
            host.sysctls = settings.into_iter().collect();
            host.device.get_or_insert_default().mtu_bytes = mtu;
        }
        for tcp in &mut scene.tcp {
            tcp.options = vec!["wscale".into()];
        }
        scene.window = TcpReceiver {
            rtt_mean_us, window_bytes, buffer_bytes, buffer_locked, ..scene.window
        };
        let mut record = scene.record();
        if receiver_alone {
            let flows = record.flows.iter_mut().filter_map(|flow| flow.tcp.as_mut());
            let all = flows.chain(record.legs.iter_mut().filter_map(|leg| leg.tcp.as_mut()));
            all.for_each(|tcp| tcp.sender = None);
        }
        let view = &views(&record)[0];
        let host = |end: End| {
            let role = Role::at(end, view.direction);
            let host = match role {
                Role::Sender => view.sender_host,
                Role::Receiver => view.receiver_host,
            };
            host.cloned().unwrap_or_default()
        };
        for rule in &RULES {
            let remedy = (rule.remedy)(view, target_bps);
            let less = remedy.and_then(|remedy| lowered(&remedy, &host));
            prop_assert_eq!(less, None, "{:?}", rule.cause);
        }
    }

    #[test]
    fn ceilings_are_sorted_positive_and_finite(scene in scene()) {
        let mut record = scene.record();
        annotate(&mut record);
        let limits: Vec<f64> = record.legs[0].ceilings.iter().map(|c| c.limit_bps).collect();
        prop_assert!(limits.is_sorted(), "{limits:?}");
        for ceiling in &record.legs[0].ceilings {
            prop_assert!(ceiling.limit_bps.is_finite() && ceiling.limit_bps > 0.0);
            prop_assert!(ceiling.inputs.values().all(|value| value.is_finite()), "{ceiling:?}");
        }
        let verdict = record.verdict().expect("a stream has a verdict");
        prop_assert!(!verdict.evidence.is_empty());
        let unexplained = verdict.cause == Cause::Unexplained;
        prop_assert_eq!(verdict.share_of_ceiling.is_none(), unexplained);
        prop_assert!(verdict.share_of_ceiling.is_none_or(|share| (0.69..1.31).contains(&share)));
        let _ = small_segments_caveat(&views(&record)[0]);
    }
}
