//! The payload that an agent has carried in the last 24 hours. It is kept on disk, so that a
//! restart does not give the agent its daily allowance anew.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::state_files::{read_file, replace_file};

const DAY_S: u64 = 86_400;
/// Longest file, bytes.
const MAX_FILE: u64 = 1 << 20;

/// The bytes of each minute, by the minute since 1970 in which a run was entered.
#[derive(Debug)]
pub(super) struct Used {
    file: PathBuf,
    minutes: BTreeMap<u64, u64>,
}

impl Used {
    /// Reads what an earlier agent has left in the directory. Entries from the future, which remain
    /// after the clock was set back, become entries of now: they count for one day more.
    pub(super) fn open(directory: &Path, now_s: u64) -> Self {
        let file = directory.join("carried");
        let text = read_file(&file, MAX_FILE).ok().flatten().unwrap_or_default();
        let entry = |line: &str| {
            let (minute, bytes) = line.split_once(' ')?;
            Some((minute.parse::<u64>().ok()?, bytes.parse::<u64>().ok()?))
        };
        let mut used = Self { file, minutes: BTreeMap::new() };
        for (minute, bytes) in text.lines().filter_map(entry) {
            let entered = used.minutes.entry(minute.min(now_s / 60)).or_default();
            *entered = entered.saturating_add(bytes);
        }
        if !used.minutes.is_empty() {
            used.write();
        }
        used
    }

    /// Bytes carried in the 24 hours before `now_s`.
    pub(super) fn carried(&self, now_s: u64) -> u64 {
        let from = now_s.saturating_sub(DAY_S) / 60;
        let counted = self.minutes.range(from..).map(|(_, bytes)| *bytes);
        counted.fold(0, u64::saturating_add)
    }

    /// Enters the most bytes that a run may carry, as the run begins.
    pub(super) fn add(&mut self, now_s: u64, bytes: u64) {
        let minute = self.minutes.entry(now_s / 60).or_default();
        *minute = minute.saturating_add(bytes);
        self.minutes = self.minutes.split_off(&(now_s.saturating_sub(DAY_S) / 60));
        self.write();
    }

    /// Replaces what was entered for a run by what it has carried. Where that is not known, the
    /// entry stays.
    pub(super) fn correct(&mut self, (then_s, most): (u64, u64), bytes: Option<u64>) {
        if let (Some(bytes), Some(minute)) = (bytes, self.minutes.get_mut(&(then_s / 60))) {
            *minute = minute.saturating_sub(most).saturating_add(bytes);
            self.write();
        }
    }

    fn write(&self) {
        let lines = self.minutes.iter().map(|(minute, bytes)| format!("{minute} {bytes}\n"));
        // If this fails, keeping the result in the same directory fails as well, and is reported.
        let _ = replace_file(&self.file, lines.collect::<String>().as_bytes(), 0o600);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_carried_counts_for_24_hours_across_restarts() {
        let directory = tempfile::tempdir().unwrap();
        let mut used = Used::open(directory.path(), 1_000_000);
        used.add(1_000_000, 100);
        used.add(1_000_030, 50);
        used.correct((1_000_030, 50), Some(20));
        used.correct((1_000_000, 100), None);
        let again = Used::open(directory.path(), 1_000_060);
        assert_eq!(again.carried(1_000_060), 120);
        assert_eq!(again.carried(1_000_000 + DAY_S - 60), 120);
        assert_eq!(again.carried(1_000_000 + DAY_S + 120), 0);
        // The clock was set back: all of it counts, for a day from now on.
        let behind = 900_000;
        for _ in 0..2 {
            let again = Used::open(directory.path(), behind);
            assert_eq!(again.carried(behind), 120);
            assert_eq!(again.carried(behind + DAY_S + 60), 0);
        }
        let later = Used::open(directory.path(), behind + DAY_S + 60);
        assert_eq!(later.carried(behind + DAY_S + 60), 0);
    }
}
