//! Other processes: which of them holds a socket, and the CPU time of their threads.

use std::collections::{HashMap, HashSet};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;
use std::{fs, io};

use super::{Malformed, field};

// `/proc/PID/fd`: which process holds a socket.

/// A process that holds a socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    /// Its number.
    pub pid: u32,
    /// Its name, at most 15 bytes (`/proc/PID/comm`).
    pub name: String,
}

/// Processes by the inode of their sockets.
#[derive(Debug, Default)]
pub struct Owners {
    /// By the socket's inode.
    pub by_inode: HashMap<u32, Owner>,
    /// Processes whose descriptors this one may not see: those of other users.
    pub hidden: usize,
}

/// Looks for the processes that hold the sockets of these inodes, until all are found; of these
/// processes alone, if there are any. Of several that hold one it is the oldest; the first process
/// of all, which listens for others, only where nobody else does.
///
/// It takes about 1 µs for each descriptor of the host.
///
/// # Errors
/// There is no `/proc`.
pub fn owners(wanted: &HashSet<u32>, among: Option<&[u32]>) -> io::Result<Owners> {
    let mut found = Owners::default();
    let pids = among.map_or_else(pids, |pids| Ok(pids.to_vec()));
    for pid in pids? {
        if found.by_inode.len() == wanted.len() {
            break;
        }
        match inodes(Path::new(&format!("/proc/{pid}/fd"))) {
            Ok(inodes) => {
                let mut name = None;
                for inode in inodes.filter(|inode| wanted.contains(inode)) {
                    let name = name.get_or_insert_with(|| name_of(pid).unwrap_or_default());
                    found
                        .by_inode
                        .entry(inode)
                        .or_insert_with(|| Owner { pid, name: name.clone() });
                }
            }
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => found.hidden += 1,
            // It has just ended.
            Err(_) => {}
        }
    }
    Ok(found)
}

/// The numbers of all processes called `name`, by `/proc/PID/comm`.
///
/// # Errors
/// There is no `/proc`.
pub fn called(name: &str) -> io::Result<Vec<u32>> {
    let mut pids = pids()?;
    // What the kernel keeps of a name.
    let kept = name.get(..15).unwrap_or(name);
    pids.retain(|pid| name_of(*pid).as_deref() == Some(kept));
    Ok(pids)
}

/// The inodes of the sockets that a process holds.
///
/// # Errors
/// `NotFound` if there is no such process, `PermissionDenied` if it is another user's.
pub fn sockets_of(pid: u32) -> io::Result<HashSet<u32>> {
    inodes(Path::new(&format!("/proc/{pid}/fd"))).map(Iterator::collect)
}

fn pids() -> io::Result<Vec<u32>> {
    let names = fs::read_dir("/proc")?.filter_map(Result::ok);
    let mut pids: Vec<u32> =
        names.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    pids.sort_unstable();
    let first = pids.iter().take_while(|pid| **pid == 1).count();
    pids.rotate_left(first);
    Ok(pids)
}

/// `None` if it has ended: no name is its name then, not even the empty one.
fn name_of(pid: u32) -> Option<String> {
    let name = fs::read(format!("/proc/{pid}/comm")).ok()?;
    Some(String::from_utf8_lossy(name.trim_ascii_end()).into_owned())
}

fn inodes(directory: &Path) -> io::Result<impl Iterator<Item = u32>> {
    let entries = fs::read_dir(directory)?.filter_map(Result::ok);
    Ok(entries.filter_map(|entry| {
        let target = fs::read_link(entry.path()).ok()?;
        parse(target.to_str()?)
    }))
}

/// A descriptor of a socket is a link to `socket:[INODE]`.
fn parse(target: &str) -> Option<u32> {
    let inode = target.strip_prefix("socket:[")?.strip_suffix(']')?;
    inode.parse().ok()
}

// `/proc/PID/task/TID/schedstat`: CPU time of the threads of any process, without privilege.

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
pub fn times_of_process(pid: u32) -> io::Result<ThreadTimes> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task"))?.filter_map(Result::ok);
    Ok(tasks.filter_map(|task| times(&task.path())).collect())
}

/// Of all threads of the processes of a user.
///
/// # Errors
/// There is no `/proc`.
pub fn times_of_user(uid: u32) -> io::Result<ThreadTimes> {
    let mut found = ThreadTimes::new();
    for entry in fs::read_dir("/proc")?.filter_map(Result::ok) {
        let is_of_user = |entry: &fs::DirEntry| Some(entry.metadata().ok()?.uid() == uid);
        let pid = entry.file_name().to_str().and_then(|name| name.parse().ok());
        if let Some(pid) = pid.filter(|_| is_of_user(&entry) == Some(true)) {
            // It may have ended.
            found.extend(times_of_process(pid).unwrap_or_default());
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
    use std::net::TcpListener;
    use std::os::fd::AsRawFd;

    use super::*;
    use crate::thread::thread_id;

    #[test]
    fn only_sockets_have_an_inode_here() {
        assert_eq!(parse("socket:[21410]"), Some(21410));
        for other in ["pipe:[21410]", "socket:[]", "socket:[x", "/dev/null", ""] {
            assert_eq!(parse(other), None, "{other}");
        }
    }

    /// One that ends while all are looked at must not be found by the empty name.
    #[test]
    fn a_process_that_has_ended_has_no_name() {
        // The kernel's largest number is 2^22 (PID_MAX_LIMIT).
        assert_eq!(name_of(1 << 23), None);
        let own = std::process::id();
        let name = name_of(own).unwrap();
        assert!(called(&name).unwrap().contains(&own));
    }

    #[test]
    fn a_socket_of_this_process_is_found_and_another_is_not() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let link = fs::read_link(format!("/proc/self/fd/{}", listener.as_raw_fd())).unwrap();
        let inode = parse(link.to_str().unwrap()).unwrap();
        let pid = std::process::id();
        let found = owners(&HashSet::from([inode, u32::MAX]), None).unwrap();
        assert_eq!(found.by_inode.len(), 1);
        let owner = &found.by_inode[&inode];
        let others = owners(&HashSet::from([inode]), Some(&[1]));
        assert!(others.unwrap().by_inode.is_empty());
        assert_eq!(owner.pid, pid);
        assert!(sockets_of(pid).unwrap().contains(&inode));
        assert!(called(&owner.name).unwrap().contains(&pid));
        assert!(called("no such program").unwrap().is_empty());
    }

    #[test]
    fn the_calling_thread_is_among_those_of_its_process_and_of_its_user() {
        let own = thread_id();
        let pid = std::process::id();
        let uid = fs::metadata(format!("/proc/{pid}")).unwrap().uid();
        for times in [times_of_process(pid).unwrap(), times_of_user(uid).unwrap()] {
            assert!(times.contains_key(&own), "{times:?}");
        }
        assert!(times_of_process(u32::MAX).is_err());
    }
}
