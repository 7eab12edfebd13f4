//! Changes of the endpoint's host: when they may be asked for, and what never reaches the driver.

use super::*;
use crate::session::message::Refusal;
use crate::session::operation::MAX_CHANGES;

#[test]
fn hosts_are_treated_between_tests_in_clear_and_sealed() {
    for key in [None, Some(key("a"))] {
        for piece in [1, 100_000] {
            let mut pair = Pair::new(key.as_ref(), key.as_ref(), piece);
            pair.client_event();
            pair.treat(&changes());
            pair.run_one_test();
            // Others take their place without being undone first.
            pair.treat(&[change("net.ipv4.tcp_timestamps")]);
            pair.run_one_test();
            pair.untreat();
            pair.untreat();
            pair.run_one_test();
        }
    }
}

fn treatment_refused(pair: &mut Pair) -> Refusal {
    match pair.client_event() {
        Some(ClientEvent::Refused(refusal)) => refusal,
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_endpoint_without_permission_asks_its_driver_nothing() {
    let closed = Welcome { operations: vec!["stream".into()], ..welcome() };
    let mut pair = Pair::welcomed(closed, None, None, 100);
    pair.client_event();
    for changes in [&changes()[..], &[]] {
        pair.client.ask(pair.now, treat(changes));
        let refusal = treatment_refused(&mut pair);
        assert_eq!(refusal.reason, RefusalReason::Treatment);
        assert!(refusal.message.contains("--allow-treatments"));
        assert_eq!(pair.server_event(), None);
    }
    pair.run_one_test();
}

#[test]
fn changes_that_are_not_in_the_table_never_reach_the_driver() {
    let mut pair = Pair::new(None, None, 100);
    pair.client_event();
    for key in ["kernel.core_pattern", "net.ipv4.no_such_key", "../kernel/core_pattern", ""] {
        let changes = [change("net.ipv4.tcp_sack"), change(key)];
        pair.client.ask(pair.now, treat(&changes));
        let refusal = treatment_refused(&mut pair);
        assert_eq!(refusal.reason, RefusalReason::Treatment, "{key}");
        assert!(refusal.message.contains(key), "{}", refusal.message);
        assert_eq!(pair.server_event(), None);
    }
    let many = vec![change("net.ipv4.tcp_sack"); MAX_CHANGES + 1];
    for changes in [&many[..], &[]] {
        pair.client.ask(pair.now, treat(changes));
        let refusal = treatment_refused(&mut pair);
        assert_eq!(refusal.reason, RefusalReason::Limit);
        let words = format!("1 to 32 changes at once, {} were", changes.len());
        assert!(refusal.message.contains(&words), "{}", refusal.message);
    }
    pair.treat(&many[1..]);
}

#[test]
fn what_the_driver_refuses_leaves_the_session() {
    use RefusalReason::{Busy, Treatment};
    let mut pair = Pair::new(None, None, 100);
    pair.client_event();
    for reason in [Treatment, Busy] {
        pair.client.ask(pair.now, treat(&changes()));
        pair.exchange();
        pair.server.refuse(reason, "no".into());
        assert_eq!(treatment_refused(&mut pair).reason, reason);
    }
    pair.client.ask(pair.now, open(&test_of(5, 1)));
    pair.exchange();
    pair.server.refuse(Busy, "no".into());
    assert!(matches!(pair.client_event(), Some(ClientEvent::Refused(_))));
}

#[test]
fn treatments_within_a_test_are_out_of_turn() {
    // Bytes of a client that knows no turns.
    let body = br#"{"say":"ask","operation":"treat","request":{"changes":[]}}"#;
    let mut frame = (1u32 << 24 | body.len() as u32).to_be_bytes().to_vec();
    frame.extend_from_slice(body);
    for stage in 0..4 {
        let mut pair = Pair::new(None, None, 100);
        pair.client_event();
        pair.client.ask(pair.now, open(&test_of(5, 1)));
        pair.exchange();
        if stage > 0 {
            pair.server.reply(pair.now, Reply::Open(()));
        }
        if stage > 1 {
            pair.server.ready(pair.now);
            pair.exchange();
        }
        if stage > 2 {
            pair.client.begin(pair.now, None);
            pair.exchange();
        }
        while pair.server.poll_event().is_some() {}
        pair.server.handle_input(pair.now, &frame);
        let closed = pair.server.poll_event();
        assert!(
            matches!(closed, Some(ServerEvent::Closed(Some(SessionError::OutOfTurn(_))))),
            "stage {stage}: {closed:?}"
        );
        // And a client of ours does not ask.
        pair.client.ask(pair.now, treat(&changes()));
        assert!(pair.client.is_closed());
    }
}

#[test]
fn treating_has_its_deadlines_on_both_sides() {
    for untreats in [false, true] {
        let mut pair = Pair::new(None, None, 100);
        pair.client_event();
        if untreats {
            pair.client.ask(pair.now, Untreat)
        } else {
            pair.client.ask(pair.now, treat(&changes()))
        }
        pair.exchange();
        assert!(!pair.client.is_closed() && !pair.server.is_closed());
        pair.client.handle_timeout(pair.now + TREATING_TIMEOUT);
        pair.server.handle_timeout(pair.now + TREATING_TIMEOUT);
        assert!(pair.client.is_closed() && pair.server.is_closed());
    }
    // A client that is treated and says nothing more holds the host no longer than any other.
    let mut pair = Pair::new(None, None, 100);
    pair.client_event();
    pair.treat(&changes());
    pair.server.handle_timeout(pair.now + IDLE_TIMEOUT);
    assert!(pair.server.is_closed());
}
