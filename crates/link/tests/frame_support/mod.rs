//! Ethernet frames built from their parts, and a checksum that shares nothing with the one under
//! test.
#![allow(dead_code, reason = "each test takes what it needs")]

use linerate_link::frame::{Gso, Offload};
use proptest::prelude::*;

pub(crate) const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;

/// A packet of TCP or UDP in an Ethernet frame, with checksums that are right.
#[derive(Debug, Clone)]
pub(crate) struct Parts {
    pub(crate) is_v6: bool,
    pub(crate) protocol: u8,
    pub(crate) ecn: u8,
    pub(crate) flags: u8,
    pub(crate) sequence: u32,
    pub(crate) id: u16,
    pub(crate) ip_options: Vec<u8>,
    pub(crate) tcp_options: Vec<u8>,
    pub(crate) payload: Vec<u8>,
    pub(crate) padding: usize,
}

impl Parts {
    pub(crate) fn ip_header(&self) -> usize {
        if self.is_v6 { 40 + self.ip_options.len() } else { 20 + self.ip_options.len() }
    }

    pub(crate) fn transport_header(&self) -> usize {
        if self.protocol == TCP { 20 + self.tcp_options.len() } else { 8 }
    }

    pub(crate) fn headers(&self) -> usize {
        14 + self.ip_header() + self.transport_header()
    }

    pub(crate) fn frame(&self) -> Vec<u8> {
        let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
        let length = self.transport_header() + self.payload.len();
        if self.is_v6 {
            frame.extend([0x86, 0xdd, 0x60, self.ecn << 4, 0, 0]);
            frame.extend(((length + self.ip_options.len()) as u16).to_be_bytes());
            // Destination options, if there are any.
            let next = if self.ip_options.is_empty() { self.protocol } else { 60 };
            frame.extend([next, 64]);
            frame.extend([0xfd; 16]);
            frame.extend([0xfc; 16]);
            let at = frame.len();
            frame.extend(&self.ip_options);
            if !self.ip_options.is_empty() {
                frame[at] = self.protocol;
                frame[at + 1] = (self.ip_options.len() / 8 - 1) as u8;
            }
        } else {
            frame.extend([8, 0, 0x40 | (self.ip_header() / 4) as u8, self.ecn]);
            frame.extend(((self.ip_header() + length) as u16).to_be_bytes());
            frame.extend(self.id.to_be_bytes());
            frame.extend([0x40, 0, 64, self.protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
            frame.extend(&self.ip_options);
            let header = !slow_sum(&frame[14..]);
            frame[24..26].copy_from_slice(&header.to_be_bytes());
        }
        let transport = frame.len();
        frame.extend([0x12, 0x34, 0x56, 0x78]);
        if self.protocol == TCP {
            frame.extend(self.sequence.to_be_bytes());
            frame.extend([0, 0, 0, 9, ((self.transport_header() / 4) as u8) << 4, self.flags]);
            frame.extend([1, 0, 0, 0, 0, 0]);
            frame.extend(&self.tcp_options);
        } else {
            frame.extend((length as u16).to_be_bytes());
            frame.extend([0, 0]);
        }
        frame.extend(&self.payload);
        let place = self.checksum_place();
        let sum = match !transport_sum(&frame, transport, frame.len()) {
            0 if self.protocol == UDP => 0xffff,
            sum => sum,
        };
        frame[place..place + 2].copy_from_slice(&sum.to_be_bytes());
        frame.resize(frame.len() + self.padding, 0xaa);
        frame
    }

    pub(crate) fn checksum_place(&self) -> usize {
        14 + self.ip_header() + if self.protocol == TCP { 16 } else { 6 }
    }

    /// The frame as a host hands it to a device that computes the checksum.
    pub(crate) fn partial(&self) -> (Vec<u8>, Offload) {
        let (mut frame, place) = (self.frame(), self.checksum_place());
        let transport = 14 + self.ip_header();
        let length = self.transport_header() + self.payload.len();
        let seed = slow_sum(&pseudo(&frame, self.protocol, length));
        frame[place..place + 2].copy_from_slice(&seed.to_be_bytes());
        let offload = Offload {
            needs_checksum: true,
            checksum_start: transport as u16,
            checksum_offset: (place - transport) as u16,
            ..Offload::default()
        };
        (frame, offload)
    }

    /// As [`Self::partial`], or with its checksum made, and to be cut to `size` bytes of payload.
    pub(crate) fn to_be_cut(&self, size: u16, is_partial: bool) -> (Vec<u8>, Offload) {
        let (frame, offload) =
            if is_partial { self.partial() } else { (self.frame(), Offload::default()) };
        let gso = match (self.protocol, self.is_v6) {
            (UDP, _) => Gso::Udp,
            (_, false) => Gso::Tcp4,
            (_, true) => Gso::Tcp6,
        };
        let header_bytes = self.headers() as u16;
        (frame, Offload { gso, gso_bytes: size, header_bytes, ..offload })
    }
}

/// RFC 1071, word by word.
pub(crate) fn slow_sum(bytes: &[u8]) -> u16 {
    let mut sum = 0u32;
    for pair in bytes.chunks(2) {
        sum += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

fn pseudo(frame: &[u8], protocol: u8, length: usize) -> Vec<u8> {
    let addresses = if frame[14] >> 4 == 4 { &frame[26..34] } else { &frame[22..54] };
    let mut pseudo = addresses.to_vec();
    pseudo.extend((length as u32).to_be_bytes());
    pseudo.extend([0, 0, 0, protocol]);
    pseudo
}

/// 0xffff for a TCP or UDP packet whose checksum is right, which lies at `transport..end`.
pub(crate) fn transport_sum(frame: &[u8], transport: usize, end: usize) -> u16 {
    let protocol = match (frame[14] >> 4, transport) {
        (4, _) => frame[23],
        (_, 54) => frame[20],
        _ => frame[54],
    };
    let mut all = pseudo(frame, protocol, end - transport);
    all.extend(&frame[transport..end]);
    slow_sum(&all)
}

/// 0xffff for an IPv4 header that is right.
pub(crate) fn header_sum(frame: &[u8]) -> u16 {
    slow_sum(&frame[14..14 + usize::from(frame[14] & 15) * 4])
}

/// TCP or UDP over IPv4 or IPv6, with and without options, and up to `most` bytes of payload.
pub(crate) fn parts(most: usize) -> impl Strategy<Value = Parts> {
    let shape = (any::<bool>(), any::<bool>(), 0u8..4, any::<u8>(), 0usize..3, 0usize..4);
    let numbers = (any::<u32>(), any::<u16>(), 0usize..20);
    (shape, numbers, prop::collection::vec(any::<u8>(), 0..most)).prop_map(
        |(
            (is_v6, is_tcp, ecn, flags, ip_options, tcp_options),
            (sequence, id, padding),
            payload,
        )| Parts {
            is_v6,
            protocol: if is_tcp { TCP } else { UDP },
            ecn,
            flags,
            sequence,
            id,
            ip_options: vec![1; ip_options * 8],
            tcp_options: vec![1; tcp_options * 4],
            payload,
            padding,
        },
    )
}
