//! A test that is opened with a profile.

use super::*;
use crate::profile::{MAX_HZ, ProfileRequest};
use crate::session::operation::PROFILE;

fn profiling() -> Welcome {
    let mut welcome = welcome();
    welcome.operations.push(PROFILE.to_owned());
    welcome
}

fn opened(welcome: Welcome, hz: u32) -> (Pair, Vec<ServerEvent>) {
    let mut pair = Pair::welcomed(welcome, None, None, 100);
    assert!(matches!(pair.client_event(), Some(ClientEvent::Welcome(_))));
    let profile = Some(ProfileRequest { hz });
    let asked = Open { profile, ..open(&test_of(5, 1)) };
    pair.client.ask(pair.now, asked);
    let mut events = Vec::new();
    while let Some(event) = pair.server_event() {
        events.push(event);
    }
    (pair, events)
}

#[test]
fn a_profile_is_asked_for_with_its_test() {
    let (_, events) = opened(profiling(), 499);
    let asked = Open { profile: Some(ProfileRequest { hz: 499 }), ..open(&test_of(5, 1)) };
    assert_eq!(events, [ServerEvent::Request(asked.into())]);
}

#[test]
fn a_profile_that_is_not_to_be_had_refuses_the_test_and_the_session_goes_on() {
    for (welcome, hz) in [(welcome(), 499), (profiling(), MAX_HZ + 1), (profiling(), 0)] {
        let (mut pair, events) = opened(welcome, hz);
        assert_eq!(events, []);
        assert!(matches!(pair.client_event(), Some(ClientEvent::Refused(_))));
        pair.client.ask(pair.now, open(&test_of(5, 1)));
        assert!(matches!(pair.server_event(), Some(ServerEvent::Request(Request::Open(_)))));
    }
}
