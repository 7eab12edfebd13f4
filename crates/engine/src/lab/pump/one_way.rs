//! One direction of an emulated link with the bytes of its packets, without sockets and clock.

use std::collections::HashSet;
use std::net::SocketAddr;

use linerate_core::lab::Prefix;
use linerate_core::link::frame::{self, Cutter, Layout, Offload, RouterAddresses};
use linerate_core::link::{
    Admission, CorruptionPlace, Counters, Fate, Link, LinkSpec, Packet, RateTrace,
};
use linerate_core::units::Nanos;
use linerate_core::wire::{Hello, HelloKind};

/// The setup of one direction.
#[derive(Debug, Clone, Default)]
pub(crate) struct OneWaySetup {
    /// What the link does to packets.
    pub(crate) spec: LinkSpec,
    /// A recorded rate in place of the spec's.
    pub(crate) trace: Option<RateTrace>,
    /// Seed of its random choices.
    pub(crate) seed: u64,
    /// Addresses that answers to packets that are too big come from.
    pub(crate) router: Vec<Prefix>,
}

impl OneWaySetup {
    /// Whether packets are damaged in a way that no checksum detects.
    pub(super) fn damages_unseen(&self) -> bool {
        let spec = &self.spec;
        let is_unseen = |place| spec.is_verified || place == CorruptionPlace::Host;
        spec.corrupt.is_some_and(|corrupt| is_unseen(corrupt.place))
    }
}

/// A frame that leaves, and since when it could have.
#[derive(Debug)]
pub(super) struct Departure {
    pub(super) frame: StoredFrame,
    pub(super) due: Nanos,
}

/// One direction. Frames go in by [`OneWay::take_in`]; what comes out lies in `departures` and
/// `answers`.
#[derive(Debug)]
pub(super) struct OneWay {
    link: Link,
    /// All packets are treated alike, so frames of segmentation offload stay whole.
    is_whole: bool,
    /// Frames leave marked as verified.
    is_verified: bool,
    router: RouterAddresses,
    store: Store,
    /// To the far end, in the order in which they are due.
    pub(super) departures: Vec<Departure>,
    /// Back to where the packets came from.
    pub(super) answers: Vec<Vec<u8>>,
    /// Packets for which there was no memory left.
    pub(super) overflowed: u64,
    /// Packets that the link would have damaged.
    spared: u64,
}

impl OneWay {
    pub(super) fn new(setup: &OneWaySetup) -> Self {
        let link = match &setup.trace {
            Some(trace) => Link::with_rate_trace(&setup.spec, trace.clone(), setup.seed),
            None => Link::new(&setup.spec, setup.seed),
        };
        Self {
            link,
            is_whole: setup.spec.treats_packets_alike(),
            is_verified: setup.spec.is_verified,
            router: addresses(&setup.router),
            store: Store::default(),
            departures: Vec::new(),
            answers: Vec::new(),
            overflowed: 0,
            spared: 0,
        }
    }

    /// A frame came in at `now`. What is no IP packet (ARP) passes at once.
    pub(super) fn take_in(&mut self, now: Nanos, offload: Offload, bytes: &[u8]) {
        let Some(layout) = frame::layout(bytes) else {
            let frame = self.whole(offload, bytes);
            self.departures.push(Departure { frame, due: now });
            return;
        };
        if self.is_whole {
            let frame = self.whole(offload, bytes);
            self.offer(now, frame, &layout);
            return;
        }
        let mut cutter = Cutter::new(bytes, offload);
        let mut buffer = self.store.buffer();
        while let Some(offload) = cutter.next_into(&mut buffer) {
            let bytes = std::mem::replace(&mut buffer, self.store.buffer());
            // A segment has the headers of its frame, but its own length.
            let layout = frame::layout(&bytes).unwrap_or(layout);
            self.offer(now, StoredFrame { offload, bytes }, &layout);
        }
        self.store.recycle(buffer);
    }

    fn whole(&mut self, offload: Offload, bytes: &[u8]) -> StoredFrame {
        let mut buffer = self.store.buffer();
        buffer.extend_from_slice(bytes);
        StoredFrame { offload, bytes: buffer }
    }

    fn offer(&mut self, now: Nanos, frame: StoredFrame, layout: &Layout) {
        let id = match self.store.put(frame) {
            Ok(id) => id,
            Err(frame) => {
                self.overflowed += 1;
                return self.store.recycle(frame.bytes);
            }
        };
        let packet = Packet { id, ip_bytes: layout.ip_bytes, ecn: layout.ecn };
        match self.link.handle_packet(now, packet) {
            Admission::Accepted => {}
            Admission::Dropped(_) => self.forget(id),
            Admission::TooBig { mtu } => self.refuse(now, id, mtu),
        }
    }

    fn forget(&mut self, id: u64) {
        if let Some(frame) = self.store.take(id) {
            self.store.recycle(frame.bytes);
        }
    }

    /// What a router does with a packet that does not fit: an answer, or fragments where the sender
    /// allows them (IPv4 without DF).
    fn refuse(&mut self, now: Nanos, id: u64, mtu: u32) {
        let Some(mut frame) = self.store.take(id) else {
            return;
        };
        if let Some(answer) = frame::too_big(&frame.bytes, &self.router, mtu) {
            self.answers.push(answer);
        } else {
            frame::complete_checksum(&mut frame.bytes, &mut frame.offload);
            let mut fragments = Vec::new();
            frame::fragments(&frame.bytes, mtu, |bytes| fragments.push(bytes.to_vec()));
            for bytes in fragments {
                if let Some(layout) = frame::layout(&bytes).filter(|l| l.ip_bytes <= mtu) {
                    let offload = Offload::default();
                    self.offer(now, StoredFrame { offload, bytes }, &layout);
                }
            }
        }
        self.store.recycle(frame.bytes);
    }

    /// Moves what has arrived by `now` to the departures.
    pub(super) fn deliver(&mut self, now: Nanos, spared: Option<&Spared>) {
        while let Some(delivery) = self.link.poll_deliver(now) {
            let Fate::Arrived { mark_ce, corruption, .. } = delivery.fate else {
                self.forget(delivery.id);
                continue;
            };
            let frame = if delivery.is_last {
                self.store.take(delivery.id)
            } else {
                self.store.copy(delivery.id)
            };
            let Some(mut frame) = frame else { continue };
            if mark_ce {
                frame::mark_ce(&mut frame.bytes);
            }
            if let Some(corruption) = corruption {
                if spared.is_some_and(|spared| spared.has(&frame.bytes)) {
                    self.spared += 1;
                } else {
                    frame::corrupt(&mut frame.bytes, &mut frame.offload, corruption);
                }
            }
            if self.is_verified {
                frame::mark_verified(&mut frame.bytes, &mut frame.offload);
            }
            self.departures.push(Departure { frame, due: delivery.at });
        }
    }

    /// When [`OneWay::deliver`] is to be called next.
    pub(super) fn next_due(&self) -> Option<Nanos> {
        self.link.poll_timeout()
    }

    /// Takes the buffer of a frame that has left.
    pub(super) fn recycle(&mut self, buffer: Vec<u8>) {
        self.store.recycle(buffer);
    }

    pub(super) fn counters(&self) -> Counters {
        let counters = self.link.counters();
        Counters { corrupted: counters.corrupted - self.spared, ..counters }
    }
}

fn addresses(prefixes: &[Prefix]) -> RouterAddresses {
    let mut router = RouterAddresses::default();
    for prefix in prefixes {
        match prefix.address {
            std::net::IpAddr::V4(address) => router.v4 = router.v4.or(Some(address)),
            std::net::IpAddr::V6(address) => router.v6 = router.v6.or(Some(address)),
        }
    }
    router
}

// The bytes of the packets on their way: a slab with a limit, whose buffers are used again.

/// The most bytes on their way in one direction: 40 Gbit/s for 100 ms.
const MAX_BYTES: usize = 512 << 20;
/// Buffers kept for use again.
const SPARE: usize = 4096;

/// A frame on its way.
#[derive(Debug)]
pub(super) struct StoredFrame {
    /// The offloads that are still to be done.
    pub(super) offload: Offload,
    /// The whole Ethernet frame.
    pub(super) bytes: Vec<u8>,
}

/// Frames by the handle that the link knows them by.
#[derive(Debug, Default)]
pub(super) struct Store {
    frames: Vec<Option<StoredFrame>>,
    free: Vec<usize>,
    spare: Vec<Vec<u8>>,
    held_bytes: usize,
}

impl Store {
    /// An empty buffer.
    pub(super) fn buffer(&mut self) -> Vec<u8> {
        self.spare.pop().unwrap_or_default()
    }

    /// Gives a buffer back.
    pub(super) fn recycle(&mut self, mut buffer: Vec<u8>) {
        if self.spare.len() < SPARE {
            buffer.clear();
            self.spare.push(buffer);
        }
    }

    /// Keeps a frame; the frame itself comes back if there is no room.
    pub(super) fn put(&mut self, frame: StoredFrame) -> Result<u64, StoredFrame> {
        if self.held_bytes + frame.bytes.len() > MAX_BYTES {
            return Err(frame);
        }
        self.held_bytes += frame.bytes.len();
        let index = match self.free.pop() {
            Some(index) => {
                self.frames[index] = Some(frame);
                index
            }
            None => {
                self.frames.push(Some(frame));
                self.frames.len() - 1
            }
        };
        Ok(index as u64)
    }

    /// Takes the frame out; its handle is free then.
    pub(super) fn take(&mut self, id: u64) -> Option<StoredFrame> {
        let index = usize::try_from(id).ok()?;
        let frame = self.frames.get_mut(index)?.take()?;
        self.held_bytes -= frame.bytes.len();
        self.free.push(index);
        Some(frame)
    }

    /// A copy of the frame of that handle.
    pub(super) fn copy(&mut self, id: u64) -> Option<StoredFrame> {
        let mut bytes = self.buffer();
        let frame = self.frames.get(usize::try_from(id).ok()?)?.as_ref()?;
        bytes.extend_from_slice(&frame.bytes);
        Some(StoredFrame { offload: frame.offload, bytes })
    }
}

// Packets that are never damaged silently: a control message of a test that arrived changed would
// end the test without saying anything about the path.

/// The control connections that were seen on a link. The first bytes of data connections are
/// protected as well.
#[derive(Debug, Default)]
pub(super) struct Spared(HashSet<[SocketAddr; 2]>);

impl Spared {
    /// Notes a packet that comes in: it may begin a control connection.
    pub(super) fn note(&mut self, frame: &[u8]) {
        if let (Some(HelloKind::Control { .. }), Some(ends)) = (hello(frame), ends(frame)) {
            self.0.insert(ends);
        }
    }

    /// Whether a packet must not be damaged.
    pub(super) fn has(&self, frame: &[u8]) -> bool {
        ends(frame).is_some_and(|ends| self.0.contains(&ends)) || hello(frame).is_some()
    }
}

/// The key of a connection, which is the same in both directions.
fn ends(frame: &[u8]) -> Option<[SocketAddr; 2]> {
    let mut ends = frame::layout(frame)?.ends(frame)?;
    ends.sort();
    Some(ends)
}

fn hello(frame: &[u8]) -> Option<HelloKind> {
    let payload = frame::layout(frame)?.payload(frame)?;
    let hello = Hello::decode(payload.first_chunk()?).ok()?;
    Some(hello.kind)
}

#[cfg(test)]
mod tests {
    use linerate_core::link::Corrupt;
    use linerate_core::wire::{Hello, HelloKind, Token};

    use super::*;

    /// A segment of TCP over IPv4, between these ports of two hosts.
    fn segment(from: u16, to: u16, payload: &[u8]) -> Vec<u8> {
        let length = (40 + payload.len()) as u16;
        let mut frame = vec![2; 12];
        frame.extend([8, 0, 0x45, 0]);
        frame.extend(length.to_be_bytes());
        frame.extend([0, 0, 0x40, 0, 64, 6, 0, 0]);
        // The client has the lower address.
        let (client, server) = ([198, 18, 0, 1], [198, 18, 0, 2]);
        let (source, destination) = if to == 5201 { (client, server) } else { (server, client) };
        frame.extend([source, destination].concat());
        frame.extend([from.to_be_bytes(), to.to_be_bytes()].concat());
        frame.extend([0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x18, 1, 0, 0, 0, 0, 0]);
        frame.extend(payload);
        frame
    }

    /// What becomes of the segments on a link that damages every packet, unseen.
    fn carried(segments: &[Vec<u8>]) -> (Vec<bool>, u64) {
        let spec = LinkSpec {
            corrupt: Some(Corrupt { percent: 100.0, place: CorruptionPlace::Host }),
            ..LinkSpec::default()
        };
        let setup = OneWaySetup { spec, ..OneWaySetup::default() };
        assert!(setup.damages_unseen());
        let (mut way, mut spared) = (OneWay::new(&setup), Spared::default());
        let mut whole = Vec::new();
        for (number, segment) in segments.iter().enumerate() {
            let now = Nanos(number as u64);
            spared.note(segment);
            way.take_in(now, Offload::default(), segment);
            way.deliver(now, Some(&spared));
            let departure = way.departures.pop().expect("it has arrived");
            let payload = |frame: &[u8]| frame[54..].to_vec();
            whole.push(payload(&departure.frame.bytes) == payload(segment));
        }
        (whole, way.counters().corrupted)
    }

    #[test]
    fn control_connections_and_first_words_are_spared_and_data_is_not() {
        let control = Hello::new(HelloKind::Control { sealed: false }).encode();
        let (token, flow) = (Token([7; 16]), 0);
        let data = Hello::new(HelloKind::Data { token, flow }).encode();
        let segments = [
            segment(40_000, 5201, &control),
            segment(40_000, 5201, b"a question"),
            segment(5201, 40_000, b"its answer"),
            segment(40_001, 5201, &data),
            segment(40_001, 5201, b"payload"),
            segment(5201, 40_001, b"payload"),
        ];
        let expected = vec![true, true, true, true, false, false];
        assert_eq!(carried(&segments), (expected, 2));
    }

    fn frame(length: usize) -> StoredFrame {
        StoredFrame { offload: Offload::default(), bytes: vec![7; length] }
    }

    #[test]
    fn a_handle_is_good_until_its_frame_is_taken() {
        let mut store = Store::default();
        let id = store.put(frame(10)).unwrap();
        assert_eq!(store.copy(id).unwrap().bytes, [7; 10]);
        assert_eq!(store.take(id).unwrap().bytes, [7; 10]);
        assert!(store.take(id).is_none() && store.copy(id).is_none());
        assert!(store.take(u64::MAX).is_none());
    }

    #[test]
    fn no_more_is_held_than_allowed() {
        let mut store = Store::default();
        let big = MAX_BYTES / 2;
        let first = store.put(frame(big)).unwrap();
        store.put(frame(big)).unwrap();
        assert_eq!(store.put(frame(1)).unwrap_err().bytes.len(), 1);
        store.take(first).unwrap();
        store.put(frame(big)).unwrap();
    }
}
