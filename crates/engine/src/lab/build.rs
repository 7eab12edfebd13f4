//! Makes the namespaces, links, addresses, routes and settings of a topology, and says why a lab
//! could not be made or used.

use std::{io, thread};

use linerate_core::lab::{self, Join, Node, Role, Topology};
use linerate_sys::CallError;
use linerate_sys::netlink::{
    Link, LinkChange, Metric, Netlink, NetlinkError, Prefix, Route, VethEnd,
};
use linerate_sys::netns::{Namespace, NamespaceError};
use linerate_sys::packet::PacketSocket;
use linerate_sys::proc::sysctl::{self, SysctlError};
use thiserror::Error;

use super::pump::{OneWaySetup, Wire};
use crate::category::{Categorized, Category};
use crate::error::MeasureError;
use crate::shares::joined;
use crate::state_files::StateError;

/// Settings of each namespace before it has links: the kernel sends no packets of its own,
/// addresses are usable at once, and no packet is refused because of the link that it came by.
const QUIET: [(&str, &str); 8] = [
    ("net.ipv4.conf.all.rp_filter", "0"),
    ("net.ipv4.conf.default.rp_filter", "0"),
    ("net.ipv6.conf.default.accept_dad", "0"),
    ("net.ipv6.conf.default.accept_ra", "0"),
    ("net.ipv6.conf.default.router_solicitations", "0"),
    ("net.ipv6.conf.default.addr_gen_mode", "1"),
    ("net.ipv6.conf.all.disable_ipv6", "0"),
    ("net.ipv6.conf.default.disable_ipv6", "0"),
];
/// Settings that turn a namespace into a router.
const FORWARDING: [(&str, &str); 2] =
    [("net.ipv4.ip_forward", "1"), ("net.ipv6.conf.all.forwarding", "1")];
/// The most kernel memory for all rings of frames together, bytes.
const RING_MEMORY: usize = 1 << 30;

/// The namespaces of a topology, in the order of its nodes, joined by their links.
#[derive(Debug)]
pub(super) struct Built {
    pub(super) namespaces: Vec<Namespace>,
    /// The pump's namespace, with the inner ends of the emulated links.
    pub(super) inside: Option<Namespace>,
}

/// Makes the whole topology. After an error nothing is left, as everything is in the namespaces.
pub(super) fn build(topology: &Topology) -> Result<Built, LabError> {
    let mut namespaces = Vec::with_capacity(topology.nodes.len());
    for node in &topology.nodes {
        namespaces.push(make_node(node)?);
    }
    let is_emulated = topology.links.iter().any(|link| !link.is_plain());
    let inside = is_emulated.then(|| make_namespace("pump")).transpose()?;
    let mut handles: Vec<Netlink> =
        namespaces.iter().map(Namespace::netlink).collect::<Result<_, _>>()?;
    let mut inner = inside.as_ref().map(Namespace::netlink).transpose()?;
    for (number, link) in topology.links.iter().enumerate() {
        join(topology, link, number, &namespaces, inside.as_ref(), &mut handles)?;
    }
    for (index, node) in topology.nodes.iter().enumerate() {
        address(node, &mut handles[index])?;
    }
    if let Some(inner) = &mut inner {
        raise_inner(topology, inner)?;
    }
    for (node, namespace) in topology.nodes.iter().zip(&namespaces) {
        for interface in &node.interfaces {
            namespace.wait_until_up(&interface.name)?;
        }
    }
    for link in &topology.links {
        introduce(topology, link, &mut handles)?;
    }
    for (index, node) in topology.nodes.iter().enumerate() {
        route(node, &mut handles[index])?;
        set(&node.name, &namespaces[index], false, node.sysctls.iter())?;
    }
    Ok(Built { namespaces, inside })
}

/// Opens the packet sockets of all emulated links, or of the one that is asked for, each with the
/// setup of its directions.
///
/// For each socket the kernel waits for all CPUs several times (synchronize_rcu), which takes 0.1 s
/// and more on busy hosts. Threads do that for all links at once.
pub(super) fn open_wires(
    topology: &Topology,
    inside: &Namespace,
    only: Option<usize>,
    ways: impl Fn(&Join, usize) -> [OneWaySetup; 2],
) -> Result<Vec<Wire>, LabError> {
    let links: Vec<(usize, &Join)> = (topology.links.iter().enumerate())
        .filter(|(number, link)| !link.is_plain() && only.is_none_or(|only| only == *number))
        .collect();
    let bytes = RING_MEMORY / (2 * links.len().max(1));
    let sockets = inside.run(|| open_at_once(&links, bytes))?;
    let wires = links
        .into_iter()
        .zip(sockets)
        .map(|((number, link), sockets)| Ok(Wire { sockets: sockets?, ways: ways(link, number) }));
    wires.collect()
}

/// Threads that are started here are in this thread's namespace.
fn open_at_once(
    links: &[(usize, &Join)],
    bytes: usize,
) -> Vec<Result<[PacketSocket; 2], LabError>> {
    let open = |number, link: &Join, end| {
        PacketSocket::open_within(&inner_name(number, end), bytes)
            .map_err(|source| LabError::Packet { link: link.name.clone(), source })
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (links.iter())
            .map(|&(number, link)| {
                [0, 1].map(|end| {
                    thread::Builder::new().spawn_scoped(scope, move || open(number, link, end))
                })
            })
            .collect();
        let results = threads.into_iter().map(|ends| {
            let [first, second] = ends.map(|thread| {
                joined(
                    thread
                        .map_err(|source| LabError::Host {
                            what: "start a thread for each link",
                            source,
                        })?
                        .join(),
                )
            });
            Ok([first?, second?])
        });
        results.collect()
    })
}

fn make_node(node: &Node) -> Result<Namespace, LabError> {
    let namespace = make_namespace(&node.name)?;
    if node.role == Role::Router {
        set(&node.name, &namespace, true, FORWARDING)?;
    }
    Ok(namespace)
}

fn make_namespace(name: &str) -> Result<Namespace, LabError> {
    let namespace = Namespace::create(name)?;
    set(name, &namespace, true, QUIET)?;
    Ok(namespace)
}

/// Sets kernel settings of a namespace. IPv6 settings are skipped where the kernel has no IPv6.
fn set<K: AsRef<str>, V: AsRef<str>>(
    node: &str,
    namespace: &Namespace,
    is_own: bool,
    settings: impl IntoIterator<Item = (K, V)> + Send,
) -> Result<(), LabError> {
    let settings: Vec<(String, String)> = settings
        .into_iter()
        .map(|(key, value)| (key.as_ref().to_owned(), value.as_ref().to_owned()))
        .collect();
    namespace.run(|| {
        for (key, value) in settings {
            match sysctl::write(&key, &value) {
                Ok(()) => {}
                Err(SysctlError::Missing { .. }) if is_own => {}
                Err(source) => {
                    return Err(LabError::Sysctl {
                        node: node.to_owned(),
                        key,
                        value,
                        source: Box::new(source),
                        is_own,
                    });
                }
            }
        }
        Ok(())
    })?
}

/// One veth pair between two nodes, or one from each of them to the pump.
fn join(
    topology: &Topology,
    link: &Join,
    number: usize,
    namespaces: &[Namespace],
    inside: Option<&Namespace>,
    handles: &mut [Netlink],
) -> Result<(), LabError> {
    use std::os::fd::AsFd;
    let interface = |end: usize| {
        let (node, interface) = link.ends[end];
        &topology.nodes[node].interfaces[interface]
    };
    let outer = |end: usize, namespace| VethEnd {
        name: &interface(end).name,
        namespace,
        mtu: Some(link.mtu),
    };
    let failed = failure(format!("link {}", link.name));
    let (first, second) = (link.ends[0].0, link.ends[1].0);
    if link.is_plain() {
        let there = outer(1, Some(namespaces[second].as_fd()));
        return handles[first].create_veth(&outer(0, None), &there).map_err(failed);
    }
    for (end, node) in [(0, first), (1, second)] {
        let name = inner_name(number, end);
        let inner =
            VethEnd { name: &name, namespace: inside.map(AsFd::as_fd), mtu: Some(link.mtu) };
        handles[node].create_veth(&outer(end, None), &inner).map_err(&failed)?;
    }
    Ok(())
}

fn address(node: &Node, netlink: &mut Netlink) -> Result<(), LabError> {
    let failed = failure(format!("the interfaces of {}", node.name));
    for interface in &node.interfaces {
        for prefix in &interface.addresses {
            let prefix = Prefix::new(prefix.address, prefix.length);
            netlink.add_address(&interface.name, prefix).map_err(&failed)?;
        }
        netlink.change_link(&interface.name, &LinkChange::Up).map_err(&failed)?;
    }
    Ok(())
}

fn raise_inner(topology: &Topology, netlink: &mut Netlink) -> Result<(), LabError> {
    for (number, link) in topology.links.iter().enumerate() {
        if !link.is_plain() {
            for end in [0, 1] {
                netlink
                    .change_link(&inner_name(number, end), &LinkChange::Up)
                    .map_err(failure(format!("link {}", link.name)))?;
            }
        }
    }
    Ok(())
}

/// Tells each end the other's Ethernet address in advance: a lost ARP packet would cost a second,
/// which is no fault of the path.
fn introduce(topology: &Topology, link: &Join, handles: &mut [Netlink]) -> Result<(), LabError> {
    let failed = failure(format!("the neighbours on link {}", link.name));
    for (own, other) in [(0, 1), (1, 0)] {
        let (there, its) = link.ends[other];
        let (here, mine) = link.ends[own];
        let (peer, local) =
            (&topology.nodes[there].interfaces[its], &topology.nodes[here].interfaces[mine]);
        let Link { mac, .. } = handles[there].link(&peer.name).map_err(&failed)?;
        let Some(mac) = mac else { continue };
        for prefix in &peer.addresses {
            handles[here]
                .add_permanent_neighbour(&local.name, prefix.address, mac)
                .map_err(&failed)?;
        }
    }
    Ok(())
}

fn route(node: &Node, netlink: &mut Netlink) -> Result<(), LabError> {
    for route in &node.routes {
        let what = format!(
            "the route of {} to {}/{} via {}",
            node.name, route.to.address, route.to.length, route.via
        );
        netlink.replace_route(&kernel_route(route)).map_err(failure(what))?;
    }
    Ok(())
}

fn kernel_route(route: &lab::Route) -> Route {
    let mut made = Route::new(Prefix::new(route.to.address, route.to.length));
    made.gateway = Some(route.via);
    made.source = route.source;
    let values = [
        (Metric::Mtu, route.mtu),
        (Metric::AdvertisedMss, route.advmss),
        (Metric::QuickAck, route.quickack.map(u32::from)),
    ];
    for (metric, value) in values {
        made.metrics.set(metric, value);
    }
    made
}

/// Name of a link's inner end, which is in the pump's namespace.
fn inner_name(number: usize, end: usize) -> String {
    format!("w{number}{}", ["a", "b"][end])
}

fn failure(what: String) -> impl Fn(NetlinkError) -> LabError {
    move |source| LabError::Netlink { what: what.clone(), source }
}

// Errors of labs: why one could not be made, found, entered or ended.

/// A lab that could not be made, found, entered or ended. Nothing is left of one that could not be
/// made.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LabError {
    /// The process is not root and may not have a user namespace.
    #[error("a lab needs network namespaces, which this process may not make: {reason}")]
    NotAllowed {
        /// What stands in the way, and what the administrator can do.
        reason: String,
    },
    /// The process could not become root of a user namespace.
    #[error("cannot enter a user namespace for the lab")]
    UserNamespace(#[source] NamespaceError),
    /// A namespace could not be made or entered.
    #[error("cannot make a host of the lab")]
    Namespace(#[from] NamespaceError),
    /// A link, address or route was refused.
    #[error("cannot set up {what}")]
    Netlink {
        /// The object and its host.
        what: String,
        /// From the kernel.
        source: NetlinkError,
    },
    /// A setting was refused.
    #[error("cannot set {key} = {value:?} on {node}")]
    Sysctl {
        /// The host or router.
        node: String,
        /// The setting.
        key: String,
        /// The value that it was to get.
        value: String,
        /// From the kernel.
        source: Box<SysctlError>,
        /// The lab needs the setting; the user did not ask for it.
        is_own: bool,
    },
    /// A link names a recorded rate that was not given.
    #[error("the recorded rate {name} was not given")]
    NoTrace {
        /// As the link's spec names it.
        name: String,
    },
    /// The pump's end of a link could not be opened.
    #[error("cannot open a packet socket on link {link}")]
    Packet {
        /// The link.
        link: String,
        /// From the kernel.
        source: CallError,
    },
    /// The CPUs could not be kept awake.
    #[error("cannot keep the lab's delays exact")]
    Idle(#[source] CallError),
    /// A thread or descriptor was refused.
    #[error("cannot {what}")]
    Host {
        /// What.
        what: &'static str,
        /// From the kernel.
        source: io::Error,
    },
    /// The endpoint inside it could not be started.
    #[error("cannot start the endpoint in the lab")]
    Endpoint(#[source] Box<MeasureError>),
    /// The text is not a valid name.
    #[error("{name:?} is not a lab's name: 1 to 32 lower-case letters, digits and hyphens")]
    Name {
        /// As given.
        name: String,
    },
    /// A file or socket of a lab, or the directory of all, could not be made or read.
    #[error(transparent)]
    State(#[from] StateError),
    /// There is one of that name.
    #[error(
        "a lab named {name} is up; `linerate lab down --name {name}` ends it, or give another \
         --name"
    )]
    IsUp {
        /// Its name.
        name: String,
    },
    /// There is none of that name.
    #[error("{}", none_words(name.as_deref(), others))]
    NotUp {
        /// The name that was asked for.
        name: Option<String>,
        /// Names of the labs that are up.
        others: Vec<String>,
    },
    /// No host of the lab has that name.
    #[error("lab {lab} has no host {host}; it has {}", hosts.join(", "))]
    NoHost {
        /// The lab.
        lab: String,
        /// As given.
        host: String,
        /// Names of the lab's hosts.
        hosts: Vec<String>,
    },
    /// The process that was to hold the lab said why it cannot.
    #[error("{message}")]
    Holder {
        /// The message of that process.
        message: String,
        /// The exit status for it.
        category: Category,
    },
    /// The process that holds a lab does not answer, or not sensibly.
    #[error("lab {lab} (process {pid}) does not answer: {reason}")]
    NoAnswer {
        /// The lab.
        lab: String,
        /// Its process.
        pid: u32,
        /// What happened instead.
        reason: String,
    },
    /// A process could not be started, or ended.
    #[error("cannot {what}")]
    Process {
        /// What.
        what: &'static str,
        /// From the kernel.
        source: io::Error,
    },
    /// The user namespace of the lab cannot be joined.
    #[error("cannot join lab {lab}")]
    Join {
        /// The lab.
        lab: String,
        /// From the kernel.
        source: Box<NamespaceError>,
    },
    /// A host of the lab cannot be entered.
    #[error("cannot enter host {host} of lab {lab}")]
    Enter {
        /// The lab.
        lab: String,
        /// The host.
        host: String,
        /// From the kernel.
        source: Box<NamespaceError>,
    },
}

impl Categorized for LabError {
    fn category(&self) -> Category {
        match self {
            Self::Sysctl { is_own: false, .. }
            | Self::NoTrace { .. }
            | Self::Name { .. }
            | Self::NotUp { .. }
            | Self::NoHost { .. } => Category::Usage,
            Self::Holder { category, .. } => *category,
            Self::IsUp { .. }
            | Self::NoAnswer { .. }
            | Self::Process { .. }
            | Self::Join { .. }
            | Self::Enter { .. } => Category::Failed,
            _ => Category::Missing,
        }
    }
}

fn none_words(name: Option<&str>, others: &[String]) -> String {
    let which = name.map_or(String::new(), |name| format!(" named {name}"));
    match others {
        [] => format!("no lab{which} is up; `linerate lab up FILE` makes one"),
        others if name.is_some() => format!("no lab{which} is up; there is {}", others.join(", ")),
        others => format!("several labs are up; say which with --name: {}", others.join(", ")),
    }
}
