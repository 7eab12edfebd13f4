//! Settings that the owner of a host keeps: set by the same hands as treatments, and in a journal
//! of their own, which no exit, watch or next start undoes.
//!
//! | module | what is in it |
//! |---|---|
//! | `journal` | the journal |
//! | `back` | putting settings back |

mod back;
mod journal;

use linerate_core::host::{Assignment, ChangeOutcome, DeviceKey, SettingChange, device_key};
use linerate_core::treatment::{DeviceSetting, Value};

use super::applied::{check_free, undo_all};
use super::device::{OFFLOADS, OffloadStep, named};
use super::driver::{DriverStep, FIGURES};
use super::error::TreatError;
use super::files::{FileSetting, FilesStep};
use super::journal as treatments;
use super::leftovers;
use super::place::NamespacePlace;
use super::step::{Step, number};
use super::sysctl::SysctlStep;
use super::sysctl_directory::SysctlDirectory;
use crate::state_files::StateDirectory;

pub(crate) use back::undo;
use journal::{Journal, Kept};
pub(crate) use journal::{existing_kept_directory, kept, kept_directory};

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
    leftovers::undo_in(&treating)?;
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
