//! Reads `[filter.NAME]`.

use std::collections::BTreeMap;

use linerate_core::toml_reader::{Fault, Section};

use super::{Index, list, policy_of};
use crate::policy::error::{no_value, unknown};
use crate::policy::values::{self, Number, Span};
use crate::policy::words::FAMILIES;
use crate::policy::{
    AddressRange, Conditions, DEFAULT_PRIORITY, Family, Filter, Mac, MarkRange, Names, Place,
    Range, check,
};

pub(super) fn read(
    section: &Section<'_>,
    (name, place): (String, Place),
    policies: &Index,
    names: &mut dyn Names,
    sets: &Sets,
) -> Result<Filter, Fault> {
    let policy = section.required("policy", "the name of what is done with its packets")?;
    let priority = section.number("priority", PRIORITIES)?;
    let conditions = conditions(section, names, sets)?;
    check::conditions(&conditions).map_err(|conflict| conflict.at(section))?;
    Ok(Filter {
        name,
        place,
        priority: priority.unwrap_or(DEFAULT_PRIORITY),
        policy: policy_of(&policy, policies)?,
        conditions,
    })
}

fn conditions(
    section: &Section<'_>,
    names: &mut dyn Names,
    sets: &Sets,
) -> Result<Conditions, Fault> {
    let mut conditions = Conditions {
        family: list(section, "family", |text| family(text).map(single))?,
        source: addresses(section, "source", names, sets)?,
        destination: addresses(section, "destination", names, sets)?,
        address: addresses(section, "address", names, sets)?,
        protocol: numbers(section, "protocol", &values::PROTOCOL)?,
        ethertype: numbers(section, "ethertype", &values::ETHERTYPE)?,
        dscp: ranges(section, "dscp", values::DSCP.all(), |text| {
            values::dscps(text).map(single)
        })?,
        ecn: numbers(section, "ecn", &values::ECN)?,
        icmp_code: numbers(section, "icmp_code", &values::ICMP_CODE)?,
        tcp_flags: list(section, "tcp_flags", |text| values::flags(text).map(single))?,
        flow_label: numbers(section, "flow_label", &values::FLOW_LABEL)?,
        vlan: numbers(section, "vlan", &values::VLAN)?,
        length: numbers(section, "length", &values::LENGTH)?,
        uid: ranges(section, "uid", values::UID.all(), |text| {
            values::uids(text, names).map(single)
        })?,
        cgroup: list(section, "cgroup", |text| values::cgroup(text).map(single))?,
        incoming: list(section, "incoming", |text| {
            values::interface(text).map(single)
        })?,
        mark: marks(section)?,
        source_mac: macs(section, "source_mac")?,
        destination_mac: macs(section, "destination_mac")?,
        ..Conditions::default()
    };
    // The meaning of a service or type name depends on the protocol.
    let protocols = conditions.protocols_with_ports();
    let mut ports = |key| {
        ranges(section, key, values::PORT.all(), |text| {
            values::ports(text, &protocols, names)
        })
    };
    conditions.source_port = ports("source_port")?;
    conditions.destination_port = ports("destination_port")?;
    conditions.port = ports("port")?;
    conditions.icmp_type = numbers(section, "icmp_type", values::icmp_types(&conditions))?;
    Ok(conditions)
}

fn single<T>(value: T) -> Vec<T> {
    vec![value]
}

fn numbers<T: TryFrom<u32> + TryFrom<u128> + Into<u128> + Copy>(
    section: &Section<'_>,
    key: &'static str,
    number: &Number,
) -> Result<Vec<Range<T>>, Fault> {
    ranges(section, key, number.all(), |text| {
        number.range(text).map(single)
    })
}

/// Reads alternatives, and those after `!`, which are removed from the alternatives or from all
/// values.
fn alternatives<T>(
    section: &Section<'_>,
    key: &'static str,
    mut read: impl FnMut(&str) -> Result<Vec<T>, String>,
) -> Result<(Vec<T>, Vec<T>), Fault> {
    let mut taken = Vec::new();
    let listed = list(section, key, |text| match text.strip_prefix('!') {
        Some(text) => {
            taken.extend(read(text)?);
            Ok(Vec::new())
        }
        None => read(text),
    })?;
    Ok((listed, taken))
}

fn nothing_left<T>(section: &Section<'_>, key: &str) -> Result<T, Fault> {
    let what = format!("`{key}` leaves nothing");
    section.contradiction(key, what, "what stands behind `!` is taken from the rest")
}

fn ranges<T: TryFrom<u128> + Into<u128> + Copy>(
    section: &Section<'_>,
    key: &'static str,
    all: Span,
    read: impl FnMut(&str) -> Result<Vec<Range<T>>, String>,
) -> Result<Vec<Range<T>>, Fault> {
    let (listed, taken) = alternatives(section, key, read)?;
    remaining(section, key, all, listed, &taken)
}

fn macs(section: &Section<'_>, key: &'static str) -> Result<Vec<Range<Mac>>, Fault> {
    let all = (0, u128::from(Mac::LAST));
    ranges(section, key, all, |text| values::macs(text).map(single))
}

/// Reads marks; those after `!` are removed from marks of the same mask, and no other mask is
/// allowed.
fn marks(section: &Section<'_>) -> Result<Vec<MarkRange>, Fault> {
    let (listed, taken) = alternatives(section, "mark", |text| values::mark(text).map(single))?;
    let Some(mask) = taken.first().map(|mark| mark.mask) else {
        return Ok(listed);
    };
    if listed.iter().chain(&taken).any(|mark| mark.mask != mask) {
        let what = "`mark` with `!` has several masks";
        return section.contradiction("mark", what, "write one mask for all its values");
    }
    let range = |mark: MarkRange| mark.range;
    let listed = listed.into_iter().map(range).collect();
    let taken: Vec<_> = taken.into_iter().map(range).collect();
    let left = remaining(section, "mark", (0, mask.into()), listed, &taken)?;
    let masked = |range| MarkRange { mask, range };
    Ok(left.into_iter().map(masked).collect())
}

/// Removes `taken` from `listed`, or from all values.
fn remaining<T: TryFrom<u128> + Into<u128> + Copy>(
    section: &Section<'_>,
    key: &'static str,
    all: Span,
    listed: Vec<Range<T>>,
    taken: &[Range<T>],
) -> Result<Vec<Range<T>>, Fault> {
    if taken.is_empty() {
        return Ok(listed);
    }
    let span = |range: &Range<T>| (range.first.into(), range.last.into());
    let from = if listed.is_empty() {
        vec![all]
    } else {
        listed.iter().map(span).collect()
    };
    let taken: Vec<_> = taken.iter().map(span).collect();
    let left = values::without(from, &taken).into_iter();
    let range = |(first, last): Span| {
        let (first, last) = (T::try_from(first).ok()?, T::try_from(last).ok()?);
        Some(Range { first, last })
    };
    let left: Vec<_> = left.filter_map(range).collect();
    if left.is_empty() {
        return nothing_left(section, key);
    }
    Ok(left)
}

/// The addresses of each `[set.NAME]`, for `@NAME`.
pub(super) type Sets = BTreeMap<String, Vec<AddressRange>>;

/// Reads `[set.NAME]`.
pub(super) fn set(
    section: &Section<'_>,
    names: &mut dyn Names,
) -> Result<Vec<AddressRange>, Fault> {
    if section.value("addresses").is_none() {
        return Err(section.missing("addresses", "a list of addresses"));
    }
    addresses(section, "addresses", names, &Sets::new())
}

fn addresses(
    section: &Section<'_>,
    key: &'static str,
    names: &mut dyn Names,
    sets: &Sets,
) -> Result<Vec<AddressRange>, Fault> {
    let (listed, taken) = alternatives(section, key, |text| match text.strip_prefix('@') {
        Some(name) => sets.get(name).cloned().ok_or_else(|| {
            let known = sets.keys().map(String::as_str);
            unknown("set", name, known, "define it as [set.NAME]")
        }),
        None => values::addresses(text, names),
    })?;
    if taken.is_empty() {
        return Ok(listed);
    }
    let mut left = Vec::new();
    for bits in [32, 128] {
        let of_family = |ranges: &[AddressRange]| -> Vec<Span> {
            let spans = ranges.iter().map(AddressRange::span);
            let spans = spans.filter(|(of, _)| *of == bits);
            spans.map(|(_, span)| span).collect()
        };
        let taken = of_family(&taken);
        let from = match (listed.is_empty(), taken.is_empty()) {
            (true, true) => continue,
            (true, false) => vec![(0, u128::MAX >> (128 - bits))],
            (false, _) => of_family(&listed),
        };
        let spans = values::without(from, &taken).into_iter();
        left.extend(spans.map(|span| AddressRange::from_span(bits, span)));
    }
    if left.is_empty() {
        return nothing_left(section, key);
    }
    Ok(left)
}

fn family(text: &str) -> Result<Family, String> {
    let mut families = FAMILIES.iter();
    let family = families.find(|(name, _)| name.eq_ignore_ascii_case(text));
    family.map(|(_, family)| *family).ok_or_else(|| {
        let hint = "write \"ipv4\", \"ipv6\" or \"other\"";
        no_value("family", text, hint)
    })
}

pub(super) const KEYS: &str = "\
    policy priority family source destination address source_port destination_port port protocol \
    ethertype dscp ecn icmp_type icmp_code tcp_flags flow_label vlan length uid cgroup incoming \
    mark source_mac destination_mac";

/// The range of HP-UX IPQoS.
const PRIORITIES: std::ops::RangeInclusive<u32> = 1..=2_147_483_647;
