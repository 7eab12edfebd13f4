//! The main job: a path examined in some thirty seconds, or roughly in five.

mod examination;
mod route;
mod runs;
mod transfer;

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::{Duration, SystemTime};

use linerate_core::foreign::Tool;
use linerate_core::record::{Caveat, CaveatKind, Check, Environment, Status};
use linerate_core::units::{BitRate, Family, format_rfc3339, listed, suggestion};
use linerate_sys::proc::sysctl;
use linerate_sys::socket::{self, Mptcp, OptionError};

use self::examination::Examination;
use self::route::trace_to;
use crate::campaign::Observer;
use crate::error::MeasureError;
use crate::own_endpoint::OwnEndpoint;
use crate::partner::Partner;
use crate::stop::Stop;
use crate::target::Target;
use crate::{host, path};

/// What to examine and how thoroughly.
#[derive(Debug, Clone)]
pub struct CheckOptions {
    /// The endpoint; without one, both ends run here, on loopback.
    pub target: Option<Target>,
    /// A server of this tool's must answer there.
    pub via: Option<Tool>,
    /// Family of the loopback path.
    pub family: Option<Family>,
    /// One run each way, without intervals and without round trips per minute.
    pub quick: bool,
    /// Options of the bulk transfers.
    pub bulk: BulkOptions,
    /// Seed of every random choice.
    pub seed: u64,
}

/// What a user may ask of a check's bulk transfers.
#[derive(Debug, Clone, Default)]
pub struct BulkOptions {
    /// Length of each, in place of what the path's round trips ask for.
    pub time: Option<Duration>,
    /// Flows of each; 1 without.
    pub streams: Option<u32>,
    /// Congestion control of the senders.
    pub congestion: Option<String>,
    /// Datagrams at this rate of each flow, in place of TCP.
    pub udp_rate: Option<BitRate>,
}

/// Examines a path. The error beside the document is what kept it from being whole.
///
/// # Errors
/// There is nothing to show: interrupted at once, or no endpoint could be started.
pub fn check(
    options: &CheckOptions,
    stop: &Stop,
    observer: &mut dyn Observer,
) -> Result<(Check, Option<MeasureError>), MeasureError> {
    match &options.target {
        Some(target) => examine(target, options, stop, observer),
        None => {
            let served = OwnEndpoint::start(loopback(options.family), None)?;
            let mut result = examine(&served.target("localhost"), options, stop, observer)?;
            result.0.caveats.push(Caveat::new(
                CaveatKind::LocalPath,
                "no HOST was given: both ends ran on this host and the path is its loopback",
                "run `linerate serve` on another host, then: linerate check HOST (or here, to try \
                 the commands above)",
            ));
            Ok(result)
        }
    }
}

/// Looks for a congestion control in this host's kernel. Whether it may be used is another
/// question: a network namespace has its own answer.
///
/// # Errors
/// There is none of that name; the error names those that there are.
pub fn knows_congestion(name: &str) -> Result<(), MeasureError> {
    let nobody = SocketAddr::new(loopback(None), 0);
    let socket = socket::tcp_socket(nobody, None, Mptcp::Off)
        .map_err(MeasureError::host("cannot make a socket"))?;
    match socket::set_congestion(&socket, name) {
        Err(OptionError::Set { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
            let known =
                sysctl::read("net.ipv4.tcp_available_congestion_control").unwrap_or_default();
            let known: Vec<&str> = known.split_whitespace().collect();
            let all = || format!("it has {}; modprobe may load others", listed(&known, "and"));
            let hint = suggestion(name, &known).unwrap_or_else(all);
            Err(MeasureError::NoCongestion { hint })
        }
        // Whether it may be used is found out by those who use it.
        _ => Ok(()),
    }
}

fn examine(
    target: &Target,
    options: &CheckOptions,
    stop: &Stop,
    observer: &mut dyn Observer,
) -> Result<(Check, Option<MeasureError>), MeasureError> {
    let address = target.addresses.first().map(SocketAddr::ip);
    let client = host::facts_by(address, target.device.as_deref());
    let mut check = Check {
        started_at: format_rfc3339(SystemTime::now()),
        path: path::facts(target),
        ..Check::new(&target.name, Environment::new(client, None))
    };
    observer.phase("connecting");
    let client = match Partner::connect(target.clone(), options.via, stop.clone()) {
        Ok(client) => client,
        Err(MeasureError::Interrupted) => return Err(MeasureError::Interrupted),
        Err(error) => {
            observer.phase("tracing the route");
            check.route = trace_to(target, options.seed, stop);
            one_sided(&mut check, target, &error);
            return Ok((check, Some(error)));
        }
    };
    check.path.connect_us = Some(client.connect_time().as_secs_f64() * 1e6);
    let result = Examination::new(client, options, &mut check, observer).run(target, stop);
    if result.is_err() {
        check.status = Status::Partial;
        check.caveats.push(Caveat::new(
            CaveatKind::Partial,
            "the check ended before its time",
            "run it again",
        ));
    }
    Ok((check, result.err()))
}

/// What one end can see of a path without an endpoint on it.
fn one_sided(check: &mut Check, target: &Target, error: &MeasureError) {
    check.one_sided = true;
    if let Some(seen) = path::try_connect(target) {
        check.path.connect_us = Some(seen.connect.as_secs_f64() * 1e6);
        check.path.mss_bytes = seen.mss_bytes;
    }
    check.caveats.push(Caveat::new(
        CaveatKind::Partial,
        format!("no endpoint answered ({error}): only what this end can see was examined"),
        "on that host: linerate serve",
    ));
}

fn loopback(family: Option<Family>) -> IpAddr {
    match family {
        Some(Family::Ipv6) => Ipv6Addr::LOCALHOST.into(),
        Some(Family::Ipv4) | None => Ipv4Addr::LOCALHOST.into(),
    }
}
