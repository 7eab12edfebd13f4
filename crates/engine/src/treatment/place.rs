//! The place that a journal belongs to: a boot of the host, and a network namespace.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use linerate_sys::netns::Namespace;
use linerate_sys::proc::sysctl;
use linerate_sys::socket::namespace_cookie;
use serde::{Deserialize, Serialize};

use super::error::TreatError;

/// A network namespace of one boot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct NamespacePlace {
    boot_id: String,
    /// Another namespace may have the same one after this one is gone.
    inode: u64,
    /// No other namespace ever has it. Kernels before 5.14 do not tell it.
    cookie: Option<u64>,
}

/// Outcome of a visit to a namespace.
#[derive(Debug)]
pub(super) enum Visit<T> {
    Done(T),
    /// The namespace is no more.
    Gone,
    /// This process may not enter it.
    Closed,
}

impl NamespacePlace {
    /// The namespace of the calling thread.
    pub(super) fn here() -> Result<Self, TreatError> {
        Ok(Self {
            boot_id: boot_id()?,
            inode: Namespace::current()?.inode()?,
            cookie: namespace_cookie(),
        })
    }

    /// Whether the host has been booted since.
    pub(super) fn is_of_this_boot(&self) -> bool {
        boot_id().is_ok_and(|boot| boot == self.boot_id)
    }

    /// Runs `work` in the namespace, if it is still there.
    pub(super) fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Visit<T> {
        if self.is_here() {
            return Visit::Done(work());
        }
        let Some(path) = self.find() else {
            return Visit::Gone;
        };
        let visit = Namespace::open(path).and_then(|namespace| {
            // Its number may be another's by now.
            namespace.run(|| if self.is_here() { Visit::Done(work()) } else { Visit::Gone })
        });
        visit.unwrap_or(Visit::Closed)
    }

    fn is_here(&self) -> bool {
        Self::here().is_ok_and(|here| here == *self)
    }

    /// A file that stands for the namespace: a mounted one, that of a thread, or an open
    /// descriptor.
    fn find(&self) -> Option<PathBuf> {
        self.mounted().or_else(|| {
            let processes = entries(Path::new("/proc"));
            let mut own = processes.filter(|path| {
                let name = path.file_name().and_then(|name| name.to_str());
                name.is_some_and(|name| name.bytes().all(|byte| byte.is_ascii_digit()))
            });
            own.find_map(|process| self.of_process(&process))
        })
    }

    /// As `ip netns add` leaves it; the fields are those of proc_pid_mountinfo(5).
    fn mounted(&self) -> Option<PathBuf> {
        let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
        let root = format!("net:[{}]", self.inode);
        mounts.lines().find_map(|line| {
            let mut fields = line.split(' ').skip(3);
            let is_it = fields.next()? == root;
            let point = fields.next()?;
            is_it.then(|| PathBuf::from(point))
        })
    }

    fn of_process(&self, process: &Path) -> Option<PathBuf> {
        let threads = entries(&process.join("task")).map(|thread| thread.join("ns/net"));
        let descriptors = entries(&process.join("fd"));
        let target = format!("net:[{}]", self.inode);
        let is_it = |path: &PathBuf| {
            fs::read_link(path).is_ok_and(|link| link.as_os_str() == target.as_str())
        };
        threads
            .chain(descriptors)
            .find(is_it)
            .filter(|path| fs::metadata(path).is_ok_and(|file| file.ino() == self.inode))
    }
}

fn entries(directory: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let entries = fs::read_dir(directory).into_iter().flatten();
    entries.filter_map(Result::ok).map(|entry| entry.path())
}

fn boot_id() -> Result<String, TreatError> {
    sysctl::read("kernel.random.boot_id")
        .map_err(|error| TreatError::kernel("tell this boot of the host from others", error))
}
