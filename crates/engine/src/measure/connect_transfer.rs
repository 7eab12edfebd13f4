//! A transfer as it was measured in 1981: from before the connection is made, over the bytes, to
//! the end of the connection as both ends see it.

use std::io;
use std::net::TcpStream;
use std::time::Duration;

use linerate_core::plan::StreamTest;
use linerate_core::units::End;

use super::options::QuickAck;
use super::shared::{FlowState, Shared, WorkerEnd};
use super::stream;
use super::tcp::TcpProbe;
use super::transfer::Mover;
use crate::clock::now_ns;
use crate::measure::options;

/// Longest blocking call: only the worker has this socket, so that no other thread can shut it
/// down.
const SLICE: Duration = Duration::from_millis(100);

/// One connection, from before its SYN to the peer's FIN.
///
/// # Errors
/// The connection could not be made, or was lost.
pub(crate) fn run(shared: &Shared, flow: &FlowState, test: &StreamTest) -> io::Result<WorkerEnd> {
    let Some((flow, socket)) = connection(shared, flow)? else {
        return Ok(WorkerEnd::default());
    };
    socket.set_read_timeout(Some(SLICE))?;
    socket.set_write_timeout(Some(SLICE))?;
    let mut probe = TcpProbe::new(&socket, flow.sends);
    probe.iter_mut().for_each(TcpProbe::begin);
    let method = stream::run(shared, flow, test, &socket)?;
    if flow.sends {
        await_end(shared, &socket)?;
    }
    let tcp = probe.and_then(|mut probe| {
        probe.sample(0);
        probe.evidence(flow.counters.bytes()).0
    });
    drop(socket);
    flow.counters.set_done(now_ns());
    Ok(WorkerEnd { method, tcp, ..WorkerEnd::default() })
}

/// The next connection, and the flow that it belongs to; `None` if the client makes no more.
fn connection<'a>(
    shared: &'a Shared,
    flow: &'a FlowState,
) -> io::Result<Option<(&'a FlowState, TcpStream)>> {
    if shared.side == End::Client {
        let connector = shared.source.connector()?;
        let socket = connector.socket(flow.id)?;
        return Ok(Some((flow, connector.connect(socket, flow.id, &[])?)));
    }
    // Any worker may take any connection; the connection's hello names the flow.
    let Some((id, socket)) = shared.source.accept(&shared.stop) else {
        return Ok(None);
    };
    let flow = shared.flows.get(id as usize).unwrap_or(flow);
    options::apply_tcp(&socket, &shared.test.options, End::Server, flow.sends)
        .map_err(io::Error::other)?;
    Ok(Some((flow, socket)))
}

/// Waits until the receiver closes the connection, which it does when it has read all.
fn await_end(shared: &Shared, socket: &TcpStream) -> io::Result<()> {
    let mover = Mover { stop: &shared.stop, spin: false, patience: None, quickack: QuickAck::NONE };
    match mover.receive_end(socket) {
        Err(_) if shared.stop.is_requested() => Ok(()),
        other => other,
    }
}
