//! The figures of a mix's document, computed from its members.

use std::collections::BTreeMap;

use super::document::{
    CallQuality, ClassLatency, LOAD_SCHEMA, LoadDocument, LoadMember, LoadOneWay, LoadTotal, Loss,
    WayDelay, mos, rating,
};
use super::mix::{Member, Mix};
use crate::one_way::{Clock, Probe};
use crate::plan::{Direction, Protocol, Workload};
use crate::qoo::outcomes;
use crate::record::{Caveat, CaveatKind, FlowRecord, Leg, Record, Status};
use crate::stats::LatencySummary;
use crate::units::digits;

/// What a column or a finding of an experiment can be of, each in the unit that its name says; of
/// calls the worst direction.
pub(crate) const LOAD_FIGURES: &[&str] = &[
    "up_throughput_bps",
    "down_throughput_bps",
    "up_fairness",
    "down_fairness",
    "idle_latency_us",
    "loaded_latency_us",
    "added_latency_us",
    "added_up_us",
    "added_down_us",
    "start_skew_us",
    "r",
    "mos",
];

/// A load must add at least this before the queue is attributed to a direction, µs.
const MIN_QUEUE_US: f64 = 1_000.0;
/// An idle latency is doubtful if it is so many times the path's minimum, and so much above it, µs.
const BUSY_TIMES: f64 = 2.0;
const BUSY_US: f64 = 5_000.0;
/// Speech in a packet, ms.
const PACKET_MS: f64 = 20.0;

impl LoadDocument {
    /// The document of a mix whose members ran.
    pub fn new(mix: &Mix, seed: u64, members: Vec<LoadMember>) -> Self {
        let hosts = hosts(&members);
        let clocks: Vec<_> =
            hosts.iter().map(|(host, _)| LoadOneWay::clock(&members, host)).collect();
        let clock_of = |member: &LoadMember| {
            let mut names = hosts.iter().map(|(host, _)| host);
            clocks[names.position(|host| *host == member.record.host)?].as_ref()
        };
        let joined =
            |of: fn(&(String, String)) -> &str| hosts.iter().map(of).collect::<Vec<_>>().join(",");
        let first = members.first().map(|member| &member.record);
        let longest = members.iter().map(|member| member.record.seconds);
        let mut document = Self {
            schema: LOAD_SCHEMA.to_owned(),
            status: Status::new(members.iter().all(LoadMember::is_complete)),
            started_at: first.map_or_else(String::new, |first| first.started_at.clone()),
            host: joined(|(host, _)| host),
            peer: joined(|(_, peer)| peer),
            mix: mix.name.clone(),
            title: mix.title.clone(),
            seconds: longest.fold(0.0, f64::max),
            idle_seconds: mix.idle.as_secs_f64(),
            latency: (members.iter())
                .filter_map(|member| member.latency(clock_of(member)))
                .collect(),
            one_way: match &clocks[..] {
                [Some(clock)] => LoadOneWay::new(clock, &members),
                // Each endpoint has a clock and a way of its own.
                _ => None,
            },
            environment: first.map(|first| first.environment.clone()).unwrap_or_default(),
            seed,
            members,
            ..Self::default()
        };
        document.sum_up(mix);
        document
    }

    /// Fills in the figures of all members together.
    fn sum_up(&mut self, mix: &Mix) {
        self.up = self.total(Direction::Up);
        self.down = self.total(Direction::Down);
        let latency = |of: fn(&ClassLatency) -> Option<LatencySummary>| {
            mean(self.latency.iter().filter_map(of).map(|class| class.mean))
        };
        let idle = latency(|class| class.idle_us);
        self.loaded_latency_us = latency(|class| class.loaded_us);
        self.idle_latency_us = idle;
        self.caveats.extend(self.busy_before());
        self.calls = calls(mix, self);
        let totals = [self.up, self.down].into_iter().flatten();
        let slower_bps = totals.map(|total| total.throughput_bps).reduce(f64::min);
        for class in &mut self.latency {
            let Some(loaded) = &class.loaded_us else { continue };
            let lost = class.failed.filter(|_| class.protocol == Protocol::Udp);
            let sent = |lost: u64| lost.saturating_add(loaded.count) as f64;
            let loss_percent = lost.map(|lost| 100.0 * lost as f64 / sent(lost));
            class.outcomes = outcomes(loaded, loss_percent, slower_bps);
        }
        self.start_skew_us = self.spread_us(|flow| flow.first_sent_us);
        self.arrival_skew_us = self.spread_us(|flow| flow.first_received_us);
    }

    /// The probes waited before the load began: what the load adds is then understated.
    pub(super) fn busy_before(&self) -> Option<Caveat> {
        let idle_us = self.idle_latency_us?;
        let probes = self.latency.iter().filter_map(|class| class.idle_us);
        let legs = self.members.iter().flat_map(|member| &member.record.legs);
        let streams = legs.filter_map(|leg| Some(f64::from(leg.tcp_sender()?.rtt_min_us?)));
        let min_us = probes.map(|idle| idle.min).chain(streams).reduce(f64::min)?;
        let is_high = idle_us > BUSY_TIMES * min_us && idle_us > min_us + BUSY_US;
        let message = format!(
            "the idle latency of {} ms is {} times the path's minimum of {} ms: the path \
             or a host was busy before the load began, and what the load adds is understated",
            digits(idle_us / 1e3),
            digits(idle_us / min_us),
            digits(min_us / 1e3)
        );
        let remedy = "run it again while the path and both hosts do nothing else";
        is_high.then(|| Caveat::new(CaveatKind::BusyHost, message, remedy))
    }

    /// From the first to the last of a moment of all streams that were to begin at once.
    fn spread_us(&self, moment_us: fn(&FlowRecord) -> Option<f64>) -> Option<f64> {
        let at_once = |member: &&LoadMember| member.is_stream() && member.start_s <= 0.0;
        let members = self.members.iter().filter(at_once);
        let moments = members.flat_map(|member| member.record.flows.iter().filter_map(moment_us));
        let ends = moments.map(|moment| (moment, moment));
        let (first, last) = ends.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))?;
        Some(last - first)
    }

    /// The figures for an experiment: those of `LOAD_FIGURES` that are known.
    pub fn figures(&self) -> BTreeMap<String, f64> {
        let rate = |total: Option<LoadTotal>| total.map(|total| total.throughput_bps);
        let fairness = |total: Option<LoadTotal>| total.and_then(|total| total.fairness);
        let added = self.loaded_latency_us.zip(self.idle_latency_us);
        let worst = |of: fn(&CallQuality) -> f64| self.calls.iter().map(of).reduce(f64::min);
        let values = [
            rate(self.up),
            rate(self.down),
            fairness(self.up),
            fairness(self.down),
            self.idle_latency_us,
            self.loaded_latency_us,
            added.map(|(loaded, idle)| loaded - idle),
            self.one_way.as_ref().and_then(|ways| ways.up.added_us),
            self.one_way.as_ref().and_then(|ways| ways.down.added_us),
            self.start_skew_us,
            worst(|call| call.r),
            worst(|call| call.mos),
        ];
        let named = LOAD_FIGURES.iter().zip(values);
        named.filter_map(|(name, value)| Some(((*name).to_owned(), value?))).collect()
    }

    /// The stream with the highest throughput, and its member.
    pub fn busiest(&self) -> Option<(&LoadMember, &Leg)> {
        let rate = |leg: &Leg| leg.throughput_bps.unwrap_or(0.0);
        let legs = self.members.iter().flat_map(LoadMember::streams);
        legs.max_by(|(_, a), (_, b)| rate(a).total_cmp(&rate(b)))
    }

    fn total(&self, direction: Direction) -> Option<LoadTotal> {
        let legs = self.members.iter().flat_map(LoadMember::streams);
        let own = legs.filter(|(_, leg)| leg.direction == direction);
        // A member that ran for a part of the time counts for that part.
        let rates = own.filter_map(|(member, leg)| {
            Some(leg.throughput_bps? * member.record.seconds / self.seconds)
        });
        let (mut flows, mut tcp) = (0, Vec::new());
        let streams = self.members.iter().filter(|member| member.is_stream());
        for record in streams.map(|member| &member.record) {
            for flow in record.flows.iter().filter(|flow| flow.direction == direction) {
                flows += 1;
                tcp.extend((record.protocol != Protocol::Udp).then_some(flow.throughput_bps));
            }
        }
        (flows > 0).then(|| LoadTotal {
            throughput_bps: rates.sum(),
            flows,
            fairness: fairness(&tcp),
        })
    }
}

impl LoadMember {
    /// A member with the record of its run.
    pub fn new(member: &Member, idle_latency_us: Option<LatencySummary>, record: Record) -> Self {
        let start_s = member.start.as_secs_f64();
        // At this end.
        let begun = |flow: &FlowRecord| match flow.direction {
            Direction::Down => flow.first_received_us,
            Direction::Up | Direction::Both => flow.first_sent_us,
        };
        let first_us = record.flows.iter().filter_map(begun).reduce(f64::min);
        Self {
            name: member.name.clone(),
            probe: member.probe,
            codec: member.codec,
            ecn: member.ecn,
            start_s,
            started_s: first_us.map(|us| start_s + us / 1e6),
            idle_latency_us,
            idle_probes: Vec::new(),
            probes: Vec::new(),
            record,
        }
    }

    fn is_complete(&self) -> bool {
        self.record.status == Status::Complete
    }

    fn is_stream(&self) -> bool {
        self.record.workload == Workload::Stream
    }

    fn streams(&self) -> impl Iterator<Item = (&Self, &Leg)> {
        let legs = self.record.legs.iter().filter(|_| self.is_stream());
        legs.map(move |leg| (self, leg))
    }

    fn latency(&self, clock: Option<&Clock>) -> Option<ClassLatency> {
        let ways = clock.and_then(|clock| clock.delays(&self.probes));
        self.probe.then(|| ClassLatency {
            member: self.name.clone(),
            dscp: self.record.plan.options.dscp.unwrap_or_default(),
            protocol: self.record.protocol,
            idle_us: self.idle_latency_us,
            loaded_us: self.record.latency_us,
            failed: self.record.failed,
            loaded_up_us: ways.map(|[up, _]| up),
            loaded_down_us: ways.map(|[_, down]| down),
            outcomes: Vec::new(),
        })
    }
}

impl LoadOneWay {
    /// Of the probes of all members with an endpoint: they have the same two clocks, and those
    /// before the load saw the path without a queue.
    fn clock(members: &[LoadMember], host: &str) -> Option<Clock> {
        let there = members.iter().filter(|member| member.record.host == host);
        let all = there.flat_map(|member| member.idle_probes.iter().chain(&member.probes));
        Clock::new(&all.copied().collect::<Vec<_>>())
    }

    fn new(clock: &Clock, members: &[LoadMember]) -> Option<Self> {
        let delays = |of: fn(&LoadMember) -> &[Probe]| {
            let probes: Vec<Probe> = members.iter().flat_map(of).copied().collect();
            clock.delays(&probes)
        };
        let idle = delays(|member| &member.idle_probes);
        let loaded = delays(|member| &member.probes)?;
        let way = |way: usize| {
            let (idle_us, loaded_us) = (idle.map(|idle| idle[way]), loaded[way]);
            WayDelay {
                idle_us,
                loaded_us,
                added_us: idle_us.map(|idle| loaded_us.mean - idle.mean),
            }
        };
        let (up, down) = (way(0), way(1));
        Some(Self {
            queue: up.added_us.zip(down.added_us).and_then(queue),
            up,
            down,
            clock: clock.offset,
        })
    }
}

/// The endpoints, each with its address.
fn hosts(members: &[LoadMember]) -> Vec<(String, String)> {
    let mut hosts: Vec<(String, String)> = Vec::new();
    for record in members.iter().map(|member| &member.record) {
        if hosts.iter().all(|(host, _)| *host != record.host) {
            hosts.push((record.host.clone(), record.peer.clone()));
        }
    }
    hosts
}

/// The directions that have at least a quarter of the added delay.
fn queue((up, down): (f64, f64)) -> Option<Direction> {
    let added = up.max(0.0) + down.max(0.0);
    let has = |way: f64| way >= added / 4.0;
    match (has(up), has(down)) {
        _ if added < MIN_QUEUE_US => None,
        (true, true) => Some(Direction::Both),
        (true, false) => Some(Direction::Up),
        _ => Some(Direction::Down),
    }
}

/// Each direction of each call, with the delay that the probe of its class saw that way.
fn calls(mix: &Mix, document: &LoadDocument) -> Vec<CallQuality> {
    let mut calls = Vec::new();
    for (call, ran) in mix.members.iter().zip(&document.members) {
        let Some(codec) = call.codec else { continue };
        let probe = mix.members.iter().find(|probe| call.is_timed_by(probe));
        let of_probe = |class: &&ClassLatency| probe.is_some_and(|p| p.name == class.member);
        let Some(class) = document.latency.iter().find(of_probe) else {
            continue;
        };
        calls.extend(ran.record.legs.iter().filter_map(|leg| {
            let udp = leg.udp.as_ref().filter(|udp| udp.sent > 0)?;
            let way = match leg.direction {
                Direction::Down => class.loaded_down_us,
                Direction::Up | Direction::Both => class.loaded_up_us,
            };
            let half = class.loaded_us.map(|round_trip| (round_trip, round_trip.p99 / 2.0));
            let (delays, buffered_us) = way.map(|way| (way, way.p99)).or(half)?;
            let late_share = late_share(&delays);
            let loss = Loss::new(udp.sent, udp.lost, udp.loss_runs, late_share);
            let delay_us = PACKET_MS * 1e3 + buffered_us;
            let r = rating(codec, delay_us / 1e3, loss);
            Some(CallQuality {
                member: call.name.clone(),
                direction: leg.direction,
                codec,
                loss_percent: 100.0 * udp.lost as f64 / udp.sent as f64,
                late_percent: Some(100.0 * late_share),
                burst_ratio: Some(loss.burst_ratio),
                jitter_us: udp.jitter_us,
                delay_us,
                r,
                mos: mos(r),
            })
        }));
    }
    calls
}

/// The share of delays above their 99th percentile; at most that, where some are equal to it.
fn late_share(delays: &LatencySummary) -> f64 {
    let is_any_late = delays.max > delays.p99;
    let late = if is_any_late { (0.01 * delays.count as f64).floor() } else { 0.0 };
    late / delays.count.max(1) as f64
}

/// R. Jain et al., "A quantitative measure of fairness", 1984: (Σx)² / (n·Σx²).
fn fairness(rates: &[f64]) -> Option<f64> {
    let sum: f64 = rates.iter().sum();
    let squares: f64 = rates.iter().map(|rate| rate * rate).sum();
    (rates.len() > 1 && squares > 0.0).then(|| sum * sum / (rates.len() as f64 * squares))
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let values: Vec<f64> = values.collect();
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}
