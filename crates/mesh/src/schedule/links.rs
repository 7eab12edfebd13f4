//! The links that several sites share, and which of them bandwidth tests fill.

use linerate_core::monitor::MonitoredWork;
use linerate_core::plan::Direction;

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
