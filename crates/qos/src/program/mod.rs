//! The compiler from rules to eBPF: a linear chain for few rules, bit vectors in tables for many.
//!
//! ```text
//! link ─▶ network ─▶ transport ─▶ chain or tables ─▶ action ─▶ meter, counters, DSCP, VLAN tag, class
//! ```
//!
//! The code is specific to its rules: a field that no rule tests is not read, and a family without
//! rules continues at once. The same rules give the same program.

mod action;
mod assembler;
mod chain;
mod frame;
mod generator;
mod link;
mod meter;
mod network;
mod output;
mod tables;
mod transport;

pub use output::{Lifetime, MapKind, MapSpec, Program, Reference, Target};

use crate::packet::LinkType;
use crate::policy::Family;
use crate::rules::{MAX_RULES, RuleError, RuleSet};

use generator::Generator;
use tables::Tables;

/// The program for one adapter.
///
/// # Errors
/// [`RuleError`], if the rules are more than a program can hold, or ask for what the link does
/// not have.
pub fn compile(rules: &RuleSet, target: &Target) -> Result<Program, RuleError> {
    generate(rules, target, false)
}

/// The same program for tests: it also reports in `cb` what it did (the number of the rule from 1,
/// and for the VLAN tag beside the bytes whether there is one, its TCI, and its EtherType in
/// network order), and takes the time of its meters from there (nanoseconds, the lower half in
/// `cb[3]`).
///
/// # Errors
/// As for [`compile`].
pub fn compile_observed(rules: &RuleSet, target: &Target) -> Result<Program, RuleError> {
    generate(rules, target, true)
}

fn generate(rules: &RuleSet, target: &Target, observed: bool) -> Result<Program, RuleError> {
    for family in Family::ALL {
        let rules = rules.family(family).len();
        if rules > MAX_RULES {
            let most = MAX_RULES;
            return Err(RuleError::TooManyRules { rules, most });
        }
    }
    let with_tag = (rules.actions.iter()).find(|action| action.vlan_priority.is_some());
    if let (LinkType::RawIp, Some(action)) = (target.link, with_tag) {
        let policy = action.policy.clone();
        return Err(RuleError::NoVlan { policy });
    }
    let tables = Tables::new(rules)?;
    Ok(Generator::new(rules, target, tables, observed).program())
}
