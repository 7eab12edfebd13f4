//! Addresses of links, and of their neighbours.

use std::fmt;
use std::net::IpAddr;

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE};
use netlink_packet_route::address::{AddressAttribute, AddressFlags, AddressMessage};
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::route::RouteType;
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use super::{Netlink, NetlinkError};

/// An address with the length of its network part: `198.18.0.1/24`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Prefix {
    /// The address; host bits may be set.
    pub address: IpAddr,
    /// Bits of the network part: 0 to 32 (IPv4) or 128 (IPv6).
    pub length: u8,
}

/// An address that a link has.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Address {
    /// Index of the link.
    pub link: u32,
    /// The address and its prefix length.
    pub prefix: Prefix,
    /// IPv6 duplicate address detection has not finished; the address cannot be used yet.
    pub tentative: bool,
}

impl Netlink {
    /// Gives the link called `name` an address. An IPv6 address is usable at once: duplicate
    /// address detection is off.
    ///
    /// # Errors
    /// Refused with `EEXIST` if the link has it already, `EINVAL` for an impossible prefix length,
    /// `EACCES` if IPv6 is disabled on the link.
    pub fn add_address(&mut self, name: &str, prefix: Prefix) -> Result<(), NetlinkError> {
        let mut message = AddressMessage::default();
        message.header.index = self.link(name)?.index;
        message.header.family = prefix.family();
        message.header.prefix_len = prefix.length;
        message.attributes = vec![
            AddressAttribute::Local(prefix.address),
            AddressAttribute::Address(prefix.address),
        ];
        if prefix.address.is_ipv6() {
            message.attributes.push(AddressAttribute::Flags(AddressFlags::Nodad));
        }
        let operation = format!("add address {prefix} to link {name}");
        self.change(&operation, RouteNetlinkMessage::NewAddress(message), NLM_F_CREATE | NLM_F_EXCL)
    }

    /// The addresses of all links, IPv4 and IPv6.
    ///
    /// # Errors
    /// [`NetlinkError`] if the table cannot be read.
    pub fn addresses(&mut self) -> Result<Vec<Address>, NetlinkError> {
        let answer = self.dump(
            "list the addresses",
            RouteNetlinkMessage::GetAddress(AddressMessage::default()),
        )?;
        Ok(answer.into_iter().filter_map(parse).collect())
    }

    /// Adds a permanent entry for a neighbour's Ethernet address, so that no ARP or neighbour
    /// discovery is needed.
    ///
    /// # Errors
    /// Refused with `EPERM` without `CAP_NET_ADMIN`.
    pub fn add_permanent_neighbour(
        &mut self,
        name: &str,
        address: IpAddr,
        mac: [u8; 6],
    ) -> Result<(), NetlinkError> {
        let mut message = NeighbourMessage::default();
        message.header.family = family_of(address);
        message.header.ifindex = self.link(name)?.index;
        message.header.state = NeighbourState::Permanent;
        message.header.kind = RouteType::Unspec;
        message.attributes = vec![
            NeighbourAttribute::Destination(match address {
                IpAddr::V4(v4) => NeighbourAddress::Inet(v4),
                IpAddr::V6(v6) => NeighbourAddress::Inet6(v6),
            }),
            NeighbourAttribute::LinkLayerAddress(mac.to_vec()),
        ];
        let operation = format!("add neighbour {address} to link {name}");
        self.change(
            &operation,
            RouteNetlinkMessage::NewNeighbour(message),
            NLM_F_CREATE | NLM_F_REPLACE,
        )
    }
}

impl Prefix {
    /// An address with a prefix length of `length` bits.
    pub fn new(address: impl Into<IpAddr>, length: u8) -> Self {
        Self { address: address.into(), length }
    }

    /// The single address: `/32` or `/128`.
    pub fn host(address: IpAddr) -> Self {
        Self { address, length: if address.is_ipv4() { 32 } else { 128 } }
    }

    /// Whether an address has the same network part.
    pub fn contains(&self, address: IpAddr) -> bool {
        let bits = |address: IpAddr| match address {
            IpAddr::V4(v4) => u128::from(v4.to_bits()) << 96,
            IpAddr::V6(v6) => v6.to_bits(),
        };
        let length = u32::from(self.length);
        let differing = bits(self.address) ^ bits(address);
        self.address.is_ipv4() == address.is_ipv4()
            && differing.checked_shr(128 - length).unwrap_or(0) == 0
    }

    pub(super) fn family(&self) -> AddressFamily {
        family_of(self.address)
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.length)
    }
}

pub(super) fn family_of(address: IpAddr) -> AddressFamily {
    if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 }
}

fn parse(message: RouteNetlinkMessage) -> Option<Address> {
    let RouteNetlinkMessage::NewAddress(message) = message else {
        return None;
    };
    let (mut local, mut address, mut tentative) = (None, None, false);
    for attribute in &message.attributes {
        match attribute {
            AddressAttribute::Local(ip) => local = Some(*ip),
            AddressAttribute::Address(ip) => address = Some(*ip),
            AddressAttribute::Flags(flags) => tentative = flags.contains(AddressFlags::Tentative),
            _ => {}
        }
    }
    // On point-to-point links IFA_ADDRESS is the peer and IFA_LOCAL ours
    // (include/uapi/linux/if_addr.h).
    let address = local.or(address)?;
    Some(Address {
        link: message.header.index,
        prefix: Prefix { address, length: message.header.prefix_len },
        tentative,
    })
}
