//! The connections, or the UDP sockets, of one of the client's workers: it opens them, keeps them
//! alive, sends requests over them and replaces them. [`PoolTransport`] is what differs between TCP
//! and UDP.

use std::net::SocketAddr;
use std::os::fd::AsFd;

use linerate_core::capacity::wire::{HEADER_BYTES, Header, Kind};
use linerate_core::capacity::{FailureCause, MAX_AT_PORT};
use linerate_core::stats::LatencyHistogram;
use linerate_core::units::SplitMix64;
use linerate_core::wire::Token;
use linerate_sys::poll::{Interest, Poller, Ready};

use super::destination::{CapacityLoad, Destination, Turn};
use super::message::{Connect, Report, Terms, cause_of};
use crate::clock::now_ns;

/// A TCP connection or a UDP socket of the client, and its state.
pub(super) trait PoolTransport: AsFd + Sized {
    /// Time between two searches for overdue answers, ns. A search over all sockets takes a while.
    const EXPIRE_EVERY: u64;
    /// Most sockets that are being opened at once.
    const MAX_OPENING: u64;
    /// Most heartbeats in flight at once.
    const MAX_BEATS: u64;

    /// Most connections that may be begun to a listener and not be accepted yet, if this is their
    /// part of its backlog. `None`: any number, and the endpoint is never asked what it has
    /// accepted.
    fn window(backlog: u64) -> Option<u64>;
    /// Begins to open a socket; `None` if another program has the local port.
    fn open(source: SocketAddr, peer: SocketAddr) -> Result<Option<Self>, FailureCause>;
    /// Continues to open the socket; true once it is open.
    fn establish(&mut self, opening: &Opening) -> Result<bool, FailureCause>;
    /// Retransmissions while the socket was opened, which took `latency_ns`.
    fn retransmissions(&self, latency_ns: u64) -> u64;
    /// Sends a message, or as much of it as the kernel takes now.
    fn send(&mut self, message: &Message) -> Result<(), FailureCause>;
    /// Reads what has arrived, all of it if the connection has `ended`; true if the last message is
    /// answered.
    fn receive(
        &mut self,
        buffer: &mut [u8],
        token: Token,
        ended: bool,
    ) -> Result<bool, FailureCause>;
    /// Handles an answer that has been awaited since `since`: sends the message again, or gives up.
    fn wait(&mut self, token: Token, since: u64, now: u64) -> Result<(), FailureCause>;

    /// Whether the socket waits until it is writable: for a handshake, or to send the rest of a
    /// message.
    fn wants_room(&self) -> bool {
        false
    }
    /// Sends the rest of what [`PoolTransport::send`] has begun.
    fn flush(&mut self, _token: Token) -> Result<(), FailureCause> {
        Ok(())
    }
    /// Whether the socket has named its session to the endpoint.
    fn is_named(&self) -> bool {
        true
    }
    /// Prepares the socket for long requests.
    fn expect_load(&self) {}
}

/// How a socket is opened.
#[derive(Debug, Clone, Copy)]
pub(super) struct Opening {
    pub(super) token: Token,
    pub(super) peer: SocketAddr,
    /// Number of its first message.
    pub(super) number: u64,
    /// It names the session at once.
    pub(super) names: bool,
    /// Its number at its destination, if the endpoint is to answer when it has accepted it; else 0.
    pub(super) asks: u64,
}

/// A message with an answer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Message {
    pub(super) token: Token,
    pub(super) header: Header,
    /// Bytes of the message, and of its answer, headers included.
    pub(super) length: u32,
    pub(super) answer: u32,
}

/// The state of a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SocketStage {
    /// Closed.
    Empty,
    Connecting,
    /// Open; the endpoint answers when it has accepted the connection.
    Opening,
    Idle,
    Beat,
    Request,
}

/// A socket and its state: some sixty bytes.
struct SocketSlot<T> {
    socket: Option<T>,
    stage: SocketStage,
    /// It replaces a connection that churn has closed.
    replaces: bool,
    destination: u16,
    port: u16,
    /// Number of its last message, below 2²⁴.
    message: u32,
    /// When the socket was begun, or its message was sent or due.
    since: u64,
    /// Its number at its destination, until the endpoint has answered that it has accepted it; 0 if
    /// it does not ask.
    asks: u64,
}

/// All sockets of a worker; each has a slot.
pub(super) struct Pool<T> {
    pub(super) poller: Poller,
    terms: Terms,
    /// Number of the first socket in the session.
    first_number: u64,
    /// A connection names the session after this time, ns; 0: at once.
    name_after: u64,
    /// The first slot that may not have named the session.
    next_name: usize,
    destinations: Vec<Destination>,
    next_destination: usize,
    all: Vec<SocketSlot<T>>,
    buffer: Box<[u8]>,
    /// Sockets that are begun, and neither open nor failed.
    pub(super) opening: u64,
    /// Messages that wait for their answer.
    pub(super) unanswered: u64,
    load: Option<CapacityLoad>,
    connect_first: LatencyHistogram,
    connect_again: LatencyHistogram,
    beat: LatencyHistogram,
    load_latency: LatencyHistogram,
    /// The counts, without these histograms.
    pub(super) report: Report,
}

impl<T: PoolTransport> Pool<T> {
    pub(super) fn new(order: &Connect) -> Result<Self, String> {
        let poller = Poller::new().map_err(|error| format!("cannot wait: {error}"))?;
        let room = order.ports.iter().map(|port| port.count).sum::<u64>();
        Ok(Self {
            poller,
            terms: order.terms.clone(),
            first_number: order.first_number,
            name_after: u64::from(order.patience_s) * NS_PER_S / PATIENCES,
            next_name: 0,
            destinations: destinations::<T>(order),
            next_destination: 0,
            all: Vec::with_capacity(room as usize),
            buffer: vec![0; BUFFER].into(),
            opening: 0,
            unanswered: 0,
            load: None,
            connect_first: LatencyHistogram::new(),
            connect_again: LatencyHistogram::new(),
            beat: LatencyHistogram::new(),
            load_latency: LatencyHistogram::new(),
            report: Report::default(),
        })
    }

    /// Number of slots that are or were in use.
    pub(super) fn slots(&self) -> usize {
        self.all.len()
    }

    /// Whether one more connection can be begun now. Full destinations count as room: a connection
    /// that is begun then fails, and is counted.
    pub(super) fn has_room(&self) -> bool {
        let mut free = self.destinations.iter().filter(|one| one.has_room());
        let first = free.next();
        self.opening < T::MAX_OPENING
            && first.is_none_or(|first| first.is_open() || free.any(Destination::is_open))
    }

    /// Begins one more connection; `last` if none is to follow soon.
    ///
    /// # Errors
    /// Why it could not be begun; the failure is counted already.
    pub(super) fn begin(&mut self, last: bool) -> Result<(), FailureCause> {
        self.begin_in(None, last)
    }

    /// Closes the connection in the slot, if it is open and idle, and begins another.
    ///
    /// # Errors
    /// As for [`Pool::begin`].
    pub(super) fn replace(&mut self, slot: usize) -> Result<(), FailureCause> {
        if self.all[slot].stage != SocketStage::Idle {
            return Ok(());
        }
        self.close(slot);
        self.report.churn_closed += 1;
        self.begin_in(Some(slot), false)
    }

    /// Begins a connection in the slot, or in a new one.
    fn begin_in(&mut self, slot: Option<usize>, last: bool) -> Result<(), FailureCause> {
        let begun = self
            .open_slot(slot.is_some(), last)
            .inspect_err(|cause| self.report.status.failures.count(*cause))?;
        let slot = match slot {
            Some(slot) => {
                self.all[slot] = begun;
                slot
            }
            None => {
                self.all.push(begun);
                self.all.len() - 1
            }
        };
        self.opening += 1;
        let Some(socket) = &self.all[slot].socket else {
            return Ok(());
        };
        let waits = socket.wants_room();
        let interest = if waits { Interest::Either } else { Interest::Readable };
        if let Err(error) = self.poller.add_edge(socket, slot as u64, interest) {
            let cause = cause_of(error);
            self.end(slot, cause);
            return Err(cause);
        }
        if !waits {
            self.establish(slot);
            self.watch_for_room(slot);
        }
        Ok(())
    }

    /// A slot with a socket that is being opened from a free local port.
    fn open_slot(&mut self, replaces: bool, last: bool) -> Result<SocketSlot<T>, FailureCause> {
        let count = self.destinations.len();
        let index = (0..count)
            .map(|step| (self.next_destination + step) % count)
            .find(|index| {
                self.destinations[*index].is_open() && self.destinations[*index].has_room()
            })
            .ok_or(FailureCause::Crowded)?;
        self.next_destination = index + 1;
        let destination = &mut self.destinations[index];
        let (socket, port, since) = loop {
            let source = destination.next_source().ok_or(FailureCause::Ports)?;
            let since = now_ns();
            match T::open(source, destination.peer) {
                Ok(Some(socket)) => break (socket, source.port(), since),
                // Another program has the port, which stays marked as used.
                Ok(None) => {}
                Err(cause) => {
                    destination.leave(source.port());
                    return Err(cause);
                }
            }
        };
        Ok(SocketSlot {
            socket: Some(socket),
            stage: SocketStage::Connecting,
            replaces,
            // It fits: the numbers of the endpoint's ports and of the sources are bounded.
            destination: index as u16,
            port,
            message: 0,
            since,
            asks: destination.begin(last),
        })
    }

    /// Watches the socket in the slot for room to send, if it waits for that.
    fn watch_for_room(&mut self, slot: usize) {
        let socket = self.all[slot].socket.as_ref();
        let Some(socket) = socket.filter(|socket| socket.wants_room()) else {
            return;
        };
        let watched = self
            .poller
            .remove(socket)
            .and_then(|()| self.poller.add_edge(socket, slot as u64, Interest::Either));
        if let Err(error) = watched {
            self.end(slot, cause_of(error));
        }
    }

    /// Continues to open the socket in the slot.
    fn establish(&mut self, slot: usize) {
        let now = now_ns();
        let number = self.number(slot);
        let one = &mut self.all[slot];
        let opening = Opening {
            token: self.terms.token,
            peer: self.destinations[usize::from(one.destination)].peer,
            number,
            // A replacement names the session at once, so that it is told from what it replaces.
            names: one.replaces || self.name_after == 0,
            asks: one.asks,
        };
        let Some(socket) = &mut one.socket else {
            return;
        };
        match socket.establish(&opening) {
            Ok(true) => self.count_open(slot, now),
            Ok(false) => {}
            Err(cause) => self.end(slot, cause),
        }
    }

    fn count_open(&mut self, slot: usize, now: u64) {
        let one = &mut self.all[slot];
        let latency = now - one.since;
        let socket = one.socket.as_ref();
        let again = socket.map_or(0, |socket| socket.retransmissions(latency));
        match again {
            0 => self.connect_first.record_ns(latency),
            _ => self.connect_again.record_ns(latency),
        }
        let report = &mut self.report;
        report.asked_again += again;
        report.status.open += 1;
        report.most = report.most.max(report.status.open);
        if one.replaces {
            report.churn_opened += 1;
        } else {
            report.status.opened += 1;
            report.status.last_open_ns = now;
        }
        one.since = now;
        if one.asks > 0 {
            one.stage = SocketStage::Opening;
        } else {
            one.stage = SocketStage::Idle;
            self.opening -= 1;
        }
    }

    /// Number of the socket's present message. Its high bits are the socket's number in the
    /// session.
    fn number(&self, slot: usize) -> u64 {
        ((self.first_number + slot as u64) << 24) | u64::from(self.all[slot].message)
    }

    /// Sends a heartbeat on the connection in the slot, if it is open and idle.
    pub(super) fn beat(&mut self, slot: usize) {
        if self.all[slot].stage == SocketStage::Idle {
            self.report.beats_sent += 1;
            self.send(slot, SocketStage::Beat, now_ns());
        }
    }

    /// Sends a message on an idle socket; its latency counts from `since`.
    fn send(&mut self, slot: usize, stage: SocketStage, since: u64) {
        let (kind, length, answer) = match stage {
            SocketStage::Request => {
                (Kind::Request, self.terms.request_bytes, self.terms.response_bytes)
            }
            _ => (Kind::Heartbeat, HEADER_BYTES as u32, HEADER_BYTES as u32),
        };
        let one = &mut self.all[slot];
        one.message = (one.message + 1) % (1 << 24);
        (one.stage, one.since) = (stage, since);
        self.unanswered += 1;
        let number = self.number(slot);
        let message =
            Message { token: self.terms.token, header: Header { kind, number }, length, answer };
        let Some(socket) = &mut self.all[slot].socket else {
            return;
        };
        match socket.send(&message) {
            Ok(()) => self.watch_for_room(slot),
            Err(cause) => self.end(slot, cause),
        }
    }

    /// Handles a socket that is readable or writable.
    pub(super) fn on_ready(&mut self, ready: &Ready) {
        let slot = ready.number as usize;
        let Some(one) = self.all.get_mut(slot) else {
            return;
        };
        if one.stage == SocketStage::Connecting {
            return self.establish(slot);
        }
        if ready.writable
            && let Some(socket) = one.socket.as_mut().filter(|socket| socket.wants_room())
            && let Err(cause) = socket.flush(self.terms.token)
        {
            return self.end(slot, cause);
        }
        while ready.readable
            && let Some(socket) = &mut self.all[slot].socket
        {
            match socket.receive(&mut self.buffer, self.terms.token, ready.ended) {
                Ok(true) => self.complete(slot),
                Ok(false) => return,
                Err(cause) => return self.end(slot, cause),
            }
            if !ready.ended {
                return;
            }
        }
    }

    /// Handles the answer to a socket's message.
    fn complete(&mut self, slot: usize) {
        let one = &mut self.all[slot];
        let latency = now_ns().saturating_sub(one.since);
        match std::mem::replace(&mut one.stage, SocketStage::Idle) {
            SocketStage::Opening => {
                self.opening -= 1;
                self.destinations[usize::from(one.destination)].take(one.asks);
                one.asks = 0;
            }
            SocketStage::Beat => {
                self.unanswered -= 1;
                self.report.beats_answered += 1;
                self.beat.record_ns(latency);
            }
            SocketStage::Request => {
                self.unanswered -= 1;
                self.report.transactions += 1;
                self.load_latency.record_ns(latency);
                if let Some(load) = &mut self.load {
                    load.answered(slot as u32);
                }
            }
            SocketStage::Empty | SocketStage::Connecting | SocketStage::Idle => {}
        }
    }

    /// Counts and closes a connection that has failed or is lost.
    fn end(&mut self, slot: usize, cause: FailureCause) {
        match self.all[slot].stage {
            SocketStage::Empty => return,
            SocketStage::Connecting => self.report.status.failures.count(cause),
            _ => self.report.status.lost.count(cause),
        }
        self.close(slot);
    }

    fn close(&mut self, slot: usize) {
        let one = &mut self.all[slot];
        let stage = std::mem::replace(&mut one.stage, SocketStage::Empty);
        let begins = matches!(stage, SocketStage::Connecting | SocketStage::Opening);
        self.opening -= u64::from(begins);
        self.report.status.open -= u64::from(stage != SocketStage::Connecting);
        self.unanswered -= u64::from(matches!(stage, SocketStage::Beat | SocketStage::Request));
        if let (SocketStage::Request, Some(load)) = (stage, &mut self.load) {
            load.lost();
        }
        one.socket = None;
        let destination = &mut self.destinations[usize::from(one.destination)];
        destination.give_back(one.port);
        destination.take(one.asks);
    }

    /// Names the session on connections that have sent nothing for long; the result is when the
    /// next one is due. Slots are in the order in which connections were begun, so that the first
    /// one that has sent nothing is due first. One that is still connecting delays the others, but
    /// not for as long as the endpoint waits.
    pub(super) fn name(&mut self, now: u64) -> Option<u64> {
        for _ in 0..BATCH {
            let slot = self.next_name;
            let one = self.all.get_mut(slot)?;
            if one.stage == SocketStage::Connecting {
                return None;
            }
            let due = one.since + self.name_after;
            let silent = |socket: &&mut T| !socket.is_named() && !socket.wants_room();
            if let Some(socket) = one.socket.as_mut().filter(silent) {
                if now < due {
                    return Some(due);
                }
                if let Err(cause) = socket.flush(self.terms.token) {
                    self.end(slot, cause);
                } else if !socket.is_named() {
                    return Some(now + NAME_AGAIN);
                }
            }
            self.next_name += 1;
        }
        Some(now)
    }

    /// Sends messages again, or gives up, where an answer is overdue.
    pub(super) fn expire(&mut self, now: u64) {
        for slot in 0..self.all.len() {
            let one = &mut self.all[slot];
            if let (Some(socket), true) = (&mut one.socket, one.stage != SocketStage::Idle)
                && let Err(cause) = socket.wait(self.terms.token, one.since, now)
            {
                self.end(slot, cause);
            }
        }
    }

    /// Begins a load on this many of the open connections.
    pub(super) fn start_load(
        &mut self,
        connections: u64,
        seconds: f64,
        per_s: Option<f64>,
        random: &mut SplitMix64,
    ) {
        let open = (0..self.all.len() as u32)
            .filter(|slot| self.all[*slot as usize].stage == SocketStage::Idle)
            .collect();
        let load = CapacityLoad::new(open, connections, (now_ns(), seconds), per_s, random);
        self.report.load_connections = 0;
        for slot in load.members() {
            self.report.load_connections += 1;
            let socket = self.all[slot as usize].socket.as_ref();
            socket.into_iter().for_each(T::expect_load);
        }
        self.load = Some(load);
    }

    /// Sends the requests of the load that are due; the result is when the next one is.
    pub(super) fn drive_load(&mut self, now: u64) -> Option<u64> {
        for _ in 0..BATCH {
            let load = self.load.as_mut()?;
            match load.next(now) {
                Turn::Send { slot, due } => match self.all[slot as usize].stage {
                    SocketStage::Idle => self.send(slot as usize, SocketStage::Request, due),
                    // The connection is lost, or is being replaced.
                    _ => load.lost(),
                },
                Turn::Wait(until) => return Some(until),
                Turn::Over(ns) => {
                    self.report.load_ns += ns;
                    self.report.late += load.late;
                    self.load = None;
                }
            }
        }
        Some(now)
    }

    /// Ends the load; requests in flight are still answered.
    pub(super) fn stop_load(&mut self) {
        if let Some(load) = &mut self.load {
            load.stop(now_ns());
        }
    }

    /// Whether a load is in progress.
    pub(super) fn is_loading(&self) -> bool {
        self.load.is_some()
    }

    /// All counts and histograms.
    pub(super) fn report(&self) -> Report {
        Report {
            connect_first: self.connect_first.buckets(),
            connect_again: self.connect_again.buckets(),
            beat: self.beat.buckets(),
            load: self.load_latency.buckets(),
            ..self.report.clone()
        }
    }
}

/// Each port of the endpoint, reached from each address of this host. Two workers may have the same
/// port of the endpoint, and UDP lets both use the same local port for it, although only one gets
/// the answers. So each begins with the local port after the last one of the worker before it.
fn destinations<T: PoolTransport>(order: &Connect) -> Vec<Destination> {
    let shares = order.sources.len().max(1) as u64;
    let window = T::window(u64::from(order.backlog) / shares);
    let mut first = order.first_number;
    let mut all = Vec::new();
    for port in &order.ports {
        let start = start_of(first, order.port_range);
        first += port.count;
        let mut peer = order.peer;
        peer.set_port(port.port);
        let room = port.count.div_ceil(shares);
        let sources = order.sources.iter();
        all.extend(sources.map(|source| {
            Destination::new((*source, peer), room, order.port_range, start, window)
        }));
    }
    all
}

/// The place in the range of local ports at which the sockets from number `first` on begin. A port
/// of the endpoint takes 20,000 of them. If the range is much larger, workers begin further apart,
/// to make up for ports that other programs have.
fn start_of(first: u64, (low, high): (u16, u16)) -> u64 {
    let size = u64::from(high.saturating_sub(low)) + 1;
    if size * 5 >= MAX_AT_PORT * 7 { first % MAX_AT_PORT * 7 / 5 } else { first }
}

pub(super) const NS_PER_S: u64 = 1_000_000_000;
/// A connection names the session after this part of the time that it has.
const PATIENCES: u64 = 3;
/// Time until the next try if the kernel took nothing, ns.
const NAME_AGAIN: u64 = 10_000_000;
/// Bytes of one read.
const BUFFER: usize = 16 << 10;
/// Most requests or names that are sent before events have their turn.
const BATCH: usize = 64;

#[cfg(test)]
mod tests {
    use super::super::socket::{PLAIN, Tcp, Udp};
    use super::*;
    use linerate_core::capacity::HoldPort;
    use linerate_core::capacity::wire::{DATAGRAM_BYTES, Datagram, opening};
    use linerate_sys::poll::wait_readable;
    use linerate_sys::socket::{ListenOptions, Mptcp, listen};
    use linerate_testkit::uninterrupted;
    use std::io::{ErrorKind, Read};
    use std::net::{TcpListener, TcpStream, UdpSocket};
    use std::time::Duration;

    const TOKEN: Token = Token([7; 16]);

    /// A pool with room for four connections to a listener.
    fn pool(patience_s: u32) -> (Pool<Tcp>, TcpListener) {
        let options = ListenOptions { backlog: 64, mptcp: Mptcp::Off };
        let listener =
            listen("127.0.0.1:0".parse().expect("an address"), options).expect("loopback is there");
        let peer = listener.local_addr().expect("it has one");
        let pool = Pool::new(&order(peer, patience_s)).expect("nothing is lacking");
        (pool, listener)
    }

    fn order(peer: SocketAddr, patience_s: u32) -> Connect {
        Connect {
            terms: Terms { token: TOKEN, request_bytes: 8, response_bytes: 8, descriptors: None },
            peer,
            ports: vec![HoldPort { port: peer.port(), count: 4 }],
            sources: vec!["127.0.0.1:0".parse().expect("an address")],
            port_range: (33_000, 60_000),
            backlog: 1024,
            patience_s,
            first_number: 0,
            seed: 7,
        }
    }

    /// Opens one more connection; the result is its other end.
    fn open_one(pool: &mut Pool<Tcp>, listener: &TcpListener, last: bool) -> TcpStream {
        let open = pool.report.status.open + 1;
        pool.begin(last).expect("there is room");
        let (stream, _) = listener.accept().expect("it is on its way");
        wait_for(pool, open);
        stream
    }

    fn wait_for(pool: &mut Pool<Tcp>, open: u64) {
        while pool.report.status.open < open {
            turn(pool);
        }
    }

    fn turn<T: PoolTransport>(pool: &mut Pool<T>) {
        let mut found = Vec::new();
        let patience = Duration::from_millis(10);
        pool.poller.wait_into(patience, &mut found).expect("epoll");
        found.iter().for_each(|ready| pool.on_ready(ready));
    }

    /// The bytes that were sent so far, of which there must be `length`.
    fn sent(mut stream: &TcpStream, length: usize) -> Vec<u8> {
        let patience = Some(Duration::from_secs(60));
        stream.set_read_timeout(patience).expect("a socket");
        let mut bytes = vec![0; length];
        stream.read_exact(&mut bytes).expect("so much was sent");
        stream.set_nonblocking(true).expect("a socket");
        let more = stream.read(&mut [0]).map_err(|error| error.kind());
        assert_eq!(more, Err(ErrorKind::WouldBlock));
        stream.set_nonblocking(false).expect("a socket");
        bytes
    }

    #[test]
    fn a_connection_names_the_session_once_and_when_its_time_has_come() {
        let (mut pool, listener) = pool(90);
        let first = open_one(&mut pool, &listener, false);
        let second = open_one(&mut pool, &listener, false);
        assert_eq!(sent(&first, 0), b"");
        let due = pool.name(now_ns()).expect("later");
        assert_eq!(due, pool.all[0].since + 30 * NS_PER_S);
        assert_eq!(pool.name(due), Some(pool.all[1].since + 30 * NS_PER_S));
        assert_eq!(sent(&first, 24), opening(TOKEN, PLAIN));
        assert_eq!(sent(&second, 0), b"");
        assert_eq!(pool.name(due + NS_PER_S), None, "that was the last");
        pool.beat(0);
        assert_eq!(sent(&first, 8)[0], Kind::Heartbeat as u8);
    }

    #[test]
    fn the_first_message_of_a_connection_names_the_session() {
        let (mut pool, listener) = pool(90);
        let stream = open_one(&mut pool, &listener, false);
        pool.beat(0);
        let bytes = sent(&stream, 32);
        assert_eq!(bytes[..24], opening(TOKEN, PLAIN));
        assert_eq!(bytes[24], Kind::Heartbeat as u8);
        assert_eq!(pool.name(now_ns() + 100 * NS_PER_S), None);
        assert_eq!(sent(&stream, 0), b"");
    }

    #[test]
    fn some_connections_name_the_session_at_once() {
        // All, if the endpoint gives them no time; else those that ask, and replacements.
        let (mut hurried, listener) = pool(0);
        let stream = open_one(&mut hurried, &listener, false);
        assert_eq!(sent(&stream, 24), opening(TOKEN, PLAIN));
        let (mut pool, listener) = pool(90);
        let asks = open_one(&mut pool, &listener, true);
        assert_eq!(sent(&asks, 24)[16], Kind::OpenAnswered as u8);
        let _idle = open_one(&mut pool, &listener, false);
        pool.replace(1).unwrap();
        let (replaces, _) = listener.accept().unwrap();
        wait_for(&mut pool, 2);
        assert_eq!(sent(&replaces, 24), opening(TOKEN, PLAIN));
    }

    #[test]
    fn a_lost_datagram_is_sent_again_and_counts_as_retransmitted() {
        let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
        peer.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let mut pool: Pool<Udp> = Pool::new(&order(peer.local_addr().unwrap(), 90)).unwrap();
        pool.begin(true).unwrap();
        let asked = || {
            let mut bytes = [0; DATAGRAM_BYTES];
            let (n, from) = uninterrupted(|| peer.recv_from(&mut bytes)).unwrap();
            (Datagram::decode(&bytes[..n]).unwrap(), from)
        };
        let (first, _) = asked();
        pool.expire(now_ns() + NS_PER_S);
        let (again, from) = asked();
        assert_eq!((first, again.cookie), (again, 0));
        let answer = |datagram: Datagram| peer.send_to(&datagram.encode(), from).unwrap();
        // The answers to both questions come.
        answer(Datagram { cookie: 9, ..again });
        answer(Datagram { cookie: 9, ..first });
        while !wait_readable(&peer, Duration::ZERO).unwrap() {
            turn(&mut pool);
        }
        let (proof, _) = asked();
        assert_eq!((proof.cookie, pool.report.status.open, pool.opening), (9, 0, 1));
        answer(proof);
        while pool.report.status.open == 0 {
            turn(&mut pool);
        }
        let report = pool.report();
        assert_eq!((report.asked_again, pool.opening), (1, 0));
        assert_eq!(report.connect_first.0, []);
        assert_eq!(report.connect_again.0.len(), 1);
    }
}
