//! Remedies with values that are computed from the path.

use crate::plan::{End, Role};
use crate::record::HostFacts;
use crate::remedy::{self, Change, LookObject, Name, Remedy, RouteMetric, RunOption};
use crate::units::BitRate;

use super::signals::{is_bbr, positive, rtt_s};
use super::view::View;

/// The buffer that each flow needs for its share of `target_bps`, bytes. A share of payload that is
/// smaller than small segments explain is not used: something else holds the window.
pub(super) fn buffer_for(view: &View<'_>, target_bps: f64, payload_share: Option<f64>) -> u64 {
    let share = payload_share.and_then(positive).filter(|share| *share >= MIN_SHARE);
    let rtt = view.mean(rtt_s).and_then(positive).unwrap_or(0.0);
    let product = target_bps / view.flow_count() as f64 * rtt / 8.0;
    remedy::buffer_for(product, share)
}

/// A socket buffer for what a flow needs, bytes. The kernel cuts a larger request than its limit
/// allows without an error: then the buffer is left to the kernel's tuning, or the limit is raised
/// first.
pub(super) fn buffer(view: &View<'_>, role: Role, needed: u64) -> Remedy {
    let option = match role {
        Role::Sender => RunOption::SendBuffer,
        Role::Receiver => RunOption::ReceiveWindow,
    };
    let bytes = larger(view, role, needed);
    let remedy = Remedy::option(option, bytes);
    if !is_limited(view, role, bytes) {
        remedy
    } else if is_left_to_tuning(view, role, bytes) {
        Remedy::without(option)
    } else {
        remedy.after(setting(view, role, limit_key(role), &[bytes]))
    }
}

/// Both buffers as `-w` sets them, if the run has fixed both: one alone would leave the other as
/// the limit. `payload_share` is that of the send buffer.
pub(super) fn both_buffers(view: &View<'_>, target_bps: f64, payload_share: f64) -> Option<Remedy> {
    if !fixes_both_buffers(view) {
        return None;
    }
    let needed = |payload_share| buffer_for(view, target_bps, payload_share);
    let most = needed(None).max(needed(Some(payload_share)));
    let roles = [Role::Receiver, Role::Sender].into_iter();
    let bytes = roles.clone().map(|role| larger(view, role, most)).max().unwrap_or(most);
    let mut low: Vec<Role> = roles.filter(|role| is_limited(view, *role, bytes)).collect();
    if low.iter().any(|role| is_left_to_tuning(view, *role, bytes)) {
        return Some(Remedy::without(RunOption::Window));
    }
    // The command for the endpoint's host comes first, and stands alone.
    low.sort_by_key(|role| role.end(view.direction) == End::Client);
    let steps = low.into_iter().map(|role| setting(view, role, limit_key(role), &[bytes]));
    let remedy = Remedy::option(RunOption::Window, bytes);
    Some(match steps.reduce(|before, step| step.after(before)) {
        Some(first) => remedy.after(first),
        None => remedy,
    })
}

/// What a flow needs, or twice what the run asked for if that held it back all the same: no remedy
/// makes a buffer smaller.
fn larger(view: &View<'_>, role: Role, needed: u64) -> u64 {
    match asked_buffer(view, role) {
        Some(asked) if asked >= needed => asked.saturating_mul(2),
        _ => needed,
    }
}

/// The setting that limits what a program may ask for a buffer.
fn limit_key(role: Role) -> &'static str {
    match role {
        Role::Sender => "net.core.wmem_max",
        Role::Receiver => "net.core.rmem_max",
    }
}

/// Whether the host's limit is known to be smaller than a buffer of `bytes`.
fn is_limited(view: &View<'_>, role: Role, bytes: u64) -> bool {
    limit_of(view.host(role), limit_key(role)).is_some_and(|limit| limit < bytes)
}

/// Whether a buffer that its limit cuts is better not asked for: nobody can raise the limit there,
/// or it was an option of the run that fixed the buffer, which the kernel would tune as far.
fn is_left_to_tuning(view: &View<'_>, role: Role, bytes: u64) -> bool {
    let host = view.host(role);
    let (tuned, is_tuned) = match role {
        // The kernel always tunes send buffers.
        Role::Sender => ("net.ipv4.tcp_wmem", true),
        Role::Receiver => {
            let is_tuned = setting_of(host, "net.ipv4.tcp_moderate_rcvbuf") != Some("0");
            ("net.ipv4.tcp_rmem", is_tuned)
        }
    };
    let reaches = || is_tuned && sysctl_maximum(host, tuned).is_some_and(|max| max >= bytes as f64);
    let is_fixed = host.is_some_and(|host| host.is_read_only(limit_key(role)));
    is_fixed || (asks_buffer(view, role) && reaches())
}

/// Whether the run was asked for both buffers, as by `-w`.
pub(super) fn fixes_both_buffers(view: &View<'_>) -> bool {
    [Role::Sender, Role::Receiver].into_iter().all(|role| asks_buffer(view, role))
}

/// Whether the run was asked for a buffer of its own at this end.
fn asks_buffer(view: &View<'_>, role: Role) -> bool {
    asked_buffer(view, role).is_some()
}

fn asked_buffer(view: &View<'_>, role: Role) -> Option<u64> {
    let asked = view.asked.and_then(|test| match role {
        Role::Sender => test.options.send_buffer_bytes,
        Role::Receiver => test.options.receive_window_bytes,
    });
    asked.map(|bytes| bytes.0)
}

/// A kernel setting of one figure.
fn limit_of(host: Option<&HostFacts>, key: &str) -> Option<u64> {
    setting_of(host, key)?.parse().ok()
}

/// A kernel setting of a host as the record has it.
pub(super) fn setting_of<'a>(host: Option<&'a HostFacts>, key: &str) -> Option<&'a str> {
    host?.setting(key)
}

/// Lets the kernel's tuning of the buffers of a role reach `bytes`. The maximum is raised, never
/// lowered: where it is not known, it is to be looked at. If it is large enough already, the tuning
/// did not get there, and the default is raised instead. `None` if that is large enough, too.
pub(super) fn tuning(view: &View<'_>, role: Role, bytes: u64) -> Option<Remedy> {
    let (key, sight) = match role {
        Role::Sender => ("net.ipv4.tcp_wmem", LookObject::SendBuffers),
        Role::Receiver => ("net.ipv4.tcp_rmem", LookObject::ReceiveBuffers),
    };
    let Some([min, default, max]) = triple(view.host(role), key) else {
        let remedy = Remedy::look(sight, Some(role.end(view.direction)));
        return Some(remedy.because(format!("raise the last figure to {bytes} if it is less")));
    };
    let (default, max) = match (default >= bytes, max >= bytes) {
        (true, true) => return None,
        (false, true) => (bytes, max),
        (_, false) => (default, bytes),
    };
    Some(setting(view, role, key, &[min, default, max]))
}

/// A kernel setting of the host of one role.
pub(super) fn setting(view: &View<'_>, role: Role, key: &str, figures: &[u64]) -> Remedy {
    Remedy::host_setting(Some(role.end(view.direction)), key, figures)
}

/// A metric of the route by which one role reaches the other, bytes.
pub(super) fn route(view: &View<'_>, role: Role, object: RouteMetric, bytes: f64) -> Remedy {
    let value = bytes.round() as u32;
    let change = Change::RouteMetric { object, value };
    Remedy::new(change, Some(role.end(view.direction)))
}

/// The last of the three figures of such a key, bytes.
pub(super) fn sysctl_maximum(host: Option<&HostFacts>, key: &str) -> Option<f64> {
    triple(host, key).map(|[_, _, max]| max as f64)
}

fn triple(host: Option<&HostFacts>, key: &str) -> Option<[u64; 3]> {
    let figures: Option<Vec<u64>> =
        setting_of(host, key)?.split_whitespace().map(|word| word.parse().ok()).collect();
    figures?.try_into().ok()
}

/// A congestion control that suffers less from loss; `None` if it is in use.
pub(super) fn congestion_control(view: &View<'_>) -> Option<Remedy> {
    let name = better_congestion_control(view)?;
    let remedy = Remedy::option(RunOption::Congestion, name);
    if is_available(view, name) {
        return Some(remedy);
    }
    let object = Name::new(&format!("tcp_{name}"))?;
    let end = Role::Sender.end(view.direction);
    Some(remedy.after(Remedy::new(Change::Module { object }, Some(end))))
}

/// BBR; if the sender's host does not have it, CUBIC in place of Reno. For other congestion
/// controls CUBIC is not known to be an improvement.
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
    if is_available(view, "bbr") || !cubic_is_better { Some("bbr") } else { Some("cubic") }
}

fn is_available(view: &View<'_>, name: &str) -> bool {
    let key = "net.ipv4.tcp_available_congestion_control";
    let names = setting_of(view.sender_host, key);
    names.is_none_or(|names| names.split_whitespace().any(|own| own == name))
}

/// A rate for an option, rounded to a tenth of its unit as users type it.
pub(super) fn rate(bps: f64) -> BitRate {
    let unit = [1e9, 1e6, 1e3].into_iter().find(|unit| bps >= *unit);
    let step = unit.unwrap_or(10.0) / 10.0;
    BitRate(((bps / step).round() * step).round() as u64)
}

/// Payload over memory of the smallest segments that anybody sends on purpose: 64 bytes in a
/// kilobyte.
const MIN_SHARE: f64 = 1.0 / 16.0;
