use std::io::ErrorKind;
use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use linerate_testkit::{Need, PATIENCE, eventually, skip, uninterrupted};

use super::*;

const BOTH: [Offload; 2] = [Offload::Segment, Offload::None];

/// Whether the kernel has UDP_SEGMENT (Linux 4.18).
fn segment_supported() -> io::Result<bool> {
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    match set_option(&socket, libc::SOL_UDP, libc::UDP_SEGMENT, 1) {
        Ok(()) => Ok(true),
        Err(error) if error.raw_os_error() == Some(libc::ENOPROTOOPT) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Connected to each other, the second with a receive timeout and room for a batch: by default the
/// larger batches, with the kernel's overhead, do not fit.
fn pair(address: &str) -> (UdpSocket, UdpSocket) {
    let [sender, receiver] = [(); 2].map(|()| UdpSocket::bind((address, 0)).unwrap());
    sender.connect(receiver.local_addr().unwrap()).unwrap();
    receiver.connect(sender.local_addr().unwrap()).unwrap();
    receiver.set_read_timeout(Some(PATIENCE)).unwrap();
    socket2::SockRef::from(&receiver).set_recv_buffer_size(1 << 20).unwrap();
    (sender, receiver)
}

fn received(receiver: &mut BatchReceiver, socket: &UdpSocket) -> io::Result<usize> {
    uninterrupted(|| receiver.receive(socket))
}

fn number(datagram: &mut [u8], sequence: u64) {
    datagram[..8].copy_from_slice(&sequence.to_be_bytes());
}

/// Sends `total` numbered datagrams, each batch when the one before has arrived, so that nothing
/// has to be dropped.
fn send_numbered(
    mut sender: BatchSender,
    socket: &UdpSocket,
    batch: usize,
    total: u64,
    arrived: &AtomicU64,
) {
    let mut next = 0;
    while next < total {
        for (datagram, sequence) in sender.datagrams_mut().zip(next..) {
            number(datagram, sequence);
        }
        let count = batch.min((total - next) as usize);
        next += sender.send(socket, count).unwrap() as u64;
        while arrived.load(Ordering::Acquire) < next {
            thread::yield_now();
        }
    }
}

fn assert_all_arrive_once(
    address: &str,
    bytes: usize,
    batch: usize,
    total: u64,
    send: Offload,
    receive: Offload,
) {
    let (socket, peer) = pair(address);
    let mut receiver = BatchReceiver::new(&peer, bytes, receive).unwrap();
    let arrived = Arc::new(AtomicU64::new(0));
    let worker = thread::spawn({
        let arrived = Arc::clone(&arrived);
        let sender = BatchSender::new(bytes, batch, send);
        move || send_numbered(sender, &socket, batch, total, &arrived)
    });
    let mut seen = vec![false; total as usize];
    while arrived.load(Ordering::Relaxed) < total {
        let count = received(&mut receiver, &peer)
            .unwrap_or_else(|error| panic!("{bytes} bytes, {send:?} to {receive:?}: {error}"));
        assert_eq!(receiver.datagrams().count(), count);
        for datagram in receiver.datagrams() {
            assert_eq!((datagram.bytes.len(), datagram.truncated), (bytes, false));
            let sequence = u64::from_be_bytes(datagram.bytes[..8].try_into().unwrap());
            assert!(!std::mem::replace(&mut seen[sequence as usize], true));
        }
        arrived.fetch_add(count as u64, Ordering::Release);
    }
    worker.join().unwrap();
    assert!(seen.iter().all(|&seen| seen));
    assert_eq!(receiver.socket_drops(), 0);
}

#[test]
fn every_datagram_is_counted_once() {
    if !segment_supported().unwrap() {
        skip(Need::UdpSegment, "the kernel has no UDP_SEGMENT");
        return;
    }
    // The batches are no multiples of what one message holds (128, 45, 7), and leave a tail of the
    // total.
    for (bytes, batch) in [(16, 200), (1448, 70), (9000, 9)] {
        for send in BOTH {
            for receive in BOTH {
                assert_all_arrive_once("127.0.0.1", bytes, batch, 30_001, send, receive);
            }
        }
    }
}

#[test]
fn ipv6_and_the_largest_datagrams_work() {
    if UdpSocket::bind("[::1]:0").is_err() {
        skip(Need::Ipv6, "the host has no IPv6");
        return;
    }
    for offload in BOTH {
        assert_all_arrive_once("::1", 1428, 50, 1001, offload, offload);
        assert_all_arrive_once("::1", 65_527, 1, 11, offload, offload);
        assert_all_arrive_once("127.0.0.1", 65_507, 1, 11, offload, offload);
    }
}

#[test]
fn drops_of_a_full_buffer_are_counted() {
    let (socket, peer) = pair("127.0.0.1");
    socket2::SockRef::from(&peer).set_recv_buffer_size(64 * 1024).unwrap();
    let mut receiver = BatchReceiver::new(&peer, 1000, Offload::None).unwrap();
    let mut sender = BatchSender::new(1000, 100, Offload::None);
    for _ in 0..20 {
        assert_eq!(sender.send(&socket, 100).unwrap(), 100);
    }
    peer.set_nonblocking(true).unwrap();
    let mut taken = 0;
    while let Ok(count) = received(&mut receiver, &peer) {
        taken += count as u64;
    }
    assert!(taken < 2000, "the buffer held everything");
    let mut sent = 2000;
    eventually("the next datagram brings the counter along", || {
        sent += sender.send(&socket, 1).unwrap() as u64;
        while let Ok(count) = received(&mut receiver, &peer) {
            taken += count as u64;
        }
        taken + receiver.socket_drops() == sent
    });
}

#[test]
fn truncated_datagrams_are_flagged() {
    let (socket, peer) = pair("127.0.0.1");
    let mut receiver = BatchReceiver::new(&peer, 10, Offload::None).unwrap();
    for length in [10, 11, 0] {
        socket.send(&vec![7; length]).unwrap();
    }
    let mut found = Vec::new();
    while found.len() < 3 {
        received(&mut receiver, &peer).unwrap();
        found.extend(
            receiver.datagrams().map(|datagram| (datagram.bytes.len(), datagram.truncated)),
        );
    }
    assert_eq!(found, [(10, false), (10, true), (0, false)]);
}

#[test]
fn a_silent_peer_is_would_block() {
    for offload in BOTH {
        let (_socket, peer) = pair("127.0.0.1");
        let mut receiver = BatchReceiver::new(&peer, 100, offload).unwrap();
        peer.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
        let error = received(&mut receiver, &peer).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
        peer.set_nonblocking(true).unwrap();
        let error = received(&mut receiver, &peer).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
        assert_eq!(receiver.datagrams().count(), 0);
    }
}

#[test]
fn a_closed_port_is_reported() {
    for offload in BOTH {
        let (socket, peer) = pair("127.0.0.1");
        drop(peer);
        let mut sender = BatchSender::new(1000, 100, offload);
        eventually("the kernel's answer has arrived", || {
            let sent = sender.send(&socket, 100);
            sent.is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
        });
    }
}

#[test]
fn refused_offload_goes_on_without_and_says_so() {
    let (socket, peer) = pair("127.0.0.1");
    // Segments need checksums (udp_send_skb in net/ipv4/udp.c).
    set_option(&socket, libc::SOL_SOCKET, libc::SO_NO_CHECK, 1).unwrap();
    let mut sender = BatchSender::new(100, 10, Offload::Segment);
    assert_eq!(sender.offload(), Offload::Segment);
    assert_eq!(sender.send(&socket, 10).unwrap(), 10);
    assert_eq!(sender.offload(), Offload::None);
    let mut receiver = BatchReceiver::new(&peer, 100, Offload::None).unwrap();
    let mut taken = 0;
    while taken < 10 {
        taken += received(&mut receiver, &peer).unwrap();
    }
    assert_eq!(taken, 10);
}
