//! What a capture's packets show of a connection, as evidence for the rules.

use super::document::{Connection, ConnectionsDocument, Source, State, Vantage};
use super::held;
use super::mss::small_segments;
use crate::capture::{Capture, Flow, Reading, Sent, Side};
use crate::plan::Direction;
use crate::record::{
    Caveat, CaveatKind, Interval, Status, StepRates, TcpEvidence, TcpReceiver, TcpSender,
};

impl ConnectionsDocument {
    /// Of what [`crate::capture::follow`] found in a file.
    pub fn from_capture(file: &str, capture: &Capture) -> Self {
        let missing: u64 = capture.flows.iter().map(missing_segments).sum();
        let source = Source::Capture {
            file: file.to_owned(),
            packets: capture.packets,
            link: link_name(capture.link).to_owned(),
            snap_bytes: capture.snap_bytes.unwrap_or(0),
            missing: missing + capture.left_out.cut,
        };
        Self {
            status: Status::new(!capture.truncated && !capture.stopped),
            seconds: seconds(capture.ended - capture.began),
            connections: capture.flows.iter().map(Connection::from_flow).collect(),
            caveats: caveats(capture),
            ..Self::new(source)
        }
    }
}

impl Connection {
    /// A connection of a capture, not explained yet. `local` is the initiator.
    pub fn from_flow(flow: &Flow) -> Self {
        let side = flow.main_sender();
        let sent = flow.sent_by(side);
        let vantage = match flow.near {
            Some(near) if near == side => Vantage::Sender,
            Some(_) => Vantage::Receiver,
            None => Vantage::Between,
        };
        let lasted = seconds(sent.lasted);
        let [local, remote] = flow.ends.map(|end| end.to_string());
        Self {
            state: state(flow),
            direction: match side {
                Side::Initiator => Direction::Up,
                Side::Responder => Direction::Down,
            },
            bytes_sent: flow.sent[0].bytes,
            bytes_received: flow.sent[1].bytes,
            throughput_bps: rate(sent.bytes, lasted),
            seconds: lasted,
            began: flow.offer_of(Side::Initiator).is_some(),
            ended: flow.reset_by.is_some() || flow.closed == [true; 2],
            steps: steps(sent),
            tcp: Some(evidence(flow, side)),
            intervals: intervals(sent),
            ..Self::new(local, remote, vantage)
        }
    }
}

fn state(flow: &Flow) -> State {
    match (flow.reset_by, flow.closed) {
        (Some(_), _) | (_, [true, true]) => State::Closed,
        (_, [true, false]) => State::FinWait1,
        (_, [false, true]) => State::CloseWait,
        _ if flow.bytes() == 0 && flow.handshake.is_none() => State::SynSent,
        _ => State::Established,
    }
}

fn evidence(flow: &Flow, side: Side) -> TcpEvidence {
    let sent = flow.sent_by(side);
    let peer = flow.offer_of(side.other());
    let receiver = TcpReceiver {
        advmss_bytes: peer.and_then(|offer| offer.mss).map_or(0, u32::from),
        window_bytes: sent.window_largest,
        unread_bytes: median(unread(sent)),
        ..TcpReceiver::default()
    };
    let mut evidence = TcpEvidence::from(sender(flow, side));
    evidence.receiver = Some(receiver);
    evidence
}

fn sender(flow: &Flow, side: Side) -> TcpSender {
    let sent = flow.sent_by(side);
    let again = sent.retransmitted;
    let rtts: Vec<u64> = sent
        .readings
        .iter()
        .filter_map(|r| Some(r.rtt?.0 / 1000))
        .collect();
    let flights = || {
        sent.readings
            .iter()
            .filter(|r| r.in_flight > 0)
            .map(|r| r.in_flight)
    };
    let windows: Vec<u64> = if follows_losses(sent) {
        flights().collect()
    } else {
        Vec::new()
    };
    let rounds: u64 = sent.readings.iter().map(|r| u64::from(r.rounds)).sum();
    let full: u64 = sent.readings.iter().map(|r| u64::from(r.full)).sum();
    let readings = sent.readings.len() as u64;
    let is_told = sent.window_largest.is_some();
    let share = |part: u64, all: u64| (all > 0).then(|| part as f64 / all as f64);
    let held = held::by(flow, side);
    let pace = held.pace_bps;
    let idle = sent
        .readings
        .iter()
        .filter(|r| r.idle.0 * 2 >= r.length.0)
        .count() as u64;
    TcpSender {
        mss_bytes: sent.mss,
        advmss_bytes: flow
            .offer_of(side)
            .and_then(|offer| offer.mss)
            .map_or(0, u32::from),
        effective_segment_bytes: share(sent.bytes + again.bytes, sent.counts.segments),
        rtt_min_us: sent.rtt_min.map(|rtt| micros(rtt.0 / 1000)),
        rtt_mean_us: micros(rtts.iter().sum::<u64>() / (rtts.len() as u64).max(1)),
        rtt_p95_us: quantile(rtts, 0.95).map(micros),
        rtt_var_us: micros(sent.rtt_deviation.0 / 1000),
        retransmitted_segments: again.segments,
        retransmitted_bytes: Some(again.bytes),
        dsack_duplicates: Some(again.spurious),
        loss_events: if is_always_repairing(sent) {
            readings
        } else {
            again.episodes
        },
        samples: is_always_repairing(sent).then_some(readings),
        loss_window_variation: variation(&sent.loss_flights),
        timeouts: Some(again.timeouts),
        reordering_seen: Some(sent.counts.reordered),
        delivered_ce: Some(sent.counts.marked),
        data_segments_out: Some(sent.counts.segments).filter(|n| *n > 0),
        segments_in: Some(sent.counts.acks),
        send_window_bytes: sent.window_largest,
        send_window_full_share: share(full, rounds).filter(|_| is_told),
        cwnd_mean_bytes: windows
            .iter()
            .sum::<u64>()
            .checked_div(windows.len() as u64),
        cwnd_bytes: median(windows).unwrap_or(0),
        ssthresh_bytes: sent.loss_flights.last().copied(),
        unacked_bytes: median(flights().collect()).unwrap_or(0),
        busy_us: is_told.then_some(sent.busy.0 / 1000),
        rwnd_limited_us: is_told.then_some(sent.window_limited.0 / 1000),
        delivery_rate_bps: quantile(rates(sent, |_| true), 0.5).map(|bps| bps as u64),
        delivery_rate_max_bps: rates(sent, |r| !r.is_repairing)
            .into_iter()
            .max_by(f64::total_cmp)
            .map(|bps| bps as u64),
        app_limited_share: share(idle, readings),
        pacing_rate_bps: pace,
        max_pacing_rate_bps: pace,
        send_buffer_bytes: held.flight_bytes.unwrap_or(0),
        send_buffer_locked: held.flight_bytes.is_some(),
        options: options(flow),
        ..TcpSender::default()
    }
}

/// What both ends' SYNs have.
fn options(flow: &Flow) -> Vec<String> {
    let [Some(a), Some(b)] = flow.offers else {
        return Vec::new();
    };
    let options = [
        (a.timestamps && b.timestamps, "timestamps"),
        (a.sack && b.sack, "sack"),
        (
            a.window_scale.is_some() && b.window_scale.is_some(),
            "wscale",
        ),
    ];
    let on = options.into_iter().filter(|(on, _)| *on);
    on.map(|(_, name)| name.to_owned()).collect()
}

/// The bytes in flight come down with losses and grow again: it is the congestion window that holds
/// them. A flight that stays the same is held by something else, which packets do not tell.
fn follows_losses(sent: &Sent) -> bool {
    let flights = || {
        sent.readings
            .iter()
            .filter(|r| r.in_flight > 0)
            .map(|r| r.in_flight)
    };
    let low = quantile(flights().collect(), 0.25);
    let high = quantile(flights().collect(), 0.9);
    let varies = low
        .zip(high)
        .is_some_and(|(low, high)| (low as f64) < FLIGHT_STAYS * high as f64);
    sent.retransmitted.episodes > 0 && varies
}

/// Losses come in each round trip, and the sender goes on: none of them is an event of its own.
fn is_always_repairing(sent: &Sent) -> bool {
    let time = |is_counted: fn(&Reading) -> bool| -> u64 {
        let counted = sent.readings.iter().filter(|reading| is_counted(reading));
        counted.map(|reading| reading.length.0).sum()
    };
    2 * time(|reading| reading.is_repairing) > time(|_| true)
}

/// What the window lacks to the largest offered so far: data that nobody has read.
fn unread(sent: &Sent) -> Vec<u64> {
    let mut largest = 0;
    let readings = sent
        .readings
        .iter()
        .filter(|_| sent.window_largest.is_some());
    let unread = readings.map(|reading| {
        largest = largest.max(reading.window);
        largest - reading.window
    });
    unread.collect()
}

/// Payload bits per second of each step.
fn rates(sent: &Sent, counts: impl Fn(&Reading) -> bool) -> Vec<f64> {
    let before = std::iter::once(0).chain(sent.readings.iter().map(|reading| reading.bytes));
    let steps = before
        .zip(&sent.readings)
        .filter(|(_, reading)| counts(reading));
    let rates = steps.map(|(before, r)| rate(r.bytes.saturating_sub(before), seconds(r.length)));
    rates.filter(|bps| *bps > 0.0).collect()
}

fn steps(sent: &Sent) -> Option<StepRates> {
    let grouped = grouped(sent, STEP_S);
    StepRates::new(
        grouped
            .iter()
            .map(|interval| interval.throughput_bps)
            .collect(),
        STEP_S,
    )
}

fn intervals(sent: &Sent) -> Vec<Interval> {
    let least = seconds(sent.lasted) / MOST_INTERVALS;
    grouped(
        sent,
        [0.1, 1.0, 10.0, 60.0]
            .into_iter()
            .find(|s| *s >= least)
            .unwrap_or(least),
    )
}

/// Readings put together to intervals of at least so many seconds.
fn grouped(sent: &Sent, least_s: f64) -> Vec<Interval> {
    let Some(began) = sent.readings.first().map(|first| first.at - first.length) else {
        return Vec::new();
    };
    let (mut all, mut open) = (Vec::new(), Interval::default());
    let (mut bytes, mut again, mut rtts) = (0, 0, Vec::new());
    for (place, reading) in sent.readings.iter().enumerate() {
        rtts.extend(reading.rtt.map(|rtt| rtt.0 as f64 / 1e3));
        let end = seconds(reading.at - began);
        if end - open.start_s < least_s && place + 1 < sent.readings.len() {
            continue;
        }
        open.seconds = end - open.start_s;
        open.bytes = reading.bytes.saturating_sub(bytes);
        open.throughput_bps = rate(open.bytes, open.seconds);
        open.rtt_us = (!rtts.is_empty()).then(|| rtts.iter().sum::<f64>() / rtts.len() as f64);
        open.retransmitted_segments = Some(reading.retransmitted.saturating_sub(again));
        (bytes, again) = (reading.bytes, reading.retransmitted);
        rtts.clear();
        all.push(std::mem::replace(
            &mut open,
            Interval {
                start_s: end,
                ..Interval::default()
            },
        ));
    }
    all
}

fn missing_segments(flow: &Flow) -> u64 {
    let missing = |sent: &Sent| {
        sent.counts
            .missing_bytes
            .div_ceil(u64::from(sent.mss.max(1)))
    };
    flow.sent.iter().map(missing).sum()
}

fn caveats(capture: &Capture) -> Vec<Caveat> {
    let mut caveats = Vec::new();
    let mut say = |kind, message: String, remedy: &str| {
        caveats.push(Caveat::new(kind, message, remedy));
    };
    if capture.truncated {
        let message = format!(
            "the file ends within a packet, after {} whole ones",
            capture.packets
        );
        say(
            CaveatKind::Partial,
            message,
            "copy it again, or let the capture end by itself",
        );
    }
    if capture.stopped {
        say(
            CaveatKind::Partial,
            "reading was stopped before the end of the file".to_owned(),
            "",
        );
    }
    let largest = capture.flows.iter().max_by_key(|flow| flow.bytes());
    let small = largest.and_then(small_segments);
    let left = capture.left_out;
    if left.flows > 0 {
        let message = format!(
            "{} more connections, with {} bytes, are left out: the smallest of those that were over",
            left.flows, left.flow_bytes
        );
        say(
            CaveatKind::Partial,
            message,
            "filter the capture by port or host",
        );
    }
    if left.cut + left.fragments > 0 {
        let message = format!(
            "{} TCP segments were cut within their header, {} packets are fragments: neither counts",
            left.cut, left.fragments
        );
        say(
            CaveatKind::NotReadable,
            message,
            "capture with a snap length of 96 bytes or more",
        );
    }
    let missing: u64 = capture.flows.iter().map(missing_segments).sum();
    if missing > 0 {
        let message = format!("{missing} segments were acknowledged that are not in the capture");
        say(
            CaveatKind::NotReadable,
            message,
            "capture with a larger buffer (tcpdump -B), or fewer bytes of each packet (-s 96)",
        );
    }
    let cold = capture
        .flows
        .iter()
        .filter(|flow| flow.sent.iter().any(|s| s.window_largest.is_none()));
    let cold = cold.filter(|flow| flow.bytes() > 0).count();
    if cold > 0 {
        let message = format!(
            "{cold} connections began before the capture: the scale of their windows is not known, \
             so that a receive window cannot be told"
        );
        say(
            CaveatKind::NotReadable,
            message,
            "begin the capture before the connection",
        );
    }
    caveats.extend(small);
    caveats
}

/// By its number in files.
fn link_name(number: Option<i32>) -> &'static str {
    match number {
        Some(0 | 108) => "loopback",
        Some(1) => "Ethernet",
        Some(12 | 14 | 101 | 228 | 229) => "raw IP",
        Some(113) => "Linux cooked",
        Some(276) => "Linux cooked, version 2",
        _ => "unknown",
    }
}

fn seconds(time: crate::units::Nanos) -> f64 {
    time.0 as f64 / 1e9
}

fn rate(bytes: u64, seconds: f64) -> f64 {
    if seconds > 0.0 {
        bytes as f64 * 8.0 / seconds
    } else {
        0.0
    }
}

fn micros(us: u64) -> u32 {
    u32::try_from(us).unwrap_or(u32::MAX)
}

fn median(values: Vec<u64>) -> Option<u64> {
    quantile(values, 0.5)
}

/// The value that this share does not exceed: an observed one.
fn quantile<T: Copy + PartialOrd>(mut values: Vec<T>, share: f64) -> Option<T> {
    values.sort_by(|a, b| a.partial_cmp(b).unwrap_or(std::cmp::Ordering::Equal));
    let last = values.len().checked_sub(1)?;
    values.get((last as f64 * share).floor() as usize).copied()
}

/// Standard deviation over mean; `None` for fewer than four.
fn variation(values: &[u64]) -> Option<f64> {
    let n = values.len() as f64;
    let mean = values.iter().sum::<u64>() as f64 / n;
    let square = values
        .iter()
        .map(|v| (*v as f64 - mean).powi(2))
        .sum::<f64>()
        / (n - 1.0);
    let variation = square.sqrt() / mean;
    (values.len() >= 4 && variation.is_finite()).then_some(variation)
}

/// The lower quartile of the bytes in flight over their largest: a window that is halved, or cut to
/// 0.7, at each loss and grows evenly comes to 0.6 to 0.85.
const FLIGHT_STAYS: f64 = 0.92;
/// As a record's steps.
const STEP_S: f64 = 0.1;
const MOST_INTERVALS: f64 = 120.0;
