//! How much of a verdict survives the errors of its figures.
//!
//! Rules are thresholds, and a figure near one says less than a figure far from it. So the same
//! rules look at copies of the record in which each figure is wrong by as much as it usually is.
//! The share of copies with the same verdict is the margin, and the next cause is what the others
//! say. How often a verdict with a margin is right is counted, not derived: [`confidence`].

use std::collections::BTreeMap;

use super::Cause;
use super::view::{View, views};
use crate::record::{EndReport, Leg, Record, SenderEvidence, TcpEvidence, TcpSender};
use crate::units::Dice;

/// What the copies say.
pub(super) struct Votes(BTreeMap<Cause, usize>);

impl Votes {
    /// `judge` names the cause of one copy.
    pub(super) fn new(view: &View<'_>, judge: impl Fn(&View<'_>) -> Cause) -> Self {
        let mut votes = BTreeMap::new();
        // The same record always gets the same copies.
        let mut dice = Dice::new(0, 0);
        for _ in 0..COPIES {
            let record = disturbed(view.record, &mut dice);
            let views = views(&record);
            let mut views = views.iter();
            let same = views.find(|other| other.leg.direction == view.leg.direction);
            *votes
                .entry(same.map_or(Cause::Unexplained, &judge))
                .or_insert(0) += 1;
        }
        Self(votes)
    }

    /// Share of the copies with this verdict.
    pub(super) fn share(&self, cause: Cause) -> f64 {
        self.0.get(&cause).copied().unwrap_or(0) as f64 / COPIES as f64
    }

    /// What most of the others say.
    pub(super) fn next(&self, after: Cause) -> Option<Cause> {
        let others = self.0.iter();
        let others = others.filter(|(cause, _)| ![after, Cause::Unexplained].contains(cause));
        others
            .max_by_key(|(_, votes)| **votes)
            .map(|(cause, _)| *cause)
    }
}

/// Share of the verdicts with this margin that are right (docs/truth.md: held against seeds that
/// were never used).
pub(super) fn confidence(margin: f64) -> f64 {
    let above = MEASURED.iter().position(|(known, _)| *known >= margin);
    let above = above.unwrap_or(MEASURED.len() - 1).max(1);
    let [(from, low), (to, high)] = [MEASURED[above - 1], MEASURED[above]];
    let share = ((margin - from) / (to - from)).clamp(0.0, 1.0);
    low + share * (high - low)
}

/// Margin, and share of the verdicts that are right: isotonic regression of the verdicts of three
/// sets of seeds (docs/truth.md), 4 of 4 at a margin of 0.4 to 0.6, 25 of 26 at 0.6 to 0.8, 431 of
/// 434 above, each with half a right one and half a wrong one more (Jeffreys). Of smaller margins
/// there are none.
const MEASURED: [(f64, f64); 4] = [(0.0, 0.4), (0.5, 0.9), (0.7, 0.944), (1.0, 0.992)];

/// Its error is 7 % of itself at a margin of a half.
const COPIES: usize = 48;

/// Rates of the kernel, and windows: their medians differ by so much between halves of a run.
const RATE: f64 = 0.05;
/// Times and shares of it.
const TIME: f64 = 0.1;
/// Queues: what is read each 100 ms of what changes each round trip.
const QUEUE: f64 = 0.2;

fn disturbed(record: &Record, dice: &mut Dice) -> Record {
    let mut copy = record.clone();
    for flow in &mut copy.flows {
        flow.tcp.iter_mut().for_each(|tcp| disturb_tcp(tcp, dice));
    }
    for leg in &mut copy.legs {
        disturb_leg(leg, dice);
    }
    copy
}

fn disturb_leg(leg: &mut Leg, dice: &mut Dice) {
    leg.tcp.iter_mut().for_each(|tcp| disturb_tcp(tcp, dice));
    for end in [&mut leg.sender, &mut leg.receiver].into_iter().flatten() {
        disturb_end(end, dice);
    }
    if let Some(steps) = &mut leg.steps {
        let middle = steps.p50_bps;
        let factor = dice.factor(QUEUE);
        for rate in [&mut steps.p25_bps, &mut steps.p75_bps, &mut steps.p90_bps] {
            *rate = middle + (*rate - middle) * factor;
        }
    }
}

fn disturb_end(end: &mut EndReport, dice: &mut Dice) {
    for time in [
        &mut end.blocked_us,
        &mut end.run_delay_us,
        &mut end.paced_us,
    ] {
        time.iter_mut().for_each(|us| dice.scale(us, TIME));
    }
    for percent in [&mut end.busiest_thread_percent, &mut end.steal_percent] {
        percent
            .iter_mut()
            .for_each(|percent| *percent *= dice.factor(TIME));
    }
    end.cpu_seconds.user *= dice.factor(TIME);
    end.cpu_seconds.system *= dice.factor(TIME);
    // What is left idle is what is uncertain of a host that is nearly full.
    if let Some(percent) = &mut end.host_cpu_percent {
        *percent = 100.0 - (100.0 - *percent) * dice.factor(QUEUE);
    }
}

fn disturb_tcp(tcp: &mut TcpEvidence, dice: &mut Dice) {
    if let Some(SenderEvidence::Read(sender)) = &mut tcp.sender {
        disturb_sender(sender, dice);
    }
    if let Some(receiver) = &mut tcp.receiver {
        (receiver.unread_bytes.iter_mut()).for_each(|unread| dice.scale(unread, QUEUE));
        let least = receiver.rtt_min_us.unwrap_or(0);
        (receiver.rtt_mean_us.iter_mut())
            .for_each(|rtt| disturb_rtt(rtt, least, dice.factor(QUEUE)));
    }
}

/// The smallest is what it is; the queue above it is what changes.
fn disturb_rtt(rtt: &mut u32, least: u32, factor: f64) {
    let excess = f64::from(rtt.saturating_sub(least)) * factor;
    *rtt = least.saturating_add(excess.round() as u32);
}

fn disturb_sender(tcp: &mut TcpSender, dice: &mut Dice) {
    let least = tcp.rtt_min_us.unwrap_or(0);
    let factor = dice.factor(QUEUE);
    let rtts = [Some(&mut tcp.rtt_mean_us), tcp.rtt_p95_us.as_mut()];
    for rtt in rtts.into_iter().flatten() {
        disturb_rtt(rtt, least, factor);
    }
    let mut deviation = u64::from(tcp.rtt_var_us);
    dice.scale(&mut deviation, QUEUE);
    tcp.rtt_var_us = u32::try_from(deviation).unwrap_or(u32::MAX);
    for queue in [&mut tcp.notsent_bytes, &mut tcp.send_queue_memory_bytes] {
        queue.iter_mut().for_each(|bytes| dice.scale(bytes, TIME));
    }
    dice.scale(&mut tcp.unacked_bytes, TIME);
    for time in [&mut tcp.rwnd_limited_us, &mut tcp.sndbuf_limited_us] {
        time.iter_mut().for_each(|us| dice.scale(us, TIME));
    }
    for rate in [&mut tcp.delivery_rate_bps, &mut tcp.delivery_rate_max_bps] {
        rate.iter_mut().for_each(|bps| dice.scale(bps, RATE));
    }
    dice.scale(&mut tcp.cwnd_bytes, RATE);
    if let Some(variation) = &mut tcp.loss_window_variation {
        *variation *= dice.factor(QUEUE);
    }
    if let Some(share) = &mut tcp.app_limited_share {
        *share = (*share * dice.factor(TIME)).min(1.0);
    }
    // Of events that come by chance, the root of their number (Poisson).
    let lost = tcp.retransmitted_segments;
    let error = 1.0 / (lost.max(1) as f64).sqrt();
    dice.scale(&mut tcp.retransmitted_segments, error.min(QUEUE));
}

/// Errors of figures.
trait Error {
    /// Of a figure that is usually wrong by `error` of itself.
    fn factor(&mut self, error: f64) -> f64;

    fn scale(&mut self, figure: &mut u64, error: f64) {
        *figure = (*figure as f64 * self.factor(error)).round() as u64;
    }
}

impl Error for Dice {
    fn factor(&mut self, error: f64) -> f64 {
        (self.normal() * error)
            .clamp(-2.0 * error, 2.0 * error)
            .exp()
    }
}
