//! Packets built from their parts, most of them so that a filter takes them.

use std::net::IpAddr;

use linerate_qos::packet::{LinkType, Metadata};
use linerate_qos::policy::{AddressRange, Conditions, Family, Mac, PolicyFile, Range};
use linerate_qos::rules::Bindings;

use super::files::{address, dscp, ip, mac};
use super::{Dice, Wishes};

/// The parts of a packet.
#[derive(Debug, Clone)]
pub(crate) struct Recipe {
    pub(crate) link: LinkType,
    /// Tags in the bytes, the outermost first: protocol and control information.
    pub(crate) tags: Vec<(u16, u16)>,
    /// EtherType of a packet that is not of IP.
    pub(crate) ethertype: u16,
    pub(crate) ip: Option<Ip>,
    /// What is beside the bytes; `protocol` and `wire_length` are filled in by
    /// [`Recipe::metadata`].
    pub(crate) beside: Metadata,
    /// Of its Ethernet header: destination, source.
    pub(crate) macs: [Mac; 2],
    /// The frame ends here, if it is longer.
    pub(crate) cut: Option<usize>,
}

/// A packet of IPv4 or IPv6.
#[derive(Debug, Clone)]
pub(crate) struct Ip {
    pub(crate) source: IpAddr,
    pub(crate) destination: IpAddr,
    pub(crate) traffic_class: u8,
    pub(crate) flow_label: u32,
    /// 32-bit words of IPv4 options, 0 to 10.
    pub(crate) option_words: usize,
    /// IPv4: (offset in units of 8 bytes, more, id).
    pub(crate) fragment: Option<(u16, bool, u16)>,
    /// IPv6: headers before the transport header.
    pub(crate) extensions: Vec<Extension>,
    pub(crate) protocol: u8,
    pub(crate) ports: (u16, u16),
    pub(crate) icmp: (u8, u8),
    pub(crate) flags: u8,
    /// 32-bit words of TCP options, 0 to 10.
    pub(crate) tcp_option_words: usize,
    pub(crate) payload: usize,
    /// What the header says of the packet's length, if it is not what it is.
    pub(crate) claimed_length: Option<u16>,
}

/// An IPv6 extension header.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Extension {
    /// Its number, and its length field.
    Plain(u8, u8),
    Fragment {
        offset: u16,
        more: bool,
        id: u32,
    },
}

/// A packet that a filter of the file takes, often; else one beside it.
pub(crate) fn packet(dice: &mut Dice, file: &PolicyFile, wishes: &Wishes) -> Recipe {
    let bindings = Bindings::stand_in(file);
    let is_v6 = dice.one_in(2);
    let asked = if dice.one_in(10) {
        Conditions::default()
    } else {
        let index = dice.below(file.filters.len() as u64) as usize;
        file.filters[index].conditions.clone()
    };
    let is_v6 = family(&asked).map_or(is_v6, |family| family == Family::V6);
    let is_other = asked.family == [Family::Other] || dice.one_in(20);
    let mut recipe = Recipe {
        link: if dice.one_in(6) { LinkType::RawIp } else { LinkType::Ethernet },
        tags: Vec::new(),
        ethertype: dice.pick(&[0x0806, 0x88cc, 0x05dc, 0x0600]),
        ip: (!is_other).then(|| any_ip(dice, is_v6)),
        beside: Metadata::default(),
        macs: [mac(dice).first, mac(dice).last],
        cut: None,
    };
    let macs = [&asked.destination_mac, &asked.source_mac];
    for (mac, asked) in recipe.macs.iter_mut().zip(macs) {
        set(dice, asked, mac);
    }
    if let Some(ip) = &mut recipe.ip {
        aim(dice, ip, &asked);
        disturb(dice, ip);
    } else if let Some(Range { first, last }) = asked.ethertype.first() {
        let number = number(dice, *first, *last);
        if !NOT_OTHER.contains(&number) {
            recipe.ethertype = number;
        }
    }
    add_beside(dice, &mut recipe, &asked, wishes, &bindings);
    add_tags(dice, &mut recipe, &asked, wishes);
    if dice.one_in(12) {
        recipe.cut = Some(dice.below(90) as usize);
    }
    recipe
}

impl Recipe {
    /// Its bytes. The IPv4 checksum is right.
    pub(crate) fn frame(&self) -> Vec<u8> {
        let mut frame = Vec::new();
        if self.link == LinkType::Ethernet {
            frame.extend(self.macs.iter().flat_map(|mac| mac.octets()));
            for (protocol, tci) in &self.tags {
                frame.extend(protocol.to_be_bytes());
                frame.extend(tci.to_be_bytes());
            }
            frame.extend(self.family_ethertype().to_be_bytes());
        }
        match &self.ip {
            Some(ip) => frame.extend(ip.bytes()),
            None => frame.extend([0; 46]),
        }
        frame.truncate(self.cut.unwrap_or(usize::MAX));
        frame
    }

    /// What the kernel knows beside.
    pub(crate) fn metadata(&self) -> Metadata {
        let tagged = self.tags.first().map(|(protocol, _)| *protocol);
        let frame = self.frame().len() as u32;
        let segments = self.beside.gso_segments.max(1);
        Metadata {
            protocol: tagged.unwrap_or(self.family_ethertype()),
            wire_length: frame + (segments - 1) * 54,
            ..self.beside
        }
    }

    pub(crate) fn family_ethertype(&self) -> u16 {
        match &self.ip {
            Some(ip) if ip.source.is_ipv6() => 0x86dd,
            Some(_) => 0x0800,
            None => self.ethertype,
        }
    }
}

impl Ip {
    fn bytes(&self) -> Vec<u8> {
        match (self.source, self.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                self.v4(source.octets(), destination.octets())
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                self.v6(source.octets(), destination.octets())
            }
            _ => panic!("both addresses are of one family"),
        }
    }

    /// Bytes from the IP header on to the end of the transport header.
    pub(crate) fn header_bytes(&self) -> usize {
        let network = match self.source {
            IpAddr::V4(_) => 20 + 4 * self.option_words,
            IpAddr::V6(_) => 40 + self.extensions.iter().map(Extension::len).sum::<usize>(),
        };
        network + self.transport().len() - self.payload
    }

    fn v4(&self, source: [u8; 4], destination: [u8; 4]) -> Vec<u8> {
        let transport = self.transport();
        let header_bytes = 20 + 4 * self.option_words;
        let total = (header_bytes + transport.len()) as u16;
        let (offset, more, id) = self.fragment.unwrap_or((0, false, 7));
        let mut header = vec![0x40 | (header_bytes / 4) as u8, self.traffic_class];
        header.extend(self.claimed_length.unwrap_or(total).to_be_bytes());
        header.extend(id.to_be_bytes());
        header.extend((offset | u16::from(more) << 13).to_be_bytes());
        header.extend([64, self.protocol, 0, 0]);
        header.extend(source);
        header.extend(destination);
        header.resize(header_bytes, 1);
        let checksum = checksum(&header);
        header[10..12].copy_from_slice(&checksum.to_be_bytes());
        header.extend(transport);
        header
    }

    fn v6(&self, source: [u8; 16], destination: [u8; 16]) -> Vec<u8> {
        let numbers = self.extensions.iter().map(Extension::number);
        let mut numbers = numbers.chain([self.protocol]);
        let first = numbers.next().expect("the protocol at least");
        let mut above = Vec::new();
        for (extension, next) in self.extensions.iter().zip(numbers) {
            above.extend(extension.bytes(next));
        }
        above.extend(self.transport());
        let length = self.claimed_length.map(|bytes| bytes.saturating_sub(40));
        let word = 6 << 28 | u32::from(self.traffic_class) << 20 | self.flow_label;
        let mut packet = word.to_be_bytes().to_vec();
        packet.extend(length.unwrap_or(above.len() as u16).to_be_bytes());
        packet.extend([first, 64]);
        packet.extend(source);
        packet.extend(destination);
        packet.extend(above);
        packet
    }

    fn transport(&self) -> Vec<u8> {
        let mut bytes = self.ports.0.to_be_bytes().to_vec();
        bytes.extend(self.ports.1.to_be_bytes());
        match self.protocol {
            1 | 58 => {
                bytes[..2].copy_from_slice(&[self.icmp.0, self.icmp.1]);
                bytes.extend([0; 4]);
            }
            6 => {
                bytes.extend([0; 8]);
                bytes.extend([(5 + self.tcp_option_words as u8) << 4, self.flags]);
                bytes.resize(20 + 4 * self.tcp_option_words, 0);
            }
            _ => bytes.extend([0; 4]),
        }
        bytes.resize(bytes.len() + self.payload, 0xa5);
        bytes
    }
}

impl Extension {
    fn number(&self) -> u8 {
        match self {
            Self::Plain(number, _) => *number,
            Self::Fragment { .. } => 44,
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Plain(51, units) => (usize::from(*units) + 2) * 4,
            Self::Plain(_, units) => (usize::from(*units) + 1) * 8,
            Self::Fragment { .. } => 8,
        }
    }

    fn bytes(&self, next: u8) -> Vec<u8> {
        match self {
            Self::Plain(_, units) => {
                let mut bytes = vec![next, *units];
                bytes.resize(self.len(), 0);
                bytes
            }
            Self::Fragment { offset, more, id } => {
                let mut bytes = vec![next, 0];
                bytes.extend((offset << 3 | u16::from(*more)).to_be_bytes());
                bytes.extend(id.to_be_bytes());
                bytes
            }
        }
    }
}

fn any_ip(dice: &mut Dice, is_v6: bool) -> Ip {
    let ends = [address(dice, is_v6), address(dice, is_v6)].map(|range| inside(dice, &range));
    Ip {
        source: ends[0],
        destination: ends[1],
        traffic_class: dscp(dice).octet() | dice.below(4) as u8,
        flow_label: dice.below(1 << 20) as u32,
        option_words: 0,
        fragment: None,
        extensions: Vec::new(),
        protocol: dice.pick(&[6, 6, 6, 17, 17, 1, 58, 132, 136, 33, 50, 89]),
        ports: (dice.pick(&[22, 80, 5201, 40_001]), dice.pick(&[22, 80, 443, 5201])),
        icmp: (dice.pick(&[0, 3, 8, 128]), dice.below(4) as u8),
        flags: dice.pick(&[0x02, 0x10, 0x12, 0x18, 0x11, 0xc2]),
        tcp_option_words: dice.pick(&[0, 0, 3, 10]),
        payload: dice.below(40) as usize,
        claimed_length: None,
    }
}

/// Gives a packet the values that a filter asks for, or the ones just beside them.
fn aim(dice: &mut Dice, ip: &mut Ip, asked: &Conditions) {
    let is_v6 = ip.source.is_ipv6();
    let end = |dice: &mut Dice, list: &[AddressRange], address: &mut IpAddr| {
        let fits = |range: &&AddressRange| range.first.is_ipv6() == is_v6;
        if let Some(range) = choose(dice, list).as_ref().filter(fits) {
            *address = inside(dice, range);
        }
    };
    end(dice, &asked.source, &mut ip.source);
    end(dice, &asked.destination, &mut ip.destination);
    if dice.one_in(2) {
        end(dice, &asked.address, &mut ip.source)
    } else {
        end(dice, &asked.address, &mut ip.destination)
    }
    let ports = [&asked.source_port, &asked.destination_port];
    if ports.iter().any(|list| !list.is_empty()) || !asked.port.is_empty() {
        ip.protocol = dice.pick(&[6, 6, 17, 17, 33, 132, 136]);
    }
    if !asked.tcp_flags.is_empty() {
        ip.protocol = 6;
    }
    if !asked.icmp_type.is_empty() || !asked.icmp_code.is_empty() {
        ip.protocol = if is_v6 { 58 } else { 1 };
    }
    set(dice, &asked.protocol, &mut ip.protocol);
    set(dice, &asked.source_port, &mut ip.ports.0);
    set(dice, &asked.destination_port, &mut ip.ports.1);
    if dice.one_in(2) {
        set(dice, &asked.port, &mut ip.ports.0)
    } else {
        set(dice, &asked.port, &mut ip.ports.1)
    }
    set(dice, &asked.icmp_type, &mut ip.icmp.0);
    set(dice, &asked.icmp_code, &mut ip.icmp.1);
    set(dice, &asked.flow_label, &mut ip.flow_label);
    ip.flow_label &= 0xf_ffff;
    let (mut dscp, mut ecn) = (ip.traffic_class >> 2, ip.traffic_class & 3);
    set(dice, &asked.dscp, &mut dscp);
    set(dice, &asked.ecn, &mut ecn);
    ip.traffic_class = dscp << 2 | ecn & 3;
    if let Some(test) = choose(dice, &asked.tcp_flags) {
        ip.flags = ip.flags & !test.mask | test.value;
    }
    if let Some(range) = choose(dice, &asked.length) {
        ip.claimed_length = Some(number(dice, range.first, range.last).min(65_535) as u16);
    }
}

/// Options, extension headers, fragments.
fn disturb(dice: &mut Dice, ip: &mut Ip) {
    if ip.source.is_ipv6() && EXTENSIONS.contains(&ip.protocol) {
        ip.protocol = 253;
    }
    if dice.one_in(5) {
        ip.option_words = dice.below(11) as usize;
        let count = dice.pick(&[1, 1, 2, 3, 7, 8, 9]);
        ip.extensions = (0..count).map(|_| extension(dice)).collect();
    }
    if dice.one_in(6) {
        let offset = dice.pick(&[0, 0, 0, 1, 185, 0x1fff]);
        let more = dice.one_in(2);
        let id = dice.below(4) as u16;
        ip.fragment = Some((offset, more, id));
        let id = u32::from(id) << 16;
        let at = dice.below(ip.extensions.len() as u64 + 1) as usize;
        ip.extensions.insert(at, Extension::Fragment { offset, more, id });
    }
    if !ip.source.is_ipv6() {
        ip.extensions.clear();
    }
}

fn extension(dice: &mut Dice) -> Extension {
    let number = dice.pick(&[0, 43, 51, 60, 135, 139, 140]);
    // An authentication header is 4 × n + 8 bytes, and a whole number of 8 in IPv6; what it says is
    // taken all the same.
    Extension::Plain(number, dice.pick(&[0, 0, 0, 1, 2]))
}

fn add_beside(
    dice: &mut Dice,
    recipe: &mut Recipe,
    asked: &Conditions,
    wishes: &Wishes,
    bindings: &Bindings,
) {
    let beside = &mut recipe.beside;
    if let Some(interface) = asked.incoming.first() {
        beside.incoming = bindings.interfaces[interface];
    } else if dice.one_in(4) {
        beside.incoming = dice.below(4) as u32;
    }
    if let Some(mark) = choose(dice, &asked.mark) {
        let chosen = number(dice, mark.range.first, mark.range.last);
        beside.mark = chosen | dice.pick(&[0, 5, u32::MAX]) & !mark.mask;
    }
    if wishes.owners {
        beside.uid = dice.pick(&[None, Some(0), Some(1000), Some(2000), Some(65_534)]);
        if let Some(Range { first, last }) = choose(dice, &asked.uid) {
            beside.uid = Some(number(dice, first, last));
        }
        let named =
            if dice.one_in(3) { bindings.cgroups.keys().next() } else { asked.cgroup.first() };
        beside.cgroups[0] = 1;
        if let Some(group) = named.and_then(|path| bindings.cgroups.get(path)) {
            beside.cgroups[1..=usize::from(group.level)].fill(9999);
            beside.cgroups[usize::from(group.level)] = group.id;
        }
    }
    let is_offloaded = |ip: &Ip| matches!(ip.protocol, 6 | 17 | 132);
    if dice.one_in(8) && recipe.ip.as_ref().is_some_and(is_offloaded) {
        beside.gso_size = dice.pick(&[100, 536, 1448, 9000]);
        beside.gso_segments = 2 + dice.below(40) as u32;
    }
}

fn add_tags(dice: &mut Dice, recipe: &mut Recipe, asked: &Conditions, wishes: &Wishes) {
    if recipe.link == LinkType::RawIp || (asked.vlan.is_empty() && !dice.one_in(6)) {
        return;
    }
    let mut id = dice.below(14) as u16;
    set(dice, &asked.vlan, &mut id);
    let tci = id & 0xfff | (dice.below(16) as u16) << 12;
    if wishes.tags_beside && dice.one_in(2) {
        recipe.beside.vlan_tci = Some(tci);
    } else {
        recipe.tags.push((dice.pick(&[0x8100, 0x88a8]), tci));
    }
    for _ in 0..dice.pick(&[0, 0, 0, 1, 2]) {
        recipe.tags.push((0x8100, dice.next() as u16));
    }
}

fn choose<T: Copy>(dice: &mut Dice, list: &[T]) -> Option<T> {
    (!list.is_empty()).then(|| dice.pick(list))
}

fn set<T: Copy + Into<u128> + TryFrom<u128>>(dice: &mut Dice, list: &[Range<T>], value: &mut T) {
    if let Some(Range { first, last }) = choose(dice, list) {
        *value = number(dice, first, last);
    }
}

/// A number of a range, often its ends, now and then just outside.
fn number<T: Copy + Into<u128> + TryFrom<u128>>(dice: &mut Dice, first: T, last: T) -> T {
    let (low, high) = (first.into(), last.into());
    let number = around(dice, low, high);
    T::try_from(number).unwrap_or(first)
}

fn around(dice: &mut Dice, first: u128, last: u128) -> u128 {
    match dice.below(24) {
        0 => first.saturating_sub(1),
        1 => last.saturating_add(1),
        2..8 => first,
        8..14 => last,
        _ => dice.within(first, last),
    }
}

fn inside(dice: &mut Dice, range: &AddressRange) -> IpAddr {
    let number = |address: IpAddr| match address {
        IpAddr::V4(address) => u128::from(u32::from(address)),
        IpAddr::V6(address) => address.into(),
    };
    let is_v6 = range.first.is_ipv6();
    let most = if is_v6 { u128::MAX } else { u32::MAX.into() };
    let chosen = around(dice, number(range.first), number(range.last));
    ip(chosen.min(most), is_v6)
}

/// The family that addresses and labels ask for.
fn family(asked: &Conditions) -> Option<Family> {
    let lists = [&asked.source, &asked.destination, &asked.address];
    let of = |range: &AddressRange| {
        if range.first.is_ipv6() { Family::V6 } else { Family::V4 }
    };
    let by_address = lists.iter().find_map(|list| list.first()).map(of);
    let by_label = (!asked.flow_label.is_empty()).then_some(Family::V6);
    by_address.or(by_label).or(asked.family.first().copied())
}

/// RFC 1071.
pub(crate) fn checksum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1]));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// EtherTypes of IP and of tags, which stand before another one.
const NOT_OTHER: [u16; 4] = [0x0800, 0x86dd, 0x8100, 0x88a8];

const EXTENSIONS: [u8; 8] = [0, 43, 44, 51, 60, 135, 139, 140];
