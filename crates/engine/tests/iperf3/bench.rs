//! An endpoint, what it says, and the real iperf3 where there is one.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use linerate_core::record::Record;
use linerate_core::session::message::Limits;
use linerate_engine::{Endpoint, Iperf3Access, ServeEvent, ServeOptions, Stop};
use linerate_testkit::{Need, PATIENCE as LONG, skip};
use serde_json::Value;

pub(crate) const LIMITS: Limits =
    Limits { connections: 0, clients: 2000, streams: 256, seconds: 60.0, rate_bps: None };

/// An endpoint that runs until it is dropped.
pub(crate) struct Bench {
    pub(crate) address: SocketAddr,
    events: Arc<Mutex<Vec<ServeEvent>>>,
    stop: Stop,
    thread: Option<thread::JoinHandle<()>>,
}

impl Bench {
    pub(crate) fn start() -> Self {
        Self::with(Ipv4Addr::LOCALHOST.into(), LIMITS)
    }

    pub(crate) fn with(bind: IpAddr, limits: Limits) -> Self {
        Self::with_access(bind, limits, None)
    }

    pub(crate) fn with_access(
        bind: IpAddr,
        limits: Limits,
        iperf3: Option<Arc<Iperf3Access>>,
    ) -> Self {
        let options = ServeOptions { bind: Some(bind), iperf3, ..ServeOptions::within(limits) };
        let endpoint = Endpoint::bind(&options).unwrap();
        let address = endpoint.addresses()[0];
        let (stop, events) = (Stop::new(), Arc::<Mutex<Vec<ServeEvent>>>::default());
        let thread = {
            let (stop, events) = (stop.clone(), Arc::clone(&events));
            let log = move |event| events.lock().unwrap().push(event);
            thread::spawn(move || endpoint.serve(&stop, log).unwrap())
        };
        Self { address, events, stop, thread: Some(thread) }
    }

    /// The records that it has left, when there are `count` of them.
    pub(crate) fn records(&self, count: usize) -> Vec<Record> {
        let until = Instant::now() + LONG;
        loop {
            let records: Vec<Record> = self
                .events
                .lock()
                .unwrap()
                .iter()
                .filter_map(|event| match event {
                    ServeEvent::Served { record, .. } => Some((**record).clone()),
                    _ => None,
                })
                .collect();
            if records.len() >= count {
                return records;
            }
            assert!(Instant::now() < until, "{} of {count} records", records.len());
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits until it has refused something for a reason with these words in it.
    pub(crate) fn assert_says(&self, words: &str) {
        let until = Instant::now() + LONG;
        loop {
            let events = self.events.lock().unwrap().clone();
            let said = events.iter().any(|event| match event {
                ServeEvent::Refused { reason, .. } => reason.contains(words),
                ServeEvent::Disconnected { reason, .. } => {
                    reason.as_ref().is_some_and(|reason| reason.contains(words))
                }
                _ => false,
            });
            if said {
                return;
            }
            assert!(Instant::now() < until, "no {words:?} in {events:?}");
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// A connection with these bytes sent.
    pub(crate) fn say(&self, bytes: &[u8]) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        stream.write_all(bytes).unwrap();
        stream
    }

    /// Runs a stock client against it, and answers what it prints as JSON.
    pub(crate) fn client(&self, arguments: &str) -> Value {
        let child = spawn_client(self.address, arguments);
        finished(child, arguments)
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.stop.request();
        if let Some(thread) = self.thread.take() {
            // Its panic has been printed.
            let _ = thread.join();
        }
    }
}

/// Whether the real iperf3 is here; says so if not.
pub(crate) fn is_installed() -> bool {
    let found = Command::new("iperf3").arg("--version").output().is_ok();
    if !found {
        skip(Need::Iperf3, "needs iperf3: apt-get install iperf3");
    }
    found
}

pub(crate) fn spawn_client(address: SocketAddr, arguments: &str) -> std::process::Child {
    spawn_client_with(address, arguments, &[])
}

pub(crate) fn spawn_client_with(
    address: SocketAddr,
    arguments: &str,
    environment: &[(&str, &str)],
) -> std::process::Child {
    let (host, port) = (address.ip().to_string(), address.port().to_string());
    Command::new("iperf3")
        .args(["-J", "-c", &host, "-p", &port])
        .args(arguments.split_whitespace())
        .envs(environment.iter().copied())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .unwrap()
}

/// What a client has printed when it ended; one that hangs is ended.
pub(crate) fn finished(mut child: std::process::Child, what: &str) -> Value {
    let mut stdout = child.stdout.take().unwrap();
    let reader = thread::spawn(move || {
        let mut text = String::new();
        stdout.read_to_string(&mut text).unwrap();
        text
    });
    let until = Instant::now() + LONG;
    while child.try_wait().unwrap().is_none() {
        if Instant::now() > until {
            child.kill().unwrap();
            panic!("iperf3 {what} hangs");
        }
        thread::sleep(Duration::from_millis(5));
    }
    let text = reader.join().unwrap();
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("iperf3 {what}: {error}: {text}"))
}

/// A figure of a client's JSON.
pub(crate) fn figure(json: &Value, path: &str) -> f64 {
    let value = json.pointer(path).and_then(Value::as_f64);
    value.unwrap_or_else(|| panic!("no {path} in {json}"))
}

pub(crate) fn assert_within_1_percent(a: f64, b: f64, what: &str) {
    assert!((a - b).abs() <= 0.01 * a.max(b), "{what}: {a} and {b}");
}
