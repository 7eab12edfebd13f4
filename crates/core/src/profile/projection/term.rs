//! The terms of the model: the events to which an end's CPU time is attributed.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What costs CPU time each time that it happens.
///
/// On one kernel for both ends (loopback, veth, a lab) soft interrupts run in whichever thread was
/// there: each end may pay for packets of either.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Term {
    /// A system call that hands bytes over, or takes them.
    Call,
    /// A packet that the CPU carries by itself: a segment that it cut or is to join, a fragment, a
    /// datagram. A large packet that the device cuts, or that nothing cuts, is one.
    Packet,
    /// A fragment that IP made of a datagram, or put together with others again: what that takes
    /// besides a packet's own.
    Fragment,
    /// A packet as TCP or UDP sent it: with segmentation offload up to 64 KiB.
    Aggregate,
    /// A packet as TCP or UDP received it: after segments were joined.
    Delivery,
    /// A byte of payload, whatever was done with it.
    Byte,
    /// A byte copied between the application and the kernel at this end.
    CopiedByte,
    /// A byte whose checksum the CPU computed.
    ChecksummedByte,
    /// An acknowledgement.
    Acknowledgement,
    /// A run of the receive soft interrupt, over the whole host.
    Interrupt,
}

/// Number of terms.
pub(super) const TERMS: usize = 10;

impl Term {
    /// All terms, in the order in which they are printed.
    pub const ALL: [Self; TERMS] = [
        Self::Call,
        Self::Packet,
        Self::Fragment,
        Self::Aggregate,
        Self::Delivery,
        Self::Byte,
        Self::CopiedByte,
        Self::ChecksummedByte,
        Self::Acknowledgement,
        Self::Interrupt,
    ];

    /// The term in words, after a cost: `per call`.
    pub fn per(self) -> &'static str {
        match self {
            Self::Call => "call",
            Self::Packet => "packet",
            Self::Fragment => "fragment",
            Self::Aggregate => "large packet sent",
            Self::Delivery => "large packet received",
            Self::Byte => "byte",
            Self::CopiedByte => "byte copied",
            Self::ChecksummedByte => "byte checksummed",
            Self::Acknowledgement => "acknowledgement",
            Self::Interrupt => "soft interrupt",
        }
    }
}

/// How often each of them happened, or what each costs, or any figure for each.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct PerTerm([f64; TERMS]);

impl PerTerm {
    /// Values from pairs; terms that are not named are 0.
    pub fn new(pairs: impl IntoIterator<Item = (Term, f64)>) -> Self {
        let mut all = Self::default();
        for (term, value) in pairs {
            all.set(term, value);
        }
        all
    }

    /// The value of a term.
    pub fn at(&self, term: Term) -> f64 {
        self.0[term as usize]
    }

    /// Sets the value of a term.
    pub fn set(&mut self, term: Term, value: f64) {
        self.0[term as usize] = value;
    }

    /// Multiplies the value of a term.
    pub fn scale(&mut self, term: Term, factor: f64) {
        self.0[term as usize] *= factor;
    }

    /// All values multiplied by a factor.
    pub fn times(mut self, factor: f64) -> Self {
        self.0.iter_mut().for_each(|value| *value *= factor);
        self
    }

    /// Sum over the terms of the products: counts times costs.
    pub fn dot(&self, other: &Self) -> f64 {
        self.0.iter().zip(&other.0).map(|(a, b)| a * b).sum()
    }

    /// The sum, term by term.
    pub(super) fn plus(mut self, other: &Self) -> Self {
        self.0.iter_mut().zip(&other.0).for_each(|(a, b)| *a += b);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_term_has_the_place_that_its_order_gives_it() {
        for (place, term) in Term::ALL.iter().enumerate() {
            assert_eq!(*term as usize, place);
        }
    }
}
