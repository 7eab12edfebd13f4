//! Receiving many datagrams.

use std::io;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::ptr;
use std::time::Duration;

use super::{CONTROL_BYTES, Offload, ReceiveControl, empty_header, set_option};
use crate::message::{control_messages, since_1970, u32_at};

/// Receives many datagrams from one socket at once, and counts those that the socket dropped.
#[derive(Debug)]
pub struct BatchReceiver {
    buffer: Vec<u8>,
    slot_bytes: usize,
    headers: Vec<libc::mmsghdr>,
    vectors: Vec<libc::iovec>,
    controls: Vec<ReceiveControl>,
    frames: Vec<DeliveredFrame>,
    /// How many frames the last call received.
    received: usize,
    drops: DropCounter,
}

// SAFETY: the pointers in the headers and vectors are written anew before each call and are not
// followed otherwise.
unsafe impl Send for BatchReceiver {}

/// A datagram as received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Datagram<'a> {
    /// Its content, or as much as there was room for.
    pub bytes: &'a [u8],
    /// It was longer than the room for it.
    pub truncated: bool,
    /// When the kernel saw it, since 1970, where [`BatchReceiver::note_arrivals`] asked for that.
    pub arrived: Option<Duration>,
}

impl BatchReceiver {
    /// A receiver for `socket`, whose options it sets: datagrams of at most `max_datagram` bytes;
    /// with offload of any size.
    ///
    /// # Errors
    /// The kernel does not know an option: SO_RXQ_OVFL, or UDP_GRO (Linux 5.0).
    pub fn new(socket: &UdpSocket, max_datagram: usize, offload: Offload) -> io::Result<Self> {
        set_option(socket, libc::SOL_SOCKET, libc::SO_RXQ_OVFL, 1)?;
        let (slots, slot_bytes) = match offload {
            Offload::Segment => {
                set_option(socket, libc::SOL_UDP, libc::UDP_GRO, 1)?;
                (FRAMES, FRAME_BYTES)
            }
            Offload::None => (DATAGRAMS, max_datagram.max(1)),
        };
        let vector = libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 };
        Ok(Self {
            buffer: vec![0; slots * slot_bytes],
            slot_bytes,
            headers: vec![empty_header(); slots],
            vectors: vec![vector; slots],
            controls: vec![ReceiveControl::EMPTY; slots],
            frames: vec![DeliveredFrame::default(); slots],
            received: 0,
            drops: DropCounter::default(),
        })
    }

    /// From now on the kernel notes when each datagram arrives (SO_TIMESTAMPNS), which costs the
    /// whole host some time for each packet. Without offload: datagrams that were put together have
    /// one time.
    ///
    /// # Errors
    /// The kernel does not know the option.
    pub fn note_arrivals(&self, socket: &UdpSocket) -> io::Result<()> {
        set_option(socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1)
    }

    /// Waits for the first datagram, takes what else is there, and answers how many datagrams that
    /// is.
    ///
    /// # Errors
    /// `WouldBlock` when nothing came within the socket's receive timeout (or at once, if it does
    /// not block),
    /// `Interrupted` by a signal, `ConnectionRefused` when the peer answered by ICMP, or others of
    /// recv(2). Then
    /// [`Self::datagrams`] is empty.
    pub fn receive(&mut self, socket: &UdpSocket) -> io::Result<usize> {
        self.received = 0;
        self.prepare();
        let received = recvmmsg(socket, &mut self.headers)?;
        for (header, frame) in self.headers[..received].iter().zip(&mut self.frames) {
            let control = read_control(&header.msg_hdr);
            let length = header.msg_len as usize;
            *frame = DeliveredFrame {
                length,
                segment: control.segment.unwrap_or(length),
                truncated: header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0,
                arrived: control.arrived,
            };
            if let Some(drops) = control.drops {
                self.drops.update(drops);
            }
        }
        self.received = received;
        Ok(self.frames[..received].iter().map(DeliveredFrame::datagrams).sum())
    }

    /// The last call took as much as there was room for: more may wait.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.received == self.headers.len()
    }

    /// The datagrams of the last call, in the order of their arrival.
    pub fn datagrams(&self) -> impl Iterator<Item = Datagram<'_>> {
        let slots = self.buffer.chunks_exact(self.slot_bytes);
        self.frames[..self.received].iter().zip(slots).flat_map(|(frame, slot)| frame.split(slot))
    }

    /// What the socket has dropped since it was made because its buffer was full, as known when the
    /// last datagram received was queued. With offload these are not datagrams but frames of up to
    /// 64 KiB that hold several.
    #[must_use]
    pub fn socket_drops(&self) -> u64 {
        self.drops.total
    }

    /// Points every header at its slot: the kernel has overwritten lengths and flags.
    fn prepare(&mut self) {
        let slots = self.buffer.chunks_exact_mut(self.slot_bytes);
        for (((header, vector), control), slot) in
            self.headers.iter_mut().zip(&mut self.vectors).zip(&mut self.controls).zip(slots)
        {
            vector.iov_base = slot.as_mut_ptr().cast();
            vector.iov_len = slot.len();
            header.msg_hdr.msg_iov = vector;
            header.msg_hdr.msg_iovlen = 1;
            header.msg_hdr.msg_control = control.0.as_mut_ptr().cast();
            header.msg_hdr.msg_controllen = CONTROL_BYTES;
        }
    }
}

/// The longest frame that UDP_GRO puts together.
const FRAME_BYTES: usize = 64 * 1024;

/// Frames for one call: 1 MiB, which caches still hold.
const FRAMES: usize = 16;

/// Datagrams for one call without offload.
const DATAGRAMS: usize = 64;

/// What the kernel delivered into one slot.
#[derive(Debug, Clone, Copy, Default)]
struct DeliveredFrame {
    length: usize,
    /// Bytes in each of its datagrams but the last.
    segment: usize,
    truncated: bool,
    arrived: Option<Duration>,
}

impl DeliveredFrame {
    /// An empty datagram is one, too.
    fn datagrams(&self) -> usize {
        self.length.div_ceil(self.segment.max(1)).max(1)
    }

    fn split(self, slot: &[u8]) -> impl Iterator<Item = Datagram<'_>> {
        let count = self.datagrams();
        (0..count).map(move |index| {
            let start = index * self.segment;
            Datagram {
                bytes: &slot[start..self.length.min(start + self.segment)],
                truncated: self.truncated && index + 1 == count,
                arrived: self.arrived,
            }
        })
    }
}

/// Extends the kernel's 32-bit counter, which wraps, to 64 bits.
#[derive(Debug, Default)]
struct DropCounter {
    last: u32,
    total: u64,
}

impl DropCounter {
    fn update(&mut self, now: u32) {
        self.total += u64::from(now.wrapping_sub(self.last));
        self.last = now;
    }
}

/// What came beside a datagram.
#[derive(Debug, Default)]
struct Annex {
    segment: Option<usize>,
    drops: Option<u32>,
    arrived: Option<Duration>,
}

/// Reads the control messages of a header that recvmmsg has filled.
fn read_control(header: &libc::msghdr) -> Annex {
    let mut found = Annex::default();
    for (level, kind, value) in control_messages(header) {
        match (level, kind) {
            (libc::SOL_UDP, libc::UDP_GRO) => {
                let bytes = u32_at(value, 0).map(|bytes| bytes as usize);
                found.segment = bytes.filter(|bytes| *bytes > 0);
            }
            (libc::SOL_SOCKET, libc::SO_RXQ_OVFL) => found.drops = u32_at(value, 0),
            (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) => found.arrived = since_1970(value),
            _ => {}
        }
    }
    found
}

/// Receives into what [`BatchReceiver::prepare`] has just written; answers how many headers were
/// filled.
fn recvmmsg(socket: &UdpSocket, headers: &mut [libc::mmsghdr]) -> io::Result<usize> {
    // SAFETY: all pointers lead into the receiver's own buffers, which are borrowed and stay where
    // they are.
    let received = unsafe {
        libc::recvmmsg(
            socket.as_raw_fd(),
            headers.as_mut_ptr(),
            headers.len() as libc::c_uint,
            libc::MSG_WAITFORONE,
            ptr::null_mut(),
        )
    };
    usize::try_from(received).map_err(|_| io::Error::last_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drop_counter_survives_wrapping() {
        let mut drops = DropCounter::default();
        for now in [5, u32::MAX, 9] {
            drops.update(now);
        }
        assert_eq!(drops.total, (1 << 32) + 9);
    }

    #[test]
    fn frames_are_split_at_segments_and_keep_the_tail() {
        let frame = DeliveredFrame { length: 10, segment: 4, truncated: true, arrived: None };
        let pieces: Vec<_> = frame
            .split(b"abcdefghij..")
            .map(|datagram| (datagram.bytes, datagram.truncated))
            .collect();
        let expected: [(&[u8], bool); 3] = [(b"abcd", false), (b"efgh", false), (b"ij", true)];
        assert_eq!(pieces, expected);
        assert_eq!(DeliveredFrame::default().split(b"..").count(), 1);
    }
}
