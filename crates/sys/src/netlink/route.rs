//! Routes of the main table with their metrics, and which route a destination takes.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use netlink_packet_core::{DefaultNla, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE, Nla};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteHeader, RouteMessage, RouteMetric, RouteNextHop,
    RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use super::address::family_of;
use super::{Netlink, NetlinkError, Prefix};

/// A unicast route. A route that was read can be changed and added again: attributes without a
/// field here are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// Destination network; with prefix length 0 this is the default route.
    pub destination: Prefix,
    /// The next router; none for a directly connected network.
    pub gateway: Option<IpAddr>,
    /// Index of the link to send on.
    pub link: Option<u32>,
    /// Preferred source address.
    pub source: Option<IpAddr>,
    /// Preference among routes to one destination, the lowest wins; none for the kernel's default.
    pub priority: Option<u32>,
    /// Path metrics such as the MTU and the advertised MSS.
    pub metrics: RouteMetrics,
    /// The next hops of a multipath route; empty otherwise.
    pub next_hops: Vec<NextHop>,
    learnt: bool,
    scope: RouteScope,
    protocol: RouteProtocol,
    other: Vec<RouteAttribute>,
}

/// One next hop of a multipath route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NextHop {
    /// The next router.
    pub gateway: Option<IpAddr>,
    /// Index of the link to send on.
    pub link: u32,
    /// Share of the flows relative to the other hops, 1 to 256.
    pub weight: u16,
}

impl Netlink {
    /// Adds a route to the main table.
    ///
    /// # Errors
    /// Refused with `EEXIST` if the same destination and priority is there, `ENETUNREACH` if the
    /// gateway cannot be reached directly, `EPERM` without `CAP_NET_ADMIN`.
    pub fn add_route(&mut self, route: &Route) -> Result<(), NetlinkError> {
        let message = RouteNetlinkMessage::NewRoute(route.message());
        self.change(&format!("add route {route}"), message, NLM_F_CREATE | NLM_F_EXCL)
    }

    /// Puts a route in the place of the one with the same destination and priority, if there is
    /// one.
    ///
    /// # Errors
    /// As for [`Netlink::add_route`], without `EEXIST`.
    pub fn replace_route(&mut self, route: &Route) -> Result<(), NetlinkError> {
        let message = RouteNetlinkMessage::NewRoute(route.message());
        self.change(&format!("replace route {route}"), message, NLM_F_CREATE | NLM_F_REPLACE)
    }

    /// Deletes a route of the main table.
    ///
    /// # Errors
    /// Refused with `ESRCH` if there is no such route.
    pub fn delete_route(&mut self, route: &Route) -> Result<(), NetlinkError> {
        let message = RouteNetlinkMessage::DelRoute(route.message());
        self.change(&format!("delete route {route}"), message, 0)
    }

    /// The unicast routes of the main table, IPv4 and IPv6.
    ///
    /// # Errors
    /// [`NetlinkError`] if the table cannot be read.
    pub fn routes(&mut self) -> Result<Vec<Route>, NetlinkError> {
        let query = RouteNetlinkMessage::GetRoute(RouteMessage::default());
        let answer = self.dump("list the routes", query)?;
        Ok(answer
            .into_iter()
            .filter_map(route_message)
            .filter(in_main_table)
            .filter_map(parse)
            .collect())
    }

    /// The route that a packet to `destination` takes now: link, gateway, source address and the
    /// metrics in force. Its destination is the host itself, not the network of the table's entry.
    ///
    /// # Errors
    /// Refused with `ENETUNREACH` or `EHOSTUNREACH` if there is none.
    pub fn route_to(&mut self, destination: IpAddr) -> Result<Route, NetlinkError> {
        self.route_by(destination, None)
    }

    /// The route that a packet takes from a socket that is bound to a link.
    ///
    /// # Errors
    /// As [`Netlink::route_to`].
    pub fn route_by(
        &mut self,
        destination: IpAddr,
        link: Option<u32>,
    ) -> Result<Route, NetlinkError> {
        let mut query = RouteMessage::default();
        query.header.address_family = family_of(destination);
        query.header.destination_prefix_length = Prefix::host(destination).length;
        query.attributes.push(RouteAttribute::Destination(destination.into()));
        query.attributes.extend(link.map(RouteAttribute::Oif));
        let operation = format!("find the route to {destination}");
        let answer = self.request(&operation, RouteNetlinkMessage::GetRoute(query), 0)?;
        let route = answer.into_iter().find_map(route_message).and_then(parse);
        route.ok_or_else(|| NetlinkError::malformed(&operation, "no route in the answer"))
    }
}

impl Route {
    /// A route to `destination` that names neither gateway nor link yet.
    pub fn new(destination: Prefix) -> Self {
        Self {
            destination,
            gateway: None,
            link: None,
            source: None,
            priority: None,
            metrics: RouteMetrics::default(),
            next_hops: Vec::new(),
            learnt: false,
            scope: RouteScope::Universe,
            protocol: RouteProtocol::Static,
            other: Vec::new(),
        }
    }

    /// Its MTU was learnt by path MTU discovery and will expire: the kernel's route cache answered,
    /// not the table. Only for what [`Netlink::route_to`] returns.
    pub fn is_learnt(&self) -> bool {
        self.learnt
    }

    fn message(&self) -> RouteMessage {
        let mut message = RouteMessage::default();
        message.header = RouteHeader {
            address_family: self.destination.family(),
            destination_prefix_length: self.destination.length,
            table: RouteHeader::RT_TABLE_MAIN,
            protocol: self.protocol,
            scope: self.effective_scope(),
            kind: RouteType::Unicast,
            ..RouteHeader::default()
        };
        let attributes = &mut message.attributes;
        attributes.push(RouteAttribute::Destination(self.destination.address.into()));
        attributes.extend(self.gateway.map(|gateway| RouteAttribute::Gateway(gateway.into())));
        attributes.extend(self.link.map(RouteAttribute::Oif));
        attributes.extend(self.source.map(|source| RouteAttribute::PrefSource(source.into())));
        attributes.extend(self.priority.map(RouteAttribute::Priority));
        if !self.metrics.is_empty() {
            attributes.push(RouteAttribute::Metrics(self.metrics.attributes()));
        }
        if !self.next_hops.is_empty() {
            let hops = self.next_hops.iter().map(NextHop::attribute).collect();
            attributes.push(RouteAttribute::MultiPath(hops));
        }
        attributes.extend(self.other.iter().cloned());
        message
    }

    /// IPv4 looks up a gateway only by routes of a narrower scope, so a route without one has to be
    /// of link scope (net/ipv4/fib_semantics.c, `fib_check_nh`). IPv6 has no scopes.
    fn effective_scope(&self) -> RouteScope {
        let direct =
            self.gateway.is_none() && self.next_hops.iter().all(|hop| hop.gateway.is_none());
        if self.scope == RouteScope::Universe && direct && self.destination.address.is_ipv4() {
            RouteScope::Link
        } else {
            self.scope
        }
    }
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.destination)?;
        if let Some(gateway) = self.gateway {
            write!(f, " via {gateway}")?;
        }
        if let Some(link) = self.link {
            write!(f, " by link number {link}")?;
        }
        for hop in &self.next_hops {
            match hop.gateway {
                Some(gateway) => write!(f, " hop {gateway} by link number {}", hop.link)?,
                None => write!(f, " hop by link number {}", hop.link)?,
            }
        }
        write!(f, "{}", self.metrics)
    }
}

impl NextHop {
    fn attribute(&self) -> RouteNextHop {
        let mut hop = RouteNextHop::default();
        // The kernel stores the weight less one (include/uapi/linux/rtnetlink.h, `rtnh_hops`).
        hop.hops = u8::try_from(self.weight.saturating_sub(1)).unwrap_or(u8::MAX);
        hop.interface_index = self.link;
        hop.attributes =
            self.gateway.map(|ip| RouteAttribute::Gateway(ip.into())).into_iter().collect();
        hop
    }

    fn parse(hop: &RouteNextHop) -> Self {
        let gateway = hop.attributes.iter().find_map(|attribute| match attribute {
            RouteAttribute::Gateway(address) => ip(address),
            _ => None,
        });
        Self { gateway, link: hop.interface_index, weight: u16::from(hop.hops) + 1 }
    }
}

fn route_message(message: RouteNetlinkMessage) -> Option<RouteMessage> {
    match message {
        RouteNetlinkMessage::NewRoute(route) => Some(route),
        _ => None,
    }
}

fn in_main_table(message: &RouteMessage) -> bool {
    message.header.table == RouteHeader::RT_TABLE_MAIN && message.header.kind == RouteType::Unicast
}

/// None for families other than IPv4 and IPv6.
fn parse(message: RouteMessage) -> Option<Route> {
    let unspecified = match message.header.address_family {
        AddressFamily::Inet => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        AddressFamily::Inet6 => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        _ => return None,
    };
    let destination = Prefix::new(unspecified, message.header.destination_prefix_length);
    let mut route = Route {
        scope: message.header.scope,
        protocol: message.header.protocol,
        ..Route::new(destination)
    };
    let cloned = message.header.flags.contains(RouteFlags::Cloned);
    for attribute in message.attributes {
        absorb(&mut route, attribute, cloned);
    }
    // For an on-link destination with a cache entry IPv6 reports the destination as the gateway
    // (`ip6_rt_cache_alloc` in net/ipv6/route.c); it does not accept such a gateway.
    if route.gateway == Some(route.destination.address) {
        route.gateway = None;
    }
    Some(route)
}

/// `cloned`: this is the kernel's answer for one destination, not an entry of the table.
fn absorb(route: &mut Route, attribute: RouteAttribute, cloned: bool) {
    match attribute {
        RouteAttribute::Destination(address) => {
            route.destination.address = ip(&address).unwrap_or(route.destination.address);
        }
        RouteAttribute::Gateway(address) => route.gateway = ip(&address),
        RouteAttribute::Oif(index) => route.link = Some(index),
        RouteAttribute::PrefSource(address) => route.source = ip(&address),
        RouteAttribute::Priority(priority) => route.priority = Some(priority),
        RouteAttribute::Metrics(metrics) => route.metrics = RouteMetrics::parse(&metrics),
        RouteAttribute::MultiPath(hops) => {
            route.next_hops = hops.iter().map(NextHop::parse).collect()
        }
        RouteAttribute::CacheInfo(info) => expire(route, info.expires.cast_signed(), cloned),
        // These are in the header or belong to the query; they are no properties of the route.
        RouteAttribute::Table(_) | RouteAttribute::Uid(_) => {}
        attribute => route.other.push(attribute),
    }
}

/// `ticks` until the route expires; zero or negative if it does not.
fn expire(route: &mut Route, ticks: i32, cloned: bool) {
    if cloned {
        // IPv4 marks every answer as cloned, but only what was learnt expires.
        route.learnt = ticks > 0;
    } else if ticks >= USER_HZ {
        // The kernel reports the expiry in clock ticks and takes it in seconds.
        let seconds = (ticks / USER_HZ).unsigned_abs();
        route.other.push(RouteAttribute::Expires(seconds));
    }
}

fn ip(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(v4) => Some(IpAddr::V4(*v4)),
        RouteAddress::Inet6(v6) => Some(IpAddr::V6(*v6)),
        _ => None,
    }
}

/// Ticks per second in kernel interfaces, whatever HZ the kernel runs at
/// (include/asm-generic/param.h).
const USER_HZ: i32 = 100;

// Metrics of a route: what TCP and IP assume of the path behind it.

/// A numeric metric; the value is its number in the kernel (include/uapi/linux/rtnetlink.h,
/// `RTAX_*`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u16)]
pub enum Metric {
    /// Bit set of the metrics that the kernel must not change by itself: with
    /// `1 << Metric::Mtu as u32` path MTU discovery leaves the MTU alone.
    Lock = 1,
    /// Path MTU in bytes.
    Mtu = 2,
    /// Largest window to advertise in bytes. Linux uses it only for the window scale of a SYN.
    Window = 3,
    /// MSS to advertise in bytes, without headers.
    AdvertisedMss = 8,
    /// Hop limit of packets sent.
    HopLimit = 10,
    /// Initial congestion window in segments.
    InitialCongestionWindow = 11,
    /// Lower limit of the retransmission timeout in milliseconds.
    MinimumRto = 13,
    /// Initial receive window in segments.
    InitialReceiveWindow = 14,
    /// 1: acknowledge every segment at once.
    QuickAck = 15,
}

/// The metrics of a route; those without a name in [`Metric`] are kept as they are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RouteMetrics {
    numbers: BTreeMap<u16, u32>,
    congestion: Option<String>,
}

impl RouteMetrics {
    /// The value of `metric`, if the route sets it.
    pub fn value(&self, metric: Metric) -> Option<u32> {
        self.numbers.get(&(metric as u16)).copied()
    }

    /// Sets `metric`, or removes it.
    pub fn set(&mut self, metric: Metric, value: Option<u32>) {
        match value {
            Some(value) => self.numbers.insert(metric as u16, value),
            None => self.numbers.remove(&(metric as u16)),
        };
    }

    /// Whether the route sets no metric.
    pub fn is_empty(&self) -> bool {
        self.numbers.is_empty() && self.congestion.is_none()
    }

    /// The congestion control of connections over this route, if it sets one.
    pub fn congestion_control(&self) -> Option<&str> {
        self.congestion.as_deref()
    }

    fn parse(attributes: &[RouteMetric]) -> Self {
        let mut metrics = Self::default();
        for attribute in attributes {
            if let RouteMetric::CcAlgo(name) = attribute {
                metrics.congestion = Some(name.clone());
            } else if attribute.value_len() == size_of::<u32>() {
                let mut bytes = [0; size_of::<u32>()];
                attribute.emit_value(&mut bytes);
                metrics.numbers.insert(attribute.kind(), u32::from_ne_bytes(bytes));
            }
        }
        metrics
    }

    fn attributes(&self) -> Vec<RouteMetric> {
        let number = |(&kind, &value): (&u16, &u32)| {
            RouteMetric::Other(DefaultNla::new(kind, value.to_ne_bytes().to_vec()))
        };
        let congestion = self.congestion.clone().map(RouteMetric::CcAlgo);
        self.numbers.iter().map(number).chain(congestion).collect()
    }
}

impl fmt::Display for RouteMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (kind, value) in &self.numbers {
            match NAMES.iter().find(|(metric, _)| *metric as u16 == *kind) {
                Some((_, name)) => write!(f, " {name} {value}")?,
                None => write!(f, " metric#{kind} {value}")?,
            }
        }
        match &self.congestion {
            Some(name) => write!(f, " congctl {name}"),
            None => Ok(()),
        }
    }
}

/// As `ip route` writes them.
const NAMES: [(Metric, &str); 9] = [
    (Metric::Lock, "lock"),
    (Metric::Mtu, "mtu"),
    (Metric::Window, "window"),
    (Metric::AdvertisedMss, "advmss"),
    (Metric::HopLimit, "hoplimit"),
    (Metric::InitialCongestionWindow, "initcwnd"),
    (Metric::MinimumRto, "rto_min"),
    (Metric::InitialReceiveWindow, "initrwnd"),
    (Metric::QuickAck, "quickack"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_destination_that_is_its_own_gateway_is_on_the_link() {
        let host: IpAddr = "2001:2::1".parse().unwrap();
        let answer = |gateway: &str| {
            let mut message = RouteMessage::default();
            message.header.address_family = AddressFamily::Inet6;
            message.header.destination_prefix_length = 128;
            let gateway: IpAddr = gateway.parse().unwrap();
            message.attributes = vec![
                RouteAttribute::Destination(host.into()),
                RouteAttribute::Gateway(gateway.into()),
            ];
            parse(message).unwrap()
        };
        assert_eq!(answer("2001:2::1").gateway, None);
        let other = "2001:2::9".parse().unwrap();
        assert_eq!(answer("2001:2::9").gateway, Some(other));
    }

    #[test]
    fn metrics_survive_a_round_trip() {
        let mut metrics =
            RouteMetrics::parse(&[RouteMetric::CcAlgo("reno".into()), RouteMetric::Reordering(5)]);
        metrics.set(Metric::Mtu, Some(9180));
        metrics.set(Metric::AdvertisedMss, Some(536));
        assert_eq!(RouteMetrics::parse(&metrics.attributes()), metrics);
        assert_eq!(metrics.to_string(), " mtu 9180 advmss 536 metric#9 5 congctl reno");
    }

    #[test]
    fn metric_taken_away_is_absent() {
        let mut metrics = RouteMetrics::default();
        metrics.set(Metric::QuickAck, Some(1));
        metrics.set(Metric::QuickAck, None);
        assert!(metrics.is_empty());
    }
}
