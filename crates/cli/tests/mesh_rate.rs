//! How many documents a minute go through one coordinator into SQLite. With a release build of the
//! program: `LINERATE_PROGRAM=target/release/linerate cargo test -p linerate --all-features
//! --test it -- --ignored --nocapture mesh_rate`
#![cfg(feature = "nats")]

use std::fs;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use linerate_core::plan::Test;
use linerate_core::units::Nanos;
use linerate_core::wire::Key;
use linerate_history::Filter;
use linerate_mesh::Offers;
use linerate_mesh::bus::Bus;
use linerate_mesh::message::{Outcome, Report, Task, encode};
use linerate_web::nats::{NatsBus, NatsOptions};

use crate::monitor::run;
use crate::nats_server::Server;
use crate::support::{Killed, PROGRAM, Served, stdout};

const DOCUMENTS: usize = 6000;

#[test]
#[ignore = "a rate, which a busy machine does not keep"]
fn documents_a_minute_through_one_coordinator() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    let Some(server) = Server::start("") else {
        return;
    };
    let mesh = "[[site]]\nname = \"a\"\nhost = \"127.0.0.1:1\"\n[[site]]\nname = \"b\"\nhost = \
                \"127.0.0.1:2\"\n[[test]]\nname = \"bulk\"\nworkload = { command = \"stream\" }\n";
    fs::write(here.join("m.toml"), mesh).unwrap();
    let options = NatsOptions { servers: server.url(), ..NatsOptions::default() };
    let bus = NatsBus::connect(&options, Arc::new(|_| {})).unwrap();
    bus.prepare(&["a", "b"]).unwrap();
    let served = Served::start(&[]);
    let line = format!("stream {} --time 200ms --warm-up 0s --json --quiet", served.address);
    let document = stdout(&run(here, &line));
    drop(served);
    let bytes = document.len();
    let key = "1".repeat(64);
    fs::write(here.join("h.db.key"), &key).unwrap();
    let offers = Offers::new(Key::from_text(&key).unwrap());
    let publishing = thread::spawn(move || {
        for number in 0..DOCUMENTS as u64 {
            let mut task = Task {
                id: String::new(),
                test: "bulk".to_owned(),
                from: "a".to_owned(),
                to: "b".to_owned(),
                turned: false,
                address: "127.0.0.1:2".to_owned(),
                work: Test::stream().resolve(7).unwrap(),
                lease_s: 30,
            };
            task.id = offers.id(&task, Nanos(1_700_000_000_000_000_000), number, false);
            let document = document.clone();
            let report = Report::new(&task, Outcome::Finished { document });
            // Only so many wait.
            while bus.publish("a", &report.key(), &encode(&report)).is_err() {
                thread::sleep(Duration::from_millis(5));
            }
        }
    });
    let program = std::env::var("LINERATE_PROGRAM").unwrap_or_else(|_| PROGRAM.to_owned());
    let mut command = Command::new(fs::canonicalize(program).unwrap());
    command.args(["mesh", "up", "m.toml", "--db", "h.db", "--quiet"]);
    command.args(["--bus", &server.url()]).current_dir(here);
    let begun = Instant::now();
    let _coordinator = Killed(command.stdout(Stdio::null()).spawn().unwrap());
    let history = linerate_history::open(&here.join("h.db").as_path().into()).unwrap();
    let newest = Filter { most: Some(1), ..Filter::default() };
    let saved = || history.list(&newest).unwrap().first().map_or(0, |run| run.id);
    // A run's number counts them: none was deleted.
    while (saved() as usize) < DOCUMENTS {
        thread::sleep(Duration::from_millis(50));
    }
    publishing.join().unwrap();
    let seconds = begun.elapsed().as_secs_f64();
    eprintln!(
        "{DOCUMENTS} documents of {:.1} kB in {seconds:.1} s: {:.0} a minute",
        bytes as f64 / 1e3,
        60.0 * DOCUMENTS as f64 / seconds
    );
}
