//! The text form of packets, `tcp 198.18.0.1:1234 > 198.18.0.2:80 dscp=EF`, parsed and written.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use linerate_core::units::Dscp;
use linerate_core::units::{shortened, suggestion};

use crate::packet::{EXTENSIONS, icmp};
use crate::policy::words::{
    ECN, ETHERTYPE_IPV4, ETHERTYPE_IPV6, ETHERTYPES, ICMP_TYPES, ICMPV6_TYPES, PROTOCOLS,
    PROTOCOLS_WITH_PORTS, TCP, TCP_FLAGS, Words,
};
use crate::policy::{CgroupPath, Family, Interface, Mac};

use super::packet::{Flow, FragmentPart, Packet, Tag, Upper, What};

/// An error in the text of a packet.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("packet, column {column}: {problem}: {hint}")]
pub struct PacketError {
    /// Where, in characters from 1.
    pub column: usize,
    /// What is wrong.
    pub problem: String,
    /// What would be right.
    pub hint: String,
}

type Result<T> = std::result::Result<T, PacketError>;

impl FromStr for Packet {
    type Err = PacketError;

    fn from_str(text: &str) -> Result<Self> {
        let mut words = Reader::new(text)?;
        let first = words.next("a packet", EXAMPLE)?;
        let what = if let Some(digits) = first.text.strip_prefix("hex:") {
            What::Frame(hex(first, digits)?)
        } else if let Some(protocol) = number(&PROTOCOLS, first.text) {
            let flow = words.flow(first, protocol)?;
            let tag = words.tag()?;
            What::Ip { flow, tag }
        } else {
            let ethertype = ethertype(first)?;
            let tag = words.tag()?;
            What::Other { ethertype, tag }
        };
        let is_frame = matches!(what, What::Frame(_));
        let mark = words.key("mark", |word| word.up_to(u32::MAX, "a mark"))?;
        let mut mac = |name| match is_frame {
            true => Ok(Mac::default()),
            false => words.mac(name),
        };
        let (source_mac, destination_mac) = (mac("source_mac")?, mac("destination_mac")?);
        let packet = Self {
            what,
            uid: words.key("uid", |word| word.parse("a user id", "give a number"))?,
            cgroup: words.key("cgroup", cgroup)?,
            incoming: words.key("incoming", |word| Ok(Interface(word.text.to_owned())))?,
            mark: mark.unwrap_or(0),
            source_mac,
            destination_mac,
        };
        words.end()?;
        Ok(packet)
    }
}

/// A word and its column, in characters from 1.
#[derive(Debug, Clone, Copy)]
struct Word<'a> {
    column: usize,
    text: &'a str,
}

impl Word<'_> {
    fn wrong<T>(&self, what: &str, hint: impl Into<String>) -> Result<T> {
        Err(PacketError {
            column: self.column,
            problem: format!("`{}` is not {what}", shortened(self.text)),
            hint: hint.into(),
        })
    }

    fn parse<T: FromStr>(&self, what: &str, hint: &str) -> Result<T> {
        self.text.parse().or_else(|_| self.wrong(what, hint))
    }

    /// Parses a number from 0 to `most`, decimal or hexadecimal.
    fn up_to(&self, most: u32, what: &str) -> Result<u32> {
        let read = match self.text.strip_prefix("0x") {
            Some(digits) => u32::from_str_radix(digits, 16).ok(),
            None => self.text.parse().ok(),
        };
        match read.filter(|number| *number <= most) {
            Some(number) => Ok(number),
            None => self.wrong(what, format!("give 0 to {most}")),
        }
    }
}

/// The words that are not parsed yet, and the `key=value` pairs among them.
struct Reader<'a> {
    words: std::vec::IntoIter<Word<'a>>,
    keys: Vec<(Word<'a>, Word<'a>)>,
    end: usize,
}

impl<'a> Reader<'a> {
    fn new(text: &'a str) -> Result<Self> {
        let mut reader = Self {
            words: Vec::new().into_iter(),
            keys: Vec::new(),
            end: text.chars().count() + 1,
        };
        let mut plain = Vec::new();
        for word in split(text) {
            let Some((key, value)) = word.text.split_once('=') else {
                plain.push(word);
                continue;
            };
            let value = Word {
                column: word.column + key.chars().count() + 1,
                text: value,
            };
            let filters = ALIASES.iter().find(|(alias, _)| *alias == key);
            let text = filters.map_or(key, |(_, key)| key);
            let key = Word { text, ..word };
            if reader.keys.iter().any(|(other, _)| other.text == key.text) {
                return key.wrong("needed", "it stands there twice");
            }
            reader.keys.push((key, value));
        }
        reader.words = plain.into_iter();
        Ok(reader)
    }

    fn next(&mut self, what: &str, hint: &str) -> Result<Word<'a>> {
        self.words.next().ok_or_else(|| PacketError {
            column: self.end,
            problem: format!("{what} is missing"),
            hint: hint.to_owned(),
        })
    }

    /// Parses and removes the value of a key, if it is given.
    fn key<T>(
        &mut self,
        name: &str,
        read: impl FnOnce(Word<'a>) -> Result<T>,
    ) -> Result<Option<T>> {
        let at = self.keys.iter().position(|(key, _)| key.text == name);
        at.map(|at| read(self.keys.remove(at).1)).transpose()
    }

    fn mac(&mut self, name: &str) -> Result<Mac> {
        let wrong = |word: Word<'_>| word.wrong("an Ethernet address", "write 02:00:5e:10:00:01");
        let read = |word: Word<'a>| word.text.parse().or_else(|()| wrong(word));
        Ok(self.key(name, read)?.unwrap_or_default())
    }

    fn tag(&mut self) -> Result<Option<Tag>> {
        let id = self.key("vlan", |word| word.up_to(4094, "a VLAN id"))?;
        let Some(id) = id else { return Ok(None) };
        let priority = self.key("vlan_priority", |word| word.up_to(7, "a VLAN priority"))?;
        Ok(Some(Tag {
            id: id as u16,
            priority: priority.unwrap_or(0) as u8,
        }))
    }

    /// Parses `SOURCE > DESTINATION` and the keys of IP.
    fn flow(&mut self, first: Word<'a>, protocol: u8) -> Result<Flow> {
        let source = self.next("the source", EXAMPLE)?;
        let arrow = self.next("`>`", EXAMPLE)?;
        if arrow.text != ">" {
            return arrow.wrong("`>`", EXAMPLE);
        }
        let target = self.next("the destination", EXAMPLE)?;
        let fragment = self.key("fragment", fragment)?;
        let fragment = fragment.unwrap_or(FragmentPart::Whole);
        let has_ports = fragment != FragmentPart::Later && PROTOCOLS_WITH_PORTS.contains(&protocol);
        let (from, source_port) = end(source, has_ports)?;
        let (to, destination_port) = end(target, has_ports)?;
        if from.is_ipv4() != to.is_ipv4() {
            return target.wrong("of the source's family", "both are IPv4 or both IPv6");
        }
        if from.is_ipv6() && EXTENSIONS.contains(&protocol) {
            let hint = "give the protocol behind extension headers";
            return first.wrong("an upper-layer protocol of IPv6", hint);
        }
        let ports = (source_port, destination_port);
        let family = family_of(from);
        let mut flow = Flow {
            source: from,
            destination: to,
            protocol,
            upper: self.upper(protocol, family, fragment, ports)?,
            dscp: self.key("dscp", dscp)?.unwrap_or_default(),
            ecn: self.key("ecn", ecn)?.unwrap_or(0),
            length: None,
            flow_label: 0,
            fragment,
        };
        if from.is_ipv6() {
            let label = self.key("flow_label", |word| word.up_to(0xf_ffff, "a flow label"))?;
            flow.flow_label = label.unwrap_or(0);
        }
        flow.length = self.key("length", |word| length(word, &flow))?;
        Ok(flow)
    }

    fn upper(
        &mut self,
        protocol: u8,
        family: Family,
        fragment: FragmentPart,
        ports: (u16, u16),
    ) -> Result<Upper> {
        if fragment == FragmentPart::Later {
            return Ok(Upper::Nothing);
        }
        if protocol == TCP {
            let flags = self.key("flags", flags)?.unwrap_or(ACK);
            return Ok(Upper::Tcp { ports, flags });
        }
        if Some(protocol) == icmp(family) {
            let kind = self.key("type", |word| icmp_type(word, family))?;
            let echo = icmp_types(family).number("echo-request");
            let code = self.key("code", |word| word.up_to(255, "an ICMP code"))?;
            return Ok(Upper::Icmp {
                kind: kind.or(echo).unwrap_or(0) as u8,
                code: code.unwrap_or(0) as u8,
            });
        }
        Ok(if PROTOCOLS_WITH_PORTS.contains(&protocol) {
            Upper::Ports(ports.0, ports.1)
        } else {
            Upper::Nothing
        })
    }

    /// Fails if anything is left.
    fn end(mut self) -> Result<()> {
        if let Some(word) = self.words.next() {
            return word.wrong("expected here", EXAMPLE);
        }
        let Some((key, _)) = self.keys.first() else {
            return Ok(());
        };
        if KEYS.contains(&key.text) {
            return key.wrong("a key of such a packet", "leave it out");
        }
        let others = || format!("the keys are {}", KEYS.join(", "));
        key.wrong("a key", suggestion(key.text, KEYS).unwrap_or_else(others))
    }
}

fn split(text: &str) -> impl Iterator<Item = Word<'_>> {
    text.split_whitespace().map(move |word| {
        // Both are parts of one string.
        let at = word.as_ptr() as usize - text.as_ptr() as usize;
        Word {
            column: text[..at].chars().count() + 1,
            text: word,
        }
    })
}

fn number(words: &Words, text: &str) -> Option<u8> {
    let by_name = words.number(text);
    let by_name = by_name.and_then(|number| u8::try_from(number).ok());
    by_name.or_else(|| text.parse().ok())
}

fn hex(word: Word<'_>, digits: &str) -> Result<Vec<u8>> {
    let digits: Option<Vec<u8>> = (digits.chars())
        .filter(|c| *c != ':')
        .map(|c| c.to_digit(16).map(|digit| digit as u8))
        .collect();
    match digits {
        Some(digits) if digits.len() % 2 == 0 && digits.len() <= 2 * MAX_FRAME => {
            let pairs = digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]);
            Ok(pairs.collect())
        }
        _ => {
            let hint = format!(
                "give two digits for each byte, at most {MAX_FRAME} bytes, from the \
                destination address on"
            );
            word.wrong("an Ethernet frame in hexadecimal", hint)
        }
    }
}

fn ethertype(word: Word<'_>) -> Result<u16> {
    let by_digits = || {
        let digits = word.text.strip_prefix("0x")?;
        u16::from_str_radix(digits, 16).ok()
    };
    let by_name = ETHERTYPES.number(word.text);
    let by_name = by_name.and_then(|number| number.try_into().ok());
    match by_name.or_else(by_digits) {
        Some(ETHERTYPE_IPV4 | ETHERTYPE_IPV6 | 0x8100 | 0x88a8) => {
            word.wrong("a packet's first word", EXAMPLE)
        }
        Some(ethertype) => Ok(ethertype),
        None => {
            let names = PROTOCOLS.names().chain(ETHERTYPES.names());
            let hint = suggestion(word.text, names).unwrap_or_else(|| EXAMPLE.to_owned());
            word.wrong("a protocol, an EtherType or `hex:`", hint)
        }
    }
}

/// Parses an address, with a port if the protocol has ports.
fn end(word: Word<'_>, has_port: bool) -> Result<(IpAddr, u16)> {
    const V4: &str = "write 198.18.0.1:80 or [2001:2::1]:80";
    let wrong = |what, hint| word.wrong(what, hint);
    let bare = |text: &str| {
        let inner = text.strip_prefix('[');
        match inner.and_then(|text| text.strip_suffix(']')) {
            Some(inner) => inner.parse::<Ipv6Addr>().ok().map(IpAddr::V6),
            None => text.parse().ok(),
        }
    };
    if !has_port {
        let hint = "write 198.18.0.1 or 2001:2::1; this packet has no ports";
        return match bare(word.text) {
            Some(address) => Ok((address, 0)),
            None => wrong("an address", hint),
        };
    }
    let Some((address, port)) = word.text.rsplit_once(':') else {
        return wrong("an address with a port", V4);
    };
    let address = if address.starts_with('[') {
        bare(address)
    } else {
        address.parse::<Ipv4Addr>().ok().map(IpAddr::V4)
    };
    match (address, port.parse()) {
        (Some(address), Ok(port)) => Ok((address, port)),
        _ => wrong("an address with a port", V4),
    }
}

fn fragment(word: Word<'_>) -> Result<FragmentPart> {
    match word.text {
        "first" => Ok(FragmentPart::First),
        "later" => Ok(FragmentPart::Later),
        _ => word.wrong("a fragment", "it is `first` or `later`"),
    }
}

fn dscp(word: Word<'_>) -> Result<Dscp> {
    word.parse("a DSCP", "give 0 to 63 or a name such as EF, AF41, CS1, LE")
}

fn ecn(word: Word<'_>) -> Result<u8> {
    match number(&ECN, word.text) {
        Some(number @ 0..=3) => Ok(number),
        _ => word.wrong("an ECN field", "it is not-ect, ect0, ect1 or ce, or 0 to 3"),
    }
}

fn flags(word: Word<'_>) -> Result<u8> {
    if word.text == NO_FLAGS {
        return Ok(0);
    }
    let flag = |name| match TCP_FLAGS.number(name) {
        Some(bit) => Ok(bit as u8),
        None => word.wrong(
            "a list of TCP flags",
            "they are fin, syn, rst, psh, ack, urg, ece and cwr, as in syn,ack; or none",
        ),
    };
    let mut names = word.text.split(',');
    names.try_fold(0, |all, name| Ok(all | flag(name)?))
}

pub(super) fn icmp_types(family: Family) -> Words {
    match family {
        Family::V6 => ICMPV6_TYPES,
        _ => ICMP_TYPES,
    }
}

fn icmp_type(word: Word<'_>, family: Family) -> Result<u32> {
    match number(&icmp_types(family), word.text) {
        Some(number) => Ok(number.into()),
        None => word.wrong(
            "an ICMP type",
            "give 0 to 255 or a name such as echo-request",
        ),
    }
}

fn length(word: Word<'_>, flow: &Flow) -> Result<u32> {
    let (least, most) = (flow.least_length(), flow.most_length());
    match word.text.parse() {
        Ok(length) if (least..=most).contains(&length) => Ok(length),
        _ => {
            let hint = format!("with its IP header it has {least} to {most} bytes");
            word.wrong("the length of such a packet", hint)
        }
    }
}

fn cgroup(word: Word<'_>) -> Result<CgroupPath> {
    let path = word.text.trim_end_matches('/');
    if path.starts_with('/') {
        return Ok(CgroupPath(path.to_owned()));
    }
    let hint = "write its path, such as /system.slice/ssh.service";
    word.wrong("a control group", hint)
}

impl fmt::Display for Packet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.what {
            What::Frame(bytes) => {
                f.write_str("hex:")?;
                bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
            }
            What::Other { ethertype, tag } => {
                let name = ETHERTYPES.name(*ethertype);
                match name.filter(|name| PROTOCOLS.number(name).is_none()) {
                    Some(name) => f.write_str(name)?,
                    None => write!(f, "{ethertype:#06x}")?,
                }
                write_tag(f, tag.as_ref())?;
            }
            What::Ip { flow, tag } => {
                write!(f, "{flow}")?;
                write_tag(f, tag.as_ref())?;
            }
        }
        if let Some(uid) = self.uid {
            write!(f, " uid={uid}")?;
        }
        if let Some(CgroupPath(path)) = &self.cgroup {
            write!(f, " cgroup={path}")?;
        }
        if let Some(Interface(name)) = &self.incoming {
            write!(f, " incoming={name}")?;
        }
        if self.mark != 0 {
            write!(f, " mark={:#x}", self.mark)?;
        }
        let macs = [
            ("source_mac", self.source_mac),
            ("destination_mac", self.destination_mac),
        ];
        for (key, mac) in macs.iter().filter(|(_, mac)| *mac != Mac::default()) {
            write!(f, " {key}={mac}")?;
        }
        Ok(())
    }
}

fn write_tag(f: &mut fmt::Formatter<'_>, tag: Option<&Tag>) -> fmt::Result {
    let Some(Tag { id, priority }) = tag else {
        return Ok(());
    };
    write!(f, " vlan={id}")?;
    match priority {
        0 => Ok(()),
        _ => write!(f, " vlan_priority={priority}"),
    }
}

impl fmt::Display for Flow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ports = match self.upper {
            Upper::Tcp { ports, .. } => Some(ports),
            Upper::Ports(source, destination) => Some((source, destination)),
            Upper::Icmp { .. } | Upper::Nothing => None,
        };
        f.write_str(&PROTOCOLS.written(self.protocol))?;
        write!(f, " {}", End(self.source, ports.map(|ports| ports.0)))?;
        let destination = End(self.destination, ports.map(|ports| ports.1));
        write!(f, " > {destination}")?;
        match self.fragment {
            FragmentPart::Whole => {}
            FragmentPart::First => f.write_str(" fragment=first")?,
            FragmentPart::Later => f.write_str(" fragment=later")?,
        }
        match self.upper {
            Upper::Tcp { flags, .. } => write!(f, " flags={}", flags_in_words(flags))?,
            Upper::Icmp { kind, code } => {
                let kind = icmp_types(family_of(self.source)).written(kind);
                write!(f, " type={kind} code={code}")?;
            }
            Upper::Ports(..) | Upper::Nothing => {}
        }
        write!(f, " dscp={}", self.dscp)?;
        if self.ecn != 0 {
            write!(f, " ecn={}", ECN.written(self.ecn))?;
        }
        if self.flow_label != 0 {
            write!(f, " flow_label={:#x}", self.flow_label)?;
        }
        match self.length {
            Some(length) => write!(f, " length={length}"),
            None => Ok(()),
        }
    }
}

fn family_of(address: IpAddr) -> Family {
    match address {
        IpAddr::V4(_) => Family::V4,
        IpAddr::V6(_) => Family::V6,
    }
}

/// An address with its port, if it has one.
struct End(IpAddr, Option<u16>);

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0, self.1) {
            (address, None) => address.fmt(f),
            (IpAddr::V4(address), Some(port)) => write!(f, "{address}:{port}"),
            (IpAddr::V6(address), Some(port)) => write!(f, "[{address}]:{port}"),
        }
    }
}

/// Writes flags as `syn,ack`, or `none`.
pub(super) fn flags_in_words(flags: u8) -> String {
    let set: Vec<_> = (TCP_FLAGS.entries())
        .filter(|(_, bit)| u32::from(flags) & bit != 0)
        .map(|(name, _)| name)
        .collect();
    match set.is_empty() {
        true => NO_FLAGS.to_owned(),
        false => set.join(","),
    }
}

const EXAMPLE: &str = "write `tcp 198.18.0.1:1234 > 198.18.0.2:80 dscp=EF`, `arp vlan=5` or \
    `hex:…` (an Ethernet frame)";

const KEYS: [&str; 16] = [
    "dscp",
    "ecn",
    "length",
    "flags",
    "type",
    "code",
    "flow_label",
    "fragment",
    "vlan",
    "vlan_priority",
    "uid",
    "cgroup",
    "incoming",
    "mark",
    "source_mac",
    "destination_mac",
];

/// Keys by their names as conditions of filters.
const ALIASES: [(&str, &str); 3] = [
    ("tcp_flags", "flags"),
    ("icmp_type", "type"),
    ("icmp_code", "code"),
];

const NO_FLAGS: &str = "none";

/// Flags of a TCP packet by default: data on an established connection.
const ACK: u8 = 0x10;

/// Maximum bytes of a frame in hexadecimal.
const MAX_FRAME: usize = 9216;
