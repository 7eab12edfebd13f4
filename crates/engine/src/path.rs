//! What can be known of a path from this end alone.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use linerate_core::record::PathFacts;
use linerate_sys::netlink::{Link, Metric, Netlink};
use linerate_sys::socket::{self, Mptcp};
use linerate_sys::tcp_info::TcpInfo;

use crate::target::Target;

/// Headers of a TCP segment without options.
const IPV4_TCP: u32 = 40;
const IPV6_TCP: u32 = 60;
/// The timestamp option with its padding (RFC 7323), which Linux uses.
const TIMESTAMPS: u32 = 12;

/// Route, interface and MTU towards the first address of a target. What cannot be read is left out.
pub(crate) fn facts(target: &Target) -> PathFacts {
    let mut facts = PathFacts {
        addresses: target.addresses.iter().map(|a| a.ip().to_string()).collect(),
        ..PathFacts::default()
    };
    let Some(peer) = target.addresses.first() else {
        return facts;
    };
    // Of another interface it is another path's.
    facts.pmtu_bytes = path_mtu(*peer).filter(|_| target.device.is_none());
    let Ok(mut netlink) = Netlink::open() else {
        return facts;
    };
    let link = device_to(&mut netlink, peer.ip(), target.device.as_deref());
    let by = link.as_ref().map(|link| link.index);
    if let Some(link) = link {
        facts.mss_expected_bytes = Some(expected_mss(link.mtu, peer.ip()));
        facts.device_mtu_bytes = Some(link.mtu);
        facts.device = Some(link.name);
    }
    let Ok(route) = netlink.route_by(peer.ip(), by) else {
        return facts;
    };
    facts.gateway = route.gateway.map(|gateway| gateway.to_string());
    facts.source = route.source.map(|source| source.to_string());
    facts.route_metrics = [
        (Metric::Mtu, "mtu"),
        (Metric::AdvertisedMss, "advmss"),
        (Metric::Window, "window"),
        (Metric::InitialCongestionWindow, "initcwnd"),
        (Metric::QuickAck, "quickack"),
    ]
    .into_iter()
    .filter_map(|(metric, name)| Some((name.to_owned(), route.metrics.value(metric)?)))
    .collect();
    facts
}

/// The interface by which packets for `peer` leave: the one asked for, or the route's.
pub(crate) fn device_to(netlink: &mut Netlink, peer: IpAddr, asked: Option<&str>) -> Option<Link> {
    if let Some(name) = asked {
        return netlink.link(name).ok();
    }
    let index = netlink.route_to(peer).ok()?.link?;
    netlink.link_by_index(index).ok()
}

/// The segment that an MTU carries, options taken off.
fn expected_mss(mtu: u32, peer: IpAddr) -> u32 {
    let headers = if peer.is_ipv6() { IPV6_TCP } else { IPV4_TCP };
    mtu.saturating_sub(headers + TIMESTAMPS)
}

/// The MTU that the kernel believes the path to have.
fn path_mtu(peer: SocketAddr) -> Option<u32> {
    let any = SocketAddr::new(socket::any(&peer), 0);
    let socket = socket::udp_socket(any, Some(peer), false).ok()?;
    socket::path_mtu(&socket).ok()
}

/// What a connection attempt shows.
pub(crate) struct Tried {
    /// To the answer, be it a refusal: one round trip.
    pub(crate) connect: Duration,
    /// Segment size negotiated, if something accepted.
    pub(crate) mss_bytes: Option<u32>,
}

/// Connects to whatever is there, three times, and keeps the shortest; `None` if nothing answers.
pub(crate) fn try_connect(target: &Target) -> Option<Tried> {
    let peer = *target.addresses.first()?;
    let attempts = (0..3).map_while(|_| try_once(target, peer));
    attempts.min_by_key(|tried| tried.connect)
}

fn try_once(target: &Target, peer: SocketAddr) -> Option<Tried> {
    let socket = socket::tcp_socket(peer, target.source, Mptcp::Off).ok()?;
    let began = Instant::now();
    match socket::connect(socket, peer, target.connect_timeout) {
        Ok(stream) => Some(Tried {
            connect: began.elapsed(),
            mss_bytes: TcpInfo::read(&stream).ok().map(|info| info.snd_mss),
        }),
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => {
            Some(Tried { connect: began.elapsed(), mss_bytes: None })
        }
        Err(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interface_that_was_asked_for_is_the_paths() {
        let target = Target {
            device: Some("lo".to_owned()),
            ..Target::at("elsewhere", "198.18.0.9:5201".parse().unwrap())
        };
        assert_eq!(facts(&target).device.as_deref(), Some("lo"));
        let peer = target.addresses[0].ip();
        let host = crate::host::facts_by(Some(peer), target.device.as_deref());
        assert_eq!(host.device.map(|device| device.name).as_deref(), Some("lo"));
    }
}
