//! Checks for contradictions, in both syntaxes, and the words for what is wrong with a file.

use std::fmt::Display;

use linerate_core::toml_reader::Fault;
use linerate_core::units::{shortened, suggestion};

use super::words::{
    ETHERTYPE_IPV4, ETHERTYPE_IPV6, ICMP, ICMPV6, PROTOCOLS, PROTOCOLS_WITH_PORTS, TCP,
};
use super::{AddressRange, Conditions, Family, Meter, MeterKind, Place, Policy, Range, Share};

/// Two keys of one table that contradict each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Conflict {
    /// The key at which it is noticed.
    pub(super) key: &'static str,
    pub(super) what: String,
    pub(super) hint: &'static str,
}

impl Conflict {
    fn of<T>(key: &'static str, what: impl Into<String>, hint: &'static str) -> Result<T, Self> {
        let what = what.into();
        Err(Self { key, what, hint })
    }
}

/// A set of [`Family`], one bit each.
type Families = u8;

const V4: Families = 1;
const V6: Families = 2;
const OTHER: Families = 4;
const IP: Families = V4 | V6;

impl Conditions {
    /// The families whose packets can meet all conditions, as far as single conditions tell; never
    /// empty in a file that was read.
    pub fn families(&self) -> Vec<Family> {
        let set = family_sets(self).into_iter().fold(IP | OTHER, |all, (_, one)| all & one);
        let families = Family::ALL.into_iter();
        families.filter(|family| set & bit(*family) != 0).collect()
    }

    /// The protocols with ports that the filter accepts.
    pub(super) fn protocols_with_ports(&self) -> Vec<u8> {
        let mut protocols = PROTOCOLS_WITH_PORTS.to_vec();
        protocols.retain(|protocol| self.allows(*protocol));
        protocols
    }

    /// Whether a packet of this protocol can match.
    pub(super) fn allows(&self, protocol: u8) -> bool {
        self.protocol.is_empty() || self.protocol.iter().any(|range| range.contains(protocol))
    }
}

fn bit(family: Family) -> Families {
    match family {
        Family::V4 => V4,
        Family::V6 => V6,
        Family::Other => OTHER,
    }
}

/// The families that each condition accepts.
fn family_sets(conditions: &Conditions) -> Vec<(&'static str, Families)> {
    let mut sets = Vec::new();
    if !conditions.family.is_empty() {
        let families = conditions.family.iter();
        sets.push(("family", families.fold(0, |all, one| all | bit(*one))));
    }
    let addresses = [
        ("source", &conditions.source),
        ("destination", &conditions.destination),
        ("address", &conditions.address),
    ];
    for (key, ranges) in addresses {
        sets.extend(of_addresses(ranges).map(|set| (key, set)));
    }
    if !conditions.ethertype.is_empty() {
        sets.push(("ethertype", of_ethertypes(&conditions.ethertype)));
    }
    if !conditions.flow_label.is_empty() {
        sets.push(("flow_label", V6));
    }
    let of_ip = [
        ("protocol", conditions.protocol.is_empty()),
        ("source_port", conditions.source_port.is_empty()),
        ("destination_port", conditions.destination_port.is_empty()),
        ("port", conditions.port.is_empty()),
        ("dscp", conditions.dscp.is_empty()),
        ("ecn", conditions.ecn.is_empty()),
        ("icmp_type", conditions.icmp_type.is_empty()),
        ("icmp_code", conditions.icmp_code.is_empty()),
        ("tcp_flags", conditions.tcp_flags.is_empty()),
        ("length", conditions.length.is_empty()),
    ];
    let asked = of_ip.into_iter().filter(|(_, is_empty)| !is_empty);
    sets.extend(asked.map(|(key, _)| (key, IP)));
    sets
}

fn of_addresses(ranges: &[AddressRange]) -> Option<Families> {
    let set_of = |range: &AddressRange| if range.first.is_ipv4() { V4 } else { V6 };
    ranges.iter().map(set_of).reduce(|one, other| one | other)
}

fn of_ethertypes(ranges: &[Range<u16>]) -> Families {
    let mut set = 0;
    for range in ranges {
        let ip = [(ETHERTYPE_IPV4, V4), (ETHERTYPE_IPV6, V6)];
        let held: Vec<_> = ip.iter().filter(|(number, _)| range.contains(*number)).collect();
        set |= held.iter().fold(0, |all, (_, one)| all | one);
        if usize::from(range.last - range.first) + 1 > held.len() {
            set |= OTHER;
        }
    }
    set
}

fn named(set: Families) -> String {
    let names = [(V4, "IPv4"), (V6, "IPv6"), (OTHER, "other packets")];
    let held = names.iter().filter(|(one, _)| set & one != 0);
    held.map(|(_, name)| *name).collect::<Vec<_>>().join(" and ")
}

/// Checks whether any packet can meet all conditions.
pub(super) fn conditions(conditions: &Conditions) -> Result<(), Conflict> {
    families(conditions)?;
    let transport = [
        ("source_port", !conditions.source_port.is_empty()),
        ("destination_port", !conditions.destination_port.is_empty()),
        ("port", !conditions.port.is_empty()),
        ("icmp_type", !conditions.icmp_type.is_empty()),
        ("icmp_code", !conditions.icmp_code.is_empty()),
        ("tcp_flags", !conditions.tcp_flags.is_empty()),
    ];
    let mut first: Option<(&str, &[u8])> = None;
    for (key, is_asked) in transport {
        if !is_asked {
            continue;
        }
        let (protocols, hint) = carriers(key);
        if !protocols.iter().any(|one| conditions.allows(*one)) {
            let protocol = protocols_in_words(&conditions.protocol);
            return Conflict::of(key, format!("`{key}` with {protocol}"), hint);
        }
        match first {
            Some((other, theirs)) if !theirs.iter().any(|one| protocols.contains(one)) => {
                let hint = "no packet has both: write two filters";
                return Conflict::of(key, format!("`{key}` with `{other}`"), hint);
            }
            _ => first = first.or(Some((key, protocols))),
        }
    }
    Ok(())
}

/// The protocols that have the field of a key.
fn carriers(key: &str) -> (&'static [u8], &'static str) {
    match key {
        "icmp_type" | "icmp_code" => (&[ICMP, ICMPV6], "only ICMP and ICMPv6 have it"),
        "tcp_flags" => (&[TCP], "only TCP has flags"),
        _ => (
            &PROTOCOLS_WITH_PORTS,
            "TCP, UDP, UDP-Lite, SCTP and DCCP have ports, no other protocol does",
        ),
    }
}

fn protocols_in_words(ranges: &[Range<u8>]) -> String {
    match ranges {
        [range] if range.first == range.last => {
            format!("the protocol {}", PROTOCOLS.written(range.first))
        }
        _ => "these protocols".to_owned(),
    }
}

fn families(conditions: &Conditions) -> Result<(), Conflict> {
    let mut left = (IP | OTHER, "");
    for (key, set) in family_sets(conditions) {
        let (allowed, by) = left;
        if allowed & set == 0 {
            let (one, other) = (named(allowed), named(set));
            let what = format!("`{by}` is for {one} only and `{key}` for {other}");
            return Conflict::of(key, what, "no packet is both: write two filters");
        }
        if allowed & set != allowed {
            left = (allowed & set, key);
        }
    }
    Ok(())
}

/// Checks whether the parts of a policy are consistent.
pub(super) fn policy(policy: &Policy) -> Result<(), Conflict> {
    if policy.drop {
        let others = [
            ("dscp", policy.dscp.is_some()),
            ("vlan_priority", policy.vlan_priority.is_some()),
            ("reserve", policy.reserve.is_some()),
            ("limit", policy.limit.is_some()),
            ("priority", policy.priority.is_some()),
            ("meter", policy.meter.is_some()),
        ];
        if let Some((key, _)) = others.into_iter().find(|(_, is_there)| *is_there) {
            let hint = "what is dropped has no mark and no rate";
            return Conflict::of(key, format!("`{key}` with `drop`"), hint);
        }
    }
    let below = match (policy.limit, policy.reserve) {
        (Some(Share::Rate(limit)), Some(Share::Rate(reserve))) => limit < reserve,
        (Some(Share::Percent(limit)), Some(Share::Percent(reserve))) => limit < reserve,
        _ => false,
    };
    if below {
        let hint = "a class may always use what it has reserved";
        return Conflict::of("limit", "`limit` is below `reserve`", hint);
    }
    policy.meter.as_ref().map_or(Ok(()), meter)
}

/// Checks whether the parts of a meter are consistent.
pub(super) fn meter(meter: &Meter) -> Result<(), Conflict> {
    match meter.kind {
        MeterKind::TwoRate { committed, peak, .. } if peak < committed => {
            let hint = "the peak rate of RFC 2698 is at least the committed one";
            return Conflict::of("peak", "`peak` is below `committed`", hint);
        }
        MeterKind::SingleRate { committed_burst, excess_burst, .. }
            if committed_burst.0 == 0 && excess_burst.0 == 0 =>
        {
            let hint = "RFC 2697 asks for one of them above 0, else every packet is red";
            let what = "`committed_burst` and `excess_burst` are both 0";
            return Conflict::of("committed_burst", what, hint);
        }
        _ => {}
    }
    let [_, yellow, red] = meter.colours;
    if !meter.colour_aware {
        if meter.drop_red && red.is_some() {
            let hint = "a dropped packet has no code point";
            return Conflict::of("red", "`red` with `drop_red`", hint);
        }
        return Ok(());
    }
    if yellow.is_none() && red.is_none() {
        let hint = "give the code points with which yellow or red packets come";
        let what = "`colour = \"aware\"` without `yellow` and `red`";
        return Conflict::of("colour", what, hint);
    }
    let colours: Vec<_> = meter.code_points().collect();
    for (index, (key, dscp)) in colours.iter().enumerate() {
        if let Some((other, _)) = colours[..index].iter().find(|(_, taken)| taken == dscp) {
            let what = format!("`{key}` and `{other}` are both {dscp}");
            let hint = "a colour-aware meter tells packets apart by their code points";
            return Conflict::of(key, what, hint);
        }
    }
    Ok(())
}

// Errors of a policy file, in words, with their lines.

/// A value that cannot be parsed or is not allowed.
pub(super) fn no_value(what: &str, text: &str, hint: impl Display) -> String {
    format!("`{}` is no {what}; {hint}", shortened(text))
}

/// A name that nothing has: the hint is the known one that looks like it, or `otherwise`.
pub(super) fn unknown<'a>(
    what: &str,
    name: &str,
    known: impl IntoIterator<Item = &'a str>,
    otherwise: &str,
) -> String {
    let hint = suggestion(name, known).unwrap_or_else(|| otherwise.to_owned());
    format!("there is no {what} `{}`; {hint}", shortened(name))
}

/// A host, a service or a user that is not known here.
pub(super) fn not_known(what: &str, name: &str, why: &str) -> String {
    format!("{what} `{}` is not known: {why}", shortened(name))
}

/// More of something than a file may have.
pub(super) fn too_many<T>(
    offset: usize,
    what: &str,
    found: usize,
    most: usize,
) -> Result<T, Fault> {
    let problem = format!("{found} {what}: there may be at most {most}");
    Err(Fault::new(offset, problem))
}

/// The offsets at which the lines of a text begin: a file has thousands of filters, and each stores
/// its place.
pub(super) struct Lines<'a> {
    text: &'a str,
    begins: Vec<usize>,
}

impl<'a> Lines<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        let newlines = text.match_indices('\n').map(|(at, _)| at + 1);
        Self { text, begins: std::iter::once(0).chain(newlines).collect() }
    }

    /// Line and column of a byte, both counted from 1, the column in characters.
    pub(super) fn place(&self, offset: usize) -> Place {
        let line = self.begins.partition_point(|begin| *begin <= offset);
        let before = self.text.get(self.begins[line - 1]..offset);
        Place { line, column: before.map_or(1, |before| before.chars().count() + 1) }
    }
}
