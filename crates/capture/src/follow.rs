//! Follows all connections of a capture in bounded memory.

use std::io::Read;
use std::net::{IpAddr, SocketAddr};

use hashbrown::HashMap;
use linerate_units::Nanos;

use crate::error::{CaptureError, PacketKind};
use crate::flow::{Flow, Tracker};
use crate::fragments::Fragments;
use crate::frames::{Frame, Frames};
use crate::headers::{Encapsulation, What};
use crate::requests::{CLIENT, Collector, Datagrams, Requests, SERVER};
use crate::segment::{Dissected, Segment, dissect};

/// The TCP part of a capture.
#[derive(Debug, Clone, PartialEq)]
pub struct Capture {
    /// Connections, largest payload first.
    pub flows: Vec<Flow>,
    /// Packets read.
    pub packets: u64,
    /// What the packets are, the most frequent kind first; at most 64 kinds.
    pub kinds: Vec<PacketKind>,
    /// Size of the file, bytes.
    pub file_bytes: u64,
    /// Link type of the first interface (`LINKTYPE_…`).
    pub link: Option<i32>,
    /// Bytes kept per packet at most; absent where the file does not say.
    pub snap_bytes: Option<u32>,
    /// Time of the first packet, since 1970.
    pub began: Nanos,
    /// Time of the last packet.
    pub ended: Nanos,
    /// Packets that were left out, by reason.
    pub left_out: LeftOut,
    /// The file ends inside a packet or is damaged; everything before that is complete.
    pub truncated: bool,
    /// Reading was stopped before the end.
    pub stopped: bool,
    /// Where the time of the requests went, of the connections that were asked for.
    pub requests: Requests,
}

/// The connections whose requests are asked for.
#[derive(Debug, Clone, Default)]
pub struct Selection {
    /// Ports, of which either end has one; empty: any.
    pub ports: Vec<u16>,
    /// Networks, each with its length in bits, of which either end is in one; absent: any.
    pub peers: Option<Vec<(IpAddr, u8)>>,
}

impl Selection {
    /// Whether a connection between these is asked for.
    pub fn has(&self, ends: &[SocketAddr; 2]) -> bool {
        let has_port = ends.iter().any(|end| self.ports.contains(&end.port()));
        let has_peer = self.peers.as_ref().is_none_or(|networks| {
            ends.iter().any(|end| networks.iter().any(|network| is_in(end.ip(), *network)))
        });
        (self.ports.is_empty() || has_port) && has_peer
    }
}

/// Whether an address is in a network, whose length is in bits.
fn is_in(address: IpAddr, (network, length): (IpAddr, u8)) -> bool {
    let same = match (address, network) {
        (IpAddr::V4(a), IpAddr::V4(b)) => (a.to_bits() ^ b.to_bits()).leading_zeros(),
        (IpAddr::V6(a), IpAddr::V6(b)) => (a.to_bits() ^ b.to_bits()).leading_zeros(),
        _ => return false,
    };
    same >= length.into()
}

/// Parts of a capture that are not followed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// Connections dropped, smallest payload first, because there were too many.
    pub flows: u64,
    /// Their payload, bytes.
    pub flow_bytes: u64,
    /// Fragments of IP packets with TCP whose other fragments are not there.
    pub fragments: u64,
    /// Packets with too few bytes kept.
    pub cut: u64,
    /// Packets without a time, which have that of the one before.
    pub untimed: u64,
}

/// Follows the connections of a file to its end.
///
/// At most `most_flows` connections are kept. `progress` is called every few MiB with the bytes of
/// the file read so far and returns whether to go on.
///
/// # Errors
/// The file is no capture, cannot be read, has an unknown link type, or contains neither TCP nor
/// lookups of names or QUIC.
pub fn follow<R: Read + Send + 'static>(
    source: R,
    most_flows: usize,
    progress: impl FnMut(u64) -> bool,
) -> Result<Capture, CaptureError> {
    follow_selected(source, most_flows, Selection::default(), progress)
}

/// Follows all connections as [`follow`] does, and the requests of those that are selected.
///
/// # Errors
/// As [`follow`].
pub fn follow_selected<R: Read + Send + 'static>(
    source: R,
    most_flows: usize,
    selection: Selection,
    mut progress: impl FnMut(u64) -> bool,
) -> Result<Capture, CaptureError> {
    let mut frames = Frames::new(source)?;
    let most = most_flows.max(1);
    let mut table = ConnectionTable { most, selection, ..ConnectionTable::default() };
    let mut told = 0;
    let mut stopped = false;
    frames.for_each(|frame, position| {
        table.handle(&frame);
        if position >= told + TOLD_BYTES {
            told = position;
            stopped = !progress(position);
        }
        !stopped
    })?;
    if let Some(number) = table.kinds.unread_link() {
        return Err(CaptureError::LinkType(number));
    }
    let kinds = table.kinds.finish();
    if table.trackers.is_empty() && table.datagrams.is_empty() {
        return Err(CaptureError::NoTcp {
            packets: table.packets,
            kinds,
            truncated: frames.truncated,
        });
    }
    let fragments = table.fragments.finish();
    let (ended, mut requests) = (table.ended, table.requests);
    let flows = flows(table.trackers, ended, &mut requests);
    Ok(Capture {
        packets: table.packets,
        kinds,
        file_bytes: frames.position(),
        link: frames.first_link,
        snap_bytes: Some(frames.snap_bytes).filter(|bytes| *bytes > 0),
        began: table.began.unwrap_or_default(),
        ended,
        left_out: LeftOut { untimed: frames.untimed, fragments, ..table.left_out },
        truncated: frames.truncated,
        stopped,
        flows,
        requests: requests.finish(table.datagrams, ended),
    })
}

/// Both ends of a connection, the lower address first.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct ConnectionKey {
    addresses: [u128; 2],
    ports: [u16; 2],
}

impl ConnectionKey {
    fn new(segment: &Segment<'_>) -> Self {
        let (a, b) = (number(segment.source), number(segment.destination));
        let (low, high) = if a <= b { (a, b) } else { (b, a) };
        Self { addresses: [low.0, high.0], ports: [low.1, high.1] }
    }
}

/// IPv4 addresses are mapped into IPv6.
fn number(address: SocketAddr) -> (u128, u16) {
    let ip = match address.ip() {
        IpAddr::V4(ip) => 0xffff_0000_0000 | u128::from(ip.to_bits()),
        IpAddr::V6(ip) => ip.to_bits(),
    };
    (ip, address.port())
}

#[derive(Default)]
struct ConnectionTable {
    most: usize,
    places: HashMap<ConnectionKey, usize>,
    trackers: Vec<(ConnectionKey, Tracker)>,
    /// The last lookup: consecutive segments are often of one connection.
    last: Option<(ConnectionKey, usize)>,
    left_out: LeftOut,
    fragments: Fragments,
    kinds: Kinds,
    packets: u64,
    began: Option<Nanos>,
    ended: Nanos,
    selection: Selection,
    requests: Collector,
    datagrams: Datagrams,
}

impl ConnectionTable {
    fn handle(&mut self, frame: &Frame<'_>) {
        self.packets += 1;
        if self.began.is_none() {
            self.began = Some(frame.at);
            self.requests.began = frame.at;
            self.datagrams.began = frame.at;
        }
        self.ended = self.ended.max(frame.at);
        match dissect(frame) {
            Dissected::Segment(segment) => {
                self.kinds.add(What::Tcp, segment.inside);
                self.follow(&segment);
            }
            Dissected::Fragment(fragment) => {
                self.kinds.add(What::Named("fragments of TCP"), fragment.inside);
                if let Some((segment, kept)) = self.fragments.add(&fragment) {
                    self.follow(&Segment { kept: &kept, ..segment });
                }
            }
            Dissected::Datagram(datagram, what, inside) => {
                self.kinds.add(what, inside);
                self.datagrams.handle(&datagram, self.packets);
            }
            Dissected::Cut => {
                self.left_out.cut += 1;
                self.kinds.add(What::Named("cut"), Encapsulation::default());
            }
            Dissected::Other(what, inside) => self.kinds.add(what, inside),
        }
    }

    fn follow(&mut self, segment: &Segment<'_>) {
        let place = self.place(segment);
        self.trackers[place].1.handle(segment, self.packets, &mut self.requests);
    }

    fn place(&mut self, segment: &Segment<'_>) -> usize {
        let key = ConnectionKey::new(segment);
        let known = match self.last {
            Some((last, place)) if last == key => Some(place),
            _ => self.places.get(&key).copied(),
        };
        let place = match known.filter(|place| !self.trackers[*place].1.is_another(segment)) {
            Some(place) => place,
            None => self.open(key, segment),
        };
        self.last = Some((key, place));
        place
    }

    fn open(&mut self, key: ConnectionKey, segment: &Segment<'_>) -> usize {
        if self.trackers.len() >= self.most {
            self.make_room(segment.at);
        }
        let place = self.trackers.len();
        let mut tracker = Tracker::new(segment);
        let ends = tracker.ends();
        if self.selection.has(&ends) {
            let [client, server] = [CLIENT, SERVER].map(|end| ends[end].ip());
            tracker.follow_requests(self.datagrams.take_name(client, server, segment.at));
        }
        self.trackers.push((key, tracker));
        self.places.insert(key, place);
        place
    }

    /// Drops a quarter of the connections: first those that ended or are silent, then those with
    /// the least payload.
    fn make_room(&mut self, now: Nanos) {
        let is_live = |tracker: &Tracker| !tracker.is_over() && now - tracker.ended < SILENT;
        self.trackers.sort_by_key(|(_, tracker)| (is_live(tracker), tracker.bytes()));
        let goes = (self.most / 4).max(1);
        for (_, mut tracker) in self.trackers.drain(..goes) {
            self.left_out.flows += 1;
            self.left_out.flow_bytes += tracker.bytes();
            tracker.finish_requests(now, &mut self.requests);
        }
        self.last = None;
        // Where several have the same key, the newest is the one still in use.
        self.trackers.sort_by_key(|(_, tracker)| tracker.ended);
        let places = self.trackers.iter().enumerate();
        self.places = places.map(|(place, (key, _))| (*key, place)).collect();
    }
}

/// The connections, largest payload first; the file ends at `ended`.
fn flows(
    trackers: Vec<(ConnectionKey, Tracker)>,
    ended: Nanos,
    requests: &mut Collector,
) -> Vec<Flow> {
    let finish = |(_, tracker): (_, Tracker)| tracker.finish(ended, requests);
    let mut flows: Vec<Flow> = trackers.into_iter().map(finish).collect();
    flows.sort_by_key(|flow| (std::cmp::Reverse(flow.bytes()), flow.began));
    flows
}

/// How many packets of which kind there are.
#[derive(Default)]
struct Kinds {
    /// TCP without an encapsulation, which most packets are.
    plain: u64,
    counts: Vec<((What, Encapsulation), u64)>,
    /// Packets beyond the largest number of kinds.
    more: u64,
}

impl Kinds {
    #[inline]
    fn add(&mut self, what: What, inside: Encapsulation) {
        if what == What::Tcp && inside.is_none() {
            self.plain += 1;
        } else {
            self.add_other((what, inside));
        }
    }

    fn add_other(&mut self, kind: (What, Encapsulation)) {
        let known = self.counts.iter().position(|(known, _)| *known == kind);
        match known {
            Some(place) => self.counts[place].1 += 1,
            None if self.counts.len() < MAX_KINDS => self.counts.push((kind, 1)),
            None => self.more += 1,
        }
    }

    /// A link type, if all packets are of types that are not read.
    fn unread_link(&self) -> Option<i32> {
        let links = self.counts.iter().map(|((what, _), _)| match what {
            What::Link(number) => Some(*number),
            _ => None,
        });
        links.reduce(Option::and).flatten().filter(|_| self.plain == 0)
    }

    fn finish(self) -> Vec<PacketKind> {
        let none = Encapsulation::default();
        let plain = ((What::Tcp, none), self.plain);
        let more = ((What::Named("other packets"), none), self.more);
        let counts = self.counts.into_iter().chain([plain, more]);
        let mut kinds: Vec<PacketKind> = counts
            .filter(|(_, packets)| *packets > 0)
            .map(|((what, inside), packets)| PacketKind { what: what.to_string(), inside, packets })
            .collect();
        kinds.sort_by_key(|kind| std::cmp::Reverse(kind.packets));
        kinds
    }
}

/// Kinds that are told apart, with TCP itself.
const MAX_KINDS: usize = 62;
const TOLD_BYTES: u64 = 16 << 20;
/// A connection silent for this long is dropped first.
const SILENT: Nanos = Nanos(60_000_000_000);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_has_the_addresses_that_begin_like_it() {
        for (address, network, length, has) in [
            ("198.18.3.4", "198.18.0.0", 15, true),
            ("198.20.0.1", "198.18.0.0", 15, false),
            ("198.18.0.1", "198.18.0.1", 32, true),
            ("10.0.0.1", "0.0.0.0", 0, true),
            ("2001:2::7", "2001:2::", 48, true),
            ("2001:3::7", "2001:2::", 48, false),
            ("2001:2::7", "0.0.0.0", 0, false),
        ] {
            let network = (network.parse().unwrap(), length);
            assert_eq!(is_in(address.parse().unwrap(), network), has, "{address}");
        }
    }
}
