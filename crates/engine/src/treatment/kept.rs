//! Settings that the owner of a host keeps: set by the same hands as treatments, and in a journal of their own, which no
//! exit, watch or next start undoes.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use linerate_core::host::{ChangeOutcome, SettingChange};
use linerate_core::treatment::DeviceSetting;
use linerate_sys::file::open_no_follow;
use linerate_sys::netlink::Link;
use serde::{Deserialize, Serialize};

use super::applied::{check_free, undo_step};
use super::device::{OffloadStep, open_netlink};
use super::driver::{DriverFigure, DriverStep};
use super::error::TreatError;
use super::files::{FileSetting, FilesStep};
use super::journal::{Directory, Held};
use super::leftovers;
use super::place::{Place, Visit};
use super::step::{Step, Undone};
use super::sysctl::SysctlStep;
use crate::host_settings::SysctlDirectory;

/// A line of the journal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Kept {
    #[serde(flatten)]
    place: Place,
    /// Our file in sysctl.d has it, too.
    persisted: bool,
    step: Step,
}

/// One setting that is to be set and kept.
#[derive(Debug, Clone)]
pub(crate) enum Wanted<'a> {
    Sysctl {
        key: &'a str,
        value: String,
    },
    Offload {
        device: &'a str,
        setting: DeviceSetting,
        on: bool,
    },
    Figure {
        device: &'a str,
        figure: DriverFigure,
        value: u32,
    },
    Files {
        key: &'a str,
        setting: FileSetting<'a>,
        value: String,
    },
}

/// A setting that is kept in this network namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeptSetting {
    /// Before the first change.
    pub(crate) was: String,
    pub(crate) persisted: bool,
}

/// What `undo` did.
#[derive(Debug, Default)]
pub(crate) struct UndoneSettings {
    pub(crate) changes: Vec<SettingChange>,
    /// Settings that are kept in other network namespaces.
    pub(crate) elsewhere: usize,
    /// The file in sysctl.d was edited or taken away.
    pub(crate) file_changed: bool,
}

impl Wanted<'_> {
    fn prepare(&self) -> Result<Step, TreatError> {
        match self {
            Self::Sysctl { key, value } => SysctlStep::prepare(key, value).map(Step::Sysctl),
            Self::Offload {
                device,
                setting,
                on,
            } => OffloadStep::prepare_on(*setting, *on, link(device)?).map(Step::Offload),
            Self::Figure {
                device,
                figure,
                value,
            } => DriverStep::prepare(*figure, *value, &link(device)?).map(Step::Driver),
            Self::Files {
                key,
                setting,
                value,
            } => FilesStep::prepare(key, *setting, value).map(Step::Files),
        }
    }

    /// Checksums before the segmentation that needs them.
    fn rank(&self) -> u8 {
        match self {
            Self::Offload {
                setting: DeviceSetting::ChecksumOffload,
                ..
            } => 0,
            _ => 1,
        }
    }
}

fn link(device: &str) -> Result<Link, TreatError> {
    let link = open_netlink()?.link(device);
    link.map_err(|_| {
        TreatError::unfit(
            format!("a setting of {device}"),
            "there is no such device in this network namespace",
        )
    })
}

/// Sets all of them or none, reads them back, and keeps them; with `file`, the kernel settings among them over a reboot, too.
///
/// # Errors
/// Not permitted, not there, another process treats one of them, or one did not take. Nothing is changed then.
pub(crate) fn keep(
    directory: &Directory,
    wanted: &[Wanted<'_>],
    file: Option<&SysctlDirectory>,
) -> Result<Vec<SettingChange>, TreatError> {
    let place = Place::here()?;
    let treatments = Directory::open()?;
    let treating = treatments.hold()?;
    leftovers::undo_in(&treating)?;
    let held = directory.hold()?;
    let mut journal = Journal::open(&held)?;
    let mut sorted: Vec<&Wanted<'_>> = wanted.iter().collect();
    sorted.sort_by_key(|one| one.rank());
    let steps: Vec<Step> = sorted
        .iter()
        .map(|one| one.prepare())
        .collect::<Result<_, _>>()?;
    for step in steps.iter().filter(|step| step.changes()) {
        check_free(&treating, step, &place)?;
    }
    let before = journal.entries.len();
    for step in &steps {
        let persisted = file.is_some() && step.is_sysctl();
        if step.changes() || persisted {
            journal.add(Kept {
                place: place.clone(),
                persisted,
                step: step.clone(),
            })?;
        }
    }
    if let Err(error) = set_all(&steps, file) {
        let undone: Result<(), TreatError> = steps
            .iter()
            .rev()
            .filter(|step| step.changes())
            .try_for_each(|step| undo_step(step).map(drop));
        // What could not be put back stays in the journal, for `host undo`.
        if undone.is_ok() {
            journal.entries.truncate(before);
            journal.rewrite()?;
        }
        return Err(error);
    }
    journal.compact()?;
    Ok(steps.iter().map(changed).collect())
}

fn set_all(steps: &[Step], file: Option<&SysctlDirectory>) -> Result<(), TreatError> {
    steps
        .iter()
        .filter(|step| step.changes())
        .try_for_each(Step::set)?;
    // Only now: one step may take away what an earlier one set.
    steps.iter().try_for_each(|step| step.check().map(drop))?;
    match file {
        Some(file) => {
            let lines = steps.iter().filter(|step| step.is_sysctl());
            let lines = lines.map(|step| (step.key(), step.values().1));
            file.set(&lines.collect::<Vec<_>>())
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
        outcome: match step.changes() {
            true => ChangeOutcome::Set,
            false => ChangeOutcome::Already,
        },
        why: None,
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

/// Puts back what is kept in this network namespace, of these keys or all, where it is still ours.
///
/// # Errors
/// The journal or the file in sysctl.d cannot be read or written. What cannot be put back is in the answer, and stays.
pub(crate) fn undo(
    directory: &Directory,
    keys: &[String],
    file: &SysctlDirectory,
) -> Result<UndoneSettings, TreatError> {
    let place = Place::here()?;
    let treatments = Directory::open()?;
    let treating = treatments.hold()?;
    leftovers::undo_in(&treating)?;
    let held = directory.hold()?;
    let mut journal = Journal::open(&held)?;
    let is_gone = |entry: &Kept| {
        entry.place.is_of_this_boot() && matches!(entry.place.run(|| ()), Visit::Gone)
    };
    journal
        .entries
        .retain(|entry| entry.is_for(&place) || !is_gone(entry));
    let is_meant = |entry: &Kept| {
        entry.is_for(&place) && (keys.is_empty() || keys.contains(&entry.step.key()))
    };
    let (meant, others): (Vec<Kept>, Vec<Kept>) = journal.entries.drain(..).partition(is_meant);
    for entry in &meant {
        check_free(&treating, &entry.step, &place)?;
    }
    let mut undone = UndoneSettings {
        elsewhere: others.iter().filter(|entry| !entry.is_for(&place)).count(),
        ..UndoneSettings::default()
    };
    let mut notes = BTreeMap::new();
    undone.file_changed = unpersist(&meant, file, &mut notes)?;
    let mut left = Vec::new();
    for key in ordered_keys(&meant) {
        let chain: Vec<&Kept> = meant
            .iter()
            .filter(|entry| entry.step.key() == key)
            .collect();
        let (mut change, done) = undo_chain(&key, &chain);
        change.why = change.why.or_else(|| notes.remove(&key));
        undone.changes.push(change);
        if !done {
            left.extend(chain.into_iter().cloned());
        }
    }
    journal.entries = others;
    journal.entries.extend(left);
    journal.rewrite()?;
    Ok(undone)
}

/// Takes out of the file in sysctl.d what is ours in it. Says of which keys it has another value.
fn unpersist(
    meant: &[Kept],
    file: &SysctlDirectory,
    notes: &mut BTreeMap<String, String>,
) -> Result<bool, TreatError> {
    let persisted = meant.iter().filter(|entry| entry.persisted);
    let lines: BTreeSet<(String, String)> = persisted
        .map(|entry| (entry.step.key(), entry.step.values().1))
        .collect();
    if lines.is_empty() {
        return Ok(false);
    }
    let (is_changed, foreign) = file.remove(&lines)?;
    for key in foreign {
        let why = format!(
            "{} gives it another value, which was left there",
            file.path().display()
        );
        notes.insert(key, why);
    }
    Ok(is_changed)
}

/// Keys, those that were set last first.
fn ordered_keys(entries: &[Kept]) -> Vec<String> {
    let mut keys: Vec<String> = Vec::new();
    for key in entries.iter().rev().map(|entry| entry.step.key()) {
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    keys
}

/// Undoes all changes of one key, the last first. False if something could not be put back.
fn undo_chain(key: &str, chain: &[&Kept]) -> (SettingChange, bool) {
    let was = chain
        .first()
        .map(|entry| entry.step.values().0)
        .unwrap_or_default();
    let set = chain
        .last()
        .map(|entry| entry.step.values().1)
        .unwrap_or_default();
    let mut why = None;
    let mut undone = Undone::Gone;
    for entry in chain.iter().rev() {
        match undo_step(&entry.step) {
            Ok(one) => undone = undone.or(one),
            Err(error) => why = Some(crate::words::chain(&error)),
        }
    }
    let now = chain
        .last()
        .and_then(|entry| entry.step.found().ok().flatten());
    let outcome = match (&why, undone) {
        (Some(_), _) => ChangeOutcome::Failed,
        // It may never have been set: its process was killed before.
        (None, _) if now.as_ref() == Some(&was) => ChangeOutcome::Restored,
        (None, Undone::Gone) => ChangeOutcome::Gone,
        (None, _) => ChangeOutcome::LeftAlone,
    };
    if outcome == ChangeOutcome::LeftAlone {
        why = Some("somebody has changed it since".to_owned());
    }
    let change = SettingChange {
        key: key.to_owned(),
        was,
        set,
        now,
        outcome,
        why,
    };
    (change, outcome != ChangeOutcome::Failed)
}

impl Kept {
    /// Set in this namespace; or at a boot before, when only what the file in sysctl.d sets again can still be there, and the
    /// namespaces had other numbers.
    fn is_for(&self, place: &Place) -> bool {
        self.place == *place || !self.place.is_of_this_boot()
    }
}

/// The journal, locked against others.
#[derive(Debug)]
struct Journal<'a> {
    held: &'a Held<'a>,
    entries: Vec<Kept>,
}

impl<'a> Journal<'a> {
    fn open(held: &'a Held<'a>) -> Result<Self, TreatError> {
        let entries = read(held.directory())?;
        Ok(Self { held, entries })
    }

    /// Writes down what is about to be set; it is on its medium when this returns.
    fn add(&mut self, entry: Kept) -> Result<(), TreatError> {
        if self.entries.len() >= MOST_ENTRIES {
            let why = "too many settings are kept; `linerate host undo` first";
            return Err(TreatError::unfit(entry.step.what(), why));
        }
        let path = path(self.held.directory());
        let mut options = OpenOptions::new();
        options.append(true).create(true).mode(0o600);
        let mut write = || {
            let mut file = open_no_follow(&path, &mut options)?;
            let mut text = serde_json::to_vec(&entry)?;
            text.push(b'\n');
            file.write_all(&text)?;
            file.sync_all()
        };
        write().map_err(|source| fault("write", path.clone(), source))?;
        self.entries.push(entry);
        Ok(())
    }

    /// Joins changes of the same figure that follow on each other, and forgets what is as it was.
    fn compact(&mut self) -> Result<(), TreatError> {
        let mut joined: Vec<Kept> = Vec::new();
        for entry in std::mem::take(&mut self.entries) {
            let last = joined
                .iter_mut()
                .rev()
                .find(|other| other.place == entry.place && other.step.key() == entry.step.key());
            let is_joined = last.is_some_and(|last| {
                let follows = last.step.join(&entry.step);
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
    fn rewrite(&self) -> Result<(), TreatError> {
        let path = path(self.held.directory());
        if self.entries.is_empty() {
            return match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    Err(fault("remove", path, error))
                }
                _ => Ok(()),
            };
        }
        let mut text = Vec::new();
        for entry in &self.entries {
            serde_json::to_writer(&mut text, entry)
                .map_err(|error| fault("write", path.clone(), error.into()))?;
            text.push(b'\n');
        }
        crate::own_directory::replace_file(&path, &text, 0o600)
            .map_err(|source| fault("write", path, source))
    }
}

fn read(directory: &Directory) -> Result<Vec<Kept>, TreatError> {
    let path = path(directory);
    let text = match crate::own_directory::read_file(&path, MOST_BYTES) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        read => read.map_err(|source| fault("read", path.clone(), source))?,
    };
    // A line that is torn was being written when its process was killed: what it is about was not set yet.
    let lines = text
        .lines()
        .filter_map(|line| serde_json::from_str::<Kept>(line).ok());
    // A reboot has undone what no file sets again.
    let is_there = |entry: &Kept| entry.persisted || entry.place.is_of_this_boot();
    Ok(lines.filter(is_there).collect())
}

fn path(directory: &Directory) -> PathBuf {
    directory.file("kept.jsonl")
}

fn fault(operation: &'static str, path: PathBuf, source: io::Error) -> TreatError {
    TreatError::Journal {
        operation,
        path,
        source,
    }
}

/// The table has fewer than a hundred settings, for each device.
const MOST_ENTRIES: usize = 10_000;
/// Of the journal. An entry is some hundred bytes.
const MOST_BYTES: u64 = 16 << 20;
