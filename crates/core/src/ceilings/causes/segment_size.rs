//! Segments that are too small for the CPU time that each one costs.

use super::super::signals::positive;
use super::super::small_segments::{queue_of_cpu, segmentation_offload, small_segments};
use super::super::thresholds::{MIN_UTILISATION, MODEL_TOLERANCE, WORK_FULL};
use super::super::view::{View, percent};
use super::{Basis, Cause, Ceiling, Rule, Signs};
use crate::remedy::Remedy;

pub(super) const RULE: Rule = Rule {
    cause: Cause::SegmentSize,
    basis: Basis::Modelled,
    tolerance: MODEL_TOLERANCE,
    ceiling,
    signs,
    remedy,
};

fn ceiling(view: &View<'_>) -> Option<Ceiling> {
    let mss = view.mss()?;
    let sent = view.mean(|tcp| tcp.effective_segment_bytes);
    let segment = sent.and_then(positive).unwrap_or(mss).min(mss);
    let packets_per_s = view.throughput_bps / 8.0 / segment;
    let busy = busiest(view).filter(|share| *share >= MIN_UTILISATION)?;
    let formula = "packets/s reached ÷ share of the time in which an end worked × MSS";
    let limit = packets_per_s / busy * mss * 8.0;
    let ceiling = Ceiling::new(limit, formula)
        .input("packets_per_s", Some(packets_per_s))
        .input("working_share", Some(busy))
        .input("mss_bytes", Some(mss));
    Some(ceiling.dependent())
}

/// Share of the time in which at least one end worked or wanted to. Packets of small segments pass
/// through both ends' threads and soft interrupts in turn, so neither thread need be awake all the
/// time.
fn busiest(view: &View<'_>) -> Option<f64> {
    let asleep = [view.writer(), view.reader()].into_iter().flatten();
    let shares: Vec<f64> = asleep.map(|thread| thread.blocked + thread.paced).collect();
    let both: f64 = shares.iter().map(|share| share.min(1.0)).product();
    // Packets queue only before a CPU that has no more for them.
    let busy = queue_of_cpu(view).map_or(1.0 - both, |_| 1.0);
    positive(busy).filter(|_| !shares.is_empty())
}

/// While the device cuts segments (TSO), their size costs nothing.
fn signs(view: &View<'_>) -> Option<Signs> {
    let offload = segmentation_offload(view)?;
    let busy = busiest(view);
    let cpu_bound = busy.is_some_and(|share| share >= WORK_FULL);
    let small = small_segments(view);
    let state = if offload { "on" } else { "off" };
    let mut say = Vec::from_iter(small.iter().map(|small| small.message.clone()));
    say.extend(busy.map(|share| match queue_of_cpu(view) {
        Some(taken) => format!(
            "segments queue before the soft interrupts of a CPU, which take {taken:.0} % of it"
        ),
        None => {
            format!("one end or the other worked, or wanted to, for {} of the time", percent(share))
        }
    }));
    say.push(format!("segmentation offload of the sender's device is {state}"));
    Signs::new(cpu_bound && !offload && small.is_some(), say)
}

/// The reason for small segments tells what makes them larger.
fn remedy(view: &View<'_>, _: f64) -> Option<Remedy> {
    small_segments(view).map(|small| small.remedy)
}
