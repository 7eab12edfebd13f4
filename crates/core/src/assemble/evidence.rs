//! The evidence of a record: what both ends report of a flow, merged, and that of flows, merged to
//! a direction's; and the caveats that are found from the record itself.

use std::time::Duration;

use super::Run;
use crate::plan::{ReceiveMethod, Test, Traffic};
use crate::record::{
    Caveat, CaveatKind, GapSummary, HostFacts, Leg, Record, SenderEvidence, Status, TcpEvidence,
    TcpSender, UdpEvidence,
};
use crate::session::message::{FlowHalf, Train};
use crate::stats::{LatencyBuckets, LatencyHistogram};
use crate::units::{BitRate, ByteCount, End, Span, digits};

/// Share of a CPU from which on a thread has all of it, percent.
const THREAD_FULL: f64 = 95.0;
/// Share of the CPUs that a hypervisor takes, from which on it decides the rates, percent.
const STOLEN: f64 = 2.0;
/// Rate sent over the rate asked for, below which a paced sender failed.
const RATE_REACHED: f64 = 0.98;
/// Share of the payload that was sent before the measured time, from which on it is a caveat.
const WARM_UP_SHARE: f64 = 0.015;
/// Clock sources that are read in user space or with one instruction.
const GOOD_CLOCKS: [&str; 5] =
    ["tsc", "kvm-clock", "arch_sys_counter", "hyperv_clocksource_tsc_page", "timebase"];

/// Most caveats of the other end that are kept.
const MAX_TOLD: usize = 32;

/// All caveats of `record`, which was made from `run`.
pub(super) fn caveats(run: &Run, record: &Record) -> Vec<Caveat> {
    let mut doubts = run.client.caveats.clone();
    let told = run.server.iter().flat_map(|half| &half.caveats).take(MAX_TOLD).cloned();
    doubts.extend(told.map(|caveat| caveat.told_by(End::Server)));
    doubts.extend(partial(record));
    doubts.extend(linerate_limited(record));
    doubts.extend(hardly_a_datagram(record).or_else(|| rate_not_reached(record)));
    doubts.extend(requests_not_sent(record));
    doubts.extend(window_not_taken(run, record));
    doubts.extend(mss_not_taken(record));
    doubts.extend(discarded(record));
    doubts.extend(no_fast_open(run));
    doubts.extend(socket_drops(record));
    let legs = record.legs.iter();
    doubts.extend(legs.filter_map(|leg| queue_of_warm_up(record, leg)));
    doubts.extend(stolen(record));
    doubts.extend(clock(&record.environment.client));
    let server = record.environment.server.as_ref().filter(|_| !record.environment.shared_kernel);
    doubts.extend(server.and_then(clock));
    doubts.extend(shared_kernel(record));
    doubts
}

fn partial(record: &Record) -> Option<Caveat> {
    let message = "the run ended early; its figures cover only the part that ran";
    let caveat = Caveat::new(CaveatKind::Partial, message, "run it again");
    (record.status == Status::Partial).then_some(caveat)
}

/// A data thread had a whole CPU: the figure is that of the host and of linerate, not of the path.
fn linerate_limited(record: &Record) -> Option<Caveat> {
    if !matches!(record.plan.traffic, Traffic::Stream(_)) {
        return None;
    }
    let (leg, end, percent) = record.legs.iter().find_map(|leg| {
        leg.ends().find_map(|(end, report)| {
            let percent = report.busiest_thread_percent?;
            (percent >= THREAD_FULL).then_some((leg, end, percent))
        })
    })?;
    // A paced UDP sender spins between departures by design.
    let is_paced = leg.udp.as_ref().is_some_and(|udp| udp.asked_bps.is_some());
    let spins = end == "sender" && is_paced;
    let message =
        format!("linerate's {end} thread had {percent:.0} % of a CPU: the path may carry more");
    let remedy = "give more --streams, or larger messages by --size";
    (!spins).then(|| Caveat::new(CaveatKind::LinerateLimited, message, remedy))
}

fn rate_not_reached(record: &Record) -> Option<Caveat> {
    let shares = record.legs.iter().filter_map(|leg| {
        let udp = leg.udp.as_ref()?;
        let asked = udp.asked_bps? as f64 * record.flows_of(leg).count().max(1) as f64;
        let sent = udp.sent as f64 * udp.datagram_bytes as f64 * 8.0 / record.seconds;
        Some(sent / asked)
    });
    let share = shares.reduce(f64::min)?;
    let timed = record.plan.seconds().is_some() && record.status == Status::Complete;
    let percent = 100.0 * share;
    let message = format!("the sender reached {percent:.1} % of the rate asked for");
    let remedy = "lower --rate, or give --offload";
    let is_low = timed && share < RATE_REACHED;
    is_low.then(|| Caveat::new(CaveatKind::RateNotReached, message, remedy))
}

/// At the rate that was asked for, a flow sends one datagram in the run at most.
fn hardly_a_datagram(record: &Record) -> Option<Caveat> {
    let asked = record.legs.iter().find_map(|leg| leg.udp.as_ref()?.asked_bps)? as f64;
    let Traffic::Stream(stream) = &record.plan.traffic else {
        return None;
    };
    let bytes = stream.message_bytes;
    let seconds = record.plan.seconds().filter(|_| asked > 0.0)?;
    let takes = bytes as f64 * 8.0 / asked;
    let message = format!(
        "at {} a datagram of {bytes} bytes leaves every {} s, and the run lasts {} s: there is \
         hardly a datagram to measure",
        BitRate(asked as u64),
        digits(takes),
        digits(seconds)
    );
    let remedy = "give a higher --rate (1000 is 1000 bit/s; 1000mbit has a unit), a longer --time, \
                  or a smaller --size";
    (2.0 * takes > seconds).then(|| Caveat::new(CaveatKind::TooShort, message, remedy))
}

fn requests_not_sent(record: &Record) -> Option<Caveat> {
    let not_sent = record.requests_not_sent.filter(|n| *n > 0)?;
    let message = format!(
        "{not_sent} requests that were due were never sent: the path or the hosts cannot do this \
         rate"
    );
    let remedy = "lower --rate, or give more --streams";
    Some(Caveat::new(CaveatKind::RateNotReached, message, remedy))
}

/// The window that a sender saw differs from the one that was asked for.
fn window_not_taken(run: &Run, record: &Record) -> Option<Caveat> {
    let wanted = run.test.options.receive_window_bytes?.0;
    let halves = std::iter::once(&run.client).chain(&run.server);
    let senders = halves.flat_map(|half| half.flows.iter().filter(|flow| flow.sends));
    let seen = senders
        .filter_map(|flow| flow.tcp.as_ref()?.sender()?.send_window_bytes)
        .find(|seen| seen.abs_diff(wanted) > wanted / 10)?;
    let message =
        format!("a receive window of {wanted} bytes was asked for and the sender saw {seen}");
    let legs = record.legs.iter();
    let remedy = legs.filter(|_| seen < wanted).find_map(|leg| {
        let receiver = record.environment.hosts_of(leg.direction)[1]?;
        let limit: u64 = receiver.setting(RECEIVE_LIMIT)?.parse().ok()?;
        (limit < wanted).then(|| without_window(receiver, limit, wanted))
    });
    let remedy = remedy.unwrap_or_else(|| {
        "give the run a longer --warm-up, or a window that fits the path's packets".to_owned()
    });
    Some(Caveat::new(CaveatKind::SettingNotTaken, message, remedy))
}

/// Segments are smaller than what was asked for, by more than their options.
fn mss_not_taken(record: &Record) -> Option<Caveat> {
    let asked = record.plan.options.mss_bytes?;
    let senders = record.legs.iter().filter_map(Leg::tcp_sender);
    let seen = senders.map(|sender| sender.mss_bytes).find(|seen| *seen > 0)?;
    let message = format!(
        "an MSS of {asked} bytes was asked for and segments carry {seen}: the path, or the other \
         end, takes no larger ones"
    );
    let remedy = "leave --mss out, or raise the MTU of the whole path first";
    let is_smaller = seen + MAX_TCP_OPTIONS < asked;
    is_smaller.then(|| Caveat::new(CaveatKind::SettingNotTaken, message, remedy))
}

/// Options of a TCP header at most, bytes (RFC 9293, section 3.1).
const MAX_TCP_OPTIONS: u32 = 40;

/// What to do where the receiver's host allows no such window.
fn without_window(receiver: &HostFacts, limit: u64, wanted: u64) -> String {
    let mut words = format!(
        "the receiver's host allows a program no more than {limit} ({RECEIVE_LIMIT}): leave \
         --receive-window out, and the kernel tunes the window"
    );
    if let Some(tuned) = receiver.setting("net.ipv4.tcp_rmem") {
        let most = tuned.split_whitespace().last().unwrap_or_default();
        words.push_str(&format!(" in a buffer of up to {most} bytes"));
    }
    if !receiver.is_read_only(RECEIVE_LIMIT) {
        words.push_str(&format!(
            "; or run `linerate host set {RECEIVE_LIMIT}={wanted}` there first"
        ));
    }
    words
}

const RECEIVE_LIMIT: &str = "net.core.rmem_max";

fn discarded(record: &Record) -> Option<Caveat> {
    let Traffic::Stream(stream) = &record.plan.traffic else {
        return None;
    };
    let message = "the receiver discarded the bytes in the kernel: no application gets this rate";
    let remedy = "leave --discard out for a figure of real copies";
    let caveat = Caveat::new(CaveatKind::Discarded, message, remedy);
    (stream.receive == ReceiveMethod::Discard).then_some(caveat)
}

/// The kernels fell back to an ordinary handshake, which they do silently.
fn no_fast_open(run: &Run) -> Option<Caveat> {
    let Traffic::Crr(exchange) = &run.test.traffic else {
        return None;
    };
    let taken = run.client.end.counters.get("TcpExtTCPFastOpenActive");
    let message = "--fast-open: no connection began with its request";
    let remedy = "net.ipv4.tcp_fastopen needs bit 1 at the client and bit 2 at the endpoint, and \
                  some middleboxes drop a SYN with data";
    let caveat = Caveat::new(CaveatKind::SettingNotTaken, message, remedy);
    (exchange.fast_open && taken.is_none_or(|count| *count == 0)).then_some(caveat)
}

/// More arrived than was sent, and faster than through most of the run: it waited behind a loss
/// when the measured time began. (What waits in a queue arrives at the path's own rate, and does
/// not mislead.)
fn queue_of_warm_up(record: &Record, leg: &Leg) -> Option<Caveat> {
    let tcp = leg.tcp_sender()?;
    let segment = tcp.effective_segment_bytes?;
    let passed = (tcp.data_segments_out? as f64 * segment) as u64;
    let sent = passed.saturating_sub(tcp.retransmitted_bytes?);
    let more = leg.bytes.checked_sub(sent)?;
    let share = more as f64 / leg.bytes.max(1) as f64;
    let has_warm_up = record.plan.warm_up > Span(Duration::ZERO) && sent > 0;
    let lost = tcp.retransmitted_segments + tcp.warm_up_retransmitted_segments.unwrap_or(1);
    let usual = leg.steps.map(|steps| steps.p50_bps);
    let is_faster = usual
        .zip(leg.throughput_bps)
        .is_none_or(|(usual, mean)| mean > usual * (1.0 + share / 2.0));
    let (more, percent) = (ByteCount(more / 1000 * 1000), share * 100.0);
    let message = format!(
        "{more} of what came, {percent:.1} %, had been sent in the warm-up: the rate is up to that \
         much too high"
    );
    let remedy = "a longer run (-t) has a smaller share of it";
    let is_much = has_warm_up && share >= WARM_UP_SHARE && lost > 0 && is_faster;
    is_much.then(|| Caveat::new(CaveatKind::TooShort, message, remedy))
}

fn socket_drops(record: &Record) -> Option<Caveat> {
    let legs = record.legs.iter().filter_map(|leg| leg.udp.as_ref());
    let dropped: u64 = legs.filter_map(|udp| udp.socket_drops).sum();
    let message = format!(
        "the receiver's socket dropped about {dropped} datagrams: the receiver, not the path, lost \
         them"
    );
    let remedy = "lower --rate, or raise sysctl net.core.rmem_max on the receiver's host";
    (dropped > 0).then(|| Caveat::new(CaveatKind::SocketDrops, message, remedy))
}

fn stolen(record: &Record) -> Option<Caveat> {
    let percents = record.ends().filter_map(|(_, end)| end.steal_percent);
    let percent = percents.fold(0.0, f64::max);
    let message = format!("the hypervisor took {percent:.1} % of the CPUs for others");
    let remedy = "run it again, or on a host of its own";
    (percent >= STOLEN).then(|| Caveat::new(CaveatKind::BusyHost, message, remedy))
}

fn clock(host: &HostFacts) -> Option<Caveat> {
    let source = host.clock_source.as_deref()?;
    let message = format!(
        "the clock source of {} is {source}: each reading costs a microsecond or so",
        host.hostname
    );
    let remedy = "boot with clocksource=tsc where the CPU's counter is fit for it";
    let is_slow = !GOOD_CLOCKS.contains(&source);
    is_slow.then(|| Caveat::new(CaveatKind::Clock, message, remedy))
}

fn shared_kernel(record: &Record) -> Option<Caveat> {
    let message =
        "both ends run on one kernel: host-wide CPU figures and service demand count both";
    let remedy = "run `linerate serve` on another host";
    let caveat = Caveat::new(CaveatKind::SharedKernel, message, remedy);
    record.environment.shared_kernel.then_some(caveat)
}

// Evidence of two ends, merged to that of a flow, and of flows, merged to that of a direction.

/// TCP evidence of a flow: that of each end from its own report.
pub(super) fn flow_tcp(
    sender: Option<&FlowHalf>,
    receiver: Option<&FlowHalf>,
) -> Option<TcpEvidence> {
    let of = |half: Option<&FlowHalf>| half.and_then(|flow| flow.tcp.clone());
    let sender = of(sender).and_then(|tcp| tcp.sender);
    let receiver = of(receiver).and_then(|tcp| tcp.receiver);
    (sender.is_some() || receiver.is_some()).then_some(TcpEvidence { sender, receiver })
}

pub(super) fn flow_udp(
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
        if sent.is_none() {
            evidence.sent = received.expected.unwrap_or(0);
        }
        evidence.received = received.received;
        evidence.duplicated = received.duplicated;
        evidence.reordered = received.reordered;
        evidence.jitter_us = received.jitter_ns / 1000.0;
        evidence.added_delay_us = received.added_delay_ns.map(|ns| ns / 1000.0);
        let growth = received.delay_growth.map(|(growth, error)| (100.0 * growth, 100.0 * error));
        (evidence.delay_growth_percent, evidence.delay_growth_error_percent) = growth.unzip();
        evidence.loss_spacing_variation = received.loss_spacing_variation;
        evidence.malformed = received.malformed;
        evidence.train_bps = received.train.and_then(|train| train_bps(train, message));
        evidence.train_datagrams = received.train.map(|train| train.datagrams.saturating_add(1));
        evidence.lost = evidence.sent.saturating_sub(received.received);
        // What is missing behind the last that arrived is a run as well.
        evidence.loss_runs = (received.missing)
            .map(|(missing, runs)| runs.saturating_add(u64::from(evidence.lost > missing)));
        // With offload the socket's count is an estimate.
        evidence.socket_drops = received.socket_drops.map(|drops| drops.min(evidence.lost));
    }
    evidence.path_loss_percent = path_loss(&evidence);
    Some(evidence)
}

/// The rate of a packet train; `None` for counts of a peer that would make a rate without bound.
fn train_bps(train: Train, message_bytes: u64) -> Option<f64> {
    let bits = train.datagrams as f64 * message_bytes as f64 * 8.0;
    (train.datagrams > 0 && train.nanoseconds > 0).then(|| bits / train.nanoseconds as f64 * 1e9)
}

/// Loss on the path, without what the receiver's own socket dropped, percent.
fn path_loss(udp: &UdpEvidence) -> Option<f64> {
    let lost = udp.lost.saturating_sub(udp.socket_drops?);
    Some(100.0 * lost as f64 / udp.sent.max(1) as f64)
}

fn gap_summary(buckets: &LatencyBuckets) -> Option<GapSummary> {
    let summary = LatencyHistogram::try_from(buckets).ok()?.summary()?;
    Some(GapSummary { p50: summary.p50, p90: summary.p90, p99: summary.p99, max: summary.max })
}

/// Sums, and for what cannot be summed the flow that is worst off.
pub(super) fn merge_tcp(flows: &[&TcpEvidence]) -> Option<TcpEvidence> {
    let read = |tcp: &&&TcpEvidence| tcp.sender().map(|tcp| tcp.rtt_mean_us);
    // The worst flow: the one with the most retransmitted and the longest round trips.
    let worst = flows.iter().max_by_key(|tcp| (tcp.retransmitted_segments(), read(tcp)))?;
    let sum = flows.iter().map(|tcp| tcp.retransmitted_segments()).sum();
    let sender = match (worst.sender(), sum) {
        (Some(worst), _) => {
            let senders: Vec<_> = flows.iter().filter_map(|tcp| tcp.sender()).collect();
            let merged = Box::new(merge_senders(worst, &senders));
            Some(SenderEvidence::Read(merged))
        }
        (None, Some(retransmitted_segments)) => {
            Some(SenderEvidence::Told { retransmitted_segments })
        }
        (None, None) => None,
    };
    let receiver = worst.receiver.clone();
    Some(TcpEvidence { sender, receiver })
}

fn merge_senders(worst: &TcpSender, flows: &[&TcpSender]) -> TcpSender {
    let mut merged = worst.clone();
    let sum = |pick: fn(&TcpSender) -> Option<u64>| -> Option<u64> {
        flows.iter().map(|tcp| pick(tcp)).sum()
    };
    merged.retransmitted_segments = flows.iter().map(|tcp| tcp.retransmitted_segments).sum();
    merged.loss_events = flows.iter().map(|tcp| tcp.loss_events).sum();
    merged.warm_up_retransmitted_segments = sum(|tcp| tcp.warm_up_retransmitted_segments);
    merged.retransmitted_bytes = sum(|tcp| tcp.retransmitted_bytes);
    merged.dsack_duplicates = sum(|tcp| tcp.dsack_duplicates);
    merged.timeouts = sum(|tcp| tcp.timeouts);
    merged.reordering_seen = sum(|tcp| tcp.reordering_seen);
    merged.delivered_ce = sum(|tcp| tcp.delivered_ce);
    merged.data_segments_out = sum(|tcp| tcp.data_segments_out);
    merged.segments_in = sum(|tcp| tcp.segments_in);
    merged.rtt_min_us = flows.iter().filter_map(|tcp| tcp.rtt_min_us).min();
    merged
}

pub(super) fn merge_udp(flows: &[&UdpEvidence]) -> Option<UdpEvidence> {
    let mut merged = (*flows.first()?).clone();
    for udp in &flows[1..] {
        merged.sent += udp.sent;
        merged.received += udp.received;
        merged.lost += udp.lost;
        let runs = merged.loss_runs.zip(udp.loss_runs);
        merged.loss_runs = runs.map(|(one, other)| one.saturating_add(other));
        merged.duplicated += udp.duplicated;
        merged.reordered += udp.reordered;
        let drops = merged.socket_drops.zip(udp.socket_drops);
        merged.socket_drops = drops.map(|(one, other)| one + other);
        merged.malformed += udp.malformed;
        merged.send_refused += udp.send_refused;
        merged.jitter_us = merged.jitter_us.max(udp.jitter_us);
        let worst = |a: Option<f64>, b: Option<f64>| a.into_iter().chain(b).reduce(f64::max);
        merged.added_delay_us = worst(merged.added_delay_us, udp.added_delay_us);
        let growth = worst(merged.delay_growth_percent, udp.delay_growth_percent);
        merged.delay_growth_percent = growth;
        let errors = (merged.delay_growth_error_percent, udp.delay_growth_error_percent);
        merged.delay_growth_error_percent = worst(errors.0, errors.1);
        let spacings = (merged.loss_spacing_variation, udp.loss_spacing_variation);
        merged.loss_spacing_variation = worst(spacings.0, spacings.1);
        let corrupted = [merged.corrupted_bytes, udp.corrupted_bytes];
        merged.corrupted_bytes = corrupted.into_iter().flatten().reduce(|a, b| a + b);
    }
    merged.path_loss_percent = path_loss(&merged);
    Some(merged)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Direction, Test};
    use crate::record::{StepRates, TcpSender};

    #[test]
    fn what_the_warm_up_had_sent_is_told_where_it_makes_the_rate() {
        let mut test = Test::stream().resolve(1).expect("a test");
        test.warm_up = Span(Duration::from_secs(1));
        let leg = |bytes| Leg {
            bytes,
            tcp: Some(
                TcpSender {
                    data_segments_out: Some(10_100),
                    effective_segment_bytes: Some(1000.0),
                    retransmitted_bytes: Some(100_000),
                    ..TcpSender::default()
                }
                .into(),
            ),
            ..Leg::new(Direction::Up)
        };
        let mut record = Record::new(test);
        let doubt = queue_of_warm_up(&record, &leg(10_200_000)).expect("200 kB more came");
        assert!(doubt.message.contains(" 2.0 %, "), "{}", doubt.message);
        assert_eq!(queue_of_warm_up(&record, &leg(10_100_000)), None);
        assert_eq!(queue_of_warm_up(&record, &leg(9_000_000)), None);
        let with_steps = |p50_bps| Leg {
            throughput_bps: Some(8e6),
            steps: Some(StepRates { p50_bps, ..StepRates::default() }),
            ..leg(10_200_000)
        };
        assert!(queue_of_warm_up(&record, &with_steps(7.9e6)).is_some());
        // The path's queue of the warm-up, at the path's rate from the first step to the last.
        assert_eq!(queue_of_warm_up(&record, &with_steps(7.99e6)), None);
        let mut sender = leg(10_200_000).tcp_sender().expect("a sender").clone();
        sender.warm_up_retransmitted_segments = Some(0);
        let without_a_loss = Leg { tcp: Some(sender.into()), ..leg(10_200_000) };
        assert_eq!(queue_of_warm_up(&record, &without_a_loss), None);
        record.plan.warm_up = Span(Duration::ZERO);
        assert_eq!(queue_of_warm_up(&record, &leg(10_200_000)), None);
    }
}
