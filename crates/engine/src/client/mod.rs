//! A client of an endpoint: one control session, any number of tests on it.

mod flows;
mod operations;

use std::net::SocketAddr;
use std::sync::mpsc::Sender;
use std::thread;
use std::time::{Duration, SystemTime};

use linerate_core::assemble::{ExchangeTotals, Run as HalfRuns};
use linerate_core::ceilings;
use linerate_core::one_way::Probe;
use linerate_core::plan::{Direction, Extent, Protocol, Test, Traffic};
use linerate_core::profile::{EndProfile, ProfileRequest};
use linerate_core::record::{HostFacts, PathTrain, Record, Status};
use linerate_core::session::message::{Progress, Refusal, RefusalReason, Welcome};
use linerate_core::session::operation::{
    self, CLOCK, Open, Operation, PROFILE, TREATMENTS, Treat, Untreat, WORK,
};
use linerate_core::session::{Client as Session, ClientEvent, GRACE, SessionError};
use linerate_core::treatment::HostChange;
use linerate_core::units::{BitRate, End, format_rfc3339};
use linerate_core::wire::{Token, bytes_of_hex};
use linerate_sys::proc::machine;

pub(crate) use self::flows::{
    UDP_PATIENCE, connect_bounded, connect_first, connect_unless, tcp_flow_socket, udp_flow_socket,
    udp_socket,
};
use super::measure::flow::LiveFlow;
use super::shares::joined;
use crate::clock::{now, now_ns};
use crate::control::{ControlReceived, ControlSocket};
use crate::error::MeasureError;
use crate::host;
use crate::measure::half::{Half, HalfEnd, HalfOptions};
use crate::measure::outcome::AnswerOutcome;
use crate::stop::Stop;
use crate::target::Target;
pub use operations::Slot;

/// The progress of a run, for a progress line or a stream of intervals.
#[derive(Debug, Clone, PartialEq)]
pub struct Live {
    /// Since the run began, warm-up included, seconds.
    pub at_s: f64,
    /// Length of the warm-up, seconds; another tool's server may have rounded the one asked for.
    pub warm_up_s: f64,
    /// Payload received at the endpoint until `up_at_s`, bytes.
    pub up_bytes: u64,
    /// The time of the endpoint's last report, seconds as `at_s`.
    pub up_at_s: f64,
    /// Payload received here so far, bytes.
    pub down_bytes: u64,
    /// Requests answered so far.
    pub transactions: u64,
    /// Each flow, if the other end is another tool's server.
    pub flows: Vec<LiveFlow>,
}

/// Gets the progress of a run about ten times a second; the run is stopped if it returns false.
pub(crate) type Observe<'a> = &'a mut dyn FnMut(&Live) -> bool;

/// The outcome of a run: its record, and what ended it early.
#[derive(Debug)]
pub struct Outcome {
    /// The record, with ceilings and verdict; partial if `error` is set.
    pub record: Record,
    /// Why it ended before its time.
    pub error: Option<MeasureError>,
    /// The profiles of both hosts; empty unless [`Client::profile`] asked for them.
    pub profiles: Profiles,
    /// Delays from STAMP's answers, for figures over several runs.
    pub(crate) probes: Vec<Probe>,
}

/// When a run begins at each end; at once if `None`.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Start {
    /// By this host's clock, ns.
    pub(crate) here_ns: Option<u64>,
    /// By the endpoint's clock, µs.
    pub(crate) there_us: Option<u64>,
}

/// A reading of an endpoint's clock. The least of several is that with the shortest round trip.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FarClock {
    pub(crate) round_trip_ns: u64,
    /// How far the endpoint's clock is ahead of this host's, µs, with an error of half the round
    /// trip at most.
    pub(crate) ahead_us: i64,
}

/// The profiles of a run's two ends.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Profiles {
    /// Profile of this host.
    pub client: Option<Box<EndProfile>>,
    /// Profile of the endpoint's host.
    pub server: Option<Box<EndProfile>>,
}

/// A session with an endpoint.
pub struct Client {
    target: Target,
    peer: SocketAddr,
    socket: ControlSocket,
    session: Session,
    welcome: Welcome,
    token: Token,
    stop: Stop,
    /// Requested at the end of a run: it gives up connections that are still being made.
    run_over: Stop,
    connect_time: Duration,
    trains: Trains,
    profile: Option<ProfileRequest>,
    answers: Option<Sender<AnswerOutcome>>,
    /// This session may have changed the endpoint's host.
    treated: bool,
    /// A test lasts until the stop is requested, or until the endpoint's longest time.
    open_ended: bool,
}

/// The link rates that packet trains have found, by direction.
#[derive(Debug, Clone, Copy, Default)]
struct Trains {
    up: Option<PathTrain>,
    down: Option<PathTrain>,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Client({})", self.peer)
    }
}

/// Most readings of the endpoint's clock, and the longest time for all of them.
const CLOCK_QUESTIONS: u32 = 16;
const CLOCK_TIME: Duration = Duration::from_millis(300);
/// Longest wait without a look at the stop flag and at the workers.
const TICK: Duration = Duration::from_millis(20);
/// Wait for datagrams still in flight after the last one was sent.
const SETTLE: Duration = Duration::from_millis(500);
/// Longest wait for the answers to the last requests of a run.
const LAST_ANSWERS: Duration = Duration::from_secs(2);
/// Longest wait for the endpoint's report once the user has asked to stop.
const LAST_REPORT: Duration = Duration::from_secs(1);
/// Longest wait for the messages that the endpoint sent before it hung up.
const LAST_MESSAGES: Duration = Duration::from_millis(500);

impl Client {
    /// Connects to the first address that answers and greets the endpoint.
    ///
    /// # Errors
    /// Refused, unreachable, timed out; not linerate, busy, wrong version, wrong key; interrupted.
    pub fn connect(target: Target, stop: Stop) -> Result<Self, MeasureError> {
        let (stream, peer, connect_time) = connect_first(&target, &stop)?;
        let socket = ControlSocket::new(stream).map_err(MeasureError::connect(peer))?;
        let session = Session::new(now(), env!("CARGO_PKG_VERSION"), target.key.as_ref());
        let mut client = Self {
            target,
            peer,
            socket,
            session,
            welcome: Welcome::default(),
            token: Token([0; 16]),
            stop,
            run_over: Stop::new(),
            connect_time,
            trains: Trains::default(),
            profile: None,
            answers: None,
            treated: false,
            open_ended: false,
        };
        match client.next_event().map_err(|error| client.without_welcome(error))? {
            ClientEvent::Welcome(welcome) => {
                let token = bytes_of_hex(&welcome.token).ok_or_else(|| {
                    client.session_error(SessionError::Message("a bad token".into()))
                })?;
                client.token = Token(token);
                client.welcome = *welcome;
                Ok(client)
            }
            _ => Err(client.session_error(SessionError::OutOfTurn("instead of a welcome"))),
        }
    }

    /// What is wrong where no welcome came.
    fn without_welcome(&self, error: MeasureError) -> MeasureError {
        match error {
            MeasureError::Session { peer, reason: SessionError::Timeout(_) }
                if self.socket.lacks_full_segments() =>
            {
                MeasureError::BlackHole { peer, host: self.target.name.clone() }
            }
            other => other,
        }
    }

    /// Begins a new session with the same endpoint. What packet trains have found stays known.
    ///
    /// # Errors
    /// As [`Client::connect`].
    pub(crate) fn renew(&mut self) -> Result<(), MeasureError> {
        let target = Target { addresses: vec![self.peer], ..self.target.clone() };
        let mut renewed = Self::connect(target, self.stop.clone())?;
        renewed.trains = self.trains;
        *self = renewed;
        Ok(())
    }

    /// The endpoint's name as the user gave it.
    pub fn host(&self) -> &str {
        &self.target.name
    }

    /// Address and port of the endpoint.
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Facts of this host, and of the interface by which the endpoint is reached.
    pub(crate) fn host_facts(&self) -> HostFacts {
        host::facts_by(Some(self.peer.ip()), self.target.device.as_deref())
    }

    /// The endpoint's welcome: what it is and what it allows.
    pub fn welcome(&self) -> &Welcome {
        &self.welcome
    }

    /// Checks that the endpoint has an operation; `lack` completes "its linerate VERSION …".
    pub(crate) fn check_has(&self, operation: &str, lack: &str) -> Result<(), MeasureError> {
        if self.welcome.has(operation) {
            return Ok(());
        }
        let what = format!("its linerate {} {lack}", self.welcome.software);
        let peer = self.peer;
        Err(MeasureError::Lacks { peer, what })
    }

    /// How long it took to make the control connection: one round trip.
    pub fn connect_time(&self) -> Duration {
        self.connect_time
    }

    /// The events that have arrived on the control connection; never waits.
    pub(crate) fn control_events(&mut self) -> Vec<ClientEvent> {
        self.pump(Duration::ZERO);
        std::iter::from_fn(|| self.session.poll_event()).collect()
    }

    /// This host's address on the control connection, with port 0.
    pub(crate) fn local_address(&self) -> Result<SocketAddr, MeasureError> {
        let mut local = self.socket.local_addr().map_err(MeasureError::connect(self.peer))?;
        local.set_port(0);
        Ok(local)
    }

    pub(crate) fn session_token(&self) -> Token {
        self.token
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.is_requested()
    }

    /// Reads the endpoint's clock; of several readings, that with the shortest round trip. `None`
    /// if the endpoint is too old to tell.
    ///
    /// # Errors
    /// The session is over.
    pub(crate) fn clock(&mut self) -> Result<Option<FarClock>, MeasureError> {
        if !self.welcome.has(CLOCK) {
            return Ok(None);
        }
        let mut soonest = None;
        let began = now();
        for asked in 1.. {
            let from_ns = now_ns();
            let there_us = self.ask(operation::Clock)?;
            let round_trip_ns = now_ns() - from_ns;
            let here_us = (from_ns + round_trip_ns / 2) / 1_000;
            let clock =
                FarClock { round_trip_ns, ahead_us: there_us.wrapping_sub(here_us).cast_signed() };
            soonest = Some(soonest.map_or(clock, |before: FarClock| before.min(clock)));
            if asked >= CLOCK_QUESTIONS || now() - began > CLOCK_TIME {
                break;
            }
        }
        Ok(soonest)
    }

    /// A further session with the same endpoint.
    ///
    /// # Errors
    /// As [`Client::connect`].
    pub(crate) fn another(&self) -> Result<Self, MeasureError> {
        self.later()()
    }

    /// A function that makes a further session with the same endpoint, in any thread.
    pub(crate) fn later(&self) -> impl FnOnce() -> Result<Self, MeasureError> + Send + 'static {
        let (target, stop) = (self.target.clone(), self.stop.clone());
        move || Self::connect(target, stop)
    }

    /// [`Client::run`] for a test of `crr`; `answers` gets each transaction when it has ended.
    pub(crate) fn run_told(
        &mut self,
        test: &Test,
        answers: Sender<AnswerOutcome>,
        observe: Observe<'_>,
    ) -> Result<Outcome, MeasureError> {
        self.answers = Some(answers);
        let outcome = self.run(test, observe);
        self.answers = None;
        outcome
    }

    /// Has later tests last until the stop is requested, which is then no early end, or until the
    /// longest time that the endpoint allows.
    pub(crate) fn set_open_ended(&mut self) {
        self.open_ended = true;
    }

    /// Finds the rate of the path's narrowest link by packet trains, for the records of all later
    /// runs: without it they know the path's ceiling only if they reach it. This takes some round
    /// trips, 4 s at most. Where UDP does not get through, nothing is found.
    pub fn find_link_rate(&mut self, direction: Direction, seed: u64) {
        // The trains of each direction have their own session; both run at once if the endpoint
        // allows as many clients.
        let room = (self.welcome.limits.clients as usize).clamp(2, 3) - 1;
        for directions in direction.parts().chunks(room) {
            let (target, stop) = (&self.target, &self.stop);
            let measure =
                |direction| move || operations::measure_trains(target, direction, seed, stop);
            let found: Vec<_> = thread::scope(|scope| {
                let threads: Vec<_> =
                    directions.iter().map(|part| scope.spawn(measure(*part))).collect();
                threads.into_iter().map(|thread| thread.join()).collect()
            });
            for (direction, found) in directions.iter().zip(found) {
                let found = joined(found);
                match direction {
                    Direction::Down => self.trains.down = found,
                    Direction::Up | Direction::Both => self.trains.up = found,
                }
            }
        }
    }

    /// Profiles both hosts in all later runs if `request` is set; the endpoint's host only if the
    /// endpoint can do that, which is the result. If both ends run on one kernel, each gets half of
    /// the samples.
    pub fn profile(&mut self, request: Option<ProfileRequest>) -> bool {
        let shares = self.endpoint_profiles() && self.shares_the_kernel();
        self.profile = request.map(|request| request.of_each_end(shares));
        self.endpoint_profiles()
    }

    fn shares_the_kernel(&self) -> bool {
        let own = machine::boot_id().unwrap_or_default();
        !own.is_empty() && own == self.welcome.facts.boot_id
    }

    fn endpoint_profiles(&self) -> bool {
        self.welcome.has(PROFILE)
    }

    /// Runs a test. `observe` is called about ten times a second while it runs; if it returns
    /// false, the run is stopped as by [`Stop::request`].
    ///
    /// # Errors
    /// The test could not begin. A test that began always has an [`Outcome`].
    pub fn run(&mut self, test: &Test, observe: Observe<'_>) -> Result<Outcome, MeasureError> {
        self.run_from(test, &mut || Some(Start::default()), observe)
    }

    /// Like [`Client::run`]; `wait` is called when both ends are ready, and says when to begin.
    ///
    /// # Errors
    /// As [`Client::run`]; `wait` said that the test is not to begin.
    pub(crate) fn run_from(
        &mut self,
        test: &Test,
        wait: &mut dyn FnMut() -> Option<Start>,
        observe: Observe<'_>,
    ) -> Result<Outcome, MeasureError> {
        test.check().map_err(|error| {
            self.refused(Refusal { reason: RefusalReason::Test, message: error.to_string() })
        })?;
        if test.works_at(End::Server) {
            self.check_has(WORK, "cannot work on the bytes of a test: a newer one does")?;
        }
        // This end keeps to the endpoint's rate limit by itself.
        let slowed = match self.welcome.limits.rate_bps {
            Some(limit) => test.clone().slowed_to(BitRate(limit)),
            None => test.clone(),
        };
        let limits = &self.welcome.limits;
        let test = &if self.open_ended { slowed.within(limits.seconds) } else { slowed };
        self.run_over = Stop::new();
        let asked = self.profile.filter(|_| self.endpoint_profiles());
        self.ask(Open { test: Box::new(test.clone()), profile: asked })?;
        let (flows, source) = self.connect_flows(test)?;
        let start = wait().ok_or(MeasureError::Interrupted)?;
        self.session.begin(now(), start.there_us);
        self.pump(Duration::ZERO);
        let started_at = format_rfc3339(SystemTime::now());
        let options = HalfOptions {
            profile: self.profile,
            answers: self.answers.clone(),
            at_ns: start.here_ns,
            ..HalfOptions::default()
        };
        let half = Half::start(End::Client, test, flows, source, options)
            .map_err(MeasureError::host("cannot start the threads of the test"))?;
        let watched = self.watch(test, &half, observe);
        Ok(self.conclude(test, half, watched, started_at))
    }

    /// Changes the endpoint's host, and first undoes what this session has changed there before.
    /// The result is what the endpoint read back, one line for each change. [`Client::untreat`]
    /// undoes the changes, and the end of the session does at the latest. Without changes this is
    /// [`Client::untreat`].
    ///
    /// # Errors
    /// The endpoint allows no treatments, refuses one, or its host cannot do one:
    /// [`MeasureError::Refused`], and nothing is in force. Another client measures or treats there:
    /// the same error, and the earlier changes stay in force. The session failed or was
    /// interrupted: the endpoint undoes everything.
    pub fn treat(&mut self, changes: &[HostChange]) -> Result<Vec<String>, MeasureError> {
        if changes.is_empty() {
            return self.untreat().map(|()| Vec::new());
        }
        if !self.welcome.has(TREATMENTS) {
            return Err(self.refused(Refusal {
                reason: RefusalReason::Treatment,
                message: "it was not started with --allow-treatments and --key-file".into(),
            }));
        }
        // From here on the host may be changed, whatever the answer is.
        self.treated = true;
        self.ask(Treat { changes: changes.to_vec() })
    }

    /// Makes the endpoint undo what this session has changed on its host, if it has changed
    /// anything.
    ///
    /// # Errors
    /// The endpoint could not undo it, or the session failed or was interrupted.
    pub fn untreat(&mut self) -> Result<(), MeasureError> {
        if !self.treated {
            return Ok(());
        }
        self.ask(Untreat)?;
        self.treated = false;
        Ok(())
    }

    /// Sends and receives on the control connection, for at most `timeout`.
    fn pump(&mut self, timeout: Duration) {
        if self.socket.transmit(&mut self.session) {
            self.socket.listen(&mut self.session, timeout);
        } else {
            self.read_last_messages();
        }
    }

    /// Reads what the endpoint sent before it hung up: it may have given the reason.
    fn read_last_messages(&mut self) {
        let until = now() + LAST_MESSAGES;
        while !self.session.is_closed() && now() < until {
            match self.socket.receive(TICK) {
                ControlReceived::Bytes(bytes) => self.session.handle_input(now(), bytes),
                ControlReceived::Nothing | ControlReceived::Closed => break,
            }
        }
        self.session.handle_close();
    }

    /// The next event; failures are errors.
    fn next_event(&mut self) -> Result<ClientEvent, MeasureError> {
        loop {
            match self.session.poll_event() {
                Some(ClientEvent::Failed(error)) => return Err(self.session_error(error)),
                Some(event) => return Ok(event),
                None if self.stop.is_requested() => return Err(MeasureError::Interrupted),
                None => self.pump(TICK),
            }
        }
    }

    /// Asks for an operation and waits for the answer.
    pub(crate) fn ask<O: Operation>(&mut self, operation: O) -> Result<O::Reply, MeasureError> {
        self.session.ask(now(), operation);
        let answer = match self.next_event()? {
            ClientEvent::Reply(reply) => O::from_reply(reply),
            ClientEvent::Refused(refusal) => return Err(self.refused(refusal)),
            _ => None,
        };
        answer.ok_or_else(|| self.session_error(SessionError::OutOfTurn("instead of an answer")))
    }

    /// Like [`Client::ask`], for an operation that ends a run: other messages of the endpoint are
    /// ignored meanwhile. If the stop is requested, or with `hurried`, the wait lasts for
    /// `patience` at most.
    pub(crate) fn ask_at_the_end<O: Operation>(
        &mut self,
        operation: O,
        hurried: bool,
        patience: Duration,
    ) -> Result<O::Reply, MeasureError> {
        if self.session.is_closed() {
            return Err(self.session_error(SessionError::Closed));
        }
        self.session.ask(now(), operation);
        let mut until = None;
        loop {
            match self.session.poll_event() {
                Some(ClientEvent::Reply(reply)) => {
                    if let Some(reply) = O::from_reply(reply) {
                        return Ok(reply);
                    }
                }
                Some(ClientEvent::Failed(error)) => return Err(self.session_error(error)),
                Some(_) => {}
                None => self.pump(TICK),
            }
            let hurried = hurried || self.stop.is_requested();
            if hurried && now() > *until.get_or_insert(now() + patience) {
                return Err(MeasureError::Interrupted);
            }
        }
    }

    pub(crate) fn session_error(&self, reason: SessionError) -> MeasureError {
        MeasureError::Session { peer: self.peer, reason }
    }

    pub(crate) fn refused(&self, refusal: Refusal) -> MeasureError {
        MeasureError::Refused { peer: self.peer, refusal }
    }

    /// Watches a running test until it is over at both ends.
    fn watch(
        &mut self,
        test: &Test,
        half: &Half,
        observe: Observe<'_>,
    ) -> Result<(), MeasureError> {
        let began = now();
        let deadline =
            test.seconds().map(|seconds| began + Duration::from_secs_f64(seconds) + GRACE);
        let mut remote = Remote::default();
        let mut over_since = None;
        loop {
            self.pump(half.patience());
            self.session.moved(now(), half.heard_bytes());
            while let Some(event) = self.session.poll_event() {
                match event {
                    // Bytes received never become fewer: such a report is ignored.
                    ClientEvent::Progress(progress)
                        if progress.received_bytes >= remote.progress.received_bytes =>
                    {
                        remote.progress = progress;
                    }
                    ClientEvent::Finished => remote.finished = true,
                    ClientEvent::Failed(error) => return Err(self.session_error(error)),
                    _ => {}
                }
            }
            if !observe(&live(half, &remote)) || self.stop.is_requested() {
                return Err(MeasureError::Interrupted);
            }
            if deadline.is_some_and(|deadline| now() > deadline) {
                return Err(self.session_error(SessionError::Timeout("the test did not end")));
            }
            if !is_over(test, half, &remote) {
                continue;
            }
            if now() >= *over_since.get_or_insert(now()) + settle(test, half, &remote) {
                return Ok(());
            }
        }
    }

    /// Stops both halves and makes one record of their reports.
    fn conclude(
        &mut self,
        test: &Test,
        half: Half,
        watched: Result<(), MeasureError>,
        started_at: String,
    ) -> Outcome {
        half.request_stop();
        self.run_over.request();
        let (peer, device) = (self.peer.ip(), self.target.device.clone());
        let open_ended = self.open_ended;
        let watched = watched.or_else(|error| planned_end(open_ended, error));
        let patience = if open_ended { GRACE } else { LAST_REPORT };
        // Both hosts gather their facts at the same time, also after an interruption.
        let (server, facts) = thread::scope(|scope| {
            let facts = scope.spawn(|| host::facts_by(Some(peer), device.as_deref()));
            let server = self.ask_at_the_end(operation::End, false, patience);
            let facts = joined(facts.join());
            (server.map(|report| *report), facts)
        });
        let HalfEnd { mut report, exchange, cut_short } = half.stop(facts);
        let (mut server, error) = both(server, watched);
        let profiles = Profiles {
            client: report.profile.take(),
            server: server.as_mut().and_then(|report| report.profile.take()),
        };
        let cut_short = cut_short && !open_ended && matches!(test.extent, Extent::Time(_));
        let partial = error.is_some() || cut_short;
        let run = HalfRuns {
            test: test.clone(),
            host: self.target.name.clone(),
            peer: self.peer.to_string(),
            family: self.peer.ip().into(),
            started_at,
            status: Status::new(!partial),
            client: report,
            server,
            exchange: exchange.as_ref().map(ExchangeTotals::from),
        };
        let mut record = run.into_record();
        record.path_train = match test.direction {
            Direction::Up => self.trains.up,
            Direction::Down => self.trains.down,
            // The two directions have different rates.
            Direction::Both => None,
        };
        ceilings::annotate(&mut record);
        Outcome {
            record,
            error,
            profiles,
            probes: exchange.map(|outcome| outcome.probes).unwrap_or_default(),
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.session.close();
        while let Some(bytes) = self.session.poll_transmit() {
            // If the goodbye does not arrive, the closed connection says the same.
            let _ = self.socket.send(&bytes);
        }
    }
}

/// The endpoint's report, if there is one, and what ended the run early. The run's own error comes
/// before that of the report.
pub(crate) fn both<T>(
    server: Result<T, MeasureError>,
    run: Result<(), MeasureError>,
) -> (Option<T>, Option<MeasureError>) {
    match server {
        Ok(server) => (Some(server), run.err()),
        Err(error) => (None, Some(run.err().unwrap_or(error))),
    }
}

/// Of a test that lasts until it is stopped, the stop is no error.
pub(crate) fn planned_end(open_ended: bool, error: MeasureError) -> Result<(), MeasureError> {
    match error {
        MeasureError::Interrupted if open_ended => Ok(()),
        other => Err(other),
    }
}

/// What the endpoint has reported during the run.
#[derive(Default)]
struct Remote {
    progress: Progress,
    finished: bool,
}

fn live(half: &Half, remote: &Remote) -> Live {
    let here = half.progress();
    Live {
        at_s: here.at_s,
        warm_up_s: half.warm_up_s(),
        up_bytes: remote.progress.received_bytes,
        up_at_s: remote.progress.at_s,
        down_bytes: here.received_bytes,
        transactions: half.messages(),
        flows: Vec::new(),
    }
}

/// How long to wait for what is still in flight.
fn settle(test: &Test, half: &Half, remote: &Remote) -> Duration {
    match (&test.traffic, test.protocol) {
        // Late answers matter most to the latency figures.
        (Traffic::Rr(_) | Traffic::Crr(_), _) if half.all_done() => Duration::ZERO,
        (Traffic::Rr(_) | Traffic::Crr(_), _) => LAST_ANSWERS,
        (Traffic::Stream(stream), Protocol::Udp) => {
            let sent = match test.extent {
                Extent::Count(count) if stream.train => count * stream.message_bytes,
                _ => return SETTLE,
            };
            let arrived = remote.progress.received_bytes + half.progress().received_bytes;
            // Once a whole train has arrived there is nothing to wait for: `check` sends eight.
            if arrived >= sent { Duration::ZERO } else { SETTLE }
        }
        // A TCP receiver has seen its end.
        (Traffic::Stream(_), Protocol::Tcp | Protocol::Mptcp) => Duration::ZERO,
    }
}

/// Whether nothing more is to be measured. An end that only answers never finishes by itself.
fn is_over(test: &Test, half: &Half, remote: &Remote) -> bool {
    let waits_for_remote = match (&test.traffic, test.protocol, test.extent) {
        (Traffic::Rr(_) | Traffic::Crr(_), ..) => false,
        (Traffic::Stream(stream), ..) if stream.whole => false,
        // A UDP receiver does not know how many datagrams are to arrive; its sender does.
        (Traffic::Stream(_), Protocol::Udp, Extent::Bytes(_) | Extent::Count(_)) => {
            return half.all_sent() && (remote.finished || test.direction == Direction::Up);
        }
        _ => true,
    };
    half.is_finished() && (remote.finished || !waits_for_remote)
}
