//! Reads `[policy.NAME]` and `[adapter.IFNAME]`.

use linerate_core::toml_reader::{At, Fault, Section};
use linerate_core::units::ByteCount;

use super::{Index, one, policy_of};
use crate::policy::{Adapter, Meter, MeterKind, Place, Policy, PolicyFile, check, values};

pub(super) fn policy(
    section: &Section<'_>,
    (name, place): (String, Place),
) -> Result<Policy, Fault> {
    let policy = Policy {
        name,
        place,
        dscp: one(section, "dscp", values::dscp)?,
        vlan_priority: section.number("vlan_priority", 0..=7)?,
        parent: None,
        reserve: one(section, "reserve", values::share)?,
        limit: one(section, "limit", values::share)?,
        priority: section.number("priority", 0..=7)?,
        meter: meter(section)?,
        drop: section.boolean("drop")?.unwrap_or(false),
    };
    check::policy(&policy).map_err(|conflict| conflict.at(section))?;
    Ok(policy)
}

/// Checks whether a policy can be inside its parents.
pub(super) fn nested(file: &PolicyFile, at: usize, section: &Section<'_>) -> Result<(), Fault> {
    let policy = &file.policies[at];
    let name = &policy.name;
    let refuse = |key, what: String, hint| section.contradiction(key, what, hint);
    let around: Vec<usize> = file.around(at).take(MAX_AROUND + 1).collect();
    if around.contains(&at) {
        let what = format!("policy `{name}` is inside itself");
        return refuse("parent", what, "leave `parent` away from one of them");
    }
    // A parent inside itself is reported at its own place.
    let is_circle = (1..around.len()).any(|n| around[..n].contains(&around[n]));
    if around.len() > MAX_AROUND && !is_circle {
        let what = format!("policy `{name}` is inside more than {MAX_AROUND} others");
        return refuse("parent", what, "HTB has no more levels of classes");
    }
    if policy.drop && policy.parent.is_some() {
        let hint = "what is dropped waits in no class";
        return refuse("drop", "`drop` with `parent`".to_owned(), hint);
    }
    if !file.holds(at) {
        return Ok(());
    }
    let of_packets = [
        ("dscp", policy.dscp.is_some()),
        ("vlan_priority", policy.vlan_priority.is_some()),
        ("priority", policy.priority.is_some()),
        ("meter", policy.meter.is_some()),
        ("drop", policy.drop),
    ];
    if let Some((key, _)) = of_packets.into_iter().find(|(_, is_there)| *is_there) {
        let what = format!("`{key}` of policy `{name}`, which has others inside");
        return refuse(key, what, "give it to those inside: they have the packets");
    }
    if policy.reserve.is_none() && policy.limit.is_none() {
        let what = format!("policy `{name}` has others inside, and neither `reserve` nor `limit`");
        return refuse("reserve", what, "give it one, or leave it away");
    }
    Ok(())
}

fn meter(policy: &Section<'_>) -> Result<Option<Meter>, Fault> {
    let Some(section) = policy.section("meter", "`meter`", METER_KEYS)? else {
        return Ok(None);
    };
    let mut colours = [None; 3];
    for (dscp, name) in colours.iter_mut().zip(Meter::COLOURS) {
        *dscp = one(&section, name, values::dscp)?;
    }
    let meter = Meter {
        kind: kind(&section)?,
        colour_aware: (section.choice("colour", "way to see colours", &SEES_COLOUR)?)
            .unwrap_or(false),
        colours,
        drop_red: section.boolean("drop_red")?.unwrap_or(false),
    };
    check::meter(&meter).map_err(|conflict| conflict.at(&section))?;
    Ok(Some(meter))
}

fn kind(section: &Section<'_>) -> Result<MeterKind, Fault> {
    let word = section.required("kind", "\"srtcm\" (RFC 2697) or \"trtcm\" (RFC 2698)")?;
    let is_single = word.choice("kind of meter", &[("srtcm", true), ("trtcm", false)])?;
    let foreign: &[_] = match is_single {
        true => &["peak", "peak_burst"],
        false => &["excess_burst"],
    };
    if let Some(key) = foreign.iter().find(|key| section.value(key).is_some()) {
        let what = format!("`{key}` with the kind {}", word.value);
        let hint = "srtcm has committed_burst and excess_burst, trtcm has peak and peak_burst";
        return section.contradiction(key, what, hint);
    }
    let hint = "a rate such as \"10mbit\"";
    let committed = needed(section, "committed", hint, values::rate)?;
    let hint = "a size such as \"64KiB\"";
    let burst = |key, least| needed(section, key, hint, |text| values::burst(text, least));
    if is_single {
        return Ok(MeterKind::SingleRate {
            committed,
            committed_burst: burst("committed_burst", 0)?,
            excess_burst: one(section, "excess_burst", |text| values::burst(text, 0))?
                .unwrap_or(ByteCount(0)),
        });
    }
    Ok(MeterKind::TwoRate {
        committed,
        committed_burst: burst("committed_burst", 1)?,
        peak: needed(section, "peak", "a rate such as \"20mbit\"", values::rate)?,
        peak_burst: burst("peak_burst", 1)?,
    })
}

fn needed<T>(
    section: &Section<'_>,
    key: &'static str,
    hint: &'static str,
    read: impl FnOnce(&str) -> Result<T, String>,
) -> Result<T, Fault> {
    one(section, key, read)?.ok_or_else(|| section.missing(key, hint))
}

pub(super) fn adapter(
    name: &At<&str>,
    section: &Section<'_>,
    place: Place,
    policies: &Index,
) -> Result<Adapter, Fault> {
    if name.value != "*" {
        values::interface(name.value).map_err(|problem| Fault::new(name.offset, problem))?;
    }
    Ok(Adapter {
        name: name.value.to_owned(),
        place,
        rate: one(section, "rate", values::rate)?,
        policies: policies_of(section, policies)?,
        ingress: section.boolean("ingress")?.unwrap_or(false),
    })
}

fn policies_of(section: &Section<'_>, policies: &Index) -> Result<Vec<usize>, Fault> {
    let Some(names) = section.strings("policies")? else {
        return Err(section.missing("policies", "a list of names of policies"));
    };
    if names.is_empty() {
        let what = "`policies` is an empty list";
        return section.contradiction("policies", what, "name one at least");
    }
    let mut indices = Vec::with_capacity(names.len());
    for name in names {
        let index = policy_of(&name, policies)?;
        if indices.contains(&index) {
            let what = format!("policy `{}` is there twice", name.value);
            let hint = "an adapter has each policy once";
            return Fault::contradiction(name.offset, what, hint);
        }
        indices.push(index);
    }
    Ok(indices)
}

impl check::Conflict {
    /// The fault at the key's value.
    pub(super) fn at(self, section: &Section<'_>) -> Fault {
        let problem = format!("{}: {}", self.what, self.hint);
        Fault::new(section.offset_of(self.key), problem)
    }
}

/// Whether a meter considers the colour of arriving packets.
const SEES_COLOUR: [(&str, bool); 2] = [("aware", true), ("blind", false)];
pub(super) const POLICY_KEYS: &str = "dscp vlan_priority parent reserve limit priority meter drop";
/// HTB has eight levels: the link's class, these, and the one with the packets.
const MAX_AROUND: usize = 4;
const METER_KEYS: &str = "\
    kind committed committed_burst excess_burst peak peak_burst colour green yellow red drop_red";
pub(super) const ADAPTER_KEYS: &str = "rate policies ingress";
