//! The kernel's own shapers in place of the lab's link.

use super::{Draft, Place, Queue, QueueKind, delay_of, rate, usual};
use crate::ceilings::Cause;
use crate::units::Dice;

pub(super) fn tbf(random: &mut Dice) -> Draft {
    shaped(QueueKind::Tbf, random)
}

pub(super) fn htb(random: &mut Dice) -> Draft {
    let own_queue = random.chance(0.6);
    shaped(QueueKind::Htb { own_queue }, random)
}

/// One to eight flows through one shaper, on a LAN or beyond a delay of the lab's.
fn shaped(kind: QueueKind, random: &mut Dice) -> Draft {
    let mut conditions = usual(random);
    conditions.streams = random.choose(&[1, 1, 1, 2, 4, 8]);
    let is_far = random.chance(0.3);
    let rtt_s = random.log_uniform(0.002, 0.08);
    conditions.line = is_far.then(|| delay_of(rtt_s));
    let most = if is_far { 100e6 } else { 800e6 };
    // The kernel's queue below a class holds 1000 frames of any size: on a slow line tens of
    // seconds.
    let least = match kind {
        QueueKind::Htb { own_queue: false } => 40e6,
        _ => 2e6,
    };
    let queue = queue(
        kind,
        rate(random, least, most),
        if is_far { rtt_s } else { 0.0 },
        random,
    );
    let mut made = Draft::new(conditions, Cause::PathRate, random);
    let place = random.choose(&[Place::SendersDevice, Place::Router]);
    if kind != QueueKind::Tbf && place == Place::SendersDevice {
        // It is a class of the sender's own, whoever made it.
        made.accepted = vec![Cause::QosClass];
    }
    made.shape(place, &queue);
    made.limited_to(queue.rate_bps);
    made
}

/// A bucket for what the timers of a kernel miss, and a queue of 20 to 200 ms, or a product of rate
/// and delay and more: a flow of any congestion control fills the line.
pub(super) fn queue(kind: QueueKind, rate_bps: u64, rtt_s: f64, random: &mut Dice) -> Queue {
    let bytes_per_s = rate_bps as f64 / 8.0;
    let wait_s = random
        .log_uniform(0.02, 0.2)
        .max(rtt_s * random.uniform(1.0, 2.5));
    let burst = (bytes_per_s * TIMER_S).max(MIN_BURST);
    Queue {
        kind,
        rate_bps,
        burst: burst as u64,
        limit: (bytes_per_s * wait_s + burst).max(MIN_QUEUE) as u64,
    }
}

/// A tick of HZ = 250, seconds.
const TIMER_S: f64 = 0.004;
/// Ten full frames, bytes.
const MIN_BURST: f64 = 15_140.0;
/// One frame of segmentation offload and a half, bytes: a queue for less drops each of them.
const MIN_QUEUE: f64 = 100_000.0;
