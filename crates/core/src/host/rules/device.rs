//! Rules for network devices and the CPUs that serve them.

use super::super::advice::{Advice, DeviceView, NeededPath, Profile, Question};
use super::{PATH, at_least, at_most, change, fine, not_judged, open, power_of_two};

/// `netdev_max_backlog`: packets of a tick of 4 ms.
pub(in super::super) fn backlog(q: &Question<'_>) -> Advice {
    let why = "packets are dropped where a CPU is late by a tick of the clock";
    queue(q, 4_000.0, [1_000.0, f64::INFINITY], why)
}

/// Room for the packets that arrive in so many microseconds, within the range.
fn queue(q: &Question<'_>, us: f64, [min, max]: [f64; 2], why: &str) -> Advice {
    let Some(path) = &q.need.path else {
        return open(PATH);
    };
    let needed = packets(path, us).max(min).min(max);
    let right = power_of_two(needed).min(max.min(1e9) as u64);
    at_least(q, needed, right, why).with(vec![("rate_bps", path.rate_bps), ("needed", needed)])
}

/// `busy_poll`, `busy_read`.
pub(in super::super) fn polling(q: &Question<'_>) -> Advice {
    let can = q.view.devices.iter().any(|device| device.is_physical);
    match (q.now, q.need.profile) {
        ("0", Some(Profile::Lan)) if can => {
            change("50", "an interrupt and a wake-up are added to each round trip")
        }
        ("0", _) => fine("no CPU is spent on waiting"),
        _ => fine("calls spin for packets"),
    }
}

/// `cpu.governor`.
pub(in super::super) fn governor(q: &Question<'_>) -> Advice {
    let path = q.need.path.as_ref();
    let is_fast = path.is_some_and(|path| path.rate_bps >= 10e9);
    match (q.now, q.need.profile) {
        ("performance", _) => fine("the CPUs run at their full frequency"),
        (_, Some(Profile::Lan)) => {
            change("performance", "CPUs that slow down when idle answer late")
        }
        _ if is_fast => change(
            "performance",
            "one core carries one connection, and is not always at its full frequency",
        ),
        _ => fine("the rate needs no more"),
    }
}

/// Rings: packets of a millisecond, for a softirq that comes late.
pub(in super::super) fn rx_ring(q: &Question<'_>) -> Advice {
    let max = q.device.and_then(|device| device.rx_ring_max);
    let why = "packets are dropped where the CPU is late by a millisecond";
    ring(q, max, why)
}

/// Like [`rx_ring`].
pub(in super::super) fn tx_ring(q: &Question<'_>) -> Advice {
    let max = q.device.and_then(|device| device.tx_ring_max);
    let why = "the device runs dry where the CPU is late by a millisecond";
    ring(q, max, why)
}

fn ring(q: &Question<'_>, max: Option<u32>, why: &str) -> Advice {
    let max = max.map_or(f64::INFINITY, f64::from);
    queue(q, 1_000.0, [256.0, max], why)
}

/// `txqueuelen`: 0 is a device without a queue, which needs none.
pub(in super::super) fn queue_length(q: &Question<'_>) -> Advice {
    if q.now == "0" && q.need.path.is_some() {
        return fine("the device has no queue");
    }
    let why = "a burst of an application is dropped in this host";
    queue(q, 1_000.0, [1_000.0, f64::INFINITY], why)
}

/// `rx_usecs`: interrupts held back for longer than a quarter of the round trip show in it.
pub(in super::super) fn coalescing(q: &Question<'_>) -> Advice {
    let Some(path) = &q.need.path else {
        return open(PATH);
    };
    if q.device.is_some_and(|device| device.adapts) {
        return fine("the driver adapts it to the load");
    }
    let max = (path.rtt_us / 4.0).max(1.0).floor() as u64;
    let why = "held-back interrupts are a large part of each round trip";
    at_most(q, max, why).with(vec![("rtt_us", path.rtt_us)])
}

/// Offloads.
pub(in super::super) fn offload(q: &Question<'_>) -> Advice {
    match q.now {
        "off" => change(
            "on",
            "the CPU does for each packet what the device or one pass over a large frame would",
        ),
        "on" => fine("it is on"),
        _ => fine("the device fixes it"),
    }
}

/// `adaptive_rx`.
pub(in super::super) fn adaptive(q: &Question<'_>) -> Advice {
    match q.need.profile {
        Some(Profile::Lan) if q.now == "on" => {
            fine("it follows the load; `off` with few rx_usecs gives the least delay")
        }
        _ => fine("rx_usecs says how long interrupts are held back, or the driver does"),
    }
}

/// `rps_cpus`: one queue, many CPUs, a fast device.
pub(in super::super) fn receive_steering(q: &Question<'_>) -> Advice {
    let (Some(path), Some(device)) = (&q.need.path, q.device) else {
        return open(PATH);
    };
    let inputs = cpus_and_queues(q, device);
    // More queues spread packets by themselves; RPS on top costs an interrupt between CPUs for each
    // packet.
    if !device.is_physical || device.rx_queues > 1 || q.view.cpus < 2 {
        return fine("the queues are enough for the CPUs").with(inputs);
    }
    match (q.now, path.rate_bps >= 5e9) {
        ("none", true) => {
            let why =
                "all packets of a queue are worked on by the one CPU that takes its interrupt";
            change(cpu_list(q.view.cpus), why).with(inputs)
        }
        ("none", false) => fine("one CPU for each queue carries the rate").with(inputs),
        _ => fine("packets are spread").with(inputs),
    }
}

/// `xps_cpus`.
pub(in super::super) fn send_steering(q: &Question<'_>) -> Advice {
    let Some(device) = q.device else {
        return not_judged(q);
    };
    match (q.now, device.tx_queues) {
        (_, 0 | 1) => fine("there is one queue"),
        ("none", _) => fine(
            "queues are taken by the hash of flows; drivers that gain by XPS set it themselves",
        ),
        _ => fine("CPUs have queues of their own"),
    }
}

/// Interrupts of a device's queues.
pub(in super::super) fn interrupts(q: &Question<'_>) -> Advice {
    let Some(device) = q.device else {
        return not_judged(q);
    };
    let inputs = cpus_and_queues(q, device);
    // Queues with CPUs of their own read `0; 1; 2`.
    let is_one = !q.now.contains([',', '-', ';']);
    if device.rx_queues > 1 && q.view.cpus > 1 && is_one {
        let why = "the interrupts of all queues go to one CPU";
        change(cpu_list(q.view.cpus), why).with(inputs)
    } else {
        fine("as many CPUs as the queues can use may take them").with(inputs)
    }
}

/// Packets of 1500 bytes with their Ethernet headers that arrive in so many microseconds.
fn packets(path: &NeededPath, us: f64) -> f64 {
    (path.rate_bps * us / 1e6 / (8.0 * 1_514.0)).ceil()
}

fn cpus_and_queues(q: &Question<'_>, device: &DeviceView) -> Vec<(&'static str, f64)> {
    let (cpus, queues) = (q.view.cpus.into(), device.rx_queues.into());
    vec![("cpus", cpus), ("rx_queues", queues)]
}

fn cpu_list(cpus: u32) -> String {
    match cpus {
        0 | 1 => "0".to_owned(),
        cpus => format!("0-{}", cpus - 1),
    }
}
