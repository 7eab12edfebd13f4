//! Projections: the effect of a change, computed from measured costs.
//!
//! CPU time of an end = Σ over the terms of count × cost: calls, packets, large packets sent and
//! received, bytes, bytes copied and checksummed, acknowledgements, soft interrupts ([`Term`]). The
//! costs come from a [design](points) of short runs, each of which moves some terms and not others,
//! by least squares without negative costs ([`fit`]); terms that the runs cannot tell apart are
//! named. A [what-if](what_ifs) changes counts; what that does to CPU time at each end, to the
//! throughput and to the ceiling that then holds is a [`Projection`], beside which the engine puts
//! what came of it when it was done ([`Proof`]).
//!
//! | module | what is in it |
//! |---|---|
//! | `design` | the points of the design |
//! | `observation` | a run's record as counts and CPU time |
//! | `state` | the terms; the runs of the design; what a change does to the counts |
//! | `fit` | the model, by least squares, with intervals by resampling |
//! | `what_if` | the table of what-ifs |
//! | `project` | CPU time, throughput and ceiling under a change; what a profile adds |

mod design;
mod fit;
mod observation;
mod project;
mod state;
#[cfg(test)]
mod tests;
mod what_if;

pub use design::{
    ETHERNET_MTU, Point, check_transport, design_of, in_random_order, points, points_on,
};

pub use fit::{CostModel, EndModel, TermCost, fit};
pub use observation::{EndWork, Observation};
pub use project::{Known, LayerShares, project, project_all};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;
pub use state::{Designed, LeftOut, PerTerm, Term};
use thiserror::Error;
pub use what_if::{Change, Provable, WhatIf, what_ifs, what_ifs_of};

use crate::ceilings::Cause;
use crate::compare::ComparisonVerdict;
use crate::plan::Protocol;
use crate::stats::Summary;
use crate::units::words;

/// The projected effect of one change.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Projection {
    /// The change, by its name in the table.
    pub what_if: String,
    /// What would be changed, in words.
    pub says: String,
    /// Point of the design that it starts from: `base` is the test as it was asked for, `ethernet`
    /// and what begins so have an MTU of 1500 on a path that has another, `records` are datagrams
    /// of 4096 bytes in fragments.
    pub from: String,
    /// The basis of the projection.
    pub basis: Basis,
    /// Present throughput, payload bits per second.
    pub throughput_now_bps: f64,
    /// Throughput with the change, payload bits per second.
    pub throughput_bps: f64,
    /// Its interval at 95 %, payload bits per second.
    pub throughput_interval_bps: [f64; 2],
    /// What the ends take: the sender and the receiver, or both together where they have one
    /// kernel.
    pub ends: Vec<ProjectedEnd>,
    /// The cause that would then limit the transfer.
    pub ceiling: Cause,
    /// Doubts about the projection.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub doubts: Vec<String>,
    /// Why it is not proved here; absent where it is, or where it was not tried.
    pub not_proved: Option<String>,
    /// The measured effect, where the change was applied.
    pub proof: Option<Proof>,
}

/// A change that is not projected.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Unprojected {
    /// The change, by its name in the table.
    pub what_if: String,
    /// What would be changed, in words.
    pub says: String,
    /// Why it is not projected.
    pub why: String,
}

impl Unprojected {
    /// An entry of the table that is not projected.
    pub fn new(what_if: &WhatIf, why: &str) -> Self {
        Self {
            what_if: what_if.name.to_owned(),
            says: what_if.says.to_owned(),
            why: why.to_owned(),
        }
    }

    /// All changes of a transport, for one reason.
    pub fn all_of(protocol: Protocol, why: &str) -> Vec<Self> {
        let what_ifs = what_ifs_of(protocol);
        what_ifs.map(|what_if| Self::new(what_if, why)).collect()
    }
}

/// CPU time of one end for each KiB of payload that arrives.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ProjectedEnd {
    /// The end.
    pub end: End,
    /// At present, µs/KiB.
    pub now_us_per_kib: f64,
    /// With the change, µs/KiB.
    pub then_us_per_kib: f64,
    /// Its interval at 95 %, µs/KiB.
    pub interval_us_per_kib: [f64; 2],
}

impl ProjectedEnd {
    /// The figure with the change divided by the present one.
    pub fn ratio(&self) -> f64 {
        self.then_us_per_kib / self.now_us_per_kib
    }
}

/// The end whose CPU time is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// The sender's.
    Sender,
    /// The receiver's.
    Receiver,
    /// That of both: on one kernel soft interrupts run in whichever thread was there, and a run's
    /// CPU time is now the one's and now the other's.
    Both,
}

// As in the document.
words! {
    End name { "sender" Sender, "receiver" Receiver, "both" Both }
}

/// The basis of a projection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Basis {
    /// Costs fitted to other settings: the change itself was never run.
    Model,
    /// Runs of the design with the change itself, or at another message size.
    Design,
    /// The profile's share of the layer, since the design does not tell its cost.
    Layers,
    /// An assumption that no measurement supports.
    Assumed,
}

/// A change as it was projected and as it was measured, by a paired comparison.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Proof {
    /// The side without the change.
    pub a: String,
    /// The side with it.
    pub b: String,
    /// Pairs of runs that count.
    pub pairs: u32,
    /// Whether throughput differs.
    pub verdict: ComparisonVerdict,
    /// Throughput.
    pub throughput: Proved,
    /// CPU time for each byte that arrives, of the ends in the order of the projection's.
    pub cpu: Vec<Proved>,
}

/// The ratio of a figure with the change to that without it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Proved {
    /// The projected ratio.
    pub projected_ratio: f64,
    /// As measured: of throughput the Hodges–Lehmann estimate over the pairs, of CPU time their
    /// median.
    pub measured_ratio: f64,
    /// Interval of the measured ratio, at 95 % or the confidence that few pairs allow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured_interval: Option<[f64; 2]>,
    /// Error of the projection, percent of the measurement.
    pub error_percent: f64,
}

impl Proved {
    /// A projection beside its measurement.
    pub fn new(
        projected_ratio: f64,
        measured_ratio: f64,
        measured_interval: Option<[f64; 2]>,
    ) -> Self {
        Self {
            projected_ratio,
            measured_ratio,
            measured_interval,
            error_percent: 100.0 * (projected_ratio / measured_ratio - 1.0),
        }
    }
}

/// The median of the sizes of the errors of throughput, percent; `None` where nothing was proved.
pub fn median_error_percent(projections: &[Projection]) -> Option<f64> {
    let proofs = projections.iter().flat_map(|one| &one.proof);
    median(proofs.map(|proof| proof.throughput.error_percent.abs()))
}

/// Median error of projected CPU time per byte over all ends.
pub fn median_cpu_error_percent(projections: &[Projection]) -> Option<f64> {
    let proofs = projections.iter().flat_map(|one| &one.proof);
    let ends = proofs.flat_map(|proof| &proof.cpu);
    median(ends.map(|cpu| cpu.error_percent.abs()))
}

fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let values: Vec<f64> = values.collect();
    Some(Summary::new(&values).ok()?.median())
}

/// Why a run says nothing, a model cannot be fitted, or a change is not projected.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{why}")]
pub struct NotProjected {
    why: String,
    remedy: &'static str,
}

impl NotProjected {
    /// A reason without a remedy.
    pub fn new(why: impl Into<String>) -> Self {
        Self { why: why.into(), remedy: "" }
    }

    /// The reason, with its remedy.
    fn or(self, remedy: &'static str) -> Self {
        Self { remedy, ..self }
    }

    /// A figure that an older endpoint does not report, or that a test of this kind does not have.
    fn lacks(what: &str) -> Self {
        Self::new(format!("the run has no {what}"))
            .or("use the same version of linerate at both ends")
    }

    /// `None` if the path carried packets of the size that was asked for, bytes.
    fn unless_mtu(found: u32, asked: u32) -> Result<(), Self> {
        if found == asked {
            return Ok(());
        }
        let why = format!("the path carries packets of {found} bytes, not {asked}");
        Err(Self::new(why))
    }

    /// The remedy; empty where none is known.
    pub fn remedy(&self) -> &'static str {
        self.remedy
    }
}
