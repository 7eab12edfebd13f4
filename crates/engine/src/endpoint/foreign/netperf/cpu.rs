//! What the CPUs do while a test runs, in the shares that netperf's clients ask for.

use linerate_core::foreign::netperf::CpuShares;
use linerate_sys::idle;
use linerate_sys::proc::stat::{CpuStat, CpuStatReader};

/// Looks at the host twice.
pub(super) struct CpuWatch {
    reader: CpuStatReader,
    begin: CpuStat,
}

impl CpuWatch {
    /// The first look; `None` where the kernel does not say.
    pub(super) fn begin() -> Option<Self> {
        let mut reader = CpuStatReader::open().ok()?;
        let begin = read(&mut reader)?;
        Some(Self { reader, begin })
    }

    /// What has passed since, percent of the whole machine.
    pub(super) fn end(mut self) -> Option<CpuShares> {
        let end = read(&mut self.reader)?;
        let passed = end.total.since(&self.begin.total);
        let percent = |ticks: u64| passed.share(ticks).map_or(0.0, |share| share * 100.0) as f32;
        (passed.total() > 0).then(|| CpuShares {
            busy: percent(passed.busy()),
            user: percent(passed.user + passed.nice),
            system: percent(passed.system),
            iowait: percent(passed.iowait),
            irq: percent(passed.irq),
            softirq: percent(passed.softirq),
            peak: end
                .busiest_since(&self.begin)
                .map(|(cpu, share)| (cpu, (share * 100.0) as f32)),
        })
    }
}

fn read(reader: &mut CpuStatReader) -> Option<CpuStat> {
    let mut stat = CpuStat::default();
    reader.read(&mut stat).ok()?;
    // A lab keeps the CPUs awake; nobody lacks that time.
    stat.count_as_idle(&idle::spun());
    Some(stat)
}
