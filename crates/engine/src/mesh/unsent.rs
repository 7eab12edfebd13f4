//! Reports that the bus has not taken yet. They are kept on disk, so that an agent that was killed
//! sends them after its next start.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Read};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use linerate_mesh::message::{MAX_MESSAGE, Report, decode, encode, is_id};

use crate::own_directory::replace_file;

/// Reports that are read in one go, so that a directory of any size takes a bounded time.
const MAX_READ: usize = 10_000;

/// The directory in which each report is a file.
#[derive(Debug)]
pub(super) struct Unsent(PathBuf);

impl Unsent {
    /// Makes the directory if there is none; only this user can read it.
    pub(super) fn open(directory: &Path) -> io::Result<Self> {
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(0o700).create(directory)?;
        Ok(Self(directory.to_owned()))
    }

    /// Keeps a report. When this returns, the whole report is on disk.
    pub(super) fn keep(&self, report: &Report) -> io::Result<()> {
        replace_file(&self.path(&report.id), &encode(report), 0o600)
    }

    /// Removes a report that the bus has taken.
    pub(super) fn forget(&self, id: &str) -> io::Result<()> {
        fs::remove_file(self.path(id))
    }

    /// The reports that are kept, and the paths of files that cannot be read as one.
    pub(super) fn all(&self) -> io::Result<(Vec<Report>, Vec<PathBuf>)> {
        let (mut reports, mut others) = (Vec::new(), Vec::new());
        for entry in fs::read_dir(&self.0)?.take(MAX_READ) {
            let path = entry?.path();
            if path.extension().is_none_or(|end| end != "json") {
                continue;
            }
            match read(&path) {
                Some(report) => reports.push(report),
                None => others.push(path),
            }
        }
        Ok((reports, others))
    }

    fn path(&self, id: &str) -> PathBuf {
        debug_assert!(is_id(id));
        self.0.join(format!("{id}.json"))
    }
}

fn read(path: &Path) -> Option<Report> {
    let mut bytes = Vec::new();
    let file = File::open(path).ok()?;
    file.take(MAX_MESSAGE as u64 + 1)
        .read_to_end(&mut bytes)
        .ok()?;
    decode(&bytes).ok()
}

#[cfg(test)]
mod tests {
    use linerate_mesh::message::Outcome;

    use super::*;

    #[test]
    fn a_report_is_kept_until_it_is_forgotten_and_other_files_are_named() {
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path().join("a/b");
        let unsent = Unsent::open(&place).unwrap();
        let report = Report {
            id: "r1".to_owned(),
            test: "bulk".to_owned(),
            from: "ams".to_owned(),
            to: "fra".to_owned(),
            turned: false,
            outcome: Outcome::Finished {
                document: "{}".to_owned(),
            },
        };
        unsent.keep(&report).unwrap();
        fs::write(place.join("x.json"), "{\"v\":1}").unwrap();
        fs::write(place.join("r2.new"), "half").unwrap();
        let again = Unsent::open(&place).unwrap();
        let (reports, others) = again.all().unwrap();
        assert_eq!(
            (reports, others),
            (vec![report], vec![place.join("x.json")])
        );
        again.forget("r1").unwrap();
        assert!(again.all().unwrap().0.is_empty());
    }
}
