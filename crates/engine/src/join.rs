//! Waiting for a thread of a scope.

use std::panic::resume_unwind;
use std::thread::ScopedJoinHandle;

/// Waits for a thread to end and gives its result. A panic of the thread goes on in the caller.
pub(crate) fn joined<T>(thread: ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| resume_unwind(panic))
}
