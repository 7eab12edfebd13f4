//! The parameters of a test, which the client sends.

use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::foreign::Demand;
use crate::plan::{
    Direction, Extent, Protocol, ReceiveMethod, SendMethod, SocketOptions, StreamTest, Test,
    Traffic,
};
use crate::units::{BitRate, ByteCount, Dscp, Span};

use super::{ErrorCode, Layout, ServerError, count, flag};

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
/// Seconds of the test and of the warm-up (iperf3: MAX_TIME, MAX_OMIT_TIME).
const MAX_SECONDS: u64 = 86_400;
const MAX_OMIT: u64 = 600;
/// Blocks of a burst (iperf3: MAX_BURST).
const MAX_BURST: u64 = 1000;
/// Largest rate, bits per second.
const MAX_RATE: u64 = 8_000_000_000_000;
/// Smallest rate that can be set, bits per second.
const MIN_RATE: u64 = 80;
/// Length of the name of a congestion control, without its terminating zero (TCP_CA_NAME_MAX).
const MAX_NAME: usize = 15;

/// The transport of the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// RFC 9293.
    Tcp,
    /// RFC 768; the datagrams' headers have this layout.
    Udp(Layout),
}

/// A test as a client of iperf3 asks for it, within iperf3's own limits.
#[derive(Debug, Clone, PartialEq)]
pub struct Params {
    /// The transport of the data.
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
    /// Direction of the payload.
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
    /// The client wants the server's output.
    pub wants_output: bool,
    /// Proof of who the client is.
    pub token: Option<String>,
    /// Version of the client, cut to what a line of a log takes.
    pub version: Option<String>,
}

fn refuse<T>(code: ErrorCode, what: impl Into<String>) -> Result<T, ServerError> {
    Err(ServerError::Refused(code, what.into()))
}

impl Params {
    /// Longest JSON of parameters that is taken, bytes; the reference's limit.
    pub const MAX_BYTES: usize = 8 << 10;

    /// Reads the parameters that a client has sent.
    ///
    /// # Errors
    /// It is no JSON object, asks for a protocol that linerate does not have, or has a figure
    /// beyond iperf3's own limits; with the number that iperf3's server would answer.
    pub fn parse(json: &[u8]) -> Result<Self, ServerError> {
        // Any key may be missing, and unknown ones are skipped.
        let raw: Map<String, Value> = match serde_json::from_slice(json) {
            Ok(raw) => raw,
            Err(error) => return refuse(ErrorCode::PARAMS, format!("the parameters: {error}")),
        };
        let raw = Value::Object(raw);
        let is = |key: &str| flag(&raw[key]);
        let transport = transport(&raw)?;
        let streams = within(&raw, "parallel", MAX_STREAMS, ErrorCode::STREAMS)?.max(1);
        within(&raw, "burst", MAX_BURST, ErrorCode::BURST)?;
        let window = within(&raw, "window", MAX_BUFFER, ErrorCode::BUFFER)?;
        let mss = within(&raw, "MSS", MAX_MSS, ErrorCode::MSS)?;
        Ok(Self {
            transport,
            omit_s: within(&raw, "omit", MAX_OMIT, ErrorCode::OMIT)? as u32,
            time_s: within(&raw, "time", MAX_SECONDS, ErrorCode::DURATION)? as u32,
            bytes: within(&raw, "num", 1 << 50, ErrorCode::PARAMS)?,
            blocks: within(&raw, "blockcount", 1 << 40, ErrorCode::PARAMS)?,
            streams: streams as u32,
            direction: direction(&raw)?,
            block_bytes: block(&raw["len"], transport)?,
            nodelay: is("nodelay"),
            window_bytes: Some(window).filter(|bytes| *bytes > 0),
            mss_bytes: Some(mss as u32).filter(|bytes| *bytes > 0),
            rate_bps: rate(&raw, "bandwidth")?,
            pacing_bps: rate(&raw, "fqrate")?,
            tos: within(&raw, "TOS", 255, ErrorCode::TOS)? as u8,
            congestion: congestion(&raw["congestion"])?,
            zerocopy: is("zerocopy"),
            discard: is("skip_rx_copy"),
            wants_output: is("get_server_output"),
            token: raw["authtoken"].as_str().map(str::to_owned),
            version: raw["client_version"].as_str().map(version),
        })
    }

    /// The parameters as a client sends them.
    pub fn to_json(&self) -> Vec<u8> {
        let mut map = Map::new();
        let mut set = |key: &str, value: Value| {
            map.insert(key.to_owned(), value);
        };
        set("omit", json!(self.omit_s));
        set("time", json!(self.time_s));
        set("num", json!(self.bytes));
        set("blockcount", json!(self.blocks));
        set("parallel", json!(self.streams));
        set("len", json!(self.block_bytes));
        set("pacing_timer", json!(1000));
        for (key, _) in self.flags().into_iter().filter(|(_, on)| *on) {
            set(key, json!(true));
        }
        for (key, number) in self.numbers() {
            number.into_iter().for_each(|n| set(key, json!(n)));
        }
        let texts = [
            ("congestion", &self.congestion),
            ("authtoken", &self.token),
            ("client_version", &self.version),
        ];
        for (key, text) in texts {
            text.iter().for_each(|text| set(key, json!(text)));
        }
        Value::Object(map).to_string().into_bytes()
    }

    /// Keys that are `true` or left out.
    fn flags(&self) -> [(&'static str, bool); 5] {
        let tcp = self.transport == Transport::Tcp;
        [
            ("tcp", tcp),
            ("udp", !tcp),
            ("nodelay", self.nodelay),
            ("reverse", self.direction == Direction::Down),
            ("bidirectional", self.direction == Direction::Both),
        ]
    }

    /// Keys that are numbers, or left out.
    fn numbers(&self) -> [(&'static str, Option<u64>); 9] {
        let flag = |on: bool| on.then_some(1);
        [
            ("window", self.window_bytes),
            ("MSS", self.mss_bytes.map(u64::from)),
            ("bandwidth", self.rate_bps),
            ("fqrate", self.pacing_bps),
            ("TOS", Some(u64::from(self.tos)).filter(|tos| *tos > 0)),
            ("zerocopy", flag(self.zerocopy)),
            ("skip_rx_copy", flag(self.discard)),
            ("get_server_output", flag(self.wants_output)),
            ("udp_counters_64bit", flag(self.transport == Transport::Udp(Layout::Wide))),
        ]
    }

    /// Flows over both directions.
    pub fn flows(&self) -> u32 {
        self.streams * self.direction.parts().len() as u32
    }

    /// Length of the test with its warm-up, seconds; `None` if it ends by an amount, or not by
    /// itself.
    pub fn seconds(&self) -> Option<f64> {
        let ends_by_time = self.time_s > 0 && self.bytes == 0 && self.blocks == 0;
        ends_by_time.then(|| f64::from(self.omit_s + self.time_s))
    }

    /// What the test needs of the owner's limits.
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

    /// The request as a test of linerate.
    pub fn to_test(&self, seed: u64) -> Test {
        let flows = u64::from(self.streams);
        let seconds = |seconds: u32| Span(Duration::from_secs(seconds.into()));
        Test {
            traffic: Traffic::Stream(self.to_stream()),
            protocol: match self.transport {
                Transport::Tcp => Protocol::Tcp,
                Transport::Udp(_) => Protocol::Udp,
            },
            direction: self.direction,
            streams: self.streams,
            extent: match (self.bytes, self.blocks) {
                (0, 0) => Extent::Time(seconds(self.time_s)),
                (0, blocks) => Extent::Count(blocks.div_ceil(flows)),
                (bytes, _) => Extent::Bytes(ByteCount(bytes.div_ceil(flows))),
            },
            warm_up: seconds(self.omit_s),
            interval: seconds(1),
            options: self.to_options(),
            seed,
        }
    }

    fn to_stream(&self) -> StreamTest {
        let udp = self.transport != Transport::Tcp;
        let rate = self.rate_bps.map(BitRate);
        StreamTest {
            send: if self.zerocopy && !udp { SendMethod::ZeroCopy } else { SendMethod::Copy },
            receive: if self.discard && !udp {
                ReceiveMethod::Discard
            } else {
                ReceiveMethod::Read
            },
            write_rate_bps: rate.filter(|_| !udp),
            rate_bps: rate.filter(|_| udp),
            ..StreamTest::new(self.block_bytes)
        }
    }

    fn to_options(&self) -> SocketOptions {
        SocketOptions {
            receive_window_bytes: self.window_bytes.map(ByteCount),
            send_buffer_bytes: self.window_bytes.map(ByteCount),
            mss_bytes: self.mss_bytes,
            pacing_bps: self.pacing_bps.map(BitRate),
            congestion: self.congestion.clone(),
            nodelay: self.nodelay,
            dscp: Dscp::new(self.tos >> 2).filter(|_| self.tos > 0),
            ..SocketOptions::default()
        }
    }
}

/// A figure from 0 to `most`; 0 where there is none.
fn within(raw: &Value, key: &str, most: u64, code: ErrorCode) -> Result<u64, ServerError> {
    let value = &raw[key];
    if value.is_null() {
        return Ok(0);
    }
    match count(value) {
        Some(figure) if figure <= most => Ok(figure),
        _ => refuse(code, format!("{key} is {value}: it must be 0 to {most}")),
    }
}

/// A rate that can be set, or none.
fn rate(raw: &Value, key: &str) -> Result<Option<u64>, ServerError> {
    let rate = within(raw, key, MAX_RATE, ErrorCode::TOTAL_RATE)?;
    Ok(Some(rate.max(MIN_RATE)).filter(|_| rate > 0))
}

fn transport(raw: &Value) -> Result<Transport, ServerError> {
    match ["tcp", "udp", "sctp"].map(|key| flag(&raw[key])) {
        [true, false, false] => Ok(Transport::Tcp),
        [false, true, false] if flag(&raw["udp_counters_64bit"]) => {
            Ok(Transport::Udp(Layout::Wide))
        }
        [false, true, false] => Ok(Transport::Udp(Layout::Narrow)),
        [false, false, true] => refuse(ErrorCode::PARAMS, "linerate has no SCTP"),
        _ => refuse(ErrorCode::PARAMS, "one of tcp and udp must be asked for"),
    }
}

fn direction(raw: &Value) -> Result<Direction, ServerError> {
    match ["reverse", "bidirectional"].map(|key| flag(&raw[key])) {
        [false, false] => Ok(Direction::Up),
        [true, false] => Ok(Direction::Down),
        [false, true] => Ok(Direction::Both),
        [true, true] => refuse(ErrorCode::PARAMS, "reverse and bidirectional at once"),
    }
}

fn block(value: &Value, transport: Transport) -> Result<u64, ServerError> {
    let length = count(value);
    match (transport, length) {
        (Transport::Tcp, Some(bytes @ 1..=MAX_BLOCK)) => Ok(bytes),
        (Transport::Tcp, _) => {
            let what = format!("len is {value}: it must be 1 to {MAX_BLOCK}");
            refuse(ErrorCode::BLOCK, what)
        }
        (Transport::Udp(_), Some(bytes)) if UDP_BLOCKS.contains(&bytes) => Ok(bytes),
        (Transport::Udp(_), _) => {
            let what = format!("len is {value}: it must be 16 to 65507");
            refuse(ErrorCode::UDP_BLOCK, what)
        }
    }
}

fn congestion(value: &Value) -> Result<Option<String>, ServerError> {
    let Some(name) = value.as_str() else {
        return Ok(None);
    };
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
    if (1..=MAX_NAME).contains(&name.len()) && name.bytes().all(is_letter) {
        return Ok(Some(name.to_owned()));
    }
    let what = "congestion is no name of 1 to 15 letters";
    refuse(ErrorCode::CONGESTION, what)
}

/// A stranger's text, fit for a line of ours.
fn version(text: &str) -> String {
    let plain = text.chars().filter(|c| c.is_ascii_graphic());
    plain.take(16).collect()
}
