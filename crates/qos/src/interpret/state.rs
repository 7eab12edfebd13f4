//! State that is kept from packet to packet.

use std::collections::{BTreeMap, VecDeque};

use crate::packet::{Fields, Fragment};
use crate::policy::Family;
use crate::rules::{Field, Slot};

use super::MeterState;

/// The meters by their policy's slot, and the rules of fragmented packets.
#[derive(Debug, Clone, Default)]
pub struct State {
    meters: BTreeMap<Slot, MeterState>,
    rules: BTreeMap<Packet, usize>,
    oldest: VecDeque<Packet>,
}

/// What all fragments of a packet share: family, source, destination, id, protocol.
type Packet = (Family, u128, u128, u32, u8);

/// Maximum number of fragmented packets that are remembered. The kernel's map forgets approximately
/// the least recently used one.
const FRAGMENTED_PACKETS: usize = 4096;

impl State {
    pub(super) fn meter(&mut self, slot: Slot) -> &mut MeterState {
        self.meters.entry(slot).or_default()
    }

    /// The rule of a later fragment: that of its first fragment.
    pub(super) fn remembered(&self, fields: &Fields) -> Option<usize> {
        let (packet, fragment) = packet(fields)?;
        if fragment.first { None } else { self.rules.get(&packet).copied() }
    }

    /// Remembers the rule of a first fragment.
    pub(super) fn remember(&mut self, fields: &Fields, rule: usize) {
        let Some((packet, Fragment { first: true, .. })) = packet(fields) else {
            return;
        };
        if self.rules.insert(packet, rule).is_none() {
            self.oldest.push_back(packet);
        }
        if self.oldest.len() > FRAGMENTED_PACKETS
            && let Some(oldest) = self.oldest.pop_front()
        {
            self.rules.remove(&oldest);
        }
    }
}

fn packet(fields: &Fields) -> Option<(Packet, Fragment)> {
    let fragment = fields.fragment()?;
    let source = fields.value(Field::Source)?;
    let destination = fields.value(Field::Destination)?;
    let family = fields.family();
    let packet = (family, source, destination, fragment.id, fragment.protocol);
    Some((packet, fragment))
}
