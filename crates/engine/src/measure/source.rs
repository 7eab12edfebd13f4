//! Where a worker gets connections that are made within the run.

use std::io;
use std::net::{IpAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use linerate_sys::socket;

use super::flow::{Flow, FlowSocket};
use crate::stop::Stop;

/// Makes a data connection for a flow: options set, hello sent, and with it the bytes of the second
/// argument. Its calls wait for a short time at most.
pub(crate) type Connect = dyn Fn(u32, &[u8]) -> io::Result<TcpStream> + Send + Sync;

/// Connections for `crr` and for `--whole`.
pub(crate) enum FlowSource {
    /// The workload has its sockets from the beginning.
    Bound,
    /// The client makes them.
    Connect(Box<Connect>),
    /// The endpoint gets them from its acceptor.
    Accept(Mutex<Receiver<Flow>>),
    /// The workers take them from a listening socket by themselves.
    Door(Door),
}

/// A listening socket where a test's workers take connections: no thread stands between.
pub(crate) struct Door {
    /// Its waits are bounded by [`SLICE`], and so are those of its connections.
    pub(crate) listener: Arc<TcpListener>,
    /// Workers that wait for a connection.
    pub(crate) awaiting: Arc<AtomicU32>,
    /// The connections of the test; what is another's has been handed on.
    pub(crate) admit: Box<Admit>,
    /// What others have taken for the test.
    pub(crate) inbox: Option<Mutex<Receiver<Flow>>>,
}

/// Tells whether a connection that was just taken is the test's.
pub(crate) type Admit = dyn Fn(TcpStream, IpAddr) -> Option<Arrival> + Send + Sync;

/// A connection whose calls do not block, or for a short time only.
pub(crate) struct Arrival {
    pub(crate) stream: TcpStream,
    /// Bytes before the first request that are known and still to be read.
    pub(crate) known_bytes: u64,
}

/// One worker's view of where its connections come from.
pub(crate) struct Arrivals<'a> {
    source: &'a FlowSource,
    spin: bool,
}

/// Longest wait without looking at the stop flag.
pub(crate) const SLICE: Duration = Duration::from_millis(20);

impl FlowSource {
    /// A new connection to the endpoint, on which the hello and `first` are sent in one segment if
    /// they fit it.
    pub(crate) fn connect(&self, flow: u32, first: &[u8]) -> io::Result<TcpStream> {
        match self {
            Self::Connect(connect) => connect(flow, first),
            Self::Bound | Self::Accept(_) | Self::Door(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// The next connection from the client and the flow it is for; `None` when asked to stop or
    /// when no more will come.
    pub(crate) fn accept(&self, stop: &Stop) -> Option<(u32, TcpStream)> {
        let Self::Accept(arrivals) = self else {
            return None;
        };
        while !stop.is_requested() {
            // Workers wait in turn: the one that holds the lock takes the next connection.
            let arrivals = arrivals.lock().ok()?;
            // Of many workers the last has waited for all the others: not for a slice each once it
            // is over.
            if stop.is_requested() {
                return None;
            }
            match arrivals.recv_timeout(SLICE) {
                Ok(Flow {
                    socket: FlowSocket::Tcp(stream),
                    id,
                }) => return Some((id, stream)),
                Ok(_) | Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return None,
            }
        }
        None
    }

    /// What a worker takes its connections from; with `spin` it waits without sleeping.
    ///
    /// # Errors
    /// The socket is none that listens.
    pub(crate) fn arrivals(&self, spin: bool) -> io::Result<Arrivals<'_>> {
        if let Self::Door(door) = self {
            // Who sleeps is to wake up while the client still sends its request.
            socket::set_defer_accept(&door.listener, spin.into()).map_err(io::Error::other)?;
            door.listener.set_nonblocking(spin)?;
        }
        Ok(Arrivals { source: self, spin })
    }
}

impl Arrivals<'_> {
    /// The next connection of the test; `None` when asked to stop or when no more will come.
    pub(crate) fn next(&self, stop: &Stop) -> Option<Arrival> {
        let FlowSource::Door(door) = self.source else {
            let (_, stream) = self.source.accept(stop)?;
            return Arrival::of_others(stream);
        };
        while !stop.is_requested() {
            if let Some(arrival) = door.inbox.as_ref().and_then(handed_over) {
                return Some(arrival);
            }
            door.awaiting.fetch_add(1, Ordering::AcqRel);
            let accepted = if self.spin {
                socket::accept(&door.listener)
            } else {
                socket::accept_blocking(&door.listener)
            };
            door.awaiting.fetch_sub(1, Ordering::AcqRel);
            match accepted {
                Ok((stream, from)) => {
                    if let Some(arrival) = (door.admit)(stream, from) {
                        return Some(arrival);
                    }
                }
                // There is none yet, or it has ended meanwhile.
                Err(error) if is_passing(&error) => {}
                // Where descriptors are short the next try may find one.
                Err(_) => std::thread::sleep(SLICE),
            }
        }
        None
    }
}

impl Arrival {
    /// A connection that another thread has taken.
    fn of_others(stream: TcpStream) -> Option<Self> {
        stream.set_nonblocking(true).ok()?;
        Some(Self {
            stream,
            known_bytes: 0,
        })
    }
}

fn handed_over(inbox: &Mutex<Receiver<Flow>>) -> Option<Arrival> {
    match inbox.try_lock().ok()?.try_recv().ok()?.socket {
        FlowSocket::Tcp(stream) => Arrival::of_others(stream),
        FlowSocket::Udp(_) => None,
    }
}

fn is_passing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted
    )
}
