//! A host's current settings and resources, as the engine reads them.

use std::collections::BTreeMap;

/// A host's settings, and the facts on which their recommended values depend.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct HostView {
    /// The kernel's release.
    pub kernel: String,
    /// CPUs that are online.
    pub cpus: u32,
    /// Memory, bytes; 0 where it is not known.
    pub memory_bytes: u64,
    /// Bytes of a page of memory: what `tcp_mem` counts.
    pub page_bytes: u64,
    /// Congestion controls that the kernel has loaded.
    pub congestion_controls: Vec<String>,
    /// Queueing disciplines that the kernel is known to have.
    pub queueing_disciplines: Vec<String>,
    /// The settings by key; a device's key contains its name.
    pub readings: BTreeMap<String, Reading>,
    /// Devices whose settings were read.
    pub devices: Vec<DeviceView>,
}

/// The reading of a setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reading {
    /// The setting exists, with this value.
    Value {
        /// The kernel's text, with one blank between numbers.
        text: String,
        /// Why it cannot be changed here, if it cannot.
        obstacle: Option<String>,
    },
    /// The host, this namespace or the device does not have it: what is missing.
    Unsupported(String),
    /// The setting could not be read, for this reason.
    Unknown(String),
}

/// The facts of a device on which recommended values depend.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DeviceView {
    /// Its name.
    pub name: String,
    /// Speed, bits per second, if the device reports it.
    pub speed_bps: Option<u64>,
    /// It has hardware, or a hypervisor's, behind it: it is no veth, bridge or tunnel.
    pub is_physical: bool,
    /// Number of receive queues.
    pub rx_queues: u32,
    /// Number of transmit queues.
    pub tx_queues: u32,
    /// Largest receive ring, descriptors.
    pub rx_ring_max: Option<u32>,
    /// Largest transmit ring, descriptors.
    pub tx_ring_max: Option<u32>,
    /// Whether the driver adapts its interrupt coalescing.
    pub adapts: bool,
}

impl HostView {
    /// The fastest device's speed, bits per second.
    pub fn speed_bps(&self) -> Option<u64> {
        let physical = self.devices.iter().filter(|device| device.is_physical);
        physical.filter_map(|device| device.speed_bps).max()
    }

    pub(super) fn device(&self, name: &str) -> Option<&DeviceView> {
        self.devices.iter().find(|device| device.name == name)
    }

    /// The value of another setting.
    pub(super) fn text(&self, key: &str) -> Option<&str> {
        match self.readings.get(key)? {
            Reading::Value { text, .. } => Some(text),
            _ => None,
        }
    }
}
