//! The output for a client that asks for the server's output.

use std::fmt::Write;

use linerate_core::record::TcpEvidence;
use linerate_core::session::message::{FlowHalf, HalfReport};
use linerate_core::units::{BitRate, ByteCount, printable};

/// One line for each stream.
pub(super) fn text(report: &HalfReport) -> String {
    let mut text =
        format!("linerate {} on {}\n", report.facts.linerate, printable(&report.facts.hostname));
    for flow in &report.flows {
        // Writing to a String does not fail.
        let _ = writeln!(text, "{}", line(flow));
    }
    text
}

fn line(flow: &FlowHalf) -> String {
    let verb = if flow.sends { "sent" } else { "received" };
    let rate = if flow.seconds > 0.0 {
        BitRate((flow.bytes as f64 * 8.0 / flow.seconds) as u64)
    } else {
        BitRate(0)
    };
    let mut line = format!(
        "{} <-> {}: {verb} {} in {:.2} s, {rate}",
        flow.local,
        flow.remote,
        ByteCount(flow.bytes),
        flow.seconds
    );
    if let Some(tcp) = flow.tcp.as_ref().and_then(TcpEvidence::sender) {
        let _ = write!(
            line,
            ", {} segments retransmitted, rtt {} us, cwnd {}",
            tcp.retransmitted_segments,
            tcp.rtt_mean_us,
            ByteCount(tcp.cwnd_bytes)
        );
    }
    if let Some(udp) = &flow.udp_received {
        let expected = udp.expected.unwrap_or(udp.received);
        let _ = write!(
            line,
            ", {} of {expected} datagrams lost, {} of them by this socket, {} late, {} twice, \
             jitter {:.0} us",
            expected.saturating_sub(udp.received),
            udp.socket_drops.unwrap_or(0),
            udp.reordered,
            udp.duplicated,
            udp.jitter_ns / 1000.0
        );
    }
    line
}

#[cfg(test)]
mod tests {
    use linerate_core::record::HostFacts;

    use super::*;

    #[test]
    fn control_characters_of_the_host_name_are_escaped() {
        let facts = HostFacts { hostname: "pit\u{1b}[2J".into(), ..HostFacts::default() };
        let report = HalfReport { facts: Box::new(facts), ..HalfReport::default() };
        assert!(text(&report).ends_with("on pit\\u{1b}[2J\n"));
    }
}
