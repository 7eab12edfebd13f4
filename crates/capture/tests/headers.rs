//! Link types, tunnels, fragments and kinds of files: a transfer is the same in each of them.
#![allow(clippy::unwrap_used, reason = "a test says what it expects by panicking")]

mod simulation;

use std::io::{self, Cursor, Read};

use linerate_capture::{Capture, CaptureError, Encapsulation, Flow, follow};
use proptest::prelude::*;
use simulation::{File, Layer, Packet, Transfer, USUAL};

const WHOLE: File = File { snap: 65_535, ..USUAL };

fn packets() -> Vec<Packet> {
    let transfer = Transfer { bytes: 60_000, lost: [9].into(), ..Transfer::default() };
    transfer.run().packets
}

fn read(file: Vec<u8>) -> Result<Capture, CaptureError> {
    follow(Cursor::new(file), 10, |_| true)
}

/// The frames of a file in pcap, with their times in microseconds.
fn frames(file: &[u8]) -> Vec<(u64, Vec<u8>)> {
    let (mut frames, mut rest) = (Vec::new(), &file[24..]);
    while let Some((header, after)) = rest.split_at_checked(16) {
        let [seconds, micros, kept] =
            [0, 4, 8].map(|at| u32::from_le_bytes(header[at..at + 4].try_into().unwrap()));
        let (frame, next) = after.split_at(kept as usize);
        frames.push((u64::from(seconds) * 1_000_000 + u64::from(micros), frame.to_vec()));
        rest = next;
    }
    frames
}

/// A file of this link type, which keeps so many bytes of each frame.
fn file(link: u32, frames: &[(u64, Vec<u8>)], snap: usize) -> Vec<u8> {
    let words = [0xa1b2_c3d4, 0x0004_0002, 0, 0, 65_535, link];
    let mut file = words.map(u32::to_le_bytes).concat();
    for (at, frame) in frames {
        let kept = &frame[..frame.len().min(snap)];
        let lengths = [kept.len(), frame.len()].map(|length| length as u32);
        let times = [at / 1_000_000, at % 1_000_000].map(|part| part as u32);
        file.extend([times, lengths].concat().into_iter().flat_map(u32::to_le_bytes));
        file.extend(kept);
    }
    file
}

/// What of a connection does not depend on the headers before it.
fn same(capture: &Capture) -> Vec<Flow> {
    let plain = |flow: &Flow| Flow { inside: Encapsulation::default(), ..flow.clone() };
    capture.flows.iter().map(plain).collect()
}

fn ether(kind: u16, inner: &[u8]) -> Vec<u8> {
    [&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2], &kind.to_be_bytes()[..], inner].concat()
}

fn ipv4(protocol: u8, inner: &[u8]) -> Vec<u8> {
    let length = (inner.len() as u16 + 20).to_be_bytes();
    let header = [0x45, 0, length[0], length[1], 0, 7, 0, 0, 64, protocol, 0, 0];
    [&header, &[198, 51, 100, 1, 198, 51, 100, 2][..], inner].concat()
}

fn ipv6(protocol: u8, inner: &[u8]) -> Vec<u8> {
    let length = (inner.len() as u16).to_be_bytes();
    [&[0x60, 0, 0, 0, length[0], length[1], protocol, 64], &[0x20; 32][..], inner].concat()
}

fn udp(port: u16, inner: &[u8]) -> Vec<u8> {
    let length = (inner.len() as u16 + 8).to_be_bytes();
    [&[0xc0, 1], &port.to_be_bytes()[..], &length, &[0, 0], inner].concat()
}

/// IPv4 in Ethernet, with these bytes before what is inside.
fn tunnel(protocol: u8, header: &[u8], inner: &[u8]) -> Vec<u8> {
    ether(0x0800, &ipv4(protocol, &[header, inner].concat()))
}

/// The same by UDP.
fn port(number: u16, header: &[u8], inner: &[u8]) -> Vec<u8> {
    tunnel(17, &[], &udp(number, &[header, inner].concat()))
}

type Wrap = fn(&[u8]) -> Vec<u8>;

/// Names of encapsulations, link type, and what is before each IP packet.
const OF_IP: &[(&[&str], u32, Wrap)] = &[
    (&[], 1, |ip| ether(0x0800, ip)),
    (&[], 1, |ip| ether(0x88a8, &[&[0, 5, 0x81, 0, 0, 6, 8, 0], ip].concat())),
    (&[], 12, <[u8]>::to_vec),
    (&[], 228, <[u8]>::to_vec),
    (&[], 0, |ip| [&[2, 0, 0, 0], ip].concat()),
    (&[], 113, |ip| [&[0; 14], &[8, 0][..], ip].concat()),
    (&["SNAP"], 113, |ip| [&[0; 14], &[0, 4, 0xaa, 0xaa, 3, 0, 0, 0, 8, 0][..], ip].concat()),
    (&["SNAP"], 1, |ip| {
        let length = (ip.len() + 8).min(0x5dc) as u16;
        ether(length, &[&[0xaa, 0xaa, 3, 0, 0, 0, 8, 0], ip].concat())
    }),
    (&[], 1, |ip| ether(0x300, &[&[6, 6, 3], ip].concat())),
    (&["PPPoE"], 1, |ip| ether(0x8864, &[&[0x11, 0, 0, 9, 5, 0xb6, 0, 0x21], ip].concat())),
    (&["PPPoE"], 51, |ip| [&[0x11, 0, 0, 9, 5, 0xb6, 0, 0x21], ip].concat()),
    (&[], 9, |ip| [&[0x21], ip].concat()),
    (&[], 9, |ip| [&[0, 0x21], ip].concat()),
    (&[], 9, |ip| [&[0xff, 3, 0, 0x21], ip].concat()),
    (&[], 50, |ip| [&[0xff, 3, 0, 0x21], ip].concat()),
    (&[], 50, |ip| [&[0x0f, 0, 8, 0], ip].concat()),
    (&[], 166, |ip| [&[1, 3, 0, 0x21], ip].concat()),
    (&[], 204, |ip| [&[0, 0xff, 3, 0, 0x21], ip].concat()),
    (&[], 104, |ip| [&[0x8f, 0, 8, 0], ip].concat()),
    (&[], 205, |ip| [&[1, 0x0f, 0, 8, 0], ip].concat()),
    (&["SNAP"], 10, |ip| [&[0x54], &[2; 12][..], &[0xaa, 0xaa, 3, 0, 0, 0, 8, 0], ip].concat()),
    (&["SNAP"], 100, |ip| [&[0xaa, 0xaa, 3, 0, 0, 0, 8, 0], ip].concat()),
    (&[], 100, |ip| [&[0xfe, 0xfe, 3, 0xcf, 0, 0x21], ip].concat()),
    (&[], 109, |ip| [&[0; 12], ip].concat()),
    (&[], 117, |ip| [&[61], &[2; 63][..], ip].concat()),
    (&["MPLS"], 219, |ip| [&[0, 1, 0x11, 64], ip].concat()),
    (&["MPLS"], 1, |ip| ether(0x8847, &[&[0, 1, 0x10, 64, 0, 2, 0x11, 64], ip].concat())),
    // Attributes: a prefix of the length that NFLOG pads, and the packet.
    (&[], 239, |ip| [&[2, 0, 0, 1, 5, 0, 10, 0, 0, 0, 0, 0, 8, 5, 9, 0], ip].concat()),
    (&[], 239, |ip| [&[2, 0, 0, 1, 0, 5, 0, 10, 0, 0, 0, 0, 5, 8, 0, 9], ip].concat()),
    (&["SNAP"], 105, |ip| {
        let header = [&[8, 1, 0, 0], &[2; 18][..], &[0x10, 0]].concat();
        [&header[..], &[0xaa, 0xaa, 3, 0, 0, 0, 8, 0], ip].concat()
    }),
    // QoS, four addresses, a retry.
    (&["SNAP"], 105, |ip| {
        let header = [&[0x88, 0x0b, 0, 0], &[2; 18][..], &[0x20, 0], &[2; 6], &[5, 0]].concat();
        [&header[..], &[0xaa, 0xaa, 3, 0, 0, 0, 8, 0], ip].concat()
    }),
    (&["SNAP"], 127, |ip| {
        // Time and flags: QoS data behind two bytes of padding, and a checksum at its end.
        let radio = [0, 0, 18, 0, 3, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 0x30, 0];
        let header = [&[0x88, 2, 0, 0], &[2; 18][..], &[0x10, 0, 0, 0, 0, 0]].concat();
        [&radio, &header[..], &[0xaa, 0xaa, 3, 0, 0, 0, 8, 0], ip, &[9; 4]].concat()
    }),
    (&["SNAP"], 127, |ip| {
        // Two bitmaps, and no flags.
        let radio = [0, 0, 12, 0, 0, 0, 0, 0x80, 0, 0, 0, 0];
        let header = [&[8, 2, 0, 0], &[2; 18][..], &[0x10, 0]].concat();
        [&radio, &header[..], &[0xaa, 0xaa, 3, 0, 0, 0, 8, 0], ip].concat()
    }),
    (&[], 192, |ip| [&[0, 0, 8, 0, 12, 0, 0, 0], ip].concat()),
    (&[], 258, |ip| {
        let header = [&[108, 0, 0, 0, 1, 0, 0, 0, 12, 0, 0, 0], &[0; 96][..]].concat();
        [&header, ip].concat()
    }),
    (&["IPIP"], 1, |ip| tunnel(4, &[], ip)),
    (&["4in6"], 101, |ip| ipv6(4, ip)),
    (&["GRE"], 1, |ip| tunnel(47, &[0, 0, 8, 0], ip)),
    (&["GRE"], 1, |ip| tunnel(47, &[0xb0, 0, 8, 0, 1, 2, 0, 0, 0, 0, 0, 7, 0, 0, 0, 1], ip)),
    (&["GRE", "MPLS"], 1, |ip| tunnel(47, &[0, 0, 0x88, 0x47, 0, 1, 0x11, 64], ip)),
    (&["GRE"], 1, |ip| tunnel(47, &[0, 0, 0x88, 0x3e, 0, 0, 0, 0], ip)),
    (&["PPTP"], 1, |ip| {
        tunnel(47, &[0x30, 0x81, 0x88, 0x0b, 0, 9, 0, 1, 0, 0, 0, 1, 0, 0, 0, 2, 0x21], ip)
    }),
    (&["ERSPAN III"], 1, |ip| {
        tunnel(47, &[&[0x10, 0, 0x22, 0xeb, 0, 0, 0, 1], &[0x20; 10][..], &[8, 0]].concat(), ip)
    }),
    (&["GTP-U"], 1, |ip| port(2152, &[0x30, 255, 5, 0, 0, 0, 0, 9], ip)),
    (&["GTP-U"], 1, |ip| {
        let extensions = [0, 0, 0, 0x85, 1, 0x10, 9, 0xc0, 1, 0, 0, 0];
        port(2152, &[&[0x36, 255, 5, 0, 0, 0, 0, 9], &extensions[..]].concat(), ip)
    }),
    (&["Geneve"], 1, |ip| port(6081, &[1, 0, 8, 0, 0, 0, 9, 0, 1, 2, 3, 4], ip)),
    (&["L2TP"], 1, |ip| port(1701, &[0x48, 2, 5, 0, 0, 1, 0, 1, 0, 3, 0, 2, 0, 0x21], ip)),
    (&["L2TP"], 1, |ip| port(1701, &[2, 2, 0, 1, 0, 1, 0, 3, 9, 9, 9, 0xff, 3, 0, 0x21], ip)),
    (&["IPIP", "6in4", "4in6"], 1, |ip| tunnel(4, &[], &ipv4(41, &ipv6(4, ip)))),
];

/// The same for Ethernet frames.
const OF_ETHERNET: &[(&[&str], u32, Wrap)] = &[
    (&["802.1ah"], 1, |frame| ether(0x88e7, &[&[0, 0, 0, 9], frame].concat())),
    (&["VXLAN"], 1, |frame| port(4789, &[8, 0, 0, 0, 0, 0, 9, 0], frame)),
    (&["VXLAN"], 113, |frame| {
        let packet = ipv6(17, &udp(8472, &[&[8, 0, 0, 0, 0, 0, 9, 0], frame].concat()));
        [&[0; 14], &[0x86, 0xdd][..], &packet].concat()
    }),
    (&["Geneve"], 1, |frame| port(6081, &[0, 0, 0x65, 0x58, 0, 0, 9, 0], frame)),
    (&["GRE"], 1, |frame| tunnel(47, &[0x20, 0, 0x65, 0x58, 0, 0, 9, 0], frame)),
    (&["ERSPAN I"], 1, |frame| tunnel(47, &[0, 0, 0x88, 0xbe], frame)),
    (&["ERSPAN II"], 1, |frame| {
        let header = [0x10, 0, 0x88, 0xbe, 0, 0, 0, 1, 0x10, 5, 0, 7, 0, 0, 0, 0];
        tunnel(47, &header, frame)
    }),
    (&["ERSPAN III"], 1, |frame| {
        let header = [&[0x10, 0, 0x22, 0xeb, 0, 0, 0, 1], &[0x20; 10][..], &[0, 1], &[0; 8]];
        tunnel(47, &header.concat(), frame)
    }),
    (&["EtherIP"], 1, |frame| tunnel(97, &[0x30, 0], frame)),
    // A pseudo-wire, with a control word and without.
    (&["MPLS"], 1, |frame| ether(0x8847, &[&[0, 1, 0x11, 64, 0, 0, 0, 3], frame].concat())),
    (&["MPLS"], 1, |frame| ether(0x8848, &[&[0, 1, 0x11, 64], frame].concat())),
    (&["SNAP"], 100, |frame| [&[0xaa, 0xaa, 3, 0, 0x80, 0xc2, 0, 7, 0, 0], frame].concat()),
    (&["VXLAN", "GRE", "MPLS"], 1, |frame| {
        let inner = ether(0x8847, &[&[0, 1, 0x11, 64, 0, 0, 0, 3], frame].concat());
        let gre = tunnel(47, &[0, 0, 0x65, 0x58], &inner);
        port(4789, &[8, 0, 0, 0, 0, 0, 9, 0], &gre)
    }),
];

#[test]
fn a_transfer_is_the_same_behind_each_header() {
    for (layer, table) in [(Layer::Raw, OF_IP), (Layer::Ethernet, OF_ETHERNET)] {
        let packets = packets();
        let kind = File { layer, ..WHOLE };
        let plain = frames(&kind.write_whole(&packets));
        let truth = same(&read(kind.write_whole(&packets)).unwrap());
        for (number, (inside, link, wrap)) in table.iter().enumerate() {
            let wrapped: Vec<_> = plain.iter().map(|(at, frame)| (*at, wrap(frame))).collect();
            let longest = wrapped.iter().map(|(_, frame)| frame.len()).max().unwrap();
            // With the whole payload, and with headers alone.
            for snap in [longest, 240] {
                let capture = read(file(*link, &wrapped, snap))
                    .unwrap_or_else(|error| panic!("{number}: {link} {inside:?}: {error}"));
                assert_eq!(same(&capture), truth, "{number}: {link} {inside:?}");
                assert_eq!(&capture.flows[0].inside.names(), inside, "{number}: {link}");
                assert_eq!(capture.kinds.len(), 1, "{:?}", capture.kinds);
                assert_eq!(capture.kinds[0].inside, capture.flows[0].inside);
            }
        }
    }
}

#[test]
fn ipv6_is_read_where_ipv4_is() {
    let kind = File { layer: Layer::Raw, ipv6: true, ..WHOLE };
    let truth = same(&read(kind.write_whole(&packets())).unwrap());
    let wraps: [(&str, Wrap); 5] = [
        ("6in4", |ip| tunnel(41, &[], ip)),
        ("IPv6 in IPv6", |ip| ether(0x86dd, &ipv6(41, ip))),
        ("GTP-U", |ip| port(2152, &[0x30, 255, 5, 0, 0, 0, 0, 9], ip)),
        ("PPPoE", |ip| ether(0x8864, &[&[0x11, 0, 0, 9, 5, 0xb6, 0, 0x57], ip].concat())),
        ("MPLS", |ip| ether(0x8847, &[&[0, 1, 0x11, 64], ip].concat())),
    ];
    for (name, wrap) in wraps {
        let plain = frames(&kind.write_whole(&packets()));
        let wrapped: Vec<_> = plain.iter().map(|(at, frame)| (*at, wrap(frame))).collect();
        let capture = read(file(1, &wrapped, 65_535)).unwrap();
        assert_eq!(same(&capture), truth, "{name}");
        assert_eq!(capture.flows[0].inside.names(), [name]);
    }
}

#[test]
fn encapsulations_are_read_to_a_limit() {
    let plain = frames(&File { layer: Layer::Raw, ..WHOLE }.write_whole(&packets()));
    let nested = |depth: usize| {
        let wrap = |ip: &Vec<u8>| (0..depth).fold(ip.clone(), |inner, _| ipv4(4, &inner));
        read(file(101, &plain.iter().map(|(at, ip)| (*at, wrap(ip))).collect::<Vec<_>>(), 65_535))
    };
    let capture = nested(Encapsulation::MAX).unwrap();
    assert_eq!(capture.flows[0].inside.names(), ["IPIP"; Encapsulation::MAX]);
    let refused = nested(Encapsulation::MAX + 1).unwrap_err().to_string();
    assert!(refused.contains("too many headers in each other inside IPIP in IPIP"), "{refused}");
    // Tags are no encapsulation, and an endless row of them ends, too.
    let tags = ether(0x8100, &[0, 5, 0x81, 0].repeat(400));
    let refused = read(file(1, &[(0, tags)], 65_535)).unwrap_err().to_string();
    assert!(refused.ends_with("1 too many headers in each other"), "{refused}");
}

#[test]
fn a_refusal_says_what_was_there() {
    let arp = ether(0x0806, &[0, 1, 8, 0, 6, 4, 0, 1]);
    let refused = |link: u32, frames: &[Vec<u8>]| {
        let frames: Vec<_> = frames.iter().map(|frame| (0, frame.clone())).collect();
        read(file(link, &frames, 65_535)).unwrap_err().to_string()
    };
    let vxlan = |frame: &[u8]| port(4789, &[8, 0, 0, 0, 0, 0, 9, 0], frame);
    let cases: [(&str, Vec<Vec<u8>>); 9] = [
        ("3 packets: 2 ARP, 1 LLDP", vec![arp.clone(), ether(0x88cc, &[2, 7]), arp.clone()]),
        ("2 packets: 2 ARP inside VXLAN", vec![vxlan(&arp), vxlan(&arp)]),
        (
            "1 packets: 1 ARP inside GRE in VXLAN",
            vec![vxlan(&tunnel(47, &[0, 0, 0x65, 0x58], &arp))],
        ),
        ("1 packets: 1 UDP port 53 (DNS)", vec![port(53, &[0; 12], &[])]),
        // A tunnel's port alone is no tunnel.
        ("1 packets: 1 UDP", vec![port(4789, &[0; 16], &[])]),
        ("1 packets: 1 IPsec (ESP)", vec![tunnel(50, &[1; 40], &[])]),
        (
            "1 packets: 1 L2TP control",
            vec![port(1701, &[0xc8, 2, 0, 12, 0, 1, 0, 1, 0, 0, 0, 0], &[])],
        ),
        ("1 packets: 1 Ethernet type 0xbeef", vec![ether(0xbeef, &[0; 50])]),
        ("1 packets: 1 damaged", vec![vec![2; 9]]),
    ];
    for (words, frames) in cases {
        let said = refused(1, &frames);
        assert!(said.ends_with(words), "{said}");
    }
    let wireless: [(&str, &[u8]); 4] = [
        ("802.11 management", &[0x80, 0]),
        ("encrypted 802.11", &[8, 0x41]),
        ("802.11 without data", &[0x48, 1]),
        ("aggregated 802.11 (A-MSDU)", &[0x88, 1]),
    ];
    for (words, begin) in wireless {
        let frame = [begin, &[0; 22], &[0x80; 20]].concat();
        assert!(refused(105, &[frame]).ends_with(words), "{words}");
    }
    let usb = refused(220, &[vec![0; 64]]);
    assert!(usb.contains("link type 220 (USB)") && usb.contains("Ethernet (1)"), "{usb}");
    // Interfaces of a type that is not read are counted beside the others.
    let unknown = refused(147, &[vec![0; 64]]);
    assert!(unknown.contains("link type 147;"), "{unknown}");
}

/// Splits an IPv4 packet in fragments with so many bytes of payload.
fn fragments(packet: &[u8], bytes: usize) -> Vec<Vec<u8>> {
    let (header, payload) = packet.split_at(20);
    let pieces = payload.chunks(bytes).enumerate();
    pieces
        .map(|(number, piece)| {
            let mut fragment = [header, piece].concat();
            let start = number * bytes;
            let more = if start + piece.len() < payload.len() { 0x2000 } else { 0 };
            fragment[2..4].copy_from_slice(&(20 + piece.len() as u16).to_be_bytes());
            fragment[6..8].copy_from_slice(&(more | (start / 8) as u16).to_be_bytes());
            fragment
        })
        .collect()
}

#[test]
fn segments_in_fragments_have_their_whole_length() {
    let plain = frames(&File { layer: Layer::Raw, ..WHOLE }.write_whole(&packets()));
    let truth = same(&read(file(101, &plain, 65_535)).unwrap());
    let split = |is_reversed: bool| {
        let pieces = plain.iter().flat_map(|(at, packet)| {
            let mut pieces = fragments(packet, 600);
            if is_reversed {
                pieces.reverse();
            }
            pieces.into_iter().map(|piece| (*at, piece))
        });
        pieces.collect::<Vec<_>>()
    };
    for (is_reversed, snap) in [(false, 65_535), (true, 65_535), (false, 80)] {
        let capture = read(file(101, &split(is_reversed), snap)).unwrap();
        assert_eq!(same(&capture), truth, "reversed: {is_reversed}");
        assert_eq!(capture.left_out.fragments, 0);
    }
    // Each recorded twice.
    let twice: Vec<_> = split(false).into_iter().flat_map(|one| [one.clone(), one]).collect();
    let capture = read(file(101, &twice, 65_535)).unwrap();
    assert_eq!(capture.flows[0].bytes(), truth[0].bytes());
    assert_eq!(capture.flows[0].sent[0].retransmitted, truth[0].sent[0].retransmitted);
    assert_eq!(capture.left_out.fragments, 0);
}

#[test]
fn ipv6_has_its_fragments_in_a_header_of_their_own() {
    let kind = File { layer: Layer::Raw, ipv6: true, ..WHOLE };
    let truth = same(&read(kind.write_whole(&packets())).unwrap());
    let plain = frames(&kind.write_whole(&packets()));
    let pieces = plain.iter().zip(0_u32..).flat_map(|((at, packet), id)| {
        let (header, payload) = packet.split_at(40);
        payload.chunks(600).enumerate().map(move |(number, piece)| {
            let (start, mut begin) = (number * 600, header.to_vec());
            let more = u16::from(start + piece.len() < payload.len());
            let place = (start as u16 | more).to_be_bytes();
            begin[4..6].copy_from_slice(&(piece.len() as u16 + 8).to_be_bytes());
            begin[6] = 44;
            begin.extend([6, 0]);
            (*at, [&begin[..], &place, &id.to_be_bytes(), piece].concat())
        })
    });
    let capture = read(file(101, &pieces.collect::<Vec<_>>(), 65_535)).unwrap();
    assert_eq!(same(&capture), truth);
    assert_eq!(capture.left_out.fragments, 0);
}

#[test]
fn fragments_without_the_others_count_as_nothing_but_themselves() {
    let plain = frames(&File { layer: Layer::Raw, ..WHOLE }.write_whole(&packets()));
    let truth = read(file(101, &plain, 65_535)).unwrap();
    let lacking = |lost: fn(usize, usize) -> bool| {
        let pieces = plain.iter().enumerate().flat_map(|(number, (at, packet))| {
            let pieces = fragments(packet, 600).into_iter().enumerate();
            pieces.filter(move |(piece, _)| !lost(number, *piece)).map(|(_, piece)| (*at, piece))
        });
        read(file(101, &pieces.collect::<Vec<_>>(), 65_535)).unwrap()
    };
    // Of one packet the first, the middle and the last of three.
    for lost in [
        |n, piece| n == 20 && piece == 0,
        |n, piece| n == 20 && piece == 1,
        |n, piece| n == 20 && piece == 2,
    ] {
        let capture = lacking(lost);
        assert_eq!(capture.left_out.fragments, 2);
        let sent = &capture.flows[0].sent[0];
        assert_eq!(sent.bytes, truth.flows[0].sent[0].bytes);
        assert!(sent.counts.missing_bytes > 1000, "{:?}", sent.counts);
    }
    // Only the first of each: nothing is known of any segment's length.
    let firsts = plain.iter().map(|(at, packet)| (*at, fragments(packet, 600).swap_remove(0)));
    let capture = read(file(101, &firsts.collect::<Vec<_>>(), 65_535)).unwrap();
    let of_data = plain.iter().filter(|(_, packet)| packet.len() > 620).count() as u64;
    assert_eq!(capture.left_out.fragments, of_data);
    assert_eq!(capture.flows[0].sent[0].counts.frames, 0);
}

#[test]
fn a_tunnel_in_fragments_has_what_its_first_ones_show() {
    let plain = frames(&WHOLE.write_whole(&packets()));
    let truth = same(&read(WHOLE.write_whole(&packets())).unwrap());
    let pieces = plain.iter().flat_map(|(at, frame)| {
        let outer = ipv4(17, &udp(4789, &[&[8, 0, 0, 0, 0, 0, 9, 0], &frame[..]].concat()));
        fragments(&outer, 1000).into_iter().map(|piece| (*at, ether(0x0800, &piece)))
    });
    let capture = read(file(1, &pieces.collect::<Vec<_>>(), 65_535)).unwrap();
    assert_eq!(same(&capture), truth);
    assert_eq!(capture.left_out.fragments, 0);
    assert!(capture.kinds.iter().any(|kind| kind.what == "later IP fragments"));
}

#[test]
fn what_was_recorded_before_and_in_a_tunnel_counts_once() {
    // Large frames of an offload before the tunnel, and segments in it.
    let large = Transfer { bytes: 60_000, offload: 8, ..Transfer::default() }.run().packets;
    let truth = same(&read(WHOLE.write_whole(&large)).unwrap());
    let both = frames(&WHOLE.write_whole(&large)).into_iter().flat_map(|(at, frame)| {
        let tcp = 34 + usize::from(frame[46] >> 4) * 4;
        let (head, payload) = frame.split_at(tcp);
        let segments = payload.chunks(1448).enumerate().map(|(number, part)| {
            let mut inner = [head, part].concat();
            let seq = u32::from_be_bytes(inner[38..42].try_into().unwrap());
            inner[38..42].copy_from_slice(&(seq + number as u32 * 1448).to_be_bytes());
            let length = (inner.len() - 14) as u16;
            inner[16..18].copy_from_slice(&length.to_be_bytes());
            (at, port(4789, &[8, 0, 0, 0, 0, 0, 9, 0], &inner))
        });
        let segments: Vec<_> = segments.collect();
        [(at, frame)].into_iter().chain(segments)
    });
    let both: Vec<_> = both.collect();
    let capture = read(file(1, &both, 65_535)).unwrap();
    assert!(capture.flows[0].copies > 40, "{}", capture.flows[0].copies);
    assert_eq!(capture.flows[0].inside.names(), ["VXLAN"]);
    for (found, truth) in capture.flows[0].sent.iter().zip(&truth[0].sent) {
        assert_eq!((found.bytes, found.retransmitted), (truth.bytes, truth.retransmitted));
        assert_eq!(found.counts, truth.counts);
    }
}

#[test]
fn requests_in_a_tunnel_and_answers_without_it_are_one_connection() {
    let plain = frames(&WHOLE.write_whole(&packets()));
    let truth = same(&read(WHOLE.write_whole(&packets())).unwrap());
    let mixed = plain.iter().map(|(at, frame)| {
        let is_request = frame[29] == 1;
        (*at, if is_request { tunnel(4, &[], &frame[14..]) } else { frame.clone() })
    });
    let capture = read(file(1, &mixed.collect::<Vec<_>>(), 65_535)).unwrap();
    assert_eq!(same(&capture), truth);
    assert_eq!(capture.flows[0].inside.names(), ["IPIP"]);
}

/// A snoop file (RFC 1761).
fn snoop(link: u32, frames: &[(u64, Vec<u8>)], snap: usize) -> Vec<u8> {
    let mut file = [&b"snoop\0\0\0"[..], &[2, link].map(u32::to_be_bytes).concat()].concat();
    for (at, frame) in frames {
        let kept = &frame[..frame.len().min(snap)];
        let padded = kept.len().next_multiple_of(4);
        let words = [frame.len(), kept.len(), padded + 24, 0].map(|length| length as u32);
        let times = [at / 1_000_000, at % 1_000_000].map(|part| part as u32);
        file.extend([&words[..], &times].concat().into_iter().flat_map(u32::to_be_bytes));
        file.extend(kept);
        file.resize(file.len() + padded - kept.len(), 0);
    }
    file
}

#[test]
fn snoop_is_read() {
    let plain = frames(&WHOLE.write_whole(&packets()));
    let truth = same(&read(WHOLE.write_whole(&packets())).unwrap());
    for snap in [65_535, 97] {
        let capture = read(snoop(4, &plain, snap)).unwrap();
        assert_eq!((same(&capture), capture.link), (truth.clone(), Some(1)));
        assert!(!capture.truncated);
    }
    let fddi = plain.iter().map(|(at, frame)| {
        let link = [&[0x50], &frame[..12], &[0xaa, 0xaa, 3, 0, 0, 0]].concat();
        (*at, [&link, &frame[12..]].concat())
    });
    assert_eq!(same(&read(snoop(8, &fddi.collect::<Vec<_>>(), 65_535)).unwrap()), truth);
    assert!(matches!(read(snoop(2, &plain, 97)), Err(CaptureError::SnoopType(2))));
    assert!(matches!(read(b"snoop\0\0\0\0\0\0\x02".to_vec()), Err(CaptureError::NoCapture)));
    // Cut in a record's header and in its packet, and a record that is shorter than its packet.
    let whole = snoop(4, &plain, 96);
    for end in [whole.len() - 50, whole.len() - 100, whole.len() - 112] {
        let capture = read(whole[..end].to_vec()).unwrap();
        assert!(capture.truncated && capture.packets < plain.len() as u64, "at {end}");
    }
    let first = u32::from_be_bytes(whole[24..28].try_into().unwrap()) as usize;
    let mut short = whole;
    // The second record is said to be shorter than its packet.
    short[16 + first + 11] = 3;
    assert!(read(short).is_ok_and(|capture| capture.truncated && capture.packets == 1));
}

#[test]
fn lengths_in_the_order_of_old_files_are_read() {
    for is_big_endian in [false, true] {
        let kind = File { is_big_endian, ..USUAL };
        let usual = kind.write(&packets());
        let truth = same(&read(usual.clone()).unwrap());
        for (major, minor, is_swapped) in
            [(2, 2, true), (2, 3, false), (2, 3, true), (543, 0, true)]
        {
            let half = |number: u16| {
                if is_big_endian { number.to_be_bytes() } else { number.to_le_bytes() }
            };
            let mut old = usual.clone();
            old[4..6].copy_from_slice(&half(major));
            old[6..8].copy_from_slice(&half(minor));
            let mut at = 24;
            while at < old.len() {
                let kept: [u8; 4] = old[at + 8..at + 12].try_into().unwrap();
                let kept =
                    if is_big_endian { u32::from_be_bytes(kept) } else { u32::from_le_bytes(kept) };
                if is_swapped {
                    old[at + 8..at + 16].rotate_left(4);
                }
                at += 16 + kept as usize;
            }
            let capture = read(old.clone()).unwrap();
            assert_eq!(same(&capture), truth, "{major}.{minor} {is_swapped}");
            assert!(!capture.truncated);
            old.truncate(old.len() - 3);
            assert!(read(old).unwrap().truncated);
        }
    }
}

#[test]
fn a_block_that_is_shorter_than_its_lengths_ends_the_file() {
    let file = File { is_ng: true, ..USUAL }.write(&packets());
    let truth = read(file.clone()).unwrap();
    // One of Apple's, a packet, and one of no known kind.
    for kind in [0x8000_0001_u32, 6, 99] {
        let short = [kind, 8, 0, 0, 0, 0, 0, 0].map(u32::to_le_bytes).concat();
        let capture = read([&file[..], &short].concat()).unwrap();
        assert!(capture.truncated);
        assert_eq!(capture.packets, truth.packets);
    }
}

/// Compressed data that are damaged at their end.
struct Damaged(Cursor<Vec<u8>>, io::ErrorKind);

impl Read for Damaged {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.0.read(buffer)? {
            0 => Err(self.1.into()),
            read => Ok(read),
        }
    }
}

#[test]
fn what_comes_before_damage_is_partial_and_other_errors_are_errors() {
    for bytes in [1000, 60_000] {
        let file = USUAL.write(&Transfer { bytes: 1_000_000, ..Transfer::default() }.run().packets);
        let damaged = |kind| {
            let bytes = Cursor::new(file[..bytes].to_vec());
            follow(Damaged(bytes, kind), 10, |_| true)
        };
        assert!(damaged(io::ErrorKind::InvalidData).unwrap().truncated);
        assert!(damaged(io::ErrorKind::UnexpectedEof).unwrap().truncated);
        assert!(matches!(damaged(io::ErrorKind::Other), Err(CaptureError::Read(_))));
    }
}

proptest! {
    /// No bytes behind any link type or header make it panic, whole or cut.
    #[test]
    fn no_headers_make_it_panic(
        which in any::<prop::sample::Index>(),
        link in prop_oneof![Just(None), (0..300_u32).prop_map(Some)],
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..12),
        lengths in (0..400_usize, 0..400_usize),
        is_snoop: bool,
    ) {
        let table: Vec<_> = OF_IP.iter().chain(OF_ETHERNET).collect();
        let (_, usual, wrap) = which.get(&table);
        let packets = &packets()[..6];
        let plain = frames(&File { layer: Layer::Raw, ..WHOLE }.write_whole(packets));
        let wrapped = plain.iter().map(|(at, frame)| {
            let mut frame = wrap(frame);
            for (place, byte) in &changes {
                // Nearly all headers end within so many bytes.
                let place = place.index(frame.len().min(120));
                frame[place] = *byte;
            }
            frame.truncate(lengths.0.max(1));
            (*at, frame)
        });
        let wrapped: Vec<_> = wrapped.collect();
        let link = link.unwrap_or(*usual);
        let kept = lengths.1;
        drop(read(if is_snoop { snoop(4, &wrapped, kept) } else { file(link, &wrapped, kept) }));
    }

    /// Neither do records of old shapes.
    #[test]
    fn no_records_make_it_panic(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..40),
        minor in 0..4_u8,
        is_snoop: bool,
    ) {
        let plain = frames(&WHOLE.write(&packets()[..9]));
        let mut bytes = if is_snoop { snoop(4, &plain, 65_535) } else { USUAL.write(&packets()) };
        for (place, byte) in changes {
            let place = place.index(bytes.len() - 12) + 12;
            bytes[place] = byte;
        }
        if !is_snoop {
            bytes[6] = minor;
        }
        drop(read(bytes));
    }
}
