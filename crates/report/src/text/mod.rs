//! Documents as a network engineer reads them in a terminal: aligned, legible without colour.
//!
//! A page opens with the answer, at most 24 lines: what was measured, what holds it back, what to
//! do and what that should bring. The evidence follows where [`Style::details`] asks for it.
//!
//! Figures have three significant digits and their unit; what identifies something (MSS, MTU,
//! sizes, counters) is exact. A key that the document does not have is left out, or a dash in a
//! table.

mod analysis;
mod baseline;
mod capacity;
mod ceilings;
mod check;
mod comparison;
mod connection;
mod connections;
mod evidence;
mod experiment;
mod figure;
mod history;
mod host;
mod lab;
mod live;
mod load;
mod matrix;
mod page;
mod profile;
mod projection;
mod qos;
mod qos_cost;
mod record;
mod render;
mod sweep;
mod table;
mod trace;
mod treatments;
mod truth;

use crate::number;
pub use crate::style::{Form, Style};
pub use baseline::how_sure;
pub use comparison::pair_line;
pub use connections::{
    CONNECTION_ROWS, ConnectionRow, GroupBy, connection_lines, connection_words, connections_by,
    connections_headline,
};
pub(crate) use history::begun;
pub use history::{
    PeriodMedian, SavedRun, Series, SeriesChange, changes, period_medians, saved_runs,
    series_change, series_changes,
};
pub use lab::inhabitant;
pub use live::{Progress, duration, interval_line, progress, step, takes};
pub use matrix::{matrix_pairs, pair_runs};
pub use page::Page;
pub use profile::folded;
pub use projection::projections;
pub use qos::{qos_rates, qos_stats};
pub use table::{Cell, Head, Table};
pub use trace::watch;
pub use treatments::treatments;
