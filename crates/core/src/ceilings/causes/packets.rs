//! Applications as packets show them, if their threads were not seen.

use super::super::signals::positive;
use super::super::thresholds::{BACKLOG, MODEL_TOLERANCE, USUAL_STATE};
use super::super::view::{View, percent};
use super::{Basis, Cause, Ceiling, Rule, Signs};

/// A writer that had nothing to send for most of the time.
pub(super) const WRITER: Rule = Rule {
    cause: Cause::ApplicationSend,
    basis: Basis::Fitted,
    tolerance: MODEL_TOLERANCE,
    ceiling: |view| written(view, writer_signs(view)),
    signs: writer_signs,
    remedy: |_, _| None,
};

/// A reader that lets its window close.
pub(super) const READER: Rule = Rule {
    cause: Cause::ApplicationReceive,
    basis: Basis::Fitted,
    tolerance: MODEL_TOLERANCE,
    ceiling: |view| written(view, reader_signs(view)),
    signs: reader_signs,
    remedy: |_, _| None,
};

/// Only if the evidence holds: the rate that the application reached is all that is known of it.
fn written(view: &View<'_>, signs: Option<Signs>) -> Option<Ceiling> {
    let formula = "rate that the application kept to";
    let ceiling = Ceiling::new(view.throughput_bps, formula)
        .input("throughput_bps", Some(view.throughput_bps))
        .dependent();
    signs.filter(|signs| signs.hold).map(|_| ceiling)
}

fn writer_signs(view: &View<'_>) -> Option<Signs> {
    let idle = view.mean(|tcp| tcp.app_limited_share).filter(|_| view.is_of_packets())?;
    let busy = view.busy().unwrap_or(1.0 - idle);
    let say = if busy < USUAL_STATE {
        idle_sentence(1.0 - busy)
    } else {
        "what was written left at once, at an even rate, with room in the window and no queue"
            .to_owned()
    };
    let holds = busy < USUAL_STATE || idle >= ALWAYS;
    Signs::new(holds && asked_share(view) < USUAL_STATE, [say])
}

fn idle_sentence(share: f64) -> String {
    format!("nothing was outstanding, and the window open, for {} of the time", percent(share))
}

/// The part of the idle time that the receiver's next data ended.
fn asked_share(view: &View<'_>) -> f64 {
    let idle = view.sum(|flow| positive(flow.tcp.idle_us? as f64));
    let asked = view.sum(|flow| flow.tcp.idle_until_asked_us.map(|us| us as f64));
    asked.zip(idle).map_or(0.0, |(asked, idle)| asked / idle)
}

/// A reader that closes its window or lets it fill up, or one that asked for nothing.
fn reader_signs(view: &View<'_>) -> Option<Signs> {
    if !view.is_of_packets() {
        return None;
    }
    if let Some((share, times)) = view.zero_window() {
        let say = format!(
            "the receiver offered no window for {} of the time (zero windows: {times:.0}): its \
             program does not read",
            percent(share)
        );
        if share >= USUAL_STATE {
            return Signs::new(true, [say]);
        }
    }
    let idle = 1.0 - view.busy().unwrap_or(1.0);
    let asked = asked_share(view);
    if idle > USUAL_STATE && asked >= USUAL_STATE {
        let waited = format!(
            "{} of that ended with data of the receiver, which asked for nothing before",
            percent(asked)
        );
        return Signs::new(true, [idle_sentence(idle), waited]);
    }
    let closed = view.rwnd_share()?;
    let share = view.sum(|flow| {
        let receiver = flow.receiver?;
        Some(receiver.unread_bytes? as f64 / positive(receiver.window_bytes? as f64)?)
    });
    let unread = share? / view.tcp.len() as f64;
    let holds = closed >= USUAL_STATE && unread >= BACKLOG;
    let (closed, unread) = (percent(closed), percent(unread));
    Signs::new(
        holds,
        [
            format!("the receiver's window held the sender for {closed} of its busy time"),
            format!("data that waited unread took {unread} of the largest window"),
        ],
    )
}

/// Share of the readings in which the writer had nothing more, from which on it always had nothing
/// more.
const ALWAYS: f64 = 0.99;
