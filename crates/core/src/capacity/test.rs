//! The capacity test that the user asks for, the part of it that the endpoint must know, and the
//! endpoint's answers.

use std::fmt::Display;
use std::net::IpAddr;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;
use thiserror::Error;

use super::document::Failure;
use crate::plan::MAX_SECONDS;
use crate::units::{ByteCount, Span};

/// Most TCP connections of a test, and most UDP sockets: each costs the kernels about 10 KB.
pub const MAX_HELD: u64 = 10_000_000;
/// Longest request and response of the load, bytes.
pub const MAX_MESSAGE: u64 = 1 << 20;
/// Shortest request and response: the header that names it.
pub const MIN_MESSAGE: u64 = super::wire::HEADER_BYTES as u64;
/// Highest rate of connecting, of churn and of requests, per second.
pub const MAX_PER_S: u64 = 10_000_000;
/// Most source addresses.
const MAX_SOURCES: usize = 256;

/// A whole run of `capacity`.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CapacityTest {
    /// TCP connections to open and hold; 0 for none.
    pub connections: u64,
    /// UDP sockets to open and hold; 0 for none.
    pub udp_sockets: u64,
    /// Connections (and sockets) opened each second; absent: as fast as both ends can.
    pub rate_per_s: Option<u64>,
    /// How long the connections are held, s.
    pub hold: Span,
    /// Interval of the heartbeats meanwhile, s.
    pub heartbeat: Span,
    /// Connections closed and opened anew each second while they are held; 0 for none.
    #[serde(default)]
    pub churn_per_s: u64,
    /// Requests and responses over a random part of the connections, after the hold.
    pub load: Option<Load>,
    /// Measure an active connection's latency beside the idle ones.
    pub latency: bool,
    /// Search for the number at which it stops; `connections` and `udp_sockets` are where the
    /// search ends.
    pub find_limit: bool,
    /// Addresses to connect from, in turn; empty: the one that the route gives.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<IpAddr>,
    /// Seed of the random choices and of the order of churn.
    pub seed: u64,
}

/// Requests over a part of the connections.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Load {
    /// Connections that take part, drawn at random.
    pub connections: u64,
    /// When the next request goes out.
    pub pace: LoadPace,
    /// Duration, s.
    pub time: Span,
    /// Length of each request, bytes.
    pub request_bytes: ByteCount,
    /// Length of each response, bytes.
    pub response_bytes: ByteCount,
}

/// When the next request goes out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LoadPace {
    /// Each connection sends its next request when the previous one is answered.
    Closed,
    /// So many a second over all connections, whatever is still unanswered; one that finds its
    /// connection busy is late, and its latency counts from when it was due.
    PerSecond(u64),
}

/// A test outside the limits of this version; the message names the field, its value and its range.
#[derive(Debug, Clone, PartialEq, Error)]
#[error("{field} {value}: it must be {allowed}")]
pub struct CapacityError {
    field: &'static str,
    value: String,
    allowed: String,
}

impl CapacityTest {
    /// Whether it can be done at all, and by both ends.
    ///
    /// # Errors
    /// The first field that is out of its range.
    pub fn check(&self) -> Result<(), CapacityError> {
        self.request().check()?;
        if let Some(rate) = self.rate_per_s {
            within("--rate", rate, 1, MAX_PER_S)?;
        }
        within("--hold", self.hold, seconds(0.0), seconds(MAX_SECONDS))?;
        let longest = seconds(MAX_SECONDS);
        within("--heartbeat", self.heartbeat, seconds(0.1), longest)?;
        let max_churn = if self.connections == 0 { 0 } else { MAX_PER_S };
        within("--churn", self.churn_per_s, 0, max_churn)?;
        let sources = self.sources.len();
        within("the number of --sources", sources, 0, MAX_SOURCES)?;
        match &self.load {
            Some(load) => load.check(self.connections),
            None => Ok(()),
        }
    }

    /// The request to the endpoint.
    pub fn request(&self) -> CapacityRequest {
        let load = self.load.as_ref();
        CapacityRequest {
            connections: self.connections,
            udp_sockets: self.udp_sockets,
            seconds: self.seconds(),
            request_bytes: load.map_or(MIN_MESSAGE, |load| load.request_bytes.0),
            response_bytes: load.map_or(MIN_MESSAGE, |load| load.response_bytes.0),
        }
    }

    /// How long it takes at most if nothing goes wrong, s: opening at 1,000 a second at least,
    /// twice for the steps of it.
    fn seconds(&self) -> f64 {
        let all = self.connections as f64 + self.udp_sockets as f64;
        let rate = self.rate_per_s.map_or(SLOWEST_PER_S, |rate| rate as f64);
        let ramp = all / rate.min(SLOWEST_PER_S);
        let load = self.load.as_ref().map_or(0.0, |l| l.time.as_secs_f64());
        let whole = ramp + self.hold.as_secs_f64() + load + LATENCY_SECONDS;
        whole.min(MAX_SECONDS)
    }
}

impl Load {
    fn check(&self, connections: u64) -> Result<(), CapacityError> {
        within("--active", self.connections, 1, connections)?;
        within("--load", self.time, seconds(0.01), seconds(MAX_SECONDS))?;
        if let LoadPace::PerSecond(rate) = self.pace {
            within("--requests", rate, 1, MAX_PER_S)?;
        }
        Ok(())
    }
}

fn seconds(seconds: f64) -> Span {
    Span(Duration::from_secs_f64(seconds))
}

pub(super) fn within<T: PartialOrd + Display>(
    field: &'static str,
    value: T,
    low: T,
    high: T,
) -> Result<(), CapacityError> {
    if value >= low && value <= high {
        return Ok(());
    }
    Err(CapacityError { field, value: value.to_string(), allowed: format!("{low} to {high}") })
}

/// A connect rate that a path of 10 ms with a small backlog reaches.
const SLOWEST_PER_S: f64 = 1_000.0;
/// Time for the latency at all sizes, the last heartbeat and late answers, s.
const LATENCY_SECONDS: f64 = 60.0;

// The request to an endpoint, and its answers before and while connections are held.

/// Most ports that an endpoint may answer with: a worker for each 20,000 connections, twice over.
pub const MAX_PORTS: usize = 2048;
/// Most connections that an endpoint takes at each port: fewer than there are local ports for it.
pub const MAX_AT_PORT: u64 = 20_000;
/// Descriptors of a worker process that hold no connection: its channel, epoll, listeners, some to
/// spare.
pub const DESCRIPTOR_RESERVE: u64 = 96;
/// Largest number of causes in a message.
pub const MAX_CAUSES: usize = 32;

/// What an endpoint is to hold: as many connections to ports of its own choice, from the client's
/// own address.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct CapacityRequest {
    /// TCP connections at once, 0 to [`MAX_HELD`].
    pub connections: u64,
    /// UDP sockets of the client at once, 0 to [`MAX_HELD`]; they cost the endpoint no socket each.
    pub udp_sockets: u64,
    /// The longest time that the whole run may take, s.
    pub seconds: f64,
    /// Length of each request of the load, bytes.
    pub request_bytes: u64,
    /// Length of each response of the load, bytes. Over UDP no answer is longer than what it
    /// answers.
    pub response_bytes: u64,
}

impl CapacityRequest {
    /// Whether it can be asked of any endpoint.
    ///
    /// # Errors
    /// The first field that is out of its range.
    pub fn check(&self) -> Result<(), CapacityError> {
        within("--connections", self.connections, 0, MAX_HELD)?;
        within("--udp-sockets", self.udp_sockets, 0, MAX_HELD)?;
        let (all, max) = (self.connections + self.udp_sockets, 2 * MAX_HELD);
        within("--connections and --udp-sockets together", all, 1, max)?;
        within("time", self.seconds, 0.01, crate::plan::MAX_SECONDS)?;
        let messages = [("--request", self.request_bytes), ("--response", self.response_bytes)];
        messages
            .into_iter()
            .try_for_each(|(what, bytes)| within(what, bytes, MIN_MESSAGE, MAX_MESSAGE))
    }
}

/// A port of the endpoint that takes connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct HoldPort {
    /// Port.
    pub port: u16,
    /// The number of connections that it takes at once.
    pub count: u64,
}

/// The ports of the endpoint's workers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HoldPorts {
    /// The ports that listen for TCP.
    pub tcp: Vec<HoldPort>,
    /// The ports that answer over UDP.
    pub udp: Vec<HoldPort>,
    /// The longest queue of connections that wait to be accepted at each (the smaller of what was
    /// asked and
    /// `net.core.somaxconn`).
    pub backlog: u32,
    /// How long a connection may be there before it names the session, s. 0 of an endpoint that
    /// does not say so: each names it at once.
    #[serde(default)]
    pub patience_s: u32,
}

impl HoldPorts {
    /// Whether this can be the answer to `request`.
    ///
    /// # Errors
    /// Checks the progress of a peer; an error says what in it cannot be.
    pub fn check(&self, request: &CapacityRequest) -> Result<(), String> {
        let pools =
            [("TCP", &self.tcp, request.connections), ("UDP", &self.udp, request.udp_sockets)];
        for (name, ports, asked) in pools {
            if ports.len() > MAX_PORTS || ports.iter().any(|port| port.port == 0) {
                return Err(format!("{} ports for {name}", ports.len()));
            }
            let counts = ports.iter().map(|port| port.count);
            let room = counts.fold(0, u64::saturating_add);
            if room < asked {
                return Err(format!("room for {room} of {asked} over {name}"));
            }
        }
        Ok(())
    }
}

/// The endpoint's progress report, sent about ten times a second.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct HoldProgress {
    /// Time since the start, s.
    pub at_s: f64,
    /// TCP connections from the client's address that are there, whether they have named the
    /// session yet or not.
    pub tcp: u64,
    /// UDP sockets that answered their challenge.
    pub udp: u64,
    /// The endpoint's failures, by cause; at most [`MAX_CAUSES`].
    pub failures: Vec<Failure>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn test() -> CapacityTest {
        CapacityTest {
            connections: 1000,
            udp_sockets: 0,
            rate_per_s: None,
            hold: Span(Duration::from_secs(1)),
            heartbeat: Span(Duration::from_secs(1)),
            churn_per_s: 0,
            load: None,
            latency: true,
            find_limit: false,
            sources: Vec::new(),
            seed: 1,
        }
    }

    #[test]
    fn values_out_of_range_are_named() {
        assert_eq!(test().check(), Ok(()));
        let none = CapacityTest { connections: 0, ..test() };
        assert!(none.check().is_err());
        let rate = CapacityTest { rate_per_s: Some(0), ..test() };
        let words = rate.check().unwrap_err().to_string();
        assert_eq!(words, "--rate 0: it must be 1 to 10000000");
    }

    #[test]
    fn the_endpoint_is_asked_for_time_enough() {
        let slow = CapacityTest { rate_per_s: Some(10), ..test() };
        assert!(slow.request().seconds > 100.0);
    }

    #[test]
    fn an_endpoint_that_says_nothing_of_patience_has_none() {
        let before = r#"{"tcp":[{"port":7,"count":9}],"udp":[],"backlog":16}"#;
        let ports: HoldPorts = serde_json::from_str(before).unwrap();
        assert_eq!((ports.backlog, ports.patience_s), (16, 0));
    }
}
