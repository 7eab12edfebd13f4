//! Links: what they are, changing them, and notifications of changes.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{
    InfoData, InfoKind, InfoVeth, LinkAttribute, LinkFlags, LinkInfo, LinkMessage, State, Stats64,
};
pub use netlink_packet_route::link::{State as OperState, Stats64 as LinkStatistics};
use netlink_sys::{Socket, protocols};

use super::exchange::listener;
use super::{Netlink, NetlinkError};

/// A network device as the kernel describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Link {
    /// Interface index, unique in its namespace.
    pub index: u32,
    /// Interface name.
    pub name: String,
    /// Driver kind such as `veth` or `bridge`; none for hardware and loopback.
    pub kind: Option<String>,
    /// Kind of hardware (`ARPHRD_*`, linux/if_arp.h), which says how its frames begin.
    pub hardware: u16,
    /// Largest IP packet in bytes.
    pub mtu: u32,
    /// Ethernet address; none for devices without a six-byte address.
    pub mac: Option<[u8; 6]>,
    /// Whether the administrator set it up (`IFF_UP`).
    pub up: bool,
    /// Whether it is a loopback device.
    pub loopback: bool,
    /// RFC 2863 operational state.
    pub operstate: OperState,
    /// Root queueing discipline, such as `noqueue` or `fq`.
    pub qdisc: Option<String>,
    /// Transmit queue limit of the default queueing disciplines, in packets.
    pub tx_queue_length: u32,
    /// Largest segmentation-offload frame in bytes.
    pub gso_max_size: Option<u32>,
    /// Largest segmentation-offload frame of IPv4, in bytes (Linux 6.3).
    pub gso_ipv4_max_size: Option<u32>,
    /// Most segments in one segmentation-offload frame.
    pub gso_max_segs: Option<u32>,
    /// Index of the bridge or bond this link belongs to.
    pub controller: Option<u32>,
    /// Index of the lower device, or of a veth's peer (in the peer's namespace).
    pub lower: Option<u32>,
    /// Packets, bytes, errors and drops since the device was created.
    pub statistics: LinkStatistics,
}

/// One change of a link.
#[derive(Debug, Clone)]
pub enum LinkChange<'a> {
    /// Set up.
    Up,
    /// Set down; routes through the link are lost.
    Down,
    /// Rename; most devices must be down for it.
    Name(&'a str),
    /// Largest IP packet in bytes.
    Mtu(u32),
    /// Ethernet address.
    Mac([u8; 6]),
    /// Transmit queue limit in packets.
    TxQueueLength(u32),
    /// Largest segmentation-offload frame in bytes; up to 64 KiB it applies to IPv4 too.
    GsoMaxSize(u32),
    /// Largest segmentation-offload frame of IPv4, in bytes.
    GsoIpv4MaxSize(u32),
    /// Most segments in one segmentation-offload frame.
    GsoMaxSegs(u32),
    /// Move to the network namespace that this descriptor refers to; the link is down and without
    /// addresses there.
    Namespace(BorrowedFd<'a>),
}

/// One end of a veth pair to be created.
#[derive(Debug, Clone)]
pub struct VethEnd<'a> {
    /// Interface name, at most 15 bytes.
    pub name: &'a str,
    /// Where to put it; none for the namespace of the netlink socket.
    pub namespace: Option<BorrowedFd<'a>>,
    /// Largest IP packet in bytes; none for the kernel's 1500.
    pub mtu: Option<u32>,
}

impl Netlink {
    /// All links of the namespace.
    ///
    /// # Errors
    /// [`NetlinkError`] if the table cannot be read.
    pub fn links(&mut self) -> Result<Vec<Link>, NetlinkError> {
        let operation = "list the links";
        let answer = self.dump(operation, RouteNetlinkMessage::GetLink(LinkMessage::default()))?;
        answer
            .into_iter()
            .filter_map(link_message)
            .map(|message| parse(operation, message))
            .collect()
    }

    /// The link called `name`.
    ///
    /// # Errors
    /// Refused with `ENODEV` if there is none.
    pub fn link(&mut self, name: &str) -> Result<Link, NetlinkError> {
        let mut query = LinkMessage::default();
        query.attributes.push(LinkAttribute::IfName(name.to_owned()));
        self.one_link(&format!("read link {name}"), query)
    }

    /// The link with this index.
    ///
    /// # Errors
    /// Refused with `ENODEV` if there is none.
    pub fn link_by_index(&mut self, index: u32) -> Result<Link, NetlinkError> {
        self.one_link(&format!("read link number {index}"), message_for(index))
    }

    fn one_link(&mut self, operation: &str, query: LinkMessage) -> Result<Link, NetlinkError> {
        let answer = self.request(operation, RouteNetlinkMessage::GetLink(query), 0)?;
        let message = answer.into_iter().find_map(link_message);
        parse(
            operation,
            message.ok_or_else(|| NetlinkError::malformed(operation, "no link in the answer"))?,
        )
    }

    /// Applies one change to the link called `name`.
    ///
    /// # Errors
    /// Refused with `ENODEV` if there is no such link, `EPERM` without `CAP_NET_ADMIN`, `EINVAL`
    /// for a value that the driver does not take.
    pub fn change_link(&mut self, name: &str, change: &LinkChange<'_>) -> Result<(), NetlinkError> {
        let mut message = message_for(self.link(name)?.index);
        match change {
            LinkChange::Up => set_up_flag(&mut message, true),
            LinkChange::Down => set_up_flag(&mut message, false),
            LinkChange::Name(new) => {
                message.attributes.push(LinkAttribute::IfName((*new).to_owned()))
            }
            LinkChange::Mtu(bytes) => message.attributes.push(LinkAttribute::Mtu(*bytes)),
            LinkChange::Mac(mac) => message.attributes.push(LinkAttribute::Address(mac.to_vec())),
            LinkChange::TxQueueLength(packets) => {
                message.attributes.push(LinkAttribute::TxQueueLen(*packets))
            }
            LinkChange::GsoMaxSize(bytes) => {
                message.attributes.push(LinkAttribute::GsoMaxSize(*bytes))
            }
            LinkChange::GsoIpv4MaxSize(bytes) => {
                message.attributes.push(LinkAttribute::GsoIpv4MaxSize(*bytes))
            }
            LinkChange::GsoMaxSegs(count) => {
                message.attributes.push(LinkAttribute::GsoMaxSegs(*count))
            }
            LinkChange::Namespace(fd) => {
                message.attributes.push(LinkAttribute::NetNsFd(fd.as_raw_fd()))
            }
        }
        self.change(&change.of(name), RouteNetlinkMessage::SetLink(message), 0)
    }

    /// Creates a pair of virtual Ethernet devices, each in its own namespace if it names one. Both
    /// are down.
    ///
    /// # Errors
    /// Refused with `EEXIST` if a name is taken, `EPERM` without `CAP_NET_ADMIN` in every namespace
    /// concerned, `EOPNOTSUPP` if the kernel has no veth driver.
    pub fn create_veth(
        &mut self,
        end: &VethEnd<'_>,
        peer: &VethEnd<'_>,
    ) -> Result<(), NetlinkError> {
        let mut message = LinkMessage::default();
        message.attributes = end.attributes();
        let mut peer_message = LinkMessage::default();
        peer_message.attributes = peer.attributes();
        message.attributes.push(LinkAttribute::LinkInfo(vec![
            LinkInfo::Kind(InfoKind::Veth),
            LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(peer_message))),
        ]));
        let operation = format!("create the veth pair {} and {}", end.name, peer.name);
        self.change(&operation, RouteNetlinkMessage::NewLink(message), NLM_F_CREATE | NLM_F_EXCL)
    }

    /// Deletes the link called `name`, and with it a veth's peer.
    ///
    /// # Errors
    /// Refused with `ENODEV` if there is none, `EOPNOTSUPP` for hardware.
    pub fn delete_link(&mut self, name: &str) -> Result<(), NetlinkError> {
        let message = message_for(self.link(name)?.index);
        self.change(&format!("delete link {name}"), RouteNetlinkMessage::DelLink(message), 0)
    }
}

impl VethEnd<'_> {
    fn attributes(&self) -> Vec<LinkAttribute> {
        let mut attributes = vec![LinkAttribute::IfName(self.name.to_owned())];
        attributes.extend(self.namespace.map(|fd| LinkAttribute::NetNsFd(fd.as_raw_fd())));
        attributes.extend(self.mtu.map(LinkAttribute::Mtu));
        attributes
    }
}

impl LinkChange<'_> {
    /// The change of the link called `name`, in words.
    fn of(&self, name: &str) -> String {
        match self {
            Self::Up => format!("set link {name} up"),
            Self::Down => format!("set link {name} down"),
            Self::Name(new) => format!("rename link {name} to {new}"),
            Self::Mtu(bytes) => format!("set MTU {bytes} of link {name}"),
            Self::Mac(mac) => format!("set Ethernet address {mac:02x?} of link {name}"),
            Self::TxQueueLength(packets) => {
                format!("set transmit queue length {packets} of link {name}")
            }
            Self::GsoMaxSize(bytes) => format!("set gso_max_size {bytes} of link {name}"),
            Self::GsoIpv4MaxSize(bytes) => format!("set gso_ipv4_max_size {bytes} of link {name}"),
            Self::GsoMaxSegs(count) => format!("set gso_max_segs {count} of link {name}"),
            Self::Namespace(_) => format!("move link {name} to another namespace"),
        }
    }
}

fn message_for(index: u32) -> LinkMessage {
    let mut message = LinkMessage::default();
    message.header.index = index;
    message
}

fn set_up_flag(message: &mut LinkMessage, up: bool) {
    message.header.change_mask = LinkFlags::Up;
    message.header.flags = if up { LinkFlags::Up } else { LinkFlags::empty() };
}

fn link_message(message: RouteNetlinkMessage) -> Option<LinkMessage> {
    match message {
        RouteNetlinkMessage::NewLink(link) => Some(link),
        _ => None,
    }
}

fn parse(operation: &str, message: LinkMessage) -> Result<Link, NetlinkError> {
    let flags = message.header.flags;
    let mut link = Link {
        index: message.header.index,
        name: String::new(),
        kind: None,
        hardware: message.header.link_layer_type.into(),
        mtu: 0,
        mac: None,
        up: flags.contains(LinkFlags::Up),
        loopback: flags.contains(LinkFlags::Loopback),
        operstate: State::Unknown,
        qdisc: None,
        tx_queue_length: 0,
        gso_max_size: None,
        gso_ipv4_max_size: None,
        gso_max_segs: None,
        controller: None,
        lower: None,
        statistics: Stats64::default(),
    };
    for attribute in message.attributes {
        absorb(&mut link, attribute);
    }
    if link.name.is_empty() {
        return Err(NetlinkError::malformed(operation, "a link without a name"));
    }
    Ok(link)
}

fn absorb(link: &mut Link, attribute: LinkAttribute) {
    match attribute {
        LinkAttribute::IfName(name) => link.name = name,
        LinkAttribute::LinkInfo(infos) => {
            link.kind = infos.into_iter().find_map(|info| match info {
                LinkInfo::Kind(kind) => Some(kind.to_string()),
                _ => None,
            });
        }
        LinkAttribute::Mtu(bytes) => link.mtu = bytes,
        LinkAttribute::Address(bytes) => link.mac = bytes.try_into().ok(),
        LinkAttribute::OperState(state) => link.operstate = state,
        LinkAttribute::Qdisc(kind) => link.qdisc = Some(kind),
        LinkAttribute::TxQueueLen(packets) => link.tx_queue_length = packets,
        LinkAttribute::GsoMaxSize(bytes) => link.gso_max_size = Some(bytes),
        LinkAttribute::GsoIpv4MaxSize(bytes) => link.gso_ipv4_max_size = Some(bytes),
        LinkAttribute::GsoMaxSegs(count) => link.gso_max_segs = Some(count),
        LinkAttribute::Controller(index) => link.controller = Some(index),
        LinkAttribute::Link(index) => link.lower = Some(index),
        LinkAttribute::Stats64(statistics) => link.statistics = statistics,
        _ => {}
    }
}

// Notifications that the devices or the traffic control of a network namespace changed.

/// A socket that becomes readable when a device, a queueing discipline, a class or a filter of one
/// network namespace is added, changed or deleted, and stays readable until it is drained.
#[derive(Debug)]
pub struct Announcements(Socket);

impl Announcements {
    /// Subscribes to the network namespace of the calling thread.
    ///
    /// # Errors
    /// [`NetlinkError::Open`].
    pub fn open() -> Result<Self, NetlinkError> {
        listener(protocols::NETLINK_ROUTE, &[LINK, TC], None).map(Self)
    }

    /// Discards the notifications that have arrived.
    pub fn drain(&self) {
        let mut start = Vec::with_capacity(16);
        loop {
            start.clear();
            match self.0.recv(&mut start, 0) {
                // Notifications were lost because the receive buffer was full.
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => {}
                Err(_) => return,
                Ok(_) => {}
            }
        }
    }
}

impl AsFd for Announcements {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// `RTNLGRP_LINK` and `RTNLGRP_TC` (linux/rtnetlink.h).
const LINK: u32 = 1;
const TC: u32 = 4;
