//! What the policy of a host did to what left by the path's device.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;

/// The DiffServ policy of the path's device, and what its classes and meters did in the measured
/// time. Classes of somebody else's HTB are told in the same way, without a policy's name.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct QosEvidence {
    /// The device.
    pub device: String,
    /// What its root class lets through, frames in bits per second.
    pub link_bps: Option<f64>,
    /// Frames that left by it, bytes.
    pub link_bytes: Option<u64>,
    /// A shaper without classes in the place of the root class (`tbf`, `cake`).
    pub shaper: Option<QosClass>,
    /// The classes without others below them that sent or dropped something, the busiest first.
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
    /// `major:minor`, hexadecimal; of a shaper its kind.
    pub class: String,
    /// Its policy; absent for the class of all other packets, and where the classes are not
    /// linerate's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// What it has for sure, bits per second.
    pub rate_bps: f64,
    /// What it never exceeds, bits per second.
    pub ceil_bps: f64,
    /// Sent, bytes.
    pub bytes: u64,
    /// Sent, packets; segments of an offloaded one each.
    pub packets: u64,
    /// Dropped, because its queue was full.
    pub dropped: u64,
    /// Times that it had to wait, because it had used up its rate and could borrow nothing.
    pub overlimits: u64,
    /// Packets sent from its own rate.
    pub lended: u64,
    /// Packets sent from what others left.
    pub borrowed: u64,
    /// Waiting at the end, bytes.
    pub backlog_bytes: u64,
}

/// What a policy counted.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct QosPolicy {
    /// Its name.
    pub policy: String,
    /// Packets that it took, those that it dropped among them.
    pub packets: u64,
    /// Their bytes on the wire.
    pub bytes: u64,
    /// Packets that its meter, or it, dropped.
    pub dropped_packets: u64,
    /// Their bytes.
    pub dropped_bytes: u64,
    /// Long-run rate above which its meter drops, frames in bits per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drops_above_bps: Option<f64>,
}
