//! The addresses of links: those that the file gives, and free ones for the others.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use toml::de::DeValue;

use super::links::Draft;
use crate::lab::Prefix;
use crate::lab::address::{MAX_LINKS, block};
use crate::toml_reader::{At, Fault, Value, string, wrong_type};

/// Gives each link its addresses. A link has its own number in them, unless one with addresses from
/// the file is in the way: then the highest number that is free.
pub(super) fn allocate(drafts: &mut [Draft<'_>]) -> Result<(), Fault> {
    let taken = take_explicit(drafts)?;
    let is_free = |number: &usize| {
        let networks = block(*number).map(|ends| ends[0].network());
        let mut others = taken.iter();
        !others.any(|(other, _)| networks.iter().any(|network| network.overlaps(*other)))
    };
    let is_wanted = drafts.iter().map(|draft| draft.addresses.is_none());
    let is_wanted: Vec<bool> = is_wanted.collect();
    let is_spare = |number: &usize| is_wanted.get(*number) != Some(&true) && is_free(number);
    let mut spare = (0..MAX_LINKS).rev().filter(is_spare);
    for (number, draft) in drafts.iter_mut().enumerate() {
        if draft.addresses.is_some() {
            continue;
        }
        match Some(number).filter(is_free).or_else(|| spare.next()) {
            Some(number) => draft.wanted.number(number),
            None => {
                let hint = "those that are given leave none in 198.18.0.0/15 and 2001:2::/48";
                return Fault::contradiction(draft.offset, "no addresses are left", hint);
            }
        }
    }
    Ok(())
}

/// Gives links the addresses that the file has for them; the networks that are taken then, and by
/// which link.
fn take_explicit(drafts: &mut [Draft<'_>]) -> Result<Vec<(Prefix, usize)>, Fault> {
    let mut taken: Vec<(Prefix, usize)> = Vec::new();
    for link in 0..drafts.len() {
        let Some(value) = drafts[link].addresses else {
            continue;
        };
        let addresses = explicit(value, drafts[link].wanted.mtu)?;
        for network in addresses[0].iter().map(|prefix| prefix.network()) {
            if let Some((other, owner)) = taken.iter().find(|(other, _)| network.overlaps(*other)) {
                let link = &drafts[*owner].wanted.name;
                let problem = format!("{network} overlaps with {other} of the link `{link}`");
                return Err(Fault::new(value.span().start, problem));
            }
            taken.push((network, link));
        }
        drafts[link].wanted.addresses = addresses;
    }
    Ok(taken)
}

/// `["198.18.5.1/24", "198.18.5.2/24"]`, each of them one address or a list with one of each
/// family.
fn explicit(value: &Value<'_>, mtu: u32) -> Result<[Vec<Prefix>; 2], Fault> {
    let offset = value.span().start;
    let ends: Vec<_> = match value.get_ref() {
        DeValue::Array(ends) => ends.iter().map(end).collect::<Result<_, _>>()?,
        _ => {
            let hint = "a list of two, such as [\"198.18.5.1/24\", \"198.18.5.2/24\"]";
            return Err(wrong_type("addresses", value, hint));
        }
    };
    let [a, b] = <[_; 2]>::try_from(ends)
        .or_else(|_| Fault::contradiction(offset, "`addresses`", "there are two ends"))?;
    if a.is_empty() || a.len() != b.len() {
        let hint = "both ends need the same families";
        return Fault::contradiction(offset, "`addresses`", hint);
    }
    for (of_a, of_b) in a.iter().zip(&b) {
        if of_a.network() != of_b.network() || of_a == of_b {
            let text = format!("`{}` and `{}`", of_a.address, of_b.address);
            let hint = "the ends have different addresses in one network";
            return Fault::contradiction(offset, text, hint);
        }
        if of_a.address.is_ipv6() && mtu < 1280 {
            let hint = "IPv6 needs an MTU of 1280";
            return Fault::contradiction(offset, "`addresses`", hint);
        }
    }
    Ok([a, b])
}

/// One end's addresses, IPv4 first.
fn end(value: &Value<'_>) -> Result<Vec<Prefix>, Fault> {
    let mut prefixes = match value.get_ref() {
        DeValue::Array(items) => items.iter().map(one).collect::<Result<_, _>>()?,
        _ => vec![one(value)?],
    };
    prefixes.sort_by_key(|prefix| prefix.address.is_ipv6());
    let mut pairs = prefixes.windows(2);
    if pairs.any(|two| two[0].address.is_ipv4() == two[1].address.is_ipv4()) {
        let hint = "an end has one of each family";
        return Fault::contradiction(value.span().start, "two addresses", hint);
    }
    Ok(prefixes)
}

fn one(value: &Value<'_>) -> Result<Prefix, Fault> {
    let text = string("addresses", value)?;
    let Some(prefix) = prefix(text.value) else {
        return Fault::malformed(text, "address", HINT);
    };
    let (address, length, longest) = match prefix.address {
        IpAddr::V4(_) => (Ipv4Addr::new(198, 18, 0, 0).into(), 15, 31),
        IpAddr::V6(_) => (Ipv6Addr::new(0x2001, 2, 0, 0, 0, 0, 0, 0).into(), 48, 127),
    };
    let range = Prefix { address, length };
    if !range.contains(prefix.address) || !(length..=longest).contains(&prefix.length) {
        let hint = "a lab's are networks within 198.18.0.0/15 and 2001:2::/48 with room for two";
        return Fault::malformed(text, "address of a lab", hint);
    }
    if is_reserved(prefix) {
        let hint = "the first address of a network is its own, and IPv4's last one is for all";
        return Fault::malformed(text, "address of a host", hint);
    }
    Ok(prefix)
}

/// Subnet-router anycast, RFC 4291, section 2.6.1, and IPv4's broadcast; networks of two addresses
/// have neither (RFC 3021, RFC 6164).
fn is_reserved(prefix: Prefix) -> bool {
    let first = prefix.network().address;
    match (prefix.address, first) {
        (IpAddr::V4(address), IpAddr::V4(first)) if prefix.length < 31 => {
            let last = first.to_bits() | (u32::MAX >> prefix.length);
            address == first || address.to_bits() == last
        }
        (IpAddr::V6(address), IpAddr::V6(first)) if prefix.length < 127 => address == first,
        _ => false,
    }
}

/// `198.18.5.1/24`.
pub(super) fn prefix(text: &str) -> Option<Prefix> {
    text.contains('/').then(|| text.parse().ok()).flatten()
}

/// An address without a length.
pub(super) fn address(at: At<&str>) -> Result<At<IpAddr>, Fault> {
    match at.value.parse() {
        Ok(address) => Ok(at.map(|_| address)),
        Err(_) => Fault::malformed(at, "address", "write 198.18.5.1 or 2001:2::1"),
    }
}

const HINT: &str =
    "write [\"198.18.5.1/24\", \"198.18.5.2/24\"], or a list with IPv4 and IPv6 for each";
