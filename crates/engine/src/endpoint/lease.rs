//! The changes that a client has made to this host, for as long as its session lasts.

use std::net::IpAddr;

use linerate_core::session::message::RefusalReason;
use linerate_core::treatment::HostChange;
use thiserror::Error;

use super::occupancy::HeldPlace;
use crate::treatment::{Applied, TreatError};
use crate::words;

/// The changes of one session; they are undone when it is dropped. The thread that makes them must
/// be in the network namespace that is served, as every thread of the endpoint is.
pub(super) struct Lease {
    // Dropped first: the changes are undone before anybody else may measure.
    applied: Option<Applied>,
    place: HeldPlace,
}

/// Why a treatment was not applied or not undone.
#[derive(Debug, Error)]
pub(super) enum LeaseError {
    /// Another session uses the host.
    #[error("{0}")]
    Busy(String),
    /// The host refused, and nothing was changed.
    #[error("the endpoint's host does not take the treatment: {}", words::chain(.0))]
    Apply(TreatError),
    /// The host stays changed, so that nobody may measure on it.
    #[error("the endpoint cannot undo what it has changed: {}", words::chain(.0))]
    Undo(TreatError),
}

impl LeaseError {
    /// The reason for the client if the session goes on; `None` if it cannot.
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
    pub(super) fn new(place: HeldPlace) -> Self {
        Self { applied: None, place }
    }

    /// The session's use of the host.
    pub(super) fn place(&self) -> &HeldPlace {
        &self.place
    }

    /// Undoes the earlier changes and makes these; the result is what was read back. If the host is
    /// busy, the earlier changes stay. After any other error none are in force, except those that
    /// cannot be undone.
    pub(super) fn treat(
        &mut self,
        changes: &[HostChange],
        peer: IpAddr,
    ) -> Result<Vec<String>, LeaseError> {
        self.place.begin_treatment().map_err(LeaseError::Busy)?;
        self.undo()?;
        // The address may be IPv4 in IPv6 form; the kernel needs it in its own family.
        match Applied::apply(changes, peer.to_canonical()) {
            Ok(applied) => Ok(self.applied.insert(applied).read_back()),
            Err(error @ TreatError::Undo { .. }) => Err(self.spoilt(error)),
            Err(error) => {
                self.place.end_treatment();
                Err(LeaseError::Apply(error))
            }
        }
    }

    /// Undoes the changes; false if there were none.
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
