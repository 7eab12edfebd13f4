//! Makes a record from the reports of both ends, one direction after the other.

mod evidence;

use std::time::Duration;

use evidence::{flow_tcp, flow_udp, merge_tcp, merge_udp};

use crate::one_way::OneWay;
use crate::plan::{Direction, Protocol, Test, Traffic};
use crate::record::{
    EndReport, Environment, FlowRecord, Interval, Leg, Record, Status, StepRates, TcpEvidence,
    UdpEvidence,
};
use crate::session::message::{FlowHalf, HalfReport};
use crate::stats::{LatencyBuckets, LatencySummary};
use crate::units::Family;
use crate::video::Playback;

/// Service demand in CPU µs per KiB: CPU time of the whole host ÷ (bytes ÷ 1024), as netperf
/// defines it (`calc_service_demand` in its `src/netlib.c`); none where nothing was transferred.
/// Two hosts with the same throughput differ in what is left for the application, whatever the
/// number of CPUs.
pub fn service_demand(cpu_time: Duration, bytes: u64) -> Option<f64> {
    (bytes > 0).then(|| cpu_time.as_secs_f64() * 1e6 / (bytes as f64 / 1024.0))
}

/// Most intervals of a record; more are merged with their neighbours.
const MAX_INTERVALS: usize = 1000;

/// Everything that a client knows after a run.
#[derive(Debug, Clone)]
pub struct Run {
    /// The test.
    pub test: Test,
    /// The endpoint as the user named it.
    pub host: String,
    /// Its address and port.
    pub peer: String,
    /// Address family.
    pub family: Family,
    /// When it began, RFC 3339.
    pub started_at: String,
    /// Whether it ended as planned.
    pub status: Status,
    /// The client's report.
    pub client: HalfReport,
    /// The endpoint's report, unless it was lost.
    pub server: Option<HalfReport>,
    /// Totals of `rr` and `crr`.
    pub exchange: Option<ExchangeTotals>,
}

/// Totals of `rr` and `crr`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ExchangeTotals {
    /// Requests answered in the measured time.
    pub transactions: u64,
    /// Requests without an answer, or connections that failed.
    pub failed: u64,
    /// Open loop: requests that were due and never sent.
    pub not_sent: Option<u64>,
    /// Latency from the (intended) send to the whole response.
    pub latency: Option<LatencySummary>,
    /// The histogram behind it.
    pub histogram: Option<LatencyBuckets>,
    /// Open loop: lateness of the generator.
    pub send_lag: Option<LatencySummary>,
    /// STAMP: delay and loss of each direction.
    pub one_way: Option<OneWay>,
    /// Pages: time from the first request to the last byte.
    pub page: Option<LatencySummary>,
    /// Video: what the player got.
    pub video: Option<Playback>,
}

impl Run {
    /// The record, still without ceilings and verdict.
    pub fn into_record(self) -> Record {
        let directions = match self.test.traffic {
            Traffic::Stream(_) => self.test.direction.parts(),
            Traffic::Rr(_) | Traffic::Crr(_) => &[Direction::Up],
        };
        let parts: Vec<Part<'_>> =
            directions.iter().map(|direction| self.part(*direction)).collect();
        let environment = self.environment();
        let mut record = Record {
            status: self.status,
            started_at: self.started_at.clone(),
            host: self.host.clone(),
            peer: self.peer.clone(),
            family: self.family,
            seconds: parts.iter().map(Part::seconds).fold(0.0, f64::max),
            legs: parts.iter().map(|part| self.leg(part)).collect(),
            flows: Vec::from_iter(parts.iter().flat_map(|part| part.flow_records(&self.test))),
            intervals: self.intervals(&parts),
            seed: self.test.seed,
            environment,
            ..Record::new(self.test.clone())
        };
        match &self.test.traffic {
            Traffic::Stream(_) => self.fill_stream(&mut record, &parts),
            Traffic::Rr(_) | Traffic::Crr(_) => self.fill_exchange(&mut record),
        }
        record.caveats = evidence::caveats(&self, &record);
        record
    }

    fn part(&self, direction: Direction) -> Part<'_> {
        fn find(half: &HalfReport, id: u32, direction: Direction) -> Option<&FlowHalf> {
            let mut flows = half.flows.iter();
            flows.find(|flow| flow.id == id && flow.direction == direction)
        }
        let flows = (0..self.test.flows()).map(|id| {
            let client = find(&self.client, id, direction);
            let server = self.server.as_ref().and_then(|half| find(half, id, direction));
            match direction {
                Direction::Up | Direction::Both => (client, server),
                Direction::Down => (server, client),
            }
        });
        let flows =
            flows.filter(|(sender, receiver)| sender.is_some() || receiver.is_some()).collect();
        Part { direction, flows }
    }

    fn environment(&self) -> Environment {
        let client = (*self.client.facts).clone();
        let server = self.server.as_ref().map(|half| (*half.facts).clone());
        Environment::new(client, server)
    }

    fn fill_stream(&self, record: &mut Record, parts: &[Part<'_>]) {
        let messages = parts.iter().map(|part| part.messages(self.test.protocol));
        record.messages = Some(messages.sum());
        let flows = parts.iter().flat_map(|part| &part.flows);
        let corrupted = flows.filter_map(|(_, receiver)| (*receiver)?.corrupted_bytes);
        record.corrupted_bytes = corrupted.reduce(|a, b| a + b);
    }

    fn leg(&self, part: &Part<'_>) -> Leg {
        let flows: Vec<FlowRecord> = part.flow_records(&self.test).collect();
        let tcp: Vec<&TcpEvidence> = flows.iter().filter_map(|f| f.tcp.as_ref()).collect();
        let udp: Vec<&UdpEvidence> = flows.iter().filter_map(|f| f.udp.as_ref()).collect();
        let bytes = part.bytes();
        let is_stream = matches!(self.test.traffic, Traffic::Stream(_));
        let is_measured = part.seconds() > 0.0;
        let (sender, receiver) = self.ends(part.direction, bytes);
        Leg {
            throughput_bps: (is_stream && is_measured).then(|| rate(bytes, part.seconds())),
            bytes,
            steps: part.steps().filter(|_| is_stream),
            tcp: merge_tcp(&tcp),
            udp: merge_udp(&udp).filter(|_| is_stream),
            sender,
            receiver,
            ..Leg::new(part.direction)
        }
    }

    /// The sender's and the receiver's report with their service demand over `bytes`.
    fn ends(&self, direction: Direction, bytes: u64) -> (Option<EndReport>, Option<EndReport>) {
        let shared = self.environment().shared_kernel;
        let both = self.test.direction == Direction::Both;
        let is_stream = matches!(self.test.traffic, Traffic::Stream(_));
        let batch = match &self.test.traffic {
            Traffic::Stream(stream) if self.test.protocol != Protocol::Udp => stream.batch,
            _ => None,
        };
        let report = |half: &HalfReport, sends: bool| {
            let seconds = half.flows.iter().map(|f| f.seconds).fold(0.0, f64::max);
            let mut end = half.end.clone();
            // Requests are not measured by the KiB.
            if is_stream {
                end = with_service_demand(end, seconds, bytes, !shared && !both);
            }
            let own = || half.flows.iter().filter(|flow| flow.sends == sends);
            end.method = own().find_map(|flow| flow.method.clone());
            let messages: u64 = own().map(|flow| flow.messages).sum();
            let in_one = batch.filter(|_| sends).unwrap_or(1);
            end.calls = Some(messages.div_ceil(in_one.into()));
            if both {
                // The end's own figure is of the other direction's threads too.
                let busiest = own().map(|flow| flow.thread_percent).reduce(f64::max);
                let known = busiest.filter(|percent| *percent > 0.0);
                end.busiest_thread_percent = known.or(end.busiest_thread_percent);
            }
            end
        };
        let up = direction != Direction::Down;
        let client = Some(report(&self.client, up));
        let server = self.server.as_ref().map(|half| report(half, !up));
        if up { (client, server) } else { (server, client) }
    }

    fn fill_exchange(&self, record: &mut Record) {
        let totals = self.exchange.clone().unwrap_or_default();
        let seconds = Some(record.seconds).filter(|seconds| *seconds > 0.0);
        let per_second = seconds.map(|seconds| totals.transactions as f64 / seconds);
        record.transactions = Some(totals.transactions);
        record.transactions_per_s = per_second;
        if matches!(self.test.traffic, Traffic::Crr(_)) {
            record.connections_per_s = per_second;
        }
        record.latency_us = totals.latency;
        record.latency_histogram = totals.histogram;
        record.send_lag_us = totals.send_lag;
        record.one_way = totals.one_way;
        record.page_us = totals.page;
        record.video = totals.video;
        record.requests_not_sent = totals.not_sent;
        record.failed = Some(totals.failed);
    }

    fn intervals(&self, parts: &[Part<'_>]) -> Vec<Interval> {
        let width = self.test.interval.as_secs_f64();
        let both = parts.len() > 1;
        let exchange = !matches!(self.test.traffic, Traffic::Stream(_));
        let intervals = parts.iter().flat_map(|part| {
            let intervals = part.intervals(width, exchange).into_iter();
            intervals
                .map(|interval| Interval { direction: both.then_some(part.direction), ..interval })
        });
        intervals.take(MAX_INTERVALS).collect()
    }
}

fn with_service_demand(
    mut end: EndReport,
    seconds: f64,
    bytes: u64,
    meaningful: bool,
) -> EndReport {
    let demand = |cpu_seconds: f64| {
        let time = Duration::try_from_secs_f64(cpu_seconds).ok()?;
        service_demand(time, bytes)
    };
    end.service_demand_us_per_kib = end
        .host_cpu_percent
        .and_then(|percent| demand(percent / 100.0 * f64::from(end.cpus) * seconds));
    let softirq = end.softirq_seconds.unwrap_or(0.0);
    end.service_demand_threads_us_per_kib = demand(end.cpu_seconds.total() + softirq);
    end.service_demand_meaningful = end.service_demand_us_per_kib.map(|_| meaningful);
    end
}

// One direction of a run: its flows, totals and intervals.

/// One direction with the two ends' accounts of it.
struct Part<'a> {
    direction: Direction,
    /// (sender's, receiver's) view of each flow; the receiver's is the one that counts.
    flows: Vec<(Option<&'a FlowHalf>, Option<&'a FlowHalf>)>,
}

impl<'a> Part<'a> {
    /// The receiver's account, or the sender's where the receiver's was lost.
    fn counted(&self) -> impl Iterator<Item = &'a FlowHalf> + '_ {
        let flows = self.flows.iter();
        flows.filter_map(|(sender, receiver)| receiver.or(*sender))
    }

    /// The account that has a course: the receiver's, unless that is another tool, which tells
    /// none.
    fn with_course(&self) -> impl Iterator<Item = &'a FlowHalf> + '_ {
        self.flows.iter().filter_map(|(sender, receiver)| {
            let with_course = receiver.filter(|flow| !flow.steps.is_empty());
            with_course.or(*sender).or(*receiver)
        })
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
            Protocol::Tcp | Protocol::Mptcp => {
                let senders = self.flows.iter().filter_map(|(sender, _)| *sender);
                senders.map(|flow| flow.messages).sum()
            }
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
                sender_thread_percent: sender.map(|flow| flow.thread_percent),
                receiver_thread_percent: receiver.map(|flow| flow.thread_percent),
                tcp: flow_tcp(*sender, *receiver),
                udp: flow_udp(test, *sender, *receiver),
                first_sent_us: sender.and_then(|flow| flow.first_us),
                first_received_us: receiver.and_then(|flow| flow.first_us),
            })
        })
    }

    /// Intervals of `width` seconds from the cumulative steps of the flows; wider if there would be
    /// too many.
    fn intervals(&self, width: f64, exchange: bool) -> Vec<Interval> {
        let seconds = self.seconds();
        if seconds <= 0.0 || width <= 0.0 {
            return Vec::new();
        }
        // A last piece that is shorter than half an interval belongs to the one before it.
        let count = (seconds / width).round().clamp(1.0, MAX_INTERVALS as f64 / 2.0) as u32;
        let width = if f64::from(count) < seconds / width - 0.5 {
            seconds / f64::from(count)
        } else {
            width
        };
        let interval = |index: u32| {
            let start = f64::from(index) * width;
            let is_last = index + 1 == count;
            let end = if is_last { seconds } else { start + width };
            let flows = self.with_course();
            let bytes =
                flows.map(|flow| at(&flow.steps, end).saturating_sub(at(&flow.steps, start)));
            let bytes: u64 = bytes.sum();
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
            interval
        };
        (0..count).map(interval).collect()
    }

    /// As many steps as the course has readings.
    fn steps(&self) -> Option<StepRates> {
        let count = self.with_course().map(|flow| flow.steps.len()).min()?;
        let step_s = self.seconds() / count as f64;
        let total = |index: usize| -> u64 {
            let flows = self.with_course();
            flows.map(|flow| at(&flow.steps, index as f64 * step_s)).sum()
        };
        let passed = (0..count).map(|index| total(index + 1).saturating_sub(total(index)));
        StepRates::new(passed.map(|bytes| rate(bytes, step_s)).collect(), step_s)
    }

    fn add_tcp(&self, interval: &mut Interval, start: f64, end: f64) {
        let inside = |at_us: u64| {
            let at = at_us as f64 / 1e6;
            at > start && at <= end + 1e-6
        };
        let (mut rtts, mut cwnd, mut notsent) = (Vec::new(), 0, 0);
        let (mut retransmitted, mut seen) = (0, false);
        for sender in self.flows.iter().filter_map(|(sender, _)| *sender) {
            let samples: Vec<_> = sender.samples.iter().filter(|s| inside(s.at_us)).collect();
            let (Some(first), Some(last)) = (samples.first(), samples.last()) else {
                continue;
            };
            seen = true;
            rtts.extend(samples.iter().map(|s| f64::from(s.rtt_us)));
            cwnd += last.cwnd_bytes;
            notsent += last.notsent_bytes;
            let mut earlier = sender.samples.iter().rev();
            let before = earlier.find(|s| s.at_us < first.at_us).unwrap_or(first);
            let (now, before) = (last.retransmitted_segments, before.retransmitted_segments);
            retransmitted += now.saturating_sub(before);
        }
        if seen {
            interval.rtt_us = Some(rtts.iter().sum::<f64>() / rtts.len() as f64);
            interval.cwnd_bytes = Some(cwnd);
            interval.notsent_bytes = Some(notsent);
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
    if seconds > 0.0 { bytes as f64 * 8.0 / seconds } else { 0.0 }
}

#[cfg(test)]
mod tests;
