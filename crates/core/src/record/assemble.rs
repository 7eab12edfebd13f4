//! Two halves make a record.

use crate::cost::service_demand;
use crate::plan::{Direction, Family, Protocol, ReceiveMethod, Test, Traffic};
use crate::stats::{LatencyBuckets, LatencySummary};
use crate::units::BitRate;
use crate::wire::message::{FlowHalf, HalfReport};

use super::{
    Caveat, CaveatKind, Directional, EndReport, Environment, FlowRecord, GapSummary, Interval,
    RECORD_SCHEMA, Record, Status, TcpEvidence, UdpEvidence,
};

/// Intervals of a record at most; neighbours are merged beyond.
const MAX_INTERVALS: usize = 1000;

/// What a client knows when a run is over.
#[derive(Debug, Clone)]
pub struct Run {
    /// What was run.
    pub test: Test,
    /// The endpoint as the user named it.
    pub host: String,
    /// Its address and port.
    pub peer: String,
    /// Over which family.
    pub family: Family,
    /// When it began, RFC 3339.
    pub started_at: String,
    /// Whether it ended as planned.
    pub status: Status,
    /// This end's account.
    pub client: HalfReport,
    /// The endpoint's, unless it was lost.
    pub server: Option<HalfReport>,
    /// What the requests' worker counted.
    pub exchange: Option<ExchangeTotals>,
}

/// Totals of `rr` and `crr`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ExchangeTotals {
    /// Requests answered in the measured time.
    pub transactions: u64,
    /// Without an answer, or connections that failed.
    pub failed: u64,
    /// Open loop: due and never sent.
    pub not_sent: Option<u64>,
    /// From the (intended) send to the whole response.
    pub latency: Option<LatencySummary>,
    /// The histogram behind it.
    pub histogram: Option<LatencyBuckets>,
    /// Open loop: how late the generator was.
    pub send_lag: Option<LatencySummary>,
}

/// One direction with the two ends' accounts of it.
struct Part<'a> {
    direction: Direction,
    /// (sender's, receiver's) view of each flow; the receiver's is the one that counts.
    flows: Vec<(Option<&'a FlowHalf>, Option<&'a FlowHalf>)>,
}

impl Run {
    /// The record, still without ceilings and verdict.
    pub fn into_record(self) -> Record {
        let parts: Vec<Part<'_>> = match self.test.traffic {
            Traffic::Stream(_) => self.test.direction.parts().iter(),
            Traffic::Rr(_) | Traffic::Crr(_) => [Direction::Up].iter(),
        }
        .map(|direction| self.part(*direction))
        .collect();
        let environment = self.environment();
        let mut record = Record {
            schema: RECORD_SCHEMA.to_owned(),
            status: self.status,
            started_at: self.started_at.clone(),
            host: self.host.clone(),
            peer: self.peer.clone(),
            workload: self.test.workload(),
            protocol: self.test.protocol,
            family: self.family,
            direction: self.test.direction,
            plan: self.test.clone(),
            throughput_bps: None,
            seconds: parts.iter().map(Part::seconds).fold(0.0, f64::max),
            bytes: parts.iter().map(Part::bytes).sum(),
            messages: None,
            transactions: None,
            transactions_per_s: None,
            connections_per_s: None,
            latency_us: None,
            latency_histogram: None,
            send_lag_us: None,
            requests_not_sent: None,
            failed: None,
            corrupted_bytes: None,
            sender: None,
            receiver: None,
            tcp: None,
            udp: None,
            flows: parts
                .iter()
                .flat_map(|part| part.flow_records(&self.test))
                .collect(),
            directions: Default::default(),
            intervals: self.intervals(&parts),
            ceilings: Vec::new(),
            verdict: None,
            caveats: self.caveats(&environment),
            seed: self.test.seed,
            environment,
        };
        match &self.test.traffic {
            Traffic::Stream(_) => self.fill_stream(&mut record, &parts),
            Traffic::Rr(_) | Traffic::Crr(_) => self.fill_exchange(&mut record, &parts),
        }
        record
    }

    fn part(&self, direction: Direction) -> Part<'_> {
        let of = |half: &'_ HalfReport, id: u32| -> Option<usize> {
            half.flows
                .iter()
                .position(|flow| flow.id == id && flow.direction == direction)
        };
        let flows = (0..self.test.flows())
            .filter_map(|id| {
                let client = of(&self.client, id).map(|i| &self.client.flows[i]);
                let server = self
                    .server
                    .as_ref()
                    .and_then(|half| of(half, id).map(|i| &half.flows[i]));
                if client.is_none() && server.is_none() {
                    return None;
                }
                Some(match direction {
                    Direction::Up | Direction::Both => (client, server),
                    Direction::Down => (server, client),
                })
            })
            .collect();
        Part { direction, flows }
    }

    fn environment(&self) -> Environment {
        let client = (*self.client.facts).clone();
        let server = self.server.as_ref().map(|half| (*half.facts).clone());
        let shared_kernel = server
            .as_ref()
            .is_some_and(|server| !server.boot_id.is_empty() && server.boot_id == client.boot_id);
        Environment {
            client,
            server,
            shared_kernel,
        }
    }

    fn caveats(&self, environment: &Environment) -> Vec<Caveat> {
        let mut caveats = self.client.caveats.clone();
        if let Some(server) = &self.server {
            caveats.extend(server.caveats.iter().cloned());
        }
        if self.status == Status::Partial {
            caveats.push(Caveat::new(
                CaveatKind::Partial,
                "the run ended before its time; the figures are of what there was",
                "run it again",
            ));
        }
        if environment.shared_kernel {
            caveats.push(Caveat::new(
                CaveatKind::SharedKernel,
                "both ends run on one kernel: host-wide CPU figures and service demand count both",
                "run `linerate serve` on another host",
            ));
        }
        caveats.extend(self.window_not_taken());
        if let Traffic::Stream(stream) = &self.test.traffic
            && stream.receive == ReceiveMethod::Discard
        {
            caveats.push(Caveat::new(
                CaveatKind::Discarded,
                "the receiver discarded the bytes in the kernel: no application gets this rate",
                "leave --discard out for a figure of real copies",
            ));
        }
        caveats
    }

    /// The window that a sender saw, against the one that was asked for.
    fn window_not_taken(&self) -> Option<Caveat> {
        let wanted = self.test.options.receive_window_bytes?.0;
        let halves = std::iter::once(&self.client).chain(&self.server);
        let senders = halves.flat_map(|half| half.flows.iter().filter(|flow| flow.sends));
        let seen = senders
            .filter_map(|flow| flow.tcp.as_ref()?.send_window_bytes)
            .find(|seen| seen.abs_diff(wanted) > wanted / 10)?;
        Some(Caveat::new(
            CaveatKind::SettingNotTaken,
            format!("a receive window of {wanted} bytes was asked for and the sender saw {seen}"),
            "give the run a longer --warm-up, or a window that fits the path's packets",
        ))
    }

    fn fill_stream(&self, record: &mut Record, parts: &[Part<'_>]) {
        let mut directionals: Vec<Directional> =
            parts.iter().map(|part| self.directional(part)).collect();
        record.throughput_bps = Some(directionals.iter().map(|d| d.throughput_bps).sum());
        let messages = parts.iter().map(|part| part.messages(self.test.protocol));
        record.messages = Some(messages.sum());
        let corrupted: Vec<u64> = parts
            .iter()
            .flat_map(|part| &part.flows)
            .filter_map(|(_, receiver)| receiver.and_then(|flow| flow.corrupted_bytes))
            .collect();
        record.corrupted_bytes = (!corrupted.is_empty()).then(|| corrupted.iter().sum());
        if let [only] = directionals.as_mut_slice() {
            let only = std::mem::take(only);
            record.sender = only.sender;
            record.receiver = only.receiver;
            record.tcp = only.tcp;
            record.udp = only.udp;
            return;
        }
        // Both ends send and receive: the sender's column is the client's, as its direction comes first.
        record.sender = directionals[0].sender.clone();
        record.receiver = directionals[0].receiver.clone();
        let tcp: Vec<&TcpEvidence> = directionals.iter().filter_map(|d| d.tcp.as_ref()).collect();
        record.tcp = merge_tcp(&tcp);
        let udp: Vec<&UdpEvidence> = directionals.iter().filter_map(|d| d.udp.as_ref()).collect();
        record.udp = merge_udp(&udp);
        record.directions = parts
            .iter()
            .zip(directionals)
            .map(|(part, directional)| (direction_key(part.direction).to_owned(), directional))
            .collect();
    }

    fn directional(&self, part: &Part<'_>) -> Directional {
        let flows: Vec<FlowRecord> = part.flow_records(&self.test).collect();
        let tcp: Vec<&TcpEvidence> = flows.iter().filter_map(|f| f.tcp.as_ref()).collect();
        let udp: Vec<&UdpEvidence> = flows.iter().filter_map(|f| f.udp.as_ref()).collect();
        let bytes = part.bytes();
        let (sender, receiver) = self.ends(part.direction, bytes);
        Directional {
            throughput_bps: rate(bytes, part.seconds()),
            bytes,
            tcp: merge_tcp(&tcp),
            udp: merge_udp(&udp),
            sender,
            receiver,
            ceilings: Vec::new(),
            verdict: None,
        }
    }

    /// The sender's and the receiver's report with their service demand over `bytes`.
    fn ends(&self, direction: Direction, bytes: u64) -> (Option<EndReport>, Option<EndReport>) {
        let shared = self.environment().shared_kernel;
        let both = self.test.direction == Direction::Both;
        let report = |half: &HalfReport| {
            let seconds = half.flows.iter().map(|f| f.seconds).fold(0.0, f64::max);
            with_service_demand(half.end.clone(), seconds, bytes, !shared && !both)
        };
        let client = Some(report(&self.client));
        let server = self.server.as_ref().map(report);
        match direction {
            Direction::Up | Direction::Both => (client, server),
            Direction::Down => (server, client),
        }
    }

    fn fill_exchange(&self, record: &mut Record, parts: &[Part<'_>]) {
        let totals = self.exchange.clone().unwrap_or_default();
        let (sender, receiver) = self.ends(Direction::Up, record.bytes);
        record.sender = sender.map(without_service_demand);
        record.receiver = receiver.map(without_service_demand);
        let evidence: Vec<&TcpEvidence> = parts
            .iter()
            .flat_map(|part| &part.flows)
            .filter_map(|(client, _)| client.and_then(|flow| flow.tcp.as_ref()))
            .collect();
        record.tcp = merge_tcp(&evidence);
        let per_second =
            (record.seconds > 0.0).then(|| totals.transactions as f64 / record.seconds);
        record.transactions = Some(totals.transactions);
        record.transactions_per_s = per_second;
        if matches!(self.test.traffic, Traffic::Crr(_)) {
            record.connections_per_s = per_second;
        }
        record.latency_us = totals.latency;
        record.latency_histogram = totals.histogram;
        record.send_lag_us = totals.send_lag;
        record.requests_not_sent = totals.not_sent;
        record.failed = Some(totals.failed);
        if totals.not_sent.is_some_and(|n| n > 0) {
            record.caveats.push(Caveat::new(
                CaveatKind::RateNotReached,
                format!(
                    "{} requests that were due were never sent: the path or the hosts cannot do this rate",
                    totals.not_sent.unwrap_or(0)
                ),
                "lower --rate, or give more --streams",
            ));
        }
    }

    fn intervals(&self, parts: &[Part<'_>]) -> Vec<Interval> {
        let width = self.test.interval.as_secs_f64();
        let both = parts.len() > 1;
        let exchange = !matches!(self.test.traffic, Traffic::Stream(_));
        let mut intervals: Vec<Interval> = parts
            .iter()
            .flat_map(|part| {
                let mut intervals = part.intervals(width, exchange);
                for interval in &mut intervals {
                    interval.direction = both.then_some(part.direction);
                }
                intervals
            })
            .collect();
        intervals.truncate(MAX_INTERVALS);
        intervals
    }
}

impl<'a> Part<'a> {
    /// The receiver's account, or the sender's where the receiver's was lost.
    fn counted(&self) -> impl Iterator<Item = &'a FlowHalf> + '_ {
        self.flows
            .iter()
            .filter_map(|(sender, receiver)| receiver.or(*sender))
    }

    fn bytes(&self) -> u64 {
        self.counted().map(|flow| flow.bytes).sum()
    }

    fn seconds(&self) -> f64 {
        self.counted().map(|flow| flow.seconds).fold(0.0, f64::max)
    }

    fn messages(&self, protocol: Protocol) -> u64 {
        match protocol {
            Protocol::Udp => self.counted().map(|flow| flow.messages).sum(),
            // A TCP receiver has no messages: the sender's writes are counted.
            Protocol::Tcp | Protocol::Mptcp => self
                .flows
                .iter()
                .filter_map(|(sender, _)| sender.map(|flow| flow.messages))
                .sum(),
        }
    }

    fn flow_records<'b>(&'b self, test: &'b Test) -> impl Iterator<Item = FlowRecord> + 'b {
        self.flows.iter().filter_map(|(sender, receiver)| {
            let counted = receiver.or(*sender)?;
            // Addresses as the client sees them: the half whose local end the client is.
            let client = match self.direction {
                Direction::Up | Direction::Both => sender.or(*receiver),
                Direction::Down => receiver.or(*sender),
            }?;
            Some(FlowRecord {
                id: counted.id,
                direction: self.direction,
                throughput_bps: rate(counted.bytes, counted.seconds),
                bytes: counted.bytes,
                local: client.local.clone(),
                remote: client.remote.clone(),
                tcp: flow_tcp(*sender, *receiver),
                udp: flow_udp(test, *sender, *receiver),
            })
        })
    }

    /// Intervals of `width` seconds from the cumulative steps of the flows; wider if there would be too many.
    fn intervals(&self, width: f64, exchange: bool) -> Vec<Interval> {
        let seconds = self.seconds();
        if seconds <= 0.0 || width <= 0.0 {
            return Vec::new();
        }
        // A last piece that is shorter than half an interval belongs to the one before it.
        let count = (seconds / width)
            .round()
            .clamp(1.0, MAX_INTERVALS as f64 / 2.0) as u32;
        let width = if f64::from(count) < seconds / width - 0.5 {
            seconds / f64::from(count)
        } else {
            width
        };
        let mut intervals = Vec::with_capacity(count as usize);
        for index in 0..count {
            let start = f64::from(index) * width;
            let end = if index + 1 == count {
                seconds
            } else {
                start + width
            };
            let bytes: u64 = self
                .counted()
                .map(|flow| at(&flow.steps, end).saturating_sub(at(&flow.steps, start)))
                .sum();
            let mut interval = Interval {
                start_s: start,
                seconds: end - start,
                bytes,
                throughput_bps: rate(bytes, end - start),
                ..Interval::default()
            };
            if !exchange {
                self.add_tcp(&mut interval, start, end);
            }
            intervals.push(interval);
        }
        intervals
    }

    fn add_tcp(&self, interval: &mut Interval, start: f64, end: f64) {
        let inside = |at_us: u64| {
            let at = at_us as f64 / 1e6;
            at > start && at <= end + 1e-6
        };
        let (mut rtts, mut cwnd, mut retransmitted, mut seen) = (Vec::new(), 0, 0, false);
        for sender in self.flows.iter().filter_map(|(sender, _)| *sender) {
            let samples: Vec<_> = sender.samples.iter().filter(|s| inside(s.at_us)).collect();
            let (Some(first), Some(last)) = (samples.first(), samples.last()) else {
                continue;
            };
            seen = true;
            rtts.extend(samples.iter().map(|s| f64::from(s.rtt_us)));
            cwnd += last.cwnd_bytes;
            let before = sender
                .samples
                .iter()
                .rev()
                .find(|s| s.at_us < first.at_us)
                .map_or(first.retransmitted_segments, |s| s.retransmitted_segments);
            retransmitted += last.retransmitted_segments.saturating_sub(before);
        }
        if seen {
            interval.rtt_us = Some(rtts.iter().sum::<f64>() / rtts.len() as f64);
            interval.cwnd_bytes = Some(cwnd);
            interval.retransmitted_segments = Some(retransmitted);
        }
    }
}

/// The total at `seconds`, interpolated between the steps.
fn at(steps: &[(u64, u64)], seconds: f64) -> u64 {
    let us = seconds * 1e6;
    let after = steps.partition_point(|(at, _)| (*at as f64) < us);
    let (from_us, from) = match after.checked_sub(1) {
        Some(before) => steps[before],
        None => (0, 0),
    };
    let Some(&(to_us, to)) = steps.get(after) else {
        return from;
    };
    if to_us <= from_us {
        return to;
    }
    let share = (us - from_us as f64) / (to_us - from_us) as f64;
    from + ((to.saturating_sub(from)) as f64 * share).round() as u64
}

fn rate(bytes: u64, seconds: f64) -> f64 {
    if seconds > 0.0 {
        bytes as f64 * 8.0 / seconds
    } else {
        0.0
    }
}

fn direction_key(direction: Direction) -> &'static str {
    match direction {
        Direction::Up | Direction::Both => "up",
        Direction::Down => "down",
    }
}

/// The sender's evidence with what only the receiver knows.
fn flow_tcp(sender: Option<&FlowHalf>, receiver: Option<&FlowHalf>) -> Option<TcpEvidence> {
    let from_receiver = receiver.and_then(|flow| flow.tcp.clone());
    let Some(mut tcp) = sender.and_then(|flow| flow.tcp.clone()) else {
        return from_receiver;
    };
    if let Some(other) = from_receiver {
        tcp.receive_window_bytes = other.receive_window_bytes;
        tcp.receiver_advmss_bytes = Some(other.advmss_bytes);
        tcp.receiver_buffer_bytes = other.receiver_buffer_bytes;
        tcp.receiver_unread_bytes = other.receiver_unread_bytes;
        tcp.receive_buffer_locked = other.receive_buffer_locked;
    }
    Some(tcp)
}

fn flow_udp(
    test: &Test,
    sender: Option<&FlowHalf>,
    receiver: Option<&FlowHalf>,
) -> Option<UdpEvidence> {
    let sent = sender.and_then(|flow| flow.udp_sent.as_ref());
    let received = receiver.and_then(|flow| flow.udp_received.as_ref());
    if sent.is_none() && received.is_none() {
        return None;
    }
    let (message, rate) = match &test.traffic {
        Traffic::Stream(stream) => (stream.message_bytes, stream.rate_bps),
        Traffic::Rr(_) | Traffic::Crr(_) => (0, None),
    };
    let mut evidence = UdpEvidence {
        datagram_bytes: message,
        asked_bps: rate.map(|BitRate(bps)| bps),
        corrupted_bytes: receiver.and_then(|flow| flow.corrupted_bytes),
        ..UdpEvidence::default()
    };
    if let Some(sent) = sent {
        evidence.sent = sent.sent;
        evidence.send_refused = sent.refused;
        evidence.gaps_us = sent.gaps.as_ref().and_then(gap_summary);
    }
    if let Some(received) = received {
        evidence.received = received.received;
        evidence.duplicated = received.duplicated;
        evidence.reordered = received.reordered;
        evidence.jitter_us = received.jitter_ns / 1000.0;
        evidence.malformed = received.malformed;
        evidence.lost = evidence.sent.saturating_sub(received.received);
        // The socket's count is of the whole flow, warm-up included, and with offload an estimate.
        evidence.socket_drops = received.socket_drops.min(evidence.lost);
    }
    evidence.path_loss_percent = path_loss(&evidence);
    Some(evidence)
}

/// Lost on the way, without what the receiver's own socket dropped.
fn path_loss(udp: &UdpEvidence) -> f64 {
    if udp.sent == 0 {
        return 0.0;
    }
    100.0 * udp.lost.saturating_sub(udp.socket_drops) as f64 / udp.sent as f64
}

fn gap_summary(buckets: &LatencyBuckets) -> Option<GapSummary> {
    let mut histogram = crate::stats::LatencyHistogram::new();
    histogram.merge_buckets(buckets).ok()?;
    let summary = histogram.summary()?;
    Some(GapSummary {
        p50: summary.p50,
        p90: summary.p90,
        p99: summary.p99,
        max: summary.max,
    })
}

/// Sums, and for what cannot be summed the flow that is worst off.
fn merge_tcp(flows: &[&TcpEvidence]) -> Option<TcpEvidence> {
    // The worst flow: the one with the least acknowledged in flight and the most sent again.
    let worst = flows
        .iter()
        .max_by_key(|tcp| (tcp.retransmitted_segments, tcp.rtt_mean_us))?;
    let mut merged = (*worst).clone();
    let sum = |pick: fn(&TcpEvidence) -> Option<u64>| -> Option<u64> {
        flows.iter().map(|tcp| pick(tcp)).sum()
    };
    merged.retransmitted_segments = flows.iter().map(|tcp| tcp.retransmitted_segments).sum();
    merged.loss_events = flows.iter().map(|tcp| tcp.loss_events).sum();
    merged.retransmitted_bytes = sum(|tcp| tcp.retransmitted_bytes);
    merged.dsack_duplicates = sum(|tcp| tcp.dsack_duplicates);
    merged.timeouts = sum(|tcp| tcp.timeouts);
    merged.reordering_seen = sum(|tcp| tcp.reordering_seen);
    merged.delivered_ce = sum(|tcp| tcp.delivered_ce);
    merged.data_segments_out = sum(|tcp| tcp.data_segments_out);
    merged.segments_in = sum(|tcp| tcp.segments_in);
    merged.rtt_min_us = flows.iter().filter_map(|tcp| tcp.rtt_min_us).min();
    Some(merged)
}

fn merge_udp(flows: &[&UdpEvidence]) -> Option<UdpEvidence> {
    let mut merged = (*flows.first()?).clone();
    for udp in &flows[1..] {
        merged.sent += udp.sent;
        merged.received += udp.received;
        merged.lost += udp.lost;
        merged.duplicated += udp.duplicated;
        merged.reordered += udp.reordered;
        merged.socket_drops += udp.socket_drops;
        merged.malformed += udp.malformed;
        merged.send_refused += udp.send_refused;
        merged.jitter_us = merged.jitter_us.max(udp.jitter_us);
        merged.corrupted_bytes = match (merged.corrupted_bytes, udp.corrupted_bytes) {
            (Some(a), Some(b)) => Some(a + b),
            (a, b) => a.or(b),
        };
    }
    merged.path_loss_percent = path_loss(&merged);
    Some(merged)
}

fn with_service_demand(
    mut end: EndReport,
    seconds: f64,
    bytes: u64,
    meaningful: bool,
) -> EndReport {
    let demand = |cpu_seconds: f64| {
        let time = std::time::Duration::try_from_secs_f64(cpu_seconds).ok()?;
        service_demand(time, bytes).ok()
    };
    end.service_demand_us_per_kib = end
        .host_cpu_percent
        .and_then(|percent| demand(percent / 100.0 * f64::from(end.cpus) * seconds));
    let softirq = end.softirq_seconds.unwrap_or(0.0);
    end.service_demand_threads_us_per_kib = demand(end.cpu_seconds.total() + softirq);
    end.service_demand_meaningful = end.service_demand_us_per_kib.map(|_| meaningful);
    end
}

/// Requests are not measured by the KiB.
fn without_service_demand(mut end: EndReport) -> EndReport {
    end.service_demand_us_per_kib = None;
    end.service_demand_threads_us_per_kib = None;
    end.service_demand_meaningful = None;
    end
}
