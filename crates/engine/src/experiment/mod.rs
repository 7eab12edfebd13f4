//! Runs experiments: each run on a path of its own, kept as it comes.
//!
//! [`run_experiment`] makes the runs that [`Experiment::next`] asks for and appends each to a
//! [`RecordsFile`]; what is in that file already is not run again. A lab is made for each run and
//! taken away after it, so that nothing is left of one run for the next: no queue, no cached
//! metrics of TCP, no counter.
//!
//! | module | what is in it |
//! |---|---|
//! | `attempt` | one run of a cell: its path, its shares of a CPU, its treatments |
//! | `records` | the file of runs |
//! | `special` | workloads that are no network test |

mod attempt;
mod records;
pub(crate) mod special;

use std::io;
use std::path::{Path, PathBuf};
use std::time::Instant;

use linerate_core::experiment::{Ending, Estimate, Experiment, ExperimentDocument, Run, Slot};
use linerate_core::link::RateTrace;
use linerate_core::record::Interval;
pub use records::RecordsFile;
use thiserror::Error;

use crate::category::{Categorized, Category};
use crate::error::MeasureError;
use crate::lab::LabError;
use crate::qos::QosError;
use crate::state_files::StateError;
use crate::stop::Stop;
use crate::target::Target;
use crate::words::chain;

/// What an experiment finds around it.
#[derive(Debug, Clone)]
pub struct ExperimentSite<'a> {
    /// Directory of the experiment's file, to which its paths are relative.
    pub directory: &'a Path,
    /// Recorded rates by the name that the links' specs give them.
    pub traces: &'a [(String, RateTrace)],
    /// The endpoint, where its path is a real one.
    pub target: Option<&'a Target>,
}

/// How far an experiment is, as a run begins.
#[derive(Debug, Clone, PartialEq)]
pub struct ExperimentProgress {
    /// The run that begins.
    pub slot: Slot,
    /// Its cell in words; empty where there are no factors.
    pub cell: String,
    /// Runs that were made and count.
    pub done: usize,
    /// Runs that are left, this one included; with a precision to reach, at least.
    pub left: usize,
    /// Seconds that they take, as far as is known.
    pub left_s: Option<f64>,
}

/// Who looks on while an experiment runs.
pub trait ExperimentObserver: Send {
    /// A run begins.
    fn begins(&mut self, progress: &ExperimentProgress);

    /// An interval of it has passed; false ends the experiment.
    fn interval(&mut self, interval: &Interval) -> bool;

    /// A run was made; one that does not count says why.
    fn made(&mut self, run: &Run);
}

/// Runs what is left of an experiment. What ends it early is in the document as a caveat, and is
/// the error beside it.
///
/// # Errors
/// Nothing was run, or a run could not be kept.
pub fn run_experiment(
    experiment: &Experiment,
    site: &ExperimentSite<'_>,
    records: &mut RecordsFile,
    stop: &Stop,
    observer: &mut dyn ExperimentObserver,
) -> Result<(ExperimentDocument, Option<ExperimentError>), ExperimentError> {
    let mut course = ExperimentCourse {
        experiment,
        runs: records.take_runs(),
        unavailable: Vec::new(),
        error: None,
        estimate: Estimate::default(),
        failures: 0,
    };
    while let Some(slot) = course.next() {
        if stop.is_requested() {
            course.error = Some(ExperimentError::Interrupted);
            break;
        }
        observer.begins(&course.progress(slot));
        let began = Instant::now();
        let attempt = attempt::run(experiment, slot, site, stop, observer);
        match course.take(slot, attempt) {
            Ok(None) => {}
            Ok(Some(run)) => {
                let seconds = began.elapsed().as_secs_f64();
                course.estimate.add(slot.cell, seconds);
                records.append(&run)?;
                observer.made(&run);
                course.runs.push(run);
            }
            Err(reason) => {
                course.error = Some(reason);
                break;
            }
        }
    }
    course.finish()
}

/// How far an experiment has come.
pub(crate) struct ExperimentCourse<'a> {
    experiment: &'a Experiment,
    pub(crate) runs: Vec<Run>,
    /// Cells that cannot be run here, and why.
    unavailable: Vec<(usize, String)>,
    /// What ended it early.
    pub(crate) error: Option<ExperimentError>,
    estimate: Estimate,
    /// Runs that failed, one after the other.
    failures: u32,
}

impl ExperimentCourse<'_> {
    fn next(&self) -> Option<Slot> {
        self.experiment.next(&self.runs, &self.unavailable())
    }

    fn unavailable(&self) -> Vec<usize> {
        self.unavailable.iter().map(|(cell, _)| *cell).collect()
    }

    fn progress(&self, slot: Slot) -> ExperimentProgress {
        let remaining = self.experiment.remaining(&self.runs, &self.unavailable());
        ExperimentProgress {
            slot,
            cell: self.experiment.cell_title(slot.cell),
            done: self.runs.iter().filter(|run| run.counts()).count(),
            left: remaining.iter().sum(),
            left_s: self.estimate.remaining_s(self.experiment, &remaining),
        }
    }

    /// What becomes of an attempt: a run to be kept, or nothing where its cell cannot be run here.
    fn take(
        &mut self,
        slot: Slot,
        attempt: Result<Run, ExperimentError>,
    ) -> Result<Option<Run>, ExperimentError> {
        let error = match attempt {
            Ok(run) => {
                self.failures = 0;
                return Ok(Some(run));
            }
            Err(error) => error,
        };
        if error.is_interruption() {
            return Err(error);
        }
        if error.category() != Category::Failed {
            self.unavailable.push((slot.cell, chain(&error)));
            // Where none can be run it is not the cell's fault.
            let cells = 0..self.experiment.cells.len();
            let runnable = cells.filter(|cell| self.experiment.is_runnable(*cell));
            let is_over = self.runs.is_empty() && runnable.count() == self.unavailable.len();
            return if is_over { Err(error) } else { Ok(None) };
        }
        self.failures += 1;
        if self.failures == MAX_FAILURES {
            return Err(error);
        }
        let mut run = attempt::empty(self.experiment, slot);
        run.error = Some(chain(&error));
        Ok(Some(run))
    }

    /// The document; only the error where no run counts.
    fn finish(self) -> Result<(ExperimentDocument, Option<ExperimentError>), ExperimentError> {
        match self.error {
            Some(error) if !self.runs.iter().any(Run::counts) => Err(error),
            error => {
                let ending = Ending {
                    partial: error.as_ref().map(|error| chain(error)),
                    unavailable: self.unavailable,
                };
                Ok((self.experiment.assemble(self.runs, &ending), error))
            }
        }
    }
}

/// So many runs that fail one after the other are no accident.
const MAX_FAILURES: u32 = 3;

// Errors of an experiment.

/// A run of an experiment, or all of it, that could not be made.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ExperimentError {
    /// Its path could not be made.
    #[error("cannot make the path")]
    Lab(#[from] LabError),
    /// A CPU could not be shared out.
    #[error("cannot give the hosts their share of a CPU")]
    Cpu(#[source] LabError),
    /// The run failed.
    #[error("the run failed")]
    Measure(#[from] MeasureError),
    /// The file system refused something to a workload that is no network test.
    #[error("cannot {what} in {}", directory.display())]
    File {
        /// Operation that failed.
        what: &'static str,
        /// Where the file was, or was to be.
        directory: PathBuf,
        /// From the kernel.
        source: io::Error,
    },
    /// The cost of a policy's program could not be measured.
    #[error("cannot run the policy's program by itself")]
    Policy(#[from] QosError),
    /// The file of runs could not be opened, read or written.
    #[error(transparent)]
    State(#[from] StateError),
    /// Somebody else appends to the file of runs.
    #[error("{}: another process runs this experiment", path.display())]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// The runs in the file are not this experiment's.
    #[error(
        "{}: it holds runs of another experiment, or of this one before its file, seed or path was \
         changed; \
         --fresh throws them away, --records FILE keeps them", path.display()
    )]
    Other {
        /// The file.
        path: PathBuf,
    },
    /// A file is no file of runs.
    #[error("{}: line {line} is no run of an experiment: {why}; --records FILE takes another \
        file", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// Why.
        why: String,
    },
    /// It has a real path and nobody said which endpoint that leads to.
    #[error("the experiment has a real path, and no endpoint was resolved")]
    NoTarget,
    /// Stopped by the user.
    #[error("interrupted")]
    Interrupted,
}

impl Categorized for ExperimentError {
    fn category(&self) -> Category {
        match self {
            Self::Lab(error) => error.category(),
            Self::Measure(error) => error.category(),
            Self::Policy(error) => error.category(),
            Self::Cpu(_) => Category::Missing,
            Self::State(error) if error.is_of_writing() => Category::Failed,
            Self::State(_)
            | Self::InUse { .. }
            | Self::Other { .. }
            | Self::Malformed { .. }
            | Self::NoTarget => Category::Usage,
            Self::File { .. } | Self::Interrupted => Category::Failed,
        }
    }
}

impl ExperimentError {
    /// Whether the user asked for it.
    pub(crate) fn is_interruption(&self) -> bool {
        matches!(self, Self::Interrupted | Self::Measure(MeasureError::Interrupted))
    }
}

#[cfg(test)]
mod tests;
