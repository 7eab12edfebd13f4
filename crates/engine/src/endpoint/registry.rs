//! Which session a data connection belongs to.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use linerate_core::wire::Token;

use crate::measure::flow::{Flow, FlowSocket};

/// Connections that may wait for a session to take them; `crr` opens many a second.
const INBOX: usize = 1024;

/// The sessions that are open, by token.
#[derive(Clone, Default)]
pub(crate) struct Registry(Arc<Mutex<HashMap<Token, Entry>>>);

struct Entry {
    /// Data comes from the control connection's own address or the one that the test names, or not
    /// at all.
    peer: IpAddr,
    /// The endpoint has let it in.
    is_admitted: bool,
    /// Of the test that is open.
    inbox: Option<Inbox>,
}

struct Inbox {
    flows: u32,
    /// Another address of the client's host. The session has named it, and the handshake of a TCP
    /// connection proves it; a test of datagrams names none.
    source: Option<IpAddr>,
    sender: SyncSender<Flow>,
    /// UDP flows that have their socket: a second one for the same peer would take its datagrams
    /// away.
    bound: HashSet<u32>,
}

/// A session's place in the registry; dropped, the session's token is worth nothing.
pub(crate) struct Registration {
    registry: Registry,
    token: Token,
}

impl Registry {
    fn entries(&self) -> MutexGuard<'_, HashMap<Token, Entry>> {
        // Entries are inserted and removed whole: a panic elsewhere cannot leave one half done.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn register(&self, token: Token, peer: IpAddr) -> Registration {
        let entry = Entry {
            peer,
            is_admitted: false,
            inbox: None,
        };
        self.entries().insert(token, entry);
        Registration {
            registry: self.clone(),
            token,
        }
    }

    /// Whether a client is there whose control connection comes from that address.
    pub(crate) fn has_peer(&self, peer: IpAddr) -> bool {
        let is_it = |entry: &Entry| entry.is_admitted && entry.peer.to_canonical() == peer;
        self.entries().values().any(is_it)
    }

    /// Whether a flow may be bound: the token is known, from that address, and the test still lacks
    /// the flow.
    pub(crate) fn expects(&self, token: Token, flow: u32, from: IpAddr) -> bool {
        self.entries()
            .get(&token)
            .is_some_and(|entry| entry.expects(flow, from))
    }

    /// Hands a flow to its session; false if that does not expect it or has too many waiting.
    pub(crate) fn deliver(&self, token: Token, from: IpAddr, flow: Flow) -> bool {
        let mut entries = self.entries();
        let Some(entry) = entries.get_mut(&token) else {
            return false;
        };
        if !entry.expects(flow.id, from) {
            return false;
        }
        let Some(inbox) = &mut entry.inbox else {
            return false;
        };
        if let FlowSocket::Udp(_) = flow.socket {
            inbox.bound.insert(flow.id);
        }
        inbox.sender.try_send(flow).is_ok()
    }
}

impl Entry {
    fn expects(&self, flow: u32, from: IpAddr) -> bool {
        self.inbox.as_ref().is_some_and(|inbox| {
            inbox.source.unwrap_or(self.peer) == from
                && flow < inbox.flows
                && !inbox.bound.contains(&flow)
        })
    }
}

impl Registration {
    /// Takes flows 0 to `flows` − 1 from now on, from `source` if the test names one; what the last
    /// test left waiting is dropped.
    pub(crate) fn open(&self, flows: u32, source: Option<IpAddr>) -> Receiver<Flow> {
        let (sender, receiver) = sync_channel(INBOX);
        if let Some(entry) = self.registry.entries().get_mut(&self.token) {
            entry.inbox = Some(Inbox {
                flows,
                source,
                sender,
                bound: HashSet::new(),
            });
        }
        receiver
    }

    /// The endpoint lets it in.
    pub(crate) fn admit(&self) {
        if let Some(entry) = self.registry.entries().get_mut(&self.token) {
            entry.is_admitted = true;
        }
    }

    /// Takes no more.
    pub(crate) fn close(&self) {
        if let Some(entry) = self.registry.entries().get_mut(&self.token) {
            entry.inbox = None;
        }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.registry.entries().remove(&self.token);
    }
}
