//! Configuration of links, addresses, routes, neighbours, queueing disciplines, their classes and
//! filters through netlink; and what TCP sockets there are ([`sock_diag`]).
//!
//! A [`Netlink`] handle speaks for the network namespace in which it was opened, whichever thread
//! or namespace uses it later. All calls are synchronous: one request, its whole answer, or an
//! error that says what was attempted.

mod address;
mod exchange;
mod filter;
mod htb;
mod link;
mod qdisc;
mod route;
pub mod sock_diag;
mod tcp_metrics;

pub use address::{Address, Prefix};
pub use filter::{BpfFilter, Direction};
pub use htb::{HtbClass, HtbStatistics, Shaper};
pub use link::{Announcements, Link, LinkChange, LinkStatistics, OperState, VethEnd};
pub use qdisc::{Qdisc, TrafficClass};
pub use route::{Metric, NextHop, Route, RouteMetrics};
pub use tcp_metrics::TcpMetrics;

use std::io;

use netlink_packet_core::DecodeError;
use netlink_packet_route::RouteNetlinkMessage;

use exchange::Exchange;

/// A `NETLINK_ROUTE` socket of one network namespace.
#[derive(Debug)]
pub struct Netlink {
    exchange: Exchange,
}

impl Netlink {
    /// Opens a socket in the network namespace of the calling thread.
    ///
    /// # Errors
    /// [`NetlinkError::Open`] if the socket cannot be created, for example because a seccomp filter
    /// forbids it.
    pub fn open() -> Result<Self, NetlinkError> {
        Exchange::open(netlink_sys::protocols::NETLINK_ROUTE).map(|exchange| Self { exchange })
    }

    /// Sends one request with `flags` beyond `NLM_F_REQUEST | NLM_F_ACK` and returns the messages
    /// of the answer.
    fn request(
        &mut self,
        operation: &str,
        message: RouteNetlinkMessage,
        flags: u16,
    ) -> Result<Vec<RouteNetlinkMessage>, NetlinkError> {
        self.exchange.request(operation, message, flags)
    }

    /// Sends one request that has no answer but its acknowledgement.
    fn change(
        &mut self,
        operation: &str,
        message: RouteNetlinkMessage,
        flags: u16,
    ) -> Result<(), NetlinkError> {
        self.request(operation, message, flags).map(drop)
    }

    /// Reads a whole kernel table.
    fn dump(
        &mut self,
        operation: &str,
        message: RouteNetlinkMessage,
    ) -> Result<Vec<RouteNetlinkMessage>, NetlinkError> {
        self.exchange.dump(operation, message)
    }
}

/// Why a netlink request failed. `operation` names what was attempted and on which object.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NetlinkError {
    /// The socket could not be set up.
    #[error("cannot open a netlink socket")]
    Open {
        /// What the kernel answered.
        source: io::Error,
    },
    /// The request could not be sent, or no answer arrived in time.
    #[error("cannot {operation}: no answer from the kernel")]
    Transport {
        /// The attempted operation and its object.
        operation: String,
        /// What the socket reported.
        source: io::Error,
    },
    /// The kernel refused the request.
    #[error("cannot {operation}{}", in_brackets(.explanation.as_deref()))]
    Refused {
        /// The attempted operation and its object.
        operation: String,
        /// The kernel's own explanation (extended acknowledgement), where it gives one.
        explanation: Option<String>,
        /// The error number of the answer.
        source: io::Error,
    },
    /// The answer could not be understood.
    #[error("cannot {operation}: malformed answer from the kernel")]
    Malformed {
        /// The attempted operation and its object.
        operation: String,
        /// The part that could not be decoded.
        source: DecodeError,
    },
    /// The table changed during each attempt to read it.
    #[error("cannot {operation}: the table kept changing while it was read")]
    Unsettled {
        /// The attempted operation and its object.
        operation: String,
    },
}

impl NetlinkError {
    /// The kernel's error number (`libc::EEXIST`, `libc::EPERM`, …), if it refused the request.
    pub fn errno(&self) -> Option<i32> {
        match self {
            Self::Open { source }
            | Self::Transport { source, .. }
            | Self::Refused { source, .. } => source.raw_os_error(),
            Self::Malformed { .. } | Self::Unsettled { .. } => None,
        }
    }

    /// An answer that lacks what the protocol promises.
    fn malformed(operation: &str, missing: &str) -> Self {
        Self::Malformed { operation: operation.to_owned(), source: DecodeError::from(missing) }
    }
}

fn in_brackets(text: Option<&str>) -> String {
    text.map(|text| format!(" ({text})")).unwrap_or_default()
}

#[cfg(test)]
mod tests;
