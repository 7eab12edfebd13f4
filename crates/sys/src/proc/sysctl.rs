//! Kernel settings by key, as sysctl(8) writes them: `net.ipv4.tcp_rmem`.
//!
//! `net.*` keys that a network namespace has of its own are those of the calling thread's.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

/// A setting that could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum SysctlError {
    /// The key is not one that could exist.
    #[error("{key:?} is not the key of a kernel setting")]
    BadKey {
        /// The key.
        key: String,
    },
    /// This kernel, or this network namespace, does not have the setting.
    #[error("this kernel or namespace has no setting {key}")]
    Missing {
        /// The key.
        key: String,
    },
    /// Nobody can write it here: the kernel only shows it, or `/proc/sys` is mounted read-only (as
    /// containers do).
    #[error("setting {key} is read-only here")]
    ReadOnly {
        /// The key.
        key: String,
    },
    /// This process may not; another might.
    #[error("not permitted to access setting {key}")]
    NotPermitted {
        /// The key.
        key: String,
    },
    /// The kernel refused the value.
    #[error("setting {key} does not take {value:?}")]
    Rejected {
        /// The key.
        key: String,
        /// The value.
        value: String,
        /// What the kernel answered.
        source: io::Error,
    },
    /// Something else went wrong.
    #[error("cannot access setting {key}")]
    Access {
        /// The key.
        key: String,
        /// What the kernel answered.
        source: io::Error,
    },
}

/// Reads a setting. The tabs that the kernel prints between numbers become spaces, so that the
/// result compares equal to a value as people write it.
///
/// # Errors
/// See [`SysctlError`]; a setting that can only be written (`net.ipv4.route.flush`) is
/// [`SysctlError::NotPermitted`].
pub fn read(key: &str) -> Result<String, SysctlError> {
    let text = std::fs::read_to_string(path(key)?).map_err(|source| access_error(key, source))?;
    Ok(text.trim_end().replace('\t', " "))
}

/// Whether this process may write a setting: it is opened for writing, and nothing is written.
///
/// # Errors
/// See [`SysctlError`].
pub fn check_writable(key: &str) -> Result<(), SysctlError> {
    open_for_writing(key).map(drop)
}

/// Whether the kernel lets nobody write a setting, as it does with those of the whole host in a
/// network namespace of its own (`sysctl_core_net_init`, net/core/sysctl_net_core.c). Needs no
/// privilege; false for a setting that does not exist.
pub fn is_read_only(key: &str) -> bool {
    // Without a write bit the kernel refuses root as well: sysctl_perm in fs/proc/proc_sysctl.c.
    let meta = path(key).map(std::fs::metadata);
    meta.is_ok_and(|meta| meta.is_ok_and(|meta| meta.permissions().mode() & 0o222 == 0))
}

/// Writes a setting, in one write as the kernel wants it. Some settings are clamped in silence:
/// read it again.
///
/// # Errors
/// See [`SysctlError`].
pub fn write(key: &str, value: &str) -> Result<(), SysctlError> {
    let mut file = open_for_writing(key)?;
    match file.write(value.as_bytes()) {
        Ok(_) => Ok(()),
        Err(source)
            if matches!(source.raw_os_error(), Some(libc::EPERM | libc::EACCES | libc::EROFS)) =>
        {
            Err(access_error(key, source))
        }
        Err(source) => {
            Err(SysctlError::Rejected { key: key.to_owned(), value: value.to_owned(), source })
        }
    }
}

fn open_for_writing(key: &str) -> Result<File, SysctlError> {
    let path = path(key)?;
    OpenOptions::new().write(true).open(&path).map_err(|source| match source.kind() {
        io::ErrorKind::PermissionDenied if is_read_only(key) => {
            SysctlError::ReadOnly { key: key.to_owned() }
        }
        _ => access_error(key, source),
    })
}

/// The file of a key. As in sysctl(8), dots separate, and a slash stands for a dot within a name
/// (`net.ipv4.conf.eth0/100.forwarding`); or, where a slash comes first, the other way round.
fn path(key: &str) -> Result<PathBuf, SysctlError> {
    let slashes_separate = key.find(['.', '/']).is_some_and(|at| key[at..].starts_with('/'));
    let names: Vec<String> = if slashes_separate {
        key.split('/').map(str::to_owned).collect()
    } else {
        key.split('.').map(|name| name.replace('/', ".")).collect()
    };
    // A key may come from another host or a file: it must not lead out of /proc/sys.
    if names.len() < 2
        || names.iter().any(|name| matches!(name.as_str(), "" | "." | "..") || name.contains('\0'))
    {
        return Err(SysctlError::BadKey { key: key.to_owned() });
    }
    Ok(["/proc/sys"].into_iter().chain(names.iter().map(String::as_str)).collect())
}

fn access_error(key: &str, source: io::Error) -> SysctlError {
    let key = key.to_owned();
    match source.raw_os_error() {
        Some(libc::ENOENT | libc::ENOTDIR) => SysctlError::Missing { key },
        Some(libc::EROFS) => SysctlError::ReadOnly { key },
        Some(libc::EPERM | libc::EACCES) => SysctlError::NotPermitted { key },
        _ => SysctlError::Access { key, source },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proc::counters::ProtocolCounters;
    use linerate_testkit::{Need, skip};

    #[test]
    fn dots_and_slashes_change_places_as_in_sysctl() {
        let file = |key| path(key).unwrap().into_os_string().into_string().unwrap();
        assert_eq!(file("net.ipv4.tcp_rmem"), "/proc/sys/net/ipv4/tcp_rmem");
        assert_eq!(
            file("net.ipv4.conf.eth0/100.forwarding"),
            "/proc/sys/net/ipv4/conf/eth0.100/forwarding"
        );
        assert_eq!(
            file("net/ipv4/conf/eth0.100/forwarding"),
            "/proc/sys/net/ipv4/conf/eth0.100/forwarding"
        );
    }

    #[test]
    fn no_key_leads_out_of_proc_sys() {
        for key in [
            "",
            "net",
            "net..x",
            "/etc/passwd",
            "net/../../../etc/passwd",
            "net.//.x",
            "net.a\0b",
            ".",
            "net/.",
        ] {
            assert!(matches!(read(key), Err(SysctlError::BadKey { .. })), "{key:?}");
        }
    }

    #[test]
    fn reading_tells_missing() {
        assert_eq!(read("net.ipv4.tcp_rmem").unwrap().split(' ').count(), 3);
        assert!(matches!(read("net.ipv4.no_such"), Err(SysctlError::Missing { .. })));
    }

    #[test]
    fn writing_tells_missing_and_read_only() {
        assert!(matches!(write("net.ipv4.no_such", "1"), Err(SysctlError::Missing { .. })));
        // Shown by every kernel, writable on none.
        assert!(matches!(write("kernel.osrelease", "1"), Err(SysctlError::ReadOnly { .. })));
    }

    /// A thread in a network namespace of its own must see its own settings and counters, not those
    /// of the process.
    #[test]
    fn files_are_of_the_calling_threads_namespace() {
        let outside = ProtocolCounters::read().unwrap().value("IpDefaultTTL").unwrap();
        let other = if outside == 33 { 44 } else { 33 };
        let inside = std::thread::spawn(move || {
            // SAFETY: unshare takes a plain integer and changes only this thread, which ends with
            // the test.
            if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
                return None;
            }
            assert!(matches!(
                write("net.ipv4.ip_default_ttl", "not a number"),
                Err(SysctlError::Rejected { .. })
            ));
            write("net.ipv4.ip_default_ttl", &other.to_string()).unwrap();
            ProtocolCounters::read().unwrap().value("IpDefaultTTL")
        })
        .join()
        .unwrap();
        let Some(inside) = inside else {
            skip(Need::Lab, "needs CAP_SYS_ADMIN to make a network namespace");
            return;
        };
        assert_eq!(inside, other);
        assert_eq!(ProtocolCounters::read().unwrap().value("IpDefaultTTL"), Some(outside));
        assert_eq!(read("net.ipv4.ip_default_ttl").unwrap(), outside.to_string());
    }
}
