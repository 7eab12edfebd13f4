//! The fields of a packet.

use crate::policy::Family;
use crate::rules::Field;

/// How frames of an interface begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LinkType {
    /// 14 bytes of Ethernet, VLAN tags behind them (also loopback and VLAN devices: `ARPHRD_ETHER`, `ARPHRD_LOOPBACK`).
    Ethernet,
    /// The IP header at once: TUN, WireGuard, PPP as the kernel shows it (`ARPHRD_NONE`, `ARPHRD_PPP`, tunnels).
    RawIp,
}

/// What the kernel knows of a packet beside its bytes (`struct __sk_buff`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Metadata {
    /// `skb->protocol`, host order; it decides the family where a link type has no EtherType.
    pub protocol: u16,
    /// TCI of a tag that is not in the bytes (`vlan_present`).
    pub vlan_tci: Option<u16>,
    /// Payload bytes of each segment of an offloaded packet, 0 for others.
    pub gso_size: u32,
    /// Its segments; 0 counts as 1.
    pub gso_segments: u32,
    /// Bytes on the wire of all its segments with their headers (`wire_len`).
    pub wire_length: u32,
    /// Owner of the socket, if it has one.
    pub uid: Option<u32>,
    /// Ids of the socket's control group and those above it, the root's first.
    pub cgroups: [u64; 8],
    /// Index of the interface by which it came in, 0 for packets of this host.
    pub incoming: u32,
}

/// The values that a packet has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fields {
    family: Family,
    values: Vec<(Field, u128)>,
    later_fragment: bool,
}
