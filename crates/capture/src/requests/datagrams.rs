//! Lookups of names by DNS over UDP (RFC 1035), and handshakes of QUIC (RFC 9000).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use hashbrown::HashMap;
use linerate_stats::{LatencyHistogram, LatencySummary};
use linerate_units::Nanos;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;

use super::{NO_ANSWER, micros, seconds};
use crate::segment::Datagram;

/// Lookups of names.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Names {
    /// Questions, each with its repetitions counted once.
    pub count: u64,
    /// Names that do not exist (NXDOMAIN).
    pub nxdomain: u64,
    /// Other failures, such as SERVFAIL and REFUSED.
    pub failed: u64,
    /// Questions asked again, for want of an answer.
    pub retried: u64,
    /// Questions that nothing answered until the capture ended, a second later at least.
    pub unanswered: u64,
    /// Times from the first question to the answer.
    pub time_us: Option<LatencySummary>,
    /// The three that took longest, the longest first.
    pub slowest: Vec<SlowLookup>,
}

/// A lookup.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SlowLookup {
    /// Number of the packet in the file with the first question, from 1.
    pub packet: u64,
    /// Its time, seconds since the first packet.
    pub at_s: f64,
    /// The name that was asked for.
    pub name: String,
    /// Time to the answer, µs; of one without an answer to its last repetition.
    pub time_us: f64,
    /// How often it was asked.
    pub asked: u64,
    /// Whether there was an answer.
    pub answered: bool,
}

/// QUIC connections, of which nothing but the handshake is shown.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Quic {
    /// Pairs of addresses and ports with an Initial packet of the client.
    pub connections: u64,
    /// Times from that packet to the client's first one behind the handshake.
    pub handshake_us: Option<LatencySummary>,
}

/// What the datagrams of a capture have told so far, in bounded memory.
#[derive(Debug, Default)]
pub(crate) struct Datagrams {
    /// Time of the file's first packet.
    pub(crate) began: Nanos,
    names: Names,
    time: Option<LatencyHistogram>,
    pending: HashMap<(IpAddr, Question), Lookup>,
    /// Addresses that were found and not used yet, with who asked, when it was told, and after how
    /// long.
    found: HashMap<IpAddr, Found>,
    quic: Quic,
    handshakes: Option<LatencyHistogram>,
    initials: HashMap<(SocketAddr, SocketAddr), Option<Nanos>>,
}

/// Name and type that are asked for.
type Question = (String, u16);

#[derive(Debug, Clone, Copy)]
struct Lookup {
    packet: u64,
    first: Nanos,
    last: Nanos,
    asked: u64,
}

#[derive(Debug, Clone, Copy)]
struct Found {
    client: IpAddr,
    at: Nanos,
    took: Nanos,
}

impl Datagrams {
    /// Whether neither DNS nor QUIC was seen.
    pub(crate) fn is_empty(&self) -> bool {
        self.names.count == 0 && self.pending.is_empty() && self.quic.connections == 0
    }

    /// A datagram that stands in that packet of the file.
    pub(crate) fn handle(&mut self, datagram: &Datagram<'_>, packet: u64) {
        match (datagram.source.port(), datagram.destination.port()) {
            (DNS, _) | (_, DNS) => self.handle_dns(datagram, packet),
            (QUIC, _) | (_, QUIC) => self.handle_quic(datagram),
            _ => {}
        }
    }

    /// The time of the lookup that a client made before it connected to a server.
    pub(crate) fn take_name(&mut self, client: IpAddr, server: IpAddr, at: Nanos) -> Option<Nanos> {
        let asks = |found: &&mut Found| {
            // A resolver on the client's host is asked from its loopback address.
            let is_same = found.client == client || found.client.is_loopback();
            is_same && found.at <= at && at - found.at <= LONGEST_USE
        };
        let took = self.found.get_mut(&server).filter(asks).map(|found| found.took);
        if took.is_some() {
            self.found.remove(&server);
        }
        took
    }

    fn handle_dns(&mut self, datagram: &Datagram<'_>, packet: u64) {
        let Some(message) = Message::read(datagram.kept) else {
            return;
        };
        if message.is_answer && datagram.source.port() == DNS {
            self.handle_answer(datagram, message);
        } else if !message.is_answer && datagram.destination.port() == DNS {
            self.handle_question(datagram, message, packet);
        }
    }

    fn handle_question(&mut self, datagram: &Datagram<'_>, message: Message<'_>, packet: u64) {
        let at = datagram.at;
        let key = (datagram.source.ip(), message.question);
        if let Some(known) = self.pending.get_mut(&key) {
            // Another program may ask for the same at the same time, or it is recorded twice.
            if at - known.last >= SOONEST_RETRY {
                *known = Lookup { last: at, asked: known.asked + 1, ..*known };
                self.names.retried += 1;
            }
            return;
        }
        if self.pending.len() >= MAX_KEPT {
            let is_old = |lookup: &mut Lookup| at - lookup.last >= NO_ANSWER;
            let old: Vec<_> = self.pending.extract_if(|_, lookup| is_old(lookup)).collect();
            for ((_, (name, _)), lookup) in old {
                self.give_up(name, lookup);
            }
        }
        if self.pending.len() < MAX_KEPT {
            let lookup = Lookup { packet, first: at, last: at, asked: 1 };
            self.pending.insert(key, lookup);
        }
    }

    fn handle_answer(&mut self, datagram: &Datagram<'_>, message: Message<'_>) {
        let client = datagram.destination.ip();
        let addresses = message.addresses();
        let key = (client, message.question);
        let Some(lookup) = self.pending.remove(&key) else {
            return;
        };
        let took = datagram.at - lookup.first;
        self.names.count += 1;
        match message.code {
            0 => {}
            NXDOMAIN => self.names.nxdomain += 1,
            _ => self.names.failed += 1,
        }
        self.time.get_or_insert_default().record_ns(took.0);
        let (_, (name, _)) = key;
        self.add_slow(name, lookup, took, true);
        for address in addresses.into_iter().flatten() {
            if self.found.len() >= MAX_KEPT {
                self.found.retain(|_, found| datagram.at - found.at <= LONGEST_USE);
            }
            if self.found.len() < MAX_KEPT {
                self.found.insert(address, Found { client, at: datagram.at, took });
            }
        }
    }

    fn give_up(&mut self, name: String, lookup: Lookup) {
        self.names.count += 1;
        self.names.unanswered += 1;
        self.add_slow(name, lookup, lookup.last - lookup.first, false);
    }

    fn add_slow(&mut self, name: String, lookup: Lookup, took: Nanos, answered: bool) {
        let slowest = &mut self.names.slowest;
        // Those that nothing answered come first.
        let rank = |answered: bool, time_us: f64| (!answered, time_us);
        let own = rank(answered, micros(took));
        let place = slowest.partition_point(|one| rank(one.answered, one.time_us) >= own);
        if place < SLOWEST {
            slowest.truncate(SLOWEST - 1);
            let (packet, at_s) = (lookup.packet, seconds(lookup.first - self.began));
            let (time_us, asked) = (micros(took), lookup.asked);
            slowest.insert(place, SlowLookup { packet, at_s, name, time_us, asked, answered });
        }
    }

    fn handle_quic(&mut self, datagram: &Datagram<'_>) {
        let Some(first) = datagram.kept.first() else {
            return;
        };
        if datagram.destination.port() != QUIC {
            return;
        }
        let key = (datagram.source, datagram.destination);
        let is_long = first & LONG_HEADER == LONG_HEADER;
        let is_initial = is_long && first & 0x30 == 0 && datagram.kept.get(1..5) != Some(&[0; 4]);
        if is_initial && !self.initials.contains_key(&key) && self.initials.len() < MAX_KEPT {
            self.initials.insert(key, Some(datagram.at));
            self.quic.connections += 1;
        } else if first & LONG_HEADER == LONG_HEADER & !LONG_FORM
            && let Some(began) = self.initials.get_mut(&key).and_then(Option::take)
        {
            self.handshakes.get_or_insert_default().record_ns((datagram.at - began).0);
        }
    }

    /// Lookups and QUIC connections of the capture, up to the end of the capture.
    pub(crate) fn finish(mut self, ended: Nanos) -> (Option<Names>, Option<Quic>) {
        let pending = std::mem::take(&mut self.pending);
        for ((_, (name, _)), lookup) in pending {
            if ended - lookup.last >= NO_ANSWER {
                self.give_up(name, lookup);
            }
        }
        self.names.time_us = self.time.and_then(|time| time.summary());
        self.quic.handshake_us = self.handshakes.and_then(|times| times.summary());
        let names = Some(self.names).filter(|names| names.count > 0);
        (names, Some(self.quic).filter(|quic| quic.connections > 0))
    }
}

/// A DNS message with one question.
struct Message<'a> {
    is_answer: bool,
    code: u8,
    answers: u16,
    question: Question,
    rest: &'a [u8],
}

impl<'a> Message<'a> {
    fn read(kept: &'a [u8]) -> Option<Self> {
        let (header, rest) = kept.split_at_checked(12)?;
        let half = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
        // A standard query with one question.
        if header[2] & 0x78 != 0 || half(4) != 1 {
            return None;
        }
        let (name, rest) = read_name(rest)?;
        let (kind, rest) = rest.split_at_checked(4)?;
        Some(Self {
            is_answer: header[2] & 0x80 != 0,
            code: header[3] & 0x0f,
            answers: half(6),
            question: (name, u16::from_be_bytes([kind[0], kind[1]])),
            rest,
        })
    }

    /// The addresses in its answers, as far as they were captured.
    fn addresses(&self) -> [Option<IpAddr>; 8] {
        let (mut found, mut number, mut rest) = ([None; 8], 0, self.rest);
        for _ in 0..self.answers.min(MAX_ANSWERS) {
            let Some((kind, data, after)) = read_answer(rest) else {
                break;
            };
            rest = after;
            let address = match (kind, <[u8; 4]>::try_from(data), <[u8; 16]>::try_from(data)) {
                (A, Ok(four), _) => Some(IpAddr::V4(Ipv4Addr::from(four))),
                (AAAA, _, Ok(all)) => Some(IpAddr::V6(Ipv6Addr::from(all))),
                _ => None,
            };
            if let Some(place) = found.get_mut(number).filter(|_| address.is_some()) {
                *place = address;
                number += 1;
            }
        }
        found
    }
}

/// A name without compression, in lower case, and what follows.
fn read_name(mut rest: &[u8]) -> Option<(String, &[u8])> {
    let mut name = String::new();
    loop {
        let (length, after) = rest.split_first()?;
        if *length == 0 {
            return Some((name, after));
        }
        let (label, after) = after.split_at_checked((*length).into())?;
        if *length > 63 || name.len() + label.len() > 253 {
            return None;
        }
        if !name.is_empty() {
            name.push('.');
        }
        let shown = |byte: &u8| if byte.is_ascii_graphic() { *byte as char } else { '?' };
        name.extend(label.iter().map(shown).map(|letter| letter.to_ascii_lowercase()));
        rest = after;
    }
}

/// Type and data of an answer, and what follows.
fn read_answer(mut rest: &[u8]) -> Option<(u16, &[u8], &[u8])> {
    // Its name, which ends with a pointer or an empty label.
    loop {
        let (length, after) = rest.split_first()?;
        if *length >= 0xc0 {
            rest = after.get(1..)?;
            break;
        }
        rest = after.get(usize::from(*length)..)?;
        if *length == 0 {
            break;
        }
    }
    let (head, rest) = rest.split_at_checked(10)?;
    let length = u16::from_be_bytes([head[8], head[9]]);
    let (data, rest) = rest.split_at_checked(length.into())?;
    Some((u16::from_be_bytes([head[0], head[1]]), data, rest))
}

const DNS: u16 = 53;
const QUIC: u16 = 443;
const NXDOMAIN: u8 = 3;
const A: u16 = 1;
const AAAA: u16 = 28;
/// Bits of QUIC's first byte: the long form, and the one that is always set (RFC 9000, 17.2).
const LONG_HEADER: u8 = 0xc0;
const LONG_FORM: u8 = 0x80;
const MAX_ANSWERS: u16 = 32;
/// Questions, addresses and QUIC connections that are kept.
const MAX_KEPT: usize = 4096;
const SLOWEST: usize = 3;
/// A connect that comes later after the answer does not wait for it.
const LONGEST_USE: Nanos = Nanos(2_000_000_000);
/// No resolver asks again sooner.
const SOONEST_RETRY: Nanos = Nanos(300_000_000);
