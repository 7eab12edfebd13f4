//! One end's profiler: on while the measured time runs, drained by a thread of its own.

use std::collections::BTreeSet;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use linerate_core::profile::{CpuSamples, EndProfile, Overhead, ProfileRequest};
use linerate_core::record::{Caveat, CaveatKind, CpuSeconds};
use linerate_sys::perf::{Sampling, Subject};
use linerate_sys::symbols::KernelSymbols;
use linerate_sys::thread::CpuUsage;

use super::cost;
use super::fold::{Names, SampleCounts, Tasks, fold};
use super::source::Source;
use crate::shares::joined;

/// Pause between two readings of the rings. A CPU's ring lasts more than three times as long at the
/// highest rate, a thread's ring four times as long at the usual rate.
const DRAIN_EVERY: Duration = Duration::from_millis(50);
/// Readings of the rings for each look at the list of CPUs, which makes one a second.
const LOOKS_TO_HOTPLUG: u32 = 20;
/// Why [`Profiler::finish`] finds the thread.
const NONE_LEFT: &str = "the profiler's thread is joined once";

/// What the sampler of a run and the profiler's thread share.
struct SharedSampling {
    source: Mutex<Source>,
    /// Threads that carry this end's data, by number; 0 has not begun yet.
    flows: Mutex<Vec<u32>>,
    over: AtomicBool,
}

/// A profiler that waits for the measured time, or is in it.
pub(crate) struct Profiler {
    shared: Arc<SharedSampling>,
    thread: Option<JoinHandle<Drained>>,
}

/// What the profiler's thread leaves.
struct Drained {
    counts: SampleCounts,
    /// CPU time of the thread, to the end of the measured time.
    cpu: Duration,
}

/// The samples, without the times of the run.
pub(crate) struct Taken {
    profile: EndProfile,
    /// Method of sampling; `None` if nothing was sampled.
    sampling: Option<Sampling>,
    /// How many of the test's threads were sampled at most; `None` where all CPUs were.
    threads: Option<usize>,
    /// What one sample was measured to take, seconds.
    sample_cost: Option<f64>,
}

/// What the run's meter adds to a profile.
#[derive(Debug, Clone, Default)]
pub(crate) struct Circumstances {
    /// The measured time, seconds.
    pub(crate) seconds: f64,
    /// CPU time of the test's threads.
    pub(crate) threads: CpuSeconds,
    /// The host's soft interrupts, seconds.
    pub(crate) softirq_seconds: Option<f64>,
    /// CPU time of each thread.
    pub(crate) each_thread: Vec<CpuSeconds>,
    /// Time that the host's CPUs were busy, without what the hypervisor took, seconds.
    pub(crate) busy_seconds: Option<f64>,
    /// Share of the time that each CPU was idle, percent.
    pub(crate) idle_percents: Vec<(u32, f64)>,
}

impl Profiler {
    /// Opens what may be sampled here and starts the thread that drains it. Nothing is sampled yet.
    ///
    /// # Errors
    /// The thread could not be started.
    pub(crate) fn start(request: ProfileRequest) -> io::Result<Self> {
        let shared = Arc::new(SharedSampling {
            source: Mutex::new(Source::open(request.hz)),
            flows: Mutex::default(),
            over: AtomicBool::new(false),
        });
        let own = Arc::clone(&shared);
        let thread =
            thread::Builder::new().name("profiler".into()).spawn(move || own.drain_until_over())?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// The measured time begins; `flows` are the threads that carry the data.
    pub(crate) fn begin(&self, flows: Vec<u32>) {
        let mut source = self.shared.source();
        source.take_threads(&flows);
        *self.shared.flows() = flows;
        source.enable();
    }

    /// Threads may begin within the measured time.
    pub(crate) fn set_flows(&self, flows: Vec<u32>) {
        *self.shared.flows() = flows;
    }

    /// The measured time ends.
    pub(crate) fn end(&self) {
        self.shared.source().disable();
        self.stop();
    }

    fn stop(&self) {
        self.shared.over.store(true, Ordering::Release);
        if let Some(thread) = &self.thread {
            thread.thread().unpark();
        }
    }

    /// The samples with their names. Takes some 200 ms of CPU time, for the table of the kernel's
    /// functions and the cost of a sample: call it when the measured time is over.
    pub(crate) fn finish(mut self) -> Taken {
        self.stop();
        let thread = self.thread.take().expect(NONE_LEFT);
        let drained = joined(thread.join());
        self.shared.taken(drained)
    }
}

impl Drop for Profiler {
    fn drop(&mut self) {
        // The run may have failed before its measured time; the thread must end all the same.
        self.stop();
    }
}

impl SharedSampling {
    fn source(&self) -> MutexGuard<'_, Source> {
        self.source.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn flows(&self) -> MutexGuard<'_, Vec<u32>> {
        self.flows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn drain_until_over(&self) -> Drained {
        let (mut counts, mut tasks) = (SampleCounts::default(), Tasks::new());
        let mut bytes = Vec::new();
        let before = CpuUsage::of_thread();
        for look in 1_u32.. {
            let over = self.over.load(Ordering::Acquire);
            self.drain(&mut counts, &mut tasks, &mut bytes);
            if over || look.is_multiple_of(LOOKS_TO_HOTPLUG) {
                self.source().follow_hotplug();
            }
            if over {
                break;
            }
            thread::park_timeout(DRAIN_EVERY);
        }
        let cpu = CpuUsage::of_thread().since(&before);
        Drained { counts, cpu: cpu.user + cpu.system }
    }

    fn drain(&self, counts: &mut SampleCounts, tasks: &mut Tasks, bytes: &mut Vec<u8>) {
        tasks.set_flows(self.flows().clone());
        for (subject, sampler) in &self.source().samplers {
            bytes.clear();
            if sampler.drain(bytes) {
                counts.take(*subject, bytes, tasks);
            }
        }
    }

    fn taken(&self, drained: Drained) -> Taken {
        let source = self.source();
        let counts = drained.counts;
        let sampling = source.sampling();
        // Without samples of the kernel nobody asks for its names.
        let in_kernel = sampling.is_some_and(|sampling| !sampling.user_only);
        let (symbols, hidden) = if counts.samples == 0 || !in_kernel {
            (KernelSymbols::default(), None)
        } else {
            match KernelSymbols::read() {
                Ok(symbols) => (symbols, None),
                Err(error) => (KernelSymbols::default(), Some(no_names(&error))),
            }
        };
        let mut profile = EndProfile {
            how: source.how(hidden.is_none()),
            hz: source.hz(),
            seconds: 0.0,
            samples: counts.samples,
            lost: counts.lost,
            throttled: counts.throttled,
            cpus: cpus(&source, &counts),
            folded: fold(&counts, &mut Names::new(&symbols).with_own(&counts)),
            other_samples: counts.overflow,
            threads: CpuSeconds::default(),
            each_thread: Vec::new(),
            softirq_seconds: None,
            overhead: Overhead { thread_seconds: drained.cpu.as_secs_f64(), ..Overhead::default() },
            caveats: source.caveats(),
        };
        profile.caveats.extend(hidden);
        profile.caveats.extend(doubts(&profile));
        profile.bound();
        Taken {
            sample_cost: sampling.and_then(|_| cost::of_a_sample(&source.sampling_at(cost::HZ))),
            sampling,
            threads: source.threads(),
            profile,
        }
    }
}

fn cpus(source: &Source, counts: &SampleCounts) -> Vec<CpuSamples> {
    let mut numbers: BTreeSet<u32> = counts.cpus.keys().copied().collect();
    for (subject, _) in &source.samplers {
        if let Subject::Cpu(cpu) = subject {
            numbers.insert(*cpu);
        }
    }
    let of = |cpu: u32| {
        let (samples, lost) = counts.cpus.get(&cpu).copied().unwrap_or_default();
        CpuSamples { cpu, samples, lost, idle_percent: None }
    };
    numbers.into_iter().map(of).collect()
}

fn no_names(error: &dyn std::error::Error) -> Caveat {
    Caveat::new(
        CaveatKind::NotReadable,
        format!(
            "the kernel's functions have no names here, so that no layer of the kernel can be \
             told: {error}"
        ),
        "run as root or with CAP_SYSLOG, and set kernel.kptr_restrict to 1 or less",
    )
}

fn doubts(profile: &EndProfile) -> Vec<Caveat> {
    let mut doubts = Vec::new();
    if profile.lost > 0 {
        doubts.push(Caveat::new(
            CaveatKind::Partial,
            format!(
                "{} samples were lost, besides {} that were taken",
                profile.lost, profile.samples
            ),
            "sample less often (--hz), or leave a CPU to the profiler",
        ));
    }
    if profile.throttled > 0 {
        doubts.push(Caveat::new(
            CaveatKind::Partial,
            format!(
                "the kernel slowed the sampling down {} times, because it took too long",
                profile.throttled
            ),
            "sample less often (--hz), or raise kernel.perf_cpu_time_max_percent",
        ));
    }
    doubts
}

impl Taken {
    /// The profile with the times of the run that it is of.
    pub(crate) fn with(mut self, run: Circumstances) -> EndProfile {
        if !self.profile.calibrate(self.sampled_seconds(&run)) {
            self.profile.caveats.push(not_calibrated());
        }
        self.put_overhead(&run);
        let mut profile = self.profile;
        profile.seconds = run.seconds;
        profile.threads = run.threads;
        profile.each_thread = run.each_thread;
        profile.softirq_seconds = run.softirq_seconds;
        for (number, percent) in run.idle_percents {
            match profile.cpus.iter_mut().find(|cpu| cpu.cpu == number) {
                Some(cpu) => cpu.idle_percent = Some(percent),
                None => profile.cpus.push(CpuSamples {
                    cpu: number,
                    idle_percent: Some(percent),
                    ..CpuSamples::default()
                }),
            }
        }
        profile
    }

    /// CPU time of what was sampled, by the kernel's account.
    fn sampled_seconds(&self, run: &Circumstances) -> Option<f64> {
        let Some(threads) = self.threads else {
            return run.busy_seconds;
        };
        let user_only = self.sampling?.user_only;
        let sampled = run.each_thread.iter().take(threads);
        let seconds = sampled.map(|thread| if user_only { thread.user } else { thread.total() });
        Some(seconds.sum())
    }

    fn put_overhead(&mut self, run: &Circumstances) {
        let taken = self.profile.samples.saturating_add(self.profile.lost);
        let threads = Duration::try_from_secs_f64(run.threads.total()).unwrap_or_default();
        let interrupts = match &self.sampling {
            Some(sampling) => cost::interrupts(sampling, taken, threads),
            None => 0,
        };
        let seconds = match (interrupts, self.sample_cost) {
            (0, _) => Some(0.0),
            (_, None) => None,
            (number, Some(cost)) => Some(number as f64 * cost),
        };
        if seconds.is_none() {
            self.profile.caveats.push(cost_not_known());
        }
        let overhead = &mut self.profile.overhead;
        overhead.interrupt_seconds = seconds;
        let busy = run.busy_seconds.filter(|busy| *busy > 0.0);
        overhead.percent = seconds
            .zip(busy)
            .map(|(interrupts, busy)| 100.0 * (overhead.thread_seconds + interrupts) / busy);
    }
}

fn not_calibrated() -> Caveat {
    Caveat::new(
        CaveatKind::NotReadable,
        "how long a sample of cycles was is not known here: its time is that at the CPU's usual \
         clock",
        "run for longer, on a kernel with /proc/stat",
    )
}

fn cost_not_known() -> Caveat {
    Caveat::new(
        CaveatKind::NotReadable,
        "what the sampling interrupts took could not be measured: the profiler's overhead is not \
         known",
        "profile when the CPUs are less busy, or as root",
    )
}

#[cfg(test)]
mod tests {
    use linerate_core::profile::{FoldedStack, How, SampleClock, TaskClass};
    use linerate_sys::perf::Clock;

    use super::*;

    const TIMER: Clock = Clock::Timer { hz: 499 };
    const CYCLES: Clock = Clock::Cycles { period: 6_000_000 };

    fn taken(clock: Clock, user_only: bool, threads: Option<usize>, cost: Option<f64>) -> Taken {
        Taken {
            profile: EndProfile {
                how: How::Sampled {
                    clock: match clock {
                        Clock::Timer { .. } => SampleClock::CpuClock,
                        Clock::Cycles { .. } => SampleClock::Cycles,
                    },
                    kernel_seen: !user_only,
                    all_cpus: threads.is_none(),
                },
                hz: 499,
                seconds: 0.0,
                samples: 1000,
                lost: 0,
                throttled: 0,
                cpus: Vec::new(),
                folded: vec![FoldedStack {
                    frames: vec!["tcp_ack".to_owned()],
                    softirq_frames: 0,
                    kernel_frames: 1,
                    task: TaskClass::Flow,
                    count: 1000,
                }],
                other_samples: 0,
                threads: CpuSeconds::default(),
                each_thread: Vec::new(),
                softirq_seconds: None,
                overhead: Overhead { thread_seconds: 0.01, ..Overhead::default() },
                caveats: Vec::new(),
            },
            sampling: Some(Sampling { clock, user_only, depth: 64, ring_bytes: 1 << 20 }),
            threads,
            sample_cost: cost,
        }
    }

    /// Two threads of 2 and 3 s in 4 s of two CPUs, all of which were busy.
    fn run() -> Circumstances {
        let thread = |user, system| CpuSeconds { user, system };
        Circumstances {
            seconds: 4.0,
            threads: thread(2.0, 3.0),
            each_thread: vec![thread(0.5, 1.5), thread(1.5, 1.5)],
            softirq_seconds: Some(0.5),
            busy_seconds: Some(8.0),
            idle_percents: vec![(0, 0.0), (1, 0.0)],
        }
    }

    #[test]
    fn cycles_are_as_long_as_what_was_sampled_took() {
        let rate = |user_only, threads| taken(CYCLES, user_only, threads, None).with(run()).hz;
        assert_eq!(rate(false, None), 125, "8 s of all CPUs");
        assert_eq!(rate(false, Some(64)), 200, "5 s of the threads");
        assert_eq!(rate(false, Some(1)), 500, "2 s of the first");
        assert_eq!(rate(true, Some(64)), 500, "2 s in user mode");
        assert_eq!(taken(TIMER, false, None, None).with(run()).hz, 499);
    }

    #[test]
    fn what_cannot_be_calibrated_has_a_caveat() {
        let blind = Circumstances { busy_seconds: None, ..run() };
        let profile = taken(CYCLES, false, None, Some(1e-6)).with(blind);
        assert_eq!(profile.hz, 499);
        let words: Vec<_> = profile.caveats.iter().map(|c| c.message.as_str()).collect();
        assert!(words.iter().any(|word| word.contains("usual clock")), "{words:?}");
        assert_eq!(profile.overhead.percent, None);
    }

    #[test]
    fn overhead_is_the_interrupts_and_the_thread_and_never_nothing_because_it_is_not_known() {
        let overhead = |taken: Taken| {
            let profile = taken.with(run());
            (profile.overhead, profile.caveats.len())
        };
        let (known, caveats) = overhead(taken(TIMER, false, None, Some(20e-6)));
        assert_eq!(known.interrupt_seconds, Some(1000.0 * 20e-6));
        assert!((known.percent.unwrap() - 100.0 * 0.03 / 8.0).abs() < 1e-9);
        assert_eq!(caveats, 0);
        let (unknown, caveats) = overhead(taken(TIMER, false, None, None));
        assert_eq!((unknown.interrupt_seconds, unknown.percent), (None, None));
        assert_eq!(caveats, 1);
        // Of 5 s of the threads' CPU time at 499 Hz, whatever was sampled of it.
        let (user, _) = overhead(taken(TIMER, true, Some(64), Some(10e-6)));
        assert_eq!(user.interrupt_seconds, Some(2495.0 * 10e-6));
        let mut none = taken(TIMER, false, None, None);
        none.sampling = None;
        none.profile.how = How::Accounted;
        none.profile.samples = 0;
        let (none, caveats) = overhead(none);
        assert_eq!((none.interrupt_seconds, caveats), (Some(0.0), 0));
    }
}
