//! TCP SYN probes without privilege: a connection attempt with a TTL of its own.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};

use socket2::{Domain, Protocol, Socket, Type};

use super::message::{self, ExtendedError, ReceiveBuffer};
use super::option;
use crate::clock::monotonic_ns;
use crate::socket::set;

/// One SYN and what becomes of it. Dropping it resets the connection if it came about.
#[derive(Debug)]
pub struct SynSocket {
    socket: Socket,
}

/// Answer to a SYN.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SynAnswer {
    /// The target accepts the connection.
    Accepted,
    /// The target refuses it.
    Refused,
    /// An ICMP message came, with this TTL.
    Error(ExtendedError, Option<u8>),
}

impl SynSocket {
    /// Sends a SYN from a free port of `local`. The kernel sends it once more after a second.
    ///
    /// # Errors
    /// No route, not an address of this host, no such interface, no free port.
    pub fn send(
        local: IpAddr,
        to: SocketAddr,
        (ttl, traffic_class): (u8, u8),
        device: Option<&str>,
    ) -> io::Result<Self> {
        let domain = Domain::for_address(to);
        let socket = Socket::new(domain, Type::STREAM.nonblocking(), Some(Protocol::TCP))?;
        option::prepare(&socket, to.is_ipv6(), true)?;
        let (level, ttl_kind, class_kind) = if to.is_ipv6() {
            (libc::IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS, libc::IPV6_TCLASS)
        } else {
            (libc::IPPROTO_IP, libc::IP_TTL, libc::IP_TOS)
        };
        set(&socket, level, ttl_kind, &libc::c_int::from(ttl))?;
        set(&socket, level, class_kind, &libc::c_int::from(traffic_class))?;
        set(&socket, libc::IPPROTO_TCP, libc::TCP_SYNCNT, &1)?;
        socket.set_linger(Some(std::time::Duration::ZERO))?;
        socket.bind_device(device.map(str::as_bytes))?;
        socket.bind(&SocketAddr::new(local, 0).into())?;
        match socket.connect(&to.into()) {
            Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => Err(error),
            _ => Ok(Self { socket }),
        }
    }

    /// What has become of it, to be asked when it is writable; with the time, ns of
    /// [`monotonic_ns`]. `None` if nothing yet.
    ///
    /// # Errors
    /// It failed in a way that tells nothing of the path, such as a timeout.
    pub fn answer(&self, buffer: &mut ReceiveBuffer) -> io::Result<Option<(SynAnswer, u64)>> {
        if let Some(received) = message::receive(&self.socket, buffer, true)?
            && let Some(error) = received.error
        {
            return Ok(Some((SynAnswer::Error(error, received.ttl), received.at_ns)));
        }
        let now = monotonic_ns();
        match self.socket.take_error()? {
            Some(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                Ok(Some((SynAnswer::Refused, now)))
            }
            Some(error) => Err(error),
            None if self.socket.peer_addr().is_ok() => Ok(Some((SynAnswer::Accepted, now))),
            None => Ok(None),
        }
    }
}

impl AsFd for SynSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
