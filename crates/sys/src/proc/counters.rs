//! Counters of the network stack: of protocols (`net/snmp`, `net/netstat`, `net/snmp6`) and sockets
//! (`net/sockstat`, `net/sockstat6`), both of the calling thread's network namespace, and of soft
//! interrupts (`/proc/softirqs`).

use std::collections::BTreeMap;

use super::{Malformed, ProcError, field, net_path, read_and_parse, read_text};

/// Counters by the names of nstat(8): the group and the counter, as `TcpRetransSegs`,
/// `TcpExtListenDrops`,
/// `UdpRcvbufErrors`, `Ip6InReceives`. The few that are negative (`TcpMaxConn` is −1 for "no
/// limit") are left out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProtocolCounters {
    values: BTreeMap<String, u64>,
}

impl ProtocolCounters {
    /// Reads all three files. A host without IPv6 has no `net/snmp6`, and so no such counters.
    ///
    /// # Errors
    /// A file cannot be read, or has an unknown form.
    pub fn read() -> Result<Self, ProcError> {
        let mut counters = Self::default();
        counters.read_file("snmp", Self::parse_tables)?;
        counters.read_file("netstat", Self::parse_tables)?;
        match counters.read_file("snmp6", Self::parse_list) {
            Err(ProcError::Read { source, .. }) if source.raw_os_error() == Some(libc::ENOENT) => {}
            other => other?,
        }
        Ok(counters)
    }

    /// The counter's value; `None` where this kernel does not have it.
    pub fn value(&self, name: &str) -> Option<u64> {
        self.values.get(name).copied()
    }

    /// All counters, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.values.iter().map(|(name, value)| (name.as_str(), *value))
    }

    /// How much each counter that is in both readings has changed since `earlier`; unchanged ones
    /// are left out. Gauges (`TcpCurrEstab`) may fall.
    pub fn delta(&self, earlier: &Self) -> BTreeMap<String, i64> {
        self.iter()
            .filter_map(|(name, value)| {
                let change = value.wrapping_sub(earlier.value(name)?).cast_signed();
                (change != 0).then(|| (name.to_owned(), change))
            })
            .collect()
    }

    /// Adds the counters of a text like `net/snmp` and `net/netstat`: pairs of lines, names above
    /// values.
    ///
    /// # Errors
    /// A line of names has no line of as many numbers for the same group below it.
    pub(crate) fn parse_tables(&mut self, text: &str) -> Result<(), Malformed> {
        let mut lines = text.lines();
        while let Some(names) = lines.next() {
            let (group, names) = names
                .split_once(':')
                .ok_or_else(|| Malformed::new("a group of counters", names))?;
            let below = lines.next().unwrap_or("");
            let mut values = below
                .strip_prefix(group)
                .and_then(|rest| rest.strip_prefix(':'))
                .ok_or_else(|| Malformed::new("the values of a group", below))?
                .split_ascii_whitespace();
            for name in names.split_ascii_whitespace() {
                self.insert(format!("{group}{name}"), values.next())?;
            }
            if let Some(extra) = values.next() {
                return Err(Malformed::new("as many values as names", extra));
            }
        }
        Ok(())
    }

    /// Adds the counters of a text like `net/snmp6`: a name and a value on each line.
    ///
    /// # Errors
    /// A line has no number after its name.
    pub(crate) fn parse_list(&mut self, text: &str) -> Result<(), Malformed> {
        for line in text.lines() {
            let mut words = line.split_ascii_whitespace();
            let name = words.next().ok_or_else(|| Malformed::new("a counter's name", line))?;
            self.insert(name.to_owned(), words.next())?;
        }
        Ok(())
    }

    fn insert(&mut self, name: String, value: Option<&str>) -> Result<(), Malformed> {
        if value.is_some_and(|text| text.starts_with('-')) {
            field::<i64>(value, "a counter's value")?;
            return Ok(());
        }
        self.values.insert(name, field(value, "a counter's value")?);
        Ok(())
    }

    fn read_file(
        &mut self,
        name: &str,
        parse: impl FnOnce(&mut Self, &str) -> Result<(), Malformed>,
    ) -> Result<(), ProcError> {
        let path = net_path(name);
        let text = read_text(&path)?;
        parse(self, &text).map_err(|source| ProcError::Malformed { path, source })
    }
}

// `/proc/softirqs`: how often each soft interrupt ran, on each CPU.

/// How often the network's receive soft interrupt ran since the host started, over all CPUs and
/// namespaces. The kernel's counters are of 32 bits for each CPU.
///
/// # Errors
/// The file cannot be read, or has an unknown form.
pub fn receive_softirqs() -> Result<u64, ProcError> {
    read_and_parse("/proc/softirqs", |text| parse_softirqs(text, "NET_RX"))
}

/// The sum over the CPUs of one kind.
///
/// # Errors
/// There is no line of that kind, or something in it that is not a number.
pub fn parse_softirqs(text: &str, kind: &str) -> Result<u64, Malformed> {
    let of_kind = |line: &str| {
        let (name, counts) = line.split_once(':')?;
        (name.trim() == kind).then(|| counts.to_owned())
    };
    let row = text
        .lines()
        .find_map(of_kind)
        .ok_or_else(|| Malformed::new("a kind of soft interrupt", text))?;
    let mut words = row.split_ascii_whitespace();
    words.try_fold(0u64, |sum, word| Ok(sum.saturating_add(field(Some(word), "a count")?)))
}

// `net/sockstat` and `net/sockstat6`: sockets and the memory that they hold.

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
pub fn read_socket_counts() -> Result<SocketCounts, ProcError> {
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

    const TABLES: &str = "Tcp: RtoAlgorithm MaxConn CurrEstab RetransSegs\nTcp: 1 -1 7 40\n\
        TcpExt: ListenDrops\nTcpExt: 18446744073709551615\nIpExt:\nIpExt:\n";

    fn tables(text: &str) -> Result<ProtocolCounters, Malformed> {
        let mut counters = ProtocolCounters::default();
        counters.parse_tables(text).map(|()| counters)
    }

    #[test]
    fn names_are_those_of_nstat() {
        let counters = tables(TABLES).unwrap();
        assert_eq!(counters.value("TcpRetransSegs"), Some(40));
        assert_eq!(counters.value("TcpExtListenDrops"), Some(u64::MAX));
        assert_eq!(counters.value("TcpMaxConn"), None);
    }

    #[test]
    fn list_of_ipv6_is_understood() {
        let mut counters = ProtocolCounters::default();
        counters.parse_list("Ip6InReceives                   \t1\nUdp6RcvbufErrors  2\n").unwrap();
        assert_eq!(counters.value("Udp6RcvbufErrors"), Some(2));
        assert!(counters.parse_list("Ip6InReceives\n").is_err());
    }

    #[test]
    fn delta_holds_what_changed_and_gauges_may_fall() {
        let before = tables(TABLES).unwrap();
        let after = tables("Tcp: RtoAlgorithm CurrEstab RetransSegs New\nTcp: 1 5 42 9\n").unwrap();
        let delta = after.delta(&before);
        assert_eq!(
            delta.into_iter().collect::<Vec<_>>(),
            [("TcpCurrEstab".to_owned(), -2), ("TcpRetransSegs".to_owned(), 2)]
        );
    }

    #[test]
    fn odd_and_truncated_texts_are_errors_and_never_panics() {
        for text in [
            "Tcp",
            "Tcp: A B\n",
            "Tcp: A B\nTcp: 1\n",
            "Tcp: A\nTcp: 1 2\n",
            "Tcp: A\nUdp: 1\n",
            "Tcp: A\nTcp: x\n",
        ] {
            assert!(tables(text).is_err(), "{text:?}");
        }
        parse_every_prefix(TABLES, tables);
    }

    #[test]
    fn the_running_kernel_is_understood() {
        let counters = ProtocolCounters::read().unwrap();
        assert!(counters.value("TcpRetransSegs").is_some());
        assert!(counters.value("TcpExtListenDrops").is_some());
        assert!(counters.value("IpInReceives").is_some());
    }

    const SAMPLE: &str = "                    CPU0       CPU1       \n          HI:          \
        1          0\n      \
        NET_TX:        419        394\n      NET_RX:    3011160    3165881\n";

    #[test]
    fn counters_are_summed_over_the_cpus() {
        assert_eq!(parse_softirqs(SAMPLE, "NET_RX").unwrap(), 6_177_041);
        assert_eq!(parse_softirqs(SAMPLE, "HI").unwrap(), 1);
        assert!(parse_softirqs(SAMPLE, "RCU").is_err());
        assert!(parse_softirqs("NET_RX: 1 x\n", "NET_RX").is_err());
        parse_every_prefix(SAMPLE, |text| parse_softirqs(text, "NET_RX"));
    }

    #[test]
    fn soft_interrupts_of_this_host_can_be_read() {
        assert!(receive_softirqs().is_ok());
    }

    const SOCKSTAT_SAMPLE: &str = "sockets: used 13\nTCP: inuse 1 orphan 2 tw 3 alloc 4 mem 151\nUDP: inuse \
        5 mem 6\n\
        UDPLITE: inuse 0\nRAW: inuse 0\nFRAG: inuse 0 memory 0\n";

    fn parsed(text: &str) -> Result<SocketCounts, Malformed> {
        let mut counts = SocketCounts::default();
        counts.parse(text).map(|()| counts)
    }

    #[test]
    fn parses_both_files_into_one() {
        let mut counts = parsed(SOCKSTAT_SAMPLE).unwrap();
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
    fn odd_and_truncated_sockstat_is_an_error_and_never_panics() {
        assert!(parsed("TCP: inuse\n").is_err());
        assert!(parsed("TCP: inuse many\n").is_err());
        assert!(parsed("nonsense\n").is_err());
        parse_every_prefix(SOCKSTAT_SAMPLE, parsed);
    }

    #[test]
    fn an_open_socket_is_counted() {
        let _socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        assert!(read_socket_counts().unwrap().udp > 0);
    }
}
