//! The queue in front of the line, and CoDel, which keeps it short.

use std::collections::VecDeque;

use linerate_units::{Ecn, Nanos};

use super::spec::QueueLimit;

/// A packet that the link has accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Accepted {
    pub(super) id: u64,
    /// Position among the accepted packets.
    pub(super) order: u64,
    pub(super) ip_bytes: u32,
    pub(super) wire_bytes: u32,
    pub(super) ecn: Ecn,
    pub(super) arrived: Nanos,
}

/// A FIFO queue with a limit. The packet on the line is not in it.
#[derive(Debug, Clone)]
pub(super) struct Queue {
    packets: VecDeque<Accepted>,
    wire_bytes: u64,
    limit: QueueLimit,
}

impl Queue {
    pub(super) fn new(limit: QueueLimit) -> Self {
        Self { packets: VecDeque::new(), wire_bytes: 0, limit }
    }

    /// Whether a packet of `wire_bytes` fits.
    pub(super) fn has_room(&self, wire_bytes: u32) -> bool {
        match self.limit {
            QueueLimit::Packets(limit) => (self.packets.len() as u64) < limit,
            QueueLimit::Bytes(limit) => self.wire_bytes + u64::from(wire_bytes) <= limit,
        }
    }

    /// Appends a packet, whatever the limit.
    pub(super) fn push(&mut self, packet: Accepted) {
        self.wire_bytes += u64::from(packet.wire_bytes);
        self.packets.push_back(packet);
    }

    pub(super) fn pop(&mut self) -> Option<Accepted> {
        let packet = self.packets.pop_front()?;
        self.wire_bytes -= u64::from(packet.wire_bytes);
        Some(packet)
    }

    pub(super) fn head(&self) -> Option<&Accepted> {
        self.packets.front()
    }

    pub(super) fn len(&self) -> usize {
        self.packets.len()
    }

    pub(super) fn wire_bytes(&self) -> u64 {
        self.wire_bytes
    }
}

// CoDel (RFC 8289). The code follows the pseudocode of section 5; names in brackets are its own.

/// Sojourn time that is acceptable [TARGET].
pub(super) const TARGET: Nanos = Nanos::from_millis(5);
/// Time above the target before the first signal [INTERVAL].
pub(super) const INTERVAL: Nanos = Nanos::from_millis(100);

/// CoDel: keeps the standing queue short by dropping or marking at the head.
#[derive(Debug, Clone, Default)]
pub(super) struct CoDel {
    marks_ect: bool,
    /// A queue of at most this is never signalled for [maxpacket].
    max_packet_bytes: u64,
    first_above: Option<Nanos>,
    is_dropping: bool,
    drop_next: Nanos,
    count: u32,
    last_count: u32,
}

/// The head of the queue, and whether it has waited too long [dodequeue_result].
#[derive(Debug, Clone, Copy)]
struct Candidate {
    packet: Accepted,
    ok_to_signal: bool,
}

impl CoDel {
    /// With `marks_ect`, ECN-capable packets are marked and not dropped.
    pub(super) fn new(marks_ect: bool, max_packet_bytes: u32) -> Self {
        Self { marks_ect, max_packet_bytes: max_packet_bytes.into(), ..Self::default() }
    }

    /// Returns the next packet for the line at `now`, and whether to mark it; dropped packets go to
    /// `dropped`.
    pub(super) fn dequeue(
        &mut self,
        now: Nanos,
        queue: &mut Queue,
        mut dropped: impl FnMut(Accepted),
    ) -> Option<(Accepted, bool)> {
        let head = self.candidate(now, queue);
        if self.is_dropping {
            self.go_on(now, queue, head, dropped)
        } else if let Some(head) = head.as_ref().filter(|head| head.ok_to_signal) {
            self.begin(now);
            if self.marks(&head.packet) {
                return Some((head.packet, true));
            }
            dropped(head.packet);
            // The pseudocode leaves the drop state only at the next packet, whatever the state of
            // this one.
            self.candidate(now, queue).map(unmarked)
        } else {
            head.map(unmarked)
        }
    }

    /// Signals as often as is due in the dropping state, and leaves the state when the queue is
    /// short.
    fn go_on(
        &mut self,
        now: Nanos,
        queue: &mut Queue,
        mut head: Option<Candidate>,
        mut dropped: impl FnMut(Accepted),
    ) -> Option<(Accepted, bool)> {
        loop {
            let Some(candidate) = head.as_ref().filter(|head| head.ok_to_signal) else {
                self.is_dropping = false;
                return head.map(unmarked);
            };
            if now < self.drop_next {
                return head.map(unmarked);
            }
            self.count += 1;
            let due = control_law(self.drop_next, self.count);
            if self.marks(&candidate.packet) {
                self.drop_next = due;
                return Some((candidate.packet, true));
            }
            dropped(candidate.packet);
            head = self.candidate(now, queue);
            if head.as_ref().is_some_and(|head| head.ok_to_signal) {
                self.drop_next = due;
            }
        }
    }

    /// Enters the dropping state, at the previous rate if that is recent.
    fn begin(&mut self, now: Nanos) {
        self.is_dropping = true;
        let delta = self.count.saturating_sub(self.last_count);
        let is_recent = now - self.drop_next < Nanos(16 * INTERVAL.0);
        self.count = if delta > 1 && is_recent { delta } else { 1 };
        self.drop_next = control_law(now, self.count);
        self.last_count = self.count;
    }

    /// Takes the head and determines whether the sojourn time has been above the target for an
    /// interval [dodequeue].
    fn candidate(&mut self, now: Nanos, queue: &mut Queue) -> Option<Candidate> {
        let Some(packet) = queue.pop() else {
            self.first_above = None;
            return None;
        };
        let is_short = now - packet.arrived < TARGET || queue.wire_bytes() <= self.max_packet_bytes;
        let ok_to_signal = !is_short && self.first_above.is_some_and(|first| now >= first);
        if is_short {
            self.first_above = None;
        } else if self.first_above.is_none() {
            self.first_above = Some(now + INTERVAL);
        }
        Some(Candidate { packet, ok_to_signal })
    }

    fn marks(&self, packet: &Accepted) -> bool {
        self.marks_ect && packet.ecn.is_capable()
    }
}

/// The time of the next signal: signals come closer with the square root of their number, which
/// makes the throughput of a TCP that answers them fall linearly [control_law].
fn control_law(from: Nanos, count: u32) -> Nanos {
    from + Nanos((INTERVAL.0 as f64 / f64::from(count).sqrt()) as u64)
}

fn unmarked(candidate: Candidate) -> (Accepted, bool) {
    (candidate.packet, false)
}
