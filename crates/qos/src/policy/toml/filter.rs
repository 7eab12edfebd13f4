//! Reads `[filter.NAME]`.

use std::collections::{BTreeMap, BTreeSet};

use linerate_core::toml_reader::{Fault, Section};

use super::super::check::{no_value, unknown};
use super::{Index, list, policy_of};
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
        dscp: ranges(section, "dscp", values::DSCP.all(), |text| values::dscps(text).map(single))?,
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
        incoming: list(section, "incoming", |text| values::interface(text).map(single))?,
        mark: marks(section)?,
        source_mac: macs(section, "source_mac")?,
        destination_mac: macs(section, "destination_mac")?,
        ..Conditions::default()
    };
    // The meaning of a service or type name depends on the protocol.
    let protocols = conditions.protocols_with_ports();
    let mut ports = |key| {
        ranges(section, key, values::PORT.all(), |text| values::ports(text, &protocols, names))
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
    ranges(section, key, number.all(), |text| number.range(text).map(single))
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

/// Removes what stands after `!` from the other alternatives, or from all values. `span` gives the
/// numbers of one, and their kind: what is taken is of the same kind; `of` is the way back.
fn remaining<T, K: Ord + Copy>(
    section: &Section<'_>,
    key: &'static str,
    (listed, taken): (Vec<T>, Vec<T>),
    span: impl Fn(&T) -> (K, Span),
    all: impl Fn(K) -> Span,
    of: impl Fn(K, Span) -> Option<T>,
) -> Result<Vec<T>, Fault> {
    if taken.is_empty() {
        return Ok(listed);
    }
    let spans = |ranges: &[T], kind: K| -> Vec<Span> {
        let own = ranges.iter().map(&span).filter(|(own, _)| *own == kind);
        own.map(|(_, span)| span).collect()
    };
    let kinds: BTreeSet<K> = listed.iter().chain(&taken).map(|one| span(one).0).collect();
    let mut left = Vec::new();
    for kind in kinds {
        let from = match listed[..] {
            [] => vec![all(kind)],
            _ => spans(&listed, kind),
        };
        let rest = values::without(from, &spans(&taken, kind)).into_iter();
        left.extend(rest.filter_map(|span| of(kind, span)));
    }
    if left.is_empty() {
        let what = format!("`{key}` leaves nothing");
        return section.contradiction(key, what, "what stands behind `!` is taken from the rest");
    }
    Ok(left)
}

fn ranges<T: TryFrom<u128> + Into<u128> + Copy>(
    section: &Section<'_>,
    key: &'static str,
    all: Span,
    read: impl FnMut(&str) -> Result<Vec<Range<T>>, String>,
) -> Result<Vec<Range<T>>, Fault> {
    let span = |range: &Range<T>| ((), (range.first.into(), range.last.into()));
    let range = |(), (first, last): Span| {
        let (first, last) = (T::try_from(first).ok()?, T::try_from(last).ok()?);
        Some(Range { first, last })
    };
    let alternatives = alternatives(section, key, read)?;
    remaining(section, key, alternatives, span, |()| all, range)
}

fn macs(section: &Section<'_>, key: &'static str) -> Result<Vec<Range<Mac>>, Fault> {
    let all = (0, u128::from(Mac::LAST));
    ranges(section, key, all, |text| values::macs(text).map(single))
}

/// Reads marks; with one after `!` all have the same mask.
fn marks(section: &Section<'_>) -> Result<Vec<MarkRange>, Fault> {
    let (listed, taken) = alternatives(section, "mark", |text| values::mark(text).map(single))?;
    let masks: BTreeSet<u32> = listed.iter().chain(&taken).map(|mark| mark.mask).collect();
    if !taken.is_empty() && masks.len() > 1 {
        let what = "`mark` with `!` has several masks";
        return section.contradiction("mark", what, "write one mask for all its values");
    }
    let span = |mark: &MarkRange| (mark.mask, (mark.range.first.into(), mark.range.last.into()));
    let mark = |mask, (first, last): Span| {
        let (first, last) = (first.try_into().ok()?, last.try_into().ok()?);
        Some(MarkRange { mask, range: Range { first, last } })
    };
    remaining(section, "mark", (listed, taken), span, |mask| (0, mask.into()), mark)
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
    let alternatives = alternatives(section, key, |text| match text.strip_prefix('@') {
        Some(name) => sets.get(name).cloned().ok_or_else(|| {
            let known = sets.keys().map(String::as_str);
            unknown("set", name, known, "define it as [set.NAME]")
        }),
        None => values::addresses(text, names),
    })?;
    let all = |bits| (0, u128::MAX >> (128 - bits));
    let range = |bits, span| Some(AddressRange::from_span(bits, span));
    remaining(section, key, alternatives, AddressRange::span, all, range)
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
