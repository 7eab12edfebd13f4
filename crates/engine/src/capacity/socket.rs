//! The client's side of one TCP connection or UDP socket, as the pool holds both, and the messages
//! on it.

use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::LazyLock;

use linerate_core::capacity::FailureCause;
use linerate_core::capacity::wire::{
    DATAGRAM_BYTES, Datagram, HEADER_BYTES, Header, Kind, opening,
};
use linerate_core::wire::Token;
use linerate_sys::socket::{Begun, begin_connect, is_established, set_nodelay, udp_socket};
use linerate_sys::tcp_info::TcpInfo;

use super::message::{cause_of, cause_of_opening};
use super::pool::{Message, NS_PER_S, Opening, PoolTransport};
use crate::clock::now_ns;
use crate::retry::is_transient;

// A TCP connection: its handshake, its first message and the answer. It is closed by a reset, so
// that no TIME_WAIT stays.

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

// A UDP socket: open when it has answered the endpoint's challenge. Lost datagrams are sent again.

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
    const MAX_OPENING: u64 = UDP_WINDOW;
    const MAX_BEATS: u64 = UDP_WINDOW;

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
const UDP_WINDOW: u64 = 128;
/// A message without an answer is sent again after this time, ns, and this often.
const AGAIN: u64 = 500_000_000;
const MAX_TRIES: u8 = 8;

// A message that is being sent: a header and filler, as much at a time as the kernel takes.

/// The rest of a message that is to be sent.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Outgoing {
    header: [u8; HEADER_BYTES],
    length: u32,
    left: u32,
}

impl Outgoing {
    /// A message of `length` bytes, its header included.
    pub(super) fn new(header: Header, length: u32) -> Self {
        let length = length.max(HEADER_BYTES as u32);
        Self { header: header.encode(), length, left: length }
    }

    /// A header that was sent in another way.
    pub(super) fn sent(header: Header) -> Self {
        Self { left: 0, ..Self::new(header, 0) }
    }

    /// The header of the last message.
    pub(super) fn header(&self) -> [u8; HEADER_BYTES] {
        self.header
    }

    pub(super) fn is_sent(&self) -> bool {
        self.left == 0
    }

    /// Sends `first` and as much of the message behind it as the kernel takes; false if it takes
    /// nothing now. `first` begins a connection: a kernel that takes a part takes all of it.
    ///
    /// # Errors
    /// The connection has failed.
    pub(super) fn push_after(&mut self, first: &[u8], mut stream: &TcpStream) -> io::Result<bool> {
        let (header, filler) = self.remaining();
        let parts = [IoSlice::new(first), IoSlice::new(header), IoSlice::new(filler)];
        match stream.write_vectored(&parts) {
            Ok(n) if n < first.len() => Err(io::ErrorKind::WriteZero.into()),
            Ok(n) => {
                self.left -= (n - first.len()) as u32;
                Ok(true)
            }
            Err(error) if is_transient(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The rest of the header, and as much filler as one call sends.
    fn remaining(&self) -> (&[u8], &'static [u8]) {
        if self.is_sent() {
            return (&[], &[]);
        }
        let done = (self.length - self.left) as usize;
        let header = self.header.get(done..).unwrap_or_default();
        let filler = (self.left as usize - header.len()).min(FILLER.len());
        (header, &FILLER[..filler])
    }

    /// Sends as much as the kernel takes now.
    ///
    /// # Errors
    /// The connection has failed.
    pub(super) fn push(&mut self, mut stream: &TcpStream) -> io::Result<()> {
        while self.left > 0 {
            let (header, filler) = self.remaining();
            let result = match filler.len() {
                0 => stream.write(header),
                _ => stream.write_vectored(&[IoSlice::new(header), IoSlice::new(filler)]),
            };
            match result {
                // The kernel takes no more than was left.
                Ok(n) => self.left -= n as u32,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

// Made at run time, so that it is no part of the program's file.
static FILLER: LazyLock<Vec<u8>> = LazyLock::new(|| vec![0; 64 << 10]);

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::TcpListener;

    use linerate_core::capacity::wire::Kind;

    use super::*;

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

    #[test]
    fn a_long_message_is_sent_completely_in_pieces() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut receiver, _) = listener.accept().unwrap();
        sender.set_nonblocking(true).unwrap();
        let header = Header { kind: Kind::Request, number: 7 };
        const LENGTH: u32 = 16 << 20;
        let mut message = Outgoing::new(header, LENGTH);
        message.push(&sender).unwrap();
        assert!(!message.is_sent(), "no buffer takes so much at once");
        let reader = std::thread::spawn(move || {
            let mut bytes = vec![0; LENGTH as usize];
            receiver.read_exact(&mut bytes).unwrap();
            bytes
        });
        while !message.is_sent() {
            message.push(&sender).unwrap();
        }
        let bytes = reader.join().unwrap();
        assert_eq!(bytes[..8], header.encode());
        assert!(bytes[8..].iter().all(|byte| *byte == 0));
    }
}
