//! Connections that carry one exchange: no call on them that is not needed.

use std::io;
use std::net::TcpStream;
use std::os::fd::AsFd;

use socket2::SockRef;

use super::set_quickack;

/// Lets the first data of a connection carry the handshake's last acknowledgement, where the kernel
/// can: one segment less (`tcp_rcv_synsent_state_process`, net/ipv4/tcp_input.c). To be asked
/// before connecting.
pub fn join_first_data_to_handshake(socket: &impl AsFd) {
    // It is only faster.
    let _ = set_quickack(socket, false);
}

/// Sends what a close follows at once: the last segment waits for that, and takes the end of the
/// connection along (`MSG_MORE`).
///
/// # Errors
/// As of any send.
pub fn send_before_close(stream: &TcpStream, bytes: &[u8]) -> io::Result<usize> {
    SockRef::from(stream).send_with_flags(bytes, libc::MSG_MORE | libc::MSG_NOSIGNAL)
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
            client.read(&mut bytes).unwrap_err().kind(),
            ErrorKind::WouldBlock
        );
        client.write_all(b"question").unwrap();
        server.read_exact(&mut bytes).unwrap();
        assert_eq!(send_before_close(&server, b"answer").unwrap(), 6);
        drop(server);
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).unwrap();
        assert_eq!(answer, b"answer");
    }
}
