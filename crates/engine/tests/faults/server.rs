//! A client whose endpoint misbehaves: that it ends, and with which message.

use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use linerate_core::record::{Record, Status};
use linerate_core::session::message::{HalfReport, Progress, ServerMessage, Welcome};
use linerate_engine::{Client, MeasureError, Stop};
use linerate_sys::socket::reset_on_close;
use linerate_testkit::PATIENCE;
use serde_json::{Value, json};

use super::bench::{stream, target};
use super::fake::{Fake, Stage, endpoint, welcome};
use super::stranger::frame;

/// A client's result with an endpoint: a record if the run began, and the error.
pub(crate) struct End {
    record: Option<Record>,
    pub(crate) words: String,
}

/// Runs a test of `milliseconds` against a fake endpoint.
pub(crate) fn meet(
    stage: Stage,
    welcome: Welcome,
    milliseconds: u64,
    stop: Stop,
    then: impl FnOnce(&mut Fake) + Send + 'static,
) -> End {
    let (address, thread) = endpoint(stage, welcome, then);
    let outcome = Client::connect(target(address, None), stop)
        .and_then(|mut client| client.run(&stream(milliseconds), &mut |_| true));
    thread.join().unwrap();
    // The port differs in each run.
    let text = |error: &MeasureError| error.to_string().replace(&address.to_string(), "PEER");
    match outcome {
        Err(error) => End { record: None, words: text(&error) },
        Ok(outcome) => End {
            words: outcome.error.as_ref().map_or_else(String::new, text),
            record: Some(outcome.record),
        },
    }
}

pub(crate) fn is_partial(end: &End) -> bool {
    let record = end.record.as_ref();
    record.is_some_and(|record| record.status == Status::Partial)
}

const BEFORE_THE_RUN: [Stage; 5] =
    [Stage::Accepted, Stage::Welcomed, Stage::Asked, Stage::Opened, Stage::Ready];

#[test]
fn a_closed_port_is_an_error_with_a_remedy() {
    own_process!();
    let address = "127.0.0.1:1".parse().unwrap();
    let error = Client::connect(target(address, None), Stop::new()).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!(
            "{address}: connection refused: nothing listens there (start `linerate serve -p 1` on that \
             host)"
        )
    );
}

#[test]
fn an_endpoint_that_dies_ends_the_client_at_every_stage() {
    own_process!();
    for stage in [&BEFORE_THE_RUN[..], &[Stage::Running, Stage::Ended]].concat() {
        for reset in [false, true] {
            let milliseconds = if stage == Stage::Ended { 300 } else { 30_000 };
            let end = meet(stage, welcome(), milliseconds, Stop::new(), move |fake| {
                if reset {
                    reset_on_close(&fake.control).unwrap();
                }
            });
            assert_eq!(end.words, "PEER: the peer closed the connection", "{stage:?}");
            // A run that begins just when the endpoint dies has a record, even if it is short.
            let began = matches!(stage, Stage::Running | Stage::Ended);
            assert!(is_partial(&end) || !began, "{stage:?}");
        }
    }
}

#[test]
fn a_stop_ends_the_client_at_every_stage_of_a_stalled_endpoint() {
    own_process!();
    let stages = [Stage::Accepted, Stage::Asked, Stage::Opened, Stage::Running, Stage::Ended];
    for stage in stages {
        let milliseconds = if stage == Stage::Ended { 100 } else { 30_000 };
        let stop = Stop::new();
        let asked = stop.clone();
        let (stalls, stalled) = channel();
        let client = thread::spawn(move || {
            meet(stage, welcome(), milliseconds, stop, move |fake| {
                stalls.send(()).unwrap();
                fake.stall();
            })
        });
        stalled.recv_timeout(PATIENCE).unwrap();
        asked.request();
        let end = client.join().unwrap();
        assert_eq!(end.words, "interrupted", "{stage:?}");
        assert_eq!(is_partial(&end), stage >= Stage::Running, "{stage:?}");
    }
}

#[test]
fn a_stop_ends_an_attempt_to_connect() {
    own_process!();
    // A listener whose queue is full lets further SYNs wait.
    let options =
        linerate_sys::socket::ListenOptions { backlog: 0, mptcp: linerate_sys::socket::Mptcp::Off };
    let listener = linerate_sys::socket::listen("127.0.0.1:0".parse().unwrap(), options).unwrap();
    let address = listener.local_addr().unwrap();
    let _queued = std::net::TcpStream::connect(address).unwrap();
    let stop = Stop::new();
    let mut target = target(address, None);
    target.connect_timeout = Duration::from_secs(600);
    let client = {
        let stop = stop.clone();
        thread::spawn(move || Client::connect(target, stop).map(drop))
    };
    thread::sleep(Duration::from_millis(300));
    assert!(!client.is_finished(), "the queue is not full");
    stop.request();
    let error = client.join().unwrap().unwrap_err();
    assert!(matches!(error, MeasureError::Interrupted), "{error}");
}

#[test]
fn the_server_of_another_tool_is_named() {
    own_process!();
    for (answer, words) in [
        (&b"SSH-2.0-OpenSSH_9.2\r\n"[..], "an SSH (or other text) server"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "an HTTP server"),
        (&[9], "an iperf3 server"),
        (&[0xff], "an iperf3 server"),
        (&[0x15, 3, 3, 0, 2], "something else"),
    ] {
        let end = meet(Stage::Accepted, welcome(), 100, Stop::new(), move |fake| {
            fake.say(answer);
        });
        let words = format!("PEER: {words} answers there, not `linerate serve`");
        assert_eq!(end.words, words);
    }
}

#[test]
fn frames_out_of_turn_or_too_long_end_the_session() {
    own_process!();
    let ready = frame(br#"{"say":"ready"}"#);
    let report = frame(br#"{"say":"answer","operation":"end","reply":{"flows":[]}}"#);
    let huge = (1u32 << 24 | 0x0080_0001).to_be_bytes().to_vec();
    let out_of_turn = "the peer sent an unexpected message: from the endpoint";
    let cases = [
        (Stage::Welcomed, ready.clone(), out_of_turn),
        (Stage::Asked, ready.clone(), out_of_turn),
        (Stage::Opened, report, out_of_turn),
        (Stage::Running, ready, out_of_turn),
        (
            Stage::Running,
            huge,
            "a frame of 8388609 bytes was announced where at most 8388608 are taken",
        ),
        (Stage::Running, vec![0x47], "a frame begins with byte 0x47, which is none of linerate's"),
        (Stage::Asked, vec![3, 0, 0, 1, 0], "the peer encrypts and this end does not"),
    ];
    for (stage, bytes, words) in cases {
        let end = meet(stage, welcome(), 30_000, Stop::new(), move |fake| {
            fake.say(&bytes);
        });
        assert_eq!(end.words, format!("PEER: {words}"), "{stage:?}");
        assert_eq!(is_partial(&end), stage == Stage::Running);
    }
}

#[test]
fn a_malformed_token_is_an_error() {
    own_process!();
    for token in ["", "07", "é7070707070707070707070707070707", &"xy".repeat(16)] {
        let bad = Welcome { token: token.to_owned(), ..welcome() };
        let end = meet(Stage::Welcomed, bad, 100, Stop::new(), Fake::stall);
        assert_eq!(end.words, "PEER: the peer sent a message that cannot be read: a bad token");
    }
}

fn report(report: Value) -> Value {
    json!({"say": "answer", "operation": "end", "reply": report})
}

/// A report of one flow of the test, in which one field has another value.
fn absurd(field: &str, value: Value) -> Value {
    let mut flow = json!({
        "id": 0, "direction": "up", "sends": false, "local": "", "remote": "", "bytes": 1,
        "messages": 1, "seconds": 0.1
    });
    flow[field] = value;
    report(json!({"flows": [flow]}))
}

#[test]
fn an_absurd_report_leaves_the_clients_own_half() {
    own_process!();
    let mut many = serde_json::to_value(HalfReport::default()).unwrap();
    let flow = absurd("bytes", json!(1))["reply"]["flows"][0].clone();
    many["flows"] = Value::Array(vec![flow; 5_000]);
    let cases = [
        (absurd("bytes", json!(u64::MAX)), "is absurd"),
        (absurd("steps", json!([[1, u64::MAX]])), "is absurd"),
        (absurd("seconds", json!(1e308)), "is absurd"),
        (absurd("seconds", Value::Null), "invalid type: null"),
        (absurd("seconds", json!(1e-300)), "a report of 1e-300 s"),
        (absurd("seconds", json!(-5)), "a report of -5e0 s"),
        (absurd("id", json!(2)), "a report of flow 2 in a test of 2"),
        (report(many), "a report of flow 0 in a test of 2"),
        (report(json!({"flows": 7})), "cannot be read"),
    ];
    for (report, words) in cases {
        let end = meet(Stage::Ended, welcome(), 100, Stop::new(), move |fake| {
            fake.say(&frame(report.to_string().as_bytes()));
        });
        assert!(end.words.contains(words), "{}", end.words);
        assert!(is_partial(&end), "{words}");
    }
}

#[test]
fn progress_that_goes_up_and_down_harms_nobody() {
    own_process!();
    let say = |received_bytes| {
        let progress = Progress { at_s: -1.0, received_bytes };
        frame(&serde_json::to_vec(&ServerMessage::Progress(progress)).unwrap())
    };
    let bytes = [say(1 << 54), say(0), say(1 << 53), say(1 << 55), frame(br#"{"say":"finished"}"#)]
        .concat();
    let (address, thread) = endpoint(Stage::Running, welcome(), move |fake| {
        fake.say_slowly(&bytes);
    });
    let mut client = Client::connect(target(address, None), Stop::new()).unwrap();
    let mut last = 0;
    let outcome = client.run(&stream(30_000), &mut |live| {
        assert!(live.up_bytes >= last, "a count went down");
        last = live.up_bytes;
        last < 1 << 55
    });
    // The endpoint waits for the client to leave.
    drop(client);
    thread.join().unwrap();
    assert_eq!(last, 1 << 55);
    assert_eq!(outcome.unwrap().record.status, Status::Partial);
}
