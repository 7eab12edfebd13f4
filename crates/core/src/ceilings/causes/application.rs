//! Applications that write or read no faster.

use super::super::signals::{ThreadTime, positive};
use super::super::thresholds::{
    BACKLOG, LEFT_BY_A_BACKLOG, MIN_UTILISATION, MODEL_TOLERANCE, NOTHING_UNSENT, READER_WAITS,
    SOCKET_DROPS, USUAL_STATE, WRITER_WAITS,
};
use super::super::view::{View, percent};
use super::{Basis, Cause, Ceiling, Rule, Signs};
use crate::plan::StreamTest;
use crate::record::TcpReceiver;
use crate::remedy::{Remedy, RunOption};
use crate::units::BitRate;

/// The writer.
pub(super) const SEND: Rule = Rule {
    cause: Cause::ApplicationSend,
    basis: Basis::Counted,
    tolerance: MODEL_TOLERANCE,
    ceiling: send_ceiling,
    signs: send_signs,
    remedy: send_remedy,
};

/// The reader.
pub(super) const RECEIVE: Rule = Rule {
    cause: Cause::ApplicationReceive,
    basis: Basis::Counted,
    tolerance: MODEL_TOLERANCE,
    ceiling: receive_ceiling,
    signs: receive_signs,
    remedy: receive_remedy,
};

/// The rate of a writer in the time in which it did not wait for the network.
fn send_ceiling(view: &View<'_>) -> Option<Ceiling> {
    if view.asked_bps().is_some() {
        return None;
    }
    unblocked(view, view.writer()?, "send")
}

fn receive_ceiling(view: &View<'_>) -> Option<Ceiling> {
    unblocked(view, view.reader()?, "recv")
}

/// `None` for a thread that is hardly ever awake: its possible rate is not known.
fn unblocked(view: &View<'_>, thread: ThreadTime, call: &str) -> Option<Ceiling> {
    let awake = 1.0 - thread.blocked;
    let formula = format!("rate ÷ (1 − share of the time asleep in {call})");
    (awake >= MIN_UTILISATION).then(|| {
        Ceiling::new(view.throughput_bps / awake, formula)
            .input("throughput_bps", Some(view.throughput_bps))
            .input("blocked_share", Some(thread.blocked))
            .dependent()
    })
}

fn send_signs(view: &View<'_>) -> Option<Signs> {
    if view.asked_bps().is_some() {
        return None;
    }
    let writer = view.writer()?;
    let app_limited = view.mean(|tcp| tcp.app_limited_share);
    // After a burst of writes the last delivery rates, which are sampled, are those of the network.
    // But then the connection has sent all that was written, and has nothing to do for the rest of
    // the time.
    let busy = view.busy();
    let idle = busy.is_some_and(|share| share < USUAL_STATE);
    let starved = idle || nothing_waits(view) || app_limited.is_none_or(|s| s >= USUAL_STATE);
    let mut say = vec![format!(
        "the writer was blocked in send for {} of the time and was idle for {}",
        percent(writer.blocked),
        percent(writer.idle)
    )];
    say.extend(
        app_limited
            .map(percent)
            .map(|share| format!("{share} of the delivery rates were limited by the application")),
    );
    let busy = busy.filter(|_| idle).map(percent);
    say.extend(busy.map(|share| format!("the connection had data for only {share} of the time")));
    // linerate's own writer has nothing else to do: only its set rate can keep it from writing.
    let unlimited = view.sender?.paced_us == Some(0);
    // Time on the CPU counts as idle time: it is work that is not done for the network.
    Signs::new(!writer.cpu_bound() && writer.blocked < WRITER_WAITS && starved && !unlimited, say)
}

/// Whether written data was usually sent at once.
fn nothing_waits(view: &View<'_>) -> bool {
    let unsent = view.mean(|tcp| {
        positive(tcp.send_buffer_bytes as f64).and_then(|b| Some(tcp.notsent_bytes? as f64 / b))
    });
    unsent.is_some_and(|share| share <= NOTHING_UNSENT)
}

/// The reader never waits for data, and data waits for it.
fn receive_signs(view: &View<'_>) -> Option<Signs> {
    let (late, mut say) = reader_is_late(view)?;
    let reader = view.reader()?;
    say.push(format!(
        "the reader ran for {} of the time and was idle for {}",
        percent(reader.running),
        percent(reader.idle)
    ));
    Signs::new(late && !reader.cpu_bound(), say)
}

/// Whether data waits for the reader and the reader never for data, with the figures.
pub(super) fn reader_is_late(view: &View<'_>) -> Option<(bool, Vec<String>)> {
    let reader = view.reader()?;
    let slept = percent(reader.blocked);
    let waits = format!("the reader waited for data (in recv) for {slept} of the time");
    if let Some(drops) = view.datagrams_dropped() {
        let dropped = format!("its socket dropped {} of the datagrams", percent(drops));
        return Some((drops >= SOCKET_DROPS, vec![waits, dropped]));
    }
    let receivers = view.tcp_receivers();
    let filled = |receiver: &&TcpReceiver| {
        Some(receiver.unread_bytes? as f64 / positive(receiver.buffer_bytes? as f64)?)
    };
    let sum: Option<f64> = receivers.iter().map(filled).sum();
    let unread = sum.filter(|_| !receivers.is_empty()).map(|sum| sum / receivers.len() as f64);
    // Small segments fill a buffer with little payload; then the window that is left tells.
    let unread_bytes: Option<u64> = receivers.iter().map(|receiver| receiver.unread_bytes).sum();
    let left = view.sum(|flow| flow.tcp.send_window_bytes.map(|bytes| bytes as f64));
    let fills = unread_bytes
        .zip(left)
        .is_some_and(|(unread, left)| unread as f64 >= LEFT_BY_A_BACKLOG * left);
    let backlog = fills || unread.is_some_and(|share| share >= BACKLOG);
    let closed = view.is_held_by_window();
    let mut say = vec![waits];
    say.extend(unread.map(|u| format!("unread data filled {} of its buffer", percent(u))));
    Some((reader.blocked < READER_WAITS && (backlog || closed), say))
}

/// The remedy leaves out a rate that linerate itself was asked to keep to.
fn send_remedy(view: &View<'_>, _: f64) -> Option<Remedy> {
    without_limit(view, RunOption::WriteRate, |stream| stream.write_rate_bps)
}

fn receive_remedy(view: &View<'_>, _: f64) -> Option<Remedy> {
    without_limit(view, RunOption::ReadRate, |stream| stream.read_rate_bps)
}

/// Any other application is its owner's to change.
fn without_limit(
    view: &View<'_>,
    option: RunOption,
    limit: fn(&StreamTest) -> Option<BitRate>,
) -> Option<Remedy> {
    limit(view.stream()?).map(|_| Remedy::without(option))
}
