//! The client's UDP sockets: each connected to a socket of the endpoint, counted when it has
//! answered its challenge.

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, UdpSocket};

use linerate_core::capacity::wire::{DATAGRAM_BYTES, Datagram, Header, Kind};
use linerate_core::capacity::{FailureCause, MAX_AT_PORT};
use linerate_core::stats::LatencyHistogram;
use linerate_core::wire::Token;
use linerate_sys::poll::{Interest, Poller, Ready};
use linerate_sys::socket::udp_socket;

use super::driver::Pool;
use super::lane::Ports;
use super::message::{Connect, Report};
use super::random::Random;
use super::tally::{Tally, cause_of};
use crate::clock::now_ns;
use crate::words;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Empty,
    /// Asked, without the cookie.
    Asking,
    /// The first datagram with the cookie is out.
    Answering,
    Idle,
    Beat,
}

#[derive(Debug)]
struct Socket {
    socket: Option<UdpSocket>,
    stage: Stage,
    tries: u8,
    /// Of its messages, below 2²⁴.
    beat: u32,
    cookie: u64,
    /// When its present message was sent first, and last.
    since: u64,
    sent: u64,
}

/// From one address to one socket of the endpoint.
struct Lane {
    peer: SocketAddr,
    source: SocketAddr,
    room: u64,
    ports: Ports,
}

/// All of a worker's UDP sockets.
pub(super) struct Sockets {
    poller: Poller,
    token: Token,
    first_number: u64,
    lanes: Vec<Lane>,
    next_lane: usize,
    all: Vec<Socket>,
    opening: u64,
    unanswered: u64,
    open: u64,
    opened: u64,
    last_open_ns: u64,
    failures: Tally,
    lost: Tally,
    connect_first: LatencyHistogram,
    connect_again: LatencyHistogram,
    beat: LatencyHistogram,
    report: Report,
}

impl Sockets {
    pub(super) fn new(order: &Connect) -> Result<Self, String> {
        let token = words::token(&order.terms.token).ok_or("a bad token")?;
        let poller = Poller::new().map_err(|error| format!("cannot wait: {error}"))?;
        let room = order.ports.iter().map(|port| port.count).sum::<u64>();
        let shares = order.sources.len().max(1) as u64;
        // Two workers may share a port of the endpoint. Unlike TCP, UDP lets both have the same
        // local port for it, and then only one of them is answered: so each begins where the one
        // before it in the session's count has ended.
        let mut first = order.first_number;
        let starts: Vec<u64> = order
            .ports
            .iter()
            .map(|port| {
                let start = start_of(first, order.port_range);
                first += port.count;
                start
            })
            .collect();
        let ends = order
            .ports
            .iter()
            .zip(starts)
            .flat_map(|(port, start)| order.sources.iter().map(move |s| (port, start, s)));
        let lanes = ends.map(|(port, start, source)| {
            let mut peer = order.peer;
            peer.set_port(port.port);
            Lane {
                peer,
                source: *source,
                room: port.count.div_ceil(shares),
                ports: Ports::new(order.port_range, start),
            }
        });
        Ok(Self {
            poller,
            token: Token(token),
            first_number: order.first_number,
            lanes: lanes.collect(),
            next_lane: 0,
            all: Vec::with_capacity(room as usize),
            opening: 0,
            unanswered: 0,
            open: 0,
            opened: 0,
            last_open_ns: 0,
            failures: Tally::default(),
            lost: Tally::default(),
            connect_first: LatencyHistogram::new(),
            connect_again: LatencyHistogram::new(),
            beat: LatencyHistogram::new(),
            report: Report::default(),
        })
    }

    fn open_one(&mut self) -> Result<UdpSocket, FailureCause> {
        let count = self.lanes.len();
        let lane = (0..count)
            .map(|step| (self.next_lane + step) % count)
            .find(|lane| self.lanes[*lane].room > 0)
            .ok_or(FailureCause::Crowded)?;
        self.next_lane = lane + 1;
        let lane = &mut self.lanes[lane];
        loop {
            let port = lane.ports.take().ok_or(FailureCause::Ports)?;
            let mut source = lane.source;
            source.set_port(port);
            // Shared: sockets to other ports of the endpoint may have the same one here.
            match udp_socket(source, Some(lane.peer), true) {
                // Another program's: it stays marked as used.
                Err(error) if error.kind() == ErrorKind::AddrInUse => {}
                Err(error) if error.kind() == ErrorKind::AddrNotAvailable => {
                    return Err(FailureCause::Other);
                }
                Err(error) => return Err(cause_of(&error)),
                Ok(socket) => {
                    lane.room -= 1;
                    socket
                        .set_nonblocking(true)
                        .map_err(|error| cause_of(&error))?;
                    return Ok(socket);
                }
            }
        }
    }

    fn begin_one(&mut self) -> Result<(), FailureCause> {
        let since = now_ns();
        let socket = self.open_one()?;
        let slot = self.all.len();
        self.poller
            .add_edge(&socket, slot as u64, Interest::Readable)
            .map_err(|error| cause_of(&error))?;
        self.all.push(Socket {
            socket: Some(socket),
            stage: Stage::Asking,
            tries: 0,
            beat: 0,
            cookie: 0,
            since,
            sent: since,
        });
        self.opening += 1;
        self.send(slot);
        Ok(())
    }

    /// Sends the socket's present message, for the first time or again.
    fn send(&mut self, slot: usize) {
        let socket = &mut self.all[slot];
        let number = ((self.first_number + slot as u64) << 24) | u64::from(socket.beat);
        let datagram = Datagram {
            token: self.token,
            cookie: socket.cookie,
            header: Header {
                kind: Kind::Heartbeat,
                number,
            },
        };
        socket.sent = now_ns();
        let Some(udp) = &socket.socket else {
            return;
        };
        match udp.send(&datagram.encode()) {
            Ok(_) => {}
            // It is retransmitted in a while.
            Err(error) if is_passing(&error) => {}
            Err(error) => self.end(slot, cause_of(&error)),
        }
    }

    fn begin_message(&mut self, slot: usize, stage: Stage) {
        let socket = &mut self.all[slot];
        socket.beat = (socket.beat + 1) % (1 << 24);
        (socket.stage, socket.tries) = (stage, 0);
    }

    fn take(&mut self, slot: usize, bytes: &[u8]) {
        let expected = ((self.first_number + slot as u64) << 24) | u64::from(self.all[slot].beat);
        let datagram = Datagram::decode(bytes);
        // What answers an earlier message comes late; what answers none is somebody else's.
        let Some(datagram) =
            datagram.filter(|d| d.token == self.token && d.header.number == expected)
        else {
            return;
        };
        let now = now_ns();
        let socket = &mut self.all[slot];
        match socket.stage {
            Stage::Asking => {
                socket.cookie = datagram.cookie;
                self.report.asked_again += u64::from(socket.tries);
                self.begin_message(slot, Stage::Answering);
                self.send(slot);
            }
            Stage::Answering => {
                let latency = now - socket.since;
                match socket.tries {
                    0 => self.connect_first.record_ns(latency),
                    _ => self.connect_again.record_ns(latency),
                }
                self.report.asked_again += u64::from(socket.tries);
                socket.stage = Stage::Idle;
                self.opening -= 1;
                self.opened += 1;
                self.last_open_ns = now;
                self.open += 1;
                self.report.most = self.report.most.max(self.open);
            }
            Stage::Beat => {
                self.beat.record_ns(now - socket.since);
                socket.stage = Stage::Idle;
                self.unanswered -= 1;
                self.report.beats_answered += 1;
            }
            Stage::Empty | Stage::Idle => {}
        }
    }

    fn end(&mut self, slot: usize, cause: FailureCause) {
        let socket = &mut self.all[slot];
        match std::mem::replace(&mut socket.stage, Stage::Empty) {
            Stage::Empty => return,
            Stage::Asking | Stage::Answering => {
                self.opening -= 1;
                self.failures.count(cause);
            }
            stage => {
                self.unanswered -= u64::from(stage == Stage::Beat);
                self.open -= 1;
                self.lost.count(cause);
            }
        }
        socket.socket = None;
    }
}

impl Pool for Sockets {
    const EXPIRE_EVERY: u64 = AGAIN / 2;

    fn poller(&mut self) -> &mut Poller {
        &mut self.poller
    }

    fn slots(&self) -> usize {
        self.all.len()
    }

    fn has_room(&self) -> bool {
        self.opening < WINDOW
    }

    fn begin(&mut self, _last: bool) -> Result<(), FailureCause> {
        let begun = self.begin_one();
        if let Err(cause) = begun {
            self.failures.count(cause);
        }
        begun
    }

    fn opening(&self) -> u64 {
        self.opening
    }

    fn replace(&mut self, _slot: usize) -> Result<(), FailureCause> {
        // A UDP socket has no connection to open anew.
        Ok(())
    }

    fn beat(&mut self, slot: usize) {
        if self.all[slot].stage == Stage::Idle {
            self.report.beats_sent += 1;
            self.unanswered += 1;
            self.begin_message(slot, Stage::Beat);
            self.all[slot].since = now_ns();
            self.send(slot);
        }
    }

    fn name(&mut self, _now: u64) -> Option<u64> {
        // Each datagram names the session.
        None
    }

    fn unanswered(&self) -> u64 {
        self.unanswered
    }

    fn most_beats(&self) -> u64 {
        WINDOW
    }

    fn on_ready(&mut self, ready: &Ready) {
        let slot = ready.number as usize;
        // One more than a datagram has: a longer one is none.
        let mut bytes = [0; DATAGRAM_BYTES + 1];
        while let Some(socket) = self.all.get(slot).and_then(|one| one.socket.as_ref()) {
            match socket.recv(&mut bytes) {
                Ok(n) => self.take(slot, &bytes[..n]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) => return self.end(slot, cause_of(&error)),
            }
        }
    }

    /// A datagram may be lost: it is retransmitted, several times.
    fn expire(&mut self, now: u64) {
        for slot in 0..self.all.len() {
            let socket = &mut self.all[slot];
            let waits = !matches!(socket.stage, Stage::Empty | Stage::Idle);
            if !waits || now.saturating_sub(socket.sent) < AGAIN {
                continue;
            }
            if socket.tries >= MAX_TRIES {
                self.end(slot, FailureCause::TimedOut);
            } else {
                socket.tries += 1;
                self.send(slot);
            }
        }
    }

    fn start_load(&mut self, _: u64, _: f64, _: Option<f64>, _: &mut Random) {}

    fn drive_load(&mut self, _now: u64) -> Option<u64> {
        None
    }

    fn stop_load(&mut self) {}

    fn is_loading(&self) -> bool {
        false
    }

    fn open(&self) -> (u64, u64, u64) {
        (self.open, self.opened, self.last_open_ns)
    }

    fn tallies(&self) -> (&Tally, &Tally) {
        (&self.failures, &self.lost)
    }

    fn report(&self) -> Report {
        Report {
            connect_first: self.connect_first.buckets(),
            connect_again: self.connect_again.buckets(),
            beat: self.beat.buckets(),
            ..self.report.clone()
        }
    }
}

/// Where in the range of local ports the sockets from this number on begin. A port of the endpoint
/// takes 20,000 of them: where the range is larger, the rest is spread between workers, for ports
/// that other programs have.
fn start_of(first: u64, (low, high): (u16, u16)) -> u64 {
    let size = u64::from(high.saturating_sub(low)) + 1;
    if size * 5 >= MAX_AT_PORT * 7 {
        first % MAX_AT_PORT * 7 / 5
    } else {
        first
    }
}

fn is_passing(error: &io::Error) -> bool {
    let kind = error.kind();
    let full = error.raw_os_error() == Some(linerate_sys::errno::ENOBUFS);
    full || kind == ErrorKind::WouldBlock || kind == ErrorKind::Interrupted
}

/// In flight at once: a socket's usual buffer takes some 250 datagrams of this size.
const WINDOW: u64 = 128;
/// After so long without an answer, ns, it is retransmitted, so often.
const AGAIN: u64 = 500_000_000;
const MAX_TRIES: u8 = 8;
