//! A second listener at an address that has one, for the connections of one peer.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::fd::AsFd;
use std::time::Duration;

use socket2::{Domain, Protocol, SockRef, Socket, Type};

use super::accept_with_handshake;
use super::option::set;

/// A listener at the address of `listener`, which gets all connections from `source` from now on,
/// until [`take_no_more`]; those that it has not given out when it is dropped are reset. It is
/// plain TCP and may be set up otherwise than the first; connections may begin with their data if
/// this host lets them. Its waits are bounded by `slice`, and so
/// are those of the connections that it gives out. One at a time.
///
/// Until then `SO_REUSEPORT` lets other programs of this user listen there, too.
///
/// # Errors
/// The first one is another user's (systemd's), or has an address of the other family.
pub fn listen_apart(
    listener: &TcpListener,
    source: IpAddr,
    backlog: u32,
    slice: Duration,
) -> io::Result<TcpListener> {
    let first = SockRef::from(listener);
    let local = listener.local_addr()?;
    if local.is_ipv4() != source.is_ipv4() {
        return Err(io::ErrorKind::AddrNotAvailable.into());
    }
    first.set_reuse_port(true)?;
    let second = join(local, backlog, slice).and_then(|second| {
        // Where the first is the group's number 0, the second is 1.
        choose_by(&second, program(source))?;
        Ok(second)
    });
    if second.is_err() {
        first.set_reuse_port(false)?;
    }
    Ok(second?.into())
}

/// Leaves the connections from now on to the first listener again.
///
/// # Errors
/// A socket is gone.
pub fn take_no_more(listener: &TcpListener, apart: &TcpListener) -> io::Result<()> {
    choose_by(apart, vec![answer(0)])?;
    SockRef::from(listener).set_reuse_port(false)
}

/// Has the number that `program` answers say which listener gets a connection.
fn choose_by(member: &impl AsFd, mut program: Vec<libc::sock_filter>) -> io::Result<()> {
    let chooser =
        libc::sock_fprog { len: program.len() as libc::c_ushort, filter: program.as_mut_ptr() };
    set(member, libc::SOL_SOCKET, libc::SO_ATTACH_REUSEPORT_CBPF, &chooser)
}

fn join(local: SocketAddr, backlog: u32, slice: Duration) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(local), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(true)?;
    if local.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.set_read_timeout(Some(slice))?;
    socket.set_write_timeout(Some(slice))?;
    socket.bind(&local.into())?;
    socket.listen(i32::try_from(backlog).unwrap_or(i32::MAX))?;
    // Without it a connection begins with a plain SYN, which is only slower.
    let _ = accept_with_handshake(&socket, backlog);
    Ok(socket)
}

/// Answers 1 for a packet from `source`, else 0.
fn program(source: IpAddr) -> Vec<libc::sock_filter> {
    // Where the network header begins (linux/filter.h, SKF_NET_OFF), and the source in it.
    const NETWORK: u32 = 0xfff0_0000;
    const LOAD_WORD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    const IF_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    let (at, octets) = match source {
        IpAddr::V4(v4) => (12, v4.octets().to_vec()),
        IpAddr::V6(v6) => (8, v6.octets().to_vec()),
    };
    let words = octets.chunks_exact(4).map(|octets| {
        let octets = octets.try_into().expect("they are four");
        u32::from_be_bytes(octets)
    });
    let count = words.len() as u32;
    let mut program = Vec::new();
    for (number, word) in (0..).zip(words) {
        program.push(step(LOAD_WORD, 0, NETWORK + at + 4 * number));
        // Past the comparisons that are left and the answer 1.
        let past = (2 * (count - number) - 1) as u8;
        program.push(step(IF_EQUAL, past, word));
    }
    program.extend([1, 0].map(answer));
    program
}

fn answer(number: u32) -> libc::sock_filter {
    step((libc::BPF_RET | libc::BPF_K) as u16, 0, number)
}

/// An instruction; a comparison that fails goes `jf` further.
fn step(code: u16, jf: u8, k: u32) -> libc::sock_filter {
    libc::sock_filter { code, jt: 0, jf, k }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::socket::{
        ListenOptions, Mptcp, accept_blocking, connect, listen, mptcp_supported, read_bytes,
        tcp_socket,
    };
    use linerate_testkit::PATIENCE;
    use std::io::Read;
    use std::net::{Shutdown, TcpStream};
    use std::time::Instant;

    const SLICE: Duration = Duration::from_millis(20);
    const WOULD_BLOCK: io::ErrorKind = io::ErrorKind::WouldBlock;

    fn connect_from(source: &str, peer: SocketAddr) -> TcpStream {
        let socket = tcp_socket(peer, Some(source.parse().unwrap()), Mptcp::Off).unwrap();
        connect(socket, peer, PATIENCE).unwrap()
    }

    /// The next connection: under load the last segment of a handshake is taken in slices later.
    fn next(listener: &TcpListener) -> (TcpStream, SocketAddr) {
        let waited = Instant::now();
        loop {
            match listener.accept() {
                Err(error) if error.kind() == WOULD_BLOCK && waited.elapsed() < PATIENCE => {}
                accepted => return accepted.unwrap(),
            }
        }
    }

    /// Takes the listener out of the group. A process that another test is about to start may have
    /// a copy of the descriptor, with which it would stay in when it is dropped.
    fn end(second: &TcpListener) {
        SockRef::from(second).shutdown(Shutdown::Both).unwrap();
    }

    fn takes_from_one_peer(address: &str, peers: [&str; 2], mptcp: Mptcp) {
        let options = ListenOptions { backlog: 8, mptcp };
        let first = listen(address.parse().unwrap(), options).unwrap();
        let here = first.local_addr().unwrap();
        for _ in 0..2 {
            let second = listen_apart(&first, peers[1].parse().unwrap(), 8, SLICE).unwrap();
            for _ in 0..4 {
                for (peer, listener) in peers.iter().zip([&first, &second]) {
                    let client = connect_from(peer, here);
                    let (_, from) = next(listener);
                    assert_eq!(from, client.local_addr().unwrap());
                }
            }
            assert_eq!(
                linerate_testkit::uninterrupted(|| accept_blocking(&second)).unwrap_err().kind(),
                WOULD_BLOCK
            );
            let _silent = connect_from(peers[1], here);
            let (mut stream, _) = next(&second);
            assert_eq!(
                linerate_testkit::uninterrupted(|| stream.read(&mut [0])).unwrap_err().kind(),
                WOULD_BLOCK
            );
            take_no_more(&first, &second).unwrap();
            let client = connect_from(peers[1], here);
            assert_eq!(next(&first).1, client.local_addr().unwrap());
            end(&second);
        }
        assert!(listen(here, options).is_err(), "a second program");
    }

    #[test]
    fn the_second_listener_has_the_connections_of_its_peer_and_no_other() {
        let mptcp = if mptcp_supported().is_ok() { Mptcp::On } else { Mptcp::Off };
        for mptcp in [Mptcp::Off, mptcp] {
            takes_from_one_peer("127.0.0.1:0", ["127.0.0.1", "127.0.0.2"], mptcp);
            takes_from_one_peer("0.0.0.0:0", ["127.0.0.3", "127.0.0.1"], mptcp);
        }
    }

    #[test]
    fn connections_may_begin_with_their_data_at_the_second_listener_too() {
        let options = ListenOptions { backlog: 8, mptcp: Mptcp::Off };
        let first = listen("127.0.0.1:0".parse().unwrap(), options).unwrap();
        let second = listen_apart(&first, "127.0.0.1".parse().unwrap(), 8, SLICE).unwrap();
        let mut waiting = [0; 4];
        read_bytes(&second, libc::IPPROTO_TCP, libc::TCP_FASTOPEN, &mut waiting).unwrap();
        assert_eq!(i32::from_ne_bytes(waiting), 8);
        end(&second);
    }

    #[test]
    fn a_peer_is_told_by_every_word_of_its_address() {
        let options = ListenOptions { backlog: 8, mptcp: Mptcp::Off };
        let first = listen("[::1]:0".parse().unwrap(), options).unwrap();
        let here = first.local_addr().unwrap();
        for (source, is_own) in [("2001:db8::1", false), ("::1", true)] {
            let second = listen_apart(&first, source.parse().unwrap(), 8, SLICE).unwrap();
            let client = connect_from("::1", here);
            let takes = if is_own { &second } else { &first };
            assert_eq!(next(takes).1, client.local_addr().unwrap());
            take_no_more(&first, &second).unwrap();
            end(&second);
        }
    }
}
