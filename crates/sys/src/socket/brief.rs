//! Connections that carry one exchange: no call on them that is not needed.

use std::io;
use std::net::TcpStream;
use std::os::fd::AsFd;

use rustix::net::{RecvFlags, recv};
use socket2::SockRef;

use super::option::{FASTOPEN, FASTOPEN_CONNECT, set_number};
use super::{OptionError, set_quickack};

/// Lets the first data of a connection carry the handshake's last acknowledgement, where the kernel
/// can: one segment less (`tcp_rcv_synsent_state_process`, net/ipv4/tcp_input.c). To be asked
/// before connecting.
pub fn join_first_data_to_handshake(socket: &impl AsFd) {
    // It is only faster.
    let _ = set_quickack(socket, false);
}

/// Has the first data leave with the SYN, once the peer has given this host a cookie (TCP Fast
/// Open, RFC 7413): connecting waits for that data. To be asked before connecting.
///
/// # Errors
/// Before Linux 4.11, or `net.ipv4.tcp_fastopen` does not allow it.
pub fn send_with_handshake(socket: &impl AsFd) -> Result<(), OptionError> {
    set_number(socket, FASTOPEN_CONNECT, 1)
}

/// Lets so many connections that began with data wait for the end of their handshake. Takes effect
/// where `net.ipv4.tcp_fastopen` has the bit 2.
///
/// # Errors
/// The socket does not listen.
pub fn accept_with_handshake(listener: &impl AsFd, most: u32) -> Result<(), OptionError> {
    set_number(listener, FASTOPEN, most)
}

/// Sends what a close follows at once: the last segment waits for that, and takes the end of the
/// connection along (`MSG_MORE`).
///
/// # Errors
/// As of any send.
pub fn send_before_close(stream: &TcpStream, bytes: &[u8]) -> io::Result<usize> {
    SockRef::from(stream).send_with_flags(bytes, libc::MSG_MORE | libc::MSG_NOSIGNAL)
}

/// Receives until `buffer` is full, the connection has ended, or as long as a call may wait
/// (`MSG_WAITALL`): who gives it room for a byte more than there are learns of the end with the
/// last of them.
///
/// # Errors
/// As of any receive; nothing came.
pub fn receive_to_end(stream: &TcpStream, buffer: &mut [u8]) -> io::Result<usize> {
    let (length, _) = recv(stream, buffer, RecvFlags::WAITALL)?;
    Ok(length)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::socket::{Mptcp, bound_waits, connect_bounded, tcp_socket};
    use std::io::{ErrorKind, Read, Write};
    use std::net::TcpListener;
    use std::time::Duration;

    const SLICE: Duration = Duration::from_millis(20);

    #[test]
    fn one_exchange_is_whole_and_ends_with_its_last_bytes() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let peer = listener.local_addr().unwrap();
        let socket = tcp_socket(peer, None, Mptcp::Off).unwrap();
        bound_waits(&socket, Some(SLICE)).unwrap();
        join_first_data_to_handshake(&socket);
        let (mut client, connected) = connect_bounded(socket, peer).unwrap();
        assert!(connected);
        let (mut server, _) = listener.accept().unwrap();
        let mut bytes = [0; 8];
        assert_eq!(
            linerate_testkit::uninterrupted(|| client.read(&mut bytes)).unwrap_err().kind(),
            ErrorKind::WouldBlock
        );
        client.write_all(b"question").unwrap();
        server.read_exact(&mut bytes).unwrap();
        assert_eq!(send_before_close(&server, b"answer").unwrap(), 6);
        drop(server);
        let mut answer = [0; 7];
        assert_eq!(receive_to_end(&client, &mut answer).unwrap(), 6);
        assert_eq!(&answer[..6], b"answer");
    }
}
