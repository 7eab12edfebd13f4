//! Mounts that only one command sees: a file over another, and the devices of its network namespace
//! in `/sys`.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::thread;

use rustix::io::Errno;
use rustix::mount::{
    MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_change, unmount,
};
use rustix::thread::{LinkNameSpaceType, UnshareFlags};

use super::{join, set_namespace, unshare};
use crate::CallError;
use crate::process::parent;

/// Gives the calling thread a mount namespace of its own, whose mounts do not spread to others.
/// Threads that it starts later and programs that it runs inherit it.
///
/// # Errors
/// `EPERM` without `CAP_SYS_ADMIN` (see [`enter_user_namespace`](super::enter_user_namespace)).
pub fn private_mounts() -> Result<(), CallError> {
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    unshare(UnshareFlags::NEWNS)
        .and_then(|()| Ok(mount_change("/", private)?))
        .map_err(|error| CallError::new("make private the mounts below /", error))
}

/// The process whose mounts outlive this one's: the first process, or, where this one may not look
/// at it, the first of the processes above this one at which it may.
pub fn outermost_process() -> u32 {
    let may_look = |pid: u32| fs::read_link(format!("/proc/{pid}/ns/mnt")).is_ok();
    if may_look(1) {
        return 1;
    }
    let mut outermost = std::process::id();
    while let Ok(above) = parent(outermost)
        && may_look(above)
    {
        outermost = above;
    }
    outermost
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
            unshare(UnshareFlags::FS)?;
            set_namespace(file.as_fd(), LinkNameSpaceType::Mount)?;
            Ok(work())
        })?;
        join(helper.join())
    })
}

/// Shows the file or directory `source` in the place of `target` until the mount namespace ends;
/// call [`private_mounts`] first. Both names then stand for the same file.
///
/// # Errors
/// `ENOENT` if one of them does not exist, `ENOTDIR` if only one is a directory, `EPERM` without
/// `CAP_SYS_ADMIN`.
pub fn bind_mount(source: &Path, target: &Path) -> Result<(), CallError> {
    rustix::mount::mount_bind(source, target)
        .map_err(|errno| CallError::new(format!("mount over {}", target.display()), errno))
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
pub fn show_network_devices(scratch: &Path) -> Result<(), CallError> {
    let error = |errno: Errno| {
        let operation = format!("mount sysfs over {}", scratch.display());
        CallError::new(operation, errno)
    };
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("sysfs", scratch, "sysfs", flags, None).map_err(error)?;
    let shown = ["devices/virtual/net", "class/net"]
        .into_iter()
        .try_for_each(|part| bind_mount(&scratch.join(part), &Path::new("/sys").join(part)));
    unmount(scratch, UnmountFlags::DETACH).map_err(error)?;
    shown
}
