//! Settings that the owner of a host keeps: set by the same hands as treatments, and in a journal
//! of their own, which no exit, watch or next start undoes.
//!
//! `back` puts them back.

mod back;

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

pub(crate) use back::undo;
use linerate_core::host::{Assignment, ChangeOutcome, DeviceKey, SettingChange, device_key};
use linerate_core::treatment::{DeviceSetting, Value};
use serde::{Deserialize, Serialize};

use super::applied::{check_free, undo_all};
use super::device::{DriverStep, FIGURES, OFFLOADS, OffloadStep, named};
use super::error::TreatError;
use super::files::{FileSetting, FilesStep};
use super::journal as treatments;
use super::journal::candidates;
use super::place::NamespacePlace;
use super::step::{Step, number};
use super::sysctl::{SysctlDirectory, SysctlStep};
use crate::state_files::{
    HeldDirectory, JsonLog, PATIENCE, StateDirectory, StateError, remove_file, replace_file, run,
};

/// The step that gives a setting its value.
fn prepare(assignment: &Assignment) -> Result<Step, TreatError> {
    let (key, text) = (assignment.key(), assignment.text());
    let Some(DeviceKey { device, name }) = device_key(key) else {
        return match key {
            "cpu.governor" => {
                FilesStep::prepare(key, FileSetting::Governor, &text).map(Step::Files)
            }
            _ => SysctlStep::prepare(key, &text).map(Step::Sysctl),
        };
    };
    let is_offload = |setting: &DeviceSetting| setting.to_string() == name;
    if let Some(setting) = OFFLOADS.into_iter().find(is_offload) {
        let on = *assignment.value() == Value::Switch(true);
        return OffloadStep::prepare_on(setting, on, named(key, device)?).map(Step::Offload);
    }
    if let Some((_, figure)) = FIGURES.into_iter().find(|(own, _)| *own == name) {
        let value = match assignment.value() {
            Value::Switch(on) => u32::from(*on),
            value => number(value),
        };
        return DriverStep::prepare(figure, value, &named(key, device)?).map(Step::Driver);
    }
    let setting = FileSetting::new(device, name)
        .ok_or_else(|| TreatError::unfit(key, "there is no such setting of a device"))?;
    FilesStep::prepare(key, setting, &text).map(Step::Files)
}

/// Sets all of them or none, reads them back, and keeps them; with `file`, the kernel settings
/// among them over a reboot, too.
///
/// # Errors
/// Not permitted, not there, another process treats one of them, or one did not take. Nothing is
/// changed then.
pub(crate) fn keep(
    directory: &StateDirectory,
    wanted: &[Assignment],
    file: Option<&SysctlDirectory>,
) -> Result<Vec<SettingChange>, TreatError> {
    let place = NamespacePlace::here()?;
    let treating = treatments::hold(&treatments::directory()?)?;
    treatments::undo_in(&treating)?;
    let mut journal = Journal::open(directory)?;
    let mut steps: Vec<Step> = wanted.iter().map(prepare).collect::<Result<_, _>>()?;
    // Checksums before the segmentation that needs them.
    steps.sort_by_key(|step| !step.is_of_checksums());
    for step in steps.iter().filter(|step| step.changes()) {
        check_free(&treating, step, &place)?;
    }
    let before = journal.entries.len();
    write_down(&mut journal, &steps, &place, file.is_some())?;
    if let Err(error) = set_all(&steps, file) {
        // What could not be put back stays in the journal, for `host undo`.
        if undo_all(&steps).is_ok() {
            journal.entries.truncate(before);
            journal.rewrite()?;
        }
        return Err(error);
    }
    journal.compact()?;
    Ok(steps.iter().map(changed).collect())
}

fn write_down(
    journal: &mut Journal,
    steps: &[Step],
    place: &NamespacePlace,
    persist: bool,
) -> Result<(), TreatError> {
    for step in steps {
        let persisted = persist && step.is_sysctl();
        if step.changes() || persisted {
            journal.add(Kept { place: place.clone(), persisted, step: step.clone() })?;
        }
    }
    Ok(())
}

fn set_all(steps: &[Step], file: Option<&SysctlDirectory>) -> Result<(), TreatError> {
    steps.iter().filter(|step| step.changes()).try_for_each(|step| step.set())?;
    // Only now: one step may take away what an earlier one set.
    steps.iter().try_for_each(|step| step.check().map(drop))?;
    match file {
        Some(file) => {
            let sysctls = steps.iter().filter(|step| step.is_sysctl());
            let lines: Vec<_> = sysctls.map(|step| (step.key(), step.values().1)).collect();
            Ok(file.set(&lines)?)
        }
        None => Ok(()),
    }
}

fn changed(step: &Step) -> SettingChange {
    let (was, set) = step.values();
    SettingChange {
        key: step.key(),
        was,
        now: Some(set.clone()),
        set,
        outcome: if step.changes() { ChangeOutcome::Set } else { ChangeOutcome::Already },
        why: None,
    }
}

// The journal of what is kept: a line of JSON for each change.

/// A line of the journal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Kept {
    #[serde(flatten)]
    place: NamespacePlace,
    /// Our file in sysctl.d has it, too.
    persisted: bool,
    step: Step,
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
    fn is_for(&self, place: &NamespacePlace) -> bool {
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
struct Journal {
    held: HeldDirectory,
    entries: Vec<Kept>,
}

impl Journal {
    /// Waits for others that keep settings. Their lock is not that of treatments: both may be in
    /// one directory, and who keeps settings holds the one and then the other.
    fn open(directory: &StateDirectory) -> Result<Self, StateError> {
        let held = directory.hold("kept.lock", PATIENCE)?;
        let entries = read(directory)?;
        Ok(Self { held, entries })
    }

    /// Writes down what is about to be set; it is on its medium when this returns.
    fn add(&mut self, entry: Kept) -> Result<(), TreatError> {
        if self.entries.len() >= MAX_ENTRIES {
            let why = "too many settings are kept; `linerate host undo` first";
            return Err(TreatError::unfit(entry.step.what(), why));
        }
        JsonLog::open(&path(self.held.directory()))?.add(&entry)?;
        self.entries.push(entry);
        Ok(())
    }

    /// Joins changes of the same figure that follow on each other, and forgets what is as it was.
    fn compact(&mut self) -> Result<(), StateError> {
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
    fn rewrite(&self) -> Result<(), StateError> {
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
