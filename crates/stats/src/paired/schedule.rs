//! The random order of the two runs of a pair.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::design::ORDER_STREAM;

/// The order of the two runs of a pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// A, then B.
    AFirst,
    /// B, then A.
    BFirst,
}

/// One of the two treatments.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// The treatment that B is compared with.
    A,
    /// The treatment whose effect is measured.
    B,
}

impl Side {
    /// `A` or `B`.
    pub fn name(self) -> &'static str {
        match self {
            Self::A => "A",
            Self::B => "B",
        }
    }
}

impl Order {
    /// The two sides in the order in which they run.
    pub fn sides(self) -> [Side; 2] {
        match self {
            Self::AFirst => [Side::A, Side::B],
            Self::BFirst => [Side::B, Side::A],
        }
    }
}

/// The order of each pair by a fair coin, without end; the same for the same seed.
///
/// A fixed order, even ABBA, would let whatever favours the second of two runs pass for an effect,
/// or for the lack of one.
#[derive(Debug, Clone)]
pub struct Schedule {
    coins: ChaCha8Rng,
}

impl Schedule {
    /// The schedule of a seed. It has nothing to do with the sign vectors that the test draws from
    /// the same seed.
    pub fn new(seed: u64) -> Self {
        let mut coins = ChaCha8Rng::seed_from_u64(seed);
        coins.set_stream(ORDER_STREAM);
        Self { coins }
    }
}

impl Iterator for Schedule {
    type Item = Order;

    fn next(&mut self) -> Option<Order> {
        let heads = self.coins.next_u64() >> 63 == 1;
        Some(if heads { Order::AFirst } else { Order::BFirst })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn a_first(seed: u64, pairs: usize) -> usize {
        let orders = Schedule::new(seed).take(pairs);
        orders.filter(|&order| order == Order::AFirst).count()
    }

    #[test]
    fn the_coin_is_fair_and_the_seed_decides() {
        // Five standard errors of 100,000 throws.
        assert!(a_first(1, 100_000).abs_diff(50_000) < 791);
        let orders = |seed| Schedule::new(seed).take(64).collect::<Vec<_>>();
        assert_eq!(orders(5), orders(5));
        assert_ne!(orders(5), orders(6));
    }

    #[test]
    fn one_order_says_nothing_about_the_next() {
        let orders: Vec<Order> = Schedule::new(2).take(100_001).collect();
        let same = orders.windows(2).filter(|two| two[0] == two[1]).count();
        assert!(same.abs_diff(50_000) < 791, "{same}");
    }
}
