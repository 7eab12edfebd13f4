//! Finds the TCP segment in a frame.

use std::net::SocketAddr;

use etherparse::{IpNumber, LaxIpSlice, TcpOptionElement, TcpOptionsIterator};
use linerate_units::Nanos;

/// What precedes the IP header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FrameLink {
    Ethernet,
    /// Linux cooked, version 1.
    Cooked,
    /// Linux cooked, version 2.
    Cooked2,
    /// Nothing.
    Ip,
    /// The address family in the capturing host's order.
    Loopback,
}

impl FrameLink {
    /// By its number in files (`LINKTYPE_…`); 12 and 14 are BSD's raw IP.
    pub(crate) fn from_number(number: i32) -> Option<Self> {
        Some(match number {
            0 | 108 => Self::Loopback,
            1 => Self::Ethernet,
            12 | 14 | 101 | 228 | 229 => Self::Ip,
            113 => Self::Cooked,
            276 => Self::Cooked2,
            _ => return None,
        })
    }
}

/// A TCP segment, or several merged into one frame by offloading.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Segment {
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
    /// Marked as having experienced congestion (ECN).
    pub(crate) is_marked: bool,
    pub(crate) options: TcpOptions,
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
pub(crate) const ACK: u8 = 0x10;
pub(crate) const ECE: u8 = 0x40;

/// What a frame was.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Dissected {
    Segment(Segment),
    /// A fragment of an IP packet, which is not reassembled.
    Fragment,
    /// TCP with too few bytes kept.
    Cut,
    /// Not TCP.
    Other,
}

pub(crate) fn dissect(at: Nanos, link: FrameLink, bytes: &[u8], wire_bytes: u32) -> Dissected {
    let Some(ip) = after_link(link, bytes) else {
        return Dissected::Other;
    };
    let wire = (wire_bytes as usize).saturating_sub(bytes.len() - ip.len());
    let Ok((packet, _)) = LaxIpSlice::from_slice(ip) else {
        return Dissected::Other;
    };
    let payload = packet.payload();
    if payload.ip_number != IpNumber::TCP {
        return Dissected::Other;
    }
    if payload.fragmented {
        return Dissected::Fragment;
    }
    let header_bytes = payload.payload.as_ptr() as usize - ip.as_ptr() as usize;
    let (told, ip_id, traffic_class) = match &packet {
        LaxIpSlice::Ipv4(packet) => {
            let header = packet.header();
            let told = usize::from(header.total_len());
            (told, header.identification(), ip[1])
        }
        LaxIpSlice::Ipv6(packet) => {
            let told = usize::from(packet.header().payload_length());
            (if told == 0 { 0 } else { told + 40 }, 0, ip[1] >> 4)
        }
    };
    // An offloaded packet of 64 KiB or more has no length in its header.
    let whole = if told <= header_bytes { wire } else { told };
    let Some(tcp) = payload.payload.get(..TCP_BYTES) else {
        return Dissected::Cut;
    };
    let header = (usize::from(tcp[12] >> 4) * 4).max(TCP_BYTES);
    let half = |at: usize| u16::from_be_bytes([tcp[at], tcp[at + 1]]);
    let kept = payload.payload.len().min(header);
    Dissected::Segment(Segment {
        at,
        source: SocketAddr::new(packet.source_addr(), half(0)),
        destination: SocketAddr::new(packet.destination_addr(), half(2)),
        seq: word(tcp, 4),
        ack: word(tcp, 8),
        flags: tcp[13],
        window: half(14),
        payload: whole.saturating_sub(header_bytes + header) as u32,
        ip_id,
        is_marked: traffic_class & 3 == 3,
        options: options(&payload.payload[TCP_BYTES..kept]),
    })
}

/// The IP packet of a frame.
fn after_link(link: FrameLink, bytes: &[u8]) -> Option<&[u8]> {
    match link {
        FrameLink::Ip => Some(bytes),
        FrameLink::Loopback => bytes.get(4..),
        FrameLink::Ethernet => after_type(bytes.get(12..)?),
        FrameLink::Cooked => after_type(bytes.get(14..)?),
        FrameLink::Cooked2 => {
            let ether_type = bytes.get(..2)?;
            let rest = bytes.get(20..)?;
            if is_vlan(ether_type) { after_type(rest.get(2..)?) } else { ip(ether_type, rest) }
        }
    }
}

/// What follows the Ethernet type, after any VLAN tags.
fn after_type(mut bytes: &[u8]) -> Option<&[u8]> {
    while is_vlan(bytes.get(..2)?) {
        bytes = bytes.get(4..)?;
    }
    ip(&bytes[..2], &bytes[2..])
}

fn is_vlan(ether_type: &[u8]) -> bool {
    matches!(ether_type, [0x81, 0x00] | [0x88, 0xa8] | [0x91, 0x00])
}

fn ip<'a>(ether_type: &[u8], rest: &'a [u8]) -> Option<&'a [u8]> {
    matches!(ether_type, [0x08, 0x00] | [0x86, 0xdd]).then_some(rest)
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

/// A TCP header without options, bytes.
const TCP_BYTES: usize = 20;
