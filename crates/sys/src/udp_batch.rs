//! Many UDP datagrams for one system call, on connected sockets: [`BatchSender`] by sendmmsg,
//! [`BatchReceiver`] by recvmmsg, both with or without segmentation offload, which takes one trip
//! through the network stack for up to 128 datagrams.

mod receive;

use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::AsRawFd;
use std::sync::OnceLock;
use std::{io, mem, ptr};

pub use receive::{BatchReceiver, Datagram};

use crate::message::put_control;
use crate::socket::set;

/// Whether datagrams share their way through the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offload {
    /// UDP_SEGMENT when sending (udp(7)), UDP_GRO when receiving.
    Segment,
    /// Every datagram goes on its own.
    None,
}

/// Sends up to `datagrams_per_call` datagrams of one size, which lie one behind the other in its
/// buffer.
#[derive(Debug)]
pub struct BatchSender {
    buffer: Vec<u8>,
    datagram_bytes: usize,
    /// Datagrams in one message: 1 without offload.
    group: usize,
    control: Box<ReceiveControl>,
    headers: Vec<libc::mmsghdr>,
    vectors: Vec<libc::iovec>,
}

// SAFETY: the pointers in the headers and vectors are written anew before each call and are not
// followed otherwise.
unsafe impl Send for BatchSender {}

impl BatchSender {
    /// A sender of zeros of `datagram_bytes` (1 to 65,527; over IPv4 to 65,507), at most
    /// `datagrams_per_call` (1 to 1024) at once.
    ///
    /// # Panics
    /// A number is out of its range.
    #[must_use]
    pub fn new(datagram_bytes: usize, datagrams_per_call: usize, offload: Offload) -> Self {
        assert!((1..=65_527).contains(&datagram_bytes), "size of a datagram");
        assert!(
            (1..=libc::UIO_MAXIOV as usize).contains(&datagrams_per_call),
            "datagrams in a call"
        );
        let group = match offload {
            Offload::Segment => (MAX_PAYLOAD / datagram_bytes).clamp(1, max_segments()),
            Offload::None => 1,
        };
        Self {
            buffer: vec![0; datagram_bytes * datagrams_per_call],
            datagram_bytes,
            group,
            control: Box::new(segment_control(datagram_bytes as u16)),
            headers: vec![empty_header(); datagrams_per_call],
            vectors: vec![
                libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 };
                datagrams_per_call
            ],
        }
    }

    /// The datagrams, in the order in which they are sent, to be written in place. They keep their
    /// content.
    pub fn datagrams_mut(&mut self) -> impl Iterator<Item = &mut [u8]> {
        self.buffer.chunks_exact_mut(self.datagram_bytes)
    }

    /// Whether datagrams share their messages: not when they are too large, nor once the kernel has
    /// refused it.
    #[must_use]
    pub fn offload(&self) -> Offload {
        if self.group > 1 { Offload::Segment } else { Offload::None }
    }

    /// Hands over the first `count` datagrams, or all, and answers how many the kernel took. After
    /// a short answer the others are not sent; the next call begins at the first datagram again.
    ///
    /// Where the kernel refuses offload (datagrams larger than the path's MTU, a device without
    /// checksums, IPsec) this and later calls go without: see [`Self::offload`].
    ///
    /// # Errors
    /// None was taken: `WouldBlock` for a full send buffer of a non-blocking socket, its send
    /// timeout or a full queue (ENOBUFS), `Interrupted`, `ConnectionRefused` when the peer answered
    /// earlier datagrams by ICMP, or others of send(2).
    pub fn send(&mut self, socket: &UdpSocket, count: usize) -> io::Result<usize> {
        if let Some(error) = socket.take_error()? {
            return Err(error);
        }
        let count = count.min(self.headers.len());
        let sent = match self.hand_over(socket, count) {
            Err(error) if self.group > 1 && refuses_segments(&error) => {
                self.group = 1;
                self.hand_over(socket, count)
            }
            result => result,
        };
        sent.map_err(|error| match error.raw_os_error() {
            Some(libc::ENOBUFS) => io::Error::new(io::ErrorKind::WouldBlock, error),
            _ => error,
        })
    }

    /// One sendmmsg, and one more if it stopped early.
    fn hand_over(&mut self, socket: &UdpSocket, count: usize) -> io::Result<usize> {
        let messages = self.prepare(count);
        let mut taken = sendmmsg(socket, &mut self.headers[..messages])?;
        if 0 < taken && taken < messages {
            // The kernel keeps to itself why it stopped, and has forgotten it if it was ICMP. A
            // single message meets the reason again, or provokes the next ICMP, which the next call
            // then reports.
            taken += sendmmsg(socket, &mut self.headers[taken..=taken]).unwrap_or(0);
        }
        Ok(count.min(taken * self.group))
    }

    /// Writes the headers for the first `count` datagrams and answers how many messages they are.
    fn prepare(&mut self, count: usize) -> usize {
        let bytes = &mut self.buffer[..count * self.datagram_bytes];
        let messages = bytes.chunks_mut(self.group * self.datagram_bytes);
        let slots = self.headers.iter_mut().zip(&mut self.vectors);
        for (message, (header, vector)) in messages.zip(slots) {
            vector.iov_base = message.as_mut_ptr().cast();
            vector.iov_len = message.len();
            header.msg_hdr.msg_iov = vector;
            header.msg_hdr.msg_iovlen = 1;
            if self.group > 1 {
                header.msg_hdr.msg_control = self.control.0.as_mut_ptr().cast();
                header.msg_hdr.msg_controllen = segment_control_bytes();
            } else {
                header.msg_hdr.msg_control = ptr::null_mut();
                header.msg_hdr.msg_controllen = 0;
            }
        }
        count.div_ceil(self.group)
    }
}

/// Segments that every kernel with UDP_SEGMENT takes in one message (UDP_MAX_SEGMENTS in
/// include/linux/udp.h).
const OLD_MAX_SEGMENTS: usize = 64;

/// As [`OLD_MAX_SEGMENTS`], since Linux 6.9.
const NEW_MAX_SEGMENTS: usize = 128;

/// How many segments a message may have here: tried once, by sending to nobody but ourselves.
fn max_segments() -> usize {
    static FOUND: OnceLock<usize> = OnceLock::new();
    *FOUND.get_or_init(|| match accepts_new_maximum() {
        Ok(()) => NEW_MAX_SEGMENTS,
        Err(_) => OLD_MAX_SEGMENTS,
    })
}

fn accepts_new_maximum() -> io::Result<()> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    socket.connect(socket.local_addr()?)?;
    set_option(&socket, libc::SOL_UDP, libc::UDP_SEGMENT, 1)?;
    socket.send(&[0; NEW_MAX_SEGMENTS]).map(drop)
}

/// EIO: no checksum to leave to a device; EMSGSIZE or, in older kernels, EINVAL: a segment exceeds
/// the MTU (udp_send_skb in net/ipv4/udp.c).
fn refuses_segments(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EIO | libc::EINVAL | libc::EMSGSIZE))
}

/// The control message that asks for segments of `bytes`.
fn segment_control(bytes: u16) -> ReceiveControl {
    let mut control = ReceiveControl::EMPTY;
    let mut header = empty_header().msg_hdr;
    header.msg_control = control.0.as_mut_ptr().cast();
    header.msg_controllen = segment_control_bytes();
    put_control(&header, &[(libc::SOL_UDP, libc::UDP_SEGMENT, &bytes.to_ne_bytes())]);
    control
}

fn segment_control_bytes() -> usize {
    // SAFETY: CMSG_SPACE only computes.
    unsafe { libc::CMSG_SPACE(2) as usize }
}

/// Sends messages whose vectors and control messages [`BatchSender::prepare`] has just written;
/// answers how many.
fn sendmmsg(socket: &UdpSocket, headers: &mut [libc::mmsghdr]) -> io::Result<usize> {
    // SAFETY: all pointers lead into the sender's own buffers, which are borrowed and stay where
    // they are.
    let sent = unsafe {
        libc::sendmmsg(socket.as_raw_fd(), headers.as_mut_ptr(), headers.len() as libc::c_uint, 0)
    };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
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
