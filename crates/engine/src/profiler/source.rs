//! What may be sampled on this host: all CPUs, else the test's own threads, else only their user
//! mode, else nothing.

use std::sync::LazyLock;

use linerate_core::profile::How;
use linerate_core::record::Caveat;
use linerate_sys::perf::{Clock, Obstacle, PerfError, Sampler, Sampling, Subject, largest_rate};
use linerate_sys::proc::cpu;

use super::clock::{self, Pace};
use super::hotplug::Hotplug;
use super::obstacle;
use crate::shares::{Share, Shares};

/// Frames of a call chain. The deepest seen of a softirq within a system call has 50.
const DEPTH: u16 = 64;
/// Bytes of each CPU's ring: a fifth of a second at the highest rate with the deepest chains (560
/// bytes each).
const CPU_RING: usize = 1 << 20;
/// Bytes of each thread's ring where only own threads may be sampled, as memory is scarce then. It
/// lasts as long at 500 samples a second.
const THREAD_RING: usize = 64 << 10;
/// Threads that are sampled by themselves at most.
const MAX_THREADS: usize = 64;

/// Profiles of this process at once: a client and an endpoint of one process, and somebody else's.
/// Each has rings of its own and interrupts every CPU.
const MAX_PROFILES: u64 = 4;
static PROFILES: LazyLock<Shares> = LazyLock::new(Shares::default);

/// Events that are switched on and off together.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) samplers: Vec<(Subject, Sampler)>,
    pace: Pace,
    sampling: Sampling,
    all_cpus: bool,
    enabled: bool,
    place: Option<Share>,
    hotplug: Hotplug,
    caveats: Vec<Caveat>,
}

impl Source {
    /// Opens an event for each CPU; where that is not allowed, none, until
    /// [`Source::take_threads`].
    pub(super) fn open(hz: u32) -> Self {
        let cpus = cpu::online().unwrap_or_default();
        let mut source = Self::of_nothing(hz, &cpus);
        source.place = PROFILES.take(1, MAX_PROFILES).ok();
        match source.place {
            Some(_) => source.take_cpus(&cpus),
            None => source.caveats.push(obstacle::too_many(MAX_PROFILES)),
        }
        source
    }

    fn of_nothing(hz: u32, cpus: &[u32]) -> Self {
        let allowed = allowed_rate(hz, largest_rate());
        Self {
            samplers: Vec::new(),
            pace: Pace::of_this_host(allowed, cpus),
            sampling: Sampling {
                clock: Clock::Timer { hz: allowed },
                user_only: false,
                depth: DEPTH,
                ring_bytes: CPU_RING,
            },
            all_cpus: false,
            enabled: false,
            place: None,
            hotplug: Hotplug::default(),
            caveats: Vec::from_iter((allowed < hz).then(|| obstacle::slower(hz, allowed))),
        }
    }

    fn take_cpus(&mut self, cpus: &[u32]) {
        let subjects: Vec<Subject> = cpus.iter().map(|cpu| Subject::Cpu(*cpu)).collect();
        match self.add_by_best_clock(&subjects) {
            Ok(()) => {
                self.all_cpus = true;
                self.hotplug.begin(cpus.iter().copied());
            }
            Err(error) => self.caveats.push(obstacle::own_threads_only(&error)),
        }
    }

    /// Takes these threads, where it may not take all CPUs.
    pub(super) fn take_threads(&mut self, threads: &[u32]) {
        if self.all_cpus || self.place.is_none() {
            return;
        }
        self.sampling.ring_bytes = THREAD_RING;
        let sampled = &threads[..threads.len().min(MAX_THREADS)];
        let subjects: Vec<Subject> = sampled.iter().map(|tid| Subject::Thread(*tid)).collect();
        if let Err(in_the_kernel) = self.add_by_best_clock(&subjects) {
            self.sampling.user_only = true;
            let caveat = match self.add_by_best_clock(&subjects) {
                Ok(()) => obstacle::user_mode_only(&in_the_kernel),
                Err(error) => obstacle::not_even_threads(&error),
            };
            self.caveats.push(caveat);
        }
        if threads.len() > MAX_THREADS {
            let caveat = obstacle::many_threads(MAX_THREADS, threads.len());
            self.caveats.push(caveat);
        }
    }

    /// Adds all of them with the cycle counter, or all with a timer, or none. The error is then the
    /// timer's.
    fn add_by_best_clock(&mut self, subjects: &[Subject]) -> Result<(), PerfError> {
        let mut added = Ok(());
        for clock in self.pace.clocks() {
            self.sampling.clock = clock;
            if clock::is_running(&self.sampling) {
                added = self.add_all(subjects);
                if added.is_ok() {
                    break;
                }
            }
        }
        added
    }

    /// All of them, or none. Threads and CPUs that have just gone are no loss.
    fn add_all(&mut self, subjects: &[Subject]) -> Result<(), PerfError> {
        for subject in subjects {
            match self.add(*subject) {
                Err(error) if error.obstacle() != Obstacle::NotThere => {
                    self.samplers.clear();
                    return Err(error);
                }
                Ok(()) | Err(_) => {}
            }
        }
        Ok(())
    }

    fn add(&mut self, subject: Subject) -> Result<(), PerfError> {
        let sampler = Sampler::open(subject, &self.sampling)?;
        if self.enabled {
            // What has gone again gives no samples.
            let _ = sampler.enable();
        }
        self.samplers.push((subject, sampler));
        Ok(())
    }

    /// Begins to sample CPUs that have come, and remembers those that have gone. Call it when the
    /// rings have just been read: a CPU's event ends with the CPU, so a CPU that comes back needs a
    /// new one, and what is left in the old ring is lost.
    pub(super) fn follow_hotplug(&mut self) {
        // Where the list cannot be read nothing is known to have changed.
        if let Some(online) = self.all_cpus.then(cpu::online).and_then(Result::ok) {
            self.follow(&online);
        }
    }

    fn follow(&mut self, online: &[u32]) {
        for cpu in self.hotplug.follow(online) {
            let subject = Subject::Cpu(cpu);
            self.samplers.retain(|(known, _)| *known != subject);
            let error = self.add(subject).err();
            self.hotplug.taken(cpu, error.map(|error| error.to_string()));
        }
    }

    pub(super) fn enable(&mut self) {
        self.enabled = true;
        // A thread that has ended, or a CPU that is gone, has nothing to sample.
        for (_, sampler) in &self.samplers {
            let _ = sampler.enable();
        }
    }

    pub(super) fn disable(&mut self) {
        self.enabled = false;
        for (_, sampler) in &self.samplers {
            let _ = sampler.disable();
        }
    }

    /// Samples a second that were asked of the kernel; 0 without any.
    pub(super) fn hz(&self) -> u32 {
        if self.samplers.is_empty() { 0 } else { self.pace.hz }
    }

    /// How many of the test's threads are sampled at most, the first ones; `None` if all CPUs are.
    pub(super) fn threads(&self) -> Option<usize> {
        (!self.all_cpus).then_some(MAX_THREADS)
    }

    /// Method of sampling; `None` where nothing is sampled.
    pub(super) fn sampling(&self) -> Option<Sampling> {
        (!self.samplers.is_empty()).then_some(self.sampling)
    }

    /// How it samples, but at this rate, as far as the kernel allows it.
    pub(super) fn sampling_at(&self, hz: u32) -> Sampling {
        let rate = allowed_rate(hz, largest_rate());
        Sampling { clock: self.pace.at(self.sampling.clock, rate), ..self.sampling }
    }

    pub(super) fn how(&self, kernel_seen: bool) -> How {
        if self.samplers.is_empty() {
            return How::Accounted;
        }
        How::Sampled {
            clock: clock::named(self.sampling.clock),
            kernel_seen: kernel_seen && !self.sampling.user_only,
            all_cpus: self.all_cpus,
        }
    }

    /// What could not be sampled so far.
    pub(super) fn caveats(&self) -> Vec<Caveat> {
        let hotplug = self.hotplug.caveat();
        self.caveats.iter().cloned().chain(hotplug).collect()
    }
}

/// The kernel refuses a rate above its limit; it does not lower it by itself.
fn allowed_rate(asked: u32, largest: Option<u32>) -> u32 {
    largest.map_or(asked, |largest| asked.min(largest.max(1)))
}

#[cfg(test)]
mod tests {
    use linerate_core::profile::SampleClock;
    use linerate_core::record::CaveatKind;
    use linerate_sys::thread::thread_id;

    use linerate_testkit::{Need, skip};

    use super::*;

    /// Without CPUs, as where they may not be sampled.
    fn of_threads(threads: &[u32]) -> Source {
        let mut source = Source::of_nothing(499, &[]);
        source.place = Shares::default().take(1, 1).ok();
        source.take_threads(threads);
        source
    }

    #[test]
    fn cpus_are_sampled_by_cycles_where_all_have_them_and_else_by_a_timer() {
        let source = Source::open(499);
        let How::Sampled { clock, .. } = source.how(true) else {
            skip(Need::Perf, format_args!("{:?}", source.caveats()));
            return;
        };
        let cpus = cpu::online().unwrap();
        let cycles = source.pace.clocks().next().unwrap();
        let all_have_cycles = cycles != Clock::Timer { hz: 499 }
            && cpus.iter().all(|cpu| {
                let sampling = Sampling { clock: cycles, ..source.sampling };
                clock::is_running(&sampling) && Sampler::open(Subject::Cpu(*cpu), &sampling).is_ok()
            });
        if !all_have_cycles {
            assert_eq!(clock, SampleClock::CpuClock);
        }
        assert_eq!(source.hz(), allowed_rate(499, largest_rate()));
        println!("{clock:?}, {} samplers", source.samplers.len());
    }

    #[test]
    fn threads_are_sampled_where_cpus_may_not_be_up_to_a_number() {
        let own = thread_id();
        let source = of_threads(&vec![own; MAX_THREADS + 6]);
        if source.samplers.is_empty() {
            skip(Need::Perf, format_args!("{:?}", source.caveats()));
            return;
        }
        assert_eq!(source.samplers.len(), MAX_THREADS);
        assert!(matches!(source.how(true), How::Sampled { all_cpus: false, .. }));
        let caveats = source.caveats();
        let last = caveats.last().unwrap();
        assert_eq!(last.kind, CaveatKind::Partial);
        assert!(last.message.contains("64 of the test's 70"), "{last:?}");
    }

    #[test]
    fn threads_that_have_ended_are_left_out() {
        let ended = std::thread::spawn(thread_id).join().unwrap();
        let source = of_threads(&[ended, thread_id()]);
        match source.samplers.len() {
            0 => skip(Need::Perf, format_args!("{:?}", source.caveats())),
            samplers => assert_eq!(samplers, 1),
        }
    }

    #[test]
    fn a_cpu_that_comes_or_goes_is_a_partial_result() {
        let mut source = Source::open(499);
        if !source.all_cpus {
            skip(Need::Perf, format_args!("{:?}", source.caveats()));
            return;
        }
        let cpus = cpu::online().unwrap();
        source.follow(&cpus);
        assert!(source.hotplug.caveat().is_none());
        // The kernel has no such CPU: it comes, and cannot be sampled.
        let with_another: Vec<u32> = cpus.iter().copied().chain([65_000]).collect();
        source.follow(&with_another);
        assert_eq!(source.samplers.len(), cpus.len());
        // The first goes, and comes back: its event is replaced.
        source.follow(&cpus[1..]);
        source.follow(&cpus);
        assert_eq!(source.samplers.len(), cpus.len());
        let words = source.caveats().pop().unwrap().message;
        assert!(words.contains("CPU 65000 went offline"), "{words}");
        let back = format!("CPU {} came online: sampled", cpus[0]);
        assert!(words.contains(&back), "{words}");
    }

    #[test]
    fn a_rate_that_the_kernel_does_not_allow_is_lowered() {
        assert_eq!(allowed_rate(499, Some(100)), 100);
        assert_eq!(allowed_rate(499, Some(0)), 1);
        assert_eq!(allowed_rate(499, Some(100_000)), 499);
        assert_eq!(allowed_rate(499, None), 499);
        let caveat = obstacle::slower(499, 100);
        assert!(caveat.message.contains("499") && caveat.message.contains("allows 100"));
    }
}
