//! A run with both hosts profiled, and the file that it is held against.

use std::collections::BTreeMap;
use std::path::Path;

use linerate_core::experiment::{FileTransfer, Special};
use linerate_core::plan::Test;
use linerate_core::profile::{DiskBeside, ProfileDocument, ProfileRequest};
use linerate_core::record::Record;

use crate::campaign::Observer;
use crate::client::{Client, Outcome};
use crate::error::MeasureError;
use crate::experiment::{ExperimentError, special};
use crate::stop::Stop;

/// Largest file that is written and read beside a transfer, bytes: a fast path carries more than a
/// disk has room for.
const MAX_DISK_FILE: u64 = 1 << 30;
/// Size of each read and write of the file, bytes.
const RECORD_BYTES: u64 = 128 << 10;

/// Runs a test while both hosts are profiled. What ends it early is in the error beside the
/// document.
///
/// # Errors
/// The test could not be begun.
pub fn profile(
    client: &mut Client,
    test: &Test,
    request: ProfileRequest,
    observer: &mut dyn Observer,
) -> Result<(ProfileDocument, Option<MeasureError>), MeasureError> {
    client.profile(Some(request));
    let outcome = client.run_observed(test, observer);
    client.profile(None);
    let Outcome { record, error, profiles, .. } = outcome?;
    let [client, server] = [profiles.client, profiles.server].map(|end| end.map(|end| *end));
    Ok((ProfileDocument::new(record, client, server), error))
}

/// Writes and reads a file as large as the transfer was, at most 1 GiB, in a directory; nothing is
/// left there.
///
/// # Errors
/// The file system refuses, or somebody asked to stop.
pub fn disk_beside(
    record: &Record,
    directory: &Path,
    stop: &Stop,
) -> Result<DiskBeside, ExperimentError> {
    let bytes = record.bytes().clamp(1, MAX_DISK_FILE);
    let transfer = FileTransfer { bytes, record_bytes: RECORD_BYTES, directory: None };
    let written = special::run(&Special::FileWrite(transfer.clone()), directory, stop)?;
    let read = special::run(&Special::FileRead(transfer), directory, stop)?;
    let figure =
        |figures: &BTreeMap<String, f64>, name: &str| figures.get(name).copied().unwrap_or(0.0);
    let from_storage = 100.0 * figure(&read, "storage_bytes") / bytes as f64;
    let write_bps = figure(&written, "throughput_bps");
    let read_bps = figure(&read, "throughput_bps");
    let slower = write_bps.min(read_bps);
    let absolute = directory.canonicalize().unwrap_or_else(|_| directory.to_owned());
    let path = record.throughput_bps().unwrap_or(0.0);
    Ok(DiskBeside {
        directory: absolute.display().to_string(),
        bytes,
        write_bps,
        read_bps,
        from_storage_percent: from_storage.min(100.0),
        path_over_disk: if slower > 0.0 { path / slower } else { 0.0 },
    })
}

#[cfg(test)]
mod tests {
    use linerate_core::experiment::SPECIAL_FIGURES;

    #[test]
    fn the_figures_of_a_file_are_those_that_are_read_here() {
        for name in ["throughput_bps", "storage_bytes"] {
            assert!(SPECIAL_FIGURES.contains(&name));
        }
    }
}
