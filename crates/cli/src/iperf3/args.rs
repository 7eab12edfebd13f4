//! Reads iperf3's command line as its own parser (getopt_long) does: combined letters, abbreviated
//! long names, numbers as `atoi` reads them, with iperf3's suffixes.

use std::collections::BTreeSet;

use linerate_core::plan::Direction;
use linerate_core::units::Family;

/// What a command line asks for.
#[derive(Debug)]
pub(super) enum Asked {
    /// `-h`.
    Help,
    /// `-v`.
    Version,
    /// `-c`.
    Client(Box<Options>),
    /// `-s`.
    Server(Box<Options>),
}

/// Why a command line is refused.
#[derive(Debug, PartialEq)]
pub(super) enum Misuse {
    /// An unknown option, or one without its value, in the words of getopt.
    Getopt(String),
    /// A wrong value, or options that exclude each other: iperf3's words after `parameter error`.
    Parameter(String),
}

/// The options, with iperf3's defaults.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Options {
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) bind: Option<String>,
    pub(super) device: Option<String>,
    pub(super) family: Option<Family>,
    pub(super) client_port: Option<u16>,
    pub(super) connect_timeout_ms: Option<u64>,
    pub(super) udp: bool,
    pub(super) direction: Direction,
    pub(super) streams: u32,
    /// Seconds; 0 means without end.
    pub(super) time_s: Option<u32>,
    pub(super) bytes: u64,
    pub(super) blocks: u64,
    pub(super) omit_s: u32,
    /// Seconds; 0 means no intervals.
    pub(super) interval_s: f64,
    pub(super) length: Option<u64>,
    /// Bits per second; 0 means no limit.
    pub(super) rate: Option<u64>,
    pub(super) pacing: u64,
    pub(super) window: u64,
    pub(super) mss: u32,
    pub(super) nodelay: bool,
    pub(super) congestion: Option<String>,
    pub(super) tos: u8,
    pub(super) zerocopy: bool,
    pub(super) discard: bool,
    pub(super) offload: bool,
    pub(super) server_output: bool,
    /// `k`, `m`, …; `a` chooses the unit by the figure.
    pub(super) format: char,
    pub(super) verbose: bool,
    pub(super) json: bool,
    pub(super) json_stream: bool,
    pub(super) full_stream: bool,
    pub(super) title: Option<String>,
    pub(super) extra_data: Option<String>,
    pub(super) logfile: Option<String>,
    pub(super) pidfile: Option<String>,
    pub(super) daemon: bool,
    pub(super) one_off: bool,
    pub(super) rate_limit: u64,
    pub(super) max_duration: u32,
    pub(super) users: Option<String>,
    pub(super) private_key: Option<String>,
    pub(super) pkcs1: bool,
    /// An option of linerate's: no line with the bottleneck.
    pub(super) no_verdict: bool,
    /// The CPU on which this process runs.
    pub(super) cpu: Option<u32>,
    /// Format of the time before each line, as for C's `strftime`.
    pub(super) timestamps: Option<String>,
}

impl Options {
    fn new() -> Self {
        Self { port: 5201, streams: 1, interval_s: 1.0, format: 'a', ..Self::default() }
    }

    /// Seconds of the test; 0 if bytes or blocks end it.
    pub(super) fn seconds(&self) -> u32 {
        match self.time_s {
            Some(seconds) => seconds,
            None if self.bytes > 0 || self.blocks > 0 => 0,
            None => 10,
        }
    }

    /// Whether nothing but the user, or the server, ends the test.
    pub(super) fn is_endless(&self) -> bool {
        (self.seconds(), self.bytes, self.blocks) == (0, 0, 0)
    }

    /// Bits per second of each stream; 0 means no limit.
    pub(super) fn target_rate(&self) -> u64 {
        self.rate.unwrap_or(if self.udp { 1 << 20 } else { 0 })
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Takes {
    Nothing,
    Value,
    /// Optional, only after `=`.
    Perhaps,
}

/// The end that an option is for.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Of {
    Both,
    Client,
    Server,
    /// Only iperf3 has it; what to do instead.
    Nobody(&'static str),
}

type Entry = (&'static str, Option<char>, Takes, Of);

const AUTH: &str = "give `linerate serve` a --key-file there and use linerate stream";
const NO_SCTP: &str = "linerate has TCP, MPTCP and UDP";

/// Names, letters, values and ends; several names of one option follow each other.
const OPTIONS: &[Entry] = {
    use Of::{Both, Client, Nobody, Server};
    use Takes::{Nothing, Perhaps, Value};
    &[
        ("port", Some('p'), Value, Both),
        ("format", Some('f'), Value, Both),
        ("interval", Some('i'), Value, Both),
        ("daemon", Some('D'), Nothing, Server),
        ("one-off", Some('1'), Nothing, Server),
        ("verbose", Some('V'), Nothing, Both),
        ("json", Some('J'), Nothing, Both),
        ("json-stream", None, Nothing, Both),
        ("json-stream-full-output", None, Nothing, Both),
        ("version", Some('v'), Nothing, Both),
        ("server", Some('s'), Nothing, Both),
        ("client", Some('c'), Value, Both),
        ("udp", Some('u'), Nothing, Client),
        ("bitrate", Some('b'), Value, Client),
        ("bandwidth", None, Value, Client),
        ("server-bitrate-limit", None, Value, Server),
        ("server-max-duration", None, Value, Server),
        ("time", Some('t'), Value, Client),
        ("bytes", Some('n'), Value, Client),
        ("blockcount", Some('k'), Value, Client),
        ("length", Some('l'), Value, Client),
        ("parallel", Some('P'), Value, Client),
        ("reverse", Some('R'), Nothing, Client),
        ("bidir", None, Nothing, Client),
        ("window", Some('w'), Value, Client),
        ("bind", Some('B'), Value, Both),
        ("bind-dev", None, Value, Both),
        ("cport", None, Value, Client),
        ("set-mss", Some('M'), Value, Client),
        ("no-delay", Some('N'), Nothing, Client),
        ("version4", Some('4'), Nothing, Both),
        ("version6", Some('6'), Nothing, Both),
        ("tos", Some('S'), Value, Client),
        ("dscp", None, Value, Client),
        ("extra-data", None, Value, Client),
        ("zerocopy", Some('Z'), Nothing, Client),
        ("omit", Some('O'), Value, Client),
        ("title", Some('T'), Value, Client),
        ("congestion", Some('C'), Value, Client),
        ("linux-congestion", None, Value, Client),
        ("pidfile", Some('I'), Value, Both),
        ("logfile", None, Value, Both),
        ("forceflush", None, Nothing, Both),
        ("get-server-output", None, Nothing, Client),
        ("udp-counters-64bit", None, Nothing, Client),
        ("no-fq-socket-pacing", None, Nothing, Client),
        ("skip-rx-copy", None, Nothing, Client),
        ("rsa-private-key-path", None, Value, Server),
        ("authorized-users-path", None, Value, Server),
        ("use-pkcs1-padding", None, Nothing, Server),
        ("fq-rate", None, Value, Client),
        ("connect-timeout", None, Value, Client),
        ("gsro", None, Nothing, Client),
        ("help", Some('h'), Nothing, Both),
        ("no-verdict", None, Nothing, Both),
        ("affinity", Some('A'), Value, Both),
        ("timestamps", None, Perhaps, Both),
        ("repeating-payload", None, Nothing, Client),
        ("pacing-timer", None, Value, Client),
        ("rcv-timeout", None, Value, Both),
        ("snd-timeout", None, Value, Both),
        ("cntl-ka", None, Perhaps, Both),
        ("debug", Some('d'), Perhaps, Both),
        ("file", Some('F'), Value, Nobody("linerate sends no files; use scp or rsync")),
        ("flowlabel", Some('L'), Value, Nobody("linerate sets no IPv6 flow label")),
        ("mptcp", Some('m'), Nothing, Nobody("linerate stream HOST --protocol mptcp")),
        ("sctp", None, Nothing, Nobody(NO_SCTP)),
        ("xbind", Some('X'), Value, Nobody(NO_SCTP)),
        ("nstreams", None, Value, Nobody(NO_SCTP)),
        ("dont-fragment", None, Nothing, Nobody("linerate trace HOST finds the path MTU")),
        ("username", None, Value, Nobody(AUTH)),
        ("rsa-public-key-path", None, Value, Nobody(AUTH)),
        ("time-skew-threshold", None, Value, Nobody("tokens are valid for 10 seconds")),
        ("idle-timeout", None, Value, Nobody("start it by timeout N")),
    ]
};

/// What to do instead of an option of iperf3, such as `-F` or `--file`, that linerate's own
/// commands do not have.
pub(crate) fn instead(option: &str) -> Option<&'static str> {
    let is_it = |entry: &&Entry| match option.strip_prefix("--") {
        Some(name) => entry.0 == name,
        None => option.chars().nth(1) == entry.1 && option.len() == 2,
    };
    match OPTIONS.iter().find(is_it)?.3 {
        Of::Nobody(words) => Some(words),
        Of::Both | Of::Client | Of::Server => Some("`linerate iperf3` takes iperf3's options"),
    }
}

/// Longest test, seconds.
const MAX_TIME: i64 = 86_400;

/// Reads the words after the program's name.
///
/// # Errors
/// The command line is wrong, in iperf3's words, or has an option that linerate lacks: with what to
/// use instead.
pub(super) fn parse(words: &[String]) -> Result<Asked, Misuse> {
    let mut reading = ArgumentReader::new();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        if word == "--" {
            break;
        }
        if let Some(long) = word.strip_prefix("--") {
            let (name, value) = match long.split_once('=') {
                Some((name, value)) => (name, Some(value.to_owned())),
                None => (long, None),
            };
            let entry = by_name(name)?;
            let value = match (entry.2, value) {
                (Takes::Nothing, Some(_)) => {
                    return getopt(format!("option '--{}' doesn't allow an argument", entry.0));
                }
                (Takes::Value, None) => match words.next() {
                    Some(value) => value.clone(),
                    None => return getopt(format!("option '--{}' requires an argument", entry.0)),
                },
                (_, value) => value.unwrap_or_default(),
            };
            reading.take(entry, &value)?;
        } else if let Some(letters) = word.strip_prefix('-').filter(|rest| !rest.is_empty()) {
            reading.take_letters(letters, &mut words)?;
        }
        // iperf3 passes over words that are no options.
        if let Some(asked) = reading.at_once.take() {
            return Ok(asked);
        }
    }
    reading.end()
}

/// The option with this name, or the only one whose name begins with it.
fn by_name(name: &str) -> Result<&'static Entry, Misuse> {
    if let Some(exact) = OPTIONS.iter().find(|entry| entry.0 == name) {
        return Ok(exact);
    }
    let close: Vec<_> = OPTIONS.iter().filter(|e| e.0.starts_with(name)).collect();
    match close[..] {
        [only] => Ok(only),
        [] => getopt(format!("unrecognized option '--{name}'")),
        _ => {
            let names: Vec<_> = close.iter().map(|entry| format!("'--{}'", entry.0)).collect();
            let all = names.join(" ");
            getopt(format!("option '--{name}' is ambiguous; possibilities: {all}"))
        }
    }
}

/// `-R` or `--bidir`, but not both.
fn turned(direction: Direction, to: Direction) -> Result<Direction, Misuse> {
    if direction == Direction::Up || direction == to { Ok(to) } else { parameter(BOTH_WAYS) }
}

fn getopt<T>(words: String) -> Result<T, Misuse> {
    Err(Misuse::Getopt(words))
}

fn parameter<T>(words: impl Into<String>) -> Result<T, Misuse> {
    Err(Misuse::Parameter(words.into()))
}

/// The state of reading a command line.
struct ArgumentReader {
    options: Options,
    is_server: bool,
    is_client: bool,
    given: BTreeSet<&'static str>,
    /// `--help` or `--version`: nothing after it is read.
    at_once: Option<Asked>,
}

impl ArgumentReader {
    fn new() -> Self {
        Self {
            options: Options::new(),
            is_server: false,
            is_client: false,
            given: BTreeSet::new(),
            at_once: None,
        }
    }

    /// Combined letters as in `-uRt5`; the last may have a value.
    fn take_letters<'a>(
        &mut self,
        letters: &str,
        words: &mut impl Iterator<Item = &'a String>,
    ) -> Result<(), Misuse> {
        let mut rest = letters.chars();
        while let Some(letter) = rest.next() {
            let Some(entry) = OPTIONS.iter().find(|entry| entry.1 == Some(letter)) else {
                return getopt(format!("invalid option -- '{letter}'"));
            };
            if entry.2 != Takes::Value {
                self.take(entry, "")?;
                continue;
            }
            let value = match (rest.as_str(), words) {
                ("", words) => match words.next() {
                    Some(value) => value.clone(),
                    None => return getopt(format!("option requires an argument -- '{letter}'")),
                },
                (rest, _) => rest.to_owned(),
            };
            return self.take(entry, &value);
        }
        Ok(())
    }

    fn take(&mut self, entry: &'static Entry, text: &str) -> Result<(), Misuse> {
        let name = entry.0;
        if let Of::Nobody(instead) = entry.3 {
            return parameter(format!("--{name} is not in linerate: {instead}"));
        }
        self.given.insert(name);
        match name {
            "server" if self.is_client => return parameter(BOTH_ROLES),
            "client" if self.is_server => return parameter(BOTH_ROLES),
            "server" => self.is_server = true,
            "client" => {
                self.is_client = true;
                let device = &mut self.options.device;
                self.options.host = host_and_device(text, device);
            }
            "help" => self.at_once = Some(Asked::Help),
            "version" => self.at_once = Some(Asked::Version),
            _ if self.take_output(name, text)? => {}
            _ if self.take_way(name, text)? => {}
            _ => self.take_traffic(name, text)?,
        }
        Ok(())
    }

    /// Takes an option of the output: its format or its file.
    fn take_output(&mut self, name: &str, text: &str) -> Result<bool, Misuse> {
        let options = &mut self.options;
        let value = || Some(text.to_owned());
        match name {
            "format" => match text.chars().next() {
                Some(letter) if "kmgtKMGT".contains(letter) => options.format = letter,
                _ => {
                    let words = "bad format specifier (valid formats are in the set [kmgtKMGT])";
                    return parameter(words);
                }
            },
            "interval" => {
                let seconds = float(text);
                if seconds != 0.0 && !(0.1..=60.0).contains(&seconds) {
                    return parameter("invalid report interval (min = 0.1, max = 60 seconds)");
                }
                options.interval_s = seconds;
            }
            "verbose" => options.verbose = true,
            "json" => options.json = true,
            "json-stream" => (options.json, options.json_stream) = (true, true),
            "json-stream-full-output" => options.full_stream = true,
            "title" => options.title = value(),
            "extra-data" => options.extra_data = value(),
            "logfile" => options.logfile = value(),
            "pidfile" => options.pidfile = value(),
            "get-server-output" => options.server_output = true,
            "no-verdict" => options.no_verdict = true,
            "timestamps" if text.is_empty() => options.timestamps = Some("%c ".to_owned()),
            "timestamps" => options.timestamps = value(),
            // Every line is flushed anyway; linerate has --details for debugging.
            "forceflush" | "debug" => {}
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Where to and from, and what a server is.
    fn take_way(&mut self, name: &str, text: &str) -> Result<bool, Misuse> {
        let options = &mut self.options;
        let value = || Some(text.to_owned());
        match name {
            "port" => options.port = port(text)?,
            "cport" => options.client_port = Some(port(text)?),
            "bind" => options.bind = Some(host_and_device(text, &mut options.device)),
            "bind-dev" => options.device = value(),
            "version4" => options.family = Some(Family::Ipv4),
            "version6" => options.family = Some(Family::Ipv6),
            "connect-timeout" => options.connect_timeout_ms = Some(size(text)?),
            "daemon" => options.daemon = true,
            "one-off" => options.one_off = true,
            "server-bitrate-limit" => {
                // iperf3 averages over the time after the slash; linerate paces at once.
                options.rate_limit = rate(text.split('/').next().unwrap_or_default())?;
            }
            "server-max-duration" => options.max_duration = seconds(text, MAX_TIME)?,
            "authorized-users-path" => options.users = value(),
            "rsa-private-key-path" => options.private_key = value(),
            "use-pkcs1-padding" => options.pkcs1 = true,
            "affinity" => options.cpu = Some(cpu(text)?),
            // linerate notices a dead connection in any case.
            "cntl-ka" => {}
            "rcv-timeout" => milliseconds(text, 100, "receive")?,
            "snd-timeout" => milliseconds(text, 0, "send")?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn take_traffic(&mut self, name: &str, text: &str) -> Result<(), Misuse> {
        let options = &mut self.options;
        match name {
            "udp" => options.udp = true,
            "reverse" => options.direction = turned(options.direction, Direction::Down)?,
            "bidir" => options.direction = turned(options.direction, Direction::Both)?,
            "bitrate" | "bandwidth" if text.contains('/') => {
                return parameter("bursts of -b RATE/N are not in linerate: give -b RATE");
            }
            "bitrate" | "bandwidth" => options.rate = Some(rate(text)?),
            "fq-rate" => options.pacing = rate(text)?,
            "time" => options.time_s = Some(seconds(text, MAX_TIME)?),
            "bytes" => options.bytes = size(text)?,
            "blockcount" => options.blocks = size(text)?,
            "length" => options.length = Some(size(text)?).filter(|length| *length > 0),
            "parallel" => match integer(text) {
                streams @ 1..=128 => options.streams = streams as u32,
                _ => {
                    let words = "invalid number of parallel streams (min = 1, max = 128)";
                    return parameter(words);
                }
            },
            "window" => match scaled(text, 1024.0)? {
                bytes if !(0.0..=536_870_912.0).contains(&bytes) => {
                    let words = "socket buffer size too large (maximum = 536870912 bytes)";
                    return parameter(words);
                }
                bytes => options.window = bytes as u64,
            },
            "set-mss" => match integer(text) {
                mss @ 0..=32_767 => options.mss = mss as u32,
                _ => return parameter("TCP MSS too large (maximum = 32767 bytes)"),
            },
            "omit" => match integer(text) {
                omit @ 0..=600 => options.omit_s = omit as u32,
                _ => return parameter("bogus value for --omit (maximum = 600 seconds)"),
            },
            "tos" => match based(text) {
                Some(tos @ 0..=255) => options.tos = tos as u8,
                _ => return parameter("bad TOS value (must be between 0 and 255 inclusive)"),
            },
            "dscp" => options.tos = dscp(text)?,
            "no-delay" => options.nodelay = true,
            "zerocopy" => options.zerocopy = true,
            "skip-rx-copy" => options.discard = true,
            "gsro" => options.offload = true,
            "congestion" | "linux-congestion" => options.congestion = Some(text.to_owned()),
            "pacing-timer" => drop(size(text)?),
            // Without a rate the kernel does not pace. Other options change nothing: linerate
            // always counts in 64 bits, and its payload repeats itself.
            "no-fq-socket-pacing" => options.pacing = 0,
            _ => {}
        }
        Ok(())
    }

    /// Checks the options together.
    fn end(self) -> Result<Asked, Misuse> {
        let options = self.options;
        let of = |end| {
            let mut given = self.given.iter();
            given.any(|name| OPTIONS.iter().any(|entry| entry.0 == *name && entry.3 == end))
        };
        if self.is_client && of(Of::Server) {
            return parameter("some option you are trying to set is server only");
        }
        if self.is_server && of(Of::Client) {
            return parameter("some option you are trying to set is client only");
        }
        let is_sender = self.is_client && options.direction == Direction::Up;
        if is_sender && self.given.contains("rcv-timeout") {
            return parameter("client receive timeout is valid only in receiving mode");
        }
        if options.users.is_some() != options.private_key.is_some() {
            let words = "you must specify a path to a valid RSA private key and a user credential \
                         file";
            return parameter(words);
        }
        check_length(&options)?;
        let ends = [options.time_s.is_some(), options.bytes > 0, options.blocks > 0];
        if ends.iter().filter(|given| **given).count() > 1 {
            return parameter("only one test end condition (-t, -n, -k) may be specified");
        }
        if options.tos & 3 != 0 {
            let words = "the two ECN bits of the TOS byte are the kernel's: give --tos a multiple \
                         of 4";
            return parameter(words);
        }
        if options.omit_s > 0 && options.seconds() == 0 {
            return parameter("--omit with -n, -k or -t 0 is not in linerate: give -t");
        }
        match (self.is_client, self.is_server) {
            (true, _) => Ok(Asked::Client(Box::new(options))),
            (_, true) => Ok(Asked::Server(Box::new(options))),
            _ => parameter("must either be a client (-c) or server (-s)"),
        }
    }
}

/// The CPU of `-A N`. A client does not set the server's CPU.
fn cpu(text: &str) -> Result<u32, Misuse> {
    if text.contains(',') {
        return parameter("the server's CPU of -A N,M is not in linerate: give -A M to the server");
    }
    match u32::try_from(integer(text)) {
        Ok(cpu) if cpu <= 1024 && text.starts_with(|c: char| c.is_ascii_digit()) => Ok(cpu),
        _ => parameter("unable to set CPU affinity"),
    }
}

/// Checks the range of a timeout. linerate has its own, shorter timeouts.
fn milliseconds(text: &str, least: i64, name: &str) -> Result<(), Misuse> {
    if (least..=MAX_TIME * 1000).contains(&integer(text)) {
        return Ok(());
    }
    parameter(format!("{name} timeout value is incorrect or not in range"))
}

const BOTH_ROLES: &str = "cannot be both server and client";
const BOTH_WAYS: &str = "cannot be both reverse and bidirectional";

fn check_length(options: &Options) -> Result<(), Misuse> {
    match options.length {
        Some(length) if options.udp && !(16..=65_507).contains(&length) => {
            let range = "minimum = 16 bytes, maximum = 65507 bytes";
            parameter(format!("block size invalid ({range})"))
        }
        Some(length) if length > 1 << 20 => {
            parameter("block size too large (maximum = 1048576 bytes)")
        }
        _ => Ok(()),
    }
}

/// `host%device`; a link-local address of IPv6 keeps its device.
fn host_and_device(text: &str, device: &mut Option<String>) -> String {
    match text.split_once('%') {
        Some((host, name)) if !host.to_ascii_lowercase().starts_with("fe80:") => {
            *device = Some(name.to_owned());
            host.to_owned()
        }
        _ => text.to_owned(),
    }
}

fn port(text: &str) -> Result<u16, Misuse> {
    match u16::try_from(integer(text)) {
        Ok(port) if port > 0 => Ok(port),
        _ => parameter("port number must be between 1 and 65535 inclusive"),
    }
}

fn seconds(text: &str, most: i64) -> Result<u32, Misuse> {
    match integer(text) {
        seconds if (0..=most).contains(&seconds) => Ok(seconds as u32),
        _ => parameter(format!("test duration valid values are 0 to {most} seconds")),
    }
}

/// The digits at the beginning, as C's `atoi` reads them.
fn integer(text: &str) -> i64 {
    let text = text.trim_start();
    let end = text
        .char_indices()
        .find(|(at, c)| !(c.is_ascii_digit() || (*at == 0 && "+-".contains(*c))))
        .map_or(text.len(), |(at, _)| at);
    text[..end].parse().unwrap_or(0)
}

/// C's `strtol` with base 0: `0x` and `0` before digits say their base.
fn based(text: &str) -> Option<i64> {
    let text = text.trim();
    match text.strip_prefix("0x").or(text.strip_prefix("0X")) {
        Some(hex) => i64::from_str_radix(hex, 16).ok(),
        None if text.len() > 1 && text.starts_with('0') => i64::from_str_radix(text, 8).ok(),
        None => text.parse().ok(),
    }
}

/// The number at the beginning, and what follows it.
fn number(text: &str) -> Option<(f64, &str)> {
    let text = text.trim_start();
    let is_of_number = |c: char| c.is_ascii_digit() || "+-.".contains(c);
    let end = text.find(|c| !is_of_number(c)).unwrap_or(text.len());
    Some((text[..end].parse().ok()?, &text[end..]))
}

/// C's `atof`.
fn float(text: &str) -> f64 {
    number(text).map_or(0.0, |(number, _)| number)
}

/// A number with a suffix for a power of `kilo`.
fn scaled(text: &str, kilo: f64) -> Result<f64, Misuse> {
    let wrong = || parameter(format!("invalid unit value or suffix: '{text}'"));
    let Some((number, rest)) = number(text) else {
        return wrong();
    };
    let power = match rest.chars().next() {
        None => 0,
        Some('k' | 'K') => 1,
        Some('m' | 'M') => 2,
        Some('g' | 'G') => 3,
        Some('t' | 'T') => 4,
        Some(_) => return wrong(),
    };
    Ok(number * kilo.powi(power))
}

fn size(text: &str) -> Result<u64, Misuse> {
    scaled(text, 1024.0).map(|bytes| bytes as u64)
}

fn rate(text: &str) -> Result<u64, Misuse> {
    scaled(text, 1000.0).map(|bits| bits as u64)
}

/// The TOS byte of a code point, by its number or its name.
fn dscp(text: &str) -> Result<u8, Misuse> {
    const NAMED: [(&str, u8); 3] = [("lowdelay", 16), ("throughput", 8), ("reliability", 4)];
    let lower = text.to_ascii_lowercase();
    if let Some((_, tos)) = NAMED.iter().find(|(name, _)| *name == lower) {
        return Ok(*tos);
    }
    let class = |digit: &str| digit.parse::<u8>().ok();
    let point = match (lower.strip_prefix("af"), lower.strip_prefix("cs")) {
        (Some(af), _) => match class(af) {
            Some(n) if (1..=4).contains(&(n / 10)) && (1..=3).contains(&(n % 10)) => {
                Some(n / 10 * 8 + n % 10 * 2)
            }
            _ => None,
        },
        (_, Some(cs)) => class(cs).filter(|n| *n <= 7).map(|n| n * 8),
        _ if lower == "ef" => Some(46),
        _ if lower == "va" => Some(44),
        _ => based(text).and_then(|n| u8::try_from(n).ok()).filter(|n| *n <= 63),
    };
    match point {
        Some(point) => Ok(point << 2),
        None => parameter(
            "bad DSCP value (numeric: 0-63 inclusive, symbolic: one of [af11-13, af21-23, \
             af31-33, af41-43, cs1-7, ef, va, lowdelay, throughput, reliability])",
        ),
    }
}
