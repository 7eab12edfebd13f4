//! Which session a data connection belongs to, linerate's or iperf3's.

use std::collections::{HashMap, HashSet, hash_map};
use std::net::IpAddr;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard};

use linerate_core::foreign::iperf3::Cookie;
use linerate_core::wire::Token;

use crate::measure::flow::{Flow, FlowSocket};
use crate::shares::lock;

/// Most connections that wait for their session to take them; `crr` opens many a second.
const INBOX: usize = 1024;

/// What the data connections of a session begin with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum SessionName {
    Token(Token),
    Cookie(Cookie),
}

/// The sessions that are open, by name.
#[derive(Clone, Default)]
pub(crate) struct Registry(Arc<Mutex<HashMap<SessionName, RegisteredSession>>>);

struct RegisteredSession {
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
    /// Number of the next flow whose client does not number it.
    next: u32,
}

/// A session's entry in the registry. When it is dropped, the session's name is no longer valid.
pub(crate) struct Registration {
    registry: Registry,
    name: SessionName,
}

impl Registry {
    fn entries(&self) -> MutexGuard<'_, HashMap<SessionName, RegisteredSession>> {
        lock(&self.0)
    }

    /// An entry for a session; `None` if there is one of that name.
    pub(crate) fn register(&self, name: SessionName, peer: IpAddr) -> Option<Registration> {
        let mut entries = self.entries();
        let hash_map::Entry::Vacant(place) = entries.entry(name) else {
            return None;
        };
        place.insert(RegisteredSession {
            peer: peer.to_canonical(),
            is_admitted: false,
            inbox: None,
        });
        Some(Registration { registry: self.clone(), name })
    }

    /// Whether there is a session of that name.
    pub(crate) fn has(&self, name: SessionName) -> bool {
        self.entries().contains_key(&name)
    }

    /// Whether a client with a control connection from this address is admitted.
    pub(crate) fn has_peer(&self, peer: IpAddr) -> bool {
        let is_it = |entry: &RegisteredSession| entry.is_admitted && entry.peer == peer;
        self.entries().values().any(is_it)
    }

    /// Whether a flow may be bound: the name is valid for this address, and the test still lacks
    /// the flow, or any flow if it has no number.
    pub(crate) fn expects(&self, name: SessionName, flow: Option<u32>, from: IpAddr) -> bool {
        let mut entries = self.entries();
        let entry = entries.get_mut(&name);
        entry.is_some_and(|entry| entry.inbox_for(flow, from).is_some())
    }

    /// Hands a flow to its session, unless the session does not expect it or too many are waiting.
    /// One without a number gets the next.
    pub(crate) fn deliver(
        &self,
        name: SessionName,
        from: IpAddr,
        flow: Option<u32>,
        socket: FlowSocket,
    ) {
        let mut entries = self.entries();
        let entry = entries.get_mut(&name);
        if let Some((inbox, id)) = entry.and_then(|entry| entry.inbox_for(flow, from)) {
            inbox.next = id + 1;
            if let FlowSocket::Udp(_) = socket {
                inbox.bound.insert(id);
            }
            // A flow for which there is no room is closed.
            let _ = inbox.sender.try_send(Flow { id, socket });
        }
    }
}

impl RegisteredSession {
    /// The inbox of the test that expects this flow from this address, and the flow's number.
    fn inbox_for(&mut self, flow: Option<u32>, from: IpAddr) -> Option<(&mut Inbox, u32)> {
        let inbox = self.inbox.as_mut()?;
        let id = flow.unwrap_or(inbox.next);
        let is_expected = inbox.source.unwrap_or(self.peer) == from.to_canonical()
            && id < inbox.flows
            && !inbox.bound.contains(&id);
        is_expected.then_some((inbox, id))
    }
}

impl Registration {
    fn change(&self, change: impl FnOnce(&mut RegisteredSession)) {
        if let Some(entry) = self.registry.entries().get_mut(&self.name) {
            change(entry);
        }
    }

    /// Takes flows 0 to `flows` − 1 from now on, from `source` if the test names one. Flows of the
    /// last test that still wait are dropped.
    pub(crate) fn open(&self, flows: u32, source: Option<IpAddr>) -> Receiver<Flow> {
        let (sender, receiver) = sync_channel(INBOX);
        let inbox = Inbox { flows, source, sender, bound: HashSet::new(), next: 0 };
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
        self.registry.entries().remove(&self.name);
    }
}
