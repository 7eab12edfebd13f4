//! Clients of other tools at the endpoint: what all of their protocols share.
//!
//! A [`Guest`] is such a client for as long as it is there. It counts among the endpoint's clients,
//! keeps off a host that another client has changed, and leaves one line in the log and a record
//! for each test.

mod accept;
pub(super) mod iperf3;
mod netperf;
mod ports;
mod stamp;
mod ttcp;

use std::cell::Cell;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use linerate_core::foreign::{ForeignRun, Tool};
use linerate_core::plan::Test;
use linerate_core::wire::Token;

use super::budget::Claim;
use super::clients::Presence;
use super::occupancy::Place;
use super::session::Context;
use super::{Running, ServeEvent};
use crate::words;

pub(super) use self::ports::Ports;

/// One client of another tool; dropped, its place is free.
pub(super) struct Guest {
    context: Arc<Context>,
    presence: Presence,
    tool: Tool,
    peer: SocketAddr,
    place: Place,
    _thread: Claim,
    /// What its test takes of the host.
    claim: Cell<Option<Claim>>,
    /// The log knows of it.
    told: bool,
}

impl Guest {
    /// Lets a client in, if there is room for one more. One that has yet to prove something is a
    /// newcomer with this control connection until it [enters](Self::enter).
    ///
    /// # Errors
    /// Why not, in words; the log has been told.
    pub(super) fn admit(
        context: &Arc<Context>,
        tool: Tool,
        peer: SocketAddr,
        newcomer: Option<&TcpStream>,
    ) -> Result<Self, String> {
        let refuse = |reason: String| {
            (context.log)(ServeEvent::Refused {
                peer,
                reason: reason.clone(),
            });
            Err(reason)
        };
        let presence = match context.clients.admit(peer.ip(), Some(tool), newcomer) {
            Ok(presence) => presence,
            Err(reason) => return refuse(reason),
        };
        let thread = match context.budget.take_thread(peer.ip()) {
            Ok(thread) => thread,
            Err(refusal) => return refuse(refusal.message),
        };
        let mut bytes = [0; 16];
        if let Err(error) = getrandom::fill(&mut bytes) {
            return refuse(format!("no random numbers: {error}"));
        }
        Ok(Self {
            context: Arc::clone(context),
            presence,
            tool,
            peer,
            place: context.occupancy.place(Token(bytes)),
            _thread: thread,
            claim: Cell::new(None),
            told: false,
        })
    }

    /// What all sessions of the endpoint share.
    pub(super) fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// Its address.
    pub(super) fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// It has proved what it must.
    ///
    /// # Errors
    /// There is no room, in words.
    pub(super) fn enter(&self) -> Result<(), String> {
        self.presence.enter()
    }

    /// It has asked for something that makes sense: from now on it counts as served.
    pub(super) fn tell(&mut self) {
        self.context.tell(self.peer, &mut self.told);
    }

    /// Takes what a test needs of this host, until [`Self::end_test`].
    ///
    /// # Errors
    /// It is not there, in words.
    pub(super) fn claim(&self, test: &Test) -> Result<(), String> {
        let budget = &self.context.budget;
        let claim = budget.take(self.peer.ip(), test, false);
        self.claim
            .set(Some(claim.map_err(|refusal| refusal.message)?));
        Ok(())
    }

    /// From now on this client measures.
    ///
    /// # Errors
    /// Another client has changed the host, in words.
    pub(super) fn begin_test(&self) -> Result<(), String> {
        self.place.begin_test()
    }

    /// It measures no more.
    pub(super) fn end_test(&self) {
        self.claim.set(None);
        self.place.end_test();
    }

    /// Leaves the record of a test, and its line in the log.
    pub(super) fn tested(&self, foreign_run: ForeignRun) {
        let version = foreign_run.version.as_deref().unwrap_or_default();
        let name = format!("{} {version}", self.tool);
        let summary = format!(
            "{}: {}",
            name.trim(),
            words::tested(&foreign_run.test, &foreign_run.here)
        );
        let record = Box::new(foreign_run.into_record());
        (self.context.log)(ServeEvent::Served {
            peer: self.peer,
            summary,
            record,
        });
    }

    /// Tells the log of a running test.
    pub(super) fn tell_running(&self, running: Running) {
        let running = Box::new(running);
        let peer = self.peer;
        (self.context.log)(ServeEvent::Running { peer, running });
    }

    /// It is gone: with a goodbye, or for a reason.
    pub(super) fn left(&self, reason: Option<String>) {
        // Whoever was refused has no line yet that names the tool.
        let named = |reason| format!("{}: {reason}", self.tool);
        let reason = if self.told { reason } else { reason.map(named) };
        self.context.tell_end(self.peer, self.told, reason);
    }
}
