//! A pacing rate that was set on the socket.

use super::super::signals::positive;
use super::super::text::{bps, percent};
use super::super::thresholds::{EXACT_TOLERANCE, PACED, USUAL_STATE, WINDOW_USED};
use super::super::view::View;
use super::{Cause, Ceiling, Rule, Signs, policer};
use crate::remedy::{Remedy, RunOption};

pub(super) const RULE: Rule = Rule {
    cause: Cause::Pacing,
    tolerance: EXACT_TOLERANCE,
    ceiling,
    signs,
    remedy,
};

/// TCP paces payload itself (tcp_update_skb_after_send); the `fq` qdisc counts whole frames.
fn ceiling(view: &View<'_>) -> Option<Ceiling> {
    let most = view.sum(|flow| positive(flow.tcp.max_pacing_rate_bps? as f64))?;
    let fq = view
        .sender_host
        .and_then(|host| host.device.as_ref()?.qdisc.as_deref())
        .is_some_and(|qdisc| qdisc == "fq");
    let share = if fq {
        view.payload_share(FRAME_HEADER_BYTES)?
    } else {
        1.0
    };
    Some(
        Ceiling::new(
            Cause::Pacing,
            most * share,
            "Σ maximal pacing rate × payload share",
        )
        .input("max_pacing_rate_bps", Some(most))
        .input("payload_share", Some(share)),
    )
}

fn signs(view: &View<'_>) -> Option<Signs> {
    let most = view.sum(|flow| positive(flow.tcp.max_pacing_rate_bps? as f64))?;
    let now = view.sum(|flow| flow.tcp.pacing_rate_bps.map(|rate| rate as f64))?;
    let window_use = view.window_use();
    let mut say = Vec::from_iter(policer::of_paced(view));
    say.push(format!("pacing at {} of at most {}", bps(now), bps(most)));
    say.extend(window_use.map(|u| format!("{} of the congestion window was used", percent(u))));
    // Where the rate is the pace, nothing else allows a tenth more, though the congestion window be
    // full.
    let least = 1.0 - EXACT_TOLERANCE;
    let kept = ceiling(view).is_some_and(|c| view.throughput_bps >= least * c.limit_bps);
    let room = window_use.is_none_or(|share| share < WINDOW_USED);
    let window = view.rwnd_share().is_none_or(|share| share < USUAL_STATE);
    Signs::new(now >= PACED * most && window && (room || kept), say)
}

/// The socket's own limit is left out.
fn remedy(view: &View<'_>, _: f64) -> Option<Remedy> {
    if policer::of_paced(view).is_some() {
        return None;
    }
    Some(Remedy::without(RunOption::Pacing).because(UNLESS))
}

/// A run that is paced at a policer's rate shows nothing of it.
const UNLESS: &str = "unless it spares a policer's losses";
/// Ethernet's header: what a qdisc counts beside the IP packet.
const FRAME_HEADER_BYTES: f64 = 14.0;
