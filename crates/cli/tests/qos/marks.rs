//! What the peer sees: code points, ECN, checksums and VLAN priorities on its end of the link.

use std::io::Write as _;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use linerate_qos::policy::Mac;
use linerate_sys::ethtool::{Ethtool, Offload};
use linerate_sys::netns::{Host, Pair};
use linerate_sys::packet::{GsoType, PacketSocket};
use linerate_sys::socket::set_traffic_class;

use crate::support::{Bench, PATIENCE, bench, eventually, udp};

const POLICY: &str = r#"
[filter.udp]
protocol = "udp"
destination_port = 7001
policy = "voice"

[filter.tcp]
protocol = "tcp"
destination_port = 7003
policy = "bulk"

[filter.tagged]
protocol = "udp"
destination_port = 7005
policy = "tagged"

[filter.dropped]
protocol = "udp"
destination_port = 7006
policy = "dropped"

[policy.voice]
dscp = "EF"

[policy.bulk]
dscp = "AF11"

[policy.tagged]
vlan_priority = 5

[policy.dropped]
drop = true

[adapter.veth0]
policies = ["voice", "bulk", "tagged", "dropped"]
"#;

/// ECN-capable (RFC 3168), as the sender set it.
const ECT0: u8 = 2;
const EF: u8 = 46 << 2 | ECT0;
const AF11: u8 = 10 << 2;

/// A frame as the peer got it.
#[derive(Debug, Clone)]
struct Seen {
    octet: u8,
    /// Of IPv4, right; true of IPv6, which has none.
    header_is_right: bool,
    destination_port: u16,
    tci: Option<u16>,
    gso: bool,
}

/// IPv4 without options, or IPv6 without extension headers, with TCP or UDP behind it.
fn parse(frame: &[u8], tci: Option<u16>, gso: bool) -> Option<Seen> {
    let ip = frame.get(14..)?;
    let word =
        |bytes: &[u8], at: usize| Some(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]));
    match word(frame, 12)? {
        0x0800 if ip.len() >= 24 && ip[0] == 0x45 && matches!(ip[9], 6 | 17) => {
            let sum: u32 = (0..10).filter_map(|at| word(ip, 2 * at)).map(u32::from).sum();
            Some(Seen {
                octet: ip[1],
                header_is_right: (sum & 0xffff) + (sum >> 16) == 0xffff,
                destination_port: word(ip, 22)?,
                tci,
                gso,
            })
        }
        0x86dd if ip.len() >= 44 && matches!(ip[6], 6 | 17) => Some(Seen {
            octet: ip[0] << 4 | ip[1] >> 4,
            header_is_right: true,
            destination_port: word(ip, 42)?,
            tci,
            gso,
        }),
        _ => None,
    }
}

/// All that came to a port, until there are so many or it is given up.
fn capture(socket: &mut PacketSocket, port: u16, least: usize) -> Vec<Seen> {
    let until = Instant::now() + PATIENCE;
    let mut seen = Vec::new();
    while seen.len() < least {
        assert!(Instant::now() < until, "{} of {least} packets to port {port}", seen.len());
        match socket.receive().unwrap() {
            Some(received) => {
                let gso = received.header.gso != GsoType::None;
                let parsed = parse(received.frame, received.vlan_tci, gso);
                seen.extend(parsed.filter(|seen| seen.destination_port == port));
            }
            None => thread::sleep(Duration::from_millis(1)),
        }
    }
    seen
}

fn listen(host: &Host) -> PacketSocket {
    let open = || PacketSocket::open_within(Pair::LINK, 4 << 20);
    host.namespace.run(open).unwrap().unwrap()
}

fn send(bench: &Bench, from: IpAddr, to: IpAddr, port: u16, packets: usize) {
    let socket = udp(bench.a(), from);
    set_traffic_class(&socket, ECT0).unwrap();
    for _ in 0..packets {
        socket.send_to(&[7; 300], (to, port)).unwrap();
    }
}

/// So many bytes from host a to port 7003 of that address of host b, whole.
fn transfer(bench: &Bench, to: IpAddr, bytes: usize) {
    let to = SocketAddr::from((to, 7003));
    let listen = || TcpListener::bind(to);
    let listener = bench.b().namespace.run(listen).unwrap().unwrap();
    let receiver = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        std::io::copy(&mut stream, &mut std::io::sink()).unwrap()
    });
    let connect = || TcpStream::connect(to);
    let mut stream = bench.a().namespace.run(connect).unwrap().unwrap();
    stream.write_all(&vec![5; bytes]).unwrap();
    drop(stream);
    assert_eq!(receiver.join().unwrap(), bytes as u64, "{to}");
}

/// Switches an offload of host a's end.
fn switch(bench: &Bench, offload: Offload, on: bool) {
    let switched = bench.a().namespace.run(|| {
        let device = Ethtool::open(Pair::LINK).unwrap();
        let features = device.offload(offload).unwrap();
        let free = features.iter().filter(|feature| !feature.fixed);
        let changes: Vec<_> = free.map(|feature| (feature.name.as_str(), on)).collect();
        device.set_features(&changes).map(drop)
    });
    switched.unwrap().unwrap();
}

fn pairs(bench: &Bench) -> Vec<(IpAddr, IpAddr)> {
    let (a, b) = (bench.a().addresses(), bench.b().addresses());
    a.into_iter().zip(b).collect()
}

#[test]
fn datagrams_are_marked_with_their_ecn_and_a_right_checksum() {
    let Some(bench) = bench() else { return };
    bench.apply(POLICY);
    for checksum in [true, false] {
        switch(&bench, Offload::TxChecksum, checksum);
        for (from, to) in pairs(&bench) {
            let mut socket = listen(bench.b());
            send(&bench, from, to, 7001, 10);
            send(&bench, from, to, 7002, 10);
            for seen in capture(&mut socket, 7001, 10) {
                assert!(seen.octet == EF && seen.header_is_right, "{from}: {seen:?}");
            }
            let mut socket = listen(bench.b());
            send(&bench, from, to, 7002, 10);
            for seen in capture(&mut socket, 7002, 10) {
                assert!(seen.octet == ECT0 && seen.header_is_right, "{from}: {seen:?}");
            }
        }
    }
    assert_eq!(bench.counted("udp").0, 40);
}

#[test]
fn streams_are_marked_with_and_without_offloads() {
    let Some(bench) = bench() else { return };
    bench.apply(POLICY);
    for (offloaded, checksum) in [(true, true), (false, true), (false, false)] {
        switch(&bench, Offload::TxChecksum, checksum);
        switch(&bench, Offload::TcpSegmentation, offloaded);
        switch(&bench, Offload::GenericSegmentation, offloaded);
        for (from, to) in pairs(&bench) {
            let mut socket = listen(bench.b());
            transfer(&bench, to, 300_000);
            let seen = capture(&mut socket, 7003, 5);
            for seen in &seen {
                assert!(seen.octet & !3 == AF11 && seen.header_is_right, "{from}: {seen:?}");
            }
            assert!(offloaded || seen.iter().all(|seen| !seen.gso), "{from}: {seen:?}");
        }
    }
}

#[test]
fn packets_on_the_wire_are_counted_however_they_are_offloaded() {
    let Some(bench) = bench() else { return };
    bench.apply(POLICY);
    transfer(&bench, bench.b().ipv4.into(), 1_448_000);
    let (packets, bytes) = bench.counted("tcp");
    // A thousand full segments, or more and smaller ones; SYN, ACKs and FIN; no more than a few
    // retransmitted.
    assert!((1000..3000).contains(&packets), "{packets} packets");
    let headers = bytes - 1_448_000;
    assert!(
        headers >= 66 * 1000 && headers <= 66 * packets + 200_000,
        "{bytes} bytes, {packets} packets"
    );
}

#[test]
fn the_peer_sees_the_vlan_priority() {
    let Some(bench) = bench() else { return };
    bench.apply(POLICY);
    for (from, to) in pairs(&bench) {
        let mut socket = listen(bench.b());
        send(&bench, from, to, 7005, 10);
        for seen in capture(&mut socket, 7005, 10) {
            assert_eq!(seen.tci, Some(5 << 13), "{from}: {seen:?}");
            assert_eq!(seen.octet, ECT0);
        }
    }
}

#[test]
fn dropped_packets_are_counted_and_do_not_leave() {
    let Some(bench) = bench() else { return };
    bench.apply(POLICY);
    let mut socket = listen(bench.b());
    let (from, to) = pairs(&bench)[0];
    let sender = udp(bench.a(), from);
    for _ in 0..5 {
        // The kernel tells a local sender of the drop.
        let _ = sender.send_to(&[7; 300], (to, 7006));
    }
    send(&bench, from, to, 7001, 1);
    // In order: had they left, they would have come first.
    let until = Instant::now() + PATIENCE;
    let mut ports = Vec::new();
    while !ports.contains(&7001) {
        assert!(Instant::now() < until, "{ports:?}");
        match socket.receive().unwrap() {
            Some(received) => ports.extend(
                parse(received.frame, received.vlan_tci, false).map(|seen| seen.destination_port),
            ),
            None => thread::sleep(Duration::from_millis(1)),
        }
    }
    assert!(!ports.contains(&7006), "{ports:?}");
    let status = bench.status();
    let dropped = &status.adapters[0].policies[3].egress;
    assert_eq!((dropped.dropped_packets, dropped.dropped_bytes), (5, 5 * 342));
}

#[test]
fn filters_tell_packets_by_their_ethernet_addresses() {
    let Some(bench) = bench() else { return };
    let peer = (bench.b().namespace).configure(|netlink| netlink.link(Pair::LINK));
    let peer = Mac::from(peer.unwrap().mac.unwrap());
    let text = format!(
        "[filter.from_peer]\nsource_mac = \"{peer}\"\nprotocol = \"udp\"\npolicy = \"known\"\n\
         [filter.to_peer]\ndestination_mac = \"{peer}\"\nprotocol = \"udp\"\npolicy = \"known\"\n\
         [policy.known]\ndscp = \"EF\"\n\
         [adapter.veth0]\ningress = true\npolicies = [\"known\"]\n"
    );
    let notes = bench.apply(&text).notes;
    assert!(notes.is_empty(), "{notes:?}");
    for (from, to) in pairs(&bench) {
        send(&bench, from, to, 7001, 5);
    }
    assert_eq!(bench.counted("to_peer").0, 10);
    assert_eq!(bench.counted("from_peer").0, 0);
    let (a, b) = (udp(bench.a(), bench.a().ipv4.into()), udp(bench.b(), bench.b().ipv4.into()));
    b.send_to(b"in", a.local_addr().unwrap()).unwrap();
    let came = || bench.status().adapters[0].policies[0].filters[0].ingress.unwrap();
    eventually("the peer's packet came in", || came().packets == 1);

    let notes = bench.apply(&text.replace("ingress = true\n", "")).notes;
    let said = notes.iter().find(|note| note.contains("filter `from_peer` takes no packet"));
    assert!(said.is_some(), "{notes:?}");
}
