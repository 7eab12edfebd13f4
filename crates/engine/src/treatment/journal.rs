//! The journals of treatments, and what is undone by them after a process was killed.
//!
//! Each [`Applied`](super::Applied) has a file of JSON lines, the first of which says whose it is,
//! the others what was set. It is locked for as long as its process lives, however that ends.

use std::ffi::OsStr;
use std::io;
use std::path::PathBuf;
use std::process::{self, Command, Stdio};
use std::time::Duration;

use linerate_sys::process::{Process, new_session, start_time};
use serde::{Deserialize, Serialize};

use super::applied::undo_step;
use super::error::TreatError;
use super::place::{NamespacePlace, Visit};
use super::step::{Step, Undone};
use crate::state_files::{
    HeldDirectory, JsonLog, PATIENCE, StateDirectory, StateError, remove_file, run, runtime,
    temporary,
};
use crate::words::chain;

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

// What killed processes left: undone by the next start, or by a process that watches.

/// Undoes what processes of this user that were killed have left on this host: at the start of
/// every command that treats. What is of a network namespace that is gone, or of an earlier boot,
/// is forgotten; what somebody has changed since is left alone. Answers what was done, a line for
/// each thing, and what could not be and will be tried again.
pub fn undo_leftovers() -> Vec<String> {
    directories().flat_map(|directory| undo_leftovers_in(&directory)).collect()
}

/// Starts this program again with those arguments, followed by the number of this process and the
/// time at which it began, as the process that is to call [`watch_treatments`] with the two.
///
/// # Errors
/// It cannot be started.
pub fn start_treatment_watch<A: AsRef<OsStr>>(
    arguments: impl IntoIterator<Item = A>,
) -> io::Result<()> {
    let pid = process::id();
    Command::new("/proc/self/exe")
        .args(arguments)
        .arg(pid.to_string())
        .arg(start_time(pid)?.to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map(drop)
}

/// Waits until the process `pid`, which began at `started` (clock ticks since boot), has ended, and
/// undoes what it left if it was killed. It makes itself the leader of a session of its own first:
/// what ends the other's group or terminal does not end the watch.
pub fn watch_treatments(pid: u32, started: u64) -> Vec<String> {
    // It may lead a group already, and then no terminal's signal reaches it either.
    let _ = new_session();
    wait_for_end(pid, started);
    undo_leftovers()
}

pub(super) fn wait_for_end(pid: u32, started: u64) {
    // One that cannot be opened has ended.
    let Ok(process) = Process::open(pid, started) else {
        return;
    };
    while matches!(process.ends_within(LOOK_EVERY), Ok(false)) {}
}

pub(super) fn undo_leftovers_in(directory: &StateDirectory) -> Vec<String> {
    let undone = hold(directory).and_then(|held| undo_in(&held));
    undone.unwrap_or_else(|error| vec![chain(&error)])
}

/// # Errors
/// The directory cannot be read.
pub(super) fn undo_in(held: &HeldDirectory) -> Result<Vec<String>, StateError> {
    let entries = entries(held)?.into_iter();
    let left = entries.filter(|entry| !entry.is_held);
    Ok(left.flat_map(|entry| undo_entry(&entry)).collect())
}

fn undo_entry(entry: &JournalEntry) -> Vec<String> {
    // One that stays is found done by the next start.
    let forget = || drop(remove_file(&entry.path));
    let of_this_boot = |header: &&Header| header.place.is_of_this_boot();
    let Some(Header { pid, place, .. }) = entry.header.as_ref().filter(of_this_boot) else {
        forget();
        return Vec::new();
    };
    let visit = place.run(|| {
        let steps = entry.steps.iter().rev();
        let undone = steps.map(|step| (step.what(), undo_step(step)));
        undone.collect::<Vec<_>>()
    });
    let results = match visit {
        Visit::Done(results) => results,
        Visit::Gone => {
            forget();
            return Vec::new();
        }
        Visit::Closed => {
            let why = "its network namespace cannot be entered";
            return vec![format!("cannot undo what process {pid} left: {why}")];
        }
    };
    if results.iter().all(|(_, result)| result.is_ok()) {
        forget();
    }
    let line = |(what, result): (String, Result<Undone, TreatError>)| match result {
        Ok(Undone::Restored) => Some(format!("{what}: put back after process {pid} was killed")),
        Ok(Undone::NotOurs) => Some(format!(
            "{what}: left alone, it is not what process {pid} made of it before it was killed"
        )),
        Ok(Undone::Gone) => None,
        Err(error) => Some(chain(&error)),
    };
    results.into_iter().filter_map(line).collect()
}

/// The kernel says it at once; this only bounds a wait that was interrupted.
const LOOK_EVERY: Duration = Duration::from_secs(3600);
