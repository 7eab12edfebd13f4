//! Explains which filter takes a packet, and why those before it do not.

mod packet;
mod words;

use std::collections::HashMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;

use crate::interpret::{Decision, State, interpret};
use crate::packet::{Fields, LinkType};
use crate::policy::{Adapter, Family, Filter, Policy, PolicyFile};
use crate::rules::{Bindings, Rule, RuleError, RuleSet};

pub use packet::Packet;

/// What a policy does with a packet that is the first on its adapter: which filter takes it, and
/// why those before it do not.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ExplanationReport {
    /// The packet, as it was understood.
    pub packet: String,
    /// The interface by which it leaves.
    pub adapter: String,
    /// `ipv4`, `ipv6` or `other`.
    pub family: String,
    /// The filter that takes it; absent if none does.
    pub taken: Option<AskedReport>,
    /// The policy of that filter.
    pub policy: Option<String>,
    /// What that policy does to the packet, in words, such as `DSCP CS0 becomes EF`; meters have
    /// full buckets.
    pub effects: Vec<String>,
    /// The filters that were tried before, in this order.
    pub refused: Vec<RefusalReport>,
}

/// A filter that is tried.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AskedReport {
    /// Name of the filter.
    pub filter: String,
    /// The line of the file in which it is defined.
    pub line: usize,
    /// Priority of the filter.
    pub priority: u32,
}

/// A filter that does not take the packet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RefusalReport {
    /// The filter.
    #[serde(flatten)]
    pub asked: AskedReport,
    /// The first of its conditions that does not hold, such as `destination port 443 is not 80`.
    pub why: String,
}

/// Explains what happens to `packet` on `adapter`.
///
/// Control groups and interfaces are compared by name: a packet is in every group whose path is a
/// prefix of its own.
///
/// # Errors
/// [`RuleError`], if the filters make too many rules.
pub fn explain(
    file: &PolicyFile,
    adapter: &Adapter,
    packet: &Packet,
) -> Result<ExplanationReport, RuleError> {
    let bindings = Bindings::stand_in(file);
    let rules = RuleSet::new(file, adapter, &bindings)?;
    let metadata = packet.metadata(&bindings);
    let fields = Fields::new(packet.frame(), LinkType::Ethernet, &metadata);
    let decision = interpret(&rules, &fields, &metadata, 1, &mut State::default());
    let of_family = rules.family(fields.family());
    let rule = decision.rule.map(|rule| &of_family[rule]);

    let order = order(file, &rules);
    let taken = rule.and_then(|rule| order.iter().position(|(index, _)| *index == rule.filter));
    let before = &order[..taken.unwrap_or(order.len())];
    let taken = taken.map(|at| order[at].1);
    let policy = taken.map(|filter| &file.policies[filter.policy]);
    let mut of_filter: HashMap<usize, Vec<&Rule>> = HashMap::new();
    for rule in of_family {
        of_filter.entry(rule.filter).or_default().push(rule);
    }
    let words = words::Words::new(&fields, packet, &bindings);
    let refused = before.iter().map(|(index, filter)| RefusalReport {
        asked: asked(filter),
        why: match of_filter.get(index) {
            Some(rules) => words.refusal(rules),
            None => words.no_rules(&filter.conditions),
        },
    });
    Ok(ExplanationReport {
        packet: words.packet(),
        adapter: adapter.name.clone(),
        family: match fields.family() {
            Family::V4 => "ipv4".to_owned(),
            Family::V6 => "ipv6".to_owned(),
            Family::Other => "other".to_owned(),
        },
        taken: taken.map(asked),
        policy: policy.map(|policy| policy.name.clone()),
        effects: policy.map_or_else(Vec::new, |policy| effects(policy, &decision, &words)),
        refused: refused.collect(),
    })
}

/// The filters of an adapter in the order in which they are tried, each with its index in
/// [`RuleSet::filters`].
fn order<'a>(file: &'a PolicyFile, rules: &RuleSet) -> Vec<(usize, &'a Filter)> {
    let by_name: HashMap<&str, &Filter> =
        (file.filters.iter()).map(|filter| (filter.name.as_str(), filter)).collect();
    let names = rules.filters.iter().map(|(name, _)| name.as_str());
    let mut order: Vec<_> = names.map(|name| by_name[name]).enumerate().collect();
    order.sort_by_key(|(_, filter)| filter.priority);
    order
}

fn asked(filter: &Filter) -> AskedReport {
    AskedReport { filter: filter.name.clone(), line: filter.place.line, priority: filter.priority }
}

fn effects(policy: &Policy, decision: &Decision, words: &words::Words<'_>) -> Vec<String> {
    let mut effects = Vec::new();
    if policy.meter.is_some() {
        let colour =
            decision.colour.map_or(String::new(), |colour| format!("{colour:?}").to_lowercase());
        effects.push(format!("coloured by its meter: {colour} while the buckets are full"));
    }
    if decision.dropped {
        effects.push("dropped".to_owned());
        return effects;
    }
    effects.extend(decision.dscp.map(|dscp| words.new_dscp(dscp)));
    if let Some(priority) = decision.vlan_priority {
        effects.push(words.new_vlan_priority(priority));
    }
    if policy.has_class() {
        effects.push(format!("in the class of policy `{}`", policy.name));
    }
    if effects.is_empty() {
        effects.push("counted only".to_owned());
    }
    effects
}
