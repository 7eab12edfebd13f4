//! UDP, as far as its counters go.

use super::scene::{end, udp};
use crate::ceilings::Cause;

#[test]
fn an_asked_rate_that_was_reached_is_no_bottleneck() {
    let mut scene = udp(10e6, 0.99);
    scene.udp[0].asked_bps = Some(10_000_000);
    // Spinning between departures takes a CPU and is no lack of one.
    scene.sender = end(0.0, 0.99);
    let verdict = scene.is(Cause::AsAsked).verdict;
    assert!(verdict.share_of_ceiling.is_some_and(|share| share > 0.98));
    assert_eq!(verdict.evidence[0], "1.0 % of the datagrams were lost on the path");
    assert_eq!(verdict.remedy, None);
}

#[test]
fn an_asked_rate_that_was_not_reached_is_the_cpus() {
    let mut scene = udp(600e6, 1.0);
    scene.udp[0].asked_bps = Some(1_000_000_000);
    scene.sender = end(0.0, 0.98);
    scene.is(Cause::CpuSend);
    scene.udp[0].lost = scene.udp[0].sent / 20;
    scene.is(Cause::CpuSend);
    scene.sender = end(0.1, 0.3);
    scene.is(Cause::Unexplained);
}

#[test]
fn more_than_the_path_carries_is_lost() {
    let mut scene = udp(100e6, 0.5);
    scene.udp[0].asked_bps = Some(100_000_000);
    scene.is(Cause::PathRate);
    scene.udp[0].asked_bps = None;
    scene.sender = end(0.0, 0.99);
    scene.is(Cause::PathRate);
}

/// 50 datagrams of queue at 55 Mbit/s are 10 ms; a bucket has none; losses by chance have neither.
#[test]
fn a_full_queue_a_bucket_and_noise_are_told_apart_by_delays_and_by_the_pattern_of_losses() {
    let lossy = |share, added_us, jitter_us, spacing| {
        let mut scene = udp(60e6, 1.0 - share);
        let udp = &mut scene.udp[0];
        udp.asked_bps = Some(60_000_000);
        (udp.added_delay_us, udp.jitter_us) = (Some(added_us), jitter_us);
        udp.loss_spacing_variation = Some(spacing);
        scene
    };
    let full = lossy(0.09, 10_000.0, 150.0, 0.4).is(Cause::PathRate).verdict;
    assert!(full.evidence[0].contains("a queue that added 10.0 ms"), "{full:?}");
    let policed = lossy(0.09, 60.0, 30.0, 0.3).is(Cause::Policer).verdict;
    assert!(policed.command().contains("--rate 54.6mbit"), "{policed:?}");
    let noisy = lossy(0.12, 60.0, 30.0, 0.94).is(Cause::AsAsked).verdict;
    assert!(noisy.evidence[0].ends_with("without a queue: noise"), "{noisy:?}");
    // Jitter is no queue, whatever it adds to the smallest delay.
    lossy(0.12, 12_000.0, 4_500.0, 0.94).is(Cause::AsAsked);
    // Next to nothing was lost.
    lossy(0.004, 10_000.0, 150.0, 0.4).is(Cause::AsAsked);
    // The queue has not overflowed yet.
    let mut filling = lossy(0.0, 100_000.0, 150.0, 0.4);
    filling.udp[0].delay_growth_percent = Some(2.0);
    let verdict = filling.is(Cause::PathRate).verdict;
    let says = |line: &String| line.contains("grew by 20.0 ms each second");
    assert!(verdict.evidence.iter().any(says), "{verdict:?}");
    // What jitter makes of it is none.
    filling.udp[0].delay_growth_error_percent = Some(0.9);
    filling.is(Cause::AsAsked);
}

#[test]
fn a_full_device_queue_puts_the_sender_to_sleep() {
    let mut scene = udp(100e6, 1.0);
    scene.sender = end(0.9, 0.1);
    scene.is(Cause::PathRate);
}

#[test]
fn drops_of_the_receivers_socket_are_not_the_paths() {
    let mut scene = udp(100e6, 0.5);
    scene.udp[0].socket_drops = Some(scene.udp[0].lost);
    scene.receiver = end(0.02, 0.3);
    scene.is(Cause::ApplicationReceive);
    scene.receiver = end(0.02, 0.97);
    scene.is(Cause::CpuReceive);
}

/// A netserver that is starved drops in its socket, and tells nobody.
#[test]
fn losses_of_which_nobody_tells_the_place_are_not_the_paths() {
    let mut scene = udp(100e6, 0.5);
    scene.sender = end(0.0, 0.99);
    scene.udp[0].socket_drops = None;
    let verdict = scene.is(Cause::Unexplained).verdict;
    let says = |line: &String| line.contains("it takes linerate at both ends");
    assert!(verdict.evidence.iter().any(says), "{verdict:?}");
    // Few of them leave a rate as it was asked for.
    let mut scene = udp(10e6, 0.99);
    scene.udp[0].asked_bps = Some(10_000_000);
    scene.udp[0].socket_drops = None;
    let verdict = scene.is(Cause::AsAsked).verdict;
    assert_eq!(verdict.evidence[0], "1.0 % of the datagrams were lost");
}
