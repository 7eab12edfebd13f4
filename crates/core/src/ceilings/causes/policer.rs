//! A token bucket that drops what comes too fast and queues nothing.

use super::super::remedy::rate;
use super::super::text::percent;
use super::super::thresholds::{
    BBR_INFLATION, BBR_QUEUE_INFLATION, MODEL_TOLERANCE, ONE_WINDOW, POLICER_EVENTS,
    POLICER_EVENTS_BBR, POLICER_LONG_TRAIN, POLICER_LOSS, POLICER_LOSS_BBR, POLICER_LOSS_BBR_FOUND,
    POLICER_SHORT_TRAIN, POLICER_TRAIN, SAME_WINDOW, STEADY, USUAL_STATE,
};
use super::super::view::View;
use super::{Cause, Ceiling, Rule, Signs};
use crate::remedy::{Remedy, RunOption};

pub(super) const RULE: Rule = Rule {
    cause: Cause::Policer,
    tolerance: MODEL_TOLERANCE,
    ceiling,
    signs,
    remedy,
};

/// The long-run rate is the measured one: shown only where the losses are a policer's.
fn ceiling(view: &View<'_>) -> Option<Ceiling> {
    if !signs(view)?.hold {
        return None;
    }
    Some(
        Ceiling::new(
            Cause::Policer,
            view.throughput_bps,
            "long-run rate with loss and without a queue",
        )
        .input("loss_share", view.loss())
        .input("variation", view.variation())
        .dependent(),
    )
}

/// Loss in trains, at the same window each time, and without a queue.
pub(super) fn signs(view: &View<'_>) -> Option<Signs> {
    let loss = view.loss().filter(|loss| *loss > 0.0)?;
    let variation = view.variation()?;
    let pattern = if view.ignores_loss() {
        is_policed_bbr(view, loss)
    } else {
        is_policed(view, loss)
    };
    let network = view
        .network_share()
        .is_none_or(|share| share >= USUAL_STATE);
    let say = [
        format!("{} of the segments were lost", percent(loss)),
        format!("the intervals' rates vary by {}", percent(variation)),
    ];
    let trains = view
        .loss_train()
        .map(|segments| format!("each loss event took {segments:.1} segments"));
    let windows = view
        .mean(|tcp| tcp.loss_window_variation)
        .map(|cv| format!("the windows at which losses came vary by {}", percent(cv)));
    Signs::new(
        pattern && network && variation <= STEADY,
        say.into_iter().chain(trains).chain(windows),
    )
}

/// Of a sender that halves its window at each loss event.
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

/// Of BBR, which takes loss for noise until it knows a policer's rate.
fn is_policed_bbr(view: &View<'_>, loss: f64) -> bool {
    let inflation = view.inflation().map_or(1.0, |inflation| inflation.ratio);
    let several = view.recoveries().is_none_or(|n| n >= POLICER_EVENTS_BBR);
    let no_queue = inflation < BBR_QUEUE_INFLATION && !view.holds_queue();
    let open = loss >= POLICER_LOSS_BBR && no_queue && several;
    let found_out = loss >= POLICER_LOSS_BBR_FOUND && inflation < BBR_INFLATION;
    (open || found_out) && view.keeps_its_pace()
}

/// Sending at the policed rate brings the same without the losses.
fn remedy(view: &View<'_>, _: f64) -> Option<Remedy> {
    let each = view.throughput_bps / view.flow_count() as f64;
    Some(Remedy::option(RunOption::Pacing, rate(each).typed()))
}
