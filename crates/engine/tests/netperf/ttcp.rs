//! ttcp's bytes: a stream, datagrams, and a source.

use std::io::Read;

use linerate_core::foreign::Tool;
use linerate_core::plan::{Direction, Protocol};

use super::bench::{Bench, options};
use super::dialogue::{send_stream, tcp, udp};

#[test]
fn the_sink_counts_a_stream_to_its_end() {
    let bench = Bench::start();
    send_stream(bench.sink, 2048 * 8192);
    let record = bench.record();
    assert_eq!((record.via, record.bytes()), (Some(Tool::Ttcp), 2048 * 8192));
    assert_eq!(record.direction, Direction::Up);
}

#[test]
fn the_sink_counts_datagrams_until_the_short_ones() {
    let bench = Bench::start();
    let socket = udp(bench.sink);
    for _ in 0..50 {
        socket.send(&[7; 1024]).unwrap();
    }
    (0..5).for_each(|_| _ = socket.send(&[0; 4]).unwrap());
    let record = bench.record();
    assert_eq!((record.protocol, record.bytes()), (Protocol::Udp, 50 * 1024));
    assert_eq!(record.messages, Some(50));
}

#[test]
fn the_source_sends_until_its_reader_goes() {
    let bench = Bench::start();
    let mut stream = tcp(bench.source);
    stream.read_exact(&mut vec![0; 1 << 20]).unwrap();
    drop(stream);
    let record = bench.record();
    assert_eq!(record.direction, Direction::Down);
    assert!(record.bytes() >= 1 << 20);
}

#[test]
fn nothing_exceeds_the_rate_that_the_owner_has_set() {
    let mut slow = options();
    slow.limits.rate_bps = Some(8_000_000);
    let bench = Bench::with(&slow);
    let began = std::time::Instant::now();
    let mut stream = tcp(bench.source);
    stream.read_exact(&mut vec![0; 1 << 20]).unwrap();
    // A megabyte at a megabyte a second; what the buffers hold at the start comes at once.
    assert!(began.elapsed().as_secs_f64() > 0.3);
}
