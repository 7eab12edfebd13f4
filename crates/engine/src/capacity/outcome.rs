//! The document of a round: begun with the round, and completed from the reports of both ends.

use linerate_core::capacity::{
    CAPACITY_SCHEMA, CapacityDocument, CapacityHalf, CapacityTest, ChurnResult, ConnectLatency,
    HeldCounts, LoadResult, PoolResult,
};
use linerate_core::record::{Caveat, CaveatKind, Environment, Status};
use linerate_core::stats::{LatencyBuckets, LatencyHistogram, LatencySummary};
use linerate_core::units::End;

use super::message::{Report, merged};
use super::opening::Opening;
use crate::client::Client;

/// A document with the test and the endpoint, and no results.
pub(super) fn begun(client: &Client, test: &CapacityTest, started_at: String) -> CapacityDocument {
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
pub(super) fn pool(opening: &Opening, report: &Report, counts: &HeldCounts) -> Option<PoolResult> {
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

pub(super) fn churn(asked_per_s: u64, report: &Report, hold_seconds: f64) -> Option<ChurnResult> {
    (asked_per_s > 0).then(|| ChurnResult {
        asked_per_s,
        closed: report.churn_closed,
        opened: report.churn_opened,
        per_s: if hold_seconds > 0.0 { report.churn_opened as f64 / hold_seconds } else { 0.0 },
    })
}

pub(super) fn load(report: &Report) -> LoadResult {
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
