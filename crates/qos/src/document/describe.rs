//! The policies of an adapter in words, with their counters at zero.

use super::{FilterReport, PolicyReport};
use crate::classes::ClassPlan;
use crate::interpret::CounterReport;
use crate::policy::{Adapter, Filter, Meter, MeterKind, PolicyFile, written};

/// Describes the policies of `adapter`, each before those nested in it, with their filters. Shares
/// are those of `plan`.
pub fn describe(
    file: &PolicyFile,
    adapter: &Adapter,
    plan: Option<&ClassPlan>,
) -> Vec<PolicyReport> {
    let policies = in_tree(file, adapter).into_iter().map(|index| {
        let policy = &file.policies[index];
        let class = plan.and_then(|plan| {
            let mut classes = plan.classes.iter();
            classes.find(|class| Some(class.id) == plan.of_policy[index])
        });
        PolicyReport {
            name: policy.name.clone(),
            dscp: policy.dscp.map(|dscp| dscp.octet() >> 2),
            vlan_priority: policy.vlan_priority,
            parent: policy.parent.map(|at| file.policies[at].name.clone()),
            reserve_bps: policy.reserve.and(class).map(|class| class.rate.0),
            limit_bps: policy.limit.and(class).map(|class| class.ceil.0),
            priority: policy.priority,
            meter: policy.meter.as_ref().map(meter),
            drop: policy.drop,
            class: None,
            egress: CounterReport::default(),
            ingress: None,
            filters: (file.filters.iter())
                .filter(|filter| filter.policy == index)
                .map(filter_report)
                .collect(),
        }
    });
    policies.collect()
}

/// The policies of an adapter, each before those nested in it.
fn in_tree(file: &PolicyFile, adapter: &Adapter) -> Vec<usize> {
    let mut tree: Vec<usize> = Vec::with_capacity(adapter.policies.len());
    let mut rest = vec![None];
    while let Some(parent) = rest.pop() {
        tree.extend(parent);
        let inside =
            adapter.policies.iter().rev().filter(|at| file.policies[**at].parent == parent);
        rest.extend(inside.map(|at| Some(*at)));
    }
    tree
}

fn filter_report(filter: &Filter) -> FilterReport {
    let all = written(&filter.conditions).into_iter();
    let (protocols, others): (Vec<_>, Vec<_>) = all.partition(|(key, _)| *key == "protocol");
    let words = |(key, values): (&str, Vec<String>)| {
        format!("{} {}", key.replace('_', " "), values.join(", "))
    };
    FilterReport {
        name: filter.name.clone(),
        priority: filter.priority,
        protocols: protocols.into_iter().flat_map(|(_, them)| them).collect(),
        conditions: others.into_iter().map(words).collect(),
        egress: CounterReport::default(),
        ingress: None,
    }
}

fn meter(meter: &Meter) -> String {
    let mut words = match meter.kind {
        MeterKind::SingleRate { committed, committed_burst, excess_burst } => {
            format!("srTCM {committed}, bursts {committed_burst} and {excess_burst}")
        }
        MeterKind::TwoRate { committed, committed_burst, peak, peak_burst } => {
            format!("trTCM {committed} ({committed_burst}), peak {peak} ({peak_burst})")
        }
    };
    if meter.colour_aware {
        words += ", colour-aware";
    }
    for (colour, dscp) in meter.code_points() {
        words += &format!(", {colour} {dscp}");
    }
    if meter.drop_red {
        words += ", red dropped";
    }
    words
}
