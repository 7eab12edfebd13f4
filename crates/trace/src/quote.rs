//! ICMP (RFC 792) and ICMPv6 (RFC 4443) messages, the packet that an error quotes, and the MPLS
//! labels behind it.
//!
//! Pure functions on bytes from any host: nothing here panics, allocates more than a few labels or
//! reads past the end for any input.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use linerate_units::Family;
use linerate_units::checksum::{fold, sum};

use super::probe::{AnswerKind, MplsLabel};

const ICMP: u8 = 1;
const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMPV6: u8 = 58;

/// An ICMP message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message<'a> {
    /// The answer to an echo request.
    EchoReply {
        /// Its identifier.
        identifier: u16,
        /// Its sequence number.
        sequence: u16,
        /// Payload of the request.
        payload: &'a [u8],
    },
    /// An error about a packet.
    Error {
        /// Kind of the error.
        kind: AnswerKind,
        /// The quoted packet.
        quoted: QuotedPacket<'a>,
        /// The label stack of the packet.
        mpls: Vec<MplsLabel>,
    },
    /// A message that concerns no probe.
    Other,
}

/// The packet that an ICMP error quotes, as far as it is included.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuotedPacket<'a> {
    /// Source address of the quoted packet.
    pub source: IpAddr,
    /// Destination address of the quoted packet.
    pub destination: IpAddr,
    /// TOS octet or traffic class.
    pub traffic_class: u8,
    /// TTL or hop limit.
    pub ttl: u8,
    /// Identification of IPv4.
    pub identification: Option<u16>,
    /// What follows the IP header and the IPv6 extension headers.
    pub transport: QuotedTransport<'a>,
}

/// The transport header of a quoted packet: the eight bytes that every router quotes, and the part
/// of the payload that is quoted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QuotedTransport<'a> {
    /// A UDP datagram.
    Udp(QuotedUdp<'a>),
    /// An ICMP or ICMPv6 message.
    Icmp(QuotedIcmp<'a>),
    /// A TCP segment.
    Tcp(QuotedTcp),
    /// Another protocol, by its number, a header that is cut off before 8 bytes, or a later
    /// fragment.
    Other(u8),
}

/// The quoted part of a UDP datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QuotedUdp<'a> {
    /// Source port.
    pub source_port: u16,
    /// Target port.
    pub target_port: u16,
    /// Header and payload, bytes.
    pub length: u16,
    /// The checksum.
    pub checksum: u16,
    /// The payload as far as it is quoted.
    pub payload: &'a [u8],
}

/// The quoted part of an ICMP message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QuotedIcmp<'a> {
    /// Its type.
    pub kind: u8,
    /// Its code.
    pub code: u8,
    /// The checksum.
    pub checksum: u16,
    /// The identifier of an echo.
    pub identifier: u16,
    /// The sequence number of an echo.
    pub sequence: u16,
    /// The payload as far as it is quoted.
    pub payload: &'a [u8],
}

/// The quoted part of a TCP segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QuotedTcp {
    /// Source port.
    pub source_port: u16,
    /// Target port.
    pub target_port: u16,
    /// The sequence number.
    pub sequence: u32,
}

/// Why a packet is not an answer to a probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum NotOurs {
    /// It is too short.
    #[error("answer: it is cut off")]
    CutOff,
    /// The packet that it quotes is none of its family.
    #[error("answer: what it quotes is no packet")]
    NoPacket,
    /// A valid message of another kind.
    #[error("answer: a message that no probe causes")]
    OtherMessage,
    /// An answer to a packet that is not one of our probes.
    #[error("answer: to a packet that is not ours")]
    OtherPacket,
}

/// Parses a message, starting at its type. Its checksum is left to the kernel.
///
/// # Errors
/// [`NotOurs`] if the message or the quoted packet is cut off or malformed.
pub fn parse_message(family: Family, message: &[u8]) -> Result<Message<'_>, NotOurs> {
    let header: &[u8; 8] = message.first_chunk().ok_or(NotOurs::CutOff)?;
    let body = &message[8..];
    let (kind, length) = match family {
        Family::Ipv4 if header[0] == 0 => return Ok(echo_reply(header, body)),
        Family::Ipv6 if header[0] == 129 => return Ok(echo_reply(header, body)),
        // Lengths in words of 32 and of 64 bits (RFC 4884, section 4).
        Family::Ipv4 => (error_v4(header), usize::from(header[5]) * 4),
        Family::Ipv6 => (error_v6(header), usize::from(header[4]) * 8),
    };
    let Some(kind) = kind else {
        return Ok(Message::Other);
    };
    // These two have the MTU there, and no extensions.
    let has_extensions = !matches!(kind, AnswerKind::TooBig { .. });
    let (quote, mpls) = match has_extensions {
        true => split(body, length),
        false => (body, Vec::new()),
    };
    let quoted = match family {
        Family::Ipv4 => packet_v4(quote)?,
        Family::Ipv6 => packet_v6(quote)?,
    };
    Ok(Message::Error { kind, quoted, mpls })
}

/// The meaning of a code of "destination unreachable", in the words of its RFC.
pub fn unreachable_reason(family: Family, code: u8) -> &'static str {
    let words: &[&str] = match family {
        Family::Ipv4 => &UNREACHABLE_V4,
        Family::Ipv6 => &UNREACHABLE_V6,
    };
    words.get(usize::from(code)).unwrap_or(&"unreachable, with a code that no RFC names")
}

/// RFC 792, RFC 1122 section 3.2.2.1, RFC 1812 section 5.2.7.1.
const UNREACHABLE_V4: [&str; 16] = [
    "network unreachable",
    "host unreachable",
    "protocol unreachable",
    "port unreachable",
    "too big and not to be fragmented",
    "source route failed",
    "network unknown",
    "host unknown",
    "source host isolated",
    "network administratively prohibited",
    "host administratively prohibited",
    "network unreachable for this type of service",
    "host unreachable for this type of service",
    "administratively prohibited",
    "host precedence violation",
    "precedence cutoff",
];
/// RFC 4443, section 3.1; RFC 8883 names 7 and 8 as RFC 6550 and RFC 8754 do.
const UNREACHABLE_V6: [&str; 9] = [
    "no route",
    "administratively prohibited",
    "beyond the scope of the source address",
    "address unreachable",
    "port unreachable",
    "source address refused by policy",
    "route rejected",
    "error in the source routing header",
    "headers too long",
];

fn echo_reply<'a>(header: &[u8; 8], payload: &'a [u8]) -> Message<'a> {
    Message::EchoReply {
        identifier: u16::from_be_bytes([header[4], header[5]]),
        sequence: u16::from_be_bytes([header[6], header[7]]),
        payload,
    }
}

fn error_v4(header: &[u8; 8]) -> Option<AnswerKind> {
    match (header[0], header[1]) {
        (3, 3) => Some(AnswerKind::PortUnreachable),
        (3, 4) => {
            Some(AnswerKind::TooBig { mtu: u32::from(u16::from_be_bytes([header[6], header[7]])) })
        }
        (3, code) => Some(AnswerKind::Unreachable { code }),
        (11, 0) => Some(AnswerKind::TimeExceeded),
        _ => None,
    }
}

fn error_v6(header: &[u8; 8]) -> Option<AnswerKind> {
    match (header[0], header[1]) {
        (1, 4) => Some(AnswerKind::PortUnreachable),
        (1, code) => Some(AnswerKind::Unreachable { code }),
        (2, _) => Some(AnswerKind::TooBig {
            mtu: u32::from_be_bytes([header[4], header[5], header[6], header[7]]),
        }),
        (3, 0) => Some(AnswerKind::TimeExceeded),
        _ => None,
    }
}

fn packet_v4(bytes: &[u8]) -> Result<QuotedPacket<'_>, NotOurs> {
    let header: &[u8; 20] = bytes.first_chunk().ok_or(NotOurs::CutOff)?;
    let length = usize::from(header[0] & 15) * 4;
    if header[0] >> 4 != 4 || length < 20 {
        return Err(NotOurs::NoPacket);
    }
    // Routers pad the quote: the packet's own length tells where it ends. Some routers write a
    // wrong length.
    let total = usize::from(u16::from_be_bytes([header[2], header[3]]));
    let end = if total < length { bytes.len() } else { total };
    let rest = bytes.get(length..end.min(bytes.len())).ok_or(NotOurs::CutOff)?;
    let is_first = u16::from_be_bytes([header[6], header[7]]) & 0x1fff == 0;
    Ok(QuotedPacket {
        source: address_v4(&header[12..16]),
        destination: address_v4(&header[16..20]),
        traffic_class: header[1],
        ttl: header[8],
        identification: Some(u16::from_be_bytes([header[4], header[5]])),
        transport: transport(header[9], if is_first { rest } else { &[] }),
    })
}

fn packet_v6(bytes: &[u8]) -> Result<QuotedPacket<'_>, NotOurs> {
    let header: &[u8; 40] = bytes.first_chunk().ok_or(NotOurs::CutOff)?;
    if header[0] >> 4 != 6 {
        return Err(NotOurs::NoPacket);
    }
    let payload = usize::from(u16::from_be_bytes([header[4], header[5]]));
    let end = (40 + payload).min(bytes.len());
    let (protocol, rest) = past_extension_headers(header[6], &bytes[40..end]);
    Ok(QuotedPacket {
        source: address_v6(&header[8..24]),
        destination: address_v6(&header[24..40]),
        traffic_class: header[0] << 4 | header[1] >> 4,
        ttl: header[7],
        identification: None,
        transport: transport(protocol, rest),
    })
}

/// Skips hop-by-hop options (0), routing (43), fragment (44), authentication (51) and destination
/// options (60), RFC 8200 section 4. Later fragments have no transport header.
fn past_extension_headers(mut next: u8, mut rest: &[u8]) -> (u8, &[u8]) {
    while matches!(next, 0 | 43 | 44 | 51 | 60) {
        let Some(header) = rest.first_chunk::<4>() else {
            return (next, &[]);
        };
        let units = usize::from(header[1]);
        let length = match next {
            44 => 8,
            // In words of 32 bits less 2 (RFC 4302, section 2.2).
            51 => (units + 2) * 4,
            _ => (units + 1) * 8,
        };
        let is_later_fragment = next == 44 && u16::from_be_bytes([header[2], header[3]]) >> 3 != 0;
        next = header[0];
        rest = match rest.get(length..) {
            Some(rest) if !is_later_fragment => rest,
            _ => return (next, &[]),
        };
    }
    (next, rest)
}

fn transport(protocol: u8, bytes: &[u8]) -> QuotedTransport<'_> {
    let Some(header) = bytes.first_chunk::<8>() else {
        return QuotedTransport::Other(protocol);
    };
    let word = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
    let payload = &bytes[8..];
    match protocol {
        UDP => QuotedTransport::Udp(QuotedUdp {
            source_port: word(0),
            target_port: word(2),
            length: word(4),
            checksum: word(6),
            payload,
        }),
        TCP => QuotedTransport::Tcp(QuotedTcp {
            source_port: word(0),
            target_port: word(2),
            sequence: u32::from(word(4)) << 16 | u32::from(word(6)),
        }),
        ICMP | ICMPV6 => QuotedTransport::Icmp(QuotedIcmp {
            kind: header[0],
            code: header[1],
            checksum: word(2),
            identifier: word(4),
            sequence: word(6),
            payload,
        }),
        _ => QuotedTransport::Other(protocol),
    }
}

fn address_v4(bytes: &[u8]) -> IpAddr {
    let octets: [u8; 4] = bytes.try_into().expect("the callers give four bytes");
    Ipv4Addr::from(octets).into()
}

fn address_v6(bytes: &[u8]) -> IpAddr {
    let octets: [u8; 16] = bytes.try_into().expect("the callers give sixteen bytes");
    Ipv6Addr::from(octets).into()
}

// ICMP extensions (RFC 4884) behind the quoted packet, of which MPLS labels (RFC 4950) are parsed.

/// Class and type of the MPLS label stack (RFC 4950, section 3).
const MPLS: [u8; 2] = [1, 1];
const VERSION: u8 = 2;
/// Maximum number of labels, more than routers push; further ones are ignored.
const MAX_LABELS: usize = 16;
/// Offset of extensions in messages of routers that predate the length field (RFC 4884, section
/// 5.5).
const OLD_QUOTE: usize = 128;

/// Splits the body of an ICMP error, from its 9th byte, into the quoted packet and the labels.
/// `length` is the message's length field, bytes; 0 if it has none.
pub(super) fn split(body: &[u8], length: usize) -> (&[u8], Vec<MplsLabel>) {
    if length > 0 {
        return match body.split_at_checked(length) {
            Some((quote, extension)) => (quote, labels(extension, false).unwrap_or_default()),
            None => (body, Vec::new()),
        };
    }
    // Only with a correct checksum: otherwise the bytes may be the packet's own payload.
    let old = body.split_at_checked(OLD_QUOTE);
    match old.and_then(|(quote, extension)| Some((quote, labels(extension, true)?))) {
        Some(found) => found,
        None => (body, Vec::new()),
    }
}

/// Parses the label stack of an extension structure; `None` if it is not one.
fn labels(extension: &[u8], needs_checksum: bool) -> Option<Vec<MplsLabel>> {
    let header: &[u8; 4] = extension.first_chunk()?;
    let has_checksum = header[2..] != [0, 0];
    let is_right = fold(sum(extension)) == 0xffff;
    if header[0] >> 4 != VERSION || has_checksum && !is_right || needs_checksum && !has_checksum {
        return None;
    }
    let mut rest = &extension[4..];
    let mut labels = Vec::new();
    while let Some(object) = rest.first_chunk::<4>() {
        let length = usize::from(u16::from_be_bytes([object[0], object[1]]));
        let Some((object, next)) = rest.split_at_checked(length.max(4)) else {
            break;
        };
        if object[2..4] == MPLS {
            labels.extend(object[4..].as_chunks::<4>().0.iter().map(label));
        }
        rest = next;
    }
    labels.truncate(MAX_LABELS);
    Some(labels)
}

fn label(entry: &[u8; 4]) -> MplsLabel {
    let bits = u32::from_be_bytes(*entry);
    MplsLabel {
        label: bits >> 12,
        traffic_class: (bits >> 9 & 7) as u8,
        is_bottom: bits & 0x100 != 0,
        ttl: bits as u8,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Label 24,015, class 5, bottom, TTL 1 in one object, with a right checksum.
    fn extension() -> Vec<u8> {
        let mut bytes = vec![0x20, 0, 0, 0, 0, 8, 1, 1];
        bytes.extend_from_slice(&(24_015_u32 << 12 | 5 << 9 | 1 << 8 | 1).to_be_bytes());
        let checksum = !fold(sum(&bytes));
        bytes[2..4].copy_from_slice(&checksum.to_be_bytes());
        bytes
    }

    const LABEL: MplsLabel = MplsLabel { label: 24_015, traffic_class: 5, is_bottom: true, ttl: 1 };

    fn body(quote: usize, extension: &[u8]) -> Vec<u8> {
        let mut body = vec![0x45; quote];
        body.extend_from_slice(extension);
        body
    }

    #[test]
    fn labels_stand_behind_the_length_that_the_message_gives() {
        let (bytes, extension) = (body(64, &extension()), extension());
        let (quote, labels) = split(&bytes, 64);
        assert_eq!((quote.len(), labels), (64, vec![LABEL]));
        let (quote, labels) = split(&bytes, 65);
        assert_eq!((quote.len(), labels.len()), (65, 0), "no extension there");
        assert_eq!(split(&extension, 500), (&extension[..], Vec::new()));
    }

    #[test]
    fn old_routers_put_them_after_128_bytes_and_only_a_right_checksum_tells() {
        let right = body(OLD_QUOTE, &extension());
        assert_eq!(split(&right, 0), (&right[..OLD_QUOTE], vec![LABEL]));
        let mut wrong = right.clone();
        wrong[OLD_QUOTE + 11] ^= 1;
        assert_eq!(split(&wrong, 0), (&wrong[..], Vec::new()));
        let mut without = right;
        without[OLD_QUOTE + 2..OLD_QUOTE + 4].fill(0);
        assert_eq!(split(&without, 0), (&without[..], Vec::new()));
    }

    #[test]
    fn objects_of_other_classes_are_passed_over_and_a_cut_one_ends_it() {
        let mut bytes = vec![0x20, 0, 0, 0, 0, 8, 2, 15, 9, 9, 9, 9];
        bytes.extend_from_slice(&extension()[4..]);
        assert_eq!(labels(&bytes, false), Some(vec![LABEL]));
        assert_eq!(labels(&bytes[..bytes.len() - 1], false), Some(Vec::new()));
    }
}
