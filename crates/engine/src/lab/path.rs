//! One path with an endpoint at its far end, which `--lab` uses; the demonstration on such a path;
//! and what a round trip takes by itself.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

use linerate_core::ceilings::Cause;
use linerate_core::lab::{Join, Topology};
use linerate_core::link::PathSpec;
use linerate_core::plan::Direction;
use linerate_core::record::{Caveat, CaveatKind, Check, Environment, HiddenFault, LabFacts};
use linerate_core::units::{Family, digits};
use linerate_sys::netns::Namespace;

use super::build::LabError;
use super::{Lab, LabOptions};
use crate::clock::now_ns;
use crate::own_endpoint::OwnEndpoint;
use crate::stop::Stop;
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
                    "the emulator of link {} fell behind: one packet in a hundred left {} ms late \
                     or more",
                    link.name,
                    digits(late / 1e3)
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

// The demonstration path of `check` without HOST: 100 Mbit/s, 40 ms, and a fault that the check has
// to find.

/// The link spec that all demonstration paths share.
const PATH: &str = "rate=100mbit,rtt=40ms";

/// A fault that can be hidden in the path.
struct DemoFault {
    /// The verdict that finds it.
    cause: Cause,
    /// The direction in which it limits the throughput.
    direction: Direction,
    /// Keys of the path's spec.
    spec: &'static str,
    /// Settings of the hosts: host, key, value.
    settings: &'static [(&'static str, &'static str, &'static str)],
    /// The fault in words.
    words: &'static str,
}

/// Classic faults: a window that suits a LAN, a buffer that suits a LAN, a noisy line, a provider's
/// policer.
const FAULTS: [DemoFault; 4] = [
    DemoFault {
        cause: Cause::ReceiveWindow,
        direction: Direction::Up,
        spec: "",
        settings: &[("server", "net.ipv4.tcp_rmem", "4096 65536 131072")],
        words: "net.ipv4.tcp_rmem of the server ends at 128 KiB",
    },
    DemoFault {
        cause: Cause::SendBuffer,
        direction: Direction::Down,
        spec: "",
        settings: &[("server", "net.ipv4.tcp_wmem", "4096 16384 131072")],
        words: "net.ipv4.tcp_wmem of the server ends at 128 KiB",
    },
    DemoFault {
        cause: Cause::Congestion,
        direction: Direction::Up,
        spec: ",up.loss=0.2%",
        // BBR ignores such loss, and a namespace may only choose CUBIC where the host uses it.
        settings: &[("client", "net.ipv4.tcp_congestion_control", "reno")],
        words: "the line to the server loses one packet in 500",
    },
    DemoFault {
        cause: Cause::Policer,
        direction: Direction::Down,
        spec: ",down.policer=30mbit,down.burst=64KiB",
        settings: &[],
        words: "a policer lets no more than 30 Mbit/s through from the server",
    },
];

/// A path with a hidden fault.
#[derive(Debug)]
pub struct Demo {
    path: LabPath,
    fault: usize,
}

impl Demo {
    /// Makes the path; `seed` chooses the fault.
    ///
    /// # Errors
    /// [`LabError`]; nothing is left behind then.
    pub fn build(seed: u64, family: Option<Family>) -> Result<Self, LabError> {
        // Neighbouring seeds give different faults, and every seed gives one.
        let chosen = (seed % FAULTS.len() as u64) as usize;
        let fault = &FAULTS[chosen];
        let spec: PathSpec =
            format!("{PATH}{}", fault.spec).parse().expect("the specs of this table are tested");
        let options = LabOptions { seed, ..LabOptions::default() };
        let path = LabPath::new(topology(&spec, fault), &spec, family, &options)?;
        Ok(Self { path, fault: chosen })
    }

    /// The path.
    pub fn path(&self) -> &LabPath {
        &self.path
    }

    /// Writes into a check which fault was there and whether its verdict names it.
    pub fn reveal(&self, check: &mut Check) {
        let fault = &FAULTS[self.fault];
        let record = match fault.direction {
            Direction::Down => &check.down,
            Direction::Up | Direction::Both => &check.up,
        };
        let verdict = record.as_ref().and_then(|record| record.verdict());
        check.hidden_fault = Some(HiddenFault {
            direction: fault.direction,
            cause: fault.cause,
            description: fault.words.to_owned(),
            found: verdict.is_some_and(|verdict| verdict.cause == fault.cause),
        });
    }
}

fn topology(spec: &PathSpec, fault: &DemoFault) -> Topology {
    let mut topology = Topology::of_path(spec);
    for node in &mut topology.nodes {
        let own = fault
            .settings
            .iter()
            .filter(|(host, ..)| *host == node.name)
            .map(|(_, key, value)| ((*key).to_owned(), (*value).to_owned()));
        node.sysctls.extend(own);
    }
    topology
}

// The pump's own delay: how long a round trip takes when nothing is emulated.

/// Round trips measured; the median counts.
const ROUNDS: usize = 101;
/// The first ones warm caches and are left out.
const WARM_UP: usize = 20;
/// The fewest answers for a median.
const MIN_SAMPLES: usize = 11;
const ANSWER_WITHIN: Duration = Duration::from_millis(200);
/// How long the end that answers waits before it looks whether the measurement is over.
const LOOK: Duration = Duration::from_millis(5);

/// The median round trip of small datagrams over `link`, whose directions must emulate nothing
/// meanwhile.
pub(super) fn round_trip(
    topology: &Topology,
    link: &Join,
    namespaces: &[Namespace],
) -> Result<Duration, LabError> {
    let bind = |end: usize| {
        let (node, interface) = link.ends[end];
        let addresses = &topology.nodes[node].interfaces[interface].addresses;
        let address =
            addresses.first().map(|prefix| prefix.address).unwrap_or(IpAddr::from([0, 0, 0, 0]));
        namespaces[node].run(move || UdpSocket::bind((address, 0)))
    };
    let (near, far) = (bind(0)?, bind(1)?);
    let measured = near.and_then(|near| measure(&near, &far?));
    measured.map_err(|source| LabError::Host { what: "calibrate the lab's delay", source })
}

fn measure(near: &UdpSocket, far: &UdpSocket) -> io::Result<Duration> {
    near.set_read_timeout(Some(ANSWER_WITHIN))?;
    far.set_read_timeout(Some(LOOK))?;
    let to = far.local_addr()?;
    let stop = Stop::new();
    std::thread::scope(|scope| {
        scope.spawn(|| echo(far, &stop));
        let result = rounds(near, to);
        stop.request();
        result
    })
}

fn echo(far: &UdpSocket, stop: &Stop) {
    let mut buffer = [0; 8];
    while !stop.is_requested() {
        // A failure costs one answer, for which the other side does not wait longer than its
        // deadline.
        if let Ok((length, from)) = far.recv_from(&mut buffer) {
            let _ = far.send_to(&buffer[..length], from);
        }
    }
}

/// False if the answer does not come in time.
fn answered(near: &UdpSocket, question: [u8; 8]) -> io::Result<bool> {
    let mut answer = None;
    while answer != Some(question) {
        let mut bytes = [0; 8];
        match near.recv_from(&mut bytes) {
            Ok(_) => answer = Some(bytes),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            // By a process that was stopped and goes on.
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

/// Each question has its number, so that a late answer is not taken for the next one's.
fn rounds(near: &UdpSocket, to: SocketAddr) -> io::Result<Duration> {
    let mut times = Vec::with_capacity(ROUNDS);
    for number in 0..(WARM_UP + ROUNDS) as u64 {
        let question = number.to_be_bytes();
        let sent = now_ns();
        near.send_to(&question, to)?;
        if answered(near, question)? && number >= WARM_UP as u64 {
            times.push(now_ns() - sent);
        }
    }
    // On a machine that stands still for a while some answers are late, and a few are enough.
    if times.len() < MIN_SAMPLES {
        return Err(io::ErrorKind::TimedOut.into());
    }
    times.sort_unstable();
    Ok(Duration::from_nanos(times[times.len() / 2]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_makes_a_path_and_every_seed_a_fault() {
        for fault in &FAULTS {
            let spec: PathSpec = format!("{PATH}{}", fault.spec).parse().unwrap();
            let topology = topology(&spec, fault);
            for (host, key, value) in fault.settings {
                assert_eq!(topology.node(host).unwrap().sysctls[*key], *value);
            }
        }
    }
}
