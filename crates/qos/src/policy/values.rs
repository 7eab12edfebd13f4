//! Parses single values as both syntaxes write them: numbers and their ranges, addresses, ports,
//! flags, rates.

use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::str::FromStr;

use linerate_core::units::{BitRate, ByteCount, Dscp, Percent, TextError, suggestion};

use super::check::{no_value, not_known};
use super::words::{self, ICMP, ICMPV6, PROTOCOLS, Words};
use super::{
    AddressRange, CgroupPath, Conditions, Family, FlagTest, Interface, Mac, MarkRange, Names,
    Range, Share,
};

type Result<T> = std::result::Result<T, String>;

/// The lowest and the highest of some numbers.
pub(super) type Span = (u128, u128);

/// Removes some numbers from others.
pub(super) fn without(numbers: Vec<Span>, taken: &[Span]) -> Vec<Span> {
    let take = |left: Vec<Span>, (first, last): &Span| {
        let parts = left.into_iter().flat_map(|(from, to)| {
            let below = (from < *first).then(|| (from, to.min(first - 1)));
            let above = (to > *last).then(|| (from.max(last + 1), to));
            [below, above]
        });
        parts.flatten().collect()
    };
    taken.iter().fold(numbers, take)
}

/// A kind of number that filters test.
pub(super) struct Number {
    /// As in "`70000` is no port".
    what: &'static str,
    range: RangeInclusive<u32>,
    words: Option<&'static Words>,
    hint: &'static str,
}

impl Number {
    const fn new(what: &'static str, range: RangeInclusive<u32>, hint: &'static str) -> Self {
        Self { what, range, words: None, hint }
    }

    /// Gives some numbers names.
    const fn named(self, words: &'static Words) -> Self {
        Self { words: Some(words), ..self }
    }

    /// Parses a number, `FIRST-LAST`, or a word.
    pub(super) fn range<T: TryFrom<u32>>(&self, text: &str) -> Result<Range<T>> {
        let (first, last) = ends(text, |text| self.one(text))?.ok_or_else(|| self.refused(text))?;
        let end = |number| T::try_from(number).map_err(|_| self.refused(text));
        Ok(Range { first: end(first)?, last: end(last)? })
    }

    /// The lowest and the highest number allowed.
    pub(super) fn all(&self) -> Span {
        ((*self.range.start()).into(), (*self.range.end()).into())
    }

    /// Parses a number or a word.
    pub(super) fn single<T: TryFrom<u32> + Copy>(&self, text: &str) -> Result<Range<T>> {
        let number = self.one(text).and_then(|number| T::try_from(number).ok());
        number.map(Range::single).ok_or_else(|| self.refused(text))
    }

    /// The word for a number, if there is one.
    pub(super) fn word(&self, number: u32) -> Option<&'static str> {
        self.words.and_then(|words| words.name(number))
    }

    fn one(&self, text: &str) -> Option<u32> {
        let text = text.trim();
        let word = self.words.and_then(|words| words.number(text));
        let number = word.or_else(|| number(text));
        number.filter(|number| self.range.contains(number))
    }

    fn refused(&self, text: &str) -> String {
        let names = self.words.into_iter().flat_map(Words::names);
        let meant = suggestion(&text.to_ascii_lowercase(), names);
        let hint = meant.filter(|_| number(text).is_none()).unwrap_or_else(|| self.hint.to_owned());
        no_value(self.what, text, hint)
    }
}

/// Parses a mark or `MARK/MASK`.
pub(super) fn mark(text: &str) -> Result<MarkRange> {
    let Some((marks, written)) = text.split_once('/') else {
        let (range, mask) = (MARK.range(text)?, u32::MAX);
        return Ok(MarkRange { mask, range });
    };
    let range: Range<u32> = MARK.range(marks)?;
    let mask = number(written.trim()).filter(|mask| *mask != 0);
    let Some(mask) = mask else {
        let hint = "it is 1 to 0xffffffff, as in 0x10/0xf0";
        return Err(no_value("mask of marks", written, hint));
    };
    let is_one = range.first == range.last;
    if range.last > mask || is_one && range.first & !mask != 0 {
        let bits = range.first & mask;
        let hint = format!("bits are set outside its mask: write {bits:#x}/{mask:#x}");
        return Err(no_value("mark", text, hint));
    }
    Ok(MarkRange { mask, range })
}

/// Parses an Ethernet address, a prefix, or `FIRST-LAST`.
pub(super) fn macs(text: &str) -> Result<Range<Mac>> {
    let hint =
        "write 02:00:5e:10:00:01, 02:00:5e:00:00:00/24 or 02:00:5e:10:00:01-02:00:5e:10:00:09";
    let wrong = || no_value("Ethernet address", text, hint);
    let Some((base, length)) = text.split_once('/') else {
        let (first, last) = ends(text, |text| text.trim().parse().ok())?.ok_or_else(wrong)?;
        return Ok(Range { first, last });
    };
    let first: Mac = base.parse().map_err(|()| wrong())?;
    let length = number(length).filter(|length| *length <= 48);
    let host = u128::from(Mac::LAST) >> length.ok_or_else(wrong)?;
    let last = u128::from(first) | host;
    if u128::from(first) & host != 0 {
        let hint = "bits are set behind its length";
        return Err(no_value("prefix", text, hint));
    }
    let last = Mac::try_from(last).map_err(|_| wrong())?;
    Ok(Range { first, last })
}

/// Parses a decimal number, or a hexadecimal one after `0x`; no sign, no blanks.
fn number(text: &str) -> Option<u32> {
    let (digits, radix) = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => (digits, 16),
        None => (text, 10),
    };
    let is_plain = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_plain.then(|| u32::from_str_radix(digits, radix).ok())?
}

pub(super) const PORT: Number = Number::new(
    "port",
    0..=65_535,
    "it is 0 to 65535, a range such as 1000-2000, or the name of a service",
);

pub(super) const PROTOCOL: Number = Number::new(
    "protocol",
    0..=255,
    "it is 0 to 255 or a name such as tcp, udp, icmp, icmpv6, sctp, esp",
)
.named(&PROTOCOLS);

pub(super) const ETHERTYPE: Number = Number::new(
    "EtherType",
    0x600..=0xffff,
    "it is 0x600 to 0xffff or a name such as ipv4, ipv6, arp, lldp, mpls, pppoe",
)
.named(&words::ETHERTYPES);

pub(super) const ECN: Number =
    Number::new("ECN field", 0..=3, "it is 0 to 3, or not-ect, ect1, ect0, ce").named(&words::ECN);

pub(super) const ICMP_TYPE: Number = Number::new(
    "type of ICMP",
    0..=255,
    "it is 0 to 255 or a name such as echo-request, echo-reply, time-exceeded",
)
.named(&words::ICMP_TYPES);

pub(super) const ICMPV6_TYPE: Number = Number::new(
    "type of ICMPv6",
    0..=255,
    "it is 0 to 255 or a name such as echo-request, echo-reply, packet-too-big",
)
.named(&words::ICMPV6_TYPES);

/// For filters that do not name the protocol, since a word would mean two numbers.
pub(super) const ANY_ICMP_TYPE: Number = Number::new(
    "type of both ICMP and ICMPv6",
    0..=255,
    "names are of one of them: add protocol = \"icmp\" or \"icmpv6\", or write a number, 0 to 255",
);

/// The kind of ICMP type: with the words of the only possible protocol, or none.
pub(super) fn icmp_types(conditions: &Conditions) -> &'static Number {
    let families = conditions.families();
    let is_possible = |protocol, family| conditions.allows(protocol) && families.contains(&family);
    let v4 = is_possible(ICMP, Family::V4);
    match (v4, is_possible(ICMPV6, Family::V6)) {
        (true, false) => &ICMP_TYPE,
        (false, true) => &ICMPV6_TYPE,
        _ => &ANY_ICMP_TYPE,
    }
}

pub(super) const ICMP_CODE: Number = Number::new("code of ICMP", 0..=255, "it is 0 to 255");

pub(super) const FLOW_LABEL: Number = Number::new("flow label", 0..=0xf_ffff, "it is 0 to 0xfffff");

pub(super) const VLAN: Number = Number::new("VLAN id", 1..=4094, "it is 1 to 4094");

/// The longest packet has the 40 bytes of an IPv6 header before its 16-bit payload length.
pub(super) const LENGTH: Number = Number::new(
    "length of a packet",
    0..=65_575,
    "it is 0 to 65575 bytes, or a range such as 0-200",
);

/// The highest number means "no user" to the kernel.
pub(super) const UID: Number = Number::new(
    "user id",
    0..=u32::MAX - 1,
    "it is 0 to 4294967294, a range such as 1000-1999, or the name of a user",
);

pub(super) const MARK: Number = Number::new(
    "mark",
    0..=u32::MAX,
    "it is 0 to 4294967295, a range such as 0x10-0x1f, or with a mask 0x10/0xf0",
);

pub(super) const PRIORITY: Number =
    Number::new("priority", 1..=2_147_483_647, "it is 1 to 2147483647, the lowest is asked first");

pub(super) const VLAN_PRIORITY: Number = Number::new("VLAN priority", 0..=7, "it is 0 to 7");

pub(super) const DSCP: Number = Number::new("DSCP", 0..=63, "it is 0 to 63");

/// Parses DSCPs, whose words are in the core crate.
pub(super) fn dscps(text: &str) -> Result<Range<u8>> {
    let one = |text: &str| text.parse::<Dscp>().ok().map(code_point);
    let hint = "it is 0 to 63, a name such as EF, AF41, CS1, LE, or a range such as 8-15";
    let ends = ends(text, one)?.ok_or_else(|| no_value("DSCP", text, hint));
    ends.map(|(first, last)| Range { first, last })
}

/// Parses one number, or both ends of `FIRST-LAST`; some words contain a hyphen themselves.
fn ends<T>(text: &str, one: impl Fn(&str) -> Option<T>) -> Result<Option<(T, T)>>
where
    T: Copy + PartialOrd + std::fmt::Display,
{
    // Two words are shorter than this; there is one attempt per hyphen.
    if text.len() > 128 {
        return Ok(None);
    }
    if let Some(number) = one(text) {
        return Ok(Some((number, number)));
    }
    let mut splits = text.match_indices('-').map(|(at, _)| (&text[..at], &text[at + 1..]));
    match splits.find_map(|(first, last)| Some((one(first)?, one(last)?))) {
        Some((first, last)) if first > last => {
            let hint = format!("it begins above its end: write {last}-{first}");
            Err(no_value("range", text, hint))
        }
        ends => Ok(ends),
    }
}

pub(super) fn dscp(text: &str) -> Result<Dscp> {
    let hint = "it is 0 to 63 or a name such as EF, AF41, CS1, LE, VOICE-ADMIT";
    let wrong = |_| no_value("DSCP", text, hint);
    text.parse().map_err(wrong)
}

/// The number of a DSCP.
pub(super) fn code_point(dscp: Dscp) -> u8 {
    dscp.octet() >> 2
}

/// Parses a number, a range or a service's name.
pub(super) fn ports(
    text: &str,
    protocols: &[u8],
    names: &mut dyn Names,
) -> Result<Vec<Range<u16>>> {
    let read = PORT.range(text);
    if read.is_ok() || !is_service(text) {
        return Ok(vec![read?]);
    }
    let protocols = protocols.iter().filter_map(|one| PROTOCOLS.name(*one));
    let found = names.ports(text, &protocols.collect::<Vec<_>>());
    let ports = found.and_then(|ports| resolved(ports, MAX_RESOLVED));
    let known = ports.map_err(|why| not_known("service", text, &why))?;
    Ok(known.into_iter().map(Range::single).collect())
}

/// A name by RFC 6335, section 5.1, or with other characters found in `/etc/services`; at least one
/// letter.
fn is_service(text: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.+/*".contains(&byte);
    let is_number = text.starts_with("0x") || text.starts_with("0X");
    !is_number
        && text.len() <= 64
        && text.bytes().all(is_allowed)
        && text.bytes().any(|byte| byte.is_ascii_alphabetic())
}

/// What a name resolves to, sorted and without duplicates.
fn resolved<T: Ord>(mut found: Vec<T>, most: usize) -> std::result::Result<Vec<T>, String> {
    found.sort_unstable();
    found.dedup();
    match found.len() {
        0 => Err("it stands for nothing".to_owned()),
        len if len > most => Err(format!("it stands for {len}, more than {most}")),
        _ => Ok(found),
    }
}

/// A host or service has no more addresses or ports than this.
const MAX_RESOLVED: usize = 64;

/// Parses an address, a prefix, `FIRST-LAST`, or a host's name.
pub(super) fn addresses(text: &str, names: &mut dyn Names) -> Result<Vec<AddressRange>> {
    if let Ok(address) = text.parse::<IpAddr>() {
        if let IpAddr::V6(mapped) = address
            && let Some(v4) = mapped.to_ipv4_mapped()
        {
            let hint = format!("sockets call an IPv4 address so; on the wire it is {v4}");
            return Err(no_value("address of packets", text, hint));
        }
        return Ok(vec![AddressRange::single(address)]);
    }
    if let Some((address, length)) = text.split_once('/') {
        return prefix(text, address, length).map(|range| vec![range]);
    }
    if let Some((first, last)) = text.split_once('-') {
        let ends = (first.trim().parse(), last.trim().parse());
        match ends {
            (Ok(first), Ok(last)) => return address_range(text, first, last).map(|one| vec![one]),
            (Ok(_), Err(_)) | (Err(_), Ok(_)) => return Err(no_address(text)),
            (Err(_), Err(_)) => {}
        }
    }
    if !is_host(text) {
        return Err(no_address(text));
    }
    let found = names.addresses(text).and_then(|found| resolved(found, MAX_RESOLVED));
    let addresses = found.map_err(|why| not_known("host", text, &why))?;
    Ok(addresses.into_iter().map(AddressRange::single).collect())
}

fn no_address(text: &str) -> String {
    let hint =
        "write 198.18.0.1, 198.18.0.0/15, 198.18.0.1-198.18.0.9, 2001:2::/48 or a host's name";
    no_value("address", text, hint)
}

pub(super) fn address_range(text: &str, first: IpAddr, last: IpAddr) -> Result<AddressRange> {
    if first.is_ipv4() != last.is_ipv4() {
        let hint = "both its ends are of one family";
        return Err(no_value("range of addresses", text, hint));
    }
    if first > last {
        let hint = format!("it begins above its end: write {last}-{first}");
        return Err(no_value("range of addresses", text, hint));
    }
    Ok(AddressRange { first, last })
}

fn prefix(text: &str, address: &str, length: &str) -> Result<AddressRange> {
    let address: IpAddr = address.parse().map_err(|_| no_address(text))?;
    let bits = if address.is_ipv4() { 32 } else { 128 };
    let is_plain = length.bytes().all(|byte| byte.is_ascii_digit());
    let length = length.parse().ok();
    let Some(length) = length.filter(|length| is_plain && *length <= bits) else {
        let hint = format!("its length is 0 to {bits}");
        return Err(no_value("prefix", text, hint));
    };
    let range = AddressRange::prefix(address, length);
    if range.first != address {
        let first = range.first;
        let hint = format!("bits are set behind its length: write {first}/{length}");
        return Err(no_value("prefix", text, hint));
    }
    Ok(range)
}

/// A name by RFC 1123; digits and dots alone are a mistyped address.
fn is_host(text: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    text.len() <= 253
        && !text.starts_with(['-', '.'])
        && text.bytes().all(is_allowed)
        && text.bytes().any(|byte| byte.is_ascii_alphabetic())
}

impl AddressRange {
    /// One address.
    pub fn single(address: IpAddr) -> Self {
        Self { first: address, last: address }
    }

    /// The prefix of this length that contains `address`; a length beyond the family's is reduced
    /// to that.
    pub fn prefix(address: IpAddr, length: u32) -> Self {
        let (bits, (number, _)) = Self::single(address).span();
        let host = (u128::MAX >> (128 - bits)).checked_shr(length).unwrap_or(0);
        Self::from_span(bits, (number & !host, number | host))
    }

    /// The number of bits of its family, and its ends.
    pub(super) fn span(&self) -> (u32, Span) {
        match (self.first, self.last) {
            (IpAddr::V4(first), IpAddr::V4(last)) => {
                (32, (first.to_bits().into(), last.to_bits().into()))
            }
            (first, last) => (128, (bits(first), bits(last))),
        }
    }

    /// The inverse of [`AddressRange::span`].
    pub(super) fn from_span(bits: u32, (first, last): Span) -> Self {
        let address = |number: u128| match bits {
            32 => IpAddr::V4((number as u32).into()),
            _ => IpAddr::V6(number.into()),
        };
        Self { first: address(first), last: address(last) }
    }

    /// The length of the prefix, if it is one.
    pub fn prefix_length(&self) -> Option<u32> {
        let (bits, (first, last)) = self.span();
        let length = (first ^ last).leading_zeros() - (128 - bits);
        (*self == Self::prefix(self.first, length)).then_some(length)
    }
}

fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
        IpAddr::V6(address) => address.to_bits(),
    }
}

/// Parses flags such as `syn,!ack`.
pub(super) fn flags(text: &str) -> Result<FlagTest> {
    let mut test = FlagTest { mask: 0, value: 0 };
    for word in text.split(',').map(str::trim) {
        let name = word.strip_prefix('!').unwrap_or(word);
        let flag = words::TCP_FLAGS.number(name);
        let Some(flag) = flag.and_then(|bit| u8::try_from(bit).ok()) else {
            let hint = "they are fin, syn, rst, psh, ack, urg, ece and cwr, as in \"syn,!ack\"";
            return Err(no_value("TCP flag", word, hint));
        };
        if test.mask & flag != 0 {
            let hint = "each flag is given once";
            return Err(no_value("test of TCP flags", text, hint));
        }
        test.mask |= flag;
        if !word.starts_with('!') {
            test.value |= flag;
        }
    }
    Ok(test)
}

/// Parses a number, a range or a user's name.
pub(super) fn uids(text: &str, names: &mut dyn Names) -> Result<Range<u32>> {
    let read = UID.range(text);
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-._$@".contains(&byte);
    let is_name = text.len() <= 64
        && text.bytes().all(is_allowed)
        && text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    if read.is_ok() || !is_name {
        return read;
    }
    names.uid(text).map(Range::single).map_err(|why| not_known("user", text, &why))
}

/// Parses a path below the root of the control groups, as in `/proc/PID/cgroup`.
pub(super) fn cgroup(text: &str) -> Result<CgroupPath> {
    let is_name = |name: &str| !matches!(name, "" | "." | "..") && name.len() <= 255;
    let names = text.strip_prefix('/').map(|path| path.split('/'));
    let is_path = text.len() <= 1024
        && text.matches('/').count() <= 15
        && !text.contains(char::is_control)
        && names.is_some_and(|mut names| names.all(is_name));
    let hint = "write its path below the root of version 2, such as /system.slice/ssh.service";
    right(is_path, ("control group", text, hint))?;
    Ok(CgroupPath(text.to_owned()))
}

/// Parses a name the kernel allows (`dev_valid_name`), in ASCII.
pub(super) fn interface(text: &str) -> Result<Interface> {
    let is_allowed = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'/' | b':' | b'*');
    let is_short = (1..=15).contains(&text.len());
    let is_name = is_short && text.bytes().all(is_allowed) && !matches!(text, "." | "..");
    let hint = "its name has 1 to 15 characters, without blanks, `/`, `:` and `*`";
    right(is_name, ("interface", text, hint))?;
    Ok(Interface(text.to_owned()))
}

/// Parses the name of a filter or a policy.
pub(super) fn name(text: &str) -> Result<String> {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    let is_name = (1..=32).contains(&text.len()) && text.bytes().all(is_allowed);
    let hint = "it has 1 to 32 letters, digits, `_` and `-`";
    right(is_name, ("name", text, hint))?;
    Ok(text.to_owned())
}

/// Parses `30mbit` or `30%`.
pub(super) fn share(text: &str) -> Result<Share> {
    if !text.trim_end().ends_with('%') {
        return rate(text).map(Share::Rate);
    }
    let Percent(number) = unit("share", text)?;
    percent(text, number)
}

/// Checks a share written as `text`.
pub(super) fn percent(text: &str, number: f64) -> Result<Share> {
    let hint = "it is 0.001 % to 100 % of the adapter's rate";
    right((0.001..=100.0).contains(&number), ("share", text, hint))?;
    Ok(Share::Percent(number))
}

/// Parses `30mbit`.
pub(super) fn rate(text: &str) -> Result<BitRate> {
    in_range(text, unit("rate", text)?)
}

/// Checks a rate written as `text`.
pub(super) fn in_range(text: &str, rate: BitRate) -> Result<BitRate> {
    right(RATES.contains(&rate.0), ("rate", text, "it is 1kbit to 10Tbit"))?;
    Ok(rate)
}

/// From the least a queueing discipline can hold to more than any link carries.
const RATES: RangeInclusive<u64> = 1_000..=10_000_000_000_000;

/// Parses `64KiB`, at most 1 GiB.
pub(super) fn burst(text: &str, least: u64) -> Result<ByteCount> {
    let burst: ByteCount = unit("burst", text)?;
    let hint = format!("it is {least} B to 1GiB");
    right((least..=1 << 30).contains(&burst.0), ("burst", text, &hint))?;
    Ok(burst)
}

/// Fails unless the value is right: what it should be, its text, and a hint.
fn right(is_right: bool, (what, text, hint): (&'static str, &str, &str)) -> Result<()> {
    if is_right {
        return Ok(());
    }
    Err(no_value(what, text, hint))
}

fn unit<T: FromStr<Err = TextError>>(what: &'static str, text: &str) -> Result<T> {
    let wrong = |error: TextError| no_value(what, text, error.why());
    text.parse().map_err(wrong)
}
