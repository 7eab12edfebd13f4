//! The journals: for each [`Applied`](super::Applied) a file of JSON lines, the first of which says
//! whose it is, the others what was set. It is locked for as long as its process lives, however
//! that ends.

use std::io;
use std::path::PathBuf;
use std::process;

use linerate_sys::process::start_time;
use serde::{Deserialize, Serialize};

use super::error::TreatError;
use super::place::NamespacePlace;
use super::step::Step;
use crate::state_files::{
    HeldDirectory, JsonLog, PATIENCE, StateDirectory, StateError, run, runtime, temporary,
};

/// Owner of a journal: its process and namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Header {
    pub(super) pid: u32,
    /// In clock ticks since boot.
    pub(super) started: u64,
    #[serde(flatten)]
    pub(super) place: NamespacePlace,
}

/// A journal that somebody wrote.
#[derive(Debug)]
pub(super) struct JournalEntry {
    pub(super) path: PathBuf,
    /// None if the file has no header: its process was killed before it set anything.
    pub(super) header: Option<Header>,
    /// In the order in which they were set.
    pub(super) steps: Vec<Step>,
    /// Whether its process lives.
    pub(super) is_held: bool,
}

/// The directory of the journals: the first that is there or can be made of `/run/linerate` for
/// root, `$XDG_RUNTIME_DIR/linerate` and `/tmp/linerate-UID`.
pub(super) fn directory() -> Result<StateDirectory, StateError> {
    StateDirectory::first(candidates())
}

/// All directories of journals that are there.
pub(super) fn directories() -> impl Iterator<Item = StateDirectory> {
    let own = |path| StateDirectory::existing(path).ok();
    candidates().into_iter().filter_map(own)
}

/// Waits until it is this process's turn to treat; others hold the directory for milliseconds.
pub(super) fn hold(directory: &StateDirectory) -> Result<HeldDirectory, StateError> {
    directory.hold("treatments.lock", PATIENCE)
}

pub(super) fn candidates() -> Vec<PathBuf> {
    let own = [run(), runtime(), Some(temporary())];
    own.into_iter().flatten().collect()
}

/// Begins a journal of this process. The lock on it goes with it.
pub(super) fn begin(held: &HeldDirectory, place: NamespacePlace) -> Result<JsonLog, TreatError> {
    let pid = process::id();
    let path = held.directory().path();
    let fault = StateError::new("begin a journal in", path);
    let started = start_time(pid).map_err(&fault)?;
    for number in 0..MAX_JOURNALS {
        if let Some(mut journal) = held.claim(&format!("{PREFIX}{pid}-{number}{SUFFIX}"))? {
            journal.add(&Header { pid, started, place })?;
            return Ok(journal);
        }
    }
    Err(fault(io::ErrorKind::AlreadyExists.into()).into())
}

/// All journals that are there, those of this process among them.
pub(super) fn entries(held: &HeldDirectory) -> Result<Vec<JournalEntry>, StateError> {
    let names = held.directory().names(PREFIX, SUFFIX)?;
    // Another user's file, or a link, is no journal.
    let read = |name: String| read(held, &format!("{PREFIX}{name}{SUFFIX}")).ok()?;
    Ok(names.into_iter().filter_map(read).collect())
}

fn read(held: &HeldDirectory, name: &str) -> Result<Option<JournalEntry>, StateError> {
    let Some((journal, is_held)) = held.claimed(name)? else {
        return Ok(None);
    };
    let mut entry =
        JournalEntry { path: journal.path().to_owned(), header: None, steps: Vec::new(), is_held };
    // A line that cannot be read is no reason to leave the rest as it is.
    journal.read(|number, line| {
        match number {
            1 => entry.header = serde_json::from_slice(line).ok(),
            _ => entry.steps.extend(serde_json::from_slice::<Step>(line)),
        }
        Ok::<_, StateError>(())
    })?;
    Ok(Some(entry))
}

const PREFIX: &str = "treatments-";
const SUFFIX: &str = ".jsonl";
/// Most journals of one process at once.
const MAX_JOURNALS: u32 = 1000;
