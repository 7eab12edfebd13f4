//! One path with an endpoint at its far end: what `--lab` and the demonstration use.

use std::net::IpAddr;
use std::time::Duration;

use linerate_core::lab::Topology;
use linerate_core::link::PathSpec;
use linerate_core::record::{Caveat, CaveatKind, Environment, LabFacts};
use linerate_core::units::Family;

use super::error::LabError;
use super::{Lab, LabOptions};
use crate::own_endpoint::OwnEndpoint;
use crate::target::Target;

/// The host of the client, as the topologies of paths call it.
const CLIENT: &str = "client";
/// The host of the endpoint.
const SERVER: &str = "server";
/// The record has a caveat if the emulator was late by more than this and by more than a twentieth
/// of the round-trip time.
const LATE: Duration = Duration::from_millis(1);
const LATE_SHARE: u32 = 20;

/// Two hosts, a path between them, and an endpoint on the second.
#[derive(Debug)]
pub struct LabPath {
    // First, so that it ends while its namespace is there.
    endpoint: OwnEndpoint,
    lab: Lab,
    spec: String,
    rtt: Duration,
    client: String,
    server: String,
}

/// The two hosts of a path.
#[derive(Debug, Clone, Copy)]
pub struct LabEnds<'a> {
    /// Host of the client.
    pub client: &'a str,
    /// Host of the endpoint.
    pub server: &'a str,
    /// Address that the endpoint serves at; `None` is the first of its host's.
    pub address: Option<IpAddr>,
}

impl LabPath {
    /// Makes the path of `spec` and serves at its far end, over IPv6 if `family` says so.
    ///
    /// # Errors
    /// [`LabError`]; nothing is left behind then.
    pub fn build(
        spec: &PathSpec,
        family: Option<Family>,
        options: &LabOptions,
    ) -> Result<Self, LabError> {
        Self::new(Topology::of_path(spec), spec, family, options)
    }

    /// As [`LabPath::build`], on a topology that has hosts called `client` and `server`.
    pub(crate) fn new(
        topology: Topology,
        spec: &PathSpec,
        family: Option<Family>,
        options: &LabOptions,
    ) -> Result<Self, LabError> {
        let ends = LabEnds { client: CLIENT, server: SERVER, address: None };
        Self::between(topology, spec.to_string(), ends, family, options)
    }

    /// Makes a path between two hosts of any topology, which the record calls `name`.
    ///
    /// # Errors
    /// As of [`LabPath::build`].
    pub fn between(
        topology: Topology,
        name: String,
        ends: LabEnds<'_>,
        family: Option<Family>,
        options: &LabOptions,
    ) -> Result<Self, LabError> {
        let delays = topology.links.iter().map(|link| link.up.delay + link.down.delay);
        let rtt = Duration::from_nanos(delays.map(|delay| delay.0).max().unwrap_or(0));
        let lab = Lab::build(topology, options)?;
        let first = || lab.address(ends.server, family);
        let bind = ends.address.or_else(first).unwrap_or(IpAddr::from([0; 4]));
        let endpoint = OwnEndpoint::start(bind, lab.namespace(ends.server))
            .map_err(|error| LabError::Endpoint(Box::new(error)))?;
        Ok(Self {
            endpoint,
            lab,
            spec: name,
            rtt,
            client: ends.client.to_owned(),
            server: ends.server.to_owned(),
        })
    }

    /// Moves the calling thread, and what it starts from now on, to the client's host.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn enter(&self) -> Result<(), LabError> {
        match self.lab.namespace(&self.client) {
            Some(client) => Ok(client.enter()?),
            None => Ok(()),
        }
    }

    /// The endpoint, as the client reaches it.
    pub fn target(&self) -> Target {
        self.endpoint.target(&self.server)
    }

    /// The lab itself.
    pub fn lab(&self) -> &Lab {
        &self.lab
    }

    /// What the record says of the path.
    fn facts(&self) -> LabFacts {
        let report = self.lab.report();
        LabFacts {
            spec: self.spec.clone(),
            baseline_rtt_us: report.baseline.map(|rtt| rtt.as_secs_f64() * 1e6),
            links: report.links,
        }
    }

    /// Writes the path, its figures and caveats about its emulator into records. The figures are
    /// read once, so that all records of a document agree.
    pub fn describe<'a>(
        &self,
        records: impl IntoIterator<Item = (&'a mut Environment, &'a mut Vec<Caveat>)>,
    ) {
        let (facts, spoiled) = (self.facts(), self.caveats());
        for (environment, caveats) in records {
            environment.lab = Some(facts.clone());
            caveats.extend(spoiled.iter().cloned());
        }
    }

    /// Caveats where the emulator fell behind, so that its figures are not those of the spec.
    pub fn caveats(&self) -> Vec<Caveat> {
        let report = self.lab.report();
        let tolerance = LATE.max(self.rtt / LATE_SHARE).as_secs_f64() * 1e6;
        let mut caveats = Vec::new();
        for link in &report.links {
            let directions = [&link.up, &link.down];
            let late = directions.iter().filter_map(|way| way.lateness_p99_us).fold(0.0, f64::max);
            let lost: u64 = directions.iter().map(|way| way.overflowed).sum();
            if late > tolerance {
                caveats.push(overload(format!(
                    "the emulator of link {} fell behind: one packet in a hundred left {:.1} ms \
                     late or more",
                    link.name,
                    late / 1e3
                )));
            }
            if lost > 0 {
                caveats.push(overload(format!(
                    "the emulator of link {} lost {lost} packets by its own fault",
                    link.name
                )));
            }
        }
        caveats
    }
}

fn overload(message: String) -> Caveat {
    Caveat::new(
        CaveatKind::EmulatorOverload,
        message,
        "emulate a lower rate, or leave this machine's CPUs to the lab",
    )
}
