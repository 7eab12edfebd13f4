//! `--baseline`: an earlier document, read before anything is sent, and what has changed since.

use std::path::Path;

use anyhow::{Context, anyhow, ensure};
use linerate_core::record::{
    Baseline as Beside, CHECK_SCHEMA, Check, Observed, RECORD_SCHEMA, Record, SWEEP_SCHEMA, Sweep,
};
use linerate_core::units::Percent;

use crate::args::BaselineOptions;
use crate::failure::Failure;
use crate::files::{self, MAX_DOCUMENT};
use crate::run::Measured;

/// An earlier document, and how much worse the new one may be.
pub(crate) struct Baseline {
    was: Observed,
    worst: Option<Percent>,
}

/// The earlier record or sweep, if one was named.
///
/// # Errors
/// It cannot be read, or is no such document.
pub(crate) fn of_runs(options: &BaselineOptions) -> Result<Option<Baseline>, Failure> {
    open(options, &[RECORD_SCHEMA, SWEEP_SCHEMA], |schema, bytes| {
        Ok(if schema == RECORD_SCHEMA {
            Observed::runs([&serde_json::from_slice::<Record>(bytes)?])
        } else {
            Observed::sweep(&serde_json::from_slice::<Sweep>(bytes)?)
        })
    })
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
                    "--fail-on-worse {worst}: {} is {:.1} % worse than the baseline's",
                    worse.metric,
                    worse.worse_percent()
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
