//! One client: its control connection, and the tests that it asks for one after another.

mod holding;

use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::Receiver;
use std::thread;
use std::time::Duration;

use linerate_core::plan::{Protocol, Test, Traffic};
use linerate_core::profile::ProfileRequest;
use linerate_core::record::Caveat;
use linerate_core::session::message::{HalfReport, Limits, RefusalReason, Welcome};
use linerate_core::session::operation::{
    CAPACITY, Open, PROFILE, Reply, Request, Slot, SlotState, TREATMENTS,
};
use linerate_core::session::{Server, ServerEvent};
use linerate_core::trace::{TraceDocument, TraceRequest};
use linerate_core::treatment::HostChange;
use linerate_core::wire::{Key, Token};

use super::budget::{Budget, Claim};
use super::clients::{Clients, Presence};
use super::door::{self, Listeners, Own};
use super::foreign::iperf3::Calls;
use super::lease::{Lease, LeaseError};
use super::occupancy::Occupancy;
use super::registry::{Registration, Registry};
use super::terms::{can_do, owners_limit, prepare, within_rate};
use super::tracing::{NoTrace, Tracing};
use super::{Iperf3Access, ServeEvent};
use crate::capacity::Holding;
use crate::clock::{now, now_ns};
use crate::control::{ControlSocket, Received};
use crate::host;
use crate::measure::flow::Flow;
use crate::measure::half::{Beside, Half, HalfEnd};
use crate::measure::source::FlowSource;
use crate::shares::Shares;
use crate::stop::Stop;
use crate::treatment::{forget, remembers};
use crate::words;
use linerate_core::units::End;

/// What all sessions of an endpoint share.
pub(super) struct Context {
    pub(super) listeners: Arc<Listeners>,
    pub(super) registry: Registry,
    pub(super) calls: Calls,
    pub(super) occupancy: Occupancy,
    pub(super) limits: Limits,
    pub(super) key: Option<Key>,
    pub(super) iperf3: Option<Arc<Iperf3Access>>,
    /// Clients may change this host; only ever set together with a key.
    pub(super) allow_treatments: bool,
    /// Connections that clients hold.
    pub(super) shares: Shares,
    /// What their tests take.
    pub(super) budget: Budget,
    /// Clients may have this host profiled while their tests run.
    pub(super) allow_profiles: bool,
    /// How often the log is told of a running test of iperf3's.
    pub(super) live: Option<Duration>,
    pub(super) clients: Clients,
    /// It ends with its first client.
    pub(super) one_off: bool,
    /// Connections of clients that are gone, to which their last words still go.
    pub(super) parting: AtomicU32,
    /// Clients that were admitted and asked for something.
    pub(super) served: AtomicU32,
    pub(super) log: Box<dyn Fn(ServeEvent) + Send + Sync>,
    pub(super) stop: Stop,
}

impl Context {
    /// Starts the thread of a client. Where there is none to be had, the log is told.
    pub(super) fn spawn(&self, name: &str, peer: SocketAddr, work: impl FnOnce() + Send + 'static) {
        if let Err(error) = thread::Builder::new().name(name.into()).spawn(work) {
            let reason = format!("no thread for it: {error}");
            (self.log)(ServeEvent::Refused { peer, reason });
        }
    }

    /// A client has asked for something that makes sense: from now on it counts as served, and the
    /// log has `told` of it.
    pub(super) fn tell(&self, peer: SocketAddr, told: &mut bool) {
        if !std::mem::replace(told, true) {
            self.served.fetch_add(1, Ordering::AcqRel);
            (self.log)(ServeEvent::Connected { peer });
        }
    }

    /// Ends the connection of a client after its last words. Whoever comes at once, as it may when
    /// it has read them, finds the place of `client` free.
    pub(super) fn part<T>(&self, client: T, mut socket: ControlSocket, last_words: &[u8]) {
        let parting = self.parting.fetch_add(1, Ordering::AcqRel);
        drop(client);
        let is_there = socket.send(last_words).is_ok();
        // They are no clients any more, and their threads count as nobody's.
        if is_there && parting < MAX_PARTING {
            socket.close();
        }
        self.parting.fetch_sub(1, Ordering::AcqRel);
    }

    /// Whether there is no client, and none is being told its last words.
    pub(super) fn is_deserted(&self) -> bool {
        self.clients.is_empty() && self.parting.load(Ordering::Acquire) == 0
    }

    /// It is gone: with a goodbye, or for a reason.
    pub(super) fn tell_end(&self, peer: SocketAddr, told: bool, reason: Option<String>) {
        (self.log)(match reason {
            Some(reason) if !told => ServeEvent::Refused { peer, reason },
            reason => ServeEvent::Disconnected { peer, reason },
        });
    }
}

/// How often a session that waits for flows or runs a test looks at them.
const TICK: Duration = Duration::from_millis(2);
/// Longest wait without looking at the stop flag.
const IDLE_TICK: Duration = Duration::from_millis(100);
/// Between two reports of progress.
const PROGRESS_EVERY: Duration = Duration::from_millis(100);
/// Connections that wait at once until their peer has read their last words; others are closed.
const MAX_PARTING: u32 = 64;
/// Longest that a client can have a test wait for its beginning.
const MAX_AHEAD_NS: u64 = 3_000_000_000;
/// Between two looks at the workers that hold connections.
const HOLDING_TICK: Duration = Duration::from_millis(10);

/// Serves a client to its end.
pub(super) fn run(
    context: &Arc<Context>,
    presence: Presence,
    stream: TcpStream,
    peer: SocketAddr,
    sealed: bool,
) {
    let Some(token) = random_token() else {
        return;
    };
    let (Ok(local), Ok(socket)) = (stream.local_addr(), ControlSocket::new(stream)) else {
        return;
    };
    let session = Session {
        token,
        registration: context.registry.register(token, peer.ip()),
        lease: Lease::new(context.occupancy.place(token)),
        server: Server::new(now(), context.key.as_ref(), sealed),
        stage: Stage::Idle,
        context,
        presence,
        peer,
        local,
        told: false,
        tests: 0,
        remembered: None,
        claim: None,
        profile: None,
    };
    session.drive(socket);
}

fn operations(context: &Context) -> Vec<String> {
    // What is sent over connections that are held has no rate of its own.
    let is_slowed = context.limits.rate_bps.is_some();
    let allowed = |name: &&str| match *name {
        CAPACITY => context.limits.connections > 0 && !is_slowed,
        PROFILE => context.allow_profiles,
        TREATMENTS => context.allow_treatments,
        _ => true,
    };
    Request::names()
        .filter(allowed)
        .map(str::to_owned)
        .collect()
}

fn random_token() -> Option<Token> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).ok()?;
    Some(Token(bytes))
}

/// What the session is doing.
enum Stage {
    Idle,
    /// Waiting for the flows of a test.
    Binding {
        test: Box<Test>,
        flows: Vec<Flow>,
        arrivals: Receiver<Flow>,
    },
    /// All flows are there.
    Bound {
        test: Box<Test>,
        flows: Vec<Flow>,
        source: FlowSource,
    },
    Running {
        half: Half,
        next_progress: Duration,
        finished: bool,
    },
    Tracing(Tracing),
    Holding(Box<Holding>),
}

struct Session<'a> {
    context: &'a Context,
    presence: Presence,
    peer: SocketAddr,
    /// Which address of this host the client has connected to.
    local: SocketAddr,
    token: Token,
    registration: Registration,
    server: Server,
    stage: Stage,
    /// What the client has changed on this host: undone with the session, however that ends.
    lease: Lease,
    /// The log knows of this client.
    told: bool,
    /// Tests that the client has opened.
    tests: u64,
    /// What of the tests before could not be forgotten.
    remembered: Option<Caveat>,
    /// What the test that is open takes.
    claim: Option<Claim>,
    /// What is asked of the profiler in the next test.
    profile: Option<ProfileRequest>,
}

impl Session<'_> {
    fn drive(mut self, mut socket: ControlSocket) {
        let mut reason = None;
        loop {
            if self.server.is_introduced() {
                self.welcome();
            }
            while let Some(event) = self.server.poll_event() {
                match event {
                    ServerEvent::Request(request) => self.serve(request),
                    ServerEvent::Begin { at_us } => self.begin(at_us),
                    ServerEvent::Closed(error) => reason = error.map(|e| e.to_string()),
                }
            }
            if self.server.is_closed() {
                break;
            }
            self.look();
            // All that this turn has brought: what stayed would wait for the next.
            while let Some(bytes) = self.server.poll_transmit() {
                if socket.send(&bytes).is_err() {
                    self.server.handle_close();
                    break;
                }
            }
            match socket.receive(self.patience()) {
                Received::Bytes(bytes) => self.server.handle_input(now(), bytes),
                Received::Nothing => {}
                Received::Closed => self.server.handle_close(),
            }
            self.server.handle_timeout(now());
            if self.context.stop.is_requested() {
                self.server
                    .hang_up(RefusalReason::Stopping, "the endpoint is shutting down");
            }
        }
        self.leave(socket, reason);
    }

    /// Lets the client in, if there is a place. Nobody who has proved nothing makes this host look
    /// at itself.
    fn welcome(&mut self) {
        if let Err(message) = self.presence.enter() {
            return self.server.hang_up(RefusalReason::Busy, &message);
        }
        self.registration.admit();
        let welcome = Welcome {
            software: env!("CARGO_PKG_VERSION").to_owned(),
            token: words::hexadecimal(&self.token.0),
            operations: operations(self.context),
            limits: self.context.limits,
            facts: Box::new(host::facts(Some(self.peer.ip()))),
        };
        self.server.welcome(now(), welcome);
    }

    /// Does what the client asks for: each operation has its handler here. The log knows of this
    /// client from the first thing that it asks for.
    fn serve(&mut self, request: Request) {
        self.context.tell(self.peer, &mut self.told);
        // Who has the slot has no place.
        if !matches!(request, Request::Slot(_))
            && let Err(message) = self.presence.enter()
        {
            return self.server.hang_up(RefusalReason::Busy, &message);
        }
        match request {
            Request::Open(open) => self.open(open),
            Request::End(_) => self.end(),
            Request::Treat(treat) => self.treat(&treat.changes),
            Request::Untreat(_) => self.untreat(),
            Request::Clock(_) => {
                let now_us = now_ns() / 1_000;
                self.server.reply(now(), Reply::Clock(now_us));
            }
            Request::Slot(slot) => self.lease_slot(slot),
            Request::Trace(request) => self.trace(&request),
            Request::Hold(request) => self.hold(&request),
            Request::Release(_) => self.release(),
        }
    }

    fn leave(mut self, socket: ControlSocket, reason: Option<String>) {
        // The host first: an endpoint that is stopped has only a moment for it.
        let undone = self.lease.untreat();
        self.log_undone(undone);
        // The client's data next: a flow that runs on would keep its threads.
        if let Stage::Running { half, .. } = std::mem::replace(&mut self.stage, Stage::Idle) {
            half.stop(host::facts(Some(self.peer.ip())));
        }
        self.lease.place().end_test();
        self.context.tell_end(self.peer, self.told, reason);
        let last_words: Vec<_> = std::iter::from_fn(|| self.server.poll_transmit()).collect();
        let context = self.context;
        context.part(self, socket, &last_words.concat());
    }

    fn patience(&self) -> Duration {
        let tick = match &self.stage {
            Stage::Idle | Stage::Bound { .. } => IDLE_TICK,
            Stage::Binding { .. } | Stage::Tracing(_) => TICK,
            Stage::Running { half, .. } => half.patience(),
            Stage::Holding(_) => HOLDING_TICK,
        };
        match self.server.poll_timeout() {
            Some(at) => at.saturating_sub(now()).min(tick),
            None => tick,
        }
    }

    fn open(&mut self, open: Open) {
        self.profile = open.profile;
        let test = match within_rate(open.test, self.context.limits.rate_bps) {
            Ok(test) => test,
            Err(message) => {
                self.server.refuse(RefusalReason::Limit, message);
                return;
            }
        };
        let has_key = self.context.key.is_some();
        if let Err(message) = can_do(&test, has_key) {
            self.server.refuse(RefusalReason::Test, message);
            return;
        }
        match self.context.budget.take(self.peer.ip(), &test, has_key) {
            Ok(claim) => self.claim = Some(claim),
            Err(refusal) => return self.server.refuse(refusal.reason, refusal.message),
        }
        if let Err(message) = self.lease.place().begin_test() {
            self.claim = None;
            self.server.refuse(RefusalReason::Busy, message);
            return;
        }
        self.forget_earlier(&test);
        let arrivals = self.registration.open(test.flows(), test.options.source);
        self.server.reply(now(), Reply::Open(()));
        if test.connects_within_run() {
            self.stage = Stage::Bound {
                flows: Vec::new(),
                source: self.connections(&test, arrivals),
                test,
            };
            self.server.ready(now());
        } else {
            self.stage = Stage::Binding {
                test,
                flows: Vec::new(),
                arrivals,
            };
        }
    }

    fn lease_slot(&mut self, slot: Slot) {
        let lasts = Duration::from_secs_f64(slot.seconds);
        let state = match self.lease.place().lease_slot(self.peer.ip(), lasts) {
            Ok(()) => {
                // One alone has it, and its tests have sessions of their own: it is no client beside them.
                if !self.context.one_off {
                    self.presence.step_aside();
                }
                SlotState::Leased(slot.seconds)
            }
            Err(left) => SlotState::Busy(left.as_secs_f64()),
        };
        self.server.reply(now(), Reply::Slot(state));
    }

    /// Where the workers of a test get connections that are made within the run.
    fn connections(&self, test: &Test, inbox: Receiver<Flow>) -> FlowSource {
        if !matches!(test.traffic, Traffic::Crr(_)) || test.protocol == Protocol::Mptcp {
            return FlowSource::Accept(inbox.into());
        }
        let own = Own {
            token: self.token,
            source: test.options.source.unwrap_or(self.peer.ip()),
            flows: test.flows(),
        };
        door::source(&self.context.listeners, &self.context.registry, own, inbox)
    }

    /// Who compares wants each run to begin like the first. Where that cannot be, who runs a single
    /// test need not know.
    fn forget_earlier(&mut self, test: &Test) {
        self.tests += 1;
        if !self.context.allow_treatments || test.protocol == Protocol::Udp {
            return;
        }
        let addresses = [Some(self.peer.ip()), test.options.source];
        let forgotten = addresses.into_iter().flatten().try_for_each(forget);
        let error = forgotten.err().filter(|_| self.tests > 1);
        self.remembered = error.map(|error| remembers("at the endpoint: ", &error));
    }

    /// What was accepted, and what comes from the running half.
    fn look(&mut self) {
        match &mut self.stage {
            Stage::Idle | Stage::Bound { .. } => {}
            Stage::Binding {
                test,
                flows,
                arrivals,
            } => {
                for flow in arrivals.try_iter() {
                    // An option that does not take here was tried when the test was opened.
                    if prepare(test, &flow).is_ok() && flows.iter().all(|f| f.id != flow.id) {
                        flows.push(flow);
                    }
                }
                if flows.len() as u32 == test.flows() {
                    self.stage = Stage::Bound {
                        test: test.clone(),
                        flows: std::mem::take(flows),
                        source: FlowSource::Bound,
                    };
                    self.server.ready(now());
                }
            }
            Stage::Running {
                half,
                next_progress,
                finished,
            } => {
                let now = now();
                if now >= *next_progress {
                    *next_progress = now + PROGRESS_EVERY;
                    self.server.moved(now, half.heard_bytes());
                    self.server.progress(half.progress());
                }
                if !*finished && half.is_through() {
                    *finished = true;
                    self.server.progress(half.progress());
                    self.server.finished();
                }
            }
            Stage::Tracing(tracing) => {
                if let Some(outcome) = tracing.look() {
                    self.traced(outcome);
                }
            }
            Stage::Holding(holding) => {
                if let Some(news) = holding.look() {
                    self.tell_held(news);
                }
            }
        }
    }

    fn trace(&mut self, request: &TraceRequest) {
        // A host that another client has changed is not the client's to look at.
        if let Err(message) = self.lease.place().begin_test() {
            self.server.refuse(RefusalReason::Busy, message);
            return;
        }
        let way = (self.local.ip(), self.peer.ip());
        match Tracing::start(request, way, &self.context.limits) {
            Ok(tracing) => self.stage = Stage::Tracing(tracing),
            Err(none) => self.traced(Err(none)),
        }
    }

    fn traced(&mut self, outcome: Result<TraceDocument, NoTrace>) {
        self.stage = Stage::Idle;
        self.lease.place().end_test();
        match outcome {
            Ok(document) => {
                (self.context.log)(ServeEvent::Tested {
                    peer: self.peer,
                    summary: format!("the way to it: {}", document.end_words),
                });
                self.server.reply(now(), Reply::Trace(Box::new(document)));
            }
            Err((reason, message)) => self.server.refuse(reason, message),
        }
    }

    fn begin(&mut self, at_us: Option<u64>) {
        let Stage::Bound {
            test,
            flows,
            source,
        } = std::mem::replace(&mut self.stage, Stage::Idle)
        else {
            return;
        };
        let beside = Beside {
            profile: self.profile.take(),
            // This session hears nothing meanwhile.
            at_ns: at_us.map(|us| us.saturating_mul(1_000).min(now_ns() + MAX_AHEAD_NS)),
            answers: None,
        };
        match Half::start(End::Server, &test, flows, source, beside) {
            Ok(half) => {
                self.stage = Stage::Running {
                    half,
                    next_progress: now() + PROGRESS_EVERY,
                    finished: false,
                }
            }
            Err(error) => self.server.hang_up(
                RefusalReason::Failed,
                &format!("the endpoint cannot start the test: {error}"),
            ),
        }
    }

    fn end(&mut self) {
        self.registration.close();
        self.lease.place().end_test();
        let facts = host::facts(Some(self.peer.ip()));
        let report = match std::mem::replace(&mut self.stage, Stage::Idle) {
            Stage::Running { half, .. } => {
                let HalfEnd { mut report, .. } = half.stop(facts);
                report
                    .caveats
                    .extend(self.context.limits.rate_bps.map(owners_limit));
                report.caveats.extend(self.remembered.take());
                (self.context.log)(ServeEvent::Tested {
                    peer: self.peer,
                    summary: words::summary(&report),
                });
                report
            }
            _ => HalfReport {
                facts: Box::new(facts),
                ..Default::default()
            },
        };
        // Whoever has the answer may ask again at once.
        self.claim = None;
        self.server.reply(now(), Reply::End(Box::new(report)));
    }

    fn treat(&mut self, changes: &[HostChange]) {
        match self.lease.treat(changes, self.peer.ip()) {
            Ok(read_back) => {
                (self.context.log)(ServeEvent::Treated {
                    peer: self.peer,
                    read_back: read_back.clone(),
                });
                self.server.reply(now(), Reply::Treat(read_back));
            }
            Err(error) => {
                self.cannot_treat(&error);
                if let LeaseError::Undo(_) = error {
                    self.log_undone(Err(error));
                }
            }
        }
    }

    fn untreat(&mut self) {
        let undone = self.lease.untreat();
        match &undone {
            Ok(_) => self.server.reply(now(), Reply::Untreat(())),
            Err(error) => self.cannot_treat(error),
        }
        self.log_undone(undone);
    }

    fn cannot_treat(&mut self, error: &LeaseError) {
        match error.reason() {
            Some(reason) => self.server.refuse(reason, error.to_string()),
            None => self
                .server
                .hang_up(RefusalReason::Failed, &error.to_string()),
        }
    }

    fn log_undone(&self, undone: Result<bool, LeaseError>) {
        let error = match undone {
            Ok(false) => return,
            Ok(true) => None,
            Err(error) => Some(error.to_string()),
        };
        (self.context.log)(ServeEvent::Untreated {
            peer: self.peer,
            error,
        });
    }
}
