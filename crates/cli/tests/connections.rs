//! `connections` as a program: other programs' sockets, in namespaces of their own.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use linerate_sys::netns::Pair;
use linerate_testkit::{Need, eventually, made_or_skip, skip};
use serde_json::Value;

use crate::support::{PROGRAM, assert_says, copy_for_everybody, stderr, stdout};

/// How the page of a [`Traffic`] begins.
const ONE_IS_ACTIVE: &str = "2 TCP connections, 1 active: ";

/// A connection over which this process sends all the time, and one over which nothing goes.
struct Traffic {
    pair: Pair,
    listener: TcpListener,
    port: u16,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    idle: [TcpStream; 2],
}

impl Traffic {
    fn start() -> Option<Self> {
        let pair = made_or_skip(Need::Lab, Pair::create())?;
        let listener = pair.b.namespace.run(|| TcpListener::bind((pair.b.ipv4, 0)));
        let listener = listener.unwrap().unwrap();
        let target = listener.local_addr().unwrap();
        let connect = || {
            let client = pair.a.namespace.run(|| TcpStream::connect(target));
            (client.unwrap().unwrap(), listener.accept().unwrap().0)
        };
        let (client, idle) = connect();
        let idle = [client, idle];
        let (mut from, mut to) = connect();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let sender = move || {
            while !stopped.load(Ordering::Relaxed) && from.write_all(&[7; 16_384]).is_ok() {}
        };
        let receiver = move || while to.read(&mut [0; 65_536]).is_ok_and(|length| length > 0) {};
        Some(Self {
            port: target.port(),
            stop,
            threads: vec![thread::spawn(sender), thread::spawn(receiver)],
            idle,
            listener,
            pair,
        })
    }

    /// In the sender's namespace.
    fn run(&self, arguments: &[&str]) -> Output {
        let mut command = self.pair.a.namespace.command(PROGRAM);
        let command = command.arg("connections").args(arguments);
        command.stdin(Stdio::null()).output().unwrap()
    }

    fn json(&self, arguments: &[&str]) -> Value {
        let output = self.run(&[arguments, &["--json"]].concat());
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// The document of an interval in which this process was given a CPU to send.
    fn active(&self, arguments: &[&str]) -> Value {
        let mut document = Value::Null;
        eventually("it sends while it is watched", || {
            document = self.json(arguments);
            document["connections"][0]["throughput_bps"].as_f64() > Some(0.0)
        });
        document
    }
}

impl Drop for Traffic {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for one in self.threads.drain(..) {
            let _ = one.join();
        }
    }
}

#[test]
fn a_program_that_sends_has_a_rate_a_bottleneck_and_a_name() {
    let Some(traffic) = Traffic::start() else {
        return;
    };
    let document = traffic.active(&[]);
    assert_eq!(document["schema"], "linerate.connections/1");
    let all = document["connections"].as_array().unwrap();
    assert_eq!(all.len(), 2, "{document:#}");
    let (busy, idle) = (&all[0], &all[1]);
    assert_eq!(busy["process"]["pid"], std::process::id());
    assert_eq!(busy["direction"], "up");
    assert!(busy["verdict"]["cause"].is_string(), "{busy:#}");
    assert!(busy["tcp"]["rtt_min_us"].as_u64() > Some(0), "{busy:#}");
    assert_eq!(idle["local"], traffic.idle[0].local_addr().unwrap().to_string());
    assert_eq!((&idle["bytes_sent"], &idle["verdict"]), (&0.into(), &Value::Null));

    eventually("a page of both", || {
        let page = stdout(&traffic.run(&["--sort", "peer"]));
        assert!(page.lines().any(|line| line.ends_with("idle")), "{page}");
        page.starts_with(ONE_IS_ACTIVE)
    });
    let by_process = stdout(&traffic.run(&["--by", "process"]));
    let name = fs::read_to_string("/proc/self/comm").unwrap();
    assert!(by_process.contains(name.trim_end()), "{by_process}");
}

#[test]
fn what_is_not_asked_for_is_not_shown() {
    let Some(traffic) = Traffic::start() else {
        return;
    };
    let idle = traffic.idle[0].local_addr().unwrap();
    let own = idle.port().to_string();
    let port = traffic.port.to_string();
    let pid = std::process::id().to_string();
    for (arguments, number) in [
        (vec!["--port", &own], 1),
        (vec!["--port", &port, "--process", &pid], 2),
        (vec!["--peer", "198.18.0.0/24", "--state", "established"], 2),
    ] {
        let document = traffic.json(&[&arguments[..], &["--interval", "100ms"]].concat());
        let all = document["connections"].as_array().unwrap();
        assert_eq!(all.len(), number, "{arguments:?}: {document:#}");
    }
    for (arguments, words) in [
        (vec!["--port", "1"], "no TCP connection with port 1"),
        (vec!["--peer", "203.0.113.9"], "no TCP connection to 203.0.113.9"),
        (vec!["--process", "no such program"], "no process has that name"),
        (vec!["--container", "4194305"], "--container 4194305: no process has that number"),
        (vec!["--netns", "nowhere"], "no such network namespace"),
        (vec!["--netns", "/proc/version"], "not a network namespace"),
        (vec!["--interval", "1ms"], "it must be 100ms to 1h"),
    ] {
        let output = traffic.run(&arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert_says(&output, words);
        assert_eq!(stderr(&output).lines().count(), 1, "{}", stderr(&output));
    }
}

#[test]
fn another_namespace_is_looked_into_from_here() {
    let Some(traffic) = Traffic::start() else {
        return;
    };
    use std::os::fd::{AsFd, AsRawFd};
    let file = traffic.pair.b.namespace.as_fd().as_raw_fd();
    let path = format!("/proc/{}/fd/{file}", std::process::id());
    let document = traffic.active(&["--netns", &path, "--interval", "100ms"]);
    let all = document["connections"].as_array().unwrap();
    assert_eq!((all.len(), &all[0]["direction"]), (2, &"down".into()));
    assert_eq!(document["source"]["namespace"], path);
}

#[test]
fn a_connection_that_ends_meanwhile_is_there_and_marked() {
    let Some(traffic) = Traffic::start() else {
        return;
    };
    let target = traffic.idle[0].peer_addr().unwrap();
    eventually("one ends while it is watched", || {
        let mut command = traffic.pair.a.namespace.command(PROGRAM);
        command.args(["connections", "--json", "--interval", "1s"]);
        let child = command.stdout(Stdio::piped()).spawn().unwrap();
        // Read while it is written: a pipe holds less than a line for each connection.
        let watched = thread::spawn(move || child.wait_with_output().unwrap());
        while !watched.is_finished() {
            let stream = traffic.pair.a.namespace.run(|| TcpStream::connect(target));
            drop((stream.unwrap().unwrap(), traffic.listener.accept().unwrap()));
            // Some hundred are enough to be explained.
            thread::sleep(Duration::from_millis(10));
        }
        let output = watched.join().unwrap();
        let document: Value = serde_json::from_slice(&output.stdout).unwrap();
        let all = document["connections"].as_array().unwrap();
        all.iter().any(|one| one["ended"] == true)
    });
}

#[test]
fn listeners_show_who_waits_and_whose_limit_it_is() {
    let Some(pair) = made_or_skip(Need::Lab, Pair::create()) else {
        return;
    };
    let listen = || {
        let options = linerate_sys::socket::ListenOptions {
            backlog: 5,
            mptcp: linerate_sys::socket::Mptcp::Off,
        };
        linerate_sys::socket::listen((pair.b.ipv4, 0).into(), options)
    };
    let listener = pair.b.namespace.run(listen).unwrap().unwrap();
    let target = listener.local_addr().unwrap();
    let connect = || pair.a.namespace.run(|| TcpStream::connect(target)).unwrap();
    let _waiting: Vec<TcpStream> = (0..3).map(|_| connect().unwrap()).collect();
    let run = |arguments: &[&str]| {
        let mut command = pair.b.namespace.command(PROGRAM);
        command.args(["connections", "--listen"]).args(arguments);
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        stdout(&output)
    };
    let document: Value = serde_json::from_str(&run(&["--json"])).unwrap();
    let one = &document["listeners"][0];
    assert_eq!(one["local"], target.to_string());
    assert_eq!((&one["waiting"], &one["limit"]), (&3.into(), &5.into()));
    assert_eq!(one["limit_by"], "program");
    assert_eq!(one["process"]["pid"], std::process::id());
    let page = run(&[]);
    let title = "1 listening TCP socket, 3 connections to be accepted";
    assert!(page.starts_with(title), "{page}");
}

#[test]
fn without_privilege_the_figures_are_there_and_names_of_others_are_said_to_be_missing() {
    let Some(traffic) = Traffic::start() else {
        return;
    };
    // Nobody may not run what is in root's directory.
    let directory = tempfile::tempdir_in("/tmp").unwrap();
    let program = copy_for_everybody(directory.path());
    let run = || {
        let mut command: Command = traffic.pair.a.namespace.command("setpriv");
        command.args("--reuid=65534 --regid=65534 --clear-groups --bounding-set=-all".split(' '));
        command.arg(&program).args(["connections", "-v"]).output()
    };
    match run() {
        Ok(output) if !stderr(&output).starts_with("setpriv:") => {}
        other => return skip(Need::Setpriv, format_args!("{other:?}")),
    }
    eventually("a page of both", || {
        let output = run().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let page = stdout(&output);
        assert_eq!(page.matches("run as root").count(), 1, "{page}");
        page.starts_with(ONE_IS_ACTIVE)
    });
}
