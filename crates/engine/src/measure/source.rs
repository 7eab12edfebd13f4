//! Where a worker gets the connections that are made within a run.

use std::io;
use std::net::{IpAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use linerate_sys::socket::{self, Connecting};

use super::flow::{Flow, FlowSocket};
use crate::retry::is_transient;
use crate::stop::Stop;

/// Makes the data connections of flows, in two steps: what needs no peer can be done while another
/// connection waits for its response.
pub(crate) trait Connect: Send + Sync {
    /// A socket that is not connected yet, its options set. Calls on it wait for a short time at
    /// most.
    fn socket(&self, flow: u32) -> io::Result<Connecting>;

    /// Connects it, and sends `first`, in one segment with the hello if the peer expects that and
    /// both fit.
    fn connect(&self, socket: Connecting, flow: u32, first: &[u8]) -> io::Result<TcpStream>;
}

/// The source of connections for `crr` and for `--whole`.
pub(crate) enum FlowSource {
    /// None is needed: the workload has its sockets from the beginning.
    Bound,
    /// The client connects.
    Connect(Box<dyn Connect>),
    /// The endpoint's acceptor hands the connections over.
    Accept(Mutex<Receiver<Flow>>),
    /// The workers accept the connections themselves.
    CrrListener(CrrListener),
}

/// A listening socket at which the workers of a test accept connections themselves, so that none
/// has to be handed from one thread to another.
pub(crate) struct CrrListener {
    /// Waits on it, and on its connections, end after [`SLICE`].
    pub(crate) listener: Arc<TcpListener>,
    /// Number of workers that wait for a connection.
    pub(crate) awaiting: Arc<AtomicU32>,
    /// Gives back the connections of the test, and passes others on to where they belong.
    pub(crate) admit: Box<Admit>,
    /// Connections of the test that other threads have accepted.
    pub(crate) inbox: Option<Mutex<Receiver<Flow>>>,
}

/// Whether a connection that was just accepted belongs to the test.
pub(crate) type Admit = dyn Fn(TcpStream, IpAddr) -> Option<SourceArrival> + Send + Sync;

/// A connection whose calls do not block, or only for a short time.
pub(crate) struct SourceArrival {
    pub(crate) stream: TcpStream,
    /// Bytes before the first request that were checked and are still to be read.
    pub(crate) known_bytes: u64,
}

/// The connections that one worker takes from a source.
pub(crate) struct Arrivals<'a> {
    source: &'a FlowSource,
    spin: bool,
}

/// Longest wait without looking at the stop flag.
pub(crate) const SLICE: Duration = Duration::from_millis(20);

impl FlowSource {
    /// What makes connections at the client.
    ///
    /// # Errors
    /// The connections of this source come from elsewhere.
    pub(crate) fn connector(&self) -> io::Result<&dyn Connect> {
        match self {
            Self::Connect(connector) => Ok(connector.as_ref()),
            Self::Bound | Self::Accept(_) | Self::CrrListener(_) => {
                Err(io::ErrorKind::Unsupported.into())
            }
        }
    }

    /// The next connection from the client, and its flow; `None` when the stop is requested or no
    /// more can come.
    pub(crate) fn accept(&self, stop: &Stop) -> Option<(u32, TcpStream)> {
        let Self::Accept(arrivals) = self else {
            return None;
        };
        while !stop.is_requested() {
            // The worker that holds the lock takes the next connection; the others wait.
            let arrivals = arrivals.lock().ok()?;
            // The last of many workers has waited for all others. After a stop they must not wait
            // for a slice each.
            if stop.is_requested() {
                return None;
            }
            match arrivals.recv_timeout(SLICE) {
                Ok(Flow { socket: FlowSocket::Tcp(stream), id }) => return Some((id, stream)),
                Ok(_) | Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return None,
            }
        }
        None
    }

    /// The connections for one worker; with `spin` it waits without sleeping.
    ///
    /// # Errors
    /// The socket does not listen.
    pub(crate) fn arrivals(&self, spin: bool) -> io::Result<Arrivals<'_>> {
        if let Self::CrrListener(crr_listener) = self {
            // A worker that sleeps is to wake up while the client still sends its request.
            socket::set_defer_accept(&crr_listener.listener, spin.into())
                .map_err(io::Error::other)?;
            crr_listener.listener.set_nonblocking(spin)?;
        }
        Ok(Arrivals { source: self, spin })
    }
}

impl Arrivals<'_> {
    /// The next connection of the test; `None` when the stop is requested or no more can come.
    pub(crate) fn next(&self, stop: &Stop) -> Option<SourceArrival> {
        let FlowSource::CrrListener(crr_listener) = self.source else {
            let (_, stream) = self.source.accept(stop)?;
            return SourceArrival::of_others(stream);
        };
        while !stop.is_requested() {
            if let Some(arrival) = crr_listener.inbox.as_ref().and_then(handed_over) {
                return Some(arrival);
            }
            crr_listener.awaiting.fetch_add(1, Ordering::AcqRel);
            let accepted = if self.spin {
                socket::accept(&crr_listener.listener)
            } else {
                socket::accept_blocking(&crr_listener.listener)
            };
            crr_listener.awaiting.fetch_sub(1, Ordering::AcqRel);
            match accepted {
                Ok((stream, from)) => {
                    if let Some(arrival) = (crr_listener.admit)(stream, from) {
                        return Some(arrival);
                    }
                }
                // No connection has arrived yet, or it has ended already.
                Err(error) if is_transient(&error) => {}
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                // Out of descriptors: a later try may succeed.
                Err(_) => std::thread::sleep(SLICE),
            }
        }
        None
    }
}

impl SourceArrival {
    /// A connection that another thread has accepted.
    fn of_others(stream: TcpStream) -> Option<Self> {
        stream.set_nonblocking(true).ok()?;
        Some(Self { stream, known_bytes: 0 })
    }
}

fn handed_over(inbox: &Mutex<Receiver<Flow>>) -> Option<SourceArrival> {
    match inbox.try_lock().ok()?.try_recv().ok()?.socket {
        FlowSocket::Tcp(stream) => SourceArrival::of_others(stream),
        FlowSocket::Udp(_) => None,
    }
}
