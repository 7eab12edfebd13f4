//! The MTU of the device that leads to the peer, and what the kernel changes with it and does not
//! change back: the MTU of the devices stacked on it, `net.ipv6.conf.DEV.mtu` of them all, and the
//! MTU of IPv6 routes by them (`rt6_mtu_change`, net/ipv6/route.c).

use std::net::IpAddr;

use linerate_sys::errno::EINVAL;
use linerate_sys::netlink::{Link, LinkChange, Metric, Netlink, Route};
use linerate_sys::proc::sysctl::{self, SysctlError};
use serde::{Deserialize, Serialize};

use super::device::{by_index, links, open_netlink, routes, towards};
use super::error::TreatError;
use super::step::{Reversible, Undone, read_number};

/// The MTU of a device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct MtuStep {
    pub(super) index: u32,
    device: String,
    was: u32,
    set: u32,
    /// The device and those whose MTU goes with it, each after the one that it stands on.
    #[serde(default)]
    stack: Vec<MtuLayer>,
    /// IPv6 routes by these that have an MTU of their own.
    #[serde(default)]
    routes: Vec<RouteMtu>,
}

/// A device as it was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct MtuLayer {
    index: u32,
    mtu: u32,
    /// `net.ipv6.conf.DEV.mtu`; none where the device has no IPv6.
    ipv6: Option<u32>,
}

/// A route as it was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct RouteMtu {
    destination: String,
    priority: Option<u32>,
    mtu: u32,
}

/// Below it a device has no IPv6 (RFC 8200), and Linux takes its addresses and settings away.
const MIN_FOR_IPV6: u32 = 1280;

impl MtuStep {
    pub(super) fn prepare(bytes: u32, peer: IpAddr) -> Result<Self, TreatError> {
        let mut netlink = open_netlink()?;
        let device = towards(&mut netlink, peer)?;
        let what = format!("mtu of {}", device.name);
        if device.loopback {
            let why = format!("{peer} is this host itself, and loopback serves all its programs");
            return Err(TreatError::unfit(what, why));
        }
        let mut stack = Vec::new();
        for link in stacked(&mut netlink, &device)? {
            let layer = MtuLayer::new(&link)?;
            if bytes < MIN_FOR_IPV6 && link.mtu > bytes && layer.ipv6.is_some() {
                let why = format!(
                    "below 1280 Linux would take away the IPv6 addresses and settings of {}, for \
                     good",
                    link.name
                );
                return Err(TreatError::unfit(what, why));
            }
            stack.extend((link.mtu != bytes).then_some(layer));
        }
        Ok(Self {
            index: device.index,
            device: device.name,
            was: device.mtu,
            set: bytes,
            routes: route_mtus(&mut netlink, &stack, &what)?,
            stack,
        })
    }

    fn put(&self, netlink: &mut Netlink, device: &str, bytes: u32) -> Result<(), TreatError> {
        netlink.change_link(device, &LinkChange::Mtu(bytes)).map_err(|error| match error.errno() {
            Some(EINVAL) => {
                TreatError::unfit(self.what(), format!("it does not take {bytes} bytes"))
            }
            _ => TreatError::set(self.what(), error),
        })
    }

    fn put_back(
        &self,
        netlink: &mut Netlink,
        layer: &MtuLayer,
        ipv6: Option<u32>,
    ) -> Result<(), TreatError> {
        let Some(link) = by_index(netlink, layer.index)? else {
            return Ok(());
        };
        if link.mtu != layer.mtu {
            self.put(netlink, &link.name, layer.mtu)?;
        }
        match ipv6 {
            Some(bytes) if ipv6_mtu(&link)? != ipv6 => {
                let key = ipv6_key(&link);
                sysctl::write(&key, &bytes.to_string()).map_err(|error| TreatError::set(key, error))
            }
            _ => Ok(()),
        }
    }

    /// The routes that the kernel gave the new MTU, with the MTU that they had.
    fn changed_routes(&self, netlink: &mut Netlink) -> Result<Vec<Route>, TreatError> {
        if self.routes.is_empty() {
            return Ok(Vec::new());
        }
        let changed = ipv6_routes(netlink)?.into_iter().filter_map(|mut route| {
            if route.metrics.value(Metric::Mtu) != Some(self.set) {
                return None;
            }
            let was = self.routes.iter().find(|was| was.is_of(&route))?;
            route.metrics.set(Metric::Mtu, Some(was.mtu));
            Some(route)
        });
        Ok(changed.collect())
    }

    /// Whether both change the same device.
    pub(super) fn meets(&self, other: &Self) -> bool {
        let has = |step: &Self, index| step.stack.iter().any(|layer| layer.index == index);
        self.index == other.index || has(self, other.index) || has(other, self.index)
    }
}

impl Reversible for MtuStep {
    fn changes(&self) -> bool {
        self.was != self.set
    }

    fn set(&self) -> Result<(), TreatError> {
        self.put(&mut open_netlink()?, &self.device, self.set)
    }

    fn check(&self) -> Result<String, TreatError> {
        let link = by_index(&mut open_netlink()?, self.index)?;
        let found = link.map(|link| link.mtu);
        if found != Some(self.set) {
            let (what, found) = (format!("mtu={}", self.set), found.map(|mtu| mtu.to_string()));
            return Err(TreatError::not_taken(what, found, "somebody else sets it"));
        }
        Ok(format!("{}: mtu {}", self.device, self.set))
    }

    fn undo(&self) -> Result<Undone, TreatError> {
        let mut netlink = open_netlink()?;
        let device = match by_index(&mut netlink, self.index)? {
            None => return Ok(Undone::Gone),
            Some(link) if link.mtu != self.set => return Ok(Undone::NotOurs),
            Some(link) => link.name,
        };
        // First note what still has the value that the kernel gave it: putting one back changes
        // others.
        let mut layers = Vec::new();
        for layer in &self.stack {
            let link = by_index(&mut netlink, layer.index)?;
            if let Some(link) = link.filter(|link| link.mtu == self.set) {
                let is_ours = ipv6_mtu(&link)? == Some(self.set);
                layers.push((layer, layer.ipv6.filter(|_| is_ours)));
            }
        }
        let routes = self.changed_routes(&mut netlink)?;
        self.put(&mut netlink, &device, self.was)?;
        for (layer, ipv6) in layers {
            self.put_back(&mut netlink, layer, ipv6)?;
        }
        for route in routes {
            let put = netlink.replace_route(&route);
            put.map_err(|error| TreatError::set(format!("route {route}"), error))?;
        }
        Ok(Undone::Restored)
    }

    fn what(&self) -> String {
        format!("mtu of {}", self.device)
    }
}

impl MtuLayer {
    fn new(link: &Link) -> Result<Self, TreatError> {
        Ok(Self { index: link.index, mtu: link.mtu, ipv6: ipv6_mtu(link)? })
    }
}

impl RouteMtu {
    fn is_of(&self, route: &Route) -> bool {
        self.destination == route.destination.to_string() && self.priority == route.priority
    }
}

/// The device, and those of its namespace that are joined to it, nearest first.
fn stacked(netlink: &mut Netlink, device: &Link) -> Result<Vec<Link>, TreatError> {
    let mut left = links(netlink)?;
    let mut stack = vec![device.clone()];
    let mut next = 0;
    while let Some(below) = stack.get(next).cloned() {
        let is_joined = |link: &mut Link| {
            // The other end of a veth pair is a device by itself.
            let is_above = link.lower == Some(below.index) && link.kind.as_deref() != Some("veth");
            let is_joined = is_above
                || below.controller == Some(link.index)
                || link.controller == Some(below.index);
            is_joined && link.index != device.index
        };
        stack.extend(left.extract_if(.., is_joined));
        next += 1;
    }
    Ok(stack)
}

/// What routes by these devices have for an MTU.
fn route_mtus(
    netlink: &mut Netlink,
    layers: &[MtuLayer],
    what: &str,
) -> Result<Vec<RouteMtu>, TreatError> {
    let routes = ipv6_routes(netlink)?;
    let is_theirs = |link: u32| layers.iter().any(|layer| layer.index == link);
    let mut mtus = Vec::new();
    for route in &routes {
        let mut hops = route.next_hops.iter().map(|hop| hop.link);
        let is_theirs = route.link.is_some_and(is_theirs) || hops.any(is_theirs);
        let Some(mtu) = route.metrics.value(Metric::Mtu).filter(|_| is_theirs) else {
            continue;
        };
        let own =
            RouteMtu { destination: route.destination.to_string(), priority: route.priority, mtu };
        if routes.iter().filter(|route| own.is_of(route)).count() > 1 {
            let why = format!(
                "it would change the mtu of one of several routes to {}, and not be able to put it \
                 back",
                own.destination
            );
            return Err(TreatError::unfit(what, why));
        }
        mtus.push(own);
    }
    Ok(mtus)
}

fn ipv6_routes(netlink: &mut Netlink) -> Result<Vec<Route>, TreatError> {
    let mut routes = routes(netlink)?;
    routes.retain(|route| route.destination.address.is_ipv6());
    Ok(routes)
}

/// None where the device has no IPv6.
fn ipv6_mtu(link: &Link) -> Result<Option<u32>, TreatError> {
    let key = ipv6_key(link);
    match sysctl::read(&key) {
        Ok(text) => Ok(read_number(&text)),
        Err(SysctlError::Missing { .. }) => Ok(None),
        Err(error) => Err(TreatError::kernel(format!("read {key}"), error)),
    }
}

/// In a key a slash stands for the dot of a name (sysctl(8)).
fn ipv6_key(link: &Link) -> String {
    format!("net.ipv6.conf.{}.mtu", link.name.replace('.', "/"))
}
