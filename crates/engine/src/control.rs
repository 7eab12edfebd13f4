//! A control connection: its socket, and the state machine of core that talks over it.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use linerate_core::foreign::{iperf3, netperf};
use linerate_core::session;
use linerate_sys::poll::{Interest, wait_ready};
use linerate_sys::socket::{end_without_sign_of_life, set_thin_linear_timeouts};
use linerate_sys::tcp_info::TcpInfo;

use crate::clock::now;
use crate::retry::is_transient;

/// A peer that takes no bytes for so long is considered gone.
const STUCK: Duration = Duration::from_secs(10);

/// What a wait for input has brought.
pub(crate) enum ControlReceived<'a> {
    Bytes(&'a [u8]),
    Nothing,
    Closed,
}

/// A state machine of core that talks over a control connection.
pub(crate) trait Dialogue {
    fn poll_transmit(&mut self) -> Option<Vec<u8>>;
    fn poll_timeout(&self) -> Option<Duration>;
    fn handle_input(&mut self, now: Duration, bytes: &[u8]);
    fn handle_timeout(&mut self, now: Duration);
    fn handle_close(&mut self);
}

macro_rules! dialogues {
    ($($machine:ty),*) => {$(
        impl Dialogue for $machine {
            fn poll_transmit(&mut self) -> Option<Vec<u8>> {
                <$machine>::poll_transmit(self)
            }
            fn poll_timeout(&self) -> Option<Duration> {
                <$machine>::poll_timeout(self)
            }
            fn handle_input(&mut self, now: Duration, bytes: &[u8]) {
                <$machine>::handle_input(self, now, bytes);
            }
            fn handle_timeout(&mut self, now: Duration) {
                <$machine>::handle_timeout(self, now);
            }
            fn handle_close(&mut self) {
                <$machine>::handle_close(self);
            }
        }
    )*};
}
dialogues!(session::Client, session::Server, iperf3::Client, iperf3::Server, netperf::Server);

/// The socket. It never blocks in a write: its user also has a test and a stop flag to watch.
pub(crate) struct ControlSocket {
    stream: TcpStream,
    buffer: Vec<u8>,
    /// Bytes that the kernel has not taken yet.
    waiting: Vec<u8>,
    /// Since when the kernel has taken none of them.
    stuck_since: Option<Instant>,
}

impl ControlSocket {
    pub(crate) fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        // The test may fill the path that this connection uses. With exponential backoff a lost
        // segment could wait for longer than the test takes.
        let _ = set_thin_linear_timeouts(&stream, true);
        Ok(Self { stream, buffer: vec![0; 8 << 10], waiting: Vec::new(), stuck_since: None })
    }

    /// Makes [`ControlSocket::receive`] notice within 10 s that a silent peer is gone. Another
    /// tool's client is silent for as long as it measures, and this end must not go on sending UDP
    /// to a host that is no longer there.
    pub(crate) fn expect_signs_of_life(&self) {
        // Where the kernel refuses, the test ends with its time.
        let _ = end_without_sign_of_life(&self.stream, STUCK);
    }

    /// The address and port of this end.
    ///
    /// # Errors
    /// The connection is gone.
    pub(crate) fn local_addr(&self) -> io::Result<SocketAddr> {
        self.stream.local_addr()
    }

    /// Whether of the peer's messages a short last segment has arrived, and no full-size one before
    /// it.
    pub(crate) fn lacks_full_segments(&self) -> bool {
        let Ok(info) = TcpInfo::read(&self.stream) else {
            return false;
        };
        let is_short = info.bytes_received < u64::from(info.advmss);
        is_short && info.rcv_ooopack.is_some_and(|segments| segments > 0)
    }

    /// Sends all that the state machine has to send; false if the connection is gone.
    pub(crate) fn transmit(&mut self, dialogue: &mut impl Dialogue) -> bool {
        while let Some(bytes) = dialogue.poll_transmit() {
            if self.send(&bytes).is_err() {
                return false;
            }
        }
        true
    }

    /// Gives the state machine what arrives within `timeout`, or before its own next deadline, and
    /// the time.
    pub(crate) fn listen(&mut self, dialogue: &mut impl Dialogue, timeout: Duration) {
        let until = dialogue.poll_timeout();
        let timeout = until.map_or(timeout, |at| at.saturating_sub(now()).min(timeout));
        match self.receive(timeout) {
            ControlReceived::Bytes(bytes) => dialogue.handle_input(now(), bytes),
            ControlReceived::Nothing => {}
            ControlReceived::Closed => dialogue.handle_close(),
        }
        dialogue.handle_timeout(now());
    }

    /// Sends and receives once, waiting for `timeout` at most.
    pub(crate) fn drive(&mut self, dialogue: &mut impl Dialogue, timeout: Duration) {
        if self.transmit(dialogue) {
            self.listen(dialogue, timeout);
        } else {
            dialogue.handle_close();
        }
    }

    /// What arrives within `timeout`. While bytes wait to be sent nothing is read: a peer that
    /// keeps asking and never reads is slowed down and does not fill this host's memory.
    pub(crate) fn receive(&mut self, timeout: Duration) -> ControlReceived<'_> {
        let interest =
            if self.waiting.is_empty() { Interest::Readable } else { Interest::Writable };
        match wait_ready(&self.stream, interest, timeout) {
            Ok(true) => {}
            Ok(false) if self.is_stuck() => return ControlReceived::Closed,
            Ok(false) => return ControlReceived::Nothing,
            Err(_) => return ControlReceived::Closed,
        }
        // After a failed write the peer's last message may still be there to read.
        if interest == Interest::Writable && self.flush().is_ok() {
            return ControlReceived::Nothing;
        }
        match self.stream.read(&mut self.buffer) {
            Ok(0) => ControlReceived::Closed,
            Ok(n) => ControlReceived::Bytes(&self.buffer[..n]),
            Err(error) if is_transient(&error) => ControlReceived::Nothing,
            Err(_) => ControlReceived::Closed,
        }
    }

    /// Sends what the kernel takes now; the rest is sent by [`ControlSocket::receive`].
    ///
    /// # Errors
    /// The connection is gone.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.waiting.extend_from_slice(bytes);
        self.flush()
    }

    fn flush(&mut self) -> io::Result<()> {
        let mut sent = 0;
        let mut result = Ok(());
        while sent < self.waiting.len() && result.is_ok() {
            match self.stream.write(&self.waiting[sent..]) {
                Ok(n) => sent += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => result = Err(error),
            }
        }
        self.waiting.drain(..sent);
        if result.is_err() {
            self.waiting.clear();
        }
        match (self.waiting.is_empty(), sent) {
            (true, _) => self.stuck_since = None,
            (false, 0) => _ = self.stuck_since.get_or_insert_with(Instant::now),
            (false, _) => self.stuck_since = Some(Instant::now()),
        }
        result
    }

    fn is_stuck(&self) -> bool {
        self.stuck_since.is_some_and(|since| since.elapsed() >= STUCK)
    }

    /// Ends the connection so that the peer can still read what was sent last: a close with unread
    /// bytes in the receive queue would reset the connection, and the peer would lose the refusal
    /// that explains it.
    pub(crate) fn close(mut self) {
        const LINGER: Duration = Duration::from_millis(500);
        const SLICE: Duration = Duration::from_millis(50);
        let deadline = Instant::now() + LINGER;
        while !self.waiting.is_empty() && Instant::now() < deadline {
            if let ControlReceived::Closed = self.receive(SLICE) {
                return;
            }
        }
        if self.stream.shutdown(Shutdown::Write).is_err() {
            return;
        }
        while Instant::now() < deadline {
            if let ControlReceived::Closed = self.receive(SLICE) {
                return;
            }
        }
    }
}
