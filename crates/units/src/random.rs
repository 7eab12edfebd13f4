//! Numbers that look random and are the same on every machine.

/// SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", OOPSLA 2014).
/// Seeds that differ in one bit give unrelated numbers. Not for secrets.
#[derive(Debug, Clone)]
pub struct SplitMix64(u64);

impl SplitMix64 {
    /// The generator of a seed; the seed is all there is to it.
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
