//! What tests have for themselves: sites, and the links that several sites share.

use linerate_core::monitor::MonitoredWork;
use linerate_core::plan::Direction;

use crate::plan::Mesh;

/// Which way a test fills a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// From the one site to the other.
    There,
    /// From the other to the one.
    Back,
    /// Each way.
    Both,
}

/// Which ways each shared link is filled.
#[derive(Debug, Clone)]
pub(super) struct Links {
    /// Of each site.
    of_site: Vec<Vec<u16>>,
    /// Of each group.
    members: Vec<Vec<u16>>,
    each_way: Vec<bool>,
    busy: Vec<u8>,
}

impl Way {
    pub(super) fn new(work: &MonitoredWork) -> Self {
        match work {
            MonitoredWork::Test(test) => match test.direction {
                Direction::Up => Self::There,
                Direction::Down => Self::Back,
                Direction::Both => Self::Both,
            },
            MonitoredWork::Load(_) | MonitoredWork::Check(_) => Self::Both,
        }
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
        let of_site = mesh.sites.iter();
        let of_site = of_site.map(|site| site.groups.iter().map(|group| *group as u16).collect());
        Self {
            of_site: of_site.collect(),
            members,
            each_way: mesh.groups.iter().map(|group| group.each_way).collect(),
            busy: vec![0; mesh.groups.len()],
        }
    }

    /// Whether a test between two sites finds its links free.
    pub(super) fn are_free(&self, from: usize, to: usize, way: Way) -> bool {
        self.uses(from, to, way)
            .all(|(group, bits)| self.busy[group] & bits == 0)
    }

    pub(super) fn take(&mut self, from: usize, to: usize, way: Way) {
        for (group, bits) in self.uses(from, to, way).collect::<Vec<_>>() {
            self.busy[group] |= bits;
        }
    }

    /// Gives the links back: those groups.
    pub(super) fn free(&mut self, from: usize, to: usize, way: Way) -> Vec<usize> {
        let used: Vec<_> = self.uses(from, to, way).collect();
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
        one.0 == other.0
            || one.0 == other.1
            || one.1 == other.0
            || one.1 == other.1
            || groups(one).any(|group| groups(other).any(|it| it == group))
    }

    fn uses(&self, from: usize, to: usize, way: Way) -> impl Iterator<Item = (usize, u8)> {
        let (of_from, of_to) = match way {
            Way::There => (OUT, IN),
            Way::Back => (IN, OUT),
            Way::Both => (OUT | IN, OUT | IN),
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

const OUT: u8 = 1;
const IN: u8 = 2;
