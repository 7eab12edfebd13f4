//! What there is on a host, as the engine reads it.

use std::collections::BTreeMap;

/// A host's settings, and what their right values depend on.
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
    /// By key, those of devices with the device's name in it.
    pub readings: BTreeMap<String, Reading>,
    /// Devices whose settings were read.
    pub devices: Vec<DeviceView>,
}

/// A setting as it was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reading {
    /// It is there.
    Value {
        /// As the kernel has it, one blank between numbers.
        text: String,
        /// Why it cannot be changed here, if it cannot.
        obstacle: Option<String>,
    },
    /// The host, this namespace or the device does not have it: what is missing.
    Unsupported(String),
    /// It may be there: what kept it from being read.
    Unknown(String),
}

/// A device's facts that right values depend on.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DeviceView {
    /// Its name.
    pub name: String,
    /// Bits per second, where it says.
    pub speed_bps: Option<u64>,
    /// It has hardware, or a hypervisor's, behind it: it is no veth, bridge or tunnel.
    pub is_physical: bool,
    /// Queues that packets come in by.
    pub rx_queues: u32,
    /// Queues that packets leave by.
    pub tx_queues: u32,
    /// The most descriptors of a receive ring.
    pub rx_ring_max: Option<u32>,
    /// The most descriptors of a transmit ring.
    pub tx_ring_max: Option<u32>,
    /// The driver adapts how long it holds interrupts back.
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
