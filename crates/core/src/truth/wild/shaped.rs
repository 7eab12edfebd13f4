//! The kernel's own shapers in place of the lab's link.

use super::super::causes::datagrams;
use super::super::conditions::{Conditions, Line};
use super::{Draft, Leaf, Place, Queue, QueueKind, rate, usual};
use crate::ceilings::Cause;
use crate::units::{Dice, Family};

pub(super) fn tbf(random: &mut Dice) -> Draft {
    let conditions = few_flows(random);
    shaped(QueueKind::Tbf, conditions, random)
}

pub(super) fn htb(random: &mut Dice) -> Draft {
    let conditions = few_flows(random);
    let leaf = random.choose(&[Leaf::Bytes, Leaf::Bytes, Leaf::Kernels]);
    shaped(QueueKind::Htb(leaf), conditions, random)
}

pub(super) fn kernel_queues(random: &mut Dice) -> Draft {
    let conditions = few_flows(random);
    let kind = random.choose(&[
        QueueKind::Htb(Leaf::FqCodel),
        QueueKind::Htb(Leaf::Fq),
        QueueKind::Netem,
    ]);
    shaped(kind, conditions, random)
}

pub(super) fn ipv6(random: &mut Dice) -> Draft {
    let conditions = Conditions {
        family: Family::Ipv6,
        ..few_flows(random)
    };
    let kind = random.choose(&[QueueKind::Tbf, QueueKind::Htb(Leaf::Bytes)]);
    shaped(kind, conditions, random)
}

pub(super) fn many_flows(random: &mut Dice) -> Draft {
    let mut conditions = usual(random);
    conditions.streams = random.choose(&[2, 4, 8, 16, 32, 64]);
    let kind = random.choose(&[QueueKind::Tbf, QueueKind::Htb(Leaf::Bytes)]);
    // Half a megabit/s for each flow at least.
    let least = (5e5 * f64::from(conditions.streams)).max(5e6);
    let queue = queue(kind, rate(random, least, 400e6), 0.0, random);
    behind(&queue, conditions, random)
}

/// Only the client's end is seen: the other end is an iperf3 server.
pub(super) fn iperf3_server(random: &mut Dice) -> Draft {
    let conditions = few_flows(random);
    let mut made = shaped(QueueKind::Tbf, conditions, random);
    made.around.is_iperf3 = true;
    made
}

/// A long queue on a router: at the sender's own device the kernel lets no flow queue so much (TCP
/// small queues).
pub(super) fn bufferbloat(random: &mut Dice) -> Draft {
    let mut conditions = usual(random);
    conditions.streams = random.choose(&[1, 1, 2]);
    let rate_bps = rate(random, 1e6, 25e6);
    let wait_s = random.uniform(0.8, 1.2);
    let bytes = (rate_bps as f64 / 8.0 * wait_s) as u64;
    let is_kernels = random.chance(0.6);
    if !is_kernels {
        conditions.line = Some(Line {
            rate_bps: Some(rate_bps),
            queue_bytes: bytes,
            ..Line::new(random.log_uniform(0.005, 0.05))
        });
    }
    let mut made = Draft::new(conditions, Cause::PathRate, random);
    if is_kernels {
        let queue = Queue {
            limit: bytes,
            ..queue(QueueKind::Tbf, rate_bps, 0.0, random)
        };
        made.shape(Place::Router, &queue);
    }
    made.limited_to(rate_bps);
    made.seconds = Some((4.0, 8.0));
    made
}

/// Below the shaper's rate the sender keeps to the rate it was asked for; above it the path is the
/// limit.
pub(super) fn udp_rate(random: &mut Dice) -> Draft {
    let mut conditions = usual(random);
    datagrams(&mut conditions, random);
    conditions.message_bytes = conditions.message_bytes.max(600);
    let queue = queue(QueueKind::Tbf, rate(random, 2e6, 40e6), 0.0, random);
    let carried = queue.rate_bps as f64 * conditions.payload_share();
    let is_above = random.chance(0.5);
    let (least, most) = if is_above { (1.4, 3.0) } else { (0.2, 0.7) };
    let asked = carried * random.uniform(least, most);
    conditions.write_bps = Some(asked as u64);
    let mut made = Draft::new(conditions, Cause::PathRate, random);
    let place = random.choose(&[Place::SendersDevice, Place::Router]);
    made.shape(place, &queue);
    made.limited_to(queue.rate_bps);
    if !is_above {
        made.cause = Cause::AsAsked;
        made.accepted = vec![Cause::ApplicationSend];
        made.limit_bps = Some(asked);
    }
    made
}

pub(super) fn qos_class(random: &mut Dice) -> Draft {
    let mut conditions = usual(random);
    conditions.streams = random.choose(&[1, 1, 4]);
    let mut made = Draft::new(conditions, Cause::QosClass, random);
    let rate_bps = rate(random, 5e6, 300e6);
    made.around.policy = Some(format!(
        "[filter.bulk]\nprotocol = \"tcp\"\npolicy = \"bulk\"\n\n[policy.bulk]\nlimit = \
         \"{rate_bps}bit\"\n\n[adapter.eth0]\nrate = \"10gbit\"\npolicies = [\"bulk\"]\n"
    ));
    made.limited_to(rate_bps);
    made
}

fn few_flows(random: &mut Dice) -> Conditions {
    Conditions {
        streams: random.choose(&[1, 1, 1, 2, 4, 8]),
        ..usual(random)
    }
}

/// A draft through one shaper, on a LAN or behind a delay of the lab.
fn shaped(kind: QueueKind, mut conditions: Conditions, random: &mut Dice) -> Draft {
    let is_far = random.chance(0.3);
    let rtt_s = random.log_uniform(0.002, 0.08);
    conditions.line = is_far.then(|| Line::new(rtt_s));
    let most = if is_far { 100e6 } else { 800e6 };
    // The kernel's queue below a class holds 1000 frames of any size: on a slow line tens of
    // seconds.
    let least = match kind {
        QueueKind::Htb(Leaf::Kernels) => 40e6,
        _ => 2e6,
    };
    let rtt_s = if is_far { rtt_s } else { 0.0 };
    let queue = queue(kind, rate(random, least, most), rtt_s, random);
    behind(&queue, conditions, random)
}

/// A draft behind a queue at the sender's device or on a router.
pub(super) fn behind(queue: &Queue, conditions: Conditions, random: &mut Dice) -> Draft {
    let mut made = Draft::new(conditions, Cause::PathRate, random);
    made.shape(random.choose(&[Place::SendersDevice, Place::Router]), queue);
    made.limited_to(queue.rate_bps);
    made
}

/// A queue with a bucket for what the kernel's timers miss. It holds 20 to 200 ms, or at least the
/// product of rate and delay, so that a flow of any congestion control fills the line.
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

/// A line of the lab's with a queue for its rate and round trip.
pub(super) fn queued_line(rate_bps: u64, rtt_s: f64, random: &mut Dice) -> Line {
    Line {
        rate_bps: Some(rate_bps),
        queue_bytes: queue(QueueKind::Tbf, rate_bps, rtt_s, random).limit,
        ..Line::new(rtt_s)
    }
}

/// A tick of HZ = 250, seconds.
const TIMER_S: f64 = 0.004;
/// Ten full frames, bytes.
const MIN_BURST: f64 = 15_140.0;
/// One frame of segmentation offload and a half, bytes: a queue for less drops each of them.
const MIN_QUEUE: f64 = 100_000.0;
