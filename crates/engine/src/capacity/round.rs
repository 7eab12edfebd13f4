//! One time of opening, holding, loading, proving and closing.

use std::net::SocketAddr;
use std::time::{Duration, SystemTime};

use linerate_core::capacity::{
    CapacityHalf, CapacityTest, DESCRIPTOR_RESERVE, HoldPorts, HoldProgress, LimitReadings,
    LoadPace,
};
use linerate_core::session::ClientEvent;
use linerate_core::session::operation::Release;
use linerate_sys::clock::format_rfc3339;
use linerate_sys::proc::counters::ProtocolCounters;
use linerate_sys::proc::limits::descriptor_limit;

use super::message::Order;
use super::outcome::Run;
use super::probe::Probe;
use super::roles::roles;
use super::run::{CapacityLive, CapacityOptions, CapacityOutcome, CapacityPhase, Observe};
use super::workers::Workers;
use super::{CLOSING, MAX_WORKERS, readings, share};
use crate::client::Client;
use crate::clock::now;
use crate::error::MeasureError;

/// One time of opening, holding and closing.
pub(super) struct Round<'a> {
    pub(super) client: &'a mut Client,
    pub(super) test: CapacityTest,
    observe: Observe<'a>,
    pub(super) workers: Workers,
    pub(super) tcp_shares: Vec<u64>,
    pub(super) udp_shares: Vec<u64>,
    pub(super) ports: HoldPorts,
    pub(super) source: SocketAddr,
    limits: LimitReadings,
    pub(super) probe: Option<Probe>,
    pub(super) phase: CapacityPhase,
    began: Duration,
    pub(super) remote: HoldProgress,
    pub(super) run: Run,
}

impl<'a> Round<'a> {
    /// Gets both ends ready.
    pub(super) fn prepare(
        client: &'a mut Client,
        test: &CapacityTest,
        options: &CapacityOptions,
        observe: Observe<'a>,
    ) -> Result<Self, MeasureError> {
        let began = now();
        let run = Run::new(
            format_rfc3339(SystemTime::now()),
            readings::memory(),
            ProtocolCounters::read().ok(),
        );
        let ports = client.ask(test.request())?;
        let source = client.local_address()?;
        let limits = limits(options);
        let each = limits.descriptors_each.unwrap_or(0);
        let each = each.saturating_sub(DESCRIPTOR_RESERVE).max(1);
        let most = limits.workers_most.unwrap_or(MAX_WORKERS);
        let tcp_shares = share::workers(test.connections, each, most);
        let udp_shares = share::workers(test.udp_sockets, each, most);
        let shares = [&tcp_shares[..], &udp_shares];
        let [tcp, udp] = roles(client, test, options, &ports, source, shares);
        let workers = Workers::start(tcp, udp).map_err(MeasureError::host(
            "cannot start the processes that hold connections",
        ))?;
        let mut round = Self {
            client,
            test: test.clone(),
            observe,
            workers,
            tcp_shares,
            udp_shares,
            ports,
            source,
            limits,
            probe: None,
            phase: CapacityPhase::Preparing,
            began,
            remote: HoldProgress::default(),
            run,
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

    /// All phases, and the document of what there is at the end.
    pub(super) fn go(mut self) -> CapacityOutcome {
        let outcome = self.hold_all();
        let server = self.conclude(outcome.is_ok());
        self.finish(server, outcome)
    }

    fn hold_all(&mut self) -> Result<(), MeasureError> {
        self.measure_latency(0)?;
        self.open_tcp()?;
        self.run.after_tcp = readings::memory();
        self.open_udp()?;
        self.hold()?;
        self.load()?;
        self.prove()
    }

    /// A moment of waiting: for the workers, for the endpoint, for the user's patience to end.
    pub(super) fn turn(&mut self) -> Result<(), MeasureError> {
        self.workers
            .listen(TURN)
            .map_err(MeasureError::host("cannot wait for the workers"))?;
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
            asked: self.test.connections + self.test.udp_sockets,
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

    /// Until all workers have done what they were told; those that have not by then are told to
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
        let heartbeat_s = self.test.heartbeat.as_secs_f64();
        let (tcp, churn) = (self.tcp_shares.clone(), self.test.churn_per_s as f64);
        let connections = self.test.connections.max(1) as f64;
        self.workers.tell_each(self.workers.all(), |index| {
            let share = tcp.get(index).copied().unwrap_or(0) as f64;
            Order::Hold {
                heartbeat_s,
                churn_per_s: churn * share / connections,
            }
        });
        let began = now();
        let held = self.turns(self.test.hold.0);
        self.run.hold_seconds = (now() - began).as_secs_f64();
        self.workers.tell_all(&Order::Stop);
        held
    }

    fn load(&mut self) -> Result<(), MeasureError> {
        let Some(load) = self.test.load.clone() else {
            return Ok(());
        };
        self.phase = CapacityPhase::Loading;
        let seconds = load.time.as_secs_f64();
        let total = self.test.connections.max(1);
        // Each worker has its part of them; of a few, the first ones have one each.
        let shares = share::even(load.connections, self.tcp_shares.len() as u64);
        let shares = if load.connections >= total {
            self.tcp_shares.clone()
        } else {
            shares
        };
        self.workers.tell_each(self.workers.tcp(), |index| {
            let share = shares[index];
            let per_s = match load.pace {
                LoadPace::Closed => None,
                LoadPace::PerSecond(rate) => {
                    Some(rate as f64 * share as f64 / load.connections as f64)
                }
            };
            match share {
                0 => Order::Stop,
                connections => Order::Load {
                    connections,
                    seconds,
                    per_s,
                },
            }
        });
        self.finish_orders(load.time.0 + PROVING)
    }

    /// Each of them answers once more; who does not is lost.
    fn prove(&mut self) -> Result<(), MeasureError> {
        self.phase = CapacityPhase::Proving;
        self.workers.tell_all(&Order::Sweep);
        let all = self.test.connections + self.test.udp_sockets;
        let patience = PROVING + Duration::from_secs(all / SLOWEST_PROOF);
        self.finish_orders(patience)
    }

    /// Takes the accounts of both ends, has the endpoint close its end, and then closes this one.
    fn conclude(&mut self, complete: bool) -> Result<CapacityHalf, MeasureError> {
        self.phase = CapacityPhase::Closing;
        self.probe = None;
        self.workers.tell_all(&Order::Report);
        let patience = if complete { REPORTING } else { LAST_REPORTS };
        let until = now() + patience;
        while !self.workers.has_reported() && now() < until {
            // The accounts are taken also of an interrupted run.
            let _ = self.turn();
        }
        self.run.height = readings::memory();
        self.run.closing_began = now();
        let half = self
            .client
            .ask_at_the_end(Release, !complete, LAST_ACCOUNT)?;
        Ok(*half)
    }

    /// Closes this end and puts the accounts together.
    fn finish(
        self,
        server: Result<CapacityHalf, MeasureError>,
        outcome: Result<(), MeasureError>,
    ) -> CapacityOutcome {
        let Self {
            client,
            test,
            workers,
            mut run,
            began,
            limits,
            ..
        } = self;
        let mut own = workers.account();
        run.tcp_sums = workers.report(workers.tcp());
        run.udp_sums = workers.report(workers.udp());
        workers.end(CLOSING);
        own.memory.after = readings::memory_when_closed(&run.before, true);
        own.counters = readings::counters_since(run.counters.as_ref());
        own.limits = limits;
        run.close_seconds = Some((now() - run.closing_began).as_secs_f64());
        run.seconds = (now() - began).as_secs_f64();
        let (server, error) = match (server, outcome) {
            (Ok(server), Ok(())) => (Some(server), None),
            (Ok(server), Err(error)) => (Some(server), Some(error)),
            (Err(_), Err(error)) | (Err(error), Ok(())) => (None, Some(error)),
        };
        let document = run.document(client, test, own, server, error.is_some());
        CapacityOutcome { document, error }
    }
}

/// Of this end, and of what it was told to do with less.
fn limits(options: &CapacityOptions) -> LimitReadings {
    let each = descriptor_limit().map_or(1024, |limit| limit.hard);
    LimitReadings {
        descriptors_each: Some(options.descriptors.map_or(each, |few| few.min(each))),
        ..readings::limits(options.workers.unwrap_or(MAX_WORKERS))
    }
}

/// Longest wait without a look at the control connection and the stop flag.
const TURN: Duration = Duration::from_millis(10);
/// For the answers to the last heartbeats.
const PROVING: Duration = Duration::from_secs(30);
/// Heartbeats a second that every path carries.
const SLOWEST_PROOF: u64 = 10_000;
const REPORTING: Duration = Duration::from_secs(30);
/// For the endpoint's account of an interrupted run.
const LAST_ACCOUNT: Duration = Duration::from_secs(10);
const LAST_REPORTS: Duration = Duration::from_secs(2);
