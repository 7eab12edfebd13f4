//! The endpoint that a client speaks to.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use linerate_core::wire::Key;

/// Where the endpoint is and how to reach it.
#[derive(Debug, Clone)]
pub struct Target {
    /// As the user named it, for the record.
    pub name: String,
    /// Its addresses, best first; the first that answers is taken.
    pub addresses: Vec<SocketAddr>,
    /// Address to send from.
    pub source: Option<IpAddr>,
    /// Interface to send by.
    pub device: Option<String>,
    /// Shared key, if the endpoint has one.
    pub key: Option<Key>,
    /// For each address.
    pub connect_timeout: Duration,
}

impl Target {
    /// An endpoint at one address, without a key, from whichever address and interface the routes
    /// say, with 5 s to connect.
    pub fn at(name: &str, address: SocketAddr) -> Self {
        Self {
            name: name.to_owned(),
            addresses: vec![address],
            source: None,
            device: None,
            key: None,
            connect_timeout: Duration::from_secs(5),
        }
    }
}
