//! The treatment of a packet in plain Rust, the definition that the compiled program must match.
//!
//! The first rule of the packet's family whose conditions all hold matches; then its meter colours
//! the packet, and it is dropped or marked. [`rewritten`] gives its changed bytes, [`State`] what
//! is kept from packet to packet.

use std::collections::{BTreeMap, VecDeque};

use linerate_core::units::Dscp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::packet::{ETHERTYPE_AT, Fields, Fragment, LinkLayer, LinkType, Metadata, NetworkLayer};
use crate::policy::{Family, Fragments, Meter};
use crate::rules::{
    Action, Bucket, Buckets, Field, MAX_METERED_BYTES, Rule, RuleSet, Slot, UNITS_PER_BYTE,
};

/// The decision on one packet.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Decision {
    /// The rule that matches, as an index into the family's rules.
    pub rule: Option<usize>,
    /// Its new code point, if changed.
    pub dscp: Option<Dscp>,
    /// Its new VLAN priority, if changed.
    pub vlan_priority: Option<u8>,
    /// `skb->priority`, if it is set.
    pub priority: Option<u32>,
    /// Its colour, if its policy has a meter.
    pub colour: Option<Colour>,
    /// Whether it is dropped.
    pub dropped: bool,
}

/// The colour that a meter gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Colour {
    /// Within the committed rate.
    Green,
    /// Within the excess burst or the peak rate.
    Yellow,
    /// Above.
    Red,
}

/// Decides on a packet at `now_ns` of a monotonic clock above 0.
pub fn interpret(
    rules: &RuleSet,
    fields: &Fields,
    metadata: &Metadata,
    now_ns: u64,
    state: &mut State,
) -> Decision {
    let of_family = rules.family(fields.family());
    let remembered = (rules.fragments == Fragments::Track)
        .then(|| state.remembered(fields))
        .flatten()
        .filter(|rule| *rule < of_family.len());
    let rule = remembered.or_else(|| of_family.iter().position(|rule| matches(rule, fields)));
    let Some(rule) = rule else {
        return Decision { priority: rules.default_class, ..Decision::default() };
    };
    if rules.fragments == Fragments::Track {
        state.remember(fields, rule);
    }
    let action = &rules.actions[of_family[rule].action];
    let colour = action.meter.map(|meter| {
        let precolour = if meter.colour_aware {
            precolour(&meter, fields.value(Field::Dscp))
        } else {
            Colour::Green
        };
        let bytes = metadata.wire_length.min(MAX_METERED_BYTES);
        let buckets = state.meter(action.slot);
        buckets.colour(&meter.buckets(), precolour, bytes, now_ns)
    });
    decide(rule, action, colour, fields)
}

/// Whether a packet meets all conditions of a rule.
pub fn matches(rule: &Rule, fields: &Fields) -> bool {
    let mut conditions = rule.conditions.iter();
    conditions.all(|(field, set)| fields.value(*field).is_some_and(|value| set.contains(value)))
}

fn decide(rule: usize, action: &Action, colour: Option<Colour>, fields: &Fields) -> Decision {
    let drops_red = action.meter.is_some_and(|meter| meter.drop_red);
    if action.drop || (drops_red && colour == Some(Colour::Red)) {
        return Decision { rule: Some(rule), colour, dropped: true, ..Decision::default() };
    }
    let of_colour =
        (action.meter.zip(colour)).and_then(|(meter, colour)| meter.colours[colour as usize]);
    let came = fields.value(Field::Dscp);
    let is_new = |dscp: &Dscp| came.is_some_and(|came| came != u128::from(dscp.octet() >> 2));
    let pcp = fields.tci().map(|tci| (tci >> 13) as u8);
    Decision {
        rule: Some(rule),
        dscp: of_colour.or(action.dscp).filter(is_new),
        vlan_priority: action.vlan_priority.filter(|new| pcp != Some(*new)),
        priority: action.class,
        colour,
        dropped: false,
    }
}

/// Counters of a policy or a filter since it was first applied, or since `stats --reset`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct CounterReport {
    /// Packets on the wire, segments of an offloaded one each.
    pub packets: u64,
    /// Bytes on the wire, with layer-2 headers.
    pub bytes: u64,
    /// Packets dropped by the policy or its meter.
    pub dropped_packets: u64,
    /// Bytes of them.
    pub dropped_bytes: u64,
    /// Packets that a meter coloured green.
    pub green: u64,
    /// Yellow.
    pub yellow: u64,
    /// Red.
    pub red: u64,
}

impl From<[u64; 7]> for CounterReport {
    /// The counters in the order of a value of the per-CPU map `counters`, native byte order.
    fn from(counted: [u64; 7]) -> Self {
        let [packets, bytes, dropped_packets, dropped_bytes, green, yellow, red] = counted;
        Self { packets, bytes, dropped_packets, dropped_bytes, green, yellow, red }
    }
}

impl Decision {
    /// What the packet adds to the counters of its filter and its policy.
    pub fn counts(&self, metadata: &Metadata) -> CounterReport {
        let packets = u64::from(metadata.gso_segments.max(1));
        let bytes = u64::from(metadata.wire_length);
        let mut counts = CounterReport { packets, bytes, ..CounterReport::default() };
        if self.dropped {
            (counts.dropped_packets, counts.dropped_bytes) = (packets, bytes);
        }
        match self.colour {
            Some(Colour::Green) => counts.green = packets,
            Some(Colour::Yellow) => counts.yellow = packets,
            Some(Colour::Red) => counts.red = packets,
            None => {}
        }
        counts
    }
}

// The two meters (RFC 2697, RFC 2698), in whole numbers.

/// State of a meter: the tokens that its buckets lack, so that a new meter with full buckets is all
/// zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MeterState {
    /// Time at which the buckets were last filled.
    pub last_ns: u64,
    /// Tokens that the committed bucket lacks.
    pub committed: u64,
    /// Tokens that the excess bucket (RFC 2697) or the peak bucket (RFC 2698) lacks.
    pub second: u64,
}

impl MeterState {
    /// Colours a packet of `bytes`, at most `MAX_METERED_BYTES`.
    pub fn colour(
        &mut self,
        buckets: &Buckets,
        precolour: Colour,
        bytes: u32,
        now_ns: u64,
    ) -> Colour {
        let elapsed = now_ns.saturating_sub(self.last_ns);
        self.last_ns = self.last_ns.max(now_ns);
        let cost = u64::from(bytes) * UNITS_PER_BYTE;
        match buckets {
            Buckets::SingleRate { committed, excess_depth } => {
                let gain = committed.gain(elapsed);
                // RFC 2697, 3: what the committed bucket cannot hold goes to the excess bucket.
                let over = gain.saturating_sub(self.committed);
                self.committed = self.committed.saturating_sub(gain);
                self.second = self.second.saturating_sub(over);
                self.take_single(committed.depth, *excess_depth, precolour, cost)
            }
            Buckets::TwoRate { committed, peak } => {
                self.committed = self.committed.saturating_sub(committed.gain(elapsed));
                self.second = self.second.saturating_sub(peak.gain(elapsed));
                self.take_two(committed.depth, peak.depth, precolour, cost)
            }
        }
    }

    /// RFC 2697, 3.1 and 3.2; colour-blind is colour-aware with all packets green.
    fn take_single(&mut self, depth: u64, excess: u64, precolour: Colour, cost: u64) -> Colour {
        if precolour == Colour::Green && self.committed + cost <= depth {
            self.committed += cost;
            return Colour::Green;
        }
        if precolour <= Colour::Yellow && self.second + cost <= excess {
            self.second += cost;
            return Colour::Yellow;
        }
        Colour::Red
    }

    /// RFC 2698, 3.1 and 3.2.
    fn take_two(&mut self, depth: u64, peak: u64, precolour: Colour, cost: u64) -> Colour {
        if precolour == Colour::Red || self.second + cost > peak {
            return Colour::Red;
        }
        self.second += cost;
        if precolour == Colour::Yellow || self.committed + cost > depth {
            return Colour::Yellow;
        }
        self.committed += cost;
        Colour::Green
    }
}

impl Bucket {
    /// The tokens that come in `elapsed` nanoseconds, at most a full bucket.
    fn gain(&self, elapsed: u64) -> u64 {
        self.rate * elapsed.min(self.full_ns)
    }
}

/// The colour that a packet comes with, by its code point (RFC 2697 and 2698 leave the encoding
/// open).
fn precolour(meter: &Meter, dscp: Option<u128>) -> Colour {
    let number = |code: Dscp| u128::from(code.octet() >> 2);
    let [_, yellow, red] = meter.colours.map(|code| code.map(number));
    match dscp {
        None => Colour::Green,
        came if came == red => Colour::Red,
        came if came == yellow => Colour::Yellow,
        _ => Colour::Green,
    }
}

// Changes to a packet: what the program writes.

/// A packet after a decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rewritten {
    /// Its bytes. A tag that got a priority is no longer among them.
    pub bytes: Vec<u8>,
    /// Tag control information of the tag that is not in the bytes.
    pub vlan_tci: Option<u16>,
}

/// Applies a decision to a packet; `None` if it is dropped.
///
/// The ECN bits stay (RFC 3168, 5), and the IPv4 checksum is updated by the difference, so that a
/// wrong one stays as wrong as it was (RFC 1624). A tag keeps its id and its drop-eligible bit; a
/// packet without a tag gets one with id 0, a priority tag (802.1Q).
pub fn rewritten(
    frame: &[u8],
    link: LinkType,
    metadata: &Metadata,
    decision: &Decision,
) -> Option<Rewritten> {
    if decision.dropped {
        return None;
    }
    let layer = LinkLayer::new(frame, link, metadata);
    let mut bytes = frame.to_vec();
    if let Some(dscp) = decision.dscp
        && NetworkLayer::new(frame, layer.network, layer.family()).is_some()
    {
        let header = &mut bytes[layer.network..];
        match layer.family() {
            Family::V4 => set_v4(header, dscp.octet()),
            _ => set_v6(header, dscp.octet()),
        }
    }
    let mut vlan_tci = metadata.vlan_tci;
    if let (Some(priority), LinkType::Ethernet) = (decision.vlan_priority, link) {
        let kept = layer.tci.unwrap_or(0) & 0x1fff;
        vlan_tci = Some(kept | u16::from(priority) << 13);
        if layer.tag_in_bytes {
            bytes.drain(ETHERTYPE_AT..ETHERTYPE_AT + 4);
        }
    }
    Some(Rewritten { bytes, vlan_tci })
}

fn set_v4(header: &mut [u8], octet: u8) {
    let old = u16::from_be_bytes([header[0], header[1]]);
    header[1] = header[1] & 3 | octet;
    let new = u16::from_be_bytes([header[0], header[1]]);
    // RFC 1624, equation 3: HC' = ~(~HC + ~m + m').
    let checksum = u16::from_be_bytes([header[10], header[11]]);
    let mut sum = u32::from(!checksum) + u32::from(!old) + u32::from(new);
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    header[10..12].copy_from_slice(&(!(sum as u16)).to_be_bytes());
}

fn set_v6(header: &mut [u8], octet: u8) {
    header[0] = header[0] & 0xf0 | octet >> 4;
    header[1] = header[1] & 0x3f | octet << 4;
}

// The state that is kept from packet to packet.

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
    fn meter(&mut self, slot: Slot) -> &mut MeterState {
        self.meters.entry(slot).or_default()
    }

    /// The rule of a later fragment: that of its first fragment.
    fn remembered(&self, fields: &Fields) -> Option<usize> {
        let (packet, fragment) = packet(fields)?;
        if fragment.first { None } else { self.rules.get(&packet).copied() }
    }

    /// Remembers the rule of a first fragment.
    fn remember(&mut self, fields: &Fields, rule: usize) {
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

#[cfg(test)]
mod tests {
    use linerate_core::units::{BitRate, ByteCount};

    use super::Colour::{Green, Red, Yellow};
    use super::*;
    use crate::policy::MeterKind;

    /// 8 Mbit/s is a byte in a microsecond.
    const BYTE_NS: u64 = 1000;
    const RATE: BitRate = BitRate(8_000_000);

    fn buckets_of(kind: MeterKind) -> Buckets {
        let meter = Meter { kind, colour_aware: false, colours: [None; 3], drop_red: false };
        meter.buckets()
    }

    fn single(committed: u64, excess: u64) -> Buckets {
        buckets_of(MeterKind::SingleRate {
            committed: RATE,
            committed_burst: ByteCount(committed),
            excess_burst: ByteCount(excess),
        })
    }

    fn two(committed: u64, peak: u64) -> Buckets {
        buckets_of(MeterKind::TwoRate {
            committed: RATE,
            committed_burst: ByteCount(committed),
            peak: BitRate(2 * RATE.0),
            peak_burst: ByteCount(peak),
        })
    }

    /// The colours of packets (precolour, bytes, time in µs).
    fn colours(buckets: &Buckets, packets: &[(Colour, u32, u64)]) -> Vec<Colour> {
        let mut state = MeterState::default();
        let colour = |&(precolour, bytes, at): &(Colour, u32, u64)| {
            state.colour(buckets, precolour, bytes, at * BYTE_NS)
        };
        packets.iter().map(colour).collect()
    }

    #[test]
    fn single_rate_spends_the_committed_burst_then_the_excess_burst() {
        let packets = [
            (Green, 1000, 1),
            (Green, 501, 1),
            (Green, 1499, 1),
            (Green, 501, 1),
            (Green, 500, 1),
            (Green, 1, 1),
            // A microsecond later there is one byte more, to the nanosecond.
            (Green, 2, 2),
            (Green, 1, 2),
        ];
        let seen = colours(&single(1500, 2000), &packets);
        assert_eq!(seen, [Green, Yellow, Yellow, Red, Green, Red, Red, Green]);
    }

    #[test]
    fn the_excess_bucket_gets_what_the_committed_one_cannot_hold() {
        let packets = [
            (Green, 1000, 1),
            (Green, 2000, 1),
            // 1500 bytes: 1000 for the committed bucket, 500 for the excess bucket.
            (Yellow, 501, 1501),
            (Yellow, 500, 1501),
            (Green, 1000, 1501),
        ];
        assert_eq!(colours(&single(1000, 2000), &packets), [Green, Yellow, Red, Yellow, Green]);
    }

    #[test]
    fn single_rate_never_betters_a_colour() {
        let packets = [(Red, 1, 1), (Yellow, 2000, 1), (Yellow, 1, 1), (Green, 1000, 1)];
        assert_eq!(colours(&single(1000, 2000), &packets), [Red, Yellow, Red, Green]);
    }

    #[test]
    fn two_rates_ask_the_peak_bucket_first_and_red_costs_nothing() {
        let packets = [
            (Green, 3001, 1),
            (Green, 1000, 1),
            (Green, 1, 1),
            (Green, 2000, 1),
            (Green, 1999, 1),
            (Green, 1, 1),
            // 100 µs: 200 bytes of peak, 100 committed.
            (Green, 100, 101),
            (Green, 100, 101),
            (Green, 1, 101),
        ];
        let expected = [Red, Green, Yellow, Red, Yellow, Red, Green, Yellow, Red];
        assert_eq!(colours(&two(1000, 3000), &packets), expected);
    }

    #[test]
    fn two_rates_never_better_a_colour() {
        let packets = [(Red, 1, 1), (Yellow, 2000, 1), (Green, 1000, 1), (Green, 1, 1)];
        assert_eq!(colours(&two(1000, 3000), &packets), [Red, Yellow, Green, Red]);
    }

    #[test]
    fn a_clock_that_goes_back_gives_nothing() {
        let packets = [(Green, 1000, 5000), (Green, 1, 1), (Green, 1, 5000), (Green, 1, 5001)];
        assert_eq!(colours(&single(1000, 0), &packets), [Green, Red, Red, Green]);
    }

    #[test]
    fn the_greatest_constants_stay_within_64_bits() {
        let most = ByteCount(u64::MAX);
        let kind = MeterKind::SingleRate {
            committed: BitRate(u64::MAX),
            committed_burst: most,
            excess_burst: most,
        };
        let buckets = buckets_of(kind);
        let mut state = MeterState::default();
        for at in [1, 2, u64::MAX / 2, u64::MAX] {
            for expected in [Green, Yellow, Red] {
                let bytes = crate::rules::MAX_METERED_BYTES;
                let colour = state.colour(&buckets, Green, bytes, at);
                assert!(at == 2 || colour == expected, "{colour:?} at {at}");
            }
        }
        let still = buckets_of(MeterKind::SingleRate {
            committed: BitRate(0),
            committed_burst: ByteCount(1),
            excess_burst: ByteCount(0),
        });
        assert_eq!(colours(&still, &[(Green, 1, 1), (Green, 1, u64::MAX / 1000)]), [Green, Red]);
    }
}
