//! From the bytes of a frame to its TCP segment or UDP datagram.

use std::net::{IpAddr, SocketAddr};

use etherparse::{IpNumber, Ipv6ExtensionSlice, LaxIpSlice, TcpOptionElement, TcpOptionsIterator};
use linerate_units::Nanos;

use crate::frames::Frame;
use crate::headers::{Encapsulation, Header, Step, What, after_ip};

/// A TCP segment, or several merged into one frame by offloading.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Segment<'a> {
    pub(crate) at: Nanos,
    pub(crate) source: SocketAddr,
    pub(crate) destination: SocketAddr,
    pub(crate) seq: u32,
    pub(crate) ack: u32,
    pub(crate) flags: u8,
    /// As in the header, unscaled.
    pub(crate) window: u16,
    /// Payload on the wire, bytes, however much was captured.
    pub(crate) payload: u32,
    /// IPv4 identification; 0 for IPv6.
    pub(crate) ip_id: u16,
    /// Where on its way it was recorded: its hop limit, encapsulations and link addresses.
    pub(crate) place: u64,
    pub(crate) inside: Encapsulation,
    /// Marked as having experienced congestion (ECN).
    pub(crate) is_marked: bool,
    pub(crate) options: TcpOptions,
    /// The first bytes of its payload, as far as they were captured.
    pub(crate) kept: &'a [u8],
}

/// A UDP datagram that carries no tunnel.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Datagram<'a> {
    pub(crate) at: Nanos,
    pub(crate) source: SocketAddr,
    pub(crate) destination: SocketAddr,
    /// The first bytes of its payload, as far as they were captured.
    pub(crate) kept: &'a [u8],
}

/// The options used here.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct TcpOptions {
    pub(crate) mss: Option<u16>,
    pub(crate) window_scale: Option<u8>,
    pub(crate) sack_permitted: bool,
    /// `TSval`, `TSecr`.
    pub(crate) timestamps: Option<(u32, u32)>,
    /// The first blocks of a SACK.
    pub(crate) sack: [Option<(u32, u32)>; 4],
}

pub(crate) const FIN: u8 = 0x01;
pub(crate) const SYN: u8 = 0x02;
pub(crate) const RST: u8 = 0x04;
pub(crate) const PSH: u8 = 0x08;
pub(crate) const ACK: u8 = 0x10;
pub(crate) const ECE: u8 = 0x40;

/// What the fragments of a packet have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PacketId {
    pub(crate) from: IpAddr,
    pub(crate) to: IpAddr,
    pub(crate) id: u32,
}

/// A fragment of a packet with TCP.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Fragment<'a> {
    pub(crate) at: Nanos,
    pub(crate) packet: PacketId,
    /// Its place in the packet's payload, bytes.
    pub(crate) start: u32,
    pub(crate) end: u32,
    pub(crate) is_last: bool,
    pub(crate) inside: Encapsulation,
    /// The segment as though it ended with this fragment, if this is the first.
    pub(crate) head: Option<Segment<'a>>,
}

/// What a frame was.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Dissected<'a> {
    Segment(Segment<'a>),
    /// A piece of one.
    Fragment(Fragment<'a>),
    Datagram(Datagram<'a>, What, Encapsulation),
    /// With too few bytes kept.
    Cut,
    /// Neither TCP nor UDP.
    Other(What, Encapsulation),
}

/// Takes one header after the other off a frame.
pub(crate) fn dissect<'a>(frame: &Frame<'a>) -> Dissected<'a> {
    let (mut header, mut rest) = (frame.link, frame.bytes);
    let mut inside = Encapsulation::default();
    let mut addresses: &[u8] = &[];
    let mut datagram = None;
    // Nearly all frames are IP in Ethernet.
    if header == Header::Ethernet && matches!(rest.get(12..14), Some([8, 0] | [0x86, 0xdd])) {
        (addresses, header, rest) = (rest, Header::Ip, &rest[14..]);
    }
    for _ in 0..MAX_HEADERS {
        if header.has_addresses() && addresses.is_empty() {
            addresses = rest;
        }
        let step = if header == Header::Ip {
            let Ok((packet, None)) = LaxIpSlice::from_slice(rest) else {
                return too_short(frame, inside);
            };
            if packet.payload_ip_number() == IpNumber::TCP {
                return Peeled { frame, rest, inside, addresses }.segment(&packet);
            }
            datagram = self::datagram(frame.at, &packet);
            Some(beyond(&packet, rest))
        } else {
            header.peel(rest)
        };
        let (next, bytes, carrier) = match step {
            Some(Step::Next(next, bytes, carrier)) => (next, bytes, carrier),
            Some(Step::End(what)) => {
                return match datagram.filter(|_| what.is_udp()) {
                    Some(datagram) => Dissected::Datagram(datagram, what, inside),
                    None => Dissected::Other(what, inside),
                };
            }
            None => return too_short(frame, inside),
        };
        let Some(after) = rest.get(bytes..) else {
            return too_short(frame, inside);
        };
        if carrier.is_some_and(|carrier| !inside.push(carrier)) {
            break;
        }
        (header, rest) = (next, after);
    }
    Dissected::Other(What::Named("too many headers in each other"), inside)
}

/// Headers that are not there: cut off by the capture, or damaged.
fn too_short<'a>(frame: &Frame<'_>, inside: Encapsulation) -> Dissected<'a> {
    if frame.bytes.len() < frame.wire_bytes as usize {
        return Dissected::Cut;
    }
    Dissected::Other(What::Named("damaged"), inside)
}

/// The beginning of a datagram in a packet of UDP; a later fragment has none.
fn datagram<'a>(at: Nanos, packet: &LaxIpSlice<'a>) -> Option<Datagram<'a>> {
    if packet.payload_ip_number() != IpNumber::UDP {
        return None;
    }
    let (header, kept) = packet.payload().payload.split_at_checked(8)?;
    let port = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
    Some(Datagram {
        at,
        source: SocketAddr::new(packet.source_addr(), port(0)),
        destination: SocketAddr::new(packet.destination_addr(), port(2)),
        kept,
    })
}

/// What follows the header of an IP packet without TCP.
fn beyond(packet: &LaxIpSlice<'_>, bytes: &[u8]) -> Step {
    if piece(packet).is_some_and(|piece| piece.start > 0) {
        return Step::End(What::Named("later IP fragments"));
    }
    let payload = packet.payload();
    let at = payload.payload.as_ptr() as usize - bytes.as_ptr() as usize;
    after_ip(payload.ip_number.0, packet.ipv4().is_some(), at)
}

/// Which part of a packet a fragment is.
#[derive(Clone, Copy)]
struct Piece {
    id: u32,
    /// Bytes of the payload before it.
    start: u32,
    is_last: bool,
}

/// `None` for a whole packet.
fn piece(packet: &LaxIpSlice<'_>) -> Option<Piece> {
    if !packet.is_fragmenting_payload() {
        return None;
    }
    match packet {
        LaxIpSlice::Ipv4(packet) => {
            let header = packet.header();
            Some(Piece {
                id: header.identification().into(),
                start: header.fragments_offset().byte_offset().into(),
                is_last: !header.more_fragments(),
            })
        }
        LaxIpSlice::Ipv6(packet) => {
            packet.extensions().clone().into_iter().find_map(|extension| match extension {
                Ipv6ExtensionSlice::Fragment(header) => Some(Piece {
                    id: header.identification(),
                    start: header.fragment_offset().byte_offset().into(),
                    is_last: !header.more_fragments(),
                }),
                _ => None,
            })
        }
    }
}

/// A frame whose headers are off up to the IP header.
struct Peeled<'p, 'a> {
    frame: &'p Frame<'a>,
    rest: &'a [u8],
    inside: Encapsulation,
    /// From the outermost link addresses on.
    addresses: &'a [u8],
}

impl<'a> Peeled<'_, 'a> {
    fn segment(&self, packet: &LaxIpSlice<'a>) -> Dissected<'a> {
        let Self { frame, rest: ip, inside, addresses } = self;
        let payload = packet.payload();
        let wire = (frame.wire_bytes as usize).saturating_sub(frame.bytes.len() - ip.len());
        let header_bytes = payload.payload.as_ptr() as usize - ip.as_ptr() as usize;
        let (told, ip_id, traffic_class, hops) = match packet {
            LaxIpSlice::Ipv4(packet) => {
                let header = packet.header();
                let told = usize::from(header.total_len());
                (told, header.identification(), ip[1], header.ttl())
            }
            LaxIpSlice::Ipv6(packet) => {
                let header = packet.header();
                let told = usize::from(header.payload_length());
                (if told == 0 { 0 } else { told + 40 }, 0, ip[1] >> 4, header.hop_limit())
            }
        };
        // An offloaded packet of 64 KiB or more has no length in its header.
        let whole = if told <= header_bytes { wire } else { told };
        let bytes = whole.saturating_sub(header_bytes) as u32;
        let (from, to) = (packet.source_addr(), packet.destination_addr());
        let fragment = |piece: Piece, head| {
            Dissected::Fragment(Fragment {
                at: frame.at,
                packet: PacketId { from, to, id: piece.id },
                start: piece.start,
                end: piece.start.saturating_add(bytes),
                is_last: piece.is_last,
                inside: *inside,
                head,
            })
        };
        let piece = payload.fragmented.then(|| piece(packet)).flatten();
        if let Some(piece) = piece.filter(|piece| piece.start > 0) {
            return fragment(piece, None);
        }
        let Some(tcp) = payload.payload.get(..TCP_BYTES) else {
            return Dissected::Cut;
        };
        let header = (usize::from(tcp[12] >> 4) * 4).max(TCP_BYTES);
        let half = |at: usize| u16::from_be_bytes([tcp[at], tcp[at + 1]]);
        let eight = |at: usize| {
            let eight = addresses.get(at..).and_then(|rest| rest.first_chunk());
            eight.map_or(0, |eight| u64::from_be_bytes(*eight))
        };
        let kept = payload.payload.len().min(header);
        let segment = Segment {
            at: frame.at,
            source: SocketAddr::new(from, half(0)),
            destination: SocketAddr::new(to, half(2)),
            seq: word(tcp, 4),
            ack: word(tcp, 8),
            flags: tcp[13],
            window: half(14),
            payload: bytes.saturating_sub(header as u32),
            ip_id,
            place: mixed([eight(0), eight(4), inside.number()], hops.into()),
            inside: *inside,
            is_marked: traffic_class & 3 == 3,
            options: options(&payload.payload[TCP_BYTES..kept]),
            kept: &payload.payload[kept..],
        };
        match piece {
            Some(piece) => fragment(piece, Some(segment)),
            None => Dissected::Segment(segment),
        }
    }
}

/// A number that differs for other values (as FNV-1a mixes bytes, with the golden ratio's bits).
pub(crate) fn mixed<const N: usize>(values: [u64; N], begin: u64) -> u64 {
    let mix = |hash: u64, value: u64| {
        let product = (hash ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        product ^ (product >> 32)
    };
    values.into_iter().fold(mix(0, begin), mix)
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn options(bytes: &[u8]) -> TcpOptions {
    let mut options = TcpOptions::default();
    // Nearly all segments have just timestamps (RFC 7323, appendix A).
    if bytes.len() == 12 && bytes[..4] == [1, 1, 8, 10] {
        options.timestamps = Some((word(bytes, 4), word(bytes, 8)));
        return options;
    }
    for option in TcpOptionsIterator::from_slice(bytes).map_while(Result::ok) {
        match option {
            TcpOptionElement::MaximumSegmentSize(bytes) => options.mss = Some(bytes),
            TcpOptionElement::WindowScale(shift) => options.window_scale = Some(shift.min(14)),
            TcpOptionElement::SelectiveAcknowledgementPermitted => options.sack_permitted = true,
            TcpOptionElement::SelectiveAcknowledgement(first, rest) => {
                options.sack = [Some(first), rest[0], rest[1], rest[2]];
            }
            TcpOptionElement::Timestamp(value, echo) => options.timestamps = Some((value, echo)),
            TcpOptionElement::Noop => {}
        }
    }
    options
}

/// The most headers of a frame: tags and those before an encapsulation count, too.
const MAX_HEADERS: usize = 48;
/// A TCP header without options, bytes.
const TCP_BYTES: usize = 20;
