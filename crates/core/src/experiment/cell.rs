//! A cell: one level of each factor, resolved to a path, a workload and treatments.

use std::fmt;
use std::net::IpAddr;

use super::workload::Work;
use crate::lab::Topology;
use crate::link::PathSpec;
use crate::plan::Extent;
use crate::treatment::Treatments;
use crate::units::{EndpointName, Family};

/// One combination of levels.
#[derive(Debug, Clone, PartialEq)]
pub struct Cell {
    /// Of each factor, the index of its level.
    pub levels: Vec<usize>,
    /// Where it runs.
    pub place: Place,
    /// What it runs.
    pub work: Work,
    /// Under what.
    pub treatments: Treatments,
    /// Why it cannot be run with this version.
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
    /// An emulated one, made for the run.
    Lab {
        /// Its hosts, routers and links.
        topology: Box<Topology>,
        /// What the record says of it: a spec, or the name of a file.
        name: String,
        /// The link, where there is one; what is known of a topology's delays is in it.
        spec: Option<Box<PathSpec>>,
        /// Host of the client.
        client: String,
        /// Host of the endpoint.
        server: String,
        /// Address of the server to connect to; `None` is what its name means.
        address: Option<IpAddr>,
    },
    /// A real one to an endpoint.
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
        };
        let work = work.expect("a test has string keys");
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
    /// Everything that is in it, for [`Cell::identity`].
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.path {
            ExperimentPath::Host(name) => write!(f, "host {name}")?,
            ExperimentPath::Lab {
                topology,
                name: _,
                spec,
                client,
                server,
                address,
            } => match spec {
                Some(spec) => write!(f, "lab {spec}")?,
                None => write!(f, "lab {topology:?} {client} {server} {address:?}")?,
            },
        }
        write!(
            f,
            " {:?} cpu {:?} {:?}",
            self.family, self.client_cpu, self.server_cpu
        )
    }
}
