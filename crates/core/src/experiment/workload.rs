//! The keys of `[workload]`: the long options of the commands, and what they make together.
//!
//! Defaults and contradictions are those of the command line; a test of the command line's crate
//! holds the two against each other.

use std::fmt::Display;
use std::str::FromStr;
use std::time::Duration;

use super::special::{FileTransfer, Special};
use crate::plan::{
    Closer, Direction, ExchangeTest, Extent, Protocol, ReceiveMethod, SendMethod, SocketOptions,
    StreamTest, Test, Traffic,
};
use crate::units::{BitRate, ByteCount, Span};

/// What a cell runs.
#[derive(Debug, Clone, PartialEq)]
pub enum Work {
    /// A test of the path.
    Test(Box<Test>),
    /// Something else.
    Special(Special),
}

/// The commands that a workload can be of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Command {
    Stream,
    Rr,
    Crr,
    FileWrite,
    FileRead,
}

/// All commands and their names.
pub(super) const COMMANDS: [(&str, Command); 5] = [
    ("stream", Command::Stream),
    ("rr", Command::Rr),
    ("crr", Command::Crr),
    ("file_write", Command::FileWrite),
    ("file_read", Command::FileRead),
];

/// Keys of which one excludes the others: when a run ends.
pub(super) const EXTENTS: [&str; 3] = ["time", "bytes", "count"];

/// Which transport a key has a meaning over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Over {
    Any,
    Tcp,
    Udp,
}

/// A key: the next one is one more entry of [`KEYS`].
#[derive(Debug)]
pub(super) struct Key {
    pub(super) name: &'static str,
    commands: &'static [Command],
    over: Over,
    set: fn(&mut Draft, &str) -> Result<(), String>,
}

/// The keys of a workload as they are set, defaults not yet filled in.
#[derive(Debug, Clone)]
pub(super) struct Draft {
    command: Command,
    protocol: Protocol,
    size: Option<u64>,
    extent: Option<Extent>,
    warm_up: Option<Span>,
    interval: Option<Span>,
    streams: u32,
    direction: Direction,
    rate: Option<String>,
    offload: Option<bool>,
    stream: StreamTest,
    exchange: ExchangeTest,
    options: SocketOptions,
    directory: Option<String>,
    keys: Vec<&'static Key>,
}

impl Command {
    /// The key of that name, if this command has it.
    pub(super) fn key(self, name: &str) -> Option<&'static Key> {
        KEYS.iter()
            .find(|key| key.name == name && key.commands.contains(&self))
    }

    /// The names of its keys.
    pub(super) fn keys(self) -> Vec<&'static str> {
        let keys = KEYS.iter().filter(|key| key.commands.contains(&self));
        keys.map(|key| key.name).collect()
    }

    fn is_exchange(self) -> bool {
        matches!(self, Self::Rr | Self::Crr)
    }
}

impl Draft {
    pub(super) fn new(command: Command) -> Self {
        Self {
            command,
            protocol: Protocol::Tcp,
            size: None,
            extent: None,
            warm_up: None,
            interval: None,
            streams: 1,
            direction: Direction::Up,
            rate: None,
            offload: None,
            stream: StreamTest {
                message_bytes: DEFAULT_MESSAGE,
                send: SendMethod::Copy,
                receive: ReceiveMethod::Read,
                verify: false,
                whole: false,
                write_rate_bps: None,
                read_rate_bps: None,
                rate_bps: None,
                offload: false,
                train: false,
            },
            exchange: ExchangeTest {
                request_bytes: 1,
                response_bytes: 1,
                depth: 1,
                rate_per_s: None,
                spin: false,
                closer: match command {
                    Command::Crr => Closer::Server,
                    _ => Closer::Client,
                },
                reset: false,
            },
            options: SocketOptions::default(),
            directory: None,
            keys: Vec::new(),
        }
    }

    /// Sets a key to the text of its value.
    ///
    /// # Errors
    /// Why the value cannot be read.
    pub(super) fn set(&mut self, key: &'static Key, text: &str) -> Result<(), String> {
        (key.set)(self, text)?;
        self.keys.push(key);
        Ok(())
    }

    /// The workload with every default filled in, and checked.
    ///
    /// # Errors
    /// What does not go together, or is out of range.
    pub(super) fn finish(self, seed: u64) -> Result<Work, String> {
        self.refuse_other_protocols_keys()?;
        match self.command {
            Command::FileWrite => self.file().map(Special::FileWrite).map(Work::Special),
            Command::FileRead => self.file().map(Special::FileRead).map(Work::Special),
            _ => {
                let test = self.test(seed)?;
                test.check().map_err(|error| error.to_string())?;
                Ok(Work::Test(Box::new(test)))
            }
        }
    }

    fn refuse_other_protocols_keys(&self) -> Result<(), String> {
        let refused = self.keys.iter().find(|key| match key.over {
            Over::Any => false,
            Over::Tcp => self.protocol == Protocol::Udp,
            Over::Udp => self.protocol != Protocol::Udp,
        });
        match refused {
            None => Ok(()),
            Some(key) => Err(format!(
                "`{}` is an option of {}",
                key.name,
                if key.over == Over::Tcp {
                    "TCP, and the protocol is udp"
                } else {
                    "UDP"
                }
            )),
        }
    }

    fn file(&self) -> Result<FileTransfer, String> {
        let Some(Extent::Bytes(bytes)) = self.extent else {
            return Err("a file needs `bytes`, the size of it".to_owned());
        };
        let record_bytes = self.size.unwrap_or(DEFAULT_MESSAGE);
        if !(1..=MAX_FILE).contains(&bytes.0) || !(1..=bytes.0).contains(&record_bytes) {
            return Err("a file has 1 byte to 16 GiB, and each write at most all of it".to_owned());
        }
        Ok(FileTransfer {
            bytes: bytes.0,
            record_bytes,
            directory: self.directory.clone(),
        })
    }

    fn test(mut self, seed: u64) -> Result<Test, String> {
        let extent = self.extent.unwrap_or(Extent::Time(DEFAULT_TIME));
        let traffic = self.traffic()?;
        // Nagle's algorithm would hold a request back for the last one's acknowledgement.
        self.options.nodelay |= self.command.is_exchange() && self.protocol != Protocol::Udp;
        let default_warm_up = match extent {
            Extent::Time(time) if !self.stream.whole => (time.0 / 10).min(MAX_DEFAULT_WARM_UP),
            _ => Duration::ZERO,
        };
        let default_interval = match extent {
            Extent::Time(time) => time.min(DEFAULT_INTERVAL),
            Extent::Bytes(_) | Extent::Count(_) => DEFAULT_INTERVAL,
        };
        Ok(Test {
            traffic,
            protocol: self.protocol,
            direction: self.direction,
            streams: self.streams,
            extent,
            warm_up: self.warm_up.unwrap_or(Span(default_warm_up)),
            interval: self.interval.unwrap_or(default_interval),
            options: self.options,
            seed,
        })
    }

    fn traffic(&self) -> Result<Traffic, String> {
        let mut exchange = self.exchange.clone();
        if self.command.is_exchange() {
            exchange.rate_per_s = self.rate.as_deref().map(request_rate).transpose()?;
        }
        match self.command {
            Command::Rr => return Ok(Traffic::Rr(exchange)),
            Command::Crr => return Ok(Traffic::Crr(exchange)),
            _ => {}
        }
        let rate_bps = self.rate.as_deref().map(read::<BitRate>).transpose()?;
        let is_udp = self.protocol == Protocol::Udp;
        let default_size = if is_udp {
            DEFAULT_DATAGRAM
        } else {
            DEFAULT_MESSAGE
        };
        let fast = rate_bps.is_none_or(|rate| rate > OFFLOAD_ABOVE);
        Ok(Traffic::Stream(StreamTest {
            message_bytes: self.size.unwrap_or(default_size),
            rate_bps,
            offload: self.offload.unwrap_or(is_udp && fast),
            ..self.stream.clone()
        }))
    }
}

/// Reads a quantity.
fn read<T: FromStr<Err: Display>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|error: T::Err| error.to_string())
}

fn flag(text: &str) -> Result<bool, String> {
    match text {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err("it is true or false".to_owned()),
    }
}

fn word<T: Copy>(text: &str, words: &[(&str, T)]) -> Result<T, String> {
    let found = words.iter().find(|(word, _)| *word == text);
    found.map(|(_, value)| *value).ok_or_else(|| {
        let words: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        format!("it is one of {}", words.join(", "))
    })
}

/// `1000`, `2.5k`, `1M`, each with or without `/s`.
fn request_rate(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix("/s").unwrap_or(text);
    let (digits, scale) = match number.char_indices().last() {
        Some((at, 'k' | 'K')) => (&number[..at], 1e3),
        Some((at, 'm' | 'M')) => (&number[..at], 1e6),
        _ => (number, 1.0),
    };
    let rate: Option<f64> = digits.trim().parse().ok();
    rate.filter(|rate| rate.is_finite())
        .map(|rate| rate * scale)
        .ok_or_else(|| "requests per second are written as 1000, 2.5k or 1M".to_owned())
}

/// Measured time of a run, if none is given.
const DEFAULT_TIME: Span = Span(Duration::from_secs(10));
/// Longest warm-up that is chosen by default.
const MAX_DEFAULT_WARM_UP: Duration = Duration::from_secs(1);
/// Between two intervals of a record, if nothing is given.
const DEFAULT_INTERVAL: Span = Span(Duration::from_secs(1));
/// Message of a stream over TCP, bytes.
const DEFAULT_MESSAGE: u64 = 128 << 10;
/// Datagram of a stream over UDP, bytes.
const DEFAULT_DATAGRAM: u64 = 1448;
/// Below this rate datagrams are sent one by one.
const OFFLOAD_ABOVE: BitRate = BitRate(100_000_000);
/// Largest file of a special workload, bytes.
const MAX_FILE: u64 = 16 << 30;

const STREAM: &[Command] = &[Command::Stream];
const RR: &[Command] = &[Command::Rr];
const CRR: &[Command] = &[Command::Crr];
const EXCHANGES: &[Command] = &[Command::Rr, Command::Crr];
const TESTS: &[Command] = &[Command::Stream, Command::Rr, Command::Crr];
const FILES: &[Command] = &[Command::FileWrite, Command::FileRead];
const SIZED: &[Command] = &[Command::Stream, Command::FileWrite, Command::FileRead];

type Set = fn(&mut Draft, &str) -> Result<(), String>;

const fn key(name: &'static str, commands: &'static [Command], over: Over, set: Set) -> Key {
    Key {
        name,
        commands,
        over,
        set,
    }
}

/// All keys of all commands.
#[rustfmt::skip]
static KEYS: &[Key] = &[
    key("size", SIZED, Over::Any, |d, t| { d.size = Some(read::<ByteCount>(t)?.0); Ok(()) }),
    key("bytes", SIZED, Over::Any, |d, t| { d.extent = Some(Extent::Bytes(read(t)?)); Ok(()) }),
    key("time", TESTS, Over::Any, |d, t| { d.extent = Some(Extent::Time(read(t)?)); Ok(()) }),
    key("count", TESTS, Over::Any, |d, t| { d.extent = Some(Extent::Count(read(t)?)); Ok(()) }),
    key("warm-up", TESTS, Over::Any, |d, t| { d.warm_up = Some(read(t)?); Ok(()) }),
    key("interval", TESTS, Over::Any, |d, t| { d.interval = Some(read(t)?); Ok(()) }),
    key("protocol", TESTS, Over::Any, |d, t| {
        let words = [("tcp", Protocol::Tcp), ("udp", Protocol::Udp), ("mptcp", Protocol::Mptcp)];
        d.protocol = word(t, &words)?;
        Ok(())
    }),
    key("streams", TESTS, Over::Any, |d, t| { d.streams = read(t)?; Ok(()) }),
    key("direction", STREAM, Over::Any, |d, t| {
        let words = [("up", Direction::Up), ("down", Direction::Down), ("both", Direction::Both)];
        d.direction = word(t, &words)?;
        Ok(())
    }),
    key("rate", STREAM, Over::Udp, |d, t| { d.rate = Some(t.to_owned()); Ok(()) }),
    key("rate", EXCHANGES, Over::Any, |d, t| { d.rate = Some(t.to_owned()); Ok(()) }),
    key("offload", STREAM, Over::Udp, |d, t| { d.offload = Some(flag(t)?); Ok(()) }),
    key("zerocopy", STREAM, Over::Tcp, |d, t| {
        d.stream.send = if flag(t)? { SendMethod::ZeroCopy } else { SendMethod::Copy };
        Ok(())
    }),
    key("discard", STREAM, Over::Tcp, |d, t| {
        d.stream.receive = if flag(t)? { ReceiveMethod::Discard } else { ReceiveMethod::Read };
        Ok(())
    }),
    key("verify", STREAM, Over::Any, |d, t| { d.stream.verify = flag(t)?; Ok(()) }),
    key("whole", STREAM, Over::Tcp, |d, t| { d.stream.whole = flag(t)?; Ok(()) }),
    key("write-rate", STREAM, Over::Tcp, |d, t| { d.stream.write_rate_bps = Some(read(t)?); Ok(()) }),
    key("read-rate", STREAM, Over::Any, |d, t| { d.stream.read_rate_bps = Some(read(t)?); Ok(()) }),
    key("request", EXCHANGES, Over::Any, |d, t| { d.exchange.request_bytes = read::<ByteCount>(t)?.0; Ok(()) }),
    key("response", EXCHANGES, Over::Any, |d, t| { d.exchange.response_bytes = read::<ByteCount>(t)?.0; Ok(()) }),
    key("spin", EXCHANGES, Over::Any, |d, t| { d.exchange.spin = flag(t)?; Ok(()) }),
    key("depth", RR, Over::Any, |d, t| { d.exchange.depth = read(t)?; Ok(()) }),
    key("close", CRR, Over::Any, |d, t| {
        d.exchange.closer = word(t, &[("client", Closer::Client), ("server", Closer::Server)])?;
        Ok(())
    }),
    key("reset", CRR, Over::Any, |d, t| { d.exchange.reset = flag(t)?; Ok(()) }),
    key("receive-window", TESTS, Over::Any, |d, t| { d.options.receive_window_bytes = Some(read(t)?); Ok(()) }),
    key("send-buffer", TESTS, Over::Any, |d, t| { d.options.send_buffer_bytes = Some(read(t)?); Ok(()) }),
    key("mss", TESTS, Over::Tcp, |d, t| { d.options.mss_bytes = Some(read(t)?); Ok(()) }),
    key("pacing", TESTS, Over::Tcp, |d, t| { d.options.pacing_bps = Some(read(t)?); Ok(()) }),
    key("congestion", TESTS, Over::Tcp, |d, t| { d.options.congestion = Some(t.to_owned()); Ok(()) }),
    key("nodelay", TESTS, Over::Tcp, |d, t| { d.options.nodelay = flag(t)?; Ok(()) }),
    key("dscp", TESTS, Over::Any, |d, t| { d.options.dscp = Some(read(t)?); Ok(()) }),
    key("directory", FILES, Over::Any, |d, t| { d.directory = Some(t.to_owned()); Ok(()) }),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn work(command: Command, keys: &[(&str, &str)]) -> Result<Work, String> {
        let mut draft = Draft::new(command);
        for (name, text) in keys {
            let key = command.key(name).ok_or_else(|| format!("no key {name}"))?;
            draft.set(key, text)?;
        }
        draft.finish(7)
    }

    #[test]
    fn no_command_has_two_keys_of_one_name() {
        for (name, command) in COMMANDS {
            let mut keys = command.keys();
            keys.sort_unstable();
            let count = keys.len();
            keys.dedup();
            assert_eq!(keys.len(), count, "{name}");
        }
    }

    #[test]
    fn keys_of_one_transport_are_refused_over_the_other() {
        let udp = [("protocol", "udp"), ("mss", "536")];
        assert_eq!(
            work(Command::Stream, &udp).unwrap_err(),
            "`mss` is an option of TCP, and the protocol is udp"
        );
        let tcp = [("rate", "1mbit")];
        assert_eq!(
            work(Command::Stream, &tcp).unwrap_err(),
            "`rate` is an option of UDP"
        );
        assert!(work(Command::Rr, &[("rate", "2.5k")]).is_ok());
    }

    #[test]
    fn a_file_needs_its_size() {
        assert!(work(Command::FileRead, &[("size", "1024")]).is_err());
        let copied = work(Command::FileWrite, &[("bytes", "4MiB"), ("size", "1024")]);
        assert_eq!(
            copied,
            Ok(Work::Special(Special::FileWrite(FileTransfer {
                bytes: 4 << 20,
                record_bytes: 1024,
                directory: None,
            })))
        );
    }

    #[test]
    fn values_out_of_range_are_refused_with_the_range() {
        let error = work(Command::Stream, &[("streams", "1000")]).unwrap_err();
        assert_eq!(error, "streams is 1000: it must be 1 to 128");
        let error = work(Command::Stream, &[("direction", "sideways")]).unwrap_err();
        assert_eq!(error, "it is one of up, down, both");
    }
}
