//! Reads the file of a monitor. The format is at [`Monitor::from_toml`].

use std::fmt;
use std::str::FromStr;

use super::keys::{
    QuietHours, bytes, check_budget, keep, labels, link, name, quiet, whole_seconds,
};
use crate::experiment::{Work, workload_of};
use crate::load::Mix;
use crate::plan::{Direction, Extent, Test};
use crate::proof::{PROOF_RUNS, is_provable};
use crate::toml_reader::{self, FAMILIES, Fault, FileError, Section, check_names};
use crate::units::{BitRate, EndpointName, Family, Span};

/// A monitor with every choice made: its paths, tests, schedule and alarm.
#[derive(Debug, Clone, PartialEq)]
pub struct Monitor {
    /// Seed of the jitter.
    pub seed: u64,
    /// The paths; at least one.
    pub paths: Vec<MonitoredPath>,
    /// The tests; at least one.
    pub tests: Vec<MonitoredTest>,
    /// The hours in which nothing runs.
    pub quiet: Vec<QuietHours>,
    /// The bytes that all tests together may carry in any 24 hours.
    pub bytes_per_day: Option<u64>,
    /// Time that runs are kept, seconds; `None` for ever.
    pub keep_s: Option<u64>,
    /// Where a change is reported.
    pub alarm: Alarm,
}

/// A path of a monitor.
#[derive(Debug, Clone, PartialEq)]
pub struct MonitoredPath {
    /// Its unique name.
    pub name: String,
    /// The endpoint.
    pub host: EndpointName,
    /// The address family; `None` for any.
    pub family: Option<Family>,
    /// The file with the endpoint's key.
    pub key_file: Option<String>,
    /// Saved with each run.
    pub labels: Vec<(String, String)>,
    /// Rate of the link.
    pub rate: Option<BitRate>,
    /// The bytes that tests of this path may carry in any 24 hours.
    pub bytes_per_day: Option<u64>,
}

/// A test of a monitor and its interval.
#[derive(Debug, Clone, PartialEq)]
pub struct MonitoredTest {
    /// Its unique name.
    pub name: String,
    /// The work of a run.
    pub work: MonitoredWork,
    /// Indexes of its paths.
    pub paths: Vec<usize>,
    /// Interval between slots, seconds.
    pub every_s: u64,
    /// Largest delay of a run after its slot, seconds.
    pub jitter_s: u64,
    /// The figure whose changes are reported; `None` for the first one.
    pub metric: Option<String>,
}

/// The work of a monitor's test.
#[derive(Debug, Clone, PartialEq)]
pub enum MonitoredWork {
    /// One test.
    Test(Box<Test>),
    /// Several tests at the same time.
    Load(Box<Mix>),
    /// `linerate check`.
    Check(CheckWork),
}

/// The keys of a check.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CheckWork {
    /// Whether it makes one run in each direction.
    pub quick: bool,
    /// Time of each run.
    pub time: Option<Span>,
    /// Flows of each run.
    pub streams: Option<u32>,
}

/// Where a change is reported, and what is done before.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Alarm {
    /// A program and its arguments, which gets the change as JSON on standard input; empty: none.
    pub command: Vec<String>,
    /// The address to which it is posted.
    pub webhook: Option<HttpUrl>,
    /// Whether changed runs prove what limits the path after a change of a bulk test.
    pub prove: bool,
}

/// `http://host:port/path`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpUrl {
    /// `http` or `https`.
    pub scheme: String,
    /// The value of the header `Host`.
    pub authority: String,
    /// The path, from the first slash on.
    pub path: String,
}

impl Monitor {
    /// Reads a monitor from the text of a file. `seed` is for a file that has none.
    ///
    /// | table | key | value |
    /// |---|---|---|
    /// | the file | `seed` | of the jitter; default one of this host |
    /// | | `quiet` | hours of the day, UTC, in which nothing runs: `["22:00-06:00"]` |
    /// | | `bytes-per-day` | what all tests may carry in any 24 hours: `"10GB"` |
    /// | | `keep` | how long the runs are kept: `"90d"`; default for ever |
    /// | `[[path]]` | `name`, `host` | required; the host as `host:port` |
    /// | | `family`, `key-file` | `ipv4` or `ipv6`; the endpoint's key |
    /// | | `labels` | saved with each run: `{ site = "north" }` |
    /// | | `bytes-per-day` | what tests of this path may carry in any 24 hours |
    /// | | `rate`, `share` | what the link carries, and how much of that the tests may take: `"1%"` |
    /// | `[[test]]` | `name`, `every` | required; `"1s"` to `"30d"` as seconds, minutes, hours |
    /// | | `jitter` | later than its slot by this at most; default a tenth of `every` |
    /// | | `paths` | names; default all |
    /// | | `workload` | `command`: `check`, `stream`, `rr`, `crr` or `load`, and its long options |
    /// | | `metric` | the figure whose changes are told; default the first of the run |
    /// | `[alarm]` | `command`, `webhook` | a program with arguments; `"https://host/path"` |
    /// | | `prove` | `false`: no runs that prove what limits a path after a change |
    ///
    /// # Errors
    /// The first thing that is wrong, with its line and column.
    pub fn from_toml(text: &str, seed: u64) -> Result<Self, FileError> {
        read(text, seed).map_err(|fault| fault.located(text))
    }
}

impl MonitoredWork {
    /// The command of the workload.
    pub fn command(&self) -> &'static str {
        match self {
            Self::Test(test) => test.workload().word(),
            Self::Load(_) => "load",
            Self::Check(_) => "check",
        }
    }

    /// Approximate duration of a run, seconds.
    pub fn seconds(&self) -> u64 {
        let seconds = match self {
            Self::Test(test) => seconds(test),
            Self::Load(mix) => mix.seconds() + mix.idle.as_secs_f64(),
            Self::Check(check) if check.quick => 5.0,
            Self::Check(check) => check.time.map_or(20.0, |time| 20.0 * time.as_secs_f64()),
        };
        seconds.ceil() as u64 + 1
    }

    /// The runs whose time and bytes a proof of the bottleneck takes at most; `None` where changes
    /// can prove none.
    pub fn proof_runs(&self) -> Option<u64> {
        match self {
            Self::Test(test) => is_provable(test).then_some(PROOF_RUNS),
            Self::Load(_) => None,
            // A whole check proves it in the time of its plain runs.
            Self::Check(check) => {
                let whole = Self::Check(CheckWork { quick: false, ..check.clone() });
                Some(whole.seconds().div_ceil(self.seconds()))
            }
        }
    }

    /// What a run carries at most over a link of that rate, bytes; `None` if that is not known.
    pub fn most_bytes(&self, rate: Option<BitRate>) -> Option<u64> {
        if let Self::Test(test) = self
            && let Extent::Bytes(bytes) = test.extent
        {
            let flows = u64::from(test.streams) * ways(test);
            return Some(bytes.0.saturating_mul(flows));
        }
        let ways = match self {
            Self::Test(test) => ways(test),
            Self::Load(_) => 2,
            Self::Check(_) => 1,
        };
        let per_second = (rate?.0 / 8).saturating_mul(ways);
        Some(per_second.saturating_mul(self.seconds()))
    }
}

fn ways(test: &Test) -> u64 {
    1 + u64::from(test.direction == Direction::Both)
}

fn seconds(test: &Test) -> f64 {
    let measured = match test.extent {
        Extent::Time(time) => time.as_secs_f64(),
        // Not known: as long as a test is unless told otherwise.
        Extent::Bytes(_) | Extent::Count(_) => 10.0,
    };
    measured + test.warm_up.as_secs_f64()
}

fn read(text: &str, seed: u64) -> Result<Monitor, Fault> {
    let table = toml_reader::parse(text)?;
    let root = Section::new("the file", 0, table.get_ref(), KEYS)?;
    let seed = root.number("seed", 0..=u64::MAX)?.unwrap_or(seed);
    let sections = root.sections("path", "[[path]]", PATH_KEYS)?;
    let paths = sections.iter().map(path).collect::<Result<Vec<_>, _>>()?;
    if paths.is_empty() {
        return Err(root.missing("path", "each in a table [[path]]"));
    }
    let names = paths.iter().map(|path| path.name.as_str());
    check_names("paths", &sections, names)?;
    let sections = root.sections("test", "[[test]]", TEST_KEYS)?;
    let read = sections.iter().map(|section| test(section, &paths, seed));
    let tests = read.collect::<Result<Vec<_>, _>>()?;
    if tests.is_empty() {
        return Err(root.missing("test", "each in a table [[test]]"));
    }
    let names = tests.iter().map(|test| test.name.as_str());
    check_names("tests", &sections, names)?;
    let monitor = Monitor {
        seed,
        quiet: quiet(&root)?,
        bytes_per_day: bytes(&root)?,
        keep_s: keep(&root)?,
        alarm: alarm(&root)?,
        paths,
        tests,
    };
    for (test, section) in monitor.tests.iter().zip(&sections) {
        for path in test.paths.iter().map(|path| &monitor.paths[*path]) {
            let run = format_args!("`{}` on `{}`", test.name, path.name);
            let budgets = [path.bytes_per_day, monitor.bytes_per_day];
            check_budget(section, run, test.work.most_bytes(path.rate), budgets)?;
        }
    }
    Ok(monitor)
}

fn path(section: &Section<'_>) -> Result<MonitoredPath, Fault> {
    let name = name(section)?;
    let host = section.required("host", "where to: host, host:port or [v6]:port")?;
    let (rate, bytes_per_day) = link(section)?;
    Ok(MonitoredPath {
        name,
        host: host.parsed("host", "write host, host:port or [v6]:port", |_| true)?,
        family: section.choice("family", "family", &FAMILIES)?,
        key_file: section.string("key-file")?.map(|at| at.value.to_owned()),
        labels: labels(section, &OWN_LABELS)?,
        rate,
        bytes_per_day,
    })
}

fn test(section: &Section<'_>, paths: &[MonitoredPath], seed: u64) -> Result<MonitoredTest, Fault> {
    let name = name(section)?;
    let every = section.required("every", "how often: \"15min\", \"1h\"")?;
    let every_s = whole_seconds(every, "time between runs", 1, "write \"1s\" to \"720h\"")?;
    let jitter_s = match section.string("jitter")? {
        Some(at) => whole_seconds(at, "jitter", 0, "write \"0s\" to half of `every`")?,
        None => every_s / 10,
    };
    if jitter_s > every_s / 2 {
        let what = format!("`jitter` of `{name}`");
        return Fault::contradiction(section.offset, what, "it may be half of `every` at most");
    }
    let names: Vec<&str> = paths.iter().map(|path| path.name.as_str()).collect();
    let chosen = section.strings("paths")?.map(|chosen| {
        let chosen = chosen.into_iter();
        chosen.map(|at| at.index_in("path", &names)).collect()
    });
    Ok(MonitoredTest {
        name,
        work: work(section, seed)?,
        paths: chosen.unwrap_or_else(|| Ok((0..paths.len()).collect()))?,
        every_s,
        jitter_s,
        metric: section.string("metric")?.map(|at| at.value.to_owned()),
    })
}

/// `workload` of a test.
///
/// # Errors
/// A fault with its place.
pub fn work(section: &Section<'_>, seed: u64) -> Result<MonitoredWork, Fault> {
    let hint = "`{ command = \"check\" }`, stream, rr, crr or load, and its options";
    let command = section.command(hint)?;
    if command.value == "check" {
        let check = section.section("workload", "the workload", "command quick time streams")?;
        return check_work(&check.expect("its command was read"));
    }
    match workload_of(section, seed)? {
        Work::Test(test) => Ok(MonitoredWork::Test(test)),
        Work::Load(mix) => Ok(MonitoredWork::Load(mix)),
        Work::Special(_) => {
            let hint = "write check, stream, rr, crr or load";
            Fault::malformed(command, "command of a monitor", hint)
        }
    }
}

fn check_work(section: &Section<'_>) -> Result<MonitoredWork, Fault> {
    let in_range = |time: &Span| (500..=60_000).contains(&time.0.as_millis());
    let hint = "write \"500ms\" to \"60s\"";
    Ok(MonitoredWork::Check(CheckWork {
        quick: section.boolean("quick")?.unwrap_or(false),
        time: section.parsed("time", "time", hint, in_range)?,
        streams: section.number("streams", 1..=256)?,
    }))
}

fn alarm(root: &Section<'_>) -> Result<Alarm, Fault> {
    let Some(section) = root.section("alarm", "[alarm]", "command webhook prove")? else {
        return Ok(Alarm { prove: true, ..Alarm::default() });
    };
    let command = section.strings("command")?.unwrap_or_default();
    let hint = "write http://host:port/path or https://host:port/path";
    Ok(Alarm {
        command: command.iter().map(|at| at.value.to_owned()).collect(),
        webhook: section.parsed("webhook", "webhook", hint, |_| true)?,
        prove: section.boolean("prove")?.unwrap_or(true),
    })
}

impl fmt::Display for HttpUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}{}", self.scheme, self.authority, self.path)
    }
}

impl FromStr for HttpUrl {
    type Err = &'static str;

    /// Refuses other schemes and a user's name.
    fn from_str(url: &str) -> Result<Self, &'static str> {
        const WANTED: &str = "it must be http://HOST:PORT/PATH or https://HOST:PORT/PATH";
        let (scheme, rest) = url.split_once("://").ok_or(WANTED)?;
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let is_graphic = url.chars().all(|c| c.is_ascii_graphic());
        // An address of IPv6 without brackets.
        let is_bare = authority.matches(':').count() > 1 && !authority.starts_with('[');
        if !matches!(scheme, "http" | "https") || !is_graphic || is_bare || authority.contains('@')
        {
            return Err(WANTED);
        }
        authority.parse::<EndpointName>().map_err(|_| WANTED)?;
        Ok(Self {
            scheme: scheme.to_owned(),
            authority: authority.to_owned(),
            path: if path.is_empty() { "/" } else { path }.to_owned(),
        })
    }
}

const KEYS: &str = "seed quiet bytes-per-day keep path test alarm";
const PATH_KEYS: &str = "name host family key-file labels rate share bytes-per-day";
const TEST_KEYS: &str = "name workload paths every jitter metric";
/// What a run is saved with besides the labels of its path, and what metrics have.
const OWN_LABELS: [&str; 6] = ["test", "path", "figure", "cause", "job", "instance"];
