//! A packet as a user describes it, `tcp 198.18.0.1:1234 > 198.18.0.2:80 dscp=EF`: read into the
//! bytes of a frame and what the kernel knows beside them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use linerate_core::units::{Dscp, shortened, suggestion};

use crate::packet::{CGROUP_LEVELS, EXTENSIONS, Metadata};
use crate::policy::words::{
    ECN, ETHERTYPE_IPV4, ETHERTYPE_IPV6, ETHERTYPES, ICMP, ICMP_TYPES, ICMPV6, ICMPV6_TYPES,
    PROTOCOLS, PROTOCOLS_WITH_PORTS, TCP, TCP_FLAGS, Words,
};
use crate::policy::{CgroupPath, Family, Interface, Mac};
use crate::rules::Bindings;

/// A packet: its Ethernet frame as far as rules look at it, and what the kernel knows beside it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packet {
    /// Headers without payload, checksums zero; or all bytes of `hex:…`.
    frame: Vec<u8>,
    /// Length of the frame on the wire, bytes.
    wire_length: u32,
    pub(super) uid: Option<u32>,
    /// Path of the control group of its socket.
    pub(super) cgroup: Option<CgroupPath>,
    /// Interface by which it came in.
    pub(super) incoming: Option<Interface>,
    mark: u32,
}

impl Packet {
    /// Its Ethernet frame.
    pub fn frame(&self) -> &[u8] {
        &self.frame
    }

    /// What the kernel knows about the packet beside its bytes; names have the numbers in
    /// `bindings`.
    pub fn metadata(&self, bindings: &Bindings) -> Metadata {
        let mut metadata = Metadata {
            uid: self.uid,
            cgroups: [0; CGROUP_LEVELS],
            wire_length: self.wire_length,
            mark: self.mark,
            ..Metadata::default()
        };
        if let Some(interface) = &self.incoming {
            // An interface that no filter names gets a number that no rule has.
            let index = bindings.interfaces.get(interface).copied();
            metadata.incoming = index.unwrap_or(u32::MAX);
        }
        if let Some(CgroupPath(path)) = &self.cgroup {
            for (CgroupPath(above), group) in &bindings.cgroups {
                let rest = path.strip_prefix(above.as_str());
                if rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/')) {
                    metadata.cgroups[usize::from(group.level)] = group.id;
                }
            }
        }
        metadata
    }
}

impl FromStr for Packet {
    /// An error in the text: what is wrong, and what would be right.
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut keys = Keys::default();
        let mut words = Vec::new();
        for word in text.split_whitespace() {
            match word.split_once('=') {
                Some((key, value)) => keys.add(key, value)?,
                None => words.push(word),
            }
        }
        let Some((first, ends)) = words.split_first() else {
            return wrong("a packet is missing", EXAMPLE);
        };
        let (frame, wire_length) = keys.frame(first, ends)?;
        let packet = Self {
            frame,
            wire_length,
            uid: keys.read("uid", |text| up_to(u32::MAX, text))?,
            cgroup: keys.read("cgroup", |text| {
                let path = text.trim_end_matches('/').to_owned();
                path.starts_with('/').then_some(CgroupPath(path))
            })?,
            incoming: keys.read("incoming", |text| Some(Interface(text.to_owned())))?,
            mark: keys.read("mark", |text| up_to(u32::MAX, text))?.unwrap_or(0),
        };
        match keys.0.first() {
            None => Ok(packet),
            Some((key, _)) => wrong(format!("such a packet has no `{key}`"), "leave it out"),
        }
    }
}

/// The `key=value` pairs that are not read yet.
#[derive(Default)]
struct Keys<'a>(Vec<(&'static str, &'a str)>);

impl<'a> Keys<'a> {
    fn add(&mut self, key: &str, value: &'a str) -> Result<(), String> {
        let named = |(name, alias, _): &&(&str, &str, _)| *name == key || *alias == key;
        let Some((name, ..)) = KEYS.iter().find(named) else {
            let names = KEYS.iter().map(|(name, ..)| *name);
            let all = names.clone().collect::<Vec<_>>().join(", ");
            let hint = suggestion(key, names).unwrap_or_else(|| format!("the keys are {all}"));
            return wrong(format!("there is no key `{}`", shortened(key)), hint);
        };
        if self.0.iter().any(|(other, _)| other == name) {
            return wrong(format!("`{name}` is given twice"), "give it once");
        }
        self.0.push((name, value));
        Ok(())
    }

    /// Reads and removes the value of a key, if it is given.
    fn read<T>(
        &mut self,
        key: &str,
        read: impl FnOnce(&str) -> Option<T>,
    ) -> Result<Option<T>, String> {
        let Some(at) = self.0.iter().position(|(name, _)| *name == key) else {
            return Ok(None);
        };
        let (_, value) = self.0.remove(at);
        let hints = KEYS.iter().filter(|(name, ..)| *name == key);
        match read(value) {
            Some(value) => Ok(Some(value)),
            None => {
                let hint: String = hints.map(|(.., hint)| *hint).collect();
                wrong(format!("{key} `{}`", shortened(value)), format!("give {hint}"))
            }
        }
    }

    /// The frame of the first word and the ends behind it, and its length on the wire.
    fn frame(&mut self, first: &str, ends: &[&str]) -> Result<(Vec<u8>, u32), String> {
        if let Some(digits) = first.strip_prefix("hex:") {
            let Some(frame) = hex(digits).filter(|_| ends.is_empty()) else {
                let hint = format!(
                    "give two digits for each byte, at most {MAX_FRAME} bytes, from the \
                     destination address on"
                );
                return wrong("that is not an Ethernet frame in hexadecimal", hint);
            };
            let length = frame.len() as u32;
            return Ok((frame, length));
        }
        let mac = |text: &str| text.parse::<Mac>().ok();
        let destination = self.read("destination_mac", mac)?.unwrap_or_default();
        let source = self.read("source_mac", mac)?.unwrap_or_default();
        let mut frame = [destination.octets(), source.octets()].concat();
        if let Some(id) = self.read("vlan", |text| up_to(4094, text))? {
            let priority = self.read("vlan_priority", |text| up_to(7, text))?;
            frame.extend([0x81, 0x00]);
            frame.extend(((priority.unwrap_or(0) << 13 | id) as u16).to_be_bytes());
        }
        let protocol = named(&PROTOCOLS, 255, first);
        let (ethertype, packet, length) = match (protocol, ends) {
            (Some(protocol), [source, ">", destination]) => {
                self.ip(protocol as u8, [source, destination])?
            }
            (Some(_), _) => return wrong("a protocol needs both ends", EXAMPLE),
            (None, _) => (ethertype(first)?, Vec::new(), 0),
        };
        if protocol.is_none() && !ends.is_empty() {
            return wrong(format!("`{}` has no ends", shortened(first)), EXAMPLE);
        }
        frame.extend(ethertype.to_be_bytes());
        let length = frame.len() as u32 + length;
        frame.extend(packet);
        Ok((frame, length))
    }

    /// The EtherType, the headers and the length of an IP packet.
    fn ip(&mut self, protocol: u8, ends: [&str; 2]) -> Result<(u16, Vec<u8>, u32), String> {
        let fragment = self.read("fragment", |text| match text {
            "first" => Some(FragmentPart::First),
            "later" => Some(FragmentPart::Later),
            _ => None,
        })?;
        let has_transport = fragment != Some(FragmentPart::Later);
        let has_ports = PROTOCOLS_WITH_PORTS.contains(&protocol) && has_transport;
        let (source, destination) = (end(ends[0], has_ports)?, end(ends[1], has_ports)?);
        let transport = match source.is_ipv4() {
            _ if has_ports => self.ports(protocol, [source.port(), destination.port()])?,
            true if protocol == ICMP && has_transport => self.icmp(Family::V4)?,
            false if protocol == ICMPV6 && has_transport => self.icmp(Family::V6)?,
            _ => Vec::new(),
        };
        let dscp = self.read("dscp", |text| text.parse::<Dscp>().ok())?;
        let ecn = self.read("ecn", |text| named(&ECN, 3, text))?;
        let mut header = IpHeader {
            class: dscp.unwrap_or_default().octet() | ecn.unwrap_or(0) as u8,
            protocol,
            fragment,
            length: 0,
            label: 0,
        };
        let (least, most) = match (source.is_ipv4(), fragment) {
            (true, _) => (20, 65_535),
            (false, None) => (40, 40 + 65_535),
            (false, Some(_)) => (48, 40 + 65_535),
        };
        let least = least + transport.len() as u32;
        let fits = |length: &u32| *length >= least;
        let length = self.read("length", |text| up_to(most, text).filter(fits))?;
        header.length = length.unwrap_or(least);
        let (ethertype, headers) = match (source.ip(), destination.ip()) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                (ETHERTYPE_IPV4, header.v4([source, destination]))
            }
            (IpAddr::V6(_), IpAddr::V6(_)) if EXTENSIONS.contains(&protocol) => {
                let hint = "give the protocol behind extension headers";
                return wrong("this is an extension header of IPv6", hint);
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                let label = self.read("flow_label", |text| up_to(0xf_ffff, text))?;
                header.label = label.unwrap_or(0);
                (ETHERTYPE_IPV6, header.v6([source, destination]))
            }
            _ => {
                return wrong("the ends are of two families", "give both as IPv4 or both as IPv6");
            }
        };
        Ok((ethertype, [headers, transport].concat(), header.length))
    }

    /// The header of a protocol with ports.
    fn ports(&mut self, protocol: u8, ports: [u16; 2]) -> Result<Vec<u8>, String> {
        let mut header = ports.map(u16::to_be_bytes).concat();
        header.extend([0; 4]);
        if protocol == TCP {
            let flags = self.read("flags", flags)?.unwrap_or(ACK);
            header.extend([0, 0, 0, 0, 0x50, flags, 0, 0, 0, 0, 0, 0]);
        }
        Ok(header)
    }

    /// The header of ICMP in a family.
    fn icmp(&mut self, family: Family) -> Result<Vec<u8>, String> {
        let types = icmp_types(family);
        let given = self.read("type", |text| named(&types, 255, text))?;
        let kind = given.or(types.number("echo-request")).unwrap_or(0);
        let code = self.read("code", |text| up_to(255, text))?.unwrap_or(0);
        Ok(vec![kind as u8, code as u8, 0, 0, 0, 0, 0, 0])
    }
}

/// A part of a fragmented packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FragmentPart {
    First,
    Later,
}

/// The fields of an IP header beside its addresses.
struct IpHeader {
    /// TOS or traffic class.
    class: u8,
    protocol: u8,
    fragment: Option<FragmentPart>,
    /// Length of the packet, bytes.
    length: u32,
    /// Flow label of IPv6.
    label: u32,
}

impl IpHeader {
    fn v4(&self, ends: [Ipv4Addr; 2]) -> Vec<u8> {
        let offset: u16 = match self.fragment {
            None => 0,
            Some(FragmentPart::First) => 0x2000,
            Some(FragmentPart::Later) => LATER_OFFSET,
        };
        let words = [self.length as u16, 1, offset];
        let mut header = vec![0x45, self.class];
        header.extend(words.map(u16::to_be_bytes).concat());
        header.extend([64, self.protocol, 0, 0]);
        header.extend(ends.map(|end| end.octets()).concat());
        header
    }

    fn v6(&self, ends: [Ipv6Addr; 2]) -> Vec<u8> {
        let word = 6 << 28 | u32::from(self.class) << 20 | self.label;
        let next = self.fragment.map_or(self.protocol, |_| FRAGMENT_HEADER);
        let mut header = word.to_be_bytes().to_vec();
        header.extend((self.length.saturating_sub(40) as u16).to_be_bytes());
        header.extend([next, 64]);
        header.extend(ends.map(|end| end.octets()).concat());
        if let Some(part) = self.fragment {
            let offset = match part {
                FragmentPart::First => 1,
                FragmentPart::Later => LATER_OFFSET << 3,
            };
            header.extend([self.protocol, 0]);
            header.extend(offset.to_be_bytes());
            header.extend([0, 0, 0, 1]);
        }
        header
    }
}

fn wrong<T>(problem: impl Into<String>, hint: impl Into<String>) -> Result<T, String> {
    Err(format!("{}: {}", problem.into(), hint.into()))
}

/// A number up to `most`, decimal or hexadecimal.
fn up_to(most: u32, text: &str) -> Option<u32> {
    let number = match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    };
    number.filter(|number| *number <= most)
}

/// A name of `words`, or a number up to `most`.
fn named(words: &Words, most: u32, text: &str) -> Option<u32> {
    let number = words.number(text).or_else(|| up_to(most, text));
    number.filter(|number| *number <= most)
}

/// Flags such as `syn,ack`, or `none`.
fn flags(text: &str) -> Option<u8> {
    if text == NO_FLAGS {
        return Some(0);
    }
    let mut names = text.split(',');
    names.try_fold(0, |bits, name| Some(bits | TCP_FLAGS.number(name)? as u8))
}

/// Writes flags as [`flags`] reads them.
pub(super) fn flags_in_words(flags: u8) -> String {
    let set = TCP_FLAGS.entries().filter(|(_, bit)| u32::from(flags) & bit != 0);
    let names: Vec<_> = set.map(|(name, _)| name).collect();
    match names.is_empty() {
        true => NO_FLAGS.to_owned(),
        false => names.join(","),
    }
}

pub(super) fn icmp_types(family: Family) -> Words {
    match family {
        Family::V6 => ICMPV6_TYPES,
        _ => ICMP_TYPES,
    }
}

fn ethertype(word: &str) -> Result<u16, String> {
    let number = named(&ETHERTYPES, 0xffff, word).map(|number| number as u16);
    match number {
        Some(ETHERTYPE_IPV4 | ETHERTYPE_IPV6 | 0x8100 | 0x88a8) => {
            wrong(format!("`{word}` says too little"), EXAMPLE)
        }
        Some(ethertype) => Ok(ethertype),
        None => {
            let names = PROTOCOLS.names().chain(ETHERTYPES.names());
            let hint = suggestion(word, names).unwrap_or_else(|| EXAMPLE.to_owned());
            let word = shortened(word);
            wrong(format!("`{word}` is not a protocol, an EtherType or `hex:`"), hint)
        }
    }
}

/// An address, with a port if the protocol has ports.
fn end(word: &str, has_port: bool) -> Result<SocketAddr, String> {
    let bare = |word: &str| {
        let inner = word.strip_prefix('[').and_then(|word| word.strip_suffix(']'));
        let v6 = inner.map(|word| word.parse::<Ipv6Addr>().map(IpAddr::V6));
        v6.unwrap_or_else(|| word.parse()).ok()
    };
    let (end, hint) = match has_port {
        true => (word.parse().ok(), "write 198.18.0.1:80 or [2001:2::1]:80"),
        false => {
            let end = bare(word).map(|address| SocketAddr::new(address, 0));
            (end, "write 198.18.0.1 or 2001:2::1; this packet has no ports")
        }
    };
    end.map_or_else(|| wrong(format!("`{}` is not one of its ends", shortened(word)), hint), Ok)
}

fn hex(digits: &str) -> Option<Vec<u8>> {
    let without_colons = digits.chars().filter(|c| *c != ':');
    let digits: Vec<u32> = without_colons.map(|c| c.to_digit(16)).collect::<Option<_>>()?;
    let pairs = digits.chunks(2).map(|pair| (pair[0] << 4 | pair[1]) as u8);
    (digits.len().is_multiple_of(2) && digits.len() <= 2 * MAX_FRAME).then(|| pairs.collect())
}

/// Keys, their names as conditions of filters, and their values.
const KEYS: &[(&str, &str, &str)] = &[
    ("dscp", "", "0 to 63 or a name such as EF, AF41, CS1, LE"),
    ("ecn", "", "not-ect, ect0, ect1 or ce, or 0 to 3"),
    ("length", "", "the bytes of the IP packet with its headers, at most 65535"),
    (
        "flags",
        "tcp_flags",
        "some of fin, syn, rst, psh, ack, urg, ece and cwr, as in syn,ack; or none",
    ),
    ("type", "icmp_type", "0 to 255 or a name such as echo-request"),
    ("code", "icmp_code", "0 to 255"),
    ("flow_label", "", "0 to 0xfffff"),
    ("fragment", "", "first or later"),
    ("vlan", "", "0 to 4094"),
    ("vlan_priority", "", "0 to 7"),
    ("uid", "", "the number of a user"),
    ("cgroup", "", "the path of a control group, such as /system.slice/ssh.service"),
    ("incoming", "", "an interface"),
    ("mark", "", "0 to 0xffffffff"),
    ("source_mac", "", "an Ethernet address such as 02:00:5e:10:00:01"),
    ("destination_mac", "", "an Ethernet address such as 02:00:5e:10:00:01"),
];

const EXAMPLE: &str = "write `tcp 198.18.0.1:1234 > 198.18.0.2:80 dscp=EF`, `arp vlan=5` or \
    `hex:…` (an Ethernet frame)";

/// Offset of a later fragment of a 1500-byte packet, in units of eight bytes.
const LATER_OFFSET: u16 = 185;
const FRAGMENT_HEADER: u8 = 44;

const NO_FLAGS: &str = "none";

/// Flags of a TCP packet by default: data on an established connection.
const ACK: u8 = 0x10;

/// Maximum bytes of a frame in hexadecimal.
const MAX_FRAME: usize = 9216;
