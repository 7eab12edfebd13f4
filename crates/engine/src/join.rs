//! Waiting for a thread.

use std::panic::resume_unwind;
use std::thread;

/// The result of a joined thread. A panic of the thread goes on in the caller.
pub(crate) fn joined<T>(result: thread::Result<T>) -> T {
    result.unwrap_or_else(|panic| resume_unwind(panic))
}
