//! The counts of a host's policy for the path's device.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;

/// The DiffServ policy of the path's device with the counts of its classes and meters in the
/// measured time. Classes of an HTB that is not linerate's are reported as well, without a policy's
/// name.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct QosEvidence {
    /// The device.
    pub device: String,
    /// Rate of its root class, frames in bits per second.
    pub link_bps: Option<f64>,
    /// Frames sent by it, bytes.
    pub link_bytes: Option<u64>,
    /// A shaper without classes instead of the root class (`tbf`, `cake`).
    pub shaper: Option<QosClass>,
    /// The leaf classes that sent or dropped something, the busiest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub classes: Vec<QosClass>,
    /// The policies that took packets, the busiest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub policies: Vec<QosPolicy>,
}

/// A class of HTB. Bytes are those of frames without preamble, check sequence and gap, as queueing
/// disciplines count.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct QosClass {
    /// `major:minor`, hexadecimal; for a shaper its kind.
    pub class: String,
    /// Its policy; absent for the class of all other packets, and for classes that are not
    /// linerate's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// Guaranteed rate, bits per second.
    pub rate_bps: f64,
    /// Maximum rate, bits per second.
    pub ceil_bps: f64,
    /// Bytes sent.
    pub bytes: u64,
    /// Packets sent, with each segment of an offloaded one.
    pub packets: u64,
    /// Packets dropped because its queue was full.
    pub dropped: u64,
    /// Times that it had to wait, because it had used up its rate and could borrow nothing.
    pub overlimits: u64,
    /// Packets sent from its own rate.
    pub lended: u64,
    /// Packets sent at the rate that others left.
    pub borrowed: u64,
    /// Bytes that waited at the end.
    pub backlog_bytes: u64,
}

/// The counts of a policy.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct QosPolicy {
    /// Its name.
    pub policy: String,
    /// Packets that it took, including those that it dropped.
    pub packets: u64,
    /// Their bytes on the wire.
    pub bytes: u64,
    /// Packets dropped by it or its meter.
    pub dropped_packets: u64,
    /// Their bytes.
    pub dropped_bytes: u64,
    /// Long-run rate above which its meter drops, frames in bits per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drops_above_bps: Option<f64>,
}
