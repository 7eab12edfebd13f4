//! Workloads of an experiment that are no network test: [`Special`] says what each is.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};

use linerate_core::experiment::{FileTransfer, Special};
use linerate_sys::file::{bytes_from_storage, drop_from_memory};
use linerate_sys::thread::CpuUsage;

use crate::clock::now_ns;
use crate::experiment::ExperimentError;
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
    let work = Work { transfer, directory: &directory, stop };
    match special {
        Special::FileWrite(_) => work.write(),
        Special::FileRead(_) => work.read(),
    }
}

// Writing and reading a file record by record, which a transfer over the network is compared with.

/// One transfer, about to be made.
struct Work<'a> {
    transfer: &'a FileTransfer,
    directory: &'a Path,
    stop: &'a Stop,
}

impl Work<'_> {
    /// From making the file to closing it, when all of it is in storage.
    fn write(&self) -> Result<BTreeMap<String, f64>, ExperimentError> {
        let started = Reading::now();
        let mut file = self.create()?;
        self.fill(&mut file)?;
        file.sync_all().map_err(self.cannot("put a file into storage"))?;
        drop(file);
        Ok(started.figures(self.transfer))
    }

    /// From opening the file to closing it, nothing of it being in memory. (A file system in memory
    /// has no other place; `storage_bytes` is then 0.)
    fn read(&self) -> Result<BTreeMap<String, f64>, ExperimentError> {
        let mut made = self.create()?;
        self.fill(&mut made)?;
        made.sync_all()
            .and_then(|()| drop_from_memory(&made))
            .map_err(self.cannot("move a file from memory to storage"))?;
        let started = Reading::now();
        // It has no name any more.
        let opened = File::open(format!("/proc/self/fd/{}", made.as_raw_fd()));
        let mut file = opened.map_err(self.cannot("open a file"))?;
        self.take(&mut file)?;
        drop(file);
        Ok(started.figures(self.transfer))
    }

    /// A file that nobody else sees and that is gone when it is closed.
    fn create(&self) -> Result<File, ExperimentError> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!(".linerate-{}-{number}", process::id());
        let path = self.directory.join(name);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true).mode(0o600);
        let file = options.open(&path).map_err(self.cannot("make a file"))?;
        std::fs::remove_file(&path).map_err(self.cannot("take a file's name away"))?;
        Ok(file)
    }

    fn fill(&self, file: &mut File) -> Result<(), ExperimentError> {
        self.each_record("write a file", |record| file.write_all(record))
    }

    fn take(&self, file: &mut File) -> Result<(), ExperimentError> {
        self.each_record("read a file", |record| file.read_exact(record))
    }

    /// Hands `step` the records of the file one after the other.
    fn each_record(
        &self,
        what: &'static str,
        mut step: impl FnMut(&mut [u8]) -> io::Result<()>,
    ) -> Result<(), ExperimentError> {
        let mut record = self.record();
        let mut left = self.transfer.bytes;
        while left > 0 {
            if self.stop.is_requested() {
                return Err(ExperimentError::Interrupted);
            }
            let length = left.min(record.len() as u64) as usize;
            step(&mut record[..length]).map_err(self.cannot(what))?;
            left -= length as u64;
        }
        Ok(())
    }

    fn record(&self) -> Vec<u8> {
        // Not all the same, so that no file system stores a hole in its place.
        let length = self.transfer.record_bytes.min(self.transfer.bytes);
        (0..length).map(|at| (at % 251) as u8).collect()
    }

    fn cannot(&self, what: &'static str) -> impl FnOnce(io::Error) -> ExperimentError {
        let directory = self.directory.to_owned();
        move |source| ExperimentError::File { what, directory, source }
    }
}

/// The clocks and accounts of this thread.
struct Reading {
    at_ns: u64,
    cpu: CpuUsage,
    from_storage: u64,
}

impl Reading {
    fn now() -> Self {
        Self { from_storage: bytes_from_storage(), cpu: CpuUsage::of_thread(), at_ns: now_ns() }
    }

    /// What happened since.
    fn figures(self, transfer: &FileTransfer) -> BTreeMap<String, f64> {
        let over = Self::now();
        let seconds = (over.at_ns - self.at_ns).max(1) as f64 / 1e9;
        let cpu = over.cpu.since(&self.cpu);
        let bytes = transfer.bytes as f64;
        let figures = [
            ("throughput_bps", bytes * 8.0 / seconds),
            ("seconds", seconds),
            ("bytes", bytes),
            ("cpu_seconds", (cpu.user + cpu.system).as_secs_f64()),
            ("storage_bytes", over.from_storage.saturating_sub(self.from_storage) as f64),
        ];
        figures.map(|(name, value)| (name.to_owned(), value)).into()
    }
}

#[cfg(test)]
mod tests {
    use linerate_core::experiment::{SPECIAL_FIGURES, Special};

    use super::*;

    fn transfer(bytes: u64, record_bytes: u64) -> FileTransfer {
        FileTransfer { bytes, record_bytes, directory: None }
    }

    #[test]
    fn a_transfer_leaves_its_figures_and_no_file() {
        let directory = tempfile::tempdir().unwrap();
        for kind in [Special::FileWrite, Special::FileRead] {
            // A record that does not divide the whole.
            let special = kind(transfer(100_000, 999));
            let figures = run(&special, directory.path(), &Stop::new()).unwrap();
            let names: Vec<&str> = figures.keys().map(String::as_str).collect();
            assert_eq!(names.len(), SPECIAL_FIGURES.len());
            assert!(names.iter().all(|name| SPECIAL_FIGURES.contains(name)));
            assert_eq!(figures["bytes"], 100_000.0);
            let bits = figures["throughput_bps"] * figures["seconds"];
            assert!((bits - 800_000.0).abs() < 1.0, "{figures:?}");
            assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
        }
    }

    #[test]
    fn errors_name_the_directory() {
        let special = Special::FileWrite(FileTransfer {
            directory: Some("nowhere".to_owned()),
            ..transfer(1, 1)
        });
        let error = run(&special, Path::new("/"), &Stop::new()).unwrap_err();
        assert_eq!(error.to_string(), "cannot make a file in /nowhere");
    }

    #[test]
    fn a_stop_is_seen_between_two_records() {
        let stop = Stop::new();
        stop.request();
        let directory = tempfile::tempdir().unwrap();
        let special = Special::FileWrite(transfer(1 << 30, 1));
        let error = run(&special, directory.path(), &stop).unwrap_err();
        assert!(matches!(error, ExperimentError::Interrupted));
    }
}
