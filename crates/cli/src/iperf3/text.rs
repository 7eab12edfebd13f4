//! iperf3's text output, with exactly its columns, by the formats in its sources; its version, help
//! and error messages.

use std::time::{SystemTime, UNIX_EPOCH};
use std::{fs, io};

use linerate_core::foreign::iperf3::StreamResult;
use linerate_core::record::{Cause, Record};
use linerate_engine::{LiveFlow, MeasureError};

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

// Version, host, help and error messages.

/// `iperf 3.21 (linerate 0.1.0)`
pub(super) fn version() -> String {
    format!("iperf {LIKE} (linerate {})", env!("CARGO_PKG_VERSION"))
}

/// The host as `uname -a` describes it, without the name of the distribution.
pub(super) fn system() -> String {
    let names = ["ostype", "hostname", "osrelease", "version"];
    let parts = names.map(|name| {
        let text = fs::read_to_string(format!("/proc/sys/kernel/{name}"));
        text.unwrap_or_default().trim().to_owned()
    });
    format!("{} {}", parts.join(" "), std::env::consts::ARCH)
}

/// The time as RFC 1123 writes it, seconds and milliseconds since 1970.
pub(super) fn now() -> (String, u64, u64) {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let milliseconds = since.map_or(0, |since| since.as_millis() as u64);
    let date = moment("%a, %d %b %Y %H:%M:%S GMT", true);
    (date, milliseconds / 1000, milliseconds)
}

/// The time by a format of C's `strftime`.
pub(super) fn moment(format: &str, is_utc: bool) -> String {
    linerate_engine::format_moment(SystemTime::now(), format, is_utc)
}

/// An error of a test, in iperf3's words if it has some.
pub(super) fn error(error: &MeasureError) -> String {
    match error {
        MeasureError::Connect { reason, .. } => no_connection(&kernels(reason)),
        error if error.is_busy() => "the server is busy running a test. try again later".into(),
        MeasureError::Host { what, source } => format!("{what}: {}", kernels(source)),
        error => error.to_string(),
    }
}

/// iperf3's words for a server that does not answer.
pub(super) fn no_connection(why: &str) -> String {
    format!(
        "unable to connect to server - server may have stopped running or use a different port, \
         firewall issue, etc.: {why}"
    )
}

/// The kernel's message for an error, without its number.
pub(super) fn kernels(error: &io::Error) -> String {
    if error.kind() == io::ErrorKind::TimedOut {
        return "Connection timed out".to_owned();
    }
    let message = error.to_string();
    let text = message.split(" (os error").next().unwrap_or_default();
    // For unknown names the standard library puts words before the resolver's message.
    let text = text.rsplit(": ").next().unwrap_or_default();
    text.to_owned()
}

/// Printed after an error of the command line.
pub(super) const USAGE: &str = "\
Usage: iperf3 [-s|-c host] [options]
Try `iperf3 --help' for more information.
";

/// What `--help` prints.
pub(super) const HELP: &str = "\
Usage: iperf3 [-s|-c host] [options]
       iperf3 [-h|--help] [-v|--version]

Server or client:
  -p, --port      #         server port to listen on/connect to
  -f, --format   [kmgtKMGT] format to report: Kbits, Mbits, Gbits, Tbits
  -i, --interval  #         seconds between periodic throughput reports
  -I, --pidfile file        write PID file
  -B, --bind <host>[%<dev>] bind to the interface of the address <host>
  --bind-dev <dev>          bind to the network interface
  -V, --verbose             more detailed output
  -J, --json                output in JSON format
  --json-stream             output in line-delimited JSON format
  --json-stream-full-output the whole document as well, after --json-stream
  --timestamps[=format]     begin each line with the time, as strftime has it
  --logfile f               send output to a log file
  -A, --affinity n          keep to one CPU
  -4, --version4            only use IPv4
  -6, --version6            only use IPv6
  --no-verdict              without linerate's line: the bottleneck
  -v, --version             show version information and quit
  -h, --help                show this message and quit
Server:
  -s, --server              run in server mode
  -D, --daemon              run the server as a daemon
  -1, --one-off             handle one client connection then exit
  --server-bitrate-limit #[KMG]   total bit rate limit (default 0 = no limit)
  --server-max-duration #   longest test, in seconds
  --rsa-private-key-path    path to the RSA private key
  --authorized-users-path   path to the file of users and passwords
  --use-pkcs1-padding       use PKCS1 padding
Client:
  -c, --client <host>[%<dev>] run in client mode, connecting to <host>
  -u, --udp                 use UDP rather than TCP
  --cport         #         bind to a specific client port (default: ephemeral)
  --connect-timeout #       timeout for control connection setup (ms)
  -b, --bitrate #[KMG]      target bitrate in bits/sec (0 for unlimited)
                            (default 1 Mbit/sec for UDP, unlimited for TCP)
  --fq-rate #[KMG]          the kernel's pacing rate in bits/sec
  -t, --time      #         time in seconds to transmit for (default 10 secs)
  -n, --bytes     #[KMG]    number of bytes to transmit (instead of -t)
  -k, --blockcount #[KMG]   number of blocks to transmit (instead of -t or -n)
  -l, --length    #[KMG]    length of buffer to read or write
                            (default 128 KB for TCP, the MSS for UDP)
  -P, --parallel  #         number of parallel client streams to run
  -R, --reverse             the server sends, the client receives
  --bidir                   both send and receive
  -w, --window    #[KMG]    set send/receive socket buffer sizes
  -C, --congestion <algo>   set TCP congestion control algorithm
  -M, --set-mss   #         set TCP maximum segment size (MTU - 40 bytes)
  -N, --no-delay            set TCP no delay, disabling Nagle's algorithm
  -S, --tos N               set the IP type of service, 0-255
  --dscp N or --dscp val    set the IP dscp value, either 0-63 or symbolic
  -Z, --zerocopy            use a 'zero copy' method of sending data
  --skip-rx-copy            ignore received data in the kernel (MSG_TRUNC)
  -O, --omit N              leave out the first N seconds
  -T, --title str           prefix every output line with this string
  --extra-data str          data string to include in JSON
  --get-server-output       get results from server
  --gsro                    UDP segmentation and receive offload

[KMG] indicates options that support a K/M/G suffix for kilo-, mega-, or giga-
This is linerate with iperf3's command line; `linerate -h` has its own.
";

/// The version of iperf3 whose command line and output this is.
const LIKE: &str = "3.21";

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
