//! Turns the packets of a capture into evidence for the rules, and says why its segments are small.

use super::document::{
    Connection, ConnectionsDocument, PacketKind, Settled, Source, State, Vantage,
};
use super::steady::{self, Held, Steady};
use crate::capture::{Capture, Encapsulation, Flow, Reading, Sent, Side, link_name};
use crate::plan::Direction;
use crate::record::{
    Caveat, CaveatKind, Interval, Status, StepRates, TcpEvidence, TcpReceiver, TcpSender,
};
use crate::stats::variation;
use crate::units::Nanos;

impl ConnectionsDocument {
    /// The document of what [`crate::capture::follow`] found in a file.
    pub fn from_capture(file: &str, capture: &Capture) -> Self {
        let missing: u64 = capture.flows.iter().map(missing_segments).sum();
        let source = Source::Capture {
            file: file.to_owned(),
            packets: capture.packets,
            link: capture.link.and_then(link_name).unwrap_or("unknown").to_owned(),
            snap_bytes: capture.snap_bytes.unwrap_or(0),
            missing: missing + capture.left_out.cut,
            kinds: capture.kinds.iter().map(PacketKind::from).collect(),
        };
        Self {
            status: Status::new(!capture.truncated && !capture.stopped),
            seconds: seconds(capture.ended - capture.began),
            connections: capture.flows.iter().map(Connection::from_flow).collect(),
            requests: Some(Box::new(capture.requests.clone())).filter(|it| !it.is_empty()),
            caveats: caveats(capture),
            ..Self::new(source)
        }
    }
}

impl From<&crate::capture::PacketKind> for PacketKind {
    fn from(kind: &crate::capture::PacketKind) -> Self {
        Self { what: kind.what.clone(), inside: names(kind.inside), packets: kind.packets }
    }
}

fn names(inside: Encapsulation) -> Vec<String> {
    inside.names().into_iter().map(str::to_owned).collect()
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
        let steady = Steady::new(sent);
        let held = steady::what_holds(flow, side, &steady);
        let silent_after = seconds(sent.silent_after);
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
            silent_after_s: Some(silent_after).filter(|silent| *silent > 0.0),
            unanswered_timeouts: Some(sent.unanswered).filter(|timeouts| *timeouts > 0),
            settled: steady.begins_s().map(|from_s| Settled {
                from_s,
                throughput_bps: steady.throughput_bps(),
                tcp: Some(evidence(flow, side, &steady, held)),
            }),
            steps: steps(&steady),
            requests: flow.requests.clone(),
            tcp: Some(evidence(flow, side, &Steady::whole(sent), held)),
            intervals: intervals(sent),
            inside: names(flow.inside),
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

fn evidence(flow: &Flow, side: Side, steady: &Steady<'_>, held: Held) -> TcpEvidence {
    let receiver = TcpReceiver {
        advmss_bytes: offered_mss(flow, side.other()),
        window_bytes: steady.sent.window_largest,
        unread_bytes: quantile(unread(steady), 0.5),
        ..TcpReceiver::default()
    };
    let mut sender = sender(flow, side, steady);
    match held {
        Held::Paced(bps) => {
            sender.pacing_rate_bps = Some(bps);
            sender.max_pacing_rate_bps = Some(bps);
        }
        Held::Full(bytes) => {
            sender.send_buffer_bytes = bytes;
            sender.send_buffer_locked = true;
        }
        Held::Written => sender.app_limited_share = Some(1.0),
        Held::Unknown => {}
    }
    let mut evidence = TcpEvidence::from(sender);
    evidence.receiver = Some(receiver);
    evidence
}

fn sender(flow: &Flow, side: Side, steady: &Steady<'_>) -> TcpSender {
    let sent = steady.sent;
    let again = steady.retransmitted();
    let rtts = steady.rtts_us();
    let windows = Some(steady.flights()).filter(|_| follows_losses(steady)).unwrap_or_default();
    let samples = Some(steady.readings.len() as u64).filter(|_| is_always_repairing(steady));
    let all_bytes = sent.bytes + sent.retransmitted.bytes;
    let segment = share(all_bytes, sent.counts.segments);
    let segments =
        segment.map(|each| ((steady.bytes() + again.bytes) as f64 / each).round() as u64);
    let loss_flights: Vec<f64> = steady.loss_flights().iter().map(|b| *b as f64).collect();
    let at_sender = flow.near == Some(side);
    let is_bbr = |even| steady::is_paced_through_losses(&even, at_sender);
    // Without losses nothing tells how the sender answers to them.
    let is_through_losses = sent.retransmitted.episodes > 0 && sent.evenness.is_some_and(is_bbr);
    TcpSender {
        congestion: is_through_losses.then(|| LIKE_BBR.to_owned()),
        mss_bytes: sent.mss,
        advmss_bytes: offered_mss(flow, side),
        effective_segment_bytes: segment,
        rtt_min_us: sent.rtt_min.map(|rtt| micros(rtt.0 / 1000)),
        rtt_mean_us: micros((steady.mean_rtt_ns() / 1e3) as u64),
        rtt_var_us: micros(unsteadiness(&rtts)),
        rtt_p95_us: quantile(rtts, 0.95).map(micros),
        retransmitted_segments: again.segments,
        retransmitted_bytes: Some(again.bytes),
        dsack_duplicates: Some(again.spurious),
        loss_events: samples.unwrap_or(again.episodes),
        samples,
        loss_window_variation: variation(&loss_flights).filter(|_| loss_flights.len() >= 4),
        timeouts: Some(again.timeouts),
        timeout_wait_us: Some(again.waited.0 / 1000).filter(|us| *us > 0),
        reordering_seen: Some(sent.counts.reordered),
        delivered_ce: Some(sent.counts.marked),
        data_segments_out: segments.filter(|n| *n > 0),
        segments_in: Some(sent.counts.acks),
        cwnd_mean_bytes: (windows.iter().sum::<u64>()).checked_div(windows.len() as u64),
        cwnd_bytes: quantile(windows, 0.5).unwrap_or(0),
        ssthresh_bytes: sent.loss_flights.last().copied(),
        unacked_bytes: steady.flight(0.5).unwrap_or(0),
        delivery_rate_bps: quantile(rates(steady, |_| true), 0.5).map(|bps| bps as u64),
        // The largest is that of a burst.
        delivery_rate_max_bps: quantile(rates(steady, |r| !r.is_repairing), 0.95)
            .map(|bps| bps as u64),
        options: options(flow),
        ..waits(steady)
    }
}

/// What the sender waited for: its own data, or room in the receiver's window.
fn waits(steady: &Steady<'_>) -> TcpSender {
    let count = |pick: fn(&Reading) -> u64| steady.readings.iter().map(pick).sum::<u64>();
    let rounds = count(|r| r.rounds.into());
    let full = count(|r| r.full.into());
    let idle = count(|r| u64::from(r.idle.0 * 2 >= r.length.0));
    let part = |time: Nanos, r: &Reading| time.0 as f64 / r.length.0.max(1) as f64;
    let busy = |r: &Reading| 1.0 - part(r.idle, r);
    let closed = |r: &Reading| part(r.closed, r);
    let limited = |r: &Reading| {
        closed(r) + (busy(r) - closed(r)) * f64::from(r.full) / f64::from(r.rounds.max(1))
    };
    let us = |share: &dyn Fn(&Reading) -> f64| (steady.time(share) * 1e6) as u64;
    let (idle_us, closed_us) = (us(&|r| part(r.idle, r)), us(&closed));
    let sent = steady.sent;
    let asked = sent.asked.0 as f64 / sent.idle.0.max(1) as f64;
    let is_told = sent.window_largest.is_some();
    let is_timed = steady.seconds() > 0.0;
    TcpSender {
        send_window_bytes: quantile(steady.windows(), 0.5).filter(|_| is_told),
        send_window_full_share: share(full, rounds).filter(|_| is_told),
        busy_us: is_timed.then(|| us(&busy)),
        rwnd_limited_us: (is_told && is_timed).then(|| us(&limited)),
        app_limited_share: share(idle, steady.readings.len() as u64),
        idle_us: is_timed.then_some(idle_us),
        idle_until_asked_us: is_timed.then_some((idle_us as f64 * asked) as u64),
        zero_window_us: Some(closed_us).filter(|us| *us > 0),
        zero_windows: Some(sent.counts.zero_windows).filter(|times| *times > 0),
        alone_share: share(sent.counts.alone, sent.counts.new_frames),
        ..TcpSender::default()
    }
}

/// The MSS that an end offered in its SYN, bytes; 0 if it is not known.
fn offered_mss(flow: &Flow, side: Side) -> u32 {
    let offer = flow.offer_of(side).and_then(|offer| offer.mss);
    offer.map_or(0, u32::from)
}

fn share(part: u64, all: u64) -> Option<f64> {
    (all > 0).then(|| part as f64 / all as f64)
}

/// Mean change of the round trip from one reading to the next: a queue changes slowly, jitter does
/// not.
fn unsteadiness(rtts: &[u64]) -> u64 {
    let changes = rtts.windows(2).map(|pair| pair[0].abs_diff(pair[1]));
    changes.sum::<u64>() / (rtts.len() as u64).saturating_sub(1).max(1)
}

/// The TCP options that the SYNs of both ends have.
fn options(flow: &Flow) -> Vec<String> {
    let [Some(a), Some(b)] = flow.offers else {
        return Vec::new();
    };
    let scale = a.window_scale.and(b.window_scale).is_some();
    let options = [
        (a.timestamps && b.timestamps, "timestamps"),
        (a.sack && b.sack, "sack"),
        (scale, "wscale"),
    ];
    let on = options.into_iter().filter(|(on, _)| *on);
    on.map(|(_, name)| name.to_owned()).collect()
}

/// Whether the bytes in flight fall with losses and grow again: then the congestion window limits
/// them. If they stay the same, something else limits them, which packets do not show.
fn follows_losses(steady: &Steady<'_>) -> bool {
    let flights = steady.flight(0.25).zip(steady.flight(0.9));
    let varies = flights.is_some_and(|(low, high)| (low as f64) < FLIGHT_STAYS * high as f64);
    steady.retransmitted().episodes > 0 && varies
}

/// Whether losses come in each round trip and the sender goes on: then none of them is a separate
/// event.
fn is_always_repairing(steady: &Steady<'_>) -> bool {
    2.0 * steady.time(|r| f64::from(u8::from(r.is_repairing))) > steady.seconds()
}

/// For each reading the difference of the window from the largest one so far: data that was not
/// read yet.
fn unread(steady: &Steady<'_>) -> Vec<u64> {
    let mut largest = 0;
    let is_told = steady.sent.window_largest.is_some();
    let readings = steady.readings.iter().filter(|_| is_told);
    let unread = readings.map(|reading| {
        largest = largest.max(reading.window);
        largest - reading.window
    });
    unread.collect()
}

/// Payload bits per second of each step.
fn rates(steady: &Steady<'_>, counts: impl Fn(&Reading) -> bool) -> Vec<f64> {
    let readings = steady.readings;
    let before =
        std::iter::once(steady.bytes_before()).chain(readings.iter().map(|reading| reading.bytes));
    // The last one may be of a moment.
    let longest = readings.iter().map(|r| r.length).max();
    let is_whole = |reading: &Reading| longest.is_some_and(|most| reading.length.0 * 4 >= most.0);
    let steps = before.zip(readings).filter(|(_, reading)| is_whole(reading) && counts(reading));
    let rates = steps.map(|(before, r)| rate(r.bytes.saturating_sub(before), seconds(r.length)));
    rates.filter(|bps| *bps > 0.0).collect()
}

fn steps(steady: &Steady<'_>) -> Option<StepRates> {
    let grouped = grouped(steady.readings, steady.bytes_before(), STEP_S);
    let rates = grouped.iter().map(|interval| interval.throughput_bps);
    StepRates::new(rates.collect(), STEP_S)
}

fn intervals(sent: &Sent) -> Vec<Interval> {
    let least = seconds(sent.lasted) / MAX_INTERVALS;
    let mut usual = [0.1, 1.0, 10.0, 60.0].into_iter();
    let length = usual.find(|s| *s >= least).unwrap_or(least);
    grouped(&sent.readings, 0, length)
}

/// Merges readings to intervals of at least so many seconds.
fn grouped(readings: &[Reading], bytes_before: u64, least_s: f64) -> Vec<Interval> {
    let Some(began) = readings.first().map(|first| first.at - first.length) else {
        return Vec::new();
    };
    let (mut all, mut open) = (Vec::new(), Interval::default());
    let (mut bytes, mut again, mut rtts) = (bytes_before, 0, Vec::new());
    for (place, reading) in readings.iter().enumerate() {
        rtts.extend(reading.rtt.map(|rtt| rtt.0 as f64 / 1e3));
        let end = seconds(reading.at - began);
        if end - open.start_s < least_s && place + 1 < readings.len() {
            continue;
        }
        open.seconds = end - open.start_s;
        open.bytes = reading.bytes.saturating_sub(bytes);
        open.throughput_bps = rate(open.bytes, open.seconds);
        open.rtt_us = (!rtts.is_empty()).then(|| rtts.iter().sum::<f64>() / rtts.len() as f64);
        open.retransmitted_segments = Some(reading.retransmitted.segments.saturating_sub(again));
        (bytes, again) = (reading.bytes, reading.retransmitted.segments);
        rtts.clear();
        // The rest of the last one says little by itself.
        if let Some(last) = all.last_mut().filter(|_| open.seconds * 2.0 < least_s) {
            merge(last, &open);
            continue;
        }
        let next = Interval { start_s: end, ..Interval::default() };
        all.push(std::mem::replace(&mut open, next));
    }
    all
}

fn merge(interval: &mut Interval, next: &Interval) {
    interval.seconds += next.seconds;
    interval.bytes += next.bytes;
    interval.throughput_bps = rate(interval.bytes, interval.seconds);
    let again = interval.retransmitted_segments.zip(next.retransmitted_segments);
    interval.retransmitted_segments = again.map(|(one, other)| one + other);
}

fn missing_segments(flow: &Flow) -> u64 {
    let sent = flow.sent.iter();
    let missing = sent.map(|sent| sent.counts.missing_bytes.div_ceil(sent.mss.max(1).into()));
    missing.sum()
}

/// Whether the connection began before the capture.
fn is_cold(flow: &Flow) -> bool {
    flow.bytes() > 0 && flow.offers == [None; 2]
}

/// Whether the larger direction's segments are missing, all of them.
fn is_acks_only(flow: &Flow) -> bool {
    !flow.sent_by(flow.main_sender()).is_seen
}

fn caveats(capture: &Capture) -> Vec<Caveat> {
    use CaveatKind::{NotReadable, Partial};
    let mut caveats = Vec::new();
    let mut add = |kind, message: String, remedy: &str| {
        caveats.push(Caveat::new(kind, message, remedy));
    };
    if capture.truncated {
        let packets = capture.packets;
        let message = format!("the file ends within a packet, after {packets} whole ones");
        let remedy = "copy it again, or let the capture end by itself";
        add(Partial, message, remedy);
    }
    if capture.stopped {
        let message = "reading was stopped before the end of the file";
        add(Partial, message.to_owned(), "");
    }
    let left = capture.left_out;
    if left.flows > 0 {
        let (flows, bytes) = (left.flows, left.flow_bytes);
        let message = format!(
            "{flows} more connections, with {bytes} bytes, are left out: the smallest of those that \
             were over"
        );
        add(Partial, message, "filter the capture by port or host");
    }
    if left.cut > 0 {
        let message =
            format!("{} packets were cut within their headers: they do not count", left.cut);
        let remedy = "capture with a snap length of 96 bytes or more, and of 200 in tunnels";
        add(NotReadable, message, remedy);
    }
    if left.fragments > 0 {
        let message = format!(
            "{} fragments of IP packets came without the others of their packet: they do not count",
            left.fragments
        );
        add(NotReadable, message, "capture all fragments: filters by port pass only the first");
    }
    let missing: u64 = capture.flows.iter().map(missing_segments).sum();
    if missing > 0 {
        let message = format!("{missing} segments were acknowledged that are not in the capture");
        let remedy =
            "capture with a larger buffer (tcpdump -B), or fewer bytes of each packet (-s 96)";
        add(NotReadable, message, remedy);
    }
    let cold = capture.flows.iter().filter(|flow| is_cold(flow)).count();
    if cold > 0 {
        let message = format!(
            "{cold} connections began before the capture: the scale of their windows is not known, \
             so that a receive window cannot be told"
        );
        add(NotReadable, message, "begin the capture before the connection");
    }
    caveats.extend(doubts(capture));
    let largest = capture.flows.iter().max_by_key(|flow| flow.bytes());
    caveats.extend(largest.and_then(small_segments));
    caveats
}

/// What else makes figures of a capture uncertain.
fn doubts(capture: &Capture) -> Vec<Caveat> {
    let mut caveats = Vec::new();
    let mut add = |message: String, remedy: &str| {
        caveats.push(Caveat::new(CaveatKind::NotReadable, message, remedy));
    };
    let untimed = capture.left_out.untimed;
    if untimed > 0 {
        let message = format!(
            "{untimed} packets have no time (pcapng's simple packet blocks): neither rates nor \
             round trips are known of them"
        );
        add(message, "capture with a program that keeps the times, such as tcpdump");
    }
    let one_sided = capture.flows.iter().filter(|flow| is_acks_only(flow)).count();
    if one_sided > 0 {
        let message = format!(
            "of {one_sided} connections only the receiver's packets were captured: bytes are those \
             that it acknowledged, and losses, round trips and the bottleneck cannot be told"
        );
        add(message, "capture both directions");
    }
    let unknown = capture.requests.captured.unknown_requests;
    if unknown > 0 {
        let message = format!(
            "of {unknown} requests neither a handshake nor a prompt acknowledgement tells the \
             round trip, so that it counts as the server's time"
        );
        add(message, "begin the capture before the connection");
    }
    let copies: u64 = capture.flows.iter().map(|flow| flow.copies).sum();
    if copies > 0 {
        let message = format!(
            "{copies} packets were recorded twice, on two interfaces, or on both sides of a router \
             or tunnel: each counts once"
        );
        add(message, "capture on one interface");
    }
    caveats
}

fn seconds(time: crate::units::Nanos) -> f64 {
    time.0 as f64 / 1e9
}

fn rate(bytes: u64, seconds: f64) -> f64 {
    if seconds > 0.0 { bytes as f64 * 8.0 / seconds } else { 0.0 }
}

fn micros(us: u64) -> u32 {
    u32::try_from(us).unwrap_or(u32::MAX)
}

/// The value that this share does not exceed: an observed one.
pub(super) fn quantile<T: Copy + PartialOrd>(mut values: Vec<T>, share: f64) -> Option<T> {
    values.sort_by(|a, b| a.partial_cmp(b).unwrap_or(std::cmp::Ordering::Equal));
    let last = values.len().checked_sub(1)?;
    values.get((last as f64 * share).floor() as usize).copied()
}

/// The lower quartile of the bytes in flight over their largest: a window that is halved, or cut to
/// 0.7, at each loss and grows evenly comes to 0.6 to 0.85.
const FLIGHT_STAYS: f64 = 0.92;
/// It paces, and goes on through losses, as BBR does.
const LIKE_BBR: &str = "bbr-like";
/// As a record's steps.
const STEP_S: f64 = 0.1;
const MAX_INTERVALS: f64 = 120.0;

// Small segments, as the SYNs of both ends have it.

/// What the SYNs told, where it is less than Ethernet carries or the ends differ; `None` for what
/// is usual.
pub(super) fn small_segments(flow: &Flow) -> Option<Caveat> {
    let told = |side| Some(f64::from(flow.offer_of(side)?.mss?));
    let [initiator, responder] = [told(Side::Initiator)?, told(Side::Responder)?];
    let (side, least, most) = if initiator < responder {
        (Side::Initiator, initiator, responder)
    } else {
        (Side::Responder, responder, initiator)
    };
    let is_ipv4 = flow.ends[0].is_ipv4();
    let usual = if is_ipv4 { USUAL_IPV4 } else { USUAL_IPV6 };
    let end = flow.ends[side as usize];
    let message = if least < SMALL * most {
        let why = match flow.near {
            Some(near) if near == side => {
                "the MTU of this host's interface, the advmss of its route, or TCP_MAXSEG"
            }
            _ => {
                "a router on the way clamps the MSS, or the MTU of that host's interface, the \
                 advmss \
                 of its route or TCP_MAXSEG is smaller"
            }
        };
        format!("the SYN of {end} came with an MSS of {least}, the other end's with {most}: {why}")
    } else if least < SMALL * usual {
        format!(
            "the SYNs of both ends came with an MSS of {least}, and Ethernet carries {usual}: a \
             router on the way clamps the MSS, or interfaces have a smaller MTU"
        )
    } else {
        return None;
    };
    let remedy = "capture at the other end, too: an MSS that differs there was changed on the way";
    Some(Caveat::new(CaveatKind::SmallSegments, message, remedy))
}

/// A tunnel takes 60 bytes and more, PPPoE 8.
const SMALL: f64 = 0.95;
/// Ethernet's MTU of 1500 less the headers of IP and TCP, bytes.
const USUAL_IPV4: f64 = 1460.0;
const USUAL_IPV6: f64 = 1440.0;
