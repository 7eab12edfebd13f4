//! `--baseline` and `--against`: an earlier document, read before anything is sent, and the changes
//! since.

use std::path::Path;

use anyhow::{Context, anyhow, bail, ensure};
use linerate_core::compare::{COMPARISON_SCHEMA, asked_of_both};
use linerate_core::plan::Plan;
use linerate_core::record::{
    Baseline as Beside, CHECK_SCHEMA, Observed, RECORD_SCHEMA, SWEEP_SCHEMA, asked,
};
use linerate_core::units::Percent;
use linerate_engine::CompareOptions;

use crate::args::BaselineOptions;
use crate::failure::Failure;
use crate::files::{self, MAX_DOCUMENT};
use crate::gate;
use crate::history::{self, Against};

/// An earlier document, and how much worse the new one may be.
pub(crate) struct Baseline {
    was: Observed,
    worst: Option<Percent>,
}

/// The earlier record or sweep, if one was named, of the test that is asked for.
///
/// # Errors
/// It cannot be read, is no such document, or is of another test.
pub(crate) fn of_runs(
    options: &BaselineOptions,
    plan: &Plan,
    against: Against<'_>,
) -> Result<Option<Baseline>, Failure> {
    let asked = plan.tests.first().map(asked).unwrap_or_default();
    open(options, against, &[RECORD_SCHEMA, SWEEP_SCHEMA], Some(&asked))
}

/// The earlier comparison, if one was named, of what is to be compared.
///
/// # Errors
/// As [`of_runs`].
pub(crate) fn of_comparison(
    options: &BaselineOptions,
    compared: &CompareOptions,
    against: Against<'_>,
) -> Result<Option<Baseline>, Failure> {
    let sides = [&compared.a, &compared.b];
    let asked = asked_of_both(&compared.test, sides, compared.with.as_ref());
    open(options, against, &[COMPARISON_SCHEMA], Some(&asked))
}

/// The earlier check, if one was named.
///
/// # Errors
/// As [`of_runs`].
pub(crate) fn of_check(
    options: &BaselineOptions,
    against: Against<'_>,
) -> Result<Option<Baseline>, Failure> {
    open(options, against, &[CHECK_SCHEMA], None)
}

impl Baseline {
    /// Puts the changes to the figures of `now` into the new document. Fails if one is worse than
    /// allowed.
    pub(crate) fn beside(&self, now: &Observed, to: &mut Option<Beside>) -> Result<(), Failure> {
        let found = to.insert(self.was.until(now));
        gate::hold_change(found, self.worst)
    }
}

fn open(
    options: &BaselineOptions,
    against: Against<'_>,
    schemas: &[&str],
    asked: Option<&[String]>,
) -> Result<Option<Baseline>, Failure> {
    let worst = options.fail_on_worse;
    let was = match (&options.baseline, &options.against) {
        (Some(path), _) => read(path, schemas, asked).map_err(Failure::usage)?,
        (None, Some(which)) => match history::observed(which, &against, schemas, asked)? {
            Some(was) => was,
            None => return Ok(None),
        },
        (None, None) if worst.is_some() => {
            return Err(Failure::usage(anyhow!("--fail-on-worse needs --baseline or --against")));
        }
        (None, None) => return Ok(None),
    };
    Ok(Some(Baseline { was, worst }))
}

fn read(path: &Path, schemas: &[&str], asked: Option<&[String]>) -> anyhow::Result<Observed> {
    let bytes = files::read_bytes("--baseline", path, MAX_DOCUMENT)?;
    let place = || files::named("--baseline", path);
    let document = linerate_report::document::read(&bytes).with_context(place)?;
    let schema = linerate_report::document::schema(&bytes)?;
    ensure!(
        schemas.contains(&schema),
        "{}: it is a {}; beside this run a {} can be set",
        place(),
        schema,
        schemas.join(" or ")
    );
    let was = document.observed();
    // Another test has other figures, even on the same path.
    if let Some(other) = asked.and_then(|asked| was.differs_from(asked)) {
        bail!("{}: it is of another test: {other}", place());
    }
    Ok(was)
}

#[cfg(test)]
mod tests {
    use linerate_core::plan::{Draft, Repeats, Workload};

    use crate::args::KeepOptions;

    use super::*;

    #[test]
    fn an_earlier_run_of_another_test_is_refused() {
        let earlier = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/record.json");
        let options =
            BaselineOptions { baseline: Some(earlier.into()), against: None, fail_on_worse: None };
        let keep = KeepOptions { save: false, label: Vec::new(), db: None };
        let found = |keys: &[(&str, &str)]| {
            let mut draft = Draft::new(Workload::Stream);
            for (key, value) in keys {
                draft.set(key, value).expect("an option of stream");
            }
            let test = draft.resolve(1).expect("a test");
            let (tests, repeats) = (vec![test], Repeats::Times(1));
            let against = Against { keep: &keep, path: None, workload: "stream", detail: None };
            let refused = of_runs(&options, &Plan { tests, repeats }, against).err();
            refused.map(|failure| failure.chain())
        };
        let same = [("time", "1s"), ("warm-up", "0")];
        assert_eq!(found(&same), None);
        let message = found(&[same[0], same[1], ("streams", "4")]).expect("it had one flow");
        assert!(message.ends_with("it is of another test: now --streams 4"), "{message}");
    }
}
