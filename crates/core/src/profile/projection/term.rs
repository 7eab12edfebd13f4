//! The terms of the model: the events to which an end's CPU time is attributed.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::units::words;

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

// In the order in which they are printed; the word stands after a cost: `per call`.
words! {
    Term per {
        "call" Call,
        "packet" Packet,
        "fragment" Fragment,
        "large packet sent" Aggregate,
        "large packet received" Delivery,
        "byte" Byte,
        "byte copied" CopiedByte,
        "byte checksummed" ChecksummedByte,
        "acknowledgement" Acknowledgement,
        "soft interrupt" Interrupt,
    }
}

/// How often each of them happened, or what each costs, or any figure for each.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct PerTerm([f64; Term::ALL.len()]);

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
