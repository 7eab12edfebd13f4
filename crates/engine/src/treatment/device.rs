//! Offloads of the device that leads to the peer.

use std::net::IpAddr;

use linerate_core::treatment::DeviceSetting;
use linerate_sys::CallError;
use linerate_sys::errno::ENODEV;
use linerate_sys::ethtool::{Ethtool, Feature, Offload};
use linerate_sys::netlink::{Link, Netlink, NetlinkError, Route};
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
