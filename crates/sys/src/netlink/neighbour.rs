//! Neighbours: which Ethernet address an IP address of a link has.

use std::net::IpAddr;

use netlink_packet_core::{NLM_F_CREATE, NLM_F_REPLACE};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::route::RouteType;

use super::address::family_of;
use super::{Netlink, NetlinkError};

impl Netlink {
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
