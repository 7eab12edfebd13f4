//! `linerate trace` on chains of routers: each hop by its address, over both families and all
//! protocols, with privilege and without.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use linerate_testkit::{Need, skip};
use serde_json::Value;
use tempfile::TempDir;

use crate::support::{
    Killed, assert_says, copy_for_everybody, has_labs, has_no_lab, is_root, json, stderr,
};

/// Labs of one test, with a program that any user can run.
struct Labs {
    directory: TempDir,
    program: PathBuf,
}

impl Labs {
    /// None, after saying why, where this host allows no labs.
    fn new() -> Option<Self> {
        if !has_labs() {
            return None;
        }
        let directory = TempDir::new().unwrap();
        let program = copy_for_everybody(directory.path());
        fs::create_dir(directory.path().join("run")).unwrap();
        Some(Self { directory, program })
    }

    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.env("XDG_RUNTIME_DIR", self.directory.path().join("run"));
        command.current_dir("/");
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let mut command = self.command(&self.program);
        command.args(arguments).output().unwrap()
    }

    fn up(&self, arguments: &[&str]) {
        let up = [&["lab", "up"], arguments].concat();
        let output = self.run(&up);
        assert!(output.status.success(), "{}", stderr(&output));
    }

    /// `linerate trace …` at the client of the only lab.
    fn trace(&self, arguments: &[&str]) -> Output {
        let program = self.program.to_str().unwrap();
        let head = ["lab", "exec", "client", "--", program, "trace"];
        self.run(&[&head[..], &PATIENCE, arguments].concat())
    }

    /// The same by a user without any privilege.
    fn trace_as_nobody(&self, arguments: &[&str]) -> Output {
        let program = self.program.to_str().unwrap();
        let head = [
            "lab",
            "exec",
            "client",
            "--",
            "setpriv",
            "--reuid=65534",
            "--regid=65534",
            "--clear-groups",
            program,
            "trace",
        ];
        self.run(&[&head[..], &PATIENCE, arguments].concat())
    }
}

impl Drop for Labs {
    fn drop(&mut self) {
        let _ = self.run(&["lab", "down", "--all"]);
    }
}

/// The addresses of a document's hops; each hop must have answered.
fn addresses(document: &Value) -> Vec<String> {
    let hops = document["hops"].as_array().unwrap().iter();
    hops.map(|hop| hop["address"].as_str().unwrap_or("silent").to_owned()).collect()
}

const ROUTERS: usize = 5;

/// Long enough that a machine that stands still for two seconds hides no router: two round trips are
/// waited for each, twice.
const DELAY: &str = "rtt=900ms";
/// The longest wait, where every router is to be heard.
const PATIENCE: [&str; 2] = ["--timeout", "10s"];

/// A trace must have found all routers of the chain, each once, and the target behind them.
fn assert_whole(output: &Output, what: &str) -> Value {
    assert!(output.status.success(), "{what}: {}", stderr(output));
    let document = json(output);
    let mut addresses = addresses(&document);
    assert_eq!(addresses.len(), ROUTERS + 1, "{what}: {addresses:?}");
    assert_eq!(document["reached"], true, "{what}");
    assert_eq!(addresses.last().map(String::as_str), document["target"].as_str());
    addresses.sort();
    addresses.dedup();
    assert_eq!(addresses.len(), ROUTERS + 1, "{what}: {addresses:?}");
    assert!(!addresses.contains(&"silent".to_owned()), "{what}: {addresses:?}");
    document
}

#[test]
fn every_router_answers_over_both_families_and_all_protocols() {
    let Some(labs) = Labs::new() else {
        return;
    };
    for family in ["-4", "-6"] {
        for protocol in ["udp", "icmp", "tcp"] {
            // Routers of their own: a burst of six answers is all that they grant to one peer.
            labs.up(&["--lab", &format!("hops={ROUTERS},{DELAY}")]);
            let arguments = ["server", family, "--protocol", protocol, "--json"];
            let trace = labs.trace(&arguments);
            let what = format!("{protocol} {family}");
            let document = assert_whole(&trace, &what);
            assert!(document["method"].as_str().unwrap().contains("raw"), "{document}");
            let hop = &document["hops"][ROUTERS / 2];
            assert_eq!(hop["dscp"], 0, "{what}: the quoted header is seen: {hop}");
            assert_eq!(hop["is_translated"], false, "{what}: {hop}");
            assert!(labs.run(&["lab", "down"]).status.success());
        }
    }
}

#[test]
fn a_user_without_privilege_sees_the_route() {
    let Some(labs) = Labs::new() else {
        return;
    };
    if !is_root() {
        skip(Need::Root, "only root can become the user nobody");
        return;
    }
    labs.up(&["--lab", &format!("hops={ROUTERS},{DELAY}")]);
    for family in ["-4", "-6"] {
        for protocol in ["udp", "tcp"] {
            let arguments = ["server", family, "--protocol", protocol, "--json"];
            let trace = labs.trace_as_nobody(&arguments);
            let document = assert_whole(&trace, &format!("{protocol} {family}"));
            assert!(document["method"].as_str().unwrap().contains("error queue"));
            assert_eq!(document["caveats"][0]["kind"], "not_readable");
            assert!(document["hops"][0]["dscp"].is_null(), "nothing is made up");
        }
    }
    let denied = labs.trace_as_nobody(&["server", "--protocol", "icmp"]);
    if denied.status.code() == Some(3) {
        assert_says(&denied, "ping_group_range");
    } else {
        assert!(denied.status.success(), "{}", stderr(&denied));
    }
}

#[test]
fn an_unreachable_target_fails_with_the_place_where_the_path_ends() {
    let Some(labs) = Labs::new() else {
        return;
    };
    labs.up(&["--lab", &format!("hops=2,{DELAY}")]);
    // More hops than the highest TTL allows.
    let short = labs.trace(&["server", "--hops", "2", "--json"]);
    assert_eq!(short.status.code(), Some(1), "{}", stderr(&short));
    assert_eq!(json(&short)["end"]["reason"], "hop_limit");
    assert_says(&short, "not reached");
    // TEST-NET-1 (RFC 5737) is nowhere in the lab, and the first router says so.
    let nowhere = labs.trace(&["192.0.2.1", "--json"]);
    assert_eq!(nowhere.status.code(), Some(1), "{}", stderr(&nowhere));
    assert_eq!(json(&nowhere)["end"]["reason"], "unreachable");
    assert_says(&nowhere, "network unreachable");
}

#[test]
fn a_host_without_a_route_says_so() {
    let mut command = Command::new("unshare");
    command.args(["-n", env!("CARGO_BIN_EXE_linerate"), "trace", "192.0.2.1"]);
    let output = match command.output() {
        Ok(output) if !stderr(&output).contains("unshare") => output,
        other => {
            skip(
                Need::Lab,
                format_args!("a_host_without_a_route_says_so: no namespace: {other:?}"),
            );
            return;
        }
    };
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    assert_says(&output, "no route");
}

#[test]
fn what_is_wrong_on_the_command_line_is_named_with_its_range() {
    let labs = TempDir::new().unwrap();
    let cases: [(&[&str], &str); 9] = [
        (&["127.0.0.1", "--hops", "256"], "1 to 255"),
        (&["127.0.0.1", "--hops", "0"], "1 to 255"),
        (&["127.0.0.1", "--first", "31"], "1 to 30"),
        (&["127.0.0.1", "--size", "10"], "34 to 65535"),
        (&["127.0.0.1", "--source", "::1"], "no IPv6 address"),
        (&["127.0.0.1", "-6"], "no IPv6 address"),
        (&["127.0.0.1", "--protocol", "icmp", "--port", "1"], "ICMP has no ports"),
        (&["no-such-host.invalid"], "unknown host"),
        (&["127.0.0.1", "--device", "no-such-link"], "no-such-link"),
    ];
    for (arguments, words) in cases {
        let mut command = Command::new(env!("CARGO_BIN_EXE_linerate"));
        let output = command.arg("trace").args(arguments).current_dir(labs.path());
        let output = output.output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", stderr(&output));
        assert!(stderr(&output).contains(words), "{arguments:?}: {}", stderr(&output));
    }
}

#[test]
fn a_narrow_link_is_found_with_its_message_and_without() {
    let Some(labs) = Labs::new() else {
        return;
    };
    for (mtu, is_told) in [("1400", true), ("1400:blackhole", false)] {
        labs.up(&["--lab", &format!("hops=4,{DELAY},mtu={mtu}")]);
        let trace = labs.trace(&["server", "-4", "--mtu", "--json"]);
        assert!(trace.status.success(), "{}", stderr(&trace));
        let found = &json(&trace)["mtu"];
        assert_eq!(found["mtu_bytes"], 1400, "{found}");
        let narrowings = found["narrowings"].as_array().unwrap();
        assert_eq!(narrowings.len(), 1, "{found}");
        assert_eq!(narrowings[0]["is_told"], is_told, "{found}");
        // The emulated link is the one in the middle.
        assert_eq!(narrowings[0]["after_ttl"], 2, "{found}");
        assert!(labs.run(&["lab", "down"]).status.success());
    }
}

#[test]
fn a_black_hole_is_named_by_a_run_with_the_command_that_shows_it() {
    let run = |lab: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_linerate"));
        command.args(["stream", "-t", "4s", "--json", "--quiet", "--lab", lab]);
        command.output().unwrap()
    };
    let there = run("rtt=20ms,up.mtu=1300:blackhole");
    if has_no_lab(&there) {
        return;
    }
    let verdict = &json(&there)["verdict"];
    let evidence = verdict["evidence"].to_string();
    assert!(evidence.contains("an MTU black hole"), "{verdict}");
    let next = verdict["runner_up"]["tell_apart"]["command"].as_str().unwrap();
    assert!(next.starts_with("linerate trace --lab ") && next.ends_with(" --mtu"), "{next}");
    // The endpoint's greeting is longer than what comes through.
    let back = run("rtt=20ms,down.mtu=1300:blackhole");
    assert_eq!(back.status.code(), Some(1), "{}", stderr(&back));
    assert_says(&back, "an MTU black hole");
    assert_says(&back, "linerate trace --mtu server");
}

/// Two ways between `near` and `far`.
const DIAMOND: &str = r#"
[host.client]
[host.server]
[router.near]
[router.left]
[router.right]
[router.far]
[[link]]
between = ["client", "near"]
[[link]]
between = ["near", "left"]
[[link]]
between = ["near", "right"]
[[link]]
between = ["left", "far"]
[[link]]
between = ["right", "far"]
[[link]]
between = ["far", "server"]
"#;

/// By the port of each flow, even ones left, so that it is no matter of chance which way each goes:
/// a router that hashes would have the first six on one side in 3 % of all runs.
const BY_PORT: &str = "server=$(getent ahostsv4 server | cut -d' ' -f1 | head -1) && \
    left=$(getent ahostsv4 left | cut -d' ' -f1 | head -1) && \
    right=$(getent ahostsv4 right | cut -d' ' -f1 | head -1) && \
    ip route replace $server via $left table 101 && ip route replace $server via $right table 102 \
    && \
    for port in $(seq 33434 2 33498); do \
        ip rule add ipproto udp dport $port to $server table 101 priority 101 || exit 1; \
    done && \
    ip rule add ipproto udp to $server table 102 priority 102";

#[test]
fn both_equal_cost_paths_are_found() {
    let Some(labs) = Labs::new() else {
        return;
    };
    let file = labs.directory.path().join("diamond.toml");
    fs::write(&file, DIAMOND).unwrap();
    labs.up(&[file.to_str().unwrap()]);
    let set = labs.run(&["lab", "exec", "near", "--", "sh", "-c", BY_PORT]);
    if !set.status.success() {
        skip(Need::Lab, format_args!("both_of_two_paths: {}", stderr(&set)));
        return;
    }
    let trace = labs.trace(&["server", "-4", "--paths", "--json"]);
    assert!(trace.status.success(), "{}", stderr(&trace));
    let paths = &json(&trace)["paths"];
    assert_eq!(paths["paths"].as_array().unwrap().len(), 2, "{paths}");
    let second = paths["levels"][1]["nodes"].as_array().unwrap();
    assert_eq!(second.len(), 2, "{paths}");
    assert_eq!(paths["confidence"], 0.95);
}

#[test]
fn a_check_shows_the_route_beside_the_ceilings() {
    let output = Command::new(env!("CARGO_BIN_EXE_linerate"))
        .args(["check", "--quick", "--json", "--quiet"])
        .args(["--lab", "hops=3,rtt=400ms,rate=50mbit"])
        .output()
        .unwrap();
    if has_no_lab(&output) {
        return;
    }
    let check = json(&output);
    assert_eq!(check["route"]["reached"], true, "{}", stderr(&output));
    assert_eq!(addresses(&check["route"]).len(), 4);
}

/// Routers answer six probes at once and then one a second (`icmp_ratelimit`), which the trace has
/// used up.
#[test]
fn a_check_after_a_trace_shows_the_hops_that_there_are() {
    let Some(labs) = Labs::new() else {
        return;
    };
    labs.up(&["--lab", "hops=1,rtt=400ms"]);
    let program = labs.program.to_str().unwrap();
    let mut serve = labs.command(&labs.program);
    serve.args(["lab", "exec", "server", "--", program, "serve"]);
    let mut serve = Killed(serve.stderr(Stdio::piped()).spawn().unwrap());
    let mut log = BufReader::new(serve.0.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("listening on") {
        line.clear();
        assert_ne!(log.read_line(&mut line).unwrap(), 0, "it does not listen");
    }
    let trace = labs.trace(&["server", "-4", "--queries", "20"]);
    assert!(trace.status.success(), "{}", stderr(&trace));
    let check = ["lab", "exec", "client", "--", program, "check", "server", "-4"];
    let check = labs.run(&[&check[..], &["--quick", "--json", "--quiet"]].concat());
    let route = &json(&check)["route"];
    assert_eq!(route["reached"], true, "{}", stderr(&check));
    assert_eq!(addresses(route).len(), 2, "{route}");
}

#[test]
fn rounds_are_counted_and_reported() {
    let Some(labs) = Labs::new() else {
        return;
    };
    labs.up(&["--lab", &format!("hops=2,{DELAY}")]);
    let report = labs.trace(&["server", "--count", "4", "--interval", "200ms", "--json"]);
    assert!(report.status.success(), "{}", stderr(&report));
    let watch = &json(&report)["watch"];
    assert_eq!(watch["rounds"], 4);
    let rows = watch["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 3);
    assert!(rows.iter().all(|row| row["sent"] == 4), "{watch}");
    let text = labs.trace(&["server", "--count", "1"]);
    let text = String::from_utf8(text.stdout).unwrap();
    assert!(text.contains("Loss%") && text.contains("StDev"), "{text}");
}
