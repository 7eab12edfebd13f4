//! What one sample costs in CPU time. It is measured, because the kernel does not account for it.

use std::hint::black_box;
use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use linerate_sys::perf::{Clock, Record, Sampler, Sampling, Subject, records};
use linerate_sys::thread;

use crate::clock::{nanos, now_ns};

/// Samples a second during the measurement, if the kernel allows them.
pub(super) const HZ: u32 = 4999;
/// CPU time of the measurement: some three hundred samples at that rate. At a lower rate it takes
/// longer, until there are enough.
const LONG_ENOUGH: Duration = Duration::from_millis(60);
const MAX_TIME: Duration = Duration::from_millis(400);
/// The median of fewer calls would mean nothing.
const MIN_CALLS: usize = 20;
/// The longest it may take where others use the CPUs.
const PATIENCE: Duration = Duration::from_millis(1000);
/// Room for all of them.
const RING: usize = 256 << 10;
/// A call with so few bytes is short enough that a sample's interrupt shows in its length.
const DATAGRAM: [u8; 64] = [0; 64];
/// Steps of work in user mode that take about as long as such a call.
const STEPS: u32 = 1000;

/// CPU time of one sampling interrupt with its call chain, in seconds, for samples taken in this
/// way. `None` where this thread may not be sampled so, or where too few samples came.
///
/// While the thread is sampled it makes a short system call over and over (or does a short piece of
/// work, where only user mode is sampled). If n samples were taken, n calls were interrupted, and
/// those are the n longest. Their median less the median of all calls is the cost of an interrupt.
/// Other interrupts are rarer and do not move the medians. Only CPU time counts: it does not matter
/// if another thread had the CPU during a call.
pub(super) fn of_a_sample(sampling: &Sampling) -> Option<f64> {
    let sampling = Sampling { ring_bytes: RING, ..*sampling };
    let sampler = Sampler::open(Subject::Thread(thread::thread_id()), &sampling).ok()?;
    let (from, to) = UnixDatagram::pair().ok()?;
    let mut buffer = DATAGRAM;
    sampler.enable().ok()?;
    let calls = timed_calls(long_enough(sampling.clock), || {
        if sampling.user_only {
            work()
        } else {
            from.send(&DATAGRAM).is_ok() && to.recv(&mut buffer).is_ok()
        }
    });
    sampler.disable().ok()?;
    let mut bytes = Vec::new();
    sampler.drain(&mut bytes);
    let samples = records(&bytes).filter(|record| matches!(record, Record::Sample(_)));
    let spent = Duration::from_nanos(calls.iter().sum());
    let interrupts = interrupts(&sampling, samples.count() as u64, spent);
    cost(calls, interrupts as usize)
}

/// How many interrupts there were. Where only user mode is sampled, a timer also interrupts the
/// kernel, which gives no sample.
pub(super) fn interrupts(sampling: &Sampling, samples: u64, cpu_time: Duration) -> u64 {
    match sampling.clock {
        Clock::Timer { hz } if sampling.user_only => {
            (cpu_time.as_secs_f64() * f64::from(hz)) as u64
        }
        Clock::Timer { .. } | Clock::Cycles { .. } => samples,
    }
}

/// Long enough for half as many samples again as are needed.
fn long_enough(clock: Clock) -> Duration {
    let hz = match clock {
        Clock::Timer { hz } => hz.max(1),
        Clock::Cycles { .. } => HZ,
    };
    let needed = Duration::from_secs(1) * (MIN_CALLS as u32 * 3 / 2) / hz;
    needed.clamp(LONG_ENOUGH, MAX_TIME)
}

/// Work in user mode.
fn work() -> bool {
    (0..STEPS).for_each(|step| {
        black_box(step);
    });
    true
}

/// CPU time of each call, ns. It ends when one fails.
fn timed_calls(long_enough: Duration, mut call: impl FnMut() -> bool) -> Vec<u64> {
    let begun = thread::cpu_time();
    let until_ns = now_ns() + nanos(PATIENCE);
    let mut calls = Vec::with_capacity(1 << 16);
    let mut last = begun;
    while last - begun < long_enough && now_ns() < until_ns && call() {
        let now = thread::cpu_time();
        calls.push(nanos(now - last));
        last = now;
    }
    calls
}

/// The cost of an interrupt, from the lengths of all calls and the number of interrupted ones.
fn cost(mut calls: Vec<u64>, interrupts: usize) -> Option<f64> {
    if interrupts < MIN_CALLS || calls.len() < interrupts * 4 {
        return None;
    }
    calls.sort_unstable();
    let usual = calls[calls.len() / 2];
    let interrupted = calls[calls.len() - interrupts.div_ceil(2)];
    Some((interrupted - usual) as f64 / 1e9)
}

#[cfg(test)]
mod tests {
    use super::*;
    use linerate_testkit::{Need, skip};

    #[test]
    fn the_cost_is_what_interrupted_calls_take_more() {
        // 10,000 calls of about 2 µs, of which 200 take 5 µs more and 10 were preempted.
        let mut calls: Vec<u64> = (0..10_000).map(|n| 2000 + n % 100).collect();
        calls[..200].iter_mut().for_each(|call| *call += 5000);
        calls[500..510].iter_mut().for_each(|call| *call += 3_000_000);
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
    fn a_sample_costs_something_and_less_than_its_period_however_it_is_taken() {
        for user_only in [false, true] {
            let sampling =
                Sampling { clock: Clock::Timer { hz: HZ }, user_only, depth: 64, ring_bytes: RING };
            match of_a_sample(&sampling) {
                Some(cost) => {
                    println!("user mode alone: {user_only}, {:.1} µs", cost * 1e6);
                    assert!((0.0..1.0 / f64::from(HZ)).contains(&cost), "{cost}");
                }
                None => skip(Need::Perf, "this thread may not be sampled so, or had no CPU"),
            }
        }
    }

    #[test]
    fn a_timer_interrupts_what_is_not_sampled() {
        let sampling =
            |clock, user_only| Sampling { clock, user_only, depth: 64, ring_bytes: RING };
        let second = Duration::from_secs(1);
        let timer = Clock::Timer { hz: 499 };
        let cycles = Clock::Cycles { period: 1 << 20 };
        for (clock, user_only, expected) in
            [(timer, true, 499), (timer, false, 100), (cycles, true, 100)]
        {
            let sampling = sampling(clock, user_only);
            assert_eq!(interrupts(&sampling, 100, second), expected);
        }
    }

    #[test]
    fn a_low_rate_takes_longer_up_to_a_limit() {
        let at = |hz| long_enough(Clock::Timer { hz });
        assert_eq!(at(HZ), LONG_ENOUGH);
        assert_eq!(at(100), Duration::from_millis(300));
        assert_eq!(at(1), MAX_TIME);
    }
}
