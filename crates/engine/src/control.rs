//! The control connection as a socket: bytes in and out with deadlines, whichever half drives it.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use linerate_sys::poll::{Interest, wait_ready};
use linerate_sys::socket::{end_without_sign_of_life, set_thin_linear_timeouts};

/// A peer that takes nothing for so long is gone.
const STUCK: Duration = Duration::from_secs(10);

/// What came.
pub(crate) enum Received<'a> {
    Bytes(&'a [u8]),
    Nothing,
    Closed,
}

/// Never blocks in a write: whoever drives it has a test and a stop flag to look at.
pub(crate) struct ControlSocket {
    stream: TcpStream,
    buffer: Vec<u8>,
    /// What the kernel has not taken yet.
    waiting: Vec<u8>,
    /// Since when it has taken nothing.
    stuck_since: Option<Instant>,
}

impl ControlSocket {
    pub(crate) fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        // A test may fill the path that this has to use: each timeout twice as long as the last
        // would outlast the test.
        let _ = set_thin_linear_timeouts(&stream, true);
        Ok(Self {
            stream,
            buffer: vec![0; 8 << 10],
            waiting: Vec::new(),
            stuck_since: None,
        })
    }

    /// Has [`ControlSocket::receive`] notice within 10 s that a peer which says nothing is gone:
    /// another tool's client is silent as long as it measures, and what this end sends it by UDP
    /// needs somebody there.
    pub(crate) fn expect_signs_of_life(&self) {
        // Without it the test ends with its time.
        let _ = end_without_sign_of_life(&self.stream, STUCK);
    }

    /// The address and port of this end.
    ///
    /// # Errors
    /// The connection is gone.
    pub(crate) fn local_addr(&self) -> io::Result<SocketAddr> {
        self.stream.local_addr()
    }

    /// What comes within `timeout`. While there is something to send nothing is read, so that a
    /// peer that asks and does not listen is held back instead of filling memory.
    pub(crate) fn receive(&mut self, timeout: Duration) -> Received<'_> {
        let interest = if self.waiting.is_empty() {
            Interest::Readable
        } else {
            Interest::Writable
        };
        match wait_ready(&self.stream, interest, timeout) {
            Ok(true) => {}
            Ok(false) if self.is_stuck() => return Received::Closed,
            Ok(false) => return Received::Nothing,
            Err(_) => return Received::Closed,
        }
        // After a failed write the peer's last words may still be there.
        if interest == Interest::Writable && self.flush().is_ok() {
            return Received::Nothing;
        }
        match self.stream.read(&mut self.buffer) {
            Ok(0) => Received::Closed,
            Ok(n) => Received::Bytes(&self.buffer[..n]),
            Err(error) if is_passing(&error) => Received::Nothing,
            Err(_) => Received::Closed,
        }
    }

    /// Sends what the kernel takes now, and the rest in [`ControlSocket::receive`].
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
        self.stuck_since
            .is_some_and(|since| since.elapsed() >= STUCK)
    }

    /// Ends the connection so that what was sent last is still read: a close with bytes unread
    /// would reset it, and the peer would lose the refusal that explains it.
    pub(crate) fn close(mut self) {
        const LINGER: Duration = Duration::from_millis(500);
        const SLICE: Duration = Duration::from_millis(50);
        let deadline = Instant::now() + LINGER;
        while !self.waiting.is_empty() && Instant::now() < deadline {
            if let Received::Closed = self.receive(SLICE) {
                return;
            }
        }
        if self.stream.shutdown(Shutdown::Write).is_err() {
            return;
        }
        while Instant::now() < deadline {
            if let Received::Closed = self.receive(SLICE) {
                return;
            }
        }
    }
}

fn is_passing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock
    )
}
