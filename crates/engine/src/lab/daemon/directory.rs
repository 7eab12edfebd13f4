//! The directory of the labs' files, which shows what labs are up.
//!
//! A lab has a state file, a hosts file and a socket. The process that holds it has a lock on the
//! state file for as long as it lives, however it ends: a state file without lock is left over from
//! one that was killed.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use linerate_sys::file::open_no_follow;
use linerate_sys::process::effective_user;

use super::error::DaemonError;
use super::state::LabState;
use crate::own_directory;

/// The directory of this user's labs.
#[derive(Debug, Clone)]
pub struct LabDirectory {
    path: PathBuf,
}

/// The files of a lab, which are this process's and go when this is dropped.
#[derive(Debug)]
pub(super) struct Claim {
    directory: LabDirectory,
    name: String,
    state: File,
}

impl LabDirectory {
    /// `$XDG_RUNTIME_DIR/linerate` where that is this user's, or else `/run/linerate` for root and
    /// `/tmp/linerate-UID` for others. It is made if need be, for this user alone.
    ///
    /// # Errors
    /// [`DaemonError::Directory`] if it cannot be made, or is another's or open to others.
    pub fn open() -> Result<Self, DaemonError> {
        let user = effective_user();
        let own = own_directory::runtime().or_else(own_directory::run);
        Self::at(own.unwrap_or_else(own_directory::temporary), user)
    }

    fn at(path: PathBuf, user: u32) -> Result<Self, DaemonError> {
        own_directory::make(&path, user).map_err(|reason| DaemonError::Directory {
            path: path.clone(),
            reason,
        })?;
        Ok(Self { path })
    }

    /// The labs that are up, by name, and the names of those that were killed: their files are
    /// removed now.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn labs(&self) -> Result<(Vec<LabState>, Vec<String>), DaemonError> {
        let mut up = Vec::new();
        let mut removed = Vec::new();
        let entries = fs::read_dir(&self.path).map_err(self.fault("read", &self.path))?;
        for entry in entries.filter_map(Result::ok) {
            let file = entry.file_name();
            let name = file
                .to_str()
                .and_then(|file| file.strip_prefix("lab-")?.strip_suffix(".json"));
            let Some(name) = name.filter(|name| check_name(name).is_ok()) else {
                continue;
            };
            match self.look_at(name)? {
                Found::Up(state) => up.push(state),
                Found::Killed => removed.push(name.to_owned()),
                Found::Nothing => {}
            }
        }
        up.sort_by(|a, b| a.name.cmp(&b.name));
        removed.sort();
        Ok((up, removed))
    }

    pub(super) fn socket(&self, name: &str) -> PathBuf {
        self.path.join(format!("lab-{name}.sock"))
    }

    pub(super) fn hosts(&self, name: &str) -> PathBuf {
        self.path.join(format!("lab-{name}.hosts"))
    }

    fn state(&self, name: &str) -> PathBuf {
        self.path.join(format!("lab-{name}.json"))
    }

    /// Makes the files of a new lab this process's.
    pub(super) fn claim(&self, name: &str) -> Result<Claim, DaemonError> {
        check_name(name)?;
        let path = self.state(name);
        let fault = self.fault("make", &path);
        for _ in 0..CLAIM_TRIES {
            let state = own_directory::open_lock(&path).map_err(&fault)?;
            match own_directory::lock(&state, CLAIM_PATIENCE) {
                // A process that looks for labs removes files without a lock, perhaps this one just
                // before it was locked.
                Ok(()) if !is_at(&state, &path) => {}
                Ok(()) => {
                    return Ok(Claim {
                        directory: self.clone(),
                        name: name.to_owned(),
                        state,
                    });
                }
                Err(error) if error.kind() == io::ErrorKind::TimedOut => break,
                Err(error) => return Err(fault(error)),
            }
        }
        Err(DaemonError::IsUp {
            name: name.to_owned(),
        })
    }

    fn look_at(&self, name: &str) -> Result<Found, DaemonError> {
        let path = self.state(name);
        let file = match open_no_follow(&path, OpenOptions::new().read(true)) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Found::Nothing),
            Err(error) => return Err(self.fault("read", &path)(error)),
        };
        // Another process may hold the lock for a look; the process of a lab holds it all the time.
        match own_directory::lock(&file, LOOK) {
            Ok(()) if is_at(&file, &path) => {
                self.remove(name);
                return Ok(Found::Killed);
            }
            Ok(()) => return Ok(Found::Nothing),
            Err(error) if error.kind() == io::ErrorKind::TimedOut => {}
            Err(error) => return Err(self.fault("read", &path)(error)),
        }
        let mut text = String::new();
        let read = file.take(MAX_STATE).read_to_string(&mut text);
        read.map_err(self.fault("read", &path))?;
        // It is empty while the lab is being made.
        Ok(serde_json::from_str(&text).map_or(Found::Nothing, Found::Up))
    }

    fn remove(&self, name: &str) {
        // The state file goes last: while it is there the others may be there.
        for path in [self.socket(name), self.hosts(name), self.state(name)] {
            let _ = fs::remove_file(path);
        }
    }

    fn fault<'a>(
        &self,
        what: &'static str,
        path: &'a Path,
    ) -> impl Fn(io::Error) -> DaemonError + 'a + use<'a> {
        move |source| DaemonError::File {
            what,
            path: path.to_owned(),
            source,
        }
    }
}

enum Found {
    Up(LabState),
    Killed,
    Nothing,
}

impl Claim {
    pub(super) fn directory(&self) -> &LabDirectory {
        &self.directory
    }

    /// Writes the state file; from then on others find the lab.
    pub(super) fn publish(&mut self, state: &LabState, hosts: &str) -> Result<(), DaemonError> {
        let path = self.directory.hosts(&self.name);
        // Programs in the lab read it, whoever they are.
        let written = own_directory::replace_file(&path, hosts.as_bytes(), 0o644);
        written.map_err(self.directory.fault("write", &path))?;
        let path = self.directory.state(&self.name);
        let fault = self.directory.fault("write", &path);
        let text = serde_json::to_vec(state).map_err(|error| fault(error.into()))?;
        self.state.set_len(0).map_err(&fault)?;
        self.state.write_all(&text).map_err(&fault)
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.directory.remove(&self.name);
    }
}

/// Names become file names, and those of sockets are short (unix(7): 107 bytes).
fn check_name(name: &str) -> Result<(), DaemonError> {
    let is_allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if (1..=32).contains(&name.len()) && name.chars().all(is_allowed) {
        Ok(())
    } else {
        Err(DaemonError::Name {
            name: name.chars().take(64).collect(),
        })
    }
}

/// Whether the open file is still the one at that path.
fn is_at(file: &File, path: &Path) -> bool {
    let identity = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
    let here = fs::metadata(path).map(identity);
    file.metadata()
        .map(identity)
        .is_ok_and(|open| here.is_ok_and(|here| here == open))
}

/// A process that looks holds the lock for some microseconds.
const LOOK: Duration = Duration::from_millis(15);

/// Nobody looks for longer.
const CLAIM_PATIENCE: Duration = Duration::from_millis(500);

/// A file is removed under a claim only by who looks at the same time.
const CLAIM_TRIES: u32 = 50;

/// 256 hosts with all their addresses take a tenth of it.
const MAX_STATE: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn temporary(name: &str) -> LabDirectory {
        let path =
            std::env::temp_dir().join(format!("linerate-test-{name}-{}", std::process::id()));
        LabDirectory::at(path, effective_user()).unwrap()
    }

    fn state(name: &str) -> LabState {
        LabState {
            name: name.to_owned(),
            pid: 1,
            started_ticks: 2,
            hosts: Vec::new(),
        }
    }

    #[test]
    fn a_lab_is_up_as_long_as_its_claim() {
        let directory = temporary("claim");
        let mut claim = directory.claim("a").unwrap();
        assert!(directory.labs().unwrap().0.is_empty(), "it is not made yet");
        claim.publish(&state("a"), "").unwrap();
        assert_eq!(directory.labs().unwrap(), (vec![state("a")], vec![]));
        assert!(matches!(
            directory.claim("a"),
            Err(DaemonError::IsUp { .. })
        ));
        let _other = directory.claim("b").unwrap();
        drop(claim);
        assert_eq!(directory.labs().unwrap(), (vec![], vec![]));
        drop(_other);
        fs::remove_dir(&directory.path).unwrap();
    }

    #[test]
    fn leftovers_of_a_killed_lab_are_removed_and_reported() {
        let directory = temporary("killed");
        let mut claim = directory.claim("a").unwrap();
        claim.publish(&state("a"), "").unwrap();
        // As the kernel does when the process is killed: the lock goes, the files stay.
        claim.state.unlock().unwrap();
        assert_eq!(directory.labs().unwrap(), (vec![], vec!["a".to_owned()]));
        assert_eq!(directory.labs().unwrap(), (vec![], vec![]));
        drop(directory.claim("a").unwrap());
        std::mem::forget(claim);
        fs::remove_dir(&directory.path).unwrap();
    }

    #[test]
    fn names_that_are_paths_are_refused() {
        let directory = temporary("names");
        for name in ["", "../a", "a/b", "A", "a b", &"a".repeat(33)] {
            assert!(
                matches!(directory.claim(name), Err(DaemonError::Name { .. })),
                "{name}"
            );
        }
        fs::remove_dir(&directory.path).unwrap();
    }

    #[test]
    fn a_directory_of_others_or_open_to_them_is_refused() {
        let directory = temporary("open");
        let path = directory.path.clone();
        assert!(LabDirectory::at(path.clone(), effective_user() + 1).is_err());
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        assert!(LabDirectory::at(path.clone(), effective_user()).is_err());
        fs::remove_dir(path).unwrap();
    }

    #[test]
    fn a_symbolic_link_is_not_taken_for_a_labs_file() {
        let directory = temporary("link");
        let other = directory.path.join("other");
        fs::write(&other, "precious").unwrap();
        std::os::unix::fs::symlink(&other, directory.state("a")).unwrap();
        let refused = directory.claim("a").map(drop).unwrap_err();
        assert!(matches!(refused, DaemonError::File { .. }), "{refused}");
        assert!(directory.labs().is_err());
        fs::remove_file(directory.state("a")).unwrap();
        std::os::unix::fs::symlink(&other, directory.hosts("a")).unwrap();
        let mut claim = directory.claim("a").unwrap();
        claim.publish(&state("a"), "198.18.0.1 a").unwrap();
        assert_eq!(fs::read_to_string(&other).unwrap(), "precious");
        drop(claim);
        fs::remove_dir_all(&directory.path).unwrap();
    }
}
