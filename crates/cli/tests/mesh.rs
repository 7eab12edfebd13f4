//! A mesh on this machine: all pairs are measured, no site is in two bandwidth tests at once, and who is
//! killed loses no result and leaves none twice.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use linerate_history::Filter;
use serde_json::Value;

use crate::monitor::run;
use crate::support::{has_no_lab, stderr};

/// A run in the history: its labels, when it began and ended, its throughput.
struct Run {
    labels: BTreeMap<String, String>,
    began_s: f64,
    seconds: f64,
    bps: f64,
}

fn runs(history: &Path, test: &str) -> Vec<Run> {
    let history = linerate_history::open(&history.into()).unwrap();
    let filter = Filter {
        labels: vec![("test".to_owned(), test.to_owned())],
        ..Filter::default()
    };
    let of = |id: i64| {
        let document = history.document(id).unwrap().unwrap();
        let document: Value = serde_json::from_str(&document).unwrap();
        let text = document["started_at"].as_str().unwrap();
        // Seconds of the hour: no test of a mesh lasts one.
        let (minutes, seconds) = (&text[14..16], text[17..].trim_end_matches('Z'));
        Run {
            labels: history.labels(id).unwrap(),
            began_s: minutes.parse::<f64>().unwrap() * 60.0 + seconds.parse::<f64>().unwrap(),
            seconds: document["seconds"].as_f64().unwrap(),
            bps: document["throughput_bps"].as_f64().unwrap_or(0.0),
        }
    };
    history
        .list(&filter)
        .unwrap()
        .iter()
        .map(|run| of(run.id))
        .collect()
}

fn pairs(runs: &[Run]) -> BTreeSet<[&str; 2]> {
    let pair = |run: &Run| {
        let mut pair = ["from", "to"].map(|end| &*run.labels[end].clone().leak());
        pair.sort_unstable();
        pair
    };
    runs.iter().map(pair).collect()
}

/// No site is in two of them at once, by their own times.
fn assert_apart(runs: &[Run]) {
    for (number, one) in runs.iter().enumerate() {
        for other in &runs[..number] {
            let ends = |run: &Run| [run.labels["from"].clone(), run.labels["to"].clone()];
            let shared = ends(one).iter().any(|end| ends(other).contains(end));
            let apart = (one.began_s - other.began_s).rem_euclid(3600.0) >= other.seconds
                && (other.began_s - one.began_s).rem_euclid(3600.0) >= one.seconds;
            assert!(!shared || apart, "{:?} and {:?}", one.labels, other.labels);
        }
    }
}

#[test]
fn all_pairs_of_a_lab_are_measured_apart_and_a_slow_site_is_seen() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    let sites = ["s0", "s1", "s2", "s3", "s4", "s5"];
    let mut hosts = "[router.hub]\n".to_owned();
    let mut mesh = String::new();
    for site in sites {
        let rate = if site == "s3" { "5mbit" } else { "50mbit" };
        let _ = write!(
            hosts,
            "[host.{site}]\n[[link]]\nbetween = [\"{site}\", \"hub\"]\nspec = \"rate={rate},rtt=2ms\"\n"
        );
        let _ = write!(
            mesh,
            "[[site]]\nname = \"{site}\"\nlabels = {{ region = \"r{site}\" }}\n"
        );
    }
    mesh += "[[test]]\nname = \"bulk\"\nworkload = { command = \"stream\", time = \"500ms\", \
             warm-up = \"0s\" }\n[[test]]\nname = \"ping\"\nevery = \"1h\"\n\
             workload = { command = \"rr\", time = \"100ms\", warm-up = \"0s\" }\n";
    fs::write(here.join("hosts.toml"), hosts).unwrap();
    fs::write(here.join("mesh.toml"), mesh).unwrap();
    let done = run(here, "mesh up mesh.toml --lab hosts.toml --once --db h.db");
    if has_no_lab(&done) {
        return;
    }
    assert_eq!(done.status.code(), Some(0), "{}", stderr(&done));
    let bulk = runs(&here.join("h.db"), "bulk");
    assert_eq!(
        (
            pairs(&bulk).len(),
            pairs(&runs(&here.join("h.db"), "ping")).len()
        ),
        (15, 15)
    );
    assert_apart(&bulk);
    let slow = |run: &&Run| ["from", "to"].iter().any(|end| run.labels[*end] == "s3");
    let slow: Vec<f64> = bulk.iter().filter(slow).map(|run| run.bps).collect();
    assert!(
        slow.len() >= 5 && slow.iter().all(|bps| *bps < 10e6),
        "{slow:?}"
    );
    let said = bulk[0].labels.clone();
    assert_eq!(said["from_region"], format!("r{}", said["from"]));

    let shown = run(here, "mesh matrix mesh.toml --db h.db --json");
    assert_eq!(shown.status.code(), Some(0), "{}", stderr(&shown));
    let matrix: Value = serde_json::from_slice(&shown.stdout).unwrap();
    assert_eq!(matrix["schema"], "linerate.matrix/1");
    let cells = matrix["cells"].as_array().unwrap();
    // The next cycle measures pairs from their other site; it may have begun.
    let ends = |run: &Run| ["from", "to"].map(|end| run.labels[end].clone());
    let ways: BTreeSet<[String; 2]> = bulk.iter().map(ends).collect();
    assert_eq!(cells.len(), ways.len(), "{matrix:#}");
    assert!(cells.iter().all(|cell| cell["throughput_bps"].is_f64()));
    let page = run(here, "mesh matrix mesh.toml --db h.db --test ping");
    let page = String::from_utf8(page.stdout).unwrap();
    assert!(sites.iter().all(|site| page.contains(site)), "{page}");
    let wrong = run(here, "mesh matrix mesh.toml --db h.db --test pong");
    assert_eq!(wrong.status.code(), Some(2));
    let error = stderr(&wrong);
    assert!(error.contains("only bulk and ping"), "{error}");
}

#[test]
fn what_is_wrong_is_said_before_anything_runs() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    let sites = "[[site]]\nname = \"a\"\nhost = \"127.0.0.1:5201\"\n[[site]]\nname = \"b\"\n";
    let test = |command: &str| {
        let text =
            format!("{sites}[[test]]\nname = \"t\"\nworkload = {{ command = \"{command}\" }}\n");
        fs::write(here.join("m.toml"), text).unwrap();
        let said = run(here, "mesh up m.toml --db h.db");
        (said.status.code(), stderr(&said))
    };
    let (status, error) = test("check");
    assert!(
        status == Some(2) && error.contains("a mesh runs stream, rr and crr"),
        "{error}"
    );
    let (status, error) = test("stream");
    assert!(
        status == Some(2) && error.contains("site b: without --bus"),
        "{error}"
    );
    let (status, error) = test("steam");
    assert!(
        status == Some(2) && error.contains("m.toml: line "),
        "{error}"
    );
}

#[cfg(feature = "nats")]
mod nats {
    use std::process::{Child, Command, Stdio};
    use std::thread;
    use std::time::Duration;

    use linerate_testkit::eventually;

    use super::*;
    use crate::nats_server::Server;
    use crate::support::Killed;
    use crate::support::PROGRAM;

    const SITES: [&str; 4] = ["a", "b", "c", "d.1"];

    /// A coordinator and agents around a server, each a process.
    struct World<'a> {
        here: &'a Path,
        url: String,
        port: u16,
    }

    impl World<'_> {
        fn start(&self, line: &str) -> Killed {
            let mut command = Command::new(PROGRAM);
            command.args(line.split_whitespace()).current_dir(self.here);
            command.env("XDG_STATE_HOME", self.here.join("state"));
            Killed(
                command
                    .stdout(Stdio::null())
                    .stderr(Stdio::null())
                    .spawn()
                    .unwrap(),
            )
        }

        fn coordinator(&self) -> Killed {
            self.start(&format!(
                "mesh up m.toml --bus {} --credentials keys/coordinator.nk --db h.db",
                self.url
            ))
        }

        fn agent(&self, number: usize) -> Killed {
            let (site, port) = (SITES[number], usize::from(self.port) + number);
            self.start(&format!(
                "mesh join --bus {} --credentials keys/{site}.nk --site {site} --bind 127.0.0.1 \
                 --port {port}",
                self.url
            ))
        }

        fn saved(&self) -> usize {
            runs(&self.here.join("h.db"), "bulk").len()
        }

        fn more_are_saved(&self, what: &str) {
            let before = self.saved();
            eventually(what, || {
                thread::sleep(Duration::from_millis(200));
                self.saved() >= before + 3
            });
        }
    }

    fn killed(child: &mut Child) {
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// The same again and again is for who has the time: `LINERATE_KILLS=20`.
    #[test]
    fn whoever_is_killed_tests_go_on_and_no_result_is_there_twice() {
        let directory = tempfile::tempdir().unwrap();
        let here = directory.path();
        // Ports that nobody else takes from where the kernel takes its own.
        let port = 20_000 + (std::process::id() % 10_000) as u16;
        let mut text = String::new();
        for (number, site) in SITES.iter().enumerate() {
            let port = usize::from(port) + number;
            let _ = write!(
                text,
                "[[site]]\nname = \"{site}\"\nhost = \"127.0.0.1:{port}\"\n"
            );
        }
        text += "[[test]]\nname = \"bulk\"\nworkload = { command = \"stream\", time = \"200ms\", \
                 warm-up = \"0s\", pacing = \"20mbit\" }\n";
        fs::write(here.join("m.toml"), text).unwrap();
        let users = run(here, "mesh permissions m.toml --keys keys");
        assert_eq!(users.status.code(), Some(0), "{}", stderr(&users));
        let Some(mut server) = Server::start(&String::from_utf8(users.stdout).unwrap()) else {
            return;
        };
        let world = World {
            here,
            url: server.url(),
            port,
        };
        let mut coordinator = world.coordinator();
        let mut agents: Vec<Killed> = (0..SITES.len()).map(|number| world.agent(number)).collect();
        world.more_are_saved("tests run");
        let kills = std::env::var("LINERATE_KILLS")
            .ok()
            .and_then(|kills| kills.parse().ok());
        for _ in 0..kills.unwrap_or(1) {
            killed(&mut coordinator.0);
            coordinator = world.coordinator();
            world.more_are_saved("a coordinator was killed");
            killed(&mut agents[1].0);
            agents[1] = world.agent(1);
            world.more_are_saved("an agent was killed");
            server.kill();
            server.start_again();
            world.more_are_saved("the server was killed");
        }
        drop((coordinator, agents));
        let bulk = runs(&here.join("h.db"), "bulk");
        let ids: BTreeSet<&str> = bulk.iter().map(|run| &*run.labels["run"]).collect();
        assert_eq!(ids.len(), bulk.len(), "a result is there twice");
        assert_eq!(pairs(&bulk).len(), 6);
        assert_apart(&bulk);
    }
}
