//! The time of this host by the clock that can be set. What waits, or asks how long ago something
//! was, takes `linerate_engine::since_boot`.

use std::time::{Duration, SystemTime};

/// Time since 1970.
pub(crate) fn since_1970() -> Duration {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.unwrap_or_default()
}

/// Seconds since 1970.
pub(crate) fn now() -> u64 {
    since_1970().as_secs()
}
