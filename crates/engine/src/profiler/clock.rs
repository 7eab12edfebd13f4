//! What triggers the samples: the CPU's cycle counter where there is one, else a timer.

use std::hint::black_box;
use std::time::Duration;

use linerate_core::profile::SampleClock;
use linerate_sys::perf::{Clock, Sampler, Sampling, Subject};
use linerate_sys::proc::cpu::{CpuInfo, highest_khz};
use linerate_sys::thread;

/// How often a sample is taken, and how many cycles the CPUs make in a second.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    /// Samples a second of a busy CPU.
    pub(super) hz: u32,
    /// Cycles a second of a CPU at its usual clock; `None` where no file tells.
    cycles_hz: Option<u64>,
}

impl Pace {
    pub(super) fn of_this_host(hz: u32, cpus: &[u32]) -> Self {
        let highest = cpus.iter().filter_map(|cpu| highest_khz(*cpu).value().copied());
        let now = CpuInfo::read().unwrap_or_default().frequencies_mhz;
        Self { hz, cycles_hz: usual_clock_hz(highest.max(), &now) }
    }

    /// The clocks that can give this rate, the better one first.
    pub(super) fn clocks(self) -> impl Iterator<Item = Clock> {
        let timer = Clock::Timer { hz: self.hz };
        self.cycles().into_iter().chain([timer])
    }

    /// This clock at another rate.
    pub(super) fn at(self, clock: Clock, hz: u32) -> Clock {
        let timer = Clock::Timer { hz };
        match clock {
            Clock::Timer { .. } => timer,
            Clock::Cycles { .. } => Self { hz, ..self }.cycles().unwrap_or(timer),
        }
    }

    fn cycles(self) -> Option<Clock> {
        let period = self.cycles_hz? / u64::from(self.hz.max(1));
        (period >= MIN_PERIOD).then_some(Clock::Cycles { period })
    }
}

/// As the document names it.
pub(super) fn named(clock: Clock) -> SampleClock {
    match clock {
        Clock::Timer { .. } => SampleClock::CpuClock,
        Clock::Cycles { .. } => SampleClock::Cycles,
    }
}

/// Tries whether this clock gives samples. On some hypervisors a cycle counter can be opened and
/// then never counts. A timer needs no trial.
pub(super) fn is_running(sampling: &Sampling) -> bool {
    let Clock::Cycles { period } = sampling.clock else {
        return true;
    };
    let trial = Sampling { clock: Clock::Cycles { period: period.min(TRIAL_PERIOD) }, ..*sampling };
    let Ok(sampler) = Sampler::open(Subject::Thread(thread::thread_id()), &trial) else {
        return false;
    };
    if sampler.enable().is_err() {
        return false;
    }
    let begun = thread::cpu_time();
    while thread::cpu_time() - begun < TRIAL {
        (0..1000_u32).for_each(|step| {
            black_box(step);
        });
    }
    sampler.drain(&mut Vec::new())
}

/// The highest frequency that the CPUs can be set to, else (in guests) the highest current one. It
/// need not be exact: the run shows at which rate the samples came.
fn usual_clock_hz(highest_khz: Option<u64>, now_mhz: &[f64]) -> Option<u64> {
    let now = || {
        let mhz = now_mhz.iter().copied().fold(0.0, f64::max);
        (mhz * 1e6) as u64
    };
    let hz = highest_khz.map_or_else(now, |khz| khz.saturating_mul(1000));
    CLOCKS.contains(&hz).then_some(hz)
}

/// Plausible clocks of a CPU, Hz; any other figure is taken for an error.
const CLOCKS: std::ops::Range<u64> = 10_000_000..100_000_000_000;
/// In cycles; taking a sample costs some thousands.
const MIN_PERIOD: u64 = 50_000;
/// For the trial: gives tens of samples even at a slow clock.
const TRIAL_PERIOD: u64 = 100_000;
const TRIAL: Duration = Duration::from_millis(3);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_period_is_the_usual_clock_over_the_rate() {
        let pace = Pace { hz: 499, cycles_hz: usual_clock_hz(Some(3_000_000), &[800.0]) };
        let clocks: Vec<Clock> = pace.clocks().collect();
        let cycles = Clock::Cycles { period: 6_012_024 };
        assert_eq!(clocks, [cycles, Clock::Timer { hz: 499 }]);
        let faster = pace.at(cycles, 4999);
        assert_eq!(faster, Clock::Cycles { period: 600_120 });
        assert_eq!(pace.at(clocks[1], 4999), Clock::Timer { hz: 4999 });
    }

    #[test]
    fn without_a_plausible_clock_rate_only_the_timer_is_used() {
        assert_eq!(usual_clock_hz(None, &[2596.142, 2600.0]), Some(2_600_000_000));
        for (highest, now) in
            [(None, &[][..]), (Some(0), &[2600.0]), (Some(u64::MAX), &[]), (None, &[f64::NAN])]
        {
            let pace = Pace { hz: 499, cycles_hz: usual_clock_hz(highest, now) };
            let clocks: Vec<Clock> = pace.clocks().collect();
            assert_eq!(clocks, [Clock::Timer { hz: 499 }], "{highest:?} {now:?}");
        }
    }
}
