//! Texts of iperf3: version, host, help and errors.

use std::fs;
use std::io;
use std::time::{SystemTime, UNIX_EPOCH};

use linerate_engine::MeasureError;

/// The version of iperf3 whose command line and output this is.
const LIKE: &str = "3.21";

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
