//! What rules see of a packet: [`Fields`], from its bytes and from what the kernel knows beside
//! them.

mod layers;

pub(crate) use layers::{ETHERTYPE_AT, EXTENSIONS, LinkLayer, NetworkLayer};
use layers::{be16, number};

use crate::policy::Family;
use crate::policy::words::{ICMP, ICMPV6, PROTOCOLS_WITH_PORTS, TCP, UDP};

// The fields of a packet.

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
