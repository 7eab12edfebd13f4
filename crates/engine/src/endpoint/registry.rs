//! Which session a data connection belongs to.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard};

use linerate_core::wire::Token;

use crate::measure::flow::{Flow, FlowSocket};
use crate::shares::lock;

/// Most connections that wait for their session to take them; `crr` opens many a second.
const INBOX: usize = 1024;

/// The sessions that are open, by token.
#[derive(Clone, Default)]
pub(crate) struct Registry(Arc<Mutex<HashMap<Token, Entry>>>);

struct Entry {
    /// The address of the control connection. Data connections must come from it, or from the one
    /// that the test names.
    peer: IpAddr,
    /// The endpoint has admitted the client.
    is_admitted: bool,
    /// Set while a test takes flows.
    inbox: Option<Inbox>,
}

struct Inbox {
    flows: u32,
    /// Another address of the client's host, from which the data connections come. The handshake
    /// of TCP proves it; a test of datagrams has none.
    source: Option<IpAddr>,
    sender: SyncSender<Flow>,
    /// UDP flows that have their socket. A second socket for the same peer would take the datagrams
    /// from the first.
    bound: HashSet<u32>,
}

/// A session's entry in the registry. When it is dropped, the session's token is no longer valid.
pub(crate) struct Registration {
    registry: Registry,
    token: Token,
}

impl Registry {
    fn entries(&self) -> MutexGuard<'_, HashMap<Token, Entry>> {
        lock(&self.0)
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

    /// Whether a client with a control connection from this address is admitted.
    pub(crate) fn has_peer(&self, peer: IpAddr) -> bool {
        let is_it = |entry: &Entry| entry.is_admitted && entry.peer == peer;
        self.entries().values().any(is_it)
    }

    /// Whether a flow may be bound: the token is valid for this address, and the test still lacks
    /// the flow.
    pub(crate) fn expects(&self, token: Token, flow: u32, from: IpAddr) -> bool {
        let mut entries = self.entries();
        let entry = entries.get_mut(&token);
        entry.is_some_and(|entry| entry.inbox_for(flow, from).is_some())
    }

    /// Hands a flow to its session, unless the session does not expect it or too many are waiting.
    pub(crate) fn deliver(&self, token: Token, from: IpAddr, flow: Flow) {
        let mut entries = self.entries();
        let entry = entries.get_mut(&token);
        if let Some(inbox) = entry.and_then(|entry| entry.inbox_for(flow.id, from)) {
            if let FlowSocket::Udp(_) = flow.socket {
                inbox.bound.insert(flow.id);
            }
            // A flow for which there is no room is closed.
            let _ = inbox.sender.try_send(flow);
        }
    }
}

impl Entry {
    /// The inbox of the test that expects this flow from this address.
    fn inbox_for(&mut self, flow: u32, from: IpAddr) -> Option<&mut Inbox> {
        self.inbox.as_mut().filter(|inbox| {
            inbox.source.unwrap_or(self.peer) == from.to_canonical()
                && flow < inbox.flows
                && !inbox.bound.contains(&flow)
        })
    }
}

impl Registration {
    fn change(&self, change: impl FnOnce(&mut Entry)) {
        if let Some(entry) = self.registry.entries().get_mut(&self.token) {
            change(entry);
        }
    }

    /// Takes flows 0 to `flows` − 1 from now on, from `source` if the test names one. Flows of the
    /// last test that still wait are dropped.
    pub(crate) fn open(&self, flows: u32, source: Option<IpAddr>) -> Receiver<Flow> {
        let (sender, receiver) = sync_channel(INBOX);
        let inbox = Inbox {
            flows,
            source,
            sender,
            bound: HashSet::new(),
        };
        self.change(|entry| entry.inbox = Some(inbox));
        receiver
    }

    /// The endpoint has admitted the client.
    pub(crate) fn admit(&self) {
        self.change(|entry| entry.is_admitted = true);
    }

    /// Takes no more flows.
    pub(crate) fn close(&self) {
        self.change(|entry| entry.inbox = None);
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.registry.entries().remove(&self.token);
    }
}
