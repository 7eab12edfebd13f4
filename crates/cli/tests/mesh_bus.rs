//! What every bus of a mesh must do: the one inside of a process, and that on NATS.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use linerate_engine::mesh::LocalBus;
use linerate_mesh::bus::{ACKNOWLEDGED_WITHIN, Bus, Delivery, MAX_WAITING, OFFER_LIFE};
use linerate_testkit::{PATIENCE, eventually};

const SHORT: Duration = Duration::from_millis(300);
/// A server drops what is too old by a timer of its own, which a busy machine delays. The coordinator
/// leaves it 10 s.
const DROPPED_WITHIN: Duration = Duration::from_secs(8);

fn body(delivery: Option<Delivery>) -> Option<String> {
    delivery.map(|it| String::from_utf8(it.body).unwrap())
}

/// All laws. The last one waits on a bus of its own meanwhile.
fn obeys_all_laws<B: Bus + Sync>(buses: &[B; 2]) {
    for bus in buses {
        bus.prepare(&["a.1", "b"]).unwrap();
    }
    let [bus, other] = buses;
    thread::scope(|scope| {
        scope.spawn(|| what_nobody_takes_is_gone(other));
        who_is_there_is_seen_until_it_leaves(bus);
        a_task_is_taken_by_its_site_and_comes_again_until_it_is_acknowledged(bus);
        a_report_comes_once_however_often_it_is_published(bus);
        a_site_that_reports_without_end_leaves_room_for_the_others(bus);
    });
}

fn who_is_there_is_seen_until_it_leaves(bus: &dyn Bus) {
    let seen = || {
        let seen = bus.present().unwrap().into_iter();
        seen.map(|it| (it.site, String::from_utf8(it.body).unwrap())).collect::<BTreeMap<_, _>>()
    };
    bus.announce("a.1", b"one").unwrap();
    bus.announce("b", b"two").unwrap();
    bus.announce("a.1", b"three").unwrap();
    eventually("both are seen", || {
        let seen = seen();
        seen.get("a.1").is_some_and(|it| it == "three") && seen.contains_key("b")
    });
    bus.withdraw("b").unwrap();
    eventually("one has left", || !seen().contains_key("b"));
}

fn a_task_is_taken_by_its_site_and_comes_again_until_it_is_acknowledged(bus: &dyn Bus) {
    bus.offer("a.1", "t1", b"first").unwrap();
    bus.offer("a.1", "t1", b"first").unwrap();
    let since = Instant::now();
    let taken = bus.take("a.1", PATIENCE).unwrap().unwrap();
    assert_eq!((taken.site.as_str(), &*taken.body), ("a.1", &b"first"[..]));
    assert_eq!(body(bus.take("b", SHORT).unwrap()), None);
    let mut again = None;
    eventually("what was not acknowledged comes again", || {
        again = bus.take("a.1", SHORT).unwrap();
        again.is_some()
    });
    let again = again.unwrap();
    assert!(since.elapsed() >= ACKNOWLEDGED_WITHIN, "it came too soon");
    bus.acknowledge(&again).unwrap();
    assert_eq!(body(bus.take("a.1", ACKNOWLEDGED_WITHIN + SHORT).unwrap()), None);
}

fn a_report_comes_once_however_often_it_is_published(bus: &dyn Bus) {
    for _ in 0..3 {
        bus.publish("b", "r1.ended", b"done").unwrap();
    }
    bus.publish("a.1", "r2.ended", b"too").unwrap();
    let mut came = Vec::new();
    for _ in 0..2 {
        let report = bus.collect(PATIENCE).unwrap().unwrap();
        bus.acknowledge(&report).unwrap();
        came.push((report.site.clone(), body(Some(report)).unwrap()));
    }
    let pair = |site: &str, body: &str| (site.to_owned(), body.to_owned());
    assert_eq!(came, [pair("b", "done"), pair("a.1", "too")]);
    assert_eq!(body(bus.collect(SHORT).unwrap()), None);
}

fn a_site_that_reports_without_end_leaves_room_for_the_others(bus: &dyn Bus) {
    let publish = |number: &usize| bus.publish("b", &format!("f{number}"), b"flood").is_ok();
    assert_eq!((0..MAX_WAITING + 9).filter(publish).count(), MAX_WAITING);
    bus.publish("a.1", "r3.ended", b"heard").unwrap();
    for left in (0..=MAX_WAITING).rev() {
        let report = bus.collect(PATIENCE).unwrap().unwrap();
        bus.acknowledge(&report).unwrap();
        assert_eq!(report.site == "a.1", left == 0);
    }
    assert!(publish(&MAX_WAITING));
}

fn what_nobody_takes_is_gone(bus: &dyn Bus) {
    bus.offer("b", "t2", b"cleared").unwrap();
    bus.clear().unwrap();
    assert_eq!(body(bus.take("b", SHORT).unwrap()), None);
    bus.offer("b", "t3", b"too old").unwrap();
    thread::sleep(OFFER_LIFE + DROPPED_WITHIN);
    assert_eq!(body(bus.take("b", SHORT).unwrap()), None);
}

#[test]
fn the_bus_of_one_process_obeys_all_laws() {
    obeys_all_laws(&[LocalBus::default(), LocalBus::default()]);
}

#[cfg(feature = "nats")]
mod nats {
    use std::fmt::Write as _;
    use std::fs;
    use std::io::{BufRead as _, BufReader, Write as _};
    use std::net::TcpStream;
    use std::path::Path;
    use std::sync::Arc;

    use linerate_web::nats::{NatsBus, NatsOptions};

    use super::*;
    use crate::monitor::run;
    use crate::nats_server::Server;
    use crate::support::stdout;

    fn options(server: &Server) -> NatsOptions {
        NatsOptions { servers: server.url(), ..NatsOptions::default() }
    }

    #[test]
    fn the_bus_on_nats_obeys_all_laws() {
        let (Some(one), Some(other)) = (Server::start(""), Server::start("")) else {
            return;
        };
        obeys_all_laws(
            &[one, other]
                .each_ref()
                .map(|server| NatsBus::connect(&options(server), Arc::new(|_| {})).unwrap()),
        );
    }

    /// What a site's user sends by the bytes of the protocol, until the server has answered.
    fn say(server: &Server, words: &[(&str, &str, &str)]) {
        let mut stream = TcpStream::connect(("127.0.0.1", server.port())).unwrap();
        let mut text = "CONNECT {\"verbose\":false,\"user\":\"h\",\"pass\":\"h\"}\r\n".to_owned();
        for (subject, reply, body) in words {
            let _ = write!(text, "PUB {subject} {reply} {}\r\n{body}\r\n", body.len());
        }
        stream.write_all((text + "PING\r\n").as_bytes()).unwrap();
        let mut lines = BufReader::new(stream).lines();
        assert!(lines.any(|line| line.unwrap() == "PONG"));
    }

    /// The users of a mesh, of whom the hostile one logs in by a password, which needs no
    /// signature.
    fn users(here: &Path) -> String {
        let sites = "[[site]]\nname = \"h\"\n[[site]]\nname = \"b\"\n";
        let test = "[[test]]\nname = \"t\"\nworkload = { command = \"rr\" }\n";
        fs::write(here.join("m.toml"), format!("{sites}{test}")).unwrap();
        let users = stdout(&run(here, "mesh permissions m.toml --keys keys"));
        let (before, of_site) = users.split_once("# h\n").unwrap();
        let (_, after) = of_site.split_once(", permissions").unwrap();
        format!("{before}\n{{ user: h, password: h, permissions{after}")
    }

    #[test]
    fn a_site_reaches_no_stream_of_the_coordinator_by_the_answers_of_the_server() {
        let directory = tempfile::tempdir().unwrap();
        let here = directory.path();
        let Some(server) = Server::start(&users(here)) else {
            return;
        };
        let bus = |site: Option<&str>| {
            let key = here.join(format!("keys/{}.nk", site.unwrap_or("coordinator")));
            let options = NatsOptions {
                credentials: Some(fs::read_to_string(key).unwrap()),
                site: site.map(str::to_owned),
                ..options(&server)
            };
            NatsBus::connect(&options, Arc::new(|_| {})).unwrap()
        };
        let (coordinator, other) = (bus(None), bus(Some("b")));
        coordinator.prepare(&["h", "b"]).unwrap();
        other.announce("b", b"here").unwrap();
        other.publish("b", "r1.ended", b"done").unwrap();
        let next = "$JS.API.CONSUMER.MSG.NEXT.linerate_work.h";
        // An answer to a report has a body that is read as a request to purge; that to a request
        // for a task that is not there has none, as a request to delete.
        say(
            &server,
            &[
                ("linerate.report.h", "$JS.API.STREAM.PURGE.linerate_reports", ""),
                ("linerate.report.h", "$KV.linerate_sites.b", ""),
                (next, "$JS.API.STREAM.DELETE.linerate_reports", "{\"no_wait\":true}"),
                (next, "$JS.API.STREAM.DELETE.linerate_work", "{\"no_wait\":true}"),
                (next, "$JS.API.STREAM.DELETE.KV_linerate_sites", "{\"no_wait\":true}"),
            ],
        );
        // What was said is done when its reports come.
        let mut came = Vec::new();
        while came.len() < 3 {
            let report = coordinator.collect(PATIENCE).unwrap().unwrap();
            coordinator.acknowledge(&report).unwrap();
            came.push((report.site.clone(), body(Some(report)).unwrap()));
        }
        assert!(came.contains(&("b".to_owned(), "done".to_owned())), "{came:?}");
        let seen = coordinator.present().unwrap();
        let of_other = seen.iter().find(|it| it.site == "b").unwrap();
        assert_eq!(of_other.body, b"here");
        coordinator.offer("b", "t1", b"go on").unwrap();
        assert_eq!(body(other.take("b", PATIENCE).unwrap()), Some("go on".to_owned()));
    }

    #[test]
    fn reports_survive_a_killed_server_and_calls_fail_meanwhile() {
        let Some(mut server) = Server::start("") else {
            return;
        };
        let bus = NatsBus::connect(&options(&server), Arc::new(|_| {})).unwrap();
        bus.prepare(&["a"]).unwrap();
        bus.publish("a", "r1.ended", b"done").unwrap();
        server.kill();
        assert!(bus.publish("a", "r2.ended", b"lost").is_err());
        server.start_again();
        eventually("it takes reports again", || {
            bus.publish("a", "r2.ended", b"sent again").is_ok()
        });
        let mut came = Vec::new();
        eventually("both come", || {
            if let Ok(Some(report)) = bus.collect(SHORT) {
                bus.acknowledge(&report).unwrap();
                came.push(body(Some(report)).unwrap());
            }
            came.len() == 2
        });
        assert!(came.contains(&"done".to_owned()), "{came:?}");
    }
}
