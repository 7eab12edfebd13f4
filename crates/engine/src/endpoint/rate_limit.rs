//! Limits on how often something may happen: within some time by address (wrong passwords, lines of
//! the log, requests), within a second in all.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::ServeEvent;
use super::clients::one_address;
use crate::clock::now_ns;
use crate::shares::lock;

const MINUTE: Duration = Duration::from_secs(60);
/// Most addresses that are counted separately; all further ones are counted together.
const ADDRESSES: usize = 1024;
const OTHERS: IpAddr = IpAddr::V6(Ipv6Addr::UNSPECIFIED);

/// Counts by address. The time in which an address's events are counted begins with the first.
#[derive(Debug)]
pub(super) struct GuessCounts {
    lasts: Duration,
    by_address: HashMap<IpAddr, (Instant, u64)>,
}

/// Counts within a minute.
impl Default for GuessCounts {
    fn default() -> Self {
        Self::within(MINUTE)
    }
}

impl GuessCounts {
    /// Counts within this time.
    pub(super) fn within(lasts: Duration) -> Self {
        Self { lasts, by_address: HashMap::new() }
    }

    /// Under which address this one is counted.
    fn key(&self, peer: IpAddr) -> IpAddr {
        let address = one_address(peer);
        let is_full = self.by_address.len() >= ADDRESSES;
        if is_full && !self.by_address.contains_key(&address) {
            return OTHERS;
        }
        address
    }

    /// Counts one more; the result is the count within the time.
    pub(super) fn note(&mut self, peer: IpAddr, now: Instant) -> u64 {
        let key = self.key(peer);
        let (_, count) = self.by_address.entry(key).or_insert((now, 0));
        *count += 1;
        *count
    }

    /// The count of an address within its time.
    fn count(&self, peer: IpAddr) -> u64 {
        let entry = self.by_address.get(&self.key(peer));
        entry.map_or(0, |(_, count)| *count)
    }

    /// Whether no address has a count.
    pub(super) fn is_empty(&self) -> bool {
        self.by_address.is_empty()
    }

    /// Removes the addresses whose time is over; the result has their counts.
    pub(super) fn take_over(&mut self, now: Instant) -> Vec<(IpAddr, u64)> {
        let lasts = self.lasts;
        let is_over = |(since, _): &(Instant, u64)| now.duration_since(*since) >= lasts;
        let over = self.by_address.extract_if(|_, entry| is_over(entry));
        over.map(|(address, (_, count))| (address, count)).collect()
    }
}

/// Most wrong passwords that an address may send within a minute.
const GUESSES: u64 = 5;

/// Wrong passwords by address.
#[derive(Debug, Default)]
pub(super) struct Guesses(Mutex<GuessCounts>);

impl Guesses {
    /// Whether so many have come from an address that for a minute none is looked at.
    pub(super) fn are_used_up(&self, peer: IpAddr) -> bool {
        let mut counts = lock(&self.0);
        counts.take_over(Instant::now());
        counts.count(peer) >= GUESSES
    }

    pub(super) fn note_wrong(&self, peer: IpAddr) {
        lock(&self.0).note(peer, Instant::now());
    }
}

/// Counts events within a second.
#[derive(Debug, Default)]
pub(super) struct PerSecond {
    began_ns: u64,
    count: u32,
}

impl PerSecond {
    /// Counts one more event; false if there are more than `max` within the second.
    pub(super) fn admits(&mut self, max: u32) -> bool {
        let now = now_ns();
        if now.saturating_sub(self.began_ns) >= 1_000_000_000 {
            (self.began_ns, self.count) = (now, 0);
        }
        self.count = self.count.saturating_add(1);
        self.count <= max
    }
}

/// Lines of the log within a minute: for refusals of an address, for all else of an address, and
/// for all else of all addresses.
const REFUSALS: u64 = 10;
const LINES: u64 = 300;
const ALL_LINES: u64 = 1_000;

/// Which events the owner's log gets: the first ones of each minute, and the number of the others.
/// Otherwise one host could fill the owner's disk.
#[derive(Clone, Default)]
pub(super) struct LogLimit(Arc<Mutex<LogCounts>>);

#[derive(Default)]
struct LogCounts {
    refusals: GuessCounts,
    lines: GuessCounts,
    /// The lines that those of one address leave, under one address for all.
    all: GuessCounts,
}

impl LogLimit {
    /// Whether the log gets this event.
    pub(super) fn admits(&self, event: &ServeEvent) -> bool {
        let (counts, now) = (&mut *lock(&self.0), Instant::now());
        match event {
            ServeEvent::Refused { peer, .. } => counts.refusals.note(peer.ip(), now) <= REFUSALS,
            ServeEvent::Connected { peer }
            | ServeEvent::Tested { peer, .. }
            | ServeEvent::Served { peer, .. }
            | ServeEvent::Disconnected { peer, .. } => {
                counts.lines.note(peer.ip(), now) <= LINES
                    && counts.all.note(OTHERS, now) <= ALL_LINES
            }
            // A client needs the key for a treatment; the owner has asked for progress.
            ServeEvent::Treated { .. }
            | ServeEvent::Untreated { .. }
            | ServeEvent::Running { .. }
            | ServeEvent::LeftOut { .. } => true,
        }
    }

    /// Time until [`LogLimit::sum_up`] is to be called again. Other threads count events too.
    pub(super) fn patience(&self) -> Duration {
        let counts = lock(&self.0);
        if counts.refusals.is_empty() && counts.lines.is_empty() { MINUTE } else { MINUTE / 60 }
    }

    /// For each address whose minute is over, the number of events that the log did not get.
    pub(super) fn sum_up(&self, now: Instant) -> Vec<ServeEvent> {
        let counts = &mut *lock(&self.0);
        let limited = [
            (&mut counts.refusals, REFUSALS, "refusals of this address"),
            (&mut counts.lines, LINES, "lines of this address"),
            (&mut counts.all, ALL_LINES, "lines of all addresses"),
        ];
        let sums = limited.into_iter().flat_map(|(counts, max, what)| {
            let over = counts.take_over(now).into_iter();
            let beyond = over.filter(move |(_, count)| *count > max);
            beyond.map(move |(address, count)| ServeEvent::LeftOut {
                peer: SocketAddr::new(address, 0),
                what: format!("{} more {what} within a minute", count - max),
            })
        });
        sums.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_minute_begins_with_the_first_count_and_excess_addresses_are_counted_together() {
        let (mut counts, began) = (GuessCounts::default(), Instant::now());
        let address = |n: u32| IpAddr::from(n.to_be_bytes());
        let noted = [1, 1].map(|n| counts.note(address(n), began));
        assert_eq!(noted, [1, 2]);
        let late = began + MINUTE;
        assert_eq!(counts.note(address(2), late), 1);
        assert_eq!(counts.take_over(late), [(address(1), 2)]);
        let left = [1, 2].map(|n| counts.count(address(n)));
        assert_eq!(left, [0, 1]);
        for n in 0..2 * ADDRESSES as u32 {
            counts.note(address(n), late);
        }
        assert!(counts.by_address.len() <= ADDRESSES + 1);
        // One more is counted with them, whether it has come before or not.
        for n in [2 * ADDRESSES as u32 - 1, 4 * ADDRESSES as u32] {
            assert!(counts.count(address(n)) > 1000, "{n}");
        }
        assert_eq!(counts.count(address(3)), 1);
    }

    fn refused(peer: &str) -> ServeEvent {
        ServeEvent::Refused { peer: peer.parse().unwrap(), reason: "junk".into() }
    }

    fn left_out(peer: &str, what: &str) -> ServeEvent {
        ServeEvent::LeftOut { peer: peer.parse().unwrap(), what: format!("{what} within a minute") }
    }

    #[test]
    fn many_refusals_of_an_address_have_ten_lines_and_a_sum() {
        let limit = LogLimit::default();
        assert_eq!(limit.patience(), MINUTE);
        let logged = (0..1204).filter(|n| {
            let event = refused(&format!("198.18.0.1:{}", n + 1));
            limit.admits(&event)
        });
        assert_eq!(logged.count() as u64, REFUSALS);
        assert!(limit.admits(&refused("198.18.0.2:1")));
        assert_eq!(limit.sum_up(Instant::now()), []);
        let sums = limit.sum_up(Instant::now() + MINUTE);
        let sum = left_out("198.18.0.1:0", "1194 more refusals of this address");
        assert_eq!(sums, [sum]);
        assert_eq!(limit.patience(), MINUTE);
    }

    #[test]
    fn the_log_has_so_many_lines_of_an_address_and_of_all() {
        let limit = LogLimit::default();
        let logged = |address: u32, times: u64| {
            let peer = SocketAddr::from((address.to_be_bytes(), 1));
            let event = ServeEvent::Connected { peer };
            (0..times).filter(|_| limit.admits(&event)).count() as u64
        };
        assert_eq!(logged(1, 2 * LINES), LINES);
        assert_eq!(logged(2, 3), 3);
        let of_others: u64 = (3..2 * ADDRESSES as u32).map(|n| logged(n, 1)).sum();
        assert_eq!(of_others, ALL_LINES - LINES - 3);
        // Refusals are counted by themselves.
        assert!(limit.admits(&refused("198.18.0.1:1")));
        let sums = limit.sum_up(Instant::now() + MINUTE);
        let of_one = left_out("0.0.0.1:0", "300 more lines of this address");
        assert!(sums.contains(&of_one), "{sums:?}");
        let of_all = |event: &ServeEvent| {
            matches!(event, ServeEvent::LeftOut { what, .. } if
            what.contains("more lines of all addresses"))
        };
        assert!(sums.iter().any(of_all), "{sums:?}");
        assert_eq!(limit.patience(), MINUTE);
    }
}
