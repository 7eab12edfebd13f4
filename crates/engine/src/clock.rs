//! One monotonic clock for everything, ns.

use std::time::{Duration, SystemTime};

pub(crate) use linerate_sys::clock::monotonic_ns as now_ns;

/// Now, as the session's state machines take it.
pub(crate) fn now() -> Duration {
    Duration::from_nanos(now_ns())
}

/// Now by the clock that hosts set to each other, ns since 1970: for what another host is told.
pub fn since_1970_ns() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, nanos)
}

/// Now by the clock that hosts set to each other, seconds since 1970. What waits, or asks how long ago
/// something was, takes [`since_boot`](crate::since_boot).
pub fn since_1970_s() -> u64 {
    since_1970_ns() / 1_000_000_000
}

/// A span as ns of this clock; 584 years and more are the end of time.
pub(crate) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
