//! What a run of `capacity` needs of its session.

use std::net::SocketAddr;
use std::time::Duration;

use linerate_core::session::ClientEvent;
use linerate_core::wire::Token;

use super::Client;
use crate::error::MeasureError;

impl Client {
    /// What has come on the control connection; never waits.
    pub(crate) fn control_events(&mut self) -> Vec<ClientEvent> {
        self.pump(Duration::ZERO);
        std::iter::from_fn(|| self.session.poll_event()).collect()
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
