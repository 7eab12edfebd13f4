//! `net/sockstat` and `net/sockstat6`: sockets and the memory that they hold.

use super::{Malformed, ProcError, field, net_path, read_and_parse};

/// Sockets of the calling thread's network namespace. `alloc`, `orphans` and the memory are of the
/// whole host.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SocketCounts {
    /// TCP sockets over IPv4 in use.
    pub tcp: u64,
    /// TCP sockets over IPv6 in use.
    pub tcp6: u64,
    /// TCP sockets that no process holds any more.
    pub tcp_orphans: u64,
    /// TCP connections in TIME-WAIT.
    pub tcp_time_wait: u64,
    /// TCP sockets allocated, in any state.
    pub tcp_allocated: u64,
    /// Memory of TCP's buffers in pages, to be held against `net.ipv4.tcp_mem`.
    pub tcp_memory_pages: u64,
    /// UDP sockets over IPv4 in use.
    pub udp: u64,
    /// UDP sockets over IPv6 in use.
    pub udp6: u64,
    /// Memory of UDP's buffers in pages, to be held against `net.ipv4.udp_mem`.
    pub udp_memory_pages: u64,
}

/// Reads both files; a host without IPv6 has only the first.
///
/// # Errors
/// A file cannot be read, or has an unknown form.
pub fn read() -> Result<SocketCounts, ProcError> {
    let mut counts = SocketCounts::default();
    read_and_parse(net_path("sockstat"), |text| counts.parse(text))?;
    match read_and_parse(net_path("sockstat6"), |text| counts.parse(text)) {
        Err(ProcError::Read { source, .. }) if source.raw_os_error() == Some(libc::ENOENT) => {}
        other => other?,
    }
    Ok(counts)
}

impl SocketCounts {
    /// Adds the figures of either file; lines and keys that are not known are passed over.
    ///
    /// # Errors
    /// A known key has no number after it.
    pub fn parse(&mut self, text: &str) -> Result<(), Malformed> {
        for line in text.lines() {
            let (protocol, pairs) =
                line.split_once(':').ok_or_else(|| Malformed::new("a protocol", line))?;
            let mut words = pairs.split_ascii_whitespace();
            while let Some(key) = words.next() {
                let value = words.next();
                if let Some(slot) = self.slot(protocol, key) {
                    *slot = field(value, "a number of sockets or pages")?;
                }
            }
        }
        Ok(())
    }

    fn slot(&mut self, protocol: &str, key: &str) -> Option<&mut u64> {
        Some(match (protocol, key) {
            ("TCP", "inuse") => &mut self.tcp,
            ("TCP6", "inuse") => &mut self.tcp6,
            ("TCP", "orphan") => &mut self.tcp_orphans,
            ("TCP", "tw") => &mut self.tcp_time_wait,
            ("TCP", "alloc") => &mut self.tcp_allocated,
            ("TCP", "mem") => &mut self.tcp_memory_pages,
            ("UDP", "inuse") => &mut self.udp,
            ("UDP6", "inuse") => &mut self.udp6,
            ("UDP", "mem") => &mut self.udp_memory_pages,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proc::tests::parse_every_prefix;

    const SAMPLE: &str = "sockets: used 13\nTCP: inuse 1 orphan 2 tw 3 alloc 4 mem 151\nUDP: inuse \
        5 mem 6\n\
        UDPLITE: inuse 0\nRAW: inuse 0\nFRAG: inuse 0 memory 0\n";

    fn parsed(text: &str) -> Result<SocketCounts, Malformed> {
        let mut counts = SocketCounts::default();
        counts.parse(text).map(|()| counts)
    }

    #[test]
    fn parses_both_files_into_one() {
        let mut counts = parsed(SAMPLE).unwrap();
        counts.parse("TCP6: inuse 8\nUDP6: inuse 9\n").unwrap();
        let expected = SocketCounts {
            tcp: 1,
            tcp6: 8,
            tcp_orphans: 2,
            tcp_time_wait: 3,
            tcp_allocated: 4,
            tcp_memory_pages: 151,
            udp: 5,
            udp6: 9,
            udp_memory_pages: 6,
        };
        assert_eq!(counts, expected);
    }

    #[test]
    fn odd_and_truncated_texts_are_errors_and_never_panics() {
        assert!(parsed("TCP: inuse\n").is_err());
        assert!(parsed("TCP: inuse many\n").is_err());
        assert!(parsed("nonsense\n").is_err());
        parse_every_prefix(SAMPLE, parsed);
    }

    #[test]
    fn an_open_socket_is_counted() {
        let _socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        assert!(read().unwrap().udp > 0);
    }
}
