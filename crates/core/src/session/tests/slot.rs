//! The slot: how long who has it may be silent, and what is believed of it.

use super::*;
use crate::session::IDLE_TIMEOUT;
use crate::session::operation::{MAX_LEASE_S, Slot, SlotState};

fn asked(seconds: f64, answer: SlotState) -> Pair {
    let mut pair = Pair::new(None, None, 100);
    pair.client_event();
    pair.client.ask(pair.now, Slot { seconds });
    let request = Request::Slot(Slot { seconds });
    assert_eq!(pair.server_event(), Some(ServerEvent::Request(request)));
    pair.server.reply(pair.now, Reply::Slot(answer));
    pair
}

#[test]
fn the_holder_of_the_slot_may_be_silent_and_a_waiting_client_may_not() {
    let mut pair = asked(100.0, SlotState::Leased(100.0));
    let told = pair.client_event();
    assert!(matches!(told, Some(ClientEvent::Reply(_))), "{told:?}");
    let until = pair.now + IDLE_TIMEOUT + Duration::from_secs(100);
    assert_eq!(pair.server.poll_timeout(), Some(until));
    pair.advance(until - pair.now);
    assert!(pair.server.is_closed());
}

#[test]
fn asking_again_for_a_slot_that_is_another_clients_puts_off_nothing() {
    let mut pair = asked(100.0, SlotState::Busy(100.0));
    let until = pair.now + IDLE_TIMEOUT;
    for _ in 0..10 {
        let told = pair.client_event();
        assert!(matches!(told, Some(ClientEvent::Reply(_))), "{told:?}");
        assert_eq!(pair.server.poll_timeout(), Some(until));
        pair.advance(IDLE_TIMEOUT / 20);
        pair.client.ask(pair.now, Slot { seconds: 100.0 });
        assert!(pair.server_event().is_some());
        let busy = Reply::Slot(SlotState::Busy(100.0));
        pair.server.reply(pair.now, busy);
    }
    pair.advance(IDLE_TIMEOUT / 2);
    assert!(pair.server.is_closed());
}

#[test]
fn a_lease_without_an_end_or_without_length_is_neither_given_nor_believed() {
    for seconds in [0.0, -1.0, 1e-9, 0.999, MAX_LEASE_S + 1.0] {
        let mut pair = Pair::new(None, None, 100);
        pair.client_event();
        pair.client.ask(pair.now, Slot { seconds });
        assert_eq!(pair.server_event(), None);
        let refused = pair.client_event();
        let Some(ClientEvent::Refused(refusal)) = refused else {
            panic!("{seconds}: {refused:?}");
        };
        assert!(refusal.message.contains("for 1 to 900 s"), "{refusal:?}");
        pair.run_one_test();
    }
    for answer in [SlotState::Leased(1e9), SlotState::Busy(-1.0)] {
        let mut pair = asked(1.0, answer);
        let told = pair.client_event();
        assert!(matches!(told, Some(ClientEvent::Failed(_))), "{told:?}");
    }
}
