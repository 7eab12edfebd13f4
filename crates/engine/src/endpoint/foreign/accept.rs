//! Accepts at another tool's own port: a connection waits until its client says something, and
//! costs no thread.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use linerate_core::session::GREETING_TIMEOUT;

use crate::endpoint::door::Listeners;
use crate::endpoint::waiting::Waiting;
use crate::stop::Stop;

/// Who is let in, and when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Admission {
    /// With the first byte.
    Spoken,
    /// At once: the client is there to listen.
    AtOnce,
}

/// Hands each client to `take` until `stop` is requested.
pub(super) fn accept(
    listeners: Vec<TcpListener>,
    admission: Admission,
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
                    Admission::AtOnce => take(stream, peer),
                    Admission::Spoken => waiting.keep(stream, GREETING_TIMEOUT),
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
