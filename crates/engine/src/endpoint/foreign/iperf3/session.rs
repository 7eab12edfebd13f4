//! One iperf3 client: its control connection, its streams, its record.

use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::{Duration, SystemTime};

use linerate_core::foreign::iperf3::{
    Cookie, ErrorCode, Params, Results, Server, ServerEvent, Transport,
};
use linerate_core::foreign::{Excess, ForeignRun};
use linerate_core::plan::{Direction, Extent, MAX_SECONDS, Test};
use linerate_core::record::Status;
use linerate_core::session::message::HalfReport;
use linerate_core::units::{End, Family, Span, format_rfc3339};

use super::Call;
use crate::clock::now;
use crate::control::ControlSocket;
use crate::endpoint::Running;
use crate::endpoint::foreign::{ForeignClient, Standstill};
use crate::endpoint::session::Context;
use crate::endpoint::terms::{can_do, prepare, within_rate};
use crate::measure::flow::{Flow, LiveFlow, Marks, until_interval};
use crate::measure::half::{Half, HalfOptions};
use crate::measure::source::FlowSource;
use crate::partner::Accounts;

/// How often a session that waits for flows, or for the last bytes, looks for them.
const TICK: Duration = Duration::from_millis(2);
/// Longest wait without a look at the stop flag.
const IDLE_TICK: Duration = Duration::from_millis(100);
/// Longest silence of a client that sends; iperf3's own server waits as long.
const SILENCE: Duration = Duration::from_secs(120);
/// At the end of a counted test: longest wait for the next byte in flight, and for all of them.
const LAST_BYTES: Duration = Duration::from_secs(2);
const ALL_LAST_BYTES: Duration = Duration::from_secs(10);
/// The same for the next byte where both ends send, since then the amount in flight is not known.
const LAST_OF_BOTH: Duration = Duration::from_millis(200);

/// Serves a client until it leaves.
pub(in crate::endpoint) fn run(client: ForeignClient, stream: TcpStream, cookie: Cookie) {
    let peer = client.peer;
    let Context { registry, turns, .. } = &*client.context;
    let Some(call) = Call::new(registry, turns, cookie, peer.ip()) else {
        return client.log_end(Some("its cookie is another test's".to_owned()));
    };
    let (Ok(local), Ok(socket)) = (stream.local_addr(), ControlSocket::new(stream)) else {
        return;
    };
    socket.expect_signs_of_life();
    let longest = Duration::from_secs_f64(client.context.options.limits.seconds);
    let session = Iperf3Session {
        server: Server::new(now(), longest),
        client,
        local,
        call,
        cookie,
        live: None,
        stage: Iperf3Stage::Idle,
        asked: None,
        started_at: String::new(),
        account: None,
    };
    session.drive(socket);
}

/// What the session does at present.
enum Iperf3Stage {
    Idle,
    /// Waiting while another test from the same address opens its UDP flows.
    Queueing {
        arrivals: Receiver<Flow>,
    },
    /// Waiting for the flows of the test.
    Opening {
        flows: Vec<Flow>,
        arrivals: Receiver<Flow>,
    },
    Running {
        half: Half,
        heard: Standstill,
    },
    /// The client has ended a counted test, whose last bytes may still be in flight.
    Draining {
        half: Half,
        heard: Standstill,
        until: Duration,
    },
}

/// A test as it was requested, and as it is run: without an end, because the client ends it.
struct RequestedTest {
    params: Params,
    test: Test,
    driven: Test,
}

impl RequestedTest {
    /// Bytes of a counted test, over all flows of a direction; 0 for a timed test.
    fn amount(&self) -> u64 {
        let params = &self.params;
        match params.bytes {
            0 => params.blocks.saturating_mul(params.block_bytes),
            bytes => bytes,
        }
    }

    /// Most bytes that this end sends, because the client notices late that it has received enough.
    /// There is no limit where the client does not count all bytes: with a warm-up, or datagrams.
    fn quota(&self) -> Option<u64> {
        let whole = self.params.transport == Transport::Tcp && self.params.omit_s == 0;
        Some(self.amount()).filter(|amount| whole && *amount > 0)
    }
}

struct Iperf3Session {
    client: ForeignClient,
    /// The address of this host to which the client has connected.
    local: SocketAddr,
    call: Call,
    cookie: Cookie,
    /// Number of intervals that were logged; `None` before the test runs.
    live: Option<u64>,
    server: Server,
    stage: Iperf3Stage,
    asked: Option<RequestedTest>,
    started_at: String,
    /// This end's report, until the client's results have arrived.
    account: Option<(HalfReport, Status)>,
}

impl Iperf3Session {
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
            if self.server.is_closed() {
                // The event with the reason may still wait.
                reason = reason.or_else(|| self.last_reason());
                break;
            }
            let patience = self.patience();
            socket.listen(&mut self.server, patience);
            if self.client.context.stop.is_requested() {
                self.server.terminate();
            }
        }
        self.leave(socket, reason);
    }

    /// Frees the port of an endpoint that serves one client: another process may be about to listen
    /// there.
    fn leave_port(&self) {
        let context = &self.client.context;
        if context.options.one_off {
            context.listeners.leave_ports();
        }
    }

    fn last_reason(&mut self) -> Option<String> {
        let mut reason = None;
        while let Some(event) = self.server.poll_event() {
            if let ServerEvent::Closed(error) = event {
                reason = error.map(|error| error.to_string());
            }
        }
        reason
    }

    fn flush(&mut self, socket: &mut ControlSocket) {
        if !socket.transmit(&mut self.server) {
            self.server.handle_close();
        }
    }

    fn patience(&self) -> Duration {
        match &self.stage {
            Iperf3Stage::Idle => IDLE_TICK,
            Iperf3Stage::Queueing { .. }
            | Iperf3Stage::Opening { .. }
            | Iperf3Stage::Draining { .. } => TICK,
            Iperf3Stage::Running { half, .. } => self.until_interval(half),
        }
    }

    /// Handles the request of a test.
    fn asked(&mut self, params: Params) {
        match self.admit(params) {
            Ok(asked) => {
                self.client.log_client();
                let arrivals = self.call.open(asked.params.flows());
                match asked.params.transport {
                    Transport::Udp(_) => self.stage = Iperf3Stage::Queueing { arrivals },
                    Transport::Tcp => self.open(arrivals),
                }
                self.asked = Some(asked);
            }
            Err((code, why)) => self.server.refuse(code, why),
        }
    }

    fn admit(&self, params: Params) -> Result<RequestedTest, (ErrorCode, String)> {
        let context = &self.client.context;
        match &context.options.iperf3 {
            Some(access) => access
                .admit(params.token.as_deref(), self.client.peer.ip())
                .map_err(|why| (ErrorCode::AUTHORIZATION, why.to_string()))?,
            None if context.options.key.is_some() => {
                let why = "the endpoint has a key, which iperf3's protocol cannot prove";
                return Err((ErrorCode::AUTHORIZATION, why.to_owned()));
            }
            None => {}
        }
        if let Some(excess) = params.demand().excess(&context.options.limits) {
            let code = match excess {
                Excess::Streams(_) => ErrorCode::STREAMS,
                Excess::Seconds(_) => ErrorCode::MAX_DURATION,
                Excess::Rate(_) => ErrorCode::TOTAL_RATE,
            };
            return Err((code, excess.message().to_owned()));
        }
        let test = params.to_test(0);
        // Only the client ends the test.
        let mut driven = Box::new(Test {
            extent: Extent::Time(Span(Duration::from_secs_f64(MAX_SECONDS))),
            ..test.clone()
        });
        if params.transport == Transport::Tcp {
            driven = within_rate(driven, context.options.limits.rate_bps)
                .map_err(|why| (ErrorCode::TOTAL_RATE, why))?;
        }
        can_do(&driven, false).map_err(|why| match params.congestion {
            Some(_) => (ErrorCode::CONGESTION, why),
            None => (ErrorCode::STREAM, why),
        })?;
        let client = &self.client;
        let free = client
            .presence
            .enter()
            .and_then(|()| client.claim(&driven))
            .and_then(|()| client.place.begin_test());
        free.map_err(|why| (ErrorCode::BUSY, why))?;
        Ok(RequestedTest { params, test, driven: *driven })
    }

    fn open(&mut self, arrivals: Receiver<Flow>) {
        self.server.accept(now());
        self.stage = Iperf3Stage::Opening { flows: Vec::new(), arrivals };
    }

    /// Looks for flows that have arrived, and at the running half.
    fn look(&mut self) {
        match std::mem::replace(&mut self.stage, Iperf3Stage::Idle) {
            Iperf3Stage::Idle => {}
            Iperf3Stage::Queueing { arrivals } if self.call.take_turn() => self.open(arrivals),
            Iperf3Stage::Queueing { arrivals } => self.stage = Iperf3Stage::Queueing { arrivals },
            Iperf3Stage::Opening { flows, arrivals } => self.gather(flows, arrivals),
            Iperf3Stage::Running { half, mut heard } => {
                if self.receives() && heard.lasts(half.progress().received_bytes) > SILENCE {
                    let why = format!("nothing came for {} s", SILENCE.as_secs());
                    self.server.refuse(ErrorCode::NO_MESSAGE, why);
                }
                self.log_intervals(&half);
                self.stage = Iperf3Stage::Running { half, heard };
            }
            Iperf3Stage::Draining { half, mut heard, until } => {
                let patience = self.patience_for_last_bytes();
                // What waits in the sockets is late on a busy host, and not silence.
                let is_silent =
                    heard.lasts(half.progress().received_bytes) > patience && !half.has_unread();
                if is_silent || self.has_all(&half) || now() > until {
                    self.report(half);
                } else {
                    self.stage = Iperf3Stage::Draining { half, heard, until };
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
        self.stage = Iperf3Stage::Opening { flows, arrivals };
        if whole {
            self.call.end_turn();
            self.server.begin(now());
        }
    }

    fn begin(&mut self) {
        let (Iperf3Stage::Opening { flows, .. }, Some(asked)) =
            (std::mem::replace(&mut self.stage, Iperf3Stage::Idle), &self.asked)
        else {
            return;
        };
        let marks = match asked.params.transport {
            Transport::Tcp => Marks::Own,
            Transport::Udp(layout) => Marks::Iperf3(layout),
        };
        self.started_at = format_rfc3339(SystemTime::now());
        let options = HalfOptions { quota: asked.quota(), ..marks.into() };
        let (test, source) = (&asked.driven, FlowSource::Bound);
        match Half::start(End::Server, test, flows, source, options) {
            Ok(half) => {
                let heard = Standstill::new();
                self.stage = Iperf3Stage::Running { half, heard };
            }
            Err(error) => self
                .server
                .refuse(ErrorCode::STREAM, format!("the endpoint cannot start the test: {error}")),
        }
    }

    /// Handles the end of the test by the client.
    fn end(&mut self) {
        let Iperf3Stage::Running { half, .. } =
            std::mem::replace(&mut self.stage, Iperf3Stage::Idle)
        else {
            return;
        };
        let counted =
            self.asked.as_ref().is_some_and(|a| !matches!(a.test.extent, Extent::Time(_)));
        if counted && self.receives() && !self.has_all(&half) {
            self.stage = Iperf3Stage::Draining {
                half,
                heard: Standstill::new(),
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

    /// Whether all bytes of a counted test from the client have arrived.
    fn has_all(&self, half: &Half) -> bool {
        self.asked.as_ref().is_some_and(|asked| {
            let received = half.progress().received_bytes;
            asked.params.direction == Direction::Up && received >= asked.amount()
        })
    }

    /// Stops, and sends this end's results to the client.
    fn report(&mut self, half: Half) {
        let report = self.stop(half);
        if let Some(asked) = &self.asked {
            let mut results = Results::of_half(&report, &asked.test);
            if asked.params.wants_output {
                results.output = Some(super::text(&report));
            }
            self.server.report(now(), &results);
        }
        self.account = Some((report, Status::Complete));
    }

    fn stop(&mut self, half: Half) -> HalfReport {
        if self.live.is_some() {
            self.log_running(half.at_s(), half.flows(), None);
        }
        self.client.stop(half, || self.client.host_facts())
    }

    /// How long to wait until the next look at a running half.
    fn until_interval(&self, half: &Half) -> Duration {
        match self.live_test() {
            Some(test) => half.patience().min(until_interval(&test, half.at_s()).0),
            None => half.patience(),
        }
    }

    /// The test with the intervals of the log, if they are wanted.
    fn live_test(&self) -> Option<Test> {
        let interval = Span(self.client.context.options.live?);
        let test = self.asked.as_ref()?.test.clone();
        Some(Test { interval, ..test })
    }

    /// Logs the progress of a half at its beginning and after each interval.
    fn log_intervals(&mut self, half: &Half) {
        let Some(test) = self.live_test() else {
            return;
        };
        let (_, over) = until_interval(&test, half.at_s());
        if self.live.replace(over) != Some(over) {
            self.log_running(half.at_s(), half.flows(), None);
        }
    }

    fn log_running(&self, at_s: f64, flows: Vec<LiveFlow>, accounts: Option<Accounts>) {
        if let Some(test) = self.live_test() {
            let letters = self.cookie.0.strip_suffix(&[0]).unwrap_or_default();
            self.client.log_running(Running {
                test,
                cookie: String::from_utf8_lossy(letters).into_owned(),
                at_s,
                flows,
                accounts,
            });
        }
    }

    /// Logs the record of what was measured, if anything was.
    fn record(&mut self, results: Option<&Results>) {
        let (Some((here, status)), Some(asked)) = (self.account.take(), &self.asked) else {
            return;
        };
        let accounts =
            Accounts { here: Results::of_half(&here, &asked.test), there: results.cloned() };
        self.log_running(0.0, Vec::new(), Some(accounts));
        let local = self.local;
        let started_at = std::mem::take(&mut self.started_at);
        let there = results
            .filter(|results| results.is_possible(&here))
            .map(|results| results.to_half(&here, false));
        self.client.log_test(ForeignRun {
            version: asked.params.version.clone(),
            host: local.ip().to_string(),
            peer: local.to_string(),
            family: Family::from(local.ip()),
            there,
            ..self.client.served(asked.test.clone(), started_at, status, here)
        });
    }

    fn leave(mut self, mut socket: ControlSocket, reason: Option<String>) {
        // The test ends first: otherwise its threads would go on.
        if let Iperf3Stage::Running { half, .. } | Iperf3Stage::Draining { half, .. } =
            std::mem::replace(&mut self.stage, Iperf3Stage::Idle)
        {
            let report = self.stop(half);
            self.account = Some((report, Status::Partial));
        }
        self.record(None);
        self.flush(&mut socket);
        self.client.log_end(reason);
        let context = Arc::clone(&self.client.context);
        context.part(self, socket, &[]);
    }
}
