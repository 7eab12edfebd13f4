//! From typed options to a [`Plan`]. The options go into a [`Draft`], which knows defaults, ranges
//! and contradictions. Nothing is sent, looked up or opened here.

use anyhow::anyhow;
use linerate_core::plan::{Draft, Plan, Repeats, Test, Workload};

use crate::args::{Choice, RepeatOptions, TestOptions};
use crate::typed;

pub(crate) use linerate_engine::fresh_seed;

/// The plan of a workload: a test for each size.
///
/// # Errors
/// The first contradiction, or the first figure that is out of range.
pub(crate) fn plan<C: Choice>(
    workload: Workload,
    options: &TestOptions<C>,
    repeats: &RepeatOptions,
) -> anyhow::Result<Plan> {
    let drafts = options.drafts(workload)?.into_iter();
    let tests = drafts.map(|draft| resolve(draft, repeats.random.seed));
    Ok(Plan { tests: tests.collect::<anyhow::Result<_>>()?, repeats: how_often(repeats) })
}

/// The test of a draft. Errors name the options as they were typed.
pub(crate) fn resolve(draft: Draft, seed: u64) -> anyhow::Result<Test> {
    let resolved = draft.resolve(seed);
    resolved.map_err(|error| anyhow!(error.named(typed::option)))
}

fn how_often(options: &RepeatOptions) -> Repeats {
    match options.precision {
        Some(precision) => Repeats::Precision(precision),
        None => Repeats::Times(options.repeat.unwrap_or(1)),
    }
}

#[cfg(test)]
pub(crate) mod tests;
