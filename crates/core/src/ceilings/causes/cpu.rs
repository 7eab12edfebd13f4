//! The CPU of either end.

use super::super::formulas::service_demand_bps;
use super::super::signals::{ThreadTime, positive};
use super::super::small_segments::busy_with_small_segments;
use super::super::thresholds::{
    CHAIN_FULL, CHAIN_RUNS, CORE_FULL_PERCENT, CPU_CONTENDED, CPU_TAKEN, DATAGRAMS_LOST,
    EXACT_TOLERANCE, HOST_SHARE, MIN_UTILISATION, MODEL_TOLERANCE, QUOTA_OWN, QUOTA_PERIODS,
    QUOTA_USED_UP, SOFTIRQ_FULL_PERCENT, WRITER_WAITS,
};
use super::super::view::{View, percent};
use super::application::reader_is_late;
use super::{Basis, Cause, Ceiling, Rule, Signs};
use crate::plan::Role;
use crate::record::{CpuQuota, EndReport, HostFacts};
use crate::remedy::{LookObject, Remedy, RunOption};

/// The sender's.
pub(super) const SEND: Rule = Rule {
    cause: Cause::CpuSend,
    basis: Basis::Counted,
    tolerance: MODEL_TOLERANCE,
    ceiling: send_ceiling,
    signs: send_signs,
    remedy: |view, _| remedy(view, Role::Sender),
};

/// The receiver's.
pub(super) const RECEIVE: Rule = Rule {
    cause: Cause::CpuReceive,
    basis: Basis::Counted,
    tolerance: MODEL_TOLERANCE,
    ceiling: receive_ceiling,
    signs: receive_signs,
    remedy: |view, _| remedy(view, Role::Receiver),
};

/// The CPUs of the host that both ends share.
pub(super) const HOST: Rule = Rule {
    cause: Cause::CpuHost,
    basis: Basis::Counted,
    tolerance: MODEL_TOLERANCE,
    ceiling: host_ceiling,
    signs: host_signs,
    remedy: |_, _| None,
};

/// The CPUs that the threads of both ends had and wanted, and those that they can use at once.
struct Chain {
    had: f64,
    wanted: f64,
    usable: f64,
}

impl Chain {
    fn of(view: &View<'_>) -> Option<Self> {
        let ends = [(view.sender?, view.writer()?), (view.receiver?, view.reader()?)];
        let flows = view.flow_count() as f64;
        let had = |end: &EndReport| end.cpu_seconds.total() / view.seconds;
        let sum = |pick: &dyn Fn(&EndReport, ThreadTime) -> f64| -> f64 {
            ends.iter().map(|(end, time)| pick(end, *time)).sum()
        };
        // CPUs that are idle while threads wait are not available to them.
        let contended = ends.iter().any(|(_, time)| time.delayed >= CPU_CONTENDED);
        let busy = ends[0].0.host_cpu_percent.filter(|_| contended);
        let cpus = f64::from(ends[0].0.cpus.max(1)) * busy.map_or(1.0, |percent| percent / 100.0);
        let usable = flows.min(cpus.max(1.0));
        let chain = Self {
            had: sum(&|end, _| had(end)),
            wanted: sum(&|end, time| had(end) + time.delayed * flows),
            usable,
        };
        (view.has_one_kernel && !view.is_both).then_some(chain)
    }

    fn wants_all(&self) -> bool {
        self.wanted >= CHAIN_FULL * self.usable
    }
}

fn host_ceiling(view: &View<'_>) -> Option<Ceiling> {
    let chain = Chain::of(view)?;
    let share = positive(chain.wanted / chain.usable)?.min(1.0);
    let formula = "rate ÷ share of the usable CPUs that both ends' threads took or waited for";
    let ceiling = Ceiling::rate_over(view, formula, ("cpu_share", share))
        .input("usable_cpus", Some(chain.usable));
    (share >= MIN_UTILISATION).then_some(ceiling)
}

/// Both ends' threads together have all that they can use. The evidence also tells what else takes
/// the CPUs.
fn host_signs(view: &View<'_>) -> Option<Signs> {
    let chain = Chain::of(view)?;
    let end = view.sender?;
    let full = chain.wants_all() && chain.had >= CHAIN_RUNS * chain.usable;
    let asked = view.asked_share().is_some_and(|share| share >= 1.0 - EXACT_TOLERANCE);
    let mut say = vec![format!(
        "both ends' threads ran for {} of a CPU and waited for {}, of the {} that they can use",
        percent(chain.had),
        percent(chain.wanted - chain.had),
        percent(chain.usable)
    )];
    let interrupts = end.softirq_seconds.map(|s| s / view.seconds / f64::from(end.cpus.max(1)));
    say.push(format!(
        "of all CPUs {} was busy, {} with soft interrupts, of one core up to {}; the hypervisor \
         took {}",
        percent(end.host_cpu_percent.unwrap_or(0.0) / 100.0),
        percent(interrupts.unwrap_or(0.0)),
        percent(end.softirq_core_percent.unwrap_or(0.0) / 100.0),
        percent(end.steal_percent.unwrap_or(0.0) / 100.0)
    ));
    Signs::new(full && !asked && !view.is_shaped(), say)
}

fn send_ceiling(view: &View<'_>) -> Option<Ceiling> {
    let threads = [view.writer()?, view.reader().unwrap_or_default()];
    let (end, host) = (view.sender?, view.sender_host);
    ceiling(view, end, threads, host)
}

fn receive_ceiling(view: &View<'_>) -> Option<Ceiling> {
    let end = view.receiver?;
    if let Some(share) = interrupted_core(view, end) {
        let formula = "rate ÷ share of the time that a core was in soft interrupts";
        let share = ("softirq_core_share", share);
        return Some(Ceiling::rate_over(view, formula, share));
    }
    // The threads of one flow run in turn: a reader whose CPU others have keeps the writer waiting,
    // and together they have all CPU time that there is for them.
    let is_starved = starved(view.reader()?, view.writer()) && view.flow_count() == 1;
    let turns = Chain::of(view).filter(|chain| is_starved && chain.wants_all());
    if let Some(chain) = turns {
        let share = ("cpu_share", (chain.wanted / chain.usable).min(1.0));
        let formula = "rate ÷ share of a CPU that both ends' threads took or waited for";
        return Some(Ceiling::rate_over(view, formula, share));
    }
    let threads = [view.reader()?, view.writer().unwrap_or_default()];
    ceiling(view, end, threads, view.receiver_host)
}

/// One flow has one core, of which its thread took and waited for a share; several flows have a
/// core each, as far as there are cores. If all CPUs are busy, the host has no more for either end.
fn ceiling(
    view: &View<'_>,
    end: &EndReport,
    [thread, other]: [ThreadTime; 2],
    host: Option<&HostFacts>,
) -> Option<Ceiling> {
    if let Some(quota) = quota_used_up(view, end) {
        let used = quota.throttled_periods as f64 / quota.periods as f64;
        let formula = "rate at which its control group's quota of CPU time was used up";
        let ceiling = Ceiling::new(view.throughput_bps, formula)
            .input("throughput_bps", Some(view.throughput_bps))
            .input("quota_cpus", Some(quota.cpus))
            .input("used_up_share", Some(used));
        return Some(ceiling.dependent());
    }
    if let Some(busy) = full_host(view, end, thread, other).filter(|_| thread.waits_for_cpu()) {
        let formula = "rate ÷ share of the time that all CPUs of the host were busy";
        let share = ("host_cpu_share", busy);
        return Some(Ceiling::rate_over(view, formula, share));
    }
    let flows = view.flow_count() as f64;
    if flows > 1.0 {
        let cores = flows.min(positive(host?.cpu.usable)?);
        let demand = positive(service_demand(end)?)?;
        let used = view.throughput_bps / service_demand_bps(demand, 1.0);
        return (used >= MIN_UTILISATION * cores).then(|| {
            let limit = service_demand_bps(demand, cores);
            Ceiling::new(limit, "cores × 10⁶·1024·8 ÷ service demand")
                .input("service_demand_us_per_kib", Some(demand))
                .input("cores", Some(cores))
                .dependent()
        });
    }
    let used = (thread.running + thread.delayed).min(1.0);
    let formula = "rate ÷ share of a CPU that its thread took or waited for";
    let ceiling = Ceiling::rate_over(view, formula, ("cpu_share", used));
    (used >= MIN_UTILISATION).then_some(ceiling)
}

/// Service demand, µs/KiB: the host's if it counts this end alone, else that of the test's threads.
fn service_demand(end: &EndReport) -> Option<f64> {
    match end.service_demand_meaningful {
        Some(false) => end.service_demand_threads_us_per_kib,
        _ => end.service_demand_us_per_kib.or(end.service_demand_threads_us_per_kib),
    }
}

fn sentences(thread: ThreadTime) -> Vec<String> {
    let (ran, waited) = (percent(thread.running), percent(thread.delayed));
    let words =
        format!("its busiest thread ran for {ran} of the time and waited {waited} for a CPU");
    let others = others_run(thread).then_some(" that others had");
    vec![words + others.unwrap_or_default()]
}

/// Whether others have most of the thread's CPU.
fn others_run(thread: ThreadTime) -> bool {
    thread.delayed >= CPU_TAKEN && thread.delayed > thread.running
}

/// A UDP sender may spin between departures, and send more than the path carries: then its CPU
/// limits nothing.
fn send_signs(view: &View<'_>) -> Option<Signs> {
    let writer = view.writer()?;
    let done = view.asked_share().is_some_and(|share| share >= 1.0 - EXACT_TOLERANCE);
    let wasted = view.datagrams_missing().is_some_and(|share| share >= DATAGRAMS_LOST);
    let bound = writer.cpu_bound() && writer.blocked < WRITER_WAITS;
    let reader = view.reader().unwrap_or_default();
    let full = full_host(view, view.sender?, writer, reader);
    let quota = quota_used_up(view, view.sender?);
    let mut say = sentences(writer);
    say.extend(full.map(full_sentence));
    say.extend(quota.map(quota_sentence));
    let short = (bound || full.is_some()) && !view.is_shaped() || quota.is_some();
    Signs::new(short && !done && !wasted, say)
}

/// The quota of the end's control group, if it was usually used up, and by the test itself. A group
/// that contains both ends tells nothing of either.
fn quota_used_up<'a>(view: &View<'_>, end: &'a EndReport) -> Option<&'a CpuQuota> {
    let is_used_up = |quota: &CpuQuota| {
        let periods = quota.periods.max(QUOTA_PERIODS) as f64;
        quota.throttled_periods as f64 >= QUOTA_USED_UP * periods
    };
    let ends = [view.sender, view.receiver].into_iter().flatten();
    let others = ends.filter_map(|end| end.cpu_quota.as_ref());
    let is_alone = others.filter(|quota| is_used_up(quota)).count() == 1;
    let quota = end.cpu_quota.as_ref().filter(|quota| is_used_up(quota))?;
    let own = end.cpu_seconds.total() >= QUOTA_OWN * quota.cpus * view.seconds;
    (own && is_alone).then_some(quota)
}

fn quota_sentence(quota: &CpuQuota) -> String {
    format!(
        "its control group's quota of {} of a CPU was used up in {} of {} periods",
        percent(quota.cpus),
        quota.throttled_periods,
        quota.periods
    )
}

/// The busy share of the host's CPUs, if all of them were busy and this end's thread had or wanted
/// more than the other end's: where both ends or a busy neighbour share the CPUs, no thread need
/// run all the time. With more threads of the test than CPUs, each must have wanted its share of
/// them.
pub(super) fn full_host(
    view: &View<'_>,
    end: &EndReport,
    own: ThreadTime,
    other: ThreadTime,
) -> Option<f64> {
    let busy = positive(end.host_cpu_percent? / 100.0)?.min(1.0);
    let wanted = |time: ThreadTime| time.running + time.delayed;
    let least = if own.waits_for_cpu() { HOST_SHARE * view.share_of_cpus(end) } else { HOST_SHARE };
    let most = wanted(own) >= wanted(other) && own.has_work();
    (busy >= CORE_FULL_PERCENT / 100.0 && most && wanted(own) >= least).then_some(busy)
}

fn full_sentence(busy: f64) -> String {
    let busy = percent(busy);
    format!("all CPUs of its host were busy for {busy} of the time")
}

/// Whether the reader mostly waits for a CPU that others have, while the writer waits for the
/// reader. Unread data may be a small part of a receive buffer that has grown large.
fn starved(reader: ThreadTime, writer: Option<ThreadTime>) -> bool {
    let spare = writer.is_some_and(|writer| !writer.cpu_bound() && writer.blocked >= WRITER_WAITS);
    reader.has_work() && reader.delayed >= CPU_TAKEN && reader.delayed >= reader.blocked && spare
}

/// Whether at least a segment of each flow usually waits for the reader, or its window is closed. A
/// reader that leaves less takes all that comes, however late it gets a CPU.
fn has_unread(view: &View<'_>) -> Option<bool> {
    let receivers = view.tcp_receivers();
    if receivers.is_empty() {
        return None;
    }
    let unread: Option<u64> = receivers.iter().map(|receiver| receiver.unread_bytes).sum();
    let late = unread? as f64 >= view.mss().unwrap_or(1.0) * receivers.len() as f64;
    Some(late || view.is_held_by_window())
}

/// Share of the time in which one core of the receiver's host was in soft interrupts, if that is
/// nearly all: one core takes the packets of a queue, whatever the other cores do.
fn interrupted_core(view: &View<'_>, end: &EndReport) -> Option<f64> {
    let percent = end.softirq_core_percent.filter(|_| !view.has_one_kernel)?;
    (percent >= SOFTIRQ_FULL_PERCENT).then_some((percent / 100.0).min(1.0))
}

/// The reader's thread lacks CPU time, or the host's soft interrupts do.
fn receive_signs(view: &View<'_>) -> Option<Signs> {
    let reader = view.reader()?;
    let (late, why) = reader_is_late(view)?;
    let end = view.receiver?;
    let core = end.busiest_core_percent.unwrap_or(0.0);
    let dropped = end.softnet_dropped.unwrap_or(0);
    let all_of_a_core = interrupted_core(view, end);
    let small = busy_with_small_segments(view);
    let dropping = !view.has_one_kernel && core >= CORE_FULL_PERCENT && dropped > 0 && !small;
    let interrupts = all_of_a_core.is_some() || dropping;
    let mut say = sentences(reader);
    say.extend(all_of_a_core.map(|share| {
        let share = percent(share);
        format!("a core of its host was in soft interrupts for {share} of the time")
    }));
    say.extend(why);
    if dropped > 0 {
        say.push(format!(
            "its receive queues dropped {dropped} packets; its busiest core was busy for {core:.0} %"
        ));
    }
    // Without the sender's threads only unread data tells whose work fills the CPUs.
    let full = full_host(view, end, reader, view.writer().unwrap_or_default())
        .filter(|_| late || view.writer().is_some());
    let quota = quota_used_up(view, end);
    say.extend(full.map(full_sentence));
    say.extend(quota.map(quota_sentence));
    // A reader that finds nothing to read keeps up, however long it waits for a CPU.
    let behind = has_unread(view).unwrap_or(true) && !view.is_shaped() && !small;
    let short = late && reader.cpu_bound() || starved(reader, view.writer()) || full.is_some();
    Signs::new((short && behind) || interrupts || quota.is_some(), say)
}

/// If others have the thread's CPU, a look at the programs of the host. Else larger writes, if they
/// are small; else more flows, if there are cores without one.
fn remedy(view: &View<'_>, role: Role) -> Option<Remedy> {
    let (end, thread) = match role {
        Role::Sender => (view.sender?, view.writer()?),
        Role::Receiver => (view.receiver?, view.reader()?),
    };
    if others_run(thread) && quota_used_up(view, end).is_none() {
        let end = role.end(view.direction);
        return Some(Remedy::look(LookObject::Programs, Some(end)));
    }
    let hosts = [view.sender_host, view.receiver_host].into_iter().flatten();
    let cores = hosts.map(|host| host.cpu.usable).fold(f64::INFINITY, f64::min);
    let is_small = view.stream().is_some_and(|stream| stream.message_bytes < SMALL_WRITE);
    if view.udp.is_empty() && is_small {
        return Some(Remedy::option(RunOption::Size, "128KiB"));
    }
    let flows = view.flow_count();
    let has_room = cores.is_finite() && cores >= (flows * 2) as f64;
    has_room.then(|| Remedy::option(RunOption::Streams, flows * 2))
}

/// Size of a write below which the system call costs more than the copy, bytes.
const SMALL_WRITE: u64 = 16 * 1024;
