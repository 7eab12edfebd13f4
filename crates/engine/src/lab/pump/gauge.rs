//! Figures of a pump: what its links did, and how late it was.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use linerate_core::link::Counters;
use linerate_core::stats::LatencyHistogram;

/// The figures of one direction, written by the pump now and then and read by anybody.
#[derive(Debug, Clone, Default)]
pub(crate) struct Gauge(Arc<Mutex<GaugeReading>>);

/// One direction so far.
#[derive(Debug, Clone, Default)]
pub(crate) struct GaugeReading {
    /// What the link did.
    pub(crate) counters: Counters,
    /// Time from when a packet was due until it was handed on.
    pub(crate) lateness: LatencyHistogram,
    /// Packets that the emulator lost by its own fault, because its memory or a socket was full.
    pub(crate) overflowed: u64,
}

impl Gauge {
    /// The figures so far, at most a tenth of a second old.
    pub(crate) fn read(&self) -> GaugeReading {
        self.lock().clone()
    }

    /// Writes them.
    pub(super) fn write(&self, counters: Counters, lateness: &mut LatencyHistogram, lost: u64) {
        let mut reading = self.lock();
        reading.counters = counters;
        reading.lateness.merge(lateness);
        reading.overflowed = lost;
        *lateness = LatencyHistogram::new();
    }

    fn lock(&self) -> MutexGuard<'_, GaugeReading> {
        // The reading is always whole, even if a thread that held the lock has panicked.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
