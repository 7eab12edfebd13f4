//! A mesh on this machine: all pairs are measured, and no site is in two bandwidth tests at once.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;

use serde_json::Value;

use crate::mesh_results::{Run, assert_apart, no_links, runs};
use crate::monitor::{command, run};
use crate::support::{PATIENCE, ended_within, has_no_lab, spawn, stderr};

#[test]
fn all_pairs_of_a_lab_are_measured_apart_and_a_slow_site_is_proved() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    let sites = ["s0", "s1", "s2", "s3", "s4", "s5", "s6", "s7"];
    let mut hosts = "[router.hub]\n".to_owned();
    let mut mesh = String::new();
    for site in sites {
        let rate = if site == "s3" { "5mbit" } else { "50mbit" };
        let _ = write!(
            hosts,
            "[host.{site}]\n[[link]]\nbetween = [\"{site}\", \"hub\"]\nspec = \"rate={rate},rtt=2ms\"\n"
        );
        let _ = write!(mesh, "[[site]]\nname = \"{site}\"\nlabels = {{ region = \"r{site}\" }}\n");
    }
    mesh += "[[test]]\nname = \"bulk\"\nworkload = { command = \"stream\", time = \"500ms\", \
             warm-up = \"0s\" }\n[[test]]\nname = \"ping\"\nevery = \"1h\"\n\
             workload = { command = \"rr\", time = \"100ms\", warm-up = \"0s\" }\n";
    fs::write(here.join("hosts.toml"), hosts).unwrap();
    fs::write(here.join("mesh.toml"), mesh).unwrap();
    let up = command(here, "mesh up mesh.toml --lab hosts.toml --once --db h.db");
    // A hundred and twenty tests and a proof, and a machine stands still in some.
    let done = ended_within(spawn(up), 8 * PATIENCE);
    if has_no_lab(&done) {
        return;
    }
    let [bulk, ping] = ["bulk", "ping"].map(|test| runs(&here.join("h.db"), test));
    // A test that takes longer than its lease is stopped, and its pair may be missed: a mesh on a
    // machine that stands still says so.
    let words = stderr(&done);
    let said = words.lines().find_map(|line| {
        line.strip_prefix("linerate: ")?.strip_suffix(" of 112 pairs were not measured")
    });
    let missed: usize = said.map_or(0, |missed| missed.parse().unwrap());
    assert_eq!(done.status.code(), Some(i32::from(missed > 0)), "{words}");
    let ways = |runs: &[Run]| runs.iter().map(|run| run.ends().map(str::to_owned)).collect();
    let [bulk_ways, ping_ways]: [BTreeSet<[String; 2]>; 2] = [ways(&bulk), ways(&ping)];
    assert!(bulk_ways.len() + ping_ways.len() + missed >= 112, "{words}");
    assert_apart(&bulk, no_links);
    for Run { labels, .. } in &bulk {
        assert_eq!(labels["from_region"], format!("r{}", labels["from"]));
    }

    let shown = run(here, "mesh matrix mesh.toml --db h.db --json");
    assert_eq!(shown.status.code(), Some(0), "{}", stderr(&shown));
    let matrix: Value = serde_json::from_slice(&shown.stdout).unwrap();
    assert_eq!(matrix["schema"], "linerate.matrix/1");
    let cells = matrix["cells"].as_array().unwrap();
    assert_eq!(cells.len(), bulk_ways.len(), "{matrix:#}");
    assert!(cells.iter().all(|cell| cell["throughput_bps"].is_f64()));
    // Where the others are faster than the slow link can be, it is a suspect, and proved, or it is
    // said why not.
    let is_slow = |cell: &&Value| cell["from"] == "s3" || cell["to"] == "s3";
    let mut others = cells.iter().filter(|cell| !is_slow(cell));
    if missed == 0 && others.all(|cell| cell["throughput_bps"].as_f64() > Some(30e6)) {
        let suspects = matrix["suspects"].as_array().unwrap();
        let slow = suspects.iter().find(|it| it["name"] == "s3").expect("its link is slow");
        let proof = slow["proof"]["proof"].as_str();
        let is_said = ["s3 was not proved", "its proof was not saved"];
        assert!(proof.is_some() || is_said.iter().any(|why| words.contains(why)), "{slow:#}");
        assert!(proof.is_none_or(|it| ["proved", "likely", "open"].contains(&it)), "{slow:#}");
    }
    let page = run(here, "mesh matrix mesh.toml --db h.db --test ping");
    let page = String::from_utf8(page.stdout).unwrap();
    assert!(sites.iter().all(|site| page.contains(site)), "{page}");
    assert!(page.contains("RTT in "), "{page}");
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
    assert!(status == Some(2) && error.contains("a mesh runs stream, rr and crr"), "{error}");
    let (status, error) = test("stream");
    assert!(status == Some(2) && error.contains("site b: without --bus"), "{error}");
    let (status, error) = test("steam");
    assert!(status == Some(2) && error.contains("m.toml: line "), "{error}");
}
