//! Random numbers, the same for the same seed.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// A source of random numbers.
#[derive(Debug, Clone)]
pub(super) struct Random(ChaCha8Rng);

impl Random {
    /// Each `stream` of a seed has numbers of its own.
    pub(super) fn new(seed: u64, stream: u64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(stream);
        Self(rng)
    }

    /// Uniform in [0, 1).
    pub(super) fn unit(&mut self) -> f64 {
        // The 53 bits that a float holds exactly.
        (self.0.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Uniform in [low, high).
    pub(super) fn uniform(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.unit()
    }

    /// Between two positive bounds, each order of magnitude as likely as the next.
    pub(super) fn log_uniform(&mut self, low: f64, high: f64) -> f64 {
        (self.uniform(low.ln(), high.ln())).exp()
    }

    /// As [`Random::log_uniform`], rounded.
    pub(super) fn log_whole(&mut self, low: u64, high: u64) -> u64 {
        (self.log_uniform(low as f64, high as f64).round() as u64).clamp(low, high)
    }

    /// Uniform in 0..`end`; 0 if `end` is 0.
    pub(super) fn below(&mut self, end: usize) -> usize {
        ((u128::from(self.0.next_u64()) * end as u128) >> 64) as usize
    }

    /// True with this probability.
    pub(super) fn chance(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }

    /// One of them; `choices` must not be empty.
    pub(super) fn choose<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }

    /// Puts them into a random order (Fisher and Yates 1938).
    pub(super) fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }
}
