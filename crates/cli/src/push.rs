//! Sends metrics by OTLP 1 over HTTP, in JSON, to an OpenTelemetry collector or a store of metrics;
//! and has the HTTP client that posts to the user's own servers.
//!
//! A thread of its own sends, so that a slow or absent receiver delays no test. A bounded queue
//! waits for the receiver; what does not fit is dropped.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, channel, sync_channel};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};
use std::{fs, thread};

use linerate_core::monitor::HttpUrl;
use linerate_engine::since_1970_ns;
use linerate_report::metrics::Metrics;
use rustls::crypto::ring;
use ureq::Agent;
use ureq::tls::{Certificate, RootCerts, TlsConfig};

use crate::output;

/// Wait before a request that failed is sent again. It doubles up to the longest.
const PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// Longest wait for the queue to empty when the sender ends.
const LAST: Duration = Duration::from_secs(5);

/// A receiver of metrics: the queue, and the thread that empties it.
pub(crate) struct Push {
    /// The name of what is measured, such as `linerate-monitor`.
    service: &'static str,
    began_ns: u64,
    host: String,
    /// The queue; `None` once the sender ends.
    requests: Option<SyncSender<Vec<u8>>>,
    ends: Arc<AtomicBool>,
    ended: Receiver<()>,
}

impl Push {
    /// Starts the thread. `max_queued` is the most requests that wait for the receiver.
    pub(crate) fn new(to: HttpUrl, service: &'static str, max_queued: usize) -> Self {
        let (requests, waiting) = sync_channel::<Vec<u8>>(max_queued);
        let (done, ended) = channel();
        let ends = Arc::<AtomicBool>::default();
        let mut receiver = PushConnection { to, ends: ends.clone(), fails: false };
        thread::spawn(move || {
            let _ = waiting.iter().try_for_each(|request| receiver.send(&request));
            // The sender may have stopped waiting for this.
            let _ = done.send(());
        });
        let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        Self {
            service,
            began_ns: since_1970_ns(),
            host: host.trim_end().to_owned(),
            requests: Some(requests),
            ends,
            ended,
        }
    }

    /// Queues the metrics as of now, unless the queue is full.
    pub(crate) fn send(&self, metrics: &Metrics) {
        self.send_at(metrics, since_1970_ns());
    }

    /// Queues the metrics as of a time, ns since 1970, unless the queue is full.
    pub(crate) fn send_at(&self, metrics: &Metrics, at_ns: u64) {
        let host = self.host.as_str();
        let resource = [
            ("service.name", self.service),
            ("service.version", env!("CARGO_PKG_VERSION")),
            // Prometheus makes the label `instance` of it.
            ("service.instance.id", host),
            ("host.name", host),
        ];
        let request = metrics.otlp(&resource, self.began_ns, at_ns).into_bytes();
        if let Some(requests) = &self.requests {
            let _ = requests.try_send(request);
        }
    }
}

impl Drop for Push {
    fn drop(&mut self) {
        self.requests = None;
        self.ends.store(true, Ordering::Release);
        // What was not sent by then is lost with the process.
        let _ = self.ended.recv_timeout(LAST);
    }
}

/// The sender ended before the receiver took the request.
struct Ended;

/// The sending thread's state.
struct PushConnection {
    to: HttpUrl,
    ends: Arc<AtomicBool>,
    /// The last request failed, and the user was told so.
    fails: bool,
}

impl PushConnection {
    /// Sends a request, again and again while the receiver may take it later.
    fn send(&mut self, request: &[u8]) -> Result<(), Ended> {
        let mut pause = PAUSE;
        loop {
            let answered = post(&self.to, request);
            let is_taken = matches!(answered, Ok(200..300));
            if self.fails == is_taken {
                self.fails = !is_taken;
                self.tell(&answered);
            }
            if answered.is_ok_and(|status| !may_be_taken_later(status)) {
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
        let to = format!("--otlp {}", self.to.authority);
        output::note(&match answered {
            Ok(200..300) => format!("{to}: takes metrics again"),
            Ok(status) => format!("{to}: answered {status}; the tests go on"),
            Err(error) => format!("{to}: {error:#}; the tests go on"),
        });
    }
}

/// Whether a request that was answered with this status may be sent again. With any other status it
/// must not (OTLP 1.x, "Failures").
fn may_be_taken_later(status: u16) -> bool {
    matches!(status, 429 | 502..=504)
}

// The HTTP client, which posts alarms to a webhook and metrics to a receiver.

/// What posts. It trusts the certificates that this host trusts.
static AGENT: LazyLock<Agent> = LazyLock::new(|| {
    let of_host = rustls_native_certs::load_native_certs().certs;
    let trusted = of_host.iter().map(|one| Certificate::from_der(one).to_owned());
    let tls = TlsConfig::builder()
        .root_certs(RootCerts::from(trusted))
        .unversioned_rustls_crypto_provider(Arc::new(ring::default_provider()))
        .build();
    let config = Agent::config_builder()
        .tls_config(tls)
        .timeout_global(Some(PATIENCE))
        .http_status_as_error(false)
        .max_redirects(0)
        .max_redirects_will_error(false)
        .max_idle_connections(0)
        .proxy(None)
        .user_agent(concat!("linerate/", env!("CARGO_PKG_VERSION")));
    config.build().into()
});

/// Posts `json` and returns the HTTP status of the answer.
///
/// # Errors
/// The server cannot be reached or is not trusted, or does not answer with HTTP.
pub(crate) fn post(to: &HttpUrl, json: &[u8]) -> anyhow::Result<u16> {
    let request = AGENT.post(to.to_string()).header("Content-Type", "application/json");
    Ok(request.send(json)?.status().as_u16())
}

/// Longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(20);
