//! The exchanges of one connection: a request, its response, and the time before it.

use std::net::SocketAddr;

use linerate_units::Nanos;

use super::protocol::{Content, Tls, is_hello, is_preface, request_line, status};
use super::{
    CLIENT, Collector, ConnectFailure, ConnectionRequests, NO_ANSWER, Phases, RequestProtocol,
    SERVER, Spent, Timed, micros, seconds,
};

/// A segment with payload, or an acknowledgement, once both directions have been followed to it.
#[derive(Debug)]
pub(crate) struct Seen<'a> {
    /// The end that sent it.
    pub(crate) from: usize,
    pub(crate) at: Nanos,
    /// Number of its packet in the file, from 1.
    pub(crate) packet: u64,
    /// The first bytes of its payload.
    pub(crate) kept: &'a [u8],
    /// Numbers of its first byte and after its last.
    pub(crate) bytes: [u64; 2],
    /// It has bytes beyond all before.
    pub(crate) is_new: bool,
    /// It ends what was written (PSH).
    pub(crate) is_pushed: bool,
    /// It is made of whole segments, so that there was probably more to send.
    pub(crate) is_whole: bool,
    /// Segments in it that were sent again.
    pub(crate) again: u64,
    /// For each end: numbers after the highest byte, and of the first not acknowledged.
    pub(crate) edges: [[u64; 2]; 2],
    /// For each end: time with nothing outstanding, and with a closed window.
    pub(crate) held: [[Nanos; 2]; 2],
}

/// What the handshake has told so far.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Opening {
    /// Shortest times from the capture to each end and back.
    pub(crate) ways: [Option<Nanos>; 2],
    /// Times of the first SYN, and of its answer.
    pub(crate) syn: Option<Nanos>,
    pub(crate) answer: Option<Nanos>,
    /// Number of SYNs.
    pub(crate) syns: u64,
}

/// How a connection ended.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ending {
    /// Time of the last packet of the file.
    pub(crate) file: Nanos,
    /// Time of the last packet of the connection.
    pub(crate) last: Nanos,
    /// An end closed or reset it.
    pub(crate) is_over: bool,
    /// The server reset it.
    pub(crate) is_refused: bool,
    /// A packet of the server was captured.
    pub(crate) is_heard: bool,
    /// The client sent nothing but SYNs.
    pub(crate) is_opening: bool,
    /// The client acknowledged all that the server sent.
    pub(crate) is_received: bool,
}

/// The exchanges of a connection, in constant memory.
#[derive(Debug)]
pub(crate) struct Turns {
    ends: [SocketAddr; 2],
    /// How long the lookup of the server's name took.
    name: Option<Nanos>,
    protocol: Protocol,
    stage: Stage,
    now: Exchange,
    /// The one before, whose response is complete unless more of it comes.
    before: Option<Exchange>,
    /// Since when the client could have sent the next one.
    ready: Option<Nanos>,
    tls: Option<Handshake>,
    requests: ConnectionRequests,
}

/// Tells what the handshake and the acknowledgements so far do.
pub(crate) type Tells<'a> = &'a dyn Fn() -> Opening;

#[derive(Debug, Default)]
enum Protocol {
    #[default]
    Turns,
    Http1,
    Tls(Box<Tls>),
    Multiplexed,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Nothing was asked.
    #[default]
    Quiet,
    Asking,
    Answering,
}

/// A request and its response.
#[derive(Debug, Default, Clone)]
struct Exchange {
    packet: u64,
    /// First byte of the request.
    began: Nanos,
    /// Last time that a byte of it passed, for the first time or again.
    asked: Nanos,
    /// Numbers of its first byte and after its last.
    bytes: [u64; 2],
    /// The server acknowledged all of it.
    acked: Option<Nanos>,
    /// First byte of the response, and its number.
    answered: Option<Nanos>,
    response: u64,
    /// Last byte of it.
    ended: Nanos,
    /// The last segment ended a write of the program.
    is_pushed: bool,
    response_bytes: u64,
    line: Option<String>,
    status: Option<u16>,
    /// Pauses of the sender and closed windows of the reader, within request and response.
    held: [[Nanos; 2]; 2],
    /// Time, [`Seen::held`] and [`Seen::is_whole`] of the last new segment.
    last: (Nanos, [[Nanos; 2]; 2], bool),
    ready: Option<Nanos>,
    retransmitted: u64,
    is_overlapped: bool,
    /// What came first may have been tickets or settings.
    may_be_tickets: bool,
}

/// A TLS handshake, turn by turn.
#[derive(Debug, Clone, Copy)]
struct Handshake {
    began: Nanos,
    last: (usize, Nanos),
    /// Times in which each end computed.
    ends: [Nanos; 2],
    is_over: bool,
}

impl Turns {
    pub(crate) fn new(ends: [SocketAddr; 2], name: Option<Nanos>) -> Self {
        Self {
            ends,
            name,
            protocol: Protocol::Turns,
            stage: Stage::Quiet,
            now: Exchange::default(),
            before: None,
            ready: None,
            tls: None,
            requests: ConnectionRequests::default(),
        }
    }

    /// Whether an acknowledgement of that end tells anything now.
    pub(crate) fn waits_for(&self, from: usize) -> bool {
        self.stage == Stage::Asking && from == SERVER
    }

    pub(crate) fn handle(&mut self, seen: &Seen<'_>, opening: Tells<'_>, all: &mut Collector) {
        let acked = seen.edges[CLIENT][1];
        if self.waits_for(seen.from) && acked >= self.now.bytes[1] {
            self.now.acked.get_or_insert(seen.at);
        }
        if seen.bytes[0] == seen.bytes[1] || matches!(self.protocol, Protocol::Multiplexed) {
            return;
        }
        if !seen.is_new {
            return self.handle_again(seen);
        }
        if seen.from == CLIENT && is_hello(seen.kept) && self.tls.is_none() {
            // Also after CONNECT or STARTTLS: then what came before was exchanges of their own.
            self.close(opening, all);
            self.protocol = Protocol::Tls(Box::default());
        }
        let content = match &mut self.protocol {
            Protocol::Tls(tls) => tls.read(seen.from, seen.bytes[0], seen.bytes[1], seen.kept),
            _ => Content::Data,
        };
        if self.tls.is_none_or(|tls| !tls.is_over) && matches!(self.protocol, Protocol::Tls(_)) {
            self.shake(seen, content, opening);
        }
        match (content, seen.from) {
            (Content::Data, CLIENT) => self.ask(seen, opening, all),
            (Content::Data, _) => self.answer(seen, opening, all),
            _ => {}
        }
    }

    /// Bytes that were seen before, or overtaken. Those that the peer does not have move the end.
    fn handle_again(&mut self, seen: &Seen<'_>) {
        if seen.bytes[1] <= seen.edges[seen.from][1] {
            return;
        }
        match (self.stage, seen.from) {
            (Stage::Asking, CLIENT) => self.now.asked = seen.at,
            (Stage::Answering, SERVER) => self.now.ended = seen.at,
            _ => return,
        }
        self.now.retransmitted += seen.again;
    }

    /// A segment of the TLS handshake, or the first behind it.
    fn shake(&mut self, seen: &Seen<'_>, content: Content, opening: Tells<'_>) {
        let Protocol::Tls(tls) = &self.protocol else {
            return;
        };
        let began = Handshake {
            began: seen.at,
            last: (seen.from, seen.at),
            ends: [Nanos::ZERO; 2],
            is_over: false,
        };
        let shake = self.tls.get_or_insert(began);
        let ways = opening().ways;
        let way = |end: usize| ways[end].unwrap_or_default();
        shake.is_over = tls.is_done;
        // Before TLS 1.3 the first data comes behind the handshake.
        if content != Content::Data || tls.is_13 {
            let (from, at) = shake.last;
            if from != seen.from {
                let took = (seen.at - at) - way(seen.from);
                shake.ends[seen.from] = shake.ends[seen.from] + took;
            }
            shake.last = (seen.from, seen.at);
        }
        if shake.is_over {
            let (from, at) = shake.last;
            let back = if from == SERVER { way(CLIENT) } else { Nanos::ZERO };
            let arrived = at + back;
            self.ready = Some(arrived);
            self.requests.tls_us = Some(micros(arrived - shake.began));
            shake.last = (from, arrived);
        }
    }

    /// Data of the client.
    fn ask(&mut self, seen: &Seen<'_>, opening: Tells<'_>, all: &mut Collector) {
        let line = request_line(seen.kept);
        match self.stage {
            Stage::Asking => {
                // A second request line before the response: pipelining.
                self.now.is_overlapped |= line.is_some();
                self.now.asked = seen.at;
                self.now.acked = None;
                self.now.hold(seen);
            }
            Stage::Answering => {
                // The client had not received all of what was already sent.
                let [sent, received] = seen.edges[SERVER];
                let overlaps = received < sent;
                self.now.is_overlapped |= overlaps;
                let before = std::mem::take(&mut self.now);
                self.ready = Some(before.ended + opening().ways[CLIENT].unwrap_or_default());
                self.before = Some(before);
                self.begin(seen, line, opening, all);
                self.now.is_overlapped = overlaps;
            }
            Stage::Quiet => self.begin(seen, line, opening, all),
        }
        self.now.bytes[1] = seen.edges[CLIENT][0];
    }

    fn begin(
        &mut self,
        seen: &Seen<'_>,
        line: Option<String>,
        opening: Tells<'_>,
        all: &mut Collector,
    ) {
        if is_preface(seen.kept) {
            return self.leave(all);
        }
        if line.is_some() {
            self.protocol = Protocol::Http1;
        }
        let opened = || opening().opened().map(|(_, opened)| opened);
        self.stage = Stage::Asking;
        self.now = Exchange {
            packet: seen.packet,
            began: seen.at,
            asked: seen.at,
            bytes: seen.bytes,
            last: (seen.at, seen.held, seen.is_whole),
            ready: self.ready.or_else(opened),
            line,
            ..Exchange::default()
        };
    }

    /// The requests of this connection cannot be told apart.
    fn leave(&mut self, all: &mut Collector) {
        self.protocol = Protocol::Multiplexed;
        self.stage = Stage::Quiet;
        all.found.multiplexed_connections += 1;
    }

    /// Data of the server.
    fn answer(&mut self, seen: &Seen<'_>, opening: Tells<'_>, all: &mut Collector) {
        match self.stage {
            Stage::Quiet => self.greet(seen, opening),
            Stage::Asking => self.begin_answer(seen, opening, all),
            Stage::Answering => {
                let now = &mut self.now;
                // Tickets leave at once; the response is what comes after a pause.
                let is_late = seen.at - now.ended >= TICKETS_PAUSE;
                if now.may_be_tickets && is_late && now.response_bytes <= MAX_TICKETS {
                    now.answered = Some(seen.at);
                } else {
                    now.hold(seen);
                }
                now.may_be_tickets &= !is_late;
            }
        }
        if self.stage == Stage::Answering {
            self.now.ended = seen.at;
            self.now.is_pushed = seen.is_pushed;
            self.now.response_bytes = seen.edges[SERVER][0].saturating_sub(self.now.response);
            self.now.last = (seen.at, seen.held, seen.is_whole);
        }
    }

    /// The server speaks first, as those of mail and SSH do: its greeting answers the handshake.
    fn greet(&mut self, seen: &Seen<'_>, opening: Tells<'_>) {
        let is_first = self.requests.count == 0 && self.ready.is_none();
        let is_plain = matches!(self.protocol, Protocol::Turns);
        if let Some((_, opened)) = opening().opened().filter(|_| is_first && is_plain) {
            let acked = seen.edges[CLIENT][1];
            self.stage = Stage::Answering;
            self.now = Exchange {
                packet: seen.packet,
                began: opened,
                asked: opened,
                bytes: [acked; 2],
                line: Some("(greeting)".to_owned()),
                answered: Some(seen.at),
                response: seen.bytes[0],
                ready: Some(opened),
                ..Exchange::default()
            };
        }
    }

    fn begin_answer(&mut self, seen: &Seen<'_>, opening: Tells<'_>, all: &mut Collector) {
        let acked = seen.edges[CLIENT][1];
        let [start, end] = self.now.bytes;
        let mut may_be_tickets = false;
        if let Protocol::Tls(tls) = &mut self.protocol {
            if tls.is_fresh && acked < end {
                // Tickets that left before the request arrived.
                return;
            }
            may_be_tickets = std::mem::take(&mut tls.is_fresh) || tls.may_be_http2;
        }
        let status = status(seen.kept).filter(|_| matches!(self.protocol, Protocol::Http1));
        // An interim response (RFC 9110, 15.2) lets the client go on with the request.
        if status.is_some_and(|status| (100..200).contains(&status) && status != SWITCHING) {
            return;
        }
        if acked < end {
            // The server had not received all of the request: both directions at once, or more of
            // the response before it.
            self.now.is_overlapped = true;
            if let Some(before) = self.before.as_mut().filter(|_| acked <= start) {
                before.is_overlapped = true;
                before.ended = seen.at;
                return;
            }
        }
        if let Some(before) = self.before.take() {
            self.settle(before, opening, all);
        }
        self.stage = Stage::Answering;
        self.now.answered = Some(seen.at);
        self.now.response = seen.bytes[0];
        self.now.may_be_tickets = may_be_tickets;
        self.now.status = status;
        if status == Some(SWITCHING) {
            self.now.ended = seen.at;
            self.now.response_bytes = seen.bytes[1].saturating_sub(seen.bytes[0]);
            self.close(opening, all);
            self.leave(all);
        }
    }

    /// Counts what is complete, as the connection goes on with something else.
    fn close(&mut self, opening: Tells<'_>, all: &mut Collector) {
        let before = self.before.take();
        let now = std::mem::take(&mut self.now);
        let now = (self.stage == Stage::Answering).then_some(now);
        for exchange in before.into_iter().chain(now) {
            self.settle(exchange, opening, all);
        }
        self.stage = Stage::Quiet;
    }

    /// An exchange is complete.
    fn settle(&mut self, exchange: Exchange, opening: Tells<'_>, all: &mut Collector) {
        if exchange.is_overlapped {
            self.requests.overlapped += 1;
            all.found.overlapped += 1;
            return;
        }
        let ways = opening().ways;
        let [client, server] = ways.map(Option::unwrap_or_default);
        let answered = exchange.answered.unwrap_or(exchange.ended);
        let wait = answered - exchange.asked;
        let trip = server.min(wait);
        let acked = exchange.acked.filter(|acked| *acked < answered);
        let queued = acked.map_or(Nanos::ZERO, |acked| (acked - exchange.asked) - trip);
        // A delayed acknowledgement tells nothing.
        let queued = if queued < DELAYED_ACK { queued } else { Nanos::ZERO };
        // Of a request that nothing answered, the server may not have had it.
        let is_answered = exchange.answered.is_some();
        let is_servers = is_answered || exchange.acked.is_some();
        let think = if is_servers { wait - trip - queued } else { Nanos::ZERO };
        let total = (exchange.ended - exchange.began) + client;
        let half = Nanos((client.0 + trip.0) / 2);
        let asking = (exchange.asked - exchange.began) + half + queued;
        let response = total - asking - think;
        let mut spent = exchange.spent([asking, think, response]);
        let mut phases = Phases {
            request_us: Some(asking),
            server_us: Some(think),
            response_us: is_answered.then_some(response),
            client_us: exchange.ready.map(|ready| exchange.began - ready),
            round_trip_us: ways[SERVER].map(|server| server + client),
            ..Phases::default()
        };
        if self.requests.count == 0 {
            self.add_opening(exchange.began, &mut phases, &mut spent, &opening());
        }
        let before = [phases.name_us, phases.connect_us, phases.tls_us];
        let total = before.into_iter().flatten().fold(total, |all, time| all + time);
        phases.total_us = Some(total);
        spent.total_s = seconds(total);
        spent.between_s = seconds(phases.client_us.unwrap_or_default());
        self.requests.count += 1;
        self.requests.spent.add(&spent);
        all.add(
            self.ends,
            Timed {
                packet: exchange.packet,
                at: exchange.began,
                line: exchange.line,
                status: exchange.status,
                bytes: [
                    exchange.bytes[1].saturating_sub(exchange.bytes[0]),
                    exchange.response_bytes,
                ],
                phases,
                spent,
                retransmitted: exchange.retransmitted,
                is_answered,
                ways,
            },
        );
    }

    /// Lookup and handshakes belong to the first request.
    fn add_opening(
        &self,
        began: Nanos,
        phases: &mut Phases<Nanos>,
        spent: &mut Spent,
        opening: &Opening,
    ) {
        phases.name_us = self.name;
        spent.name_s = seconds(self.name.unwrap_or_default());
        // Data in the SYN did not wait for the handshake (TCP Fast Open).
        let connect = opening.opened().filter(|(syn, _)| began > *syn);
        phases.connect_us = connect.map(|(syn, opened)| opened - syn);
        spent.network_s += seconds(phases.connect_us.unwrap_or_default());
        if let Some(tls) = self.tls.filter(|tls| tls.is_over) {
            let took = tls.last.1 - tls.began;
            phases.tls_us = Some(took);
            spent.client_s += seconds(tls.ends[CLIENT]);
            spent.server_s += seconds(tls.ends[SERVER]);
            spent.network_s += seconds(took - tls.ends[CLIENT] - tls.ends[SERVER]);
        }
    }

    /// The connection is over, or the capture is.
    pub(crate) fn finish(
        mut self,
        told: Opening,
        ending: Ending,
        all: &mut Collector,
    ) -> Option<ConnectionRequests> {
        let opening: Tells<'_> = &|| told;
        let silent = ending.file - ending.last;
        let is_waited = ending.is_over || silent >= NO_ANSWER;
        match self.stage {
            Stage::Answering if self.now.is_pushed && ending.is_received || is_waited => {
                self.close(opening, all);
            }
            Stage::Answering => {
                all.found.unfinished += u64::from(!self.now.is_overlapped);
                self.stage = Stage::Quiet;
                self.close(opening, all);
            }
            Stage::Asking => self.finish_asking(opening, ending, all),
            Stage::Quiet => {}
        }
        self.connect(&told, ending, all);
        let [client, server] = told.ways;
        let round_trip = server.map(|server| server + client.unwrap_or_default());
        let opened = told.opened();
        let mut requests = self.requests;
        requests.protocol = match &self.protocol {
            Protocol::Turns => RequestProtocol::Turns,
            Protocol::Http1 => RequestProtocol::Http1,
            Protocol::Tls(tls) => {
                all.found.http2_offering_connections += u64::from(tls.may_be_http2);
                RequestProtocol::Tls
            }
            Protocol::Multiplexed => RequestProtocol::Multiplexed,
        };
        requests.retransmitted_syns = told.syns.saturating_sub(1);
        requests.connect_us = opened.map(|(syn, opened)| micros(opened - syn));
        requests.round_trip_us = round_trip.map(micros);
        let is_told = requests.count + requests.overlapped > 0
            || requests.failed.is_some()
            || matches!(self.protocol, Protocol::Multiplexed);
        is_told.then_some(requests)
    }

    /// A request without a response: of a stream in one direction it is none.
    fn finish_asking(&mut self, opening: Tells<'_>, ending: Ending, all: &mut Collector) {
        let mut now = std::mem::take(&mut self.now);
        self.stage = Stage::Quiet;
        let has_before = self.before.is_some();
        self.close(opening, all);
        let is_request = !matches!(self.protocol, Protocol::Turns)
            || self.requests.count > 0
            || self.requests.overlapped > 0
            || has_before;
        if !is_request || !ending.is_heard || now.is_overlapped {
            return;
        }
        let until = if ending.is_over { ending.last } else { ending.file };
        if until - now.asked >= NO_ANSWER {
            now.ended = until;
            self.settle(now, opening, all);
        } else if !ending.is_over {
            all.found.unfinished += 1;
        }
    }

    fn connect(&mut self, opening: &Opening, ending: Ending, all: &mut Collector) {
        let Some(syn) = opening.syn else {
            return;
        };
        let connects = &mut all.found.connects;
        connects.count += 1;
        connects.retransmitted_syns += opening.syns.saturating_sub(1);
        if opening.answer.is_some() {
            return;
        }
        if ending.is_refused {
            connects.refused += 1;
            connects.failed_s += seconds(ending.last - syn);
            self.requests.failed = Some(ConnectFailure::Refused);
        } else if ending.file - syn >= NO_ANSWER && ending.is_opening && !ending.is_heard {
            connects.unanswered += 1;
            connects.failed_s += seconds(ending.last - syn);
            self.requests.failed = Some(ConnectFailure::Unanswered);
        }
    }
}

impl Exchange {
    /// Adds how its sender was held before this segment of the turn. After a short segment, a pause
    /// in which all was acknowledged began with that segment.
    fn hold(&mut self, seen: &Seen<'_>) {
        let (at, before, was_whole) = self.last;
        let [now, before] = [seen.held[seen.from], before[seen.from]];
        let (gap, idle) = (seen.at - at, now[0] - before[0]);
        let is_pause = !was_whole && idle.0 >= gap.0 / LEAST_IDLE;
        let [pause, closed] = &mut self.held[seen.from];
        *pause = *pause + if is_pause { gap } else { idle };
        *closed = *closed + (now[1] - before[1]);
        self.last = (seen.at, seen.held, seen.is_whole);
    }

    /// Whose time the request, the server's time and the response were.
    fn spent(&self, [asking, think, response]: [Nanos; 3]) -> Spent {
        let [[pause, late_reader], [server_pause, client_late]] = self.held;
        let (pause, server_pause) = (pause.min(asking), server_pause.min(response));
        let servers = think + server_pause + late_reader.min(asking - pause);
        let clients = pause + client_late.min(response - server_pause);
        let network = (asking + think + response) - servers - clients;
        Spent {
            server_s: seconds(servers),
            network_s: seconds(network),
            client_s: seconds(clients),
            ..Spent::default()
        }
    }
}

impl Opening {
    /// Times of the first SYN, and of the arrival of its answer at the client.
    fn opened(&self) -> Option<(Nanos, Nanos)> {
        let answer = self.answer? + self.ways[CLIENT].unwrap_or_default();
        Some((self.syn?, answer))
    }
}

/// Part of a pause in which nothing is outstanding.
const LEAST_IDLE: u64 = 10;
/// The shortest delayed acknowledgement (Linux's `TCP_DELACK_MIN`; RFC 1122 allows 500 ms).
const DELAYED_ACK: Nanos = Nanos(40_000_000);
/// Tickets are this small together, bytes, and the response comes this long after them.
const MAX_TICKETS: u64 = 1200;
const TICKETS_PAUSE: Nanos = Nanos(1_000_000);
/// Another protocol follows, such as that of WebSocket.
const SWITCHING: u16 = 101;
