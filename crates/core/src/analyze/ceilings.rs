//! What the columns of a row explain: windows, loss, pacing and link rate as ceilings.
//!
//! There is no kernel's evidence in a table of figures. A row is therefore compared with nothing
//! but the ceilings that its columns allow, by the second half of the rule of [`crate::ceilings`]:
//! the lowest one explains a row that agrees.

use serde::Deserialize;
use serde::de::IntoDeserializer;
use serde::de::value::StrDeserializer;

use super::AnalyzeError;
use super::columns::{Columns, Quantity};
use super::document::{Doubt, DoubtKind, RowCeilings, digits};
use super::table::{Format, Table, VERDICT_COLUMN};
use crate::ceilings::formulas::{
    TCP_HEADER_BYTES, aal5_bytes, cubic_bps, ip_header_bytes, reno_bps, window_bps,
};
use crate::ceilings::{Cause, Ceiling, EXACT_TOLERANCE, MODEL_TOLERANCE, agrees};
use crate::link::Framing;
use crate::units::Family;

/// Rows whose ceilings are kept.
pub(super) const MAX_ROWS: usize = 1_000;

/// The ceilings of the first [`MAX_ROWS`] rows that have any, and how many more there are.
///
/// # Errors
/// A cell that is not a number.
pub(super) fn of_rows(
    table: &Table,
    columns: &Columns,
    framing: Option<Framing>,
) -> Result<(Vec<RowCeilings>, usize), AnalyzeError> {
    let mut explained = Vec::new();
    let mut left_out = 0;
    for row in 0..table.len() {
        let Some(figures) = Figures::new(table, columns, row)? else {
            continue;
        };
        let own = own_verdict(table, row);
        let mut ceilings = figures.ceilings(framing);
        if ceilings.is_empty() && own.is_none() {
            continue;
        }
        if explained.len() == MAX_ROWS {
            left_out += 1;
            continue;
        }
        ceilings.sort_by(|a, b| a.limit_bps.total_cmp(&b.limit_bps));
        explained.push(RowCeilings {
            row: table.place(row),
            throughput_bps: figures.throughput_bps,
            explained_by: own.unwrap_or_else(|| explained_by(figures.throughput_bps, &ceilings)),
            ceilings,
        });
    }
    Ok((explained, left_out))
}

/// What one of linerate's own records concluded from both kernels' evidence, which no column has.
fn own_verdict(table: &Table, row: usize) -> Option<Cause> {
    let column = table.find(VERDICT_COLUMN)?;
    let name = table.text(row, column)?;
    let is_own = table.source(row).format == Format::Linerate;
    let name: StrDeserializer<'_, serde::de::value::Error> = name.into_deserializer();
    Cause::deserialize(name).ok().filter(|_| is_own)
}

fn explained_by(measured_bps: f64, ceilings: &[Ceiling]) -> Cause {
    // How far the rate may be from the ceiling, as a share.
    let tolerance = |cause| match cause {
        Cause::Congestion => MODEL_TOLERANCE,
        _ => EXACT_TOLERANCE,
    };
    let fits = |one: &&Ceiling| agrees(measured_bps, one.limit_bps, tolerance(one.cause));
    let lowest = ceilings.first().filter(fits);
    lowest.map_or(Cause::Unexplained, |lowest| lowest.cause)
}

/// Rows that are faster than a ceiling of theirs allows: then a column is not what its name says.
pub(super) fn doubts(rows: &[RowCeilings]) -> Option<Doubt> {
    let mut above = Vec::new();
    for row in rows {
        // The model of losses may be wrong; the others cannot.
        let exceeds = |ceiling: &&Ceiling| {
            let limit = ceiling.limit_bps * (1.0 + EXACT_TOLERANCE);
            ceiling.cause != Cause::Congestion && row.throughput_bps > limit
        };
        if let Some(ceiling) = row.ceilings.iter().find(exceeds) {
            above.push(format!(
                "{} ({} of {} Mbit/s by {})",
                row.row,
                digits(row.throughput_bps / 1e6, 3),
                digits(ceiling.limit_bps / 1e6, 3),
                ceiling.cause.name()
            ));
        }
    }
    Doubt::about(DoubtKind::AboveCeiling, &above, |above| {
        format!(
            "faster than a ceiling of their own columns: {above}. A column there is not what its \
             name says, or in another unit"
        )
    })
}

/// The quantities in the columns of one row.
struct Figures {
    throughput_bps: f64,
    window_bytes: Option<f64>,
    rtt_s: Option<f64>,
    mss_bytes: Option<f64>,
    loss: Option<f64>,
    pacing_bps: Option<f64>,
    path_bps: Option<f64>,
    is_cubic: bool,
    /// iperf3 reads the window and the round-trip time once a second: those of a moment.
    is_sampled: bool,
}

impl Figures {
    fn new(table: &Table, columns: &Columns, row: usize) -> Result<Option<Self>, AnalyzeError> {
        let figure = |quantity| {
            let figure = columns.figure(table, row, quantity)?;
            Ok::<_, AnalyzeError>(figure.filter(|value| *value > 0.0))
        };
        let Some(throughput_bps) = figure(Quantity::Throughput)? else {
            return Ok(None);
        };
        let congestion = columns
            .measure(Quantity::Congestion)
            .and_then(|measure| table.text(row, measure.column));
        // Of several flows the columns have one window and one loss, and the throughput of all.
        let is_one = figure(Quantity::Streams)?.is_none_or(|streams| streams <= 1.0);
        Ok(Some(Self {
            throughput_bps,
            window_bytes: figure(Quantity::Window)?,
            rtt_s: figure(Quantity::Rtt)?.filter(|_| is_one),
            mss_bytes: figure(Quantity::Mss)?,
            loss: figure(Quantity::Loss)?.filter(|loss| *loss <= 1.0),
            pacing_bps: figure(Quantity::Pacing)?,
            path_bps: figure(Quantity::PathRate)?,
            is_cubic: congestion.is_some_and(|name| name.eq_ignore_ascii_case("cubic")),
            is_sampled: table.source(row).format == Format::Iperf3,
        }))
    }

    fn ceilings(&self, framing: Option<Framing>) -> Vec<Ceiling> {
        let share = self.payload_share(framing);
        let line = |cause, bps: Option<f64>, what: &str, key: &str| {
            let bps = bps?;
            let inputs = [(key, Some(bps)), ("mss_bytes", self.mss_bytes)];
            Some(ceiling(cause, bps * share.0, what, &inputs))
        };
        let of_pacing = format!("pacing rate{}", share.1);
        let of_path = format!("link rate{}", share.1);
        let ceilings = [
            self.window(),
            self.congestion(),
            line(Cause::Pacing, self.pacing_bps, &of_pacing, "pacing_bps"),
            line(Cause::PathRate, self.path_bps, &of_path, "link_bps"),
        ];
        let usable = |ceiling: &Ceiling| ceiling.limit_bps.is_finite() && ceiling.limit_bps > 0.0;
        ceilings.into_iter().flatten().filter(usable).collect()
    }

    fn window(&self) -> Option<Ceiling> {
        let (window, rtt) = (self.window_bytes?, self.rtt_s?);
        let limit = window_bps(window, rtt);
        // More went through than the window of that moment would have let through.
        if self.is_sampled && self.throughput_bps > limit * (1.0 + EXACT_TOLERANCE) {
            return None;
        }
        let inputs = [("window_bytes", Some(window)), ("rtt_us", Some(rtt * 1e6))];
        let formula = "window ÷ RTT";
        Some(ceiling(Cause::ReceiveWindow, limit, formula, &inputs))
    }

    /// Loss is taken as it stands: losses that came together count more than once, so the ceiling
    /// is then too low.
    fn congestion(&self) -> Option<Ceiling> {
        let (mss, rtt, loss) = (self.mss_bytes?, self.rtt_s?, self.loss?);
        let reno = reno_bps(mss, rtt, loss);
        let (limit, formula) = if self.is_cubic {
            let formula = "max(1.054·(RTT/p)^¾, √1.5/√p) × MSS ÷ RTT, p = loss";
            (cubic_bps(mss, rtt, loss).max(reno), formula)
        } else {
            (reno, "√1.5 × MSS ÷ (RTT × √p), p = loss")
        };
        let inputs = [
            ("loss_percent", Some(loss * 100.0)),
            ("mss_bytes", Some(mss)),
            ("rtt_us", Some(rtt * 1e6)),
        ];
        Some(ceiling(Cause::Congestion, limit, formula, &inputs))
    }

    /// Payload over what a rate counts, and the words for it. Without a framing a rate is of IP
    /// packets.
    fn payload_share(&self, framing: Option<Framing>) -> (f64, &'static str) {
        let Some(mss) = self.mss_bytes else {
            return (1.0, ", headers not known");
        };
        let packet = mss + TCP_HEADER_BYTES + ip_header_bytes(Family::Ipv4);
        match framing {
            None => (mss / packet, " × MSS ÷ (MSS + 40)"),
            Some(Framing::Ethernet) => (mss / (packet + ETHERNET_HEADER), " × MSS ÷ (MSS + 54)"),
            Some(Framing::Aal5) => (mss / aal5_bytes(packet, LLC_SNAP), " × MSS ÷ its ATM cells"),
        }
    }
}

fn ceiling(cause: Cause, limit_bps: f64, formula: &str, inputs: &[(&str, Option<f64>)]) -> Ceiling {
    let inputs = inputs.iter();
    let known = inputs.filter_map(|(key, value)| Some(((*key).to_owned(), (*value)?)));
    Ceiling {
        cause,
        limit_bps,
        formula: formula.to_owned(),
        inputs: known.collect(),
        evidence: Vec::new(),
        independent: true,
    }
}

/// Bytes that a qdisc counts besides the IP packet.
const ETHERNET_HEADER: f64 = 14.0;
/// LLC/SNAP encapsulation of IP in AAL5, bytes (RFC 2684).
const LLC_SNAP: f64 = 8.0;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analyze::source::{Input, read};

    /// iperf3 3.12's figures of a second over loopback: at its end the window was nearly closed.
    #[test]
    fn a_window_of_a_moment_is_no_ceiling_of_iperf3s_run_and_blames_no_column() {
        let document = |window: u32| {
            format!(
                r#"{{"start": {{"tcp_mss_default": 32768, "test_start": {{"num_streams": 1}}}},
                    "end": {{"streams": [{{"sender": {{"max_snd_wnd": {window}, "mean_rtt": 63}}}}],
                    "sum_received": {{"seconds": 1.0, "bits_per_second": 4.5e9}}}}}}"#
            )
        };
        let rows = |text: &str| {
            let (file, label) = ("f", "f");
            let bytes = text.as_bytes();
            let table = read(&[Input { file, label, bytes }]).unwrap();
            let columns = Columns::new(&table, &[]).unwrap();
            of_rows(&table, &columns, None).unwrap().0
        };
        let small = rows(&document(25_600));
        assert!(small.is_empty() && doubts(&small).is_none(), "{small:?}");
        let large = rows(&document(35_000));
        assert_eq!(large[0].explained_by, Cause::ReceiveWindow);
        // A table's own column is what it says.
        let csv = rows("throughput_bps,window_bytes,rtt_us\n4.5e9,25600,63\n");
        assert!(doubts(&csv).is_some());
    }
}
