//! The layers that CPU time is sorted into.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A layer. A soft interrupt is none: it is a mark on the work of any of them.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Layer {
    /// Entering and leaving the kernel, file descriptors, the socket's own code and locks.
    Socket,
    /// Bytes moved between the application's memory and the kernel's.
    Copy,
    /// Packet buffers and their pages, made and freed.
    PacketMemory,
    /// Large packets cut (GSO) and joined (GRO).
    Offload,
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// IPv4 and IPv6, routes, neighbours.
    Ip,
    /// Checksums computed by the CPU.
    Checksum,
    /// Queueing disciplines, classifiers, packet filters, eBPF programs.
    Queueing,
    /// Devices and their drivers, loopback and veth among them.
    Driver,
    /// Scheduling, waking, sleeping, timers.
    Scheduling,
    /// User code.
    Application,
    /// Idle CPU time.
    Idle,
    /// No rule of the table knows the call chain.
    Unattributed,
}

impl Layer {
    /// All layers, in the order in which they are printed.
    pub const ALL: [Self; 14] = [
        Self::Application,
        Self::Socket,
        Self::Copy,
        Self::PacketMemory,
        Self::Tcp,
        Self::Udp,
        Self::Ip,
        Self::Checksum,
        Self::Offload,
        Self::Queueing,
        Self::Driver,
        Self::Scheduling,
        Self::Unattributed,
        Self::Idle,
    ];
}
