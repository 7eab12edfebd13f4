//! Why nothing can be sampled, as far as the kernel's answer tells.

use std::io;

use super::PerfError;

/// What stands in the way: each has a remedy of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Obstacle {
    /// `kernel.perf_event_paranoid`, or a security module, does not let this process.
    Paranoid,
    /// A filter of system calls (containers have one), or the kernel's lockdown, whatever the
    /// setting.
    Filtered,
    /// The ring would be more memory than this user may lock.
    LockedMemory,
    /// There is no memory for it.
    Memory,
    /// This process, or the host, has as many descriptors open as it may.
    Descriptors,
    /// The CPU or the thread is gone.
    NotThere,
    /// The kernel or the hardware has no such event.
    Unsupported,
    /// Another reason.
    Other,
}

impl PerfError {
    /// What stands in the way.
    pub fn obstacle(&self) -> Obstacle {
        let (Self::Open { source, .. } | Self::Map { source, .. }) = self;
        let is_mapped = matches!(self, Self::Map { .. });
        of(source, is_mapped)
    }
}

/// As `perf_event_open` and `perf_mmap` of kernel/events/core.c answer: what the setting forbids is
/// EACCES at the opening, what may not be locked EPERM at the mapping.
fn of(error: &io::Error, is_mapped: bool) -> Obstacle {
    match error.raw_os_error() {
        Some(libc::EPERM) if is_mapped => Obstacle::LockedMemory,
        Some(libc::EPERM | libc::ENOSYS) => Obstacle::Filtered,
        Some(libc::EACCES) => Obstacle::Paranoid,
        Some(libc::ENOMEM) => Obstacle::Memory,
        Some(libc::EMFILE | libc::ENFILE) => Obstacle::Descriptors,
        Some(libc::ENODEV | libc::ESRCH) => Obstacle::NotThere,
        Some(libc::ENOENT | libc::EOPNOTSUPP) => Obstacle::Unsupported,
        _ => Obstacle::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::super::Subject;
    use super::*;

    #[test]
    fn what_stands_in_the_way_is_told_by_the_kernels_answer() {
        let subject = Subject::Cpu(0);
        let answer = io::Error::from_raw_os_error;
        for (number, at_opening, at_mapping) in [
            (libc::EACCES, Obstacle::Paranoid, Obstacle::Paranoid),
            (libc::EPERM, Obstacle::Filtered, Obstacle::LockedMemory),
            (libc::ENOMEM, Obstacle::Memory, Obstacle::Memory),
            (libc::EMFILE, Obstacle::Descriptors, Obstacle::Descriptors),
            (libc::ESRCH, Obstacle::NotThere, Obstacle::NotThere),
            (libc::ENOENT, Obstacle::Unsupported, Obstacle::Unsupported),
            (libc::EIO, Obstacle::Other, Obstacle::Other),
        ] {
            let source = answer(number);
            let open = PerfError::Open { subject, source };
            assert_eq!(open.obstacle(), at_opening, "{open}");
            let source = answer(number);
            let map = PerfError::Map { subject, source };
            assert_eq!(map.obstacle(), at_mapping, "{map}");
        }
    }
}
