use std::net::TcpListener;
use std::os::fd::AsFd;
use std::time::Duration;

use linerate_testkit::{Need, eventually, skip};

use super::*;
use crate::clock::monotonic_ns;
use crate::poll::{Interest, wait_ready};

/// A signal, as that by which a stopped process goes on, ends a wait.
fn await_ready(socket: &impl AsFd, interest: Interest) {
    let slice = Duration::from_secs(1);
    eventually("an answer", || wait_ready(socket, interest, slice).unwrap());
}

fn loopbacks() -> [IpAddr; 2] {
    ["127.0.0.1".parse().unwrap(), "::1".parse().unwrap()]
}

/// A port where nobody listens, and that the kernel gives to nobody.
fn closed_port(host: IpAddr) -> SocketAddr {
    SocketAddr::new(host, 1)
}

#[test]
fn an_error_of_a_datagram_names_its_sender_its_port_and_its_payload() {
    for host in loopbacks() {
        let socket = ProbeSocket::udp(SocketAddr::new(host, 0), None, true).unwrap();
        let to = closed_port(host);
        let before = monotonic_ns();
        socket.send(to, 9, 0xb8, b"who is there").unwrap();
        await_ready(&socket, Interest::Readable);
        let mut buffer = ReceiveBuffer::new();
        let received = socket.receive_error(&mut buffer).unwrap().unwrap();
        let error = received.error.unwrap();
        assert_eq!(received.bytes, b"who is there");
        assert_eq!(received.from.unwrap().port(), to.port());
        assert_eq!(error.offender, Some(host));
        let (origin, kind, code) = match host {
            IpAddr::V4(_) => (ErrorOrigin::Icmp, 3, 3),
            IpAddr::V6(_) => (ErrorOrigin::Icmpv6, 1, 4),
        };
        assert_eq!((error.origin, error.kind, error.code), (origin, kind, code));
        let after = monotonic_ns();
        // The offset between the clocks is wrong by no more than the time that its measurement
        // takes.
        let slack = after - before;
        assert!((before - slack..=after + slack).contains(&received.at_ns));
        if host.is_ipv4() {
            assert_eq!(received.ttl, Some(64));
        }
        assert!(socket.receive_error(&mut buffer).unwrap().is_none());
    }
}

#[test]
fn a_raw_socket_sees_the_quoted_header_of_a_datagram() {
    for host in loopbacks() {
        let raw = match ProbeSocket::icmp(host, None) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                skip(Need::Root, format_args!("raw sockets need CAP_NET_RAW: {error}"));
                return;
            }
            other => other.unwrap(),
        };
        let socket = ProbeSocket::udp(SocketAddr::new(host, 0), None, false).unwrap();
        socket.send(closed_port(host), 9, 0xb8, b"x").unwrap();
        let mut buffer = ReceiveBuffer::new();
        let mut quote = Vec::new();
        // Other tests may cause messages, too.
        while quote.is_empty() {
            await_ready(&raw, Interest::Readable);
            let Some(received) = raw.receive(&mut buffer).unwrap() else {
                continue;
            };
            assert!(received.ttl.is_some());
            let is_ours = match host {
                IpAddr::V4(_) => received.bytes.get(9) == Some(&0xb8) && received.bytes[16] == 9,
                IpAddr::V6(_) => received.bytes.get(8) == Some(&0x6b) && received.bytes[15] == 9,
            };
            if is_ours {
                quote = received.bytes[8..].to_vec();
            }
        }
        assert_eq!(quote.last(), Some(&b'x'));
    }
}

#[test]
fn a_syn_is_accepted_or_refused() {
    for host in loopbacks() {
        let listener = TcpListener::bind(SocketAddr::new(host, 0)).unwrap();
        let open = listener.local_addr().unwrap();
        assert_eq!(answer_to_syn(host, open), SynAnswer::Accepted);
        assert_eq!(answer_to_syn(host, closed_port(host)), SynAnswer::Refused);
    }
}

fn answer_to_syn(host: IpAddr, to: SocketAddr) -> SynAnswer {
    let syn = SynSocket::send(host, to, (64, 0), None).unwrap();
    await_ready(&syn, Interest::Writable);
    let mut buffer = ReceiveBuffer::new();
    syn.answer(&mut buffer).unwrap().expect("it is writable").0
}

#[test]
fn a_segment_from_another_port_does_not_pass_the_filter() {
    for host in loopbacks() {
        let listener = TcpListener::bind(SocketAddr::new(host, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let raw = match ProbeSocket::tcp(host, None, address.port()) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                skip(Need::Root, format_args!("raw sockets need CAP_NET_RAW: {error}"));
                return;
            }
            other => other.unwrap(),
        };
        let _connection = std::net::TcpStream::connect(address).unwrap();
        await_ready(&raw, Interest::Readable);
        let mut buffer = ReceiveBuffer::new();
        while let Some(received) = raw.receive(&mut buffer).unwrap() {
            assert_eq!(received.bytes[..2], address.port().to_be_bytes());
        }
    }
}

#[test]
fn the_source_of_loopback_is_itself() {
    for host in loopbacks() {
        assert_eq!(source_for(host, None).unwrap(), host);
    }
    assert!(source_for(loopbacks()[0], Some("no-such-link")).is_err());
}

#[test]
fn an_address_without_a_name_has_none() {
    // TEST-NET-1 (RFC 5737). Without a resolver the answer is an error, which says no name either.
    let unnamed = reverse_lookup("192.0.2.1".parse().unwrap());
    assert!(!matches!(unnamed, Ok(Some(_))), "{unnamed:?}");
}

#[test]
fn a_probe_leaves_from_a_link_local_address_by_its_interface() {
    let pair = match crate::netns::Pair::create() {
        Ok(pair) => pair,
        Err(error) => {
            skip(Need::Lab, format_args!("needs network namespaces: {error}"));
            return;
        }
    };
    let local: IpAddr = "fe80::198:18".parse().unwrap();
    let (link, prefix) = (crate::netns::Pair::LINK, crate::netlink::Prefix::new(local, 64));
    pair.a.namespace.configure(|netlink| netlink.add_address(link, prefix)).unwrap();
    let thread = pair.a.namespace.spawn_thread("probe", move || {
        let open = |device| ProbeSocket::udp(SocketAddr::new(local, 0), device, true);
        (open(Some(link)).is_ok(), open(None).is_ok())
    });
    assert_eq!(thread.unwrap().join().unwrap(), (true, false));
}
