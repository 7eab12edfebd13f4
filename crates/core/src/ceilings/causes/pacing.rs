//! A pacing rate that was set on the socket.

use super::super::formulas::ETHERNET_HEADER_BYTES;
use super::super::signals::positive;
use super::super::thresholds::{EXACT_TOLERANCE, PACED, WINDOW_USED};
use super::super::view::{View, bps, percent};
use super::{Cause, Ceiling, Rule, Signs, policer};
use crate::remedy::{Remedy, RunOption};

pub(super) const RULE: Rule =
    Rule { cause: Cause::Pacing, tolerance: EXACT_TOLERANCE, ceiling, signs, remedy };

/// TCP paces payload itself (tcp_update_skb_after_send); the `fq` qdisc counts whole frames.
fn ceiling(view: &View<'_>) -> Option<Ceiling> {
    let most = view.sum(|flow| positive(flow.tcp.max_pacing_rate_bps? as f64))?;
    let device = view.sender_host.and_then(|host| host.device.as_ref());
    let share = match device.and_then(|device| device.qdisc.as_deref()) {
        Some("fq") => view.payload_share(ETHERNET_HEADER_BYTES)?,
        _ => 1.0,
    };
    let formula = "Σ maximal pacing rate × payload share";
    let ceiling = Ceiling::new(most * share, formula)
        .input("max_pacing_rate_bps", Some(most))
        .input("payload_share", Some(share));
    Some(ceiling)
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
    let is_paced = now >= PACED * most && !view.is_held_by_window();
    Signs::new(is_paced && (room || kept), say)
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
