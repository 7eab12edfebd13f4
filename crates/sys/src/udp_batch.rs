//! Many UDP datagrams for one system call, on connected sockets: [`BatchSender`] by sendmmsg,
//! [`BatchReceiver`] by recvmmsg, both with or without segmentation offload, which takes one trip
//! through the network stack for up to 128 datagrams.

use std::io;
use std::mem;
use std::net::UdpSocket;

use crate::socket::set;

mod receive;
mod send;

pub use receive::{BatchReceiver, Datagram};
pub use send::BatchSender;

/// Whether datagrams share their way through the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offload {
    /// UDP_SEGMENT when sending (udp(7)), UDP_GRO when receiving.
    Segment,
    /// Every datagram goes on its own.
    None,
}

/// The most that one message of UDP can hold over IPv4, bytes: 65,535 less the headers of IP (20)
/// and UDP (8).
const MAX_PAYLOAD: usize = 65_507;

/// Room for the control messages of one datagram: a segment size and a drop counter, each of four
/// bytes, and a time.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(8))]
struct ReceiveControl([u8; CONTROL_BYTES]);

// SAFETY: CMSG_SPACE only computes.
const CONTROL_BYTES: usize =
    unsafe { 2 * libc::CMSG_SPACE(4) + libc::CMSG_SPACE(size_of::<libc::timespec>() as u32) }
        as usize;

impl ReceiveControl {
    const EMPTY: Self = Self([0; CONTROL_BYTES]);
}

/// A message header that has nothing in it.
fn empty_header() -> libc::mmsghdr {
    // SAFETY: null pointers and zero lengths are an empty message.
    unsafe { mem::zeroed() }
}

/// Sets an option that is an `int`.
fn set_option(
    socket: &UdpSocket,
    level: libc::c_int,
    name: libc::c_int,
    value: libc::c_int,
) -> io::Result<()> {
    set(socket, level, name, &value)
}

#[cfg(test)]
mod tests;
