//! Warnings about reservations and limits that do not fit their adapters.

use std::collections::BTreeMap;

use linerate_core::units::BitRate;

use crate::classes::{ClassError, ClassPlan};
use crate::policy::{Adapter, MeterKind, Policy, PolicyFile, Share};
use crate::rules::Bindings;

use super::{Doubt, FULL_FRAME, Warning};

pub(super) fn warnings(file: &PolicyFile, speeds: &BTreeMap<String, BitRate>) -> Vec<Warning> {
    let rate = |adapter: &Adapter| adapter.rate.or(speeds.get(&adapter.name).copied());
    let slots = Bindings::stand_in(file).policy_slots;
    let mut warnings = Vec::new();
    for adapter in &file.adapters {
        let doubt = match rate(adapter) {
            None => more_than_all(file, adapter),
            Some(rate) => match ClassPlan::new(file, adapter, &slots, Some(rate)) {
                Err(error) if error_is_of_file(&error) => Some(Doubt::Classes(error)),
                _ => None,
            },
        };
        let at_fault = match &doubt {
            Some(Doubt::Classes(error)) => error.policy(),
            _ => None,
        };
        let mut policies = file.policies.iter();
        let policy = at_fault.and_then(|name| policies.find(|policy| policy.name == name));
        let place = policy.map_or(adapter.place, |policy| policy.place);
        warnings.extend(doubt.map(|doubt| Warning { place, doubt }));
        if adapter.ingress && has_classes(file, adapter) {
            let (place, adapter) = (adapter.place, adapter.name.clone());
            let doubt = Doubt::IngressClasses { adapter };
            warnings.push(Warning { place, doubt });
        }
    }
    for (number, policy) in file.policies.iter().enumerate() {
        let adapters = (file.adapters.iter())
            .filter(|adapter| adapter.policies.contains(&number))
            .filter_map(|adapter| Some((adapter.name.clone(), rate(adapter)?)))
            .collect();
        warnings.extend(differs(policy, adapters));
        let place = policy.place;
        warnings.extend(small_burst(policy).map(|doubt| Warning { place, doubt }));
    }
    warnings
}

/// Class numbers depend on what was in force before, which a file does not tell.
fn error_is_of_file(error: &ClassError) -> bool {
    !matches!(error, ClassError::NoNumber { .. })
}

/// The only certain warning for a link of unknown rate.
fn more_than_all(file: &PolicyFile, adapter: &Adapter) -> Option<Doubt> {
    let policies = adapter.policies.iter().map(|at| &file.policies[*at]);
    let outermost = policies.filter(|policy| policy.parent.is_none());
    let percent: f64 = outermost.filter_map(|policy| percent(policy.reserve)).sum();
    (percent > 100.0).then(|| Doubt::MoreThanAll { adapter: adapter.name.clone(), percent })
}

fn has_classes(file: &PolicyFile, adapter: &Adapter) -> bool {
    let mut policies = adapter.policies.iter();
    policies.any(|policy| file.policies[*policy].has_class())
}

/// A frame that is longer than every bucket is red, however slowly packets come.
fn small_burst(policy: &Policy) -> Option<Doubt> {
    let meter = policy.meter.filter(|meter| meter.drop_red)?;
    let longest = match meter.kind {
        MeterKind::SingleRate { committed_burst, excess_burst, .. } => {
            committed_burst.max(excess_burst)
        }
        MeterKind::TwoRate { peak_burst, .. } => peak_burst,
    };
    (longest.0 < FULL_FRAME).then(|| Doubt::SmallBurst { policy: policy.name.clone(), longest })
}

fn differs(policy: &Policy, adapters: Vec<(String, BitRate)>) -> Option<Warning> {
    let in_percent = percent(policy.reserve).or(percent(policy.limit)).is_some();
    let differ = adapters.windows(2).any(|pair| pair[0].1 != pair[1].1);
    (in_percent && differ).then(|| Warning {
        place: policy.place,
        doubt: Doubt::Differs { policy: policy.name.clone(), adapters },
    })
}

fn percent(share: Option<Share>) -> Option<f64> {
    match share {
        Some(Share::Percent(percent)) => Some(percent),
        _ => None,
    }
}
