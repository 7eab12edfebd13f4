//! Changes of the endpoint's host, which last as long as the session.

use linerate_core::session::message::{Refusal, RefusalReason};
use linerate_core::session::operation::{TREATMENTS, Treat, Untreat};
use linerate_core::treatment::HostChange;

use super::Client;
use crate::error::MeasureError;

impl Client {
    /// Changes the endpoint's host, and first undoes what this session has changed there before.
    /// The result is what the endpoint read back, one line for each change. [`Client::untreat`]
    /// undoes the changes, and the end of the session does at the latest. Without changes this is
    /// [`Client::untreat`].
    ///
    /// # Errors
    /// The endpoint allows no treatments, refuses one, or its host cannot do one:
    /// [`MeasureError::Refused`], and nothing is in force. Another client measures or treats there:
    /// the same error, and the earlier changes stay in force. The session failed or was
    /// interrupted: the endpoint undoes everything.
    pub fn treat(&mut self, changes: &[HostChange]) -> Result<Vec<String>, MeasureError> {
        if changes.is_empty() {
            return self.untreat().map(|()| Vec::new());
        }
        if !self.welcome.has(TREATMENTS) {
            return Err(self.refused(Refusal {
                reason: RefusalReason::Treatment,
                message: "it was not started with --allow-treatments and --key-file".into(),
            }));
        }
        // From here on the host may be changed, whatever the answer is.
        self.treated = true;
        self.ask(Treat {
            changes: changes.to_vec(),
        })
    }

    /// Makes the endpoint undo what this session has changed on its host, if it has changed
    /// anything.
    ///
    /// # Errors
    /// The endpoint could not undo it, or the session failed or was interrupted.
    pub fn untreat(&mut self) -> Result<(), MeasureError> {
        if !self.treated {
            return Ok(());
        }
        self.ask(Untreat)?;
        self.treated = false;
        Ok(())
    }
}
