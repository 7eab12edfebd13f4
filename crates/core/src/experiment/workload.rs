//! `[workload]`: a command and its keys, which are the options of a test
//! ([`crate::plan::options`]); the commands that are no test of the path have keys of their own.

use serde::{Deserialize, Serialize};

use crate::load::{DEFAULT_MIX, Mix, MixChoice};
use crate::plan::{Draft, PlanError, Test, Workload, options};
use crate::units::{ByteCount, TextError};

/// The workload of a cell.
#[derive(Debug, Clone, PartialEq)]
pub enum Work {
    /// A test of the path.
    Test(Box<Test>),
    /// Several tests at the same time.
    Load(Box<Mix>),
    /// A workload other than a network test.
    Special(Special),
}

/// The commands of workloads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Command {
    Test(Workload),
    Load,
    FileWrite,
    FileRead,
}

/// All commands and their names.
pub(super) const COMMANDS: [(&str, Command); 6] = [
    ("stream", Command::Test(Workload::Stream)),
    ("rr", Command::Test(Workload::Rr)),
    ("crr", Command::Test(Workload::Crr)),
    ("load", Command::Load),
    ("file_write", Command::FileWrite),
    ("file_read", Command::FileRead),
];

/// Keys that set the end of a run, of which one excludes the others.
pub(super) const EXTENTS: [&str; 4] = ["time", "bytes", "count", "total"];

/// The keys of a workload as they are set, defaults not yet filled in.
#[derive(Debug, Clone)]
pub(super) enum WorkDraft {
    Test(Draft),
    Load(LoadDraft),
    File(Command, FileDraft),
}

/// The keys of a mix.
#[derive(Debug, Clone, Default)]
pub(super) struct LoadDraft {
    mix: Option<String>,
    choice: MixChoice,
}

/// The keys of a file workload.
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
            Self::Load => vec!["mix", "time", "flows"],
            Self::FileWrite | Self::FileRead => vec!["size", "bytes", "directory"],
        }
    }
}

impl WorkDraft {
    pub(super) fn new(command: Command) -> Self {
        match command {
            Command::Test(workload) => Self::Test(Draft::new(workload)),
            Command::Load => Self::Load(LoadDraft::default()),
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
            Self::Load(load) => load.set(key, text),
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
            Self::Load(load) => {
                let choice = MixChoice { seed, ..load.choice };
                let mix = Mix::named(load.mix.as_deref().unwrap_or(DEFAULT_MIX), &choice);
                Ok(Work::Load(Box::new(mix.map_err(|why| ("mix", why))?)))
            }
            Self::File(command, file) => {
                let transfer = file.resolve().map_err(|why| ("bytes", why))?;
                Ok(Work::Special(match command {
                    Command::FileRead => Special::FileRead(transfer),
                    Command::FileWrite | Command::Load | Command::Test(_) => {
                        Special::FileWrite(transfer)
                    }
                }))
            }
        }
    }
}

impl LoadDraft {
    fn set(&mut self, key: &str, text: &str) -> Result<(), String> {
        match key {
            "mix" => self.mix = Some(text.to_owned()),
            "time" => {
                let time = text.parse();
                self.choice.time = Some(time.map_err(|error: TextError| error.to_string())?);
            }
            _ => self.choice.flows = Some(text.parse().map_err(|_| "`flows` is a number")?),
        }
        Ok(())
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
        Ok(FileTransfer { bytes, record_bytes, directory: self.directory })
    }
}

/// Bytes of each write of a file, if nothing is given: those of a stream's message.
const DEFAULT_RECORD: u64 = 128 << 10;
/// Largest file of a special workload, bytes.
const MAX_FILE: u64 = 16 << 30;

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

/// A file to write or read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileTransfer {
    /// Size of the file, bytes.
    pub bytes: u64,
    /// Size of each read or write, bytes.
    pub record_bytes: u64,
    /// Directory of the file; `None` for that of the experiment's file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directory: Option<String>,
}

/// What a special workload measures, each in the unit that its name says.
pub const SPECIAL_FIGURES: &[&str] =
    &["throughput_bps", "seconds", "bytes", "cpu_seconds", "storage_bytes"];

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
            "`rate` cannot be used with TCP: a TCP stream is limited by `pacing` or \
             `write-rate`"
        );
        assert!(work(Command::Test(Workload::Rr), &[("rate", "2.5k")]).is_ok());
    }

    #[test]
    fn a_load_is_a_mix_of_linerates() {
        let keys = [("mix", "tcp_nup"), ("time", "2s"), ("flows", "9")];
        let Ok(Work::Load(mix)) = work(Command::Load, &keys) else {
            panic!("it is a mix");
        };
        assert_eq!(mix.members[0].test.streams, 9);
        assert_eq!(mix.members[0].test.seed, 7);
        let error = work(Command::Load, &[("mix", "rul")]).unwrap_err();
        assert_eq!(error, "there is no mix `rul`; did you mean `rrul`?");
        assert!(work(Command::Load, &[("flows", "9")]).is_err());
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
        assert_eq!(error, "`streams` 1000: it must be 1 to 256");
        let error = work(STREAM, &[("direction", "sideways")]).unwrap_err();
        assert_eq!(error, "`direction` sideways: it must be up, down or both");
    }
}
