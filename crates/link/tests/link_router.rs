//! What routers do with packets that are too big: answers and fragments.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::frame_support::{Parts, UDP, header_sum, parts, slow_sum};
use linerate_link::frame::{RouterAddresses, fragments, layout, too_big};
use linerate_units::Family;
use proptest::prelude::*;

const ROUTER: RouterAddresses = RouterAddresses {
    v4: Some(Ipv4Addr::new(192, 0, 2, 1)),
    v6: Some(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1)),
};
const ICMP: u8 = 1;
const ICMPV6: u8 = 58;

fn packet(is_v6: bool, protocol: u8, payload: usize) -> Parts {
    Parts {
        is_v6,
        protocol,
        ecn: 0,
        flags: 0,
        sequence: 0,
        id: 77,
        ip_options: Vec::new(),
        tcp_options: Vec::new(),
        payload: (0..payload).map(|i| i as u8).collect(),
        padding: 0,
    }
}

fn is_answered(frame: &[u8]) -> bool {
    too_big(frame, &ROUTER, 1280).is_some()
}

fn without_df(parts: &Parts) -> Vec<u8> {
    let mut frame = parts.frame();
    frame[20] = 0;
    frame[24..26].fill(0);
    let sum = !slow_sum(&frame[14..14 + parts.ip_header()]);
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    frame
}

fn cut(frame: &[u8], mtu: u32) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    fragments(frame, mtu, |fragment| all.push(fragment.to_vec()));
    all
}

#[test]
fn icmp_errors_are_not_answered_but_questions_are() {
    for (is_v6, protocol, kind, expected) in [
        (false, ICMP, 3, false),
        (false, ICMP, 11, false),
        (false, ICMP, 8, true),
        (true, ICMPV6, 2, false),
        (true, ICMPV6, 137, false),
        (true, ICMPV6, 128, true),
    ] {
        let parts = packet(is_v6, protocol, 2000);
        let mut frame = parts.frame();
        frame[14 + parts.ip_header()] = kind;
        assert_eq!(is_answered(&frame), expected, "{protocol} {kind}");
    }
}

#[test]
fn what_is_for_many_or_from_nobody_is_not_answered() {
    let v4 = packet(false, UDP, 2000).frame();
    let v6 = packet(true, UDP, 2000).frame();
    assert!(is_answered(&v4) && is_answered(&v6));
    let changed: [(&[u8], usize, &[u8]); 7] = [
        (&v4, 0, &[0xff; 6]),
        (&v4, 30, &[224, 0, 0, 1]),
        (&v4, 30, &[255; 4]),
        (&v4, 26, &[0; 4]),
        (&v6, 0, &[0x33, 0x33, 0, 0, 0, 1]),
        (&v6, 38, &[0xff, 2]),
        (&v6, 22, &[0; 16]),
    ];
    for (frame, at, bytes) in changed {
        let mut frame = frame.to_vec();
        frame[at..at + bytes.len()].copy_from_slice(bytes);
        assert!(!is_answered(&frame), "{bytes:?} at {at}");
    }
}

#[test]
fn later_fragments_and_what_may_be_fragmented_are_not_answered() {
    let mut fragment = packet(false, UDP, 2000).frame();
    fragment[21] = 100;
    assert!(!is_answered(&fragment));
    assert!(!is_answered(&without_df(&packet(false, UDP, 2000))));
    let nobody = RouterAddresses::default();
    let frame = packet(false, UDP, 2000).frame();
    assert_eq!(too_big(&frame, &nobody, 1280), None);
}

#[test]
fn options_that_are_not_to_be_copied_are_in_the_first_fragment_alone() {
    // A record of the route (7, not copied), a router alert (148, copied), the end.
    let ip_options = vec![7, 3, 4, 148, 4, 0, 0, 0];
    let parts = Parts { ip_options: ip_options.clone(), ..packet(false, UDP, 100) };
    let fragments = cut(&without_df(&parts), 76);
    assert_eq!(fragments[0][34..42], ip_options[..]);
    for fragment in &fragments[1..] {
        assert_eq!(fragment[34..42], [1, 1, 1, 148, 4, 0, 0, 0]);
        assert_eq!(header_sum(fragment), 0xffff);
    }
}

#[test]
fn what_must_not_be_fragmented_is_not() {
    assert!(cut(&packet(false, UDP, 2000).frame(), 576).is_empty());
    assert!(cut(&packet(true, UDP, 2000).frame(), 576).is_empty());
    assert!(cut(&without_df(&packet(false, UDP, 2000)), 27).is_empty());
}

proptest! {
    #[test]
    fn an_answer_goes_to_the_sender_and_quotes_the_packet(
        parts in parts(3000), mtu in 68u32..9000,
    ) {
        let frame = parts.frame();
        let answer = too_big(&frame, &ROUTER, mtu).expect("an answer");
        prop_assert_eq!((&answer[..6], &answer[6..12]), (&frame[6..12], &frame[..6]));
        let layout = layout(&answer).expect("an IP packet");
        prop_assert_eq!(layout.ip_bytes as usize + 14, answer.len());
        let icmp = &answer[layout.transport.expect("a transport")..];
        let most = match layout.family {
            Family::Ipv4 => {
                prop_assert_eq!((layout.protocol, header_sum(&answer), slow_sum(icmp)),
                    (ICMP, 0xffff, 0xffff));
                prop_assert_eq!((&answer[26..30], &answer[30..34]),
                    (&[192, 0, 2, 1][..], &frame[26..30]));
                prop_assert_eq!((&icmp[..2], &icmp[4..8]), (&[3, 4][..], &mtu.to_be_bytes()[..]));
                548
            }
            Family::Ipv6 => {
                let mut all = answer[22..54].to_vec();
                all.extend([0, 0, (icmp.len() >> 8) as u8, icmp.len() as u8, 0, 0, 0, ICMPV6]);
                all.extend(icmp);
                prop_assert_eq!((layout.protocol, slow_sum(&all)), (ICMPV6, 0xffff));
                prop_assert_eq!(&answer[38..54], &frame[22..38]);
                prop_assert_eq!((&icmp[..2], &icmp[4..8]), (&[2, 0][..], &mtu.to_be_bytes()[..]));
                1232
            }
        };
        let packet = &frame[14..frame.len() - parts.padding];
        prop_assert_eq!(&icmp[8..], &packet[..packet.len().min(most)]);
        // Errors are not answered, or two routers would never end.
        prop_assert_eq!(too_big(&answer, &ROUTER, mtu), None);
    }

    #[test]
    fn fragments_fit_and_make_the_packet_again(parts in parts(5000), mtu in 68u32..1500) {
        let parts = Parts { is_v6: false, ..parts };
        let whole = without_df(&parts);
        let (header, end) = (14 + parts.ip_header(), whole.len() - parts.padding);
        let mut payload: Vec<u8> = Vec::new();
        let fragments = cut(&whole, mtu);
        for (number, fragment) in fragments.iter().enumerate() {
            let layout = layout(fragment).expect("an IP packet");
            prop_assert!(layout.ip_bytes <= mtu && layout.ip_bytes as usize + 14 == fragment.len());
            prop_assert_eq!(header_sum(fragment), 0xffff);
            prop_assert_eq!(&fragment[18..20], &whole[18..20]);
            let flags = u16::from_be_bytes([fragment[20], fragment[21]]);
            prop_assert_eq!(usize::from(flags & 0x1fff) * 8, payload.len());
            prop_assert_eq!(flags & 0x2000 == 0, number + 1 == fragments.len());
            payload.extend(&fragment[header..]);
        }
        prop_assert_eq!(&payload[..], &whole[header..end]);
    }

    #[test]
    fn fragments_of_fragments_are_those_of_the_whole(parts in parts(5000)) {
        let whole = without_df(&Parts { is_v6: false, ..parts });
        let twice: Vec<_> = cut(&whole, 1500).iter()
            .flat_map(|fragment| cut(fragment, 576)).collect();
        let mut bytes: Vec<u8> = Vec::new();
        for fragment in &twice {
            let offset = usize::from(u16::from_be_bytes([fragment[20], fragment[21]]) & 0x1fff) * 8;
            prop_assert_eq!(offset, bytes.len());
            bytes.extend(&fragment[14 + usize::from(fragment[14] & 15) * 4..]);
        }
        let once: usize = cut(&whole, 1500).iter()
            .map(|f| f.len() - 14 - usize::from(f[14] & 15) * 4).sum();
        prop_assert_eq!(bytes.len(), once);
        let more = twice.iter().filter(|fragment| fragment[20] & 0x20 == 0).count();
        prop_assert_eq!(more, 1);
    }
}
