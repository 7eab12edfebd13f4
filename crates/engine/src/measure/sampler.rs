//! Observes a running test: totals at each step, the kernel's evidence, the host's CPU time.
//!
//! The workers know nothing of time. The sampler decides when the measured time begins (after the
//! warm-up) and when it ends, and reads the counters at those two moments.

use std::thread;
use std::time::Duration;

use linerate_core::plan::Extent;
use linerate_core::record::QosEvidence;
use linerate_core::session::message::keep_every_second;

use super::flow::Counters;
use super::meter::Meter;
use super::qos::{BacklogMeter, QosMeter};
use super::shared::Shared;
use super::tcp::TcpProbe;
use crate::clock::{nanos, now_ns};
use crate::profiler::{Profiler, Taken};

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

#[cfg(test)]
mod tests {
    use linerate_core::units::{ByteCount, Span};

    use super::super::source::FlowSource;
    use super::*;
    use linerate_core::units::End;

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
}
