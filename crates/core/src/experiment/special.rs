//! Workloads of an experiment that are no network test: what a report holds the network against.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::plan::MAX_MESSAGE;
use crate::units::ByteCount;

/// A workload that is no network test.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "command", rename_all = "snake_case")]
pub enum Special {
    /// A new file is written record by record and closed.
    FileWrite(FileTransfer),
    /// A file is opened and read record by record; it was written just before, which is not measured.
    FileRead(FileTransfer),
}

/// What is written or read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FileTransfer {
    /// All of it, bytes: 1 to 64 GiB.
    pub bytes: ByteCount,
    /// Bytes of each write or read, 1 to 64 MiB.
    pub record_bytes: ByteCount,
    /// A write ends when all is in storage; a read finds nothing in memory.
    pub sync: bool,
    /// Where the file is made; default: where the experiment's file is. It has no name and is gone afterwards.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directory: Option<String>,
}

/// A key or a value that a special workload does not have.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SpecialError {
    /// There is no such key.
    #[error("{command} has no `{key}`: it has {}", Special::KEYS.join(", "))]
    Key {
        /// The workload.
        command: &'static str,
        /// As written.
        key: String,
    },
    /// The value is none of that key.
    #[error("`{key}` is {value:?}: it must be {allowed}")]
    Value {
        /// The key.
        key: &'static str,
        /// As written.
        value: String,
        /// What may stand there.
        allowed: &'static str,
    },
}

impl Special {
    /// The names of all of them.
    pub const COMMANDS: &'static [&'static str] = &["file_write", "file_read"];
    /// The keys that each of them has.
    pub const KEYS: &'static [&'static str] = &["size", "bytes", "sync", "directory"];
    /// The figures that each of them leaves, by the names of a record's: goodput in bits/s, wall-clock time in s, bytes,
    /// CPU time of the thread in s, and how many of the bytes storage had to give.
    pub const FIGURES: &'static [&'static str] = &[
        "throughput_bps",
        "seconds",
        "bytes",
        "cpu_seconds",
        "storage_bytes",
    ];

    /// The workload of that name, of 4 MiB in records of 1024 bytes; `None` where the name is none of
    /// [`Special::COMMANDS`].
    pub fn named(command: &str) -> Option<Self> {
        let transfer = FileTransfer {
            bytes: ByteCount(4 << 20),
            record_bytes: ByteCount(1024),
            sync: true,
            directory: None,
        };
        match command {
            "file_write" => Some(Self::FileWrite(transfer)),
            "file_read" => Some(Self::FileRead(transfer)),
            _ => None,
        }
    }

    /// Its name.
    pub fn command(&self) -> &'static str {
        match self {
            Self::FileWrite(_) => "file_write",
            Self::FileRead(_) => "file_read",
        }
    }

    /// Sets one of [`Special::KEYS`].
    ///
    /// # Errors
    /// [`SpecialError`]: no such key, or not its kind of value, or out of its range.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), SpecialError> {
        let command = self.command();
        let (Self::FileWrite(transfer) | Self::FileRead(transfer)) = self;
        match key {
            "size" => transfer.record_bytes = size("size", value, MAX_MESSAGE, "1B to 64MiB")?,
            "bytes" => transfer.bytes = size("bytes", value, 64 << 30, "1B to 64GiB")?,
            "sync" => transfer.sync = is_true("sync", value)?,
            "directory" if value.is_empty() || value.contains('\0') => {
                return Err(wrong("directory", value, "the name of a directory"));
            }
            "directory" => transfer.directory = Some(value.to_owned()),
            _ => {
                let key = key.to_owned();
                return Err(SpecialError::Key { command, key });
            }
        }
        Ok(())
    }
}

fn size(
    key: &'static str,
    value: &str,
    most: u64,
    allowed: &'static str,
) -> Result<ByteCount, SpecialError> {
    let size: Option<ByteCount> = value.parse().ok();
    size.filter(|size| (1..=most).contains(&size.0))
        .ok_or_else(|| wrong(key, value, allowed))
}

fn is_true(key: &'static str, value: &str) -> Result<bool, SpecialError> {
    match value {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err(wrong(key, value, "true or false")),
    }
}

fn wrong(key: &'static str, value: &str, allowed: &'static str) -> SpecialError {
    SpecialError::Value {
        key,
        value: value.to_owned(),
        allowed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_command_is_made_by_its_name_and_takes_each_key() {
        for command in Special::COMMANDS {
            let mut special = Special::named(command).unwrap();
            assert_eq!(special.command(), *command);
            for (key, value) in Special::KEYS.iter().zip(["4096", "1MiB", "false", "/tmp"]) {
                special.set(key, value).unwrap();
            }
            let (Special::FileWrite(transfer) | Special::FileRead(transfer)) = special;
            let expected = FileTransfer {
                bytes: ByteCount(1 << 20),
                record_bytes: ByteCount(4096),
                sync: false,
                directory: Some("/tmp".to_owned()),
            };
            assert_eq!(transfer, expected);
        }
        assert_eq!(Special::named("file_copy"), None);
    }

    #[test]
    fn what_a_special_does_not_have_is_refused_and_changes_nothing() {
        let mut special = Special::named("file_read").unwrap();
        let before = special.clone();
        for (key, value) in [
            ("streams", "2"),
            ("size", "0"),
            ("size", "65MiB"),
            ("size", "large"),
            ("bytes", "65GiB"),
            ("sync", "yes"),
            ("directory", ""),
        ] {
            assert!(special.set(key, value).is_err(), "{key}={value}");
        }
        assert_eq!(special, before);
        let error = special.set("streams", "2").unwrap_err().to_string();
        assert_eq!(error, "file_read has no `streams`: it has size, bytes, sync, directory");
    }
}
