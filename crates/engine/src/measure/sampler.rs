//! Observes a running test: totals at each step, the kernel's evidence, the host's CPU time, the
//! queue and the DiffServ policy at its device.
//!
//! The workers know nothing of time. The sampler decides when the measured time begins (after the
//! warm-up) and when it ends, and reads the counters at those two moments.

use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use linerate_core::plan::Extent;
use linerate_core::record::{QosClass, QosEvidence, QosPolicy};
use linerate_core::session::message::keep_every_second;
use linerate_qos::interpret::CounterReport;
use linerate_sys::netlink::{HtbClass, HtbStatistics, Link, Netlink, Shaper};

use super::flow::{Counters, Flow, FlowState, Shared};
use super::meter::Meter;
use super::tcp_readings::TcpProbe;
use crate::clock::{nanos, now_ns};
use crate::profiler::{Profiler, Taken};
use crate::qos::{self, Counting};

/// Time between two readings of TCP and of the counters, unless the interval or the run is shorter.
const STEP: Duration = Duration::from_millis(100);
/// Most entries of a course; then every second one is dropped and the step is doubled.
pub(crate) const MAX_STEPS: usize = 1000;
/// Time between two corrections, in the warm-up, of a receive window that is to be held.
const SETTLE_NS: u64 = 5_000_000;
/// Longest sleep. A request to stop wakes the sampler; each other wake-up takes a CPU from a
/// worker.
const SLICE_NS: u64 = 500_000_000;

/// Totals of a flow. They are cumulative, so that dropping an entry merges two intervals.
#[derive(Debug, Clone, Default)]
pub(crate) struct FlowCourse {
    /// (ns since the measured time began, bytes since then).
    pub(crate) steps: Vec<(u64, u64)>,
    begin: (u64, u64),
    pub(crate) bytes: u64,
    pub(crate) messages: u64,
}

/// The sampler's results.
pub(crate) struct SamplerCourse {
    pub(crate) flows: Vec<FlowCourse>,
    pub(crate) probes: Vec<Option<TcpProbe>>,
    pub(crate) meter: Meter,
    /// If this end sends.
    pub(crate) backlog: Option<BacklogMeter>,
    qos: Option<QosMeter>,
    /// The effect of this host's DiffServ policy, if it has one.
    pub(crate) qos_evidence: Option<QosEvidence>,
    /// The profile, if one was asked for; set when the measured time is over.
    pub(crate) taken: Option<Taken>,
    /// Length of the measured time, ns.
    pub(crate) measured_ns: u64,
    /// The run was stopped before its end.
    pub(crate) cut_short: bool,
}

/// Runs until the measured time is over; the result is the course of the run.
pub(crate) fn watch(
    shared: &Shared,
    qos: Option<QosMeter>,
    profiler: Option<&Profiler>,
) -> SamplerCourse {
    let test = &shared.test;
    let window = test.options.receive_window_bytes.map(|window| window.0);
    let flows = shared.flows.iter();
    let mut course = SamplerCourse {
        flows: vec![FlowCourse::default(); shared.flows.len()],
        probes: flows.map(|f| TcpProbe::from_flow(f, window)).collect(),
        meter: Meter::new(shared.shares.len()),
        backlog: BacklogMeter::towards_peer_of(&shared.flows),
        qos,
        qos_evidence: None,
        taken: None,
        measured_ns: 0,
        cut_short: false,
    };
    let warm_up = nanos(test.warm_up.0);
    let warm_ns = shared.began_ns.saturating_add(warm_up);
    let begin_ns = settle(shared, &mut course.probes, warm_ns);
    course.begin(shared, begin_ns, warm_up == 0);
    if begin_ns < warm_ns && shared.stop.is_requested() {
        // The run was stopped within its warm-up: a rate over an instant would be none.
        course.cut_short = true;
        course.end(shared, begin_ns, begin_ns);
        return course;
    }
    if let Some(profiler) = profiler {
        profiler.begin(threads_begun(shared));
    }
    let end_ns = match test.extent {
        Extent::Time(time) => begin_ns.saturating_add(nanos(time.0)),
        Extent::Bytes(_) | Extent::Count(_) => u64::MAX,
    };
    let mut step = first_step(shared);
    let mut next = begin_ns + step;
    loop {
        let whole = sleep_until(next.min(end_ns), shared);
        let now = now_ns();
        if now >= end_ns || shared.all_done() || !whole {
            course.cut_short = now < end_ns && !shared.all_done();
            if !whole && !matches!(test.extent, Extent::Time(_)) {
                // A peer that has received everything may end the test before the worker has
                // counted its last message.
                wait_briefly(|| shared.all_done());
            }
            profiler.iter().for_each(|profiler| profiler.end());
            course.end(shared, begin_ns, now_ns());
            return course;
        }
        course.step(shared, begin_ns, now);
        profiler.iter().for_each(|profiler| profiler.set_flows(threads(shared)));
        if course.thin_out() {
            step *= 2;
        }
        next = now.max(next) + step;
    }
}

/// Waits for the end of the warm-up; the result is when the measured time begins. If the run is
/// stopped or all workers are done before that, it begins at once.
fn settle(shared: &Shared, probes: &mut [Option<TcpProbe>], warm_ns: u64) -> u64 {
    while now_ns() < warm_ns && !shared.all_done() {
        for probe in probes.iter_mut().flatten() {
            probe.settle();
        }
        if !sleep_until(warm_ns.min(now_ns() + SETTLE_NS), shared) {
            break;
        }
    }
    warm_ns.min(now_ns())
}

/// The workers' threads, once all have begun.
fn threads_begun(shared: &Shared) -> Vec<u32> {
    wait_briefly(|| threads(shared).len() == shared.shares.len());
    threads(shared)
}

/// Waits up to 50 ms for something that threads do at once unless the host is very busy.
fn wait_briefly(happened: impl Fn() -> bool) {
    const LONGEST: Duration = Duration::from_millis(50);
    let until = now_ns() + nanos(LONGEST);
    while !happened() && now_ns() < until {
        thread::yield_now();
    }
}

/// The workers' threads that have begun.
fn threads(shared: &Shared) -> Vec<u32> {
    let workers = shared.workers().into_iter();
    workers
        .map(Counters::tid)
        .filter_map(|tid| u32::try_from(tid).ok().filter(|tid| *tid > 0))
        .collect()
}

fn first_step(shared: &Shared) -> u64 {
    let interval = nanos(shared.test.interval.0);
    let of_run = match shared.test.extent {
        // A short run is read twenty times.
        Extent::Time(time) => nanos(time.0) / 20,
        Extent::Bytes(_) | Extent::Count(_) => u64::MAX,
    };
    nanos(STEP).min(interval).min(of_run).max(1_000_000)
}

/// False if the run was stopped before `at_ns`; true at once when all workers are done.
fn sleep_until(at_ns: u64, shared: &Shared) -> bool {
    loop {
        if shared.stop.is_requested() {
            return false;
        }
        let now = now_ns();
        if now >= at_ns || shared.all_done() {
            return true;
        }
        // A worker that ends also wakes the sampler.
        thread::park_timeout(Duration::from_nanos((at_ns - now).min(SLICE_NS)));
    }
}

impl SamplerCourse {
    fn begin(&mut self, shared: &Shared, now: u64, from_zero: bool) {
        for (course, flow) in self.flows.iter_mut().zip(&shared.flows) {
            // Without a warm-up everything counts, even what moved before this thread first ran.
            if !from_zero {
                course.begin = (flow.counters.bytes(), flow.counters.messages());
            }
        }
        self.probes.iter_mut().flatten().for_each(TcpProbe::begin);
        self.meter.begin(now, &shared.workers());
        self.qos.iter_mut().for_each(QosMeter::begin);
    }

    fn step(&mut self, shared: &Shared, begin_ns: u64, now: u64) {
        for (course, flow) in self.flows.iter_mut().zip(&shared.flows) {
            let bytes = flow.counters.bytes() - course.begin.0;
            course.steps.push((now - begin_ns, bytes));
        }
        for probe in self.probes.iter_mut().flatten() {
            probe.sample(now - begin_ns);
        }
        self.backlog.iter_mut().for_each(BacklogMeter::look);
        self.meter.touch(&shared.workers());
    }

    fn end(&mut self, shared: &Shared, begin_ns: u64, now: u64) {
        // The totals come first: the rest takes a while, and the workers go on meanwhile.
        for (course, flow) in self.flows.iter_mut().zip(&shared.flows) {
            course.bytes = flow.counters.bytes() - course.begin.0;
            course.messages = flow.counters.messages() - course.begin.1;
        }
        let last = shared.flows.iter().filter_map(|f| f.counters.last_ns()).max();
        let end = match (last, shared.test.extent) {
            // A counted transfer ends with its last byte, not when the sampler looks.
            (Some(last), Extent::Bytes(_) | Extent::Count(_)) => last.clamp(begin_ns, now),
            _ => now,
        };
        self.measured_ns = end.saturating_sub(begin_ns);
        for course in &mut self.flows {
            course.steps.push((self.measured_ns, course.bytes));
        }
        for probe in self.probes.iter_mut().flatten() {
            probe.sample(self.measured_ns);
        }
        self.meter.end(end, &shared.workers());
        self.qos_evidence = self.qos.as_mut().map(QosMeter::end);
    }

    /// Drops every second entry if there are too many; true if it did.
    fn thin_out(&mut self) -> bool {
        if self.flows.first().is_none_or(|f| f.steps.len() < MAX_STEPS) {
            return false;
        }
        for course in &mut self.flows {
            keep_every_second(&mut course.steps);
        }
        for probe in self.probes.iter_mut().flatten() {
            probe.thin_out();
        }
        true
    }
}

// The device of the path: the backlog of its root discipline, and the effect of this host's
// DiffServ policy from the beginning of the measured time to its end.

/// Levels of classes that HTB has (`TC_HTB_MAXDEPTH`).
const HTB_DEPTH: usize = 8;

/// Most classes, and most policies, that a record keeps.
const MAX_LISTED: usize = 16;

/// Reads the classes and the policy of the path's device. It is prepared before the measured time,
/// so that this costs the measured time nothing.
pub(crate) struct QosMeter {
    netlink: Netlink,
    index: u32,
    name: String,
    /// Handle of the HTB at the device's root.
    major: Option<u16>,
    has_shaper: bool,
    counting: Option<Counting>,
    begin: QosReading,
}

#[derive(Default)]
struct QosReading {
    classes: Vec<(HtbClass, HtbStatistics)>,
    shaper: Option<(Shaper, HtbStatistics)>,
    /// The counters of each policy.
    counts: Vec<CounterReport>,
}

impl QosMeter {
    /// The meter for the device by which the peer of these flows is reached; `None` if the device
    /// has neither classes nor a policy.
    pub(crate) fn towards_peer_of(flows: &[Flow]) -> Option<Self> {
        let mut peers = flows.iter().filter_map(|flow| flow.socket.addresses().1);
        let (mut netlink, index, link) = device_towards(peers.next()?)?;
        // Most hosts have none of these; there nothing more is read.
        let has_htb = link.qdisc.as_deref() == Some("htb");
        let has_shaper = link.qdisc.as_deref().is_some_and(Shaper::is_kind);
        let has_policy = qos::is_known(&link);
        if !has_htb && !has_policy && !has_shaper {
            return None;
        }
        let roots = netlink.qdiscs(&link.name).ok()?;
        let htb = roots.iter().find(|qdisc| qdisc.root && qdisc.kind == "htb");
        let counting = has_policy.then(|| qos::counting(&link.name).ok().flatten());
        Some(Self {
            major: htb.map(|qdisc| qdisc.handle.0),
            has_shaper,
            netlink,
            index,
            name: link.name,
            counting: counting.flatten(),
            begin: QosReading::default(),
        })
    }

    /// Reads everything at the beginning of the measured time.
    pub(crate) fn begin(&mut self) {
        self.begin = self.read();
    }

    /// Reads everything at the end of the measured time; the result is the difference.
    pub(crate) fn end(&mut self) -> QosEvidence {
        let end = self.read();
        let mut evidence = evidence(&self.name, &self.begin, &end);
        if let Some(counting) = &self.counting {
            name_classes(&mut evidence.classes, counting);
            evidence.policies = policies(counting, &self.begin, &end);
        }
        evidence
    }

    fn read(&mut self) -> QosReading {
        let classes = self.major.and_then(|major| self.netlink.htb_classes(self.index, major).ok());
        let shaper = self.has_shaper.then(|| self.netlink.root_shaper(self.index).ok());
        QosReading {
            classes: classes.unwrap_or_default(),
            shaper: shaper.flatten().flatten(),
            counts: self.counting.as_ref().map_or_else(Vec::new, Counting::read),
        }
    }
}

/// The device by which `peer` is reached, with its index.
fn device_towards(peer: SocketAddr) -> Option<(Netlink, u32, Link)> {
    let mut netlink = Netlink::open().ok()?;
    let index = netlink.route_to(peer.ip().to_canonical()).ok()?.link?;
    let link = netlink.link_by_index(index).ok()?;
    Some((netlink, index, link))
}

fn evidence(device: &str, begin: &QosReading, end: &QosReading) -> QosEvidence {
    let leaves = end.classes.iter().filter(|(class, _)| !has_children(end, class));
    let mut carried: Vec<(&HtbClass, QosClass)> = leaves
        .map(|(class, now)| {
            let carried = QosClass {
                class: name_of(class.id),
                rate_bps: bits(class.rate),
                ceil_bps: bits(most_of(end, class)),
                ..passed(now, &at(begin, class))
            };
            (class, carried)
        })
        .filter(|(_, class)| class.packets > 0 || class.dropped > 0)
        .collect();
    carried.sort_by_key(|(_, class)| std::cmp::Reverse(class.bytes));
    carried.truncate(MAX_LISTED);
    // A class that nothing is above is no link of others.
    let busiest = carried.first().map(|(class, _)| *class);
    let root = busiest.and_then(|leaf| above(end, leaf).last());
    let classes = carried.into_iter().map(|(_, class)| class).collect();
    QosEvidence {
        device: device.to_owned(),
        link_class: root.map(|(class, _)| name_of(class.id)),
        link_bps: root.map(|(class, _)| bits(class.rate)),
        link_bytes: root.map(|(class, now)| now.bytes.saturating_sub(at(begin, class).bytes)),
        shaper: end.shaper.map(|(shaper, now)| {
            let begin = begin.shaper.filter(|(begin, _)| *begin == shaper);
            let then = begin.map_or_else(HtbStatistics::default, |(_, then)| then);
            let rate_bps = bits(shaper.rate);
            QosClass {
                class: shaper.kind.to_owned(),
                rate_bps,
                ceil_bps: rate_bps,
                ..passed(&now, &then)
            }
        }),
        classes,
        policies: Vec::new(),
    }
}

fn name_classes(classes: &mut [QosClass], counting: &Counting) {
    for class in classes {
        let is_its = |id: u32| name_of(id) == class.class;
        let mut policies = counting.policies.iter();
        let policy = policies.find(|policy| policy.class.is_some_and(is_its));
        class.policy = policy.map(|policy| policy.name.clone());
    }
}

fn policies(counting: &Counting, begin: &QosReading, end: &QosReading) -> Vec<QosPolicy> {
    let counts = begin.counts.iter().zip(&end.counts);
    let mut policies: Vec<QosPolicy> = counting
        .policies
        .iter()
        .zip(counts)
        .map(|(policy, (then, now))| QosPolicy {
            policy: policy.name.clone(),
            packets: now.packets.saturating_sub(then.packets),
            bytes: now.bytes.saturating_sub(then.bytes),
            dropped_packets: now.dropped_packets.saturating_sub(then.dropped_packets),
            dropped_bytes: now.dropped_bytes.saturating_sub(then.dropped_bytes),
            drops_above_bps: policy.drops_above_bps,
        })
        .filter(|policy| policy.packets > 0)
        .collect();
    policies.sort_by_key(|policy| std::cmp::Reverse(policy.bytes));
    policies.truncate(MAX_LISTED);
    policies
}

/// The classes above one, the nearest first.
fn above<'a>(
    reading: &'a QosReading,
    class: &HtbClass,
) -> impl Iterator<Item = &'a (HtbClass, HtbStatistics)> {
    let find = |id: Option<u32>| reading.classes.iter().find(|(other, _)| Some(other.id) == id);
    std::iter::successors(find(class.parent), move |(class, _)| find(class.parent)).take(HTB_DEPTH)
}

/// The most that a class can send, bytes per second: no more than it and those above it may. The
/// uppermost has nobody to borrow from, and sends its own rate, whatever its ceil
/// (net/sched/sch_htb.c, `htb_activate_prios`).
fn most_of(reading: &QosReading, class: &HtbClass) -> u64 {
    let all: Vec<&HtbClass> =
        std::iter::once(class).chain(above(reading, class).map(|(class, _)| class)).collect();
    let ceils = all.iter().map(|class| class.ceil);
    let uppermost = all.last().map(|class| class.rate);
    ceils.chain(uppermost).min().unwrap_or(class.ceil)
}

fn has_children(reading: &QosReading, class: &HtbClass) -> bool {
    let mut others = reading.classes.iter();
    others.any(|(other, _)| other.parent == Some(class.id))
}

/// A class's statistics at the beginning; zero if the class was made later.
fn at(begin: &QosReading, class: &HtbClass) -> HtbStatistics {
    let mut earlier = begin.classes.iter();
    let found = earlier.find(|(other, _)| other.id == class.id);
    found.map_or_else(HtbStatistics::default, |(_, then)| *then)
}

fn passed(now: &HtbStatistics, then: &HtbStatistics) -> QosClass {
    // The kernel's 32-bit counters wrap around.
    let grown = |now: u32, then: u32| u64::from(now.wrapping_sub(then));
    QosClass {
        bytes: now.bytes.saturating_sub(then.bytes),
        packets: grown(now.packets, then.packets),
        dropped: grown(now.drops, then.drops),
        overlimits: grown(now.overlimits, then.overlimits),
        lended: grown(now.lends, then.lends),
        borrowed: grown(now.borrows, then.borrows),
        backlog_bytes: now.backlog_bytes.into(),
        ..QosClass::default()
    }
}

/// A class's name as `tc` writes it.
fn name_of(class: u32) -> String {
    format!("{:x}:{:x}", class >> 16, class & 0xffff)
}

fn bits(bytes_per_s: u64) -> f64 {
    bytes_per_s as f64 * 8.0
}

/// Reads the device's root queueing discipline.
pub(crate) struct BacklogMeter {
    netlink: Netlink,
    index: u32,
    readings: Vec<u64>,
}

impl BacklogMeter {
    /// The meter for the device by which the peer of these flows is reached, if this end sends and
    /// the device has a queue.
    pub(crate) fn towards_peer_of(flows: &[FlowState]) -> Option<Self> {
        let mut sending = flows.iter().filter(|flow| flow.sends);
        let peer = sending.find_map(|flow| flow.socket.as_ref()?.addresses().1)?;
        let (netlink, index, link) = device_towards(peer)?;
        (link.qdisc? != "noqueue").then(|| Self { netlink, index, readings: Vec::new() })
    }

    pub(crate) fn look(&mut self) {
        let waiting = self.netlink.root_backlog(self.index);
        self.readings.extend(waiting.ok().flatten().map(u64::from));
    }

    /// Mean of all readings, bytes; `None` without a reading.
    pub(crate) fn mean(&self) -> Option<u64> {
        let sum: u64 = self.readings.iter().sum();
        sum.checked_div(self.readings.len() as u64)
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use linerate_core::units::{ByteCount, End, Span};
    use linerate_sys::netns::Pair;
    use linerate_testkit::{Need, eventually, made_or_skip, token_bucket};

    use super::super::flow::Shared;
    use super::super::source::FlowSource;
    use super::*;
    use crate::measure::flow::{Flow, FlowSocket};
    use crate::measure::half::HalfOptions;

    #[test]
    fn a_run_that_ends_within_its_warm_up_has_no_measured_time() {
        for extent in [Extent::Bytes(ByteCount(1)), Extent::Count(1)] {
            let mut test = linerate_core::plan::Test::stream().resolve(7).unwrap();
            test.extent = extent;
            test.warm_up = Span(Duration::from_secs(3600));
            let shared = Shared::alone(End::Client, &test, FlowSource::Bound);
            let counters = &shared.flows[0].counters;
            counters.set(1, 1);
            counters.set_done(now_ns());
            shared.worker_is_done();
            let course = watch(&shared, None, None);
            assert_eq!((course.flows[0].bytes, course.cut_short), (0, false));
            assert!(course.measured_ns < nanos(Duration::from_secs(60)));
        }
    }

    #[test]
    fn a_run_that_is_stopped_within_its_warm_up_was_not_measured_for_an_instant() {
        let mut test = linerate_core::plan::Test::stream().resolve(7).unwrap();
        test.warm_up = Span(Duration::from_secs(3600));
        let shared = Shared::alone(End::Client, &test, FlowSource::Bound);
        shared.stop.request();
        let course = watch(&shared, None, None);
        assert_eq!((course.measured_ns, course.cut_short), (0, true));
    }

    fn class(minor: u32, parent: Option<u32>) -> HtbClass {
        HtbClass {
            id: 0x1_0000 | minor,
            parent: parent.map(|parent| 0x1_0000 | parent),
            rate: 1_000_000,
            ceil: 2_000_000,
            burst: 0,
            ceil_burst: 0,
            quantum: 0,
            priority: 0,
        }
    }

    fn reading(bytes: u64, packets: u32) -> QosReading {
        let did = HtbStatistics { bytes, packets, ..HtbStatistics::default() };
        QosReading {
            classes: vec![
                (class(1, None), did),
                (class(0x10, Some(1)), did),
                (class(0x11, Some(1)), HtbStatistics::default()),
            ],
            ..QosReading::default()
        }
    }

    #[test]
    fn evidence_is_the_growth_of_the_classes_that_carry_packets() {
        // The kernel's packet counter wraps around at 2³².
        let (begin, end) = (reading(5_000, u32::MAX - 1), reading(45_000, 38));
        let found = evidence("wa", &begin, &end);
        assert_eq!((found.link_class.as_deref(), found.link_bps), (Some("1:1"), Some(8e6)));
        assert_eq!(found.link_bytes, Some(40_000));
        let [class] = found.classes.as_slice() else {
            panic!("{:?}", found.classes);
        };
        assert_eq!((class.class.as_str(), class.bytes, class.packets), ("1:10", 40_000, 40));
    }

    #[test]
    fn a_class_that_has_nobody_to_borrow_from_is_limited_by_its_own_rate() {
        let none = QosReading::default();
        // Its ceil is 16 Mbit/s, and that of the class above it; the rate of that is 8.
        let below = evidence("wa", &none, &reading(40_000, 40));
        assert_eq!(below.classes[0].ceil_bps, 8e6);
        let did = HtbStatistics { bytes: 40_000, packets: 40, ..HtbStatistics::default() };
        let alone = QosReading { classes: vec![(class(1, None), did)], ..QosReading::default() };
        let found = evidence("wa", &none, &alone);
        assert_eq!((found.classes[0].ceil_bps, found.link_bps), (8e6, None));
    }

    #[test]
    fn what_waits_in_the_senders_own_discipline_is_read() {
        let Some(pair) = made_or_skip(Need::Lab, Pair::create()) else {
            return;
        };
        let bind = || UdpSocket::bind((pair.b.ipv4, 0)).unwrap();
        let peer = pair.b.namespace.run(bind).unwrap();
        let work = || {
            let mut netlink = Netlink::open().unwrap();
            let index = netlink.link(Pair::LINK).unwrap().index;
            // 10 kbit/s, after the first 32 KiB.
            let made = netlink.put_qdisc(index, None, ("tbf", 1, &token_bucket(1_250, 65_536)));
            if made_or_skip(Need::Bpf, made).is_none() {
                return;
            }
            let socket = UdpSocket::bind((pair.a.ipv4, 0)).unwrap();
            socket.connect(peer.local_addr().unwrap()).unwrap();
            let flow = Flow { id: 0, socket: FlowSocket::Udp(socket.try_clone().unwrap()) };
            let test = linerate_core::plan::Test::stream().resolve(7).unwrap();
            let options = HalfOptions::default();
            let shared = Shared::new(End::Client, &test, vec![flow], FlowSource::Bound, options);
            let mut meter = BacklogMeter::towards_peer_of(&shared.flows).expect("it has a queue");
            assert_eq!(meter.mean(), None);
            for _ in 0..40 {
                socket.send(&[0; 1400]).unwrap();
            }
            eventually("a part waits", || {
                meter.look();
                meter.mean() > Some(0)
            });
            assert!(meter.mean() < Some(40 * 1442), "{:?}", meter.mean());
        };
        pair.a.namespace.run(work).unwrap();
    }
}
