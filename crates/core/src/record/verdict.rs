//! The ceilings and the verdict that [`crate::ceilings`] finds.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;

use crate::names::names;
use crate::remedy::Remedy;

/// A cause that can hold a transfer back.
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
    /// The sender's buffer is smaller than what the path holds.
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
    /// Nothing: the sender of datagrams kept to the rate it was asked for.
    AsAsked,
    /// None of them fits, or none well enough.
    #[default]
    Unexplained,
}

/// The rate that one cause would allow.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Ceiling {
    /// The cause.
    pub cause: Cause,
    /// Payload bits per second, over all flows of the direction.
    pub limit_bps: f64,
    /// The formula in words and symbols.
    pub formula: String,
    /// The inputs of the formula, each key with its unit.
    pub inputs: BTreeMap<String, f64>,
    /// The kernel's evidence for or against this cause.
    pub evidence: Vec<String>,
    /// False if an input is the measured rate itself: then the ceiling cannot confirm the cause.
    pub independent: bool,
}

/// The cause that holds a run back.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Verdict {
    /// The cause.
    pub cause: Cause,
    /// Confidence: the share (0–1) of such verdicts that are right. Absent for `unexplained`,
    /// and in records of older versions.
    pub confidence: Option<f64>,
    /// The next most likely cause; of `unexplained` the most likely one.
    pub runner_up: Option<RunnerUp>,
    /// Measured rate over this cause's ceiling; absent for `unexplained`.
    pub share_of_ceiling: Option<f64>,
    /// The evidence, in sentences with figures.
    pub evidence: Vec<String>,
    /// The remedy; absent if there is none.
    pub remedy: Option<Remedy>,
    /// The rate that the remedy should bring, payload bits per second: the lowest limit that the
    /// record shows and that stays when the cause is lifted. Absent where none is known well
    /// enough; `evidence` then tells the most that can be reached, if that is known.
    pub predicted_bps: Option<f64>,
    /// The cause that would hold the run back then.
    pub next_cause: Option<Cause>,
}

/// The next most likely cause after the verdict's.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunnerUp {
    /// The cause; `unexplained` if the record has evidence for no other.
    pub cause: Cause,
    /// A further run, whose figures tell whether it is this cause.
    pub tell_apart: Remedy,
}

names! {
    /// The name as pages print it.
    Cause::words: ReceiveWindow "receive window", SendBuffer "send buffer", Congestion "congestion",
        Pacing "pacing", SegmentSize "segment size", PathRate "path rate", Policer "policer",
        ApplicationSend "sending application", ApplicationReceive "receiving application",
        CpuSend "sender's CPU", CpuReceive "receiver's CPU", CpuHost "the host's CPUs",
        QosClass "QoS class", Startup "slow start", AsAsked "as asked", Unexplained "unexplained";
    /// The name as JSON has it.
    Cause::name: ReceiveWindow "receive_window", SendBuffer "send_buffer", Congestion "congestion",
        Pacing "pacing", SegmentSize "segment_size", PathRate "path_rate", Policer "policer",
        ApplicationSend "application_send", ApplicationReceive "application_receive",
        CpuSend "cpu_send", CpuReceive "cpu_receive", CpuHost "cpu_host", QosClass "qos_class",
        Startup "startup", AsAsked "as_asked", Unexplained "unexplained";
}
