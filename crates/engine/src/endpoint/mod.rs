//! `linerate serve`: one port, many clients at once, each test independent.
//!
//! The acceptor ([`accept`]) accepts every connection, reads its hello and no more, and hands it
//! on: a control connection to a thread of its own ([`session`]), a data connection or UDP flow to
//! the session whose token it carries ([`registry`]). The flows of `crr` accept their connections
//! themselves ([`crr_listener`]). Every wait has a deadline. The number of clients is limited in
//! [`clients`], the resources that their tests take of the host in [`budget`].
//!
//! Clients of other tools are recognized by their first bytes, or have a port of their own
//! ([`foreign`]).
//!
//! A client may also request a trace of the path to itself. A client with the key may change this
//! host for the time of its session ([`terms`]). Meanwhile no other client measures or changes
//! anything ([`budget`]).

mod accept;
mod budget;
mod clients;
mod crr_listener;
mod foreign;
mod registry;
mod session;
mod terms;

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use linerate_core::lab::Prefix;
use linerate_core::plan::Test;
use linerate_core::record::Record;
use linerate_core::session::message::Limits;
use linerate_core::units::Family;
use linerate_core::wire::Key;
use linerate_sys::socket::{self, ListenOptions, Mptcp};

pub(crate) use self::clients::share_of_one;
pub use self::foreign::iperf3::{AccessError, Iperf3Access};
use super::measure::flow::LiveFlow;
use crate::error::MeasureError;
use crate::partner::Accounts;
use crate::stop::Stop;

/// Length of the listeners' accept queues.
const BACKLOG: u32 = 1024;
/// A connection without data is accepted after this time, and then has the greeting's deadline.
const DEFER_SECONDS: u32 = 1;

/// Options of an endpoint.
#[derive(Debug, Clone, Default)]
pub struct ServeOptions {
    /// Address to listen on; both families' wildcards if `None`.
    pub bind: Option<IpAddr>,
    /// Family to listen on; both if `None`.
    pub family: Option<Family>,
    /// Port, TCP and UDP; 0 lets the kernel choose.
    pub port: u16,
    /// The owner's limits.
    pub limits: Limits,
    /// Most memory that all tests together may take, bytes: by default a quarter of what this host,
    /// or its control group, has.
    pub max_memory: Option<u64>,
    /// What the owner allows beyond the limits to clients of linerate's and iperf3's.
    pub admission: Option<Arc<dyn Admission>>,
    /// The key that clients must have.
    pub key: Option<Key>,
    /// Who may test by iperf3's protocol: everybody if `None`, unless there is a key.
    pub iperf3: Option<Arc<Iperf3Access>>,
    /// Clients may apply treatments of the table to this host for the time of their session. Needs
    /// a key.
    pub allow_treatments: bool,
    /// Clients may have this host profiled while their tests run: they get the names of kernel
    /// functions and how often each was sampled.
    pub allow_profiles: bool,
    /// End after one session.
    pub one_off: bool,
    /// Log the progress of iperf3 tests this often.
    pub live: Option<Duration>,
    /// Also serve netperf's clients, on a port of their own.
    pub netperf: Option<NetperfOptions>,
    /// Port of a sink for ttcp's streams and datagrams.
    pub ttcp_sink: Option<u16>,
    /// Port that sends a stream to every client that connects.
    pub ttcp_source: Option<u16>,
    /// Also reflect STAMP packets, on a port of their own.
    pub stamp: Option<StampOptions>,
}

/// What an owner allows beyond [`Limits`]: it is asked before each test of a client, and told what
/// the test has carried.
pub trait Admission: fmt::Debug + Send + Sync {
    /// Enters the most that a test may carry.
    ///
    /// # Errors
    /// Why the owner does not allow it.
    fn admit(&self, peer: IpAddr, test: &Test) -> Result<Booked, String>;

    /// Puts what a test has carried in the place of the most that it might.
    fn carried(&self, booked: Booked, bytes: u64);
}

/// An entry in an owner's book: its time, in seconds since 1970, and its bytes.
pub type Booked = (u64, u64);

/// Options of the STAMP reflector.
#[derive(Debug, Clone, Default)]
pub struct StampOptions {
    /// UDP port; 0 lets the kernel choose.
    pub port: u16,
    /// Networks that are answered, in addition to the peers of sessions.
    pub allowed: Vec<Prefix>,
}

/// Options for netperf's clients.
#[derive(Debug, Clone, Default)]
pub struct NetperfOptions {
    /// TCP port; 0 lets the kernel choose.
    pub port: u16,
    /// Passphrase that clients must send first.
    pub passphrase: Option<String>,
}

impl ServeOptions {
    /// Serves all clients of linerate's and iperf3's, on all addresses and on a port that the
    /// kernel chooses. They may have the host profiled and change nothing.
    pub fn within(limits: Limits) -> Self {
        Self { limits, allow_profiles: true, ..Self::default() }
    }

    /// Refuses treatments without a key, because they need root; and with a key, every way in that
    /// needs no proof.
    fn check(&self) -> Result<(), MeasureError> {
        let refuse = |what: &str| {
            Err(MeasureError::Host {
                what: what.into(),
                source: io::ErrorKind::InvalidInput.into(),
            })
        };
        match &self.key {
            None if self.allow_treatments => {
                refuse("an endpoint that applies treatments needs a key")
            }
            Some(_) if self.lets_strangers_in() => {
                refuse("an endpoint with a key serves netperf by a passphrase alone, and no ttcp")
            }
            _ => Ok(()),
        }
    }

    fn lets_strangers_in(&self) -> bool {
        let netperf = self.netperf.as_ref();
        netperf.is_some_and(|options| options.passphrase.is_none())
            || self.ttcp_sink.is_some()
            || self.ttcp_source.is_some()
    }
}

/// The progress of an iperf3 client's test.
#[derive(Debug, Clone, PartialEq)]
pub struct Running {
    /// The test, as the client sees it.
    pub test: Test,
    /// The client's cookie.
    pub cookie: String,
    /// Time since the test began, seconds.
    pub at_s: f64,
    /// The state of each flow.
    pub flows: Vec<LiveFlow>,
    /// The results of both ends, once the test is over.
    pub accounts: Option<Accounts>,
}

/// An event at an endpoint, for its log.
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
    /// A test of another tool's client ended.
    Served {
        /// The client.
        peer: SocketAddr,
        /// One line.
        summary: String,
        /// This end's record of the test, with its verdict.
        record: Box<Record>,
    },
    /// The progress of an iperf3 client's test, if [`ServeOptions::live`] asks for it.
    Running {
        /// The client.
        peer: SocketAddr,
        /// The test.
        running: Box<Running>,
    },
    /// A client has changed this host.
    Treated {
        /// The client.
        peer: SocketAddr,
        /// Settings as read back, one line for each change.
        read_back: Vec<String>,
    },
    /// What a client had changed is undone.
    Untreated {
        /// The client.
        peer: SocketAddr,
        /// Why it could not be undone; the next start of linerate that treats tries again.
        error: Option<String>,
    },
    /// A client has gone.
    Disconnected {
        /// Its address.
        peer: SocketAddr,
        /// Why, unless it said goodbye.
        reason: Option<String>,
    },
    /// A connection or a request was refused.
    Refused {
        /// The client.
        peer: SocketAddr,
        /// Why.
        reason: String,
    },
    /// There were more events than the log gets.
    LeftOut {
        /// Their address, with port 0.
        peer: SocketAddr,
        /// How many of which kind.
        what: String,
    },
}

/// How often the kernel may choose another port, if it is to choose one.
const PORT_CHOICES: u32 = 20;

/// A bound endpoint.
#[derive(Debug)]
pub struct Endpoint {
    listeners: Vec<TcpListener>,
    datagrams: Vec<UdpSocket>,
    options: ServeOptions,
    ports: foreign::Ports,
    notes: Vec<String>,
}

impl Endpoint {
    /// Binds the port for TCP and UDP, in every family that this host has.
    ///
    /// # Errors
    /// The port is taken, or not allowed; treatments are allowed to clients without a key.
    pub fn bind(options: &ServeOptions) -> Result<Self, MeasureError> {
        // The port that the kernel chooses is free for TCP in one family; others may have it in the
        // other family, or for UDP.
        let mut choices = if options.port == 0 { PORT_CHOICES } else { 1 };
        loop {
            choices -= 1;
            match Self::bind_once(options) {
                Err(MeasureError::Host { source, .. })
                    if choices > 0 && source.kind() == io::ErrorKind::AddrInUse => {}
                bound => return bound,
            }
        }
    }

    fn bind_once(options: &ServeOptions) -> Result<Self, MeasureError> {
        let mut endpoint = Self::unbound(options)?;
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

    fn unbound(options: &ServeOptions) -> Result<Self, MeasureError> {
        options.check()?;
        Ok(Self {
            listeners: Vec::new(),
            datagrams: Vec::new(),
            options: options.clone(),
            ports: foreign::Ports::default(),
            notes: Vec::new(),
        })
    }

    /// Serves on listening sockets that were inherited (systemd, inetd), and on the same ports for
    /// UDP where they are free.
    ///
    /// # Errors
    /// A socket does not listen; treatments are allowed to clients without a key.
    pub fn from_listeners(
        listeners: Vec<TcpListener>,
        options: &ServeOptions,
    ) -> Result<Self, MeasureError> {
        let mut endpoint = Self::unbound(options)?;
        for listener in listeners {
            let address = listener
                .local_addr()
                .map_err(MeasureError::host("cannot use the inherited socket"))?;
            let ipv4 = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), address.port());
            let ipv4 = socket::takes_both_families(&listener).then_some(ipv4);
            for address in [Some(address), ipv4].into_iter().flatten() {
                match socket::udp_socket(address, None, true) {
                    Ok(datagrams) => endpoint.datagrams.push(datagrams),
                    Err(error) => endpoint.note(format!("no UDP tests at {address}: {error}")),
                }
            }
            endpoint.listeners.push(listener);
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
        let fail =
            |source| MeasureError::Host { what: format!("cannot listen on {wanted}"), source };
        let options = ListenOptions { backlog: BACKLOG, mptcp: Mptcp::On };
        let listener = match socket::listen(wanted, options) {
            Err(error) if no_mptcp(&error) => {
                self.note(format!("no MPTCP tests: {error}"));
                let mptcp = Mptcp::Off;
                socket::listen(wanted, ListenOptions { mptcp, ..options }).map_err(fail)?
            }
            other => other.map_err(fail)?,
        };
        // If this fails, the acceptor wakes up once more for each connection, which is only slower.
        let _ = socket::set_defer_accept(&listener, DEFER_SECONDS);
        // Whether a connection may begin with its data is this host's setting.
        let _ = socket::accept_with_handshake(&listener, BACKLOG);
        let local = listener.local_addr().map_err(fail)?;
        self.datagrams.push(socket::udp_socket(local, None, true).map_err(fail)?);
        self.listeners.push(listener);
        Ok(())
    }

    fn note(&mut self, note: String) {
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    fn nonempty(mut self) -> Result<Self, MeasureError> {
        if self.listeners.is_empty() {
            return Err(MeasureError::Host {
                what: "this host has neither IPv4 nor IPv6".into(),
                source: io::ErrorKind::AddrNotAvailable.into(),
            });
        }
        let addresses: Vec<IpAddr> = self.addresses().iter().map(SocketAddr::ip).collect();
        self.ports = foreign::Ports::bind(&self.options, &addresses)?;
        Ok(self)
    }

    /// Addresses for clients of other tools that have their own ports: `netperf`, `ttcp`,
    /// `ttcp-source`, `stamp`.
    pub fn foreign_addresses(&self) -> Vec<(&'static str, SocketAddr)> {
        self.ports.addresses()
    }

    /// Addresses at which the endpoint listens.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.listeners.iter().filter_map(|listener| listener.local_addr().ok()).collect()
    }

    /// What this host lacks, for the owner.
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
        // If this fails, the endpoint serves fewer connections at once.
        let _ = linerate_sys::proc::privilege::raise_descriptor_limit();
        // If this fails, the endpoint only uses more memory.
        let _ = linerate_sys::process::unmap_code();
        accept::Acceptor::new(self, Box::new(log), stop.clone())
            .and_then(accept::Acceptor::run)
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

/// Time that sessions have to end when the endpoint stops.
const STOPPING: Duration = Duration::from_millis(1500);
