//! The journal of what is kept: a line of JSON for each change.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use linerate_sys::file::open_no_follow;
use serde::{Deserialize, Serialize};

use super::super::error::TreatError;
use super::super::journal::{Directory, Held};
use super::super::place::Place;
use super::super::step::Step;

/// A line of the journal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Kept {
    #[serde(flatten)]
    pub(super) place: Place,
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
    pub(super) fn is_for(&self, place: &Place) -> bool {
        self.place == *place || !self.place.is_of_this_boot() || self.step.is_of_host()
    }
}

/// What is kept in the calling thread's network namespace, by key.
pub(crate) fn kept(directory: &Directory) -> Result<BTreeMap<String, KeptSetting>, TreatError> {
    let place = Place::here()?;
    let mut kept: BTreeMap<String, KeptSetting> = BTreeMap::new();
    for entry in read(directory)? {
        if !entry.is_for(&place) {
            continue;
        }
        let own = kept.entry(entry.step.key()).or_insert_with(|| KeptSetting {
            was: entry.step.values().0,
            persisted: false,
        });
        own.persisted |= entry.persisted;
    }
    Ok(kept)
}

/// The journal, locked against others.
#[derive(Debug)]
pub(super) struct Journal<'a> {
    held: &'a Held<'a>,
    pub(super) entries: Vec<Kept>,
}

impl<'a> Journal<'a> {
    pub(super) fn open(held: &'a Held<'a>) -> Result<Self, TreatError> {
        let entries = read(held.directory())?;
        Ok(Self { held, entries })
    }

    /// Writes down what is about to be set; it is on its medium when this returns.
    pub(super) fn add(&mut self, entry: Kept) -> Result<(), TreatError> {
        if self.entries.len() >= MAX_ENTRIES {
            let why = "too many settings are kept; `linerate host undo` first";
            return Err(TreatError::unfit(entry.step.what(), why));
        }
        let path = path(self.held.directory());
        let mut options = OpenOptions::new();
        options.append(true).create(true).mode(0o600);
        let mut write = || {
            let mut file = open_no_follow(&path, &mut options)?;
            // A line that was cut off by a crash must not swallow this one.
            let mut text = vec![b'\n'];
            serde_json::to_writer(&mut text, &entry)?;
            text.push(b'\n');
            file.write_all(&text)?;
            file.sync_all()
        };
        write().map_err(TreatError::file(WRITE, &path))?;
        self.entries.push(entry);
        Ok(())
    }

    /// Joins changes of the same figure that follow on each other, and forgets what is as it was.
    pub(super) fn compact(&mut self) -> Result<(), TreatError> {
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
    pub(super) fn rewrite(&self) -> Result<(), TreatError> {
        let path = path(self.held.directory());
        if self.entries.is_empty() {
            return match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    Err(TreatError::file("remove the journal of treatments", &path)(
                        error,
                    ))
                }
                _ => Ok(()),
            };
        }
        let mut text = Vec::new();
        for entry in &self.entries {
            serde_json::to_writer(&mut text, entry)
                .map_err(|error| TreatError::file(WRITE, &path)(error.into()))?;
            text.push(b'\n');
        }
        crate::own_directory::replace_file(&path, &text, 0o600)
            .map_err(TreatError::file(WRITE, &path))
    }
}

fn read(directory: &Directory) -> Result<Vec<Kept>, TreatError> {
    let path = path(directory);
    let text = match crate::own_directory::read_file(&path, MAX_BYTES) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        read => read.map_err(TreatError::file("read the journal of treatments", &path))?,
    };
    // A line that is torn was being written when its process was killed: what it is about was not
    // set yet.
    let lines = text
        .lines()
        .filter_map(|line| serde_json::from_slice::<Kept>(line.as_bytes()).ok());
    // A reboot has undone what no file sets again.
    let is_there = |entry: &Kept| entry.persisted || entry.place.is_of_this_boot();
    Ok(lines.filter(is_there).collect())
}

fn path(directory: &Directory) -> PathBuf {
    directory.file("kept.jsonl")
}

const WRITE: &str = "write the journal of treatments";
/// The table has fewer than a hundred settings, for each device.
const MAX_ENTRIES: usize = 10_000;
/// Of the journal. An entry is some hundred bytes.
const MAX_BYTES: u64 = 16 << 20;
