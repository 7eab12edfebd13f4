//! The limits and settings of this host: read and judged, set and kept, put back.
//!
//! What a setting should be is core's ([`linerate_core::host`]); this reads what is there and has
//! the hands that change it. They are those of treatments, with the same journal before each
//! change; but what [`set`] or [`profile`] change stays until [`undo`]. Kernel settings can be kept
//! over a reboot by one file in `/etc/sysctl.d`; nobody else's is touched.
//!
//! `LINERATE_STATE_DIRECTORY` moves the journal from `/var/lib/linerate`,
//! `LINERATE_SYSCTL_DIRECTORY` the file.
//!
//! | module | what is in it |
//! |---|---|
//! | `read` | what there is, and why it cannot be changed where it cannot |
//! | `device` | the settings of one network device |

mod device;
mod read;

#[cfg(test)]
mod tests;

use std::net::IpAddr;

use linerate_core::host::{
    Assignment, ChangeOutcome, HostAbout, HostDocument, HostView, Need, Profile, SettingChange,
    SettingReport, SettingState, advise,
};
use linerate_sys::proc::machine;

use crate::treatment::{
    SysctlDirectory, TreatError, existing_kept_directory, keep, kept, kept_directory,
    undo as undo_kept,
};

/// What `linerate host` looks at.
#[derive(Debug, Clone, Default)]
pub struct HostScope {
    /// Rate and round trip that the host is to reach.
    pub need: Need,
    /// The address whose device is looked at; without one, those that are up.
    pub peer: Option<IpAddr>,
    /// The settings that are looked at; without any, all.
    pub keys: Vec<String>,
}

/// Reads the settings and judges them.
///
/// # Errors
/// The devices cannot be listed, a device that a key names is not there, or the journal cannot be
/// read.
pub fn show(scope: &HostScope) -> Result<HostDocument, TreatError> {
    let view = read::view(scope.peer, &scope.keys)?;
    judged(&view, scope.need, &scope.keys)
}

fn judged(view: &HostView, need: Need, keys: &[String]) -> Result<HostDocument, TreatError> {
    let mut document = HostDocument::new(about(view));
    document.need = need;
    document.settings = advise(&need, view, keys);
    let Some(directory) = existing_kept_directory()? else {
        return Ok(document);
    };
    let mut kept = kept(&directory)?;
    for setting in &mut document.settings {
        if let Some(own) = kept.remove(&setting.key) {
            setting.kept_from = Some(own.was);
            setting.persisted = own.persisted;
        }
    }
    Ok(document)
}

/// Sets all of the assignments or none, reads them back, and keeps them; with `persist`, over a
/// reboot.
///
/// # Errors
/// Not permitted, not there, treated by a process just now, or not taken. Nothing is changed then.
pub fn set(assignments: &[Assignment], persist: bool) -> Result<HostDocument, TreatError> {
    let mut document = HostDocument::new(brief());
    apply(&mut document, assignments, persist)?;
    Ok(document)
}

fn apply(
    document: &mut HostDocument,
    assignments: &[Assignment],
    persist: bool,
) -> Result<(), TreatError> {
    if assignments.is_empty() {
        return Ok(());
    }
    let file = persist.then(SysctlDirectory::of_host);
    if let Some(file) = &file {
        file.check_namespace()?;
    }
    document.changes = keep(&kept_directory()?, assignments, file.as_ref())?;
    if let Some(file) = file {
        document.file = Some(file.path().display().to_string());
        let keys: Vec<String> = assignments.iter().map(|one| one.key().to_owned()).collect();
        document.notes.extend(file.overridden(&keys));
        for one in assignments.iter().filter(|one| one.check_persistent().is_err()) {
            document.notes.push(format!(
                "{} is not kept over a reboot: no file of sysctl.d can hold it",
                one.key()
            ));
        }
    }
    Ok(())
}

/// Puts back what [`set`] and [`profile`] changed in this network namespace, of these keys or all,
/// where nobody else has changed it since.
///
/// # Errors
/// The journal or the file in sysctl.d cannot be read or written, or a process treats one of them
/// just now. What could not be put back is in the document.
pub fn undo(keys: &[String]) -> Result<HostDocument, TreatError> {
    let mut document = HostDocument::new(brief());
    let file = SysctlDirectory::of_host();
    let Some(directory) = existing_kept_directory()? else {
        document.notes.push("nothing is kept".to_owned());
        return Ok(document);
    };
    let undone = undo_kept(&directory, keys, &file)?;
    document.file = undone.file_changed.then(|| file.path().display().to_string());
    for key in keys {
        if !undone.changes.iter().any(|change| change.key == *key) {
            document.notes.push(format!("{key} was not set by `linerate host`: it is left alone"));
        }
    }
    if undone.changes.is_empty() && keys.is_empty() {
        document.notes.push("nothing is kept in this network namespace".to_owned());
    }
    if undone.elsewhere > 0 {
        let count = undone.elsewhere;
        document.notes.push(format!(
            "{count} settings are kept in other network namespaces: undo them there"
        ));
    }
    document.changes = undone.changes;
    Ok(document)
}

/// What a profile would change on this host; with `apply`, changes it: all or nothing of what can
/// be changed here.
///
/// # Errors
/// As [`show`] and [`set`].
pub fn profile(
    profile: Profile,
    scope: &HostScope,
    apply_it: bool,
    persist: bool,
) -> Result<HostDocument, TreatError> {
    let view = read::view(scope.peer, &[])?;
    let need = scope.need.with_profile(profile, view.speed_bps());
    let mut document = judged(&view, need, &[])?;
    let is_wrong = |setting: &&SettingReport| setting.state == SettingState::Change;
    let (can, cannot): (Vec<_>, Vec<_>) = document
        .settings
        .iter()
        .filter(is_wrong)
        .cloned()
        .partition(SettingReport::is_to_be_changed);
    for setting in cannot {
        let why = setting
            .obstacle
            .unwrap_or_else(|| "each process has it from what started it".to_owned());
        document.notes.push(format!("{} stays as it is: {why}", setting.key));
    }
    if !apply_it {
        document.dry_run = true;
        document.changes = can.iter().map(planned).collect();
        return Ok(document);
    }
    apply_profile(&mut document, &can, persist)?;
    // As they are now.
    document.settings = judged(&read::view(scope.peer, &[])?, need, &[])?.settings;
    Ok(document)
}

fn apply_profile(
    document: &mut HostDocument,
    wrong: &[SettingReport],
    persist: bool,
) -> Result<(), TreatError> {
    let assignments = wrong.iter().map(|setting| {
        let right = setting.right.as_deref().unwrap_or_default();
        Assignment::new(&setting.key, right)
    });
    let assignments: Vec<_> = assignments
        .collect::<Result<_, _>>()
        .map_err(|error| TreatError::kernel("take the profile's values", error))?;
    apply(document, &assignments, persist)?;
    for change in &mut document.changes {
        let own = wrong.iter().find(|setting| setting.key == change.key);
        change.why = own.map(|setting| setting.why.clone());
    }
    Ok(())
}

fn planned(setting: &SettingReport) -> SettingChange {
    SettingChange {
        key: setting.key.clone(),
        was: setting.now.clone().unwrap_or_default(),
        set: setting.right.clone().unwrap_or_default(),
        now: setting.now.clone(),
        outcome: ChangeOutcome::Planned,
        why: Some(setting.why.clone()),
    }
}

fn about(view: &HostView) -> HostAbout {
    HostAbout {
        cpus: view.cpus,
        memory_bytes: Some(view.memory_bytes).filter(|bytes| *bytes > 0),
        devices: view.devices.iter().map(|device| device.name.clone()).collect(),
        ..brief()
    }
}

fn brief() -> HostAbout {
    HostAbout {
        linerate: env!("CARGO_PKG_VERSION").to_owned(),
        kernel: machine::kernel_release().unwrap_or_default(),
        boot_id: machine::boot_id().unwrap_or_default(),
        cpus: read::cpus(),
        ..HostAbout::default()
    }
}
