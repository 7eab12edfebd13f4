//! What a link does to the bits: ECN marks and errors.

use super::super::packet::{Corruption, CorruptionPlace};
use super::checksum;
use super::layout::{Layout, Offload, layout};
use super::{read_u16, write_u16};
use crate::plan::Family;

/// Sets the ECN codepoint to CE (RFC 3168), and an IPv4 header's checksum with it. False for what is no ECN-capable
/// IP packet.
pub fn mark_ce(frame: &mut [u8]) -> bool {
    let Some(layout) = layout(frame).filter(|layout| layout.ecn.is_capable()) else {
        return false;
    };
    // The traffic class lies across the first two bytes of IPv6, and is the second of IPv4.
    let bits = match layout.family {
        Family::Ipv4 => 0x0003,
        Family::Ipv6 => 0x0030,
    };
    let Some(old) = read_u16(frame, layout.ip) else {
        return false;
    };
    write_u16(frame, layout.ip, old | bits);
    if layout.family == Family::Ipv4 {
        checksum::update(frame, layout.ip + 10, old, old | bits);
    }
    true
}

/// Flips one bit.
///
/// On the wire any bit from the IP header on may flip, after the checksums were completed, and they can tell. In
/// the host a bit of the payload of TCP or UDP flips (the bit is taken modulo the payload's length; headers in a
/// host are not what a checksum protects), and the checksums are made right again, so that nothing can tell. A
/// packet without such a payload stays as it is.
pub fn corrupt(frame: &mut [u8], offload: &mut Offload, corruption: Corruption) {
    checksum::complete_checksum(frame, offload);
    let Some(layout) = layout(frame) else { return };
    match corruption.place {
        CorruptionPlace::Wire => flip(frame, layout.ip, layout.ip_bytes as usize, corruption.bit),
        CorruptionPlace::Host => corrupt_payload(frame, &layout, corruption.bit),
    }
}

fn corrupt_payload(frame: &mut [u8], layout: &Layout, bit: u32) {
    let Some(payload) = layout.payload(frame) else {
        return;
    };
    let length = layout.end().saturating_sub(payload);
    if length > 0 {
        flip(frame, payload, length, bit);
        checksum::write_transport(frame, layout);
    }
}

/// Flips a bit of the `length` bytes from `start` on, counted from the most significant one of the first byte.
fn flip(frame: &mut [u8], start: usize, length: usize, bit: u32) {
    let index = (bit as usize / 8).checked_rem(length).unwrap_or(0);
    if let Some(byte) = frame.get_mut(start + index) {
        *byte ^= 0x80 >> (bit % 8);
    }
}
