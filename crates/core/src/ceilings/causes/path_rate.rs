//! The slowest link of the path: known from a device, or shown by the queue in front of it.

use super::super::formulas::{ETHERNET_BYTES, ETHERNET_HEADER_BYTES};
use super::super::remedy::rate;
use super::super::signals::{DatagramLosses, Inflation};
use super::super::small_segments::queue_of_cpu;
use super::super::thresholds::{
    CPU_TAKEN, DATAGRAMS_LOST, DATAGRAMS_OVER, DEEP_QUEUE, EXACT_TOLERANCE, MODEL_TOLERANCE,
    PLATEAU, QUEUE_DELAY_US, QUEUE_INFLATION, SHORT_QUEUE_INFLATION, USUAL_STATE, WINDOW_USED,
};
use super::super::view::{View, bps, percent};
use super::{Basis, Cause, Ceiling, Rule, Signs, policer};
use crate::record::{DeviceFacts, HostFacts};
use crate::remedy::{Remedy, RunOption};
use crate::units::digits;

/// The link of one of the two hosts.
pub(super) const LINK: Rule = Rule {
    cause: Cause::PathRate,
    basis: Basis::Computed,
    tolerance: EXACT_TOLERANCE,
    ceiling: link_ceiling,
    signs: link_signs,
    remedy: |_, _| None,
};

/// A link somewhere between them.
pub(super) const QUEUE: Rule = Rule {
    cause: Cause::PathRate,
    basis: Basis::Fitted,
    tolerance: MODEL_TOLERANCE,
    ceiling: queue_ceiling,
    signs: queue_signs,
    remedy: queue_remedy,
};

/// A link between them, if only the receiver's kernel was read.
pub(super) const RECEIVED: Rule = Rule {
    cause: Cause::PathRate,
    basis: Basis::Fitted,
    tolerance: MODEL_TOLERANCE,
    ceiling: received_ceiling,
    signs: received_signs,
    remedy: |_, _| None,
};

/// A link that a packet train has found. A run that reaches what it carries has no more to get,
/// also where no queue tells; and it stays when something else is lifted.
pub(super) const TRAIN: Rule = Rule {
    cause: Cause::PathRate,
    basis: Basis::Modelled,
    tolerance: MODEL_TOLERANCE,
    ceiling: train_ceiling,
    signs: train_signs,
    remedy: |_, _| None,
};

fn link_ceiling(view: &View<'_>) -> Option<Ceiling> {
    let speed = slower_link_bps([view.sender_host, view.receiver_host])?;
    let share = view.payload_share(ETHERNET_BYTES)?;
    let formula = "link rate × payload ÷ (payload + headers + Ethernet's 38 bytes)";
    let ceiling = Ceiling::new(speed * share, formula)
        .input("link_bps", Some(speed))
        .input("payload_share", Some(share));
    Some(ceiling)
}

/// The speed of the slower of both hosts' devices, bits per second, if one is true.
pub(in super::super) fn slower_link_bps(hosts: [Option<&HostFacts>; 2]) -> Option<f64> {
    hosts.into_iter().flatten().filter_map(believable_speed).reduce(f64::min)
}

/// The speed of a host's device. Virtual devices have none, or report one that is not true (veth:
/// 10 Gbit/s; a guest's: that of a card which it shares); a bond has the sum of links of which a
/// flow uses one.
pub(super) fn believable_speed(host: &HostFacts) -> Option<f64> {
    let device = host.device.as_ref()?;
    let speed = device.speed_bps.filter(|bps| *bps > 0)?;
    (!is_virtual(device)).then_some(speed as f64)
}

fn is_virtual(device: &DeviceFacts) -> bool {
    const KINDS: [&str; 24] = [
        "veth",
        "loopback",
        "tun",
        "tap",
        "bridge",
        "dummy",
        "ifb",
        "virtio_net",
        "vmxnet3",
        "hv_netvsc",
        "xen_netfront",
        "vif",
        "ena",
        "gve",
        "iavf",
        "igbvf",
        "ixgbevf",
        "vxlan",
        "geneve",
        "wireguard",
        "bonding",
        "bond",
        "team",
        "macvlan",
    ];
    let driver = device.driver.as_deref().unwrap_or_default();
    device.name == "lo" || KINDS.contains(&driver)
}

fn link_signs(view: &View<'_>) -> Option<Signs> {
    let share = view.throughput_bps / link_ceiling(view)?.limit_bps;
    let say = "of what the slower of both ends' links carries";
    Signs::new((share - 1.0).abs() <= EXACT_TOLERANCE, [format!("{} {say}", percent(share))])
}

/// Only if a queue or loss shows that a link is full: else the delivery rate is what another cause
/// allows.
fn queue_ceiling(view: &View<'_>) -> Option<Ceiling> {
    if !queue_signs(view)?.hold {
        return None;
    }
    if !view.udp.is_empty() {
        let formula = "rate at which datagrams arrived";
        let ceiling =
            Ceiling::new(view.throughput_bps, formula).input("lost_share", view.datagrams_lost());
        return Some(ceiling.dependent());
    }
    let stands = view.has_queue(QUEUE_INFLATION);
    // Behind a queue that stands each step has what the path gives.
    let steps = view.steps.filter(|_| stands).map(|steps| steps.p50_bps);
    let limit = view.delivery_bps()?.min(steps.unwrap_or(f64::INFINITY));
    // Behind one that is longer than the path the run has all that the path gave, in steps or
    // bursts.
    let limit = if view.has_queue(DEEP_QUEUE) { limit.max(view.throughput_bps) } else { limit };
    let formula = "delivery rate with a full queue (largest; of several flows Σ medians)";
    let ceiling = Ceiling::new(limit, formula)
        .input("delivery_rate_bps", Some(limit))
        .input("rtt_inflation", view.inflation().map(|i| i.ratio));
    Some(ceiling.dependent())
}

/// The rate of a packet train before the run.
fn train_ceiling(view: &View<'_>) -> Option<Ceiling> {
    let train = view.train.filter(|train| {
        train.dispersion_us >= SHORTEST_DISPERSION_US && train.link_bps <= FASTEST_TRAIN_BPS
    })?;
    let share = view.payload_share(ETHERNET_HEADER_BYTES)?;
    let formula = "rate of a packet train (datagrams back to back) × payload ÷ (payload + headers)";
    let ceiling = Ceiling::new(train.link_bps * share, formula)
        .input("train_link_bps", Some(train.link_bps))
        .input("payload_share", Some(share));
    Some(ceiling)
}

/// A policer or shaper with a bucket lets a train through faster than a run.
fn train_signs(view: &View<'_>) -> Option<Signs> {
    let share = view.throughput_bps / train_ceiling(view)?.limit_bps;
    let say =
        "of the link's rate, which packet trains (datagrams back to back) found before the run";
    Signs::new(
        (share - 1.0).abs() <= EXACT_TOLERANCE,
        [format!("the rate is {} {say}", percent(share))],
    )
}

/// A queue that stands, or a short one behind which the rate stays on a plateau. BBR leaves hardly
/// a queue: its plateau, with loss that it may take for noise, is the rate that it found, and so it
/// is with any loss at a queue too short for what it keeps in flight.
fn queue_signs(view: &View<'_>) -> Option<Signs> {
    if !view.udp.is_empty() {
        return datagram_signs(view);
    }
    let inflation = view.inflation()?;
    let network = view.is_held_by_network();
    let full = view.window_use().is_some_and(|share| share >= WINDOW_USED);
    let plateau = view.plateau().is_some_and(|share| share >= PLATEAU);
    let policed = policer::signs(view).is_some_and(|signs| signs.hold);
    let bbr = view.ignores_loss() && view.keeps_its_pace();
    // In packets only a queue shows a link: a sender that keeps its rate by itself is as even.
    let is_noise = view.loss_is_noise() && !view.is_of_packets();
    let found = plateau && bbr && (is_noise || view.holds_queue()) && network && !policed;
    let short = network && plateau && full && view.queue_or_marks() && !view.losses_are_random();
    let stands = inflation.is_queue(QUEUE_INFLATION)
        && view.queues_a_segment()
        && !is_wait_for_cpu(view, inflation);
    let is_link = stands || short || found || view.is_shaped();
    let is_own = view.arrives_by_turns() || view.sends_one_by_one();
    Signs::new(is_link && !is_own, queue_sentences(view, inflation))
}

/// On a short path packets and acknowledgements wait for the scheduler if others have the hosts'
/// CPUs, and for the soft interrupts of a CPU if they are many and small.
fn is_wait_for_cpu(view: &View<'_>, inflation: Inflation) -> bool {
    let mut threads = [view.writer(), view.reader()].into_iter().flatten();
    let taken = threads.any(|thread| thread.delayed >= CPU_TAKEN);
    inflation.may_be_of_cpus() && taken || queue_of_cpu(view).is_some()
}

/// Behind a queue the receiver's own estimate of the round trip is long, too. It is also long if
/// the sender paused, so its program must be known to write without a rest, as linerate and the
/// tools of a test do. The window must have room, and the reader must wait.
fn received_signs(view: &View<'_>) -> Option<Signs> {
    let receivers = view.receivers_alone();
    if receivers.is_empty() {
        return None;
    }
    let (stream, reader, _) = (view.stream()?, view.reader()?, view.sender?);
    let each = view.throughput_bps / 8.0 / receivers.len() as f64;
    let (mut shortest, mut mean, mut room) = (f64::INFINITY, 0.0, true);
    for receiver in &receivers {
        let rtt_us = f64::from(receiver.rtt_mean_us?);
        shortest = shortest.min(receiver.rtt_min_us?.into());
        mean += rtt_us / receivers.len() as f64;
        let in_flight = each * rtt_us / 1e6;
        room &= in_flight <= WINDOW_USED * receiver.window_bytes? as f64;
    }
    // BBR leaves a short queue, but a link keeps its rate as a clock does.
    let least = if view.is_even() { SHORT_QUEUE_INFLATION } else { QUEUE_INFLATION };
    let queue = mean >= least * shortest && mean - shortest >= QUEUE_DELAY_US;
    let waits = reader.blocked >= USUAL_STATE && stream.write_rate_bps.is_none();
    Signs::new(
        queue && waits && room,
        [format!(
            "data came {} ms after it was due, by the receiver's own round trips, and the reader \
             waited for data (in recv) for {} of the time",
            digits((mean - shortest) / 1e3),
            percent(reader.blocked)
        )],
    )
}

fn received_ceiling(view: &View<'_>) -> Option<Ceiling> {
    let formula = "rate at which data came out of the queue";
    let ceiling = Ceiling::new(view.throughput_bps, formula).dependent();
    received_signs(view)?.hold.then_some(ceiling)
}

fn queue_sentences(view: &View<'_>, inflation: Inflation) -> Vec<String> {
    let mut say = vec![format!(
        "the RTT under load is {} times the smallest (+{} ms)",
        digits(inflation.ratio),
        digits(inflation.delay_us / 1e3)
    )];
    say.extend(view.plateau().zip(view.delivery_bps()).map(|(share, rate)| {
        let (share, rate) = (percent(share), bps(rate));
        format!("{share} of the delivery rate of {rate}")
    }));
    say
}

/// Without delays a queue and a policer cannot be told apart: a queue that is always full delays
/// all datagrams alike, so that the jitter does not show it. A sender that sleeps in send waits for
/// the queue of its own device.
fn datagram_signs(view: &View<'_>) -> Option<Signs> {
    let lost = view.datagrams_lost()?;
    let blocked = view.writer().map_or(0.0, |writer| writer.blocked);
    let losses = view.datagram_losses();
    let is_full = match losses {
        Some(DatagramLosses::FullQueue) => true,
        Some(DatagramLosses::Unknown) => lost >= DATAGRAMS_LOST,
        Some(DatagramLosses::Bucket | DatagramLosses::ByChance) | None => false,
    };
    let by = match view.datagrams_delayed_us() {
        Some(us) => format!("behind a queue that added {} ms", digits(us / 1e3)),
        None => "by a full queue or a policer".to_owned(),
    };
    let growth = view.datagrams_delay_growth().filter(|growth| *growth >= DATAGRAMS_OVER);
    let grows = growth.map(|growth| {
        format!("their delay grew by {} ms each second: a queue filled", digits(growth * 1e3))
    });
    let say = format!(
        "{} of the datagrams were lost on the path, {by}; the sender was blocked in send for {} \
         of the time",
        percent(lost),
        percent(blocked)
    );
    Signs::new(is_full || blocked >= USUAL_STATE, [say].into_iter().chain(grows))
}

/// No command makes a link faster, but its rate can be had without its queue.
fn queue_remedy(view: &View<'_>, _: f64) -> Option<Remedy> {
    let is_long = view.has_queue(QUEUE_INFLATION) || view.holds_queue();
    let queue = view.inflation().filter(|_| is_long && view.udp.is_empty())?;
    let each = BELOW_THE_LINK * view.throughput_bps / view.flow_count() as f64;
    let remedy = Remedy::option(RunOption::Pacing, rate(each).typed());
    Some(remedy.because(format!(
        "no faster, but without the queue of {} ms; fq_codel or cake on the router before the \
         link does the same",
        digits(queue.delay_us / 1e3)
    )))
}

/// Shortest dispersion of a train, µs: in a shorter one the steps of the clocks are too large a
/// part.
const SHORTEST_DISPERSION_US: f64 = 1000.0;
/// A train that left no faster than it arrived was held by the sender's own CPU: above this it says
/// nothing of the path.
const FASTEST_TRAIN_BPS: f64 = 2e9;
/// Pacing over the rate of a link, at which its queue drains.
const BELOW_THE_LINK: f64 = 0.95;
