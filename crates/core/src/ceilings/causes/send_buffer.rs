//! The sender's socket buffer.

use super::super::formulas::window_bps;
use super::super::remedy::{self, buffer_for, sysctl_maximum, tuning};
use super::super::signals::{is_bbr, positive, rtt_s};
use super::super::thresholds::{
    ALL_SENT, BUFFER_FILLED, BUFFER_LEAKS, DEEP_QUEUE, EXACT_TOLERANCE, MODEL_TOLERANCE,
    NOTHING_UNSENT, PARTLY_UNSENT, QUEUE_INFLATION, SNDBUF_SHARE, USUAL_STATE, WINDOW_USED,
};
use super::super::view::{TcpFlow, View, bytes, percent};
use super::{Basis, Cause, Ceiling, Rule, Signs};
use crate::plan::Role;
use crate::record::TcpSender;
use crate::remedy::Remedy;

pub(super) const RULE: Rule = Rule {
    cause: Cause::SendBuffer,
    basis: Basis::Counted,
    // The queue overshoots the buffer by a part of a piece, and its overhead is a model.
    tolerance: MODEL_TOLERANCE,
    ceiling,
    signs,
    remedy,
};

/// The buffer counts memory, in which each piece of payload has an overhead. A writer that found it
/// full is woken when a third is free, so that it is filled to five sixths in the mean. Its content
/// stays for a round trip, and before that until the sender's pace lets it go.
fn ceiling(view: &View<'_>) -> Option<Ceiling> {
    if view.is_of_packets() {
        return held_ceiling(view);
    }
    let share = measured_share(view).unwrap_or_else(|| payload_share(view));
    let rate = |flow: &TcpFlow<'_>| {
        let memory = buffer(view, flow.tcp)?;
        let stay_s = rtt_s(flow.tcp)? + wait_for_pace_s(flow.tcp);
        Some(window_bps(memory * fill(flow.tcp) * share, stay_s))
    };
    // Reading a queue ten times a second misses pieces that come and go in between.
    let with_a_piece = |flow: &TcpFlow<'_>| {
        let memory = allowed(view, flow.tcp)? + LARGEST_PIECE;
        Some(window_bps(memory, f64::from(flow.tcp.rtt_min_us?) / 1e6))
    };
    let mean = view.sum(rate)?;
    let most = view.sum(with_a_piece).unwrap_or(mean);
    let limit = mean.max(view.throughput_bps.min(most));
    let formula = "Σ send buffer × ⅚ (a writer is woken at ⅔) × payload share of its memory ÷ (RTT + \
        unsent ÷ pace), and up to a piece of 64 KiB more";
    let ceiling = Ceiling::new(limit, formula)
        .input("send_buffer_bytes", view.sum(|f| buffer(view, f.tcp)))
        .input("payload_share", Some(share))
        .input("rtt_mean_us", view.mean(|tcp| Some(tcp.rtt_mean_us.into())));
    Some(if limit > mean { ceiling.dependent() } else { ceiling })
}

/// The rate that the buffers allow once nothing else keeps it low: their pieces are large then.
/// What a writer that is woken at two thirds of a large buffer fills up waits for a pace, or leaves
/// at once and waits before the link: two thirds are in flight (of 4 MiB over 40 to 100 ms 0.60 to
/// 0.73, with BBR, CUBIC and Reno).
pub(in super::super) fn full_buffers_bps(view: &View<'_>) -> Option<f64> {
    in_flight_bps(view, |tcp| {
        let is_large = is_bbr(tcp) || !tcp.send_buffer_locked;
        let most = if is_large { WOKEN_AT } else { MEAN_FILL };
        fill(tcp) / MEAN_FILL * most
    })
}

/// Ceiling with the whole buffers in flight, bits/s.
pub(in super::super) fn whole_buffers_bps(view: &View<'_>) -> Option<f64> {
    in_flight_bps(view, |_| 1.0)
}

fn in_flight_bps(view: &View<'_>, filled: impl Fn(&TcpSender) -> f64) -> Option<f64> {
    let share = measured_share(view).unwrap_or(0.0).max(payload_share(view));
    view.sum(|flow| {
        let memory = buffer(view, flow.tcp)? * filled(flow.tcp) * share;
        Some(window_bps(memory, rtt_s(flow.tcp)?))
    })
}

/// The ceiling from packets: the bytes in flight to which the sender grew in slow start and kept,
/// though nothing was lost or queued and the receiver's window had room.
fn held_ceiling(view: &View<'_>) -> Option<Ceiling> {
    let held = |tcp: &TcpSender| positive(tcp.send_buffer_bytes as f64);
    let limit = view.sum(|flow| Some(window_bps(held(flow.tcp)?, rtt_s(flow.tcp)?)))?;
    let formula = "bytes in flight that it kept to ÷ RTT";
    let ceiling = Ceiling::new(limit, formula)
        .input("in_flight_bytes", view.sum(|flow| held(flow.tcp)))
        .input("rtt_mean_us", view.mean(|tcp| Some(tcp.rtt_mean_us.into())));
    Some(ceiling.dependent())
}

/// Time that written data waits for the sender's pace, if it has one, seconds.
fn wait_for_pace_s(tcp: &TcpSender) -> f64 {
    let pace = tcp.pacing_rate_bps.filter(|_| is_bbr(tcp));
    let unsent = tcp.notsent_bytes.unwrap_or(0) as f64 * 8.0;
    pace.and_then(|bps| positive(unsent / bps as f64)).unwrap_or(0.0)
}

/// Memory that the buffer takes, bytes, with what its queue overshot. A queue far beyond the buffer
/// shows that the buffer does not limit.
fn buffer(view: &View<'_>, tcp: &TcpSender) -> Option<f64> {
    let most = allowed(view, tcp)?;
    let queue = tcp.send_queue_memory_bytes.map_or(0.0, |m| m as f64);
    let overshoots = queue <= (BUFFER_LEAKS * most).max(most + OVERSHOOT);
    (overshoots || is_starved(tcp)).then(|| most.max(queue))
}

/// The buffer that was set, or the maximum of the kernel's tuning, bytes.
fn allowed(view: &View<'_>, tcp: &TcpSender) -> Option<f64> {
    let set = positive(tcp.send_buffer_bytes as f64)?;
    if tcp.send_buffer_locked {
        return Some(set);
    }
    Some(sysctl_maximum(view.sender_host, "net.ipv4.tcp_wmem")?.max(set))
}

/// Whether the sender usually had nothing to send, though its writer wanted to write. The kernel
/// looks at the buffer only before it begins a new piece (`tcp_sendmsg_locked`), and while the
/// congestion window has room the last one is sent as it is filled: 0.82 MB of writes of 128 KiB in
/// a buffer of 0.22 MB. Once the window is full the writer sleeps until all but two thirds of the
/// buffer have been acknowledged, and meanwhile the path runs dry.
fn is_starved(tcp: &TcpSender) -> bool {
    let unsent = tcp.notsent_bytes.unwrap_or(0) as f64;
    let is_drained = unsent <= ALL_SENT * tcp.send_buffer_bytes as f64;
    let starved = tcp.app_limited_share;
    is_drained && starved.is_some_and(|share| share >= USUAL_STATE)
}

/// Share of the memory that is in use in the mean. A queue that overshot the buffer was measured,
/// so all of it is.
fn fill(tcp: &TcpSender) -> f64 {
    let queue = tcp.send_queue_memory_bytes.unwrap_or(0);
    if queue > tcp.send_buffer_bytes { 1.0 } else { MEAN_FILL }
}

/// Payload over memory of a buffer that is nearly full: the pieces of a slow sender are small.
fn measured_share(view: &View<'_>) -> Option<f64> {
    let memory = view.sum(|flow| flow.tcp.send_queue_memory_bytes.map(|m| m as f64))?;
    let buffer = view.sum(|flow| Some(flow.tcp.send_buffer_bytes as f64))?;
    let payload =
        view.sum(|flow| Some(flow.tcp.unacked_bytes as f64 + flow.tcp.notsent_bytes? as f64))?;
    let share = positive(payload / memory)?;
    (memory >= BUFFER_FILLED * buffer).then_some(share.min(1.0))
}

/// Payload over memory of the pieces that a write fills, of at most 64 KiB each.
fn payload_share(view: &View<'_>) -> f64 {
    let message = view.stream().map_or(LARGEST_PIECE, |stream| stream.message_bytes as f64);
    let piece = message.clamp(1.0, LARGEST_PIECE);
    piece / (piece + PIECE_OVERHEAD)
}

/// `sndbuf_limited` stays 0 with CUBIC, whatever the limit is. Evidence is instead that the writer
/// sleeps and nothing waits unsent, with room in both windows. Data in the queue of a sender that
/// does not reach its own pace waits for that pace, and not for the path.
fn signs(view: &View<'_>) -> Option<Signs> {
    if view.is_of_packets() {
        let held = view.sum(|flow| positive(flow.tcp.send_buffer_bytes as f64))?;
        let say = "the sender grew to this in flight and kept to it, without losses, a queue or a full \
                   window: its buffer holds no more";
        return Signs::new(true, [format!("{}: {say}", bytes(held))]);
    }
    let blocked = view.writer_blocked();
    let unsent = view.mean(|tcp| {
        let queue = tcp.send_queue_memory_bytes.unwrap_or(0);
        let holds = positive(tcp.send_buffer_bytes.max(queue) as f64);
        holds.map(|bytes| tcp.notsent_bytes.unwrap_or(0) as f64 / bytes)
    })?;
    let locked = view.tcp.iter().all(|flow| flow.tcp.send_buffer_locked);
    let counted = view.sndbuf_share().is_some_and(|s| s >= SNDBUF_SHARE);
    let blocked_long = blocked.is_some_and(|share| share >= USUAL_STATE);
    let paced = view.ignores_loss() && !view.keeps_its_pace();
    let few = if counted || paced { PARTLY_UNSENT } else { NOTHING_UNSENT };
    let drained = unsent <= few && view.tcp.iter().all(|flow| room(flow.tcp));
    let filled = view.tcp.iter().all(|flow| is_filled(flow.tcp));
    let bursts = locked && unsent <= ALL_SENT && filled && !is_path_full(view);
    let by = if locked { "fixed by the application" } else { "tuned by the kernel" };
    let buffer = bytes(view.sum(|flow| Some(flow.tcp.send_buffer_bytes as f64))?);
    let waited = percent(unsent);
    let mut say = vec![format!("of a send buffer of {buffer} ({by}), {waited} waited unsent")];
    say.extend(
        blocked.map(|b| format!("the writer was blocked in send for {} of the time", percent(b))),
    );
    let fits = !view.has_queue(DEEP_QUEUE);
    let holds = (drained || bursts) && (blocked_long || counted) && fits;
    Signs::new(holds, say)
}

/// Whether a queue stands, and the path gives all that it ever gave. The bursts of a writer that
/// fills its buffer at once wait behind themselves, too, but then the path is idle until the next
/// burst. The largest delivery rate leaves out readings that the application limited; if nearly all
/// are, the steps of the run tell.
fn is_path_full(view: &View<'_>) -> bool {
    let least = 1.0 - EXACT_TOLERANCE;
    let starved = view.tcp.iter().all(|flow| is_starved(flow.tcp));
    let steps = view.steps.filter(|_| starved);
    view.has_queue(QUEUE_INFLATION)
        && view.plateau().is_none_or(|share| share >= least)
        && steps.is_none_or(|steps| view.throughput_bps >= least * steps.p90_bps)
}

fn is_filled(tcp: &TcpSender) -> bool {
    let memory = tcp.send_queue_memory_bytes;
    memory.is_none_or(|m| m as f64 >= BUFFER_FILLED * tcp.send_buffer_bytes as f64)
}

/// Whether both windows have room, and the buffer is nearly full.
fn room(tcp: &TcpSender) -> bool {
    let in_flight = tcp.unacked_bytes as f64;
    let window = tcp.send_window_bytes.map_or(f64::INFINITY, |w| w as f64);
    in_flight <= WINDOW_USED * window.min(tcp.cwnd_bytes as f64) && is_filled(tcp)
}

fn remedy(view: &View<'_>, target_bps: f64) -> Option<Remedy> {
    if view.is_of_packets() {
        // No packet tells whether the program or the kernel set it.
        return None;
    }
    if view.tcp.iter().any(|flow| flow.tcp.send_buffer_locked) {
        let share = asked_share(view);
        if let Some(both) = remedy::both_buffers(view, target_bps, share) {
            return Some(both);
        }
        let bytes = buffer_for(view, target_bps, Some(share));
        return Some(remedy::buffer(view, Role::Sender, bytes));
    }
    let bytes = buffer_for(view, target_bps, Some(filled_share(view)));
    tuning(view, Role::Sender, bytes)
}

/// Payload in flight over a buffer that is asked for: the kernel doubles it.
pub(super) fn asked_share(view: &View<'_>) -> f64 {
    2.0 * filled_share(view)
}

/// Payload in flight over the memory of the buffer.
fn filled_share(view: &View<'_>) -> f64 {
    MEAN_FILL * measured_share(view).unwrap_or_else(|| payload_share(view))
}

/// `sk_stream_is_writeable`, include/net/sock.h: writable while what is free is half of what is
/// queued.
const MEAN_FILL: f64 = 5.0 / 6.0;
const WOKEN_AT: f64 = 2.0 / 3.0;
/// Memory by which a queue overshoots a small buffer, bytes: 279 KB in one of 68 KB, with writes of
/// 256 KiB.
const OVERSHOOT: f64 = 262_144.0;
/// Payload of one socket buffer of the kernel at most, bytes.
const LARGEST_PIECE: f64 = 65_536.0;
/// Memory of one beside its payload, bytes: 57 KB of 8 KiB writes fit into a buffer of 64 KiB.
const PIECE_OVERHEAD: f64 = 1280.0;
