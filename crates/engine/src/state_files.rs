//! State that a process leaves in files for later ones: journals, what is in force, labs, reports.
//!
//! A file is replaced in one step, so that a reader has the old one or the new one. A line of a log
//! is on its medium before what it announces is done; one that was cut off by a crash counts for
//! nothing. A file that a process has to itself is locked by it, and the kernel takes the lock away
//! when the process ends, however that is: a file of a dead process is a file without a lock.
//! Who makes, looks for or removes such files holds the directory meanwhile.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use linerate_sys::file::open_no_follow;
use linerate_sys::proc::privilege::in_user_namespace;
use linerate_sys::process::{effective_user, user_outside};
use serde::Serialize;
use serde::de::DeserializeOwned;
use thiserror::Error;

use crate::words::chain;

/// A file or directory of kept state that could not be used.
#[derive(Debug, Error)]
#[error("cannot {operation} {}", path.display())]
pub struct StateError {
    operation: &'static str,
    path: PathBuf,
    source: io::Error,
}

impl StateError {
    pub(crate) fn new(operation: &'static str, path: &Path) -> impl Fn(io::Error) -> Self + use<> {
        let path = path.to_owned();
        move |source| Self { operation, path: path.clone(), source }
    }

    /// A directory that others can change, or that cannot be made.
    pub(crate) fn unfit(path: &Path, why: impl Into<String>) -> Self {
        Self::new(USE, path)(io::Error::other(why.into()))
    }

    /// Whether the directory is unfit, and not a file in it.
    pub(crate) fn is_of_directory(&self) -> bool {
        self.operation == USE
    }

    /// Whether it could be read, and not written.
    pub(crate) fn is_of_writing(&self) -> bool {
        self.operation == WRITE
    }

    /// Whether others held the lock for too long.
    pub(crate) fn is_timeout(&self) -> bool {
        self.source.kind() == io::ErrorKind::TimedOut
    }
}

impl From<StateError> for io::Error {
    fn from(error: StateError) -> Self {
        Self::new(error.source.kind(), chain(&error))
    }
}

/// A directory of this user alone.
#[derive(Debug, Clone)]
pub(crate) struct StateDirectory {
    path: PathBuf,
}

/// A directory in which no other process makes, looks for or removes files until this is dropped.
#[derive(Debug)]
pub(crate) struct HeldDirectory {
    directory: StateDirectory,
    _lock: File,
}

impl StateDirectory {
    /// Makes the directory if need be.
    ///
    /// # Errors
    /// It cannot be made, or is another's or open to others.
    pub(crate) fn make(path: PathBuf) -> Result<Self, StateError> {
        match DirBuilder::new().mode(0o700).create(&path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                let hint =
                    "name another by XDG_RUNTIME_DIR, or LINERATE_STATE_DIRECTORY for what is kept";
                let why = format!("it cannot be made: {error}; {hint}");
                Err(StateError::unfit(&path, why))
            }
            _ => Self::existing(path),
        }
    }

    /// The first that is there or can be made.
    ///
    /// # Errors
    /// Why the first cannot be used, if none can.
    pub(crate) fn first(candidates: Vec<PathBuf>) -> Result<Self, StateError> {
        let mut first = None;
        for path in candidates {
            // With a file in another directory, the one in this would be forgotten.
            let is_last = |path: &Path| fs::symlink_metadata(path).is_ok();
            match Self::make(path) {
                Err(error) if !is_last(&error.path) => first = first.or(Some(error)),
                made => return made.map_err(|error| first.unwrap_or(error)),
            }
        }
        Err(first.unwrap_or_else(|| StateError::unfit(Path::new("/"), "there is no other")))
    }

    /// A directory that is there.
    ///
    /// # Errors
    /// It is not, or is another's or open to others.
    pub(crate) fn existing(path: PathBuf) -> Result<Self, StateError> {
        // Not through a link: in /tmp anybody may have put one there.
        let found = fs::symlink_metadata(&path).map_err(StateError::new(USE, &path))?;
        if found.is_dir() && found.uid() == effective_user() && found.mode() & 0o077 == 0 {
            return Ok(Self { path });
        }
        let why = "it must be this user's own directory with mode 0700: correct its owner and mode";
        Err(StateError::unfit(&path, why))
    }

    /// For tests: any directory.
    #[cfg(test)]
    pub(crate) fn at(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// The path of the directory.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The path of a file in it.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// What stands between `prefix` and `suffix` in the names of files, in order.
    pub(crate) fn names(&self, prefix: &str, suffix: &str) -> Result<Vec<String>, StateError> {
        let entries = fs::read_dir(&self.path).map_err(StateError::new("read", &self.path))?;
        let name = |entry: io::Result<fs::DirEntry>| {
            let name = entry.ok()?.file_name().into_string().ok()?;
            let stem = name.strip_prefix(prefix)?.strip_suffix(suffix)?;
            Some(stem.to_owned())
        };
        let mut names: Vec<String> = entries.filter_map(name).collect();
        names.sort();
        Ok(names)
    }

    /// Waits for the lock in the file `name` for at most `patience`.
    ///
    /// # Errors
    /// [`StateError::is_timeout`] if others still hold it.
    pub(crate) fn hold(&self, name: &str, patience: Duration) -> Result<HeldDirectory, StateError> {
        let path = self.file(name);
        let lock = open_lock(&path)
            .and_then(|file| lock(&file, patience).map(|()| file))
            .map_err(StateError::new("wait for", &path))?;
        Ok(HeldDirectory { directory: self.clone(), _lock: lock })
    }
}

impl HeldDirectory {
    /// The directory that is held.
    pub(crate) fn directory(&self) -> &StateDirectory {
        &self.directory
    }

    /// Makes a log that is this process's until it is closed; none if there is one of that name.
    pub(crate) fn claim(&self, name: &str) -> Result<Option<JsonLog>, StateError> {
        let path = self.directory.file(name);
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o600);
        let made = open_no_follow(&path, &mut options).and_then(|file| {
            file.lock()?;
            Ok(file)
        });
        match made {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(None),
            made => {
                let file = made.map_err(StateError::new("make", &path))?;
                Ok(Some(JsonLog { path, file }))
            }
        }
    }

    /// Opens a log that a process claimed, and tells whether that process lives; none if there is
    /// no such log.
    pub(crate) fn claimed(&self, name: &str) -> Result<Option<(JsonLog, bool)>, StateError> {
        let log = JsonLog::existing(&self.directory.file(name))?;
        Ok(log.map(|log| {
            let is_held = matches!(log.file.try_lock(), Err(TryLockError::WouldBlock));
            (log, is_held)
        }))
    }
}

/// A file of lines of JSON, to which one process appends.
#[derive(Debug)]
pub(crate) struct JsonLog {
    path: PathBuf,
    file: File,
}

impl JsonLog {
    /// A file that is open.
    pub(crate) fn new(path: PathBuf, file: File) -> Self {
        Self { path, file }
    }

    /// Opens the file to read it; none if there is none.
    pub(crate) fn existing(path: &Path) -> Result<Option<Self>, StateError> {
        let file = open_existing(path)?;
        Ok(file.map(|file| Self::new(path.to_owned(), file)))
    }

    /// Opens or makes the file, to append to it.
    pub(crate) fn open(path: &Path) -> Result<Self, StateError> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).mode(0o600);
        let file = open_no_follow(path, &mut options).map_err(StateError::new("open", path))?;
        let mut log = Self::new(path.to_owned(), file);
        let (end, _) = log.read(|_, _| Ok::<(), StateError>(()))?;
        log.cut(end)?;
        Ok(log)
    }

    /// Hands `each` the whole lines with their numbers, from 1. Answers where the last one ends,
    /// and how many bytes of a torn one follow.
    pub(crate) fn read<E: From<StateError>>(
        &self,
        mut each: impl FnMut(usize, &[u8]) -> Result<(), E>,
    ) -> Result<(u64, usize), E> {
        let mut reader = BufReader::new(&self.file);
        let (mut end, mut line) = (0, Vec::new());
        for number in 1.. {
            line.clear();
            let read = reader.read_until(b'\n', &mut line);
            read.map_err(StateError::new("read", &self.path))?;
            if !line.ends_with(b"\n") {
                break;
            }
            each(number, &line)?;
            end += line.len() as u64;
        }
        Ok((end, line.len()))
    }

    /// The whole lines that can be understood; others are no reason to forget these.
    pub(crate) fn values<T: DeserializeOwned>(&self) -> Result<Vec<T>, StateError> {
        let mut values = Vec::new();
        self.read(|_, line| {
            values.extend(serde_json::from_slice::<T>(line));
            Ok::<_, StateError>(())
        })?;
        Ok(values)
    }

    /// Cuts off what comes after `end`, and goes on there.
    pub(crate) fn cut(&mut self, end: u64) -> Result<(), StateError> {
        let cut = self.file.set_len(end);
        cut.and_then(|()| self.file.seek(SeekFrom::Start(end)))
            .map(drop)
            .map_err(StateError::new(WRITE, &self.path))
    }

    /// Appends a line; it is on its medium when this returns.
    pub(crate) fn add(&mut self, value: &impl Serialize) -> Result<(), StateError> {
        let mut write = || {
            let mut line = serde_json::to_vec(value)?;
            line.push(b'\n');
            self.file.write_all(&line)?;
            self.file.sync_data()
        };
        write().map_err(StateError::new(WRITE, &self.path))
    }

    /// The path of the file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

/// `/run/linerate`, which is for root of the host: of a user namespace it is another's.
pub(crate) fn run() -> Option<PathBuf> {
    let is_root = effective_user() == 0 && in_user_namespace().value() != Some(&true);
    is_root.then(|| PathBuf::from("/run/linerate"))
}

/// In `$XDG_RUNTIME_DIR`, where that is this user's: after `sudo -E` it is that of another user,
/// who could put other files in the place of root's.
pub(crate) fn runtime() -> Option<PathBuf> {
    let path = PathBuf::from(std::env::var_os("XDG_RUNTIME_DIR")?);
    let is_own = path.is_absolute() && is_unshared(&path);
    is_own.then(|| path.join("linerate"))
}

/// For users who have no other.
pub(crate) fn temporary() -> PathBuf {
    let outer = user_outside().unwrap_or_else(|_| effective_user());
    PathBuf::from(format!("/tmp/linerate-{outer}"))
}

/// Whether only this user can change what is in the directory.
pub(crate) fn is_unshared(path: &Path) -> bool {
    // Not through a link: in /tmp anybody may have put one there.
    fs::symlink_metadata(path).is_ok_and(|found| {
        found.is_dir() && found.uid() == effective_user() && found.mode() & 0o022 == 0
    })
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

/// A path with an ending after its name.
pub fn with_ending(path: &Path, end: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(end);
    name.into()
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
fn lock(file: &File, patience: Duration) -> io::Result<()> {
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

/// Reads a text of at most `most` bytes, not through a link; none if there is no file.
///
/// # Errors
/// It cannot be read, is larger, or is no text.
pub(crate) fn read_file(path: &Path, most: u64) -> Result<Option<String>, StateError> {
    let Some(file) = open_existing(path)? else {
        return Ok(None);
    };
    let fault = StateError::new("read", path);
    let mut text = String::new();
    let read = file.take(most + 1).read_to_string(&mut text);
    if read.map_err(&fault)? as u64 > most {
        return Err(fault(io::ErrorKind::FileTooLarge.into()));
    }
    Ok(Some(text))
}

/// Reads a value that is kept as JSON; none if there is no file.
///
/// # Errors
/// It cannot be read, is not whole, or is another thing.
pub(crate) fn read_json<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, StateError> {
    let Some(file) = open_existing(path)? else {
        return Ok(None);
    };
    let value = serde_json::from_reader(BufReader::new(file)).map_err(io::Error::from);
    value.map(Some).map_err(StateError::new("understand", path))
}

/// Opens a file to read it, not through a link; none if there is no file.
fn open_existing(path: &Path) -> Result<Option<File>, StateError> {
    match open_no_follow(path, OpenOptions::new().read(true)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        opened => opened.map(Some).map_err(StateError::new("read", path)),
    }
}

/// Puts a file in the place of another in one step: whoever reads it, also after a crash, reads the
/// old one or the new one.
///
/// # Errors
/// It cannot be written; the old one is as it was.
pub(crate) fn replace_file(path: &Path, bytes: &[u8], mode: u32) -> Result<(), StateError> {
    let next = with_ending(path, SCRATCH);
    // What a killed process has left.
    let _ = fs::remove_file(&next);
    let replace = || {
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(mode);
        let mut file = open_no_follow(&next, &mut options)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&next, path)?;
        match path.parent() {
            Some(parent) => File::open(parent)?.sync_all(),
            None => Ok(()),
        }
    };
    replace().map_err(|error| {
        let _ = fs::remove_file(&next);
        StateError::new(WRITE, path)(error)
    })
}

/// Replaces a file by a value as JSON.
///
/// # Errors
/// As [`replace_file`].
pub(crate) fn replace_json(
    path: &Path,
    value: &impl Serialize,
    mode: u32,
) -> Result<(), StateError> {
    let text = serde_json::to_vec(value).map_err(io::Error::from);
    replace_file(path, &text.map_err(StateError::new(WRITE, path))?, mode)
}

/// Removes a file, if it is there.
///
/// # Errors
/// It is still there.
pub(crate) fn remove_file(path: &Path) -> Result<(), StateError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(StateError::new("remove", path)(error))
        }
        _ => Ok(()),
    }
}

/// The end of a file's name until it is whole: no program reads such a name (files of sysctl.d end
/// in `.conf`), and hardly an interface can have it.
pub(crate) const SCRATCH: &str = ".not-whole-yet";

/// Longest wait for a directory: others hold it for milliseconds, or a second for a device that
/// takes as long for an offload.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

const USE: &str = "use the directory";
const WRITE: &str = "write";

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    use super::*;

    fn text(path: &Path) -> Option<String> {
        read_file(path, 100).unwrap()
    }

    #[test]
    fn a_crash_while_a_file_is_replaced_leaves_the_old_one_whole() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("state");
        let next = directory.path().join(format!("state{SCRATCH}"));
        // Before there is anything, after the new file was made, and after a part of it was written.
        for left in [None, Some(""), Some("ne")] {
            replace_file(&path, b"old", 0o600).unwrap();
            if let Some(left) = left {
                fs::write(&next, left).unwrap();
            }
            assert_eq!(text(&path).unwrap(), "old");
            replace_file(&path, b"new", 0o600).unwrap();
            assert_eq!(text(&path).unwrap(), "new");
            assert!(!next.exists());
        }
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        // What cannot be put into its place is taken away.
        let taken = directory.path().join("directory");
        fs::create_dir_all(taken.join("full")).unwrap();
        let error = replace_file(&taken, b"new", 0o600).unwrap_err();
        assert!(error.is_of_writing(), "{error}");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 2);
    }

    #[test]
    fn a_log_cut_anywhere_has_its_whole_lines_and_goes_on_after_them() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let mut log = JsonLog::open(&path).unwrap();
        (100..103).for_each(|value| log.add(&value).unwrap());
        let whole = fs::read(&path).unwrap();
        for end in 0..=whole.len() {
            fs::write(&path, &whole[..end]).unwrap();
            let mut log = JsonLog::open(&path).unwrap();
            log.add(&7).unwrap();
            let log = JsonLog::existing(&path).unwrap().unwrap();
            let values: Vec<u32> = log.values().unwrap();
            let mut expected: Vec<u32> = (100..103).take(end / 4).collect();
            expected.push(7);
            assert_eq!(values, expected, "cut at {end}");
        }
    }

    #[test]
    fn lines_that_cannot_be_understood_are_no_reason_to_forget_others() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        // A line end before each line: what the program wrote at first.
        fs::write(&path, "\n1\n{\"moon\":\"full\n\n2\n\u{fffd}\n3\n4").unwrap();
        let log = JsonLog::existing(&path).unwrap().unwrap();
        assert_eq!(log.values::<u32>().unwrap(), [1, 2, 3]);
    }

    #[test]
    fn a_directory_of_others_open_to_them_or_behind_a_link_is_refused() {
        let above = tempfile::tempdir().unwrap();
        let path = above.path().join("own");
        let refused = |path: &Path| {
            let error = StateDirectory::make(path.to_owned()).unwrap_err();
            assert!(error.is_of_directory(), "{error}");
        };
        StateDirectory::make(path.clone()).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o700);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o750)).unwrap();
        refused(&path);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
        StateDirectory::make(path.clone()).unwrap();
        let link = above.path().join("link");
        symlink(&path, &link).unwrap();
        refused(&link);
        if effective_user() == 0 {
            chown(&path, Some(1), None).unwrap();
            refused(&path);
        }
        refused(&above.path().join("nowhere/own"));
    }

    #[test]
    fn another_directory_is_taken_only_where_the_first_cannot_be_made() {
        let above = tempfile::tempdir().unwrap();
        let [missing, own, open] =
            ["nowhere/own", "own", "open"].map(|name| above.path().join(name));
        let first = |candidates: &[&PathBuf]| {
            StateDirectory::first(candidates.iter().map(|&path| path.clone()).collect())
        };
        assert_eq!(first(&[&missing, &own]).unwrap().path(), own);
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, fs::Permissions::from_mode(0o755)).unwrap();
        assert!(first(&[&open, &own]).is_err());
        let error = first(&[&missing, &above.path().join("other/own")]).unwrap_err();
        assert!(error.to_string().ends_with("nowhere/own"), "{error}");
    }

    #[test]
    fn a_file_is_its_processs_until_that_ends() {
        let above = tempfile::tempdir().unwrap();
        let held = StateDirectory::at(above.path());
        let held = held.hold("lock", Duration::ZERO).unwrap();
        assert!(held.claimed("a").unwrap().is_none());
        let own = held.claim("a").unwrap().unwrap();
        assert!(held.claim("a").unwrap().is_none());
        assert!(held.claimed("a").unwrap().unwrap().1);
        // As the kernel does when the process is killed: the lock goes, the file stays.
        own.file.unlock().unwrap();
        assert!(!held.claimed("a").unwrap().unwrap().1);
        assert!(held.claim("a").unwrap().is_none());
        symlink(above.path().join("a"), above.path().join("b")).unwrap();
        assert!(held.claimed("b").is_err());
        assert!(held.claim("b").unwrap().is_none());
    }

    #[test]
    fn two_processes_hold_a_directory_one_after_the_other() {
        let above = tempfile::tempdir().unwrap();
        let directory = StateDirectory::at(above.path());
        let held = directory.hold("lock", PATIENCE).unwrap();
        let error = directory.hold("lock", Duration::from_millis(20)).unwrap_err();
        assert!(error.is_timeout(), "{error}");
        directory.hold("another", Duration::ZERO).unwrap();
        let next = thread::spawn(move || directory.hold("lock", PATIENCE).map(drop));
        drop(held);
        next.join().unwrap().unwrap();
    }

    #[test]
    fn a_file_that_is_too_long_or_a_link_is_not_read() {
        let above = tempfile::tempdir().unwrap();
        let path = above.path().join("file");
        assert_eq!(text(&path), None);
        fs::write(&path, "x".repeat(101)).unwrap();
        assert!(read_file(&path, 100).is_err());
        assert!(read_file(&path, 101).is_ok());
        let link = above.path().join("link");
        symlink(&path, &link).unwrap();
        assert!(read_file(&link, 101).is_err());
        remove_file(&path).unwrap();
        remove_file(&path).unwrap();
    }

    #[test]
    fn a_program_in_a_directory_of_others_is_not_roots() {
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join("program");
        fs::write(&program, "").unwrap();
        let refused = is_of_root(&program).unwrap_err();
        assert!(refused.starts_with("others than root can write /"), "{refused}");
        assert!(is_of_root(Path::new("/")).is_ok());
    }
}
