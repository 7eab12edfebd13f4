//! One test's cycles over all pairs: which pairs are due, and which of them the next rounds wait for.

use std::collections::VecDeque;

use linerate_core::units::Nanos;

use super::rounds::{PairSet, Rounds, members};
use crate::plan::{Mesh, MeshTest, TestKind};

/// Rounds are opened one after another. A pair is due from then on until it is begun; when its round is
/// opened again in the next cycle and it is due still, it was missed. So a pair costs four bits.
///
/// A round is opened when all pairs of an older one have begun that are waited for: those of which both
/// sites could be tested when it was opened and can be still. Who comes and goes, rests or is late is not
/// waited for. What was not waited for is made up at the end of the cycle: in between it would make its
/// sites late for their next rounds, and all others with them.
#[derive(Debug, Clone)]
pub(super) struct Tournament {
    rounds: Rounds,
    /// The site of each player; the sets below are of sites.
    sites: Vec<u16>,
    /// The player that a site is.
    players: Vec<u16>,
    due: PairSet,
    awaited: PairSet,
    /// How many pairs of each open round are waited for, the oldest first.
    left: VecDeque<u32>,
    /// Rounds that were ever opened, those of cycles before the first one too.
    opened: u64,
    /// A round was opened.
    is_begun: bool,
    /// When the cycle began.
    began: Nanos,
    every: Nanos,
    /// What a cycle takes if all tests take as long as they should.
    takes: Nanos,
    /// How long the next cycle waits for what is made up: a twentieth of that, and one test at least.
    makes_up: Nanos,
    look_ahead: usize,
    /// Since when the cycle is in its end, where what was not waited for is made up.
    ending_since: Option<Nanos>,
    /// A pair of this cycle was not waited for.
    is_lame: bool,
    /// Since when the oldest round is waited for.
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
        let takes = Nanos(test.takes().0 * rounds.count() as u64 / at_once);
        Self {
            rounds,
            sites: test.sites.iter().map(|site| *site as u16).collect(),
            players,
            due: PairSet::new(mesh.sites.len()),
            awaited: PairSet::new(mesh.sites.len()),
            left: VecDeque::new(),
            opened: cycle * rounds.count() as u64,
            began: if every.0 == 0 {
                begin
            } else {
                Nanos(cycle * every.0)
            },
            is_begun: false,
            every,
            takes,
            makes_up: Nanos(takes.0 / 20).max(test.lasts_at_most()),
            look_ahead: look_ahead(rounds.count(), at_once as usize),
            ending_since: None,
            is_lame: false,
            stuck_since: begin,
        }
    }

    /// Whether a site takes part.
    pub(super) fn has(&self, site: usize) -> bool {
        self.players[site] != u16::MAX
    }

    pub(super) fn due_of(&self, site: usize) -> &[u64] {
        self.due.row(site)
    }

    pub(super) fn is_awaited(&self, a: usize, b: usize) -> bool {
        self.awaited.contains(a, b)
    }

    fn round_of(&self, a: usize, b: usize) -> u64 {
        let player = |site: usize| usize::from(self.players[site]);
        self.rounds.round(player(a), player(b)) as u64
    }

    /// For how many rounds a due pair has been due.
    pub(super) fn age(&self, a: usize, b: usize) -> u64 {
        let count = self.rounds.count() as u64;
        (self.opened + count - 1 - self.round_of(a, b)) % count
    }

    /// In which cycle a pair was due last.
    pub(super) fn cycle_of(&self, a: usize, b: usize) -> u64 {
        (self.opened - 1 - self.age(a, b)) / self.rounds.count() as u64
    }

    /// The cycle that is going on.
    pub(super) fn cycle(&self) -> u64 {
        self.opened.saturating_sub(1) / self.rounds.count() as u64
    }

    /// When the cycle began.
    pub(super) fn began(&self) -> Nanos {
        self.began
    }

    /// A pair is being measured.
    pub(super) fn begin(&mut self, a: usize, b: usize) {
        self.stop_waiting(a, b);
        self.due.remove(a, b);
    }

    /// It was not measured: it is due again.
    pub(super) fn give_back(&mut self, a: usize, b: usize) {
        self.due.insert(a, b);
        self.is_lame = true;
    }

    fn stop_waiting(&mut self, a: usize, b: usize) {
        if self.awaited.remove(a, b) {
            let age = self.age(a, b) as usize;
            let place = self.left.len() - 1 - age;
            self.left[place] -= 1;
        }
    }

    /// A site cannot be tested now: no round waits for it.
    pub(super) fn excuse(&mut self, site: usize) {
        let partners: Vec<usize> = members(self.awaited.row(site).iter().copied()).collect();
        self.is_lame |= !partners.is_empty();
        for partner in partners {
            self.stop_waiting(site, partner);
        }
    }

    /// Forgets rounds that nobody waits for. Whether a round is to be opened now; `present` are the sites
    /// that are there.
    pub(super) fn wants_round(&mut self, now: Nanos, present: &[u64]) -> bool {
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

    /// A round waits for a pair.
    pub(super) fn is_waiting(&self) -> bool {
        self.left.iter().any(|left| *left > 0)
    }

    /// All rounds of the cycle are over: what is due still can be made up.
    pub(super) fn is_ending(&self) -> bool {
        self.is_whole() && self.left.is_empty()
    }

    /// When the next cycle may begin, if that is what comes next.
    fn next_round_at(&self, present: &[u64]) -> Option<Nanos> {
        if !self.is_whole() || !self.is_begun {
            return None;
        }
        if !self.is_lame {
            return Some(self.began + self.every);
        }
        // Where not all take part, the others would run through empty cycles.
        let least = self.began + self.every.max(self.takes);
        if !self.has_backlog(present) {
            return Some(least);
        }
        Some(least.max(self.ending_since.unwrap_or(self.began) + self.makes_up))
    }

    /// Whether two of these sites have something to make up.
    fn has_backlog(&self, present: &[u64]) -> bool {
        members(present.iter().copied()).any(|site| {
            let rows = self.due.row(site).iter().zip(self.awaited.row(site));
            let mut rows = rows.zip(present);
            rows.any(|((due, awaited), present)| due & !awaited & present != 0)
        })
    }

    /// When a round can be opened, if only time is what it waits for.
    pub(super) fn poll_timeout(&self, present: &[u64]) -> Option<Nanos> {
        if self.has_room() {
            self.next_round_at(present)
        } else {
            None
        }
    }

    /// Opens the next round. `awaits` says for which pairs it waits; `missed` is told of the pairs that
    /// are due still.
    pub(super) fn open(
        &mut self,
        now: Nanos,
        present: &[u64],
        awaits: impl Fn(usize, usize) -> bool,
        mut missed: impl FnMut(&Self, usize, usize),
    ) {
        if let Some(at) = self.next_round_at(present) {
            // A cycle that is late moves those after it.
            let is_late = at + self.every <= now;
            self.began = if self.every.0 == 0 || is_late {
                now
            } else {
                at
            };
            self.is_lame = false;
        }
        self.is_begun = true;
        self.ending_since = None;
        let round = self.opened % self.rounds.count() as u64;
        let mut left = 0;
        for (player, other) in self.rounds.pairs(round as usize) {
            let (a, b) = (
                usize::from(self.sites[player]),
                usize::from(self.sites[other]),
            );
            if self.due.contains(a, b) {
                missed(self, a, b);
            }
            self.due.insert(a, b);
            if awaits(a, b) {
                self.awaited.insert(a, b);
                left += 1;
            } else {
                self.is_lame = true;
            }
        }
        self.opened += 1;
        self.left.push_back(left);
    }

    /// Opens what is left of the cycle, and waits for none of it.
    pub(super) fn open_all(&mut self, now: Nanos) {
        let count = self.rounds.count() as u64;
        while !self.is_begun || !self.opened.is_multiple_of(count) {
            self.open(now, &[], |_, _| false, |_, _, _| ());
        }
    }

    /// A pair that the oldest round waits for.
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
            let partners = members(self.due.row(a).iter().copied());
            partners.filter(move |b| a < *b).map(move |b| (a, b))
        })
    }

    /// Bytes of memory.
    pub(super) fn bytes(&self) -> usize {
        self.due.bytes() + self.awaited.bytes() + 2 * (self.sites.len() + self.players.len())
    }
}

/// Rounds that are open at a time. Of bandwidth tests one: nobody begins a pair of the next round before all
/// of this one have begun. Simulated with tests that take 1 to 1.3 of their time, that is 2 % longer than
/// the least possible with 10 sites and 5 % with 100. With two and more, sites whose partners are late take
/// pairs of later rounds, and at the end of a cycle too few are left to fill the slots: 20 to 60 %.
fn look_ahead(rounds: usize, at_once: usize) -> usize {
    let open = if at_once == 1 { 1 } else { 2 * at_once };
    open.min(rounds.saturating_sub(1)).max(1)
}
