//! The rounds of a round-robin tournament.

/// Rounds in which each player meets each other player once, by the circle method (Kirkman, 1850).
/// In round r those players meet whose numbers add up to r modulo the number of rounds; the player
/// that would meet itself meets the last one. With an odd number of players one rests in each
/// round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Rounds {
    players: usize,
}

impl Rounds {
    /// The rounds of at least two players.
    pub(super) fn new(players: usize) -> Self {
        Self { players }
    }

    /// Number of rounds: always odd.
    pub(super) fn count(self) -> usize {
        (self.players - 1) | 1
    }

    /// The round in which two players meet.
    pub(super) fn round(self, a: usize, b: usize) -> usize {
        let last = self.count();
        match (a, b) {
            (a, b) if b == last => 2 * a % last,
            (a, b) if a == last => 2 * b % last,
            (a, b) => (a + b) % last,
        }
    }

    /// The pairs that meet in a round, each once.
    pub(super) fn pairs(self, round: usize) -> impl Iterator<Item = (usize, usize)> {
        let last = self.count();
        (0..last).filter_map(move |a| {
            let b = (round + last - a) % last;
            let b = if a == b { last } else { b };
            (a < b && b < self.players).then_some((a, b))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::sets::PairSet;
    use super::*;

    #[test]
    fn each_pair_meets_once_and_no_player_meets_two_in_a_round() {
        for players in 2..40 {
            let rounds = Rounds::new(players);
            let mut met = PairSet::new(players);
            for round in 0..rounds.count() {
                let mut seen = vec![false; players];
                for (a, b) in rounds.pairs(round) {
                    assert_eq!(rounds.round(a, b), round, "{players}: {a} {b}");
                    assert_eq!(rounds.round(b, a), round);
                    assert!(met.set(a, b, true), "{players}: {a} {b}");
                    assert!(!seen[a] && !seen[b]);
                    (seen[a], seen[b]) = (true, true);
                }
            }
            let all: usize = (0..players).map(|a| met.partners(a).len()).sum();
            assert_eq!(all, players * (players - 1));
        }
    }
}
