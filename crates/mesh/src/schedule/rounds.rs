//! All pairs in rounds: the tournament that everybody plays against everybody.

/// Rounds in which each player meets each other one once, by the circle method (Kirkman, 1850): in round
/// r those meet whose numbers add up to r modulo the number of rounds; whoever would meet itself meets
/// the last player. An odd number of players has one that rests in each round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Rounds {
    players: usize,
}

impl Rounds {
    /// Of two players at least.
    pub(super) fn new(players: usize) -> Self {
        Self { players }
    }

    /// How many there are: always odd.
    pub(super) fn count(self) -> usize {
        (self.players - 1) | 1
    }

    /// In which round two players meet.
    pub(super) fn round(self, a: usize, b: usize) -> usize {
        let last = self.count();
        match (a, b) {
            (a, b) if b == last => 2 * a % last,
            (a, b) if a == last => 2 * b % last,
            (a, b) => (a + b) % last,
        }
    }

    /// Who meets whom in a round: each pair once.
    pub(super) fn pairs(self, round: usize) -> impl Iterator<Item = (usize, usize)> {
        let last = self.count();
        (0..last).filter_map(move |a| {
            let b = (round + last - a) % last;
            let b = if a == b { last } else { b };
            (a < b && b < self.players).then_some((a, b))
        })
    }
}

/// Pairs of players: a bit for each, twice.
#[derive(Debug, Clone)]
pub(super) struct PairSet {
    words: usize,
    bits: Vec<u64>,
}

impl PairSet {
    /// None of the pairs of so many players.
    pub(super) fn new(players: usize) -> Self {
        let words = players.div_ceil(64);
        Self {
            words,
            bits: vec![0; words * players],
        }
    }

    pub(super) fn contains(&self, a: usize, b: usize) -> bool {
        self.bits[a * self.words + b / 64] >> (b % 64) & 1 == 1
    }

    /// Whether it was not there.
    pub(super) fn insert(&mut self, a: usize, b: usize) -> bool {
        let is_new = !self.contains(a, b);
        self.bits[a * self.words + b / 64] |= 1 << (b % 64);
        self.bits[b * self.words + a / 64] |= 1 << (a % 64);
        is_new
    }

    /// Whether it was there.
    pub(super) fn remove(&mut self, a: usize, b: usize) -> bool {
        let was_there = self.contains(a, b);
        self.bits[a * self.words + b / 64] &= !(1 << (b % 64));
        self.bits[b * self.words + a / 64] &= !(1 << (a % 64));
        was_there
    }

    /// The partners of a player, as a set.
    pub(super) fn row(&self, a: usize) -> &[u64] {
        &self.bits[a * self.words..(a + 1) * self.words]
    }

    /// Bytes of memory.
    pub(super) fn bytes(&self) -> usize {
        8 * self.bits.len()
    }
}

/// The members of a set of bits.
pub(super) fn members(words: impl Iterator<Item = u64>) -> impl Iterator<Item = usize> {
    words.enumerate().flat_map(|(number, word)| {
        let mut left = word;
        std::iter::from_fn(move || {
            let bit = (left != 0).then(|| left.trailing_zeros() as usize)?;
            left &= left - 1;
            Some(number * 64 + bit)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_pair_meets_once_and_nobody_twice_in_a_round() {
        for players in 2..40 {
            let rounds = Rounds::new(players);
            let mut met = PairSet::new(players);
            for round in 0..rounds.count() {
                let mut seen = vec![false; players];
                for (a, b) in rounds.pairs(round) {
                    assert_eq!(rounds.round(a, b), round, "{players}: {a} {b}");
                    assert_eq!(rounds.round(b, a), round);
                    assert!(met.insert(a, b), "{players}: {a} {b}");
                    assert!(!seen[a] && !seen[b]);
                    (seen[a], seen[b]) = (true, true);
                }
            }
            let all: usize = (0..players)
                .map(|a| members(met.row(a).iter().copied()).count())
                .sum();
            assert_eq!(all, players * (players - 1));
        }
    }
}
