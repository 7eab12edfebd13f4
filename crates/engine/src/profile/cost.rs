//! What one sample takes of a CPU: measured, as no account of the kernel's has it.

use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use linerate_sys::perf::{Record, Sampler, Sampling, Subject, records};
use linerate_sys::thread;

use crate::clock::{nanos, now_ns};

/// Samples a second while it is measured.
const HZ: u32 = 4999;
/// For so much CPU time, some three hundred samples; and no longer than this, if others have the CPUs.
const LONG_ENOUGH: Duration = Duration::from_millis(60);
const PATIENCE: Duration = Duration::from_millis(300);
/// Calls of this length and the sample's interrupt are told apart.
const DATAGRAM: [u8; 64] = [0; 64];

/// CPU time of one sampling interrupt with its call chain, seconds. `None` where this thread may not be sampled.
///
/// A short system call is made over and over while the thread is sampled. Of so many samples as were taken, as many calls
/// were interrupted: they are the longest ones. The median of those, less the median of all, is what an interrupt takes;
/// what else interrupts a call now and then is rarer and moves no median. All of it is CPU time: that others had the CPU in
/// a call does not count.
pub(super) fn of_a_sample() -> Option<f64> {
    let sampling = Sampling {
        hz: HZ,
        user_only: false,
        depth: 64,
        ring_bytes: 256 << 10,
    };
    let sampler = Sampler::open(Subject::Thread(thread::thread_id()), &sampling).ok()?;
    let (from, to) = UnixDatagram::pair().ok()?;
    sampler.enable().ok()?;
    let calls = timed_calls(&from, &to);
    sampler.disable().ok()?;
    let mut bytes = Vec::new();
    sampler.drain(&mut bytes);
    let samples = records(&bytes).filter(|record| matches!(record, Record::Sample(_)));
    cost(calls, samples.count())
}

/// CPU time of each call, ns.
fn timed_calls(from: &UnixDatagram, to: &UnixDatagram) -> Vec<u64> {
    let begun = thread::cpu_time();
    let until_ns = now_ns() + nanos(PATIENCE);
    let mut calls = Vec::with_capacity(1 << 16);
    let mut buffer = DATAGRAM;
    let mut last = begun;
    while last - begun < LONG_ENOUGH && now_ns() < until_ns {
        if from.send(&DATAGRAM).is_err() || to.recv(&mut buffer).is_err() {
            break;
        }
        let now = thread::cpu_time();
        calls.push(nanos(now - last));
        last = now;
    }
    calls
}

/// From calls' lengths, of which so many were interrupted by a sample.
fn cost(mut calls: Vec<u64>, samples: usize) -> Option<f64> {
    /// With fewer, the median of the longest is no figure.
    const FEWEST: usize = 20;
    if samples < FEWEST || calls.len() < samples * 4 {
        return None;
    }
    calls.sort_unstable();
    let usual = calls[calls.len() / 2];
    let interrupted = calls[calls.len() - samples.div_ceil(2)];
    Some((interrupted - usual) as f64 / 1e9)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cost_is_what_interrupted_calls_take_more() {
        // 10,000 calls of about 2 µs, of which 200 take 5 µs more and 10 were preempted.
        let mut calls: Vec<u64> = (0..10_000).map(|n| 2000 + n % 100).collect();
        calls[..200].iter_mut().for_each(|call| *call += 5000);
        calls[500..510]
            .iter_mut()
            .for_each(|call| *call += 3_000_000);
        let cost = cost(calls, 200).unwrap();
        assert!((cost - 5e-6).abs() < 0.2e-6, "{cost}");
    }

    #[test]
    fn few_samples_give_no_cost() {
        assert_eq!(cost(vec![2000; 10_000], 3), None);
        assert_eq!(cost(vec![2000; 100], 50), None);
        assert_eq!(cost(Vec::new(), 0), None);
    }

    #[test]
    fn a_sample_costs_something_and_less_than_its_period() {
        match of_a_sample() {
            Some(cost) => {
                println!("{:.1} µs", cost * 1e6);
                assert!((0.0..1.0 / f64::from(HZ)).contains(&cost), "{cost}");
            }
            None => println!("SKIPPED: this thread may not be sampled here"),
        }
    }
}
