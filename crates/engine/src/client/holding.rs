//! Asking the endpoint to hold connections, and to let them go.

use std::net::SocketAddr;
use std::time::Duration;

use linerate_core::capacity::{CapacityHalf, CapacityTest, HoldPorts};
use linerate_core::session::{ClientEvent, SessionError};
use linerate_core::wire::Token;

use super::{Client, TICK};
use crate::clock::now;
use crate::error::MeasureError;

impl Client {
    /// Asks the endpoint to hold as many as the test needs; answers where.
    pub(crate) fn ask_to_hold(&mut self, test: &CapacityTest) -> Result<HoldPorts, MeasureError> {
        self.session.hold(now(), test.request());
        match self.next_event()? {
            ClientEvent::Holding(ports) => Ok(ports),
            ClientEvent::HoldRefused(refusal) => Err(self.refused(refusal)),
            _ => Err(self.session_error(SessionError::OutOfTurn("instead of holding"))),
        }
    }

    /// What has come on the control connection; never waits.
    pub(crate) fn control_events(&mut self) -> Vec<ClientEvent> {
        self.pump(Duration::ZERO);
        std::iter::from_fn(|| self.session.poll_event()).collect()
    }

    /// Has the endpoint close all that it holds; answers its account. Once the user has asked to
    /// stop, not for long.
    pub(crate) fn release(&mut self, complete: bool) -> Result<CapacityHalf, MeasureError> {
        if self.session.is_closed() {
            return Err(self.session_error(SessionError::Closed));
        }
        self.session.release(now());
        let until = now() + LAST_ACCOUNT;
        loop {
            match self.session.poll_event() {
                Some(ClientEvent::Released(half)) => return Ok(*half),
                Some(ClientEvent::Failed(error)) => return Err(self.session_error(error)),
                Some(_) => {}
                None if !complete && now() >= until => return Err(MeasureError::Interrupted),
                None => self.pump(TICK),
            }
        }
    }

    /// The address that the control connection comes from, without its port.
    pub(crate) fn local_address(&self) -> Result<SocketAddr, MeasureError> {
        let mut local = self
            .socket
            .local_addr()
            .map_err(MeasureError::connect(self.peer))?;
        local.set_port(0);
        Ok(local)
    }

    pub(crate) fn session_token(&self) -> Token {
        self.token
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.is_requested()
    }
}

/// Longest wait for the account of an interrupted run.
const LAST_ACCOUNT: Duration = Duration::from_secs(10);
