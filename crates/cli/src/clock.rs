//! The time of this host by the clock that can be set. What waits, or asks how long ago something
//! was, takes `linerate_engine::since_boot`.

use std::time::{Duration, SystemTime};

use linerate_core::units::format_rfc3339_seconds;
use linerate_history::Since;

/// Time since 1970.
pub(crate) fn since_1970() -> Duration {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.unwrap_or_default()
}

/// Seconds since 1970.
pub(crate) fn now() -> u64 {
    since_1970().as_secs()
}

/// The end of the runs that began by `now`, in seconds since 1970: those of the future were saved by
/// a wrong clock, and would hide the others.
pub(crate) fn until(now: u64) -> Since {
    Since::Moment(format_rfc3339_seconds(now + 1))
}
