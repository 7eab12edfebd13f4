//! The program when things go wrong: signals, peers that die, full disks, strangers, no privileges.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use linerate_testkit::{Need, skip};

use crate::support::{
    PATIENCE, PROGRAM, Served, assert_says, copy_for_everybody, ended_within, signal, spawn, stderr,
};

fn program(arguments: &[&str]) -> Command {
    let mut command = Command::new(PROGRAM);
    command.args(arguments).stdin(Stdio::null());
    command
}

/// The document is there, partial, and the words on stderr end with `words`.
fn assert_partial(output: &Output, words: &str) {
    let message = stderr(output);
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(message.trim_end().ends_with(words), "{message}");
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).expect(&message);
    assert_eq!(document["schema"], "linerate.record/1");
    assert_eq!(document["status"], "partial");
}

impl Served {
    /// A client of it in the middle of a long run.
    fn client_in_its_run(&self, options: &[&str]) -> Child {
        let line = ["stream", &self.address, "-t", "10min", "--json"];
        let child = spawn(program(&[&line, options].concat()));
        self.await_event("connected");
        await_run(&child);
        child
    }
}

/// Until the child has a thread for its flow: it makes that when the run begins.
fn await_run(child: &Child) {
    let tasks = Path::new("/proc").join(child.id().to_string()).join("task");
    let is_flow = |task: fs::DirEntry| {
        // A thread may end between the listing and the look at it.
        fs::read_to_string(task.path().join("comm")).is_ok_and(|name| name.starts_with("flow-"))
    };
    let until = Instant::now() + PATIENCE;
    while !fs::read_dir(&tasks).unwrap().flatten().any(is_flow) {
        assert!(Instant::now() < until, "no run begins");
        thread::sleep(Duration::from_millis(5));
    }
}

/// How often the child's threads have gone to sleep.
fn sleeps(child: &Child) -> u64 {
    let tasks = Path::new("/proc").join(child.id().to_string()).join("task");
    let tasks = fs::read_dir(tasks).unwrap().flatten();
    let of_each = tasks.filter_map(|task| {
        // A thread may end between the listing and the look at it.
        let status = fs::read_to_string(task.path().join("status")).ok()?;
        let mut lines = status.lines();
        let count = lines.find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        Some(count.unwrap().trim().parse::<u64>().unwrap())
    });
    of_each.sum()
}

#[test]
fn an_endpoint_that_idles_does_not_wake_up() {
    let mut served = Served::start(&[]);
    let address = served.address.clone();
    let count = |options: &[&str]| {
        let options = [&["crr", &address, "--count", "5", "--quiet"], options].concat();
        assert!(program(&options).output().unwrap().status.success());
    };
    // It falls asleep again after clients that made it look in.
    count(&[]);
    let until = Instant::now() + PATIENCE;
    loop {
        let before = sleeps(&served.child);
        thread::sleep(Duration::from_millis(500));
        if sleeps(&served.child) == before {
            break;
        }
        assert!(Instant::now() < until, "it wakes up on and on");
    }
    // And is there when it is needed.
    count(&["-P", "2"]);
    signal(served.child.id(), "TERM");
    assert!(served.child.wait().unwrap().success(), "asked to end");
}

#[test]
fn an_interrupt_prints_what_there_is() {
    let served = Served::start(&[]);
    // Far below what loopback carries: the gate would pass.
    let client = served.client_in_its_run(&["--fail-below", "1kbit"]);
    signal(client.id(), "INT");
    let output = ended_within(client, PATIENCE);
    assert_partial(&output, "interrupted");
    let says = stderr(&output);
    assert!(says.contains("--fail-below 1 kbit/s: stopped, no result"), "{says}");
    // The endpoint has its next client at once.
    let next = spawn(program(&["stream", &served.address, "-t", "0.2", "--json"]));
    let output = ended_within(next, PATIENCE);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
}

#[test]
fn an_interrupted_trace_is_partial_and_fails_as_other_commands_do() {
    let mut child = spawn(program(&["trace", "127.0.0.1", "--count", "100000", "--json"]));
    let mut said = BufReader::new(child.stderr.take().expect("it is piped"));
    // How long it takes is said after the first round.
    said.read_line(&mut String::new()).unwrap();
    signal(child.id(), "INT");
    let mut rest = String::new();
    said.read_to_string(&mut rest).unwrap();
    let output = ended_within(child, PATIENCE);
    assert_eq!(
        (output.status.code(), rest.lines().last()),
        (Some(1), Some("linerate: interrupted"))
    );
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let mut caveats = document["caveats"].as_array().unwrap().iter();
    assert!(caveats.any(|it| it["kind"] == "partial"), "{document:#}");
}

#[test]
fn a_check_without_an_endpoint_says_once_how_to_start_one_at_its_port() {
    let output = program(&["check", "127.0.0.1", "-p", "1", "--quiet"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let page = String::from_utf8(output.stdout.clone()).unwrap();
    assert_eq!(page.matches("linerate serve").count(), 1, "{page}");
    assert!(page.contains("on that host: linerate serve -p 1\n"), "{page}");
    assert_says(&output, "start `linerate serve -p 1` on that host");
}

#[test]
fn an_interrupt_before_the_run_prints_no_document() {
    // Accepts, and never says a word.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    for command in ["stream", "rr", "crr"] {
        let client = spawn(program(&[command, &address, "--json"]));
        let _held = listener.accept().unwrap();
        signal(client.id(), "INT");
        let output = ended_within(client, PATIENCE);
        assert_eq!(output.status.code(), Some(1));
        assert_eq!(stderr(&output).lines().last(), Some("linerate: interrupted"));
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn an_endpoint_that_stands_still_does_not_hold_an_interrupt_up() {
    let served = Served::start(&[]);
    let client = served.client_in_its_run(&[]);
    signal(served.child.id(), "STOP");
    signal(client.id(), "INT");
    assert_partial(&ended_within(client, PATIENCE), "interrupted");
}

#[test]
fn an_endpoint_that_is_killed_leaves_a_partial_record() {
    let mut served = Served::start(&[]);
    let client = served.client_in_its_run(&[]);
    served.child.kill().unwrap();
    assert_partial(&ended_within(client, PATIENCE), "the peer closed the connection");
}

#[test]
fn an_endpoint_that_is_asked_to_end_tells_its_clients() {
    let mut served = Served::start(&[]);
    let client = served.client_in_its_run(&[]);
    signal(served.child.id(), "TERM");
    assert_partial(&ended_within(client, PATIENCE), "the endpoint is shutting down");
    let until = Instant::now() + PATIENCE;
    while served.child.try_wait().unwrap().is_none() {
        assert!(Instant::now() < until, "the endpoint goes on");
        thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(served.child.wait().unwrap().code(), Some(0));
}

#[test]
fn a_client_that_is_killed_costs_the_endpoint_nothing() {
    let served = Served::start(&[]);
    // Whatever is made at the first client, and kept, is there before anything is counted.
    let first = program(&["stream", &served.address, "-t", "0.1"]).output();
    assert!(first.unwrap().status.success());
    served.await_event("disconnected");
    thread::sleep(Duration::from_millis(500));
    let [threads, descriptors] = tasks(&served.child);
    for _ in 0..3 {
        let mut client = served.client_in_its_run(&[]);
        client.kill().unwrap();
        client.wait().unwrap();
        served.await_event("disconnected");
    }
    let until = Instant::now() + PATIENCE;
    let has_more = || {
        let now = tasks(&served.child);
        now[0] > threads || now[1] > descriptors
    };
    while has_more() {
        assert!(Instant::now() < until, "{:?}", tasks(&served.child));
        thread::sleep(Duration::from_millis(5));
    }
}

/// Threads and descriptors of a child.
fn tasks(child: &Child) -> [usize; 2] {
    let process = Path::new("/proc").join(child.id().to_string());
    ["task", "fd"].map(|of| fs::read_dir(process.join(of)).unwrap().count())
}

#[test]
fn a_full_disk_is_named_after_the_run() {
    let served = Served::start(&[]);
    let client = spawn(program(&["stream", &served.address, "-t", "0.2", "--output", "/dev/full"]));
    let output = ended_within(client, PATIENCE);
    assert_eq!(output.status.code(), Some(1));
    assert!(!output.stdout.is_empty(), "the run is lost");
    let words = "linerate: --output /dev/full: No space left on device\n";
    assert!(stderr(&output).ends_with(words), "{}", stderr(&output));
}

#[test]
fn a_closed_stdout_ends_a_run_that_streams_intervals() {
    let served = Served::start(&[]);
    let mut client =
        spawn(program(&["stream", &served.address, "-t", "10min", "-i", "0.1", "--json-stream"]));
    let mut stdout = client.stdout.take().unwrap();
    stdout.read_exact(&mut [0; 1]).unwrap();
    drop(stdout);
    let output = ended_within(client, PATIENCE);
    assert_eq!(output.status.code(), Some(1));
    let words =
        "stdout was closed before all of it was written; --output FILE keeps the whole document\n";
    assert!(stderr(&output).ends_with(words), "{}", stderr(&output));
}

#[test]
fn a_run_that_is_kept_in_a_file_goes_on_without_a_reader() {
    let served = Served::start(&[]);
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("kept.json");
    let mut client = program(&["stream", &served.address, "-t", "0.5", "-i", "0.1"]);
    client.args(["--json-stream", "--output"]).arg(&file);
    let mut client = spawn(client);
    drop(client.stdout.take());
    let output = ended_within(client, PATIENCE);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let text = fs::read(&file).unwrap_or_else(|_| panic!("{}", stderr(&output)));
    let document: serde_json::Value = serde_json::from_slice(&text).unwrap();
    assert_eq!(document["status"], "complete");
}

#[test]
fn without_a_stdout_nothing_is_sent_unless_a_file_keeps_it() {
    let served = Served::start(&[]);
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("kept.json");
    let run = |more: &str| {
        let line = format!("exec \"$0\" stream {} -t 0.2 --quiet {more} >&-", served.address);
        let mut shell = Command::new("sh");
        shell.args(["-c", &line, PROGRAM]).stdin(Stdio::null());
        ended_within(spawn(shell), PATIENCE)
    };
    let words = "linerate: stdout is closed; --output FILE keeps the whole document\n";
    let refused = run("");
    assert_eq!((refused.status.code(), stderr(&refused).as_str()), (Some(1), words));
    let kept = run(&format!("--output {}", file.display()));
    assert_eq!((kept.status.code(), stderr(&kept).as_str()), (Some(1), words));
    let document: serde_json::Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    assert_eq!(document["status"], "complete");
}

#[test]
fn a_wait_for_the_endpoint_is_said() {
    // Accepts, and never says a word.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    for (options, is_said) in [(&[][..], true), (&["--quiet"], false)] {
        let line = [&["stream", &address, "--connect-timeout", "3s"], options].concat();
        let output = ended_within(spawn(program(&line)), PATIENCE);
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{said}");
        let wait = format!("connecting to {address}, for 3 s");
        assert_eq!(said.starts_with(&wait), is_said, "{said}");
    }
}

#[test]
fn other_servers_are_named() {
    for (answer, words) in [
        (&b"SSH-2.0-OpenSSH_9.2\r\n"[..], "an SSH (or other text) server"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "an HTTP server"),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let client = spawn(program(&["stream", &address.to_string()]));
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(answer).unwrap();
        let output = ended_within(client, PATIENCE);
        assert_eq!(output.status.code(), Some(1));
        let line = format!("linerate: {address}: {words} answers there, not `linerate serve`");
        assert_says(&output, &line);
    }
}

#[test]
fn a_closed_port_is_told_with_what_to_do() {
    let output = ended_within(spawn(program(&["stream", "127.0.0.1:1"])), PATIENCE);
    assert_eq!(output.status.code(), Some(1));
    let message = stderr(&output);
    assert!(message.contains("connection refused"), "{message}");
    assert!(message.contains("linerate serve"), "{message}");
}

/// The program as a user without any privilege runs it.
fn unprivileged(directory: &Path) -> Option<Command> {
    let copy = copy_for_everybody(directory);
    if fs::metadata("/proc/self").unwrap().uid() != 0 {
        return Some(Command::new(copy));
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
    command.args(["--bounding-set=-all", "--inh-caps=-all"]).arg(&copy);
    let mut trial = Command::new("setpriv");
    trial.args(["--reuid=65534", "--regid=65534", "--clear-groups", "true"]);
    match trial.status() {
        Ok(status) if status.success() => Some(command),
        other => {
            skip(Need::Setpriv, format_args!("setpriv cannot drop privileges here: {other:?}"));
            None
        }
    }
}

#[test]
fn both_ends_run_without_privileges() {
    let directory = tempfile::tempdir().unwrap();
    let Some(server) = unprivileged(directory.path()) else {
        return;
    };
    let served = Served::by(server, &[]);
    let other = tempfile::tempdir().unwrap();
    let mut client = unprivileged(other.path()).expect("as before");
    client.args(["stream", &served.address, "-t", "0.2", "--json"]);
    let output = ended_within(spawn(client), PATIENCE);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["status"], "complete");
}

/// A control group with this much memory; removed when it is dropped.
struct MemoryGroup(PathBuf);

impl MemoryGroup {
    fn new(bytes: u64) -> Option<Self> {
        let name = format!("linerate-test-{}", std::process::id());
        // Of version 1, and of version 2.
        let found =
            [("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")]
                .into_iter()
                .find_map(|(root, limit)| {
                    let directory = Path::new(root).join(&name);
                    fs::create_dir(&directory).ok()?;
                    let group = Self(directory);
                    fs::write(group.0.join(limit), bytes.to_string()).ok()?;
                    Some(group)
                });
        if found.is_none() {
            skip(Need::Cgroup, "no control group with a limit on memory can be made");
        }
        found
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

/// Each alone is within every limit; together they would have 1.5 GiB of payload.
#[test]
fn many_clients_that_ask_for_large_messages_do_not_exhaust_the_endpoints_memory() {
    let Some(group) = MemoryGroup::new(2 << 30) else {
        return;
    };
    let mut shell = Command::new("sh");
    shell.args(["-c", "echo $$ > \"$0/cgroup.procs\" && exec \"$@\""]);
    shell.arg(&group.0).arg(PROGRAM);
    let mut served = Served::by(shell, &[]);
    let clients: Vec<Child> = (0..6)
        .map(|_| {
            let options = ["-R", "-P4", "--size", "64MiB", "-t", "100ms", "--quiet"];
            let mut client = program(&["stream", &served.address]);
            client.args(options);
            spawn(client)
        })
        .collect();
    for client in clients {
        let output = ended_within(client, PATIENCE);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    }
    assert_eq!(served.child.try_wait().unwrap(), None, "it was killed");
    let status = Path::new("/proc").join(served.child.id().to_string());
    let status = fs::read_to_string(status.join("status")).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = peak.and_then(|peak| peak.trim().strip_suffix(" kB"));
    let kib: u64 = kib.expect("the kernel tells it").parse().unwrap();
    assert!(kib < 512 << 10, "{kib} KiB");
    // A pattern is of each flow's own: what does not fit is refused in words.
    let options = ["-R", "-P3", "--size", "64MiB", "--verify", "-t", "100ms"];
    let mut client = program(&["stream", &served.address]);
    client.args(options);
    let output = ended_within(spawn(client), PATIENCE);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let words = "the endpoint has 384 MiB of memory for the tests of one address (serve's \
        --max-memory): 0 B taken";
    assert_says(&output, words);
    signal(served.child.id(), "TERM");
    assert!(served.child.wait().unwrap().success());
    drop(group);
}
