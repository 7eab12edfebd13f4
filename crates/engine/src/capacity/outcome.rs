//! What a run has gathered, and the document of it.

use std::time::Duration;

use linerate_core::capacity::{
    self, CAPACITY_SCHEMA, CapacityDocument, CapacityHalf, CapacityTest, ChurnResult,
    ConnectLatency, HeldCounts, LatencyAt, LoadResult, MemoryReading, PoolResult, RampStep,
};
use linerate_core::record::{Caveat, CaveatKind, Environment, Status};
use linerate_core::stats::{LatencyBuckets, LatencyHistogram, LatencySummary};
use linerate_core::units::{End, Family};
use linerate_sys::proc::counters::ProtocolCounters;

use super::message::{Report, merged};
use crate::client::Client;
use crate::host;

/// The course of opening one pool.
#[derive(Debug, Default)]
pub(super) struct Opening {
    /// Pauses not counted.
    pub(super) seconds: f64,
    steps: Vec<RampStep>,
}

impl Opening {
    /// A step of the course; beyond so many every second one goes.
    pub(super) fn step(&mut self, step: RampStep) {
        if self.steps.len() >= MAX_STEPS {
            let mut odd = false;
            self.steps.retain(|_| {
                odd = !odd;
                odd
            });
        }
        self.steps.push(step);
    }
}

/// What a run has gathered of this end.
#[derive(Debug)]
pub(super) struct Run {
    started_at: String,
    pub(super) before: MemoryReading,
    pub(super) counters: Option<ProtocolCounters>,
    pub(super) tcp: Opening,
    pub(super) udp: Opening,
    pub(super) after_tcp: MemoryReading,
    pub(super) height: MemoryReading,
    pub(super) latency: Vec<LatencyAt>,
    pub(super) hold_seconds: f64,
    pub(super) closing_began: Duration,
    pub(super) close_seconds: Option<f64>,
    pub(super) seconds: f64,
    pub(super) caveats: Vec<Caveat>,
    /// The reports of all workers for TCP in one, and for UDP.
    pub(super) tcp_sums: Report,
    pub(super) udp_sums: Report,
}

impl Run {
    pub(super) fn new(
        started_at: String,
        before: MemoryReading,
        counters: Option<ProtocolCounters>,
    ) -> Self {
        Self {
            started_at,
            before,
            counters,
            tcp: Opening::default(),
            udp: Opening::default(),
            after_tcp: MemoryReading::default(),
            height: MemoryReading::default(),
            latency: Vec::new(),
            hold_seconds: 0.0,
            closing_began: Duration::ZERO,
            close_seconds: None,
            seconds: 0.0,
            caveats: Vec::new(),
            tcp_sums: Report::default(),
            udp_sums: Report::default(),
        }
    }

    /// All of it in one, with what it says of limits.
    pub(super) fn document(
        mut self,
        client: &Client,
        test: CapacityTest,
        mut own: CapacityHalf,
        mut server: Option<CapacityHalf>,
        partial: bool,
    ) -> CapacityDocument {
        own.memory.before = self.before.clone();
        own.memory.height = self.height.clone();
        let mut caveats = std::mem::take(&mut self.caveats);
        let told = server
            .iter_mut()
            .map(|half| std::mem::take(&mut half.caveats));
        caveats.extend(told.flatten().map(|caveat| caveat.told_by(End::Server)));
        let environment = environment(client, server.as_mut());
        caveats.extend(environment.shared_kernel.then(shared_kernel_doubt));
        let (tcp, udp) = self.pools(&test, &own, server.as_ref());
        let mut document = CapacityDocument {
            schema: CAPACITY_SCHEMA.to_owned(),
            started_at: self.started_at.clone(),
            host: client.host().to_owned(),
            peer: client.peer().to_string(),
            family: if client.peer().is_ipv6() {
                Family::Ipv6
            } else {
                Family::Ipv4
            },
            status: if partial {
                Status::Partial
            } else {
                Status::Complete
            },
            tcp,
            udp,
            latency: std::mem::take(&mut self.latency),
            churn: self.churn(&test),
            load: self.load(&test),
            client: own,
            server,
            stopped_by: None,
            next_limit: None,
            limits: Vec::new(),
            search: None,
            seconds: self.seconds,
            close_seconds: self.close_seconds,
            environment,
            caveats,
            seed: test.seed,
            test,
        };
        capacity::annotate(&mut document);
        document
    }

    fn pools(
        &self,
        test: &CapacityTest,
        own: &CapacityHalf,
        server: Option<&CapacityHalf>,
    ) -> (Option<PoolResult>, Option<PoolResult>) {
        let tcp = (test.connections > 0).then(|| {
            let result = self.pool(&own.tcp, test.connections, true);
            with_server_memory(result, server)
        });
        let udp = (test.udp_sockets > 0).then(|| {
            let result = self.pool(&own.udp, test.udp_sockets, false);
            match test.connections {
                0 => with_server_memory(result, server),
                _ => result,
            }
        });
        (tcp, udp)
    }

    fn pool(&self, counts: &HeldCounts, asked: u64, is_tcp: bool) -> PoolResult {
        let (opening, report, from, to) = if is_tcp {
            (&self.tcp, &self.tcp_sums, &self.before, &self.after_tcp)
        } else {
            (&self.udp, &self.udp_sums, &self.after_tcp, &self.height)
        };
        let opened = report.status.opened;
        let each = |bytes: u64| (opened > 0).then(|| bytes as f64 / opened as f64);
        let slab = from.slab_bytes.zip(to.slab_bytes);
        PoolResult {
            asked,
            opened,
            alive: counts.alive,
            lost: counts.lost.iter().map(|lost| lost.count).sum(),
            losses: counts.lost.clone(),
            failures: counts.failures.clone(),
            connect_per_s: (opening.seconds > 0.0).then(|| opened as f64 / opening.seconds),
            connect_seconds: (opening.seconds > 0.0).then_some(opening.seconds),
            ramp: opening.steps.clone(),
            connect_latency_us: connect_latency(report),
            syn_retransmissions: report.asked_again,
            heartbeats_sent: report.beats_sent,
            heartbeats_answered: report.beats_answered,
            heartbeat_latency_us: summary(&report.beat),
            kernel_bytes_each: slab.and_then(|(from, to)| each(to.saturating_sub(from))),
            user_bytes_each: report.grown().and_then(each),
            server_user_bytes_each: None,
        }
    }

    fn churn(&self, test: &CapacityTest) -> Option<ChurnResult> {
        let report = &self.tcp_sums;
        (test.churn_per_s > 0).then(|| ChurnResult {
            asked_per_s: test.churn_per_s,
            closed: report.churn_closed,
            opened: report.churn_opened,
            per_s: if self.hold_seconds > 0.0 {
                report.churn_opened as f64 / self.hold_seconds
            } else {
                0.0
            },
        })
    }

    fn load(&self, test: &CapacityTest) -> Option<LoadResult> {
        let report = &self.tcp_sums;
        test.load.as_ref().map(|_| LoadResult {
            connections: report.load_connections,
            transactions: report.transactions,
            transactions_per_s: match report.load_ns {
                0 => 0.0,
                ns => report.transactions as f64 * 1e9 / ns as f64,
            },
            late: report.late,
            latency_us: summary(&report.load),
            histogram: Some(report.load.clone()),
        })
    }
}

/// Both hosts; the endpoint's is taken out of its account.
fn environment(client: &Client, server: Option<&mut CapacityHalf>) -> Environment {
    let here = host::facts(Some(client.peer().ip()));
    let there = server.and_then(|half| half.facts.take());
    let boot = there.as_ref().map(|there| there.boot_id.as_str());
    let shared_kernel = !here.boot_id.is_empty() && boot == Some(&here.boot_id);
    Environment {
        client: here,
        server: there.map(|facts| *facts),
        shared_kernel,
        lab: None,
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

/// The growth of the endpoint's processes, whatever pool it was for.
fn with_server_memory(mut result: PoolResult, server: Option<&CapacityHalf>) -> PoolResult {
    let grown = server
        .and_then(|half| half.user_bytes.zip(half.user_bytes_before))
        .map(|(after, before)| after.saturating_sub(before));
    result.server_user_bytes_each = grown
        .filter(|_| result.opened > 0)
        .map(|bytes| bytes as f64 / result.opened as f64);
    result
}

fn shared_kernel_doubt() -> Caveat {
    Caveat::new(
        CaveatKind::SharedKernel,
        "both ends run on one kernel: its memory and its limits are for both ends together",
        "run `linerate serve` on another host",
    )
}

const MAX_STEPS: usize = 1_000;
