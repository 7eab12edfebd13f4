//! The Internet checksum (RFC 1071): computed, completed, updated (RFC 1624).

use super::layout::{Gso, Layout, Offload, layout};
use super::{TCP, UDP, read_u16, write_u16};
use linerate_units::Family;
use linerate_units::checksum::{fold, sum};

/// The checksum of bytes whose checksum field is zero.
pub(super) fn checksum(bytes: &[u8]) -> u16 {
    !fold(sum(bytes))
}

/// Recomputes the checksum of an IPv4 header; does nothing for IPv6.
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

/// The sum of the pseudo header for `length` bytes of transport.
pub(super) fn pseudo_header(frame: &[u8], layout: &Layout, length: usize) -> u64 {
    let addresses = match layout.family {
        Family::Ipv4 => layout.ip + 12..layout.ip + 20,
        Family::Ipv6 => layout.ip + 8..layout.ip + 40,
    };
    let addresses = frame.get(addresses).map_or(0, sum);
    addresses + length as u64 + u64::from(layout.protocol)
}

/// Position of the checksum of TCP or UDP.
pub(super) fn place(layout: &Layout) -> Option<usize> {
    let transport = layout.transport?;
    match layout.protocol {
        TCP => Some(transport + 16),
        UDP => Some(transport + 6),
        _ => None,
    }
}

/// Recomputes the checksum of TCP or UDP over the whole packet. A UDP checksum of zero is written
/// as 0xffff, since zero means no checksum (RFC 768); a packet without a checksum stays without.
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
pub(super) fn update(frame: &mut [u8], place: usize, old: u16, new: u16) {
    if let Some(current) = read_u16(frame, place) {
        let total = u64::from(!current) + u64::from(!old) + u64::from(new);
        write_u16(frame, place, !fold(total));
    }
}
