//! Workloads that are no network test: what a report held the network against.

use serde::{Deserialize, Serialize};

/// Something to be run in place of a test. Its figures have the names of a record's:
/// [`SPECIAL_FIGURES`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case")]
pub enum Special {
    /// Writes a new file, waits until it is on the disk, and removes it.
    FileWrite(FileTransfer),
    /// Reads a file back that was written before and is no longer in memory.
    FileRead(FileTransfer),
}

/// A file that is written or read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileTransfer {
    /// All of it, bytes.
    pub bytes: u64,
    /// Of each read or write, bytes.
    pub record_bytes: u64,
    /// Where it is; without one, beside the experiment's file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directory: Option<String>,
}

/// What a special workload measures, each in the unit that its name says.
pub const SPECIAL_FIGURES: &[&str] = &[
    "throughput_bps",
    "seconds",
    "bytes",
    "cpu_seconds",
    "storage_bytes",
];
