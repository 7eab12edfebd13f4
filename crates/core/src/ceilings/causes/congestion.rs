//! Loss, and the response of the congestion control to it.

use super::super::formulas::{cubic_bps, pftk_bps, reno_bps};
use super::super::remedy::congestion_control;
use super::super::signals::{is_bbr, loss_events, lost, positive, rtt_s, segments_sent};
use super::super::thresholds::{
    EVENTS_STEADY, MODEL_TOLERANCE, QUEUE_INFLATION, SMALL_WINDOW, SMALL_WINDOW_CUBIC,
    TIMEOUTS_DECIDE, USUAL_STATE, WINDOW_USED,
};
use super::super::view::{TcpFlow, View, percent};
use super::{Basis, Cause, Ceiling, Rule, Signs};
use crate::record::TcpSender;
use crate::remedy::Remedy;

pub(super) const RULE: Rule = Rule {
    cause: Cause::Congestion,
    basis: Basis::Modelled,
    tolerance: MODEL_TOLERANCE,
    ceiling,
    signs,
    remedy,
};

/// The model of the rate of a flow that lost segments.
#[derive(Clone, Copy, PartialEq)]
enum Model {
    Bbr,
    /// The window that the algorithm kept: there is no steady state, or there are too few events or
    /// segments for one.
    Window,
    Timeouts,
    Cubic,
    Reno,
}

fn ceiling(view: &View<'_>) -> Option<Ceiling> {
    if let Some(waited) = waits_for_timeouts(view) {
        let formula = "rate with the time in which it waited for timeouts";
        let ceiling = Ceiling::new(view.throughput_bps, formula)
            .input("throughput_bps", Some(view.throughput_bps))
            .input("timeout_wait_share", Some(waited));
        return Some(ceiling.dependent());
    }
    let limit = view.sum(|flow| limit(view, flow))?;
    let model = model(view, view.tcp.first()?);
    let events = view.loss_event_count();
    let ceiling = Ceiling::new(limit, formula(model))
        .input("loss_events", events)
        .input("segments", view.sum(segments_sent))
        .input("mss_bytes", view.mean(|tcp| Some(tcp.mss_bytes.into())))
        .input("rtt_mean_us", view.mean(|tcp| Some(tcp.rtt_mean_us.into())));
    match model {
        Model::Bbr | Model::Window => Some(ceiling.dependent()),
        _ => Some(ceiling),
    }
}

/// Share of the time in which the sender waited for timeouts, if that is most of it.
fn waits_for_timeouts(view: &View<'_>) -> Option<f64> {
    view.timeout_wait().filter(|share| *share >= USUAL_STATE)
}

fn formula(model: Model) -> &'static str {
    match model {
        Model::Bbr => "0.99 × Σ largest bandwidth that BBR saw",
        Model::Window => "Σ mean congestion window ÷ RTT",
        Model::Timeouts => "PFTK (RTT, RTO, p), p = loss events ÷ segments sent first",
        Model::Cubic => {
            "max(1.054·(RTT/p)^¾, √1.5/√p) × MSS ÷ RTT, p = loss events ÷ segments sent first"
        }
        Model::Reno => "√1.5 × MSS ÷ (RTT × √p), p = loss events ÷ segments sent first",
    }
}

fn model(view: &View<'_>, flow: &TcpFlow<'_>) -> Model {
    let events = events(view, flow);
    let timeouts = flow.tcp.timeouts.unwrap_or(0) as f64;
    if is_bbr(flow.tcp) {
        Model::Bbr
    } else if view.comes_down() || events < EVENTS_STEADY || is_small(view, flow) {
        Model::Window
    } else if timeouts > TIMEOUTS_DECIDE * events {
        Model::Timeouts
    } else if flow.tcp.congestion.as_deref() == Some("cubic") {
        Model::Cubic
    } else {
        Model::Reno
    }
}

/// Whether the window has few segments: it depends on delayed acknowledgements and timeouts, which
/// no model includes.
fn is_small(view: &View<'_>, flow: &TcpFlow<'_>) -> bool {
    let segments = flow.tcp.cwnd_bytes as f64 / f64::from(flow.tcp.mss_bytes.max(1));
    let timeouts = flow.tcp.timeouts.unwrap_or(0) as f64;
    let small = match flow.tcp.congestion.as_deref() {
        Some("cubic") => SMALL_WINDOW_CUBIC,
        _ => SMALL_WINDOW,
    };
    segments < small && timeouts <= TIMEOUTS_DECIDE * events(view, flow)
}

/// Loss events of one flow: its share of the kernel's count, which is that of all flows.
fn events(view: &View<'_>, flow: &TcpFlow<'_>) -> f64 {
    let own = flow.tcp.retransmitted_segments as f64;
    let all = view.sum(|flow| Some(flow.tcp.retransmitted_segments as f64));
    let share = all.and_then(|all| positive(own / all));
    match (view.recoveries(), share) {
        (Some(counted), Some(share)) => counted * share,
        _ => loss_events(flow.tcp, view.seconds),
    }
}

/// Loss events over segments; `None` without losses.
fn event_share(view: &View<'_>, flow: &TcpFlow<'_>) -> Option<f64> {
    Some(positive(events(view, flow) / segments_sent(flow)?)?.min(1.0))
}

/// The rate that CUBIC would reach with the losses that were seen, bits/s.
pub(in super::super) fn with_cubic(view: &View<'_>) -> Option<f64> {
    view.sum(|flow| {
        let (rtt, p) = (rtt_s(flow.tcp)?, event_share(view, flow)?);
        let mss = positive(flow.tcp.mss_bytes.into())?;
        Some(cubic_bps(mss, rtt, p).max(reno_bps(mss, rtt, p)))
    })
}

/// The limit of a flow; `None` without losses: then no model has a limit. Packets show how long a
/// sender waited for timeouts, and sent nothing.
fn limit(view: &View<'_>, flow: &TcpFlow<'_>) -> Option<f64> {
    let limit = steady_limit(view, flow)?;
    if !view.is_of_packets() || model(view, flow) == Model::Timeouts {
        return Some(limit);
    }
    let waited_s = flow.tcp.timeout_wait_us.unwrap_or(0) as f64 / 1e6;
    positive(limit * (1.0 - waited_s / view.seconds).max(0.0))
}

/// RFC 6298 with Linux's minimum of 200 ms (`TCP_RTO_MIN`).
fn rto_s(tcp: &TcpSender) -> Option<f64> {
    Some(rtt_s(tcp)? + (4.0 * f64::from(tcp.rtt_var_us) / 1e6).max(0.2))
}

fn steady_limit(view: &View<'_>, flow: &TcpFlow<'_>) -> Option<f64> {
    let tcp = flow.tcp;
    let rtt = rtt_s(tcp)?;
    let p = event_share(view, flow)?;
    let mss = positive(tcp.mss_bytes.into())?;
    match model(view, flow) {
        // Elsewhere than at the network's limit BBR's bandwidth is just the rate of another cause.
        Model::Bbr => view
            .network_share()
            .filter(|share| *share >= USUAL_STATE)
            .and(tcp.delivery_rate_max_bps)
            .map(|bps| 0.99 * bps as f64),
        // The median of a sawtooth of few segments is a third off, and it leaves out how a run
        // began; records of older versions have no mean.
        Model::Window => {
            let window = tcp.cwnd_mean_bytes.unwrap_or(tcp.cwnd_bytes);
            positive(window as f64 * 8.0 / rtt)
        }
        Model::Timeouts => Some(pftk_bps(mss, rtt, p, rto_s(tcp)?)),
        Model::Cubic => Some(cubic_bps(mss, rtt, p).max(reno_bps(mss, rtt, p))),
        Model::Reno => Some(reno_bps(mss, rtt, p)),
    }
}

/// Losses at a queue that the flow itself fills are those of a link; other traffic may fill a short
/// queue.
fn signs(view: &View<'_>) -> Option<Signs> {
    let loss = view.loss()?;
    let spurious = view.sum(|flow| flow.tcp.dsack_duplicates.map(|n| n as f64));
    let window_use = view.window_use();
    let mut say = vec![format!(
        "{} segments lost, {} of those sent",
        view.sum(|flow| Some(lost(flow.tcp)))?,
        percent(loss)
    )];
    let spurious = spurious.filter(|n| *n > 0.0);
    say.extend(spurious.map(|n| format!("{n} spurious retransmissions (DSACK) are no losses")));
    say.extend(window_use.map(|u| format!("{} of the congestion window was used", percent(u))));
    if let Some(waited) = waits_for_timeouts(view) {
        let timeouts = view.sum(|flow| flow.tcp.timeouts.map(|n| n as f64)).unwrap_or(0.0);
        let waited = percent(waited);
        say.push(format!("it waited for {timeouts} timeouts for {waited} of the time"));
        return Signs::new(loss > 0.0, say);
    }
    let is_used = window_use.map_or(!view.is_of_packets(), |share| share >= WINDOW_USED);
    let queue = view.has_queue(QUEUE_INFLATION);
    let holds = loss > 0.0 && !queue && view.is_held_by_network() && is_used;
    let signs = Signs::new(holds, say)?;
    if view.is_of_packets() {
        return Some(signs.within(PACKETS_TOLERANCE));
    }
    Some(signs)
}

fn remedy(view: &View<'_>, _: f64) -> Option<Remedy> {
    congestion_control(view)
}

/// What packets show in flight is the most of each round, with what was lost in it: the windows
/// over the round trip are more than the rate by up to a third.
const PACKETS_TOLERANCE: f64 = 0.4;
