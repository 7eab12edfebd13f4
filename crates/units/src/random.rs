//! Pseudo-random numbers that are the same on every machine.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// Random numbers of good quality, from ChaCha with 8 rounds. No function of the platform's
/// mathematics is used but in [`log_uniform`](Self::log_uniform).
#[derive(Debug, Clone)]
pub struct Dice(ChaCha8Rng);

impl Dice {
    /// A generator; each `stream` of a seed has its own sequence.
    pub fn new(seed: u64, stream: u64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(stream);
        Self(rng)
    }

    /// Uniform in [0, 1).
    pub fn unit(&mut self) -> f64 {
        // The 53 bits that a float holds exactly.
        (self.0.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Uniform in [low, high).
    pub fn uniform(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.unit()
    }

    /// Between two positive bounds, each order of magnitude as likely as the next.
    pub fn log_uniform(&mut self, low: f64, high: f64) -> f64 {
        (self.uniform(low.ln(), high.ln())).exp()
    }

    /// As [`Dice::log_uniform`], rounded.
    pub fn log_whole(&mut self, low: u64, high: u64) -> u64 {
        (self.log_uniform(low as f64, high as f64).round() as u64).clamp(low, high)
    }

    /// Normal with mean 0 and standard deviation 1, cut to ±3: the sum of 12 uniform numbers
    /// (Irwin–Hall).
    pub fn normal(&mut self) -> f64 {
        let sum: f64 = (0..12).map(|_| self.unit()).sum();
        (sum - 6.0).clamp(-3.0, 3.0)
    }

    /// Uniform in 0..`end`; 0 if `end` is 0.
    pub fn below(&mut self, end: usize) -> usize {
        // Lemire's multiplication; its bias is less than `end` / 2⁶⁴.
        ((u128::from(self.0.next_u64()) * end as u128) >> 64) as usize
    }

    /// True with this probability; 0 and 1 are never and always.
    pub fn chance(&mut self, probability: f64) -> bool {
        probability > 0.0 && self.unit() < probability
    }

    /// One of them; `choices` must not be empty.
    pub fn choose<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }

    /// Shuffles the items (Fisher and Yates 1938).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }
}

/// SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", OOPSLA 2014).
/// Seeds that differ in one bit give unrelated numbers. Not for secrets.
#[derive(Debug, Clone)]
pub struct SplitMix64(u64);

impl SplitMix64 {
    /// The generator of a seed, which determines all its numbers.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number, uniform over 64 bits.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// One of 0 to `end` − 1; 0 if `end` is 0. The remainder favours small numbers by less than
    /// `end` / 2⁶⁴.
    pub fn below(&mut self, end: u64) -> u64 {
        self.draw() % end.max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_of_seed_zero_are_those_of_the_reference() {
        // Vigna's splitmix64.c, seed 0.
        let mut random = SplitMix64::new(0);
        assert_eq!(random.draw(), 0xe220_a839_7b1d_cdaf);
        assert_eq!(random.draw(), 0x6e78_9e6a_a1b9_65f4);
        assert!((0..100).all(|_| random.below(3) < 3));
        assert_eq!(random.below(0), 0);
    }
}
