//! What a child process has cost, read by the same means for every program.

use std::fs;
use std::io;
use std::time::Duration;

use linerate_sys::proc::stat::ticks_to_duration;

/// A look at a child process.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Account {
    /// It has ended, and waits to be reaped: the CPU time is final.
    pub(crate) ended: bool,
    /// User and system time of all its threads, ended ones too, and of the children that it has
    /// reaped. Whole ticks of 10 ms, rounded down twice: a run of one second is known to 1 or 2 %.
    pub(crate) cpu: Duration,
}

impl Account {
    /// Reads `/proc/PID/stat` (proc(5)), which a zombie still has.
    ///
    /// # Errors
    /// There is no such process any more, or the file is not as proc(5) says.
    pub(crate) fn read(pid: u32) -> io::Result<Self> {
        let text = fs::read_to_string(format!("/proc/{pid}/stat"))?;
        parse(&text).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, text))
    }
}

/// The name, in parentheses, may itself hold blanks and parentheses; behind it come the state and
/// numbers.
fn parse(text: &str) -> Option<Account> {
    let (_, fields) = text.rsplit_once(')')?;
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let times = fields.get(UTIME..=CSTIME)?;
    let ticks: u64 = times.iter().map(|ticks| ticks.parse::<u64>().ok()).sum::<Option<_>>()?;
    Some(Account { ended: matches!(fields[0], "Z" | "X"), cpu: ticks_to_duration(ticks) })
}

/// Fields 14 to 17 of proc(5), counted from the state, which is field 3: utime, stime, cutime,
/// cstime.
const UTIME: usize = 14 - 3;
const CSTIME: usize = 17 - 3;
