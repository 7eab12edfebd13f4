//! One thing that is set: what it was, what it is to be, and the way back. A step is a line of the
//! journal.

use std::net::IpAddr;
use std::ops::Deref;

use linerate_core::treatment::{
    DeviceSetting, HostChange, QosPolicy, RouteSetting, TreatmentError, Value, ValueKind,
};
use serde::{Deserialize, Serialize};

use super::device::{DriverFigure, DriverStep, OffloadStep, open_netlink, towards};
use super::error::TreatError;
use super::files::FilesStep;
use super::mtu::MtuStep;
use super::qos::QosStep;
use super::route::RouteStep;
use super::sysctl::SysctlStep;

/// One thing that is set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "object", rename_all = "snake_case")]
pub(super) enum Step {
    /// An offload of a device.
    Offload(OffloadStep),
    /// The MTU of a device.
    Mtu(MtuStep),
    /// The route to the peer.
    Route(RouteStep),
    /// A kernel setting.
    Sysctl(SysctlStep),
    /// The policy of a device.
    Qos(QosStep),
    /// A figure of a device's driver.
    Driver(DriverStep),
    /// Files of `/sys` and `/proc` with one value.
    Files(FilesStep),
}

/// Outcome of a step that was to be undone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Undone {
    /// It is as it was.
    Restored,
    /// Somebody has changed it since: it is left alone.
    NotOurs,
    /// The device, route or namespace of the step is gone.
    Gone,
}

impl Undone {
    /// Of several things: what was restored counts most, what is gone least.
    pub(super) fn or(self, other: Self) -> Self {
        match (self, other) {
            (Self::Restored, _) | (_, Self::Restored) => Self::Restored,
            (Self::NotOurs, _) | (_, Self::NotOurs) => Self::NotOurs,
            (Self::Gone, Self::Gone) => Self::Gone,
        }
    }
}

/// A step that is planned; the host was not looked at yet.
#[derive(Debug, Clone)]
pub(super) enum Planned {
    Device(DeviceSetting, Value),
    Sysctl(String, String),
    Qos(QosPolicy),
    /// All changes of a route are one.
    Route(Vec<(RouteSetting, Value)>),
}

/// The steps in the order in which they can be taken: checksums before the segmentation offload
/// that needs them, the device's MTU before the route's, a driver's adaptation off before the
/// figure that it would adapt.
///
/// # Errors
/// A change is not of the table, or is there twice.
pub(super) fn plan(changes: &[HostChange]) -> Result<Vec<Planned>, TreatError> {
    let mut steps = Vec::new();
    let mut route = Vec::new();
    for (position, change) in changes.iter().enumerate() {
        let value = change.value()?;
        if changes[..position].iter().any(|earlier| is_same(earlier, change)) {
            return Err(TreatmentError::repeated(&change.to_string()).into());
        }
        match change {
            HostChange::Device { setting, .. } => steps.push(Planned::Device(*setting, value)),
            HostChange::Sysctl { key, .. } => {
                steps.push(Planned::Sysctl(key.clone(), value.to_string()));
            }
            HostChange::Route { setting, .. } => route.push((*setting, value)),
            HostChange::Qos(policy) => steps.push(Planned::Qos(policy.clone())),
        }
    }
    steps.sort_by_key(Planned::rank);
    if !route.is_empty() {
        steps.push(Planned::Route(route));
    }
    Ok(steps)
}

fn is_same(one: &HostChange, other: &HostChange) -> bool {
    match (one, other) {
        (HostChange::Device { setting: a, .. }, HostChange::Device { setting: b, .. }) => a == b,
        (HostChange::Route { setting: a, .. }, HostChange::Route { setting: b, .. }) => a == b,
        (HostChange::Sysctl { key: a, .. }, HostChange::Sysctl { key: b, .. }) => a == b,
        (HostChange::Qos(_), HostChange::Qos(_)) => true,
        _ => false,
    }
}

impl Planned {
    fn rank(&self) -> u8 {
        match self {
            Self::Device(
                DeviceSetting::ChecksumOffload | DeviceSetting::Mtu | DeviceSetting::AdaptiveRx,
                _,
            ) => 0,
            Self::Device(..) => 1,
            Self::Sysctl(..) => 2,
            Self::Route(_) => 3,
            // Its classes are for the device as it is then.
            Self::Qos(_) => 4,
        }
    }

    /// Looks at what there is.
    pub(super) fn prepare(&self, peer: IpAddr) -> Result<Step, TreatError> {
        match self {
            Self::Device(DeviceSetting::Mtu, value) => {
                MtuStep::prepare(number(value), peer).map(Step::Mtu)
            }
            Self::Device(DeviceSetting::RxUsecs, value) => {
                driver_step(DriverFigure::RxUsecs, number(value), peer)
            }
            Self::Device(DeviceSetting::AdaptiveRx, value) => {
                let on = *value == Value::Switch(true);
                driver_step(DriverFigure::AdaptiveRx, u32::from(on), peer)
            }
            Self::Device(setting, value) => {
                let on = *value == Value::Switch(true);
                OffloadStep::prepare(*setting, on, peer).map(Step::Offload)
            }
            Self::Sysctl(key, value) => SysctlStep::prepare(key, value).map(Step::Sysctl),
            Self::Route(fields) => RouteStep::prepare(fields, peer).map(Step::Route),
            Self::Qos(policy) => QosStep::prepare(policy.clone(), peer).map(Step::Qos),
        }
    }
}

fn driver_step(figure: DriverFigure, value: u32, peer: IpAddr) -> Result<Step, TreatError> {
    let link = towards(&mut open_netlink()?, peer)?;
    DriverStep::prepare(figure, value, &link).map(Step::Driver)
}

/// The ranges of the table are those of 32 bits.
pub(super) fn number(value: &Value) -> u32 {
    match value {
        Value::Number(number) => u32::try_from(*number).unwrap_or(u32::MAX),
        _ => 0,
    }
}

/// What each step can do.
pub(super) trait Reversible {
    /// False if everything already has the wanted value; then there is nothing to undo either.
    fn changes(&self) -> bool;
    /// Sets it.
    fn set(&self) -> Result<(), TreatError>;
    /// Makes sure that it is in force, and says so.
    fn check(&self) -> Result<String, TreatError>;
    /// Puts back what is still ours.
    fn undo(&self) -> Result<Undone, TreatError>;
    /// Object of the step, such as `tso of eth0`.
    fn what(&self) -> String;
    /// The key in the table of a host's settings, such as `net.ipv4.tcp_sack` or `device.eth0.tso`.
    fn key(&self) -> String {
        self.what()
    }
    /// Before and after, as that table has it.
    fn values(&self) -> (String, String) {
        Default::default()
    }
    /// Present value; none where the object is gone.
    fn found(&self) -> Result<Option<String>, TreatError> {
        Ok(None)
    }
}

impl Deref for Step {
    type Target = dyn Reversible;

    fn deref(&self) -> &Self::Target {
        match self {
            Self::Offload(step) => step,
            Self::Mtu(step) => step,
            Self::Route(step) => step,
            Self::Sysctl(step) => step,
            Self::Qos(step) => step,
            Self::Driver(step) => step,
            Self::Files(step) => step,
        }
    }
}

impl Step {
    /// Whether both are of the same thing.
    pub(super) fn meets(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Offload(a), Self::Offload(b)) => a.meets(b),
            (Self::Mtu(a), Self::Mtu(b)) => a.meets(b),
            (Self::Route(a), Self::Route(b)) => a.peer == b.peer,
            (Self::Sysctl(a), Self::Sysctl(b)) => a.meets(b),
            (Self::Qos(a), Self::Qos(b)) => a.index == b.index,
            (Self::Driver(a), Self::Driver(b)) => a.meets(b),
            (Self::Files(a), Self::Files(b)) => a.key == b.key,
            _ => false,
        }
    }

    /// Whether the whole host has one of it, whichever network namespace asks.
    pub(super) fn is_of_host(&self) -> bool {
        let key = self.key();
        key.starts_with("fs.") || key == "cpu.governor"
    }

    /// Whether segmentation offload depends on it.
    pub(super) fn is_of_checksums(&self) -> bool {
        matches!(self, Self::Offload(step) if step.setting == DeviceSetting::ChecksumOffload)
    }

    /// Whether sysctl.d can have it.
    pub(super) fn is_sysctl(&self) -> bool {
        matches!(self, Self::Sysctl(_))
    }

    /// Takes a later change of the same thing into this one, if they follow on each other.
    pub(super) fn join(&mut self, later: &Self) -> bool {
        match (self, later) {
            (Self::Sysctl(own), Self::Sysctl(later)) => own.join(later),
            (Self::Driver(own), Self::Driver(later))
                if own.meets(later) && own.set == later.was =>
            {
                own.set = later.set;
                true
            }
            _ => false,
        }
    }
}

/// Reads a number or an address that a journal has as text.
pub(super) fn read_number(text: &str) -> Option<u32> {
    let any = ValueKind::Number { least: 0, most: u32::MAX.into(), unit: "" };
    any.read(text).as_ref().ok().map(number)
}
