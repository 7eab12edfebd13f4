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

/// A lab that is up, with the command that takes it down.
struct Up(Command);

impl Drop for Up {
    fn drop(&mut self) {
        let down = self.0.output();
        assert!(down.is_ok_and(|down| down.status.success()), "{:?}", self.0);
    }
}

/// A test across the lossy link takes it from all others.
fn lossy_link(run: &Run) -> BTreeSet<String> {
    let is_across = run.ends().iter().any(|end| FAR.contains(end));
    is_across
        .then(|| "the link of far".to_owned())
        .into_iter()
        .collect()
}

#[test]
#[ignore = "about ten minutes, and most of two CPUs"]
fn fifty_agents_measure_all_pairs_apart_and_the_slow_site_and_the_lossy_group_are_named() {
    let found = Command::new("nats-server").arg("--version").output();
    if made_or_skip(Need::Nats, found).is_none() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    let linerate = |line: &str| {
        let mut command = Command::new(PROGRAM);
        command.args(line.split_whitespace()).current_dir(here);
        command.env("XDG_RUNTIME_DIR", here);
        command.env("XDG_STATE_HOME", here.join("state"));
        command
    };
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

    let mut up = linerate("lab up hosts.toml --name fifty");
    let up = up.stdin(Stdio::null()).output().unwrap();
    if has_no_lab(&up) {
        return;
    }
    assert!(up.status.success(), "{}", stderr(&up));
    let _lab = Up(linerate("lab down --name fifty"));
    let started = |name: &str, line: &str| {
        let log = File::create(here.join(format!("log-{name}"))).unwrap();
        let mut command = linerate(line);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        Killed(command.spawn().unwrap())
    };
    let server = started(
        "bus",
        "lab exec bus --name fifty -- nats-server -c nats.conf",
    );
    eventually("the server answers", || {
        let log = fs::read_to_string(here.join("log-bus")).unwrap();
        log.contains("Server is ready")
    });
    let begun = Instant::now();
    let line = format!(
        "lab exec bus --name fifty -- {PROGRAM} mesh up m.toml --bus nats://127.0.0.1:4222 \
         --credentials keys/coordinator.nk --db h.db --once --quiet"
    );
    let mut coordinator = started("coordinator", &line);
    // An agent finds its queue when the coordinator has made it.
    let agents: Vec<Killed> = (0..COUNT)
        .map(|number| {
            let site = format!("s{number:02}");
            let line = format!(
                "lab exec {site} --name fifty -- {PROGRAM} mesh join --bus nats://bus:4222 \
                 --credentials keys/{site}.nk --site {site} --address {site}"
            );
            started(&site, &line)
        })
        .collect();
    let ended = loop {
        if let Some(ended) = coordinator.0.try_wait().unwrap() {
            break ended;
        }
        assert!(begun.elapsed() < Duration::from_secs(1800), "it hangs");
        thread::sleep(Duration::from_millis(100));
    };
    let took = begun.elapsed().as_secs_f64();
    drop((agents, server));
    let said = fs::read_to_string(here.join("log-coordinator")).unwrap();
    assert_eq!(ended.code(), Some(0), "{said}");

    let bulk = runs(&here.join("h.db"), "bulk");
    let ids: BTreeSet<&str> = bulk.iter().map(|run| &*run.labels["run"]).collect();
    assert_eq!(ids.len(), bulk.len(), "a result is there twice");
    assert_eq!(pairs(&bulk).len(), COUNT * (COUNT - 1) / 2);
    assert_apart(&bulk, lossy_link);
    let matrix = run(here, "mesh matrix m.toml --db h.db --json");
    let matrix: Value = serde_json::from_slice(&matrix.stdout).unwrap();
    let suspects = matrix["suspects"].as_array().unwrap();
    eprintln!(
        "{} runs of {} pairs in {took:.0} s; {suspects:#?}",
        bulk.len(),
        pairs(&bulk).len()
    );
    let named = |kind: &str, name: &str, metric: &str| {
        let is_it =
            |it: &&Value| it["kind"] == kind && it["name"] == name && it["metric"] == metric;
        suspects.iter().any(|it| is_it(&it))
    };
    assert!(named("site", SLOW, "throughput"));
    assert!(named("group", "far", "loss"));
    let is_planted = |it: &Value| it["name"] == SLOW || it["name"] == "far";
    assert!(suspects.iter().all(is_planted), "{suspects:#?}");
}
