//! Clients that change the endpoint's host: who may, what they may, and that it is restored when
//! they leave.
//!
//! The changes are made in network namespaces of the tests. Where those cannot be made, the tests
//! print SKIPPED.

use linerate_core::plan::{Direction, Test};
use linerate_core::record::Record;
use linerate_core::session::ClientEvent;
use linerate_core::session::message::RefusalReason;
use linerate_core::treatment::HostChange;
use linerate_core::wire::Key;
use linerate_engine::{
    Categorized, Category, Client, Endpoint, MeasureError, ServeEvent, Stop, undo_leftovers,
};
use linerate_sys::netlink::TcpMetrics;
use linerate_sys::netns::Pair;
use linerate_testkit::{Need, eventually, skip};
use std::fs;
use std::io::{Read, Write};
use std::net::{IpAddr, Shutdown, TcpListener, TcpStream};
use std::thread;

use super::bench::{Bench, limits, options, stream, target};
use super::fake;
use super::server::meet;
use super::stranger::{Leave, Stage, Stranger, frame, is_closed, refusal};

fn key() -> Key {
    Key::from_text(&"a".repeat(64)).unwrap()
}

fn sysctl(key: &str, value: &str) -> HostChange {
    HostChange::Sysctl { key: key.into(), value: value.into() }
}

/// No selective acknowledgements; a fresh namespace has them.
fn no_sack() -> [HostChange; 1] {
    [sysctl("net.ipv4.tcp_sack", "0")]
}

fn mtu(bytes: u32) -> HostChange {
    let json = serde_json::json!({"scope": "device", "setting": "mtu", "value": bytes.to_string()});
    serde_json::from_value(json).expect("a device has an MTU")
}

/// A sysctl of the calling thread's network namespace.
fn value(key: &str) -> String {
    let path = format!("/proc/sys/{}", key.replace('.', "/"));
    fs::read_to_string(path).unwrap().trim().to_owned()
}

fn has_sack() -> bool {
    value("net.ipv4.tcp_sack") == "1"
}

fn assert_sack_soon(what: &str) {
    eventually(&format!("{what}: the host is as it was"), has_sack);
}

/// Runs `work` in a host of its own, which serves treatments to clients with the key there and on
/// the other end of a link.
fn on_a_host(work: impl FnOnce(&Pair, Bench) + Send) {
    let pair = match Pair::create() {
        Ok(pair) => pair,
        Err(error) => {
            skip(Need::Lab, format_args!("needs network namespaces: {error}"));
            return;
        }
    };
    let mut serve = options(limits(), Some(key()));
    serve.bind = Some(pair.b.ipv4.into());
    serve.allow_treatments = true;
    let done = pair.b.namespace.run(|| {
        assert!(has_sack(), "a fresh namespace has it");
        work(&pair, Bench::serving(&serve));
    });
    done.unwrap();
}

fn connect(bench: &Bench) -> Client {
    bench.connect(Some(key())).unwrap()
}

fn complete(client: &mut Client, test: &Test) -> Record {
    let outcome = client.run(test, &mut |_| true).unwrap();
    assert!(outcome.error.is_none(), "{:?}", outcome.error);
    outcome.record
}

fn refused(result: Result<Vec<String>, MeasureError>) -> (RefusalReason, String, Category) {
    let error = result.unwrap_err();
    let category = error.category();
    match error {
        MeasureError::Refused { refusal, .. } => (refusal.reason, refusal.message, category),
        other => panic!("{other}"),
    }
}

#[test]
fn an_endpoint_without_treatments_is_not_asked_for_any_and_refuses_them() {
    own_process!();
    for key in [None, Some(key())] {
        let bench = Bench::with(limits(), key.clone());
        let mut client = bench.connect(key.clone()).unwrap();
        let (reason, words, category) = refused(client.treat(&no_sack()));
        assert_eq!(reason, RefusalReason::Treatment);
        assert!(words.contains("--allow-treatments"), "{words}");
        assert_eq!(category, Category::Missing);
        // Nothing was changed, so there is nothing to undo, and the session goes on.
        client.treat(&[]).unwrap();
        client.untreat().unwrap();
        complete(&mut client, &stream(100));
        if key.is_none() {
            let mut stranger = Stranger::at(bench.address, &stream(1000), Stage::Welcomed);
            stranger.write(&treat_frame());
            let refusal = refusal(&mut stranger.control);
            assert_eq!(refusal.reason, RefusalReason::Treatment);
        }
    }
    assert!(has_sack());
}

fn treat_frame() -> Vec<u8> {
    let changes = no_sack();
    let body = serde_json::json!({
        "say": "ask", "operation": "treat", "request": {"changes": changes}
    })
    .to_string();
    frame(body.as_bytes())
}

#[test]
fn no_endpoint_gives_treatments_to_clients_without_a_key() {
    own_process!();
    let mut serve = options(limits(), None);
    serve.allow_treatments = true;
    let error = Endpoint::bind(&serve).unwrap_err();
    assert!(error.to_string().contains("needs a key"), "{error}");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    assert!(Endpoint::from_listeners(vec![listener], &serve).is_err());
}

#[test]
fn treatments_last_until_they_are_undone() {
    own_process!();
    on_a_host(|pair, bench| {
        let address = bench.address;
        let there = &pair.a.namespace;
        let client = there.run(|| Client::connect(target(address, Some(key())), Stop::new()));
        let mut client = client.unwrap().unwrap();
        let device_mtu = |client: &mut Client| {
            let record = there.run(|| complete(client, &stream(200))).unwrap();
            record.environment.server.unwrap().device.unwrap().mtu_bytes
        };
        assert_eq!(device_mtu(&mut client), 1500);
        let read_back = client.treat(&[mtu(1400), no_sack()[0].clone()]).unwrap();
        assert_eq!(read_back.len(), 2, "{read_back:?}");
        let words = read_back.join(" ");
        assert!(words.contains("1400") && words.contains("tcp_sack"), "{words}");
        assert!(!has_sack());
        assert_eq!(device_mtu(&mut client), 1400);
        // Others take their place: the MTU is as it was.
        client.treat(&no_sack()).unwrap();
        assert!(!has_sack());
        assert_eq!(device_mtu(&mut client), 1500);
        client.untreat().unwrap();
        assert!(has_sack());
        assert_eq!(device_mtu(&mut client), 1500);
    });
}

#[test]
fn only_the_table_is_applied_and_all_of_it_or_nothing() {
    own_process!();
    on_a_host(|_, bench| {
        let mut client = connect(&bench);
        for (change, words) in [
            (sysctl("kernel.core_pattern", "x"), "kernel.core_pattern"),
            (sysctl("net.ipv4.no_such_key", "1"), "no_such_key"),
            (sysctl("net.ipv4.tcp_sack", "7"), "tcp_sack"),
            (sysctl("net/../kernel.hostname", "x"), "hostname"),
            (mtu(1), "mtu"),
            // In the table and in range, and the kernel has none of that name.
            (sysctl("net.ipv4.tcp_congestion_control", "nosuch"), "tcp_congestion_control"),
        ] {
            let changes = [no_sack()[0].clone(), change];
            let (reason, message, category) = refused(client.treat(&changes));
            assert_eq!(reason, RefusalReason::Treatment, "{message}");
            assert!(message.contains(words), "{message}");
            assert_eq!(category, Category::Missing);
            assert!(has_sack(), "{words}");
        }
        let many = vec![no_sack()[0].clone(); 33];
        let (reason, message, _) = refused(client.treat(&many));
        assert_eq!(reason, RefusalReason::Limit);
        assert!(message.contains("33 were asked for"), "{message}");
        // A refused treatment leaves nothing of the one before it.
        client.treat(&no_sack()).unwrap();
        let none = [sysctl("net.ipv4.tcp_congestion_control", "nosuch")];
        refused(client.treat(&none));
        assert!(has_sack());
        complete(&mut client, &stream(100));
        drop(client);
        // Nor does it keep out other clients.
        connect(&bench).treat(&no_sack()).unwrap();
        assert_sack_soon("said goodbye");
        bench.assert_clean("refused treatments");
    });
}

#[test]
fn treatments_are_undone_however_the_client_ends() {
    own_process!();
    on_a_host(|_, bench| {
        let test = Test { direction: Direction::Both, ..stream(30_000) };
        for stage in [Stage::Welcomed, Stage::Opened, Stage::Ready, Stage::Running] {
            for how in [Leave::Close, Leave::Reset] {
                let treated = Stranger::treated(bench.address, &key(), &no_sack(), &test, stage);
                assert!(!has_sack());
                treated.leave(how);
                assert_sack_soon(&format!("{stage:?}, {how:?}"));
            }
        }
        let mut rude = Stranger::treated(bench.address, &key(), &no_sack(), &test, Stage::Running);
        rude.write(b"none of linerate's bytes");
        assert_sack_soon("rubbish");
        drop(rude);
        bench.assert_clean("treated clients");
        // A session that waits for nothing but its client, and one with a run, when the endpoint is
        // stopped.
        let mut waiting = connect(&bench);
        waiting.treat(&no_sack()).unwrap();
        assert!(!has_sack());
        bench.end();
        assert!(has_sack(), "the endpoint ended before it had undone it");
        assert!(waiting.untreat().is_err());
    });
}

const PORTS: &str = "net.ipv4.ip_local_port_range";
/// The lowest port at which a range can begin.
const PRIVILEGED: &str = "net.ipv4.ip_unprivileged_port_start";

fn set(key: &str, value: &str) {
    fs::write(format!("/proc/sys/{}", key.replace('.', "/")), value).unwrap();
}

/// The log's line about the failure to undo.
fn undoing_failed(bench: &Bench) -> Vec<String> {
    let log = bench.log().into_iter();
    log.filter_map(|event| match event {
        ServeEvent::Untreated { error, .. } => error,
        _ => None,
    })
    .collect()
}

/// The kernel refuses one of the old values: the client and the log are told, the others are put
/// back, and nobody measures on a host that is not as it was.
#[test]
fn a_treatment_that_cannot_be_undone_is_reported_and_blocks_the_host() {
    own_process!();
    let ways: [fn(Client); 3] = [
        |mut client| {
            let error = client.untreat().unwrap_err().to_string();
            assert!(error.contains("cannot undo") && error.contains(PORTS), "{error}");
        },
        |mut client| {
            let error = client.treat(&no_sack()).unwrap_err().to_string();
            assert!(error.contains("cannot undo") && error.contains(PORTS), "{error}");
        },
        drop,
    ];
    for way in ways {
        on_a_host(|_, bench| {
            let (ports, privileged) = (value(PORTS), value(PRIVILEGED));
            let mut client = connect(&bench);
            let changes = [sysctl(PORTS, "50000 60999"), no_sack()[0].clone()];
            client.treat(&changes).unwrap();
            set(PRIVILEGED, "40000");
            way(client);
            assert_sack_soon("beside what could not be undone");
            eventually("the log tells it", || !undoing_failed(&bench).is_empty());
            let [words] = &undoing_failed(&bench)[..] else {
                panic!("{:?}", bench.log());
            };
            assert!(words.contains("cannot undo") && words.contains(PORTS), "{words}");
            assert_ne!(value(PORTS), ports);

            let mut next = connect(&bench);
            let (reason, message, _) = refused(next.treat(&no_sack()));
            assert_eq!(reason, RefusalReason::Busy);
            assert!(message.contains("could not be undone"), "{message}");
            let error = next.run(&stream(100), &mut |_| true).unwrap_err();
            assert!(error.to_string().contains("could not be undone"), "{error}");
            drop(next);
            bench.end();
            // The change stays in the journal: the next start undoes it if it can.
            set(PRIVILEGED, &privileged);
            undo_leftovers();
            assert_eq!(value(PORTS), ports);
        });
    }
}

#[test]
fn a_stopped_endpoint_undoes_what_a_running_test_needed() {
    own_process!();
    on_a_host(|_, bench| {
        let test = stream(30_000);
        let treated = Stranger::treated(bench.address, &key(), &no_sack(), &test, Stage::Running);
        assert!(!has_sack());
        bench.end();
        assert!(has_sack());
        drop(treated);
    });
}

#[test]
fn treatments_within_a_run_are_refused() {
    own_process!();
    let bench = Bench::start();
    for stage in [Stage::Opened, Stage::Ready, Stage::Running] {
        let mut stranger = Stranger::at(bench.address, &stream(30_000), stage);
        stranger.write(&treat_frame());
        let words = loop {
            if let ClientEvent::Failed(error) = stranger.event() {
                break error.to_string();
            }
        };
        assert!(words.contains("an unexpected message"), "{stage:?}: {words}");
        assert!(is_closed(&mut stranger.control), "{stage:?}");
    }
    bench.assert_clean("out of turn");
    bench.assert_serves();
}

#[test]
fn one_client_treats_while_no_other_measures() {
    own_process!();
    on_a_host(|_, bench| {
        let (mut first, mut second) = (connect(&bench), connect(&bench));
        first.treat(&no_sack()).unwrap();
        let (reason, message, category) = refused(second.treat(&no_sack()));
        assert_eq!((reason, category), (RefusalReason::Busy, Category::Failed));
        assert!(message.contains("another client's treatments"), "{message}");
        let error = second.run(&stream(100), &mut |_| true).unwrap_err();
        assert!(error.is_busy(), "{error}");
        assert!(!has_sack());
        complete(&mut first, &stream(100));
        first.untreat().unwrap();
        // Both sessions go on, and the other one has its turn.
        second.treat(&no_sack()).unwrap();
        assert!(first.run(&stream(100), &mut |_| true).unwrap_err().is_busy());
        drop(second);
        complete(&mut first, &stream(100));
        assert!(has_sack());
        let test = stream(30_000);
        let treated = Stranger::treated(bench.address, &key(), &no_sack(), &test, Stage::Ready);
        assert!(first.treat(&no_sack()).unwrap_err().is_busy());
        treated.leave(Leave::Close);
        first.treat(&no_sack()).unwrap();
        drop(first);
        assert_sack_soon("the last one");
        bench.assert_clean("two clients");
    });
}

#[test]
fn a_client_does_not_treat_under_another_clients_test() {
    own_process!();
    on_a_host(|_, bench| {
        let (mut measures, mut treats) = (connect(&bench), connect(&bench));
        // Stopped when the other one was refused: no machine is slow for as long as it would last.
        let outcome = measures.run(&stream(60_000), &mut |_| {
            let (reason, message, _) = refused(treats.treat(&no_sack()));
            assert_eq!(reason, RefusalReason::Busy);
            assert!(message.contains("other clients (1)"), "{message}");
            assert!(has_sack());
            false
        });
        assert!(matches!(outcome.unwrap().error, Some(MeasureError::Interrupted)));
        treats.treat(&no_sack()).unwrap();
    });
}

/// Otherwise the next run would begin with the window and the round-trip time of the last one.
#[test]
fn tcp_metrics_of_earlier_runs_are_forgotten() {
    own_process!();
    on_a_host(|pair, bench| {
        let address = bench.address;
        let client_address = IpAddr::from(pair.a.ipv4);
        let there = &pair.a.namespace;
        let mut metrics = TcpMetrics::open().unwrap();
        if let Err(error) = metrics.flush() {
            skip(Need::Root, format_args!("needs CAP_NET_ADMIN of the whole host: {error}"));
            return;
        }
        let mut knows = || metrics.hosts().unwrap().contains(&client_address);
        let client = there.run(|| Client::connect(target(address, Some(key())), Stop::new()));
        let mut client = client.unwrap().unwrap();
        transfer(pair);
        eventually("something is learnt of the client", &mut knows);
        let test = Test { direction: Direction::Down, ..stream(60_000) };
        // Asked once while the run goes on: its end teaches the kernel anew.
        let mut known = None;
        let outcome = there.run(|| {
            client.run(&test, &mut |_| {
                known = Some(knows());
                false
            })
        });
        outcome.unwrap().unwrap();
        assert_eq!(known, Some(false));
    });
}

/// Two megabytes from this host to the client's, and an orderly end: what TCP keeps something of.
fn transfer(pair: &Pair) {
    let listener = TcpListener::bind((pair.b.ipv4, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let read = || TcpStream::connect(address).unwrap().read_to_end(&mut Vec::new());
            pair.a.namespace.run(read).unwrap().unwrap()
        });
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(&vec![0; 2_000_000]).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        assert_eq!(stream.read(&mut [0]).unwrap(), 0);
        assert_eq!(reader.join().unwrap(), 2_000_000);
    });
}

/// An endpoint that allows treatments and then misbehaves.
#[test]
fn an_endpoint_that_dies_when_asked_to_treat_ends_the_client() {
    own_process!();
    let welcome = || {
        let mut welcome = fake::welcome();
        welcome.operations.push("treatments".into());
        welcome
    };
    for (answer, words) in [
        (None, "the peer closed the connection"),
        (
            Some(&br#"{"say":"answer","operation":"open","reply":null}"#[..]),
            "an unexpected message: from the endpoint",
        ),
        (
            Some(br#"{"say":"answer","operation":"untreat","reply":null}"#),
            "an unexpected message: from the endpoint",
        ),
        (
            Some(br#"{"say":"refuse","reason":"failed","message":"the disk is full"}"#),
            "the disk is full",
        ),
    ] {
        let (address, thread) = fake::endpoint(fake::Stage::Welcomed, welcome(), move |fake| {
            let mut bytes = [0; 4096];
            let asked = fake.control.read(&mut bytes).unwrap();
            assert!(String::from_utf8_lossy(&bytes[..asked]).contains("\"treat\""));
            if let Some(answer) = answer {
                let _ = fake.control.write_all(&frame(answer));
            }
        });
        let mut client = Client::connect(target(address, None), Stop::new()).unwrap();
        let error = client.treat(&no_sack()).unwrap_err();
        thread.join().unwrap();
        assert!(error.to_string().contains(words), "{error}");
        assert_eq!(error.category(), Category::Failed);
    }
}

/// The refusal of a busy endpoint belongs to the test and not to the session.
#[test]
fn a_refusal_as_busy_has_the_endpoints_message() {
    own_process!();
    let busy = frame(br#"{"say":"refuse","reason":"busy","message":"treated by another"}"#);
    let end =
        meet(fake::Stage::Asked, fake::welcome(), 100, Stop::new(), move |fake| fake.say(&busy));
    assert_eq!(end.words, "PEER refuses: treated by another");
}
