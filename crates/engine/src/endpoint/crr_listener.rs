//! The listening sockets, and the crr listener: a second listener at which the flows of a test of
//! short connections (`crr`) accept connections themselves. To hand each connection to another
//! thread would cost more than all the rest of it. The crr listener takes connections from the
//! client's address alone. It is plain TCP and does not defer, so that the flow's thread wakes up
//! while the request is still on its way.
//!
//! One test at a time has the crr listener. The connections of a second such test are accepted by
//! the acceptor, or at the first test's crr listener. A flow keeps a connection if its token,
//! source and flow show that it belongs to the test; it passes all others to the acceptor. The
//! acceptor looks at the crr listener every [`KEPT_TICK`], and accepts connections itself while all
//! flows are busy with slow ones: no test can shut out others.

use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use linerate_core::wire::{HELLO_BYTES, Hello, HelloKind, Token};
use linerate_sys::poll::wait_readable;
use linerate_sys::socket;

use super::BACKLOG;
use super::registry::{Registry, SessionName};
use crate::measure::flow::{Flow, FlowSocket};
use crate::measure::source::{CrrListener, FlowSource, SLICE, SourceArrival};
use crate::shares::lock;

/// How often the acceptor looks at the crr listener while a test has it.
pub(super) const KEPT_TICK: Duration = Duration::from_millis(5);
/// Most connections of others that wait for the acceptor's next look; further ones are closed.
const MAX_STRANGERS: usize = 1024;

/// The endpoint's listening sockets.
pub(super) struct Listeners {
    pub(super) sockets: Vec<TcpListener>,
    /// A test has the crr listener, or is about to get it.
    kept: AtomicBool,
    crr_listener: Mutex<Option<Arc<TcpListener>>>,
    /// A pipe that wakes the acceptor when a test has got the crr listener.
    bell: (PipeReader, PipeWriter),
    /// Number of connections that flows have accepted.
    taken: AtomicU64,
    /// Number of flows that wait for a connection.
    awaiting: Arc<AtomicU32>,
    /// Connections that flows have accepted and that belong to others.
    strangers: Mutex<Vec<TcpStream>>,
}

/// How a test recognizes its own connections.
pub(super) struct Own {
    pub(super) token: Token,
    /// The address that they come from.
    pub(super) source: IpAddr,
    pub(super) flows: u32,
}

impl Listeners {
    /// # Errors
    /// No descriptors.
    pub(super) fn new(sockets: Vec<TcpListener>) -> io::Result<Self> {
        Ok(Self {
            sockets,
            kept: AtomicBool::default(),
            crr_listener: Mutex::default(),
            bell: io::pipe()?,
            taken: AtomicU64::default(),
            awaiting: Arc::default(),
            strangers: Mutex::default(),
        })
    }

    /// Stops listening, so that another process can listen on the ports.
    pub(super) fn leave_ports(&self) {
        for listener in &self.sockets {
            // A socket that fails no longer listens.
            let _ = socket::stop_listening(listener);
        }
    }

    /// A pipe that becomes readable when a test has got the crr listener.
    pub(super) fn bell(&self) -> &PipeReader {
        &self.bell.0
    }

    /// The crr listener, while a test has it.
    pub(super) fn crr_listener(&self) -> Option<Arc<TcpListener>> {
        lock(&self.crr_listener).clone()
    }

    /// Opens the crr listener for one address; `None` if another test has it, or this host does not
    /// allow it.
    fn open(&self, source: IpAddr) -> Option<Arc<TcpListener>> {
        if self.kept.swap(true, Ordering::AcqRel) {
            return None;
        }
        let mut sockets = self.sockets.iter();
        let apart =
            sockets.find_map(|main| socket::listen_apart(main, source, BACKLOG, SLICE).ok());
        let Some(listener) = apart.map(Arc::new) else {
            self.kept.store(false, Ordering::Release);
            return None;
        };
        *lock(&self.crr_listener) = Some(Arc::clone(&listener));
        // One byte for each test, which the acceptor reads: the pipe never fills.
        let _ = (&self.bell.1).write(&[1]);
        Some(listener)
    }

    /// Accepts the connections that wait at the crr listener, `max` at most.
    pub(super) fn accept_at_door(&self, max: usize) -> Vec<(TcpStream, SocketAddr)> {
        let Some(crr_listener) = self.crr_listener() else {
            return Vec::new();
        };
        // If a flow accepts the connection first, this waits for one slice at most.
        let waits = || matches!(wait_readable(&*crr_listener, Duration::ZERO), Ok(true));
        let accepted = std::iter::from_fn(|| waits().then(|| crr_listener.accept().ok())?);
        accepted.take(max).filter(|(stream, _)| socket::bound_waits(stream, None).is_ok()).collect()
    }

    fn close(&self, listener: Arc<TcpListener>) {
        // Closing would reset the connections that still wait there or arrive until then.
        let mut sockets = self.sockets.iter();
        let is_left = sockets.all(|main| socket::take_no_more(main, &listener).is_ok());
        if is_left && listener.set_nonblocking(true).is_ok() {
            while let Ok((stream, _)) = socket::accept(&listener) {
                self.leave(stream);
            }
        }
        *lock(&self.crr_listener) = None;
        drop(listener);
        self.kept.store(false, Ordering::Release);
    }

    /// Number of connections that flows have accepted since the beginning.
    pub(super) fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }

    /// Whether a flow waits for a connection.
    pub(super) fn is_awaited(&self) -> bool {
        self.awaiting.load(Ordering::Acquire) > 0
    }

    /// Connections that flows have accepted and that belong to others.
    pub(super) fn strangers(&self) -> Vec<TcpStream> {
        std::mem::take(&mut lock(&self.strangers))
    }

    fn leave(&self, stream: TcpStream) {
        if socket::bound_waits(&stream, None).is_err() {
            return;
        }
        let mut strangers = lock(&self.strangers);
        if strangers.len() < MAX_STRANGERS {
            strangers.push(stream);
        }
    }
}

/// The source of a test's connections: the crr listener if no other test has it, else the `inbox`
/// alone.
pub(super) fn source(
    listeners: &Arc<Listeners>,
    registry: &Registry,
    own: Own,
    inbox: Receiver<Flow>,
) -> FlowSource {
    let inbox = Mutex::new(inbox);
    let Some(listener) = listeners.open(own.source) else {
        return FlowSource::Accept(inbox);
    };
    let keeper = Keeper {
        listeners: Arc::clone(listeners),
        listener: Some(Arc::clone(&listener)),
        registry: registry.clone(),
        own,
    };
    FlowSource::CrrListener(CrrListener {
        listener,
        awaiting: Arc::clone(&listeners.awaiting),
        admit: Box::new(move |stream, from| keeper.admit(stream, from)),
        inbox: Some(inbox),
    })
}

/// Closes the crr listener when it is dropped.
struct Keeper {
    listeners: Arc<Listeners>,
    listener: Option<Arc<TcpListener>>,
    registry: Registry,
    own: Own,
}

impl Keeper {
    fn admit(&self, stream: TcpStream, from: IpAddr) -> Option<SourceArrival> {
        self.listeners.taken.fetch_add(1, Ordering::Relaxed);
        let mut bytes = [0; HELLO_BYTES];
        // The hello has arrived or is about to: the wait is short.
        let hello = match stream.peek(&mut bytes) {
            Ok(HELLO_BYTES) => Hello::decode(&bytes).ok(),
            _ => None,
        };
        match hello.map(|hello| hello.kind) {
            Some(HelloKind::Data { token, flow })
                if (token, from) == (self.own.token, self.own.source) && flow < self.own.flows =>
            {
                Some(SourceArrival { stream, known_bytes: HELLO_BYTES as u64 })
            }
            Some(HelloKind::Data { token, flow }) => {
                self.hand_on(stream, from, token, flow);
                None
            }
            _ => {
                self.listeners.leave(stream);
                None
            }
        }
    }

    /// Hands a connection to the session that its hello names.
    fn hand_on(&self, mut stream: TcpStream, from: IpAddr, token: Token, flow: u32) {
        let mut hello = [0; HELLO_BYTES];
        if stream.read_exact(&mut hello).is_ok()
            && stream.set_nonblocking(false).is_ok()
            && socket::bound_waits(&stream, None).is_ok()
        {
            let (name, socket) = (SessionName::Token(token), FlowSocket::Tcp(stream));
            self.registry.deliver(name, from, Some(flow), socket);
        }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        if let Some(listener) = self.listener.take() {
            self.listeners.close(listener);
        }
    }
}
