//! A trace of the path to a client, at its request: to the address that its control connection
//! comes from, and to no other.

use std::net::IpAddr;
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};
use std::thread;
use std::time::Duration;

use linerate_core::session::message::{Limits, RefusalReason};
use linerate_core::trace::{LONGEST_REVERSE, TraceDocument, TraceRequest};

use super::budget::Claim;
use super::session::Denial;
use crate::clock::now;
use crate::stop::Stop;
use crate::trace::{TraceError, TraceOptions, trace};
use crate::words;

/// Seeds are below this, as all counts on the wire are.
const SEEDS: u64 = 1 << 53;

/// A trace that runs in a thread of its own, so that its session is not blocked. Dropping it ends
/// the trace soon.
pub(super) struct Tracing {
    stop: Stop,
    until: Duration,
    outcome: Receiver<Result<TraceDocument, TraceError>>,
}

impl Tracing {
    /// Starts a trace to `client` from `local`, the address that the client has connected to,
    /// within the owner's limits. `thread` is its claim, until it has ended.
    pub(super) fn start(
        request: &TraceRequest,
        (local, client): (IpAddr, IpAddr),
        limits: &Limits,
        thread: Claim,
    ) -> Result<Self, Denial> {
        let config = request
            .config(client, limits.rate_bps)
            .map_err(|error| (RefusalReason::Limit, error.to_string()))?;
        let options = TraceOptions {
            source: Some(local),
            names: false,
            seed: seed().map_err(|error| (RefusalReason::Test, error))?,
            ..TraceOptions::new(client.to_string(), config)
        };
        let stop = Stop::new();
        let (sender, outcome) = sync_channel(1);
        let own = stop.clone();
        let started = thread::Builder::new().name("trace".into()).spawn(move || {
            let _thread = thread;
            // The session may be gone.
            let _ = sender.send(trace(&options, &own));
        });
        started.map_err(|error| {
            let message = format!("the endpoint has no thread for a trace: {error}");
            (RefusalReason::Test, message)
        })?;
        let longest = Duration::from_nanos(LONGEST_REVERSE.0);
        let allowed = Duration::try_from_secs_f64(limits.seconds).unwrap_or(longest);
        Ok(Self { stop, until: now() + longest.min(allowed), outcome })
    }

    /// The outcome, once the trace is over. At its time limit the trace ends with what it has.
    pub(super) fn look(&self) -> Option<Result<TraceDocument, Denial>> {
        if now() >= self.until {
            self.stop.request();
        }
        match self.outcome.try_recv() {
            Ok(Ok(document)) => Some(Ok(document)),
            Ok(Err(error)) => {
                let message = format!("the endpoint's host cannot trace: {}", words::chain(&error));
                Some(Err((RefusalReason::Test, message)))
            }
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => {
                Some(Err((RefusalReason::Test, "the endpoint's trace failed".into())))
            }
        }
    }
}

impl Drop for Tracing {
    fn drop(&mut self) {
        self.stop.request();
    }
}

fn seed() -> Result<u64, String> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes)
        .map_err(|error| format!("the endpoint has no randomness: {error}"))?;
    Ok(u64::from_ne_bytes(bytes) % SEEDS)
}
