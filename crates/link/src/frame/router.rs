//! What a router does with a packet too big for its next link.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::checksum::{self, checksum};
use super::layout::{Layout, layout};
use super::{ETHERNET, ICMP, ICMPV6, read_u16, write_u16};
use linerate_units::Family;
use linerate_units::checksum::{fold, sum};

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
        checksum::write_ip(&mut fragment, &layout);
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
