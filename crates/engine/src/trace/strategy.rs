//! The common interface of the state machines that send probes.

use linerate_core::trace::{Answer, PathFinder, PathMtu, Probe, Tracer};
use linerate_core::units::Nanos;

/// What says when to send what, and learns from the answers.
pub(super) trait Strategy {
    fn session(&self) -> u16;
    fn poll_transmit(&mut self, now: Nanos) -> Option<Probe>;
    fn handle_answer(&mut self, received: Nanos, answer: Answer);
    fn handle_timeout(&mut self, now: Nanos);
    fn poll_timeout(&self) -> Option<Nanos>;
}

macro_rules! strategy {
    ($machine:ty) => {
        impl Strategy for $machine {
            fn session(&self) -> u16 {
                <$machine>::session(self)
            }

            fn poll_transmit(&mut self, now: Nanos) -> Option<Probe> {
                <$machine>::poll_transmit(self, now)
            }

            fn handle_answer(&mut self, received: Nanos, answer: Answer) {
                <$machine>::handle_answer(self, received, answer);
            }

            fn handle_timeout(&mut self, now: Nanos) {
                <$machine>::handle_timeout(self, now);
            }

            fn poll_timeout(&self) -> Option<Nanos> {
                <$machine>::poll_timeout(self)
            }
        }
    };
}

strategy!(Tracer);
strategy!(PathFinder);
strategy!(PathMtu);
