//! Workloads of an experiment that are no network test: [`Special`] says what each is.
//!
//! | module | what is in it |
//! |---|---|
//! | [`file`] | writing and reading a file |

mod file;

use std::collections::BTreeMap;
use std::path::Path;

use linerate_core::experiment::Special;

use super::error::ExperimentError;
use crate::stop::Stop;

/// Runs `special`; its directory is taken from `beside`, where the experiment's file is. The
/// figures are
/// [`SPECIAL_FIGURES`](linerate_core::experiment::SPECIAL_FIGURES).
///
/// # Errors
/// The file system refuses, or somebody asked to stop; nothing is left behind then.
pub(crate) fn run(
    special: &Special,
    beside: &Path,
    stop: &Stop,
) -> Result<BTreeMap<String, f64>, ExperimentError> {
    let (Special::FileWrite(transfer) | Special::FileRead(transfer)) = special;
    let directory = match &transfer.directory {
        Some(directory) => beside.join(directory),
        None => beside.to_owned(),
    };
    let work = file::Work { transfer, directory: &directory, stop };
    match special {
        Special::FileWrite(_) => work.write(),
        Special::FileRead(_) => work.read(),
    }
}
