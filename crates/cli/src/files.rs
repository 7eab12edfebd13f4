//! Files that the user names, read with a limit and written to the last byte.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, ensure};
use linerate_core::remedy::shell_word;
use linerate_core::units::ByteCount;
use linerate_core::wire::Key;
use linerate_engine::qos::SystemNames;
use linerate_engine::{AccessError, Iperf3Access};
use linerate_qos::policy::PolicyFile;

use crate::failure::Failure;
use crate::typed;

/// Largest document that is read, in bytes: it holds a thousand records with intervals and samples.
pub(crate) const MAX_DOCUMENT: u64 = 64 << 20;
/// Largest file of a key of 64 digits with blanks and line ends, or of a passphrase, in bytes.
const MAX_KEY_FILE: u64 = 4096;
/// Longest passphrase, in bytes: a control block of old netperf versions holds no more.
const MAX_PASSPHRASE: usize = 247;
/// Largest list of iperf3's users, in bytes: about ten thousand users.
const MAX_USERS_FILE: u64 = 1 << 20;
/// Largest PEM file, in bytes: a key of 8192 bits takes half of it.
const MAX_PEM_FILE: u64 = 16 << 10;

/// The file as errors name it: behind the option that gave it, which is empty for an argument.
pub(crate) fn named(option: &str, path: &Path) -> String {
    format!("{option} {}", path.display()).trim_start().to_owned()
}

/// Reads the whole file that `option` names; it may have `limit` bytes.
///
/// # Errors
/// The file cannot be read, or is larger.
pub(crate) fn read_bytes(option: &str, path: &Path, limit: u64) -> anyhow::Result<Vec<u8>> {
    let name = named(option, path);
    let file = File::open(path).with_context(|| name.clone())?;
    read_open(file, &name, limit)
}

/// Reads a text file.
///
/// # Errors
/// As [`read_bytes`], or the file is not UTF-8.
pub(crate) fn read_text(option: &str, path: &Path, limit: u64) -> anyhow::Result<String> {
    let bytes = read_bytes(option, path, limit)?;
    String::from_utf8(bytes).with_context(|| named(option, path))
}

/// Reads a text file and parses it.
///
/// # Errors
/// As [`read_text`], or `parse` fails: its error follows the file's name.
pub(crate) fn parse<T, E: Into<anyhow::Error>>(
    option: &str,
    path: &Path,
    limit: u64,
    parse: impl FnOnce(&str) -> Result<T, E>,
) -> Result<T, Failure> {
    let text = read_text(option, path, limit).map_err(Failure::usage)?;
    parse(&text).map_err(|error| Failure::usage(error.into().context(named(option, path))))
}

/// Largest policy file, bytes.
pub(crate) const MAX_POLICY: u64 = 4 << 20;

/// Reads the policies of the file that `option` names.
///
/// # Errors
/// As [`parse`].
pub(crate) fn policy(option: &str, path: &Path) -> Result<PolicyFile, Failure> {
    parse(option, path, MAX_POLICY, |text| PolicyFile::from_toml(text, &mut SystemNames::default()))
}

/// Reads an open file, or standard input, to its end. Errors call it `name`.
///
/// # Errors
/// As [`read_bytes`].
pub(crate) fn read_open(file: impl Read, name: &str, limit: u64) -> anyhow::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let read = file.take(limit + 1).read_to_end(&mut bytes);
    read.with_context(|| name.to_owned())?;
    ensure!(
        bytes.len() as u64 <= limit,
        "{name}: larger than {}, the most that is read",
        ByteCount(limit)
    );
    Ok(bytes)
}

/// Reads the shared key of `--key-file`, if there is one. `warn` is told when other users may read
/// the file.
///
/// # Errors
/// The file cannot be read or holds no key; the error does not repeat its content.
pub(crate) fn read_key(
    path: Option<&Path>,
    warn: impl FnOnce(&str),
) -> Result<Option<Key>, Failure> {
    let Some(path) = path else { return Ok(None) };
    let name = named("--key-file", path);
    let read = || {
        let file = File::open(path).context(name.clone())?;
        let mode = file.metadata().context(name.clone())?.permissions().mode();
        let bytes = read_open(file, &name, MAX_KEY_FILE)?;
        let key = Key::from_text(&String::from_utf8_lossy(&bytes)).context(name.clone())?;
        if let Some(warning) = wide_mode_warning(path, mode) {
            warn(&warning);
        }
        anyhow::Ok(key)
    };
    read().map(Some).map_err(Failure::usage)
}

/// Reads the passphrase that is the first line of `path`.
///
/// # Errors
/// The file cannot be read, or its first line is empty or too long; the content is not repeated.
pub(crate) fn read_passphrase(option: &str, path: &Path) -> Result<String, Failure> {
    let bytes = read_bytes(option, path, MAX_KEY_FILE).map_err(Failure::usage)?;
    let text = String::from_utf8_lossy(&bytes);
    match text.lines().next() {
        Some(line) if (1..=MAX_PASSPHRASE).contains(&line.len()) => Ok(line.to_owned()),
        _ => Err(Failure::usage(anyhow!(
            "{}: its first line must have 1 to {MAX_PASSPHRASE} bytes",
            named(option, path)
        ))),
    }
}

/// Reads who may test with iperf3's protocol, and a warning if other users may read the key.
///
/// # Errors
/// A file cannot be read or has the wrong format; the error does not repeat its content.
pub(crate) fn read_iperf3_access(
    users: &Path,
    key: &Path,
    allows_pkcs1: bool,
) -> Result<(Iperf3Access, Option<String>), Failure> {
    let list = read_bytes("--iperf3-users", users, MAX_USERS_FILE).map_err(Failure::usage)?;
    let pem = read_bytes("--iperf3-key", key, MAX_PEM_FILE).map_err(Failure::usage)?;
    let mode = fs::metadata(key).map_or(0, |file| file.permissions().mode());
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    let access = Iperf3Access::new(&text(list), &text(pem), allows_pkcs1).map_err(|error| {
        let file = match &error {
            AccessError::Users(_) => users,
            AccessError::Key(_) => key,
            AccessError::NotBuilt => {
                return Failure::unsupported(anyhow!(error).context("--iperf3-users"));
            }
        };
        Failure::usage(anyhow!(error).context(file.display().to_string()))
    })?;
    Ok((access, wide_mode_warning(key, mode)))
}

/// The warning about a key file that other users than its owner may read or write.
fn wide_mode_warning(path: &Path, mode: u32) -> Option<String> {
    let path = path.display();
    (mode & 0o077 != 0).then(|| {
        format!(
            "key file {path} has mode {:04o}, others may read it; run: chmod 600 {path}",
            mode & 0o7777
        )
    })
}

/// A file that a command writes once, at its end. It is opened before the run, so that a wrong name
/// costs no run.
#[derive(Debug)]
pub(crate) struct OutputFile {
    /// The option with the path.
    name: String,
    path: PathBuf,
    file: File,
    /// The file did not exist before and is still empty: it is removed on drop.
    is_new: bool,
}

/// The command that explains a document in a file.
pub(crate) fn explaining(path: &Path) -> String {
    format!("linerate explain {}", shell_word(&path.display().to_string()))
}

impl OutputFile {
    /// Opens the file of `--output`, if there is one.
    ///
    /// # Errors
    /// It cannot be opened for writing.
    pub(crate) fn of_output(path: Option<&Path>) -> Result<Option<Self>, Failure> {
        let open = |path| Self::open(&typed::option("output"), path);
        path.map(open).transpose()
    }

    /// Opens or creates the file; an existing one keeps its content until [`OutputFile::write`].
    ///
    /// # Errors
    /// It cannot be opened for writing.
    pub(crate) fn open(option: &str, path: &Path) -> Result<Self, Failure> {
        let name = named(option, path);
        let mut options = OpenOptions::new();
        options.write(true);
        let opened = match options.clone().create_new(true).open(path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                // `create` for a symbolic link to a file that is not there yet.
                let existing = options.create(true).truncate(false).open(path);
                existing.map(|file| (file, false))
            }
            other => other.map(|file| (file, true)),
        };
        let (file, is_new) = opened.context(name.clone()).map_err(Failure::usage)?;
        Ok(Self { name, path: path.to_owned(), file, is_new })
    }

    /// The command that explains the file; `None` for a pipe or a device.
    pub(crate) fn explained(&self) -> Option<String> {
        let is_file = self.file.metadata().is_ok_and(|about| about.is_file());
        is_file.then(|| explaining(&self.path))
    }

    /// Replaces the content and waits until it is on the disk.
    ///
    /// # Errors
    /// The disk is full or failing; a file that did not exist before is removed again.
    pub(crate) fn write(self, text: &str) -> Result<(), Failure> {
        self.fill(|file| Ok(file.write_all(text.as_bytes())?))
    }

    /// As [`OutputFile::write`], piece by piece.
    ///
    /// # Errors
    /// As [`OutputFile::write`], or `fill` fails.
    pub(crate) fn fill(
        mut self,
        fill: impl FnOnce(&mut File) -> anyhow::Result<()>,
    ) -> Result<(), Failure> {
        self.replace(fill).context(self.name.clone()).map_err(Failure::failed)?;
        self.is_new = false;
        Ok(())
    }

    fn replace(
        &mut self,
        fill: impl FnOnce(&mut File) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        // Pipes and devices have neither a length nor a disk behind them.
        let on_disk = self.file.metadata()?.is_file();
        if on_disk {
            self.file.set_len(0)?;
        }
        fill(&mut self.file)?;
        if on_disk {
            self.file.sync_all()?;
        }
        Ok(())
    }
}

impl Drop for OutputFile {
    fn drop(&mut self) {
        if self.is_new {
            // Best effort: an empty file is no worse than an error about it.
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_output_file_is_replaced_whole_or_not_left_behind() {
        let directory = tempfile::tempdir().unwrap();
        let old = directory.path().join("old.json");
        fs::write(&old, "a much longer text than the new one").unwrap();
        OutputFile::open("--output", &old).unwrap().write("{}\n").unwrap();
        assert_eq!(fs::read_to_string(&old).unwrap(), "{}\n");

        let unwritten = directory.path().join("new.json");
        drop(OutputFile::open("--output", &unwritten).unwrap());
        assert!(!unwritten.exists());
    }

    #[test]
    fn an_existing_file_survives_a_run_that_failed() {
        let directory = tempfile::tempdir().unwrap();
        let old = directory.path().join("old.json");
        fs::write(&old, "kept").unwrap();
        drop(OutputFile::open("--output", &old).unwrap());
        assert_eq!(fs::read_to_string(&old).unwrap(), "kept");
    }

    #[test]
    fn a_full_disk_is_an_error_that_names_the_file() {
        let full = OutputFile::open("--output", Path::new("/dev/full")).unwrap();
        let message = format!("{:?}", full.write("{}\n").unwrap_err());
        assert!(message.contains("/dev/full") && message.contains("No space left"), "{message}");
    }

    #[test]
    fn reading_stops_at_the_limit() {
        let error = read_bytes("", Path::new("/dev/zero"), 100).unwrap_err();
        assert!(error.to_string().contains("larger than 100 B"), "{error}");
    }

    #[test]
    fn only_the_owner_may_read_a_key_without_a_warning() {
        let path = Path::new("k");
        assert_eq!(wide_mode_warning(path, 0o100_600), None);
        assert_eq!(wide_mode_warning(path, 0o100_400), None);
        let warning = wide_mode_warning(path, 0o100_640).unwrap();
        assert!(warning.contains("mode 0640") && warning.contains("chmod 600 k"), "{warning}");
    }
}
