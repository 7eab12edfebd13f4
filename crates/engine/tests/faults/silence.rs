//! Peers that are connected and silent, or that vanish without closing the connection.

use linerate_core::plan::{Direction, Test};
use linerate_core::record::Status;
use linerate_core::session::{GREETING_TIMEOUT, OPENING_TIMEOUT, SILENCE_TIMEOUT};
use linerate_engine::{Client, Endpoint, Live, ServeEvent, Stop};
use linerate_sys::netlink::LinkChange;
use linerate_sys::netns::Pair;
use linerate_testkit::{Need, PATIENCE, eventually, skip};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread;

use super::bench::{Bench, limits, options, stream, target};
use super::fake::{Fake, Stage as Fault, welcome};
use super::server::{is_partial, meet};
use super::stranger::{Stage, Stranger, is_closed_after_words};

/// All cases wait for their deadlines at the same time.
#[test]
fn every_deadline_is_kept_at_both_ends() {
    own_process!();
    let bench = Bench::start();
    thread::scope(|scope| {
        scope.spawn(|| silent_clients(&bench));
        scope.spawn(stalled_endpoints);
        scope.spawn(broken_path);
    });
    bench.assert_clean("silence");
    bench.assert_serves();
}

fn silent_clients(bench: &Bench) {
    let test = Test { direction: Direction::Both, ..stream(30_000) };
    // A welcomed client may think for a minute: that deadline is tested in virtual time, in core.
    let stages = [
        Stage::Connected,
        Stage::HalfHello,
        Stage::Hello,
        Stage::Opened,
        Stage::HalfTheFlows,
        Stage::Ready,
        Stage::Running,
    ];
    let strangers = stages.map(|stage| Stranger::at(bench.address, &test, stage));
    bench.assert_serves();
    let longest = GREETING_TIMEOUT.max(OPENING_TIMEOUT).max(SILENCE_TIMEOUT);
    thread::sleep(longest);
    for (mut stranger, stage) in strangers.into_iter().zip(stages) {
        assert!(is_closed_after_words(&mut stranger.control), "{stage:?}");
    }
}

fn stalled_endpoints() {
    let cases = [
        (Fault::Accepted, "the endpoint does not answer the greeting"),
        (Fault::Asked, "the endpoint does not answer the request for a test"),
        (Fault::Opened, "the data connections did not reach the endpoint"),
        (Fault::Running, "the endpoint is silent"),
        (Fault::Ended, "the endpoint sends no report"),
    ];
    let clients = cases.map(|(stage, words)| {
        let milliseconds = if stage == Fault::Ended { 300 } else { 30_000 };
        let client =
            thread::spawn(move || meet(stage, welcome(), milliseconds, Stop::new(), Fake::stall));
        (stage, words, client)
    });
    for (stage, words, client) in clients {
        let end = client.join().unwrap();
        assert_eq!(end.words, format!("PEER: timed out: {words}"));
        assert_eq!(is_partial(&end), stage >= Fault::Running, "{stage:?}");
    }
}

/// The link between both ends goes down during the run: neither FIN nor RST ever arrives.
fn broken_path() {
    let pair = match Pair::create() {
        Ok(pair) => pair,
        Err(error) => {
            skip(Need::Lab, format_args!("needs network namespaces: {error}"));
            return;
        }
    };
    let mut serve = options(limits(), None);
    serve.bind = Some(pair.b.ipv4.into());
    let stop = Stop::new();
    let gone = Arc::new(AtomicBool::new(false));
    let log = {
        let gone = Arc::clone(&gone);
        move |event| {
            if let ServeEvent::Disconnected { reason, .. } = event {
                let words = reason.expect("the client said no goodbye");
                assert!(words.contains("the client fell silent"), "{words}");
                gone.store(true, Ordering::Release);
            }
        }
    };
    let server = {
        let stop = stop.clone();
        let (addresses, bound) = channel();
        let thread = pair.b.namespace.spawn_thread("server", move || {
            let endpoint = Endpoint::bind(&serve).unwrap();
            addresses.send(endpoint.addresses()[0]).unwrap();
            endpoint.serve(&stop, log).unwrap();
        });
        (thread.unwrap(), bound.recv().unwrap())
    };
    let address = server.1;
    let (moves, moved) = channel();
    let client = pair.a.namespace.spawn_thread("client", move || {
        let mut client = Client::connect(target(address, None), Stop::new()).unwrap();
        let test = Test { direction: Direction::Both, ..stream(40_000) };
        let mut moves = Some(moves);
        let mut observe = |live: &Live| {
            if live.up_bytes + live.down_bytes > 0
                && let Some(moves) = moves.take()
            {
                moves.send(()).unwrap();
            }
            true
        };
        client.run(&test, &mut observe).unwrap()
    });
    moved.recv_timeout(PATIENCE).unwrap();
    let mut netlink = pair.a.namespace.netlink().unwrap();
    netlink.change_link(Pair::LINK, &LinkChange::Down).unwrap();
    let outcome = client.unwrap().join().unwrap();
    let error = outcome.error.expect("the endpoint is gone").to_string();
    assert!(error.contains("the endpoint is silent"), "{error}");
    assert_eq!(outcome.record.status, Status::Partial);
    assert!(outcome.record.bytes() > 0);
    // The endpoint heard the client last when the client heard it last.
    eventually("the session ends", || gone.load(Ordering::Acquire));
    stop.request();
    server.0.join().unwrap();
}
