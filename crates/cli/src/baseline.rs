//! `--baseline`: an earlier document, read before anything is sent, and the changes
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
use crate::failure::{Failure, note};
use crate::files::{self, MAX_DOCUMENT};
use crate::gate;
use crate::history::{self, Against};
use crate::{stored, typed};

/// An earlier document, and how much worse the new one may be.
pub(crate) struct Baseline {
    was: Observed,
    /// Other saved documents of the test, whose spread says what is usual.
    others: Vec<Observed>,
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
    /// allowed. A document that was stopped has none: `is_whole` is false.
    pub(crate) fn beside(
        &self,
        now: &Observed,
        is_whole: bool,
        to: &mut Option<Beside>,
    ) -> Result<(), Failure> {
        if !is_whole {
            self.worst
                .iter()
                .for_each(|worst| gate::no_result(&format!("--fail-on-worse {worst}")));
            return Ok(());
        }
        let found = to.insert(self.was.until_beside(now, &self.others));
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
    let Some(path) = &options.baseline else {
        return match worst {
            Some(_) => Err(Failure::usage(anyhow!("--fail-on-worse needs --baseline"))),
            None => Ok(None),
        };
    };
    let option = typed::option("baseline");
    let was = match stored::saved_run(path) {
        Some(which) => match history::observed(&option, &which, &against, schemas, asked)? {
            Some(was) => was,
            None => return Ok(None),
        },
        None => read(&option, path, schemas, asked)?,
    };
    // A file can be compared with where the history cannot be read.
    let others = history::others(&against, schemas, asked).unwrap_or_else(|failure| {
        note(&format!("what is usual from day to day is not known: {}", failure.chain()));
        Vec::new()
    });
    Ok(Some(Baseline { was, others, worst }))
}

fn read(
    option: &str,
    path: &Path,
    schemas: &[&str],
    asked: Option<&[String]>,
) -> Result<Observed, Failure> {
    let bytes = stored::read(option, path, None, MAX_DOCUMENT)?;
    earlier(&bytes, schemas, asked).context(files::named(option, path)).map_err(Failure::usage)
}

/// The figures of an earlier document, if they can be set beside those of this test.
fn earlier(bytes: &[u8], schemas: &[&str], asked: Option<&[String]>) -> anyhow::Result<Observed> {
    let document = linerate_report::document::read(bytes)?;
    let schema = linerate_report::document::schema(bytes)?;
    ensure!(
        schemas.contains(&schema),
        "it is a {schema}; this run is compared with a {}",
        schemas.join(" or ")
    );
    if let Some(why) = document.why_partial() {
        bail!("it ended before its time and is no result: {why}");
    }
    let was = document.observed();
    // Another test has other figures, even on the same path.
    if let Some(other) = asked.and_then(|asked| was.differs_from(asked)) {
        bail!("it is of another test: {other}");
    }
    Ok(was)
}

#[cfg(test)]
mod tests {
    use linerate_core::plan::{Direction, Draft, Repeats, Workload};
    use linerate_core::record::{Leg, Record};

    use crate::args::KeepOptions;

    use super::*;

    #[test]
    fn a_run_that_was_stopped_is_held_against_nothing() {
        let run = |rate| {
            let test = Draft::new(Workload::Stream).resolve(1).expect("a test");
            let leg = Leg { throughput_bps: Some(rate), ..Leg::new(Direction::Up) };
            let record = Record { legs: vec![leg], ..Record::new(test) };
            Observed::runs([&record])
        };
        let worst = Some(Percent(5.0));
        let baseline = Baseline { was: run(100e6), others: Vec::new(), worst };
        let mut found = None;
        assert!(baseline.beside(&run(50e6), true, &mut found).is_err());
        assert!(found.take().is_some());
        assert!(baseline.beside(&run(50e6), false, &mut found).is_ok());
        assert_eq!(found, None);
    }

    #[test]
    fn an_earlier_run_of_another_test_is_refused() {
        let earlier = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/record.json");
        let options = BaselineOptions { baseline: Some(earlier.into()), fail_on_worse: None };
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
