//! The state that the workers, the sampler and the controller of a half share.

use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::thread;

use linerate_core::foreign::iperf3::Layout;
use linerate_core::plan::{Direction, Test, Traffic};
use linerate_core::record::TcpEvidence;
use linerate_core::session::message::{UdpReceived, UdpSent};
use linerate_core::units::End;

use super::exchange::{Pages, crowd};
use super::flow::{Counters, Flow, FlowSocket, flow_direction, sends};
use super::half::HalfOptions;
use super::outcome::{AnswerOutcome, ExchangeOutcome};
use super::source::FlowSource;
use crate::clock::now_ns;
use crate::stop::Stop;

/// A flow of a running test.
pub(crate) struct FlowState {
    pub(crate) id: u32,
    pub(crate) direction: Direction,
    pub(crate) sends: bool,
    /// `None` where connections come and go within the run.
    pub(crate) socket: Option<FlowSocket>,
    pub(crate) counters: Counters,
}

/// The header of a test's datagrams.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Marks {
    /// linerate's own, which tells the warm-up from the measured time.
    #[default]
    Own,
    /// iperf3's.
    Iperf3(Layout),
    /// None: netperf and ttcp send payload alone.
    None,
}

/// Bytes that the senders of a half may still send together.
pub(crate) struct Quota(AtomicU64);

impl Quota {
    /// Takes a message's bytes; false if none are left.
    pub(crate) fn take(&self, bytes: u64) -> bool {
        let left = |left: u64| (left > 0).then(|| left.saturating_sub(bytes));
        self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, left).is_ok()
    }
}

/// The state that workers, sampler and controller of a half share.
pub(crate) struct Shared {
    pub(crate) side: End,
    pub(crate) test: Test,
    pub(crate) marks: Marks,
    /// Set where only the peer ends the test.
    pub(crate) quota: Option<Quota>,
    pub(crate) flows: Vec<FlowState>,
    /// The flows of each worker: one, or several that share its thread.
    pub(crate) shares: Vec<Range<usize>>,
    pub(crate) source: FlowSource,
    /// Gets each transaction of `crr` when it has ended.
    pub(crate) answers: Option<Sender<AnswerOutcome>>,
    /// The page that a test of pages fetches at present.
    pub(crate) pages: Option<Pages>,
    pub(crate) stop: Stop,
    pub(crate) began_ns: u64,
    /// The half begins at a set time.
    pub(crate) is_timed: bool,
    /// The workers may begin.
    let_go: AtomicBool,
    finished: AtomicBool,
    working: AtomicU64,
}

impl Shared {
    /// The state of a half that begins now or at its set time; `flows` are the connected sockets.
    pub(crate) fn new(
        side: End,
        test: &Test,
        flows: Vec<Flow>,
        source: FlowSource,
        options: HalfOptions,
    ) -> Self {
        let flows = flow_states(side, test, flows);
        let began_ns = now_ns().max(options.at_ns.unwrap_or(0));
        let alone = || (0..flows.len()).map(|flow| flow..flow + 1).collect();
        let shares: Vec<Range<usize>> = crowd::shares(side, test).unwrap_or_else(alone);
        Self {
            side,
            marks: options.marks,
            quota: options.quota.map(|bytes| Quota(bytes.into())),
            test: test.clone(),
            working: AtomicU64::new(shares.len() as u64),
            flows,
            shares,
            source,
            answers: options.answers,
            pages: match &test.traffic {
                Traffic::Rr(exchange) => {
                    let pages = |objects| Pages::new(objects, exchange.rate_per_s, began_ns);
                    exchange.objects.map(pages)
                }
                Traffic::Stream(_) | Traffic::Crr(_) => None,
            },
            stop: Stop::new(),
            began_ns,
            is_timed: options.at_ns.is_some(),
            let_go: AtomicBool::new(false),
            finished: AtomicBool::new(false),
        }
    }

    /// Waits until the workers may begin; whoever lets them go also unparks each.
    pub(crate) fn await_the_others(&self) {
        while !self.let_go.load(Ordering::Acquire) {
            thread::park();
        }
    }

    pub(crate) fn let_go(&self) {
        self.let_go.store(true, Ordering::Release);
    }

    /// Whether the measured time is over, or every worker is done.
    pub(crate) fn is_finished(&self) -> bool {
        self.finished.load(Ordering::Acquire)
    }

    pub(crate) fn set_finished(&self) {
        self.finished.store(true, Ordering::Release);
    }

    pub(crate) fn worker_is_done(&self) {
        self.working.fetch_sub(1, Ordering::AcqRel);
    }

    /// Whether every worker is done.
    pub(crate) fn all_done(&self) -> bool {
        self.working.load(Ordering::Acquire) == 0
    }

    /// The counters of each worker: those of its first flow.
    pub(crate) fn workers(&self) -> Vec<&Counters> {
        let first = self.shares.iter().map(|share| &self.flows[share.start]);
        first.map(|flow| &flow.counters).collect()
    }

    /// Splits a figure of each worker evenly between its flows.
    pub(crate) fn of_each_flow(&self, figures: &[f64]) -> Vec<f64> {
        let shares = self.shares.iter().zip(figures);
        shares
            .flat_map(|(share, figure)| share.clone().map(move |_| figure / share.len() as f64))
            .collect()
    }
}

/// What a worker reports at its end, apart from its counters.
#[derive(Default)]
pub(crate) struct WorkerEnd {
    /// System call that sent or received, such as `sendmmsg`.
    pub(crate) method: &'static str,
    pub(crate) udp_sent: Option<UdpSent>,
    pub(crate) udp_received: Option<UdpReceived>,
    pub(crate) exchange: Option<ExchangeOutcome>,
    /// TCP's evidence, where only the worker has the socket.
    pub(crate) tcp: Option<TcpEvidence>,
    /// What ended it early, where there are figures all the same.
    pub(crate) error: Option<io::Error>,
}

fn flow_states(side: End, test: &Test, flows: Vec<Flow>) -> Vec<FlowState> {
    let mut sockets: Vec<Option<FlowSocket>> = (0..test.flows()).map(|_| None).collect();
    for flow in flows {
        if let Some(slot) = sockets.get_mut(flow.id as usize) {
            *slot = Some(flow.socket);
        }
    }
    (0..)
        .zip(sockets)
        .map(|(id, socket)| {
            let direction = flow_direction(test, id);
            FlowState {
                id,
                direction,
                sends: sends(side, direction),
                socket,
                counters: Counters::default(),
            }
        })
        .collect()
}

#[cfg(test)]
impl Shared {
    /// A half without threads, for a test that calls the worker of its one flow itself.
    pub(crate) fn alone(side: End, test: &Test, source: FlowSource) -> Self {
        Self::new(side, test, Vec::new(), source, HalfOptions::default())
    }
}
