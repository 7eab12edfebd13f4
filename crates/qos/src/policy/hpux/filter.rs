//! Reads `filter NAME` of an IPQoS file.

use std::borrow::Cow;
use std::net::IpAddr;

use linerate_core::toml_reader::{At, Fault};

use super::blocks::HpuxBlock;
use crate::policy::values::{self, Number};
use crate::policy::words::{ETHERTYPE_IPV4, ETHERTYPE_IPV6, PROTOCOLS, PROTOCOLS_WITH_PORTS};
use crate::policy::{AddressRange, Conditions, Family, Names, Range, check};

type Result<T> = std::result::Result<T, Fault>;

pub(super) fn conditions(block: &HpuxBlock<'_>, names: &mut dyn Names) -> Result<Conditions> {
    if block.count_without(&["pri"]) == 0 {
        let what = format!("filter `{}` has no conditions", block.name.value);
        let hint = "give at least one attribute";
        return Fault::contradiction(block.name.offset, what, hint);
    }
    let mut conditions = Conditions {
        dscp: numbers(block, ["dscp", "dscplo", "dscphi"], &values::DSCP)?,
        ..Conditions::default()
    };
    network(block, &mut conditions)?;
    addresses(block, &mut conditions, names)?;
    if let Some(at) = block.value("dstphysaddr")? {
        let mac = located(at, values::macs(at.value))?;
        conditions.destination_mac.push(mac);
    }
    if let Some(at) = block.value("protocol")? {
        let number = located(at, values::PROTOCOL.range(&decimal(at.value)))?;
        conditions.protocol.push(number);
    }
    ports(block, &mut conditions, names)?;
    check::conditions(&conditions).map_err(|conflict| conflict.in_hpux(block))?;
    Ok(conditions)
}

/// Reads `net`, an EtherType; those of IP give the family.
fn network(block: &HpuxBlock<'_>, conditions: &mut Conditions) -> Result<()> {
    let Some(at) = block.value("net")? else {
        return Ok(());
    };
    let number: Range<u16> = located(at, values::ETHERTYPE.range(&decimal(at.value)))?;
    match number.first {
        ETHERTYPE_IPV4 => conditions.family.push(Family::V4),
        ETHERTYPE_IPV6 => conditions.family.push(Family::V6),
        _ => conditions.ethertype.push(number),
    }
    Ok(())
}

/// Reads addresses. A host's addresses of a family that the filter's other addresses or `net`
/// exclude are dropped: IPQoS takes the filter's family from the first literal address.
fn addresses(
    block: &HpuxBlock<'_>,
    conditions: &mut Conditions,
    names: &mut dyn Names,
) -> Result<()> {
    let mut family = conditions.family.first().copied();
    let mut lists = [Vec::new(), Vec::new(), Vec::new()];
    for (list, words) in lists.iter_mut().zip(ADDRESSES) {
        *list = address_list(block, words, names)?;
        for word in words.iter().filter(|word| !word.is_empty()) {
            let address = block.value(word)?.and_then(|at| at.value.parse::<IpAddr>().ok());
            family = family.or(address.map(family_of));
        }
    }
    for (list, words) in lists.iter_mut().zip(ADDRESSES) {
        let text = block.value(words[0])?;
        let is_name = text.is_some_and(|at| at.value.parse::<IpAddr>().is_err());
        let Some(family) = family.filter(|_| is_name) else {
            continue;
        };
        list.retain(|range: &AddressRange| family_of(range.first) == family);
        if list.is_empty() {
            let at = block.value(words[0])?.map_or("", |at| at.value);
            let what = format!("host `{at}` has no address of the filter's family");
            let hint = "write a filter for each family";
            return Fault::contradiction(block.offset(words[0]), what, hint);
        }
    }
    [conditions.source, conditions.destination, conditions.address] = lists;
    Ok(())
}

fn family_of(address: IpAddr) -> Family {
    match address {
        IpAddr::V4(_) => Family::V4,
        IpAddr::V6(_) => Family::V6,
    }
}

/// Words for one address and for both ends of a range; `addr` has no range.
const ADDRESSES: [[&str; 3]; 3] = [
    ["srcaddr", "srcaddrlo", "srcaddrhi"],
    ["dstaddr", "dstaddrlo", "dstaddrhi"],
    ["addr", "", ""],
];

fn address_list(
    block: &HpuxBlock<'_>,
    words: [&str; 3],
    names: &mut dyn Names,
) -> Result<Vec<AddressRange>> {
    match ends(block, words)? {
        None => Ok(Vec::new()),
        Some((at, None)) => {
            let is_name = at.value.contains(char::is_alphabetic) && !at.value.contains(['/', ':']);
            if !is_name && at.value.parse::<IpAddr>().is_err() {
                let hint =
                    "write one address or a host's name; a range has its ends behind …lo and …hi";
                return Fault::malformed(at, "address", hint);
            }
            located(at, values::addresses(at.value, names))
        }
        Some((low, Some(high))) => {
            let address = |at: At<&str>| {
                let hint = "the end of a range is written as an address";
                let address = at.value.parse::<IpAddr>();
                address.or_else(|_| Fault::malformed(at, "address", hint))
            };
            let text = format!("{}-{}", low.value, high.value);
            let range = values::address_range(&text, address(low)?, address(high)?);
            located(low, range).map(|range| vec![range])
        }
    }
}

type Ends<'a> = (At<&'a str>, Option<At<&'a str>>);

/// A single value, or both ends of a range; one end alone stands for both.
fn ends<'a>(block: &HpuxBlock<'a>, [one, low, high]: [&str; 3]) -> Result<Option<Ends<'a>>> {
    let single = block.value(one)?;
    let range = (block.value(low)?, block.value(high)?);
    match (single, range) {
        (None, (None, None)) => Ok(None),
        (Some(at), (None, None)) => Ok(Some((at, None))),
        (None, (Some(low), Some(high))) => Ok(Some((low, Some(high)))),
        (None, (Some(at), None) | (None, Some(at))) => Ok(Some((at, Some(at)))),
        (Some(_), _) => {
            let what = format!("`{one}` with `{low}` or `{high}`");
            let hint = "write the one value, or the range";
            Fault::contradiction(block.offset(one), what, hint)
        }
    }
}

fn numbers<T: TryFrom<u32> + Copy + PartialOrd>(
    block: &HpuxBlock<'_>,
    words: [&str; 3],
    number: &Number,
) -> Result<Vec<Range<T>>> {
    match ends(block, words)? {
        None => Ok(Vec::new()),
        Some((at, None)) => located(at, number.single(&decimal(at.value))).map(|one| vec![one]),
        Some((low, Some(high))) => {
            let end = |at: At<&str>| located(at, number.single::<T>(&decimal(at.value)));
            let (first, last) = (end(low)?.first, end(high)?.last);
            if first > last {
                let text = format!("{}-{}", low.value, high.value);
                let hint = "its low end is above its high end";
                return Fault::malformed(low.map(|_| &text[..]), "range", hint);
            }
            Ok(vec![Range { first, last }])
        }
    }
}

/// Reads ports, and the protocols that come with service names.
fn ports(block: &HpuxBlock<'_>, conditions: &mut Conditions, names: &mut dyn Names) -> Result<()> {
    let mut lists = [Vec::new(), Vec::new(), Vec::new()];
    for (list, words) in lists.iter_mut().zip(PORTS) {
        let service = ends(block, words)?;
        *list = match service {
            Some((at, None)) if !at.value.starts_with(|c: char| c.is_ascii_digit()) => {
                service_ports(at, conditions, names)?
            }
            _ => numbers(block, words, &values::PORT)?,
        };
    }
    [conditions.source_port, conditions.destination_port, conditions.port] = lists;
    Ok(())
}

const PORTS: [[&str; 3]; 3] = [
    ["srcport", "srcportlo", "srcporthi"],
    ["dstport", "dstportlo", "dstporthi"],
    ["port", "", ""],
];

/// Reads `http/tcp`, or `http` for the service's ports with any of its protocols.
fn service_ports(
    at: At<&str>,
    conditions: &mut Conditions,
    names: &mut dyn Names,
) -> Result<Vec<Range<u16>>> {
    let (service, allowed) = service_of(at)?;
    let mut found: Vec<(u8, Vec<Range<u16>>)> = Vec::new();
    for protocol in allowed.iter().filter(|one| conditions.allows(**one)) {
        if let Ok(ports) = values::ports(service, &[*protocol], names) {
            found.push((*protocol, ports));
        }
    }
    let Some((_, ports)) = found.first() else {
        // The reason is unclear if only the filter's protocols were asked for.
        let none = || {
            let hint = "name it otherwise, or write a filter for each protocol";
            format!("`{}` is not a service with the filter's protocols: {hint}", at.value)
        };
        let why = values::ports(service, &allowed, names).err();
        let refused = why.filter(|_| conditions.protocol.is_empty());
        return Err(Fault::new(at.offset, refused.unwrap_or_else(none)));
    };
    if found.iter().any(|(_, others)| others != ports) {
        let what = format!("`{service}` has other ports with other protocols");
        let hint = "write a filter for each, such as `domain/udp`";
        return Fault::contradiction(at.offset, what, hint);
    }
    let protocols = found.iter().map(|(protocol, _)| Range::single(*protocol));
    conditions.protocol = protocols.collect();
    Ok(ports.clone())
}

/// A service's name and the protocols it is resolved with.
fn service_of(at: At<&str>) -> Result<(&str, Vec<u8>)> {
    let Some((service, transport)) = at.value.split_once('/') else {
        return Ok((at.value, PROTOCOLS_WITH_PORTS.to_vec()));
    };
    let known = PROTOCOLS_WITH_PORTS.into_iter().find(|protocol| {
        let name = PROTOCOLS.name(*protocol);
        name.is_some_and(|name| name.eq_ignore_ascii_case(transport))
    });
    match known {
        Some(protocol) => Ok((service, vec![protocol])),
        None => {
            let hint = "after a service comes tcp, udp, sctp, dccp or udplite";
            Fault::malformed(at.map(|_| transport), "protocol", hint)
        }
    }
}

/// Converts octal numbers, which start with 0 in IPQoS.
pub(super) fn decimal(text: &str) -> Cow<'_, str> {
    let digits = text.strip_prefix('0').filter(|digits| !digits.is_empty());
    match digits.map(|digits| u64::from_str_radix(digits, 8)) {
        Some(Ok(number)) if !text.contains('+') => Cow::Owned(number.to_string()),
        _ => Cow::Borrowed(text),
    }
}

/// Adds the place to the problem of a value.
pub(super) fn located<T>(at: At<&str>, result: std::result::Result<T, String>) -> Result<T> {
    result.map_err(|problem| Fault::new(at.offset, problem))
}

impl check::Conflict {
    /// The fault with the words and places of an IPQoS file.
    pub(super) fn in_hpux(self, block: &HpuxBlock<'_>) -> Fault {
        let mut what = self.what;
        let mut offset = block.name.offset;
        for (ours, theirs) in WORDS {
            let spelling = theirs.iter().find(|word| block.has(word)).unwrap_or(&theirs[0]);
            what = what.replace(&format!("`{ours}`"), &format!("`{spelling}`"));
            if self.key == *ours {
                offset = block.offset(spelling);
            }
        }
        Fault::new(offset, format!("{what}: {}", self.hint))
    }
}

/// Our keys and the corresponding attributes.
const WORDS: &[(&str, &[&str])] = &[
    ("source", &["srcaddr", "srcaddrlo", "srcaddrhi"]),
    ("destination", &["dstaddr", "dstaddrlo", "dstaddrhi"]),
    ("address", &["addr"]),
    ("source_port", &["srcport", "srcportlo", "srcporthi"]),
    ("destination_port", &["dstport", "dstportlo", "dstporthi"]),
    ("family", &["net"]),
    ("ethertype", &["net"]),
    ("limit", &["max"]),
    ("reserve", &["res"]),
    ("protocol", &["protocol"]),
    ("dscp", &["dscp", "dscplo", "dscphi"]),
    ("port", &["port"]),
];
