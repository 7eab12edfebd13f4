use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::netlink::{LinkChange, Prefix, VethEnd};
use crate::netns::{Namespace, Pair, eventually, pair_or_skip};

fn open(namespace: &Namespace, link: &str) -> PacketSocket {
    namespace.run(|| PacketSocket::open(link)).unwrap().unwrap()
}

fn open_pair(pair: &Pair) -> (PacketSocket, PacketSocket) {
    (open(&pair.a.namespace, Pair::LINK), open(&pair.b.namespace, Pair::LINK))
}

fn plain(frame: &[u8]) -> Outgoing<'_> {
    Outgoing { header: VirtioHeader::default(), frame }
}

/// Of an EtherType for local experiments (IEEE 802), so that no stack answers.
fn test_frame(length: usize) -> Vec<u8> {
    let mut frame = vec![0xFF; 6];
    frame.extend([2, 0, 0, 0, 0, 1, 0x88, 0xB5]);
    frame.extend((frame.len()..length).map(|i| (i % 251) as u8));
    frame
}

/// Waits for that frame, past what the hosts send by themselves, and answers when it arrived.
fn receive_test_frame(socket: &mut PacketSocket, expected: &[u8]) -> u64 {
    let deadline = monotonic_ns() + 60_000_000_000;
    while monotonic_ns() < deadline {
        if let Some(received) = socket.receive().unwrap()
            && received.frame[12..14] == [0x88, 0xB5]
        {
            assert!(received.frame == expected, "altered");
            assert_eq!(received.header, VirtioHeader::default());
            return received.arrived_ns;
        }
    }
    panic!("the frame did not arrive");
}

/// Whether the socket is readable, after waiting for at most `timeout_ms`.
fn readable(socket: &PacketSocket, timeout_ms: i32) -> bool {
    use std::os::fd::AsRawFd;
    let mut poll =
        libc::pollfd { fd: socket.as_fd().as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: the pointer is to one live pollfd.
    unsafe { libc::poll(&raw mut poll, 1, timeout_ms) == 1 }
}

#[test]
fn frame_of_any_size_comes_out_byte_for_byte() {
    let pair = match Pair::with_mtu(65_535) {
        Err(error) if error.errno() == Some(libc::EPERM) => pair_or_skip(),
        pair => Some(pair.unwrap()),
    };
    let Some(pair) = pair else { return };
    let (mut a, mut b) = open_pair(&pair);
    // The limits of the rings among them.
    for length in [60, 1514, 1972, 1973, 9014, 16_308, 16_309, 65_549] {
        let frame = test_frame(length);
        b.offset = RealtimeOffset::default();
        let before = monotonic_ns();
        assert_eq!(a.send(&[plain(&frame)]).unwrap(), 1, "{length}");
        assert!(readable(&b, 60_000));
        let arrived_ns = receive_test_frame(&mut b, &frame);
        let after = monotonic_ns();
        // The offset between the clocks is wrong by no more than the time that its measurement
        // takes.
        let slack = after - before;
        assert!((before - slack..=after + slack).contains(&arrived_ns));
    }
}

#[test]
fn frames_of_mixed_sizes_keep_their_order_through_every_wrap_of_the_rings() {
    let Some(pair) = pair_or_skip() else { return };
    let (mut a, mut b) = open_pair(&pair);
    for interface in [&pair.a, &pair.b] {
        let change = LinkChange::Mtu(20_000);
        let set = |netlink: &mut crate::netlink::Netlink| netlink.change_link(Pair::LINK, &change);
        interface.namespace.configure(set).unwrap();
    }
    for round in 0_u32..4500 {
        let frames = [100, 18_000, 5000, 1000].map(|length| {
            let mut frame = test_frame(length);
            frame[14..18].copy_from_slice(&round.to_ne_bytes());
            frame
        });
        let outgoing = frames.each_ref().map(|frame| plain(frame));
        let mut taken = 0;
        while taken < outgoing.len() {
            taken += a.send(&outgoing[taken..]).unwrap();
        }
        for frame in &frames {
            receive_test_frame(&mut b, frame);
        }
    }
    assert_eq!(b.dropped().unwrap(), 0);
}

#[test]
fn frames_without_a_free_slot_are_counted_as_dropped() {
    let Some(pair) = pair_or_skip() else { return };
    let (mut a, mut b) = open_pair(&pair);
    let frame = test_frame(60);
    let mut sent = 0;
    while sent < 10_000 {
        let frames = vec![plain(&frame); 500.min(10_000 - sent)];
        sent += a.send(&frames).unwrap();
    }
    // The ring has 8192 slots.
    assert!(eventually(|| b.dropped().unwrap() >= 10_000 - 8192));
    // Neighbour discovery of the hosts may come on top.
    let dropped = b.dropped().unwrap();
    assert!((10_000 - 8192..10_100 - 8192).contains(&dropped), "{dropped}");
    let mut fetched = 0;
    while b.receive().unwrap().is_some() {
        fetched += 1;
    }
    assert!((8192..8292).contains(&fetched), "{fetched}");
}

#[test]
fn link_that_went_down_works_again_and_one_that_went_away_is_an_error() {
    let Some(pair) = pair_or_skip() else { return };
    let (mut a, mut b) = open_pair(&pair);
    let change = |change: &LinkChange<'_>| {
        let request =
            |netlink: &mut crate::netlink::Netlink| netlink.change_link(Pair::LINK, change);
        pair.b.namespace.configure(request).unwrap();
    };
    let frame = test_frame(200);
    change(&LinkChange::Down);
    assert_eq!(b.send(&[plain(&frame)]).unwrap(), 1, "lost like on a cable");
    assert!(eventually(|| {
        while b.receive().unwrap().is_some() {}
        !readable(&b, 0)
    }));
    change(&LinkChange::Up);
    pair.b.namespace.wait_until_up(Pair::LINK).unwrap();
    pair.a.namespace.wait_until_up(Pair::LINK).unwrap();
    assert!(eventually(|| a.send(&[plain(&frame)]).unwrap() == 1));
    receive_test_frame(&mut b, &frame);

    let delete = |netlink: &mut crate::netlink::Netlink| netlink.delete_link(Pair::LINK);
    pair.a.namespace.configure(delete).unwrap();
    let has_gone = |socket: &mut PacketSocket| {
        eventually(|| socket.receive().is_err_and(|error| error.errno() == Some(libc::ENODEV)))
    };
    assert!(has_gone(&mut a) && has_gone(&mut b));
    assert_eq!(b.send(&[plain(&frame)]).unwrap_err().errno(), Some(libc::ENODEV));
}

#[test]
fn frame_that_cannot_be_sent_is_an_error_and_those_before_it_are_sent() {
    let Some(pair) = pair_or_skip() else { return };
    let (mut a, mut b) = open_pair(&pair);
    let (good, long) = (test_frame(300), test_frame(3000));
    let frames = [plain(&good), plain(&long), plain(&good)];
    assert_eq!(a.send(&frames).unwrap(), 1);
    let error = a.send(&frames[1..]).unwrap_err();
    assert_eq!(error.errno(), Some(libc::EMSGSIZE), "{error}");
    assert_eq!(a.send(&frames[2..]).unwrap(), 1);
    receive_test_frame(&mut b, &good);
    receive_test_frame(&mut b, &good);
}

#[test]
fn missing_link_is_no_device() {
    for link in ["nosuchlink", "a\0b"] {
        let error = PacketSocket::open(link).unwrap_err();
        assert_eq!(error.errno(), Some(libc::ENODEV));
    }
}

/// Two hosts, each with a link to a namespace between them.
struct Chain {
    hosts: [Namespace; 2],
    middle: Namespace,
}

const ENDS: [&str; 2] = ["end0", "end1"];

impl Chain {
    fn create() -> Self {
        let middle = Namespace::create("middle").unwrap();
        let hosts = [1, 2].map(|number| {
            let host = Namespace::create(format!("host{number}")).unwrap();
            let near = VethEnd { name: Pair::LINK, namespace: None, mtu: None };
            let end = ENDS[usize::from(number) - 1];
            let far = VethEnd { name: end, namespace: Some(middle.as_fd()), mtu: None };
            host.configure(|netlink| {
                netlink.create_veth(&near, &far)?;
                let address = Prefix::new(Ipv4Addr::new(198, 18, 0, number), 24);
                netlink.add_address(Pair::LINK, address)?;
                netlink.change_link(Pair::LINK, &LinkChange::Up)
            })
            .unwrap();
            let up =
                |netlink: &mut crate::netlink::Netlink| netlink.change_link(end, &LinkChange::Up);
            middle.configure(up).unwrap();
            host.wait_until_up(Pair::LINK).unwrap();
            host
        });
        Self { hosts, middle }
    }
}

/// Carries frames both ways until told to stop; answers how many of them were TCP segments in one
/// frame.
fn forward(sockets: &mut [PacketSocket; 2], stop: &AtomicBool) -> usize {
    let mut merged = 0;
    while !stop.load(Ordering::Relaxed) {
        let [first, second] = sockets;
        merged += forward_waiting(first, second) + forward_waiting(second, first);
        std::thread::yield_now();
    }
    merged
}

fn forward_waiting(from: &mut PacketSocket, to: &mut PacketSocket) -> usize {
    let mut merged = 0;
    while let Some(Received { header, frame, .. }) = from.receive().unwrap() {
        merged += usize::from(header.gso == GsoType::Tcp4 && frame.len() > 1514);
        while to.send(&[Outgoing { header, frame }]).unwrap() == 0 {}
    }
    merged
}

#[test]
fn tcp_transfer_through_a_forwarder_arrives_whole_in_merged_frames() {
    let Some(_) = pair_or_skip() else { return };
    let chain = Chain::create();
    let mut sockets = ENDS.map(|end| open(&chain.middle, end));
    let stop = AtomicBool::new(false);
    let [sender, receiver] = &chain.hosts;
    let sent: Vec<u8> = (0..20_000_000).map(|i| (i % 251) as u8).collect();
    let merged = std::thread::scope(|scope| {
        let pump = scope.spawn(|| forward(&mut sockets, &stop));
        let listener = receiver.run(|| TcpListener::bind("198.18.0.2:0")).unwrap().unwrap();
        let target = listener.local_addr().unwrap();
        let received = scope.spawn(move || {
            let mut received = Vec::new();
            listener.accept().unwrap().0.read_to_end(&mut received).unwrap();
            received
        });
        let mut stream = sender.run(|| TcpStream::connect(target)).unwrap().unwrap();
        stream.write_all(&sent).unwrap();
        drop(stream);
        assert!(received.join().unwrap() == sent, "short or altered");
        stop.store(true, Ordering::Relaxed);
        pump.join().unwrap()
    });
    assert!(merged > 10, "{merged}");
}
