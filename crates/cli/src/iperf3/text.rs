//! iperf3's text output, with exactly its columns, by the formats in its sources.

use linerate_core::foreign::iperf3::StreamResult;
use linerate_core::record::{Cause, Record};
use linerate_engine::LiveFlow;

use super::course::{Facts, Row, Total, packets, per_second, percent, sum};

pub(super) const SEPARATOR: &str = "- - - - - - - - - - - - - - - - - - - - - - - - -";
pub(super) const RULE: &str = "-----------------------------------------------------------";

/// `[  5] local … port … connected to … port …`
pub(super) fn connected(facts: &Facts, flow: &LiveFlow) -> Option<String> {
    let (local, remote) = (flow.local?, flow.remote?);
    let canonical = |address: std::net::SocketAddr| address.ip().to_canonical();
    Some(format!(
        "[{:>3}] local {} port {} connected to {} port {}",
        facts.socket(flow.id),
        canonical(local),
        local.port(),
        canonical(remote),
        remote.port()
    ))
}

/// `Starting Test: …`, with `-V`.
pub(super) fn starting(facts: &Facts, tos: u8) -> String {
    let extent = match facts.extent() {
        (0, 0, blocks) => format!("{blocks} blocks to send"),
        (0, bytes, _) => format!("{bytes} bytes to send"),
        (seconds, ..) => format!("{seconds} second test"),
    };
    format!(
        "Starting Test: protocol: {}, {} streams, {} byte blocks, omitting {} seconds, {extent}, \
         tos {tos}",
        protocol(facts),
        facts.test.streams,
        facts.block(),
        facts.omit_s()
    )
}

pub(super) fn protocol(facts: &Facts) -> &'static str {
    if facts.is_udp() { "UDP" } else { "TCP" }
}

/// The heading of the intervals.
pub(super) fn interval_heading(facts: &Facts) -> String {
    let columns = match (facts.is_udp(), facts.sends(), facts.is_both_ways()) {
        (false, true, _) => "         Retr  Cwnd",
        (false, false, _) => "",
        (true, true, false) => "         Total Datagrams",
        (true, ..) => "         Jitter    Lost/Total Datagrams",
    };
    heading(facts, columns)
}

fn heading(facts: &Facts, columns: &str) -> String {
    let role = if facts.is_both_ways() { "[Role]" } else { "" };
    format!("[ ID]{role} Interval           Transfer     Bitrate{columns}")
}

/// The lines of an interval: each stream, and their sums if there are several.
pub(super) fn interval(facts: &Facts, rows: &[Row], format: char) -> Vec<String> {
    let mut lines = Vec::new();
    for sends in [facts.is_client, !facts.is_client] {
        let of: Vec<&Row> = rows.iter().filter(|row| row.sends == sends).collect();
        for row in &of {
            let id = format!("{:>3}", facts.socket(row.flow));
            lines.push(interval_line(facts, &id, row, format));
        }
        if facts.test.streams > 1 {
            let sum = Row::sum(&of).map(|sum| interval_line(facts, "SUM", &sum, format));
            lines.extend(sum);
        }
    }
    lines
}

fn interval_line(facts: &Facts, id: &str, row: &Row, format: char) -> String {
    let role = role(facts, row.sends);
    let times = (row.start_s, row.end_s);
    let begin = begin(id, role, times, row.bytes, row.rate(), format);
    let omitted = if row.omitted { "(omitted)" } else { "" };
    match (facts.is_udp(), row.sends) {
        (false, true) if id == "SUM" => {
            format!("{begin}  {:>3}             {omitted}", row.retransmits)
        }
        (false, true) => {
            let cwnd = row.tcp.map_or(0, |tcp| tcp.cwnd);
            let cwnd = unit(cwnd as f64, 'A');
            format!("{begin}  {:>3}   {cwnd}s       {omitted}", row.retransmits)
        }
        (false, false) => format!("{begin}                  {omitted}"),
        (true, true) => {
            let blanks = if facts.is_both_ways() { "          " } else { "" };
            format!("{begin} {blanks} {}  {omitted}", row.packets)
        }
        (true, false) => {
            let share = significant(row.lost_percent());
            format!(
                "{begin}  {:5.3} ms  {}/{} ({share}%)  {omitted}",
                row.jitter_ms, row.lost, row.packets
            )
        }
    }
}

fn begin(
    id: &str,
    role: &str,
    (start_s, end_s): (f64, f64),
    bytes: u64,
    rate: f64,
    format: char,
) -> String {
    format!(
        "[{id}]{role} {start_s:6.2}-{end_s:<6.2} sec  {}s  {}s/sec",
        unit(bytes as f64, 'A'),
        unit(rate, format)
    )
}

fn role(facts: &Facts, sends: bool) -> &'static str {
    match (facts.is_both_ways(), sends, facts.is_client) {
        (false, ..) => "",
        (true, true, true) => "[TX-C]",
        (true, false, true) => "[RX-C]",
        (true, true, false) => "[TX-S]",
        (true, false, false) => "[RX-S]",
    }
}

/// The table at the end. A server prints only its own side, as iperf3's does.
pub(super) fn summary(facts: &Facts, totals: &[Total], format: char) -> Vec<String> {
    let columns = match (facts.is_udp(), facts.is_client || facts.sends()) {
        (true, _) => "         Jitter    Lost/Total Datagrams",
        (false, true) => "         Retr",
        (false, false) => "",
    };
    let mut lines = vec![heading(facts, columns)];
    for sends in [facts.is_client, !facts.is_client] {
        let of: Vec<&Total> = totals.iter().filter(|total| total.sends == sends).collect();
        for total in &of {
            let id = format!("{:>3}", facts.socket(total.flow));
            lines.extend(total_lines(facts, &id, total, format));
        }
        if facts.test.streams > 1 && !of.is_empty() {
            let total = Total {
                sender: sum(of.iter().filter_map(|total| total.sender)),
                receiver: sum(of.iter().filter_map(|total| total.receiver)),
                ..*of[0]
            };
            lines.extend(total_lines(facts, "SUM", &total, format));
        }
    }
    lines
}

fn total_lines(facts: &Facts, id: &str, total: &Total, format: char) -> Vec<String> {
    let begin = |stream: &StreamResult| {
        let seconds = stream.seconds.unwrap_or(0.0);
        let rate = per_second(stream.bytes, seconds);
        let role = role(facts, total.sends);
        begin(id, role, (0.0, seconds), stream.bytes, rate, format)
    };
    let ends = [("sender", total.sender, total.sends), ("receiver", total.receiver, !total.sends)];
    let shown = ends.iter().filter(|(_, _, is_own)| facts.is_client || *is_own);
    let line = |(name, stream, _): &(&str, Option<StreamResult>, bool)| {
        let Some(stream) = stream else {
            return format!("[{id}] ({name} statistics not available)");
        };
        let begin = begin(stream);
        let is_sender = *name == "sender";
        match (facts.is_udp(), is_sender, stream.retransmits) {
            (false, true, Some(retransmits)) if id == "SUM" => {
                format!("{begin}  {retransmits:>3}             {name}")
            }
            (false, true, Some(retransmits)) => {
                format!("{begin}  {retransmits:>3}            {name}")
            }
            (false, ..) => format!("{begin}                  {name}"),
            (true, true, _) => format!("{begin}  0.000 ms  0/{} (0%)  {name}", packets(stream)),
            (true, false, _) => {
                let all = packets(stream);
                let share = significant(percent(stream.errors, all));
                let jitter_ms = stream.jitter_s * 1e3;
                format!("{begin}  {jitter_ms:5.3} ms  {}/{all} ({share}%)  {name}", stream.errors)
            }
        }
    };
    shown.map(line).collect()
}

/// The line that linerate adds: the bottleneck of the test.
pub(super) fn bottleneck(record: &Record) -> Option<String> {
    let legs: Vec<_> =
        record.legs.iter().filter_map(|leg| Some((leg, leg.verdict.as_ref()?))).collect();
    let words = legs.iter().map(|(leg, verdict)| {
        let way = match legs.len() {
            1 => String::new(),
            _ => format!("{}: ", leg.direction.word()),
        };
        let sure = verdict.confidence.map_or_else(String::new, |share| {
            format!(" ({:.0}% sure)", (100.0 * share).clamp(1.0, 99.0))
        });
        let cause = match verdict.cause {
            Cause::AsAsked => "none, the sender kept to its rate",
            cause => cause.words(),
        };
        format!("{way}{cause}{sure}")
    });
    let words: Vec<String> = words.collect();
    (!words.is_empty()).then(|| format!("Bottleneck: {}", words.join("; ")))
}

/// Bytes, or bytes per second, in the unit of a format letter, with four digits. A capital letter
/// means bytes in steps of 1024, a small one bits in steps of 1000; `a` and `A` choose the step.
pub(super) fn unit(bytes: f64, format: char) -> String {
    const BYTES: [&str; 5] = ["Byte", "KByte", "MByte", "GByte", "TByte"];
    const BITS: [&str; 5] = ["bit", "Kbit", "Mbit", "Gbit", "Tbit"];
    let (value, kilo, labels) = if format.is_ascii_uppercase() {
        (bytes, 1024.0, BYTES)
    } else {
        (8.0 * bytes, 1000.0, BITS)
    };
    let power = match "kmgt".find(format.to_ascii_lowercase()) {
        Some(at) => at + 1,
        None => (1..5).take_while(|power| value >= f64::powi(kilo, *power)).count(),
    };
    let value = value / f64::powi(kilo, power as i32);
    let places = match value {
        value if value < 9.995 => 2,
        value if value < 99.95 => 1,
        _ => 0,
    };
    format!("{value:4.places$} {}", labels[power])
}

/// C's `%.2g`.
fn significant(value: f64) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    let scientific = format!("{value:.1e}");
    let (digits, power) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let power: i32 = power.parse().unwrap_or(0);
    if (-4..2).contains(&power) {
        let places = (1 - power).max(0) as usize;
        let fixed = format!("{value:.places$}");
        return if places > 0 { trimmed(&fixed).to_owned() } else { fixed };
    }
    let sign = if power < 0 { '-' } else { '+' };
    format!("{}e{sign}{:02}", trimmed(digits), power.abs())
}

fn trimmed(number: &str) -> &str {
    if number.contains('.') { number.trim_end_matches('0').trim_end_matches('.') } else { number }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_four_places_in_the_unit_that_is_asked_for() {
        for (bytes, format, text) in [
            (1_310_720.0, 'A', "1.25 MByte"),
            (1_310_720.0, 'a', "10.5 Mbit"),
            (1_023.0, 'A', "1023 Byte"),
            (0.0, 'A', "0.00 Byte"),
            (1_250_000_000.0, 'm', "10000 Mbit"),
            (1_048_576.0, 'K', "1024 KByte"),
            (12_500_000_000.0, 'a', " 100 Gbit"),
        ] {
            assert_eq!(unit(bytes, format), text);
        }
    }

    #[test]
    fn a_share_has_two_significant_digits() {
        for (value, text) in [
            (0.0, "0"),
            (0.5, "0.5"),
            (12.34, "12"),
            (1.25, "1.2"),
            (99.6, "1e+02"),
            (100.0, "1e+02"),
            (0.00001234, "1.2e-05"),
        ] {
            assert_eq!(significant(value), text);
        }
    }
}
