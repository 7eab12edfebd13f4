//! All TCP sockets of a network namespace (sock_diag(7)), as `ss -ti` shows them.
//!
//! No privilege is needed. The cost is the kernel's time for each socket that the [`Filter`]
//! accepts: a [`SockDiag`] reuses its buffer and allocates nothing for a socket.

mod filter;

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::fd::{AsFd, BorrowedFd};

use netlink_sys::Socket as NetlinkSocket;
use netlink_sys::protocols::NETLINK_SOCK_DIAG;

use super::NetlinkError;
use super::exchange::{Exchange, attributes, listener, payloads};
use crate::bytes::u32_at;
use crate::socket::SocketMemory;
use crate::tcp_info::TcpInfo;

pub use filter::Filter;

/// A TCP socket as the kernel describes it.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Socket<'a> {
    /// Local address; an IPv4-mapped IPv6 address is given as IPv4.
    pub local: SocketAddr,
    /// Remote address.
    pub remote: SocketAddr,
    /// TCP state as in [`TcpInfo::state`]: 1 is established, 10 listening.
    pub state: u8,
    /// Number that no other socket has until the host is restarted.
    pub cookie: u64,
    /// Inode number as in `/proc/PID/fd`; 0 if no descriptor refers to the socket.
    pub inode: u32,
    /// User id of the owner.
    pub uid: u32,
    /// Bytes that the program has not read; for a listener, connections not yet accepted.
    pub receive_queue: u32,
    /// Bytes written and not acknowledged; for a listener, the limit of its accept queue.
    pub send_queue: u32,
    /// Whether it is a subflow of an MPTCP connection.
    pub is_mptcp: bool,
    /// TCP's figures; absent while a connection is being opened and in TIME_WAIT.
    pub info: Option<TcpInfo>,
    /// Memory and buffer limits of the socket.
    pub memory: Option<SocketMemory>,
    /// Name of the congestion control.
    pub congestion: Option<&'a str>,
}

/// A socket that lists the TCP sockets of one network namespace.
#[derive(Debug)]
pub struct SockDiag {
    exchange: Exchange,
    buffer: Vec<u8>,
}

impl SockDiag {
    /// Opens it in the calling thread's network namespace.
    ///
    /// # Errors
    /// [`NetlinkError::Open`].
    pub fn open() -> Result<Self, NetlinkError> {
        Ok(Self {
            exchange: Exchange::open(NETLINK_SOCK_DIAG)?,
            buffer: Vec::with_capacity(BUFFER),
        })
    }

    /// Calls `visit` for each TCP socket that the filter accepts.
    ///
    /// A socket that changes its state meanwhile may be visited twice or not at all.
    ///
    /// # Errors
    /// [`NetlinkError`]; refused with `ENOENT` by a kernel without `tcp_diag`.
    pub fn sockets(
        &mut self,
        filter: &Filter,
        mut visit: impl FnMut(&Socket<'_>),
    ) -> Result<(), NetlinkError> {
        self.exchange.dump_bytes(
            "list the TCP sockets",
            TCPDIAG_GETSOCK,
            &filter.request(),
            &mut self.buffer,
            |payload| {
                if let Some(socket) = parse(payload) {
                    visit(&socket);
                }
            },
        )
    }
}

/// Notifications of TCP sockets that close, each with its last figures.
#[derive(Debug)]
pub struct ClosedSockets {
    socket: NetlinkSocket,
    buffer: Vec<u8>,
}

impl ClosedSockets {
    /// Subscribes to the calling thread's network namespace.
    ///
    /// # Errors
    /// [`NetlinkError::Open`], with `EPERM` where the kernel requires `CAP_NET_ADMIN`.
    pub fn open() -> Result<Self, NetlinkError> {
        let groups = [SKNLGRP_INET_TCP_DESTROY, SKNLGRP_INET6_TCP_DESTROY];
        Ok(Self {
            socket: listener(NETLINK_SOCK_DIAG, &groups, Some(CLOSED_BUFFER))?,
            buffer: Vec::with_capacity(BUFFER),
        })
    }

    /// Calls `visit` for each socket that closed since the last call, without waiting. True if some
    /// were lost because the buffer was full.
    pub fn take(&mut self, mut visit: impl FnMut(&Socket<'_>)) -> bool {
        let mut has_lost = false;
        loop {
            self.buffer.clear();
            match self.socket.recv(&mut self.buffer, 0) {
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => has_lost = true,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return has_lost,
                Ok(_) => payloads(&self.buffer).filter_map(parse).for_each(|socket| visit(&socket)),
            }
        }
    }
}

impl AsFd for ClosedSockets {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Parses a `struct inet_diag_msg` and its attributes (include/uapi/linux/inet_diag.h); `None` if
/// it is truncated or of another family.
fn parse(payload: &[u8]) -> Option<Socket<'_>> {
    let (message, rest) = payload.split_first_chunk::<MESSAGE>()?;
    let word = |at: usize| u32_at(message, at).unwrap_or(0);
    let address = |port: usize, address: usize| {
        let port = u16::from_be_bytes([message[port], message[port + 1]]);
        socket_address(message[0], &message[address..address + 16], port, word(40))
    };
    let mut socket = Socket {
        local: address(4, 8)?,
        remote: address(6, 24)?,
        state: message[1],
        cookie: u64::from(word(44)) | u64::from(word(48)) << 32,
        receive_queue: word(56),
        send_queue: word(60),
        uid: word(64),
        inode: word(68),
        is_mptcp: false,
        info: None,
        memory: None,
        congestion: None,
    };
    for (kind, value) in attributes(rest) {
        match kind {
            INET_DIAG_INFO => socket.info = TcpInfo::parse(value),
            INET_DIAG_SKMEMINFO => socket.memory = SocketMemory::parse(value),
            INET_DIAG_CONG => socket.congestion = text(value),
            INET_DIAG_ULP_INFO => socket.is_mptcp = is_mptcp(value),
            _ => {}
        }
    }
    Some(socket)
}

fn socket_address(family: u8, bytes: &[u8], port: u16, device: u32) -> Option<SocketAddr> {
    let address = match i32::from(family) {
        libc::AF_INET => IpAddr::from(Ipv4Addr::from(*bytes.first_chunk::<4>()?)),
        libc::AF_INET6 => Ipv6Addr::from(*bytes.first_chunk::<16>()?).to_canonical(),
        _ => return None,
    };
    Some(match address {
        IpAddr::V6(v6) if v6.is_unicast_link_local() => {
            SocketAddrV6::new(v6, port, 0, device).into()
        }
        address => SocketAddr::new(address, port),
    })
}

fn text(value: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(value).ok()?;
    Some(text.trim_end_matches('\0'))
}

/// `INET_ULP_INFO_NAME` is the first of the nested attributes.
fn is_mptcp(nested: &[u8]) -> bool {
    attributes(nested)
        .any(|(kind, value)| kind == INET_ULP_INFO_NAME && text(value) == Some("mptcp"))
}

/// Twice the 32 KiB that the kernel fills for one read.
const BUFFER: usize = 64 << 10;
/// Receive buffer for about 10,000 closing sockets between two calls; `net.core.rmem_max` may
/// reduce it.
const CLOSED_BUFFER: usize = 8 << 20;

// include/uapi/linux/sock_diag.h and inet_diag.h
/// This request lists both families in one walk through the kernel's table;
/// `SOCK_DIAG_BY_FAMILY` needs two.
const TCPDIAG_GETSOCK: u16 = 18;
const SKNLGRP_INET_TCP_DESTROY: u32 = 1;
const SKNLGRP_INET6_TCP_DESTROY: u32 = 3;
/// Length of `struct inet_diag_msg`.
const MESSAGE: usize = 72;
const INET_DIAG_INFO: u16 = 2;
const INET_DIAG_CONG: u16 = 4;
const INET_DIAG_SKMEMINFO: u16 = 7;
const INET_DIAG_ULP_INFO: u16 = 19;
const INET_ULP_INFO_NAME: u16 = 1;

#[cfg(test)]
mod tests;
