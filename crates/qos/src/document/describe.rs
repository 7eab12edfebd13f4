//! The policies of an adapter in words, before anything was counted.

use std::fmt::Display;

use super::{CounterReport, FilterReport, PolicyReport};
use crate::classes::ClassPlan;
use crate::policy::words::{ECN, ETHERTYPES, FAMILIES, PROTOCOLS, TCP_FLAGS};
use crate::policy::{
    Adapter, AddressRange, Conditions, Family, Filter, Meter, MeterKind, PolicyFile, Range,
};

/// The policies of `adapter`, each before those inside it, their filters beneath them; shares are as
/// `plan` has them.
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

/// The policies of an adapter, each before those inside it.
fn in_tree(file: &PolicyFile, adapter: &Adapter) -> Vec<usize> {
    let mut tree: Vec<usize> = Vec::with_capacity(adapter.policies.len());
    let mut rest = vec![None];
    while let Some(parent) = rest.pop() {
        tree.extend(parent);
        let inside = adapter.policies.iter().rev();
        let inside = inside.filter(|at| file.policies[**at].parent == parent);
        rest.extend(inside.map(|at| Some(*at)));
    }
    tree
}

fn filter_report(filter: &Filter) -> FilterReport {
    FilterReport {
        name: filter.name.clone(),
        priority: filter.priority,
        protocols: (filter.conditions.protocol.iter())
            .map(|range| written(range, |number| PROTOCOLS.written(number)))
            .collect(),
        conditions: conditions(&filter.conditions),
        egress: CounterReport::default(),
        ingress: None,
    }
}

/// One entry for each condition but the protocol, in the order of the type.
fn conditions(all: &Conditions) -> Vec<String> {
    let mut words = Vec::new();
    let mut add = |name: &str, values: Vec<String>| {
        if !values.is_empty() {
            words.push(format!("{name} {}", values.join(", ")));
        }
    };
    let named = |family: &Family| {
        let known = FAMILIES.iter().find(|(_, known)| known == family);
        known.map_or(String::new(), |(name, _)| (*name).to_owned())
    };
    add("family", all.family.iter().map(named).collect());
    add("source", addresses(&all.source));
    add("destination", addresses(&all.destination));
    add("address", addresses(&all.address));
    add("source port", numbers(&all.source_port));
    add("destination port", numbers(&all.destination_port));
    add("port", numbers(&all.port));
    let named = |range: &Range<u16>| written(range, |number| ETHERTYPES.written(number));
    add("ethertype", all.ethertype.iter().map(named).collect());
    add("dscp", numbers(&all.dscp));
    let named = |range: &Range<u8>| written(range, |number| ECN.written(number));
    add("ecn", all.ecn.iter().map(named).collect());
    add("icmp type", numbers(&all.icmp_type));
    add("icmp code", numbers(&all.icmp_code));
    let flags = |test: &crate::policy::FlagTest| {
        let asked = (0..8)
            .map(|bit| 1_u8 << bit)
            .filter(|bit| test.mask & bit != 0);
        let written = asked.map(|bit| {
            let not = if test.value & bit == 0 { "!" } else { "" };
            format!("{not}{}", TCP_FLAGS.written(bit))
        });
        written.collect::<Vec<_>>().join(",")
    };
    add("tcp flags", all.tcp_flags.iter().map(flags).collect());
    add("flow label", numbers(&all.flow_label));
    add("vlan", numbers(&all.vlan));
    add("length", numbers(&all.length));
    add("uid", numbers(&all.uid));
    add(
        "cgroup",
        all.cgroup.iter().map(|path| path.0.clone()).collect(),
    );
    add(
        "incoming",
        all.incoming.iter().map(|name| name.0.clone()).collect(),
    );
    add("mark", all.mark.iter().map(ToString::to_string).collect());
    add("source mac", numbers(&all.source_mac));
    add("destination mac", numbers(&all.destination_mac));
    words
}

fn addresses(ranges: &[AddressRange]) -> Vec<String> {
    let written = |range: &AddressRange| match range.prefix_length() {
        _ if range.first == range.last => range.first.to_string(),
        Some(length) => format!("{}/{length}", range.first),
        None => format!("{}-{}", range.first, range.last),
    };
    ranges.iter().map(written).collect()
}

fn numbers<T: Display + PartialEq + Copy>(ranges: &[Range<T>]) -> Vec<String> {
    let written = |range: &Range<T>| written(range, |number| number.to_string());
    ranges.iter().map(written).collect()
}

fn written<T: PartialEq + Copy>(range: &Range<T>, name: impl Fn(T) -> String) -> String {
    if range.first == range.last {
        name(range.first)
    } else {
        format!("{}-{}", name(range.first), name(range.last))
    }
}

fn meter(meter: &Meter) -> String {
    let mut words = match meter.kind {
        MeterKind::SingleRate {
            committed,
            committed_burst,
            excess_burst,
        } => format!("srTCM {committed}, bursts {committed_burst} and {excess_burst}"),
        MeterKind::TwoRate {
            committed,
            committed_burst,
            peak,
            peak_burst,
        } => format!("trTCM {committed} ({committed_burst}), peak {peak} ({peak_burst})"),
    };
    if meter.colour_aware {
        words += ", colour-aware";
    }
    let colours = [
        ("green", meter.green),
        ("yellow", meter.yellow),
        ("red", meter.red),
    ];
    for (colour, dscp) in colours {
        if let Some(dscp) = dscp {
            words += &format!(", {colour} {dscp}");
        }
    }
    if meter.drop_red {
        words += ", red dropped";
    }
    words
}
