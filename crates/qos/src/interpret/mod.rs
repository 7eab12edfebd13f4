//! The treatment of a packet in plain Rust, the definition that the compiled program must match.
//!
//! The first rule of the packet's family whose conditions all hold matches; then its meter colours
//! the packet, and it is dropped or marked. [`rewritten`] gives its changed bytes.

mod meter;
mod rewrite;
mod state;

use linerate_core::units::Dscp;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::packet::{Fields, Metadata};
use crate::policy::Fragments;
use crate::rules::{Action, Field, MAX_METERED_BYTES, Rule, RuleSet};

pub use meter::MeterState;
pub use rewrite::{Rewritten, rewritten};
pub use state::State;

/// The decision on one packet.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Decision {
    /// The rule that matches, as an index into the family's rules.
    pub rule: Option<usize>,
    /// Its new code point, if changed.
    pub dscp: Option<Dscp>,
    /// Its new VLAN priority, if changed.
    pub vlan_priority: Option<u8>,
    /// `skb->priority`, if it is set.
    pub priority: Option<u32>,
    /// Its colour, if its policy has a meter.
    pub colour: Option<Colour>,
    /// Whether it is dropped.
    pub dropped: bool,
}

/// The colour that a meter gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Colour {
    /// Within the committed rate.
    Green,
    /// Within the excess burst or the peak rate.
    Yellow,
    /// Above.
    Red,
}

/// Decides on a packet at `now_ns` of a monotonic clock above 0.
pub fn interpret(
    rules: &RuleSet,
    fields: &Fields,
    metadata: &Metadata,
    now_ns: u64,
    state: &mut State,
) -> Decision {
    let of_family = rules.family(fields.family());
    let remembered = (rules.fragments == Fragments::Track)
        .then(|| state.remembered(fields))
        .flatten()
        .filter(|rule| *rule < of_family.len());
    let rule = remembered.or_else(|| of_family.iter().position(|rule| matches(rule, fields)));
    let Some(rule) = rule else {
        return Decision { priority: rules.default_class, ..Decision::default() };
    };
    if rules.fragments == Fragments::Track {
        state.remember(fields, rule);
    }
    let action = &rules.actions[of_family[rule].action];
    let colour = action.meter.map(|meter| {
        let precolour = if meter.colour_aware {
            meter::precolour(&meter, fields.value(Field::Dscp))
        } else {
            Colour::Green
        };
        let bytes = metadata.wire_length.min(MAX_METERED_BYTES);
        let buckets = state.meter(action.slot);
        buckets.colour(&meter.buckets(), precolour, bytes, now_ns)
    });
    decide(rule, action, colour, fields)
}

/// Whether a packet meets all conditions of a rule.
pub fn matches(rule: &Rule, fields: &Fields) -> bool {
    let mut conditions = rule.conditions.iter();
    conditions.all(|(field, set)| fields.value(*field).is_some_and(|value| set.contains(value)))
}

fn decide(rule: usize, action: &Action, colour: Option<Colour>, fields: &Fields) -> Decision {
    let drops_red = action.meter.is_some_and(|meter| meter.drop_red);
    if action.drop || (drops_red && colour == Some(Colour::Red)) {
        return Decision { rule: Some(rule), colour, dropped: true, ..Decision::default() };
    }
    let of_colour =
        (action.meter.zip(colour)).and_then(|(meter, colour)| meter.colours[colour as usize]);
    let came = fields.value(Field::Dscp);
    let is_new = |dscp: &Dscp| came.is_some_and(|came| came != u128::from(dscp.octet() >> 2));
    let pcp = fields.tci().map(|tci| (tci >> 13) as u8);
    Decision {
        rule: Some(rule),
        dscp: of_colour.or(action.dscp).filter(is_new),
        vlan_priority: action.vlan_priority.filter(|new| pcp != Some(*new)),
        priority: action.class,
        colour,
        dropped: false,
    }
}

/// Counters of a policy or a filter since it was first applied, or since `stats --reset`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct CounterReport {
    /// Packets on the wire, segments of an offloaded one each.
    pub packets: u64,
    /// Bytes on the wire, with layer-2 headers.
    pub bytes: u64,
    /// Packets dropped by the policy or its meter.
    pub dropped_packets: u64,
    /// Bytes of them.
    pub dropped_bytes: u64,
    /// Packets that a meter coloured green.
    pub green: u64,
    /// Yellow.
    pub yellow: u64,
    /// Red.
    pub red: u64,
}

impl From<[u64; 7]> for CounterReport {
    /// The counters in the order of a value of the per-CPU map `counters`, native byte order.
    fn from(counted: [u64; 7]) -> Self {
        let [packets, bytes, dropped_packets, dropped_bytes, green, yellow, red] = counted;
        Self { packets, bytes, dropped_packets, dropped_bytes, green, yellow, red }
    }
}

impl Decision {
    /// What the packet adds to the counters of its filter and its policy.
    pub fn counts(&self, metadata: &Metadata) -> CounterReport {
        let packets = u64::from(metadata.gso_segments.max(1));
        let bytes = u64::from(metadata.wire_length);
        let mut counts = CounterReport { packets, bytes, ..CounterReport::default() };
        if self.dropped {
            (counts.dropped_packets, counts.dropped_bytes) = (packets, bytes);
        }
        match self.colour {
            Some(Colour::Green) => counts.green = packets,
            Some(Colour::Yellow) => counts.yellow = packets,
            Some(Colour::Red) => counts.red = packets,
            None => {}
        }
        counts
    }
}
