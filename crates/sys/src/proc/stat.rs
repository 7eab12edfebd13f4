//! `/proc/stat`: where each CPU's time went.

use std::time::Duration;

use super::{Malformed, ProcError, SampledFile, field};

/// Time of one CPU, or of all, by kind, in ticks of [`user_hz`] since boot.
///
/// The kernel counts `guest` in `user` as well; the sums here count it once.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CpuTimes {
    /// User mode.
    pub user: u64,
    /// User mode at a positive nice value.
    pub nice: u64,
    /// Kernel mode, without interrupts.
    pub system: u64,
    /// Idle.
    pub idle: u64,
    /// Idle with input or output outstanding. May go backwards (proc(5)).
    pub iowait: u64,
    /// Hardware interrupts.
    pub irq: u64,
    /// Soft interrupts: most of the network receive path.
    pub softirq: u64,
    /// Time that the hypervisor gave to somebody else.
    pub steal: u64,
    /// Running a guest; also counted in `user`.
    pub guest: u64,
}

impl CpuTimes {
    /// All ticks.
    pub fn total(&self) -> u64 {
        self.busy() + self.idle + self.iowait
    }

    /// Ticks in which the CPU had nothing left to give: all but idle, stolen time included.
    pub fn busy(&self) -> u64 {
        self.user + self.nice + self.system + self.irq + self.softirq + self.steal
    }

    /// The time from `earlier` to this reading. A kind that went backwards counts as zero.
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            user: self.user.saturating_sub(earlier.user),
            nice: self.nice.saturating_sub(earlier.nice),
            system: self.system.saturating_sub(earlier.system),
            idle: self.idle.saturating_sub(earlier.idle),
            iowait: self.iowait.saturating_sub(earlier.iowait),
            irq: self.irq.saturating_sub(earlier.irq),
            softirq: self.softirq.saturating_sub(earlier.softirq),
            steal: self.steal.saturating_sub(earlier.steal),
            guest: self.guest.saturating_sub(earlier.guest),
        }
    }

    /// `ticks` as a fraction (0 to 1) of [`total`](Self::total); `None` where no tick has passed.
    pub fn share(&self, ticks: u64) -> Option<f64> {
        let total = self.total();
        (total > 0).then(|| ticks as f64 / total as f64)
    }
}

/// One reading of `/proc/stat`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CpuStat {
    /// The sum over all CPUs.
    pub total: CpuTimes,
    /// Each online CPU's number and times, in the order of their numbers.
    pub cpus: Vec<(u32, CpuTimes)>,
}

impl CpuStat {
    /// Counts the time that idle spinners ([`crate::idle`]) took as idle. The kernel counts them as
    /// nice.
    pub fn count_as_idle(&mut self, spun: &[(u32, Duration)]) {
        for (cpu, time) in spun {
            let ticks = duration_to_ticks(*time);
            let own = self.cpus.iter_mut().find(|(number, _)| number == cpu);
            for times in own.map(|(_, times)| times).into_iter().chain([&mut self.total]) {
                let moved = ticks.min(times.nice);
                times.nice -= moved;
                times.idle += moved;
            }
        }
    }

    /// The CPU with the largest busy fraction (0 to 1) since `earlier`. CPUs that are not in both
    /// readings, or on which no tick has passed, are left out.
    pub fn busiest_since(&self, earlier: &Self) -> Option<(u32, f64)> {
        self.most_since(earlier, CpuTimes::busy)
    }

    /// As [`busiest_since`](Self::busiest_since), of one kind of ticks.
    pub fn most_since(&self, earlier: &Self, ticks: fn(&CpuTimes) -> u64) -> Option<(u32, f64)> {
        self.cpus
            .iter()
            .filter_map(|(cpu, times)| {
                let (_, before) = earlier.cpus.iter().find(|(other, _)| other == cpu)?;
                let passed = times.since(before);
                Some((*cpu, passed.share(ticks(&passed))?))
            })
            .max_by(|(_, a), (_, b)| a.total_cmp(b))
    }
}

/// Reads `/proc/stat` many times a second: the file stays open, nothing is allocated once the
/// buffers have grown.
#[derive(Debug)]
pub struct CpuStatReader {
    file: SampledFile,
}

impl CpuStatReader {
    /// Opens `/proc/stat`.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub fn open() -> Result<Self, ProcError> {
        Ok(Self { file: SampledFile::open("/proc/stat")? })
    }

    /// Reads into `stat`, whose memory is reused.
    ///
    /// # Errors
    /// The file cannot be read, or has an unknown form; `stat` then holds part of a reading.
    pub fn read(&mut self, stat: &mut CpuStat) -> Result<(), ProcError> {
        self.file.read(|text| parse(text, stat))
    }
}

/// Ticks of [`CpuTimes`] in a second (USER_HZ; 100 on all common builds, whatever the kernel's own
/// HZ).
pub fn user_hz() -> u64 {
    rustix::param::clock_ticks_per_second()
}

/// The time that `ticks` of [`user_hz`] last.
pub fn ticks_to_duration(ticks: u64) -> Duration {
    Duration::from_secs(ticks) / u32::try_from(user_hz()).expect("USER_HZ is at most 1024")
}

fn duration_to_ticks(time: Duration) -> u64 {
    let ticks = time.as_nanos() * u128::from(user_hz()) / 1_000_000_000;
    u64::try_from(ticks).unwrap_or(u64::MAX)
}

/// Parses `/proc/stat` into `stat`; lines other than `cpu…` are passed over.
///
/// # Errors
/// A `cpu` line has fewer than the four kinds that every kernel has, or something that is not a
/// number; or the line of the sum is missing.
pub fn parse(text: &str, stat: &mut CpuStat) -> Result<(), Malformed> {
    stat.cpus.clear();
    let mut sum = None;
    for line in text.lines().take_while(|line| line.starts_with("cpu")) {
        let (name, kinds) =
            line.split_once(' ').ok_or_else(|| Malformed::new("a cpu line", line))?;
        match &name["cpu".len()..] {
            "" => sum = Some(parse_kinds(kinds)?),
            number => stat.cpus.push((field(Some(number), "a CPU number")?, parse_kinds(kinds)?)),
        }
    }
    stat.total = sum.ok_or_else(|| Malformed::new("a line `cpu`", text))?;
    Ok(())
}

fn parse_kinds(text: &str) -> Result<CpuTimes, Malformed> {
    // Since Linux 2.6.33 there are ten; what an older kernel does not count is zero.
    let mut kinds = [0; 9];
    let mut found = 0;
    for (kind, word) in kinds.iter_mut().zip(text.split_ascii_whitespace()) {
        *kind = field(Some(word), "a number of ticks")?;
        found += 1;
    }
    if found < 4 {
        return Err(Malformed::new("at least four kinds of CPU time", text));
    }
    let [user, nice, system, idle, iowait, irq, softirq, steal, guest] = kinds;
    Ok(CpuTimes { user, nice, system, idle, iowait, irq, softirq, steal, guest })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proc::tests::parse_every_prefix;

    const SAMPLE: &str = "cpu  8130 0 3652 227125 1556 0 43 16 7 0\n\
        cpu0 3469 0 1524 115187 72 0 11 7 0 0\n\
        cpu3 4660 0 2128 111937 1484 0 31 9 7 0\n\
        intr 189877 0 0\nctxt 354696\nbtime 1795252351\n";

    #[test]
    fn spinners_count_as_idle_and_other_niced_work_does_not() {
        let mut stat = parsed("cpu 0 70 0 10\ncpu0 0 50 0 5\ncpu3 0 20 0 5\n").unwrap();
        let ticks = |n| ticks_to_duration(n);
        stat.count_as_idle(&[(0, ticks(30)), (3, ticks(99)), (7, ticks(1))]);
        assert_eq!((stat.cpus[0].1.nice, stat.cpus[0].1.idle), (20, 35));
        assert_eq!((stat.cpus[1].1.nice, stat.cpus[1].1.idle), (0, 25));
        assert_eq!(stat.total.total(), 80);
    }

    fn parsed(text: &str) -> Result<CpuStat, Malformed> {
        let mut stat = CpuStat::default();
        parse(text, &mut stat).map(|()| stat)
    }

    #[test]
    fn parses_sum_and_each_online_cpu() {
        let stat = parsed(SAMPLE).unwrap();
        assert_eq!(stat.total.user, 8130);
        assert_eq!(stat.total.guest, 7);
        assert_eq!(stat.cpus.iter().map(|(cpu, _)| *cpu).collect::<Vec<_>>(), [0, 3]);
        assert_eq!(stat.cpus[1].1.softirq, 31);
    }

    #[test]
    fn cpu_lines_of_older_kernels_have_fewer_fields() {
        assert_eq!(parsed("cpu  1 2 3 4\n").unwrap().total.steal, 0);
    }

    #[test]
    fn odd_and_truncated_texts_are_errors_and_never_panics() {
        for text in
            ["", "intr 1\n", "cpu  1 2 3\n", "cpu  1 2 x 4\n", "cpuX 1 2 3 4\n", "cpu0 1 2 3 4\n"]
        {
            assert!(parsed(text).is_err(), "{text:?}");
        }
        parse_every_prefix(SAMPLE, parsed);
    }

    #[test]
    fn guest_time_is_counted_once() {
        let times = CpuTimes { user: 10, guest: 10, idle: 30, ..CpuTimes::default() };
        assert_eq!(times.share(times.busy()), Some(0.25));
    }

    #[test]
    fn busiest_cpu_is_that_of_the_interval_and_iowait_may_go_backwards() {
        let before = parsed("cpu  1 0 0 1\ncpu0 900 0 0 100 9\ncpu1 0 0 0 1000 0\n").unwrap();
        let after =
            parsed("cpu  1 0 0 1\ncpu0 910 0 0 190 8\ncpu1 75 0 0 1025 0\ncpu2 9 0 0 0\n").unwrap();
        assert_eq!(after.busiest_since(&before), Some((1, 0.75)));
        assert_eq!(after.busiest_since(&after), None);
    }

    #[test]
    fn the_running_kernel_is_understood_and_time_moves_on() {
        let mut reader = CpuStatReader::open().unwrap();
        let (mut first, mut second) = (CpuStat::default(), CpuStat::default());
        reader.read(&mut first).unwrap();
        while second.total.total() <= first.total.total() {
            reader.read(&mut second).unwrap();
        }
        assert!(!first.cpus.is_empty());
        assert!(user_hz() > 0 && ticks_to_duration(user_hz()) == Duration::from_secs(1));
    }
}
