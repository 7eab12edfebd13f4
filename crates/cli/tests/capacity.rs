//! `linerate capacity` over loopback: what is held, what is refused, what happens when either end
//! goes away.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStderr, Command, Output};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use crate::support::{
    PATIENCE, PROGRAM, Served, assert_says, ended_within, has_no_lab, json, signal, spawn, stderr,
    stdout, words,
};

impl Served {
    fn capacity(&self, options: &[&str]) -> Output {
        let mut command = Command::new(PROGRAM);
        command.args(["capacity", &self.address, "--quiet"]).args(options);
        ended(spawn(command))
    }

    /// A client that holds for longer than any test.
    fn client_that_holds(&self) -> Holding {
        let mut command = Command::new(PROGRAM);
        let holds = ["--connections", "300", "--hold", "10min", "--json"];
        command.args(["capacity", &self.address]).args(holds);
        let mut child = spawn(command);
        let mut lines = BufReader::new(child.stderr.take().expect("it is piped"));
        let mut line = String::new();
        while !line.contains("holding") {
            line.clear();
            let n = lines.read_line(&mut line).unwrap();
            assert!(n > 0, "it has ended before it held");
        }
        Holding { child, lines }
    }
}

/// A client in the middle of its run.
struct Holding {
    child: Child,
    lines: BufReader<ChildStderr>,
}

impl Holding {
    /// Its exit status, its document, and the last line on stderr.
    fn ended(mut self) -> (Option<i32>, Value, String) {
        let output = ended(self.child);
        let mut rest = String::new();
        self.lines.read_to_string(&mut rest).unwrap();
        let last = rest.lines().last().unwrap_or_default().to_owned();
        let document = serde_json::from_slice(&output.stdout);
        let document = document.unwrap_or_else(|_| panic!("no document: {rest}"));
        (output.status.code(), document, last)
    }
}

/// What the child leaves, which it must soon.
fn ended(child: Child) -> Output {
    ended_within(child, PATIENCE)
}

/// All of them were opened, stayed and are gone.
fn assert_all(document: &Value, pool: &str, asked: u64) {
    let pool = &document[pool];
    for key in ["asked", "opened", "alive"] {
        assert_eq!(pool[key], asked, "{key}: {document:#}");
    }
    assert_eq!(pool["lost"], 0, "{document:#}");
}

#[test]
fn connections_and_sockets_are_held_and_the_document_explains_itself() {
    let served = Served::start(&[]);
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("capacity.json");
    let file = file.to_str().unwrap();
    let line = "--connections 500 --udp-sockets 100 --hold 1s --churn 50 --load 200ms --output";
    let output = served.capacity(&[&words(line)[..], &[file]].concat());
    assert!(output.status.success(), "{}", stderr(&output));
    let page = stdout(&output);
    assert!(page.starts_with("all 500 TCP connections and all 100 UDP sockets alive"), "{page}");
    assert!(page.contains("none lost"), "{page}");
    assert!(page.contains("The next limit would be: "), "{page}");
    assert!(!page.contains("TCP connect "), "{page}");
    let document: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    assert_eq!(document["schema"], "linerate.capacity/1");
    assert_eq!(document["status"], "complete");
    assert_all(&document, "tcp", 500);
    assert_all(&document, "udp", 100);
    // How many there are in so short a time is the machine's affair.
    for (part, key) in [("load", "transactions"), ("churn", "closed")] {
        assert!(document[part][key].is_u64(), "{document:#}");
    }
    assert_eq!(document["server"]["limits"]["owner_connections"], 75_000);
    let explained = Command::new(PROGRAM).args(["explain", file]).output().unwrap();
    assert_eq!(stdout(&explained), page);
    let explained = Command::new(PROGRAM).args(["explain", file, "--details"]).output().unwrap();
    let details = stdout(&explained);
    assert!(details.contains("TCP connect "), "{details}");
}

#[test]
fn stdout_has_one_document_and_nothing_else() {
    let served = Served::start(&[]);
    let asked = words("--connections 50 --hold 200ms --load 0 --rate 1k --json --seed 3");
    let output = served.capacity(&asked);
    assert!(output.status.success(), "{}", stderr(&output));
    let document = json(&output);
    assert_all(&document, "tcp", 50);
    assert_eq!(document["seed"], 3);
    assert!(document["load"].is_null() && document["udp"].is_null());
    assert!(document["stopped_by"].is_null());
    // A connection that takes long is said.
    let said = stderr(&output);
    let mut lines = said.lines().filter(|line| !line.starts_with("connecting to "));
    assert_eq!(lines.next(), None, "{said}");
}

#[test]
fn more_than_the_owner_allows_is_refused_and_a_search_ends_there() {
    let served = Served::start(&["--max-connections", "100"]);
    let refused = served.capacity(&["--connections", "76"]);
    assert_eq!(refused.status.code(), Some(1), "{}", stderr(&refused));
    assert_says(&refused, "allows 75 connections (serve's --max-connections");
    assert_eq!(stdout(&refused), "");
    let million = served.capacity(&["--connections", "1m"]);
    assert_says(&million, "serve's --max-connections");
    let found = served.capacity(&["--find-limit", "--hold", "100ms", "--json"]);
    assert!(found.status.success(), "{}", stderr(&found));
    let document = json(&found);
    assert_eq!(document["search"]["holds"], 75, "{document:#}");
    assert!(document["search"]["stops_at"].is_null());
    assert_eq!(document["next_limit"]["limit"], "owner");
    let remedy = document["next_limit"]["remedy"]["command"].as_str().unwrap();
    assert!(remedy.starts_with("linerate serve --max-connections"), "{remedy}");
}

#[test]
fn connections_are_refused_beyond_the_memory_and_the_share_of_one_address() {
    let served = Served::start(&["--max-memory", "16MiB", "--max-connections", "4k"]);
    let refused = served.capacity(&["--connections", "1k"]);
    assert_eq!(refused.status.code(), Some(1), "{}", stderr(&refused));
    assert_says(&refused, "of memory for the tests of one address (serve's --max-memory)");
    let served = Served::start(&["--max-connections", "500"]);
    let holding = served.client_that_holds();
    let refused = served.capacity(&["--connections", "76"]);
    assert_says(&refused, "375 connections for the tests of one address");
    assert_says(&refused, "300 taken, 76 asked for");
    let beside = served.capacity(&words("--connections 75 --hold 100ms --load 0 --json"));
    assert_all(&json(&beside), "tcp", 75);
    signal(holding.child.id(), "INT");
    holding.ended();
}

/// 192 descriptors of each process, of which 96 hold no connection, in one process.
#[test]
fn a_search_finds_the_limit_of_descriptors_and_says_how_to_raise_it() {
    let served = Served::start(&[]);
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -n 192 && exec \"$0\" \"$@\"", PROGRAM]);
    command.args(["capacity", &served.address, "--find-limit", "--workers", "1"]);
    command.args(["--hold", "100ms", "--json", "--quiet"]);
    let output = ended(spawn(command));
    assert!(output.status.success(), "{}", stderr(&output));
    let document = json(&output);
    let holds = document["search"]["holds"].as_u64().unwrap();
    let stops = document["search"]["stops_at"].as_u64().unwrap();
    // How many descriptors a process keeps for itself is its own affair.
    assert!((96..=190).contains(&holds), "{document:#}");
    assert!(stops - holds <= 2, "{document:#}");
    assert_eq!(document["stopped_by"]["limit"], "process_descriptors", "{document:#}");
    assert_eq!(document["stopped_by"]["end"], "client");
    let remedy = document["stopped_by"]["remedy"]["command"].as_str().unwrap();
    assert!(remedy.contains("ulimit -n "), "{remedy}");
}

/// What an endpoint that is there can serve at once.
const BRIEF: &str = "--connections 300 --hold 100ms --load 0 --json";

#[test]
fn an_interrupt_ends_it_in_order_and_the_endpoint_serves_the_next() {
    let served = Served::start(&[]);
    let holding = served.client_that_holds();
    signal(holding.child.id(), "INT");
    let (status, document, last) = holding.ended();
    assert_eq!(status, Some(1), "{last}");
    assert!(last.contains("interrupted"), "{last}");
    assert_eq!(document["status"], "partial");
    assert_eq!(document["tcp"]["opened"], 300, "{document:#}");
    assert!(document["stopped_by"].is_null(), "{document:#}");
    let next = served.capacity(&words(BRIEF));
    assert_all(&json(&next), "tcp", 300);
}

#[test]
fn an_endpoint_that_is_killed_leaves_a_client_that_says_what_it_held() {
    let served = Served::start(&[]);
    let holding = served.client_that_holds();
    signal(served.child.id(), "KILL");
    let (status, document, last) = holding.ended();
    assert_eq!(status, Some(1), "{last}");
    assert_eq!(document["status"], "partial");
    assert_eq!(document["tcp"]["opened"], 300, "{document:#}");
}

#[test]
fn a_client_that_is_killed_leaves_an_endpoint_that_serves() {
    let served = Served::start(&["--max-clients", "1"]);
    let mut holding = served.client_that_holds();
    holding.child.kill().unwrap();
    holding.child.wait().unwrap();
    // Until the endpoint has noticed, there is no room for another.
    let until = Instant::now() + PATIENCE;
    loop {
        let next = served.capacity(&words(BRIEF));
        if next.status.success() {
            assert_all(&json(&next), "tcp", 300);
            return;
        }
        assert!(Instant::now() < until, "{}", stderr(&next));
        thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn on_an_emulated_path_both_ends_are_here() {
    let mut command = Command::new(PROGRAM);
    command.args("capacity --lab rtt=2ms --connections 200 --hold 500ms --quiet --json".split(' '));
    let output = ended(spawn(command));
    if has_no_lab(&output) {
        return;
    }
    assert!(output.status.success(), "{}", stderr(&output));
    let document = json(&output);
    assert_all(&document, "tcp", 200);
    assert_eq!(document["environment"]["lab"]["spec"], "rtt=2ms");
    let first = &document["tcp"]["connect_latency_us"]["first_try"]["min"];
    assert!(first.as_f64() > Some(0.0), "{document:#}");
}

#[test]
fn a_closed_port_is_told_from_another_server() {
    let mut command = Command::new(PROGRAM);
    command.args(["capacity", "127.0.0.1:1", "--connections", "5", "--quiet"]);
    let output = ended(spawn(command));
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert_says(&output, "linerate serve");
}
