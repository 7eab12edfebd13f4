//! Keeps the CPUs from going to sleep while delays are measured or emulated.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;
use std::{fs, io};

use crate::{CallError, thread};

/// Spinners: one busy thread of policy SCHED_IDLE for each CPU that the process may use. A CPU that
/// has something to run, however unimportant, does not sleep. To wake it up would take tens to
/// hundreds of microseconds in a guest.
///
/// The threads give way to all others at once and need no privilege, but the CPUs are never idle.
/// So take no profile meanwhile, and subtract [`spun`] from a measured CPU load. Other guests and
/// sibling hyper-threads are slowed down, and the time counts for a cgroup's CPU quota. The threads
/// have nice value 19, so that `/proc/stat` counts them as nice. They end when this is dropped.
#[derive(Debug)]
#[must_use = "the spinners end when this is dropped"]
pub struct IdleSpinners {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    /// The kernel's numbers of the threads.
    numbers: Vec<u32>,
}

impl IdleSpinners {
    /// Starts the spinners, on the CPUs that the calling thread may run on. They spin wherever a
    /// CPU has nothing else to run.
    ///
    /// # Errors
    /// A thread cannot be started, bound to its CPU or given the policy; none is left behind then.
    pub fn start() -> Result<Self, CallError> {
        let failed = |error| CallError::new("keep the CPUs awake", io::Error::other(error));
        let mut spinners = Self { stop: Arc::default(), threads: Vec::new(), numbers: Vec::new() };
        for cpu in thread::affinity().map_err(failed)? {
            let stop = Arc::clone(&spinners.stop);
            let (report, reported) = mpsc::channel();
            let (begin, may_begin) = mpsc::channel();
            let thread = Builder::new()
                .name(format!("{THREAD_NAME}{cpu}"))
                .spawn(move || {
                    let prepared = prepare(cpu);
                    let _registered = Registered::new(cpu);
                    // The receiver waits for it.
                    let _ = report.send(prepared.map(|()| thread::thread_id()));
                    // At an ordinary priority it would be in the way.
                    if may_begin.recv().is_ok() {
                        spin(&stop);
                    }
                })
                .map_err(|error| {
                    CallError::new(format!("start a thread to keep CPU {cpu} awake"), error)
                })?;
            spinners.threads.push(thread);
            let number =
                reported.recv().expect("a spinner reports before it ends").map_err(failed)?;
            // Not by the thread itself: on a busy CPU it would get no further for seconds.
            thread::set_idle_policy(number).map_err(failed)?;
            spinners.numbers.push(number);
            // The thread ends only after this.
            let _ = begin.send(());
        }
        Ok(spinners)
    }

    /// How many CPUs are kept awake.
    pub fn cpus(&self) -> usize {
        self.threads.len()
    }
}

impl Drop for IdleSpinners {
    fn drop(&mut self) {
        // With SCHED_IDLE a thread also ends only when its CPU has nothing else to run, which on a
        // busy host takes seconds. Without the privilege for another policy that is waited for.
        for number in &self.numbers {
            let _ = thread::set_ordinary_policy(*number);
        }
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // A spinner has nothing in it that could panic, and nothing is lost if one did.
            let _ = thread.join();
        }
    }
}

/// The CPU time that the spinners of this process, and those that are [watched](watch), have used
/// on each CPU since they started, in rising order of the CPUs' numbers. Spinners that have ended
/// are not counted, so the difference of two readings is only right if none ended between them.
pub fn spun() -> Vec<(u32, Duration)> {
    let mut times: Vec<(u32, Duration)> = Vec::new();
    let mut add = |cpu: u32, time: Duration| match times.iter_mut().find(|(known, _)| *known == cpu)
    {
        Some((_, sum)) => *sum += time,
        None => times.push((cpu, time)),
    };
    for (cpu, thread) in spinners().iter() {
        if let Some(time) = cpu_time(*thread) {
            add(*cpu, time);
        }
    }
    for (cpu, schedstat) in watched().iter() {
        if let Some(time) = read_cpu_time(schedstat) {
            add(*cpu, time);
        }
    }
    times.sort_unstable();
    times
}

/// Makes [`spun`] count the current spinners of another process as well, such as the one that holds
/// the lab in which this process runs. It is no error if that process has none or is gone.
pub fn watch(process: u32) {
    let tasks = fs::read_dir(format!("/proc/{process}/task"));
    let mut others = watched();
    for task in tasks.into_iter().flatten().flatten().map(|task| task.path()) {
        let name = fs::read_to_string(task.join("comm")).unwrap_or_default();
        let cpu = name.trim_end().strip_prefix(THREAD_NAME).and_then(|cpu| cpu.parse().ok());
        let schedstat = task.join("schedstat");
        if let Some(cpu) = cpu
            && others.iter().all(|(_, known)| *known != schedstat)
        {
            others.push((cpu, schedstat));
        }
    }
}

/// CPU and `schedstat` of each spinner of other processes.
fn watched() -> MutexGuard<'static, Vec<(u32, PathBuf)>> {
    static WATCHED: Mutex<Vec<(u32, PathBuf)>> = Mutex::new(Vec::new());
    // As that of `spinners`.
    WATCHED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The CPU time of a thread of any process, up to its last tick. The exact clock that [`cpu_time`]
/// reads is only open to the thread's own process.
fn read_cpu_time(schedstat: &Path) -> Option<Duration> {
    let text = fs::read_to_string(schedstat).ok()?;
    let on_cpu = text.split_ascii_whitespace().next()?.parse().ok()?;
    Some(Duration::from_nanos(on_cpu))
}

/// An entry in the list of spinners that lasts as long as the thread that made it.
struct Registered {
    thread: u32,
}

impl Registered {
    fn new(cpu: u32) -> Self {
        let thread = thread::thread_id();
        spinners().push((cpu, thread));
        Self { thread }
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        spinners().retain(|(_, thread)| *thread != self.thread);
    }
}

/// CPU and thread number of each spinner.
fn spinners() -> MutexGuard<'static, Vec<(u32, u32)>> {
    static SPINNERS: Mutex<Vec<(u32, u32)>> = Mutex::new(Vec::new());
    // The list is whole after each of its changes, panic or not.
    SPINNERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The CPU time of a thread of this process, to the moment; none if it has ended. Its clock's
/// number is made as pthread_getcpuclockid(3) does (include/linux/posix-timers_types.h), which can
/// only be asked by who has the thread's handle.
fn cpu_time(thread: u32) -> Option<Duration> {
    const PER_THREAD: libc::clockid_t = 4;
    const SCHED: libc::clockid_t = 2;
    let clock = (!thread).cast_signed() << 3 | PER_THREAD | SCHED;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a live timespec that the call fills.
    let result = unsafe { libc::clock_gettime(clock, &raw mut time) };
    (result == 0).then(|| {
        Duration::from_secs(time.tv_sec.cast_unsigned())
            + Duration::from_nanos(time.tv_nsec.cast_unsigned())
    })
}

/// What the spinner sets before it has its policy.
fn prepare(cpu: u32) -> Result<(), CallError> {
    // Under automatic groups (sched(7)) the programs of another session take turns with this one's,
    // whatever the policy of its threads. Short turns then; it must be said before the policy, and
    // where it cannot be, turns are long.
    let _ = thread::set_time_slice(SHORTEST_SLICE);
    thread::set_affinity(&[cpu])
}

fn spin(stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        std::hint::spin_loop();
    }
}

/// Name of a spinner's thread, before its CPU's number.
pub const THREAD_NAME: &str = "idle-spinner-";
/// The kernel's least, `sched_setattr(2)`.
const SHORTEST_SLICE: Duration = Duration::from_micros(100);

#[cfg(test)]
mod tests {
    use super::*;
    use linerate_testkit::eventually;
    use std::time::Instant;

    /// The policy (field 41 of proc(5)) of each thread of this process by that name.
    fn spinner_policies() -> Vec<String> {
        let stats = fs::read_dir("/proc/self/task").unwrap().flatten();
        stats
            .filter_map(|task| fs::read_to_string(task.path().join("stat")).ok())
            .filter(|stat| stat.contains("(idle-spinner-"))
            .map(|stat| {
                stat.rsplit_once(") ").unwrap().1.split(' ').nth(41 - 3).unwrap().to_owned()
            })
            .collect()
    }

    #[test]
    fn spinners_are_idle_threads_on_every_cpu_and_end_when_dropped() {
        let spinners = IdleSpinners::start().unwrap();
        assert_eq!(spinners.cpus(), thread::affinity().unwrap().len());
        let policies = spinner_policies();
        assert_eq!(policies, vec![libc::SCHED_IDLE.to_string(); spinners.cpus()]);

        let (started, before) = (Instant::now(), spun());
        assert_eq!(before.len(), spinners.cpus());
        // Others may take all of a CPU's time for a while, but nobody has more than there is.
        eventually("the spinner of every CPU has spun", || {
            let (after, elapsed) = (spun(), started.elapsed());
            let both = before.iter().zip(&after);
            let grew = both.map(|((cpu, before), (same, after))| {
                assert_eq!(cpu, same);
                *after - *before
            });
            let grew: Vec<_> = grew.collect();
            // The scheduler's clock may run a little faster than the time that NTP corrects.
            let most = elapsed + elapsed / 100;
            assert!(grew.iter().all(|time| *time <= most), "{grew:?} {elapsed:?}");
            grew.iter().all(|time| !time.is_zero())
        });
        // Those of a process that is watched, here this one once more, count as its own.
        let own = spun();
        watch(std::process::id());
        assert!(spun().iter().zip(own).all(|(both, own)| both.0 == own.0 && both.1 > own.1));
        watched().clear();

        drop(spinners);
        assert_eq!(spun(), []);
        // A thread that was joined may be listed for a moment longer.
        while !spinner_policies().is_empty() {
            std::thread::yield_now();
        }
    }
}
