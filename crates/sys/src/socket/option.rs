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
        /// Value that was asked for.
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
        /// Value that was asked for.
        asked: u64,
        /// Value that the kernel reads back.
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
            " (it needs privileges: CAP_NET_ADMIN, or an entry in \
             net.ipv4.tcp_allowed_congestion_control)"
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
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
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
    if result == 0 { Ok(length as usize) } else { Err(io::Error::last_os_error()) }
}

/// An option that is an `int`: its level, its number and its name.
type Number = (libc::c_int, libc::c_int, &'static str);

const RECEIVE_BUFFER: Number = (libc::SOL_SOCKET, libc::SO_RCVBUF, "SO_RCVBUF");
const SEND_BUFFER: Number = (libc::SOL_SOCKET, libc::SO_SNDBUF, "SO_SNDBUF");
const BUFFER_LOCKS: Number = (libc::SOL_SOCKET, 72, "SO_BUF_LOCK");
const BUSY_POLL: Number = (libc::SOL_SOCKET, libc::SO_BUSY_POLL, "SO_BUSY_POLL");
const WINDOW_CLAMP: Number = (libc::IPPROTO_TCP, libc::TCP_WINDOW_CLAMP, "TCP_WINDOW_CLAMP");
const MSS: Number = (libc::IPPROTO_TCP, libc::TCP_MAXSEG, "TCP_MAXSEG");
const QUICKACK: Number = (libc::IPPROTO_TCP, libc::TCP_QUICKACK, "TCP_QUICKACK");
const DEFER_ACCEPT: Number = (libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT, "TCP_DEFER_ACCEPT");
const THIN_LINEAR_TIMEOUTS: Number =
    (libc::IPPROTO_TCP, libc::TCP_THIN_LINEAR_TIMEOUTS, "TCP_THIN_LINEAR_TIMEOUTS");
const IPV4_CLASS: Number = (libc::IPPROTO_IP, libc::IP_TOS, "IP_TOS");
const IPV6_CLASS: Number = (libc::IPPROTO_IPV6, libc::IPV6_TCLASS, "IPV6_TCLASS");
const IPV4_MTU: Number = (libc::IPPROTO_IP, libc::IP_MTU, "IP_MTU");
const IPV6_MTU: Number = (libc::IPPROTO_IPV6, libc::IPV6_MTU, "IPV6_MTU");
pub(super) const FASTOPEN: Number = (libc::IPPROTO_TCP, libc::TCP_FASTOPEN, "TCP_FASTOPEN");
pub(super) const FASTOPEN_CONNECT: Number =
    (libc::IPPROTO_TCP, libc::TCP_FASTOPEN_CONNECT, "TCP_FASTOPEN_CONNECT");

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

/// The one of two options that is of the socket's family.
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
    move |source| OptionError::Set { option, value, source }
}

pub(super) fn read_error(option: &'static str) -> impl FnOnce(io::Error) -> OptionError {
    move |source| OptionError::Read { option, source }
}

/// `SO_RCVBUF`; the kernel doubles what it is given. Answers what it reads then.
///
/// # Errors
/// [`OptionError::NotTaken`] if `net.core.rmem_max` is smaller.
pub fn set_receive_buffer(socket: &impl AsFd, bytes: u32) -> Result<u32, OptionError> {
    set_buffer(socket, RECEIVE_BUFFER, bytes, "sysctl net.core.rmem_max limits it")
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
    set_buffer(socket, SEND_BUFFER, bytes, "sysctl net.core.wmem_max limits it")
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
    Ok(BufferLocks { send: bits & 1 != 0, receive: bits & 2 != 0 })
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
    SockRef::from(socket).set_tcp_nodelay(on).map_err(set_error("TCP_NODELAY", on))
}

/// Whether `TCP_NODELAY` is set.
///
/// # Errors
/// The socket is gone or is not TCP.
pub fn nodelay(socket: &impl AsFd) -> Result<bool, OptionError> {
    SockRef::from(socket).tcp_nodelay().map_err(read_error("TCP_NODELAY"))
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

/// `SO_MAX_PACING_RATE`, bytes per second. TCP paces by itself; UDP only where the device has fq.
///
/// # Errors
/// The kernel does not have it.
pub fn set_max_pacing_rate(socket: &impl AsFd, bytes_per_s: u64) -> Result<(), OptionError> {
    set(socket, libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, &bytes_per_s)
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
    let length = read_bytes(socket, libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, &mut bytes)
        .map_err(read_error("SO_MAX_PACING_RATE"))?;
    let rate = u64::from_ne_bytes(bytes);
    Ok(if length == 4 && rate == u64::from(u32::MAX) { u64::MAX } else { rate })
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
    SockRef::from(socket).set_linger(Some(Duration::ZERO)).map_err(set_error("SO_LINGER", 0))
}

/// Ends a connection whose peer has vanished without a word: its kernel is asked for a sign of life
/// after `silence`, and data that it does not acknowledge are not waited for any longer.
///
/// # Errors
/// The socket is gone or is not TCP.
pub fn end_without_sign_of_life(socket: &impl AsFd, silence: Duration) -> Result<(), OptionError> {
    // The first question after two fifths, the last of three without an answer at its end.
    let step = (silence / 5).max(Duration::from_secs(1));
    let keepalive =
        socket2::TcpKeepalive::new().with_time(2 * step).with_interval(step).with_retries(3);
    SockRef::from(socket)
        .set_tcp_keepalive(&keepalive)
        .map_err(set_error("SO_KEEPALIVE", silence.as_secs()))?;
    SockRef::from(socket)
        .set_tcp_user_timeout(Some(silence))
        .map_err(set_error("TCP_USER_TIMEOUT", silence.as_millis()))
}

/// `TCP_DEFER_ACCEPT`: accept a connection when its first bytes are there, or after this time.
///
/// # Errors
/// The socket is gone or is not TCP.
pub fn set_defer_accept(socket: &impl AsFd, seconds: u32) -> Result<(), OptionError> {
    set_number(socket, DEFER_ACCEPT, seconds)
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
    SockRef::from(socket)
        .set_read_timeout(slice)
        .map_err(set_error("SO_RCVTIMEO", format!("{slice:?}")))
}

/// The path MTU that the kernel believes in, of a connected socket.
///
/// # Errors
/// The socket is not connected, or has no route just now: setting its traffic class drops the route
/// until the next packet.
pub fn path_mtu(socket: &impl AsFd) -> Result<u32, OptionError> {
    number(socket, of_family(socket, IPV4_MTU, IPV6_MTU)?)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream, UdpSocket};

    pub(in crate::socket) fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (client, listener.accept().unwrap().0)
    }

    #[test]
    fn buffers_read_twice_what_was_set() {
        let (socket, _peer) = pair();
        assert_eq!(set_receive_buffer(&socket, 65_536).unwrap(), 131_072);
        assert_eq!(set_send_buffer(&socket, 32_768).unwrap(), 65_536);
        assert_eq!(send_buffer(&socket).unwrap(), 65_536);
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
            assert_eq!(number(&socket, THIN_LINEAR_TIMEOUTS).unwrap(), u32::from(on));
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
    fn an_unknown_congestion_control_is_named_in_the_error() {
        let (socket, _peer) = pair();
        let error = set_congestion(&socket, "nosuch").unwrap_err().to_string();
        assert!(error.contains("nosuch") && error.contains("does not have it"));
    }

    #[test]
    fn udp_sockets_take_the_class_too() {
        let socket = UdpSocket::bind("[::1]:0").unwrap();
        set_traffic_class(&socket, 0x28).unwrap();
        assert_eq!(SockRef::from(&socket).tclass_v6().unwrap(), 0x28);
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
