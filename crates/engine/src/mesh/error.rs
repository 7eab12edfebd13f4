//! Why an agent could not start, or a coordinator ends.

use std::io;
use std::path::PathBuf;

use linerate_history::HistoryError;
use linerate_mesh::bus::BusError;
use linerate_sys::netns::NamespaceError;
use thiserror::Error;

use crate::error::MeasureError;

/// Why an agent could not start, or a coordinator ends.
#[derive(Debug, Error)]
pub enum MeshError {
    /// This host cannot start an endpoint or a thread, or keep a key.
    #[error(transparent)]
    Host(#[from] MeasureError),
    /// The directory for unsent results cannot be used.
    #[error("cannot keep results in {}: {source}", directory.display())]
    Unsent {
        /// The directory.
        directory: PathBuf,
        /// What the kernel answered.
        source: io::Error,
    },
    /// Its namespace in a lab cannot be entered.
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
    /// The bus cannot be reached.
    #[error(transparent)]
    Bus(#[from] BusError),
    /// The history cannot be read.
    #[error(transparent)]
    History(#[from] HistoryError),
    /// Not all pairs were measured once.
    #[error("{missing} of {wanted} pairs were not measured")]
    Unmeasured {
        /// Number of pairs that were not measured.
        missing: usize,
        /// Number of pairs.
        wanted: usize,
    },
}
