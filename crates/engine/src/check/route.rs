//! The path by hop.

use std::cmp::Reverse;
use std::time::Duration;

use linerate_core::trace::{PathEnd, TraceConfig, TraceDocument};
use linerate_core::units::Nanos;

use crate::stop::Stop;
use crate::target::Target;
use crate::trace::{TraceOptions, trace};

/// Of the route's hops; a silent target takes it twice.
const TIMEOUT: Nanos = Nanos::from_millis(700);
/// A second trace, which waits for a hop that does not answer.
pub(super) const AGAIN: Duration = Duration::from_millis(1400);

/// The path by hop, where there is more than loopback to see. What a firewall hides or this host
/// does not allow is no reason to end a check.
pub(super) fn trace_to(target: &Target, seed: u64, stop: &Stop) -> Option<Box<TraceDocument>> {
    let address = target.addresses.first()?.ip();
    if address.is_loopback() {
        return None;
    }
    let config = TraceConfig { timeout: TIMEOUT, ..TraceConfig::new(address) };
    let options = TraceOptions {
        source: target.source,
        device: target.device.clone(),
        seed,
        ..TraceOptions::new(target.name.clone(), config)
    };
    trace(&options, stop).ok().map(Box::new)
}

/// Every hop up to the target has answered.
pub(super) fn is_whole(route: &TraceDocument) -> bool {
    seen(route) == (true, Reverse(0))
}

/// The one that has seen more.
pub(super) fn better(
    one: Option<Box<TraceDocument>>,
    other: Option<Box<TraceDocument>>,
) -> Option<Box<TraceDocument>> {
    one.into_iter().chain(other).max_by_key(|route| seen(route))
}

/// Whether the target has answered, and how many hops have not.
fn seen(route: &TraceDocument) -> (bool, Reverse<usize>) {
    let silent = route.hops.iter().filter(|hop| hop.address.is_none());
    let reached = matches!(route.end, PathEnd::Reached { .. });
    (reached, Reverse(silent.count()))
}
