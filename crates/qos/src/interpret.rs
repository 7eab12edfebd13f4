//! What becomes of a packet, in plain Rust: the definition that the compiled program must meet.

use linerate_core::units::Dscp;

/// What becomes of one packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// The rule that takes it, an index of the family's rules.
    pub rule: Option<usize>,
    /// The code point that it leaves with, if it is changed.
    pub dscp: Option<Dscp>,
    /// The VLAN priority that it leaves with, if it is changed.
    pub vlan_priority: Option<u8>,
    /// `skb->priority`, if it is changed.
    pub priority: Option<u32>,
    /// Its colour, if its policy has a meter.
    pub colour: Option<Colour>,
    /// It is dropped.
    pub dropped: bool,
}

/// The colour that a meter gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Colour {
    /// Within the committed rate.
    Green,
    /// Within the excess burst or the peak rate.
    Yellow,
    /// Above.
    Red,
}
