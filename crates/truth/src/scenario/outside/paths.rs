//! Limits of the path: the kernel's own shapers, lines with CoDel, policers and black holes, short
//! transfers, and rates that vary.

use std::fmt::Write as _;
use std::time::Duration;

use linerate_core::ceilings::Cause;
use linerate_core::link::{Distribution, Jitter, Mtu, QueueLimit};
use linerate_core::units::{Dice, Family, Nanos, Span};

use super::super::RateSteps;
use super::super::causes::datagrams;
use super::super::conditions::{Conditions, CongestionControl, EmulatedLine, slow_start_rounds};
use super::{KernelQueue, LeafQueue, QueueKind, ScenarioDraft, ShaperPlace, rate, usual};

/// The kernel's TBF.
pub(super) fn tbf(random: &mut Dice) -> ScenarioDraft {
    let conditions = few_flows(random);
    shaped(QueueKind::Tbf, conditions, random)
}

/// A class of the kernel's HTB.
pub(super) fn htb(random: &mut Dice) -> ScenarioDraft {
    let conditions = few_flows(random);
    let leaf = random.choose(&[LeafQueue::Bytes, LeafQueue::Bytes, LeafQueue::Kernels]);
    shaped(QueueKind::Htb(leaf), conditions, random)
}

/// The kernel's fq_codel and fq below a class, and its netem.
pub(super) fn kernel_queues(random: &mut Dice) -> ScenarioDraft {
    let conditions = few_flows(random);
    let kind = random.choose(&[
        QueueKind::Htb(LeafQueue::FqCodel),
        QueueKind::Htb(LeafQueue::Fq),
        QueueKind::Netem,
    ]);
    shaped(kind, conditions, random)
}

/// A shaper of the kernel's under IPv6.
pub(super) fn ipv6(random: &mut Dice) -> ScenarioDraft {
    let conditions = Conditions { family: Family::Ipv6, ..few_flows(random) };
    let kind = random.choose(&[QueueKind::Tbf, QueueKind::Htb(LeafQueue::Bytes)]);
    shaped(kind, conditions, random)
}

/// Two to 64 flows through one shaper.
pub(super) fn many_flows(random: &mut Dice) -> ScenarioDraft {
    let mut conditions = usual(random);
    conditions.streams = random.choose(&[2, 4, 8, 16, 32, 64]);
    let kind = random.choose(&[QueueKind::Tbf, QueueKind::Htb(LeafQueue::Bytes)]);
    // Half a megabit/s for each flow at least.
    let least = (5e5 * f64::from(conditions.streams)).max(5e6);
    let queue = queue(kind, rate(random, least, 400e6), 0.0, random);
    behind(&queue, conditions, random)
}

/// An iperf3 server at the far end: only the client's end is seen.
pub(super) fn iperf3_server(random: &mut Dice) -> ScenarioDraft {
    let conditions = few_flows(random);
    let mut made = shaped(QueueKind::Tbf, conditions, random);
    made.around.is_iperf3 = true;
    made
}

/// A long queue on a router: at the sender's own device the kernel lets no flow queue so much (TCP
/// small queues).
pub(super) fn bufferbloat(random: &mut Dice) -> ScenarioDraft {
    let mut conditions = usual(random);
    conditions.streams = random.choose(&[1, 1, 2]);
    let rate_bps = rate(random, 1e6, 25e6);
    let wait_s = random.uniform(0.8, 1.2);
    let bytes = (rate_bps as f64 / 8.0 * wait_s) as u64;
    let is_kernels = random.chance(0.6);
    if !is_kernels {
        conditions.line = Some(EmulatedLine {
            rate_bps: Some(rate_bps),
            queue_bytes: bytes,
            ..EmulatedLine::new(random.log_uniform(0.005, 0.05))
        });
    }
    let mut made = ScenarioDraft::new(conditions, Cause::PathRate, random);
    if is_kernels {
        let queue = KernelQueue { limit: bytes, ..queue(QueueKind::Tbf, rate_bps, 0.0, random) };
        made.shape(ShaperPlace::Router, &queue);
    }
    made.limited_to(rate_bps);
    made.seconds = Some((4.0, 8.0));
    made
}

/// Datagrams at a set rate. Below the shaper's rate the sender keeps to the rate it was asked for;
/// above it the path is the limit.
pub(super) fn udp_rate(random: &mut Dice) -> ScenarioDraft {
    let mut conditions = usual(random);
    datagrams(&mut conditions, random);
    conditions.message_bytes = conditions.message_bytes.max(600);
    let queue = queue(QueueKind::Tbf, rate(random, 2e6, 40e6), 0.0, random);
    let carried = queue.rate_bps as f64 * conditions.payload_share();
    let is_above = random.chance(0.5);
    let (least, most) = if is_above { (1.4, 3.0) } else { (0.2, 0.7) };
    let asked = carried * random.uniform(least, most);
    conditions.write_bps = Some(asked as u64);
    let mut made = ScenarioDraft::new(conditions, Cause::PathRate, random);
    let place = random.choose(&[ShaperPlace::SendersDevice, ShaperPlace::Router]);
    made.shape(place, &queue);
    made.limited_to(queue.rate_bps);
    if !is_above {
        made.cause = Cause::AsAsked;
        made.accepted = vec![Cause::ApplicationSend];
        made.limit_bps = Some(asked);
    }
    made
}

/// A limit of the sender's own QoS policy.
pub(super) fn qos_class(random: &mut Dice) -> ScenarioDraft {
    let mut conditions = usual(random);
    conditions.streams = random.choose(&[1, 1, 4]);
    let mut made = ScenarioDraft::new(conditions, Cause::QosClass, random);
    let rate_bps = rate(random, 5e6, 300e6);
    made.around.policy = Some(format!(
        "[filter.bulk]\nprotocol = \"tcp\"\npolicy = \"bulk\"\n\n[policy.bulk]\nlimit = \
         \"{rate_bps}bit\"\n\n[adapter.eth0]\nrate = \"10gbit\"\npolicies = [\"bulk\"]\n"
    ));
    made.limited_to(rate_bps);
    made
}

/// Usual conditions for one to eight flows.
fn few_flows(random: &mut Dice) -> Conditions {
    Conditions { streams: random.choose(&[1, 1, 1, 2, 4, 8]), ..usual(random) }
}

/// A draft through one shaper, on a LAN or behind a delay of the lab.
fn shaped(kind: QueueKind, mut conditions: Conditions, random: &mut Dice) -> ScenarioDraft {
    let is_far = random.chance(0.3);
    let rtt_s = random.log_uniform(0.002, 0.08);
    conditions.line = is_far.then(|| EmulatedLine::new(rtt_s));
    let most = if is_far { 100e6 } else { 800e6 };
    // The kernel's queue below a class holds 1000 frames of any size: on a slow line tens of
    // seconds.
    let least = match kind {
        QueueKind::Htb(LeafQueue::Kernels) => 40e6,
        _ => 2e6,
    };
    let rtt_s = if is_far { rtt_s } else { 0.0 };
    let queue = queue(kind, rate(random, least, most), rtt_s, random);
    behind(&queue, conditions, random)
}

/// A draft behind a queue at the sender's device or on a router.
pub(super) fn behind(
    queue: &KernelQueue,
    conditions: Conditions,
    random: &mut Dice,
) -> ScenarioDraft {
    let mut made = ScenarioDraft::new(conditions, Cause::PathRate, random);
    made.shape(random.choose(&[ShaperPlace::SendersDevice, ShaperPlace::Router]), queue);
    made.limited_to(queue.rate_bps);
    made
}

/// A queue with a bucket for what the kernel's timers miss. It holds 20 to 200 ms, or at least the
/// product of rate and delay, so that a flow of any congestion control fills the line.
pub(super) fn queue(kind: QueueKind, rate_bps: u64, rtt_s: f64, random: &mut Dice) -> KernelQueue {
    let bytes_per_s = rate_bps as f64 / 8.0;
    let wait_s = random.log_uniform(0.02, 0.2).max(rtt_s * random.uniform(1.0, 2.5));
    let burst = (bytes_per_s * TIMER_S).max(MIN_BURST);
    KernelQueue {
        kind,
        rate_bps,
        burst: burst as u64,
        limit: (bytes_per_s * wait_s + burst).max(MIN_QUEUE) as u64,
    }
}

/// A line of the lab's with a queue for its rate and round trip.
pub(super) fn queued_line(rate_bps: u64, rtt_s: f64, random: &mut Dice) -> EmulatedLine {
    EmulatedLine {
        rate_bps: Some(rate_bps),
        queue_bytes: queue(QueueKind::Tbf, rate_bps, rtt_s, random).limit,
        ..EmulatedLine::new(rtt_s)
    }
}

/// A full line whose CoDel drops or marks. Congestion is as right, if CoDel keeps a window
/// of CUBIC or Reno below what the line holds.
pub(super) fn codel_ecn(random: &mut Dice) -> ScenarioDraft {
    let mut conditions = usual(random);
    conditions.streams = random.choose(&[1, 1, 4, 8]);
    let rate_bps = rate(random, 5e6, 150e6);
    conditions.line = Some(EmulatedLine {
        rate_bps: Some(rate_bps),
        queue_bytes: (rate_bps / 8 / 4).max(262_144),
        codel: Some(random.chance(0.5)),
        ..EmulatedLine::new(random.log_uniform(0.004, 0.08))
    });
    let mut made = ScenarioDraft::new(conditions, Cause::PathRate, random);
    if made.conditions.control != CongestionControl::Bbr || made.is_control_free {
        made.accepted.push(Cause::Congestion);
    }
    made.limited_to(rate_bps);
    made
}

/// A policer behind a far faster line; the warm-up is long enough to empty its bucket.
pub(super) fn large_bucket_policer(random: &mut Dice) -> ScenarioDraft {
    let mut conditions = usual(random);
    let rate_bps = rate(random, 5e6, 40e6);
    let burst = (rate_bps as f64 / 8.0 * random.uniform(0.1, 0.5)) as u64;
    let is_kernels = random.chance(0.4);
    conditions.line = Some(EmulatedLine {
        policer: (!is_kernels).then_some((rate_bps, burst)),
        ..EmulatedLine::new(random.log_uniform(0.01, 0.06))
    });
    // A queue for three frames cannot hold one of segmentation offload.
    conditions.is_offload_off = is_kernels;
    let mut made = ScenarioDraft::new(conditions, Cause::Policer, random);
    if is_kernels {
        let queue = KernelQueue { kind: QueueKind::Tbf, rate_bps, burst, limit: 4_542 };
        made.shape(ShaperPlace::Router, &queue);
    }
    made.limited_to(rate_bps);
    made.seconds = Some((3.0, 8.0));
    made
}

/// A path on which large packets vanish without an answer. A sender that probes the MTU (RFC 4821)
/// finds it after some timeouts, and then fills the line.
pub(super) fn black_hole(random: &mut Dice) -> ScenarioDraft {
    let mut conditions = usual(random);
    let rate_bps = rate(random, 5e6, 30e6);
    let rtt_s = random.log_uniform(0.005, 0.04);
    conditions.line = Some(queued_line(rate_bps, rtt_s, random));
    let mut made = ScenarioDraft::new(conditions, Cause::PathRate, random);
    made.payloads_link().mtu =
        Some(Mtu { bytes: random.log_whole(1280, 1480) as u32, is_black_hole: true });
    let probing = ("net.ipv4.tcp_mtu_probing".to_owned(), "1".to_owned());
    made.sysctls.extend([probing]);
    made.limited_to(rate_bps);
    made.seconds = Some((7.0, 5.0));
    made
}

/// A transfer that ends while its flights are far below what the path holds.
pub(super) fn short_transfer(random: &mut Dice) -> ScenarioDraft {
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
        conditions.line = Some(EmulatedLine::new(rtt_s));
        let all = bytes as f64 * f64::from(conditions.streams);
        let queue = queue(QueueKind::Tbf, rate_bps, rtt_s, random);
        let mut made = ScenarioDraft::new(conditions, Cause::Startup, random);
        made.shape(ShaperPlace::Router, &queue);
        made.limit_bps = Some(all * 8.0 / (rtt_s * (1.0 + rounds)));
        return made;
    }
}

/// A wireless link: Wi-Fi sends what has gathered at once, and rests; the rate of LTE wanders.
pub(super) fn wifi_lte(random: &mut Dice) -> ScenarioDraft {
    let mean = rate(random, 5e6, 80e6) as f64;
    let trace = if random.chance(0.5) { aggregated(mean, random) } else { wandering(mean, random) };
    let rtt_s = random.log_uniform(0.005, 0.06);
    let mut made = on_trace(&trace, rtt_s, random);
    // No packet arrives before it is sent: three deviations are within the one-way delay, also
    // where the path is written down in whole microseconds.
    let most_s = (rtt_s / 2.0 * 1e6).floor() / 1e6 / 3.0;
    let size = Nanos((random.log_uniform(3e-4, 5e-3).min(most_s) * 1e9) as u64);
    let distribution = Distribution::Normal;
    made.payloads_link().jitter = Some(Jitter { distribution, size });
    made
}

/// A rate that steps up and down.
pub(super) fn rate_steps(random: &mut Dice) -> ScenarioDraft {
    let high = rate(random, 10e6, 100e6);
    let low = (high as f64 * random.uniform(0.3, 0.7)) as u64;
    let every_s = random.uniform(0.8, 2.0);
    if random.chance(0.5) {
        let steps = vec![(every_s, high), (every_s, low)];
        let rtt_s = random.log_uniform(0.005, 0.06);
        return on_trace(&RecordedRate { steps }, rtt_s, random);
    }
    let fast = queue(QueueKind::Tbf, high, 0.0, random);
    let slow = KernelQueue { rate_bps: low, ..fast };
    let mut made = ScenarioDraft::new(usual(random), Cause::PathRate, random);
    made.shape(ShaperPlace::Router, &fast);
    made.limited_to(low.midpoint(high));
    made.seconds = Some((1.0, 6.0));
    let commands = [slow.setup(), fast.setup()].concat();
    made.around.shapers[0].steps =
        Some(RateSteps { every: Span(Duration::from_secs_f64(every_s)), commands });
    made.around.shapers[0].words = format!("{slow} and {fast} in turn");
    made
}

/// A sequence of rates that is repeated.
struct RecordedRate {
    /// Length of each step, seconds, and its rate, bits/s.
    steps: Vec<(f64, u64)>,
}

/// A rate in rounds of 4 to 20 ms; everything is sent in the first part of each.
fn aggregated(mean: f64, random: &mut Dice) -> RecordedRate {
    let round_s = random.log_uniform(0.004, 0.02);
    let share = random.uniform(0.3, 0.7);
    RecordedRate {
        steps: vec![(round_s * share, (mean / share) as u64), (round_s * (1.0 - share), 0)],
    }
}

/// A rate in steps of 100 ms, most of them within a factor of two.
fn wandering(mean: f64, random: &mut Dice) -> RecordedRate {
    let factors: Vec<f64> = (0..20).map(|_| (0.4 * random.normal()).exp()).collect();
    let scale = mean * factors.len() as f64 / factors.iter().sum::<f64>();
    let step = |factor: &f64| (0.1, (factor * scale) as u64);
    RecordedRate { steps: factors.iter().map(step).collect() }
}

impl RecordedRate {
    fn seconds(&self) -> f64 {
        self.steps.iter().map(|(seconds, _)| seconds).sum()
    }

    fn mean_bps(&self) -> f64 {
        let steps = self.steps.iter();
        let bits = steps.map(|(seconds, bps)| seconds * *bps as f64);
        bits.sum::<f64>() / self.seconds()
    }

    /// The text that [`RateTrace::parse`](linerate_core::link::RateTrace::parse) reads.
    fn text(&self) -> String {
        let (mut text, mut at) = (String::new(), 0.0);
        for (seconds, bps) in &self.steps {
            let _ = writeln!(text, "{at:.6} {bps}bit");
            at += seconds;
        }
        let _ = writeln!(text, "{at:.6} end");
        text
    }
}

/// A draft on a link of the lab's with these rates and 0.3 s of queue in the payload's direction.
fn on_trace(trace: &RecordedRate, rtt_s: f64, random: &mut Dice) -> ScenarioDraft {
    let mut conditions = usual(random);
    conditions.streams = random.choose(&[1, 1, 4]);
    conditions.line = Some(EmulatedLine::new(rtt_s));
    let mut made = ScenarioDraft::new(conditions, Cause::PathRate, random);
    let link = made.payloads_link();
    link.trace = Some(NAME.to_owned());
    link.queue = QueueLimit::Bytes((trace.mean_bps() / 8.0 * 0.3).max(100_000.0) as u64);
    made.around.traces.insert(NAME.to_owned(), trace.text());
    made.limited_to(trace.mean_bps() as u64);
    made.seconds = Some((1.5, 6.0));
    made
}

/// The name of the rates in the path's spec.
const NAME: &str = "drawn";
/// A tick of HZ = 250, seconds.
const TIMER_S: f64 = 0.004;
/// Ten full frames, bytes.
const MIN_BURST: f64 = 15_140.0;
/// One frame of segmentation offload and a half, bytes: a queue for less drops each of them.
const MIN_QUEUE: f64 = 100_000.0;
