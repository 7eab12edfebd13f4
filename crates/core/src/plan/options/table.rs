//! The table of options.

use std::net::IpAddr;
use std::time::Duration;

use super::super::build::Draft;
use super::super::{
    Closer, Direction, Extent, MAX_BATCH, MAX_DEPTH, MAX_MESSAGE, MAX_OBJECTS, MAX_SECONDS,
    MAX_STREAMS, Protocol, Role, StreamTest, Test, Workload,
};
use super::{
    Default, Field, Over, Shorthand, SocketTreatment, TestOption, exchange, exchange_mut, put,
    stream, stream_mut,
};
use crate::units::{BitRate, ByteCount, Dscp, Span};
use crate::value::{NO_LIMIT, Value, ValueKind};
use crate::video::UNIT_BYTES;
use crate::wire::STAMP_BYTES;

/// The functions that read an option from a test and write it into one: by the place of its field,
/// or given.
macro_rules! get {
    (test.$field:ident) => {
        |test: &Test| test.$field.value()
    };
    (socket.$field:ident) => {
        |test: &Test| test.options.$field.value()
    };
    (stream.$field:ident) => {
        |test: &Test| stream(test)?.$field.value()
    };
    (exchange.$field:ident) => {
        |test: &Test| exchange(test)?.$field.value()
    };
    (extent.$unit:ident) => {
        |test: &Test| match &test.extent {
            Extent::$unit(extent) => extent.value(),
            _ => None,
        }
    };
    (($get:expr, $set:expr)) => {
        $get
    };
}

macro_rules! set {
    (test.$field:ident) => {
        |test: &mut Test, value| put(Some(&mut test.$field), value)
    };
    (socket.$field:ident) => {
        |test: &mut Test, value| put(Some(&mut test.options.$field), value)
    };
    (stream.$field:ident) => {
        |test: &mut Test, value| put(stream_mut(test).map(|it| &mut it.$field), value)
    };
    (exchange.$field:ident) => {
        |test: &mut Test, value| put(exchange_mut(test).map(|it| &mut it.$field), value)
    };
    (extent.$unit:ident) => {
        |test: &mut Test, value| {
            let extent = Field::from_value(value).map(Extent::$unit);
            test.extent = extent.unwrap_or(test.extent);
        }
    };
    (($get:expr, $set:expr)) => {
        $set
    };
}

/// Makes the table of options, and a setter of [`Draft`] for each. An entry begins as a constant
/// such as [`STREAM`] and changes some of its fields.
macro_rules! options {
    ($(
        #[doc = $help:literal]
        $name:ident $key:literal: $type:ty = $place:tt $(. $field:ident)?, $kind:expr, $base:ident
            $({ $($other:ident: $value:expr),* $(,)? })?
            $(treatment { $($part:ident: $text:expr),* $(,)? })?;
    )*) => {
        impl Draft {
            $(
                #[doc = $help]
                pub fn $name(self, value: impl Into<$type>) -> Self {
                    let value: $type = value.into();
                    match value.value() {
                        Some(value) => self.with(stringify!($name), value),
                        None => self,
                    }
                }
            )*
        }

        pub(super) static OPTIONS: &[TestOption] = &[$(TestOption {
            name: stringify!($name),
            key: $key,
            help: $help.trim_ascii_start(),
            kind: $kind,
            get: get!($place $(. $field)?),
            set: set!($place $(. $field)?),
            $($($other: $value,)*)?
            $(treatment: Some(SocketTreatment { $($part: $text,)* ..SOCKET_OPTION }),)?
            ..$base
        }),*];
    };
}

/// A typical treatment: a socket option at both ends that needs nothing.
const SOCKET_OPTION: SocketTreatment = SocketTreatment {
    means: "",
    acts: None,
    costs_cpu: false,
    needs: "nothing",
    applied: "setsockopt on each data socket of the end that it concerns",
    read_back: "",
};

/// A typical option, which each group of the table adapts.
const PLAIN: TestOption = TestOption {
    name: "",
    key: "",
    short: None,
    aliases: &[],
    value_name: "N",
    kind: ValueKind::Switch,
    workloads: &[Workload::Stream, Workload::Rr, Workload::Crr],
    over: Over::Any,
    default: Default::None,
    heading: "Extent",
    help: "",
    treatment_only: false,
    excludes: &[],
    shorthands: &[],
    treatment: None,
    get: |_| None,
    set: |_, _| {},
};
const TRANSPORT: TestOption = TestOption { heading: "Transport", ..PLAIN };
const STREAM: TestOption =
    TestOption { heading: "Stream", workloads: &[Workload::Stream], ..PLAIN };
const OFF: Default = Default::Always("off");
const STREAM_FLAG: TestOption = TestOption { default: OFF, ..STREAM };
const EXCHANGE: TestOption =
    TestOption { heading: "Exchange", workloads: &[Workload::Rr, Workload::Crr], ..PLAIN };
const SOCKET: TestOption =
    TestOption { heading: "Sockets (default: the kernel's choice)", ..PLAIN };

const OF_TCP: Over = Over::Tcp("it is an option of TCP", &[]);
const OF_TCP_SOCKETS: Over = Over::Tcp("it is an option of TCP sockets", &[]);
const OF_UDP: Over = Over::Udp("it is an option of UDP", &[]);
const BUFFER: ValueKind = ValueKind::Bytes { least: 1, most: 1 << 30 };
const MESSAGE: ValueKind = ValueKind::Bytes { least: 1, most: MAX_MESSAGE };
/// More than any host sends, bits/s.
const MAX_RATE: u64 = 8_000_000_000_000;
/// At least a byte in 100 ms.
const RATE: ValueKind = ValueKind::Rate { least: 80, most: MAX_RATE };
const RATE_OR_MAX: ValueKind = ValueKind::RateOrMax { least: 80, most: MAX_RATE };
/// At most a second for each MiB.
const WORK: ValueKind = ValueKind::Number { least: 1, most: 1_000_000, unit: "ns" };
const fn number(least: u64, most: u64) -> ValueKind {
    let unit = "";
    ValueKind::Number { least, most, unit }
}
const fn time(least_ms: u64) -> ValueKind {
    ValueKind::Time { least_ms, most_ms: MAX_SECONDS as u64 * 1000 }
}

/// Longest warm-up by default: slow start is over on all but the longest paths.
const MAX_DEFAULT_WARM_UP: Duration = Duration::from_secs(1);
/// Length of a record's intervals, if the run is longer.
const DEFAULT_INTERVAL: Span = Span(Duration::from_secs(1));
/// Below this rate single datagrams cost little, and offload would send them in bursts.
const OFFLOAD_ABOVE: BitRate = BitRate(100_000_000);

/// A tenth of the time, at most a second; zero if connection set-up counts or the extent is no
/// time.
fn default_warm_up(test: &Test) -> Value {
    let is_whole = stream(test).is_some_and(|stream| stream.whole);
    Value::Time(Span(match test.extent {
        Extent::Time(time) if !is_whole => (time.0 / 10).min(MAX_DEFAULT_WARM_UP),
        Extent::Time(_) | Extent::Bytes(_) | Extent::Count(_) => Duration::ZERO,
    }))
}

/// A second, or the whole of a shorter run.
fn default_interval(test: &Test) -> Value {
    Value::Time(match test.extent {
        Extent::Time(time) => time.min(DEFAULT_INTERVAL),
        Extent::Bytes(_) | Extent::Count(_) => DEFAULT_INTERVAL,
    })
}

fn default_offload(test: &Test) -> Value {
    let is_fast = |stream: &StreamTest| stream.rate_bps.is_none_or(|rate| rate > OFFLOAD_ABOVE);
    Value::Switch(test.protocol == Protocol::Udp && stream(test).is_some_and(is_fast))
}

/// Nagle's algorithm would hold back a request until the last one is acknowledged: no application
/// with requests and responses leaves it on.
fn default_nodelay(test: &Test) -> Value {
    Value::Switch(test.protocol != Protocol::Udp && exchange(test).is_some())
}

/// A byte, or a whole test packet of STAMP.
fn default_request(test: &Test) -> Value {
    let stamp = exchange(test).is_some_and(|exchange| exchange.stamp);
    Value::Number(if stamp { STAMP_BYTES as u64 } else { 1 })
}

/// A byte; with STAMP as large as the request, and for a video the chunk of its lowest rate.
fn default_response(test: &Test) -> Value {
    Value::Number(match exchange(test) {
        Some(exchange) if exchange.stamp => exchange.request_bytes,
        Some(exchange) if exchange.video => UNIT_BYTES,
        _ => 1,
    })
}

fn set_total(test: &mut Test, value: &Value) {
    if let Some(ByteCount(bytes)) = ByteCount::from_value(value) {
        let streams = u64::from(test.streams.max(1));
        test.extent = Extent::Bytes(ByteCount(bytes.div_ceil(streams)));
    }
}

/// The rate of datagrams; UDP without a rate is as fast as possible.
fn datagram_rate(test: &Test) -> Option<Value> {
    match stream(test)?.rate_bps {
        // Another program may send any number: keep it out of range, and different from "max".
        Some(BitRate(rate)) => Some(Value::Number(rate.min(NO_LIMIT - 1))),
        None => (test.protocol == Protocol::Udp).then_some(Value::Number(NO_LIMIT)),
    }
}

fn set_datagram_rate(test: &mut Test, value: &Value) {
    if let Some(stream) = stream_mut(test) {
        stream.rate_bps = BitRate::from_value(value).filter(|rate| rate.0 != NO_LIMIT);
    }
}

fn set_buffers(test: &mut Test, value: &Value) {
    put(Some(&mut test.options.receive_window_bytes), value);
    put(Some(&mut test.options.send_buffer_bytes), value);
}

/// Measured time of a run, if no extent is given.
pub(in crate::plan) const DEFAULT_TIME: Span = Span(Duration::from_secs(10));
/// Payload of a flow.
const AMOUNT: ValueKind = ValueKind::Bytes { least: 1, most: 1 << 50 };
/// Linux: TCP_MIN_MSS and MAX_TCP_WINDOW, net/ipv4/tcp.c.
const MSS: ValueKind = ValueKind::Bytes { least: 88, most: 32_767 };

options! {
    /// Protocol
    protocol "protocol": Protocol = test.protocol, ValueKind::Word(Protocol::WORDS), TRANSPORT {
        value_name: "PROTOCOL",
        default: Default::Always("tcp"),
        shorthands: &[Shorthand { typed: "-u", long: Some("udp"), value: "udp", help: "The same as \
            --protocol udp" }],
    };
    /// Flows in each direction
    streams "streams": u32 = test.streams, number(1, MAX_STREAMS as u64), TRANSPORT {
        short: Some('P'),
        aliases: &["parallel"],
        default: Default::Always("1"),
    };
    /// Size of each message
    size "size": u64 = stream.message_bytes, MESSAGE, STREAM {
        short: Some('l'),
        aliases: &["length", "len"],
        value_name: "SIZE",
        // iperf3's message over TCP, large enough that system calls cost little; and a datagram
        // that with the headers of UDP (8) and IPv6 (40) fits an MTU of 1500, as a TCP segment's
        // payload does.
        default: Default::Transport("128KiB", "1448"),
    };
    /// Measured time: us, ms, s, min or h
    time "time": Span = extent.Time, time(10), PLAIN {
        short: Some('t'),
        value_name: "TIME",
        default: Default::Implied("10s"),
        excludes: &["bytes", "count", "total"],
    };
    /// Instead of a time: messages or transactions of each flow
    count "count": u64 = extent.Count, number(1, 1 << 40), PLAIN {
        aliases: &["blockcount"],
        excludes: &["time", "bytes", "total"],
    };
    /// Instead of a time: payload of each flow
    bytes "bytes": ByteCount = extent.Bytes, AMOUNT, STREAM {
        value_name: "SIZE",
        excludes: &["time", "count", "total"],
    };
    /// Instead of a time: payload of all flows of a direction
    total "total": ByteCount = (|_| None, set_total), AMOUNT, STREAM {
        short: Some('n'),
        value_name: "SIZE",
        excludes: &["time", "count", "bytes"],
    };
    /// Left out of the figures
    warm_up "warm-up": Span = test.warm_up, time(0), PLAIN {
        short: Some('O'),
        aliases: &["omit"],
        value_name: "TIME",
        default: Default::Rule("time/10, at most 1s", default_warm_up),
        excludes: &["count", "bytes", "total", "whole"],
    };
    /// Length of the record's intervals
    interval "interval": Span = test.interval, time(10), PLAIN {
        short: Some('i'),
        value_name: "TIME",
        default: Default::Rule("1s", default_interval),
    };
    /// Direction, as seen from this host
    direction "direction": Direction =
        test.direction, ValueKind::Word(Direction::WORDS), STREAM {
        value_name: "DIRECTION",
        default: Default::Always("up"),
        shorthands: &[
            Shorthand { typed: "-R", long: Some("reverse"), value: "down", help: "The same as \
                --direction down" },
            Shorthand { typed: "--bidir", long: None, value: "both", help: "The same as \
                --direction both" },
        ],
    };
    /// UDP: limit of each flow's payload rate
    rate "rate": BitRate = (datagram_rate, set_datagram_rate), RATE_OR_MAX, STREAM {
        short: Some('b'),
        aliases: &["bitrate", "bandwidth"],
        value_name: "RATE",
        over: Over::Udp("a TCP stream is limited by", &["pacing", "write-rate"]),
    };
    /// UDP: the kernel cuts and joins datagrams (default above 100mbit)
    offload "offload": bool = stream.offload, ValueKind::Switch, STREAM {
        over: OF_UDP,
        default: Default::Rule("", default_offload),
        shorthands: &[
            Shorthand { typed: "--no-offload", long: None, value: "off", help: "UDP: each datagram \
                passes the kernel by itself" },
        ],
    };
    /// Messages that one system call hands over (writev, sendmmsg)
    batch "batch": u32 = stream.batch, number(2, MAX_BATCH as u64), STREAM {
        excludes: &["verify", "zerocopy"],
    };
    /// Send a seeded pattern and count the bytes that arrive changed
    verify "verify": bool = stream.verify, ValueKind::Switch, STREAM_FLAG;
    /// TCP: count connection set-up and tear-down in, without a warm-up
    whole "whole": bool = stream.whole, ValueKind::Switch, STREAM_FLAG {
        over: Over::Tcp("it has no connection to count in", &[]),
        excludes: &["warm-up"],
    };
    /// TCP: rate at which the sender writes each flow
    write_rate "write-rate": BitRate = stream.write_rate_bps, RATE, STREAM {
        value_name: "RATE",
        over: Over::Tcp("give", &["rate"]),
    };
    /// Rate at which the receiver reads each flow
    read_rate "read-rate": BitRate = stream.read_rate_bps, RATE, STREAM {
        value_name: "RATE",
    };
    /// TCP: work of the sender on each KiB, CPU time
    send_work "send-work": u32 = stream.send_work_ns_per_kib, WORK, STREAM {
        value_name: "NS",
        over: OF_TCP,
    };
    /// TCP: work of the receiver on each KiB, CPU time
    receive_work "receive-work": u32 = stream.receive_work_ns_per_kib, WORK, STREAM {
        value_name: "NS",
        over: OF_TCP,
    };
    /// UDP: STAMP's packets (RFC 8762), for each way's delay and loss
    stamp "stamp": bool = exchange.stamp, ValueKind::Switch, EXCHANGE {
        workloads: &[Workload::Rr],
        over: Over::Udp("STAMP's packets are datagrams", &[]),
        default: OFF,
    };
    /// TCP: pages of N objects over all connections
    objects "objects": u32 = exchange.objects, number(1, MAX_OBJECTS as u64), EXCHANGE {
        workloads: &[Workload::Rr],
        over: Over::Tcp("pages come over connections", &[]),
        excludes: &["depth"],
    };
    /// TCP: a player of video in chunks of 2 s, at a rate that it adapts
    video "video": bool = exchange.video, ValueKind::Switch, EXCHANGE {
        workloads: &[Workload::Rr],
        over: Over::Tcp("chunks come over a connection", &[]),
        default: OFF,
        excludes: &["depth", "rate", "objects"],
    };
    /// Bytes of each request
    request "request": u64 = exchange.request_bytes, MESSAGE, EXCHANGE {
        value_name: "SIZE",
        default: Default::Rule("1", default_request),
    };
    /// Bytes of each response
    response "response": u64 = exchange.response_bytes, MESSAGE, EXCHANGE {
        value_name: "SIZE",
        default: Default::Rule("1", default_response),
    };
    /// Open loop: requests/s over all flows, without it closed
    requests_per_s "rate": f64 =
        exchange.rate_per_s, ValueKind::Frequency { least: 0.01, most: 1e8 }, EXCHANGE {
        short: Some('b'),
        value_name: "N/s",
    };
    /// Poll without sleeping, at both ends
    spin "spin": bool = exchange.spin, ValueKind::Switch, EXCHANGE {
        default: OFF,
    };
    /// Requests in flight at once on each connection
    depth "depth": u32 = exchange.depth, number(1, MAX_DEPTH as u64), EXCHANGE {
        workloads: &[Workload::Rr],
        default: Default::Always("1"),
        excludes: &["rate"],
    };
    /// Who closes and keeps TIME_WAIT
    close "close": Closer = exchange.closer, ValueKind::Word(Closer::WORDS), EXCHANGE {
        workloads: &[Workload::Crr],
        value_name: "END",
        default: Default::Always("server"),
    };
    /// Close by reset, which leaves no TIME_WAIT
    reset "reset": bool = exchange.reset, ValueKind::Switch, EXCHANGE {
        workloads: &[Workload::Crr],
        default: OFF,
    };
    /// Send the request with the SYN (TCP Fast Open)
    fast_open "fast-open": bool = exchange.fast_open, ValueKind::Switch, EXCHANGE {
        workloads: &[Workload::Crr],
        over: OF_TCP_SOCKETS,
        default: OFF,
    };
    /// Both buffers of each data socket
    window "window": ByteCount = (|_| None, set_buffers), BUFFER, SOCKET {
        short: Some('w'),
        value_name: "SIZE",
        excludes: &["receive-window", "send-buffer"],
    };
    /// Window that a receiver may advertise (UDP: a buffer)
    receive_window "receive-window": ByteCount = socket.receive_window_bytes, BUFFER, SOCKET {
        value_name: "SIZE",
    } treatment {
        means: "the window that a receiver may advertise; its buffer is steered to it",
        acts: Some(Role::Receiver),
        needs: "net.core.rmem_max of half of it",
        applied: "SO_RCVBUF before the connection, and again through the run until the window \
            that is offered stays there",
        read_back: "the window that the receiver offers, through the run",
    };
    /// Send buffer (SO_SNDBUF) as an application asks for it
    send_buffer "send-buffer": ByteCount = socket.send_buffer_bytes, BUFFER, SOCKET {
        value_name: "SIZE",
    } treatment {
        means: "SO_SNDBUF of a sender, as an application asks; the kernel doubles it",
        acts: Some(Role::Sender),
        needs: "net.core.wmem_max of as much",
        read_back: "SO_SNDBUF",
    };
    /// Maximum segment size (TCP_MAXSEG)
    mss "mss": u32 = socket.mss_bytes, MSS, SOCKET {
        short: Some('M'),
        aliases: &["set-mss"],
        value_name: "BYTES",
        over: OF_TCP_SOCKETS,
    } treatment {
        means: "TCP_MAXSEG of the client, TCP options included; what it offers binds both ends",
        applied: "TCP_MAXSEG before the connection",
        read_back: "the record's mss_bytes, 12 less with time stamps",
    };
    /// Local port of the first flow; others have the next
    source_port "source-port": u32 = socket.source_port, number(1, 65_535), SOCKET {
        aliases: &["cport"],
        value_name: "PORT",
        workloads: &[Workload::Stream, Workload::Rr],
    };
    /// Pacing rate of each TCP flow (SO_MAX_PACING_RATE)
    pacing "pacing": BitRate =
        socket.pacing_bps, ValueKind::Rate { least: 8_000, most: MAX_RATE }, SOCKET {
        aliases: &["fq-rate"],
        value_name: "RATE",
        over: Over::Tcp("give", &["rate"]),
    } treatment {
        means: "SO_MAX_PACING_RATE of each flow of a TCP sender",
        acts: Some(Role::Sender),
        read_back: "SO_MAX_PACING_RATE",
    };
    /// Congestion control (TCP_CONGESTION), such as cubic, reno or bbr
    congestion "congestion": String = socket.congestion, ValueKind::Name, SOCKET {
        short: Some('C'),
        aliases: &["linux-congestion"],
        value_name: "NAME",
        over: OF_TCP_SOCKETS,
    } treatment {
        means: "TCP_CONGESTION of the sender",
        acts: Some(Role::Sender),
        needs: "a kernel that has it; CAP_NET_ADMIN if net.ipv4.tcp_allowed_congestion_control \
            does not name it",
        read_back: "TCP_CONGESTION, and the record's congestion",
    };
    /// Send small segments at once (TCP_NODELAY); rr and crr always do
    nodelay "nodelay": bool = socket.nodelay, ValueKind::Switch, SOCKET {
        short: Some('N'),
        aliases: &["no-delay"],
        over: OF_TCP_SOCKETS,
        default: Default::Rule("", default_nodelay),
    } treatment {
        means: "TCP_NODELAY; rr and crr have it on",
        acts: Some(Role::Sender),
        read_back: "TCP_NODELAY",
    };
    /// Acknowledge every segment at once (TCP_QUICKACK), on or off
    quickack "quickack": bool = socket.quickack, ValueKind::Switch, SOCKET {
        value_name: "SWITCH",
        over: OF_TCP_SOCKETS,
    } treatment {
        means: "TCP_QUICKACK, set again before each receiving call, since the kernel changes \
            it by itself",
        acts: Some(Role::Receiver),
        applied: "setsockopt before each receiving call",
        read_back: "TCP_QUICKACK, once",
    };
    /// Code point of the packets
    dscp "dscp": Dscp = socket.dscp, ValueKind::Dscp, SOCKET {
        value_name: "DSCP",
    } treatment {
        means: "the code point of the packets of both ends",
        read_back: "IP_TOS or IPV6_TCLASS",
    };
    /// TCP: send without a copy, in the way that the device allows
    zerocopy "zerocopy": bool = stream.send, ValueKind::Switch, STREAM_FLAG {
        short: Some('Z'),
        over: OF_TCP,
    } treatment {
        means: "sending without a copy, by vmsplice or sendfile; off is write",
        acts: Some(Role::Sender),
        costs_cpu: true,
        applied: "another call to send by",
        read_back: "the record's sender.method",
    };
    /// TCP: the receiver drops the bytes unread; the record says so
    discard "discard": bool = stream.receive, ValueKind::Switch, STREAM_FLAG {
        over: OF_TCP,
        excludes: &["verify"],
    } treatment {
        means: "receiving without a copy: the bytes are dropped in the kernel (MSG_TRUNC), as \
            no application would; off is read",
        acts: Some(Role::Receiver),
        costs_cpu: true,
        applied: "another flag of the receiving call",
        read_back: "the record's receiver.method",
    };
    /// How long a receiving call spins for packets (SO_BUSY_POLL)
    busy_poll "busy-poll": u32 =
        socket.busy_poll_us,
        ValueKind::Number { least: 0, most: 1_000_000, unit: "µs" }, SOCKET treatment {
        means: "SO_BUSY_POLL: how long a receiving call spins for packets",
        costs_cpu: true,
        needs: "CAP_NET_ADMIN for more than net.core.busy_read; a driver that can be polled, \
            which loopback and veth cannot",
        read_back: "SO_BUSY_POLL",
    };
    /// The client's address that its TCP connections come from
    source "source": IpAddr = socket.source, ValueKind::Address, SOCKET {
        treatment_only: true,
        over: Over::Tcp("an endpoint takes datagrams only from the address that the control \
            connection came from", &[]),
    } treatment {
        means: "the client's address that its TCP connections come from",
        needs: "the address, on this host",
        applied: "bind, before the connection",
        read_back: "the record's flows",
    };
}
