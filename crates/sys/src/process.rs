//! Processes: identifies and ends others, safe against numbers that have passed to another process;
//! takes from this one what it does not need.

use std::ffi::c_void;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;
use std::{fs, io};

use rustix::io::Errno;
use rustix::mm::{Advice, madvise};
use rustix::process::{Pid, PidfdFlags, Signal, geteuid, pidfd_open, pidfd_send_signal, setsid};

use crate::poll::wait_readable;
use crate::socket::read_bytes;

/// A certain process, even if its number passes to another.
#[derive(Debug)]
pub struct Process {
    descriptor: OwnedFd,
}

/// A request to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndSignal {
    /// SIGTERM, which it can take its time for.
    Terminate,
    /// SIGKILL, which it cannot refuse.
    Kill,
}

impl Process {
    /// The process of that number which began at that time, as [`start_time`] has it.
    ///
    /// # Errors
    /// `NotFound` if there is none, or none that began then.
    pub fn open(pid: u32, started: u64) -> io::Result<Self> {
        let number =
            i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(io::ErrorKind::NotFound)?;
        let descriptor = pidfd_open(number, PidfdFlags::empty()).map_err(gone)?;
        // Checked after opening, when the number can no longer pass to another unnoticed.
        if start_time(pid)? == started {
            Ok(Self { descriptor })
        } else {
            Err(io::ErrorKind::NotFound.into())
        }
    }

    /// Asks it to end.
    ///
    /// # Errors
    /// It has ended (`NotFound`) or is another user's.
    pub fn signal(&self, signal: EndSignal) -> io::Result<()> {
        let signal = match signal {
            EndSignal::Terminate => Signal::TERM,
            EndSignal::Kill => Signal::KILL,
        };
        pidfd_send_signal(&self.descriptor, signal).map_err(gone)
    }

    /// Waits until it ends, at most for this time; whether it did.
    ///
    /// # Errors
    /// None that a caller can mend.
    pub fn ends_within(&self, time: Duration) -> io::Result<bool> {
        wait_readable(self, time)
    }
}

impl AsFd for Process {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// When a process began, in clock ticks since boot: together with its number it is the only one.
///
/// # Errors
/// There is none of that number.
pub fn start_time(pid: u32) -> io::Result<u64> {
    stat_field(pid, 22)
}

/// The number of the process that has started a process.
pub(crate) fn parent(pid: u32) -> io::Result<u32> {
    Ok(stat_field(pid, 4)? as u32)
}

fn stat_field(pid: u32, number: usize) -> io::Result<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    parse_stat_field(&text, number).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// A field behind the second of proc_pid_stat(5), the name, which may hold blanks and parentheses.
fn parse_stat_field(text: &str, number: usize) -> Option<u64> {
    let (_, fields) = text.rsplit_once(')')?;
    let field = fields.split_ascii_whitespace().nth(number - 3)?;
    field.parse().ok()
}

/// Makes the process the leader of a session of its own, without a terminal. Signals that are typed
/// there no longer reach it.
///
/// # Errors
/// `EPERM` if it leads a group already.
pub fn new_session() -> io::Result<()> {
    setsid()?;
    Ok(())
}

/// Sets the nice value of the process's session, −20 to 19: under automatic groups (sched(7)) it
/// weighs the whole session against the others, real-time threads not counted. Lowering it needs
/// CAP_SYS_NICE.
///
/// # Errors
/// A kernel without automatic groups; not permitted.
pub fn set_session_nice(nice: i32) -> io::Result<()> {
    fs::write("/proc/self/autogroup", nice.to_string())
}

/// Makes the kernel kill this process before all others if memory runs out
/// (proc_pid_oom_score_adj(5)). Needs no privilege.
///
/// # Errors
/// `/proc` is not there.
pub fn die_first_without_memory() -> io::Result<()> {
    fs::write("/proc/self/oom_score_adj", "1000")
}

/// The effective user of this process, which decides what files it may open.
pub fn effective_user() -> u32 {
    geteuid().as_raw()
}

/// The number of this process's user outside its user namespace. It differs from the one inside if
/// the process has become root of a user namespace.
///
/// # Errors
/// `/proc` is not there, or says nothing of this user.
pub fn user_outside() -> io::Result<u32> {
    let map = fs::read_to_string("/proc/self/uid_map")?;
    outside(&map, effective_user()).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// user_namespaces(7): each line has the first number inside, the first outside, and how many there
/// are.
fn outside(map: &str, user: u32) -> Option<u32> {
    map.lines().find_map(|line| {
        let mut numbers = line.split_ascii_whitespace().map(str::parse::<u32>);
        let (inside, outside, count) =
            (numbers.next()?.ok()?, numbers.next()?.ok()?, numbers.next()?.ok()?);
        let offset = user.checked_sub(inside).filter(|offset| *offset < count)?;
        outside.checked_add(offset)
    })
}

/// The effective user of the process that made the connection, at that time. A user who has no
/// number in this process's user namespace is 65534.
///
/// # Errors
/// The kernel refuses (`SO_PEERCRED`).
pub fn peer_user(stream: &UnixStream) -> io::Result<u32> {
    // `struct ucred`: the process, the user, the group.
    let mut credentials = [0; 12];
    read_bytes(stream, libc::SOL_SOCKET, libc::SO_PEERCRED, &mut credentials)?;
    Ok(u32::from_ne_bytes(credentials.as_chunks().0[1]))
}

/// A process that is not there, or no longer.
fn gone(errno: Errno) -> io::Error {
    if errno == Errno::SRCH { io::ErrorKind::NotFound.into() } else { errno.into() }
}

// The program's own pages.

/// Takes the program's code out of this process's memory. What is executed again is mapped again,
/// from the page cache: of what a program needs to start, one that waits needs little.
///
/// # Errors
/// `/proc/self/maps` cannot be read, or is not as proc(5) says.
pub fn unmap_code() -> io::Result<()> {
    let maps = fs::read_to_string("/proc/self/maps")?;
    let here = unmap_code as *const () as usize;
    let code = mapping(&maps, here).ok_or(io::ErrorKind::InvalidData)?;
    // SAFETY: the mapping is of the program's file, and nothing has ever been written to it: a page
    // that is touched is read from the file again.
    unsafe { madvise(code.start as *mut c_void, code.len(), Advice::LinuxDontNeed)? };
    Ok(())
}

/// The mapping of `maps` that has `address`, if it is one of a file that can be executed and not
/// written.
fn mapping(maps: &str, address: usize) -> Option<Range<usize>> {
    maps.lines().find_map(|line| {
        let mut fields = line.split_whitespace();
        let (start, end) = fields.next()?.split_once('-')?;
        let hexadecimal = |text| usize::from_str_radix(text, 16).ok();
        let range = hexadecimal(start)?..hexadecimal(end)?;
        let is_code = fields.next()? == "r-xp" && fields.nth(3)?.starts_with('/');
        (is_code && range.contains(&address)).then_some(range)
    })
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};

    use super::*;

    fn sleeper() -> (Child, Process) {
        let child = Command::new("sleep").arg("60").spawn().unwrap();
        let started = start_time(child.id()).unwrap();
        let process = Process::open(child.id(), started).unwrap();
        (child, process)
    }

    #[test]
    fn a_process_ends_when_it_is_asked_to() {
        for signal in [EndSignal::Terminate, EndSignal::Kill] {
            let (mut child, process) = sleeper();
            assert!(!process.ends_within(Duration::from_millis(1)).unwrap());
            process.signal(signal).unwrap();
            assert!(process.ends_within(linerate_testkit::PATIENCE).unwrap());
            child.wait().unwrap();
            let again = process.signal(signal).unwrap_err();
            assert_eq!(again.kind(), io::ErrorKind::NotFound);
        }
    }

    #[test]
    fn a_process_that_began_at_another_time_is_not_the_one() {
        let (mut child, process) = sleeper();
        let started = start_time(child.id()).unwrap();
        let other = Process::open(child.id(), started + 1).unwrap_err();
        assert_eq!(other.kind(), io::ErrorKind::NotFound);
        process.signal(EndSignal::Kill).unwrap();
        child.wait().unwrap();
        let gone = Process::open(child.id(), started).unwrap_err();
        assert_eq!(gone.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_name_with_parentheses_does_not_shift_the_fields() {
        let text = "7 (a) b (c) S 1 7 7 0 -1 4194560 0 0 0 0 0 0 0 0 20 0 1 0 12345 0 0";
        assert_eq!(parse_stat_field(text, 22), Some(12345));
        assert_eq!(parse_stat_field(text, 4), Some(1));
        assert_eq!(parse_stat_field("7 (a) S 1", 22), None);
    }

    #[test]
    fn a_user_has_the_number_that_its_line_gives_it_outside() {
        let map = "         0       1000          1\n         1     100000      65536\n";
        assert_eq!(outside(map, 0), Some(1000));
        assert_eq!(outside(map, 1), Some(100_000));
        assert_eq!(outside(map, 65_536), Some(165_535));
        assert_eq!(outside(map, 65_537), None);
        assert_eq!(outside("0 0 4294967295", 7), Some(7));
        assert_eq!(outside("0 x 1", 0), None);
        assert!(user_outside().is_ok());
    }

    #[test]
    fn the_other_end_of_a_pair_is_this_user() {
        let (a, _b) = UnixStream::pair().unwrap();
        assert_eq!(peer_user(&a).unwrap(), effective_user());
    }

    #[test]
    fn executable_mappings_are_told_from_writable_ones() {
        let maps = "\
55f1-5600 r--p 00000000 fe:00 42    /usr/bin/linerate
5600-5700 r-xp 00660000 fe:00 42    /usr/bin/linerate
5700-5800 rw-p 01853000 fe:00 42    /usr/bin/linerate
5800-5900 r-xp 00000000 00:00 0
";
        let of = |address| mapping(maps, address);
        assert_eq!(of(0x5650), Some(0x5600..0x5700));
        assert_eq!([of(0x55f1), of(0x5750), of(0x5850), of(0x9000)], [None, None, None, None]);
    }

    #[test]
    fn a_program_whose_code_is_unmapped_goes_on() {
        unmap_code().unwrap();
        assert_eq!(mapping("", 0), None);
    }
}
