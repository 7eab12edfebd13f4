//! Workloads of an experiment that are no network test: [`Special`] says what each is.
//!
//! | module | what is in it |
//! |---|---|
//! | [`file`] | writing and reading a file |

mod file;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use linerate_core::experiment::Special;
use thiserror::Error;

use crate::stop::Stop;

/// A special workload that could not be run to its end.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SpecialError {
    /// The file system refused something.
    #[error("cannot {what} in {}", directory.display())]
    File {
        /// Operation that failed.
        what: &'static str,
        /// Where the file was, or was to be.
        directory: PathBuf,
        /// From the kernel.
        source: io::Error,
    },
    /// Somebody asked to stop.
    #[error("interrupted")]
    Interrupted,
}

/// Runs `special`; its directory is taken from `beside`, where the experiment's file is. The
/// figures are
/// [`SPECIAL_FIGURES`](linerate_core::experiment::SPECIAL_FIGURES).
///
/// # Errors
/// [`SpecialError`]; nothing is left behind then.
pub(crate) fn run(
    special: &Special,
    beside: &Path,
    stop: &Stop,
) -> Result<BTreeMap<String, f64>, SpecialError> {
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
