//! A transfer with everything in it, as it was measured in 1981: connection set-up, the bytes, and
//! the end of the connection, seen by both ends.

use std::io;
use std::net::TcpStream;
use std::time::Duration;

use linerate_core::plan::StreamTest;

use super::quickack::QuickAck;
use super::shared::{FlowState, Shared, WorkerEnd};
use super::stream::{self, Job};
use super::tcp::TcpProbe;
use super::transfer::Mover;
use crate::clock::now_ns;
use crate::measure::options;
use linerate_core::units::End;

/// Longest blocking call: this socket is the worker's alone, and nobody else can wake it.
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
    let job = Job {
        test: &shared.test,
        stream: test,
        counters: &flow.counters,
        stop: &shared.stop,
        quota: None,
    };
    let mut probe = TcpProbe::new(&socket, flow.sends);
    if let Some(probe) = &mut probe {
        probe.begin(now_ns());
    }
    let method = if flow.sends {
        let method = stream::send(&job, &socket)?;
        await_end(shared, &socket)?;
        method
    } else {
        stream::receive(&job, &socket)?
    };
    let tcp = probe.and_then(|mut probe| {
        probe.end(0);
        probe.evidence(flow.counters.bytes()).0
    });
    drop(socket);
    flow.counters.set_done(now_ns());
    Ok(WorkerEnd {
        method,
        tcp,
        ..WorkerEnd::default()
    })
}

/// The connection and the flow that it is; `None` if the client makes no more.
fn connection<'a>(
    shared: &'a Shared,
    flow: &'a FlowState,
) -> io::Result<Option<(&'a FlowState, TcpStream)>> {
    if shared.side == End::Client {
        return Ok(Some((flow, shared.source.connect(flow.id, &[])?)));
    }
    // Which worker takes a connection is chance; which flow it is says its hello.
    let Some((id, socket)) = shared.source.accept(&shared.stop) else {
        return Ok(None);
    };
    let flow = shared.flows.get(id as usize).unwrap_or(flow);
    options::apply_tcp(&socket, &shared.test.options, End::Server, flow.sends)
        .map_err(io::Error::other)?;
    Ok(Some((flow, socket)))
}

/// The receiver closes when it has read all.
fn await_end(shared: &Shared, socket: &TcpStream) -> io::Result<()> {
    let mover = Mover {
        stop: &shared.stop,
        spin: false,
        patience: None,
        quickack: QuickAck::NONE,
    };
    match mover.receive_end(socket) {
        Err(_) if shared.stop.is_requested() => Ok(()),
        other => other,
    }
}
