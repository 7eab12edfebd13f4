//! Datagrams with the address of this host that they were sent to: a socket that is bound to no
//! address answers from another one, by the route, where a host has several. And with the time at
//! which the kernel took them, and their hop limit.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, UdpSocket};
use std::time::Duration;

use socket2::SockAddr;

use super::option::set;
use crate::message::{control_messages, receive_message, send_message, since_1970, u32_at};

/// A datagram that [`receive_from`] has taken, and what the kernel says of it where it was asked
/// to.
#[derive(Debug, Clone, Copy)]
pub struct Arrival {
    /// How long it is.
    pub length: usize,
    /// Who sent it.
    pub from: SocketAddr,
    /// To which address and port of this host ([`note_destinations`]).
    pub to: Option<SocketAddr>,
    /// When it arrived, since 1970 ([`note_arrivals`]).
    pub at: Option<Duration>,
    /// The hop limit that it had then ([`note_arrivals`]).
    pub ttl: Option<u8>,
}

/// Has [`receive_from`] tell the address that datagrams were sent to.
///
/// # Errors
/// The kernel refuses.
pub fn note_destinations(socket: &UdpSocket) -> io::Result<()> {
    match socket.local_addr()? {
        SocketAddr::V4(_) => switch_on(socket, libc::IPPROTO_IP, libc::IP_PKTINFO),
        SocketAddr::V6(_) => switch_on(socket, libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO),
    }
}

/// Has [`receive_from`] tell when datagrams arrived, by the kernel's stamp, and with which hop
/// limit.
///
/// # Errors
/// The kernel refuses.
pub fn note_arrivals(socket: &UdpSocket) -> io::Result<()> {
    switch_on(socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS)?;
    match socket.local_addr()? {
        SocketAddr::V4(_) => switch_on(socket, libc::IPPROTO_IP, libc::IP_RECVTTL),
        SocketAddr::V6(_) => switch_on(socket, libc::IPPROTO_IPV6, libc::IPV6_RECVHOPLIMIT),
    }
}

fn switch_on(socket: &UdpSocket, level: libc::c_int, name: libc::c_int) -> io::Result<()> {
    set(socket, level, name, &1_i32)
}

/// Receives a datagram.
///
/// # Errors
/// Errors of recvmsg(2).
pub fn receive_from(socket: &UdpSocket, bytes: &mut [u8]) -> io::Result<Arrival> {
    let read = |header: &_| {
        let mut arrival = Arrival {
            length: 0,
            from: (Ipv4Addr::UNSPECIFIED, 0).into(),
            to: None,
            at: None,
            ttl: None,
        };
        read_control(header, socket, &mut arrival).map(|()| arrival)
    };
    let (length, from, arrival) = receive_message(socket, bytes, 0, read)?;
    let no_sender = || io::Error::other("a datagram without a sender's address");
    Ok(Arrival { length, from: from.ok_or_else(no_sender)?, ..arrival? })
}

/// Sends a datagram from an address of this host's.
///
/// # Errors
/// Those of sendmsg(2), among them an address that is not this host's.
pub fn send_from(
    socket: &UdpSocket,
    bytes: &[u8],
    to: SocketAddr,
    from: SocketAddr,
) -> io::Result<()> {
    let mut info = [0; 20];
    let (level, kind, length) = match from {
        // `struct in_pktinfo`: an interface, the source, the destination.
        SocketAddr::V4(from) => {
            info[4..8].copy_from_slice(&from.ip().octets());
            (libc::IPPROTO_IP, libc::IP_PKTINFO, 12)
        }
        // `struct in6_pktinfo`: the source, an interface.
        SocketAddr::V6(from) => {
            info[..16].copy_from_slice(&from.ip().octets());
            info[16..].copy_from_slice(&from.scope_id().to_ne_bytes());
            (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, 20)
        }
    };
    let to = SockAddr::from(to);
    send_message(socket, &to, bytes, &[(level, kind, &info[..length])])
}

/// What the kernel says of a datagram; of a broadcast or multicast the address to answer from.
fn read_control(
    header: &libc::msghdr,
    socket: &UdpSocket,
    datagram: &mut Arrival,
) -> io::Result<()> {
    for (level, kind, value) in control_messages(header) {
        match (level, kind) {
            (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                let octets = value.get(4..).and_then(<[u8]>::first_chunk::<4>);
                let address = octets.map(|octets| Ipv4Addr::from(*octets));
                let port = socket.local_addr()?.port();
                datagram.to = address.map(|address| (address, port).into());
            }
            (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                let octets = value.first_chunk::<16>();
                let address = octets.map(|octets| Ipv6Addr::from(*octets));
                let port = socket.local_addr()?.port();
                datagram.to = address.map(|address| {
                    // Only a link-local address is of one interface.
                    let scope = u32_at(value, 16).filter(|_| address.is_unicast_link_local());
                    SocketAddrV6::new(address, port, 0, scope.unwrap_or(0)).into()
                });
            }
            (libc::IPPROTO_IP, libc::IP_TTL) | (libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT) => {
                datagram.ttl = u32_at(value, 0).and_then(|ttl| u8::try_from(ttl).ok());
            }
            (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) => datagram.at = since_1970(value),
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use linerate_testkit::{PATIENCE, uninterrupted};

    use super::*;
    use crate::socket::udp_socket;

    #[test]
    fn a_datagram_is_answered_from_the_address_that_it_was_sent_to() {
        let server = udp_socket("0.0.0.0:0".parse().unwrap(), None, true).unwrap();
        note_destinations(&server).unwrap();
        note_arrivals(&server).unwrap();
        let port = server.local_addr().unwrap().port();
        for address in [Ipv4Addr::LOCALHOST, Ipv4Addr::new(127, 0, 0, 9)] {
            let asked = SocketAddr::from((address, port));
            let client = udp_socket("127.0.0.1:0".parse().unwrap(), Some(asked), false).unwrap();
            client.set_read_timeout(Some(PATIENCE)).unwrap();
            client.send(b"?").unwrap();
            let mut bytes = [0; 8];
            let got = receive_from(&server, &mut bytes).unwrap();
            assert_eq!((got.length, got.to), (1, Some(asked)));
            assert_eq!(Some(got.from), client.local_addr().ok());
            assert!(got.at.is_some() && got.ttl.is_some_and(|ttl| ttl > 0));
            send_from(&server, b"!", got.from, asked).unwrap();
            // A connected socket takes nothing from another address.
            assert_eq!(uninterrupted(|| client.recv(&mut bytes)).unwrap(), 1);
        }
    }

    #[test]
    fn ipv6_tells_and_takes_the_address_too() {
        let Ok(server) = udp_socket("[::]:0".parse().unwrap(), None, true) else {
            linerate_testkit::skip(linerate_testkit::Need::Ipv6, "needs IPv6");
            return;
        };
        note_destinations(&server).unwrap();
        note_arrivals(&server).unwrap();
        let asked = SocketAddr::from((Ipv6Addr::LOCALHOST, server.local_addr().unwrap().port()));
        let client = UdpSocket::bind("[::1]:0").unwrap();
        client.send_to(b"?", asked).unwrap();
        let got = receive_from(&server, &mut [0; 8]).unwrap();
        assert_eq!(got.to, Some(asked));
        assert!(got.at.is_some() && got.ttl.is_some_and(|ttl| ttl > 0));
        send_from(&server, b"!", got.from, asked).unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        let answered = uninterrupted(|| client.recv_from(&mut [0; 8]));
        assert_eq!(answered.unwrap().1, asked);
    }
}
