//! What a router and the line do to a frame: answers to packets that are too big, fragments,
//! segments, ECN marks and errors.

use std::net::{Ipv4Addr, Ipv6Addr};

use linerate_units::Family;
use linerate_units::checksum::{fold, sum};

use super::{
    ETHERNET, Gso, ICMP, ICMPV6, Layout, Offload, TCP, UDP, checksum, layout, read_u16, write_u16,
};
use crate::packet::{Corruption, CorruptionPlace};

/// Bytes of the packet quoted by an ICMP error: the whole answer takes at most 576 bytes (RFC 1812,
/// 4.3.2.3), or 1280 (RFC 4443, 2.4).
const QUOTE_V4: usize = 576 - 28;
const QUOTE_V6: usize = 1280 - 48;
const HOP_LIMIT: u8 = 64;
/// Flags of the IPv4 header at 6.
const DONT_FRAGMENT: u16 = 0x4000;
const MORE_FRAGMENTS: u16 = 0x2000;
const OFFSET: u16 = 0x1fff;

/// Addresses from which a router answers; without one it does not answer in that family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RouterAddresses {
    /// Over IPv4.
    pub v4: Option<Ipv4Addr>,
    /// Over IPv6.
    pub v6: Option<Ipv6Addr>,
}

/// The answer to a packet larger than `mtu`, as a frame for its sender: ICMP's Fragmentation Needed
/// (RFC 1191) if the packet must not be fragmented, or ICMPv6's Packet Too Big (RFC 4443). `None`
/// where a router has to be silent: to ICMP errors, multicast, later IPv4 fragments (RFC 1812,
/// 4.3.2.7), and where it may fragment. The packet is quoted as it is, even if its checksum was
/// left to the device.
pub fn too_big(frame: &[u8], router: &RouterAddresses, mtu: u32) -> Option<Vec<u8>> {
    let layout = layout(frame)?;
    let packet = frame.get(layout.ip..layout.end())?;
    if frame[0] & 1 != 0 || is_icmp_error(packet, &layout) {
        return None;
    }
    let mut answer = Vec::with_capacity(1500);
    answer.extend_from_slice(&frame[6..12]);
    answer.extend_from_slice(&frame[..6]);
    answer.extend_from_slice(&frame[12..ETHERNET]);
    match layout.family {
        Family::Ipv4 => answer_v4(&mut answer, packet, router.v4?, mtu)?,
        Family::Ipv6 => answer_v6(&mut answer, packet, router.v6?, mtu)?,
    }
    Some(answer)
}

fn is_icmp_error(packet: &[u8], layout: &Layout) -> bool {
    let Some(kind) = layout.transport.and_then(|at| packet.get(at - layout.ip)) else {
        return false;
    };
    match layout.protocol {
        // All but the requests and replies of RFC 792.
        ICMP => matches!(kind, 3 | 4 | 5 | 11 | 12),
        // Nor to redirects (RFC 4443, 2.4 e).
        ICMPV6 => *kind < 128 || *kind == 137,
        _ => false,
    }
}

fn answer_v4(answer: &mut Vec<u8>, packet: &[u8], router: Ipv4Addr, mtu: u32) -> Option<()> {
    let flags = read_u16(packet, 6)?;
    let source = Ipv4Addr::from(<[u8; 4]>::try_from(packet.get(12..16)?).ok()?);
    let destination = *packet.get(16)?;
    let is_for_many = destination >= 224 || source.is_unspecified() || source.is_multicast();
    if flags & DONT_FRAGMENT == 0 || flags & OFFSET != 0 || is_for_many {
        return None;
    }
    let quote = &packet[..packet.len().min(QUOTE_V4)];
    let length = u16::try_from(28 + quote.len()).ok()?;
    let start = answer.len();
    answer.extend_from_slice(&[0x45, 0xc0]);
    answer.extend_from_slice(&length.to_be_bytes());
    answer.extend_from_slice(&[0, 0, 0, 0, HOP_LIMIT, ICMP, 0, 0]);
    answer.extend_from_slice(&router.octets());
    answer.extend_from_slice(&source.octets());
    let header = checksum(&answer[start..]);
    write_u16(answer, start + 10, header);
    let icmp = answer.len();
    let next_hop = u16::try_from(mtu).unwrap_or(u16::MAX);
    answer.extend_from_slice(&[3, 4, 0, 0, 0, 0]);
    answer.extend_from_slice(&next_hop.to_be_bytes());
    answer.extend_from_slice(quote);
    let sum = checksum(&answer[icmp..]);
    write_u16(answer, icmp + 2, sum);
    Some(())
}

fn answer_v6(answer: &mut Vec<u8>, packet: &[u8], router: Ipv6Addr, mtu: u32) -> Option<()> {
    let source = Ipv6Addr::from(<[u8; 16]>::try_from(packet.get(8..24)?).ok()?);
    if *packet.get(24)? == 0xff || source.is_unspecified() || source.is_multicast() {
        return None;
    }
    let quote = &packet[..packet.len().min(QUOTE_V6)];
    let length = u16::try_from(8 + quote.len()).ok()?;
    answer.extend_from_slice(&[0x60, 0, 0, 0]);
    answer.extend_from_slice(&length.to_be_bytes());
    answer.extend_from_slice(&[ICMPV6, HOP_LIMIT]);
    answer.extend_from_slice(&router.octets());
    answer.extend_from_slice(&source.octets());
    let icmp = answer.len();
    answer.extend_from_slice(&[2, 0, 0, 0]);
    answer.extend_from_slice(&mtu.to_be_bytes());
    answer.extend_from_slice(quote);
    let pseudo = sum(&router.octets()) + sum(&source.octets()) + u64::from(length);
    let total = pseudo + u64::from(ICMPV6) + sum(&answer[icmp..]);
    write_u16(answer, icmp + 2, !fold(total));
    Some(())
}

/// Cuts an IPv4 packet that may be fragmented (RFC 791, 2.3) into fragments of at most `mtu` bytes
/// and passes each to `each` as a frame. Its checksum must be complete. Does nothing where a router
/// may not fragment, and stops at the largest offset its field can hold.
pub fn fragments(frame: &[u8], mtu: u32, mut each: impl FnMut(&[u8])) {
    let Some(layout) = layout(frame).filter(|layout| layout.family == Family::Ipv4) else {
        return;
    };
    let header = layout.ip + usize::from(frame[layout.ip] & 15) * 4;
    let flags = read_u16(frame, layout.ip + 6).unwrap_or(DONT_FRAGMENT);
    // Offsets count units of 8 bytes.
    let room = (mtu as usize).saturating_sub(header - layout.ip) / 8 * 8;
    let end = layout.end();
    if flags & DONT_FRAGMENT != 0 || room == 0 || end > frame.len() || header > end {
        return;
    }
    let mut fragment = Vec::with_capacity(header + room);
    for (number, piece) in frame[header..end].chunks(room).enumerate() {
        let is_last = header + number * room + piece.len() == end;
        fragment.clear();
        fragment.extend_from_slice(&frame[..header]);
        if number > 0 {
            blank_options(&mut fragment[layout.ip + 20..]);
        }
        fragment.extend_from_slice(piece);
        let offset = usize::from(flags & OFFSET) + number * room / 8;
        let Some(offset) = u16::try_from(offset).ok().filter(|units| *units <= OFFSET) else {
            return;
        };
        let more = MORE_FRAGMENTS & if is_last { flags } else { MORE_FRAGMENTS };
        let length = u16::try_from(fragment.len() - layout.ip).unwrap_or(u16::MAX);
        write_u16(&mut fragment, layout.ip + 2, length);
        write_u16(&mut fragment, layout.ip + 6, more | offset);
        super::write_ip(&mut fragment, &layout);
        each(&fragment);
    }
}

/// Options that must not be copied are only in the first fragment (RFC 791, 3.1); like the kernel,
/// others get no-operations in their place.
fn blank_options(options: &mut [u8]) {
    const END: u8 = 0;
    const NO_OPERATION: u8 = 1;
    const COPIED: u8 = 0x80;
    let mut at = 0;
    while let Some(&kind) = options.get(at) {
        let length = match (kind, options.get(at + 1)) {
            (END, _) => return,
            (NO_OPERATION, _) => 1,
            (_, Some(length)) => usize::from(*length).max(2),
            (_, None) => return,
        };
        let end = (at + length).min(options.len());
        if kind & COPIED == 0 {
            options[at..end].fill(NO_OPERATION);
        }
        at = end;
    }
}

// Segmentation offload: frames cut into the segments that a wire would carry.

/// TCP flags: FIN and PSH belong to the last segment, CWR to the first.
const FIN: u8 = 0x01;
const PSH: u8 = 0x08;
const CWR: u8 = 0x80;

/// The number of segments that a [`Cutter`] makes of a frame; 1 if it stays whole.
pub fn segment_count(frame: &[u8], offload: Offload) -> u32 {
    let cut = Cut::new(frame, offload);
    let count = cut.map_or(1, |cut| (cut.end - cut.payload).div_ceil(cut.size));
    u32::try_from(count.max(1)).unwrap_or(u32::MAX)
}

/// Cuts one frame segment by segment. A frame that needs no cutting, or cannot be cut, is returned
/// unchanged.
///
/// Each segment has its own lengths, IPv4 identification, sequence number, flags and checksums. A
/// checksum left to the device stays so in each segment; otherwise it is computed.
#[derive(Debug)]
pub struct Cutter<'a> {
    frame: &'a [u8],
    offload: Offload,
    /// `None` if the frame stays whole.
    cut: Option<Cut>,
    /// Payload bytes returned so far.
    done: usize,
    is_over: bool,
}

/// How a frame is cut.
#[derive(Debug, Clone, Copy)]
struct Cut {
    layout: Layout,
    /// Start and end of the payload.
    payload: usize,
    end: usize,
    size: usize,
}

impl<'a> Cutter<'a> {
    /// A cutter for a frame and its `offload`.
    pub fn new(frame: &'a [u8], offload: Offload) -> Self {
        Self { frame, offload, cut: Cut::new(frame, offload), done: 0, is_over: false }
    }

    /// Replaces the content of `buffer` with the next segment; `None` after the last.
    pub fn next_into(&mut self, buffer: &mut Vec<u8>) -> Option<Offload> {
        if self.is_over {
            return None;
        }
        buffer.clear();
        let Some(cut) = self.cut else {
            self.is_over = true;
            buffer.extend_from_slice(self.frame);
            return Some(self.offload);
        };
        let from = cut.payload + self.done;
        let to = (from + cut.size).min(cut.end);
        buffer.extend_from_slice(&self.frame[..cut.payload]);
        buffer.extend_from_slice(&self.frame[from..to]);
        cut.finish(buffer, self.done, to == cut.end, &self.offload);
        self.done += cut.size;
        self.is_over = to == cut.end;
        Some(Offload {
            gso: Gso::None,
            gso_bytes: 0,
            // Only for frames to be cut: otherwise the kernel refuses the frame.
            ecn: false,
            // The kernel reports what lies in one piece of a frame, headers or not, and refuses a
            // segment that is shorter (packet_snd of net/packet/af_packet.c).
            header_bytes: u16_of(cut.payload),
            ..self.offload
        })
    }
}

impl Cut {
    fn new(frame: &[u8], offload: Offload) -> Option<Self> {
        let protocol = match offload.gso {
            Gso::None => return None,
            Gso::Tcp4 | Gso::Tcp6 => TCP,
            Gso::Udp => UDP,
        };
        let layout = layout(frame)?;
        let payload = layout.payload_start(frame)?;
        let size = usize::from(offload.gso_bytes);
        (layout.protocol == protocol && size > 0).then_some(Self {
            layout,
            payload,
            end: layout.end(),
            size,
        })
    }

    /// Fixes headers and checksums of a segment; `done` payload bytes came before it.
    fn finish(&self, segment: &mut [u8], done: usize, is_last: bool, offload: &Offload) {
        let Some(transport) = self.layout.transport else {
            return;
        };
        let length = segment.len() - self.layout.ip;
        self.write_ip(segment, length, done);
        if self.layout.protocol == TCP {
            advance_tcp(segment, transport, done, is_last);
        } else {
            write_u16(segment, transport + 4, u16_of(segment.len() - transport));
        }
        let layout = Layout { ip_bytes: u32::try_from(length).unwrap_or(u32::MAX), ..self.layout };
        if offload.needs_checksum {
            // The device adds the rest; its start value contains the length of this segment.
            if let Some(place) = crate::frame::place(&layout) {
                let seed = crate::frame::pseudo_header(segment, &layout, segment.len() - transport);
                write_u16(segment, place, fold(seed));
            }
        } else {
            crate::frame::write_transport(segment, &layout);
        }
    }

    fn write_ip(&self, segment: &mut [u8], length: usize, done: usize) {
        let ip = self.layout.ip;
        match self.layout.family {
            Family::Ipv4 => {
                let number = u16_of(done / self.size);
                let id = read_u16(segment, ip + 4).unwrap_or(0);
                write_u16(segment, ip + 2, u16_of(length));
                write_u16(segment, ip + 4, id.wrapping_add(number));
                crate::frame::write_ip(segment, &self.layout);
            }
            Family::Ipv6 => write_u16(segment, ip + 4, u16_of(length - 40)),
        }
    }
}

fn advance_tcp(segment: &mut [u8], transport: usize, done: usize, is_last: bool) {
    if let Some(field) = segment.get_mut(transport + 4..transport + 8) {
        let first = u32::from_be_bytes([field[0], field[1], field[2], field[3]]);
        let own = first.wrapping_add(u32::try_from(done).unwrap_or(0));
        field.copy_from_slice(&own.to_be_bytes());
    }
    if let Some(flags) = segment.get_mut(transport + 13) {
        if !is_last {
            *flags &= !(FIN | PSH);
        }
        if done > 0 {
            *flags &= !CWR;
        }
    }
}

/// Segments are shorter than 64 KiB.
fn u16_of(length: usize) -> u16 {
    u16::try_from(length).unwrap_or(u16::MAX)
}

// Changed bits of a packet: ECN marks and errors.

/// Sets the ECN codepoint to CE (RFC 3168) and updates an IPv4 header's checksum. Returns false if
/// it is not an ECN-capable IP packet.
pub fn mark_ce(frame: &mut [u8]) -> bool {
    let Some(layout) = layout(frame).filter(|layout| layout.ecn.is_capable()) else {
        return false;
    };
    // The traffic class spans the first two bytes of IPv6 and is the second byte of IPv4.
    let bits = match layout.family {
        Family::Ipv4 => 0x0003,
        Family::Ipv6 => 0x0030,
    };
    let Some(old) = read_u16(frame, layout.ip) else {
        return false;
    };
    write_u16(frame, layout.ip, old | bits);
    if layout.family == Family::Ipv4 {
        crate::frame::update(frame, layout.ip + 10, old, old | bits);
    }
    true
}

/// Flips one bit.
///
/// On the wire any bit from the IP header on may flip after the checksums were completed, which can
/// detect it. In the payload a bit of the TCP or UDP payload flips, which only their checksum can
/// detect. In the host such a bit flips too, and the checksums are recomputed, so that nothing can
/// detect it. In these two cases a bit of the headers stands for one of the payload, modulo its
/// length, since a wrong address or port would be noticed without a checksum. A packet without such
/// a payload, or a fragment, is unchanged. A bit past the packet's end counts modulo its length.
pub fn corrupt(frame: &mut [u8], offload: &mut Offload, corruption: Corruption) {
    crate::frame::complete_checksum(frame, offload);
    let Some(layout) = layout(frame) else { return };
    match corruption.place {
        CorruptionPlace::Wire => {
            let byte = (corruption.bit / 8).checked_rem(layout.ip_bytes).unwrap_or(0) as usize;
            flip(frame, layout.ip + byte, corruption.bit);
        }
        CorruptionPlace::Payload | CorruptionPlace::Host => {
            let is_done = corrupt_payload(frame, &layout, corruption.bit);
            if is_done && corruption.place == CorruptionPlace::Host {
                crate::frame::write_transport(frame, &layout);
            }
        }
    }
}

/// Returns false if there is no payload to damage.
fn corrupt_payload(frame: &mut [u8], layout: &Layout, bit: u32) -> bool {
    let Some(payload) = layout.payload_start(frame) else {
        return false;
    };
    let headers = payload - layout.ip;
    let length = layout.end() - payload;
    let byte = (bit / 8) as usize;
    // A bit in the payload keeps its place.
    let byte = byte.checked_sub(headers).unwrap_or(byte);
    let Some(byte) = byte.checked_rem(length) else {
        return false;
    };
    flip(frame, payload + byte, bit);
    true
}

/// Flips a bit of the byte at `at`; `bit` counts from the most significant one.
fn flip(frame: &mut [u8], at: usize, bit: u32) {
    if let Some(byte) = frame.get_mut(at) {
        *byte ^= 0x80 >> (bit % 8);
    }
}
