//! A mesh: its sites, the links that they share, and the tests between them.

#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};

use linerate_core::monitor::keys::{
    bytes, check_budget, is_name, keep, labels, link, name, whole_seconds,
};
use linerate_core::monitor::{MonitoredWork, work};
use linerate_core::toml_reader::{self, At, Fault, FileError, Section, check_names};
use linerate_core::units::{BitRate, EndpointName, Nanos, Percent};

use crate::message::is_site;

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
    /// Reads a mesh from the text of a file. `seed` seeds the random choices of its tests.
    ///
    /// | table | key | value |
    /// |---|---|---|
    /// | the file | `bytes-per-day` | payload of all bandwidth tests in any 24 hours: `"1TB"` |
    /// | | `keep` | how long results are kept: `"90d"`; default: for ever |
    /// | | `db` | the history, as with `--db`: a file beside this one, or `"postgres://…"` |
    /// | `[[site]]` | `name` | required |
    /// | | `host` | where the other sites reach its endpoint: `host:port`; default: nowhere |
    /// | | `labels` | saved with each result: `{ region = "north" }` |
    /// | | `groups` | the links that it shares with other sites: `["uplink-7"]` |
    /// | | `can` | the commands that it runs: `["stream", "rr"]`; default: all |
    /// | | `rate`, `share` | capacity of its link, and the part that tests may take: `"1%"` |
    /// | | `bytes-per-day` | payload of this site's bandwidth tests in any 24 hours |
    /// | | `share-of-time` | the part of the time in which it may be in bandwidth tests: `"10%"` |
    /// | `[[group]]` | `name` | one of the names in `groups`; a group without a table has `ways = "both"` |
    /// | | `ways` | `both`: one test at a time; `each`: one into it and one out of it |
    /// | `[[test]]` | `name` | required |
    /// | | `workload` | `command`: `check`, `stream`, `rr`, `crr` or `load`, and its long options |
    /// | | `every` | time from one cycle to the next: `"24h"`; default: without a pause |
    /// | | `sites` | names of sites and groups; default: all sites |
    /// | | `priority` | 1 to 10; where two tests could run, one of 2 has twice the time of one of 1 |
    /// | | `at-once` | `rr` alone: tests at once at a site, 1 to 64; default: 8 |
    ///
    /// A test of `rr` is a latency test; all others are bandwidth tests.
    ///
    /// # Errors
    /// The first mistake, with its line and column.
    pub fn from_toml(text: &str, seed: u64) -> Result<Self, FileError> {
        read(text, seed).map_err(|fault| fault.located(text))
    }

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

fn read(text: &str, seed: u64) -> Result<Mesh, Fault> {
    let table = toml_reader::parse_at_most(text, MAX_BYTES)?;
    let root = Section::new("the file", 0, table.get_ref(), KEYS)?;
    let sections = root.sections("site", "[[site]]", SITE_KEYS)?;
    if !(2..=MAX_SITES).contains(&sections.len()) {
        let what = format!("{} sites", sections.len());
        return Fault::contradiction(root.offset, what, "a mesh has 2 to 3000 tables [[site]]");
    }
    let (mut groups, stated) = groups(&root)?;
    let read = sections.iter().map(|section| site(section, &mut groups));
    let sites = read.collect::<Result<Vec<_>, _>>()?;
    check_names("sites", &sections, sites.iter().map(|it| it.name.as_str()))?;
    check_groups(&sites, &groups.list, &sections, &stated)?;
    let mesh = Mesh {
        bytes_per_day: bytes(&root)?,
        keep_s: keep(&root)?,
        db: root.string("db")?.map(|at| at.value.to_owned()),
        tests: tests(&root, &sites, &groups, seed)?,
        groups: groups.list,
        sites,
    };
    check_budgets(&mesh, &root)?;
    Ok(mesh)
}

/// The groups so far, and the index of each name.
#[derive(Default)]
struct Groups {
    list: Vec<Group>,
    indexes: HashMap<String, usize>,
}

impl Groups {
    /// The index of the group of that name, which is added if it is new.
    fn index(&mut self, name: &str) -> usize {
        if let Some(index) = self.indexes.get(name) {
            return *index;
        }
        let index = self.list.len();
        self.list.push(Group { name: name.to_owned(), each_way: false });
        self.indexes.insert(name.to_owned(), index);
        index
    }
}

/// The groups that have a table, and the offsets of their tables.
fn groups(root: &Section<'_>) -> Result<(Groups, Vec<usize>), Fault> {
    let sections = root.sections("group", "[[group]]", GROUP_KEYS)?;
    let mut groups = Groups::default();
    for section in &sections {
        let name = name(section)?;
        if groups.indexes.contains_key(&name) {
            return Fault::repeated(section.offset, "groups", &name);
        }
        let index = groups.index(&name);
        let ways = [("both", false), ("each", true)];
        let each_way = section.choice("ways", "number of ways", &ways)?;
        groups.list[index].each_way = each_way.unwrap_or(false);
    }
    let offsets = sections.iter().map(|section| section.offset).collect();
    Ok((groups, offsets))
}

fn site(section: &Section<'_>, groups: &mut Groups) -> Result<Site, Fault> {
    let name = name(section)?;
    if !is_site(&name) {
        let what = format!("a site is called `{name}`");
        return Fault::contradiction(section.offset, what, NOT_A_SITE);
    }
    let mut own = Vec::new();
    for at in section.strings("groups")?.unwrap_or_default() {
        if !is_name(at.value) {
            let hint = "write 1 to 64 letters, digits, -, _ and .";
            return Fault::malformed(at, "name of a group", hint);
        }
        let group = groups.index(at.value);
        if own.contains(&group) || own.len() == MAX_GROUPS_OF_SITE || group >= MAX_GROUPS {
            return Fault::malformed(at, "group more", "a site has 8 groups at most, each once");
        }
        own.push(group);
    }
    let (rate, bytes_per_day) = link(section)?;
    let hint = "write \"0.01%\" to \"100%\"";
    let is_share = |share: &Percent| (0.01..=100.0).contains(&share.0);
    let share = section.parsed("share-of-time", "share of time", hint, is_share)?;
    Ok(Site {
        name,
        host: section.parsed("host", "host", HOST_HINT, |_| true)?,
        labels: labels(section, &OWN_LABELS)?,
        groups: own,
        can: commands(section)?,
        rate,
        bytes_per_day,
        share_of_time: share.map_or(1.0, |share| share.0 / 100.0),
    })
}

/// `can`: the commands that a site runs.
pub(crate) fn commands(section: &Section<'_>) -> Result<Vec<String>, Fault> {
    let words = COMMANDS.map(|command| (command, command));
    let names = section.strings("can")?.unwrap_or_default().into_iter();
    let named = |at: At<&str>| Ok(at.choice("command", &words)?.to_owned());
    names.map(named).collect()
}

/// Refuses a name that is both a site's and a group's, and a table of a group that no site has.
fn check_groups(
    sites: &[Site],
    groups: &[Group],
    sections: &[Section<'_>],
    stated: &[usize],
) -> Result<(), Fault> {
    let names: HashSet<&str> = groups.iter().map(|group| group.name.as_str()).collect();
    for (site, section) in sites.iter().zip(sections) {
        if names.contains(site.name.as_str()) {
            let what = format!("`{}` is a site and a group", site.name);
            return Fault::contradiction(section.offset, what, "give one of them another name");
        }
    }
    let used: HashSet<&usize> = sites.iter().flat_map(|site| &site.groups).collect();
    for (group, offset) in stated.iter().enumerate() {
        if !used.contains(&group) {
            let what = format!("no site has the group `{}`", groups[group].name);
            return Fault::contradiction(*offset, what, "name it in `groups` of its sites");
        }
    }
    Ok(())
}

fn tests(
    root: &Section<'_>,
    sites: &[Site],
    groups: &Groups,
    seed: u64,
) -> Result<Vec<MeshTest>, Fault> {
    let sections = root.sections("test", "[[test]]", TEST_KEYS)?;
    if !(1..=MAX_TESTS).contains(&sections.len()) {
        let what = format!("{} tests", sections.len());
        return Fault::contradiction(root.offset, what, "a mesh has 1 to 16 tables [[test]]");
    }
    let named = sites.iter().enumerate();
    let indexes = named.map(|(index, site)| (site.name.as_str(), index)).collect();
    let test = |section| test(section, sites, &indexes, groups, seed);
    let tests = sections.iter().map(test).collect::<Result<Vec<_>, _>>()?;
    check_names("tests", &sections, tests.iter().map(|it| it.name.as_str()))?;
    Ok(tests)
}

fn test(
    section: &Section<'_>,
    sites: &[Site],
    indexes: &HashMap<&str, usize>,
    groups: &Groups,
    seed: u64,
) -> Result<MeshTest, Fault> {
    let name = name(section)?;
    let work = work(section, seed)?;
    let command = work.command().to_owned();
    let mut chosen: Vec<usize> = match section.strings("sites")? {
        None => (0..sites.len()).collect(),
        Some(names) => chosen(&names, sites, indexes, groups)?,
    };
    chosen.retain(|site| sites[*site].can.is_empty() || sites[*site].can.contains(&command));
    if chosen.len() < 2 {
        let what = format!("`{name}` is for {} of the sites", chosen.len());
        return Fault::contradiction(section.offset, what, "it needs two that run its command");
    }
    let every = section.string("every")?;
    let every =
        every.map(|at| whole_seconds(at, "time between cycles", 1, "write \"1s\" to \"720h\""));
    Ok(MeshTest {
        name,
        kind: kind(section, &command)?,
        work,
        command,
        sites: chosen,
        every_s: every.transpose()?.unwrap_or(0),
        priority: section.number("priority", 1..=10)?.unwrap_or(1),
    })
}

/// The indexes of the sites that a list of sites and groups names, in order.
fn chosen(
    names: &[At<&str>],
    sites: &[Site],
    indexes: &HashMap<&str, usize>,
    groups: &Groups,
) -> Result<Vec<usize>, Fault> {
    let mut chosen = Vec::new();
    for at in names {
        match (indexes.get(at.value), groups.indexes.get(at.value)) {
            (Some(site), _) => chosen.push(*site),
            (None, Some(group)) => {
                chosen.extend((0..sites.len()).filter(|it| sites[*it].groups.contains(group)));
            }
            (None, None) => {
                return Fault::malformed(*at, "site or group", "each site has a table [[site]]");
            }
        }
    }
    chosen.sort_unstable();
    chosen.dedup();
    Ok(chosen)
}

fn kind(section: &Section<'_>, command: &str) -> Result<TestKind, Fault> {
    let at_once = section.number("at-once", 1..=64)?;
    match (command, at_once) {
        ("rr", at_once) => Ok(TestKind::Latency { at_once: at_once.unwrap_or(DEFAULT_AT_ONCE) }),
        (_, None) => Ok(TestKind::Bandwidth),
        (_, Some(_)) => {
            let what = format!("`at-once` with `{command}`");
            let hint = "a site is in one bandwidth test at a time";
            Fault::contradiction(section.offset_of("at-once"), what, hint)
        }
    }
}

fn check_budgets(mesh: &Mesh, root: &Section<'_>) -> Result<(), Fault> {
    let sections = root.sections("test", "[[test]]", TEST_KEYS)?;
    let tests = mesh.tests.iter().zip(&sections);
    for (test, section) in tests.filter(|(test, _)| test.kind == TestKind::Bandwidth) {
        for own in test.sites.iter().map(|site| &mesh.sites[*site]) {
            let run = format_args!("`{}` at `{}`", test.name, own.name);
            let budgets = [own.bytes_per_day, mesh.bytes_per_day];
            check_budget(section, run, test.work.most_bytes(own.rate), budgets)?;
        }
    }
    Ok(())
}

/// Most sites of a mesh.
pub const MAX_SITES: usize = 3000;
/// Most groups of a mesh.
pub const MAX_GROUPS: usize = 3000;
/// Most groups of a site.
const MAX_GROUPS_OF_SITE: usize = 8;
/// Most tests of a mesh.
pub const MAX_TESTS: usize = 16;
/// Latency tests at once at a site, unless the file says otherwise.
pub const DEFAULT_AT_ONCE: u32 = 8;
const KEYS: &str = "bytes-per-day keep db site group test";
const SITE_KEYS: &str = "name host labels groups can rate share bytes-per-day share-of-time";
const GROUP_KEYS: &str = "name ways";
const TEST_KEYS: &str = "name workload every sites priority at-once";
const NOT_A_SITE: &str = "give it a letter or a digit; `coordinator` is another part of the mesh";
const HOST_HINT: &str = "write host, host:port or [v6]:port";
const COMMANDS: [&str; 5] = ["check", "stream", "rr", "crr", "load"];
/// The labels that linerate itself gives each result.
const OWN_LABELS: [&str; 8] = ["test", "path", "from", "to", "mesh", "figure", "cause", "instance"];
/// Longest file, bytes: 3,000 sites in 2 KiB each, and their tests.
const MAX_BYTES: usize = 8 << 20;
