//! `history medians`: the medians of each hour or day, also of runs that were deleted.

use linerate_history::{Rollup, RollupFilter};
use linerate_report::csv;
use linerate_report::text::{self, PeriodMedian};

use super::{kept, unusable};
use crate::args::MediansArgs;
use crate::failure::Failure;
use crate::output;

/// Prints a line for each hour or day of each series.
///
/// # Errors
/// The history cannot be read.
pub(super) fn execute(args: &MediansArgs) -> Result<(), Failure> {
    let history = kept(args.place.db.as_ref())?;
    let filter = RollupFilter {
        period: args.by.into(),
        series: args.series.clone(),
        metric: args.metric.clone(),
        since: args.since.clone(),
    };
    let rollups = history.rollups(&filter).map_err(unusable)?;
    if args.csv {
        return output::print(&csv::table(COLUMNS.into_iter(), rollups.iter().map(cells)));
    }
    if rollups.is_empty() {
        output::note("the history has no such figure");
    }
    let rows = rollups.iter().map(|it| PeriodMedian {
        series: &it.series,
        metric: &it.metric,
        begins: &it.begins,
        runs: it.runs,
        figures: [it.min, it.median, it.max],
    });
    output::print(&text::period_medians(&rows.collect::<Vec<_>>(), output::style()))
}

const COLUMNS: [&str; 7] = ["series", "metric", "begins", "runs", "min", "median", "max"];

fn cells(it: &Rollup) -> Vec<String> {
    vec![
        it.series.clone(),
        it.metric.clone(),
        it.begins.clone(),
        it.runs.to_string(),
        it.min.to_string(),
        it.median.to_string(),
        it.max.to_string(),
    ]
}
