//! The client's connections: opened, kept alive, loaded, replaced. Some sixty bytes for each.

use std::io::{ErrorKind, Read, Write};

use linerate_core::capacity::FailureCause;
use linerate_core::capacity::wire::{HEADER_BYTES, Header, Kind, opening};
use linerate_core::stats::LatencyHistogram;
use linerate_core::wire::Token;
use linerate_sys::poll::{Interest, Poller, Ready};
use linerate_sys::socket::set_nodelay;
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
        let interest = match connected {
            true => Interest::Readable,
            false => Interest::Either,
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
        }
        Ok(())
    }

    /// The handshake is over, or the attempt has failed: sending tells.
    fn establish(&mut self, slot: usize) {
        let now = now_ns();
        let connection = &mut self.all[slot];
        let Some(mut stream) = connection.stream.as_ref() else {
            return;
        };
        let kind = match connection.number {
            0 => Kind::Open,
            _ => Kind::OpenAnswered,
        };
        let header = Header {
            kind,
            number: connection.number,
        };
        let bytes = opening(self.token, header);
        match stream.write(&bytes) {
            Ok(n) if n == bytes.len() => {}
            // A new connection has room for more than that.
            Ok(_) => return self.end(slot, FailureCause::Other),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return,
            Err(error) => return self.end(slot, cause_of(&error)),
        }
        let latency = now - connection.since;
        let again = match latency > SYN_AGAIN {
            true => TcpInfo::read(stream).map_or(0, |info| u64::from(info.total_retrans)),
            false => 0,
        };
        match again {
            0 => self.connect_first.record_ns(latency),
            _ => self.connect_again.record_ns(latency),
        }
        self.report.asked_again += again;
        self.open += 1;
        self.report.most = self.report.most.max(self.open);
        match connection.replaces {
            true => self.report.churn_opened += 1,
            false => {
                self.opened += 1;
                self.last_open_ns = now;
            }
        }
        connection.since = now;
        match kind {
            Kind::OpenAnswered => {
                connection.stage = Stage::Opening;
                connection.expect(Outgoing::sent(header), HEADER_BYTES as u32);
            }
            _ => {
                connection.stage = Stage::Idle;
                self.opening -= 1;
            }
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
        let Some(stream) = &connection.stream else {
            return;
        };
        if let Err(error) = connection.out.push(stream) {
            return self.end(slot, cause_of(&error));
        }
        if !connection.out.is_sent() {
            // It was watched for what comes alone.
            let watched = self
                .poller
                .remove(stream)
                .and_then(|()| self.poller.add_edge(stream, slot as u64, Interest::Either));
            if let Err(error) = watched {
                self.end(slot, cause_of(&error));
            }
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

    fn unanswered(&self) -> u64 {
        self.unanswered
    }

    fn most_beats(&self) -> u64 {
        MOST_BEATS
    }

    fn on_ready(&mut self, ready: &Ready) {
        let slot = ready.number as usize;
        let Some(connection) = self.all.get_mut(slot) else {
            return;
        };
        if connection.stage == Stage::Connecting {
            if ready.writable {
                self.establish(slot);
            }
            return;
        }
        if ready.writable
            && !connection.out.is_sent()
            && let Some(stream) = &connection.stream
            && let Err(error) = connection.out.push(stream)
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
                // Without it long requests may wait for an acknowledgement, which the latency shows.
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

/// Bytes that are read at once.
const BUFFER: usize = 16 << 10;
const MOST_BEATS: u64 = 512;
/// Requests begun before events have their turn.
const BATCH: usize = 64;
/// Most connections begun and not taken on a lane, if the backlog is long enough for twice as many.
const WINDOW: u64 = 1024;
/// A SYN is sent again after 1 s (RFC 6298, 2.1): what took less than half of it was the first.
const SYN_AGAIN: u64 = 500_000_000;
/// For a handshake (three SYNs: 1 s, 3 s, 7 s) and for an answer, ns.
const PATIENCE: u64 = 10_000_000_000;
