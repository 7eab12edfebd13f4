//! What may be sampled on this host: all CPUs, else the test's own threads, else only their user
//! mode, else nothing. What triggers the samples, CPUs that come and go, and the caveats of what
//! could not be sampled.

use std::collections::{BTreeMap, BTreeSet};
use std::hint::black_box;
use std::sync::LazyLock;
use std::time::Duration;

use linerate_core::profile::{How, SampleClock};
use linerate_core::record::{Caveat, CaveatKind, CaveatRemedy};
use linerate_sys::perf::{
    Clock, Obstacle, PerfError, Sampler, Sampling, Subject, largest_rate, paranoid,
};
use linerate_sys::proc::cpu::{self, CpuInfo, highest_khz};
use linerate_sys::thread;

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
            None => source.caveats.push(too_many(MAX_PROFILES)),
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
            caveats: Vec::from_iter((allowed < hz).then(|| slower(hz, allowed))),
        }
    }

    fn take_cpus(&mut self, cpus: &[u32]) {
        let subjects: Vec<Subject> = cpus.iter().map(|cpu| Subject::Cpu(*cpu)).collect();
        match self.add_by_best_clock(&subjects) {
            Ok(()) => {
                self.all_cpus = true;
                self.hotplug.begin(cpus.iter().copied());
            }
            Err(error) => self.caveats.push(own_threads_only(&error)),
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
                Ok(()) => user_mode_only(&in_the_kernel),
                Err(error) => not_even_threads(&error),
            };
            self.caveats.push(caveat);
        }
        if threads.len() > MAX_THREADS {
            let caveat = many_threads(MAX_THREADS, threads.len());
            self.caveats.push(caveat);
        }
    }

    /// Adds all of them with the cycle counter, or all with a timer, or none. The error is then the
    /// timer's.
    fn add_by_best_clock(&mut self, subjects: &[Subject]) -> Result<(), PerfError> {
        let mut added = Ok(());
        for clock in self.pace.clocks() {
            self.sampling.clock = clock;
            if is_running(&self.sampling) {
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
            clock: named(self.sampling.clock),
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

// The trigger of the samples: the CPU's cycle counter where there is one, else a timer.

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

// CPUs that come and go while they are sampled.

/// Which CPUs are sampled, and what became of others.
#[derive(Debug, Default)]
pub(super) struct Hotplug {
    present: BTreeSet<u32>,
    /// What has happened to each, last.
    changed: BTreeMap<u32, String>,
}

impl Hotplug {
    /// The CPUs that there were when it began.
    pub(super) fn begin(&mut self, cpus: impl Iterator<Item = u32>) {
        self.present = cpus.collect();
    }

    /// Compares them with the CPUs that are online now. The answer is those that have come; the
    /// caller reports on each with [`taken`](Self::taken).
    pub(super) fn follow(&mut self, online: &[u32]) -> Vec<u32> {
        let online: BTreeSet<u32> = online.iter().copied().collect();
        for cpu in self.present.difference(&online) {
            let words = format!("CPU {cpu} went offline: sampled until then");
            self.changed.insert(*cpu, words);
        }
        let came = online.difference(&self.present).copied().collect();
        self.present = online;
        came
    }

    /// Notes that a CPU has come and is sampled, or the error for which it is not.
    pub(super) fn taken(&mut self, cpu: u32, error: Option<String>) {
        let words = match error {
            None => format!("CPU {cpu} came online: sampled from then on"),
            Some(error) => format!("CPU {cpu} came online and is not sampled: {error}"),
        };
        self.changed.insert(cpu, words);
    }

    /// What the profile lacks because of them.
    pub(super) fn caveat(&self) -> Option<Caveat> {
        let words: Vec<&str> = self.changed.values().map(String::as_str).collect();
        let (named, more) = words.split_at(words.len().min(NAMED));
        if named.is_empty() {
            return None;
        }
        let more = match more.len() {
            0 => String::new(),
            more => format!("; and {more} more CPUs"),
        };
        Some(Caveat::new(
            CaveatKind::Partial,
            format!("{}{more}", named.join("; ")),
            "profile it while no CPUs come or go",
        ))
    }
}

/// CPUs that a caveat names.
const NAMED: usize = 8;

// Caveats of what could not be sampled: the reason, and what would help.

pub(super) fn too_many(most: u64) -> Caveat {
    not_readable(
        format!("no samples: this process takes {most} profiles already"),
        "profile when nobody else does",
    )
}

pub(super) fn slower(asked: u32, allowed: u32) -> Caveat {
    Caveat::new(
        CaveatKind::SettingNotTaken,
        format!(
            "{asked} samples a second were asked for, this kernel allows {allowed} at the moment \
             (kernel.perf_event_max_sample_rate)"
        ),
        "raise it by sysctl: the kernel lowers it when sampling interrupts take long",
    )
}

pub(super) fn own_threads_only(error: &PerfError) -> Caveat {
    let what = "only the test's own threads could be sampled, not soft interrupts elsewhere";
    refused(what, error, "0")
}

pub(super) fn user_mode_only(error: &PerfError) -> Caveat {
    let what = "only user mode could be sampled; the kernel's part is its account of CPU time, \
                without layers";
    refused(what, error, "1")
}

pub(super) fn not_even_threads(error: &PerfError) -> Caveat {
    let what = "no samples, only the kernel's account of CPU time";
    refused(what, error, "2 or less")
}

/// `allowing` is the value of `kernel.perf_event_paranoid` that would have allowed it.
fn refused(what: &str, error: &PerfError, allowing: &str) -> Caveat {
    let message = format!("{what}: {error}{}", setting(error));
    not_readable(message, remedy(error, allowing))
}

pub(super) fn many_threads(sampled: usize, threads: usize) -> Caveat {
    Caveat::new(
        CaveatKind::Partial,
        format!("only {sampled} of the test's {threads} threads were sampled"),
        "run as root, or with fewer streams",
    )
}

fn not_readable(message: String, remedy: impl Into<CaveatRemedy>) -> Caveat {
    Caveat::new(CaveatKind::NotReadable, message, remedy)
}

/// The value of `kernel.perf_event_paranoid`, where that is the obstacle.
fn setting(error: &PerfError) -> String {
    match paranoid() {
        Some(value) if error.obstacle() == Obstacle::Paranoid => {
            format!(" (kernel.perf_event_paranoid is {value})")
        }
        _ => String::new(),
    }
}

/// `allowing` is the value that the setting would need.
fn remedy(error: &PerfError, allowing: &str) -> String {
    match error.obstacle() {
        Obstacle::Paranoid => {
            return format!(
                "run as root or with CAP_PERFMON, or set kernel.perf_event_paranoid to {allowing}"
            );
        }
        Obstacle::Filtered => {
            "allow perf_event_open in the filter of system calls (a container's seccomp profile); \
             a kernel under lockdown \
             has no perf events"
        }
        Obstacle::LockedMemory => {
            "raise the memory that may be locked (ulimit -l, kernel.perf_event_mlock_kb), or run \
             as root"
        }
        Obstacle::Memory => "leave memory for the samples: 1 MiB for each CPU",
        Obstacle::Descriptors => "raise the number of open files (ulimit -n, fs.file-max)",
        Obstacle::NotThere => "run it again when no CPUs or threads come and go",
        Obstacle::Unsupported => "use a kernel with perf events (CONFIG_PERF_EVENTS)",
        Obstacle::Other => "the kernel's log may say why",
    }
    .to_owned()
}

#[cfg(test)]
mod tests {
    use std::io;

    use linerate_core::profile::SampleClock;
    use linerate_core::record::CaveatKind;
    use linerate_sys::errno;
    use linerate_sys::perf::Subject;
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
                super::is_running(&sampling) && Sampler::open(Subject::Cpu(*cpu), &sampling).is_ok()
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
        let caveat = super::slower(499, 100);
        assert!(caveat.message.contains("499") && caveat.message.contains("allows 100"));
    }

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

    fn of_two() -> Hotplug {
        let mut hotplug = Hotplug::default();
        hotplug.begin(0..2);
        hotplug
    }

    #[test]
    fn an_unchanged_state_is_not_reported() {
        let mut hotplug = of_two();
        assert!(hotplug.follow(&[0, 1]).is_empty());
        assert_eq!(hotplug.caveat(), None);
    }

    #[test]
    fn added_and_removed_entries_are_marked() {
        let mut hotplug = of_two();
        assert_eq!(hotplug.follow(&[0, 2, 3]), [2, 3]);
        hotplug.taken(2, None);
        hotplug.taken(3, Some("no memory".to_owned()));
        assert!(hotplug.follow(&[0, 2, 3]).is_empty(), "each comes once");
        let caveat = hotplug.caveat().unwrap();
        assert_eq!(caveat.kind, CaveatKind::Partial);
        assert_eq!(
            caveat.message,
            "CPU 1 went offline: sampled until then; CPU 2 came online: sampled from then on; \
             CPU 3 came online and is not sampled: no memory"
        );
        assert_eq!(hotplug.follow(&[0, 1, 2, 3]), [1], "it is sampled anew");
    }

    #[test]
    fn a_host_whose_cpus_flap_has_one_caveat_of_bounded_length() {
        let mut hotplug = Hotplug::default();
        for cpus in [0..4000_u32, 0..0, 0..4000, 0..0] {
            hotplug.follow(&cpus.collect::<Vec<_>>());
        }
        let words = hotplug.caveat().unwrap().message;
        assert!(words.len() < 500 && words.contains("and 3992 more CPUs"), "{words}");
    }

    #[test]
    fn only_what_the_setting_forbids_is_mended_by_the_setting() {
        let subject = Subject::Thread(7);
        let answer = io::Error::from_raw_os_error;
        let forbidden = PerfError::Open { subject, source: answer(errno::EACCES) };
        for (caveat, value) in [
            (own_threads_only(&forbidden), "paranoid to 0"),
            (user_mode_only(&forbidden), "paranoid to 1"),
            (not_even_threads(&forbidden), "paranoid to 2"),
        ] {
            assert!(caveat.remedy.to_string().contains(value), "{caveat:?}");
        }
        let others = [
            (PerfError::Map { subject, source: answer(errno::EPERM) }, "ulimit -l"),
            (PerfError::Open { subject, source: answer(errno::EMFILE) }, "ulimit -n"),
            (PerfError::Open { subject, source: answer(errno::EPERM) }, "seccomp"),
            (PerfError::Map { subject, source: answer(errno::ENOMEM) }, "memory"),
            (PerfError::Open { subject, source: answer(errno::ENOENT) }, "CONFIG_PERF_EVENTS"),
        ];
        for (error, word) in others {
            let caveat = not_even_threads(&error);
            assert!(caveat.remedy.to_string().contains(word), "{caveat:?}");
            assert!(!format!("{caveat:?}").contains("paranoid"), "{caveat:?}");
        }
    }
}
