//! How many descriptors this process may have open.

use std::io;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// RLIMIT_NOFILE: descriptors that this process may have open at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DescriptorLimit {
    /// What holds now.
    pub soft: u64,
    /// Hard limit: what a process may raise it to without privilege.
    pub hard: u64,
}

/// Reads the limit.
pub fn descriptor_limit() -> DescriptorLimit {
    let limit = getrlimit(Resource::Nofile);
    DescriptorLimit {
        soft: limit.current.unwrap_or(u64::MAX),
        hard: limit.maximum.unwrap_or(u64::MAX),
    }
}

/// Raises the soft limit to the hard one and returns what holds then.
///
/// # Errors
/// The kernel refuses, which a seccomp filter could make it do.
pub fn raise_descriptor_limit() -> io::Result<DescriptorLimit> {
    set_descriptor_limit(u64::MAX)
}

/// Sets the soft limit, to what the hard one allows at most, and returns what holds then. What is
/// open stays open.
///
/// # Errors
/// The kernel refuses, which a seccomp filter could make it do.
pub fn set_descriptor_limit(soft: u64) -> io::Result<DescriptorLimit> {
    let DescriptorLimit { hard, .. } = descriptor_limit();
    let limit = Rlimit { current: Some(soft.min(hard)), maximum: Some(hard) };
    setrlimit(Resource::Nofile, limit)?;
    Ok(descriptor_limit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_can_be_raised_to_its_hard_value() {
        let before = descriptor_limit();
        let after = raise_descriptor_limit().unwrap();
        assert_eq!(after, DescriptorLimit { soft: before.hard, hard: before.hard });
    }
}
