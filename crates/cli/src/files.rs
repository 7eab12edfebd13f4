//! Files that the user names, read with a limit and written to the last byte.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, ensure};
use linerate_core::remedy::shell_word;
use linerate_core::units::ByteCount;
use linerate_core::wire::Key;
use linerate_engine::{AccessError, Iperf3Access};

use crate::failure::Failure;

/// Largest document that is read, bytes: a thousand records with their intervals and samples.
pub(crate) const MAX_DOCUMENT: u64 = 64 << 20;
/// A key has 64 digits; with blanks and line ends a key file is never larger than this, in bytes.
const MAX_KEY_FILE: u64 = 4096;

/// What a block of an old netperf has room for, bytes.
const MAX_PASSPHRASE: usize = 247;
/// Of a list of iperf3's users, bytes: some ten thousand of them.
const MAX_USERS_FILE: u64 = 1 << 20;
/// A key of 8192 bits in PEM takes half of it, bytes.
const MAX_PEM_FILE: u64 = 16 << 10;

/// Reads all of `path`, which holds at most `limit` bytes.
///
/// # Errors
/// The file cannot be read, or is larger.
pub(crate) fn read_at_most(path: &Path, limit: u64) -> anyhow::Result<Vec<u8>> {
    read_named(&path.display().to_string(), path, limit)
}

/// The same of a text.
///
/// # Errors
/// As [`read_at_most`]; it is no UTF-8.
pub(crate) fn read_text(path: &Path, limit: u64) -> anyhow::Result<String> {
    let bytes = read_at_most(path, limit)?;
    String::from_utf8(bytes).with_context(|| path.display().to_string())
}

/// The same of the text that an option names.
///
/// # Errors
/// As [`read_text`].
pub(crate) fn read_text_of(option: &str, path: &Path, limit: u64) -> anyhow::Result<String> {
    let bytes = read_of(option, path, limit)?;
    String::from_utf8(bytes).with_context(|| format!("{option} {}", path.display()))
}

/// The same of the file that an option names.
///
/// # Errors
/// As [`read_at_most`].
pub(crate) fn read_of(option: &str, path: &Path, limit: u64) -> anyhow::Result<Vec<u8>> {
    read_named(&format!("{option} {}", path.display()), path, limit)
}

fn read_named(name: &str, path: &Path, limit: u64) -> anyhow::Result<Vec<u8>> {
    let file = File::open(path).with_context(|| name.to_owned())?;
    read_open(file, name, limit)
}

/// The same of an open file, which errors name so.
///
/// # Errors
/// As [`read_at_most`].
pub(crate) fn read_open(file: impl Read, name: &str, limit: u64) -> anyhow::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let read = file.take(limit + 1).read_to_end(&mut bytes);
    read.with_context(|| name.to_owned())?;
    let most = ByteCount(limit);
    ensure!(
        bytes.len() as u64 <= limit,
        "{name}: larger than {most}, the most that is read"
    );
    Ok(bytes)
}

/// Reads the shared key of `path`, with a warning where others may read it too.
///
/// # Errors
/// The file cannot be read or holds no key; the content is not repeated.
pub(crate) fn read_key(path: &Path) -> Result<(Key, Option<String>), Failure> {
    let name = format!("--key-file {}", path.display());
    let file = File::open(path)
        .and_then(|file| Ok((file.metadata()?.permissions().mode(), file)))
        .context(name.clone());
    let (mode, file) = file.map_err(Failure::usage)?;
    let bytes = read_open(file, &name, MAX_KEY_FILE).map_err(Failure::usage)?;
    let key = Key::from_text(&String::from_utf8_lossy(&bytes))
        .context(name)
        .map_err(Failure::usage)?;
    Ok((key, wide_mode_warning(path, mode)))
}

/// Reads the passphrase that is the first line of `path`.
///
/// # Errors
/// The file cannot be read, or its first line is empty or too long; the content is not repeated.
pub(crate) fn read_passphrase(option: &str, path: &Path) -> Result<String, Failure> {
    let bytes = read_of(option, path, MAX_KEY_FILE);
    let text = String::from_utf8_lossy(&bytes.map_err(Failure::usage)?).into_owned();
    let line = text.lines().next().unwrap_or_default();
    if !(1..=MAX_PASSPHRASE).contains(&line.len()) {
        let path = path.display();
        return Err(Failure::usage(anyhow!(
            "{option} {path}: its first line must have 1 to {MAX_PASSPHRASE} bytes"
        )));
    }
    Ok(line.to_owned())
}

/// Reads who may test by iperf3's protocol, with a warning where others may read the key.
///
/// # Errors
/// A file cannot be read, or is not what it should be; its content is not repeated.
pub(crate) fn read_iperf3_access(
    users: &Path,
    key: &Path,
    allows_pkcs1: bool,
) -> Result<(Iperf3Access, Option<String>), Failure> {
    let list = read_of("--iperf3-users", users, MAX_USERS_FILE).map_err(Failure::usage)?;
    let pem = read_of("--iperf3-key", key, MAX_PEM_FILE).map_err(Failure::usage)?;
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

/// What to say of a key file that more than its owner may read or write.
fn wide_mode_warning(path: &Path, mode: u32) -> Option<String> {
    let path = path.display();
    (mode & 0o077 != 0).then(|| {
        format!(
            "key file {path} has mode {:04o}, others may read it; run: chmod 600 {path}",
            mode & 0o7777
        )
    })
}

/// The file of `--output`: opened before the run, so that a wrong name costs no run, and written
/// once.
#[derive(Debug)]
pub(crate) struct OutputFile {
    /// The option with the path.
    name: String,
    path: PathBuf,
    file: File,
    /// Not there before and nothing in it yet: removed on drop.
    is_new: bool,
}

/// What explains a file.
pub(crate) fn explaining(path: &Path) -> String {
    format!(
        "linerate explain {}",
        shell_word(&path.display().to_string())
    )
}

impl OutputFile {
    /// Opens or makes the file; an existing one keeps its content until [`OutputFile::write`].
    ///
    /// # Errors
    /// It cannot be opened for writing.
    pub(crate) fn open(option: &str, path: &Path) -> Result<Self, Failure> {
        let name = format!("{option} {}", path.display());
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
        Ok(Self {
            name,
            path: path.to_owned(),
            file,
            is_new,
        })
    }

    /// What reads it again; `None` of a pipe or a device.
    pub(crate) fn explained(&self) -> Option<String> {
        let is_file = self.file.metadata().is_ok_and(|about| about.is_file());
        is_file.then(|| explaining(&self.path))
    }

    /// Replaces the content and waits until it is on the disk, where it is one.
    ///
    /// # Errors
    /// The disk is full or failing; a file that was not there before is removed again.
    pub(crate) fn write(self, text: &str) -> Result<(), Failure> {
        self.fill(|file| Ok(file.write_all(text.as_bytes())?))
    }

    /// The same, by pieces.
    ///
    /// # Errors
    /// As [`OutputFile::write`], or `fill` fails.
    pub(crate) fn fill(
        mut self,
        fill: impl FnOnce(&mut File) -> anyhow::Result<()>,
    ) -> Result<(), Failure> {
        self.replace(fill)
            .context(self.name.clone())
            .map_err(Failure::failed)?;
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
        OutputFile::open("--output", &old)
            .unwrap()
            .write("{}\n")
            .unwrap();
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
        assert!(
            message.contains("/dev/full") && message.contains("No space left"),
            "{message}"
        );
    }

    #[test]
    fn reading_stops_at_the_limit() {
        let error = read_at_most(Path::new("/dev/zero"), 100).unwrap_err();
        assert!(error.to_string().contains("larger than 100 B"), "{error}");
    }

    #[test]
    fn only_the_owner_may_read_a_key_without_a_warning() {
        let path = Path::new("k");
        assert_eq!(wide_mode_warning(path, 0o100_600), None);
        assert_eq!(wide_mode_warning(path, 0o100_400), None);
        let warning = wide_mode_warning(path, 0o100_640).unwrap();
        assert!(
            warning.contains("mode 0640") && warning.contains("chmod 600 k"),
            "{warning}"
        );
    }
}
