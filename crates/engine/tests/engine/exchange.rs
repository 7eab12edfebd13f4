//! `rr`, `crr` and whole transfers.

use std::time::Duration;

use linerate_core::plan::*;
use linerate_core::record::Caveat;
use linerate_core::units::{ByteCount, Span};

use super::support::run;

const EXCHANGE: ExchangeTest = ExchangeTest::new(1, 1);

fn test(traffic: Traffic, extent: Extent) -> Test {
    Test {
        traffic,
        protocol: Protocol::Tcp,
        direction: Direction::Up,
        streams: 2,
        extent,
        warm_up: Span(Duration::ZERO),
        interval: Span(Duration::from_millis(100)),
        options: SocketOptions::default(),
        seed: 7,
    }
}

fn whole() -> StreamTest {
    StreamTest { verify: true, whole: true, ..StreamTest::new(1024) }
}

#[test]
fn rr_counts_every_transaction_of_every_flow() {
    for protocol in [Protocol::Tcp, Protocol::Udp] {
        let record = run(&Test { protocol, ..test(Traffic::Rr(EXCHANGE), Extent::Count(500)) });
        // Over UDP an answer that a slow machine delays by more than 200 ms has failed.
        let (answered, failed) = (record.transactions.unwrap(), record.failed.unwrap());
        assert!(failed == 0 || protocol == Protocol::Udp, "{failed}");
        assert_eq!(answered + failed, 1000, "{protocol:?}");
        assert_eq!(record.latency_us.unwrap().count, answered);
        assert!(record.caveats.iter().all(|c| !c.message.contains("ended early")));
    }
}

/// More connections than CPUs share threads.
fn many() -> u32 {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    2 * cpus as u32 + 3
}

#[test]
fn connections_that_share_threads_lose_no_transaction() {
    let sizes = [(1, 1, 1), (1, 1, 16), (100_000, 300_000, 2), (3, 70_000, 5)];
    for (request_bytes, response_bytes, depth) in sizes {
        let exchange = ExchangeTest { depth, ..ExchangeTest::new(request_bytes, response_bytes) };
        let record =
            run(&Test { streams: many(), ..test(Traffic::Rr(exchange), Extent::Count(50)) });
        let what = format!("{request_bytes} {depth}: {:?}", record.caveats);
        assert_eq!(record.transactions, Some(50 * u64::from(many())), "{what}");
        assert_eq!(record.failed, Some(0), "{what}");
        let early = |caveat: &Caveat| caveat.message.contains("ended early");
        assert!(!record.caveats.iter().any(early), "{what}");
    }
}

#[test]
fn connections_that_share_threads_end_by_time_with_a_figure_of_each() {
    let time = Extent::Time(Span(Duration::from_millis(300)));
    let record = run(&Test { streams: many(), ..test(Traffic::Rr(EXCHANGE), time) });
    assert_eq!(record.flows.len(), many() as usize);
    // On each connection one may be under way when the run is over and nobody waits any more.
    assert!(record.failed <= Some(many().into()), "{:?}", record.failed);
    assert!(record.seconds >= 0.3, "{}", record.seconds);
}

#[test]
fn a_page_is_complete_with_its_last_object() {
    let pages =
        ExchangeTest { objects: Some(7), rate_per_s: Some(200.0), ..ExchangeTest::new(100, 3_000) };
    let time = Extent::Time(Span(Duration::from_millis(400)));
    let record = run(&Test { streams: 3, ..test(Traffic::Rr(pages), time) });
    let answered = record.transactions.unwrap();
    let whole = record.page_us.map_or(0, |page| page.count);
    // At most this many pages begin, and the last one may lack objects.
    assert!(whole <= 82, "{whole}");
    assert!(answered >= 7 * whole && answered < 7 * (whole + 2), "{answered} {whole}");
    if let (Some(page), Some(latency)) = (record.page_us, record.latency_us) {
        assert!(page.min >= latency.min, "{page:?} {latency:?}");
    }
    assert_eq!(record.requests_not_sent, None);
}

#[test]
fn a_player_watches_a_video_to_the_end() {
    let video = ExchangeTest { video: true, ..ExchangeTest::new(100, 1_000) };
    let time = Extent::Time(Span(Duration::from_millis(400)));
    let record = run(&Test { streams: 1, ..test(Traffic::Rr(video), time) });
    let playback = record.video.unwrap();
    assert_eq!(record.transactions, Some(playback.chunks));
    // The buffer is full after ten chunks; each chunk that is taken out makes room for one.
    assert!(playback.chunks as f64 <= 11.0 + record.seconds, "{playback:?}");
}

#[test]
fn rr_in_an_open_loop_sends_what_was_due() {
    let exchange = ExchangeTest { rate_per_s: Some(1000.0), ..EXCHANGE };
    let time = Extent::Time(Span(Duration::from_millis(300)));
    let record = run(&test(Traffic::Rr(exchange), time));
    let sent = record.transactions.unwrap() + record.failed.unwrap();
    assert_eq!(sent + record.requests_not_sent.unwrap(), 300);
    assert_eq!(record.send_lag_us.map_or(0, |lag| lag.count), sent);
}

#[test]
fn crr_works_whichever_end_closes_and_however() {
    for closer in [Closer::Client, Closer::Server] {
        for reset in [false, true] {
            for (request_bytes, response_bytes) in [(1, 1), (100_000, 300_000)] {
                let exchange =
                    ExchangeTest { request_bytes, response_bytes, closer, reset, ..EXCHANGE };
                let record = run(&test(Traffic::Crr(exchange), Extent::Count(50)));
                let what = format!("{closer:?} {reset} {request_bytes}: {:?}", record.caveats);
                assert_eq!(record.transactions, Some(100), "{what}");
                assert_eq!(record.failed, Some(0), "{what}");
            }
        }
    }
}

#[test]
fn crr_in_an_open_loop_sends_what_was_due() {
    let exchange = ExchangeTest { rate_per_s: Some(200.0), ..EXCHANGE };
    let time = Extent::Time(Span(Duration::from_millis(500)));
    let record = run(&test(Traffic::Crr(exchange), time));
    let sent = record.transactions.unwrap() + record.failed.unwrap();
    assert_eq!(sent + record.requests_not_sent.unwrap(), 100);
}

#[test]
fn a_whole_transfer_counts_every_byte_in_both_directions() {
    for direction in [Direction::Up, Direction::Down, Direction::Both] {
        let record = run(&Test {
            direction,
            ..test(Traffic::Stream(whole()), Extent::Bytes(ByteCount(4 << 20)))
        });
        let flows = 2 * direction.parts().len() as u64;
        assert_eq!(record.bytes(), flows * (4 << 20), "{direction:?}");
        assert_eq!(record.corrupted_bytes, Some(0));
        assert!(record.seconds > 0.0 && record.throughput_bps().unwrap() > 0.0);
    }
}

#[test]
fn a_whole_transfer_can_end_by_time() {
    let time = Extent::Time(Span(Duration::from_millis(300)));
    for direction in [Direction::Up, Direction::Down] {
        let record = run(&Test { direction, ..test(Traffic::Stream(whole()), time) });
        let intervals: u64 = record.intervals.iter().map(|i| i.bytes).sum();
        assert_eq!(intervals, record.bytes(), "{direction:?}");
        assert_eq!(record.corrupted_bytes, Some(0));
    }
}
