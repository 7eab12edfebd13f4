//! CPU time and other costs of a test on this host, read at the beginning and at the end of the
//! measured time.

use std::collections::BTreeMap;
use std::time::Duration;

use linerate_core::record::{CpuQuota, CpuSeconds, EndReport};
use linerate_sys::idle;
use linerate_sys::proc::cgroup::{CpuGroup, CpuLimit};
use linerate_sys::proc::counters;
use linerate_sys::proc::counters::ProtocolCounters;
use linerate_sys::proc::cpu::{ThermalThrottles, thermal_throttles};
use linerate_sys::proc::softnet::{self, SoftnetCpu};
use linerate_sys::proc::stat::{CpuStat, CpuStatReader, CpuTimes, ticks_to_duration};
use linerate_sys::thread::{CpuUsage, SchedTimes, SchedTimesReader};

use super::flow::Counters;
use crate::lab_process::mind_lab_process;

/// The counters that a record keeps, out of some four hundred.
const COUNTERS: [&str; 47] = [
    "TcpRetransSegs",
    "TcpInErrs",
    "TcpInCsumErrors",
    "TcpOutRsts",
    "TcpEstabResets",
    "TcpAttemptFails",
    "TcpExtListenOverflows",
    "TcpExtListenDrops",
    "TcpExtTCPLostRetransmit",
    "TcpExtTCPFastRetrans",
    "TcpExtTCPSackRecovery",
    "TcpExtTCPRenoRecovery",
    "TcpExtTCPSlowStartRetrans",
    "TcpExtTCPTimeouts",
    "TcpExtTCPLossProbes",
    "TcpExtTCPSynRetrans",
    "TcpExtTCPBacklogDrop",
    "TcpExtTCPRcvQDrop",
    "TcpExtTCPRcvCollapsed",
    "TcpExtPruneCalled",
    "TcpExtTCPOFODrop",
    "TcpExtTCPZeroWindowDrop",
    "TcpExtTCPFromZeroWindowAdv",
    "TcpExtTCPToZeroWindowAdv",
    "TcpExtTCPDSACKRecv",
    "TcpExtTCPMemoryPressures",
    "TcpExtTCPAutoCorking",
    "TcpExtTCPFastOpenActive",
    "TcpExtTCPFastOpenPassive",
    "UdpInErrors",
    "UdpRcvbufErrors",
    "UdpSndbufErrors",
    "UdpInCsumErrors",
    "UdpNoPorts",
    "IpInDiscards",
    "IpOutDiscards",
    "IpFragFails",
    "IpReasmFails",
    // Packets as TCP and UDP hand them to IP and get them from it: large ones with segmentation and
    // receive offload.
    "IpOutRequests",
    "IpInDelivers",
    "IpFragCreates",
    "IpReasmReqds",
    "IpReasmOKs",
    "Ip6OutRequests",
    "Ip6InDelivers",
    "Ip6FragCreates",
    "Ip6ReasmReqds",
];

/// For shorter measured times a thread's CPU time over its whole life is more accurate than the
/// difference of two readings.
const SHORT: Duration = Duration::from_millis(100);

/// Readings of a worker thread, made by the sampler's thread.
#[derive(Default)]
struct ThreadMeter {
    reader: Option<SchedTimesReader>,
    begin: SchedTimes,
    end: SchedTimes,
    paced_begin_ns: u64,
    paced_end_ns: u64,
}

/// Reads the host's and the threads' figures twice and takes the difference.
pub(crate) struct Meter {
    stat: Option<CpuStatReader>,
    /// The control group of the sampler's thread, which is also that of the workers.
    group: Option<CpuGroup>,
    begin: HostReading,
    end: HostReading,
    threads: Vec<ThreadMeter>,
}

#[derive(Default)]
struct HostReading {
    at_ns: u64,
    cpu: CpuStat,
    softnet: Option<Vec<SoftnetCpu>>,
    receive_softirqs: Option<u64>,
    limit: Option<CpuLimit>,
    counters: Option<ProtocolCounters>,
    /// By CPU; `None` if a CPU does not count them.
    throttles: Option<Vec<(u32, ThermalThrottles)>>,
}

impl Meter {
    pub(crate) fn new(workers: usize) -> Self {
        mind_lab_process();
        Self {
            stat: CpuStatReader::open().ok(),
            group: CpuGroup::of_this_thread().ok().flatten(),
            begin: HostReading::default(),
            end: HostReading::default(),
            threads: (0..workers).map(|_| ThreadMeter::default()).collect(),
        }
    }

    /// Reads everything at the beginning of the measured time.
    pub(crate) fn begin(&mut self, now_ns: u64, workers: &[&Counters]) {
        self.begin = self.read_host(now_ns);
        for (thread, counters) in self.threads.iter_mut().zip(workers) {
            thread.begin = thread.read(counters);
            thread.paced_begin_ns = counters.paced_ns();
        }
    }

    /// Reads everything at the end of the measured time.
    pub(crate) fn end(&mut self, now_ns: u64, workers: &[&Counters]) {
        self.end = self.read_host(now_ns);
        for (thread, counters) in self.threads.iter_mut().zip(workers) {
            // A thread that has ended can no longer be read: its last reading stays.
            thread.end = thread.read(counters);
            thread.paced_end_ns = counters.paced_ns();
        }
    }

    /// Reads the threads during the measured time, for those that end before it does.
    pub(crate) fn touch(&mut self, workers: &[&Counters]) {
        for (thread, counters) in self.threads.iter_mut().zip(workers) {
            thread.end = thread.read(counters);
        }
    }

    /// Share of one CPU that each worker had, percent.
    pub(crate) fn thread_percents(&self) -> Vec<f64> {
        let wall = self.wall();
        self.threads.iter().map(|thread| percent(thread.passed().on_cpu, wall)).collect()
    }

    /// CPU time of each worker; [`Meter::report`] has the sum.
    pub(crate) fn each_thread(&self, whole_life: &[CpuUsage]) -> Vec<CpuSeconds> {
        let wall = self.wall();
        let each = self.threads.iter().zip(whole_life);
        each.map(|(thread, usage)| {
            let on_cpu =
                if wall < SHORT { usage.user + usage.system } else { thread.passed().on_cpu };
            split(on_cpu, std::slice::from_ref(usage))
        })
        .collect()
    }

    /// Time for which the host's CPUs were busy with any program, without stolen time, seconds;
    /// `None` if the kernel does not tell.
    pub(crate) fn busy_seconds(&self) -> Option<f64> {
        let passed = self.end.cpu.total.since(&self.begin.cpu.total);
        (passed.total() > 0).then(|| ticks_to_duration(passed.busy() - passed.steal).as_secs_f64())
    }

    /// Share of the time that each CPU was idle, percent.
    pub(crate) fn idle_percents(&self) -> Vec<(u32, f64)> {
        let before = |cpu: u32| self.begin.cpu.cpus.iter().find(|(other, _)| *other == cpu);
        let idle = |(cpu, times): &(u32, CpuTimes)| {
            let passed = times.since(&before(*cpu)?.1);
            let share = passed.share(passed.idle + passed.iowait)?;
            Some((*cpu, share * 100.0))
        };
        self.end.cpu.cpus.iter().filter_map(idle).collect()
    }

    fn wall(&self) -> Duration {
        Duration::from_nanos(self.end.at_ns.saturating_sub(self.begin.at_ns))
    }

    /// The costs from `begin` to `end`. `whole_life` is each worker's CPU time as read by itself:
    /// it tells user from system time, which the kernel does not tell exactly of another thread.
    pub(crate) fn report(&self, whole_life: &[CpuUsage]) -> EndReport {
        let wall = self.wall();
        let passed: Vec<SchedTimes> = self.threads.iter().map(ThreadMeter::passed).collect();
        let sampled: Duration = passed.iter().map(|times| times.on_cpu).sum();
        let on_cpu = if wall < SHORT {
            // The kernel updates the figures of another thread only at its tick.
            whole_life.iter().map(|usage| usage.user + usage.system).sum()
        } else {
            sampled
        };
        let mut report =
            EndReport { cpu_seconds: split(on_cpu, whole_life), ..EndReport::default() };
        if let Some(count) = std::num::NonZero::new(passed.len() as u32)
            && !wall.is_zero()
        {
            let delay: Duration = passed.iter().map(|times| times.run_delay).sum();
            let paced: Duration = self
                .threads
                .iter()
                .map(|t| Duration::from_nanos(t.paced_end_ns.saturating_sub(t.paced_begin_ns)))
                .sum();
            let blocked = (wall * count.get()).saturating_sub(on_cpu + delay + paced);
            report.blocked_us = Some(micros(blocked / count.get()));
            report.run_delay_us = Some(micros(delay / count.get()));
            report.paced_us = Some(micros(paced / count.get()));
            report.busiest_thread_percent =
                passed.iter().map(|times| percent(times.on_cpu, wall)).max_by(f64::total_cmp);
        }
        self.report_host(&mut report);
        report
    }

    fn report_host(&self, report: &mut EndReport) {
        let passed = self.end.cpu.total.since(&self.begin.cpu.total);
        report.cpus = self.end.cpu.cpus.len() as u32;
        report.host_cpu_percent = passed.share(passed.busy()).map(|share| share * 100.0);
        report.steal_percent = passed.share(passed.steal).map(|share| share * 100.0);
        let most = |ticks| self.end.cpu.most_since(&self.begin.cpu, ticks);
        let core_percent = |ticks| most(ticks).map(|(_, share)| share * 100.0);
        report.busiest_core_percent = core_percent(CpuTimes::busy);
        report.softirq_core_percent = core_percent(|times| times.softirq);
        if passed.total() > 0 {
            report.softirq_seconds = Some(ticks_to_duration(passed.softirq).as_secs_f64());
        }
        if let (Some(begin), Some(end)) = (&self.begin.softnet, &self.end.softnet) {
            let passed = end.iter().filter_map(|cpu| {
                let earlier = begin.iter().find(|other| other.cpu == cpu.cpu)?;
                Some(cpu.since(earlier))
            });
            let (dropped, squeezed) = passed.fold((0, 0), |(dropped, squeezed), cpu| {
                (dropped + u64::from(cpu.dropped), squeezed + u64::from(cpu.time_squeeze))
            });
            report.softnet_dropped = Some(dropped);
            report.softnet_squeezed = Some(squeezed);
        }
        let softirqs = [&self.end, &self.begin].map(|reading| reading.receive_softirqs);
        if let [Some(end), Some(begin)] = softirqs {
            report.receive_softirqs = Some(end.saturating_sub(begin));
        }
        if let (Some(begin), Some(end)) = (&self.begin.counters, &self.end.counters) {
            report.counters = changed(begin, end);
        }
        if let (Some(begin), Some(end)) = (&self.begin.throttles, &self.end.throttles) {
            report.thermal_throttles = Some(throttled(begin, end));
        }
        if let (Some(begin), Some(end)) = (&self.begin.limit, &self.end.limit) {
            report.cpu_quota = quota(begin, end);
        }
    }

    fn read_host(&mut self, now_ns: u64) -> HostReading {
        let mut cpu = CpuStat::default();
        if let Some(stat) = &mut self.stat
            && stat.read(&mut cpu).is_err()
        {
            cpu = CpuStat::default();
        }
        // A lab keeps the CPUs awake with idle spinners, which give way to everything else.
        cpu.count_as_idle(&idle::spun());
        HostReading {
            at_ns: now_ns,
            throttles: throttles(&cpu),
            cpu,
            softnet: softnet::read().ok(),
            receive_softirqs: counters::receive_softirqs().ok(),
            limit: self.group.as_ref().and_then(|group| group.limit().ok()),
            counters: ProtocolCounters::read().ok(),
        }
    }
}

impl ThreadMeter {
    fn passed(&self) -> SchedTimes {
        self.end.since(&self.begin)
    }

    fn read(&mut self, counters: &Counters) -> SchedTimes {
        if self.reader.is_none()
            && let Ok(tid) = u32::try_from(counters.tid())
            && tid > 0
        {
            self.reader = SchedTimesReader::open(tid).ok();
        }
        self.reader.as_mut().and_then(|reader| reader.read().ok()).unwrap_or(self.end)
    }
}

/// Thermal throttles by CPU; `None` if a CPU has no count.
fn throttles(cpu: &CpuStat) -> Option<Vec<(u32, ThermalThrottles)>> {
    let numbers = cpu.cpus.iter().map(|(number, _)| *number);
    let counted: Option<Vec<_>> =
        numbers.map(|number| Some((number, *thermal_throttles(number).value()?))).collect();
    counted.filter(|counted| !counted.is_empty())
}

/// Throttles of all cores, and of the package: each of its CPUs shows the package's count.
fn throttled(begin: &[(u32, ThermalThrottles)], end: &[(u32, ThermalThrottles)]) -> u64 {
    let grown = |(cpu, end): &(u32, ThermalThrottles)| {
        let (_, begin) = begin.iter().find(|(other, _)| other == cpu)?;
        let core = end.core.saturating_sub(begin.core);
        Some((core, end.package.saturating_sub(begin.package)))
    };
    let grown = end.iter().filter_map(grown);
    let (cores, package) =
        grown.fold((0, 0), |(cores, most), (core, package)| (cores + core, most.max(package)));
    cores + package
}

/// `None` without a quota at the end.
fn quota(begin: &CpuLimit, end: &CpuLimit) -> Option<CpuQuota> {
    let (begin, cpus, end) = (begin.throttling, end.cpus?, end.throttling);
    Some(CpuQuota {
        cpus,
        periods: end.periods.saturating_sub(begin.periods),
        throttled_periods: end.throttled_periods.saturating_sub(begin.throttled_periods),
        throttled_us: end.throttled_us.saturating_sub(begin.throttled_us),
    })
}

fn changed(begin: &ProtocolCounters, end: &ProtocolCounters) -> BTreeMap<String, u64> {
    let delta = end.delta(begin);
    COUNTERS
        .iter()
        .filter_map(|name| {
            let grown = u64::try_from(*delta.get(*name)?).ok()?;
            Some(((*name).to_owned(), grown))
        })
        .collect()
}

fn split(on_cpu: Duration, whole_life: &[CpuUsage]) -> CpuSeconds {
    let user: Duration = whole_life.iter().map(|usage| usage.user).sum();
    let system: Duration = whole_life.iter().map(|usage| usage.system).sum();
    let total = (user + system).as_secs_f64();
    let share = if total > 0.0 { user.as_secs_f64() / total } else { 0.0 };
    CpuSeconds { user: on_cpu.as_secs_f64() * share, system: on_cpu.as_secs_f64() * (1.0 - share) }
}

fn percent(part: Duration, whole: Duration) -> f64 {
    if whole.is_zero() {
        return 0.0;
    }
    100.0 * part.as_secs_f64() / whole.as_secs_f64()
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_throttle_of_a_package_is_counted_once_and_one_of_a_core_each_time() {
        let at = |core, package| ThermalThrottles { core, package };
        let begin = [(0, at(5, 9)), (1, at(7, 9))];
        assert_eq!(throttled(&begin, &begin), 0);
        // A CPU that was not online at the beginning has counts from before the run.
        let end = [(0, at(6, 11)), (1, at(9, 11)), (2, at(40, 11))];
        assert_eq!(throttled(&begin, &end), 1 + 2 + 2);
    }
}
