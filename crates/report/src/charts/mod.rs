//! Selects the charts of a document: from its figures to [`Chart`](crate::svg::Chart)s, which are
//! drawn elsewhere.
//!
//! | module | what is in it |
//! |---|---|
//! | `runs` | records, sweeps, checks, mixes, connections: over time, ceilings, round trips |
//! | `rest` | hops, populations, layers, experiments, meshes, comparisons, runs over the days |

mod rest;
mod runs;

pub use rest::PastRun;
pub(crate) use rest::{
    capacity, comparison, experiment, matrix, profile, throughput, time_line, trace,
};
pub(crate) use runs::{check, connections, load, record, sweep};

use linerate_core::ceilings::Ceiling;
use linerate_core::stats::Figure;

use crate::svg::{Fill, Unit};

/// The colour of a bar; the one that the page is about stands out.
fn fill(is_accent: bool) -> Fill {
    if is_accent { Fill::Accent } else { Fill::Plain }
}

/// The lowest ceiling of each cause, of those that `counts` accepts.
pub(crate) fn lowest(ceilings: &[Ceiling], counts: impl Fn(&Ceiling) -> bool) -> Vec<&Ceiling> {
    let mut lowest: Vec<&Ceiling> = Vec::new();
    for ceiling in ceilings.iter().filter(|ceiling| counts(ceiling)) {
        if lowest.iter().all(|known| known.cause != ceiling.cause) {
            lowest.push(ceiling);
        }
    }
    lowest
}

/// The unit of a metric, by its name.
fn unit_of(metric: &str) -> Unit {
    let ends = |end: &str| metric.split('.').any(|part| part.ends_with(end));
    match metric {
        _ if ends("_bps") => Unit::Rate,
        _ if ends("_us") => Unit::Micros,
        _ if ends("_s") && !ends("per_s") => Unit::Seconds,
        _ if ends("_bytes") => Unit::Bytes,
        _ if ends("_percent") => Unit::Percent,
        _ => Unit::Count,
    }
}

/// One value of a figure with its interval: of several modes the largest group, of a drift its end.
fn middle(figure: &Figure) -> Option<(f64, Option<[f64; 2]>)> {
    match figure {
        Figure::One(one) if one.n > 1 => Some((one.median, Some([one.low, one.high]))),
        Figure::One(one) => Some((one.median, None)),
        Figure::Modes { modes } => {
            let largest = modes.iter().max_by_key(|mode| mode.n)?;
            let ends = [modes.first()?.min, modes.last()?.max];
            Some((largest.median, Some(ends)))
        }
        Figure::Drift { from, to, .. } => Some((*to, Some([from.min(*to), from.max(*to)]))),
    }
}
