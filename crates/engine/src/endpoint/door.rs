//! The listening sockets. The acceptor watches them, and while a test of short connections runs, its
//! flows take the connections by themselves: handing each one to another thread costs more than
//! all the rest of it.
//!
//! One test at a time has the door; the connections of a second go through the acceptor's hands, or
//! the first one's. A flow keeps what its token, source and flow show to be the test's, all else
//! goes to the acceptor. That looks in every [`KEPT_TICK`], and takes connections itself while the
//! flows are all busy with slow ones: no test can shut others out.

use std::io::Read;
use std::net::{IpAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use linerate_core::wire::{HELLO_BYTES, Hello, HelloKind, Token};

use super::registry::Registry;
use crate::measure::flow::{Flow, FlowSocket};
use crate::measure::source::{Arrival, Door, FlowSource};

/// How often the acceptor looks in while it does not watch.
pub(super) const KEPT_TICK: Duration = Duration::from_millis(5);
/// Strangers' connections between two looks; the others are turned away.
const MAX_STRANGERS: usize = 1024;

/// The endpoint's listening sockets.
#[derive(Default)]
pub(super) struct Listeners {
    pub(super) sockets: Vec<TcpListener>,
    /// A test's flows take the connections.
    kept: AtomicBool,
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
    pub(super) fn new(sockets: Vec<TcpListener>) -> Self {
        Self {
            sockets,
            ..Self::default()
        }
    }

    pub(super) fn is_kept(&self) -> bool {
        self.kept.load(Ordering::Acquire)
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
        let mut strangers = self
            .strangers
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if strangers.len() < MAX_STRANGERS {
            strangers.push(stream);
        }
    }
}

/// The source of a test's connections: the listening sockets themselves, if no other test has them,
/// else its `inbox` alone.
pub(super) fn source(
    listeners: &Arc<Listeners>,
    registry: &Registry,
    own: Own,
    inbox: Receiver<Flow>,
) -> FlowSource {
    let inbox = Mutex::new(inbox);
    let sockets = listeners.sockets.iter().map(TcpListener::try_clone);
    let Ok(sockets) = sockets.collect() else {
        return FlowSource::Accept(inbox);
    };
    if listeners.kept.swap(true, Ordering::AcqRel) {
        return FlowSource::Accept(inbox);
    }
    let keeper = Keeper {
        listeners: Arc::clone(listeners),
        registry: registry.clone(),
        own,
    };
    FlowSource::Door(Door {
        listeners: sockets,
        awaiting: Arc::clone(&listeners.awaiting),
        admit: Box::new(move |stream, from| keeper.admit(stream, from)),
        inbox: Some(inbox),
    })
}

/// Gives the door back when it is dropped.
struct Keeper {
    listeners: Arc<Listeners>,
    registry: Registry,
    own: Own,
}

impl Keeper {
    fn admit(&self, stream: TcpStream, from: IpAddr) -> Option<Arrival> {
        self.listeners.taken.fetch_add(1, Ordering::Relaxed);
        let mut bytes = [0; HELLO_BYTES];
        // The hello is there already, or it is not waited for: the listeners defer.
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
        if stream.read_exact(&mut hello).is_ok() && stream.set_nonblocking(false).is_ok() {
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
        self.listeners.kept.store(false, Ordering::Release);
    }
}
