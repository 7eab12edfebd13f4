//! Recognizes the quantity of a column by the names that tools and reports use.

use std::collections::BTreeMap;

use super::error::{AnalyzeError, hint};
use super::table::{Column, Table};
use crate::units::suggestion;

/// A quantity that ceilings, or the doubts about a table, are computed from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Quantity {
    Throughput,
    Window,
    Rtt,
    Mss,
    Loss,
    Pacing,
    PathRate,
    Congestion,
    Elapsed,
    Streams,
}

/// A column that holds a quantity, and the scale of its unit.
#[derive(Debug, Clone, Copy)]
pub(super) struct Measure {
    pub(super) column: Column,
    pub(super) scale: f64,
}

/// The columns of a table whose quantity is known.
#[derive(Debug, Default)]
pub(super) struct Columns(BTreeMap<Quantity, Measure>);

impl Columns {
    /// By the table's own names, after the pairs of a known name and the table's name for it that a
    /// user gives.
    ///
    /// # Errors
    /// A pair of which one name is not known.
    pub(super) fn new(table: &Table, given: &[(String, String)]) -> Result<Self, AnalyzeError> {
        let mut columns = Self::default();
        for (name, own) in given {
            let known = KNOWN.iter().find(|(_, known, _)| known == name).ok_or_else(|| {
                let hint = quantity_hint(name);
                AnalyzeError::new(format!("`{name}` is no quantity that a column can be; {hint}"))
            })?;
            columns.insert(*known, table.column(own)?);
        }
        for known in KNOWN {
            if let Some(column) = table.find(known.1) {
                columns.insert(known, column);
            }
        }
        Ok(columns)
    }

    /// The first column of a quantity is the one that is used.
    fn insert(&mut self, (quantity, _, scale): Known, column: Column) {
        let measure = Measure { column, scale };
        self.0.entry(quantity).or_insert(measure);
    }

    pub(super) fn measure(&self, quantity: Quantity) -> Option<Measure> {
        self.0.get(&quantity).copied()
    }

    /// The figure of a row in the unit of the quantity.
    pub(super) fn figure(
        &self,
        table: &Table,
        row: usize,
        quantity: Quantity,
    ) -> Result<Option<f64>, AnalyzeError> {
        let Some(measure) = self.measure(quantity) else {
            return Ok(None);
        };
        let figure = table.number(row, measure.column)?;
        Ok(figure.map(|value| value * measure.scale))
    }
}

/// The known name that looks like `name`, or else one name of each quantity.
fn quantity_hint(name: &str) -> String {
    suggestion(name, KNOWN.map(|known| known.1)).unwrap_or_else(|| {
        let of_quantities = KNOWN.chunk_by(|one, next| one.0 == next.0);
        hint(name, of_quantities.map(|names| names[0].1))
    })
}

/// What a column holds, a name that it may have, and its unit in bit/s, bytes, seconds or shares
/// (0–1).
type Known = (Quantity, &'static str, f64);

/// The names, of each quantity the more exact first. The first of a quantity is how `--column` is
/// to be explained.
const KNOWN: [Known; 44] = {
    use Quantity::*;
    [
        (Throughput, "throughput_bps", 1.0),
        (Throughput, "throughput_mbit_per_s", 1e6),
        (Throughput, "mbit_per_s", 1e6),
        (Throughput, "kbyte_per_s", 8e3),
        (Throughput, "throughput_gbit_per_s", 1e9),
        (Window, "window_bytes", 1.0),
        (Window, "receive_window_bytes", 1.0),
        (Window, "tcp.send_window_bytes", 1.0),
        (Window, "end.streams.0.sender.max_snd_wnd", 1.0),
        (Rtt, "rtt_us", 1e-6),
        (Rtt, "rtt_ms", 1e-3),
        (Rtt, "rtt_s", 1.0),
        (Rtt, "tcp.rtt_mean_us", 1e-6),
        (Rtt, "end.streams.0.sender.mean_rtt", 1e-6),
        (Mss, "mss_bytes", 1.0),
        (Mss, "mss", 1.0),
        (Mss, "tcp.mss_bytes", 1.0),
        (Mss, "start.tcp_mss", 1.0),
        (Mss, "start.tcp_mss_default", 1.0),
        (Loss, "loss_percent", 1e-2),
        (Loss, "loss", 1.0),
        (Loss, "loss_ratio", 1.0),
        (Pacing, "pacing_bps", 1.0),
        (Pacing, "pacing_mbit_per_s", 1e6),
        (Pacing, "tcp.max_pacing_rate_bps", 1.0),
        (PathRate, "link_bps", 1.0),
        (PathRate, "link_mbit_per_s", 1e6),
        (PathRate, "link_rate_bps", 1.0),
        (Congestion, "congestion", 1.0),
        (Congestion, "tcp.congestion", 1.0),
        (Congestion, "end.sender_tcp_congestion", 1.0),
        (Elapsed, "elapsed_s", 1.0),
        (Elapsed, "elapsed_ms", 1e-3),
        (Elapsed, "elapsed", 1.0),
        (Elapsed, "duration_s", 1.0),
        (Elapsed, "seconds", 1.0),
        (Elapsed, "time_s", 1.0),
        (Elapsed, "ELAPSED_TIME", 1.0),
        (Elapsed, "Elapsed Time (sec)", 1.0),
        (Elapsed, "end.sum_received.seconds", 1.0),
        (Elapsed, "end.sum.seconds", 1.0),
        (Streams, "streams", 1.0),
        (Streams, "plan.streams", 1.0),
        (Streams, "start.test_start.num_streams", 1.0),
    ]
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analyze::source::{Input, read};

    fn table(text: &str) -> Table {
        let input = Input { file: "f", label: "f", bytes: text.as_bytes() };
        read(&[input]).unwrap()
    }

    #[test]
    fn a_users_column_goes_before_those_that_are_known() {
        let table = table("rtt_ms,delay,w\n29,31,51200\n");
        let given = [("rtt_us".to_owned(), "delay".to_owned())];
        let columns = Columns::new(&table, &given).unwrap();
        let rtt = columns.figure(&table, 0, Quantity::Rtt).unwrap().unwrap();
        assert!((rtt - 31e-6).abs() < 1e-12);
        assert!(columns.measure(Quantity::Window).is_none());
    }

    #[test]
    fn quantities_and_columns_that_there_are_not_are_refused() {
        let table = table("rtt_ms\n29\n");
        let of = |name: &str, own: &str| {
            Columns::new(&table, &[(name.to_owned(), own.to_owned())]).unwrap_err().to_string()
        };
        assert!(of("window_byte", "rtt_ms").contains("did you mean `window_bytes`?"));
        assert!(of("window_bytes", "rtt").contains("no column `rtt`"));
    }

    #[test]
    fn each_name_stands_once() {
        let mut names: Vec<&str> = KNOWN.iter().map(|known| known.1).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), KNOWN.len());
    }
}
