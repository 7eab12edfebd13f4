//! Network namespaces: owned, entered by threads and by child processes.
//!
//! A [`Namespace`] lives by its file descriptor alone: nothing is mounted, and nothing is left
//! behind when the process dies. A thread that runs in it sees its links, routes, sockets,
//! `/proc/sys/net` and `/proc/thread-self/net`; `/proc/self/net` and `/sys/class/net` are those of
//! the process's first thread and of whoever mounted sysfs.
//!
//! Another process enters the namespaces of this one by [`join_user_namespace`] with this process's
//! number, [`Namespace::open`] of `/proc/PID/fd/N`, where N is the descriptor of the [`Namespace`]
//! here, and [`Namespace::enter`].
//!
//! [`private_mounts`] and the functions after it show one command other files than the rest.

mod pair;
mod user;

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

pub use pair::{Host, Pair};
use rustix::io::Errno;
use rustix::mount::{
    MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_change, unmount,
};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};
pub use user::{enter_user_namespace, join_user_namespace, user_namespaces_allowed};

use crate::CallError;
use crate::netlink::{LinkChange, Netlink, NetlinkError, OperState};
use crate::process::parent;

/// A network namespace that exists as long as this value, a thread, a process or a socket in it.
#[derive(Debug, Clone)]
pub struct Namespace {
    name: String,
    file: Arc<File>,
}

/// Why a namespace could not be made or entered.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NamespaceError {
    /// The kernel refused to create, to open or to enter one.
    #[error(transparent)]
    Call(#[from] CallError),
    /// It exists, but could not be configured.
    #[error("cannot configure network namespace {name}")]
    Configure {
        /// The namespace.
        name: String,
        /// The request that failed.
        source: NetlinkError,
    },
    /// A link did not come up.
    #[error("link {link} in network namespace {name} did not come up within {seconds} s")]
    NotUp {
        /// The namespace.
        name: String,
        /// The link.
        link: String,
        /// How long it was waited for.
        seconds: u64,
    },
    /// Only a process of one thread can change its user namespace.
    #[error("cannot enter a user namespace: the process has {count} threads and may have one only")]
    Threads {
        /// How many it has.
        count: usize,
    },
    /// The loopback link of the network namespace of a new user namespace could not be set up.
    #[error("cannot set up the new network namespace")]
    Network {
        /// The request that failed.
        source: Box<Self>,
    },
}

impl Namespace {
    /// Creates a namespace with its loopback link up. `name` is for error messages and the names of
    /// threads.
    ///
    /// # Errors
    /// [`NamespaceError::Call`] with `EPERM` without `CAP_SYS_ADMIN` (see
    /// [`enter_user_namespace`]), `ENOSPC` at the limit `user.max_net_namespaces`.
    pub fn create(name: impl Into<String>) -> Result<Self, NamespaceError> {
        let name = name.into();
        // Only the calling thread changes its namespace, so a helper thread does and then ends.
        let file = thread::scope(|scope| {
            let helper = thread::Builder::new().spawn_scoped(scope, || {
                unshare(UnshareFlags::NEWNET)?;
                File::open(NAMESPACE_OF_THREAD)
            })?;
            join(helper.join())
        });
        let operation = || format!("create network namespace {name}");
        let file = file.map_err(|error| CallError::new(operation(), error))?;
        let namespace = Self { name, file: Arc::new(file) };
        namespace.configure(|netlink| netlink.change_link("lo", &LinkChange::Up))?;
        Ok(namespace)
    }

    /// The namespace of the calling thread.
    ///
    /// # Errors
    /// [`NamespaceError::Call`] if `/proc` is not there.
    pub fn current() -> Result<Self, NamespaceError> {
        let mut namespace = Self::open(NAMESPACE_OF_THREAD)?;
        namespace.name = "current".to_owned();
        Ok(namespace)
    }

    /// A namespace by its file, such as `/proc/PID/ns/net`, or `/proc/PID/fd/N` for one that
    /// another process holds. Its name is the path.
    ///
    /// # Errors
    /// [`NamespaceError::Call`] if there is no such file, or it is the file of a process that this
    /// one may not look at. Whether it is a network namespace shows when it is entered.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, NamespaceError> {
        let name = path.as_ref().display().to_string();
        let file = File::open(path);
        let operation = || format!("open network namespace {name}");
        let file = file.map_err(|error| CallError::new(operation(), error))?;
        Ok(Self { name, file: Arc::new(file) })
    }

    /// Moves the calling thread to this namespace for good. Threads that it starts later and
    /// programs that it runs inherit it; threads that exist already stay where they are, so this is
    /// for a process with one.
    ///
    /// # Errors
    /// [`NamespaceError::Call`] with `EPERM` without `CAP_SYS_ADMIN` in the user namespace of this
    /// namespace, `EINVAL` if it is not a network namespace.
    pub fn enter(&self) -> Result<(), NamespaceError> {
        set_namespace(self.file.as_fd(), LinkNameSpaceType::Network)
            .map_err(|source| self.enter_error(source))
    }

    /// Waits until `link` and what it is connected to are up: the kernel drops packets until its
    /// link watch has seen it, and a dropped SYN costs a second.
    ///
    /// # Errors
    /// [`NamespaceError::NotUp`] after 10 s; [`NamespaceError::Configure`] with `ENODEV` if there
    /// is no such link.
    pub fn wait_until_up(&self, link: &str) -> Result<(), NamespaceError> {
        let mut netlink = self.netlink()?;
        let deadline = Instant::now() + UP_WITHIN;
        while Instant::now() < deadline {
            let state = netlink.link(link).map(|link| link.operstate);
            if state.map_err(|source| self.configure_error(source))? == OperState::Up {
                return Ok(());
            }
            thread::sleep(Duration::from_millis(1));
        }
        Err(NamespaceError::NotUp {
            name: self.name.clone(),
            link: link.to_owned(),
            seconds: UP_WITHIN.as_secs(),
        })
    }

    /// The name it was given.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The number that tells namespaces apart, as in `net:[4026531840]`.
    ///
    /// # Errors
    /// [`NamespaceError::Call`] if the descriptor cannot be examined.
    pub fn inode(&self) -> Result<u64, NamespaceError> {
        let metadata = self.file.metadata();
        metadata.map(|metadata| metadata.ino()).map_err(|source| self.enter_error(source))
    }

    /// Runs `work` to its end on a thread of this namespace. Sockets that it opens, netlink handles
    /// included, stay in the namespace wherever they are used later. A panic is passed on.
    ///
    /// Each call starts a thread and enters the namespace, 0.1 to 4 ms: open what is needed once.
    ///
    /// # Errors
    /// [`NamespaceError::Call`] if the thread cannot be started or may not enter.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, NamespaceError> {
        let result = thread::scope(|scope| {
            let helper =
                thread::Builder::new().name(self.thread_name()).spawn_scoped(scope, || {
                    set_namespace(self.file.as_fd(), LinkNameSpaceType::Network)?;
                    Ok(work())
                })?;
            join(helper.join())
        });
        result.map_err(|source| self.enter_error(source))
    }

    /// Starts a thread of this namespace.
    ///
    /// # Errors
    /// [`NamespaceError::Call`] if the thread cannot be started or may not enter.
    pub fn spawn_thread<T: Send + 'static>(
        &self,
        name: impl Into<String>,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<JoinHandle<T>, NamespaceError> {
        let builder = thread::Builder::new().name(name.into());
        // A new thread inherits the namespace of the one that starts it.
        self.run(|| builder.spawn(work))?.map_err(|source| self.enter_error(source))
    }

    /// A command whose process runs in this namespace.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let file = Arc::clone(&self.file);
        let mut command = Command::new(program);
        // SAFETY: between fork and exec the closure makes one system call on a descriptor that it
        // keeps open itself; it neither allocates nor takes a lock.
        unsafe {
            command.pre_exec(move || set_namespace(file.as_fd(), LinkNameSpaceType::Network))
        };
        command
    }

    /// A netlink handle of this namespace.
    ///
    /// # Errors
    /// [`NamespaceError::Call`] and [`NamespaceError::Configure`].
    pub fn netlink(&self) -> Result<Netlink, NamespaceError> {
        self.run(Netlink::open)?.map_err(|source| self.configure_error(source))
    }

    /// Opens a netlink handle and makes requests with it.
    ///
    /// # Errors
    /// [`NamespaceError::Configure`] if a request fails; [`NamespaceError::Call`].
    pub fn configure<T>(
        &self,
        requests: impl FnOnce(&mut Netlink) -> Result<T, NetlinkError>,
    ) -> Result<T, NamespaceError> {
        requests(&mut self.netlink()?).map_err(|source| self.configure_error(source))
    }

    fn configure_error(&self, source: NetlinkError) -> NamespaceError {
        NamespaceError::Configure { name: self.name.clone(), source }
    }

    fn enter_error(&self, source: io::Error) -> NamespaceError {
        let operation = format!("run a thread in network namespace {}", self.name);
        CallError::new(operation, source).into()
    }

    /// The kernel keeps 15 bytes of a thread's name, and Rust takes no NUL in it.
    fn thread_name(&self) -> String {
        self.name.replace('\0', "")
    }
}

impl NamespaceError {
    /// The kernel's error number, such as `libc::EPERM`, if it refused something.
    pub fn errno(&self) -> Option<i32> {
        match self {
            Self::Call(error) => error.errno(),
            Self::Configure { source, .. } => source.errno(),
            Self::Network { source } => source.errno(),
            Self::NotUp { .. } | Self::Threads { .. } => None,
        }
    }
}

impl AsFd for Namespace {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// The result of a joined thread; its panic goes on in the caller.
fn join<T>(result: thread::Result<io::Result<T>>) -> io::Result<T> {
    result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Moves the calling thread to a network namespace.
fn set_namespace(fd: BorrowedFd<'_>, kind: LinkNameSpaceType) -> io::Result<()> {
    Ok(move_into_link_name_space(fd, Some(kind))?)
}

/// Gives the calling thread new namespaces of the kinds in `flags` (`CLONE_NEW*`).
fn unshare(flags: UnshareFlags) -> io::Result<()> {
    // SAFETY: the table of descriptors stays shared.
    Ok(unsafe { unshare_unsafe(flags) }?)
}

const UP_WITHIN: Duration = Duration::from_secs(10);
const NAMESPACE_OF_THREAD: &str = "/proc/thread-self/ns/net";

// Mounts that only one command sees: a file over another, and the devices of its network namespace
// in `/sys`.

/// Gives the calling thread a mount namespace of its own, whose mounts do not spread to others.
/// Threads that it starts later and programs that it runs inherit it.
///
/// # Errors
/// `EPERM` without `CAP_SYS_ADMIN` (see [`enter_user_namespace`]).
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

#[cfg(test)]
pub(crate) use tests::{eventually, pair_or_skip};

#[cfg(test)]
mod tests;
