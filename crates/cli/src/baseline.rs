//! `--baseline`: an earlier document, read before anything is sent, and what has changed since.

use std::path::Path;

use anyhow::{Context, anyhow, bail, ensure};
use linerate_core::compare::{COMPARISON_SCHEMA, Comparison, asked_of_both};
use linerate_core::plan::Plan;
use linerate_core::record::{
    Baseline as Beside, CHECK_SCHEMA, Check, Observed, RECORD_SCHEMA, Record, SWEEP_SCHEMA, Sweep,
    asked,
};
use linerate_core::units::Percent;
use linerate_engine::CompareOptions;

use crate::args::BaselineOptions;
use crate::failure::Failure;
use crate::files::{self, MAX_DOCUMENT};
use crate::run::Measured;

/// An earlier document, and how much worse the new one may be.
pub(crate) struct Baseline {
    was: Observed,
    worst: Option<Percent>,
}

/// The earlier record or sweep, if one was named, of the test that is asked for.
///
/// # Errors
/// It cannot be read, is no such document, or is of another test.
pub(crate) fn of_runs(options: &BaselineOptions, plan: &Plan) -> Result<Option<Baseline>, Failure> {
    open(options, &[RECORD_SCHEMA, SWEEP_SCHEMA], |schema, bytes| {
        let was = if schema == RECORD_SCHEMA {
            Observed::runs([&serde_json::from_slice::<Record>(bytes)?])
        } else {
            Observed::sweep(&serde_json::from_slice::<Sweep>(bytes)?)
        };
        of_same_test(was, &plan.tests.first().map(asked).unwrap_or_default())
    })
}

/// The earlier comparison, if one was named, of what is to be compared.
///
/// # Errors
/// As [`of_runs`].
pub(crate) fn of_comparison(
    options: &BaselineOptions,
    compared: &CompareOptions,
) -> Result<Option<Baseline>, Failure> {
    open(options, &[COMPARISON_SCHEMA], |_, bytes| {
        let was = serde_json::from_slice::<Comparison>(bytes)?.observed();
        let sides = [&compared.a, &compared.b];
        let asked = asked_of_both(&compared.test, sides, compared.with.as_ref());
        of_same_test(was, &asked)
    })
}

/// Figures of another test would be others, whatever the path is like.
fn of_same_test(was: Observed, asked: &[String]) -> anyhow::Result<Observed> {
    if let Some(other) = was.differs_from(asked) {
        bail!("it is of another test: {other}");
    }
    Ok(was)
}

/// The earlier check, if one was named.
///
/// # Errors
/// As [`of_runs`].
pub(crate) fn of_check(options: &BaselineOptions) -> Result<Option<Baseline>, Failure> {
    open(options, &[CHECK_SCHEMA], |_, bytes| {
        Ok(Observed::check(&serde_json::from_slice::<Check>(bytes)?))
    })
}

impl Baseline {
    /// Sets it beside what was measured; the error is that a figure is too much worse.
    pub(crate) fn beside_runs(&self, measured: &mut Measured) -> Result<(), Failure> {
        let now = match measured {
            Measured::Record(record) => Observed::runs([&**record]),
            Measured::Sweep(sweep) => Observed::sweep(sweep),
        };
        let found = self.was.until(&now);
        let held = self.hold(&found);
        match measured {
            Measured::Record(record) => record.baseline = Some(found),
            Measured::Sweep(sweep) => sweep.baseline = Some(found),
        }
        held
    }

    /// As [`Baseline::beside_runs`].
    pub(crate) fn beside_check(&self, check: &mut Check) -> Result<(), Failure> {
        let found = self.was.until(&Observed::check(check));
        let held = self.hold(&found);
        check.baseline = Some(found);
        held
    }

    /// As [`Baseline::beside_runs`].
    pub(crate) fn beside_comparison(&self, comparison: &mut Comparison) -> Result<(), Failure> {
        let found = self.was.until(&comparison.observed());
        let held = self.hold(&found);
        comparison.baseline = Some(found);
        held
    }

    fn hold(&self, found: &Beside) -> Result<(), Failure> {
        let Some(worst) = self.worst else {
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
                Some(worse) => Err(anyhow!(
                    "--fail-on-worse {worst}: {} is {:.1} {} worse than the baseline's",
                    worse.metric,
                    worse.worse_percent(),
                    if worse.metric.ends_with("effect_percent") {
                        "points"
                    } else {
                        "%"
                    }
                )),
            }
        };
        held().map_err(Failure::failed)
    }
}

fn open(
    options: &BaselineOptions,
    schemas: &[&str],
    observed: impl FnOnce(&str, &[u8]) -> anyhow::Result<Observed>,
) -> Result<Option<Baseline>, Failure> {
    let Some(path) = &options.baseline else {
        return Ok(None);
    };
    let was = read(path, schemas, observed).map_err(Failure::usage)?;
    Ok(Some(Baseline {
        was,
        worst: options.fail_on_worse,
    }))
}

fn read(
    path: &Path,
    schemas: &[&str],
    observed: impl FnOnce(&str, &[u8]) -> anyhow::Result<Observed>,
) -> anyhow::Result<Observed> {
    let bytes = files::read_of("--baseline", path, MAX_DOCUMENT)?;
    let place = || format!("--baseline {}", path.display());
    linerate_report::document::read(&bytes).with_context(place)?;
    let schema = linerate_report::document::schema(&bytes)?;
    ensure!(
        schemas.contains(&schema),
        "{}: it is a {}; beside this run a {} can be set",
        place(),
        schema,
        schemas.join(" or ")
    );
    observed(schema, &bytes).with_context(place)
}

#[cfg(test)]
mod tests {
    use linerate_core::plan::{Draft, Repeats, Workload};

    use super::*;

    #[test]
    fn an_earlier_run_of_another_test_is_refused() {
        let earlier = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/record.json");
        let options = BaselineOptions {
            baseline: Some(earlier.into()),
            fail_on_worse: None,
        };
        let found = |keys: &[(&str, &str)]| {
            let mut draft = Draft::new(Workload::Stream);
            for (key, value) in keys {
                draft.set(key, value).expect("an option of stream");
            }
            let test = draft.resolve(1).expect("a test");
            let (tests, repeats) = (vec![test], Repeats::Times(1));
            let refused = of_runs(&options, &Plan { tests, repeats }).err();
            refused.map(|failure| failure.chain())
        };
        let same = [("time", "1s"), ("warm-up", "0")];
        assert_eq!(found(&same), None);
        let message = found(&[same[0], same[1], ("streams", "4")]).expect("it had one flow");
        assert!(
            message.ends_with("it is of another test: now --streams 4"),
            "{message}"
        );
    }
}
