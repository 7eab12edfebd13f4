//! Applies a verdict's remedy to its scenario.

use std::time::Duration;

use super::Scenario;
use crate::link::QueueLimit;
use crate::plan::{Extent, Test};
use crate::remedy::{Change, Remedy, RunOption};
use crate::treatment::Treatments;
use crate::units::Span;

/// The scenario and the treatments with which a remedy is applied, if a lab can apply it. Settings
/// of a host's network, metrics of its route, its device and socket options are treatments; options
/// that are left out, and what is sent, change the test. `None` for remedies that belong to the
/// whole machine or to an application.
pub fn treated(scenario: &Scenario, remedy: &Remedy) -> Option<(Scenario, Treatments)> {
    if remedy.first.is_some() {
        return None;
    }
    let mut treated = scenario.clone();
    let treatments = match &remedy.change {
        Change::Option { object, value } => {
            change_option(&mut treated.test, *object, value.as_deref())?
        }
        Change::HostSetting { object, value } if is_of_namespace(object) => {
            format!("{}.sysctl:{object}={value}", remedy.end?)
        }
        Change::RouteMetric { object, value } => {
            format!("{}.route_{}={value}", remedy.end?, object.name())
        }
        Change::DeviceMtu { value, .. } => format!("{}.mtu={value}", remedy.end?),
        _ => return None,
    };
    if matches!(treated.test.extent, Extent::Time(_)) {
        treated.test.warm_up = treated.test.warm_up.max(settled(scenario));
    }
    Some((treated, treatments.parse().ok()?))
}

/// Sets an option in the test, or leaves it out there. A socket option is given as a treatment,
/// which is read back in the run.
fn change_option(test: &mut Test, option: RunOption, value: Option<&str>) -> Option<String> {
    let treatment = option.treatment().zip(value);
    option.set(test, value.filter(|_| treatment.is_none()))?;
    Some(treatment.map_or_else(
        || "none".to_owned(),
        |(name, value)| format!("{name}={value}"),
    ))
}

/// Whether each network namespace has the setting: others a lab cannot set.
fn is_of_namespace(key: &str) -> bool {
    key.starts_with("net.ipv4.") || key.starts_with("net.ipv6.")
}

/// Warm-up of the run with the remedy. The path is full now: slow start ends in the losses of a
/// queue, and the prediction is for the time after them. The full queue is the round-trip time of
/// the path, and it takes several of them until the losses are noticed and repaired.
fn settled(scenario: &Scenario) -> Span {
    let links = scenario.path.iter().flat_map(|path| [&path.up, &path.down]);
    let queued = links.filter_map(|link| {
        let bytes = match link.queue {
            QueueLimit::Bytes(bytes) => bytes,
            QueueLimit::Packets(packets) => packets.saturating_mul(FULL_PACKET),
        };
        let seconds = bytes as f64 * 8.0 / link.rate_bps.filter(|rate| *rate > 0)? as f64;
        Some(Duration::from_secs_f64(seconds.min(LONGEST_QUEUE_S)))
    });
    let longest = queued.max().unwrap_or_default();
    Span((longest * ROUND_TRIPS).max(SETTLED))
}

/// Shortest warm-up.
const SETTLED: Duration = Duration::from_secs(4);
/// Round trips of a full queue that the warm-up takes.
const ROUND_TRIPS: u32 = 8;
/// Size of a full packet, bytes.
const FULL_PACKET: u64 = 1500;
/// Longest queue that the warm-up takes into account, seconds.
const LONGEST_QUEUE_S: f64 = 3.0;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ceilings::Cause;
    use crate::link::PathSpec;
    use crate::plan::{End, Role};
    use crate::remedy::{Name, RouteMetric};
    use crate::truth::{OLD, draw, family};

    fn scenario(cause: Cause) -> Scenario {
        let drawn = draw(1, 48, &family(OLD).unwrap()).into_iter();
        drawn
            .into_iter()
            .find(|s| s.cause == cause)
            .expect("four of each")
    }

    #[test]
    fn a_setting_is_a_treatment_of_the_host_that_is_named() {
        let before = scenario(Cause::ReceiveWindow);
        let receiver = Role::Receiver.end(before.test.direction);
        let figures = [4096, 131_072, 8_388_608];
        let remedy = Remedy::host_setting(Some(receiver), "net.ipv4.tcp_rmem", &figures);
        let (after, treatments) = treated(&before, &remedy).unwrap();
        let asked = format!("{receiver}.sysctl:net.ipv4.tcp_rmem=4096 131072 8388608");
        assert_eq!(treatments, asked.parse().unwrap());
        assert_eq!(
            (&after.client, &after.server),
            (&before.client, &before.server)
        );
        let slower_start = Test {
            warm_up: after.test.warm_up,
            ..before.test.clone()
        };
        assert_eq!(after.test, slower_start);
        assert!(after.test.warm_up >= Span(SETTLED));
    }

    #[test]
    fn a_deep_queue_takes_longer_to_settle() {
        let mut deep = scenario(Cause::Pacing);
        let mut path = PathSpec::default();
        path.up.rate_bps = Some(4_000_000);
        path.up.queue = QueueLimit::Bytes(500_000);
        deep.path = Some(path);
        assert_eq!(settled(&deep), Span(Duration::from_secs(8)));
        deep.path = None;
        assert_eq!(settled(&deep), Span(SETTLED));
    }

    #[test]
    fn a_metric_is_a_treatment_of_the_route() {
        let before = scenario(Cause::SegmentSize);
        let change = Change::RouteMetric {
            object: RouteMetric::Advmss,
            value: 1460,
        };
        let (_, treatments) = treated(&before, &Remedy::new(change, Some(End::Server))).unwrap();
        assert_eq!(treatments, "server.route_advmss=1460".parse().unwrap());
    }

    #[test]
    fn a_devices_mtu_is_a_treatment_of_the_device() {
        let change = Change::DeviceMtu {
            object: Name::new("eth0").unwrap(),
            value: 1500,
        };
        let remedy = Remedy::new(change, Some(End::Client));
        let (_, treatments) = treated(&scenario(Cause::SegmentSize), &remedy).unwrap();
        assert_eq!(treatments, "client.mtu=1500".parse().unwrap());
    }

    #[test]
    fn a_remedy_that_omits_an_option_keeps_the_length_of_the_test() {
        let before = scenario(Cause::Pacing);
        let (after, treatments) = treated(&before, &Remedy::without(RunOption::Pacing)).unwrap();
        assert_eq!(after.test.options.pacing_bps, None);
        assert_eq!(after.test.extent, before.test.extent);
        assert!(treatments.is_empty());
    }

    #[test]
    fn an_option_that_a_remedy_sets_is_a_treatment() {
        let mut before = scenario(Cause::Congestion);
        before.test.options.mss_bytes = Some(1000);
        before.test.options.congestion = Some("reno".to_owned());
        let remedy = Remedy::option(RunOption::Congestion, "cubic");
        let (after, treatments) = treated(&before, &remedy).unwrap();
        assert_eq!(treatments, "congestion=cubic".parse().unwrap());
        assert_eq!(after.test.options.mss_bytes, Some(1000));
        assert_eq!(after.test.options.congestion, None);
        treatments.apply_to(&mut after.test.clone()).unwrap();
        let remedy = Remedy::option(RunOption::ReceiveWindow, 500_000);
        let (_, treatments) = treated(&before, &remedy).unwrap();
        assert_eq!(treatments, "receive_window=500000".parse().unwrap());
    }

    #[test]
    fn a_longer_time_takes_the_place_of_an_amount() {
        let before = scenario(Cause::Startup);
        let (after, _) = treated(&before, &Remedy::option(RunOption::Time, "17s")).unwrap();
        assert_eq!(
            after.test.extent,
            Extent::Time(Span(Duration::from_secs(17)))
        );
        after.test.check().unwrap();
    }

    #[test]
    fn settings_that_a_lab_cannot_have_are_left_out() {
        let before = scenario(Cause::SendBuffer);
        let of_machine = || Remedy::host_setting(Some(End::Client), "net.core.wmem_max", &[1]);
        let module = Change::Module {
            object: Name::new("tcp_bbr").unwrap(),
        };
        for remedy in [
            of_machine(),
            Remedy::option(RunOption::SendBuffer, 500_000).after(of_machine()),
            Remedy::new(module, None),
            Remedy::option(RunOption::MaxConnections, 7),
        ] {
            assert!(treated(&before, &remedy).is_none(), "{remedy:?}");
        }
    }
}
