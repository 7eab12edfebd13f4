//! One client of iperf3's: its control connection, its streams, its record.

use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::{Duration, SystemTime};

use linerate_core::foreign::iperf3::{
    Cookie, ErrorCode, Params, Results, Server, ServerEvent, Transport,
};
use linerate_core::foreign::{Excess, ForeignRun, Role, Tool};
use linerate_core::plan::{Direction, Extent, MAX_SECONDS, Test};
use linerate_core::record::Status;
use linerate_core::session::message::HalfReport;
use linerate_core::units::{Family, Span, format_rfc3339};

use super::calls::Call;
use super::output;
use crate::clock::now;
use crate::control::{ControlSocket, Received};
use crate::endpoint::Running;
use crate::endpoint::foreign::Guest;
use crate::endpoint::terms::{can_do, owners_limit, prepare, within_rate};
use crate::host;
use crate::measure::flow::Flow;
use crate::measure::half::Half;
use crate::measure::live::{LiveFlow, until_interval};
use crate::measure::shared::Marks;
use crate::measure::source::FlowSource;
use crate::partner::Accounts;
use linerate_core::units::End;

/// How often a session that waits for flows, or for the last bytes, looks at them.
const TICK: Duration = Duration::from_millis(2);
/// Longest wait without looking at the stop flag.
const IDLE_TICK: Duration = Duration::from_millis(100);
/// Without a byte from a client that sends, as long as the reference's server waits.
const SILENCE: Duration = Duration::from_secs(120);
/// What is still in flight at the end of a counted test is waited for: so long without a byte, and
/// in all.
const LAST_BYTES: Duration = Duration::from_secs(2);
const ALL_LAST_BYTES: Duration = Duration::from_secs(10);
/// Where both ends send it is not known how much there is to come.
const LAST_OF_BOTH: Duration = Duration::from_millis(200);

/// Serves a client to its end.
pub(in crate::endpoint) fn run(guest: Guest, stream: TcpStream, cookie: Cookie) {
    let peer = guest.peer();
    let Some(call) = guest.context().calls.register(cookie, peer.ip()) else {
        return guest.left(Some("its cookie is another test's".to_owned()));
    };
    let (Ok(local), Ok(socket)) = (stream.local_addr(), ControlSocket::new(stream)) else {
        return;
    };
    socket.expect_signs_of_life();
    let longest = Duration::from_secs_f64(guest.context().limits.seconds);
    let session = Session {
        server: Server::new(now(), longest),
        guest,
        local,
        call,
        cookie,
        live: None,
        stage: Stage::Idle,
        asked: None,
        started_at: String::new(),
        account: None,
    };
    session.drive(socket);
}

/// What the session is doing.
enum Stage {
    Idle,
    /// Waiting until no other test from that address opens UDP flows.
    Queueing {
        arrivals: Receiver<Flow>,
    },
    /// Waiting for the flows.
    Opening {
        flows: Vec<Flow>,
        arrivals: Receiver<Flow>,
    },
    Running {
        half: Half,
        heard: Heard,
    },
    /// A counted test is over for the client, and not all of it may be here.
    Draining {
        half: Half,
        heard: Heard,
        until: Duration,
    },
}

/// When a byte came last.
struct Heard {
    bytes: u64,
    at: Duration,
}

impl Heard {
    fn new() -> Self {
        Self {
            bytes: 0,
            at: now(),
        }
    }

    /// How long nothing has come.
    fn silence(&mut self, half: &Half) -> Duration {
        let bytes = half.progress().received_bytes;
        if bytes != self.bytes {
            *self = Self { bytes, at: now() };
        }
        now().saturating_sub(self.at)
    }
}

/// A test as it was asked for, and as it is driven: the client alone says when it is over.
struct Asked {
    params: Params,
    test: Test,
    driven: Test,
}

impl Asked {
    /// What a counted test takes, over all flows of a direction, bytes; 0 for one of a time.
    fn amount(&self) -> u64 {
        let params = &self.params;
        match params.bytes {
            0 => params.blocks.saturating_mul(params.block_bytes),
            bytes => bytes,
        }
    }

    /// What this end sends at most: its client sees late that it has enough. Not where the client
    /// leaves a part out: a warm-up, or datagrams that are lost.
    fn quota(&self) -> Option<u64> {
        let whole = self.params.transport == Transport::Tcp && self.params.omit_s == 0;
        Some(self.amount()).filter(|amount| whole && *amount > 0)
    }
}

struct Session {
    guest: Guest,
    /// Where the client has reached the endpoint.
    local: SocketAddr,
    call: Call,
    cookie: Cookie,
    /// Intervals that the log was told of; `None` before the test runs.
    live: Option<u64>,
    server: Server,
    stage: Stage,
    asked: Option<Asked>,
    started_at: String,
    /// This end's account, until the client's has come.
    account: Option<(HalfReport, Status)>,
}

impl Session {
    fn drive(mut self, mut socket: ControlSocket) {
        let mut reason = None;
        loop {
            self.flush(&mut socket);
            while let Some(event) = self.server.poll_event() {
                match event {
                    ServerEvent::Asked(params) => self.asked(*params),
                    ServerEvent::Begin => {
                        self.flush(&mut socket);
                        self.begin();
                    }
                    ServerEvent::End => {
                        self.leave_port();
                        self.end();
                    }
                    ServerEvent::Results(results) => self.record(Some(&results)),
                    ServerEvent::Closed(error) => reason = error.map(|error| error.to_string()),
                }
            }
            self.look();
            self.flush(&mut socket);
            if self.server.is_closed() && reason.is_some() {
                break;
            }
            if self.server.is_closed() {
                // The last event may still wait.
                reason = self.last_words();
                break;
            }
            match socket.receive(self.patience()) {
                Received::Bytes(bytes) => self.server.handle_input(now(), bytes),
                Received::Nothing => {}
                Received::Closed => self.server.handle_close(),
            }
            self.server.handle_timeout(now());
            if self.guest.context().stop.is_requested() {
                self.server.terminate();
            }
        }
        self.leave(socket, reason);
    }

    /// A server of one test is followed by the next one as soon as its client is gone.
    fn leave_port(&self) {
        let context = self.guest.context();
        if context.one_off {
            context.listeners.leave_ports();
        }
    }

    fn last_words(&mut self) -> Option<String> {
        let mut reason = None;
        while let Some(event) = self.server.poll_event() {
            if let ServerEvent::Closed(error) = event {
                reason = error.map(|error| error.to_string());
            }
        }
        reason
    }

    fn flush(&mut self, socket: &mut ControlSocket) {
        while let Some(bytes) = self.server.poll_transmit() {
            if socket.send(&bytes).is_err() {
                self.server.handle_close();
                return;
            }
        }
    }

    fn patience(&self) -> Duration {
        let tick = match &self.stage {
            Stage::Idle => IDLE_TICK,
            Stage::Queueing { .. } | Stage::Opening { .. } | Stage::Draining { .. } => TICK,
            Stage::Running { half, .. } => self.until_interval(half),
        };
        match self.server.poll_timeout() {
            Some(at) => at.saturating_sub(now()).min(tick),
            None => tick,
        }
    }

    /// Looks at a test that was asked for.
    fn asked(&mut self, params: Params) {
        match self.admit(params) {
            Ok(asked) => {
                self.guest.tell();
                let arrivals = self.call.open(asked.params.flows());
                match asked.params.transport {
                    Transport::Udp(_) => self.stage = Stage::Queueing { arrivals },
                    Transport::Tcp => self.open(arrivals),
                }
                self.asked = Some(asked);
            }
            Err((code, why)) => self.server.refuse(code, why),
        }
    }

    fn admit(&self, params: Params) -> Result<Asked, (ErrorCode, String)> {
        let context = self.guest.context();
        match &context.iperf3 {
            Some(access) => access
                .admit(params.token.as_deref(), self.guest.peer().ip())
                .map_err(|why| (ErrorCode::AUTHORIZATION, why.to_string()))?,
            None if context.key.is_some() => {
                let why = "the endpoint has a key, which iperf3's protocol cannot prove";
                return Err((ErrorCode::AUTHORIZATION, why.to_owned()));
            }
            None => {}
        }
        if let Some(excess) = params.demand().excess(&context.limits) {
            let code = match excess {
                Excess::Streams(_) => ErrorCode::STREAMS,
                Excess::Seconds(_) => ErrorCode::MAX_DURATION,
                Excess::Rate(_) => ErrorCode::TOTAL_RATE,
            };
            return Err((code, excess.message().to_owned()));
        }
        let test = params.to_test(0);
        // The client alone says when it is over.
        let mut driven = Box::new(Test {
            extent: Extent::Time(Span(Duration::from_secs_f64(MAX_SECONDS))),
            ..test.clone()
        });
        if params.transport == Transport::Tcp {
            driven = within_rate(driven, context.limits.rate_bps)
                .map_err(|why| (ErrorCode::TOTAL_RATE, why))?;
        }
        can_do(&driven, false).map_err(|why| match params.congestion {
            Some(_) => (ErrorCode::CONGESTION, why),
            None => (ErrorCode::STREAM, why),
        })?;
        let free = self.guest.enter().and_then(|()| self.guest.claim(&driven));
        let free = free.and_then(|()| self.guest.begin_test());
        free.map_err(|why| (ErrorCode::BUSY, why))?;
        Ok(Asked {
            params,
            test,
            driven: *driven,
        })
    }

    fn open(&mut self, arrivals: Receiver<Flow>) {
        self.server.accept(now());
        self.stage = Stage::Opening {
            flows: Vec::new(),
            arrivals,
        };
    }

    /// What was accepted, and what comes from the running half.
    fn look(&mut self) {
        match std::mem::replace(&mut self.stage, Stage::Idle) {
            Stage::Idle => {}
            Stage::Queueing { arrivals } if self.call.take_turn() => self.open(arrivals),
            Stage::Queueing { arrivals } => self.stage = Stage::Queueing { arrivals },
            Stage::Opening { flows, arrivals } => self.gather(flows, arrivals),
            Stage::Running { half, mut heard } => {
                if self.receives() && heard.silence(&half) > SILENCE {
                    let why = format!("nothing came for {} s", SILENCE.as_secs());
                    self.server.refuse(ErrorCode::NO_MESSAGE, why);
                }
                self.tell_intervals(&half);
                self.stage = Stage::Running { half, heard };
            }
            Stage::Draining {
                half,
                mut heard,
                until,
            } => {
                let patience = self.patience_for_last_bytes();
                if heard.silence(&half) > patience || self.has_all(&half) || now() > until {
                    self.report(half);
                } else {
                    self.stage = Stage::Draining { half, heard, until };
                }
            }
        }
    }

    fn gather(&mut self, mut flows: Vec<Flow>, arrivals: Receiver<Flow>) {
        let Some(asked) = &self.asked else {
            return;
        };
        let mut refused = None;
        for flow in arrivals.try_iter() {
            self.server.stream_came(now());
            match prepare(&asked.driven, &flow) {
                Ok(()) => flows.push(flow),
                Err(error) => refused = Some(crate::words::chain(&error)),
            }
        }
        if let Some(why) = refused {
            return self.server.refuse(ErrorCode::STREAM, why);
        }
        let whole = flows.len() as u32 == asked.params.flows();
        self.stage = Stage::Opening { flows, arrivals };
        if whole {
            self.call.end_turn();
            self.server.begin(now());
        }
    }

    fn begin(&mut self) {
        let (Stage::Opening { flows, .. }, Some(asked)) =
            (std::mem::replace(&mut self.stage, Stage::Idle), &self.asked)
        else {
            return;
        };
        let marks = match asked.params.transport {
            Transport::Tcp => Marks::Own,
            Transport::Udp(layout) => Marks::Iperf3(layout),
        };
        self.started_at = format_rfc3339(SystemTime::now());
        let source = FlowSource::Bound;
        match Half::start_marked(
            End::Server,
            &asked.driven,
            marks,
            asked.quota(),
            flows,
            source,
        ) {
            Ok(half) => {
                let heard = Heard::new();
                self.stage = Stage::Running { half, heard };
            }
            Err(error) => self.server.refuse(
                ErrorCode::STREAM,
                format!("the endpoint cannot start the test: {error}"),
            ),
        }
    }

    /// The client has ended the test.
    fn end(&mut self) {
        let Stage::Running { half, .. } = std::mem::replace(&mut self.stage, Stage::Idle) else {
            return;
        };
        let counted = self.asked.as_ref();
        let counted = counted.is_some_and(|a| !matches!(a.test.extent, Extent::Time(_)));
        if counted && self.receives() && !self.has_all(&half) {
            self.stage = Stage::Draining {
                half,
                heard: Heard::new(),
                until: now() + ALL_LAST_BYTES,
            };
        } else {
            self.report(half);
        }
    }

    /// Whether this end receives.
    fn receives(&self) -> bool {
        let asked = self.asked.as_ref();
        asked.is_some_and(|asked| asked.params.direction != Direction::Down)
    }

    fn patience_for_last_bytes(&self) -> Duration {
        match self.asked.as_ref().map(|asked| asked.params.direction) {
            Some(Direction::Both) => LAST_OF_BOTH,
            _ => LAST_BYTES,
        }
    }

    /// Whether all that a counted test of one direction sends is here.
    fn has_all(&self, half: &Half) -> bool {
        self.asked.as_ref().is_some_and(|asked| {
            let received = half.progress().received_bytes;
            asked.params.direction == Direction::Up && received >= asked.amount()
        })
    }

    /// Stops, and tells the client what this end has counted.
    fn report(&mut self, half: Half) {
        let report = self.stop(half);
        if let Some(asked) = &self.asked {
            let mut results = Results::of_half(&report, &asked.test);
            if asked.params.wants_output {
                results.output = Some(output::text(&report));
            }
            self.server.report(now(), &results);
        }
        self.account = Some((report, Status::Complete));
    }

    fn stop(&mut self, half: Half) -> HalfReport {
        if self.live.is_some() {
            self.tell_running(half.at_s(), half.flows(), None);
        }
        // At once: what comes while the host is looked at is no longer of the test.
        half.request_stop();
        let mut report = half.stop(host::facts(Some(self.guest.peer().ip()))).report;
        let limit = self.guest.context().limits.rate_bps;
        report.caveats.extend(limit.map(owners_limit));
        self.guest.end_test();
        report
    }

    /// How long a running half can be left alone.
    fn until_interval(&self, half: &Half) -> Duration {
        match self.live_test() {
            Some(test) => half.patience().min(until_interval(&test, half.at_s()).0),
            None => half.patience(),
        }
    }

    /// The test with the intervals that the log wants, if it wants any.
    fn live_test(&self) -> Option<Test> {
        let interval = Span(self.guest.context().live?);
        let test = self.asked.as_ref()?.test.clone();
        Some(Test { interval, ..test })
    }

    /// Tells the log of a half at its beginning and after each interval.
    fn tell_intervals(&mut self, half: &Half) {
        let Some(test) = self.live_test() else {
            return;
        };
        let (_, over) = until_interval(&test, half.at_s());
        if self.live.replace(over) != Some(over) {
            self.tell_running(half.at_s(), half.flows(), None);
        }
    }

    fn tell_running(&self, at_s: f64, flows: Vec<LiveFlow>, accounts: Option<Accounts>) {
        if let Some(test) = self.live_test() {
            let letters = self.cookie.0.strip_suffix(&[0]).unwrap_or_default();
            self.guest.tell_running(Running {
                test,
                cookie: String::from_utf8_lossy(letters).into_owned(),
                at_s,
                flows,
                accounts,
            });
        }
    }

    /// Leaves the record of what has been measured, if anything has.
    fn record(&mut self, results: Option<&Results>) {
        let (Some((here, status)), Some(asked)) = (self.account.take(), &self.asked) else {
            return;
        };
        let accounts = Accounts {
            here: Results::of_half(&here, &asked.test),
            there: results.cloned(),
        };
        self.tell_running(0.0, Vec::new(), Some(accounts));
        let local = self.local;
        self.guest.tested(ForeignRun {
            tool: Tool::Iperf3,
            version: asked.params.version.clone(),
            role: Role::Served,
            test: asked.test.clone(),
            host: local.ip().to_string(),
            peer: local.to_string(),
            family: Family::from(local.ip()),
            started_at: std::mem::take(&mut self.started_at),
            status,
            there: results
                .filter(|results| results.is_possible(&here))
                .map(|results| results.to_half(&here, false)),
            here,
            exchange: None,
        });
    }

    fn leave(mut self, mut socket: ControlSocket, reason: Option<String>) {
        // The client's data first: a flow that runs on would keep its threads.
        if let Stage::Running { half, .. } | Stage::Draining { half, .. } =
            std::mem::replace(&mut self.stage, Stage::Idle)
        {
            let report = self.stop(half);
            self.account = Some((report, Status::Partial));
        }
        self.record(None);
        self.flush(&mut socket);
        self.guest.left(reason);
        let context = Arc::clone(self.guest.context());
        context.part(self, socket, &[]);
    }
}
