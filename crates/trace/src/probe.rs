//! Probes and answers.

use std::net::IpAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use linerate_units::{Dscp, Ecn, words};

/// The number of a probe, from 0 in the order of sending; no two probes of a trace have the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProbeId(pub u16);

/// The protocol of the probes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ProbeKind {
    /// UDP datagrams to ports where nobody should listen.
    #[default]
    Udp,
    /// ICMP or ICMPv6 echo requests.
    Icmp,
    /// TCP SYN segments to one port.
    Tcp,
}

words! {
    ProbeKind word { "udp" Udp, "icmp" Icmp, "tcp" Tcp }
}

/// A packet to be sent now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Probe {
    /// Its number.
    pub id: ProbeId,
    /// TTL or hop limit, 1–255.
    pub ttl: u8,
    /// The flow: routers that balance by flow send all probes of one flow the same way.
    pub flow: u16,
    /// Length from the IP header on, bytes.
    pub size: u16,
    /// The protocol.
    pub kind: ProbeKind,
    /// DSCP that it is sent with.
    pub dscp: Dscp,
    /// The ECN codepoint it is sent with.
    pub ecn: Ecn,
}

impl Probe {
    /// The TOS octet or traffic class that it is sent with.
    pub fn traffic_class(&self) -> u8 {
        self.dscp.octet() | ecn_bits(self.ecn)
    }
}

/// The two ECN bits of a traffic class (RFC 3168, section 5).
pub(super) fn ecn_bits(ecn: Ecn) -> u8 {
    match ecn {
        Ecn::NotEct => 0,
        Ecn::Ect1 => 1,
        Ecn::Ect0 => 2,
        Ecn::Ce => 3,
    }
}

/// The probe that an answer belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ProbeIdentity {
    /// The probe's number.
    pub sequence: u16,
    /// The session; `None` if the answer quotes too little.
    pub session: Option<u16>,
    /// The flow; `None` if the answer lacks it or it was rewritten.
    pub flow: Option<u16>,
}

/// An answer to a probe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The probe that it belongs to.
    pub identity: ProbeIdentity,
    /// Who sent it.
    pub from: IpAddr,
    /// Kind of the answer.
    pub kind: AnswerKind,
    /// TTL or hop limit on arrival, if known.
    pub reply_ttl: Option<u8>,
    /// The probe's header when the answer was made.
    pub quoted: Quoted,
    /// The probe's label stack at that point (RFC 4950), top first.
    pub mpls: Vec<MplsLabel>,
}

/// Kind of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum AnswerKind {
    /// A router discarded the probe because its TTL was used up.
    TimeExceeded,
    /// The probe cannot be delivered; see [`super::unreachable_reason`].
    Unreachable {
        /// Code of ICMP type 3 or ICMPv6 type 1.
        code: u8,
    },
    /// It was delivered, and no socket uses its port.
    PortUnreachable,
    /// The probe does not fit the next link.
    TooBig {
        /// MTU of the link, bytes from the IP header; 0 from routers older than RFC 1191.
        mtu: u32,
    },
    /// The target answered the echo request.
    EchoReply,
    /// The target accepts connections at the port.
    TcpSynAck,
    /// The target refuses connections at the port.
    TcpRst,
}

impl AnswerKind {
    /// Whether only the packet's destination sends this.
    pub fn is_of_destination(self) -> bool {
        matches!(self, Self::PortUnreachable | Self::EchoReply | Self::TcpSynAck | Self::TcpRst)
    }

    /// Whether it is an answer of the protocol itself and not an ICMP error, so that only the
    /// target can send it.
    pub(super) fn is_direct(self) -> bool {
        matches!(self, Self::EchoReply | Self::TcpSynAck | Self::TcpRst)
    }

    /// Whether a router reports that the probe goes no further.
    pub(super) fn is_end(self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::TooBig { .. })
    }
}

/// A probe's header when its answer was made; `None` if the answer does not contain the field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Quoted {
    /// TOS octet or traffic class: DSCP and ECN.
    pub traffic_class: Option<u8>,
    /// The TTL on arrival: 1, or 0 if it was decremented first. A higher one means that routers did
    /// not decrement it.
    pub ttl: Option<u8>,
    /// Whether a NAT rewrote an address, a port or a checksum.
    pub is_translated: Option<bool>,
}

/// One entry of an MPLS label stack (RFC 3032, section 2.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct MplsLabel {
    /// The label, 20 bits.
    pub label: u32,
    /// Traffic class, 3 bits (RFC 5462).
    pub traffic_class: u8,
    /// Whether it is the last of the stack.
    pub is_bottom: bool,
    /// Its TTL.
    pub ttl: u8,
}
