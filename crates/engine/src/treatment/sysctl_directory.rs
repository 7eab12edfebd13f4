//! Our file in sysctl.d.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use linerate_core::host::SysctlFile;
use linerate_sys::netns::Namespace;

use super::error::TreatError;
use crate::state_files::{StateError, read_file, remove_file, replace_file};

/// The directory whose files are kernel settings that the host is given at each boot (sysctl.d(5)).
#[derive(Debug, Clone)]
pub(crate) struct SysctlDirectory {
    file: PathBuf,
    is_moved: bool,
}

impl SysctlDirectory {
    /// `/etc/sysctl.d`, or the directory of `LINERATE_SYSCTL_DIRECTORY`.
    pub(crate) fn of_host() -> Self {
        let moved = std::env::var_os("LINERATE_SYSCTL_DIRECTORY").map(PathBuf::from);
        let is_moved = moved.is_some();
        let directory = moved.unwrap_or_else(|| PathBuf::from("/etc/sysctl.d"));
        Self { file: directory.join(SysctlFile::NAME), is_moved }
    }

    /// For tests: any directory.
    #[cfg(test)]
    pub(crate) fn at(directory: &Path) -> Self {
        Self { file: directory.join(SysctlFile::NAME), is_moved: true }
    }

    /// Our file.
    pub(crate) fn path(&self) -> &Path {
        &self.file
    }

    /// Whether what is in it would be of the calling thread's network namespace.
    ///
    /// # Errors
    /// It would be of another.
    pub(crate) fn check_namespace(&self) -> Result<(), TreatError> {
        let Ok(first) = fs::metadata("/proc/1/ns/net") else {
            return Ok(());
        };
        if self.is_moved || first.ino() == Namespace::current()?.inode()? {
            Ok(())
        } else {
            let why = "a boot sets the host's first network namespace, and this is another";
            Err(TreatError::unfit(self.file.display(), why))
        }
    }

    /// Gives keys values.
    pub(crate) fn set(&self, lines: &[(String, String)]) -> Result<(), StateError> {
        let mut file = self.read()?;
        lines.iter().for_each(|(key, value)| file.set(key, value));
        self.write(&file)
    }

    /// Takes keys out where they have the values that we gave them. Says whether it changed the
    /// file, and which keys have other values in it.
    pub(crate) fn remove(
        &self,
        lines: &BTreeSet<(String, String)>,
    ) -> Result<(bool, Vec<String>), StateError> {
        let before = self.read()?;
        let mut file = before.clone();
        let mut foreign = Vec::new();
        let keys: BTreeSet<&String> = lines.iter().map(|(key, _)| key).collect();
        for key in keys {
            match file.value(key) {
                Some(value) if lines.contains(&(key.clone(), value.clone())) => file.remove(key),
                Some(_) => foreign.push(key.clone()),
                None => {}
            }
        }
        if file == before {
            return Ok((false, foreign));
        }
        if file.is_empty() {
            remove_file(&self.file)?
        } else {
            self.write(&file)?
        }
        Ok((true, foreign))
    }

    /// Files of the same directory that come later and give one of these keys a value: then that is
    /// what a boot sets.
    pub(crate) fn overridden(&self, keys: &[String]) -> Vec<String> {
        let Some(entries) = self.file.parent().and_then(|path| fs::read_dir(path).ok()) else {
            return Vec::new();
        };
        let mut later: Vec<PathBuf> = entries
            .filter_map(|entry| Some(entry.ok()?.path()))
            .filter(|path| path.extension().is_some_and(|end| end == "conf") && *path > self.file)
            .collect();
        later.sort();
        let mut notes = Vec::new();
        for path in later {
            // Links are usual here: `99-sysctl.conf` is one to /etc/sysctl.conf.
            let text = fs::read_to_string(&path).unwrap_or_default();
            let file = SysctlFile::parse(&text);
            for key in keys {
                if let Some(value) = file.value(key) {
                    notes.push(format!(
                        "at the next boot {} sets {key} to {value} after our file",
                        path.display()
                    ));
                }
            }
        }
        notes
    }

    fn read(&self) -> Result<SysctlFile, StateError> {
        let text = read_file(&self.file, MAX_BYTES)?.unwrap_or_default();
        Ok(SysctlFile::parse(&text))
    }

    fn write(&self, file: &SysctlFile) -> Result<(), StateError> {
        replace_file(&self.file, file.text().as_bytes(), 0o644)
    }
}

/// Largest size of our file, bytes.
const MAX_BYTES: u64 = 1 << 20;
