//! The window that the receiver offers.

use super::super::formulas::window_bps;
use super::super::remedy::{
    both_buffers, buffer, buffer_for, setting, setting_of, sysctl_maximum, tuning,
};
use super::super::signals::{positive, rtt_s};
use super::super::thresholds::{
    ALWAYS_TOLERANCE, EXACT_TOLERANCE, HELD_TOLERANCE, QUEUE_DELAY_US, QUEUE_INFLATION,
    SHORT_QUEUE_INFLATION, USUAL_STATE, WINDOW_ALWAYS_FULL, WINDOW_COUNTED, WINDOW_FULL,
    WINDOW_HELD, WINDOW_OFTEN, WINDOW_ROOM, WINDOW_SEEN, WINDOW_USED,
};
use super::super::view::{TcpFlow, View, bytes, percent};
use super::application::reader_is_late;
use super::send_buffer::asked_share;
use super::{Basis, Cause, Ceiling, Rule, Signs};
use crate::plan::Role;
use crate::record::{TcpReceiver, TcpSender};
use crate::remedy::{self, Remedy};

pub(super) const RULE: Rule = Rule {
    cause: Cause::ReceiveWindow,
    basis: Basis::Counted,
    tolerance: EXACT_TOLERANCE,
    ceiling,
    signs,
    remedy,
};

/// The window that the receiver's buffer keeps, if only the receiver was seen; with its own
/// estimate of the round-trip time.
pub(super) const OWN: Rule = Rule {
    cause: Cause::ReceiveWindow,
    basis: Basis::Computed,
    tolerance: EXACT_TOLERANCE,
    ceiling: own_ceiling,
    signs: own_signs,
    remedy,
};

fn own_ceiling(view: &View<'_>) -> Option<Ceiling> {
    let [receiver] = own_receiver(view)?;
    let window = receiver.window_bytes? as f64;
    let limit = window_bps(window, f64::from(receiver.rtt_mean_us?) / 1e6);
    let formula = "receive window ÷ RTT, as the receiver estimates it";
    let ceiling = Ceiling::new(limit, formula)
        .input("receive_window_bytes", Some(window))
        .input("rtt_us", receiver.rtt_mean_us.map(f64::from));
    Some(ceiling)
}

/// A tuned window is twice what came in a round trip, so that a window that is used up cannot grow.
/// Behind a queue the path is full instead.
fn own_signs(view: &View<'_>) -> Option<Signs> {
    let [receiver] = own_receiver(view)?;
    let buffer = receiver.buffer_bytes? as f64;
    let most = sysctl_maximum(view.receiver_host, "net.ipv4.tcp_rmem")?;
    let at_limit = receiver.buffer_locked || buffer >= most;
    let (rtt, least) = (receiver.rtt_mean_us?, receiver.rtt_min_us?);
    let excess = f64::from(rtt.saturating_sub(least));
    let queue = f64::from(rtt) >= QUEUE_INFLATION * f64::from(least) && excess >= QUEUE_DELAY_US;
    let late = reader_is_late(view).is_some_and(|(late, _)| late);
    let state = if receiver.buffer_locked {
        "fixed by the application"
    } else {
        "as large as the kernel's tuning may make it"
    };
    let say = format!("the receive buffer of {} is {state}", bytes(buffer));
    Signs::new(at_limit && !queue && !late, [say])
}

/// The receiver of the only flow, if its sender's kernel was not read.
fn own_receiver<'a>(view: &View<'a>) -> Option<[&'a TcpReceiver; 1]> {
    view.receivers_alone().try_into().ok()
}

/// If the window does not limit, or only because nobody reads, an autotuned one still grows: then
/// its maximum is the limit.
fn ceiling(view: &View<'_>) -> Option<Ceiling> {
    let unread = reader_is_late(view).is_some_and(|(late, _)| late);
    let holds = !unread && is_held(view).unwrap_or(true);
    let window = |flow: &TcpFlow<'_>| {
        let offered = positive(flow.tcp.send_window_bytes? as f64)?;
        if holds || flow.has_fixed_window() {
            return Some(offered);
        }
        // Half of the buffer, as without a measured ratio of payload to memory
        // (net/ipv4/tcp_input.c, tcp_win_from_space with TCP_DEFAULT_SCALING_RATIO).
        let most = sysctl_maximum(view.receiver_host, "net.ipv4.tcp_rmem").map_or(0.0, |m| m / 2.0);
        Some(offered.max(most))
    };
    let limit = view.sum(|flow| {
        let usable = usable(window(flow)?, flow.tcp);
        Some(window_bps(usable, rtt_s(flow.tcp)?))
    })?;
    let ceiling = Ceiling::new(limit, "Σ receive window ÷ RTT")
        .input("receive_window_bytes", view.sum(window))
        .input("rtt_mean_us", view.mean(|tcp| Some(tcp.rtt_mean_us.into())));
    Some(ceiling)
}

/// The part of a window that a sender uses: whole segments, and the rest as well if it was seen to
/// split a segment for it (it need not: RFC 1122, 4.2.3.4).
fn usable(window: f64, tcp: &TcpSender) -> f64 {
    let mss = f64::from(tcp.mss_bytes.max(1));
    let whole = (window / mss).floor() * mss;
    // Not `clamp`: rounding may put what is whole above a window of 2⁵³ bytes.
    (tcp.unacked_bytes as f64).max(whole).min(window)
}

/// Whether the window keeps the sender waiting, whatever the reason for its size.
pub(crate) fn is_held_by_receiver(view: &View<'_>) -> bool {
    is_held(view).unwrap_or(false)
}

/// Whether the window keeps the sender waiting and is mostly smaller than it once was: it closes
/// behind a reader that is late, and acknowledgements that come when it reads look like a queue.
pub(crate) fn is_closing(view: &View<'_>) -> bool {
    let is_open = |flow: &TcpFlow<'_>| {
        let most = flow.tcp.send_window_bytes.unwrap_or(0) as f64;
        flow.tcp.unacked_bytes as f64 > WINDOW_USED * most
    };
    is_held_by_receiver(view) && !view.tcp.iter().any(is_open)
}

/// Whether the window is the sender's usual limit; `None` where the kernel does not count. It
/// counts no time in which a pace keeps the sender from the window's end (`tcp_write_xmit` asks
/// `tcp_pacing_check` first): a window that is as good as always full with no queue behind it is
/// the limit all the same.
fn is_held(view: &View<'_>) -> Option<bool> {
    let share = view.rwnd_share()?;
    let full = view.mean(|tcp| tcp.send_window_full_share).unwrap_or(0.0);
    let queue = view.inflation().is_none_or(|inflation| inflation.is_queue(SHORT_QUEUE_INFLATION));
    let always = full >= WINDOW_ALWAYS_FULL && share >= WINDOW_SEEN && !queue;
    let paced = full >= WINDOW_FULL && share >= WINDOW_COUNTED;
    let reached = share >= WINDOW_OFTEN && view.ignores_loss() && !queue && reaches_window(view);
    Some(share >= USUAL_STATE || paced || always || reached)
}

/// Whether the rate is that of full windows, where the congestion window has much more room.
fn reaches_window(view: &View<'_>) -> bool {
    let rate = view.sum(|flow| {
        let window = positive(flow.tcp.send_window_bytes? as f64)?;
        let room = flow.tcp.cwnd_mean_bytes? as f64 >= WINDOW_ROOM * window;
        room.then_some(window_bps(usable(window, flow.tcp), rtt_s(flow.tcp)?))
    });
    rate.is_some_and(|rate| view.throughput_bps >= (1.0 - HELD_TOLERANCE) * rate)
}

/// A window larger than the path holds only makes a queue: then the path is the limit. That queue
/// is as constant as the window and the link's rate are. A round trip that varies is made by jitter
/// or by others, and says nothing against what the kernel counted.
fn signs(view: &View<'_>) -> Option<Signs> {
    let share = view.rwnd_share()?;
    let full = view.mean(|tcp| tcp.send_window_full_share);
    let always = share.max(full.unwrap_or(0.0)) >= WINDOW_HELD;
    let queue = view.has_queue(QUEUE_INFLATION) && !(always && view.queue_varies());
    let mut say = vec![format!(
        "the receiver's window held the sender for {} of its busy time",
        percent(share)
    )];
    say.extend(
        full.map(|full| format!("the window was full in {} of the readings", percent(full))),
    );
    let tolerance = if always {
        ALWAYS_TOLERANCE
    } else if view.ignores_loss() {
        HELD_TOLERANCE
    } else {
        0.0
    };
    let signs = Signs::new(is_held(view)? && !queue, say)?;
    Some(signs.within(tolerance))
}

fn remedy(view: &View<'_>, target_bps: f64) -> Option<Remedy> {
    if let Some([receiver]) = own_receiver(view) {
        return own_remedy(view, receiver, target_bps);
    }
    let unscaled = |flow: &TcpFlow<'_>| !flow.tcp.options.iter().any(|name| name == "wscale");
    if view.tcp.iter().all(unscaled) {
        return Some(scaling(view));
    }
    if view.tcp.iter().any(|flow| flow.has_fixed_window()) {
        if let Some(both) = both_buffers(view, target_bps, asked_share(view)) {
            return Some(both);
        }
        let bytes = buffer_for(view, target_bps, None);
        return Some(buffer(view, Role::Receiver, bytes));
    }
    let moderate = "net.ipv4.tcp_moderate_rcvbuf";
    if is_off(view, Role::Receiver, moderate) {
        let remedy = setting(view, Role::Receiver, moderate, &[1]);
        return Some(remedy.because("it keeps the window fixed"));
    }
    let bytes = buffer_for(view, target_bps, window_share(view));
    tuning(view, Role::Receiver, bytes)
}

fn own_remedy(view: &View<'_>, receiver: &TcpReceiver, target_bps: f64) -> Option<Remedy> {
    let product = target_bps * f64::from(receiver.rtt_mean_us?) / 1e6 / 8.0;
    if receiver.buffer_locked {
        let bytes = remedy::buffer_for(product, None);
        return Some(buffer(view, Role::Receiver, bytes));
    }
    let share = receiver
        .window_bytes
        .zip(receiver.buffer_bytes)
        .and_then(|(window, buffer)| positive(window as f64 / buffer as f64));
    let bytes = remedy::buffer_for(product, share);
    tuning(view, Role::Receiver, bytes)
}

/// Window over buffer: the payload of the segments that came over their memory (`scaling_ratio`,
/// net/ipv4/tcp_input.c), 0.4 at 950 bytes and 0.62 at 1448.
fn window_share(view: &View<'_>) -> Option<f64> {
    let window = view.sum(|flow| flow.tcp.send_window_bytes.map(|w| w as f64))?;
    let buffer = view.sum(|flow| Some(flow.receiver?.buffer_bytes? as f64))?;
    positive(window / buffer)
}

/// The remedy for windows of at most 64 KiB: window scaling, which either end can refuse.
fn scaling(view: &View<'_>) -> Remedy {
    let key = "net.ipv4.tcp_window_scaling";
    let roles = [Role::Sender, Role::Receiver];
    match roles.into_iter().find(|role| is_off(view, *role, key)) {
        Some(role) => setting(view, role, key, &[1]),
        None => Remedy::host_setting(None, key, &[1]).because("at the end that has it off"),
    }
}

fn is_off(view: &View<'_>, role: Role, key: &str) -> bool {
    setting_of(view.host(role), key) == Some("0")
}
