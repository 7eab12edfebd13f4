//! A token bucket that drops what comes too fast and queues nothing.

use super::super::remedy::{rate, stream};
use super::super::text::percent;
use super::super::thresholds::{
    MODEL_TOLERANCE, POLICER_LOSS, POLICER_LOSS_BBR, POLICER_TRAIN, STEADY, USUAL_STATE,
};
use super::super::view::View;
use super::{Cause, Ceiling, Rule, Signs};

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

/// Loss in trains at a steady rate, without a queue. Of a sender that ignores loss the trains run
/// together, but only a policer makes it lose that much.
fn signs(view: &View<'_>) -> Option<Signs> {
    let loss = view.loss().filter(|loss| *loss > 0.0)?;
    let train = view.loss_train();
    let variation = view.variation()?;
    let pattern = if view.ignores_loss() {
        loss >= POLICER_LOSS_BBR
    } else {
        loss >= POLICER_LOSS && train.is_some_and(|segments| segments >= POLICER_TRAIN)
    };
    let network = view
        .network_share()
        .is_none_or(|share| share >= USUAL_STATE);
    let say = [
        format!("{} of the segments were lost", percent(loss)),
        format!("the intervals' rates vary by {}", percent(variation)),
    ];
    let trains = train.map(|segments| format!("each loss event took {segments:.1} segments"));
    Signs::new(
        pattern && network && variation <= STEADY && !view.queue_or_marks(),
        say.into_iter().chain(trains),
    )
}

/// Sending at the policed rate brings the same without the losses.
fn remedy(view: &View<'_>, _: f64) -> String {
    let each = view.throughput_bps / view.flow_count() as f64;
    stream(view, &format!("--pacing {}", rate(each)))
}
