//! An endpoint here or in a process of its own, a client here or in a process of its own, and plain
//! tests to vary.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::{Child, Command, ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use linerate_core::capacity::{CapacityTest, Failure, FailureCause};
use linerate_core::session::message::Limits;
use linerate_core::units::Span;
use linerate_engine::{
    CapacityOptions, CapacityOutcome, Client, Endpoint, ServeOptions, Stop, Target,
};

/// First word of a process that serves.
pub(crate) const ENDPOINT: &str = "test-endpoint";
/// First word of a process that holds connections until it is killed; the endpoint's address
/// follows.
pub(crate) const CLIENT: &str = "test-client";

/// An endpoint of this process that runs until it is dropped.
pub(crate) struct Served {
    pub(crate) address: SocketAddr,
    stop: Stop,
    thread: Option<thread::JoinHandle<()>>,
}

impl Served {
    pub(crate) fn start() -> Self {
        Self::at(Ipv4Addr::LOCALHOST.into())
    }

    pub(crate) fn at(address: IpAddr) -> Self {
        let endpoint = bind(address);
        let address = endpoint.addresses()[0];
        let stop = Stop::new();
        let asked = stop.clone();
        let serve = move || endpoint.serve(&asked, |_| {}).expect("the endpoint goes on");
        Self { address, stop, thread: Some(thread::spawn(serve)) }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stop.request();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
            && !thread::panicking()
        {
            panic!("the endpoint panicked");
        }
    }
}

fn bind(address: IpAddr) -> Endpoint {
    let options = ServeOptions {
        bind: Some(address),
        ..ServeOptions::within(Limits {
            clients: 4,
            streams: 4,
            seconds: 600.0,
            rate_bps: None,
            connections: 100_000,
        })
    };
    Endpoint::bind(&options).expect("a port of the kernel's choice is free")
}

/// A child that is killed when it is dropped.
pub(crate) struct Killed(pub(crate) Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// This program again, in another part; with its first line.
pub(crate) fn start(words: &[&str]) -> (Killed, String) {
    let mut child = Command::new("/proc/self/exe")
        .args(words)
        .stdout(Stdio::piped())
        .spawn()
        .expect("this program can be started again");
    let stdout = child.stdout.take().expect("it is piped");
    let child = Killed(child);
    let mut line = String::new();
    BufReader::new(stdout).read_line(&mut line).expect("it says where it stands");
    (child, line.trim().to_owned())
}

#[allow(clippy::print_stdout, reason = "for the process that started this one")]
pub(crate) fn serve_in_this_process() -> ExitCode {
    let endpoint = bind(Ipv4Addr::LOCALHOST.into());
    println!("{}", endpoint.addresses()[0]);
    match endpoint.serve(&Stop::new(), |_| {}) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

#[allow(clippy::print_stdout, reason = "for the process that started this one")]
pub(crate) fn hold_in_this_process(words: &[String]) -> ExitCode {
    let address = words[1].parse().expect("an address follows");
    let test = CapacityTest { hold: span(120.0), ..test(500, 100) };
    let mut told = false;
    let held =
        client(address, Stop::new()).capacity(&test, &CapacityOptions::default(), &mut |live| {
            if live.open == 600 && !told {
                told = true;
                println!("held");
            }
            true
        });
    match held {
        Ok(_) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

pub(crate) fn client(address: SocketAddr, stop: Stop) -> Client {
    let target =
        Target { connect_timeout: Duration::from_secs(10), ..Target::at("endpoint", address) };
    Client::connect(target, stop).expect("the endpoint answers")
}

/// Runs a test to its end, whatever that is.
pub(crate) fn run(
    address: SocketAddr,
    test: &CapacityTest,
    options: &CapacityOptions,
) -> CapacityOutcome {
    client(address, Stop::new()).capacity(test, options, &mut |_| true).expect("it can be begun")
}

pub(crate) fn test(connections: u64, udp_sockets: u64) -> CapacityTest {
    CapacityTest {
        connections,
        udp_sockets,
        rate_per_s: None,
        hold: span(0.5),
        heartbeat: span(0.25),
        churn_per_s: 0,
        load: None,
        latency: false,
        find_limit: false,
        sources: Vec::new(),
        seed: 7,
    }
}

pub(crate) fn span(seconds: f64) -> Span {
    Span(Duration::from_secs_f64(seconds))
}

pub(crate) fn count_of(failures: &[Failure], cause: FailureCause) -> u64 {
    let mut all = failures.iter();
    all.find(|f| f.cause == cause).map_or(0, |f| f.count)
}

/// All processes that a process has started, by their numbers.
pub(crate) fn children(pid: u32) -> Vec<u32> {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return Vec::new();
    };
    tasks
        .flatten()
        .filter_map(|task| fs::read_to_string(task.path().join("children")).ok())
        .flat_map(|text| {
            let words = text.split_ascii_whitespace();
            words.filter_map(|word| word.parse().ok()).collect::<Vec<u32>>()
        })
        .collect()
}

/// Waits until it holds, for as long as a loaded machine may take.
pub(crate) fn wait_until(what: &str, holds: impl Fn() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < Duration::from_secs(60), "{what}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// Nothing of a run is left: no worker, no connection in any state, no TIME_WAIT.
pub(crate) fn assert_clean(outcome: &CapacityOutcome) {
    assert_eq!(children(std::process::id()), [] as [u32; 0]);
    let document = &outcome.document;
    // This host's own namespace has sockets of others, who may be doing the same.
    if document.peer.starts_with("127.") {
        return;
    }
    let halves = [Some(&document.client), document.server.as_ref()];
    for (is_server, half) in halves.into_iter().enumerate() {
        let Some(half) = half else {
            continue;
        };
        let (before, after) = (&half.memory.before, &half.memory.after);
        let udp_after = match is_server == 1 {
            // The client's are still there when the endpoint has closed its own, on the same host.
            true => before.udp_in_use,
            false => after.udp_in_use,
        };
        for (what, before, after) in [
            ("TCP sockets", before.tcp_in_use, after.tcp_in_use),
            ("TIME_WAIT", before.tcp_time_wait, after.tcp_time_wait),
            ("orphans", before.tcp_orphans, after.tcp_orphans),
            ("UDP sockets", before.udp_in_use, udp_after),
        ] {
            let (before, after) = (before.expect(what), after.expect(what));
            // Of other programs on this host some come and go.
            assert!(after < before + 50, "{what}: {before} before, {after} after");
        }
    }
}
