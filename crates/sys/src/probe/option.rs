//! The options of probe sockets.

use std::io;

use socket2::{SockFilter, Socket};

use crate::socket::set;

/// Answers that come in a burst, bytes; 255 hops of some probes each.
const RECEIVE_BUFFER: usize = 1 << 20;
/// From linux/icmp.h and linux/icmpv6.h.
const ICMP_FILTER: libc::c_int = 1;
const ICMP6_FILTER: libc::c_int = 1;
const SOL_RAW: libc::c_int = 255;

/// Time stamps, TTLs and errors are told; nothing is fragmented.
pub(super) fn prepare(socket: &Socket, is_ipv6: bool, errors: bool) -> io::Result<()> {
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
pub(super) fn filter_icmp(socket: &Socket, is_ipv6: bool) -> io::Result<()> {
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
pub(super) fn filter_source_port(socket: &Socket, port: u16, is_ipv6: bool) -> io::Result<()> {
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
