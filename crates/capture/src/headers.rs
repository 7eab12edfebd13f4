//! The headers in which IP packets come: of link types, tags and tunnels. A small function for each
//! says how long it is and what follows it.

use std::fmt;

/// A header, by what its first byte is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Header {
    Ip,
    Ethernet,
    /// What an Ethernet type names; the type itself stands before it.
    Typed(u16),
    Vlan,
    /// IEEE 802.2.
    Llc,
    Snap,
    /// IEEE 802.1ah, after its Ethernet type.
    Backbone,
    Mpls,
    Pppoe,
    Ppp,
    /// A byte with the direction, and PPP or Cisco's HDLC.
    Directed,
    Fddi,
    Radiotap,
    Wlan {
        /// To a multiple of four bytes.
        is_padded: bool,
    },
    /// Linux cooked, version 1.
    Cooked,
    /// Linux cooked, version 2.
    Cooked2,
    /// The address family in the capturing host's order.
    Loopback,
    Nflog,
    /// OpenBSD's packet filter log.
    PfLog,
    /// OpenBSD's IPsec interface.
    Enc,
    /// A length, and the number of the link type that follows.
    Numbered {
        length_at: u8,
        link_at: u8,
    },
    Udp,
    Gre,
    Erspan3,
    Vxlan,
    Geneve,
    Gtp,
    L2tp,
    EtherIp,
    /// A link type that is not read.
    Unread(i32),
}

/// What a header tells of what follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// That header, after so many bytes; these are an encapsulation if it has a name.
    Next(Header, usize, Option<Carrier>),
    /// No TCP.
    End(What),
}

use Step::{End, Next};

/// A packet's contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum What {
    Tcp,
    EtherType(u16),
    IpProtocol(u8),
    UdpPort(u16),
    Link(i32),
    Named(&'static str),
}

impl What {
    /// Whether it is UDP without a tunnel.
    pub(crate) fn is_udp(self) -> bool {
        matches!(self, Self::UdpPort(_) | NOT_TUNNEL)
    }
}

macro_rules! carriers {
    ($($carrier:ident $name:literal),+ $(,)?) => {
        /// An encapsulation.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum Carrier {
            $($carrier),+
        }

        const CARRIERS: &[&str] = &[$($name),+];
    };
}

carriers! {
    Snap "SNAP", Backbone "802.1ah", Mpls "MPLS", Pppoe "PPPoE", Gre "GRE", Pptp "PPTP",
    Erspan1 "ERSPAN I", Erspan2 "ERSPAN II", Erspan3 "ERSPAN III", Vxlan "VXLAN",
    Geneve "Geneve", Gtp "GTP-U", L2tp "L2TP", EtherIp "EtherIP", IpIp "IPIP", SixInFour "6in4",
    FourInSix "4in6", SixInSix "IPv6 in IPv6",
}

/// The encapsulations of a packet, at most [`Encapsulation::MAX`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Encapsulation(u64);

impl Encapsulation {
    /// The most encapsulations in each other that are read.
    pub const MAX: usize = 8;

    /// Their names, the outermost first.
    pub fn names(self) -> Vec<&'static str> {
        let known = self.0.to_be_bytes().into_iter().filter(|number| *number > 0);
        known.map(|number| CARRIERS[usize::from(number) - 1]).collect()
    }

    /// Whether there is none.
    pub fn is_none(self) -> bool {
        self.0 == 0
    }

    pub(crate) fn number(self) -> u64 {
        self.0
    }

    /// Adds the next one inwards. Returns false if there is no room.
    pub(crate) fn push(&mut self, carrier: Carrier) -> bool {
        let has_room = self.0 >> 56 == 0;
        if has_room {
            self.0 = self.0 << 8 | (carrier as u64 + 1);
        }
        has_room
    }
}

/// Link types by their numbers in files (`LINKTYPE_…`; 12 and 14 are BSD's raw IP); those without a
/// header are not read.
const LINKS: &[(&str, &[i32], Option<Header>)] = &[
    ("Ethernet", &[1], Some(Header::Ethernet)),
    ("Linux cooked", &[113], Some(Header::Cooked)),
    ("Linux cooked, version 2", &[276], Some(Header::Cooked2)),
    ("raw IP", &[12, 14, 101, 228, 229], Some(Header::Ip)),
    ("loopback", &[0, 108], Some(Header::Loopback)),
    ("PPP", &[9, 50, 166], Some(Header::Ppp)),
    ("PPP with direction", &[204], Some(Header::Directed)),
    ("PPPoE", &[51], Some(Header::Pppoe)),
    ("Cisco HDLC", &[104], Some(Header::Ppp)),
    ("Cisco HDLC with direction", &[205], Some(Header::Directed)),
    ("802.11", &[105], Some(Header::Wlan { is_padded: false })),
    ("802.11 radiotap", &[127], Some(Header::Radiotap)),
    ("PPI", &[192], Some(Header::Numbered { length_at: 2, link_at: 4 })),
    ("PKTAP", &[258], Some(Header::Numbered { length_at: 0, link_at: 8 })),
    ("NFLOG", &[239], Some(Header::Nflog)),
    ("pflog", &[117], Some(Header::PfLog)),
    ("enc", &[109], Some(Header::Enc)),
    ("FDDI", &[10], Some(Header::Fddi)),
    ("LLC", &[100], Some(Header::Llc)),
    ("MPLS", &[219], Some(Header::Mpls)),
    ("token ring", &[6], None),
    ("frame relay", &[107, 206], None),
    ("802.11 with a Prism header", &[119], None),
    ("802.11 with an AVS header", &[163], None),
    ("Bluetooth", &[187, 201, 251, 254, 255, 256], None),
    ("USB", &[186, 189, 220, 249, 266], None),
    ("802.15.4", &[191, 195, 215, 216, 230, 283], None),
    ("CAN", &[190, 227], None),
    ("InfiniBand", &[242, 247], None),
    ("exported PDUs", &[252], None),
    ("netlink", &[253], None),
];

/// The name of a link type, by its number in files (`LINKTYPE_…`); `None` if it is unknown.
pub fn link_name(number: i32) -> Option<&'static str> {
    link(number).map(|(name, ..)| *name)
}

fn link(number: i32) -> Option<&'static (&'static str, &'static [i32], Option<Header>)> {
    LINKS.iter().find(|(_, numbers, _)| numbers.contains(&number))
}

/// The link types that are read, in words.
pub(crate) fn links_read() -> String {
    let read = LINKS.iter().filter(|(.., header)| header.is_some());
    let names: Vec<String> = read
        .map(|(name, numbers, _)| {
            let numbers: Vec<String> = numbers.iter().map(i32::to_string).collect();
            format!("{name} ({})", numbers.join(", "))
        })
        .collect();
    names.join(", ")
}

impl Header {
    /// The first header of a link type.
    pub(crate) fn of_link(number: i32) -> Self {
        link(number).and_then(|(.., header)| *header).unwrap_or(Self::Unread(number))
    }

    /// Whether it begins with link addresses that tell where on its way a packet was recorded.
    pub(crate) fn has_addresses(self) -> bool {
        matches!(self, Self::Ethernet | Self::Wlan { .. })
    }

    /// What follows it; `None` if it has more bytes than these. IP is read by others.
    pub(crate) fn peel(self, bytes: &[u8]) -> Option<Step> {
        match self {
            Self::Ethernet => Some(typed(half(bytes, 12)?, 14)),
            Self::Ip => None,
            Self::Typed(number) => Some(typed(number, 0)),
            Self::Vlan => Some(typed(half(bytes, 2)?, 4)),
            Self::Llc => llc(bytes),
            Self::Snap => snap(bytes),
            Self::Backbone => Some(Next(Self::Ethernet, 4, Some(Carrier::Backbone))),
            Self::Mpls => mpls(bytes),
            Self::Pppoe => pppoe(bytes),
            Self::Ppp => ppp(bytes),
            Self::Directed => Some(Next(Self::Ppp, 1, None)),
            Self::Fddi => fddi(bytes),
            Self::Radiotap => radiotap(bytes),
            Self::Wlan { is_padded } => wlan(bytes, is_padded),
            Self::Cooked => cooked(half(bytes, 14)?, 16),
            Self::Cooked2 => cooked(half(bytes, 0)?, 20),
            Self::Loopback => Some(Next(Self::Ip, 4, None)),
            Self::Nflog => nflog(bytes),
            Self::PfLog => {
                let length = usize::from(*bytes.first()?);
                Some(Next(Self::Ip, length.next_multiple_of(4), None))
            }
            Self::Enc => Some(Next(Self::Ip, 12, None)),
            Self::Numbered { length_at, link_at } => {
                let header = Self::of_link(i32::from(little(bytes, link_at.into())?));
                Some(Next(header, usize::from(little(bytes, length_at.into())?), None))
            }
            Self::Udp => udp(bytes),
            Self::Gre => gre(bytes),
            Self::Erspan3 => erspan3(bytes),
            Self::Vxlan => vxlan(bytes),
            Self::Geneve => geneve(bytes),
            Self::Gtp => gtp(bytes),
            Self::L2tp => l2tp(bytes),
            Self::EtherIp => Some(Next(Self::Ethernet, 2, Some(Carrier::EtherIp))),
            Self::Unread(number) => Some(End(What::Link(number))),
        }
    }
}

/// What an Ethernet type announces after so many bytes.
#[inline]
fn typed(number: u16, at: usize) -> Step {
    let next = match number {
        0x0800 | 0x86dd => Header::Ip,
        0x8100 | 0x88a8 | 0x9100 => Header::Vlan,
        0x8847 | 0x8848 => Header::Mpls,
        0x8864 => Header::Pppoe,
        0x88e7 => Header::Backbone,
        // Transparent Ethernet bridging, in GRE and Geneve.
        0x6558 => Header::Ethernet,
        0x880b => Header::Ppp,
        // A length (IEEE 802.3): types begin at 0x0600.
        ..=0x05ff => Header::Llc,
        _ => return End(What::EtherType(number)),
    };
    Next(next, at, None)
}

/// What follows an IP header of so many bytes.
pub(crate) fn after_ip(protocol: u8, is_ipv4: bool, at: usize) -> Step {
    match (protocol, is_ipv4) {
        (4, true) => Next(Header::Ip, at, Some(Carrier::IpIp)),
        (4, false) => Next(Header::Ip, at, Some(Carrier::FourInSix)),
        (41, true) => Next(Header::Ip, at, Some(Carrier::SixInFour)),
        (41, false) => Next(Header::Ip, at, Some(Carrier::SixInSix)),
        (17, _) => Next(Header::Udp, at, None),
        (47, _) => Next(Header::Gre, at, None),
        (97, _) => Next(Header::EtherIp, at, None),
        (137, _) => Next(Header::Mpls, at, None),
        _ => End(What::IpProtocol(protocol)),
    }
}

/// Linux cooked: the type may be one of Linux's own (`ETH_P_802_3`, `ETH_P_802_2`).
fn cooked(number: u16, at: usize) -> Option<Step> {
    match number {
        1 => Some(End(What::Named("IPX"))),
        4 => Some(Next(Header::Llc, at, None)),
        _ => Some(typed(number, at)),
    }
}

fn llc(bytes: &[u8]) -> Option<Step> {
    Some(match bytes.get(..3)? {
        [0xaa, 0xaa, 3] => Next(Header::Snap, 3, None),
        [6, 6, 3] => Next(Header::Ip, 3, None),
        [0x42, 0x42, _] => End(What::Named("STP")),
        [0xe0 | 0xff, 0xe0 | 0xff, _] => End(What::Named("IPX")),
        [0xf0, 0xf0 | 0xf1, _] => End(What::Named("NetBIOS")),
        [0xfe, 0xfe, 3] => match bytes.get(3)? {
            // IPv4 and PPP over ATM (RFC 2684, 2364).
            0xcc => Next(Header::Ip, 4, None),
            0xcf => Next(Header::Ppp, 4, None),
            _ => End(What::Named("ISO routing (IS-IS)")),
        },
        _ => End(What::Named("LLC")),
    })
}

/// The organisation, and what it calls the type.
fn snap(bytes: &[u8]) -> Option<Step> {
    let number = half(bytes, 3)?;
    Some(match (bytes.get(..3)?, number) {
        // 00-00-f8 marks Ethernet types that bridges leave alone (IEEE 802.1H).
        ([0, 0, 0 | 0xf8], _) => Next(Header::Typed(number), 5, Some(Carrier::Snap)),
        // A bridged frame, after two bytes of padding (RFC 2684).
        ([0, 0x80, 0xc2], 1 | 7) => Next(Header::Ethernet, 7, Some(Carrier::Snap)),
        ([0, 0, 0x0c], 0x2000) => End(What::Named("CDP")),
        _ => End(What::Named("SNAP of a vendor")),
    })
}

/// RFC 3032, and 4448 for Ethernet in it, whose presence nothing announces.
fn mpls(bytes: &[u8]) -> Option<Step> {
    let mut labels = bytes.chunks_exact(4).take(MAX_LABELS);
    let at = (labels.position(|label| label[2] & 1 == 1)? + 1) * 4;
    let inner = bytes.get(at..)?;
    let next = |header, at| Next(header, at, Some(Carrier::Mpls));
    Some(match inner.first()? >> 4 {
        // A control word.
        0 if inner.get(4..).is_some_and(is_ethernet) => next(Header::Ethernet, at + 4),
        _ if is_ethernet(inner) => next(Header::Ethernet, at),
        0 => next(Header::Ethernet, at + 4),
        1 => End(What::Named("MPLS OAM")),
        4 | 6 => next(Header::Ip, at),
        _ => next(Header::Ethernet, at),
    })
}

/// Whether an Ethernet frame with a usual type begins here.
fn is_ethernet(bytes: &[u8]) -> bool {
    match bytes.get(12..15) {
        Some([0x08, 0x00, first]) => first >> 4 == 4,
        Some([0x86, 0xdd, first]) => first >> 4 == 6,
        Some([high, low, _]) => {
            matches!([high, low], [0x81, 0] | [0x88, 0xa8] | [8, 6] | [0x88, 0x47] | [0x88, 0x64])
        }
        _ => false,
    }
}

/// RFC 2516, 4: version and type, code, session, length.
fn pppoe(bytes: &[u8]) -> Option<Step> {
    Some(match half(bytes, 0)? {
        0x1100 => Next(Header::Ppp, 6, Some(Carrier::Pppoe)),
        _ => End(What::Named("PPPoE discovery")),
    })
}

/// RFC 1661, with or without the address and control of HDLC (RFC 1662), of which pppd replaces the
/// address by the direction. Cisco's HDLC has other addresses.
fn ppp(bytes: &[u8]) -> Option<Step> {
    let at = match bytes.get(..2)? {
        [0x0f | 0x8f, 0] => return Some(typed(half(bytes, 2)?, 4)),
        [0xff | 0 | 1, 3] => 2,
        _ => 0,
    };
    let first = *bytes.get(at)?;
    let (protocol, length) = if first & 1 == 1 { (first.into(), 1) } else { (half(bytes, at)?, 2) };
    Some(match protocol {
        0x21 | 0x57 => Next(Header::Ip, at + length, None),
        0x281 | 0x283 => Next(Header::Mpls, at + length, None),
        0x2d | 0x2f => End(What::Named("TCP with compressed headers")),
        0x3d => End(What::Named("multilink PPP")),
        0xfb | 0xfd => End(What::Named("compressed PPP")),
        0x8000.. => End(What::Named("PPP control")),
        _ => End(What::Named("PPP of another protocol")),
    })
}

/// ANSI X3T9.5: the frame control, two addresses.
fn fddi(bytes: &[u8]) -> Option<Step> {
    let is_llc = bytes.first()? & 0xf0 == 0x50;
    Some(if is_llc { Next(Header::Llc, 13, None) } else { End(What::Named("FDDI control")) })
}

/// Radiotap: its flags, after the bitmaps and, if it is there, the time, tell of padding.
fn radiotap(bytes: &[u8]) -> Option<Step> {
    let length = usize::from(little(bytes, 2)?);
    let header = bytes.get(..length)?;
    let present = *header.get(4)?;
    let maps = header.get(4..)?.chunks_exact(4).position(|map| map[3] & 0x80 == 0)? + 1;
    let after = 4 + maps * 4;
    let at = if present & 1 == 1 { after.next_multiple_of(8) + 8 } else { after };
    let flags = if present & 2 == 2 { *header.get(at)? } else { 0 };
    if flags & 0x40 != 0 {
        return Some(End(What::Named("802.11 with a wrong checksum")));
    }
    Some(Next(Header::Wlan { is_padded: flags & 0x20 != 0 }, length, None))
}

/// IEEE 802.11, 9.2.
fn wlan(bytes: &[u8], is_padded: bool) -> Option<Step> {
    let [control, flags] = *bytes.first_chunk()?;
    let end = |name| Some(End(What::Named(name)));
    match control >> 2 & 3 {
        0 => return end("802.11 management"),
        1 => return end("802.11 control"),
        2 if control & 0x40 != 0 => return end("802.11 without data"),
        2 => {}
        _ => return end("802.11 extension"),
    }
    if flags & 0x40 != 0 {
        return end("encrypted 802.11");
    }
    // Another fragment follows, or came before.
    if flags & 4 != 0 || bytes.get(22)? & 0x0f != 0 {
        return end("fragments of 802.11");
    }
    let addresses = if flags & 3 == 3 { 30 } else { 24 };
    let has_qos = control & 0x80 != 0;
    if has_qos && bytes.get(addresses)? & 0x80 != 0 {
        return end("aggregated 802.11 (A-MSDU)");
    }
    let qos = if has_qos { 2 } else { 0 } + if has_qos && flags & 0x80 != 0 { 4 } else { 0 };
    let length = addresses + qos;
    let padded = if is_padded { length.next_multiple_of(4) } else { length };
    Some(Next(Header::Llc, padded, None))
}

/// Attributes in the capturing host's order: length, type, value; the packet is of type 9.
fn nflog(bytes: &[u8]) -> Option<Step> {
    let mut at = 4;
    for _ in 0..MAX_ATTRIBUTES {
        let (length, kind) = (little(bytes, at)?, little(bytes, at + 2)?);
        let is_big = kind > 0xff;
        let (length, kind) =
            if is_big { (length.swap_bytes(), kind.swap_bytes()) } else { (length, kind) };
        if kind == 9 {
            return Some(Next(Header::Ip, at + 4, None));
        }
        at += usize::from(length.max(4)).next_multiple_of(4);
    }
    Some(End(What::Named("NFLOG without a packet")))
}

/// The destination's port tells of a tunnel and, for L2TP, the source's.
fn udp(bytes: &[u8]) -> Option<Step> {
    let ports = [half(bytes, 2)?, half(bytes, 0)?];
    let tunnel = match ports {
        // 8472 is Linux's own default.
        [4789 | 8472, _] => Header::Vxlan,
        [6081, _] => Header::Geneve,
        [2152, _] => Header::Gtp,
        [6635, _] => Header::Mpls,
        [1701, _] | [_, 1701] => Header::L2tp,
        _ => {
            let known = |port: &&u16| UDP_PORTS.iter().any(|(number, _)| number == *port);
            let port = ports.iter().find(known);
            return Some(End(port.map_or(What::IpProtocol(17), |port| What::UdpPort(*port))));
        }
    };
    Some(Next(tunnel, 8, None))
}

/// RFC 7348, 5; other flags are those of group policies.
fn vxlan(bytes: &[u8]) -> Option<Step> {
    let is_valid = bytes.first()? & 0x08 != 0 && *bytes.get(7)? == 0;
    Some(if is_valid { Next(Header::Ethernet, 8, Some(Carrier::Vxlan)) } else { End(NOT_TUNNEL) })
}

/// RFC 8926, 3.4.
fn geneve(bytes: &[u8]) -> Option<Step> {
    let first = *bytes.first()?;
    if first >> 6 != 0 {
        return Some(End(NOT_TUNNEL));
    }
    let options = usize::from(first & 0x3f) * 4;
    Some(Next(Header::Typed(half(bytes, 2)?), 8 + options, Some(Carrier::Geneve)))
}

/// 3GPP TS 29.281, 5.1: extension headers have their length in units of four bytes.
fn gtp(bytes: &[u8]) -> Option<Step> {
    let [flags, kind] = *bytes.first_chunk()?;
    if flags >> 4 != 3 {
        return Some(End(NOT_TUNNEL));
    }
    if kind != 255 {
        return Some(End(What::Named("GTP-U signalling")));
    }
    let mut at = 8;
    if flags & 7 != 0 {
        at = 12;
        let mut extension = if flags & 4 != 0 { *bytes.get(11)? } else { 0 };
        while extension != 0 {
            at += usize::from((*bytes.get(at)?).max(1)) * 4;
            extension = *bytes.get(at - 1)?;
        }
    }
    Some(match bytes.get(at)? >> 4 {
        4 | 6 => Next(Header::Ip, at, Some(Carrier::Gtp)),
        _ => End(What::Named("GTP-U without IP")),
    })
}

/// RFC 2661, 3.1.
fn l2tp(bytes: &[u8]) -> Option<Step> {
    let flags = half(bytes, 0)?;
    if flags & 0xf != 2 {
        return Some(End(NOT_TUNNEL));
    }
    if flags & 0x8000 != 0 {
        return Some(End(What::Named("L2TP control")));
    }
    let field = |bit: u16, length: usize| if flags & bit != 0 { length } else { 0 };
    let at = 6 + field(0x4000, 2) + field(0x0800, 4);
    let offset = match flags & 0x0200 {
        0 => 0,
        _ => 2 + usize::from(half(bytes, at)?),
    };
    Some(Next(Header::Ppp, at + offset, Some(Carrier::L2tp)))
}

/// RFC 2784 and 2890; version 1 is PPTP's (RFC 2637, 4.1). Cisco's ERSPAN has no sequence number in
/// its first type.
fn gre(bytes: &[u8]) -> Option<Step> {
    let (flags, number) = (half(bytes, 0)?, half(bytes, 2)?);
    let field = |bit: u16| if flags & bit != 0 { 4 } else { 0 };
    if flags & 7 == 1 {
        let at = 8 + field(0x1000) + field(0x0080);
        return Some(match flags & 0x1000 {
            0 => End(What::Named("PPTP acknowledgements")),
            _ => Next(Header::Ppp, at, Some(Carrier::Pptp)),
        });
    }
    if flags & 0x4007 != 0 {
        return Some(End(What::Named("GRE of another version")));
    }
    let at = 4 + field(0x8000) + field(0x2000) + field(0x1000);
    Some(match (number, flags & 0x1000) {
        (0, _) => End(What::Named("GRE keep-alive")),
        (0x88be, 0) => Next(Header::Ethernet, at, Some(Carrier::Erspan1)),
        (0x88be, _) => Next(Header::Ethernet, at + 8, Some(Carrier::Erspan2)),
        (0x22eb, _) => Next(Header::Erspan3, at, None),
        // WCCP: version 2 has a header of its own.
        (0x883e, _) if bytes.get(at)? >> 4 == 4 => Next(Header::Ip, at, Some(Carrier::Gre)),
        (0x883e, _) => Next(Header::Ip, at + 4, Some(Carrier::Gre)),
        _ => Next(Header::Typed(number), at, Some(Carrier::Gre)),
    })
}

/// draft-foschiano-erspan, 4.3: the frame's type, and whether a subheader follows.
fn erspan3(bytes: &[u8]) -> Option<Step> {
    let [kind, rest] = [*bytes.get(10)?, *bytes.get(11)?];
    let at = if rest & 1 == 1 { 20 } else { 12 };
    Some(match kind >> 2 & 0x1f {
        0 => Next(Header::Ethernet, at, Some(Carrier::Erspan3)),
        2 => Next(Header::Ip, at, Some(Carrier::Erspan3)),
        _ => End(What::Named("ERSPAN of no Ethernet")),
    })
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn little(bytes: &[u8], at: usize) -> Option<u16> {
    half(bytes, at).map(u16::swap_bytes)
}

/// What comes to a tunnel's port and is of no tunnel.
const NOT_TUNNEL: What = What::IpProtocol(17);
const MAX_LABELS: usize = 16;
const MAX_ATTRIBUTES: usize = 64;

impl fmt::Display for What {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fn name<T: PartialEq>(names: &[(T, &'static str)], number: T) -> Option<&'static str> {
            names.iter().find(|(known, _)| *known == number).map(|(_, name)| *name)
        }
        match *self {
            Self::Tcp => out.write_str("TCP"),
            Self::Named(name) => out.write_str(name),
            Self::EtherType(number) => match name(ETHER_TYPES, number) {
                Some(name) => out.write_str(name),
                None => write!(out, "Ethernet type 0x{number:04x}"),
            },
            Self::IpProtocol(number) => match name(IP_PROTOCOLS, number) {
                Some(name) => out.write_str(name),
                None => write!(out, "IP protocol {number}"),
            },
            Self::UdpPort(number) => {
                write!(out, "UDP port {number} ({})", name(UDP_PORTS, number).unwrap_or_default())
            }
            Self::Link(number) => match link_name(number) {
                Some(name) => write!(out, "link type {number} ({name})"),
                None => write!(out, "link type {number}"),
            },
        }
    }
}

const ETHER_TYPES: &[(u16, &str)] = &[
    (0x0806, "ARP"),
    (0x8035, "RARP"),
    (0x8137, "IPX"),
    (0x8809, "LACP"),
    (0x8863, "PPPoE discovery"),
    (0x888e, "802.1X"),
    (0x88cc, "LLDP"),
    (0x88e5, "MACsec"),
    (0x88f7, "PTP"),
    (0x8902, "802.1ag"),
    (0x9000, "loopback test"),
];

const IP_PROTOCOLS: &[(u8, &str)] = &[
    (1, "ICMP"),
    (2, "IGMP"),
    (17, "UDP"),
    (50, "IPsec (ESP)"),
    (58, "ICMPv6"),
    (88, "EIGRP"),
    (89, "OSPF"),
    (103, "PIM"),
    (108, "compressed IP"),
    (112, "VRRP"),
    (115, "L2TPv3"),
    (132, "SCTP"),
];

const UDP_PORTS: &[(u16, &str)] = &[
    (53, "DNS"),
    (67, "DHCP"),
    (123, "NTP"),
    (161, "SNMP"),
    (443, "QUIC"),
    (500, "IKE"),
    (514, "syslog"),
    (547, "DHCPv6"),
    (1900, "SSDP"),
    (4500, "IPsec"),
    (5353, "mDNS"),
    (51820, "WireGuard"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_type_has_one_name() {
        let mut numbers: Vec<i32> =
            LINKS.iter().flat_map(|(_, numbers, _)| *numbers).copied().collect();
        let all = numbers.len();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), all);
    }

    #[test]
    fn encapsulations_keep_their_order_and_are_bounded() {
        let mut inside = Encapsulation::default();
        assert!(inside.is_none() && inside.push(Carrier::Mpls) && inside.push(Carrier::SixInSix));
        assert_eq!(inside.names(), ["MPLS", "IPv6 in IPv6"]);
        (2..Encapsulation::MAX).for_each(|_| assert!(inside.push(Carrier::Snap)));
        let full = inside;
        assert!(!inside.push(Carrier::Vxlan));
        assert_eq!((inside, inside.names().len()), (full, Encapsulation::MAX));
    }
}
