//! `/proc/PID/task/TID/schedstat`: CPU time of the threads of any process, which no privilege is
//! needed for.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use super::{Malformed, field};

/// Where a thread's time went. What is left of the wall clock is time that it was blocked.
///
/// The kernel brings the figures of a *running* thread up to date only at its timer tick or when it
/// stops running, so that a reading may be a tick (1 to 10 ms) old; over an interval the error does
/// not add up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SchedTimes {
    /// Time on a CPU.
    pub on_cpu: Duration,
    /// Time that it could have run, but waited for a CPU.
    pub run_delay: Duration,
}

impl SchedTimes {
    /// What passed from `earlier` to this reading.
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            on_cpu: self.on_cpu.saturating_sub(earlier.on_cpu),
            run_delay: self.run_delay.saturating_sub(earlier.run_delay),
        }
    }

    /// Parses the text of a `schedstat` file: nanoseconds on a CPU, nanoseconds waiting for one,
    /// and time slices.
    ///
    /// # Errors
    /// One of the two times is missing or not a number.
    pub fn parse(text: &str) -> Result<Self, Malformed> {
        let mut words = text.split_ascii_whitespace();
        let mut time = || field(words.next(), "a number of nanoseconds").map(Duration::from_nanos);
        Ok(Self { on_cpu: time()?, run_delay: time()? })
    }
}

/// The times of threads by their numbers.
pub type ThreadTimes = HashMap<u32, SchedTimes>;

/// Of all threads of a process.
///
/// # Errors
/// `NotFound`: there is no such process.
pub fn of_process(pid: u32) -> io::Result<ThreadTimes> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task"))?.filter_map(Result::ok);
    Ok(tasks.filter_map(|task| times(&task.path())).collect())
}

/// Of all threads of the processes of a user.
///
/// # Errors
/// There is no `/proc`.
pub fn of_user(uid: u32) -> io::Result<ThreadTimes> {
    let mut found = ThreadTimes::new();
    for entry in fs::read_dir("/proc")?.filter_map(Result::ok) {
        let is_of_user = |entry: &fs::DirEntry| Some(entry.metadata().ok()?.uid() == uid);
        let pid = entry.file_name().to_str().and_then(|name| name.parse().ok());
        if let Some(pid) = pid.filter(|_| is_of_user(&entry) == Some(true)) {
            // It may have ended.
            found.extend(of_process(pid).unwrap_or_default());
        }
    }
    Ok(found)
}

/// `None` for one that has ended.
fn times(task: &Path) -> Option<(u32, SchedTimes)> {
    let tid = task.file_name()?.to_str()?.parse().ok()?;
    let text = fs::read_to_string(task.join("schedstat")).ok()?;
    Some((tid, SchedTimes::parse(&text).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::thread::thread_id;

    #[test]
    fn the_calling_thread_is_among_those_of_its_process_and_of_its_user() {
        let own = thread_id();
        let pid = std::process::id();
        let uid = fs::metadata(format!("/proc/{pid}")).unwrap().uid();
        for times in [of_process(pid).unwrap(), of_user(uid).unwrap()] {
            assert!(times.contains_key(&own), "{times:?}");
        }
        assert!(of_process(u32::MAX).is_err());
    }
}
