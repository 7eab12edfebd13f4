//! Lets the program end cleanly on Ctrl-C, SIGTERM and SIGHUP.

use std::io::{self, PipeReader};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::low_level;

use crate::CallError;

/// Exit status after a second Ctrl-C: 128 + SIGINT, as shells count it.
const INTERRUPTED_STATUS: i32 = 130;

/// Signals within this time of each other count as one request, ms.
const ONE_REQUEST_MS: u64 = 500;

/// The requests to end that this process has got by signals.
///
/// After the first the program ends by itself. Another Ctrl-C ends the process at once with status
/// 130, and nothing is dropped: what would be undone on drop is then left to the journal. Within
/// half a second it is still the first: `timeout -s INT` signals the process and then its group. A
/// second SIGTERM or SIGHUP does not, since a closing terminal sends several. Once caught, the
/// signals stay caught, also after this is dropped.
#[derive(Debug)]
pub struct EndRequests {
    count: Arc<AtomicUsize>,
    wake: PipeReader,
}

impl EndRequests {
    /// Catches SIGINT, SIGTERM and SIGHUP from now on. To be called once, early in `main`.
    ///
    /// # Errors
    /// No descriptors left, or the kernel refuses a handler.
    pub fn catch() -> Result<Self, CallError> {
        Self::try_catch()
            .map_err(|error| CallError::new("catch the signals that ask to end", error))
    }

    fn try_catch() -> io::Result<Self> {
        let count = Arc::new(AtomicUsize::new(0));
        let (began, first_ms) = (Instant::now(), Arc::new(AtomicU64::new(0)));
        let (wake, waker) = io::pipe()?;
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            let count = Arc::clone(&count);
            let first_ms = Arc::clone(&first_ms);
            let note = move || {
                let now_ms = began.elapsed().as_millis() as u64;
                let earlier = count.fetch_add(1, Ordering::SeqCst);
                if earlier == 0 {
                    first_ms.store(now_ms, Ordering::SeqCst);
                }
                let is_again =
                    now_ms - first_ms.load(Ordering::SeqCst).min(now_ms) >= ONE_REQUEST_MS;
                if signal == SIGINT && earlier > 0 && is_again {
                    low_level::exit(INTERRUPTED_STATUS);
                }
            };
            // SAFETY: the handler reads the clock, uses atomics and may call _exit, all of which
            // are async-signal-safe; it neither allocates, locks nor panics.
            unsafe { low_level::register(signal, note) }?;
            // After the count, so that whoever is woken up finds it.
            low_level::pipe::register(signal, waker.try_clone()?)?;
        }
        Ok(Self { count, wake })
    }

    /// Whether the process was asked to end.
    pub fn requested(&self) -> bool {
        self.count.load(Ordering::SeqCst) > 0
    }
}

/// The descriptor is readable from the first request on, for a `poll` or `epoll` to wake up.
/// Nothing is to be read from it: it would no longer wake the other threads that wait for it.
impl AsFd for EndRequests {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;
    use std::process::Command;

    fn is_readable(fd: BorrowedFd<'_>) -> bool {
        let mut poll = libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: the pointer is to one live pollfd, as the call is told.
        unsafe { libc::poll(&raw mut poll, 1, 0) == 1 }
    }

    /// The handlers are of the whole process, and the last one ends it: the test's body runs in a
    /// process of its own, which is this test again.
    #[test]
    fn requests_are_counted_wake_a_poll_and_a_second_interrupt_exits() {
        const BODY: &str = "LINERATE_SYS_SIGNAL_TEST_BODY";
        if std::env::var_os(BODY).is_none() {
            let name =
                "signal::tests::requests_are_counted_wake_a_poll_and_a_second_interrupt_exits";
            let output = Command::new(std::env::current_exe().unwrap())
                .args(["--exact", name, "--nocapture"])
                .env(BODY, "1")
                .output()
                .unwrap();
            assert_eq!(output.status.code(), Some(INTERRUPTED_STATUS), "{output:?}");
            return;
        }
        let requests = EndRequests::catch().unwrap();
        assert!(!requests.requested() && !is_readable(requests.as_fd()));
        for (sent, signal) in [SIGTERM, SIGHUP, SIGTERM].into_iter().enumerate() {
            low_level::raise(signal).unwrap();
            assert_eq!(requests.count.load(Ordering::SeqCst), sent + 1);
            assert!(requests.requested() && is_readable(requests.as_fd()));
        }
        // `timeout` sends two of them.
        low_level::raise(SIGINT).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(2 * ONE_REQUEST_MS));
        low_level::raise(SIGINT).unwrap();
        unreachable!("the second interrupt ends the process");
    }
}
