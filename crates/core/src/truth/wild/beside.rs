//! Other programs on the same path.

use super::super::conditions::{Control, Line};
use super::super::scenario::OtherTraffic;
use super::shaped::queue;
use super::{Draft, Place, Queue, QueueKind, rate, usual};
use crate::ceilings::Cause;
use crate::plan::Direction;
use crate::units::Dice;

/// The flows share the line. It is full, and the others cause the losses as much as the flow itself
/// does.
pub(super) fn competing_tcp(random: &mut Dice) -> Draft {
    let flows = random.choose(&[1, 1, 2, 4]);
    let (mut made, _) = shared_line(random);
    made.accepted.push(Cause::Congestion);
    made.limit_bps = None;
    let direction = made.conditions.direction;
    made.around.traffic.push(OtherTraffic {
        direction,
        udp_bps: None,
        flows,
    });
    made
}

/// The flow gets what the datagrams leave of the line.
pub(super) fn competing_udp(random: &mut Dice) -> Draft {
    let (mut made, rate_bps) = shared_line(random);
    let taken = rate_bps as f64 * random.uniform(0.2, 0.6);
    made.limit_bps = Some((rate_bps as f64 - taken) * made.conditions.payload_share());
    let direction = made.conditions.direction;
    made.around.traffic.push(OtherTraffic {
        direction,
        // Without the headers of Ethernet, IP and UDP.
        udp_bps: Some((taken * DATAGRAM / (DATAGRAM + 42.0)) as u64),
        flows: 1,
    });
    made
}

/// Each direction has a line of its own, and the line back is full.
pub(super) fn busy_reverse_path(random: &mut Dice) -> Draft {
    let (mut made, rate_bps) = shared_line(random);
    let back = match made.conditions.direction {
        Direction::Down => Direction::Up,
        Direction::Up | Direction::Both => Direction::Down,
    };
    let back_bps = (rate_bps as f64 * random.uniform(0.3, 1.0)) as u64;
    let wait_s = random.log_uniform(0.02, 0.15);
    let queue = Queue {
        limit: (back_bps as f64 / 8.0 * wait_s).max(100_000.0) as u64,
        ..queue(QueueKind::Tbf, back_bps, 0.0, random)
    };
    if made.is_control_free || made.conditions.control == Control::Bbr {
        // BBR takes late acknowledgements for a slower path.
        made.accepted.push(Cause::Congestion);
    }
    made.shape_towards(back, Place::Router, &queue);
    made.around.traffic.push(OtherTraffic {
        direction: back,
        udp_bps: None,
        flows: random.choose(&[1, 2]),
    });
    made
}

/// A TBF on a router, where all of a host's programs wait in one queue, for one to four flows.
fn shared_line(random: &mut Dice) -> (Draft, u64) {
    let mut conditions = usual(random);
    conditions.streams = random.choose(&[1, 1, 1, 4]);
    let is_far = random.chance(0.3);
    let rtt_s = random.log_uniform(0.005, 0.05);
    conditions.line = is_far.then(|| Line::new(rtt_s));
    let rtt_s = if is_far { rtt_s } else { 0.0 };
    let queue = queue(QueueKind::Tbf, rate(random, 5e6, 100e6), rtt_s, random);
    let mut made = Draft::new(conditions, Cause::PathRate, random);
    made.shape(Place::Router, &queue);
    made.limited_to(queue.rate_bps);
    made.seconds = Some((1.5, 4.0));
    (made, queue.rate_bps)
}

/// Payload of the other program's datagrams, bytes.
const DATAGRAM: f64 = 1200.0;
