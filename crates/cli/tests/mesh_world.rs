//! A mesh around a nats-server, each part a process of its own, with what can happen to them: a
//! kill, a partition, a clock that is set back. A witness keeps every result that an agent ever had
//! on its disk, so that a test can say which were lost.
#![cfg(feature = "nats")]

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::mem::MaybeUninit;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use linerate_testkit::free_port;
use rustix::fs::inotify;
use serde_json::Value;
use tempfile::TempDir;

use crate::mesh_results::{Saved, assert_apart, no_links, pairs};
use crate::monitor::run;
use crate::support::{Killed, PROGRAM, signal, stderr};

pub(crate) const SITES: [&str; 4] = ["a", "b", "c", "d.1"];

/// Longest wait for tests that go on: longer than that takes on a machine that has other work.
const PATIENCE: Duration = Duration::from_secs(120);

/// A coordinator and agents, which are to be started.
pub(crate) struct World {
    pub(crate) directory: TempDir,
    /// What the server's file needs: its users.
    pub(crate) users: String,
    ports: [u16; SITES.len()],
    bus: String,
    coordinator: Option<Killed>,
    agents: Vec<Option<Killed>>,
    /// One for the connection of each agent, and the last for that of the coordinator.
    relays: Vec<Relay>,
    /// The library that changes what clocks say.
    faketime: Option<PathBuf>,
    saved: Saved,
    witness: Witness,
}

impl World {
    /// Makes the files of the mesh.
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let here = directory.path();
        let ports = SITES.map(|_| free_port());
        let mut text = String::new();
        for (port, site) in ports.into_iter().zip(SITES) {
            let _ = write!(text, "[[site]]\nname = \"{site}\"\nhost = \"127.0.0.1:{port}\"\n");
        }
        text += "[[test]]\nname = \"bulk\"\nworkload = { command = \"stream\", time = \"200ms\", \
                 warm-up = \"0s\", pacing = \"20mbit\" }\n";
        fs::write(here.join("m.toml"), text).unwrap();
        let users = run(here, "mesh permissions m.toml --keys keys");
        assert_eq!(users.status.code(), Some(0), "{}", stderr(&users));
        Self {
            users: String::from_utf8(users.stdout).unwrap(),
            ports,
            bus: String::new(),
            coordinator: None,
            agents: SITES.map(|_| None).into(),
            relays: Vec::new(),
            faketime: None,
            saved: Saved::new(&here.join("h.db"), "bulk"),
            witness: Witness::new(here),
            directory,
        }
    }

    /// Starts all processes with this bus, and waits until tests run.
    pub(crate) fn start(&mut self, bus: &str) {
        bus.clone_into(&mut self.bus);
        self.start_coordinator();
        (0..SITES.len()).for_each(|number| self.start_agent(number));
        self.resumed("tests run", None);
    }

    /// As [`Self::start`], with a relay to the server's port in each connection.
    pub(crate) fn start_by_relays(&mut self, port: u16) {
        self.relays = (0..=SITES.len()).map(|_| Relay::start(port)).collect();
        self.start("");
    }

    /// As [`Self::start`], with clocks that can be set.
    pub(crate) fn start_with_clocks(&mut self, bus: &str, library: PathBuf) {
        self.faketime = Some(library);
        (0..=SITES.len()).for_each(|number| self.set_clock(number, 0));
        self.start(bus);
    }

    /// Number of the coordinator, where a number of an agent is wanted.
    pub(crate) const COORDINATOR: usize = SITES.len();

    pub(crate) fn start_coordinator(&mut self) {
        let bus = self.bus_of(Self::COORDINATOR);
        let line =
            format!("mesh up m.toml --bus {bus} --credentials keys/coordinator.nk --db h.db");
        self.coordinator = Some(self.spawn(Self::COORDINATOR, &line));
    }

    pub(crate) fn start_agent(&mut self, number: usize) {
        let (site, port) = (SITES[number], self.ports[number]);
        let bus = self.bus_of(number);
        let line = format!(
            "mesh join --bus {bus} --credentials keys/{site}.nk --site {site} --bind 127.0.0.1 \
             --port {port} --unsent unsent/{site}"
        );
        self.agents[number] = Some(self.spawn(number, &line));
    }

    /// As by kill -9.
    pub(crate) fn kill_coordinator(&mut self) {
        self.coordinator = None;
    }

    /// As by kill -9.
    pub(crate) fn kill_agent(&mut self, number: usize) {
        self.agents[number] = None;
    }

    /// Whether the coordinator or an agent can exchange anything with the server.
    pub(crate) fn connect(&self, number: usize, connected: bool) {
        self.relays[number].is_cut.store(!connected, Ordering::Relaxed);
    }

    /// Sets the clock of the coordinator or of an agent: by so many seconds behind the host's.
    pub(crate) fn set_clock(&self, number: usize, seconds_behind: u32) {
        let file = self.directory.path().join(format!("clock-{number}"));
        let next = file.with_extension("next");
        fs::write(&next, format!("-{seconds_behind}\n")).unwrap();
        fs::rename(next, file).unwrap();
    }

    fn bus_of(&self, number: usize) -> String {
        let relay = self.relays.get(number);
        let of_relay = relay.map(|relay| format!("nats://127.0.0.1:{}", relay.port));
        of_relay.unwrap_or_else(|| self.bus.clone())
    }

    fn spawn(&self, number: usize, line: &str) -> Killed {
        let here = self.directory.path();
        let mut command = Command::new(PROGRAM);
        command.args(line.split_whitespace()).current_dir(here);
        command.env("XDG_STATE_HOME", here.join("state"));
        if let Some(library) = &self.faketime {
            command.env("LD_PRELOAD", library);
            command.env("FAKETIME_TIMESTAMP_FILE", here.join(format!("clock-{number}")));
            command.env("FAKETIME_NO_CACHE", "1");
            command.env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
            command.env("DONT_FAKE_MONOTONIC", "1");
        }
        let log = here.join(format!("log-{number}"));
        let log = File::options().create(true).append(true).open(log).unwrap();
        Killed(command.stdout(Stdio::null()).stderr(log).spawn().unwrap())
    }

    /// Waits until more results are saved than runs were under way, two of them of `site`, and
    /// returns how long that took.
    ///
    /// # Panics
    /// It takes longer than [`PATIENCE`].
    pub(crate) fn resumed(&mut self, what: &str, site: Option<usize>) -> Duration {
        let site = site.filter(|site| *site < SITES.len());
        let since = Instant::now();
        let before = self.saved.renew();
        loop {
            thread::sleep(Duration::from_millis(50));
            let all = self.saved.renew();
            let of_site = |site: usize| {
                let new = self.saved.runs[before..].iter();
                new.filter(|run| run.ends().contains(&SITES[site])).count()
            };
            if all >= before + 5 && site.is_none_or(|site| of_site(site) >= 2) {
                return since.elapsed();
            }
            assert!(since.elapsed() < PATIENCE, "{what}: {}", self.logs());
        }
    }

    /// The number of different hours in which the runs began, each by its own clock.
    pub(crate) fn hours(&self) -> usize {
        let hours = self.saved.runs.iter().map(|run| &*run.hour);
        hours.collect::<BTreeSet<_>>().len()
    }

    /// Waits until each pair of sites has a result that was saved after this call.
    ///
    /// # Panics
    /// It takes longer than a pair waits whose sites rest after failures.
    pub(crate) fn all_pairs_are_measured(&mut self) {
        let since = Instant::now();
        let before = self.saved.renew();
        while pairs(&self.saved.runs[before..]).len() < 6 {
            let is_long = since.elapsed() > PATIENCE;
            assert!(!is_long, "a pair is left out: {}", self.logs());
            thread::sleep(Duration::from_millis(100));
            self.saved.renew();
        }
    }

    /// Ends the agents and then the coordinator as an owner does, and checks that the history has
    /// each result that an agent ever had, once. Returns the number of results.
    pub(crate) fn end(mut self, have_one_clock: bool) -> usize {
        for agent in self.agents.iter_mut().flatten() {
            signal(agent.0.id(), "TERM");
            agent.0.wait().unwrap();
        }
        let mut lost;
        let since = Instant::now();
        loop {
            self.saved.renew();
            let ids = self.saved.runs.iter();
            let ids: BTreeSet<String> = ids.map(|run| run.labels["run"].clone()).collect();
            lost = self.witness.finished();
            lost.retain(|id| !ids.contains(id));
            if lost.is_empty() || since.elapsed() > PATIENCE {
                break;
            }
            thread::sleep(Duration::from_millis(100));
        }
        assert!(lost.is_empty(), "lost: {lost:?}: {}", self.logs());
        drop(self.coordinator);
        self.saved.renew();
        let runs = &self.saved.runs;
        let ids: BTreeSet<&str> = runs.iter().map(|run| &*run.labels["run"]).collect();
        assert_eq!(ids.len(), runs.len(), "a result is there twice");
        // It may come too late for a file that is soon gone, though not for all of them.
        assert!(!self.witness.finished().is_empty(), "nothing was seen");
        assert_eq!(pairs(runs).len(), 6);
        if have_one_clock {
            assert_apart(runs, no_links);
        }
        ids.len()
    }

    /// What the processes have said.
    fn logs(&self) -> String {
        let mut all = String::new();
        for number in 0..=SITES.len() {
            let log = self.directory.path().join(format!("log-{number}"));
            let text = fs::read_to_string(log).unwrap_or_default();
            let from = text.len().saturating_sub(2000);
            let _ = write!(all, "\n-- {number}\n{}", text.get(from..).unwrap_or(&text));
        }
        all
    }
}

/// Carries the bytes of connections to a server, until it is cut: then no byte goes on, and no end
/// of the connection is told.
struct Relay {
    port: u16,
    is_cut: Arc<AtomicBool>,
}

impl Relay {
    fn start(server: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let is_cut = Arc::<AtomicBool>::default();
        let cut = is_cut.clone();
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(server) = TcpStream::connect(("127.0.0.1", server)) else {
                    continue;
                };
                let back = (server.try_clone().unwrap(), client.try_clone().unwrap());
                for (from, to) in [(client, server), back] {
                    let cut = cut.clone();
                    thread::spawn(move || carry(from, to, &cut));
                }
            }
        });
        Self { port, is_cut }
    }
}

fn carry(mut from: TcpStream, mut to: TcpStream, is_cut: &AtomicBool) {
    let mut bytes = vec![0; 64 << 10];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        while is_cut.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_millis(5));
        }
        if to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    for stream in [from, to] {
        let _ = stream.shutdown(Shutdown::Both);
    }
}

/// Keeps a hard link to each result that appears in an agent's directory of unsent results.
struct Witness(PathBuf);

impl Witness {
    fn new(here: &Path) -> Self {
        let kept = here.join("witness");
        fs::create_dir(&kept).unwrap();
        let watch = inotify::init(inotify::CreateFlags::empty()).unwrap();
        let mut directories = Vec::new();
        for site in SITES {
            let directory = here.join("unsent").join(site);
            fs::create_dir_all(&directory).unwrap();
            let events = inotify::WatchFlags::CREATE | inotify::WatchFlags::MOVED_TO;
            let number = inotify::add_watch(&watch, &directory, events).unwrap();
            directories.push((number, directory));
        }
        let own = kept.clone();
        thread::spawn(move || {
            let mut bytes = [MaybeUninit::uninit(); 4096];
            let mut events = inotify::Reader::new(watch, &mut bytes);
            while let Ok(event) = events.next() {
                let Some(name) = event.file_name().map(|name| name.to_bytes().to_vec()) else {
                    continue;
                };
                let from = directories.iter().find(|(number, _)| *number == event.wd());
                // The file gets its whole content before it gets its name without an end.
                let id = name.strip_suffix(b".not-whole-yet").unwrap_or(&name);
                if let (Some((_, from)), true) = (from, id.ends_with(b".json")) {
                    let _ = fs::hard_link(
                        from.join(OsStr::from_bytes(&name)),
                        own.join(OsStr::from_bytes(id)),
                    );
                }
            }
        });
        Self(kept)
    }

    /// The runs of which a whole result was seen.
    fn finished(&self) -> BTreeSet<String> {
        let files = fs::read_dir(&self.0).unwrap();
        let id = |path: PathBuf| {
            // That of an agent that was killed as it wrote is not whole.
            let report: Value = serde_json::from_slice(&fs::read(path).ok()?).ok()?;
            report["outcome"]["finished"].is_object().then_some(())?;
            Some(report["id"].as_str()?.to_owned())
        };
        files.filter_map(|file| id(file.ok()?.path())).collect()
    }
}
