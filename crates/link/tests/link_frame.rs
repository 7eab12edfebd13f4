//! What is done to the bytes of frames: headers, segments, marks and damage.

use crate::frame_support::{Parts, TCP, UDP, header_sum, parts, slow_sum, transport_sum};
use linerate_link::frame::{
    Cutter, Gso, Offload, complete_checksum, corrupt, layout, mark_ce, mark_verified, segment_count,
};
use linerate_link::{Corruption, CorruptionPlace};
use linerate_units::{Ecn, Family};
use proptest::prelude::*;

fn segments(frame: &[u8], offload: Offload) -> Vec<(Vec<u8>, Offload)> {
    let (mut cutter, mut buffer, mut all) = (Cutter::new(frame, offload), Vec::new(), Vec::new());
    while let Some(offload) = cutter.next_into(&mut buffer) {
        all.push((buffer.clone(), offload));
    }
    all
}

/// Where a packet ends in its frame by its own account.
fn end(frame: &[u8]) -> usize {
    let layout = layout(frame).expect("an IP packet");
    layout.ip + layout.ip_bytes as usize
}

fn checksums_are_right(frame: &[u8]) -> bool {
    let transport = layout(frame).and_then(|layout| layout.transport);
    let transport = transport.expect("a packet with a transport");
    (frame[14] >> 4 == 6 || header_sum(frame) == 0xffff)
        && transport_sum(frame, transport, end(frame)) == 0xffff
}

/// A packet of TCP over IPv4.
fn packet(payload: usize) -> Parts {
    Parts {
        is_v6: false,
        protocol: TCP,
        ecn: 2,
        flags: 0x99,
        sequence: u32::MAX - 5,
        id: u16::MAX,
        ip_options: Vec::new(),
        tcp_options: vec![1; 12],
        payload: vec![7; payload],
        padding: 0,
    }
}

#[test]
fn what_is_no_ip_packet_has_no_layout() {
    let mut arp = packet(0).frame();
    arp[12..14].copy_from_slice(&[8, 6]);
    assert_eq!(layout(&arp), None);
    let mut short_header = packet(0).frame();
    short_header[14] = 0x44;
    assert_eq!(layout(&short_header), None);
    assert_eq!(layout(&packet(0).frame()[..33]), None);
    assert_eq!(layout(&[]), None);
}

#[test]
fn a_fragment_has_no_transport() {
    let mut v4 = packet(100).frame();
    v4[20] = 0x20;
    assert_eq!(layout(&v4).map(|l| l.transport), Some(None));
    let mut v6 = Parts { is_v6: true, ip_options: vec![0; 8], ..packet(100) }.frame();
    v6[20] = 44;
    assert_eq!(layout(&v6).map(|l| (l.transport, l.protocol)), Some((None, 44)));
}

#[test]
fn a_frame_too_long_for_its_length_field_is_cut_all_the_same() {
    for is_v6 in [false, true] {
        let parts = Parts { is_v6, payload: vec![3; 150_000], ..packet(0) };
        let (mut frame, offload) = parts.to_be_cut(1448, true);
        let field = if is_v6 { 18 } else { 16 };
        frame[field..field + 2].fill(0);
        let segments = segments(&frame, offload);
        assert_eq!(segments.len(), 150_000usize.div_ceil(1448));
        for (mut segment, mut offload) in segments {
            complete_checksum(&mut segment, &mut offload);
            assert!(checksums_are_right(&segment));
        }
    }
}

#[test]
fn numbers_wrap_around_from_segment_to_segment() {
    let (frame, offload) = packet(25).to_be_cut(10, true);
    let seen: Vec<_> = segments(&frame, offload)
        .iter()
        .map(|(s, _)| {
            (
                u16::from_be_bytes([s[18], s[19]]),
                u32::from_be_bytes([s[38], s[39], s[40], s[41]]),
                s[47],
            )
        })
        .collect();
    // CWR in the first, FIN and PSH in the last (0x99 is CWR, ACK, PSH, FIN).
    assert_eq!(seen, [(u16::MAX, u32::MAX - 5, 0x90), (0, 4, 0x10), (1, 14, 0x19)]);
}

/// The kernel refuses a frame that says so and has nothing to cut.
#[test]
fn a_segment_says_nothing_of_how_the_window_was_reduced() {
    let (frame, offload) = packet(25).to_be_cut(10, true);
    let offload = Offload { ecn: true, ..offload };
    let segments = segments(&frame, offload);
    assert_eq!(segments.len(), 3);
    assert!(segments.iter().all(|(_, offload)| !offload.ecn));
}

#[test]
fn what_cannot_be_cut_stays_as_it_is() {
    let (frame, offload) = packet(100).to_be_cut(10, true);
    for offload in [
        Offload { gso: Gso::Udp, ..offload },
        Offload { gso: Gso::None, ..offload },
        Offload { gso_bytes: 0, ..offload },
    ] {
        assert_eq!(segments(&frame, offload), [(frame.clone(), offload)]);
        assert_eq!(segment_count(&frame, offload), 1);
    }
}

#[test]
fn a_checksum_that_cannot_be_completed_is_still_needed() {
    let (frame, offload) = packet(100).partial();
    let offloads = [
        Offload { checksum_start: 65_535, ..offload },
        Offload { checksum_offset: 65_535, ..offload },
        Offload { gso: Gso::Tcp4, gso_bytes: 10, ..offload },
    ];
    for before in offloads {
        let (mut after, mut bytes) = (before, frame.clone());
        complete_checksum(&mut bytes, &mut after);
        assert_eq!((after, &bytes), (before, &frame));
    }
}

#[test]
fn a_udp_checksum_that_comes_to_zero_is_written_as_ones() {
    // One word of all brings the sum to 0xffff, whose complement is zero.
    let parts =
        |word: u16| Parts { protocol: UDP, payload: word.to_be_bytes().to_vec(), ..packet(0) };
    let word = (0..=u16::MAX).find(|word| parts(*word).frame()[40..42] == [0xff, 0xff]);
    let (mut frame, mut offload) = parts(word.expect("there is one")).partial();
    complete_checksum(&mut frame, &mut offload);
    assert_eq!(frame[40..42], [0xff, 0xff]);
    assert_eq!(transport_sum(&frame, 34, end(&frame)), 0xffff);
}

#[test]
fn a_udp_packet_without_a_checksum_gets_none() {
    let mut frame = Parts { protocol: UDP, ..packet(100) }.frame();
    frame[40..42].fill(0);
    let corruption = Corruption { bit: 500, place: CorruptionPlace::Host };
    let before = frame.clone();
    corrupt(&mut frame, &mut Offload::default(), corruption);
    assert_ne!(frame, before);
    assert_eq!(frame[40..42], [0, 0]);
}

#[test]
fn nothing_is_marked_as_verified_that_no_checksum_covers() {
    let mut none = Parts { protocol: UDP, ..packet(100) }.frame();
    none[40..42].fill(0);
    let mut fragment = packet(100).frame();
    fragment[20] = 0x20;
    for frame in [none, fragment, vec![0; 13]] {
        let (mut marked, mut offload) = (frame.clone(), Offload::default());
        mark_verified(&mut marked, &mut offload);
        assert_eq!((marked, offload), (frame, Offload::default()));
    }
}

#[test]
fn damage_to_an_ipv4_header_is_seen_by_its_checksum() {
    for bit in 0..160 {
        let mut frame = packet(100).frame();
        let place = CorruptionPlace::Wire;
        corrupt(&mut frame, &mut Offload::default(), Corruption { bit, place });
        assert_ne!(slow_sum(&frame[14..34]), 0xffff, "bit {bit}");
    }
}

proptest! {
    #[test]
    fn a_layout_is_that_of_the_parts(parts in parts(3000)) {
        let frame = parts.frame();
        let layout = layout(&frame).expect("an IP packet");
        prop_assert_eq!(layout.family == Family::Ipv6, parts.is_v6);
        prop_assert_eq!((layout.ip, layout.protocol), (14, parts.protocol));
        prop_assert_eq!(layout.transport, Some(14 + parts.ip_header()));
        prop_assert_eq!(layout.ip_bytes as usize, frame.len() - parts.padding - 14);
        let ecn = [Ecn::NotEct, Ecn::Ect1, Ecn::Ect0, Ecn::Ce][usize::from(parts.ecn)];
        prop_assert_eq!(layout.ecn, ecn);
    }

    #[test]
    fn the_segments_together_are_the_frame(
        parts in parts(9000), size in 1u16..3000, is_partial: bool,
    ) {
        let (frame, offload) = parts.to_be_cut(size, is_partial);
        let segments = segments(&frame, offload);
        prop_assert_eq!(segments.len(), segment_count(&frame, offload) as usize);
        prop_assert_eq!(segments.len(), parts.payload.len().div_ceil(size.into()).max(1));
        let mut payload: Vec<u8> = Vec::new();
        for (number, (segment, left)) in segments.iter().enumerate() {
            prop_assert_eq!((left.gso, left.gso_bytes, left.needs_checksum),
                (Gso::None, 0, is_partial));
            prop_assert_eq!(end(segment), segment.len());
            // The kernel refuses a frame whose headers are said to be longer than all of it.
            prop_assert_eq!(usize::from(left.header_bytes), parts.headers());
            let is_last = number + 1 == segments.len();
            prop_assert!(is_last || segment.len() == parts.headers() + usize::from(size));
            payload.extend(&segment[parts.headers()..]);
            let (mut segment, mut left) = (segment.clone(), *left);
            complete_checksum(&mut segment, &mut left);
            prop_assert!(!left.needs_checksum && checksums_are_right(&segment));
            // What a host would have sent without offload.
            let from = number * usize::from(size);
            let flags =
                parts.flags & !(if is_last { 0 } else { 9 }) & !(if number > 0 { 0x80 } else { 0 });
            let own = Parts {
                payload: segment[parts.headers()..].to_vec(),
                sequence: parts.sequence.wrapping_add(from as u32),
                id: parts.id.wrapping_add(number as u16),
                flags,
                padding: 0,
                ..parts.clone()
            };
            prop_assert_eq!(segment, own.frame());
        }
        prop_assert_eq!(payload, parts.payload);
    }

    #[test]
    fn a_completed_checksum_is_that_of_the_parts(parts in parts(3000)) {
        let (mut frame, mut offload) = parts.partial();
        complete_checksum(&mut frame, &mut offload);
        prop_assert_eq!(&frame, &parts.frame());
        // Nothing is left to complete.
        complete_checksum(&mut frame, &mut offload);
        prop_assert_eq!(&frame, &parts.frame());
    }

    #[test]
    fn a_mark_is_seen_and_the_header_still_right(parts in parts(100)) {
        let mut frame = parts.frame();
        prop_assert_eq!(mark_ce(&mut frame), parts.ecn != 0);
        let expected = if parts.ecn == 0 { Ecn::NotEct } else { Ecn::Ce };
        prop_assert_eq!(layout(&frame).map(|layout| layout.ecn), Some(expected));
        prop_assert!(checksums_are_right(&frame));
        let same = Parts { ecn: if parts.ecn == 0 { 0 } else { 3 }, ..parts };
        prop_assert_eq!(frame, same.frame());
    }

    #[test]
    fn damage_on_the_wire_is_one_bit_that_the_checksums_see(
        parts in parts(2000), bit: u32, is_partial: bool,
    ) {
        let (mut frame, mut offload) =
            if is_partial { parts.partial() } else { (parts.frame(), Offload::default()) };
        // From the transport header on, so that the layout stands.
        let transport = (14 + parts.ip_header()) as u32;
        let bits = (parts.transport_header() + parts.payload.len()) as u32 * 8;
        let bit = (transport - 14) * 8 + bit % bits;
        corrupt(&mut frame, &mut offload, Corruption { bit, place: CorruptionPlace::Wire });
        let changed = flipped(&frame, &parts.frame());
        prop_assert_eq!(changed, [14 * 8 + bit as usize]);
        prop_assert!(transport_sum(&frame, transport as usize, end(&frame)) != 0xffff);
    }

    #[test]
    fn damage_in_the_payload_is_one_bit_of_it_that_the_checksum_sees(
        parts in parts(2000), bit: u32, is_partial: bool,
    ) {
        let (mut frame, mut offload) =
            if is_partial { parts.partial() } else { (parts.frame(), Offload::default()) };
        let bit = bit % (layout(&frame).expect("an IP packet").ip_bytes * 8);
        corrupt(&mut frame, &mut offload, Corruption { bit, place: CorruptionPlace::Payload });
        let headers = parts.headers();
        let changed = flipped(&frame, &parts.frame());
        prop_assert_eq!(changed.len(), usize::from(!parts.payload.is_empty()));
        prop_assert!(changed.iter().all(|bit| *bit >= headers * 8));
        prop_assert_eq!(checksums_are_right(&frame), parts.payload.is_empty());
    }

    #[test]
    fn what_is_marked_as_verified_has_the_checksum_of_the_bytes_that_are_there(
        parts in parts(2000), bit: u32, is_partial: bool,
    ) {
        let (mut frame, mut offload) =
            if is_partial { parts.partial() } else { (parts.frame(), Offload::default()) };
        let bit = bit % (layout(&frame).expect("an IP packet").ip_bytes * 8);
        corrupt(&mut frame, &mut offload, Corruption { bit, place: CorruptionPlace::Payload });
        mark_verified(&mut frame, &mut offload);
        prop_assert!(offload.needs_checksum);
        prop_assert_eq!(
            usize::from(offload.checksum_start + offload.checksum_offset), parts.checksum_place()
        );
        complete_checksum(&mut frame, &mut offload);
        prop_assert!(checksums_are_right(&frame));
    }

    #[test]
    fn damage_in_the_host_is_one_bit_of_the_payload_that_no_checksum_sees(
        parts in parts(2000), bit: u32, is_partial: bool,
    ) {
        let (mut frame, mut offload) =
            if is_partial { parts.partial() } else { (parts.frame(), Offload::default()) };
        let bit = bit % (layout(&frame).expect("an IP packet").ip_bytes * 8);
        corrupt(&mut frame, &mut offload, Corruption { bit, place: CorruptionPlace::Host });
        prop_assert!(checksums_are_right(&frame));
        let (headers, whole) = (parts.headers(), parts.frame());
        let changed = flipped(&frame[headers..], &whole[headers..]);
        prop_assert_eq!(changed.len(), usize::from(!parts.payload.is_empty()));
        if bit as usize / 8 + 14 >= headers {
            prop_assert_eq!(changed, [bit as usize + 14 * 8 - headers * 8]);
        }
    }
}

/// Indices of the bits that differ.
fn flipped(a: &[u8], b: &[u8]) -> Vec<usize> {
    assert_eq!(a.len(), b.len());
    (0..a.len() * 8).filter(|bit| (a[bit / 8] ^ b[bit / 8]) & (0x80 >> (bit % 8)) != 0).collect()
}
