//! Counting failures by their cause, without allocating.

use std::io;

use linerate_core::capacity::{Failure, FailureCause};
use linerate_sys::errno;

/// How often each cause was met.
#[derive(Debug, Clone, Default)]
pub(super) struct Tally {
    counts: [u64; CAUSES.len()],
}

impl Tally {
    pub(super) fn count(&mut self, cause: FailureCause) {
        self.add(cause, 1);
    }

    pub(super) fn add(&mut self, cause: FailureCause, count: u64) {
        if let Some(at) = CAUSES.iter().position(|known| *known == cause) {
            self.counts[at] = self.counts[at].saturating_add(count);
        }
    }

    pub(super) fn add_all(&mut self, failures: &[Failure]) {
        for failure in failures {
            self.add(failure.cause, failure.count);
        }
    }

    pub(super) fn total(&self) -> u64 {
        self.counts.iter().fold(0, |sum, n| sum.saturating_add(*n))
    }

    /// Those that happened.
    pub(super) fn list(&self) -> Vec<Failure> {
        let all = CAUSES.into_iter().zip(self.counts);
        all.filter(|(_, count)| *count > 0)
            .map(|(cause, count)| Failure { cause, count })
            .collect()
    }
}

/// What the kernel's answer means.
pub(super) fn cause_of(error: &io::Error) -> FailureCause {
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

/// Whether the next attempt is bound to fail like this one.
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

const CAUSES: [FailureCause; 17] = [
    FailureCause::Descriptors,
    FailureCause::Files,
    FailureCause::Ports,
    FailureCause::Buffers,
    FailureCause::Memory,
    FailureCause::Refused,
    FailureCause::TimedOut,
    FailureCause::Reset,
    FailureCause::Closed,
    FailureCause::Unreachable,
    FailureCause::Stranger,
    FailureCause::Crowded,
    FailureCause::Garbled,
    FailureCause::WorkerLost,
    FailureCause::Watches,
    FailureCause::NotPermitted,
    FailureCause::Other,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_counted_is_listed() {
        let mut tally = Tally::default();
        for cause in CAUSES {
            tally.count(cause);
        }
        tally.add(FailureCause::Reset, 4);
        assert_eq!(tally.total(), 21);
        let mut again = Tally::default();
        again.add_all(&tally.list());
        assert_eq!(again.list(), tally.list());
        assert_eq!(tally.list().len(), CAUSES.len());
    }

    #[test]
    fn the_kernels_words_have_their_causes() {
        let cases = [
            (errno::EMFILE, FailureCause::Descriptors, true),
            (errno::ENOMEM, FailureCause::Memory, true),
            (errno::ENOSPC, FailureCause::Watches, true),
        ];
        for (code, cause, lasting) in cases {
            assert_eq!(cause_of(&io::Error::from_raw_os_error(code)), cause);
            assert_eq!(is_lasting(cause), lasting);
        }
        let refused = io::Error::from(io::ErrorKind::ConnectionRefused);
        assert_eq!(cause_of(&refused), FailureCause::Refused);
        assert!(!is_lasting(FailureCause::Refused));
    }
}
