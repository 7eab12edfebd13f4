//! Endpoints with a key.

use linerate_core::wire::Key;

use super::support::{LIMITS, Served, stream};

fn key(digit: &str) -> Key {
    Key::from_text(&digit.repeat(64)).unwrap()
}

#[test]
fn a_client_with_the_key_measures_and_one_without_is_told() {
    let served = Served::with([127, 0, 0, 1].into(), LIMITS, Some(key("a")));
    let mut client = served.client_with(Some(key("a"))).unwrap();
    let outcome = client.run(&stream(), &mut |_| true).unwrap();
    assert!(outcome.error.is_none() && outcome.record.bytes() > 0);
    let wrong = served.client_with(Some(key("b"))).unwrap_err();
    assert!(wrong.to_string().contains("key is another one"), "{wrong}");
    let none = served.client_with(None).unwrap_err();
    assert!(none.to_string().contains("--key-file"), "{none}");
}

#[test]
fn a_full_endpoint_says_how_many_are_there() {
    let limits = linerate_core::session::message::Limits {
        clients: 1,
        ..LIMITS
    };
    let served = Served::with([127, 0, 0, 1].into(), limits, None);
    let _first = served.client();
    let busy = served.client_with(None).unwrap_err();
    assert!(busy.is_busy(), "{busy}");
    assert!(
        busy.to_string().contains("1 of at most 1 clients"),
        "{busy}"
    );
}
