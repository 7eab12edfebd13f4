//! A run of `capacity` on a session with an endpoint, one round or as many as the search for the
//! limit takes, and its document.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};

use linerate_core::capacity::{
    self, CAPACITY_SCHEMA, CapacityDocument, CapacityHalf, CapacityTest, ChurnResult,
    ConnectLatency, HeldCounts, LoadResult, PoolResult, Search,
};
use linerate_core::record::{Caveat, CaveatKind, Environment, Status};
use linerate_core::session::message::{Refusal, RefusalReason};
use linerate_core::session::operation::CAPACITY;
use linerate_core::stats::{LatencyBuckets, LatencyHistogram, LatencySummary};
use linerate_core::units::End;
use linerate_sys::socket;

use super::message::{Report, merged};
use super::opening::Opening;
use super::round::Round;
use crate::client::Client;
use crate::error::MeasureError;

/// Limits of this end, lower than the host's own.
#[derive(Debug, Clone, Copy, Default)]
pub struct CapacityOptions {
    /// Most descriptors of each worker.
    pub descriptors: Option<u64>,
    /// Most worker processes for TCP, and for UDP.
    pub workers: Option<u64>,
}

/// The present phase of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CapacityPhase {
    /// Both ends start their workers.
    Preparing,
    /// TCP connections are opened.
    Opening,
    /// UDP sockets are opened.
    OpeningUdp,
    /// The latency of an active connection is measured.
    Measuring,
    /// All connections are held; heartbeats check them in turn.
    Holding,
    /// Requests go over some of the connections.
    Loading,
    /// A last heartbeat checks every connection.
    Proving,
    /// All connections are closed.
    Closing,
}

/// The progress of a run, for a progress line.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CapacityLive {
    /// Time since the round began, s.
    pub at_s: f64,
    /// The present phase.
    pub phase: CapacityPhase,
    /// Connections and UDP sockets that are to be opened in this round.
    pub asked: u64,
    /// Connections and UDP sockets that are open.
    pub open: u64,
    /// Connections and UDP sockets that were open and are lost.
    pub lost: u64,
}

/// The outcome of a run: its document, and what ended it early.
#[derive(Debug)]
pub struct CapacityOutcome {
    /// The document; partial if `error` is set.
    pub document: CapacityDocument,
    /// Why the run ended early.
    pub error: Option<MeasureError>,
}

/// Gets the progress; the run ends if it returns false.
pub(super) type Observe<'a> = &'a mut dyn FnMut(&CapacityLive) -> bool;

/// Refuses source addresses that this host does not have.
fn are_local(sources: &[IpAddr]) -> Result<(), MeasureError> {
    let is_elsewhere = |address: &&IpAddr| {
        let bound = socket::udp_socket(SocketAddr::new(**address, 0), None, false);
        bound.is_err_and(|error| error.kind() == ErrorKind::AddrNotAvailable)
    };
    match sources.iter().find(is_elsewhere) {
        Some(address) => Err(MeasureError::NotLocal { address: *address }),
        None => Ok(()),
    }
}

impl Client {
    /// Checks that the endpoint can hold connections.
    ///
    /// # Errors
    /// [`MeasureError::Lacks`] if it is too old for that.
    pub(crate) fn check_holds(&self) -> Result<(), MeasureError> {
        let lack = "holds no connections: its owner allows none (--max-connections 0), or it is \
                    too old";
        self.check_has(CAPACITY, lack)
    }

    /// Opens and holds connections, or searches for the largest number that can be held. `observe`
    /// is called about a hundred times a second; if it returns false, the run is stopped as by
    /// [`crate::Stop::request`].
    ///
    /// # Errors
    /// The run could not begin: the endpoint does not have the operation, or refuses it; this host
    /// cannot start the workers. A run that began always has an outcome.
    pub fn capacity(
        &mut self,
        test: &CapacityTest,
        options: &CapacityOptions,
        observe: Observe<'_>,
    ) -> Result<CapacityOutcome, MeasureError> {
        self.check_holds()?;
        test.check().map_err(|error| {
            self.refused(Refusal { reason: RefusalReason::Test, message: error.to_string() })
        })?;
        are_local(&test.sources)?;
        if test.find_limit {
            self.search_limit(test, options, observe)
        } else {
            Round::prepare(self, test, options, observe).map(Round::go)
        }
    }

    /// Makes rounds until the limit is known, or until all that the owner allows is held. The
    /// document is that of the smallest round that failed, because it shows why; if none failed,
    /// that of the largest.
    fn search_limit(
        &mut self,
        test: &CapacityTest,
        options: &CapacityOptions,
        observe: Observe<'_>,
    ) -> Result<CapacityOutcome, MeasureError> {
        let allowed = self.welcome().limits.connections;
        let most = test.connections.max(test.udp_sockets);
        let mut search = Search::new(most.min(allowed));
        let mut kept: Option<CapacityOutcome> = None;
        while let Some(asked) = search.next_number() {
            let outcome = match Round::prepare(self, &round_of(test, asked), options, observe) {
                Ok(round) => round.go(),
                Err(error) => match &mut kept {
                    // The result of the earlier rounds is kept.
                    Some(found) => {
                        found.error = Some(error);
                        break;
                    }
                    None => return Err(error),
                },
            };
            let held = held(&outcome.document);
            let is_over = outcome.error.is_some();
            if held < asked || is_over || search.found().stops_at.is_none() {
                kept = Some(outcome);
            }
            if is_over {
                break;
            }
            search.handle_round(held);
        }
        let mut outcome = kept.ok_or(MeasureError::Interrupted)?;
        outcome.document.test.find_limit = true;
        outcome.document.search = Some(search.found());
        capacity::annotate(&mut outcome.document);
        Ok(outcome)
    }
}

/// A round of a search: it opens this many, holds them for a moment, and does nothing else.
fn round_of(test: &CapacityTest, asked: u64) -> CapacityTest {
    let (connections, udp_sockets) = match test.connections {
        0 => (0, asked),
        _ => (asked, 0),
    };
    CapacityTest {
        connections,
        udp_sockets,
        churn_per_s: 0,
        load: None,
        latency: false,
        find_limit: false,
        ..test.clone()
    }
}

/// How many connections, or UDP sockets, were alive at the end.
fn held(document: &CapacityDocument) -> u64 {
    let pool = document.tcp.as_ref().or(document.udp.as_ref());
    pool.map_or(0, |pool| pool.alive)
}

// The document of a round: begun with the round, and completed from the reports of both ends.

/// A document with the test and the endpoint, and no results.
pub(super) fn new_document(
    client: &Client,
    test: &CapacityTest,
    started_at: String,
) -> CapacityDocument {
    CapacityDocument {
        schema: CAPACITY_SCHEMA.to_owned(),
        started_at,
        host: client.host().to_owned(),
        peer: client.peer().to_string(),
        family: client.peer().ip().into(),
        status: Status::Partial,
        test: test.clone(),
        seed: test.seed,
        ..CapacityDocument::default()
    }
}

/// The results of the TCP connections, or of the UDP sockets.
pub(super) fn pool_result(
    opening: &Opening,
    report: &Report,
    counts: &HeldCounts,
) -> Option<PoolResult> {
    let opened = report.status.opened;
    let each = |bytes: u64| (opened > 0).then(|| bytes as f64 / opened as f64);
    let seconds = Some(opening.seconds).filter(|seconds| *seconds > 0.0);
    (opening.asked > 0).then(|| PoolResult {
        asked: opening.asked,
        opened,
        alive: counts.alive,
        lost: counts.lost.iter().map(|lost| lost.count).sum(),
        losses: counts.lost.clone(),
        failures: counts.failures.clone(),
        connect_per_s: seconds.map(|seconds| opened as f64 / seconds),
        connect_seconds: seconds,
        ramp: opening.steps.clone(),
        connect_latency_us: connect_latency(report),
        syn_retransmissions: report.asked_again,
        heartbeats_sent: report.beats_sent,
        heartbeats_answered: report.beats_answered,
        heartbeat_latency_us: summary(&report.beat),
        kernel_bytes_each: opening.slab_bytes.and_then(each),
        user_bytes_each: report.grown().and_then(each),
        server_user_bytes_each: None,
    })
}

pub(super) fn churn_result(
    asked_per_s: u64,
    report: &Report,
    hold_seconds: f64,
) -> Option<ChurnResult> {
    (asked_per_s > 0).then(|| ChurnResult {
        asked_per_s,
        closed: report.churn_closed,
        opened: report.churn_opened,
        per_s: if hold_seconds > 0.0 { report.churn_opened as f64 / hold_seconds } else { 0.0 },
    })
}

pub(super) fn load_result(report: &Report) -> LoadResult {
    LoadResult {
        connections: report.load_connections,
        transactions: report.transactions,
        transactions_per_s: match report.load_ns {
            0 => 0.0,
            ns => report.transactions as f64 * 1e9 / ns as f64,
        },
        late: report.late,
        latency_us: summary(&report.load),
        histogram: Some(report.load.clone()),
    }
}

/// Adds the endpoint's half, and the facts of both hosts.
pub(super) fn add_server(
    document: &mut CapacityDocument,
    client: &Client,
    server: Option<CapacityHalf>,
) {
    document.server = server;
    let mut there = None;
    if let Some(half) = &mut document.server {
        let caveats = half.caveats.drain(..).map(|caveat| caveat.told_by(End::Server));
        document.caveats.extend(caveats);
        there = half.facts.take().map(|facts| *facts);
        // The growth of its processes counts for the pool that was tested first.
        let grown = half.user_bytes.zip(half.user_bytes_before);
        if let Some(pool) = document.tcp.as_mut().or(document.udp.as_mut()) {
            pool.server_user_bytes_each = grown
                .filter(|_| pool.opened > 0)
                .map(|(after, before)| after.saturating_sub(before) as f64 / pool.opened as f64);
        }
    }
    document.environment = Environment::new(client.host_facts(), there);
    if document.environment.shared_kernel {
        document.caveats.push(shared_kernel_doubt());
    }
}

fn summary(buckets: &LatencyBuckets) -> Option<LatencySummary> {
    LatencyHistogram::try_from(buckets).ok()?.summary()
}

fn connect_latency(report: &Report) -> Option<ConnectLatency> {
    let all = merged(&report.connect_first, &report.connect_again);
    all.summary().map(|_| ConnectLatency {
        first_try: summary(&report.connect_first),
        retransmitted: summary(&report.connect_again),
        histogram: all.buckets(),
    })
}

fn shared_kernel_doubt() -> Caveat {
    Caveat::new(
        CaveatKind::SharedKernel,
        "both ends run on one kernel: its memory and its limits are for both ends together",
        "run `linerate serve` on another host",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::category::{Categorized, Category};

    #[test]
    fn a_source_address_of_another_host_is_refused() {
        let [own, other] = ["127.0.0.2", "198.18.255.254"].map(|text| text.parse().unwrap());
        are_local(&[own]).unwrap();
        let error = are_local(&[own, other]).unwrap_err();
        assert_eq!(error.category(), Category::Usage);
        assert!(error.to_string().contains("198.18.255.254"), "{error}");
    }
}
