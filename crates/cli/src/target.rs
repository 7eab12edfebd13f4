//! From the endpoint that the user named to the addresses, the source and the key of a connection.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::time::Duration;

use anyhow::{Context, anyhow, bail, ensure};
use linerate_core::plan::{Direction, Plan, Protocol, Test, Traffic};
use linerate_core::units::{DEFAULT_PORT, EndpointName, Family};
use linerate_engine::{Target, knows_congestion};

use crate::args::PathOptions;
use crate::failure::Failure;
use crate::files;
use crate::progress::Progress;
use crate::typed;

const DEFAULT_CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Largest UDP payload of IPv4: 65,535 less 20 and 8 bytes of headers.
const MAX_IPV4_DATAGRAM: u64 = 65_507;

/// Looks up the name and reads the key.
///
/// # Errors
/// A contradiction, an unknown host, or a bad key file.
pub(crate) fn look_up(
    name: EndpointName,
    options: &PathOptions,
    progress: &mut Progress,
) -> Result<Target, Failure> {
    check_options(&name, options).map_err(Failure::usage)?;
    let key_file = options.key_file.as_deref();
    let key = files::read_key(key_file, |warning| progress.warn(warning))?;
    let port = name.port.or(options.port).unwrap_or(DEFAULT_PORT);
    let found = (name.host.as_str(), port).to_socket_addrs();
    let addresses = wanted(found, options).context(name.to_string()).map_err(Failure::usage)?;
    Ok(Target {
        name: name.to_string(),
        addresses,
        source: options.source,
        device: options.device.clone(),
        key,
        connect_timeout: options.connect_timeout.map_or(DEFAULT_CONNECT_TIMEOUT, |t| t.0),
    })
}

/// Refuses datagrams that the endpoint's family cannot carry.
///
/// # Errors
/// A size is too large for IPv4 and the endpoint has an IPv4 address.
pub(crate) fn check_sizes(target: &Target, plan: &Plan) -> Result<(), Failure> {
    let is_ipv4 = target.addresses.iter().any(SocketAddr::is_ipv4);
    let udp = plan.tests.iter().filter(|test| test.protocol == Protocol::Udp);
    let mut sizes = udp.flat_map(|test| messages(&test.traffic));
    match sizes.find(|(_, size)| is_ipv4 && *size > MAX_IPV4_DATAGRAM) {
        Some((key, size)) => Err(Failure::usage(anyhow!(
            "{} {size}: it must be up to {MAX_IPV4_DATAGRAM} over IPv4; or give -6",
            typed::option(key)
        ))),
        None => Ok(()),
    }
}

/// Refuses a congestion control that this host does not have, if it is to send by it. `option` is
/// where the user named it.
///
/// # Errors
/// The kernel does not have it; the error names those that it has.
pub(crate) fn check_congestion(
    test: &Test,
    option: impl Fn(&str) -> String,
) -> Result<(), Failure> {
    let receives_only =
        test.direction == Direction::Down && matches!(test.traffic, Traffic::Stream(_));
    match &test.options.congestion {
        Some(name) if !receives_only => {
            let known = knows_congestion(name).map_err(Failure::from);
            known.map_err(|failure| failure.at(option(name)))
        }
        _ => Ok(()),
    }
}

/// Refuses datagrams without a rate on a path that others may be on.
///
/// # Errors
/// No rate was typed, and the test sends as fast as it can.
pub(crate) fn check_pace(target: &Target, plan: &Plan, is_typed: bool) -> Result<(), Failure> {
    let mut addresses = target.addresses.iter();
    let is_private = addresses.all(|address| is_private(address.ip()));
    if is_typed || is_private || !plan.tests.iter().any(floods) {
        return Ok(());
    }
    let option = typed::option("-u");
    Err(Failure::usage(anyhow!("{option}: {FLOOD}")))
}

/// Why UDP needs a rate, and how to give one.
pub(crate) const FLOOD: &str =
    "without a rate it floods the path: give --rate RATE, or --rate max for as fast as it goes";

/// Whether a test sends datagrams as fast as it can.
pub(crate) fn floods(test: &Test) -> bool {
    let is_unpaced =
        |traffic: &Traffic| matches!(traffic, Traffic::Stream(it) if it.rate_bps.is_none());
    test.protocol == Protocol::Udp && is_unpaced(&test.traffic)
}

/// Whether nobody else is on the path: loopback, or a test network (RFC 2544, RFC 5180) such as a
/// lab's.
fn is_private(address: IpAddr) -> bool {
    address.is_loopback()
        || match address {
            IpAddr::V4(address) => matches!(address.octets(), [198, 18 | 19, ..]),
            IpAddr::V6(address) => matches!(address.segments(), [0x2001, 2, 0, ..]),
        }
}

fn check_options(name: &EndpointName, options: &PathOptions) -> anyhow::Result<()> {
    if let (Some(named), Some(given)) = (name.port, options.port) {
        ensure!(
            named == given,
            "HOST {name} cannot be used with {} {given}: give one port",
            typed::option("port")
        );
    }
    if let (Some(source), Some(family)) = (options.source, options.family()) {
        ensure!(
            Family::from(source) == family,
            "{} {source} cannot be used with {}: it is of the other family",
            typed::option("source"),
            typed::flag(family)
        );
    }
    Ok(())
}

/// The addresses of the family that was asked for, or of the source address.
fn wanted(
    found: io::Result<impl Iterator<Item = SocketAddr>>,
    options: &PathOptions,
) -> anyhow::Result<Vec<SocketAddr>> {
    let all: Vec<SocketAddr> = found.context("unknown host")?.collect();
    let family = options.family().or(options.source.map(Family::from));
    let mut addresses = Vec::new();
    for address in all {
        let is_wanted = family.is_none_or(|family| Family::from(address.ip()) == family);
        if is_wanted && !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    match (addresses.is_empty(), family) {
        (true, Some(Family::Ipv4)) => bail!("the host has no IPv4 address"),
        (true, Some(Family::Ipv6)) => bail!("the host has no IPv6 address"),
        (true, None) => bail!("the host has no address"),
        (false, _) => Ok(addresses),
    }
}

/// The options that have the sizes of messages.
fn messages(traffic: &Traffic) -> Vec<(&'static str, u64)> {
    match traffic {
        Traffic::Stream(stream) => vec![("size", stream.message_bytes)],
        Traffic::Rr(exchange) | Traffic::Crr(exchange) => {
            vec![("request", exchange.request_bytes), ("response", exchange.response_bytes)]
        }
    }
}
