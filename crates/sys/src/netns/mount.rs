//! Mounts that nobody else sees: a file put over another for one command, and the devices of its network in `/sys`.

use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr;

use super::{check, unshare};

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

/// Gives the calling thread a mount namespace of its own, from which nothing it mounts spreads to others. Threads that
/// it starts later and programs that it runs inherit it.
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
    // SAFETY: the target is a NUL-terminated string; for a change of propagation the others are ignored.
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

/// Shows the file or directory `source` in the place of `target`, until the mount namespace ends: call
/// [`private_mounts`] first. A change of the one is one of the other.
///
/// # Errors
/// `ENOENT` if one of them does not exist, `ENOTDIR` if only one is a directory, `EPERM` without `CAP_SYS_ADMIN`.
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

/// Shows the devices of the calling thread's network namespace in `/sys/class/net` and `/sys/devices/virtual/net`, until
/// the mount namespace ends: call [`private_mounts`] first. What is mounted below `/sys` (control groups, bpf) stays. A
/// fresh sysfs is that of the network namespace it is mounted in (fs/sysfs/mount.c); it is mounted over `scratch`, a
/// directory that nobody else looks at meanwhile, and taken away again.
///
/// # Errors
/// `EPERM` without `CAP_SYS_ADMIN` over the network namespace, and in a container whose own `/sys` is partly hidden.
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
