//! One round: opening, holding, loading, checking and closing connections.

use std::net::SocketAddr;
use std::time::{Duration, SystemTime};

use linerate_core::capacity::{
    self, CapacityDocument, CapacityHalf, CapacityTest, DESCRIPTOR_RESERVE, HoldPort, HoldPorts,
    HoldProgress, LimitReadings, LoadPace,
};
use linerate_core::record::Status;
use linerate_core::session::ClientEvent;
use linerate_core::session::operation::Release;
use linerate_core::units::format_rfc3339;
use linerate_sys::proc::counters::ProtocolCounters;
use linerate_sys::proc::privilege::descriptor_limit;

use super::message::{Connect, Order, Terms, WorkerRole};
use super::opening::{Opening, Probe};
use super::run::{CapacityLive, CapacityOptions, CapacityOutcome, CapacityPhase, Observe};
use super::workers::{TCP, UDP, Workers};
use super::{CLOSING, MAX_WORKERS, readings, run, workers};
use crate::client::{Client, both};
use crate::clock::now;
use crate::error::MeasureError;

/// A round and its state.
pub(super) struct Round<'a> {
    pub(super) client: &'a mut Client,
    observe: Observe<'a>,
    pub(super) workers: Workers,
    /// The TCP connections, and the UDP sockets.
    pub(super) openings: [Opening; 2],
    pub(super) ports: HoldPorts,
    pub(super) source: SocketAddr,
    pub(super) probe: Option<Probe>,
    pub(super) phase: CapacityPhase,
    began: Duration,
    hold_seconds: f64,
    /// The kernel's slab memory when TCP was open and UDP was not.
    slab_between: Option<u64>,
    pub(super) remote: HoldProgress,
    counters: Option<ProtocolCounters>,
    /// The document so far.
    pub(super) document: CapacityDocument,
}

impl<'a> Round<'a> {
    /// Prepares both ends.
    pub(super) fn prepare(
        client: &'a mut Client,
        test: &CapacityTest,
        options: &CapacityOptions,
        observe: Observe<'a>,
    ) -> Result<Self, MeasureError> {
        let began = now();
        let mut document = run::new_document(client, test, format_rfc3339(SystemTime::now()));
        document.client.memory.before = readings::memory();
        let counters = ProtocolCounters::read().ok();
        let ports = client.ask(test.request())?;
        let source = client.local_address()?;
        document.client.limits = limits(options);
        let limits = &document.client.limits;
        let each = limits.descriptors_each.unwrap_or(0).saturating_sub(DESCRIPTOR_RESERVE).max(1);
        let most = limits.workers_most.unwrap_or(MAX_WORKERS);
        let tcp = workers::shares(test.connections, each, most);
        let udp = workers::shares(test.udp_sockets, each, most);
        let roles = roles(client, test, options, &ports, source, [&tcp, &udp]);
        let workers = Workers::start(roles)
            .map_err(MeasureError::host("cannot start the processes that hold connections"))?;
        let mut round = Self {
            client,
            observe,
            workers,
            openings: [Opening::new(test.connections, tcp), Opening::new(test.udp_sockets, udp)],
            ports,
            source,
            probe: None,
            phase: CapacityPhase::Preparing,
            began,
            hold_seconds: 0.0,
            slab_between: None,
            remote: HoldProgress::default(),
            counters,
            document,
        };
        round.await_workers()?;
        Ok(round)
    }

    fn await_workers(&mut self) -> Result<(), MeasureError> {
        loop {
            match self.workers.ports() {
                Ok(Some(_)) => return Ok(()),
                Ok(None) => self.turn()?,
                Err(message) => {
                    let what = format!("cannot hold connections: {message}");
                    return Err(MeasureError::host(what)(std::io::ErrorKind::Other.into()));
                }
            }
        }
    }

    /// Goes through all phases; the outcome has the document, even if a phase fails.
    pub(super) fn go(mut self) -> CapacityOutcome {
        let outcome = self.hold_all();
        let (server, closing_began) = self.conclude(outcome.is_ok());
        self.finish(both(server, outcome), closing_began)
    }

    fn hold_all(&mut self) -> Result<(), MeasureError> {
        self.measure_latency(0)?;
        self.open_tcp()?;
        let before = self.document.client.memory.before.slab_bytes;
        let between = readings::memory().slab_bytes;
        self.openings[TCP].slab_bytes = grown(before, between);
        self.slab_between = between;
        self.open_udp()?;
        self.hold()?;
        self.load()?;
        self.prove()
    }

    /// Waits a moment for messages of the workers and of the endpoint, and reports the progress.
    ///
    /// # Errors
    /// The session failed; the user has stopped the run.
    pub(super) fn turn(&mut self) -> Result<(), MeasureError> {
        self.workers.listen(TURN).map_err(MeasureError::host("cannot wait for the workers"))?;
        let events = self.client.control_events();
        for event in events {
            match event {
                ClientEvent::Held(progress) => self.remote = progress,
                ClientEvent::Failed(error) => return Err(self.client.session_error(error)),
                _ => {}
            }
        }
        let totals = self.workers.status(self.workers.all());
        let live = CapacityLive {
            at_s: (now() - self.began).as_secs_f64(),
            phase: self.phase,
            asked: self.asked(),
            open: totals.open,
            lost: totals.lost.total(),
        };
        if !(self.observe)(&live) || self.client.is_stopped() {
            Err(MeasureError::Interrupted)
        } else {
            Ok(())
        }
    }

    pub(super) fn turns(&mut self, time: Duration) -> Result<(), MeasureError> {
        let until = now() + time;
        while now() < until {
            self.turn()?;
        }
        Ok(())
    }

    /// Waits until all workers have carried out their orders. After `patience` they are told to
    /// stop.
    pub(super) fn finish_orders(&mut self, patience: Duration) -> Result<(), MeasureError> {
        let until = now() + patience;
        while !self.workers.is_idle() {
            if now() >= until {
                self.workers.tell_all(&Order::Stop);
                return Ok(());
            }
            self.turn()?;
        }
        Ok(())
    }

    fn hold(&mut self) -> Result<(), MeasureError> {
        self.phase = CapacityPhase::Holding;
        let test = &self.document.test;
        let (heartbeat_s, churn) = (test.heartbeat.as_secs_f64(), test.churn_per_s as f64);
        let time = test.hold.0;
        let connections = test.connections.max(1) as f64;
        let tcp = &self.openings[TCP].shares;
        self.workers.tell_each(self.workers.all(), |index| {
            let share = tcp.get(index).copied().unwrap_or(0) as f64;
            Order::Hold { heartbeat_s, churn_per_s: churn * share / connections }
        });
        let began = now();
        let held = self.turns(time);
        self.hold_seconds = (now() - began).as_secs_f64();
        self.workers.tell_all(&Order::Stop);
        held
    }

    fn load(&mut self) -> Result<(), MeasureError> {
        let Some(load) = self.document.test.load.clone() else {
            return Ok(());
        };
        self.phase = CapacityPhase::Loading;
        let seconds = load.time.as_secs_f64();
        let tcp = &self.openings[TCP];
        // Each worker has its part of the load; of a few connections the first workers have one
        // each.
        let shares = if load.connections >= tcp.asked {
            tcp.shares.clone()
        } else {
            workers::even(load.connections, tcp.shares.len() as u64)
        };
        self.workers.tell_each(self.workers.pool(TCP), |index| {
            let share = shares[index];
            let per_s = match load.pace {
                LoadPace::Closed => None,
                LoadPace::PerSecond(rate) => {
                    Some(rate as f64 * share as f64 / load.connections as f64)
                }
            };
            match share {
                0 => Order::Stop,
                connections => Order::Load { connections, seconds, per_s },
            }
        });
        self.finish_orders(load.time.0 + PROVING)
    }

    /// Checks every connection by a last heartbeat; those without an answer are lost.
    fn prove(&mut self) -> Result<(), MeasureError> {
        self.phase = CapacityPhase::Proving;
        self.workers.tell_all(&Order::Sweep);
        let patience = PROVING + Duration::from_secs(self.asked() / SLOWEST_PROOF);
        self.finish_orders(patience)
    }

    fn asked(&self) -> u64 {
        self.openings.iter().map(|opening| opening.asked).sum()
    }

    /// Takes the reports of the workers, and has the endpoint close its end; the result has the
    /// endpoint's half, and when closing began.
    fn conclude(&mut self, complete: bool) -> (Result<CapacityHalf, MeasureError>, Duration) {
        self.phase = CapacityPhase::Closing;
        self.probe = None;
        self.workers.tell_all(&Order::Report);
        let patience = if complete { REPORTING } else { LAST_REPORTS };
        let until = now() + patience;
        while !self.workers.has_reported() && now() < until {
            // The reports are taken even if the run is interrupted.
            let _ = self.turn();
        }
        let height = readings::memory();
        self.openings[UDP].slab_bytes = grown(self.slab_between, height.slab_bytes);
        self.document.client.memory.height = height;
        let closing_began = now();
        let half = self.client.ask_at_the_end(Release, !complete, LAST_ACCOUNT);
        (half.map(|half| *half), closing_began)
    }

    /// Closes this end and completes the document.
    fn finish(
        self,
        (server, error): (Option<CapacityHalf>, Option<MeasureError>),
        closing_began: Duration,
    ) -> CapacityOutcome {
        let (workers, mut document) = (self.workers, self.document);
        let reports = [TCP, UDP].map(|which| workers.report(workers.pool(which)));
        let account = workers.account();
        workers.end(CLOSING);
        let CapacityHalf { mut memory, limits, .. } = document.client;
        memory.after = readings::memory_when_closed(&memory.before, true);
        document.client = CapacityHalf {
            memory,
            limits,
            counters: readings::counters_since(self.counters.as_ref()),
            ..account
        };
        document.close_seconds = Some((now() - closing_began).as_secs_f64());
        document.seconds = (now() - self.began).as_secs_f64();
        let [tcp, udp] = &self.openings;
        let own = &document.client;
        document.tcp = run::pool_result(tcp, &reports[TCP], &own.tcp);
        document.udp = run::pool_result(udp, &reports[UDP], &own.udp);
        let test = &document.test;
        document.churn = run::churn_result(test.churn_per_s, &reports[TCP], self.hold_seconds);
        let load = test.load.as_ref().map(|_| run::load_result(&reports[TCP]));
        // A run that was stopped before its load has none.
        document.load = load.filter(|load| load.connections > 0);
        run::add_server(&mut document, self.client, server);
        document.status = Status::new(error.is_none());
        capacity::annotate(&mut document);
        CapacityOutcome { document, error }
    }
}

/// The roles of workers with these numbers of TCP connections, and of UDP sockets. `source` is this
/// host's address on the control connection.
fn roles(
    client: &Client,
    test: &CapacityTest,
    options: &CapacityOptions,
    ports: &HoldPorts,
    source: SocketAddr,
    [tcp, udp]: [&[u64]; 2],
) -> [Vec<WorkerRole>; 2] {
    let sources = if test.sources.is_empty() {
        vec![source]
    } else {
        let all = test.sources.iter();
        all.map(|ip| SocketAddr::new(*ip, 0)).collect()
    };
    let plain = Connect {
        terms: Terms::new(client.session_token(), &test.request(), options.descriptors),
        peer: client.peer(),
        ports: Vec::new(),
        sources,
        port_range: readings::port_range().unwrap_or(USUAL_PORTS),
        backlog: ports.backlog,
        patience_s: ports.patience_s,
        first_number: 0,
        seed: test.seed,
    };
    let of = |ports: &[HoldPort], shares: &[u64], role: fn(Connect) -> WorkerRole| {
        let mut first_number = 0;
        let dealt = workers::deal(ports, shares).into_iter().zip(shares);
        dealt
            .map(|(ports, share)| {
                let connect = Connect {
                    ports,
                    first_number,
                    seed: test.seed.wrapping_add(first_number),
                    ..plain.clone()
                };
                first_number += share;
                role(connect)
            })
            .collect()
    };
    [of(&ports.tcp, tcp, WorkerRole::OpenTcp), of(&ports.udp, udp, WorkerRole::OpenUdp)]
}

fn grown(before: Option<u64>, after: Option<u64>) -> Option<u64> {
    let (before, after) = before.zip(after)?;
    Some(after.saturating_sub(before))
}

/// The limits of this end: those of the host, or the lower ones of the options.
fn limits(options: &CapacityOptions) -> LimitReadings {
    let each = descriptor_limit().hard;
    LimitReadings {
        descriptors_each: Some(options.descriptors.map_or(each, |few| few.min(each))),
        ..readings::limits(options.workers.unwrap_or(MAX_WORKERS))
    }
}

/// Linux's own default range.
const USUAL_PORTS: (u16, u16) = (32_768, 60_999);
/// Longest wait without a look at the control connection and the stop flag.
const TURN: Duration = Duration::from_millis(10);
/// Longest wait for the answers to the last heartbeats.
const PROVING: Duration = Duration::from_secs(30);
/// Heartbeats per second that every path carries.
const SLOWEST_PROOF: u64 = 10_000;
const REPORTING: Duration = Duration::from_secs(30);
/// Longest wait for the endpoint's half of an interrupted run.
const LAST_ACCOUNT: Duration = Duration::from_secs(10);
const LAST_REPORTS: Duration = Duration::from_secs(2);
