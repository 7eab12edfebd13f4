//! A checked assignment as something that the hands of treatments can set.

use linerate_core::host::{Assignment, DeviceKey, device_key};
use linerate_core::treatment::{DeviceSetting, Value};

use crate::treatment::{FIGURES, FileSetting, TreatError, Wanted};

/// What to set.
///
/// # Errors
/// A device has no such setting.
pub(super) fn wanted(assignment: &Assignment) -> Result<Wanted<'_>, TreatError> {
    let key = assignment.key();
    if key == "cpu.governor" {
        return Ok(Wanted::Files {
            key,
            setting: FileSetting::Governor,
            value: assignment.text(),
        });
    }
    match device_key(key) {
        Some(own) => of_device(assignment, own),
        None => Ok(Wanted::Sysctl {
            key,
            value: assignment.text(),
        }),
    }
}

fn of_device<'a>(assignment: &'a Assignment, own: DeviceKey<'a>) -> Result<Wanted<'a>, TreatError> {
    let (key, device) = (assignment.key(), own.device);
    if let Some(setting) = offload(own.name) {
        let on = *assignment.value() == Value::Switch(true);
        return Ok(Wanted::Offload {
            device,
            setting,
            on,
        });
    }
    if let Some((_, figure)) = FIGURES.into_iter().find(|(name, _)| *name == own.name) {
        let value = match assignment.value() {
            Value::Switch(on) => u32::from(*on),
            Value::Number(number) => u32::try_from(*number).unwrap_or(u32::MAX),
            _ => 0,
        };
        return Ok(Wanted::Figure {
            device,
            figure,
            value,
        });
    }
    let setting = files(device, own.name);
    let setting =
        setting.ok_or_else(|| TreatError::unfit(key, "there is no such setting of a device"))?;
    Ok(Wanted::Files {
        key,
        setting,
        value: assignment.text(),
    })
}

/// The offload of that name.
pub(super) fn offload(name: &str) -> Option<DeviceSetting> {
    OFFLOADS
        .into_iter()
        .find(|setting| setting.to_string() == name)
}

/// The files of that name.
pub(super) fn files<'a>(device: &'a str, name: &str) -> Option<FileSetting<'a>> {
    match name {
        "rps_cpus" => Some(FileSetting::Receive(device)),
        "xps_cpus" => Some(FileSetting::Transmit(device)),
        "irq_cpus" => Some(FileSetting::Interrupts(device)),
        _ => None,
    }
}

/// Those of the table.
pub(super) const OFFLOADS: [DeviceSetting; 4] = [
    DeviceSetting::ChecksumOffload,
    DeviceSetting::Tso,
    DeviceSetting::Gso,
    DeviceSetting::Gro,
];

/// Names of settings that are files.
pub(super) const FILES: [&str; 3] = ["rps_cpus", "xps_cpus", "irq_cpus"];
