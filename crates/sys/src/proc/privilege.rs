//! What this process is allowed: capabilities, users, namespaces, confinement, descriptors.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

use super::{Malformed, Probe, ProcError, read_and_parse};

/// A capability, by its number in the kernel's uapi/linux/capability.h.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Capability {
    /// Settings of the network: links, routes, qdiscs, buffers by force.
    NetAdmin = 12,
    /// Raw and packet sockets.
    NetRaw = 13,
    /// Namespaces, mounts and much else.
    SysAdmin = 21,
    /// Loading eBPF programs (Linux 5.8).
    Bpf = 39,
}

/// The privileges of a thread, from its `/proc` file `status`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Privileges {
    /// The effective capabilities, as bits. They hold in this user namespace only.
    pub capabilities: u64,
}

impl Privileges {
    /// Reads those of the calling thread.
    ///
    /// # Errors
    /// The file cannot be read, or has an unknown form.
    pub fn read() -> Result<Self, ProcError> {
        read_and_parse("/proc/thread-self/status", Self::parse)
    }

    /// Parses the text of a `status` file.
    ///
    /// # Errors
    /// The line `CapEff` is missing, or is no hexadecimal number.
    pub fn parse(text: &str) -> Result<Self, Malformed> {
        let mut lines = text.lines();
        let line = lines.find_map(|line| line.strip_prefix("CapEff:"));
        let capabilities = line.unwrap_or_default().trim();
        Ok(Self {
            capabilities: u64::from_str_radix(capabilities, 16)
                .map_err(|_| Malformed::new("the effective capabilities", capabilities))?,
        })
    }

    /// Whether the process has the capability, in its own user namespace.
    pub fn has(&self, capability: Capability) -> bool {
        self.capabilities >> capability as u8 & 1 == 1
    }
}

/// Takes a capability away from the calling thread, for good. Threads that it starts later lack it
/// too.
///
/// # Errors
/// A seccomp filter forbids it.
pub fn give_up(capability: Capability) -> io::Result<()> {
    let mut sets = capabilities(None)?;
    let others = !CapabilitySet::from_bits_retain(1 << capability as u8);
    sets.effective &= others;
    sets.permitted &= others;
    sets.inheritable &= others;
    Ok(set_capabilities(None, sets)?)
}

/// Whether this process is in a user namespace other than the host's first: its capabilities then
/// do not reach what belongs to the host. Unsupported where the kernel has no user namespaces.
/// Whether one can be made says [`user_namespaces_allowed`](crate::netns::user_namespaces_allowed).
pub fn in_user_namespace() -> Probe<bool> {
    /// PROC_USER_INIT_INO of the kernel's include/linux/proc_ns.h, an inode number that never
    /// changes.
    const INITIAL_USER_NAMESPACE: u64 = 0xEFFF_FFFD;
    let path = Path::new("/proc/self/ns/user");
    std::fs::metadata(path)
        .map(|meta| meta.ino() != INITIAL_USER_NAMESPACE)
        .map_err(|source| ProcError::Read { path: path.to_owned(), source })
        .into()
}

// Descriptors that this process may have open.

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
    use crate::proc::tests::parse_every_prefix;

    const SAMPLE: &str = "Name:\tcat\nUid:\t1000\t0\t1000\t1000\nCapPrm:\t000001ffffffffff\n\
        CapEff:\t000001fffeffffff\nNoNewPrivs:\t0\nSeccomp:\t2\nSeccomp_filters:\t1\n";

    #[test]
    fn effective_capabilities_are_understood() {
        let privileges = Privileges::parse(SAMPLE).unwrap();
        assert!(privileges.has(Capability::NetAdmin) && privileges.has(Capability::Bpf));
        let none = Privileges::parse("CapEff:\t0\n").unwrap();
        assert!(!none.has(Capability::NetRaw));
    }

    #[test]
    fn odd_and_truncated_texts_are_errors_and_never_panics() {
        for text in ["", "Uid:\t1\n", "CapEff:\txyz\n"] {
            assert!(Privileges::parse(text).is_err(), "{text:?}");
        }
        parse_every_prefix(SAMPLE, Privileges::parse);
    }

    #[test]
    fn a_thread_gives_up_one_capability_and_no_other_thread_does() {
        let before = Privileges::read().unwrap();
        let after = std::thread::spawn(|| {
            give_up(Capability::NetAdmin).unwrap();
            Privileges::read().unwrap()
        });
        let after = after.join().unwrap();
        assert!(!after.has(Capability::NetAdmin));
        assert_eq!(after.has(Capability::NetRaw), before.has(Capability::NetRaw));
        assert_eq!(Privileges::read().unwrap(), before);
    }

    #[test]
    fn the_user_namespace_of_this_process_is_known() {
        assert!(!matches!(in_user_namespace(), Probe::Unknown(_)));
    }

    #[test]
    fn the_limit_can_be_raised_to_its_hard_value() {
        let before = descriptor_limit();
        let after = raise_descriptor_limit().unwrap();
        assert_eq!(after, DescriptorLimit { soft: before.hard, hard: before.hard });
    }
}
