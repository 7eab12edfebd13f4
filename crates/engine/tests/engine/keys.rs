//! Endpoints with a key.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::thread;

use linerate_core::foreign::Tool;
use linerate_core::plan::{Direction, Test};
use linerate_core::session::message::RefusalReason;
use linerate_core::wire::Key;
use linerate_engine::{Categorized, Category, MeasureError, Partner, Stop, Target};
use linerate_sys::proc::sysctl;

use super::support::{LIMITS, Served, bytes, stream};

fn key(digit: &str) -> Key {
    Key::from_text(&digit.repeat(64)).unwrap()
}

#[test]
fn a_client_with_the_key_measures_and_one_without_gets_an_error() {
    let served = Served::with([127, 0, 0, 1].into(), LIMITS, Some(key("a")));
    let mut client = served.client_with(Some(key("a"))).unwrap();
    let outcome = client.run(&bytes(1 << 20), &mut |_| true).unwrap();
    assert!(outcome.error.is_none() && outcome.record.bytes() == 1 << 20);
    let wrong = served.client_with(Some(key("b"))).unwrap_err();
    assert!(wrong.to_string().contains("has another key"), "{wrong}");
    let none = served.client_with(None).unwrap_err();
    assert!(none.to_string().contains("--key-file"), "{none}");
}

#[test]
fn a_full_endpoint_gives_the_number_of_its_clients() {
    let limits = linerate_core::session::message::Limits { clients: 1, ..LIMITS };
    let served = Served::with([127, 0, 0, 1].into(), limits, None);
    let _first = served.client();
    let busy = served.client_with(None).unwrap_err();
    assert!(busy.is_busy(), "{busy}");
    assert!(busy.to_string().contains("1 of at most 1 clients"), "{busy}");
}

/// Anybody on the path can answer like another tool's server, which proves nothing.
#[test]
fn a_key_is_never_answered_by_another_tools_server() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let server = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut hello = [0; 37];
        stream.read_exact(&mut hello).unwrap();
        // What an iperf3 server says to any cookie: PARAM_EXCHANGE.
        stream.write_all(&[9]).unwrap();
        let _ = stream.read_to_end(&mut Vec::new());
        listener.set_nonblocking(true).unwrap();
        assert!(listener.accept().is_err(), "it was used all the same");
    });
    let connect = |via| {
        let target = Target { key: Some(key("a")), ..Target::at("endpoint", address) };
        Partner::connect(target, via, Stop::new()).unwrap_err()
    };
    let found = connect(None);
    server.join().unwrap();
    for (error, tool) in [(found, "iperf3"), (connect(Some(Tool::Netperf)), "netperf")] {
        let words = format!("{tool}'s server cannot prove the key of --key-file");
        assert!(error.to_string().contains(&words), "{error}");
        assert_eq!(error.category(), Category::Failed);
    }
}

/// For root the kernel would load the module of any name.
#[test]
fn a_client_without_the_key_can_only_name_allowed_congestion_controls() {
    let read = |key: &str| sysctl::read(&format!("net.ipv4.tcp_{key}_congestion_control"));
    let (allowed, available) = (read("allowed").unwrap(), read("available").unwrap());
    let may = |name: &&str| allowed.split(' ').any(|word| word == *name);
    let test = |direction, name: &str| {
        let mut test = Test { direction, ..stream() };
        test.options.congestion = Some(name.to_owned());
        test
    };
    let open = Served::start();
    let refused = |name: &str| {
        let mut client = open.client();
        match client.run(&test(Direction::Down, name), &mut |_| true) {
            Err(MeasureError::Refused { refusal, .. }) => refusal,
            other => panic!("{other:?}"),
        }
    };
    let others = available.split(' ').filter(|name| !may(name));
    for name in others.clone().chain(["nosuch"]) {
        let refusal = refused(name);
        assert_eq!(refusal.reason, RefusalReason::Test);
        let words = format!("({allowed}), which has no {name}");
        assert!(refusal.message.ends_with(&words), "{}", refusal.message);
    }
    let name = allowed.split(' ').next().unwrap();
    open.run(&test(Direction::Down, name));
    let keyed = Served::with([127, 0, 0, 1].into(), LIMITS, Some(key("a")));
    let mut client = keyed.client_with(Some(key("a"))).unwrap();
    let refused = client.run(&test(Direction::Down, "nosuch"), &mut |_| true);
    let words = refused.unwrap_err().to_string();
    assert!(!words.contains("allowed_congestion_control ("), "{words}");
}
