//! Settings of the device that leads to the peer: its offloads, and figures that only its owner
//! sets.

use std::net::IpAddr;

use linerate_core::treatment::DeviceSetting;
use linerate_sys::CallError;
use linerate_sys::errno::{EINVAL, ENODEV};
use linerate_sys::ethtool::{DriverSetting, Ethtool, Feature, Offload};
use linerate_sys::netlink::{Link, LinkChange, Netlink, NetlinkError, Route};
use serde::{Deserialize, Serialize};

use super::error::TreatError;
use super::step::{Reversible, Undone};

/// The device that a packet to the peer leaves by.
pub(crate) fn towards(netlink: &mut Netlink, peer: IpAddr) -> Result<Link, TreatError> {
    let operation = || format!("find the device that leads to {peer}");
    let route = netlink.route_to(peer).map_err(|error| TreatError::kernel(operation(), error))?;
    let index = route
        .link
        .ok_or_else(|| TreatError::unfit("a device", format!("no route leads to {peer}")))?;
    netlink.link_by_index(index).map_err(|error| TreatError::kernel(operation(), error))
}

pub(crate) fn open_netlink() -> Result<Netlink, TreatError> {
    Netlink::open().map_err(|error| TreatError::kernel("ask for links and routes", error))
}

/// All devices of the network namespace.
pub(crate) fn links(netlink: &mut Netlink) -> Result<Vec<Link>, TreatError> {
    let links = netlink.links();
    links.map_err(|error| TreatError::kernel("list the devices", error))
}

pub(super) fn routes(netlink: &mut Netlink) -> Result<Vec<Route>, TreatError> {
    let routes = netlink.routes();
    routes.map_err(|error| TreatError::kernel("read the routes", error))
}

/// The device of that name, of which `what` is to be set.
pub(super) fn named(what: &str, device: &str) -> Result<Link, TreatError> {
    let link = open_netlink()?.link(device);
    link.map_err(|_| TreatError::unfit(what, "there is no such device in this network namespace"))
}

/// The device with that index, whatever it is called by now; none if it is gone.
pub(super) fn by_index(netlink: &mut Netlink, index: u32) -> Result<Option<Link>, TreatError> {
    match netlink.link_by_index(index) {
        Ok(link) => Ok(Some(link)),
        Err(error) if error.errno() == Some(ENODEV) => Ok(None),
        Err(error) => Err(TreatError::kernel(format!("read device {index}"), error)),
    }
}

/// An offload of a device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct OffloadStep {
    index: u32,
    device: String,
    pub(super) setting: DeviceSetting,
    on: bool,
    /// The kernel's names of the features that are asked for now and were not, or the other way
    /// round.
    features: Vec<String>,
}

impl OffloadStep {
    pub(super) fn prepare(
        setting: DeviceSetting,
        on: bool,
        peer: IpAddr,
    ) -> Result<Self, TreatError> {
        Self::prepare_on(setting, on, towards(&mut open_netlink()?, peer)?)
    }

    /// Prepares the change on a device that is named.
    pub(super) fn prepare_on(
        setting: DeviceSetting,
        on: bool,
        device: Link,
    ) -> Result<Self, TreatError> {
        if device.loopback && setting == DeviceSetting::Gro {
            // drivers/net/loopback.c: what is sent is received by netif_rx, past napi_gro_receive.
            let why = format!(
                "it does nothing on {}, which hands packets on as large as they were sent; compare \
                 it over a network card, or with --lab",
                device.name
            );
            return Err(TreatError::unfit("gro", why));
        }
        let ethtool = open(&device.name)?;
        let mut features = Vec::new();
        for offload in offloads(setting) {
            let all = read(&ethtool, &device.name, *offload)?;
            let mut free = all.into_iter().filter(|feature| !feature.fixed).peekable();
            // If the main feature is on, the rare ones beside it are not asked for.
            if on && free.peek().is_some_and(|main| main.requested) {
                continue;
            }
            let other = free.filter(|feature| feature.requested != on);
            features.extend(other.map(|feature| feature.name));
        }
        Ok(Self { index: device.index, device: device.name, setting, on, features })
    }

    fn ask(&self, ethtool: &Ethtool, names: &[String], on: bool) -> Result<(), TreatError> {
        let changes: Vec<_> = names.iter().map(|name| (name.as_str(), on)).collect();
        ask(ethtool, &changes, self.what())
    }

    pub(super) fn meets(&self, other: &Self) -> bool {
        self.index == other.index && self.setting == other.setting
    }
}

impl Reversible for OffloadStep {
    fn changes(&self) -> bool {
        !self.features.is_empty()
    }

    fn set(&self) -> Result<(), TreatError> {
        let ethtool = open(&self.device)?;
        self.ask(&ethtool, &self.features, self.on)
    }

    /// The first offload decides. The others, such as verifying received checksums, are those that
    /// devices often cannot switch: then the state is said.
    fn check(&self) -> Result<String, TreatError> {
        let ethtool = open(&self.device)?;
        let mut states = Vec::new();
        for (position, offload) in offloads(self.setting).iter().enumerate() {
            let features = read(&ethtool, &self.device, *offload)?;
            let is_on = is_on(&features, self.on);
            let can_switch = features.iter().any(|feature| !feature.fixed);
            if is_on != self.on && (position == 0 || can_switch) {
                return Err(TreatError::not_taken(
                    format!("{}={}", self.setting, word(self.on)),
                    format!("{} on {}", word(is_on), self.device),
                    "the device cannot switch it, or another offload that it needs is off",
                ));
            }
            let fixed = if can_switch { "" } else { " (fixed)" };
            states.push(format!("{} {}{fixed}", label(*offload), word(is_on)));
        }
        Ok(format!("{}: {}", self.device, states.join(", ")))
    }

    fn undo(&self) -> Result<Undone, TreatError> {
        let Some(link) = by_index(&mut open_netlink()?, self.index)? else {
            return Ok(Undone::Gone);
        };
        let ethtool = open(&link.name)?;
        let now = ethtool.features().map_err(|error| device_error(&link.name, error))?;
        let is_ours = |name: &&String| {
            now.iter().any(|feature| feature.name == **name && feature.requested == self.on)
        };
        let ours: Vec<String> = self.features.iter().filter(is_ours).cloned().collect();
        if ours.is_empty() {
            return Ok(Undone::NotOurs);
        }
        self.ask(&ethtool, &ours, !self.on)?;
        Ok(Undone::Restored)
    }

    fn what(&self) -> String {
        format!("{} of {}", self.setting, self.device)
    }

    fn key(&self) -> String {
        format!("device.{}.{}", self.device, self.setting)
    }

    fn values(&self) -> (String, String) {
        let was = word(self.on != self.changes());
        (was.to_owned(), word(self.on).to_owned())
    }

    fn found(&self) -> Result<Option<String>, TreatError> {
        let Some(link) = by_index(&mut open_netlink()?, self.index)? else {
            return Ok(None);
        };
        offload_state(&link.name, self.setting).map(Some)
    }
}

/// `on` or `off`, with `(fixed)` where the device cannot switch it.
pub(crate) fn offload_state(device: &str, setting: DeviceSetting) -> Result<String, TreatError> {
    let ethtool = open(device)?;
    let Some(offload) = offloads(setting).first() else {
        return Err(TreatError::unfit(setting, "it is no offload"));
    };
    let features = read(&ethtool, device, *offload)?;
    let can_switch = features.iter().any(|feature| !feature.fixed);
    let state = word(is_on(&features, true));
    Ok(if can_switch { state.to_owned() } else { format!("{state} (fixed)") })
}

/// Whether a device is asked to merge received segments by itself (LRO).
pub(super) fn merges(device: &str) -> Result<bool, TreatError> {
    let features = read(&open(device)?, device, Offload::LargeReceive)?;
    Ok(features.iter().any(|lro| !lro.fixed && lro.requested))
}

/// Asks it to, whether it can just now or not.
pub(super) fn merge(device: &str) -> Result<(), TreatError> {
    let names = Offload::LargeReceive.features().iter();
    let changes: Vec<_> = names.map(|name| (*name, true)).collect();
    ask(&open(device)?, &changes, format!("lro of {device}"))
}

fn ask(ethtool: &Ethtool, changes: &[(&str, bool)], what: String) -> Result<(), TreatError> {
    let answer = ethtool.set_features(changes).map(drop);
    answer.map_err(|error| TreatError::set(what, error))
}

fn open(device: &str) -> Result<Ethtool, TreatError> {
    Ethtool::open(device).map_err(|error| device_error(device, error))
}

fn read(ethtool: &Ethtool, device: &str, offload: Offload) -> Result<Vec<Feature>, TreatError> {
    ethtool.offload(offload).map_err(|error| device_error(device, error))
}

fn device_error(device: &str, error: CallError) -> TreatError {
    TreatError::kernel(format!("read the offloads of {device}"), error)
}

/// Whether an offload is on. It is if its first switchable feature is, which is the one that the
/// kernel uses; it is off only if all its features are.
fn is_on(features: &[Feature], wanted: bool) -> bool {
    let main = features.iter().find(|feature| !feature.fixed);
    match main {
        Some(main) if wanted => main.active,
        _ => features.iter().any(|feature| feature.active),
    }
}

/// The offloads that the table of a host's settings has.
pub(crate) const OFFLOADS: [DeviceSetting; 4] =
    [DeviceSetting::ChecksumOffload, DeviceSetting::Tso, DeviceSetting::Gso, DeviceSetting::Gro];

/// The offload that decides, and those that go with it where the device can switch them.
fn offloads(setting: DeviceSetting) -> &'static [Offload] {
    match setting {
        DeviceSetting::ChecksumOffload => &[Offload::TxChecksum, Offload::RxChecksum],
        DeviceSetting::Tso => &[Offload::TcpSegmentation],
        DeviceSetting::Uso => &[Offload::UdpSegmentation],
        DeviceSetting::Gso => &[Offload::GenericSegmentation],
        DeviceSetting::Gro => &[Offload::GenericReceive],
        DeviceSetting::Mtu | DeviceSetting::RxUsecs | DeviceSetting::AdaptiveRx => &[],
    }
}

fn label(offload: Offload) -> &'static str {
    match offload {
        Offload::TxChecksum => "tx-checksum",
        Offload::RxChecksum => "rx-checksum",
        Offload::ScatterGather => "sg",
        Offload::TcpSegmentation => "tso",
        Offload::UdpSegmentation => "uso",
        Offload::GenericSegmentation => "gso",
        Offload::GenericReceive => "gro",
        Offload::LargeReceive => "lro",
    }
}

fn word(on: bool) -> &'static str {
    if on { "on" } else { "off" }
}

/// A route or link that is not there any more.
pub(super) fn is_gone(error: &NetlinkError) -> bool {
    matches!(error.errno(), Some(ENODEV | linerate_sys::errno::ESRCH))
}

// Figures that only the device's owner sets: rings, held-back interrupts, the length of its queue.

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
