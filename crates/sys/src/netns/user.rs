//! Namespaces without root: a user namespace in which an ordinary user is root.

use std::fs;
use std::io;

use super::{Namespace, NamespaceError, check, unshare};
use crate::netlink::LinkChange;

/// Whether this process may create user namespaces and network namespaces in them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UserNamespaces {
    /// It may.
    Supported,
    /// It may not.
    Unsupported {
        /// What stands in the way.
        reason: String,
        /// What the administrator of the host can do about it.
        remedy: String,
    },
    /// The attempt itself could not be made.
    CouldNotTell {
        /// Why not.
        reason: String,
    },
}

/// Why the process could not become root of a user namespace.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UserNamespaceError {
    /// Only a process of one thread can change its user namespace.
    #[error("cannot enter a user namespace: the process has {count} threads and may have one only")]
    Threads {
        /// How many it has.
        count: usize,
    },
    /// The kernel refused; [`user_namespaces_allowed`] says why.
    #[error("cannot create a user namespace")]
    Create {
        /// What the kernel answered.
        source: io::Error,
    },
    /// A file of the process could not be read or written.
    #[error("cannot access {path}")]
    File {
        /// The file.
        path: &'static str,
        /// What the kernel answered.
        source: io::Error,
    },
    /// The loopback link of the new network namespace could not be set up.
    #[error("cannot set up the new network namespace")]
    Network {
        /// The request that failed.
        source: NamespaceError,
    },
}

/// Makes the process root of new user, network and mount namespaces, with loopback up. To the rest
/// of the host it stays the user that it was; that user is number 0 inside. Mounts that it makes
/// are seen by nobody else.
///
/// Threads started later may create and enter network namespaces like root's.
///
/// # Errors
/// [`UserNamespaceError::Threads`] if the process has more than one thread; the others if the
/// kernel refuses. After an error past the check of threads the process may already be in the
/// namespaces.
pub fn enter_user_namespace() -> Result<(), UserNamespaceError> {
    let count = read_directory_length("/proc/self/task")?;
    if count != 1 {
        return Err(UserNamespaceError::Threads { count });
    }
    let (uid, gid) = effective_ids();
    unshare(FLAGS).map_err(|source| UserNamespaceError::Create { source })?;
    // Without it an unprivileged process may not map groups (user_namespaces(7)).
    write("/proc/self/setgroups", "deny")?;
    write("/proc/self/uid_map", &format!("0 {uid} 1"))?;
    write("/proc/self/gid_map", &format!("0 {gid} 1"))?;
    let namespace =
        Namespace::current().map_err(|source| UserNamespaceError::Network { source })?;
    namespace
        .configure(|netlink| netlink.change_link("lo", &LinkChange::Up))
        .map_err(|source| UserNamespaceError::Network { source })
}

/// Finds out by trying, in a child process.
pub fn user_namespaces_allowed() -> UserNamespaces {
    match errno_of_attempt() {
        Ok(0) => UserNamespaces::Supported,
        Ok(errno) => {
            let (reason, remedy) = explain(errno, |key| {
                fs::read_to_string(format!("/proc/sys/{key}"))
                    .ok()
                    .map(|text| text.trim().to_owned())
            });
            UserNamespaces::Unsupported { reason, remedy }
        }
        Err(error) => UserNamespaces::CouldNotTell {
            reason: format!("no child process: {error}"),
        },
    }
}

/// Why an attempt failed with `errno`, and the remedy. `setting` reads a sysctl.
fn explain(errno: i32, setting: impl Fn(&str) -> Option<String>) -> (String, String) {
    for (key, forbids, allows) in SETTINGS {
        if setting(key).as_deref() == Some(forbids) {
            return (
                format!("{} = {forbids}", key.replace('/', ".")),
                format!(
                    "sysctl -w {}={allows}, or run as root",
                    key.replace('/', ".")
                ),
            );
        }
    }
    let reason = match errno {
        libc::ENOSPC => {
            "the limit on user or network namespaces is reached (sysctl user.max_*_namespaces)"
        }
        libc::EINVAL | libc::ENOSYS => "the kernel is built without user or network namespaces",
        libc::EPERM => {
            "a container's or service's seccomp filter, or a security module, forbids them"
        }
        _ => {
            return (
                io::Error::from_raw_os_error(errno).to_string(),
                "run as root".to_owned(),
            );
        }
    };
    let remedy = match errno {
        libc::ENOSPC => "raise the limit, or run as root",
        libc::EINVAL | libc::ENOSYS => {
            "run a kernel with CONFIG_USER_NS and CONFIG_NET_NS, or run as root"
        }
        _ => "lift the filter (for containers: --security-opt seccomp=unconfined), or run as root",
    };
    (reason.to_owned(), remedy.to_owned())
}

/// The error number with which a child process failed, 0 if it succeeded.
fn errno_of_attempt() -> io::Result<i32> {
    // SAFETY: the child makes system calls only, on no memory of other threads, and never returns.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let errno = unshare(FLAGS)
            .err()
            .and_then(|error| error.raw_os_error())
            .unwrap_or(0);
        // SAFETY: takes no pointers and ends the child without running what the parent registered.
        unsafe { libc::_exit(errno) };
    }
    check(child)?;
    exit_status(child)
}

/// Waits for `child` to end; error numbers fit into the 8 bits of an exit status.
fn exit_status(child: libc::pid_t) -> io::Result<i32> {
    let mut status = 0;
    loop {
        // SAFETY: the status is a live integer.
        match check(unsafe { libc::waitpid(child, &raw mut status, 0) }) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
            Ok(()) if libc::WIFEXITED(status) => return Ok(libc::WEXITSTATUS(status)),
            Ok(()) => return Err(io::Error::other("the child was killed")),
        }
    }
}

fn effective_ids() -> (libc::uid_t, libc::gid_t) {
    // SAFETY: these calls take nothing and cannot fail.
    unsafe { (libc::geteuid(), libc::getegid()) }
}

fn read_directory_length(path: &'static str) -> Result<usize, UserNamespaceError> {
    fs::read_dir(path)
        .map(Iterator::count)
        .map_err(|source| UserNamespaceError::File { path, source })
}

fn write(path: &'static str, text: &str) -> Result<(), UserNamespaceError> {
    fs::write(path, text).map_err(|source| UserNamespaceError::File { path, source })
}

const FLAGS: libc::c_int = libc::CLONE_NEWUSER | libc::CLONE_NEWNET | libc::CLONE_NEWNS;

/// Sysctls, the value that forbids user namespaces, and one that allows them. The second is of
/// Debian's kernels, the third of Ubuntu's.
const SETTINGS: [(&str, &str, &str); 3] = [
    ("user/max_user_namespaces", "0", "10000"),
    ("kernel/unprivileged_userns_clone", "0", "1"),
    ("kernel/apparmor_restrict_unprivileged_userns", "1", "0"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forbidding_setting_is_named_with_its_remedy() {
        let debian =
            |key: &str| (key == "kernel/unprivileged_userns_clone").then(|| "0".to_owned());
        let (reason, remedy) = explain(libc::EPERM, debian);
        assert_eq!(reason, "kernel.unprivileged_userns_clone = 0");
        assert_eq!(
            remedy,
            "sysctl -w kernel.unprivileged_userns_clone=1, or run as root"
        );
    }

    #[test]
    fn without_a_forbidding_setting_the_error_number_decides() {
        let allowing = |_: &str| Some("15000".to_owned());
        assert!(explain(libc::EPERM, allowing).0.contains("seccomp"));
        assert!(explain(libc::ENOSPC, allowing).0.contains("limit"));
        assert!(explain(libc::EINVAL, allowing).1.contains("CONFIG_USER_NS"));
        assert!(explain(libc::EIO, allowing).0.contains("os error 5"));
    }

    #[test]
    fn process_with_threads_is_refused() {
        // The harness runs tests on threads of their own, beside the first.
        let other = std::thread::spawn(std::thread::park);
        let result = enter_user_namespace();
        other.thread().unpark();
        other.join().unwrap();
        assert!(
            matches!(result, Err(UserNamespaceError::Threads { count: 2.. })),
            "{result:?}"
        );
    }
}
