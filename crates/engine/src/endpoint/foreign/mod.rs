//! Clients of other tools at the endpoint: what all of their protocols share.
//!
//! A [`ForeignClient`] counts among the endpoint's clients, does not measure on a host that another
//! client has changed, and leaves a record and a line in the log for each test.

pub(super) mod iperf3;
mod netperf;
mod ports;
mod stamp;
mod ttcp;

use std::cell::Cell;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use linerate_core::foreign::{ForeignRun, Role, Tool};
use linerate_core::plan::Test;
use linerate_core::record::{HostFacts, Status};
use linerate_core::session::message::HalfReport;
use linerate_core::units::Family;

use super::budget::{Claim, HeldPlace};
use super::clients::Presence;
use super::session::{Context, random_token};
use super::terms::owners_limit;
use super::{Running, ServeEvent};
use crate::clock::now;
use crate::measure::half::Half;
use crate::{host, words};

pub(super) use self::ports::Ports;

/// A count of a running test, and since when it has not changed.
struct Standstill {
    count: u64,
    since: Duration,
}

impl Standstill {
    fn new() -> Self {
        Self { count: 0, since: now() }
    }

    /// How long the count, which is `count` now, has not changed.
    fn lasts(&mut self, count: u64) -> Duration {
        if count != self.count {
            *self = Self { count, since: now() };
        }
        now().saturating_sub(self.since)
    }
}

/// One client of another tool; its place is free when it is dropped.
pub(super) struct ForeignClient {
    context: Arc<Context>,
    presence: Presence,
    tool: Tool,
    peer: SocketAddr,
    place: HeldPlace,
    _thread: Claim,
    /// The resources of its test.
    claim: Cell<Option<Claim>>,
    /// The log has a line for this client.
    is_logged: bool,
}

impl ForeignClient {
    /// Admits a client if there is room for one more; a refusal is logged. A client that has yet to
    /// prove something is a newcomer with this control connection until its presence
    /// [enters](Presence::enter).
    pub(super) fn admit(
        context: &Arc<Context>,
        tool: Tool,
        peer: SocketAddr,
        newcomer: Option<&TcpStream>,
    ) -> Option<Self> {
        let admitted = Self::new(context, tool, peer, newcomer);
        admitted.map_err(|reason| context.log_refusal(peer, reason)).ok()
    }

    fn new(
        context: &Arc<Context>,
        tool: Tool,
        peer: SocketAddr,
        newcomer: Option<&TcpStream>,
    ) -> Result<Self, String> {
        let presence = context.clients.admit(peer.ip(), Some(tool), newcomer)?;
        let thread = context.budget.take_thread(peer.ip(), false);
        Ok(Self {
            presence,
            tool,
            peer,
            place: context.occupancy.place(random_token()?),
            _thread: thread.map_err(|refusal| refusal.message)?,
            context: Arc::clone(context),
            claim: Cell::new(None),
            is_logged: false,
        })
    }

    /// Counts the client as served and logs it, at its first sensible request.
    pub(super) fn log_client(&mut self) {
        self.context.log_client(self.peer, &mut self.is_logged);
    }

    /// Takes the resources of a test, until [`Self::end_test`].
    ///
    /// # Errors
    /// They are not available, as the message says.
    pub(super) fn claim(&self, test: &Test) -> Result<(), String> {
        let claim = self
            .context
            .budget
            .take(self.peer.ip(), test, false)
            .map_err(|refusal| refusal.message)?;
        self.claim.set(Some(claim));
        Ok(())
    }

    /// Ends the test.
    pub(super) fn end_test(&self) {
        self.claim.set(None);
        self.place.end_test();
    }

    /// Stops this end's half of a test; the report has the owner's limit as a caveat.
    fn stop(&self, half: Half, facts: impl FnOnce() -> HostFacts) -> HalfReport {
        // At once: bytes that arrive while facts are gathered are no longer part of the test.
        half.request_stop();
        let mut claim = self.claim.take();
        if let Some(claim) = &mut claim {
            claim.carried(half.carried_bytes());
        }
        let mut report = half.stop(facts()).report;
        let limit = self.context.options.limits.rate_bps;
        report.caveats.extend(limit.map(owners_limit));
        self.end_test();
        report
    }

    /// Facts of this host, and of the interface by which the client is reached.
    fn host_facts(&self) -> HostFacts {
        host::facts(Some(self.peer.ip()))
    }

    /// A test that was served, named after the client's address.
    fn served(
        &self,
        test: Test,
        started_at: String,
        status: Status,
        here: HalfReport,
    ) -> ForeignRun {
        let address = self.peer.ip().to_canonical();
        ForeignRun {
            tool: self.tool,
            version: None,
            role: Role::Served,
            test,
            host: address.to_string(),
            peer: self.peer.to_string(),
            family: Family::from(address),
            started_at,
            status,
            here,
            there: None,
            exchange: None,
        }
    }

    /// Logs a test with its record.
    pub(super) fn log_test(&self, foreign_run: ForeignRun) {
        let version = foreign_run.version.as_deref().unwrap_or_default();
        let name = format!("{} {version}", self.tool);
        let summary =
            format!("{}: {}", name.trim(), words::tested(&foreign_run.test, &foreign_run.here));
        let record = Box::new(foreign_run.into_record());
        (self.context.log)(ServeEvent::Served { peer: self.peer, summary, record });
    }

    /// Logs the progress of a running test.
    pub(super) fn log_running(&self, running: Running) {
        let running = Box::new(running);
        let peer = self.peer;
        (self.context.log)(ServeEvent::Running { peer, running });
    }

    /// Logs the end of the client: with a goodbye, or for a reason.
    pub(super) fn log_end(&self, mut reason: Option<String>) {
        if !self.is_logged {
            // This is the client's only line, so that it names the tool.
            reason = reason.map(|reason| format!("{}: {reason}", self.tool));
        }
        self.context.log_end(self.peer, self.is_logged, reason);
    }
}
