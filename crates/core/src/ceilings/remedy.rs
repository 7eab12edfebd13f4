//! Commands that lift a ceiling, with values computed from the path.
//!
//! A record may be a stranger's and its commands are copied into a shell: names from it are written only
//! if they consist of what names consist of.

use crate::plan::{Direction, Family, Protocol};
use crate::record::HostFacts;

use super::signals::{is_bbr, rtt_s};
use super::view::View;

/// `linerate stream` over the same path with one more option.
pub(super) fn stream(view: &View<'_>, option: &str) -> String {
    let host = plain(view.host).unwrap_or("HOST");
    let mut command = format!("linerate stream {host}");
    if view.direction == Direction::Down {
        command.push_str(" -R");
    }
    match view.protocol {
        Protocol::Udp => command.push_str(" -u"),
        Protocol::Mptcp => command.push_str(" --protocol mptcp"),
        Protocol::Tcp => {}
    }
    if view.family == Family::Ipv6 {
        command.push_str(" -6");
    }
    let flows = view.flow_count();
    if flows > 1 && !option.starts_with("--streams") {
        command.push_str(&format!(" -P {flows}"));
    }
    format!("{command} {option}")
}

/// Window or buffer that each flow needs for a share of `target_bps`, bytes: twice the product of rate
/// and delay, since the kernel counts overhead with the payload and a queue wants room; a power of two.
pub(super) fn bytes_for(view: &View<'_>, target_bps: f64) -> u64 {
    let rtt = view
        .mean(rtt_s)
        .filter(|rtt| rtt.is_finite())
        .unwrap_or(0.0);
    let needed = target_bps / view.flow_count() as f64 * rtt / 8.0 * 2.0;
    // The cast saturates; the largest buffer that the kernel takes is 2³¹ − 1.
    (needed.ceil() as u64)
        .clamp(LEAST_BUFFER, LARGEST_BUFFER)
        .next_power_of_two()
        .min(LARGEST_BUFFER)
}

/// `linerate stream` with a socket buffer of `bytes`, and before it what the host must allow for that:
/// the kernel cuts larger requests to `limit_key` without an error.
pub(super) fn buffer(
    view: &View<'_>,
    option: &str,
    bytes: u64,
    host: Option<&HostFacts>,
    limit_key: &str,
) -> String {
    let command = stream(view, &format!("{option} {bytes}"));
    let limit = host.and_then(|host| host.sysctls.get(limit_key)?.trim().parse::<u64>().ok());
    match limit.filter(|limit| *limit < bytes) {
        Some(_) => format!("sysctl -w {limit_key}={bytes}  # on its host, and then: {command}"),
        None => command,
    }
}

/// Raises the last of the three figures of `net.ipv4.tcp_rmem` or `tcp_wmem`, never lowers it.
pub(super) fn sysctl(host: Option<&HostFacts>, key: &str, bytes: u64, end: &str) -> String {
    let [least, default, most] = triple(host, key).unwrap_or(KERNEL_DEFAULTS);
    let most = most.max(bytes);
    format!("sysctl -w {key}='{least} {default} {most}'  # on the {end}'s host")
}

/// The last of the three figures of such a key, bytes.
pub(super) fn sysctl_maximum(host: Option<&HostFacts>, key: &str) -> Option<f64> {
    triple(host, key).map(|[_, _, most]| most as f64)
}

fn triple(host: Option<&HostFacts>, key: &str) -> Option<[u64; 3]> {
    let figures: Option<Vec<u64>> = host?
        .sysctls
        .get(key)?
        .split_whitespace()
        .map(|word| word.parse().ok())
        .collect();
    figures?.try_into().ok()
}

/// A congestion control that takes less from loss, as an option of a new run; empty if it is in use.
pub(super) fn congestion_control(view: &View<'_>) -> String {
    let in_use = |name: &str| {
        view.tcp
            .iter()
            .any(|flow| flow.tcp.congestion.as_deref() == Some(name))
    };
    let available = view.sender_host.and_then(|host| {
        host.sysctls
            .get("net.ipv4.tcp_available_congestion_control")
    });
    let has =
        |name: &str| available.is_none_or(|names| names.split_whitespace().any(|n| n == name));
    if view.tcp.iter().any(|flow| is_bbr(flow.tcp)) {
        return String::new();
    }
    let better = ["bbr", "cubic"]
        .into_iter()
        .find(|name| has(name) && !in_use(name));
    let bbr_missing = better != Some("bbr");
    match better {
        // CUBIC for Reno is an improvement, for anything else it is not known to be one.
        Some(name) if !bbr_missing || in_use("reno") => stream(view, &format!("-C {name}")),
        _ => "modprobe tcp_bbr  # on the sender's host".to_owned(),
    }
}

/// A rate as options take it, bits per second.
pub(super) fn rate(bps: f64) -> String {
    let (value, unit) = [(1e9, "gbit"), (1e6, "mbit"), (1e3, "kbit")]
        .into_iter()
        .find(|(scale, _)| bps >= *scale)
        .map_or((bps, "bit"), |(scale, unit)| (bps / scale, unit));
    format!("{}{unit}", (value * 10.0).round() / 10.0)
}

/// A name that means nothing to a shell, or nothing.
pub(super) fn plain(name: &str) -> Option<&str> {
    let harmless = |c: char| c.is_ascii_alphanumeric() || ".:_-%@[]".contains(c);
    (!name.is_empty() && !name.starts_with('-') && name.chars().all(harmless)).then_some(name)
}

/// The kernel's defaults of `tcp_rmem` (net/ipv4/tcp.c), where the host's are not known.
const KERNEL_DEFAULTS: [u64; 3] = [4096, 131_072, 6_291_456];
/// Smallest buffer worth asking for, bytes.
const LEAST_BUFFER: u64 = 65_536;
/// Largest power of two that the kernel takes for a buffer, bytes.
const LARGEST_BUFFER: u64 = 1 << 30;
