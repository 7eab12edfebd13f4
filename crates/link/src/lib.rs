#![forbid(unsafe_code)]
//! The emulated link: decides what happens to each packet of one direction, and when.
//!
//! A [`Link`] is a state machine without clock, bytes or threads. It is driven by a pump that owns
//! the bytes, or by a test with virtual time:
//!
//! 1. [`Link::handle_packet`] offers a packet, and returns at once whether the link has accepted
//!    it;
//! 2. [`Link::poll_timeout`] returns when there is something to fetch;
//! 3. [`Link::poll_deliver`] fetches it: an arrival at the far end or a late drop, until there is
//!    no more.
//!
//! The fates of packets depend only on the arrivals and the seed, not on how often the link is
//! polled: each packet is served at the time at which the line was free for it, even if the poll
//! comes later.
//!
//! # The stages in their order
//!
//! | stage | why here |
//! |---|---|
//! | MTU | what does not fit never reaches the link: the router before it answers or is silent |
//! | policer | it judges what is offered, so it is before everything that changes that |
//! | loss | a share of what is offered; before the queue, so that it is exact |
//! | queue, CoDel | what waits for the line; CoDel acts as a packet leaves the queue |
//! | rate | the line itself: one packet after another, in bytes of its framing |
//! | delay, jitter, reordering | after the line: they must not fill the queue |
//! | duplication, corruption | at the far end: a copy takes no capacity, and is damaged by itself |
//! | verified | last of all: what is marked as verified is not looked at again |
//!
//! [`PathSpec`] parses the text of a user, `rate=100mbit,rtt=29ms,loss=0.1%`, into a [`LinkSpec`]
//! for each direction.
//!
//! ```
//! use linerate_link::{Fate, Link, Packet, PathSpec};
//! use linerate_units::Nanos;
//!
//! let path: PathSpec = "rate=12mbit,rtt=20ms,overhead=24".parse()?;
//! let mut link = Link::new(&path.up, 1);
//! let packet = Packet { id: 7, ip_bytes: 1462, ecn: Default::default() };
//! link.handle_packet(Nanos::ZERO, packet);
//!
//! // 1500 bytes take 1 ms at 12 Mbit/s, then 10 ms one way.
//! let due = link.poll_timeout().expect("a packet is on its way");
//! let arrival = link.poll_deliver(due).expect("it has arrived");
//! assert_eq!((arrival.id, arrival.at), (7, Nanos::from_millis(11)));
//! assert!(matches!(arrival.fate, Fate::Arrived { corruption: None, .. }));
//! # Ok::<(), linerate_link::SpecError>(())
//! ```

mod delay;
pub mod frame;
mod keys;
mod packet;
mod parse;
mod quantity;
mod queue;
mod rate;
mod spec;

pub use packet::{
    Admission, Corruption, CorruptionPlace, Counters, Delivery, DropCause, DropCounts, Fate,
    Packet, SizeCounts,
};
pub use parse::SpecError;
pub use rate::RateTrace;
pub use spec::{
    Aqm, Corrupt, Distribution, Framing, Jitter, LinkSpec, Loss, Mtu, PathSpec, QueueLimit, Reorder,
};

use std::collections::VecDeque;

use delay::{DelayLine, LossProcess, Travelling};
use queue::{Accepted, CoDel, Queue};
use rate::TokenBucket;

use linerate_units::{Dice, Nanos};

/// The purpose of random numbers: each has its own stream from the same seed, so that one setting
/// does not change the draws of another.
#[derive(Debug, Clone, Copy)]
enum Purpose {
    Loss,
    Jitter,
    Reorder,
    Duplicate,
    Corrupt,
}

impl Purpose {
    fn dice(self, seed: u64) -> Dice {
        Dice::new(seed, self as u64)
    }
}

/// One direction of an emulated link. See the [module](self).
///
/// Each call costs O(log n) for n packets in propagation; nothing is allocated once the link has
/// reached its maximum.
#[derive(Debug, Clone)]
pub struct Link {
    spec: LinkSpec,
    policer: Option<TokenBucket>,
    loss: LossProcess,
    queue: Queue,
    codel: Option<CoDel>,
    /// `None` for no limit, so that nothing waits.
    line: Option<TokenBucket>,
    delay: DelayLine,
    duplicate_dice: Dice,
    corrupt_dice: Dice,
    /// The second copy of the last delivered packet.
    copy: Option<Travelling>,
    late_drops: VecDeque<Delivery>,
    accepted: u64,
    /// One more than the highest position that has arrived.
    next_expected: u64,
    counters: Counters,
    /// The latest `now` so far: time never goes backwards here.
    now: Nanos,
}

impl Link {
    /// Makes an idle link. The same spec, seed and arrivals give the same fates on every machine.
    ///
    /// The caller reads the file that [`LinkSpec::trace`] names, for [`Link::with_rate_trace`];
    /// with this function such a link has no rate.
    pub fn new(spec: &LinkSpec, seed: u64) -> Self {
        let rate = spec.rate_bps.map(RateTrace::constant);
        Self::with_line(spec, rate, seed)
    }

    /// Like [`Link::new`], with a recorded rate ([`RateTrace::parse`]) instead of the spec's.
    pub fn with_rate_trace(spec: &LinkSpec, trace: RateTrace, seed: u64) -> Self {
        Self::with_line(spec, Some(trace), seed)
    }

    fn with_line(spec: &LinkSpec, rate: Option<RateTrace>, seed: u64) -> Self {
        let policer = spec
            .policer_bps
            .map(RateTrace::constant)
            .map(|rate| TokenBucket::new(rate, spec.policer_burst_bytes()));
        let codel = match spec.aqm {
            Aqm::Fifo => None,
            Aqm::CoDel { marks_ect } => Some(CoDel::new(marks_ect, spec.full_packet_wire_bytes())),
        };
        Self {
            policer,
            loss: LossProcess::new(spec.loss, seed),
            queue: Queue::new(spec.queue),
            codel,
            line: rate.map(|rate| TokenBucket::new(rate, spec.shaper_burst_bytes())),
            delay: DelayLine::new(spec.delay, spec.jitter, spec.reorder, seed),
            duplicate_dice: Purpose::Duplicate.dice(seed),
            corrupt_dice: Purpose::Corrupt.dice(seed),
            copy: None,
            late_drops: VecDeque::new(),
            accepted: 0,
            next_expected: 0,
            counters: Counters::default(),
            now: Nanos::ZERO,
            spec: spec.clone(),
        }
    }

    /// Offers a packet at `now`. A `now` before that of an earlier call counts as that one.
    pub fn handle_packet(&mut self, now: Nanos, packet: Packet) -> Admission {
        self.advance(now);
        self.counters.offered += 1;
        if let Some(mtu) = self.spec.mtu
            && packet.ip_bytes > mtu.bytes
        {
            self.counters.dropped.count(DropCause::Mtu);
            return if mtu.is_black_hole {
                Admission::Dropped(DropCause::Mtu)
            } else {
                Admission::TooBig { mtu: mtu.bytes }
            };
        }
        let wire_bytes = self.spec.wire_bytes(packet.ip_bytes);
        if let Some(cause) = self.refuse(wire_bytes) {
            self.counters.dropped.count(cause);
            return Admission::Dropped(cause);
        }
        self.queue.push(Accepted {
            id: packet.id,
            order: self.accepted,
            ip_bytes: packet.ip_bytes,
            wire_bytes,
            ecn: packet.ecn,
            arrived: self.now,
        });
        self.accepted += 1;
        self.serve();
        Admission::Accepted
    }

    /// Returns the next arrival or late drop until `now`; `None` if there is no more.
    pub fn poll_deliver(&mut self, now: Nanos) -> Option<Delivery> {
        self.advance(now);
        if let Some(copy) = self.copy.take() {
            self.counters.duplicated += 1;
            return Some(self.deliver(copy, true, true));
        }
        if let Some(drop) = self.late_drops.pop_front() {
            return Some(drop);
        }
        let packet = self.delay.arrive(self.now)?;
        if packet.order < self.next_expected {
            self.counters.reordered += 1;
        } else {
            self.next_expected = packet.order + 1;
        }
        let duplicate = self.spec.duplicate_percent / 100.0;
        if self.duplicate_dice.chance(duplicate) {
            self.copy = Some(packet);
        }
        Some(self.deliver(packet, false, self.copy.is_none()))
    }

    /// When to call [`Link::poll_deliver`] next; `None` if the link is empty. There may be nothing
    /// to fetch then, because CoDel may drop packets.
    pub fn poll_timeout(&self) -> Option<Nanos> {
        if self.copy.is_some() || !self.late_drops.is_empty() {
            return Some(self.now);
        }
        // A waiting packet cannot arrive before it has left the queue and propagated.
        let earliest = self.line_is_free() + self.delay.least_delay();
        let waiting = self.queue.head().map(|_| earliest);
        self.delay.next_due().into_iter().chain(waiting).min()
    }

    /// The counters so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Number of packets that were accepted and have neither arrived nor been dropped.
    pub fn in_flight(&self) -> usize {
        self.queue.len() + self.delay.len()
    }

    fn refuse(&mut self, wire_bytes: u32) -> Option<DropCause> {
        if let Some(policer) = &mut self.policer
            && !policer.take(self.now, wire_bytes)
        {
            return Some(DropCause::Policer);
        }
        if self.loss.is_lost() {
            return Some(DropCause::Loss);
        }
        let must_wait = self.line_is_free() > self.now;
        (must_wait && !self.queue.has_room(wire_bytes)).then_some(DropCause::Queue)
    }

    fn line_is_free(&self) -> Nanos {
        self.line.as_ref().map_or(Nanos::ZERO, TokenBucket::free)
    }

    fn advance(&mut self, now: Nanos) {
        self.now = self.now.max(now);
        self.serve();
    }

    /// Moves the packets that may leave the queue by now to the line, each at the time at which the
    /// line was free.
    fn serve(&mut self) {
        while let Some(head) = self.queue.head() {
            let start = self.line_is_free().max(head.arrived);
            if start > self.now {
                break;
            }
            self.send_next(start);
        }
    }

    fn send_next(&mut self, start: Nanos) {
        let Self { counters, late_drops, queue, .. } = self;
        let dequeued = match &mut self.codel {
            None => queue.pop().map(|packet| (packet, false)),
            Some(codel) => codel.dequeue(start, queue, |packet| {
                counters.dropped.count(DropCause::Aqm);
                late_drops.push_back(Delivery {
                    id: packet.id,
                    at: start,
                    fate: Fate::Dropped(DropCause::Aqm),
                    is_last: true,
                });
            }),
        };
        let Some((packet, mark_ce)) = dequeued else {
            return;
        };
        counters.marked += u64::from(mark_ce);
        let finish = match &mut self.line {
            None => start,
            Some(line) => line.send(start, packet.wire_bytes),
        };
        self.delay.send(Travelling {
            due: finish,
            order: packet.order,
            id: packet.id,
            ip_bytes: packet.ip_bytes,
            mark_ce,
        });
    }

    fn deliver(&mut self, packet: Travelling, is_duplicate: bool, is_last: bool) -> Delivery {
        self.counters.delivered += 1;
        self.counters.delivered_bytes += u64::from(packet.ip_bytes);
        self.counters.sizes.count(packet.ip_bytes);
        let dice = &mut self.corrupt_dice;
        let asked = self.spec.corrupt;
        let corrupt = asked.filter(|corrupt| dice.chance(corrupt.percent / 100.0));
        let corruption = corrupt.map(|corrupt| Corruption {
            bit: dice.below(packet.ip_bytes as usize * 8) as u32,
            place: corrupt.place,
        });
        self.counters.corrupted += u64::from(corruption.is_some());
        Delivery {
            id: packet.id,
            at: packet.due,
            fate: Fate::Arrived { is_duplicate, mark_ce: packet.mark_ce, corruption },
            is_last,
        }
    }
}
