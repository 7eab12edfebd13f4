//! One end's profiler: on while the measured time runs, drained by a thread of its own.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use linerate_core::profile::{CpuSamples, EndProfile, Overhead, ProfileRequest};
use linerate_core::record::{Caveat, CaveatKind, CpuSeconds};
use linerate_sys::kallsyms::KernelSymbols;
use linerate_sys::perf::Subject;
use linerate_sys::thread::CpuUsage;

use super::cost;
use super::count::Counts;
use super::fold::{Names, fold};
use super::source::Source;
use super::task::Tasks;

/// Between two looks at the rings. A ring holds ten times as much at the usual rate.
const DRAIN_EVERY: Duration = Duration::from_millis(50);
/// Looks between two at the list of CPUs: a second.
const LOOKS_TO_HOTPLUG: u32 = 20;
/// Work of the profiler's thread that is not in the measured time, but at its edges.
const NONE_LEFT: &str = "the profiler's thread is joined once";

/// What the sampler of a run and the profiler's thread share.
struct Shared {
    source: Mutex<Source>,
    /// Threads that carry this end's data, by number; 0 has not begun yet.
    flows: Mutex<Vec<u32>>,
    over: AtomicBool,
}

/// A profiler that waits for the measured time, or is in it.
pub(crate) struct Profiler {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<Drained>>,
}

/// What the profiler's thread leaves.
struct Drained {
    counts: Counts,
    /// CPU time of the thread while it was measured.
    cpu: Duration,
}

/// What was taken; the times of the run are still to be put to it.
pub(crate) struct Taken {
    profile: EndProfile,
    /// What one sample was measured to take, seconds.
    sample_cost: Option<f64>,
}

/// What the meter of the run has to say to a profile.
#[derive(Debug, Clone, Default)]
pub(crate) struct Circumstances {
    /// The measured time, seconds.
    pub(crate) seconds: f64,
    /// CPU time of the test's threads.
    pub(crate) threads: CpuSeconds,
    /// The host's soft interrupts, seconds.
    pub(crate) softirq_seconds: Option<f64>,
    /// Time that the host's CPUs were busy, seconds.
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
        let shared = Arc::new(Shared {
            source: Mutex::new(Source::open(request.hz)),
            flows: Mutex::default(),
            over: AtomicBool::new(false),
        });
        let own = Arc::clone(&shared);
        let thread = thread::Builder::new()
            .name("profiler".into())
            .spawn(move || own.drain_until_over())?;
        Ok(Self {
            shared,
            thread: Some(thread),
        })
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
        self.thread
            .iter()
            .for_each(|thread| thread.thread().unpark());
    }

    /// The samples with their names. Takes some 200 ms of CPU time, for the table of the kernel's functions and the
    /// cost of a sample: call it when the measured time is over.
    pub(crate) fn finish(mut self) -> Taken {
        self.stop();
        let thread = self.thread.take().expect(NONE_LEFT);
        let drained = thread
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        self.shared.taken(drained)
    }
}

impl Drop for Profiler {
    fn drop(&mut self) {
        // A run that never came to its measured time: the thread is not to wait for it.
        self.stop();
    }
}

impl Shared {
    fn source(&self) -> MutexGuard<'_, Source> {
        self.source.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn flows(&self) -> MutexGuard<'_, Vec<u32>> {
        self.flows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn drain_until_over(&self) -> Drained {
        let (mut counts, mut tasks) = (Counts::default(), Tasks::new());
        let mut bytes = Vec::new();
        let before = CpuUsage::of_thread();
        for look in 1_u32.. {
            let over = self.over.load(Ordering::Acquire);
            if look.is_multiple_of(LOOKS_TO_HOTPLUG) {
                self.source().follow_hotplug();
            }
            self.drain(&mut counts, &mut tasks, &mut bytes);
            if over {
                break;
            }
            thread::park_timeout(DRAIN_EVERY);
        }
        let cpu = CpuUsage::of_thread().since(&before);
        Drained {
            counts,
            cpu: cpu.user + cpu.system,
        }
    }

    fn drain(&self, counts: &mut Counts, tasks: &mut Tasks, bytes: &mut Vec<u8>) {
        tasks.set_flows(self.flows().clone());
        for (subject, sampler) in &self.source().samplers {
            bytes.clear();
            if sampler.drain(bytes) {
                counts.take(*subject, bytes, tasks);
            }
        }
    }

    fn taken(&self, drained: Drained) -> Taken {
        let mut source = self.source();
        let counts = drained.counts;
        let (symbols, hidden) = if counts.samples == 0 {
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
            softirq_seconds: None,
            overhead: Overhead {
                thread_seconds: drained.cpu.as_secs_f64(),
                ..Overhead::default()
            },
            caveats: std::mem::take(&mut source.caveats),
        };
        profile.caveats.extend(hidden);
        profile.caveats.extend(doubts(&profile));
        profile.bound();
        Taken {
            sample_cost: (counts.samples > 0).then(cost::of_a_sample).flatten(),
            profile,
        }
    }
}

fn cpus(source: &Source, counts: &Counts) -> Vec<CpuSamples> {
    let sampled = source
        .samplers
        .iter()
        .filter_map(|(subject, _)| match subject {
            Subject::Cpu(cpu) => Some(*cpu),
            Subject::Thread(_) => None,
        });
    let mut numbers: Vec<u32> = sampled.chain(counts.cpus.keys().copied()).collect();
    numbers.sort_unstable();
    numbers.dedup();
    let of = |cpu: u32| {
        let (samples, lost) = counts.cpus.get(&cpu).copied().unwrap_or_default();
        CpuSamples {
            cpu,
            samples,
            lost,
            idle_percent: None,
        }
    };
    numbers.into_iter().map(of).collect()
}

fn no_names(error: &dyn std::error::Error) -> Caveat {
    Caveat::new(
        CaveatKind::NotReadable,
        format!(
            "the kernel's functions have no names here, so that no layer of the kernel can be told: {error}"
        ),
        "run as root, or set kernel.kptr_restrict to 1 with CAP_SYSLOG, or to 0",
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
    pub(crate) fn with(self, run: Circumstances) -> EndProfile {
        let mut profile = self.profile;
        profile.seconds = run.seconds;
        profile.threads = run.threads;
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
        let overhead = &mut profile.overhead;
        overhead.interrupt_seconds = self.sample_cost.unwrap_or(0.0) * profile.samples as f64;
        let busy = run.busy_seconds.filter(|busy| *busy > 0.0);
        overhead.percent = busy.map_or(0.0, |busy| {
            100.0 * (overhead.thread_seconds + overhead.interrupt_seconds) / busy
        });
        profile
    }
}
