//! Treatments of one side that make no sense together.

use super::error::TreatmentError;
use super::list::{Treatment, Treatments};
use crate::plan::End;
use crate::value::Value;

/// Two treatments of one end, named as they are written without the end, when they exclude each
/// other, and why.
type Exclusion = (
    &'static str,
    &'static str,
    fn(&Value, &Value) -> bool,
    &'static str,
);

/// # Errors
/// [`TreatmentError::Excluded`] with the first pair.
pub(super) fn check(treatments: &Treatments) -> Result<(), TreatmentError> {
    for end in [End::Client, End::Server] {
        let here: Vec<&Treatment> = treatments.iter().filter(|one| one.is_at(end)).collect();
        for (first, second, excludes, why) in EXCLUSIONS {
            let named = |name: &str| here.iter().find(|one| plain_name(one) == name);
            if let (Some(one), Some(other)) = (named(first), named(second))
                && excludes(one.value(), other.value())
            {
                return Err(TreatmentError::Excluded {
                    one: one.to_string(),
                    other: other.to_string(),
                    why,
                });
            }
        }
    }
    Ok(())
}

fn plain_name(treatment: &Treatment) -> &str {
    treatment.key().unwrap_or(treatment.entry().name)
}

fn always(_: &Value, _: &Value) -> bool {
    true
}

fn off_and_on(one: &Value, other: &Value) -> bool {
    (one, other) == (&Value::Switch(false), &Value::Switch(true))
}

fn on_and_any(one: &Value, _: &Value) -> bool {
    *one == Value::Switch(true)
}

fn differ(one: &Value, other: &Value) -> bool {
    one != other
}

fn less_than(one: &Value, other: &Value) -> bool {
    matches!((one, other), (Value::Number(one), Value::Number(other)) if one < other)
}

const NEEDS_CHECKSUMS: &str = "segmentation by the device needs its checksums";
const SOCKET_WINS: &str = "the option of the socket wins, and the setting would do nothing";

const EXCLUSIONS: &[Exclusion] = &[
    ("checksum_offload", "tso", off_and_on, NEEDS_CHECKSUMS),
    ("checksum_offload", "uso", off_and_on, NEEDS_CHECKSUMS),
    (
        "quickack",
        "route_quickack",
        differ,
        "the route wins, and the option would do nothing",
    ),
    (
        "source",
        "route_source",
        always,
        "a bound socket does not ask the route for its address",
    ),
    (
        "mtu",
        "route_mtu",
        less_than,
        "the route would send packets that are too large for the device",
    ),
    (
        "adaptive_rx",
        "rx_usecs",
        on_and_any,
        "a driver that adapts it sets rx_usecs by itself",
    ),
    ("receive_window", "net.ipv4.tcp_rmem", always, SOCKET_WINS),
    ("send_buffer", "net.ipv4.tcp_wmem", always, SOCKET_WINS),
    (
        "congestion",
        "net.ipv4.tcp_congestion_control",
        always,
        SOCKET_WINS,
    ),
    ("busy_poll", "net.core.busy_read", always, SOCKET_WINS),
];
