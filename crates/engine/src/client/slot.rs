//! The endpoint's slot, for clients that measure repeatedly: of those that ask for it, only one has
//! it at a time.

use std::time::{Duration, SystemTime};

use linerate_core::session::message::{Refusal, RefusalReason};
use linerate_core::session::operation::{self, MAX_LEASE_S, SLOT, SlotState};
use linerate_core::units::format_rfc3339;

use super::Client;
use crate::clock::{nanos, now, now_ns};
use crate::error::MeasureError;
use crate::stop::Stop;
use crate::target::Target;

/// Time between two requests for the slot.
const PAUSE: Duration = Duration::from_secs(2);

/// A lease of the endpoint's slot, until it is dropped. An endpoint that is too old leases none.
#[derive(Debug)]
pub struct Slot {
    _session: Option<Client>,
}

impl Slot {
    /// Takes the slot for a test that `lasts` this long at most. If another client has it, this
    /// waits up to `patience`, and `told` gets the time for which the slot may still be taken.
    ///
    /// # Errors
    /// Another client has it for longer ([`MeasureError::is_busy`]); as [`Client::connect`].
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
                    return Ok(Self { _session: Some(session) });
                }
                SlotState::Busy(left) => Duration::from_secs_f64(left),
            };
            if now() + left > until {
                return Err(session.refused(busy(left)));
            }
            told(left);
            // A client that waits must not take the place of another.
            drop(session);
            let again_ns = now_ns() + nanos(left.min(PAUSE));
            if !stop.sleep_until(again_ns, Duration::ZERO, |_| ()) {
                return Err(MeasureError::Interrupted);
            }
        }
    }
}

fn busy(left: Duration) -> Refusal {
    let moment = format_rfc3339(SystemTime::now() + left);
    let until = moment.get(11..19).unwrap_or(&moment);
    Refusal {
        reason: RefusalReason::Busy,
        message: format!(
            "the endpoint is busy until {until} UTC at the latest: another client has its slot"
        ),
    }
}
