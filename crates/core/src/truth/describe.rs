//! Describes conditions in one line.

use super::conditions::{Bound, Conditions};
use super::scenario::CpuShare;
use crate::link::PathSpec;
use crate::plan::Direction;
use crate::units::{BitRate, ByteCount};

/// The particulars of the conditions, in words.
pub(super) fn describe(
    conditions: &Conditions,
    path: Option<&PathSpec>,
    is_control_free: bool,
) -> String {
    let named = parts(conditions).into_iter();
    let named = named.filter_map(|(name, value)| Some(format!("{name} {}", value?)));
    let holding = [
        (conditions.is_offload_off, "offload off"),
        (conditions.nodelay, "nodelay"),
        (conditions.verifies, "verified"),
    ];
    let holding = holding.into_iter().filter(|(holds, _)| *holds);
    let words: Vec<String> = [kind(conditions, path, is_control_free)]
        .into_iter()
        .chain(named)
        .chain(holding.map(|(_, word)| word.to_owned()))
        .collect();
    words.join(", ")
}

/// Direction, IPv4 or IPv6, congestion control or UDP, and the path.
fn kind(conditions: &Conditions, path: Option<&PathSpec>, is_control_free: bool) -> String {
    let is_down = conditions.direction == Direction::Down;
    let direction = if is_down { "down" } else { "up" };
    let family = conditions.family;
    let control = if conditions.is_udp {
        "udp"
    } else if is_control_free {
        "the host's congestion control"
    } else {
        conditions.control.name()
    };
    let path = path.map_or("plain veth".to_owned(), ToString::to_string);
    format!("{direction}, {family}, {control}, {path}")
}

fn parts(conditions: &Conditions) -> [(&'static str, Option<String>); 12] {
    let rate = |bps: Option<u64>| bps.map(|bps| BitRate(bps).to_string());
    let size = |bytes: u64| ByteCount(bytes).to_string();
    let number = |number: Option<u32>| number.map(|number| number.to_string());
    let streams = Some(conditions.streams).filter(|n| *n > 1);
    [
        ("streams", number(streams)),
        ("message", Some(size(conditions.message_bytes))),
        ("mss", number(conditions.mss)),
        ("advmss", number(conditions.advertised_mss)),
        ("window", bound(conditions.window, "tcp_rmem")),
        ("send buffer", bound(conditions.send_buffer, "tcp_wmem")),
        ("pacing", rate(conditions.pacing_bps)),
        ("writer", rate(conditions.write_bps)),
        ("reader", rate(conditions.read_bps)),
        ("sender's CPU", cpu_text(conditions.sender)),
        ("receiver's CPU", cpu_text(conditions.receiver)),
        ("bytes", conditions.transfer_bytes.map(size)),
    ]
}

fn bound(bound: Bound, setting: &str) -> Option<String> {
    match bound {
        Bound::Free => None,
        Bound::Socket(bytes) => Some(ByteCount(bytes).to_string()),
        Bound::Host(bytes) => Some(format!("{} by {setting}", ByteCount(bytes))),
    }
}

fn cpu_text(share: CpuShare) -> Option<String> {
    match share {
        CpuShare::Any => None,
        CpuShare::Own { cpu } => Some(format!("{cpu}")),
        CpuShare::Shared { cpu, neighbours } => {
            Some(format!("{cpu} with {neighbours} busy neighbours"))
        }
        CpuShare::Quota { percent } => Some(format!("{percent} % by quota")),
    }
}
