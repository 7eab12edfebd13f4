//! `linerate iperf3` beside the real one: the same command lines mean the same and end with the
//! same status, and the documents have the same keys with values of the same types.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Output, Stdio};
use std::thread;

use linerate_testkit::{Need, eventually, free_port, skip};
use serde_json::Value;

use crate::support::{
    PATIENCE, PROGRAM, Served, ended_within, json, signal, spawn, stderr, stdout,
};

/// Whether the real iperf3 is missing; then the test is skipped.
fn has_no_iperf3() -> bool {
    let is_missing = Command::new("iperf3").arg("--version").output().is_err();
    if is_missing {
        skip(Need::Iperf3, "needs iperf3: apt-get install iperf3");
    }
    is_missing
}

/// What both programs leave, ours first. They run at the same time.
fn both(line: &str) -> [Output; 2] {
    let children = [ours(), Command::new("iperf3")].map(|program| start(program, line));
    children.map(|child| ended_within(child, PATIENCE))
}

/// An endpoint for each of the two programs.
struct Endpoints([Served; 2]);

impl Endpoints {
    fn start() -> Self {
        Self([Served::start(&[]), Served::start(&[])])
    }

    /// What both programs leave of a test with their endpoints, ours first.
    fn both(&self, line: &str) -> [Output; 2] {
        let programs = [ours(), Command::new("iperf3")].into_iter();
        let children: Vec<Child> = programs
            .zip(&self.0)
            .map(|(program, served)| start(program, &format!("{} {line}", way_to(served))))
            .collect();
        let mut outputs = children.into_iter().map(|it| ended_within(it, PATIENCE));
        [(); 2].map(|()| outputs.next().expect("two programs"))
    }
}

fn ours() -> Command {
    let mut ours = Command::new(PROGRAM);
    ours.arg("iperf3");
    ours
}

fn run(program: Command, line: &str) -> Output {
    ended_within(start(program, line), PATIENCE)
}

fn start(mut program: Command, line: &str) -> Child {
    program.args(line.split_whitespace()).stdin(Stdio::null());
    spawn(program)
}

/// An endpoint as `-c HOST -p PORT`.
fn way_to(served: &Served) -> String {
    let port = served.address.rsplit(':').next().expect("a port");
    format!("-c 127.0.0.1 -p {port}")
}

/// Command lines of tests that are made. All end by an amount that takes a moment, or in a second.
const MADE: &[&str] = &[
    "-n 100K",
    "-n 100000",
    "--bytes 0.5M",
    "-n64k -l 8K",
    "-k 3",
    "-k 10 -l 1024",
    "--blockcount=4 --length=64K",
    "-n 100K -R",
    "-Rn 100K",
    "--reverse --bytes 100K",
    "--rev --byt 100K",
    "-n 100K -P 2",
    "-n 100K --parallel 3 -R",
    "-n 100K --bidir",
    "-n 100K -N",
    "-n 100K -M 1000",
    "--set-mss=900 -n 10K --no-delay",
    "-n 100K -w 64K",
    "--window 128000 -n 100K",
    "-n 100K -C reno",
    "--congestion cubic -n 100K",
    "-n 100K -S 0x20",
    "-n 100K -S 040 -4",
    "-n 100K --tos 184",
    "-n 100K --dscp ef",
    "-n 100K --dscp 46",
    "-n 100K --dscp AF21",
    "-n 100K -b 100M",
    "-n 100K --bitrate 0.1G",
    "-n 100K --fq-rate 1G",
    "-n 100K -Z",
    "-n 100K -i 0",
    "-n 100K -i 0.5 -f m",
    "-n 100K -T a-title --extra-data more",
    "-n 100K -B 127.0.0.1",
    "-n 100K --connect-timeout 2000",
    "-n 100K -A 0",
    "-n 100K --repeating-payload --pacing-timer 1000",
    "-n 100K -R --rcv-timeout 5000",
    "-u -n 20K -b 1M",
    "-u -n 10K -l 1000 -b 10m",
    "-u -k 5 -l 500",
    "-u -n 20K -b 2M -R",
    "-u -b 0 -k 10 -l 1200",
    "-u --udp-counters-64bit -n 20K -b 5M",
    "-t 1 -b 1M",
    "--time 1 --interval 0.5 --bandwidth 2M",
    "-t1 -O1 -b 1M",
    "-n 100K extra words",
];

#[test]
fn a_command_line_asks_for_the_same_test_as_with_iperf3() {
    if has_no_iperf3() {
        return;
    }
    let endpoints = Endpoints::start();
    for line in MADE {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [ours, real] = endpoints.both(&format!("{line} -J"));
        assert_eq!(ours.status.code(), real.status.code(), "{line}: {ours:?} {real:?}");
        assert_eq!(real.status.code(), Some(0), "{line}: {real:?}");
        let [ours, real] = [json(&ours), json(&real)];
        let asked = real["start"]["test_start"].as_object().expect("an object");
        for (key, value) in asked {
            // Without -l datagrams are as long as the path's segments, which the window bounds
            // here.
            if key == "blksize" && words.contains(&"-u") && !words.contains(&"-l") {
                continue;
            }
            let is_close = key == "bytes" || key == "blocks";
            let own = &ours["start"]["test_start"][key];
            if is_close {
                // linerate shares an amount out to streams of whole bytes.
                let [own, value] = [own, value].map(|value| value.as_u64().unwrap_or(u64::MAX));
                assert!(own >= value && own <= value + 3, "{line}: {key} {own} {value}");
            } else {
                assert_eq!(own, value, "{line}: {key}");
            }
        }
        assert_eq!(ours["title"], real["title"], "{line}");
    }
}

#[test]
fn a_test_without_an_end_is_no_longer_than_the_user_wants_and_no_error() {
    let served = Served::start(&[]);
    let way = way_to(&served);
    let (of_iperf3, own) = (
        format!("iperf3 {way} -t 0 -b 1M --json-stream"),
        format!("stream {way} -t 0 --json-stream"),
    );
    for line in [of_iperf3, own.replace("-c ", "")] {
        let mut child = start(Command::new(PROGRAM), &line);
        let mut lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        let is_interval = |line: &String| line.contains("interval\"") || line.contains("start_s");
        let first = lines.by_ref().map_while(Result::ok).find(is_interval);
        assert!(first.is_some(), "{line}: {}", stderr(&ended_within(child, PATIENCE)));
        signal(child.id(), "INT");
        // What is left has to be read, or a full pipe would hold it.
        let rest: Vec<String> = lines.map_while(Result::ok).collect();
        let ended = ended_within(child, PATIENCE);
        assert_eq!(ended.status.code(), Some(0), "{line}: {} {rest:?}", stderr(&ended));
        assert!(line.starts_with("iperf3") || rest.concat().contains("\"status\":\"complete\""));
    }
}

#[test]
fn streams_come_from_the_ports_that_cport_says() {
    let served = Served::start(&[]);
    let way = way_to(&served);
    for transport in ["-N", "-u"] {
        let first = free_port();
        let port = first.to_string();
        let line = format!("{way} --cport {port} -P 2 -n 20K -J {transport}");
        let document = json(&run(ours(), &line));
        let connected = &document["start"]["connected"];
        let ports = [0, 1].map(|stream| connected[stream]["local_port"].as_u64());
        let first = u64::from(first);
        assert_eq!(ports, [Some(first), Some(first + 1)], "{document}");
    }
}

/// Command lines that are refused.
const REFUSED: &[&str] = &[
    "",
    "-s -c localhost",
    "-c localhost -s",
    "-s -u",
    "-s -t 5",
    "-c localhost -1",
    "-c localhost -D",
    "-c localhost -p 0",
    "-c localhost -p 65536",
    "-c localhost -t 86401",
    "-c localhost -i 0.01",
    "-c localhost -i 61",
    "-c localhost -l 2M",
    "-c localhost -u -l 70000",
    "-c localhost -u -l 8",
    "-c localhost -M 40000",
    "-c localhost -w 1G",
    "-c localhost -O 601",
    "-c localhost -S 256",
    "-c localhost -S x",
    "-c localhost -f q",
    "-c localhost -t 5 -n 1M",
    "-c localhost -n 1M -k 5",
    "-c localhost -R --bidir",
    "-c localhost --bidir -R",
    "-c localhost --nonsense",
    "-c localhost -q",
    "-c localhost -t",
    "-c localhost --time",
    "-c localhost --udp=5",
    "-c localhost --ver",
    "-c localhost --b 5",
];

#[test]
fn command_lines_that_iperf3_refuses_are_refused_with_its_status_and_message() {
    if has_no_iperf3() {
        return;
    }
    for line in REFUSED {
        let [ours, real] = both(line);
        assert_eq!(ours.status.code(), Some(1), "{line}: {ours:?}");
        assert_eq!(real.status.code(), Some(1), "{line}: {real:?}");
        let first = |output: &Output| {
            let text = stderr(output);
            // Versions say more or less of a limit; which of them it is they say alike.
            let line = text.lines().next().unwrap_or_default();
            let reason = line.rsplit(" - ").next().unwrap_or_default();
            reason.split(' ').take(2).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(first(&ours), first(&real), "{line}");
        assert!(stderr(&ours).contains("Usage: iperf3 [-s|-c host] [options]"), "{line}");
    }
}

#[test]
fn what_linerate_lacks_or_only_a_newer_iperf3_refuses_is_refused_by_name() {
    for (line, words) in [
        ("-A 0,1", "the server's CPU of -A N,M"),
        ("-A 1024", "unable to set CPU affinity"),
        ("--rcv-timeout 5000", "valid only in receiving mode"),
        ("-R --rcv-timeout 5", "receive timeout value"),
        ("-F /tmp/x", "--file is not in linerate"),
        ("--sctp", "--sctp is not in linerate"),
        ("-t -1", "test duration valid values are 0 to 86400"),
        ("-P 129", "invalid number of parallel streams"),
        ("-n 1x", "invalid unit value or suffix"),
        ("--dscp af99", "bad DSCP value"),
        ("-m", "linerate stream HOST --protocol mptcp"),
        ("-b 1M/10", "bursts of -b RATE/N"),
        ("-S 1", "ECN"),
        ("-n 1M -O 1", "--omit with -n"),
        ("-M 50", "--mss 50: it must be"),
    ] {
        let output = run(ours(), &format!("-c localhost -p 9 {line}"));
        assert_eq!(output.status.code(), Some(1), "{line}: {output:?}");
        let said = stderr(&output);
        assert!(said.contains(words), "{line}: {said}");
    }
}

/// Each key of `real` is in `ours`, with a value of the same type.
fn assert_shape(place: &str, ours: &Value, real: &Value) {
    match (ours, real) {
        (Value::Object(ours), Value::Object(real)) => {
            for (key, value) in real {
                let own = ours.get(key);
                let own = own.unwrap_or_else(|| panic!("{place} has no {key}: {ours:?}"));
                assert_shape(&format!("{place}.{key}"), own, value);
            }
        }
        (Value::Array(ours), Value::Array(real)) => {
            let pairs = ours.iter().zip(real).enumerate();
            pairs.for_each(|(n, (ours, real))| assert_shape(&format!("{place}[{n}]"), ours, real));
            assert!(real.is_empty() || !ours.is_empty(), "{place} is empty");
        }
        (Value::Number(_), Value::Number(_))
        | (Value::String(_), Value::String(_))
        | (Value::Bool(_), Value::Bool(_)) => {}
        _ => panic!("{place}: {ours} is not as {real}"),
    }
}

#[test]
fn the_document_has_iperf3s_keys_and_types() {
    if has_no_iperf3() {
        return;
    }
    let endpoints = Endpoints::start();
    for line in ["-P 2", "-R", "--bidir", "-u -b 5M", "-u -b 5M -R", "-u -b 5M --bidir -P 2"] {
        let [ours, real] = endpoints.both(&format!("{line} -J -t 1 -i 0.5"));
        let [ours, real] = [json(&ours), json(&real)];
        assert_shape(line, &ours, &real);
        assert!(ours["end"]["bottleneck"]["text"].is_string(), "{ours}");
    }
    let refused = run(ours(), "-c 127.0.0.1 -p 9 -J");
    let document = json(&refused);
    assert_eq!(refused.status.code(), Some(1));
    let error = document["error"].as_str().unwrap_or_default();
    let words = "error - unable to connect to server - ";
    assert!(error.starts_with(words) && error.ends_with(": Connection refused"), "{error}");
}

#[test]
fn a_stream_of_json_begins_and_ends_and_has_an_interval_in_between() {
    let served = Served::start(&[]);
    let way = way_to(&served);
    let options = "--json-stream -t 1 -b 5M --no-verdict";
    let text = stdout(&run(ours(), &format!("{way} {options}")));
    // As iperf3's library has it.
    assert!(!text.contains(".0,"), "{text}");
    let begins = |line: &str| line.starts_with("{\"event\":\"");
    assert!(text.lines().all(begins), "{text}");
    let events: Vec<Value> =
        text.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
    let names: Vec<&str> = events.iter().filter_map(|event| event["event"].as_str()).collect();
    assert_eq!((names.first(), names.last()), (Some(&"start"), Some(&"end")), "{text}");
    assert!(names.contains(&"interval"), "{text}");
    assert_eq!(events.last().expect("an event")["data"].get("bottleneck"), None);
}

/// The figures of a line stand for themselves, whatever prefix their units have: what is left are
/// its columns.
fn columns(text: &str) -> Vec<String> {
    let column = |word: &str| {
        let figure = word.trim_start_matches('(');
        if figure.starts_with(|c: char| c.is_ascii_digit()) {
            return "#".to_owned();
        }
        let unit = word.trim_start_matches(['K', 'M', 'G']);
        let is_unit = ["Bytes", "bits/sec"].contains(&unit);
        if is_unit { unit } else { word }.to_owned()
    };
    let mut lines = Vec::new();
    for line in text.lines() {
        let shape: Vec<String> = line.split_whitespace().map(column).collect();
        let shape = shape.join(" ");
        // How many intervals there are is the machine's affair.
        if !lines.contains(&shape) {
            lines.push(shape);
        }
    }
    lines
}

#[test]
fn the_text_has_iperf3s_lines_and_the_bottleneck() {
    if has_no_iperf3() {
        return;
    }
    // A test that is paced leaves the CPUs to the others.
    let lines = ["", "-R", "-P 2", "--bidir", "-u", "-u -R", "-u -P 2"];
    let both = |line| Endpoints::start().both(&format!("{line} -t 2 -b 2M"));
    let outputs = thread::scope(|scope| {
        let threads = lines.map(|line| scope.spawn(move || both(line)));
        threads.map(|thread| thread.join().expect("both programs end"))
    });
    for (line, outputs) in lines.into_iter().zip(outputs) {
        let [ours, real] = outputs.map(|output| stdout(&output));
        let without: String = ours
            .lines()
            .filter(|line| !line.starts_with("Bottleneck: "))
            .map(|line| format!("{line}\n"))
            .collect();
        assert_eq!(without.lines().count() + 1, ours.lines().count(), "{ours}");
        assert_eq!(columns(&without), columns(&real), "{line}:\n{ours}\n{real}");
    }
}

#[test]
fn each_line_begins_with_the_time_that_is_asked_for() {
    let served = Served::start(&[]);
    let way = way_to(&served);
    let mut program = ours();
    program.arg("--timestamps=at %Y ");
    let output = run(program, &format!("{way} -n 1K -T title"));
    let text = stdout(&output);
    assert!(text.lines().count() > 4, "{output:?}");
    for line in text.lines() {
        let rest = line.strip_prefix("at 20").expect(line);
        assert_eq!(rest.get(2..11), Some(" title:  "), "{line}");
    }
}

#[test]
fn the_server_serves_iperf3_and_leaves_its_document() {
    if has_no_iperf3() {
        return;
    }
    for mut server in [ours(), Command::new("iperf3")] {
        let port = free_port().to_string();
        server.args(["-s", "-1", "-J", "-p", &port]);
        let server = spawn(server);
        // It takes a moment until it listens.
        eventually("a test with the server", || {
            let test = format!("-c 127.0.0.1 -p {port} -n 200K -b 5M");
            run(Command::new("iperf3"), &test).status.success()
        });
        let ended = ended_within(server, PATIENCE);
        assert_eq!(ended.status.code(), Some(0), "{ended:?}");
        let document = json(&ended);
        assert_eq!(document["start"]["test_start"]["num_streams"], 1, "{document}");
        let received = &document["end"]["sum_received"]["bytes"];
        assert!(received.as_u64().is_some_and(|bytes| bytes > 0), "{document}");
        assert_eq!(document["start"]["accepted_connection"]["host"], "127.0.0.1");
        // What only the sender can know is not made up.
        let sender = &document["end"]["streams"][0]["sender"];
        assert_eq!(sender.get("retransmits"), None, "{document}");
        assert_eq!(document["end"].get("sender_tcp_congestion"), None);
    }
}

#[test]
fn the_port_of_a_server_of_one_test_is_free_when_its_client_is_gone() {
    let port = free_port().to_string();
    let server = || {
        let mut server = ours();
        server.args(["-s", "-1", "-p", &port]);
        spawn(server)
    };
    let client = || {
        let test = format!("-c 127.0.0.1 -p {port} -t 1 -b 5M");
        run(ours(), &test).status.success()
    };
    let mut before: Option<Child> = None;
    for _ in 0..4 {
        let next = server();
        // It takes a moment until it listens; one that cannot never does.
        eventually("a test with the server", client);
        if let Some(before) = before.replace(next) {
            assert_eq!(ended_within(before, PATIENCE).status.code(), Some(0));
        }
    }
}

#[test]
fn a_link_named_iperf3_is_iperf3() {
    let directory = tempfile::tempdir().expect("a directory");
    let link = directory.path().join("iperf3");
    std::os::unix::fs::symlink(PROGRAM, &link).expect("a link");
    let output = run(Command::new(&link), "--version");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.starts_with("iperf 3."), "{text}");
    assert_eq!(run(Command::new(&link), "--help").status.code(), Some(0));
}

#[test]
fn completions_and_manual_pages_name_every_command() {
    for shell in ["bash", "zsh", "fish"] {
        let output = Command::new(PROGRAM).args(["completions", shell]).output();
        let output = output.expect("the program was built for this test");
        let text = String::from_utf8_lossy(&output.stdout);
        for word in ["check", "iperf3", "trace", "paths"] {
            assert!(text.contains(word), "{shell}: {word}");
        }
        assert!(!text.contains("capacity-worker"), "{shell}");
    }
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().to_str().expect("its name is text");
    let output = run(Command::new(PROGRAM), &format!("man {path}"));
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    for page in ["linerate", "linerate-stream", "linerate-host-set"] {
        let text = std::fs::read_to_string(directory.path().join(format!("{page}.1")));
        assert!(text.expect(page).contains(".SH"), "{page}");
    }
    let nowhere = run(Command::new(PROGRAM), "man /nonexistent");
    assert_eq!(nowhere.status.code(), Some(2), "{nowhere:?}");
}
