//! The CPU time that a sample stands for when a cycle counter triggered it.
//!
//! Each sample then stands for the same number of cycles, but how long those took depends on the
//! clock that the CPU ran at. The run itself tells: so many samples came in so much busy time.

use super::sample::MAX_COUNTED_HZ;
use super::{EndProfile, FoldedStack, How, SampleClock, TaskClass};

impl EndProfile {
    /// Puts the rate that the run had in place of the one that was asked for. `busy_seconds` is the
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
        let found = busy_seconds.and_then(|seconds| rate(busy, self.samples, self.lost, seconds));
        self.hz = found.unwrap_or(self.hz);
        found.is_some()
    }
}

/// Samples a second; those that were lost are taken for busy as often as those that came.
fn rate(busy: u64, all: u64, lost: u64, seconds: f64) -> Option<u32> {
    if busy == 0 || seconds <= 0.0 {
        return None;
    }
    let lengthened = busy as f64 * (1.0 + lost as f64 / all as f64);
    let hz = (lengthened / seconds).round();
    (1.0..=f64::from(MAX_COUNTED_HZ)).contains(&hz).then_some(hz as u32)
}

#[cfg(test)]
mod tests {
    use super::super::attribution::{Place, Role};
    use super::super::{End, Overhead, count};
    use super::*;
    use crate::record::CpuSeconds;

    fn stack(task: TaskClass, frames: &[&str], softirq_frames: u32, count: u64) -> FoldedStack {
        FoldedStack {
            frames: frames.iter().map(|&name| name.to_owned()).collect(),
            softirq_frames,
            kernel_frames: frames.len() as u32,
            task,
            count,
        }
    }

    fn profile(clock: SampleClock) -> EndProfile {
        let folded = vec![
            stack(TaskClass::Flow, &["tcp_ack"], 0, 600),
            stack(TaskClass::Idle, &["ip_rcv", "handle_softirqs"], 2, 100),
            stack(TaskClass::Other, &[], 0, 100),
            stack(TaskClass::Idle, &[], 0, 50),
        ];
        EndProfile {
            how: How::Sampled { clock, kernel_seen: true, all_cpus: true },
            hz: 499,
            seconds: 2.0,
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

    #[test]
    fn a_sample_of_cycles_is_the_busy_time_over_the_samples_of_it() {
        // A CPU at 4/5 of its usual clock: 800 samples that are not idle in 2 s, of 499 a second.
        let mut cycles = profile(SampleClock::Cycles);
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
        let mut lossy = profile(SampleClock::Cycles);
        lossy.lost = 85;
        assert!(lossy.calibrate(Some(2.0)));
        assert_eq!(lossy.hz, 440);
    }

    #[test]
    fn a_timer_has_its_rate_by_itself() {
        let mut timed = profile(SampleClock::CpuClock);
        assert!(timed.calibrate(Some(2.0)));
        assert_eq!(timed.hz, 499);
    }

    #[test]
    fn what_cannot_be_calibrated_is_said_and_stays_as_asked() {
        for (seconds, samples) in
            [(None, 850), (Some(0.0), 850), (Some(2.0), 50), (Some(1e-9), 850)]
        {
            let mut cycles = profile(SampleClock::Cycles);
            cycles.samples = samples;
            assert!(!cycles.calibrate(seconds), "{seconds:?} {samples}");
            assert_eq!(cycles.hz, 499);
        }
    }
}
