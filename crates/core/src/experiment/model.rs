//! An experiment with everything resolved, as plain data; and what a cell runs: a test of the path,
//! a load, or something special.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::document::Measure;
use crate::compare::Fault;
use crate::lab::Topology;
use crate::link::PathSpec;
use crate::load::{DEFAULT_MIX, Mix, MixChoice};
use crate::plan::{Draft, Extent, PlanError, Repeats, Test, Workload, options};
use crate::stats::Accepted;
use crate::treatment::Treatments;
use crate::units::{ByteCount, EndpointName, Family, TextError};

/// An experiment with every choice made.
#[derive(Debug, Clone, PartialEq)]
pub struct Experiment {
    /// The subject of the experiment.
    pub title: String,
    /// The report that it reproduces.
    pub report: Option<String>,
    /// Background for the reader.
    pub about: Option<String>,
    /// Seed of every random choice.
    pub seed: u64,
    /// Whether it is the quick form.
    pub quick: bool,
    /// The number of runs of each cell.
    pub repeats: Repeats,
    /// Validity faults: a run that has one does not count.
    pub forbid: Vec<Fault>,
    /// The factors; the levels of the last one change fastest.
    pub factors: Vec<Factor>,
    /// All combinations of levels, in the order of the table.
    pub cells: Vec<Cell>,
    /// Notes on controls that were added so that a treatment changes only what its name says.
    pub notes: Vec<String>,
    /// The factor whose levels are columns.
    pub across: Option<usize>,
    /// What the table shows; with a precision to reach at least one, which is the first's.
    pub columns: Vec<Column>,
    /// The report's findings.
    pub findings: Vec<Finding>,
    /// The report's figures of each cell, by the name of the measure.
    pub figures: Vec<BTreeMap<String, f64>>,
}

/// A factor: something that is varied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "DocumentFactor")]
pub struct Factor {
    /// Its name.
    pub name: String,
    /// The names of its levels; at least one.
    pub levels: Vec<String>,
}

/// A column of the table, repeated for each level of the factor across.
#[derive(Debug, Clone, PartialEq)]
pub struct Column {
    /// The figure.
    pub measure: Measure,
    /// The title.
    pub title: String,
    /// The printed unit.
    pub unit: Option<String>,
    /// The printed number is the figure times this.
    pub scale: f64,
    /// Decimals; `None` for three significant digits.
    pub decimals: Option<u32>,
    /// The level to which the figure is shown as a ratio.
    pub ratio_to: Option<usize>,
}

/// A finding of a report, as a claim about figures.
#[derive(Debug, Clone, PartialEq)]
pub struct Finding {
    /// The finding in words, if possible the report's.
    pub text: String,
    /// The figure.
    pub measure: Measure,
    /// A figure of the same run by which the figure is divided.
    pub over_measure: Option<Measure>,
    /// Cells, each with the one that it is held against: then the claim is on their ratio.
    pub pairs: Vec<(usize, Option<usize>)>,
    /// The values or ratios for which the finding holds.
    pub accepted: Accepted,
    /// The report's own value where no table of it has one.
    pub report: Option<f64>,
}

impl Experiment {
    /// The number of the cell with these levels, one of each factor.
    pub(super) fn cell_number(&self, levels: &[usize]) -> usize {
        let counts = self.factors.iter().map(|factor| factor.levels.len());
        cell_number(counts, levels)
    }

    /// The levels of a cell, by the names of their factors.
    pub fn level_names(&self, cell: usize) -> BTreeMap<String, String> {
        let levels = self.factors.iter().zip(&self.cells[cell].levels);
        levels.map(|(factor, level)| (factor.name.clone(), factor.levels[*level].clone())).collect()
    }

    /// A cell in words: `window fixed, size 100`; empty where there are no factors.
    pub fn cell_title(&self, cell: usize) -> String {
        let levels = self.factors.iter().zip(&self.cells[cell].levels);
        let in_words = |(factor, level): (&Factor, &usize)| {
            format!("{} {}", factor.name, factor.levels[*level])
        };
        levels.map(in_words).collect::<Vec<_>>().join(", ")
    }

    /// Whether a column or a finding shows a figure.
    pub fn shows(&self, measure: &Measure) -> bool {
        let columns = self.columns.iter().map(|column| &column.measure);
        let findings = self.findings.iter().map(|finding| &finding.measure);
        columns.chain(findings).any(|shown| shown == measure)
    }

    /// A number that changes with everything that decides a run: cells, faults and seed. Words,
    /// columns, findings and the number of repeats may change without a run becoming another.
    pub fn identity(&self) -> String {
        let cell = |cell| format!("{}={}", self.cell_title(cell), self.cells[cell].identity());
        let cells: Vec<String> = (0..self.cells.len()).map(cell).collect();
        let whole = format!("{} {:?} {}", self.seed, self.forbid, cells.join("\n"));
        format!("{:016x}", crate::units::checksum::fnv1a(whole.as_bytes()))
    }
}

/// The number of the cell with these levels, of factors with so many levels each. Cells are
/// numbered as the digits of a clock count: the last factor's levels change first.
pub(super) fn cell_number(counts: impl Iterator<Item = usize>, levels: &[usize]) -> usize {
    let digits = counts.zip(levels);
    digits.fold(0, |number, (count, level)| number * count + level)
}

/// One combination of levels.
#[derive(Debug, Clone, PartialEq)]
pub struct Cell {
    /// The index of each factor's level.
    pub levels: Vec<usize>,
    /// The path and its hosts.
    pub place: Place,
    /// The workload.
    pub work: Work,
    /// The treatments in force.
    pub treatments: Treatments,
    /// Why this version cannot run it; `None` if it can.
    pub lacks: Option<String>,
}

/// Where a cell runs.
#[derive(Debug, Clone, PartialEq)]
pub struct Place {
    /// The path.
    pub path: ExperimentPath,
    /// Family of the path's addresses; `None` is IPv4 where there is one.
    pub family: Option<Family>,
    /// Share of one CPU that the client's threads get, percent.
    pub client_cpu: Option<u32>,
    /// Share of one CPU that the endpoint's threads get, percent.
    pub server_cpu: Option<u32>,
}

/// The path of a cell.
#[derive(Debug, Clone, PartialEq)]
pub enum ExperimentPath {
    /// An emulated path, created for the run.
    Lab {
        /// Its hosts, routers and links.
        topology: Box<Topology>,
        /// The path's name in the record: a spec, or the name of a file.
        name: String,
        /// The link, where there is one; what is known of a topology's delays is in it.
        spec: Option<Box<PathSpec>>,
        /// Host of the client.
        client: String,
        /// Host of the endpoint.
        server: String,
        /// Address of the server to connect to; `None` for the one that its name resolves to.
        address: Option<IpAddr>,
    },
    /// A real path to an endpoint.
    Host(EndpointName),
}

impl ExperimentPath {
    /// The emulated path of a spec.
    pub fn from_spec(spec: PathSpec) -> Self {
        Self::Lab {
            topology: Box::new(Topology::of_path(&spec)),
            name: spec.to_string(),
            spec: Some(Box::new(spec)),
            client: "client".to_owned(),
            server: "server".to_owned(),
            address: None,
        }
    }
}

impl Cell {
    /// What decides its figures, as a text: two cells, of whatever files, with the same text are
    /// the same.
    pub fn identity(&self) -> String {
        let work = match &self.work {
            Work::Test(test) => serde_json::to_string(test),
            Work::Load(mix) => serde_json::to_string(mix),
            Work::Special(special) => serde_json::to_string(special),
        }
        .expect("a test has string keys");
        format!("{}|{work}|{}", self.place, self.treatments)
    }

    /// Seconds that its run takes at least; `None` where it ends after so many bytes.
    pub fn planned_s(&self) -> Option<f64> {
        match &self.work {
            Work::Test(test) => match test.extent {
                Extent::Time(_) => test.seconds(),
                Extent::Bytes(_) | Extent::Count(_) => None,
            },
            Work::Load(mix) => Some(mix.idle.as_secs_f64() + mix.seconds()),
            Work::Special(_) => None,
        }
    }
}

impl fmt::Display for Place {
    /// Writes everything in it, for [`Cell::identity`].
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.path {
            ExperimentPath::Host(name) => write!(f, "host {name}")?,
            ExperimentPath::Lab { topology, name: _, spec, client, server, address } => {
                match spec {
                    Some(spec) => write!(f, "lab {spec}")?,
                    None => write!(f, "lab {topology:?} {client} {server} {address:?}")?,
                }
            }
        }
        let (family, client, server) = (self.family, self.client_cpu, self.server_cpu);
        write!(f, " {family:?} cpu {client:?} {server:?}")
    }
}

// `[workload]`: a command and its keys. Those of a test are its options (`crate::plan::options`);
// the other commands have keys of their own.

/// The workload of a cell.
#[derive(Debug, Clone, PartialEq)]
pub enum Work {
    /// A test of the path.
    Test(Box<Test>),
    /// Several tests at the same time.
    Load(Box<Mix>),
    /// A workload other than a network test.
    Special(Special),
}

/// The commands of workloads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Command {
    Test(Workload),
    Load,
    FileWrite,
    FileRead,
}

/// All commands and their names.
pub(super) const COMMANDS: [(&str, Command); 6] = [
    ("stream", Command::Test(Workload::Stream)),
    ("rr", Command::Test(Workload::Rr)),
    ("crr", Command::Test(Workload::Crr)),
    ("load", Command::Load),
    ("file_write", Command::FileWrite),
    ("file_read", Command::FileRead),
];

/// Keys that set the end of a run, of which one excludes the others.
pub(super) const EXTENTS: [&str; 4] = ["time", "bytes", "count", "total"];

/// The keys of a workload as they are set, defaults not yet filled in.
#[derive(Debug, Clone)]
pub(super) enum WorkDraft {
    Test(Draft),
    Load(LoadDraft),
    File(Command, FileDraft),
}

/// The keys of a mix.
#[derive(Debug, Clone, Default)]
pub(super) struct LoadDraft {
    mix: Option<String>,
    choice: MixChoice,
}

/// The keys of a file workload.
#[derive(Debug, Clone, Default)]
pub(super) struct FileDraft {
    bytes: Option<u64>,
    record_bytes: Option<u64>,
    directory: Option<String>,
}

impl Command {
    /// The names of its keys.
    pub(super) fn keys(self) -> Vec<&'static str> {
        match self {
            Self::Test(workload) => (options().iter())
                .filter(|option| option.workloads.contains(&workload) && !option.treatment_only)
                .map(|option| option.key)
                .collect(),
            Self::Load => vec!["mix", "time", "flows"],
            Self::FileWrite | Self::FileRead => vec!["size", "bytes", "directory"],
        }
    }
}

impl WorkDraft {
    pub(super) fn new(command: Command) -> Self {
        match command {
            Command::Test(workload) => Self::Test(Draft::new(workload)),
            Command::Load => Self::Load(LoadDraft::default()),
            Command::FileWrite | Command::FileRead => Self::File(command, FileDraft::default()),
        }
    }

    /// Sets a key to the text of its value.
    ///
    /// # Errors
    /// Why the value cannot be read.
    pub(super) fn set(&mut self, key: &str, text: &str) -> Result<(), String> {
        match self {
            Self::Test(draft) => draft.set(key, text).map_err(|error| error.to_string()),
            Self::Load(load) => load.set(key, text),
            Self::File(_, file) => file.set(key, text),
        }
    }

    /// The workload with every default filled in, and checked.
    ///
    /// # Errors
    /// What does not go together, or is out of range, and the key that it is about.
    pub(super) fn resolve(self, seed: u64) -> Result<Work, (&'static str, String)> {
        let fault = |error: PlanError| (error.key(), error.to_string());
        match self {
            Self::Test(draft) => {
                let test = draft.resolve(seed).map_err(fault)?;
                Ok(Work::Test(Box::new(test)))
            }
            Self::Load(load) => {
                let choice = MixChoice { seed, ..load.choice };
                let mix = Mix::named(load.mix.as_deref().unwrap_or(DEFAULT_MIX), &choice);
                Ok(Work::Load(Box::new(mix.map_err(|why| ("mix", why))?)))
            }
            Self::File(command, file) => {
                let transfer = file.resolve().map_err(|why| ("bytes", why))?;
                Ok(Work::Special(match command {
                    Command::FileRead => Special::FileRead(transfer),
                    Command::FileWrite | Command::Load | Command::Test(_) => {
                        Special::FileWrite(transfer)
                    }
                }))
            }
        }
    }
}

impl LoadDraft {
    fn set(&mut self, key: &str, text: &str) -> Result<(), String> {
        match key {
            "mix" => self.mix = Some(text.to_owned()),
            "time" => {
                let time = text.parse();
                self.choice.time = Some(time.map_err(|error: TextError| error.to_string())?);
            }
            _ => self.choice.flows = Some(text.parse().map_err(|_| "`flows` is a number")?),
        }
        Ok(())
    }
}

impl FileDraft {
    fn set(&mut self, key: &str, text: &str) -> Result<(), String> {
        let size = || text.parse::<ByteCount>().map(|bytes| Some(bytes.0));
        let size = || size().map_err(|error| error.to_string());
        match key {
            "bytes" => self.bytes = size()?,
            "size" => self.record_bytes = size()?,
            _ => self.directory = Some(text.to_owned()),
        }
        Ok(())
    }

    fn resolve(self) -> Result<FileTransfer, String> {
        let Some(bytes) = self.bytes else {
            return Err("a file needs `bytes`, the size of it".to_owned());
        };
        let record_bytes = self.record_bytes.unwrap_or(DEFAULT_RECORD);
        if !(1..=MAX_FILE).contains(&bytes) || !(1..=bytes).contains(&record_bytes) {
            return Err("a file has 1 byte to 16 GiB, and each write at most all of it".to_owned());
        }
        Ok(FileTransfer { bytes, record_bytes, directory: self.directory })
    }
}

/// Bytes of each write of a file, if nothing is given: those of a stream's message.
const DEFAULT_RECORD: u64 = 128 << 10;
/// Largest file of a special workload, bytes.
const MAX_FILE: u64 = 16 << 30;

/// Something to be run in place of a test. Its figures have the names of a record's:
/// [`SPECIAL_FIGURES`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case")]
pub enum Special {
    /// Writes a new file, waits until it is on the disk, and removes it.
    FileWrite(FileTransfer),
    /// Reads a file back that was written before and is no longer in memory.
    FileRead(FileTransfer),
}

/// A file to write or read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileTransfer {
    /// Size of the file, bytes.
    pub bytes: u64,
    /// Size of each read or write, bytes.
    pub record_bytes: u64,
    /// Directory of the file; `None` for that of the experiment's file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directory: Option<String>,
}

/// What a special workload measures, each in the unit that its name says.
pub const SPECIAL_FIGURES: &[&str] =
    &["throughput_bps", "seconds", "bytes", "cpu_seconds", "storage_bytes"];

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: Command = Command::Test(Workload::Stream);

    fn work(command: Command, keys: &[(&str, &str)]) -> Result<Work, String> {
        let mut draft = WorkDraft::new(command);
        for (key, text) in keys {
            draft.set(key, text)?;
        }
        draft.resolve(7).map_err(|(_, why)| why)
    }

    #[test]
    fn no_command_has_two_keys_of_one_name() {
        for (name, command) in COMMANDS {
            let mut keys = command.keys();
            keys.sort_unstable();
            let count = keys.len();
            keys.dedup();
            assert_eq!(keys.len(), count, "{name}");
        }
    }

    #[test]
    fn keys_of_one_transport_are_refused_over_the_other() {
        let udp = [("protocol", "udp"), ("mss", "536")];
        assert_eq!(
            work(STREAM, &udp).unwrap_err(),
            "`mss` cannot be used with `protocol` udp: it is an option of TCP sockets"
        );
        let tcp = [("rate", "1mbit")];
        assert_eq!(
            work(STREAM, &tcp).unwrap_err(),
            "`rate` cannot be used with TCP: a TCP stream is limited by `pacing` or \
             `write-rate`"
        );
        assert!(work(Command::Test(Workload::Rr), &[("rate", "2.5k")]).is_ok());
    }

    #[test]
    fn a_load_is_a_mix_of_linerates() {
        let keys = [("mix", "tcp_nup"), ("time", "2s"), ("flows", "9")];
        let Ok(Work::Load(mix)) = work(Command::Load, &keys) else {
            panic!("it is a mix");
        };
        assert_eq!(mix.members[0].test.streams, 9);
        assert_eq!(mix.members[0].test.seed, 7);
        let error = work(Command::Load, &[("mix", "rul")]).unwrap_err();
        assert_eq!(error, "there is no mix `rul`; did you mean `rrul`?");
        assert!(work(Command::Load, &[("flows", "9")]).is_err());
    }

    #[test]
    fn a_file_needs_its_size() {
        assert!(work(Command::FileRead, &[("size", "1024")]).is_err());
        let copied = work(Command::FileWrite, &[("bytes", "4MiB"), ("size", "1024")]);
        assert_eq!(
            copied,
            Ok(Work::Special(Special::FileWrite(FileTransfer {
                bytes: 4 << 20,
                record_bytes: 1024,
                directory: None,
            })))
        );
    }

    #[test]
    fn values_out_of_range_are_refused_with_the_range() {
        let error = work(STREAM, &[("streams", "1000")]).unwrap_err();
        assert_eq!(error, "`streams` 1000: it must be 1 to 256");
        let error = work(STREAM, &[("direction", "sideways")]).unwrap_err();
        assert_eq!(error, "`direction` sideways: it must be up, down or both");
    }
}
