//! Where a worker gets connections that are made within the run.

use std::io;
use std::net::TcpStream;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use super::flow::{Flow, FlowSocket};
use crate::stop::Stop;

/// Makes a data connection for a flow: options set, hello sent, and with it the bytes of the second argument.
pub(crate) type Connect = dyn Fn(u32, &[u8]) -> io::Result<TcpStream> + Send + Sync;

/// Connections for `crr` and for `--whole`.
pub(crate) enum FlowSource {
    /// The workload has its sockets from the beginning.
    Bound,
    /// The client makes them.
    Connect(Box<Connect>),
    /// The endpoint gets them from its door.
    Accept(Mutex<Receiver<Flow>>),
}

impl FlowSource {
    /// A new connection to the endpoint, on which the hello and `first` are sent in one segment if they fit it.
    pub(crate) fn connect(&self, flow: u32, first: &[u8]) -> io::Result<TcpStream> {
        match self {
            Self::Connect(connect) => connect(flow, first),
            Self::Bound | Self::Accept(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// The next connection from the client and the flow it is for; `None` when asked to stop or when no more will come.
    pub(crate) fn accept(&self, stop: &Stop) -> Option<(u32, TcpStream)> {
        /// Longest wait without looking at the stop flag.
        const SLICE: Duration = Duration::from_millis(20);
        let Self::Accept(arrivals) = self else {
            return None;
        };
        while !stop.is_requested() {
            // Workers wait in turn: the one that holds the lock takes the next connection.
            let arrivals = arrivals.lock().ok()?;
            // Of many workers the last has waited for all the others: not for a slice each once it is over.
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
