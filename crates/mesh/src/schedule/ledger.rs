//! The bytes that were carried in the last 24 hours.

use linerate_core::units::Nanos;

/// A budget of bytes in any 24 hours, and what is used of it.
#[derive(Debug, Clone, Default)]
pub(super) struct Ledger {
    budget: u64,
    /// Bytes of each hour.
    hours: [u64; HOURS],
    /// The last hour that has an entry.
    hour: u64,
    /// The most that tests under way may still carry.
    reserved: u64,
}

impl Ledger {
    pub(super) fn new(budget: u64) -> Self {
        Self { budget, ..Self::default() }
    }

    /// Whether the budget has room for that many bytes.
    pub(super) fn has_room(&self, now: Nanos, bytes: u64) -> bool {
        let current = now.0 / HOUR.0;
        // The hour that began more than 24 hours ago and ended less counts whole.
        let hours = self.hours.iter().enumerate();
        let counted = hours.filter(|(place, _)| self.hour_at(*place) + HOURS as u64 > current);
        let carried: u64 = counted.map(|(_, bytes)| bytes).sum();
        let after = carried.saturating_add(self.reserved).saturating_add(bytes);
        after <= self.budget
    }

    /// The hour of the entry at a place: the last one that has this place.
    fn hour_at(&self, place: usize) -> u64 {
        let behind = (self.hour as usize + HOURS - place) % HOURS;
        self.hour.saturating_sub(behind as u64)
    }

    pub(super) fn reserve(&mut self, bytes: u64) {
        self.reserved = self.reserved.saturating_add(bytes);
    }

    /// Enters the bytes that a test has carried, in place of those that were reserved for it.
    pub(super) fn carried(&mut self, at: Nanos, reserved: u64, bytes: u64) {
        self.reserved = self.reserved.saturating_sub(reserved);
        let hour = at.0 / HOUR.0;
        if hour > self.hour {
            let gone = (hour - self.hour).min(HOURS as u64);
            for later in 1..=gone {
                self.hours[((hour - gone + later) % HOURS as u64) as usize] = 0;
            }
            self.hour = hour;
        }
        // Bytes of more than a day ago no longer count.
        if hour + HOURS as u64 > self.hour {
            let place = (hour % HOURS as u64) as usize;
            self.hours[place] = self.hours[place].saturating_add(bytes);
        }
    }
}

/// Hours that are kept: any 24 hours lie within 25 of the clock.
const HOURS: usize = 25;
/// Length of an entry.
pub(super) const HOUR: Nanos = Nanos(3_600_000_000_000);

#[cfg(test)]
mod tests {
    use super::*;

    fn hours(number: u64) -> Nanos {
        Nanos(number * HOUR.0)
    }

    #[test]
    fn bytes_count_for_24_hours() {
        let mut ledger = Ledger::new(100);
        assert!(ledger.has_room(hours(1000), 100));
        ledger.reserve(60);
        assert!(!ledger.has_room(hours(1000), 41));
        ledger.carried(hours(1000), 60, 50);
        assert!(ledger.has_room(hours(1000), 50) && !ledger.has_room(hours(1024), 51));
        assert!(ledger.has_room(hours(1025), 100));
        ledger.carried(hours(1010), 0, 50);
        assert!(!ledger.has_room(hours(1024), 1) && ledger.has_room(hours(1025), 50));
        ledger.carried(hours(2000), 0, 1);
        assert!(ledger.has_room(hours(2000), 99) && !ledger.has_room(hours(2000), 100));
        // A clock that is set back makes no room.
        assert!(!ledger.has_room(hours(1990), 100));
    }
}
