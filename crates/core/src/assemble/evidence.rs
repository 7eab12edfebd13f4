//! Merges the evidence of two ends to that of a flow, and the evidence of flows to that of a
//! direction.

use crate::plan::{Test, Traffic};
use crate::record::{GapSummary, SenderEvidence, TcpEvidence, TcpSender, UdpEvidence};
use crate::session::message::{FlowHalf, Train};
use crate::stats::{LatencyBuckets, LatencyHistogram};
use crate::units::BitRate;

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
        evidence.malformed = received.malformed;
        evidence.train_bps = received.train.and_then(|train| train_bps(train, message));
        evidence.lost = evidence.sent.saturating_sub(received.received);
        // The socket's count is of the whole flow, warm-up included, and with offload an estimate.
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
        merged.duplicated += udp.duplicated;
        merged.reordered += udp.reordered;
        let drops = merged.socket_drops.zip(udp.socket_drops);
        merged.socket_drops = drops.map(|(one, other)| one + other);
        merged.malformed += udp.malformed;
        merged.send_refused += udp.send_refused;
        merged.jitter_us = merged.jitter_us.max(udp.jitter_us);
        let corrupted = [merged.corrupted_bytes, udp.corrupted_bytes];
        merged.corrupted_bytes = corrupted.into_iter().flatten().reduce(|a, b| a + b);
    }
    merged.path_loss_percent = path_loss(&merged);
    Some(merged)
}
