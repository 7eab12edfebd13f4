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
//! | `term` | the terms |
//! | `linear` | least squares, non-negative least squares, collinearity |
//! | `fit` | the model, with intervals by resampling |
//! | `what_if` | the table of what-ifs |
//! | `state` | the runs of the design; what a change does to the counts |
//! | `project` | CPU time, throughput and ceiling under a change; what a profile adds |
//! | `document` | what a document has of it |

mod design;
mod document;
mod error;
mod fit;
mod linear;
mod observation;
mod project;
mod state;
mod term;
#[cfg(test)]
mod tests;
mod what_if;

pub use design::{
    ETHERNET_MTU, Point, check_transport, design_of, in_random_order, points, points_on,
};
pub use document::{
    Basis, End, ProjectedEnd, Projection, Proof, Proved, Unprojected, median_cpu_error_percent,
    median_error_percent,
};
pub use error::NotProjected;
pub use fit::{CostModel, EndModel, TermCost, fit};
pub use observation::{EndWork, Observation};
pub use project::{Known, LayerShares, project, project_all};
pub use state::{Designed, LeftOut};
pub use term::{PerTerm, Term};
pub use what_if::{Change, Provable, WhatIf, what_ifs, what_ifs_of};
