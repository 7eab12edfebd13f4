//! The queue in front of the line.

use std::collections::VecDeque;

use super::spec::QueueLimit;
use linerate_units::{Ecn, Nanos};

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
