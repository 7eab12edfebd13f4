//! Random numbers from a seed, for which connections take part and which are replaced.

use linerate_core::units::SplitMix64;

/// Draws of connections.
#[derive(Debug, Clone)]
pub(super) struct Random(SplitMix64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(SplitMix64::new(seed))
    }

    /// One of 0 to `end` − 1; `end` is not 0.
    pub(super) fn below(&mut self, end: u64) -> u64 {
        self.0.below(end)
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
