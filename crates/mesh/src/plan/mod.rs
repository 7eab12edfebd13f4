//! A mesh: its sites, the links that they share, and the tests between them.

mod file;
#[cfg(test)]
mod tests;

use linerate_core::monitor::MonitoredWork;
use linerate_core::units::{BitRate, EndpointName, Nanos};

pub use file::MeshError;
pub(crate) use file::commands;

/// Sites and the tests between them, read from a file with every default filled in.
#[derive(Debug, Clone, PartialEq)]
pub struct Mesh {
    /// At least two, at most [`MAX_SITES`].
    pub sites: Vec<Site>,
    /// Links that several sites share.
    pub groups: Vec<Group>,
    /// At least one, at most [`MAX_TESTS`].
    pub tests: Vec<MeshTest>,
    /// Budget of all bandwidth tests in any 24 hours, bytes.
    pub bytes_per_day: Option<u64>,
    /// How long results are kept, seconds; `None`: for ever.
    pub keep_s: Option<u64>,
    /// Where the results are saved, as with `--db`.
    pub db: Option<String>,
}

/// A host with an agent that runs tests, and an endpoint that serves them.
#[derive(Debug, Clone, PartialEq)]
pub struct Site {
    /// Its name; no other site and no group has it.
    pub name: String,
    /// Where the other sites reach its endpoint; `None`: they cannot, and only it connects to them.
    pub host: Option<EndpointName>,
    /// Labels that are saved with each result.
    pub labels: Vec<(String, String)>,
    /// Indexes of its groups in [`Mesh::groups`].
    pub groups: Vec<usize>,
    /// The commands that it runs; empty: all.
    pub can: Vec<String>,
    /// Capacity of its link.
    pub rate: Option<BitRate>,
    /// Budget of its bandwidth tests in any 24 hours, bytes.
    pub bytes_per_day: Option<u64>,
    /// The share (0–1) of the time in which it may be in bandwidth tests.
    pub share_of_time: f64,
}

/// A link that several sites share: no two bandwidth tests use it at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// Its name.
    pub name: String,
    /// Whether one test may send into it while another sends out of it.
    pub each_way: bool,
}

/// A test that is run between all pairs of some sites.
#[derive(Debug, Clone, PartialEq)]
pub struct MeshTest {
    /// Its name; no other test has it.
    pub name: String,
    /// The workload.
    pub work: MonitoredWork,
    /// The command of the workload: `stream`, `rr`, `crr`, `load` or `check`.
    pub command: String,
    /// Whether it fills links or measures latency.
    pub kind: TestKind,
    /// Indexes of its sites in [`Mesh::sites`], ascending.
    pub sites: Vec<usize>,
    /// Time from the beginning of one cycle over all pairs to the beginning of the next, seconds;
    /// 0: cycles follow each other without a pause.
    pub every_s: u64,
    /// 1 to 10: where two tests could run, one of priority 4 has twice the time of one of priority
    /// 2.
    pub priority: u32,
}

/// What a test occupies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TestKind {
    /// It fills links: a site runs one at a time.
    Bandwidth,
    /// It measures latency with few packets: a site runs several at a time, whatever else runs.
    Latency {
        /// Most tests at once at a site.
        at_once: u32,
    },
}

impl Mesh {
    /// The index of the site of that name.
    pub fn site(&self, name: &str) -> Option<usize> {
        self.sites.iter().position(|site| site.name == name)
    }

    /// The indexes of a test and of two of its sites by their names.
    pub(crate) fn pair(&self, [test, from, to]: [&str; 3]) -> Option<(usize, usize, usize)> {
        let test = self.tests.iter().position(|it| it.name == test)?;
        let of_test = |name: &str| {
            let site = self.site(name)?;
            self.tests[test].sites.contains(&site).then_some(site)
        };
        Some((test, of_test(from)?, of_test(to)?))
    }
}

impl MeshTest {
    /// Length of a run that nothing delays.
    pub fn duration(&self) -> Nanos {
        Nanos::from_millis(self.work.seconds() * 1000)
    }

    /// Longest that a run may take from its beginning: one that takes longer has failed.
    pub fn max_duration(&self) -> Nanos {
        Nanos::from_millis(self.work.seconds() * 1500 + 5000)
    }
}

/// Most sites of a mesh.
pub const MAX_SITES: usize = 3000;
/// Most groups of a mesh.
pub const MAX_GROUPS: usize = 3000;
/// Most groups of a site.
pub const MAX_GROUPS_OF_SITE: usize = 8;
/// Most tests of a mesh.
pub const MAX_TESTS: usize = 16;
/// Latency tests at once at a site, unless the file says otherwise.
pub const DEFAULT_AT_ONCE: u32 = 8;
