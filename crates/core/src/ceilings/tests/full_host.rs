//! Hosts whose CPUs are all taken, by both ends or by both directions.

use super::causes::{bottleneck, small_window};
use super::scene::{SECONDS, Scene, end, tcp};
use crate::ceilings::{Cause, explain};
use crate::plan::Direction;
use crate::record::{CpuSeconds, EndReport, Leg, Record, StepRates};

/// A thread that ran and waited for a CPU for these shares of the time, on a full host of two CPUs.
fn contended(running: f64, delayed: f64) -> EndReport {
    EndReport {
        run_delay_us: Some((delayed * SECONDS * 1e6) as u64),
        host_cpu_percent: Some(98.0),
        cpus: 2,
        ..end(1.0 - running - delayed, running)
    }
}

fn full(sender: EndReport, receiver: EndReport) -> Scene {
    let mut scene = tcp(20e9);
    scene.window.unread_bytes = Some(900_000);
    Scene { sender, receiver, ..scene }
}

#[test]
fn a_thread_that_waits_on_a_full_host_lacks_cpu() {
    let explained = full(contended(0.45, 0.15), contended(0.4, 0.12)).is(Cause::CpuSend);
    let share = explained.verdict.share_of_ceiling.unwrap();
    assert!((share - 0.98).abs() < 1e-9, "{share}");
    full(contended(0.4, 0.12), contended(0.45, 0.15)).is(Cause::CpuReceive);
}

#[test]
fn a_starved_thread_is_not_given_more_flows() {
    let starved = full(contended(0.3, 0.1), contended(0.1, 0.85)).is(Cause::CpuReceive);
    let evidence = &starved.verdict.evidence[0];
    assert!(evidence.ends_with("85 % for a CPU that others had"), "{evidence}");
    let command = starved.verdict.command();
    assert!(command.starts_with("top -o %CPU  # on the endpoint's host"), "{command}");
    // One that runs as much as it can gets a second flow, where there are CPUs for it.
    let mut runs = full(contended(0.3, 0.1), contended(0.6, 0.35));
    (runs.sender_host.cpu.usable, runs.receiver_host.cpu.usable) = (4.0, 4.0);
    let command = runs.is(Cause::CpuReceive).verdict.command();
    assert!(command.ends_with("--streams 2"), "{command}");
}

#[test]
fn a_full_host_on_which_nothing_waits_is_no_cause() {
    // Work of idle priority, which leaves the CPU to whoever wants it.
    full(contended(0.5, 0.0), contended(0.4, 0.0)).is(Cause::Unexplained);
    let mut scene = small_window();
    (scene.sender, scene.receiver) = (contended(0.5, 0.02), contended(0.4, 0.02));
    scene.is(Cause::ReceiveWindow);
    let mut idle = full(contended(0.45, 0.15), contended(0.4, 0.12));
    (idle.sender.host_cpu_percent, idle.receiver.host_cpu_percent) = (Some(60.0), Some(60.0));
    idle.is(Cause::Unexplained);
}

/// Of 57 plain runs on kernel 6.1, 48 verdicts were right, whatever their evidence was.
#[test]
fn on_another_kernel_a_verdict_is_no_surer_than_those_that_were_judged_on_another() {
    let mut scene = small_window();
    scene.sender_host.kernel = "6.18.5".to_owned();
    let here = scene.is(Cause::ReceiveWindow).verdict;
    assert!(here.confidence.is_some_and(|sure| sure > 0.9), "{here:?}");
    for kernel in ["5.10.0-30-amd64", "6.1", "6.180.1"] {
        scene.sender_host.kernel = kernel.to_owned();
        let there = scene.is(Cause::ReceiveWindow).verdict;
        assert!(there.confidence.is_some_and(|sure| (0.8..0.85).contains(&sure)), "{there:?}");
        let says = there.evidence.last().expect("it has evidence");
        assert!(says.starts_with(&format!("the kernel is {kernel}: ")), "{says}");
    }
}

/// Both directions of one kernel with two CPUs: four threads share them.
fn both(thread: [f64; 2]) -> Vec<Cause> {
    let [running, delayed] = thread;
    let scene = full(contended(running, delayed), contended(running, delayed));
    let mut record = scene.record();
    record.direction = Direction::Both;
    record.environment.shared_kernel = true;
    let down = Leg { direction: Direction::Down, ..record.legs[0].clone() };
    record.legs.push(down);
    let mut down = record.flows[0].clone();
    down.direction = Direction::Down;
    record.flows.push(down);
    let explained = explain(&record);
    explained.iter().map(|e| e.verdict.cause).collect()
}

#[test]
fn four_threads_on_two_full_cpus_lack_cpu_in_both_directions() {
    // Of equal ends the receiver is asked first.
    assert_eq!(both([0.4, 0.15]), [Cause::CpuReceive; 2]);
    assert_eq!(both([0.35, 0.15]), [Cause::CpuReceive; 2]);
    assert_eq!(both([0.1, 0.12]), [Cause::Unexplained; 2]);
    assert_eq!(both([0.4, 0.0]), [Cause::Unexplained; 2]);
}

/// One flow over a veth pair of a host of two CPUs, as it was measured: 17.8 Gbit/s.
fn one_host(sender: [f64; 2], receiver: [f64; 2]) -> Record {
    let end = |[running, delayed]: [f64; 2]| EndReport {
        host_cpu_percent: Some(61.0),
        softirq_seconds: Some(2.0),
        cpu_seconds: CpuSeconds { user: 0.0, system: running * SECONDS },
        ..contended(running, delayed)
    };
    let mut record = full(end(sender), end(receiver)).record();
    record.environment.shared_kernel = true;
    record
}

#[test]
fn one_flow_whose_threads_together_fill_a_cpu_has_all_it_can_use() {
    let record = one_host([0.77, 0.02], [0.39, 0.02]);
    let verdict = explain(&record).remove(0).verdict;
    assert_eq!(verdict.cause, Cause::CpuHost, "{verdict:?}");
    let say = &verdict.evidence;
    assert!(say[0].contains("ran for 116 % of a CPU"), "{say:?}");
    assert!(say[1].contains("25 % with soft interrupts"), "{say:?}");
    // A link of 5 Gbit/s is slower than they are.
    let idle = explain(&one_host([0.3, 0.02], [0.25, 0.02])).remove(0);
    assert_eq!(idle.verdict.cause, Cause::Unexplained);
    let mut apart = record;
    apart.environment.shared_kernel = false;
    assert_ne!(explain(&apart).remove(0).verdict.cause, Cause::CpuHost);
}

/// A token bucket of 900 Mbit/s in the path of a host whose CPUs others fill.
#[test]
fn a_queue_with_an_even_rate_is_a_links_also_on_a_full_host() {
    let mut scene = full(contended(0.21, 0.36), contended(0.4, 0.5));
    scene.throughput_bps = 850e6;
    let flow = scene.flow();
    (flow.rtt_min_us, flow.rtt_mean_us) = (Some(7), 5_300);
    flow.rtt_var_us = 3_000;
    (flow.delivery_rate_bps, flow.delivery_rate_max_bps) =
        (Some(870_000_000), Some(12_000_000_000));
    let quarters = |record: &mut Record, half: f64| {
        record.legs[0].steps = Some(StepRates {
            step_s: 0.1,
            p25_bps: 850e6 * (1.0 - half),
            p50_bps: 850e6,
            p75_bps: 850e6 * (1.0 + half),
            p90_bps: 850e6 * (1.0 + 2.0 * half),
        });
    };
    let mut record = scene.record();
    quarters(&mut record, 0.003);
    let even = explain(&record).remove(0).verdict;
    assert_eq!(even.cause, Cause::PathRate, "{even:?}");
    quarters(&mut record, 0.2);
    let uneven = explain(&record).remove(0).verdict;
    assert_eq!(uneven.cause, Cause::CpuReceive, "{uneven:?}");
}

/// As read where a quota gave the receiver's CPU for 12 of each 100 ms: the window never closed.
#[test]
fn data_that_arrives_by_turns_is_held_by_a_cpu_and_not_by_a_link_also_at_an_even_rate() {
    let mut scene = bottleneck();
    scene.throughput_bps = 5.2e9;
    let flow = scene.flow();
    (flow.rtt_min_us, flow.rtt_mean_us, flow.rtt_var_us) = (Some(4), 2_683, 6);
    let cause = |median: u64| {
        let mut scene = scene.clone();
        scene.flow().delivery_rate_bps = Some(median);
        let mut record = scene.record();
        record.legs[0].steps = Some(StepRates {
            step_s: 0.1,
            p25_bps: 5.21e9,
            p50_bps: 5.28e9,
            p75_bps: 5.34e9,
            p90_bps: 5.40e9,
        });
        explain(&record).remove(0).verdict.cause
    };
    assert_eq!(cause(5_300_000_000), Cause::PathRate);
    assert_eq!(cause(16_100_000_000), Cause::Unexplained);
}

/// A slow link drains in bursts of a bucket, or changes its rate: no step has the mean.
#[test]
fn a_queue_longer_than_the_path_is_a_links_however_its_rate_changes() {
    let mut record = bottleneck().record();
    let rate = 46e6;
    record.legs[0].steps = Some(StepRates {
        step_s: 0.1,
        p25_bps: 0.0,
        p50_bps: 0.66 * rate,
        p75_bps: 1.34 * rate,
        p90_bps: 3.0 * rate,
    });
    let uneven = explain(&record).remove(0).verdict;
    assert_eq!(uneven.cause, Cause::PathRate, "{uneven:?}");
    let clear = explain(&bottleneck().record()).remove(0).verdict;
    assert_eq!(uneven.confidence, clear.confidence, "{uneven:?}");
}

#[test]
fn a_reader_with_little_to_read_keeps_up_however_long_it_waits_for_a_cpu() {
    let mut scene = full(contended(0.01, 0.25), contended(0.1, 0.51));
    scene.throughput_bps = 17e6;
    scene.is(Cause::CpuReceive);
    // Less than a segment.
    for unread in [0, 600] {
        scene.window.unread_bytes = Some(unread);
        assert_ne!(scene.explain().verdict.cause, Cause::CpuReceive, "{unread}");
    }
    scene.window.unread_bytes = Some(1448);
    scene.receiver = contended(0.013, 0.51);
    assert_ne!(scene.explain().verdict.cause, Cause::CpuReceive);
}

/// As it was measured: all threads of both ends were kept on one of two CPUs, the other was idle.
#[test]
fn threads_that_wait_beside_an_idle_cpu_have_all_that_they_may_use() {
    let end = |system: f64, running: f64, delayed: f64| EndReport {
        host_cpu_percent: Some(50.0),
        cpu_seconds: CpuSeconds { user: 0.0, system },
        ..contended(running, delayed)
    };
    let ends = (end(2.53, 0.042, 0.65), end(1.27, 0.025, 0.4));
    let mut record = full(ends.0, ends.1).times(16).record();
    record.environment.shared_kernel = true;
    let verdict = explain(&record).remove(0).verdict;
    assert_eq!(verdict.cause, Cause::CpuHost, "{verdict:?}");
}
