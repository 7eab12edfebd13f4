//! The truth test: how often the verdict names the cause of runs whose cause is known by
//! construction.
//!
//! [`draw`] makes [`Scenario`]s from a seed. Each is a path, a test and the settings of its two
//! hosts, chosen so that one limit is clearly the lowest. The limits are computed here from the
//! conditions, with formulas of this module's own: the code under test, [`crate::ceilings`], gives
//! nothing but the names of the causes. The engine runs the scenarios, and [`Score`] counts.
//!
//! | module | what is in it |
//! |---|---|
//! | `conditions` | the conditions of a scenario, and the limit that each of them sets |
//! | `causes` | for each cause, conditions under which it may be the lowest limit |
//! | `draw` | which conditions are clear enough for a scenario of the old family |
//! | `families`, `wild` | the families; those that resemble what users meet |
//! | `scenario` | what is to be run, and which verdicts on it are right |
//! | `assemble`, `describe` | conditions as a path, a test and two hosts, and in words |
//! | `strangers` | which verdicts on other programs' traffic are right, by where it was seen |
//! | `score` | the counts, with intervals |
//! | `reliability` | the confidence of verdicts against the share that is right |
//! | `remedy` | a verdict's remedy, applied to its scenario |
//! | `proof` | the effect of remedies, compared with the predictions |

mod assemble;
mod causes;
mod conditions;
mod describe;
mod draw;
mod families;
mod proof;
mod reliability;
mod remedy;
mod scenario;
mod score;
mod strangers;
mod wild;

#[cfg(test)]
mod tests;

pub use draw::{BORDER, CAUSES, CLEAR};
pub use families::{OLD, ScenarioFamily, draw, families, family};
pub use proof::{Proof, Remedied, RemedyScore, Untried, UntriedReason};
pub use reliability::{Bin, Reliability};
pub use remedy::treated;
pub use scenario::{
    CpuShare, HostSetup, OtherTraffic, Program, Scenario, Shaper, Steps, Surroundings,
};
pub use score::{Answer, FamilyScore, Judgement, Score, TRUTH_SCHEMA, Tally, Trial};
pub use strangers::{STRANGERS, SeenFrom};
