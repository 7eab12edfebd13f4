//! What may be sampled on this host: all CPUs, else the test's own threads, else those in user mode, else nothing.

use std::sync::atomic::{AtomicU32, Ordering};

use linerate_core::profile::{How, SampleClock};
use linerate_core::record::{Caveat, CaveatKind};
use linerate_sys::perf::{PerfError, Sampler, Sampling, Subject, largest_rate, paranoid};
use linerate_sys::proc::cpu;

/// Frames of a call chain. The deepest seen of a softirq within a system call has 50.
const DEPTH: u16 = 64;
/// Ring of each CPU: at the highest rate and the deepest chains, a tenth of a second.
const CPU_RING: usize = 1 << 20;
/// Ring of each thread, where only own threads may be sampled: memory for it is scarce then.
const THREAD_RING: usize = 64 << 10;
/// Threads that are sampled by themselves at most.
const MOST_THREADS: usize = 64;

/// Profiles of this process at once: a client and an endpoint of one process, and somebody else's. Each has rings of its own and
/// interrupts every CPU.
const MOST_PROFILES: u32 = 4;
static PROFILES: AtomicU32 = AtomicU32::new(0);

/// One of [`MOST_PROFILES`], for as long as it is there.
#[derive(Debug)]
struct Place;

impl Place {
    fn take() -> Option<Self> {
        let more = |taken| (taken < MOST_PROFILES).then_some(taken + 1);
        PROFILES
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, more)
            .ok()
            .map(|_| Self)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        PROFILES.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Events that are switched on and off together.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) samplers: Vec<(Subject, Sampler)>,
    sampling: Sampling,
    all_cpus: bool,
    enabled: bool,
    place: Option<Place>,
    pub(super) caveats: Vec<Caveat>,
}

impl Source {
    /// Opens an event for each CPU; where that is not allowed, none, until [`Source::take_threads`].
    pub(super) fn open(hz: u32) -> Self {
        let mut source = Self {
            samplers: Vec::new(),
            sampling: Sampling {
                hz,
                user_only: false,
                depth: DEPTH,
                ring_bytes: CPU_RING,
            },
            all_cpus: false,
            enabled: false,
            place: Place::take(),
            caveats: Vec::new(),
        };
        if source.place.is_none() {
            source.caveats.push(too_many());
            return source;
        }
        source.keep_to_the_kernels_rate();
        let cpus = cpu::online().unwrap_or_default();
        source.all_cpus = true;
        for cpu in cpus {
            if let Err(error) = source.add(Subject::Cpu(cpu)) {
                // One that has just gone offline is no loss; one that may not be sampled is.
                let is_gone = cpu::online().is_ok_and(|online| !online.contains(&cpu));
                if !is_gone {
                    source.samplers.clear();
                    source.all_cpus = false;
                    source.caveats.push(own_threads_only(&error));
                    break;
                }
            }
        }
        source
    }

    /// The kernel refuses what it does not allow instead of giving less.
    fn keep_to_the_kernels_rate(&mut self) {
        let asked = self.sampling.hz;
        if let Some(largest) = largest_rate().filter(|largest| *largest < asked) {
            self.sampling.hz = largest.max(1);
            self.caveats.push(Caveat::new(
                CaveatKind::SettingNotTaken,
                format!("{asked} samples a second were asked for, this kernel allows {largest} at the moment (kernel.perf_event_max_sample_rate)"),
                "raise it by sysctl: the kernel lowers it when sampling interrupts take long",
            ));
        }
    }

    fn add(&mut self, subject: Subject) -> Result<(), PerfError> {
        let sampler = Sampler::open(subject, &self.sampling)?;
        if self.enabled {
            // A CPU that has gone again gives no samples.
            let _ = sampler.enable();
        }
        self.samplers.push((subject, sampler));
        Ok(())
    }

    /// Takes these threads, where it may not take all CPUs.
    pub(super) fn take_threads(&mut self, threads: &[u32]) {
        if self.all_cpus || self.place.is_none() {
            return;
        }
        self.sampling.ring_bytes = THREAD_RING;
        let sampled = &threads[..threads.len().min(MOST_THREADS)];
        if let Err(in_the_kernel) = self.add_threads(sampled) {
            self.sampling.user_only = true;
            let caveat = match self.add_threads(sampled) {
                Ok(()) => user_mode_only(&in_the_kernel),
                Err(error) => not_even_threads(&error),
            };
            self.caveats.push(caveat);
        }
        if threads.len() > MOST_THREADS {
            self.caveats.push(Caveat::new(
                CaveatKind::Partial,
                format!(
                    "only {MOST_THREADS} of the test's {} threads were sampled",
                    threads.len()
                ),
                "run as root, or with fewer streams",
            ));
        }
    }

    /// All of them, or none.
    fn add_threads(&mut self, threads: &[u32]) -> Result<(), PerfError> {
        let added = threads
            .iter()
            .try_for_each(|thread| self.add(Subject::Thread(*thread)));
        if added.is_err() {
            self.samplers.clear();
        }
        added
    }

    /// CPUs that have come since are sampled too; those that have gone give no more.
    pub(super) fn follow_hotplug(&mut self) {
        if !self.all_cpus {
            return;
        }
        for cpu in cpu::online().unwrap_or_default() {
            let subject = Subject::Cpu(cpu);
            if self.samplers.iter().all(|(known, _)| *known != subject) {
                // It may be gone again by now.
                let _ = self.add(subject);
            }
        }
    }

    pub(super) fn enable(&mut self) {
        self.enabled = true;
        // A thread that has ended, or a CPU that is gone, has nothing to sample.
        self.samplers
            .iter()
            .for_each(|(_, sampler)| drop(sampler.enable()));
    }

    pub(super) fn disable(&mut self) {
        self.enabled = false;
        self.samplers
            .iter()
            .for_each(|(_, sampler)| drop(sampler.disable()));
    }

    /// Samples a second, as the kernel takes them; 0 without any.
    pub(super) fn hz(&self) -> u32 {
        if self.samplers.is_empty() {
            0
        } else {
            self.sampling.hz
        }
    }

    pub(super) fn how(&self, kernel_seen: bool) -> How {
        if self.samplers.is_empty() {
            return How::Accounted;
        }
        How::Sampled {
            clock: SampleClock::CpuClock,
            kernel_seen: kernel_seen && !self.sampling.user_only,
            all_cpus: self.all_cpus,
        }
    }
}

fn too_many() -> Caveat {
    Caveat::new(
        CaveatKind::NotReadable,
        format!("no samples: {MOST_PROFILES} profiles are being taken of this host already"),
        "profile it when nobody else does",
    )
}

fn own_threads_only(error: &PerfError) -> Caveat {
    Caveat::new(
        CaveatKind::NotReadable,
        format!(
            "only the test's own threads could be sampled, not soft interrupts elsewhere: {error}{}",
            setting()
        ),
        "run as root or with CAP_PERFMON, or set kernel.perf_event_paranoid to 0",
    )
}

fn user_mode_only(error: &PerfError) -> Caveat {
    Caveat::new(
        CaveatKind::NotReadable,
        format!(
            "only user mode could be sampled; the kernel's part is its account of CPU time, without layers: {error}{}",
            setting()
        ),
        "run as root or with CAP_PERFMON, or set kernel.perf_event_paranoid to 1",
    )
}

fn not_even_threads(error: &PerfError) -> Caveat {
    Caveat::new(
        CaveatKind::NotReadable,
        format!(
            "no samples, only the kernel's account of CPU time: {error}{}",
            setting()
        ),
        "run as root or with CAP_PERFMON, or set kernel.perf_event_paranoid to 2 or less",
    )
}

fn setting() -> String {
    paranoid().map_or_else(String::new, |value| {
        format!(" (kernel.perf_event_paranoid is {value})")
    })
}
