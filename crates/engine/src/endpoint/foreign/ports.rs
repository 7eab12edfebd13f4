//! The ports of other tools: what is bound for their clients, and the threads that serve them.

use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io, thread};

use linerate_core::session::GREETING_TIMEOUT;
use linerate_sys::poll::Poller;
use linerate_sys::socket::{self, ListenOptions, Mptcp};

use super::super::accept::Waiting;
use super::{netperf, stamp, ttcp};
use crate::endpoint::crr_listener::Listeners;
use crate::endpoint::session::Context;
use crate::endpoint::{BACKLOG, ServeOptions};
use crate::error::MeasureError;
use crate::stop::Stop;

/// Work of a thread that lasts until the endpoint stops.
type Work = dyn FnOnce(&Arc<Context>) + Send;

/// Sockets that are bound, and the work that serves them.
struct Service {
    /// The option that asked for it; its thread is named after that.
    name: &'static str,
    addresses: Vec<SocketAddr>,
    work: Box<Work>,
}

/// The services for other tools' clients, until they are started.
#[derive(Default)]
pub(in crate::endpoint) struct Ports(Vec<Service>);

impl fmt::Debug for Ports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ports({:?})", self.addresses())
    }
}

impl Ports {
    /// Binds what the owner wants at each of these addresses.
    ///
    /// # Errors
    /// A port is taken, or not allowed.
    pub(in crate::endpoint) fn bind(
        options: &ServeOptions,
        addresses: &[IpAddr],
    ) -> Result<Self, MeasureError> {
        let mut ports = Self::default();
        if let Some(netperf) = options.netperf.clone() {
            let listeners = listen(addresses, netperf.port, "--netperf")?;
            ports.add("netperf", listened(&listeners), move |context| {
                netperf::serve(context, listeners, &netperf);
            });
        }
        if let Some(port) = options.ttcp_sink {
            let listeners = listen(addresses, port, "--ttcp")?;
            let locals = listened(&listeners);
            let sockets = datagrams(&locals, "--ttcp")?;
            ports.add("ttcp", locals, |context| ttcp::sink(context, listeners));
            // Its addresses are those of the streams.
            ports.add("ttcp-udp", Vec::new(), move |context| {
                ttcp::sink_datagrams(context, &sockets);
            });
        }
        if let Some(port) = options.ttcp_source {
            let listeners = listen(addresses, port, "--ttcp-source")?;
            ports.add("ttcp-source", listened(&listeners), |context| {
                ttcp::source(context, listeners);
            });
        }
        if let Some(stamp) = options.stamp.clone() {
            let wanted = addresses.iter().map(|ip| SocketAddr::new(*ip, stamp.port));
            let sockets = datagrams(&wanted.collect::<Vec<_>>(), "--stamp")?;
            for socket in &sockets {
                // If the first fails, the route chooses the source address of an answer; if the
                // second fails, arrival times are those of the thread.
                let _ = socket::note_destinations(socket);
                let _ = socket::note_arrivals(socket);
            }
            let locals = sockets.iter().filter_map(|s| s.local_addr().ok()).collect();
            ports.add("stamp", locals, move |context| {
                stamp::serve(context, &sockets, &stamp.allowed);
            });
        }
        Ok(ports)
    }

    fn add(
        &mut self,
        name: &'static str,
        addresses: Vec<SocketAddr>,
        work: impl FnOnce(&Arc<Context>) + Send + 'static,
    ) {
        let work = Box::new(work);
        self.0.push(Service { name, addresses, work });
    }

    /// The bound addresses, each with the option that asked for it.
    pub(in crate::endpoint) fn addresses(&self) -> Vec<(&'static str, SocketAddr)> {
        let of = |service: &Service| {
            let name = service.name;
            let addresses = service.addresses.clone().into_iter();
            addresses.map(move |address| (name, address))
        };
        self.0.iter().flat_map(of).collect()
    }

    /// Starts the threads that serve until the context's stop is requested.
    ///
    /// # Errors
    /// No threads.
    pub(in crate::endpoint) fn start(self, context: &Arc<Context>) -> io::Result<()> {
        for Service { name, work, .. } in self.0 {
            let context = Arc::clone(context);
            let thread = thread::Builder::new().name(format!("{name}-port"));
            thread.spawn(move || work(&context))?;
        }
        Ok(())
    }
}

fn listened(listeners: &[TcpListener]) -> Vec<SocketAddr> {
    let locals = listeners.iter().map(TcpListener::local_addr);
    locals.filter_map(Result::ok).collect()
}

/// A UDP socket at each of these addresses. All get the same port, even if the kernel chooses it.
fn datagrams(wanted: &[SocketAddr], option: &str) -> Result<Vec<UdpSocket>, MeasureError> {
    let mut sockets: Vec<UdpSocket> = Vec::new();
    for wanted in wanted {
        let mut wanted = *wanted;
        if let Some(Ok(first)) = sockets.first().map(UdpSocket::local_addr) {
            wanted.set_port(first.port());
        }
        let what = format!("{option}: no datagrams at {wanted}");
        let socket = socket::udp_socket(wanted, None, false);
        sockets.push(socket.map_err(MeasureError::host(what))?);
    }
    Ok(sockets)
}

/// Listens at each of these addresses. All get the same port, even if the kernel chooses it.
fn listen(addresses: &[IpAddr], port: u16, option: &str) -> Result<Vec<TcpListener>, MeasureError> {
    let mut listeners: Vec<TcpListener> = Vec::new();
    for address in addresses {
        let port = match listeners.first().map(TcpListener::local_addr) {
            Some(Ok(first)) => first.port(),
            _ => port,
        };
        let wanted = SocketAddr::new(*address, port);
        let options = ListenOptions { backlog: BACKLOG, mptcp: Mptcp::Off };
        let what = format!("{option}: cannot listen on {wanted}");
        listeners.push(socket::listen(wanted, options).map_err(MeasureError::host(what))?);
    }
    Ok(listeners)
}

// Serving a port: connections wait until their client is to be served, and cost no thread until
// then; datagrams of all sockets are handled in one thread.

/// When a connection is handed over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ForeignAdmission {
    /// With its first byte.
    FirstByte,
    /// At once, because the client only receives.
    AtOnce,
}

/// Hands each connection to `take` until `stop` is requested.
pub(super) fn accept(
    listeners: Vec<TcpListener>,
    admission: ForeignAdmission,
    stop: &Stop,
    mut take: impl FnMut(TcpStream, SocketAddr),
) {
    let listeners = Listeners::new(listeners).map(Arc::new);
    let Ok(mut waiting) = listeners.and_then(|listeners| Waiting::new(listeners, stop)) else {
        return;
    };
    while !stop.is_requested() {
        let Ok(ready) = waiting.wait(Duration::MAX) else {
            return;
        };
        for number in ready {
            for (stream, peer) in waiting.accept(number) {
                match admission {
                    ForeignAdmission::AtOnce => take(stream, peer),
                    ForeignAdmission::FirstByte => waiting.keep(stream, GREETING_TIMEOUT),
                }
            }
            if let Some((stream, ())) = waiting.take(number, |_| Some(()))
                && let Ok(peer) = stream.peer_addr()
            {
                take(stream, peer);
            }
        }
    }
}

/// Longest wait without a look at the stop flag.
const TICK: Duration = Duration::from_millis(100);

/// Calls `handle` with the sockets on which datagrams wait, possibly none, at least every 100 ms
/// until `stop` is requested.
pub(super) fn watch_datagrams(
    sockets: &[UdpSocket],
    stop: &Stop,
    mut handle: impl FnMut(Vec<&UdpSocket>),
) {
    let Ok(mut poller) = Poller::new() else {
        return;
    };
    for (number, socket) in (0..).zip(sockets) {
        if socket.set_nonblocking(true).is_err() || poller.add(socket, number).is_err() {
            return;
        }
    }
    while !stop.is_requested() {
        let Ok(ready) = poller.wait(TICK) else {
            return;
        };
        handle(ready.map(|number| &sockets[number as usize]).collect());
    }
}
