//! Serving another tool's own port: connections wait until their client is to be served, and cost
//! no thread until then; datagrams of all sockets are handled in one thread.

use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use linerate_core::session::GREETING_TIMEOUT;
use linerate_sys::poll::Poller;

use crate::endpoint::crr_listener::Listeners;
use crate::endpoint::waiting::Waiting;
use crate::stop::Stop;

/// When a connection is handed over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ForeignAdmission {
    /// With its first byte.
    FirstByte,
    /// At once, because the client only receives.
    AtOnce,
}

/// Hands each connection to `take` until `stop` is requested.
pub(super) fn accept(
    listeners: Vec<TcpListener>,
    admission: ForeignAdmission,
    stop: &Stop,
    mut take: impl FnMut(TcpStream, SocketAddr),
) {
    let listeners = Listeners::new(listeners).map(Arc::new);
    let Ok(mut waiting) = listeners.and_then(|listeners| Waiting::new(listeners, stop)) else {
        return;
    };
    while !stop.is_requested() {
        let Ok(ready) = waiting.wait(Duration::MAX) else {
            return;
        };
        for number in ready {
            for (stream, peer) in waiting.accept(number) {
                match admission {
                    ForeignAdmission::AtOnce => take(stream, peer),
                    ForeignAdmission::FirstByte => waiting.keep(stream, GREETING_TIMEOUT),
                }
            }
            if let Some((stream, ())) = waiting.take(number, |_| Some(()))
                && let Ok(peer) = stream.peer_addr()
            {
                take(stream, peer);
            }
        }
    }
}

/// Longest wait without a look at the stop flag.
const TICK: Duration = Duration::from_millis(100);

/// Calls `handle` with the sockets on which datagrams wait, possibly none, at least every 100 ms
/// until `stop` is requested.
pub(super) fn watch_datagrams(
    sockets: &[UdpSocket],
    stop: &Stop,
    mut handle: impl FnMut(Vec<&UdpSocket>),
) {
    let Ok(mut poller) = Poller::new() else {
        return;
    };
    for (number, socket) in (0..).zip(sockets) {
        if socket.set_nonblocking(true).is_err() || poller.add(socket, number).is_err() {
            return;
        }
    }
    while !stop.is_requested() {
        let Ok(ready) = poller.wait(TICK) else {
            return;
        };
        handle(ready.map(|number| &sockets[number as usize]).collect());
    }
}
