//! The journal of what is kept: a line of JSON for each change.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::super::error::TreatError;
use super::super::journal::candidates;
use super::super::place::NamespacePlace;
use super::super::step::Step;
use crate::state_files::{
    HeldDirectory, JsonLog, PATIENCE, StateDirectory, StateError, remove_file, replace_file, run,
};

/// A line of the journal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Kept {
    #[serde(flatten)]
    pub(super) place: NamespacePlace,
    /// Our file in sysctl.d has it, too.
    pub(super) persisted: bool,
    pub(super) step: Step,
}

/// A setting that is kept in this network namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeptSetting {
    /// Before the first change.
    pub(crate) was: String,
    pub(crate) persisted: bool,
}

impl Kept {
    /// Set in this namespace, or of the whole host; or at a boot before, when only what the file in
    /// sysctl.d sets again can still be there, and the namespaces had other numbers.
    pub(super) fn is_for(&self, place: &NamespacePlace) -> bool {
        self.place == *place || !self.place.is_of_this_boot() || self.step.is_of_host()
    }
}

/// Where the settings that are kept stand, which has to outlive a reboot where they do: the
/// directory of `LINERATE_STATE_DIRECTORY`, `/var/lib/linerate` for root, or else that of
/// treatments.
///
/// # Errors
/// It cannot be had.
pub(crate) fn kept_directory() -> Result<StateDirectory, StateError> {
    StateDirectory::first(kept_candidates())
}

/// [`kept_directory`], if it is there.
///
/// # Errors
/// It is another's, or open to others.
pub(crate) fn existing_kept_directory() -> Result<Option<StateDirectory>, StateError> {
    let mut candidates = kept_candidates().into_iter();
    let existing = candidates.find(|path| fs::symlink_metadata(path).is_ok());
    existing.map(StateDirectory::existing).transpose()
}

fn kept_candidates() -> Vec<PathBuf> {
    match std::env::var_os("LINERATE_STATE_DIRECTORY") {
        Some(path) => vec![path.into()],
        None if run().is_some() => vec!["/var/lib/linerate".into()],
        None => candidates(),
    }
}

/// What is kept in the calling thread's network namespace, by key.
pub(crate) fn kept(
    directory: &StateDirectory,
) -> Result<BTreeMap<String, KeptSetting>, TreatError> {
    let place = NamespacePlace::here()?;
    let mut kept: BTreeMap<String, KeptSetting> = BTreeMap::new();
    for entry in read(directory)? {
        if !entry.is_for(&place) {
            continue;
        }
        let own = kept
            .entry(entry.step.key())
            .or_insert_with(|| KeptSetting { was: entry.step.values().0, persisted: false });
        own.persisted |= entry.persisted;
    }
    Ok(kept)
}

/// The journal, locked against others.
#[derive(Debug)]
pub(super) struct Journal {
    held: HeldDirectory,
    pub(super) entries: Vec<Kept>,
}

impl Journal {
    /// Waits for others that keep settings. Their lock is not that of treatments: both may be in
    /// one directory, and who keeps settings holds the one and then the other.
    pub(super) fn open(directory: &StateDirectory) -> Result<Self, StateError> {
        let held = directory.hold("kept.lock", PATIENCE)?;
        let entries = read(directory)?;
        Ok(Self { held, entries })
    }

    /// Writes down what is about to be set; it is on its medium when this returns.
    pub(super) fn add(&mut self, entry: Kept) -> Result<(), TreatError> {
        if self.entries.len() >= MAX_ENTRIES {
            let why = "too many settings are kept; `linerate host undo` first";
            return Err(TreatError::unfit(entry.step.what(), why));
        }
        JsonLog::open(&path(self.held.directory()))?.add(&entry)?;
        self.entries.push(entry);
        Ok(())
    }

    /// Joins changes of the same figure that follow on each other, and forgets what is as it was.
    pub(super) fn compact(&mut self) -> Result<(), StateError> {
        let mut joined: Vec<Kept> = Vec::new();
        for entry in std::mem::take(&mut self.entries) {
            let last = joined
                .iter_mut()
                .rev()
                .find(|other| other.place == entry.place && other.step.key() == entry.step.key());
            let is_joined = last.is_some_and(|last| {
                // What the file in sysctl.d says is the value of the last that was persisted.
                let follows = (entry.persisted || !last.persisted) && last.step.join(&entry.step);
                last.persisted |= follows && entry.persisted;
                follows
            });
            if !is_joined {
                joined.push(entry);
            }
        }
        joined.retain(|entry| entry.persisted || entry.step.changes());
        self.entries = joined;
        self.rewrite()
    }

    /// In one step: a crash leaves the old journal or the new one.
    pub(super) fn rewrite(&self) -> Result<(), StateError> {
        let path = path(self.held.directory());
        if self.entries.is_empty() {
            return remove_file(&path);
        }
        let line = |entry| serde_json::to_string(entry).expect("steps have string keys") + "\n";
        let text: String = self.entries.iter().map(line).collect();
        replace_file(&path, text.as_bytes(), 0o600)
    }
}

fn read(directory: &StateDirectory) -> Result<Vec<Kept>, StateError> {
    let Some(journal) = JsonLog::existing(&path(directory))? else {
        return Ok(Vec::new());
    };
    let mut entries: Vec<Kept> = journal.values()?;
    // A reboot has undone what no file sets again.
    entries.retain(|entry| entry.persisted || entry.place.is_of_this_boot());
    Ok(entries)
}

fn path(directory: &StateDirectory) -> PathBuf {
    directory.file("kept.jsonl")
}

/// The table has fewer than a hundred settings, for each device.
const MAX_ENTRIES: usize = 10_000;
