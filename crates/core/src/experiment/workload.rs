//! `[workload]`: a command and its keys, which are the options of a test ([`crate::plan::options`]);
//! the commands that are no test of the path have keys of their own.

use super::special::{FileTransfer, Special};
use crate::plan::{Draft, PlanError, Test, Workload, options};
use crate::units::ByteCount;

/// What a cell runs.
#[derive(Debug, Clone, PartialEq)]
pub enum Work {
    /// A test of the path.
    Test(Box<Test>),
    /// Something else.
    Special(Special),
}

/// The commands that a workload can be of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Command {
    Test(Workload),
    FileWrite,
    FileRead,
}

/// All commands and their names.
pub(super) const COMMANDS: [(&str, Command); 5] = [
    ("stream", Command::Test(Workload::Stream)),
    ("rr", Command::Test(Workload::Rr)),
    ("crr", Command::Test(Workload::Crr)),
    ("file_write", Command::FileWrite),
    ("file_read", Command::FileRead),
];

/// Keys of which one excludes the others: when a run ends.
pub(super) const EXTENTS: [&str; 4] = ["time", "bytes", "count", "total"];

/// The keys of a workload as they are set, defaults not yet filled in.
#[derive(Debug, Clone)]
pub(super) enum WorkDraft {
    Test(Draft),
    File(Command, FileDraft),
}

/// The keys of a file that is written or read.
#[derive(Debug, Clone, Default)]
pub(super) struct FileDraft {
    bytes: Option<u64>,
    record_bytes: Option<u64>,
    directory: Option<String>,
}

impl Command {
    /// The names of its keys.
    pub(super) fn keys(self) -> Vec<&'static str> {
        match self {
            Self::Test(workload) => (options().iter())
                .filter(|option| option.workloads.contains(&workload) && !option.treatment_only)
                .map(|option| option.key)
                .collect(),
            Self::FileWrite | Self::FileRead => vec!["size", "bytes", "directory"],
        }
    }
}

impl WorkDraft {
    pub(super) fn new(command: Command) -> Self {
        match command {
            Command::Test(workload) => Self::Test(Draft::new(workload)),
            Command::FileWrite | Command::FileRead => Self::File(command, FileDraft::default()),
        }
    }

    /// Sets a key to the text of its value.
    ///
    /// # Errors
    /// Why the value cannot be read.
    pub(super) fn set(&mut self, key: &str, text: &str) -> Result<(), String> {
        match self {
            Self::Test(draft) => draft.set(key, text).map_err(|error| error.to_string()),
            Self::File(_, file) => file.set(key, text),
        }
    }

    /// The workload with every default filled in, and checked.
    ///
    /// # Errors
    /// What does not go together, or is out of range, and the key that it is about.
    pub(super) fn resolve(self, seed: u64) -> Result<Work, (&'static str, String)> {
        let fault = |error: PlanError| (error.key(), error.to_string());
        match self {
            Self::Test(draft) => {
                let test = draft.resolve(seed).map_err(fault)?;
                Ok(Work::Test(Box::new(test)))
            }
            Self::File(command, file) => {
                let transfer = file.resolve().map_err(|why| ("bytes", why))?;
                Ok(Work::Special(match command {
                    Command::FileRead => Special::FileRead(transfer),
                    Command::FileWrite | Command::Test(_) => Special::FileWrite(transfer),
                }))
            }
        }
    }
}

impl FileDraft {
    fn set(&mut self, key: &str, text: &str) -> Result<(), String> {
        let size = || text.parse::<ByteCount>().map(|bytes| Some(bytes.0));
        let size = || size().map_err(|error| error.to_string());
        match key {
            "bytes" => self.bytes = size()?,
            "size" => self.record_bytes = size()?,
            _ => self.directory = Some(text.to_owned()),
        }
        Ok(())
    }

    fn resolve(self) -> Result<FileTransfer, String> {
        let Some(bytes) = self.bytes else {
            return Err("a file needs `bytes`, the size of it".to_owned());
        };
        let record_bytes = self.record_bytes.unwrap_or(DEFAULT_RECORD);
        if !(1..=MAX_FILE).contains(&bytes) || !(1..=bytes).contains(&record_bytes) {
            return Err("a file has 1 byte to 16 GiB, and each write at most all of it".to_owned());
        }
        Ok(FileTransfer {
            bytes,
            record_bytes,
            directory: self.directory,
        })
    }
}

/// Bytes of each write of a file, if nothing is given: those of a stream's message.
const DEFAULT_RECORD: u64 = 128 << 10;
/// Largest file of a special workload, bytes.
const MAX_FILE: u64 = 16 << 30;

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: Command = Command::Test(Workload::Stream);

    fn work(command: Command, keys: &[(&str, &str)]) -> Result<Work, String> {
        let mut draft = WorkDraft::new(command);
        for (key, text) in keys {
            draft.set(key, text)?;
        }
        draft.resolve(7).map_err(|(_, why)| why)
    }

    #[test]
    fn no_command_has_two_keys_of_one_name() {
        for (name, command) in COMMANDS {
            let mut keys = command.keys();
            keys.sort_unstable();
            let count = keys.len();
            keys.dedup();
            assert_eq!(keys.len(), count, "{name}");
        }
    }

    #[test]
    fn keys_of_one_transport_are_refused_over_the_other() {
        let udp = [("protocol", "udp"), ("mss", "536")];
        assert_eq!(
            work(STREAM, &udp).unwrap_err(),
            "`mss` cannot be used with `protocol` udp: it is an option of TCP sockets"
        );
        let tcp = [("rate", "1mbit")];
        assert_eq!(
            work(STREAM, &tcp).unwrap_err(),
            "`rate` cannot be used with `protocol` tcp: a TCP stream is limited by `pacing` or \
             `write-rate`"
        );
        assert!(work(Command::Test(Workload::Rr), &[("rate", "2.5k")]).is_ok());
    }

    #[test]
    fn a_file_needs_its_size() {
        assert!(work(Command::FileRead, &[("size", "1024")]).is_err());
        let copied = work(Command::FileWrite, &[("bytes", "4MiB"), ("size", "1024")]);
        assert_eq!(
            copied,
            Ok(Work::Special(Special::FileWrite(FileTransfer {
                bytes: 4 << 20,
                record_bytes: 1024,
                directory: None,
            })))
        );
    }

    #[test]
    fn values_out_of_range_are_refused_with_the_range() {
        let error = work(STREAM, &[("streams", "1000")]).unwrap_err();
        assert_eq!(error, "`streams` cannot be 1000: it is a number, 1 to 128");
        let error = work(STREAM, &[("direction", "sideways")]).unwrap_err();
        assert_eq!(
            error,
            "`direction` cannot be sideways: it is one of up, down, both"
        );
    }
}
