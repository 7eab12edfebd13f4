//! What no packet tells and all of them show: a clock that paces the sender, or a buffer that holds no
//! more.

use crate::capture::{Flow, Reading, Sent, Side};

/// What keeps a sender back that nothing else does.
#[derive(Debug, Default)]
pub(super) struct Held {
    /// The rate that a clock keeps, payload bits/s.
    pub(super) pace_bps: Option<u64>,
    /// The bytes in flight that it grew to and kept.
    pub(super) flight_bytes: Option<u64>,
}

/// Nothing of both where losses, a queue, a full window or an idle writer explain it.
pub(super) fn by(flow: &Flow, side: Side) -> Held {
    let sent = flow.sent_by(side);
    let at_sender = flow.near == Some(side);
    let least_queue = if at_sender { STANDING } else { SHORT };
    let is_busy = sent.idle.0 * 10 <= sent.lasted.0;
    let has_room = sent.window_limited.0 * 4 <= sent.busy.0;
    let is_lossless = sent.retransmitted.bytes * 1000 <= sent.bytes;
    let later = sent
        .readings
        .get(sent.readings.len() / 3..)
        .unwrap_or_default();
    let (Some(first), Some(last), true) = (
        later.first(),
        later.last(),
        is_busy && has_room && is_lossless && !is_queued(sent, later, least_queue),
    ) else {
        return Held::default();
    };
    let is_even = sent
        .evenness
        .is_some_and(|even| even.low >= SLOWEST && even.high <= FASTEST);
    if is_even {
        let (bytes, time) = (last.bytes - first.bytes, (last.at - first.at).0 as f64);
        let rate = (time > 0.0).then(|| (bytes as f64 * 8e9 / time) as u64);
        return Held {
            pace_bps: rate,
            ..Held::default()
        };
    }
    Held {
        flight_bytes: kept_flight(sent, later),
        ..Held::default()
    }
}

/// The round trip is longer than the shortest, by what hosts do not make themselves.
fn is_queued(sent: &Sent, later: &[Reading], ratio: f64) -> bool {
    let rtts: Vec<u64> = later.iter().filter_map(|r| Some(r.rtt?.0)).collect();
    let mean = rtts.iter().sum::<u64>() as f64 / rtts.len().max(1) as f64;
    let least = sent.rtt_min.map_or(0.0, |rtt| rtt.0 as f64);
    mean >= ratio * least && mean - least >= QUEUE_NS
}

/// The flight of slow start ended where it is since then. A writer that is late has its rate from the
/// first round trip on.
fn kept_flight(sent: &Sent, later: &[Reading]) -> Option<u64> {
    let mut flights: Vec<u64> = later.iter().map(|reading| reading.in_flight).collect();
    flights.sort_unstable();
    let at = |share: usize| flights.get(flights.len() * share / 100).copied();
    let (low, middle, high) = (at(25)?, at(50)?, at(90)?);
    let first = sent.readings.first()?.in_flight;
    let stays = low as f64 >= STAYS * high as f64 && flights.len() >= FEWEST;
    (stays && (first as f64) < GREW * middle as f64).then_some(middle)
}

/// Rates over 16 frames of a paced sender, over their mean: 0.8 to 1.04 (BBR below its limit drains for
/// a round in eight). Those of others exceed 1.08: what probes for more is faster at times.
const SLOWEST: f64 = 0.7;
const FASTEST: f64 = 1.06;
/// Mean over smallest round trip with a queue. At the receiver a full link makes any sender even: there
/// a short queue is enough not to name a clock.
const STANDING: f64 = 1.5;
const SHORT: f64 = 1.1;
const QUEUE_NS: f64 = 1e6;
/// The lower quartile of what is in flight over its largest.
const STAYS: f64 = 0.8;
/// The first flight over the later ones.
const GREW: f64 = 0.7;
const FEWEST: usize = 10;
