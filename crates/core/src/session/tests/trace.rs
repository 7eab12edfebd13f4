//! The way back: when it may be asked for, and what never reaches the driver or the user.

use super::*;
use crate::session::message::{MAX_SERVER_FRAME, Refusal, ServerMessage};
use crate::trace::{
    MAX_REVERSE_HOPS, PathEnd, ProbeKind, TraceConfig, TraceDocument, TraceHeader, TraceRequest,
    Tracer,
};
use crate::units::Nanos;

const CLIENT: [u8; 4] = [198, 18, 0, 1];

pub(super) fn request() -> TraceRequest {
    TraceRequest::back_of(&TraceConfig::new(CLIENT.into()))
}

/// A trace that nobody answers.
pub(super) fn document() -> TraceDocument {
    let config = request().config(CLIENT.into(), None).unwrap();
    let tracer = Tracer::new(config.clone(), Nanos::ZERO, 1).unwrap();
    TraceDocument::new(TraceHeader::default(), &config, &tracer.finish())
}

fn refusal(pair: &mut Pair) -> Refusal {
    match pair.client_event() {
        Some(ClientEvent::Refused(refusal)) => refusal,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_way_back_is_traced_between_tests_in_clear_and_sealed() {
    for key in [None, Some(key("a"))] {
        for piece in [1, 100_000] {
            let mut pair = Pair::new(key.as_ref(), key.as_ref(), piece);
            pair.client_event();
            for _ in 0..2 {
                pair.client.ask(pair.now, request());
                assert_eq!(
                    pair.server_event(),
                    Some(ServerEvent::Request(Request::Trace(request())))
                );
                pair.server.reply(pair.now, Reply::Trace(Box::new(document())));
                let answer = pair.client_event();
                let Some(ClientEvent::Reply(Reply::Trace(traced))) = answer else {
                    panic!("{answer:?}");
                };
                assert_eq!(traced.end, PathEnd::NoAnswer);
                pair.run_one_test();
            }
        }
    }
}

#[test]
fn an_older_endpoint_asks_its_driver_nothing() {
    let older = Welcome { operations: vec!["stream".into()], ..welcome() };
    let mut pair = Pair::welcomed(older, None, None, 100);
    pair.client_event();
    pair.client.ask(pair.now, request());
    assert_eq!(refusal(&mut pair).reason, RefusalReason::Test);
    assert_eq!(pair.server_event(), None);
    pair.run_one_test();
}

#[test]
fn more_than_endpoints_allow_never_reaches_the_driver() {
    let mut pair = Pair::new(None, None, 100);
    pair.client_event();
    let asked = [
        TraceRequest { hops: MAX_REVERSE_HOPS + 1, ..request() },
        TraceRequest { probes: 0, ..request() },
        TraceRequest { size_bytes: 9_000, ..request() },
        TraceRequest { kind: ProbeKind::Tcp, ..request() },
    ];
    for asked in asked {
        pair.client.ask(pair.now, asked);
        assert_eq!(refusal(&mut pair).reason, RefusalReason::Limit, "{asked:?}");
        assert_eq!(pair.server_event(), None);
    }
    pair.run_one_test();
}

#[test]
fn what_the_driver_refuses_leaves_the_session() {
    let mut pair = Pair::new(None, None, 100);
    pair.client_event();
    for reason in [RefusalReason::Busy, RefusalReason::Limit, RefusalReason::Test] {
        pair.client.ask(pair.now, request());
        pair.server_event();
        pair.server.refuse(reason, "no".into());
        assert_eq!(refusal(&mut pair).reason, reason);
    }
    pair.run_one_test();
}

#[test]
fn an_absurd_answer_ends_the_session() {
    let absurd = [
        TraceDocument { seconds: -1.0, ..document() },
        TraceDocument { kind: ProbeKind::Icmp, ..document() },
        TraceDocument { end: PathEnd::Reached { ttl: 9 }, ..document() },
        TraceDocument { method: "x".repeat(100_000), ..document() },
        TraceDocument { schema: "linerate.record/1".into(), ..document() },
    ];
    for answer in absurd {
        let mut pair = Pair::new(None, None, 1_000);
        pair.client_event();
        pair.client.ask(pair.now, request());
        pair.server_event();
        pair.server.reply(pair.now, Reply::Trace(Box::new(answer)));
        assert!(failure(&mut pair).contains("cannot be read"));
    }
}

#[test]
fn an_endpoint_that_never_answers_is_given_up() {
    let mut pair = Pair::new(None, None, 100);
    pair.client_event();
    pair.client.ask(pair.now, request());
    pair.server_event();
    pair.advance(TRACING_TIMEOUT);
    assert!(pair.client.is_closed() && pair.server.is_closed());
}

/// Every hop and probe that may be asked for, each with all that it can have.
#[test]
fn the_largest_answer_fits_a_frame() {
    let mut largest = document();
    let probe = r#"{"sent_us":1234567.125,"flow":0,"attempt":10,"address":"2001:2:ffff:ffff:ffff:ffff:ffff:ffff",
        "rtt_us":1234567.125,"answer":{"kind":"port_unreachable"},"reply_ttl":255,"quoted_ttl":255}"#;
    let label = r#"{"label":1048575,"traffic_class":7,"is_bottom":true,"ttl":255}"#;
    let hop = format!(
        r#"{{"ttl":255,"rtt_us":[{}],"fate":"rate_limited","sent":21,"mpls":[{}],"probes":[{}]}}"#,
        ["1234567.125"; 21].join(","),
        [label; 16].join(","),
        [probe; 21].join(",")
    );
    let hop: crate::trace::HopDocument = serde_json::from_str(&hop).unwrap();
    largest.hops = vec![hop; 64];
    let message =
        serde_json::to_vec(&ServerMessage::Answer(Reply::Trace(Box::new(largest)))).unwrap();
    assert!(message.len() < MAX_SERVER_FRAME / 4, "{}", message.len());
}
