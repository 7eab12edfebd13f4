//! `--fail-below`: a floor under every throughput of a document.

use anyhow::{anyhow, bail};
use linerate_core::record::{Check, Record};
use linerate_core::units::BitRate;

use crate::document::Document;

/// Holds each run, and each direction of it, to the floor.
///
/// # Errors
/// The first throughput that is below it, or was not measured at all.
pub(crate) fn hold(document: &Document, floor: BitRate) -> anyhow::Result<()> {
    match document {
        Document::Record(record) => hold_record(record, floor),
        Document::Profile(profile) => hold_record(&profile.record, floor),
        Document::Sweep(sweep) => {
            if sweep.rows.is_empty() {
                bail!("--fail-below {floor}: nothing was measured");
            }
            sweep
                .rows
                .iter()
                .try_for_each(|row| hold_record(row, floor))
        }
        Document::Check(check) => hold_check(check, floor),
        Document::Trace(_) => bail!("--fail-below {floor}: a trace has no rate of its own"),
        Document::Comparison(_)
        | Document::Experiment(_)
        | Document::Analysis(_)
        | Document::Truth(_)
        | Document::Labs(_)
        | Document::Capacity(_)
        | Document::Host(_) => bail!("--fail-below {floor}: this document has no rate of its own"),
    }
}

fn hold_record(record: &Record, floor: BitRate) -> anyhow::Result<()> {
    if record.directions.is_empty() {
        return hold_rate("throughput", record.throughput_bps, floor);
    }
    record
        .directions
        .iter()
        .try_for_each(|(name, part)| hold_rate(name, Some(part.throughput_bps), floor))
}

fn hold_check(check: &Check, floor: BitRate) -> anyhow::Result<()> {
    for (name, record) in [("up", &check.up), ("down", &check.down)] {
        let rate = record.as_ref().and_then(|record| record.throughput_bps);
        hold_rate(name, rate, floor)?;
    }
    Ok(())
}

fn hold_rate(name: &str, rate_bps: Option<f64>, floor: BitRate) -> anyhow::Result<()> {
    let rate_bps =
        rate_bps.ok_or_else(|| anyhow!("--fail-below {floor}: {name} was not measured"))?;
    if rate_bps >= floor.as_f64() {
        return Ok(());
    }
    let rate = BitRate(rate_bps.max(0.0) as u64);
    bail!("--fail-below {floor}: {name} is {rate}")
}

#[cfg(test)]
mod tests {
    use linerate_core::record::Directional;

    use super::*;
    use crate::document::tests::{check, record, sweep};

    const FLOOR: BitRate = BitRate(90_000_000);

    fn refusal(document: Document) -> Option<String> {
        hold(&document, FLOOR).err().map(|error| error.to_string())
    }

    #[test]
    fn a_run_at_the_floor_passes_and_one_below_fails() {
        assert_eq!(refusal(Document::Record(Box::new(record(90e6)))), None);
        assert_eq!(
            refusal(Document::Record(Box::new(record(89e6)))).as_deref(),
            Some("--fail-below 90 Mbit/s: throughput is 89 Mbit/s")
        );
    }

    #[test]
    fn one_slow_row_fails_a_sweep_and_so_does_an_empty_one() {
        assert_eq!(refusal(Document::Sweep(sweep(vec![record(91e6); 2]))), None);
        assert!(refusal(Document::Sweep(sweep(vec![record(91e6), record(1e6)]))).is_some());
        assert!(refusal(Document::Sweep(sweep(vec![]))).is_some());
    }

    #[test]
    fn each_direction_is_held_alone() {
        let direction = |throughput_bps| Directional {
            throughput_bps,
            ..Directional::default()
        };
        let mut both = record(180e6);
        both.directions = [("up", 170e6), ("down", 10e6)]
            .map(|(name, rate)| (name.to_owned(), direction(rate)))
            .into();
        let message = refusal(Document::Record(Box::new(both))).unwrap();
        assert!(message.ends_with("down is 10 Mbit/s"), "{message}");
    }

    #[test]
    fn a_check_passes_only_if_both_directions_do() {
        let checked = |up: f64, down: f64| check(Some(record(up)), Some(record(down)));
        assert_eq!(
            refusal(Document::Check(Box::new(checked(91e6, 92e6)))),
            None
        );
        assert!(refusal(Document::Check(Box::new(checked(91e6, 1e6)))).is_some());
        let message = refusal(Document::Check(Box::new(check(None, None)))).unwrap();
        assert!(message.ends_with("up was not measured"), "{message}");
    }
}
