//! One monotonic clock for everything, ns.

use std::time::Duration;

pub(crate) use linerate_sys::clock::monotonic_ns as now_ns;

/// Now, as the session's state machines take it.
pub(crate) fn now() -> Duration {
    Duration::from_nanos(now_ns())
}
