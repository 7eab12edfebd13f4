//! What can go wrong in a measurement, in words for the person at the terminal.

use std::io;
use std::net::{IpAddr, SocketAddr};

use linerate_core::foreign::Tool;
use linerate_core::session::SessionError;
use linerate_core::session::message::{Refusal, RefusalReason};
use linerate_core::stats::StatsError;
use linerate_core::units::{DEFAULT_PORT, Family};
use linerate_sys::errno::{EAFNOSUPPORT, ENOPROTOOPT, EPROTONOSUPPORT};
use linerate_sys::socket::OptionError;
use thiserror::Error;

use crate::category::{Categorized, Category};
use crate::treatment::TreatError;

/// A measurement that could not be made, or not to its end.
#[derive(Debug, Error)]
pub enum MeasureError {
    /// The name has no address.
    #[error("no such host: {host}")]
    UnknownHost {
        /// As given.
        host: String,
        /// From the resolver.
        source: io::Error,
    },
    /// The name has addresses, of the other family alone.
    #[error("{host} has no {family} address")]
    NoAddress {
        /// As given.
        host: String,
        /// `IPv4` or `IPv6`.
        family: &'static str,
    },
    /// An address to send from that is another host's.
    #[error("cannot connect from {address}: it is not an address of this host")]
    NotLocal {
        /// As given.
        address: IpAddr,
    },
    /// A link-local address without the interface by which it is reached.
    #[error(
        "{address}: a link-local address needs its interface, as in {address}%INTERFACE: \
         {interfaces}"
    )]
    NoScope {
        /// As given.
        address: IpAddr,
        /// This host's interfaces with such addresses, in words.
        interfaces: String,
    },
    /// TCP reaches the endpoint, and UDP does not.
    #[error(
        "{peer}: UDP {} is blocked, TCP works: let datagrams pass the firewalls on the way, both \
         ways",
        peer.port()
    )]
    UdpBlocked {
        /// Address and port.
        peer: SocketAddr,
    },
    /// The endpoint could not be connected to.
    #[error("{peer}: {}", connect_words(reason, peer.port()))]
    Connect {
        /// Address and port.
        peer: SocketAddr,
        /// From the kernel. Not a `source`: the message has said it, in plain words.
        reason: io::Error,
    },
    /// The endpoint does not have what was asked of it.
    #[error("{peer}: {what}")]
    Lacks {
        /// Address and port.
        peer: SocketAddr,
        /// What, in words.
        what: String,
    },
    /// A test with another tool's server failed.
    #[error("{peer}: {reason}")]
    Foreign {
        /// Address and port.
        peer: SocketAddr,
        /// Why, in words.
        reason: String,
    },
    /// A tool whose servers linerate does not use.
    #[error("linerate cannot be a client of {tool}")]
    NoClient {
        /// The tool.
        tool: Tool,
    },
    /// Another tool's server where the endpoint must prove its key.
    #[error(
        "{host}: nothing is measured, because {tool}'s server cannot prove the key of --key-file; \
         leave --key-file out to measure in clear"
    )]
    NoKey {
        /// As the user named it.
        host: String,
        /// The tool.
        tool: Tool,
    },
    /// The control session failed.
    #[error("{peer}: {reason}")]
    Session {
        /// Address and port.
        peer: SocketAddr,
        /// Why. Not a `source`: the message has said it.
        reason: SessionError,
    },
    /// Of the endpoint's greeting a short last segment has arrived, and none of the full-size ones.
    #[error(
        "{peer}: small packets come from the endpoint and full-size ones do not: probably a link \
         on the way drops them and does not say so (an MTU black hole); `linerate trace --mtu \
         {host}` shows where"
    )]
    BlackHole {
        /// Address and port.
        peer: SocketAddr,
        /// As the user named it.
        host: String,
    },
    /// The endpoint refused this test or treatment; the session goes on.
    #[error("{peer} refuses: {}", refusal.message)]
    Refused {
        /// Address and port.
        peer: SocketAddr,
        /// Its words.
        refusal: Refusal,
    },
    /// The kernel refused something that the test needs.
    #[error("{what}")]
    Host {
        /// What, and where it can be told what is missing.
        what: String,
        /// From the kernel.
        source: io::Error,
    },
    /// A socket option did not take.
    #[error(transparent)]
    Option(#[from] OptionError),
    /// This kernel does not have a congestion control.
    #[error("this kernel has no such congestion control; {hint}")]
    NoCongestion {
        /// The nearest that it has, or all of them.
        hint: String,
    },
    /// This host could not be treated, or not put back.
    #[error(transparent)]
    Treat(#[from] TreatError),
    /// A figure to compare that this test does not have.
    #[error("--metric {metric}: this test has no such figure; it has {has}")]
    NoFigure {
        /// Its path.
        metric: String,
        /// Some that it has.
        has: String,
    },
    /// A comparison that cannot be designed so, or figures that it cannot use.
    #[error(transparent)]
    Statistics(#[from] StatsError),
    /// The load beside the runs ended before a run did.
    #[error(
        "the load of --with ended before the run beside it: the endpoint allows no longer test; \
         give a shorter -t, or start it with a longer --max-duration"
    )]
    LoadEnded,
    /// Stopped by the user.
    #[error("interrupted")]
    Interrupted,
}

impl Categorized for MeasureError {
    fn category(&self) -> Category {
        match self {
            Self::UnknownHost { .. }
            | Self::NoAddress { .. }
            | Self::NotLocal { .. }
            | Self::NoScope { .. }
            | Self::NoFigure { .. }
            | Self::NoClient { .. }
            | Self::Statistics(_) => Category::Usage,
            Self::Host { .. }
            | Self::Option(_)
            | Self::NoCongestion { .. }
            | Self::Lacks { .. } => Category::Missing,
            Self::Treat(error) => error.category(),
            Self::Refused { refusal, .. } if refusal.reason == RefusalReason::Treatment => {
                Category::Missing
            }
            Self::Refused { .. }
            | Self::Connect { .. }
            | Self::UdpBlocked { .. }
            | Self::Session { .. }
            | Self::BlackHole { .. }
            | Self::Foreign { .. }
            | Self::NoKey { .. }
            | Self::LoadEnded
            | Self::Interrupted => Category::Failed,
        }
    }
}

impl MeasureError {
    /// A [`MeasureError::Host`].
    pub(crate) fn host(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::Host { what, source }
    }

    /// A connection that failed, or a socket of it that this host does not make, or an option that
    /// did not take: one is the path's fault, the others this host's.
    pub(crate) fn connect(peer: SocketAddr) -> impl FnOnce(io::Error) -> Self {
        move |reason| match reason.downcast::<OptionError>() {
            Ok(option) => Self::Option(option),
            Err(reason) => match socket_lacked(reason.raw_os_error(), peer) {
                Some(what) => Self::Host { what, source: reason },
                None => Self::Connect { peer, reason },
            },
        }
    }

    /// Where nobody listens, what was looked for is another tool's server.
    pub(crate) fn of_server(self, tool: Tool) -> Self {
        let servers = match tool {
            Tool::Netperf => "`netserver` or `linerate serve --netperf`",
            Tool::Iperf3 => "`iperf3 -s` or `linerate serve`",
            Tool::Ttcp => "`ttcp -r` or `linerate serve --ttcp`",
            Tool::Stamp => "`linerate serve --stamp`",
        };
        match self {
            Self::Connect { peer, .. } if self.is_refused_connection() => Self::Foreign {
                peer,
                reason: format!(
                    "connection refused: nothing listens there (start {servers} on that host)"
                ),
            },
            other => other,
        }
    }

    /// Where the server that has just answered linerate's greeting listens no more: that was its
    /// one client.
    pub(crate) fn of_server_that_left(self, tool: Tool) -> Self {
        match self {
            Self::Connect { peer, .. } if self.is_refused_connection() => Self::Foreign {
                peer,
                reason: format!(
                    "an {0} server answered linerate's greeting and listens no more: one that \
                     serves a single \
                     client (`iperf3 -s -1`) needs `--via {0}`",
                    tool.name()
                ),
            },
            other => other.of_server(tool),
        }
    }

    /// Whether nobody listens there.
    pub(crate) fn is_refused_connection(&self) -> bool {
        matches!(self, Self::Connect { reason, .. } if reason.kind() == io::ErrorKind::ConnectionRefused)
    }

    /// Whether the endpoint said that it has no room, or that another client needs its host as it
    /// is.
    pub fn is_busy(&self) -> bool {
        matches!(
            self,
            Self::Session { reason: SessionError::Refused(refusal), .. }
            | Self::Refused { refusal, .. }
                if refusal.reason == RefusalReason::Busy
        )
    }
}

/// The sockets that this host does not make, by the error of the call.
fn socket_lacked(errno: Option<i32>, peer: SocketAddr) -> Option<String> {
    match errno? {
        // Without CONFIG_MPTCP, and switched off: mptcp_init_sock, net/mptcp/protocol.c.
        EPROTONOSUPPORT | ENOPROTOOPT => Some(
            "this host has no MPTCP: it needs a kernel with CONFIG_MPTCP, and sysctl -w \
             net.mptcp.enabled=1"
                .to_owned(),
        ),
        EAFNOSUPPORT => Some(format!("this host has no {}", Family::from(peer.ip()))),
        _ => None,
    }
}

/// The command that starts an endpoint at a port.
pub(crate) fn serve_command(port: u16) -> String {
    match port {
        DEFAULT_PORT => "linerate serve".to_owned(),
        port => format!("linerate serve -p {port}"),
    }
}

fn connect_words(error: &io::Error, port: u16) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => {
            let serve = serve_command(port);
            format!("connection refused: nothing listens there (start `{serve}` on that host)")
        }
        io::ErrorKind::TimedOut => {
            "timed out: no answer (host down, or a firewall drops the packets)".into()
        }
        io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => {
            format!("unreachable: {error}")
        }
        io::ErrorKind::AddrNotAvailable => {
            "cannot connect: the source address is not one of this host's, or it has no free port"
                .into()
        }
        // Accepted and then reset before the client has looked; a reset instead of an accept is a
        // refusal.
        io::ErrorKind::ConnectionReset => "the peer closed the connection".into(),
        _ => format!("cannot connect: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_this_host_lacks_is_said_and_is_not_the_paths_fault() {
        let peer = "[2001:db8::1]:5301".parse().unwrap();
        let of = |errno| MeasureError::connect(peer)(io::Error::from_raw_os_error(errno));
        for (errno, words) in [
            (EPROTONOSUPPORT, "net.mptcp.enabled=1"),
            (ENOPROTOOPT, "CONFIG_MPTCP"),
            (EAFNOSUPPORT, "this host has no IPv6"),
        ] {
            let error = of(errno);
            assert_eq!(error.category(), Category::Missing, "{error}");
            assert!(error.to_string().contains(words), "{error}");
        }
    }

    #[test]
    fn the_advice_for_a_closed_port_names_the_port() {
        for (port, serve) in [(5201, "start `linerate serve` on"), (5301, "serve -p 5301` on")] {
            let peer = SocketAddr::from(([198, 18, 0, 1], port));
            let refused = io::Error::from(io::ErrorKind::ConnectionRefused);
            let said = MeasureError::connect(peer)(refused).to_string();
            assert!(said.contains(serve), "{said}");
        }
    }
}
