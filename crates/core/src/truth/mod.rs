//! The truth test: paths whose cause is known by construction, and how often the verdict names it.
//!
//! [`draw`] makes [`Scenario`]s from a seed. Each is a path, a test and the setting of its two
//! hosts, chosen so that one limit is clearly the lowest. The limits are computed here, from what
//! is built and with formulas of this module's own: the code under test, [`crate::ceilings`], gives
//! nothing but the names of the causes. Somebody runs them, and [`Score`] counts.
//!
//! | module | what is in it |
//! |---|---|
//! | `conditions` | what is built, and the limit that each part of it sets |
//! | `causes` | for each cause, conditions under which it may be the lowest limit |
//! | `draw` | which of these are clear enough, in which order, with which borders |
//! | `families`, `wild` | what is drawn beside these: what a user can meet |
//! | `scenario` | what is to be run, and whether a verdict on it is right |
//! | `assemble`, `describe` | conditions as a path, a test and two hosts, and in words |
//! | `strangers` | what is right to say of other programs' traffic, from where it was seen |
//! | `score` | right and wrong, with intervals |
//! | `reliability` | whether verdicts are as sure as they are right |
//! | `remedy` | a verdict's remedy, done to its scenario |
//! | `proof` | what remedies brought, against what was predicted |

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
