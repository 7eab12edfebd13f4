//! What limits the worth of a record's figures, with the way to better ones.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What kind of doubt it is; scripts match on this.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CaveatKind {
    /// Both ends run on one kernel: host-wide figures count both.
    SharedKernel,
    /// linerate itself is what limits the rate.
    LinerateLimited,
    /// The receiver discarded the bytes unread.
    Discarded,
    /// The run ended before its time: signal, peer lost, error.
    Partial,
    /// Too few runs for an interval at 95 %.
    FewRuns,
    /// The runs do not scatter around one figure.
    NotOneFigure,
    /// A setting did not take as asked.
    SettingNotTaken,
    /// A figure could not be read on this host.
    NotReadable,
    /// Something else used the host's CPUs, or the hypervisor took them.
    BusyHost,
    /// The clock is not fit for the times measured.
    Clock,
    /// Fewer requests were sent than the open loop intended.
    RateNotReached,
    /// The segments are small for the interface they leave by.
    SmallSegments,
    /// The warm-up or the run was too short for what it measures.
    TooShort,
    /// Datagrams were dropped by a socket buffer, not by the path.
    SocketDrops,
    /// Datagrams arrived that fit no sequence: corrupted or forged.
    Malformed,
    /// Data arrived other than it was sent.
    Corrupted,
    /// The path is emulated or is this host's loopback.
    LocalPath,
    /// Connections of `crr` were refused, reset, timed out or found no local port.
    ConnectionsFailed,
    /// Idle CPUs were kept awake; host-wide CPU figures mean nothing.
    IdleSpinners,
    /// The emulator of the path fell behind, or lost packets by its own fault.
    EmulatorOverload,
    /// A comparison ended as soon as there was an answer, which overstates the effect.
    EarlyStop,
    /// Pairs of a comparison were left out for a fault.
    ExcludedPairs,
    /// The other end is another tool: what its host has seen is not known.
    OtherTool,
    /// A kind that this version does not know.
    #[serde(other)]
    Other,
}

/// One doubt: what, why, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Caveat {
    /// For scripts.
    pub kind: CaveatKind,
    /// For people: the cause, with its figures.
    pub message: String,
    /// What would mend it; empty if nothing does.
    pub remedy: String,
}

impl Caveat {
    /// A caveat with its text.
    pub fn new(kind: CaveatKind, message: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            remedy: remedy.into(),
        }
    }
}
