//! How fast a capture is followed: of a file that is named, or of one made here.
//!
//! `cargo bench -p linerate-capture --bench follow [-- FILE]`. Beside it, for the same file:
//! `tcptrace -l -r FILE` and `tshark -q -z conv,tcp -r FILE`. The round trips of its largest
//! connection are to be those of `tcptrace -l -r`.

#[path = "../tests/simulation/mod.rs"]
mod simulation;

use std::fs::File;
use std::io::{Cursor, Read};
use std::time::Instant;

use linerate_capture::{Flow, follow};
use simulation::{Transfer, USUAL};

#[allow(
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a benchmark has a clock and says what it found"
)]
fn main() {
    let named = std::env::args().skip(1).find(|argument| !argument.starts_with("--"));
    for run in 0..RUNS {
        let began = Instant::now();
        let capture = match &named {
            Some(path) => {
                let file = File::open(path).expect("the file can be read");
                follow(file, 10_000, |_| true)
            }
            None => follow(repeated(), 10_000, |_| true),
        };
        let capture = capture.expect("it has TCP in it");
        let seconds = began.elapsed().as_secs_f64();
        let (bytes, packets) = (capture.file_bytes as f64, capture.packets as f64);
        println!(
            "{:.0} MB, {packets} packets, {} connections: {seconds:.3} s, {:.2} GB/s, {:.0} ns a \
             packet",
            bytes / 1e6,
            capture.flows.len(),
            bytes / seconds / 1e9,
            seconds * 1e9 / packets
        );
        if run + 1 == RUNS {
            println!("{}", round_trips(&capture.flows[0]));
        }
    }
}

/// Each reading's mean, with as much weight as it had samples.
fn round_trips(flow: &Flow) -> String {
    let sent = flow.sent_by(flow.main_sender());
    let rtts = sent.readings.iter();
    let mut rtts: Vec<(u64, u64)> =
        rtts.filter_map(|r| Some((r.rtt?.0 / 1000, r.rtt_samples))).collect();
    rtts.sort_unstable();
    let samples: u64 = rtts.iter().map(|(_, samples)| samples).sum();
    let sum: u64 = rtts.iter().map(|(us, samples)| us * samples).sum();
    let mut before = 0;
    let median = rtts.iter().find(|(_, some)| {
        before += some;
        before * 2 >= samples
    });
    format!(
        "{samples} round trips: mean {} us, median {} us, least {} us",
        sum / samples.max(1),
        median.map_or(0, |(us, _)| *us),
        sent.rtt_min.unwrap_or_default().0 / 1000
    )
}

/// A transfer's packets over and over, whole frames: what is captured without a snap length.
fn repeated() -> impl Read + Send + 'static {
    let transfer = Transfer { bytes: 20_000_000, ..Transfer::default() };
    let packets = transfer.run().packets;
    let file = simulation::File { snap: 65_535, ..USUAL };
    let head = file.write(&[]);
    let whole = file.write_whole(&packets);
    let body = whole[head.len()..].to_vec();
    (0..TIMES).fold(Box::new(Cursor::new(head)) as Box<dyn Read + Send>, |before, _| {
        Box::new(before.chain(Cursor::new(body.clone())))
    })
}

const RUNS: usize = 5;
const TIMES: usize = 10;
