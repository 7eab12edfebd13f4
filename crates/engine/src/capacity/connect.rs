//! The client's connections: opened, kept alive, loaded, replaced. Some sixty bytes for each.

use std::io::{ErrorKind, Read, Write};

use linerate_core::capacity::FailureCause;
use linerate_core::capacity::wire::{HEADER_BYTES, Header, Kind, OPENING_BYTES, opening};
use linerate_core::stats::LatencyHistogram;
use linerate_core::wire::Token;
use linerate_sys::poll::{Interest, Poller, Ready};
use linerate_sys::socket::{is_established, set_nodelay};
use linerate_sys::tcp_info::TcpInfo;

use super::connection::{Answer, Connection, Stage};
use super::driver::Pool;
use super::lane::Lane;
use super::load::{Load, Turn};
use super::message::{Connect, Report};
use super::outgoing::Outgoing;
use super::random::Random;
use super::tally::{Tally, cause_of};
use crate::clock::now_ns;
use crate::words;

/// All of a worker's connections.
pub(super) struct Connections {
    poller: Poller,
    token: Token,
    /// What a connection says before its first message, if it has not said who it is before.
    name: [u8; OPENING_BYTES],
    /// It has to say so after so long, ns; 0: at once.
    name_after: u64,
    /// The first slot that may not have said so.
    next_name: usize,
    request_bytes: u32,
    response_bytes: u32,
    lanes: Vec<Lane>,
    next_lane: usize,
    all: Vec<Connection>,
    buffer: Box<[u8]>,
    messages: u64,
    opening: u64,
    unanswered: u64,
    open: u64,
    opened: u64,
    last_open_ns: u64,
    failures: Tally,
    lost: Tally,
    load: Option<Load>,
    connect_first: LatencyHistogram,
    connect_again: LatencyHistogram,
    beat: LatencyHistogram,
    load_latency: LatencyHistogram,
    report: Report,
}

impl Connections {
    pub(super) fn new(order: &Connect) -> Result<Self, String> {
        let token = words::token(&order.terms.token).ok_or("a bad token")?;
        let poller = Poller::new().map_err(|error| format!("cannot wait: {error}"))?;
        let room = order.ports.iter().map(|port| port.count).sum::<u64>();
        let shares = order.sources.len().max(1) as u64;
        let mut random = Random::new(order.seed);
        let window = u64::from(order.backlog) / 2 / shares;
        let ends = order
            .ports
            .iter()
            .flat_map(|port| order.sources.iter().map(move |source| (port, source)));
        let lanes = ends.map(|(port, source)| {
            let mut peer = order.peer;
            peer.set_port(port.port);
            let start = random.below(1 << 16);
            let room = port.count.div_ceil(shares);
            let window = window.min(WINDOW);
            Lane::new((*source, peer), room, order.port_range, start, window)
        });
        Ok(Self {
            poller,
            token: Token(token),
            name: opening(Token(token), PLAIN),
            name_after: u64::from(order.patience_s) * NS_PER_S / PATIENCES,
            next_name: 0,
            request_bytes: order.terms.request_bytes,
            response_bytes: order.terms.response_bytes,
            lanes: lanes.collect(),
            next_lane: 0,
            all: Vec::with_capacity(room as usize),
            buffer: vec![0; BUFFER].into(),
            messages: 0,
            opening: 0,
            unanswered: 0,
            open: 0,
            opened: 0,
            last_open_ns: 0,
            failures: Tally::default(),
            lost: Tally::default(),
            load: None,
            connect_first: LatencyHistogram::new(),
            connect_again: LatencyHistogram::new(),
            beat: LatencyHistogram::new(),
            load_latency: LatencyHistogram::new(),
            report: Report::default(),
        })
    }

    /// The next lane that takes one more.
    fn choose_lane(&mut self) -> Option<usize> {
        let count = self.lanes.len();
        let lane = (0..count)
            .map(|step| (self.next_lane + step) % count)
            .find(|lane| self.lanes[*lane].is_open() && self.lanes[*lane].has_room())?;
        self.next_lane = lane + 1;
        Some(lane)
    }

    /// Begins a connection in the slot, or in a new one.
    fn begin_in(&mut self, slot: Option<usize>, last: bool) -> Result<(), FailureCause> {
        let begun = match self.choose_lane() {
            Some(lane) => Connection::begin(&mut self.lanes[lane], lane, slot.is_some(), last),
            None => Err(FailureCause::Crowded),
        };
        let (connection, connected) = match begun {
            Ok(begun) => begun,
            Err(cause) => {
                self.failures.count(cause);
                return Err(cause);
            }
        };
        let slot = match slot {
            Some(slot) => {
                self.all[slot] = connection;
                slot
            }
            None => {
                self.all.push(connection);
                self.all.len() - 1
            }
        };
        self.opening += 1;
        self.watch(slot, connected)
    }

    fn watch(&mut self, slot: usize, connected: bool) -> Result<(), FailureCause> {
        let interest = if connected {
            Interest::Readable
        } else {
            Interest::Either
        };
        let Some(stream) = &self.all[slot].stream else {
            return Ok(());
        };
        if let Err(error) = self.poller.add_edge(stream, slot as u64, interest) {
            let cause = cause_of(&error);
            self.end(slot, cause);
            return Err(cause);
        }
        if connected {
            self.establish(slot);
            if self.all[slot].stage == Stage::Connecting {
                self.watch_both(slot);
            }
        }
        Ok(())
    }

    /// For room to send, too.
    fn watch_both(&mut self, slot: usize) {
        let Some(stream) = &self.all[slot].stream else {
            return;
        };
        let watched = self
            .poller
            .remove(stream)
            .and_then(|()| self.poller.add_edge(stream, slot as u64, Interest::Either));
        if let Err(error) = watched {
            self.end(slot, cause_of(&error));
        }
    }

    /// An attempt that went on: whether it is over, and how.
    fn look_at_attempt(&mut self, slot: usize) {
        let connection = &self.all[slot];
        let Some(stream) = &connection.stream else {
            return;
        };
        match is_established(stream, self.lanes[usize::from(connection.lane)].peer) {
            Ok(true) => self.establish(slot),
            Ok(false) => {}
            Err(error) => self.end(slot, cause_of(&error)),
        }
    }

    /// The handshake is over. Where there is no room even for the first bytes, it is left as it is.
    fn establish(&mut self, slot: usize) {
        let now = now_ns();
        let connection = &mut self.all[slot];
        let Some(mut stream) = connection.stream.as_ref() else {
            return;
        };
        let asked = (connection.number > 0).then_some(Header {
            kind: Kind::OpenAnswered,
            number: connection.number,
        });
        // One that replaces another is told from it at once.
        if asked.is_some() || connection.replaces || self.name_after == 0 {
            let bytes = opening(self.token, asked.unwrap_or(PLAIN));
            match stream.write(&bytes) {
                Ok(n) if n == bytes.len() => connection.is_named = true,
                // A new connection has room for more than that.
                Ok(_) => return self.end(slot, FailureCause::Other),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) => return self.end(slot, cause_of(&error)),
            }
        }
        self.count_open(slot, now);
        let connection = &mut self.all[slot];
        connection.since = now;
        match asked {
            Some(header) => {
                connection.stage = Stage::Opening;
                connection.expect(Outgoing::sent(header), HEADER_BYTES as u32);
            }
            None => {
                connection.stage = Stage::Idle;
                self.opening -= 1;
            }
        }
    }

    fn count_open(&mut self, slot: usize, now: u64) {
        let connection = &self.all[slot];
        let latency = now - connection.since;
        let again = match &connection.stream {
            Some(stream) if latency > SYN_AGAIN => {
                TcpInfo::read(stream).map_or(0, |info| u64::from(info.total_retrans))
            }
            _ => 0,
        };
        match again {
            0 => self.connect_first.record_ns(latency),
            _ => self.connect_again.record_ns(latency),
        }
        self.report.asked_again += again;
        self.open += 1;
        self.report.most = self.report.most.max(self.open);
        if connection.replaces {
            self.report.churn_opened += 1
        } else {
            self.opened += 1;
            self.last_open_ns = now;
        }
    }

    /// Sends a message on an idle connection; its latency counts from `since`.
    fn send(&mut self, slot: usize, stage: Stage, since: u64) {
        let (kind, length, waits_for) = match stage {
            Stage::Request => (Kind::Request, self.request_bytes, self.response_bytes),
            _ => (Kind::Heartbeat, HEADER_BYTES as u32, HEADER_BYTES as u32),
        };
        self.messages += 1;
        let number = self.messages;
        let connection = &mut self.all[slot];
        connection.expect(Outgoing::new(Header { kind, number }, length), waits_for);
        (connection.stage, connection.since) = (stage, since);
        self.unanswered += 1;
        if let Err(error) = connection.push(&self.name) {
            return self.end(slot, cause_of(&error));
        }
        if !connection.out.is_sent() {
            self.watch_both(slot);
        }
    }

    /// Reads all that has come.
    fn read(&mut self, slot: usize, ended: bool) {
        loop {
            let Some(mut stream) = self.all[slot].stream.as_ref() else {
                return;
            };
            match stream.read(&mut self.buffer) {
                Ok(0) => return self.end(slot, FailureCause::Closed),
                Ok(n) => {
                    match self.all[slot].take(&self.buffer[..n]) {
                        Answer::Partial => {}
                        Answer::Whole => self.complete(slot),
                        Answer::None => return self.end(slot, FailureCause::Garbled),
                    }
                    if n < self.buffer.len() && !ended {
                        return;
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return self.end(slot, cause_of(&error)),
            }
        }
    }

    fn complete(&mut self, slot: usize) {
        let connection = &mut self.all[slot];
        let latency = now_ns().saturating_sub(connection.since);
        match std::mem::replace(&mut connection.stage, Stage::Idle) {
            Stage::Opening => {
                self.opening -= 1;
                self.lanes[usize::from(connection.lane)].take(connection.number);
                connection.number = 0;
            }
            Stage::Beat => {
                self.unanswered -= 1;
                self.report.beats_answered += 1;
                self.beat.record_ns(latency);
            }
            Stage::Request => {
                self.unanswered -= 1;
                self.report.transactions += 1;
                self.load_latency.record_ns(latency);
                if let Some(load) = &mut self.load {
                    load.answered(slot as u32);
                }
            }
            Stage::Empty | Stage::Connecting | Stage::Idle => {}
        }
    }

    /// A connection that failed, or that was open and is gone.
    fn end(&mut self, slot: usize, cause: FailureCause) {
        match self.all[slot].stage {
            Stage::Empty => return,
            Stage::Connecting => self.failures.count(cause),
            _ => self.lost.count(cause),
        }
        self.close(slot);
    }

    fn close(&mut self, slot: usize) {
        let connection = &mut self.all[slot];
        match std::mem::replace(&mut connection.stage, Stage::Empty) {
            Stage::Empty => return,
            Stage::Connecting => self.opening -= 1,
            Stage::Opening => {
                self.opening -= 1;
                self.open -= 1;
            }
            Stage::Idle => self.open -= 1,
            Stage::Beat => {
                self.open -= 1;
                self.unanswered -= 1;
            }
            Stage::Request => {
                self.open -= 1;
                self.unanswered -= 1;
                if let Some(load) = &mut self.load {
                    load.lost();
                }
            }
        }
        connection.stream = None;
        let lane = &mut self.lanes[usize::from(connection.lane)];
        lane.give_back(connection.port);
        lane.take(connection.number);
    }
}

impl Pool for Connections {
    const EXPIRE_EVERY: u64 = NS_PER_S;

    fn poller(&mut self) -> &mut Poller {
        &mut self.poller
    }

    fn slots(&self) -> usize {
        self.all.len()
    }

    fn has_room(&self) -> bool {
        // Full lanes count as room: what is begun then fails for want of it, and that is said.
        self.lanes
            .iter()
            .any(|lane| lane.is_open() && lane.has_room())
            || !self.lanes.iter().any(Lane::has_room)
    }

    fn begin(&mut self, last: bool) -> Result<(), FailureCause> {
        self.begin_in(None, last)
    }

    fn opening(&self) -> u64 {
        self.opening
    }

    fn replace(&mut self, slot: usize) -> Result<(), FailureCause> {
        if self.all[slot].stage != Stage::Idle {
            return Ok(());
        }
        self.close(slot);
        self.report.churn_closed += 1;
        self.begin_in(Some(slot), false)
    }

    fn beat(&mut self, slot: usize) {
        if self.all[slot].stage == Stage::Idle {
            self.report.beats_sent += 1;
            self.send(slot, Stage::Beat, now_ns());
        }
    }

    /// They are in the order in which they were begun, so that the first that has not said anything
    /// is due first. One that is still connecting holds the others up, but for less long than the
    /// endpoint waits.
    fn name(&mut self, now: u64) -> Option<u64> {
        for _ in 0..BATCH {
            let slot = self.next_name;
            let connection = self.all.get_mut(slot)?;
            if connection.stage == Stage::Connecting {
                return None;
            }
            let has_message = connection.stage == Stage::Empty || !connection.out.is_sent();
            if !connection.is_named && !has_message {
                let due = connection.since + self.name_after;
                if now < due {
                    return Some(due);
                }
                if let Err(error) = connection.push(&self.name) {
                    self.end(slot, cause_of(&error));
                } else if !connection.is_named {
                    return Some(now + NAME_AGAIN);
                }
            }
            self.next_name += 1;
        }
        Some(now)
    }

    fn unanswered(&self) -> u64 {
        self.unanswered
    }

    fn most_beats(&self) -> u64 {
        MAX_BEATS
    }

    fn on_ready(&mut self, ready: &Ready) {
        let slot = ready.number as usize;
        let Some(connection) = self.all.get_mut(slot) else {
            return;
        };
        if connection.stage == Stage::Connecting {
            if ready.writable {
                self.look_at_attempt(slot);
            }
            return;
        }
        if ready.writable
            && !connection.out.is_sent()
            && let Err(error) = connection.push(&self.name)
        {
            return self.end(slot, cause_of(&error));
        }
        if ready.readable {
            self.read(slot, ready.ended);
        }
    }

    fn expire(&mut self, now: u64) {
        for slot in 0..self.all.len() {
            let connection = &self.all[slot];
            let waits = !matches!(connection.stage, Stage::Empty | Stage::Idle);
            if waits && now.saturating_sub(connection.since) > PATIENCE {
                self.end(slot, FailureCause::TimedOut);
            }
        }
    }

    fn start_load(
        &mut self,
        connections: u64,
        seconds: f64,
        per_s: Option<f64>,
        random: &mut Random,
    ) {
        let open = (0..self.all.len() as u32)
            .filter(|slot| self.all[*slot as usize].stage == Stage::Idle)
            .collect();
        let load = Load::new(open, connections, (now_ns(), seconds), per_s, random);
        let mut count = 0;
        for slot in load.members() {
            count += 1;
            if let Some(stream) = &self.all[slot as usize].stream {
                // Without it long requests may wait for an acknowledgement, which the latency
                // shows.
                let _ = set_nodelay(stream, true);
            }
        }
        self.report.load_connections = count;
        self.load = Some(load);
    }

    fn drive_load(&mut self, now: u64) -> Option<u64> {
        for _ in 0..BATCH {
            let load = self.load.as_mut()?;
            match load.next(now) {
                Turn::Send { slot, due } => match self.all[slot as usize].stage {
                    Stage::Idle => self.send(slot as usize, Stage::Request, due),
                    // Gone since, or about to be replaced.
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

    fn stop_load(&mut self) {
        if let Some(load) = &mut self.load {
            load.stop(now_ns());
        }
    }

    fn is_loading(&self) -> bool {
        self.load.is_some()
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
            load: self.load_latency.buckets(),
            ..self.report.clone()
        }
    }
}

/// What names the session and asks for nothing.
const PLAIN: Header = Header {
    kind: Kind::Open,
    number: 0,
};
const NS_PER_S: u64 = 1_000_000_000;
/// A connection has said who it is by this part of the time that it has.
const PATIENCES: u64 = 3;
/// When the kernel took nothing, ns.
const NAME_AGAIN: u64 = 10_000_000;
/// Bytes that are read at once.
const BUFFER: usize = 16 << 10;
const MAX_BEATS: u64 = 512;
/// Requests begun before events have their turn.
const BATCH: usize = 64;
/// Most connections begun and not taken on a lane, if the backlog is long enough for twice as many.
const WINDOW: u64 = 1024;
/// A SYN is retransmitted after 1 s (RFC 6298, 2.1): what took less than half of it was the first.
const SYN_AGAIN: u64 = 500_000_000;
/// For a handshake (three SYNs: 1 s, 3 s, 7 s) and for an answer, ns.
const PATIENCE: u64 = 10_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capacity::message::Terms;
    use linerate_core::capacity::HoldPort;
    use linerate_sys::socket::{ListenOptions, Mptcp, listen};
    use std::net::{TcpListener, TcpStream};
    use std::time::Duration;

    const TOKEN: Token = Token([7; 16]);

    /// To a listener, with room for four.
    fn pool(patience_s: u32) -> (Connections, TcpListener) {
        let options = ListenOptions {
            backlog: 64,
            mptcp: Mptcp::Off,
        };
        let listener = listen("127.0.0.1:0".parse().expect("an address"), options);
        let listener = listener.expect("loopback is there");
        let peer = listener.local_addr().expect("it has one");
        let order = Connect {
            terms: Terms {
                token: words::hexadecimal(&TOKEN.0),
                request_bytes: 8,
                response_bytes: 8,
                descriptors: None,
            },
            peer,
            ports: vec![HoldPort {
                port: peer.port(),
                count: 4,
            }],
            sources: vec!["127.0.0.1:0".parse().expect("an address")],
            port_range: (20_000, 65_000),
            backlog: 1024,
            patience_s,
            first_number: 0,
            seed: now_ns(),
        };
        let pool = Connections::new(&order).expect("nothing is lacking");
        (pool, listener)
    }

    /// One more, established, and its other end.
    fn open_one(pool: &mut Connections, listener: &TcpListener, last: bool) -> TcpStream {
        let open = pool.open + 1;
        pool.begin(last).expect("there is room");
        let (stream, _) = listener.accept().expect("it is on its way");
        wait_for(pool, open);
        stream
    }

    fn wait_for(pool: &mut Connections, open: u64) {
        let mut found = Vec::new();
        while pool.open < open {
            let patience = Duration::from_millis(10);
            pool.poller.wait_into(patience, &mut found).expect("epoll");
            for ready in &found {
                pool.on_ready(ready);
            }
        }
    }

    /// All that has been sent so far: what is sent later comes later.
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
    fn it_says_who_it_is_when_its_time_has_come_and_once() {
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
    fn its_first_message_comes_with_its_name() {
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
    fn one_that_asks_one_that_replaces_and_all_of_an_endpoint_in_a_hurry_say_it_at_once() {
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
}
