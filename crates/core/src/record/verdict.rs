//! What each cause would let through, and which one holds a run back: as [`crate::ceilings`] finds
//! it.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;

use crate::remedy::Remedy;

/// What can hold a transfer back.
#[derive(
    Debug,
    Clone,
    Copy,
    Default,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// The receiver's window is smaller than what the path holds.
    ReceiveWindow,
    /// The sender's buffer is.
    SendBuffer,
    /// Loss, or the congestion control's response to it.
    Congestion,
    /// A pacing rate set on the socket or route.
    Pacing,
    /// Per-packet cost, or packet rate times segment size.
    SegmentSize,
    /// The slowest link.
    PathRate,
    /// A token bucket that drops instead of queueing.
    Policer,
    /// The sending application writes no faster.
    ApplicationSend,
    /// The receiving application reads no faster.
    ApplicationReceive,
    /// The sender's CPU.
    CpuSend,
    /// The receiver's CPU.
    CpuReceive,
    /// All CPUs that the test may use, threads, soft interrupts and what the hypervisor takes
    /// together.
    CpuHost,
    /// A class of this host's own DiffServ policy.
    QosClass,
    /// The transfer ended before slow start did.
    Startup,
    /// Nothing: the sender of datagrams kept to the rate asked of it.
    AsAsked,
    /// None of them fits, or none well enough.
    #[default]
    Unexplained,
}

/// The most that one cause would let through.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Ceiling {
    /// The cause.
    pub cause: Cause,
    /// Payload bits per second, over all flows of the direction.
    pub limit_bps: f64,
    /// The formula in words and symbols.
    pub formula: String,
    /// What went into it, each key with its unit.
    pub inputs: BTreeMap<String, f64>,
    /// What the kernel says that makes this cause more or less likely.
    pub evidence: Vec<String>,
    /// False where an input is the measured rate itself: then it cannot confirm.
    pub independent: bool,
}

/// What holds the run back.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Verdict {
    /// The cause.
    pub cause: Cause,
    /// How sure that is: the share (0–1) of such verdicts that are right. Absent for `unexplained`,
    /// and in records of older versions.
    pub confidence: Option<f64>,
    /// What it would be if it is not this; of `unexplained` what comes nearest.
    pub runner_up: Option<RunnerUp>,
    /// Measured rate over this cause's ceiling; absent for `unexplained`.
    pub share_of_ceiling: Option<f64>,
    /// Why this cause, in sentences with figures.
    pub evidence: Vec<String>,
    /// What to do; absent where nothing can be done.
    pub remedy: Option<Remedy>,
    /// What that should bring, payload bits per second: the lowest limit of those that the record
    /// shows and that last when the cause is lifted. Absent where none is known well enough;
    /// `evidence` then tells the most that can come, if that is known.
    pub predicted_bps: Option<f64>,
    /// What would hold the run back then.
    pub next_cause: Option<Cause>,
}

/// The cause that comes after the verdict's.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunnerUp {
    /// The cause; `unexplained` where the record speaks for no other.
    pub cause: Cause,
    /// The run to make next: its figures tell whether it is this cause.
    pub tell_apart: Remedy,
}

impl Cause {
    /// As on a page.
    pub fn words(self) -> &'static str {
        match self {
            Self::ReceiveWindow => "receive window",
            Self::SendBuffer => "send buffer",
            Self::Congestion => "congestion",
            Self::Pacing => "pacing",
            Self::SegmentSize => "segment size",
            Self::PathRate => "path rate",
            Self::Policer => "policer",
            Self::ApplicationSend => "sending application",
            Self::ApplicationReceive => "receiving application",
            Self::CpuSend => "sender's CPU",
            Self::CpuReceive => "receiver's CPU",
            Self::CpuHost => "the host's CPUs",
            Self::QosClass => "QoS class",
            Self::Startup => "slow start",
            Self::AsAsked => "as asked",
            Self::Unexplained => "unexplained",
        }
    }

    /// As in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::ReceiveWindow => "receive_window",
            Self::SendBuffer => "send_buffer",
            Self::Congestion => "congestion",
            Self::Pacing => "pacing",
            Self::SegmentSize => "segment_size",
            Self::PathRate => "path_rate",
            Self::Policer => "policer",
            Self::ApplicationSend => "application_send",
            Self::ApplicationReceive => "application_receive",
            Self::CpuSend => "cpu_send",
            Self::CpuReceive => "cpu_receive",
            Self::CpuHost => "cpu_host",
            Self::QosClass => "qos_class",
            Self::Startup => "startup",
            Self::AsAsked => "as_asked",
            Self::Unexplained => "unexplained",
        }
    }
}
