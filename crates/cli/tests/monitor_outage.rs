//! The monitor while its PostgreSQL server cannot be reached.

use std::io::{self, BufRead, BufReader};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::SystemTime;

use linerate_core::units::format_rfc3339;
use linerate_history::{Filter, Place};
use linerate_testkit::eventually;

use crate::monitor::{command, file};
use crate::support::{PATIENCE, Served, ended_within, signal, spawn, stderr};

/// The name of a server's socket in its directory.
const SOCKET: &str = ".s.PGSQL.5432";

/// A way to the server that can be cut: the connections that pass it, none while it is cut.
#[derive(Clone)]
struct Way(Arc<Mutex<Option<Vec<UnixStream>>>>);

impl Way {
    fn open(here: &Path, there: PathBuf) -> Self {
        let way = Self(Arc::new(Mutex::new(Some(Vec::new()))));
        let (listener, passing) = (UnixListener::bind(here.join(SOCKET)).unwrap(), way.clone());
        thread::spawn(move || {
            for near in listener.incoming().map_while(Result::ok) {
                if let Some(connections) = &mut *passing.0.lock().unwrap() {
                    let far = UnixStream::connect(there.join(SOCKET)).unwrap();
                    connections.extend([near.try_clone().unwrap(), far.try_clone().unwrap()]);
                    let back = (far.try_clone().unwrap(), near.try_clone().unwrap());
                    for (mut from, mut to) in [(near, far), back] {
                        thread::spawn(move || {
                            let _ = io::copy(&mut from, &mut to);
                            let _ = to.shutdown(Shutdown::Both);
                        });
                    }
                }
            }
        });
        way
    }

    fn cut(&self) {
        for connection in self.0.lock().unwrap().take().into_iter().flatten() {
            // It may have ended by itself.
            let _ = connection.shutdown(Shutdown::Both);
        }
    }

    fn mend(&self) {
        *self.0.lock().unwrap() = Some(Vec::new());
    }
}

#[test]
fn a_monitor_survives_an_outage_of_its_server_and_saves_what_it_measured_meanwhile() {
    let Some(server) = linerate_testkit::postgres::Server::start() else {
        return;
    };
    let url = server.database("outage");
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    let (_, there) = url.split_once("host=").unwrap();
    let there = there.split('&').next().unwrap();
    let way = Way::open(here, there.into());
    let served = Served::start(&[]);
    file(here, &served.address, "");
    let cut_url = url.replace(there, here.to_str().unwrap());
    let line = format!("monitor m.toml --db {cut_url}");
    let mut monitor = command(here, &line);
    let mut monitor = spawn({
        monitor.env("XDG_STATE_HOME", here);
        monitor
    });
    let history = linerate_history::open(&Place::Server(url)).unwrap();
    let runs = || history.list(&Filter::default()).unwrap();
    eventually("a run is saved", || !runs().is_empty());

    let (sender, said) = channel();
    let lines = BufReader::new(monitor.stderr.take().unwrap()).lines();
    thread::spawn(move || lines.map_while(Result::ok).try_for_each(|line| sender.send(line)));
    let cut_at = format_rfc3339(SystemTime::now());
    way.cut();
    while !said.recv_timeout(PATIENCE).unwrap().contains("wait to be saved: 2") {}
    let mended_at = format_rfc3339(SystemTime::now());
    way.mend();
    eventually("the runs of the outage and later ones are saved", || {
        let runs = runs();
        let during = |at: &str| *cut_at < *at && *at < *mended_at;
        runs.iter().any(|run| during(&run.started_at))
            && runs.iter().any(|run| run.started_at > mended_at)
    });
    signal(monitor.id(), "TERM");
    let ended = ended_within(monitor, PATIENCE);
    assert_eq!(ended.status.code(), Some(0), "{}", stderr(&ended));
    let mut begun: Vec<_> = runs().into_iter().map(|run| run.started_at).collect();
    let count = begun.len();
    begun.sort();
    begun.dedup();
    assert_eq!(begun.len(), count, "a run was saved twice");
}
