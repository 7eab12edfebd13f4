//! A scenario: the test to run, and the verdicts that are right.

use std::collections::BTreeMap;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::assemble::{hosts, path, test};
use super::conditions::{Conditions, slow_start_rounds};
use super::describe::describe;
use super::score::Judgement;
use crate::ceilings::Cause;
use crate::lab::{Prefix, Route, Topology};
use crate::link::{LinkSpec, PathSpec};
use crate::plan::{Direction, Extent, Test};
use crate::units::{BitRate, Family, Span};

/// A run whose limiting cause is known before it begins.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Scenario {
    /// Its number among the scenarios of its seed, from 0; the same seed and number give the same
    /// scenario.
    pub number: u32,
    /// Its family.
    pub family: String,
    /// The cause that holds it back.
    pub cause: Cause,
    /// Other verdicts that are right.
    pub accepted: Vec<Cause>,
    /// The rate that the cause allows, payload bits/s; absent if nothing sets it.
    pub limit_bps: Option<f64>,
    /// The limits of the other conditions, payload bits/s, the lowest first.
    pub rivals: Vec<(Cause, f64)>,
    /// A rival is within 10 % of the limit.
    pub is_border: bool,
    /// IPv4 or IPv6.
    pub ip: Family,
    /// The path; `None`: a plain veth pair.
    #[serde(serialize_with = "path_text", deserialize_with = "path_of_text")]
    pub path: Option<PathSpec>,
    /// The test that is run on it.
    pub test: Test,
    /// The client's host.
    pub client: HostSetup,
    /// The endpoint's host.
    pub server: HostSetup,
    /// Everything beside them.
    pub around: Surroundings,
    /// The scenario in one line.
    pub describe: String,
}

/// The settings of a host of a scenario.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HostSetup {
    /// Settings of its network namespace.
    pub sysctls: BTreeMap<String, String>,
    /// Neither TSO nor GSO on its interface.
    pub offload_off: bool,
    /// `advmss` of its route to the other host, bytes.
    pub advertised_mss: Option<u32>,
    /// The share of a CPU that its data threads get.
    pub cpu: CpuShare,
}

/// The share of a CPU that the data threads of a host get.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CpuShare {
    /// As the scheduler decides.
    Any,
    /// One CPU, and no other.
    Own {
        /// Its index among those that the process may use, from 0.
        cpu: u32,
    },
    /// One CPU, together with threads that never rest.
    Shared {
        /// Its index among those that the process may use, from 0.
        cpu: u32,
        /// Number of the threads.
        neighbours: u32,
    },
    /// A control group's quota.
    Quota {
        /// Share of one CPU.
        percent: u32,
    },
}

/// Everything beside the path and its hosts.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Surroundings {
    /// Queues of the kernel with a rate.
    pub shapers: Vec<Shaper>,
    /// Traffic of other programs.
    pub traffic: Vec<OtherTraffic>,
    /// A QoS policy that is in force at the sender, as its file's text.
    pub policy: Option<String>,
    /// Recorded rates by the names that the path gives them.
    pub traces: BTreeMap<String, String>,
    /// iperf3 serves at the far end, and linerate does not.
    pub is_iperf3: bool,
    /// Another program makes the test's traffic, and linerate looks on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<Program>,
    /// Both ends are on the server's host.
    pub is_loopback: bool,
    /// The rate that plain sockets must carry without the shapers, payload bits/s: else the limit
    /// is not known to be the lowest.
    pub needs_bps: Option<f64>,
}

/// A program that makes a test's traffic in linerate's place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Program {
    /// A script of its sockets.
    Python,
    /// Its client and its server.
    Iperf3,
    /// It serves a file to curl.
    Nginx,
    /// Both ends.
    Socat,
    /// Its client and sshd; what is sent is encrypted.
    Ssh,
    /// It copies a file.
    Scp,
}

/// A queue of the kernel's at a device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Shaper {
    /// Host or router.
    pub node: String,
    /// Its device.
    pub interface: String,
    /// Its description.
    pub words: String,
    /// The arguments of `tc` that make it; `DEV` stands for the device.
    pub setup: Vec<String>,
    /// Its changes, if it does not stay the same.
    pub steps: Option<Steps>,
}

/// Changes that are repeated for ever.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Steps {
    /// Time from one change to the next.
    pub every: Span,
    /// The arguments of `tc` for each change.
    pub commands: Vec<String>,
}

/// Traffic of another program.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct OtherTraffic {
    /// Its direction, seen from the client.
    pub direction: Direction,
    /// Datagrams at this rate, payload bits/s; absent: flows of TCP as fast as possible.
    pub udp_bps: Option<u64>,
    /// Number of flows.
    pub flows: u32,
}

impl Surroundings {
    /// The particulars, in words.
    pub(super) fn describe(&self) -> Vec<String> {
        let shapers = (self.shapers.iter())
            .map(|shaper| format!("{} at {}'s {}", shaper.words, shaper.node, shaper.interface));
        let others = self.traffic.iter().map(|other| {
            let direction = other.direction.word();
            match other.udp_bps {
                Some(rate) => format!("others send UDP {direction} at {}", BitRate(rate)),
                None => format!("others have {} TCP flows {direction}", other.flows),
            }
        });
        let holding = [
            (self.is_loopback, "loopback"),
            (self.is_iperf3, "an iperf3 server"),
            (self.policy.is_some(), "a QoS policy at the sender"),
        ];
        let holding = holding.into_iter().filter(|(holds, _)| *holds);
        let words = holding.map(|(_, word)| word.to_owned());
        words.chain(shapers).chain(others).collect()
    }
}

impl CpuShare {
    /// The share of one CPU, 0 to 1.
    pub fn of_a_cpu(self) -> f64 {
        match self {
            Self::Any | Self::Own { .. } => 1.0,
            Self::Shared { neighbours, .. } => 1.0 / f64::from(neighbours + 1),
            Self::Quota { percent } => f64::from(percent) / 100.0,
        }
    }
}

impl Scenario {
    pub(super) fn new(
        number: u32,
        seed: u64,
        cause: Cause,
        conditions: &Conditions,
        limit_bps: f64,
    ) -> Self {
        let limits = conditions.limits().into_iter();
        let rivals = limits.filter(|limit| limit.cause != cause);
        let rivals: Vec<_> = rivals.map(|limit| (limit.cause, limit.bps)).collect();
        let line = conditions.line.as_ref();
        let path = line.map(|line| path(line, conditions.direction));
        let (client, server) = hosts(conditions);
        // Datagrams at a set rate are what was asked for.
        let is_as_asked = cause == Cause::ApplicationSend && conditions.is_udp;
        Self {
            number,
            family: super::OLD.to_owned(),
            cause,
            accepted: Vec::from_iter(is_as_asked.then_some(Cause::AsAsked)),
            limit_bps: Some(limit_bps),
            is_border: rivals
                .iter()
                .any(|(_, bps)| *bps <= super::BORDER * limit_bps),
            rivals,
            ip: conditions.family,
            describe: describe(conditions, path.as_ref(), false),
            path,
            test: test(conditions, cause, seed.wrapping_add(number.into())),
            client,
            server,
            around: Surroundings::default(),
        }
    }

    /// Judges a verdict: right are the cause and the accepted causes, and at a border also a rival
    /// within 10 % and `unexplained`.
    pub fn judge(&self, verdict: Cause) -> Judgement {
        let near = |(cause, bps): &(Cause, f64)| {
            (*cause == verdict || verdict == Cause::Unexplained)
                && *bps <= super::BORDER * self.limit_bps.unwrap_or(0.0)
        };
        let is_named = verdict == self.cause || self.accepted.contains(&verdict);
        if is_named || self.rivals.iter().any(near) {
            Judgement::Right
        } else {
            Judgement::Wrong
        }
    }

    /// The hosts and links to build, with the settings and routes of both hosts.
    pub fn topology(&self) -> Topology {
        let plain = PathSpec::default();
        let mut topology = Topology::of_path(self.path.as_ref().unwrap_or(&plain));
        for (name, setup, peer) in [
            ("client", &self.client, "server"),
            ("server", &self.server, "client"),
        ] {
            let there = topology.node(peer);
            let there = there.map(|node| node.interfaces[0].addresses.clone());
            let Some(node) = topology.nodes.iter_mut().find(|node| node.name == name) else {
                continue;
            };
            node.sysctls.extend(setup.sysctls.clone());
            if let Some(advmss) = setup.advertised_mss {
                let to_peer = there.into_iter().flatten().map(|prefix| prefix.address);
                // Over the link itself, with the peer as its own gateway.
                node.routes.extend(to_peer.map(|peer| Route {
                    advmss: Some(advmss),
                    ..Route::new(Prefix::of_host(peer), peer)
                }));
            }
        }
        topology
    }

    /// Length of the measurement with its warm-up, seconds; of a transfer the time of slow start.
    pub fn seconds(&self) -> f64 {
        let path = self.path.as_ref();
        let rtt = path.map_or(0.0, |path| (path.up.delay + path.down.delay).0 as f64 / 1e9);
        match self.test.extent {
            Extent::Bytes(bytes) => rtt * (2.0 + slow_start_rounds(bytes.0 as f64, 536.0)),
            _ => self.test.seconds().unwrap_or(0.0),
        }
    }

    /// Whether it needs the machine for itself: the CPU is its limit, or it handles many packets.
    pub fn needs_whole_machine(&self) -> bool {
        let takes_cpu = |host: &HostSetup| host.cpu != CpuShare::Any;
        let is_plain = self.path.is_none() && self.around.shapers.is_empty();
        is_plain
            || self.limit_bps.is_none_or(|limit| limit > QUIET_BPS)
            || takes_cpu(&self.client)
            || takes_cpu(&self.server)
    }

    /// Whether the lab makes nothing but delay: the kernel shapes, or nothing does.
    pub fn is_kernels_own(&self) -> bool {
        let only_delays = |link: &LinkSpec| link.treats_packets_alike();
        (self.path.iter()).all(|path| only_delays(&path.up) && only_delays(&path.down))
    }
}

/// Largest limit with which several scenarios may run beside each other, bits/s.
const QUIET_BPS: f64 = 20e6;

fn path_text<S: Serializer>(path: &Option<PathSpec>, serializer: S) -> Result<S::Ok, S::Error> {
    match path {
        Some(path) => serializer.collect_str(path),
        None => serializer.serialize_none(),
    }
}

fn path_of_text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<PathSpec>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?;
    text.map(|text| text.parse().map_err(D::Error::custom))
        .transpose()
}
