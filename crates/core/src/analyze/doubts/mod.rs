//! What is doubtful in figures themselves, whatever the statistics say.

mod base;
mod settings;
mod shared;

pub(super) use base::other_base;
pub(super) use settings::{confounded, mixed, not_interleaved};
pub(super) use shared::shared_figures;

/// Doubts of one kind that are named; the rest is counted.
const MAX_NAMED: usize = 5;

#[cfg(test)]
mod tests;
