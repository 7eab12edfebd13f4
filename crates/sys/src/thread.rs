//! Threads of this process: the CPU time that they used and waited for, and how the kernel
//! schedules them.

use std::io;
use std::num::NonZero;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

use rustix::process::{Pid, setpriority_process};
use rustix::time::{ClockId, clock_gettime};

pub use super::proc::processes::SchedTimes;
use crate::CallError;
use crate::proc::{ProcError, SampledFile};

/// CPU time since the thread or process began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CpuUsage {
    /// Time in user mode.
    pub user: Duration,
    /// Time in the kernel on behalf of the thread or process. Soft interrupts that happened to run
    /// on its time are included unless the kernel is built to account for them apart.
    pub system: Duration,
}

impl CpuUsage {
    /// The CPU time of the calling thread.
    pub fn of_thread() -> Self {
        usage(libc::RUSAGE_THREAD)
    }

    /// The CPU time of all threads of this process, also of those that have ended.
    pub fn of_process() -> Self {
        usage(libc::RUSAGE_SELF)
    }

    /// CPU time used from `earlier` to this reading.
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            user: self.user.saturating_sub(earlier.user),
            system: self.system.saturating_sub(earlier.system),
        }
    }
}

/// Reads the [`SchedTimes`] of one thread of this process, from any other and many times a second:
/// the file stays open and nothing is allocated.
#[derive(Debug)]
pub struct SchedTimesReader {
    file: SampledFile,
}

impl SchedTimesReader {
    /// Opens the figures of the thread `tid` (see [`thread_id`]).
    ///
    /// # Errors
    /// No such thread, or a kernel without CONFIG_SCHED_INFO.
    pub fn open(tid: u32) -> Result<Self, ProcError> {
        Ok(Self { file: SampledFile::open(format!("/proc/self/task/{tid}/schedstat"))? })
    }

    /// Reads the thread's times.
    ///
    /// # Errors
    /// The thread has ended.
    pub fn read(&mut self) -> Result<SchedTimes, ProcError> {
        self.file.read(SchedTimes::parse)
    }
}

/// CPU time of the calling thread, to the nanosecond. It includes the time that interrupts took of
/// it, and not the time in which other threads ran.
pub fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(time).expect("a thread has used no less than nothing")
}

/// The calling thread's number, under which other threads can look at it.
pub fn thread_id() -> u32 {
    rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned()
}

/// The CPUs that the calling thread may run on, in rising order.
///
/// # Errors
/// The kernel refuses, which a seccomp filter could make it do.
pub fn affinity() -> Result<Vec<u32>, CallError> {
    // The kernel refuses a mask that is shorter than its own, and does not tell that length.
    let mut mask = vec![0_u64; 16];
    loop {
        // SAFETY: the kernel writes at most as many bytes as it is told that the mask has;
        // cpu_set_t is only the type by which libc declares a mask of any length.
        let result = unsafe {
            libc::sched_getaffinity(0, size_of_val(mask.as_slice()), mask.as_mut_ptr().cast())
        };
        match check("read the affinity", result) {
            Ok(()) => return Ok(cpus_of_mask(&mask)),
            Err(error) if error.errno() == Some(libc::EINVAL) && mask.len() < 1 << 10 => {
                mask.resize(mask.len() * 2, 0);
            }
            Err(error) => return Err(error),
        }
    }
}

/// Confines the calling thread, and those that it starts from now on, to `cpus`.
///
/// # Errors
/// None of them is online and allowed to this process.
pub fn set_affinity(cpus: &[u32]) -> Result<(), CallError> {
    let mask = mask_of_cpus(cpus);
    // SAFETY: the kernel reads as many bytes as it is told that the mask has; for the cast see
    // `affinity`.
    check("set the affinity", unsafe {
        libc::sched_setaffinity(0, size_of_val(mask.as_slice()), mask.as_ptr().cast())
    })
}

/// Makes the calling thread's sleeps end on time: its timer slack becomes 1 ns, the least that
/// there is, instead of 50 us (zero would ask for the default). Where the kernel refuses, only
/// precision is lost.
pub fn wake_sharply() {
    let _ = rustix::thread::set_current_timer_slack(NonZero::new(1));
}

/// Gives the calling thread a descriptor table of its own, with only the standard streams and
/// `kept`. For a table with one user the kernel does not count the uses of a file, which saves a
/// sixth of the cost of a call for 32 bytes. All other descriptors are closed for this thread and
/// no other: it must not use any that it got before, and the owner of `kept` closes it in another
/// thread.
///
/// # Errors
/// Linux before 5.9 or no memory: the thread goes on with the common table.
pub fn keep_one_descriptor(kept: BorrowedFd<'_>) -> Result<(), CallError> {
    const FIRST_AFTER_STANDARD: u32 = 3;
    let kept = kept.as_raw_fd().cast_unsigned();
    let after = (kept + 1).max(FIRST_AFTER_STANDARD);
    close_range(after, u32::MAX, libc::CLOSE_RANGE_UNSHARE)?;
    if kept > FIRST_AFTER_STANDARD {
        close_range(FIRST_AFTER_STANDARD, kept - 1, 0)?;
    }
    Ok(())
}

fn close_range(first: u32, last: u32, flags: libc::c_uint) -> Result<(), CallError> {
    // SAFETY: plain integers. `keep_one_descriptor` says who may use the descriptors afterwards.
    let result = unsafe { libc::syscall(libc::SYS_close_range, first, last, flags) };
    check("give the thread descriptors of its own", result)
}

/// Lets a thread of this process, by its number, run only where no other thread wants to
/// (SCHED_IDLE, with the nice value 19, so that `/proc/stat` counts its time as nice). That needs
/// no privilege, but going back does ([`set_ordinary_policy`]).
///
/// # Errors
/// No such thread; the kernel refuses, which a seccomp filter could make it do.
pub(crate) fn set_idle_policy(thread: u32) -> Result<(), CallError> {
    set_policy_and_nice("set the policy SCHED_IDLE", thread, libc::SCHED_IDLE, 19)
}

/// Gives a thread of this process, by its number, the ordinary policy and the nice value 0 again.
/// After [`set_idle_policy`] that needs CAP_SYS_NICE or RLIMIT_NICE.
///
/// # Errors
/// Not permitted; no such thread.
pub(crate) fn set_ordinary_policy(thread: u32) -> Result<(), CallError> {
    set_policy_and_nice("set the policy SCHED_OTHER", thread, libc::SCHED_OTHER, 0)
}

fn set_policy_and_nice(
    operation: &'static str,
    thread: u32,
    policy: libc::c_int,
    nice: i32,
) -> Result<(), CallError> {
    let number = thread.cast_signed();
    set_policy(operation, number, policy, 0)?;
    setpriority_process(Pid::from_raw(number), nice)
        .map_err(|errno| CallError::new(operation, errno))
}

/// Lets the calling thread run before all threads of ordinary policies (SCHED_RR, the lowest
/// real-time priority). The threads that it starts are ordinary again. Needs CAP_SYS_NICE or
/// RLIMIT_RTPRIO.
///
/// # Errors
/// Not permitted; in a control group without a share of real time.
pub fn set_real_time_policy() -> Result<(), CallError> {
    let policy = libc::SCHED_RR | libc::SCHED_RESET_ON_FORK;
    set_policy("set the policy SCHED_RR", 0, policy, 1)
}

/// Sets the policy of a thread by its number; 0 is the calling thread.
fn set_policy(
    operation: &'static str,
    thread: libc::pid_t,
    policy: libc::c_int,
    priority: libc::c_int,
) -> Result<(), CallError> {
    let parameters = libc::sched_param { sched_priority: priority };
    // Not by the function of that name, which musl refuses to implement.
    // SAFETY: the pointer is to a live sched_param that the call only reads.
    check(operation, unsafe {
        libc::syscall(libc::SYS_sched_setscheduler, thread, policy, &raw const parameters)
    })
}

/// Sets the calling thread's time slice, 0.1 to 100 ms: how long it runs before others of its class
/// have their turn. A thread with a short one is let in before those with longer ones when it wakes
/// up. Needs no privilege. Before Linux 6.12 it has no effect.
///
/// # Errors
/// The kernel refuses; the thread's policy is not the normal one.
pub fn set_time_slice(slice: Duration) -> Result<(), CallError> {
    // SAFETY: sched_attr is plain integers, for which zero is a value.
    let mut attributes = unsafe { std::mem::zeroed::<libc::sched_attr>() };
    let size = size_of::<libc::sched_attr>();
    // SAFETY: the pointer is to a live sched_attr of that size that the call fills.
    let result = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, size, 0) };
    check("read the time slice", result)?;
    attributes.sched_runtime = u64::try_from(slice.as_nanos()).unwrap_or(u64::MAX);
    // SAFETY: the pointer is to a live sched_attr that says its own size, and the call only reads
    // it.
    let result = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
    check("set the time slice", result)
}

fn check(operation: &'static str, result: impl Into<i64>) -> Result<(), CallError> {
    if result.into() < 0 {
        Err(CallError::new(operation, io::Error::last_os_error()))
    } else {
        Ok(())
    }
}

fn usage(of: libc::c_int) -> CpuUsage {
    let usage = resources(of);
    CpuUsage { user: duration(usage.ru_utime), system: duration(usage.ru_stime) }
}

/// getrusage(2).
pub(crate) fn resources(of: libc::c_int) -> libc::rusage {
    // SAFETY: rusage is plain integers, for which zero is a value.
    let mut usage = unsafe { std::mem::zeroed::<libc::rusage>() };
    // SAFETY: the pointer is to a live rusage that the call fills.
    let result = unsafe { libc::getrusage(of, &raw mut usage) };
    assert_eq!(result, 0, "getrusage fails only for a wrong pointer or subject");
    usage
}

fn duration(time: libc::timeval) -> Duration {
    Duration::from_secs(time.tv_sec.cast_unsigned())
        + Duration::from_micros(time.tv_usec.cast_unsigned())
}

fn mask_of_cpus(cpus: &[u32]) -> Vec<u64> {
    let words = cpus.iter().map(|cpu| cpu / 64 + 1).max().unwrap_or(1);
    let mut mask = vec![0; words as usize];
    for cpu in cpus {
        mask[(cpu / 64) as usize] |= 1 << (cpu % 64);
    }
    mask
}

fn cpus_of_mask(mask: &[u64]) -> Vec<u32> {
    (0_u32..)
        .step_by(64)
        .zip(mask)
        .flat_map(|(base, word)| {
            (0..64).filter(move |bit| word >> bit & 1 == 1).map(move |bit| base + bit)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::io::{Read, Write};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;
    use std::thread;

    /// Runs the test's body in a thread of its own, whose scheduling it may change.
    fn in_thread<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> T {
        std::thread::spawn(body).join().unwrap()
    }

    fn own_file(name: &str) -> String {
        fs::read_to_string(format!("/proc/thread-self/{name}")).unwrap()
    }

    /// Fields 19 and 41 of proc(5)'s `stat`; the name, which may hold spaces, ends with a
    /// parenthesis.
    fn own_nice_and_policy() -> (i32, i32) {
        let stat = own_file("stat");
        let fields: Vec<_> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
        (fields[19 - 3].parse().unwrap(), fields[41 - 3].parse().unwrap())
    }

    #[test]
    fn another_thread_can_give_an_idle_thread_its_ordinary_policy_back() {
        let (say, heard) = std::sync::mpsc::channel();
        let (wake, woken) = std::sync::mpsc::channel::<()>();
        let idle = thread::spawn(move || {
            set_idle_policy(thread_id()).unwrap();
            say.send((thread_id(), own_nice_and_policy())).unwrap();
            let _ = woken.recv();
            own_nice_and_policy()
        });
        let (number, before) = heard.recv().unwrap();
        assert_eq!(before, (19, libc::SCHED_IDLE));
        let changed = set_ordinary_policy(number);
        drop(wake);
        let after = idle.join().unwrap();
        match changed {
            Ok(()) => assert_eq!(after, (0, libc::SCHED_OTHER)),
            Err(error) => linerate_testkit::skip(linerate_testkit::Need::Root, error),
        }
    }

    #[test]
    fn a_thread_with_one_descriptor_of_its_own_closes_none_of_the_others() {
        let (kept, mut peer) = UnixStream::pair().unwrap();
        let (other, mut others_peer) = UnixStream::pair().unwrap();
        let open = || {
            let entries = fs::read_dir("/proc/thread-self/fd").unwrap();
            let numbers = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
            numbers.filter_map(|number| number.parse::<i32>().ok())
        };
        thread::scope(|scope| {
            let worker = scope.spawn(|| {
                keep_one_descriptor(kept.as_fd()).expect("Linux 5.9 and later can");
                // The directory itself is open while it is read.
                let own: Vec<i32> = open().filter(|number| *number > 2).collect();
                assert!(own.len() <= 2 && own.contains(&kept.as_raw_fd()), "{own:?}");
                (&kept).write_all(b"x").unwrap();
            });
            worker.join().unwrap();
        });
        (&other).write_all(b"y").unwrap();
        let mut byte = [0];
        peer.read_exact(&mut byte).unwrap();
        others_peer.read_exact(&mut byte).unwrap();
        assert_eq!(&byte, b"y");
    }

    #[test]
    fn schedstat_is_two_times_in_nanoseconds() {
        let times = SchedTimes::parse("860558 80528 2\n").unwrap();
        assert_eq!((times.on_cpu.as_nanos(), times.run_delay.as_nanos()), (860_558, 80_528));
        assert!(SchedTimes::parse("860558\n").is_err() && SchedTimes::parse("a b c").is_err());
    }

    #[test]
    fn a_thread_is_seen_from_another_and_its_end_is_an_error() {
        let (tell, tid) = std::sync::mpsc::channel();
        let (end, wait) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            while CpuUsage::of_thread().user < Duration::from_millis(20) {}
            tell.send(thread_id()).unwrap();
            // Blocks until the sender is dropped.
            wait.recv().unwrap_err();
        });
        let mut reader = SchedTimesReader::open(tid.recv().unwrap()).unwrap();
        // The thread may not have blocked yet: until then its time may be a tick old.
        while reader.read().unwrap().on_cpu < Duration::from_millis(20) {
            std::thread::yield_now();
        }
        drop(end);
        thread.join().unwrap();
        // The kernel may still be about to take the thread away when join returns.
        while reader.read().is_ok() {
            std::thread::yield_now();
        }
    }

    #[test]
    fn cpu_time_passes_while_the_thread_works_and_not_while_it_sleeps() {
        in_thread(|| {
            let start = cpu_time();
            while CpuUsage::of_thread().user < Duration::from_millis(20) {}
            let worked = cpu_time() - start;
            assert!(worked >= Duration::from_millis(10), "{worked:?}");
            std::thread::sleep(Duration::from_millis(300));
            assert!(cpu_time() - start - worked < Duration::from_millis(250));
        });
    }

    #[test]
    fn usage_of_the_thread_is_part_of_that_of_the_process() {
        let (thread, process) = in_thread(|| {
            while CpuUsage::of_thread().user < Duration::from_millis(20) {}
            (CpuUsage::of_thread(), CpuUsage::of_process())
        });
        assert!(process.user + process.system >= thread.user);
        assert!(CpuUsage::of_process().since(&process).user < CpuUsage::of_process().user);
        assert_eq!(CpuUsage::default().since(&process), CpuUsage::default());
    }

    #[test]
    fn masks_hold_any_cpu() {
        let cpus = [0, 5, 63, 64, 1500];
        assert_eq!(cpus_of_mask(&mask_of_cpus(&cpus)), cpus);
    }

    #[test]
    fn affinity_that_was_set_is_read_back() {
        in_thread(|| {
            let last = *affinity().unwrap().last().unwrap();
            set_affinity(&[last]).unwrap();
            assert_eq!(affinity().unwrap(), [last]);
            let error = set_affinity(&[]).unwrap_err();
            assert_eq!(error.to_string(), "cannot set the affinity");
        });
    }

    #[test]
    fn scheduling_is_that_of_the_calling_thread_only() {
        let before = own_nice_and_policy();
        in_thread(move || {
            wake_sharply();
            // Not in a task's own directory, but in that which every thread's number has as well.
            let slack = fs::read_to_string(format!("/proc/{}/timerslack_ns", thread_id())).unwrap();
            assert_eq!(slack.trim(), "1");
            set_time_slice(Duration::from_micros(100)).unwrap();
            assert_eq!(own_nice_and_policy(), (before.0, libc::SCHED_OTHER));
            set_idle_policy(thread_id()).unwrap();
            assert_eq!(own_nice_and_policy(), (19, libc::SCHED_IDLE));
        });
        assert_eq!(own_nice_and_policy(), before);
    }
}
