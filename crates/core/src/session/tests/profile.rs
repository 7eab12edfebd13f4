//! A test that is opened with a profile.

use super::*;
use crate::profile::{MAX_HZ, ProfileRequest};
use crate::session::message::PROFILE;

fn profiling() -> Welcome {
    let mut welcome = welcome();
    welcome.operations.push(PROFILE.to_owned());
    welcome
}

fn opened(welcome: Welcome, hz: u32) -> (Pair, Vec<ServerEvent>) {
    let mut pair = Pair::welcomed(welcome, None, None, 100);
    assert!(matches!(pair.client_event(), Some(ClientEvent::Welcome(_))));
    let request = ProfileRequest { hz };
    pair.client
        .open_profiled(pair.now, &test_of(5, 1), Some(request));
    let mut events = Vec::new();
    while let Some(event) = pair.server_event() {
        events.push(event);
    }
    (pair, events)
}

#[test]
fn a_profile_is_asked_for_with_its_test() {
    let (_, events) = opened(profiling(), 499);
    let test = Box::new(test_of(5, 1));
    let asked = ServerEvent::Profile(ProfileRequest { hz: 499 });
    assert_eq!(events, [asked, ServerEvent::Open(test)]);
}

#[test]
fn a_profile_that_is_not_to_be_had_refuses_the_test_and_the_session_goes_on() {
    for (welcome, hz) in [
        (welcome(), 499),
        (profiling(), MAX_HZ + 1),
        (profiling(), 0),
    ] {
        let (mut pair, events) = opened(welcome, hz);
        assert_eq!(events, []);
        assert!(matches!(
            pair.client_event(),
            Some(ClientEvent::TestRefused(_))
        ));
        pair.client.open(pair.now, &test_of(5, 1));
        assert!(matches!(pair.server_event(), Some(ServerEvent::Open(_))));
    }
}
