//! Which column is which quantity, by the names that tools and reports give them.

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

/// A name that a column may have: what it holds, and its unit in bit/s, bytes, seconds or shares
/// (0–1).
struct Known {
    quantity: Quantity,
    name: &'static str,
    scale: f64,
}

/// A column that holds a quantity, in the unit of its scale.
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
            let known = KNOWN.iter().find(|known| known.name == name);
            let known = known.ok_or_else(|| AnalyzeError::UnknownQuantity {
                name: name.clone(),
                hint: quantity_hint(name),
            })?;
            let column = table.column(own)?;
            columns.insert(known, column);
        }
        for known in &KNOWN {
            if let Some(column) = table.find(known.name) {
                columns.insert(known, column);
            }
        }
        Ok(columns)
    }

    /// The first column of a quantity is the one that is used.
    fn insert(&mut self, known: &Known, column: Column) {
        let scale = known.scale;
        self.0
            .entry(known.quantity)
            .or_insert(Measure { column, scale });
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

/// Any known name that looks like it, or one of each quantity.
fn quantity_hint(name: &str) -> String {
    let mut firsts: Vec<&Known> = Vec::new();
    for known in &KNOWN {
        if firsts.iter().all(|first| first.quantity != known.quantity) {
            firsts.push(known);
        }
    }
    suggestion(name, KNOWN.iter().map(|known| known.name))
        .unwrap_or_else(|| hint(name, firsts.iter().map(|known| known.name)))
}

const fn known(quantity: Quantity, name: &'static str, scale: f64) -> Known {
    Known {
        quantity,
        name,
        scale,
    }
}

/// The names, of each quantity the more exact first. The first of a quantity is how `--column` is
/// to be explained.
static KNOWN: [Known; 44] = {
    use Quantity::*;
    [
        known(Throughput, "throughput_bps", 1.0),
        known(Throughput, "throughput_mbit_per_s", 1e6),
        known(Throughput, "mbit_per_s", 1e6),
        known(Throughput, "kbyte_per_s", 8e3),
        known(Throughput, "throughput_gbit_per_s", 1e9),
        known(Window, "window_bytes", 1.0),
        known(Window, "receive_window_bytes", 1.0),
        known(Window, "tcp.send_window_bytes", 1.0),
        known(Window, "end.streams.0.sender.max_snd_wnd", 1.0),
        known(Rtt, "rtt_us", 1e-6),
        known(Rtt, "rtt_ms", 1e-3),
        known(Rtt, "rtt_s", 1.0),
        known(Rtt, "tcp.rtt_mean_us", 1e-6),
        known(Rtt, "end.streams.0.sender.mean_rtt", 1e-6),
        known(Mss, "mss_bytes", 1.0),
        known(Mss, "mss", 1.0),
        known(Mss, "tcp.mss_bytes", 1.0),
        known(Mss, "start.tcp_mss", 1.0),
        known(Mss, "start.tcp_mss_default", 1.0),
        known(Loss, "loss_percent", 1e-2),
        known(Loss, "loss", 1.0),
        known(Loss, "loss_ratio", 1.0),
        known(Pacing, "pacing_bps", 1.0),
        known(Pacing, "pacing_mbit_per_s", 1e6),
        known(Pacing, "tcp.max_pacing_rate_bps", 1.0),
        known(PathRate, "link_bps", 1.0),
        known(PathRate, "link_mbit_per_s", 1e6),
        known(PathRate, "link_rate_bps", 1.0),
        known(Congestion, "congestion", 1.0),
        known(Congestion, "tcp.congestion", 1.0),
        known(Congestion, "end.sender_tcp_congestion", 1.0),
        known(Elapsed, "elapsed_s", 1.0),
        known(Elapsed, "elapsed_ms", 1e-3),
        known(Elapsed, "elapsed", 1.0),
        known(Elapsed, "duration_s", 1.0),
        known(Elapsed, "seconds", 1.0),
        known(Elapsed, "time_s", 1.0),
        known(Elapsed, "ELAPSED_TIME", 1.0),
        known(Elapsed, "Elapsed Time (sec)", 1.0),
        known(Elapsed, "end.sum_received.seconds", 1.0),
        known(Elapsed, "end.sum.seconds", 1.0),
        known(Streams, "streams", 1.0),
        known(Streams, "plan.streams", 1.0),
        known(Streams, "start.test_start.num_streams", 1.0),
    ]
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analyze::source::{Input, read};

    fn table(text: &str) -> Table {
        let input = Input {
            file: "f",
            label: "f",
            bytes: text.as_bytes(),
        };
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
            Columns::new(&table, &[(name.to_owned(), own.to_owned())])
                .unwrap_err()
                .to_string()
        };
        assert!(of("window_byte", "rtt_ms").contains("did you mean `window_bytes`?"));
        assert!(of("window_bytes", "rtt").contains("no column `rtt`"));
    }

    #[test]
    fn each_name_stands_once() {
        let mut names: Vec<&str> = KNOWN.iter().map(|known| known.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), KNOWN.len());
    }
}
