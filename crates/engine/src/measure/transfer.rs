//! Whole requests and responses over a TCP socket, blocking or not, and the transfer of a whole
//! connection.

use std::io;
use std::net::TcpStream;
use std::time::Duration;

use linerate_core::plan::StreamTest;
use linerate_core::units::End;
use linerate_sys::poll::{self, Interest};
use linerate_sys::socket;

use super::flow::{FlowState, Shared, WorkerEnd};
use super::options::QuickAck;
use super::stream;
use super::tcp_readings::TcpProbe;
use crate::clock::now_ns;
use crate::measure::options;
use crate::retry::is_transient;
use crate::stop::Stop;

/// Largest piece of one call: what a request is made of, and a response is read into.
pub(crate) const PIECE: u64 = 64 << 10;
/// Longest wait without looking at the stop flag.
const SLICE: Duration = Duration::from_millis(20);
/// Shorter than a slice of any socket's.
const SHORT_NS: u64 = 10_000_000;

/// A buffer of `bytes`, or of the largest piece where that is less.
pub(crate) fn buffer(bytes: u64) -> Vec<u8> {
    vec![0x5a; bytes.min(PIECE) as usize]
}

/// Sends or receives a given number of bytes. On a non-blocking socket, or one with a timeout, it
/// waits by itself, until the stop flag is set or `patience` has passed without progress; on a
/// blocking socket the calls wait.
pub(crate) struct Mover<'a> {
    pub(crate) stop: &'a Stop,
    /// Wait without sleeping.
    pub(crate) spin: bool,
    pub(crate) patience: Option<Duration>,
    pub(crate) quickack: QuickAck,
}

impl Mover<'_> {
    /// Sends `bytes` bytes, repeating `payload`.
    #[inline]
    pub(crate) fn send(&self, socket: &TcpStream, payload: &[u8], bytes: u64) -> io::Result<()> {
        self.all(socket, Interest::Writable, bytes, |left| {
            socket::send(socket, &payload[..payload.len().min(left)])
        })
    }

    /// Sends `bytes` bytes, after which the caller closes the connection: the last segment can then
    /// carry the FIN.
    pub(crate) fn send_last(
        &self,
        socket: &TcpStream,
        payload: &[u8],
        bytes: u64,
    ) -> io::Result<()> {
        self.all(socket, Interest::Writable, bytes, |left| {
            socket::send_before_close(socket, &payload[..payload.len().min(left)])
        })
    }

    /// Receives `bytes` bytes into `buffer`, which it overwrites again and again.
    #[inline]
    pub(crate) fn receive(
        &self,
        socket: &TcpStream,
        buffer: &mut [u8],
        bytes: u64,
    ) -> io::Result<()> {
        self.all(socket, Interest::Readable, bytes, |left| {
            let length = buffer.len().min(left);
            self.quickack.renew(socket);
            socket::receive(socket, &mut buffer[..length])
        })
    }

    /// Receives the last `bytes` bytes of a connection and its end, mostly in one call.
    pub(crate) fn receive_last(
        &self,
        socket: &TcpStream,
        buffer: &mut [u8],
        bytes: u64,
    ) -> io::Result<()> {
        let mut left = bytes;
        if !self.spin && bytes < buffer.len() as u64 {
            self.quickack.renew(socket);
            let began = now_ns();
            match socket::receive_to_end(socket, &mut buffer[..=bytes as usize]) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                // The call returned before its timeout, so that the end of the stream ended it.
                Ok(n) if n as u64 == bytes && now_ns() - began < SHORT_NS => return Ok(()),
                Ok(n) => left = bytes.saturating_sub(n as u64),
                Err(error) if is_transient(&error) => {}
                Err(error) => return Err(error),
            }
        }
        self.receive(socket, buffer, left)?;
        self.receive_end(socket)
    }

    /// Waits until the peer has closed or reset the connection; bytes that still arrive are
    /// dropped.
    pub(crate) fn receive_end(&self, socket: &TcpStream) -> io::Result<()> {
        use io::ErrorKind::{ConnectionReset, UnexpectedEof};
        let mut scrap = [0; 512];
        let end =
            self.all(socket, Interest::Readable, u64::MAX, |_| socket::receive(socket, &mut scrap));
        end.or_else(|error| match error.kind() {
            UnexpectedEof | ConnectionReset => Ok(()),
            _ => Err(error),
        })
    }

    #[inline]
    fn all(
        &self,
        socket: &TcpStream,
        interest: Interest,
        mut left: u64,
        mut call: impl FnMut(usize) -> io::Result<usize>,
    ) -> io::Result<()> {
        let mut idle_since = None;
        while left > 0 {
            match call(usize::try_from(left).unwrap_or(usize::MAX)) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(n) => {
                    left -= n as u64;
                    idle_since = None;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.wait(socket, interest, &mut idle_since)?;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn wait(
        &self,
        socket: &TcpStream,
        interest: Interest,
        since: &mut Option<u64>,
    ) -> io::Result<()> {
        if self.stop.is_requested() {
            return Err(stopped());
        }
        if let Some(patience) = self.patience {
            let now = now_ns();
            let idle_ns = now - *since.get_or_insert(now);
            if u128::from(idle_ns) >= patience.as_nanos() {
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
        if self.spin {
            // The system call just made is pause enough; a pause instruction would only add
            // latency.
            Ok(())
        } else {
            poll::wait_ready(socket, interest, SLICE).map(drop)
        }
    }
}

/// Sends as many of `unsent` bytes as the kernel takes, repeating `payload`; true if it took all.
pub(crate) fn send_unsent(
    socket: &TcpStream,
    payload: &[u8],
    unsent: &mut u64,
) -> io::Result<bool> {
    while *unsent > 0 {
        let length = (*unsent).min(payload.len() as u64) as usize;
        match socket::send(socket, &payload[..length]) {
            Ok(n) => *unsent -= n as u64,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

/// The error of a call that ends because the stop flag is set.
pub(crate) fn stopped() -> io::Error {
    io::Error::new(io::ErrorKind::Interrupted, "asked to stop")
}

// A transfer as in 1981: from before the connection is made, over the bytes, to the end of the
// connection as both ends see it.

/// Longest blocking call: only the worker has this socket, so that no other thread can shut it
/// down.
const CONNECTION_SLICE: Duration = Duration::from_millis(100);

/// One connection, from before its SYN to the peer's FIN.
///
/// # Errors
/// The connection could not be made, or was lost.
pub(crate) fn run_connection(
    shared: &Shared,
    flow: &FlowState,
    test: &StreamTest,
) -> io::Result<WorkerEnd> {
    let Some((flow, socket)) = connection(shared, flow)? else {
        return Ok(WorkerEnd::default());
    };
    socket.set_read_timeout(Some(CONNECTION_SLICE))?;
    socket.set_write_timeout(Some(CONNECTION_SLICE))?;
    let mut probe = TcpProbe::new(&socket, flow.sends);
    probe.iter_mut().for_each(TcpProbe::begin);
    let method = stream::run(shared, flow, test, &socket)?;
    if flow.sends {
        await_end(shared, &socket)?;
    }
    let tcp = probe.and_then(|mut probe| {
        probe.sample(0);
        probe.evidence(flow.counters.bytes()).0
    });
    drop(socket);
    flow.counters.set_done(now_ns());
    Ok(WorkerEnd { method, tcp, ..WorkerEnd::default() })
}

/// The next connection, and the flow that it belongs to; `None` if the client makes no more.
fn connection<'a>(
    shared: &'a Shared,
    flow: &'a FlowState,
) -> io::Result<Option<(&'a FlowState, TcpStream)>> {
    if shared.side == End::Client {
        let connector = shared.source.connector()?;
        let socket = connector.socket(flow.id)?;
        return Ok(Some((flow, connector.connect(socket, flow.id, &[])?)));
    }
    // Any worker may take any connection; the connection's hello names the flow.
    let Some((id, socket)) = shared.source.accept(&shared.stop) else {
        return Ok(None);
    };
    let flow = shared.flows.get(id as usize).unwrap_or(flow);
    options::apply_tcp(&socket, &shared.test.options, End::Server, flow.sends)
        .map_err(io::Error::other)?;
    Ok(Some((flow, socket)))
}

/// Waits until the receiver closes the connection, which it does when it has read all.
fn await_end(shared: &Shared, socket: &TcpStream) -> io::Result<()> {
    let mover = Mover { stop: &shared.stop, spin: false, patience: None, quickack: QuickAck::NONE };
    match mover.receive_end(socket) {
        Err(_) if shared.stop.is_requested() => Ok(()),
        other => other,
    }
}
