//! What rules see of a packet: [`Fields`], from its bytes and from what the kernel knows beside
//! them.

use crate::policy::Family;
use crate::policy::words::{
    ETHERTYPE_IPV4, ETHERTYPE_IPV6, ICMP, ICMPV6, PROTOCOLS_WITH_PORTS, TCP, UDP,
};

/// What `bpf_get_socket_uid` returns for packets without an owner (the kernel's `overflowuid`). A
/// user with this number cannot be distinguished, so that neither sets of [`Field::Uid`] nor
/// packets have it.
pub(crate) const NO_UID: u32 = 65_534;

/// A field of a packet that rules can use. A packet without the field (the port of a fragment, the
/// flow label of IPv4) is in no set of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Field {
    /// Source address: 32 or 128 bits.
    Source,
    /// Destination address.
    Destination,
    /// IP protocol; in IPv6 that of the upper-layer header.
    Protocol,
    /// Source port.
    SourcePort,
    /// Destination port.
    DestinationPort,
    /// DSCP before the policy.
    Dscp,
    /// ECN field.
    Ecn,
    /// ICMP or ICMPv6 type.
    IcmpType,
    /// ICMP or ICMPv6 code.
    IcmpCode,
    /// The eight TCP flags as a number.
    TcpFlags,
    /// IPv6 flow label.
    FlowLabel,
    /// VLAN id of the outermost tag.
    Vlan,
    /// EtherType behind VLAN tags. Only rules of [`Family::Other`] use it: the other families
    /// follow from it.
    EtherType,
    /// Bytes of the IP packet on the wire.
    Length,
    /// Owner of the socket; never `NO_UID`.
    Uid,
    /// Id of the socket's control group, or of the one above it, at this level (0 is the root),
    /// from `bpf_skb_ancestor_cgroup_id`. A group has one level, so that "in it or below it" is one
    /// comparison.
    Cgroup(u8),
    /// Index of the interface by which the packet came in.
    Incoming,
    /// These bits of its mark (`skb->mark`); 0 if nobody set it.
    Mark(u32),
    /// Source address of its Ethernet header.
    SourceMac,
    /// Destination address of its Ethernet header.
    DestinationMac,
}

impl Field {
    /// Whether packets of every family can have the field, because it is not in the IP packet.
    pub(crate) fn is_beside_ip(self) -> bool {
        matches!(
            self,
            Self::Vlan
                | Self::EtherType
                | Self::Uid
                | Self::Cgroup(_)
                | Self::Incoming
                | Self::Mark(_)
                | Self::SourceMac
                | Self::DestinationMac
        )
    }

    /// Maximum value of the field in a family.
    pub(crate) fn max(self, family: Family) -> u128 {
        match self {
            Self::Source | Self::Destination if family == Family::V6 => u128::MAX,
            Self::Source | Self::Destination | Self::Uid | Self::Incoming => u32::MAX.into(),
            Self::Mark(mask) => mask.into(),
            Self::Protocol | Self::IcmpType | Self::IcmpCode | Self::TcpFlags => 255,
            Self::SourcePort | Self::DestinationPort | Self::EtherType => 65_535,
            Self::Dscp => 63,
            Self::Ecn => 3,
            Self::FlowLabel => 0xf_ffff,
            Self::Vlan => 0xfff,
            // The highest number stands for an unknown length in the program.
            Self::Length => u128::from(u32::MAX) - 1,
            Self::Cgroup(_) | Self::SourceMac | Self::DestinationMac => u64::MAX.into(),
        }
    }
}

/// The link layer of an interface's frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LinkType {
    /// 14 bytes of Ethernet, VLAN tags behind them (also loopback and VLAN devices: `ARPHRD_ETHER`,
    /// `ARPHRD_LOOPBACK`).
    Ethernet,
    /// None, the IP header comes first: TUN, WireGuard, PPP as the kernel shows it (`ARPHRD_NONE`,
    /// `ARPHRD_PPP`, tunnels).
    RawIp,
}

/// Number of control group levels that can be used, including the root.
pub const CGROUP_LEVELS: usize = 16;

/// What the kernel knows of a packet beside its bytes (`struct __sk_buff`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Metadata {
    /// `skb->protocol`, host order; it decides the family of packets without an EtherType.
    pub protocol: u16,
    /// TCI of a tag that is not in the bytes (`vlan_present`).
    pub vlan_tci: Option<u16>,
    /// Payload bytes of each segment of an offloaded packet; 0 for other packets.
    pub gso_size: u32,
    /// Number of its segments; 0 counts as 1.
    pub gso_segments: u32,
    /// Bytes on the wire of all segments with their headers (`wire_len`).
    pub wire_length: u32,
    /// Owner of the socket, if it has one.
    pub uid: Option<u32>,
    /// Ids of the socket's control group and those above it by level, from the root; 0 if there is
    /// none.
    pub cgroups: [u64; CGROUP_LEVELS],
    /// Index of the interface by which it came in; 0 for packets of this host.
    pub incoming: u32,
    /// `skb->mark`.
    pub mark: u32,
}

/// The field values of a packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fields {
    family: Family,
    values: Vec<(Field, u128)>,
    tci: Option<u16>,
    mark: u32,
    fragment: Option<Fragment>,
}

/// What identifies the packet that a fragment belongs to, beside its addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fragment {
    /// The identification, 16 or 32 bits.
    pub id: u32,
    /// IPv4: the protocol (RFC 791); IPv6: 0, because it is no part of the key (RFC 8200, 4.5).
    pub protocol: u8,
    /// Whether it is the first, which has the transport header.
    pub first: bool,
}

impl Fields {
    /// Reads the fields of any frame.
    ///
    /// A frame that is cut off has the fields whose bytes it has. The two ports come together, and
    /// so do ICMP type and code.
    pub fn new(frame: &[u8], link: LinkType, metadata: &Metadata) -> Self {
        let layer = LinkLayer::new(frame, link, metadata);
        let mut fields = Self {
            family: layer.family(),
            values: Vec::with_capacity(16),
            tci: layer.tci,
            mark: metadata.mark,
            fragment: None,
        };
        fields.put(Field::Vlan, layer.tci.map(|tci| tci & 0x0fff));
        fields.put(Field::EtherType, layer.ethertype);
        if let (LinkType::Ethernet, Some(header)) = (link, frame.get(..ETHERTYPE_AT + 2)) {
            fields.put(Field::DestinationMac, Some(number(&header[..6])));
            fields.put(Field::SourceMac, Some(number(&header[6..12])));
        }
        fields.put_metadata(metadata);
        if let Some(network) = NetworkLayer::new(frame, layer.network, fields.family) {
            fields.fragment = network.fragment;
            fields.put_network(&network);
            fields.put_transport(frame, &network);
            let length = length(frame, layer.network, &network, metadata);
            fields.put(Field::Length, length);
        }
        fields
    }

    /// Its family, by its EtherType.
    pub fn family(&self) -> Family {
        self.family
    }

    /// The value of a field; `None` if the packet lacks it.
    pub fn value(&self, field: Field) -> Option<u128> {
        if let Field::Mark(mask) = field {
            return Some((self.mark & mask).into());
        }
        let found = self.values.iter().find(|(of, _)| *of == field);
        found.map(|(_, value)| *value)
    }

    /// Tag control information of its outermost VLAN tag: priority (3 bits), drop eligible (1), id
    /// (12).
    pub fn tci(&self) -> Option<u16> {
        self.tci
    }

    /// Which fragment the packet is; `None` if it is whole.
    pub fn fragment(&self) -> Option<Fragment> {
        self.fragment
    }

    fn put(&mut self, field: Field, value: Option<impl Into<u128>>) {
        if let Some(value) = value {
            self.values.push((field, value.into()));
        }
    }

    fn put_metadata(&mut self, metadata: &Metadata) {
        self.put(Field::Uid, metadata.uid.filter(|uid| *uid != NO_UID));
        let incoming = Some(metadata.incoming).filter(|index| *index != 0);
        self.put(Field::Incoming, incoming);
        for (level, id) in (0u8..).zip(metadata.cgroups) {
            self.put(Field::Cgroup(level), Some(id).filter(|id| *id != 0));
        }
    }

    fn put_network(&mut self, network: &NetworkLayer) {
        self.put(Field::Source, Some(network.source));
        self.put(Field::Destination, Some(network.destination));
        self.put(Field::Dscp, Some(network.traffic_class >> 2));
        self.put(Field::Ecn, Some(network.traffic_class & 3));
        self.put(Field::FlowLabel, network.flow_label);
        self.put(Field::Protocol, network.protocol);
    }

    fn put_transport(&mut self, frame: &[u8], network: &NetworkLayer) {
        let (Some(protocol), Some(at)) = (network.protocol, network.transport) else {
            return;
        };
        if PROTOCOLS_WITH_PORTS.contains(&protocol)
            && let Some(ports) = frame.get(at..at + 4)
        {
            self.put(Field::SourcePort, Some(number(&ports[..2])));
            self.put(Field::DestinationPort, Some(number(&ports[2..])));
        }
        if Some(protocol) == icmp(self.family)
            && let Some(message) = frame.get(at..at + 2)
        {
            self.put(Field::IcmpType, Some(message[0]));
            self.put(Field::IcmpCode, Some(message[1]));
        }
        if protocol == TCP
            && let Some(header) = frame.get(at..at + 14)
        {
            self.put(Field::TcpFlags, Some(header[13]));
        }
    }
}

/// Length of the IP packet on the wire, bytes. For an offloaded packet this is one segment: the
/// length of its headers is known for TCP and UDP; inner headers of a tunnel are not seen and count
/// as zero.
fn length(frame: &[u8], start: usize, network: &NetworkLayer, metadata: &Metadata) -> Option<u32> {
    if metadata.gso_size == 0 {
        return Some(network.length);
    }
    let at = network.transport?;
    let transport = match network.protocol? {
        TCP => u32::from(be16(frame, at + 12)? >> 12) * 4,
        UDP => 8,
        _ => return None,
    };
    let headers = (at - start) as u32 + transport;
    Some(headers.saturating_add(metadata.gso_size))
}

/// The protocol number of ICMP in a family.
pub(crate) fn icmp(family: Family) -> Option<u8> {
    match family {
        Family::V4 => Some(ICMP),
        Family::V6 => Some(ICMPV6),
        Family::Other => None,
    }
}

// The headers of a frame: where each begins, and what it contains. Frames may be invalid.

/// The link layer of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LinkLayer {
    /// Tag control information of the outermost VLAN tag.
    pub(crate) tci: Option<u16>,
    /// Whether that tag is in the bytes (at 12), not in the metadata.
    pub(crate) tag_in_bytes: bool,
    /// EtherType behind the tags.
    pub(crate) ethertype: Option<u16>,
    /// Where the network layer begins.
    pub(crate) network: usize,
}

/// The network layer of a packet of IPv4 or IPv6, whose fixed header is whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NetworkLayer {
    pub(crate) source: u128,
    pub(crate) destination: u128,
    /// The octet of DSCP and ECN.
    pub(crate) traffic_class: u8,
    pub(crate) flow_label: Option<u32>,
    /// Bytes of the packet as the header says.
    pub(crate) length: u32,
    /// The upper-layer protocol; `None` behind too many or cut-off extension headers.
    pub(crate) protocol: Option<u8>,
    /// Offset of the transport header; `None` without one, as in later fragments.
    pub(crate) transport: Option<usize>,
    pub(crate) fragment: Option<Fragment>,
}

impl LinkLayer {
    pub(crate) fn new(frame: &[u8], link: LinkType, metadata: &Metadata) -> Self {
        match link {
            LinkType::RawIp => Self {
                tci: None,
                tag_in_bytes: false,
                ethertype: Some(metadata.protocol),
                network: 0,
            },
            LinkType::Ethernet => Self::ethernet(frame, metadata.vlan_tci),
        }
    }

    fn ethernet(frame: &[u8], outer: Option<u16>) -> Self {
        let mut layer = Self {
            tci: outer,
            tag_in_bytes: false,
            ethertype: be16(frame, ETHERTYPE_AT),
            network: ETHERTYPE_AT + 2,
        };
        for _ in 0..MAX_TAGS {
            let Some(VLAN | SERVICE_VLAN) = layer.ethertype else {
                break;
            };
            let (Some(tci), Some(next)) =
                (be16(frame, layer.network), be16(frame, layer.network + 2))
            else {
                break;
            };
            if layer.tci.is_none() {
                layer.tci = Some(tci);
                layer.tag_in_bytes = true;
            }
            layer.ethertype = Some(next);
            layer.network += 4;
        }
        layer
    }

    pub(crate) fn family(&self) -> Family {
        match self.ethertype {
            Some(ETHERTYPE_IPV4) => Family::V4,
            Some(ETHERTYPE_IPV6) => Family::V6,
            _ => Family::Other,
        }
    }
}

impl NetworkLayer {
    /// `None` for other families, for a version that is not the EtherType's, and if the fixed
    /// header is cut off.
    pub(crate) fn new(frame: &[u8], at: usize, family: Family) -> Option<Self> {
        match family {
            Family::V4 => Self::v4(frame, at),
            Family::V6 => Self::v6(frame, at),
            Family::Other => None,
        }
    }

    /// RFC 791, 3.1.
    fn v4(frame: &[u8], at: usize) -> Option<Self> {
        let header = frame.get(at..at + 20)?;
        let words = usize::from(header[0] & 0x0f);
        if header[0] >> 4 != 4 || words < 5 {
            return None;
        }
        let flags = u16::from_be_bytes([header[6], header[7]]);
        let (more, offset) = (flags & 0x2000 != 0, flags & 0x1fff);
        let fragment = (more || offset != 0).then(|| Fragment {
            id: u32::from(u16::from_be_bytes([header[4], header[5]])),
            protocol: header[9],
            first: offset == 0,
        });
        Some(Self {
            source: number(&header[12..16]),
            destination: number(&header[16..20]),
            traffic_class: header[1],
            flow_label: None,
            length: u32::from(u16::from_be_bytes([header[2], header[3]])),
            protocol: Some(header[9]),
            transport: (offset == 0).then_some(at + words * 4),
            fragment,
        })
    }

    /// RFC 8200, 3.
    fn v6(frame: &[u8], at: usize) -> Option<Self> {
        let header = frame.get(at..at + 40)?;
        let first = number(&header[..4]) as u32;
        if first >> 28 != 6 {
            return None;
        }
        let (protocol, transport, fragment) = behind_extensions(frame, at + 40, header[6]);
        Some(Self {
            source: number(&header[8..24]),
            destination: number(&header[24..40]),
            traffic_class: (first >> 20) as u8,
            flow_label: Some(first & 0xf_ffff),
            length: 40 + u32::from(u16::from_be_bytes([header[4], header[5]])),
            protocol,
            transport,
            fragment,
        })
    }
}

/// The upper protocol, where its header begins, and the fragment, behind IPv6 extension headers.
/// Walks the chain from the header with number `next` at `at` (RFC 8200, 4). A header counts if
/// its first eight bytes are there.
fn behind_extensions(
    frame: &[u8],
    mut at: usize,
    mut next: u8,
) -> (Option<u8>, Option<usize>, Option<Fragment>) {
    let mut fragment = None;
    for _ in 0..MAX_EXTENSIONS {
        if !EXTENSIONS.contains(&next) {
            break;
        }
        let Some(header) = frame.get(at..at + 8) else {
            break;
        };
        let bytes = match next {
            FRAGMENT => 8,
            // RFC 4302, 2.2: in units of four bytes, less two.
            AUTHENTICATION => (usize::from(header[1]) + 2) * 4,
            _ => (usize::from(header[1]) + 1) * 8,
        };
        if next == FRAGMENT {
            fragment = ipv6_fragment(header);
        }
        next = header[0];
        at += bytes;
        if fragment.is_some_and(|part: Fragment| !part.first) {
            break;
        }
    }
    let protocol = (!EXTENSIONS.contains(&next)).then_some(next);
    let later = fragment.is_some_and(|part| !part.first);
    (protocol, (protocol.is_some() && !later).then_some(at), fragment)
}

/// RFC 8200, 4.5; `None` for a whole packet with a fragment header (RFC 6946).
fn ipv6_fragment(header: &[u8]) -> Option<Fragment> {
    let offset_and_more = u16::from_be_bytes([header[2], header[3]]);
    let (offset, more) = (offset_and_more >> 3, offset_and_more & 1 != 0);
    (more || offset != 0).then(|| Fragment {
        id: number(&header[4..8]) as u32,
        // The number differs between a packet's fragments in principle: RFC 8200 puts it not into
        // the key.
        protocol: 0,
        first: offset == 0,
    })
}

/// Reads big-endian bytes, at most 16.
fn number(bytes: &[u8]) -> u128 {
    let bytes = bytes.iter();
    bytes.fold(0, |sum, byte| sum << 8 | u128::from(*byte))
}

fn be16(frame: &[u8], at: usize) -> Option<u16> {
    let bytes = frame.get(at..at + 2)?;
    Some(u16::from_be_bytes([bytes[0], bytes[1]]))
}

pub(crate) const ETHERTYPE_AT: usize = 12;
const VLAN: u16 = 0x8100;
const SERVICE_VLAN: u16 = 0x88a8;

/// Maximum number of tags in the bytes; a third one is the EtherType.
const MAX_TAGS: usize = 2;

/// Maximum number of IPv6 extension headers that are walked; anything behind them is not seen.
const MAX_EXTENSIONS: usize = 8;

const FRAGMENT: u8 = 44;
const AUTHENTICATION: u8 = 51;

/// Extension headers: hop-by-hop, routing, fragment, authentication, destination options, mobility,
/// HIP, shim6. ESP (50) ends the walk.
pub(crate) const EXTENSIONS: [u8; 8] = [0, 43, FRAGMENT, AUTHENTICATION, 60, 135, 139, 140];
