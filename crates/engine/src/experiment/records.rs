//! The file of an experiment's runs: one JSON line for each, appended as it comes.

use std::fs::{OpenOptions, TryLockError};
use std::path::Path;

use linerate_core::ceilings;
use linerate_core::experiment::{Experiment, Run};
use serde::{Deserialize, Serialize};

use super::ExperimentError;
use crate::state_files::{JsonLog, StateError};

/// Schema of the file's first line.
const SCHEMA: &str = "linerate.experiment-records/1";

/// The runs of an experiment on a disk, for one process at a time.
#[derive(Debug)]
pub struct RecordsFile {
    log: JsonLog,
    runs: Vec<Run>,
}

/// The first line.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Head {
    schema: String,
    title: String,
    identity: String,
}

impl RecordsFile {
    /// Opens or makes the file, and reads what is in it. A last line that was cut off, as by a
    /// power failure, is cut off whole. `fresh` throws away what there is.
    ///
    /// # Errors
    /// It cannot be opened, is in use, or holds something else; its content is as it was then.
    pub fn open(
        path: &Path,
        experiment: &Experiment,
        fresh: bool,
    ) -> Result<Self, ExperimentError> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let file = options.open(path).map_err(StateError::new("open", path))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let path = path.to_owned();
                return Err(ExperimentError::InUse { path });
            }
            Err(TryLockError::Error(source)) => return Err(StateError::new("lock", path)(source))?,
        }
        let mut records = Self { log: JsonLog::new(path.to_owned(), file), runs: Vec::new() };
        let head = Head {
            schema: SCHEMA.to_owned(),
            title: experiment.title.clone(),
            identity: experiment.identity(),
        };
        let end = if fresh { 0 } else { records.read(&head)? };
        records.log.cut(end)?;
        if end == 0 {
            records.log.add(&head)?;
        }
        Ok(records)
    }

    /// How many runs are in it.
    pub fn len(&self) -> usize {
        self.runs.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// The runs that were in it when it was opened; they are not kept here.
    pub(super) fn take_runs(&mut self) -> Vec<Run> {
        std::mem::take(&mut self.runs)
    }

    /// Adds a run, and waits until it is on the disk.
    ///
    /// # Errors
    /// The disk is full or failing.
    pub(super) fn append(&mut self, run: &Run) -> Result<(), ExperimentError> {
        Ok(self.log.add(run)?)
    }

    /// Reads head and runs; the byte at which the last whole line ends.
    fn read(&mut self, head: &Head) -> Result<u64, ExperimentError> {
        let path = self.log.path();
        let malformed =
            |line, why: String| ExperimentError::Malformed { path: path.to_owned(), line, why };
        let (end, torn) = self.log.read(|number, line| {
            let not_run = |error: serde_json::Error| malformed(number, error.to_string());
            if number == 1 {
                let found: Head = serde_json::from_slice(line).map_err(not_run)?;
                if (&found.schema, &found.identity) != (&head.schema, &head.identity) {
                    let path = path.to_owned();
                    return Err(ExperimentError::Other { path });
                }
                return Ok(());
            }
            let mut run = Run::parse(line).map_err(not_run)?;
            // Verdicts and commands are made from the evidence, not taken from a file.
            if let Some(record) = &mut run.record {
                ceilings::annotate(record);
            }
            self.runs.push(run);
            Ok(())
        })?;
        // Nothing but half a head: somebody else's file would have a line end somewhere, or be
        // long.
        if end == 0 && torn > MAX_HEAD {
            return Err(malformed(1, "it has no end".to_owned()));
        }
        Ok(end)
    }
}

/// A head is shorter than this, bytes.
const MAX_HEAD: usize = 4096;
