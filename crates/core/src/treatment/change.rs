//! One change of a host: what travels to an endpoint, and what the engine applies.

use std::fmt;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::error::TreatmentError;
use super::sysctl;
use super::table::{Setting, entry_of};
use crate::value::{MAX_POLICY_BYTES, QosPolicy, Value};

/// A setting of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeviceSetting {
    /// Checksum offload for sent packets, and for received ones where the device has it.
    ChecksumOffload,
    /// Segmentation of TCP data by the device.
    Tso,
    /// Segmentation of UDP data by the device.
    Uso,
    /// Segmentation by the stack.
    Gso,
    /// Merging of received segments by the stack.
    Gro,
    /// The largest IP packet.
    Mtu,
    /// The delay of a received packet's interrupt.
    RxUsecs,
    /// Whether the driver adapts that delay to the load.
    AdaptiveRx,
}

/// A setting of the route to the peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RouteSetting {
    /// The largest IP packet.
    Mtu,
    /// The MSS to advertise.
    Advmss,
    /// Acknowledging every segment at once.
    Quickack,
    /// The source address.
    Source,
}

/// One change of a host; it travels on the wire and stands in the journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "scope", rename_all = "snake_case")]
pub enum HostChange {
    /// A setting of the device that leads to the peer.
    Device {
        /// The setting.
        setting: DeviceSetting,
        /// `on`, `off` or a number.
        value: String,
    },
    /// A setting of the route to the peer.
    Route {
        /// The setting.
        setting: RouteSetting,
        /// `on`, `off`, a number or an address.
        value: String,
    },
    /// A kernel setting.
    Sysctl {
        /// Its key, as sysctl(8) writes it.
        key: String,
        /// The value as the kernel writes it.
        value: String,
    },
    /// The DiffServ policy of the device that leads to the peer.
    Qos(QosPolicy),
}

impl HostChange {
    /// Checks that the table has the setting and accepts the value. An endpoint calls this for
    /// changes that a client asks for.
    ///
    /// # Errors
    /// The key is not in the table; the value is of another kind or out of range.
    pub fn check(&self) -> Result<(), TreatmentError> {
        self.value().map(drop)
    }

    /// The parsed value.
    ///
    /// # Errors
    /// As [`HostChange::check`].
    pub fn value(&self) -> Result<Value, TreatmentError> {
        let (setting, text) = match self {
            Self::Sysctl { key, value } => return sysctl::read(key, value),
            Self::Device { setting, value } => (Setting::Device(*setting), value),
            Self::Route { setting, value } => (Setting::Route(*setting), value),
            Self::Qos(policy) => return complete(policy),
        };
        entry_of(setting).read(text)
    }
}

impl fmt::Display for HostChange {
    /// In the notation of a treatment: `tso=off`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Device { setting, value } => write!(f, "{setting}={value}"),
            Self::Route { setting, value } => write!(f, "{setting}={value}"),
            Self::Sysctl { key, value } => write!(f, "sysctl:{key}={value}"),
            Self::Qos(policy) => write!(f, "{}={policy}", entry_of(Setting::Qos).name),
        }
    }
}

impl fmt::Display for DeviceSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(entry_of(Setting::Device(*self)).name)
    }
}

impl fmt::Display for RouteSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(entry_of(Setting::Route(*self)).name)
    }
}

fn complete(policy: &QosPolicy) -> Result<Value, TreatmentError> {
    if policy.is_complete() {
        Ok(Value::Policy(policy.clone()))
    } else {
        let wanted = format!("a policy's file that was read, of 1 to {MAX_POLICY_BYTES} bytes");
        let name = entry_of(Setting::Qos).name;
        Err(TreatmentError::value(name, &policy.to_string(), wanted))
    }
}

/// The address of a [`RouteSetting::Source`], if the change is one.
pub(super) fn source_of(change: &HostChange) -> Option<IpAddr> {
    match change {
        HostChange::Route { setting: RouteSetting::Source, value } => value.parse().ok(),
        _ => None,
    }
}
