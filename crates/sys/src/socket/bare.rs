//! Sending and receiving without the C library: there each of these calls is a place where a thread
//! may be cancelled, which costs a process of several threads two locked instructions around it.

use std::io;
use std::os::fd::AsFd;

use rustix::net::{RecvFlags, SendFlags};

/// Sends `bytes`, or as many of them as the kernel takes.
///
/// # Errors
/// As of any send; a connection that is gone is an error and no signal.
#[inline]
pub fn send(socket: &impl AsFd, bytes: &[u8]) -> io::Result<usize> {
    Ok(rustix::net::send(socket, bytes, SendFlags::NOSIGNAL)?)
}

/// Receives what is there, at most as much as `buffer` holds; 0 at the end of a connection. What of
/// a datagram does not fit is lost.
///
/// # Errors
/// As of any receive.
#[inline]
pub fn receive(socket: &impl AsFd, buffer: &mut [u8]) -> io::Result<usize> {
    let (length, _) = rustix::net::recv(socket, buffer, RecvFlags::empty())?;
    Ok(length)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::{UnixDatagram, UnixStream};

    use super::*;

    #[test]
    fn sent_bytes_are_received_and_the_end_is_zero_bytes() {
        let (here, there) = UnixStream::pair().unwrap();
        assert_eq!(send(&here, b"four").unwrap(), 4);
        let mut buffer = [0; 3];
        assert_eq!(receive(&there, &mut buffer).unwrap(), 3);
        assert_eq!(&buffer, b"fou");
        assert_eq!(receive(&there, &mut buffer).unwrap(), 1);
        drop(here);
        assert_eq!(receive(&there, &mut buffer).unwrap(), 0);
        assert_eq!(send(&there, b"x").unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }

    #[test]
    fn a_datagram_is_cut_to_the_buffer() {
        let (here, there) = UnixDatagram::pair().unwrap();
        send(&here, b"four").unwrap();
        send(&here, b"").unwrap();
        let mut buffer = [0; 3];
        assert_eq!(receive(&there, &mut buffer).unwrap(), 3);
        assert_eq!(receive(&there, &mut buffer).unwrap(), 0);
        there.set_nonblocking(true).unwrap();
        assert_eq!(receive(&there, &mut buffer).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }
}
