//! One client: its control connection, and the tests that it asks for one after another.

use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::Receiver;
use std::time::Duration;

use linerate_core::plan::{Protocol, Test, Traffic};
use linerate_core::record::{Caveat, CaveatKind};
use linerate_core::session::{Server, ServerEvent};
use linerate_core::units::BitRate;
use linerate_core::wire::message::{Limits, RefusalReason, Welcome};
use linerate_core::wire::{Key, Token};

use super::ServeEvent;
use super::registry::{Registration, Registry};
use crate::clock::now;
use crate::control::{ControlSocket, Received};
use crate::host;
use crate::measure::flow::{Flow, FlowSocket, Side, flow_direction, sends};
use crate::measure::half::{Half, HalfEnd};
use crate::measure::source::FlowSource;
use crate::stop::Stop;
use crate::{options, words};

/// What all sessions of an endpoint share.
pub(super) struct Context {
    pub(super) registry: Registry,
    pub(super) limits: Limits,
    pub(super) key: Option<Key>,
    pub(super) active: AtomicU32,
    /// Clients that were admitted and asked for something.
    pub(super) served: AtomicU32,
    pub(super) log: Box<dyn Fn(ServeEvent) + Send + Sync>,
    pub(super) stop: Stop,
}

/// How often a session that waits for flows or runs a test looks at them.
const TICK: Duration = Duration::from_millis(2);
/// Longest wait without looking at the stop flag.
const IDLE_TICK: Duration = Duration::from_millis(100);
/// Between two reports of progress.
const PROGRESS_EVERY: Duration = Duration::from_millis(100);

/// Counts a session for as long as it is there, however it ends.
struct Active<'a>(&'a AtomicU32);

impl Drop for Active<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Serves a client to its end.
pub(super) fn run(context: &Arc<Context>, stream: TcpStream, peer: SocketAddr, sealed: bool) {
    let _active = Active(&context.active);
    let Some(token) = random_token() else {
        return;
    };
    let Ok(socket) = ControlSocket::new(stream) else {
        return;
    };
    let welcome = Welcome {
        software: env!("CARGO_PKG_VERSION").to_owned(),
        token: words::hexadecimal(&token.0),
        operations: ["stream", "rr", "crr"].map(str::to_owned).to_vec(),
        limits: context.limits,
        facts: Box::new(host::facts(Some(peer.ip()))),
    };
    let session = Session {
        registration: context.registry.register(token, peer.ip()),
        server: Server::new(now(), welcome, context.key.as_ref(), sealed),
        stage: Stage::Idle,
        context,
        peer,
        told: false,
    };
    session.drive(socket);
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
}

struct Session<'a> {
    context: &'a Context,
    peer: SocketAddr,
    registration: Registration,
    server: Server,
    stage: Stage,
    /// The log knows of this client.
    told: bool,
}

impl Session<'_> {
    fn drive(mut self, mut socket: ControlSocket) {
        let mut reason = None;
        loop {
            while let Some(bytes) = self.server.poll_transmit() {
                if socket.send(&bytes).is_err() {
                    self.server.handle_close();
                    break;
                }
            }
            while let Some(event) = self.server.poll_event() {
                match event {
                    ServerEvent::Open(test) => self.open(test),
                    ServerEvent::Begin => self.begin(),
                    ServerEvent::End => self.end(),
                    ServerEvent::Closed(error) => reason = error.map(|e| e.to_string()),
                }
            }
            if self.server.is_closed() {
                break;
            }
            self.look();
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

    fn leave(mut self, mut socket: ControlSocket, reason: Option<String>) {
        // The client's data first: a flow that runs on would keep its threads.
        if let Stage::Running { half, .. } = std::mem::replace(&mut self.stage, Stage::Idle) {
            half.stop(host::facts(Some(self.peer.ip())));
        }
        while let Some(bytes) = self.server.poll_transmit() {
            if socket.send(&bytes).is_err() {
                break;
            }
        }
        let event = match (reason, self.told) {
            (Some(reason), false) => ServeEvent::Refused {
                peer: self.peer,
                reason,
            },
            (reason, _) => ServeEvent::Disconnected {
                peer: self.peer,
                reason,
            },
        };
        (self.context.log)(event);
        socket.close();
    }

    fn patience(&self) -> Duration {
        let tick = match &self.stage {
            Stage::Idle | Stage::Bound { .. } => IDLE_TICK,
            Stage::Binding { .. } => TICK,
            Stage::Running { half, .. } => half.patience(),
        };
        match self.server.poll_timeout() {
            Some(at) => at.saturating_sub(now()).min(tick),
            None => tick,
        }
    }

    fn open(&mut self, test: Box<Test>) {
        if !self.told {
            self.told = true;
            self.context.served.fetch_add(1, Ordering::AcqRel);
            (self.context.log)(ServeEvent::Connected { peer: self.peer });
        }
        let test = match self.within_rate(test) {
            Ok(test) => test,
            Err(message) => {
                self.server.refuse(now(), RefusalReason::Limit, message);
                return;
            }
        };
        if let Err(message) = can_do(&test) {
            self.server.refuse(now(), RefusalReason::Test, message);
            return;
        }
        let arrivals = self.registration.open(test.flows(), test.options.source);
        self.server.opened(now());
        if test.connects_within_run() {
            self.stage = Stage::Bound {
                test,
                flows: Vec::new(),
                source: FlowSource::Accept(arrivals.into()),
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

    /// Holds a test to the owner's rate: what this end sends or reads is slowed to it, and what it
    /// cannot slow must not ask for more.
    fn within_rate(&self, mut test: Box<Test>) -> Result<Box<Test>, String> {
        let Some(limit) = self.context.limits.rate_bps else {
            return Ok(test);
        };
        let share = BitRate((limit / u64::from(test.flows())).max(1));
        let slower = |rate: Option<BitRate>| Some(rate.map_or(share, |rate| rate.min(share)));
        let protocol = test.protocol;
        test.options.pacing_bps = slower(test.options.pacing_bps);
        if let Traffic::Stream(stream) = &mut test.traffic {
            if protocol == Protocol::Udp {
                if stream.rate_bps.is_none_or(|rate| rate > share) {
                    return Err(format!(
                        "the endpoint allows {} in all: give --rate {} or less for each stream",
                        BitRate(limit),
                        share.0
                    ));
                }
            } else {
                stream.read_rate_bps = slower(stream.read_rate_bps);
            }
        }
        Ok(test)
    }

    /// What comes from the door and from the running half.
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
                    self.server.progress(half.progress());
                }
                if !*finished && half.is_finished() {
                    *finished = true;
                    self.server.progress(half.progress());
                    self.server.finished();
                }
            }
        }
    }

    fn begin(&mut self) {
        let Stage::Bound {
            test,
            flows,
            source,
        } = std::mem::replace(&mut self.stage, Stage::Idle)
        else {
            return;
        };
        match Half::start(Side::Server, &test, flows, source) {
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
        let facts = host::facts(Some(self.peer.ip()));
        match std::mem::replace(&mut self.stage, Stage::Idle) {
            Stage::Running { half, .. } => {
                let HalfEnd { mut report, .. } = half.stop(facts);
                report
                    .caveats
                    .extend(self.context.limits.rate_bps.map(owners_limit));
                (self.context.log)(ServeEvent::Tested {
                    peer: self.peer,
                    summary: words::summary(&report),
                });
                self.server.report(now(), report);
            }
            _ => {
                let report = linerate_core::wire::message::HalfReport {
                    facts: Box::new(facts),
                    ..Default::default()
                };
                self.server.report(now(), report);
            }
        }
    }
}

/// What the client's record says of a rate that the owner has set.
fn owners_limit(rate_bps: u64) -> Caveat {
    Caveat::new(
        CaveatKind::SettingNotTaken,
        format!(
            "the endpoint's owner allows {} in all: it paces and reads no faster",
            BitRate(rate_bps)
        ),
        "on that host: linerate serve with another --max-rate, or without",
    )
}

/// Tries the test's options on a socket that is thrown away, so that a refusal comes before the flows.
fn can_do(test: &Test) -> Result<(), String> {
    let here = SocketAddr::from(([127, 0, 0, 1], 0));
    let fail = |what: String| format!("the endpoint's host cannot do this test: {what}");
    if test.protocol == Protocol::Udp {
        let socket = linerate_sys::socket::udp_socket(here, None, false)
            .map_err(|error| fail(error.to_string()))?;
        return [true, false].into_iter().try_for_each(|sends| {
            options::apply_udp(&socket, &test.options, sends).map_err(|e| fail(e.to_string()))
        });
    }
    let socket = linerate_sys::socket::tcp_socket(here, None, linerate_sys::socket::Mptcp::Off)
        .map_err(|error| fail(error.to_string()))?;
    let parts = test.direction.parts().iter();
    parts
        .map(|direction| sends(Side::Server, *direction))
        .try_for_each(|sends| {
            options::apply_tcp(&socket, &test.options, Side::Server, sends)
                .map_err(|error| fail(words::chain(&error)))
        })
}

fn prepare(test: &Test, flow: &Flow) -> Result<(), linerate_sys::socket::OptionError> {
    let sends = sends(Side::Server, flow_direction(test, flow.id));
    match &flow.socket {
        FlowSocket::Tcp(stream) => options::apply_tcp(stream, &test.options, Side::Server, sends),
        FlowSocket::Udp(socket) => options::apply_udp(socket, &test.options, sends),
    }
}
