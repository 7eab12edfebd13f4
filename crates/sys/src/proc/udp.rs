//! `net/udp` and `net/udp6`: what each UDP socket's receive queue holds and has dropped.

use super::{Malformed, ProcError, field, net_path, read_and_parse};

/// One UDP socket of the calling thread's network namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UdpSocketCounters {
    /// The local port.
    pub local_port: u16,
    /// The connected peer's port; 0 if not connected.
    pub remote_port: u16,
    /// The socket's inode, as `fstat` of its descriptor gives it.
    pub inode: u64,
    /// Memory that the receive queue holds, in bytes of the kernel's accounting (more than the
    /// payload).
    pub receive_queue_bytes: u64,
    /// Datagrams dropped since the socket was opened: receive buffer full, no memory, wrong
    /// checksum.
    pub drops: u64,
}

/// Reads the sockets that `wanted` selects, by port or inode.
///
/// The kernel prints every socket of the namespace: take this at the ends of a run, not in a loop.
///
/// # Errors
/// A file cannot be read, or has an unknown form. A host without IPv6 has only `net/udp`.
pub fn read(
    wanted: impl Fn(&UdpSocketCounters) -> bool,
) -> Result<Vec<UdpSocketCounters>, ProcError> {
    let mut sockets = Vec::new();
    read_and_parse(net_path("udp"), |text| parse(text, &wanted, &mut sockets))?;
    match read_and_parse(net_path("udp6"), |text| parse(text, &wanted, &mut sockets)) {
        Err(ProcError::Read { source, .. }) if source.raw_os_error() == Some(libc::ENOENT) => {}
        other => other?,
    }
    Ok(sockets)
}

/// Adds the sockets of either table that `wanted` selects to `sockets`. The first line is a
/// heading.
///
/// # Errors
/// A line lacks a column, or has something in it that is not of its kind.
pub fn parse(
    text: &str,
    wanted: impl Fn(&UdpSocketCounters) -> bool,
    sockets: &mut Vec<UdpSocketCounters>,
) -> Result<(), Malformed> {
    for line in text.lines().skip(1) {
        let socket = parse_line(line)?;
        if wanted(&socket) {
            sockets.push(socket);
        }
    }
    Ok(())
}

/// The columns are those of `udp4_format_sock` in the kernel's net/ipv4/udp.c.
fn parse_line(line: &str) -> Result<UdpSocketCounters, Malformed> {
    let mut words = line.split_ascii_whitespace();
    let local = words.nth(1);
    let remote = words.next();
    let queues = words.nth(1);
    let inode = words.nth(4);
    Ok(UdpSocketCounters {
        local_port: port(local)?,
        remote_port: port(remote)?,
        inode: field(inode, "a socket's inode")?,
        receive_queue_bytes: hexadecimal(queues, "the queues of a socket")?,
        drops: field(words.nth(2), "a socket's drops")?,
    })
}

fn port(address: Option<&str>) -> Result<u16, Malformed> {
    const EXPECTED: &str = "an address and port";
    let port = hexadecimal(address, EXPECTED)?;
    u16::try_from(port).map_err(|_| Malformed::new(EXPECTED, address.unwrap_or("")))
}

/// The number after the colon.
fn hexadecimal(pair: Option<&str>, expected: &'static str) -> Result<u64, Malformed> {
    let pair = pair.unwrap_or("");
    pair.split_once(':')
        .and_then(|(_, after)| u64::from_str_radix(after, 16).ok())
        .ok_or_else(|| Malformed::new(expected, pair))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proc::tests::parse_every_prefix;
    use std::net::UdpSocket;

    const SAMPLE: &str = "   sl  local_address rem_address   st tx_queue rx_queue tr tm->when \
        retrnsmt   uid  timeout inode ref pointer drops            \n  \
        123: 0100007F:0035 0200007F:1F90 01 00000000:00000A00 00:00000000 00000000   101        0 \
        21410 2 0000000000000000 17           \n";

    fn parsed(text: &str) -> Result<Vec<UdpSocketCounters>, Malformed> {
        let mut sockets = Vec::new();
        parse(text, |_| true, &mut sockets).map(|()| sockets)
    }

    #[test]
    fn parses_both_address_families() {
        let expected = UdpSocketCounters {
            local_port: 53,
            remote_port: 8080,
            inode: 21410,
            receive_queue_bytes: 0xa00,
            drops: 17,
        };
        assert_eq!(parsed(SAMPLE).unwrap(), [expected]);
        let ipv6 = SAMPLE.replace("0100007F", "00000000000000000000000001000000");
        assert_eq!(parsed(&ipv6).unwrap(), [expected]);
    }

    #[test]
    fn odd_and_truncated_texts_are_errors_and_never_panics() {
        assert!(parsed("heading\n 1: 00:0035\n").is_err());
        assert!(parsed(&SAMPLE.replace("0035", "10035")).is_err());
        parse_every_prefix(SAMPLE, parsed);
    }

    #[test]
    fn a_full_receive_buffer_shows_as_drops_of_its_port() {
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        let port = receiver.local_addr().unwrap().port();
        socket2::SockRef::from(&receiver)
            .set_recv_buffer_size(2048)
            .unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        for _ in 0..100 {
            sender.send_to(&[0; 1000], ("127.0.0.1", port)).unwrap();
        }
        let sockets = read(|socket| socket.local_port == port).unwrap();
        assert_eq!(sockets.len(), 1);
        assert!(
            sockets[0].drops > 0 && sockets[0].receive_queue_bytes > 0,
            "{sockets:?}"
        );
    }
}
