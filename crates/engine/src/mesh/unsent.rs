//! Reports that the bus does not have yet, on the disk: an agent that is killed sends them when it
//! comes back.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use linerate_mesh::message::{MAX_MESSAGE, Report, decode, encode, is_id};

/// Most files that are kept: of a mesh that has no coordinator for a long time, the oldest runs.
const MAX_KEPT: usize = 10_000;

/// The directory.
#[derive(Debug)]
pub(super) struct Unsent(PathBuf);

impl Unsent {
    /// Makes the directory where there is none, for nobody else to read.
    pub(super) fn open(directory: &Path) -> io::Result<Self> {
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(0o700).create(directory)?;
        Ok(Self(directory.to_owned()))
    }

    /// Keeps a report: after that it is on the disk whole.
    pub(super) fn keep(&self, report: &Report) -> io::Result<()> {
        let path = self.path(&report.id);
        let new = path.with_extension("new");
        let mut file = File::create(&new)?;
        file.write_all(&encode(report))?;
        file.sync_all()?;
        fs::rename(&new, &path)?;
        File::open(&self.0)?.sync_all()
    }

    /// The bus has it.
    pub(super) fn forget(&self, id: &str) -> io::Result<()> {
        fs::remove_file(self.path(id))
    }

    /// All that are kept, and the names of files that are none.
    pub(super) fn all(&self) -> io::Result<(Vec<Report>, Vec<PathBuf>)> {
        let (mut reports, mut others) = (Vec::new(), Vec::new());
        for entry in fs::read_dir(&self.0)?.take(MAX_KEPT) {
            let path = entry?.path();
            if path
                .extension()
                .is_some_and(|extension| extension == "json")
            {
                match read(&path) {
                    Some(report) => reports.push(report),
                    None => others.push(path),
                }
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
    fn what_is_kept_is_found_again_until_it_was_sent_and_nothing_else_is_believed() {
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
