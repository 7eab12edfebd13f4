//! Commands that lift a ceiling, with values computed from the path.
//!
//! A record may be a stranger's and its commands are copied into a shell: names from it are written
//! only if they consist of what names consist of.

use std::net::IpAddr;

use crate::plan::Direction;
use crate::record::HostFacts;
use crate::units::Family;

use super::command;
pub(super) use super::command::{host_set, plain, stream, stream_without};
use super::signals::{is_bbr, positive, rtt_s};
use super::view::View;

/// Window that each flow needs for a share of `target_bps`, bytes: twice the product of rate and
/// delay, since a queue wants room; a power of two.
pub(super) fn window_for(view: &View<'_>, target_bps: f64) -> u64 {
    products(view, target_bps, 2.0)
}

/// Buffer that each flow needs for a share of `target_bps`, bytes: as much as [`window_for`], which
/// is right where half of it is payload; more where of the run's own buffers less was. A share that
/// is smaller than segments explain is of something else that holds the window.
pub(super) fn buffer_for(view: &View<'_>, target_bps: f64, payload_share: Option<f64>) -> u64 {
    let share = payload_share.and_then(positive);
    let share = share.filter(|share| *share >= MIN_SHARE);
    let times = share.map_or(2.0, |share| ROOM / share);
    products(view, target_bps, times.max(2.0))
}

/// So many times the product of rate and delay, the next power of two.
fn products(view: &View<'_>, target_bps: f64, times: f64) -> u64 {
    let rtt = view
        .mean(rtt_s)
        .filter(|rtt| rtt.is_finite())
        .unwrap_or(0.0);
    let needed = target_bps / view.flow_count() as f64 * rtt / 8.0 * times;
    // The cast saturates; the largest buffer that the kernel takes is 2³¹ − 1.
    (needed.ceil() as u64)
        .clamp(MIN_BUFFER, LARGEST_BUFFER)
        .next_power_of_two()
        .min(LARGEST_BUFFER)
}

/// `linerate stream` with a socket buffer of `bytes`, and before it what the host must allow for
/// that: the kernel cuts larger requests to `limit_key` without an error.
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
        Some(_) => {
            let set = command::host_set(limit_key, &bytes.to_string());
            format!("{set}  # on its host, and then: {command}")
        }
        None => command,
    }
}

/// One end of a run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum End {
    Sender,
    Receiver,
}

impl End {
    fn name(self) -> &'static str {
        match self {
            Self::Sender => "sender",
            Self::Receiver => "receiver",
        }
    }

    pub(super) fn host<'a>(self, view: &View<'a>) -> Option<&'a HostFacts> {
        match self {
            Self::Sender => view.sender_host,
            Self::Receiver => view.receiver_host,
        }
    }

    /// As treatments name it.
    fn side(self, view: &View<'_>) -> &'static str {
        if (self == Self::Sender) == (view.direction != Direction::Down) {
            "client"
        } else {
            "server"
        }
    }
}

/// Lets the kernel's tuning of `net.ipv4.tcp_rmem` or `tcp_wmem` reach `bytes`: its maximum, never
/// lowered. Where that is large enough already, the tuning is what did not get there, and has to
/// begin there. Empty where it does.
pub(super) fn tuning(view: &View<'_>, end: End, key: &str, bytes: u64) -> String {
    let [least, default, most] = triple(end.host(view), key).unwrap_or(KERNEL_DEFAULTS);
    let (default, most) = match (default >= bytes, most >= bytes) {
        (true, true) => return String::new(),
        (false, true) => (bytes, most),
        (_, false) => (default, bytes),
    };
    setting(view, end, key, &format!("{least} {default} {most}"), "")
}

/// A kernel setting of one end's host. A host of an emulated path is gone with it: there it is a
/// comparison of what was in force with what is to be.
pub(super) fn setting(view: &View<'_>, end: End, key: &str, value: &str, why: &str) -> String {
    let treatment = |value: &str| format!("{}.sysctl:{key}={value}", end.side(view));
    let was = end.host(view).and_then(|host| value_of(host, key));
    let again = was.and_then(|was| command::compare(view, &treatment(&was), &treatment(value)));
    again.unwrap_or_else(|| {
        let set = command::host_set(key, value);
        format!("{set}  # on the {}'s host{why}", end.name())
    })
}

/// A setting of figures, with one blank between them.
fn value_of(host: &HostFacts, key: &str) -> Option<String> {
    let words: Vec<&str> = host.sysctls.get(key)?.split_whitespace().collect();
    let is_figure = |word: &&str| word.bytes().all(|byte| byte.is_ascii_digit());
    (!words.is_empty() && words.iter().all(is_figure)).then(|| words.join(" "))
}

/// Gives the route to `to` another `metric` (`mtu`, `advmss`), bytes, and keeps the rest of it.
pub(super) fn route(
    view: &View<'_>,
    to: Option<IpAddr>,
    metric: &str,
    bytes: f64,
    end: &str,
) -> String {
    let ip = match view.family {
        Family::Ipv4 => "ip route",
        Family::Ipv6 => "ip -6 route",
    };
    let to = to.map_or_else(|| "PEER".to_owned(), |address| address.to_string());
    // `fibmatch` prints the route itself, as `change` reads it, and not what it comes to for one
    // address.
    format!(
        "{ip} change $({ip} get fibmatch {to} | sed -E 's/ {metric} (lock )?[0-9]+//') {metric} \
         {bytes:.0}  # on the {end}'s host"
    )
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

/// A congestion control that takes less from loss, as an option of a new run; empty if it is in
/// use.
pub(super) fn congestion_control(view: &View<'_>) -> String {
    let Some(name) = better_congestion_control(view) else {
        return String::new();
    };
    let command = stream(view, &format!("-C {name}"));
    if is_available(view, name) {
        command
    } else {
        format!("modprobe tcp_{name}  # on the sender's host, and then: {command}")
    }
}

/// BBR, or where the sender's host has not got it CUBIC for Reno: for anything else CUBIC is not
/// known to be an improvement.
pub(super) fn better_congestion_control(view: &View<'_>) -> Option<&'static str> {
    if view.tcp.iter().any(|flow| is_bbr(flow.tcp)) {
        return None;
    }
    let in_use = |name: &str| {
        let name = Some(name);
        let mut flows = view.tcp.iter();
        flows.any(|flow| flow.tcp.congestion.as_deref() == name)
    };
    let cubic_is_better = in_use("reno") && !in_use("cubic") && is_available(view, "cubic");
    if is_available(view, "bbr") || !cubic_is_better {
        Some("bbr")
    } else {
        Some("cubic")
    }
}

fn is_available(view: &View<'_>, name: &str) -> bool {
    let key = "net.ipv4.tcp_available_congestion_control";
    let names = view.sender_host.and_then(|host| host.sysctls.get(key));
    names.is_none_or(|names| names.split_whitespace().any(|own| own == name))
}

/// A rate as options take it, bits per second.
pub(super) fn rate(bps: f64) -> String {
    let (value, unit) = [(1e9, "gbit"), (1e6, "mbit"), (1e3, "kbit")]
        .into_iter()
        .find(|(scale, _)| bps >= *scale)
        .map_or((bps, "bit"), |(scale, unit)| (bps / scale, unit));
    format!("{}{unit}", (value * 10.0).round() / 10.0)
}

/// The kernel's defaults of `tcp_rmem` (net/ipv4/tcp.c), where the host's are not known.
const KERNEL_DEFAULTS: [u64; 3] = [4096, 131_072, 6_291_456];
/// What is under way over the product of rate and delay: acknowledgements come in batches, and what
/// they free is not filled at once.
const ROOM: f64 = 1.25;
/// Payload over memory of the smallest segments that anybody sends on purpose: 64 bytes in a
/// kilobyte.
const MIN_SHARE: f64 = 1.0 / 16.0;
/// Smallest buffer worth asking for, bytes.
const MIN_BUFFER: u64 = 65_536;
/// Largest power of two that the kernel takes for a buffer, bytes.
const LARGEST_BUFFER: u64 = 1 << 30;
