//! `[filter.NAME]`.

use linerate_core::toml_reader::Section;

use super::Index;
use super::items::{list, one};
use crate::policy::error::{Fault, PolicyProblem};
use crate::policy::values::{self, Number};
use crate::policy::words::FAMILIES;
use crate::policy::{
    AddressRange, Conditions, DEFAULT_PRIORITY, Family, Filter, Names, Place, Range, check,
};

pub(super) fn read(
    section: &Section<'_>,
    (name, place): (String, Place),
    policies: &Index,
    names: &mut dyn Names,
) -> Result<Filter, Fault> {
    let policy = section.required("policy", "the name of what is done with its packets")?;
    let priority = section.number("priority", PRIORITIES)?;
    let conditions = conditions(section, names)?;
    check::conditions(&conditions).map_err(|conflict| conflict.at(section))?;
    let Some(index) = policies.get(policy.value) else {
        let known = policies.keys().map(String::as_str);
        let otherwise = "define it as [policy.NAME]";
        let problem = PolicyProblem::unknown("policy", policy.value, known, otherwise);
        return Err(Fault::new(policy.offset, problem));
    };
    Ok(Filter {
        name,
        place,
        priority: priority.map_or(DEFAULT_PRIORITY, |priority| priority.value),
        policy: *index,
        conditions,
    })
}

fn conditions(section: &Section<'_>, names: &mut dyn Names) -> Result<Conditions, Fault> {
    let mut conditions = Conditions {
        family: one(section, "family", family)?,
        source: addresses(section, "source", names)?,
        destination: addresses(section, "destination", names)?,
        address: addresses(section, "address", names)?,
        protocol: numbers(section, "protocol", &values::PROTOCOL)?,
        ethertype: numbers(section, "ethertype", &values::ETHERTYPE)?,
        dscp: list(section, "dscp", |text| values::dscps(text).map(single))?,
        ecn: numbers(section, "ecn", &values::ECN)?,
        icmp_code: numbers(section, "icmp_code", &values::ICMP_CODE)?,
        tcp_flags: list(section, "tcp_flags", |text| values::flags(text).map(single))?,
        flow_label: numbers(section, "flow_label", &values::FLOW_LABEL)?,
        vlan: numbers(section, "vlan", &values::VLAN)?,
        length: numbers(section, "length", &values::LENGTH)?,
        uid: list(section, "uid", |text| values::uids(text, names).map(single))?,
        cgroup: list(section, "cgroup", |text| values::cgroup(text).map(single))?,
        incoming: list(section, "incoming", |text| {
            values::interface(text).map(single)
        })?,
        ..Conditions::default()
    };
    // What a name of a service or of a type means depends on the protocol.
    let protocols = conditions.protocols_with_ports();
    let mut ports = |key| list(section, key, |text| values::ports(text, &protocols, names));
    conditions.source_port = ports("source_port")?;
    conditions.destination_port = ports("destination_port")?;
    conditions.port = ports("port")?;
    conditions.icmp_type = numbers(section, "icmp_type", values::icmp_types(&conditions))?;
    Ok(conditions)
}

fn single<T>(value: T) -> Vec<T> {
    vec![value]
}

fn numbers<T: TryFrom<u32>>(
    section: &Section<'_>,
    key: &'static str,
    number: &Number,
) -> Result<Vec<Range<T>>, Fault> {
    list(section, key, |text| number.range(text).map(single))
}

fn addresses(
    section: &Section<'_>,
    key: &'static str,
    names: &mut dyn Names,
) -> Result<Vec<AddressRange>, Fault> {
    list(section, key, |text| values::addresses(text, names))
}

fn family(text: &str) -> Result<Family, PolicyProblem> {
    let mut families = FAMILIES.iter();
    let family = families.find(|(name, _)| name.eq_ignore_ascii_case(text));
    family.map(|(_, family)| *family).ok_or_else(|| {
        let hint = "write \"ipv4\", \"ipv6\" or \"other\"";
        PolicyProblem::value("family", text, hint)
    })
}

pub(super) const PLACE: &str = "[filter.NAME]";
pub(super) const KEYS: &str = "\
    policy priority family source destination address source_port destination_port port protocol \
    ethertype dscp ecn icmp_type icmp_code tcp_flags flow_label vlan length uid cgroup incoming";

/// As HP-UX IPQoS had them.
const PRIORITIES: std::ops::RangeInclusive<u32> = 1..=2_147_483_647;
