//! Lines with CoDel, policers and black holes, and short transfers.

use super::super::conditions::{Control, Line, slow_start_rounds};
use super::shaped::{queue, queued_line};
use super::{Draft, Place, Queue, QueueKind, rate, usual};
use crate::ceilings::Cause;
use crate::link::Mtu;
use crate::units::Dice;

/// CoDel drops or marks because the line is full. Congestion is as right, if CoDel keeps a window
/// of CUBIC or Reno below what the line holds.
pub(super) fn codel_ecn(random: &mut Dice) -> Draft {
    let mut conditions = usual(random);
    conditions.streams = random.choose(&[1, 1, 4, 8]);
    let rate_bps = rate(random, 5e6, 150e6);
    conditions.line = Some(Line {
        rate_bps: Some(rate_bps),
        queue_bytes: (rate_bps / 8 / 4).max(262_144),
        codel: Some(random.chance(0.5)),
        ..Line::new(random.log_uniform(0.004, 0.08))
    });
    let mut made = Draft::new(conditions, Cause::PathRate, random);
    if made.conditions.control != Control::Bbr || made.is_control_free {
        made.accepted.push(Cause::Congestion);
    }
    made.limited_to(rate_bps);
    made
}

/// A policer behind a far faster line; the warm-up is long enough to empty its bucket.
pub(super) fn large_bucket_policer(random: &mut Dice) -> Draft {
    let mut conditions = usual(random);
    let rate_bps = rate(random, 5e6, 40e6);
    let burst = (rate_bps as f64 / 8.0 * random.uniform(0.1, 0.5)) as u64;
    let is_kernels = random.chance(0.4);
    conditions.line = Some(Line {
        policer: (!is_kernels).then_some((rate_bps, burst)),
        ..Line::new(random.log_uniform(0.01, 0.06))
    });
    // A queue for three frames cannot hold one of segmentation offload.
    conditions.is_offload_off = is_kernels;
    let mut made = Draft::new(conditions, Cause::Policer, random);
    if is_kernels {
        let queue = Queue {
            kind: QueueKind::Tbf,
            rate_bps,
            burst,
            limit: 4_542,
        };
        made.shape(Place::Router, &queue);
    }
    made.limited_to(rate_bps);
    made.seconds = Some((3.0, 8.0));
    made
}

/// Large packets vanish without an answer. A sender that probes the MTU (RFC 4821) finds it after
/// some timeouts, and then fills the line.
pub(super) fn black_hole(random: &mut Dice) -> Draft {
    let mut conditions = usual(random);
    let rate_bps = rate(random, 5e6, 30e6);
    let rtt_s = random.log_uniform(0.005, 0.04);
    conditions.line = Some(queued_line(rate_bps, rtt_s, random));
    let mut made = Draft::new(conditions, Cause::PathRate, random);
    made.payloads_link().mtu = Some(Mtu {
        bytes: random.log_whole(1280, 1480) as u32,
        is_black_hole: true,
    });
    let probing = ("net.ipv4.tcp_mtu_probing".to_owned(), "1".to_owned());
    made.sysctls.extend([probing]);
    made.limited_to(rate_bps);
    made.seconds = Some((7.0, 5.0));
    made
}

/// A transfer that ends while its flights are far below what the path holds.
pub(super) fn short_transfer(random: &mut Dice) -> Draft {
    loop {
        let mut conditions = usual(random);
        let rtt_s = random.log_uniform(0.02, 0.15);
        let bytes = random.log_whole(60_000, 1_500_000);
        let rate_bps = rate(random, 20e6, 200e6);
        conditions.streams = random.choose(&[1, 1, 2]);
        let holds = rate_bps as f64 * conditions.payload_share() * rtt_s / 8.0;
        let share = holds / f64::from(conditions.streams);
        let rounds = slow_start_rounds(bytes as f64, conditions.segment_bytes());
        if rounds < 3.0 || bytes as f64 > share {
            continue;
        }
        conditions.transfer_bytes = Some(bytes);
        conditions.line = Some(Line::new(rtt_s));
        let all = bytes as f64 * f64::from(conditions.streams);
        let queue = queue(QueueKind::Tbf, rate_bps, rtt_s, random);
        let mut made = Draft::new(conditions, Cause::Startup, random);
        made.shape(Place::Router, &queue);
        made.limit_bps = Some(all * 8.0 / (rtt_s * (1.0 + rounds)));
        return made;
    }
}
