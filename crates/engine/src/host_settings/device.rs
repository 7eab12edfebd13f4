//! The settings of one network device.

use std::fs::OpenOptions;
use std::path::PathBuf;

use linerate_core::host::{DeviceView, HostView, Reading};
use linerate_core::treatment::DeviceSetting;
use linerate_sys::ethtool::{DriverSetting, Ethtool};
use linerate_sys::netlink::Link;
use linerate_sys::proc::privilege::{Capability, Privileges};
use linerate_sys::proc::{Probe, steering};

use crate::treatment::{
    DriverFigure, FIGURES, FILES, FileSetting, OFFLOADS, TreatError, figure_words, offload_state,
    summary,
};

/// Adds a device and its settings to the view.
pub(super) fn read(view: &mut HostView, link: &Link, sys: &Result<(), TreatError>) {
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
    let counts = has_sys.then(|| steering::queue_counts(&link.name).ok());
    let (rx_queues, tx_queues) = counts.flatten().unwrap_or((1, 1));
    let speed = driver.as_ref().and_then(|driver| driver.speed_mbit().ok()?);
    DeviceView {
        name: link.name.clone(),
        speed_bps: speed.map(|mbit| u64::from(mbit) * 1_000_000),
        // A virtual device has a kind; without /sys that is all that tells.
        is_physical: if has_sys {
            steering::has_hardware(&link.name)
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
pub(super) fn of_files(setting: FileSetting<'_>) -> Reading {
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
