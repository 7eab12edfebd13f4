//! Gates that the user sets: `--fail-below` for throughputs, `--fail-below-rpm` for the
//! responsiveness of a check, `--fail-on-worse` for figures compared with an earlier run,
//! `--fail-on` for comparisons.

use anyhow::{anyhow, bail, ensure};
use linerate_core::compare::Comparison;
use linerate_core::record::{Baseline, Change, Check, is_cost};
use linerate_core::units::{BitRate, Percent, digits};
use linerate_report::Document;
use linerate_report::text::how_sure;

use crate::args::FailOn;
use crate::failure::{Failure, note};

/// Checks the throughput of each run, and of each direction, against the floor.
///
/// # Errors
/// The first throughput that is below it, or was not measured at all.
pub(crate) fn hold(document: &dyn Document, floor: BitRate) -> anyhow::Result<()> {
    let Some(rates) = document.throughputs() else {
        bail!("--fail-below {floor}: this document has no rate of its own");
    };
    ensure!(!rates.is_empty(), "--fail-below {floor}: nothing was measured");
    rates.into_iter().try_for_each(|(name, rate)| hold_rate(name, rate, floor))
}

/// Checks the round trips per minute under load of each direction against the floor.
///
/// # Errors
/// The first that is below it; none was measured.
pub(crate) fn hold_rpm(check: &Check, floor: u32) -> anyhow::Result<()> {
    for direction in ["up", "down"] {
        let found = check.responsiveness.get(direction);
        let rpm = found.map(|found| found.rpm).ok_or_else(|| {
            anyhow!("--fail-below-rpm {floor}: responsiveness {direction} was not measured")
        })?;
        ensure!(
            rpm >= f64::from(floor),
            "--fail-below-rpm {floor}: {direction} is {rpm:.0} round trips per minute"
        );
    }
    Ok(())
}

/// Says that a gate was not held against anything, because the run was stopped: the exit status is
/// that of the stopped run.
pub(crate) fn no_result(gate: &str) {
    note(&format!("{gate}: stopped, no result"));
}

/// Checks how much worse the headline figures are.
///
/// # Errors
/// One is worse, or there is none to compare.
pub(crate) fn hold_change(found: &Baseline, worst: Option<Percent>) -> Result<(), Failure> {
    let Some(worst) = worst else {
        return Ok(());
    };
    let held = || {
        ensure!(
            found.changes.iter().any(|change| change.headline),
            "--fail-on-worse {worst}: the baseline and this run have no figure in common"
        );
        let mut headlines = found.changes.iter().filter(|change| change.headline);
        match headlines.find(|change| change.worse_percent() > worst.0) {
            None => Ok(()),
            Some(worse) => Err(anyhow!("--fail-on-worse {worst}: {}", beside(worse))),
        }
    };
    held().map_err(Failure::failed)?;
    let headlines: Vec<String> =
        found.changes.iter().filter(|change| change.headline).map(beside).collect();
    note(&format!("--fail-on-worse {worst}: passed, {}", headlines.join("; ")));
    Ok(())
}

/// `throughput_bps is 3.1 % worse than the baseline's: within noise, the intervals overlap`
fn beside(change: &Change) -> String {
    let worse = change.worse_percent();
    let unit = if change.metric.ends_with("effect_percent") { "points" } else { "%" };
    let word = if worse > 0.0 { "worse" } else { "better" };
    format!(
        "{} is {} {unit} {word} than the baseline's: {}",
        change.metric,
        digits(worse.abs()),
        how_sure(change)
    )
}

/// Checks the verdict on each metric of a comparison.
///
/// # Errors
/// One differs, or is worse, as it must not.
pub(crate) fn hold_comparison(found: &Comparison, fail_on: FailOn) -> anyhow::Result<()> {
    let gate = option(fail_on);
    for compared in &found.metrics {
        let (metric, conclusion) = (compared.metric.as_str(), &compared.conclusion);
        let effect = conclusion.effect_percent;
        let is_worse = (effect > 0.0) == is_cost(metric) && !conclusion.equivalent;
        if conclusion.different && (is_worse || fail_on == FailOn::Different) {
            let way = if effect > 0.0 { "higher" } else { "lower" };
            bail!("{gate}: {metric} is {} % {way} under B than under A", digits(effect.abs()));
        }
    }
    Ok(())
}

/// The gate as typed.
pub(crate) fn option(fail_on: FailOn) -> &'static str {
    match fail_on {
        FailOn::Worse => "--fail-on worse",
        FailOn::Different => "--fail-on different",
    }
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
    use linerate_core::record::Environment;
    use linerate_core::responsiveness::{Probe, Samples};
    use linerate_report::document::{Charted, Rate};
    use linerate_report::svg::Chart;
    use linerate_report::text::Page;

    use super::*;

    const FLOOR: BitRate = BitRate(90_000_000);

    /// A document with nothing but throughputs.
    #[derive(Debug, serde::Serialize)]
    struct Rates(Option<Vec<(&'static str, Option<f64>)>>);

    impl Document for Rates {
        fn page(&self, _: &mut Page) {}

        fn throughputs(&self) -> Option<Vec<Rate<'_>>> {
            self.0.clone()
        }
    }

    impl Charted for Rates {
        fn charts(&self) -> Vec<Chart> {
            Vec::new()
        }
    }

    fn refusal(rates: &[(&'static str, Option<f64>)]) -> Option<String> {
        let document = Rates(Some(rates.to_vec()));
        hold(&document, FLOOR).err().map(|error| error.to_string())
    }

    #[test]
    fn a_run_at_the_floor_passes_and_one_below_fails() {
        assert_eq!(refusal(&[("throughput", Some(90e6))]), None);
        assert_eq!(
            refusal(&[("throughput", Some(89e6))]).as_deref(),
            Some("--fail-below 90 Mbit/s: throughput is 89 Mbit/s")
        );
    }

    #[test]
    fn one_slow_row_fails_a_sweep_and_so_does_an_empty_one() {
        let fast = ("throughput", Some(91e6));
        assert_eq!(refusal(&[fast, fast]), None);
        assert!(refusal(&[fast, ("throughput", Some(1e6))]).is_some());
        assert!(refusal(&[]).is_some());
    }

    #[test]
    fn a_check_is_held_to_its_round_trips_per_minute_each_way() {
        let samples = |us: f64| {
            let probe = Probe { connect_us: us, request_us: us };
            let samples = Samples { idle: vec![probe], loaded: vec![probe], ..Samples::default() };
            samples.score().unwrap()
        };
        let mut check = Check::new("pit", Environment::default());
        check.responsiveness.insert("up".to_owned(), samples(30e3));
        let missing = hold_rpm(&check, 1000).unwrap_err().to_string();
        assert_eq!(missing, "--fail-below-rpm 1000: responsiveness down was not measured");
        check.responsiveness.insert("down".to_owned(), samples(60e3));
        assert!(hold_rpm(&check, 1000).is_ok());
        let slow = hold_rpm(&check, 1001).unwrap_err().to_string();
        assert_eq!(slow, "--fail-below-rpm 1001: down is 1000 round trips per minute");
    }

    #[test]
    fn a_gate_on_a_change_says_how_sure_the_change_is() {
        let change = Change {
            metric: "throughput_bps".to_owned(),
            was: 100e6,
            is: 80e6,
            change_percent: -20.0,
            was_interval: None,
            is_interval: None,
            was_quartiles: None,
            is_quartiles: None,
            usual_percent: None,
            others: None,
            headline: true,
        };
        let refusal = |change: Change| {
            let found = Baseline { changes: vec![change], ..Baseline::default() };
            let held = hold_change(&found, Some(Percent(5.0)));
            held.err().map(|failure| failure.chain())
        };
        assert_eq!(
            refusal(change.clone()).as_deref(),
            Some(
                "--fail-on-worse 5 %: throughput_bps is 20.0 % worse than the baseline's: may be \
                 noise, too few runs to tell: at least 6 are needed each time (--repeat 6)"
            )
        );
        let medians = refusal(Change {
            was_interval: Some([99e6, 101e6]),
            is_interval: Some([79e6, 81e6]),
            ..change
        });
        let sure = medians.expect("20 % are more than 5 %");
        assert!(sure.contains("worse than then, the intervals lie apart, but only"), "{sure}");
    }

    #[test]
    fn a_cost_is_worse_where_it_is_higher() {
        for metric in ["latency_us.p99", "tcp.rtt_mean_us", "sender.host_cpu_percent", "udp.lost"] {
            assert!(is_cost(metric), "{metric}");
        }
        for metric in ["throughput_bps", "rpm", "transactions_per_s", "tcp.cwnd_bytes"] {
            assert!(!is_cost(metric), "{metric}");
        }
    }

    #[test]
    fn each_direction_is_gated_separately() {
        let message = refusal(&[("up", Some(170e6)), ("down", Some(10e6))]).unwrap();
        assert!(message.ends_with("down is 10 Mbit/s"), "{message}");
        assert_eq!(refusal(&[("up", Some(91e6)), ("down", Some(92e6))]), None);
        let message = refusal(&[("up", None), ("down", None)]).unwrap();
        assert!(message.ends_with("up was not measured"), "{message}");
    }

    #[test]
    fn a_document_without_a_rate_cannot_be_held_to_a_floor() {
        let message = hold(&Rates(None), FLOOR).unwrap_err().to_string();
        assert!(message.ends_with("has no rate of its own"), "{message}");
    }
}
