//! One monotonic clock for everything, ns.

use std::time::Duration;

pub(crate) use linerate_sys::clock::monotonic_ns as now_ns;

/// Now, as the session's state machines take it.
pub(crate) fn now() -> Duration {
    Duration::from_nanos(now_ns())
}

/// A span as ns of this clock; 584 years and more are the end of time.
pub(crate) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
