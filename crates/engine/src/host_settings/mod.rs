//! The limits and settings of this host: read and judged, set and kept, put back.
//!
//! What a setting should be is core's ([`linerate_core::host`]); this reads what is there and has
//! the hands that change it. They are those of treatments, with the same journal before each
//! change; but what [`set`] or [`profile`] change stays until [`undo`]. Kernel settings can be kept
//! over a reboot by one file in `/etc/sysctl.d`; nobody else's is touched.
//!
//! `LINERATE_STATE_DIRECTORY` moves the journal from `/var/lib/linerate`,
//! `LINERATE_SYSCTL_DIRECTORY` the file.

use std::collections::BTreeSet;
use std::fs::OpenOptions;
use std::net::IpAddr;
use std::path::PathBuf;

use linerate_core::host::{
    Assignment, ChangeOutcome, DeviceView, HostAbout, HostDocument, HostView, Need, Profile,
    Reading, SettingChange, SettingReport, SettingState, advise, device_key, settings,
};
use linerate_core::treatment::DeviceSetting;
use linerate_sys::ethtool::{DriverSetting, Ethtool};
use linerate_sys::netlink::Link;
use linerate_sys::proc::privilege::{Capability, Privileges};
use linerate_sys::proc::sysctl::{self, SysctlError};
use linerate_sys::proc::{Probe, cpu, machine, privilege};

use crate::host;
use crate::treatment::{
    DriverFigure, FIGURES, FILES, FileSetting, OFFLOADS, SysctlDirectory, TreatError, check_sys,
    existing_kept_directory, figure_words, keep, kept, kept_directory, offload_state, open_netlink,
    summary, undo as undo_kept,
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
    let view = view(scope.peer, &scope.keys)?;
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
    let before = view(scope.peer, &[])?;
    let need = scope.need.with_profile(profile, before.speed_bps());
    let mut document = judged(&before, need, &[])?;
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
    document.settings = judged(&view(scope.peer, &[])?, need, &[])?.settings;
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
        cpus: cpus(),
        ..HostAbout::default()
    }
}

// Reading what there is on this host.

/// The settings and what their right values depend on. `keys` are looked at, too, where the table
/// does not have them.
///
/// # Errors
/// The devices cannot be listed, or one that a key names is not there.
fn view(peer: Option<IpAddr>, keys: &[String]) -> Result<HostView, TreatError> {
    let mut view = HostView {
        kernel: machine::kernel_release().unwrap_or_default(),
        cpus: cpus(),
        memory_bytes: machine::MemoryInfo::read().map_or(0, |memory| memory.total),
        page_bytes: machine::page_bytes(),
        congestion_controls: words_of("net.ipv4.tcp_available_congestion_control"),
        queueing_disciplines: host::disciplines().to_vec(),
        ..HostView::default()
    };
    let table = settings().iter().map(|setting| setting.key);
    let all: BTreeSet<&str> = table.chain(keys.iter().map(String::as_str)).chain(INPUTS).collect();
    for key in all.into_iter().filter(|key| is_sysctl(key)) {
        view.readings.insert(key.to_owned(), kernel_setting(key));
    }
    view.readings.insert("process.nofile".to_owned(), descriptors());
    view.readings.insert("cpu.governor".to_owned(), of_files(FileSetting::Governor));
    let sys = check_sys();
    for link in links(peer, keys)? {
        read(&mut view, &link, &sys);
    }
    Ok(view)
}

/// CPUs that are online.
fn cpus() -> u32 {
    cpu::online().map_or(1, |cpus| cpus.len() as u32)
}

fn is_sysctl(key: &str) -> bool {
    ["net.", "fs."].iter().any(|begin| key.starts_with(begin)) && !key.contains('*')
}

fn words_of(key: &str) -> Vec<String> {
    let text = sysctl::read(key).unwrap_or_default();
    text.split_whitespace().map(str::to_owned).collect()
}

fn kernel_setting(key: &str) -> Reading {
    match sysctl::read(key) {
        Ok(text) => Reading::Value {
            // The kernel writes some with several blanks.
            text: text.split_whitespace().collect::<Vec<_>>().join(" "),
            obstacle: sysctl::check_writable(key).err().map(|error| obstacle(&error)),
        },
        Err(SysctlError::Missing { .. }) if key.starts_with("net.netfilter.") => {
            Reading::Unsupported(
                "connections are not tracked: nf_conntrack is not loaded".to_owned(),
            )
        }
        Err(SysctlError::Missing { .. }) => Reading::Unsupported(
            "this kernel does not have it, or not in this network namespace".to_owned(),
        ),
        Err(error) => Reading::Unknown(crate::words::chain(&error)),
    }
}

fn obstacle(error: &SysctlError) -> String {
    match error {
        SysctlError::ReadOnly { .. } => {
            "it is read-only here: a setting of the whole host, or a container".to_owned()
        }
        SysctlError::NotPermitted { .. } => {
            "not permitted: it needs root, or CAP_NET_ADMIN in the network namespace".to_owned()
        }
        error => crate::words::chain(error),
    }
}

fn descriptors() -> Reading {
    let limit = privilege::descriptor_limit();
    Reading::Value { text: format!("{} {}", limit.soft, limit.hard), obstacle: None }
}

/// The device towards the peer, or those that are up; and those that keys name.
fn links(peer: Option<IpAddr>, keys: &[String]) -> Result<Vec<Link>, TreatError> {
    let mut netlink = open_netlink()?;
    let all = crate::treatment::links(&mut netlink)?;
    let named: BTreeSet<&str> =
        keys.iter().filter_map(|key| Some(device_key(key)?.device)).collect();
    if let Some(missing) = named.iter().find(|name| !all.iter().any(|link| link.name == **name)) {
        let why = "there is no such device in this network namespace";
        return Err(TreatError::unfit(format!("a setting of {missing}"), why));
    }
    let to_peer = match peer {
        Some(peer) => Some(crate::treatment::towards(&mut netlink, peer)?.index),
        None => None,
    };
    let is_looked_at = |link: &Link| match to_peer {
        Some(index) => link.index == index,
        None => link.up && !link.loopback && link.controller.is_none(),
    };
    let mut links: Vec<Link> = all.iter().filter(|link| is_looked_at(link)).cloned().collect();
    links.truncate(MAX_DEVICES);
    for link in all {
        if named.contains(link.name.as_str()) && !links.contains(&link) {
            links.push(link);
        }
    }
    Ok(links)
}

/// Inputs of rules that are no settings of the table.
const INPUTS: [&str; 1] = ["net.ipv4.tcp_no_ssthresh_metrics_save"];
/// A host of containers has hundreds; others are read by their keys.
const MAX_DEVICES: usize = 8;

// The settings of one network device.

/// Adds a device and its settings to the view.
fn read(view: &mut HostView, link: &Link, sys: &Result<(), TreatError>) {
    let device = &link.name;
    let obstacle = no_admin();
    let figures =
        FIGURES.map(|(name, figure)| (name.to_owned(), of_figure(figure, link, &obstacle)));
    let offloads =
        OFFLOADS.map(|setting| (setting.to_string(), of_offload(setting, device, &obstacle)));
    let files = FILES.map(|name| (name.to_owned(), of_name(name, device, sys)));
    for (name, reading) in figures.into_iter().chain(offloads).chain(files) {
        view.readings.insert(format!("device.{device}.{name}"), reading);
    }
    view.devices.push(facts(link, sys.is_ok()));
}

fn of_figure(figure: DriverFigure, link: &Link, obstacle: &Option<String>) -> Reading {
    match figure.read(link) {
        Ok(Some(value)) => {
            Reading::Value { text: figure_words(figure, value), obstacle: obstacle.clone() }
        }
        Ok(None) => Reading::Unsupported(format!("the driver of {} does not have it", link.name)),
        Err(error) => Reading::Unknown(crate::words::chain(&error)),
    }
}

fn of_offload(setting: DeviceSetting, device: &str, obstacle: &Option<String>) -> Reading {
    match offload_state(device, setting) {
        Ok(text) => Reading::Value {
            obstacle: if text.ends_with("(fixed)") {
                Some("the device cannot switch it".to_owned())
            } else {
                obstacle.clone()
            },
            text,
        },
        Err(error) => Reading::Unknown(crate::words::chain(&error)),
    }
}

fn of_name(name: &str, device: &str, sys: &Result<(), TreatError>) -> Reading {
    match (FileSetting::new(device, name), sys) {
        (_, Err(error)) => Reading::Unknown(error.to_string()),
        (setting, Ok(())) => of_files(setting.expect("FILES has the names of files")),
    }
}

fn facts(link: &Link, has_sys: bool) -> DeviceView {
    let driver = Ethtool::open(&link.name).ok();
    let figure = |setting| driver.as_ref()?.driver_setting(setting).ok()?;
    let counts = has_sys.then(|| cpu::queue_counts(&link.name).ok());
    let (rx_queues, tx_queues) = counts.flatten().unwrap_or((1, 1));
    let speed = driver.as_ref().and_then(|driver| driver.speed_mbit().ok()?);
    DeviceView {
        name: link.name.clone(),
        speed_bps: speed.map(|mbit| u64::from(mbit) * 1_000_000),
        // A virtual device has a kind; without /sys that is all that tells.
        is_physical: if has_sys {
            cpu::has_hardware(&link.name)
        } else {
            link.kind.is_none() && !link.loopback
        },
        rx_queues,
        tx_queues,
        rx_ring_max: figure(DriverSetting::RxRingMax),
        tx_ring_max: figure(DriverSetting::TxRingMax),
        adapts: figure(DriverSetting::RxAdaptive).is_some_and(|on| on != 0),
    }
}

/// A setting that is files: one value, or those of all where they differ.
fn of_files(setting: FileSetting<'_>) -> Reading {
    match setting.read() {
        Probe::Supported(values) => Reading::Value {
            text: summary(values.iter().map(|(_, value)| value.as_str())),
            obstacle: not_writable(values.first().map(|(path, _)| path)),
        },
        Probe::Unsupported(why) => Reading::Unsupported(why),
        Probe::Unknown(why) => Reading::Unknown(why),
    }
}

/// It is opened for writing, and nothing is written.
fn not_writable(path: Option<&PathBuf>) -> Option<String> {
    let error = OpenOptions::new().write(true).open(path?).err()?;
    Some(format!("{error}: it needs root of the host itself, not of a container or namespace"))
}

fn no_admin() -> Option<String> {
    let privileges = Privileges::read().ok()?;
    let needs = "not permitted: it needs root, or CAP_NET_ADMIN in the network namespace";
    (!privileges.has(Capability::NetAdmin)).then(|| needs.to_owned())
}

#[cfg(test)]
mod tests;
