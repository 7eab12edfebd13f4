//! Hosts whose CPUs are all taken, by both ends or by both directions.

use super::causes::small_window;
use super::scene::{SECONDS, Scene, end, tcp};
use crate::ceilings::{Cause, explain};
use crate::plan::Direction;
use crate::record::{EndReport, Leg};

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
    Scene {
        sender,
        receiver,
        ..tcp(20e9)
    }
}

#[test]
fn a_thread_that_waits_on_a_full_host_lacks_cpu() {
    let explained = full(contended(0.45, 0.15), contended(0.4, 0.12)).is(Cause::CpuSend);
    let share = explained.verdict.share_of_ceiling.unwrap();
    assert!((share - 0.98).abs() < 1e-9, "{share}");
    full(contended(0.4, 0.12), contended(0.45, 0.15)).is(Cause::CpuReceive);
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

/// Both directions of one kernel with two CPUs: four threads share them.
fn both(thread: [f64; 2]) -> Vec<Cause> {
    let [running, delayed] = thread;
    let scene = full(contended(running, delayed), contended(running, delayed));
    let mut record = scene.record();
    record.direction = Direction::Both;
    record.environment.shared_kernel = true;
    let down = Leg {
        direction: Direction::Down,
        ..record.legs[0].clone()
    };
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
    assert_eq!(both([0.4, 0.12]), [Cause::CpuReceive; 2]);
    assert_eq!(both([0.3, 0.12]), [Cause::CpuReceive; 2]);
    assert_eq!(both([0.1, 0.12]), [Cause::Unexplained; 2]);
    assert_eq!(both([0.4, 0.0]), [Cause::Unexplained; 2]);
}
