//! The document of a run.
//!
//! Field names are the contract with scripts and notebooks: adding is free, renaming is a new
//! version of the schema. Every key carries its unit. A key is absent if the workload, the protocol
//! or the kernel has no such figure; unknown figures are never zero.

mod baseline;
mod document;
mod environment;
mod evidence;
mod leg;
mod proof;

pub use crate::units::{Caveat, CaveatKind, CaveatRemedy};
pub use baseline::{
    Baseline, BottleneckChange, Change, Observed, Significance, asked, is_cost, message_sizes,
};
pub use document::{
    CHECK_SCHEMA, Cause, Ceiling, Check, FlowRecord, HiddenFault, Interval, PathFacts, PathTrain,
    RECORD_SCHEMA, Record, RunnerUp, SWEEP_SCHEMA, SizeFigure, Status, Sweep, Tool, Verdict,
    median_run,
};
pub use environment::{
    CpuFacts, DeviceFacts, Environment, HostFacts, LabDirection, LabFacts, LabLink,
};
pub use evidence::{
    CpuQuota, CpuSeconds, EndReport, GapSummary, QosClass, QosEvidence, QosPolicy, SenderEvidence,
    SocketMemory, TcpEvidence, TcpReceiver, TcpSample, TcpSender, UdpEvidence,
};
pub use leg::{Leg, StepRates};
pub use proof::{ChangeResult, NotMade, Proof, ProofDoubt, ProofLevel, RuledOut};
