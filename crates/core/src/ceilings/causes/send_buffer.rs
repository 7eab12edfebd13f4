//! The sender's socket buffer.

use super::super::formulas::window_bps;
use super::super::remedy::{self, buffer_for, sysctl_maximum, tuning};
use super::super::signals::{positive, rtt_s};
use super::super::text::{bytes, percent};
use super::super::thresholds::{
    ALL_SENT, BUFFER_FILLED, BUFFER_LEAKS, DEEP_QUEUE, EXACT_TOLERANCE, MODEL_TOLERANCE,
    NOTHING_UNSENT, PARTLY_UNSENT, QUEUE_INFLATION, SNDBUF_SHARE, USUAL_STATE, WINDOW_USED,
};
use super::super::view::{TcpFlow, View};
use super::{Cause, Ceiling, Rule, Signs};
use crate::plan::{Role, Traffic};
use crate::record::TcpSender;
use crate::remedy::{Remedy, RunOption};

pub(super) const RULE: Rule = Rule {
    cause: Cause::SendBuffer,
    // The queue overshoots the buffer by a part of a piece, and its overhead is a model.
    tolerance: MODEL_TOLERANCE,
    ceiling,
    signs,
    remedy,
};

/// The buffer counts memory: each piece of payload in it has its overhead. A writer that found it
/// full is woken when a third is free, so that it is filled to five sixths in the mean.
fn ceiling(view: &View<'_>) -> Option<Ceiling> {
    let share = measured_share(view).unwrap_or_else(|| payload_share(view));
    let rate = |flow: &TcpFlow<'_>| {
        let memory = buffer(view, flow.tcp)?;
        Some(window_bps(
            memory * fill(flow.tcp) * share,
            rtt_s(flow.tcp)?,
        ))
    };
    Some(
        Ceiling::new(
            Cause::SendBuffer,
            view.sum(rate)?,
            "Σ send buffer × ⅚ (a writer is woken at ⅔) × payload share of its memory ÷ RTT",
        )
        .input("send_buffer_bytes", view.sum(|f| buffer(view, f.tcp)))
        .input("payload_share", Some(share))
        .input("rtt_mean_us", view.mean(|tcp| Some(tcp.rtt_mean_us.into()))),
    )
}

/// Memory that the buffer may take, bytes: the one set, or the most that the kernel's tuning may
/// grow it to. A queue overshoots by one piece; one far beyond the buffer shows that the buffer
/// does not hold.
fn buffer(view: &View<'_>, tcp: &TcpSender) -> Option<f64> {
    let set = positive(tcp.send_buffer_bytes as f64)?;
    if !tcp.send_buffer_locked {
        return Some(sysctl_maximum(view.sender_host, "net.ipv4.tcp_wmem")?.max(set));
    }
    let queue = tcp.send_queue_memory_bytes.map_or(0.0, |m| m as f64);
    (queue <= (BUFFER_LEAKS * set).max(set + OVERSHOOT)).then(|| set.max(queue))
}

/// What of the memory is in use in the mean. A queue that overshot the buffer was measured, not
/// set.
fn fill(tcp: &TcpSender) -> f64 {
    let queue = tcp.send_queue_memory_bytes.unwrap_or(0);
    if queue > tcp.send_buffer_bytes {
        1.0
    } else {
        MEAN_FILL
    }
}

/// What a buffer that is full, or nearly so, holds for its memory: the pieces of a slow sender are
/// small.
fn measured_share(view: &View<'_>) -> Option<f64> {
    let memory = view.sum(|flow| flow.tcp.send_queue_memory_bytes.map(|m| m as f64))?;
    let buffer = view.sum(|flow| Some(flow.tcp.send_buffer_bytes as f64))?;
    let payload =
        view.sum(|flow| Some(flow.tcp.unacked_bytes as f64 + flow.tcp.notsent_bytes? as f64))?;
    let share = positive(payload / memory)?;
    (memory >= BUFFER_FILLED * buffer).then_some(share.min(1.0))
}

/// A write fills pieces of at most 64 KiB.
fn payload_share(view: &View<'_>) -> f64 {
    let message = match &view.record.plan.traffic {
        Traffic::Stream(stream) => stream.message_bytes as f64,
        Traffic::Rr(_) | Traffic::Crr(_) => LARGEST_PIECE,
    };
    let piece = message.clamp(1.0, LARGEST_PIECE);
    piece / (piece + PIECE_OVERHEAD)
}

/// `sndbuf_limited` stays 0 with CUBIC whatever holds: the writer's sleep and an empty rest of the
/// queue, with room in both windows, tell as much.
fn signs(view: &View<'_>) -> Option<Signs> {
    let blocked = view.writer().map(|writer| writer.blocked);
    let unsent = view.mean(|tcp| {
        positive(tcp.send_buffer_bytes as f64).map(|b| tcp.notsent_bytes.unwrap_or(0) as f64 / b)
    })?;
    let locked = view.tcp.iter().all(|flow| flow.tcp.send_buffer_locked);
    let counted = view.sndbuf_share().is_some_and(|s| s >= SNDBUF_SHARE);
    let blocked_long = blocked.is_some_and(|share| share >= USUAL_STATE);
    let few = unsent
        <= if counted {
            PARTLY_UNSENT
        } else {
            NOTHING_UNSENT
        };
    let drained = few && view.tcp.iter().all(|flow| room(flow.tcp));
    let filled = view.tcp.iter().all(|flow| is_filled(flow.tcp));
    let bursts = locked && unsent <= ALL_SENT && filled && !is_path_full(view);
    let mut say = vec![format!(
        "of a send buffer of {} ({}), {} waited unsent",
        bytes(view.sum(|flow| Some(flow.tcp.send_buffer_bytes as f64))?),
        if locked {
            "fixed by the application"
        } else {
            "tuned by the kernel"
        },
        percent(unsent)
    )];
    say.extend(blocked.map(|b| format!("the writer slept in send for {} of the time", percent(b))));
    let fits = !view
        .inflation()
        .is_some_and(|inflation| inflation.is_queue(DEEP_QUEUE));
    Signs::new(
        (drained || bursts) && (blocked_long || counted) && fits,
        say,
    )
}

/// A queue stands, and the path gives all that it ever gave. A writer that fills its buffer at once
/// makes it wait behind itself, too, but then the path is idle until the next burst.
fn is_path_full(view: &View<'_>) -> bool {
    let queue = view.inflation();
    queue.is_some_and(|inflation| inflation.is_queue(QUEUE_INFLATION))
        && view
            .plateau()
            .is_none_or(|share| share >= 1.0 - EXACT_TOLERANCE)
}

fn is_filled(tcp: &TcpSender) -> bool {
    let memory = tcp.send_queue_memory_bytes;
    memory.is_none_or(|m| m as f64 >= BUFFER_FILLED * tcp.send_buffer_bytes as f64)
}

/// Both windows have room, and the buffer is as good as full.
fn room(tcp: &TcpSender) -> bool {
    let in_flight = tcp.unacked_bytes as f64;
    let window = tcp.send_window_bytes.map_or(f64::INFINITY, |w| w as f64);
    in_flight <= WINDOW_USED * window.min(tcp.cwnd_bytes as f64) && is_filled(tcp)
}

fn remedy(view: &View<'_>, target_bps: f64) -> Option<Remedy> {
    let payload = MEAN_FILL * measured_share(view).unwrap_or_else(|| payload_share(view));
    if view.tcp.iter().any(|flow| flow.tcp.send_buffer_locked) {
        // The kernel doubles what is asked for.
        let bytes = buffer_for(view, target_bps, Some(2.0 * payload));
        let (option, limit) = (RunOption::SendBuffer, "net.core.wmem_max");
        return Some(remedy::buffer(view, option, bytes, Role::Sender, limit));
    }
    let bytes = buffer_for(view, target_bps, Some(payload));
    tuning(view, Role::Sender, "net.ipv4.tcp_wmem", bytes)
}

/// `sk_stream_is_writeable`, include/net/sock.h: writable while what is free is half of what is
/// queued.
const MEAN_FILL: f64 = 5.0 / 6.0;
/// Memory by which a queue overshoots a small buffer, bytes: 279 KB in one of 68 KB, with writes of
/// 256 KiB.
const OVERSHOOT: f64 = 262_144.0;
/// Payload of one socket buffer of the kernel at most, bytes.
const LARGEST_PIECE: f64 = 65_536.0;
/// Memory of one beside its payload, bytes: 57 KB of 8 KiB writes fit into a buffer of 64 KiB.
const PIECE_OVERHEAD: f64 = 1280.0;
