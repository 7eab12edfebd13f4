//! A message with control messages: sent, and what those of a received one hold.

use std::io;
use std::mem::zeroed;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use socket2::{SockAddr, SockAddrStorage};

/// Room for the control messages of a packet either way, aligned as they must be.
#[repr(C, align(8))]
struct Control([u8; 256]);

/// Sends `bytes` with the control messages that `put` writes into the header's zeroed buffer, and
/// of which it says how long they are together.
pub(crate) fn send_message(
    socket: &impl AsFd,
    to: &SockAddr,
    bytes: &[u8],
    put: impl FnOnce(&libc::msghdr) -> usize,
) -> io::Result<()> {
    let mut control = Control([0; 256]);
    let mut vector = libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    };
    // SAFETY: a msghdr of zeros is a valid one.
    let mut header: libc::msghdr = unsafe { zeroed() };
    header.msg_name = to.as_ptr().cast_mut().cast();
    header.msg_namelen = to.len();
    header.msg_iov = &raw mut vector;
    header.msg_iovlen = 1;
    header.msg_control = control.0.as_mut_ptr().cast();
    header.msg_controllen = control.0.len();
    header.msg_controllen = put(&header).min(control.0.len());
    // SAFETY: name, vector and control messages live and have the lengths that the header says; the
    // kernel only reads.
    let sent = unsafe { libc::sendmsg(socket.as_fd().as_raw_fd(), &raw const header, 0) };
    if sent < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// Receives a message: its length, who has sent it, and what `read` finds in its control messages.
pub(crate) fn receive_message<R>(
    socket: &impl AsFd,
    bytes: &mut [u8],
    flags: libc::c_int,
    read: impl FnOnce(&libc::msghdr) -> R,
) -> io::Result<(usize, Option<SocketAddr>, R)> {
    let mut control = Control([0; 256]);
    let mut name = SockAddrStorage::zeroed();
    let mut vector = libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: bytes.len(),
    };
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

/// `None` for a clock that is set before 1970.
pub(crate) fn since_1970(time: libc::timespec) -> Option<Duration> {
    let seconds = u64::try_from(time.tv_sec).ok()?;
    Some(Duration::new(seconds, u32::try_from(time.tv_nsec).ok()?))
}
