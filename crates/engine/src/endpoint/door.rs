//! The listening sockets. While a test of short connections runs, its flows take the connections by
//! themselves, at a second listener for the client's address: handing each one to another thread
//! costs more than all the rest of it. That listener is plain TCP and defers nothing, so that the
//! flow's thread wakes up while the request is still on its way.
//!
//! One test at a time has such a door; the connections of a second go through the acceptor's hands,
//! or the first one's. A flow keeps what its token, source and flow show to be the test's, all else
//! goes to the acceptor. That looks in every [`KEPT_TICK`], and takes connections itself while the
//! flows are all busy with slow ones: no test can shut others out.

use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use linerate_core::wire::{HELLO_BYTES, Hello, HelloKind, Token};
use linerate_sys::poll::wait_readable;
use linerate_sys::socket;

use super::BACKLOG;
use super::registry::Registry;
use crate::measure::flow::{Flow, FlowSocket};
use crate::measure::source::{Arrival, Door, FlowSource, SLICE};

/// How often the acceptor looks in while it does not watch.
pub(super) const KEPT_TICK: Duration = Duration::from_millis(5);
/// Strangers' connections between two looks; the others are turned away.
const MAX_STRANGERS: usize = 1024;

/// The endpoint's listening sockets.
pub(super) struct Listeners {
    pub(super) sockets: Vec<TcpListener>,
    /// A test has a door, or is about to.
    kept: AtomicBool,
    door: Mutex<Option<Arc<TcpListener>>>,
    /// Rings when a test has got its door.
    bell: (PipeReader, PipeWriter),
    /// Connections that flows have taken.
    taken: AtomicU64,
    /// Flows that wait for one.
    awaiting: Arc<AtomicU32>,
    strangers: Mutex<Vec<TcpStream>>,
}

/// What is a test's own among the connections.
pub(super) struct Own {
    pub(super) token: Token,
    /// Where its connections come from.
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
            door: Mutex::default(),
            bell: io::pipe()?,
            taken: AtomicU64::default(),
            awaiting: Arc::default(),
            strangers: Mutex::default(),
        })
    }

    /// Leaves the ports to who listens there next.
    pub(super) fn leave_ports(&self) {
        for listener in &self.sockets {
            // One that is gone has left it.
            let _ = socket::stop_listening(listener);
        }
    }

    /// Becomes readable when a test has got its door.
    pub(super) fn bell(&self) -> &PipeReader {
        &self.bell.0
    }

    /// That of the test that has one.
    pub(super) fn door(&self) -> Option<Arc<TcpListener>> {
        let door = self.door.lock().unwrap_or_else(PoisonError::into_inner);
        door.clone()
    }

    fn set_door(&self, listener: Option<Arc<TcpListener>>) {
        *self.door.lock().unwrap_or_else(PoisonError::into_inner) = listener;
    }

    /// Opens a door for one address; `None` if another test has one, or this host's kernel or user
    /// does not let it.
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
        self.set_door(Some(Arc::clone(&listener)));
        // One byte for each test, which the acceptor takes out: there is room.
        let _ = (&self.bell.1).write(&[1]);
        Some(listener)
    }

    /// What waits at the door, at most so many.
    pub(super) fn accept_at_door(&self, most: usize) -> Vec<(TcpStream, SocketAddr)> {
        let Some(door) = self.door() else {
            return Vec::new();
        };
        // A flow that is faster makes this wait for a slice at most.
        let waits = || matches!(wait_readable(&*door, Duration::ZERO), Ok(true));
        let accepted = std::iter::from_fn(|| waits().then(|| door.accept().ok())?);
        accepted
            .take(most)
            .filter(|(stream, _)| socket::bound_waits(stream, None).is_ok())
            .collect()
    }

    fn close(&self, listener: Arc<TcpListener>) {
        // What still waits there would be reset, and so would what comes until it is closed.
        let mut sockets = self.sockets.iter();
        let is_left = sockets.all(|main| socket::take_no_more(main, &listener).is_ok());
        if is_left && listener.set_nonblocking(true).is_ok() {
            while let Ok((stream, _)) = socket::accept(&listener) {
                self.leave(stream);
            }
        }
        self.set_door(None);
        drop(listener);
        self.kept.store(false, Ordering::Release);
    }

    /// Connections that flows have taken since the beginning.
    pub(super) fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }

    /// Whether a flow takes what comes now.
    pub(super) fn is_awaited(&self) -> bool {
        self.awaiting.load(Ordering::Acquire) > 0
    }

    /// Connections that the flows found not to be their test's.
    pub(super) fn strangers(&self) -> Vec<TcpStream> {
        let mut strangers = self
            .strangers
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut strangers)
    }

    fn leave(&self, stream: TcpStream) {
        if socket::bound_waits(&stream, None).is_err() {
            return;
        }
        let mut strangers = self
            .strangers
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if strangers.len() < MAX_STRANGERS {
            strangers.push(stream);
        }
    }
}

/// The source of a test's connections: a door of its own, if no other test has one, else its
/// `inbox` alone.
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
    FlowSource::Door(Door {
        listener,
        awaiting: Arc::clone(&listeners.awaiting),
        admit: Box::new(move |stream, from| keeper.admit(stream, from)),
        inbox: Some(inbox),
    })
}

/// Closes the door when it is dropped.
struct Keeper {
    listeners: Arc<Listeners>,
    listener: Option<Arc<TcpListener>>,
    registry: Registry,
    own: Own,
}

impl Keeper {
    fn admit(&self, stream: TcpStream, from: IpAddr) -> Option<Arrival> {
        self.listeners.taken.fetch_add(1, Ordering::Relaxed);
        let mut bytes = [0; HELLO_BYTES];
        // The hello is there already, or on its way: it is not waited for long.
        let hello = match stream.peek(&mut bytes) {
            Ok(HELLO_BYTES) => Hello::decode(&bytes).ok(),
            _ => None,
        };
        match hello.map(|hello| hello.kind) {
            Some(HelloKind::Data { token, flow })
                if (token, from) == (self.own.token, self.own.source) && flow < self.own.flows =>
            {
                Some(Arrival {
                    stream,
                    known_bytes: HELLO_BYTES as u64,
                })
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

    /// To the session that it names, whose thread waits for it.
    fn hand_on(&self, mut stream: TcpStream, from: IpAddr, token: Token, flow: u32) {
        let mut hello = [0; HELLO_BYTES];
        if stream.read_exact(&mut hello).is_ok()
            && stream.set_nonblocking(false).is_ok()
            && socket::bound_waits(&stream, None).is_ok()
        {
            let flow = Flow {
                id: flow,
                socket: FlowSocket::Tcp(stream),
            };
            self.registry.deliver(token, from, flow);
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
