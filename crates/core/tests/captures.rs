//! What holds back the connections of simulated captures.

#[path = "../../capture/tests/simulation/mod.rs"]
mod simulation;

use std::io::Cursor;

use linerate_core::capture::follow;
use linerate_core::ceilings::Cause;
use linerate_core::connection::{Connection, ConnectionsDocument};
use simulation::{Transfer, USUAL};

fn explained(transfer: &Transfer) -> Connection {
    let file = USUAL.write(&transfer.run().packets);
    let capture = follow(Cursor::new(file), 10, |_| true).expect("a whole capture");
    let mut document = ConnectionsDocument::from_capture("x.pcap", &capture);
    document.explain();
    document.connections.remove(0)
}

#[track_caller]
fn is(cause: Cause, transfer: &Transfer, places: &[u64]) {
    for place in places {
        let place = *place;
        let found = explained(&Transfer { place, ..transfer.clone() });
        let verdict = found.verdict.as_ref().expect("a verdict");
        assert_eq!(verdict.cause, cause, "at {place} %: {found:#?}");
    }
}

/// A socket with SO_MAX_PACING_RATE, whose frames are of two segments.
fn paced() -> Transfer {
    Transfer {
        pace_bps: Some(10_000_000),
        offload: 2,
        window: 1 << 20,
        bytes: 4_000_000,
        ..Transfer::default()
    }
}

#[test]
fn a_clock_is_a_pace_on_a_path_of_any_length() {
    is(Cause::Pacing, &paced(), &[0, 100]);
    // Nothing is outstanding between its frames.
    let short = Transfer { rtt_us: 50, ..paced() };
    is(Cause::Pacing, &short, &[0]);
    // The link takes much longer for two segments than for a handshake.
    let narrow = Transfer { rtt_us: 3000, link_bps: 25_000_000, ..paced() };
    is(Cause::Pacing, &narrow, &[0, 100]);
}

#[test]
fn a_writer_that_pauses_is_no_clock() {
    let writer = Transfer {
        burst: Some((20_000, 20_000)),
        window: 1 << 20,
        rtt_us: 50,
        ..Transfer::default()
    };
    is(Cause::ApplicationSend, &writer, &[0]);
}

#[test]
fn a_full_link_is_no_clock() {
    let full = Transfer {
        link_bps: 10_000_000,
        bytes: 4_000_000,
        window: 200 * 1024,
        ..Transfer::default()
    };
    is(Cause::PathRate, &full, &[0]);
}

#[test]
fn losses_in_trains_that_do_not_slow_a_paced_sender_are_a_policers() {
    // Three of each sixty, as a bucket takes them from BBR.
    let lost = (100..4000).filter(|number| number % 60 < 3);
    let policed = Transfer { lost: lost.collect(), offload: 1, ..paced() };
    is(Cause::Policer, &policed, &[0]);
}

#[test]
fn a_window_that_is_always_full_is_the_receivers() {
    let held = Transfer { bytes: 4_000_000, window: 128 * 200, ..Transfer::default() };
    is(Cause::ReceiveWindow, &held, &[0, 50, 100]);
}
