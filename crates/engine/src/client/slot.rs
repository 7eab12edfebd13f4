//! The endpoint's slot, for who measures again and again: never two at once of those who ask for it.

use std::thread;
use std::time::{Duration, SystemTime};

use linerate_core::session::message::{Refusal, RefusalReason};
use linerate_core::session::operation::{self, MAX_LEASE_S, SLOT, SlotState};
use linerate_core::units::format_rfc3339;

use super::{Client, TICK};
use crate::clock::now;
use crate::error::MeasureError;
use crate::stop::Stop;
use crate::target::Target;

/// Between two questions whether the slot is free.
const PAUSE: Duration = Duration::from_secs(2);

/// The slot, until this is dropped; none of an endpoint that is too old to lease one.
#[derive(Debug)]
pub struct Slot {
    _session: Option<Client>,
}

impl Slot {
    /// Takes the slot for a test that `lasts` so long at most. Where another client has it, waits up to
    /// `patience`; `told` hears how long that may take.
    ///
    /// # Errors
    /// It is another one's for longer ([`MeasureError::is_busy`]); as [`Client::connect`].
    pub fn take(
        target: Target,
        lasts: Duration,
        patience: Duration,
        stop: &Stop,
        told: &mut dyn FnMut(Duration),
    ) -> Result<Self, MeasureError> {
        let seconds = lasts.as_secs_f64().clamp(1.0, MAX_LEASE_S);
        let until = now() + patience;
        loop {
            let mut session = Client::connect(target.clone(), stop.clone())?;
            if !session.welcome.has(SLOT) {
                return Ok(Self { _session: None });
            }
            let left = match session.ask(operation::Slot { seconds })? {
                SlotState::Leased(_) => {
                    return Ok(Self {
                        _session: Some(session),
                    });
                }
                SlotState::Busy(left) => Duration::from_secs_f64(left),
            };
            if now() + left > until {
                return Err(session.refused(busy(left)));
            }
            told(left);
            // Who waits takes no client's place.
            drop(session);
            let again = now() + left.min(PAUSE);
            while now() < again {
                if stop.is_requested() {
                    return Err(MeasureError::Interrupted);
                }
                thread::sleep(TICK);
            }
        }
    }
}

fn busy(left: Duration) -> Refusal {
    let until = format_rfc3339(SystemTime::now() + left);
    let until = until.get(11..19).unwrap_or(&until);
    Refusal {
        reason: RefusalReason::Busy,
        message: format!(
            "the endpoint is busy until {until} UTC at the latest: another client has its slot"
        ),
    }
}
