//! `/proc/net/softnet_stat`: what each CPU's network receive softirq did, over all namespaces.

use super::{Malformed, ProcError, net_path, read_and_parse};

/// Counters of one CPU; all wrap at 2³².
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SoftnetCpu {
    /// The CPU's number.
    pub cpu: u32,
    /// Frames dropped since the backlog (`net.core.netdev_max_backlog`) was full.
    pub dropped: u32,
    /// Times that the softirq stopped for its budget (`net.core.netdev_budget`) with work left.
    pub time_squeeze: u32,
    /// Frames in the backlog now; `None` before Linux 5.10. Not a counter.
    pub backlog: Option<u32>,
}

impl SoftnetCpu {
    /// What was counted from `earlier`, a reading of the same CPU, to this one; `backlog` stays as
    /// it is.
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            dropped: self.dropped.wrapping_sub(earlier.dropped),
            time_squeeze: self.time_squeeze.wrapping_sub(earlier.time_squeeze),
            ..*self
        }
    }
}

/// Reads the counters of every online CPU.
///
/// # Errors
/// The file cannot be read, or has an unknown form.
pub fn read() -> Result<Vec<SoftnetCpu>, ProcError> {
    read_and_parse(net_path("softnet_stat"), parse)
}

/// Parses the table; the columns are those of `softnet_seq_show` in the kernel's
/// net/core/net-procfs.c.
///
/// # Errors
/// A line has fewer than the three columns that every kernel has, or something that is not
/// hexadecimal.
pub fn parse(text: &str) -> Result<Vec<SoftnetCpu>, Malformed> {
    text.lines().enumerate().map(|(index, line)| parse_line(index, line)).collect()
}

fn parse_line(index: usize, line: &str) -> Result<SoftnetCpu, Malformed> {
    let columns = line
        .split_ascii_whitespace()
        .map(|word| {
            u32::from_str_radix(word, 16).map_err(|_| Malformed::new("a hexadecimal counter", word))
        })
        .collect::<Result<Vec<_>, _>>()?;
    let &[_, dropped, time_squeeze, ..] = columns.as_slice() else {
        return Err(Malformed::new("at least three counters", line));
    };
    let line_number =
        u32::try_from(index).map_err(|_| Malformed::new("as many lines as CPUs", line))?;
    Ok(SoftnetCpu {
        // Offline CPUs have no line: only since the column exists (Linux 5.10) is the number exact.
        cpu: columns.get(12).copied().unwrap_or(line_number),
        dropped,
        time_squeeze,
        backlog: columns.get(11).copied(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proc::tests::parse_every_prefix;

    const SAMPLE: &str = "00000014 00000001 00000002 0 0 0 0 0 0 00000003 00000004 00000005 \
        00000000 00000000 00000000\n\
        00000e83 00000000 00000000 0 0 0 0 0 0 00000000 00000000 00000000 00000003 00000000 \
        00000000\n";

    #[test]
    fn parses_each_cpu_by_the_number_in_its_line() {
        let cpus = parse(SAMPLE).unwrap();
        assert_eq!(cpus[0], SoftnetCpu { cpu: 0, dropped: 1, time_squeeze: 2, backlog: Some(5) });
        assert_eq!((cpus[1].cpu, cpus[1].dropped), (3, 0));
    }

    #[test]
    fn older_kernels_have_fewer_columns() {
        let cpus = parse("1 2 3 0 0 0 0 0 0\n4 5 6 0 0 0 0 0 0\n").unwrap();
        assert_eq!((cpus[1].cpu, cpus[1].time_squeeze, cpus[1].backlog), (1, 6, None));
    }

    #[test]
    fn counters_wrap() {
        let before = SoftnetCpu { dropped: u32::MAX, ..parse(SAMPLE).unwrap()[0] };
        let after = SoftnetCpu { dropped: 4, ..before };
        assert_eq!(after.since(&before).dropped, 5);
    }

    #[test]
    fn odd_and_truncated_texts_are_errors_and_never_panics() {
        assert!(parse("1 2\n").is_err());
        assert!(parse("1 2 zz\n").is_err());
        parse_every_prefix(SAMPLE, parse);
    }

    #[test]
    fn the_running_kernel_is_understood() {
        assert!(!read().unwrap().is_empty());
    }
}
