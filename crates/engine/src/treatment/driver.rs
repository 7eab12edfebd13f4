//! Figures of a device that only its owner sets: rings, held-back interrupts, the length of its
//! queue.

use linerate_sys::errno::EINVAL;
use linerate_sys::ethtool::{DriverSetting, Ethtool};
use linerate_sys::netlink::{Link, LinkChange};
use serde::{Deserialize, Serialize};

use super::device::{by_index, open_netlink};
use super::error::TreatError;
use super::step::{Reversible, Undone};

/// Which figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum DriverFigure {
    RxRing,
    TxRing,
    RxUsecs,
    TxUsecs,
    RxFrames,
    AdaptiveRx,
    #[serde(rename = "txqueuelen")]
    QueueLength,
}

/// Settings of a driver, by the names that they have in keys.
pub(crate) const FIGURES: [(&str, DriverFigure); 7] = [
    ("rx_ring", DriverFigure::RxRing),
    ("tx_ring", DriverFigure::TxRing),
    ("rx_usecs", DriverFigure::RxUsecs),
    ("tx_usecs", DriverFigure::TxUsecs),
    ("rx_frames", DriverFigure::RxFrames),
    ("adaptive_rx", DriverFigure::AdaptiveRx),
    ("txqueuelen", DriverFigure::QueueLength),
];

impl DriverFigure {
    fn name(self) -> &'static str {
        let named = FIGURES.iter().find(|(_, figure)| *figure == self);
        named.map_or("", |(name, _)| name)
    }

    /// None of what is not the driver's but the link's own.
    fn of_driver(self) -> Option<DriverSetting> {
        Some(match self {
            Self::RxRing => DriverSetting::RxRing,
            Self::TxRing => DriverSetting::TxRing,
            Self::RxUsecs => DriverSetting::RxMicroseconds,
            Self::TxUsecs => DriverSetting::TxMicroseconds,
            Self::RxFrames => DriverSetting::RxFrames,
            Self::AdaptiveRx => DriverSetting::RxAdaptive,
            Self::QueueLength => return None,
        })
    }

    /// What the device has; none if it has no such thing.
    ///
    /// # Errors
    /// The device is gone.
    pub(crate) fn read(self, link: &Link) -> Result<Option<u32>, TreatError> {
        let Some(setting) = self.of_driver() else {
            return Ok(Some(link.tx_queue_length));
        };
        let figure = Ethtool::open(&link.name).and_then(|driver| driver.driver_setting(setting));
        figure.map_err(|error| {
            TreatError::kernel(format!("read {} of {}", self.name(), link.name), error)
        })
    }
}

/// As the table of settings has it.
pub(crate) fn figure_words(figure: DriverFigure, value: u32) -> String {
    match (figure, value) {
        (DriverFigure::AdaptiveRx, 0) => "off".to_owned(),
        (DriverFigure::AdaptiveRx, _) => "on".to_owned(),
        _ => value.to_string(),
    }
}

/// A figure that is set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct DriverStep {
    index: u32,
    pub(super) device: String,
    pub(super) figure: DriverFigure,
    pub(super) was: u32,
    pub(super) set: u32,
}

impl DriverStep {
    pub(super) fn prepare(
        figure: DriverFigure,
        value: u32,
        link: &Link,
    ) -> Result<Self, TreatError> {
        let found = figure.read(link)?;
        let was = found.ok_or_else(|| {
            let what = format!("{} of {}", figure.name(), link.name);
            TreatError::unfit(what, "the driver does not have it")
        })?;
        Ok(Self { index: link.index, device: link.name.clone(), figure, was, set: value })
    }

    fn not_taken(&self, found: Option<u32>) -> TreatError {
        let what = format!("{}={}", self.key(), self.set);
        let found = found.map(|found| found.to_string());
        TreatError::not_taken(what, found, "the driver rounds it, or somebody else sets it")
    }

    fn put(&self, device: &str, value: u32) -> Result<(), TreatError> {
        match self.figure.of_driver() {
            None => open_netlink()?
                .change_link(device, &LinkChange::TxQueueLength(value))
                .map_err(|error| TreatError::set(self.what(), error)),
            Some(setting) => Ethtool::open(device)
                .and_then(|driver| driver.set_driver_setting(setting, value))
                .map_err(|error| match error.errno() {
                    Some(EINVAL) => {
                        TreatError::unfit(self.what(), format!("the driver does not take {value}"))
                    }
                    _ => TreatError::set(self.what(), error),
                }),
        }
    }

    /// None if the device is gone.
    fn now(&self) -> Result<Option<u32>, TreatError> {
        match by_index(&mut open_netlink()?, self.index)? {
            Some(link) => self.figure.read(&link),
            None => Ok(None),
        }
    }

    pub(super) fn meets(&self, other: &Self) -> bool {
        self.index == other.index && self.figure == other.figure
    }
}

impl Reversible for DriverStep {
    fn changes(&self) -> bool {
        self.was != self.set
    }

    fn set(&self) -> Result<(), TreatError> {
        self.put(&self.device, self.set)?;
        let found = self.now()?;
        if found == Some(self.set) {
            return Ok(());
        }
        // What the driver made of it is not what the journal says is ours.
        self.put(&self.device, self.was)?;
        Err(self.not_taken(found))
    }

    fn check(&self) -> Result<String, TreatError> {
        let found = self.now()?;
        if found != Some(self.set) {
            return Err(self.not_taken(found));
        }
        let name = self.figure.name();
        Ok(format!("{}: {name} {}", self.device, self.set))
    }

    fn undo(&self) -> Result<Undone, TreatError> {
        let Some(link) = by_index(&mut open_netlink()?, self.index)? else {
            return Ok(Undone::Gone);
        };
        match self.figure.read(&link)? {
            None => Ok(Undone::Gone),
            Some(found) if found != self.set => Ok(Undone::NotOurs),
            Some(_) => {
                self.put(&link.name, self.was)?;
                Ok(Undone::Restored)
            }
        }
    }

    fn what(&self) -> String {
        format!("{} of {}", self.figure.name(), self.device)
    }

    fn key(&self) -> String {
        format!("device.{}.{}", self.device, self.figure.name())
    }

    fn values(&self) -> (String, String) {
        let words = |value| figure_words(self.figure, value);
        (words(self.was), words(self.set))
    }

    fn found(&self) -> Result<Option<String>, TreatError> {
        let now = self.now()?;
        Ok(now.map(|value| figure_words(self.figure, value)))
    }
}
