//! Protocol counters of the calling thread's network namespace: `net/snmp`, `net/netstat` and
//! `net/snmp6`.

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
pub fn received() -> Result<u64, ProcError> {
    read_and_parse("/proc/softirqs", |text| parse(text, "NET_RX"))
}

/// The sum over the CPUs of one kind.
///
/// # Errors
/// There is no line of that kind, or something in it that is not a number.
pub fn parse(text: &str, kind: &str) -> Result<u64, Malformed> {
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
        assert_eq!(parse(SAMPLE, "NET_RX").unwrap(), 6_177_041);
        assert_eq!(parse(SAMPLE, "HI").unwrap(), 1);
        assert!(parse(SAMPLE, "RCU").is_err());
        assert!(parse("NET_RX: 1 x\n", "NET_RX").is_err());
        parse_every_prefix(SAMPLE, |text| parse(text, "NET_RX"));
    }

    #[test]
    fn soft_interrupts_of_this_host_can_be_read() {
        assert!(received().is_ok());
    }
}
