//! The file of a monitor. The format is at [`Monitor::from_toml`].

use thiserror::Error;

use super::keys::{QuietHours, bytes, check_names, keep, labels, link, name, quiet, whole_seconds};
use crate::experiment::{ExperimentProblem, Work, workload_of};
use crate::load::Mix;
use crate::plan::{Direction, Extent, Test};
use crate::toml_reader::{self, At, FileError, ReadProblem, Section, string};
use crate::units::{BitRate, ByteCount, EndpointName, Family, Span};

/// What is measured where, when and for whom, with nothing left to choose.
#[derive(Debug, Clone, PartialEq)]
pub struct Monitor {
    /// Of the jitter.
    pub seed: u64,
    /// At least one.
    pub paths: Vec<MonitoredPath>,
    /// At least one.
    pub tests: Vec<MonitoredTest>,
    /// When nothing runs.
    pub quiet: Vec<QuietHours>,
    /// What all tests may carry in any 24 hours, bytes.
    pub bytes_per_day: Option<u64>,
    /// How long the runs are kept, seconds; `None` is for ever.
    pub keep_s: Option<u64>,
    /// Whom a change is told.
    pub alarm: Alarm,
}

/// Where to.
#[derive(Debug, Clone, PartialEq)]
pub struct MonitoredPath {
    /// What it is called; no other has the name.
    pub name: String,
    /// The endpoint.
    pub host: EndpointName,
    /// Its only family.
    pub family: Option<Family>,
    /// The file with the endpoint's key.
    pub key_file: Option<String>,
    /// Saved with each run.
    pub labels: Vec<(String, String)>,
    /// What the link carries.
    pub rate: Option<BitRate>,
    /// What tests of this path may carry in any 24 hours, bytes.
    pub bytes_per_day: Option<u64>,
}

/// What is run, and how often.
#[derive(Debug, Clone, PartialEq)]
pub struct MonitoredTest {
    /// What it is called; no other has the name.
    pub name: String,
    /// What it does.
    pub work: MonitoredWork,
    /// Indexes of its paths.
    pub paths: Vec<usize>,
    /// From slot to slot, seconds.
    pub every_s: u64,
    /// A run is at most so much later than its slot, seconds.
    pub jitter_s: u64,
    /// The figure whose changes are told; without it the first one.
    pub metric: Option<String>,
}

/// What a test of a monitor does.
#[derive(Debug, Clone, PartialEq)]
pub enum MonitoredWork {
    /// One test.
    Test(Box<Test>),
    /// Tests beside each other.
    Load(Box<Mix>),
    /// `linerate check`.
    Check(CheckWork),
}

/// The keys of a check.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CheckWork {
    /// One run each way.
    pub quick: bool,
    /// Of each run.
    pub time: Option<Span>,
    /// Flows of each run.
    pub streams: Option<u32>,
}

/// Whom a change is told.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Alarm {
    /// A program and its arguments, which gets the change as JSON on standard input; empty: none.
    pub command: Vec<String>,
    /// An address that it is posted to.
    pub webhook: Option<HttpUrl>,
}

/// `http://host:port/path`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpUrl {
    /// As in the header `Host`.
    pub authority: String,
    /// What to connect to: name or address, and port.
    pub address: (String, u16),
    /// From the first slash on.
    pub path: String,
}

/// A text that is no monitor, and where.
pub type MonitorError = FileError<MonitorProblem>;

/// What is wrong with a monitor's file.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum MonitorProblem {
    /// What can be wrong with any file.
    #[error(transparent)]
    Read(#[from] ReadProblem),
    /// A workload.
    #[error(transparent)]
    Workload(Box<ExperimentProblem>),
}

type Fault = toml_reader::Fault<MonitorProblem>;

impl From<toml_reader::Fault<ReadProblem>> for Fault {
    fn from(fault: toml_reader::Fault<ReadProblem>) -> Self {
        Self::new(fault.offset, fault.problem.into())
    }
}

impl From<toml_reader::Fault<ExperimentProblem>> for Fault {
    fn from(fault: toml_reader::Fault<ExperimentProblem>) -> Self {
        Self::new(
            fault.offset,
            match fault.problem {
                ExperimentProblem::Read(problem) => problem.into(),
                problem => MonitorProblem::Workload(Box::new(problem)),
            },
        )
    }
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
    /// | `[alarm]` | `command`, `webhook` | a program with arguments; `"http://host/path"` |
    ///
    /// # Errors
    /// The first thing that is wrong, with its line and column.
    pub fn from_toml(text: &str, seed: u64) -> Result<Self, MonitorError> {
        read(text, seed).map_err(|fault| fault.located(text))
    }
}

impl MonitoredWork {
    /// How long a run takes, about, seconds.
    pub fn seconds(&self) -> u64 {
        let seconds = match self {
            Self::Test(test) => seconds(test),
            Self::Load(mix) => mix.seconds() + mix.idle.as_secs_f64(),
            Self::Check(check) if check.quick => 5.0,
            Self::Check(check) => check.time.map_or(20.0, |time| 20.0 * time.as_secs_f64()),
        };
        seconds.ceil() as u64 + 1
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
        Some(
            (rate?.0 / 8)
                .saturating_mul(ways)
                .saturating_mul(self.seconds()),
        )
    }
}

fn ways(test: &Test) -> u64 {
    if test.direction == Direction::Both {
        2
    } else {
        1
    }
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
    let own_seed = root.long_number("seed", 0..=u64::MAX)?;
    let seed = own_seed.map_or(seed, |at| at.value);
    let sections = root.sections("path", "[[path]]", PATH_KEYS)?;
    let paths = sections.iter().map(path);
    let paths = paths.collect::<Result<Vec<_>, _>>()?;
    if paths.is_empty() {
        return Err(root.missing("path", "each in a table [[path]]").into());
    }
    check_names(
        "paths",
        &sections,
        paths.iter().map(|path| path.name.as_str()),
    )?;
    let sections = root.sections("test", "[[test]]", TEST_KEYS)?;
    let tests = sections.iter().map(|section| test(section, &paths, seed));
    let tests = tests.collect::<Result<Vec<_>, _>>()?;
    if tests.is_empty() {
        return Err(root.missing("test", "each in a table [[test]]").into());
    }
    check_names(
        "tests",
        &sections,
        tests.iter().map(|test| test.name.as_str()),
    )?;
    let monitor = Monitor {
        seed,
        quiet: quiet(&root)?,
        bytes_per_day: bytes(&root)?,
        keep_s: keep(&root)?,
        alarm: alarm(&root)?,
        paths,
        tests,
    };
    check_budgets(&monitor, &sections)?;
    Ok(monitor)
}

/// A test that can never run is a mistake, and said today.
fn check_budgets(monitor: &Monitor, sections: &[Section<'_>]) -> Result<(), Fault> {
    for (test, section) in monitor.tests.iter().zip(sections) {
        for path in test.paths.iter().map(|path| &monitor.paths[*path]) {
            let most = test.work.most_bytes(path.rate);
            let budgets = [path.bytes_per_day, monitor.bytes_per_day];
            let budget = budgets.into_iter().flatten().min();
            if let (Some(most), Some(budget)) = (most, budget)
                && most > budget
            {
                let what = format!(
                    "one run of `{}` on `{}` may carry {}, and a day's budget is {}",
                    test.name,
                    path.name,
                    ByteCount(most),
                    ByteCount(budget)
                );
                return Fault::contradiction(section.offset, what, "give a shorter test or more");
            }
        }
    }
    Ok(())
}

fn path(section: &Section<'_>) -> Result<MonitoredPath, Fault> {
    let name = name(section)?;
    let host = section.required("host", "where to: host, host:port or [v6]:port")?;
    let family = match section.string("family")? {
        None => None,
        Some(at) => match at.value {
            "ipv4" => Some(Family::Ipv4),
            "ipv6" => Some(Family::Ipv6),
            _ => return Fault::malformed(at, "family", "write ipv4 or ipv6"),
        },
    };
    let (rate, bytes_per_day) = link(section)?;
    Ok(MonitoredPath {
        name,
        host: match host.value.parse() {
            Ok(host) => host,
            Err(_) => return Fault::malformed(host, "host", "write host, host:port or [v6]:port"),
        },
        family,
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
    let named = |at: &At<&str>| match paths.iter().position(|path| path.name == at.value) {
        Some(path) => Ok(path),
        None => Fault::malformed(*at, "path of this file", "each has a table [[path]]"),
    };
    let paths = match section.strings("paths")? {
        Some(names) => names.iter().map(named).collect::<Result<Vec<_>, Fault>>()?,
        None => (0..paths.len()).collect(),
    };
    Ok(MonitoredTest {
        name,
        work: work(section, seed)?,
        paths,
        every_s,
        jitter_s,
        metric: section.string("metric")?.map(|at| at.value.to_owned()),
    })
}

/// `workload` of a test.
///
/// # Errors
/// What is wrong with it, and where.
pub fn work(section: &Section<'_>, seed: u64) -> Result<MonitoredWork, Fault> {
    let entries = section.entries("workload")?;
    let command = entries.iter().find(|(key, _)| key.value == "command");
    let hint = "`{ command = \"check\" }`, stream, rr, crr or load, and its options";
    let Some((_, command)) = command else {
        return Err(section.missing("workload", hint).into());
    };
    let command = string("command", command)?;
    if command.value == "check" {
        let check = section.section("workload", "the workload", "command quick time streams")?;
        return check_work(&check.expect("its command was read"));
    }
    match workload_of(section, seed)? {
        Work::Test(test) => Ok(MonitoredWork::Test(test)),
        Work::Load(mix) => Ok(MonitoredWork::Load(mix)),
        Work::Special(_) => Fault::malformed(
            command,
            "command of a monitor",
            "write check, stream, rr, crr or load",
        ),
    }
}

fn check_work(section: &Section<'_>) -> Result<MonitoredWork, Fault> {
    let time = match section.string("time")? {
        None => None,
        Some(at) => match at.value.parse::<Span>() {
            Ok(time) if (500..=60_000).contains(&time.0.as_millis()) => Some(time),
            _ => return Fault::malformed(at, "time", "write \"500ms\" to \"60s\""),
        },
    };
    Ok(MonitoredWork::Check(CheckWork {
        quick: section.boolean("quick")?.unwrap_or(false),
        time,
        streams: section.number("streams", 1..=256)?.map(|at| at.value),
    }))
}

fn alarm(root: &Section<'_>) -> Result<Alarm, Fault> {
    let Some(section) = root.section("alarm", "[alarm]", "command webhook")? else {
        return Ok(Alarm::default());
    };
    let command = section.strings("command")?.unwrap_or_default();
    let webhook = match section.string("webhook")? {
        None => None,
        Some(at) => match HttpUrl::new(at.value) {
            Some(webhook) => Some(webhook),
            None => {
                let hint = "write http://host:port/path; for https let `command` run curl";
                return Fault::malformed(at, "webhook", hint);
            }
        },
    };
    Ok(Alarm {
        command: command.iter().map(|at| at.value.to_owned()).collect(),
        webhook,
    })
}

impl HttpUrl {
    /// `None` of what is none: of `https://` and of a user's name, too.
    pub fn new(url: &str) -> Option<Self> {
        let rest = url.strip_prefix("http://")?;
        let is_plain = |c: char| c.is_ascii_graphic();
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        if !url.chars().all(is_plain) || authority.contains('@') {
            return None;
        }
        let name: EndpointName = authority.parse().ok()?;
        Some(Self {
            authority: authority.to_owned(),
            address: (name.host, name.port.unwrap_or(80)),
            path: if path.is_empty() {
                "/".to_owned()
            } else {
                path.to_owned()
            },
        })
    }
}

const KEYS: &str = "seed quiet bytes-per-day keep path test alarm";
const PATH_KEYS: &str = "name host family key-file labels rate share bytes-per-day";
const TEST_KEYS: &str = "name workload paths every jitter metric";
/// What a run is saved with besides the labels of its path, and what metrics have.
const OWN_LABELS: [&str; 6] = ["test", "path", "figure", "cause", "job", "instance"];
