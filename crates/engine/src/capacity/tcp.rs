//! One TCP connection of the client: its handshake, its first message, and the answer that it waits
//! for. It is closed by a reset, so that no TIME_WAIT stays.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};

use linerate_core::capacity::FailureCause;
use linerate_core::capacity::wire::{HEADER_BYTES, Header, Kind, opening};
use linerate_core::wire::Token;
use linerate_sys::socket::{Begun, begin_connect, is_established, set_nodelay};
use linerate_sys::tcp_info::TcpInfo;

use super::outgoing::Outgoing;
use super::pool::{Message, NS_PER_S, Opening, PoolTransport};
use super::tally::{cause_of, cause_of_opening};

#[derive(Debug)]
pub(super) struct Tcp {
    stream: TcpStream,
    is_connected: bool,
    /// It has named the session.
    is_named: bool,
    /// Bytes of the answer's header that have arrived.
    have: u8,
    echo: [u8; HEADER_BYTES],
    /// Bytes of the answer that have not arrived.
    waits_for: u32,
    out: Outgoing,
}

/// The result of parsing a part of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ParsedAnswer {
    /// More bytes are to arrive.
    Partial,
    /// The answer is complete.
    Whole,
    /// The bytes are no answer, or no message waits for one.
    None,
}

impl Tcp {
    /// Sets the message that goes out, and the length of its answer, whose header comes first.
    fn expect(&mut self, out: Outgoing, answer: u32) {
        self.out = out;
        (self.have, self.waits_for) = (0, answer.max(HEADER_BYTES as u32));
    }

    /// Parses bytes as a part of the answer.
    fn take(&mut self, bytes: &[u8]) -> ParsedAnswer {
        if bytes.len() > self.waits_for as usize {
            return ParsedAnswer::None;
        }
        let have = usize::from(self.have);
        let head = bytes.len().min(HEADER_BYTES - have);
        self.echo[have..have + head].copy_from_slice(&bytes[..head]);
        self.have += head as u8;
        self.waits_for -= bytes.len() as u32;
        match self.waits_for {
            0 if self.echo == self.out.header() => ParsedAnswer::Whole,
            0 => ParsedAnswer::None,
            _ => ParsedAnswer::Partial,
        }
    }
}

impl PoolTransport for Tcp {
    const EXPIRE_EVERY: u64 = NS_PER_S;
    const MAX_OPENING: u64 = u64::MAX;
    const MAX_BEATS: u64 = 512;

    fn window(backlog: u64) -> Option<u64> {
        Some((backlog / 2).min(WINDOW))
    }

    fn open(source: SocketAddr, peer: SocketAddr) -> Result<Option<Self>, FailureCause> {
        let begun = begin_connect(peer, Some(source)).map_err(cause_of_opening)?;
        Ok(begun.map(|Begun { stream, connected }| Self {
            stream,
            is_connected: connected,
            is_named: false,
            have: 0,
            echo: [0; HEADER_BYTES],
            waits_for: 0,
            out: Outgoing::default(),
        }))
    }

    /// When the handshake is over, sends the first message if one is to be sent at once. If there
    /// is no room for it, the connection counts as not established yet.
    fn establish(&mut self, first: &Opening) -> Result<bool, FailureCause> {
        if !self.is_connected {
            self.is_connected = is_established(&self.stream, first.peer).map_err(cause_of)?;
        }
        let asked =
            (first.asks > 0).then_some(Header { kind: Kind::OpenAnswered, number: first.asks });
        if !self.is_connected || !(first.names || asked.is_some()) {
            return Ok(self.is_connected);
        }
        let bytes = opening(first.token, asked.unwrap_or(PLAIN));
        match self.stream.write(&bytes) {
            Ok(n) if n == bytes.len() => self.is_named = true,
            // A new connection has room for more than that.
            Ok(_) => return Err(FailureCause::Other),
            Err(error) if error.kind() == ErrorKind::WouldBlock => self.is_connected = false,
            Err(error) => return Err(cause_of(error)),
        }
        if let Some(header) = asked {
            self.expect(Outgoing::sent(header), HEADER_BYTES as u32);
        }
        Ok(self.is_connected)
    }

    fn retransmissions(&self, latency_ns: u64) -> u64 {
        if latency_ns <= SYN_AGAIN {
            return 0;
        }
        TcpInfo::read(&self.stream).map_or(0, |info| u64::from(info.total_retrans))
    }

    fn send(&mut self, message: &Message) -> Result<(), FailureCause> {
        let out = Outgoing::new(message.header, message.length);
        self.expect(out, message.answer);
        self.flush(message.token)
    }

    /// Names the session first, if that has not been done.
    fn flush(&mut self, token: Token) -> Result<(), FailureCause> {
        if !self.is_named {
            let name = opening(token, PLAIN);
            self.is_named = self.out.push_after(&name, &self.stream).map_err(cause_of)?;
        }
        if self.is_named {
            self.out.push(&self.stream).map_err(cause_of)?;
        }
        Ok(())
    }

    fn wants_room(&self) -> bool {
        !self.is_connected || !self.out.is_sent()
    }

    fn is_named(&self) -> bool {
        self.is_named
    }

    fn receive(&mut self, buffer: &mut [u8], _: Token, ended: bool) -> Result<bool, FailureCause> {
        loop {
            match self.stream.read(buffer) {
                Ok(0) => return Err(FailureCause::Closed),
                Ok(n) => match self.take(&buffer[..n]) {
                    ParsedAnswer::Whole => return Ok(true),
                    ParsedAnswer::None => return Err(FailureCause::Garbled),
                    ParsedAnswer::Partial if n < buffer.len() && !ended => return Ok(false),
                    ParsedAnswer::Partial => {}
                },
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(cause_of(error)),
            }
        }
    }

    fn wait(&mut self, _: Token, since: u64, now: u64) -> Result<(), FailureCause> {
        if now.saturating_sub(since) > PATIENCE {
            return Err(FailureCause::TimedOut);
        }
        Ok(())
    }

    fn expect_load(&self) {
        // With Nagle's algorithm long requests could wait for an acknowledgement.
        let _ = set_nodelay(&self.stream, true);
    }
}

impl AsFd for Tcp {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

/// The first message that names the session and asks for no answer.
pub(super) const PLAIN: Header = Header { kind: Kind::Open, number: 0 };
/// Most connections that are begun and not accepted at a listener whose backlog is twice as long.
const WINDOW: u64 = 1024;
/// A SYN is retransmitted after 1 s (RFC 6298, 2.1): a handshake that took less than half of that
/// had no retransmission, ns.
const SYN_AGAIN: u64 = 500_000_000;
/// Longest wait for a handshake (retransmissions at 1 s, 3 s and 7 s) and for an answer, ns.
const PATIENCE: u64 = 10 * NS_PER_S;

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn an_answer_is_recognized_whatever_pieces_it_arrives_in() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let peer = listener.local_addr().unwrap();
        let opened = (40_000..60_000).find_map(|port| {
            let source = SocketAddr::from(([127, 0, 0, 1], port));
            Tcp::open(source, peer).unwrap()
        });
        let mut connection = opened.unwrap();
        assert_eq!(connection.take(b"x"), ParsedAnswer::None, "no message waits");
        let header = Header { kind: Kind::Request, number: 9 };
        let mut answer = header.encode().to_vec();
        answer.resize(100, 0);
        for piece in 1..=100 {
            connection.expect(Outgoing::sent(header), 100);
            let parts: Vec<ParsedAnswer> =
                answer.chunks(piece).map(|p| connection.take(p)).collect();
            let (last, others) = parts.split_last().unwrap();
            assert_eq!(*last, ParsedAnswer::Whole);
            assert!(others.iter().all(|part| *part == ParsedAnswer::Partial));
            assert_eq!(connection.take(b"x"), ParsedAnswer::None);
        }
        connection.expect(Outgoing::sent(header), 8);
        assert_eq!(connection.take(&[0; 8]), ParsedAnswer::None, "another header");
    }
}
