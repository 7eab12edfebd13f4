//! Ctrl-C and its kin as a [`Stop`].

use std::io;
use std::thread;
use std::time::Duration;

use linerate_sys::signal::EndRequests;

use crate::stop::Stop;

/// A stop that SIGINT, SIGTERM or SIGHUP requests; another SIGINT half a second later or more ends
/// the process at once.
///
/// # Errors
/// No descriptors or threads.
pub fn stop_on_signal() -> io::Result<Stop> {
    let requests = EndRequests::catch().map_err(io::Error::other)?;
    let stop = Stop::new();
    let requested = stop.clone();
    thread::Builder::new()
        .name("signals".into())
        .spawn(move || {
            // The handle is pollable; a wait that fails must not spin.
            while !requests.requested() {
                if linerate_sys::poll::wait_readable(&requests, Duration::from_secs(3600)).is_err()
                {
                    thread::sleep(Duration::from_millis(100));
                }
            }
            requested.request();
        })?;
    Ok(stop)
}
