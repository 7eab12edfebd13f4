//! The ports of their own that other tools' clients call.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use linerate_core::lab::Prefix;
use linerate_sys::socket::{self, ListenOptions, Mptcp};

use super::{netperf, stamp, ttcp};
use crate::endpoint::session::Context;
use crate::endpoint::{BACKLOG, NetperfOptions, ServeOptions};
use crate::error::MeasureError;

/// What a thread does for the endpoint until that stops.
type Work = dyn FnOnce(&Arc<Context>) + Send;

/// Bound, not served yet.
#[derive(Debug, Default)]
pub(in crate::endpoint) struct Ports {
    netperf: Vec<TcpListener>,
    netperf_options: NetperfOptions,
    sink: Vec<TcpListener>,
    sink_datagrams: Vec<UdpSocket>,
    source: Vec<TcpListener>,
    stamp: Vec<UdpSocket>,
    stamp_allowed: Vec<Prefix>,
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
        if let Some(netperf) = &options.netperf {
            ports.netperf = listen(addresses, netperf.port, "--netperf")?;
            ports.netperf_options = netperf.clone();
        }
        if let Some(port) = options.ttcp_sink {
            ports.sink = listen(addresses, port, "--ttcp")?;
            let locals = ports.sink.iter().map(TcpListener::local_addr);
            let locals = locals.collect::<io::Result<Vec<_>>>();
            let locals = locals.map_err(MeasureError::host("--ttcp: no address"))?;
            ports.sink_datagrams = datagrams(&locals, "--ttcp")?;
        }
        if let Some(port) = options.ttcp_source {
            ports.source = listen(addresses, port, "--ttcp-source")?;
        }
        if let Some(stamp) = &options.stamp {
            let locals = addresses.iter().map(|ip| SocketAddr::new(*ip, stamp.port));
            ports.stamp = datagrams(&locals.collect::<Vec<_>>(), "--stamp")?;
            ports.stamp_allowed.clone_from(&stamp.allowed);
            for socket in &ports.stamp {
                // Without the one the route chooses the address of an answer, without the other
                // its times are the thread's.
                let _ = socket::note_destinations(socket);
                let _ = socket::note_arrivals(socket);
            }
        }
        Ok(ports)
    }

    /// Each with the option that asked for it.
    pub(in crate::endpoint) fn addresses(&self) -> Vec<(&'static str, SocketAddr)> {
        let sets = [
            ("netperf", &self.netperf),
            ("ttcp", &self.sink),
            ("ttcp-source", &self.source),
        ];
        sets.iter()
            .flat_map(|(name, listeners)| {
                let bound = listeners.iter().filter_map(|l| l.local_addr().ok());
                bound.map(|address| (*name, address))
            })
            .chain(self.stamp.iter().filter_map(|socket| {
                let bound = socket.local_addr().ok()?;
                Some(("stamp", bound))
            }))
            .collect()
    }

    /// Serves until the context's stop is requested.
    ///
    /// # Errors
    /// No threads.
    pub(in crate::endpoint) fn start(
        self,
        context: &Arc<Context>,
    ) -> io::Result<Vec<JoinHandle<()>>> {
        let mut threads = Vec::new();
        let mut start = |name: &str, work: Box<Work>| {
            let context = Arc::clone(context);
            let thread = thread::Builder::new()
                .name(name.to_owned())
                .spawn(move || work(&context))?;
            threads.push(thread);
            Ok::<(), io::Error>(())
        };
        let Self {
            netperf,
            netperf_options,
            sink,
            sink_datagrams,
            source,
            stamp,
            stamp_allowed,
        } = self;
        if !netperf.is_empty() {
            let work = move |context: &Arc<Context>| {
                netperf::serve(context, netperf, &netperf_options);
            };
            start("netperf-accept", Box::new(work))?;
        }
        if !sink.is_empty() {
            let work = move |context: &Arc<Context>| ttcp::sink(context, sink);
            start("ttcp-accept", Box::new(work))?;
        }
        if !sink_datagrams.is_empty() {
            let work = move |context: &Arc<Context>| ttcp::sink_datagrams(context, sink_datagrams);
            start("ttcp-udp", Box::new(work))?;
        }
        if !source.is_empty() {
            let work = move |context: &Arc<Context>| ttcp::source(context, source);
            start("ttcp-source", Box::new(work))?;
        }
        if !stamp.is_empty() {
            let work = move |context: &Arc<Context>| stamp::serve(context, stamp, &stamp_allowed);
            start("stamp", Box::new(work))?;
        }
        Ok(threads)
    }
}

/// A socket at each of these; all get the same port, also when the kernel chooses it.
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

/// Listens at each address; all get the same port, also when the kernel chooses it.
fn listen(addresses: &[IpAddr], port: u16, option: &str) -> Result<Vec<TcpListener>, MeasureError> {
    let mut listeners: Vec<TcpListener> = Vec::new();
    for address in addresses {
        let port = match listeners.first().map(TcpListener::local_addr) {
            Some(Ok(first)) => first.port(),
            _ => port,
        };
        let wanted = SocketAddr::new(*address, port);
        let options = ListenOptions {
            backlog: BACKLOG,
            mptcp: Mptcp::Off,
        };
        let what = format!("{option}: cannot listen on {wanted}");
        listeners.push(socket::listen(wanted, options).map_err(MeasureError::host(what))?);
    }
    Ok(listeners)
}
