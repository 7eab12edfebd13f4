//! An experiment with everything resolved, as plain data.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::measure::Measure;
use super::workload::Work;
use crate::compare::Fault;
use crate::lab::Topology;
use crate::link::PathSpec;
use crate::plan::{Extent, Repeats};
use crate::stats::Accepted;
use crate::treatment::Treatments;
use crate::units::{EndpointName, Family};

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
