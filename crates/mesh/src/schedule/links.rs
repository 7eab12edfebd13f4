//! What bandwidth tests use up: the links that several sites share, and budgets of bytes; and sets
//! of sites and of pairs.

use linerate_core::monitor::MonitoredWork;
use linerate_core::plan::Direction;
use linerate_core::units::Nanos;

use crate::plan::Mesh;

/// The shared links: one for each group.
#[derive(Debug, Clone)]
pub(super) struct Links {
    /// The groups of each site.
    of_site: Vec<Vec<u16>>,
    /// The sites of each group.
    members: Vec<Vec<u16>>,
    each_way: Vec<bool>,
    /// The directions of each link that tests fill: [`OUT`] and [`IN`].
    busy: Vec<u8>,
}

/// The direction in which a workload fills links, as seen from its first site.
pub(super) fn direction(work: &MonitoredWork) -> Direction {
    match work {
        MonitoredWork::Test(test) => test.direction,
        MonitoredWork::Load(_) | MonitoredWork::Check(_) => Direction::Both,
    }
}

impl Links {
    pub(super) fn new(mesh: &Mesh) -> Self {
        let mut members = vec![Vec::new(); mesh.groups.len()];
        for (site, it) in mesh.sites.iter().enumerate() {
            for group in &it.groups {
                members[*group].push(site as u16);
            }
        }
        let sites = mesh.sites.iter();
        let of_site = sites.map(|site| site.groups.iter().map(|group| *group as u16).collect());
        Self {
            of_site: of_site.collect(),
            members,
            each_way: mesh.groups.iter().map(|group| group.each_way).collect(),
            busy: vec![0; mesh.groups.len()],
        }
    }

    /// Whether the links of a test between two sites are free.
    pub(super) fn are_free(&self, from: usize, to: usize, direction: Direction) -> bool {
        self.uses(from, to, direction).all(|(group, bits)| self.busy[group] & bits == 0)
    }

    pub(super) fn take(&mut self, from: usize, to: usize, direction: Direction) {
        for (group, bits) in self.uses(from, to, direction).collect::<Vec<_>>() {
            self.busy[group] |= bits;
        }
    }

    /// Frees the links of a test, and returns their groups.
    pub(super) fn free(&mut self, from: usize, to: usize, direction: Direction) -> Vec<usize> {
        let used: Vec<_> = self.uses(from, to, direction).collect();
        for (group, bits) in &used {
            self.busy[*group] &= !bits;
        }
        used.into_iter().map(|(group, _)| group).collect()
    }

    pub(super) fn members(&self, group: usize) -> &[u16] {
        &self.members[group]
    }

    /// Whether two pairs of sites share a link or a site.
    pub(super) fn share(&self, one: (usize, usize), other: (usize, usize)) -> bool {
        let groups =
            |pair: (usize, usize)| self.of_site[pair.0].iter().chain(&self.of_site[pair.1]);
        [one.0, one.1].contains(&other.0)
            || [one.0, one.1].contains(&other.1)
            || groups(one).any(|group| groups(other).any(|it| it == group))
    }

    /// The groups whose links a test fills, and in which directions.
    fn uses(
        &self,
        from: usize,
        to: usize,
        direction: Direction,
    ) -> impl Iterator<Item = (usize, u8)> {
        let (of_from, of_to) = match direction {
            Direction::Up => (OUT, IN),
            Direction::Down => (IN, OUT),
            Direction::Both => (OUT | IN, OUT | IN),
        };
        let ends = [(from, of_from), (to, of_to)].into_iter();
        ends.flat_map(move |(site, bits)| {
            self.of_site[site].iter().map(move |group| {
                let group = usize::from(*group);
                (group, if self.each_way[group] { bits } else { OUT | IN })
            })
        })
    }
}

/// Out of the group's sites.
const OUT: u8 = 1;
/// Into the group's sites.
const IN: u8 = 2;

// Budgets of bytes, with what was carried in the last 24 hours.

/// A budget of bytes in any 24 hours, and what is used of it.
#[derive(Debug, Clone, Default)]
pub(super) struct Ledger {
    budget: u64,
    /// Bytes of each hour.
    hours: [u64; HOURS],
    /// The last hour that has an entry.
    hour: u64,
    /// The most that tests under way may still carry.
    reserved: u64,
}

impl Ledger {
    pub(super) fn new(budget: u64) -> Self {
        Self { budget, ..Self::default() }
    }

    /// Whether the budget has room for that many bytes.
    pub(super) fn has_room(&self, now: Nanos, bytes: u64) -> bool {
        let current = now.0 / HOUR.0;
        // The hour that began more than 24 hours ago and ended less counts whole.
        let hours = self.hours.iter().enumerate();
        let counted = hours.filter(|(place, _)| self.hour_at(*place) + HOURS as u64 > current);
        let carried: u64 = counted.map(|(_, bytes)| bytes).sum();
        let after = carried.saturating_add(self.reserved).saturating_add(bytes);
        after <= self.budget
    }

    /// The hour of the entry at a place: the last one that has this place.
    fn hour_at(&self, place: usize) -> u64 {
        let behind = (self.hour as usize + HOURS - place) % HOURS;
        self.hour.saturating_sub(behind as u64)
    }

    pub(super) fn reserve(&mut self, bytes: u64) {
        self.reserved = self.reserved.saturating_add(bytes);
    }

    /// Enters the bytes that a test has carried, in place of those that were reserved for it.
    pub(super) fn carried(&mut self, at: Nanos, reserved: u64, bytes: u64) {
        self.reserved = self.reserved.saturating_sub(reserved);
        let hour = at.0 / HOUR.0;
        if hour > self.hour {
            let gone = (hour - self.hour).min(HOURS as u64);
            for later in 1..=gone {
                self.hours[((hour - gone + later) % HOURS as u64) as usize] = 0;
            }
            self.hour = hour;
        }
        // Bytes of more than a day ago no longer count.
        if hour + HOURS as u64 > self.hour {
            let place = (hour % HOURS as u64) as usize;
            self.hours[place] = self.hours[place].saturating_add(bytes);
        }
    }
}

/// Hours that are kept: any 24 hours lie within 25 of the clock.
const HOURS: usize = 25;
/// Length of an entry.
pub(super) const HOUR: Nanos = Nanos(3_600_000_000_000);

// Sets of sites and of pairs of sites, a bit for each.

/// A set of sites.
#[derive(Debug, Clone)]
pub(super) struct SiteSet(Vec<u64>);

impl SiteSet {
    /// The empty set, with room for that many sites.
    pub(super) fn new(sites: usize) -> Self {
        Self(vec![0; sites.div_ceil(64)])
    }

    pub(super) fn contains(&self, site: usize) -> bool {
        self.0[site / 64] >> (site % 64) & 1 == 1
    }

    /// Puts a site in, or takes it out.
    pub(super) fn set(&mut self, site: usize, is_in: bool) {
        let (word, bit) = (&mut self.0[site / 64], 1 << (site % 64));
        *word = if is_in { *word | bit } else { *word & !bit };
    }

    pub(super) fn len(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = usize> {
        members(self.words())
    }

    pub(super) fn words(&self) -> impl Iterator<Item = u64> {
        self.0.iter().copied()
    }
}

/// A set of unordered pairs: for each site the set of its partners.
#[derive(Debug, Clone)]
pub(super) struct PairSet(Vec<SiteSet>);

impl PairSet {
    /// The empty set, with room for all pairs of that many sites.
    pub(super) fn new(sites: usize) -> Self {
        Self(vec![SiteSet::new(sites); sites])
    }

    pub(super) fn contains(&self, a: usize, b: usize) -> bool {
        self.0[a].contains(b)
    }

    /// Puts a pair in, or takes it out; whether that changed the set.
    pub(super) fn set(&mut self, a: usize, b: usize, is_in: bool) -> bool {
        let is_changed = self.contains(a, b) != is_in;
        self.0[a].set(b, is_in);
        self.0[b].set(a, is_in);
        is_changed
    }

    pub(super) fn partners(&self, site: usize) -> &SiteSet {
        &self.0[site]
    }

    /// Bytes of memory.
    pub(super) fn bytes(&self) -> usize {
        let of_set = |set: &SiteSet| size_of::<SiteSet>() + 8 * set.0.len();
        self.0.iter().map(of_set).sum()
    }
}

/// The sites of a set's words.
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

    fn hours(number: u64) -> Nanos {
        Nanos(number * HOUR.0)
    }

    #[test]
    fn bytes_count_for_24_hours() {
        let mut ledger = Ledger::new(100);
        assert!(ledger.has_room(hours(1000), 100));
        ledger.reserve(60);
        assert!(!ledger.has_room(hours(1000), 41));
        ledger.carried(hours(1000), 60, 50);
        assert!(ledger.has_room(hours(1000), 50) && !ledger.has_room(hours(1024), 51));
        assert!(ledger.has_room(hours(1025), 100));
        ledger.carried(hours(1010), 0, 50);
        assert!(!ledger.has_room(hours(1024), 1) && ledger.has_room(hours(1025), 50));
        ledger.carried(hours(2000), 0, 1);
        assert!(ledger.has_room(hours(2000), 99) && !ledger.has_room(hours(2000), 100));
        // A clock that is set back makes no room.
        assert!(!ledger.has_room(hours(1990), 100));
    }
}
