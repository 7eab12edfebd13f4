//! A token bucket that drops what comes too fast and queues nothing.

use super::super::remedy::rate;
use super::super::signals::{DatagramLosses, positive};
use super::super::thresholds::{
    BBR_INFLATION, BBR_QUEUE_INFLATION, MODEL_TOLERANCE, ONE_WINDOW, POLICER_EVENTS,
    POLICER_EVENTS_BBR, POLICER_LONG_TRAIN, POLICER_LOSS, POLICER_LOSS_BBR, POLICER_LOSS_BBR_FOUND,
    POLICER_SHORT_TRAIN, POLICER_TRAIN, SAME_WINDOW, STEADY,
};
use super::super::view::{View, bps, percent};
use super::{Basis, Cause, Ceiling, Rule, Signs};
use crate::remedy::{Remedy, RunOption};
use crate::units::digits;

pub(super) const RULE: Rule = Rule {
    cause: Cause::Policer,
    basis: Basis::Fitted,
    tolerance: MODEL_TOLERANCE,
    ceiling,
    signs,
    remedy,
};

/// The long-run rate is the measured one; only if the losses are those of a policer.
fn ceiling(view: &View<'_>) -> Option<Ceiling> {
    let formula = "long-run rate with loss and without a queue";
    let ceiling = || {
        Ceiling::new(view.throughput_bps, formula)
            .input("loss_share", view.loss().or_else(|| view.datagrams_lost()))
            .input("variation", view.variation())
            .dependent()
    };
    signs(view)?.hold.then(ceiling)
}

/// Loss in trains, at the same window each time, and without a queue.
pub(super) fn signs(view: &View<'_>) -> Option<Signs> {
    if let Some(lost) = view.datagrams_lost() {
        let say = format!(
            "{} of the datagrams were lost, one after so many, and no queue stood before",
            percent(lost)
        );
        return Signs::new(view.datagram_losses() == Some(DatagramLosses::Bucket), [say]);
    }
    if let Some((lost, link_bps)) = found_out_before(view) {
        let link = bps(link_bps);
        let say = [
            format!(
                "{lost:.0} segments were sent again before the measured time, next to none since"
            ),
            format!(
                "a packet train (datagrams back to back) left at {link}, and there is no queue"
            ),
        ];
        return Signs::new(true, say);
    }
    let loss = view.loss().filter(|loss| *loss > 0.0)?;
    let variation = view.variation()?;
    let pattern =
        if view.ignores_loss() { is_policed_bbr(view, loss) } else { is_policed(view, loss) };
    let say = [
        format!("{} of the segments were lost", percent(loss)),
        format!("the intervals' rates vary by {}", percent(variation)),
    ];
    let trains = view
        .loss_train()
        .map(|segments| format!("each loss event took {} segments", digits(segments)));
    let windows = view
        .mean(|tcp| tcp.loss_window_variation)
        .map(|cv| format!("the windows at which losses came vary by {}", percent(cv)));
    let paced = nothing_more(view);
    Signs::new(
        pattern && view.is_held_by_network() && variation <= STEADY,
        paced.into_iter().chain(say).chain(trains).chain(windows),
    )
}

/// Whether the losses of a sender that halves its window at each loss event are those of a policer.
fn is_policed(view: &View<'_>, loss: f64) -> bool {
    let train = view.loss_train().unwrap_or(0.0);
    let same = view.mean(|tcp| tcp.loss_window_variation);
    // Events that are only estimated run together.
    let counted = view.recoveries().is_some();
    let at_one = train >= POLICER_SHORT_TRAIN && same.is_some_and(|cv| cv < ONE_WINDOW);
    let in_trains = train >= POLICER_TRAIN && same.is_none_or(|cv| cv < SAME_WINDOW);
    let short = counted && (in_trains || at_one);
    let bursts = train >= POLICER_LONG_TRAIN || short;
    let least = POLICER_EVENTS * view.flow_count() as f64;
    let several = view.recoveries().is_none_or(|n| n >= least);
    loss >= POLICER_LOSS && bursts && several && !view.queue_or_marks()
}

/// The same for BBR, which takes loss for noise until it knows a policer's rate.
fn is_policed_bbr(view: &View<'_>, loss: f64) -> bool {
    let inflation = view.inflation().map_or(1.0, |inflation| inflation.ratio);
    let several = view.recoveries().is_none_or(|n| n >= POLICER_EVENTS_BBR);
    let no_queue = inflation < BBR_QUEUE_INFLATION && !view.holds_queue();
    let open = loss >= POLICER_LOSS_BBR && no_queue && several;
    let found_out = loss >= POLICER_LOSS_BBR_FOUND && inflation < BBR_INFLATION;
    (open || found_out) && view.keeps_its_pace()
}

/// BBR that knows a policer's rate loses nothing any more. Returns the segments that it lost
/// before, and the rate at which a short train passed: a train is not faster than a link.
fn found_out_before(view: &View<'_>) -> Option<(f64, f64)> {
    let link_bps = view.train?.link_bps;
    let lost = view.sum(|flow| Some(flow.tcp.warm_up_retransmitted_segments? as f64))?;
    let sent = view.sum(|flow| Some(flow.tcp.data_segments_out? as f64))?;
    let flat = view.inflation()?.ratio < BBR_INFLATION;
    let faster = link_bps >= TRAIN_FASTER * view.throughput_bps;
    let now = view.loss().unwrap_or(0.0) < POLICER_LOSS_BBR;
    let is_policed = flat && faster && now && lost >= POLICER_LOSS_BBR * sent;
    (is_policed && view.ignores_loss() && view.keeps_its_pace()).then_some((lost, link_bps))
}

/// Sending at the policed rate brings the same without the losses. A run that does so already has
/// no remedy at this host.
fn remedy(view: &View<'_>, _: f64) -> Option<Remedy> {
    if nothing_more(view).is_some() {
        return None;
    }
    let each = view.throughput_bps / view.flow_count() as f64;
    if let Some(lost) = view.datagrams_lost() {
        let reason = format!("no faster: fewer losses, {} \u{2192} 0", percent(lost));
        return Some(Remedy::option(RunOption::Rate, rate(each).typed()).because(reason));
    }
    let lost = view.loss().filter(|loss| *loss > 0.0);
    let reason = match lost {
        Some(lost) => format!("no faster: fewer losses, {} \u{2192} 0", percent(lost)),
        None => "no faster: without the losses of the first seconds".to_owned(),
    };
    Some(Remedy::option(RunOption::Pacing, rate(each).typed()).because(reason))
}

/// A sentence, if the flows are paced at the measured rate.
fn nothing_more(view: &View<'_>) -> Option<String> {
    let most = view.sum(|flow| positive(flow.tcp.max_pacing_rate_bps? as f64))?;
    (most <= PACED_AT * view.throughput_bps).then(|| {
        format!("it is paced at {}, a policer's rate: nothing at this host brings more", bps(most))
    })
}

/// The same sentence, if the losses of a paced run are those of a policer.
pub(super) fn of_paced(view: &View<'_>) -> Option<String> {
    let is_policed = signs(view).is_some_and(|signs| signs.hold);
    is_policed.then(|| nothing_more(view)).flatten()
}

/// A pace of up to so many times the measured rate is the policer's, which counts whole frames.
const PACED_AT: f64 = 1.1;
/// Least rate of a train over that of the run which shows a bucket.
const TRAIN_FASTER: f64 = 2.0;
