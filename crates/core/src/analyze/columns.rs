//! Recognizes the quantity of a column by the names that tools and reports use, and the resolution
//! of the clock behind a column of times.

use std::collections::BTreeMap;

use super::document::{Doubt, DoubtKind, signed};
use super::groups::Grouping;
use super::table::{Column, Table};
use super::{AnalyzeError, hint};
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
                AnalyzeError::new(format!(
                    "`{name}` is not a quantity that a column can have; {hint}"
                ))
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

// Times from a clock of whole units.

/// The column of the elapsed time, and the resolution of its clock.
///
/// Both ends of a time from a clock of whole units are cut off to the unit, so the time itself may
/// be off by nearly one unit either way.
#[derive(Debug)]
pub(super) struct AnalysisClock<'t> {
    table: &'t Table,
    elapsed: Option<Measure>,
    is_whole: bool,
}

impl<'t> AnalysisClock<'t> {
    pub(super) fn new(table: &'t Table, columns: &Columns) -> Self {
        let elapsed = columns.measure(Quantity::Elapsed);
        let is_whole =
            elapsed.is_some_and(|it| has_whole_figures(table, 0..table.len(), it.column));
        Self { table, elapsed, is_whole }
    }

    /// Between what the ratio of `b`'s figure over `a`'s may be if each is a fixed amount of work
    /// over such a time, or the time itself; `None` where the clock is finer or the figures are
    /// something else.
    ///
    /// # Errors
    /// A time that is not a number.
    pub(super) fn ratio_range(
        &self,
        metric: Column,
        rows: [usize; 2],
        figures: [f64; 2],
    ) -> Result<Option<[f64; 2]>, AnalyzeError> {
        let Some(elapsed) = self.elapsed.filter(|_| self.is_whole) else {
            return Ok(None);
        };
        let [a, b] = rows.map(|row| self.table.number(row, elapsed.column));
        let (Some(a), Some(b)) = (a?, b?) else {
            return Ok(None);
        };
        let is_time = metric == elapsed.column;
        let work = (figures[1] * b) / (figures[0] * a);
        if !is_time && (work - 1.0).abs() > SAME_WORK {
            return Ok(None);
        }
        let (over, under) = if is_time { (b, a) } else { (a, b) };
        // A time of one unit may have been nothing.
        Ok((over > 1.0 && under > 1.0)
            .then(|| [(over - 1.0) / (under + 1.0), (over + 1.0) / (under - 1.0)]))
    }

    /// Says where times are whole numbers: the elapsed time, and metrics that are times.
    pub(super) fn doubts(
        &self,
        metrics: &[Column],
        grouping: &Grouping<'_>,
    ) -> Result<Vec<Doubt>, AnalyzeError> {
        let mut columns: Vec<Column> = self.elapsed.iter().map(|measure| measure.column).collect();
        for &metric in metrics {
            if is_time(self.table.name(metric)) && !columns.contains(&metric) {
                columns.push(metric);
            }
        }
        let mut doubts = Vec::new();
        for column in columns {
            if has_whole_figures(self.table, 0..self.table.len(), column) {
                doubts.extend(self.doubt(column, (0..self.table.len()).collect(), "")?);
                continue;
            }
            for group in grouping.groups.iter().filter(|group| !group.key.is_empty()) {
                let rows: Vec<usize> = group.all().collect();
                if rows.len() >= FEW_ROWS
                    && has_whole_figures(self.table, rows.iter().copied(), column)
                {
                    doubts.extend(self.doubt(column, rows, &group.key.join(", "))?);
                }
            }
        }
        Ok(doubts)
    }

    fn doubt(
        &self,
        column: Column,
        rows: Vec<usize>,
        group: &str,
    ) -> Result<Option<Doubt>, AnalyzeError> {
        let mut times = Vec::new();
        for row in rows {
            times.extend(self.table.number(row, column)?);
        }
        let shortest = times.iter().copied().fold(f64::INFINITY, f64::min);
        let longest = times.iter().copied().fold(0.0, f64::max);
        if times.is_empty() || shortest < 1.0 || 1.0 / shortest < FINE_ENOUGH {
            return Ok(None);
        }
        let place = match group {
            "" => String::new(),
            group => format!(" at {group}"),
        };
        let name = self.table.name(column);
        let worst = if shortest > 1.0 {
            format!(
                "{} % to {} % at {shortest}",
                signed(-100.0 / (shortest + 1.0), 0),
                signed(100.0 / (shortest - 1.0), 0)
            )
        } else {
            "anything at 1".to_owned()
        };
        Ok(Some(Doubt {
            kind: DoubtKind::WholeSeconds,
            message: format!(
                "`{name}` has whole numbers only{place} ({} rows, {shortest} to {longest}): its \
                 clock was read in steps of 1, so what is made of one time may be off by {worst}, \
                 by ±{:.1} % at {longest}",
                times.len(),
                100.0 / longest
            ),
        }))
    }
}

/// Whether a column has figures in these rows, all of them written without a point.
fn has_whole_figures(table: &Table, rows: impl Iterator<Item = usize>, column: Column) -> bool {
    let mut texts = rows.filter_map(|row| table.text(row, column)).peekable();
    texts.peek().is_some() && texts.all(|text| text.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Whether a name ends in a unit of seconds, and is neither a rate nor a time of day.
fn is_time(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let in_seconds = name.ends_with("_s") || name.ends_with("seconds") || name.ends_with("_sec");
    in_seconds && !name.contains("per_s")
}

/// Two runs did the same work if it differs by no more than this share: printed figures are
/// rounded.
const SAME_WORK: f64 = 0.02;
/// A clock whose unit is below this share of the shortest time raises no doubt.
const FINE_ENOUGH: f64 = 0.002;
/// In fewer rows than this, whole numbers may be chance.
const FEW_ROWS: usize = 4;

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
