//! Holding connections: when it may be asked for, what never reaches the driver, and who is given
//! up when.

use super::*;
use crate::capacity::{
    CapacityHalf, CapacityRequest, Failure, FailureCause, HeldCounts, HoldPort, HoldPorts,
    HoldProgress, LimitReadings, MAX_CAUSES, MAX_HELD, MAX_PORTS,
};
use crate::session::message::{MAX_SERVER_FRAME, Refusal, ServerMessage};

fn request() -> CapacityRequest {
    CapacityRequest {
        connections: 40_000,
        udp_sockets: 10_000,
        seconds: 20.0,
        request_bytes: 64,
        response_bytes: 64,
    }
}

fn ports() -> HoldPorts {
    let port = |port, count| HoldPort { port, count };
    HoldPorts {
        tcp: vec![port(40_001, 19_000), port(40_002, 21_000)],
        udp: vec![port(40_003, 10_000)],
        backlog: 4096,
        patience_s: 90,
    }
}

fn refusal(pair: &mut Pair) -> Refusal {
    match pair.client_event() {
        Some(ClientEvent::Refused(refusal)) => refusal,
        other => panic!("{other:?}"),
    }
}

/// A pair whose endpoint holds.
fn holding() -> Pair {
    let mut pair = Pair::new(None, None, 1_000);
    pair.client_event();
    pair.client.ask(pair.now, request());
    assert_eq!(pair.server_event(), Some(ServerEvent::Request(Request::Hold(request()))));
    pair.server.reply(pair.now, Reply::Hold(ports()));
    assert_eq!(pair.client_event(), Some(ClientEvent::Reply(Reply::Hold(ports()))));
    pair
}

#[test]
fn connections_are_held_between_tests_in_clear_and_sealed() {
    for key in [None, Some(key("a"))] {
        for piece in [1, 100_000] {
            let mut pair = Pair::new(key.as_ref(), key.as_ref(), piece);
            pair.client_event();
            for _ in 0..2 {
                pair.client.ask(pair.now, request());
                assert_eq!(
                    pair.server_event(),
                    Some(ServerEvent::Request(Request::Hold(request())))
                );
                pair.server.reply(pair.now, Reply::Hold(ports()));
                assert_eq!(pair.client_event(), Some(ClientEvent::Reply(Reply::Hold(ports()))));
                for _ in 0..15 {
                    pair.advance(Duration::from_secs(1));
                    pair.server.held(HoldProgress::default());
                    let held = ClientEvent::Held(HoldProgress::default());
                    assert_eq!(pair.client_event(), Some(held));
                    assert_eq!(pair.server_event(), None);
                }
                pair.client.ask(pair.now, Release);
                assert_eq!(
                    pair.server_event(),
                    Some(ServerEvent::Request(Request::Release(Release)))
                );
                // A million connections take their time to be closed.
                pair.advance(Duration::from_secs(60));
                pair.server.reply(pair.now, Reply::Release(Box::default()));
                let released = ClientEvent::Reply(Reply::Release(Box::default()));
                assert_eq!(pair.client_event(), Some(released));
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
fn more_than_the_owner_allows_is_refused_with_the_number() {
    let mut pair = Pair::new(None, None, 100);
    pair.client_event();
    let most = welcome().limits.connections;
    for (connections, udp_sockets) in [(most + 1, 0), (0, most + 1)] {
        let asked = CapacityRequest { connections, udp_sockets, ..request() };
        pair.client.ask(pair.now, asked);
        let refusal = refusal(&mut pair);
        assert_eq!(refusal.reason, RefusalReason::Limit);
        assert!(refusal.message.contains(&most.to_string()), "{refusal:?}");
        assert_eq!(pair.server_event(), None);
    }
    pair.run_one_test();
}

#[test]
fn absurd_requests_never_reach_the_driver() {
    let mut pair = Pair::new(None, None, 100);
    pair.client_event();
    let absurd = [
        CapacityRequest { connections: 0, udp_sockets: 0, ..request() },
        CapacityRequest { connections: MAX_HELD + 1, ..request() },
        CapacityRequest { connections: u64::MAX, udp_sockets: u64::MAX, ..request() },
        CapacityRequest { seconds: -1.0, ..request() },
        CapacityRequest { seconds: 1e300, ..request() },
        CapacityRequest { request_bytes: 0, ..request() },
        CapacityRequest { response_bytes: u64::MAX, ..request() },
    ];
    for asked in absurd {
        pair.client.ask(pair.now, asked);
        assert_eq!(refusal(&mut pair).reason, RefusalReason::Test, "{asked:?}");
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
fn ports_that_cannot_be_the_answer_end_the_session() {
    let port = |port, count| HoldPort { port, count };
    let absurd = [
        HoldPorts::default(),
        HoldPorts { tcp: vec![port(40_001, 39_999)], ..ports() },
        HoldPorts { udp: vec![port(0, 10_000)], ..ports() },
        HoldPorts { tcp: vec![port(1, u64::from(u16::MAX)); MAX_PORTS + 1], ..ports() },
    ];
    for answer in absurd {
        let mut pair = Pair::new(None, None, 1_000);
        pair.client_event();
        pair.client.ask(pair.now, request());
        pair.server_event();
        pair.server.reply(pair.now, Reply::Hold(answer));
        assert!(failure(&mut pair).contains("cannot be read"));
    }
}

#[test]
fn an_end_that_falls_silent_is_given_up() {
    let mut pair = holding();
    pair.now += SILENCE_TIMEOUT;
    pair.server.handle_timeout(pair.now);
    assert!(pair.server.is_closed());
    let mut pair = holding();
    pair.now += SILENCE_TIMEOUT;
    pair.client.handle_timeout(pair.now);
    assert!(failure(&mut pair).contains("the endpoint is silent"));
}

#[test]
fn an_end_that_vanishes_is_told_to_the_driver() {
    let mut pair = holding();
    pair.server.handle_close();
    let closed = ServerEvent::Closed(Some(SessionError::Closed));
    assert_eq!(pair.server.poll_event(), Some(closed));
    let mut pair = holding();
    pair.client.handle_close();
    assert!(failure(&mut pair).contains("closed the connection"));
}

#[test]
fn nobody_holds_for_longer_than_was_asked_for_and_allowed() {
    for (seconds, allowed) in [(5.0, 5), (1e4, 60)] {
        let mut pair = Pair::new(None, None, 1_000);
        pair.client_event();
        let asked = CapacityRequest { seconds, ..request() };
        pair.client.ask(pair.now, asked);
        pair.server_event();
        pair.server.reply(pair.now, Reply::Hold(ports()));
        pair.client_event();
        let until = pair.now + Duration::from_secs(allowed) + GRACE;
        while !pair.server.is_closed() {
            pair.advance(Duration::from_secs(1));
            pair.server.held(HoldProgress::default());
            pair.exchange();
            assert!(pair.now <= until, "{seconds}: still there at {:?}", pair.now);
        }
        assert_eq!(pair.now, until);
    }
}

#[test]
fn an_endpoint_that_does_not_answer_is_given_up() {
    let mut pair = Pair::new(None, None, 100);
    pair.client_event();
    pair.client.ask(pair.now, request());
    pair.server_event();
    pair.advance(HOLDING_TIMEOUT);
    assert!(pair.client.is_closed() && pair.server.is_closed());
    let mut pair = holding();
    pair.client.ask(pair.now, Release);
    pair.server_event();
    pair.advance(RELEASE_TIMEOUT);
    assert!(pair.client.is_closed() && pair.server.is_closed());
}

#[test]
fn limits_that_are_none_are_no_absurd_figures() {
    let mut pair = holding();
    pair.client.ask(pair.now, Release);
    pair.server_event();
    let half = CapacityHalf {
        limits: LimitReadings {
            // systemd sets fs.file-max so.
            files: Some(i64::MAX as u64),
            cgroup_bytes: Some(u64::MAX),
            ..LimitReadings::default()
        },
        ..CapacityHalf::default()
    };
    pair.server.reply(pair.now, Reply::Release(Box::new(half)));
    let Some(ClientEvent::Reply(Reply::Release(half))) = pair.client_event() else {
        panic!("it is no report");
    };
    assert!(half.limits.files > Some(1 << 50), "{:?}", half.limits);
}

#[test]
fn an_absurd_report_ends_the_session() {
    let failures = |count| {
        let failure = Failure { cause: FailureCause::Reset, count: 1 };
        HeldCounts { failures: vec![failure; count], ..HeldCounts::default() }
    };
    let mut absurd = [CapacityHalf::default(), CapacityHalf::default()];
    absurd[0].tcp = failures(MAX_CAUSES + 1);
    absurd[1].cpu_seconds.user = -1.0;
    for half in absurd {
        let mut pair = holding();
        pair.client.ask(pair.now, Release);
        pair.server_event();
        pair.server.reply(pair.now, Reply::Release(Box::new(half)));
        assert!(failure(&mut pair).contains("cannot be read"));
    }
}

/// The longest list of ports, and progress with every cause.
#[test]
fn the_largest_answers_fit_a_frame() {
    let port = HoldPort { port: u16::MAX, count: MAX_HELD };
    let ports = HoldPorts {
        tcp: vec![port; MAX_PORTS],
        udp: vec![port; MAX_PORTS],
        backlog: u32::MAX,
        patience_s: u32::MAX,
    };
    let message = serde_json::to_vec(&ServerMessage::Answer(Reply::Hold(ports))).unwrap();
    assert!(message.len() < MAX_SERVER_FRAME / 4, "{}", message.len());
}
