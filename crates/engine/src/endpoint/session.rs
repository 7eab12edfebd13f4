//! One client: its control connection, and the operations that it requests one after another.

use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::Receiver;
use std::thread;
use std::time::Duration;

use data_encoding::HEXLOWER;
use linerate_core::capacity::CapacityRequest;
use linerate_core::plan::{Protocol, Test, Traffic};
use linerate_core::profile::ProfileRequest;
use linerate_core::record::Caveat;
use linerate_core::session::message::{HalfReport, Limits, Refusal, RefusalReason, Welcome};
use linerate_core::session::operation::{
    CAPACITY, Open, PROFILE, Reply, Request, Slot, SlotState, TREATMENTS,
};
use linerate_core::session::{Server, ServerEvent};
use linerate_core::trace::{TraceDocument, TraceRequest};
use linerate_core::treatment::HostChange;
use linerate_core::units::End;
use linerate_core::wire::Token;

use super::budget::{Budget, Claim, Occupancy};
use super::clients::{Clients, Presence, share_of_one};
use super::crr_listener::{self, Listeners, Own};
use super::foreign::iperf3::Turns;
use super::registry::{Registration, Registry, SessionName};
use super::terms::{Lease, LeaseError, Tracing, can_do, owners_limit, prepare, within_rate};
use super::{ServeEvent, ServeOptions};
use crate::capacity::{Holding, HoldingNews};
use crate::clock::{now, now_ns};
use crate::control::ControlSocket;
use crate::host;
use crate::measure::flow::Flow;
use crate::measure::half::{Half, HalfEnd, HalfOptions};
use crate::measure::source::FlowSource;
use crate::stop::Stop;
use crate::treatment::{forget, remembers};
use crate::words;

/// Why a request is refused: the reason, and a message for the user.
pub(super) type Denial = (RefusalReason, String);

/// The state that all sessions of an endpoint share.
pub(super) struct Context {
    pub(super) options: ServeOptions,
    pub(super) listeners: Arc<Listeners>,
    pub(super) registry: Registry,
    pub(super) turns: Turns,
    pub(super) occupancy: Occupancy,
    /// Resources that the clients' tests take.
    pub(super) budget: Budget,
    pub(super) clients: Clients,
    /// Number of connections that wait until a client, which no longer counts, has read the last
    /// message.
    pub(super) parting: AtomicU32,
    /// Number of clients that were admitted and requested something.
    pub(super) served: AtomicU32,
    pub(super) log: Box<dyn Fn(ServeEvent) + Send + Sync>,
    pub(super) stop: Stop,
}

impl Context {
    /// Starts the thread of a client. A failure goes to the log.
    pub(super) fn spawn(&self, name: &str, peer: SocketAddr, work: impl FnOnce() + Send + 'static) {
        if let Err(error) = thread::Builder::new().name(name.into()).spawn(work) {
            self.log_refusal(peer, format!("no thread for it: {error}"));
        }
    }

    fn has_key(&self) -> bool {
        self.options.key.is_some()
    }

    /// The owner's limits for one client.
    fn limits(&self) -> Limits {
        let limits = self.options.limits;
        let share = share_of_one(limits.connections);
        let connections = if self.has_key() { limits.connections } else { share };
        Limits { connections, ..limits }
    }

    /// Takes a thread for a client of linerate's own.
    ///
    /// # Errors
    /// None is available.
    pub(super) fn take_thread(&self, peer: IpAddr) -> Result<Claim, Refusal> {
        self.budget.take_thread(peer, self.has_key())
    }

    pub(super) fn log_refusal(&self, peer: SocketAddr, reason: String) {
        (self.log)(ServeEvent::Refused { peer, reason });
    }

    /// Counts a client as served and logs its connection, at its first sensible request:
    /// `is_logged` is set then.
    pub(super) fn log_client(&self, peer: SocketAddr, is_logged: &mut bool) {
        if !std::mem::replace(is_logged, true) {
            self.served.fetch_add(1, Ordering::AcqRel);
            (self.log)(ServeEvent::Connected { peer });
        }
    }

    /// Sends a client its last message and ends the connection. `client`, its place, is given up
    /// first, so that the client can come back as soon as it has read the message.
    pub(super) fn part<T>(&self, client: T, mut socket: ControlSocket, last_message: &[u8]) {
        let parting = self.parting.fetch_add(1, Ordering::AcqRel);
        drop(client);
        let is_there = socket.send(last_message).is_ok();
        // Such connections are no clients any more; their number is limited here.
        if is_there && parting < MAX_PARTING {
            socket.close();
        }
        self.parting.fetch_sub(1, Ordering::AcqRel);
    }

    /// Whether there is no client, and none that still reads its last message.
    pub(super) fn is_deserted(&self) -> bool {
        self.clients.is_empty() && self.parting.load(Ordering::Acquire) == 0
    }

    /// Logs the end of a client: with a goodbye, or for a reason.
    pub(super) fn log_end(&self, peer: SocketAddr, is_logged: bool, reason: Option<String>) {
        (self.log)(match reason {
            Some(reason) if !is_logged => ServeEvent::Refused { peer, reason },
            reason => ServeEvent::Disconnected { peer, reason },
        });
    }
}

/// How often a session that waits for flows or runs a test looks at them.
const TICK: Duration = Duration::from_millis(2);
/// Longest wait without a look at the stop flag.
const IDLE_TICK: Duration = Duration::from_millis(100);
/// Time between two reports of progress.
const PROGRESS_EVERY: Duration = Duration::from_millis(100);
/// Most connections that wait until their client has read the last message; others are closed.
const MAX_PARTING: u32 = 64;
/// Longest time for which a client can delay the beginning of a test.
const MAX_AHEAD_NS: u64 = 3_000_000_000;
/// Time between two looks at the workers that hold connections.
const HOLDING_TICK: Duration = Duration::from_millis(10);

/// Serves a client until it leaves.
pub(super) fn run(
    context: &Arc<Context>,
    (presence, thread): (Presence, Claim),
    stream: TcpStream,
    peer: SocketAddr,
    sealed: bool,
) {
    let Ok(token) = random_token() else {
        return;
    };
    let (Ok(local), Ok(socket)) = (stream.local_addr(), ControlSocket::new(stream)) else {
        return;
    };
    // A listener for both families has IPv4 clients in IPv6 addresses; their datagrams are IPv4's.
    let (local, peer) = (canonical(local), canonical(peer));
    let name = SessionName::Token(token);
    let Some(registration) = context.registry.register(name, peer.ip()) else {
        return;
    };
    let session = ControlSession {
        token,
        registration,
        lease: Lease::new(context.occupancy.place(token)),
        server: Server::new(now(), context.options.key.as_ref(), sealed),
        stage: SessionStage::Idle,
        context,
        presence,
        _thread: thread,
        peer,
        local,
        is_logged: false,
        tests: 0,
        remembered: None,
        claim: None,
        profile: None,
    };
    session.drive(socket);
}

/// The IPv4 address that an IPv6 one stands for, or the address itself.
fn canonical(address: SocketAddr) -> SocketAddr {
    match address.ip().to_canonical() {
        ip @ IpAddr::V4(_) => SocketAddr::new(ip, address.port()),
        IpAddr::V6(_) => address,
    }
}

fn operations(context: &Context) -> Vec<String> {
    // Requests over held connections have no rate limit, so that an owner's rate excludes them.
    let is_slowed = context.options.limits.rate_bps.is_some();
    let allowed = |name: &&str| match *name {
        CAPACITY => context.options.limits.connections > 0 && !is_slowed,
        PROFILE => context.options.allow_profiles,
        TREATMENTS => context.options.allow_treatments,
        _ => true,
    };
    Request::names().filter(allowed).map(str::to_owned).collect()
}

pub(super) fn random_token() -> Result<Token, String> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| format!("no random numbers: {error}"))?;
    Ok(Token(bytes))
}

/// What the session does at present.
enum SessionStage {
    Idle,
    /// Waiting for the flows of a test.
    Binding {
        test: Box<Test>,
        flows: Vec<Flow>,
        arrivals: Receiver<Flow>,
    },
    /// All flows of the test have arrived.
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

struct ControlSession<'a> {
    context: &'a Context,
    presence: Presence,
    _thread: Claim,
    peer: SocketAddr,
    /// The address of this host to which the client has connected.
    local: SocketAddr,
    token: Token,
    registration: Registration,
    server: Server,
    stage: SessionStage,
    /// The client's changes of this host: undone with the session, however that ends.
    lease: Lease,
    /// The log has a line for this client.
    is_logged: bool,
    /// Number of tests that the client has opened.
    tests: u64,
    /// Set if this host's kernel still has metrics of earlier tests.
    remembered: Option<Caveat>,
    /// Resources of the test that is open.
    claim: Option<Claim>,
    /// The profile that the next test asks for.
    profile: Option<ProfileRequest>,
}

impl ControlSession<'_> {
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
            self.come_back();
            self.look();
            let patience = self.patience();
            socket.drive(&mut self.server, patience);
            if self.context.stop.is_requested() {
                self.server.hang_up(RefusalReason::Stopping, "the endpoint is shutting down");
            }
        }
        self.leave(socket, reason);
    }

    /// Admits the client if there is a place. Only now, after the key is proved, this host gathers
    /// its facts.
    fn welcome(&mut self) {
        if let Err(message) = self.presence.enter() {
            return self.server.hang_up(RefusalReason::Busy, &message);
        }
        self.registration.admit();
        let welcome = Welcome {
            software: env!("CARGO_PKG_VERSION").to_owned(),
            token: HEXLOWER.encode(&self.token.0),
            operations: operations(self.context),
            limits: self.context.limits(),
            facts: Box::new(host::facts(Some(self.peer.ip()))),
        };
        self.server.welcome(now(), welcome);
    }

    /// Does what the client requests: each operation has its handler here.
    fn serve(&mut self, request: Request) {
        self.context.log_client(self.peer, &mut self.is_logged);
        // A session that has the slot has given up its place.
        if !matches!(request, Request::Slot(_))
            && let Err(message) = self.presence.enter()
        {
            return self.server.hang_up(RefusalReason::Busy, &message);
        }
        let mut begun = Ok(());
        match request {
            Request::Open(open) => begun = self.open(open),
            Request::Trace(request) => begun = self.trace(&request),
            Request::Hold(request) => begun = self.hold(&request),
            Request::End(_) => self.end(),
            Request::Treat(treat) => self.treat(&treat.changes),
            Request::Untreat(_) => self.untreat(),
            Request::Clock(_) => {
                let now_us = now_ns() / 1_000;
                self.server.reply(now(), Reply::Clock(now_us));
            }
            Request::Slot(slot) => self.lease_slot(slot),
            Request::Release(_) => self.release(),
        }
        if let Err((reason, message)) = begun {
            self.server.refuse(reason, message);
        }
    }

    fn leave(mut self, socket: ControlSocket, reason: Option<String>) {
        // First of all the changes are undone: an endpoint that stops has only a moment for it.
        let undone = self.lease.untreat();
        self.log_undone(undone);
        // Then the test ends: otherwise its threads would go on.
        if let SessionStage::Running { half, .. } =
            std::mem::replace(&mut self.stage, SessionStage::Idle)
        {
            self.carried(&half);
            half.stop(host::facts(Some(self.peer.ip())));
        }
        self.lease.place().end_test();
        self.context.log_end(self.peer, self.is_logged, reason);
        let last: Vec<_> = std::iter::from_fn(|| self.server.poll_transmit()).collect();
        let context = self.context;
        context.part(self, socket, &last.concat());
    }

    fn patience(&self) -> Duration {
        match &self.stage {
            SessionStage::Idle | SessionStage::Bound { .. } => IDLE_TICK,
            SessionStage::Binding { .. } | SessionStage::Tracing(_) => TICK,
            SessionStage::Running { half, .. } => half.patience(),
            SessionStage::Holding(_) => HOLDING_TICK,
        }
    }

    fn begin_test(&self) -> Result<(), Denial> {
        let begun = self.lease.place().begin_test();
        begun.map_err(|message| (RefusalReason::Busy, message))
    }

    fn open(&mut self, open: Open) -> Result<(), Denial> {
        self.profile = open.profile;
        let context = self.context;
        let has_key = context.has_key();
        let test = within_rate(open.test, context.options.limits.rate_bps)
            .map_err(|message| (RefusalReason::Limit, message))?;
        can_do(&test, has_key).map_err(|message| (RefusalReason::Test, message))?;
        let claim = context
            .budget
            .take(self.peer.ip(), &test, has_key)
            .map_err(|refusal| (refusal.reason, refusal.message))?;
        self.begin_test()?;
        self.claim = Some(claim);
        self.forget_earlier(&test);
        let arrivals = self.registration.open(test.flows(), test.options.source);
        self.server.reply(now(), Reply::Open(()));
        if test.connects_within_run() {
            self.stage = SessionStage::Bound {
                flows: Vec::new(),
                source: self.connections(&test, arrivals),
                test,
            };
            self.server.ready(now());
        } else {
            self.stage = SessionStage::Binding { test, flows: Vec::new(), arrivals };
        }
        Ok(())
    }

    fn lease_slot(&mut self, slot: Slot) {
        let lasts = Duration::from_secs_f64(slot.seconds);
        let state = match self.lease.place().lease_slot(self.peer.ip(), lasts) {
            Ok(()) => {
                // Only one session has the slot, and its tests have their own sessions: it need
                // not take a client's place beside them.
                if !self.context.options.one_off {
                    self.presence.step_aside();
                }
                SlotState::Leased(slot.seconds)
            }
            Err(left) => SlotState::Busy(left.as_secs_f64()),
        };
        self.server.reply(now(), Reply::Slot(state));
    }

    /// Takes a client's place again when the lease of the slot is over.
    fn come_back(&mut self) {
        if self.presence.is_aside()
            && !self.lease.place().has_slot()
            && let Err(message) = self.presence.enter()
        {
            self.server.hang_up(RefusalReason::Busy, &message);
        }
    }

    /// The source of connections for a test that makes them within the run.
    fn connections(&self, test: &Test, inbox: Receiver<Flow>) -> FlowSource {
        if !matches!(test.traffic, Traffic::Crr(_)) || test.protocol == Protocol::Mptcp {
            return FlowSource::Accept(inbox.into());
        }
        let own = Own {
            token: self.token,
            source: test.options.source.unwrap_or(self.peer.ip()),
            flows: test.flows(),
        };
        crr_listener::source(&self.context.listeners, &self.context.registry, own, inbox)
    }

    /// Makes the kernel forget the TCP metrics of earlier tests, because in a comparison each run
    /// must begin like the first. If that fails, it matters from the second test on.
    fn forget_earlier(&mut self, test: &Test) {
        self.tests += 1;
        if !self.context.options.allow_treatments || test.protocol == Protocol::Udp {
            return;
        }
        let addresses = [Some(self.peer.ip()), test.options.source];
        let forgotten = addresses.into_iter().flatten().try_for_each(forget);
        let error = forgotten.err().filter(|_| self.tests > 1);
        self.remembered = error.map(|error| remembers("at the endpoint: ", &error));
    }

    /// Looks for flows that have arrived, and at what is running.
    fn look(&mut self) {
        match &mut self.stage {
            SessionStage::Idle | SessionStage::Bound { .. } => {}
            SessionStage::Binding { test, flows, arrivals } => {
                for flow in arrivals.try_iter() {
                    // The options were tried when the test was opened.
                    if prepare(test, &flow).is_ok() && flows.iter().all(|f| f.id != flow.id) {
                        flows.push(flow);
                    }
                }
                if flows.len() as u32 == test.flows() {
                    self.stage = SessionStage::Bound {
                        test: test.clone(),
                        flows: std::mem::take(flows),
                        source: FlowSource::Bound,
                    };
                    self.server.ready(now());
                }
            }
            SessionStage::Running { half, next_progress, finished } => {
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
            SessionStage::Tracing(tracing) => {
                if let Some(outcome) = tracing.look() {
                    self.end_trace(outcome);
                }
            }
            SessionStage::Holding(holding) => {
                if let Some(news) = holding.look() {
                    self.tell_held(news);
                }
            }
        }
    }

    fn trace(&mut self, request: &TraceRequest) -> Result<(), Denial> {
        // A host that another client has changed would give this client wrong results.
        self.begin_test()?;
        let ends = (self.local.ip(), self.peer.ip());
        let context = self.context;
        let thread = context
            .take_thread(self.peer.ip())
            .map_err(|refusal| (refusal.reason, refusal.message));
        let started = thread
            .and_then(|thread| Tracing::start(request, ends, &context.options.limits, thread));
        match started {
            Ok(tracing) => self.stage = SessionStage::Tracing(tracing),
            Err(denial) => self.end_trace(Err(denial)),
        }
        Ok(())
    }

    fn end_trace(&mut self, outcome: Result<TraceDocument, Denial>) {
        self.stage = SessionStage::Idle;
        self.lease.place().end_test();
        match outcome {
            Ok(document) => {
                self.log_test(format!("the way to it: {}", document.end_words));
                self.server.reply(now(), Reply::Trace(Box::new(document)));
            }
            Err((reason, message)) => self.server.refuse(reason, message),
        }
    }

    fn begin(&mut self, at_us: Option<u64>) {
        let SessionStage::Bound { test, flows, source } =
            std::mem::replace(&mut self.stage, SessionStage::Idle)
        else {
            return;
        };
        let options = HalfOptions {
            profile: self.profile.take(),
            // Bounded, because this session is blocked until then.
            at_ns: at_us.map(|us| us.saturating_mul(1_000).min(now_ns() + MAX_AHEAD_NS)),
            ..HalfOptions::default()
        };
        match Half::start(End::Server, &test, flows, source, options) {
            Ok(half) => {
                self.stage = SessionStage::Running {
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
        let report = match std::mem::replace(&mut self.stage, SessionStage::Idle) {
            SessionStage::Running { half, .. } => {
                self.carried(&half);
                let HalfEnd { mut report, .. } = half.stop(facts);
                report.caveats.extend(self.context.options.limits.rate_bps.map(owners_limit));
                report.caveats.extend(self.remembered.take());
                self.log_test(words::summary(&report));
                report
            }
            _ => HalfReport { facts: Box::new(facts), ..Default::default() },
        };
        // Before the answer, after which the client may open the next test at once.
        self.claim = None;
        self.server.reply(now(), Reply::End(Box::new(report)));
    }

    fn hold(&mut self, request: &CapacityRequest) -> Result<(), Denial> {
        let (context, peer) = (self.context, self.peer.ip());
        let claim = context
            .budget
            .take_holding(peer, request, context.has_key())
            .map_err(|refusal| (refusal.reason, refusal.message))?;
        self.begin_test()?;
        let claim = (Box::new(claim) as _, context.limits().connections);
        let started = Holding::start(request, (self.local, peer), self.token, claim);
        let holding = started.map_err(|message| {
            self.lease.place().end_test();
            (RefusalReason::Test, message)
        })?;
        self.stage = SessionStage::Holding(Box::new(holding));
        Ok(())
    }

    fn release(&mut self) {
        if let SessionStage::Holding(holding) = &mut self.stage {
            holding.release();
        }
    }

    fn tell_held(&mut self, news: HoldingNews) {
        match news {
            HoldingNews::Ready(ports) => self.server.reply(now(), Reply::Hold(ports)),
            HoldingNews::Progress(progress) => self.server.held(progress),
            HoldingNews::Released(half) => {
                self.end_holding();
                let (tcp, udp) = (half.tcp.most, half.udp.most);
                self.log_test(format!("held {tcp} connections and {udp} UDP sockets"));
                self.server.reply(now(), Reply::Release(half));
            }
            HoldingNews::Refused(message) => {
                self.end_holding();
                self.server.refuse(RefusalReason::Test, message);
            }
            HoldingNews::Failed(message) => {
                self.end_holding();
                self.server.hang_up(RefusalReason::Failed, message);
            }
        }
    }

    fn end_holding(&mut self) {
        self.stage = SessionStage::Idle;
        self.lease.place().end_test();
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
            None => self.server.hang_up(RefusalReason::Failed, &error.to_string()),
        }
    }

    fn carried(&mut self, half: &Half) {
        if let Some(claim) = &mut self.claim {
            claim.carried(half.carried_bytes());
        }
    }

    fn log_test(&self, summary: String) {
        let peer = self.peer;
        (self.context.log)(ServeEvent::Tested { peer, summary });
    }

    fn log_undone(&self, undone: Result<bool, LeaseError>) {
        let error = match undone {
            Ok(false) => return,
            Ok(true) => None,
            Err(error) => Some(error.to_string()),
        };
        (self.context.log)(ServeEvent::Untreated { peer: self.peer, error });
    }
}
