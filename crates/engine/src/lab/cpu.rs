//! What a host's threads get of a CPU: affinity, busy neighbours, a control group's quota. A host of the lab has no
//! CPUs of its own: its share is that of the threads that serve or measure there.

use std::fs;
use std::hint::black_box;
use std::io;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use linerate_core::record::{Caveat, CaveatKind};
use linerate_core::truth::CpuShare;
use linerate_sys::thread::{affinity, set_affinity};
use thiserror::Error;

/// A CPU could not be shared out.
#[derive(Debug, Error)]
#[error("cannot {what}")]
pub struct CpuError {
    what: &'static str,
    source: io::Error,
}

/// A share of a CPU, held until it is dropped.
pub(crate) struct Allotment {
    cpus: Option<Vec<u32>>,
    quota: Option<QuotaGroup>,
    _neighbours: Neighbours,
    caveat: Option<Caveat>,
}

impl Allotment {
    /// Takes a share. Where no control group can be made, neighbours take the rest of the CPU instead.
    pub(crate) fn of(share: CpuShare) -> Result<Self, CpuError> {
        match share {
            CpuShare::Any => Ok(Self::held(None, Neighbours::none())),
            CpuShare::Own { cpu } => Ok(Self::held(Some(number(cpu)?), Neighbours::none())),
            CpuShare::Shared { cpu, neighbours } => shared(cpu, neighbours),
            CpuShare::Quota { percent } => match QuotaGroup::create(percent) {
                Ok(group) => Ok(Self {
                    quota: Some(group),
                    ..Self::held(None, Neighbours::none())
                }),
                Err(why) => {
                    let neighbours = (100 / percent.max(1)).saturating_sub(1);
                    Ok(Self {
                        caveat: Some(instead(neighbours, &why)),
                        ..shared(0, neighbours)?
                    })
                }
            },
        }
    }

    fn held(cpu: Option<u32>, neighbours: Neighbours) -> Self {
        Self {
            cpus: cpu.map(|cpu| vec![cpu]),
            quota: None,
            _neighbours: neighbours,
            caveat: None,
        }
    }

    /// Runs `work` on a thread with this share; threads that it starts have it, too.
    pub(crate) fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, CpuError> {
        thread::scope(|scope| {
            let helper = scope.spawn(|| {
                if let Some(cpus) = &self.cpus {
                    set_affinity(cpus).map_err(cannot("confine a thread to a CPU"))?;
                }
                if let Some(group) = &self.quota {
                    group
                        .join()
                        .map_err(cannot("put a thread into a control group"))?;
                }
                Ok(work())
            });
            // Its panic goes on here.
            (helper.join()).unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// What is other than it was asked for.
    pub(crate) fn caveat(&self) -> Option<Caveat> {
        self.caveat.clone()
    }
}

fn shared(cpu: u32, neighbours: u32) -> Result<Allotment, CpuError> {
    let cpu = number(cpu)?;
    let busy = Neighbours::start(cpu, neighbours).map_err(cannot("start a busy neighbour"))?;
    Ok(Allotment::held(Some(cpu), busy))
}

fn instead(neighbours: u32, why: &io::Error) -> Caveat {
    Caveat::new(
        CaveatKind::SettingNotTaken,
        format!("{neighbours} busy neighbours instead of a CPU quota: {why}"),
        "run it as root where version 1 of the control group cpu is mounted",
    )
}

/// The number of the `index`th CPU that this process may use, counted around.
fn number(index: u32) -> Result<u32, CpuError> {
    let allowed = affinity().map_err(cannot("read the CPUs of this process"))?;
    match allowed.len() {
        0 => Ok(index),
        count => Ok(allowed[index as usize % count]),
    }
}

fn cannot<E: std::error::Error + Send + Sync + 'static>(
    what: &'static str,
) -> impl FnOnce(E) -> CpuError {
    move |error| CpuError {
        what,
        source: io::Error::other(error),
    }
}

/// Threads that never rest.
struct Neighbours {
    over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Neighbours {
    fn none() -> Self {
        Self {
            over: Arc::new(AtomicBool::new(false)),
            threads: Vec::new(),
        }
    }

    fn start(cpu: u32, count: u32) -> io::Result<Self> {
        let mut made = Self::none();
        for _ in 0..count {
            let over = Arc::clone(&made.over);
            let spawned = thread::Builder::new()
                .name("neighbour".into())
                .spawn(move || {
                    // On any CPU it would be no neighbour; then the run shows it, and so does the verdict.
                    let _ = set_affinity(&[cpu]);
                    // No pause instruction: a hypervisor may take the CPU away for it.
                    let mut n = 0_u64;
                    while !over.load(Ordering::Relaxed) {
                        for _ in 0..10_000 {
                            n = black_box(n.wrapping_add(1));
                        }
                    }
                })?;
            made.threads.push(spawned);
        }
        Ok(made)
    }
}

impl Drop for Neighbours {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// A control group (version 1) of this process's own, with a quota of CPU time; removed when dropped.
struct QuotaGroup {
    directory: PathBuf,
}

impl QuotaGroup {
    fn create(percent: u32) -> io::Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let parent = parent_group()?;
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let directory = parent.join(format!("linerate-{}-{number}", process::id()));
        fs::create_dir(&directory)?;
        let group = Self { directory };
        let period: u64 = fs::read_to_string(group.directory.join("cpu.cfs_period_us"))?
            .trim()
            .parse()
            .map_err(io::Error::other)?;
        let quota = period * u64::from(percent) / 100;
        fs::write(group.directory.join("cpu.cfs_quota_us"), quota.to_string())?;
        Ok(group)
    }

    /// Moves the calling thread into it; threads that it starts from now on are in it, too.
    fn join(&self) -> io::Result<()> {
        // 0 is the thread that writes (Documentation/admin-guide/cgroup-v1/cgroups.rst).
        fs::write(self.directory.join("tasks"), "0")
    }
}

impl Drop for QuotaGroup {
    fn drop(&mut self) {
        // Threads that have just ended may still be counted.
        for _ in 0..100 {
            match fs::remove_dir(&self.directory) {
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                    thread::sleep(Duration::from_millis(10));
                }
                _ => break,
            }
        }
    }
}

/// This process's group in the hierarchy of version 1 that has the controller cpu.
fn parent_group() -> io::Result<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mountinfo")?;
    let member = fs::read_to_string("/proc/self/cgroup")?;
    let mount = cpu_mount(&mounts).ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::NotFound,
            "version 1 of the control group cpu is not mounted",
        )
    })?;
    let own = own_group(&member).unwrap_or_default();
    let directory = Path::new(mount).join(own);
    // In a container the path is the host's, and the mount may be the group itself.
    Ok(match directory.is_dir() {
        true => directory,
        false => PathBuf::from(mount),
    })
}

/// Where the controller cpu of version 1 is mounted (proc_pid_mountinfo(5)).
fn cpu_mount(mountinfo: &str) -> Option<&str> {
    mountinfo.lines().find_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        let mut after = after.split(' ');
        let is_version1 = after.next() == Some("cgroup");
        let has_cpu = after.nth(1)?.split(',').any(|option| option == "cpu");
        (is_version1 && has_cpu)
            .then(|| before.split(' ').nth(4))
            .flatten()
    })
}

/// The group of the controller cpu, without its leading slash (cgroups(7)).
fn own_group(member: &str) -> Option<&str> {
    member.lines().find_map(|line| {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        let has_cpu = controllers.split(',').any(|name| name == "cpu");
        has_cpu.then(|| path.trim_start_matches('/'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_group_of_version_1_is_found_among_others() {
        let mounts = "\
29 24 0:26 / /sys/fs/cgroup/unified rw shared:4 - cgroup2 cgroup2 rw
30 24 0:27 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset
31 24 0:28 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:5 - cgroup cgroup rw,cpu,cpuacct";
        assert_eq!(cpu_mount(mounts), Some("/sys/fs/cgroup/cpu,cpuacct"));
        assert_eq!(cpu_mount("29 24 0:26 / /a rw - cgroup2 cgroup2 rw"), None);
        let member = "3:cpuset:/\n1:cpu,cpuacct:/user/1\n0::/x";
        assert_eq!(own_group(member), Some("user/1"));
    }

    #[test]
    fn a_quota_holds_back_a_thread_that_never_rests() {
        let allotment = Allotment::of(CpuShare::Quota { percent: 20 }).unwrap();
        if let Some(caveat) = allotment.caveat() {
            eprintln!("SKIPPED: {}", caveat.message);
            return;
        }
        let used = allotment.run(|| {
            let begin = std::time::Instant::now();
            while begin.elapsed() < Duration::from_secs(1) {
                black_box(0);
            }
            linerate_sys::thread::CpuUsage::of_thread().user
        });
        // A fifth of a second, and up to a period of 100 ms more where it began.
        assert!(used.unwrap() < Duration::from_millis(400));
    }

    #[test]
    fn neighbours_end_with_their_allotment() {
        let allotment = Allotment::of(CpuShare::Shared {
            cpu: 0,
            neighbours: 2,
        })
        .unwrap();
        assert_eq!(allotment.run(|| affinity().unwrap().len()).unwrap(), 1);
        drop(allotment);
    }
}
