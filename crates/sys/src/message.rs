//! Messages with control messages (cmsg(3)): sending them, and reading those of a received one.

use std::mem::zeroed;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;
use std::{io, iter, ptr, slice};

use socket2::{SockAddr, SockAddrStorage};

/// Room for the control messages of a packet either way, aligned as they must be.
#[repr(C, align(8))]
struct ControlBuffer([u8; 256]);

/// A control message: its level, its type and its value.
pub(crate) type ControlMessage<'a> = (libc::c_int, libc::c_int, &'a [u8]);

/// Sends `bytes` with control messages, for which there are 256 bytes.
pub(crate) fn send_message(
    socket: &impl AsFd,
    to: &SockAddr,
    bytes: &[u8],
    messages: &[ControlMessage<'_>],
) -> io::Result<()> {
    let mut control = ControlBuffer([0; 256]);
    let mut vector =
        libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    // SAFETY: a msghdr of zeros is a valid one.
    let mut header: libc::msghdr = unsafe { zeroed() };
    header.msg_name = to.as_ptr().cast_mut().cast();
    header.msg_namelen = to.len();
    header.msg_iov = &raw mut vector;
    header.msg_iovlen = 1;
    header.msg_control = control.0.as_mut_ptr().cast();
    header.msg_controllen = control.0.len();
    header.msg_controllen = put_control(&header, messages);
    // SAFETY: name, vector and control messages live and have the lengths that the header says; the
    // kernel only reads.
    let sent = unsafe { libc::sendmsg(socket.as_fd().as_raw_fd(), &raw const header, 0) };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Writes control messages into the zeroed buffer of a header, and answers how many bytes they
/// take.
///
/// # Panics
/// The buffer is too short for them.
pub(crate) fn put_control(header: &libc::msghdr, messages: &[ControlMessage<'_>]) -> usize {
    // SAFETY: CMSG_SPACE only computes.
    let space = |value: &[u8]| unsafe { libc::CMSG_SPACE(value.len() as u32) as usize };
    let taken = messages.iter().map(|(_, _, value)| space(value)).sum();
    assert!(taken <= header.msg_controllen, "control messages in their buffer");
    // SAFETY: the buffer is zeroed, aligned and long enough, as was just checked; the macros stay
    // within it, and each value is copied behind its own header.
    unsafe {
        let mut at = libc::CMSG_FIRSTHDR(header);
        for (level, kind, value) in messages {
            (*at).cmsg_level = *level;
            (*at).cmsg_type = *kind;
            (*at).cmsg_len = libc::CMSG_LEN(value.len() as u32) as _;
            ptr::copy_nonoverlapping(value.as_ptr(), libc::CMSG_DATA(at), value.len());
            at = libc::CMSG_NXTHDR(header, at);
        }
    }
    taken
}

/// The control messages of a header that the kernel has filled.
pub(crate) fn control_messages(header: &libc::msghdr) -> impl Iterator<Item = ControlMessage<'_>> {
    // SAFETY: the kernel has written whole control messages into the buffer, whose length the
    // header says; the macros stay within it.
    let mut next = unsafe { libc::CMSG_FIRSTHDR(header) };
    iter::from_fn(move || {
        // SAFETY: as above; the value of a message ends where the message does.
        unsafe {
            let message = next.as_ref()?;
            let length = (message.cmsg_len as usize).saturating_sub(libc::CMSG_LEN(0) as usize);
            let value = slice::from_raw_parts(libc::CMSG_DATA(message), length);
            next = libc::CMSG_NXTHDR(header, message);
            Some((message.cmsg_level, message.cmsg_type, value))
        }
    })
}

/// Receives a message: its length, who has sent it, and what `read` finds in its control messages.
pub(crate) fn receive_message<R>(
    socket: &impl AsFd,
    bytes: &mut [u8],
    flags: libc::c_int,
    read: impl FnOnce(&libc::msghdr) -> R,
) -> io::Result<(usize, Option<SocketAddr>, R)> {
    let mut control = ControlBuffer([0; 256]);
    let mut name = SockAddrStorage::zeroed();
    let mut vector = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    // SAFETY: a msghdr of zeros is a valid one.
    let mut header: libc::msghdr = unsafe { zeroed() };
    header.msg_name = (&raw mut name).cast();
    header.msg_namelen = name.size_of();
    header.msg_iov = &raw mut vector;
    header.msg_iovlen = 1;
    header.msg_control = control.0.as_mut_ptr().cast();
    header.msg_controllen = control.0.len();
    // SAFETY: name, vector and control buffer live and have the lengths that the header says.
    let received = unsafe { libc::recvmsg(socket.as_fd().as_raw_fd(), &raw mut header, flags) };
    let length = usize::try_from(received).map_err(|_| io::Error::last_os_error())?;
    // SAFETY: the kernel has written a socket address of that length.
    let name = unsafe { SockAddr::new(name, header.msg_namelen) };
    Ok((length, name.as_socket(), read(&header)))
}

/// The time since 1970 that a `struct timespec` holds; `None` for a clock that is set before.
pub(crate) fn since_1970(timespec: &[u8]) -> Option<Duration> {
    const WORD: usize = size_of::<libc::time_t>();
    let word = |offset| match WORD {
        8 => u64_at(timespec, offset).map(u64::cast_signed),
        _ => u32_at(timespec, offset).map(|word| word.cast_signed().into()),
    };
    let (seconds, nanoseconds) = (word(0)?, word(WORD)?);
    Some(Duration::new(u64::try_from(seconds).ok()?, u32::try_from(nanoseconds).ok()?))
}

// Numbers in the host's byte order, as the kernel's structures hold them. `None` past the end.

pub(crate) fn u16_at(bytes: &[u8], offset: usize) -> Option<u16> {
    let number = bytes.get(offset..)?.first_chunk()?;
    Some(u16::from_ne_bytes(*number))
}

pub(crate) fn u32_at(bytes: &[u8], offset: usize) -> Option<u32> {
    let number = bytes.get(offset..)?.first_chunk()?;
    Some(u32::from_ne_bytes(*number))
}

pub(crate) fn u64_at(bytes: &[u8], offset: usize) -> Option<u64> {
    let number = bytes.get(offset..)?.first_chunk()?;
    Some(u64::from_ne_bytes(*number))
}
