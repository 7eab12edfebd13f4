//! The client's part of a run: opening, measuring beside what is open, holding, loading, proving, closing.

use std::net::SocketAddr;
use std::ops::Range;
use std::time::{Duration, SystemTime};

use linerate_core::capacity::{
    self, CapacityDocument, CapacityHalf, CapacityTest, FailureCause, HoldPorts, HoldProgress,
    LatencyAt, LoadPace, RampStep, Search,
};
use linerate_core::record::{Caveat, CaveatKind};
use linerate_core::session::{ClientEvent, SessionError};
use linerate_core::stats::LatencyHistogram;
use linerate_core::wire::message::{CAPACITY, Refusal, RefusalReason};
use linerate_sys::clock::format_rfc3339;
use linerate_sys::proc::counters::ProtocolCounters;
use linerate_sys::proc::limits::descriptor_limit;

use super::crew::{Crew, Totals};
use super::holding::half;
use super::message::{Connect, Order, Terms};
use super::outcome::{Opening, Run};
use super::probe::Probe;
use super::tally::is_lasting;
use super::{CLOSING, DESCRIPTOR_RESERVE, MOST_WORKERS, readings, share};
use crate::client::Client;
use crate::clock::{now, now_ns};
use crate::error::MeasureError;
use crate::words;

/// How this end holds connections.
#[derive(Debug, Clone, Copy, Default)]
pub struct CapacityOptions {
    /// Descriptors of each worker, fewer than the host allows.
    pub descriptors: Option<u64>,
    /// Worker processes of each kind, fewer than usual. More connections than they can hold find the limit.
    pub workers: Option<u64>,
}

/// What a run is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CapacityPhase {
    /// Both ends start their workers.
    Preparing,
    /// TCP connections are opened.
    Opening,
    /// UDP sockets are opened.
    OpeningUdp,
    /// An active connection's latency is measured.
    Measuring,
    /// All are held, and prove themselves alive in turn.
    Holding,
    /// Requests go over a part of them.
    Loading,
    /// Each proves itself alive once more.
    Proving,
    /// All is closed.
    Closing,
}

/// How a run goes, for a progress line.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CapacityLive {
    /// Since it began, s.
    pub at_s: f64,
    /// What it is doing.
    pub phase: CapacityPhase,
    /// Connections and UDP sockets that are to be opened in this round.
    pub asked: u64,
    /// Open at present.
    pub open: u64,
    /// Gone.
    pub lost: u64,
}

/// One run's outcome: what there is to record, and what ended it early.
#[derive(Debug)]
pub struct CapacityOutcome {
    /// The document; partial if `error` is set.
    pub document: CapacityDocument,
    /// Why it ended before its time.
    pub error: Option<MeasureError>,
}

/// Answers false to end the run.
type Observe<'a> = &'a mut dyn FnMut(&CapacityLive) -> bool;

impl Client {
    /// Whether the endpoint holds connections.
    ///
    /// # Errors
    /// [`MeasureError::Lacks`] if it is too old for that.
    pub fn check_holds(&self) -> Result<(), MeasureError> {
        let welcome = self.welcome();
        if welcome.operations.iter().any(|name| name == CAPACITY) {
            return Ok(());
        }
        Err(MeasureError::Lacks {
            peer: self.peer(),
            what: format!(
                "its linerate {} holds no connections: a newer one does",
                welcome.software
            ),
        })
    }

    /// Opens and holds connections, or searches for the number at which that stops. `observe` is called about a hundred
    /// times a second; if it answers false, the run is stopped as by [`crate::Stop::request`].
    ///
    /// # Errors
    /// It could not be begun: the endpoint does not have the operation or refuses, this host cannot start the workers.
    /// One that began always has an outcome.
    pub fn capacity(
        &mut self,
        test: &CapacityTest,
        options: &CapacityOptions,
        observe: Observe<'_>,
    ) -> Result<CapacityOutcome, MeasureError> {
        self.check_holds()?;
        test.check().map_err(|error| {
            self.refused(Refusal {
                reason: RefusalReason::Test,
                message: error.to_string(),
            })
        })?;
        match test.find_limit {
            true => self.search_limit(test, options, observe),
            false => Round::prepare(self, test, options, observe).map(Round::go),
        }
    }

    fn search_limit(
        &mut self,
        test: &CapacityTest,
        options: &CapacityOptions,
        observe: Observe<'_>,
    ) -> Result<CapacityOutcome, MeasureError> {
        let is_tcp = test.connections > 0;
        let most = if is_tcp {
            test.connections
        } else {
            test.udp_sockets
        };
        let mut search = Search::new(most);
        let mut best: Option<(u64, CapacityOutcome)> = None;
        while let Some(asked) = search.next_number() {
            let (connections, udp_sockets) = if is_tcp { (asked, 0) } else { (0, asked) };
            let round = CapacityTest {
                connections,
                udp_sockets,
                churn_per_s: 0,
                load: None,
                latency: false,
                ..test.clone()
            };
            let outcome = Round::prepare(self, &round, options, observe)?.go();
            let document = &outcome.document;
            let pool = document.tcp.as_ref().or(document.udp.as_ref());
            let held = pool.map_or(0, |pool| pool.alive);
            let ended = outcome.error.is_some();
            if !ended {
                search.handle_round(held);
            }
            // The round that stopped says why; of rounds that held as many, the one that was asked for more.
            if best.as_ref().is_none_or(|(most, _)| held >= *most) || ended {
                best = Some((held, outcome));
            }
            if ended {
                break;
            }
        }
        let (_, mut outcome) = best.ok_or(MeasureError::Interrupted)?;
        outcome.document.test.find_limit = true;
        outcome.document.search = Some(search.found());
        capacity::annotate(&mut outcome.document);
        Ok(outcome)
    }
}

/// One time of opening, holding and closing.
struct Round<'a> {
    client: &'a mut Client,
    test: CapacityTest,
    observe: Observe<'a>,
    crew: Crew,
    tcp_shares: Vec<u64>,
    udp_shares: Vec<u64>,
    ports: HoldPorts,
    source: SocketAddr,
    probe: Option<Probe>,
    phase: CapacityPhase,
    began: Duration,
    remote: HoldProgress,
    run: Run,
}

impl<'a> Round<'a> {
    /// Gets both ends ready.
    fn prepare(
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
        let ports = client.ask_to_hold(test)?;
        let source = client.local_address()?;
        let each = descriptor_limit().map_or(1024, |limit| limit.hard);
        let each = options.descriptors.map_or(each, |few| few.min(each));
        let each = each.saturating_sub(DESCRIPTOR_RESERVE).max(1);
        let most = options.workers.unwrap_or(MOST_WORKERS);
        let tcp_shares = share::workers(test.connections, each, most);
        let udp_shares = share::workers(test.udp_sockets, each, most);
        let orders = orders(
            client,
            test,
            options,
            &ports,
            source,
            [&tcp_shares, &udp_shares],
        );
        let crew = Crew::start(&orders).map_err(MeasureError::host(
            "cannot start the processes that hold connections",
        ))?;
        let mut round = Self {
            client,
            test: test.clone(),
            observe,
            crew,
            tcp_shares,
            udp_shares,
            ports,
            source,
            probe: None,
            phase: CapacityPhase::Preparing,
            began,
            remote: HoldProgress::default(),
            run,
        };
        loop {
            match round.crew.ports() {
                Ok(Some(_)) => return Ok(round),
                Ok(None) => round.turn()?,
                Err(message) => {
                    let what = format!("cannot hold connections: {message}");
                    return Err(MeasureError::host(what)(std::io::ErrorKind::Other.into()));
                }
            }
        }
    }

    /// All phases, and the document of what there is at the end.
    fn go(mut self) -> CapacityOutcome {
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

    fn tcp(&self) -> Range<usize> {
        0..self.tcp_shares.len()
    }

    fn udp(&self) -> Range<usize> {
        self.tcp_shares.len()..self.tcp_shares.len() + self.udp_shares.len()
    }

    fn totals(&self) -> Totals {
        self.crew.totals(0..self.crew.len())
    }

    /// A moment of waiting: for the workers, for the endpoint, for the user's patience to end.
    fn turn(&mut self) -> Result<(), MeasureError> {
        self.crew
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
        let totals = self.totals();
        let live = CapacityLive {
            at_s: (now() - self.began).as_secs_f64(),
            phase: self.phase,
            asked: self.test.connections + self.test.udp_sockets,
            open: totals.open,
            lost: totals.lost.total(),
        };
        match !(self.observe)(&live) || self.client.is_stopped() {
            true => Err(MeasureError::Interrupted),
            false => Ok(()),
        }
    }

    fn turns(&mut self, time: Duration) -> Result<(), MeasureError> {
        let until = now() + time;
        while now() < until {
            self.turn()?;
        }
        Ok(())
    }

    /// Until all workers have done what they were told; those that have not by then are told to stop.
    fn finish_orders(&mut self, patience: Duration) -> Result<(), MeasureError> {
        let until = now() + patience;
        while !self.crew.is_idle() {
            if now() >= until {
                self.crew.tell_all(&Order::Rest);
                return Ok(());
            }
            self.turn()?;
        }
        Ok(())
    }

    fn open_tcp(&mut self) -> Result<(), MeasureError> {
        let total = self.test.connections;
        let steps: &[u64] = match self.test.latency && total >= LEAST_STEPPED {
            true => &[10, 2, 1],
            false => &[1],
        };
        for part in steps {
            let population = total / part;
            self.phase = CapacityPhase::Opening;
            let goes_on = self.ramp(self.tcp(), population, total)?;
            let open = self.crew.totals(self.tcp()).open;
            if total > 0 {
                self.measure_latency(open)?;
            }
            if !goes_on {
                break;
            }
        }
        Ok(())
    }

    fn open_udp(&mut self) -> Result<(), MeasureError> {
        self.phase = CapacityPhase::OpeningUdp;
        let total = self.test.udp_sockets;
        self.ramp(self.udp(), total, total).map(drop)
    }

    /// Opens until there are `to` of `total` in the pool; false if something keeps it from having more.
    fn ramp(&mut self, which: Range<usize>, to: u64, total: u64) -> Result<bool, MeasureError> {
        if total == 0 {
            return Ok(true);
        }
        let is_tcp = which.start == 0 && !self.tcp_shares.is_empty();
        let shares = match is_tcp {
            true => self.tcp_shares.clone(),
            false => self.udp_shares.clone(),
        };
        let rate = self.test.rate_per_s;
        let before = self.opening(is_tcp).seconds;
        let began = now_ns();
        self.crew.tell_each(which.clone(), |index| {
            let part = shares[index] as f64 / total as f64;
            Order::Ramp {
                to: match to == total {
                    true => shares[index],
                    false => (part * to as f64) as u64,
                },
                rate_per_s: rate.map(|rate| rate as f64 * part),
            }
        });
        let mut next_step = 0;
        let mut goes_on = true;
        let mut moved = (0, now());
        while !self.crew.is_idle() {
            self.turn()?;
            let totals = self.crew.totals(which.clone());
            let seconds = since(began, now_ns());
            if now_ns() >= next_step {
                next_step = now_ns() + STEP_EVERY;
                self.opening(is_tcp).step(RampStep {
                    at_s: before + seconds,
                    opened: totals.opened,
                });
            }
            let progress = totals.opened + totals.failures.total();
            if progress != moved.0 {
                moved = (progress, now());
            }
            let stuck = rate.is_none() && now() - moved.1 > STUCK;
            if self.remote_is_full() || stuck {
                self.crew.tell_all(&Order::Rest);
                goes_on = false;
                break;
            }
        }
        let totals = self.crew.totals(which);
        let opening = self.opening(is_tcp);
        opening.seconds = before + since(began, totals.last_open_ns);
        opening.step(RampStep {
            at_s: opening.seconds,
            opened: totals.opened,
        });
        Ok(goes_on && totals.stopped.is_none())
    }

    fn opening(&mut self, is_tcp: bool) -> &mut Opening {
        match is_tcp {
            true => &mut self.run.tcp,
            false => &mut self.run.udp,
        }
    }

    /// The endpoint has said that it can take no more.
    fn remote_is_full(&self) -> bool {
        let mut failures = self.remote.failures.iter();
        failures.any(|f| is_lasting(f.cause) || f.cause == FailureCause::WorkerLost)
    }

    /// An active connection beside so many idle ones.
    fn measure_latency(&mut self, population: u64) -> Result<(), MeasureError> {
        if !self.test.latency || self.ports.tcp.is_empty() {
            return Ok(());
        }
        self.phase = CapacityPhase::Measuring;
        // What was opened last is still being taken off the queues.
        self.turns(QUIET)?;
        let mut histogram = LatencyHistogram::new();
        if let Err(error) = self.exchange(&mut histogram)? {
            let words = format!("an active connection's latency is not known: {error}");
            let caveat = Caveat::new(CaveatKind::NotReadable, words, "");
            self.run.caveats.push(caveat);
            self.probe = None;
        }
        if let Some(latency_us) = histogram.summary() {
            self.run.latency.push(LatencyAt {
                population,
                latency_us,
            });
        }
        Ok(())
    }

    fn exchange(
        &mut self,
        histogram: &mut LatencyHistogram,
    ) -> Result<std::io::Result<()>, MeasureError> {
        if self.probe.is_none() {
            let mut peer = self.client.peer();
            peer.set_port(self.ports.tcp[0].port);
            match Probe::connect(peer, self.source, self.client.session_token()) {
                Ok(probe) => self.probe = Some(probe),
                Err(error) => return Ok(Err(error)),
            }
        }
        let until = now() + MEASURING;
        let mut warm_up = LatencyHistogram::new();
        for slice in 0..=SLICES {
            let Some(probe) = &mut self.probe else {
                break;
            };
            let kept = if slice == 0 {
                &mut warm_up
            } else {
                &mut *histogram
            };
            if let Err(error) = probe.run(EXCHANGES, kept) {
                return Ok(Err(error));
            }
            self.turn()?;
            if now() >= until {
                break;
            }
        }
        Ok(Ok(()))
    }

    fn hold(&mut self) -> Result<(), MeasureError> {
        self.phase = CapacityPhase::Holding;
        let heartbeat_s = self.test.heartbeat.as_secs_f64();
        let (tcp, churn) = (self.tcp_shares.clone(), self.test.churn_per_s as f64);
        let connections = self.test.connections.max(1) as f64;
        self.crew.tell_each(0..self.crew.len(), |index| {
            let share = tcp.get(index).copied().unwrap_or(0) as f64;
            Order::Hold {
                heartbeat_s,
                churn_per_s: churn * share / connections,
            }
        });
        let began = now();
        let held = self.turns(self.test.hold.0);
        self.run.hold_seconds = (now() - began).as_secs_f64();
        self.crew.tell_all(&Order::Rest);
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
        let shares = match load.connections >= total {
            true => self.tcp_shares.clone(),
            false => shares,
        };
        self.crew.tell_each(self.tcp(), |index| {
            let share = shares[index];
            let per_s = match load.pace {
                LoadPace::Closed => None,
                LoadPace::PerSecond(rate) => {
                    Some(rate as f64 * share as f64 / load.connections as f64)
                }
            };
            match share {
                0 => Order::Rest,
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
        self.crew.tell_all(&Order::Sweep);
        let all = self.test.connections + self.test.udp_sockets;
        let patience = PROVING + Duration::from_secs(all / SLOWEST_PROOF);
        self.finish_orders(patience)
    }

    /// Takes the accounts of both ends, has the endpoint close its end, and then closes this one.
    fn conclude(&mut self, complete: bool) -> Result<CapacityHalf, MeasureError> {
        self.phase = CapacityPhase::Closing;
        self.probe = None;
        self.crew.tell_all(&Order::Report);
        let patience = if complete { REPORTING } else { LAST_REPORTS };
        let until = now() + patience;
        while !self.crew.has_reported() && now() < until {
            // The accounts are taken also of an interrupted run.
            let _ = self.turn();
        }
        self.run.height = readings::memory();
        self.run.closing_began = now();
        self.client.release(complete)
    }

    /// Closes this end and puts the accounts together.
    fn finish(
        self,
        server: Result<CapacityHalf, MeasureError>,
        outcome: Result<(), MeasureError>,
    ) -> CapacityOutcome {
        let (tcp, udp) = (self.tcp(), self.udp());
        let Self {
            client,
            test,
            crew,
            mut run,
            began,
            ..
        } = self;
        let mut own = half(&crew, tcp.clone(), udp.clone());
        run.collect(&crew, tcp, udp);
        crew.end(CLOSING);
        own.memory.after = readings::memory_when_closed(&run.before);
        own.counters = readings::counters_since(run.counters.as_ref());
        own.limits = readings::limits(MOST_WORKERS);
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

/// What each worker is told first.
fn orders(
    client: &Client,
    test: &CapacityTest,
    options: &CapacityOptions,
    ports: &HoldPorts,
    source: SocketAddr,
    [tcp, udp]: [&[u64]; 2],
) -> Vec<Order> {
    let request = test.request();
    let backlog = ports.backlog;
    let sources = match test.sources.is_empty() {
        true => vec![source],
        false => test
            .sources
            .iter()
            .map(|ip| SocketAddr::new(*ip, 0))
            .collect(),
    };
    let mut first_number = 0;
    let mut index = 0;
    let mut connect = |ports, share| {
        let order = Connect {
            terms: Terms {
                token: words::hexadecimal(&client.session_token().0),
                // Both are bounded by the request's own check.
                request_bytes: request.request_bytes as u32,
                response_bytes: request.response_bytes as u32,
                descriptors: options.descriptors,
            },
            peer: client.peer(),
            ports,
            sources: sources.clone(),
            port_range: readings::port_range().unwrap_or(USUAL_PORTS),
            backlog,
            first_number,
            seed: test.seed.wrapping_add(index),
        };
        first_number += share;
        index += 1;
        order
    };
    let dealt = share::deal(&ports.tcp, tcp).into_iter().zip(tcp);
    let mut orders: Vec<Order> = dealt
        .map(|(dealt, share)| Order::Connect(connect(dealt, *share)))
        .collect();
    let dealt = share::deal(&ports.udp, udp).into_iter().zip(udp);
    orders.extend(dealt.map(|(dealt, share)| Order::Knock(connect(dealt, *share))));
    orders
}

fn since(earlier_ns: u64, later_ns: u64) -> f64 {
    later_ns.saturating_sub(earlier_ns) as f64 / 1e9
}

/// Longest wait without a look at the control connection and the stop flag.
const TURN: Duration = Duration::from_millis(10);
const STEP_EVERY: u64 = 100_000_000;
/// Without a limit on the rate, and longer than any handshake: nothing more comes of it.
const STUCK: Duration = Duration::from_secs(15);
/// Fewer connections are opened in one step.
const LEAST_STEPPED: u64 = 1_000;
/// Before an active connection is measured.
const QUIET: Duration = Duration::from_millis(50);
/// Longest measurement of an active connection.
const MEASURING: Duration = Duration::from_secs(2);
/// Of so many exchanges each, and one before them that is not counted.
const SLICES: u64 = 8;
const EXCHANGES: u64 = 250;
/// For the answers to the last heartbeats.
const PROVING: Duration = Duration::from_secs(30);
/// Heartbeats a second that every path carries.
const SLOWEST_PROOF: u64 = 10_000;
const REPORTING: Duration = Duration::from_secs(30);
const LAST_REPORTS: Duration = Duration::from_secs(2);
/// Linux's own default range.
const USUAL_PORTS: (u16, u16) = (32_768, 60_999);
