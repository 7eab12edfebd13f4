//! How fast a capture is followed: of a file that is named, or of one made here.
//!
//! `cargo bench -p linerate-capture --bench follow [-- FILE]`. Beside it, for the same file:
//! `tcptrace -l -r FILE` and `tshark -q -z conv,tcp -r FILE`.

#[path = "../tests/simulation/mod.rs"]
mod simulation;

use std::fs::File;
use std::io::{Cursor, Read};
use std::time::Instant;

use linerate_capture::follow;
use simulation::{Transfer, USUAL};

#[allow(
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a benchmark has a clock and says what it found"
)]
fn main() {
    let named = std::env::args()
        .skip(1)
        .find(|argument| !argument.starts_with("--"));
    for _ in 0..RUNS {
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
            "{:.0} MB, {packets} packets, {} connections: {seconds:.3} s, {:.2} GB/s, {:.0} ns a packet",
            bytes / 1e6,
            capture.flows.len(),
            bytes / seconds / 1e9,
            seconds * 1e9 / packets
        );
    }
}

/// A transfer's packets over and over, whole frames: what is captured without a snap length.
fn repeated() -> impl Read + Send + 'static {
    let transfer = Transfer {
        bytes: 20_000_000,
        ..Transfer::default()
    };
    let packets = transfer.run().packets;
    let file = simulation::File {
        snap: 65_535,
        ..USUAL
    };
    let head = file.write(&[]);
    let whole = file.write_whole(&packets);
    let body = whole[head.len()..].to_vec();
    (0..TIMES).fold(
        Box::new(Cursor::new(head)) as Box<dyn Read + Send>,
        |before, _| Box::new(before.chain(Cursor::new(body.clone()))),
    )
}

const RUNS: usize = 5;
const TIMES: usize = 10;
