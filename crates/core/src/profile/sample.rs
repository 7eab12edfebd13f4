//! The samples that an end's profiler is asked for, and those that it took.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;

use crate::record::{Caveat, CpuSeconds};

/// Different stacks of an end's profile at most; what the rarest have beyond is counted in
/// [`EndProfile::other_samples`].
pub const MAX_STACKS: usize = 4096;
/// Largest number of frames of a stack; those nearest to the leaf are kept.
pub const MAX_FRAMES: usize = 64;
/// Largest length of a function's name.
pub const MAX_FUNCTION: usize = 96;
/// The frame that stands for all user code of a stack, where that was not symbolised.
pub const USER_FRAME: &str = "[user]";

/// The owner of a sample's time, by the thread that was running.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum TaskClass {
    /// A thread of this end that sends or receives the test's data.
    Flow,
    /// Another thread of this end's linerate: its sampler, its control connection. What measuring
    /// costs.
    Tool,
    /// A kernel thread: `ksoftirqd`, a worker of the kernel.
    Kernel,
    /// Any other process of the host, the other end's among them. Its stack is kept only where it
    /// was in a soft interrupt.
    Other,
    /// The idle task.
    Idle,
}

/// Samples with the same call chain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FoldedStack {
    /// Names of functions, from the innermost (leaf) to the outermost (root): those of the kernel
    /// first, then those of the user's part, or [`USER_FRAME`] for it. At most [`MAX_FRAMES`].
    /// Module marks and suffixes as the kernel prints them. None of a thread of class `other` or
    /// `idle`, unless it was in a soft interrupt: then the kernel's part.
    pub frames: Vec<String>,
    /// How many of `frames`, from the leaf, ran within a soft interrupt: the last of them is the
    /// function that entered it (`handle_softirqs`, `__do_softirq`). 0 outside.
    #[serde(default)]
    pub softirq_frames: u32,
    /// Number of the kernel's frames in `frames`, from the leaf.
    #[serde(default)]
    pub kernel_frames: u32,
    /// The owner of the time.
    pub task: TaskClass,
    /// Samples.
    pub count: u64,
}

impl FoldedStack {
    /// Whether these samples were taken within a soft interrupt.
    pub fn in_softirq(&self) -> bool {
        self.softirq_frames > 0
    }

    fn check(&self) -> Result<(), String> {
        let frames = self.frames.len();
        let within = |count: u32| count as usize <= frames;
        if frames > MAX_FRAMES || !within(self.softirq_frames) || !within(self.kernel_frames) {
            return Err(format!("a stack of {frames} frames"));
        }
        let is_name = |name: &String| {
            (1..=MAX_FUNCTION).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_graphic())
        };
        match self.frames.iter().find(|name| !is_name(name)) {
            Some(name) => {
                Err(format!("a function called {:?}", name.chars().take(60).collect::<String>()))
            }
            None => Ok(()),
        }
    }
}

/// The clock that triggers samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SampleClock {
    /// A timer of each CPU. It cannot fire while interrupts are off: such time shows where they are
    /// switched on again.
    CpuClock,
    /// A counter of each CPU's cycles, at a fixed number of them. Its interrupts cannot be masked
    /// where the hardware has such, so that time with interrupts off is seen where it is spent.
    Cycles,
}

/// How an end's CPU time was measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "how", rename_all = "snake_case")]
pub enum How {
    /// By samples.
    Sampled {
        /// The clock that triggered them.
        clock: SampleClock,
        /// Whether call chains within the kernel were seen.
        kernel_seen: bool,
        /// Whether all activity of the CPUs was seen, or only the test's own threads.
        all_cpus: bool,
    },
    /// Without samples: CPU time of the test's threads, user and system, and of soft interrupts.
    Accounted,
}

impl How {
    /// Whether there are call chains within the kernel, of which layers can be told.
    pub fn tells_layers(&self) -> bool {
        match self {
            Self::Sampled { kernel_seen, .. } => *kernel_seen,
            Self::Accounted => false,
        }
    }
}

/// The samples of one CPU.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CpuSamples {
    /// Its number.
    pub cpu: u32,
    /// Samples taken of it.
    pub samples: u64,
    /// Samples that the kernel could not deliver.
    pub lost: u64,
    /// Share of the time that it was idle, percent (0–100), by the kernel's own account.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_percent: Option<f64>,
}

/// The cost of profiling at this end.
#[skip_serializing_none]
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Overhead {
    /// CPU time of the profiler's own thread, seconds.
    pub thread_seconds: f64,
    /// CPU time of the sampling interrupts, seconds: their number times what one of them was
    /// measured to take; absent where that could not be measured.
    pub interrupt_seconds: Option<f64>,
    /// Both over the time that the host's CPUs were busy, percent; absent where one of the three is
    /// not known.
    pub percent: Option<f64>,
}

/// One end's profile over the measured part of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EndProfile {
    /// How the CPU time was measured.
    #[serde(flatten)]
    pub how: How,
    /// Samples a second of each busy CPU: one sample is 1/hz seconds of CPU time. By cycles it is
    /// what the run itself had: samples over the busy time that they are of. 0 without samples.
    pub hz: u32,
    /// Measured time, seconds.
    pub seconds: f64,
    /// Samples taken.
    pub samples: u64,
    /// Samples that the kernel could not deliver, or that the profiler could not read in time.
    pub lost: u64,
    /// Times that the kernel slowed the sampling down, because it took too long.
    #[serde(default)]
    pub throttled: u64,
    /// Each CPU that was online.
    #[serde(default)]
    pub cpus: Vec<CpuSamples>,
    /// The most frequent stacks, most frequent first; at most [`MAX_STACKS`].
    #[serde(default)]
    pub folded: Vec<FoldedStack>,
    /// Samples of stacks that are not among `folded`.
    #[serde(default)]
    pub other_samples: u64,
    /// CPU time of the test's own threads, by the kernel's account.
    #[serde(default)]
    pub threads: CpuSeconds,
    /// CPU time of each of these threads, in the order of the flows.
    #[serde(default)]
    pub each_thread: Vec<CpuSeconds>,
    /// CPU time of the whole host's soft interrupts, seconds, by the kernel's account.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub softirq_seconds: Option<f64>,
    /// The cost of profiling.
    #[serde(default)]
    pub overhead: Overhead,
    /// Caveats about what could not be measured.
    #[serde(default)]
    pub caveats: Vec<Caveat>,
}

impl EndProfile {
    /// Whether this can be the profile of an end: a client calls it on what an endpoint sent.
    ///
    /// # Errors
    /// Checks the counts of a peer; an error says in words what contradicts itself.
    pub fn check(&self) -> Result<(), String> {
        if self.hz > MAX_COUNTED_HZ {
            return Err(format!("a profile at {} samples a second", self.hz));
        }
        if self.folded.len() > MAX_STACKS
            || self.cpus.len() > MAX_CPUS
            || self.each_thread.len() > MAX_THREADS
        {
            let (stacks, cpus) = (self.folded.len(), self.cpus.len());
            let threads = self.each_thread.len();
            return Err(format!("a profile of {stacks} stacks, {cpus} CPUs and {threads} threads"));
        }
        let threads = self.each_thread.iter();
        let of_threads = threads.flat_map(|one| [one.user, one.system]);
        let own = [
            self.seconds,
            self.threads.user,
            self.threads.system,
            self.softirq_seconds.unwrap_or(0.0),
            self.overhead.thread_seconds,
            self.overhead.interrupt_seconds.unwrap_or(0.0),
            self.overhead.percent.unwrap_or(0.0),
        ];
        if !own.into_iter().chain(of_threads).all(|time| (0.0..=LARGEST_TIME).contains(&time)) {
            return Err("a profile with an absurd time".to_owned());
        }
        self.folded.iter().try_for_each(FoldedStack::check)?;
        let mut counts = self.folded.iter().map(|stack| stack.count).chain([self.other_samples]);
        let sum = counts.try_fold(0_u64, u64::checked_add);
        let samples = self.samples;
        if sum.is_none_or(|sum| sum > samples) {
            return Err(format!("a profile whose stacks count more than its {samples} samples"));
        }
        Ok(())
    }

    /// Keeps the most frequent [`MAX_STACKS`] stacks, in their order, and counts the rest.
    pub fn bound(&mut self) {
        self.folded.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.frames.cmp(&b.frames)));
        self.keep(MAX_STACKS);
    }

    /// Leaves out rare stacks until the profile takes at most `limit` bytes.
    pub(crate) fn thin_to(&mut self, limit: usize) {
        while !self.folded.is_empty()
            && serde_json::to_vec(self).is_ok_and(|json| json.len() > limit)
        {
            self.keep(self.folded.len() / 2);
        }
    }

    fn keep(&mut self, stacks: usize) {
        let rest = self.folded.split_off(stacks.min(self.folded.len()));
        self.other_samples += rest.iter().map(|stack| stack.count).sum::<u64>();
    }

    /// Puts the rate that the run had in place of the one that was asked for: a sample that a cycle
    /// counter triggered stands for a number of cycles, and how long those took depends on the
    /// CPU's clock. The run tells: so many samples came in so much busy time. `busy_seconds` is the
    /// CPU time, by the kernel's account, of what was sampled: of the CPUs all that was neither
    /// idle nor stolen, of threads their own. Nothing changes where a timer gave the samples, which
    /// has its rate by itself; false where the rate should be known and is not.
    ///
    /// Samples that met an idle CPU (on its way to sleep, or kept from it) are left out, as its
    /// time is.
    pub fn calibrate(&mut self, busy_seconds: Option<f64>) -> bool {
        let How::Sampled { clock: SampleClock::Cycles, .. } = self.how else {
            return true;
        };
        let is_idle = |stack: &&FoldedStack| stack.task == TaskClass::Idle && !stack.in_softirq();
        let idle = self.folded.iter().filter(is_idle).map(|stack| stack.count);
        let busy = self.samples.saturating_sub(idle.sum());
        let found =
            busy_seconds.and_then(|seconds| sample_rate(busy, self.samples, self.lost, seconds));
        self.hz = found.unwrap_or(self.hz);
        found.is_some()
    }
}

/// Samples a second; those that were lost are taken for busy as often as those that came.
fn sample_rate(busy: u64, all: u64, lost: u64, seconds: f64) -> Option<u32> {
    if busy == 0 || seconds <= 0.0 {
        return None;
    }
    let lengthened = busy as f64 * (1.0 + lost as f64 / all as f64);
    let hz = (lengthened / seconds).round();
    (1.0..=f64::from(MAX_COUNTED_HZ)).contains(&hz).then_some(hz as u32)
}

/// Samples a second at most that a counter of cycles can have given: of a CPU that is faster than
/// its usual clock.
const MAX_COUNTED_HZ: u32 = 10 * MAX_HZ;
/// Threads of a test at most, with room for more flows than this version allows.
const MAX_THREADS: usize = 4096;
/// CPUs of a host at most (`NR_CPUS` of x86).
const MAX_CPUS: usize = 8192;
/// Seconds of CPU time: all CPUs for more than any owner allows.
const LARGEST_TIME: f64 = 1e11;

// A client's request to an end's profiler.

/// Fewest samples a second.
pub const MIN_HZ: u32 = 10;
/// Most samples a second: beyond it, the samples themselves are what is measured.
pub const MAX_HZ: u32 = 9999;

/// How an end is to be profiled while a test runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProfileRequest {
    /// Samples a second of each CPU that an end takes, [`MIN_HZ`] to [`MAX_HZ`].
    pub hz: u32,
}

impl Default for ProfileRequest {
    fn default() -> Self {
        Self { hz: DEFAULT_HZ }
    }
}

impl ProfileRequest {
    /// What is asked of each of two ends. On one kernel each of them has all CPUs interrupted: each
    /// takes half of the samples, so that both together cost no more than one.
    #[must_use]
    pub fn of_each_end(self, on_one_kernel: bool) -> Self {
        if on_one_kernel { Self { hz: (self.hz / 2).max(MIN_HZ) } } else { self }
    }

    /// Checks the rate: an endpoint calls it on what a stranger sent.
    ///
    /// # Errors
    /// Checks the request against what is allowed.
    pub fn check(&self) -> Result<(), String> {
        if (MIN_HZ..=MAX_HZ).contains(&self.hz) {
            return Ok(());
        }
        Err(format!("a profile at {} samples a second: they must be {MIN_HZ} to {MAX_HZ}", self.hz))
    }
}

/// Samples a second of each CPU, unless asked otherwise, over both ends if they run on one kernel.
/// No multiple of a usual timer's rate, so that the samples do not march in step with it. In a
/// virtual machine whose timer interrupts cost 20 µs each they take 1 % of a busy CPU.
const DEFAULT_HZ: u32 = 499;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::attribution::{Place, Role};
    use super::super::{End, Overhead, count};
    use super::*;
    use crate::record::CpuSeconds;

    fn stack(name: &str, count: u64) -> FoldedStack {
        FoldedStack {
            frames: vec![name.to_owned(), USER_FRAME.to_owned()],
            softirq_frames: 0,
            kernel_frames: 1,
            task: TaskClass::Flow,
            count,
        }
    }

    fn profile(folded: Vec<FoldedStack>) -> EndProfile {
        EndProfile {
            how: How::Sampled { clock: SampleClock::CpuClock, kernel_seen: true, all_cpus: true },
            hz: 1999,
            seconds: 1.0,
            samples: folded.iter().map(|stack| stack.count).sum(),
            lost: 0,
            throttled: 0,
            cpus: Vec::new(),
            folded,
            other_samples: 0,
            threads: CpuSeconds::default(),
            each_thread: Vec::new(),
            softirq_seconds: None,
            overhead: Overhead::default(),
            caveats: Vec::new(),
        }
    }

    proptest! {
        #[test]
        fn bounding_and_thinning_keep_every_sample(
            counts in prop::collection::vec(1_u64..1000, 0..6000), limit in 0_usize..100_000,
        ) {
            let folded = counts.iter().enumerate()
                .map(|(n, count)| stack(&format!("f{n}"), *count)).collect();
            let mut profile = profile(folded);
            let all = profile.samples;
            let kept = |p: &EndProfile| p.folded.iter()
                .map(|s| s.count).sum::<u64>() + p.other_samples;
            profile.bound();
            prop_assert!(profile.folded.len() <= MAX_STACKS && profile.check().is_ok());
            prop_assert_eq!(kept(&profile), all);
            profile.thin_to(limit);
            prop_assert_eq!(kept(&profile), all);
            prop_assert!(profile.folded.is_empty()
                || serde_json::to_vec(&profile).unwrap().len() <= limit);
            prop_assert!(profile.folded.is_sorted_by(|a, b| a.count >= b.count));
        }
    }

    #[test]
    fn a_profile_reads_back_as_it_was_written() {
        for how in [
            How::Accounted,
            How::Sampled { clock: SampleClock::Cycles, kernel_seen: false, all_cpus: false },
        ] {
            let profile = EndProfile { how, ..profile(vec![stack("tcp_sendmsg", 3)]) };
            let text = serde_json::to_string(&profile).unwrap();
            assert_eq!(serde_json::from_str::<EndProfile>(&text).unwrap(), profile, "{text}");
        }
    }

    #[test]
    fn profiles_with_impossible_figures_are_refused() {
        let good = || profile(vec![stack("tcp_sendmsg", 3)]);
        assert_eq!(good().check(), Ok(()));
        let spoil: [fn(&mut EndProfile); 11] = [
            |p| p.hz = 100_000,
            |p| p.samples = 2,
            |p| p.other_samples = u64::MAX,
            |p| p.seconds = -1.0,
            |p| p.overhead.percent = Some(f64::INFINITY),
            |p| p.each_thread = vec![CpuSeconds::default(); MAX_THREADS + 1],
            |p| p.each_thread = vec![CpuSeconds { user: f64::NAN, system: 0.0 }],
            |p| p.folded[0].frames[0] = "\u{1b}[2J".to_owned(),
            |p| p.folded[0].frames[0] = "a".repeat(MAX_FUNCTION + 1),
            |p| p.folded[0].softirq_frames = 3,
            |p| p.folded[0].frames = vec!["f".to_owned(); MAX_FRAMES + 1],
        ];
        for (number, spoil) in spoil.iter().enumerate() {
            let mut bad = good();
            spoil(&mut bad);
            assert!(bad.check().is_err(), "{number}");
        }
    }

    #[test]
    fn ends_on_one_kernel_share_the_samples() {
        let asked = ProfileRequest::default();
        assert_eq!(asked.of_each_end(false), asked);
        assert_eq!(asked.of_each_end(true).hz, 249);
        let few = ProfileRequest { hz: MIN_HZ };
        assert_eq!(few.of_each_end(true), few);
        assert_eq!(few.of_each_end(true).check(), Ok(()));
    }

    fn sampled_stack(
        task: TaskClass,
        frames: &[&str],
        softirq_frames: u32,
        count: u64,
    ) -> FoldedStack {
        FoldedStack {
            frames: frames.iter().map(|&name| name.to_owned()).collect(),
            softirq_frames,
            kernel_frames: frames.len() as u32,
            task,
            count,
        }
    }

    fn sampled_profile(clock: SampleClock) -> EndProfile {
        let folded = vec![
            sampled_stack(TaskClass::Flow, &["tcp_ack"], 0, 600),
            sampled_stack(TaskClass::Idle, &["ip_rcv", "handle_softirqs"], 2, 100),
            sampled_stack(TaskClass::Other, &[], 0, 100),
            sampled_stack(TaskClass::Idle, &[], 0, 50),
        ];
        EndProfile {
            how: How::Sampled { clock, kernel_seen: true, all_cpus: true },
            hz: 499,
            seconds: 2.0,
            ..profile(folded)
        }
    }

    #[test]
    fn a_sample_of_cycles_is_the_busy_time_over_the_samples_of_it() {
        // A CPU at 4/5 of its usual clock: 800 samples that are not idle in 2 s, of 499 a second.
        let mut cycles = sampled_profile(SampleClock::Cycles);
        assert!(cycles.calibrate(Some(2.0)));
        assert_eq!(cycles.hz, 400);
        assert_eq!(cycles.check(), Ok(()));
        let end =
            End { role: Some(Role::Receiver), peer: Place::Elsewhere, packets: None, bytes: 1 };
        // 700 of the 800 are this end's, and so are 7/8 of the time.
        assert_eq!(count(cycles, end).cpu_seconds, 1.75);
    }

    #[test]
    fn lost_samples_are_of_the_busy_time_too() {
        let mut lossy = sampled_profile(SampleClock::Cycles);
        lossy.lost = 85;
        assert!(lossy.calibrate(Some(2.0)));
        assert_eq!(lossy.hz, 440);
    }

    #[test]
    fn a_timer_has_its_rate_by_itself() {
        let mut timed = sampled_profile(SampleClock::CpuClock);
        assert!(timed.calibrate(Some(2.0)));
        assert_eq!(timed.hz, 499);
    }

    #[test]
    fn what_cannot_be_calibrated_is_said_and_stays_as_asked() {
        for (seconds, samples) in
            [(None, 850), (Some(0.0), 850), (Some(2.0), 50), (Some(1e-9), 850)]
        {
            let mut cycles = sampled_profile(SampleClock::Cycles);
            cycles.samples = samples;
            assert!(!cycles.calibrate(seconds), "{seconds:?} {samples}");
            assert_eq!(cycles.hz, 499);
        }
    }
}
