//! A client of netserver: one control connection and one data connection for each flow of a test.

mod connection;
mod test;

use std::net::SocketAddr;
use std::time::SystemTime;

use linerate_core::assemble::ExchangeTotals;
use linerate_core::foreign::Tool;
use linerate_core::foreign::netperf::{PORT, Results};
use linerate_core::plan::{Protocol, Test, Traffic};
use linerate_core::session::message::HalfReport;
use linerate_core::units::{DEFAULT_PORT, format_rfc3339};

use self::connection::NetperfConnection;
use self::test::{Adapted, adapt};
use super::{PartnerResult, ServerAddress, start_half};
use crate::client::{Observe, Outcome, both};
use crate::error::MeasureError;
use crate::measure::flow::Flow;
use crate::measure::half::HalfEnd;
use crate::measure::shared::Marks;
use crate::measure::source::FlowSource;
use crate::stop::Stop;
use crate::target::Target;

/// Finds the address at which a netserver answers. If the target has linerate's own port, netperf's
/// is used instead.
///
/// # Errors
/// Refused, unreachable, timed out, interrupted; something else answers.
pub(super) fn find(mut target: Target, stop: Stop) -> Result<ServerAddress, MeasureError> {
    for address in &mut target.addresses {
        if address.port() == DEFAULT_PORT {
            address.set_port(PORT);
        }
    }
    let NetperfConnection { peer, connect_time, .. } = NetperfConnection::greet(&target, &stop)?;
    Ok(ServerAddress::new(target, peer, connect_time, stop))
}

/// Runs a test.
///
/// # Errors
/// netperf's protocol has no such test, or the netserver refuses it.
pub(super) fn run(
    server: &ServerAddress,
    test: &Test,
    observe: Observe<'_>,
) -> Result<Outcome, MeasureError> {
    let Adapted { test, caveats } = adapt(test).map_err(|what| server.lacks(what))?;
    let mut connections = Vec::new();
    for id in 0..test.flows() {
        let mut connection = NetperfConnection::greet(&server.target, &server.stop)?;
        let request = test::request(&test, id, server.peer);
        connection.open(&request, &server.stop)?;
        connections.push(connection);
    }
    let (flows, source) = connect(server, &test, &connections)?;
    let started_at = format_rfc3339(SystemTime::now());
    let marks = match test.protocol {
        Protocol::Udp => Marks::None,
        Protocol::Tcp | Protocol::Mptcp => Marks::Own,
    };
    let half = start_half(&test, marks, flows, source)?;
    let watched = server.watch(&test, &half, observe);
    // Stopping closes the data connections, which ends the netserver's half.
    let HalfEnd { report: mut here, exchange, .. } = half.stop(server.host_facts());
    here.caveats.extend(caveats);
    let (there, error) = both(results(server, &test, &here, connections), watched);
    let ended = PartnerResult {
        here,
        there: there.flatten(),
        exchange: exchange.map(|outcome| ExchangeTotals::from(&outcome)),
        error,
    };
    Ok(server.outcome(Tool::Netperf, test, started_at, ended))
}

fn connect(
    server: &ServerAddress,
    test: &Test,
    connections: &[NetperfConnection],
) -> Result<(Vec<Flow>, FlowSource), MeasureError> {
    if let Traffic::Crr(_) = test.traffic {
        let ports: Vec<SocketAddr> = connections.iter().map(NetperfConnection::data).collect();
        let source = connection::connect_each(test, &server.target, ports);
        return Ok((Vec::new(), source));
    }
    let flows = (0..).zip(connections).map(|(id, connection)| {
        let socket = connection.connect(test, id, server)?;
        Ok(Flow { id, socket })
    });
    let flows = flows.collect::<Result<_, MeasureError>>()?;
    Ok((flows, FlowSource::Bound))
}

/// The netserver's results of a stream. Of requests it counts only what this end has counted, too;
/// and after connections made within the run it waits four seconds before it answers. So it is not
/// asked for those.
fn results(
    server: &ServerAddress,
    test: &Test,
    here: &HalfReport,
    connections: Vec<NetperfConnection>,
) -> Result<Option<HalfReport>, MeasureError> {
    if !matches!(test.traffic, Traffic::Stream(_)) {
        return Ok(None);
    }
    let mut there = HalfReport::default();
    for (connection, flow) in connections.into_iter().zip(&here.flows) {
        let results: Results = connection.results(&server.stop)?;
        let half = results.to_half(flow).ok_or_else(|| MeasureError::Foreign {
            peer: server.peer,
            reason: "the netserver tells counts that this test cannot have had".to_owned(),
        })?;
        there.flows.push(half);
    }
    Ok(Some(there))
}
