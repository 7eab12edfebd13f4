//! What a monitor sends to a collector of OpenTelemetry: the metrics of its page, by OTLP over HTTP, in JSON.
//!
//! A thread of its own sends. Whatever the collector does, tests go on: so much waits for it, and what is
//! more is lost.

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

/// Requests that wait for a collector: one a minute, or a run.
const MOST: usize = 64;
/// Until a collector that took none is asked again: the first time, and at most.
const PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// For what waits when the monitor ends.
const LAST: Duration = Duration::from_secs(5);

/// The way to a collector.
pub(super) struct Otlp {
    began_ns: u64,
    host: String,
    /// `None` when the monitor ends.
    requests: Option<SyncSender<String>>,
    ends: Arc<AtomicBool>,
    ended: Receiver<()>,
}

impl Otlp {
    pub(super) fn new(to: HttpUrl) -> Self {
        let (requests, waiting) = sync_channel::<String>(MOST);
        let (done, ended) = channel();
        let ends = Arc::<AtomicBool>::default();
        let mut collector = Collector {
            to,
            ends: ends.clone(),
            fails: false,
        };
        thread::spawn(move || {
            // Whatever waits, as long as it is taken.
            let _ = waiting
                .iter()
                .try_for_each(|request| collector.send(&request));
            // Nobody may wait for it any more.
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

    /// Sends them soon, unless too many wait.
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
        // What is not gone by then is lost with the process.
        let _ = self.ended.recv_timeout(LAST);
    }
}

fn now_ns() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_nanos() as u64)
}

/// The monitor ends, and nobody takes what waits.
struct Ends;

/// The end of the way, in a thread of its own.
struct Collector {
    to: HttpUrl,
    ends: Arc<AtomicBool>,
    /// It was told that nothing is taken there.
    fails: bool,
}

impl Collector {
    /// Sends it, again and again if it may be taken later.
    fn send(&mut self, request: &str) -> Result<(), Ends> {
        let mut pause = PAUSE;
        loop {
            let answered = post(&self.to, request);
            let is_taken = matches!(answered, Ok(200..300));
            if self.fails == is_taken {
                self.fails = !is_taken;
                self.tell(&answered);
            }
            // Any other status says that it will never be taken (OTLP 1.x, "Failures").
            if !matches!(answered, Err(_) | Ok(429 | 502..=504)) {
                return Ok(());
            }
            let until = Instant::now() + pause;
            while Instant::now() < until {
                if self.ends.load(Ordering::Acquire) {
                    return Err(Ends);
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
