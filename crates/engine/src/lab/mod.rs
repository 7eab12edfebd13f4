//! The lab: hosts, routers and links on this machine, in network namespaces.
//!
//! [`prepare`] gives the process the privileges for a lab, [`Lab::build`] makes the lab that a
//! [`Topology`] describes, and dropping the [`Lab`] takes it away again. Nothing is mounted or
//! written, so a lab ends with its process, even if that is killed.
//!
//! | module | what is in it |
//! |---|---|
//! | `build` | namespaces, links, addresses, routes, settings; what can go wrong |
//! | `pump` | carries packets over the emulated links |
//! | `path` | one path with an endpoint on it; the demonstration; the pump's own delay |
//! | `quota` | a quota of CPU time for the threads of a host |
//! | `daemon` | labs in the background |

mod build;
mod daemon;
mod path;
mod pump;
mod quota;

use std::net::IpAddr;
use std::time::Duration;

use linerate_core::lab::{Join, Prefix, Role, Topology};
use linerate_core::link::{LinkSpec, RateTrace};
use linerate_core::record::{LabDirection, LabLink};
use linerate_core::units::{Family, Nanos};
use linerate_sys::idle::IdleSpinners;
use linerate_sys::netns::{Namespace, enter_user_namespace, user_namespaces_allowed};
use linerate_sys::proc::Probe;
use linerate_sys::proc::privilege::{Capability, Privileges};

pub use build::LabError;
pub use daemon::{HostState, LabDirectory, LabState, hold_lab, start_holder};
pub use path::{Demo, LabEnds, LabPath};
pub use quota::CpuQuota;

use build::Built;
use pump::{GaugeReading, OneWaySetup, Pump};

/// What a lab needs besides its topology.
#[derive(Debug, Clone, Default)]
pub struct LabOptions {
    /// Seed of every random choice of the links.
    pub seed: u64,
    /// Recorded rates by the name that the links' specs give them.
    pub traces: Vec<(String, RateTrace)>,
}

/// Hosts, routers and links that exist as long as this value.
#[derive(Debug)]
pub struct Lab {
    topology: Topology,
    // In this order: the pump ends before the links that it drives, and the spinners last.
    pump: Option<Pump>,
    built: Built,
    baseline: Option<Duration>,
    _spinners: Option<IdleSpinners>,
}

/// Figures of the emulated links so far.
#[derive(Debug, Clone)]
pub struct LabReport {
    /// Round-trip time through the pump without emulated delay, which is subtracted from the
    /// delays. `None` where no link has a delay.
    pub baseline: Option<Duration>,
    /// Each emulated link, in the order of the topology: up is from its first end to its second.
    pub links: Vec<LabLink>,
}

/// Gives this process the privileges for a lab: if it is not root, it becomes root of a user
/// namespace. Call it while the process has only one thread.
///
/// # Errors
/// [`LabError::NotAllowed`] with what stands in the way.
pub fn prepare() -> Result<(), LabError> {
    let is_root = Privileges::read().is_ok_and(|privileges| {
        privileges.has(Capability::SysAdmin) && privileges.has(Capability::NetAdmin)
    });
    if is_root {
        return Ok(());
    }
    match user_namespaces_allowed() {
        Probe::Supported(()) => enter_user_namespace().map_err(LabError::UserNamespace),
        Probe::Unsupported(reason) | Probe::Unknown(reason) => Err(LabError::NotAllowed { reason }),
    }
}

impl Lab {
    /// Makes namespaces, links, addresses, routes and settings, and starts the pump.
    ///
    /// # Errors
    /// [`LabError`]; nothing is left behind then.
    pub fn build(topology: Topology, options: &LabOptions) -> Result<Self, LabError> {
        let specs = topology.links.iter().flat_map(|link| [&link.up, &link.down]);
        for name in specs.filter_map(|spec| spec.trace.as_ref()) {
            if !options.traces.iter().any(|(known, _)| known == name) {
                return Err(LabError::NoTrace { name: name.clone() });
            }
        }
        let built = build::build(&topology)?;
        let mut lab = Self { topology, pump: None, built, baseline: None, _spinners: None };
        if lab.built.inside.is_some() {
            lab._spinners = Some(IdleSpinners::start().map_err(LabError::Idle)?);
            lab.calibrate()?;
            lab.pump = Some(lab.start_pump(options)?);
        }
        Ok(lab)
    }

    /// The topology that the lab was made of.
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// The namespace of a host or router.
    pub fn namespace(&self, node: &str) -> Option<&Namespace> {
        let index = self.topology.nodes.iter().position(|n| n.name == node)?;
        self.built.namespaces.get(index)
    }

    /// The address that a node's name means; of `family`, or IPv4 where there is one.
    pub fn address(&self, node: &str, family: Option<Family>) -> Option<IpAddr> {
        let addresses = &self.topology.node(node)?.interfaces.first()?.addresses;
        let wanted = |address: &IpAddr| match family {
            Some(Family::Ipv6) => address.is_ipv6(),
            Some(Family::Ipv4) => address.is_ipv4(),
            None => true,
        };
        let mut addresses = addresses.iter().map(|prefix| prefix.address);
        addresses.find(wanted)
    }

    /// What the emulated links did so far.
    pub fn report(&self) -> LabReport {
        let emulated = self.topology.links.iter().filter(|link| !link.is_plain());
        let gauges = self.pump.as_ref().map_or(&[][..], Pump::gauges);
        let links = emulated.zip(gauges).map(|(link, [up, down])| LabLink {
            name: link.name.clone(),
            up: direction(&up.read()),
            down: direction(&down.read()),
        });
        LabReport { baseline: self.baseline, links: links.collect() }
    }

    /// Measures with links that add nothing, so that only the time of the pump and the hosts is
    /// left.
    fn calibrate(&mut self) -> Result<(), LabError> {
        let delays = |link: &Join| !link.is_plain() && delay(link) > Nanos::ZERO;
        let Some(number) = self.topology.links.iter().position(delays) else {
            return Ok(());
        };
        let link = &self.topology.links[number];
        let nothing = |_: &Join, _| [(); 2].map(|()| OneWaySetup::default());
        let pump = self.start(Some(number), nothing)?;
        let measured = path::round_trip(&self.topology, link, &self.built.namespaces);
        drop(pump);
        self.baseline = Some(measured?);
        Ok(())
    }

    fn start_pump(&self, options: &LabOptions) -> Result<Pump, LabError> {
        let topology = &self.topology;
        self.start(None, |link, number| {
            let own = self.own_delay(link);
            [(&link.up, 0), (&link.down, 1)].map(|(spec, end)| {
                OneWaySetup {
                    spec: LinkSpec { delay: spec.delay - own, ..spec.clone() },
                    trace: trace(spec, &options.traces),
                    // Each direction of each link has dice of its own.
                    seed: options.seed.wrapping_add(2 * number as u64 + end as u64),
                    router: answerer(topology, link, end).to_vec(),
                }
            })
        })
    }

    /// One-way delay that the emulator adds to a link. Most of it is the time in which a sleeping
    /// host wakes up, and a router adds almost nothing: each host at an end of the link counts
    /// half.
    fn own_delay(&self, link: &Join) -> Nanos {
        let is_host = |(node, _): &&(usize, usize)| self.topology.nodes[*node].role == Role::Host;
        let hosts = link.ends.iter().filter(is_host).count() as u64;
        let round_trip = self.baseline.unwrap_or_default().as_nanos();
        Nanos(u64::try_from(round_trip / 4).unwrap_or(0) * hosts)
    }

    /// Starts a pump for the emulated links, or for one only.
    fn start(
        &self,
        only: Option<usize>,
        ways: impl Fn(&Join, usize) -> [OneWaySetup; 2],
    ) -> Result<Pump, LabError> {
        let Some(inside) = &self.built.inside else {
            return Pump::start(Vec::new(), 1).map_err(no_thread);
        };
        let wires = build::open_wires(&self.topology, inside, only, ways)?;
        let cpus = linerate_sys::thread::affinity().map_or(1, |cpus| cpus.len());
        // Sender and receiver need CPUs, too.
        Pump::start(wires, (cpus / 2).max(1)).map_err(no_thread)
    }
}

/// The figures of one direction, as documents have them.
fn direction(reading: &GaugeReading) -> LabDirection {
    let counters = &reading.counters;
    let lateness_us = reading.lateness.summary();
    LabDirection {
        offered: counters.offered,
        delivered: counters.delivered,
        delivered_bytes: counters.delivered_bytes,
        packets_below_128: counters.sizes.below_128,
        packets_128_to_511: counters.sizes.from_128,
        packets_512_to_1535: counters.sizes.from_512,
        packets_from_1536: counters.sizes.from_1536,
        duplicated: counters.duplicated,
        corrupted: counters.corrupted,
        reordered: counters.reordered,
        marked: counters.marked,
        dropped_mtu: counters.dropped.mtu,
        dropped_policer: counters.dropped.policer,
        dropped_loss: counters.dropped.loss,
        dropped_queue: counters.dropped.queue,
        dropped_aqm: counters.dropped.aqm,
        overflowed: reading.overflowed,
        lateness_p50_us: lateness_us.map(|summary| summary.p50),
        lateness_p99_us: lateness_us.map(|summary| summary.p99),
    }
}

/// The sender address of answers to packets that are too big for a link: that of the router before
/// the link. Where no router is before it, the next node's, because a host drops answers from
/// itself.
fn answerer<'a>(topology: &'a Topology, link: &Join, end: usize) -> &'a [Prefix] {
    let is_router = topology.nodes[link.ends[end].0].role == Role::Router;
    let (node, interface) = link.ends[if is_router { end } else { 1 - end }];
    &topology.nodes[node].interfaces[interface].addresses
}

fn delay(link: &Join) -> Nanos {
    link.up.delay.max(link.down.delay)
}

fn trace(spec: &LinkSpec, traces: &[(String, RateTrace)]) -> Option<RateTrace> {
    let name = spec.trace.as_ref()?;
    let found = traces.iter().find(|(known, _)| known == name)?;
    Some(found.1.clone())
}

fn no_thread(source: std::io::Error) -> LabError {
    LabError::Host { what: "start the pump", source }
}
