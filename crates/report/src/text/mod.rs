//! Documents as a network engineer reads them in a terminal: aligned, legible without colour.
//!
//! A page opens with the answer, at most 24 lines: what was measured, what holds it back, what to
//! do and what that should bring. The evidence follows where [`Style::details`] asks for it.
//!
//! Figures have three significant digits and their unit; what identifies something (MSS, MTU,
//! sizes, counters) is exact. A key that the document does not have is left out, or a dash in a
//! table.
//!
//! A page is a list of blocks ([`Page`]): sentences, labelled facts, lists, commands, tables. What
//! several pages say stands in `parts`, `evidence` and `history`; each other module is the page of
//! one subject.

mod analysis;
mod capacity;
mod check;
mod comparison;
mod connections;
mod evidence;
mod experiment;
mod history;
mod host;
mod lab;
mod live;
mod load;
mod matrix;
mod parts;
mod profile;
mod projection;
mod qos;
mod record;
mod requests;
mod sweep;
mod throughput;
mod trace;

use crate::number;
pub use crate::number::{NBSP, percent, plural, rate};
pub use crate::page::{Cell, Head, Page, Table};
pub use crate::style::{Form, Style};
pub use comparison::pair_line;
pub use connections::{
    CONNECTION_ROWS, ConnectionRow, GroupBy, connection_lines, connection_words, connections_by,
    connections_headline,
};
pub use history::{
    PeriodMedian, SavedRun, Series, SeriesChange, changes, how_sure, period_medians, saved_runs,
    series_change, series_changes,
};
pub use host::treatments;
pub use lab::inhabitant;
pub use live::{Progress, duration, interval_line, progress, step, takes};
pub use matrix::{matrix_pairs, pair_runs};
pub use parts::proofs;
pub use profile::folded;
pub use projection::projections;
pub use qos::{qos_rates, qos_stats};
pub use trace::watch;
