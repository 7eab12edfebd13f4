//! The reason why nothing can be sampled, as far as the kernel's error number shows it.

use std::io;

use super::PerfError;

/// A reason why sampling is not possible; each has its own remedy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Obstacle {
    /// `kernel.perf_event_paranoid` or a security module forbids it.
    Paranoid,
    /// A seccomp filter (containers have one) or the kernel's lockdown mode forbids it, whatever
    /// the setting is.
    Filtered,
    /// The ring buffer exceeds the memory that this user may lock.
    LockedMemory,
    /// There is no memory for the ring buffer.
    Memory,
    /// This process or the host has no descriptor left.
    Descriptors,
    /// The CPU or the thread is gone.
    NotThere,
    /// The kernel or the hardware has no such event.
    Unsupported,
    /// Another reason.
    Other,
}

impl PerfError {
    /// The reason of this error.
    pub fn obstacle(&self) -> Obstacle {
        let (Self::Open { source, .. } | Self::Map { source, .. }) = self;
        let is_mapped = matches!(self, Self::Map { .. });
        of(source, is_mapped)
    }
}

/// The error numbers of `perf_event_open` and `perf_mmap` in kernel/events/core.c: opening fails
/// with EACCES if the setting forbids it, mapping with EPERM beyond the limit of locked memory.
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
    fn obstacles_are_known_by_the_error_number() {
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
