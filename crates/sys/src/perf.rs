//! Sampling profiles of CPUs or threads by perf_event_open(2).
//!
//! A [`Sampler`] is one event with its ring buffer. It starts disabled; [`Sampler::enable`] and
//! [`Sampler::disable`] may be called from any thread. [`Sampler::drain`] takes out the bytes that
//! the kernel has written, and [`records`] parses them. [`Obstacle`] says why nothing can be
//! sampled.

mod ring;

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::{fmt, io};

use ring::Ring;
pub use ring::{Chain, Record, Records, Sample, records};

use crate::proc::sysctl;

/// Errors of opening a sampler.
#[derive(Debug, thiserror::Error)]
pub enum PerfError {
    /// The kernel refused to open the event.
    #[error("cannot sample {subject}: {source}")]
    Open {
        /// The subject of the samples.
        subject: Subject,
        /// What the kernel answered.
        source: io::Error,
    },
    /// The ring buffer could not be mapped: there is no memory, or this user may not lock as much.
    #[error("cannot map the ring of samples of {subject}: {source}")]
    Map {
        /// The subject of the samples.
        subject: Subject,
        /// What the kernel answered.
        source: io::Error,
    },
}

/// The source of the sampling interrupts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clock {
    /// A timer of each CPU; every machine has one.
    Timer {
        /// Samples per second, 1 to 100,000; the kernel's own limit is
        /// `kernel.perf_event_max_sample_rate`.
        hz: u32,
    },
    /// The cycle counter of the CPU, which few virtual machines have. It stops while the CPU is
    /// halted.
    Cycles {
        /// Cycles between two samples, below 2^63.
        period: u64,
    },
}

/// How to sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sampling {
    /// The source of the sampling interrupts.
    pub clock: Clock,
    /// Whether only user mode is sampled, which `kernel.perf_event_paranoid` at 2 allows.
    pub user_only: bool,
    /// Maximum number of frames in a call chain, 1 to 127.
    pub depth: u16,
    /// Bytes of the ring buffer, rounded up to a power of two of pages.
    pub ring_bytes: usize,
}

/// An event with the ring buffer for its samples.
#[derive(Debug)]
pub struct Sampler {
    event: OwnedFd,
    ring: Ring,
}

impl Sampler {
    /// Opens the event, disabled. To sample a CPU needs CAP_PERFMON or `kernel.perf_event_paranoid`
    /// below 1; to sample the kernel part of own threads needs it below 2.
    ///
    /// # Errors
    /// Not permitted, no such CPU, thread or hardware, or no memory for the ring buffer.
    pub fn open(subject: Subject, sampling: &Sampling) -> Result<Self, PerfError> {
        let attributes = Attributes::new(sampling);
        let event =
            open(&attributes, subject).map_err(|source| PerfError::Open { subject, source })?;
        let ring = Ring::map(&event, sampling.ring_bytes)
            .map_err(|source| PerfError::Map { subject, source })?;
        Ok(Self { event, ring })
    }

    /// Starts sampling.
    ///
    /// # Errors
    /// The CPU or the thread is gone.
    pub fn enable(&self) -> io::Result<()> {
        control(&self.event, IOC_ENABLE)
    }

    /// Stops sampling.
    ///
    /// # Errors
    /// The CPU or the thread is gone.
    pub fn disable(&self) -> io::Result<()> {
        control(&self.event, IOC_DISABLE)
    }

    /// Appends the records that the kernel has written since the last call to `bytes`, for
    /// [`records`]. True if there were any.
    pub fn drain(&self, bytes: &mut Vec<u8>) -> bool {
        self.ring.drain(bytes)
    }
}

/// `kernel.perf_event_paranoid`, which says what unprivileged processes may sample: from −1
/// (everything) to 2 (the user mode of their threads); 3 or 4 in some distributions mean nothing.
/// `None` if the kernel has no such setting.
pub fn paranoid() -> Option<i32> {
    sysctl::read("kernel.perf_event_paranoid").ok()?.trim().parse().ok()
}

/// Samples per second that the kernel allows at the moment. It lowers this limit when sampling
/// takes too long.
pub fn largest_rate() -> Option<u32> {
    sysctl::read("kernel.perf_event_max_sample_rate").ok()?.trim().parse().ok()
}

/// `PERF_EVENT_IOC_ENABLE` and `_DISABLE`, include/uapi/linux/perf_event.h.
const IOC_ENABLE: libc::Ioctl = 0x2400;
const IOC_DISABLE: libc::Ioctl = 0x2401;
/// `PERF_FLAG_FD_CLOEXEC`.
const CLOSE_ON_EXEC: libc::c_ulong = 8;

fn open(attributes: &Attributes, subject: Subject) -> io::Result<OwnedFd> {
    let (thread, cpu) = subject.thread_and_cpu();
    // SAFETY: the first argument points to a live perf_event_attr that says its own size, and the
    // call only reads it; the others are plain integers.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            std::ptr::from_ref(attributes),
            thread,
            cpu,
            -1,
            CLOSE_ON_EXEC,
        )
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    let fd = i32::try_from(fd).expect("the kernel numbers descriptors by int");
    // SAFETY: the descriptor has just been made and is nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn control(event: &OwnedFd, request: libc::Ioctl) -> io::Result<()> {
    // SAFETY: these two requests take a plain integer.
    let result = unsafe { libc::ioctl(event.as_raw_fd(), request, 0) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

// The argument of perf_event_open(2).

/// The subject of the samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subject {
    /// Everything that runs on the CPU with this number.
    Cpu(u32),
    /// The thread of this process with this id, on any CPU.
    Thread(u32),
}

impl Subject {
    /// The two arguments of the system call.
    fn thread_and_cpu(self) -> (libc::pid_t, libc::c_int) {
        match self {
            Self::Cpu(cpu) => (-1, cpu.cast_signed()),
            Self::Thread(thread) => (thread.cast_signed(), -1),
        }
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu(cpu) => write!(f, "CPU {cpu}"),
            Self::Thread(thread) => write!(f, "thread {thread}"),
        }
    }
}

/// `struct perf_event_attr` of include/uapi/linux/perf_event.h in its fifth version (Linux 4.1),
/// which has every member that is used here.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    /// Period or frequency, depending on bit `freq` of the flags.
    period_or_frequency: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup: u32,
    breakpoint_type: u32,
    config1: u64,
    config2: u64,
    branch_sample_type: u64,
    user_registers: u64,
    user_stack_bytes: u32,
    clock: i32,
    interrupt_registers: u64,
    auxiliary_watermark: u32,
    largest_stack: u16,
    reserved: u16,
}

/// `PERF_TYPE_SOFTWARE` with `PERF_COUNT_SW_CPU_CLOCK`: a timer of each CPU, with maskable
/// interrupts.
const SOFTWARE_CPU_CLOCK: (u32, u64) = (1, 0);
/// `PERF_TYPE_HARDWARE` with `PERF_COUNT_HW_CPU_CYCLES`: with non-maskable interrupts where the
/// hardware has them.
const HARDWARE_CPU_CYCLES: (u32, u64) = (0, 0);
/// `PERF_SAMPLE_TID`, `_CALLCHAIN`, `_CPU`.
const SAMPLE_TYPE: u64 = 1 << 1 | 1 << 5 | 1 << 7;
/// Bits of the flags: `disabled`, `exclude_hv`.
const FLAGS: u64 = 1 | 1 << 6;
const EXCLUDE_KERNEL: u64 = 1 << 5;
const FREQUENCY: u64 = 1 << 10;

impl Attributes {
    fn new(sampling: &Sampling) -> Self {
        let ((kind, config), period_or_frequency, by_frequency) = match sampling.clock {
            Clock::Timer { hz } => (SOFTWARE_CPU_CLOCK, u64::from(hz), FREQUENCY),
            // In frequency mode the kernel moves the period about (kernel/events/core.c,
            // `perf_adjust_period`), so that samples stand for unequal numbers of cycles.
            Clock::Cycles { period } => (HARDWARE_CPU_CYCLES, period, 0),
        };
        let exclusion = if sampling.user_only { EXCLUDE_KERNEL } else { 0 };
        Self {
            kind,
            size: size_of::<Self>() as u32,
            config,
            period_or_frequency,
            sample_type: SAMPLE_TYPE,
            flags: FLAGS | by_frequency | exclusion,
            largest_stack: sampling.depth.clamp(1, 127),
            ..Self::default()
        }
    }
}

// Obstacles: why nothing can be sampled, as far as the kernel's error number shows it.

/// A reason why sampling is not possible; each has its own remedy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Obstacle {
    /// `kernel.perf_event_paranoid` or a security module forbids it.
    Paranoid,
    /// A seccomp filter (containers have one) or the kernel's lockdown mode forbids it, whatever
    /// the setting is.
    Filtered,
    /// The ring buffer exceeds the memory that this user may lock.
    LockedMemory,
    /// There is no memory for the ring buffer.
    Memory,
    /// This process or the host has no descriptor left.
    Descriptors,
    /// The CPU or the thread is gone.
    NotThere,
    /// The kernel or the hardware has no such event.
    Unsupported,
    /// Another reason.
    Other,
}

impl PerfError {
    /// The reason of this error.
    pub fn obstacle(&self) -> Obstacle {
        let (Self::Open { source, .. } | Self::Map { source, .. }) = self;
        let is_mapped = matches!(self, Self::Map { .. });
        of(source, is_mapped)
    }
}

/// The error numbers of `perf_event_open` and `perf_mmap` in kernel/events/core.c: opening fails
/// with EACCES if the setting forbids it, mapping with EPERM beyond the limit of locked memory.
fn of(error: &io::Error, is_mapped: bool) -> Obstacle {
    match error.raw_os_error() {
        Some(libc::EPERM) if is_mapped => Obstacle::LockedMemory,
        Some(libc::EPERM | libc::ENOSYS) => Obstacle::Filtered,
        Some(libc::EACCES) => Obstacle::Paranoid,
        Some(libc::ENOMEM) => Obstacle::Memory,
        Some(libc::EMFILE | libc::ENFILE) => Obstacle::Descriptors,
        Some(libc::ENODEV | libc::ESRCH) => Obstacle::NotThere,
        Some(libc::ENOENT | libc::EOPNOTSUPP) => Obstacle::Unsupported,
        _ => Obstacle::Other,
    }
}

#[cfg(test)]
mod tests {
    use linerate_testkit::{Need, skip};

    use super::*;
    use crate::thread;

    const SAMPLING: Sampling = Sampling {
        clock: Clock::Timer { hz: 4999 },
        user_only: false,
        depth: 32,
        ring_bytes: 64 << 10,
    };

    /// Samples of this thread, which spins until there are some; `None` and a message where this
    /// host allows none.
    fn own_samples(sampling: &Sampling) -> Option<Vec<u8>> {
        let sampler = match Sampler::open(Subject::Thread(thread::thread_id()), sampling) {
            Ok(sampler) => sampler,
            Err(error) => {
                skip(Need::Perf, error);
                return None;
            }
        };
        sampler.enable().expect("the thread is there");
        let mut bytes = Vec::new();
        while records(&bytes).filter(|r| matches!(r, Record::Sample(_))).count() < 20 {
            std::hint::black_box(paranoid());
            sampler.drain(&mut bytes);
        }
        sampler.disable().expect("the thread is there");
        sampler.drain(&mut bytes);
        let after = bytes.len();
        sampler.drain(&mut bytes);
        assert_eq!(bytes.len(), after, "nothing comes when it is switched off");
        Some(bytes)
    }

    #[test]
    fn samples_of_a_thread_are_its_own_with_its_call_chain() {
        let Some(bytes) = own_samples(&SAMPLING) else {
            return;
        };
        let mut seen = 0;
        for record in records(&bytes) {
            let Record::Sample(sample) = record else {
                continue;
            };
            assert_eq!((sample.process, sample.thread), (std::process::id(), thread::thread_id()));
            let chain = sample.chain();
            assert!(!chain.kernel.is_empty() || !chain.user.is_empty());
            seen += 1;
        }
        assert!(seen >= 20);
    }

    #[test]
    fn samples_of_user_mode_have_no_kernel_in_them() {
        let sampling = Sampling { user_only: true, ..SAMPLING };
        let bytes = own_samples(&sampling).unwrap_or_default();
        for record in records(&bytes) {
            if let Record::Sample(sample) = record {
                assert!(sample.chain().kernel.is_empty());
            }
        }
    }

    #[test]
    fn cycles_give_samples_or_are_said_not_to_be_there() {
        let sampling = Sampling { clock: Clock::Cycles { period: 200_000 }, ..SAMPLING };
        let Some(bytes) = own_samples(&sampling) else {
            return;
        };
        assert!(records(&bytes).any(|record| matches!(record, Record::Sample(_))));
    }

    #[test]
    fn a_missing_cpu_or_thread_cannot_be_sampled() {
        let error = Sampler::open(Subject::Cpu(65_000), &SAMPLING).expect_err("no such CPU");
        assert!(error.to_string().contains("CPU 65000"), "{error}");
        // A number beyond all possible CPUs gives EINVAL, which has many other causes.
        assert!(matches!(error.obstacle(), Obstacle::Other | Obstacle::Paranoid), "{error}");
    }

    #[test]
    fn the_size_is_that_of_the_kernels_fifth_version() {
        assert_eq!(size_of::<Attributes>(), 112);
    }

    #[test]
    fn cycles_are_counted_by_a_fixed_period_and_the_timer_by_its_rate() {
        let of = |clock, user_only| {
            Attributes::new(&Sampling { clock, user_only, depth: 64, ring_bytes: 1 << 16 })
        };
        let cycles = of(Clock::Cycles { period: 6_012_024 }, false);
        assert_eq!((cycles.kind, cycles.config), (0, 0));
        assert_eq!(cycles.period_or_frequency, 6_012_024);
        assert_eq!(cycles.flags & (FREQUENCY | EXCLUDE_KERNEL), 0);
        let timer = of(Clock::Timer { hz: 499 }, true);
        assert_eq!((timer.kind, timer.config), (1, 0));
        assert_eq!(timer.period_or_frequency, 499);
        assert_eq!(timer.flags & (FREQUENCY | EXCLUDE_KERNEL), FREQUENCY | EXCLUDE_KERNEL);
    }

    #[test]
    fn obstacles_are_known_by_the_error_number() {
        let subject = Subject::Cpu(0);
        let answer = io::Error::from_raw_os_error;
        for (number, at_opening, at_mapping) in [
            (libc::EACCES, Obstacle::Paranoid, Obstacle::Paranoid),
            (libc::EPERM, Obstacle::Filtered, Obstacle::LockedMemory),
            (libc::ENOMEM, Obstacle::Memory, Obstacle::Memory),
            (libc::EMFILE, Obstacle::Descriptors, Obstacle::Descriptors),
            (libc::ESRCH, Obstacle::NotThere, Obstacle::NotThere),
            (libc::ENOENT, Obstacle::Unsupported, Obstacle::Unsupported),
            (libc::EIO, Obstacle::Other, Obstacle::Other),
        ] {
            let source = answer(number);
            let open = PerfError::Open { subject, source };
            assert_eq!(open.obstacle(), at_opening, "{open}");
            let source = answer(number);
            let map = PerfError::Map { subject, source };
            assert_eq!(map.obstacle(), at_mapping, "{map}");
        }
    }
}
