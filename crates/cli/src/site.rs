//! The emulated path of `--lab`: built before a command runs, described in its document, and
//! removed at its end. Also the process that undoes treatments of this host when the one that
//! applied them is killed.

use std::path::Path;

use anyhow::anyhow;
use linerate_core::link::{LinkSpec, PathSpec, RateTrace};
use linerate_core::record::{Caveat, Check};
use linerate_core::units::{EndpointName, Family};
use linerate_engine::{
    Demo, LabOptions, LabPath, Target, prepare_for_lab, start_treatment_watch, undo_leftovers,
    watch_treatments,
};
use linerate_report::Document;

use crate::args::{PathOptions, WatchArgs};
use crate::failure::Failure;
use crate::files;
use crate::progress::Progress;
use crate::target::look_up;

/// Largest file of a recorded rate, in bytes.
const MAX_TRACE: u64 = 64 << 20;

/// Two hosts, the path between them and an endpoint at its far end, until this is dropped.
#[derive(Debug)]
pub(crate) enum Site {
    /// The path of `--lab`.
    Asked(LabPath),
    /// The demonstration, with its hidden fault.
    Demo(Demo),
}

impl Site {
    /// Builds the path and moves the calling thread to the client's end. The process must have only
    /// this thread.
    ///
    /// # Errors
    /// A recorded rate cannot be read, or this host allows no lab.
    pub(crate) fn build(
        spec: &PathSpec,
        family: Option<Family>,
        seed: u64,
    ) -> Result<Self, Failure> {
        let options = options(spec, seed)?;
        prepare_for_lab()?;
        let path = LabPath::build(spec, family, &options)?;
        path.enter()?;
        Ok(Self::Asked(path))
    }

    /// Builds two paths side by side.
    ///
    /// # Errors
    /// As [`Site::build`].
    pub(crate) fn build_two(
        specs: [&PathSpec; 2],
        family: Option<Family>,
        seed: u64,
    ) -> Result<[LabPath; 2], Failure> {
        prepare_for_lab()?;
        let build = |spec: &PathSpec| {
            let options = options(spec, seed)?;
            LabPath::build(spec, family, &options).map_err(Failure::from)
        };
        let [first, second] = specs;
        Ok([build(first)?, build(second)?])
    }

    /// Makes the demonstration path, as [`Site::build`].
    ///
    /// # Errors
    /// This host allows no lab.
    pub(crate) fn demo(family: Option<Family>, seed: u64) -> Result<Self, Failure> {
        prepare_for_lab()?;
        let demo = Demo::build(seed, family)?;
        demo.path().enter()?;
        Ok(Self::Demo(demo))
    }

    fn path(&self) -> &LabPath {
        match self {
            Self::Asked(path) => path,
            Self::Demo(demo) => demo.path(),
        }
    }

    /// The endpoint.
    pub(crate) fn target(&self) -> Target {
        self.path().target()
    }

    /// Describes the path in each record, with caveats if the emulator disturbed the run.
    pub(crate) fn describe(&self, document: &mut dyn Document) {
        self.path().describe(document.environments_mut());
        // Again, so that remedies name the emulated path and not its host, which ends with it.
        document.annotate();
    }

    /// The caveats of the emulator, for a document that does not describe the path.
    pub(crate) fn caveats(&self) -> Vec<Caveat> {
        self.path().caveats()
    }

    /// Says which fault the demonstration had, if this is one.
    pub(crate) fn reveal(&self, check: &mut Check) {
        if let Self::Demo(demo) = self {
            demo.reveal(check);
        }
    }
}

fn options(spec: &PathSpec, seed: u64) -> Result<LabOptions, Failure> {
    Ok(LabOptions { seed, traces: traces([&spec.up, &spec.down], Path::new(""))? })
}

/// The endpoint that the user named, or one in a lab that is built here.
///
/// # Errors
/// The name or the key is wrong, or this host allows no lab.
pub(crate) fn place(
    host: Option<EndpointName>,
    options: &PathOptions,
    seed: u64,
    progress: &mut Progress,
) -> Result<(Option<Site>, Target), Failure> {
    match (host, &options.lab) {
        (Some(host), _) => Ok((None, look_up(host, options, progress)?)),
        (None, Some(spec)) => {
            progress.phase("making the lab");
            let site = Site::build(spec, options.family(), seed)?;
            let target = site.target();
            Ok((Some(site), target))
        }
        (None, None) => Err(Failure::usage(anyhow!("no HOST and no --lab"))),
    }
}

/// Reads the recorded rates that links name; relative paths start from `directory`.
///
/// # Errors
/// One cannot be read, or is no recorded rate.
pub(crate) fn traces<'a>(
    links: impl IntoIterator<Item = &'a LinkSpec>,
    directory: &Path,
) -> Result<Vec<(String, RateTrace)>, Failure> {
    let mut traces: Vec<(String, RateTrace)> = Vec::new();
    for name in links.into_iter().filter_map(|link| link.trace.as_ref()) {
        if traces.iter().all(|(known, _)| known != name) {
            let trace = files::parse("", &directory.join(name), MAX_TRACE, RateTrace::parse)
                .map_err(|failure| failure.at(format!("trace={name}")))?;
            traces.push((name.clone(), trace));
        }
    }
    Ok(traces)
}

// The process that watches another one, and undoes its treatments when it is killed.

/// Undoes what killed processes left changed, and starts the watch of this process. Every command
/// that may change this host calls this before, while it is in the host's own network namespace,
/// where earlier commands made their changes. Warns of what the user should know, and returns it.
pub(crate) fn before_treating(progress: &mut Progress) -> Vec<String> {
    let notes = prepare_to_treat();
    notes.iter().for_each(|note| progress.warn(note));
    notes
}

/// As [`before_treating`], without warnings.
pub(crate) fn prepare_to_treat() -> Vec<String> {
    let mut notes = undo_leftovers();
    if let Err(error) = start_treatment_watch([WATCH_COMMAND]) {
        notes.push(format!(
            "nothing watches this process: if it is killed, what it has changed is undone at the \
             next start ({error})"
        ));
    }
    notes
}

/// Waits for the end of a process, and undoes what it left changed.
pub(crate) fn watch(args: &WatchArgs) {
    // Nobody reads the notes.
    let _notes = watch_treatments(args.pid, args.started);
}

/// Name of the hidden command that watches.
const WATCH_COMMAND: &str = "watch-treatments";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Command, command};

    #[test]
    fn the_watch_is_a_command_of_this_program() {
        let command = command(&format!("{WATCH_COMMAND} 17 4711")).expect("the engine calls it so");
        let Command::WatchTreatments(args) = command else {
            panic!("{command:?}");
        };
        assert_eq!((args.pid, args.started), (17, 4711));
    }
}
