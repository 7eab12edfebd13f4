//! One UDP socket of the client, connected to a socket of the endpoint: open when it has answered
//! its challenge. What is lost is asked again.

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};

use linerate_core::capacity::FailureCause;
use linerate_core::capacity::wire::{DATAGRAM_BYTES, Datagram, Header, Kind};
use linerate_core::wire::Token;
use linerate_sys::socket::udp_socket;

use super::pool::{Message, Opening, Transport};
use super::tally::cause_of;
use crate::clock::now_ns;

#[derive(Debug)]
pub(super) struct Udp {
    socket: UdpSocket,
    /// Proves its address; 0 until the endpoint has said it.
    cookie: u64,
    /// Of its present message.
    number: u64,
    tries: u8,
    /// Tries of the message before, which asked for the cookie.
    challenge_tries: u8,
    /// When its present message was sent last; 0: it has none.
    sent: u64,
}

impl Udp {
    /// Sends the present message, for the first time or again.
    fn ask(&mut self, token: Token) -> Result<(), FailureCause> {
        let datagram = Datagram {
            token,
            cookie: self.cookie,
            header: self.header(),
        };
        self.sent = now_ns();
        match self.socket.send(&datagram.encode()) {
            // What is refused now is retransmitted in a while.
            Err(error) if !is_passing(&error) => Err(cause_of(error)),
            _ => Ok(()),
        }
    }

    fn begin(&mut self, token: Token, number: u64) -> Result<(), FailureCause> {
        (self.number, self.tries) = (number, 0);
        self.ask(token)
    }

    fn header(&self) -> Header {
        Header {
            kind: Kind::Heartbeat,
            number: self.number,
        }
    }

    /// The answer to the present message. What answers an earlier one comes late; what answers none
    /// is somebody else's.
    fn answer(&mut self, token: Token) -> Result<Option<Datagram>, FailureCause> {
        // One more than a datagram has: a longer one is none.
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

impl Transport for Udp {
    const EXPIRE_EVERY: u64 = AGAIN / 2;
    const MAX_OPENING: u64 = WINDOW;
    const MAX_BEATS: u64 = WINDOW;

    fn window(_: u64) -> Option<u64> {
        None
    }

    fn open(source: SocketAddr, peer: SocketAddr) -> Result<Option<Self>, FailureCause> {
        // Shared: sockets to other ports of the endpoint may have the same one here.
        let socket = match udp_socket(source, Some(peer), true) {
            Ok(socket) => socket,
            Err(error) if error.kind() == ErrorKind::AddrInUse => return Ok(None),
            // The address, not the port.
            Err(error) if error.kind() == ErrorKind::AddrNotAvailable => {
                return Err(FailureCause::Other);
            }
            Err(error) => return Err(cause_of(error)),
        };
        socket.set_nonblocking(true).map_err(cause_of)?;
        Ok(Some(Self {
            socket,
            cookie: 0,
            number: 0,
            tries: 0,
            challenge_tries: 0,
            sent: 0,
        }))
    }

    /// Asks for the cookie, and then with it.
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
            // Above all that follow: another number than the first question's.
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

    /// A datagram may be lost: it is retransmitted, several times.
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

fn is_passing(error: &io::Error) -> bool {
    let kind = error.kind();
    let full = error.raw_os_error() == Some(linerate_sys::errno::ENOBUFS);
    full || kind == ErrorKind::WouldBlock || kind == ErrorKind::Interrupted
}

/// Of the message that brings the cookie back: the last of the 2²⁴ numbers of a socket.
const PROOF: u64 = (1 << 24) - 1;
/// In flight at once: a socket's usual buffer takes some 250 datagrams of this size.
const WINDOW: u64 = 128;
/// After so long without an answer, ns, it is retransmitted, so often.
const AGAIN: u64 = 500_000_000;
const MAX_TRIES: u8 = 8;
