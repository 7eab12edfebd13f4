//! Many frames in one system call.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

use super::Outgoing;
use super::header;

/// The memory that describes frames to `sendmmsg`.
#[derive(Debug)]
pub(super) struct Batch {
    headers: Vec<[u8; header::BYTES]>,
    vectors: Vec<[libc::iovec; 2]>,
    messages: Vec<libc::mmsghdr>,
}

// SAFETY: the pointers are written anew before each call and are not followed otherwise.
unsafe impl Send for Batch {}

impl Batch {
    pub(super) fn new() -> Self {
        let vector = libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 };
        // SAFETY: a message header is integers and pointers, for which zero is a value.
        let message = unsafe { std::mem::zeroed::<libc::mmsghdr>() };
        Self {
            headers: vec![[0; header::BYTES]; FRAMES],
            vectors: vec![[vector; 2]; FRAMES],
            messages: vec![message; FRAMES],
        }
    }

    /// Hands over the first of `frames`, as many as go into one call on a nonblocking socket, and
    /// answers how many were taken, at least 1.
    pub(super) fn send(
        &mut self,
        socket: BorrowedFd<'_>,
        frames: &[Outgoing<'_>],
    ) -> io::Result<usize> {
        let count = frames.len().min(FRAMES);
        let slots = self.headers.iter_mut().zip(&mut self.vectors);
        for ((outgoing, (header, vectors)), message) in
            frames.iter().zip(slots).zip(&mut self.messages)
        {
            *header = outgoing.header.encode();
            vectors[0].iov_base = header.as_mut_ptr().cast();
            vectors[0].iov_len = header.len();
            vectors[1].iov_base = outgoing.frame.as_ptr().cast_mut().cast();
            vectors[1].iov_len = outgoing.frame.len();
            message.msg_hdr.msg_iov = vectors.as_mut_ptr();
            message.msg_hdr.msg_iovlen = 2;
        }
        // SAFETY: the first `count` messages lead to this batch's vectors, and those to its headers
        // and to frames that are borrowed for the time of the call, which only reads them.
        let taken = unsafe {
            libc::sendmmsg(socket.as_raw_fd(), self.messages.as_mut_ptr(), count as libc::c_uint, 0)
        };
        usize::try_from(taken).map_err(|_| io::Error::last_os_error())
    }
}

/// Frames in one call: enough to make its own cost small.
const FRAMES: usize = 64;
