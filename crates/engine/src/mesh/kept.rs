//! Reports that are kept on disk: an agent's, until the bus has taken them, so that one that was
//! killed sends them after its next start; and a coordinator's that its history does not take. The
//! oldest are dropped, so that no disk fills.

use std::collections::VecDeque;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use linerate_mesh::message::{MAX_MESSAGE, Report, decode, encode, is_id};

use crate::state_files::{read_file, remove_file, replace_file};

/// The directory in which each report is a file.
#[derive(Debug)]
pub(super) struct KeptReports {
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
    pub(super) const MAX_REPORTS: usize = 10_000;
    /// Most bytes that all kept reports have together.
    pub(super) const MAX_BYTES: u64 = 256 << 20;

    /// Makes the directory if there is none; only this user can read it.
    ///
    /// # Errors
    /// It cannot be made or read.
    pub(super) fn open(directory: &Path) -> io::Result<Self> {
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
    pub(super) fn keep(&mut self, report: &Report) -> io::Result<usize> {
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
    pub(super) fn oldest(&self) -> Option<Result<Report, PathBuf>> {
        let path = &self.kept.front()?.path;
        Some(read(path).ok_or_else(|| path.clone()))
    }

    /// Removes the oldest report, which the bus has taken.
    pub(super) fn forget_oldest(&mut self) -> io::Result<()> {
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
