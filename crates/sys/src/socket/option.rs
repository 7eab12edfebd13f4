//! Socket options, set and read back.

use std::ffi::CStr;
use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use socket2::SockRef;
use thiserror::Error;

/// An option that the kernel refused, or did not set as asked.
#[derive(Debug, Error)]
pub enum OptionError {
    /// The system call failed.
    #[error("cannot set {option} to {value}{}", hint(option, source))]
    Set {
        /// As socket(7), tcp(7) and ip(7) name it.
        option: &'static str,
        /// What was asked for.
        value: String,
        /// From the kernel.
        source: io::Error,
    },
    /// The value cannot be read.
    #[error("cannot read {option}")]
    Read {
        /// As socket(7), tcp(7) and ip(7) name it.
        option: &'static str,
        /// From the kernel.
        source: io::Error,
    },
    /// The kernel set something else.
    #[error("{option} was set to {asked} and reads {granted}: {why}")]
    NotTaken {
        /// As socket(7), tcp(7) and ip(7) name it.
        option: &'static str,
        /// What was asked for.
        asked: u64,
        /// What it reads.
        granted: u64,
        /// What limits it.
        why: &'static str,
    },
}

fn hint(option: &str, error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::EOPNOTSUPP) if option == "TCP_FASTOPEN_CONNECT" => {
            " (sysctl net.ipv4.tcp_fastopen=3 allows it)"
        }
        Some(libc::EPERM) if option == "SO_BUSY_POLL" => {
            " (it needs privileges: CAP_NET_ADMIN, or as much in net.core.busy_read)"
        }
        Some(libc::EPERM) => {
            " (it needs privileges: CAP_NET_ADMIN, or an entry in net.ipv4.tcp_allowed_congestion_control)"
        }
        Some(libc::ENOENT) => " (this kernel does not have it; modprobe may load it)",
        Some(libc::ENODEV) => " (no such interface)",
        Some(libc::EINVAL) => " (out of the kernel's range)",
        _ => "",
    }
}

/// Sets an option; `T` is plain data of the layout that the kernel reads for it.
pub(crate) fn set<T: Copy>(
    socket: &impl AsFd,
    level: libc::c_int,
    name: libc::c_int,
    value: &T,
) -> io::Result<()> {
    // SAFETY: the pointer and length are those of a live value that the kernel only reads.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            level,
            name,
            std::ptr::from_ref(value).cast(),
            size_of::<T>() as libc::socklen_t,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Reads an option into `buffer`; answers how many bytes the kernel wrote.
pub(crate) fn read_bytes(
    socket: &impl AsFd,
    level: libc::c_int,
    name: libc::c_int,
    buffer: &mut [u8],
) -> io::Result<usize> {
    let mut length = buffer.len() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes, which is the buffer's own length.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            level,
            name,
            buffer.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    if result == 0 {
        Ok(length as usize)
    } else {
        Err(io::Error::last_os_error())
    }
}

/// An option that is an `int`: its level, its number and its name.
type Number = (libc::c_int, libc::c_int, &'static str);

const RECEIVE_BUFFER: Number = (libc::SOL_SOCKET, libc::SO_RCVBUF, "SO_RCVBUF");
const SEND_BUFFER: Number = (libc::SOL_SOCKET, libc::SO_SNDBUF, "SO_SNDBUF");
const BUFFER_LOCKS: Number = (libc::SOL_SOCKET, 72, "SO_BUF_LOCK");
const BUSY_POLL: Number = (libc::SOL_SOCKET, libc::SO_BUSY_POLL, "SO_BUSY_POLL");
const WINDOW_CLAMP: Number = (
    libc::IPPROTO_TCP,
    libc::TCP_WINDOW_CLAMP,
    "TCP_WINDOW_CLAMP",
);
const MSS: Number = (libc::IPPROTO_TCP, libc::TCP_MAXSEG, "TCP_MAXSEG");
const QUICKACK: Number = (libc::IPPROTO_TCP, libc::TCP_QUICKACK, "TCP_QUICKACK");
const DEFER_ACCEPT: Number = (
    libc::IPPROTO_TCP,
    libc::TCP_DEFER_ACCEPT,
    "TCP_DEFER_ACCEPT",
);
const THIN_LINEAR_TIMEOUTS: Number = (
    libc::IPPROTO_TCP,
    libc::TCP_THIN_LINEAR_TIMEOUTS,
    "TCP_THIN_LINEAR_TIMEOUTS",
);
const IPV4_CLASS: Number = (libc::IPPROTO_IP, libc::IP_TOS, "IP_TOS");
const IPV6_CLASS: Number = (libc::IPPROTO_IPV6, libc::IPV6_TCLASS, "IPV6_TCLASS");
const IPV4_MTU: Number = (libc::IPPROTO_IP, libc::IP_MTU, "IP_MTU");
const IPV6_MTU: Number = (libc::IPPROTO_IPV6, libc::IPV6_MTU, "IPV6_MTU");
pub(super) const FASTOPEN: Number = (libc::IPPROTO_TCP, libc::TCP_FASTOPEN, "TCP_FASTOPEN");
pub(super) const FASTOPEN_CONNECT: Number = (
    libc::IPPROTO_TCP,
    libc::TCP_FASTOPEN_CONNECT,
    "TCP_FASTOPEN_CONNECT",
);

/// Sets an option to a number, or to the largest that an `int` can be.
pub(super) fn set_number(
    socket: &impl AsFd,
    (level, name, option): Number,
    number: u32,
) -> Result<(), OptionError> {
    let value = i32::try_from(number).unwrap_or(i32::MAX);
    set(socket, level, name, &value).map_err(set_error(option, number))
}

fn number(socket: &impl AsFd, (level, name, option): Number) -> Result<u32, OptionError> {
    let mut bytes = [0; 4];
    read_bytes(socket, level, name, &mut bytes).map_err(read_error(option))?;
    Ok(u32::from_ne_bytes(bytes))
}

/// That of two options which is of the socket's family.
fn of_family(socket: &impl AsFd, v4: Number, v6: Number) -> Result<Number, OptionError> {
    let domain = SockRef::from(socket).domain();
    let is_v6 = domain.map_err(read_error("SO_DOMAIN"))? == socket2::Domain::IPV6;
    Ok(if is_v6 { v6 } else { v4 })
}

pub(super) fn set_error(
    option: &'static str,
    value: impl ToString,
) -> impl FnOnce(io::Error) -> OptionError {
    let value = value.to_string();
    move |source| OptionError::Set {
        option,
        value,
        source,
    }
}

fn read_error(option: &'static str) -> impl FnOnce(io::Error) -> OptionError {
    move |source| OptionError::Read { option, source }
}

/// `SO_RCVBUF`; the kernel doubles what it is given. Answers what it reads then.
///
/// # Errors
/// [`OptionError::NotTaken`] if `net.core.rmem_max` is smaller.
pub fn set_receive_buffer(socket: &impl AsFd, bytes: u32) -> Result<u32, OptionError> {
    set_buffer(
        socket,
        RECEIVE_BUFFER,
        bytes,
        "sysctl net.core.rmem_max limits it",
    )
}

/// `TCP_WINDOW_CLAMP`, bytes: what the kernel took it to be when the buffer was smaller stays in
/// the way of a larger one. It is no limit to rely on: the kernel sets it anew as it learns of
/// packets.
///
/// # Errors
/// The kernel refuses; it is no TCP socket.
pub fn set_window_clamp(socket: &impl AsFd, bytes: u32) -> Result<(), OptionError> {
    set_number(socket, WINDOW_CLAMP, bytes)
}

/// `SO_SNDBUF`; the kernel doubles what it is given. Answers what it reads then.
///
/// # Errors
/// [`OptionError::NotTaken`] if `net.core.wmem_max` is smaller.
pub fn set_send_buffer(socket: &impl AsFd, bytes: u32) -> Result<u32, OptionError> {
    set_buffer(
        socket,
        SEND_BUFFER,
        bytes,
        "sysctl net.core.wmem_max limits it",
    )
}

/// More than asked is the kernel's smallest buffer and holds; less is not what was asked for.
fn set_buffer(
    socket: &impl AsFd,
    which: Number,
    bytes: u32,
    why: &'static str,
) -> Result<u32, OptionError> {
    let (level, name, option) = which;
    let value = bytes.min(i32::MAX as u32 / 2) as i32;
    set(socket, level, name, &value).map_err(set_error(option, bytes))?;
    let granted = number(socket, which)?;
    if u64::from(granted) < 2 * u64::from(bytes) {
        return Err(OptionError::NotTaken {
            option,
            asked: bytes.into(),
            granted: u64::from(granted) / 2,
            why,
        });
    }
    Ok(granted)
}

/// `SO_RCVBUF` as it reads: twice what may be used for payload and its overhead.
///
/// # Errors
/// The socket is gone.
pub fn receive_buffer(socket: &impl AsFd) -> Result<u32, OptionError> {
    number(socket, RECEIVE_BUFFER)
}

/// Which buffers of a socket the application fixed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BufferLocks {
    /// `SO_SNDBUF` was set.
    pub send: bool,
    /// `SO_RCVBUF` was set.
    pub receive: bool,
}

/// `SO_SNDBUF` as it reads.
///
/// # Errors
/// The socket is gone.
pub fn send_buffer(socket: &impl AsFd) -> Result<u32, OptionError> {
    number(socket, SEND_BUFFER)
}

/// Whether the application fixed the send and the receive buffer (`SO_BUF_LOCK`), so that the
/// kernel does not tune them. Since Linux 5.14.
///
/// # Errors
/// The kernel has no such option.
pub fn buffer_locks(socket: &impl AsFd) -> Result<BufferLocks, OptionError> {
    // SOCK_SNDBUF_LOCK and SOCK_RCVBUF_LOCK, include/net/sock.h.
    let bits = number(socket, BUFFER_LOCKS)?;
    Ok(BufferLocks {
        send: bits & 1 != 0,
        receive: bits & 2 != 0,
    })
}

/// `TCP_MAXSEG` before the connection: the largest segment to offer and to send, options not taken
/// off.
///
/// # Errors
/// Outside 88 to 32,767.
pub fn set_mss(socket: &impl AsFd, bytes: u32) -> Result<(), OptionError> {
    set_number(socket, MSS, bytes)
}

/// `TCP_CONGESTION`.
///
/// # Errors
/// The kernel does not have it, or does not allow it without privileges.
pub fn set_congestion(socket: &impl AsFd, name: &str) -> Result<(), OptionError> {
    SockRef::from(socket)
        .set_tcp_congestion(name.as_bytes())
        .map_err(set_error("TCP_CONGESTION", name))
}

/// The congestion control in force.
///
/// # Errors
/// The socket is gone or is not TCP.
pub fn congestion(socket: &impl AsFd) -> Result<String, OptionError> {
    let mut name = [0; 16];
    let length = read_bytes(socket, libc::IPPROTO_TCP, libc::TCP_CONGESTION, &mut name)
        .map_err(read_error("TCP_CONGESTION"))?;
    let name = CStr::from_bytes_until_nul(&name[..length]).unwrap_or_default();
    Ok(name.to_string_lossy().into_owned())
}

/// `TCP_NODELAY`.
///
/// # Errors
/// The socket is gone or is not TCP.
pub fn set_nodelay(socket: &impl AsFd, on: bool) -> Result<(), OptionError> {
    SockRef::from(socket)
        .set_tcp_nodelay(on)
        .map_err(set_error("TCP_NODELAY", on))
}

/// Whether `TCP_NODELAY` is set.
///
/// # Errors
/// The socket is gone or is not TCP.
pub fn nodelay(socket: &impl AsFd) -> Result<bool, OptionError> {
    SockRef::from(socket)
        .tcp_nodelay()
        .map_err(read_error("TCP_NODELAY"))
}

/// `TCP_QUICKACK`: on, what is to be acknowledged now is, and until the kernel thinks better of it
/// each segment at once; off, acknowledgements wait. It does not last: the kernel changes it with
/// the traffic.
///
/// # Errors
/// The socket is gone or is not TCP.
pub fn set_quickack(socket: &impl AsFd, on: bool) -> Result<(), OptionError> {
    set_number(socket, QUICKACK, on.into())
}

/// Whether segments are acknowledged at once just now (`TCP_QUICKACK`).
///
/// # Errors
/// The socket is gone or is not TCP.
pub fn quickack(socket: &impl AsFd) -> Result<bool, OptionError> {
    Ok(number(socket, QUICKACK)? != 0)
}

/// `TCP_THIN_LINEAR_TIMEOUTS`: while fewer than four segments are unacknowledged, the first six
/// retransmission timeouts in a row are as long as the first, instead of twice as long each time.
///
/// # Errors
/// The socket is gone or is not TCP.
pub fn set_thin_linear_timeouts(socket: &impl AsFd, on: bool) -> Result<(), OptionError> {
    set_number(socket, THIN_LINEAR_TIMEOUTS, on.into())
}

/// Whether `TCP_THIN_LINEAR_TIMEOUTS` is set.
///
/// # Errors
/// The socket is gone or is not TCP.
pub fn thin_linear_timeouts(socket: &impl AsFd) -> Result<bool, OptionError> {
    Ok(number(socket, THIN_LINEAR_TIMEOUTS)? != 0)
}

/// `SO_BUSY_POLL`: how long a receiving call spins for packets, µs.
///
/// # Errors
/// Without `CAP_NET_ADMIN` for more than it is; [`OptionError::NotTaken`] if it reads otherwise.
pub fn set_busy_poll(socket: &impl AsFd, microseconds: u32) -> Result<(), OptionError> {
    set_number(socket, BUSY_POLL, microseconds)?;
    let granted = busy_poll(socket)?;
    if granted != microseconds {
        return Err(OptionError::NotTaken {
            option: "SO_BUSY_POLL",
            asked: microseconds.into(),
            granted: granted.into(),
            why: "the kernel took something else",
        });
    }
    Ok(())
}

/// `SO_BUSY_POLL`, µs.
///
/// # Errors
/// The kernel has no busy polling.
pub fn busy_poll(socket: &impl AsFd) -> Result<u32, OptionError> {
    number(socket, BUSY_POLL)
}

/// A number that the socket's network namespace alone has had since the host was booted
/// (`SO_NETNS_COOKIE`, Linux 5.14).
///
/// # Errors
/// The kernel has no such option.
pub fn namespace_cookie(socket: &impl AsFd) -> Result<u64, OptionError> {
    let mut bytes = [0; 8];
    read_bytes(socket, libc::SOL_SOCKET, SO_NETNS_COOKIE, &mut bytes)
        .map_err(read_error("SO_NETNS_COOKIE"))?;
    Ok(u64::from_ne_bytes(bytes))
}

/// include/uapi/asm-generic/socket.h; libc has it for glibc alone.
const SO_NETNS_COOKIE: libc::c_int = 71;

/// `SO_MAX_PACING_RATE`, bytes per second. TCP paces by itself; UDP only where the device has fq.
///
/// # Errors
/// The kernel does not have it.
pub fn set_max_pacing_rate(socket: &impl AsFd, bytes_per_s: u64) -> Result<(), OptionError> {
    set(
        socket,
        libc::SOL_SOCKET,
        libc::SO_MAX_PACING_RATE,
        &bytes_per_s,
    )
    .map_err(set_error("SO_MAX_PACING_RATE", bytes_per_s))?;
    let granted = max_pacing_rate(socket)?;
    if granted != bytes_per_s {
        return Err(OptionError::NotTaken {
            option: "SO_MAX_PACING_RATE",
            asked: bytes_per_s,
            granted,
            why: "the kernel is older than Linux 5.0, or something else set it",
        });
    }
    Ok(())
}

/// `SO_MAX_PACING_RATE`, bytes per second; all ones if there is no limit.
///
/// # Errors
/// The socket is gone.
pub fn max_pacing_rate(socket: &impl AsFd) -> Result<u64, OptionError> {
    let mut bytes = [0; 8];
    let length = read_bytes(
        socket,
        libc::SOL_SOCKET,
        libc::SO_MAX_PACING_RATE,
        &mut bytes,
    )
    .map_err(read_error("SO_MAX_PACING_RATE"))?;
    let rate = u64::from_ne_bytes(bytes);
    Ok(if length == 4 && rate == u64::from(u32::MAX) {
        u64::MAX
    } else {
        rate
    })
}

/// The TOS octet of IPv4 or the traffic class of IPv6, by the socket's family.
///
/// # Errors
/// The socket is gone.
pub fn set_traffic_class(socket: &impl AsFd, octet: u8) -> Result<(), OptionError> {
    let class = of_family(socket, IPV4_CLASS, IPV6_CLASS)?;
    set_number(socket, class, octet.into())
}

/// `SO_BINDTODEVICE`.
///
/// # Errors
/// No such interface; without privileges only on a socket that is bound to none.
pub fn bind_device(socket: &impl AsFd, name: &str) -> Result<(), OptionError> {
    SockRef::from(socket)
        .bind_device(Some(name.as_bytes()))
        .map_err(set_error("SO_BINDTODEVICE", name))
}

/// `SO_LINGER` of zero: closing resets the connection, and no TIME_WAIT is left.
///
/// # Errors
/// The socket is gone.
pub fn reset_on_close(socket: &impl AsFd) -> Result<(), OptionError> {
    SockRef::from(socket)
        .set_linger(Some(Duration::ZERO))
        .map_err(set_error("SO_LINGER", 0))
}

/// `TCP_USER_TIMEOUT`: unacknowledged data ends the connection after this.
///
/// # Errors
/// The socket is gone or is not TCP.
pub fn set_user_timeout(socket: &impl AsFd, timeout: Duration) -> Result<(), OptionError> {
    SockRef::from(socket)
        .set_tcp_user_timeout(Some(timeout))
        .map_err(set_error("TCP_USER_TIMEOUT", timeout.as_millis()))
}

/// Ends a connection whose peer has vanished without a word: its kernel is asked for a sign of life
/// after `silence`, and data that it does not acknowledge are not waited for any longer.
///
/// # Errors
/// The socket is gone or is not TCP.
pub fn end_without_sign_of_life(socket: &impl AsFd, silence: Duration) -> Result<(), OptionError> {
    // The first question after two fifths, the last of three without an answer at its end.
    let step = (silence / 5).max(Duration::from_secs(1));
    let keepalive = socket2::TcpKeepalive::new()
        .with_time(2 * step)
        .with_interval(step)
        .with_retries(3);
    SockRef::from(socket)
        .set_tcp_keepalive(&keepalive)
        .map_err(set_error("SO_KEEPALIVE", silence.as_secs()))?;
    set_user_timeout(socket, silence)
}

/// `TCP_DEFER_ACCEPT`: accept a connection when its first bytes are there, or after this time.
///
/// # Errors
/// The socket is gone or is not TCP.
pub fn set_defer_accept(socket: &impl AsFd, seconds: u32) -> Result<(), OptionError> {
    set_number(socket, DEFER_ACCEPT, seconds)
}

/// `TCP_DEFER_ACCEPT`, seconds; 0 is off.
///
/// # Errors
/// The socket is gone or is not TCP.
pub fn defer_accept(socket: &impl AsFd) -> Result<u32, OptionError> {
    number(socket, DEFER_ACCEPT)
}

/// `SO_RCVTIMEO`; `None` waits for ever.
///
/// # Errors
/// The socket is gone.
pub fn receive_timeout(socket: &impl AsFd, timeout: Option<Duration>) -> Result<(), OptionError> {
    SockRef::from(socket)
        .set_read_timeout(timeout)
        .map_err(set_error("SO_RCVTIMEO", format!("{timeout:?}")))
}

/// Ends each blocking call on a socket after `slice`, its connecting too (`SO_SNDTIMEO`,
/// `SO_RCVTIMEO`); `None` lets them wait for ever.
///
/// # Errors
/// The socket is gone.
pub fn bound_waits(socket: &impl AsFd, slice: Option<Duration>) -> Result<(), OptionError> {
    SockRef::from(socket)
        .set_write_timeout(slice)
        .map_err(set_error("SO_SNDTIMEO", format!("{slice:?}")))?;
    receive_timeout(socket, slice)
}

/// The path MTU that the kernel believes in, of a connected socket.
///
/// # Errors
/// The socket is not connected, or has no route just now: setting its traffic class drops the route
/// until the next packet.
pub fn path_mtu(socket: &impl AsFd) -> Result<u32, OptionError> {
    number(socket, of_family(socket, IPV4_MTU, IPV6_MTU)?)
}

/// Memory of a socket, bytes as the kernel accounts it (`SO_MEMINFO`, sock_diag's SK_MEMINFO).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SocketMemory {
    /// Receive queue.
    pub receive_queue: u32,
    /// `SO_RCVBUF` as it reads.
    pub receive_buffer: u32,
    /// Send queue in flight to the device.
    pub send_in_flight: u32,
    /// `SO_SNDBUF` as it reads.
    pub send_buffer: u32,
    /// Reserved in advance.
    pub forward: u32,
    /// Send queue.
    pub send_queue: u32,
    /// Of options.
    pub options: u32,
    /// Waiting to be taken by the protocol while the application held the socket.
    pub backlog: u32,
    /// Packets dropped at this socket.
    pub drops: u32,
}

/// Reads `SO_MEMINFO`.
///
/// # Errors
/// Before Linux 4.12, or the socket is gone.
pub fn memory(socket: &impl AsFd) -> Result<SocketMemory, OptionError> {
    const SO_MEMINFO: libc::c_int = 55;
    let mut bytes = [0; 36];
    read_bytes(socket, libc::SOL_SOCKET, SO_MEMINFO, &mut bytes)
        .map_err(read_error("SO_MEMINFO"))?;
    Ok(SocketMemory::parse(&bytes).expect("all nine words are there"))
}

impl SocketMemory {
    /// Reads the kernel's `SK_MEMINFO_*` (include/uapi/linux/sock_diag.h); `None` if they are cut
    /// short.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let word = |i: usize| {
            let word = bytes.get(4 * i..)?.first_chunk()?;
            Some(u32::from_ne_bytes(*word))
        };
        Some(Self {
            receive_queue: word(0)?,
            receive_buffer: word(1)?,
            send_in_flight: word(2)?,
            send_buffer: word(3)?,
            forward: word(4)?,
            send_queue: word(5)?,
            options: word(6)?,
            backlog: word(7)?,
            drops: word(8)?,
        })
    }
}

/// What an ioctl that writes one int answers.
fn queue_length(socket: &impl AsFd, request: libc::c_ulong) -> io::Result<u32> {
    let mut length: libc::c_int = 0;
    let socket = socket.as_fd().as_raw_fd();
    // SAFETY: these requests write one int.
    match unsafe { libc::ioctl(socket, request as _, &raw mut length) } {
        0.. => Ok(length as u32),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Bytes that wait to be read (`SIOCINQ`).
///
/// # Errors
/// The socket listens or is gone.
pub fn unread(socket: &impl AsFd) -> Result<u32, OptionError> {
    queue_length(socket, libc::FIONREAD).map_err(read_error("SIOCINQ"))
}

/// Bytes written and not yet sent (`SIOCOUTQNSD`).
///
/// # Errors
/// The socket listens or is gone.
pub fn notsent(socket: &impl AsFd) -> Result<u32, OptionError> {
    const SIOCOUTQNSD: libc::c_ulong = 0x894b;
    queue_length(socket, SIOCOUTQNSD).map_err(read_error("SIOCOUTQNSD"))
}

/// Part of the kernel's `struct mptcp_info` (include/uapi/linux/mptcp.h).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MptcpInfo {
    /// Subflows beside the first.
    pub subflows: u8,
    /// The connection fell back to TCP.
    pub fallback: bool,
}

/// Reads `MPTCP_INFO`; `None` on a socket that is plain TCP, also after a fallback at set-up.
///
/// # Errors
/// The socket is gone.
pub fn mptcp_info(socket: &impl AsFd) -> Result<Option<MptcpInfo>, OptionError> {
    const SOL_MPTCP: libc::c_int = 284;
    const MPTCP_INFO: libc::c_int = 1;
    const FLAG_FALLBACK: u32 = 1;
    let mut bytes = [0; 12];
    match read_bytes(socket, SOL_MPTCP, MPTCP_INFO, &mut bytes) {
        Ok(12) => {
            let flags = u32::from_ne_bytes([bytes[8], bytes[9], bytes[10], bytes[11]]);
            Ok(Some(MptcpInfo {
                subflows: bytes[0],
                fallback: flags & FLAG_FALLBACK != 0,
            }))
        }
        Ok(_) => Ok(None),
        Err(error)
            if matches!(
                error.raw_os_error(),
                Some(libc::EOPNOTSUPP | libc::ENOPROTOOPT)
            ) =>
        {
            Ok(None)
        }
        Err(source) => Err(OptionError::Read {
            option: "MPTCP_INFO",
            source,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::net::{TcpListener, TcpStream, UdpSocket};

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (client, listener.accept().unwrap().0)
    }

    #[test]
    fn buffers_read_twice_what_was_set() {
        let (socket, _peer) = pair();
        assert_eq!(set_receive_buffer(&socket, 65_536).unwrap(), 131_072);
        assert_eq!(set_send_buffer(&socket, 32_768).unwrap(), 65_536);
        assert_eq!(memory(&socket).unwrap().send_buffer, 65_536);
    }

    #[test]
    fn a_buffer_above_the_hosts_limit_is_an_error_and_names_it() {
        let (socket, _peer) = pair();
        let error = set_receive_buffer(&socket, 1 << 30).unwrap_err();
        assert!(error.to_string().contains("net.core.rmem_max"), "{error}");
    }

    #[test]
    fn options_read_back_as_set() {
        let (socket, _peer) = pair();
        set_max_pacing_rate(&socket, 12_500_000_000).unwrap();
        assert_eq!(max_pacing_rate(&socket).unwrap(), 12_500_000_000);
        set_congestion(&socket, "reno").unwrap();
        assert_eq!(congestion(&socket).unwrap(), "reno");
        set_nodelay(&socket, true).unwrap();
        assert!(nodelay(&socket).unwrap());
        assert!(path_mtu(&socket).unwrap() >= 1280);
        set_traffic_class(&socket, 0xb8).unwrap();
        assert_eq!(SockRef::from(&socket).tos_v4().unwrap(), 0xb8);
    }

    #[test]
    fn acknowledgements_are_prompt_as_asked() {
        let (socket, _peer) = pair();
        for on in [false, true] {
            set_quickack(&socket, on).unwrap();
            assert_eq!(quickack(&socket).unwrap(), on);
            set_thin_linear_timeouts(&socket, on).unwrap();
            assert_eq!(thin_linear_timeouts(&socket).unwrap(), on);
        }
    }

    #[test]
    fn busy_polling_reads_back_or_names_what_it_needs() {
        let (socket, _peer) = pair();
        match set_busy_poll(&socket, 50) {
            Ok(()) => assert_eq!(busy_poll(&socket).unwrap(), 50),
            Err(error) => assert!(error.to_string().contains("net.core.busy_read"), "{error}"),
        }
    }

    #[test]
    fn sockets_of_one_namespace_have_one_cookie() {
        let (a, b) = pair();
        let cookie = namespace_cookie(&a).unwrap();
        assert!(cookie > 0);
        assert_eq!(namespace_cookie(&b).unwrap(), cookie);
    }

    #[test]
    fn an_unknown_congestion_control_is_named_in_the_error() {
        let (socket, _peer) = pair();
        let error = set_congestion(&socket, "nosuch").unwrap_err().to_string();
        assert!(error.contains("nosuch") && error.contains("does not have it"));
    }

    #[test]
    fn unread_bytes_are_counted() {
        let (mut client, server) = pair();
        client.write_all(&[0; 1000]).unwrap();
        let mut seen = 0;
        while seen < 1000 {
            seen = unread(&server).unwrap();
        }
        assert_eq!(seen, 1000);
        assert_eq!(notsent(&client).unwrap(), 0);
    }

    #[test]
    fn udp_sockets_take_the_class_too() {
        let socket = UdpSocket::bind("[::1]:0").unwrap();
        set_traffic_class(&socket, 0x28).unwrap();
        assert_eq!(SockRef::from(&socket).tclass_v6().unwrap(), 0x28);
    }

    #[test]
    fn a_plain_connection_has_no_mptcp() {
        let (socket, _peer) = pair();
        assert_eq!(mptcp_info(&socket).unwrap(), None);
    }

    #[test]
    fn a_peer_that_vanishes_is_noticed_in_time() {
        let (stream, _peer) = pair();
        end_without_sign_of_life(&stream, Duration::from_secs(10)).unwrap();
        let socket = SockRef::from(&stream);
        assert!(socket.keepalive().unwrap());
        let tries = socket.tcp_keepalive_retries().unwrap();
        let noticed =
            socket.tcp_keepalive_time().unwrap() + tries * socket.tcp_keepalive_interval().unwrap();
        assert_eq!(noticed, Duration::from_secs(10));
        assert_eq!(socket.tcp_user_timeout().unwrap(), Some(noticed));
    }
}
