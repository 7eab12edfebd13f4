//! `net/dev`: packets, errors and drops of each interface of the calling thread's network
//! namespace.

use super::{Malformed, ProcError, field, net_path, read_and_parse};

/// Counters of one interface since it was created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InterfaceCounters {
    /// The interface's name.
    pub name: String,
    /// What it received.
    pub received: DirectionCounters,
    /// What it sent.
    pub sent: DirectionCounters,
}

/// Counters of one direction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DirectionCounters {
    /// Bytes, as the driver counts them.
    pub bytes: u64,
    /// Packets; a segmentation-offload frame may count as one.
    pub packets: u64,
    /// Errors of all kinds.
    pub errors: u64,
    /// Packets dropped: no buffer, no protocol, or the device refused them.
    pub dropped: u64,
    /// Overruns of the device's ring.
    pub overruns: u64,
}

impl DirectionCounters {
    /// What was counted from `earlier` to this reading. A counter that fell (device reset) counts
    /// as zero.
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            bytes: self.bytes.saturating_sub(earlier.bytes),
            packets: self.packets.saturating_sub(earlier.packets),
            errors: self.errors.saturating_sub(earlier.errors),
            dropped: self.dropped.saturating_sub(earlier.dropped),
            overruns: self.overruns.saturating_sub(earlier.overruns),
        }
    }
}

/// Reads the counters of every interface.
///
/// # Errors
/// The file cannot be read, or has an unknown form.
pub fn read() -> Result<Vec<InterfaceCounters>, ProcError> {
    read_and_parse(net_path("dev"), parse)
}

/// Parses the table: two lines of heading, then `name:` and 16 counters.
///
/// # Errors
/// A line has no name, or something that is not a counter.
pub fn parse(text: &str) -> Result<Vec<InterfaceCounters>, Malformed> {
    text.lines().skip(2).map(parse_line).collect()
}

fn parse_line(line: &str) -> Result<InterfaceCounters, Malformed> {
    // An alias has a colon in its name, and no counter has one: the last colon ends the name.
    let (name, counters) = line
        .rsplit_once(':')
        .ok_or_else(|| Malformed::new("an interface", line))?;
    let mut words = counters.split_ascii_whitespace();
    let received = parse_direction(&mut words)?;
    // frame, compressed, multicast
    let sent = parse_direction(&mut words.skip(3))?;
    Ok(InterfaceCounters {
        name: name.trim().to_owned(),
        received,
        sent,
    })
}

fn parse_direction<'a>(
    words: &mut impl Iterator<Item = &'a str>,
) -> Result<DirectionCounters, Malformed> {
    let mut next = || field(words.next(), "a counter of an interface");
    Ok(DirectionCounters {
        bytes: next()?,
        packets: next()?,
        errors: next()?,
        dropped: next()?,
        overruns: next()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proc::tests::parse_every_prefix;

    const SAMPLE: &str = "Inter-|   Receive                            |  Transmit\n \
        face |bytes packets errs drop fifo frame compressed multicast|bytes packets errs drop fifo \
        colls carrier compressed\n    \
        lo:    3193      29    0    0    0     0          0         0     3193      29    0    \
        0    0     0       0          0\n  \
        eth0:68987668    3706    1    2    3     4          5         6   356412    2667    7    \
        8    9    10      11         12\n";

    #[test]
    fn parses_both_directions() {
        let interfaces = parse(SAMPLE).unwrap();
        assert_eq!(interfaces.len(), 2);
        let InterfaceCounters {
            name,
            received,
            sent,
        } = &interfaces[1];
        assert_eq!(name, "eth0");
        assert_eq!(
            (
                received.bytes,
                received.errors,
                received.dropped,
                received.overruns
            ),
            (68_987_668, 1, 2, 3)
        );
        assert_eq!(
            (sent.packets, sent.errors, sent.dropped, sent.overruns),
            (2667, 7, 8, 9)
        );
    }

    #[test]
    fn a_reset_counter_counts_as_zero() {
        let before = DirectionCounters {
            packets: 10,
            ..DirectionCounters::default()
        };
        let after = DirectionCounters {
            packets: 3,
            dropped: 2,
            ..before
        };
        assert_eq!(
            after.since(&before),
            DirectionCounters {
                dropped: 2,
                ..DirectionCounters::default()
            }
        );
    }

    #[test]
    fn odd_and_truncated_texts_are_errors_and_never_panics() {
        assert!(parse("a\nb\nno colon\n").is_err());
        assert!(parse("a\nb\nlo: 1 2 3\n").is_err());
        parse_every_prefix(SAMPLE, parse);
    }

    #[test]
    fn the_running_kernel_is_understood() {
        assert!(
            read()
                .unwrap()
                .iter()
                .any(|interface| interface.name == "lo")
        );
    }
}
