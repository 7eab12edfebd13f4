//! `/proc/softirqs`: how often each soft interrupt ran, on each CPU.

use super::{Malformed, ProcError, field, read_and_parse};

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
    use super::super::tests::parse_every_prefix;
    use super::*;

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
