//! Changes of the endpoint's host, for as long as the session lasts.

use linerate_core::session::message::{Refusal, RefusalReason, TREATMENTS};
use linerate_core::session::{ClientEvent, SessionError};
use linerate_core::treatment::HostChange;

use super::Client;
use crate::clock::now;
use crate::error::MeasureError;

impl Client {
    /// Changes the endpoint's host, in place of what this session has changed there before, and
    /// says what the endpoint read back, one line for each change. It is undone by
    /// [`Client::untreat`], and at the latest when the session ends. Without changes this is
    /// [`Client::untreat`].
    ///
    /// # Errors
    /// The endpoint allows no treatments, refuses one, or its host cannot do one:
    /// [`MeasureError::Refused`], and nothing is in force. Another client measures or treats there:
    /// the same, and what was in force still is. The session failed or was interrupted: the
    /// endpoint undoes everything.
    pub fn treat(&mut self, changes: &[HostChange]) -> Result<Vec<String>, MeasureError> {
        if changes.is_empty() {
            return self.untreat().map(|()| Vec::new());
        }
        let operations = &self.welcome.operations;
        if !operations.iter().any(|name| name == TREATMENTS) {
            return Err(self.refused(Refusal {
                reason: RefusalReason::Treatment,
                message: "it was not started with --allow-treatments and --key-file".into(),
            }));
        }
        self.session.treat(now(), changes);
        // From here on it may be, whatever comes back.
        self.treated = true;
        match self.next_event()? {
            ClientEvent::Treated(read_back) => Ok(read_back),
            ClientEvent::TreatmentRefused(refusal) => Err(self.refused(refusal)),
            _ => Err(self.session_error(SessionError::OutOfTurn("instead of treating"))),
        }
    }

    /// Has the endpoint undo what this session has changed on its host; does nothing if it has
    /// changed nothing.
    ///
    /// # Errors
    /// The endpoint could not undo it, or the session failed or was interrupted.
    pub fn untreat(&mut self) -> Result<(), MeasureError> {
        if !self.treated {
            return Ok(());
        }
        self.session.untreat(now());
        match self.next_event()? {
            ClientEvent::Untreated => {
                self.treated = false;
                Ok(())
            }
            _ => Err(self.session_error(SessionError::OutOfTurn("instead of undoing"))),
        }
    }
}
