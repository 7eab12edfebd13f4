//! One end's half of a run: its workers, its sampler, and the report that they leave.

use std::io;
use std::net::Shutdown;
use std::ops::Range;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use linerate_core::plan::{Extent, Protocol, Test, Traffic};
use linerate_core::profile::ProfileRequest;
use linerate_core::record::{Caveat, CaveatKind, EndReport, HostFacts};
use linerate_core::session::message::{FlowHalf, HalfReport, Progress};
use linerate_core::units::End;
use linerate_sys::clock::sleep_until;
use linerate_sys::socket as sys_socket;
use linerate_sys::tcp_info::TcpInfo;
use linerate_sys::thread::{self as sys_thread, CpuUsage, set_real_time_policy, wake_sharply};

use super::flow::{Flow, FlowSocket, FlowState, LiveFlow, Marks, Shared, WorkerEnd};
use super::outcome::{AnswerOutcome, ExchangeOutcome};
use super::sampler::{self, BacklogMeter, QosMeter, SamplerCourse};
use super::source::FlowSource;
use super::{crr, exchange, stream, transfer, udp};
use crate::clock::now_ns;
use crate::profiler::{Circumstances, Profiler};
use crate::shares::joined;

/// How each flow of a worker ended, and the CPU time of its thread.
struct Worked {
    ends: Vec<io::Result<WorkerEnd>>,
    usage: CpuUsage,
}

/// A running half.
pub(crate) struct Half {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<Worked>>,
    sampler: JoinHandle<SamplerCourse>,
}

/// The report of a half, and what only a client's workers know.
pub(crate) struct HalfEnd {
    pub(crate) report: HalfReport,
    pub(crate) exchange: Option<ExchangeOutcome>,
    pub(crate) cut_short: bool,
}

impl Half {
    /// Starts the workers and the sampler. `flows` are the connected sockets. Workloads that make
    /// connections within the run have none: their workers take them from `source`.
    ///
    /// # Errors
    /// A thread could not be started.
    pub(crate) fn start(
        side: End,
        test: &Test,
        flows: Vec<Flow>,
        source: FlowSource,
        options: HalfOptions,
    ) -> io::Result<Self> {
        // Before the first byte, because looking the device up takes a moment.
        let qos = QosMeter::towards_peer_of(&flows);
        let profile = options.profile;
        let shared = Arc::new(Shared::new(side, test, flows, source, options));
        let profiler = profile.map(Profiler::start).transpose()?;
        let sampler = {
            let shared = Arc::clone(&shared);
            thread::Builder::new().name("sampler".into()).spawn(move || {
                let mut course = sampler::watch(&shared, qos, profiler.as_ref());
                shared.set_finished();
                course.taken = profiler.map(Profiler::finish);
                course
            })?
        };
        let mut half = Self { workers: Vec::with_capacity(shared.shares.len()), sampler, shared };
        for share in half.shared.shares.clone() {
            match half.spawn_worker(share) {
                Ok(worker) => half.workers.push(worker),
                Err(error) => return Err(half.give_up(error)),
            }
        }
        if !half.shared.is_timed {
            half.let_go();
        } else if let Err(error) = half.begin_on_time() {
            return Err(half.give_up(error));
        }
        Ok(half)
    }

    /// Ends the threads that were started.
    fn give_up(self, error: io::Error) -> io::Error {
        self.request_stop();
        wake(&self.shared);
        self.let_go();
        for worker in self.workers {
            joined(worker.join());
        }
        error
    }

    /// Lets all workers begin together: otherwise the first ones could keep the others from a CPU.
    fn let_go(&self) {
        self.shared.let_go();
        self.workers.iter().for_each(|worker| worker.thread().unpark());
    }

    /// Waits for the set time and then sends the first bytes of all flows from one thread, one flow
    /// after the other. Only then the workers begin: the first worker with a CPU would keep it for
    /// as long as the scheduler lets it.
    pub(super) fn begin_on_time(&self) -> io::Result<()> {
        thread::scope(|scope| {
            let named = thread::Builder::new().name("start".into());
            let starter = named.spawn_scoped(scope, || {
                // Where this is refused, the record shows how late the flows began.
                let _ = set_real_time_policy();
                wake_sharply();
                sleep_until(self.shared.began_ns, Duration::ZERO);
                self.send_first();
                self.let_go();
            })?;
            joined(starter.join());
            Ok(())
        })
    }

    fn send_first(&self) {
        let Traffic::Stream(test) = &self.shared.test.traffic else {
            return;
        };
        for flow in self.shared.flows.iter().filter(|flow| flow.sends) {
            if let Some(FlowSocket::Tcp(socket)) = &flow.socket {
                stream::send_first(&self.shared.test, test, &flow.counters, socket);
            }
        }
    }

    fn spawn_worker(&self, share: Range<usize>) -> io::Result<JoinHandle<Worked>> {
        let shared = Arc::clone(&self.shared);
        let sampler = self.sampler.thread().clone();
        thread::Builder::new().name(format!("flow-{}", shared.flows[share.start].id)).spawn(
            move || {
                let flows = &shared.flows[share];
                shared.await_the_others();
                for flow in flows {
                    if flow.sends {
                        flow.counters.set_begun(now_ns());
                    }
                    flow.counters.set_tid(sys_thread::thread_id() as i32);
                }
                let ends = work(&shared, flows);
                for flow in flows.iter().filter(|flow| !flow.counters.is_done()) {
                    flow.counters.set_done(now_ns());
                }
                shared.worker_is_done();
                sampler.unpark();
                Worked { ends, usage: CpuUsage::of_thread() }
            },
        )
    }

    /// Payload received so far.
    pub(crate) fn progress(&self) -> Progress {
        let received = self.shared.flows.iter().filter(|flow| !flow.sends);
        Progress {
            at_s: self.at_s(),
            received_bytes: received.map(|flow| flow.counters.bytes()).sum(),
        }
    }

    /// Payload sent and received so far, bytes, with that of the warm-up.
    pub(crate) fn carried_bytes(&self) -> u64 {
        let flows = self.shared.flows.iter();
        flows.map(|flow| flow.counters.bytes()).sum()
    }

    /// Payload sent so far, bytes.
    pub(crate) fn sent_bytes(&self) -> u64 {
        self.senders().map(|flow| flow.counters.bytes()).sum()
    }

    fn senders(&self) -> impl Iterator<Item = &FlowState> {
        self.shared.flows.iter().filter(|flow| flow.sends)
    }

    /// Warm-up of the test, seconds.
    pub(crate) fn warm_up_s(&self) -> f64 {
        self.shared.test.warm_up.as_secs_f64()
    }

    /// Time since the half began, seconds.
    pub(crate) fn at_s(&self) -> f64 {
        Duration::from_nanos(self.since_began_ns()).as_secs_f64()
    }

    /// 0 until the set time, for a half that begins at one.
    fn since_began_ns(&self) -> u64 {
        now_ns().saturating_sub(self.shared.began_ns)
    }

    /// The present state of each flow.
    pub(crate) fn flows(&self) -> Vec<LiveFlow> {
        self.shared.flows.iter().map(LiveFlow::from).collect()
    }

    /// Whether the peer's kernel has acknowledged all that this end's TCP senders have sent.
    pub(crate) fn is_acknowledged(&self) -> bool {
        self.senders().all(|flow| match &flow.socket {
            Some(FlowSocket::Tcp(stream)) => TcpInfo::read(stream)
                .map_or(true, |info| info.unacked == 0 && info.notsent_bytes.unwrap_or(0) == 0),
            _ => true,
        })
    }

    /// Messages or transactions so far.
    pub(crate) fn messages(&self) -> u64 {
        self.shared.flows.iter().map(|f| f.counters.messages()).sum()
    }

    /// Whether every receiver of this end has seen the end of its stream.
    pub(crate) fn all_received(&self) -> bool {
        let mut receivers = self.shared.flows.iter().filter(|flow| !flow.sends);
        receivers.all(|flow| flow.counters.is_done())
    }

    /// Whether a receiver's socket holds what its worker has not read yet.
    pub(crate) fn has_unread(&self) -> bool {
        let mut receivers = self.shared.flows.iter().filter(|flow| !flow.sends);
        receivers.any(|flow| match &flow.socket {
            Some(FlowSocket::Tcp(stream)) => {
                sys_socket::unread(stream).is_ok_and(|bytes| bytes > 0)
            }
            Some(FlowSocket::Udp(socket)) => {
                sys_socket::unread(socket).is_ok_and(|bytes| bytes > 0)
            }
            None => false,
        })
    }

    /// Payload that this end has sent and received so far: in the warm-up, in the measured time and
    /// after it.
    pub(crate) fn moved_bytes(&self) -> u64 {
        self.shared.flows.iter().map(|f| f.counters.bytes()).sum()
    }

    /// Bytes that prove that the other end is alive: over UDP those that it has sent, over TCP also
    /// those that it must have acknowledged.
    pub(crate) fn heard_bytes(&self) -> u64 {
        match self.shared.test.protocol {
            Protocol::Udp => self.progress().received_bytes,
            Protocol::Tcp | Protocol::Mptcp => self.moved_bytes(),
        }
    }

    /// Whether the measured time is over, or every worker is done.
    pub(crate) fn is_finished(&self) -> bool {
        self.shared.is_finished()
    }

    /// How long the controller of this half may wait for the peer's next message before it looks at
    /// the half again. A message wakes it anyway; in the middle of a timed run every other wake-up
    /// only takes a CPU from a worker.
    pub(crate) fn patience(&self) -> Duration {
        const SHORT: Duration = Duration::from_millis(5);
        const USUAL: Duration = Duration::from_millis(20);
        const LONG: Duration = Duration::from_millis(100);
        let elapsed = Duration::from_nanos(self.since_began_ns());
        match self.shared.test.seconds() {
            Some(seconds) => {
                Duration::from_secs_f64(seconds).saturating_sub(elapsed).clamp(SHORT, LONG)
            }
            None => USUAL,
        }
    }

    /// Whether every worker is done.
    pub(crate) fn all_done(&self) -> bool {
        self.shared.all_done()
    }

    /// Whether every sender of this end has sent everything.
    pub(crate) fn all_sent(&self) -> bool {
        self.senders().all(|flow| flow.counters.is_done())
    }

    /// Whether this end has done its part. In a counted UDP stream that is so once it has sent its
    /// own datagrams, although it goes on receiving: only the peer knows how many it sends.
    pub(crate) fn is_through(&self) -> bool {
        let test = &self.shared.test;
        let is_counted = test.protocol == Protocol::Udp
            && matches!(test.traffic, Traffic::Stream(_))
            && !matches!(test.extent, Extent::Time(_));
        let sends = self.senders().next().is_some();
        self.is_finished() || (is_counted && sends && self.all_sent())
    }

    /// Asks the workers to stop, without waking those that are blocked. From now on an error does
    /// not count as one: it is how a worker ends.
    pub(crate) fn request_stop(&self) {
        self.shared.stop.request();
        self.sampler.thread().unpark();
    }

    /// Stops the half and gives its report, which includes `facts`.
    pub(crate) fn stop(self, facts: HostFacts) -> HalfEnd {
        self.request_stop();
        let course = joined(self.sampler.join());
        wake(&self.shared);
        let worked = self.workers.into_iter().map(|worker| joined(worker.join())).collect();
        report(&self.shared, course, worked, facts)
    }
}

/// Ends the calls in which workers are blocked.
fn wake(shared: &Shared) {
    for flow in &shared.flows {
        if let Some(FlowSocket::Tcp(stream)) = &flow.socket {
            // This fails for a connection that is closed already, which needs no shutdown.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

/// Runs the worker of one flow, or of several flows that share a thread.
fn work(shared: &Shared, flows: &[FlowState]) -> Vec<io::Result<WorkerEnd>> {
    match (&shared.test.traffic, flows) {
        (_, [flow]) => vec![work_alone(shared, flow)],
        (Traffic::Rr(test), _) => exchange::respond::exchange_on_all(shared, flows, test)
            .unwrap_or_else(|error| flows.iter().map(|_| Err(error.kind().into())).collect()),
        _ => unreachable!("only the connections of `rr` share threads"),
    }
}

/// Runs the worker that the test, the side and the socket ask for.
fn work_alone(shared: &Shared, flow: &FlowState) -> io::Result<WorkerEnd> {
    if let Some(FlowSocket::Tcp(socket)) = &flow.socket {
        // Without other descriptors each system call costs a little less. The worker uses this one
        // alone; the owner of the half closes the socket after this thread has ended.
        let _ = sys_thread::keep_one_descriptor(socket.as_fd());
    }
    match (&shared.test.traffic, &flow.socket, shared.side) {
        (Traffic::Stream(test), Some(FlowSocket::Tcp(socket)), _) => Ok(WorkerEnd {
            method: stream::run(shared, flow, test, socket)?,
            ..WorkerEnd::default()
        }),
        (Traffic::Stream(test), Some(FlowSocket::Udp(socket)), _) => {
            let run = if flow.sends { udp::send } else { udp::receive };
            run(shared, flow, test, socket)
        }
        (Traffic::Stream(test), None, _) => transfer::run_connection(shared, flow, test),
        (Traffic::Rr(test), Some(socket), End::Client) => {
            exchange::request(shared, flow, test, socket)
        }
        (Traffic::Rr(test), Some(socket), End::Server) => {
            exchange::respond(shared, flow, test, socket)
        }
        (Traffic::Crr(test), _, End::Client) => crr::request(shared, flow, test),
        (Traffic::Crr(test), _, End::Server) => crr::respond(shared, flow, test),
        (Traffic::Rr(_), None, _) => Err(io::ErrorKind::NotConnected.into()),
    }
}

fn report(
    shared: &Shared,
    mut course: SamplerCourse,
    worked: Vec<Worked>,
    facts: HostFacts,
) -> HalfEnd {
    let usage: Vec<CpuUsage> = worked.iter().map(|worked| worked.usage).collect();
    let mut report = HalfReport {
        end: EndReport {
            qos: course.qos_evidence.take(),
            qdisc_backlog_bytes: course.backlog.as_ref().and_then(BacklogMeter::mean),
            ..course.meter.report(&usage)
        },
        facts: Box::new(facts),
        ..HalfReport::default()
    };
    report.profile = course.taken.take().map(|taken| {
        Box::new(taken.with(Circumstances {
            seconds: Duration::from_nanos(course.measured_ns).as_secs_f64(),
            threads: report.end.cpu_seconds,
            each_thread: course.meter.each_thread(&usage),
            softirq_seconds: report.end.softirq_seconds,
            busy_seconds: course.meter.busy_seconds(),
            idle_percents: course.meter.idle_percents(),
        }))
    });
    let percents = course.meter.thread_percents();
    let mut exchange = ExchangeOutcome::default();
    let ends = worked.into_iter().flat_map(|worked| worked.ends);
    let percents = shared.of_each_flow(&percents);
    for (index, end) in ends.enumerate() {
        let flow = &shared.flows[index];
        let end = end.unwrap_or_else(|error| {
            report.caveats.push(lost_flow(flow, &error));
            WorkerEnd::default()
        });
        if let Some(error) = &end.error {
            report.caveats.push(lost_flow(flow, error));
        }
        if let Some(outcome) = &end.exchange {
            exchange.merge(outcome);
        }
        let mut half = flow_half(shared, flow, &mut course, index, end);
        half.thread_percent = percents.get(index).copied().unwrap_or_default();
        report.flows.push(half);
    }
    report.caveats.extend(exchange.failures.caveat());
    HalfEnd {
        report,
        exchange: (shared.side == End::Client).then_some(exchange),
        cut_short: course.cut_short,
    }
}

fn lost_flow(flow: &FlowState, error: &io::Error) -> Caveat {
    Caveat::new(
        CaveatKind::Partial,
        format!("flow {} ended early: {error}", flow.id),
        "run it again; if it recurs, look for a device on the path that resets connections",
    )
}

fn flow_half(
    shared: &Shared,
    flow: &FlowState,
    course: &mut SamplerCourse,
    index: usize,
    end: WorkerEnd,
) -> FlowHalf {
    let totals = std::mem::take(&mut course.flows[index]);
    let (tcp, samples) = match course.probes[index].take() {
        Some(probe) => probe.evidence(totals.bytes),
        None => (end.tcp, Vec::new()),
    };
    let socket = flow.socket.as_ref();
    let (local, remote) = socket.map_or((None, None), FlowSocket::addresses);
    let text = |address: Option<std::net::SocketAddr>| {
        address.map_or_else(String::new, |address| address.to_string())
    };
    let (mut bytes, mut messages) = (totals.bytes, totals.messages);
    if let (Some(received), Traffic::Stream(test)) = (&end.udp_received, &shared.test.traffic) {
        // The sender marks the datagrams of the measured time; the receiver's clock does not tell
        // them apart.
        messages = received.received;
        bytes = messages * test.message_bytes;
    }
    let verified = matches!(&shared.test.traffic, Traffic::Stream(test) if test.verify);
    let steps = totals.steps.into_iter();
    FlowHalf {
        id: flow.id,
        direction: flow.direction,
        sends: flow.sends,
        local: text(local),
        remote: text(remote),
        bytes,
        messages,
        seconds: Duration::from_nanos(course.measured_ns).as_secs_f64(),
        steps: steps.map(|(ns, bytes)| (ns / 1000, bytes)).collect(),
        tcp,
        samples,
        udp_sent: end.udp_sent,
        udp_received: end.udp_received,
        corrupted_bytes: (verified && !flow.sends).then(|| flow.counters.corrupted()),
        thread_percent: 0.0,
        method: Some(end.method.to_owned()).filter(|method| !method.is_empty()),
        first_us: flow.counters.begun_ns().map(|begun| {
            let since = begun.saturating_sub(shared.began_ns);
            since as f64 / 1e3
        }),
    }
}

/// What a half is started with, apart from its test and its sockets.
#[derive(Default)]
pub(crate) struct HalfOptions {
    /// Profile this host during the run.
    pub(crate) profile: Option<ProfileRequest>,
    /// Gets each transaction of `crr` when it has ended.
    pub(crate) answers: Option<Sender<AnswerOutcome>>,
    /// When to begin, by [`crate::clock::now_ns`]; at once if that has passed.
    pub(crate) at_ns: Option<u64>,
    /// Header of the test's datagrams.
    pub(crate) marks: Marks,
    /// Bytes that all TCP senders together send at most; the last message is sent whole.
    pub(crate) quota: Option<u64>,
}

impl From<Marks> for HalfOptions {
    fn from(marks: Marks) -> Self {
        Self { marks, ..Self::default() }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use linerate_core::plan::Test;
    use linerate_core::record::HostFacts;
    use linerate_core::units::End;

    use super::*;
    use crate::clock::now_ns;
    use crate::measure::flow::Flow;
    use crate::measure::source::FlowSource;

    #[test]
    fn flows_send_their_first_bytes_in_order_and_not_before_the_set_time() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let flow = |id| {
            let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let socket = FlowSocket::Tcp(stream);
            (Flow { id, socket }, listener.accept().unwrap().0)
        };
        let (flows, _peers): (Vec<_>, Vec<_>) = (0..12).map(flow).unzip();
        let test = Test::stream().streams(12_u32).resolve(7).unwrap();
        let at_ns = now_ns() + 30_000_000;
        let options = HalfOptions { at_ns: Some(at_ns), ..HalfOptions::default() };
        let half = Half::start(End::Client, &test, flows, FlowSource::Bound, options).unwrap();
        let counters = half.shared.flows.iter().map(|flow| &flow.counters);
        let begun: Vec<u64> = counters.filter_map(|counters| counters.begun_ns()).collect();
        assert_eq!(begun.len(), 12);
        assert!(begun[0] >= at_ns && begun.is_sorted(), "{at_ns} {begun:?}");
        assert!(half.sent_bytes() >= 12 * stream::FIRST);
        let report = half.stop(HostFacts::default()).report;
        let first = |id: usize| report.flows[id].first_us.unwrap();
        assert!((0..11).all(|id| first(id) <= first(id + 1)));
    }
}
