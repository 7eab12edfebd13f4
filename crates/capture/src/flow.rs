//! One TCP connection and what is known of it at the end.

use std::net::SocketAddr;

use linerate_units::Nanos;

use crate::copies::Copies;
use crate::evenness::Evenness;
use crate::headers::Encapsulation;
use crate::recovery::Retransmitted;
use crate::requests::{
    CLIENT, Collector, ConnectionRequests, Ending, Opening, SERVER, Seen, Turns,
};
use crate::rtt::{Facts, Reading};
use crate::segment::{ACK, FIN, PSH, RST, SYN, Segment};
use crate::stream::{Counts, Stream};

/// An end of a connection; also the index of its half of a pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The end that sent the first SYN or, where none was seen, has the higher port.
    Initiator,
    /// The end that answers.
    Responder,
}

impl Side {
    /// The opposite end.
    pub fn other(self) -> Self {
        match self {
            Self::Initiator => Self::Responder,
            Self::Responder => Self::Initiator,
        }
    }
}

/// What an end announced in its SYN.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offer {
    /// Largest segment the end accepts, bytes (RFC 9293, 3.7.1).
    pub mss: Option<u16>,
    /// Window scale: left shift of its windows (RFC 7323, 2).
    pub window_scale: Option<u8>,
    /// Whether it permits SACK (RFC 2018).
    pub sack: bool,
    /// Whether it uses timestamps (RFC 7323, 3).
    pub timestamps: bool,
    /// How often the SYN was sent.
    pub sent: u32,
}

/// One connection of a capture.
#[derive(Debug, Clone, PartialEq)]
pub struct Flow {
    /// Addresses of the initiator and of the responder.
    pub ends: [SocketAddr; 2],
    /// What their SYNs announced; absent for a SYN that was not seen.
    pub offers: [Option<Offer>; 2],
    /// Round-trip time of the handshake; absent without one.
    pub handshake: Option<Nanos>,
    /// The end at which the capture was made; absent if it was made between them or nothing tells.
    pub near: Option<Side>,
    /// What each end sent.
    pub sent: [Sent; 2],
    /// Time of the first segment, since 1970.
    pub began: Nanos,
    /// The end that reset it.
    pub reset_by: Option<Side>,
    /// Which ends closed it (FIN).
    pub closed: [bool; 2],
    /// Time of the last segment, since 1970.
    pub ended: Nanos,
    /// Packets that were recorded a second time, and count once.
    pub copies: u64,
    /// The encapsulations of its packets; of several the deepest.
    pub inside: Encapsulation,
    /// Where the time of its requests went; absent where there are none.
    pub requests: Option<ConnectionRequests>,
}

/// What one end sent and how it was answered.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Sent {
    /// Payload bytes, each counted once.
    pub bytes: u64,
    /// The transfer: from the first segment with data to the acknowledgement of the last.
    pub lasted: Nanos,
    /// Silence of data after the transfer, up to the last packet of the connection.
    pub silent_after: Nanos,
    /// Timeouts of the last data, which nothing answered in that time.
    pub unanswered: u64,
    /// Its segments are in the capture, and not only the acknowledgements of the other end.
    pub is_seen: bool,
    /// Largest payload of a segment, bytes.
    pub mss: u32,
    /// Counters.
    pub counts: Counts,
    /// Retransmissions.
    pub retransmitted: Retransmitted,
    /// Bytes in flight when losses were noticed, for the first 256 episodes.
    pub loss_flights: Vec<u64>,
    /// Smallest round-trip time of data or, without a prompt acknowledgement, of anything.
    pub rtt_min: Option<Nanos>,
    /// Largest window the peer offered, bytes; absent where its scale is unknown.
    pub window_largest: Option<u64>,
    /// Time with nothing outstanding and an open window: the writer had nothing to send.
    pub idle: Nanos,
    /// The part of it that data of the other end ended: a request.
    pub asked: Nanos,
    /// Time in which the peer offered no window.
    pub window_closed: Nanos,
    /// Time with data in flight.
    pub in_flight: Nanos,
    /// How evenly it sent; absent for too few frames.
    pub evenness: Option<Evenness>,
    /// Readings over time.
    pub readings: Vec<Reading>,
}

impl Flow {
    /// Payload of both directions, bytes.
    pub fn bytes(&self) -> u64 {
        self.sent.iter().map(|sent| sent.bytes).sum()
    }

    /// The end that sent more.
    pub fn main_sender(&self) -> Side {
        if self.sent[1].bytes > self.sent[0].bytes { Side::Responder } else { Side::Initiator }
    }

    /// What that end sent.
    pub fn sent_by(&self, side: Side) -> &Sent {
        &self.sent[side as usize]
    }

    /// What that end announced in its SYN.
    pub fn offer_of(&self, side: Side) -> Option<Offer> {
        self.offers[side as usize]
    }
}

/// A connection while it is followed.
#[derive(Debug)]
pub(crate) struct Tracker {
    ends: [SocketAddr; 2],
    offers: [Option<Offer>; 2],
    first_syn: Option<Nanos>,
    /// Times of the last SYN, of its answer (SYN-ACK), and of the answer to that.
    handshake: [Option<Nanos>; 3],
    /// Initial sequence number of each end.
    initial: [Option<u32>; 2],
    streams: [Stream; 2],
    facts: [Facts; 2],
    began: Nanos,
    pub(crate) ended: Nanos,
    reset_by: Option<Side>,
    /// Segments of each end.
    segments: [u64; 2],
    /// Both ends sent a SYN that answers none (RFC 9293, 3.5: a simultaneous open).
    is_simultaneous: bool,
    recorded: [Copies; 2],
    copies: u64,
    /// The encapsulations of each end's packets with the latest data, and the deepest of all.
    inside: [Encapsulation; 2],
    deepest: Encapsulation,
    /// Absent where its requests were not asked for.
    turns: Option<Box<Turns>>,
}

impl Tracker {
    pub(crate) fn new(segment: &Segment<'_>) -> Self {
        let (source, destination) = (segment.source, segment.destination);
        let mut ends = [source, destination];
        let from_initiator = match (segment.flags & SYN != 0, segment.flags & ACK != 0) {
            (true, answers) => !answers,
            (false, _) => source.port() >= destination.port(),
        };
        if !from_initiator {
            ends.reverse();
        }
        let nothing =
            Facts { mss: USUAL_MSS, to_sender: None, to_receiver: None, is_at_sender: false };
        Self {
            ends,
            offers: [None; 2],
            first_syn: None,
            handshake: [None; 3],
            initial: [None; 2],
            streams: Default::default(),
            facts: [nothing; 2],
            began: segment.at,
            ended: segment.at,
            reset_by: None,
            segments: [0; 2],
            is_simultaneous: false,
            recorded: Default::default(),
            copies: 0,
            inside: [Encapsulation::default(); 2],
            deepest: Encapsulation::default(),
            turns: None,
        }
    }

    /// Addresses of the initiator and of the responder.
    pub(crate) fn ends(&self) -> [SocketAddr; 2] {
        self.ends
    }

    /// Follows its requests, too. The lookup of the responder's name took `name`.
    pub(crate) fn follow_requests(&mut self, name: Option<Nanos>) {
        self.turns = Some(Box::new(Turns::new(self.ends, name)));
    }

    /// Whether this SYN opens a new connection between the same addresses and ports. The first SYN
    /// of an end whose peer has sent nothing but a SYN is of the same connection.
    pub(crate) fn is_another(&self, segment: &Segment<'_>) -> bool {
        let side = self.side_of(segment);
        let is_syn = segment.flags & (SYN | ACK) == SYN;
        let is_begun = match self.initial[side as usize] {
            Some(known) => known != segment.seq,
            None => {
                let other = side.other() as usize;
                let syns = self.offers[other].map_or(0, |offer| u64::from(offer.sent));
                self.segments[side as usize] > 0 || self.segments[other] > syns
            }
        };
        is_syn && self.segments != [0; 2] && is_begun
    }

    fn side_of(&self, segment: &Segment<'_>) -> Side {
        if segment.source == self.ends[0] { Side::Initiator } else { Side::Responder }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.reset_by.is_some() || self.streams.iter().all(|stream| stream.sent_fin)
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.streams.iter().map(Stream::bytes).sum()
    }

    /// A segment that stands in that packet of the file.
    pub(crate) fn handle(&mut self, segment: &Segment<'_>, packet: u64, requests: &mut Collector) {
        let side = self.side_of(segment);
        let (from, to) = (side as usize, side.other() as usize);
        self.deepest = self.deepest.max(segment.inside);
        if self.recorded[from].has(segment) || self.was_seen_outside(segment, side) {
            self.copies += 1;
            return;
        }
        self.ended = self.ended.max(segment.at);
        self.segments[from] += 1;
        if segment.flags & RST != 0 {
            self.reset_by.get_or_insert(side);
            return;
        }
        if segment.flags & SYN != 0 {
            self.handle_syn(segment, side);
        } else if self.handshake[2].is_none() && side == Side::Initiator {
            self.handle_third(segment);
        }
        if segment.flags & ACK != 0 {
            let is_pure = segment.payload == 0 && segment.flags & (SYN | FIN) == 0;
            self.streams[to].handle_ack(segment, &self.facts[to], is_pure);
        }
        let has_data = segment.payload > 0;
        let bytes = if has_data { self.streams[from].bytes_of(segment) } else { [0; 2] };
        let before = (self.streams[from].edges()[0], self.streams[from].recovery.counts.segments);
        if has_data || segment.flags & FIN != 0 {
            self.streams[from].handle_data(segment, &self.facts[from]);
            self.guess_mss(from, segment.payload);
        }
        self.time();
        self.turn(segment, side, packet, bytes, before, requests);
    }

    /// Whether a segment in another encapsulation than those before it has nothing new: it was
    /// recorded before or after a tunnel, too, where segments may be larger or smaller.
    fn was_seen_outside(&mut self, segment: &Segment<'_>, side: Side) -> bool {
        let (from, to) = (side as usize, side.other() as usize);
        if segment.inside == self.inside[from] {
            return false;
        }
        let is_reset = segment.flags & RST != 0 && self.reset_by.is_none();
        let is_new = is_reset
            || self.segments[from] == 0
            || self.streams[from].is_beyond(segment)
            || self.streams[to].is_acknowledged_by(segment);
        if is_new {
            self.inside[from] = segment.inside;
        }
        !is_new
    }

    /// Follows the requests; `before` are the highest byte and the retransmissions of its sender.
    fn turn(
        &mut self,
        segment: &Segment<'_>,
        side: Side,
        packet: u64,
        bytes: [u64; 2],
        before: (u64, u64),
        requests: &mut Collector,
    ) {
        let is_told = |turns: &mut Turns| segment.payload > 0 || turns.waits_for(side as usize);
        let Some(mut turns) = self.turns.take_if(|turns| is_told(turns)) else {
            return;
        };
        let from = &self.streams[side as usize];
        let [client, server] = &self.streams;
        let seen = Seen {
            from: side as usize,
            at: segment.at,
            packet,
            kept: &segment.kept[..segment.kept.len().min(segment.payload as usize)],
            bytes,
            is_new: from.edges()[0] > before.0,
            is_pushed: segment.flags & PSH != 0,
            is_whole: segment.payload.is_multiple_of(self.facts[side as usize].mss.max(1)),
            again: from.recovery.counts.segments - before.1,
            edges: [client.edges(), server.edges()],
            held: [client.held(), server.held()],
        };
        turns.handle(&seen, &|| self.opening(), requests);
        self.turns = Some(turns);
    }

    /// What the handshake and prompt acknowledgements tell of the ways to both ends.
    fn opening(&self) -> Opening {
        let [syn, answer, third] = self.handshake;
        let between = |from: Option<Nanos>, to: Option<Nanos>| {
            from.zip(to).filter(|(from, to)| from <= to && !self.is_simultaneous)
        };
        let least = |way: Option<(Nanos, Nanos)>, acks: Option<Nanos>| {
            way.map(|(from, to)| to - from).into_iter().chain(acks).min()
        };
        let [of_client, of_server] = [CLIENT, SERVER].map(|end| self.streams[end].rtt.prompt());
        Opening {
            ways: [
                least(between(answer, third), of_server),
                least(between(syn, answer), of_client),
            ],
            syn: self.first_syn,
            answer,
            syns: self.offers[CLIENT].map_or(0, |offer| offer.sent.into()),
        }
    }

    /// Counts the requests that are complete; the file, or what is read of it, ends at `file`.
    pub(crate) fn finish_requests(
        &mut self,
        file: Nanos,
        requests: &mut Collector,
    ) -> Option<ConnectionRequests> {
        let opening = self.opening();
        let ending = Ending {
            file,
            last: self.ended,
            is_over: self.reset_by.is_some() || self.streams.iter().any(|it| it.sent_fin),
            is_refused: self.reset_by == Some(Side::Responder),
            is_heard: self.segments[SERVER] > 0,
            is_opening: self.segments[CLIENT] <= opening.syns,
            is_received: self.streams[SERVER].edges()[1] >= self.streams[SERVER].edges()[0],
        };
        self.turns.take()?.finish(opening, ending, requests)
    }

    fn handle_syn(&mut self, segment: &Segment<'_>, side: Side) {
        let options = segment.options;
        let before = self.offers[side as usize].map_or(0, |offer| offer.sent);
        self.offers[side as usize] = Some(Offer {
            mss: options.mss,
            window_scale: options.window_scale,
            sack: options.sack_permitted,
            timestamps: options.timestamps.is_some(),
            sent: before.saturating_add(1),
        });
        self.initial[side as usize] = Some(segment.seq);
        match (side, segment.flags & ACK != 0) {
            (Side::Initiator, false) => {
                self.first_syn.get_or_insert(segment.at);
                self.handshake[0] = Some(segment.at);
            }
            (Side::Responder, true) => self.handshake[1] = Some(segment.at),
            _ => self.is_simultaneous = true,
        }
        self.streams[side as usize].synchronise(segment.seq);
        self.learn();
    }

    /// The initiator's answer to the SYN-ACK completes the handshake.
    fn handle_third(&mut self, segment: &Segment<'_>) {
        let answers = self.handshake[1].is_some() && !self.is_simultaneous;
        let answered = answers && segment.flags & ACK != 0;
        if answered && self.initial[1].is_some_and(|seq| segment.ack == seq.wrapping_add(1)) {
            self.handshake[2] = Some(segment.at);
            self.learn();
        }
    }

    /// Times of the handshake from the capture to the initiator and to the responder, and back.
    fn ways(&self) -> Option<[Nanos; 2]> {
        let [syn, answer, third] = self.handshake;
        let (syn, answer, third) = (syn?, answer?, third?);
        // After several SYNs it is unknown which one was answered.
        let once = self.offers.iter().flatten().all(|offer| offer.sent == 1);
        let is_usual = once && !self.is_simultaneous;
        (is_usual && syn <= answer && answer <= third).then(|| [third - answer, answer - syn])
    }

    /// Shortest times in which each end answered what passed the capture: in the handshake, data
    /// with its acknowledgement, an acknowledgement with the data that it let go.
    fn shortest(&self) -> [Option<Nanos>; 2] {
        let ways = self.ways().map_or([None; 2], |ways| ways.map(Some));
        [0, 1].map(|side| {
            let answers = self.streams[1 - side].rtt.bound;
            let lets_go = self.streams[side].echo.smallest();
            let known = ways[side].into_iter().chain(answers).chain(lets_go).min()?;
            let after_edge = self.streams[side].echo.after_edge();
            Some(after_edge.map_or(known, |longest| known.min(longest)))
        })
    }

    /// The capture is next to an end that answers much faster than the other.
    fn near(&self) -> Option<Side> {
        let is_known = self.ways().is_some() || self.has_enough();
        let [initiator, responder] = self.shortest();
        let (initiator, responder) = (initiator?, responder?);
        let is_near = |way: Nanos, other: Nanos| is_known && way.0 <= other.0 / NEAR_PART;
        if is_near(initiator, responder) {
            Some(Side::Initiator)
        } else {
            is_near(responder, initiator).then_some(Side::Responder)
        }
    }

    /// Enough samples of data and of its echoed timestamps to replace a handshake.
    fn has_enough(&self) -> bool {
        let streams = &self.streams;
        let sender = usize::from(streams[1].bytes() > streams[0].bytes());
        streams[sender].rtt.samples >= ENOUGH && streams[sender].echo.samples >= ENOUGH
    }

    /// Notes the shortest times.
    fn time(&mut self) {
        let shortest = self.shortest();
        let [facts, _] = self.facts;
        if [facts.to_sender, facts.to_receiver] == shortest {
            return;
        }
        let near = self.near();
        for side in [Side::Initiator, Side::Responder] {
            let facts = &mut self.facts[side as usize];
            facts.to_sender = shortest[side as usize];
            facts.to_receiver = shortest[side.other() as usize];
            facts.is_at_sender = near == Some(side);
        }
    }

    /// Updates both directions with what the handshake has told so far.
    fn learn(&mut self) {
        for side in [Side::Initiator, Side::Responder] {
            let [own, peer] = [side, side.other()].map(|side| self.offers[side as usize]);
            let scales = [own, peer].map(|offer| offer.map(|offer| offer.window_scale));
            self.streams[side as usize].window.scale = match scales {
                [Some(None), _] | [_, Some(None)] => Some(0),
                [_, peer] => peer.flatten(),
            };
            let facts = &mut self.facts[side as usize];
            if let Some(mss) = mss(own, peer) {
                facts.mss = mss;
            }
        }
    }

    /// Without a handshake the MSS is guessed from the largest segment, unless offloading made it.
    fn guess_mss(&mut self, from: usize, payload: u32) {
        let is_told = self.offers.iter().flatten().any(|offer| offer.mss.is_some());
        if !is_told && payload <= LARGEST_ETHERNET && payload > MIN_MSS {
            let largest = self.streams[from].counts.largest_bytes;
            self.facts[from].mss = largest.clamp(MIN_MSS, LARGEST_ETHERNET);
        }
    }

    pub(crate) fn finish(mut self, file: Nanos, requests: &mut Collector) -> Flow {
        let requests = self.finish_requests(file, requests);
        let near = self.near();
        for side in [Side::Initiator, Side::Responder] {
            let facts = &mut self.facts[side as usize];
            facts.is_at_sender = near == Some(side);
            self.streams[side as usize].finish(facts);
        }
        let closed = [0, 1].map(|side| self.streams[side].sent_fin);
        let [one, other] = self.streams;
        let [mine, others] = self.facts;
        let sent = [sent(one, &mine, self.ended), sent(other, &others, self.ended)];
        let ways = self.handshake[0].zip(self.handshake[2]);
        Flow {
            ends: self.ends,
            offers: self.offers,
            handshake: ways.map(|(syn, third)| third - syn),
            near,
            sent,
            began: self.began,
            reset_by: self.reset_by,
            closed,
            ended: self.ended,
            copies: self.copies,
            inside: self.deepest,
            requests,
        }
    }
}

/// Largest payload that both SYNs allow, less the timestamp option of each segment.
fn mss(own: Option<Offer>, peer: Option<Offer>) -> Option<u32> {
    let told = [own, peer].into_iter().flatten();
    let least = told.clone().filter_map(|offer| offer.mss).min()?;
    let timestamps = told.clone().all(|offer| offer.timestamps);
    let options = if timestamps { TIMESTAMP_BYTES } else { 0 };
    Some(u32::from(least).saturating_sub(options).max(1))
}

fn sent(stream: Stream, facts: &Facts, ended: Nanos) -> Sent {
    let lasted = stream.began.map_or(Nanos::ZERO, |began| stream.progress - began);
    Sent {
        bytes: stream.bytes(),
        lasted,
        silent_after: stream.began.map_or(Nanos::ZERO, |_| ended - stream.progress),
        unanswered: stream.unanswered(),
        is_seen: stream.is_seen(),
        mss: facts.mss,
        counts: stream.counts,
        retransmitted: stream.recovery.counts,
        rtt_min: stream.rtt.smallest(facts).filter(|rtt| stream.began.is_some() && rtt.0 > 0),
        window_largest: stream.window.scale.map(|_| stream.window.largest),
        idle: stream.times.idle,
        asked: stream.times.asked,
        window_closed: stream.times.closed,
        in_flight: stream.times.in_flight,
        loss_flights: stream.recovery.flights,
        evenness: stream.course.evenness(),
        readings: stream.readings.finish(&stream.echo.stamps, facts),
    }
}

/// The capture is next to an end that answers within a tenth of the time the other needs.
const NEAR_PART: u64 = 10;
/// Samples of data needed to replace a handshake.
const ENOUGH: u64 = 20;
const TIMESTAMP_BYTES: u32 = 12;
const USUAL_MSS: u32 = 1448;
const MIN_MSS: u32 = 216;
/// Largest payload on Ethernet without jumbo frames.
const LARGEST_ETHERNET: u32 = 1460;
