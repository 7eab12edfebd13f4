//! A packet as a user describes it.

use std::net::IpAddr;

use linerate_core::units::Dscp;

use crate::packet::{CGROUP_LEVELS, LinkType, Metadata};
use crate::policy::{CgroupPath, Interface, Mac};
use crate::rules::Bindings;

/// A packet: `tcp 198.18.0.1:1234 > 198.18.0.2:80 dscp=EF length=1500 vlan=5`, or the bytes of a
/// frame, `hex:…`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packet {
    /// Headers, or the bytes.
    pub what: What,
    /// `uid=`: the owner of its socket.
    pub uid: Option<u32>,
    /// `cgroup=`: the control group of its socket.
    pub cgroup: Option<CgroupPath>,
    /// `incoming=`: the interface by which it came in.
    pub incoming: Option<Interface>,
    /// `mark=`: its mark.
    pub mark: u32,
    /// `source_mac=`: source address of its frame; default for a frame in hexadecimal.
    pub source_mac: Mac,
    /// `destination_mac=`: destination address of its frame.
    pub destination_mac: Mac,
}

/// The content of a packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// A packet of IPv4 or IPv6.
    Ip {
        /// Addresses, protocol and header fields.
        flow: Flow,
        /// `vlan=`, `vlan_priority=`.
        tag: Option<Tag>,
    },
    /// A packet of another protocol.
    Other {
        /// Its EtherType, of neither IPv4 nor IPv6 nor a VLAN tag.
        ethertype: u16,
        /// `vlan=`, `vlan_priority=`.
        tag: Option<Tag>,
    },
    /// `hex:…`: an Ethernet frame.
    Frame(Vec<u8>),
}

/// A VLAN tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tag {
    /// Its id, 0 to 4094; 0 is a priority tag.
    pub id: u16,
    /// Its priority, 0 to 7.
    pub priority: u8,
}

/// A packet of IPv4 or IPv6.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flow {
    /// Source address.
    pub source: IpAddr,
    /// Destination address, of the same family.
    pub destination: IpAddr,
    /// IP protocol.
    pub protocol: u8,
    /// Fields of the transport header.
    pub upper: Upper,
    /// `dscp=`: its code point.
    pub dscp: Dscp,
    /// `ecn=`, 0 to 3.
    pub ecn: u8,
    /// `length=`: bytes of the IP packet; `None` for the headers alone.
    pub length: Option<u32>,
    /// `flow_label=`, 20 bits; IPv6.
    pub flow_label: u32,
    /// `fragment=`.
    pub fragment: FragmentPart,
}

/// The fields of a transport header that rules can use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Upper {
    /// TCP.
    Tcp {
        /// Source and destination port.
        ports: (u16, u16),
        /// `flags=`, as a number.
        flags: u8,
    },
    /// Another protocol with ports.
    Ports(u16, u16),
    /// ICMP of its family.
    Icmp {
        /// `type=`.
        kind: u8,
        /// `code=`.
        code: u8,
    },
    /// None: another protocol, or a later fragment.
    Nothing,
}

/// Which fragment of a packet it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FragmentPart {
    /// All of it.
    Whole,
    /// The first fragment.
    First,
    /// A later one.
    Later,
}

impl Packet {
    /// Returns the packet with a length: that of its headers, if none was given.
    pub fn with_length(&self) -> Self {
        let mut packet = self.clone();
        if let What::Ip { flow, .. } = &mut packet.what {
            flow.length = Some(flow.length());
        }
        packet
    }

    /// The link type of its bytes: always Ethernet.
    pub fn link(&self) -> LinkType {
        LinkType::Ethernet
    }

    /// What the kernel knows about the packet beside its bytes; names have the numbers in
    /// `bindings`.
    pub fn metadata(&self, bindings: &Bindings) -> Metadata {
        let mut metadata = Metadata {
            uid: self.uid,
            cgroups: [0; CGROUP_LEVELS],
            wire_length: self.wire_length(),
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
