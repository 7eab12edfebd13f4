//! One test at a time for each history, whichever process starts it: two tests would share this
//! host's link. A file beside the history is the lock, and says what runs since when.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use anyhow::Context;
use serde::{Deserialize, Serialize};

/// The running test, as the file describes it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TurnHolder {
    pub(crate) test: String,
    pub(crate) path: String,
    /// When it began, seconds since this host was started.
    pub(crate) began_s: u64,
    /// Expected length of the test, in seconds.
    pub(crate) seconds: u64,
    /// Its latest progress line.
    pub(crate) now: String,
}

/// The lock, held while a test runs. The kernel releases it when the process ends.
#[derive(Debug)]
pub(crate) struct Turn {
    file: File,
    running: TurnHolder,
}

impl Turn {
    /// Takes the lock for a test; `None` while another test runs.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn take(history: &Path, running: TurnHolder) -> anyhow::Result<Option<Self>> {
        let path = place(history);
        let file = linerate_engine::open_lock(&path).with_context(|| path.display().to_string())?;
        for _ in 0..ATTEMPTS {
            if file.try_lock().is_ok() {
                let turn = Self { file, running };
                turn.say("");
                return Ok(Some(turn));
            }
            thread::sleep(PAUSE);
        }
        Ok(None)
    }

    /// Writes the progress line into the file. The test goes on if that fails.
    pub(crate) fn say(&self, now: &str) {
        let running = TurnHolder { now: now.to_owned(), ..self.running.clone() };
        let line = serde_json::to_string(&running).unwrap_or_default() + "\n";
        let written = self.file.write_all_at(line.as_bytes(), 0);
        let _ = written.and_then(|()| self.file.set_len(line.len() as u64));
    }
}

/// The test that runs with this history, if any.
pub(crate) fn running(history: &Path) -> Option<TurnHolder> {
    let path = place(history);
    // Without a lock on it the file is what a killed process left behind.
    if File::open(&path).ok()?.try_lock_shared().is_ok() {
        return None;
    }
    let text = fs::read_to_string(&path).ok()?;
    serde_json::from_str(text.lines().next()?).ok()
}

fn place(history: &Path) -> PathBuf {
    linerate_engine::with_ending(history, ".turn")
}

/// Attempts to take the lock: [`running`] also holds it, for a moment.
const ATTEMPTS: usize = 5;
const PAUSE: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    use super::*;

    #[test]
    fn what_a_link_or_anybodys_directory_leads_to_is_not_written() {
        let directory = tempfile::tempdir().unwrap();
        let (history, other) = (directory.path().join("h.db"), directory.path().join("other"));
        fs::write(&other, "precious").unwrap();
        std::os::unix::fs::symlink(&other, place(&history)).unwrap();
        let take = || Turn::take(&history, TurnHolder::default());
        assert!(take().is_err());
        fs::remove_file(place(&history)).unwrap();
        fs::hard_link(&other, place(&history)).unwrap();
        fs::set_permissions(directory.path(), Permissions::from_mode(0o777)).unwrap();
        let is_root = fs::metadata("/proc/self").unwrap().uid() == 0;
        assert_eq!(take().is_err(), is_root);
        assert!(!is_root || fs::read_to_string(&other).unwrap() == "precious");
    }

    #[test]
    fn one_test_has_the_turn_and_others_see_what_it_does() {
        let directory = tempfile::tempdir().unwrap();
        let history = directory.path().join("h.db");
        let test = TurnHolder {
            test: "bulk".to_owned(),
            path: "pit".to_owned(),
            began_s: 7,
            seconds: 5,
            now: String::new(),
        };
        assert_eq!(running(&history), None);
        let turn = Turn::take(&history, test.clone()).unwrap().unwrap();
        assert!(Turn::take(&history, test.clone()).unwrap().is_none());
        turn.say("94.1 Mbit/s and a long line");
        turn.say("94 Mbit/s");
        let seen = running(&history).unwrap();
        assert_eq!((seen.now.as_str(), seen.began_s), ("94 Mbit/s", 7));
        drop(turn);
        assert_eq!(running(&history), None);
        assert!(Turn::take(&history, test).unwrap().is_some());
    }
}
