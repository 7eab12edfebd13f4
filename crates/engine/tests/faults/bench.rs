//! An endpoint in this process, and the check that its clients leave nothing behind.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use linerate_core::plan::{Direction, Extent, Protocol, SocketOptions, StreamTest, Test, Traffic};
use linerate_core::record::Status;
use linerate_core::session::message::Limits;
use linerate_core::units::Span;
use linerate_core::wire::Key;
use linerate_engine::{Client, Endpoint, MeasureError, ServeEvent, ServeOptions, Stop, Target};
use linerate_testkit::{PATIENCE, eventually};

pub(crate) struct Bench {
    pub(crate) address: SocketAddr,
    stop: Stop,
    thread: Option<JoinHandle<()>>,
    descriptors: usize,
    log: Arc<Mutex<Vec<ServeEvent>>>,
}

pub(crate) fn limits() -> Limits {
    Limits { clients: 16, streams: 8, seconds: 60.0, rate_bps: None, connections: 100_000 }
}

pub(crate) fn options(limits: Limits, key: Option<Key>) -> ServeOptions {
    ServeOptions { bind: Some(Ipv4Addr::LOCALHOST.into()), key, ..ServeOptions::within(limits) }
}

impl Bench {
    pub(crate) fn start() -> Self {
        Self::with(limits(), None)
    }

    pub(crate) fn with(limits: Limits, key: Option<Key>) -> Self {
        Self::serving(&options(limits, key))
    }

    pub(crate) fn serving(options: &ServeOptions) -> Self {
        let endpoint = Endpoint::bind(options).expect("the address has free ports");
        let address = endpoint.addresses()[0];
        let stop = Stop::new();
        let log = Arc::<Mutex<Vec<ServeEvent>>>::default();
        let thread = {
            let (stop, log) = (stop.clone(), Arc::clone(&log));
            let note = move |event| log.lock().unwrap().push(event);
            thread::spawn(move || endpoint.serve(&stop, note).expect("it serves to its end"))
        };
        let mut bench = Self { address, stop, thread: Some(thread), descriptors: 0, log };
        // Whatever is made at the first client, and kept, is there before anything is counted.
        bench.assert_serves();
        bench.descriptors = settled_descriptors();
        bench
    }

    /// The events in the owner's log so far.
    pub(crate) fn log(&self) -> Vec<ServeEvent> {
        self.log.lock().unwrap().clone()
    }

    pub(crate) fn connect(&self, key: Option<Key>) -> Result<Client, MeasureError> {
        Client::connect(target(self.address, key), Stop::new())
    }

    /// The next client gets a whole record.
    pub(crate) fn assert_serves(&self) {
        let mut client = match self.connect(None) {
            // An endpoint with a key is asked by the test that knows it.
            Err(error) if error.to_string().contains("--key-file") => return,
            other => other.expect("the endpoint answers"),
        };
        let outcome = client.run(&stream(100), &mut |_| true).expect("it begins");
        assert!(outcome.error.is_none(), "{:?}", outcome.error);
        assert_eq!(outcome.record.status, Status::Complete);
    }

    /// Checks that no thread and no descriptor of a client stays.
    pub(crate) fn assert_clean(&self, what: &str) {
        eventually(&format!("{what}: no thread and no descriptor is left"), || {
            measuring_threads().is_empty() && descriptors() <= self.descriptors
        });
    }

    /// Checks that the sessions so far ended because the endpoint saw their clients go, and not
    /// after it had waited for them.
    pub(crate) fn assert_waited_for_nobody(&self) {
        let log = self.log();
        assert!(!format!("{log:?}").contains("timed out"), "{log:?}");
    }

    /// Ends the endpoint with its sessions; the result is its log.
    pub(crate) fn end(mut self) -> Vec<ServeEvent> {
        self.stop.request();
        let thread = self.thread.take().expect("it ends once");
        thread.join().expect("the endpoint does not panic");
        // It leaves a session that does not end in time to itself.
        eventually("the sessions end", || measuring_threads().is_empty());
        self.log()
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.stop.request();
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(ended.is_ok() || thread::panicking(), "the endpoint panicked");
        }
    }
}

pub(crate) fn target(address: SocketAddr, key: Option<Key>) -> Target {
    Target { key, connect_timeout: PATIENCE, ..Target::at("bench", address) }
}

/// A TCP stream of this many milliseconds.
pub(crate) fn stream(milliseconds: u64) -> Test {
    Test {
        traffic: Traffic::Stream(StreamTest::new(16_384)),
        protocol: Protocol::Tcp,
        direction: Direction::Up,
        streams: 2,
        extent: Extent::Time(Span(Duration::from_millis(milliseconds))),
        warm_up: Span(Duration::ZERO),
        interval: Span(Duration::from_millis(100)),
        options: SocketOptions::default(),
        seed: 1,
    }
}

/// Threads of sessions and of their tests, by name.
pub(crate) fn measuring_threads() -> Vec<String> {
    let tasks = fs::read_dir("/proc/self/task").expect("Linux has /proc");
    tasks
        // A thread may end between the listing and the look at it.
        .filter_map(|task| fs::read_to_string(task.ok()?.path().join("comm")).ok())
        .map(|name| name.trim().to_owned())
        .filter(|name| name == "session" || name == "sampler" || name.starts_with("flow-"))
        .collect()
}

fn descriptors() -> usize {
    let open = fs::read_dir("/proc/self/fd").expect("Linux has /proc");
    open.count()
}

fn settled_descriptors() -> usize {
    eventually("the first client's threads end", || measuring_threads().is_empty());
    descriptors()
}
