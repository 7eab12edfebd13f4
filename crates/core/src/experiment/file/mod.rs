//! Reads an experiment's file. The format is at [`Experiment::from_toml`].

mod cells;
mod figures;
mod findings;
mod levels;

use std::fmt::Display;

use super::model::{Experiment, Work};
use crate::plan::{MAX_REPEATS, Repeats};
use crate::toml_reader::{self, At, Fault, FileError, Section};
use crate::units::{EndpointName, Family, Percent, shortened};
use levels::{Factors, FileFactor, LevelSetting};

/// How the texts of the files are had that an experiment names: by name as it is written, with the
/// reason if it cannot be read.
pub type Files<'a> = &'a dyn Fn(&str) -> Result<String, String>;

/// The user's choices for an experiment.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Choice {
    /// Whether to run the quick form.
    pub quick: bool,
    /// A seed that replaces the file's.
    pub seed: Option<u64>,
    /// An endpoint that replaces the file's path.
    pub host: Option<EndpointName>,
    /// The spec of an emulated path that replaces the file's path.
    pub lab: Option<String>,
    /// An address family that replaces the file's.
    pub family: Option<Family>,
}

impl Experiment {
    /// Reads an experiment from the text of a file; `files` gives those that it names.
    ///
    /// | table | key | value |
    /// |---|---|---|
    /// | the file | `title` | what it is about; required |
    /// | | `report`, `about` | the report that it runs again; what to know beforehand |
    /// | | `seed` | of every random choice; default 1 |
    /// | | `repeats`, or `precision` | 1 to 100 runs of each cell, default 3; or until the median of the first column is known to `"2%"` |
    /// | | `forbid` | validity faults ([`Fault`](crate::compare::Fault)): a run that has one is made again |
    /// | | `treatments` | of all cells |
    /// | `[path]` | `lab` | a [`PathSpec`](crate::link::PathSpec) |
    /// | | `topology`, `client`, `server`, `address` | or a lab's file, its two hosts, and the server's address |
    /// | | `host` | or an endpoint |
    /// | | `family` | `ipv4` or `ipv6` |
    /// | | `client_cpu`, `server_cpu` | share of one CPU, such as `"25%"` |
    /// | `[workload]` | `command` | `stream` (default), `rr`, `crr`, `load` (with `mix`, `time`, `flows`), `file_write`, `file_read` |
    /// | | | the command's long options, without the hyphens before them |
    /// | `[[factor]]` | `name` | the cells are all combinations of all factors' levels |
    /// | | `key`, `values` | a key of the workload and its values, as a list or a range of sizes |
    /// | `[[factor.level]]` | `name`, `figure` | its name, and how the figures' file calls it |
    /// | | `workload`, `treatments` | keys in place of those of `[workload]`, and treatments |
    /// | | `lab` | keys in place of, or besides those of the path's spec |
    /// | | `topology`, `client`, … | in place of those of `[path]` |
    /// | | `lacks` | why its cells cannot be run |
    /// | `[quick]` | `repeats`, `workload`, `lab`, `levels` | what is other in the quick form; `levels` are those that are left, by factor |
    /// | `[figures]` | `file`, `keys`, `where`, `values` | the report's figures: CSV, factor = column, column = value, figure = `"column * 1e6"` |
    /// | | `of` | `median` (default) or `mean`: what several rows of a cell make |
    /// | `[table]` | `across` | the factor whose levels stand side by side |
    /// | `[[column]]` | `metric`, `title`, `unit`, `scale`, `decimals`, `ratio_to` | see [`Column`](super::Column) |
    /// | `[[finding]]` | `text`, `metric`, `over_metric` | a claim on a figure |
    /// | | `of`, `over`, `where` | levels by factor: of which cells, over which, and what both have in common |
    /// | | `about` with `within`; `at_least`, `at_most` or both; `no_difference` | what is accepted |
    /// | | `report` | the report's value where no table of it has one |
    ///
    /// # Errors
    /// The first thing that is wrong, with its line and column.
    pub fn from_toml(text: &str, choice: &Choice, files: Files<'_>) -> Result<Self, FileError> {
        read(text, choice, files).map_err(|fault| fault.located(text))
    }
}

/// What the key `workload` of a table of another kind of file says, read as an experiment's.
pub(crate) fn workload_of(section: &Section<'_>, seed: u64) -> Result<Work, Fault> {
    let resolver = cells::Resolver {
        base: LevelSetting {
            offset: section.offset,
            workload: section.texts("workload")?,
            ..LevelSetting::default()
        },
        quick: None,
        factors: &[],
        family: None,
        seed,
        files: &|_| Err("a workload names no file".to_owned()),
    };
    resolver.work(&[], &[])
}

fn read(text: &str, choice: &Choice, files: Files<'_>) -> Result<Experiment, Fault> {
    let table = toml_reader::parse(text)?;
    let root = Section::new("the file", 0, table.get_ref(), KEYS)?;
    let quick = root.section("quick", "[quick]", QUICK_KEYS)?;
    let title = root.required("title", "what the experiment is about")?;
    let quick_repeats = quick.as_ref().map(repeats).transpose()?.flatten();
    let repeats = repeats(&root)?;
    let seed = root.number("seed", 0..=u64::MAX)?;
    let seed = choice.seed.or(seed).unwrap_or(DEFAULT_SEED);
    let factors = Factors::read(&root, quick.as_ref(), choice.quick)?;
    let quick_setting = quick.as_ref().map(LevelSetting::read).transpose()?;
    let resolver = cells::Resolver {
        base: LevelSetting::of_file(&root, choice)?,
        quick: quick_setting.filter(|_| choice.quick),
        factors: &factors.used,
        family: choice.family,
        seed,
        files,
    };
    let cells = resolver.cells()?;
    let (across, columns) = figures::columns(&root, &factors)?;
    let mut experiment = Experiment {
        title: title.value.to_owned(),
        report: root.string("report")?.map(|at| at.value.to_owned()),
        about: root.string("about")?.map(|at| at.value.trim().to_owned()),
        seed,
        quick: choice.quick,
        repeats: (quick_repeats.filter(|_| choice.quick)).or(repeats).unwrap_or(DEFAULT_REPEATS),
        forbid: (root.strings("forbid")?.unwrap_or_default().into_iter())
            .map(At::read)
            .collect::<Result<_, _>>()?,
        factors: factors.used.iter().map(FileFactor::model).collect(),
        cells,
        notes: Vec::new(),
        across,
        columns,
        findings: findings::read(&root, &factors)?,
        figures: figures::figures(&root, &factors.used, files)?,
    };
    findings::add_controls(&mut experiment)?;
    Ok(experiment)
}

/// `repeats = 5` or `precision = "2%"`.
fn repeats(section: &Section<'_>) -> Result<Option<Repeats>, Fault> {
    let times = section.number("repeats", 1..=MAX_REPEATS)?;
    let precision = section.string("precision")?;
    match (times, precision) {
        (Some(_), Some(_)) => {
            let (offset, hint) = (section.offset_of("repeats"), "give one of them");
            Fault::contradiction(offset, "`repeats` and `precision`", hint)
        }
        (Some(times), None) => Ok(Some(Repeats::Times(times))),
        (None, Some(at)) => {
            let hint = "write \"2%\", above 0 % and at most 100 %";
            let is_share = |percent: &Percent| percent.0 > 0.0 && percent.0 <= 100.0;
            let percent = at.parsed("precision", hint, is_share)?;
            Ok(Some(Repeats::Precision(percent)))
        }
        (None, None) => Ok(None),
    }
}

/// The text of a file that the experiment's file names.
fn file_text(name: At<&str>, files: Files<'_>) -> Result<String, Fault> {
    files(name.value).map_err(|why| file_fault(name, why))
}

/// The error of a file that the experiment's file names.
fn file_fault(name: At<&str>, why: impl Display) -> Fault {
    Fault::new(name.offset, format!("{}: {why}", shortened(name.value)))
}

const KEYS: &str = "\
    title report about seed repeats precision forbid treatments path workload factor quick \
    figures table column finding";

const QUICK_KEYS: &str = "repeats precision workload lab levels";

/// Enough to see a spread, and few enough to wait for.
const DEFAULT_REPEATS: Repeats = Repeats::Times(3);

/// The seed of a file that names none: its runs come in the same order each time.
const DEFAULT_SEED: u64 = 1;
