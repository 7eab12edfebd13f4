//! The Internet checksum (RFC 1071): computed, completed, updated (RFC 1624).

use super::layout::{Gso, Layout, Offload, layout};
use super::{TCP, UDP, read_u16, write_u16};
use linerate_units::Family;
use linerate_units::checksum::{fold, sum};

/// The checksum field for bytes that hold zero there.
pub(super) fn checksum(bytes: &[u8]) -> u16 {
    !fold(sum(bytes))
}

/// Writes the checksum of an IPv4 header anew; nothing for IPv6.
pub(super) fn write_ip(frame: &mut [u8], layout: &Layout) {
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

/// The sum of the pseudo header of a packet whose transport has `length` bytes.
pub(super) fn pseudo_header(frame: &[u8], layout: &Layout, length: usize) -> u64 {
    let addresses = match layout.family {
        Family::Ipv4 => layout.ip + 12..layout.ip + 20,
        Family::Ipv6 => layout.ip + 8..layout.ip + 40,
    };
    let addresses = frame.get(addresses).map_or(0, sum);
    addresses + length as u64 + u64::from(layout.protocol)
}

/// Where the checksum of a TCP or UDP header lies.
pub(super) fn place(layout: &Layout) -> Option<usize> {
    let transport = layout.transport?;
    match layout.protocol {
        TCP => Some(transport + 16),
        UDP => Some(transport + 6),
        _ => None,
    }
}

/// Writes the checksum of TCP or UDP anew, over all of the packet. A UDP checksum of zero is
/// written as its other zero, since zero means that there is none (RFC 768); a packet that has none
/// gets none.
pub(super) fn write_transport(frame: &mut [u8], layout: &Layout) {
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
    if sum == 0 && protocol == UDP {
        0xffff
    } else {
        sum
    }
}

/// Completes a checksum that was left to the device: the field holds the sum of the pseudo header,
/// and the rest is added. Nothing where nothing was left, and nothing where it cannot be done: to
/// what is no IP packet, to a frame that is yet to be cut, or if the offload points past the
/// packet; `needs_checksum` then stays.
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

/// Marks a packet of TCP or UDP as one whose checksum need not be verified, by leaving the checksum
/// to the device again: the field holds the sum of the pseudo header alone. A Linux receiver takes
/// such a frame from its own machine as good, whatever its bytes are (`skb_csum_unnecessary`,
/// include/linux/skbuff.h), as it takes one that a network card has verified. (The flag that says
/// so, VIRTIO_NET_HDR_F_DATA_VALID, is heard from virtio's own devices, and not from packet
/// sockets: measured on Linux 6.18.) Fragments, other transports and UDP without a checksum stay as
/// they are.
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

/// Corrects the checksum at `place` for a 16-bit word that changed: HC' = ~(~HC + ~m + m'), RFC
/// 1624.
pub(super) fn update(frame: &mut [u8], place: usize, old: u16, new: u16) {
    if let Some(current) = read_u16(frame, place) {
        let total = u64::from(!current) + u64::from(!old) + u64::from(new);
        write_u16(frame, place, !fold(total));
    }
}
