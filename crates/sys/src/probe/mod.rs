//! Probes of a route and the answers to them: datagrams with a TTL of their own, error queues, raw
//! ICMP.
//!
//! | socket | needs | its answers |
//! |---|---|---|
//! | [`ProbeSocket::udp`] | nothing | ICMP errors in its error queue |
//! | [`ProbeSocket::echo`] | a group in net.ipv4.ping_group_range | echo replies; the same errors |
//! | [`ProbeSocket::icmp`] | `CAP_NET_RAW` | all ICMP messages whole, with headers and extensions |
//! | [`ProbeSocket::tcp`] | `CAP_NET_RAW` | TCP segments from one port |
//! | [`SynSocket`] | nothing | one TCP SYN's: accepted, refused, or an ICMP error |
//!
//! The error queue (`IP_RECVERR`) has the type and code of an error, its sender and the probe's
//! payload. All answers have the time at which the kernel got them. [`reverse_lookup`] names who
//! answered.

mod message;

use std::ffi::CStr;
use std::io;
use std::mem::MaybeUninit;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};

pub use message::{ErrorOrigin, ExtendedError, ReceiveBuffer, Received};
use socket2::{Domain, Protocol, SockAddr, SockFilter, SockRef, Socket, Type};

use crate::clock::monotonic_ns;
use crate::socket::set;

/// More packets than a receive buffer of the usual size holds.
const MAX_QUEUED: usize = 1024;

/// A datagram or raw socket that sends each packet with a TTL of its own, through one interface
/// alone if one is given. It never waits.
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
    /// Not an address of this host, no such interface, or no such family.
    pub fn udp(local: SocketAddr, device: Option<&str>, errors: bool) -> io::Result<Self> {
        let socket = Self::new((local.ip(), device), Type::DGRAM, Protocol::UDP, errors)?;
        socket.socket.bind(&local.into())?;
        Ok(socket)
    }

    /// An ICMP datagram socket: echo requests with an error queue; the kernel writes identifier and
    /// checksum.
    ///
    /// # Errors
    /// `EACCES` if net.ipv4.ping_group_range holds none of the caller's groups.
    pub fn echo(local: IpAddr, device: Option<&str>) -> io::Result<Self> {
        let socket = Self::new((local, device), Type::DGRAM, icmp(local), true)?;
        socket.socket.bind(&SocketAddr::new(local, 0).into())?;
        Ok(socket)
    }

    /// A raw socket that receives the ICMP messages that probes cause, and sends whole messages.
    ///
    /// # Errors
    /// `EPERM` without `CAP_NET_RAW`.
    pub fn icmp(local: IpAddr, device: Option<&str>) -> io::Result<Self> {
        let socket = Self::new((local, device), Type::RAW, icmp(local), false)?;
        filter_icmp(&socket.socket, socket.is_ipv6)?;
        socket.socket.bind(&SocketAddr::new(local, 0).into())?;
        Ok(socket)
    }

    /// A raw socket of TCP that receives segments to `local` from the port `peer_port` alone, and
    /// sends whole segments.
    ///
    /// # Errors
    /// `EPERM` without `CAP_NET_RAW`.
    pub fn tcp(local: IpAddr, device: Option<&str>, peer_port: u16) -> io::Result<Self> {
        let socket = Self::new((local, device), Type::RAW, Protocol::TCP, false)?;
        filter_source_port(&socket.socket, peer_port, socket.is_ipv6)?;
        socket.socket.bind(&SocketAddr::new(local, 0).into())?;
        // What came before there was a filter is other people's.
        let mut other = [MaybeUninit::uninit(); 1];
        let queued = (0..MAX_QUEUED).take_while(|_| socket.socket.recv(&mut other).is_ok());
        queued.for_each(drop);
        Ok(socket)
    }

    fn new(
        (local, device): (IpAddr, Option<&str>),
        kind: Type,
        protocol: Protocol,
        errors: bool,
    ) -> io::Result<Self> {
        let is_ipv6 = local.is_ipv6();
        let domain = Domain::for_address(SocketAddr::new(local, 0));
        let socket = Socket::new(domain, kind.nonblocking(), Some(protocol))?;
        if is_ipv6 && kind == Type::DGRAM {
            socket.set_only_v6(true)?;
        }
        prepare(&socket, is_ipv6, errors)?;
        // Before it is bound to a link-local address, which is that of an interface.
        socket.bind_device(device.map(str::as_bytes))?;
        Ok(Self { socket, is_ipv6, is_raw: kind == Type::RAW })
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

/// The ICMP error that ended a connection attempt, if one did; before Linux 5.9 it is not known.
pub fn connect_error(stream: &TcpStream) -> Option<ExtendedError> {
    let mut buffer = ReceiveBuffer::new();
    message::receive(&SockRef::from(stream), &mut buffer, true).ok()??.error
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

// The options of probe sockets.

/// Answers that come in a burst, bytes; 255 hops of some probes each.
const RECEIVE_BUFFER: usize = 1 << 20;
/// From linux/icmp.h and linux/icmpv6.h.
const ICMP_FILTER: libc::c_int = 1;
const ICMP6_FILTER: libc::c_int = 1;
const SOL_RAW: libc::c_int = 255;

/// Time stamps, TTLs and errors are told; nothing is fragmented.
fn prepare(socket: &Socket, is_ipv6: bool, errors: bool) -> io::Result<()> {
    // What the kernel grants will do.
    let _ = socket.set_recv_buffer_size(RECEIVE_BUFFER);
    set(socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, &1)?;
    let errors = libc::c_int::from(errors);
    if is_ipv6 {
        let level = libc::IPPROTO_IPV6;
        set(socket, level, libc::IPV6_RECVHOPLIMIT, &1)?;
        set(socket, level, libc::IPV6_RECVERR, &errors)?;
        set(socket, level, libc::IPV6_MTU_DISCOVER, &libc::IPV6_PMTUDISC_PROBE)
    } else {
        let level = libc::IPPROTO_IP;
        set(socket, level, libc::IP_RECVTTL, &1)?;
        set(socket, level, libc::IP_RECVERR, &errors)?;
        set(socket, level, libc::IP_MTU_DISCOVER, &libc::IP_PMTUDISC_PROBE)
    }
}

/// Lets through what may answer a probe: echo replies and errors.
fn filter_icmp(socket: &Socket, is_ipv6: bool) -> io::Result<()> {
    if is_ipv6 {
        // A bit that is set blocks its type (RFC 3542, section 3.2).
        let mut blocked = [u32::MAX; 8];
        for kind in [1u8, 2, 3, 4, 129] {
            blocked[usize::from(kind >> 5)] &= !(1 << (kind & 31));
        }
        set(socket, libc::IPPROTO_ICMPV6, ICMP6_FILTER, &blocked)
    } else {
        let passed: u32 = [0, 3, 11, 12].map(|kind: u32| 1 << kind).iter().sum();
        set(socket, SOL_RAW, ICMP_FILTER, &!passed)
    }
}

/// Lets through TCP segments from `port`. A raw socket of IPv4 is filtered from the IP header on,
/// one of IPv6 from the segment on (raw_rcv of net/ipv4/raw.c, rawv6_rcv of net/ipv6/raw.c).
fn filter_source_port(socket: &Socket, port: u16, is_ipv6: bool) -> io::Result<()> {
    let step = |code: u32, jt, jf, k| SockFilter::new(code as u16, jt, jf, k);
    let (header_length, load_port) = match is_ipv6 {
        // Zero into X, so that the port is loaded the same way.
        true => (libc::BPF_LDX | libc::BPF_W | libc::BPF_IMM, libc::BPF_IND),
        false => (libc::BPF_LDX | libc::BPF_B | libc::BPF_MSH, libc::BPF_IND),
    };
    let steps = [
        step(header_length, 0, 0, 0),
        step(libc::BPF_LD | libc::BPF_H | load_port, 0, 0, 0),
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, u32::from(port)),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, u32::from(u16::MAX)),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, 0),
    ];
    socket.attach_filter(&steps)
}

// TCP SYN probes without privilege: a connection attempt with a TTL of its own.

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
        prepare(&socket, to.is_ipv6(), true)?;
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

// Names of addresses, by the system's resolver.

/// The name of an address, as /etc/nsswitch.conf says: hosts file, DNS, … `None` if it has none. It
/// may take many seconds.
///
/// # Errors
/// The resolver failed: no server answers, out of memory.
pub fn reverse_lookup(address: IpAddr) -> io::Result<Option<String>> {
    let address = SockAddr::from(SocketAddr::new(address, 0));
    let mut name = [0u8; libc::NI_MAXHOST as usize];
    // SAFETY: the address lives and has the length that is passed along; the call writes a
    // NUL-terminated name of at most the buffer's length.
    let result = unsafe {
        libc::getnameinfo(
            address.as_ptr().cast(),
            address.len(),
            name.as_mut_ptr().cast(),
            name.len() as libc::socklen_t,
            std::ptr::null_mut(),
            0,
            libc::NI_NAMEREQD,
        )
    };
    match result {
        0 => {
            let name = CStr::from_bytes_until_nul(&name).map_err(io::Error::other)?;
            Ok(Some(name.to_string_lossy().into_owned()))
        }
        libc::EAI_NONAME => Ok(None),
        libc::EAI_SYSTEM => Err(io::Error::last_os_error()),
        other => Err(io::Error::other(format!("the resolver failed with code {other}"))),
    }
}

#[cfg(test)]
mod tests;
