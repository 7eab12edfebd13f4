//! How a probe is identified by its bytes: built, and found again in what is quoted of it.
//!
//! The fields by which routers balance load must be equal in all probes of a flow (Augustin et al.,
//! "Avoiding traceroute anomalies with Paris traceroute", 2006), so that other fields identify the
//! probe. Many routers quote only the IP header and 8 bytes:
//!
//! | kind | flow | identity within 8 bytes | and behind them |
//! |---|---|---|---|
//! | UDP | target port = first + flow | checksum, set by a balance in the payload | session and sequence in the payload |
//! | ICMP | checksum, set by a balance in the payload | sequence; identifier | session and sequence in the payload |
//! | TCP | source port = first + flow | sequence number: session and sequence | |
//!
//! A UDP probe over a raw IPv4 socket has the identity also in the identification. The checksums
//! are correct: a kernel that computes them gets the same. The quoted checksum differs only if the
//! kernel leaves it to a device that does not compute it (virtual ones); therefore the payload is
//! read first.
//!
//! The session is a random number of the trace. A host that does not see the probes can only guess
//! it to forge an answer: 1 in 65,536 for each, or the share of used checksums if only the checksum
//! is quoted.

use std::net::IpAddr;

use linerate_units::Family;
use linerate_units::checksum::{fold, sum};

use super::probe::{Answer, AnswerKind, ProbeIdentity, ProbeKind, Quoted};
use super::quote::{Message, NotOurs, QuotedPacket, QuotedTransport, parse_message};
use crate::probe::{Probe, ProbeId};

/// Maximum number of flows of a trace, which is its number of ports.
pub const MAX_FLOWS: u16 = 512;

/// Length of session, sequence and balance at the start of a payload, bytes.
const IDENTITY: usize = 6;
/// Number of checksums in use: all except 0, which means none in UDP, and its other form.
const CHECKSUMS: u16 = 0xfffe;
const ICMP: u8 = 1;
const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMPV6: u8 = 58;
const SYN: u8 = 2;
const RST: u8 = 4;
const ACK: u8 = 16;

/// Writes probes and parses answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbeCodec {
    /// The protocol.
    pub kind: ProbeKind,
    /// Source address of the probes; the checksums need it.
    pub source: IpAddr,
    /// Destination address, of the same family.
    pub target: IpAddr,
    /// Source port of UDP; first one of TCP, at most 65,535 − [`MAX_FLOWS`]; identifier of ICMP.
    pub source_port: u16,
    /// First target port of UDP, at most 65,535 − [`MAX_FLOWS`]; target port of TCP.
    pub target_port: u16,
    /// The trace's random number ([`super::Tracer::session`]).
    pub session: u16,
}

impl ProbeCodec {
    /// Source and target port of a flow; `None` for ICMP.
    pub fn ports(&self, flow: u16) -> Option<(u16, u16)> {
        match self.kind {
            ProbeKind::Udp => Some((self.source_port, self.target_port.saturating_add(flow))),
            ProbeKind::Tcp => Some((self.source_port.saturating_add(flow), self.target_port)),
            ProbeKind::Icmp => None,
        }
    }

    /// Protocol number in the IP header.
    pub fn protocol(&self) -> u8 {
        match (self.kind, self.family()) {
            (ProbeKind::Udp, _) => UDP,
            (ProbeKind::Tcp, _) => TCP,
            (ProbeKind::Icmp, Family::Ipv4) => ICMP,
            (ProbeKind::Icmp, Family::Ipv6) => ICMPV6,
        }
    }

    /// Identification in a probe's IPv4 header, for raw sockets; never 0, which a kernel replaces.
    pub fn identification(&self, id: ProbeId) -> u16 {
        self.keyed(id.0)
    }

    /// Parses an ICMP or ICMPv6 message, starting at its type.
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
            Message::EchoReply { identifier, sequence, payload } => {
                self.echo_reply(from, reply_ttl, (identifier, sequence, payload))
            }
            Message::Error { kind, quoted, mpls, .. } => {
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

    /// Parses a TCP segment, starting at its source port: the target's answer to a SYN.
    ///
    /// # Errors
    /// [`NotOurs`] as for [`ProbeCodec::read_icmp`].
    pub fn read_tcp(
        &self,
        from: IpAddr,
        reply_ttl: Option<u8>,
        segment: &[u8],
    ) -> Result<Answer, NotOurs> {
        let header: &[u8; 20] = segment.first_chunk().ok_or(NotOurs::CutOff)?;
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
            Some(identity) if is_ours && flags & ACK != 0 => {
                Ok(direct(identity, from, kind, reply_ttl))
            }
            _ => Err(NotOurs::OtherPacket),
        }
    }

    /// The probe that an error queue returns as a quoted UDP payload or a quoted ICMP message.
    /// `None` for packets that are not ours or too short, and for TCP, which has one socket for
    /// each probe.
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

    /// Identifies the probe that a quoted packet is.
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

    /// Identifies an echo by the payload if it is quoted, because a NAT may change the identifier.
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
        (identifier == self.source_port).then_some(ProbeIdentity { sequence, session: None, flow })
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
        // An echo reply contains the whole payload, so that a short one is not ours.
        let identity = self.of_payload(payload, None).ok_or(NotOurs::OtherPacket)?;
        if !is_ours || from != self.target || identity.sequence != sequence {
            return Err(NotOurs::OtherPacket);
        }
        Ok(direct(identity, from, AnswerKind::EchoReply, reply_ttl))
    }

    /// Whether address, port or checksum of the quoted packet differ from what was sent. A checksum
    /// that is only the sum of the pseudo header was left to a device and does not count.
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

    /// Checksum and identification for a sequence number, 1–65,534: they cannot be known without
    /// the session.
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

    /// Header and payload of a probe after the IP header, with the complete checksum.
    pub fn transport(&self, probe: &Probe) -> Vec<u8> {
        match self.kind {
            ProbeKind::Udp => self.udp(probe),
            ProbeKind::Icmp => self.icmp(probe),
            ProbeKind::Tcp => self.tcp(probe),
        }
    }

    /// What a datagram socket sends: the payload of UDP, the whole message of ICMP (whose checksum
    /// and identifier the kernel writes), nothing for TCP.
    pub fn datagram(&self, probe: &Probe) -> Vec<u8> {
        match self.kind {
            ProbeKind::Udp => self.udp(probe).split_off(8),
            ProbeKind::Icmp => self.icmp(probe),
            ProbeKind::Tcp => Vec::new(),
        }
    }

    fn udp(&self, probe: &Probe) -> Vec<u8> {
        let mut bytes = self.empty(probe, 8);
        let length = bytes.len();
        let (source, target) = self.ports(probe.flow).unwrap_or_default();
        write(&mut bytes, 0, source);
        write(&mut bytes, 2, target);
        write(&mut bytes, 4, u16::try_from(length).unwrap_or(u16::MAX));
        write(&mut bytes, 6, self.keyed(probe.id.0));
        self.write_identity(&mut bytes, 8, probe.id);
        let total = self.pseudo_header(UDP, length) + sum(&bytes);
        write(&mut bytes, 8 + 4, !fold(total));
        bytes
    }

    fn icmp(&self, probe: &Probe) -> Vec<u8> {
        let mut bytes = self.empty(probe, 8);
        bytes[0] = self.echo_request();
        write(&mut bytes, 2, FIRST_CHECKSUM + probe.flow % MAX_FLOWS);
        write(&mut bytes, 4, self.source_port);
        write(&mut bytes, 6, probe.id.0);
        self.write_identity(&mut bytes, 8, probe.id);
        let pseudo = match self.family() {
            Family::Ipv4 => 0,
            Family::Ipv6 => self.pseudo_header(ICMPV6, bytes.len()),
        };
        let total = pseudo + sum(&bytes);
        write(&mut bytes, 8 + 4, !fold(total));
        bytes
    }

    fn tcp(&self, probe: &Probe) -> Vec<u8> {
        let mut bytes = vec![0; 20];
        let (source, target) = self.ports(probe.flow).unwrap_or_default();
        write(&mut bytes, 0, source);
        write(&mut bytes, 2, target);
        write(&mut bytes, 4, self.session);
        write(&mut bytes, 6, probe.id.0);
        // Five words of header; the usual initial window of kernels.
        bytes[12] = 5 << 4;
        bytes[13] = SYN;
        write(&mut bytes, 14, 64_240);
        let total = self.pseudo_header(TCP, bytes.len()) + sum(&bytes);
        write(&mut bytes, 16, !fold(total));
        bytes
    }

    /// Zeros for a header of `header` bytes and the rest of the probe's size, enough for its
    /// identity.
    fn empty(&self, probe: &Probe, header: usize) -> Vec<u8> {
        let least = least_size(self.kind, self.target);
        let ip = usize::from(least) - header - IDENTITY;
        vec![0; usize::from(probe.size.max(least)) - ip]
    }

    fn write_identity(&self, bytes: &mut [u8], at: usize, id: ProbeId) {
        write(bytes, at, self.session);
        write(bytes, at + 2, id.0);
    }
}

/// Checksum of echo requests of flow 0; any value except the two zeros works.
const FIRST_CHECKSUM: u16 = 0x4c52;

/// The target's own answer, which quotes nothing.
fn direct(
    identity: ProbeIdentity,
    from: IpAddr,
    kind: AnswerKind,
    reply_ttl: Option<u8>,
) -> Answer {
    Answer { identity, from, kind, reply_ttl, quoted: Quoted::default(), mpls: Vec::new() }
}

/// The flow whose number was added to `first`.
fn flow_of(value: u16, first: u16) -> Option<u16> {
    value.checked_sub(first).filter(|flow| *flow < MAX_FLOWS)
}

/// Reads two bytes in network order; callers check that they exist.
fn read<const N: usize>(bytes: &[u8; N], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// Minimum length of a probe from the IP header, bytes: what its identity needs.
pub fn least_size(kind: ProbeKind, target: IpAddr) -> u16 {
    let ip = if target.is_ipv4() { 20 } else { 40 };
    ip + match kind {
        ProbeKind::Udp | ProbeKind::Icmp => 8 + 6,
        ProbeKind::Tcp => 20,
    }
}

fn write(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}
