//! A checked assignment as something that the hands of treatments can set.

use linerate_core::host::{Assignment, device_key};
use linerate_core::treatment::{DeviceSetting, Value};

use super::device;
use crate::treatment::{FIGURES, FileSetting, TreatError, Wanted};

/// What to set.
///
/// # Errors
/// Files of `/sys` are those of another network namespace.
pub(super) fn wanted(assignment: &Assignment) -> Result<Wanted<'_>, TreatError> {
    let key = assignment.key();
    if key == "cpu.governor" {
        return Ok(Wanted::Files {
            key,
            setting: FileSetting::Governor,
            value: assignment.text(),
        });
    }
    let Some(own) = device_key(key) else {
        return Ok(Wanted::Sysctl {
            key,
            value: assignment.text(),
        });
    };
    let device = own.device;
    if let Some(setting) = offload(own.name) {
        let on = *assignment.value() == Value::Switch(true);
        return Ok(Wanted::Offload {
            device,
            setting,
            on,
        });
    }
    if let Some((_, figure)) = FIGURES.iter().find(|(name, _)| *name == own.name) {
        let value = match assignment.value() {
            Value::Switch(on) => u32::from(*on),
            Value::Number(number) => u32::try_from(*number).unwrap_or(u32::MAX),
            _ => 0,
        };
        return Ok(Wanted::Figure {
            device,
            figure: *figure,
            value,
        });
    }
    let Some(setting) = files(device, own.name) else {
        return Err(TreatError::unfit(
            key,
            "there is no such setting of a device",
        ));
    };
    device::check_sys()?;
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
