//! What the control groups of this process, which a container is made of, let it have.
//!
//! Limits hold down the tree: the tightest of the process's own group and those above it, as far as
//! they are visible from here, is what is given.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::{Malformed, Probe, ProcError, field, read_and_parse, read_text};

/// What the control groups let this process have.
#[derive(Debug, Clone, PartialEq)]
pub struct CgroupLimits {
    /// CPU time.
    pub cpu: Probe<CpuLimit>,
    /// Memory in bytes; `Supported(None)`: not limited.
    pub memory_bytes: Probe<Option<u64>>,
    /// Processes and threads; `Supported(None)`: not limited.
    pub tasks: Probe<Option<u64>>,
}

/// The limit on CPU time, and how often it was felt.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CpuLimit {
    /// CPUs' worth of time (1.5: one and a half); `None`: not limited.
    pub cpus: Option<f64>,
    /// Throttling in the group that has the limit, or in the process's own if none has.
    pub throttling: Throttling,
}

/// How often a group used up its CPU time, since it was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Throttling {
    /// Periods in which the group had something to run.
    pub periods: u64,
    /// Periods in which it was stopped for the rest of the period.
    pub throttled_periods: u64,
    /// Time for which it was stopped, in microseconds, summed over CPUs.
    pub throttled_us: u64,
}

/// The number of a group of version 2 by its path below the root, `/system.slice/ssh.service`: that
/// which eBPF compares, the inode of its directory.
///
/// # Errors
/// `NotFound` if there is no such group, or no version 2 at all.
pub fn group_id(path: &str) -> io::Result<u64> {
    fs::metadata(group_directory(path)?).map(|metadata| metadata.ino())
}

/// The directory of a group of version 2 by its path below the root, whether it is there or not.
///
/// # Errors
/// `NotFound` if there is no version 2.
pub fn group_directory(path: &str) -> io::Result<PathBuf> {
    let mounts = fs::read_to_string("/proc/thread-self/mountinfo")?;
    let mount = mounts.lines().find_map(|line| cgroup_mount(line, None));
    let (_, directory) = mount.ok_or(io::ErrorKind::NotFound)?;
    Ok(Path::new(directory).join(path.trim_start_matches('/')))
}

impl CgroupLimits {
    /// Reads the limits, from version 2 of the control groups or, for a controller that version 1
    /// has, from there.
    ///
    /// # Errors
    /// `/proc/self` does not tell the groups (a kernel without them) or the mounts.
    pub fn read() -> Result<Self, ProcError> {
        let member = read_text("/proc/self/cgroup")?;
        let mounts = read_text("/proc/self/mountinfo")?;
        let group = |controller| ControlGroup::find(&member, &mounts, controller);
        let memory = |group: &ControlGroup| {
            group.tightest(if group.version1 { "memory.limit_in_bytes" } else { "memory.max" })
        };
        Ok(Self {
            cpu: probe_group(group("cpu"), ControlGroup::cpu_limit),
            memory_bytes: probe_group(group("memory"), memory),
            tasks: probe_group(group("pids"), |group| group.tightest("pids.max")),
        })
    }
}

/// Memory that the process's control group holds at present, bytes: that of the level with the
/// tightest limit, or of the process's own group if none limits.
pub fn memory_in_use() -> Probe<u64> {
    let texts = read_text("/proc/self/cgroup").and_then(|member| {
        let mounts = read_text("/proc/self/mountinfo")?;
        Ok((member, mounts))
    });
    match texts {
        Ok((member, mounts)) => {
            probe_group(ControlGroup::find(&member, &mounts, "memory"), ControlGroup::memory_in_use)
        }
        Err(error) => Err(error).into(),
    }
}

/// The control group that a thread's CPU time is counted in, which is another one for each thread
/// where version 1 says so.
#[derive(Debug)]
pub struct CpuGroup(ControlGroup);

impl CpuGroup {
    /// That of the calling thread, which the threads that it starts share; `None` where there is
    /// none to be seen.
    ///
    /// # Errors
    /// `/proc` tells neither the groups nor the mounts.
    pub fn of_this_thread() -> Result<Option<Self>, ProcError> {
        let member = read_text("/proc/thread-self/cgroup")?;
        let mounts = read_text("/proc/self/mountinfo")?;
        Ok(ControlGroup::find(&member, &mounts, "cpu").map(Self))
    }

    /// Its directory.
    pub fn directory(&self) -> &Path {
        &self.0.directory
    }

    /// Whether version 1 of the control groups has the controller.
    pub fn is_version1(&self) -> bool {
        self.0.version1
    }

    /// The limit that is felt there, and how often it was by now.
    ///
    /// # Errors
    /// The group's files cannot be read, or say something else.
    pub fn limit(&self) -> Result<CpuLimit, ProcError> {
        self.0.cpu_limit()
    }
}

fn probe_group<T>(
    group: Option<ControlGroup>,
    read: impl FnOnce(&ControlGroup) -> Result<T, ProcError>,
) -> Probe<T> {
    match group {
        Some(group) => read(&group).into(),
        None => Probe::Unsupported(
            "no control group of this process is mounted where it can be seen".to_owned(),
        ),
    }
}

/// The process's group in one hierarchy.
#[derive(Debug, PartialEq, Eq)]
struct ControlGroup {
    /// Where the hierarchy is mounted.
    mount: PathBuf,
    /// The group's directory, at or under `mount`.
    directory: PathBuf,
    version1: bool,
}

impl ControlGroup {
    /// Finds the group that `controller` has put the process in.
    fn find(member: &str, mounts: &str, controller: &str) -> Option<Self> {
        let entry = |wanted: &dyn Fn(&str) -> bool| {
            member.lines().find_map(|line| {
                let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
                wanted(controllers).then_some(path)
            })
        };
        // A controller is in one hierarchy only: where version 1 has it, version 2 (empty name)
        // does not.
        let version1_path =
            entry(&|controllers| controllers.split(',').any(|name| name == controller));
        let version1 = version1_path.is_some();
        let path = version1_path.or_else(|| entry(&str::is_empty))?;
        mounts.lines().find_map(|line| {
            let (root, mount) = cgroup_mount(line, version1.then_some(controller))?;
            // Without a namespace of control groups a container sees its path from the host's root,
            // but has mounted only a part of the tree.
            let below = Path::new(path).strip_prefix(root).ok()?;
            Some(Self {
                mount: PathBuf::from(mount),
                directory: Path::new(mount).join(below),
                version1,
            })
        })
    }

    /// The group's directory and those above it, up to the mount.
    fn levels(&self) -> impl Iterator<Item = &Path> {
        self.directory.ancestors().take_while(|level| level.starts_with(&self.mount))
    }

    /// The smallest value of a file on all levels; `None` if none limits.
    fn tightest(&self, file: &str) -> Result<Option<u64>, ProcError> {
        Ok(self.read_levels(file, parse_limit)?.into_iter().filter_map(|(_, limit)| limit).min())
    }

    fn memory_in_use(&self) -> Result<u64, ProcError> {
        let (limit, usage) = if self.version1 {
            ("memory.limit_in_bytes", "memory.usage_in_bytes")
        } else {
            ("memory.max", "memory.current")
        };
        let limits = self.read_levels(limit, parse_limit)?.into_iter();
        let tightest = limits
            .filter_map(|(level, limit)| Some((level, limit?)))
            .min_by_key(|(_, limit)| *limit);
        let level = tightest.map_or_else(|| self.directory.clone(), |(level, _)| level);
        read_and_parse(level.join(usage), |text| field(Some(text), "a number of bytes"))
    }

    fn cpu_limit(&self) -> Result<CpuLimit, ProcError> {
        let limits = if self.version1 {
            self.version1_cpu_quotas()?
        } else {
            self.read_levels("cpu.max", parse_cpu_max)?
        };
        let tightest = limits
            .into_iter()
            .filter_map(|(level, cpus)| Some((level, cpus?)))
            .min_by(|(_, a), (_, b)| a.total_cmp(b));
        let throttled = tightest.as_ref().map_or(self.directory.as_path(), |(level, _)| level);
        let throttling = read_and_parse(throttled.join("cpu.stat"), Throttling::parse)?;
        Ok(CpuLimit { cpus: tightest.map(|(_, cpus)| cpus), throttling })
    }

    /// Version 1 has in two files, with −1 for "no limit", what version 2 has in `cpu.max`.
    fn version1_cpu_quotas(&self) -> Result<Vec<(PathBuf, Option<f64>)>, ProcError> {
        self.read_levels("cpu.cfs_quota_us", |text| field::<i64>(Some(text), "a quota"))?
            .into_iter()
            .map(|(level, quota)| {
                let period: f64 = read_and_parse(level.join("cpu.cfs_period_us"), |text| {
                    field(Some(text), "a period")
                })?;
                Ok((level, (quota > 0).then(|| quota as f64 / period)))
            })
            .collect()
    }

    /// Reads a file on each level that has it; an error if none has, unless this is the mount
    /// itself: the tree's root has no limits, and so no such files.
    fn read_levels<T>(
        &self,
        file: &str,
        parse: impl Fn(&str) -> Result<T, Malformed>,
    ) -> Result<Vec<(PathBuf, T)>, ProcError> {
        let mut values = Vec::new();
        let mut missing = None;
        for level in self.levels() {
            match read_and_parse(level.join(file), &parse) {
                Ok(value) => values.push((level.to_owned(), value)),
                Err(error @ ProcError::Read { .. }) if is_missing(&error) => missing = Some(error),
                Err(error) => return Err(error),
            }
        }
        match missing {
            Some(error) if values.is_empty() && self.directory != self.mount => Err(error),
            _ => Ok(values),
        }
    }
}

impl Throttling {
    /// Parses a `cpu.stat` of either version; what is missing (the root group has no periods) is
    /// zero.
    ///
    /// # Errors
    /// A figure of this struct is not a number.
    pub fn parse(text: &str) -> Result<Self, Malformed> {
        let mut throttling = Self::default();
        for (key, value) in text.lines().filter_map(|line| line.split_once(' ')) {
            let value = || field::<u64>(Some(value), "a figure of cpu.stat");
            match key {
                "nr_periods" => throttling.periods = value()?,
                "nr_throttled" => throttling.throttled_periods = value()?,
                "throttled_usec" => throttling.throttled_us = value()?,
                // Version 1 counts nanoseconds.
                "throttled_time" => throttling.throttled_us = value()? / 1000,
                _ => {}
            }
        }
        Ok(throttling)
    }
}

/// The root and the mount point of a line of mountinfo (proc(5)), if it is of version 2 or has
/// version 1's controller.
fn cgroup_mount<'a>(line: &'a str, controller: Option<&str>) -> Option<(&'a str, &'a str)> {
    let (mount, file_system) = line.split_once(" - ")?;
    let mut words = file_system.split(' ');
    let fits = match (words.next()?, controller) {
        ("cgroup2", None) => true,
        ("cgroup", Some(controller)) => words.nth(1)?.split(',').any(|option| option == controller),
        _ => false,
    };
    let mut words = mount.split(' ').skip(3);
    fits.then_some((words.next()?, words.next()?))
}

/// Parses "max" or a number. Version 1 writes "no limit" of memory as the largest multiple of a
/// page.
fn parse_limit(text: &str) -> Result<Option<u64>, Malformed> {
    const UNLIMITED_VERSION1: u64 = 1 << 62;
    match text.trim() {
        "max" => Ok(None),
        number => field::<u64>(Some(number), "a limit")
            .map(|limit| (limit < UNLIMITED_VERSION1).then_some(limit)),
    }
}

/// Parses `cpu.max`, "max 100000" or "150000 100000" (microseconds in each period), as a number of
/// CPUs.
fn parse_cpu_max(text: &str) -> Result<Option<f64>, Malformed> {
    let (quota, period) =
        text.trim().split_once(' ').ok_or_else(|| Malformed::new("a quota and a period", text))?;
    let period: u64 = field(Some(period), "a period")?;
    if period == 0 {
        return Err(Malformed::new("a period above zero", text));
    }
    Ok(parse_limit(quota)?.map(|quota| quota as f64 / period as f64))
}

fn is_missing(error: &ProcError) -> bool {
    matches!(error, ProcError::Read { source, .. } if source.raw_os_error() == Some(libc::ENOENT))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HYBRID_MEMBER: &str =
        "4:memory:/api/945b\n2:cpu,cpuacct:/\n1:name=systemd:/\n0::/user.slice\n";
    const HYBRID_MOUNTS: &str = "23 1 0:22 / /proc rw - proc proc rw\n\
        32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup \
        rw,cpu,cpuacct\n\
        35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n\
        41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n";

    fn group(mount: &str, directory: &str, version1: bool) -> Option<ControlGroup> {
        Some(ControlGroup { mount: mount.into(), directory: directory.into(), version1 })
    }

    #[test]
    fn version1_is_taken_for_the_controllers_that_it_has() {
        let find = |controller| ControlGroup::find(HYBRID_MEMBER, HYBRID_MOUNTS, controller);
        assert_eq!(
            find("cpu"),
            group("/sys/fs/cgroup/cpu,cpuacct", "/sys/fs/cgroup/cpu,cpuacct/", true)
        );
        assert_eq!(
            find("memory"),
            group("/sys/fs/cgroup/memory", "/sys/fs/cgroup/memory/api/945b", true)
        );
        assert_eq!(
            find("pids"),
            group("/sys/fs/cgroup/unified", "/sys/fs/cgroup/unified/user.slice", false)
        );
    }

    #[test]
    fn a_part_of_the_tree_that_is_mounted_as_a_root_is_understood() {
        let mounts = "30 23 0:26 /docker/ab /sys/fs/cgroup ro - cgroup2 cgroup rw\n";
        assert_eq!(
            ControlGroup::find("0::/docker/ab/c\n", mounts, "cpu"),
            group("/sys/fs/cgroup", "/sys/fs/cgroup/c", false)
        );
        assert_eq!(ControlGroup::find("0::/other\n", mounts, "cpu"), None);
        assert_eq!(ControlGroup::find("", mounts, "cpu"), None);
    }

    #[test]
    fn the_tightest_limit_of_all_levels_holds() {
        let mount =
            std::env::temp_dir().join(format!("linerate-sys-cgroup-{}", std::process::id()));
        let directory = mount.join("outer/inner");
        std::fs::create_dir_all(&directory).unwrap();
        let write = |path: &str, text: &str| std::fs::write(mount.join(path), text).unwrap();
        write("outer/cpu.max", "150000 100000\n");
        write(
            "outer/cpu.stat",
            "usage_usec 9\nnr_periods 7\nnr_throttled 3\nthrottled_usec 1234\n",
        );
        write("outer/inner/cpu.max", "max 100000\n");
        write("outer/inner/pids.max", "max\n");
        let group = ControlGroup { mount: mount.clone(), directory, version1: false };
        let cpu = group.cpu_limit();
        let (tasks, memory) = (group.tightest("pids.max"), group.tightest("memory.max"));
        std::fs::remove_dir_all(&mount).unwrap();

        let throttling = Throttling { periods: 7, throttled_periods: 3, throttled_us: 1234 };
        assert_eq!(cpu.unwrap(), CpuLimit { cpus: Some(1.5), throttling });
        assert_eq!(tasks.unwrap(), None);
        assert!(matches!(Probe::from(memory), Probe::Unsupported(_)));
        let usage = super::memory_in_use();
        assert!(!matches!(usage, Probe::Unknown(_)), "{usage:?}");
    }

    #[test]
    fn quotas_of_version1_are_understood() {
        let directory =
            std::env::temp_dir().join(format!("linerate-sys-v1-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let write = |name: &str, text: &str| std::fs::write(directory.join(name), text).unwrap();
        write("cpu.cfs_period_us", "100000\n");
        write("cpu.stat", "nr_periods 2\nnr_throttled 1\nthrottled_time 5000\n");
        let group =
            ControlGroup { mount: directory.clone(), directory: directory.clone(), version1: true };
        let cpus = |quota: &str| {
            write("cpu.cfs_quota_us", quota);
            group.cpu_limit().unwrap().cpus
        };
        let (limited, unlimited) = (cpus("250000\n"), cpus("-1\n"));
        let throttling = group.cpu_limit().unwrap().throttling;
        std::fs::remove_dir_all(&directory).unwrap();

        assert_eq!((limited, unlimited), (Some(2.5), None));
        assert_eq!((throttling.throttled_periods, throttling.throttled_us), (1, 5));
    }

    #[test]
    fn limits_are_numbers_or_none() {
        assert_eq!(parse_limit("9223372036854771712\n"), Ok(None));
        assert_eq!(parse_limit("4096\n"), Ok(Some(4096)));
        assert_eq!(parse_cpu_max("50000 100000\n"), Ok(Some(0.5)));
        for text in ["", "max", "1 0", "x 1", "1 x"] {
            assert!(parse_cpu_max(text).is_err(), "{text:?}");
        }
        assert_eq!(Throttling::parse("throttled_time 5000\n").unwrap().throttled_us, 5);
        assert!(Throttling::parse("nr_periods x\n").is_err());
    }

    #[test]
    fn the_running_kernel_is_understood() {
        let limits = CgroupLimits::read().unwrap();
        assert!(!matches!(limits.cpu, Probe::Unknown(_)), "{limits:?}");
        assert!(!matches!(limits.memory_bytes, Probe::Unknown(_)), "{limits:?}");
    }
}
