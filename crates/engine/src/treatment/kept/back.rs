//! Putting back what is kept, where it is still ours.

use std::collections::{BTreeMap, BTreeSet};

use linerate_core::host::{ChangeOutcome, SettingChange};

use super::super::applied::{check_free, undo_step};
use super::super::error::TreatError;
use super::super::place::{NamespacePlace, Visit};
use super::super::step::Undone;
use super::super::sysctl::SysctlDirectory;
use super::super::{journal, journal as treatments};
use super::{Journal, Kept};
use crate::state_files::{StateDirectory, StateError};

/// What `undo` did.
#[derive(Debug, Default)]
pub(crate) struct UndoneSettings {
    pub(crate) changes: Vec<SettingChange>,
    /// Settings that are kept in other network namespaces.
    pub(crate) elsewhere: usize,
    /// The file in sysctl.d was edited or taken away.
    pub(crate) file_changed: bool,
}

/// Puts back what is kept in this network namespace, of these keys or all, where it is still ours.
///
/// # Errors
/// The journal or the file in sysctl.d cannot be read or written. What cannot be put back is in the
/// answer, and stays.
pub(crate) fn undo(
    directory: &StateDirectory,
    keys: &[String],
    file: &SysctlDirectory,
) -> Result<UndoneSettings, TreatError> {
    let place = NamespacePlace::here()?;
    let treating = treatments::hold(&treatments::directory()?)?;
    journal::undo_in(&treating)?;
    let mut journal = Journal::open(directory)?;
    let is_gone = |entry: &Kept| {
        entry.place.is_of_this_boot() && matches!(entry.place.run(|| ()), Visit::Gone)
    };
    journal.entries.retain(|entry| entry.is_for(&place) || !is_gone(entry));
    // After a reboot only the first namespace has what the file in sysctl.d set again.
    let is_first = file.check_namespace().is_ok();
    let is_here =
        |entry: &Kept| entry.is_for(&place) && (is_first || entry.place.is_of_this_boot());
    let is_meant =
        |entry: &Kept| is_here(entry) && (keys.is_empty() || keys.contains(&entry.step.key()));
    let (meant, others): (Vec<Kept>, Vec<Kept>) = journal.entries.drain(..).partition(is_meant);
    for entry in &meant {
        check_free(&treating, &entry.step, &place)?;
    }
    let mut undone = UndoneSettings {
        elsewhere: others.iter().filter(|entry| !is_here(entry)).count(),
        ..UndoneSettings::default()
    };
    let mut notes = BTreeMap::new();
    undone.file_changed = unpersist(&meant, file, &mut notes)?;
    let (changes, left) = undo_each(&meant, notes);
    undone.changes = changes;
    journal.entries = others;
    journal.entries.extend(left);
    journal.rewrite()?;
    Ok(undone)
}

/// Key by key. Also answers what could not be put back.
fn undo_each(
    meant: &[Kept],
    mut notes: BTreeMap<String, String>,
) -> (Vec<SettingChange>, Vec<Kept>) {
    let (mut changes, mut left) = (Vec::new(), Vec::new());
    for key in ordered_keys(meant) {
        let own = |entry: &&Kept| entry.step.key() == key;
        let chain: Vec<&Kept> = meant.iter().filter(own).collect();
        let (mut change, is_done) = undo_chain(&key, &chain);
        change.why = change.why.or_else(|| notes.remove(&key));
        changes.push(change);
        if !is_done {
            left.extend(chain.into_iter().cloned());
        }
    }
    (changes, left)
}

/// Takes out of the file in sysctl.d what is ours in it. Says of which keys it has another value.
fn unpersist(
    meant: &[Kept],
    file: &SysctlDirectory,
    notes: &mut BTreeMap<String, String>,
) -> Result<bool, StateError> {
    let persisted = meant.iter().filter(|entry| entry.persisted);
    let lines: BTreeSet<(String, String)> =
        persisted.map(|entry| (entry.step.key(), entry.step.values().1)).collect();
    if lines.is_empty() {
        return Ok(false);
    }
    let (is_changed, foreign) = file.remove(&lines)?;
    for key in foreign {
        let why = format!("{} gives it another value, which was left there", file.path().display());
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
    let was = chain.first().map(|entry| entry.step.values().0).unwrap_or_default();
    let set = chain.last().map(|entry| entry.step.values().1).unwrap_or_default();
    let mut why = None;
    let mut undone = Undone::Gone;
    for entry in chain.iter().rev() {
        match undo_step(&entry.step) {
            Ok(one) => undone = undone.or(one),
            Err(error) => why = Some(crate::words::chain(&error)),
        }
    }
    let now = chain.last().and_then(|entry| entry.step.found().ok().flatten());
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
    let change = SettingChange { key: key.to_owned(), was, set, now, outcome, why };
    (change, outcome != ChangeOutcome::Failed)
}
