//! Where a worker gets connections that are made within the run.

use std::io;
use std::net::{IpAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use linerate_sys::poll::Poller;
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
    /// The workers take them from listening sockets by themselves.
    Door(Door),
}

/// Listening sockets where a test's workers take connections: no thread stands between.
pub(crate) struct Door {
    /// Do not block.
    pub(crate) listeners: Vec<TcpListener>,
    /// Workers that wait for a connection.
    pub(crate) awaiting: Arc<AtomicU32>,
    /// The connections of the test; what is another's has been handed on.
    pub(crate) admit: Box<Admit>,
    /// What others have taken for the test.
    pub(crate) inbox: Option<Mutex<Receiver<Flow>>>,
}

/// Tells whether a connection that was just taken is the test's.
pub(crate) type Admit = dyn Fn(TcpStream, IpAddr) -> Option<Arrival> + Send + Sync;

/// A connection that does not block.
pub(crate) struct Arrival {
    pub(crate) stream: TcpStream,
    /// Bytes before the first request that are known and still to be read.
    pub(crate) known_bytes: u64,
}

/// One worker's view of where its connections come from.
pub(crate) struct Arrivals<'a> {
    source: &'a FlowSource,
    poller: Poller,
    wait: Duration,
}

/// Longest wait without looking at the stop flag.
const SLICE: Duration = Duration::from_millis(20);

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
    /// Out of descriptors.
    pub(crate) fn arrivals(&self, spin: bool) -> io::Result<Arrivals<'_>> {
        let poller = Poller::new()?;
        if let Self::Door(door) = self {
            for (number, listener) in (0..).zip(&door.listeners) {
                poller.add_shared(listener, number)?;
            }
        }
        Ok(Arrivals {
            source: self,
            poller,
            wait: if spin { Duration::ZERO } else { SLICE },
        })
    }
}

impl Arrivals<'_> {
    /// The next connection of the test; `None` when asked to stop or when no more will come.
    pub(crate) fn next(&mut self, stop: &Stop) -> Option<Arrival> {
        let FlowSource::Door(door) = self.source else {
            let (_, stream) = self.source.accept(stop)?;
            return Arrival::of_others(stream);
        };
        while !stop.is_requested() {
            if let Some(arrival) = door.inbox.as_ref().and_then(handed_over) {
                return Some(arrival);
            }
            door.awaiting.fetch_add(1, Ordering::AcqRel);
            let ready = self.poller.wait(self.wait).map(|mut ready| ready.next());
            door.awaiting.fetch_sub(1, Ordering::AcqRel);
            let Some(number) = ready.ok()? else {
                continue;
            };
            match socket::accept(&door.listeners[number as usize]) {
                Ok((stream, from)) => {
                    if let Some(arrival) = (door.admit)(stream, from) {
                        return Some(arrival);
                    }
                }
                // Another worker was faster, or the connection has ended meanwhile.
                Err(error) if is_passing(&error) => {}
                // Where descriptors are short it stays readable; the next look may find one.
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
