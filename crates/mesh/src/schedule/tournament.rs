//! The cycles of one test over all pairs: which pairs are due, for which of them a round waits, and
//! how a round-robin tournament makes the rounds.

use std::collections::VecDeque;

use linerate_core::units::Nanos;

use super::links::{PairSet, SiteSet};
use crate::plan::{Mesh, MeshTest, TestKind};

/// Rounds are opened one after another. A pair is due from the opening of its round until it is
/// begun. If its round is opened again in the next cycle and the pair is still due, it was missed.
/// So a pair costs four bits.
///
/// A round is opened when all awaited pairs of an older round have begun. A pair is awaited if both
/// its sites could be tested when its round was opened, and still can be. Nothing waits for a site
/// that is away, rests or is late. The pairs that were not awaited are made up at the end of the
/// cycle: in between they would delay their sites' next rounds, and with them all other sites.
#[derive(Debug, Clone)]
pub(super) struct Tournament {
    rounds: Rounds,
    /// The site of each player; the sets below are of sites.
    sites: Vec<u16>,
    /// The player of each site; [`u16::MAX`]: none.
    players: Vec<u16>,
    due: PairSet,
    awaited: PairSet,
    /// Number of awaited pairs of each open round, the oldest first.
    left: VecDeque<u32>,
    /// Number of rounds that were ever opened, including those of the cycles before the first one.
    opened: u64,
    /// Whether a round was opened.
    is_begun: bool,
    /// When the cycle began.
    began: Nanos,
    every: Nanos,
    /// Each cycle may be the last.
    is_hurried: bool,
    /// Length of a cycle in which no test is delayed.
    duration: Nanos,
    /// How long the next cycle waits for pairs to be made up: a twentieth of `duration`, and at
    /// least the longest test.
    makes_up: Nanos,
    /// Most rounds that are open at a time.
    look_ahead: usize,
    /// Since when pairs that were not awaited are made up.
    ending_since: Option<Nanos>,
    /// A pair of this cycle was not awaited.
    is_incomplete: bool,
    /// Since when the oldest open round is waited for.
    pub(super) stuck_since: Nanos,
}

impl Tournament {
    pub(super) fn new(mesh: &Mesh, test: &MeshTest, begin: Nanos) -> Self {
        let rounds = Rounds::new(test.sites.len());
        let mut players = vec![u16::MAX; mesh.sites.len()];
        for (player, site) in test.sites.iter().enumerate() {
            players[*site] = player as u16;
        }
        let every = Nanos::from_millis(test.every_s * 1000);
        let cycle = begin.0.checked_div(every.0).unwrap_or(0);
        let at_once = match test.kind {
            TestKind::Bandwidth => 1,
            TestKind::Latency { at_once } => u64::from(at_once),
        };
        let duration = Nanos(test.duration().0 * rounds.count() as u64 / at_once);
        Self {
            rounds,
            sites: test.sites.iter().map(|site| *site as u16).collect(),
            players,
            due: PairSet::new(mesh.sites.len()),
            awaited: PairSet::new(mesh.sites.len()),
            left: VecDeque::new(),
            opened: cycle * rounds.count() as u64,
            began: if every.0 == 0 { begin } else { Nanos(cycle * every.0) },
            is_begun: false,
            every,
            is_hurried: false,
            duration,
            makes_up: Nanos(duration.0 / 20).max(test.max_duration()),
            look_ahead: look_ahead(rounds.count(), at_once as usize),
            ending_since: None,
            is_incomplete: false,
            stuck_since: begin,
        }
    }

    /// Has each cycle follow the results of the one before without a pause.
    pub(super) fn hurry(&mut self) {
        self.every = Nanos::ZERO;
        self.is_hurried = true;
    }

    /// Whether the next round waits for the results of all that have begun.
    pub(super) fn waits_for_results(&self) -> bool {
        self.is_hurried && self.is_whole()
    }

    /// Whether a site takes part.
    pub(super) fn has(&self, site: usize) -> bool {
        self.players[site] != u16::MAX
    }

    /// The sites with which a site has a due pair.
    pub(super) fn due_of(&self, site: usize) -> &SiteSet {
        self.due.partners(site)
    }

    pub(super) fn is_awaited(&self, a: usize, b: usize) -> bool {
        self.awaited.contains(a, b)
    }

    fn round_of(&self, a: usize, b: usize) -> u64 {
        let player = |site: usize| usize::from(self.players[site]);
        self.rounds.round(player(a), player(b)) as u64
    }

    /// Number of rounds that were opened since a due pair became due.
    pub(super) fn age(&self, a: usize, b: usize) -> u64 {
        let count = self.rounds.count() as u64;
        (self.opened + count - 1 - self.round_of(a, b)) % count
    }

    /// The last cycle in which a pair became due.
    pub(super) fn cycle_of(&self, a: usize, b: usize) -> u64 {
        (self.opened - 1 - self.age(a, b)) / self.rounds.count() as u64
    }

    /// The current cycle.
    pub(super) fn cycle(&self) -> u64 {
        self.opened.saturating_sub(1) / self.rounds.count() as u64
    }

    /// When the current cycle began.
    pub(super) fn began(&self) -> Nanos {
        self.began
    }

    /// A test of a pair has begun.
    pub(super) fn begin(&mut self, a: usize, b: usize) {
        self.stop_waiting(a, b);
        self.due.set(a, b, false);
    }

    /// The test of a pair failed: the pair is due again.
    pub(super) fn give_back(&mut self, a: usize, b: usize) {
        self.due.set(a, b, true);
        self.is_incomplete = true;
    }

    fn stop_waiting(&mut self, a: usize, b: usize) {
        if self.awaited.set(a, b, false) {
            let age = self.age(a, b) as usize;
            let newest = self.left.len() - 1;
            self.left[newest - age] -= 1;
        }
    }

    /// No round waits for a site any more: it cannot be tested now.
    pub(super) fn excuse(&mut self, site: usize) {
        let partners: Vec<usize> = self.awaited.partners(site).iter().collect();
        self.is_incomplete |= !partners.is_empty();
        for partner in partners {
            self.stop_waiting(site, partner);
        }
    }

    /// Closes old rounds without awaited pairs, and returns whether a round is to be opened now.
    pub(super) fn wants_round(&mut self, now: Nanos, present: &SiteSet) -> bool {
        while self.left.front() == Some(&0) {
            self.left.pop_front();
            self.stuck_since = now;
        }
        if self.left.is_empty() {
            self.stuck_since = now;
        }
        if self.is_ending() && self.ending_since.is_none() {
            self.ending_since = Some(now);
        }
        self.has_room() && self.next_round_at(present).is_none_or(|at| at <= now)
    }

    fn has_room(&self) -> bool {
        self.left.len() < self.look_ahead
    }

    fn is_whole(&self) -> bool {
        self.opened.is_multiple_of(self.rounds.count() as u64)
    }

    /// Whether a round waits for a pair.
    pub(super) fn is_waiting(&self) -> bool {
        self.left.iter().any(|left| *left > 0)
    }

    /// Whether all rounds of the cycle are over, so that pairs that are still due are made up.
    pub(super) fn is_ending(&self) -> bool {
        self.is_whole() && self.left.is_empty()
    }

    /// When the next round may be opened, if it is the first of a cycle.
    fn next_round_at(&self, present: &SiteSet) -> Option<Nanos> {
        if !self.is_whole() || !self.is_begun {
            return None;
        }
        if !self.is_incomplete {
            return Some(self.began + self.every);
        }
        // Otherwise the present sites would run through cycle after cycle without the absent ones.
        let least = self.began + self.every.max(self.duration);
        if !self.has_backlog(present) {
            return Some(least);
        }
        Some(least.max(self.ending_since.unwrap_or(self.began) + self.makes_up))
    }

    /// Whether two of these sites have a pair to make up.
    fn has_backlog(&self, present: &SiteSet) -> bool {
        present.iter().any(|site| {
            let due = self.due.partners(site).words();
            let awaited = self.awaited.partners(site).words();
            let mut words = due.zip(awaited).zip(present.words());
            words.any(|((due, awaited), present)| due & !awaited & present != 0)
        })
    }

    /// When a round can be opened, if it waits for nothing but time.
    pub(super) fn poll_timeout(&self, present: &SiteSet) -> Option<Nanos> {
        let next = self.has_room().then(|| self.next_round_at(present));
        next.flatten()
    }

    /// Opens the next round. `awaits` decides for which pairs it waits; `missed` is called with
    /// each pair that is still due.
    pub(super) fn open(
        &mut self,
        now: Nanos,
        present: &SiteSet,
        awaits: impl Fn(usize, usize) -> bool,
        mut missed: impl FnMut(&Self, usize, usize),
    ) {
        if let Some(at) = self.next_round_at(present) {
            // A cycle that begins late delays those after it.
            let is_late = at + self.every <= now;
            self.began = if self.every.0 == 0 || is_late { now } else { at };
            self.is_incomplete = false;
        }
        self.is_begun = true;
        self.ending_since = None;
        let round = self.opened % self.rounds.count() as u64;
        let mut left = 0;
        for (player, other) in self.rounds.pairs(round as usize) {
            let [a, b] = [player, other].map(|player| usize::from(self.sites[player]));
            if self.due.contains(a, b) {
                missed(self, a, b);
            }
            self.due.set(a, b, true);
            if awaits(a, b) {
                self.awaited.set(a, b, true);
                left += 1;
            } else {
                self.is_incomplete = true;
            }
        }
        self.opened += 1;
        self.left.push_back(left);
    }

    /// Opens the rest of the cycle's rounds, and waits for none of their pairs.
    pub(super) fn open_all(&mut self, now: Nanos) {
        let nobody = SiteSet::new(self.players.len());
        while !self.is_begun || !self.is_whole() {
            self.open(now, &nobody, |_, _| false, |_, _, _| ());
        }
    }

    /// An awaited pair of the oldest open round.
    pub(super) fn oldest_awaited(&self) -> Option<(usize, usize)> {
        let age = self.left.len().checked_sub(1)? as u64;
        let round = (self.opened - 1 - age) % self.rounds.count() as u64;
        let site = |player: usize| usize::from(self.sites[player]);
        let pairs = self.rounds.pairs(round as usize);
        pairs
            .map(|(player, other)| (site(player), site(other)))
            .find(|(a, b)| self.awaited.contains(*a, *b))
    }

    /// All pairs that are due.
    pub(super) fn due_pairs(&self) -> impl Iterator<Item = (usize, usize)> {
        self.sites.iter().flat_map(|a| {
            let a = usize::from(*a);
            let partners = self.due.partners(a).iter();
            partners.filter(move |b| a < *b).map(move |b| (a, b))
        })
    }

    /// Bytes of memory.
    pub(super) fn bytes(&self) -> usize {
        self.due.bytes() + self.awaited.bytes() + 2 * (self.sites.len() + self.players.len())
    }
}

/// Most rounds that are open at a time. For bandwidth tests it is one: no pair of the next round
/// begins before all pairs of this round have begun. In simulations with tests that take 1 to 1.3
/// times their length, a cycle then takes 2 % longer than the least possible with 10 sites and 5 %
/// with 100. With two and more open rounds, sites whose partners are late take pairs of later
/// rounds, and at the end of a cycle too few pairs are left to fill the slots: 20 to 60 % longer.
fn look_ahead(rounds: usize, at_once: usize) -> usize {
    let open = if at_once == 1 { 1 } else { 2 * at_once };
    open.min(rounds.saturating_sub(1)).max(1)
}

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
    use super::super::links::PairSet;
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
