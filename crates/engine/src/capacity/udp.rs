//! One UDP socket of the client, connected to a socket of the endpoint. It is open when it has
//! answered the endpoint's challenge. Lost datagrams are sent again.

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};

use linerate_core::capacity::FailureCause;
use linerate_core::capacity::wire::{DATAGRAM_BYTES, Datagram, Header, Kind};
use linerate_core::wire::Token;
use linerate_sys::socket::udp_socket;

use super::pool::{Message, Opening, PoolTransport};
use super::tally::{cause_of, cause_of_opening};
use crate::clock::now_ns;
use crate::retry::is_transient;

#[derive(Debug)]
pub(super) struct Udp {
    socket: UdpSocket,
    /// Proves the socket's address; 0 until the endpoint has sent it.
    cookie: u64,
    /// Number of the present message.
    number: u64,
    tries: u8,
    /// Retransmissions of the first message, which asks for the cookie.
    challenge_tries: u8,
    /// When the present message was last sent; 0 if there is none.
    sent: u64,
}

impl Udp {
    /// Sends the present message, for the first time or again.
    fn ask(&mut self, token: Token) -> Result<(), FailureCause> {
        let datagram = Datagram { token, cookie: self.cookie, header: self.header() };
        self.sent = now_ns();
        match self.socket.send(&datagram.encode()) {
            // What the kernel does not take now is sent again later.
            Err(error) if !is_full(&error) => Err(cause_of(error)),
            _ => Ok(()),
        }
    }

    fn begin(&mut self, token: Token, number: u64) -> Result<(), FailureCause> {
        (self.number, self.tries) = (number, 0);
        self.ask(token)
    }

    fn header(&self) -> Header {
        Header { kind: Kind::Heartbeat, number: self.number }
    }

    /// The answer to the present message. Late answers to earlier messages, and datagrams of
    /// others, are ignored.
    fn answer(&mut self, token: Token) -> Result<Option<Datagram>, FailureCause> {
        // One byte more than a datagram has, so that a longer one is not taken for one.
        let mut bytes = [0; DATAGRAM_BYTES + 1];
        loop {
            let found = match self.socket.recv(&mut bytes) {
                Ok(n) => Datagram::decode(&bytes[..n]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == ErrorKind::Interrupted => None,
                Err(error) => return Err(cause_of(error)),
            };
            let is_answer = |d: &Datagram| d.token == token && d.header == self.header();
            if let Some(answer) = found.filter(is_answer) {
                return Ok(Some(answer));
            }
        }
    }
}

impl PoolTransport for Udp {
    const EXPIRE_EVERY: u64 = AGAIN / 2;
    const MAX_OPENING: u64 = WINDOW;
    const MAX_BEATS: u64 = WINDOW;

    fn window(_: u64) -> Option<u64> {
        None
    }

    fn open(source: SocketAddr, peer: SocketAddr) -> Result<Option<Self>, FailureCause> {
        // Shared: sockets to different ports of the endpoint may have the same local port.
        let socket = match udp_socket(source, Some(peer), true) {
            Ok(socket) => socket,
            Err(error) if error.kind() == ErrorKind::AddrInUse => return Ok(None),
            Err(error) => return Err(cause_of_opening(error)),
        };
        socket.set_nonblocking(true).map_err(cause_of)?;
        Ok(Some(Self { socket, cookie: 0, number: 0, tries: 0, challenge_tries: 0, sent: 0 }))
    }

    /// Asks for the cookie, and then sends it back.
    fn establish(&mut self, first: &Opening) -> Result<bool, FailureCause> {
        if self.sent == 0 {
            self.begin(first.token, first.number)?;
            return Ok(false);
        }
        while let Some(answer) = self.answer(first.token)? {
            if self.cookie != 0 {
                return Ok(true);
            }
            (self.cookie, self.challenge_tries) = (answer.cookie, self.tries);
            // The highest number: no later message has it, nor has the first one.
            self.begin(first.token, first.number | PROOF)?;
        }
        Ok(false)
    }

    fn retransmissions(&self, _: u64) -> u64 {
        u64::from(self.challenge_tries) + u64::from(self.tries)
    }

    fn send(&mut self, message: &Message) -> Result<(), FailureCause> {
        self.begin(message.token, message.header.number)
    }

    fn receive(&mut self, _: &mut [u8], token: Token, _: bool) -> Result<bool, FailureCause> {
        Ok(self.answer(token)?.is_some())
    }

    /// Sends the message again, several times, because a datagram may be lost.
    fn wait(&mut self, token: Token, _: u64, now: u64) -> Result<(), FailureCause> {
        if now.saturating_sub(self.sent) < AGAIN {
            return Ok(());
        }
        if self.tries >= MAX_TRIES {
            return Err(FailureCause::TimedOut);
        }
        self.tries += 1;
        self.ask(token)
    }
}

impl AsFd for Udp {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Whether the kernel only has no room for the datagram now.
fn is_full(error: &io::Error) -> bool {
    is_transient(error) || error.raw_os_error() == Some(linerate_sys::errno::ENOBUFS)
}

/// Number of the message that sends the cookie back: the last of a socket's 2²⁴ numbers.
const PROOF: u64 = (1 << 24) - 1;
/// Most messages in flight: a socket's usual buffer takes some 250 datagrams of this size.
const WINDOW: u64 = 128;
/// A message without an answer is sent again after this time, ns, and this often.
const AGAIN: u64 = 500_000_000;
const MAX_TRIES: u8 = 8;
