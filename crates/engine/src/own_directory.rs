//! Directories of this user alone, in which processes leave what later ones are to find.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use linerate_sys::file::open_no_follow;
use linerate_sys::proc::privilege::in_user_namespace;
use linerate_sys::process::{effective_user, user_outside};

/// `/run/linerate`, which is for root of the host: of a user namespace it is another's.
pub(crate) fn run() -> Option<PathBuf> {
    let is_root = effective_user() == 0 && in_user_namespace().value() != Some(&true);
    is_root.then(|| PathBuf::from("/run/linerate"))
}

/// In `$XDG_RUNTIME_DIR`, where that is this user's: after `sudo -E` it is that of another user,
/// who could put other files in the place of root's.
pub(crate) fn runtime() -> Option<PathBuf> {
    let path = PathBuf::from(std::env::var_os("XDG_RUNTIME_DIR")?);
    let is_own = path.is_absolute() && is_unshared(&path, effective_user());
    is_own.then(|| path.join("linerate"))
}

/// For users who have no other.
pub(crate) fn temporary() -> PathBuf {
    let outer = user_outside().unwrap_or_else(|_| effective_user());
    PathBuf::from(format!("/tmp/linerate-{outer}"))
}

/// Whether only this user can change what is in the directory.
pub(crate) fn is_unshared(path: &Path, user: u32) -> bool {
    // Not through a link: in /tmp anybody may have put one there.
    let found = fs::symlink_metadata(path);
    found.is_ok_and(|found| found.is_dir() && found.uid() == user && found.mode() & 0o022 == 0)
}

/// Makes the directory if need be, and makes sure that it is this user's and closed to others.
///
/// # Errors
/// In words: it cannot be made, or is another's or open to others.
pub(crate) fn make(path: &Path, user: u32) -> Result<(), String> {
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            let hint =
                "name another by XDG_RUNTIME_DIR, or LINERATE_STATE_DIRECTORY for what is kept";
            return Err(format!("cannot make it: {error}; {hint}"));
        }
        _ => {}
    }
    is_own(path, user)
}

/// Whether the directory is this user's and closed to others.
///
/// # Errors
/// In words: it is not, or is not there.
pub(crate) fn is_own(path: &Path, user: u32) -> Result<(), String> {
    // Not through a link: in /tmp anybody may have put one there.
    let metadata = fs::symlink_metadata(path).map_err(|error| error.to_string())?;
    if !metadata.is_dir() || metadata.uid() != user || metadata.mode() & 0o077 != 0 {
        let hint = "it is to be this user's own directory with mode 0700: mend its owner and mode";
        return Err(hint.to_owned());
    }
    Ok(())
}

/// Opens a file that processes lock, and makes it if need be. It is this user's alone.
///
/// # Errors
/// Those of open(2); `ELOOP` if it is a link; of root, that others can write its directory, where
/// any file may be another one of root's, by a hard link.
pub fn open_lock(path: &Path) -> io::Result<File> {
    let above = path.parent().filter(|above| !above.as_os_str().is_empty());
    let above = fs::metadata(above.unwrap_or(Path::new(".")))?;
    if effective_user() == 0 && above.mode() & 0o002 != 0 {
        let why = "others can write its directory, and root makes no file there";
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    }
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).mode(0o600);
    open_no_follow(path, &mut options)
}

/// Takes the lock of a file, and waits for others that hold it for at most `patience`.
///
/// # Errors
/// [`io::ErrorKind::TimedOut`] if others still hold it; the kernel refuses.
pub(crate) fn lock(file: &File, patience: Duration) -> io::Result<()> {
    let began = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::Error(error)) => return Err(error),
            Err(TryLockError::WouldBlock) if began.elapsed() < patience => {
                thread::sleep(Duration::from_millis(2));
            }
            Err(TryLockError::WouldBlock) => return Err(io::ErrorKind::TimedOut.into()),
        }
    }
}

/// Reads a file of at most `most` bytes, not through a link.
///
/// # Errors
/// It is not there, cannot be read, is larger, or is no text.
pub(crate) fn read_file(path: &Path, most: u64) -> io::Result<String> {
    let file = open_no_follow(path, OpenOptions::new().read(true))?;
    let mut text = String::new();
    file.take(most + 1).read_to_string(&mut text)?;
    if text.len() as u64 > most {
        Err(io::ErrorKind::FileTooLarge.into())
    } else {
        Ok(text)
    }
}

/// Puts a file in the place of another in one step: whoever reads it, also after a crash, reads the
/// old one or the new one.
///
/// # Errors
/// It cannot be written; the old one is as it was.
pub(crate) fn replace_file(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let mut name = path.as_os_str().to_owned();
    name.push(SCRATCH);
    let next = Path::new(&name);
    // What a killed process has left.
    let _ = fs::remove_file(next);
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(mode);
    let mut file = open_no_follow(next, &mut options)?;
    let written = file.write_all(bytes).and_then(|()| file.sync_all());
    if let Err(error) = written.and_then(|()| fs::rename(next, path)) {
        let _ = fs::remove_file(next);
        return Err(error);
    }
    match path.parent() {
        Some(parent) => File::open(parent)?.sync_all(),
        None => Ok(()),
    }
}

/// Whether only root can change the file, or put another in its place.
///
/// # Errors
/// In words: which part of the path others can write.
pub(crate) fn is_of_root(path: &Path) -> Result<(), String> {
    for part in path.ancestors() {
        let found =
            fs::symlink_metadata(part).map_err(|error| format!("{}: {error}", part.display()))?;
        let group_writes = found.mode() & 0o020 != 0 && found.gid() != 0;
        if found.uid() != 0 || group_writes || found.mode() & 0o002 != 0 {
            return Err(format!("others than root can write {}", part.display()));
        }
    }
    Ok(())
}

/// The end of a file's name until it is whole: no program reads such a name (files of sysctl.d end
/// in `.conf`), and hardly an interface can have it.
pub(crate) const SCRATCH: &str = ".not-whole-yet";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_in_a_directory_of_others_is_not_roots() {
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join("program");
        fs::write(&program, "").unwrap();
        let refused = is_of_root(&program).unwrap_err();
        assert!(
            refused.starts_with("others than root can write /"),
            "{refused}"
        );
        assert!(is_of_root(Path::new("/")).is_ok());
    }
}
