//! What an agent has carried in the last 24 hours, on the disk: one that is started again may not begin
//! its day again.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

const DAY_S: u64 = 86_400;
/// Longest file, bytes.
const MAX_FILE: u64 = 1 << 20;

/// Bytes by the minute in which they were entered.
#[derive(Debug)]
pub(super) struct Used {
    file: PathBuf,
    minutes: BTreeMap<u64, u64>,
}

impl Used {
    /// What the last agent has left there.
    pub(super) fn open(directory: &Path) -> Self {
        let file = directory.join("carried");
        let is_short = fs::metadata(&file).is_ok_and(|about| about.len() <= MAX_FILE);
        let text = is_short.then(|| fs::read_to_string(&file).unwrap_or_default());
        let text = text.unwrap_or_default();
        let entry = |line: &str| {
            let (minute, bytes) = line.split_once(' ')?;
            Some((minute.parse().ok()?, bytes.parse().ok()?))
        };
        let minutes = text.lines().filter_map(entry).collect();
        Self { file, minutes }
    }

    /// In the 24 hours before. What a clock that was set back has left in the future counts, too.
    pub(super) fn carried(&self, now_s: u64) -> u64 {
        let from = now_s.saturating_sub(DAY_S) / 60;
        let counted = self.minutes.range(from..).map(|(_, bytes)| *bytes);
        counted.fold(0, u64::saturating_add)
    }

    /// A run may carry so much.
    pub(super) fn add(&mut self, now_s: u64, bytes: u64) {
        let minute = self.minutes.entry(now_s / 60).or_default();
        *minute = minute.saturating_add(bytes);
        self.minutes = self.minutes.split_off(&(now_s.saturating_sub(DAY_S) / 60));
        self.write();
    }

    /// It has carried so much; `None` is not known: what it might have stays.
    pub(super) fn correct(&mut self, (then_s, most): (u64, u64), bytes: Option<u64>) {
        if let (Some(bytes), Some(minute)) = (bytes, self.minutes.get_mut(&(then_s / 60))) {
            *minute = minute.saturating_sub(most).saturating_add(bytes);
            self.write();
        }
    }

    fn write(&self) {
        let lines = self
            .minutes
            .iter()
            .map(|(minute, bytes)| format!("{minute} {bytes}\n"));
        let new = self.file.with_extension("new");
        let written = fs::write(&new, lines.collect::<String>());
        // Where it cannot be written, results cannot be kept either, and that is said.
        let _ = written.and_then(|()| fs::rename(&new, &self.file));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_carried_counts_for_a_day_whoever_is_started_again() {
        let directory = tempfile::tempdir().unwrap();
        let mut used = Used::open(directory.path());
        used.add(1_000_000, 100);
        used.add(1_000_030, 50);
        used.correct((1_000_030, 50), Some(20));
        used.correct((1_000_000, 100), None);
        let again = Used::open(directory.path());
        assert_eq!(again.carried(1_000_060), 120);
        assert_eq!(again.carried(1_000_000 + DAY_S - 60), 120);
        assert_eq!(again.carried(1_000_000 + DAY_S + 120), 0);
        assert_eq!(again.carried(900_000), 120);
    }
}
