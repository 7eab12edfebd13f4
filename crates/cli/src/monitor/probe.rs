//! `probe`: runs a test when Prometheus asks for it, as blackbox_exporter does.

use std::sync::Mutex;
use std::time::Instant;

use linerate_core::monitor::{Monitor, Task};
use linerate_web::{Answer, Ask};

use super::{attempt, metrics};
use crate::args::ProbeArgs;
use crate::failure::Failure;
use crate::{access, output, run};

/// Answers until a signal ends it.
///
/// # Errors
/// The file is wrong, or the address cannot be had.
pub(crate) fn execute(args: &ProbeArgs) -> Result<(), Failure> {
    let monitor = super::read(&args.file)?;
    let stop = run::signals()?;
    // One probe at a time: two tests would disturb each other.
    let turn = Mutex::new(());
    let answer = move |ask: &Ask| match turn.try_lock() {
        Ok(_turn) => answer(&monitor, ask),
        Err(_) => Answer::plain(503, "another probe is running: scrape later\n"),
    };
    let bound = access::serve("--listen", args.listen, None, answer)?;
    output::note(&format!("probes at http://{bound}/probe?target=PATH&module=TEST"));
    run::wait_for(&stop);
    Ok(())
}

fn answer(monitor: &Monitor, ask: &Ask) -> Answer {
    if ask.is_form || ask.is_of_other_site {
        return Answer::plain(403, "a page of another site starts no test\n");
    }
    if ask.path != "/probe" {
        let hint = "linerate probe: ask for /probe?target=PATH&module=TEST\n";
        return Answer::plain(404, hint);
    }
    let (target, module) = (ask.value("target"), ask.value("module"));
    let path = monitor.paths.iter().position(|path| {
        let host = path.host.to_string();
        target.is_some_and(|target| target == path.name || target == host)
    });
    let Some(path) = path else {
        return Answer::plain(403, "target: the file of this probe has no such path\n");
    };
    let is_module = |name: &str| module.is_none_or(|module| module == name);
    let mut tests = monitor.tests.iter();
    let test = tests.position(|test| test.paths.contains(&path) && is_module(&test.name));
    let Some(test) = test else {
        return Answer::plain(404, "module: this path has no test of that name\n");
    };
    let begun = Instant::now();
    let done = attempt::measure(monitor, Task { test, path }, None, None);
    let seconds = begun.elapsed().as_secs_f64();
    Answer::metrics(match done {
        Ok(done) if done.document.why_partial().is_none() => {
            let observed = done.document.observed();
            let figures = observed.figures().map(|(name, value)| (name.to_owned(), value));
            let cause = observed.cause().map(|cause| cause.name());
            metrics::probed(&figures.collect::<Vec<_>>(), cause, seconds)
        }
        Ok(_) => metrics::probed(&[], None, seconds),
        Err(failure) => {
            output::note(&failure.chain());
            metrics::probed(&[], None, seconds)
        }
    })
}
