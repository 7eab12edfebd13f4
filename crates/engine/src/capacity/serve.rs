//! The loop of an endpoint's worker: it serves whoever comes until it is told to end.

use std::io;
use std::time::Duration;

use linerate_sys::poll::{Poller, Ready};

use super::message::{Order, Report};
use super::worker::{CHANNEL, Parent};
use crate::clock::now_ns;

/// What such a worker does: it takes connections, or answers datagrams.
pub(super) trait Service {
    /// Where all sockets are watched.
    fn poller(&mut self) -> &mut Poller;
    /// A socket has something.
    fn on_ready(&mut self, ready: &Ready);
    /// What is to be done now and then.
    ///
    /// # Errors
    /// Epoll fails.
    fn look(&mut self, now: u64) -> io::Result<()>;
    /// How it stands; what the process has spent is not in it.
    fn report(&self) -> Report;
}

/// Serves until the other end of the channel is gone, which is the order to close everything.
///
/// # Errors
/// The channel or epoll fails.
pub(super) fn serve(mut service: impl Service, mut parent: Parent) -> io::Result<()> {
    service.poller().add(&parent, CHANNEL)?;
    let mut found = Vec::new();
    let mut next_look = 0;
    loop {
        service.poller().wait_into(TICK, &mut found)?;
        for ready in &found {
            if ready.number == CHANNEL {
                while let Some(order) = parent.receive()? {
                    if order == Order::Report {
                        parent.report(service.report())?;
                    }
                }
            } else {
                service.on_ready(ready);
            }
        }
        let now = now_ns();
        if now >= next_look {
            next_look = now + TICK.as_nanos() as u64;
            service.look(now)?;
            if parent.is_due(now, false) {
                parent.tell(now, service.report().status)?;
            }
        }
    }
}

const TICK: Duration = Duration::from_millis(50);
