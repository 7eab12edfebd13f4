//! The ceiling of each cause, and the verdict: which cause holds a run back.
//!
//! A verdict is a pure function of a record, so that a later version can explain a stored record
//! again. The rules see a `View` alone, which [`crate::connection`] fills for connections of other
//! programs. The kernel's evidence decides first, and a ceiling then confirms it. A run without a
//! cause that has both stays `unexplained`.
//!
//! | module | what is in it |
//! |---|---|
//! | [`formulas`] | the models: windows, Reno, CUBIC, PFTK, slow start, framing |
//! | `view`, `signals` | the evidence about one direction, and figures derived from it |
//! | `causes` | one file for each cause: its ceiling, its evidence, its remedy |
//! | `thresholds` | the thresholds of the evidence, with the reasons |
//! | `remedy` | remedies, with values computed from the path |
//! | `small_segments` | why segments are smaller than the interface carries |
//! | `verdict` | the choice of the cause, and the next limit when it is lifted |

mod causes;
pub mod formulas;
mod remedy;
mod signals;
mod small_segments;
#[cfg(test)]
pub(crate) mod tests;
mod thresholds;
mod verdict;
mod view;

use std::collections::BTreeMap;

pub(crate) use causes::{is_closing, is_held_by_receiver};
pub use thresholds::{EXACT_TOLERANCE, MODEL_TOLERANCE};
pub use verdict::agrees;
pub(crate) use verdict::explain as explain_view;
pub(crate) use view::View;

use crate::plan::Direction;
pub use crate::record::{Cause, Ceiling, Verdict};
use crate::record::{
    CaveatKind, EndReport, Proof, Record, SenderEvidence, StepRates, TcpEvidence, TcpSender,
};
use crate::units::Dice;
use small_segments::small_segments_caveat;
use view::views;

/// One direction of a record, explained.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Explained {
    /// Which way the payload goes.
    pub direction: Direction,
    /// What each cause would let through, lowest first.
    pub ceilings: Vec<Ceiling>,
    /// What holds it back.
    pub verdict: Verdict,
}

/// The verdict on each direction of a bulk transfer; empty for requests and responses.
pub(crate) fn explain(record: &Record) -> Vec<Explained> {
    let typed = |view: &View<'_>| {
        let explained = explain_view(view);
        Explained { verdict: explained.verdict.typed(&view.run()), ..explained }
    };
    views(record).iter().map(typed).collect()
}

/// Whether most steps had the same rate; without enough steps, whether the intervals had.
pub(crate) fn is_even(view: &View<'_>) -> bool {
    let varies_little = || view.variation().is_some_and(|share| share <= thresholds::EVEN);
    view.is_even() || (view.steps.is_none() && varies_little())
}

/// Writes the verdict on each direction into the record, in place of earlier ones, and a caveat if
/// segments are small for their interface. What changes have shown of a direction stands.
pub fn annotate(record: &mut Record) {
    let explained = explain(record);
    let proofs: Vec<Option<Proof>> =
        record.legs.iter().map(|leg| leg.verdict.as_ref()?.proof.clone()).collect();
    let small = views(record).iter().find_map(small_segments_caveat);
    record.caveats.retain(|caveat| caveat.kind != CaveatKind::SmallSegments);
    record.caveats.extend(small);
    for leg in &mut record.legs {
        leg.ceilings.clear();
        leg.verdict = None;
    }
    for Explained { direction, ceilings, verdict } in explained {
        let mut legs = record.legs.iter_mut();
        if let Some(leg) = legs.find(|leg| leg.direction == direction) {
            leg.ceilings = ceilings;
            leg.verdict = Some(verdict);
        }
    }
    if let [Some(proof)] = &proofs[..] {
        prove(record, proof);
    }
}

/// Writes what changes have shown of the only direction into its verdict: its cause is that of the
/// proof, how sure it is follows from the proof alone, and what was measured of its remedy is in
/// place of what was predicted.
pub fn prove(record: &mut Record, proof: &Proof) {
    let cause = proof.causes.first().copied().unwrap_or(Cause::Unexplained);
    let found = record.verdict().map(|verdict| verdict.cause);
    let verdict = if found == Some(cause) { None } else { verdict_of(record, cause) };
    let Some(leg) = record.legs.first_mut() else {
        return;
    };
    let kept = verdict.or(leg.verdict.take());
    let Some(explained) = kept else {
        return;
    };
    let proved = Verdict { confidence: None, proof: Some(proof.clone()), ..explained };
    let worth = leg.experiments.iter().find(|change| {
        // What may be nothing is no worth.
        change.lifts == Some(cause) && change.interval[0] > 1.0
    });
    leg.verdict = Some(match worth {
        Some(change) => Verdict {
            remedied_bps: leg.throughput_bps.map(|rate| rate * change.ratio),
            next_cause: change.cause_then,
            predicted_bps: None,
            ..proved
        },
        None => proved,
    });
}

fn verdict_of(record: &Record, cause: Cause) -> Option<Verdict> {
    let views = views(record);
    let [view] = &views[..] else {
        return None;
    };
    Some(verdict::explain_as(view, cause).typed(&view.run()))
}

// Confidence of a verdict, from the errors of its figures.

/// The number of copies with each verdict.
///
/// Rules are thresholds, and a figure near one tells less than a figure far from it. So the same
/// rules judge copies of the evidence in which each figure has an error of the usual size. The
/// share of copies with the same verdict is the margin; most of the others give the next cause. The
/// share of verdicts with a margin that is right is counted, not derived: [`confidence`].
struct Votes(BTreeMap<Cause, usize>);

impl Votes {
    /// `judge` names the cause of one copy.
    fn new(view: &View<'_>, judge: impl Fn(&View<'_>) -> Cause) -> Self {
        let mut votes = BTreeMap::new();
        // The same evidence always gets the same copies.
        let mut dice = Dice::new(0, 0);
        for _ in 0..COPIES {
            let copy = Disturbed::new(view, &mut dice);
            *votes.entry(judge(&copy.view(view))).or_insert(0) += 1;
        }
        Self(votes)
    }

    /// Share of the copies with this verdict.
    fn share(&self, cause: Cause) -> f64 {
        self.0.get(&cause).copied().unwrap_or(0) as f64 / COPIES as f64
    }

    /// The most frequent other cause.
    fn next(&self, after: Cause) -> Option<Cause> {
        let others =
            self.0.iter().filter(|(cause, _)| ![after, Cause::Unexplained].contains(cause));
        others.max_by_key(|(_, votes)| **votes).map(|(cause, _)| *cause)
    }
}

/// Share of the verdicts with this margin that is right (docs/truth.md: checked with seeds that
/// were never used before).
fn confidence(margin: f64) -> f64 {
    let above = MEASURED
        .iter()
        .position(|(known, _)| *known >= margin)
        .unwrap_or(MEASURED.len() - 1)
        .max(1);
    let [(from, low), (to, high)] = [MEASURED[above - 1], MEASURED[above]];
    let share = ((margin - from) / (to - from)).clamp(0.0, 1.0);
    low + share * (high - low)
}

/// Margin, and share of the verdicts that are right: isotonic regression of the verdicts of three
/// sets of seeds (docs/truth.md), 4 of 4 at a margin of 0.4 to 0.6, 25 of 26 at 0.6 to 0.8, 431 of
/// 434 above, each with half a right one and half a wrong one more (Jeffreys). Of smaller margins
/// there are none.
const MEASURED: [(f64, f64); 4] = [(0.0, 0.4), (0.5, 0.9), (0.7, 0.944), (1.0, 0.992)];

/// Number of copies: the error of a margin of a half is 7 % of it.
const COPIES: usize = 48;

/// Error of rates of the kernel and of windows: the difference of their medians between halves of a
/// run.
const RATE: f64 = 0.05;
/// Error of times and shares of time.
const TIME: f64 = 0.1;
/// Error of queues, which change each round trip and are read each 100 ms.
const QUEUE: f64 = 0.2;

/// The figures of a view with errors. What is exact, such as the hosts' facts, is not in it.
struct Disturbed {
    flows: Vec<TcpEvidence>,
    total: Option<TcpEvidence>,
    ends: [Option<EndReport>; 2],
    steps: Option<StepRates>,
}

impl Disturbed {
    fn new(view: &View<'_>, dice: &mut Dice) -> Self {
        Self {
            flows: view.flows.iter().map(|(_, tcp)| disturbed_tcp(tcp, dice)).collect(),
            total: view.total.1.map(|tcp| disturbed_tcp(tcp, dice)),
            ends: [view.sender, view.receiver].map(|end| Some(disturbed_end(end?, dice))),
            steps: view.steps.map(|steps| disturbed_steps(steps, dice)),
        }
    }

    fn view<'a>(&'a self, of: &View<'a>) -> View<'a> {
        let [sender, receiver] = self.ends.each_ref().map(Option::as_ref);
        let flows = of.flows.iter().zip(&self.flows).map(|((bytes, _), tcp)| (*bytes, tcp));
        let (flows, total) = (flows.collect(), (of.total.0, self.total.as_ref()));
        View { flows, total, sender, receiver, steps: self.steps, ..of.clone() }.with_senders()
    }
}

fn disturbed_steps(mut steps: StepRates, dice: &mut Dice) -> StepRates {
    let middle = steps.p50_bps;
    let factor = random_factor(dice, QUEUE);
    for rate in [&mut steps.p25_bps, &mut steps.p75_bps, &mut steps.p90_bps] {
        *rate = middle + (*rate - middle) * factor;
    }
    steps
}

fn disturbed_end(end: &EndReport, dice: &mut Dice) -> EndReport {
    let mut end = end.clone();
    let times = [&mut end.blocked_us, &mut end.run_delay_us, &mut end.paced_us];
    scale_known(dice, times, TIME);
    let percents = [&mut end.busiest_thread_percent, &mut end.steal_percent];
    for percent in percents.into_iter().flatten() {
        *percent *= random_factor(dice, TIME);
    }
    end.cpu_seconds.user *= random_factor(dice, TIME);
    end.cpu_seconds.system *= random_factor(dice, TIME);
    // What is left idle is what is uncertain of a host that is nearly full.
    if let Some(percent) = &mut end.host_cpu_percent {
        *percent = 100.0 - (100.0 - *percent) * random_factor(dice, QUEUE);
    }
    end
}

fn disturbed_tcp(tcp: &TcpEvidence, dice: &mut Dice) -> TcpEvidence {
    let mut tcp = tcp.clone();
    if let Some(SenderEvidence::Read(sender)) = &mut tcp.sender {
        disturb_sender(sender, dice);
    }
    if let Some(receiver) = &mut tcp.receiver {
        scale_known(dice, [&mut receiver.unread_bytes], QUEUE);
        let least = receiver.rtt_min_us.unwrap_or(0);
        if let Some(rtt) = &mut receiver.rtt_mean_us {
            disturb_rtt(rtt, least, random_factor(dice, QUEUE));
        }
    }
    tcp
}

/// The smallest is what it is; the queue above it is what changes.
fn disturb_rtt(rtt: &mut u32, least: u32, factor: f64) {
    let excess = f64::from(rtt.saturating_sub(least)) * factor;
    *rtt = least.saturating_add(excess.round() as u32);
}

fn disturb_sender(tcp: &mut TcpSender, dice: &mut Dice) {
    let least = tcp.rtt_min_us.unwrap_or(0);
    let factor = random_factor(dice, QUEUE);
    let rtts = [Some(&mut tcp.rtt_mean_us), tcp.rtt_p95_us.as_mut()];
    for rtt in rtts.into_iter().flatten() {
        disturb_rtt(rtt, least, factor);
    }
    let mut deviation = u64::from(tcp.rtt_var_us);
    scale(dice, &mut deviation, QUEUE);
    tcp.rtt_var_us = u32::try_from(deviation).unwrap_or(u32::MAX);
    let queues = [&mut tcp.notsent_bytes, &mut tcp.send_queue_memory_bytes];
    scale_known(dice, queues, TIME);
    scale(dice, &mut tcp.unacked_bytes, TIME);
    let limited = [&mut tcp.rwnd_limited_us, &mut tcp.sndbuf_limited_us];
    scale_known(dice, limited, TIME);
    let rates = [&mut tcp.delivery_rate_bps, &mut tcp.delivery_rate_max_bps];
    scale_known(dice, rates, RATE);
    scale(dice, &mut tcp.cwnd_bytes, RATE);
    if let Some(variation) = &mut tcp.loss_window_variation {
        *variation *= random_factor(dice, QUEUE);
    }
    if let Some(share) = &mut tcp.app_limited_share {
        *share = (*share * random_factor(dice, TIME)).min(1.0);
    }
    let seen = [&mut tcp.zero_window_us, &mut tcp.timeout_wait_us, &mut tcp.idle_until_asked_us];
    scale_known(dice, seen, TIME);
    // Of events that come by chance, the root of their number (Poisson).
    let lost = tcp.retransmitted_segments;
    let error = 1.0 / (lost.max(1) as f64).sqrt();
    scale(dice, &mut tcp.retransmitted_segments, error.min(QUEUE));
}

/// A random factor for a figure that is usually wrong by `error` of itself.
fn random_factor(dice: &mut Dice, error: f64) -> f64 {
    let error = (dice.normal() * error).clamp(-2.0 * error, 2.0 * error);
    error.exp()
}

fn scale(dice: &mut Dice, figure: &mut u64, error: f64) {
    *figure = (*figure as f64 * random_factor(dice, error)).round() as u64;
}

/// Scales the figures that are known.
fn scale_known<const N: usize>(dice: &mut Dice, figures: [&mut Option<u64>; N], error: f64) {
    for figure in figures.into_iter().flatten() {
        scale(dice, figure, error);
    }
}
