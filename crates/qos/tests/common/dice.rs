//! Numbers that look random and are the same everywhere.

use linerate_core::units::SplitMix64;

/// A generator; the seed is all there is to it.
#[derive(Debug, Clone)]
pub(crate) struct Dice(SplitMix64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(SplitMix64::new(seed))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0.draw()
    }

    /// 0 to `end` − 1; `end` is above 0.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// Both ends are possible.
    pub(crate) fn within(&mut self, first: u128, last: u128) -> u128 {
        let wide = u128::from(self.next()) << 64 | u128::from(self.next());
        match (last - first).checked_add(1) {
            Some(count) => first + wide % count,
            None => wide,
        }
    }

    pub(crate) fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }

    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }
}
