//! Packets of IPv4 and IPv6 as routers see and make them; nothing here is of the code under test.

use std::net::IpAddr;

pub(crate) const ICMP: u8 = 1;
pub(crate) const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;
pub(crate) const ICMPV6: u8 = 58;
/// An IPv6 header of hop-by-hop options and one of destination options (RFC 8200, section 4):
/// padding alone.
const HOP_BY_HOP: u8 = 0;
const DESTINATION: u8 = 60;
const PADDING: [u8; 6] = [1, 4, 0, 0, 0, 0];

/// A packet that came, from its IP header on.
#[derive(Debug, Clone)]
pub(crate) struct Packet {
    pub(crate) source: IpAddr,
    pub(crate) target: IpAddr,
    /// TOS octet or traffic class.
    pub(crate) class: u8,
    pub(crate) ttl: u8,
    pub(crate) protocol: u8,
    pub(crate) bytes: Vec<u8>,
    header: usize,
}

impl Packet {
    /// Reads an Ethernet frame; `None` for what is no packet of IP.
    pub(crate) fn of_frame(frame: &[u8]) -> Option<Self> {
        let (header, bytes) = frame.split_at_checked(14)?;
        match [header[12], header[13]] {
            [0x08, 0x00] => Self::v4(bytes),
            [0x86, 0xdd] => Self::v6(bytes),
            _ => None,
        }
    }

    fn v4(bytes: &[u8]) -> Option<Self> {
        let header: &[u8; 20] = bytes.first_chunk()?;
        let total = usize::from(u16::from_be_bytes([header[2], header[3]]));
        let address =
            |at: usize| IpAddr::from([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        Some(Self {
            source: address(12),
            target: address(16),
            class: header[1],
            ttl: header[8],
            protocol: header[9],
            bytes: bytes.get(..total)?.to_vec(),
            header: usize::from(header[0] & 15) * 4,
        })
    }

    fn v6(bytes: &[u8]) -> Option<Self> {
        let header: &[u8; 40] = bytes.first_chunk()?;
        let length = 40 + usize::from(u16::from_be_bytes([header[4], header[5]]));
        let address = |at: usize| {
            let octets: [u8; 16] = header[at..at + 16].try_into().expect("sixteen bytes");
            IpAddr::from(octets)
        };
        Some(Self {
            source: address(8),
            target: address(24),
            class: header[0] << 4 | header[1] >> 4,
            ttl: header[7],
            protocol: header[6],
            bytes: bytes.get(..length)?.to_vec(),
            header: 40,
        })
    }

    pub(crate) fn transport(&self) -> &[u8] {
        self.bytes.get(self.header..).unwrap_or_default()
    }

    /// The same with another class and TTL, as it is where they were changed.
    pub(crate) fn marked(&self, class: u8, ttl: u8) -> Self {
        let mut packet = self.clone();
        (packet.class, packet.ttl) = (class, ttl);
        let bytes = &mut packet.bytes;
        if self.target.is_ipv4() {
            (bytes[1], bytes[8]) = (class, ttl);
            bytes[10..12].fill(0);
            let sum = checksum(&bytes[..self.header]);
            bytes[10..12].copy_from_slice(&sum.to_be_bytes());
        } else {
            bytes[0] = 0x60 | class >> 4;
            bytes[1] = bytes[1] & 0x0f | class << 4;
            bytes[7] = ttl;
        }
        packet
    }

    /// The same with a header of destination options before the transport, as a box on the way
    /// might insert. IPv6 alone.
    pub(crate) fn with_options(&self) -> Self {
        let mut packet = self.clone();
        let options = [&[self.protocol, 0][..], &PADDING].concat();
        packet.bytes.splice(40..40, options);
        packet.bytes[6] = DESTINATION;
        let length = u16::try_from(packet.bytes.len() - 40).expect("a short packet");
        packet.bytes[4..6].copy_from_slice(&length.to_be_bytes());
        packet
    }
}

/// What a router adds to an answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Extras {
    /// A label that the packet had, and whether the message says how long the quote is (RFC 4884)
    /// or predates that.
    pub(crate) label: Option<(u32, bool)>,
    /// IPv6 extension headers before the answer's message.
    pub(crate) has_headers: bool,
}

/// An ICMP error about `quoted`, without its checksum.
pub(crate) fn error(kind: u8, code: u8, quoted: &Packet, extras: Extras) -> Vec<u8> {
    let is_v4 = quoted.target.is_ipv4();
    let mut message = vec![kind, code, 0, 0, 0, 0, 0, 0];
    message.extend_from_slice(&quoted.bytes);
    if let Some((label, has_length)) = extras.label {
        message.resize(8 + 128, 0);
        message.extend(extension(label));
        if has_length {
            // In words of 32 bits, and of 64 (RFC 4884, section 4).
            let (at, words) = if is_v4 { (5, 32) } else { (4, 16) };
            message[at] = words;
        }
    }
    message
}

/// One label, bottom of the stack, TTL 1 (RFC 4950).
fn extension(label: u32) -> Vec<u8> {
    let mut bytes = vec![0x20, 0, 0, 0, 0, 8, 1, 1];
    bytes.extend((label << 12 | 1 << 8 | 1).to_be_bytes());
    let sum = checksum(&bytes);
    bytes[2..4].copy_from_slice(&sum.to_be_bytes());
    bytes
}

/// What a target answers: nobody listens, an echo, a reset; the protocol's number and the bytes
/// without a checksum.
pub(crate) fn direct_answer(packet: &Packet) -> Option<(u8, Vec<u8>)> {
    let bytes = packet.transport();
    match packet.protocol {
        UDP if packet.target.is_ipv4() => Some((ICMP, error(3, 3, packet, Extras::default()))),
        UDP => Some((ICMPV6, error(1, 4, packet, Extras::default()))),
        ICMP if bytes.first() == Some(&8) => Some((ICMP, echo_reply(0, bytes))),
        ICMPV6 if bytes.first() == Some(&128) => Some((ICMPV6, echo_reply(129, bytes))),
        TCP => Some((TCP, reset(bytes.first_chunk()?))),
        _ => None,
    }
}

fn echo_reply(kind: u8, request: &[u8]) -> Vec<u8> {
    [&[kind, 0, 0, 0], request.get(4..).unwrap_or_default()].concat()
}

/// Refuses a SYN (RFC 9293, section 3.10.7.1).
fn reset(syn: &[u8; 20]) -> Vec<u8> {
    let sequence = u32::from_be_bytes([syn[4], syn[5], syn[6], syn[7]]);
    let mut bytes = vec![syn[2], syn[3], syn[0], syn[1], 0, 0, 0, 0];
    bytes.extend(sequence.wrapping_add(1).to_be_bytes());
    bytes.extend([5 << 4, 0x14, 0, 0, 0, 0, 0, 0]);
    bytes
}

/// A whole packet with all checksums.
pub(crate) fn ip(
    (from, to): (IpAddr, IpAddr),
    ttl: u8,
    (protocol, mut message): (u8, Vec<u8>),
    has_headers: bool,
) -> Vec<u8> {
    let at = if protocol == TCP { 16 } else { 2 };
    let mut summed = match protocol {
        ICMP => Vec::new(),
        _ => pseudo_header(from, to, protocol, message.len()),
    };
    summed.extend_from_slice(&message);
    let sum = checksum(&summed);
    message[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let total = u16::try_from(20 + message.len()).expect("a short packet");
            let mut header = vec![0x45, 0];
            header.extend(total.to_be_bytes());
            header.extend([0, 0, 0, 0, ttl, protocol, 0, 0]);
            header.extend(from.octets().into_iter().chain(to.octets()));
            let sum = checksum(&header);
            header[10..12].copy_from_slice(&sum.to_be_bytes());
            [header, message].concat()
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            let mut next = protocol;
            if has_headers {
                message.splice(0..0, [&[protocol, 0][..], &PADDING].concat());
                message.splice(0..0, [&[DESTINATION, 0][..], &PADDING].concat());
                next = HOP_BY_HOP;
            }
            let length = u16::try_from(message.len()).expect("a short packet");
            let mut header = vec![0x60, 0, 0, 0];
            header.extend(length.to_be_bytes());
            header.extend([next, ttl]);
            header.extend(from.octets().into_iter().chain(to.octets()));
            [header, message].concat()
        }
        _ => panic!("{from} and {to} are of different families"),
    }
}

fn pseudo_header(from: IpAddr, to: IpAddr, protocol: u8, length: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    for address in [from, to] {
        match address {
            IpAddr::V4(address) => bytes.extend(address.octets()),
            IpAddr::V6(address) => bytes.extend(address.octets()),
        }
    }
    bytes.extend(u32::try_from(length).expect("a short packet").to_be_bytes());
    bytes.extend([0, 0, 0, protocol]);
    bytes
}

/// The Internet checksum (RFC 1071) of bytes whose checksum field is zero.
fn checksum(bytes: &[u8]) -> u16 {
    let mut sum = 0u32;
    for pair in bytes.chunks(2) {
        sum += u32::from(pair[0]) << 8 | u32::from(pair.get(1).copied().unwrap_or(0));
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).expect("it was folded")
}
