//! Failures, counted by cause.

use std::collections::BTreeMap;
use std::io;

use linerate_core::capacity::{Failure, FailureCause};
use linerate_sys::errno;
use serde::{Deserialize, Serialize};

/// The number of failures of each cause.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct SocketTally(BTreeMap<FailureCause, u64>);

impl SocketTally {
    pub(super) fn count(&mut self, cause: FailureCause) {
        self.add(cause, 1);
    }

    pub(super) fn add(&mut self, cause: FailureCause, count: u64) {
        if count > 0 {
            let sum = self.0.entry(cause).or_default();
            *sum = sum.saturating_add(count);
        }
    }

    pub(super) fn add_all(&mut self, other: &Self) {
        for (cause, count) in &other.0 {
            self.add(*cause, *count);
        }
    }

    pub(super) fn total(&self) -> u64 {
        self.0.values().fold(0, |sum, n| sum.saturating_add(*n))
    }

    /// The causes that have occurred, with their counts.
    pub(super) fn list(&self) -> Vec<Failure> {
        let all = self.0.iter();
        all.map(|(&cause, &count)| Failure { cause, count }).collect()
    }
}

/// The cause that an error of the kernel stands for.
pub(super) fn cause_of(error: io::Error) -> FailureCause {
    use io::ErrorKind as Kind;
    match error.raw_os_error() {
        Some(errno::EMFILE) => return FailureCause::Descriptors,
        Some(errno::ENFILE) => return FailureCause::Files,
        Some(errno::ENOBUFS) => return FailureCause::Buffers,
        Some(errno::ENOMEM) => return FailureCause::Memory,
        Some(errno::ENOSPC) => return FailureCause::Watches,
        _ => {}
    }
    match error.kind() {
        Kind::AddrNotAvailable | Kind::AddrInUse => FailureCause::Ports,
        Kind::ConnectionRefused => FailureCause::Refused,
        Kind::TimedOut => FailureCause::TimedOut,
        Kind::ConnectionReset | Kind::BrokenPipe => FailureCause::Reset,
        Kind::UnexpectedEof => FailureCause::Closed,
        Kind::NetworkUnreachable | Kind::HostUnreachable => FailureCause::Unreachable,
        Kind::PermissionDenied => FailureCause::NotPermitted,
        _ => FailureCause::Other,
    }
}

/// The same where a socket is opened from a port that was chosen, so that a missing address is no
/// lack of ports: this host does not have it.
pub(super) fn cause_of_opening(error: io::Error) -> FailureCause {
    match error.kind() {
        io::ErrorKind::AddrNotAvailable => FailureCause::Other,
        _ => cause_of(error),
    }
}

/// Whether the next attempt would fail for the same cause.
pub(super) fn is_lasting(cause: FailureCause) -> bool {
    use FailureCause as Cause;
    matches!(
        cause,
        Cause::Descriptors
            | Cause::Files
            | Cause::Ports
            | Cause::Buffers
            | Cause::Memory
            | Cause::Watches
            | Cause::Unreachable
            | Cause::NotPermitted
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_causes_that_were_counted_are_listed() {
        let mut tally = SocketTally::default();
        tally.count(FailureCause::Ports);
        tally.count(FailureCause::Reset);
        tally.add(FailureCause::Reset, 4);
        tally.add(FailureCause::Closed, 0);
        assert_eq!(tally.total(), 6);
        let mut again = SocketTally::default();
        again.add_all(&tally);
        assert_eq!(again, tally);
        assert_eq!(tally.list().len(), 2);
    }

    #[test]
    fn errors_of_the_kernel_have_their_causes() {
        let cases = [
            (errno::EMFILE, FailureCause::Descriptors, true),
            (errno::ENOMEM, FailureCause::Memory, true),
            (errno::ENOSPC, FailureCause::Watches, true),
        ];
        for (code, cause, lasting) in cases {
            assert_eq!(cause_of(io::Error::from_raw_os_error(code)), cause);
            assert_eq!(is_lasting(cause), lasting);
        }
        let refused = io::Error::from(io::ErrorKind::ConnectionRefused);
        assert_eq!(cause_of(refused), FailureCause::Refused);
        assert!(!is_lasting(FailureCause::Refused));
    }
}
