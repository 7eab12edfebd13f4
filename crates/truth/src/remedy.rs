//! Remedies: a verdict's remedy is applied to its scenario, and what it brings is compared with the
//! prediction.

use std::collections::BTreeMap;
use std::time::Duration;

use linerate_core::ceilings::{Cause, Verdict};
use linerate_core::link::QueueLimit;
use linerate_core::plan::{Draft, Extent, Test, Workload, option_of};
use linerate_core::remedy::{Change, Remedy, RunOption};
use linerate_core::treatment::Treatments;
use linerate_core::units::Span;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;

use crate::scenario::Scenario;
use crate::trial::Tally;

/// The outcome of a scenario's remedy.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Remedied {
    /// The outcome of a run with it: it promised a rate.
    Tried(Proof),
    /// The reason why it was not run: there was no prediction to test.
    Untried(Untried),
}

/// A scenario that was run again with its verdict's remedy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Proof {
    /// The scenario's number.
    pub(crate) number: u32,
    /// The cause that the verdict named.
    pub(crate) cause: Cause,
    /// The remedy that was applied.
    pub(crate) remedy: Remedy,
    /// The predicted rate, payload bits/s.
    pub(crate) predicted_bps: f64,
    /// The predicted next cause.
    pub(crate) next_cause: Option<Cause>,
    /// The measured rate, payload bits/s; absent if the run with the remedy failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) measured_bps: Option<f64>,
    /// Reason for which the run with it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) failure: Option<String>,
    /// Whether the prediction held: within 15 % if the cause is exact, within 30 % if it is
    /// modelled. It did not if the run failed.
    pub(crate) held: bool,
}

/// A remedy that was not run.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Untried {
    /// The scenario's number.
    pub(crate) number: u32,
    /// The cause that the verdict named; absent without a verdict.
    pub(crate) cause: Option<Cause>,
    /// The remedy, if there is one.
    pub(crate) remedy: Option<Remedy>,
    /// The predicted rate, payload bits/s, if there was a prediction.
    pub(crate) predicted_bps: Option<f64>,
    /// Reason for which it was not run.
    pub(crate) why: UntriedReason,
}

/// Reason for which a remedy was not run.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub(crate) enum UntriedReason {
    /// The first run failed, or has no verdict.
    NoVerdict,
    /// The verdict predicts no rate.
    NothingPredicted,
    /// A lab cannot do what the remedy says: it belongs to the whole machine or to an application.
    NotInALab,
}

/// Remedies over all scenarios.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct RemedyScore {
    /// Remedies of exact causes that were run, and those of them whose prediction held within 15 %.
    pub(crate) exact: Tally,
    /// Remedies of modelled causes that were run, and those of them whose prediction held within 30
    /// %.
    pub(crate) modelled: Tally,
    /// The goal for both, percent.
    pub(crate) goal_percent: f64,
    /// Failed runs with a remedy; their predictions did not hold.
    pub(crate) failed: u64,
    /// Remedies that were not run, by the reason.
    pub(crate) untried: BTreeMap<UntriedReason, u64>,
}

impl Proof {
    /// Compares a verdict's prediction with the rate that its remedy brought, payload bits/s, or
    /// with the failure of the run. `None` without a prediction or a remedy.
    pub(crate) fn new(
        number: u32,
        verdict: &Verdict,
        measured: Result<f64, String>,
    ) -> Option<Self> {
        let predicted_bps = verdict.predicted_bps?;
        let (measured_bps, failure) = match measured {
            Ok(bps) => (Some(bps), None),
            Err(reason) => (None, Some(reason)),
        };
        let mut proof = Self {
            number,
            cause: verdict.cause,
            remedy: verdict.remedy.clone()?,
            predicted_bps,
            next_cause: verdict.next_cause,
            held: false,
            measured_bps,
            failure,
        };
        let tolerance = if proof.is_exact() { EXACT } else { MODELLED };
        let within = |measured: f64| (measured / predicted_bps - 1.0).abs() <= tolerance;
        proof.held = measured_bps.is_some_and(within);
        Some(proof)
    }

    /// Whether the ceiling of the cause follows from a figure that was set or that the kernel
    /// tells.
    pub(crate) fn is_exact(&self) -> bool {
        matches!(self.cause, Cause::ReceiveWindow | Cause::SendBuffer | Cause::Pacing)
    }
}

impl Untried {
    /// The remedy of a scenario that was not run, with its verdict if there is one.
    pub(crate) fn new(number: u32, verdict: Option<&Verdict>, why: UntriedReason) -> Self {
        Self {
            number,
            cause: verdict.map(|verdict| verdict.cause),
            remedy: verdict.and_then(|verdict| verdict.remedy.clone()),
            predicted_bps: verdict.and_then(|verdict| verdict.predicted_bps),
            why,
        }
    }
}

impl RemedyScore {
    /// Counts; `None` if there were no remedies.
    pub(crate) fn new(proofs: &[Proof], untried: &[Untried]) -> Option<Self> {
        let held = |of_exact: bool| {
            let own = proofs.iter().filter(|proof| proof.is_exact() == of_exact);
            let right = own.clone().filter(|proof| proof.held).count();
            Tally::of_counts(right as u64, own.count() as u64)
        };
        let mut reasons = BTreeMap::new();
        for one in untried {
            *reasons.entry(one.why).or_default() += 1;
        }
        let failed = proofs.iter().filter(|proof| proof.failure.is_some());
        let is_any = !proofs.is_empty() || !untried.is_empty();
        is_any.then(|| Self {
            exact: held(true),
            modelled: held(false),
            goal_percent: GOAL,
            failed: failed.count() as u64,
            untried: reasons,
        })
    }
}

/// The scenario and the treatments with which a remedy is applied, if a lab can apply it. Settings
/// of a host's network, metrics of its route, its device and socket options are treatments; options
/// that are left out, and what is sent, change the test. `None` for remedies that belong to the
/// whole machine or to an application.
pub(crate) fn treated(scenario: &Scenario, remedy: &Remedy) -> Option<(Scenario, Treatments)> {
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
/// which is read back in the run. `None` if the option does not take the value, or if a test has no
/// such option.
fn change_option(test: &mut Test, option: RunOption, value: Option<&str>) -> Option<String> {
    let of_streams = option_of(Workload::Stream, option.key())?;
    let treatment = value.filter(|_| of_streams.treatment.is_some());
    let workload = test.workload();
    let own = option_of(workload, option.key())?;
    let mut draft = Draft::new(workload);
    for (other, value) in test.given() {
        if other != own && !own.excludes.contains(&other.key) {
            draft.set(other.key, &other.kind.written(&value)).ok()?;
        }
    }
    if let Some(value) = value.filter(|_| treatment.is_none()) {
        draft.set(own.key, value).ok()?;
    }
    *test = draft.resolve(test.seed).ok()?;
    Some(match treatment {
        Some(value) => format!("{}={value}", of_streams.name),
        None => "none".to_owned(),
    })
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

/// Largest error of a prediction, as a share of it.
const EXACT: f64 = 0.15;
const MODELLED: f64 = 0.30;
/// The goal: the share of predictions that hold, percent.
const GOAL: f64 = 90.0;
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
    use linerate_core::link::PathSpec;
    use linerate_core::plan::{End, Role};
    use linerate_core::remedy::{Name, RouteMetric};

    use super::*;
    use crate::scenario::{SINGLE_LIMIT, draw, families_named};

    fn verdict(cause: Cause) -> Verdict {
        Verdict {
            cause,
            share_of_ceiling: Some(1.0),
            evidence: Vec::new(),
            remedy: Some(Remedy {
                command: "linerate stream pit".to_owned(),
                ..Remedy::without(RunOption::Pacing)
            }),
            predicted_bps: Some(100e6),
            next_cause: Some(Cause::PathRate),
            ..Verdict::default()
        }
    }

    fn proof(cause: Cause, measured_bps: f64) -> Proof {
        Proof::new(7, &verdict(cause), Ok(measured_bps)).expect("something was predicted")
    }

    #[test]
    fn an_exact_cause_has_the_narrower_tolerance() {
        assert!(proof(Cause::ReceiveWindow, 86e6).held);
        assert!(!proof(Cause::ReceiveWindow, 80e6).held);
        assert!(proof(Cause::Congestion, 80e6).held);
        assert!(!proof(Cause::Congestion, 140e6).held);
    }

    #[test]
    fn a_run_that_failed_is_not_as_predicted_and_says_why() {
        let failed = Proof::new(8, &verdict(Cause::Pacing), Err("peer lost".to_owned()));
        let proofs = [proof(Cause::Pacing, 99e6), failed.expect("a prediction")];
        let score = RemedyScore::new(&proofs, &[]).unwrap();
        assert_eq!((score.exact.right, score.exact.trials), (1, 2));
        assert_eq!(score.failed, 1);
    }

    #[test]
    fn exact_and_modelled_causes_are_counted_apart() {
        let proofs = [proof(Cause::ReceiveWindow, 99e6), proof(Cause::Congestion, 10e6)];
        let score = RemedyScore::new(&proofs, &[]).unwrap();
        assert_eq!((score.exact.right, score.exact.trials), (1, 1));
        assert_eq!((score.modelled.right, score.modelled.trials), (0, 1));
    }

    #[test]
    fn what_was_not_run_is_counted_by_its_reason() {
        let all = [
            Untried::new(1, None, UntriedReason::NoVerdict),
            Untried::new(2, Some(&verdict(Cause::Policer)), UntriedReason::NothingPredicted),
            Untried::new(3, Some(&verdict(Cause::CpuSend)), UntriedReason::NotInALab),
            Untried::new(4, Some(&verdict(Cause::CpuSend)), UntriedReason::NotInALab),
        ];
        let score = RemedyScore::new(&[], &all).expect("there are some");
        let counted: Vec<u64> = score.untried.into_values().collect();
        assert_eq!(counted, [1, 1, 2]);
        assert_eq!(RemedyScore::new(&[], &[]), None);
    }

    fn scenario(cause: Cause) -> Scenario {
        let drawn = draw(1, 48, &families_named(SINGLE_LIMIT).unwrap());
        drawn.into_iter().find(|s| s.cause == cause).expect("four of each")
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
        assert_eq!((&after.client, &after.server), (&before.client, &before.server));
        let slower_start = Test { warm_up: after.test.warm_up, ..before.test.clone() };
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
        let change = Change::RouteMetric { object: RouteMetric::Advmss, value: 1460 };
        let (_, treatments) = treated(&before, &Remedy::new(change, Some(End::Server))).unwrap();
        assert_eq!(treatments, "server.route_advmss=1460".parse().unwrap());
    }

    #[test]
    fn a_devices_mtu_is_a_treatment_of_the_device() {
        let change = Change::DeviceMtu { object: Name::new("eth0").unwrap(), value: 1500 };
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
        assert_eq!(after.test.extent, Extent::Time(Span(Duration::from_secs(17))));
        after.test.check().unwrap();
    }

    #[test]
    fn settings_that_a_lab_cannot_have_are_left_out() {
        let before = scenario(Cause::SendBuffer);
        let of_machine = || Remedy::host_setting(Some(End::Client), "net.core.wmem_max", &[1]);
        let module = Change::Module { object: Name::new("tcp_bbr").unwrap() };
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
