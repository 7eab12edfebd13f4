//! What was carried in the last 24 hours.

use linerate_core::units::Nanos;

/// Bytes of each hour, and those that tests under way may carry yet.
#[derive(Debug, Clone)]
pub(super) struct Ledger {
    budget: u64,
    hours: [u64; HOURS],
    /// The last hour that has an entry.
    hour: u64,
    reserved: u64,
}

impl Ledger {
    pub(super) fn new(budget: u64) -> Self {
        Self {
            budget,
            hours: [0; HOURS],
            hour: 0,
            reserved: 0,
        }
    }

    /// Whether there is room for that much.
    pub(super) fn has_room(&self, now: Nanos, bytes: u64) -> bool {
        let current = now.0 / HOUR.0;
        // The hour that 24 hours ago was in counts whole.
        let counts = |at: &(usize, &u64)| self.at(at.0) + HOURS as u64 > current;
        let carried: u64 = self
            .hours
            .iter()
            .enumerate()
            .filter(counts)
            .map(|(_, b)| b)
            .sum();
        let after = carried.saturating_add(self.reserved).saturating_add(bytes);
        after <= self.budget
    }

    /// The hour of an entry: the last one at that place.
    fn at(&self, place: usize) -> u64 {
        let behind = (self.hour as usize + HOURS - place) % HOURS;
        self.hour.saturating_sub(behind as u64)
    }

    pub(super) fn reserve(&mut self, bytes: u64) {
        self.reserved = self.reserved.saturating_add(bytes);
    }

    /// A test has ended that had so much reserved, and carried so much.
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
        // What comes from before the last day is forgotten.
        if hour + HOURS as u64 > self.hour {
            let place = (hour % HOURS as u64) as usize;
            self.hours[place] = self.hours[place].saturating_add(bytes);
        }
    }
}

/// One more than a day has: any 24 hours are within them.
const HOURS: usize = 25;
/// What an entry is for.
pub(super) const HOUR: Nanos = Nanos(3_600_000_000_000);

#[cfg(test)]
mod tests {
    use super::*;

    fn hours(number: u64) -> Nanos {
        Nanos(number * HOUR.0)
    }

    #[test]
    fn bytes_count_for_a_day() {
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
        // A clock that was put back makes no room.
        assert!(!ledger.has_room(hours(1990), 100));
    }
}
