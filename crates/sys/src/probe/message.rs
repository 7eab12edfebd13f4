//! Packets with their control messages: TTL and marks on the way out; TTL, time and ICMP errors on
//! the way in.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use socket2::{SockAddr, Socket};

use crate::clock::{RealtimeOffset, monotonic_ns};
use crate::message::{
    ControlMessage, control_messages, receive_message, send_message, since_1970, u16_at, u32_at,
};

/// Where packets are received into, one at a time.
#[derive(Debug)]
pub struct ReceiveBuffer {
    bytes: Vec<u8>,
    clock: RealtimeOffset,
}

impl ReceiveBuffer {
    /// Room for the largest packet that there is.
    pub fn new() -> Self {
        Self { bytes: vec![0; 1 << 16], clock: RealtimeOffset::default() }
    }
}

impl Default for ReceiveBuffer {
    fn default() -> Self {
        Self::new()
    }
}

/// A packet, or an error with the packet that caused it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Received<'a> {
    /// What a datagram socket gives: the payload or the message; of an error what was sent, as far
    /// as it is quoted.
    pub bytes: &'a [u8],
    /// The sender; of an error the address that the packet was sent to.
    pub from: Option<SocketAddr>,
    /// When the kernel got it, ns of [`monotonic_ns`].
    pub at_ns: u64,
    /// TTL or hop limit with which it, or the error, arrived. Not known of errors of IPv6.
    pub ttl: Option<u8>,
    /// The error.
    pub error: Option<ExtendedError>,
}

/// An error of the error queue: `sock_extended_err` of linux/errqueue.h.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExtendedError {
    /// Who says so.
    pub origin: ErrorOrigin,
    /// Type of the ICMP message.
    pub kind: u8,
    /// Code of the ICMP message.
    pub code: u8,
    /// The MTU, where a packet was too big.
    pub info: u32,
    /// The error number.
    pub errno: i32,
    /// Who sent the ICMP message.
    pub offender: Option<IpAddr>,
}

/// Who says that there is an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorOrigin {
    /// This host's kernel.
    Local,
    /// An ICMP message.
    Icmp,
    /// An ICMPv6 message.
    Icmpv6,
    /// Something else, by its number.
    Other(u8),
}

impl Received<'_> {
    /// The same from behind the IPv4 header that raw sockets show; `None` if that is malformed.
    pub(super) fn without_ip_header(self) -> Option<Self> {
        let length = usize::from(self.bytes.first()? & 15) * 4;
        let bytes = self.bytes.get(length.max(20)..)?;
        Some(Self { bytes, ..self })
    }
}

/// Sends `bytes` with a TTL and a traffic class.
pub(super) fn send(
    socket: &Socket,
    to: &SockAddr,
    (ttl, traffic_class): (u8, u8),
    bytes: &[u8],
) -> io::Result<()> {
    let (level, ttl_kind, class_kind) = if to.is_ipv6() {
        (libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT, libc::IPV6_TCLASS)
    } else {
        (libc::IPPROTO_IP, libc::IP_TTL, libc::IP_TOS)
    };
    let [ttl, class] = [ttl, traffic_class].map(|value| libc::c_int::from(value).to_ne_bytes());
    let messages: [ControlMessage<'_>; 2] = [(level, ttl_kind, &ttl), (level, class_kind, &class)];
    send_message(socket, to, bytes, &messages)
}

/// Receives one packet or, with `errors`, one error.
pub(super) fn receive<'a>(
    socket: &Socket,
    buffer: &'a mut ReceiveBuffer,
    errors: bool,
) -> io::Result<Option<Received<'a>>> {
    let flags = libc::MSG_DONTWAIT | if errors { libc::MSG_ERRQUEUE } else { 0 };
    let received = receive_message(socket, &mut buffer.bytes, flags, facts);
    let (length, from, facts) = match received {
        Ok(received) => received,
        Err(error) => match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => return Ok(None),
            _ => return Err(error),
        },
    };
    Ok(Some(Received {
        bytes: &buffer.bytes[..length.min(buffer.bytes.len())],
        from,
        at_ns: facts.realtime_ns.map_or_else(monotonic_ns, |at| buffer.clock.monotonic_ns(at)),
        ttl: facts.ttl,
        error: facts.error,
    }))
}

#[derive(Debug, Default)]
struct MessageFacts {
    ttl: Option<u8>,
    realtime_ns: Option<u64>,
    error: Option<ExtendedError>,
}

/// What the control messages say.
fn facts(header: &libc::msghdr) -> MessageFacts {
    let mut facts = MessageFacts::default();
    for (level, kind, value) in control_messages(header) {
        match (level, kind) {
            (libc::IPPROTO_IP, libc::IP_TTL) | (libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT) => {
                facts.ttl = u32_at(value, 0).and_then(|ttl| u8::try_from(ttl).ok());
            }
            (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) => {
                let nanos = since_1970(value).map(|time| time.as_nanos());
                facts.realtime_ns = nanos.and_then(|nanos| u64::try_from(nanos).ok());
            }
            (libc::IPPROTO_IP, libc::IP_RECVERR) | (libc::IPPROTO_IPV6, libc::IPV6_RECVERR) => {
                facts.error = extended_error(value);
            }
            _ => {}
        }
    }
    facts
}

/// `struct sock_extended_err` and the offender's address behind it.
fn extended_error(bytes: &[u8]) -> Option<ExtendedError> {
    let header: &[u8; 16] = bytes.first_chunk()?;
    let origin = match header[4] {
        libc::SO_EE_ORIGIN_LOCAL => ErrorOrigin::Local,
        libc::SO_EE_ORIGIN_ICMP => ErrorOrigin::Icmp,
        libc::SO_EE_ORIGIN_ICMP6 => ErrorOrigin::Icmpv6,
        other => ErrorOrigin::Other(other),
    };
    Some(ExtendedError {
        origin,
        kind: header[5],
        code: header[6],
        info: u32_at(header, 8)?,
        errno: u32_at(header, 0)?.cast_signed(),
        offender: offender(&bytes[16..]),
    })
}

/// A `sockaddr_in` or `sockaddr_in6`; of family 0 if nobody is named.
fn offender(bytes: &[u8]) -> Option<IpAddr> {
    match libc::c_int::from(u16_at(bytes, 0)?) {
        libc::AF_INET => {
            let octets = bytes.get(4..)?.first_chunk::<4>()?;
            Some(Ipv4Addr::from(*octets).into())
        }
        libc::AF_INET6 => {
            let octets = bytes.get(8..)?.first_chunk::<16>()?;
            Some(Ipv6Addr::from(*octets).into())
        }
        _ => None,
    }
}
