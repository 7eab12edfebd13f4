//! The journals: for each [`Applied`](super::Applied) a file of JSON lines, the first of which says
//! whose it is, the others what was set. It is locked for as long as its process lives, however
//! that ends.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process;
use std::time::Duration;

use linerate_sys::file::open_no_follow;
use linerate_sys::process::{effective_user, start_time};
use serde::{Deserialize, Serialize};

use super::error::TreatError;
use super::place::Place;
use super::step::Step;
use crate::own_directory;

/// Whose a journal is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Header {
    pub(super) pid: u32,
    /// In clock ticks since boot.
    pub(super) started: u64,
    #[serde(flatten)]
    pub(super) place: Place,
}

/// The directory of the journals.
#[derive(Debug, Clone)]
pub(crate) struct Directory {
    path: PathBuf,
}

/// Nobody else looks at the journals, makes one or takes one away as long as this is held.
#[derive(Debug)]
pub(super) struct Held<'a> {
    directory: &'a Directory,
    _lock: File,
}

/// This process's own journal; the lock on it goes with it.
#[derive(Debug)]
pub(super) struct Journal {
    path: PathBuf,
    file: File,
}

/// A journal that somebody wrote.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) path: PathBuf,
    /// None if the file has no header: its process was killed before it set anything.
    pub(super) header: Option<Header>,
    /// In the order in which they were set.
    pub(super) steps: Vec<Step>,
    /// Its process lives.
    pub(super) is_held: bool,
}

impl Directory {
    /// The first that is there or can be made of `/run/linerate` for root,
    /// `$XDG_RUNTIME_DIR/linerate` and `/tmp/linerate-UID`.
    pub(super) fn open() -> Result<Self, TreatError> {
        Self::first(candidates())
    }

    /// Where the settings that are kept stand, which has to outlive a reboot where they do: the
    /// directory of `LINERATE_STATE_DIRECTORY`, `/var/lib/linerate` for root, or else that of
    /// [`Directory::open`].
    ///
    /// # Errors
    /// It cannot be had.
    pub(crate) fn of_kept() -> Result<Self, TreatError> {
        Self::first(state_candidates())
    }

    /// The same, if it is there.
    ///
    /// # Errors
    /// It is another's, or open to others.
    pub(crate) fn of_kept_if_there() -> Result<Option<Self>, TreatError> {
        let there = state_candidates().into_iter().find(|path| is_there(path));
        there.map(|path| Self::first(vec![path])).transpose()
    }

    /// A file in it.
    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    fn first(candidates: Vec<PathBuf>) -> Result<Self, TreatError> {
        let user = effective_user();
        let mut reasons = Vec::new();
        for path in candidates {
            match own_directory::make(&path, user) {
                Ok(()) => return Ok(Self { path }),
                Err(reason) => reasons.push(format!("{}: {reason}", path.display())),
            }
            // With a journal in another directory, the one in this would be forgotten.
            if is_there(&path) {
                break;
            }
        }
        Err(TreatError::NoDirectory {
            reason: reasons.join("; "),
        })
    }

    /// All of them that are there.
    pub(super) fn all() -> Vec<Self> {
        let user = effective_user();
        let is_own = |path: &PathBuf| own_directory::is_own(path, user).is_ok();
        candidates()
            .into_iter()
            .filter(is_own)
            .map(|path| Self { path })
            .collect()
    }

    /// For tests: any directory.
    #[cfg(test)]
    pub(crate) fn at(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// Waits until it is this process's turn to treat; others hold it for milliseconds.
    pub(super) fn hold(&self) -> Result<Held<'_>, TreatError> {
        self.hold_file("treatments.lock")
    }

    /// The same for the settings that are kept. Another file: both journals may be in one
    /// directory, and who keeps settings holds the one and then the other.
    pub(super) fn hold_kept(&self) -> Result<Held<'_>, TreatError> {
        self.hold_file("kept.lock")
    }

    fn hold_file(&self, name: &str) -> Result<Held<'_>, TreatError> {
        let path = self.path.join(name);
        let lock = own_directory::open_lock(&path)
            .and_then(|file| own_directory::lock(&file, PATIENCE).map(|()| file))
            .map_err(TreatError::file(
                "wait for the journal of treatments",
                &path,
            ))?;
        Ok(Held {
            directory: self,
            _lock: lock,
        })
    }
}

fn state_candidates() -> Vec<PathBuf> {
    if let Some(path) = std::env::var_os("LINERATE_STATE_DIRECTORY") {
        return vec![PathBuf::from(path)];
    }
    match own_directory::run() {
        Some(_) => vec![PathBuf::from("/var/lib/linerate")],
        None => candidates(),
    }
}

fn is_there(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok()
}

fn candidates() -> Vec<PathBuf> {
    let own = [own_directory::run(), own_directory::runtime()];
    let own = own.into_iter().flatten();
    own.chain([own_directory::temporary()]).collect()
}

impl Held<'_> {
    /// The directory that is held.
    pub(super) fn directory(&self) -> &Directory {
        self.directory
    }

    /// Begins a journal of this process.
    pub(super) fn begin(&self, place: Place) -> Result<Journal, TreatError> {
        let pid = process::id();
        let path = &self.directory.path;
        let fault = TreatError::file("begin the journal of treatments", path);
        let started = start_time(pid).map_err(&fault)?;
        for number in 0..MAX_JOURNALS {
            let name = format!("{PREFIX}{pid}-{number}{SUFFIX}");
            let path = path.join(name);
            let mut options = OpenOptions::new();
            options.write(true).create_new(true).mode(0o600);
            let file = match open_no_follow(&path, &mut options) {
                Ok(file) => file,
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                Err(error) => return Err(fault(error)),
            };
            file.lock().map_err(&fault)?;
            let mut journal = Journal { path, file };
            let header = Header {
                pid,
                started,
                place,
            };
            return journal.add(&header).map(|()| journal);
        }
        Err(fault(io::ErrorKind::AlreadyExists.into()))
    }

    /// All journals that are there.
    pub(super) fn entries(&self) -> Result<Vec<Entry>, TreatError> {
        let path = &self.directory.path;
        let fault = TreatError::file("look for the journal of treatments", path);
        let files = fs::read_dir(path).map_err(fault)?;
        let names = files.filter_map(|file| file.ok()?.file_name().into_string().ok());
        let mut own: Vec<_> = names
            .filter(|name| name.starts_with(PREFIX) && name.ends_with(SUFFIX))
            .collect();
        own.sort();
        Ok(own
            .iter()
            .filter_map(|name| read(&path.join(name)).ok())
            .collect())
    }

    /// Takes a journal away of which everything is undone.
    pub(super) fn remove(&self, entry: &Entry) {
        // One that stays is found done by the next start.
        let _ = fs::remove_file(&entry.path);
    }
}

impl Journal {
    /// Writes down what is about to be set; it is on its medium when this returns.
    pub(super) fn add(&mut self, line: &impl Serialize) -> Result<(), TreatError> {
        let write = |file: &mut File| {
            let mut text = serde_json::to_vec(line)?;
            text.push(b'\n');
            file.write_all(&text)?;
            file.sync_data()
        };
        let fault = TreatError::file("write the journal of treatments", &self.path);
        write(&mut self.file).map_err(fault)
    }

    /// All is undone.
    pub(super) fn remove(self) {
        let _ = fs::remove_file(&self.path);
    }
}

fn read(path: &Path) -> io::Result<Entry> {
    let file = open_no_follow(path, OpenOptions::new().read(true))?;
    let is_held = matches!(file.try_lock(), Err(TryLockError::WouldBlock));
    let mut lines = BufReader::new(file.take(MAX_BYTES)).split(b'\n');
    let first = lines.next().transpose()?.unwrap_or_default();
    let header = serde_json::from_slice(&first).ok();
    // A line that is torn was being written when the process was killed: what it is about was not
    // set yet. Others that cannot be read are no reason to leave the rest as it is.
    let steps = lines
        .map_while(Result::ok)
        .filter_map(|line| serde_json::from_slice(&line).ok())
        .collect();
    Ok(Entry {
        path: path.to_owned(),
        header,
        steps,
        is_held,
    })
}

const PREFIX: &str = "treatments-";
const SUFFIX: &str = ".jsonl";
/// Of one process at once.
const MAX_JOURNALS: u32 = 1000;
/// Thirty-two changes take a thousandth of it; but the policy that was there before, a MiB, is in
/// it too.
const MAX_BYTES: u64 = 8 << 20;
/// A device may take a second for an offload.
const PATIENCE: Duration = Duration::from_secs(30);
