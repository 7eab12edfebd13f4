//! State that threads share: what a mutex protects, and shares of a limited quantity.

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

/// Locks a mutex whose content is only ever changed in one step: a thread that panicked while it
/// held the lock cannot have left half of a change.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How much of a limited quantity is in use: the connections that all clients of `capacity` hold
/// together, for which the owner's limit for one client holds too, or the profiles of this process.
#[derive(Debug, Clone, Default)]
pub(crate) struct Shares(Arc<AtomicU64>);

/// A part of the quantity, given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Share {
    all: Shares,
    count: u64,
}

impl Shares {
    /// Takes `count`, if that and what others have taken are within `limit`.
    ///
    /// # Errors
    /// How many the others have taken.
    pub(crate) fn take(&self, count: u64, limit: u64) -> Result<Share, u64> {
        let within = |others: u64| others.checked_add(count).filter(|sum| *sum <= limit);
        self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, within)?;
        let all = self.clone();
        Ok(Share { all, count })
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.all.0.fetch_sub(self.count, Ordering::AcqRel);
    }
}

// Waiting for a thread.

/// The result of a joined thread. A panic of the thread goes on in the caller.
pub(crate) fn joined<T>(result: thread::Result<T>) -> T {
    result.unwrap_or_else(|panic| resume_unwind(panic))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_takers_together_stay_within_the_limit() {
        let shares = Shares::default();
        let first = shares.take(60, 100).unwrap();
        assert_eq!(shares.take(41, 100).unwrap_err(), 60);
        let second = shares.take(40, 100).unwrap();
        drop(first);
        assert!(shares.take(61, 100).is_err());
        drop(second);
        assert!(shares.take(100, 100).is_ok());
        assert!(shares.take(u64::MAX, 100).is_err());
    }
}
