//! `linerate serve`: one port, many clients at once, each test independent.
//!
//! The door ([`door`]) takes every connection and datagram, reads no more of it than the hello, and hands
//! it on: a control connection to a thread of its own ([`session`]), a data connection or UDP flow to the
//! session whose token it carries ([`registry`]). Nobody waits for anybody without a deadline.
//!
//! A client may also have the way to itself traced ([`tracing`]).
//!
//! What a client with the key may change on this host is on loan to its session ([`lease`]), and while it is, no
//! other client measures or changes anything ([`occupancy`]).

mod door;
mod knock;
mod lease;
mod occupancy;
mod registry;
mod session;
mod terms;
mod tracing;

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, UdpSocket};
use std::time::Duration;

use linerate_core::plan::Family;
use linerate_core::wire::Key;
use linerate_core::wire::message::Limits;
use linerate_sys::socket::{self, ListenOptions, Mptcp};

use crate::error::MeasureError;
use crate::stop::Stop;

/// Connections that wait for the door.
const BACKLOG: u32 = 1024;
/// A connection with nothing in it is accepted after this and then runs into the greeting's deadline.
const DEFER_SECONDS: u32 = 1;

/// How to serve.
#[derive(Debug, Clone)]
pub struct ServeOptions {
    /// Address to listen on; both families' wildcards if `None`.
    pub bind: Option<IpAddr>,
    /// Family to listen on; both if `None`.
    pub family: Option<Family>,
    /// Port, TCP and UDP; 0 lets the kernel choose.
    pub port: u16,
    /// What the owner allows.
    pub limits: Limits,
    /// Clients must have it.
    pub key: Option<Key>,
    /// Clients may change this host by the table of treatments, for as long as they are there. Needs a key.
    pub allow_treatments: bool,
    /// Clients may have this host profiled while their tests run: names of the kernel's functions and how often each was met.
    pub allow_profiles: bool,
    /// End after one session.
    pub one_off: bool,
}

impl ServeOptions {
    /// Treatments are root's work: never for a stranger, whoever has built these options.
    fn check(&self) -> Result<(), MeasureError> {
        match (self.allow_treatments, &self.key) {
            (true, None) => Err(MeasureError::Host {
                what: "an endpoint that applies treatments needs a key".into(),
                source: io::ErrorKind::InvalidInput.into(),
            }),
            _ => Ok(()),
        }
    }
}

/// What happens at an endpoint, for its log.
#[derive(Debug, Clone, PartialEq)]
pub enum ServeEvent {
    /// A client greeted.
    Connected {
        /// Its address.
        peer: SocketAddr,
    },
    /// A test ended.
    Tested {
        /// The client.
        peer: SocketAddr,
        /// One line.
        summary: String,
    },
    /// A client has changed this host.
    Treated {
        /// The client.
        peer: SocketAddr,
        /// What was read back, one line for each change.
        read_back: Vec<String>,
    },
    /// What a client had changed is undone.
    Untreated {
        /// The client.
        peer: SocketAddr,
        /// Why it could not be; the next start of linerate that treats tries again.
        error: Option<String>,
    },
    /// A client is gone.
    Disconnected {
        /// Its address.
        peer: SocketAddr,
        /// Why, unless it said goodbye.
        reason: Option<String>,
    },
    /// Something was turned away.
    Refused {
        /// From where.
        peer: SocketAddr,
        /// Why.
        reason: String,
    },
}

/// A bound endpoint.
#[derive(Debug)]
pub struct Endpoint {
    listeners: Vec<TcpListener>,
    datagrams: Vec<UdpSocket>,
    options: ServeOptions,
    notes: Vec<String>,
}

impl Endpoint {
    /// Binds the port for TCP and UDP, in every family that this host has.
    ///
    /// # Errors
    /// The port is taken, or not allowed; treatments are allowed to clients without a key.
    pub fn bind(options: &ServeOptions) -> Result<Self, MeasureError> {
        options.check()?;
        let mut endpoint = Self {
            listeners: Vec::new(),
            datagrams: Vec::new(),
            options: options.clone(),
            notes: Vec::new(),
        };
        let wildcards = [
            (Family::Ipv6, IpAddr::V6(Ipv6Addr::UNSPECIFIED)),
            (Family::Ipv4, IpAddr::V4(Ipv4Addr::UNSPECIFIED)),
        ];
        match options.bind {
            Some(address) => endpoint.listen(address)?,
            None => {
                let wanted = |family| options.family.is_none_or(|only| only == family);
                for (_, address) in wildcards.into_iter().filter(|(f, _)| wanted(*f)) {
                    match endpoint.listen(address) {
                        // A kernel without one family still has the other.
                        Err(MeasureError::Host { what, source }) if no_family(&source) => {
                            endpoint.notes.push(format!("{what}: {source}"));
                        }
                        other => other?,
                    }
                }
            }
        }
        endpoint.nonempty()
    }

    /// Serves on a listening socket that was inherited (systemd, inetd); UDP on the same port if that can
    /// still be had.
    ///
    /// # Errors
    /// The socket is none that listens; treatments are allowed to clients without a key.
    pub fn from_listener(
        listener: TcpListener,
        options: &ServeOptions,
    ) -> Result<Self, MeasureError> {
        options.check()?;
        let address = listener
            .local_addr()
            .map_err(MeasureError::host("cannot use the inherited socket"))?;
        let mut endpoint = Self {
            listeners: vec![listener],
            datagrams: Vec::new(),
            options: options.clone(),
            notes: Vec::new(),
        };
        match socket::udp_socket(address, None, true) {
            Ok(datagrams) => endpoint.datagrams.push(datagrams),
            Err(error) => endpoint.notes.push(format!("no UDP tests: {error}")),
        }
        endpoint.nonempty()
    }

    fn listen(&mut self, address: IpAddr) -> Result<(), MeasureError> {
        // Both families get the same port, also when the kernel chooses it.
        let port = match self.listeners.first().map(TcpListener::local_addr) {
            Some(Ok(first)) => first.port(),
            _ => self.options.port,
        };
        let wanted = SocketAddr::new(address, port);
        let fail = |source| MeasureError::Host {
            what: format!("cannot listen on {wanted}"),
            source,
        };
        let options = ListenOptions {
            backlog: BACKLOG,
            mptcp: Mptcp::On,
        };
        let listener = match socket::listen(wanted, options) {
            Err(error) if no_mptcp(&error) => {
                self.note(format!("no MPTCP tests: {error}"));
                let mptcp = Mptcp::Off;
                socket::listen(wanted, ListenOptions { mptcp, ..options }).map_err(fail)?
            }
            other => other.map_err(fail)?,
        };
        // Without it the door is woken once more for each connection, which is only slower.
        let _ = socket::set_defer_accept(&listener, DEFER_SECONDS);
        let local = listener.local_addr().map_err(fail)?;
        self.datagrams
            .push(socket::udp_socket(local, None, true).map_err(fail)?);
        self.listeners.push(listener);
        Ok(())
    }

    fn note(&mut self, note: String) {
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    fn nonempty(self) -> Result<Self, MeasureError> {
        if self.listeners.is_empty() {
            return Err(MeasureError::Host {
                what: "this host has neither IPv4 nor IPv6".into(),
                source: io::ErrorKind::AddrNotAvailable.into(),
            });
        }
        Ok(self)
    }

    /// Where it listens.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.listeners
            .iter()
            .filter_map(|listener| listener.local_addr().ok())
            .collect()
    }

    /// What this host lacks, for the owner to know.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Serves until `stop` is requested, or one session is over if `one_off` is set; then ends the
    /// sessions that are open. `log` is called from many threads.
    ///
    /// # Errors
    /// The host is out of descriptors or threads from the beginning.
    pub fn serve(
        self,
        stop: &Stop,
        log: impl Fn(ServeEvent) + Send + Sync + 'static,
    ) -> Result<(), MeasureError> {
        door::Door::new(self, Box::new(log), stop.clone())
            .and_then(door::Door::run)
            .map_err(MeasureError::host("the endpoint cannot go on"))
    }
}

fn no_family(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::AddrNotAvailable
        || error.raw_os_error() == Some(linerate_sys::errno::EAFNOSUPPORT)
}

fn no_mptcp(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(linerate_sys::errno::EPROTONOSUPPORT | linerate_sys::errno::ENOPROTOOPT)
    )
}

/// How long sessions get to end when the endpoint stops.
const STOPPING: Duration = Duration::from_millis(1500);
