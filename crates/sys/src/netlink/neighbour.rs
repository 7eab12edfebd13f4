//! Neighbours: which Ethernet address an IP address of a link has.

use std::net::IpAddr;

use netlink_packet_core::{NLM_F_CREATE, NLM_F_REPLACE};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::neighbour::{NeighbourAddress, NeighbourAttribute, NeighbourMessage};
use netlink_packet_route::route::RouteType;

use super::address::family_of;
use super::{Netlink, NetlinkError};

pub use netlink_packet_route::neighbour::NeighbourState;

/// An entry of the neighbour table.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Neighbour {
    /// Index of the link it is reached by.
    pub link: u32,
    /// Its IP address.
    pub address: IpAddr,
    /// Its Ethernet address, where it is known.
    pub mac: Option<[u8; 6]>,
    /// How fresh the entry is.
    pub state: NeighbourState,
}

impl Netlink {
    /// Fixes the Ethernet address of a neighbour for ever, so that no ARP or neighbour discovery is
    /// needed.
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
        self.request(
            &operation,
            RouteNetlinkMessage::NewNeighbour(message),
            NLM_F_CREATE | NLM_F_REPLACE,
        )
        .map(drop)
    }

    /// The neighbour tables of IPv4 and IPv6.
    ///
    /// # Errors
    /// [`NetlinkError`] if the table cannot be read.
    pub fn neighbours(&mut self) -> Result<Vec<Neighbour>, NetlinkError> {
        let query = RouteNetlinkMessage::GetNeighbour(NeighbourMessage::default());
        Ok(self
            .dump("list the neighbours", query)?
            .into_iter()
            .filter_map(parse)
            .collect())
    }
}

/// None for entries of other families, such as a bridge's.
fn parse(message: RouteNetlinkMessage) -> Option<Neighbour> {
    let RouteNetlinkMessage::NewNeighbour(message) = message else {
        return None;
    };
    let (mut address, mut mac) = (None, None);
    for attribute in message.attributes {
        match attribute {
            NeighbourAttribute::Destination(NeighbourAddress::Inet(v4)) => {
                address = Some(IpAddr::V4(v4))
            }
            NeighbourAttribute::Destination(NeighbourAddress::Inet6(v6)) => {
                address = Some(IpAddr::V6(v6))
            }
            NeighbourAttribute::LinkLayerAddress(bytes) => mac = bytes.try_into().ok(),
            _ => {}
        }
    }
    Some(Neighbour {
        link: message.header.ifindex,
        address: address?,
        mac,
        state: message.header.state,
    })
}
