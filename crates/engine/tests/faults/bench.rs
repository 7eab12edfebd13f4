//! An endpoint in this process, and the check that its clients leave nothing behind.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use linerate_core::plan::{Direction, Extent, Protocol, SocketOptions, StreamTest, Test, Traffic};
use linerate_core::record::Status;
use linerate_core::session::message::Limits;
use linerate_core::units::Span;
use linerate_core::wire::Key;
use linerate_engine::{Client, Endpoint, MeasureError, ServeEvent, ServeOptions, Stop, Target};

/// How long ending may take on a machine that is busy with something else: less than the ten
/// seconds after which an end gives up by itself, or nothing would be shown.
pub(crate) const SOON: Duration = Duration::from_secs(8);
/// For events that must happen, however busy the machine is.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) struct Bench {
    pub(crate) address: SocketAddr,
    stop: Stop,
    thread: Option<JoinHandle<()>>,
    descriptors: usize,
    log: Arc<Mutex<Vec<ServeEvent>>>,
}

pub(crate) fn limits() -> Limits {
    Limits {
        clients: 16,
        streams: 8,
        seconds: 60.0,
        rate_bps: None,
        connections: 100_000,
    }
}

pub(crate) fn options(limits: Limits, key: Option<Key>) -> ServeOptions {
    ServeOptions {
        bind: Some(Ipv4Addr::LOCALHOST.into()),
        key,
        ..ServeOptions::within(limits)
    }
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
        let mut bench = Self {
            address,
            stop,
            thread: Some(thread),
            descriptors: 0,
            log,
        };
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

    /// The next client gets a whole record at once.
    pub(crate) fn assert_serves(&self) {
        let began = Instant::now();
        let mut client = match self.connect(None) {
            // An endpoint with a key is asked by the test that knows it.
            Err(error) if error.to_string().contains("--key-file") => return,
            other => other.expect("the endpoint answers"),
        };
        let outcome = client.run(&stream(100), &mut |_| true).expect("it begins");
        assert!(outcome.error.is_none(), "{:?}", outcome.error);
        assert_eq!(outcome.record.status, Status::Complete);
        assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
    }

    /// Checks that no thread and no descriptor of a client is left.
    pub(crate) fn assert_clean_within(&self, time: Duration, what: &str) {
        let until = Instant::now() + time;
        loop {
            let left = (measuring_threads(), descriptors());
            if left.0.is_empty() && left.1 <= self.descriptors {
                return;
            }
            assert!(
                Instant::now() < until,
                "{what}: threads {:?}, {} descriptors instead of {}",
                left.0,
                left.1,
                self.descriptors
            );
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Ends the endpoint with its sessions; the result is how long that took.
    pub(crate) fn end(mut self) -> Duration {
        let began = Instant::now();
        self.stop.request();
        let thread = self.thread.take().expect("it ends once");
        thread.join().expect("the endpoint does not panic");
        // It leaves a session that does not end in time to itself.
        while !measuring_threads().is_empty() && began.elapsed() < 4 * SOON {
            thread::sleep(Duration::from_millis(5));
        }
        began.elapsed()
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.stop.request();
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(
                ended.is_ok() || thread::panicking(),
                "the endpoint panicked"
            );
        }
    }
}

pub(crate) fn target(address: SocketAddr, key: Option<Key>) -> Target {
    Target {
        key,
        connect_timeout: PATIENCE,
        ..Target::at("bench", address)
    }
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
    let until = Instant::now() + PATIENCE;
    while !measuring_threads().is_empty() && Instant::now() < until {
        thread::sleep(Duration::from_millis(5));
    }
    descriptors()
}
