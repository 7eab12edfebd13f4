//! Which filter takes a packet, and why not those that are asked before it.

mod frame;
mod packet;
mod syntax;
mod words;

use std::collections::HashMap;

use crate::interpret::{Decision, State, interpret};
use crate::packet::Fields;
use crate::policy::{Adapter, Family, Place, Policy, PolicyFile};
use crate::rules::{Bindings, Rule, RuleError, RuleSet};

pub use packet::{Flow, FragmentPart, Packet, Tag, Upper, What};
pub use syntax::PacketError;

/// What becomes of a packet on an adapter that has seen none before it.
#[derive(Debug, Clone, PartialEq)]
pub struct Explanation {
    /// The packet's family.
    pub family: Family,
    /// The filter that takes it; `None` if no filter does.
    pub taken: Option<Asked>,
    /// The policy of that filter, an index of [`PolicyFile::policies`].
    pub policy: Option<usize>,
    /// What that policy does to it; meters have their buckets full.
    pub decision: Decision,
    /// The same in words, such as `DSCP CS0 becomes EF`; one entry for each thing.
    pub effects: Vec<String>,
    /// The filters that are asked before it, the first asked first.
    pub refused: Vec<Refusal>,
}

/// A filter that is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// Its index in [`PolicyFile::filters`].
    pub filter: usize,
    /// Its name.
    pub name: String,
    /// Where it is defined.
    pub place: Place,
    /// Its priority.
    pub priority: u32,
}

/// A filter that does not take the packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// Which.
    pub asked: Asked,
    /// Its first condition that does not hold, such as `destination port 443 is not 80`.
    pub why: String,
}

/// What becomes of `packet` on `adapter`.
///
/// Control groups and interfaces are compared by name: a packet is in a group that its own path
/// begins with.
///
/// # Errors
/// [`RuleError`], if the filters make too many rules.
pub fn explain(
    file: &PolicyFile,
    adapter: &Adapter,
    packet: &Packet,
) -> Result<Explanation, RuleError> {
    let bindings = Bindings::stand_in(file);
    let rules = RuleSet::new(file, adapter, &bindings)?;
    let (frame, metadata) = (packet.frame(), packet.metadata(&bindings));
    let fields = Fields::new(&frame, packet.link(), &metadata);
    let decision = interpret(&rules, &fields, &metadata, 1, &mut State::default());
    let of_family = rules.family(fields.family());
    let rule = decision.rule.map(|rule| &of_family[rule]);

    let order = Order::new(file, &rules);
    let taken = rule.map(|rule| order.positions[rule.filter]);
    let before = &order.asked[..taken.unwrap_or(order.asked.len())];
    let mut of_filter: HashMap<usize, Vec<&Rule>> = HashMap::new();
    for rule in of_family {
        of_filter.entry(rule.filter).or_default().push(rule);
    }
    let words = words::Words::new(&fields, packet, &bindings);
    let why = |(index, asked): &(usize, Asked)| Refusal {
        asked: asked.clone(),
        why: match of_filter.get(index) {
            Some(rules) => words.refusal(rules),
            None => words.no_rules(&file.filters[asked.filter].conditions),
        },
    };
    let policy = taken.map(|at| file.filters[order.asked[at].1.filter].policy);
    Ok(Explanation {
        family: fields.family(),
        taken: taken.map(|at| order.asked[at].1.clone()),
        policy,
        effects: policy.map_or_else(Vec::new, |policy| {
            effects(&file.policies[policy], &decision, &words)
        }),
        decision,
        refused: before.iter().map(why).collect(),
    })
}

/// The filters of an adapter in the order in which they are asked.
struct Order {
    /// The index in [`RuleSet::filters`] of each, and what it is in the file.
    asked: Vec<(usize, Asked)>,
    /// The place in `asked` of each of [`RuleSet::filters`].
    positions: Vec<usize>,
}

impl Order {
    fn new(file: &PolicyFile, rules: &RuleSet) -> Self {
        let numbers: HashMap<&str, usize> = (file.filters.iter().enumerate())
            .map(|(number, filter)| (filter.name.as_str(), number))
            .collect();
        let asked = |(index, (name, _)): (usize, &(String, _))| {
            let number = numbers[name.as_str()];
            let filter = &file.filters[number];
            let asked = Asked {
                filter: number,
                name: name.clone(),
                place: filter.place,
                priority: filter.priority,
            };
            (index, asked)
        };
        let mut asked: Vec<_> = rules.filters.iter().enumerate().map(asked).collect();
        asked.sort_by_key(|(_, asked)| asked.priority);
        let mut positions = vec![0; asked.len()];
        for (position, (index, _)) in asked.iter().enumerate() {
            positions[*index] = position;
        }
        Self { asked, positions }
    }
}

fn effects(policy: &Policy, decision: &Decision, words: &words::Words<'_>) -> Vec<String> {
    let mut effects = Vec::new();
    if policy.meter.is_some() {
        let colour = decision
            .colour
            .map(|colour| format!("{colour:?}").to_lowercase());
        effects.push(format!(
            "coloured by its meter: {} while the buckets are full",
            colour.unwrap_or_default()
        ));
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
