//! Changes bits of a packet: ECN marks and errors.

use super::super::packet::{Corruption, CorruptionPlace};
use super::checksum;
use super::layout::{Layout, Offload, layout};
use super::{read_u16, write_u16};
use linerate_units::Family;

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
        checksum::update(frame, layout.ip + 10, old, old | bits);
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
    checksum::complete_checksum(frame, offload);
    let Some(layout) = layout(frame) else { return };
    match corruption.place {
        CorruptionPlace::Wire => {
            let byte = (corruption.bit / 8).checked_rem(layout.ip_bytes).unwrap_or(0) as usize;
            flip(frame, layout.ip + byte, corruption.bit);
        }
        CorruptionPlace::Payload | CorruptionPlace::Host => {
            let is_done = corrupt_payload(frame, &layout, corruption.bit);
            if is_done && corruption.place == CorruptionPlace::Host {
                checksum::write_transport(frame, &layout);
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
