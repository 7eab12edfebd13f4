//! Connect, request, response, close: one connection after the other, one thread for each flow.
//!
//! The endpoint closes first unless told otherwise, so that TIME_WAIT stays there, where it costs
//! no port. A reset leaves no TIME_WAIT at either end. If the endpoint resets, it waits for the
//! client's FIN first: a reset would drop the part of the response that is still on its way.
//!
//! While a response is on its way, a flow without pauses closes its connection before and makes the
//! socket of the next: both need no peer, and the time is there.

use std::io;
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use linerate_core::open_loop::OpenLoop;
use linerate_core::plan::{Closer, ExchangeTest};
use linerate_core::units::End;
use linerate_core::wire::HELLO_BYTES;
use linerate_sys::socket::{self, Connecting};

use super::exchange::{LAST_CALL_NS, SPIN_NS, Tally, schedule};
use super::flow::{FlowState, Shared, WorkerEnd};
use super::options::QuickAck;
use super::outcome::AnswerOutcome;
use super::source::{Connect, SourceArrival};
use super::transfer::{Mover, buffer, stopped};
use crate::clock::now_ns;
use crate::measure::options;

/// A connection without progress for this long has failed.
const PATIENCE: Duration = Duration::from_secs(5);
/// Pause after a connection could not be made: an immediate retry would fail for the same reason.
const PAUSE_NS: u64 = 10_000_000;
/// Bytes of a request that are sent together with the hello. They fit the send buffer, so that the
/// call does not block.
const FIRST_BYTES: u64 = 8 << 10;

/// The client's worker: transactions until the time or the count is over. Failed ones are counted
/// by kind.
///
/// # Errors
/// This host cannot make connections at all.
pub(crate) fn request(
    shared: &Shared,
    flow: &FlowState,
    test: &ExchangeTest,
) -> io::Result<WorkerEnd> {
    let mut tally = Tally::new(shared, flow, test);
    let mut client = Requester::new(shared, flow.id, test)?;
    let result = match schedule(shared, flow, test) {
        None => client.closed_loop(&mut tally),
        Some(schedule) => client.open_loop(&mut tally, schedule),
    };
    Ok(tally.end(result))
}

fn mover<'a>(shared: &'a Shared, test: &ExchangeTest) -> Mover<'a> {
    Mover {
        stop: &shared.stop,
        spin: test.spin,
        patience: Some(PATIENCE),
        quickack: QuickAck::new(&shared.test),
    }
}

struct Requester<'a> {
    shared: &'a Shared,
    flow: u32,
    connector: &'a dyn Connect,
    test: &'a ExchangeTest,
    mover: Mover<'a>,
    payload: Vec<u8>,
    response: Vec<u8>,
    /// The connection before, which the endpoint has closed.
    ended: Option<TcpStream>,
    /// The socket of the next connection.
    next: Option<Connecting>,
}

impl<'a> Requester<'a> {
    fn new(shared: &'a Shared, flow: u32, test: &'a ExchangeTest) -> io::Result<Self> {
        Ok(Self {
            shared,
            flow,
            connector: shared.source.connector()?,
            test,
            mover: mover(shared, test),
            payload: buffer(test.request_bytes),
            // One byte more, so that one call can return the last byte and see the end of the
            // stream.
            response: buffer(test.response_bytes + 1),
            ended: None,
            next: None,
        })
    }

    fn closed_loop(&mut self, tally: &mut Tally<'_>) -> io::Result<()> {
        let mut start = now_ns();
        while tally.wants(start) {
            self.transaction(tally, start)?;
            start = now_ns();
        }
        Ok(())
    }

    fn open_loop(&mut self, tally: &mut Tally<'_>, mut schedule: OpenLoop) -> io::Result<()> {
        let window = tally.window;
        let mut free_ns = 0;
        while tally.to_begin() > 0
            && schedule.due_ns() < window.to_ns
            && self.sleep_until(schedule.due_ns())
        {
            let (due, now) = (schedule.due_ns(), now_ns());
            if now >= window.to_ns.saturating_add(LAST_CALL_NS) {
                break;
            }
            schedule.advance();
            // The time of the transaction before is the peer's doing, not a lag of this end.
            tally.lagged(due, free_ns, now);
            self.transaction(tally, due)?;
            free_ns = now_ns();
        }
        tally.not_sent(&schedule);
        if tally.to_begin() > 0 {
            // The whole time of the run is measured, even if no more transactions are due in it.
            self.sleep_until(window.to_ns);
        }
        Ok(())
    }

    /// False if the stop was requested before.
    fn sleep_until(&mut self, due_ns: u64) -> bool {
        if due_ns > now_ns() {
            self.ended = None;
        }
        let spin = Duration::from_nanos(SPIN_NS);
        self.shared.stop.sleep_until(due_ns, spin, |_| ())
    }

    /// Makes one transaction and counts it. An error is one that every other transaction would
    /// meet, too.
    fn transaction(&mut self, tally: &mut Tally<'_>, start_ns: u64) -> io::Result<()> {
        tally.begun();
        let is_told = self.shared.answers.is_some();
        let began_ns = if is_told { now_ns() } else { 0 };
        let connected = self.connect(tally);
        let connected_ns = if is_told { now_ns() } else { 0 };
        match connected.and_then(|stream| self.exchange(stream)) {
            Ok(()) => {
                let answered_ns = now_ns();
                tally.answered(start_ns, answered_ns);
                if let Some(answers) = &self.shared.answers {
                    // The receiver may be gone.
                    let _ = answers.send(AnswerOutcome { began_ns, connected_ns, answered_ns });
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Unsupported => return Err(error),
            Err(_) if tally.is_stopped() => tally.abandoned(start_ns),
            Err(error) => {
                tally.outcome.failures.count(&error);
                tally.failed(start_ns);
                self.sleep_until(now_ns() + PAUSE_NS);
            }
        }
        Ok(())
    }

    /// Connects, and sends the request or its beginning. Waits while no local port is free.
    fn connect(&mut self, tally: &mut Tally<'_>) -> io::Result<TcpStream> {
        let (connector, flow) = (self.connector, self.flow);
        let first = self.test.request_bytes.min(FIRST_BYTES) as usize;
        loop {
            let socket = self.next.take().map_or_else(|| connector.socket(flow), Ok);
            match socket.and_then(|socket| connector.connect(socket, flow, &self.payload[..first]))
            {
                Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => {
                    if now_ns() >= tally.window.to_ns {
                        return Err(error);
                    }
                    tally.outcome.failures.count(&error);
                    if !self.sleep_until(now_ns() + PAUSE_NS) {
                        return Err(stopped());
                    }
                }
                other => return other,
            }
        }
    }

    /// The rest of the transaction, until the last byte of the response; if the endpoint closes,
    /// until the end of the connection.
    fn exchange(&mut self, stream: TcpStream) -> io::Result<()> {
        if self.test.spin {
            stream.set_nonblocking(true)?;
        }
        let rest = self.test.request_bytes.saturating_sub(FIRST_BYTES);
        self.mover.send(&stream, &self.payload, rest)?;
        self.work_while_waiting();
        let (mover, bytes) = (&self.mover, self.test.response_bytes);
        if ends_with_response(self.test) {
            mover.receive_last(&stream, &mut self.response, bytes)?;
            self.ended = Some(stream);
            return Ok(());
        }
        mover.receive(&stream, &mut self.response, bytes)?;
        match self.test.closer {
            Closer::Client if self.test.reset => {
                socket::reset_on_close(&stream).map_err(io::Error::other)
            }
            Closer::Client => Ok(()),
            Closer::Server => {
                stream.shutdown(Shutdown::Write)?;
                mover.receive_end(&stream)
            }
        }
    }

    /// What has to be done between two connections, while the endpoint answers.
    fn work_while_waiting(&mut self) {
        self.ended = None;
        // Two sockets cannot have the same port. An error comes again when the socket is needed.
        if self.shared.test.options.source_port.is_none() {
            self.next = self.connector.socket(self.flow).ok();
        }
    }
}

/// Whether the endpoint's last segment also ends the connection.
fn ends_with_response(test: &ExchangeTest) -> bool {
    test.closer == Closer::Server && !test.reset
}

/// Whether the one message of an end leaves at once even with Nagle's algorithm: it fits the
/// smallest segment (RFC 9293, 3.7.1), or a close follows it.
pub(crate) fn leaves_at_once(test: &ExchangeTest, side: End) -> bool {
    const SMALLEST_SEGMENT: u64 = 536;
    match side {
        End::Client => HELLO_BYTES as u64 + test.request_bytes <= SMALLEST_SEGMENT,
        End::Server => ends_with_response(test) || test.response_bytes <= SMALLEST_SEGMENT,
    }
}

/// The endpoint's worker: serves one connection after the other until the stop flag is set or no
/// more can come. A connection that fails or stalls is dropped; the client counts it.
///
/// # Errors
/// Out of descriptors.
pub(crate) fn respond(
    shared: &Shared,
    flow: &FlowState,
    test: &ExchangeTest,
) -> io::Result<WorkerEnd> {
    let mover = mover(shared, test);
    let arrivals = shared.source.arrivals(test.spin)?;
    let mut request = buffer(HELLO_BYTES as u64 + test.request_bytes);
    let response = buffer(test.response_bytes);
    let mut options = shared.test.options.clone();
    options.nodelay &= !leaves_at_once(test, End::Server);
    let mut answered = 0;
    while let Some(arrival) = arrivals.next(&shared.stop) {
        let served = options::apply_tcp(&arrival.stream, &options, End::Server, flow.sends)
            .map_err(io::Error::other)
            .and_then(|()| serve(&arrival, test, &mover, &mut request, &response));
        if served.is_ok() {
            answered += 1;
            flow.counters.set(answered * test.request_bytes, answered);
        }
    }
    Ok(WorkerEnd::default())
}

fn serve(
    SourceArrival { stream, known_bytes }: &SourceArrival,
    test: &ExchangeTest,
    mover: &Mover<'_>,
    request: &mut [u8],
    response: &[u8],
) -> io::Result<()> {
    mover.receive(stream, request, known_bytes + test.request_bytes)?;
    if ends_with_response(test) {
        return mover.send_last(stream, response, test.response_bytes);
    }
    mover.send(stream, response, test.response_bytes)?;
    mover.receive_end(stream)?;
    if test.closer == Closer::Server {
        socket::reset_on_close(stream).map_err(io::Error::other)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{Ipv4Addr, SocketAddr, TcpListener};
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::sync::mpsc;
    use std::thread;

    use linerate_core::plan::{Direction, Extent, Protocol, SocketOptions, Test, Traffic};
    use linerate_core::units::Span;
    use linerate_sys::socket::Mptcp;

    use super::*;
    use crate::measure::flow::{Flow, FlowSocket};
    use crate::measure::outcome::ExchangeOutcome;
    use crate::measure::source::FlowSource;

    const EXCHANGE: ExchangeTest = ExchangeTest::new(4, 1);

    fn shared(side: End, count: u64, source: FlowSource) -> Shared {
        let test = Test {
            traffic: Traffic::Crr(EXCHANGE),
            protocol: Protocol::Tcp,
            direction: Direction::Up,
            streams: 1,
            extent: Extent::Count(count),
            warm_up: Span(Duration::ZERO),
            interval: Span(Duration::from_secs(1)),
            options: SocketOptions::default(),
            seed: 7,
        };
        Shared::alone(side, &test, source)
    }

    /// Connects without a hello, after a number of failures.
    struct Plain {
        peer: SocketAddr,
        failures: AtomicU32,
        reason: io::ErrorKind,
    }

    impl Plain {
        fn to(listener: &TcpListener) -> Self {
            Self {
                peer: listener.local_addr().unwrap(),
                failures: AtomicU32::new(0),
                reason: io::ErrorKind::Other,
            }
        }

        fn failing(self, times: u32, reason: io::ErrorKind) -> Self {
            let failures = AtomicU32::new(times);
            Self { failures, reason, ..self }
        }
    }

    impl Connect for Plain {
        fn socket(&self, _: u32) -> io::Result<Connecting> {
            socket::tcp_socket(self.peer, None, Mptcp::Off)
        }

        fn connect(&self, socket: Connecting, _: u32, first: &[u8]) -> io::Result<TcpStream> {
            let left = self.failures.load(Ordering::Relaxed);
            if left > 0 {
                self.failures.store(left - 1, Ordering::Relaxed);
                return Err(self.reason.into());
            }
            let (mut stream, _) = socket::connect_bounded(socket, self.peer)?;
            stream.write_all(first)?;
            Ok(stream)
        }
    }

    fn local_listener() -> TcpListener {
        TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap()
    }

    fn request_with(count: u64, connector: Plain) -> ExchangeOutcome {
        let source = FlowSource::Connect(Box::new(connector));
        let shared = shared(End::Client, count, source);
        let end = request(&shared, &shared.flows[0], &EXCHANGE).unwrap();
        assert!(end.error.is_none(), "{:?}", end.error);
        end.exchange.unwrap()
    }

    #[test]
    fn refused_connections_count_as_failed_and_by_kind() {
        let connector = Plain::to(&local_listener());
        let outcome = request_with(3, connector.failing(3, io::ErrorKind::ConnectionRefused));
        let failures = outcome.failures;
        assert_eq!((outcome.transactions, outcome.failed, failures.refused), (0, 3, 3));
        let caveat = failures.caveat().unwrap();
        assert!(caveat.message.contains("3 refused"), "{}", caveat.message);
    }

    #[test]
    fn the_wait_for_a_free_port_is_part_of_the_latency() {
        let listener = local_listener();
        let connector = Plain::to(&listener).failing(2, io::ErrorKind::AddrNotAvailable);
        let peer = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.read_exact(&mut [0; 4]).unwrap();
            stream.write_all(b"x").unwrap();
        });
        let outcome = request_with(1, connector);
        peer.join().unwrap();
        assert_eq!((outcome.transactions, outcome.failed), (1, 0));
        assert_eq!(outcome.failures.ports_exhausted, 2);
        let latency = outcome.latency.summary().unwrap();
        assert!(latency.min >= 2.0 * PAUSE_NS as f64 / 1e3, "{latency:?}");
    }

    #[test]
    fn an_ended_connection_is_closed_before_a_pause() {
        let listener = local_listener();
        let source = FlowSource::Connect(Box::new(Plain::to(&listener)));
        let shared = shared(End::Client, 1, source);
        let mut client = Requester::new(&shared, 0, &EXCHANGE).unwrap();
        client.ended = Some(TcpStream::connect(listener.local_addr().unwrap()).unwrap());
        client.sleep_until(0);
        assert!(client.ended.is_some(), "no pause was due");
        // A requested stop ends the pause.
        shared.stop.request();
        client.sleep_until(u64::MAX);
        assert!(client.ended.is_none());
    }

    #[test]
    fn the_next_socket_is_made_ahead_unless_its_port_is_still_in_use() {
        let listener = local_listener();
        for (source_port, made) in [(None, true), (Some(7), false)] {
            let source = FlowSource::Connect(Box::new(Plain::to(&listener)));
            let mut shared = shared(End::Client, 1, source);
            shared.test.options.source_port = source_port;
            let mut client = Requester::new(&shared, 0, &EXCHANGE).unwrap();
            client.work_while_waiting();
            assert_eq!(client.next.is_some(), made, "{source_port:?}");
        }
    }

    #[test]
    fn an_endpoint_that_closes_too_early_counts_as_a_reset() {
        let listener = local_listener();
        let connector = Plain::to(&listener);
        let peer = thread::spawn(move || drop(listener.accept().unwrap()));
        let outcome = request_with(1, connector);
        peer.join().unwrap();
        assert_eq!((outcome.failed, outcome.failures.reset), (1, 1));
    }

    #[test]
    fn a_client_that_leaves_or_stalls_delays_neither_the_next_nor_the_stop() {
        let listener = local_listener();
        let connect = |bytes: &[u8]| {
            let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            client.write_all(bytes).unwrap();
            let socket = FlowSocket::Tcp(listener.accept().unwrap().0);
            (client, Flow { id: 0, socket })
        };
        let (sender, arrivals) = mpsc::channel();
        let shared = shared(End::Server, 1, FlowSource::Accept(arrivals.into()));
        let (gone, flow) = connect(b"ab");
        drop(gone);
        sender.send(flow).unwrap();
        let (mut whole, flow) = connect(b"abcd");
        sender.send(flow).unwrap();
        let (_stalled, flow) = connect(b"abc");
        sender.send(flow).unwrap();
        thread::scope(|scope| {
            let worker = scope.spawn(|| respond(&shared, &shared.flows[0], &EXCHANGE));
            let mut response = Vec::new();
            whole.read_to_end(&mut response).unwrap();
            assert_eq!(response.len(), 1);
            shared.stop.request();
            worker.join().unwrap().unwrap();
        });
        assert_eq!(shared.flows[0].counters.messages(), 1);
        // The stop comes before the patience with a client that stalls.
        let (_stalled, flow) = connect(b"abc");
        let FlowSocket::Tcp(stream) = flow.socket else {
            unreachable!("it is TCP");
        };
        stream.set_nonblocking(true).unwrap();
        let waited = mover(&shared, &EXCHANGE).receive(&stream, &mut [0; 4], 4);
        assert_eq!(waited.unwrap_err().kind(), io::ErrorKind::Interrupted);
    }
}
