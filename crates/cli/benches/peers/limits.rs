//! What no program on this machine can be faster than: the costs that its kernel and CPUs have
//! without a network.

use std::hint::black_box;
use std::io::{Read, Write};
use std::os::unix::process::parent_id;
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::cases::{Copies, Workload};
use crate::measurement::Metric;

/// The best of several short measurements each: what disturbs only makes them slower.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Limits {
    /// A copy out of a buffer of 128 KiB into memory that no cache of a core holds, bytes/s.
    pub(crate) copy_bytes_per_s: f64,
    /// The least system call, ns.
    pub(crate) call_ns: f64,
    /// There and back between two threads that wait for each other in a pipe, ns: two wake-ups.
    pub(crate) wake_ups_ns: f64,
}

const TRIES: usize = 5;
const BUFFER: usize = 128 << 10;
const MEMORY: usize = 16 << 20;

impl Limits {
    /// Takes half a second.
    pub(crate) fn measure() -> anyhow::Result<Self> {
        Ok(Self {
            copy_bytes_per_s: MEMORY as f64 / copy().as_secs_f64(),
            call_ns: calls().as_nanos() as f64 / f64::from(CALLS),
            wake_ups_ns: wake_ups()?.as_nanos() as f64 / f64::from(TURNS),
        })
    }

    /// What `metric` cannot be beyond, and why; `None` where that is not known.
    pub(crate) fn of(&self, workload: Workload, metric: Metric) -> Option<(f64, &'static str)> {
        match (workload, metric) {
            (
                Workload::Stream {
                    copies: Copies::Both,
                    ..
                },
                Metric::Goodput,
            ) => Some((
                self.copy_bytes_per_s * 8.0 / 1e9,
                "a copy at each end, on a CPU each",
            )),
            (
                Workload::Stream {
                    copies: Copies::Both,
                    ..
                },
                Metric::UnitsPerSecond,
            ) => Some((1e6 / self.call_ns, "a system call for each message")),
            (
                Workload::Requests {
                    spin: false,
                    flows: 1,
                    depth: 1,
                    ..
                }
                | Workload::Connections { flows: 1 },
                Metric::UnitsPerSecond,
            ) => Some((1e6 / self.wake_ups_ns, "two wake-ups for each transaction")),
            _ => None,
        }
    }
}

fn best(measure: impl FnMut() -> Duration) -> Duration {
    let measured = std::iter::repeat_with(measure).take(TRIES);
    measured.min().unwrap_or_default()
}

fn copy() -> Duration {
    let buffer = vec![1_u8; BUFFER];
    let mut memory = vec![0_u8; MEMORY];
    best(|| {
        let began = Instant::now();
        for piece in black_box(&mut memory).chunks_exact_mut(BUFFER) {
            piece.copy_from_slice(black_box(&buffer));
        }
        began.elapsed()
    })
}

const CALLS: u32 = 100_000;

fn calls() -> Duration {
    best(|| {
        let began = Instant::now();
        for _ in 0..CALLS {
            black_box(parent_id());
        }
        began.elapsed()
    })
}

const TURNS: u32 = 5_000;

fn wake_ups() -> anyhow::Result<Duration> {
    let (mut asked, mut ask) = std::io::pipe()?;
    let (mut answered, mut answer) = std::io::pipe()?;
    let other = thread::spawn(move || {
        let mut byte = [0];
        while asked.read_exact(&mut byte).is_ok() && answer.write_all(&byte).is_ok() {}
    });
    let mut byte = [0];
    let mut failed = None;
    let least = best(|| {
        let began = Instant::now();
        for _ in 0..TURNS {
            let turn = ask
                .write_all(&byte)
                .and_then(|()| answered.read_exact(&mut byte));
            failed = turn.err().or(failed.take());
        }
        began.elapsed()
    });
    drop(ask);
    let _ = other.join();
    failed.map_or(Ok(least), |error| Err(error.into()))
}
