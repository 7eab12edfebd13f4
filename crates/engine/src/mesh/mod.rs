//! A mesh: sites that measure the paths between each other, when a coordinator asks them to.
//!
//! The crate `linerate-mesh` decides which test comes next, what an owner allows and what the
//! results mean. Here are the coordinator, the agent of a site with its endpoint, and a bus inside
//! one process.
//!
//! | module | what is in it |
//! |---|---|
//! | `agent` | the agent of a site: its endpoint, its tasks and their results |
//! | `bus` | a bus inside one process |
//! | `coordinator` | tasks offered to the agents, their reports taken and saved |
//! | `owner` | the limits of the site's owner, and the payload of the last 24 hours |
//!
//! This file has what agent and coordinator share: reports on disk, the run of a task, errors.

mod agent;
mod bus;
mod coordinator;
mod owner;

use std::collections::VecDeque;
use std::fs::{self, DirBuilder};
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

pub use agent::{Agent, AgentOptions};
pub use bus::LocalBus;
pub use coordinator::{Coordinator, MeshResult, RUN, matrix_cell, proofs_of};
use linerate_core::record::Status;
use linerate_core::units::{DEFAULT_PORT, EndpointName};
use linerate_core::wire::Key;
use linerate_history::HistoryError;
use linerate_mesh::bus::BusError;
use linerate_mesh::message::{MAX_MESSAGE, Outcome, Report, Task, decode, encode, is_id};
use linerate_sys::netns::NamespaceError;
use thiserror::Error;

use crate::client::Client;
use crate::error::MeasureError;
pub use crate::own_endpoint::random_key as new_key;
use crate::state_files::{read_file, remove_file, replace_file};
use crate::stop::Stop;
use crate::target::Target;

// Reports that are kept on disk.

/// A directory in which each report is a file: an agent's, until the bus has taken them, so that
/// one that was killed sends them after its next start; and a coordinator's that its history does
/// not take. The oldest are dropped, so that no disk fills.
#[derive(Debug)]
struct KeptReports {
    directory: PathBuf,
    /// The reports that are kept, the oldest first.
    kept: VecDeque<KeptReport>,
    max_reports: usize,
    max_bytes: u64,
}

#[derive(Debug)]
struct KeptReport {
    path: PathBuf,
    bytes: u64,
}

impl KeptReports {
    /// Most reports that are kept.
    const MAX_REPORTS: usize = 10_000;
    /// Most bytes that all kept reports have together.
    const MAX_BYTES: u64 = 256 << 20;

    /// Makes the directory if there is none; only this user can read it.
    ///
    /// # Errors
    /// It cannot be made or read.
    fn open(directory: &Path) -> io::Result<Self> {
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(0o700).create(directory)?;
        let mut found = Vec::new();
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            let path = entry.path();
            if path.extension().is_some_and(|end| end == "json") {
                let metadata = entry.metadata()?;
                let bytes = metadata.len();
                found.push((metadata.modified()?, KeptReport { path, bytes }));
            }
        }
        found.sort_by(|a, b| (a.0, &a.1.path).cmp(&(b.0, &b.1.path)));
        Ok(Self {
            directory: directory.to_owned(),
            kept: found.into_iter().map(|(_, kept)| kept).collect(),
            max_reports: Self::MAX_REPORTS,
            max_bytes: Self::MAX_BYTES,
        })
    }

    /// Keeps a report: when this returns, the whole report is on disk. Returns how many of the
    /// oldest reports were dropped to make room for it.
    ///
    /// # Errors
    /// It cannot be written, or its id is no name of a file.
    fn keep(&mut self, report: &Report) -> io::Result<usize> {
        if !is_id(&report.id) {
            return Err(io::ErrorKind::InvalidFilename.into());
        }
        let path = self.directory.join(format!("{}.json", report.id));
        let encoded = encode(report);
        replace_file(&path, &encoded, 0o600)?;
        self.kept.retain(|kept| kept.path != path);
        let bytes = encoded.len() as u64;
        self.kept.push_back(KeptReport { path, bytes });
        let mut dropped = 0;
        while self.is_over() {
            self.forget_oldest()?;
            dropped += 1;
        }
        Ok(dropped)
    }

    /// The oldest report; as an error the path of its file, where that cannot be read as a report.
    fn oldest(&self) -> Option<Result<Report, PathBuf>> {
        let path = &self.kept.front()?.path;
        Some(read(path).ok_or_else(|| path.clone()))
    }

    /// Removes the oldest report, which the bus has taken.
    fn forget_oldest(&mut self) -> io::Result<()> {
        let Some(oldest) = self.kept.front() else {
            return Ok(());
        };
        remove_file(&oldest.path)?;
        self.kept.pop_front();
        Ok(())
    }

    fn is_over(&self) -> bool {
        let bytes: u64 = self.kept.iter().map(|kept| kept.bytes).sum();
        self.kept.len() > 1 && (self.kept.len() > self.max_reports || bytes > self.max_bytes)
    }
}

fn read(path: &Path) -> Option<Report> {
    let text = read_file(path, MAX_MESSAGE as u64).ok()??;
    decode(text.as_bytes()).ok()
}

// A task: one test between this host and the endpoint of another site.

/// Runs the test of a task, and answers its outcome with the payload that it has carried, in bytes,
/// with that of the warm-up, where that is known. A run that ended early is a failure.
fn run(
    task: &Task,
    addresses: Vec<SocketAddr>,
    key: Option<Key>,
    stop: Stop,
) -> (Outcome, Option<u64>) {
    match record(task, addresses, key, stop) {
        Ok((document, bytes)) => (Outcome::Finished { document }, Some(bytes)),
        Err(why) => (Outcome::Failed { why }, None),
    }
}

fn record(
    task: &Task,
    addresses: Vec<SocketAddr>,
    key: Option<Key>,
    stop: Stop,
) -> Result<(String, u64), String> {
    let first = *addresses.first().ok_or("the host has no address")?;
    let target = Target { addresses, key, ..Target::at(&task.address, first) };
    let run =
        Client::connect(target, stop).and_then(|mut client| client.run_once(&task.work, &mut ()));
    let (record, error) = run.map_err(|error| error.to_string())?;
    if let Some(error) = error {
        return Err(error.to_string());
    }
    if record.status != Status::Complete {
        return Err("it ended before its time".to_owned());
    }
    let document = serde_json::to_string(&record).map_err(|error| error.to_string())?;
    // In the warm-up it carried as much in the same time.
    let whole = 1.0 + task.work.warm_up.as_secs_f64() / record.seconds.max(1e-9);
    Ok((document, (record.bytes() as f64 * whole) as u64))
}

/// The addresses of the endpoint that the test is run against.
fn addresses(task: &Task) -> Result<Vec<SocketAddr>, String> {
    let name: EndpointName = task.address.parse().map_err(|_| "its address is not valid")?;
    let found = (name.host.as_str(), name.port.unwrap_or(DEFAULT_PORT)).to_socket_addrs();
    Ok(found.map_err(|error| format!("{}: {error}", name.host))?.collect())
}

// Errors: why an agent could not start, or a coordinator ends.

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

#[cfg(test)]
mod tests {
    use linerate_mesh::message::Outcome;

    use super::*;

    fn report(id: &str) -> Report {
        Report {
            id: id.to_owned(),
            test: "bulk".to_owned(),
            from: "ams".to_owned(),
            to: "fra".to_owned(),
            turned: false,
            outcome: Outcome::Finished { document: "{}".to_owned() },
        }
    }

    /// The ids of the reports, the oldest first. All are forgotten.
    fn drained(mut kept: KeptReports) -> Vec<String> {
        let mut ids = Vec::new();
        while let Some(oldest) = kept.oldest() {
            ids.push(oldest.unwrap().id);
            kept.forget_oldest().unwrap();
        }
        ids
    }

    #[test]
    fn a_report_is_kept_until_it_is_forgotten_and_other_files_are_named() {
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path().join("a/b");
        let mut kept = KeptReports::open(&place).unwrap();
        fs::write(place.join("a.json"), "{\"v\":1}").unwrap();
        fs::write(place.join("r2.new"), "half").unwrap();
        assert_eq!(kept.keep(&report("r1")).unwrap(), 0);
        let mut again = KeptReports::open(&place).unwrap();
        assert_eq!(again.oldest(), Some(Err(place.join("a.json"))));
        again.forget_oldest().unwrap();
        assert_eq!(again.oldest(), Some(Ok(report("r1"))));
        again.forget_oldest().unwrap();
        assert!(again.oldest().is_none());
        assert!(KeptReports::open(&place).unwrap().oldest().is_none());
    }

    #[test]
    fn the_oldest_reports_are_dropped_beyond_a_number_and_beyond_a_size() {
        let directory = tempfile::tempdir().unwrap();
        let open = |max_reports, max_bytes| {
            let mut kept = KeptReports::open(directory.path()).unwrap();
            (kept.max_reports, kept.max_bytes) = (max_reports, max_bytes);
            kept
        };
        let mut kept = open(2, u64::MAX);
        let dropped = ["r3", "r1", "r2"].map(|id| kept.keep(&report(id)).unwrap());
        assert_eq!(dropped, [0, 0, 1]);
        // The same report again replaces itself.
        assert_eq!(kept.keep(&report("r2")).unwrap(), 0);
        // What an earlier agent has left counts, too; the newest stays whatever its size.
        let mut kept = open(10, 10);
        assert_eq!(kept.keep(&report("r4")).unwrap(), 2);
        assert_eq!(drained(kept), ["r4"]);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }
}
