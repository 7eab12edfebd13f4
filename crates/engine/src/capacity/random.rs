//! Random numbers from a seed, for which connections take part and which are replaced.

/// SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, OOPSLA 2014).
#[derive(Debug, Clone)]
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// One of 0 to `end` − 1; `end` is not 0. Of 2⁶⁴ the remainder's bias is of no account here.
    pub(super) fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    /// Brings `count` of the entries, drawn without replacement, to the front.
    pub(super) fn draw<T>(&mut self, entries: &mut [T], count: usize) {
        for at in 0..count.min(entries.len()) {
            let left = (entries.len() - at) as u64;
            entries.swap(at, at + self.below(left) as usize);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_draws_the_same_and_nothing_twice() {
        let drawn = |seed| {
            let mut entries: Vec<u32> = (0..100).collect();
            Random::new(seed).draw(&mut entries, 30);
            entries.truncate(30);
            entries
        };
        let mut first = drawn(7);
        assert_eq!(first, drawn(7));
        assert_ne!(first, drawn(8));
        first.sort_unstable();
        first.dedup();
        assert_eq!(first.len(), 30);
    }
}
