//! The endpoint's connections: accepted from the client's address alone, held if they name the
//! session in time, and what each of them answers.

use std::io::{self, ErrorKind, Read};
use std::net::{IpAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use linerate_core::capacity::FailureCause;
use linerate_core::capacity::wire::{HEADER_BYTES, Header, Kind, OPENING_BYTES, opened};
use linerate_sys::poll::{Interest, Poller, Ready};
use linerate_sys::socket::{ListenOptions, Mptcp, accept, listen, reset_on_close, set_send_buffer};
use linerate_sys::tcp_info::TcpInfo;

use super::message::{Listen, Report, Terms, cause_of};
use super::pool::NS_PER_S;
use super::socket::Outgoing;
use super::worker::Service;
use crate::clock::now_ns;
use crate::measure::pause::Pause;

struct Listener {
    socket: TcpListener,
    /// Until when the listener is not watched, because the process is out of descriptors or has all
    /// its connections.
    paused_until: Option<u64>,
}

impl Listener {
    /// How many connections to accept now. One more than wait would cost as much as one that does:
    /// the kernel makes a file for it, and frees that.
    fn waiting(&self) -> usize {
        let info = TcpInfo::read(&self.socket);
        info.map_or(BATCH, |info| (info.unacked as usize).clamp(1, BATCH))
    }
}

/// All connections of a worker.
pub(super) struct Acceptor {
    poller: Poller,
    client: IpAddr,
    terms: Terms,
    listeners: Vec<Listener>,
    held: Vec<Option<Held>>,
    free: Vec<u32>,
    buffer: Box<[u8]>,
    /// Most connections at once.
    room: u64,
    /// Number of open connections that have not named the session yet.
    unnamed: u64,
    /// Lets connections gather while many arrive: the kernel completes their handshakes by itself,
    /// and to wake up for each takes CPU time that a client on this host needs.
    gathering: Pause,
    backlog: u32,
    report: Report,
    began: u64,
    next_look: u64,
    next_patience: u64,
}

impl Acceptor {
    /// Listens; the result has the ports.
    pub(super) fn new(order: &Listen) -> Result<(Self, Vec<u16>), String> {
        let poller = Poller::new().map_err(|error| format!("cannot wait: {error}"))?;
        let mut listeners = Vec::new();
        let mut ports = Vec::new();
        for index in 0..order.counts.len() {
            let (socket, port) = listen_at(order, &poller, index)
                .map_err(|error| format!("cannot listen: {error}"))?;
            ports.push(port);
            listeners.push(Listener { socket, paused_until: None });
        }
        let room = order.counts.iter().sum::<u64>() + SPARE;
        let acceptor = Self {
            poller,
            client: order.client,
            terms: order.terms.clone(),
            listeners,
            held: Vec::with_capacity(room as usize),
            free: Vec::new(),
            buffer: vec![0; BUFFER].into(),
            room,
            unnamed: 0,
            gathering: Pause::new(WORTH_GATHERING, now_ns()).lasting(GATHERING),
            backlog: order.backlog,
            report: Report::default(),
            began: now_ns(),
            next_look: 0,
            next_patience: 0,
        };
        Ok((acceptor, ports))
    }

    /// Accepts connections that wait at a listener.
    fn take(&mut self, index: usize) {
        let mut waiting = self.listeners[index].waiting();
        if waiting < FEW
            && let Some(pause) = self.gathering.due(now_ns(), || self.backlog.into())
        {
            thread::sleep(pause);
            waiting = self.listeners[index].waiting();
        }
        for _ in 0..waiting {
            // Connections that churn has closed count until their resets are read; the queue can
            // wait for that.
            if self.report.status.open >= self.room {
                return self.pause(index);
            }
            let listener = &mut self.listeners[index];
            match accept(&listener.socket) {
                Ok((stream, from)) => {
                    if from.to_canonical() != self.client {
                        self.report.status.failures.count(FailureCause::Stranger);
                    } else {
                        self.hold(stream);
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if is_passing(&error) => {}
                Err(error) => {
                    self.report.status.failures.count(cause_of(error));
                    return self.pause(index);
                }
            }
        }
    }

    /// Does not watch a listener for a while: it stays readable, and an immediate look would not
    /// help.
    fn pause(&mut self, index: usize) {
        let listener = &mut self.listeners[index];
        if self.poller.remove(&listener.socket).is_ok() {
            listener.paused_until = Some(now_ns() + PAUSE);
        }
    }

    fn hold(&mut self, stream: std::net::TcpStream) {
        let since_s = ((now_ns() - self.began) / NS_PER_S) as u32;
        let slot = match self.free.pop() {
            Some(slot) => slot as usize,
            None => {
                self.held.push(None);
                self.held.len() - 1
            }
        };
        // The poller also reports bytes that have arrived already.
        let watched = self.poller.add_edge(&stream, slot as u64, Interest::Readable);
        if let Err(error) = watched {
            self.report.status.failures.count(cause_of(error));
            self.free.push(slot as u32);
            return;
        }
        self.held[slot] = Some(Held::new(stream, since_s));
        self.gathering.add(1, 1);
        self.unnamed += 1;
        let report = &mut self.report;
        report.status.opened += 1;
        report.status.open += 1;
        report.most = report.most.max(report.status.open);
    }

    fn read(&mut self, slot: usize, ended: bool) {
        loop {
            let Some(held) = self.held[slot].as_mut() else {
                return;
            };
            let n = match (&held.stream).read(&mut self.buffer) {
                Ok(0) => return self.end(slot, FailureCause::Closed),
                Ok(n) => n,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return self.end(slot, cause_of(error)),
            };
            let was_ours = held.is_ours;
            let fed = held.feed(&self.buffer[..n], &self.terms);
            if held.is_ours && !was_ours {
                self.unnamed -= 1;
            }
            if fed == Fed::Stranger {
                return self.end(slot, FailureCause::Garbled);
            }
            if !held.out.is_sent()
                && let Err(error) = push(held, &self.poller, slot)
            {
                return self.end(slot, cause_of(error));
            }
            if n < self.buffer.len() && !ended {
                return;
            }
        }
    }

    /// Ends a connection that is lost, or that belongs to somebody else. The client closes only by
    /// reset, so that a reset connection counts as the client's even if it has not named the
    /// session.
    fn end(&mut self, slot: usize, cause: FailureCause) {
        let Some(held) = self.held[slot].take() else {
            return;
        };
        self.free.push(slot as u32);
        self.report.status.open -= 1;
        self.unnamed -= u64::from(!held.is_ours);
        if held.is_ours || cause == FailureCause::Reset {
            self.report.status.lost.count(cause);
        } else {
            self.report.status.opened -= 1;
            self.report.status.failures.count(FailureCause::Stranger);
        }
    }

    /// Watches paused listeners again, and ends connections that have not named the session in
    /// time.
    fn look(&mut self, now: u64) -> io::Result<()> {
        for (index, listener) in self.listeners.iter_mut().enumerate() {
            if listener.paused_until.is_some_and(|until| now >= until) {
                listener.paused_until = None;
                self.poller.add(&listener.socket, LISTENERS + index as u64)?;
            }
        }
        // To look at all connections takes a while.
        if self.unnamed > 0 && now >= self.next_patience {
            self.next_patience = now + LOOK_FOR_STRANGERS;
            let now_s = ((now - self.began) / NS_PER_S) as u32;
            for slot in 0..self.held.len() {
                let waits = |held: &Held| !held.is_ours && now_s > held.since_s + PATIENCE_S;
                if self.held[slot].as_ref().is_some_and(waits) {
                    self.end(slot, FailureCause::Stranger);
                }
            }
        }
        Ok(())
    }
}

impl Service for Acceptor {
    fn poller(&mut self) -> &mut Poller {
        &mut self.poller
    }

    fn on_ready(&mut self, ready: &Ready) {
        if ready.number >= LISTENERS {
            return self.take((ready.number - LISTENERS) as usize);
        }
        let slot = ready.number as usize;
        let Some(held) = self.held.get_mut(slot).and_then(Option::as_mut) else {
            return;
        };
        if ready.writable
            && !held.out.is_sent()
            && let Err(error) = held.out.push(&held.stream)
        {
            return self.end(slot, cause_of(error));
        }
        if ready.readable {
            self.read(slot, ready.ended);
        }
    }

    fn advance(&mut self, now: u64) -> io::Result<u64> {
        if now >= self.next_look {
            self.next_look = now + LOOK_EVERY;
            self.look(now)?;
        }
        Ok(self.next_look)
    }

    fn report(&self) -> Report {
        self.report.clone()
    }
}

/// Sends as much of the answer as the kernel takes; the rest goes out when there is room.
fn push(held: &mut Held, poller: &Poller, slot: usize) -> io::Result<()> {
    held.out.push(&held.stream)?;
    if !held.out.is_sent() {
        poller.remove(&held.stream)?;
        poller.add_edge(&held.stream, slot as u64, Interest::Either)?;
    }
    Ok(())
}

fn listen_at(order: &Listen, poller: &Poller, index: usize) -> io::Result<(TcpListener, u16)> {
    let options = ListenOptions { backlog: order.backlog, mptcp: Mptcp::Off };
    let socket = listen(order.address, options)?;
    // Accepted connections inherit this: whatever ends this process, none of them stays.
    reset_on_close(&socket).map_err(io::Error::other)?;
    // They inherit this, too: it bounds the memory that a client which does not read can take. If
    // the host allows less, larger answers go out in pieces.
    let _ = set_send_buffer(&socket, order.send_buffer);
    socket.set_nonblocking(true)?;
    poller.add(&socket, LISTENERS + index as u64)?;
    let port = socket.local_addr()?.port();
    Ok((socket, port))
}

/// Whether the error is that of a connection which ended while it waited (accept(2)).
fn is_passing(error: &io::Error) -> bool {
    let kind = error.kind();
    kind == ErrorKind::Interrupted
        || kind == ErrorKind::ConnectionAborted
        || error.raw_os_error() == Some(linerate_sys::errno::EPROTO)
}

/// The numbers of listeners begin here, beyond all slots.
const LISTENERS: u64 = 1 << 40;
/// Most connections accepted at a listener before others have their turn.
const BATCH: usize = 64;
const BUFFER: usize = 16 << 10;
/// Connections in addition to those requested: a probe, and replacements that arrive before the
/// reset of the connection that they replace.
const SPARE: u64 = 64;
const PAUSE: u64 = 20_000_000;
const LOOK_EVERY: u64 = 50_000_000;
/// Where fewer connections than this wait, more may gather.
const FEW: usize = 16;
/// How long they do.
const GATHERING: Duration = Duration::from_micros(500);
/// Connections that arrive meanwhile, at least.
const WORTH_GATHERING: u64 = 4;
/// How long a connection may take to name the session, s: the client has many of them.
pub(super) const PATIENCE_S: u32 = 180;
const LOOK_FOR_STRANGERS: u64 = 5_000_000_000;

// One held connection, and what has arrived of the next message on it.

/// A connection; it takes some seventy bytes.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) stream: TcpStream,
    pub(super) out: Outgoing,
    /// It has named the session. Before that only its address is known.
    pub(super) is_ours: bool,
    /// When it was accepted, s since the worker began.
    pub(super) since_s: u32,
    have: u8,
    part: [u8; OPENING_BYTES],
    /// Bytes of a request that have not arrived yet.
    left: u32,
}

/// The result of parsing some bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fed {
    /// Every connection was expected and is taken.
    Taken,
    /// They name another session, or are not part of the protocol.
    Stranger,
}

impl Held {
    pub(super) fn new(stream: TcpStream, since_s: u32) -> Self {
        Self {
            stream,
            out: Outgoing::default(),
            is_ours: false,
            since_s,
            have: 0,
            part: [0; OPENING_BYTES],
            left: 0,
        }
    }

    /// Parses what has arrived; the answer is then in `out`. A client sends its next message only
    /// after the answer: more than that is a stranger's, so that nothing piles up.
    pub(super) fn feed(&mut self, mut bytes: &[u8], terms: &Terms) -> Fed {
        while !bytes.is_empty() {
            if self.left > 0 {
                let skipped = bytes.len().min(self.left as usize);
                self.left -= skipped as u32;
                bytes = &bytes[skipped..];
                if self.left == 0 {
                    self.answer(terms.response_bytes);
                }
                continue;
            }
            let whole = if self.is_ours { HEADER_BYTES } else { OPENING_BYTES };
            let have = usize::from(self.have);
            let head = bytes.len().min(whole - have);
            self.part[have..have + head].copy_from_slice(&bytes[..head]);
            self.have += head as u8;
            bytes = &bytes[head..];
            if usize::from(self.have) < whole {
                break;
            }
            self.have = 0;
            if !self.out.is_sent() {
                return Fed::Stranger;
            }
            if self.is_ours {
                if !self.begin(terms) {
                    return Fed::Stranger;
                }
            } else if let Some(header) = opened(&self.part, terms.token) {
                self.is_ours = true;
                if header.kind == Kind::OpenAnswered {
                    self.out = Outgoing::new(header, 0);
                }
            } else {
                return Fed::Stranger;
            }
        }
        Fed::Taken
    }

    /// Handles a header; false if it has no place here.
    fn begin(&mut self, terms: &Terms) -> bool {
        let Some(header) = self.header() else {
            return false;
        };
        match header.kind {
            Kind::Heartbeat => self.out = Outgoing::new(header, 0),
            Kind::Request => {
                self.left = terms.request_bytes.saturating_sub(HEADER_BYTES as u32);
                if self.left == 0 {
                    self.answer(terms.response_bytes);
                }
            }
            Kind::Open | Kind::OpenAnswered => return false,
        }
        true
    }

    fn answer(&mut self, length: u32) {
        if let Some(header) = self.header() {
            self.out = Outgoing::new(header, length);
        }
    }

    fn header(&self) -> Option<Header> {
        Header::decode(*self.part.first_chunk()?)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{SocketAddr, TcpListener, TcpStream};

    use linerate_core::capacity::wire::{Header, Kind, opening};
    use linerate_core::wire::Token;
    use linerate_sys::poll::wait_readable;
    use linerate_sys::socket::{begin_connect, send_buffer};

    use super::*;

    const TOKEN: Token = Token([7; 16]);
    const SECOND: u64 = NS_PER_S;

    fn order(send_buffer: u32) -> Listen {
        Listen {
            terms: Terms { token: TOKEN, request_bytes: 8, response_bytes: 8, descriptors: None },
            address: "127.0.0.1:0".parse().expect("an address"),
            client: "127.0.0.1".parse().expect("an address"),
            counts: vec![10],
            backlog: 16,
            send_buffer,
        }
    }

    /// An acceptor with one connection, and the other end of that.
    fn acceptor_of_one() -> (Acceptor, TcpStream) {
        let (mut acceptor, ports) = Acceptor::new(&order(4096)).expect("loopback is there");
        let peer = SocketAddr::from(([127, 0, 0, 1], ports[0]));
        let stream = begin_connect(peer, None).expect("it listens").expect("a free port").stream;
        while acceptor.report.status.open == 0 {
            wait_readable(&acceptor.listeners[0].socket, Duration::from_millis(50))
                .expect("a listener");
            acceptor.take(0);
        }
        (acceptor, stream)
    }

    fn wait_and_read(acceptor: &mut Acceptor) {
        let held = acceptor.held[0].as_ref().expect("the first that was taken");
        wait_readable(&held.stream, Duration::from_secs(60)).expect("a socket");
        acceptor.read(0, false);
    }

    fn counts(acceptor: &Acceptor) -> (u64, u64, u64, u64, u64) {
        let status = &acceptor.report.status;
        let (failures, lost) = (status.failures.total(), status.lost.total());
        (status.open, status.opened, acceptor.unnamed, failures, lost)
    }

    #[test]
    fn a_connection_from_the_clients_address_counts_and_stays_if_it_names_the_session() {
        let (mut acceptor, mut stream) = acceptor_of_one();
        assert_eq!(counts(&acceptor), (1, 1, 1, 0, 0));
        let header = Header { kind: Kind::Open, number: 0 };
        stream.write_all(&opening(TOKEN, header)).unwrap();
        wait_and_read(&mut acceptor);
        assert_eq!(counts(&acceptor), (1, 1, 0, 0, 0));
        acceptor.look(now_ns() + 1000 * SECOND).unwrap();
        assert_eq!(counts(&acceptor), (1, 1, 0, 0, 0), "for as long as it likes");
    }

    #[test]
    fn a_connection_that_never_names_the_session_is_a_strangers() {
        let (mut acceptor, _stream) = acceptor_of_one();
        let patience = u64::from(PATIENCE_S) * SECOND;
        acceptor.look(acceptor.began + patience).unwrap();
        assert_eq!(counts(&acceptor), (1, 1, 1, 0, 0));
        let later = now_ns() + patience + 2 * LOOK_FOR_STRANGERS;
        acceptor.look(later).unwrap();
        assert_eq!(counts(&acceptor), (0, 0, 0, 1, 0));
    }

    #[test]
    fn a_connection_that_sends_something_else_is_a_strangers_and_a_reset_one_is_lost() {
        let (mut acceptor, mut stream) = acceptor_of_one();
        stream.write_all(&[b'x'; 24]).unwrap();
        wait_and_read(&mut acceptor);
        assert_eq!(counts(&acceptor), (0, 0, 0, 1, 0));
        let (mut acceptor, stream) = acceptor_of_one();
        drop(stream);
        wait_and_read(&mut acceptor);
        assert_eq!(counts(&acceptor), (0, 1, 0, 0, 1));
        let (mut acceptor, stream) = acceptor_of_one();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        wait_and_read(&mut acceptor);
        assert_eq!(counts(&acceptor), (0, 0, 0, 1, 0), "the client only resets");
    }

    #[test]
    fn accepted_connections_inherit_the_small_send_buffer() {
        let poller = Poller::new().unwrap();
        let (listener, port) = listen_at(&order(4096), &poller, 0).unwrap();
        let _stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        wait_readable(&listener, Duration::from_secs(60)).unwrap();
        let (taken, _) = accept(&listener).unwrap();
        assert_eq!(send_buffer(&taken).unwrap(), 8192, "the kernel doubles what it is given");
    }

    const TERMS: Terms =
        Terms { token: Token([7; 16]), request_bytes: 20, response_bytes: 100, descriptors: None };

    fn held() -> Held {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        Held::new(TcpStream::connect(listener.local_addr().unwrap()).unwrap(), 0)
    }

    fn header(kind: Kind) -> Header {
        Header { kind, number: 3 }
    }

    /// Feeds all bytes in pieces of `piece` bytes; `Stranger` if any piece was a stranger's.
    fn feed(held: &mut Held, bytes: &[u8], piece: usize) -> Fed {
        let mut last = Fed::Taken;
        for part in bytes.chunks(piece) {
            match held.feed(part, &TERMS) {
                Fed::Taken => {}
                fed => last = fed,
            }
        }
        last
    }

    #[test]
    fn messages_are_parsed_whatever_pieces_they_arrive_in() {
        for piece in 1..40 {
            let mut held = held();
            let bytes = opening(TERMS.token, header(Kind::Open));
            assert_eq!(feed(&mut held, &bytes, piece), Fed::Taken);
            assert!(held.is_ours && held.out.is_sent(), "nobody has asked for an answer");
            let mut request = header(Kind::Request).encode().to_vec();
            request.resize(20, 0);
            assert_eq!(feed(&mut held, &request, piece), Fed::Taken);
            assert!(!held.out.is_sent() && held.out.header() == request[..8]);
            held.out = Outgoing::default();
            let beat = header(Kind::Heartbeat).encode();
            assert_eq!(feed(&mut held, &beat, piece), Fed::Taken);
            assert_eq!(held.out.header(), beat);
            assert_eq!(feed(&mut held, &beat, piece), Fed::Stranger, "not answered yet");
        }
    }

    #[test]
    fn another_session_and_a_second_opening_are_strangers() {
        let other = opening(Token([8; 16]), header(Kind::Open));
        assert_eq!(feed(&mut held(), &other, 24), Fed::Stranger);
        let mut twice = held();
        let bytes = opening(TERMS.token, header(Kind::OpenAnswered));
        assert_eq!(feed(&mut twice, &bytes, 24), Fed::Taken);
        assert!(twice.is_ours);
        twice.out = Outgoing::default();
        assert_eq!(feed(&mut twice, &bytes, 24), Fed::Stranger);
    }
}
