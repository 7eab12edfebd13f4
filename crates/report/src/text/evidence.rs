//! The kernels' evidence on the flows of a direction: the facts for one line each.

use linerate_core::record::{Leg, Record, TcpEvidence, TcpReceiver, TcpSender, UdpEvidence};

use super::number::{
    bytes, count, counted, exact_bytes, if_known, joined, micros, named, percent, rate, with_unit,
};
use crate::page::Page;

/// Why the host-wide service demand of an end is not meaningful, if that is so.
pub(super) fn service_demand_doubt(record: &Record, leg: &Leg) -> Option<&'static str> {
    let mut ends = leg.ends();
    let meaningless = ends.any(|(_, end)| end.service_demand_meaningful == Some(false));
    match record.environment.shared_kernel {
        true => Some("not meaningful: both ends share one kernel"),
        false => meaningless.then_some("not meaningful: idle CPUs were kept awake"),
    }
}

/// The figures of a direction besides its rate, for one line.
pub(super) fn in_short(leg: &Leg) -> Vec<String> {
    let rtt = leg.tcp_sender().and_then(|tcp| match mean_rtt_us(tcp) {
        Some(mean) => {
            let least = named("(min", tcp.rtt_min_us, |us| micros(us.into()) + ")");
            Some(joined([Some(format!("RTT {}", micros(mean.into()))), least], " "))
        }
        None => named("RTT min", tcp.rtt_min_us, |us| micros(us.into())),
    });
    let tcp = [rtt, leg.tcp.as_ref().and_then(retransmitted)];
    let udp = leg.udp.iter().flat_map(|udp| {
        let share = percent(share_percent(udp.lost, udp.sent));
        let lost = match udp.lost {
            0 => "none lost".to_owned(),
            lost => format!("{} of {} lost ({share})", count(lost), count(udp.sent)),
        };
        [
            Some(lost),
            Some(format!("jitter {}", micros(udp.jitter_us))),
            counted(udp.reordered, "reordered"),
            counted(udp.duplicated, "duplicated"),
            asked(udp),
        ]
    });
    tcp.into_iter().chain(udp).flatten().collect()
}

/// The mean round trip, if one was measured.
fn mean_rtt_us(tcp: &TcpSender) -> Option<u32> {
    Some(tcp.rtt_mean_us).filter(|us| *us > 0)
}

fn asked(udp: &UdpEvidence) -> Option<String> {
    named("asked", udp.asked_bps, |bps| rate(bps as f64))
}

/// Writes what both kernels counted of the flows of a direction.
pub(super) fn write(page: &mut Page, tcp: Option<&TcpEvidence>, udp: Option<&UdpEvidence>) {
    if let Some(evidence) = tcp {
        let Some(tcp) = evidence.sender() else {
            return page.facts("TCP", seen_by_receiver(evidence));
        };
        let us = |us: u32| micros(us.into());
        let rtt = [
            named("smallest", tcp.rtt_min_us, us),
            named("mean", mean_rtt_us(tcp), us),
            named("deviation", mean_rtt_us(tcp).map(|_| tcp.rtt_var_us), us),
        ];
        page.facts("RTT", rtt);
        page.facts("loss", retransmissions(tcp));
        page.facts("windows", windows(tcp, evidence.receiver.as_ref()));
        page.facts("segments", segments(tcp));
        page.facts("time", limited_times(tcp));
        page.facts("TCP", control(tcp));
    }
    if let Some(udp) = udp {
        page.facts("datagrams", datagrams(udp));
        page.facts("lost", losses(udp));
        page.facts("order", order(udp));
        page.facts("timing", timing(udp));
    }
}

/// `12 retransmitted (0.0995 %)`
pub(super) fn retransmitted(tcp: &TcpEvidence) -> Option<String> {
    let share = if_known(tcp.sender().and_then(retransmitted_percent), |share| {
        format!(" ({})", percent(share))
    });
    let number = counted(tcp.retransmitted_segments()?, "retransmitted");
    Some(number.map_or_else(|| "none retransmitted".to_owned(), |it| it + &share))
}

/// The evidence where the sender's kernel was not read.
fn seen_by_receiver(tcp: &TcpEvidence) -> [Option<String>; 4] {
    let receiver = tcp.receiver.as_ref();
    let least_us = receiver.and_then(|end| end.rtt_min_us);
    [
        retransmitted(tcp),
        named("smallest RTT", least_us, |us| micros(us.into())),
        path_mtu(receiver.map_or(0, |end| end.pmtu_bytes)),
        receiver.and_then(buffer),
    ]
}

fn path_mtu(bytes: u32) -> Option<String> {
    (bytes > 0).then(|| format!("path MTU {}", exact_bytes(bytes)))
}

/// Retransmitted segments, and why.
fn retransmissions(tcp: &TcpSender) -> [Option<String>; 6] {
    let again = tcp.retransmitted_segments;
    let share = retransmitted_percent(tcp);
    let of_sent = if_known(share, |share| format!(" ({} of those sent)", percent(share)));
    let spurious = tcp.dsack_duplicates.filter(|_| again > 0);
    let losses = (again > 0).then_some(tcp.loss_events);
    [
        Some(format!("retransmitted {} segments{of_sent}", count(again))),
        spurious.map(|n| format!("{} spurious", count(n))),
        losses.map(|n| format!("{} loss events", count(n))),
        counted(tcp.timeouts, "timeouts"),
        counted(tcp.reordering_seen, "reorderings"),
        counted(tcp.delivered_ce, "ECN marks"),
    ]
}

/// Segments retransmitted as a share of all that were sent, percent.
pub(super) fn retransmitted_percent(tcp: &TcpSender) -> Option<f64> {
    let sent = tcp.data_segments_out.filter(|&sent| sent > 0)?;
    Some(share_percent(tcp.retransmitted_segments, sent))
}

/// Windows, buffers, and the bytes in them.
fn windows(tcp: &TcpSender, receiver: Option<&TcpReceiver>) -> [Option<String>; 7] {
    let sending = Some(tcp.send_buffer_bytes).filter(|bytes| *bytes > 0);
    let unread = receiver.and_then(|end| end.unread_bytes);
    let fixed = fixed(tcp.send_buffer_locked);
    [
        named("congestion", Some(tcp.cwnd_bytes).filter(|bytes| *bytes > 0), bytes),
        named("in flight", Some(tcp.unacked_bytes), bytes),
        named("receive window", tcp.send_window_bytes, bytes),
        named("unsent", tcp.notsent_bytes, bytes),
        named("waiting unread", unread, bytes),
        named("send buffer", sending, |size| bytes(size) + fixed),
        receiver.and_then(buffer),
    ]
}

fn buffer(receiver: &TcpReceiver) -> Option<String> {
    let fixed = fixed(receiver.buffer_locked);
    named("receive buffer", receiver.buffer_bytes, |size| bytes(size) + fixed)
}

fn fixed(locked: bool) -> &'static str {
    if locked { " (fixed)" } else { "" }
}

/// Sizes on the wire.
fn segments(tcp: &TcpSender) -> [Option<String>; 3] {
    let (mss, mean) = (tcp.mss_bytes, tcp.effective_segment_bytes);
    [
        (mss > 0).then(|| format!("MSS {}", exact_bytes(mss))),
        named("mean payload", mean, |mean| with_unit(mean, "B")),
        path_mtu(tcp.pmtu_bytes),
    ]
}

/// What the sender waited for, according to its kernel. The send buffer is mentioned only if it is
/// not zero: with cubic it is always zero.
fn limited_times(tcp: &TcpSender) -> Vec<String> {
    let Some(busy) = tcp.busy_us.filter(|&busy| busy > 0) else {
        return Vec::new();
    };
    let window = tcp.rwnd_limited_us.unwrap_or(0);
    let buffer = tcp.sndbuf_limited_us.unwrap_or(0);
    let neither = busy.saturating_sub(window.saturating_add(buffer));
    let idle = tcp.app_limited_share.filter(|&share| share > 0.0);
    let share = |us: u64| percent(share_percent(us, busy));
    let closed = tcp.zero_window_us.map(|us| {
        let times = count(tcp.zero_windows.unwrap_or(0));
        format!("no window offered for {} (zero windows: {times})", micros(us as f64))
    });
    let facts = [
        named("busy", Some(busy as f64), micros),
        closed,
        named("limited by receive window", Some(window), share),
        named("by send buffer", (buffer > 0).then_some(buffer), share),
        named("by neither", Some(neither), share),
        idle.map(|idle| format!("app-limited {} of samples", percent(100.0 * idle))),
    ];
    facts.into_iter().flatten().collect()
}

/// The congestion control, its rates, and the socket options.
fn control(tcp: &TcpSender) -> impl Iterator<Item = Option<String>> {
    let bps = |bps: u64| rate(bps as f64);
    let fell_back = tcp.mptcp_fallback == Some(true);
    let before = [
        tcp.congestion.clone(),
        named("delivers", tcp.delivery_rate_bps, bps),
        named("paced at most", tcp.max_pacing_rate_bps, bps),
    ];
    let after = [
        tcp.subflows.map(|n| format!("{n} subflows")),
        fell_back.then(|| "fell back from MPTCP to TCP".to_owned()),
    ];
    let options = tcp.options.iter().cloned().map(Some);
    before.into_iter().chain(options).chain(after)
}

/// Datagrams that were sent and received.
fn datagrams(udp: &UdpEvidence) -> [Option<String>; 4] {
    [
        Some(format!("{} sent", count(udp.sent))),
        Some(format!("{} received", count(udp.received))),
        asked(udp),
        counted(udp.send_refused, "refused by the sender's kernel"),
    ]
}

/// Where datagrams were lost.
fn losses(udp: &UdpEvidence) -> [String; 2] {
    let share = percent(share_percent(udp.lost, udp.sent));
    let path = udp.path_loss_percent.map(percent);
    let place = match (udp.socket_drops.map(count), path) {
        (Some(drops), Some(path)) => format!("socket drops {drops}, path alone {path}"),
        _ => "on the path or by the receiver's socket".to_owned(),
    };
    [format!("{} ({share})", count(udp.lost)), place]
}

/// Datagrams that arrived changed: duplicated, reordered, malformed, corrupted.
fn order(udp: &UdpEvidence) -> [Option<String>; 4] {
    let all = |number: u64, what: &str| Some(format!("{} {what}", count(number)));
    [
        all(udp.duplicated, "duplicated"),
        all(udp.reordered, "reordered"),
        all(udp.malformed, "malformed"),
        udp.corrupted_bytes.and_then(|n| all(n, "bytes corrupted")),
    ]
}

/// Jitter of arrivals, and gaps between departures.
fn timing(udp: &UdpEvidence) -> [Option<String>; 3] {
    let gaps = udp.gaps_us.map(|gaps| {
        let [p50, p90, p99, max] = [gaps.p50, gaps.p90, gaps.p99, gaps.max].map(micros);
        format!("gaps between departures p50 {p50}, p90 {p90}, p99 {p99}, max {max}")
    });
    let added = |us| format!("one-way delay {} above its smallest", micros(us));
    [named("jitter", Some(udp.jitter_us), micros), udp.added_delay_us.map(added), gaps]
}

/// `part` of `whole` in percent; NaN if `whole` is 0.
pub(super) fn share_percent(part: u64, whole: u64) -> f64 {
    100.0 * part as f64 / whole as f64
}
