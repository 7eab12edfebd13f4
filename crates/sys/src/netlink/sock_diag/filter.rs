//! Filters of sockets in the kernel's own bytecode, so that other sockets cost nothing.

use std::net::IpAddr;

use super::super::Prefix;
use super::{INET_DIAG_CONG, INET_DIAG_INFO, INET_DIAG_SKMEMINFO, Socket};

/// The TCP sockets to list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filter {
    /// Bit set of the accepted values of [`super::Socket::state`].
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
    pub(super) fn request(&self) -> Vec<u8> {
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
