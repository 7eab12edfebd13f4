//! Probes of a route and the answers to them: datagrams with a TTL of their own, error queues, raw
//! ICMP.
//!
//! | socket | needs | its answers |
//! |---|---|---|
//! | [`ProbeSocket::udp`] | nothing | ICMP errors in its error queue (`IP_RECVERR`): type, code, who, the probe's payload |
//! | [`ProbeSocket::echo`] | the group in net.ipv4.ping_group_range | echo replies; ICMP errors in its error queue |
//! | [`ProbeSocket::icmp`] | `CAP_NET_RAW` | all ICMP messages whole: quoted headers and extensions too |
//! | [`ProbeSocket::tcp`] | `CAP_NET_RAW` | TCP segments from one port |
//! | [`SynSocket`] | nothing | one TCP SYN's: accepted, refused, or an ICMP error |
//!
//! All answers have the time at which the kernel got them.

mod message;
mod name;
mod option;
mod syn;

pub use message::{ErrorOrigin, ExtendedError, ReceiveBuffer, Received};
pub use name::reverse_lookup;
pub use syn::{SynAnswer, SynSocket};

use std::io;
use std::mem::MaybeUninit;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};

use socket2::{Domain, Protocol, SockAddr, Socket, Type};

/// More packets than a receive buffer of the usual size holds.
const MAX_QUEUED: usize = 1024;

/// A datagram or raw socket that sends each packet with a TTL of its own. It never waits.
#[derive(Debug)]
pub struct ProbeSocket {
    socket: Socket,
    is_ipv6: bool,
    is_raw: bool,
}

impl ProbeSocket {
    /// A UDP socket on `local`; port 0 takes a free one. With `errors` it has an error queue.
    ///
    /// # Errors
    /// Not an address of this host, or no such family.
    pub fn udp(local: SocketAddr, errors: bool) -> io::Result<Self> {
        let socket = Self::new(local.ip(), Type::DGRAM, Protocol::UDP, errors)?;
        socket.socket.bind(&local.into())?;
        Ok(socket)
    }

    /// An ICMP datagram socket: echo requests with an error queue; the kernel writes identifier and
    /// checksum.
    ///
    /// # Errors
    /// `EACCES` if net.ipv4.ping_group_range holds none of the caller's groups.
    pub fn echo(local: IpAddr) -> io::Result<Self> {
        let socket = Self::new(local, Type::DGRAM, icmp(local), true)?;
        socket.socket.bind(&SocketAddr::new(local, 0).into())?;
        Ok(socket)
    }

    /// A raw socket that receives the ICMP messages that probes cause, and sends whole messages.
    ///
    /// # Errors
    /// `EPERM` without `CAP_NET_RAW`.
    pub fn icmp(local: IpAddr) -> io::Result<Self> {
        let socket = Self::new(local, Type::RAW, icmp(local), false)?;
        option::filter_icmp(&socket.socket, socket.is_ipv6)?;
        socket.socket.bind(&SocketAddr::new(local, 0).into())?;
        Ok(socket)
    }

    /// A raw socket of TCP that receives segments to `local` from the port `peer_port` alone, and
    /// sends whole segments.
    ///
    /// # Errors
    /// `EPERM` without `CAP_NET_RAW`.
    pub fn tcp(local: IpAddr, peer_port: u16) -> io::Result<Self> {
        let socket = Self::new(local, Type::RAW, Protocol::TCP, false)?;
        option::filter_source_port(&socket.socket, peer_port, socket.is_ipv6)?;
        socket.socket.bind(&SocketAddr::new(local, 0).into())?;
        // What came before there was a filter is other people's.
        let mut other = [MaybeUninit::uninit(); 1];
        let queued = (0..MAX_QUEUED).take_while(|_| socket.socket.recv(&mut other).is_ok());
        queued.for_each(drop);
        Ok(socket)
    }

    fn new(local: IpAddr, kind: Type, protocol: Protocol, errors: bool) -> io::Result<Self> {
        let is_ipv6 = local.is_ipv6();
        let domain = Domain::for_address(SocketAddr::new(local, 0));
        let socket = Socket::new(domain, kind.nonblocking(), Some(protocol))?;
        if is_ipv6 && kind == Type::DGRAM {
            socket.set_only_v6(true)?;
        }
        option::prepare(&socket, is_ipv6, errors)?;
        Ok(Self { socket, is_ipv6, is_raw: kind == Type::RAW })
    }

    /// Sends through this interface alone.
    ///
    /// # Errors
    /// No such interface.
    pub fn bind_device(&self, device: &str) -> io::Result<()> {
        self.socket.bind_device(Some(device.as_bytes()))
    }

    /// The address that it is bound to; the port of an echo socket is its identifier.
    ///
    /// # Errors
    /// None that a caller can mend.
    pub fn local_address(&self) -> io::Result<SocketAddr> {
        let address = self.socket.local_addr()?;
        let unknown = || io::Error::other("the kernel names no address");
        address.as_socket().ok_or_else(unknown)
    }

    /// Sends one packet: a payload (UDP), a message (echo, ICMP) or a segment (TCP). It is never
    /// fragmented, nor held to what the kernel believes the path's MTU to be.
    ///
    /// # Errors
    /// `EMSGSIZE` if the interface is too narrow; an error that waits on the socket, which is
    /// cleared by that: nothing was sent then.
    pub fn send(&self, to: SocketAddr, ttl: u8, traffic_class: u8, bytes: &[u8]) -> io::Result<()> {
        // A raw socket of IPv6 takes the port for a protocol number.
        let port = if self.is_raw { 0 } else { to.port() };
        let to = SockAddr::from(SocketAddr::new(to.ip(), port));
        message::send(&self.socket, &to, (ttl, traffic_class), bytes)
    }

    /// The next packet; `None` if there is none.
    ///
    /// # Errors
    /// An error that waits on the socket, which is cleared by that.
    pub fn receive<'a>(&self, buffer: &'a mut ReceiveBuffer) -> io::Result<Option<Received<'a>>> {
        let received = message::receive(&self.socket, buffer, false)?;
        // Those of IPv4 show the IP header, too.
        Ok(received.and_then(|received| {
            if self.is_raw && !self.is_ipv6 { received.without_ip_header() } else { Some(received) }
        }))
    }

    /// The next error of the error queue with the packet that caused it; `None` if there is none.
    ///
    /// # Errors
    /// None that a caller can mend.
    pub fn receive_error<'a>(
        &self,
        buffer: &'a mut ReceiveBuffer,
    ) -> io::Result<Option<Received<'a>>> {
        message::receive(&self.socket, buffer, true)
    }
}

impl AsFd for ProbeSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// The address that packets to `target` are sent from, by `device` if one is given.
///
/// # Errors
/// No route (`ENETUNREACH`), no such interface.
pub fn source_for(target: IpAddr, device: Option<&str>) -> io::Result<IpAddr> {
    // Any port will do: nothing is sent.
    const DISCARD: u16 = 9;
    let target = SocketAddr::new(target, DISCARD);
    let socket = Socket::new(Domain::for_address(target), Type::DGRAM, Some(Protocol::UDP))?;
    socket.bind_device(device.map(str::as_bytes))?;
    socket.connect(&target.into())?;
    let address = socket.local_addr()?.as_socket().map(|address| address.ip());
    address.ok_or_else(|| io::Error::other("the kernel names no address"))
}

fn icmp(local: IpAddr) -> Protocol {
    match local {
        IpAddr::V4(_) => Protocol::ICMPV4,
        IpAddr::V6(_) => Protocol::ICMPV6,
    }
}

#[cfg(test)]
mod tests;
