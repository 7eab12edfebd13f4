//! Fifty agents in the hosts of a lab around a real nats-server, one of them on a slow link and
//! four behind a lossy one: `cargo test -p linerate --all-features --test it -- --ignored
//! --nocapture mesh_many`
#![cfg(feature = "nats")]

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use linerate_testkit::{Need, eventually, made_or_skip};
use serde_json::Value;
use tempfile::TempDir;

use crate::mesh_results::{Run, assert_apart, pairs, runs};
use crate::monitor::run;
use crate::support::{Killed, PROGRAM, has_no_lab, stderr};

const COUNT: usize = 50;
const SLOW: &str = "s07";
/// These four share a lossy link: the group `far`.
const FAR: [&str; 4] = ["s20", "s21", "s22", "s23"];

/// The lab's file and the mesh's.
fn files() -> [String; 2] {
    let mut hosts = "[router.hub]\n[router.edge]\n[host.bus]\n[[link]]\nbetween = [\"bus\", \
                     \"hub\"]\n[[link]]\nbetween = [\"edge\", \"hub\"]\n\
                     spec = \"rate=3mbit,rtt=20ms,loss=5%\"\n"
        .to_owned();
    let mut mesh = String::new();
    for number in 0..COUNT {
        let site = format!("s{number:02}");
        let (router, spec, group) = match &*site {
            SLOW => ("hub", "rate=1mbit,rtt=4ms", ""),
            far if FAR.contains(&far) => ("edge", "rtt=1ms", "groups = [\"far\"]\n"),
            _ => ("hub", "rate=3mbit,rtt=4ms", ""),
        };
        let _ = write!(
            hosts,
            "[host.{site}]\n[[link]]\nbetween = [\"{site}\", \"{router}\"]\nspec = \"{spec}\"\n"
        );
        let _ = write!(mesh, "[[site]]\nname = \"{site}\"\n{group}");
    }
    mesh += "[[test]]\nname = \"bulk\"\nworkload = { command = \"stream\", time = \"500ms\", \
             warm-up = \"0s\", pacing = \"2mbit\" }\n";
    [hosts, mesh]
}

/// A test across the lossy link takes it from all others.
fn lossy_link(run: &Run) -> BTreeSet<String> {
    let is_across = run.ends().iter().any(|end| FAR.contains(end));
    is_across.then(|| "the link of far".to_owned()).into_iter().collect()
}

/// A lab of the hosts with a nats-server, which ends with it.
struct Fifty {
    directory: TempDir,
    running: Vec<Killed>,
}

impl Fifty {
    /// Makes the files; none, after saying why, where this host has no nats-server or allows no
    /// lab.
    fn up() -> Option<Self> {
        let found = Command::new("nats-server").arg("--version").output();
        made_or_skip(Need::Nats, found)?;
        let mut fifty = Self { directory: tempfile::tempdir().unwrap(), running: Vec::new() };
        let here = fifty.directory.path();
        let [hosts, mesh] = files();
        fs::write(here.join("hosts.toml"), hosts).unwrap();
        fs::write(here.join("m.toml"), mesh).unwrap();
        let users = run(here, "mesh permissions m.toml --keys keys");
        let users = String::from_utf8(users.stdout).unwrap();
        let store = here.join("store");
        let text = format!(
            "listen: \"0.0.0.0:4222\"\njetstream {{ store_dir: \"{}\" }}\n{users}\n",
            store.display()
        );
        fs::write(here.join("nats.conf"), text).unwrap();
        let mut up = fifty.linerate("lab up hosts.toml --name fifty");
        let up = up.stdin(Stdio::null()).output().unwrap();
        if has_no_lab(&up) {
            return None;
        }
        assert!(up.status.success(), "{}", stderr(&up));
        let line = format!("nats-server -c {}/nats.conf", here.display());
        let server = fifty.start("bus", "bus", &line);
        fifty.running.push(server);
        eventually("the server answers", || fifty.said("bus").contains("Server is ready"));
        Some(fifty)
    }

    fn linerate(&self, line: &str) -> Command {
        let here = self.directory.path();
        let mut command = Command::new(PROGRAM);
        command.args(line.split_whitespace()).current_dir(here);
        command.env("XDG_RUNTIME_DIR", here);
        command.env("XDG_STATE_HOME", here.join("state"));
        command
    }

    /// Starts a command in a host of the lab.
    fn start(&self, name: &str, host: &str, line: &str) -> Killed {
        let log = self.directory.path().join(format!("log-{name}"));
        let mut command = self.linerate(&format!("lab exec {host} --name fifty -- {line}"));
        command.stdin(Stdio::null()).stdout(Stdio::null());
        Killed(command.stderr(File::create(log).unwrap()).spawn().unwrap())
    }

    fn said(&self, name: &str) -> String {
        let log = self.directory.path().join(format!("log-{name}"));
        fs::read_to_string(log).unwrap()
    }

    /// Measures all pairs once, and returns how long that took.
    fn measure(&self) -> Duration {
        let here = self.directory.path().display();
        let begun = Instant::now();
        let line = format!(
            "{PROGRAM} mesh up {here}/m.toml --bus nats://127.0.0.1:4222 --credentials \
             {here}/keys/coordinator.nk --db {here}/h.db --once --quiet"
        );
        let mut coordinator = self.start("coordinator", "bus", &line);
        let agent = |number| {
            let site = format!("s{number:02}");
            let line = format!(
                "{PROGRAM} mesh join --bus nats://bus:4222 --credentials {here}/keys/{site}.nk \
                 --site {site} --address {site}"
            );
            self.start(&site, &site, &line)
        };
        let _agents: Vec<Killed> = (0..COUNT).map(agent).collect();
        let ended = loop {
            if let Some(ended) = coordinator.0.try_wait().unwrap() {
                break ended;
            }
            assert!(begun.elapsed() < Duration::from_secs(1800), "it hangs");
            thread::sleep(Duration::from_millis(100));
        };
        assert_eq!(ended.code(), Some(0), "{}", self.said("coordinator"));
        begun.elapsed()
    }
}

impl Drop for Fifty {
    fn drop(&mut self) {
        self.running.clear();
        let down = self.linerate("lab down --name fifty").output();
        eprintln!("{}", down.map_or_else(|error| error.to_string(), |down| stderr(&down)));
    }
}

#[test]
#[ignore = "about ten minutes, and most of two CPUs"]
fn fifty_agents_measure_all_pairs_apart_and_the_slow_site_and_the_lossy_group_are_named() {
    let Some(fifty) = Fifty::up() else {
        return;
    };
    let took = fifty.measure().as_secs_f64();
    let here = fifty.directory.path();
    let bulk = runs(&here.join("h.db"), "bulk");
    let ids: BTreeSet<&str> = bulk.iter().map(|run| &*run.labels["run"]).collect();
    assert_eq!(ids.len(), bulk.len(), "a result is there twice");
    assert_eq!(pairs(&bulk).len(), COUNT * (COUNT - 1) / 2);
    assert_apart(&bulk, lossy_link);
    let matrix = run(here, "mesh matrix m.toml --db h.db --json");
    let matrix: Value = serde_json::from_slice(&matrix.stdout).unwrap();
    let suspects = matrix["suspects"].as_array().unwrap();
    eprintln!("{} runs of {} pairs in {took:.0} s; {suspects:#?}", bulk.len(), pairs(&bulk).len());
    let is_named = |kind: &str, name: &str, metric: &str| {
        suspects.iter().any(|suspect| {
            suspect["kind"] == kind && suspect["name"] == name && suspect["metric"] == metric
        })
    };
    assert!(is_named("site", SLOW, "throughput"));
    assert!(is_named("group", "far", "loss"));
    let is_planted = |it: &Value| it["name"] == SLOW || it["name"] == "far";
    assert!(suspects.iter().all(is_planted));
}
