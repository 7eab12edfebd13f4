//! The compiler from rules to eBPF: a linear chain for few rules, bit vectors in tables for many.

mod output;

pub use output::{CompileError, Counters, Lifetime, MapKind, MapSpec, Program, Reference, Target};

use crate::rules::RuleSet;

/// The program for one adapter.
///
/// # Errors
/// [`CompileError`], if the rules are more than a program can hold.
pub fn compile(rules: &RuleSet, target: &Target) -> Result<Program, CompileError> {
    let _ = (rules, target);
    todo!()
}
