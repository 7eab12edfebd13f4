//! Being asked to stop.

use std::io::{self, PipeReader, PipeWriter, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// A request to end early, shared between a signal handler and whoever runs. Once made it stays.
#[derive(Debug, Clone, Default)]
pub struct Stop(Arc<Request>);

#[derive(Debug, Default)]
struct Request {
    is_made: AtomicBool,
    /// Of those who sleep until then.
    bell: OnceLock<(PipeReader, PipeWriter)>,
}

impl Stop {
    /// Nobody has asked yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Asks.
    pub fn request(&self) {
        // Before the look at the bell: whoever hangs one up meanwhile finds this.
        if !self.0.is_made.swap(true, Ordering::SeqCst) {
            self.ring();
        }
    }

    /// Whether somebody has asked. Cheap enough for a hot loop.
    #[inline]
    pub fn is_requested(&self) -> bool {
        self.0.is_made.load(Ordering::Relaxed)
    }

    /// What becomes readable when somebody asks, and stays so: for who sleeps until then.
    ///
    /// # Errors
    /// No descriptors.
    pub(crate) fn bell(&self) -> io::Result<&PipeReader> {
        if self.0.bell.get().is_none() {
            // Another thread may just have done so: then that one stays.
            let _ = self.0.bell.set(io::pipe()?);
        }
        if self.0.is_made.load(Ordering::SeqCst) {
            self.ring();
        }
        let (bell, _) = self.0.bell.get().expect("hung up above");
        Ok(bell)
    }

    fn ring(&self) {
        if let Some((_, ring)) = self.0.bell.get() {
            // Rung a few times at most, a pipe holds thousands: it does not block.
            let _ = (&*ring).write(&[1]);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use linerate_sys::poll::wait_readable;

    use super::*;

    #[test]
    fn the_bell_rings_whenever_it_was_hung_up() {
        let (before, after) = (Stop::new(), Stop::new());
        let rings = |stop: &Stop| wait_readable(stop.bell().unwrap(), Duration::ZERO).unwrap();
        assert!(!rings(&before));
        before.request();
        after.request();
        assert!(rings(&before) && rings(&after) && rings(&after.clone()));
    }
}
