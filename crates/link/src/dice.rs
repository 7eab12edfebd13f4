//! Random numbers: one stream for each purpose, so that one setting does not change the draws of
//! another.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// What the numbers are for; each has a stream of its own from the same seed.
#[derive(Debug, Clone, Copy)]
pub(super) enum Purpose {
    Loss,
    Jitter,
    Reorder,
    Duplicate,
    Corrupt,
}

/// A source of random numbers. No function of the platform's mathematics is used: a seed gives the
/// same fate on every machine.
#[derive(Debug, Clone)]
pub(super) struct Dice(ChaCha8Rng);

impl Dice {
    pub(super) fn new(seed: u64, purpose: Purpose) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(purpose as u64);
        Self(rng)
    }

    /// True in `percent` of all cases; 0 and 100 are never and always.
    pub(super) fn chance(&mut self, percent: f64) -> bool {
        percent > 0.0 && self.unit() * 100.0 < percent
    }

    /// Uniform in [0, 1).
    pub(super) fn unit(&mut self) -> f64 {
        // The 53 bits that a float holds exactly.
        (self.0.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Normal with mean 0 and standard deviation 1, cut to ±3: the sum of 12 uniform numbers
    /// (Irwin–Hall).
    pub(super) fn normal(&mut self) -> f64 {
        let sum: f64 = (0..12).map(|_| self.unit()).sum();
        (sum - 6.0).clamp(-3.0, 3.0)
    }

    /// Uniform in 0..`end`; 0 if `end` is 0.
    pub(super) fn below(&mut self, end: u32) -> u32 {
        // Lemire's multiplication; 2⁶⁴ is so much more than 2³² that its bias is below 2⁻³².
        ((u128::from(self.0.next_u64()) * u128::from(end)) >> 64) as u32
    }
}
