//! What is asked of perf_event_open(2).

use std::fmt;

use super::Sampling;

/// What is sampled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subject {
    /// All that a CPU does, by its number.
    Cpu(u32),
    /// A thread of this process, on whichever CPU, by its number.
    Thread(u32),
}

impl Subject {
    /// The two arguments of the system call.
    pub(super) fn thread_and_cpu(self) -> (libc::pid_t, libc::c_int) {
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

/// `struct perf_event_attr` of include/uapi/linux/perf_event.h in its fifth version (Linux 4.1), which has all that is used
/// here.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(super) struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    frequency: u64,
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

/// `PERF_TYPE_SOFTWARE` with `PERF_COUNT_SW_CPU_CLOCK`: a timer of each CPU, by interrupts that can be masked. Each sample
/// stands for the same CPU time, which those of a counter of cycles in frequency mode do not (kernel/events/core.c,
/// `perf_adjust_period`).
const SOFTWARE_CPU_CLOCK: (u32, u64) = (1, 0);
/// `PERF_SAMPLE_TID`, `_CALLCHAIN`, `_CPU`.
const SAMPLE_TYPE: u64 = 1 << 1 | 1 << 5 | 1 << 7;
/// Bits of the flags: `disabled`, `exclude_hv`, `freq`.
const FLAGS: u64 = 1 | 1 << 6 | 1 << 10;

const EXCLUDE_KERNEL: u64 = 1 << 5;

impl Attributes {
    pub(super) fn new(sampling: &Sampling) -> Self {
        let (kind, config) = SOFTWARE_CPU_CLOCK;
        Self {
            kind,
            size: size_of::<Self>() as u32,
            config,
            frequency: u64::from(sampling.hz),
            sample_type: SAMPLE_TYPE,
            flags: FLAGS
                | if sampling.user_only {
                    EXCLUDE_KERNEL
                } else {
                    0
                },
            largest_stack: sampling.depth.clamp(1, 127),
            ..Self::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_is_that_of_the_kernels_fifth_version() {
        assert_eq!(size_of::<Attributes>(), 112);
    }
}
