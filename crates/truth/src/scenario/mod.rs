//! Scenarios: runs whose limiting cause is known before they begin.
//!
//! [`draw()`] makes [`Scenario`]s from a seed. Each is a path, a test and the settings of its two
//! hosts. The limits are computed here from the conditions, with formulas of this module's own: the
//! code under test, [`linerate_core::ceilings`], gives nothing but the names of the causes.
//!
//! | module | what is in it |
//! |---|---|
//! | `conditions` | the conditions of a scenario, and the limit that each of them sets |
//! | `causes` | for each cause, conditions under which it may be the lowest limit |
//! | `draw` | the families, and which conditions are clear enough for a single limit |
//! | `outside` | the families that resemble what users meet, outside of those formulas |
//! | `assemble` | conditions as a path, a test and two hosts, and in words |

mod assemble;
mod causes;
mod conditions;
mod draw;
mod outside;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use linerate_core::ceilings::Cause;
use linerate_core::lab::{Prefix, Route, Topology};
use linerate_core::link::{LinkSpec, PathSpec};
use linerate_core::plan::{Direction, Extent, Test};
use linerate_core::units::{BitRate, Family, Span};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub(crate) use draw::{
    BORDER, CAUSES, SINGLE_LIMIT, ScenarioFamily, draw, families, families_named,
};

use assemble::{describe, hosts, path, test};
use conditions::{Conditions, slow_start_rounds};

/// A run whose limiting cause is known before it begins.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Scenario {
    /// Number among the scenarios of its seed, from 0; the same seed and number give the same
    /// scenario.
    pub(crate) number: u32,
    /// Name of its family.
    pub(crate) family: String,
    /// The cause that holds it back.
    pub(crate) cause: Cause,
    /// Other verdicts that are right.
    pub(crate) accepted: Vec<Cause>,
    /// The rate that the cause allows, payload bits/s; absent if nothing sets it.
    pub(crate) limit_bps: Option<f64>,
    /// The limits of the other conditions, payload bits/s, the lowest first.
    pub(crate) rivals: Vec<(Cause, f64)>,
    /// Whether a rival is within 10 % of the limit.
    pub(crate) is_border: bool,
    /// IPv4 or IPv6.
    pub(crate) ip: Family,
    /// The path; `None` for a plain veth pair.
    #[serde(serialize_with = "path_text", deserialize_with = "path_of_text")]
    pub(crate) path: Option<PathSpec>,
    /// The test that is run on it.
    pub(crate) test: Test,
    /// The client's host.
    pub(crate) client: HostSetup,
    /// The endpoint's host.
    pub(crate) server: HostSetup,
    /// Everything beside the path and its hosts.
    pub(crate) around: Around,
    /// The scenario in one line.
    pub(crate) describe: String,
}

/// The settings of a host of a scenario.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct HostSetup {
    /// Settings of its network namespace.
    pub(crate) sysctls: BTreeMap<String, String>,
    /// Whether TSO and GSO are off on its interface.
    pub(crate) offload_off: bool,
    /// `advmss` of its route to the other host, bytes.
    pub(crate) advertised_mss: Option<u32>,
    /// The share of a CPU that its data threads get.
    pub(crate) cpu: CpuShare,
}

/// The share of a CPU that the data threads of a host get.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum CpuShare {
    /// Any CPU, as the scheduler decides.
    Any,
    /// One CPU, and no other.
    Own {
        /// Index among the CPUs that the process may use, from 0.
        cpu: u32,
    },
    /// One CPU, together with threads that never rest.
    Shared {
        /// Index among the CPUs that the process may use, from 0.
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
pub(crate) struct Around {
    /// Queues of the kernel with a rate.
    pub(crate) shapers: Vec<KernelShaper>,
    /// Traffic of other programs.
    pub(crate) traffic: Vec<OtherTraffic>,
    /// A QoS policy that is in force at the sender, as its file's text.
    pub(crate) policy: Option<String>,
    /// Recorded rates by the names that the path gives them.
    pub(crate) traces: BTreeMap<String, String>,
    /// Whether iperf3 serves at the far end, in place of linerate.
    pub is_iperf3: bool,
    /// The program that makes the test's traffic while linerate looks on; absent if linerate makes
    /// it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) program: Option<TrafficProgram>,
    /// Whether both ends are on the server's host.
    pub(crate) is_loopback: bool,
    /// The rate that plain sockets must carry without the shapers, payload bits/s: else the limit
    /// is not known to be the lowest.
    pub(crate) needs_bps: Option<f64>,
}

/// A program that makes a test's traffic in linerate's place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum TrafficProgram {
    /// A script with plain sockets.
    Python,
    /// iperf3 as client and server.
    Iperf3,
    /// nginx, which serves a file to curl.
    Nginx,
    /// socat at both ends.
    Socat,
    /// ssh and sshd; what is sent is encrypted.
    Ssh,
    /// scp, which copies a file.
    Scp,
}

/// A queue of the kernel with a rate, at a device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct KernelShaper {
    /// Host or router that has it.
    pub(crate) node: String,
    /// Device of that node.
    pub(crate) interface: String,
    /// Description for people.
    pub(crate) words: String,
    /// The arguments of `tc` that make it; `DEV` stands for the device.
    pub(crate) setup: Vec<String>,
    /// Changes of its rate, if it does not stay the same.
    pub(crate) steps: Option<RateSteps>,
}

/// Changes that are repeated for ever.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct RateSteps {
    /// Time from one change to the next.
    pub(crate) every: Span,
    /// The arguments of `tc` for each change.
    pub(crate) commands: Vec<String>,
}

/// Traffic of another program.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct OtherTraffic {
    /// Direction, seen from the client.
    pub(crate) direction: Direction,
    /// Datagrams at this rate, payload bits/s; absent: flows of TCP as fast as possible.
    pub(crate) udp_bps: Option<u64>,
    /// Number of flows.
    pub(crate) flows: u32,
}

impl Around {
    /// The particulars in words, for [`Scenario::describe`].
    fn describe(&self) -> Vec<String> {
        let shapers = (self.shapers.iter())
            .map(|shaper| format!("{} at {}'s {}", shaper.words, shaper.node, shaper.interface));
        let others = self.traffic.iter().map(|other| {
            let direction = other.direction.word();
            match other.udp_bps {
                Some(rate) => format!("others send UDP {direction} at {}", BitRate(rate)),
                None => format!("others have {} TCP flows {direction}", other.flows),
            }
        });
        let facts = [
            (self.is_loopback, "loopback"),
            (self.is_iperf3, "an iperf3 server"),
            (self.policy.is_some(), "a QoS policy at the sender"),
        ]
        .into_iter()
        .filter(|(holds, _)| *holds)
        .map(|(_, word)| word.to_owned());
        facts.chain(shapers).chain(others).collect()
    }
}

impl TrafficProgram {
    /// All programs.
    const ALL: [Self; 6] =
        [Self::Python, Self::Iperf3, Self::Nginx, Self::Socat, Self::Ssh, Self::Scp];

    /// Name in descriptions of scenarios.
    fn words(self) -> &'static str {
        match self {
            Self::Python => "sockets of Python",
            Self::Iperf3 => "iperf3",
            Self::Nginx => "curl from nginx",
            Self::Socat => "socat",
            Self::Ssh => "ssh",
            Self::Scp => "scp",
        }
    }
}

impl CpuShare {
    /// The share of one CPU, 0 to 1.
    fn of_a_cpu(self) -> f64 {
        match self {
            Self::Any | Self::Own { .. } => 1.0,
            Self::Shared { neighbours, .. } => 1.0 / f64::from(neighbours + 1),
            Self::Quota { percent } => f64::from(percent) / 100.0,
        }
    }
}

impl Scenario {
    fn new(number: u32, seed: u64, cause: Cause, conditions: &Conditions, limit_bps: f64) -> Self {
        let limits = conditions.limits().into_iter();
        let rivals: Vec<_> = limits
            .filter(|limit| limit.cause != cause)
            .map(|limit| (limit.cause, limit.bps))
            .collect();
        let line = conditions.line.as_ref();
        let path = line.map(|line| path(line, conditions.direction));
        let (client, server) = hosts(conditions);
        // Datagrams at a set rate are what was asked for.
        let is_as_asked = cause == Cause::ApplicationSend && conditions.is_udp;
        Self {
            number,
            family: SINGLE_LIMIT.to_owned(),
            cause,
            accepted: Vec::from_iter(is_as_asked.then_some(Cause::AsAsked)),
            limit_bps: Some(limit_bps),
            is_border: rivals.iter().any(|(_, bps)| *bps <= BORDER * limit_bps),
            rivals,
            ip: conditions.family,
            describe: describe(conditions, path.as_ref(), false),
            path,
            test: test(conditions, cause, seed.wrapping_add(number.into())),
            client,
            server,
            around: Around::default(),
        }
    }

    /// The hosts and links to build, with the settings and routes of both hosts.
    pub(crate) fn topology(&self) -> Topology {
        let plain = PathSpec::default();
        let mut topology = Topology::of_path(self.path.as_ref().unwrap_or(&plain));
        for (name, setup, peer) in
            [("client", &self.client, "server"), ("server", &self.server, "client")]
        {
            let there = topology.node(peer).map(|node| node.interfaces[0].addresses.clone());
            let Some(node) = topology.nodes.iter_mut().find(|node| node.name == name) else {
                continue;
            };
            node.sysctls.extend(setup.sysctls.clone());
            if let Some(advmss) = setup.advertised_mss {
                let to_peer = there.into_iter().flatten().map(|prefix| prefix.address);
                // Over the link itself, with the peer as its own gateway.
                node.routes.extend(to_peer.map(|peer| Route {
                    to: Prefix { address: peer, length: if peer.is_ipv4() { 32 } else { 128 } },
                    via: peer,
                    source: None,
                    mtu: None,
                    advmss: Some(advmss),
                    quickack: None,
                }));
            }
        }
        topology
    }

    /// Length of the measurement with its warm-up, seconds; of a transfer the time of slow start.
    pub(crate) fn seconds(&self) -> f64 {
        let path = self.path.as_ref();
        let rtt = path.map_or(0.0, |path| (path.up.delay + path.down.delay).0 as f64 / 1e9);
        match self.test.extent {
            Extent::Bytes(bytes) => rtt * (2.0 + slow_start_rounds(bytes.0 as f64, 536.0)),
            _ => self.test.seconds().unwrap_or(0.0),
        }
    }

    /// Whether it needs the machine for itself: the CPU is its limit, or it handles many packets.
    pub(crate) fn needs_whole_machine(&self) -> bool {
        let takes_cpu = |host: &HostSetup| host.cpu != CpuShare::Any;
        let is_plain = self.path.is_none() && self.around.shapers.is_empty();
        is_plain
            || self.limit_bps.is_none_or(|limit| limit > QUIET_BPS)
            || takes_cpu(&self.client)
            || takes_cpu(&self.server)
    }

    /// Whether the lab makes nothing but delay: the kernel shapes, or nothing does.
    pub(crate) fn is_kernels_own(&self) -> bool {
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
    text.map(|text| text.parse().map_err(D::Error::custom)).transpose()
}
