//! The kernels' evidence on the flows of a direction: the facts for one line each.

use linerate_core::record::{Leg, Record, TcpEvidence, TcpReceiver, TcpSender, UdpEvidence};

use super::number::{bytes, count, exact_bytes, micros, percent, rate, with_unit};

/// Why the host-wide service demand of an end is not meaningful, if that is so.
pub(super) fn service_demand_doubt(record: &Record, leg: &Leg) -> Option<&'static str> {
    let meaningless = leg
        .ends()
        .any(|(_, end)| end.service_demand_meaningful == Some(false));
    if record.environment.shared_kernel {
        Some("not meaningful: both ends share one kernel")
    } else if meaningless {
        Some("not meaningful: idle CPUs were kept awake")
    } else {
        None
    }
}

/// The figures of a direction besides its rate, for one line.
pub(super) fn in_short(leg: &Leg) -> Vec<String> {
    let mut facts = Vec::new();
    if let Some(tcp) = leg.tcp_sender() {
        let least = tcp
            .rtt_min_us
            .map(|us| format!(" (min {})", micros(us.into())));
        let mean = micros(tcp.rtt_mean_us.into());
        facts.push(format!("RTT {mean}{}", least.unwrap_or_default()));
    }
    facts.extend(leg.tcp.as_ref().and_then(retransmitted));
    if let Some(udp) = &leg.udp {
        let share = share_percent(udp.lost, udp.sent);
        facts.push(match udp.lost {
            0 => "none lost".to_owned(),
            lost => format!(
                "{} of {} lost ({})",
                count(lost),
                count(udp.sent),
                percent(share)
            ),
        });
        facts.push(format!("jitter {}", micros(udp.jitter_us)));
        let others = [(udp.reordered, "reordered"), (udp.duplicated, "duplicated")];
        let others = others.into_iter().filter(|(number, _)| *number > 0);
        facts.extend(others.map(|(number, what)| format!("{} {what}", count(number))));
        facts.extend(
            udp.asked_bps
                .map(|bps| format!("asked {}", rate(bps as f64))),
        );
    }
    facts
}

/// `12 retransmitted (0.0995 %)`
pub(super) fn retransmitted(tcp: &TcpEvidence) -> Option<String> {
    let number = tcp.retransmitted_segments()?;
    if number == 0 {
        return Some("none retransmitted".to_owned());
    }
    let share = tcp.sender().and_then(retransmitted_percent);
    let share = share.map(|share| format!(" ({})", percent(share)));
    let number = count(number);
    Some(format!(
        "{number} retransmitted{}",
        share.unwrap_or_default()
    ))
}

/// The evidence where the sender's kernel was not read.
pub(super) fn seen_by_receiver(tcp: &TcpEvidence) -> Vec<String> {
    let mut facts: Vec<String> = retransmitted(tcp).into_iter().collect();
    let Some(receiver) = &tcp.receiver else {
        return facts;
    };
    let least = receiver.rtt_min_us;
    facts.extend(least.map(|us| format!("smallest RTT {}", micros(us.into()))));
    if receiver.pmtu_bytes > 0 {
        facts.push(format!("path MTU {}", exact_bytes(receiver.pmtu_bytes)));
    }
    facts.extend(buffer(receiver));
    facts
}

/// Retransmitted segments, and why.
pub(super) fn retransmissions(tcp: &TcpSender) -> Vec<String> {
    let again = tcp.retransmitted_segments;
    let share =
        retransmitted_percent(tcp).map(|share| format!(" ({} of those sent)", percent(share)));
    let mut facts = vec![format!(
        "retransmitted {} segments{}",
        count(again),
        share.unwrap_or_default()
    )];
    if again > 0 {
        let spurious = tcp.dsack_duplicates;
        facts.extend(spurious.map(|n| format!("{} spurious", count(n))));
        facts.push(format!("{} loss events", count(tcp.loss_events)));
    }
    let counted = [
        (tcp.timeouts, "timeouts"),
        (tcp.reordering_seen, "reorderings"),
        (tcp.delivered_ce, "ECN marks"),
    ];
    for (figure, what) in counted {
        facts.extend(
            figure
                .filter(|&n| n > 0)
                .map(|n| format!("{} {what}", count(n))),
        );
    }
    facts
}

/// Segments retransmitted as a share of all that were sent, percent.
pub(super) fn retransmitted_percent(tcp: &TcpSender) -> Option<f64> {
    let sent = tcp.data_segments_out.filter(|&sent| sent > 0)?;
    Some(share_percent(tcp.retransmitted_segments, sent))
}

/// Windows, buffers, and the bytes in them.
pub(super) fn windows(tcp: &TcpSender, receiver: Option<&TcpReceiver>) -> Vec<String> {
    let mut facts = vec![
        format!("congestion {}", bytes(tcp.cwnd_bytes)),
        format!("in flight {}", bytes(tcp.unacked_bytes)),
    ];
    let optional = [
        ("receive window", tcp.send_window_bytes),
        ("unsent", tcp.notsent_bytes),
        ("waiting unread", receiver.and_then(|end| end.unread_bytes)),
    ];
    for (what, figure) in optional {
        facts.extend(figure.map(|n| format!("{what} {}", bytes(n))));
    }
    if tcp.send_buffer_bytes > 0 {
        let fixed = fixed(tcp.send_buffer_locked);
        facts.push(format!(
            "send buffer {}{fixed}",
            bytes(tcp.send_buffer_bytes)
        ));
    }
    facts.extend(receiver.and_then(buffer));
    facts
}

fn buffer(receiver: &TcpReceiver) -> Option<String> {
    let fixed = fixed(receiver.buffer_locked);
    Some(format!(
        "receive buffer {}{fixed}",
        bytes(receiver.buffer_bytes?)
    ))
}

fn fixed(locked: bool) -> &'static str {
    if locked { " (fixed)" } else { "" }
}

/// Sizes on the wire.
pub(super) fn segments(tcp: &TcpSender) -> Vec<String> {
    let mut facts = Vec::new();
    if tcp.mss_bytes > 0 {
        facts.push(format!("MSS {}", exact_bytes(tcp.mss_bytes)));
    }
    if let Some(mean) = tcp.effective_segment_bytes {
        facts.push(format!("mean payload {}", with_unit(mean, "B")));
    }
    if tcp.pmtu_bytes > 0 {
        facts.push(format!("path MTU {}", exact_bytes(tcp.pmtu_bytes)));
    }
    facts
}

/// What the sender waited for, according to its kernel. The send buffer is mentioned only if it is
/// not zero: with cubic it is always zero.
pub(super) fn limited_times(tcp: &TcpSender) -> Vec<String> {
    let Some(busy) = tcp.busy_us.filter(|&busy| busy > 0) else {
        return Vec::new();
    };
    let window = tcp.rwnd_limited_us.unwrap_or(0);
    let buffer = tcp.sndbuf_limited_us.unwrap_or(0);
    let share = |us: u64| percent(share_percent(us, busy));
    let mut facts = vec![
        format!("busy {}", micros(busy as f64)),
        format!("limited by receive window {}", share(window)),
    ];
    if buffer > 0 {
        facts.push(format!("by send buffer {}", share(buffer)));
    }
    let neither = busy.saturating_sub(window.saturating_add(buffer));
    facts.push(format!("by neither {}", share(neither)));
    if let Some(idle) = tcp.app_limited_share.filter(|&share| share > 0.0) {
        facts.push(format!("app-limited {} of samples", percent(100.0 * idle)));
    }
    facts
}

/// The congestion control, its rates, and the socket options.
pub(super) fn control(tcp: &TcpSender) -> Vec<String> {
    let mut facts = Vec::new();
    facts.extend(tcp.congestion.clone());
    let rates = [
        ("delivers", tcp.delivery_rate_bps),
        ("paced at most", tcp.max_pacing_rate_bps),
    ];
    for (what, figure) in rates {
        facts.extend(figure.map(|bps| format!("{what} {}", rate(bps as f64))));
    }
    facts.extend(tcp.options.iter().cloned());
    facts.extend(tcp.subflows.map(|n| format!("{n} subflows")));
    if tcp.mptcp_fallback == Some(true) {
        facts.push("fell back from MPTCP to TCP".to_owned());
    }
    facts
}

/// Datagrams that were sent and received.
pub(super) fn datagrams(udp: &UdpEvidence) -> Vec<String> {
    let mut facts = vec![
        format!("{} sent", count(udp.sent)),
        format!("{} received", count(udp.received)),
    ];
    facts.extend(
        udp.asked_bps
            .map(|bps| format!("asked {}", rate(bps as f64))),
    );
    if udp.send_refused > 0 {
        facts.push(format!(
            "{} refused by the sender's kernel",
            count(udp.send_refused)
        ));
    }
    facts
}

/// Where datagrams were lost.
pub(super) fn losses(udp: &UdpEvidence) -> Vec<String> {
    let mut facts = vec![format!(
        "{} ({})",
        count(udp.lost),
        percent(share_percent(udp.lost, udp.sent))
    )];
    match (udp.socket_drops, udp.path_loss_percent) {
        (Some(drops), Some(path)) => {
            facts.push(format!("socket drops {}", count(drops)));
            facts.push(format!("path alone {}", percent(path)));
        }
        _ => facts.push("on the path or by the receiver's socket".to_owned()),
    }
    facts
}

/// Datagrams that arrived changed: duplicated, reordered, malformed, corrupted.
pub(super) fn order(udp: &UdpEvidence) -> Vec<String> {
    let mut facts = vec![
        format!("{} duplicated", count(udp.duplicated)),
        format!("{} reordered", count(udp.reordered)),
        format!("{} malformed", count(udp.malformed)),
    ];
    let corrupted = udp.corrupted_bytes;
    facts.extend(corrupted.map(|n| format!("{} bytes corrupted", count(n))));
    facts
}

/// Jitter of arrivals, and gaps between departures.
pub(super) fn timing(udp: &UdpEvidence) -> Vec<String> {
    let mut facts = vec![format!("jitter {}", micros(udp.jitter_us))];
    if let Some(gaps) = udp.gaps_us {
        facts.push(format!("gaps between departures p50 {}", micros(gaps.p50)));
        facts.push(format!("p90 {}", micros(gaps.p90)));
        facts.push(format!("p99 {}", micros(gaps.p99)));
        facts.push(format!("max {}", micros(gaps.max)));
    }
    facts
}

/// `part` of `whole` in percent; NaN if `whole` is 0.
pub(super) fn share_percent(part: u64, whole: u64) -> f64 {
    100.0 * part as f64 / whole as f64
}
