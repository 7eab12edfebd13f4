//! The argument of perf_event_open(2).

use std::fmt;

use super::{Clock, Sampling};

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

/// `struct perf_event_attr` of include/uapi/linux/perf_event.h in its fifth version (Linux 4.1),
/// which has every member that is used here.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(super) struct Attributes {
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
    pub(super) fn new(sampling: &Sampling) -> Self {
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

#[cfg(test)]
mod tests {
    use super::*;

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
}
