//! Namespaces without root: a user namespace in which an ordinary user is root.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;

use rustix::io::retry_on_intr;
use rustix::process::{Pid, WaitOptions, getegid, geteuid, waitpid};
use rustix::thread::{LinkNameSpaceType, UnshareFlags};

use super::{Namespace, NamespaceError, set_namespace, unshare};
use crate::CallError;
use crate::netlink::LinkChange;
use crate::proc::Probe;

/// Makes the process root of new user, network and mount namespaces, with loopback up. To the rest
/// of the host it stays the user that it was; that user is number 0 inside. Mounts that it makes
/// are seen by nobody else.
///
/// Threads started later may create and enter network namespaces like root's.
///
/// # Errors
/// [`NamespaceError::Threads`] if the process has more than one thread; the others if the
/// kernel refuses. After an error past the check of threads the process may already be in the
/// namespaces.
pub fn enter_user_namespace() -> Result<(), NamespaceError> {
    require_single_thread()?;
    let (uid, gid) = (geteuid().as_raw(), getegid().as_raw());
    unshare(FLAGS).map_err(|error| CallError::new("create a user namespace", error))?;
    // Without it an unprivileged process may not map groups (user_namespaces(7)).
    write("/proc/self/setgroups", "deny")?;
    write("/proc/self/uid_map", &format!("0 {uid} 1"))?;
    write("/proc/self/gid_map", &format!("0 {gid} 1"))?;
    Namespace::current()
        .and_then(|own| own.configure(|netlink| netlink.change_link("lo", &LinkChange::Up)))
        .map_err(|source| NamespaceError::Network { source: Box::new(source) })
}

/// Makes the process a member of the user and mount namespaces of process `pid`, as far as they are
/// not its own already. In a user namespace that was made by this user it then has all
/// capabilities. The working directory stays.
///
/// For a network namespace of that process follow with [`Namespace::open`] and
/// [`Namespace::enter`].
///
/// # Errors
/// [`NamespaceError::Threads`] if the process has more than one thread;
/// [`NamespaceError::Call`] if there is no such process, the kernel refuses (`EPERM`: it
/// belongs to another user), or the working directory does not exist there. After the last two the
/// process may be a member already.
pub fn join_user_namespace(pid: u32) -> Result<(), NamespaceError> {
    require_single_thread()?;
    let join = |error| CallError::new(format!("join the namespaces of process {pid}"), error);
    // Both are opened first: after joining the one, the other's file may be another's.
    let user = foreign_namespace(pid, "user").map_err(join)?;
    let mounts = foreign_namespace(pid, "mnt").map_err(join)?;
    if let Some(file) = user {
        set_namespace(file.as_fd(), LinkNameSpaceType::User).map_err(join)?;
    }
    if let Some(file) = mounts {
        // The kernel goes to the root directory of the mount namespace.
        let directory = std::env::current_dir().map_err(join)?;
        set_namespace(file.as_fd(), LinkNameSpaceType::Mount).map_err(join)?;
        std::env::set_current_dir(&directory)
            .map_err(|error| file_error(&directory.to_string_lossy(), error))?;
    }
    Ok(())
}

/// The namespace of that kind of another process; none if it is that of this process too.
fn foreign_namespace(pid: u32, kind: &str) -> io::Result<Option<File>> {
    let file = File::open(format!("/proc/{pid}/ns/{kind}"))?;
    let own = fs::metadata(format!("/proc/self/ns/{kind}"))?;
    let same = file.metadata()?.ino() == own.ino();
    Ok((!same).then_some(file))
}

fn require_single_thread() -> Result<(), NamespaceError> {
    match read_directory_length("/proc/self/task")? {
        1 => Ok(()),
        count => Err(NamespaceError::Threads { count }),
    }
}

/// Whether a process without privilege can be root of user and network namespaces of its own; if
/// not, what forbids it and how to allow it. Finds out by trying, in a child process.
pub fn user_namespaces_allowed() -> Probe<()> {
    match errno_of_attempt() {
        Ok(0) => Probe::Supported(()),
        Ok(errno) => {
            let (reason, remedy) = explain(errno, |key| {
                fs::read_to_string(format!("/proc/sys/{key}"))
                    .ok()
                    .map(|text| text.trim().to_owned())
            });
            Probe::Unsupported(format!("{reason}; to allow them: {remedy}"))
        }
        Err(error) => Probe::Unknown(format!("no child process: {error}")),
    }
}

/// Why an attempt failed with `errno`, and the remedy. `setting` reads a sysctl.
fn explain(errno: i32, setting: impl Fn(&str) -> Option<String>) -> (String, String) {
    for (key, forbids, allows) in SETTINGS {
        if setting(key).as_deref() == Some(forbids) {
            return (
                format!("{} = {forbids}", key.replace('/', ".")),
                format!("sysctl -w {}={allows}, or run as root", key.replace('/', ".")),
            );
        }
    }
    if setting("kernel/ostype").is_none() {
        let remedy = "mount -t proc proc /proc".to_owned();
        return ("/proc is not mounted".to_owned(), remedy);
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
            return (io::Error::from_raw_os_error(errno).to_string(), "run as root".to_owned());
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
        let errno = unshare(FLAGS).err().and_then(|error| error.raw_os_error()).unwrap_or(0);
        // SAFETY: takes no pointers and ends the child without running what the parent registered.
        unsafe { libc::_exit(errno) };
    }
    if child < 0 {
        return Err(io::Error::last_os_error());
    }
    // Error numbers fit into the 8 bits of an exit status.
    let ended = retry_on_intr(|| waitpid(Pid::from_raw(child), WaitOptions::empty()))?;
    let status = ended.and_then(|(_, status)| status.exit_status());
    status.ok_or_else(|| io::Error::other("the child was killed"))
}

fn read_directory_length(path: &str) -> Result<usize, NamespaceError> {
    fs::read_dir(path).map(Iterator::count).map_err(|source| file_error(path, source))
}

fn file_error(path: &str, source: io::Error) -> NamespaceError {
    CallError::new(format!("access {path}"), source).into()
}

fn write(path: &str, text: &str) -> Result<(), NamespaceError> {
    fs::write(path, text).map_err(|source| file_error(path, source))
}

const FLAGS: UnshareFlags =
    UnshareFlags::NEWUSER.union(UnshareFlags::NEWNET).union(UnshareFlags::NEWNS);

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
        assert_eq!(remedy, "sysctl -w kernel.unprivileged_userns_clone=1, or run as root");
    }

    #[test]
    fn without_a_forbidding_setting_the_error_number_decides() {
        let allowing = |_: &str| Some("15000".to_owned());
        assert!(explain(libc::EPERM, allowing).0.contains("seccomp"));
        assert!(explain(libc::ENOSPC, allowing).0.contains("limit"));
        assert!(explain(libc::EINVAL, allowing).1.contains("CONFIG_USER_NS"));
        assert!(explain(libc::EIO, allowing).0.contains("os error 5"));
        assert!(explain(libc::EPERM, |_| None).0.contains("/proc"));
    }

    #[test]
    fn process_with_threads_is_refused() {
        // The harness runs tests on threads of their own, beside the first.
        let other = std::thread::spawn(std::thread::park);
        let result = enter_user_namespace();
        other.thread().unpark();
        other.join().unwrap();
        assert!(matches!(result, Err(NamespaceError::Threads { count: 2.. })), "{result:?}");
    }
}
