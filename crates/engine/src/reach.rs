//! Why an address cannot be reached, in more words than an error number has: from the ICMP message
//! that ended a connection attempt, or from this host's own routes.

use std::io::{Error, ErrorKind};
use std::net::{IpAddr, SocketAddr, TcpStream};

use linerate_core::trace::unreachable_reason;
use linerate_core::units::{Family, listed};
use linerate_sys::errno::{EACCES, EHOSTUNREACH, EINVAL, ENETUNREACH};
use linerate_sys::netlink::Netlink;
use linerate_sys::probe::{ErrorOrigin, ExtendedError, connect_error};

use crate::error::MeasureError;

/// The error of an attempt that has ended without a connection, with who ended it.
pub(crate) fn ended(error: Error, stream: &TcpStream) -> Error {
    let own = stream.local_addr().map(|local| local.ip()).ok();
    let words = connect_error(stream).and_then(|message| from_message(&message, own));
    words.map_or(error, |words| Error::new(ErrorKind::HostUnreachable, words))
}

/// The error of an attempt that the kernel has not begun: it is that of this host's route.
pub(crate) fn not_begun(error: Error, peer: SocketAddr) -> Error {
    // Other calls fail so, too.
    let is_of_route = || {
        let found = Netlink::open().ok().map(|mut netlink| netlink.route_to(peer.ip()));
        found.and_then(Result::err).and_then(|it| it.errno()) == error.raw_os_error()
    };
    let words = match error.raw_os_error() {
        Some(EINVAL) if lacks_scope(&peer) => "a link-local address needs its interface",
        // fib_props, net/ipv4/fib_semantics.c
        Some(EINVAL) if is_of_route() => "this host drops what goes there, by a blackhole route",
        Some(EACCES) if is_of_route() => "this host's routes prohibit it",
        Some(EHOSTUNREACH) => "this host's route to it is of type unreachable",
        Some(ENETUNREACH) => "this host has no route to it",
        _ => return error,
    };
    let words = format!("{words}; see `ip route get {}`", peer.ip());
    Error::new(ErrorKind::HostUnreachable, words)
}

/// Who has ended an attempt by an ICMP message, and why; `own` is this host's address.
fn from_message(message: &ExtendedError, own: Option<IpAddr>) -> Option<String> {
    // A host that only has nothing listening there resets the connection (RFC 9293, 3.10.7.1).
    let (family, rejects) = match (message.origin, message.kind, message.code) {
        (ErrorOrigin::Icmp, 3, code) => (Family::Ipv4, matches!(code, 2 | 3 | 9 | 10 | 13)),
        (ErrorOrigin::Icmpv6, 1, code) => (Family::Ipv6, matches!(code, 1 | 4 | 5 | 6)),
        _ => return None,
    };
    let reason = unreachable_reason(family, message.code);
    let by = message.offender.map_or_else(|| "a router".to_owned(), |by| by.to_string());
    Some(if rejects {
        format!("a firewall at {by} rejects it (ICMP {reason})")
    } else if message.offender == own {
        "no host on its network answers for the address (ARP, neighbour discovery)".to_owned()
    } else {
        format!("{by} does not reach it (ICMP {reason})")
    })
}

/// Whether an address is link-local and of no interface.
fn lacks_scope(address: &SocketAddr) -> bool {
    matches!(address, SocketAddr::V6(v6) if v6.scope_id() == 0 && v6.ip().is_unicast_link_local())
}

/// Refuses a link-local address where nothing says by which interface it is reached.
///
/// # Errors
/// With the interfaces that have link-local addresses.
pub fn check_scope(address: &SocketAddr, device: Option<&str>) -> Result<(), MeasureError> {
    if device.is_some() || !lacks_scope(address) {
        return Ok(());
    }
    Err(MeasureError::NoScope { address: address.ip(), interfaces: link_local_interfaces() })
}

/// The name of the interface that a link-local address names, as in `fe80::1%eth0`.
pub fn interface_of(address: &SocketAddr) -> Option<String> {
    let SocketAddr::V6(v6) = address else { return None };
    let link = Netlink::open().ok()?.link_by_index(v6.scope_id()).ok()?;
    Some(link.name)
}

/// The interfaces with link-local addresses, in words.
fn link_local_interfaces() -> String {
    let names = || {
        let mut netlink = Netlink::open().ok()?;
        let mut links: Vec<u32> = netlink
            .addresses()
            .ok()?
            .into_iter()
            .filter(|it| matches!(it.prefix.address, IpAddr::V6(v6) if v6.is_unicast_link_local()))
            .map(|it| it.link)
            .collect();
        links.dedup();
        let named = links.into_iter().filter_map(|link| netlink.link_by_index(link).ok());
        Some(named.map(|link| link.name).collect::<Vec<_>>())
    };
    match names().unwrap_or_default() {
        names if names.is_empty() => "no interface of this host has such an address".to_owned(),
        names => format!("this host has such addresses on {}", listed(&names, "and")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_says_who_ended_the_attempt_and_why() {
        let [own, router] = ["198.18.0.1", "198.18.0.9"].map(|text| text.parse().unwrap());
        let said = |kind, code, offender| {
            let origin = ErrorOrigin::Icmp;
            let message = ExtendedError { origin, kind, code, info: 0, errno: 0, offender };
            from_message(&message, Some(own)).unwrap_or_default()
        };
        for (code, offender, words) in [
            (3, router, "a firewall at 198.18.0.9 rejects it (ICMP port unreachable)"),
            (10, router, "a firewall at 198.18.0.9 rejects it (ICMP host administratively"),
            (1, own, "no host on its network answers for the address"),
            (1, router, "198.18.0.9 does not reach it (ICMP host unreachable)"),
        ] {
            let said = said(3, code, Some(offender));
            assert!(said.starts_with(words), "{said}");
        }
        assert_eq!(said(11, 0, None), "");
    }

    #[test]
    fn what_this_hosts_routes_forbid_is_said_with_the_command_that_shows_it() {
        let peer = "127.0.0.1:5201".parse().unwrap();
        let said = not_begun(Error::from_raw_os_error(ENETUNREACH), peer);
        assert_eq!(said.kind(), ErrorKind::HostUnreachable);
        assert_eq!(said.to_string(), "this host has no route to it; see `ip route get 127.0.0.1`");
        // A call that fails otherwise than the route does is not the route's fault.
        let other = not_begun(Error::from_raw_os_error(EINVAL), peer);
        assert_eq!(other.raw_os_error(), Some(EINVAL));
    }

    #[test]
    fn a_link_local_address_needs_its_interface() {
        let at = |text: &str| -> SocketAddr { text.parse().unwrap() };
        let error = check_scope(&at("[fe80::1]:5201"), None).unwrap_err().to_string();
        assert!(error.contains("fe80::1%INTERFACE"), "{error}");
        for (address, device) in
            [("[fe80::1%1]:5201", None), ("[fe80::1]:5201", Some("lo")), ("[::1]:5201", None)]
        {
            assert!(check_scope(&at(address), device).is_ok(), "{address}");
        }
        assert_eq!(interface_of(&at("[fe80::1%1]:5201")).as_deref(), Some("lo"));
    }
}
