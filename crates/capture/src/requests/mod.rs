//! Where the time of requests goes: names, handshakes, TLS, the network, server and client.
//!
//! An exchange is data of the client, then of the server: the client's first byte begins the next
//! one. HTTP/1.1 is read by its lines and TLS by the types of its records. Nothing is decrypted; of
//! what was read only method, path and status of the slowest are kept.
//!
//! # Whose time it is
//!
//! The capture sees the request's last byte on its way to the server and the response's first on
//! its way back. Between both lie the shortest round trip from the capture to the server, which the
//! handshake or prompt acknowledgements show, and the server's think time. So the phases are those
//! that the client's clock would have, wherever the capture was made:
//!
//! | phase | from | to |
//! |---|---|---|
//! | request | the client's first byte | the arrival of its last |
//! | server | that arrival | the first byte of the response is sent |
//! | response | that byte is sent | the arrival of the last |
//!
//! An acknowledgement of the request that comes later than that round trip, and sooner than a
//! delayed one may (40 ms), shows a queue on the way: it is the network's. In request and response,
//! the time in which the sender had nothing outstanding is the sender's, and that in which the
//! window was closed is the reader's.
//!
//! | module | what is in it |
//! |---|---|
//! | `turns` | the exchanges of one connection |
//! | `protocol` | lines of HTTP/1.1, records of TLS |
//! | `datagrams` | lookups of names (DNS), handshakes of QUIC |

mod datagrams;
mod protocol;
mod turns;

use std::net::SocketAddr;

use linerate_stats::{LatencyHistogram, LatencySummary};
use linerate_units::Nanos;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;

pub(crate) use datagrams::Datagrams;
pub use datagrams::{Names, Quic, SlowLookup};
pub(crate) use turns::{Ending, Opening, Seen, Turns};

/// Index of the client's half of a pair: the connection's initiator.
pub(crate) const CLIENT: usize = 0;
/// Index of the server's half.
pub(crate) const SERVER: usize = 1;

/// Where the time of the requests of a capture went.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Requests {
    /// Requests that were answered, and those that were not.
    pub count: u64,
    /// Those that were not answered until the connection or the capture ended, a second later at
    /// least.
    pub unanswered: u64,
    /// Requests under way at the end of the capture, which count nowhere.
    pub unfinished: u64,
    /// Requests that overlapped others of their connection (pipelining, HTTP/2, streams in both
    /// directions), which count nowhere: turns cannot tell their times.
    pub overlapped: u64,
    /// Connections with an HTTP/2 preface or an upgrade, whose requests are not looked for.
    pub multiplexed_connections: u64,
    /// Connections with TLS that offered HTTP/2, so that a turn may be several requests.
    pub http2_offering_connections: u64,
    /// The times of all requests by phase.
    pub phases: Phases<LatencySummary>,
    /// Their sums by whose time it was.
    pub spent: Spent,
    /// Who had most of it; absent without requests.
    pub verdict: Option<RequestsVerdict>,
    /// The ten that took longest, the longest first.
    pub slowest: Vec<SlowRequest>,
    /// The place where the packets were captured.
    pub captured: CapturedAt,
    /// Attempts to connect.
    pub connects: Connects,
    /// Lookups of names; absent without any.
    pub names: Option<Names>,
    /// QUIC, which is not analysed; absent without any.
    pub quic: Option<Quic>,
}

/// Something for each phase of a request, where the phase is known; times are the client's.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Phases<T> {
    /// All of the phases that follow, but the client's time before it.
    pub total_us: Option<T>,
    /// The lookup of the server's name before the connection's first request.
    pub name_us: Option<T>,
    /// The connection's handshake before its first request, from the first SYN.
    pub connect_us: Option<T>,
    /// Its TLS handshake, from `ClientHello` to the last record of it.
    pub tls_us: Option<T>,
    /// The request, from its first byte to the arrival of its last.
    pub request_us: Option<T>,
    /// The server's time from the arrival of the request to the first byte of its response.
    pub server_us: Option<T>,
    /// The response, from its first byte to the arrival of its last.
    pub response_us: Option<T>,
    /// The client's time before the request: since the response before it, or since its handshakes.
    pub client_us: Option<T>,
    /// The connection's shortest round trip.
    pub round_trip_us: Option<T>,
}

/// Sums of times, by who had them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Spent {
    /// All that clients waited, seconds: the four that follow.
    pub total_s: f64,
    /// The servers' think times, and their pauses within responses and TLS handshakes.
    pub server_s: f64,
    /// Round trips, transfers, lost packets.
    pub network_s: f64,
    /// The clients' pauses within requests and TLS handshakes, and closed windows.
    pub client_s: f64,
    /// Lookups of names.
    pub name_s: f64,
    /// Beside the total: the clients' times before requests, in which they waited for nothing.
    pub between_s: f64,
}

/// Who had most of the time that clients waited.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RequestsVerdict {
    /// Who.
    pub whose: Whose,
    /// The part of the total, 0 to 1.
    pub share: f64,
}

/// The end, or the network, that a time belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Whose {
    /// The server's.
    Server,
    /// The network's.
    Network,
    /// The client's.
    Client,
    /// The time of name lookups.
    Names,
}

/// One of the slowest requests.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SlowRequest {
    /// Number of the packet in the file with its first byte, from 1.
    pub packet: u64,
    /// Its time, seconds since the first packet.
    pub at_s: f64,
    /// Address and port of the client.
    pub client: String,
    /// Address and port of the server.
    pub server: String,
    /// Method and path as far as they were captured, without the query, 40 characters of it at
    /// most; absent where no line of HTTP/1.1 can be read.
    pub line: Option<String>,
    /// Status of the HTTP response.
    pub status: Option<u16>,
    /// Payload of the request, bytes.
    pub request_bytes: u64,
    /// Payload of the response, bytes.
    pub response_bytes: u64,
    /// Its times, µs.
    pub phases: Phases<f64>,
    /// The part of the total that was whose, seconds.
    pub spent: Spent,
    /// Its segments that were sent again.
    pub retransmitted_segments: u64,
    /// Whether there was a response.
    pub answered: bool,
}

/// Number of requests by the place where they were captured.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CapturedAt {
    /// At the client, which answers within a tenth of the time the server needs.
    pub client_requests: u64,
    /// At the server.
    pub server_requests: u64,
    /// Between both, or nothing tells.
    pub between_requests: u64,
    /// Requests whose round trip is not known, so that it counts as the server's.
    pub unknown_requests: u64,
}

/// Attempts to connect.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Connects {
    /// Connections whose SYN was captured.
    pub count: u64,
    /// Connects that were refused: a RST answered the SYN.
    pub refused: u64,
    /// Those that nothing answered until the capture ended, a second later at least.
    pub unanswered: u64,
    /// SYNs sent again.
    pub retransmitted_syns: u64,
    /// Time lost with refused and unanswered ones, up to the last SYN of the latter, seconds.
    pub failed_s: f64,
}

/// The requests of one connection.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ConnectionRequests {
    /// Requests, as in [`Requests::count`].
    pub count: u64,
    /// Requests that overlapped others.
    pub overlapped: u64,
    /// The protocol by which the requests were read.
    pub protocol: RequestProtocol,
    /// The failure of a connect; absent if it succeeded.
    pub failed: Option<ConnectFailure>,
    /// SYNs sent again.
    pub retransmitted_syns: u64,
    /// The handshake, from the first SYN, µs.
    pub connect_us: Option<f64>,
    /// The TLS handshake, µs.
    pub tls_us: Option<f64>,
    /// The round trip between both ends that was assumed, µs; absent if it is not known.
    pub round_trip_us: Option<f64>,
    /// Sums of the times of its requests.
    pub spent: Spent,
}

/// The protocol by which a connection's requests were read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RequestProtocol {
    /// Turns alone.
    #[default]
    Turns,
    /// Lines of HTTP/1.1.
    Http1,
    /// Types of TLS records.
    Tls,
    /// An HTTP/2 preface or an upgrade: its requests are not looked for.
    Multiplexed,
}

/// The failure of a connect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ConnectFailure {
    /// A RST answered the SYN.
    Refused,
    /// Nothing answered it.
    Unanswered,
}

impl Requests {
    /// Whether there is nothing to tell: no request, failed connect, lookup or QUIC.
    pub fn is_empty(&self) -> bool {
        let kinds = [self.count, self.unfinished, self.overlapped, self.multiplexed_connections];
        let failed = self.connects.refused + self.connects.unanswered;
        kinds == [0; 4] && failed == 0 && self.names.is_none() && self.quic.is_none()
    }
}

impl<T> Default for Phases<T> {
    fn default() -> Self {
        Self {
            total_us: None,
            name_us: None,
            connect_us: None,
            tls_us: None,
            request_us: None,
            server_us: None,
            response_us: None,
            client_us: None,
            round_trip_us: None,
        }
    }
}

impl<T> Phases<T> {
    fn map<U>(&self, to: impl Fn(&T) -> Option<U>) -> Phases<U> {
        let to = |from: &Option<T>| from.as_ref().and_then(&to);
        Phases {
            total_us: to(&self.total_us),
            name_us: to(&self.name_us),
            connect_us: to(&self.connect_us),
            tls_us: to(&self.tls_us),
            request_us: to(&self.request_us),
            server_us: to(&self.server_us),
            response_us: to(&self.response_us),
            client_us: to(&self.client_us),
            round_trip_us: to(&self.round_trip_us),
        }
    }
}

impl Phases<LatencyHistogram> {
    fn record(&mut self, request: &Phases<Nanos>) {
        let pairs = [
            (&mut self.total_us, request.total_us),
            (&mut self.name_us, request.name_us),
            (&mut self.connect_us, request.connect_us),
            (&mut self.tls_us, request.tls_us),
            (&mut self.request_us, request.request_us),
            (&mut self.server_us, request.server_us),
            (&mut self.response_us, request.response_us),
            (&mut self.client_us, request.client_us),
            (&mut self.round_trip_us, request.round_trip_us),
        ];
        for (histogram, time) in pairs {
            if let Some(Nanos(ns)) = time {
                histogram.get_or_insert_default().record_ns(ns);
            }
        }
    }
}

impl Spent {
    fn add(&mut self, other: &Self) {
        self.total_s += other.total_s;
        self.server_s += other.server_s;
        self.network_s += other.network_s;
        self.client_s += other.client_s;
        self.name_s += other.name_s;
        self.between_s += other.between_s;
    }

    /// Who had most of the total.
    pub fn verdict(&self) -> Option<RequestsVerdict> {
        let parts = [
            (Whose::Server, self.server_s),
            (Whose::Network, self.network_s),
            (Whose::Client, self.client_s),
            (Whose::Names, self.name_s),
        ];
        let (whose, most) = parts.into_iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
        (self.total_s > 0.0).then(|| RequestsVerdict { whose, share: most / self.total_s })
    }
}

/// A request whose times are known.
#[derive(Debug)]
pub(crate) struct Timed {
    packet: u64,
    at: Nanos,
    line: Option<String>,
    status: Option<u16>,
    bytes: [u64; 2],
    phases: Phases<Nanos>,
    spent: Spent,
    retransmitted: u64,
    is_answered: bool,
    /// Shortest times from the capture to each end and back.
    ways: [Option<Nanos>; 2],
}

/// The requests of all connections so far: sums, histograms, the ten slowest.
#[derive(Debug, Default)]
pub(crate) struct Collector {
    found: Requests,
    histograms: Phases<LatencyHistogram>,
    /// Time of the file's first packet.
    pub(crate) began: Nanos,
}

impl Collector {
    fn add(&mut self, ends: [SocketAddr; 2], request: Timed) {
        self.found.count += 1;
        self.found.unanswered += u64::from(!request.is_answered);
        self.found.spent.add(&request.spent);
        self.histograms.record(&request.phases);
        let captured = &mut self.found.captured;
        *match request.ways {
            [_, None] => &mut captured.unknown_requests,
            [Some(client), Some(server)] if client.0 <= server.0 / NEAR_PART => {
                &mut captured.client_requests
            }
            [Some(client), Some(server)] if server.0 <= client.0 / NEAR_PART => {
                &mut captured.server_requests
            }
            _ => &mut captured.between_requests,
        } += 1;
        let slowest = &mut self.found.slowest;
        let us = micros(request.phases.total_us.unwrap_or_default());
        let total = |slow: &SlowRequest| slow.phases.total_us.unwrap_or_default();
        let place = slowest.partition_point(|slow| total(slow) >= us);
        if place < SLOWEST {
            slowest.truncate(SLOWEST - 1);
            slowest.insert(place, request.slow(ends, self.began));
        }
    }

    /// The requests of the capture, with what the datagrams told.
    pub(crate) fn finish(self, datagrams: Datagrams, ended: Nanos) -> Requests {
        let (names, quic) = datagrams.finish(ended);
        let verdict = self.found.spent.verdict();
        let phases = self.histograms.map(LatencyHistogram::summary);
        Requests { phases, verdict, names, quic, ..self.found }
    }
}

impl Timed {
    fn slow(self, [client, server]: [SocketAddr; 2], began: Nanos) -> SlowRequest {
        SlowRequest {
            packet: self.packet,
            at_s: seconds(self.at - began),
            client: client.to_string(),
            server: server.to_string(),
            line: self.line,
            status: self.status,
            request_bytes: self.bytes[CLIENT],
            response_bytes: self.bytes[SERVER],
            phases: self.phases.map(|time| Some(micros(*time))),
            spent: self.spent,
            retransmitted_segments: self.retransmitted,
            answered: self.is_answered,
        }
    }
}

fn seconds(time: Nanos) -> f64 {
    time.0 as f64 / 1e9
}

fn micros(time: Nanos) -> f64 {
    time.0 as f64 / 1e3
}

const SLOWEST: usize = 10;
/// The capture is next to an end that answers within a tenth of the time the other needs.
const NEAR_PART: u64 = 10;
/// What nothing answered for so long has no answer.
const NO_ANSWER: Nanos = Nanos(1_000_000_000);
