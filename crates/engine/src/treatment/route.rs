//! The route to the peer: a host route is made for it, or the one that is there is changed. And
//! what TCP remembers of the peer.

use std::net::IpAddr;

use linerate_core::record::{Caveat, CaveatKind};
use linerate_core::treatment::{RouteSetting, Value};
use linerate_sys::netlink::{Metric, Netlink, NetlinkError, Prefix, Route, TcpMetrics};
use serde::{Deserialize, Serialize};

use super::device::{is_gone, open_netlink, routes, towards};
use super::error::TreatError;
use super::step::{Reversible, Undone, number, read_number};

/// The route to one peer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RouteStep {
    pub(super) peer: IpAddr,
    /// There was no host route: ours is deleted again.
    made: bool,
    fields: Vec<RouteField>,
    /// Whether every metric was in force already.
    #[serde(default)]
    idle: bool,
}

/// A property of the route; none where the route leaves it to the kernel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct RouteField {
    setting: RouteSetting,
    was: Option<String>,
    set: Option<String>,
}

impl RouteStep {
    pub(super) fn prepare(
        wanted: &[(RouteSetting, Value)],
        peer: IpAddr,
    ) -> Result<Self, TreatError> {
        let mut netlink = open_netlink()?;
        for (setting, value) in wanted {
            check_fit(&mut netlink, *setting, value, peer)?;
        }
        let entry = host_route(&mut netlink, peer)?;
        let in_force = route_to(&mut netlink, peer)?;
        let field = |(setting, value): &(RouteSetting, Value)| RouteField {
            setting: *setting,
            was: entry.as_ref().and_then(|entry| of(entry, *setting)),
            set: match value {
                Value::Switch(on) => on.then(|| "1".to_owned()),
                value => Some(value.to_string()),
            },
        };
        let fields: Vec<RouteField> = wanted.iter().map(field).collect();
        let holds = |field: &RouteField| of(&in_force, field.setting) == field.set;
        let idle = !in_force.is_learnt() && fields.iter().all(holds);
        Ok(Self { peer, made: entry.is_none(), fields, idle })
    }

    /// A host route that leads where packets to the peer go now, from the same address, with the
    /// same metrics.
    fn like_that_in_force(&self, netlink: &mut Netlink) -> Result<Route, TreatError> {
        let now = route_to(netlink, self.peer)?;
        let mut route = Route::new(Prefix::host(self.peer));
        route.gateway = now.gateway;
        route.link = now.link;
        route.source = now.source;
        let is_learnt = now.is_learnt();
        route.metrics = now.metrics;
        if is_learnt {
            // It would expire, and a route's own does not.
            route.metrics.set(Metric::Mtu, None);
        }
        Ok(route)
    }
}

impl Reversible for RouteStep {
    fn changes(&self) -> bool {
        !self.idle
    }

    fn set(&self) -> Result<(), TreatError> {
        let mut netlink = open_netlink()?;
        let entry = host_route(&mut netlink, self.peer)?;
        let is_new = entry.is_none();
        let mut route = match entry {
            Some(route) => route,
            None => self.like_that_in_force(&mut netlink)?,
        };
        for field in &self.fields {
            put(&mut route, field.setting, field.set.as_deref());
        }
        let result = if is_new { netlink.add_route(&route) } else { netlink.replace_route(&route) };
        result.map_err(|error| TreatError::set(self.what(), error))
    }

    fn check(&self) -> Result<String, TreatError> {
        let in_force = route_to(&mut open_netlink()?, self.peer)?;
        let mut states = Vec::new();
        for field in &self.fields {
            let found = of(&in_force, field.setting);
            let words =
                |value: &Option<String>| value.clone().unwrap_or_else(|| "unset".to_owned());
            if found != field.set {
                return Err(TreatError::not_taken(
                    format!("{}={}", field.setting, words(&field.set)),
                    words(&found),
                    "another routing table comes first, or path MTU discovery has learnt a \
                     smaller MTU",
                ));
            }
            states.push(format!("{} {}", keyword(field.setting), words(&found)));
        }
        Ok(format!("{}: {}", self.what(), states.join(", ")))
    }

    fn undo(&self) -> Result<Undone, TreatError> {
        let mut netlink = open_netlink()?;
        let Some(mut entry) = host_route(&mut netlink, self.peer)? else {
            return Ok(Undone::Gone);
        };
        let is_ours = |field: &&RouteField| of(&entry, field.setting) == field.set;
        let ours: Vec<&RouteField> = self.fields.iter().filter(is_ours).collect();
        let result = if self.made {
            if ours.len() < self.fields.len() {
                return Ok(Undone::NotOurs);
            }
            netlink.delete_route(&entry)
        } else {
            if ours.is_empty() {
                return Ok(Undone::NotOurs);
            }
            for field in ours {
                put(&mut entry, field.setting, field.was.as_deref());
            }
            netlink.replace_route(&entry)
        };
        match result {
            Ok(()) => Ok(Undone::Restored),
            Err(error) if is_gone(&error) => Ok(Undone::Gone),
            Err(error) => Err(TreatError::set(self.what(), error)),
        }
    }

    fn what(&self) -> String {
        format!("route to {}", self.peer)
    }
}

/// Refuses values that the kernel would accept without effect.
fn check_fit(
    netlink: &mut Netlink,
    setting: RouteSetting,
    value: &Value,
    peer: IpAddr,
) -> Result<(), TreatError> {
    let device = towards(netlink, peer)?;
    let what = format!("{setting}={value}");
    if device.loopback {
        let why = format!("{peer} is this host itself, which no route of the table leads to");
        return Err(TreatError::unfit(what, why));
    }
    match (setting, value) {
        (RouteSetting::Mtu, value) if number(value) > device.mtu => {
            let why = format!("{} takes packets of {} bytes at most", device.name, device.mtu);
            Err(TreatError::unfit(what, why))
        }
        (RouteSetting::Mtu, value) if peer.is_ipv6() && number(value) < 1280 => {
            let why = "IPv6 has no path of less than 1280 bytes (RFC 8200)";
            Err(TreatError::unfit(what, why))
        }
        (RouteSetting::Source, Value::Address(source)) if source.is_ipv4() != peer.is_ipv4() => {
            let why = format!("the peer {peer} is of the other family");
            Err(TreatError::unfit(what, why))
        }
        (RouteSetting::Source, Value::Address(source)) => check_is_here(netlink, &what, *source),
        _ => Ok(()),
    }
}

fn check_is_here(netlink: &mut Netlink, what: &str, source: IpAddr) -> Result<(), TreatError> {
    let addresses = netlink
        .addresses()
        .map_err(|error| TreatError::kernel("read this host's addresses", error))?;
    if addresses.iter().any(|own| own.prefix.address == source) {
        Ok(())
    } else {
        Err(TreatError::unfit(what, "this host does not have the address"))
    }
}

/// The table's own entry for the peer alone, the one that wins if there are several.
fn host_route(netlink: &mut Netlink, peer: IpAddr) -> Result<Option<Route>, TreatError> {
    let mut own = routes(netlink)?;
    own.retain(|route| route.destination == Prefix::host(peer));
    Ok(own.into_iter().min_by_key(|route| route.priority.unwrap_or(0)))
}

fn route_to(netlink: &mut Netlink, peer: IpAddr) -> Result<Route, TreatError> {
    netlink
        .route_to(peer)
        .map_err(|error| TreatError::kernel(format!("find the route to {peer}"), error))
}

fn of(route: &Route, setting: RouteSetting) -> Option<String> {
    let metric = |metric| route.metrics.value(metric).map(|value| value.to_string());
    match setting {
        RouteSetting::Mtu => metric(Metric::Mtu),
        RouteSetting::Advmss => metric(Metric::AdvertisedMss),
        // 0 is as good as none.
        RouteSetting::Quickack => metric(Metric::QuickAck).filter(|value| value != "0"),
        RouteSetting::Source => route.source.map(|source| source.to_string()),
    }
}

fn put(route: &mut Route, setting: RouteSetting, value: Option<&str>) {
    let metric = match setting {
        RouteSetting::Source => {
            route.source = value.and_then(|value| value.parse().ok());
            return;
        }
        RouteSetting::Mtu => Metric::Mtu,
        RouteSetting::Advmss => Metric::AdvertisedMss,
        RouteSetting::Quickack => Metric::QuickAck,
    };
    route.metrics.set(metric, value.and_then(read_number));
}

/// As `ip route` writes it.
fn keyword(setting: RouteSetting) -> &'static str {
    match setting {
        RouteSetting::Mtu => "mtu",
        RouteSetting::Advmss => "advmss",
        RouteSetting::Quickack => "quickack",
        RouteSetting::Source => "src",
    }
}

// What TCP remembers of a host and uses for the next connection to it.

/// Makes the TCP of this network namespace forget what it has learnt of a host: the next connection
/// would begin with the window and the round-trip time of the last.
pub(crate) fn forget(host: IpAddr) -> Result<(), NetlinkError> {
    TcpMetrics::open()?.forget(host.to_canonical())
}

/// That it could not, on the host of these words.
pub(crate) fn remembers(whose: &str, error: &NetlinkError) -> Caveat {
    Caveat::new(
        CaveatKind::NotReadable,
        format!(
            "{whose}{error}: a run may start with the round-trip time and window of the one before \
             it; the random order \
             of a comparison keeps that from favouring either side"
        ),
        "run it as root, or with CAP_NET_ADMIN",
    )
}

/// That an endpoint which applies no treatments keeps what it has learnt.
pub(crate) fn endpoint_remembers() -> Caveat {
    Caveat::new(
        CaveatKind::NotReadable,
        "the endpoint, which sends, applies no treatments and does not forget what its TCP has \
         learnt of this host: a run may \
         start with the round-trip time and window of the one before it; the random order of a \
         comparison keeps that from \
         favouring either side",
        "start it by `linerate serve --allow-treatments` with a key, or set \
         net.ipv4.tcp_no_metrics_save=1 on its host",
    )
}
