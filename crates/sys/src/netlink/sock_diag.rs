//! All TCP sockets of a network namespace (sock_diag(7)), as `ss -ti` shows them.
//!
//! No privilege is needed. The cost is the kernel's time for each socket that the [`Filter`]
//! accepts: a [`SockDiag`] reuses its buffer and allocates nothing for a socket.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::fd::{AsFd, BorrowedFd};

use netlink_sys::Socket as NetlinkSocket;
use netlink_sys::protocols::NETLINK_SOCK_DIAG;

use super::exchange::{Exchange, attributes, listener, payloads};
use super::{NetlinkError, Prefix};
use crate::message::u32_at;
use crate::socket::SocketMemory;
use crate::tcp_info::TcpInfo;

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

// Filters of sockets in the kernel's own bytecode, so that other sockets cost nothing.

/// The TCP sockets to list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filter {
    /// Bit set of the accepted values of [`Socket::state`].
    pub states: u32,
    /// Accepted local or remote ports; empty for any.
    pub ports: Vec<u16>,
    /// Accepted networks of the remote address; empty for any.
    pub peers: Vec<Prefix>,
}

/// One comparison: `INET_DIAG_BC_S_COND` or `D_COND`.
struct Condition {
    code: u8,
    prefix: Option<Prefix>,
    port: Option<u16>,
}

impl Filter {
    /// Connections from the first SYN to the last acknowledgement; without those in TIME_WAIT,
    /// which have no figures.
    pub const CONNECTIONS: u32 = ALL & !(1 << LISTEN | 1 << TIME_WAIT | 1 << CLOSE);
    /// Sockets that listen.
    pub const LISTENERS: u32 = 1 << LISTEN;
    /// The SYN backlog: connections whose handshake a listener has not finished.
    pub const HALF_OPEN: u32 = 1 << SYN_RECEIVED;

    /// A filter that takes sockets in all of these states.
    pub fn new(states: u32) -> Self {
        Self { states, ports: Vec::new(), peers: Vec::new() }
    }

    /// Whether its ports and peers accept a socket, for sockets that the kernel reports unfiltered.
    pub fn is_of_ends(&self, socket: &Socket<'_>) -> bool {
        let ports = [socket.local.port(), socket.remote.port()];
        let is_port = self.ports.is_empty() || ports.iter().any(|port| self.ports.contains(port));
        let peer = socket.remote.ip();
        is_port && (self.peers.is_empty() || self.peers.iter().any(|one| one.contains(peer)))
    }

    /// A `struct inet_diag_req` with the filter's program as its attribute.
    fn request(&self) -> Vec<u8> {
        let extensions = [INET_DIAG_INFO, INET_DIAG_CONG, INET_DIAG_SKMEMINFO]
            .iter()
            .fold(0, |bits, one| bits | 1 << (one - 1));
        let mut request = vec![libc::AF_UNSPEC as u8, 0, 0, extensions];
        request.extend([0; SOCKET_ID]);
        request.extend(self.states.to_ne_bytes());
        request.extend([0; TABLES]);
        let program = self.program();
        if !program.is_empty() {
            request.extend((program.len() as u16 + 4).to_ne_bytes());
            request.extend(INET_DIAG_REQ_BYTECODE.to_ne_bytes());
            request.extend(program);
        }
        request
    }

    /// One of the ports and one of the peers must match. A jump to the program's end accepts the
    /// socket, a jump past it rejects it (`inet_diag_bc_run` in net/ipv4/inet_diag.c).
    fn program(&self) -> Vec<u8> {
        let condition = |code, prefix, port| Condition { code, prefix, port };
        let ports = self
            .ports
            .iter()
            .flat_map(|port| [BC_S_COND, BC_D_COND].map(|code| condition(code, None, Some(*port))));
        let peers = self.peers.iter().map(|prefix| condition(BC_D_COND, Some(*prefix), None));
        let groups = [ports.collect::<Vec<_>>(), peers.collect()];
        let all = groups.iter().map(|group| length(group)).sum::<usize>();
        let mut program = Vec::with_capacity(all);
        for group in &groups {
            let end = program.len() + length(group);
            for (number, condition) in group.iter().enumerate() {
                let is_last = number + 1 == group.len();
                let next = condition.length() + if is_last { 0 } else { JUMP };
                let reject = all + JUMP - program.len();
                condition.write(&mut program, if is_last { reject } else { next });
                if !is_last {
                    let over = (end - program.len()) as u16;
                    program.extend([BC_JMP, JUMP as u8]);
                    program.extend(over.to_ne_bytes());
                }
            }
        }
        program
    }
}

/// Alternatives: each but the last is followed by a jump over the rest.
fn length(group: &[Condition]) -> usize {
    let conditions = group.iter().map(Condition::length).sum::<usize>();
    conditions + JUMP * group.len().saturating_sub(1)
}

impl Condition {
    fn length(&self) -> usize {
        let address = match self.prefix.map(|prefix| prefix.address) {
            None => 0,
            Some(IpAddr::V4(_)) => 4,
            Some(IpAddr::V6(_)) => 16,
        };
        OPERATION + HOST_CONDITION + address
    }

    /// A `struct inet_diag_bc_op`, which jumps by `no` if the condition does not hold, and its
    /// `struct inet_diag_hostcond`.
    fn write(&self, program: &mut Vec<u8>, no: usize) {
        program.extend([self.code, self.length() as u8]);
        program.extend((no as u16).to_ne_bytes());
        let family = match self.prefix.map(|prefix| prefix.address) {
            None => libc::AF_UNSPEC,
            Some(IpAddr::V4(_)) => libc::AF_INET,
            Some(IpAddr::V6(_)) => libc::AF_INET6,
        };
        let bits = self.prefix.map_or(0, |prefix| prefix.length);
        program.extend([family as u8, bits, 0, 0]);
        program.extend(self.port.map_or(-1, i32::from).to_ne_bytes());
        match self.prefix.map(|prefix| prefix.address) {
            None => {}
            Some(IpAddr::V4(v4)) => program.extend(v4.octets()),
            Some(IpAddr::V6(v6)) => program.extend(v6.octets()),
        }
    }
}

// include/net/tcp_states.h
const SYN_RECEIVED: u8 = 3;
const TIME_WAIT: u8 = 6;
const CLOSE: u8 = 7;
const LISTEN: u8 = 10;
const ALL: u32 = (1 << 12) - 2;

// include/uapi/linux/inet_diag.h
const SOCKET_ID: usize = 48;
/// `idiag_dbs`, which the kernel does not read.
const TABLES: usize = 4;
const INET_DIAG_REQ_BYTECODE: u16 = 1;
const BC_JMP: u8 = 1;
const BC_S_COND: u8 = 7;
const BC_D_COND: u8 = 8;
const OPERATION: usize = 4;
const JUMP: usize = OPERATION;
const HOST_CONDITION: usize = 8;

#[cfg(test)]
mod tests;
