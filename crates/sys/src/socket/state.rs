//! What the kernel says of a socket: its memory and queues, its namespace, its subflows.

use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};

use super::option::{OptionError, read_bytes, read_error};
use crate::message::u32_at;

/// Memory of a socket, bytes as the kernel accounts it (`SO_MEMINFO`, sock_diag's SK_MEMINFO).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SocketMemory {
    /// Receive queue.
    pub receive_queue: u32,
    /// `SO_RCVBUF` as it reads.
    pub receive_buffer: u32,
    /// `SO_SNDBUF` as it reads.
    pub send_buffer: u32,
    /// Reserved in advance.
    pub forward: u32,
    /// Send queue.
    pub send_queue: u32,
    /// Bytes of TCP options.
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
        let word = |number: usize| u32_at(bytes, 4 * number);
        Some(Self {
            receive_queue: word(0)?,
            receive_buffer: word(1)?,
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
            Ok(Some(MptcpInfo { subflows: bytes[0], fallback: flags & FLAG_FALLBACK != 0 }))
        }
        Ok(_) => Ok(None),
        Err(error)
            if matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::ENOPROTOOPT)) =>
        {
            Ok(None)
        }
        Err(source) => Err(OptionError::Read { option: "MPTCP_INFO", source }),
    }
}

/// A number that the calling thread's network namespace alone has had since the host was booted
/// (`SO_NETNS_COOKIE`); `None` before Linux 5.14.
pub fn namespace_cookie() -> Option<u64> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    let mut bytes = [0; 8];
    read_bytes(&socket, libc::SOL_SOCKET, SO_NETNS_COOKIE, &mut bytes).ok()?;
    Some(u64::from_ne_bytes(bytes))
}

/// include/uapi/asm-generic/socket.h; libc has it for glibc alone.
const SO_NETNS_COOKIE: libc::c_int = 71;

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::super::option::tests::pair;
    use super::super::set_send_buffer;
    use super::*;

    #[test]
    fn memory_has_the_buffers() {
        let (socket, _peer) = pair();
        set_send_buffer(&socket, 32_768).unwrap();
        assert_eq!(memory(&socket).unwrap().send_buffer, 65_536);
    }

    #[test]
    fn a_namespace_has_one_cookie() {
        assert!(namespace_cookie().is_none_or(|cookie| cookie > 0));
        assert_eq!(namespace_cookie(), namespace_cookie());
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
    fn a_plain_connection_has_no_mptcp() {
        let (socket, _peer) = pair();
        assert_eq!(mptcp_info(&socket).unwrap(), None);
    }
}
