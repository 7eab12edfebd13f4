//! Sends the metrics of a monitor to an OpenTelemetry collector, by OTLP over HTTP in JSON.
//!
//! A thread of its own sends, so that a slow or absent collector delays no test. A bounded queue
//! waits for the collector; what does not fit is dropped.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, channel, sync_channel};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use linerate_core::monitor::HttpUrl;
use linerate_report::metrics::Metrics;

use super::post::post;
use crate::output;

/// Most requests in the queue; the monitor makes one a minute and one for each run.
const MAX_QUEUED: usize = 64;
/// Wait before a request that failed is sent again. It doubles up to the longest.
const PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// Longest wait for the queue to empty when the monitor ends.
const LAST: Duration = Duration::from_secs(5);

/// A connection to a collector: the queue, and the thread that empties it.
pub(super) struct Otlp {
    began_ns: u64,
    host: String,
    /// The queue; `None` once the monitor ends.
    requests: Option<SyncSender<String>>,
    ends: Arc<AtomicBool>,
    ended: Receiver<()>,
}

impl Otlp {
    pub(super) fn new(to: HttpUrl) -> Self {
        let (requests, waiting) = sync_channel::<String>(MAX_QUEUED);
        let (done, ended) = channel();
        let ends = Arc::<AtomicBool>::default();
        let mut collector = Collector {
            to,
            ends: ends.clone(),
            fails: false,
        };
        thread::spawn(move || {
            let _ = waiting
                .iter()
                .try_for_each(|request| collector.send(&request));
            // The monitor may have stopped waiting for this.
            let _ = done.send(());
        });
        let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        Self {
            began_ns: now_ns(),
            host: host.trim_end().to_owned(),
            requests: Some(requests),
            ends,
            ended,
        }
    }

    /// Queues the metrics, unless the queue is full.
    pub(super) fn send(&self, metrics: &Metrics) {
        let resource = [
            ("service.name", "linerate-monitor"),
            ("service.version", env!("CARGO_PKG_VERSION")),
            ("host.name", self.host.as_str()),
        ];
        let request = metrics.otlp(&resource, self.began_ns, now_ns());
        if let Some(requests) = &self.requests {
            let _ = requests.try_send(request);
        }
    }
}

impl Drop for Otlp {
    fn drop(&mut self) {
        self.requests = None;
        self.ends.store(true, Ordering::Release);
        // What was not sent by then is lost with the process.
        let _ = self.ended.recv_timeout(LAST);
    }
}

fn now_ns() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_nanos() as u64)
}

/// The monitor ended before the collector took the request.
struct Ended;

/// The sending thread's state.
struct Collector {
    to: HttpUrl,
    ends: Arc<AtomicBool>,
    /// The last request failed, and the user was told so.
    fails: bool,
}

impl Collector {
    /// Sends a request, again and again while the collector may take it later.
    fn send(&mut self, request: &str) -> Result<(), Ended> {
        let mut pause = PAUSE;
        loop {
            let answered = post(&self.to, request);
            let is_taken = matches!(answered, Ok(200..300));
            if self.fails == is_taken {
                self.fails = !is_taken;
                self.tell(&answered);
            }
            // A request with any other status must not be sent again (OTLP 1.x, "Failures").
            if !matches!(answered, Err(_) | Ok(429 | 502..=504)) {
                return Ok(());
            }
            let until = Instant::now() + pause;
            while Instant::now() < until {
                if self.ends.load(Ordering::Acquire) {
                    return Err(Ended);
                }
                thread::sleep(Duration::from_millis(50));
            }
            pause = (2 * pause).min(LONGEST_PAUSE);
        }
    }

    fn tell(&self, answered: &anyhow::Result<u16>) {
        let to = &self.to.authority;
        output::note(&match answered {
            Ok(200..300) => format!("--otlp {to}: metrics are taken again"),
            Ok(status) => format!("--otlp {to}: answered {status}; the tests go on"),
            Err(error) => format!("--otlp {to}: {error:#}; the tests go on"),
        });
    }
}
