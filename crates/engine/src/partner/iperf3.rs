//! A client of iperf3's server, and linerate's tests as iperf3's. Each test has its own control
//! connection.

use std::io::ErrorKind;
use std::net::TcpStream;
use std::time::{Duration, SystemTime};

use linerate_core::foreign::Tool;
use linerate_core::foreign::iperf3::{
    Client as Session, ClientError, ClientEvent, Cookie, Greeting, Layout, Params, Results,
    Transport,
};
use linerate_core::plan::{
    Direction, Extent, Protocol, ReceiveMethod, SendMethod, StreamTest, Test, Traffic,
};
use linerate_core::session::message::{HalfReport, Refusal, RefusalReason};
use linerate_core::units::{BitRate, ByteCount, Span, format_rfc3339};
use linerate_sys::poll::wait_readable;

use super::{PartnerResult, ServerAddress, live, start_half};
use crate::client::{
    Observe, Outcome, UDP_PATIENCE, both, connect_first, planned_end, udp_flow_socket,
};
use crate::clock::now;
use crate::control::ControlSocket;
use crate::error::MeasureError;
use crate::measure::flow::{Flow, FlowSocket, Marks, until_interval};
use crate::measure::half::Half;
use crate::measure::source::FlowSource;
use crate::partner::{refuse_lacking, stream_lacks};
use crate::stop::Stop;
use crate::target::Target;

/// Longest wait without a look at the stop flag and at the workers.
const TICK: Duration = Duration::from_millis(20);
/// A server that has just served another client, or has met linerate's own greeting, is busy for a
/// moment.
pub(super) const BUSY_FOR: Duration = Duration::from_secs(2);
const AGAIN: Duration = Duration::from_millis(100);
/// Wait for datagrams still in flight after the last one was sent.
const SETTLE: Duration = Duration::from_millis(500);
/// Longest wait for the peer's acknowledgement of the last bytes of a counted transfer.
const LAST_BYTES: Duration = Duration::from_secs(5);
/// Time for the server to read from its socket what was acknowledged: after the end of the test it
/// counts no more.
const TAKEN: Duration = Duration::from_millis(50);

/// The state of a client between two tests with an iperf3 server.
#[derive(Debug)]
pub(super) struct Iperf3 {
    /// A connection on which nothing was sent yet.
    pub(super) first: Option<TcpStream>,
    /// The cookie of the next test.
    pub(super) cookie: Cookie,
    /// The server is to send its own output.
    pub(super) wants_output: bool,
    /// The results of both ends of the last test.
    pub(super) accounts: Option<Accounts>,
}

/// The results of both ends of a test, as iperf3 exchanges them.
#[derive(Debug, Clone, PartialEq)]
pub struct Accounts {
    /// This end's results.
    pub here: Results,
    /// The other end's results, if they are credible.
    pub there: Option<Results>,
}

/// A test that is running.
struct Iperf3Run<'a> {
    server: &'a ServerAddress,
    session: Session,
    socket: ControlSocket,
    cookie: Cookie,
    adapted: Adapted,
}

impl Iperf3 {
    /// Finds the address that answers. No test is requested yet; the first test uses this
    /// connection, because a server takes one client at a time. A server that has just served
    /// another client, or has met linerate's own greeting, does not listen for a moment: it is
    /// tried again for as long as `patience`.
    ///
    /// # Errors
    /// Refused, unreachable, timed out, interrupted.
    pub(super) fn find(
        target: Target,
        stop: Stop,
        patience: Duration,
    ) -> Result<(ServerAddress, Self), MeasureError> {
        let until = now() + patience;
        let (stream, peer, connect_time) = loop {
            match connect_first(&target, &stop) {
                Err(error) if error.is_refused_connection() && now() < until => {
                    std::thread::sleep(AGAIN);
                }
                other => break other?,
            }
        };
        let iperf3 = Self {
            first: Some(stream),
            cookie: random_cookie()?,
            wants_output: false,
            accounts: None,
        };
        let address = ServerAddress::new(target, peer, connect_time, stop);
        Ok((address, iperf3))
    }

    /// Runs a test.
    ///
    /// # Errors
    /// iperf3's protocol has no such test; the server refuses it, or is busy for longer than a
    /// moment.
    pub(super) fn run(
        &mut self,
        address: &ServerAddress,
        test: &Test,
        observe: Observe<'_>,
    ) -> Result<Outcome, MeasureError> {
        let mut adapted = adapt(test).map_err(|what| address.lacks(what))?;
        adapted.params.wants_output = self.wants_output;
        if address.open_ended {
            // iperf3's word for a test that the client ends: it is within every server's limit.
            adapted.params.time_s = 0;
        }
        let until = now() + BUSY_FOR;
        let mut run = loop {
            let first = self.first.take();
            match self.open(address, &adapted, first) {
                // Between two tests iperf3 does not listen.
                Err(error)
                    if (error.is_busy() || error.is_refused_connection()) && now() < until =>
                {
                    std::thread::sleep(AGAIN);
                }
                other => break other?,
            }
        };
        let flows = run.connect_flows()?;
        run.await_event(&ClientEvent::Begin)?;
        let started_at = format_rfc3339(SystemTime::now());
        let marks = match run.adapted.params.transport {
            Transport::Tcp => Marks::Own,
            Transport::Udp(layout) => Marks::Iperf3(layout),
        };
        let test = run.adapted.test.clone();
        let half = start_half(&test, marks, flows, FlowSource::Bound)?;
        let watched = run.watch(&half, observe);
        let (ended, accounts) = run.conclude(half, watched);
        self.accounts = Some(accounts);
        self.cookie = random_cookie()?;
        Ok(address.outcome(Tool::Iperf3, test, started_at, ended))
    }

    /// Greets the server and requests the test, until the server waits for the streams.
    fn open<'a>(
        &self,
        server: &'a ServerAddress,
        adapted: &Adapted,
        first: Option<TcpStream>,
    ) -> Result<Iperf3Run<'a>, MeasureError> {
        let stream = match first {
            Some(stream) => stream,
            None => connect_first(&server.target, &server.stop)?.0,
        };
        let cookie = self.cookie;
        let mut run = Iperf3Run {
            server,
            session: Session::new(now(), cookie, adapted.params.clone()),
            socket: ControlSocket::new(stream).map_err(MeasureError::connect(server.peer))?,
            cookie,
            adapted: adapted.clone(),
        };
        run.await_event(&ClientEvent::Open)?;
        Ok(run)
    }
}

impl Iperf3Run<'_> {
    /// Opens all streams.
    pub(super) fn connect_flows(&mut self) -> Result<Vec<Flow>, MeasureError> {
        let udp = self.adapted.test.protocol == Protocol::Udp;
        let mut flows = Vec::new();
        for id in 0..self.adapted.test.flows() {
            let socket = if udp { self.greet(id)? } else { self.connect(id)? };
            flows.push(Flow { id, socket });
        }
        Ok(flows)
    }

    fn connect(&self, id: u32) -> Result<FlowSocket, MeasureError> {
        let (server, test) = (self.server, &self.adapted.test);
        let stream = server.connect(server.peer, test, &test.options, id, &self.cookie.0)?;
        Ok(FlowSocket::Tcp(stream))
    }

    fn greet(&mut self, id: u32) -> Result<FlowSocket, MeasureError> {
        let peer = self.server.peer;
        let test = &self.adapted.test;
        let socket = udp_flow_socket(&self.server.target, peer, test, &test.options, id)?;
        // It is not repeated: a server would take the second for that of another stream.
        socket.send(&Greeting::hello()).map_err(MeasureError::connect(peer))?;
        let until = now() + UDP_PATIENCE.max(self.server.connect_time * 5);
        let mut bytes = vec![0; MAX_ANSWER];
        while now() < until {
            self.pump(Duration::ZERO);
            if self.session.is_closed() || self.server.stop.is_requested() {
                self.next_event()?;
            }
            if !wait_readable(&socket, TICK).unwrap_or(false) {
                continue;
            }
            match socket.recv(&mut bytes) {
                Ok(_) => return Ok(FlowSocket::Udp(socket)),
                // Nothing to read after all.
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(MeasureError::connect(peer)(error)),
            }
        }
        Err(MeasureError::UdpBlocked { peer })
    }

    /// Sends and receives on the control connection, for at most `timeout`.
    fn pump(&mut self, timeout: Duration) {
        self.socket.drive(&mut self.session, timeout);
    }

    /// The next event; failures are errors.
    fn next_event(&mut self) -> Result<ClientEvent, MeasureError> {
        loop {
            match self.session.poll_event() {
                Some(ClientEvent::Failed(error)) => return Err(self.error(error)),
                Some(event) => return Ok(event),
                None if self.server.stop.is_requested() => {
                    self.give_up();
                    return Err(MeasureError::Interrupted);
                }
                None => self.pump(TICK),
            }
        }
    }

    fn await_event(&mut self, wanted: &ClientEvent) -> Result<(), MeasureError> {
        match self.next_event()? {
            event if event == *wanted => Ok(()),
            _ => Err(self.error(ClientError::Timeout("the server skipped a step"))),
        }
    }

    fn error(&self, reason: ClientError) -> MeasureError {
        let peer = self.server.peer;
        match reason {
            ClientError::Denied | ClientError::Unanswered => MeasureError::Refused {
                peer,
                refusal: Refusal { reason: RefusalReason::Busy, message: reason.to_string() },
            },
            _ => MeasureError::Foreign { peer, reason: reason.to_string() },
        }
    }

    fn give_up(&mut self) {
        self.session.terminate();
        // If this fails, the server sees the end of the connection.
        self.socket.transmit(&mut self.session);
    }

    /// Watches a running test until it is over at this end.
    fn watch(&mut self, half: &Half, observe: Observe<'_>) -> Result<(), MeasureError> {
        let mut over_since = None;
        if !observe(&live(half)) {
            return Err(MeasureError::Interrupted);
        }
        loop {
            let (interval, _) = until_interval(&self.adapted.test, half.at_s());
            self.pump(half.patience().min(interval));
            if let Some(ClientEvent::Failed(error)) = self.session.poll_event() {
                return Err(self.error(error));
            }
            if !observe(&live(half)) || self.server.stop.is_requested() {
                return planned_end(self.server.open_ended, MeasureError::Interrupted);
            }
            if !self.is_over(half) {
                continue;
            }
            let now = now();
            let since = now - *over_since.get_or_insert(now);
            if since >= self.settle(half, since) {
                return Ok(());
            }
        }
    }

    fn is_over(&self, half: &Half) -> bool {
        let test = &self.adapted.test;
        match (test.extent, test.direction) {
            (Extent::Time(_), _) => half.is_finished(),
            (Extent::Bytes(_) | Extent::Count(_), Direction::Up) => half.all_sent(),
            // The server sends without end: this end stops it when it has received enough.
            (Extent::Bytes(_) | Extent::Count(_), _) => {
                half.all_sent() && half.progress().received_bytes >= self.adapted.down_bytes
            }
        }
    }

    /// How long to wait for what is still in flight. In a timed test it does not count.
    fn settle(&self, half: &Half, since: Duration) -> Duration {
        let test = &self.adapted.test;
        match (test.extent, test.direction, test.protocol) {
            (Extent::Time(_), ..) | (_, Direction::Down, _) => Duration::ZERO,
            (.., Protocol::Udp) => SETTLE,
            _ if half.is_acknowledged() || since >= LAST_BYTES => TAKEN,
            _ => LAST_BYTES,
        }
    }

    /// Ends the test at both ends and takes the results of both, also after an interruption.
    fn conclude(
        mut self,
        half: Half,
        watched: Result<(), MeasureError>,
    ) -> (PartnerResult, Accounts) {
        half.request_stop();
        self.session.end(now());
        let asked = self.await_report();
        // Only now, because the server must not see a stream end before the test ends.
        let here = half.stop(self.server.host_facts()).report;
        let own = Results::of_half(&here, &self.adapted.test);
        let there = asked.and_then(|()| self.exchange(&here, &own));
        let accounts = Accounts { here: own, there: there.as_ref().ok().cloned() };
        let counted = !matches!(self.adapted.test.extent, Extent::Time(_));
        let there = there.map(|results| results.to_half(&here, counted));
        let (there, error) = both(there, watched);
        let ended = PartnerResult { here, there, exchange: None, error };
        (ended, accounts)
    }

    fn await_report(&mut self) -> Result<(), MeasureError> {
        loop {
            match self.session.poll_event() {
                Some(ClientEvent::Report) => return Ok(()),
                Some(ClientEvent::Failed(error)) => return Err(self.error(error)),
                Some(_) => {}
                None if self.session.is_closed() => {
                    return Err(self.error(ClientError::Hangup("")));
                }
                None => self.pump(TICK),
            }
        }
    }

    fn exchange(&mut self, here: &HalfReport, own: &Results) -> Result<Results, MeasureError> {
        self.session.report(now(), own);
        let there = loop {
            match self.session.poll_event() {
                Some(ClientEvent::Results(results)) if !results.is_possible(here) => {
                    let what = "counts that this test cannot have had";
                    return Err(self.error(ClientError::Results(what.to_owned())));
                }
                Some(ClientEvent::Results(results)) => break *results,
                Some(ClientEvent::Failed(error)) => return Err(self.error(error)),
                Some(_) => {}
                None => self.pump(TICK),
            }
        };
        // The goodbye. A server that does not get it takes no other test for a while.
        while !self.session.is_closed() {
            self.pump(TICK);
        }
        self.pump(Duration::ZERO);
        Ok(there)
    }
}

fn random_cookie() -> Result<Cookie, MeasureError> {
    let mut random = [0; 36];
    getrandom::fill(&mut random)
        .map_err(|error| MeasureError::host("no random numbers")(std::io::Error::other(error)))?;
    Ok(Cookie::from_random(random))
}

/// Largest datagram that may arrive, bytes: data that overtakes the answer counts as one, too.
const MAX_ANSWER: usize = 65_536;

// A test of linerate's as one of iperf3's.

/// A test as this end drives it, and as the server is asked for it.
#[derive(Debug, Clone)]
struct Adapted {
    test: Test,
    params: Params,
    /// Bytes of a counted test that the server sends, over all flows.
    down_bytes: u64,
}

/// Turns a test of linerate's into one of iperf3's. The warm-up is rounded up to whole seconds.
///
/// # Errors
/// The message says what iperf3's protocol lacks for it.
fn adapt(test: &Test) -> Result<Adapted, String> {
    let Traffic::Stream(stream) = &test.traffic else {
        return Err(
            "an iperf3 server answers there, which has no requests and responses: rr and crr need \
             `linerate serve` on that host"
                .into(),
        );
    };
    refuse_lacking("an iperf3 server", test, &stream_lacks(test, stream))?;
    let mut test = test.clone();
    let warm_up = test.warm_up.as_secs_f64().ceil();
    test.warm_up = Span(std::time::Duration::from_secs_f64(warm_up));
    let params = params(&test, stream)?;
    // What the server would refuse by its own limits is refused here, with the reason.
    Params::parse(&params.to_json())
        .map_err(|error| format!("iperf3 cannot do this test: {error}"))?;
    let down_bytes = match (test.direction, params.blocks) {
        (Direction::Up, _) => 0,
        (_, 0) => params.bytes,
        (_, blocks) => blocks.saturating_mul(stream.message_bytes),
    };
    Ok(Adapted { test, params, down_bytes })
}

fn params(test: &Test, stream: &StreamTest) -> Result<Params, String> {
    let flows = u64::from(test.streams);
    let (time, bytes, blocks) = match test.extent {
        Extent::Time(time) => (time.as_secs_f64().ceil().max(1.0), 0, 0),
        Extent::Bytes(bytes) => (0.0, bytes.0.saturating_mul(flows), 0),
        Extent::Count(count) => (0.0, 0, count.saturating_mul(flows)),
    };
    let (transport, rate) = match test.protocol {
        Protocol::Udp => (Transport::Udp(Layout::Wide), stream.rate_bps),
        Protocol::Tcp | Protocol::Mptcp => (Transport::Tcp, stream.write_rate_bps),
    };
    let options = &test.options;
    Ok(Params {
        transport,
        omit_s: test.warm_up.as_secs_f64() as u32,
        time_s: time as u32,
        bytes,
        blocks,
        streams: test.streams,
        direction: test.direction,
        block_bytes: stream.message_bytes,
        nodelay: options.nodelay,
        window_bytes: window(test)?,
        mss_bytes: options.mss_bytes,
        rate_bps: rate.map(|BitRate(bps)| bps),
        pacing_bps: options.pacing_bps.map(|BitRate(bps)| bps),
        tos: options.dscp.map_or(0, |dscp| dscp.octet()),
        congestion: options.congestion.clone(),
        zerocopy: stream.send == SendMethod::ZeroCopy,
        discard: stream.receive == ReceiveMethod::Discard,
        wants_output: false,
        token: None,
        version: Some(format!("linerate-{}", env!("CARGO_PKG_VERSION"))),
    })
}

/// The size of both of the server's socket buffers; in each direction only one of them matters.
fn window(test: &Test) -> Result<Option<u64>, String> {
    let bytes = |size: Option<ByteCount>| size.map(|ByteCount(bytes)| bytes);
    let receive = bytes(test.options.receive_window_bytes);
    let send = bytes(test.options.send_buffer_bytes);
    match (test.direction, receive, send) {
        (Direction::Up, receive, _) => Ok(receive),
        (Direction::Down, _, send) => Ok(send),
        (Direction::Both, Some(receive), Some(send)) if receive != send => Err(
            "iperf3 has one size for both socket buffers: give --receive-window and --send-buffer \
             the same, or one direction"
                .into(),
        ),
        (Direction::Both, receive, send) => Ok(receive.or(send)),
    }
}
