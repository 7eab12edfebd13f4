//! Documents as a network engineer reads them in a terminal: aligned, legible without colour.
//!
//! A page opens with the answer, at most 24 lines: what was measured, what holds it back, what to do
//! and what that should bring. The evidence follows where [`Style::details`] asks for it.
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
mod host;
mod lab;
mod live;
mod number;
mod page;
mod profile;
mod projection;
mod qos;
mod qos_cost;
mod record;
mod sweep;
mod table;
mod trace;
mod treatments;
mod truth;

pub use comparison::pair_line;
pub use connections::{
    ConnectionRow, GroupBy, connection_lines, connection_words, connections_by,
    connections_headline,
};
pub use lab::inhabitant;
pub use live::{Progress, duration, interval_line, progress, step, takes};
pub use profile::folded;
pub(crate) use profile::layer_name;
pub use projection::projections;
pub use qos::{qos_rates, qos_stats};
pub use trace::watch;
pub use treatments::treatments;

/// What the terminal can show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Style {
    /// Columns of the terminal. Below 40 it is taken as 40; commands to copy are never broken.
    pub width: usize,
    /// Emphasise by ANSI escape sequences.
    pub colour: bool,
    /// The evidence after the answer: all there is.
    pub details: bool,
}

impl Style {
    /// Columns to fill; narrower text would be broken at each word.
    fn columns(self) -> usize {
        self.width.max(40)
    }
}

impl Default for Style {
    /// The answer in 80 columns without colour: for pipes and files.
    fn default() -> Self {
        Self {
            width: 80,
            colour: false,
            details: false,
        }
    }
}
