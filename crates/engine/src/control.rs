//! The control connection as a socket: bytes in and out with deadlines, whichever half drives it.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use linerate_sys::poll::wait_readable;

/// A peer that takes nothing for so long is gone.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);

/// What came.
pub(crate) enum Received<'a> {
    Bytes(&'a [u8]),
    Nothing,
    Closed,
}

pub(crate) struct ControlSocket {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl ControlSocket {
    pub(crate) fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nonblocking(false)?;
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(WRITE_TIMEOUT))?;
        Ok(Self {
            stream,
            buffer: vec![0; 64 << 10],
        })
    }

    /// What comes within `timeout`.
    pub(crate) fn receive(&mut self, timeout: Duration) -> Received<'_> {
        match wait_readable(&self.stream, timeout) {
            Ok(true) => {}
            Ok(false) => return Received::Nothing,
            Err(_) => return Received::Closed,
        }
        match self.stream.read(&mut self.buffer) {
            Ok(0) => Received::Closed,
            Ok(n) => Received::Bytes(&self.buffer[..n]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Received::Nothing,
            Err(_) => Received::Closed,
        }
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Ends the connection so that what was sent last is still read: a close with bytes unread would
    /// reset it, and the peer would lose the refusal that explains it.
    pub(crate) fn close(mut self) {
        const LINGER: Duration = Duration::from_millis(500);
        if self.stream.shutdown(Shutdown::Write).is_err() {
            return;
        }
        let deadline = Instant::now() + LINGER;
        while Instant::now() < deadline {
            if let Received::Closed = self.receive(Duration::from_millis(50)) {
                return;
            }
        }
    }
}
