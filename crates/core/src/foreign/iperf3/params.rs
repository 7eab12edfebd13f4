//! The parameters of a test, which the client sends.

use serde::Deserialize;
use serde_json::{Map, Value, json};
use thiserror::Error;

use crate::foreign::Demand;
use crate::plan::{
    Direction, Extent, Protocol, ReceiveMethod, SendMethod, SocketOptions, StreamTest, Test,
    Traffic,
};
use crate::units::{BitRate, ByteCount, Dscp, Span};

use super::number::{count, flag};
use super::{ErrorCode, Layout};

/// Streams in each direction (iperf3: MAX_STREAMS).
const MAX_STREAMS: u64 = 128;
/// Bytes of a TCP block (iperf3: MAX_BLOCKSIZE).
const MAX_BLOCK: u64 = 1 << 20;
/// Payload of a datagram.
const UDP_BLOCKS: std::ops::RangeInclusive<u64> = 16..=65_507;
/// Socket buffer (iperf3: MAX_TCP_BUFFER).
const MAX_BUFFER: u64 = 512 << 20;
/// Segment size (iperf3: MAX_MSS); 0 leaves it to the kernel.
const MAX_MSS: u64 = 32_767;
/// Seconds (iperf3: MAX_TIME, MAX_OMIT_TIME).
const MAX_SECONDS: u64 = 86_400;
const MAX_OMIT: u64 = 600;
/// Blocks of a burst (iperf3: MAX_BURST).
const MAX_BURST: u64 = 1000;
/// Bits per second that a rate can be.
const MAX_RATE: u64 = 8_000_000_000_000;
/// A rate below cannot be set.
const MIN_RATE: u64 = 80;
/// Of a kernel's congestion control, without its terminating zero (TCP_CA_NAME_MAX).
const MAX_NAME: usize = 15;

/// What carries the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// RFC 9293.
    Tcp,
    /// RFC 768, with headers of this layout.
    Udp(Layout),
}

/// A test as a client of iperf3 asks for it, within iperf3's own limits.
#[derive(Debug, Clone, PartialEq)]
pub struct Params {
    /// What carries the data.
    pub transport: Transport,
    /// Seconds left out at the beginning, 0 to 600.
    pub omit_s: u32,
    /// Seconds after that, 0 to 86,400; 0 is without end, or until an amount is sent.
    pub time_s: u32,
    /// Bytes over all streams; 0 is no limit.
    pub bytes: u64,
    /// Blocks over all streams; 0 is no limit.
    pub blocks: u64,
    /// Streams in each direction, 1 to 128.
    pub streams: u32,
    /// Which way.
    pub direction: Direction,
    /// Bytes of a block or datagram.
    pub block_bytes: u64,
    /// `TCP_NODELAY`.
    pub nodelay: bool,
    /// Socket buffers, bytes.
    pub window_bytes: Option<u64>,
    /// Segment size, bytes.
    pub mss_bytes: Option<u32>,
    /// Rate of each stream at which the application writes, bits per second.
    pub rate_bps: Option<u64>,
    /// Rate of each stream at which the kernel paces, bits per second.
    pub pacing_bps: Option<u64>,
    /// Type of service, all eight bits.
    pub tos: u8,
    /// Congestion control of the sender.
    pub congestion: Option<String>,
    /// Send without a copy.
    pub zerocopy: bool,
    /// Drop what is received in the kernel.
    pub discard: bool,
    /// The client wants to see what the server prints.
    pub wants_output: bool,
    /// Proof of who the client is.
    pub token: Option<String>,
    /// Version of the client, cut to what a line of a log takes.
    pub version: Option<String>,
}

/// Why parameters are none that can be run.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{what}")]
pub struct ParamsError {
    /// What the client is told.
    pub code: ErrorCode,
    what: String,
}

fn refuse<T>(code: ErrorCode, what: impl Into<String>) -> Result<T, ParamsError> {
    Err(ParamsError {
        code,
        what: what.into(),
    })
}

/// As they come: every key may be missing, and unknown ones are skipped.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Raw {
    #[serde(deserialize_with = "flag")]
    tcp: bool,
    #[serde(deserialize_with = "flag")]
    udp: bool,
    #[serde(deserialize_with = "flag")]
    sctp: bool,
    omit: Value,
    time: Value,
    num: Value,
    blockcount: Value,
    parallel: Value,
    len: Value,
    window: Value,
    #[serde(rename = "MSS")]
    mss: Value,
    bandwidth: Value,
    fqrate: Value,
    burst: Value,
    #[serde(rename = "TOS")]
    tos: Value,
    congestion: Value,
    authtoken: Value,
    client_version: Value,
    #[serde(deserialize_with = "flag")]
    nodelay: bool,
    #[serde(deserialize_with = "flag")]
    reverse: bool,
    #[serde(deserialize_with = "flag")]
    bidirectional: bool,
    #[serde(deserialize_with = "flag")]
    get_server_output: bool,
    #[serde(deserialize_with = "flag")]
    udp_counters_64bit: bool,
    #[serde(deserialize_with = "flag")]
    zerocopy: bool,
    #[serde(deserialize_with = "flag")]
    skip_rx_copy: bool,
}

impl Params {
    /// Longest JSON of parameters that is taken, bytes; the reference's limit.
    pub const MAX_BYTES: usize = 8 << 10;

    /// Reads what a client has sent.
    ///
    /// # Errors
    /// No JSON of an object; a protocol that linerate has not; a figure beyond iperf3's own limits, with the number
    /// that iperf3's server would answer.
    pub fn parse(json: &[u8]) -> Result<Self, ParamsError> {
        let raw: Raw = match serde_json::from_slice(json) {
            Ok(raw) => raw,
            Err(error) => return refuse(ErrorCode::PARAMS, format!("the parameters: {error}")),
        };
        let transport = transport(&raw)?;
        let within = |key: &str, value: &Value, most: u64, code| -> Result<u64, ParamsError> {
            if value.is_null() {
                return Ok(0);
            }
            match count(value) {
                Some(figure) if figure <= most => Ok(figure),
                _ => refuse(code, format!("{key} is {value}: it must be 0 to {most}")),
            }
        };
        let streams = within("parallel", &raw.parallel, MAX_STREAMS, ErrorCode::STREAMS)?.max(1);
        within("burst", &raw.burst, MAX_BURST, ErrorCode::BURST)?;
        let rate = |key, value: &Value| {
            let rate = within(key, value, MAX_RATE, ErrorCode::TOTAL_RATE)?;
            Ok::<_, ParamsError>(Some(rate.max(MIN_RATE)).filter(|_| rate > 0))
        };
        Ok(Self {
            transport,
            omit_s: within("omit", &raw.omit, MAX_OMIT, ErrorCode::OMIT)? as u32,
            time_s: within("time", &raw.time, MAX_SECONDS, ErrorCode::DURATION)? as u32,
            bytes: within("num", &raw.num, 1 << 50, ErrorCode::PARAMS)?,
            blocks: within("blockcount", &raw.blockcount, 1 << 40, ErrorCode::PARAMS)?,
            streams: streams as u32,
            direction: direction(&raw)?,
            block_bytes: block(&raw.len, transport)?,
            nodelay: raw.nodelay,
            window_bytes: Some(within(
                "window",
                &raw.window,
                MAX_BUFFER,
                ErrorCode::BUFFER,
            )?)
            .filter(|bytes| *bytes > 0),
            mss_bytes: Some(within("MSS", &raw.mss, MAX_MSS, ErrorCode::MSS)? as u32)
                .filter(|bytes| *bytes > 0),
            rate_bps: rate("bandwidth", &raw.bandwidth)?,
            pacing_bps: rate("fqrate", &raw.fqrate)?,
            tos: within("TOS", &raw.tos, 255, ErrorCode::TOS)? as u8,
            congestion: congestion(&raw.congestion)?,
            zerocopy: raw.zerocopy,
            discard: raw.skip_rx_copy,
            wants_output: raw.get_server_output,
            token: raw.authtoken.as_str().map(str::to_owned),
            version: raw.client_version.as_str().map(version),
        })
    }

    /// What the client sends.
    pub fn to_json(&self) -> Vec<u8> {
        let mut map = Map::new();
        let mut set = |key: &str, value: Value| {
            map.insert(key.to_owned(), value);
        };
        match self.transport {
            Transport::Tcp => set("tcp", json!(true)),
            Transport::Udp(_) => set("udp", json!(true)),
        }
        set("omit", json!(self.omit_s));
        set("time", json!(self.time_s));
        set("num", json!(self.bytes));
        set("blockcount", json!(self.blocks));
        set("parallel", json!(self.streams));
        set("len", json!(self.block_bytes));
        set("pacing_timer", json!(1000));
        let flags = [
            ("nodelay", self.nodelay),
            ("reverse", self.direction == Direction::Down),
            ("bidirectional", self.direction == Direction::Both),
        ];
        for (key, _) in flags.into_iter().filter(|(_, on)| *on) {
            set(key, json!(true));
        }
        let numbers = [
            ("window", self.window_bytes),
            ("MSS", self.mss_bytes.map(u64::from)),
            ("bandwidth", self.rate_bps),
            ("fqrate", self.pacing_bps),
            ("TOS", Some(u64::from(self.tos)).filter(|tos| *tos > 0)),
            ("zerocopy", self.zerocopy.then_some(1)),
            ("skip_rx_copy", self.discard.then_some(1)),
            ("get_server_output", self.wants_output.then_some(1)),
            (
                "udp_counters_64bit",
                (self.transport == Transport::Udp(Layout::Wide)).then_some(1),
            ),
        ];
        for (key, number) in numbers {
            if let Some(number) = number {
                set(key, json!(number));
            }
        }
        let texts = [
            ("congestion", &self.congestion),
            ("authtoken", &self.token),
            ("client_version", &self.version),
        ];
        for (key, text) in texts {
            if let Some(text) = text {
                set(key, json!(text));
            }
        }
        Value::Object(map).to_string().into_bytes()
    }

    /// Flows over both directions.
    pub fn flows(&self) -> u32 {
        self.streams * self.direction.parts().len() as u32
    }

    /// Seconds that it takes with its warm-up; `None` where it ends by an amount, or not by itself.
    pub fn seconds(&self) -> Option<f64> {
        let ends_by_time = self.time_s > 0 && self.bytes == 0 && self.blocks == 0;
        ends_by_time.then(|| f64::from(self.omit_s + self.time_s))
    }

    /// What it takes of the owner's.
    pub fn demand(&self) -> Demand {
        let unlimited = self.rate_bps.unwrap_or(u64::MAX);
        Demand {
            streams: self.flows(),
            seconds: self.seconds(),
            rate_bps: match self.transport {
                // This end reads and paces no faster than its owner allows.
                Transport::Tcp => None,
                Transport::Udp(_) => Some(unlimited.saturating_mul(u64::from(self.flows()))),
            },
        }
    }

    /// The same test in linerate's words.
    pub fn to_test(&self, seed: u64) -> Test {
        let flows = u64::from(self.streams);
        let extent = match (self.bytes, self.blocks) {
            (0, 0) => Extent::Time(Span(std::time::Duration::from_secs(self.time_s.into()))),
            (0, blocks) => Extent::Count(blocks.div_ceil(flows)),
            (bytes, _) => Extent::Bytes(ByteCount(bytes.div_ceil(flows))),
        };
        let udp = self.transport != Transport::Tcp;
        let rate = self.rate_bps.map(BitRate);
        Test {
            traffic: Traffic::Stream(StreamTest {
                message_bytes: self.block_bytes,
                send: match self.zerocopy && !udp {
                    true => SendMethod::ZeroCopy,
                    false => SendMethod::Copy,
                },
                receive: match self.discard && !udp {
                    true => ReceiveMethod::Discard,
                    false => ReceiveMethod::Read,
                },
                verify: false,
                whole: false,
                write_rate_bps: rate.filter(|_| !udp),
                read_rate_bps: None,
                rate_bps: rate.filter(|_| udp),
                offload: false,
                train: false,
            }),
            protocol: match udp {
                true => Protocol::Udp,
                false => Protocol::Tcp,
            },
            direction: self.direction,
            streams: self.streams,
            extent,
            warm_up: Span(std::time::Duration::from_secs(self.omit_s.into())),
            interval: Span(std::time::Duration::from_secs(1)),
            options: SocketOptions {
                receive_window_bytes: self.window_bytes.map(ByteCount),
                send_buffer_bytes: self.window_bytes.map(ByteCount),
                mss_bytes: self.mss_bytes,
                pacing_bps: self.pacing_bps.map(BitRate),
                congestion: self.congestion.clone(),
                nodelay: self.nodelay,
                dscp: Dscp::new(self.tos >> 2).filter(|_| self.tos > 0),
                ..SocketOptions::default()
            },
            seed,
        }
    }
}

fn transport(raw: &Raw) -> Result<Transport, ParamsError> {
    match (raw.tcp, raw.udp, raw.sctp) {
        (true, false, false) => Ok(Transport::Tcp),
        (false, true, false) if raw.udp_counters_64bit => Ok(Transport::Udp(Layout::Wide)),
        (false, true, false) => Ok(Transport::Udp(Layout::Narrow)),
        (false, false, true) => refuse(ErrorCode::PARAMS, "linerate has no SCTP"),
        _ => refuse(ErrorCode::PARAMS, "one of tcp and udp must be asked for"),
    }
}

fn direction(raw: &Raw) -> Result<Direction, ParamsError> {
    match (raw.reverse, raw.bidirectional) {
        (false, false) => Ok(Direction::Up),
        (true, false) => Ok(Direction::Down),
        (false, true) => Ok(Direction::Both),
        (true, true) => refuse(ErrorCode::PARAMS, "reverse and bidirectional at once"),
    }
}

fn block(value: &Value, transport: Transport) -> Result<u64, ParamsError> {
    let length = count(value);
    match (transport, length) {
        (Transport::Tcp, Some(bytes @ 1..=MAX_BLOCK)) => Ok(bytes),
        (Transport::Tcp, _) => refuse(
            ErrorCode::BLOCK,
            format!("len is {value}: it must be 1 to {MAX_BLOCK}"),
        ),
        (Transport::Udp(_), Some(bytes)) if UDP_BLOCKS.contains(&bytes) => Ok(bytes),
        (Transport::Udp(_), _) => refuse(
            ErrorCode::UDP_BLOCK,
            format!("len is {value}: it must be 16 to 65507"),
        ),
    }
}

fn congestion(value: &Value) -> Result<Option<String>, ParamsError> {
    let Some(name) = value.as_str() else {
        return Ok(None);
    };
    let fits = (1..=MAX_NAME).contains(&name.len())
        && name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
    match fits {
        true => Ok(Some(name.to_owned())),
        false => refuse(
            ErrorCode::CONGESTION,
            "congestion is no name of 1 to 15 letters",
        ),
    }
}

/// A stranger's text, fit for a line of ours.
fn version(text: &str) -> String {
    let plain = text.chars().filter(|c| c.is_ascii_graphic());
    plain.take(16).collect()
}
