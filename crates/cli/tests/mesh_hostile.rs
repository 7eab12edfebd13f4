//! A coordinator whose agents are hostile: what they say costs the others nothing.
#![cfg(feature = "nats")]

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use linerate_history::{Filter, History, Run};
use linerate_mesh::bus::Bus;
use linerate_mesh::message::{Outcome, Presence, Report, Task, decode, encode};
use linerate_testkit::eventually;
use linerate_web::nats::{NatsBus, NatsOptions};
use serde_json::Value;
use tempfile::TempDir;

use crate::monitor::run;
use crate::nats_server::Server;
use crate::support::{Killed, PROGRAM, Served, stdout};

const FILE: &str = r#"
[[site]]
name = "a"
host = "127.0.0.1:7001"
[[site]]
name = "b"
host = "127.0.0.1:7002"
[[test]]
name = "bulk"
workload = { command = "stream", time = "200ms", warm-up = "0s" }
"#;

/// A coordinator, and the bus as its agents have it.
struct Attacked {
    directory: TempDir,
    history: History,
    bus: NatsBus,
    /// A document of a run of the test.
    document: Value,
    _coordinator: Killed,
    _server: Server,
}

impl Attacked {
    /// With the history of this URL, or in a file. None, after saying why, without a nats-server.
    fn start(url: Option<&str>) -> Option<Self> {
        let server = Server::start("")?;
        let directory = tempfile::tempdir().unwrap();
        let here = directory.path();
        fs::write(here.join("m.toml"), FILE).unwrap();
        let served = Served::start(&[]);
        let line = format!("stream {} --time 200ms --warm-up 0s --json --quiet", served.address);
        let document = serde_json::from_str(&stdout(&run(here, &line))).unwrap();
        let db = url.map_or_else(|| here.join("h.db").into_os_string(), Into::into);
        let mut command = Command::new(PROGRAM);
        command.args(["mesh", "up", "m.toml", "--bus", &server.url(), "--db"]);
        command.arg(&db).current_dir(here);
        command.env("XDG_STATE_HOME", here.join("state"));
        let log = File::create(here.join("log")).unwrap();
        let child = command.stdout(Stdio::null()).stderr(log).spawn().unwrap();
        let options = NatsOptions { servers: server.url(), ..NatsOptions::default() };
        let attacked = Self {
            bus: NatsBus::connect(&options, Arc::new(|_| {})).unwrap(),
            history: linerate_history::open(&db.into()).unwrap(),
            document,
            directory,
            _coordinator: Killed(child),
            _server: server,
        };
        Some(attacked)
    }

    fn log(&self) -> String {
        fs::read_to_string(self.directory.path().join("log")).unwrap()
    }

    fn saved(&self) -> Vec<Run> {
        self.history.list(&Filter::default()).unwrap()
    }

    /// The next task of a site, while both sites say that they are there, at a stranger's address.
    fn task(&self) -> Task {
        let mut task = None;
        eventually("a task is offered", || {
            for site in ["a", "b"] {
                let presence = Presence {
                    site: site.to_owned(),
                    address: Some("192.0.2.66:22".to_owned()),
                    workloads: Vec::new(),
                    program: String::new(),
                    life: "1".to_owned(),
                    running: Vec::new(),
                };
                let _ = self.bus.announce(site, &encode(&presence));
                if let Ok(Some(taken)) = self.bus.take(site, Duration::from_millis(200)) {
                    self.bus.acknowledge(&taken).unwrap();
                    task = Some(decode(&taken.body).unwrap());
                }
            }
            task.is_some()
        });
        // As long as its test lasts, so that its result can be one.
        std::thread::sleep(Duration::from_millis(200));
        task.unwrap()
    }

    fn publish(&self, report: &Report, number: usize) {
        let key = format!("{}{number}", report.key());
        let sent = self.bus.publish(report.runner(), &key, &encode(report));
        sent.unwrap();
    }

    /// The report of a task with this document.
    fn report(task: &Task, document: &Value) -> Report {
        let document = document.to_string();
        Report::new(task, Outcome::Finished { document })
    }

    fn changed(&self, key: &str, value: &str) -> Value {
        let mut document = self.document.clone();
        document[key] = value.into();
        document
    }
}

#[test]
fn one_agent_neither_aims_the_others_nor_fills_the_history() {
    let Some(attacked) = Attacked::start(None) else {
        return;
    };
    let task = attacked.task();
    let host = if task.other() == "a" { 7001 } else { 7002 };
    assert_eq!(task.address, format!("127.0.0.1:{host}"));
    let good = Attacked::report(&task, &attacked.document);
    let unasked: [fn(&mut Report); 4] = [
        |it| it.id = "5f0c".to_owned(),
        |it| it.test = "mine".to_owned(),
        |it| it.id.replace_range(20..21, "x"),
        |it| std::mem::swap(&mut it.from, &mut it.to),
    ];
    for (number, change) in unasked.iter().enumerate() {
        let mut report = good.clone();
        change(&mut report);
        attacked.publish(&report, number);
    }
    let no_time = attacked.changed("started_at", "2026-99-99T00:00:00Z");
    let other = attacked.changed("workload", "rr");
    for (number, document) in [no_time, other].iter().enumerate() {
        attacked.publish(&Attacked::report(&task, document), 10 + number);
    }
    attacked.publish(&good, 20);
    attacked.publish(&good, 21);
    // Reports are taken in the order in which they came.
    let next = attacked.task();
    let future = attacked.changed("started_at", "2099-01-01T00:00:00Z");
    attacked.publish(&Attacked::report(&next, &future), 30);
    eventually("what was asked for is saved", || attacked.saved().len() >= 2);
    let saved = attacked.saved();
    let ids = saved.iter().map(|run| attacked.history.labels(run.id).unwrap()["run"] == task.id);
    assert_eq!(ids.filter(|is_it| *is_it).count(), 1, "{saved:?}");
    assert_eq!(saved.len(), 2, "{saved:?}");
    assert!(saved.iter().all(|run| run.started_at.as_str() < "2090"), "{saved:?}");
    let log = attacked.log();
    assert!(log.contains("dropped: its task was never offered"), "{log}");
    assert!(log.lines().count() < 10, "a site fills the log: {log}");
}

#[test]
fn a_result_that_the_history_refuses_is_set_aside_and_stalls_nobody() {
    let Some(postgres) = linerate_testkit::postgres::Server::start() else {
        return;
    };
    let Some(attacked) = Attacked::start(Some(&postgres.database("mesh"))) else {
        return;
    };
    let task = attacked.task();
    // Longer than an entry of the server's index may be, and not to be compressed.
    let numbers = (0..3000_u32).map(|it| it.wrapping_mul(2_654_435_761).to_string());
    let poison = attacked.changed("host", &numbers.collect::<String>());
    attacked.publish(&Attacked::report(&task, &poison), 0);
    let next = attacked.task();
    attacked.publish(&Attacked::report(&next, &attacked.document), 1);
    eventually("the other result is saved", || !attacked.saved().is_empty());
    assert_eq!(attacked.saved().len(), 1);
    let log = attacked.log();
    assert!(log.contains("not saved, and not tried again"), "{log}");
    let directory = attacked.directory.path().join("state/linerate");
    let mut kept: Vec<PathBuf> = Vec::new();
    for entry in fs::read_dir(&directory).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|end| end == "refused") {
            kept.push(path.join(format!("{}.json", task.id)));
        }
    }
    assert!(kept.len() == 1 && kept[0].exists(), "{kept:?}");
}
