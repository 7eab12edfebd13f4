//! What a client has changed on this host, for as long as its session lasts.

use std::net::IpAddr;

use linerate_core::session::message::RefusalReason;
use linerate_core::treatment::HostChange;
use thiserror::Error;

use super::occupancy::Place;
use crate::treatment::{Applied, TreatError};
use crate::words;

/// The changes of one session; dropped, they are undone. The thread that treats must be in the
/// network namespace that is served, as every thread of the endpoint is.
pub(super) struct Lease {
    // First: the host is as it was before anybody else may measure on it.
    applied: Option<Applied>,
    place: Place,
}

/// Why nothing is in force now.
#[derive(Debug, Error)]
pub(super) enum LeaseError {
    /// Somebody else uses the host.
    #[error("{0}")]
    Busy(String),
    /// Nothing was changed.
    #[error("the endpoint's host does not take the treatment: {}", words::chain(.0))]
    Apply(TreatError),
    /// The host is not as it was, and nobody can measure what that means.
    #[error("the endpoint cannot undo what it has changed: {}", words::chain(.0))]
    Undo(TreatError),
}

impl LeaseError {
    /// What to answer where the session goes on; `None` where it cannot.
    pub(super) fn reason(&self) -> Option<RefusalReason> {
        match self {
            Self::Busy(_) => Some(RefusalReason::Busy),
            Self::Apply(TreatError::Busy { .. }) => Some(RefusalReason::Busy),
            Self::Apply(_) => Some(RefusalReason::Treatment),
            Self::Undo(_) => None,
        }
    }
}

impl Lease {
    pub(super) fn new(place: Place) -> Self {
        Self {
            applied: None,
            place,
        }
    }

    /// The session's place among the users of the host.
    pub(super) fn place(&self) -> &Place {
        &self.place
    }

    /// Changes the host in place of what was changed before, and says what was read back. Whatever
    /// fails, nothing of either is in force, unless it cannot be undone; but who may not treat
    /// keeps what there is.
    pub(super) fn treat(
        &mut self,
        changes: &[HostChange],
        peer: IpAddr,
    ) -> Result<Vec<String>, LeaseError> {
        self.place.begin_treatment().map_err(LeaseError::Busy)?;
        self.undo()?;
        // An address that came through a socket of both families is looked up in its own.
        match Applied::apply(changes, peer.to_canonical()) {
            Ok(applied) => Ok(self.applied.insert(applied).read_back()),
            Err(error @ TreatError::Undo { .. }) => Err(self.spoilt(error)),
            Err(error) => {
                self.place.end_treatment();
                Err(LeaseError::Apply(error))
            }
        }
    }

    /// Undoes what there is, and says whether there was anything.
    pub(super) fn untreat(&mut self) -> Result<bool, LeaseError> {
        let undone = self.undo();
        self.place.end_treatment();
        undone
    }

    fn undo(&mut self) -> Result<bool, LeaseError> {
        match self.applied.take() {
            Some(applied) => match applied.undo() {
                Ok(()) => Ok(true),
                Err(error) => Err(self.spoilt(error)),
            },
            None => Ok(false),
        }
    }

    fn spoilt(&self, error: TreatError) -> LeaseError {
        self.place.spoil();
        LeaseError::Undo(error)
    }
}
