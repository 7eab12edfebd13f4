//! What an end's profiler took.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::record::{Caveat, CpuSeconds};

/// Different stacks of an end's profile at most; what the rarest have beyond is counted in [`EndProfile::other_samples`].
pub const MAX_STACKS: usize = 4096;
/// Frames of a stack at most; the frames nearest the leaf are kept.
pub const MAX_FRAMES: usize = 64;
/// Letters of a function's name at most.
pub const MAX_FUNCTION: usize = 96;
/// The frame that stands for all user code of a stack, where that was not symbolised.
pub const USER_FRAME: &str = "[user]";

/// Whose time a sample is, by the thread that it met.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum TaskClass {
    /// A thread of this end that sends or receives the test's data.
    Flow,
    /// Another thread of this end's linerate: its sampler, its control connection. What measuring costs.
    Tool,
    /// A kernel thread: `ksoftirqd`, a worker of the kernel.
    Kernel,
    /// Any other process of the host. Only what it did in a soft interrupt is kept of its stack.
    Other,
    /// The idle task.
    Idle,
}

/// Samples whose call chains were alike.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FoldedStack {
    /// Names of functions, from the innermost (leaf) to the outermost (root): those of the kernel first, then those of the user's
    /// part, or [`USER_FRAME`] for it. At most [`MAX_FRAMES`]. Module marks and suffixes as the kernel prints them.
    /// Of a thread of class `other` only the frames from the leaf to the one that entered the soft interrupt;
    /// none, if it was in none.
    pub frames: Vec<String>,
    /// How many of `frames`, from the leaf, ran within a soft interrupt: the last of them is the function that entered
    /// it (`handle_softirqs`, `__do_softirq`). 0 outside.
    #[serde(default)]
    pub softirq_frames: u32,
    /// How many of `frames`, from the leaf, are of the kernel.
    #[serde(default)]
    pub kernel_frames: u32,
    /// Whose time it is.
    pub task: TaskClass,
    /// Samples.
    pub count: u64,
}

impl FoldedStack {
    /// Whether these samples were taken within a soft interrupt.
    pub fn in_softirq(&self) -> bool {
        self.softirq_frames > 0
    }
}

/// What drives the samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SampleClock {
    /// A timer of each CPU. It cannot fire while interrupts are off: such time shows where they are switched on again.
    CpuClock,
    /// The hardware's counter of cycles, whose overflow is a non-maskable interrupt.
    Cycles,
}

/// How an end's CPU time was come by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "how", rename_all = "snake_case")]
pub enum How {
    /// By samples.
    Sampled {
        /// What drove them.
        clock: SampleClock,
        /// Whether call chains within the kernel were seen.
        kernel_seen: bool,
        /// Whether all that the CPUs did was seen; else only the test's own threads.
        all_cpus: bool,
    },
    /// Without samples: CPU time of the test's threads, user and system, and of soft interrupts.
    Accounted,
}

/// What one CPU gave.
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

/// What profiling cost this end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Overhead {
    /// CPU time of the profiler's own thread, seconds.
    pub thread_seconds: f64,
    /// CPU time of the sampling interrupts, seconds: their number times what one of them was measured to take.
    pub interrupt_seconds: f64,
    /// Both over the time that the host's CPUs were busy, percent.
    pub percent: f64,
}

/// One end's profile over the measured part of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EndProfile {
    /// How it was come by.
    #[serde(flatten)]
    pub how: How,
    /// Samples a second of each busy CPU: one sample is 1/hz seconds of CPU time. 0 without samples.
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
    /// CPU time of the whole host's soft interrupts, seconds, by the kernel's account.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub softirq_seconds: Option<f64>,
    /// What profiling cost.
    #[serde(default)]
    pub overhead: Overhead,
    /// What was not to be had, and what follows from it.
    #[serde(default)]
    pub caveats: Vec<Caveat>,
}
