//! Packets with their control messages: TTL and marks on the way out; TTL, time and ICMP errors on
//! the way in.

use std::io;
use std::mem::size_of;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use socket2::{SockAddr, Socket};

use crate::clock::{RealtimeOffset, monotonic_ns};
use crate::message::{receive_message, send_message};

/// Where packets are received into, one at a time.
#[derive(Debug)]
pub struct ReceiveBuffer {
    bytes: Vec<u8>,
    clock: RealtimeOffset,
}

impl ReceiveBuffer {
    /// Room for the largest packet that there is.
    pub fn new() -> Self {
        Self {
            bytes: vec![0; 1 << 16],
            clock: RealtimeOffset::default(),
        }
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
    let values = [(ttl_kind, ttl), (class_kind, traffic_class)];
    send_message(socket, to, bytes, |header| put(header, level, values))
}

/// Writes control messages of one int each, and says how long they are together.
fn put(header: &libc::msghdr, level: libc::c_int, values: [(libc::c_int, u8); 2]) -> usize {
    const INT: u32 = size_of::<libc::c_int>() as u32;
    // SAFETY: the control buffer has room for two such messages, is zeroed and aligned; the macros
    // stay within it.
    unsafe {
        let mut message = libc::CMSG_FIRSTHDR(header);
        for (kind, value) in values {
            (*message).cmsg_level = level;
            (*message).cmsg_type = kind;
            (*message).cmsg_len = libc::CMSG_LEN(INT) as _;
            let value = libc::c_int::from(value);
            libc::CMSG_DATA(message)
                .cast::<libc::c_int>()
                .write_unaligned(value);
            message = libc::CMSG_NXTHDR(header, message);
        }
        2 * libc::CMSG_SPACE(INT) as usize
    }
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
        at_ns: facts
            .realtime_ns
            .map_or_else(monotonic_ns, |at| buffer.clock.monotonic_ns(at)),
        ttl: facts.ttl,
        error: facts.error,
    }))
}

#[derive(Debug, Default)]
struct Facts {
    ttl: Option<u8>,
    realtime_ns: Option<u64>,
    error: Option<ExtendedError>,
}

/// What the control messages say.
fn facts(header: &libc::msghdr) -> Facts {
    let mut facts = Facts::default();
    // SAFETY: the kernel has filled the control buffer, whose length the header says; the macros
    // stay within it. Each value is read as the type that the kernel writes for it, and only as far
    // as the message is long.
    unsafe {
        let mut message = libc::CMSG_FIRSTHDR(header);
        while !message.is_null() {
            let data = libc::CMSG_DATA(message);
            let length = ((*message).cmsg_len as usize).saturating_sub(libc::CMSG_LEN(0) as usize);
            let bytes = std::slice::from_raw_parts(data, length);
            match ((*message).cmsg_level, (*message).cmsg_type) {
                (libc::IPPROTO_IP, libc::IP_TTL) | (libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT) => {
                    facts.ttl = int(bytes, 0).and_then(|ttl| u8::try_from(ttl).ok());
                }
                (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) => facts.realtime_ns = time(bytes),
                (libc::IPPROTO_IP, libc::IP_RECVERR) | (libc::IPPROTO_IPV6, libc::IPV6_RECVERR) => {
                    facts.error = extended_error(bytes);
                }
                _ => {}
            }
            message = libc::CMSG_NXTHDR(header, message);
        }
    }
    facts
}

fn int(bytes: &[u8], at: usize) -> Option<u32> {
    let four: [u8; 4] = bytes.get(at..at + 4)?.try_into().ok()?;
    Some(u32::from_ne_bytes(four))
}

/// A `timespec` since 1970, in ns.
fn time(bytes: &[u8]) -> Option<u64> {
    const WORD: usize = size_of::<libc::time_t>();
    let word = |at: usize| -> Option<u64> {
        match bytes.get(at..at + WORD)? {
            wide if WORD == 8 => Some(u64::from_ne_bytes(wide.try_into().ok()?)),
            _ => int(bytes, at).map(u64::from),
        }
    };
    word(0)?
        .checked_mul(1_000_000_000)?
        .checked_add(word(WORD)?)
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
        info: int(header, 8)?,
        errno: int(header, 0)?.cast_signed(),
        offender: offender(&bytes[16..]),
    })
}

/// A `sockaddr_in` or `sockaddr_in6`; of family 0 if nobody is named.
fn offender(bytes: &[u8]) -> Option<IpAddr> {
    let family: [u8; 2] = bytes.get(..2)?.try_into().ok()?;
    match libc::c_int::from(u16::from_ne_bytes(family)) {
        libc::AF_INET => {
            let octets: [u8; 4] = bytes.get(4..8)?.try_into().ok()?;
            Some(Ipv4Addr::from(octets).into())
        }
        libc::AF_INET6 => {
            let octets: [u8; 16] = bytes.get(8..24)?.try_into().ok()?;
            Some(Ipv6Addr::from(octets).into())
        }
        _ => None,
    }
}
