//! One connection, and what is said of it in the end.

use std::net::SocketAddr;

use linerate_units::Nanos;

use crate::dissect::{ACK, FIN, Options, RST, SYN, Segment};
use crate::evenness::Evenness;
use crate::readings::Reading;
use crate::recovery::Retransmitted;
use crate::rtt::Facts;
use crate::stream::{Counts, Stream};

/// One end of a connection, as an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// It sent the first SYN; where none was seen, it has the higher port.
    Initiator,
    /// The other.
    Responder,
}

impl Side {
    /// The other one.
    pub fn other(self) -> Self {
        match self {
            Self::Initiator => Self::Responder,
            Self::Responder => Self::Initiator,
        }
    }
}

/// What the SYN of an end told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offer {
    /// Largest segment that it takes, bytes (RFC 9293, 3.7.1).
    pub mss: Option<u16>,
    /// Shift of its windows (RFC 7323, 2).
    pub window_scale: Option<u8>,
    /// SACK is allowed (RFC 2018).
    pub sack: bool,
    /// It has timestamps (RFC 7323, 3).
    pub timestamps: bool,
    /// Times that it was sent.
    pub sent: u32,
}

/// One connection of a capture.
#[derive(Debug, Clone, PartialEq)]
pub struct Flow {
    /// Addresses of the initiator and of the responder.
    pub ends: [SocketAddr; 2],
    /// What their SYNs told; absent where they were not seen.
    pub offers: [Option<Offer>; 2],
    /// Round trip of the handshake; absent without it.
    pub handshake: Option<Nanos>,
    /// The end next to which it was captured; absent between them, and where nothing tells.
    pub near: Option<Side>,
    /// What each end sent.
    pub sent: [Sent; 2],
    /// First and last segment, since 1970.
    pub began: Nanos,
    /// Last segment.
    pub ended: Nanos,
    /// The end that reset it.
    pub reset_by: Option<Side>,
    /// The ends that closed it (FIN).
    pub closed: [bool; 2],
    /// Segments of it.
    pub segments: u64,
}

/// What one end sent, and what came back for it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Sent {
    /// Payload, each byte once.
    pub bytes: u64,
    /// First segment with data, since 1970.
    pub began: Option<Nanos>,
    /// From the first segment with data to the last acknowledgement.
    pub lasted: Nanos,
    /// Largest payload of a segment, bytes.
    pub mss: u32,
    /// What was counted.
    pub counts: Counts,
    /// What was sent again.
    pub retransmitted: Retransmitted,
    /// Bytes in flight when losses came, of the first 256 episodes.
    pub loss_flights: Vec<u64>,
    /// Smallest round-trip time of data.
    pub rtt_min: Option<Nanos>,
    /// Mean deviation of the round-trip time at the end (RFC 6298).
    pub rtt_deviation: Nanos,
    /// Round trips measured.
    pub rtt_samples: u64,
    /// Largest window that the peer offered, bytes; absent where its scale is not known.
    pub window_largest: Option<u64>,
    /// Time with something outstanding, or held by a closed window.
    pub busy: Nanos,
    /// Of it, time in round trips in which the window was full.
    pub window_limited: Nanos,
    /// Of it, time with a closed window.
    pub zero_window: Nanos,
    /// Time with nothing outstanding and an open window: the writer had nothing to send.
    pub idle: Nanos,
    /// How even it was; absent of few frames.
    pub evenness: Option<Evenness>,
    /// Through time.
    pub readings: Vec<Reading>,
}

impl Flow {
    /// Payload of both directions, bytes.
    pub fn bytes(&self) -> u64 {
        self.sent.iter().map(|sent| sent.bytes).sum()
    }

    /// The end that sent more.
    pub fn main_sender(&self) -> Side {
        if self.sent[1].bytes > self.sent[0].bytes {
            Side::Responder
        } else {
            Side::Initiator
        }
    }

    /// What that end sent.
    pub fn sent_by(&self, side: Side) -> &Sent {
        &self.sent[side as usize]
    }

    /// The SYN of an end.
    pub fn offer_of(&self, side: Side) -> Option<Offer> {
        self.offers[side as usize]
    }
}

/// A connection while it is followed.
#[derive(Debug)]
pub(crate) struct Tracker {
    ends: [SocketAddr; 2],
    offers: [Option<Offer>; 2],
    /// Last SYN, its answer, and the answer to that.
    handshake: [Option<Nanos>; 3],
    /// First sequence number of each end.
    initial: [Option<u32>; 2],
    streams: [Stream; 2],
    facts: [Facts; 2],
    began: Nanos,
    pub(crate) ended: Nanos,
    reset_by: Option<Side>,
    segments: u64,
}

impl Tracker {
    pub(crate) fn new(segment: &Segment) -> Self {
        let (source, destination) = (segment.source, segment.destination);
        let answers = segment.flags & (SYN | ACK) == SYN | ACK;
        let asks = segment.flags & (SYN | ACK) == SYN;
        let from_initiator = asks || (!answers && source.port() >= destination.port());
        let ends = if from_initiator {
            [source, destination]
        } else {
            [destination, source]
        };
        let nothing = Facts {
            mss: USUAL_MSS,
            to_sender: None,
            is_at_sender: false,
        };
        Self {
            ends,
            offers: [None; 2],
            handshake: [None; 3],
            initial: [None; 2],
            streams: Default::default(),
            facts: [nothing; 2],
            began: segment.at,
            ended: segment.at,
            reset_by: None,
            segments: 0,
        }
    }

    /// The same addresses are used again: a SYN that is none of this connection's.
    pub(crate) fn is_another(&self, segment: &Segment) -> bool {
        let known = self.initial[self.side_of(segment) as usize];
        let is_syn = segment.flags & (SYN | ACK) == SYN;
        is_syn && self.segments > 0 && known != Some(segment.seq)
    }

    fn side_of(&self, segment: &Segment) -> Side {
        if segment.source == self.ends[0] {
            Side::Initiator
        } else {
            Side::Responder
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.reset_by.is_some() || self.streams.iter().all(|stream| stream.sent_fin)
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.streams.iter().map(Stream::bytes).sum()
    }

    pub(crate) fn handle(&mut self, segment: &Segment) {
        let side = self.side_of(segment);
        let (from, to) = (side as usize, side.other() as usize);
        self.segments += 1;
        self.ended = self.ended.max(segment.at);
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
        if segment.payload > 0 || segment.flags & FIN != 0 {
            self.streams[from].handle_data(segment, &self.facts[from]);
            self.guess_mss(from, segment.payload);
        }
    }

    fn handle_syn(&mut self, segment: &Segment, side: Side) {
        let Options {
            mss,
            window_scale,
            sack_permitted,
            timestamps,
            ..
        } = segment.options;
        let before = self.offers[side as usize].map_or(0, |offer| offer.sent);
        self.offers[side as usize] = Some(Offer {
            mss,
            window_scale,
            sack: sack_permitted,
            timestamps: timestamps.is_some(),
            sent: before.saturating_add(1),
        });
        self.initial[side as usize] = Some(segment.seq);
        let place = usize::from(segment.flags & ACK != 0);
        self.handshake[place] = Some(segment.at);
        self.streams[side as usize].synchronise(segment.seq);
        self.learn();
    }

    /// What the initiator sends after the answer to its SYN.
    fn handle_third(&mut self, segment: &Segment) {
        let answered = self.handshake[1].is_some() && segment.flags & ACK != 0;
        if answered && self.initial[1].is_some_and(|seq| segment.ack == seq.wrapping_add(1)) {
            self.handshake[2] = Some(segment.at);
            self.learn();
            if let Some([a, b]) = self.ways() {
                self.streams
                    .iter_mut()
                    .for_each(|stream| stream.rtt.handshake(a + b));
            }
        }
    }

    /// From the capture to the initiator and back, and to the responder and back.
    fn ways(&self) -> Option<[Nanos; 2]> {
        let [syn, answer, third] = self.handshake;
        let (syn, answer, third) = (syn?, answer?, third?);
        // Of several SYNs it is not known which one was answered.
        let once = self.offers.iter().flatten().all(|offer| offer.sent == 1);
        (once && syn <= answer && answer <= third).then(|| [third - answer, answer - syn])
    }

    /// The end that answers at once, where the other does not.
    fn near(&self) -> Option<Side> {
        let [initiator, responder] = self.ways().or_else(|| self.ways_of_data())?;
        let is_near = |way: Nanos, other: Nanos| way.0 <= other.0 / NEAR_PART;
        if is_near(initiator, responder) {
            Some(Side::Initiator)
        } else {
            is_near(responder, initiator).then_some(Side::Responder)
        }
    }

    /// Without a handshake: the shortest that data and its echo took.
    fn ways_of_data(&self) -> Option<[Nanos; 2]> {
        let streams = &self.streams;
        let sender = usize::from(streams[1].bytes() > streams[0].bytes());
        let (rtt, echo) = (&streams[sender].rtt, &streams[sender].echo);
        let enough = rtt.samples >= ENOUGH && echo.samples >= ENOUGH;
        let mut ways = [echo.smallest?, rtt.near_min?];
        if sender == 1 {
            ways.reverse();
        }
        enough.then_some(ways)
    }

    /// What follows for both directions from what is known of the handshake.
    fn learn(&mut self) {
        let near = self.near();
        let ways = self.ways();
        for side in [Side::Initiator, Side::Responder] {
            let (own, peer) = (
                self.offers[side as usize],
                self.offers[side.other() as usize],
            );
            let stream = &mut self.streams[side as usize];
            stream.window.scale = match (own.map(|o| o.window_scale), peer.map(|o| o.window_scale))
            {
                (Some(None), _) | (_, Some(None)) => Some(0),
                (_, Some(scale)) => scale,
                (_, None) => None,
            };
            let facts = &mut self.facts[side as usize];
            facts.is_at_sender = near == Some(side);
            facts.to_sender = ways.map(|ways| ways[side as usize]);
            if let Some(mss) = mss(own, peer) {
                facts.mss = mss;
            }
        }
    }

    /// Without a handshake the largest segment tells, unless an offload made it.
    fn guess_mss(&mut self, from: usize, payload: u32) {
        let is_told = self
            .offers
            .iter()
            .any(|offer| offer.is_some_and(|o| o.mss.is_some()));
        if !is_told && payload <= LARGEST_ETHERNET && payload > MIN_MSS {
            let largest = self.streams[from].counts.largest_bytes;
            self.facts[from].mss = largest.clamp(MIN_MSS, LARGEST_ETHERNET);
        }
    }

    pub(crate) fn finish(mut self) -> Flow {
        let near = self.near();
        for (stream, facts) in self.streams.iter_mut().zip(&self.facts) {
            stream.finish(self.ended, facts);
        }
        let closed = [0, 1].map(|side| self.streams[side].sent_fin);
        let facts = self.facts;
        let mut streams = self.streams.into_iter().zip(facts);
        let mut next = || {
            let stream = streams.next();
            stream
                .map(|(stream, facts)| sent(stream, &facts))
                .unwrap_or_default()
        };
        let sent = [next(), next()];
        let ways = self.handshake[0].zip(self.handshake[2]);
        Flow {
            ends: self.ends,
            offers: self.offers,
            handshake: ways.map(|(syn, third)| third - syn),
            near,
            sent,
            began: self.began,
            ended: self.ended,
            reset_by: self.reset_by,
            closed,
            segments: self.segments,
        }
    }
}

/// Largest payload that both SYNs allow, less the timestamps in each segment.
fn mss(own: Option<Offer>, peer: Option<Offer>) -> Option<u32> {
    let told = [own, peer].into_iter().flatten();
    let least = told.clone().filter_map(|offer| offer.mss).min()?;
    let timestamps = told.clone().count() > 0 && told.clone().all(|offer| offer.timestamps);
    let options = if timestamps { TIMESTAMP_BYTES } else { 0 };
    Some(u32::from(least).saturating_sub(options).max(1))
}

fn sent(stream: Stream, facts: &Facts) -> Sent {
    let began = stream.began;
    Sent {
        bytes: stream.bytes(),
        began,
        lasted: began
            .zip(stream.until)
            .map_or(Nanos::ZERO, |(began, until)| until - began),
        mss: facts.mss,
        counts: stream.counts,
        retransmitted: stream.recovery.counts,
        rtt_min: stream.rtt.of_data,
        rtt_deviation: stream.rtt.deviation(),
        rtt_samples: stream.rtt.samples,
        window_largest: stream.window.scale.map(|_| stream.window.largest),
        busy: stream.busy,
        window_limited: stream.window_limited,
        zero_window: stream.zero_window,
        idle: stream.idle,
        loss_flights: stream.recovery.flights,
        evenness: stream.course.evenness(),
        readings: stream.readings.finish(),
    }
}

/// An end that answers in a tenth of what the other takes is next to the capture.
const NEAR_PART: u64 = 10;
/// Round trips that tell as much without a handshake.
const ENOUGH: u64 = 20;
const TIMESTAMP_BYTES: u32 = 12;
const USUAL_MSS: u32 = 1448;
const MIN_MSS: u32 = 216;
/// Payload of the largest segment on Ethernet without jumbo frames.
const LARGEST_ETHERNET: u32 = 1460;
