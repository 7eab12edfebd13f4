//! A client's capacity request, and the endpoint's answers before and while connections are held.

use serde::{Deserialize, Serialize};

use super::half::Failure;
use super::test::{CapacityError, MAX_HELD, MAX_MESSAGE, MIN_MESSAGE, within};

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

    #[test]
    fn an_endpoint_that_says_nothing_of_patience_has_none() {
        let before = r#"{"tcp":[{"port":7,"count":9}],"udp":[],"backlog":16}"#;
        let ports: HoldPorts = serde_json::from_str(before).unwrap();
        assert_eq!((ports.backlog, ports.patience_s), (16, 0));
    }
}
