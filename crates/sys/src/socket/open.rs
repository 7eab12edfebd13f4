//! Making sockets.

use std::io;
use std::net::{
    IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket,
};
use std::time::Duration;

use socket2::{Domain, Protocol, SockRef, Socket, Type};

/// Whether a TCP socket is to be Multipath TCP (RFC 8684).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mptcp {
    /// Plain TCP.
    Off,
    /// MPTCP; the connection falls back to TCP by itself if the peer has none.
    On,
}

/// How to listen.
#[derive(Debug, Clone, Copy)]
pub struct ListenOptions {
    /// Connections that wait to be accepted.
    pub backlog: u32,
    /// Take MPTCP connections too.
    pub mptcp: Mptcp,
}

/// A TCP socket that is made and not yet connected: set its options, then [`connect`] it.
#[derive(Debug)]
pub struct Connecting(Socket);

impl std::os::fd::AsFd for Connecting {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn domain(address: &SocketAddr) -> Domain {
    Domain::for_address(*address)
}

fn stream_protocol(mptcp: Mptcp) -> Protocol {
    match mptcp {
        Mptcp::Off => Protocol::TCP,
        Mptcp::On => Protocol::from(libc::IPPROTO_MPTCP),
    }
}

/// A TCP socket for the family of `peer`, bound to `source` if one is given.
///
/// # Errors
/// No such family, no MPTCP (`EPROTONOSUPPORT`, `ENOPROTOOPT`), or not an address of this host.
pub fn tcp_socket(
    peer: SocketAddr,
    source: Option<IpAddr>,
    mptcp: Mptcp,
) -> io::Result<Connecting> {
    tcp_socket_from(peer, source, 0, mptcp)
}

/// The same with a port of this host, unless it is 0. An earlier connection from it that waits out
/// its TIME_WAIT does not hold it.
///
/// # Errors
/// As [`tcp_socket`]; the port is in use or needs privileges.
pub fn tcp_socket_from(
    peer: SocketAddr,
    source: Option<IpAddr>,
    port: u16,
    mptcp: Mptcp,
) -> io::Result<Connecting> {
    let socket = Socket::new(domain(&peer), Type::STREAM, Some(stream_protocol(mptcp)))?;
    if source.is_some() || port != 0 {
        socket.set_reuse_address(port != 0)?;
        socket.bind(&SocketAddr::new(source.unwrap_or_else(|| any(&peer)), port).into())?;
    }
    Ok(Connecting(socket))
}

/// The address of `peer`'s family that is every address of this host.
pub fn any(peer: &SocketAddr) -> IpAddr {
    match peer {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    }
}

/// Connects within `timeout`.
///
/// # Errors
/// [`io::ErrorKind::TimedOut`], refused, unreachable, …
pub fn connect(socket: Connecting, peer: SocketAddr, timeout: Duration) -> io::Result<TcpStream> {
    socket.0.connect_timeout(&peer.into(), timeout)?;
    Ok(socket.0.into())
}

/// Begins to connect a socket whose waits are bounded, and waits that long; false if it is still
/// being connected: it becomes writable when it is, or has failed.
///
/// # Errors
/// Refused, unreachable, no local port, …
pub fn connect_bounded(socket: Connecting, peer: SocketAddr) -> io::Result<(TcpStream, bool)> {
    let connected = match socket.0.connect(&peer.into()) {
        Ok(()) => true,
        Err(error) if matches!(error.raw_os_error(), Some(libc::EINPROGRESS | libc::EINTR)) => {
            false
        }
        Err(error) => return Err(error),
    };
    Ok((socket.0.into(), connected))
}

/// A listener on `address`. An IPv6 listener takes IPv6 alone, so that both families can have one.
///
/// # Errors
/// The address is in use, not this host's, or needs privileges; no MPTCP.
pub fn listen(address: SocketAddr, options: ListenOptions) -> io::Result<TcpListener> {
    let protocol = stream_protocol(options.mptcp);
    let socket = Socket::new(domain(&address), Type::STREAM, Some(protocol))?;
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.bind(&address.into())?;
    socket.listen(i32::try_from(options.backlog).unwrap_or(i32::MAX))?;
    Ok(socket.into())
}

/// Whether an IPv6 listener takes clients of IPv4, too, as those that others open often do.
pub fn takes_both_families(listener: &TcpListener) -> bool {
    let is_any = |address: SocketAddr| address.is_ipv6() && address.ip().is_unspecified();
    let takes_ipv4 = || SockRef::from(listener).only_v6().is_ok_and(|only| !only);
    listener.local_addr().is_ok_and(is_any) && takes_ipv4()
}

/// Takes no more connections and leaves the port to the next listener; those that were accepted
/// stay.
///
/// # Errors
/// It listens no more.
pub fn stop_listening(listener: &TcpListener) -> io::Result<()> {
    SockRef::from(listener).shutdown(Shutdown::Read)
}

/// A UDP socket on `local`, connected to `peer` if one is given. With `shared`, other sockets that
/// are shared too may have the same port: the kernel gives a datagram to the one connected to its
/// sender.
///
/// # Errors
/// The address is in use or not this host's.
pub fn udp_socket(
    local: SocketAddr,
    peer: Option<SocketAddr>,
    shared: bool,
) -> io::Result<UdpSocket> {
    let socket = Socket::new(domain(&local), Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_reuse_address(shared)?;
    if local.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.bind(&local.into())?;
    if let Some(peer) = peer {
        socket.connect(&peer.into())?;
    }
    Ok(socket.into())
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Whether this kernel makes MPTCP sockets now.
    pub(crate) fn mptcp_supported() -> io::Result<()> {
        Socket::new(Domain::IPV4, Type::STREAM, Some(stream_protocol(Mptcp::On))).map(drop)
    }

    #[test]
    fn a_port_that_is_left_is_the_next_listeners_and_its_connections_stay() {
        let options = ListenOptions { backlog: 1, mptcp: Mptcp::Off };
        let first = listen(SocketAddr::from(([127, 0, 0, 1], 0)), options).unwrap();
        let local = first.local_addr().unwrap();
        let client = TcpStream::connect(local).unwrap();
        let (kept, _) = first.accept().unwrap();
        assert!(listen(local, options).is_err());
        stop_listening(&first).unwrap();
        listen(local, options).unwrap();
        assert_eq!(kept.peer_addr().unwrap(), client.local_addr().unwrap());
    }

    #[test]
    fn a_socket_has_the_port_that_it_is_given() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let peer = listener.local_addr().unwrap();
        let port = free_port();
        let socket = tcp_socket_from(peer, None, port, Mptcp::Off).unwrap();
        let stream = connect(socket, peer, PATIENCE).unwrap();
        assert_eq!(stream.local_addr().unwrap().port(), port);
        let held = tcp_socket_from(peer, None, peer.port(), Mptcp::Off);
        assert!(held.is_err(), "a listener has it");
    }
    use linerate_testkit::{Need, PATIENCE, free_port, skip, uninterrupted};

    const OPTIONS: ListenOptions = ListenOptions { backlog: 8, mptcp: Mptcp::Off };

    #[test]
    fn a_closed_port_refuses_within_the_timeout() {
        let peer = "127.0.0.1:1".parse().unwrap();
        let socket = tcp_socket(peer, None, Mptcp::Off).unwrap();
        let error = connect(socket, peer, PATIENCE).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    }

    #[test]
    fn both_families_listen_on_one_port() {
        // The kernel's own choice for one family may be taken in the other.
        let port = free_port();
        let _v6 = listen((Ipv6Addr::UNSPECIFIED, port).into(), OPTIONS).unwrap();
        listen((Ipv4Addr::UNSPECIFIED, port).into(), OPTIONS).unwrap();
    }

    #[test]
    fn mptcp_listeners_take_mptcp_and_tcp_clients() {
        if let Err(error) = mptcp_supported() {
            skip(Need::Mptcp, format_args!("no MPTCP here: {error}"));
            return;
        }
        let options = ListenOptions { mptcp: Mptcp::On, ..OPTIONS };
        let listener = listen("127.0.0.1:0".parse().unwrap(), options).unwrap();
        let peer = listener.local_addr().unwrap();
        for mptcp in [Mptcp::On, Mptcp::Off] {
            let socket = tcp_socket(peer, None, mptcp).unwrap();
            let client = connect(socket, peer, PATIENCE).unwrap();
            let (server, _) = listener.accept().unwrap();
            for end in [&client, &server] {
                let info = super::super::mptcp_info(end).unwrap();
                assert_eq!(info.is_some(), mptcp == Mptcp::On);
            }
        }
    }

    #[test]
    fn a_datagram_goes_to_the_socket_connected_to_its_sender() {
        let open = udp_socket("127.0.0.1:0".parse().unwrap(), None, true).unwrap();
        let local = open.local_addr().unwrap();
        let client = udp_socket("127.0.0.1:0".parse().unwrap(), Some(local), false).unwrap();
        let flow = udp_socket(local, client.local_addr().ok(), true).unwrap();
        client.send(b"x").unwrap();
        flow.set_read_timeout(Some(PATIENCE)).unwrap();
        assert_eq!(uninterrupted(|| flow.recv(&mut [0; 8])).unwrap(), 1);
    }
}
