//! A quota of CPU time for some of this process's threads, by a control group of its own, and for
//! the threads of a lab's host.
//!
//! Version 1 of the control groups takes single threads. In version 2 the group is a threaded group
//! below the group of this process, which becomes a threaded domain meanwhile
//! (Documentation/admin-guide/cgroup-v2.rst, Threads). So the process stays in its own group and
//! only needs to be allowed to write there. Changes to the parent group are undone when the last
//! group is removed. What a killed process has left is removed by the next process that makes a
//! group there.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use std::{process, thread};

use linerate_sys::proc::cgroup::CpuGroup;

use super::build::LabError;
use crate::shares::joined;

/// A group with a quota; removed when dropped.
pub(super) struct QuotaGroup {
    home: Home,
    directory: PathBuf,
}

/// The group of this process, in which groups are made.
#[derive(Debug, Clone)]
struct Home {
    directory: PathBuf,
    is_version1: bool,
}

/// A file, and what is written into it.
type Write = (PathBuf, String);

impl QuotaGroup {
    /// Makes a group below that of this process, whose threads together get this share of one CPU.
    pub(super) fn create(percent: u32) -> io::Result<Self> {
        let group = CpuGroup::of_this_thread().map_err(io::Error::other)?.ok_or_else(|| {
            let why = "no control group of this process is mounted where it can be seen";
            io::Error::new(ErrorKind::NotFound, why)
        })?;
        let home =
            Home { directory: group.directory().to_owned(), is_version1: group.is_version1() };
        home.make(percent)
    }

    /// Moves the calling thread into it; threads that it starts from now on are in it, too.
    pub(super) fn join(&self) -> io::Result<()> {
        // 0 is the thread that writes (cgroup_procs_write_start in kernel/cgroup/cgroup.c).
        let threads = self.home.threads();
        write(&(self.directory.join(threads), "0".to_owned()))
    }
}

impl Drop for QuotaGroup {
    fn drop(&mut self) {
        // Threads that have just ended may still be counted.
        for _ in 0..100 {
            match fs::remove_dir(&self.directory) {
                Err(error) if error.kind() == ErrorKind::ResourceBusy => {
                    thread::sleep(Duration::from_millis(10));
                }
                _ => break,
            }
        }
        if let Ok(_lock) = self.home.lock() {
            self.home.release();
        }
    }
}

impl Home {
    fn make(self, percent: u32) -> io::Result<QuotaGroup> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let lock = self.lock()?;
        self.sweep();
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("{PREFIX}{}-{number}", process::id());
        let directory = self.directory.join(name);
        // A group of that name was left by an earlier process with this number.
        let _ = fs::remove_dir(&directory);
        fs::create_dir(&directory).map_err(|error| told("make", &directory, error))?;
        // From here on the group is removed whatever happens; it must not be before the lock is
        // held.
        let group = QuotaGroup { home: self, directory };
        let made = group.home.set_up(&group.directory, percent);
        drop(lock);
        made.map(|()| group)
    }

    fn set_up(&self, group: &Path, percent: u32) -> io::Result<()> {
        if self.is_version1 {
            let period = read(&group.join("cpu.cfs_period_us"))?;
            return write(&version1_quota(group, &period, percent)?);
        }
        let controllers = |file: &str| read(&self.directory.join(file)).map(|text| has_cpu(&text));
        if !controllers("cgroup.controllers")? {
            let group = self.directory.display();
            let why = format!("the control group {group} is not given the controller cpu");
            return Err(io::Error::new(ErrorKind::NotFound, why));
        }
        let has_cpu = controllers("cgroup.subtree_control")?;
        if !has_cpu {
            // The mark comes before the controller, so that whoever finds it can undo the change.
            match fs::create_dir(self.mark()) {
                Err(error) if error.kind() != ErrorKind::AlreadyExists => {
                    return Err(told("make", &self.mark(), error));
                }
                _ => {}
            }
        }
        let steps = version2_steps(&self.directory, group, has_cpu, percent);
        steps.iter().try_for_each(write)
    }

    /// Removes groups whose process is gone, and with the last of them the controller.
    fn sweep(&self) {
        for (pid, directory) in self.groups() {
            if !Path::new("/proc").join(pid.to_string()).exists() {
                // A group with threads stays: its processes cannot be seen from here.
                let _ = fs::remove_dir(directory);
            }
        }
        self.release();
    }

    /// Switches the controller off with the last group, if it was switched on with the first.
    fn release(&self) {
        if self.groups().is_empty() && self.mark().is_dir() {
            let control = self.directory.join("cgroup.subtree_control");
            if write(&(control, "-cpu".to_owned())).is_ok() {
                let _ = fs::remove_dir(self.mark());
            }
        }
    }

    /// Our groups here, each with the number of its process.
    fn groups(&self) -> Vec<(u32, PathBuf)> {
        let entries = fs::read_dir(&self.directory).into_iter().flatten();
        let group = |entry: io::Result<fs::DirEntry>| {
            let entry = entry.ok()?;
            let name = entry.file_name().into_string().ok()?;
            let (pid, _) = name.strip_prefix(PREFIX)?.split_once('-')?;
            Some((pid.parse().ok()?, entry.path()))
        };
        entries.filter_map(group).collect()
    }

    /// Held while groups are made or taken away: other processes may do so in the same place.
    fn lock(&self) -> io::Result<File> {
        let directory = File::open(&self.directory);
        let locked = directory.and_then(|directory| directory.lock().map(|()| directory));
        locked.map_err(|error| told("lock", &self.directory, error))
    }

    /// An empty group that marks that the controller is on only for our groups.
    fn mark(&self) -> PathBuf {
        self.directory.join(MARK)
    }

    fn threads(&self) -> &'static str {
        if self.is_version1 { "tasks" } else { "cgroup.threads" }
    }
}

fn version1_quota(group: &Path, period: &str, percent: u32) -> io::Result<Write> {
    let period: u64 = period.trim().parse().map_err(io::Error::other)?;
    let quota = period * u64::from(percent) / 100;
    Ok((group.join("cpu.cfs_quota_us"), quota.to_string()))
}

/// The group is threaded before the controller is on: with it, a group with processes has no
/// children but threaded ones.
fn version2_steps(home: &Path, group: &Path, has_cpu: bool, percent: u32) -> Vec<Write> {
    let quota = PERIOD_US * u64::from(percent) / 100;
    let mut steps = vec![(group.join("cgroup.type"), "threaded".to_owned())];
    if !has_cpu {
        steps.push((home.join("cgroup.subtree_control"), "+cpu".to_owned()));
    }
    steps.push((group.join("cpu.max"), format!("{quota} {PERIOD_US}")));
    steps
}

fn has_cpu(subtree_control: &str) -> bool {
    subtree_control.split_whitespace().any(|name| name == "cpu")
}

fn read(file: &Path) -> io::Result<String> {
    fs::read_to_string(file).map_err(|error| told("read", file, error))
}

/// Writes a file in one call, as the kernel requires, and never creates one.
fn write((file, text): &Write) -> io::Result<()> {
    let opened = OpenOptions::new().write(true).open(file);
    let written = opened.and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|error| told(&format!("write {text} to"), file, error))
}

fn told(what: &str, file: &Path, error: io::Error) -> io::Error {
    let message = format!("cannot {what} {}: {error}", file.display());
    io::Error::new(error.kind(), message)
}

/// What the names of our groups begin with; then come the process and a number.
const PREFIX: &str = "linerate-";
const MARK: &str = "linerate_cpu_on";

/// The kernel's own period of a quota.
const PERIOD_US: u64 = 100_000;

// The quota of a host. A host of the lab has no CPUs of its own: the quota is that of the threads
// that serve or measure there.

/// A quota of CPU time, or none, held until it is dropped.
pub struct CpuQuota(Option<QuotaGroup>);

impl CpuQuota {
    /// Takes a quota of `percent` of one CPU, if there is to be one.
    ///
    /// # Errors
    /// No control group can be made here.
    pub fn new(percent: Option<u32>) -> Result<Self, LabError> {
        let group = percent.map(QuotaGroup::create).transpose();
        Ok(Self(group.map_err(cannot(QUOTA))?))
    }

    /// Runs `work` on a thread with this quota; threads that it starts have it, too.
    ///
    /// # Errors
    /// The thread cannot be put into the control group.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, LabError> {
        thread::scope(|scope| {
            let helper = scope.spawn(|| {
                if let Some(group) = &self.0 {
                    group.join().map_err(cannot("put a thread into a control group"))?;
                }
                Ok(work())
            });
            joined(helper.join())
        })
    }
}

fn cannot(what: &'static str) -> impl FnOnce(io::Error) -> LabError {
    move |source| LabError::Host { what, source }
}

/// An error with the remedy in its text.
const QUOTA: &str = "make a control group with a quota of CPU time; run as root, or by \
    `systemd-run --scope -p \
                     Delegate=cpu`, so that the controller cpu is there and groups can be made";

#[cfg(test)]
mod tests {
    use std::hint::black_box;
    use std::time::{Duration, Instant};

    use linerate_sys::thread::CpuUsage;
    use linerate_testkit::{Need, skip};

    use super::*;

    /// A directory with the files of a group of version 2.
    fn like_a_group(directory: &Path, controllers: &str) {
        fs::create_dir_all(directory).expect("there is room");
        for (name, text) in [
            ("cgroup.type", "domain\n"),
            ("cgroup.controllers", "cpuset cpu memory\n"),
            ("cgroup.subtree_control", controllers),
            ("cpu.max", "max 100000\n"),
            ("cgroup.threads", ""),
        ] {
            fs::write(directory.join(name), text).expect("it can be written");
        }
    }

    fn home(directory: &Path) -> Home {
        Home { directory: directory.to_owned(), is_version1: false }
    }

    #[test]
    fn a_group_of_version_2_is_threaded_before_the_controller_is_on() {
        let (home, group) = (Path::new("/g"), Path::new("/g/linerate-7-0"));
        let words = |has_cpu| -> Vec<String> {
            let steps = version2_steps(home, group, has_cpu, 25);
            let words = steps.into_iter();
            words.map(|(file, text)| format!("{}: {text}", file.display())).collect()
        };
        let all = [
            "/g/linerate-7-0/cgroup.type: threaded",
            "/g/cgroup.subtree_control: +cpu",
            "/g/linerate-7-0/cpu.max: 25000 100000",
        ];
        assert_eq!(words(false), all);
        assert_eq!(words(true), [all[0], all[2]]);
    }

    #[test]
    fn a_quota_of_version_1_is_a_share_of_its_period() {
        let (file, text) = version1_quota(Path::new("/g"), "50000\n", 20).unwrap();
        assert_eq!((file.as_path(), text.as_str()), (Path::new("/g/cpu.cfs_quota_us"), "10000"));
        assert!(version1_quota(Path::new("/g"), "x", 20).is_err());
    }

    #[test]
    fn the_controller_is_told_from_those_that_begin_like_it() {
        assert!(has_cpu("cpuset cpu io\n"));
        assert!(!has_cpu("cpuset cpuacct\n"));
        assert!(!has_cpu("\n"));
    }

    #[test]
    fn a_group_is_set_up_and_the_controller_marked_as_ours() {
        let directory = tempfile::tempdir().unwrap();
        like_a_group(directory.path(), "");
        let home = home(directory.path());
        let group = directory.path().join("linerate-7-0");
        like_a_group(&group, "");
        home.set_up(&group, 50).unwrap();
        let text = |path: PathBuf| fs::read_to_string(path).unwrap();
        assert!(text(group.join("cgroup.type")).starts_with("threaded"));
        assert!(text(group.join("cpu.max")).starts_with("50000 100000"));
        assert_eq!(text(directory.path().join("cgroup.subtree_control")), "+cpu");
        assert!(home.mark().is_dir());
    }

    #[test]
    fn without_the_controller_nothing_is_changed_and_no_group_is_left() {
        let directory = tempfile::tempdir().unwrap();
        like_a_group(directory.path(), "");
        fs::write(directory.path().join("cgroup.controllers"), "cpuset memory\n").unwrap();
        let error = home(directory.path()).make(50).err().unwrap().to_string();
        assert!(error.ends_with("is not given the controller cpu"), "{error}");
        let home = home(directory.path());
        assert!(home.groups().is_empty() && !home.mark().exists());
        let control = directory.path().join("cgroup.subtree_control");
        assert_eq!(fs::read_to_string(control).unwrap(), "");
    }

    #[test]
    fn a_group_that_could_not_be_set_up_is_taken_away() {
        let directory = tempfile::tempdir().unwrap();
        like_a_group(directory.path(), "");
        // The new group has no files here: nothing can be written into them.
        let error = home(directory.path()).make(50).err().unwrap().to_string();
        assert!(error.contains("cgroup.type"), "{error}");
        let home = home(directory.path());
        assert!(home.groups().is_empty() && !home.mark().exists());
    }

    #[test]
    fn a_controller_that_was_on_before_is_not_ours_to_switch_off() {
        let directory = tempfile::tempdir().unwrap();
        like_a_group(directory.path(), "cpu memory\n");
        let home = home(directory.path());
        let group = directory.path().join("linerate-7-0");
        like_a_group(&group, "");
        home.set_up(&group, 50).unwrap();
        assert!(!home.mark().exists());
        fs::remove_dir_all(&group).unwrap();
        home.release();
        let control = directory.path().join("cgroup.subtree_control");
        assert_eq!(fs::read_to_string(control).unwrap(), "cpu memory\n");
    }

    #[test]
    fn the_last_group_takes_the_controller_with_it_and_no_other_does() {
        let directory = tempfile::tempdir().unwrap();
        like_a_group(directory.path(), "");
        let home = home(directory.path());
        fs::create_dir(home.mark()).unwrap();
        let others = directory.path().join(format!("linerate-{}-3", process::id()));
        fs::create_dir(&others).unwrap();
        let control = directory.path().join("cgroup.subtree_control");
        home.release();
        assert_eq!(fs::read_to_string(&control).unwrap(), "");
        fs::remove_dir(&others).unwrap();
        home.release();
        assert_eq!(fs::read_to_string(&control).unwrap(), "-cpu");
        assert!(!home.mark().exists());
    }

    #[test]
    fn leftovers_of_killed_processes_are_removed_and_those_of_living_ones_stay() {
        let directory = tempfile::tempdir().unwrap();
        like_a_group(directory.path(), "");
        let home = home(directory.path());
        fs::create_dir(home.mark()).unwrap();
        // No process has a number that large (PID_MAX_LIMIT is 2^22).
        let dead = directory.path().join("linerate-4194305-0");
        let living = directory.path().join(format!("linerate-{}-9", process::id()));
        let foreign = directory.path().join("session.scope");
        for group in [&dead, &living, &foreign] {
            fs::create_dir(group).unwrap();
        }
        home.sweep();
        assert!(!dead.exists() && living.exists() && foreign.exists() && home.mark().exists());
        fs::remove_dir(&living).unwrap();
        home.sweep();
        assert!(!home.mark().exists() && foreign.exists());
    }

    #[test]
    fn settings_that_could_not_be_written_are_named() {
        let error = write(&(PathBuf::from("/nowhere/cpu.max"), "1 2".to_owned())).unwrap_err();
        let said = error.to_string();
        assert!(said.starts_with("cannot write 1 2 to /nowhere/cpu.max: "), "{said}");
    }

    /// On this host's own version 2: its rules for threads, without the controller that version 1
    /// may have.
    #[test]
    fn threads_of_one_process_are_in_a_threaded_group_of_version_2() {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let mount = mounts.lines().find_map(|line| {
            let (before, after) = line.split_once(" - ")?;
            after.starts_with("cgroup2 ").then(|| before.split(' ').nth(4))?
        });
        let member = fs::read_to_string("/proc/self/cgroup").unwrap();
        let own = member.lines().find_map(|line| line.strip_prefix("0::/"));
        let (Some(mount), Some(own)) = (mount, own) else {
            skip(Need::Cgroup, "no version 2 of the control groups");
            return;
        };
        let directory = Path::new(mount).join(own);
        let name = format!("linerate-{}-test", process::id());
        let group = QuotaGroup { home: home(&directory), directory: directory.join(&name) };
        let made = fs::create_dir(&group.directory);
        let threaded = || write(&version2_steps(&directory, &group.directory, true, 50)[0]);
        if let Err(why) = made.and_then(|()| threaded()) {
            skip(Need::Cgroup, format_args!("no threaded group can be made: {why}"));
            return;
        }
        let inside = thread::scope(|scope| {
            let helper = scope.spawn(|| {
                group.join().unwrap();
                fs::read_to_string("/proc/thread-self/cgroup").unwrap()
            });
            helper.join().unwrap()
        });
        assert!(inside.contains(&name), "{inside}");
        let outside = fs::read_to_string("/proc/thread-self/cgroup").unwrap();
        assert!(!outside.contains(&name), "{outside}");
        let left = group.directory.clone();
        drop(group);
        assert!(!left.exists());
    }

    #[test]
    fn a_quota_holds_back_a_thread_that_never_rests() {
        let quota = match CpuQuota::new(Some(20)) {
            Ok(quota) => quota,
            Err(error) => {
                skip(Need::Cgroup, crate::words::chain(&error));
                return;
            }
        };
        let used = quota.run(|| {
            let begin = Instant::now();
            while begin.elapsed() < Duration::from_secs(1) {
                black_box(0);
            }
            CpuUsage::of_thread().user
        });
        // A fifth of a second, and up to a period of 100 ms more where it began.
        assert!(used.unwrap() < Duration::from_millis(400));
    }
}
