//! What a mesh is: its sites, what they share, what is measured between them.

mod file;
#[cfg(test)]
mod tests;

use linerate_core::monitor::MonitoredWork;
use linerate_core::units::{BitRate, EndpointName, Nanos};

pub(crate) use file::commands;
pub use file::{MeshError, MeshProblem};

/// What is measured between all sites, with nothing left to choose.
#[derive(Debug, Clone, PartialEq)]
pub struct Mesh {
    /// At least two, at most [`MAX_SITES`].
    pub sites: Vec<Site>,
    /// What several sites share.
    pub groups: Vec<Group>,
    /// At least one, at most [`MAX_TESTS`].
    pub tests: Vec<MeshTest>,
    /// What all bandwidth tests may carry in any 24 hours, bytes.
    pub bytes_per_day: Option<u64>,
    /// How long results are kept, seconds; `None` is for ever.
    pub keep_s: Option<u64>,
    /// Where the results are saved, as with `--db`.
    pub db: Option<String>,
}

/// A place that is measured from and to.
#[derive(Debug, Clone, PartialEq)]
pub struct Site {
    /// What it is called; no other site and no group has the name.
    pub name: String,
    /// Its endpoint, as the other sites reach it; `None` is one that only reaches others.
    pub host: Option<EndpointName>,
    /// Saved with each result.
    pub labels: Vec<(String, String)>,
    /// Indexes of its groups.
    pub groups: Vec<usize>,
    /// The commands that it runs; empty is all.
    pub can: Vec<String>,
    /// What its link carries.
    pub rate: Option<BitRate>,
    /// What bandwidth tests of this site may carry in any 24 hours, bytes.
    pub bytes_per_day: Option<u64>,
    /// The share (0–1) of time that it may be in bandwidth tests.
    pub share_of_time: f64,
}

/// A link that several sites share: no two bandwidth tests use it at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// What it is called.
    pub name: String,
    /// One test may send into it while another sends out of it.
    pub each_way: bool,
}

/// What is measured between the sites.
#[derive(Debug, Clone, PartialEq)]
pub struct MeshTest {
    /// What it is called; no other has the name.
    pub name: String,
    /// What it does.
    pub work: MonitoredWork,
    /// Its command: `stream`, `rr`, `crr`, `load` or `check`.
    pub command: String,
    /// Whether it fills links or only asks.
    pub kind: TestKind,
    /// Between which sites: indexes, in order.
    pub sites: Vec<usize>,
    /// From the beginning of one cycle over all pairs to that of the next, seconds; 0 is one after the
    /// other.
    pub every_s: u64,
    /// Of two tests that both could run, one of priority 4 has twice the time of one of priority 2.
    pub priority: u32,
}

/// What a test asks of the sites.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TestKind {
    /// It fills links: a site is in one at a time.
    Bandwidth,
    /// It asks: a site is in so many at a time, whatever else runs.
    Latency {
        /// At most.
        at_once: u32,
    },
}

impl Mesh {
    /// The index of a site.
    pub fn site(&self, name: &str) -> Option<usize> {
        self.sites.iter().position(|site| site.name == name)
    }

    /// What a run of a test between two sites carries at most, bytes; `None` if that is not known.
    pub fn most_bytes(&self, test: &MeshTest, a: usize, b: usize) -> Option<u64> {
        let rates = [self.sites[a].rate, self.sites[b].rate];
        let rate = rates.into_iter().flatten().min_by_key(|rate| rate.0);
        test.work.most_bytes(rate)
    }
}

impl MeshTest {
    /// How long a run takes when nothing delays it.
    pub fn takes(&self) -> Nanos {
        Nanos::from_millis(self.work.seconds() * 1000)
    }

    /// How long a run may take from its beginning: a test that takes longer has failed.
    pub fn lasts_at_most(&self) -> Nanos {
        Nanos::from_millis(self.work.seconds() * 1500 + 5000)
    }
}

/// Sites of one mesh at most.
pub const MAX_SITES: usize = 3000;
/// Groups of one mesh at most.
pub const MAX_GROUPS: usize = 3000;
/// Groups of one site at most.
pub const MAX_GROUPS_OF_SITE: usize = 8;
/// Tests of one mesh at most.
pub const MAX_TESTS: usize = 16;
/// Latency tests that a site is in at once, unless the file says otherwise.
pub const DEFAULT_AT_ONCE: u32 = 8;
