//! What a link and its routers do to the bytes of Ethernet frames.
//!
//! Pure functions on bytes from any kernel: nothing here panics, whatever the bytes. This file has
//! where the headers of a packet are, and the Internet checksum; `router` cuts frames of
//! segmentation offload to their segments, answers or fragments packets that are too big, marks ECN
//! and flips bits.

mod router;

use std::net::{IpAddr, SocketAddr};

use linerate_units::checksum::{fold, sum};
use linerate_units::{Ecn, Family};
pub use router::{Cutter, RouterAddresses, corrupt, fragments, mark_ce, segment_count, too_big};

/// Length of an Ethernet header, bytes.
const ETHERNET: usize = 14;
/// Protocol numbers (IANA).
const ICMP: u8 = 1;
const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMPV6: u8 = 58;

/// The two bytes at `at` in network order; `None` past the end.
fn read_u16(bytes: &[u8], at: usize) -> Option<u16> {
    let pair = bytes.get(at..at.checked_add(2)?)?;
    Some(u16::from_be_bytes([pair[0], pair[1]]))
}

/// Writes two bytes at `at`; does nothing past the end.
fn write_u16(bytes: &mut [u8], at: usize, value: u16) {
    if let Some(pair) = bytes.get_mut(at..at.saturating_add(2)) {
        pair.copy_from_slice(&value.to_be_bytes());
    }
}

// The layout of a frame: where the headers of its IP packet are.

/// Work on a frame left to a device, as in virtio-net's header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Offload {
    /// Whether the transport checksum holds only the sum of the pseudo header.
    pub needs_checksum: bool,
    /// How the frame is to be cut.
    pub gso: Gso,
    /// TCP: only the first segment carries ECN's CWR bit.
    pub ecn: bool,
    /// Length of all headers as stated by the kernel, bytes; it may be wrong.
    pub header_bytes: u16,
    /// Payload of each segment, bytes.
    pub gso_bytes: u16,
    /// Start of the bytes that the checksum covers.
    pub checksum_start: u16,
    /// Position of the checksum, counted from there.
    pub checksum_offset: u16,
}

/// How a frame is to be cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Gso {
    /// Not at all.
    #[default]
    None,
    /// Into TCP segments over IPv4.
    Tcp4,
    /// Into TCP segments over IPv6.
    Tcp6,
    /// Into UDP datagrams.
    Udp,
}

/// Where the headers of an IP packet in an Ethernet frame are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// The IP version.
    pub family: Family,
    /// Start of the IP header.
    pub ip: usize,
    /// Start of the header of `protocol`, which may lie past the end of a short packet; `None` in a
    /// fragment and after truncated IPv6 headers.
    pub transport: Option<usize>,
    /// The transport's protocol, or that of the first unknown IPv6 header, as an IANA number.
    pub protocol: u8,
    /// The ECN codepoint.
    pub ecn: Ecn,
    /// Length including the IP header, bytes, without the padding of a short frame.
    pub ip_bytes: u32,
}

/// The layout of an IP packet; `None` for anything else.
pub fn layout(frame: &[u8]) -> Option<Layout> {
    match (read_u16(frame, 12)?, frame.get(ETHERNET)? >> 4) {
        (0x0800, 4) => ipv4(frame),
        (0x86dd, 6) => ipv6(frame),
        _ => None,
    }
}

fn ipv4(frame: &[u8]) -> Option<Layout> {
    let ip = frame.get(ETHERNET..)?;
    let header = usize::from(ip[0] & 15) * 4;
    let total = length(read_u16(ip, 2)?, ip.len());
    if header < 20 || ip.len() < header || total < header {
        return None;
    }
    let is_fragment = read_u16(ip, 6)? & 0x3fff != 0;
    Some(Layout {
        family: Family::Ipv4,
        ip: ETHERNET,
        transport: (!is_fragment).then_some(ETHERNET + header),
        protocol: ip[9],
        ecn: ecn(ip[1]),
        ip_bytes: u32::try_from(total.min(ip.len())).ok()?,
    })
}

fn ipv6(frame: &[u8]) -> Option<Layout> {
    let ip = frame.get(ETHERNET..)?;
    if ip.len() < 40 {
        return None;
    }
    let payload = length(read_u16(ip, 4)?, ip.len() - 40);
    let (protocol, transport) = walk(ip);
    Some(Layout {
        family: Family::Ipv6,
        ip: ETHERNET,
        transport: transport.map(|at| ETHERNET + at),
        protocol,
        ecn: ecn(ip[1] >> 4),
        ip_bytes: u32::try_from((40 + payload).min(ip.len())).ok()?,
    })
}

/// The length in a field. Frames of segmentation offload that are too long for the field have zero
/// there (the kernel's "BIG TCP"); then the actual length counts.
fn length(field: u16, there: usize) -> usize {
    match usize::from(field) {
        0 if there > usize::from(u16::MAX) => there,
        length => length,
    }
}

/// Skips hop-by-hop (0), routing (43) and destination options (60); a fragment header (44) ends the
/// walk.
fn walk(ip: &[u8]) -> (u8, Option<usize>) {
    let (mut next, mut at) = (ip[6], 40);
    while matches!(next, 0 | 43 | 60) {
        let Some(header) = ip.get(at..at + 2) else {
            return (next, None);
        };
        next = header[0];
        at += 8 * (usize::from(header[1]) + 1);
    }
    let is_known = next != 44 && at <= ip.len();
    (next, is_known.then_some(at))
}

fn ecn(bits: u8) -> Ecn {
    match bits & 3 {
        0 => Ecn::NotEct,
        1 => Ecn::Ect1,
        2 => Ecn::Ect0,
        _ => Ecn::Ce,
    }
}

impl Layout {
    /// Source and destination of a TCP or UDP packet; `None` for other transports and headers that
    /// do not fit.
    pub fn ends(&self, frame: &[u8]) -> Option<[SocketAddr; 2]> {
        self.payload_start(frame)?;
        let (transport, ip) = (self.transport?, frame.get(self.ip..)?);
        let address = |end: usize| -> Option<IpAddr> {
            Some(match self.family {
                Family::Ipv4 => (*ip.get(12 + 4 * end..)?.first_chunk::<4>()?).into(),
                Family::Ipv6 => (*ip.get(8 + 16 * end..)?.first_chunk::<16>()?).into(),
            })
        };
        let end = |end| Some((address(end)?, read_u16(frame, transport + 2 * end)?).into());
        Some([end(0)?, end(1)?])
    }

    /// The payload of a TCP or UDP packet; `None` as for [`Self::ends`].
    pub fn payload<'a>(&self, frame: &'a [u8]) -> Option<&'a [u8]> {
        frame.get(self.payload_start(frame)?..self.end())
    }

    /// Start of the TCP or UDP payload; `None` for other transports and headers that do not fit.
    fn payload_start(&self, frame: &[u8]) -> Option<usize> {
        let transport = self.transport?;
        let header = match self.protocol {
            TCP => usize::from(*frame.get(transport + 12)? >> 4) * 4,
            UDP => 8,
            _ => return None,
        };
        let least = if self.protocol == TCP { 20 } else { 8 };
        (header >= least && transport + header <= self.end()).then_some(transport + header)
    }

    /// End of the packet.
    fn end(&self) -> usize {
        self.ip + self.ip_bytes as usize
    }
}

// The Internet checksum (RFC 1071): computed, completed, updated (RFC 1624).

/// The checksum of bytes whose checksum field is zero.
fn checksum(bytes: &[u8]) -> u16 {
    !fold(sum(bytes))
}

/// Recomputes the checksum of an IPv4 header; does nothing for IPv6.
fn write_ip(frame: &mut [u8], layout: &Layout) {
    if layout.family == Family::Ipv4
        && let Some(first) = frame.get(layout.ip)
    {
        let end = layout.ip + usize::from(first & 15) * 4;
        write_u16(frame, layout.ip + 10, 0);
        if let Some(header) = frame.get(layout.ip..end) {
            let sum = checksum(header);
            write_u16(frame, layout.ip + 10, sum);
        }
    }
}

/// The sum of the pseudo header for `length` bytes of transport.
fn pseudo_header(frame: &[u8], layout: &Layout, length: usize) -> u64 {
    let addresses = match layout.family {
        Family::Ipv4 => layout.ip + 12..layout.ip + 20,
        Family::Ipv6 => layout.ip + 8..layout.ip + 40,
    };
    let addresses = frame.get(addresses).map_or(0, sum);
    addresses + length as u64 + u64::from(layout.protocol)
}

/// Position of the checksum of TCP or UDP.
fn place(layout: &Layout) -> Option<usize> {
    let transport = layout.transport?;
    match layout.protocol {
        TCP => Some(transport + 16),
        UDP => Some(transport + 6),
        _ => None,
    }
}

/// Recomputes the checksum of TCP or UDP over the whole packet. A UDP checksum of zero is written
/// as 0xffff, since zero means no checksum (RFC 768); a packet without a checksum stays without.
fn write_transport(frame: &mut [u8], layout: &Layout) {
    let (Some(transport), Some(place)) = (layout.transport, place(layout)) else {
        return;
    };
    let end = layout.end();
    if end > frame.len() || place + 2 > end || has_none(frame, layout, place) {
        return;
    }
    write_u16(frame, place, 0);
    let total = pseudo_header(frame, layout, end - transport) + sum(&frame[transport..end]);
    write_u16(frame, place, or_other_zero(!fold(total), layout.protocol));
}

fn or_other_zero(sum: u16, protocol: u8) -> u16 {
    let is_zero = sum == 0 && protocol == UDP;
    if is_zero { 0xffff } else { sum }
}

/// Completes a checksum left to the device: the field holds the sum of the pseudo header, and the
/// rest is added. Does nothing if nothing was left or it cannot be done (no IP packet, a frame yet
/// to be cut, an offload that points past the packet); `needs_checksum` then stays.
pub fn complete_checksum(frame: &mut [u8], offload: &mut Offload) {
    if !offload.needs_checksum || offload.gso != Gso::None {
        return;
    }
    let start = usize::from(offload.checksum_start);
    let place = start + usize::from(offload.checksum_offset);
    let Some(layout) = layout(frame) else { return };
    let end = layout.end().min(frame.len());
    if start >= end || place + 2 > end {
        return;
    }
    let sum = checksum(&frame[start..end]);
    write_u16(frame, place, or_other_zero(sum, layout.protocol));
    offload.needs_checksum = false;
}

/// Marks a TCP or UDP packet as needing no verification, by leaving its checksum to the device
/// again: the field holds only the sum of the pseudo header. A Linux receiver accepts such a frame
/// from its own machine, whatever its bytes (`skb_csum_unnecessary`, include/linux/skbuff.h), like
/// one verified by a network card. (The flag for this, VIRTIO_NET_HDR_F_DATA_VALID, is heeded from
/// virtio devices but not from packet sockets: measured on Linux 6.18.) Fragments, other transports
/// and UDP without a checksum are unchanged.
pub fn mark_verified(frame: &mut [u8], offload: &mut Offload) {
    if offload.needs_checksum {
        return;
    }
    let Some(layout) = layout(frame) else { return };
    let (Some(transport), Some(place)) = (layout.transport, place(&layout)) else {
        return;
    };
    let end = layout.end();
    if end > frame.len() || place + 2 > end || has_none(frame, &layout, place) {
        return;
    }
    let (Ok(start), Ok(offset)) = (u16::try_from(transport), u16::try_from(place - transport))
    else {
        return;
    };
    let sum = pseudo_header(frame, &layout, end - transport);
    write_u16(frame, place, fold(sum));
    offload.needs_checksum = true;
    offload.checksum_start = start;
    offload.checksum_offset = offset;
}

/// Whether it is a UDP packet without a checksum (RFC 768), which IPv6 does not allow.
fn has_none(frame: &[u8], layout: &Layout, place: usize) -> bool {
    let may_have_none = layout.family == Family::Ipv4 && layout.protocol == UDP;
    may_have_none && read_u16(frame, place) == Some(0)
}

/// Updates the checksum at `place` for a changed 16-bit word: HC' = ~(~HC + ~m + m'), RFC 1624.
fn update(frame: &mut [u8], place: usize, old: u16, new: u16) {
    if let Some(current) = read_u16(frame, place) {
        let total = u64::from(!current) + u64::from(!old) + u64::from(new);
        write_u16(frame, place, !fold(total));
    }
}
