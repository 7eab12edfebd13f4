//! A client of an endpoint: one control session, any number of tests on it.

mod flows;
mod holding;
mod slot;
mod tracing;
mod train;
mod treatment;
mod udp_flows;

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
use linerate_core::session::message::{Limits, Progress, Refusal, RefusalReason, Welcome};
use linerate_core::session::operation::{self, CLOCK, Open, Operation, PROFILE};
use linerate_core::session::{Client as Session, ClientEvent, GRACE, SessionError};
use linerate_core::units::{BitRate, format_rfc3339};
use linerate_core::wire::Token;
use linerate_sys::proc::machine;

pub(crate) use self::flows::{connect_bounded, connect_first, connect_unless, prepare};
pub use self::slot::Slot;
pub(crate) use self::udp_flows::udp_socket;
use crate::clock::{now, now_ns};
use crate::control::{ControlSocket, Received};
use crate::error::MeasureError;
use crate::measure::half::{Beside, Half, HalfEnd};
use crate::measure::live::LiveFlow;
use crate::measure::outcome::Answer;
use crate::stop::Stop;
use crate::target::Target;
use crate::{host, words};
use linerate_core::units::End;

/// How a run goes, for a progress line or a stream of intervals.
#[derive(Debug, Clone, PartialEq)]
pub struct Live {
    /// Since the run began, warm-up included, seconds.
    pub at_s: f64,
    /// How long its warm-up is: another tool's server rounds what was asked for, seconds.
    pub warm_up_s: f64,
    /// Payload received at the endpoint until `up_at_s`, bytes.
    pub up_bytes: u64,
    /// Until when the endpoint has told what it received; seconds as `at_s`.
    pub up_at_s: f64,
    /// Payload received here so far, bytes.
    pub down_bytes: u64,
    /// Requests answered so far.
    pub transactions: u64,
    /// Each flow, where the other end is another tool's server.
    pub flows: Vec<LiveFlow>,
}

/// One run's outcome: whatever there is to record, and what ended it early.
#[derive(Debug)]
pub struct Outcome {
    /// The record, with ceilings and verdict; partial if `error` is set.
    pub record: Record,
    /// Why it ended before its time.
    pub error: Option<MeasureError>,
    /// What both hosts' CPUs did; empty unless [`Client::profile`] asked for it.
    pub profiles: Profiles,
    /// What STAMP's answers said, for who puts several runs together.
    pub(crate) probes: Vec<Probe>,
}

/// When a run begins at either end; without, at once.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Start {
    /// By this host's clock, ns.
    pub(crate) here_ns: Option<u64>,
    /// By the endpoint's, µs.
    pub(crate) there_us: Option<u64>,
}

/// An endpoint's clock, as it answers; the shortest round trip is the first of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FarClock {
    pub(crate) round_trip_ns: u64,
    /// Of this host's, µs; wrong by half of the round trip at most.
    pub(crate) ahead_us: i64,
}

/// The profiles of a run's two ends.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Profiles {
    /// This host's.
    pub client: Option<Box<EndProfile>>,
    /// The endpoint's.
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
    /// Requested when the run is over: connections that it is still making are given up.
    run_over: Stop,
    connect_time: Duration,
    trains: Trains,
    profile: Option<ProfileRequest>,
    answers: Option<Sender<Answer>>,
    /// The endpoint's host may be changed by this session.
    treated: bool,
}

/// What trains found of the path, by direction.
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

/// How often the endpoint is asked for its time at most, and for how long.
const CLOCK_QUESTIONS: u32 = 16;
const CLOCK_TIME: Duration = Duration::from_millis(300);
/// Longest wait without looking at the stop flag and at the workers.
const TICK: Duration = Duration::from_millis(20);
/// After the last datagram was sent, for those still in flight.
const SETTLE: Duration = Duration::from_millis(500);
/// Longest wait for the answers to the last requests of a run.
const LAST_ANSWERS: Duration = Duration::from_secs(2);
/// Longest wait for the endpoint's account once the user has asked to stop.
const LAST_REPORT: Duration = Duration::from_secs(1);
/// Longest reading of what the endpoint said before it hung up.
const LAST_WORDS: Duration = Duration::from_millis(500);

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
            welcome: placeholder(),
            token: Token([0; 16]),
            stop,
            run_over: Stop::new(),
            connect_time,
            trains: Trains::default(),
            profile: None,
            answers: None,
            treated: false,
        };
        match client.next_event()? {
            ClientEvent::Welcome(welcome) => {
                let token = words::token(&welcome.token).ok_or_else(|| {
                    client.session_error(SessionError::Message("a bad token".into()))
                })?;
                client.token = Token(token);
                client.welcome = *welcome;
                Ok(client)
            }
            _ => Err(client.session_error(SessionError::OutOfTurn("instead of a welcome"))),
        }
    }

    /// The endpoint as the user named it.
    pub fn host(&self) -> &str {
        &self.target.name
    }

    /// Address and port of the endpoint.
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// This host, with the interface by which the endpoint is reached.
    pub(crate) fn host_facts(&self) -> HostFacts {
        host::facts_by(Some(self.peer.ip()), self.target.device.as_deref())
    }

    /// What the endpoint is and allows.
    pub fn welcome(&self) -> &Welcome {
        &self.welcome
    }

    /// How long the control connection took to be made: one round trip and the endpoint's answer.
    pub fn connect_time(&self) -> Duration {
        self.connect_time
    }

    /// The endpoint's clock, by the question that it answered soonest; `None` of one that does not
    /// tell.
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
            let clock = FarClock {
                round_trip_ns,
                ahead_us: there_us.wrapping_sub(here_us).cast_signed(),
            };
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

    /// Makes a further session with the same endpoint when and where it is called.
    pub(crate) fn later(&self) -> impl FnOnce() -> Result<Self, MeasureError> + Send + 'static {
        let (target, stop) = (self.target.clone(), self.stop.clone());
        move || Self::connect(target, stop)
    }

    /// [`Client::run`] of a test of `crr`; `answers` gets each transaction when it has ended.
    pub(crate) fn run_told(
        &mut self,
        test: &Test,
        answers: Sender<Answer>,
        observe: &mut dyn FnMut(&Live) -> bool,
    ) -> Result<Outcome, MeasureError> {
        self.answers = Some(answers);
        let outcome = self.run(test, observe);
        self.answers = None;
        outcome
    }

    /// Finds the rate of the path's narrowest link by packet trains, for the records of all runs
    /// from now on: without it the ceiling of the path shows only where it is reached. Takes some
    /// round trips, 4 s at most; where UDP does not get through nothing is found.
    pub fn find_link_rate(&mut self, direction: Direction, seed: u64) {
        // Each direction's trains have a session of their own, both at once where there is room.
        let room = (self.welcome.limits.clients as usize).clamp(2, 3) - 1;
        for directions in direction.parts().chunks(room) {
            let (target, stop) = (&self.target, &self.stop);
            let measure = |direction| move || train::measure(target, direction, seed, stop);
            let found: Vec<_> = thread::scope(|scope| {
                let threads = directions.iter().map(|part| scope.spawn(measure(*part)));
                let threads: Vec<_> = threads.collect();
                threads.into_iter().map(|thread| thread.join()).collect()
            });
            for (direction, found) in directions.iter().zip(found) {
                let found = found.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
                match direction {
                    Direction::Down => self.trains.down = found,
                    Direction::Up | Direction::Both => self.trains.up = found,
                }
            }
        }
    }

    /// Profiles both hosts in all runs from now on, if something is asked for; the endpoint's only
    /// if it can. Says whether it can. On one kernel both share the samples that are asked for.
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

    /// Runs a test. `observe` is called about ten times a second while it runs; if it answers
    /// false, the run is stopped as by [`Stop::request`].
    ///
    /// # Errors
    /// The test could not be begun. One that began always has an [`Outcome`].
    pub fn run(
        &mut self,
        test: &Test,
        observe: &mut dyn FnMut(&Live) -> bool,
    ) -> Result<Outcome, MeasureError> {
        self.run_from(test, &mut || Some(Start::default()), observe)
    }

    /// The same; `wait` is called when both ends are ready, and says when to begin, if at all.
    ///
    /// # Errors
    /// As [`Client::run`]; it was not to begin.
    pub(crate) fn run_from(
        &mut self,
        test: &Test,
        wait: &mut dyn FnMut() -> Option<Start>,
        observe: &mut dyn FnMut(&Live) -> bool,
    ) -> Result<Outcome, MeasureError> {
        test.check().map_err(|error| {
            self.refused(Refusal {
                reason: RefusalReason::Test,
                message: error.to_string(),
            })
        })?;
        // What the endpoint limits, this end keeps to by itself.
        let test = &match self.welcome.limits.rate_bps {
            Some(limit) => test.clone().slowed_to(BitRate(limit)),
            None => test.clone(),
        };
        self.run_over = Stop::new();
        let asked = self.profile.filter(|_| self.endpoint_profiles());
        self.ask(Open {
            test: Box::new(test.clone()),
            profile: asked,
        })?;
        let (flows, source) = self.connect_flows(test)?;
        let start = wait().ok_or(MeasureError::Interrupted)?;
        self.session.begin(now(), start.there_us);
        self.pump(Duration::ZERO);
        let started_at = format_rfc3339(SystemTime::now());
        let beside = Beside {
            profile: self.profile,
            answers: self.answers.clone(),
            at_ns: start.here_ns,
        };
        let half = Half::start(End::Client, test, flows, source, beside)
            .map_err(MeasureError::host("cannot start the threads of the test"))?;
        let watched = self.watch(test, &half, observe);
        Ok(self.conclude(test, half, watched, started_at))
    }

    /// Sends and receives on the control connection, for at most `timeout`.
    fn pump(&mut self, timeout: Duration) {
        while let Some(bytes) = self.session.poll_transmit() {
            if self.socket.send(&bytes).is_err() {
                self.read_last_words();
                return;
            }
        }
        let until = self.session.poll_timeout();
        let timeout = until.map_or(timeout, |at| at.saturating_sub(now()).min(timeout));
        match self.socket.receive(timeout) {
            Received::Bytes(bytes) => self.session.handle_input(now(), bytes),
            Received::Nothing => {}
            Received::Closed => self.session.handle_close(),
        }
        self.session.handle_timeout(now());
    }

    /// A peer that hangs up may have said why.
    fn read_last_words(&mut self) {
        let until = now() + LAST_WORDS;
        while !self.session.is_closed() && now() < until {
            match self.socket.receive(TICK) {
                Received::Bytes(bytes) => self.session.handle_input(now(), bytes),
                Received::Nothing | Received::Closed => break,
            }
        }
        self.session.handle_close();
    }

    /// The next event, failures as errors.
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

    /// As [`Client::ask`], of what ends a run: whatever else the endpoint says meanwhile is passed
    /// over. Who has been told to stop, or is in a hurry, waits for `patience` at most.
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
        MeasureError::Session {
            peer: self.peer,
            reason,
        }
    }

    pub(crate) fn refused(&self, refusal: Refusal) -> MeasureError {
        MeasureError::Refused {
            peer: self.peer,
            refusal,
        }
    }

    /// Stays with a running test until it is over at both ends.
    fn watch(
        &mut self,
        test: &Test,
        half: &Half,
        observe: &mut dyn FnMut(&Live) -> bool,
    ) -> Result<(), MeasureError> {
        let began = now();
        let deadline = test
            .seconds()
            .map(|seconds| began + Duration::from_secs_f64(seconds) + GRACE);
        let mut remote = Remote::default();
        let mut over_since = None;
        loop {
            self.pump(half.patience());
            self.session.moved(now(), half.heard_bytes());
            while let Some(event) = self.session.poll_event() {
                match event {
                    // A count that goes down is none: what was received stays received.
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

    /// Stops both halves and puts their accounts together.
    fn conclude(
        &mut self,
        test: &Test,
        half: Half,
        watched: Result<(), MeasureError>,
        started_at: String,
    ) -> Outcome {
        half.request_stop();
        self.run_over.request();
        // Also after an interruption: there is something to report.
        let (peer, device) = (self.peer.ip(), self.target.device.clone());
        // Both hosts look at themselves at once.
        let (server, facts) = thread::scope(|scope| {
            let facts = scope.spawn(|| host::facts_by(Some(peer), device.as_deref()));
            let server = self.ask_at_the_end(operation::End, false, LAST_REPORT);
            let facts = facts
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            (server.map(|report| *report), facts)
        });
        let HalfEnd {
            mut report,
            exchange,
            cut_short,
        } = half.stop(facts);
        let (mut server, error) = both(server, watched);
        let profiles = Profiles {
            client: report.profile.take(),
            server: server.as_mut().and_then(|report| report.profile.take()),
        };
        let partial = error.is_some() || (cut_short && matches!(test.extent, Extent::Time(_)));
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
            // Each direction has its own.
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
            // A goodbye that does not arrive is made up for by the closed connection.
            let _ = self.socket.send(&bytes);
        }
    }
}

/// The endpoint's account, if it came, and what ended the run early: the run's own reason first.
pub(crate) fn both<T>(
    server: Result<T, MeasureError>,
    run: Result<(), MeasureError>,
) -> (Option<T>, Option<MeasureError>) {
    match server {
        Ok(server) => (Some(server), run.err()),
        Err(error) => (None, Some(run.err().unwrap_or(error))),
    }
}

/// What the endpoint has told of the run.
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

/// How long what is still in flight is waited for.
fn settle(test: &Test, half: &Half, remote: &Remote) -> Duration {
    match (&test.traffic, test.protocol) {
        // An answer that comes late is the one that counts most.
        (Traffic::Rr(_) | Traffic::Crr(_), _) if half.all_done() => Duration::ZERO,
        (Traffic::Rr(_) | Traffic::Crr(_), _) => LAST_ANSWERS,
        (Traffic::Stream(stream), Protocol::Udp) => {
            let sent = match test.extent {
                Extent::Count(count) if stream.train => count * stream.message_bytes,
                _ => return SETTLE,
            };
            let arrived = remote.progress.received_bytes + half.progress().received_bytes;
            // A whole train is waited for no longer: `check` sends eight.
            if arrived >= sent {
                Duration::ZERO
            } else {
                SETTLE
            }
        }
        // A TCP receiver has seen its end.
        (Traffic::Stream(_), Protocol::Tcp | Protocol::Mptcp) => Duration::ZERO,
    }
}

/// Whether there is nothing more to measure. Who only answers never finishes by itself.
fn is_over(test: &Test, half: &Half, remote: &Remote) -> bool {
    let waits_for_remote = match (&test.traffic, test.protocol, test.extent) {
        (Traffic::Rr(_) | Traffic::Crr(_), ..) => false,
        (Traffic::Stream(stream), ..) if stream.whole => false,
        // A UDP receiver does not know how many datagrams there are to come; its sender does.
        (Traffic::Stream(_), Protocol::Udp, Extent::Bytes(_) | Extent::Count(_)) => {
            return half.all_sent() && (remote.finished || test.direction == Direction::Up);
        }
        _ => true,
    };
    half.is_finished() && (remote.finished || !waits_for_remote)
}

/// Until the endpoint has said what it is.
fn placeholder() -> Welcome {
    Welcome {
        software: String::new(),
        token: String::new(),
        operations: Vec::new(),
        limits: Limits {
            clients: 0,
            streams: 0,
            seconds: 0.0,
            rate_bps: None,
            connections: 0,
        },
        facts: Box::default(),
    }
}
