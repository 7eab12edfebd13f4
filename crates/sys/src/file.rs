//! Opens files safely where others may have put links, and controls what the kernel caches of them.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::fs::{Advice, fadvise};

use crate::thread::resources;

/// Opens a file by its last name and never through a symbolic link of that name.
///
/// # Errors
/// `ELOOP` if it is a link; those of open(2).
pub fn open_no_follow(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    options.custom_flags(libc::O_NOFOLLOW).open(path)
}

/// Readable once a name has come or gone in one of the watched directories, until it is drained
/// (inotify(7)).
#[derive(Debug)]
pub struct DirectoryChanges(File);

impl DirectoryChanges {
    /// Watches none yet.
    ///
    /// # Errors
    /// `EMFILE`: fs.inotify.max_user_instances.
    pub fn new() -> io::Result<Self> {
        let descriptor = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
        Ok(Self(File::from(descriptor)))
    }

    /// Watches a directory, too; again is the same.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`; `ENOSPC`: fs.inotify.max_user_watches.
    pub fn watch(&self, directory: &Path) -> io::Result<()> {
        let names = WatchFlags::CREATE | WatchFlags::DELETE | WatchFlags::MOVE;
        inotify::add_watch(&self.0, directory, names | WatchFlags::ONLYDIR)?;
        Ok(())
    }

    /// Forgets what has changed.
    pub fn drain(&self) {
        let mut events = [0; 4096];
        while (&self.0).read(&mut events).is_ok_and(|bytes| bytes > 0) {}
    }
}

impl AsFd for DirectoryChanges {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Asks the kernel to forget what it holds of the file in memory (POSIX_FADV_DONTNEED), so that the
/// next reader gets it from storage. What was not written back yet stays: [`File::sync_all`] first.
/// A file system in memory keeps it all.
///
/// # Errors
/// The descriptor is not that of a file with pages, but for example of a pipe.
pub fn drop_from_memory(file: &File) -> io::Result<()> {
    Ok(fadvise(file, 0, None, Advice::DontNeed)?)
}

/// Bytes that the calling thread has read from storage since it began, in units of 512. Data that
/// were in memory do not count, but what the kernel read ahead does. 0 where the kernel keeps no
/// such account (CONFIG_TASK_IO_ACCOUNTING).
pub fn bytes_from_storage() -> u64 {
    let blocks = resources(libc::RUSAGE_THREAD).ru_inblock;
    u64::try_from(blocks).unwrap_or(0) * 512
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn a_link_in_the_place_of_a_file_is_not_followed() {
        let path = std::env::temp_dir().join(format!("linerate-sys-link-{}", std::process::id()));
        std::os::unix::fs::symlink("/proc/self/status", &path).unwrap();
        let error = open_no_follow(&path, OpenOptions::new().read(true)).unwrap_err();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(error.raw_os_error(), Some(libc::ELOOP));
        let real = Path::new("/proc/self/status");
        assert!(open_no_follow(real, OpenOptions::new().read(true)).is_ok());
    }

    #[test]
    fn a_file_is_unchanged_after_its_cached_pages_are_dropped() {
        let path = std::env::temp_dir().join(format!("linerate-forgotten-{}", std::process::id()));
        let mut file = File::create(&path).unwrap();
        file.write_all(&[7; 10_000]).unwrap();
        file.sync_all().unwrap();
        drop_from_memory(&file).unwrap();
        let before = bytes_from_storage();
        assert_eq!(std::fs::read(&path).unwrap(), [7; 10_000]);
        assert!(bytes_from_storage() >= before);
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn dropping_cached_pages_of_a_pipe_does_nothing() {
        let (reader, _writer) = io::pipe().unwrap();
        let file = File::from(std::os::fd::OwnedFd::from(reader));
        let error = drop_from_memory(&file).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ESPIPE));
    }
}
