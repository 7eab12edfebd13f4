//! A probe's identity in its bytes.
//!
//! What routers balance by must be the same in all probes of a flow (Augustin et al., "Avoiding
//! traceroute anomalies with Paris traceroute", 2006), so the identity is elsewhere. Many routers
//! quote only the IP header and 8 bytes:
//!
//! | kind | flow | identity within 8 bytes | and behind them |
//! |---|---|---|---|
//! | UDP | target port = first + flow | checksum, set by a balance in the payload | session and sequence in the payload |
//! | ICMP | checksum, set by a balance in the payload | sequence; identifier | session and sequence in the payload |
//! | TCP | source port = first + flow | sequence number: session and sequence | |
//!
//! A UDP probe over a raw IPv4 socket has it in the identification too. The checksums are right
//! ones: a kernel that computes them comes to the same. Only where it leaves them to a device that
//! does not (virtual ones) the quoted checksum is another; the payload is therefore asked first.
//!
//! The session is a random number of the trace, so that who does not see the probes cannot forge an
//! answer but by guessing: 1 in 65,536 for each, or the share of checksums in use where only the
//! checksum is quoted.

mod build;

use std::net::IpAddr;

use super::probe::{Answer, AnswerKind, ProbeId, ProbeIdentity, ProbeKind, Quoted};
use super::quote::{Message, Problem, QuotedPacket, QuotedTransport, parse_message};
use linerate_units::Family;
use linerate_units::checksum::{fold, sum};

/// Flows of one trace: that many ports.
pub const MAX_FLOWS: u16 = 512;

/// Bytes of session, sequence and balance at the start of a payload.
const IDENTITY: usize = 6;
/// Checksums in use: all but 0, which means none in UDP, and its other form.
const CHECKSUMS: u16 = 0xfffe;
const ICMP: u8 = 1;
const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMPV6: u8 = 58;
const SYN: u8 = 2;
const RST: u8 = 4;
const ACK: u8 = 16;

/// Why a packet is no answer to a probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum NotOurs {
    /// It cannot be read.
    #[error("answer: {0}")]
    Unreadable(#[from] Problem),
    /// A readable message of another kind.
    #[error("answer: a message that no probe causes")]
    OtherMessage,
    /// It answers a packet that is none of our probes.
    #[error("answer: to a packet that is not ours")]
    OtherPacket,
}

/// Makes the bytes of probes and reads those of answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbeCodec {
    /// The protocol.
    pub kind: ProbeKind,
    /// The address that the probes are sent from; the checksums need it.
    pub source: IpAddr,
    /// Where to; of the same family.
    pub target: IpAddr,
    /// Source port of UDP; first one of TCP, at most 65,535 − [`MAX_FLOWS`]; identifier of ICMP.
    pub source_port: u16,
    /// First target port of UDP, at most 65,535 − [`MAX_FLOWS`]; target port of TCP.
    pub target_port: u16,
    /// The trace's random number ([`super::Tracer::session`]).
    pub session: u16,
}

impl ProbeCodec {
    /// Source and target port of a flow; for ICMP there are none.
    pub fn ports(&self, flow: u16) -> Option<(u16, u16)> {
        match self.kind {
            ProbeKind::Udp => Some((self.source_port, self.target_port.saturating_add(flow))),
            ProbeKind::Tcp => Some((self.source_port.saturating_add(flow), self.target_port)),
            ProbeKind::Icmp => None,
        }
    }

    /// The protocol number of the IP header.
    pub fn protocol(&self) -> u8 {
        match (self.kind, self.family()) {
            (ProbeKind::Udp, _) => UDP,
            (ProbeKind::Tcp, _) => TCP,
            (ProbeKind::Icmp, Family::Ipv4) => ICMP,
            (ProbeKind::Icmp, Family::Ipv6) => ICMPV6,
        }
    }

    /// The identification of a probe's IPv4 header, for raw sockets; never 0, which a kernel
    /// replaces.
    pub fn identification(&self, id: ProbeId) -> u16 {
        self.keyed(id.0)
    }

    /// Reads an ICMP or ICMPv6 message, from its type on.
    ///
    /// # Errors
    /// [`NotOurs`] if it is no answer to one of this trace's probes. Never panics, whatever the
    /// bytes are.
    pub fn read_icmp(
        &self,
        from: IpAddr,
        reply_ttl: Option<u8>,
        message: &[u8],
    ) -> Result<Answer, NotOurs> {
        match parse_message(self.family(), message)? {
            Message::EchoReply {
                identifier,
                sequence,
                payload,
            } => self.echo_reply(from, reply_ttl, (identifier, sequence, payload)),
            Message::Error {
                kind, quoted, mpls, ..
            } => {
                let identity = self.identify(&quoted).ok_or(NotOurs::OtherPacket)?;
                Ok(Answer {
                    identity,
                    from,
                    kind,
                    reply_ttl,
                    quoted: Quoted {
                        traffic_class: Some(quoted.traffic_class),
                        ttl: Some(quoted.ttl),
                        is_translated: Some(self.is_translated(&quoted, identity)),
                    },
                    mpls,
                })
            }
            Message::Other => Err(NotOurs::OtherMessage),
        }
    }

    /// Reads a TCP segment, from its source port on: the target's answer to a SYN.
    ///
    /// # Errors
    /// [`NotOurs`] as for [`ProbeCodec::read_icmp`].
    pub fn read_tcp(
        &self,
        from: IpAddr,
        reply_ttl: Option<u8>,
        segment: &[u8],
    ) -> Result<Answer, NotOurs> {
        let header: &[u8; 20] = segment.first_chunk().ok_or(Problem::Short)?;
        let flags = header[13];
        let kind = match flags & (SYN | RST | ACK) {
            f if f & RST != 0 => AnswerKind::TcpRst,
            f if f == SYN | ACK => AnswerKind::TcpSynAck,
            _ => return Err(NotOurs::OtherMessage),
        };
        // A SYN takes one sequence number, which both answers acknowledge (RFC 9293, 3.10.7.1).
        let acknowledged = u32::from_be_bytes([header[8], header[9], header[10], header[11]]);
        let flow = flow_of(read(header, 2), self.source_port).ok_or(NotOurs::OtherPacket)?;
        let identity = self.of_tcp(acknowledged.wrapping_sub(1), Some(flow));
        let is_ours = from == self.target && read(header, 0) == self.target_port;
        match identity {
            Some(identity) if is_ours && flags & ACK != 0 => Ok(Answer {
                identity,
                from,
                kind,
                reply_ttl,
                quoted: Quoted::default(),
                mpls: Vec::new(),
            }),
            _ => Err(NotOurs::OtherPacket),
        }
    }

    /// The identity in what an error queue gives back: the quoted UDP payload, or the quoted ICMP
    /// message. `None` for what is not ours, too little, or TCP, whose sockets have a probe each.
    pub fn identify_datagram(&self, quoted: &[u8]) -> Option<ProbeIdentity> {
        match self.kind {
            ProbeKind::Udp => self.of_payload(quoted, None),
            ProbeKind::Icmp => {
                let header: &[u8; 8] = quoted.first_chunk()?;
                self.of_echo(read(header, 4), read(header, 6), &quoted[8..], None)
            }
            ProbeKind::Tcp => None,
        }
    }

    /// The probe that a packet is.
    pub fn identify(&self, quoted: &QuotedPacket<'_>) -> Option<ProbeIdentity> {
        match (self.kind, &quoted.transport) {
            (ProbeKind::Udp, QuotedTransport::Udp(udp)) => {
                let flow = flow_of(udp.target_port, self.target_port);
                if udp.payload.len() >= IDENTITY - 2 {
                    return self.of_payload(udp.payload, flow);
                }
                let is_ours = udp.source_port == self.source_port && flow.is_some();
                is_ours.then(|| ProbeIdentity {
                    sequence: self.unkeyed(udp.checksum),
                    session: None,
                    flow,
                })
            }
            (ProbeKind::Icmp, QuotedTransport::Icmp(echo)) => {
                if echo.kind != self.echo_request() || echo.code != 0 {
                    return None;
                }
                let flow = flow_of(echo.checksum, FIRST_CHECKSUM);
                self.of_echo(echo.identifier, echo.sequence, echo.payload, flow)
            }
            (ProbeKind::Tcp, QuotedTransport::Tcp(tcp)) => {
                self.of_tcp(tcp.sequence, flow_of(tcp.source_port, self.source_port))
            }
            _ => None,
        }
    }

    fn of_payload(&self, payload: &[u8], flow: Option<u16>) -> Option<ProbeIdentity> {
        let identity: &[u8; 4] = payload.first_chunk()?;
        let session = read(identity, 0);
        (session == self.session).then(|| ProbeIdentity {
            sequence: read(identity, 2),
            session: Some(session),
            flow,
        })
    }

    /// By the payload if it is quoted; a NAT may have changed the identifier.
    fn of_echo(
        &self,
        identifier: u16,
        sequence: u16,
        payload: &[u8],
        flow: Option<u16>,
    ) -> Option<ProbeIdentity> {
        if payload.len() >= IDENTITY - 2 {
            let identity = self.of_payload(payload, flow)?;
            return (identity.sequence == sequence).then_some(identity);
        }
        (identifier == self.source_port).then_some(ProbeIdentity {
            sequence,
            session: None,
            flow,
        })
    }

    fn of_tcp(&self, sequence: u32, flow: Option<u16>) -> Option<ProbeIdentity> {
        let [a, b, c, d] = sequence.to_be_bytes();
        let session = u16::from_be_bytes([a, b]);
        (session == self.session).then(|| ProbeIdentity {
            sequence: u16::from_be_bytes([c, d]),
            session: Some(session),
            flow,
        })
    }

    fn echo_reply(
        &self,
        from: IpAddr,
        reply_ttl: Option<u8>,
        (identifier, sequence, payload): (u16, u16, &[u8]),
    ) -> Result<Answer, NotOurs> {
        let is_ours = self.kind == ProbeKind::Icmp && identifier == self.source_port;
        // An echo has all of the payload, so a short one is not ours.
        let identity = self
            .of_payload(payload, None)
            .filter(|identity| is_ours && from == self.target && identity.sequence == sequence)
            .ok_or(NotOurs::OtherPacket)?;
        Ok(Answer {
            identity,
            from,
            kind: AnswerKind::EchoReply,
            reply_ttl,
            quoted: Quoted::default(),
            mpls: Vec::new(),
        })
    }

    /// Whether the quoted packet has another address, port or checksum than was sent. A checksum
    /// that is the mere sum of the pseudo header was left to a device, and says nothing.
    fn is_translated(&self, quoted: &QuotedPacket<'_>, identity: ProbeIdentity) -> bool {
        if quoted.destination != self.target || quoted.source != self.source {
            return true;
        }
        match &quoted.transport {
            QuotedTransport::Udp(udp) => {
                let has_ports = udp.source_port == self.source_port && identity.flow.is_some();
                let sent = self.keyed(identity.sequence);
                let unfinished = fold(self.pseudo_header(UDP, usize::from(udp.length)));
                !has_ports || !(udp.checksum == sent || udp.checksum == unfinished)
            }
            QuotedTransport::Icmp(echo) => echo.identifier != self.source_port,
            QuotedTransport::Tcp(tcp) => {
                identity.flow.is_none() || tcp.target_port != self.target_port
            }
            QuotedTransport::Other(_) => false,
        }
    }

    fn family(&self) -> Family {
        self.target.into()
    }

    /// A number's checksum and identification, 1–65,534: who does not know the session does not
    /// know which are used.
    fn keyed(&self, sequence: u16) -> u16 {
        let sum = u32::from(sequence) + u32::from(self.session);
        (sum % u32::from(CHECKSUMS)) as u16 + 1
    }

    fn unkeyed(&self, keyed: u16) -> u16 {
        let whole = u32::from(CHECKSUMS);
        let session = u32::from(self.session) % whole;
        ((u32::from(keyed) + whole - 1 + whole - session) % whole) as u16
    }

    fn pseudo_header(&self, protocol: u8, length: usize) -> u64 {
        let addresses = match (self.source, self.target) {
            (IpAddr::V4(a), IpAddr::V4(b)) => sum(&a.octets()) + sum(&b.octets()),
            (IpAddr::V6(a), IpAddr::V6(b)) => sum(&a.octets()) + sum(&b.octets()),
            _ => 0,
        };
        addresses + u64::from(protocol) + length as u64
    }

    fn echo_request(&self) -> u8 {
        match self.family() {
            Family::Ipv4 => 8,
            Family::Ipv6 => 128,
        }
    }
}

/// Checksum of echo requests of flow 0; any would do but the two zeros.
const FIRST_CHECKSUM: u16 = 0x4c52;

/// The flow whose number was added to `first`.
fn flow_of(value: u16, first: u16) -> Option<u16> {
    value.checked_sub(first).filter(|flow| *flow < MAX_FLOWS)
}

/// Two bytes in network order; the callers know that they are there.
fn read<const N: usize>(bytes: &[u8; N], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// The least length of a probe, bytes from the IP header on: what its identity needs.
pub fn least_size(kind: ProbeKind, target: IpAddr) -> u16 {
    let ip = if target.is_ipv4() { 20 } else { 40 };
    ip + match kind {
        ProbeKind::Udp | ProbeKind::Icmp => 8 + 6,
        ProbeKind::Tcp => 20,
    }
}
