//! Signals that end a process, as a [`Stop`].

use std::io;
use std::thread;
use std::time::Duration;

use linerate_sys::poll::wait_readable;
use linerate_sys::signal::EndRequests;

use crate::stop::Stop;

/// A stop that SIGINT, SIGTERM or SIGHUP requests. Another SIGINT, half a second later or more,
/// ends the process at once.
///
/// # Errors
/// No descriptors or threads.
pub fn stop_on_signal() -> io::Result<Stop> {
    let requests = EndRequests::catch().map_err(io::Error::other)?;
    let stop = Stop::new();
    let requested = stop.clone();
    let wait = move || {
        while !requests.requested() {
            // A wait that fails at once must not turn into a busy loop.
            if wait_readable(&requests, Duration::from_secs(3600)).is_err() {
                thread::sleep(Duration::from_millis(100));
            }
        }
        requested.request();
    };
    thread::Builder::new().name("signals".into()).spawn(wait)?;
    Ok(stop)
}
