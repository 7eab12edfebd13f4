//! The table of options.

use std::net::IpAddr;
use std::time::Duration;

use super::super::build::Draft;
use super::super::{
    Closer, Direction, Extent, MAX_BATCH, MAX_DEPTH, MAX_MESSAGE, MAX_OBJECTS, MAX_SECONDS,
    MAX_STREAMS, Protocol, Role, StreamTest, Test, Workload,
};
use super::field::{Field, exchange, exchange_mut, put, stream, stream_mut};
use super::{Default, Over, Shorthand, SocketTreatment, TestOption};
use crate::units::{BitRate, ByteCount, Dscp, Span};
use crate::value::{NO_LIMIT, Value, ValueKind};
use crate::video::UNIT_BYTES;
use crate::wire::STAMP_BYTES;

/// How an option is read from a test and written into it: the place of its field, or two functions.
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
    (($get:expr, $set:expr)) => {
        $set
    };
}

/// Makes the table, and of each entry with a type a setter of [`Draft`].
macro_rules! options {
    ($(
        #[doc = $help:literal]
        $name:ident $key:literal: $type:ty = $place:tt $(. $field:ident)?, $kind:expr, $rest:expr;
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
            ..$rest
        }),*];
    };
}

/// What most treatments are like: they act at both ends, and are socket options that need nothing.
const SOCKET_OPTION: SocketTreatment = SocketTreatment {
    means: "",
    acts: None,
    costs_cpu: false,
    needs: "nothing",
    applied: "setsockopt on each data socket of the end that it concerns",
    read_back: "",
};

/// What most options are like; each group of the table changes what is its own.
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
const TRANSPORT: TestOption = TestOption {
    heading: "Transport",
    ..PLAIN
};
const STREAM: TestOption = TestOption {
    heading: "Stream",
    workloads: &[Workload::Stream],
    ..PLAIN
};
const OFF: Default = Default::Always("off");
const STREAM_FLAG: TestOption = TestOption {
    default: OFF,
    ..STREAM
};
const EXCHANGE: TestOption = TestOption {
    heading: "Exchange",
    workloads: &[Workload::Rr, Workload::Crr],
    ..PLAIN
};
const SOCKET: TestOption = TestOption {
    heading: "Sockets (default: the kernel's choice)",
    ..PLAIN
};

const OF_TCP: Over = Over::Tcp("it is an option of TCP");
const OF_TCP_SOCKETS: Over = Over::Tcp("it is an option of TCP sockets");
const OF_UDP: Over = Over::Udp("it is an option of UDP");
const BUFFER: ValueKind = ValueKind::Bytes {
    least: 1,
    most: 1 << 30,
};
const MESSAGE: ValueKind = ValueKind::Bytes {
    least: 1,
    most: MAX_MESSAGE,
};
/// What no host sends.
const MAX_RATE: u64 = 8_000_000_000_000;
/// From a byte in 100 ms on.
const RATE: ValueKind = ValueKind::Rate {
    least: 80,
    most: MAX_RATE,
};
const RATE_OR_MAX: ValueKind = ValueKind::RateOrMax {
    least: 80,
    most: MAX_RATE,
};
const fn number(least: u64, most: u64) -> ValueKind {
    let unit = "";
    ValueKind::Number { least, most, unit }
}
const fn time(least_ms: u64) -> ValueKind {
    ValueKind::Time {
        least_ms,
        most_ms: MAX_SECONDS as u64 * 1000,
    }
}

/// Longest warm-up that is chosen by default: slow start is over on all but the longest paths.
const MAX_DEFAULT_WARM_UP: Duration = Duration::from_secs(1);
/// Between two intervals of a record, where the run is longer.
const DEFAULT_INTERVAL: Span = Span(Duration::from_secs(1));
/// Below this rate single datagrams cost little, and offload would send them in bursts.
const OFFLOAD_ABOVE: BitRate = BitRate(100_000_000);

/// A tenth of the time, at most a second; nothing where everything counts or the end is no time.
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

/// Nagle's algorithm would hold a request back for the last one's acknowledgement: no application
/// that asks and waits leaves it on.
fn default_nodelay(test: &Test) -> Value {
    Value::Switch(test.protocol != Protocol::Udp && exchange(test).is_some())
}

/// A byte, or all that a test packet of STAMP's has.
fn default_request(test: &Test) -> Value {
    let stamp = exchange(test).is_some_and(|exchange| exchange.stamp);
    Value::Number(if stamp { STAMP_BYTES as u64 } else { 1 })
}

/// A byte; STAMP's are as large both ways, and a video's are what its lowest rate needs for a
/// chunk.
fn default_response(test: &Test) -> Value {
    Value::Number(match exchange(test) {
        Some(exchange) if exchange.stamp => exchange.request_bytes,
        Some(exchange) if exchange.video => UNIT_BYTES,
        _ => 1,
    })
}

/// The value of the extent, if it is of the same kind as `kind`.
fn extent(test: &Test, kind: Extent) -> Option<Value> {
    match (test.extent, kind) {
        (Extent::Time(time), Extent::Time(_)) => time.value(),
        (Extent::Bytes(bytes), Extent::Bytes(_)) => bytes.value(),
        (Extent::Count(count), Extent::Count(_)) => count.value(),
        _ => None,
    }
}

fn set_extent<T: Field>(test: &mut Test, value: &Value, extent: impl Fn(T) -> Extent) {
    if let Some(value) = T::from_value(value) {
        test.extent = extent(value);
    }
}

fn set_total(test: &mut Test, value: &Value) {
    let streams = u64::from(test.streams.max(1));
    set_extent(test, value, |ByteCount(bytes)| {
        Extent::Bytes(ByteCount(bytes.div_ceil(streams)))
    });
}

/// UDP without a rate goes as fast as it can.
fn datagram_rate(test: &Test) -> Option<Value> {
    match stream(test)?.rate_bps {
        // A stranger's figure can be any: this one is out of range, and not the word.
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

/// Measured time of a run, if nothing says when it ends.
pub(in crate::plan) const DEFAULT_TIME: Span = Span(Duration::from_secs(10));
/// Payload of a flow.
const AMOUNT: ValueKind = ValueKind::Bytes {
    least: 1,
    most: 1 << 50,
};
/// Linux: TCP_MIN_MSS and MAX_TCP_WINDOW, net/ipv4/tcp.c.
const MSS: ValueKind = ValueKind::Bytes {
    least: 88,
    most: 32_767,
};

options! {
    /// Protocol
    protocol "protocol": Protocol = test.protocol, ValueKind::Word(Protocol::WORDS), TestOption {
        value_name: "PROTOCOL",
        default: Default::Always("tcp"),
        shorthands: &[Shorthand { typed: "-u", long: Some("udp"), value: "udp", help: "The same as \
            --protocol udp" }],
        ..TRANSPORT
    };
    /// Flows in each direction
    streams "streams": u32 = test.streams, number(1, MAX_STREAMS as u64), TestOption {
        short: Some('P'),
        aliases: &["parallel"],
        default: Default::Always("1"),
        ..TRANSPORT
    };
    /// Size of each message
    size "size": u64 = stream.message_bytes, MESSAGE, TestOption {
        short: Some('l'),
        aliases: &["length", "len"],
        value_name: "SIZE",
        // iperf3's message over TCP, large enough that system calls cost little; and a datagram
        // that with the headers of UDP (8) and IPv6 (40) fits an MTU of 1500, as a TCP segment's
        // payload does.
        default: Default::Transport("128KiB", "1448"),
        ..STREAM
    };
    /// Measured time: us, ms, s, min or h
    time "time": Span =
        (
            |test| extent(test, Extent::Time(DEFAULT_TIME)),
            |test, value| set_extent(test, value, Extent::Time)
        ), time(10), TestOption {
        short: Some('t'),
        value_name: "TIME",
        default: Default::Implied("10s"),
        excludes: &["bytes", "count", "total"],
        ..PLAIN
    };
    /// Instead of a time: messages or transactions of each flow
    count "count": u64 =
        (|test| extent(test, Extent::Count(0)), |test, value| set_extent(test, value, Extent::Count)),
        number(1, 1 << 40), TestOption {
        aliases: &["blockcount"],
        excludes: &["time", "bytes", "total"],
        ..PLAIN
    };
    /// Instead of a time: payload of each flow
    bytes "bytes": ByteCount =
        (
            |test| extent(test, Extent::Bytes(ByteCount(0))),
            |test, value| set_extent(test, value, Extent::Bytes)
        ), AMOUNT, TestOption {
        value_name: "SIZE",
        excludes: &["time", "count", "total"],
        ..STREAM
    };
    /// Instead of a time: payload of all flows of a direction
    total "total": ByteCount = (|_| None, set_total), AMOUNT, TestOption {
        short: Some('n'),
        value_name: "SIZE",
        excludes: &["time", "count", "bytes"],
        ..STREAM
    };
    /// Left out of the figures
    warm_up "warm-up": Span = test.warm_up, time(0), TestOption {
        short: Some('O'),
        aliases: &["omit"],
        value_name: "TIME",
        default: Default::Rule("time/10, at most 1s", default_warm_up),
        excludes: &["count", "bytes", "total", "whole"],
        ..PLAIN
    };
    /// Length of the record's intervals
    interval "interval": Span = test.interval, time(10), TestOption {
        short: Some('i'),
        value_name: "TIME",
        default: Default::Rule("1s", default_interval),
        ..PLAIN
    };
    /// Direction, as seen from this host
    direction "direction": Direction =
        test.direction, ValueKind::Word(Direction::WORDS), TestOption {
        value_name: "DIRECTION",
        default: Default::Always("up"),
        shorthands: &[
            Shorthand { typed: "-R", long: Some("reverse"), value: "down", help: "The same as \
                --direction down" },
            Shorthand { typed: "--bidir", long: None, value: "both", help: "The same as \
                --direction both" },
        ],
        ..STREAM
    };
    /// UDP: limit of each flow's payload rate
    rate "rate": BitRate = (datagram_rate, set_datagram_rate), RATE_OR_MAX, TestOption {
        short: Some('b'),
        aliases: &["bitrate", "bandwidth"],
        value_name: "RATE",
        over: Over::Udp("a TCP stream is limited by `pacing` or `write-rate`"),
        ..STREAM
    };
    /// UDP: the kernel cuts and joins datagrams (default above 100mbit)
    offload "offload": bool = stream.offload, ValueKind::Switch, TestOption {
        over: OF_UDP,
        default: Default::Rule("", default_offload),
        shorthands: &[
            Shorthand { typed: "--no-offload", long: None, value: "off", help: "UDP: each datagram \
                passes the kernel by itself" },
        ],
        ..STREAM
    };
    /// Messages that one system call hands over (writev, sendmmsg)
    batch "batch": u32 = stream.batch, number(2, MAX_BATCH as u64), TestOption {
        excludes: &["verify", "zerocopy"],
        ..STREAM
    };
    /// Send a seeded pattern and count the bytes that arrive changed
    verify "verify": bool = stream.verify, ValueKind::Switch, STREAM_FLAG;
    /// TCP: count connection set-up and tear-down in, without a warm-up
    whole "whole": bool = stream.whole, ValueKind::Switch, TestOption {
        over: Over::Tcp("it has no connection to count in"),
        excludes: &["warm-up"],
        ..STREAM_FLAG
    };
    /// TCP: rate at which the sender writes each flow
    write_rate "write-rate": BitRate = stream.write_rate_bps, RATE, TestOption {
        value_name: "RATE",
        over: Over::Tcp("give `rate`"),
        ..STREAM
    };
    /// Rate at which the receiver reads each flow
    read_rate "read-rate": BitRate = stream.read_rate_bps, RATE, TestOption {
        value_name: "RATE",
        ..STREAM
    };
    /// UDP: STAMP's packets (RFC 8762), for each way's delay and loss
    stamp "stamp": bool = exchange.stamp, ValueKind::Switch, TestOption {
        workloads: &[Workload::Rr],
        over: Over::Udp("STAMP's packets are datagrams"),
        default: OFF,
        ..EXCHANGE
    };
    /// TCP: pages of N objects over all connections
    objects "objects": u32 = exchange.objects, number(1, MAX_OBJECTS as u64), TestOption {
        workloads: &[Workload::Rr],
        over: Over::Tcp("pages come over connections"),
        excludes: &["depth"],
        ..EXCHANGE
    };
    /// TCP: a player of video in chunks of 2 s, at a rate that it adapts
    video "video": bool = exchange.video, ValueKind::Switch, TestOption {
        workloads: &[Workload::Rr],
        over: Over::Tcp("chunks come over a connection"),
        default: OFF,
        excludes: &["depth", "rate", "objects"],
        ..EXCHANGE
    };
    /// Bytes of each request
    request "request": u64 = exchange.request_bytes, MESSAGE, TestOption {
        value_name: "SIZE",
        default: Default::Rule("1", default_request),
        ..EXCHANGE
    };
    /// Bytes of each response
    response "response": u64 = exchange.response_bytes, MESSAGE, TestOption {
        value_name: "SIZE",
        default: Default::Rule("1", default_response),
        ..EXCHANGE
    };
    /// Open loop: requests/s over all flows, without it closed
    requests_per_s "rate": f64 =
        exchange.rate_per_s, ValueKind::Frequency { least: 0.01, most: 1e8 }, TestOption {
        short: Some('b'),
        value_name: "N/s",
        ..EXCHANGE
    };
    /// Poll without sleeping, at both ends
    spin "spin": bool = exchange.spin, ValueKind::Switch, TestOption {
        default: OFF,
        ..EXCHANGE
    };
    /// Requests in flight at once on each connection
    depth "depth": u32 = exchange.depth, number(1, MAX_DEPTH as u64), TestOption {
        workloads: &[Workload::Rr],
        default: Default::Always("1"),
        excludes: &["rate"],
        ..EXCHANGE
    };
    /// Who closes and keeps TIME_WAIT
    close "close": Closer = exchange.closer, ValueKind::Word(Closer::WORDS), TestOption {
        workloads: &[Workload::Crr],
        value_name: "END",
        default: Default::Always("server"),
        ..EXCHANGE
    };
    /// Close by reset, which leaves no TIME_WAIT
    reset "reset": bool = exchange.reset, ValueKind::Switch, TestOption {
        workloads: &[Workload::Crr],
        default: OFF,
        ..EXCHANGE
    };
    /// Send the request with the SYN (TCP Fast Open)
    fast_open "fast-open": bool = exchange.fast_open, ValueKind::Switch, TestOption {
        workloads: &[Workload::Crr],
        over: OF_TCP_SOCKETS,
        default: OFF,
        ..EXCHANGE
    };
    /// Both buffers of each data socket
    window "window": ByteCount = (|_| None, set_buffers), BUFFER, TestOption {
        short: Some('w'),
        value_name: "SIZE",
        excludes: &["receive-window", "send-buffer"],
        ..SOCKET
    };
    /// Window that a receiver may advertise (UDP: a buffer)
    receive_window "receive-window": ByteCount = socket.receive_window_bytes, BUFFER, TestOption {
        value_name: "SIZE",
        treatment: Some(SocketTreatment {
            means: "the window that a receiver may advertise; its buffer is steered to it",
            acts: Some(Role::Receiver),
            needs: "net.core.rmem_max of half of it",
            applied: "SO_RCVBUF before the connection, and again through the run until the window \
                that is offered stays there",
            read_back: "the window that the receiver offers, through the run",
            ..SOCKET_OPTION
        }),
        ..SOCKET
    };
    /// Send buffer (SO_SNDBUF) as an application asks for it
    send_buffer "send-buffer": ByteCount = socket.send_buffer_bytes, BUFFER, TestOption {
        value_name: "SIZE",
        treatment: Some(SocketTreatment {
            means: "SO_SNDBUF of a sender, as an application asks; the kernel doubles it",
            acts: Some(Role::Sender),
            needs: "net.core.wmem_max of as much",
            read_back: "SO_SNDBUF",
            ..SOCKET_OPTION
        }),
        ..SOCKET
    };
    /// Maximum segment size (TCP_MAXSEG)
    mss "mss": u32 = socket.mss_bytes, MSS, TestOption {
        short: Some('M'),
        aliases: &["set-mss"],
        value_name: "BYTES",
        over: OF_TCP_SOCKETS,
        treatment: Some(SocketTreatment {
            means: "TCP_MAXSEG of the client, TCP options included; what it offers binds both ends",
            applied: "TCP_MAXSEG before the connection",
            read_back: "the record's mss_bytes, 12 less with time stamps",
            ..SOCKET_OPTION
        }),
        ..SOCKET
    };
    /// Local port of the first flow; others have the next
    source_port "source-port": u32 = socket.source_port, number(1, 65_535), TestOption {
        aliases: &["cport"],
        value_name: "PORT",
        workloads: &[Workload::Stream, Workload::Rr],
        ..SOCKET
    };
    /// Pacing rate of each TCP flow (SO_MAX_PACING_RATE)
    pacing "pacing": BitRate =
        socket.pacing_bps, ValueKind::Rate { least: 8_000, most: MAX_RATE }, TestOption {
        aliases: &["fq-rate"],
        value_name: "RATE",
        over: Over::Tcp("give `rate`"),
        treatment: Some(SocketTreatment {
            means: "SO_MAX_PACING_RATE of each flow of a TCP sender",
            acts: Some(Role::Sender),
            read_back: "SO_MAX_PACING_RATE",
            ..SOCKET_OPTION
        }),
        ..SOCKET
    };
    /// Congestion control (TCP_CONGESTION), such as cubic, reno or bbr
    congestion "congestion": String = socket.congestion, ValueKind::Name, TestOption {
        short: Some('C'),
        aliases: &["linux-congestion"],
        value_name: "NAME",
        over: OF_TCP_SOCKETS,
        treatment: Some(SocketTreatment {
            means: "TCP_CONGESTION of the sender",
            acts: Some(Role::Sender),
            needs: "a kernel that has it; CAP_NET_ADMIN if net.ipv4.tcp_allowed_congestion_control \
                does not name it",
            read_back: "TCP_CONGESTION, and the record's congestion",
            ..SOCKET_OPTION
        }),
        ..SOCKET
    };
    /// Send small segments at once (TCP_NODELAY); rr and crr always do
    nodelay "nodelay": bool = socket.nodelay, ValueKind::Switch, TestOption {
        short: Some('N'),
        aliases: &["no-delay"],
        over: OF_TCP_SOCKETS,
        default: Default::Rule("", default_nodelay),
        treatment: Some(SocketTreatment {
            means: "TCP_NODELAY; rr and crr have it on",
            acts: Some(Role::Sender),
            read_back: "TCP_NODELAY",
            ..SOCKET_OPTION
        }),
        ..SOCKET
    };
    /// Acknowledge every segment at once (TCP_QUICKACK), on or off
    quickack "quickack": bool = socket.quickack, ValueKind::Switch, TestOption {
        value_name: "SWITCH",
        over: OF_TCP_SOCKETS,
        treatment: Some(SocketTreatment {
            means: "TCP_QUICKACK, set again before each receiving call, since the kernel changes \
                it by itself",
            acts: Some(Role::Receiver),
            applied: "setsockopt before each receiving call",
            read_back: "TCP_QUICKACK, once",
            ..SOCKET_OPTION
        }),
        ..SOCKET
    };
    /// Code point of the packets
    dscp "dscp": Dscp = socket.dscp, ValueKind::Dscp, TestOption {
        value_name: "DSCP",
        treatment: Some(SocketTreatment {
            means: "the code point of the packets of both ends",
            read_back: "IP_TOS or IPV6_TCLASS",
            ..SOCKET_OPTION
        }),
        ..SOCKET
    };
    /// TCP: send without a copy, in the way that the device allows
    zerocopy "zerocopy": bool = stream.send, ValueKind::Switch, TestOption {
        short: Some('Z'),
        over: OF_TCP,
        treatment: Some(SocketTreatment {
            means: "sending without a copy, by vmsplice or sendfile; off is write",
            acts: Some(Role::Sender),
            costs_cpu: true,
            applied: "another call to send by",
            read_back: "the record's sender.method",
            ..SOCKET_OPTION
        }),
        ..STREAM_FLAG
    };
    /// TCP: the receiver drops the bytes unread; the record says so
    discard "discard": bool = stream.receive, ValueKind::Switch, TestOption {
        over: OF_TCP,
        excludes: &["verify"],
        treatment: Some(SocketTreatment {
            means: "receiving without a copy: the bytes are dropped in the kernel (MSG_TRUNC), as \
                no application would; off is read",
            acts: Some(Role::Receiver),
            costs_cpu: true,
            applied: "another flag of the receiving call",
            read_back: "the record's receiver.method",
            ..SOCKET_OPTION
        }),
        ..STREAM_FLAG
    };
    /// How long a receiving call spins for packets (SO_BUSY_POLL)
    busy_poll "busy-poll": u32 =
        socket.busy_poll_us,
        ValueKind::Number { least: 0, most: 1_000_000, unit: "µs" }, TestOption {
        treatment: Some(SocketTreatment {
            means: "SO_BUSY_POLL: how long a receiving call spins for packets",
            costs_cpu: true,
            needs: "CAP_NET_ADMIN for more than net.core.busy_read; a driver that can be polled, \
                which loopback and veth cannot",
            read_back: "SO_BUSY_POLL",
            ..SOCKET_OPTION
        }),
        ..SOCKET
    };
    /// The client's address that its TCP connections come from
    source "source": IpAddr = socket.source, ValueKind::Address, TestOption {
        treatment_only: true,
        over: Over::Tcp("an endpoint takes datagrams only from the address that the control \
            connection came from"),
        treatment: Some(SocketTreatment {
            means: "the client's address that its TCP connections come from",
            needs: "the address, on this host",
            applied: "bind, before the connection",
            read_back: "the record's flows",
            ..SOCKET_OPTION
        }),
        ..SOCKET
    };
}
