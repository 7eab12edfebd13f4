//! A request to stop, sleeping until it comes, and the signals that make it.

use std::io::{self, PipeReader, PipeWriter, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use linerate_sys::clock;
use linerate_sys::poll::wait_readable;
use linerate_sys::signal::EndRequests;

use crate::clock::now_ns;

/// A request to end early, shared between a signal handler and whoever runs. Once made it stays.
#[derive(Debug, Clone, Default)]
pub struct Stop(Arc<StopRequest>);

#[derive(Debug, Default)]
struct StopRequest {
    is_made: AtomicBool,
    /// A pipe into which the request writes, for threads that sleep in `epoll`; made when the first
    /// of them asks for it.
    bell: OnceLock<(PipeReader, PipeWriter)>,
}

/// Longest sleep without a look at the request, ns.
const SLICE_NS: u64 = 50_000_000;

impl Stop {
    /// A stop that nobody has requested yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Requests the stop.
    pub fn request(&self) {
        // The flag is set before the bell is looked for: a thread that makes the bell in the
        // meantime finds the flag.
        if !self.0.is_made.swap(true, Ordering::SeqCst) {
            self.ring();
        }
    }

    /// Whether the stop is requested. Cheap enough for a hot loop.
    #[inline]
    pub fn is_requested(&self) -> bool {
        self.0.is_made.load(Ordering::Relaxed)
    }

    /// Sleeps until `due_ns` of [`crate::clock`]; for the last `spin` of the time it stays awake,
    /// because a sleeping CPU wakes up late. `slept` is told the length of each part of the sleep,
    /// ns. False if the stop was requested, which ends the sleep within 50 ms.
    pub(crate) fn sleep_until(
        &self,
        due_ns: u64,
        spin: Duration,
        mut slept: impl FnMut(u64),
    ) -> bool {
        while !self.is_requested() {
            let now = now_ns();
            if now >= due_ns {
                return true;
            }
            let left = due_ns - now;
            if left > SLICE_NS {
                // The last part is at least half a slice: it ends at its time, and not late.
                thread::sleep(Duration::from_nanos(SLICE_NS.min(left - SLICE_NS / 2)));
            } else {
                clock::sleep_until(due_ns, spin);
            }
            slept(now_ns() - now);
        }
        false
    }

    /// A pipe that becomes readable when the stop is requested, and stays so.
    ///
    /// # Errors
    /// No descriptors.
    pub(crate) fn bell(&self) -> io::Result<&PipeReader> {
        if self.0.bell.get().is_none() {
            // If another thread has just made one, that one stays.
            let _ = self.0.bell.set(io::pipe()?);
        }
        if self.0.is_made.load(Ordering::SeqCst) {
            self.ring();
        }
        let (bell, _) = self.0.bell.get().expect("it was made above");
        Ok(bell)
    }

    fn ring(&self) {
        if let Some((_, ring)) = self.0.bell.get() {
            // A pipe holds thousands of bytes and gets only a few: the write does not block.
            let _ = (&*ring).write(&[1]);
        }
    }
}

// Signals that end a process, as a [`Stop`].

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

#[cfg(test)]
mod tests {
    use linerate_sys::poll::wait_readable;

    use super::*;

    #[test]
    fn the_bell_is_readable_whether_it_was_made_before_or_after_the_request() {
        let (before, after) = (Stop::new(), Stop::new());
        let rings = |stop: &Stop| wait_readable(stop.bell().unwrap(), Duration::ZERO).unwrap();
        assert!(!rings(&before));
        before.request();
        after.request();
        assert!(rings(&before) && rings(&after) && rings(&after.clone()));
    }

    #[test]
    fn a_sleep_lasts_until_its_time_unless_the_stop_is_requested() {
        let stop = Stop::new();
        let (began, due) = (now_ns(), now_ns() + 2_000_000);
        let mut slept = 0;
        assert!(stop.sleep_until(due, Duration::ZERO, |ns| slept += ns));
        let ended = now_ns();
        assert!(ended >= due && slept <= ended - began);
        stop.request();
        assert!(!stop.sleep_until(u64::MAX, Duration::ZERO, |_| ()));
    }
}
