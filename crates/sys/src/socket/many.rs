//! Many connections at once: begun without waiting, taken without waiting, and gone without a trace
//! when their process is.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use rustix::net::{SocketFlags, acceptfrom_with};
use socket2::{Domain, Protocol, SockRef, Socket, Type};

use super::option::set;

/// A connection that is made, or being made.
#[derive(Debug)]
pub struct Begun {
    /// Does not block. Closing it, and the end of the process too, resets the connection: no
    /// TIME_WAIT is left.
    pub stream: TcpStream,
    /// It is established: on this host's own links that happens within the call. Else it becomes
    /// writable when it is.
    pub connected: bool,
}

/// Begins to connect from `local`, port included if it is not 0, without waiting. Ports are chosen
/// by the caller because the kernel's own search slows down thirtyfold when half the range is used
/// for one destination; several connections to different destinations may have one port. It has to
/// be one of `net.ipv4.ip_local_port_range`, else the kernel chooses another.
///
/// The result is `None` if the local port is taken: bound by another socket, or in use for `peer`.
///
/// # Errors
/// Out of descriptors or memory; `AddrNotAvailable` if this host does not have the local address;
/// no way there.
pub fn begin_connect(peer: SocketAddr, local: Option<SocketAddr>) -> io::Result<Option<Begun>> {
    let kind = Type::STREAM.nonblocking().cloexec();
    let socket = Socket::new_raw(Domain::for_address(peer), kind, Some(Protocol::TCP))?;
    socket.set_linger(Some(Duration::ZERO))?;
    if let Some(local) = local
        && !choose_local(&socket, local)?
    {
        return Ok(None);
    }
    let connected = match socket.connect(&peer.into()) {
        Ok(()) => true,
        // The answer of one's own host is there by now: it was put off until the call let go of the
        // socket.
        Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => {
            stands(&SockRef::from(&socket), peer)?
        }
        Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => return Ok(None),
        Err(error) => return Err(error),
    };
    Ok(Some(Begun { stream: socket.into(), connected }))
}

/// Sets the address and the port that the connection will have; false if the port is taken.
///
/// A port that is bound is compared with all sockets of that port: an eighth of the CPU time of a
/// million connections to fifty listeners. A range of one port is not.
fn choose_local(socket: &Socket, local: SocketAddr) -> io::Result<bool> {
    // Since Linux 6.3 and 4.2 (include/uapi/linux/in.h).
    const IP_LOCAL_PORT_RANGE: libc::c_int = 51;
    const IP_BIND_ADDRESS_NO_PORT: libc::c_int = 24;
    let option = |option, value: u32| set(socket, libc::SOL_IP, option, &value);
    let port = u32::from(local.port());
    let mut address = local;
    let range = (port << 16) | port;
    match option(IP_LOCAL_PORT_RANGE, range) {
        Ok(()) => {
            address.set_port(0);
            option(IP_BIND_ADDRESS_NO_PORT, 1)
        }
        Err(error) if error.raw_os_error() == Some(libc::ENOPROTOOPT) => {
            socket.set_reuse_address(true)
        }
        Err(error) => Err(error),
    }?;
    match socket.bind(&address.into()) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => Ok(false),
        bound => bound.map(|()| true),
    }
}

/// Whether the connection that was begun to `peer` is established by now. To be asked until it is.
///
/// # Errors
/// The attempt has failed.
pub fn is_established(stream: &TcpStream, peer: SocketAddr) -> io::Result<bool> {
    stands(&SockRef::from(stream), peer)
}

/// Connecting again tells (connect(2)).
fn stands(socket: &Socket, peer: SocketAddr) -> io::Result<bool> {
    match socket.connect(&peer.into()) {
        Ok(()) => Ok(true),
        Err(error) => match error.raw_os_error() {
            Some(libc::EISCONN) => Ok(true),
            Some(libc::EALREADY | libc::EINPROGRESS) => Ok(false),
            _ => Err(error),
        },
    }
}

/// Takes a connection that waits at `listener`, without blocking in it; with the peer's address.
/// Whatever
/// [`super::reset_on_close`] made of the listener holds for it, too.
///
/// # Errors
/// `WouldBlock` if none waits (and the listener does not block); out of descriptors or memory; a
/// connection that ended while it waited.
pub fn accept(listener: &TcpListener) -> io::Result<(TcpStream, IpAddr)> {
    accept_as(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)
}

/// Takes the next connection, for which it waits as long as the listener's receiving calls do. The
/// connection blocks, and its waits are bounded as the listener's are (`sk_clone`,
/// net/core/sock.c).
///
/// # Errors
/// [`io::ErrorKind::WouldBlock`] if there is none; out of descriptors.
pub fn accept_blocking(listener: &TcpListener) -> io::Result<(TcpStream, IpAddr)> {
    accept_as(listener, SocketFlags::CLOEXEC)
}

fn accept_as(listener: &TcpListener, flags: SocketFlags) -> io::Result<(TcpStream, IpAddr)> {
    let (stream, peer) = acceptfrom_with(listener, flags)?;
    let peer: SocketAddr = peer.ok_or(io::ErrorKind::AddrNotAvailable)?.try_into()?;
    Ok((stream.into(), peer.ip()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::poll::{Interest, wait_readable, wait_ready};
    use crate::socket::{ListenOptions, Mptcp, listen, reset_on_close};
    use linerate_testkit::eventually;
    use std::io::{ErrorKind, Read, Write};
    use std::time::Duration;

    /// A signal, as that by which a stopped process goes on, ends a wait.
    const SLICE: Duration = Duration::from_secs(1);

    const LOOPBACK: &str = "127.0.0.1:0";

    fn listener() -> TcpListener {
        let options = ListenOptions { backlog: 8, mptcp: Mptcp::Off };
        let listener = listen(LOOPBACK.parse().unwrap(), options).unwrap();
        reset_on_close(&listener).unwrap();
        listener.set_nonblocking(true).unwrap();
        listener
    }

    #[test]
    fn a_closed_connection_is_reset_from_either_side() {
        let listener = listener();
        let peer = listener.local_addr().unwrap();
        assert_eq!(accept(&listener).unwrap_err().kind(), ErrorKind::WouldBlock);
        for client_closes in [true, false] {
            let begun = begin_connect(peer, None).unwrap().unwrap();
            eventually("it is there", || wait_readable(&listener, SLICE).unwrap());
            let (server, from) = accept(&listener).unwrap();
            assert_eq!(from, peer.ip());
            let mut byte = [0];
            assert_eq!((&server).read(&mut byte).unwrap_err().kind(), ErrorKind::WouldBlock);
            let (closed, mut left) =
                if client_closes { (begun.stream, server) } else { (server, begun.stream) };
            drop(closed);
            eventually("the end is there", || wait_readable(&left, SLICE).unwrap());
            assert_eq!(left.read(&mut byte).unwrap_err().kind(), ErrorKind::ConnectionReset);
        }
    }

    #[test]
    fn two_destinations_share_a_source_port_and_one_does_not() {
        let (a, b) = (listener(), listener());
        let begin =
            |to: &TcpListener, local| begin_connect(to.local_addr().unwrap(), Some(local)).unwrap();
        let first = begin(&a, LOOPBACK.parse().unwrap()).unwrap();
        let local = first.stream.local_addr().unwrap();
        let mut second = begin(&b, local).unwrap();
        assert_eq!(second.stream.local_addr().unwrap(), local);
        let connected = || wait_ready(&second.stream, Interest::Writable, SLICE).unwrap();
        eventually("it is connected", connected);
        second.stream.write_all(b"x").unwrap();
        assert!(begin(&a, local).is_none(), "the port is in use for this destination");
    }

    /// On one's own host that is nearly always within the call that begins it.
    fn outcome(peer: SocketAddr) -> io::Result<()> {
        let begun = begin_connect(peer, None)?.expect("the kernel chooses a free port");
        let mut is_made = begun.connected;
        while !is_made {
            wait_ready(&begun.stream, Interest::Writable, SLICE)?;
            is_made = is_established(&begun.stream, peer)?;
        }
        assert!(is_established(&begun.stream, peer)?, "asked again");
        Ok(())
    }

    #[test]
    fn an_attempt_is_known_to_be_established_or_refused() {
        let listener = listener();
        let peer = listener.local_addr().unwrap();
        outcome(peer).unwrap();
        let closed = "127.0.0.1:1".parse().unwrap();
        assert_eq!(outcome(closed).unwrap_err().kind(), ErrorKind::ConnectionRefused);
    }

    #[test]
    fn a_listeners_port_is_no_source() {
        let (a, b) = (listener(), listener());
        let begun = begin_connect(a.local_addr().unwrap(), b.local_addr().ok()).unwrap();
        assert!(begun.is_none());
    }
}
