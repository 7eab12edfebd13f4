//! Mounts that nobody else sees: a file put over another for one command, and the devices of its
//! network in `/sys`.

use std::ffi::CString;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr;
use std::thread;

use super::{check, join, unshare};

/// A mount that could not be made.
#[derive(Debug, thiserror::Error)]
#[error("cannot {operation} {}", path.display())]
pub struct MountError {
    operation: &'static str,
    path: PathBuf,
    source: io::Error,
}

impl MountError {
    /// The kernel's error number, such as `libc::EPERM`.
    pub fn errno(&self) -> Option<i32> {
        self.source.raw_os_error()
    }
}

/// Gives the calling thread a mount namespace of its own, from which nothing it mounts spreads to
/// others. Threads that it starts later and programs that it runs inherit it.
///
/// # Errors
/// `EPERM` without `CAP_SYS_ADMIN` (see [`enter_user_namespace`](super::enter_user_namespace)).
pub fn private_mounts() -> Result<(), MountError> {
    let error = |source| MountError {
        operation: "make private the mounts below",
        path: PathBuf::from("/"),
        source,
    };
    unshare(libc::CLONE_NEWNS).map_err(error)?;
    // SAFETY: the target is a NUL-terminated string; for a change of propagation the others are
    // ignored.
    check(unsafe {
        libc::mount(
            ptr::null(),
            c"/".as_ptr(),
            ptr::null(),
            libc::MS_REC | libc::MS_PRIVATE,
            ptr::null(),
        )
    })
    .map_err(error)
}

/// The process whose mounts outlive this one's: the first process, or, where this one may not look
/// at it, the first of the processes above this one at which it may.
pub fn outermost_process() -> u32 {
    let may_look = |pid: u32| fs::read_link(format!("/proc/{pid}/ns/mnt")).is_ok();
    if may_look(1) {
        return 1;
    }
    let mut outermost = std::process::id();
    while let Some(above) = parent(outermost).filter(|above| may_look(*above)) {
        outermost = above;
    }
    outermost
}

/// The second field behind the name, which may have anything in it (proc_pid_stat(5)).
fn parent(pid: u32) -> Option<u32> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, behind) = text.rsplit_once(')')?;
    behind.split_whitespace().nth(1)?.parse().ok()
}

/// Whether the calling thread sees the mounts that a process sees.
///
/// # Errors
/// There is no such process, or this one may not look at it.
pub fn shares_mounts_with(pid: u32) -> io::Result<bool> {
    let own = fs::read_link("/proc/thread-self/ns/mnt")?;
    Ok(own == fs::read_link(format!("/proc/{pid}/ns/mnt"))?)
}

/// Runs `work` to its end on a thread that sees the mounts that a process sees; relative paths
/// begin at their root. A panic is passed on.
///
/// # Errors
/// `EPERM` without `CAP_SYS_ADMIN` and `CAP_SYS_CHROOT`; there is no such process.
pub fn in_mounts_of<T: Send>(pid: u32, work: impl FnOnce() -> T + Send) -> io::Result<T> {
    let file = File::open(format!("/proc/{pid}/ns/mnt"))?;
    thread::scope(|scope| {
        let helper = thread::Builder::new().spawn_scoped(scope, || {
            // The kernel moves no thread that shares its root and working directory with others.
            unshare(libc::CLONE_FS)?;
            // SAFETY: takes no pointers; the descriptor is open for the duration of the call.
            check(unsafe { libc::setns(file.as_raw_fd(), libc::CLONE_NEWNS) })?;
            Ok(work())
        })?;
        join(helper.join())
    })
}

/// Shows the file or directory `source` in the place of `target`, until the mount namespace ends:
/// call
/// [`private_mounts`] first. A change of the one is one of the other.
///
/// # Errors
/// `ENOENT` if one of them does not exist, `ENOTDIR` if only one is a directory, `EPERM` without
/// `CAP_SYS_ADMIN`.
pub fn bind_mount(source: &Path, target: &Path) -> Result<(), MountError> {
    let error = |error| MountError {
        operation: "mount over",
        path: target.to_owned(),
        source: error,
    };
    let text = |path: &Path| CString::new(path.as_os_str().as_bytes()).map_err(io::Error::from);
    let (from, to) = (text(source).map_err(error)?, text(target).map_err(error)?);
    // SAFETY: both paths are NUL-terminated strings; a bind mount takes no type and no data.
    check(unsafe {
        libc::mount(
            from.as_ptr(),
            to.as_ptr(),
            ptr::null(),
            libc::MS_BIND,
            ptr::null(),
        )
    })
    .map_err(error)
}

/// Shows the devices of the calling thread's network namespace in `/sys/class/net` and
/// `/sys/devices/virtual/net`, until the mount namespace ends: call [`private_mounts`] first. What
/// is mounted below `/sys` (control groups, bpf) stays. A fresh sysfs is that of the network
/// namespace it is mounted in (fs/sysfs/mount.c); it is mounted over `scratch`, a directory that
/// nobody else looks at meanwhile, and taken away again.
///
/// # Errors
/// `EPERM` without `CAP_SYS_ADMIN` over the network namespace, and in a container whose own `/sys`
/// is partly hidden.
pub fn show_network_devices(scratch: &Path) -> Result<(), MountError> {
    let error = |error| MountError {
        operation: "mount sysfs over",
        path: scratch.to_owned(),
        source: error,
    };
    let text = CString::new(scratch.as_os_str().as_bytes()).map_err(io::Error::from);
    let target = text.map_err(error)?;
    // SAFETY: source, target and type are NUL-terminated strings; sysfs takes no data.
    check(unsafe {
        libc::mount(
            c"sysfs".as_ptr(),
            target.as_ptr(),
            c"sysfs".as_ptr(),
            libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC,
            ptr::null(),
        )
    })
    .map_err(error)?;
    let shown = ["devices/virtual/net", "class/net"]
        .into_iter()
        .try_for_each(|part| bind_mount(&scratch.join(part), &Path::new("/sys").join(part)));
    // SAFETY: the target is a NUL-terminated string.
    check(unsafe { libc::umount2(target.as_ptr(), libc::MNT_DETACH) }).map_err(error)?;
    shown
}
