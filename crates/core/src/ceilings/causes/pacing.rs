//! A pacing rate that was set on the socket, or a maximum for each flow at the sender's own `fq`.

use super::super::formulas::ETHERNET_HEADER_BYTES;
use super::super::remedy::rate;
use super::super::signals::positive;
use super::super::thresholds::{EXACT_TOLERANCE, PACED, WINDOW_USED};
use super::super::view::{View, bps, percent};
use super::{Basis, Cause, Ceiling, Rule, Signs, policer};
use crate::plan::Role;
use crate::record::DeviceFacts;
use crate::remedy::{Change, Name, Remedy, RunOption};

pub(super) const RULE: Rule = Rule {
    cause: Cause::Pacing,
    basis: Basis::Computed,
    tolerance: EXACT_TOLERANCE,
    ceiling,
    signs,
    remedy,
};

/// The maximum of `fq`, which no socket knows of.
pub(super) const EACH_FLOW: Rule = Rule {
    cause: Cause::Pacing,
    basis: Basis::Computed,
    tolerance: EXACT_TOLERANCE,
    ceiling: ceiling_of_each_flow,
    signs: signs_of_each_flow,
    remedy: remedy_of_each_flow,
};

/// TCP paces payload by its own clock (tcp_update_skb_after_send), also where `fq` keeps to it:
/// 5.95 of 6 Mbit/s under `fq` of Linux 6.12.
fn ceiling(view: &View<'_>) -> Option<Ceiling> {
    let most = view.sum(|flow| positive(flow.tcp.max_pacing_rate_bps? as f64))?;
    let ceiling = Ceiling::new(most, "Σ maximal pacing rate");
    Some(ceiling.input("max_pacing_rate_bps", Some(most)))
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

fn own_device<'a>(view: &View<'a>) -> Option<&'a DeviceFacts> {
    view.sender_host?.device.as_ref()
}

/// `fq` counts frames by its clock: 7.64 of 8 Mbit/s are payload.
fn ceiling_of_each_flow(view: &View<'_>) -> Option<Ceiling> {
    let each = positive(own_device(view)?.flow_max_rate_bps? as f64)?;
    let share = view.payload_share(ETHERNET_HEADER_BYTES)?;
    let flows = view.flow_count() as f64;
    let formula = "flows × maxrate of fq × payload ÷ (payload + headers)";
    let ceiling = Ceiling::new(flows * each * share, formula)
        .input("flow_max_rate_bps", Some(each))
        .input("payload_share", Some(share));
    Some(ceiling)
}

fn signs_of_each_flow(view: &View<'_>) -> Option<Signs> {
    let device = own_device(view)?;
    let each = device.flow_max_rate_bps? as f64;
    let say = format!(
        "fq of the sender's {} lets each flow leave with {} at most",
        device.name,
        bps(each)
    );
    let reached =
        view.throughput_bps >= (1.0 - EXACT_TOLERANCE) * ceiling_of_each_flow(view)?.limit_bps;
    Signs::new(reached && !view.is_held_by_window(), [say])
}

/// Below `mq` each queue has its own `fq`, and no single command changes them.
fn remedy_of_each_flow(view: &View<'_>, target_bps: f64) -> Option<Remedy> {
    let device = own_device(view).filter(|device| device.qdisc.as_deref() == Some("fq"))?;
    let share = view.payload_share(ETHERNET_HEADER_BYTES)?;
    let value = rate(target_bps / share / view.flow_count() as f64);
    let change = Change::FlowRate { object: Name::new(&device.name)?, value };
    Some(Remedy::new(change, Some(Role::Sender.end(view.direction))))
}

/// A run that is paced at a policer's rate shows nothing of it.
const UNLESS: &str = "unless it avoids losses at a policer";
