//! How many descriptors this process may have open.

use std::io;

/// RLIMIT_NOFILE: descriptors that this process may have open at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DescriptorLimit {
    /// What holds now.
    pub soft: u64,
    /// What it may be raised to without privilege.
    pub hard: u64,
}

/// A limit that could not be read or set.
#[derive(Debug, thiserror::Error)]
#[error("cannot {operation} the limit on open descriptors")]
pub struct LimitError {
    operation: &'static str,
    source: io::Error,
}

/// Reads the limit.
///
/// # Errors
/// The kernel refuses, which a seccomp filter could make it do.
pub fn descriptor_limit() -> Result<DescriptorLimit, LimitError> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the pointer is to a live rlimit that the call fills.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } != 0 {
        return Err(LimitError {
            operation: "read",
            source: io::Error::last_os_error(),
        });
    }
    Ok(DescriptorLimit {
        soft: limit.rlim_cur,
        hard: limit.rlim_max,
    })
}

/// Raises the soft limit to the hard one and returns what holds then.
///
/// # Errors
/// As [`descriptor_limit`].
pub fn raise_descriptor_limit() -> Result<DescriptorLimit, LimitError> {
    set_descriptor_limit(u64::MAX)
}

/// Sets the soft limit, to what the hard one allows at most, and returns what holds then. What is
/// open stays open.
///
/// # Errors
/// As [`descriptor_limit`].
pub fn set_descriptor_limit(soft: u64) -> Result<DescriptorLimit, LimitError> {
    let DescriptorLimit { hard, .. } = descriptor_limit()?;
    let limit = libc::rlimit {
        rlim_cur: soft.min(hard),
        rlim_max: hard,
    };
    // SAFETY: the pointer is to a live rlimit that the call only reads.
    if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) } != 0 {
        return Err(LimitError {
            operation: "set",
            source: io::Error::last_os_error(),
        });
    }
    descriptor_limit()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_can_be_raised_to_its_hard_value() {
        let before = descriptor_limit().unwrap();
        let after = raise_descriptor_limit().unwrap();
        assert_eq!(
            after,
            DescriptorLimit {
                soft: before.hard,
                hard: before.hard
            }
        );
    }
}
