use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use linerate_testkit::{Need, PATIENCE, skip};

use super::*;
use crate::netlink::Prefix;
use crate::netns::{eventually, pair_or_skip};
use crate::socket::{self, ListenOptions, Mptcp};

/// A socket's message, with attributes.
fn message(family: i32, local: [u8; 16], attributes: &[(u16, &[u8])]) -> Vec<u8> {
    let mut bytes = vec![family as u8, 1, 0, 0];
    bytes.extend(443u16.to_be_bytes());
    bytes.extend(50_000u16.to_be_bytes());
    bytes.extend(local);
    bytes.extend(local);
    for word in [3u32, 7, 1, 0, 11, 12, 1000, 4711] {
        bytes.extend(word.to_ne_bytes());
    }
    for (kind, value) in attributes {
        bytes.extend((value.len() as u16 + 4).to_ne_bytes());
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(*value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
    }
    bytes
}

fn mapped() -> [u8; 16] {
    Ipv4Addr::new(198, 18, 0, 1).to_ipv6_mapped().octets()
}

#[test]
fn a_message_is_read_with_all_its_attributes() {
    let memory: Vec<u8> = (1..=9u32).flat_map(u32::to_ne_bytes).collect();
    let ulp = [&10u16.to_ne_bytes()[..], &1u16.to_ne_bytes(), b"mptcp\0"].concat();
    let attributes: [(u16, &[u8]); 4] = [
        (INET_DIAG_INFO, &[1; 240]),
        (INET_DIAG_CONG, b"bbr\0"),
        (INET_DIAG_SKMEMINFO, &memory),
        (INET_DIAG_ULP_INFO, &ulp),
    ];
    let bytes = message(libc::AF_INET6, mapped(), &attributes);
    let socket = parse(&bytes).unwrap();
    assert_eq!(socket.local, "198.18.0.1:443".parse().unwrap());
    assert_eq!(socket.remote, "198.18.0.1:50000".parse().unwrap());
    assert_eq!((socket.state, socket.cookie), (1, 7 | 1 << 32));
    assert_eq!((socket.receive_queue, socket.send_queue), (11, 12));
    assert_eq!((socket.uid, socket.inode), (1000, 4711));
    assert_eq!((socket.congestion, socket.is_mptcp), (Some("bbr"), true));
    assert_eq!(socket.memory.unwrap().drops, 9);
    assert_eq!(socket.info.unwrap().retransmits, 1);
}

#[test]
fn unfiltered_notifications_are_checked_for_ports_and_peers() {
    let bytes = message(libc::AF_INET6, mapped(), &[]);
    let socket = parse(&bytes).unwrap();
    let peer = |a, length| Prefix::new(Ipv4Addr::new(198, 18, 0, a), length);
    for (ports, peers, holds) in [
        (vec![], vec![], true),
        (vec![50_000], vec![], true),
        (vec![80, 443], vec![peer(1, 32)], true),
        (vec![80], vec![], false),
        (vec![], vec![peer(2, 32)], false),
        (vec![], vec![peer(2, 32), peer(0, 30)], true),
        (vec![], vec![Prefix::new(Ipv4Addr::UNSPECIFIED, 0)], true),
        (vec![], vec![Prefix::new(Ipv6Addr::UNSPECIFIED, 0)], false),
    ] {
        let states = Filter::CONNECTIONS;
        let filter = Filter { states, ports, peers };
        assert_eq!(filter.is_of_ends(&socket), holds, "{filter:?}");
    }
}

#[test]
fn every_length_is_read_without_panic() {
    let bytes = message(libc::AF_INET, mapped(), &[(INET_DIAG_CONG, b"cubic\0")]);
    for length in 0..bytes.len() {
        let socket = parse(&bytes[..length]);
        assert_eq!(socket.is_some(), length >= MESSAGE, "{length}");
    }
    assert!(parse(&message(libc::AF_UNIX, mapped(), &[])).is_none());
}

#[test]
fn a_link_local_address_has_its_device() {
    let address = "fe80::1".parse::<Ipv6Addr>().unwrap();
    let bytes = message(libc::AF_INET6, address.octets(), &[]);
    assert_eq!(parse(&bytes).unwrap().local.to_string(), "[fe80::1%3]:443");
}

/// Local and remote ports of what a filter lets through.
fn ports(diag: &mut SockDiag, filter: &Filter) -> Vec<(u16, u16)> {
    let mut ports = Vec::new();
    diag.sockets(filter, |socket| {
        ports.push((socket.local.port(), socket.remote.port()));
    })
    .unwrap();
    ports.sort_unstable();
    ports
}

#[test]
fn the_kernel_shows_what_the_filter_lets_through_and_nothing_else() {
    let Some(pair) = pair_or_skip() else { return };
    let mut diag = pair.a.namespace.run(SockDiag::open).unwrap().unwrap();
    let mut kept = Vec::new();
    let mut made = Vec::new();
    for to in pair.b.addresses() {
        let listener = pair.b.namespace.run(|| TcpListener::bind((to, 0)));
        let listener = listener.unwrap().unwrap();
        let target = listener.local_addr().unwrap();
        for _ in 0..2 {
            let stream = pair.a.namespace.run(|| TcpStream::connect(target));
            let stream = stream.unwrap().unwrap();
            made.push((stream.local_addr().unwrap(), target));
            kept.push((stream, listener.accept().unwrap()));
        }
    }
    let all = Filter::new(Filter::CONNECTIONS);
    assert_eq!(ports(&mut diag, &all).len(), 4);
    let listening = Filter::new(Filter::LISTENERS);
    assert!(ports(&mut diag, &listening).is_empty());
    let both = |(local, remote): &(SocketAddr, SocketAddr)| (local.port(), remote.port());
    for one in &made {
        let by_local = Filter { ports: vec![one.0.port(), 1], ..all.clone() };
        assert_eq!(ports(&mut diag, &by_local), [both(one)]);
        let same_target = made.iter().filter(|other| other.1 == one.1);
        let mut expected: Vec<_> = same_target.map(both).collect();
        expected.sort_unstable();
        let by_peer = Filter {
            peers: vec![Prefix::new(Ipv4Addr::new(203, 0, 113, 0), 24), Prefix::host(one.1.ip())],
            ..all.clone()
        };
        assert_eq!(ports(&mut diag, &by_peer), expected);
        let of_both = Filter { ports: vec![1, 2, one.1.port()], ..by_peer };
        assert_eq!(ports(&mut diag, &of_both), expected);
        let neither = Filter { ports: vec![1], ..of_both };
        assert!(ports(&mut diag, &neither).is_empty());
    }
}

#[test]
fn a_strangers_socket_has_the_figures_that_its_owner_reads() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = listener.local_addr().unwrap();
    let mut client = TcpStream::connect(target).unwrap();
    let (mut server, _) = listener.accept().unwrap();
    client.write_all(&[7; 10_000]).unwrap();
    server.read_exact(&mut [0; 10_000]).unwrap();
    let client_port = client.local_addr().unwrap().port();
    let filter = Filter { ports: vec![client_port], ..Filter::new(Filter::CONNECTIONS) };
    let mut seen = None;
    SockDiag::open()
        .unwrap()
        .sockets(&filter, |socket| {
            if socket.local.port() == client_port {
                let congestion = socket.congestion.map(str::to_owned);
                seen = Some((socket.info, socket.memory, congestion));
            }
        })
        .unwrap();
    let (info, memory, congestion) = seen.unwrap();
    let own = TcpInfo::read(&client).unwrap();
    let info = info.unwrap();
    assert_eq!((info.bytes_acked, info.snd_mss), (own.bytes_acked, own.snd_mss));
    let own_memory = socket::memory(&client).unwrap();
    assert_eq!(memory.unwrap().send_buffer, own_memory.send_buffer);
    assert_eq!(congestion, socket::congestion(&client).ok());
}

#[test]
fn a_closed_socket_leaves_its_last_figures() {
    // Apart from the host's own connections, whose ends could fill the buffer.
    let Some(pair) = pair_or_skip() else { return };
    let opened = pair.a.namespace.run(|| {
        let closed = ClosedSockets::open().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (closed, client, listener.accept().unwrap().0)
    });
    let (mut closed, mut client, mut server) = opened.unwrap();
    let port = client.local_addr().unwrap().port();
    client.write_all(&[7; 5_000]).unwrap();
    drop(client);
    server.read_to_end(&mut Vec::new()).unwrap();
    drop(server);
    let mut acked = None;
    assert!(eventually(|| {
        closed.take(|socket| {
            if socket.local.port() == port {
                acked = socket.info.map(|info| info.bytes_acked);
            }
        });
        acked.is_some()
    }));
    assert!(acked >= Some(5_000), "{acked:?}");
}

#[test]
fn subflows_of_mptcp_are_told_apart() {
    if let Err(error) = socket::mptcp_supported() {
        return skip(Need::Mptcp, error);
    }
    let options = ListenOptions { mptcp: Mptcp::On, backlog: 8 };
    let listener = socket::listen("127.0.0.1:0".parse().unwrap(), options).unwrap();
    let target = listener.local_addr().unwrap();
    let client = socket::tcp_socket(target, None, Mptcp::On).unwrap();
    let _client = socket::connect(client, target, PATIENCE).unwrap();
    let filter = Filter { ports: vec![target.port()], ..Filter::new(Filter::CONNECTIONS) };
    let mut subflows = 0;
    SockDiag::open()
        .unwrap()
        .sockets(&filter, |socket| subflows += u32::from(socket.is_mptcp))
        .unwrap();
    assert!(subflows >= 1);
}
