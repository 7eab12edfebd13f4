//! Where a worker gets connections that are made within the run.

use std::io;
use std::net::{IpAddr, TcpListener, TcpStream};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use linerate_sys::poll;

use super::flow::{Flow, FlowSocket};
use crate::stop::Stop;

/// Makes a data connection for a flow: options set, hello sent, and with it the bytes of the second
/// argument.
pub(crate) type Connect = dyn Fn(u32, &[u8]) -> io::Result<TcpStream> + Send + Sync;

/// Connections for `crr` and for `--whole`.
pub(crate) enum FlowSource {
    /// The workload has its sockets from the beginning.
    Bound,
    /// The client makes them.
    Connect(Box<Connect>),
    /// The endpoint gets them from its acceptor.
    Accept(Mutex<Receiver<Flow>>),
    /// A listener that is one client's alone.
    Listen(OwnListener),
}

/// A listener for the connections of one client's test.
pub(crate) struct OwnListener {
    /// Does not block.
    pub(crate) listener: TcpListener,
    /// Others are turned away.
    pub(crate) peer: IpAddr,
    /// Socket options beyond those of the test are the listener's, which its connections inherit.
    pub(crate) flow: u32,
}

/// Longest wait without looking at the stop flag.
const SLICE: Duration = Duration::from_millis(20);

impl FlowSource {
    /// A new connection to the endpoint, on which the hello and `first` are sent in one segment if
    /// they fit it.
    pub(crate) fn connect(&self, flow: u32, first: &[u8]) -> io::Result<TcpStream> {
        match self {
            Self::Connect(connect) => connect(flow, first),
            Self::Bound | Self::Accept(_) | Self::Listen(_) => {
                Err(io::ErrorKind::Unsupported.into())
            }
        }
    }

    /// The next connection from the client and the flow it is for; `None` when asked to stop or
    /// when no more will come.
    pub(crate) fn accept(&self, stop: &Stop) -> Option<(u32, TcpStream)> {
        let arrivals = match self {
            Self::Accept(arrivals) => arrivals,
            Self::Listen(own) => return own.accept(stop),
            Self::Bound | Self::Connect(_) => return None,
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
}

impl OwnListener {
    fn accept(&self, stop: &Stop) -> Option<(u32, TcpStream)> {
        while !stop.is_requested() {
            match self.listener.accept() {
                Ok((stream, peer)) if peer.ip().to_canonical() == self.peer => {
                    return Some((self.flow, stream));
                }
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    _ = poll::wait_readable(&self.listener, SLICE);
                }
                // Where descriptors are short it stays readable; the next look may find one.
                Err(_) => std::thread::sleep(SLICE),
            }
        }
        None
    }
}
