//! A client of a STAMP session-reflector (RFC 8762), for instance a router's: it answers test
//! packets, and there is no control connection.

use std::time::{Duration, SystemTime};

use linerate_core::assemble::ExchangeTotals;
use linerate_core::foreign::Tool;
use linerate_core::plan::{Test, Traffic};
use linerate_core::units::{DEFAULT_PORT, format_rfc3339};
use linerate_core::wire::{STAMP_BYTES, STAMP_PORT, StampAnswer, StampRequest};

use super::{PartnerResult, ServerAddress, start_half};
use crate::client::{Observe, Outcome, udp_flow_socket, udp_socket};
use crate::clock::{now, since_1970_ns};
use crate::error::MeasureError;
use crate::measure::flow::{Flow, FlowSocket, Marks};
use crate::measure::half::HalfEnd;
use crate::measure::source::FlowSource;
use crate::stop::Stop;
use crate::target::Target;

/// Test packets that are sent before the host counts as silent.
const TRIES: u32 = 4;
/// Longest wait for the answer to one of them.
const PATIENCE: Duration = Duration::from_millis(500);

/// Finds the address at which a reflector answers. If the target has linerate's own port, STAMP's
/// is used instead.
///
/// # Errors
/// No reflector answers.
pub(super) fn find(target: Target, stop: Stop) -> Result<ServerAddress, MeasureError> {
    let mut last = None;
    for mut peer in target.addresses.clone() {
        if peer.port() == DEFAULT_PORT {
            peer.set_port(STAMP_PORT);
        }
        let asked = ask(&target, peer, &stop).map_err(MeasureError::connect(peer));
        match asked {
            Ok(Some(time)) => return Ok(ServerAddress::new(target, peer, time, stop)),
            _ if stop.is_requested() => return Err(MeasureError::Interrupted),
            Ok(None) => {
                let reason = "no STAMP reflector answers there: it may answer none but addresses \
                              that its owner has named (`linerate serve --stamp --stamp-allow`)"
                    .to_owned();
                last = Some(MeasureError::Foreign { peer, reason });
            }
            Err(error) => last = Some(error),
        }
    }
    Err(last.unwrap_or(MeasureError::Interrupted))
}

/// Runs a test.
///
/// # Errors
/// The test is not one of STAMP's packets, or could not begin.
pub(super) fn run(
    server: &ServerAddress,
    test: &Test,
    observe: Observe<'_>,
) -> Result<Outcome, MeasureError> {
    let is_stamp = matches!(&test.traffic, Traffic::Rr(exchange) if exchange.stamp);
    if !is_stamp {
        let what = "a STAMP reflector answers nothing but STAMP's packets: `rr -u --stamp`";
        return Err(server.lacks(what.to_owned()));
    }
    let flows = (0..test.flows()).map(|id| {
        let socket = udp_flow_socket(&server.target, server.peer, test, &test.options, id)?;
        let socket = FlowSocket::Udp(socket);
        Ok(Flow { id, socket })
    });
    let flows = flows.collect::<Result<Vec<_>, MeasureError>>()?;
    let started_at = format_rfc3339(SystemTime::now());
    let half = start_half(test, Marks::None, flows, FlowSource::Bound)?;
    let error = server.watch(test, &half, observe).err();
    let HalfEnd { report, exchange, .. } = half.stop(server.host_facts());
    let ended = PartnerResult {
        here: report,
        there: None,
        exchange: exchange.map(|outcome| ExchangeTotals::from(&outcome)),
        error,
    };
    Ok(server.outcome(Tool::Stamp, test.clone(), started_at, ended))
}

/// How long the first answer took; `None` if there was none.
fn ask(
    target: &Target,
    peer: std::net::SocketAddr,
    stop: &Stop,
) -> std::io::Result<Option<Duration>> {
    let socket = udp_socket(target, peer, 0)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    let mut packet = [0; STAMP_BYTES + 1];
    for sequence in 0..TRIES {
        if stop.is_requested() {
            break;
        }
        let began = now();
        let request = StampRequest { sequence, sent_ns: since_1970_ns(), session: 0 };
        request.write(&mut packet);
        socket.send(&packet[..STAMP_BYTES])?;
        match socket.recv(&mut packet) {
            Ok(n) if StampAnswer::read(&packet[..n]).is_some() => return Ok(Some(now() - began)),
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => {
                return Err(error);
            }
            Err(_) => {}
        }
    }
    Ok(None)
}
